//! A flat table of classes that follows changes: each class has a place, so that neither keys are kept nor anything is looked for. Where
//! classes are not much fewer than places it takes a fraction of the memory of a [`Table`](super::table::Table), and less work.
//!
//! Invariant: as of that table, it shows the classes it was made of after all changes.

use std::sync::OnceLock;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::dense::{Dense, keys_of};
use super::key::{Field, Key, upwards};
use super::outline::{self, Outline};
use super::set::FrequencySet;

/// Classes by place.
#[derive(Debug, Clone)]
pub(super) struct Flat {
    fields: Vec<Field>,
    /// By attribute how many codes have places.
    codes: SmallVec<[usize; 16]>,
    /// The attributes of several codes, the fastest first, and how many these are.
    digits: Vec<(Field, usize)>,
    /// Records, up to what sixteen bits hold; those of larger classes are apart.
    rows: Vec<u16>,
    large: FxHashMap<usize, u32>,
    classes: usize,
    outline: OnceLock<Outline>,
}

/// Stands for the records of a large class.
const LARGE: u16 = u16::MAX;

impl Flat {
    /// The classes of a set without histograms and subjects, at the places that `dense` was aimed at: all of a node that has so many
    /// codes.
    pub(super) fn of<K: Key>(finer: &FrequencySet<K>, dense: &Dense, codes: SmallVec<[usize; 16]>) -> Self {
        let mut table = Self::empty(finer.fields.clone(), codes);
        let mut counts = finer.rows.as_slice();
        dense.each(&finer.keys, |places| {
            let (these, others) = counts.split_at(places.len());
            for (&place, &count) in places.iter().zip(these) {
                table.change(place as usize, count.cast_signed());
            }
            counts = others;
        });
        table
    }

    fn empty(fields: Vec<Field>, codes: SmallVec<[usize; 16]>) -> Self {
        let order = upwards(&fields);
        let digits: Vec<(Field, usize)> =
            order.into_iter().filter(|&a| codes[a] > 1).map(|a| (fields[a], codes[a])).collect();
        let rows = vec![0; digits.iter().map(|(_, codes)| codes).product()];
        Self { fields, codes, digits, rows, large: FxHashMap::default(), classes: 0, outline: OnceLock::new() }
    }

    /// How many classes there are.
    pub(super) fn classes(&self) -> usize {
        self.classes
    }

    /// About how many bytes it holds.
    pub(super) fn bytes(&self) -> usize {
        Self::bytes_for(self.rows.len())
    }

    /// About how many bytes a table of so many places holds.
    pub(super) fn bytes_for(places: usize) -> usize {
        places.saturating_mul(size_of::<u16>())
    }

    /// Makes room for so many codes by attribute.
    pub(super) fn make_room<K: Key>(&mut self, codes: &[usize]) {
        if self.codes.as_slice() == codes {
            return;
        }
        let mut wider = Self::empty(self.fields.clone(), codes.into());
        self.iter::<K>().for_each(|(key, rows)| _ = wider.change(wider.place(&key), rows.cast_signed()));
        wider.outline = std::mem::take(&mut self.outline);
        *self = wider;
    }

    /// The classes and their records.
    pub(super) fn iter<K: Key>(&self) -> impl Iterator<Item = (K, u32)> + '_ {
        let (low, high) = keys_of::<K>(&self.digits);
        let present = self.rows.iter().enumerate().filter(|(_, rows)| **rows > 0);
        present.map(move |(place, _)| (low[place % low.len()].or(high[place / low.len()]), self.rows_at(place)))
    }

    /// As of a set.
    pub(super) fn outline(&self, least: u32) -> Option<&Outline> {
        let outline = self.outline.get_or_init(|| {
            let (mut left_out, mut shown) = (0u32, 0u32);
            if least > u32::from(LARGE) {
                return Outline::of(
                    (0..self.rows.len()).map(|at| self.rows_at(at)).filter(|r| *r > 0).map(|r| (r, r)),
                    least,
                );
            }
            for &rows in &self.rows {
                let small = u32::from(rows) < least;
                left_out += if small { u32::from(rows) } else { 0 };
                shown += u32::from(!small & (rows > 0));
            }
            Outline::counted(least, u64::from(left_out), u64::from(shown))
        });
        (outline.least() == least).then_some(outline)
    }

    /// As of a set.
    pub(super) fn left_out<K: Key>(&self, least: u32) -> Option<&[Vec<u32>]> {
        let small = || self.iter::<K>().filter(|(_, rows)| *rows < least);
        self.outline(least).map(|outline| outline.cells(|| outline::cells(&self.fields, small())))
    }

    /// Follows changes of its classes, and tells of each how many records its class had and has.
    pub(super) fn follow<K: Key>(&mut self, keys: &[K], by: &[i32], mut tell: impl FnMut(K, u32, u32)) {
        let mut outline = std::mem::take(&mut self.outline);
        let mut followed = outline.get_mut().map(Outline::follow);
        for (&key, &by) in keys.iter().zip(by) {
            let (before, after) = self.change(self.place(&key), by);
            if let Some(followed) = &mut followed {
                followed.class(&key, &self.fields, before, after);
            }
            tell(key, before, after);
        }
        drop(followed);
        self.outline = outline;
    }

    fn place<K: Key>(&self, key: &K) -> usize {
        // From the slowest on.
        self.digits.iter().rev().fold(0, |place, &(field, codes)| place * codes + key.get(field) as usize)
    }

    fn rows_at(&self, place: usize) -> u32 {
        match self.rows[place] {
            LARGE => self.large.get(&place).copied().unwrap_or_default(),
            rows => u32::from(rows),
        }
    }

    /// So many records more or less; how many there were and are.
    fn change(&mut self, place: usize, by: i32) -> (u32, u32) {
        let before = self.rows_at(place);
        let after = before.wrapping_add_signed(by);
        self.rows[place] = u16::try_from(after).unwrap_or(LARGE);
        if self.rows[place] == LARGE {
            self.large.insert(place, after);
        }
        self.classes = self.classes + usize::from(after > 0) - usize::from(before > 0);
        (before, after)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::frequency::key::Layout;

    proptest! {
        /// Batches of changes, so that classes come, go and return, and become so large that they are kept apart; and codes that come later.
        #[test]
        fn a_table_is_a_map(
            batches in prop::collection::vec((prop::collection::vec((0u32..5, 0u32..3, 0u32..4, -3i32..4, any::<bool>()), 1..60), any::<bool>()), 1..20),
            least in prop::sample::select(vec![4u32, 70_000]),
        ) {
            let layout = Layout::new(&[9, 2, 5]).unwrap();
            let mut codes = [4, 1, 3];
            let mut table = Flat::empty(layout.fields().to_vec(), codes.as_slice().into());
            let mut twin: BTreeMap<u32, u32> = BTreeMap::new();
            for (batch, more) in batches {
                if more {
                    codes = [9, 2, 5];
                    table.make_room::<u32>(&codes);
                }
                let (mut keys, mut by) = (Vec::new(), Vec::new());
                for (a, b, c, wanted, many) in batch {
                    let key = layout.pack(&[a % codes[0] as u32, b % codes[1] as u32, c % codes[2] as u32]);
                    let rows = twin.entry(key).or_default();
                    let change = if many { wanted * 30_000 } else { wanted }.max(-(*rows as i32));
                    *rows = rows.saturating_add_signed(change);
                    keys.push(key);
                    by.push(change);
                }
                twin.retain(|_, rows| *rows > 0);
                table.follow::<u32>(&keys, &by, |_, _, _| ());
                prop_assert_eq!(&table.iter::<u32>().collect::<BTreeMap<_, _>>(), &twin);
                prop_assert_eq!(table.classes(), twin.len());
                let small: u64 = twin.values().filter(|rows| **rows < least).map(|rows| u64::from(*rows)).sum();
                let outline = table.outline(least).unwrap();
                prop_assert_eq!(outline.left_out(), small);
                prop_assert_eq!(outline.shown() as usize, twin.values().filter(|rows| **rows >= least).count());
                let cells: u32 = table.left_out::<u32>(least).unwrap()[0].iter().sum();
                prop_assert_eq!(u64::from(cells), small);
            }
        }
    }
}
