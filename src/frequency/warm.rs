//! Rollups that live longer than a window: the sets that the last search asked for, kept up to date by what came and went.
//!
//! Invariant: a set handed out equals the rollup of the base set of the same moment. Sets with histograms or subjects are
//! not kept; those are rolled up again. Nothing is tracked before a first search has asked for something, so that windows
//! that are counted once pay nothing.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::key::Key;
use super::set::{Classes, Facets, FrequencySet, Origin};
use super::store::FrequencyStore;
use crate::model::lattice::Node;

/// How many bytes of sets are kept from one search to the next. Larger costs memory; smaller rolls more of them up again.
const MAX_BYTES: usize = 64 << 20;

/// A change of more than one in so many tuples is not worth following: rolling up again costs less than patching.
const WORTHWHILE: usize = 4;

/// The sets of the last search, and what has changed since.
pub(super) struct Warm<K> {
    last: Arc<FrequencyStore<K>>,
    sets: FxHashMap<Node, WarmSet<K>>,
    changes: FxHashMap<K, i32>,
}

impl<K: Key> Warm<K> {
    /// Follows what happens after `last` was handed out.
    pub(super) fn after(last: Arc<FrequencyStore<K>>) -> Self {
        Self { last, sets: FxHashMap::default(), changes: FxHashMap::default() }
    }

    /// One record more or less of a tuple.
    #[inline]
    pub(super) fn change(&mut self, key: K, by: i32) {
        *self.changes.entry(key).or_default() += by;
    }

    /// Brings the sets that were asked for last into `next`, a store over the counts of now, and follows that from here on.
    pub(super) fn advance(&mut self, next: &Arc<FrequencyStore<K>>) {
        let (keys, by): (Vec<K>, Vec<i32>) = self.changes.drain().filter(|(_, by)| *by != 0).unzip();
        let mut sets = FxHashMap::default();
        if keys.len() * WORTHWHILE < self.last.base_set().len() {
            let mut bytes = 0;
            let mut mapped = Vec::new();
            for set in self.last.asked_for() {
                bytes += set.bytes();
                if bytes > MAX_BYTES {
                    break;
                }
                let mut kept = self.sets.remove(set.node()).unwrap_or_else(|| WarmSet::of(&set));
                next.generalize(&keys, set.node(), &mut mapped);
                mapped.iter().zip(&by).for_each(|(key, by)| kept.change(*key, *by));
                next.keep(kept.snapshot(set.node().clone(), &set));
                sets.insert(set.node().clone(), kept);
            }
        }
        self.sets = sets;
        self.last = Arc::clone(next);
    }
}

/// The classes of one node, with an index by key.
struct WarmSet<K> {
    keys: Vec<K>,
    rows: Vec<u32>,
    /// Open addressing: the class plus one, zero where free.
    slots: Vec<u32>,
}

impl<K: Key> WarmSet<K> {
    fn of(set: &FrequencySet<K>) -> Self {
        let mut kept = Self { keys: set.keys.clone(), rows: set.rows.clone(), slots: Vec::new() };
        kept.index();
        kept
    }

    fn snapshot(&self, node: Node, like: &FrequencySet<K>) -> FrequencySet<K> {
        FrequencySet {
            node,
            values: Vec::new(),
            origin: Origin::RolledUp,
            fields: like.fields.clone(),
            keys: self.keys.clone(),
            rows: self.rows.clone(),
            sizes: None,
            subjects: None,
            facets: Facets::default(),
        }
    }

    fn index(&mut self) {
        self.slots = vec![0; (self.keys.len().max(8) * 4).next_power_of_two()];
        for class in 0..self.keys.len() {
            let at = self.place(&self.keys[class]);
            self.slots[at] = class as u32 + 1;
        }
    }

    fn home(&self, key: &K) -> usize {
        (key.mix() >> (u64::BITS - self.slots.len().trailing_zeros())) as usize
    }

    /// Where `key` is, or belongs.
    fn place(&self, key: &K) -> usize {
        let mut at = self.home(key);
        while self.slots[at] != 0 && self.keys[self.slots[at] as usize - 1] != *key {
            at = (at + 1) & (self.slots.len() - 1);
        }
        at
    }

    fn change(&mut self, key: K, by: i32) {
        let at = self.place(&key);
        match self.slots[at] {
            0 => {
                self.keys.push(key);
                self.rows.push(by.max(0) as u32);
                self.slots[at] = self.keys.len() as u32;
                if self.keys.len() * 2 > self.slots.len() {
                    self.index();
                }
            }
            class => {
                let class = class as usize - 1;
                self.rows[class] = self.rows[class].saturating_add_signed(by);
                if self.rows[class] == 0 {
                    self.remove(class, at);
                }
            }
        }
    }

    /// Takes out an empty class; the last one takes its number.
    fn remove(&mut self, class: usize, at: usize) {
        let last = self.keys.len() - 1;
        let moved = self.place(&self.keys[last]);
        self.slots[moved] = class as u32 + 1;
        // Close the gap: what was pushed past it moves back.
        let mask = self.slots.len() - 1;
        let (mut gap, mut at) = (at, at);
        loop {
            at = (at + 1) & mask;
            if self.slots[at] == 0 {
                break;
            }
            // Numbers are those of before the move, but for the one that moved.
            let number = self.slots[at] as usize - 1;
            let key = if at == moved && class != last { &self.keys[last] } else { &self.keys[number] };
            if (at.wrapping_sub(self.home(key)) & mask) >= (at.wrapping_sub(gap) & mask) {
                self.slots[gap] = self.slots[at];
                gap = at;
            }
        }
        self.slots[gap] = 0;
        self.keys.swap_remove(class);
        self.rows.swap_remove(class);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Few keys that mix to near places, so that chains form, shrink and wrap.
        #[test]
        fn a_patched_set_is_a_map(changes in prop::collection::vec((0u64..40, -3i32..4), 1..400)) {
            let mut set = WarmSet::<u64> { keys: Vec::new(), rows: Vec::new(), slots: Vec::new() };
            set.index();
            let mut twin: BTreeMap<u64, u32> = BTreeMap::new();
            for (key, by) in changes {
                let count = twin.get(&key).copied().unwrap_or(0);
                let by = by.max(-(count as i32));
                if by == 0 {
                    continue;
                }
                set.change(key, by);
                twin.insert(key, count.saturating_add_signed(by));
                twin.retain(|_, count| *count > 0);
                let held: BTreeMap<u64, u32> = set.keys.iter().copied().zip(set.rows.iter().copied()).collect();
                prop_assert_eq!(&held, &twin);
                prop_assert_eq!(held.len(), set.keys.len());
                for class in 0..set.keys.len() {
                    prop_assert_eq!(set.slots[set.place(&set.keys[class])] as usize, class + 1);
                }
                prop_assert_eq!(set.slots.iter().filter(|slot| **slot != 0).count(), set.keys.len());
            }
        }
    }
}
