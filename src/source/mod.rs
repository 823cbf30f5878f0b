//! Where events come from: files, pipes and the generator, behind one small interface.
//!
//! A source only cuts bytes into [`Event`]s; decoding is `codec`'s. `next` is cancel-safe: dropping its future loses
//! nothing, so a stop never waits for input. Blocking reads happen on a thread of their own, behind a bounded channel.

mod array;
pub mod file;
mod frame;
pub mod generator;
pub(crate) mod population;
mod reader;
mod recognise;

use std::collections::BTreeSet;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

pub use frame::ArrayDamage;
pub use reader::{InputBytes, ReaderSource};
pub use recognise::NotReadable;

use crate::codec::avro::container::ContainerError;
use crate::codec::avro::{AvroDecoder, AvroEncoder, OutputSchema};
use crate::codec::compress::{CompressedEncoder, Compression};
use crate::codec::csv::{CsvDecoder, CsvEncoder, CsvHeader};
use crate::codec::encoding::TextEncoding;
use crate::codec::json::{JsonDecoder, JsonEncoder};
use crate::codec::parquet::{ParquetEncoder, ParquetFileError};
use crate::codec::{CodecError, Decode, Encode, Format, RecordReader};
use crate::model::event::{Event, Millis, Partition};
use crate::model::lattice::Node;
use crate::model::release::plan::{CommitSpace, ReleasePlan};
use crate::model::release::row_levels::RowLevels;
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
    /// More partitions, beside those that are read already: nothing that was read before is dropped.
    Added(NewAssignment),
    /// Partitions that others read from now on: their records leave the open windows, all others stay.
    GivenUp(GivenUp),
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

/// Partitions that are given up while others are still read.
#[derive(Debug)]
pub struct GivenUp {
    /// The partitions.
    pub partitions: BTreeSet<Partition>,
    /// Told when no record of theirs is left: everything that was read of them before is published, or dropped.
    pub done: SyncSender<()>,
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
    /// The levels of each record, where every record has its own.
    pub row_levels: Option<RowLevels>,
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
    /// The elements of a JSON array cannot be told apart any more.
    #[error(
        "cannot go on after record {records}: {damage}; mend the file, or write one object per line, where damage costs its line only"
    )]
    Array {
        /// How many records had been read.
        records: i64,
        /// What is wrong.
        damage: ArrayDamage,
    },
    /// The container file is broken.
    #[error("cannot go on after record {records}")]
    Container {
        /// How many records had been read.
        records: i64,
        /// What is wrong.
        source: ContainerError,
    },
    /// The Parquet file is broken.
    #[error("cannot go on after record {records}")]
    Parquet {
        /// How many records had been read.
        records: i64,
        /// What is wrong.
        source: ParquetFileError,
    },
    /// The input is something that is not read.
    #[error(transparent)]
    NotReadable(NotReadable),
    /// The input does not fit the policy.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The consumer failed for good.
    #[error("kafka: {0}")]
    Kafka(#[from] rdkafka::error::KafkaError),
    /// Another instance has the name of this member of the group.
    #[error(
        "the name {id} in the group was taken by another instance; every instance needs its own `transactional_id`"
    )]
    Fenced {
        /// The name.
        id: String,
    },
    /// A progress topic does not have the partitions of its topic of the input.
    #[error(
        "the progress topic {topic} has {there} partitions and its topic of the input {wanted}: make them as many, or write \
         `create_topics: true` under `sink.kafka`"
    )]
    Progress {
        /// The progress topic.
        topic: String,
        /// The number of its partitions.
        there: usize,
        /// That of the input.
        wanted: usize,
    },
    /// This user may not make a progress topic, or let it grow.
    #[error(
        "the progress topic {0} lacks partitions, and this user may not create them; create them first: `validate --connect` names \
         the command"
    )]
    MayNotCreate(String),
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
    /// The schema of a Parquet file, as Avro's.
    Parquet(Arc<apache_avro::Schema>),
}

impl Preamble {
    /// The decoder for this input. Refuses an input that lacks fields that the policy needs, naming them all.
    pub fn decoder(&self, schema: &Schema, max_record_bytes: usize) -> Result<Box<dyn Decode>, CodecError> {
        Ok(match self {
            Self::Json => Box::new(JsonDecoder::new(schema, max_record_bytes)),
            Self::Csv(header) => Box::new(CsvDecoder::new(schema, header, max_record_bytes)?),
            Self::Avro(writer) | Self::Parquet(writer) => Box::new(AvroDecoder::new(schema, writer, max_record_bytes)?),
        })
    }

    /// The reader of records of this input, with [`Preamble::decoder`].
    pub fn reader(&self, schema: &Schema, max_record_bytes: usize) -> Result<RecordReader, CodecError> {
        Ok(RecordReader::new(self.decoder(schema, max_record_bytes)?, schema, max_record_bytes))
    }

    /// The format of this input.
    pub fn format(&self) -> Format {
        match self {
            Self::Json => Format::Json,
            Self::Csv(_) => Format::Csv,
            Self::Avro(_) => Format::Avro,
            Self::Parquet(_) => Format::Parquet,
        }
    }

    /// The types of this input, where it has them.
    fn writers(&self) -> Vec<&apache_avro::Schema> {
        match self {
            Self::Avro(writer) | Self::Parquet(writer) => vec![writer.as_ref()],
            Self::Json | Self::Csv(_) => Vec::new(),
        }
    }

    /// An encoder of published rows in `format` for a file of this name: compressed as the name announces, with the types and the
    /// delimiter of this input where it has them. A name that ends in .tsv announces tabs.
    pub fn encoder(&self, schema: &Schema, format: Format, name: &Path) -> Result<Box<dyn Encode>, CodecError> {
        let encoder: Box<dyn Encode> = match (format, self) {
            (Format::Json, _) => Box::new(JsonEncoder::new(schema)),
            (Format::Csv, _) if Format::has_tabs(name) => Box::new(CsvEncoder::new(schema, b'\t')),
            (Format::Csv, Self::Csv(header)) => Box::new(CsvEncoder::new(schema, header.delimiter())),
            (Format::Csv, _) => Box::new(CsvEncoder::new(schema, b',')),
            (Format::Avro, _) => Box::new(AvroEncoder::new(OutputSchema::derive(schema, &self.writers())?)),
            (Format::Parquet, _) => Box::new(ParquetEncoder::new(schema, &self.writers())),
        };
        Ok(match Compression::of_path(name) {
            Some(compression) => Box::new(CompressedEncoder::new(encoder, compression)),
            None => encoder,
        })
    }
}

/// How an input is to be read.
#[derive(Debug, Clone, Copy)]
pub struct Input {
    /// How its records are written down; recognised by the first bytes if it is not given.
    pub format: Option<Format>,
    /// The format that its name announces: the one that first bytes of text belong to.
    pub likely: Option<Format>,
    /// The delimiter of a CSV input; sniffed from the header if none is given.
    pub delimiter: Option<u8>,
    /// The encoding of a text; by its byte order mark, or UTF-8, if none is given.
    pub encoding: Option<TextEncoding>,
    /// Longer records are turned away.
    pub max_record_bytes: usize,
}
