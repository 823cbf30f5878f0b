//! Numbers keys in order of first appearance: a flat open-addressing table from which nothing is ever taken out.
//!
//! Invariant: at most half of the slots are taken. Removal is deliberately absent: a tuple whose rows have gone keeps its
//! number.

use crate::frequency::key::ClassKey;
use crate::frequency::sum::probe::{home, place, shift};

/// Keys with their numbers.
#[derive(Debug, Clone)]
pub(crate) struct KeyIndex<K> {
    /// The key, and its number plus one; zero where the slot is free.
    slots: Vec<(K, u32)>,
    /// By number.
    keys: Vec<K>,
}

/// How many slots a table starts with. More costs memory where few tuples come, fewer grows it more often.
const FIRST_SLOTS: usize = 1 << 10;

/// How many times larger a table becomes when it is half full. More wastes memory, less moves keys more often.
const GROWTH: usize = 4;

impl<K: ClassKey> KeyIndex<K> {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), keys: Vec::new() }
    }

    /// Different keys, numbered in their order. The table is made when somebody asks for a number.
    pub(crate) fn of(keys: Vec<K>) -> Self {
        Self { slots: Vec::new(), keys }
    }

    /// The keys, by number.
    pub(crate) fn keys(&self) -> &[K] {
        &self.keys
    }

    /// The keys, by number.
    pub(crate) fn into_keys(self) -> Vec<K> {
        self.keys
    }

    /// The number of `key`, a new one if it has none yet.
    pub(crate) fn number(&mut self, key: K) -> u32 {
        self.make_room(1);
        let at = place(&self.slots, shift(self.slots.len()), key);
        if self.slots[at].1 == 0 {
            self.keys.push(key);
            self.slots[at] = (key, self.keys.len() as u32);
        }
        self.slots[at].1 - 1
    }

    /// The numbers of some keys, new ones for those that have none yet.
    pub(crate) fn numbers(&mut self, batch: &[K], numbers: &mut Vec<u32>) {
        self.make_room(batch.len());
        numbers.clear();
        let shift = shift(self.slots.len());
        // All at once to begin with, so that memory is waited for once and not for each.
        numbers.extend(
            batch
                .iter()
                .map(|&key| self.slots[home(&self.slots, shift, &key)])
                .zip(batch)
                .map(|((found, number), key)| if found == *key { number } else { 0 }),
        );
        for (number, &key) in numbers.iter_mut().zip(batch) {
            *number = if *number > 0 { *number - 1 } else { self.number(key) };
        }
    }

    fn make_room(&mut self, more: usize) {
        let needed = (self.keys.len() + more) * 2;
        if needed <= self.slots.len() {
            return;
        }
        let mut width = self.slots.len().max(FIRST_SLOTS);
        if self.slots.is_empty() && !self.keys.is_empty() {
            // Keys that were numbered elsewhere, of which few more are to come.
            width = needed.next_power_of_two();
        }
        while width < needed {
            width *= GROWTH;
        }
        self.slots = vec![(K::ZERO, 0); width];
        for (number, &key) in self.keys.iter().enumerate() {
            let at = place(&self.slots, shift(width), key);
            self.slots[at] = (key, number as u32 + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_counts_as_a_map_does(batches in prop::collection::vec(prop::collection::vec(0u64..3000, 0..900), 1..8)) {
            let mut index = KeyIndex::new();
            let mut counts = Vec::new();
            let mut twin: HashMap<u64, u32> = HashMap::new();
            for (round, batch) in batches.iter().enumerate() {
                if round % 2 == 0 {
                    let mut numbers = Vec::new();
                    index.numbers(batch, &mut numbers);
                    counts.resize(index.keys().len(), 0);
                    numbers.into_iter().for_each(|number| counts[number as usize] += 1);
                } else {
                    for &key in batch {
                        let number = index.number(key) as usize;
                        counts.resize(index.keys().len(), 0);
                        counts[number] += 1;
                    }
                }
                batch.iter().for_each(|&key| *twin.entry(key).or_default() += 1);
                let held: HashMap<u64, u32> = index.keys().iter().copied().zip(counts.iter().copied()).collect();
                prop_assert_eq!(&held, &twin);
                prop_assert_eq!(index.keys().len(), counts.len());
            }
            let mut index = KeyIndex::of(index.keys().to_vec());
            for number in 0..index.keys().len() {
                prop_assert_eq!(index.number(index.keys()[number]) as usize, number);
            }
        }
    }
}
