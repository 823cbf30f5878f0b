//! Reading Avro's binary encoding: every length is checked against what is left before it is believed.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write as _;

use super::types::{Type, TypeId, Unit};
use crate::codec::MAX_DEPTH;
use crate::model::event::RejectCode;
use crate::model::record::{Value, canonical_number, write_json_string};

/// Values that one datum may hold beyond eight per byte: nulls and empty records take none. Larger: a few bytes of
/// input, or a hostile schema, keep the decoder busy for that long. Smaller: honest wide records are turned away.
const FREE_VALUES: usize = 100_000;

/// The longest JSON text one nested value may become. Larger: long field names blow a small datum up that far.
/// Smaller: honest documents are turned away.
const MAX_NESTED_JSON: usize = 8 << 20;

/// The largest scale of a decimal that is written out. Larger: a few bytes of input expand to that many zeros.
const MAX_SCALE: i64 = 400;

/// A place in a datum.
pub(super) struct Cursor<'t, 'a> {
    types: &'t [Type],
    rest: &'a [u8],
    values_left: usize,
    /// Measuring needs lengths only; what a string holds is checked when it is decoded.
    measuring: bool,
}

impl<'t, 'a> Cursor<'t, 'a> {
    pub(super) fn new(types: &'t [Type], datum: &'a [u8]) -> Self {
        Self { types, rest: datum, values_left: datum.len().saturating_mul(8) + FREE_VALUES, measuring: false }
    }

    pub(super) fn measuring(types: &'t [Type], data: &'a [u8]) -> Self {
        Self { measuring: true, ..Self::new(types, data) }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Reads a field. With `iso`, dates and timestamps become ISO text; without, they stay the numbers they are.
    pub(super) fn value(&mut self, of: TypeId, iso: bool) -> Result<Value<'a>, RejectCode> {
        let types = self.types;
        Ok(match &types[of] {
            Type::Pending => return Err(RejectCode::Malformed),
            Type::Null => Value::Null,
            Type::Boolean => Value::Bool(self.boolean()?),
            Type::Date if iso => Value::Text(date(self.int()?)?.into()),
            Type::Timestamp { unit, local } if iso => Value::Text(timestamp(self.long()?, *unit, *local)?.into()),
            Type::Int | Type::Date => Value::Number(self.int()?.to_string().into()),
            Type::Long | Type::Timestamp { .. } => Value::Number(self.long()?.to_string().into()),
            Type::Float => Value::Number(float(f32::from_le_bytes(self.array()?), f32::is_finite)?.into()),
            Type::Double => Value::Number(float(f64::from_le_bytes(self.array()?), f64::is_finite)?.into()),
            Type::Decimal { size, scale } => {
                let unscaled = self.sized(*size)?;
                Value::Number(decimal(unscaled, *scale as i64)?.into())
            }
            Type::BigDecimal => {
                let mut inner = Cursor::new(types, self.sized(None)?);
                let unscaled = inner.sized(None)?;
                let scale = inner.long()?;
                if !inner.is_at_end() {
                    return Err(RejectCode::Malformed);
                }
                Value::Number(decimal(unscaled, scale)?.into())
            }
            Type::Bytes => Value::Text(latin1(self.sized(None)?)),
            Type::Fixed(size) => Value::Text(latin1(self.take(*size)?)),
            Type::String => Value::Text(self.string()?.into()),
            Type::Uuid { size } => Value::Text(uuid(self.sized(*size)?).ok_or(RejectCode::Malformed)?.into()),
            Type::Enum(symbols) => {
                let symbol = self.index(symbols.len())?;
                Value::Text(symbols[symbol].clone().into())
            }
            Type::Union(variants) => {
                let variant = variants[self.index(variants.len())?];
                // The specification forbids a union directly inside a union, so this cannot recurse further.
                if matches!(types[variant], Type::Union(_)) {
                    return Err(RejectCode::Malformed);
                }
                self.value(variant, iso)?
            }
            Type::Duration | Type::Array(_) | Type::Map(_) | Type::Record(_) => {
                let mut json = String::new();
                self.json(of, iso, 1, &mut json)?;
                Value::Nested(json.into())
            }
        })
    }

    /// Reads past a value that nobody asked for. It must be well formed all the same.
    pub(super) fn skip(&mut self, of: TypeId, depth: usize) -> Result<(), RejectCode> {
        let types = self.types;
        let depth = self.deeper(depth)?;
        match &types[of] {
            Type::Pending => return Err(RejectCode::Malformed),
            Type::Null => {}
            Type::Boolean => self.boolean().map(|_| ())?,
            Type::Int | Type::Date => self.int().map(|_| ())?,
            Type::Long | Type::Timestamp { .. } => self.long().map(|_| ())?,
            Type::Float => self.take(4).map(|_| ())?,
            Type::Double => self.take(8).map(|_| ())?,
            Type::String => self.skip_string()?,
            Type::Bytes | Type::BigDecimal => self.sized(None).map(|_| ())?,
            Type::Decimal { size, .. } | Type::Uuid { size } => self.sized(*size).map(|_| ())?,
            Type::Fixed(size) => self.take(*size).map(|_| ())?,
            Type::Duration => self.take(12).map(|_| ())?,
            Type::Enum(symbols) => self.index(symbols.len()).map(|_| ())?,
            Type::Union(variants) => {
                let variant = self.index(variants.len())?;
                self.skip(variants[variant], depth)?;
            }
            Type::Array(items) => {
                while let Some(count) = self.block()? {
                    (0..count).try_for_each(|_| self.skip(*items, depth))?;
                }
            }
            Type::Map(values) => {
                while let Some(count) = self.block()? {
                    for _ in 0..count {
                        self.skip_string()?;
                        self.skip(*values, depth)?;
                    }
                }
            }
            Type::Record(fields) => fields.iter().try_for_each(|(_, of)| self.skip(*of, depth))?,
        }
        Ok(())
    }

    /// Appends a value as JSON: the only form in which nested values are carried.
    fn json(&mut self, of: TypeId, iso: bool, depth: usize, out: &mut String) -> Result<(), RejectCode> {
        let types = self.types;
        let depth = self.deeper(depth)?;
        if out.len() > MAX_NESTED_JSON {
            return Err(RejectCode::TooLarge);
        }
        match &types[of] {
            Type::Duration => {
                let part = |cursor: &mut Self| cursor.array().map(u32::from_le_bytes);
                let (months, days, millis) = (part(self)?, part(self)?, part(self)?);
                let _ = write!(out, "[{months},{days},{millis}]");
            }
            Type::Union(variants) => {
                let variant = self.index(variants.len())?;
                self.json(variants[variant], iso, depth, out)?;
            }
            Type::Array(items) => {
                out.push('[');
                let mut first = true;
                while let Some(count) = self.block()? {
                    for _ in 0..count {
                        separate(&mut first, out);
                        self.json(*items, iso, depth, out)?;
                    }
                }
                out.push(']');
            }
            Type::Map(values) => {
                out.push('{');
                let mut first = true;
                let mut keys = HashSet::new();
                while let Some(count) = self.block()? {
                    for _ in 0..count {
                        let key = self.string()?;
                        if !keys.insert(key) {
                            return Err(RejectCode::DuplicateKey);
                        }
                        separate(&mut first, out);
                        write_json_string(key, out);
                        out.push(':');
                        self.json(*values, iso, depth, out)?;
                    }
                }
                out.push('}');
            }
            Type::Record(fields) => {
                out.push('{');
                let mut first = true;
                for (name, of) in fields {
                    separate(&mut first, out);
                    write_json_string(name, out);
                    out.push(':');
                    self.json(*of, iso, depth, out)?;
                }
                out.push('}');
            }
            _ => self.value(of, iso)?.write_json(out),
        }
        Ok(())
    }

    fn take(&mut self, size: usize) -> Result<&'a [u8], RejectCode> {
        let (taken, rest) = self.rest.split_at_checked(size).ok_or(RejectCode::Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RejectCode> {
        self.take(N)?.try_into().map_err(|_| RejectCode::Malformed)
    }

    fn long(&mut self) -> Result<i64, RejectCode> {
        let (value, rest) = read_long(self.rest).ok_or(RejectCode::Malformed)?;
        self.rest = rest;
        Ok(value)
    }

    fn int(&mut self) -> Result<i32, RejectCode> {
        i32::try_from(self.long()?).map_err(|_| RejectCode::Malformed)
    }

    fn boolean(&mut self) -> Result<bool, RejectCode> {
        match self.take(1)? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(RejectCode::Malformed),
        }
    }

    /// Bytes of a fixed size, or with their length in front.
    fn sized(&mut self, size: Option<usize>) -> Result<&'a [u8], RejectCode> {
        let size = match size {
            Some(size) => size,
            None => usize::try_from(self.long()?).map_err(|_| RejectCode::Malformed)?,
        };
        self.take(size)
    }

    fn string(&mut self) -> Result<&'a str, RejectCode> {
        std::str::from_utf8(self.sized(None)?).map_err(|_| RejectCode::InvalidUtf8)
    }

    fn skip_string(&mut self) -> Result<(), RejectCode> {
        if self.measuring { self.sized(None).map(|_| ()) } else { self.string().map(|_| ()) }
    }

    pub(super) fn index(&mut self, of: usize) -> Result<usize, RejectCode> {
        usize::try_from(self.long()?).ok().filter(|index| *index < of).ok_or(RejectCode::Malformed)
    }

    /// The number of items in the next block of an array or map; `None` after the last.
    fn block(&mut self) -> Result<Option<usize>, RejectCode> {
        let count = self.long()?;
        if count < 0 {
            // A negative count is followed by the block's size in bytes, for readers that jump.
            self.long()?;
        }
        let count = usize::try_from(count.unsigned_abs()).map_err(|_| RejectCode::Malformed)?;
        // No count is believed that could not be read anyway.
        if count > self.values_left { Err(RejectCode::Malformed) } else { Ok((count > 0).then_some(count)) }
    }

    /// One level down, at the cost of one value.
    fn deeper(&mut self, depth: usize) -> Result<usize, RejectCode> {
        if depth >= MAX_DEPTH {
            return Err(RejectCode::TooDeep);
        }
        self.values_left = self.values_left.checked_sub(1).ok_or(RejectCode::TooLarge)?;
        Ok(depth + 1)
    }
}

/// A zigzag variable-length number at the start of `bytes`, and what follows it.
pub(in crate::codec) fn read_long(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let mut zigzag = 0u64;
    for (i, byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        if i == 9 && bits > 1 {
            return None;
        }
        zigzag |= bits << (7 * i);
        if byte & 0x80 == 0 {
            return Some(((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64), &bytes[i + 1..]));
        }
    }
    None
}

fn separate(first: &mut bool, out: &mut String) {
    if !std::mem::take(first) {
        out.push(',');
    }
}

/// A float in canonical text. NaN and the infinities are nowhere in a hierarchy and not in JSON: malformed.
pub(in crate::codec) fn float<F: std::fmt::Display + Copy>(
    value: F,
    finite: fn(F) -> bool,
) -> Result<String, RejectCode> {
    if !finite(value) {
        return Err(RejectCode::Malformed);
    }
    // Display never uses an exponent; what is left to do is -0.
    let text = value.to_string();
    canonical_number(&text).map(Cow::into_owned).ok_or(RejectCode::Malformed)
}

/// Big-endian two's complement times ten to the minus `scale`. Up to 128 bits, as every database that writes them.
fn decimal(unscaled: &[u8], scale: i64) -> Result<String, RejectCode> {
    let negative = unscaled.first().is_some_and(|b| b & 0x80 != 0);
    let sign = if negative { 0xff } else { 0 };
    let extra = unscaled.len().saturating_sub(16);
    if unscaled[..extra].iter().any(|b| *b != sign) || scale.abs() > MAX_SCALE {
        return Err(RejectCode::Malformed);
    }
    let mut wide = [sign; 16];
    let low = &unscaled[extra..];
    wide[16 - low.len()..].copy_from_slice(low);
    let wide = i128::from_be_bytes(wide);
    if (wide < 0) != negative {
        return Err(RejectCode::Malformed);
    }
    canonical_number(&format!("{wide}e{}", -scale)).map(Cow::into_owned).ok_or(RejectCode::Malformed)
}

fn date(days: i32) -> Result<String, RejectCode> {
    let epoch = jiff::civil::date(1970, 1, 1);
    epoch
        .checked_add(jiff::Span::new().try_days(days).map_err(|_| RejectCode::Malformed)?)
        .map(|date| date.to_string())
        .map_err(|_| RejectCode::Malformed)
}

fn timestamp(since_epoch: i64, unit: Unit, local: bool) -> Result<String, RejectCode> {
    let time = match unit {
        Unit::Millis => jiff::Timestamp::from_millisecond(since_epoch),
        Unit::Micros => jiff::Timestamp::from_microsecond(since_epoch),
        Unit::Nanos => jiff::Timestamp::from_nanosecond(i128::from(since_epoch)),
    };
    let mut text = time.map_err(|_| RejectCode::Malformed)?.to_string();
    if local {
        text.truncate(text.trim_end_matches('Z').len());
    }
    Ok(text)
}

/// Bytes as text, one character per byte, as Avro's JSON encoding has it.
pub(in crate::codec) fn latin1(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.is_ascii() => Cow::Borrowed(text),
        _ => bytes.iter().map(|&b| char::from(b)).collect::<String>().into(),
    }
}

/// Sixteen bytes as the text of a UUID.
pub(in crate::codec) fn uuid(bytes: &[u8]) -> Option<String> {
    let hex = format!("{:032x}", u128::from_be_bytes(bytes.try_into().ok()?));
    Some([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
}
