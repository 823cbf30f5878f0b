//! The types of published values in Avro, and the values in them.

use std::borrow::Cow;
use std::collections::HashMap;

use apache_avro::Schema as AvroSchema;
use apache_avro::schema::{EnumSchema, FixedSchema, Name, NamespaceRef};
use serde_json::{Value as Json, json};

use super::container::{write_block, write_bytes, write_long};
use crate::codec::json::unquote;
use crate::codec::schemas::kind::{Inside, Kind, RecordNames, bytes, elements, entries, members};

/// The type of such a value in a record that is an element of an array: there, dates are read as text.
pub(super) fn in_array(kind: Kind) -> Kind {
    match kind {
        Kind::Int(Some("date")) => Kind::String,
        Kind::Long(Some(name)) if name.contains("timestamp") => Kind::String,
        other => other.inside(&in_array),
    }
}

/// The records of a schema by their full names: a schema defines each once, and refers to it elsewhere.
#[derive(Default)]
pub(super) struct NamedTypes<'a>(HashMap<Name, &'a AvroSchema>);

impl<'a> NamedTypes<'a> {
    pub(super) fn of(schema: &'a AvroSchema) -> Self {
        let mut named = Self::default();
        named.add(schema, None);
        named
    }

    fn add(&mut self, schema: &'a AvroSchema, namespace: NamespaceRef<'_>) {
        match schema {
            AvroSchema::Array(array) => self.add(&array.items, namespace),
            AvroSchema::Map(map) => self.add(&map.types, namespace),
            AvroSchema::Union(union) => union.variants().iter().for_each(|variant| self.add(variant, namespace)),
            AvroSchema::Record(record) => {
                let name = record.name.fully_qualified_name(namespace).into_owned();
                record.fields.iter().for_each(|field| self.add(&field.schema, name.namespace()));
                self.0.insert(name, schema);
            }
            AvroSchema::Enum(EnumSchema { name, .. }) | AvroSchema::Fixed(FixedSchema { name, .. }) => {
                self.0.insert(name.fully_qualified_name(namespace).into_owned(), schema);
            }
            _ => {}
        }
    }

    /// The type that a name stands for inside `namespace`.
    pub(super) fn get(&self, name: &Name, namespace: NamespaceRef<'_>) -> Option<(&'a AvroSchema, Name)> {
        let name = name.fully_qualified_name(namespace).into_owned();
        Some((*self.0.get(&name)?, name))
    }

    /// The type of data of this schema, which stands inside `namespace`.
    pub(super) fn kind_of(&self, schema: &AvroSchema, namespace: NamespaceRef<'_>) -> Kind {
        self.kind(schema, namespace, &mut Inside::default())
    }

    fn kind(&self, schema: &AvroSchema, namespace: NamespaceRef<'_>, inside: &mut Inside<Name>) -> Kind {
        match schema {
            AvroSchema::Union(union) => {
                let mut kinds = Vec::new();
                for variant in union.variants().iter().filter(|variant| !matches!(variant, AvroSchema::Null)) {
                    kinds.push(self.kind(variant, namespace, inside));
                }
                kinds.into_iter().reduce(Kind::merged).unwrap_or(Kind::Any)
            }
            AvroSchema::Ref { name } => match self.get(name, namespace) {
                Some((schema, name)) => self.kind(schema, name.namespace(), inside),
                None => Kind::Any,
            },
            AvroSchema::Array(array) => self.kind(&array.items, namespace, inside).listed(may_be_null(&array.items)),
            AvroSchema::Map(map) => self.kind(&map.types, namespace, inside).mapped(may_be_null(&map.types)),
            AvroSchema::Record(record) => {
                let name = record.name.fully_qualified_name(namespace).into_owned();
                inside.record(name.clone(), record.fields.iter(), |inside, field| {
                    (field.name.as_str().into(), self.kind(&field.schema, name.namespace(), inside))
                })
            }
            single => kind_of_single(single),
        }
    }
}

fn may_be_null(schema: &AvroSchema) -> bool {
    match schema {
        AvroSchema::Union(union) => union.variants().contains(&AvroSchema::Null),
        single => matches!(single, AvroSchema::Null),
    }
}

fn kind_of_single(schema: &AvroSchema) -> Kind {
    match schema {
        AvroSchema::Boolean => Kind::Boolean,
        AvroSchema::Int => Kind::Int(None),
        AvroSchema::Date => Kind::Int(Some("date")),
        AvroSchema::TimeMillis => Kind::Int(Some("time-millis")),
        AvroSchema::Long => Kind::Long(None),
        AvroSchema::TimeMicros => Kind::Long(Some("time-micros")),
        AvroSchema::TimestampMillis => Kind::Long(Some("timestamp-millis")),
        AvroSchema::TimestampMicros => Kind::Long(Some("timestamp-micros")),
        AvroSchema::TimestampNanos => Kind::Long(Some("timestamp-nanos")),
        AvroSchema::LocalTimestampMillis => Kind::Long(Some("local-timestamp-millis")),
        AvroSchema::LocalTimestampMicros => Kind::Long(Some("local-timestamp-micros")),
        AvroSchema::LocalTimestampNanos => Kind::Long(Some("local-timestamp-nanos")),
        AvroSchema::Float => Kind::Float,
        AvroSchema::Double => Kind::Double,
        AvroSchema::Bytes | AvroSchema::Fixed(_) => Kind::Bytes,
        AvroSchema::Decimal(decimal) => Kind::Decimal { precision: decimal.precision, scale: decimal.scale },
        AvroSchema::String | AvroSchema::Enum(_) | AvroSchema::Uuid(_) => Kind::String,
        AvroSchema::Duration(_) => Kind::Nested,
        _ => Kind::Any,
    }
}

/// The types of an output's values while its schema is made.
impl RecordNames {
    /// The union of null and this type; records in it are named after `name`.
    pub(super) fn nullable(&mut self, kind: &Kind, name: &str) -> Json {
        match kind {
            Kind::Any | Kind::Unsigned => json!(["null", "boolean", "long", "double", "string"]),
            kind => json!(["null", self.schema_of(kind, name)]),
        }
    }

    /// The type of elements or of values of a map.
    fn inner(&mut self, kind: &Kind, nulls: bool, name: &str) -> Json {
        if nulls { self.nullable(kind, name) } else { self.schema_of(kind, name) }
    }

    fn schema_of(&mut self, kind: &Kind, name: &str) -> Json {
        let logical = |of: &str, name: Option<&str>| match name {
            Some(name) => json!({"type": of, "logicalType": name}),
            None => json!(of),
        };
        match kind {
            Kind::Boolean => json!("boolean"),
            Kind::Int(name) => logical("int", *name),
            Kind::Long(name) => logical("long", *name),
            Kind::Float => json!("float"),
            Kind::Double => json!("double"),
            Kind::Bytes => json!("bytes"),
            Kind::Any | Kind::Unsigned | Kind::String | Kind::Nested => json!("string"),
            Kind::Decimal { precision, scale } => {
                json!({"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale})
            }
            Kind::List { of, nulls } => json!({"type": "array", "items": self.inner(of, *nulls, name)}),
            Kind::Map { of, nulls } => json!({"type": "map", "values": self.inner(of, *nulls, name)}),
            Kind::Record(members) => {
                let record = self.unique(name.to_owned());
                let mut fields = Vec::new();
                for (member, kind) in members {
                    let of = self.nullable(kind, &format!("{record}_{member}"));
                    fields.push(json!({"name": &**member, "type": of, "default": null}));
                }
                json!({"type": "record", "name": record, "fields": fields})
            }
        }
    }
}

/// True if `name` can be the name of a field in Avro.
pub(super) fn is_name(name: &str) -> bool {
    let letter = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    name.bytes().next().is_some_and(letter) && name.bytes().all(|b| letter(b) || b.is_ascii_digit())
}

/// The type that stands for this one in Avro: what is derived from an output gives that output again.
pub(super) fn in_avro(kind: Kind) -> Kind {
    match kind {
        Kind::Unsigned => Kind::Any,
        Kind::Nested => Kind::String,
        Kind::Record(members) if !members.iter().all(|(name, _)| is_name(name)) => Kind::String,
        kind => match kind.inside(&in_avro) {
            // What has no one type may be null by its own.
            Kind::List { of, .. } if *of == Kind::Any => of.listed(true),
            Kind::Map { of, .. } if *of == Kind::Any => of.mapped(true),
            kind => kind,
        },
    }
}

/// Appends a value given as JSON text: the index in the union, then the value. `None` if it does not fit.
pub(in crate::codec) fn write(kind: &Kind, value: &str, out: &mut Vec<u8>) -> Option<()> {
    if value == "null" {
        write_long(0, out);
        return Some(());
    }
    if matches!(kind, Kind::Any | Kind::Unsigned) {
        return any(value, out);
    }
    write_long(1, out);
    write_single(kind, value, out)
}

fn write_single(kind: &Kind, value: &str, out: &mut Vec<u8>) -> Option<()> {
    match kind {
        Kind::Any | Kind::Unsigned => return None,
        Kind::Boolean => out.push(u8::from(value.parse::<bool>().ok()?)),
        Kind::Int(_) => write_long(i64::from(value.parse::<i32>().ok()?), out),
        Kind::Long(_) => write_long(value.parse().ok()?, out),
        Kind::Float => out.extend_from_slice(&value.parse::<f32>().ok()?.to_le_bytes()),
        Kind::Double => out.extend_from_slice(&value.parse::<f64>().ok()?.to_le_bytes()),
        Kind::String | Kind::Nested => write_bytes(text(value)?.as_bytes(), out),
        Kind::Bytes => {
            write_bytes(&bytes(&text(value)?)?, out);
        }
        Kind::Decimal { scale, .. } => write_bytes(&unscaled(value, *scale)?, out),
        Kind::List { of, nulls } => {
            let write = if *nulls { write } else { write_single };
            write_block(&elements(value)?, out, |element, out| write(of, element, out))?;
        }
        Kind::Map { of, nulls } => {
            let write = if *nulls { write } else { write_single };
            write_block(&entries(value)?, out, |(key, value), out| {
                write_bytes(key.as_bytes(), out);
                write(of, value, out)
            })?;
        }
        Kind::Record(names) => {
            names.iter().zip(members(value, names)?).try_for_each(|((_, kind), member)| write(kind, member, out))?;
        }
    }
    Some(())
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
