//! A snapshot that was planned before a crash, made again.
//!
//! The plan lists the records that the snapshot shows. Where the recoding is local, the journal also has the levels of each: they
//! follow from all earlier snapshots, and with the values that are read again they give the labels. Nothing is searched, and nothing is
//! shown where the log does not have all records any more.

use std::sync::Arc;

use super::{Account, Snapshots};
use crate::anonymizer::draft::Draft;
use crate::anonymizer::{Anonymizer, Closing};
use crate::gate;
use crate::generalize::Lineage;
use crate::model::event::Position;
use crate::model::policy::RecodingKind;
use crate::model::recoding::Recoding;
use crate::model::release::plan::ReleasePlan;
use crate::model::release::spans::Spans;
use crate::search::choose::{Choice, Chosen};
use crate::search::evaluator::Evaluator;
use crate::window::ClosedWindow;

impl Anonymizer {
    /// Makes a snapshot again that was planned before a crash. The window has the rows that it shows and the records that it
    /// accounts for. The earlier snapshot is gone; the gate compared the two when this one was planned.
    pub(in crate::anonymizer) fn release_snapshot_again(
        &mut self,
        window: ClosedWindow,
        planned: &ReleasePlan,
        shown: &Spans,
    ) -> Closing {
        let policy = Arc::clone(&self.policy);
        let rules = self.rules.bind(&window.dictionaries.values());
        let evaluator = Evaluator::new(&policy, &rules, Arc::clone(&window.sets));
        let (rows, sets) = (Arc::clone(&window.rows), Arc::clone(&window.sets));
        let mut draft = Draft::new(self, window, rows, sets);
        (draft.id, draft.planned) = (planned.id, Some(planned.clone()));
        draft.changes.clone_from(&planned.changes);
        let is_whole = draft.recode_as_planned(shown, &self.choice, &evaluator);
        draft.show(shown);
        let nothing = Spans::default();
        let mut shown = shown;
        if !is_whole || draft.outcomes.published.len() as u64 != shown.count() {
            // Its rows are not all in the log any more: other bytes must not stand in for it.
            shown = &nothing;
            draft.show(shown);
            draft.changes = None;
        }
        if !matches!(draft.recoding, Recoding::Local(_)) {
            draft.note_losses(&evaluator);
        }
        drop(evaluator);
        let mut batch = draft.replayed_account(planned, shown).of(draft.generalize());
        self.add_losses(&mut batch);
        match gate::verify(batch, &self.rules) {
            Ok(release) => {
                self.snapshots = Snapshots::default();
                self.uncommitted.made(&release.lineage().finished);
                if let Recoding::Local(schedule) = &draft.recoding {
                    self.introduce(schedule.clone());
                }
                self.last = Some(draft.recoding);
                Closing::Release(Box::new(release))
            }
            Err(refusal) => Closing::Refused(refusal),
        }
    }
}

impl Draft {
    /// Sets the recoding of the plan; false if it fits neither the policy nor the rows that were read again.
    fn recode_as_planned(&mut self, shown: &Spans, choice: &Choice, evaluator: &Evaluator<'_>) -> bool {
        if self.policy.recoding != RecodingKind::Local {
            let Some(recoding) = self.planned_recoding() else { return false };
            self.recode(Chosen::given(recoding, choice, evaluator));
            return true;
        }
        let row_levels = self.planned.as_ref().and_then(|plan| plan.row_levels.as_ref());
        let (Some((schedule, _)), Some(row_levels)) = (self.planned_schedule(), row_levels) else { return false };
        let Some(grouping) = self.grouped_as_planned(shown, row_levels) else { return false };
        self.recode_grouped(Chosen::given(Recoding::Local(schedule), choice, evaluator), grouping);
        true
    }

    /// The account of a planned snapshot. Rows that it shows and that were not read for it are finished already.
    fn replayed_account(&self, planned: &ReleasePlan, shown: &Spans) -> Account {
        let window = &self.window;
        let own = self.rows.positions().filter(|position| planned.is_read(*position));
        let (first, gone): (Vec<Position>, Vec<Position>) = own.partition(|position| shown.contains(*position));
        let rejected = window.rejected.iter().map(|(position, _)| *position);
        let finished = Spans::covering(first.iter().chain(&gone).chain(&window.suppressed).copied().chain(rejected));
        Account {
            read: finished.count(),
            published: first.len() as u64,
            suppressed: (gone.len() + window.suppressed.len()) as u64,
            waiting: 0,
            lineage: Lineage { epoch: window.epoch, plan: planned.clone(), replayed: true, finished, since: None },
        }
    }
}
