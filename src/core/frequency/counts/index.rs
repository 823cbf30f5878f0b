//! Numbers keys in order of first appearance. A key is held once; the table holds its number only.
//!
//! Removal is deliberately absent: a tuple whose rows have gone keeps its number.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::frequency::key::ClassKey;

/// Keys with their numbers.
#[derive(Debug, Clone)]
pub(crate) struct KeyIndex<K> {
    /// The numbers by the hashes of their keys; empty until somebody asks for a number.
    numbers: HashTable<u32>,
    /// By number.
    keys: Vec<K>,
}

impl<K: ClassKey> KeyIndex<K> {
    pub(crate) fn new() -> Self {
        Self { numbers: HashTable::new(), keys: Vec::new() }
    }

    /// Different keys, numbered in their order.
    pub(crate) fn of(keys: Vec<K>) -> Self {
        Self { numbers: HashTable::new(), keys }
    }

    /// The keys, by number.
    pub(crate) fn keys(&self) -> &[K] {
        &self.keys
    }

    /// The number of `key`, a new one if it has none yet.
    pub(crate) fn number(&mut self, key: K) -> u32 {
        let Self { numbers, keys } = self;
        let hash = |number: &u32| keys[*number as usize].mix();
        if numbers.len() < keys.len() {
            numbers.reserve(keys.len(), hash);
            (0..keys.len() as u32).for_each(|number| _ = numbers.insert_unique(hash(&number), number, hash));
        }
        match numbers.entry(key.mix(), |&number| keys[number as usize] == key, hash) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(place) => {
                let number = keys.len() as u32;
                place.insert(number);
                keys.push(key);
                number
            }
        }
    }

    /// The numbers of some keys, new ones for those that have none yet.
    pub(crate) fn numbers(&mut self, batch: &[K], numbers: &mut Vec<u32>) {
        numbers.clear();
        numbers.extend(batch.iter().map(|&key| self.number(key)));
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
