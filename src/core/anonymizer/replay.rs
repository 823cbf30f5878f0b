//! A release that was planned before a crash, made again.
//!
//! The plan has the levels, and where earlier releases decide too it lists the shown records, so nothing is searched and the
//! release has the bytes that it would have had. A plan that was made by another policy, or whose cuts do not fit the records that
//! are still in the log, or whose schedule does not fit the lattice, cannot be repeated: its records are suppressed, because other bytes
//! must not stand in for a release that readers may have.

use std::sync::Arc;
use std::time::Instant;

use super::draft::{Draft, Grouping, Outcomes};
use super::{Anonymizer, Closing};
use crate::failpoint::defect;
use crate::model::batch::Rows;
use crate::model::policy::RecodingKind;
use crate::model::release::plan::ReleasePlan;
use crate::model::release::row_levels::RowLevels;
use crate::model::release::spans::Spans;
use crate::model::schedule::Schedule;
use crate::search::choose::{Chosen, Levels};
use crate::search::evaluator::{Evaluation, Evaluator};
use crate::window::{ClosedWindow, Replayed, TooWide};

impl Anonymizer {
    /// Makes a planned release again. Records that wait meanwhile, of partitions that were read before the plan was found, have no
    /// part in it.
    pub(super) fn release_again(&mut self, window: ClosedWindow, replayed: Replayed) -> Result<Closing, TooWide> {
        let (aside, ours) = (self.waiting.put_aside(), self.last.clone());
        let closing = self.repeat(window, replayed);
        self.waiting.take_back(&aside);
        if matches!(self.choice.levels, Levels::Monotone | Levels::Fixed(_)) {
            let theirs = self.last.take();
            self.last = self.follow(ours, theirs);
        }
        closing
    }

    fn repeat(&mut self, window: ClosedWindow, replayed: Replayed) -> Result<Closing, TooWide> {
        let Replayed { plan, held } = replayed;
        let obsolete = plan.fingerprint != self.policy.fingerprint;
        if let Some(shown) = plan.shown.as_ref().filter(|_| !obsolete && !self.remembers()) {
            return Ok(self.release_snapshot_again(window, &plan, shown));
        }
        self.waiting.set_held(held);
        let mut draft = self.draft(window, Vec::new())?.repeating(plan);
        if obsolete || draft.rows.is_empty() {
            self.leave_planned_out(&mut draft, obsolete);
            return Ok(self.release_unsearched(draft));
        }
        if let (RecodingKind::Local, Some(planned)) = (self.policy.recoding, draft.planned_schedule()) {
            return Ok(self.repeat_locally(draft, planned));
        }
        let Some(recoding) = draft.planned_recoding() else {
            self.leave_planned_out(&mut draft, true);
            return Ok(self.release_unsearched(draft));
        };
        let policy = Arc::clone(&self.policy);
        let rules = self.rules.bind(&draft.window.dictionaries.values());
        let evaluator = Evaluator::beside(draft.unplaced, &policy, &rules, Arc::clone(&draft.sets));
        let evaluator = evaluator.warm(Arc::clone(&self.trail));
        draft.recode(Chosen::given(recoding, &self.choice, &evaluator));
        match draft.planned_to_show().cloned() {
            Some(shown) => draft.show(&shown),
            None => {
                draft.plan_rows(&evaluator);
                self.leave_recurring_out(&mut draft, &rules);
            }
        }
        Ok(self.finish(draft, &evaluator, &rules))
    }

    /// Makes a planned release of a schedule again: by the levels of each record where the plan has them, because they follow from
    /// earlier releases too.
    fn repeat_locally(&mut self, mut draft: Draft, (schedule, first): (Schedule, Option<usize>)) -> Closing {
        let plan = draft.planned.as_ref().and_then(|plan| Some((plan.shown.clone()?, plan.row_levels.clone()?)));
        let Some((shown, levels)) = plan else { return self.release_locally(draft) };
        let Some(grouping) = draft.grouped_as_planned(&shown, &levels) else {
            self.leave_planned_out(&mut draft, true);
            return self.release_unsearched(draft);
        };
        (draft.introduces_schedule, draft.first_step) = (true, first);
        let evaluation = Evaluation { satisfies: true, ..Evaluation::default() };
        draft.recode_grouped(self.followed(schedule, evaluation, Instant::now()), grouping);
        draft.show(&shown);
        self.uncommitted.fit(&mut draft);
        match self.pass_gate(&draft) {
            Closing::Refused(_) => self.publish_none(draft),
            closing => closing,
        }
    }

    /// Publishes nothing of a planned release. The records of an obsolete plan are suppressed, held ones included.
    fn leave_planned_out(&mut self, draft: &mut Draft, obsolete: bool) {
        if obsolete {
            draft.outcomes = Outcomes::all_suppressed(draft.rows.len());
            draft.expired.extend(draft.held.positions());
            self.waiting.clear_held();
            draft.held = Arc::clone(self.waiting.held());
        }
    }
}

impl Draft {
    /// The same draft as a repetition of a plan.
    pub(super) fn repeating(mut self, plan: ReleasePlan) -> Self {
        if !defect("fresh-id") {
            self.id = plan.id;
        }
        self.planned = Some(plan);
        self
    }

    /// The classes of the shown rows at the levels that each has in the plan.
    pub(super) fn grouped_as_planned(&self, shown: &Spans, levels: &RowLevels) -> Option<Grouping> {
        let mut places = shown.finder();
        let place = |rows: &Rows, i: usize| places.place(rows.position(i));
        Grouping::at_levels(levels, place, [&self.rows, &self.held], &self.window.dictionaries)
    }
}
