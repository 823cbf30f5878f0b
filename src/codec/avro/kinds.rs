//! The types of published values in Avro, and the values in them.

use std::borrow::Cow;

use apache_avro::Schema as AvroSchema;
use serde_json::{Value as Json, json};

use super::container::{write_bytes, write_long};
use crate::codec::json::unquote;
use crate::codec::schemas::kind::Kind;

/// The type of such a value in a record that is an element of an array: there, dates are read as text.
pub(super) fn in_array(kind: Kind) -> Kind {
    match kind {
        Kind::Int(Some("date")) => Kind::String,
        Kind::Long(Some(name)) if name.contains("timestamp") => Kind::String,
        other => other,
    }
}

/// The type of data of this schema.
pub(super) fn kind_of(schema: &AvroSchema) -> Kind {
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
        AvroSchema::Union(union) => {
            let mut kinds = union.variants().iter().filter(|v| !matches!(v, AvroSchema::Null)).map(kind_of);
            let first = kinds.next().unwrap_or(Kind::Any);
            kinds.fold(first, Kind::merged)
        }
        AvroSchema::Null | AvroSchema::BigDecimal | AvroSchema::Ref { .. } => Kind::Any,
        AvroSchema::String | AvroSchema::Enum(_) | AvroSchema::Uuid(_) => Kind::String,
        AvroSchema::Array(array) => match &*array.items {
            // An array that holds nulls is none of single values.
            AvroSchema::Union(_) => Kind::Nested,
            items => kind_of(items).listed(),
        },
        AvroSchema::Duration(_) | AvroSchema::Map(_) | AvroSchema::Record(_) => Kind::Nested,
    }
}

/// The union of null and this type.
pub(super) fn schema_of(kind: &Kind) -> Json {
    let logical = |of: &str, name: Option<&str>| match name {
        Some(name) => json!({"type": of, "logicalType": name}),
        None => json!(of),
    };
    match kind {
        Kind::Any | Kind::Unsigned => json!(["null", "boolean", "long", "double", "string"]),
        Kind::Boolean => json!(["null", "boolean"]),
        Kind::Int(name) => json!(["null", logical("int", *name)]),
        Kind::Long(name) => json!(["null", logical("long", *name)]),
        Kind::Float => json!(["null", "float"]),
        Kind::Double => json!(["null", "double"]),
        Kind::Bytes => json!(["null", "bytes"]),
        Kind::String | Kind::List(_) | Kind::Nested => json!(["null", "string"]),
        Kind::Decimal { precision, scale } => json!(["null",
            {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}]),
    }
}

/// The type that stands for this one in Avro: what is derived from an output gives that output again.
pub(super) fn in_avro(kind: Kind) -> Kind {
    match kind {
        Kind::Unsigned => Kind::Any,
        Kind::List(_) | Kind::Nested => Kind::String,
        kind => kind,
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
    match kind {
        Kind::Any | Kind::Unsigned => return None,
        Kind::Boolean => out.push(u8::from(value.parse::<bool>().ok()?)),
        Kind::Int(_) => write_long(i64::from(value.parse::<i32>().ok()?), out),
        Kind::Long(_) => write_long(value.parse().ok()?, out),
        Kind::Float => out.extend_from_slice(&value.parse::<f32>().ok()?.to_le_bytes()),
        Kind::Double => out.extend_from_slice(&value.parse::<f64>().ok()?.to_le_bytes()),
        Kind::String | Kind::List(_) | Kind::Nested => write_bytes(text(value)?.as_bytes(), out),
        Kind::Bytes => {
            let bytes: Option<Vec<u8>> = text(value)?.chars().map(|c| u8::try_from(c).ok()).collect();
            write_bytes(&bytes?, out);
        }
        Kind::Decimal { scale, .. } => write_bytes(&unscaled(value, *scale)?, out),
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
