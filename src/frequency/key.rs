//! Class keys: one bit field per quasi-identifier, packed into the narrowest integer that holds them all.
//!
//! Invariant: a field never straddles two words, and holds a code of any level (coarser levels have fewer codes).

use std::fmt::Debug;
use std::hash::Hash;

use crate::model::domain::Code;

/// The widest key, in bits: 40 attributes of 25 bits each. Wider lattices are refused when the window is set up.
pub const MAX_BITS: u32 = 1024;

/// Where a field lives in a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    word: usize,
    shift: u32,
    mask: u64,
}

/// A packed class key.
pub trait Key: Copy + Eq + Ord + Hash + Debug + Send + Sync + 'static {
    /// All fields zero.
    const ZERO: Self;
    /// All bits set.
    const ONES: Self;
    /// The bits of both.
    fn and(self, other: Self) -> Self;
    /// The bits of either.
    fn or(self, other: Self) -> Self;
    /// A code in its field, all others zero.
    fn of(field: Field, code: Code) -> Self;
    /// Reads a field.
    fn get(&self, field: Field) -> Code;
    /// Overwrites a field.
    fn set(&mut self, field: Field, code: Code);
    /// A well mixed hash for open addressing.
    fn mix(&self) -> u64;
    /// The bits of some segments, side by side.
    fn gather<const N: usize>(&self, segments: &[Segment; N]) -> u32;
}

/// Bits of a key that lie together and stay so in a dense index.
#[derive(Debug, Clone, Copy, Default)]
pub struct Segment {
    word: usize,
    mask: u64,
    /// How far to the right they move, round the end of the word if need be. Never round it in the first word.
    shift: u32,
}

/// The most segments of a dense index. More make a pass over keys slower than looking them up in a table.
pub const MAX_SEGMENTS: usize = 12;

/// Where the bits of a node's codes lie in its keys, so that a key without the gaps between them is an index.
#[derive(Debug, Clone, Default)]
pub struct Dense {
    segments: [Segment; MAX_SEGMENTS],
    len: usize,
    bits: u32,
}

impl Dense {
    /// Indices are below two to the power of this.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// The index of every key.
    pub fn indices<K: Key>(&self, keys: &[K], into: &mut Vec<u32>) {
        match self.len {
            0..=3 => self.gather::<K, 3>(keys, into),
            4..=6 => self.gather::<K, 6>(keys, into),
            7..=9 => self.gather::<K, 9>(keys, into),
            _ => self.gather::<K, MAX_SEGMENTS>(keys, into),
        }
    }

    /// Segments beyond the last have no bits, so that one loop of fixed length serves several lengths.
    fn gather<K: Key, const N: usize>(&self, keys: &[K], into: &mut Vec<u32>) {
        let mut segments = [Segment::default(); N];
        segments.iter_mut().zip(&self.segments).for_each(|(to, from)| *to = *from);
        into.clear();
        into.extend(keys.iter().map(|key| key.gather(&segments)));
    }
}

/// Keys of more than 128 bits.
pub type Wide<const N: usize> = [u64; N];

/// The odd multiplier of Fibonacci hashing; the high bits of the product are the good ones.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

fn scramble(word: u64) -> u64 {
    let product = u128::from(word) * u128::from(MULTIPLIER);
    (product as u64) ^ ((product >> 64) as u64)
}

impl Key for u64 {
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
    fn of(field: Field, code: Code) -> Self {
        u64::from(code) << field.shift
    }
    #[inline]
    fn get(&self, field: Field) -> Code {
        ((self >> field.shift) & field.mask) as Code
    }
    #[inline]
    fn set(&mut self, field: Field, code: Code) {
        *self = (*self & !(field.mask << field.shift)) | (u64::from(code) << field.shift);
    }
    #[inline]
    fn mix(&self) -> u64 {
        scramble(*self)
    }
    #[inline]
    fn gather<const N: usize>(&self, segments: &[Segment; N]) -> u32 {
        segments.iter().fold(0, |index, s| index | ((self & s.mask) >> s.shift)) as u32
    }
}

impl Key for u128 {
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
    fn of(field: Field, code: Code) -> Self {
        u128::from(code) << (field.word as u32 * 64 + field.shift)
    }
    #[inline]
    fn get(&self, field: Field) -> Code {
        ((*self >> (field.word as u32 * 64 + field.shift)) as u64 & field.mask) as Code
    }
    #[inline]
    fn set(&mut self, field: Field, code: Code) {
        let shift = field.word as u32 * 64 + field.shift;
        *self = (*self & !(u128::from(field.mask) << shift)) | (u128::from(code) << shift);
    }
    #[inline]
    fn mix(&self) -> u64 {
        scramble(scramble(*self as u64) ^ (*self >> 64) as u64)
    }
    #[inline]
    fn gather<const N: usize>(&self, segments: &[Segment; N]) -> u32 {
        [*self as u64, (*self >> 64) as u64].gather(segments)
    }
}

impl<const N: usize> Key for Wide<N> {
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
    fn of(field: Field, code: Code) -> Self {
        let mut key = Self::ZERO;
        key.set(field, code);
        key
    }
    #[inline]
    fn get(&self, field: Field) -> Code {
        ((self[field.word] >> field.shift) & field.mask) as Code
    }
    #[inline]
    fn set(&mut self, field: Field, code: Code) {
        self[field.word].set(Field { word: 0, ..field }, code);
    }
    #[inline]
    fn mix(&self) -> u64 {
        self.iter().fold(0, |hash, word| scramble(hash ^ word))
    }
    #[inline]
    fn gather<const N2: usize>(&self, segments: &[Segment; N2]) -> u32 {
        segments.iter().fold(0, |index, s| index | (self[s.word] & s.mask).rotate_right(s.shift)) as u32
    }
}

/// The four key types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// `u64`.
    W64,
    /// `u128`.
    W128,
    /// `Wide<4>`.
    W256,
    /// `Wide<16>`.
    W1024,
}

/// Where each attribute's code lives in the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    fields: Vec<Field>,
    words: usize,
}

impl Layout {
    /// Room for `sizes[i]` codes of attribute i; `None` if that needs more than [`MAX_BITS`].
    pub fn new(sizes: &[usize]) -> Option<Self> {
        let (mut word, mut used) = (0, 0);
        let mut fields = Vec::with_capacity(sizes.len());
        for &size in sizes {
            let bits = (usize::BITS - size.saturating_sub(1).leading_zeros()).clamp(1, 32);
            if used + bits > u64::BITS {
                word += 1;
                used = 0;
            }
            fields.push(Field { word, shift: used, mask: (1 << bits) - 1 });
            used += bits;
        }
        (word < MAX_BITS as usize / 64).then_some(Self { fields, words: word + 1 })
    }

    /// The narrowest key type that holds this layout.
    pub fn width(&self) -> Width {
        match self.words {
            1 => Width::W64,
            2 => Width::W128,
            3 | 4 => Width::W256,
            _ => Width::W1024,
        }
    }

    /// The field of attribute i.
    pub fn field(&self, attribute: usize) -> Field {
        self.fields[attribute]
    }

    /// All fields in policy order.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The dense index of keys whose codes of attribute i are below `sizes[i]`; `None` if it would take more than `most` bits.
    pub fn dense(&self, sizes: impl Iterator<Item = usize>, most: u32) -> Option<Dense> {
        let mut dense = Dense::default();
        for (field, size) in self.fields.iter().zip(sizes) {
            let bits = usize::BITS - size.saturating_sub(1).leading_zeros();
            if bits == 0 {
                continue;
            }
            let mask = (u64::MAX >> (u64::BITS - bits)) << field.shift;
            let shift = field.shift.wrapping_sub(dense.bits) % u64::BITS;
            dense.bits += bits;
            match dense.segments[..dense.len].last_mut() {
                Some(last) if (last.word, last.shift) == (field.word, shift) => last.mask |= mask,
                _ if dense.len == MAX_SEGMENTS => return None,
                _ => {
                    dense.segments[dense.len] = Segment { word: field.word, mask, shift };
                    dense.len += 1;
                }
            }
        }
        (dense.bits <= most).then_some(dense)
    }

    /// True if every code fits its field.
    #[inline]
    pub fn fits(&self, codes: &[Code]) -> bool {
        codes.iter().zip(&self.fields).all(|(&code, field)| u64::from(code) <= field.mask)
    }

    /// Packs one code per attribute.
    #[inline]
    pub fn pack<K: Key>(&self, codes: &[Code]) -> K {
        codes.iter().zip(&self.fields).fold(K::ZERO, |key, (&code, &field)| key.or(K::of(field, code)))
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
            fn unpack<K: Key>(layout: &Layout, codes: &[Code]) -> Vec<Code> {
                let key: K = layout.pack(codes);
                layout.fields().iter().map(|&f| key.get(f)).collect()
            }
            if layout.words <= 1 { prop_assert_eq!(unpack::<u64>(&layout, &codes), codes.clone()); }
            if layout.words <= 2 { prop_assert_eq!(unpack::<u128>(&layout, &codes), codes.clone()); }
            if layout.words <= 4 { prop_assert_eq!(unpack::<Wide<4>>(&layout, &codes), codes.clone()); }
            prop_assert_eq!(unpack::<Wide<16>>(&layout, &codes), codes);
        }
    }

    proptest! {
        /// The dense index is the codes packed with as few bits as they need.
        #[test]
        fn a_dense_index_is_a_tight_packing(
            sizes in prop::collection::vec((1usize..40, 1usize..3000), 1..16), seed in any::<u64>(),
        ) {
            let layout = Layout::new(&sizes.iter().map(|(now, more)| now + more).collect::<Vec<_>>()).unwrap();
            let now = || sizes.iter().map(|(now, _)| *now);
            let codes: Vec<Code> =
                now().enumerate().map(|(i, s)| (seed.rotate_left(i as u32 * 7) % s as u64) as Code).collect();
            let (mut expected, mut used) = (0u128, 0);
            for (code, size) in codes.iter().zip(now()) {
                expected |= u128::from(*code) << used;
                used += usize::BITS - (size - 1).leading_zeros();
            }
            let dense = layout.dense(now(), 20);
            prop_assert!(dense.is_some() || used > 20 || sizes.len() > MAX_SEGMENTS);
            if let Some(dense) = dense {
                prop_assert_eq!(dense.bits(), used);
                fn index<K: Key>(layout: &Layout, dense: &Dense, codes: &[Code]) -> u128 {
                    let mut indices = Vec::new();
                    dense.indices(&[layout.pack::<K>(codes)], &mut indices);
                    u128::from(indices[0])
                }
                if layout.words <= 1 { prop_assert_eq!(index::<u64>(&layout, &dense, &codes), expected); }
                if layout.words <= 2 { prop_assert_eq!(index::<u128>(&layout, &dense, &codes), expected); }
                if layout.words <= 4 { prop_assert_eq!(index::<Wide<4>>(&layout, &dense, &codes), expected); }
                prop_assert_eq!(index::<Wide<16>>(&layout, &dense, &codes), expected);
            }
        }
    }

    #[test]
    fn forty_wide_attributes_fit_and_far_too_many_do_not() {
        assert_eq!(Layout::new(&[1 << 20; 40]).unwrap().width(), Width::W1024);
        assert!(Layout::new(&[1 << 20; 60]).is_none());
        assert_eq!(Layout::new(&[100, 2, 5, 7]).unwrap().width(), Width::W64);
    }
}
