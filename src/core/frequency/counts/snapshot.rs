//! The counts as they are now, as a frequency set: classes, distinct subjects, histograms.

use super::entries::Entry;
use super::finest_counts::FinestCounts;
use crate::frequency::key::ClassKey;
use crate::frequency::set::{FacetCounts, Facets, FrequencySet, People, Subjects};
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
        let facets = (0..self.counting.facets.len()).map(|f| self.facet(f, keys.len(), class_of_entry)).collect();
        let fields = self.layout.fields().to_vec();
        let records = FrequencySet::of_records(bottom, fields, keys, rows);
        FrequencySet { people: subjects.map(People::counted), facets: Facets::counted(facets), ..records }
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
        let present = (0..self.rows.len() as Entry).filter(|&entry| self.rows[entry as usize] > 0);
        let entries = present.map(|entry| (class_of(entry), self.entries.code(entry, facet), entry));
        let (mut counts, slot_of) =
            FacetCounts::of(classes, entries, self.rows.len(), |entry| self.rows[entry as usize]);
        if self.counting.counts_subjects_in(self.counting.facets[facet]) {
            counts.count_subjects(self.subjects_over(counts.codes.len(), |entry| slot_of[entry as usize]));
        }
        counts
    }
}
