//! Where events come from: files, pipes and the generator, behind one small interface.
//!
//! A source only cuts bytes into [`Event`]s; decoding is `codec`'s. `next` is cancel-safe: dropping its future loses
//! nothing, so a stop never waits for input. Blocking reads happen on a thread of their own, behind a bounded channel.

pub(crate) mod file;
mod frame;
pub mod generator;
pub(crate) mod population;
mod reader;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

pub use reader::ReaderSource;

use crate::codec::avro::container::ContainerError;
use crate::codec::avro::{AvroDecoder, AvroEncoder, OutputSchema};
use crate::codec::csv::{CsvDecoder, CsvEncoder, CsvHeader};
use crate::codec::json::{JsonDecoder, JsonEncoder};
use crate::codec::{CodecError, Decode, Encode, Format};
use crate::model::event::{Event, Millis, Partition};
use crate::model::lattice::Node;
use crate::model::release::plan::{CommitSpace, ReleasePlan};
use crate::model::schema::Schema;

/// The most events in one batch. Larger: the first record of a batch waits for more others. Smaller: more trips
/// through the channel.
pub const BATCH: usize = 1024;

/// What a source has to say next.
#[derive(Debug)]
pub enum SourceItem {
    /// Some events, in order; at most [`BATCH`].
    Events(Vec<Event>),
    /// Records that were left out of a release before a restart, and wait for a later one; not since before the time
    /// given, if it is known.
    Held(Vec<(Event, Option<Millis>)>),
    /// What this instance reads belongs to nobody until the next assignment.
    Revoked,
    /// A new assignment: everything that was read before belongs to others, or will be read again.
    Assigned(NewAssignment),
    /// What an earlier release shows, where later ones must know. The earlier ones first.
    Recalled(Box<Recalled>),
    /// A release that was planned before a crash, with the records it was made of.
    Replay(Box<Replay>),
    /// Nothing ever again.
    End,
}

/// What this instance reads from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAssignment {
    /// Grows with every assignment: what was made in an earlier one is not published any more.
    pub epoch: u64,
    /// The partitions that are this instance's now; all, if the source has no others.
    pub partitions: Option<Vec<Partition>>,
    /// The levels of the last release, as far as the log knows them.
    pub last: Option<Node>,
}

/// A planned release and its records.
#[derive(Debug)]
pub struct Replay {
    /// The plan.
    pub plan: ReleasePlan,
    /// The records, fresh and held ones, by position.
    pub events: Vec<Event>,
}

/// An earlier release, as far as later ones must know it.
#[derive(Debug)]
pub struct Recalled {
    /// The partitions of ours that it shows something of.
    pub partitions: Vec<Partition>,
    /// How many releases have followed it, at least.
    pub later: usize,
    /// Level per quasi-identifier.
    pub levels: Vec<u8>,
    /// The fingerprint of the policy that it was made by.
    pub fingerprint: String,
    /// The records that it shows.
    pub events: Vec<Event>,
}

/// A stream of events.
pub trait Source {
    /// True if what was read and not finished is read again after a restart. Then nothing is drained at a stop.
    const REREADS: bool = false;

    /// The space in which plans and held records are committed, if it is bounded.
    fn commit_space(&self) -> Option<Arc<dyn CommitSpace>> {
        None
    }

    /// Waits for the next item. Cancel-safe. After `End` it goes on saying `End`.
    fn next(&mut self) -> impl Future<Output = Result<SourceItem, SourceError>> + Send;
}

/// A source that failed. Names the input, never what was in it.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file cannot be opened.
    #[error("cannot open {}", path.display())]
    Open {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Reading stopped half way.
    #[error("cannot read the input after record {records}")]
    Read {
        /// How many records had been read.
        records: i64,
        /// Why not.
        source: std::io::Error,
    },
    /// The container file is broken.
    #[error("cannot go on after record {records}")]
    Container {
        /// How many records had been read.
        records: i64,
        /// What is wrong.
        source: ContainerError,
    },
    /// The input does not fit the policy.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The consumer failed for good.
    #[error("kafka: {0}")]
    Kafka(#[from] rdkafka::error::KafkaError),
    /// The log does not hold the next record any more.
    #[error(
        "the next record is not in the log any more ({0}): was the topic recreated? if retention has deleted it, start again, \
         and `on_gap` says how to go on"
    )]
    Lost(rdkafka::error::KafkaError),
    /// An assignment cannot be taken up.
    #[error(transparent)]
    Assignment(Box<dyn std::error::Error + Send + Sync>),
    /// The records of a planned release cannot be read any more.
    #[error("the records of a release that was planned before cannot be read again")]
    Reread,
    /// What earlier releases show cannot be read any more.
    #[error(
        "what earlier releases have shown is not in {topic} any more ({missing} missing), so who returns could not be told: \
         let it keep what the last releases need; set `on_gap: continue` to go on without"
    )]
    Forgotten {
        /// Where it was.
        topic: String,
        /// How much of it is missing.
        missing: u64,
    },
    /// The reading thread could not be started, or died.
    #[error("the reading thread is gone")]
    Thread,
}

/// What an input says about itself before its first record.
#[derive(Debug, Clone)]
pub enum Preamble {
    /// JSON lines say nothing.
    Json,
    /// The header line.
    Csv(CsvHeader),
    /// The schema that the data were written with.
    Avro(Arc<apache_avro::Schema>),
}

impl Preamble {
    /// The decoder for this input. Refuses an input that lacks fields that the policy needs, naming them all.
    pub fn decoder(&self, schema: &Schema, max_record_bytes: usize) -> Result<Box<dyn Decode>, CodecError> {
        Ok(match self {
            Self::Json => Box::new(JsonDecoder::new(schema, max_record_bytes)),
            Self::Csv(header) => Box::new(CsvDecoder::new(schema, header, max_record_bytes)?),
            Self::Avro(writer) => Box::new(AvroDecoder::new(schema, writer, max_record_bytes)?),
        })
    }

    /// An encoder of published rows in `format`, with the types and the delimiter of this input where it has them.
    pub fn encoder(&self, schema: &Schema, format: Format) -> Result<Box<dyn Encode>, CodecError> {
        Ok(match (format, self) {
            (Format::Json, _) => Box::new(JsonEncoder::new(schema)),
            (Format::Csv, Self::Csv(header)) => Box::new(CsvEncoder::new(schema, header.delimiter())),
            (Format::Csv, _) => Box::new(CsvEncoder::new(schema, b',')),
            (Format::Avro, Self::Avro(writer)) => {
                Box::new(AvroEncoder::new(OutputSchema::derive(schema, &[writer.as_ref()])?))
            }
            (Format::Avro, _) => Box::new(AvroEncoder::new(OutputSchema::derive(schema, &[])?)),
        })
    }
}

/// How an input is to be read.
#[derive(Debug, Clone, Copy)]
pub struct Input {
    /// How its records are written down.
    pub format: Format,
    /// The delimiter of a CSV input; sniffed from the header if none is given.
    pub delimiter: Option<u8>,
    /// Longer records are turned away.
    pub max_record_bytes: usize,
}
