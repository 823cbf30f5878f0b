//! A full count of rows that nothing comes to and nothing leaves any more: they are sorted, not looked up, and nothing but the classes
//! is kept.
//!
//! Invariant: the set equals the snapshot of [`FinestCounts`](super::FinestCounts) to which the same rows were added.

use super::sorted::{counted, sorted, together};
use crate::frequency::key::{ClassKey, Layout};
use crate::frequency::set::{FacetCounts, Facets, FrequencySet, People, Subjects};
use crate::model::batch::Rows;
use crate::model::counting::{Counting, Facet};
use crate::model::lattice::Node;

/// The frequency set of the finest node.
pub(crate) fn scan<K: ClassKey>(rows: &Rows, layout: &Layout, counting: &Counting) -> FrequencySet<K> {
    let mut keys: Vec<K> = Vec::with_capacity(rows.len());
    while keys.len() < rows.len() && !layout.fields().is_empty() {
        layout.pack_rows(rows.quasi_from(keys.len()), &mut keys);
    }
    // Without attributes all rows are one class.
    keys.resize(rows.len(), K::ZERO);
    let records = |keys: Vec<K>, counts: Vec<u32>| {
        let fields = layout.fields().to_vec();
        FrequencySet::of_records(Node::new(fields.iter().map(|_| 0)), fields, keys, counts)
    };
    if counting.facets.is_empty() && !counting.subjects {
        let (keys, counts) = counted(&sorted(keys, layout.bits(), |key| *key));
        return records(keys, counts);
    }
    let (keys, counts, class_of) = classes(keys, layout.bits());
    let people = if counting.subjects { by_subject(rows) } else { Vec::new() };
    let subjects = counting.subjects.then(|| subjects_over(keys.len(), &people, &class_of));
    let facet = |&facet: &Facet| {
        let entries = class_of.iter().zip(0..).map(|(&class, i)| (class, facet.code(rows, i as usize), i));
        let (mut counts, slot_of) = FacetCounts::of(keys.len(), entries, rows.len(), |_| 1);
        if counting.counts_subjects_in(facet) {
            counts.count_subjects(subjects_over(counts.codes.len(), &people, &slot_of));
        }
        counts
    };
    let facets = Facets::counted(counting.facets.iter().map(facet).collect());
    FrequencySet { people: subjects.map(People::counted), facets, ..records(keys, counts) }
}

/// The different keys, how often each occurs, and for each key which one it is.
fn classes<K: ClassKey>(keys: Vec<K>, bits: Option<u32>) -> (Vec<K>, Vec<u32>, Vec<u32>) {
    let mut class_of = vec![0; keys.len()];
    let pairs = sorted(keys.into_iter().zip(0u32..).collect(), bits, |(key, _)| *key);
    let (mut all, mut counts) = (Vec::new(), Vec::new());
    for same in pairs.chunk_by(|a: &(K, u32), b| a.0 == b.0) {
        same.iter().for_each(|&(_, i)| class_of[i as usize] = all.len() as u32);
        all.push(same[0].0);
        counts.push(same.len() as u32);
    }
    (all, counts, class_of)
}

/// The subjects of the rows with the rows' numbers, those of one subject together.
fn by_subject(rows: &Rows) -> Vec<(u64, u32)> {
    together((0..rows.len()).map(|i| (rows.subject(i), i as u32)).collect(), |(subject, _)| *subject)
}

/// Counts each subject once per slot that its rows have.
fn subjects_over(slots: usize, people: &[(u64, u32)], slot_of: &[u32]) -> Subjects {
    let mut subjects = Subjects::new(slots);
    let mut list = Vec::new();
    for rows in people.chunk_by(|a, b| a.0 == b.0) {
        list.clear();
        list.extend(rows.iter().map(|&(_, i)| slot_of[i as usize]));
        subjects.add(&mut list);
    }
    subjects
}
