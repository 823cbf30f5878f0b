//! The schema of published rows, derived from the input's, and the rows in it.
//!
//! Fields lie in records as their paths say. Quasi-identifiers are strings: their labels are. A sensitive or kept field is a union of null and the type it has
//! in the input, logical type included. Enums and UUIDs become strings, since a release may span writer schemas with
//! other symbols; nested values become their JSON text. Where the input has no schema, or several types, the union is
//! null, boolean, long, double and string, and a number that neither a long nor a double holds exactly is a string.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use apache_avro::Schema as AvroSchema;
use apache_avro::schema::{Name, NamespaceRef};
use serde_json::{Value as Json, json};

use super::container::{ContainerWriter, write_bytes, write_long};
use crate::codec::json::unquote;
use crate::codec::layout::{RowLayout, RowPart};
use crate::codec::{CodecError, Encode, EncodeError};
use crate::model::schema::{Path, PathTree, Schema};

/// The type of a sensitive or kept field in the output, beside null.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::codec) enum Kind {
    Any,
    Boolean,
    Int(Option<&'static str>),
    Long(Option<&'static str>),
    Float,
    Double,
    Bytes,
    String,
    Decimal { precision: usize, scale: usize },
}

impl Kind {
    fn of(schema: &AvroSchema) -> Self {
        match schema {
            AvroSchema::Boolean => Self::Boolean,
            AvroSchema::Int => Self::Int(None),
            AvroSchema::Date => Self::Int(Some("date")),
            AvroSchema::TimeMillis => Self::Int(Some("time-millis")),
            AvroSchema::Long => Self::Long(None),
            AvroSchema::TimeMicros => Self::Long(Some("time-micros")),
            AvroSchema::TimestampMillis => Self::Long(Some("timestamp-millis")),
            AvroSchema::TimestampMicros => Self::Long(Some("timestamp-micros")),
            AvroSchema::TimestampNanos => Self::Long(Some("timestamp-nanos")),
            AvroSchema::LocalTimestampMillis => Self::Long(Some("local-timestamp-millis")),
            AvroSchema::LocalTimestampMicros => Self::Long(Some("local-timestamp-micros")),
            AvroSchema::LocalTimestampNanos => Self::Long(Some("local-timestamp-nanos")),
            AvroSchema::Float => Self::Float,
            AvroSchema::Double => Self::Double,
            AvroSchema::Bytes | AvroSchema::Fixed(_) => Self::Bytes,
            AvroSchema::Decimal(decimal) => Self::Decimal { precision: decimal.precision, scale: decimal.scale },
            AvroSchema::Union(union) => {
                let mut kinds = union.variants().iter().filter(|v| !matches!(v, AvroSchema::Null)).map(Self::of);
                let first = kinds.next().unwrap_or(Self::Any);
                kinds.fold(first, Self::merged)
            }
            AvroSchema::Null | AvroSchema::BigDecimal | AvroSchema::Ref { .. } => Self::Any,
            AvroSchema::String
            | AvroSchema::Enum(_)
            | AvroSchema::Uuid(_)
            | AvroSchema::Duration(_)
            | AvroSchema::Array(_)
            | AvroSchema::Map(_)
            | AvroSchema::Record(_) => Self::String,
        }
    }

    /// The type of such a value in a record that is an element of an array: there, dates are read as text.
    fn in_array(self) -> Self {
        match self {
            Self::Int(Some("date")) => Self::String,
            Self::Long(Some(name)) if name.contains("timestamp") => Self::String,
            other => other,
        }
    }

    /// The type that holds the values of both.
    fn merged(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b => a,
            (Self::Int(None), Self::Long(None)) | (Self::Long(None), Self::Int(None)) => Self::Long(None),
            (Self::Float, Self::Double) | (Self::Double, Self::Float) => Self::Double,
            _ => Self::Any,
        }
    }

    fn schema(self) -> Json {
        let logical = |of: &str, name: Option<&str>| match name {
            Some(name) => json!({"type": of, "logicalType": name}),
            None => json!(of),
        };
        match self {
            Self::Any => json!(["null", "boolean", "long", "double", "string"]),
            Self::Boolean => json!(["null", "boolean"]),
            Self::Int(name) => json!(["null", logical("int", name)]),
            Self::Long(name) => json!(["null", logical("long", name)]),
            Self::Float => json!(["null", "float"]),
            Self::Double => json!(["null", "double"]),
            Self::Bytes => json!(["null", "bytes"]),
            Self::String => json!(["null", "string"]),
            Self::Decimal { precision, scale } => json!(["null",
                {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}]),
        }
    }

    /// Appends a value given as JSON text: the index in the union, then the value. `None` if it does not fit.
    pub(in crate::codec) fn write(self, value: &str, out: &mut Vec<u8>) -> Option<()> {
        if value == "null" {
            write_long(0, out);
            return Some(());
        }
        if self == Self::Any {
            return any(value, out);
        }
        write_long(1, out);
        match self {
            Self::Any => return None,
            Self::Boolean => out.push(u8::from(value.parse::<bool>().ok()?)),
            Self::Int(_) => write_long(i64::from(value.parse::<i32>().ok()?), out),
            Self::Long(_) => write_long(value.parse().ok()?, out),
            Self::Float => out.extend_from_slice(&value.parse::<f32>().ok()?.to_le_bytes()),
            Self::Double => out.extend_from_slice(&value.parse::<f64>().ok()?.to_le_bytes()),
            Self::String => write_bytes(text(value)?.as_bytes(), out),
            Self::Bytes => {
                let bytes: Option<Vec<u8>> = text(value)?.chars().map(|c| u8::try_from(c).ok()).collect();
                write_bytes(&bytes?, out);
            }
            Self::Decimal { scale, .. } => write_bytes(&unscaled(value, scale)?, out),
        }
        Some(())
    }
}

/// Null, boolean, long, double, string: in this order.
fn any(value: &str, out: &mut Vec<u8>) -> Option<()> {
    match value.as_bytes().first()? {
        b't' | b'f' => {
            write_long(1, out);
            out.push(u8::from(value == "true"));
        }
        b'-' | b'0'..=b'9' => {
            if let Ok(long) = value.parse() {
                write_long(2, out);
                write_long(long, out);
            } else if let Some(double) = value.parse::<f64>().ok().filter(|d| d.to_string() == value) {
                write_long(3, out);
                out.extend_from_slice(&double.to_le_bytes());
            } else {
                write_long(4, out);
                write_bytes(value.as_bytes(), out);
            }
        }
        _ => {
            write_long(4, out);
            write_bytes(text(value)?.as_bytes(), out);
        }
    }
    Some(())
}

/// The text of a JSON string, or the JSON text of a nested value; `None` for other scalars.
fn text(value: &str) -> Option<Cow<'_, str>> {
    match value.as_bytes().first()? {
        b'"' => unquote(value).ok(),
        b'{' | b'[' => Some(Cow::Borrowed(value)),
        _ => None,
    }
}

/// A canonical decimal times ten to the `scale`, as the shortest big-endian two's complement.
fn unscaled(value: &str, scale: usize) -> Option<Vec<u8>> {
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    let zeros = scale.checked_sub(fraction.len())?;
    let number: i128 = format!("{whole}{fraction}{}", "0".repeat(zeros)).parse().ok()?;
    let bytes = number.to_be_bytes();
    let redundant = |i: &usize| {
        let sign = if number < 0 { 0xff } else { 0 };
        bytes[*i] == sign && (bytes[*i + 1] ^ sign) & 0x80 == 0
    };
    let start = (0..15).take_while(redundant).count();
    Some(bytes[start..].to_vec())
}

/// The Avro schema of published rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputSchema {
    json: String,
    layout: RowLayout,
    /// The sensitive and kept fields, in published order.
    values: Vec<(Arc<str>, Kind)>,
}

impl OutputSchema {
    /// Derives the output from `schema` and the schemas of the input seen so far; none if the input is not Avro.
    pub fn derive(schema: &Schema, writers: &[&AvroSchema]) -> Result<Self, CodecError> {
        schema.published().try_for_each(|slot| avro_name(schema.name(slot)))?;
        let values = value_kinds(schema, writers);
        let mut output =
            Output { labels: schema.quasi.len(), values: &values, taken: HashSet::new(), parts: Vec::new() };
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
            kind.write(text, out).ok_or_else(|| EncodeError::Misfit { field: Arc::clone(field) })
        })
    }
}

/// The output schema while it is made: records in records, and the order of their fields.
struct Output<'a> {
    labels: usize,
    values: &'a [(Arc<str>, Kind)],
    /// The names of records so far; each may be defined once.
    taken: HashSet<String>,
    parts: Vec<RowPart>,
}

impl Output<'_> {
    fn record(&mut self, name: String, fields: &PathTree, namespace: Option<&str>) -> Json {
        let mut unique = name.clone();
        while !self.taken.insert(unique.clone()) {
            unique.push('_');
        }
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
                json!({"name": name, "type": self.values[value].1.schema(), "default": null})
            }
            PathTree::Object(_) => json!({"name": name, "type": self.record(format!("{outer}_{name}"), of, None)}),
        }
    }
}

/// The sensitive and kept fields with the types that they have in `writers`, in published order.
pub(in crate::codec) fn value_kinds(schema: &Schema, writers: &[&AvroSchema]) -> Vec<(Arc<str>, Kind)> {
    let mut values = Vec::new();
    for slot in schema.published().skip(schema.quasi.len()) {
        let path = schema.envelope.row_place(&schema.attributes()[slot].path);
        let paths = [&path].into_iter().chain(&schema.attributes()[slot].elsewhere);
        let kinds = paths.flat_map(|path| writers.iter().flat_map(|writer| kinds_at(writer, path)));
        values.push((Arc::clone(schema.name(slot)), kinds.reduce(Kind::merged).unwrap_or(Kind::Any)));
    }
    values
}

fn avro_name(name: &Arc<str>) -> Result<(), CodecError> {
    let letter = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    let valid = |name: &Arc<str>| {
        name.bytes().next().is_some_and(letter) && name.bytes().all(|b| letter(b) || b.is_ascii_digit())
    };
    if Path::of(name).names().iter().all(valid) { Ok(()) } else { Err(CodecError::BadAvroName(Arc::clone(name))) }
}

/// The types that the field at `path` has in data of `writer`: several where records of a union differ.
fn kinds_at(writer: &AvroSchema, path: &Path) -> Vec<Kind> {
    let mut named = HashMap::new();
    name_types(writer, None, &mut named);
    let mut kinds = Vec::new();
    descend(writer, None, path.names(), &named, &mut kinds);
    kinds
}

/// Lists the records of a schema by their full names: a schema defines each once, and refers to it elsewhere.
fn name_types<'a>(schema: &'a AvroSchema, namespace: NamespaceRef<'_>, named: &mut HashMap<Name, &'a AvroSchema>) {
    match schema {
        AvroSchema::Array(array) => name_types(&array.items, namespace, named),
        AvroSchema::Map(map) => name_types(&map.types, namespace, named),
        AvroSchema::Union(union) => union.variants().iter().for_each(|variant| name_types(variant, namespace, named)),
        AvroSchema::Record(record) => {
            let name = record.name.fully_qualified_name(namespace).into_owned();
            record.fields.iter().for_each(|field| name_types(&field.schema, name.namespace(), named));
            named.insert(name, schema);
        }
        _ => {}
    }
}

/// Recurses once per name of the path, and once more for a union or a reference on its way.
fn descend(
    schema: &AvroSchema,
    namespace: NamespaceRef<'_>,
    names: &[Arc<str>],
    named: &HashMap<Name, &AvroSchema>,
    kinds: &mut Vec<Kind>,
) {
    match (names, schema) {
        ([], AvroSchema::Ref { name }) if named.contains_key(&*name.fully_qualified_name(namespace)) => {
            kinds.push(Kind::String);
        }
        ([], AvroSchema::Null) => {}
        ([], _) => kinds.push(Kind::of(schema)),
        // The policy leads into an array only where each element is a record.
        (_, AvroSchema::Array(array)) => {
            let mut inside = Vec::new();
            descend(&array.items, namespace, names, named, &mut inside);
            kinds.extend(inside.into_iter().map(Kind::in_array));
        }
        (_, AvroSchema::Union(union)) => {
            union.variants().iter().for_each(|variant| descend(variant, namespace, names, named, kinds));
        }
        (_, AvroSchema::Ref { name }) => {
            let name = name.fully_qualified_name(namespace);
            if let Some(record @ AvroSchema::Record(_)) = named.get(&*name) {
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
