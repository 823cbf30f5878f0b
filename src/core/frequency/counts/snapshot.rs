//! The counts as they are now, as a frequency set: classes, distinct subjects, histograms.

use std::sync::Arc;

use super::entries::Entry;
use super::finest_counts::FinestCounts;
use crate::frequency::key::ClassKey;
use crate::frequency::set::{FacetCounts, Facets, FrequencySet, Origin, Subjects};
use crate::model::domain::Code;
use crate::model::lattice::Node;

impl<K: ClassKey> FinestCounts<K> {
    /// The counts as they are now, as the frequency set of `bottom` (all levels 0).
    pub(crate) fn snapshot(&self, bottom: Node) -> FrequencySet<K> {
        let tuple_rows = self.by_tuple();
        // Tuples whose rows have all gone leave no class behind.
        let mut class_of = vec![u32::MAX; self.len()];
        let (mut keys, mut rows) = (Vec::new(), Vec::new());
        for (tuple, &count) in tuple_rows.iter().enumerate().filter(|(_, count)| **count > 0) {
            class_of[tuple] = keys.len() as u32;
            keys.push(self.tuples.keys()[tuple]);
            rows.push(count);
        }
        let class_of_entry = |entry: Entry| class_of[self.entries.tuple(entry) as usize];
        let subjects = self.counting.subjects.then(|| self.subjects_over(keys.len(), class_of_entry));
        let sizes = subjects.as_ref().map(Subjects::totals);
        let facets = (0..self.counting.facets.len()).map(|f| self.facet(f, keys.len(), class_of_entry)).collect();
        FrequencySet { sizes, subjects, facets: Arc::new(Facets::Now(facets)), ..self.set_of(bottom, keys, rows) }
    }

    /// The counts as the finest set of so many attributes. Where every tuple still has rows and nothing but records is counted, they
    /// become the set without a copy.
    pub(crate) fn into_set(self, attributes: usize) -> FrequencySet<K> {
        let bottom = Node::new((0..attributes).map(|_| 0));
        if !self.is_plain() || self.rows.contains(&0) {
            return self.snapshot(bottom);
        }
        let Self { layout, tuples, rows, .. } = self;
        let fields = layout.fields().to_vec();
        FrequencySet::of_records(bottom, Origin::Scanned, fields, tuples.into_keys(), rows)
    }

    /// A set of these classes that counts nothing but records.
    fn set_of(&self, bottom: Node, keys: Vec<K>, rows: Vec<u32>) -> FrequencySet<K> {
        FrequencySet::of_records(bottom, Origin::Scanned, self.layout.fields().to_vec(), keys, rows)
    }

    /// Records by tuple.
    pub(crate) fn by_tuple(&self) -> Vec<u32> {
        let mut by_tuple = vec![0u32; self.len()];
        for (entry, &count) in self.rows.iter().enumerate() {
            by_tuple[self.entries.tuple(entry as Entry) as usize] += count;
        }
        by_tuple
    }

    /// Counts each subject once per slot that its entries map to.
    fn subjects_over(&self, slots: usize, slot_of: impl Fn(Entry) -> u32) -> Subjects {
        let mut subjects = Subjects::new(slots);
        let mut list = Vec::new();
        for entries in self.members.values() {
            list.clear();
            list.extend(entries.iter().map(|(entry, _)| slot_of(*entry)));
            subjects.add(&mut list);
        }
        subjects
    }

    fn facet(&self, facet: usize, classes: usize, class_of: impl Fn(Entry) -> u32) -> FacetCounts {
        let present = || (0..self.rows.len() as Entry).filter(|&e| self.rows[e as usize] > 0);
        // Class by class: counted into place, then sorted where they are few.
        let mut ends = vec![0u32; classes + 1];
        present().for_each(|e| ends[class_of(e) as usize + 1] += 1);
        (1..ends.len()).for_each(|class| ends[class] += ends[class - 1]);
        let mut order: Vec<(u32, Code, Entry)> = vec![(0, 0, 0); ends[classes] as usize];
        for e in present() {
            let class = class_of(e);
            let at = &mut ends[class as usize];
            order[*at as usize] = (class, self.entries.code(e, facet), e);
            *at += 1;
        }
        let mut first = 0;
        for &end in &ends[..classes] {
            order[first..end as usize].sort_unstable();
            first = end as usize;
        }
        let mut counts = FacetCounts::default();
        let mut slot_of = vec![u32::MAX; self.rows.len()];
        let mut last = None;
        for &(class, code, entry) in &order {
            if last != Some((class, code)) {
                counts.starts.resize(class as usize + 1, counts.codes.len() as u32);
                counts.codes.push(code);
                counts.counts.push(0);
                last = Some((class, code));
            }
            let slot = counts.codes.len() - 1;
            slot_of[entry as usize] = slot as u32;
            counts.counts[slot] += self.rows[entry as usize];
        }
        counts.starts.resize(classes + 1, counts.codes.len() as u32);
        if self.counting.subjects && self.counting.facets[facet].of_subjects() {
            let subjects = self.subjects_over(counts.codes.len(), |e| slot_of[e as usize]);
            counts.counts = subjects.totals();
            counts.subjects = Some(subjects);
        }
        counts
    }
}
