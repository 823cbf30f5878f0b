//! Fields of a message to values, and whole messages, lists and maps to JSON.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write as _;

use super::types::{FieldType, MessageField, MessageId, MessageType};
use super::wire::{Raw, WireReader, unzigzag};
use crate::codec::MAX_DEPTH;
use crate::codec::avro::{float, latin1};
use crate::model::event::RejectCode;
use crate::model::record::{Value, write_json_string};

/// The longest JSON text one nested value may become. Larger: long field names blow a small message up that far. Smaller: honest
/// documents are turned away.
const MAX_NESTED_JSON: usize = 8 << 20;

/// The value of a field that occurs once.
#[inline]
pub(super) fn single<'a>(of: &FieldType, raw: Raw<'a>) -> Result<Value<'a>, RejectCode> {
    let number = |text: String| Ok(Value::Number(text.into()));
    match (of, raw) {
        (FieldType::String, Raw::Bytes(bytes)) => {
            std::str::from_utf8(bytes).map(|text| Value::Text(text.into())).map_err(|_| RejectCode::InvalidUtf8)
        }
        (FieldType::Bytes, Raw::Bytes(bytes)) => Ok(Value::Text(latin1(bytes))),
        (FieldType::Double, Raw::Fixed64(bytes)) => number(float(f64::from_le_bytes(bytes), f64::is_finite)?),
        (FieldType::Float, Raw::Fixed32(bytes)) => number(float(f32::from_le_bytes(bytes), f32::is_finite)?),
        // Numbers of 32 bits are cut off, as the specification has it.
        (FieldType::Int32, Raw::Varint(value)) => number((value as i32).to_string()),
        (FieldType::Int64, Raw::Varint(value)) => number((value as i64).to_string()),
        (FieldType::Uint32, Raw::Varint(value)) => number((value as u32).to_string()),
        (FieldType::Uint64, Raw::Varint(value)) => number(value.to_string()),
        (FieldType::Sint32, Raw::Varint(value)) => number((unzigzag(u64::from(value as u32)) as i32).to_string()),
        (FieldType::Sint64, Raw::Varint(value)) => number(unzigzag(value).to_string()),
        (FieldType::Fixed32, Raw::Fixed32(bytes)) => number(u32::from_le_bytes(bytes).to_string()),
        (FieldType::Fixed64, Raw::Fixed64(bytes)) => number(u64::from_le_bytes(bytes).to_string()),
        (FieldType::Sfixed32, Raw::Fixed32(bytes)) => number(i32::from_le_bytes(bytes).to_string()),
        (FieldType::Sfixed64, Raw::Fixed64(bytes)) => number(i64::from_le_bytes(bytes).to_string()),
        (FieldType::Bool, Raw::Varint(value)) => Ok(Value::Bool(value != 0)),
        (FieldType::Enum(names), Raw::Varint(value)) => Ok(symbol(names, value as i32)),
        (FieldType::Wrapper(inner), Raw::Bytes(bytes)) => wrapped(inner, bytes),
        (FieldType::Timestamp, Raw::Bytes(bytes)) => timestamp(bytes),
        (FieldType::Duration, Raw::Bytes(bytes)) => duration(bytes),
        _ => Err(RejectCode::Malformed),
    }
}

/// The value of a field that is absent and does not tell.
pub(super) fn default(field: &MessageField) -> Value<'static> {
    if field.repeated {
        return Value::Nested(if matches!(field.of, FieldType::Map(_)) { "{}" } else { "[]" }.into());
    }
    if field.presence { Value::Null } else { zero(&field.of) }
}

fn zero(of: &FieldType) -> Value<'static> {
    match of {
        FieldType::String | FieldType::Bytes => Value::Text("".into()),
        FieldType::Bool => Value::Bool(false),
        FieldType::Enum(names) => match symbol(names, 0) {
            Value::Text(name) => Value::Text(Cow::Owned(name.into_owned())),
            _ => Value::Text("0".into()),
        },
        FieldType::Timestamp
        | FieldType::Duration
        | FieldType::Wrapper(_)
        | FieldType::Message(_)
        | FieldType::Map(_) => Value::Null,
        _ => Value::Number("0".into()),
    }
}

/// The name of a number; the number itself, as text, where a newer schema has given it one.
fn symbol<'a>(names: &[(i32, std::sync::Arc<str>)], number: i32) -> Value<'a> {
    match names.binary_search_by_key(&number, |(number, _)| *number) {
        Ok(at) => Value::Text(names[at].1.to_string().into()),
        Err(_) => Value::Text(number.to_string().into()),
    }
}

fn wrapped<'a>(of: &FieldType, message: &'a [u8]) -> Result<Value<'a>, RejectCode> {
    let (mut cursor, mut value) = (WireReader::new(message), zero(of));
    while let Some((number, raw)) = cursor.field()? {
        if number == 1 {
            value = single(of, raw)?;
        }
    }
    Ok(value)
}

/// Seconds and nanoseconds.
fn seconds_and_nanos(message: &[u8]) -> Result<(i64, i32), RejectCode> {
    let (mut cursor, mut seconds, mut nanos) = (WireReader::new(message), 0, 0);
    while let Some((number, raw)) = cursor.field()? {
        match (number, raw) {
            (1, Raw::Varint(value)) => seconds = value as i64,
            (2, Raw::Varint(value)) => nanos = value as i32,
            (1 | 2, _) => return Err(RejectCode::Malformed),
            _ => {}
        }
    }
    Ok((seconds, nanos))
}

fn timestamp(message: &[u8]) -> Result<Value<'static>, RejectCode> {
    let (seconds, nanos) = seconds_and_nanos(message)?;
    let time = jiff::Timestamp::new(seconds, nanos).ok().filter(|_| (0..1_000_000_000).contains(&nanos));
    time.map(|time| Value::Text(time.to_string().into())).ok_or(RejectCode::Malformed)
}

fn duration(message: &[u8]) -> Result<Value<'static>, RejectCode> {
    let (seconds, nanos) = seconds_and_nanos(message)?;
    let (sign, fraction) = (if seconds < 0 || nanos < 0 { "-" } else { "" }, nanos.unsigned_abs());
    if fraction >= 1_000_000_000 || (seconds < 0 && nanos > 0) || (seconds > 0 && nanos < 0) {
        return Err(RejectCode::Malformed);
    }
    let mut text = format!("{sign}{}", seconds.unsigned_abs());
    if fraction > 0 {
        let _ = write!(text, ".{fraction:09}");
        text.truncate(text.trim_end_matches('0').len());
    }
    text.push('s');
    Ok(Value::Text(text.into()))
}

/// Appends a field with all its occurrences as JSON, `depth` messages deep.
pub(super) fn json(
    types: &[MessageType],
    field: &MessageField,
    raws: &[Raw<'_>],
    depth: usize,
    out: &mut String,
) -> Result<(), RejectCode> {
    match &field.of {
        FieldType::Map(entry) => map(types, *entry, raws, depth, out),
        of if field.repeated => {
            out.push('[');
            let mut first = true;
            for raw in raws {
                list(types, of, *raw, &mut first, depth, out)?;
            }
            out.push(']');
            Ok(())
        }
        FieldType::Message(id) if !raws.is_empty() => message(types, *id, raws, depth, out),
        of => {
            let value = raws.last().map_or_else(|| Ok(default(field)), |raw| single(of, *raw))?;
            value.write_json(out);
            Ok(())
        }
    }
}

/// Appends one occurrence of a list: an item, or many items that are packed.
fn list(
    types: &[MessageType],
    of: &FieldType,
    raw: Raw<'_>,
    first: &mut bool,
    depth: usize,
    out: &mut String,
) -> Result<(), RejectCode> {
    let mut separate = |out: &mut String| {
        if !std::mem::take(first) {
            out.push(',');
        }
        if out.len() > MAX_NESTED_JSON { Err(RejectCode::TooLarge) } else { Ok(()) }
    };
    let packed = match (of, raw) {
        (
            FieldType::String | FieldType::Bytes | FieldType::Timestamp | FieldType::Duration | FieldType::Wrapper(_),
            _,
        ) => None,
        (FieldType::Message(id), raw) => {
            separate(out)?;
            return message(types, *id, &[raw], depth, out);
        }
        (_, Raw::Bytes(packed)) => Some(packed),
        _ => None,
    };
    let Some(packed) = packed else {
        separate(out)?;
        single(of, raw)?.write_json(out);
        return Ok(());
    };
    let mut cursor = WireReader::new(packed);
    while !cursor.rest().is_empty() {
        let item = match of {
            FieldType::Double | FieldType::Fixed64 | FieldType::Sfixed64 => Raw::Fixed64(cursor.array()?),
            FieldType::Float | FieldType::Fixed32 | FieldType::Sfixed32 => Raw::Fixed32(cursor.array()?),
            _ => Raw::Varint(cursor.varint()?),
        };
        separate(out)?;
        single(of, item)?.write_json(out);
    }
    Ok(())
}

/// Appends a map as an object.
fn map(
    types: &[MessageType],
    entry: MessageId,
    raws: &[Raw<'_>],
    depth: usize,
    out: &mut String,
) -> Result<(), RejectCode> {
    let [key, value] = types[entry].fields.as_slice() else { return Err(RejectCode::Malformed) };
    let mut keys = HashSet::new();
    out.push('{');
    for raw in raws {
        let Raw::Bytes(bytes) = raw else { return Err(RejectCode::Malformed) };
        let (mut cursor, mut own, mut of) = (WireReader::new(bytes), zero(&key.of), Vec::new());
        while let Some((number, raw)) = cursor.field()? {
            match number {
                1 => own = single(&key.of, raw)?,
                2 => of.push(raw),
                _ => {}
            }
        }
        let mut text = String::new();
        own.write_json(&mut text);
        let quoted = if text.starts_with('"') { text } else { format!("\"{text}\"") };
        out.push_str(if keys.is_empty() { "" } else { "," });
        out.push_str(&quoted);
        out.push(':');
        if !keys.insert(quoted) {
            return Err(RejectCode::DuplicateKey);
        }
        match value.of {
            // An entry without a value has the default one; of a message that is the empty one.
            FieldType::Message(id) => message(types, id, &of, depth, out)?,
            FieldType::Timestamp | FieldType::Duration | FieldType::Wrapper(_) if of.is_empty() => {
                single(&value.of, Raw::Bytes(&[]))?.write_json(out);
            }
            _ if of.is_empty() => zero(&value.of).write_json(out),
            _ => json(types, value, &of, depth, out)?,
        }
        if out.len() > MAX_NESTED_JSON {
            return Err(RejectCode::TooLarge);
        }
    }
    out.push('}');
    Ok(())
}

/// Appends a message as an object with all its fields. It may come in several pieces, which add up.
fn message(
    types: &[MessageType],
    of: MessageId,
    pieces: &[Raw<'_>],
    depth: usize,
    out: &mut String,
) -> Result<(), RejectCode> {
    if depth >= MAX_DEPTH {
        return Err(RejectCode::TooDeep);
    }
    let fields = &types[of].fields;
    let mut found = Vec::new();
    for piece in pieces {
        let (Raw::Bytes(bytes) | Raw::Group(bytes)) = piece else { return Err(RejectCode::Malformed) };
        let mut cursor = WireReader::new(bytes);
        while let Some((number, raw)) = cursor.field()? {
            if let Ok(at) = fields.binary_search_by_key(&number, |field| field.number) {
                found.push((at, raw));
            }
        }
    }
    // Stable: of what comes twice the last one counts.
    found.sort_by_key(|(at, _)| *at);
    let mut rest = found.as_slice();
    for (at, field) in fields.iter().enumerate() {
        if out.len() > MAX_NESTED_JSON {
            return Err(RejectCode::TooLarge);
        }
        out.push(if at == 0 { '{' } else { ',' });
        write_json_string(&field.name, out);
        out.push(':');
        let (own, others) = rest.split_at(rest.partition_point(|(other, _)| *other == at));
        let raws: Vec<Raw<'_>> = own.iter().map(|(_, raw)| *raw).collect();
        json(types, field, &raws, depth + 1, out)?;
        rest = others;
    }
    out.push_str(if fields.is_empty() { "{}" } else { "}" });
    Ok(())
}
