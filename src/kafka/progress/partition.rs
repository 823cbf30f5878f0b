//! The progress of one partition: how far it was read, and which of its offsets are still needed.
//!
//! ```text
//!   committed                    finished_to            cursor
//!       │ finished, but for `unfinished` │ delivered, all unfinished │ not delivered yet
//! ```
//! `held` (left out of an earlier release) and `claimed` (part of a plan that is carried out) are what a commit said when the
//! partition was taken over; they decide whether a delivered record goes to the held records or nowhere.

use super::commit::{Commit, CommitState};
use crate::model::event::Millis;
use crate::model::release::runs::Runs;

/// The meaning of a delivered record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivered {
    /// Finished before, or claimed by a plan that is carried out: to be skipped.
    Done,
    /// For the open window.
    Fresh,
    /// Left out of a release before a restart, and still held. Waits since this time at the earliest, if that is known.
    Held(Option<Millis>),
}

/// The part of a release that later ones need, beside the records that it finishes.
#[derive(Debug, Clone, Copy, Default)]
pub struct CarriedOver<'a> {
    /// The levels that later releases follow; `None` if nothing was published.
    pub levels: Option<&'a [u8]>,
    /// The time since which the oldest held record waits.
    pub since: Option<Millis>,
    /// The offset of its journal entry, and the number of releases whose entries are kept.
    pub journal: Option<(i64, usize)>,
}

/// The progress of one partition.
#[derive(Debug, Clone, Hash)]
pub struct PartitionProgress {
    /// The next offset that delivery may bring.
    cursor: i64,
    /// Every offset below this is finished, except `unfinished`.
    finished_to: i64,
    /// Delivered or pending from before, and not finished.
    unfinished: Runs,
    /// Left out of a release before this assignment.
    held: Runs,
    /// Part of a plan that is carried out: not for a window.
    claimed: Runs,
    /// No held record has waited since before this time.
    since: Option<Millis>,
    /// The levels of the last release.
    last: Option<Vec<u8>>,
    /// The journal entries of the last releases, the newest last.
    journal: Vec<i64>,
    /// True once a release of this assignment has finished records of the partition.
    committed: bool,
}

impl PartitionProgress {
    /// The progress that a commit describes.
    pub(super) fn new(committed: i64, state: &CommitState) -> Self {
        let mut claimed = Runs::default();
        let mut unfinished = state.pending.clone();
        let mut finished_to = state.finished_to.max(committed);
        if let Some(plan) = &state.plan {
            claimed.insert_all(&state.needed(&plan.fresh));
            claimed.insert_all(&state.needed(&plan.held));
            // Records between those of the plan were not read into it, and are still to come.
            let end = claimed.last().map_or(finished_to, |last| finished_to.max(last + 1));
            unfinished.insert(finished_to, end - 1);
            finished_to = end;
        }
        Self {
            cursor: committed,
            finished_to,
            unfinished,
            held: state.pending.clone(),
            claimed,
            since: state.since,
            last: state.last.clone(),
            journal: state.journal.clone(),
            committed: false,
        }
    }

    /// Removes the claimed offsets that turned out to hold no record.
    pub(super) fn reread(&mut self, records: &Runs) {
        self.unfinished = self.unfinished.without(&self.claimed.without(records));
    }

    /// Notes the delivery of an offset. Offsets that delivery passes over hold no record.
    pub(super) fn deliver(&mut self, offset: i64) -> Delivered {
        if offset < self.cursor {
            return Delivered::Done;
        }
        if offset > self.cursor {
            self.unfinished.remove(self.cursor, offset - 1);
        }
        self.cursor = offset + 1;
        if offset < self.finished_to {
            return match self.unfinished.contains(offset) && !self.claimed.contains(offset) {
                false => Delivered::Done,
                true if self.held.contains(offset) => Delivered::Held(self.since),
                true => Delivered::Fresh,
            };
        }
        self.unfinished.insert(offset, offset);
        Delivered::Fresh
    }

    /// Notes that a release has finished these offsets.
    pub(super) fn finish(&mut self, offsets: &Runs, carried: CarriedOver<'_>) {
        for run in offsets.iter() {
            self.unfinished.remove(run.first.0, run.last.0);
            self.finished_to = self.finished_to.max(run.last.0 + 1);
        }
        self.committed = true;
        self.since = carried.since;
        if let Some(levels) = carried.levels {
            self.last = Some(levels.to_vec());
        }
        if let Some((entry, releases)) = carried.journal {
            self.journal.push(entry);
            self.journal.drain(..self.journal.len().saturating_sub(releases));
        }
    }

    /// The commit as it is now.
    pub(super) fn commit(&self) -> Commit {
        let offset = self.unfinished.first().unwrap_or_else(|| self.cursor.max(self.finished_to));
        let mut pending = self.unfinished.clone();
        if self.finished_to <= pending.last().unwrap_or(i64::MIN) {
            pending.remove(self.finished_to, i64::MAX);
        }
        let finished_to = self.finished_to.max(offset);
        let since = self.since.filter(|_| !pending.is_empty());
        let (last, journal) = (self.last.clone(), self.journal.clone());
        Commit { offset, state: CommitState { finished_to, pending, since, last, journal, plan: None } }
    }

    /// The offsets that are delivered or pending, and not finished.
    pub(super) fn unfinished(&self) -> &Runs {
        &self.unfinished
    }

    /// True once a release of this assignment has finished records of the partition.
    pub(super) fn is_committed(&self) -> bool {
        self.committed
    }

    /// The next offset that delivery may bring.
    pub(super) fn read_to(&self) -> i64 {
        self.cursor
    }
}
