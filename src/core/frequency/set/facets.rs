//! Facets: one histogram per class for each column that a criterion or a loss looks at inside a class.
//!
//! A rollup merges histograms when they are first asked for, because most nodes that a search counts fail by the sizes of their
//! classes alone, and most of the others need only know which codes there are ([`Occurring`]).
//! Invariant: within a class the codes of a histogram ascend, and no code occurs twice.

use std::sync::{Arc, OnceLock};

use super::subjects::{Finer, GONE, Subjects};
use crate::model::counting::NO_VALUE;
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

/// The histograms of a set, one [`FacetCounts`] per facet, and which codes occur.
#[derive(Debug, Default)]
pub(crate) struct Facets {
    /// What they are to be merged from; `None` if they were counted.
    from: Option<Finer<Self>>,
    counts: OnceLock<Vec<FacetCounts>>,
    /// By facet; `None` for one of too many codes.
    occurring: OnceLock<Vec<Option<Occurring>>>,
}

impl Facets {
    /// Histograms that were counted.
    pub(crate) fn counted(counts: Vec<FacetCounts>) -> Arc<Self> {
        Arc::new(Self { counts: OnceLock::from(counts), ..Self::default() })
    }

    /// True if anything is counted inside the classes.
    pub(crate) fn any(&self) -> bool {
        self.from.is_some() || self.counts.get().is_some_and(|counts| !counts.is_empty())
    }

    /// The same histograms of coarser classes: finer class i is part of `class_of[i]`.
    pub(crate) fn merged_later(self: &Arc<Self>, class_of: &Arc<Vec<u32>>, classes: usize) -> Arc<Self> {
        if !self.any() {
            return Arc::default();
        }
        let from = Finer { counts: Arc::clone(self), class_of: Arc::clone(class_of), classes };
        Arc::new(Self { from: Some(from), ..Self::default() })
    }

    /// About how many bytes they hold.
    pub(crate) fn bytes(&self) -> usize {
        let counts = match &self.from {
            Some(from) => from.class_of.len(),
            None => self.get().iter().map(|facet| facet.codes.len()).sum::<usize>() * 2,
        };
        counts * size_of::<u32>()
    }

    /// One [`FacetCounts`] per facet.
    pub(crate) fn get(&self) -> &[FacetCounts] {
        let merge = |from: &Finer<Self>| merge_facets(from.counts.get(), &from.class_of, from.classes);
        self.counts.get_or_init(|| self.from.as_ref().map(merge).unwrap_or_default())
    }

    /// The codes of a facet that occur in each class; `None` where there are too many of them.
    pub(crate) fn occurring(&self, facet: usize) -> Option<&Occurring> {
        self.all_occurring().get(facet)?.as_ref()
    }

    fn all_occurring(&self) -> &[Option<Occurring>] {
        self.occurring.get_or_init(|| match (self.counts.get(), &self.from) {
            (None, Some(Finer { counts, class_of, classes })) => {
                let merged = |finer: &Option<Occurring>| Some(finer.as_ref()?.merged(class_of, *classes));
                counts.all_occurring().iter().map(merged).collect()
            }
            (counts, _) => counts.into_iter().flatten().map(Occurring::of).collect(),
        })
    }
}

/// The codes that occur in each class, a bit for each code. They merge many times as fast as histograms, and most criteria that look
/// into a class only ask how many there are.
#[derive(Debug)]
pub(crate) struct Occurring {
    /// Words per class.
    words: usize,
    bits: Vec<u64>,
}

/// The most words per class. More take longer to merge than histograms of few codes; fewer leave fields of many values to those.
const MOST_WORDS: usize = 8;

impl Occurring {
    fn of(facet: &FacetCounts) -> Option<Self> {
        let words = facet.codes.iter().max().map_or(1, |&most| most as usize / 64 + 1);
        let classes = facet.starts.len() - 1;
        (words <= MOST_WORDS).then(|| {
            let mut bits = vec![0u64; classes * words];
            for (class, bits) in bits.chunks_exact_mut(words).enumerate() {
                facet.codes[facet.range(class)].iter().for_each(|code| bits[*code as usize / 64] |= 1 << (code % 64));
            }
            Self { words, bits }
        })
    }

    /// Those of coarser classes: finer class i is part of `class_of[i]`.
    fn merged(&self, class_of: &[u32], classes: usize) -> Self {
        let words = self.words;
        let mut bits = vec![0u64; classes * words];
        if words == 1 {
            for (finer, &class) in self.bits.iter().zip(class_of) {
                // What is left out has no place.
                bits.get_mut(class as usize).into_iter().for_each(|coarser| *coarser |= finer);
            }
            return Self { words, bits };
        }
        for (finer, &class) in self.bits.chunks_exact(words).zip(class_of).filter(|(_, class)| **class != GONE) {
            let coarser = &mut bits[class as usize * words..][..words];
            coarser.iter_mut().zip(finer).for_each(|(coarser, finer)| *coarser |= finer);
        }
        Self { words, bits }
    }

    /// How many different values each class has; no value is none.
    pub(crate) fn values(&self) -> impl Iterator<Item = u32> {
        const { assert!(NO_VALUE == 0) };
        self.bits
            .chunks_exact(self.words)
            .map(|bits| bits.iter().map(|word| word.count_ones()).sum::<u32>() - (bits[0] & 1) as u32)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::counting::Histogram;

    proptest! {
        /// Of few codes or of many, and merged before or after the histograms are.
        #[test]
        fn values_are_those_of_the_histograms(
            entries in prop::collection::vec((0u32..9, 0u32..70), 0..60),
            factor in prop_oneof![Just(1u32), Just(7)],
            map in prop::collection::vec(prop_oneof![4 => 0u32..4, 1 => Just(GONE)], 9),
            histograms_first in any::<bool>(),
        ) {
            let numbered = (0..).zip(&entries).map(|(entry, &(class, code))| (class, code * factor, entry));
            let (counts, _) = FacetCounts::of(9, numbered, entries.len(), |_| 1);
            let finer = Facets::counted(vec![counts]);
            let coarser = finer.merged_later(&Arc::new(map), 4);
            if histograms_first {
                coarser.get();
            }
            for (facets, classes) in [(&coarser, 4), (&finer, 9)] {
                let facet = &facets.get()[0];
                let values = |class: usize| {
                    let range = facet.range(class);
                    Histogram { codes: &facet.codes[range.clone()], counts: &facet.counts[range] }.values().codes.len() as u32
                };
                let expected: Vec<u32> = (0..classes).map(values).collect();
                prop_assert_eq!(facets.occurring(0).unwrap().values().collect::<Vec<u32>>(), expected);
            }
        }
    }

    #[test]
    fn very_many_codes_are_left_to_the_histograms() {
        let entries = [(0, 64 * MOST_WORDS as Code, 0)];
        let facets = Facets::counted(vec![FacetCounts::of(1, entries.into_iter(), 1, |_| 1).0]);
        let coarser = facets.merged_later(&Arc::new(vec![0]), 1);
        assert!(facets.occurring(0).is_none() && coarser.occurring(0).is_none() && coarser.occurring(1).is_none());
    }
}
