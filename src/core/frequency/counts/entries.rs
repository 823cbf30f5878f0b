//! Entries: the distinct combinations of a tuple and its facet codes, numbered as they come.
//!
//! Invariant: without facets an entry is its tuple, and nothing is kept here.

use smallvec::SmallVec;

use super::index::KeyIndex;
use crate::model::domain::Code;

/// The number of a distinct combination of a tuple and its facet codes.
pub(crate) type Entry = u32;

/// Combinations by number, and their numbers.
#[derive(Clone)]
pub(crate) struct Entries {
    /// One per facet: (tuple, code of the first), (the number of that, code of the second), and so on. The numbers of the last
    /// are the entries.
    numbers: Vec<KeyIndex<u64>>,
    parts: Vec<(u32, SmallVec<[Code; 4]>)>,
}

impl Entries {
    /// None yet.
    pub(crate) fn new(facets: usize) -> Self {
        Self { numbers: (0..facets).map(|_| KeyIndex::new()).collect(), parts: Vec::new() }
    }

    /// Different combinations, ascending.
    pub(crate) fn ascending(facets: usize, all: impl Iterator<Item = (u32, SmallVec<[Code; 4]>)>) -> Self {
        let mut lists: Vec<Vec<u64>> = vec![Vec::new(); facets];
        let mut parts = Vec::new();
        for (tuple, codes) in all {
            lists.iter_mut().zip(&codes).fold(tuple, |number, (list, &code)| {
                let pair = pair(number, code);
                if list.last() != Some(&pair) {
                    list.push(pair);
                }
                list.len() as u32 - 1
            });
            parts.push((tuple, codes));
        }
        Self { numbers: lists.into_iter().map(KeyIndex::of).collect(), parts }
    }

    /// The entry of a tuple with these codes, a new one if there is none yet.
    pub(crate) fn number(&mut self, tuple: u32, codes: impl Iterator<Item = Code> + Clone) -> Entry {
        let of = |number: u32, (index, code): (&mut KeyIndex<u64>, Code)| index.number(pair(number, code));
        let entry = self.numbers.iter_mut().zip(codes.clone()).fold(tuple, of);
        if !self.numbers.is_empty() && entry as usize == self.parts.len() {
            self.parts.push((tuple, codes.collect()));
        }
        entry
    }

    /// The tuple of an entry.
    pub(crate) fn tuple(&self, entry: Entry) -> u32 {
        self.parts.get(entry as usize).map_or(entry, |(tuple, _)| *tuple)
    }

    /// The codes of an entry, one per facet.
    pub(crate) fn codes(&self, entry: Entry) -> &[Code] {
        self.parts.get(entry as usize).map_or(&[], |(_, codes)| codes)
    }

    /// The code of one facet of an entry.
    pub(crate) fn code(&self, entry: Entry, facet: usize) -> Code {
        self.parts[entry as usize].1[facet]
    }
}

fn pair(number: u32, code: Code) -> u64 {
    u64::from(number) << u32::BITS | u64::from(code)
}
