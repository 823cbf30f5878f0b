//! Codes of a fixed length, masked from the right: 01245, 0124*, 012**, ... as for postal codes.

use std::borrow::Cow;

use super::{Errors, HierarchyError};
use crate::model::lattice::Level;

/// Longer codes make lattices nobody can search; every level is one more to try.
const MAX_LENGTH: u32 = 64;

/// A code of a fixed number of characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixSpec {
    /// How many characters a value has, and so the height. Values of another length are outside the hierarchy.
    pub length: u32,
    /// How many different characters a position can hold: 10 for digits, 36 for digits and letters. Only the loss uses it.
    pub alphabet: u32,
    /// What a masked character is replaced by. A value that holds it is outside the hierarchy.
    pub mask: char,
}

impl PrefixSpec {
    /// Digits, masked by `*`.
    pub fn new(length: u32) -> Self {
        Self { length, alphabet: 10, mask: '*' }
    }
}

#[derive(Hash)]
pub(super) struct Prefix {
    length: Level,
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
            alphabet: spec.alphabet,
            mask: spec.mask,
            top: std::iter::repeat_n(spec.mask, spec.length as usize).collect(),
        })
    }

    pub(super) fn height(&self) -> Level {
        self.length
    }

    pub(super) fn contains(&self, text: &str) -> bool {
        let length = usize::from(self.length);
        text.len() >= length && text.chars().count() == length && !text.contains(self.mask)
    }

    pub(super) fn label<'a>(&self, leaf: &'a str, level: Level) -> Option<Cow<'a, str>> {
        let kept = usize::from(self.length.checked_sub(level)?);
        if !self.contains(leaf) {
            return None;
        }
        if level == 0 {
            return Some(Cow::Borrowed(leaf));
        }
        let masks = std::iter::repeat_n(self.mask, usize::from(level));
        Some(Cow::Owned(leaf.chars().take(kept).chain(masks).collect()))
    }

    /// alphabet^level, the codes that agree in all but the last `level` characters.
    pub(super) fn leaves(&self, level: Level) -> f64 {
        f64::from(self.alphabet).powi(i32::from(level))
    }

    /// (alphabet^level - 1) / (alphabet^length - 1), whatever the size of the powers.
    pub(super) fn loss(&self, level: Level) -> f64 {
        let power = |exponent: i32| f64::from(self.alphabet).powi(exponent);
        let (below, all) = (power(i32::from(level)), power(i32::from(self.length)));
        if all.is_finite() { (below - 1.0) / (all - 1.0) } else { power(i32::from(level) - i32::from(self.length)) }
    }
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
        assert!((0..64).all(|l| huge.loss(l) < 1.0));
    }

    #[test]
    fn bounds() {
        assert!(Hierarchy::prefix(PrefixSpec::new(0)).is_err());
        assert!(Hierarchy::prefix(PrefixSpec::new(65)).is_err());
        assert_eq!(Hierarchy::prefix(PrefixSpec { length: 0, alphabet: 1, mask: '\n' }).unwrap_err().len(), 3);
    }
}
