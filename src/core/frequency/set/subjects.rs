//! Distinct subjects over slots: the classes of a set, or the histogram entries of a facet.
//!
//! Distinct counts cannot be added up when slots merge, because one subject may have records in both. Subjects in one slot only are
//! a number per slot; a subject in several slots (a straddler) is listed with its slots, so that a merge counts it once.
//! A rollup merges the subjects of its classes when they are first asked for ([`People`]): most nodes that a search counts fail by the
//! records of their classes alone, for no class has more people than records.
//! Invariant: [`Subjects::totals`] counts every subject once per slot, after any sequence of merges.

use std::sync::{Arc, OnceLock};

/// In a map from slots to slots: the slot is left out.
pub const GONE: u32 = u32::MAX;

/// Lists of indices, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lists {
    starts: Vec<u32>,
    items: Vec<u32>,
}

impl Default for Lists {
    fn default() -> Self {
        Self { starts: vec![0], items: Vec::new() }
    }
}

impl Lists {
    pub(crate) fn push(&mut self, list: &[u32]) {
        self.items.extend_from_slice(list);
        self.starts.push(self.items.len() as u32);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u32]> {
        self.starts.windows(2).map(|w| &self.items[w[0] as usize..w[1] as usize])
    }
}

/// Counts of subjects over some slots (classes, or histogram entries): those in one slot only, and the straddlers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Subjects {
    pub(crate) single: Vec<u32>,
    pub(crate) straddlers: Lists,
}

impl Subjects {
    pub(crate) fn new(slots: usize) -> Self {
        Self { single: vec![0; slots], straddlers: Lists::default() }
    }

    /// Adds a subject that occurs in `slots`, which is sorted and deduplicated in place.
    pub(crate) fn add(&mut self, slots: &mut Vec<u32>) {
        slots.sort_unstable();
        slots.dedup();
        match slots.as_slice() {
            [] => {}
            [slot] => self.single[*slot as usize] += 1,
            several => self.straddlers.push(several),
        }
    }

    /// The same subjects after slot i became slot `map[i]`, or was left out if that is [`GONE`].
    pub(crate) fn merge(&self, map: &[u32], slots: usize) -> Self {
        let mut merged = Self::new(slots);
        for (&count, &to) in self.single.iter().zip(map).filter(|(_, to)| **to != GONE) {
            merged.single[to as usize] += count;
        }
        let mut list = Vec::new();
        for straddler in self.straddlers.iter() {
            // Most are in two slots, and then there is nothing to sort.
            if let &[one, other] = straddler {
                let (one, other) = (map[one as usize], map[other as usize]);
                match (one.min(other), one.max(other)) {
                    (GONE, _) => {}
                    (slot, last) if slot == last || last == GONE => merged.single[slot as usize] += 1,
                    (first, last) => merged.straddlers.push(&[first, last]),
                }
                continue;
            }
            list.clear();
            list.extend(straddler.iter().map(|&slot| map[slot as usize]).filter(|&to| to != GONE));
            merged.add(&mut list);
        }
        merged
    }

    /// What [`Subjects::totals`] are after [`Subjects::merge`], without listing anybody.
    pub(crate) fn merged_totals(&self, map: &[u32], slots: usize) -> Vec<u32> {
        // One place more, for the slots that are left out.
        let place = |slot: u32| (map[slot as usize] as usize).min(slots);
        let mut totals = vec![0; slots + 1];
        self.single.iter().zip(0..).for_each(|(&count, slot)| totals[place(slot)] += count);
        let mut list = Vec::new();
        for straddler in self.straddlers.iter() {
            if let &[one, other] = straddler {
                let (one, other) = (place(one), place(other));
                totals[one] += 1;
                totals[other] += u32::from(one != other);
                continue;
            }
            list.clear();
            list.extend(straddler.iter().map(|&slot| place(slot)));
            list.sort_unstable();
            list.dedup();
            list.iter().for_each(|&slot| totals[slot] += 1);
        }
        totals.truncate(slots);
        totals
    }

    /// Distinct subjects per slot.
    pub(crate) fn totals(&self) -> Vec<u32> {
        let mut totals = self.single.clone();
        for straddler in self.straddlers.iter() {
            for &slot in straddler {
                totals[slot as usize] += 1;
            }
        }
        totals
    }
}

/// The people in the classes of a set.
#[derive(Debug)]
pub(crate) struct People {
    /// What they are to be merged from; `None` if they were counted.
    from: Option<Finer<Self>>,
    sizes: OnceLock<Vec<u32>>,
    /// `None` where it is not known who straddles classes.
    subjects: OnceLock<Option<Subjects>>,
}

/// Counts of finer classes.
#[derive(Debug)]
pub(super) struct Finer<T> {
    pub(super) counts: Arc<T>,
    /// For each finer class the one it is part of.
    pub(super) class_of: Arc<Vec<u32>>,
    /// How many coarser classes there are.
    pub(super) classes: usize,
}

impl People {
    /// The subjects of classes.
    pub(crate) fn counted(subjects: Subjects) -> Arc<Self> {
        Arc::new(Self { from: None, sizes: OnceLock::from(subjects.totals()), subjects: Some(subjects).into() })
    }

    /// Classes of these sizes, of which it is not known who straddles them: nothing can be merged from them.
    pub(crate) fn of_sizes(sizes: Vec<u32>) -> Arc<Self> {
        Arc::new(Self { from: None, sizes: sizes.into(), subjects: None.into() })
    }

    /// The people of coarser classes: finer class i is part of `class_of[i]`. `None` where it is not known who straddles classes.
    pub(crate) fn merged_later(self: &Arc<Self>, class_of: &Arc<Vec<u32>>, classes: usize) -> Option<Arc<Self>> {
        if matches!(self.subjects.get(), Some(None)) {
            return None;
        }
        let from = Finer { counts: Arc::clone(self), class_of: Arc::clone(class_of), classes };
        Some(Arc::new(Self { from: Some(from), sizes: OnceLock::new(), subjects: OnceLock::new() }))
    }

    /// True if nobody has asked for them yet.
    pub(crate) fn is_pending(&self) -> bool {
        self.sizes.get().is_none()
    }

    /// Distinct subjects per class. Nothing is rolled up from most sets, so that those who straddle their classes are not listed.
    pub(crate) fn sizes(&self) -> &[u32] {
        let merged = |from: &Finer<Self>| Some(from.counts.subjects()?.merged_totals(&from.class_of, from.classes));
        self.sizes.get_or_init(|| self.from.as_ref().and_then(merged).unwrap_or_default())
    }

    /// The subjects; `None` where it is not known who straddles classes.
    pub(crate) fn subjects(&self) -> Option<&Subjects> {
        let merged = |from: &Finer<Self>| Some(from.counts.subjects()?.merge(&from.class_of, from.classes));
        self.subjects.get_or_init(|| self.from.as_ref().and_then(merged)).as_ref()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Wherever slots merge or are left out.
        #[test]
        fn sizes_are_counted_with_and_without_lists(
            people in prop::collection::vec(prop::collection::vec(0u32..9, 1..5), 0..40),
            map in prop::collection::vec(prop_oneof![4 => 0u32..5, 1 => Just(GONE)], 9),
        ) {
            let mut subjects = Subjects::new(9);
            people.iter().for_each(|slots| subjects.add(&mut slots.clone()));
            let merged = subjects.merge(&map, 5);
            prop_assert_eq!(merged.totals(), subjects.merged_totals(&map, 5));
            let counts_in = |slot: u32| people.iter().filter(|slots| slots.iter().any(|&at| map[at as usize] == slot)).count() as u32;
            prop_assert_eq!(merged.totals(), (0..5).map(counts_in).collect::<Vec<u32>>());
        }
    }
}
