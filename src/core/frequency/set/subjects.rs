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
    from: Option<Finer>,
    counted: OnceLock<Counted>,
}

/// The people of finer classes.
#[derive(Debug)]
struct Finer {
    people: Arc<People>,
    /// For each finer class the one it is part of.
    class_of: Arc<Vec<u32>>,
    classes: usize,
}

#[derive(Debug, Default)]
struct Counted {
    /// Distinct subjects per class.
    sizes: Vec<u32>,
    /// `None` where it is not known who straddles classes.
    subjects: Option<Subjects>,
}

impl People {
    /// The subjects of classes.
    pub(crate) fn counted(subjects: Subjects) -> Arc<Self> {
        Arc::new(Self::of(Counted { sizes: subjects.totals(), subjects: Some(subjects) }))
    }

    /// Classes of these sizes, of which it is not known who straddles them: nothing can be merged from them.
    pub(crate) fn of_sizes(sizes: Vec<u32>) -> Arc<Self> {
        Arc::new(Self::of(Counted { sizes, subjects: None }))
    }

    fn of(counted: Counted) -> Self {
        Self { from: None, counted: OnceLock::from(counted) }
    }

    /// The people of coarser classes: finer class i is part of `class_of[i]`. `None` where it is not known who straddles classes.
    pub(crate) fn merged_later(self: &Arc<Self>, class_of: &Arc<Vec<u32>>, classes: usize) -> Option<Arc<Self>> {
        if self.counted.get().is_some_and(|counted| counted.subjects.is_none()) {
            return None;
        }
        let from = Finer { people: Arc::clone(self), class_of: Arc::clone(class_of), classes };
        Some(Arc::new(Self { from: Some(from), counted: OnceLock::new() }))
    }

    /// True if nobody has asked for them yet.
    pub(crate) fn is_pending(&self) -> bool {
        self.counted.get().is_none()
    }

    /// Distinct subjects per class.
    pub(crate) fn sizes(&self) -> &[u32] {
        &self.get().sizes
    }

    /// The subjects; `None` where it is not known who straddles classes.
    pub(crate) fn subjects(&self) -> Option<&Subjects> {
        self.get().subjects.as_ref()
    }

    fn get(&self) -> &Counted {
        self.counted.get_or_init(|| {
            let merge = |from: &Finer| from.people.subjects().map(|all| all.merge(&from.class_of, from.classes));
            let Some(subjects) = self.from.as_ref().and_then(merge) else { return Counted::default() };
            Counted { sizes: subjects.totals(), subjects: Some(subjects) }
        })
    }
}
