//! What whoever follows the counts has to know: who is about to change, what they have, and the counts as they once were.

use std::sync::PoisonError;

use rustc_hash::FxHashMap;

use super::BaseSet;
use crate::frequency::changes::{Belongings, Changes};
use crate::frequency::entries::Entry;
use crate::frequency::key::Key;
use crate::model::batch::Rows;
use crate::model::counting::Counting;
use crate::model::domain::Code;

impl<K: Key> BaseSet<K> {
    /// Row i, of this entry, is about to come or go: for whoever follows.
    #[inline]
    pub(super) fn touch(&mut self, rows: &Rows, i: usize, entry: Entry) {
        let Self { epoch, counting, members, rows: counts, .. } = self;
        if let Some(epoch) = epoch.get_mut().unwrap_or_else(PoisonError::into_inner) {
            let who = if counting.subjects { rows.subject(i) } else { u64::from(entry) };
            epoch.touch(who, || belongings(counting, members, counts, who));
        }
    }

    /// What somebody has: a subject, or an entry where no subjects are counted.
    pub(in crate::frequency) fn belongings(&self, who: u64) -> Belongings {
        belongings(&self.counting, &self.members, &self.rows, who)
    }

    /// The tuple of an entry, by its number and itself; its codes are added to `codes`.
    pub(in crate::frequency) fn part(&self, entry: Entry, codes: &mut Vec<Code>) -> (u32, K) {
        codes.extend_from_slice(self.entries.codes(entry));
        let tuple = self.entries.tuple(entry);
        (tuple, self.tuples.keys()[tuple as usize])
    }

    /// The tuple of somebody who had `before`: the first, of several; none of a subject who had nothing.
    pub(in crate::frequency) fn first_tuple(&self, who: u64, before: &[(Entry, u32)]) -> Option<K> {
        let entry = if self.counting.subjects { before.first()?.0 } else { who as Entry };
        Some(self.tuples.keys()[self.entries.tuple(entry) as usize])
    }

    /// What is counted.
    pub(in crate::frequency) fn counting(&self) -> &Counting {
        &self.counting
    }

    /// Different combinations of a tuple and its facets that were ever counted.
    pub(in crate::frequency) fn entry_count(&self) -> usize {
        self.rows.len()
    }

    /// The counts as they are, followed by nobody.
    pub(in crate::frequency) fn frozen(&self) -> Self {
        Self {
            tuples: self.tuples.clone(),
            entries: self.entries.clone(),
            rows: self.rows.clone(),
            members: self.members.clone(),
            ..Self::new(self.layout.clone(), self.counting.clone())
        }
    }

    /// Takes in what changed elsewhere since the counts were these.
    pub(in crate::frequency) fn replay(&mut self, changes: &Changes<K>) {
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
        false => [(who as Entry, rows[who as usize])].into_iter().filter(|(_, rows)| *rows > 0).collect(),
    }
}
