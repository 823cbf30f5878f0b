//! Avro data to records, and published rows to Avro.
//!
//! Schemas are parsed by `apache_avro`; data are read here. Its own reader takes a truncated string or union for null,
//! recurses without limit on recursive schemas and allocates what a corrupt length asks for, none of which can be
//! allowed where the value that is checked must be the value that is published.
//!
//! A [`Plan`] is made once per writer schema and decodes any number of data: for a plain topic or a file there is one
//! plan, for the Confluent wire format one per schema id.

pub mod container;
mod datum;
mod kinds;
mod output;
mod plan;
mod types;

use std::sync::Arc;

pub(in crate::codec) use datum::{float, latin1, read_long, uuid};
pub(in crate::codec) use kinds::write as write_value;
pub use output::{AvroEncoder, OutputSchema};
pub(in crate::codec) use output::{kinds_at, value_kinds};
pub use plan::Plan;

use super::{CodecError, Decode};
use crate::model::event::Reject;
use crate::model::record::Record;
use crate::model::schema::{Path, Schema};

/// Decodes one datum per payload, all of one writer schema.
#[derive(Clone)]
pub struct AvroDecoder {
    plan: Arc<Plan>,
    max_record_bytes: usize,
}

impl AvroDecoder {
    /// A decoder of the fields of `schema` from data written with `writer`. Lists every needed field that is missing.
    pub fn new(schema: &Schema, writer: &apache_avro::Schema, max_record_bytes: usize) -> Result<Self, CodecError> {
        let plan = Plan::new(schema, writer)?;
        check_fields(schema, &plan)?;
        Ok(Self { plan: Arc::new(plan), max_record_bytes })
    }
}

impl Decode for AvroDecoder {
    fn decode<'a>(&mut self, payload: &'a [u8]) -> Result<Record<'a>, Reject> {
        self.plan.decode(payload, self.max_record_bytes)
    }

    fn fields(&self, _payload: &[u8]) -> Vec<Path> {
        self.plan.fields()
    }

    fn another(&self) -> Box<dyn Decode> {
        Box::new(self.clone())
    }
}

/// Lists every path of `schema` that leads into something else than a record, and every needed field that is missing.
pub(crate) fn check_fields(schema: &Schema, plan: &Plan) -> Result<(), CodecError> {
    super::check_fields(schema, |path| plan.blocked(path), &plan.fields(), |path| plan.has(path))
}

/// Parses a writer schema.
pub fn parse_schema(text: &str) -> Result<Arc<apache_avro::Schema>, CodecError> {
    // The parser's messages quote the schema, which is safe, but also run over pages.
    apache_avro::Schema::parse_str(text).map(Arc::new).map_err(|_| CodecError::BadAvroSchema)
}

#[cfg(test)]
mod tests;
