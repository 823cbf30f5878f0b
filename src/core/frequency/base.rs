//! The base set: counts at the finest node, kept up to date as rows come ([`BaseSet::add`]) and go
//! ([`BaseSet::retract`]). A snapshot is what a search starts from.
//!
//! Invariant: after any sequence of adds and retracts the snapshot equals one built from the remaining rows alone.

mod followed;
mod snapshot;

use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::changes::Belongings;
use super::deferred::Deferred;
use super::entries::{Entries, Entry};
use super::epoch::Epoch;
use super::index::Index;
use super::key::{Key, Layout};
use super::sorted;
use super::store::FrequencyStore;
use super::warm::{Tuples, Warm};
use crate::model::batch::Rows;
use crate::model::counting::{Counting, Facet};
use crate::model::domain::{Code, DomainView};
use crate::model::lattice::Node;

/// How many rows are packed at a time. More do not fit the nearest cache, fewer start over too often.
const BATCH: usize = 512;

/// From how many rows on they are counted by sorting, where nothing was counted before. Fewer cost more to sort than to look up.
const WORTH_SORTING: usize = 1 << 12;

/// Counts at the finest node, incrementally.
pub struct BaseSet<K> {
    layout: Layout,
    counting: Counting,
    tuples: Index<K>,
    entries: Entries,
    /// By entry.
    rows: Vec<u32>,
    /// Only filled when subjects are counted: each subject's entries with their records.
    members: FxHashMap<u64, Belongings>,
    /// Only where nothing but records is counted, and once somebody has searched.
    warm: Mutex<Option<Warm<K>>>,
    /// The same where more is counted.
    epoch: Mutex<Option<Epoch<K>>>,
    warm_memory: usize,
}

/// How many bytes of sets are kept from one store to the next, if nobody says. Larger costs memory; smaller rolls more of
/// them up again.
pub const DEFAULT_WARM_MEMORY: usize = 64 << 20;

impl<K: Key> BaseSet<K> {
    /// Nothing counted yet.
    pub fn new(layout: Layout, counting: Counting) -> Self {
        Self {
            layout,
            tuples: Index::new(),
            entries: Entries::new(counting.facets.len()),
            counting,
            rows: Vec::new(),
            members: FxHashMap::default(),
            warm: Mutex::new(None),
            epoch: Mutex::new(None),
            warm_memory: DEFAULT_WARM_MEMORY,
        }
    }

    /// Keeps at most so many bytes of sets from one store to the next.
    pub(super) fn remember_within(&mut self, bytes: usize) {
        self.warm_memory = bytes;
    }

    /// A store over the counts as they are now, with what was asked of the last one.
    pub(super) fn store_of(&self, domains: &[Arc<DomainView>]) -> Arc<FrequencyStore<K>> {
        if !self.is_plain() {
            let mut epoch = self.epoch.lock().unwrap_or_else(PoisonError::into_inner);
            return Epoch::next(&mut epoch, self, domains, self.warm_memory);
        }
        let bottom = Node::new(domains.iter().map(|_| 0));
        let mut warm = self.warm.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Tuples { keys: self.tuples.keys(), rows: &self.rows, layout: &self.layout };
        if let Some(store) =
            warm.as_mut().and_then(|warm| warm.advance(&now, bottom.clone(), domains, self.warm_memory))
        {
            return store;
        }
        let finest = Deferred::made(self.snapshot(bottom));
        let store = Arc::new(FrequencyStore::new(finest, self.layout.clone(), domains.to_vec()));
        *warm = Some(Warm::after(Arc::clone(&store), &now));
        store
    }

    /// The last store over these counts: nothing is kept for another, and where every tuple still has rows, the counts
    /// themselves become the finest set.
    pub(super) fn last_store(mut self, domains: &[Arc<DomainView>]) -> Arc<FrequencyStore<K>> {
        let bottom = Node::new(domains.iter().map(|_| 0));
        let finest = match self.is_plain() && !self.rows.contains(&0) {
            true => {
                let (tuples, rows) =
                    (std::mem::replace(&mut self.tuples, Index::new()), std::mem::take(&mut self.rows));
                self.set_of(bottom, tuples.into_keys(), rows)
            }
            false => self.snapshot(bottom),
        };
        Arc::new(FrequencyStore::new(Deferred::made(finest), self.layout, domains.to_vec()))
    }

    /// True if nothing but records is counted.
    fn is_plain(&self) -> bool {
        self.counting.facets.is_empty() && !self.counting.subjects
    }

    /// One record more or less of a tuple, for whoever follows.
    #[inline]
    fn changed(&mut self, tuple: Entry, by: i32) {
        let rows = self.rows[tuple as usize];
        if let Some(warm) = self.warm.get_mut().unwrap_or_else(PoisonError::into_inner) {
            warm.change(tuple, by, rows);
        }
    }

    /// Counts rows `range` of `rows`.
    pub fn add_all(&mut self, rows: &Rows, range: std::ops::Range<usize>) {
        let followed = self.warm.get_mut().unwrap_or_else(PoisonError::into_inner).is_some();
        if followed {
            self.change_all(rows, range, 1);
            return;
        }
        if self.is_empty() && range.len() >= WORTH_SORTING && self.add_sorted(rows, range.clone()) {
            return;
        }
        if !self.is_plain() {
            range.for_each(|i| self.add(rows, i));
            return;
        }
        let mut batch: Vec<K> = Vec::with_capacity(BATCH);
        let end = range.end;
        for first in range.step_by(BATCH) {
            batch.clear();
            self.layout.pack_rows(rows.quasi_of(first..end.min(first + BATCH)), &mut batch);
            self.tuples.count(&batch, &mut self.rows);
        }
    }

    /// Counts rows by sorting them, where nothing was counted before; false if what tells them apart does not fit a word, or subjects
    /// are counted.
    fn add_sorted(&mut self, rows: &Rows, range: std::ops::Range<usize>) -> bool {
        let Some(bits) = self.layout.bits().filter(|_| !self.counting.subjects) else { return false };
        if self.is_plain() {
            let mut keys = Vec::with_capacity(range.len());
            self.layout.pack_rows::<K>(rows.quasi_of(range), &mut keys);
            let (keys, counts) = sorted::counted(keys, bits);
            (self.tuples, self.rows) = (Index::of(keys), counts);
            return true;
        }
        let facets = &self.counting.facets;
        let codes = |facet: Facet| range.clone().map(move |i| facet.code(rows, i));
        let width = |&facet: &Facet| codes(facet).max().map_or(0, |most| Code::BITS - most.leading_zeros());
        let widths: SmallVec<[u32; 4]> = facets.iter().map(width).collect();
        let below: u32 = widths.iter().sum();
        if bits + below > u64::BITS {
            return false;
        }
        // The tuple above, then the facets from the first to the last.
        let mut keys: Vec<u64> = Vec::with_capacity(range.len());
        self.layout.pack_rows(rows.quasi_of(range.clone()), &mut keys);
        for (&facet, width) in facets.iter().zip(&widths) {
            keys.iter_mut().zip(codes(facet)).for_each(|(key, code)| *key = *key << width | u64::from(code));
        }
        let (keys, counts) = sorted::counted(keys, bits + below);
        let mut tuples: Vec<u64> = Vec::new();
        let parts = keys.into_iter().map(|key| {
            let tuple = key >> below;
            if tuples.last() != Some(&tuple) {
                tuples.push(tuple);
            }
            let mut shift = below;
            let code = |width: &u32| {
                shift -= width;
                (key >> shift & ((1 << width) - 1)) as Code
            };
            (tuples.len() as u32 - 1, widths.iter().map(code).collect())
        });
        self.entries = Entries::ascending(facets.len(), parts);
        self.rows = counts;
        self.tuples = Index::of(tuples.into_iter().map(K::of_word).collect());
        true
    }

    /// Takes rows of `rows`, which were added before, out again.
    pub fn retract_all(&mut self, rows: &Rows, indices: &[usize]) {
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
                self.rows[tuple as usize] = self.rows[tuple as usize].wrapping_add_signed(by);
                self.changed(tuple, by);
            }
        }
    }

    /// Counts row i of `rows`.
    pub fn add(&mut self, rows: &Rows, i: usize) {
        let entry = self.entry(rows, i);
        self.touch(rows, i, entry);
        self.rows[entry as usize] += 1;
        self.changed(entry, 1);
        if self.counting.subjects {
            let entries = self.members.entry(rows.subject(i)).or_default();
            match entries.iter_mut().find(|(e, _)| *e == entry) {
                Some((_, count)) => *count += 1,
                None => entries.push((entry, 1)),
            }
        }
    }

    /// Takes row i of `rows`, which was added before, out again.
    pub fn retract(&mut self, rows: &Rows, i: usize) {
        let entry = self.entry(rows, i);
        self.touch(rows, i, entry);
        self.rows[entry as usize] -= 1;
        self.changed(entry, -1);
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

    /// How its keys are laid out.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Distinct tuples ever counted since the set was made: a measure of its memory.
    pub fn len(&self) -> usize {
        self.tuples.keys().len()
    }

    /// True if nothing was ever counted.
    pub fn is_empty(&self) -> bool {
        self.tuples.keys().is_empty()
    }

    fn entry(&mut self, rows: &Rows, i: usize) -> Entry {
        let codes: SmallVec<[Code; 4]> = self.counting.facets.iter().map(|f| f.code(rows, i)).collect();
        self.numbered(self.layout.pack(rows.quasi(i)), codes.iter().copied())
    }

    fn numbered(&mut self, key: K, codes: impl Iterator<Item = Code> + Clone) -> Entry {
        let tuple = self.tuples.number(key);
        let entry = self.entries.number(tuple, codes);
        if entry as usize == self.rows.len() {
            self.rows.push(0);
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frequency::set::Classes;
    use crate::model::batch::Row;
    use crate::model::counting::Histogram;
    use crate::model::event::{Millis, Position};

    /// One per facet.
    type Histograms = Vec<Vec<(Code, u32)>>;

    /// Tuples with their records and histograms, sorted.
    fn counts<K: Key>(base: &BaseSet<K>) -> Vec<(K, u32, Histograms)> {
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
    fn at_once_is_one_by_one<K: Key>(sizes: [usize; 2], subjects: bool, facets: &[Facet]) {
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
            let counting = Counting { subjects, facets: facets.to_vec() };
            BaseSet::<K>::new(Layout::new(&sizes).unwrap(), counting)
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
            at_once_is_one_by_one::<u128>([1 << 31, 1 << 40], false, counted);
            at_once_is_one_by_one::<u32>([40, 300], true, counted);
        }
    }
}
