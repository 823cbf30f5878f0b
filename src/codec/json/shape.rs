//! The fast way through a JSON object: records of a stream have their keys in the same order, so each key is compared with the one
//! that came there before, and nothing is looked up. Objects inside have a shape of their own, named or not.
//!
//! Invariant: what [`Shape::follow`] accepts, the general way accepts with the same values. The keys of an object are all different
//! and it only moves forward, so an object that follows it repeats none. Whatever it is not sure of (another key, an error, a rare
//! spelling) it leaves to the general way, which alone decides what is turned away, and why.

use std::borrow::Cow;

use super::{Value, each_member, inspect, number, value};
use crate::model::record::Record;
use crate::model::schema::PathTree;
use serde_json::value::RawValue;

/// The most keys that are remembered, at all depths. Larger: one hostile record makes the decoder hold more. Smaller: wide records
/// take the general way.
const MAX_KEYS: usize = 256;

/// The deepest object whose keys are remembered. Larger: reading recurses that deep. Smaller: deep records are read twice. Paths
/// that are longer take the general way.
const MAX_SHAPES: usize = 16;

/// The keys of the records so far, in their order.
#[derive(Clone, Default)]
pub(super) struct Shape {
    keys: Vec<Expected>,
}

#[derive(Clone)]
struct Expected {
    /// With its quotes.
    quoted: Box<[u8]>,
    of: Target,
}

/// The treatment of the value of a key.
#[derive(Clone)]
enum Target {
    Slot(usize),
    /// Nobody asked for it, and it was no object so far.
    Skip,
    /// An object, with the slots inside it: none if nobody asked for it.
    Object(Shape, Box<[usize]>),
}

impl Shape {
    /// Reads an object whose keys are some of the shape's, in its order; `None` if the general way has to.
    pub(super) fn follow<'a>(&self, text: &'a str, record: &mut Record<'a>) -> Option<()> {
        let bytes = text.as_bytes();
        let end = self.object(text, after_blanks(bytes, 0), 1, record)?;
        (after_blanks(bytes, end) == bytes.len()).then_some(())
    }

    /// Reads the object at `at`, which is `depth` objects deep; gives the index after it.
    fn object<'a>(&self, text: &'a str, mut at: usize, depth: usize, record: &mut Record<'a>) -> Option<usize> {
        let bytes = text.as_bytes();
        if *bytes.get(at)? != b'{' {
            return None;
        }
        let first = after_blanks(bytes, at + 1);
        if *bytes.get(first)? == b'}' {
            return Some(first + 1);
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
            let end = match &key.of {
                Target::Slot(slot) => read(text, at, depth, &mut record.values[*slot])?,
                Target::Skip => skip(text, at, depth)?,
                Target::Object(shape, slots) if slots.is_empty() => match shape.object(text, at, depth + 1, record) {
                    Some(end) => end,
                    None => skip(text, at, depth)?,
                },
                Target::Object(_, slots) if bytes[at..].starts_with(b"null") => {
                    slots.iter().for_each(|slot| record.values[*slot] = Value::Null);
                    at + 4
                }
                Target::Object(shape, _) => shape.object(text, at, depth + 1, record)?,
            };
            at = after_blanks(bytes, end);
            match bytes.get(at)? {
                b',' => {}
                b'}' => return Some(at + 1),
                _ => return None,
            }
        }
    }

    /// Takes in the keys of a record that was good but did not follow: new ones where they stood, or all anew if the order is
    /// another one.
    pub(super) fn learn(&mut self, text: &str, fields: &PathTree) {
        let mut room = MAX_KEYS.saturating_sub(self.size());
        if !self.insert(text, Some(fields), 1, &mut room) || room == 0 {
            self.keys.clear();
            self.insert(text, Some(fields), 1, &mut { MAX_KEYS });
        }
    }

    /// How many keys are remembered.
    fn size(&self) -> usize {
        let inner = |key: &Expected| if let Target::Object(shape, _) = &key.of { shape.size() } else { 0 };
        self.keys.iter().map(|key| 1 + inner(key)).sum()
    }

    /// False if the order is another one. Takes in no more new keys than there is room for.
    fn insert(&mut self, text: &str, fields: Option<&PathTree>, depth: usize, room: &mut usize) -> bool {
        let (mut at, mut ordered) = (0, true);
        let read = each_member(text, |key, raw| {
            // A key with an escape is left to the general way.
            let Cow::Borrowed(key) = key else { return Ok(()) };
            let quoted = format!("\"{key}\"").into_bytes().into_boxed_slice();
            let field = fields.and_then(|fields| fields.get(key));
            match self.keys.iter().position(|known| known.quoted == quoted) {
                Some(known) => {
                    ordered &= known >= at;
                    at = known;
                }
                None if *room == 0 => return Ok(()),
                None => {
                    *room -= 1;
                    self.keys.insert(at, Expected { quoted, of: Target::new(field) });
                }
            }
            self.keys[at].of.learn(raw, field, depth, room);
            at += 1;
            Ok(())
        });
        read.is_ok() && ordered
    }
}

impl Target {
    fn new(field: Option<&PathTree>) -> Self {
        match field {
            Some(PathTree::Leaf(slot)) => Self::Slot(*slot),
            Some(inner) => Self::Object(Shape::default(), inner.leaves().into()),
            None => Self::Skip,
        }
    }

    /// Takes in the keys of the object that the value is.
    fn learn(&mut self, raw: &str, field: Option<&PathTree>, depth: usize, room: &mut usize) {
        if matches!(self, Self::Slot(_)) || !raw.starts_with('{') || depth >= MAX_SHAPES {
            return;
        }
        if matches!(self, Self::Skip) {
            *self = Self::Object(Shape::default(), Box::default());
        }
        if let Self::Object(shape, _) = self
            && !shape.insert(raw, field, depth + 1, room)
        {
            *room += shape.size();
            shape.keys.clear();
            shape.insert(raw, field, depth + 1, room);
        }
    }
}

/// Reads the value at `at` into `into`; gives the index after it.
fn read<'a>(text: &'a str, at: usize, depth: usize, into: &mut Value<'a>) -> Option<usize> {
    let bytes = text.as_bytes();
    let (read, end) = match *bytes.get(at)? {
        b'"' => match plain_end(bytes, at + 1) {
            Some(end) => (Value::Text(Cow::Borrowed(&text[at + 1..end])), end + 1),
            None => rare(text, at, depth)?,
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
        _ => rare(text, at, depth)?,
    };
    *into = read;
    Some(end)
}

/// Passes over a value that nobody asked for.
fn skip(text: &str, at: usize, depth: usize) -> Option<usize> {
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
            inspect(raw, depth, &mut |_| ()).ok()?;
            Some(end)
        }
    }
}

/// Objects, arrays, and strings with escapes.
fn rare(text: &str, at: usize, depth: usize) -> Option<(Value<'_>, usize)> {
    let (raw, end) = raw(text, at)?;
    Some((value(raw, depth).ok()?, end))
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
        for text in
            [r#"{"zip":1,"age":1}"#, r#"{"age":1,"age":1}"#, r#"{"new":1}"#, r#"{"age":1,}"#, "", r#"{"age":01}"#]
        {
            assert!(!follows(&decoder, text), "{text}");
        }
        // A new key is taken in where it stood; another order is another shape.
        decoder.decode(br#"{"age":1,"job":"a","zip":"1"}"#).unwrap();
        assert!(follows(&decoder, r#"{"x":1,"age":37,"job":"b","zip":"1","y":2}"#));
        decoder.decode(br#"{"zip":1,"age":1}"#).unwrap();
        assert!(follows(&decoder, r#"{"zip":1,"age":1}"#) && !follows(&decoder, r#"{"x":1,"age":37}"#));
    }

    /// As the shortest of many runs, taken in turns, because other work on the machine only adds time.
    #[test]
    fn a_nested_record_costs_little_more_than_a_flat_one() {
        let flat = r#"{"number":"1234567890","zip":"10115","street":"Chausseestr.","age":37,"name":"Ada Lovelace","job":"cook","note":"nothing to say here"}"#;
        let nested = r#"{"order":"123456","home":{"zip":"10115","street":"Chauss."},"who":{"age":37,"name":"Ada L."},"job":"cook","note":"nothing to say"}"#;
        assert!(flat.len().abs_diff(nested.len()) < 10, "{} and {} bytes", flat.len(), nested.len());
        let decoder = |fields: [&'static str; 3]| {
            JsonDecoder::new(&Schema::new(fields.map(|field| (field, Role::Quasi))), DEFAULT_MAX_RECORD_BYTES)
        };
        let mut cases = [(flat, decoder(["zip", "age", "job"])), (nested, decoder(["home.zip", "who.age", "job"]))];
        let mut least = [u128::MAX; 2];
        for _ in 0..400 {
            for ((text, decoder), least) in cases.iter_mut().zip(&mut least) {
                let start = std::time::Instant::now();
                for _ in 0..100 {
                    std::hint::black_box(decoder.decode(text.as_bytes()).unwrap());
                }
                *least = start.elapsed().as_nanos().min(*least);
            }
        }
        let [flat, nested] = least.map(|nanos| nanos as f64 / 100.0);
        println!("a flat record takes {flat:.0} ns, a nested one {nested:.0} ns: {:.2} times", nested / flat);
        assert!(nested < 1.3 * flat, "{nested:.0} ns against {flat:.0} ns");
    }

    #[test]
    fn the_memory_of_keys_is_bounded() {
        let mut decoder = decoder();
        for round in 0..3 {
            let keys: Vec<_> = (0..1000).map(|i| format!(r#""k{round}-{i}":0"#)).collect();
            decoder.decode(format!("{{{}}}", keys.join(",")).as_bytes()).unwrap();
            assert!(decoder.shape.size() <= MAX_KEYS);
        }
    }

    /// Objects in objects with few different keys, some of them repeated.
    fn object() -> impl Strategy<Value = String> {
        let scalar = "[0-9]{1,2}|\"[a-z]{0,9}\"|null|\\[\\]|\\{\\}|true|nul|\\[\\{\"a\":1,\"a\":1\\}\\]";
        scalar.prop_recursive(4, 24, 4, |inner| {
            prop::collection::vec(("[abcx]", inner), 0..4).prop_map(|members| {
                let members: Vec<_> = members.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
                format!("{{{}}}", members.join(","))
            })
        })
    }

    proptest! {
        /// The slow twin is the general way: same values, same rejections, whatever was learnt before.
        #[test]
        fn a_shape_changes_nothing(texts in prop::collection::vec(
            r#"( ?\{ ?("(age|zip|job|id|x|y|\\u0078|é)" ?: ?(-?[0-9eE.+-]{1,4}|"[ \\"nu0aé]{0,10}"|"[a-z]{0,20}"|[\[\]{}:,0 "a]{0,6}|null|true|false|nul),? ?){0,4}\}x?){1,2}"#, 1..12))
        {
            let mut decoder = decoder();
            for text in &texts {
                let twin = decoder.general(text);
                prop_assert!(decoder.decode(text.as_bytes()) == twin, "{}", text);
            }
        }

        /// The same with paths, in objects that may be absent, null, empty, or something else.
        #[test]
        fn a_nested_shape_changes_nothing(texts in prop::collection::vec(object(), 1..12)) {
            let fields = [("a.b", Role::Quasi), ("a.x.c", Role::Quasi), ("b", Role::Sensitive), ("x.x.x", Role::Subject)];
            let mut decoder = JsonDecoder::new(&Schema::new(fields), DEFAULT_MAX_RECORD_BYTES);
            for text in &texts {
                let twin = decoder.general(text);
                prop_assert!(decoder.decode(text.as_bytes()) == twin, "{}", text);
            }
        }
    }
}
