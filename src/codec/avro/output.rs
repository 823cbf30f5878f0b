//! The schema of published rows, derived from the input's, and the rows in it.
//!
//! Fields lie in records as their paths say. Quasi-identifiers are strings: their labels are. A sensitive or kept field is a union of null and the type it has
//! in the input, logical type included. Enums and UUIDs become strings, since a release may span writer schemas with
//! other symbols. Arrays, maps and records that are kept whole keep their types inside; records that hold themselves become
//! their JSON text. Where the input has no schema, or several types, the union is
//! null, boolean, long, double and string, and a number that neither a long nor a double holds exactly is a string.

use std::sync::Arc;

use apache_avro::Schema as AvroSchema;
use apache_avro::schema::NamespaceRef;
use serde_json::{Value as Json, json};

use super::container::{ContainerWriter, write_bytes};
use super::kinds::{NamedTypes, in_array, in_avro, is_name, write};
use crate::codec::layout::{RowLayout, RowPart};
use crate::codec::schemas::kind::{self, Kind, RecordNames, ValueKinds, check_names};
use crate::codec::{CodecError, Encode, EncodeError};
use crate::model::schema::{Path, PathTree, Schema};

/// The Avro schema of published rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputSchema {
    json: String,
    layout: RowLayout,
    /// The sensitive and kept fields, in published order.
    values: ValueKinds,
}

impl OutputSchema {
    /// Derives the output from `schema` and the schemas of the input seen so far; none if the input is not Avro.
    pub fn derive(schema: &Schema, writers: &[&AvroSchema]) -> Result<Self, CodecError> {
        Self::new(schema, value_kinds(schema, writers))
    }

    /// The output of `schema` with values of these kinds.
    pub(in crate::codec) fn new(schema: &Schema, values: ValueKinds) -> Result<Self, CodecError> {
        check_names(schema, is_name, CodecError::BadAvroName)?;
        let values = values.into_iter().map(|(name, kind)| (name, in_avro(kind))).collect();
        let mut output =
            Output { labels: schema.quasi.len(), values: &values, names: RecordNames::default(), parts: Vec::new() };
        let record = output.record("Published".to_owned(), &schema.output(), Some("veilstream"));
        Ok(Self { json: record.to_string(), layout: RowLayout::new(output.parts), values })
    }

    /// The schema as JSON, for the file header or the registry.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// Appends what data with these labels share.
    pub fn datum_labels(&self, quasi: &[&str], out: &mut Vec<u8>) {
        self.layout.labels(quasi, out, |label, out| write_bytes(label.as_bytes(), out));
    }

    /// Appends one row as a bare datum, the value of a message: what [`OutputSchema::datum_labels`] made, and the values.
    pub fn datum(&self, labels: &[u8], values: &[&str], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.layout.row(labels, out, |value, out| {
            let (field, kind) = &self.values[value];
            let text = values.get(value).copied().unwrap_or("null");
            write(kind, text, out).ok_or_else(|| EncodeError::Misfit { field: Arc::clone(field) })
        })
    }
}

/// The output schema while it is made: records in records, and the order of their fields.
struct Output<'a> {
    labels: usize,
    values: &'a ValueKinds,
    names: RecordNames,
    parts: Vec<RowPart>,
}

impl Output<'_> {
    fn record(&mut self, name: String, fields: &PathTree, namespace: Option<&str>) -> Json {
        let unique = self.names.unique(name.clone());
        let members: Vec<Json> =
            fields.members().iter().map(|(member, inner)| self.field(&name, member, inner)).collect();
        match namespace {
            Some(namespace) => json!({"type": "record", "name": unique, "namespace": namespace, "fields": members}),
            None => json!({"type": "record", "name": unique, "fields": members}),
        }
    }

    fn field(&mut self, outer: &str, name: &str, of: &PathTree) -> Json {
        match of {
            PathTree::Leaf(number) if *number < self.labels => {
                self.parts.push(RowPart::Label(*number));
                json!({"name": name, "type": "string"})
            }
            PathTree::Leaf(number) => {
                let value = number - self.labels;
                self.parts.push(RowPart::Value(value));
                let of = self.names.nullable(&self.values[value].1, &format!("{outer}_{name}"));
                json!({"name": name, "type": of, "default": null})
            }
            PathTree::Object(_) => json!({"name": name, "type": self.record(format!("{outer}_{name}"), of, None)}),
        }
    }
}

/// The sensitive and kept fields with the types that they have in `writers`, in published order.
pub(in crate::codec) fn value_kinds(schema: &Schema, writers: &[&AvroSchema]) -> ValueKinds {
    let kinds = kind::value_kinds(schema, |path| writers.iter().flat_map(|writer| kinds_at(writer, path)).collect());
    kinds.into_iter().map(|(name, kind)| (name, in_avro(kind))).collect()
}

/// The types that the field at `path` has in data of `writer`: several where records of a union differ.
pub(in crate::codec) fn kinds_at(writer: &AvroSchema, path: &Path) -> Vec<Kind> {
    let mut kinds = Vec::new();
    descend(writer, None, path.names(), &NamedTypes::of(writer), &mut kinds);
    kinds
}

/// Recurses once per name of the path, and once more for a union or a reference on its way.
fn descend(
    schema: &AvroSchema,
    namespace: NamespaceRef<'_>,
    names: &[Arc<str>],
    named: &NamedTypes<'_>,
    kinds: &mut Vec<Kind>,
) {
    match (names, schema) {
        ([], AvroSchema::Null) => {}
        ([], _) => kinds.push(named.kind_of(schema, namespace)),
        // The policy leads into an array only where each element is a record.
        (_, AvroSchema::Array(array)) => {
            let mut inside = Vec::new();
            descend(&array.items, namespace, names, named, &mut inside);
            kinds.extend(inside.into_iter().map(in_array));
        }
        (_, AvroSchema::Union(union)) => {
            union.variants().iter().for_each(|variant| descend(variant, namespace, names, named, kinds));
        }
        (_, AvroSchema::Ref { name }) => {
            if let Some((record @ AvroSchema::Record(_), name)) = named.get(name, namespace) {
                descend(record, name.namespace(), names, named, kinds);
            }
        }
        ([first, rest @ ..], AvroSchema::Record(record)) => {
            let inner = record.name.fully_qualified_name(namespace);
            if let Some(field) = record.fields.iter().find(|field| field.name == **first) {
                descend(&field.schema, inner.namespace(), rest, named, kinds);
            }
        }
        _ => {}
    }
}

/// Writes published rows as a container file.
pub struct AvroEncoder {
    schema: OutputSchema,
    writer: ContainerWriter,
}

impl AvroEncoder {
    /// An encoder of rows in `schema`.
    pub fn new(schema: OutputSchema) -> Self {
        Self { writer: ContainerWriter::new(schema.json.clone()), schema }
    }
}

impl Encode for AvroEncoder {
    fn header(&mut self, out: &mut Vec<u8>) {
        self.writer.header(out);
    }

    fn labels(&self, quasi: &[&str], out: &mut Vec<u8>) {
        self.schema.datum_labels(quasi, out);
    }

    fn labelled(&mut self, labels: &[u8], values: &[&str], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let schema = &self.schema;
        self.writer.datum(out, |block| schema.datum(labels, values, block))
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.writer.flush(out);
        Ok(())
    }

    fn ending(&self) -> &[u8] {
        self.writer.sync()
    }
}
