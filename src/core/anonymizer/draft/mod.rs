//! A release in the making: a window with its rows, their classes and their outcomes.
//!
//! A draft is made by [`Anonymizer::draft`] or [`Draft::new`] and filled by methods that walk one way: [`Draft::recode`] sets
//! the recoding and groups the rows, [`Draft::plan_rows`] or [`Draft::show`] gives each row its outcome,
//! [`Uncommitted::fit`](super::uncommitted::Uncommitted::fit) suppresses waiting records that cannot be committed,
//! [`Draft::generalize`] makes the batch for the gate. A draft owns its inputs, so the gate can refuse it and it can be changed
//! and tried again; the state of the anonymizer changes only after the gate.
//!
//! `grouping.rs` turns a recoding into classes, and `numbering.rs` keeps the classes of a sliding window from slide to slide;
//! `outcomes.rs` holds the outcome of each row; `provenance.rs` and `left_out.rs` describe the release for manifest and operator.

mod grouping;
pub(super) mod left_out;
mod numbering;
mod outcomes;
mod provenance;

use std::sync::Arc;

use super::Anonymizer;
use crate::failpoint::defect;
use crate::frequency::store::FrequencySets;
use crate::generalize::{Change, GeneralizedBatch, Lineage, RowRef};
use crate::loss::RAW_GLM;
use crate::model::batch::Rows;
use crate::model::event::{Position, RejectCode};
use crate::model::policy::{Loss, Policy};
use crate::model::recoding::Recoding;
use crate::model::release::manifest::Named;
use crate::model::release::plan::{PlannedChanges, ReleasePlan};
use crate::model::release::spans::Spans;
use crate::render::render;
use crate::search::choose::Chosen;
use crate::search::evaluator::Evaluator;
use crate::window::{ClosedWindow, TooWide};

pub(super) use grouping::Grouping;
pub(super) use numbering::Numbering;
pub(super) use outcomes::{Outcomes, source};

/// A release before the gate.
pub(super) struct Draft {
    pub(super) policy: Arc<Policy>,
    pub(super) window: ClosedWindow,
    /// The fresh rows: the window's behind the carried ones. For a snapshot the rows that it may show.
    pub(super) rows: Arc<Rows>,
    /// The rows held from earlier windows.
    pub(super) held: Arc<Rows>,
    /// The frequency sets of the fresh rows.
    pub(super) sets: Arc<dyn FrequencySets>,
    /// The plan that was committed before a crash, if this draft repeats it.
    pub(super) planned: Option<ReleasePlan>,
    pub(super) id: u64,
    /// The name of the instance, with which the release id starts.
    pub(super) name: String,
    /// Waiting records that are suppressed with this release: overdue, or retracted.
    pub(super) expired: Vec<Position>,
    /// Those of them that the window's tombstones retract.
    pub(super) retracted: Vec<Position>,
    /// Records since the last release with rows that were suppressed for a value without a place in its hierarchy.
    pub(super) unplaced: u64,
    /// Waiting records of other lanes, for the operator's figures.
    pub(super) elsewhere: u64,
    /// True if the plan must list the shown records, because earlier releases decide about them too.
    pub(super) lists_shown: bool,
    /// The first step of the schedule, if steps or held rows had to be left out of the classes.
    pub(super) first_step: Option<usize>,
    /// True if no manifest of this run has named the schedule yet.
    pub(super) introduces_schedule: bool,
    /// Where releases are a changelog: how this one changes the reader's snapshot.
    pub(super) changes: Option<PlannedChanges>,
    /// How the recoding was found; `None` if none was chosen.
    pub(super) chosen: Option<Chosen>,
    /// The recoding: the top as long as none is chosen.
    pub(super) recoding: Recoding,
    pub(super) grouping: Grouping,
    pub(super) outcomes: Outcomes,
    /// Losses by the counts of the search, for the operator's figures.
    pub(super) search_losses: Vec<Named>,
}

impl Draft {
    /// A draft of these rows at the top, without outcomes yet.
    pub(super) fn new(from: &Anonymizer, window: ClosedWindow, rows: Arc<Rows>, sets: Arc<dyn FrequencySets>) -> Self {
        let recoding = Recoding::from(from.policy.lattice().top().clone());
        Self {
            policy: Arc::clone(&from.policy),
            grouping: Grouping::without_rows(&recoding, &window.dictionaries),
            recoding,
            window,
            rows,
            held: Arc::clone(from.waiting.held()),
            sets,
            planned: None,
            id: rand::random(),
            name: from.name.clone(),
            expired: Vec::new(),
            retracted: Vec::new(),
            unplaced: 0,
            elsewhere: from.elsewhere,
            lists_shown: from.remembers(),
            first_step: None,
            introduces_schedule: true,
            changes: None,
            chosen: None,
            outcomes: Outcomes::default(),
            search_losses: Vec::new(),
        }
    }

    /// Makes it a draft that publishes nothing: no recoding, and no outcomes yet.
    pub(super) fn clear(&mut self) {
        self.recoding = Recoding::from(self.policy.lattice().top().clone());
        self.grouping = Grouping::without_rows(&self.recoding, &self.window.dictionaries);
        (self.chosen, self.outcomes, self.search_losses) = (None, Outcomes::default(), Vec::new());
        self.changes = None;
    }

    /// Sets the recoding and groups all rows by it.
    pub(super) fn recode(&mut self, chosen: Chosen) {
        let grouping = Grouping::of(&chosen.recoding, &self.rows, &self.held, &self.window.dictionaries);
        self.recode_grouped(chosen, grouping);
    }

    /// The same, where the rows are grouped already.
    pub(super) fn recode_grouped(&mut self, chosen: Chosen, grouping: Grouping) {
        self.recoding = chosen.recoding.clone();
        (self.chosen, self.grouping) = (Some(chosen), grouping);
    }

    /// Publishes the fresh rows of classes that satisfy the policy, and the held rows that can join these classes. Leaves the
    /// other fresh rows out.
    pub(super) fn plan_rows(&mut self, evaluator: &Evaluator<'_>) {
        if !self.chosen.as_ref().is_some_and(|chosen| chosen.evaluation.satisfies) {
            self.outcomes = Outcomes::none_published(self.policy.action, self.rows.len());
            return;
        }
        let publishable = self.grouping.publishable(&self.recoding, evaluator);
        let is_publishable = |row: &RowRef| publishable[self.grouping.number(*row) as usize];
        let mut outcomes = Outcomes::default();
        for i in 0..self.rows.len() as u32 {
            if is_publishable(&RowRef::Fresh(i)) || defect("publish-all") {
                outcomes.published.push(RowRef::Fresh(i));
            } else {
                outcomes.leave_out(self.policy.action, i);
            }
        }
        let held = (0..self.held.len() as u32).map(RowRef::Held);
        outcomes.published.extend(held.filter(is_publishable));
        self.outcomes = outcomes;
    }

    /// Publishes the rows at these positions, and leaves the other fresh rows out.
    pub(super) fn show(&mut self, shown: &Spans) {
        let mut outcomes = Outcomes::default();
        for i in 0..self.rows.len() as u32 {
            match shown.contains(self.rows.position(i as usize)) {
                true => outcomes.published.push(RowRef::Fresh(i)),
                false => outcomes.leave_out(self.policy.action, i),
            }
        }
        let held = (0..self.held.len() as u32).filter(|&i| shown.contains(self.held.position(i as usize)));
        outcomes.published.extend(held.map(RowRef::Held));
        self.outcomes = outcomes;
    }

    /// Notes the losses that the search has counted for the recoding.
    pub(super) fn note_losses(&mut self, evaluator: &Evaluator<'_>) {
        self.search_losses = Vec::new();
        if self.outcomes.published.is_empty() {
            return;
        }
        let losses: Vec<Loss> = self.policy.losses().collect();
        let mut values = evaluator.losses_by(losses.iter().copied().chain([Loss::Glm]), &self.recoding);
        let raw = values.pop().map(|glm| Named { name: RAW_GLM.into(), value: evaluator.raw(glm) });
        let named = |(loss, value): (Loss, f64)| Named { name: loss.as_str().into(), value };
        self.search_losses = losses.into_iter().zip(values).map(named).chain(raw).collect();
    }

    /// The rows to publish as they would be sent, with their provenance and without their lineage.
    pub(super) fn generalize(&self) -> GeneralizedBatch {
        let mut batch = GeneralizedBatch::numbered(
            Arc::clone(&self.rows),
            Arc::clone(&self.held),
            self.outcomes.published.clone(),
            &self.grouping.numbers,
            &self.grouping.columns,
            &self.window.dictionaries,
        );
        batch.shows_levels = self.policy.schema.added.levels;
        (batch.rejected, batch.provenance) = (self.window.rejected.clone(), self.provenance());
        render(&mut batch, &self.grouping.columns, &self.policy);
        match &self.changes {
            None => batch,
            Some(PlannedChanges { base: None, .. }) => batch.into_changelog(|_| Change::Whole),
            Some(PlannedChanges { left, .. }) => batch.into_changelog(|row| match left.contains(self.position(row)) {
                true => Change::Leaves,
                false => Change::Comes,
            }),
        }
    }

    /// The plan of the release and the records that it finishes, if the rows have these outcomes.
    pub(super) fn lineage(&self, outcomes: &Outcomes) -> Lineage {
        let window = &self.window;
        let rejected = window.rejected.iter().map(|(position, _)| *position);
        let unplaced = window.suppressed.iter().copied();
        let shown = || Spans::covering(outcomes.published.iter().map(|&row| self.position(row)));
        let oldest = outcomes.waiting(&self.rows, &self.held).first().copied();
        Lineage {
            epoch: window.epoch,
            plan: ReleasePlan {
                schema: self.planned.as_ref().and_then(|plan| plan.schema),
                fresh: Spans::of_rows(&self.rows, unplaced.chain(rejected)),
                // Retracted records are read again with their tombstones, and are retracted again.
                held: Spans::of_rows(&self.held, self.retracted.iter().copied()),
                shown: self.lists_shown.then(shown),
                row_levels: if self.lists_shown { self.shown_levels(outcomes) } else { None },
                journal: self.planned.as_ref().and_then(|plan| plan.journal),
                ..self.plan(self.lists_shown)
            },
            replayed: self.planned.is_some(),
            finished: self.finished(outcomes),
            since: oldest.map(|row| {
                let (rows, i) = source(row, &self.rows, &self.held);
                rows.arrived(i)
            }),
        }
    }

    /// The part of the plan without records; `listed` if it will list those that it shows.
    pub(super) fn plan(&self, listed: bool) -> ReleasePlan {
        let refused = self.window.rejected.iter().filter(|(_, reject)| reject.code == RejectCode::UnknownSchema);
        ReleasePlan {
            id: self.id,
            levels: self.levels_in_plan(listed),
            closed: Some(self.window.closed),
            fingerprint: self.policy.fingerprint.clone(),
            changes: self.changes.clone(),
            refused: Spans::covering(refused.map(|(position, _)| *position)),
            ..ReleasePlan::default()
        }
    }

    /// The position of a row.
    pub(super) fn position(&self, row: RowRef) -> Position {
        let (rows, i) = source(row, &self.rows, &self.held);
        rows.position(i)
    }

    /// The records that have their outcome with this release.
    fn finished(&self, outcomes: &Outcomes) -> Spans {
        let released = outcomes.published.iter().copied().filter(|row| matches!(row, RowRef::Held(_)));
        let expired = outcomes.expired.iter().map(|&i| RowRef::Held(i));
        let held = released.chain(expired).map(|row| self.position(row));
        let rejected = self.window.rejected.iter().map(|(position, _)| *position);
        let others = self.expired.iter().chain(&self.window.suppressed).copied().chain(rejected).chain(held);
        if outcomes.held.is_empty() {
            return Spans::of_rows(&self.rows, others);
        }
        // All fresh rows but those that wait.
        let mut waits = vec![false; self.rows.len()];
        outcomes.held.iter().for_each(|&i| waits[i as usize] = true);
        let fresh = self.rows.positions().zip(waits).filter(|(_, waits)| !waits).map(|(position, _)| position);
        Spans::covering(fresh.chain(others))
    }
}

impl Anonymizer {
    /// Drafts the release of a tumbling or planned window: takes the records in that waited for it, and those out that its
    /// tombstones retract. `expired` are the waiting records that are overdue.
    pub(super) fn draft(&mut self, window: ClosedWindow, mut expired: Vec<Position>) -> Result<Draft, TooWide> {
        self.waiting.hold_again(&window.held);
        let retracted = match window.tombstones.is_empty() {
            true => Vec::new(),
            false => self.waiting.take(|rows, i| window.tombstones.retracts(rows, i)),
        };
        expired.extend_from_slice(&retracted);
        self.dictionaries = Some(window.dictionaries.clone());
        let (rows, sets) = self.waiting.with_carried(&window, || self.rules.counting())?;
        let unplaced = self.waiting.add_unplaced(&window);
        Ok(Draft { expired, retracted, unplaced, ..Draft::new(self, window, rows, sets) })
    }
}
