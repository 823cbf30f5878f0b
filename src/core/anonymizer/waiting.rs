//! The records that wait between windows.
//!
//! Held records were left out of a release that published others. They join a later release only in a class that satisfies the
//! policy without them. Carried records come from windows that published nothing (fewer than k people, for instance), so they
//! start over as fresh rows of the next window. Both wait at most `max_hold`, then they are suppressed.

use std::sync::Arc;

use super::draft::Outcomes;
use crate::frequency::counter::{self, DEFAULT_WARM_MEMORY};
use crate::frequency::store::FrequencySets;
use crate::model::batch::Rows;
use crate::model::counting::Counting;
use crate::model::event::{Millis, Position};
use crate::model::policy::{Policy, SuppressionAction};
use crate::window::{ClosedWindow, TooWide};

/// Held and carried records.
pub(super) struct Waiting {
    action: SuppressionAction,
    /// No rows, of the right width.
    empty: Rows,
    held: Arc<Rows>,
    carried: Rows,
    /// Records of the carried windows that were suppressed for a value without a place in its hierarchy.
    unplaced: u64,
    /// The bytes of rows that may wait.
    most_bytes: usize,
}

impl Waiting {
    /// No record waits.
    pub(super) fn new(policy: &Policy) -> Self {
        let empty = Rows::new(policy.quasi.len(), policy.schema.sensitive.len());
        let (held, carried, most_bytes) = (Arc::new(empty.clone()), empty.clone(), usize::MAX);
        Self { action: policy.action, held, carried, empty, unplaced: 0, most_bytes }
    }

    /// Lets rows of so many bytes wait at most.
    pub(super) fn hold_within(&mut self, bytes: usize) {
        self.most_bytes = bytes;
    }

    /// How many records wait.
    pub(super) fn len(&self) -> usize {
        self.held.len() + self.carried.len()
    }

    /// The held records.
    pub(super) fn held(&self) -> &Arc<Rows> {
        &self.held
    }

    /// Replaces the held records.
    pub(super) fn set_held(&mut self, held: Rows) {
        self.held = Arc::new(held);
    }

    /// Removes the held records.
    pub(super) fn clear_held(&mut self) {
        self.held = Arc::new(self.empty.clone());
    }

    /// Adds records that were held before a restart.
    pub(super) fn hold_again(&mut self, rows: &Rows) {
        if !rows.is_empty() {
            let held = Arc::make_mut(&mut self.held);
            (0..rows.len()).for_each(|i| held.push_from(rows, i));
        }
    }

    /// Puts all waiting records aside, until [`Waiting::take_back`].
    pub(super) fn put_aside(&mut self) -> Self {
        let (empty, held) = (self.empty.clone(), Arc::new(self.empty.clone()));
        let none = Self { carried: empty.clone(), empty, held, unplaced: 0, ..*self };
        std::mem::replace(self, none)
    }

    /// Adds the records that were put aside.
    pub(super) fn take_back(&mut self, aside: &Self) {
        self.hold_again(&aside.held);
        (0..aside.carried.len()).for_each(|i| self.carried.push_from(&aside.carried, i));
        self.unplaced += aside.unplaced;
    }

    /// Adds the window's records without a place in their hierarchy; the number of them since the last release with rows.
    pub(super) fn add_unplaced(&mut self, window: &ClosedWindow) -> u64 {
        self.unplaced += window.unplaced();
        self.unplaced
    }

    /// True if a record has waited longer than `max_hold`.
    pub(super) fn is_overdue(&self, now: Millis) -> bool {
        let oldest = self.oldest_allowed(now);
        [&*self.held, &self.carried].iter().any(|rows| (0..rows.len()).any(|i| rows.arrived(i) < oldest))
    }

    /// Removes the records that have waited longer than `max_hold`, and the oldest of more than may wait; returns their positions.
    pub(super) fn expire(&mut self, now: Millis) -> Vec<Position> {
        let oldest = self.oldest_allowed(now);
        let mut gone = self.take(|rows, i| rows.arrived(i) < oldest);
        let bytes = self.held.bytes() + self.carried.bytes();
        if bytes > self.most_bytes && self.len() > 0 {
            let age = |rows: &Rows, i: usize| (rows.arrived(i), rows.position(i));
            let all = [&*self.held, &self.carried].into_iter();
            let mut ages: Vec<_> = all.flat_map(|rows| (0..rows.len()).map(move |i| age(rows, i))).collect();
            let leave = ages.len() - (ages.len() as f64 * (self.most_bytes as f64 / bytes as f64)) as usize;
            let (_, first_kept, _) = ages.select_nth_unstable(leave.min(self.len() - 1));
            let first_kept = *first_kept;
            gone.extend(self.take(|rows, i| age(rows, i) < first_kept));
        }
        gone
    }

    /// Removes some of the waiting records; returns their positions.
    pub(super) fn take(&mut self, goes: impl Fn(&Rows, usize) -> bool) -> Vec<Position> {
        let mut gone = Vec::new();
        let mut rest = |rows: &Rows| {
            let before = gone.len();
            gone.extend((0..rows.len()).filter(|&i| goes(rows, i)).map(|i| rows.position(i)));
            (gone.len() > before).then(|| rows.filtered(|i| !goes(rows, i)))
        };
        let (held, carried) = (rest(&self.held), rest(&self.carried));
        held.into_iter().for_each(|held| self.held = Arc::new(held));
        carried.into_iter().for_each(|carried| self.carried = carried);
        gone
    }

    /// The window's rows behind the carried rows, with their frequency sets.
    pub(super) fn with_carried(
        &self,
        window: &ClosedWindow,
        counting: impl FnOnce() -> Counting,
    ) -> Result<(Arc<Rows>, Arc<dyn FrequencySets>), TooWide> {
        if self.carried.is_empty() {
            return Ok((Arc::clone(&window.rows), Arc::clone(&window.sets)));
        }
        let mut rows = self.carried.clone();
        (0..window.rows.len()).for_each(|i| rows.push_from(&window.rows, i));
        let memory = self.most_bytes.min(DEFAULT_WARM_MEMORY);
        let sets = counter::count(&rows, &counting(), &window.dictionaries.quasi, memory);
        Ok((Arc::new(rows), sets.ok_or(TooWide)?))
    }

    /// Takes over the outcomes of a release that was made of `rows` and the held records.
    pub(super) fn settle(&mut self, rows: &Rows, outcomes: &Outcomes) {
        let still_held = outcomes.still_held(self.held.len());
        if still_held.contains(&false) {
            self.held = Arc::new(self.held.filtered(|i| still_held[i]));
        }
        self.carried = self.empty.clone();
        if !outcomes.held.is_empty() {
            // Without published rows the window starts over. Otherwise readers of the release can know which rows it lacks.
            let starts_over = outcomes.published.is_empty();
            let to = if starts_over { &mut self.carried } else { Arc::make_mut(&mut self.held) };
            outcomes.held.iter().for_each(|&i| to.push_from(rows, i as usize));
        }
        if self.carried.is_empty() {
            self.unplaced = 0;
        }
    }

    /// The earliest arrival of a record that may still wait. Where records are suppressed at once, those that wait were held before a
    /// restart, under another policy, and have had their last window.
    fn oldest_allowed(&self, now: Millis) -> Millis {
        match self.action {
            SuppressionAction::Hold { max_hold } => Millis(now.0.saturating_sub(max_hold.as_millis() as i64)),
            SuppressionAction::Drop => Millis(i64::MAX),
        }
    }
}
