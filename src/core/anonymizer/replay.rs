//! A release that was planned before a crash, made again.
//!
//! The plan has the levels, and where earlier releases decide too it lists the shown records, so nothing is searched and the
//! release has the bytes that it would have had. A plan that was made by another policy, or whose cuts do not fit the records that
//! are still in the log, cannot be repeated: its records are suppressed, because other bytes must not stand in for a release that
//! readers may have.

use std::sync::Arc;

use super::draft::{Draft, Outcomes};
use super::{Anonymizer, Closing};
use crate::failpoint::defect;
use crate::model::policy::RecodingKind;
use crate::model::release::plan::ReleasePlan;
use crate::search::choose::{Chosen, Levels};
use crate::search::evaluator::Evaluator;
use crate::window::{ClosedWindow, Replayed, TooWide};

impl Anonymizer {
    /// Makes a planned release again. Records that wait meanwhile, of partitions that were read before the plan was found, have no
    /// part in it.
    pub(super) fn release_again(&mut self, window: ClosedWindow, replayed: Replayed) -> Result<Closing, TooWide> {
        let (aside, ours) = (self.waiting.put_aside(), self.last.clone());
        let closing = self.repeat(window, replayed);
        self.waiting.take_back(&aside);
        if self.choice.levels == Levels::Monotone {
            let theirs = self.last.take();
            self.last = self.follow(theirs, ours);
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
        if self.policy.recoding == RecodingKind::Local {
            return Ok(self.release_locally(draft));
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
}
