//! Counts many keys at once: sorted digit by digit, equal ones lie together. Unlike a table it waits for no cache, and what is
//! rolled up from sorted classes finds most of its places near the last.

use crate::frequency::key::{ClassKey, KeyField};

/// Bits of a digit. More make more runs than the caches follow, fewer more passes.
const DIGIT: u32 = 11;

/// How many keys are looked at digit by digit before the next; they stay in the nearest cache.
const BATCH: usize = 512;

/// The different keys of a single word of `bits` bits, ascending, and how often each occurs.
pub(crate) fn counted<K: ClassKey>(mut keys: Vec<K>, bits: u32) -> (Vec<K>, Vec<u32>) {
    let digits: Vec<KeyField> = (0..bits.div_ceil(DIGIT)).map(|digit| KeyField::digit(digit * DIGIT, DIGIT)).collect();
    let mut times = vec![[0u32; 1 << DIGIT]; digits.len()];
    for keys in keys.chunks(BATCH) {
        for (times, &digit) in times.iter_mut().zip(&digits) {
            keys.iter().for_each(|key| times[value(key, digit)] += 1);
        }
    }
    let mut other = vec![K::ZERO; keys.len()];
    for (times, &digit) in times.iter_mut().zip(&digits) {
        if times.contains(&(keys.len() as u32)) {
            // All the same.
            continue;
        }
        by_digit(&keys, digit, times, &mut other);
        std::mem::swap(&mut keys, &mut other);
    }
    counted_in_order(&keys)
}

/// The keys in the order of a digit, of which each value occurs so often; equal ones stay in their order.
fn by_digit<K: ClassKey>(keys: &[K], digit: KeyField, times: &mut [u32; 1 << DIGIT], into: &mut [K]) {
    let (mut start, starts) = (0, times);
    for times in starts.iter_mut() {
        start += std::mem::replace(times, start);
    }
    for &key in keys {
        let at = &mut starts[value(&key, digit)];
        into[*at as usize] = key;
        *at += 1;
    }
}

/// The value of a digit. Nothing is left to check where it is looked up.
#[inline]
fn value<K: ClassKey>(key: &K, digit: KeyField) -> usize {
    key.get(digit) as usize & ((1 << DIGIT) - 1)
}

/// The different ones of some keys of which equal ones lie together, and how often each occurs.
fn counted_in_order<K: ClassKey>(keys: &[K]) -> (Vec<K>, Vec<u32>) {
    let Some(&last) = keys.last() else { return Default::default() };
    let different = 1 + keys.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let (mut all, mut ends) = (vec![last; different], vec![keys.len() as u32; different]);
    // Each key is written over the last one with where it ends, and the next behind it if it is another: nothing branches on that, or
    // waits for what was just written.
    let mut at = 0;
    for (pair, end) in keys.windows(2).zip(1..) {
        (all[at], ends[at]) = (pair[0], end);
        at += usize::from(pair[0] != pair[1]);
    }
    (all[at], ends[at]) = (last, keys.len() as u32);
    let mut start = 0;
    for end in &mut ends {
        (*end, start) = (*end - start, *end);
    }
    (all, ends)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_counts_as_a_map_does(keys in prop::collection::vec(any::<u64>(), 0..600), bits in 1u32..=64, few in any::<bool>()) {
            let keys: Vec<u64> = keys.iter().map(|key| (if few { ((key % 7) << 40) | (key % 5) } else { *key }) >> (64 - bits)).collect();
            let mut twin: BTreeMap<u64, u32> = BTreeMap::new();
            keys.iter().for_each(|key| *twin.entry(*key).or_default() += 1);
            let twin: (Vec<u64>, Vec<u32>) = twin.into_iter().unzip();
            prop_assert_eq!(&counted(keys.clone(), bits), &twin);
            if bits <= 32 {
                let (narrow, counts) = counted(keys.iter().map(|&key| key as u32).collect(), bits);
                prop_assert_eq!((narrow.into_iter().map(u64::from).collect(), counts), twin);
            }
        }
    }
}
