//! Protobuf messages to records, and published rows to Protobuf.
//!
//! Schemas are compiled by `protox`; messages are read here, because a library's dynamic message allocates for every field and
//! keeps what nobody asked for. A [`MessagePlan`] is made once per message type and decodes any number of messages.
//!
//! Values: numbers are exact, enums are their names, bytes are text with one character per byte (as in Avro's JSON), lists are
//! arrays. A field that does not tell whether it was set has its default where it is absent; any other is null.

mod file;
mod output;
mod plan;
mod types;
mod value;
mod wire;

use std::sync::Arc;

pub use file::message_of;
pub(in crate::codec) use file::{compile, message_at};
pub use output::ProtobufOutput;
pub(in crate::codec) use output::kind_at;
pub use plan::MessagePlan;
use prost_reflect::MessageDescriptor;

use super::{CodecError, Decode, check_fields, check_size};
use crate::model::event::Reject;
use crate::model::record::Record;
use crate::model::schema::{Path, Schema};

/// Decodes one message per payload, all of one type.
#[derive(Clone)]
pub struct ProtobufDecoder {
    plan: Arc<MessagePlan>,
    max_record_bytes: usize,
}

impl ProtobufDecoder {
    /// A decoder of the fields of `schema` from messages of this type. Lists every needed field that is missing.
    pub fn new(schema: &Schema, message: &MessageDescriptor, max_record_bytes: usize) -> Result<Self, CodecError> {
        let plan = MessagePlan::new(schema, message);
        check_message(schema, &plan)?;
        Ok(Self { plan: Arc::new(plan), max_record_bytes })
    }
}

impl Decode for ProtobufDecoder {
    fn decode<'a>(&mut self, payload: &'a [u8]) -> Result<Record<'a>, Reject> {
        check_size(payload, self.max_record_bytes)?;
        self.plan.decode(payload, self.max_record_bytes)
    }

    fn fields(&self, _payload: &[u8]) -> Vec<Path> {
        self.plan.fields()
    }

    fn another(&self) -> Box<dyn Decode> {
        Box::new(self.clone())
    }
}

/// Lists every path of `schema` that leads into something else than a message, and every needed field that is missing.
pub(in crate::codec) fn check_message(schema: &Schema, plan: &MessagePlan) -> Result<(), CodecError> {
    check_fields(schema, |path| plan.blocked(path), &plan.fields(), |path| plan.has(path))
}

#[cfg(test)]
mod tests;
