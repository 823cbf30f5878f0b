//! A table of classes that follows changes: records by key, in one place each, and the outline of them.
//!
//! Invariant: the classes it shows are those of the set it was made of after all changes. Histograms and subjects are absent:
//! only records are counted here.

use std::sync::OnceLock;

use super::key::{Field, Key};
use super::outline::{self, Outline};
use super::probe::{home, place, shift};
use super::set::FrequencySet;

/// How many keys are looked for before the first of them is counted, so that memory is waited for once and not for each. More
/// forgets the first before it is counted, fewer wait more often.
const AHEAD: usize = 32;

/// Classes by key.
#[derive(Debug, Clone)]
pub(super) struct Table<K> {
    fields: Vec<Field>,
    /// Open addressing: the key with its records plus one, zero where free. A class that has gone keeps its place until the
    /// table is made anew, so that nothing ever moves.
    slots: Vec<(K, u32)>,
    used: usize,
    classes: usize,
    outline: OnceLock<Outline>,
}

impl<K: Key> Table<K> {
    /// The classes of a set without histograms and subjects.
    pub(super) fn of(set: &FrequencySet<K>) -> Self {
        let (fields, outline) = (set.fields.clone(), set.outline.clone());
        let mut table = Self { fields, slots: Vec::new(), used: 0, classes: 0, outline };
        table.fill(set.keys.iter().copied().zip(set.rows.iter().copied()), set.keys.len());
        table
    }

    /// How many classes there are.
    pub(super) fn classes(&self) -> usize {
        self.classes
    }

    /// Where the codes of each attribute are in a key.
    pub(super) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// About how many bytes it holds.
    pub(super) fn bytes(&self) -> usize {
        self.slots.len() * size_of::<(K, u32)>()
    }

    /// About how many bytes a table of so many classes holds.
    pub(super) fn bytes_for(classes: usize) -> usize {
        width(classes) * size_of::<(K, u32)>()
    }

    /// The classes and their records.
    pub(super) fn iter(&self) -> impl Iterator<Item = (K, u32)> + '_ {
        self.slots.iter().filter(|slot| slot.1 > 1).map(|&(key, rows)| (key, rows - 1))
    }

    /// As of a set.
    pub(super) fn outline(&self, least: u32) -> Option<&Outline> {
        let rows = || self.iter().map(|(_, rows)| (rows, rows));
        let outline = self.outline.get_or_init(|| Outline::of(rows(), least));
        (outline.least() == least).then_some(outline)
    }

    /// As of a set.
    pub(super) fn left_out(&self, least: u32) -> Option<&[Vec<u32>]> {
        let small = || self.iter().filter(|(_, rows)| *rows < least);
        self.outline(least).map(|outline| outline.cells(|| outline::cells(&self.fields, small())))
    }

    /// Follows changes of its classes, and tells of each how many records its class had and has.
    pub(super) fn follow(&mut self, keys: &[K], by: &[i32], mut tell: impl FnMut(K, u32, u32)) {
        if (self.used + keys.len()) * 4 > self.slots.len() * 3 {
            let all: Vec<(K, u32)> = self.iter().collect();
            self.fill(all.into_iter(), self.classes + keys.len());
        }
        let Self { fields, slots, used, classes, outline } = self;
        let (shift, slots) = (shift(slots.len()), &mut slots[..]);
        let mut followed = outline.get_mut().map(Outline::follow);
        let (mut fresh, mut more) = (0, 0);
        let mut found = [(0, false); AHEAD];
        for (keys, by) in keys.chunks(AHEAD).zip(by.chunks(AHEAD)) {
            // Nothing ever moves, so a key that is where it belongs is found there later on too.
            for (found, key) in found.iter_mut().zip(keys) {
                let at = home(slots, shift, key);
                *found = (at, (slots[at].1 != 0) & (slots[at].0 == *key));
            }
            for ((&key, &by), &(at, is_home)) in keys.iter().zip(by).zip(&found) {
                let at = if is_home { at } else { place(slots, shift, key) };
                let slot = &mut slots[at];
                let before = slot.1.saturating_sub(1);
                let after = before.wrapping_add_signed(by);
                fresh += usize::from(slot.1 == 0);
                *slot = (key, after + 1);
                more += isize::from(after > 0) - isize::from(before > 0);
                if let Some(followed) = &mut followed {
                    followed.class(&key, fields, before, after);
                }
                tell(key, before, after);
            }
        }
        *used += fresh;
        *classes = classes.wrapping_add_signed(more);
    }

    /// Starts over with room for `most` classes.
    fn fill(&mut self, classes: impl Iterator<Item = (K, u32)>, most: usize) {
        let width = width(most);
        self.slots.clear();
        self.slots.resize(width, (K::ZERO, 0));
        self.used = 0;
        for (key, rows) in classes {
            let at = place(&self.slots, shift(width), key);
            self.slots[at] = (key, rows + 1);
            self.used += 1;
        }
        self.classes = self.used;
    }
}

/// How many slots hold so many classes.
fn width(classes: usize) -> usize {
    (classes.max(8) * 3 / 2).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::frequency::key::Layout;

    proptest! {
        /// Few keys that mix to near places, so that chains form; batches of changes, so that classes come, go and return.
        #[test]
        fn a_table_is_a_map(batches in prop::collection::vec(prop::collection::vec((0u64..40, -3i32..4), 1..60), 1..20)) {
            const LEAST: u32 = 4;
            let fields = Layout::new(&[40]).unwrap().fields().to_vec();
            let (used, classes) = (0, 0);
            let mut table = Table::<u64> { fields, slots: vec![(0, 0); 8], used, classes, outline: OnceLock::new() };
            let mut twin: BTreeMap<u64, u32> = BTreeMap::new();
            for batch in batches {
                let (mut keys, mut by) = (Vec::new(), Vec::new());
                for (key, wanted) in batch {
                    let rows = twin.entry(key).or_default();
                    let change = wanted.max(-(*rows as i32));
                    *rows = rows.saturating_add_signed(change);
                    keys.push(key);
                    by.push(change);
                }
                twin.retain(|_, rows| *rows > 0);
                table.follow(&keys, &by, |_, _, _| ());
                prop_assert_eq!(&table.iter().collect::<BTreeMap<_, _>>(), &twin);
                prop_assert_eq!(table.classes(), twin.len());
                prop_assert_eq!(table.iter().count(), twin.len());
                let small: BTreeMap<u64, u32> = twin.iter().filter(|(_, rows)| **rows < LEAST).map(|(k, r)| (*k, *r)).collect();
                let outline = table.outline(LEAST).unwrap();
                prop_assert_eq!(outline.left_out(), small.values().map(|rows| u64::from(*rows)).sum::<u64>());
                prop_assert_eq!(outline.shown() as usize, twin.len() - small.len());
                let cells = table.left_out(LEAST).unwrap()[0].iter().enumerate().filter(|(_, rows)| **rows > 0);
                prop_assert_eq!(cells.map(|(code, rows)| (code as u64, *rows)).collect::<BTreeMap<_, _>>(), small);
            }
        }
    }
}
