//! What came and went between two stores, person by person.
//!
//! Somebody's records may be in several classes, and which of these are one differs from node to node. So a change lists all
//! that a person has, before and after: at any node that tells in which classes the person was and is, and distinct counts are
//! never added up. Where no subjects are counted, every combination of a tuple and its facets stands for itself.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::entries::Entry;
use crate::model::domain::Code;

/// The entries of one person, with their records.
pub(crate) type Belongings = SmallVec<[(Entry, u32); 2]>;

/// Who has changed since the last store, and what they had then.
pub(crate) struct Touched {
    people: FxHashMap<u64, Belongings>,
    most: usize,
    /// True if there were more.
    lost: bool,
}

impl Touched {
    /// Nobody yet, and at most so many.
    pub(crate) fn new(most: usize) -> Self {
        Self { people: FxHashMap::default(), most, lost: false }
    }

    /// Somebody is about to change who has `now`.
    pub(crate) fn touch(&mut self, who: u64, now: impl FnOnce() -> Belongings) {
        if self.people.len() < self.most {
            self.people.entry(who).or_insert_with(now);
        } else if !self.people.contains_key(&who) {
            self.lost = true;
        }
    }

    /// Everybody who has changed, and starts over; `None` if there were too many.
    pub(crate) fn drain(&mut self) -> Option<impl Iterator<Item = (u64, Belongings)>> {
        let people = self.people.drain();
        (!std::mem::take(&mut self.lost)).then_some(people)
    }
}

/// What changed from one store to the next.
#[derive(Debug)]
pub(crate) struct Changes<K> {
    facets: usize,
    who: Vec<u64>,
    /// By person, where their parts end.
    ends: Vec<u32>,
    /// By part: its tuple, its records before and after, and a code per facet.
    pub(crate) keys: Vec<K>,
    counts: Vec<[u32; 2]>,
    codes: Vec<Code>,
    /// By facet how many codes there are at least.
    most: SmallVec<[usize; 4]>,
}

/// Part of what somebody has: a tuple with its facets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'a, K> {
    pub(crate) key: K,
    pub(crate) codes: &'a [Code],
    pub(crate) after: u32,
    /// Records more or less than before.
    pub(crate) by: i32,
}

impl<K: Copy> Changes<K> {
    /// None yet, of so many facets.
    pub(crate) fn new(facets: usize) -> Self {
        let most = SmallVec::from_elem(0, facets);
        Self {
            facets,
            who: Vec::new(),
            ends: Vec::new(),
            keys: Vec::new(),
            counts: Vec::new(),
            codes: Vec::new(),
            most,
        }
    }

    /// Adds somebody who had `before` and has `after`; `part` tells the tuple of an entry, and adds its codes. Nothing is added
    /// where nothing changed.
    pub(crate) fn push(
        &mut self,
        who: u64,
        before: &[(Entry, u32)],
        after: &[(Entry, u32)],
        mut part: impl FnMut(Entry, &mut Vec<Code>) -> K,
    ) {
        let find =
            |list: &[(Entry, u32)], entry: Entry| list.iter().find(|(e, _)| *e == entry).map_or(0, |(_, rows)| *rows);
        let mut add = |entry: Entry, counts: [u32; 2]| {
            let first = self.codes.len();
            let key = part(entry, &mut self.codes);
            let new = self.most.iter_mut().zip(&self.codes[first..]);
            new.for_each(|(most, &code)| *most = (*most).max(code as usize + 1));
            self.keys.push(key);
            self.counts.push(counts);
        };
        if before.len() == after.len() && before.iter().all(|&(entry, rows)| find(after, entry) == rows) {
            return;
        }
        before.iter().for_each(|&(entry, rows)| add(entry, [rows, find(after, entry)]));
        let came = after.iter().filter(|(entry, _)| find(before, *entry) == 0);
        came.for_each(|&(entry, rows)| add(entry, [0, rows]));
        self.who.push(who);
        self.ends.push(self.keys.len() as u32);
    }

    /// True if nothing has changed.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// How many parts there are.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Everybody with the range of their parts.
    pub(crate) fn people(&self) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> + '_ {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|&end| end as usize));
        self.who.iter().zip(starts.zip(&self.ends)).map(|(&who, (start, &end))| (who, start..end as usize))
    }

    /// The records of a part before and after.
    #[inline]
    pub(crate) fn counts(&self, at: usize) -> [u32; 2] {
        self.counts[at]
    }

    /// Records more or less of a part.
    #[inline]
    pub(crate) fn by(&self, at: usize) -> i32 {
        let [before, after] = self.counts[at];
        after.cast_signed().wrapping_sub(before.cast_signed())
    }

    /// All codes of a facet are below this.
    pub(crate) fn codes(&self, facet: usize) -> usize {
        self.most[facet]
    }

    /// The code of a facet of a part.
    #[inline]
    pub(crate) fn code(&self, at: usize, facet: usize) -> Code {
        self.codes[at * self.facets + facet]
    }

    /// One part.
    pub(crate) fn part(&self, at: usize) -> Part<'_, K> {
        let codes = &self.codes[at * self.facets..(at + 1) * self.facets];
        Part { key: self.keys[at], codes, after: self.counts[at][1], by: self.by(at) }
    }
}
