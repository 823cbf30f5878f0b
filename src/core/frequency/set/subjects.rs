//! Distinct subjects over slots: the classes of a set, or the histogram entries of a facet.
//!
//! Distinct counts cannot be added up when slots merge, because one subject may have records in both. Subjects in one slot only are
//! a number per slot; a subject in several slots (a straddler) is listed with its slots, so that a merge counts it once.
//! Invariant: [`Subjects::totals`] counts every subject once per slot, after any sequence of merges.

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
