//! Facets: one histogram per class for each column that a criterion or a loss looks at inside a class.
//!
//! A rollup merges histograms when they are first asked for ([`Facets::Later`]), because most nodes that a search counts fail by
//! the sizes of their classes alone.
//! Invariant: within a class the codes of a histogram ascend, and no code occurs twice.

use std::sync::{Arc, OnceLock};

use super::subjects::{GONE, Subjects};
use crate::model::domain::Code;

/// One facet's histograms, class by class. Within a class codes are ascending.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FacetCounts {
    pub(crate) starts: Vec<u32>,
    pub(crate) codes: Vec<Code>,
    /// Distinct subjects (or records) per entry.
    pub(crate) counts: Vec<u32>,
    /// Present only when subjects are counted; its slots are the entries.
    pub(crate) subjects: Option<Subjects>,
}

impl FacetCounts {
    /// Of entries with their class, code and number, numbers being less than `numbers`; `records` tells how many records an entry has.
    /// Returns with them the slot of each entry.
    pub(crate) fn of(
        classes: usize,
        entries: impl Iterator<Item = (u32, Code, u32)> + Clone,
        numbers: usize,
        records: impl Fn(u32) -> u32,
    ) -> (Self, Vec<u32>) {
        // Class by class: counted into place, then sorted where they are few.
        let mut ends = vec![0u32; classes + 1];
        entries.clone().for_each(|(class, ..)| ends[class as usize + 1] += 1);
        (1..ends.len()).for_each(|class| ends[class] += ends[class - 1]);
        let mut order: Vec<(Code, u32)> = vec![(0, 0); ends[classes] as usize];
        for (class, code, entry) in entries {
            let at = &mut ends[class as usize];
            order[*at as usize] = (code, entry);
            *at += 1;
        }
        let mut counts = Self { starts: vec![0], ..Self::default() };
        let mut slot_of = vec![GONE; numbers];
        let mut first = 0;
        for &end in &ends[..classes] {
            let class = &mut order[first..end as usize];
            class.sort_unstable();
            for same in class.chunk_by(|a, b| a.0 == b.0) {
                same.iter().for_each(|&(_, entry)| slot_of[entry as usize] = counts.codes.len() as u32);
                counts.codes.push(same[0].0);
                counts.counts.push(same.iter().map(|&(_, entry)| records(entry)).sum());
            }
            counts.starts.push(counts.codes.len() as u32);
            first = end as usize;
        }
        (counts, slot_of)
    }

    /// Counts subjects and not records; their slots are the entries.
    pub(crate) fn count_subjects(&mut self, subjects: Subjects) {
        self.counts = subjects.totals();
        self.subjects = Some(subjects);
    }

    /// The entries of one class.
    pub(crate) fn range(&self, class: usize) -> std::ops::Range<usize> {
        self.starts[class] as usize..self.starts[class + 1] as usize
    }
}

/// The histograms of a set, one [`FacetCounts`] per facet.
#[derive(Debug)]
pub(crate) enum Facets {
    /// Merged with the classes.
    Now(Vec<FacetCounts>),
    /// To be merged when first asked for.
    Later(Box<Later>),
}

/// What histograms are to be merged from.
#[derive(Debug)]
pub(crate) struct Later {
    finer: Arc<Facets>,
    /// For each class of `finer` the one it is part of.
    class_of: Arc<Vec<u32>>,
    classes: usize,
    merged: OnceLock<Vec<FacetCounts>>,
}

impl Default for Facets {
    fn default() -> Self {
        Self::Now(Vec::new())
    }
}

impl Facets {
    /// True if anything is counted inside the classes.
    pub(crate) fn any(&self) -> bool {
        match self {
            Self::Now(facets) => !facets.is_empty(),
            Self::Later(_) => true,
        }
    }

    /// The same histograms of coarser classes: finer class i is part of `class_of[i]`.
    pub(crate) fn merged_later(self: &Arc<Self>, class_of: &Arc<Vec<u32>>, classes: usize) -> Arc<Self> {
        if !self.any() {
            return Arc::default();
        }
        let later = Later { finer: Arc::clone(self), class_of: Arc::clone(class_of), classes, merged: OnceLock::new() };
        Arc::new(Self::Later(Box::new(later)))
    }

    /// About how many bytes they hold.
    pub(crate) fn bytes(&self) -> usize {
        let counts = match self {
            Self::Now(facets) => facets.iter().map(|facet| facet.codes.len()).sum::<usize>() * 2,
            Self::Later(later) => later.class_of.len(),
        };
        counts * size_of::<u32>()
    }

    /// One [`FacetCounts`] per facet.
    pub(crate) fn get(&self) -> &[FacetCounts] {
        match self {
            Self::Now(facets) => facets,
            Self::Later(later) => {
                later.merged.get_or_init(|| merge_facets(later.finer.get(), &later.class_of, later.classes))
            }
        }
    }
}

/// Merges the histograms of classes that became one.
pub(crate) fn merge_facets(finer: &[FacetCounts], class_of: &[u32], classes: usize) -> Vec<FacetCounts> {
    if finer.is_empty() {
        return Vec::new();
    }
    let parts = Parts::new(class_of, classes);
    finer.iter().map(|facet| merge_facet(facet, &parts, classes)).collect()
}

/// The finer classes of each class.
struct Parts {
    starts: Vec<u32>,
    classes: Vec<u32>,
}

impl Parts {
    fn new(class_of: &[u32], classes: usize) -> Self {
        let mut starts = vec![0u32; classes + 1];
        for &class in class_of.iter().filter(|class| **class != GONE) {
            starts[class as usize + 1] += 1;
        }
        (1..starts.len()).for_each(|i| starts[i] += starts[i - 1]);
        let mut next = starts.clone();
        let mut parts = vec![0u32; starts[classes] as usize];
        for (finer, &class) in class_of.iter().enumerate().filter(|(_, class)| **class != GONE) {
            parts[next[class as usize] as usize] = finer as u32;
            next[class as usize] += 1;
        }
        Self { starts, classes: parts }
    }

    fn of(&self, class: usize) -> &[u32] {
        &self.classes[self.starts[class] as usize..self.starts[class + 1] as usize]
    }
}

/// With more codes than this a class has a few of very many, and they are sorted; with fewer they are read off a bit each.
/// Larger reads many empty words per class, smaller sorts what a few words would tell.
const WIDE: usize = 1 << 12;

fn merge_facet(finer: &FacetCounts, parts: &Parts, classes: usize) -> FacetCounts {
    let codes = finer.codes.iter().max().map_or(0, |&most| most as usize + 1);
    let mut counts = vec![0u32; codes];
    let mut present = vec![0u64; codes.min(WIDE).div_ceil(64)];
    let mut occurring: Vec<Code> = Vec::new();
    let mut entry_of = vec![GONE; if finer.subjects.is_some() { finer.codes.len() } else { 0 }];
    let mut merged = FacetCounts { starts: vec![0], ..FacetCounts::default() };
    merged.codes.reserve(finer.codes.len() / 2);
    merged.counts.reserve(finer.codes.len() / 2);
    for class in 0..classes {
        let entries = || parts.of(class).iter().flat_map(|&part| finer.range(part as usize));
        for entry in entries() {
            let code = finer.codes[entry] as usize;
            if codes > WIDE && counts[code] == 0 {
                occurring.push(code as Code);
            } else if codes <= WIDE {
                present[code / 64] |= 1 << (code % 64);
            }
            counts[code] += finer.counts[entry];
        }
        occurring.sort_unstable();
        for (word, bits) in present.iter_mut().enumerate() {
            while *bits != 0 {
                occurring.push((word * 64) as Code + bits.trailing_zeros());
                *bits &= *bits - 1;
            }
        }
        for code in occurring.drain(..) {
            merged.codes.push(code);
            merged.counts.push(counts[code as usize]);
            // With subjects, from here on the entry that the code has become.
            counts[code as usize] = if finer.subjects.is_some() { merged.codes.len() as u32 - 1 } else { 0 };
        }
        if finer.subjects.is_some() {
            entries().for_each(|entry| entry_of[entry] = counts[finer.codes[entry] as usize]);
            entries().for_each(|entry| counts[finer.codes[entry] as usize] = 0);
        }
        merged.starts.push(merged.codes.len() as u32);
    }
    if let Some(subjects) = &finer.subjects {
        merged.count_subjects(subjects.merge(&entry_of, merged.codes.len()));
    }
    merged
}
