//! The input: an [`Event`] at a [`Position`], and the bounded codes under which one can be turned away.
//!
//! Invariant: nothing here can print a payload. `Debug` shows positions and lengths only.

use std::fmt;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::model::words;

/// A lane of the source: a Kafka topic-partition, or 0 for a file or a pipe. Numbered by the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Partition(pub u64);

/// The place of one record in its partition. Not to be confused with [`NextOffset`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Offset(pub i64);

impl Offset {
    /// Where reading goes on after this record.
    pub fn next(self) -> NextOffset {
        NextOffset(self.0 + 1)
    }
}

/// The first offset that is still needed: what Kafka calls the committed offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NextOffset(pub i64);

/// Partition and offset: how errors, logs and dead letters name a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// The lane.
    pub partition: Partition,
    /// The place in it.
    pub offset: Offset,
}

impl Position {
    /// The position at `offset` of `partition`.
    pub fn new(partition: u32, offset: i64) -> Self {
        Self { partition: Partition(partition.into()), offset: Offset(offset) }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.partition.0, self.offset.0)
    }
}

/// Milliseconds since the Unix epoch. Time is always passed in, never read, below the edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Millis(pub i64);

/// The key of a message. Most are short, and cost no allocation.
pub type Key = SmallVec<[u8; 40]>;

/// One message of the source, still encoded. Headers are not carried, and keys no further than into a keyed hash: they
/// identify people too.
#[derive(Clone)]
pub struct Event {
    /// Where it stands.
    pub position: Position,
    /// The number of its placement: where its record has the fields of the policy.
    pub placement: usize,
    /// The source's own timestamp, if it has one.
    pub timestamp: Option<Millis>,
    /// Its key, if it has one.
    pub key: Option<Key>,
    /// The encoded record; `None` is a tombstone.
    pub payload: Option<Bytes>,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({}, {} bytes)", self.position, self.payload.as_ref().map_or(0, Bytes::len))
    }
}

words! {
    /// Why a record was turned away: a bounded set of codes, safe as a metric label.
    pub enum RejectCode {
        /// Not parseable in the configured format, or trailing bytes.
        Malformed = "malformed",
        /// Not valid UTF-8.
        InvalidUtf8 = "invalid_utf8",
        /// The same key twice in one JSON object.
        DuplicateKey = "duplicate_key",
        /// Nested deeper than any record should be.
        TooDeep = "too_deep",
        /// Larger than the configured limit.
        TooLarge = "too_large",
        /// No payload at all, or a change event that says that its row was deleted.
        Tombstone = "tombstone",
        /// A message about no row: a truncate, a transaction marker, a heartbeat, an array without elements.
        NoRow = "no_row",
        /// A payload of zero bytes.
        Empty = "empty",
        /// The schema id is not known to the registry.
        UnknownSchema = "unknown_schema",
        /// A quasi-identifier or sensitive field is absent.
        MissingField = "missing_field",
        /// A quasi-identifier is null.
        NullField = "null_field",
        /// An object or array where a scalar is needed.
        NotScalar = "not_scalar",
        /// A path leads through an array or a scalar where it needs an object.
        NotAnObject = "not_an_object",
        /// Something else stands where an array of elements is needed.
        NotAnArray = "not_an_array",
        /// A quasi value outside its hierarchy.
        UnknownValue = "unknown_value",
        /// The subject is absent, null or not a scalar: k could not be counted.
        NoSubject = "no_subject",
        /// The event time is absent or not a time.
        BadEventTime = "bad_event_time",
        /// No change event, where the source is said to have them.
        NotAChange = "not_a_change",
    }
}

impl RejectCode {
    /// True if the message is about no row that could be published. Nobody has to look at it.
    pub fn is_passed_over(self) -> bool {
        matches!(self, Self::Tombstone | Self::NoRow)
    }
}

/// A record that was turned away: the code, and the configured name of the field if one is to blame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// The bounded reason.
    pub code: RejectCode,
    /// Index into the schema's fields: a configured name, never one read from the data.
    pub field: Option<usize>,
}

impl Reject {
    /// A rejection of the whole record.
    pub fn record(code: RejectCode) -> Self {
        Self { code, field: None }
    }

    /// A rejection because of one configured field.
    pub fn field(code: RejectCode, field: usize) -> Self {
        Self { code, field: Some(field) }
    }
}
