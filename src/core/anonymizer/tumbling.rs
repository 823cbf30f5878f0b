//! The release of a tumbling window, and of waiting records that expire without one.
//!
//! The search chooses a recoding for the window's rows together with the carried ones. Rows of classes that do not satisfy
//! the policy are held or suppressed. Where the suppression limit is exceeded by values without a place alone, nothing is
//! published. The gate counts the draft; where it refuses, the draft is tried again with fewer rows.

use std::sync::Arc;

use super::draft::{Draft, Outcomes, left_out};
use super::{Anonymizer, Closing, ReleaseStep};
use crate::failpoint::defect;
use crate::gate;
use crate::generalize::GeneralizedBatch;
use crate::loss;
use crate::model::policy::{Policy, RecodingKind};
use crate::model::recoding::Recoding;
use crate::model::release::manifest::Unmet;
use crate::model::release::spans::Spans;
use crate::privacy::Rules;
use crate::search::choose::choose;
use crate::search::evaluator::Evaluator;
use crate::window::{ClosedWindow, TooWide};

impl Anonymizer {
    /// Makes the release of a tumbling window.
    pub(super) fn release_tumbling(&mut self, window: ClosedWindow) -> Result<Closing, TooWide> {
        let expired = self.waiting.expire(window.closed);
        let mut draft = self.draft(window, expired)?;
        if draft.rows.is_empty() || draft.is_over_limit() {
            draft.outcomes = Outcomes::none_published(self.policy.action, draft.rows.len());
            return Ok(self.release_unsearched(draft));
        }
        if self.policy.recoding == RecodingKind::Local {
            return Ok(self.release_locally(draft));
        }
        let policy = Arc::clone(&self.policy);
        let rules = self.search_rules(&draft.rows, &draft.window.dictionaries);
        let evaluator = Evaluator::beside(draft.unplaced, &policy, &rules, Arc::clone(&draft.sets));
        let evaluator = evaluator.warm(Arc::clone(&self.trail));
        let chosen = choose(&self.choice, &policy.lattice(), self.last.as_ref(), &evaluator, &mut self.seeds);
        draft.recode(self.plannable(chosen, &[&draft.rows, &draft.held], &evaluator));
        draft.plan_rows(&evaluator);
        self.leave_recurring_out(&mut draft, &rules);
        Ok(self.finish(draft, &evaluator, &rules))
    }

    /// Makes a release without rows of a draft for which no recoding was searched.
    pub(super) fn release_unsearched(&mut self, mut draft: Draft) -> Closing {
        self.uncommitted.fit(&mut draft);
        self.pass_gate(&draft)
    }

    /// Takes a draft whose rows are planned through the commit space and the gate. Where the gate refuses it, tries again
    /// without held rows, and with `sequential` at last without any rows.
    pub(super) fn finish(&mut self, mut draft: Draft, evaluator: &Evaluator<'_>, rules: &Rules) -> Closing {
        self.uncommitted.fit(&mut draft);
        draft.note_losses(evaluator);
        if let Some(chosen) = &draft.chosen {
            self.make_insight(evaluator, chosen);
        }
        let mut closing = self.pass_gate(&draft);
        if matches!(closing, Closing::Refused(_)) && draft.outcomes.leave_held_out() {
            // Where a criterion is not monotone, held rows can break a class that satisfies it without them.
            self.leave_recurring_out(&mut draft, rules);
            self.uncommitted.fit(&mut draft);
            closing = self.pass_gate(&draft);
        }
        let asked = self.policy.sequential.is_some();
        if matches!(closing, Closing::Refused(_)) && asked && draft.outcomes.leave_all_out(self.policy.action) {
            // A rule about several classes can need the rows that `sequential` leaves out.
            self.uncommitted.fit(&mut draft);
            closing = self.pass_gate(&draft);
        }
        closing
    }

    /// Sends the draft through the gate; only a draft that passes changes the waiting records.
    pub(super) fn pass_gate(&mut self, draft: &Draft) -> Closing {
        self.begin(ReleaseStep::Generalizing);
        let mut batch = draft.batch();
        self.add_losses(&mut batch);
        draft.count_messages(&mut batch);
        self.begin(ReleaseStep::Checking);
        let open = defect("gate-open").then(|| Rules::new(&Policy { criteria: Vec::new(), ..(*self.policy).clone() }));
        let verdict = match (&open, &mut self.memory) {
            (Some(open), _) => gate::verify(batch, open),
            (None, Some(memory)) => {
                let planned = batch.lineage.plan.journal.is_some();
                gate::verify_recurring(batch, &self.rules, memory, planned)
            }
            (None, None) => gate::verify(batch, &self.rules),
        };
        match verdict {
            Ok(release) => {
                self.waiting.settle(&draft.rows, &draft.outcomes);
                self.uncommitted.made(&release.lineage().finished);
                if !release.is_empty() {
                    self.last = Some(draft.recoding.clone());
                }
                Closing::Release(Box::new(release))
            }
            Err(refusal) => Closing::Refused(refusal),
        }
    }
}

impl Draft {
    /// True if values without a place alone exceed the suppression limit. A planned release was within it.
    fn is_over_limit(&self) -> bool {
        let records = self.rows.len() as u64;
        self.planned.is_none() && self.policy.suppression.beside(self.unplaced, records).is_none()
    }

    /// The batch for the gate, with its lineage and the operator's figures about left-out records.
    fn batch(&self) -> GeneralizedBatch {
        let mut batch = self.generalize();
        if matches!(self.recoding, Recoding::Local(_)) {
            // No search has counted the classes of a schedule. All that is not shown is lost for now.
            let hidden = (self.rows.len() + self.held.len() - self.outcomes.published.len()) as u64;
            batch.provenance.work.losses = loss::of_rows(&self.policy, &batch, hidden);
        }
        batch.lineage = self.lineage(&self.outcomes);
        batch.provenance.work.unmet = self.unmet();
        batch.provenance.work.left_out = left_out::groups(self);
        batch
    }

    /// Where a message has several records, counts messages: its records have their outcomes in one release, and it is published if
    /// one of them is.
    fn count_messages(&self, batch: &mut GeneralizedBatch) {
        if self.policy.schema.array.is_some() {
            let published = Spans::covering(self.outcomes.published.iter().map(|&row| self.position(row))).count();
            let GeneralizedBatch { lineage, provenance, .. } = batch;
            provenance.records_in = lineage.plan.fresh.count();
            provenance.records_published = published;
            provenance.records_suppressed = lineage.finished.count() - published - provenance.records_rejected;
        }
    }

    /// Why nothing is published of a window that has records; `None` if rows are published.
    fn unmet(&self) -> Option<Unmet> {
        let brought = !(self.window.rows.is_empty() && self.window.suppressed.is_empty());
        match &self.chosen {
            _ if !brought || !self.outcomes.published.is_empty() => None,
            Some(chosen) => Some(left_out::unmet(chosen)),
            None => self.is_over_limit().then_some(Unmet::Unplaced),
        }
    }
}
