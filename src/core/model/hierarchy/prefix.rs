//! Codes of a fixed length, masked from the right: 01245, 0124*, 012**, ... as for postal codes.
//!
//! With a least length, codes of several lengths and spellings are read, as the postal codes of several countries are: blanks
//! and hyphens are left out, letters are capital. A code that is shorter than the longest counts as if masked characters
//! followed it: `1010` of at most five characters is `1010*` at level 1 and `101**` at level 2.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Errors, HierarchyError};
use crate::model::lattice::Level;

/// Longer codes make lattices nobody can search; every level is one more to try.
const MAX_LENGTH: u32 = 64;

/// Codes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrefixSpec {
    /// Characters per value; values of another length are unknown.
    #[schemars(range(min = 1))]
    pub length: u32,
    /// The fewest characters of a value, where codes have several lengths, as the postal codes of several countries have. Then
    /// blanks and hyphens are left out and letters are capital: `sw1a 1aa` is `SW1A1AA`. Default: `length`, as written.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub min_length: Option<u32>,
    /// How many different characters a position can hold; only the loss uses it. Default: 10, the digits.
    #[serde(default = "digits")]
    #[schemars(range(min = 2))]
    pub alphabet: u32,
    /// The character that stands for a masked one. Default: `*`.
    #[serde(default = "star")]
    pub mask: char,
}

fn digits() -> u32 {
    10
}

fn star() -> char {
    '*'
}

impl PrefixSpec {
    /// Digits, masked by `*`.
    pub fn new(length: u32) -> Self {
        Self { length, min_length: None, alphabet: digits(), mask: star() }
    }
}

#[derive(Hash)]
pub(super) struct Prefix {
    length: Level,
    min_length: Option<Level>,
    alphabet: u32,
    mask: char,
    pub(super) top: String,
}

impl Prefix {
    pub(super) fn new(spec: &PrefixSpec) -> Result<Self, Vec<HierarchyError>> {
        let mut errors = Errors::default();
        if spec.length == 0 || spec.length > MAX_LENGTH {
            errors.push(None, format!("length {} of a prefix hierarchy; write 1 to {MAX_LENGTH}", spec.length));
        }
        if let Some(min) = spec.min_length.filter(|&min| min == 0 || min > spec.length) {
            errors.push(None, format!("min_length {min} of a prefix hierarchy; write 1 to {}", spec.length));
        }
        if spec.min_length.is_some() && (spec.mask.is_whitespace() || spec.mask == '-') {
            errors.push(None, "the mask is left out of codes of several lengths; write another one, such as `*`");
        }
        if spec.alphabet < 2 {
            errors.push(
                None,
                format!("alphabet {} of a prefix hierarchy; write at least 2, 10 for digits", spec.alphabet),
            );
        }
        if spec.mask.is_control() {
            errors.push(None, "the mask is a control character; write a visible one, such as `*`");
        }
        errors.into_result()?;
        Ok(Self {
            length: spec.length as Level,
            min_length: spec.min_length.map(|min| min as Level),
            alphabet: spec.alphabet,
            mask: spec.mask,
            top: std::iter::repeat_n(spec.mask, spec.length as usize).collect(),
        })
    }

    pub(super) fn height(&self) -> Level {
        self.length
    }

    /// True if there are codes of several lengths.
    pub(super) fn has_lengths(&self) -> bool {
        self.min_length.is_some()
    }

    pub(super) fn canonical<'a>(&self, text: &'a str) -> Option<Cow<'a, str>> {
        if self.contains(text) {
            return Some(Cow::Borrowed(text));
        }
        self.min_length?;
        let code: String = text.chars().filter(|&c| !is_left_out(c)).flat_map(char::to_uppercase).collect();
        self.contains(&code).then_some(Cow::Owned(code))
    }

    /// True for a code in the spelling that is published.
    fn contains(&self, text: &str) -> bool {
        let length = usize::from(self.length);
        if text.contains(self.mask) {
            return false;
        }
        match self.min_length {
            None => text.len() >= length && text.chars().count() == length,
            Some(min) => {
                let folded = text.chars().all(|c| !is_left_out(c) && c.to_uppercase().eq([c]));
                folded && (usize::from(min)..=length).contains(&text.chars().count())
            }
        }
    }

    pub(super) fn label<'a>(&self, leaf: &'a str, level: Level) -> Option<Cow<'a, str>> {
        let kept = usize::from(self.length.checked_sub(level)?);
        if !self.contains(leaf) {
            return None;
        }
        if level == 0 {
            return Some(Cow::Borrowed(leaf));
        }
        let masks = std::iter::repeat(self.mask);
        Some(Cow::Owned(leaf.chars().take(kept).chain(masks).take(usize::from(self.length)).collect()))
    }

    /// Digits that count up, without the mask.
    pub(super) fn example(&self) -> String {
        ('1'..='9').filter(|&digit| digit != self.mask).cycle().take(usize::from(self.length)).collect()
    }

    /// How many codes there are.
    pub(super) fn size(&self) -> f64 {
        self.codes(0)
    }

    /// The codes that are the leaf's at a level: those with its first characters.
    pub(super) fn leaves(&self, leaf: &str, level: Level) -> f64 {
        let kept = self.length.saturating_sub(level);
        // A code that ends before anything of it is masked.
        if self.has_lengths() && leaf.chars().count() < usize::from(kept) { 1.0 } else { self.codes(kept) }
    }

    /// (codes at the level - 1) / (all codes - 1), whatever the size of the powers.
    pub(super) fn loss(&self, leaf: &str, level: Level) -> f64 {
        let (below, all) = (self.leaves(leaf, level), self.size());
        if all.is_finite() {
            return (below - 1.0) / (all - 1.0);
        }
        f64::from(self.alphabet).powi(i32::from(level) - i32::from(self.length))
    }

    /// The sizes of the classes of a level below the top, each with how many there are of it; for codes of several lengths.
    pub(super) fn blocks(&self, level: Level) -> Vec<(f64, f64)> {
        let kept = self.length.saturating_sub(level);
        let shorter = self.min_length.unwrap_or(self.length)..kept;
        let mut blocks = vec![(self.codes(kept), self.power(kept))];
        blocks.extend(shorter.map(|length| (1.0, self.power(length))));
        blocks
    }

    fn power(&self, exponent: Level) -> f64 {
        f64::from(self.alphabet).powi(i32::from(exponent))
    }

    /// How many codes begin with given characters, `kept` of them.
    fn codes(&self, kept: Level) -> f64 {
        let fewest = self.min_length.unwrap_or(self.length).max(kept);
        (fewest..=self.length).map(|length| self.power(length - kept)).sum()
    }
}

/// Written in a code to be read more easily.
fn is_left_out(c: char) -> bool {
    c.is_whitespace() || matches!(c, '-' | '\u{2010}'..='\u{2015}')
}

#[cfg(test)]
mod tests {
    use super::super::Hierarchy;
    use super::*;

    #[test]
    fn masks_from_the_right() {
        let h = Hierarchy::prefix(PrefixSpec::new(5)).unwrap();
        let labels: Vec<_> = (0..=h.height()).map(|l| h.label("01245", l).unwrap().into_owned()).collect();
        assert_eq!(labels, ["01245", "0124*", "012**", "01***", "0****", "*****"]);
        assert_eq!(h.top_label(), "*****");
        assert_eq!(h.label("01245", 6), None);
        for text in ["0124", "012456", "", "0124*", "*****"] {
            assert_eq!(h.canonical(text), None, "{text}");
        }
    }

    #[test]
    fn counts_characters_not_bytes() {
        let h = Hierarchy::prefix(PrefixSpec { alphabet: 36, mask: '·', ..PrefixSpec::new(3) }).unwrap();
        assert_eq!(h.label("ÄÖ1", 2).as_deref(), Some("Ä··"));
        assert_eq!(h.canonical("ÄÖ"), None);
    }

    #[test]
    fn losses_are_shares_of_the_alphabet() {
        let h = Hierarchy::prefix(PrefixSpec::new(5)).unwrap();
        assert_eq!(h.open_loss("01245", 2), 99.0 / 99_999.0);
        assert_eq!(h.open_loss("01245", 5), 1.0);
        let huge = Prefix::new(&PrefixSpec { alphabet: u32::MAX, ..PrefixSpec::new(64) }).unwrap();
        assert!((0..64).all(|l| huge.loss("", l) < 1.0));
    }

    #[test]
    fn codes_of_several_countries() {
        let h = Hierarchy::prefix(PrefixSpec { min_length: Some(4), alphabet: 36, ..PrefixSpec::new(7) }).unwrap();
        let labels = |text: &str| -> Vec<_> {
            let leaf = h.canonical(text).unwrap().into_owned();
            (0..=h.height()).map(|level| h.label(&leaf, level).unwrap().into_owned()).collect()
        };
        let london = ["SW1A1AA", "SW1A1A*", "SW1A1**", "SW1A***", "SW1****", "SW*****", "S******", "*******"];
        assert_eq!(labels("sw1a 1aa"), london);
        assert_eq!(labels("A-1010")[..4], ["A1010", "A1010**", "A1010**", "A101***"]);
        assert_eq!(labels("1010")[..4], ["1010", "1010***", "1010***", "1010***"]);
        for text in ["101", "12345678", "", "- - -", "1010*"] {
            assert_eq!(h.canonical(text), None, "{text}");
        }
        let all = Prefix::new(&PrefixSpec { min_length: Some(1), ..PrefixSpec::new(2) }).unwrap();
        assert_eq!((all.size(), all.leaves("1", 1), all.leaves("1", 0), all.leaves("12", 1)), (110.0, 11.0, 1.0, 11.0));
        assert!(Hierarchy::prefix(PrefixSpec { min_length: Some(6), ..PrefixSpec::new(5) }).is_err());
    }

    proptest::proptest! {
        #[test]
        fn every_level_refines_the_next(one in "[0-9A]{2,4}", other in "[0-9A]{2,4}", shared in 0usize..4) {
            let h = Hierarchy::prefix(PrefixSpec { min_length: Some(2), ..PrefixSpec::new(4) }).unwrap();
            let other: String = one.chars().take(shared).chain(other.chars().skip(shared)).collect();
            let leaves = [one, other].map(|text| h.canonical(&text).map(|leaf| leaf.into_owned()));
            if let [Some(one), Some(other)] = leaves {
                let same = |level| h.label(&one, level) == h.label(&other, level);
                proptest::prop_assert!((0..h.height()).all(|level| !same(level) || same(level + 1)));
            }
        }
    }

    #[test]
    fn bounds() {
        assert!(Hierarchy::prefix(PrefixSpec::new(0)).is_err());
        assert!(Hierarchy::prefix(PrefixSpec::new(65)).is_err());
        assert_eq!(
            Hierarchy::prefix(PrefixSpec { alphabet: 1, mask: '\n', ..PrefixSpec::new(0) }).unwrap_err().len(),
            3
        );
    }
}
