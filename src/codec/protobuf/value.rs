//! Fields of a message to values, and whole messages, lists and maps to JSON.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write as _;

use super::types::{Field, MessageId, MessageType, Type};
use super::wire::{Cursor, Raw, unzigzag};
use crate::codec::MAX_DEPTH;
use crate::codec::avro::{float, latin1};
use crate::model::event::RejectCode;
use crate::model::record::{Value, write_json_string};

/// The longest JSON text one nested value may become. Larger: long field names blow a small message up that far. Smaller: honest
/// documents are turned away.
const MAX_NESTED_JSON: usize = 8 << 20;

/// The value of a field that occurs once.
#[inline]
pub(super) fn single<'a>(of: &Type, raw: Raw<'a>) -> Result<Value<'a>, RejectCode> {
    let number = |text: String| Ok(Value::Number(text.into()));
    match (of, raw) {
        (Type::String, Raw::Bytes(bytes)) => {
            std::str::from_utf8(bytes).map(|text| Value::Text(text.into())).map_err(|_| RejectCode::InvalidUtf8)
        }
        (Type::Bytes, Raw::Bytes(bytes)) => Ok(Value::Text(latin1(bytes))),
        (Type::Double, Raw::Fixed64(bytes)) => number(float(f64::from_le_bytes(bytes), f64::is_finite)?),
        (Type::Float, Raw::Fixed32(bytes)) => number(float(f32::from_le_bytes(bytes), f32::is_finite)?),
        // Numbers of 32 bits are cut off, as the specification has it.
        (Type::Int32, Raw::Varint(value)) => number((value as i32).to_string()),
        (Type::Int64, Raw::Varint(value)) => number((value as i64).to_string()),
        (Type::Uint32, Raw::Varint(value)) => number((value as u32).to_string()),
        (Type::Uint64, Raw::Varint(value)) => number(value.to_string()),
        (Type::Sint32, Raw::Varint(value)) => number((unzigzag(u64::from(value as u32)) as i32).to_string()),
        (Type::Sint64, Raw::Varint(value)) => number(unzigzag(value).to_string()),
        (Type::Fixed32, Raw::Fixed32(bytes)) => number(u32::from_le_bytes(bytes).to_string()),
        (Type::Fixed64, Raw::Fixed64(bytes)) => number(u64::from_le_bytes(bytes).to_string()),
        (Type::Sfixed32, Raw::Fixed32(bytes)) => number(i32::from_le_bytes(bytes).to_string()),
        (Type::Sfixed64, Raw::Fixed64(bytes)) => number(i64::from_le_bytes(bytes).to_string()),
        (Type::Bool, Raw::Varint(value)) => Ok(Value::Bool(value != 0)),
        (Type::Enum(names), Raw::Varint(value)) => Ok(symbol(names, value as i32)),
        (Type::Wrapper(inner), Raw::Bytes(bytes)) => wrapped(inner, bytes),
        (Type::Timestamp, Raw::Bytes(bytes)) => timestamp(bytes),
        (Type::Duration, Raw::Bytes(bytes)) => duration(bytes),
        _ => Err(RejectCode::Malformed),
    }
}

/// The value of a field that is absent and does not tell.
pub(super) fn default(field: &Field) -> Value<'static> {
    if field.repeated {
        return Value::Nested(if matches!(field.of, Type::Map(_)) { "{}" } else { "[]" }.into());
    }
    if field.presence { Value::Null } else { zero(&field.of) }
}

fn zero(of: &Type) -> Value<'static> {
    match of {
        Type::String | Type::Bytes => Value::Text("".into()),
        Type::Bool => Value::Bool(false),
        Type::Enum(names) => match symbol(names, 0) {
            Value::Text(name) => Value::Text(Cow::Owned(name.into_owned())),
            _ => Value::Number("0".into()),
        },
        Type::Timestamp | Type::Duration | Type::Wrapper(_) | Type::Message(_) | Type::Map(_) => Value::Null,
        _ => Value::Number("0".into()),
    }
}

/// The name of a number; the number itself where a newer schema has given it one.
fn symbol<'a>(names: &[(i32, std::sync::Arc<str>)], number: i32) -> Value<'a> {
    match names.binary_search_by_key(&number, |(number, _)| *number) {
        Ok(at) => Value::Text(names[at].1.to_string().into()),
        Err(_) => Value::Number(number.to_string().into()),
    }
}

fn wrapped<'a>(of: &Type, message: &'a [u8]) -> Result<Value<'a>, RejectCode> {
    let (mut cursor, mut value) = (Cursor::new(message), zero(of));
    while let Some((number, raw)) = cursor.field()? {
        if number == 1 {
            value = single(of, raw)?;
        }
    }
    Ok(value)
}

/// Seconds and nanoseconds.
fn seconds_and_nanos(message: &[u8]) -> Result<(i64, i32), RejectCode> {
    let (mut cursor, mut seconds, mut nanos) = (Cursor::new(message), 0, 0);
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
    field: &Field,
    raws: &[Raw<'_>],
    depth: usize,
    out: &mut String,
) -> Result<(), RejectCode> {
    match &field.of {
        Type::Map(entry) => map(types, *entry, raws, depth, out),
        of if field.repeated => {
            out.push('[');
            let mut first = true;
            for raw in raws {
                list(types, of, *raw, &mut first, depth, out)?;
            }
            out.push(']');
            Ok(())
        }
        Type::Message(id) if !raws.is_empty() => message(types, *id, raws, depth, out),
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
    of: &Type,
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
        (Type::String | Type::Bytes | Type::Timestamp | Type::Duration | Type::Wrapper(_), _) => None,
        (Type::Message(id), raw) => {
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
    let mut cursor = Cursor::new(packed);
    while !cursor.rest().is_empty() {
        let item = match of {
            Type::Double | Type::Fixed64 | Type::Sfixed64 => Raw::Fixed64(cursor.array()?),
            Type::Float | Type::Fixed32 | Type::Sfixed32 => Raw::Fixed32(cursor.array()?),
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
        let (mut cursor, mut own, mut of) = (Cursor::new(bytes), zero(&key.of), Vec::new());
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
            // An entry without a value has the default one.
            Type::Message(id) => message(types, id, &of, depth, out)?,
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
        let mut cursor = Cursor::new(bytes);
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
