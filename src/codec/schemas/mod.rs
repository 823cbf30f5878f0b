//! The schemas of messages: what the input was written with, and what an output that is derived from it is written with.

pub(in crate::codec) mod kind;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use apache_avro::Schema as AvroSchema;
use prost_reflect::MessageDescriptor;

use self::kind::{Kind, value_kinds};
use super::CodecError;
use super::avro::{self, OutputSchema, parse_schema};
use super::json::JsonEncoder;
use super::json::schema::{JsonSchema, output_schema};
use super::message::MessageEncoder;
use super::protobuf::{self, ProtobufOutput};
use crate::model::schema::{Path, Schema};
use crate::model::words;

words! {
    /// A registry's names for the languages of its schemas.
    pub enum SchemaLanguage {
        /// Avro.
        Avro = "AVRO",
        /// Protobuf.
        Protobuf = "PROTOBUF",
        /// JSON Schema.
        Json = "JSON",
    }
}

impl fmt::Display for SchemaLanguage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Avro => "an avro schema",
            Self::Protobuf => "a protobuf schema",
            Self::Json => "a json schema",
        })
    }
}

/// The schema that messages of the input were written with.
#[derive(Debug, Clone, PartialEq)]
pub enum WriterSchema {
    /// Avro.
    Avro(Arc<AvroSchema>),
    /// A message type of Protobuf; of a file of a registry the first one.
    Protobuf(MessageDescriptor),
    /// JSON Schema.
    Json(Arc<JsonSchema>),
}

impl WriterSchema {
    /// Reads the text of a schema and of those that it refers to, by the names under which it does.
    pub fn parse(language: SchemaLanguage, text: &str, others: &HashMap<String, String>) -> Result<Self, CodecError> {
        match language {
            SchemaLanguage::Avro => parse_schema(text).map(Self::Avro),
            SchemaLanguage::Protobuf => {
                let file = protobuf::compile(text, others)?;
                protobuf::message_at(&file, &[0]).map(Self::Protobuf).ok_or(CodecError::BadProtobufSchema)
            }
            SchemaLanguage::Json => JsonSchema::parse(text, others)
                .map(|schema| Self::Json(Arc::new(schema)))
                .ok_or(CodecError::BadJsonSchema),
        }
    }

    /// Fails if `fields` has a needed field that the schema does not have; a JSON Schema may leave any field out.
    pub fn check(&self, fields: &Schema) -> Result<(), CodecError> {
        match self {
            Self::Avro(schema) => avro::check_fields(fields, &avro::Plan::new(fields, schema)?),
            Self::Protobuf(message) => protobuf::check_message(fields, &protobuf::MessagePlan::new(fields, message)),
            Self::Json(_) => Ok(()),
        }
    }

    fn kinds_at(&self, path: &Path) -> Vec<Kind> {
        match self {
            Self::Avro(schema) => avro::kinds_at(schema, path),
            Self::Protobuf(message) => protobuf::kind_at(message, path).into_iter().collect(),
            Self::Json(schema) => schema.kinds_at(path),
        }
    }
}

/// The schema of published rows.
#[derive(Debug, Clone)]
pub enum PublishedSchema {
    /// Avro.
    Avro(OutputSchema),
    /// Protobuf.
    Protobuf(ProtobufOutput),
    /// JSON Schema, with the fields that it is for.
    Json(String, Box<Schema>),
}

impl PublishedSchema {
    /// Derives the output from `schema` and the schemas of the input seen so far; none if the input has none.
    pub fn derive(language: SchemaLanguage, schema: &Schema, writers: &[WriterSchema]) -> Result<Self, CodecError> {
        let kinds = value_kinds(schema, |path| writers.iter().flat_map(|writer| writer.kinds_at(path)).collect());
        Ok(match language {
            SchemaLanguage::Avro => Self::Avro(OutputSchema::new(schema, kinds)?),
            SchemaLanguage::Protobuf => Self::Protobuf(ProtobufOutput::new(schema, kinds)?),
            SchemaLanguage::Json => Self::Json(output_schema(schema, &kinds), Box::new(schema.clone())),
        })
    }

    /// The schema as a registry takes it.
    pub fn text(&self) -> &str {
        match self {
            Self::Avro(output) => output.json(),
            Self::Protobuf(output) => output.text(),
            Self::Json(text, _) => text,
        }
    }

    /// An encoder of rows, without what a registry's wire format puts before them.
    pub fn encoder(&self) -> Box<dyn MessageEncoder> {
        match self {
            Self::Avro(output) => Box::new(output.clone()),
            Self::Protobuf(output) => Box::new(output.clone()),
            Self::Json(_, schema) => Box::new(JsonEncoder::new(schema)),
        }
    }
}
