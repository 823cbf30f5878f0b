//! Where releases go. A sink takes a [`Release`] and nothing else, so nothing reaches it that the gate has not counted.

pub mod file;

use std::future::Future;

use crate::codec::{CodecError, EncodeError};
use crate::files::FileError;
use crate::gate::Release;
use crate::model::event::Partition;
use crate::model::release::manifest::{JournalEntry, PartitionSpans};
use crate::model::release::runs::Runs;

/// The records that a release finished, for operators; `place` names the topic and the partition of a partition's number.
pub(crate) fn journal_entry(release: &Release, place: impl Fn(Partition) -> (Option<String>, u64)) -> JournalEntry {
    let manifest = release.manifest();
    let from = &manifest.provenance;
    let part = |(partition, runs): (Partition, &Runs)| {
        let (topic, partition) = place(partition);
        PartitionSpans { topic, partition, spans: runs.iter().map(|run| [run.first.0, run.last.0]).collect() }
    };
    JournalEntry {
        release_id: from.release_id.clone(),
        window_id: from.window_id,
        closed_at: from.closed_at,
        rows: manifest.rows,
        records_published: from.records_published,
        records_suppressed: from.records_suppressed,
        records_rejected: from.records_rejected,
        records_held: from.records_held,
        finished: release.lineage().finished.iter().map(part).collect(),
    }
}

/// Somewhere to publish.
pub trait Sink {
    /// Publishes one release: all of it, or nothing.
    fn publish(&mut self, release: &Release) -> impl Future<Output = Result<Delivery, SinkError>> + Send;
    /// Called once after the last release.
    fn finish(&mut self) -> impl Future<Output = Result<(), SinkError>> + Send;
}

/// The fate of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// It was published.
    Published,
    /// Its records belong to another instance now, which will publish them; nothing of it is visible.
    Discarded,
}

/// A sink that failed. Names the output, never what was to be written.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// A file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
    /// Writing stopped.
    #[error("cannot write the output")]
    Write(#[from] std::io::Error),
    /// The rows do not fit the output's format.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The cluster failed.
    #[error("kafka: {0}")]
    Kafka(rdkafka::error::KafkaError),
    /// The cluster refuses us.
    #[error("the cluster at {brokers} cannot be used: {remedy}")]
    Unusable {
        /// Its addresses.
        brokers: String,
        /// The remedy.
        remedy: &'static str,
    },
    /// The release cannot be written in the sink's format.
    #[error(transparent)]
    Output(Box<dyn std::error::Error + Send + Sync>),
    /// Source and sink are in two clusters, and are not configured for it.
    #[error("{0}")]
    TwoClusters(&'static str),
    /// A topic of the output is not there.
    #[error(
        "the topic {0} does not exist or has no partitions; create it first, or write `create_topics: true` under `sink.kafka`"
    )]
    NoTopic(String),
    /// This user may not create topics.
    #[error("the topic {0} does not exist, and this user may not create it; create it first")]
    MayNotCreate(String),
    /// Another instance has the transactional id.
    #[error("the transactional id {id} was taken by another instance; every instance needs its own")]
    Fenced {
        /// The id.
        id: String,
    },
    /// The commit's metadata would not fit.
    #[error("the commit's metadata is larger than a broker keeps; use fewer held records or smaller windows")]
    MetadataTooLarge,
    /// The sink was closed before.
    #[error("the sink is closed")]
    Closed,
    /// A value does not fit the output's type.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}
