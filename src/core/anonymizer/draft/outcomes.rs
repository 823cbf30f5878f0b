//! The outcome of each row of a draft: published, held or suppressed.
//!
//! Fresh rows are the rows of the window behind those carried from earlier windows; held rows were left out of an earlier
//! release. Invariant: each fresh row is in exactly one of `published`, `held` and `suppressed`. A held row is in `published`
//! or in `expired`, or else it goes on waiting.

use crate::generalize::RowRef;
use crate::model::batch::Rows;
use crate::model::event::{Millis, Position};
use crate::model::policy::SuppressionAction;

/// Rows by outcome.
#[derive(Clone, Default)]
pub(in crate::anonymizer) struct Outcomes {
    pub(in crate::anonymizer) published: Vec<RowRef>,
    /// Fresh rows that wait for a later release.
    pub(in crate::anonymizer) held: Vec<u32>,
    /// Fresh rows that are suppressed.
    pub(in crate::anonymizer) suppressed: Vec<u32>,
    /// Held rows that are suppressed because the commit metadata has no space for them.
    pub(in crate::anonymizer) expired: Vec<u32>,
}

impl Outcomes {
    /// Leaves all of `rows` fresh rows out.
    pub(in crate::anonymizer) fn none_published(action: SuppressionAction, rows: usize) -> Self {
        let mut outcomes = Self::default();
        (0..rows as u32).for_each(|i| outcomes.leave_out(action, i));
        outcomes
    }

    /// Suppresses all of `rows` fresh rows.
    pub(in crate::anonymizer) fn all_suppressed(rows: usize) -> Self {
        Self { suppressed: (0..rows as u32).collect(), ..Self::default() }
    }

    /// Leaves fresh row i out, as the policy says.
    pub(in crate::anonymizer) fn leave_out(&mut self, action: SuppressionAction, i: u32) {
        match action {
            SuppressionAction::Drop => self.suppressed.push(i),
            SuppressionAction::Hold { .. } => self.held.push(i),
        }
    }

    /// Lets all held rows go on waiting; false if none was to be published.
    pub(in crate::anonymizer) fn leave_held_out(&mut self) -> bool {
        let before = self.published.len();
        self.published.retain(|row| matches!(row, RowRef::Fresh(_)));
        self.published.len() < before
    }

    /// Leaves all rows out; false if none was to be published.
    pub(in crate::anonymizer) fn leave_all_out(&mut self, action: SuppressionAction) -> bool {
        let published = std::mem::take(&mut self.published);
        for row in &published {
            if let RowRef::Fresh(i) = row {
                self.leave_out(action, *i);
            }
        }
        !published.is_empty()
    }

    /// For each held row whether it goes on waiting.
    pub(in crate::anonymizer) fn still_held(&self, held: usize) -> Vec<bool> {
        let mut stays = vec![true; held];
        let published = self.published.iter().filter_map(|row| if let RowRef::Held(i) = row { Some(*i) } else { None });
        published.chain(self.expired.iter().copied()).for_each(|i| stays[i as usize] = false);
        stays
    }

    /// The rows that wait after the release, the oldest first.
    pub(in crate::anonymizer) fn waiting(&self, rows: &Rows, held: &Rows) -> Vec<RowRef> {
        let stays = self.still_held(held.len());
        let held_still = (0..held.len() as u32).filter(|&i| stays[i as usize]).map(RowRef::Held);
        let mut waiting: Vec<RowRef> = held_still.chain(self.held.iter().map(|&i| RowRef::Fresh(i))).collect();
        let age = |(rows, i): (&Rows, usize)| -> (Millis, Position) { (rows.arrived(i), rows.position(i)) };
        waiting.sort_by_key(|&row| age(source(row, rows, held)));
        waiting
    }

    /// The same outcomes, but with some of the waiting rows suppressed.
    pub(in crate::anonymizer) fn suppressing(&self, oldest: &[RowRef]) -> Self {
        let mut outcomes = self.clone();
        let mut fresh = Vec::new();
        for row in oldest {
            match row {
                RowRef::Held(i) => outcomes.expired.push(*i),
                RowRef::Fresh(i) => fresh.push(*i),
            }
        }
        fresh.sort_unstable();
        outcomes.held.retain(|i| fresh.binary_search(i).is_err());
        outcomes.suppressed.extend(fresh);
        outcomes
    }
}

/// The rows that `row` refers to, and its index there.
pub(in crate::anonymizer) fn source<'r>(row: RowRef, rows: &'r Rows, held: &'r Rows) -> (&'r Rows, usize) {
    match row {
        RowRef::Fresh(i) => (rows, i as usize),
        RowRef::Held(i) => (held, i as usize),
    }
}
