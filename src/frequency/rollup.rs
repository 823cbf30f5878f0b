//! Rollup: the frequency set of a coarser node as the sum of a finer one. Pure; never looks at a row.

use super::key::{Field, Key};
use super::set::{FacetCounts, FrequencySet, GONE, Origin, Seen};
use crate::model::domain::Code;
use crate::model::lattice::Node;

/// One attribute that changes: where its code lives, and the map from the finer level's codes to the coarser one's.
pub struct Step<'a> {
    /// The attribute's field.
    pub field: Field,
    /// The parent map, composed over all levels in between.
    pub map: &'a [Code],
}

/// Rolls `finer` up to `node`; `steps` holds the attributes whose level differs.
pub fn rollup<K: Key>(finer: &FrequencySet<K>, node: &Node, steps: &[Step<'_>]) -> FrequencySet<K> {
    let mut groups = Groups::with_capacity(finer.keys.len());
    let mut class_of = Vec::with_capacity(finer.keys.len());
    let mut rows: Vec<u32> = Vec::new();
    for (key, &count) in finer.keys.iter().zip(&finer.rows) {
        let mut key = *key;
        for step in steps {
            key.set(step.field, step.map[key.get(step.field) as usize]);
        }
        let class = groups.id(key);
        class_of.push(class);
        match rows.get_mut(class as usize) {
            Some(sum) => *sum += count,
            None => rows.push(count),
        }
    }
    merged(finer, node, groups.keys, rows, &class_of)
}

/// The published classes with the attributes that are not `known` made one.
pub(super) fn seen_by<K: Key>(set: &FrequencySet<K>, published: &[bool], known: &[usize]) -> Seen {
    let mut groups = Groups::with_capacity(set.keys.len());
    let mut class_of = vec![GONE; set.keys.len()];
    let mut rows: Vec<u32> = Vec::new();
    for (at, key) in set.keys.iter().enumerate().filter(|(at, _)| published[*at]) {
        let mut seen = K::ZERO;
        known.iter().for_each(|&attribute| seen.set(set.fields[attribute], key.get(set.fields[attribute])));
        let class = groups.id(seen);
        class_of[at] = class;
        match rows.get_mut(class as usize) {
            Some(sum) => *sum += set.rows[at],
            None => rows.push(set.rows[at]),
        }
    }
    Seen { classes: Box::new(merged(set, &set.node, groups.keys, rows, &class_of)), class_of }
}

fn merged<K: Key>(
    finer: &FrequencySet<K>,
    node: &Node,
    keys: Vec<K>,
    rows: Vec<u32>,
    class_of: &[u32],
) -> FrequencySet<K> {
    let subjects = finer.subjects.as_ref().map(|s| s.merge(class_of, rows.len()));
    let sizes = subjects.as_ref().map_or_else(|| rows.clone(), |s| s.totals());
    let facets = finer.facets.iter().map(|f| merge_facet(f, class_of, rows.len())).collect();
    FrequencySet {
        node: node.clone(),
        values: Vec::new(),
        origin: Origin::RolledUp,
        fields: finer.fields.clone(),
        keys,
        rows,
        sizes,
        subjects,
        facets,
    }
}

/// Numbers distinct keys in order of first appearance: a flat open-addressing table.
pub(super) struct Groups<K> {
    slots: Vec<u32>,
    shift: u32,
    keys: Vec<K>,
}

const EMPTY: u32 = u32::MAX;

impl<K: Key> Groups<K> {
    /// Room for `n` distinct keys at a load of at most one half.
    pub(super) fn with_capacity(n: usize) -> Self {
        let capacity = (n.max(8) * 2).next_power_of_two();
        Self { slots: vec![EMPTY; capacity], shift: 64 - capacity.trailing_zeros(), keys: Vec::new() }
    }

    /// The number of `key`, new or known.
    #[inline]
    pub(super) fn id(&mut self, key: K) -> u32 {
        let mask = self.slots.len() - 1;
        let mut at = (key.mix() >> self.shift) as usize;
        loop {
            match self.slots[at] {
                EMPTY => {
                    let id = self.keys.len() as u32;
                    self.slots[at] = id;
                    self.keys.push(key);
                    return id;
                }
                id if self.keys[id as usize] == key => return id,
                _ => at = (at + 1) & mask,
            }
        }
    }
}

/// Merges the histograms of classes that became one.
fn merge_facet(finer: &FacetCounts, class_of: &[u32], classes: usize) -> FacetCounts {
    // Sorting entry numbers by (class, code) makes equal entries neighbours and leaves codes ascending per class.
    let mut entries: Vec<(u32, Code, u32)> = Vec::with_capacity(finer.codes.len());
    for (class, window) in finer.starts.windows(2).enumerate().filter(|(class, _)| class_of[*class] != GONE) {
        for entry in window[0]..window[1] {
            entries.push((class_of[class], finer.codes[entry as usize], entry));
        }
    }
    entries.sort_unstable();
    let mut merged = FacetCounts::default();
    let mut entry_of = vec![GONE; finer.codes.len()];
    let mut last = None;
    for &(class, code, entry) in &entries {
        if last != Some((class, code)) {
            merged.starts.resize(class as usize + 1, merged.codes.len() as u32);
            merged.codes.push(code);
            merged.counts.push(0);
            last = Some((class, code));
        }
        let to = merged.codes.len() - 1;
        entry_of[entry as usize] = to as u32;
        merged.counts[to] += finer.counts[entry as usize];
    }
    merged.starts.resize(classes + 1, merged.codes.len() as u32);
    if let Some(subjects) = &finer.subjects {
        let subjects = subjects.merge(&entry_of, merged.codes.len());
        merged.counts = subjects.totals();
        merged.subjects = Some(subjects);
    }
    merged
}
