//! [`FinestCounts`]: the counts at the finest node, kept up to date as rows come ([`FinestCounts::add_all`]) and go
//! ([`FinestCounts::retract_all`]).
//!
//! A tuple is a combination of finest codes; an entry is a tuple with its facet codes. Both are numbered as they come and keep their
//! number when their rows have gone, so that counts are plain arrays.
//! Invariant: after any sequence of adds and retracts the snapshot equals one built from the remaining rows alone.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::changes::{Belongings, Touched};
use super::entries::{Entries, Entry};
use super::index::KeyIndex;
use super::sorted;
use crate::frequency::key::{ClassKey, Layout};
use crate::model::batch::Rows;
use crate::model::counting::Counting;
use crate::model::domain::Code;

/// How many rows are packed at a time. More do not fit the nearest cache, fewer start over too often.
const BATCH: usize = 512;

/// From how many rows on they are sorted first, where nothing was counted before: what is rolled up from sorted classes finds most of
/// its places near the last. Fewer cost more to sort than that saves.
const WORTH_SORTING: usize = 1 << 12;

/// Counts at the finest node, incrementally.
pub(crate) struct FinestCounts<K> {
    pub(crate) layout: Layout,
    pub(crate) counting: Counting,
    pub(crate) tuples: KeyIndex<K>,
    pub(crate) entries: Entries,
    /// By entry.
    pub(crate) rows: Vec<u32>,
    /// Only filled when subjects are counted: each subject's entries with their records.
    pub(crate) members: FxHashMap<u64, Belongings>,
    /// Who has changed since the last store, where the next one follows it.
    pub(crate) touched: Option<Touched>,
}

impl<K: ClassKey> FinestCounts<K> {
    /// Nothing counted yet.
    pub(crate) fn new(layout: Layout, counting: Counting) -> Self {
        Self {
            layout,
            tuples: KeyIndex::new(),
            entries: Entries::new(counting.facets.len()),
            counting,
            rows: Vec::new(),
            members: FxHashMap::default(),
            touched: None,
        }
    }

    /// True if nothing but records is counted.
    pub(crate) fn is_plain(&self) -> bool {
        self.counting.facets.is_empty() && !self.counting.subjects
    }

    /// Counts rows `range` of `rows`.
    pub(crate) fn add_all(&mut self, rows: &Rows, range: std::ops::Range<usize>) {
        match self.is_plain() {
            _ if self.is_empty() && range.len() >= WORTH_SORTING => self.add_sorted(rows, range),
            true => self.change_all(rows, range, 1),
            false => range.for_each(|i| self.add(rows, i)),
        }
    }

    /// Counts rows in the order of their tuples, where nothing was counted before.
    fn add_sorted(&mut self, rows: &Rows, range: std::ops::Range<usize>) {
        let mut pairs: Vec<(K, u32)> = range.map(|i| (self.layout.pack(rows.quasi(i)), i as u32)).collect();
        if self.is_plain() {
            let keys = sorted::sorted(pairs.into_iter().map(|(key, _)| key).collect(), self.layout.bits(), |key| *key);
            let (keys, counts) = sorted::counted(&keys);
            (self.tuples, self.rows) = (KeyIndex::of(keys), counts);
            return;
        }
        pairs = sorted::sorted(pairs, self.layout.bits(), |(key, _)| *key);
        pairs.into_iter().for_each(|(_, i)| self.add(rows, i as usize));
    }

    /// Takes rows of `rows`, which were added before, out again.
    pub(crate) fn retract_all(&mut self, rows: &Rows, indices: &[usize]) {
        match self.is_plain() {
            true => self.change_all(rows, indices.iter().copied(), -1),
            false => indices.iter().for_each(|&i| self.retract(rows, i)),
        }
    }

    /// One record more or less of the tuple of each of these rows, where nothing else is counted.
    fn change_all(&mut self, rows: &Rows, mut indices: impl Iterator<Item = usize>, by: i32) {
        let (mut batch, mut numbers): (Vec<K>, Vec<u32>) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
        loop {
            batch.clear();
            batch.extend(indices.by_ref().take(BATCH).map(|i| self.layout.pack::<K>(rows.quasi(i))));
            if batch.is_empty() {
                return;
            }
            self.tuples.numbers(&batch, &mut numbers);
            self.rows.resize(self.len(), 0);
            for &tuple in &numbers {
                let count = &mut self.rows[tuple as usize];
                if let Some(touched) = &mut self.touched {
                    touched.touch(u64::from(tuple), || present(tuple, *count));
                }
                *count = count.wrapping_add_signed(by);
            }
        }
    }

    /// Counts row i of `rows`.
    pub(crate) fn add(&mut self, rows: &Rows, i: usize) {
        let entry = self.entry(rows, i);
        self.touch(rows, i, entry);
        self.rows[entry as usize] += 1;
        if self.counting.subjects {
            let entries = self.members.entry(rows.subject(i)).or_default();
            match entries.iter_mut().find(|(e, _)| *e == entry) {
                Some((_, count)) => *count += 1,
                None => entries.push((entry, 1)),
            }
        }
    }

    /// Takes row i of `rows`, which was added before, out again.
    pub(crate) fn retract(&mut self, rows: &Rows, i: usize) {
        let entry = self.entry(rows, i);
        self.touch(rows, i, entry);
        self.rows[entry as usize] -= 1;
        if self.counting.subjects
            && let Some(entries) = self.members.get_mut(&rows.subject(i))
        {
            if let Some(at) = entries.iter().position(|(e, _)| *e == entry) {
                entries[at].1 -= 1;
                if entries[at].1 == 0 {
                    entries.swap_remove(at);
                }
            }
            if entries.is_empty() {
                self.members.remove(&rows.subject(i));
            }
        }
    }

    /// Distinct tuples ever counted since the set was made: a measure of its memory.
    pub(crate) fn len(&self) -> usize {
        self.tuples.keys().len()
    }

    /// True if nothing was ever counted.
    pub(crate) fn is_empty(&self) -> bool {
        self.tuples.keys().is_empty()
    }

    fn entry(&mut self, rows: &Rows, i: usize) -> Entry {
        let codes: SmallVec<[Code; 4]> = self.counting.facets.iter().map(|f| f.code(rows, i)).collect();
        self.numbered(self.layout.pack(rows.quasi(i)), codes.iter().copied())
    }

    pub(crate) fn numbered(&mut self, key: K, codes: impl Iterator<Item = Code> + Clone) -> Entry {
        let tuple = self.tuples.number(key);
        let entry = self.entries.number(tuple, codes);
        if entry as usize == self.rows.len() {
            self.rows.push(0);
        }
        entry
    }
}

/// The entry of a tuple that has so many records; none if it has no records.
pub(crate) fn present(entry: Entry, rows: u32) -> Belongings {
    if rows > 0 { [(entry, rows)].into_iter().collect() } else { Belongings::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::set::Classes;
    use crate::model::batch::Row;
    use crate::model::counting::Facet;
    use crate::model::counting::Histogram;
    use crate::model::event::{Millis, Position};
    use crate::model::lattice::Node;

    /// One per facet.
    type Histograms = Vec<Vec<(Code, u32)>>;

    /// Tuples with their records and histograms, sorted.
    fn counts<K: ClassKey>(base: &FinestCounts<K>) -> Vec<(K, u32, Histograms)> {
        let set = base.snapshot(Node::new([0, 0]));
        let histogram = |facet: usize, class: usize| {
            let Histogram { codes, counts } = set.histogram(facet, class);
            codes.iter().copied().zip(counts.iter().copied()).collect()
        };
        let histograms = |class: usize| (0..base.counting.facets.len()).map(|facet| histogram(facet, class)).collect();
        let mut counts: Vec<_> =
            (0..set.keys.len()).map(|class| (set.keys[class], set.rows[class], histograms(class))).collect();
        counts.sort_unstable();
        counts
    }

    /// Many rows at once, before and after which others come and go, against one at a time.
    fn at_once_is_one_by_one<K: ClassKey>(sizes: [usize; 2], subjects: bool, facets: &[Facet]) {
        let mut rows = Rows::new(2, 1);
        let mut state = 7u32;
        for i in 0..3 * WORTH_SORTING {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let quasi = [state >> 8, state >> 20]
                .into_iter()
                .zip(sizes)
                .map(|(draw, size)| (draw as usize % size) as Code)
                .collect();
            let (sensitive, label, subject) =
                ([(state >> 11) % 9].into_iter().collect(), state >> 30, u64::from(state >> 18));
            let row = Row { quasi, sensitive, label, subject, ..Row::default() };
            rows.push(Position::new(0, i as i64), Millis(0), &row);
        }
        let new = || {
            let of_subjects = vec![Facet::Sensitive(0)];
            let counting = Counting { subjects, facets: facets.to_vec(), of_subjects };
            FinestCounts::<K>::new(Layout::new(&sizes).unwrap(), counting)
        };
        let (mut at_once, mut one_by_one) = (new(), new());
        for range in [0..2 * WORTH_SORTING, 2 * WORTH_SORTING..3 * WORTH_SORTING] {
            at_once.add_all(&rows, range.clone());
            range.clone().for_each(|i| one_by_one.add(&rows, i));
            assert_eq!(counts(&at_once), counts(&one_by_one));
            at_once.retract_all(&rows, &range.clone().step_by(3).collect::<Vec<_>>());
            range.clone().step_by(3).for_each(|i| one_by_one.retract(&rows, i));
            assert_eq!(counts(&at_once), counts(&one_by_one));
        }
    }

    #[test]
    fn many_rows_at_once_count_as_one_by_one() {
        let facets = [Facet::Sensitive(0), Facet::Label, Facet::Profile];
        for counted in [&facets[..0], &facets[..1], &facets[1..2], &facets] {
            at_once_is_one_by_one::<u32>([40, 300], false, counted);
            at_once_is_one_by_one::<u64>([1 << 20, 1 << 16], false, counted);
            at_once_is_one_by_one::<u64>([1 << 30, 1 << 32], false, counted);
            at_once_is_one_by_one::<[u64; 4]>([1 << 31, 1 << 40], false, counted);
            at_once_is_one_by_one::<u32>([40, 300], true, counted);
        }
    }
}
