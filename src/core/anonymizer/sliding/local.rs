//! Snapshots by local recoding: a record keeps the labels with which it was first shown for as long as it stays.
//!
//! The first snapshot learns the schedule, which then is fixed for the life of the window. New records are recoded among themselves,
//! so each of their classes satisfies the policy without anybody else, and it does not matter to whom its labels are known from
//! earlier snapshots. Records that no step releases wait for more newcomers. Records that were shown keep their labels, so a cell
//! (records that are alike in all snapshots) never splits by labels; `difference.rs` decides who may leave it. The gate counts
//! all this again, as for any other recoding, and where it refuses, newcomers start at a coarser step.
//!
//! The labels of a snapshot follow from all earlier ones. So where a plan must be enough to make it again, the plan has the levels of
//! each record.

use std::sync::Arc;
use std::time::Instant;

use rustc_hash::FxHashMap;

use super::{Pool, Snapshot};
use crate::anonymizer::draft::{Draft, Grouping, left_out};
use crate::anonymizer::{Anonymizer, local};
use crate::gate::{self, Release};
use crate::generalize::RowRef;
use crate::local::{Regions, Table, Terms, apply, learn};
use crate::loss;
use crate::model::event::Position;
use crate::model::recoding::{GeneralizedValue, Recoding};
use crate::model::release::manifest::Unmet;
use crate::privacy::Rules;
use crate::search::choose::Chosen;

use super::difference::{Candidates, Standing};

/// The labels of the rows of the last snapshot.
pub(super) type ShownLabels = FxHashMap<Position, Arc<[GeneralizedValue]>>;

impl Anonymizer {
    /// The snapshot of the window by its schedule, if the gate lets one pass; the draft then has its recoding. An error names the reason
    /// where the policy cannot be met.
    pub(super) fn pass_locally(
        &mut self,
        draft: &mut Draft,
        pool: &Pool,
        rules: &Rules,
    ) -> Result<(Release, Snapshot), Option<Unmet>> {
        let started = Instant::now();
        let domains = draft.window.dictionaries.quasi.clone();
        let terms = Terms::new(&self.policy, rules, &domains);
        let is_new = |i: usize| pool.standing[i] == Standing::New;
        let newcomers = pool.rows.filtered(is_new);
        let table = Table::new(&newcomers, &newcomers.filtered(|_| false), &self.rules.counting());
        let schedule = self.schedule().unwrap_or_else(|| learn(&terms, &[&table], &self.effort()));
        draft.introduces_schedule = !self.is_introduced(&schedule);
        // Only the first snapshot has no place to wait for.
        let allowed = match &self.snapshots.last {
            Some(_) => u64::MAX,
            None => self.policy.suppression.beside(pool.slide.unplaced, pool.window as u64).unwrap_or(0),
        };
        let mut starts = local::later_starts(&schedule);
        starts.push(0);
        let mut unmet = None;
        while let Some(first) = starts.pop() {
            let regions = apply(&terms, &table, &schedule, first, 0);
            let chosen = self.chosen_locally(Recoding::Local(schedule.clone()), &regions, allowed, started);
            if self.snapshots.last.is_none() && !chosen.evaluation.satisfies {
                unmet.get_or_insert_with(|| left_out::unmet(&chosen));
                continue;
            }
            let labels = self.labels(pool, &regions);
            self.show_labelled(draft, pool, rules, chosen, &labels);
            if draft.outcomes.published.is_empty() {
                continue;
            }
            if let Some(passed) = self.pass_difference(draft, pool) {
                self.snapshots.labels = labelled(draft, labels);
                self.introduce(schedule);
                return Ok(passed);
            }
        }
        Err(unmet)
    }

    /// The labels of every row of the pool: those it was shown with, or those of its region; `None` if it has to wait.
    fn labels(&self, pool: &Pool, regions: &Regions) -> Vec<Option<Arc<[GeneralizedValue]>>> {
        let of_class: Vec<Arc<[GeneralizedValue]>> =
            (0..regions.len() as u32).map(|class| regions.labels(class).into()).collect();
        let mut newcomer = 0;
        let label = |(i, standing): (usize, &Standing)| match standing {
            Standing::New => {
                newcomer += 1;
                regions.fresh(newcomer - 1).map(|class| Arc::clone(&of_class[class as usize]))
            }
            _ => self.snapshots.labels.get(&pool.rows.position(i)).cloned(),
        };
        pool.standing.iter().enumerate().map(label).collect()
    }

    /// Gives the draft the classes of these labels and the rows that may be shown in them.
    fn show_labelled(
        &self,
        draft: &mut Draft,
        pool: &Pool,
        rules: &Rules,
        chosen: Chosen,
        labels: &[Option<Arc<[GeneralizedValue]>>],
    ) {
        let Pool { rows, standing, cells, cell_count, .. } = pool;
        let candidates = Candidates { rows, standing, cells, cell_count: *cell_count, rules };
        let grouping = Grouping::of_labels(labels.iter().map(Option::as_deref), &draft.window.dictionaries);
        let mut settled = candidates.settle(grouping);
        settled.rows.retain(|&i| labels[i as usize].is_some());
        let (outcomes, grouping) = settled.into_outcomes(&candidates);
        draft.recode_grouped(chosen, grouping);
        draft.outcomes = outcomes;
        let hidden = (pool.rows.len() - draft.outcomes.published.len()) as u64;
        draft.search_losses = loss::of_rows(&self.policy, &draft.generalize(), hidden);
    }

    /// Sends the draft through the gate, beside the last snapshot.
    pub(super) fn pass_difference(&self, draft: &Draft, pool: &Pool) -> Option<(Release, Snapshot)> {
        let lineage = |given_up| self.account(draft, pool, given_up).lineage;
        let given_up = self.uncommitted.excess(pool.window, lineage)?;
        let mut batch = self.account(draft, pool, given_up).of(draft.generalize());
        if self.uncommitted.is_bounded() && matches!(draft.recoding, Recoding::Local(_)) {
            batch.lineage.plan.row_levels = Some(draft.shown_levels(&draft.outcomes)?);
        }
        self.add_losses(&mut batch);
        gate::verify_next(batch, &self.rules, self.snapshots.last.as_ref()).ok()
    }
}

/// The labels of the rows that the draft shows.
fn labelled(draft: &Draft, labels: Vec<Option<Arc<[GeneralizedValue]>>>) -> ShownLabels {
    let label = |&row: &RowRef| match row {
        RowRef::Fresh(i) => labels[i as usize].clone().map(|labels| (draft.position(row), labels)),
        RowRef::Held(_) => None,
    };
    draft.outcomes.published.iter().filter_map(label).collect()
}
