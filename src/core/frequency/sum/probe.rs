//! Open addressing: where a key is in a flat table of slots, or belongs. A slot is free where its number is zero.
//!
//! Invariant: a table has a power of two of slots, and a free one among them.

use crate::frequency::key::ClassKey;

/// How far a mixed key is shifted to be a slot of a table of so many.
#[inline]
pub(crate) fn shift(slots: usize) -> u32 {
    u64::BITS - slots.trailing_zeros()
}

/// Where `key` belongs if nothing else is there.
#[inline]
pub(crate) fn home<K: ClassKey>(slots: &[(K, u32)], shift: u32, key: &K) -> usize {
    (key.mix() >> shift) as usize & (slots.len() - 1)
}

/// Where `key` is, or belongs.
#[inline]
pub(crate) fn place<K: ClassKey>(slots: &[(K, u32)], shift: u32, key: K) -> usize {
    let mask = slots.len() - 1;
    let mut at = home(slots, shift, &key);
    // One branch on both, which is seldom taken.
    while !((slots[at].1 == 0) | (slots[at].0 == key)) {
        at = (at + 1) & mask;
    }
    at
}
