//! Class keys: one bit field per quasi-identifier, packed into the narrowest of four key types that holds them all.
//!
//! Invariant: a field never straddles two words, and holds a code of any level (coarser levels have fewer codes).

use std::fmt::Debug;
use std::hash::Hash;

use smallvec::SmallVec;

use crate::model::domain::Code;

/// The widest key, in bits: 40 attributes of 25 bits each. Wider lattices are refused when the window is set up.
pub const MAX_BITS: u32 = 1024;

/// Where a field lives in a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyField {
    word: usize,
    shift: u32,
    mask: u64,
}

impl KeyField {
    /// Bits of the first word that need not be a code.
    pub(crate) fn digit(shift: u32, bits: u32) -> Self {
        Self { word: 0, shift, mask: (1 << bits) - 1 }
    }

    pub(crate) fn shift(self) -> u32 {
        self.shift
    }

    /// The bit above it, where keys are a single word.
    pub(crate) fn end(self) -> u32 {
        self.word as u32 * u64::BITS + self.shift + self.bits()
    }

    pub(crate) fn bits(self) -> u32 {
        self.mask.trailing_ones()
    }

    /// Its largest code: all of its bits.
    pub(crate) fn ones(self) -> Code {
        self.mask as Code
    }

    /// Both fields and what is between them, where they share a word and `higher` is the higher one.
    pub(crate) fn joined(self, higher: Self) -> Option<Self> {
        let above = higher.shift.checked_sub(self.shift).filter(|_| self.word == higher.word)?;
        let mask = u64::MAX >> (u64::BITS - (above + higher.bits()).min(u64::BITS));
        Some(Self { mask, ..self })
    }
}

/// A packed class key.
pub trait ClassKey: Copy + Eq + Ord + Hash + Debug + Send + Sync + 'static {
    /// All fields zero.
    const ZERO: Self;
    /// All bits set.
    const ONES: Self;
    /// The bits of both.
    fn and(self, other: Self) -> Self;
    /// The bits of either.
    fn or(self, other: Self) -> Self;
    /// The first word.
    fn word(&self) -> u64;
    /// A code in its field, all others zero.
    fn of(field: KeyField, code: Code) -> Self;
    /// Reads a field.
    fn get(&self, field: KeyField) -> Code;
    /// Overwrites a field.
    fn set(&mut self, field: KeyField, code: Code);
    /// A well mixed hash for open addressing.
    fn mix(&self) -> u64;
}

/// Keys of more than one word.
pub type Wide<const N: usize> = [u64; N];

/// The odd multiplier of Fibonacci hashing; the high bits of the product are the good ones.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

fn scramble(word: u64) -> u64 {
    let product = u128::from(word) * u128::from(MULTIPLIER);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Keys of a single word.
macro_rules! word_keys {
    ($($word:ty),*) => {$(
        impl ClassKey for $word {
            const ZERO: Self = 0;
            const ONES: Self = Self::MAX;
            #[inline]
            fn and(self, other: Self) -> Self {
                self & other
            }
            #[inline]
            fn or(self, other: Self) -> Self {
                self | other
            }
            #[inline]
            fn word(&self) -> u64 {
                u64::from(*self)
            }
            #[inline]
            fn of(field: KeyField, code: Code) -> Self {
                Self::from(code) << field.shift
            }
            #[inline]
            fn get(&self, field: KeyField) -> Code {
                ((self >> field.shift) & field.mask as Self) as Code
            }
            #[inline]
            fn set(&mut self, field: KeyField, code: Code) {
                *self = (*self & !((field.mask as Self) << field.shift)) | (Self::from(code) << field.shift);
            }
            #[inline]
            fn mix(&self) -> u64 {
                scramble(u64::from(*self))
            }
        }
    )*};
}

word_keys!(u32, u64);

impl<const N: usize> ClassKey for Wide<N> {
    const ZERO: Self = [0; N];
    const ONES: Self = [u64::MAX; N];
    #[inline]
    fn and(self, other: Self) -> Self {
        std::array::from_fn(|word| self[word] & other[word])
    }
    #[inline]
    fn or(self, other: Self) -> Self {
        std::array::from_fn(|word| self[word] | other[word])
    }
    #[inline]
    fn word(&self) -> u64 {
        self[0]
    }
    #[inline]
    fn of(field: KeyField, code: Code) -> Self {
        let mut key = Self::ZERO;
        key.set(field, code);
        key
    }
    #[inline]
    fn get(&self, field: KeyField) -> Code {
        ((self[field.word] >> field.shift) & field.mask) as Code
    }
    #[inline]
    fn set(&mut self, field: KeyField, code: Code) {
        self[field.word].set(KeyField { word: 0, ..field }, code);
    }
    #[inline]
    fn mix(&self) -> u64 {
        self.iter().fold(0, |hash, word| scramble(hash ^ word))
    }
}

/// The key types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// `u32`.
    W32,
    /// `u64`.
    W64,
    /// `Wide<4>`.
    W256,
    /// `Wide<16>`.
    W1024,
}

/// The attributes by where their fields are, from the lowest bits up.
pub(crate) fn upwards(fields: &[KeyField]) -> SmallVec<[usize; 16]> {
    let mut order: SmallVec<[usize; 16]> = (0..fields.len()).collect();
    order.sort_unstable_by_key(|&attribute| fields[attribute].end());
    order
}

/// Where each attribute's code lives in the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    fields: Vec<KeyField>,
    words: usize,
    /// Bits of the last word.
    used: u32,
}

impl Layout {
    /// Room for `sizes[i]` codes of attribute i; `None` if that needs more than [`MAX_BITS`]. In a single word the attributes of
    /// most codes are lowest: those are generalized first and furthest, and all above them stays in its order.
    pub fn new(sizes: &[usize]) -> Option<Self> {
        let bits = |size: usize| (usize::BITS - size.saturating_sub(1).leading_zeros()).clamp(1, 32);
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        if sizes.iter().map(|&size| bits(size)).sum::<u32>() <= u64::BITS {
            order.sort_by_key(|&attribute| std::cmp::Reverse(sizes[attribute]));
        }
        let (mut word, mut used) = (0, 0);
        let mut fields = vec![KeyField::default(); sizes.len()];
        for attribute in order {
            let bits = bits(sizes[attribute]);
            if used + bits > u64::BITS {
                word += 1;
                used = 0;
            }
            fields[attribute] = KeyField { word, shift: used, mask: (1 << bits) - 1 };
            used += bits;
        }
        (word < MAX_BITS as usize / 64).then_some(Self { fields, words: word + 1, used })
    }

    /// The narrowest key type that holds this layout.
    pub fn width(&self) -> Width {
        match self.words {
            1 if self.used <= u32::BITS => Width::W32,
            1 => Width::W64,
            2..=4 => Width::W256,
            _ => Width::W1024,
        }
    }

    /// How many bits keys have, where they are a single word.
    pub(crate) fn bits(&self) -> Option<u32> {
        (self.words == 1).then_some(self.used)
    }

    /// The field of attribute i.
    pub fn field(&self, attribute: usize) -> KeyField {
        self.fields[attribute]
    }

    /// All fields in policy order.
    pub fn fields(&self) -> &[KeyField] {
        &self.fields
    }

    /// True if every code fits its field.
    #[inline]
    pub fn fits(&self, codes: &[Code]) -> bool {
        codes.iter().zip(&self.fields).all(|(&code, field)| u64::from(code) <= field.mask)
    }

    /// Packs one code per attribute.
    #[inline]
    pub fn pack<K: ClassKey>(&self, codes: &[Code]) -> K {
        codes.iter().zip(&self.fields).fold(K::ZERO, |key, (&code, &field)| key.or(K::of(field, code)))
    }

    /// Packs the codes of several rows, one row after the other, behind what is in `into`.
    pub fn pack_rows<K: ClassKey>(&self, codes: &[Code], into: &mut Vec<K>) {
        /// A loop for each number of attributes, which is three times as fast as one that asks for it row by row.
        macro_rules! by_width {
            ($($width:literal)*) => {
                match self.fields.len() {
                    0 => {}
                    $($width => self.pack_rows_of::<K, $width>(codes, into),)*
                    width => into.extend(codes.chunks_exact(width).map(|codes| self.pack::<K>(codes))),
                }
            };
        }
        by_width!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
    }

    fn pack_rows_of<K: ClassKey, const N: usize>(&self, codes: &[Code], into: &mut Vec<K>) {
        let mut fields = [KeyField::default(); N];
        fields.copy_from_slice(&self.fields);
        let (rows, _) = codes.as_chunks::<N>();
        into.extend(rows.iter().map(|row| (0..N).fold(K::ZERO, |key, at| key.or(K::of(fields[at], row[at])))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_widths_hold_what_is_put_in(sizes in prop::collection::vec(1usize..5000, 1..20), seed in any::<u64>()) {
            let layout = Layout::new(&sizes).unwrap();
            let codes: Vec<Code> = sizes.iter().enumerate()
                .map(|(i, &s)| (seed.rotate_left(i as u32 * 7) % s as u64) as Code).collect();
            prop_assert!(layout.fits(&codes));
            fn unpack<K: ClassKey>(layout: &Layout, codes: &[Code]) -> Vec<Code> {
                let key: K = layout.pack(codes);
                layout.fields().iter().map(|&f| key.get(f)).collect()
            }
            if layout.width() == Width::W32 { prop_assert_eq!(unpack::<u32>(&layout, &codes), codes.clone()); }
            if layout.words <= 1 { prop_assert_eq!(unpack::<u64>(&layout, &codes), codes.clone()); }
            if layout.words <= 4 { prop_assert_eq!(unpack::<Wide<4>>(&layout, &codes), codes.clone()); }
            prop_assert_eq!(unpack::<Wide<16>>(&layout, &codes), codes);
        }
    }

    proptest! {
        /// However many attributes there are, rows are packed together as they are one by one.
        #[test]
        fn rows_are_packed_as_one_is(width in 1usize..20, codes in prop::collection::vec(0u32..4, 0..200)) {
            let layout = Layout::new(&vec![4; width]).unwrap();
            let rows = codes.chunks_exact(width);
            fn check<K: ClassKey>(layout: &Layout, codes: &[Code], width: usize) {
                let (mut together, one_by_one) = (vec![K::ONES], codes.chunks_exact(width).map(|row| layout.pack(row)));
                let one_by_one: Vec<K> = [K::ONES].into_iter().chain(one_by_one).collect();
                layout.pack_rows(codes, &mut together);
                assert_eq!(together, one_by_one);
            }
            let codes = &codes[..rows.len() * width];
            if width <= 16 { check::<u32>(&layout, codes, width); }
            check::<u64>(&layout, codes, width);
            check::<Wide<4>>(&layout, codes, width);
        }
    }

    #[test]
    fn forty_wide_attributes_fit_and_far_too_many_do_not() {
        assert_eq!(Layout::new(&[1 << 20; 40]).unwrap().width(), Width::W1024);
        assert!(Layout::new(&[1 << 20; 60]).is_none());
        assert_eq!(Layout::new(&[100, 2, 5, 7]).unwrap().width(), Width::W32);
        assert_eq!(Layout::new(&[1 << 16, 1 << 16]).unwrap().width(), Width::W32);
        assert_eq!(Layout::new(&[1 << 16, (1 << 16) + 1]).unwrap().width(), Width::W64);
    }
}
