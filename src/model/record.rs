//! A decoded [`Record`]: one [`Value`] per slot of the schema, borrowing from the payload where it can.
//!
//! Invariant: values cannot be printed. There is no `Display`, and `Debug` shows kinds only.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use smallvec::SmallVec;
use unicode_normalization::UnicodeNormalization as _;

/// One field's value as read. Numbers are kept as canonical decimal text, so that ids never go through a float.
#[derive(Clone, PartialEq, Eq, Default)]
pub enum Value<'a> {
    /// The field is absent.
    #[default]
    Missing,
    /// The field is present and null.
    Null,
    /// true or false.
    Bool(bool),
    /// A number in canonical decimal text: no leading zeros, no trailing fraction zeros, no exponent, no `-0`.
    Number(Cow<'a, str>),
    /// A string, exactly as read.
    Text(Cow<'a, str>),
    /// An object or array as minified JSON text; can only be kept.
    Nested(Cow<'a, str>),
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "missing",
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Number(_) => "number",
            Self::Text(_) => "text",
            Self::Nested(_) => "nested",
        })
    }
}

impl Value<'_> {
    /// The text under which a scalar is looked up in a hierarchy or compared as a subject: Unicode NFC, without byte
    /// order marks and zero-width characters. `None` for missing, null and nested values.
    pub fn canonical(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Bool(true) => Some("true".into()),
            Self::Bool(false) => Some("false".into()),
            Self::Number(text) => Some(Cow::Borrowed(text)),
            Self::Text(text) => Some(canonical_text(text)),
            Self::Missing | Self::Null | Self::Nested(_) => None,
        }
    }

    /// Appends the value as JSON: how values that pass unchanged are carried. A missing value becomes null.
    pub fn write_json(&self, out: &mut String) {
        match self {
            Self::Missing | Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(text) | Self::Nested(text) => out.push_str(text),
            Self::Text(text) => write_json_string(text, out),
        }
    }
}

/// One decoded record, a value per slot of the schema.
#[derive(Clone, PartialEq, Eq)]
pub struct Record<'a> {
    /// In slot order; always as long as the schema.
    pub values: SmallVec<[Value<'a>; 16]>,
}

impl Record<'_> {
    /// A record of `slots` missing values.
    pub fn new(slots: usize) -> Self {
        Self { values: std::iter::repeat_with(Value::default).take(slots).collect() }
    }
}

impl fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Record({} fields)", self.values.len())
    }
}

/// NFC without byte order marks and zero-width characters; borrowed when nothing has to change.
#[inline]
pub fn canonical_text(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let invisible = |c: &char| matches!(c, '\u{feff}' | '\u{200b}'..='\u{200d}' | '\u{2060}');
    let canonical: String = text.chars().filter(|c| !invisible(c)).nfc().collect();
    if canonical == text { Cow::Borrowed(text) } else { Cow::Owned(canonical) }
}

/// Canonical decimal text of a JSON number or of text that is a plain decimal: `None` if it is not one, or too long to
/// be expanded. `007` is 7, `-0.0` is 0, `1.50` is 1.5, `1e3` is 1000.
pub fn canonical_number(text: &str) -> Option<Cow<'_, str>> {
    // Larger exponents would expand to more digits than any sane record holds.
    const MAX_EXPONENT: i32 = 400;
    let plain = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    if plain(unsigned) && (unsigned == "0" && text == "0" || !unsigned.starts_with('0')) {
        return Some(Cow::Borrowed(text));
    }
    let negative = unsigned.len() != text.len();
    let unsigned = if negative { unsigned } else { unsigned.strip_prefix('+').unwrap_or(unsigned) };
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok().filter(|e| e.abs() <= MAX_EXPONENT)?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if !plain(whole) || !(fraction.is_empty() || plain(fraction)) || (mantissa.ends_with('.')) {
        return None;
    }
    let mut digits: String = format!("{whole}{fraction}");
    let mut point = whole.len() as i32 + exponent;
    if point < 0 {
        digits.insert_str(0, &"0".repeat(-point as usize));
        point = 0;
    }
    if point as usize > digits.len() {
        digits.push_str(&"0".repeat(point as usize - digits.len()));
    }
    let (whole, fraction) = digits.split_at(point as usize);
    let whole = whole.trim_start_matches('0');
    let fraction = fraction.trim_end_matches('0');
    let mut canonical = String::with_capacity(digits.len() + 2);
    if negative && !(whole.is_empty() && fraction.is_empty()) {
        canonical.push('-');
    }
    canonical.push_str(if whole.is_empty() { "0" } else { whole });
    if !fraction.is_empty() {
        canonical.push('.');
        canonical.push_str(fraction);
    }
    Some(Cow::Owned(canonical))
}

/// Appends `text` as a JSON string.
pub fn write_json_string(text: &str, out: &mut String) {
    out.push('"');
    let mut rest = text;
    while let Some(at) = rest.bytes().position(|b| b < 0x20 || b == b'"' || b == b'\\') {
        out.push_str(&rest[..at]);
        match rest.as_bytes()[at] {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            control => {
                let _ = write!(out, "\\u{control:04x}");
            }
        }
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_one_spelling() {
        for (text, canonical) in [
            ("0", "0"),
            ("-0", "0"),
            ("-0.0", "0"),
            ("007", "7"),
            ("1.50", "1.5"),
            ("1e3", "1000"),
            ("1.25E-2", "0.0125"),
            ("9223372036854775808", "9223372036854775808"),
            ("-12", "-12"),
            ("100", "100"),
            ("0.10", "0.1"),
        ] {
            assert_eq!(canonical_number(text).as_deref(), Some(canonical), "{text}");
        }
        for text in ["", "-", "NaN", "inf", "1e999999", "1.", ".5", "0x10", "1 2", "--1"] {
            assert_eq!(canonical_number(text), None, "{text}");
        }
    }

    #[test]
    fn json_strings_match_serde() {
        for text in ["", "plain", "quote\" back\\ nl\n tab\t cr\r bell\u{7} é 漢", "\u{1f}\u{0}"] {
            let mut out = String::new();
            write_json_string(text, &mut out);
            let back: String = serde_json::from_str(&out).unwrap();
            assert_eq!(back, text);
        }
    }

    #[test]
    fn invisible_characters_do_not_make_another_value() {
        assert_eq!(canonical_text("\u{feff}Cafe\u{301}\u{200b}"), "Café");
        assert_eq!(canonical_text("Café"), "Café");
    }
}
