//! A decoded [`Record`]: one [`Value`] per slot of the schema, borrowing from the payload where it can.
//!
//! Invariant: values cannot be printed. There is no `Display`, and `Debug` shows kinds only.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde_json::value::RawValue;
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
    /// The text under which a scalar is looked up in a hierarchy, see [`canonical_text`]. `None` for missing, null and
    /// nested values.
    pub fn canonical(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Bool(true) => Some("true".into()),
            Self::Bool(false) => Some("false".into()),
            Self::Number(text) => Some(Cow::Borrowed(text)),
            Self::Text(text) => Some(canonical_text(text)),
            Self::Missing | Self::Null | Self::Nested(_) => None,
        }
    }

    /// The text by which a scalar is counted as a sensitive value or as a person, see [`counted_text`]. Empty where there
    /// is no value: missing, null, blank and nested ones.
    #[inline]
    pub fn counted(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => counted_text(text),
            Self::Number(text) => Cow::Borrowed(text),
            Self::Bool(value) => Cow::Borrowed(if *value { "true" } else { "false" }),
            Self::Missing | Self::Null | Self::Nested(_) => Cow::Borrowed(""),
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

/// How quasi-identifiers are looked up and labelled: Unicode NFC without default-ignorable characters and outer blanks, so that
/// one value is not two. Borrowed where only the ends change.
#[inline]
pub fn canonical_text(text: &str) -> Cow<'_, str> {
    let text = text.trim();
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let canonical: String = text.chars().filter(|c| !is_ignorable(*c)).nfc().collect();
    if canonical == text { Cow::Borrowed(text) } else { Cow::Owned(canonical.trim().to_owned()) }
}

/// How sensitive values, class labels and subjects are counted; never published. Texts that a reader takes for one value are
/// one: Unicode NFKC, case folded, without default-ignorable and control characters, with single blanks between words and none
/// around them; numbers by value (`1`, `1.0` and `01` are one). Empty if there is no value. Two values may be one here (`01`
/// may be a code): to count too few of them errs on the safe side.
#[inline]
pub fn counted_text(text: &str) -> Cow<'_, str> {
    if is_folded(text) {
        return by_value(text).unwrap_or(Cow::Borrowed(text));
    }
    let folded = fold(text);
    Cow::Owned(by_value(&folded).map(Cow::into_owned).unwrap_or(folded))
}

/// [`counted_text`] of a value that [`Value::write_json`] wrote, whatever its JSON type. An array counts as the set of its
/// elements, each as it counts by itself, and a set of one as its element: a reader takes `["flu"]` and `"flu"` for one value.
pub fn counted_json(json: &str) -> Cow<'_, str> {
    if json.starts_with('[')
        && let Some(elements) = set_elements(json)
    {
        return Cow::Owned(counted_set(elements.into_keys()));
    }
    match plain_json(json) {
        Cow::Borrowed(text) => counted_text(text),
        Cow::Owned(text) => Cow::Owned(counted_text(&text).into_owned()),
    }
}

/// Appends an array of scalars as a set: sorted by what the elements count as, each once, without nulls and blanks. The order and
/// the repetitions in the input say more than the policy lets pass. Null if there is none; `None` if an element is no scalar.
pub fn write_json_set(array: &str, out: &mut String) -> Option<()> {
    let elements = set_elements(array)?;
    if elements.is_empty() {
        out.push_str("null");
        return Some(());
    }
    out.push('[');
    for (i, element) in elements.values().enumerate() {
        out.push_str(if i > 0 { "," } else { "" });
        out.push_str(element.get());
    }
    out.push(']');
    Some(())
}

/// The scalars of a JSON array by what they count as; `None` if there is anything else in it.
fn set_elements(array: &str) -> Option<BTreeMap<String, &RawValue>> {
    let elements: Vec<&RawValue> = serde_json::from_str(array).ok()?;
    let mut set = BTreeMap::new();
    for element in elements {
        if element.get().starts_with(['[', '{']) {
            return None;
        }
        let counted = counted_json(element.get()).into_owned();
        if !counted.is_empty() {
            let least = set.entry(counted).or_insert(element);
            *least = if element.get() < least.get() { element } else { *least };
        }
    }
    Some(set)
}

/// The counted text of a set, from the counted texts of its elements, ascending.
fn counted_set(mut elements: impl ExactSizeIterator<Item = String>) -> String {
    if elements.len() <= 1 {
        return elements.next().unwrap_or_default();
    }
    let mut set = String::new();
    for (i, element) in elements.enumerate() {
        set.push(if i == 0 { '[' } else { ',' });
        write_json_string(&element, &mut set);
    }
    set.push(']');
    set
}

/// The elements of what [`counted_json`] made of a set; `None` for other values.
pub fn counted_elements(counted: &str) -> Option<Vec<String>> {
    counted.starts_with('[').then(|| serde_json::from_str(counted).ok()).flatten()
}

/// True if what [`counted_json`] made of a value is `wanted`, or is a set that has it.
pub fn counts_or_has(counted: &str, wanted: &str) -> bool {
    counted == wanted || counted_elements(counted).is_some_and(|set| set.iter().any(|element| element == wanted))
}

/// The text of a value that [`Value::write_json`] wrote, as CSV writes it; empty for null.
pub fn plain_json(json: &str) -> Cow<'_, str> {
    match json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(inner) if !inner.contains('\\') => Cow::Borrowed(inner),
        Some(_) => serde_json::from_str::<String>(json).map_or(Cow::Borrowed(json), Cow::Owned),
        None if json == "null" => Cow::Borrowed(""),
        None => Cow::Borrowed(json),
    }
}

/// True if folding changes nothing, as is usual. Looks at all bytes, so that the compiler can take many at once.
#[inline]
fn is_folded(text: &str) -> bool {
    let other = |byte: u8| !(b' '..=b'~').contains(&byte) | byte.is_ascii_uppercase();
    let plain = !text.bytes().fold(false, |any, byte| any | other(byte));
    plain && (!text.contains(' ') || !text.starts_with(' ') && !text.ends_with(' ') && !text.contains("  "))
}

/// The form by which a text is counted, but for numbers.
fn fold(text: &str) -> String {
    if text.is_ascii() {
        let lower = text.to_ascii_lowercase();
        if is_folded(&lower) {
            return lower;
        }
    }
    let shown = |c: &char| !is_ignorable(*c) && (!c.is_control() || c.is_whitespace());
    // Lower case alone keeps `ß` and `ss` apart, upper case alone `ẞ` and `SS`.
    let case = |c: char| c.to_lowercase().flat_map(char::to_uppercase).flat_map(char::to_lowercase);
    let folded: String = text.chars().filter(shown).nfkc().flat_map(case).filter(shown).nfkc().collect();
    folded.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The number that a folded text is, in canonical decimal text; `None` if it is none.
fn by_value(text: &str) -> Option<Cow<'_, str>> {
    if !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit()) {
        return Some(Cow::Borrowed(text));
    }
    if !text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'+' | b'e')) {
        return None;
    }
    canonical_number(text).or_else(|| {
        // `.5` and `5.` are numbers too.
        let (whole, rest) = text.split_once('.')?;
        let (fraction, exponent) = rest.split_at(rest.find('e').unwrap_or(rest.len()));
        let zero = if whole.ends_with(|c: char| c.is_ascii_digit()) { "" } else { "0" };
        let number = format!("{whole}{zero}.{fraction}0{exponent}");
        (zero.is_empty() || !fraction.is_empty()).then(|| canonical_number(&number).map(|n| n.into_owned().into()))?
    })
}

/// Unicode's property Default_Ignorable_Code_Point: characters that show nothing.
#[rustfmt::skip]
fn is_ignorable(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    )
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
    use proptest::prelude::*;

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
    fn invisible_characters_and_outer_blanks_do_not_make_another_value() {
        assert_eq!(canonical_text("\u{feff}Cafe\u{301}\u{200b}"), "Café");
        assert_eq!(canonical_text("Café"), "Café");
        assert_eq!(canonical_text("\t Paris\u{a0}\u{ad} "), "Paris");
        assert_eq!(canonical_text(" Paris "), "Paris");
        assert_eq!(canonical_text("PARIS"), "PARIS");
    }

    #[test]
    fn case_is_folded_in_every_script() {
        // Ideographs, syllables and private characters have no case.
        let ranges = ['\0'..='\u{33ff}', '\u{a000}'..='\u{abff}', '\u{f900}'..='\u{1ffff}'];
        for c in ranges.into_iter().flatten().filter(|c| !is_ignorable(*c)) {
            let folded = fold(&c.to_string());
            assert_eq!(fold(&folded), folded, "{c:?} once more");
            // Case folding sees combining characters one by one, and normalization puts them in order.
            for other in [c.to_uppercase().to_string(), c.to_lowercase().to_string()] {
                assert_eq!(fold(&other), folded, "{c:?} {other:?}");
            }
        }
    }

    #[test]
    fn an_array_is_a_set() {
        let written = |array: &str| {
            let mut out = String::new();
            write_json_set(array, &mut out).map(|()| out)
        };
        let one = written(r#"["E11","b20 ","E11",null,""," B20"]"#).unwrap();
        assert_eq!(one, r#"[" B20","E11"]"#);
        assert_eq!(counted_json(&one), counted_json(r#"["e11","B20"]"#));
        assert_ne!(counted_json(r#"["a","b"]"#), counted_json(r#"["a"]"#));
        assert_eq!(written("[3,1.0,1]").unwrap(), "[1,3]");
        assert_eq!((written("[]"), written("[null]")), (Some("null".into()), Some("null".into())));
        assert_eq!((written("[[1]]"), written(r#"[{"a":1}]"#)), (None, None));
        assert_eq!(counted_json("[]"), "");
        assert_eq!(counted_json(r#"["Flu", null]"#), counted_json(r#""flu""#));
        assert_eq!(counted_json("[7.0]"), counted_json(r#""7""#));
    }

    #[test]
    fn a_set_has_its_elements() {
        let set = counted_json(r#"["HIV","gout",7]"#).into_owned();
        assert!(["hiv", "gout", "7", &set].iter().all(|wanted| counts_or_has(&set, wanted)));
        assert!(!counts_or_has(&set, "hi") && !counts_or_has(&set, "") && !counts_or_has("[1", "1"));
        assert!(counts_or_has("hiv", "hiv") && !counts_or_has("hiv", "hi"));
    }

    #[test]
    fn what_json_carries_is_counted_like_the_value() {
        let values = ["7", "a\"b", " X\ny ", "null", "TRUE", "07", "", "\u{200b}"].map(|text| Value::Text(text.into()));
        let others = [Value::Null, Value::Missing, Value::Bool(true), Value::Number("7".into())];
        for value in values.into_iter().chain(others) {
            let mut json = String::new();
            value.write_json(&mut json);
            assert_eq!(counted_json(&json), value.counted());
        }
    }

    proptest! {
        /// The slow twin of the fast ways: every text through Unicode.
        #[test]
        fn short_ways_fold_alike(text in "[a-cA-C0-2 .+e-]{0,6}|[ -~\t]{0,12}") {
            let slow = fold(&format!("{text}\u{200b}"));
            prop_assert_eq!(fold(&text), slow.as_str());
            if is_folded(&text) {
                prop_assert_eq!(&text, &slow);
            }
            let counted = counted_text(&text).into_owned();
            let again = counted_text(&counted).into_owned();
            prop_assert_eq!(&again, &counted);
            // Floats know the same numbers, unless they are too large or too small for them.
            match slow.parse::<f64>().ok().filter(|_| !slow.contains(['i', 'n'])) {
                Some(number) if slow.contains('e') && (number == 0.0 || number.is_infinite()) => {}
                Some(number) => prop_assert_eq!(Some(counted), canonical_number(&number.to_string()).map(Cow::into_owned)),
                None => prop_assert_eq!(counted, slow),
            }
        }

        #[test]
        fn what_nobody_sees_counts_for_nothing(
            parts in prop::collection::vec(("\\PC{0,3}", "\\p{Default_Ignorable_Code_Point}{0,3}"), 0..4),
        ) {
            let with: String = parts.iter().map(|(seen, unseen)| format!("{seen}{unseen}")).collect();
            let without: String = with.chars().filter(|c| !parts.iter().any(|(_, unseen)| unseen.contains(*c))).collect();
            prop_assert_eq!(counted_text(&with), counted_text(&without));
            prop_assert_eq!(canonical_text(&with), canonical_text(&without));
        }

        #[test]
        fn only_those_are_ignored(c in "\\P{Default_Ignorable_Code_Point}") {
            prop_assert!(!c.chars().any(is_ignorable));
        }
    }
}
