//! Codes of texts that were read lately: one comparison of a few words instead of hashing, probing and comparing labels.
//!
//! A text has one code for as long as its dictionary lives, so nothing here ever goes stale. Each text has one place; what shares it
//! is looked up the usual way.

use crate::model::domain::Code;

/// How many places there are. More: more memory per attribute, and fewer hits in the processor's cache. Fewer: attributes of some
/// hundred values share places.
const PLACES: usize = 512;

/// The longest text that is kept: four words.
const MAX_BYTES: usize = 32;

/// A text of at most [`MAX_BYTES`]. With its length the words say every byte of it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Text {
    words: [u64; 4],
    len: u8,
}

impl Text {
    /// `None` if it is too long.
    #[inline]
    fn new(text: &[u8]) -> Option<Self> {
        let word =
            |at: usize| text.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let len = text.len();
        let words = match len {
            0..8 => [text.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)), 0, 0, 0],
            8..=16 => [word(0), word(len - 8), 0, 0],
            17..=MAX_BYTES => [word(0), word(len - 8), word(8), word(len - 16)],
            _ => return None,
        };
        Some(Self { words, len: len as u8 })
    }

    #[inline]
    fn place(&self) -> usize {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mixed = (self.words[0] ^ u64::from(self.len)).wrapping_mul(ODD).rotate_left(26) ^ self.words[1];
        (mixed.wrapping_mul(ODD) >> 32) as usize % PLACES
    }
}

/// The texts read lately of one attribute.
pub(super) struct Recent {
    places: Vec<Option<(Text, Code)>>,
}

impl Recent {
    pub(super) fn new() -> Self {
        Self { places: vec![None; PLACES] }
    }

    /// The code of `text`; if it is not at hand, what `look_up` says.
    #[inline]
    pub(super) fn code(&mut self, text: &str, look_up: impl FnOnce() -> Option<Code>) -> Option<Code> {
        let Some(key) = Text::new(text.as_bytes()) else { return look_up() };
        let place = &mut self.places[key.place()];
        if let Some((known, code)) = place
            && *known == key
        {
            return Some(*code);
        }
        let code = look_up()?;
        *place = Some((key, code));
        Some(code)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn words_tell_texts_apart(a in "[ab]{0,40}", b in "[ab]{0,40}", flip in 0usize..40) {
            let same = |a: &str, b: &str| Text::new(a.as_bytes()) == Text::new(b.as_bytes());
            let fits = |text: &str| text.len() <= MAX_BYTES;
            prop_assert_eq!(Text::new(a.as_bytes()).is_some(), fits(&a));
            if fits(&a) && fits(&b) {
                prop_assert_eq!(same(&a, &b), a == b);
            }
            if fits(&a) && flip < a.len() {
                let mut other = a.clone();
                other.replace_range(flip..=flip, "c");
                prop_assert!(!same(&a, &other));
            }
        }

        /// The slow twin looks everything up.
        #[test]
        fn codes_are_those_looked_up(texts in prop::collection::vec("[a-cé]{0,3}|[a-b]{7,34}", 1..200)) {
            let mut recent = Recent::new();
            // A number that follows from the text; some texts have none.
            let code = |text: &str| (text.len() != 2).then(|| text.bytes().fold(7u32, |n, b| n.wrapping_mul(31) + u32::from(b)));
            for text in texts.iter().chain(&texts) {
                prop_assert_eq!(recent.code(text, || code(text)), code(text));
            }
        }
    }
}
