//! Messages that wrap rows: change data capture as Debezium writes it, and arrays that hold a row in each element.
//!
//! With Debezium the paths of the policy are those of the row. It is read from `after`, or from `payload.after` where the message carries its
//! schema. Two more slots, behind those of the policy, hold the operation and what markers have instead, and [`Envelope::open`] takes them off: a created,
//! read or updated row is a record, a deleted one is a tombstone of the message's key, and everything else of Debezium (truncates, logical
//! messages, transaction markers, heartbeats) is about no row. What has no operation, no time and no count of events is no message of
//! Debezium. `before` is never read, so an update is one record.
//!
//! With an array, decoders read the fields around it as ever and the whole array into one more slot, whatever the format is. The
//! elements are read from there, by `codec`'s record reader.

use std::sync::Arc;

use super::{Path, PathTree, Schema};
use crate::model::event::{Reject, RejectCode};
use crate::model::record::{Record, Value};

/// The part of a message around the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Envelope {
    /// Nothing: the message is the row.
    #[default]
    None,
    /// A change event of Debezium, with or without its schema part.
    Debezium,
    /// An object with an array that holds a row in each element; the object's other fields belong to all of them.
    Array,
}

impl Envelope {
    /// How many values a decoder reads for a record of `width`.
    pub fn slots(self, width: usize) -> usize {
        match self {
            Self::None => width,
            Self::Array => width + 1,
            Self::Debezium => width + 2,
        }
    }

    /// The places of the fields in a message, by slot. A field has two places where a schema part may stand beside it.
    pub(super) fn places(self, schema: &Schema) -> PathTree {
        let fields = schema.attributes().iter().map(|a| a.path.clone()).enumerate();
        match self {
            Self::None => tree(fields),
            Self::Array => {
                let inside = |path: &Path| schema.array.as_ref().is_some_and(|array| array.contains(path));
                let array = schema.array.clone().map(|array| (schema.attributes().len(), array));
                tree(fields.filter(|(_, path)| !inside(path)).chain(array))
            }
            Self::Debezium => {
                let width = schema.attributes().len();
                // Transaction markers of old versions have no time.
                let marks = ["ts_ms", "event_count"].map(|mark| (width + 1, Path::of(mark)));
                let around = std::iter::once((width, Path::of("op"))).chain(marks);
                let rows = fields.map(|(slot, path)| (slot, self.row_place(&path)));
                let plain: Vec<_> = rows.chain(around).collect();
                let wrapped: Vec<_> = plain.iter().map(|(slot, path)| (*slot, path.below(&["payload"]))).collect();
                tree(plain.into_iter().chain(wrapped))
            }
        }
    }

    /// Where a message has the field at `path` of the row; with a schema part, below `payload`.
    pub fn row_place(self, path: &Path) -> Path {
        match self {
            Self::None | Self::Array => path.clone(),
            Self::Debezium => path.below(&["after"]),
        }
    }

    /// The path in the row of the field that a message has at `names`; `None` if it is not in the row.
    pub fn row_path(self, names: Vec<Arc<str>>) -> Option<Path> {
        let is = |at: usize, name: &str| names.get(at).is_some_and(|own| **own == *name);
        let outer = match self {
            Self::None | Self::Array => 0,
            Self::Debezium if is(0, "after") => 1,
            Self::Debezium if is(0, "payload") && is(1, "after") => 2,
            Self::Debezium => return None,
        };
        (names.len() > outer).then(|| Path::from_names(names[outer..].to_vec()))
    }

    /// The record of `width` values in what a decoder read; with an array still one more, which holds its elements.
    pub fn open(self, mut record: Record<'_>, width: usize) -> Result<Record<'_>, Reject> {
        if matches!(self, Self::None | Self::Array) {
            return Ok(record);
        }
        let operation = record.values.get(width).and_then(Value::canonical).map(|op| op.into_owned());
        let marked = record.values.get(width + 1).is_some_and(|mark| !matches!(mark, Value::Missing));
        record.values.truncate(width);
        match operation.as_deref() {
            Some("c" | "r" | "u") => {
                // A null in the place of the row makes all its fields null.
                let empty = record.values.iter().all(|value| matches!(value, Value::Null | Value::Missing));
                if empty { Err(Reject::record(RejectCode::Malformed)) } else { Ok(record) }
            }
            Some("d") => Err(Reject::record(RejectCode::Tombstone)),
            None if !marked => Err(Reject::record(RejectCode::NotAChange)),
            _ => Err(Reject::record(RejectCode::NoRow)),
        }
    }
}

fn tree(paths: impl Iterator<Item = (usize, Path)>) -> PathTree {
    let paths: Vec<_> = paths.collect();
    PathTree::of(paths.iter().map(|(slot, path)| (path, *slot)))
}
