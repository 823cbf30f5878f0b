//! What enters: an [`Event`] at a [`Position`], and the bounded codes under which one can be turned away.
//!
//! Invariant: nothing here can print a payload. `Debug` shows positions and lengths only.

use std::fmt;

use bytes::Bytes;
use smallvec::SmallVec;

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

/// Why a record was turned away: a bounded set of codes, safe as a metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RejectCode {
    /// Not parseable in the configured format, or trailing bytes.
    Malformed,
    /// Not valid UTF-8.
    InvalidUtf8,
    /// The same key twice in one JSON object.
    DuplicateKey,
    /// Nested deeper than any record should be.
    TooDeep,
    /// Larger than the configured limit.
    TooLarge,
    /// No payload at all, or a change event that says that its row was deleted.
    Tombstone,
    /// A message about no row: a truncate, a transaction marker, a heartbeat, an array without elements.
    NoRow,
    /// A payload of zero bytes.
    Empty,
    /// The schema id is not known to the registry.
    UnknownSchema,
    /// A quasi-identifier or sensitive field is absent.
    MissingField,
    /// A quasi-identifier is null.
    NullField,
    /// An object or array where a scalar is needed.
    NotScalar,
    /// A path leads through an array or a scalar where it needs an object.
    NotAnObject,
    /// Something else stands where an array of elements is needed.
    NotAnArray,
    /// A quasi value outside its hierarchy.
    UnknownValue,
    /// The subject is absent, null or not a scalar: k could not be counted.
    NoSubject,
    /// The event time is absent or not a time.
    BadEventTime,
}

impl RejectCode {
    /// Every code, for declaring metrics.
    pub const ALL: [Self; 17] = [
        Self::Malformed,
        Self::InvalidUtf8,
        Self::DuplicateKey,
        Self::TooDeep,
        Self::TooLarge,
        Self::Tombstone,
        Self::NoRow,
        Self::Empty,
        Self::UnknownSchema,
        Self::MissingField,
        Self::NullField,
        Self::NotScalar,
        Self::NotAnObject,
        Self::NotAnArray,
        Self::UnknownValue,
        Self::NoSubject,
        Self::BadEventTime,
    ];

    /// The code as it appears in metrics, logs and dead letters.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::InvalidUtf8 => "invalid_utf8",
            Self::DuplicateKey => "duplicate_key",
            Self::TooDeep => "too_deep",
            Self::TooLarge => "too_large",
            Self::Tombstone => "tombstone",
            Self::NoRow => "no_row",
            Self::Empty => "empty",
            Self::UnknownSchema => "unknown_schema",
            Self::MissingField => "missing_field",
            Self::NullField => "null_field",
            Self::NotScalar => "not_scalar",
            Self::NotAnObject => "not_an_object",
            Self::NotAnArray => "not_an_array",
            Self::UnknownValue => "unknown_value",
            Self::NoSubject => "no_subject",
            Self::BadEventTime => "bad_event_time",
        }
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
