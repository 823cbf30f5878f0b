//! How to read what was written with one schema of the registry.
//!
//! A Protobuf schema is a file of several messages, and a message in the wire format says which of them it is. Its plan is made when
//! the first one comes; a place where the file has no message is never kept, so that hostile ones take no memory.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use prost_reflect::{FileDescriptor, MessageDescriptor};

use crate::codec::avro::{Plan, read_long};
use crate::codec::json::JsonDecoder;
use crate::codec::json::schema::ValueChecks;
use crate::codec::protobuf::{MessagePlan, message_at};
use crate::codec::schemas::WriterSchema;
use crate::codec::{CodecError, Decode as _, check_size, malformed};
use crate::model::event::Reject;
use crate::model::record::Record;
use crate::model::schema::{Path, Schema};

/// The deepest message in messages that is looked up. Larger: hostile messages have longer lists. Smaller: deep ones are refused.
const MAX_INDEXES: usize = 32;

/// A writer schema and how to read what was written with it.
pub(super) struct Writer {
    schema: WriterSchema,
    reading: Reading,
}

enum Reading {
    Avro(Plan),
    Protobuf(Box<Messages>),
    Json(ValueChecks),
}

/// A message and the way to read it.
type PlannedMessage = (Arc<MessagePlan>, MessageDescriptor);

/// The messages of a file that have come so far, by their places in it.
struct Messages {
    file: FileDescriptor,
    fields: Schema,
    plans: RwLock<BTreeMap<Vec<u32>, PlannedMessage>>,
}

impl Writer {
    pub(super) fn new(fields: &Schema, schema: WriterSchema) -> Result<Self, CodecError> {
        let reading = match &schema {
            WriterSchema::Avro(avro) => Reading::Avro(Plan::new(fields, avro)?),
            WriterSchema::Protobuf(message) => Reading::Protobuf(Box::new(Messages {
                file: message.parent_file(),
                fields: fields.clone(),
                plans: RwLock::default(),
            })),
            WriterSchema::Json(json) => Reading::Json(ValueChecks::new(fields, json)),
        };
        Ok(Self { schema, reading })
    }

    /// The schemas of what has come so far.
    pub(super) fn schemas(&self) -> Vec<WriterSchema> {
        match &self.reading {
            Reading::Protobuf(messages) => {
                let plans = messages.plans.read().unwrap_or_else(PoisonError::into_inner);
                plans.values().map(|(_, message)| WriterSchema::Protobuf(message.clone())).collect()
            }
            Reading::Avro(_) | Reading::Json(_) => vec![self.schema.clone()],
        }
    }

    /// Decodes what stands behind the schema's id.
    pub(super) fn decode<'a>(
        &self,
        bytes: &'a [u8],
        json: &mut JsonDecoder,
        max_record_bytes: usize,
    ) -> Result<Record<'a>, Reject> {
        match &self.reading {
            Reading::Avro(plan) => plan.decode(bytes, max_record_bytes),
            Reading::Json(checks) => checks.check(json.decode(bytes)?),
            Reading::Protobuf(messages) => {
                check_size(bytes, max_record_bytes)?;
                let (indexes, message) = indexes(bytes).ok_or_else(malformed)?;
                messages.plan(&indexes).ok_or_else(malformed)?.decode(message, max_record_bytes)
            }
        }
    }

    /// The places of the values in the row of a message.
    pub(super) fn fields(&self, bytes: &[u8], json: &JsonDecoder) -> Vec<Path> {
        match &self.reading {
            Reading::Avro(plan) => plan.fields(),
            Reading::Json(_) => json.fields(bytes),
            Reading::Protobuf(messages) => {
                let plan = indexes(bytes).and_then(|(indexes, _)| messages.plan(&indexes));
                plan.map_or(Vec::new(), |plan| plan.fields())
            }
        }
    }
}

impl Messages {
    fn plan(&self, indexes: &[u32]) -> Option<Arc<MessagePlan>> {
        let known =
            self.plans.read().unwrap_or_else(PoisonError::into_inner).get(indexes).map(|(plan, _)| Arc::clone(plan));
        known.or_else(|| {
            let message = message_at(&self.file, indexes)?;
            let plan = Arc::new(MessagePlan::new(&self.fields, &message));
            let mut plans = self.plans.write().unwrap_or_else(PoisonError::into_inner);
            plans.insert(indexes.to_vec(), (Arc::clone(&plan), message));
            Some(plan)
        })
    }
}

/// The place of the message in its file, and the message. A list of one zero is written as its length alone, which is zero.
fn indexes(bytes: &[u8]) -> Option<(Vec<u32>, &[u8])> {
    let (count, mut rest) = read_long(bytes)?;
    if count == 0 {
        return Some((vec![0], rest));
    }
    let count = usize::try_from(count).ok().filter(|count| *count <= MAX_INDEXES)?;
    let mut indexes = Vec::with_capacity(count);
    for _ in 0..count {
        let (index, after) = read_long(rest)?;
        indexes.push(u32::try_from(index).ok()?);
        rest = after;
    }
    Some((indexes, rest))
}
