//! Entries: the distinct combinations of a tuple and its facet codes, numbered as they come.
//!
//! Invariant: without facets an entry is its tuple, and nothing is kept here.

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
}

impl Entries {
    /// None yet.
    pub(crate) fn new(facets: usize) -> Self {
        Self { numbers: (0..facets).map(|_| KeyIndex::new()).collect() }
    }

    /// The entry of a tuple with these codes, a new one if there is none yet.
    pub(crate) fn number(&mut self, tuple: u32, codes: impl Iterator<Item = Code>) -> Entry {
        let of = |number: u32, (index, code): (&mut KeyIndex<u64>, Code)| index.number(pair(number, code));
        self.numbers.iter_mut().zip(codes).fold(tuple, of)
    }

    /// The tuple of an entry.
    pub(crate) fn tuple(&self, entry: Entry) -> u32 {
        self.before(entry, 0)
    }

    /// The codes of an entry, one per facet.
    pub(crate) fn codes(&self, entry: Entry) -> impl Iterator<Item = Code> {
        (0..self.numbers.len()).map(move |facet| self.code(entry, facet))
    }

    /// The code of one facet of an entry.
    pub(crate) fn code(&self, entry: Entry, facet: usize) -> Code {
        self.numbers[facet].keys()[self.before(entry, facet + 1) as usize] as Code
    }

    /// The number that an entry has with its first facets only.
    fn before(&self, entry: Entry, facets: usize) -> u32 {
        let shorter = |number: u32, index: &KeyIndex<u64>| (index.keys()[number as usize] >> u32::BITS) as u32;
        self.numbers[facets..].iter().rev().fold(entry, shorter)
    }
}

fn pair(number: u32, code: Code) -> u64 {
    u64::from(number) << u32::BITS | u64::from(code)
}
