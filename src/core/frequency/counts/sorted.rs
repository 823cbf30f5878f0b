//! Sorts by keys, digit by digit, and counts equal ones, which then lie together. Unlike a table it waits for no cache, and what is
//! rolled up from sorted classes finds most of its places near the last.

use crate::frequency::key::{ClassKey, KeyField};

/// Bits of a digit. More make more runs than the caches follow, fewer more passes.
const DIGIT: u32 = 11;

/// How many items are looked at digit by digit before the next; they stay in the nearest cache.
const BATCH: usize = 512;

/// From how many items on they are sorted digit by digit. Fewer cost more to prepare than to compare.
const BY_DIGITS: usize = 1 << 10;

/// Items by ascending key; `bits` says how many a key has, if it is a single word.
pub(super) fn sorted<T: Copy, K: ClassKey>(mut items: Vec<T>, bits: Option<u32>, key: impl Fn(&T) -> K) -> Vec<T> {
    let Some(bits) = bits.filter(|_| items.len() >= BY_DIGITS) else {
        items.sort_by_key(key);
        return items;
    };
    let digits: Vec<KeyField> = (0..bits.div_ceil(DIGIT)).map(|digit| KeyField::digit(digit * DIGIT, DIGIT)).collect();
    let mut times = vec![[0u32; 1 << DIGIT]; digits.len()];
    for items in items.chunks(BATCH) {
        for (times, &digit) in times.iter_mut().zip(&digits) {
            items.iter().for_each(|item| times[value(&key(item), digit)] += 1);
        }
    }
    let mut other = items.clone();
    for (starts, &digit) in times.iter_mut().zip(&digits) {
        if starts.contains(&(items.len() as u32)) {
            // All the same.
            continue;
        }
        let mut start = 0;
        for times in starts.iter_mut() {
            start += std::mem::replace(times, start);
        }
        for item in &items {
            let at = &mut starts[value(&key(item), digit)];
            other[*at as usize] = *item;
            *at += 1;
        }
        std::mem::swap(&mut items, &mut other);
    }
    items
}

/// Items of equal hashes together, in any order: few bits tell most hashes apart.
pub(super) fn together<T: Copy>(items: Vec<T>, hash: impl Fn(&T) -> u64) -> Vec<T> {
    const BITS: u32 = 2 * DIGIT;
    let low = |item: &T| hash(item) & ((1 << BITS) - 1);
    let mut items = sorted(items, Some(BITS), &hash);
    let alike = items.chunk_by_mut(|a, b| low(a) == low(b)).filter(|alike| alike.len() > 1);
    alike.for_each(|alike| alike.sort_unstable_by_key(&hash));
    items
}

/// The value of a digit. Nothing is left to check where it is looked up.
#[inline]
fn value<K: ClassKey>(key: &K, digit: KeyField) -> usize {
    key.get(digit) as usize & ((1 << DIGIT) - 1)
}

/// The different ones of some keys of which equal ones lie together, and how often each occurs.
pub(super) fn counted<K: ClassKey>(keys: &[K]) -> (Vec<K>, Vec<u32>) {
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
        fn it_counts_as_a_map_does(keys in prop::collection::vec(any::<u64>(), 0..2 * BY_DIGITS), bits in 1u32..=64, few in any::<bool>()) {
            let keys: Vec<u64> = keys.iter().map(|key| (if few { ((key % 7) << 40) | (key % 5) } else { *key }) >> (64 - bits)).collect();
            let mut twin: BTreeMap<u64, u32> = BTreeMap::new();
            keys.iter().for_each(|key| *twin.entry(*key).or_default() += 1);
            let mut same = together(keys.clone(), |key| *key);
            prop_assert_eq!(same.chunk_by(|a, b| a == b).count(), twin.len());
            same.sort_unstable();
            prop_assert_eq!(&same, &sorted(keys.clone(), None, |key| *key));
            let twin: (Vec<u64>, Vec<u32>) = twin.into_iter().unzip();
            prop_assert_eq!(&counted(&sorted(keys.clone(), Some(bits), |key| *key)), &twin);
            if bits <= 32 {
                let narrow: Vec<u32> = keys.iter().map(|&key| key as u32).collect();
                let (narrow, counts) = counted(&sorted(narrow, Some(bits), |key| *key));
                prop_assert_eq!((narrow.into_iter().map(u64::from).collect(), counts), twin);
            }
            let wide: Vec<([u64; 4], usize)> = keys.iter().enumerate().map(|(i, &key)| ([0, key % 3, 7, key], i)).collect();
            let mut stable = wide.clone();
            stable.sort();
            prop_assert_eq!(sorted(wide, None, |(key, _)| *key), stable);
        }
    }
}
