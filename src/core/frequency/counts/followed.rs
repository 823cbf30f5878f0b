//! What a sliding window needs of its counts to follow them: who has changed since the last store, what they had then, and a copy of
//! the counts that changes can be replayed on.

use rustc_hash::FxHashMap;

use super::changes::{Belongings, Changes, Touched};
use super::entries::Entry;
use super::finest_counts::{FinestCounts, present};
use crate::frequency::key::ClassKey;
use crate::model::batch::Rows;
use crate::model::counting::Counting;
use crate::model::domain::Code;

impl<K: ClassKey> FinestCounts<K> {
    /// From now on notes who changes and what they had before, for at most so many.
    pub(crate) fn follow(&mut self, most: usize) {
        self.touched = Some(Touched::new(most));
    }

    /// Notes nothing any more.
    pub(crate) fn unfollow(&mut self) {
        self.touched = None;
    }

    /// Everybody who has changed since the last time, and what they had; `None` if there were too many or nothing was noted.
    pub(crate) fn take_touched(&mut self) -> Option<Vec<(u64, Belongings)>> {
        Some(self.touched.as_mut()?.drain()?.collect())
    }

    /// Row i, of this entry, is about to come or go.
    #[inline]
    pub(crate) fn touch(&mut self, rows: &Rows, i: usize, entry: Entry) {
        let Self { touched, counting, members, rows: counts, .. } = self;
        if let Some(touched) = touched {
            let who = if counting.subjects { rows.subject(i) } else { u64::from(entry) };
            touched.touch(who, || belongings(counting, members, counts, who));
        }
    }

    /// What somebody has: a subject, or an entry where no subjects are counted.
    pub(crate) fn belongings(&self, who: u64) -> Belongings {
        belongings(&self.counting, &self.members, &self.rows, who)
    }

    /// The tuple of an entry, by its number and itself; its codes are added to `codes`.
    pub(crate) fn part(&self, entry: Entry, codes: &mut Vec<Code>) -> (u32, K) {
        codes.extend(self.entries.codes(entry));
        let tuple = self.entries.tuple(entry);
        (tuple, self.tuples.keys()[tuple as usize])
    }

    /// The tuple of somebody who had `before`: the first, of several; none of a subject who had nothing.
    pub(crate) fn first_tuple(&self, who: u64, before: &[(Entry, u32)]) -> Option<K> {
        let entry = if self.counting.subjects { before.first()?.0 } else { who as Entry };
        Some(self.tuples.keys()[self.entries.tuple(entry) as usize])
    }

    /// The counts as they are, followed by nobody.
    pub(crate) fn frozen(&self) -> Self {
        Self {
            tuples: self.tuples.clone(),
            entries: self.entries.clone(),
            rows: self.rows.clone(),
            members: self.members.clone(),
            ..Self::new(self.layout.clone(), self.counting.clone())
        }
    }

    /// Takes in what changed elsewhere since the counts were these.
    pub(crate) fn replay(&mut self, changes: &Changes<K>) {
        for (who, parts) in changes.people() {
            for part in parts.map(|at| changes.part(at)) {
                let entry = self.numbered(part.key, part.codes.iter().copied());
                let rows = &mut self.rows[entry as usize];
                *rows = rows.wrapping_add_signed(part.by);
                if self.counting.subjects {
                    let entries = self.members.entry(who).or_default();
                    entries.retain(|(e, _)| *e != entry);
                    if part.after > 0 {
                        entries.push((entry, part.after));
                    }
                }
            }
        }
    }
}

fn belongings(counting: &Counting, members: &FxHashMap<u64, Belongings>, rows: &[u32], who: u64) -> Belongings {
    match counting.subjects {
        true => members.get(&who).cloned().unwrap_or_default(),
        false => present(who as Entry, rows[who as usize]),
    }
}
