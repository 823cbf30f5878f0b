//! The fast way through a JSON object: records of a stream have their keys in the same order, so each key is compared with the one
//! that came there before, and nothing is looked up.
//!
//! Invariant: what [`Shape::follow`] accepts, the general way accepts with the same values. Its keys are all different and it only
//! moves forward, so a record that follows it repeats none. Whatever it is not sure of (another key, an error, a rare spelling) it
//! leaves to the general way, which alone decides what is turned away, and why.

use std::borrow::Cow;

use super::{Value, inspect, number, value};
use crate::model::record::Record;
use serde_json::value::RawValue;

/// The most keys that are remembered. Larger: one hostile record makes the decoder hold more. Smaller: wide records take the
/// general way.
const MAX_KEYS: usize = 256;

/// The keys of the records so far, in their order.
#[derive(Default)]
pub(super) struct Shape {
    keys: Vec<Expected>,
}

struct Expected {
    /// With its quotes.
    quoted: Box<[u8]>,
    slot: Option<usize>,
}

impl Shape {
    /// Reads an object whose keys are some of the shape's, in its order; `None` if the general way has to.
    pub(super) fn follow<'a>(&self, text: &'a str, record: &mut Record<'a>) -> Option<()> {
        let bytes = text.as_bytes();
        let mut at = after_blanks(bytes, 0);
        if *bytes.get(at)? != b'{' {
            return None;
        }
        let mut expected = self.keys.iter();
        loop {
            at = after_blanks(bytes, at + 1);
            let rest = bytes.get(at..)?;
            let key = expected.find(|key| rest.starts_with(&key.quoted))?;
            at = after_blanks(bytes, at + key.quoted.len());
            if *bytes.get(at)? != b':' {
                return None;
            }
            at = after_blanks(bytes, at + 1);
            let end = match key.slot {
                Some(slot) => read(text, at, &mut record.values[slot])?,
                None => skip(text, at)?,
            };
            at = after_blanks(bytes, end);
            match bytes.get(at)? {
                b',' => {}
                b'}' => break,
                _ => return None,
            }
        }
        (after_blanks(bytes, at + 1) == bytes.len()).then_some(())
    }

    /// Takes in the keys of a record that was good but did not follow: new ones where they stood, or all anew if the order is
    /// another one.
    pub(super) fn learn<'a>(&mut self, keys: impl Iterator<Item = (&'a str, Option<usize>)> + Clone) {
        if !self.insert(keys.clone()) || self.keys.len() > MAX_KEYS {
            self.keys.clear();
            self.insert(keys.take(MAX_KEYS));
        }
    }

    /// False if the order is another one.
    fn insert<'a>(&mut self, keys: impl Iterator<Item = (&'a str, Option<usize>)>) -> bool {
        let mut at = 0;
        for (key, slot) in keys {
            let quoted = format!("\"{key}\"").into_bytes().into_boxed_slice();
            match self.keys.iter().position(|known| known.quoted == quoted) {
                Some(known) if known < at => return false,
                Some(known) => at = known,
                None => self.keys.insert(at, Expected { quoted, slot }),
            }
            at += 1;
        }
        true
    }
}

/// Reads the value at `at` into `into`; gives the index after it.
fn read<'a>(text: &'a str, at: usize, into: &mut Value<'a>) -> Option<usize> {
    let bytes = text.as_bytes();
    let (read, end) = match *bytes.get(at)? {
        b'"' => match plain_end(bytes, at + 1) {
            Some(end) => (Value::Text(Cow::Borrowed(&text[at + 1..end])), end + 1),
            None => rare(text, at)?,
        },
        b'-' | b'0'..=b'9' => {
            let (end, integer) = number_end(bytes, at)?;
            let raw = &text[at..end];
            let canonical = if integer && raw != "-0" { Cow::Borrowed(raw) } else { number(raw)? };
            (Value::Number(canonical), end)
        }
        b'n' => (Value::Null, word_end(bytes, at, b"null")?),
        b't' => (Value::Bool(true), word_end(bytes, at, b"true")?),
        b'f' => (Value::Bool(false), word_end(bytes, at, b"false")?),
        _ => rare(text, at)?,
    };
    *into = read;
    Some(end)
}

/// Passes over a value that nobody asked for.
fn skip(text: &str, at: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    match *bytes.get(at)? {
        b'"' => match plain_end(bytes, at + 1) {
            Some(end) => Some(end + 1),
            None => raw(text, at).map(|(_, end)| end),
        },
        b'-' | b'0'..=b'9' => number_end(bytes, at).map(|(end, _)| end),
        b'n' => word_end(bytes, at, b"null"),
        b't' => word_end(bytes, at, b"true"),
        b'f' => word_end(bytes, at, b"false"),
        _ => {
            let (raw, end) = raw(text, at)?;
            inspect(raw, &mut |_| ()).ok()?;
            Some(end)
        }
    }
}

/// Objects, arrays, and strings with escapes.
fn rare(text: &str, at: usize) -> Option<(Value<'_>, usize)> {
    let (raw, end) = raw(text, at)?;
    Some((value(raw).ok()?, end))
}

/// The text of the value at `at`, its syntax checked by serde_json, and the index after it.
fn raw(text: &str, at: usize) -> Option<(&str, usize)> {
    let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<&RawValue>();
    let raw = values.next()?.ok()?;
    Some((raw.get(), at + values.byte_offset()))
}

#[inline]
fn after_blanks(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = bytes.get(at) {
        at += 1;
    }
    at
}

fn word_end(bytes: &[u8], at: usize, word: &[u8]) -> Option<usize> {
    bytes[at..].starts_with(word).then_some(at + word.len())
}

/// The index after a number, and whether it is an integer.
fn number_end(bytes: &[u8], at: usize) -> Option<(usize, bool)> {
    let digits = |from: usize| from + bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let some = |from: usize| Some(digits(from)).filter(|end| *end > from);
    let at = at + usize::from(bytes[at] == b'-');
    let mut end = if bytes.get(at) == Some(&b'0') { at + 1 } else { some(at)? };
    let whole = end;
    if bytes.get(end) == Some(&b'.') {
        end = some(end + 1)?;
    }
    if let Some(b'e' | b'E') = bytes.get(end) {
        end += 1;
        if let Some(b'+' | b'-') = bytes.get(end) {
            end += 1;
        }
        end = some(end)?;
    }
    Some((end, end == whole))
}

/// The index of the quote that ends a string without escapes; `None` if there is an escape, or a control character. Eight bytes at a
/// time: the lowest bit that is set marks the first byte that is not plain text.
#[inline]
fn plain_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    let zero = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
    while let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*word);
        let control = word.wrapping_sub(ONES * 0x20) & !word & HIGH;
        let special = control | zero(word ^ (ONES * u64::from(b'"'))) | zero(word ^ (ONES * u64::from(b'\\')));
        if special != 0 {
            at += special.trailing_zeros() as usize / 8;
            return (bytes[at] == b'"').then_some(at);
        }
        at += 8;
    }
    let end = at + bytes.get(at..)?.iter().position(|&b| b < 0x20 || b == b'"' || b == b'\\')?;
    (bytes[end] == b'"').then_some(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::json::JsonDecoder;
    use crate::codec::{DEFAULT_MAX_RECORD_BYTES, Decode as _};
    use crate::model::schema::{Role, Schema};

    fn decoder() -> JsonDecoder {
        let fields = [("age", Role::Quasi), ("zip", Role::Quasi), ("job", Role::Sensitive), ("id", Role::Subject)];
        JsonDecoder::new(&Schema::new(fields), DEFAULT_MAX_RECORD_BYTES)
    }

    fn follows(decoder: &JsonDecoder, text: &str) -> bool {
        decoder.shape.follow(text, &mut Record::new(4)).is_some()
    }

    #[test]
    fn records_of_one_shape_are_followed() {
        let mut decoder = decoder();
        decoder.decode(br#"{"x":1,"age":37,"zip":"1","y":{"a":[1]}}"#).unwrap();
        for text in [
            r#"{"x":"text","age":-1.5e3,"zip":null,"y":{"b":{}}}"#,
            r#"{ "x" : "e\u00e9\n" , "zip":"\"" } "#,
            r#"{"zip":true}"#,
        ] {
            assert!(follows(&decoder, text), "{text}");
        }
        for text in [r#"{"zip":1,"age":1}"#, r#"{"age":1,"age":1}"#, r#"{"new":1}"#, "{}", "", r#"{"age":01}"#] {
            assert!(!follows(&decoder, text), "{text}");
        }
        // A new key is taken in where it stood; another order is another shape.
        decoder.decode(br#"{"age":1,"job":"a","zip":"1"}"#).unwrap();
        assert!(follows(&decoder, r#"{"x":1,"age":37,"job":"b","zip":"1","y":2}"#));
        decoder.decode(br#"{"zip":1,"age":1}"#).unwrap();
        assert!(follows(&decoder, r#"{"zip":1,"age":1}"#) && !follows(&decoder, r#"{"x":1,"age":37}"#));
    }

    #[test]
    fn the_memory_of_keys_is_bounded() {
        let mut decoder = decoder();
        for round in 0..3 {
            let keys: Vec<_> = (0..1000).map(|i| format!(r#""k{round}-{i}":0"#)).collect();
            decoder.decode(format!("{{{}}}", keys.join(",")).as_bytes()).unwrap();
            assert!(decoder.shape.keys.len() <= MAX_KEYS);
        }
    }

    proptest! {
        /// The slow twin is the general way: same values, same rejections, whatever was learnt before.
        #[test]
        fn a_shape_changes_nothing(texts in prop::collection::vec(
            r#"( ?\{ ?("(age|zip|job|id|x|y|\\u0078|é)" ?: ?(-?[0-9eE.+-]{1,4}|"[ \\"nu0aé]{0,10}"|"[a-z]{0,20}"|[\[\]{}:,0 "a]{0,6}|null|true|false|nul),? ?){0,4}\}x?){1,2}"#, 1..12))
        {
            let mut decoder = decoder();
            for text in &texts {
                let twin = decoder.general(text).map(|(record, _)| record);
                prop_assert!(decoder.decode(text.as_bytes()) == twin, "{}", text);
            }
        }
    }
}
