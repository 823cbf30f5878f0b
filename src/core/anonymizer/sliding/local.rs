//! Snapshots by local recoding: a record keeps the labels with which it was first shown for as long as it stays.
//!
//! New records are recoded among themselves, so each of their classes satisfies the policy without anybody else, and it does not matter
//! to whom its labels are known from earlier snapshots. The newcomers of one slide may be few, and few records share coarse labels only.
//! So a newcomer may wait for others: the longer its class has waited, the more it may lose ([`Patience`]). Where the gate refuses, or what
//! waits does not fit the commit, nobody waits, and at last newcomers start at a coarser step. Records that were shown keep their labels,
//! so a cell (records that are alike in all snapshots) never splits by labels; `difference.rs` decides who may leave it. The gate counts
//! all this again, as for any other recoding.
//!
//! The first snapshot learns a schedule. Others are learnt from the newcomers of late and take its place as `levels` says
//! ([`Anonymizer::learn`]), for newcomers only.
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
use crate::local::{Admission, Regions, Table, Terms, apply, apply_admitting, learn};
use crate::loss;
use crate::model::batch::Rows;
use crate::model::event::Position;
use crate::model::recoding::{GeneralizedValue, Recoding};
use crate::model::release::manifest::Unmet;
use crate::model::schedule::Schedule;
use crate::privacy::Rules;
use crate::search::choose::Chosen;
use crate::window::{CloseReason, Slide};

use super::difference::{Candidates, Standing};

/// The share of the window that may be replaced while a newcomer waits for finer labels. More: more records are missing from snapshots, for
/// labels that are hardly finer. Less: few newcomers meet others like them, so their labels are coarse for as long as they stay.
const LONGEST_WAIT: f64 = 0.6;

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
        let is_waited_for = self.snapshots.last.is_some() && draft.window.reason != CloseReason::Drained;
        let patience = || Patience::new(&newcomers, &pool.arrived, &pool.slide);
        let mut patience = is_waited_for.then(patience);
        let mut unmet = None;
        while let Some(first) = starts.pop() {
            let regions = recode(&terms, &table, &schedule, first, patience.as_mut());
            let chosen = self.chosen_locally(&schedule, &regions, allowed, started);
            if self.snapshots.last.is_none() && !chosen.evaluation.satisfies {
                unmet.get_or_insert_with(|| left_out::unmet(&chosen));
                continue;
            }
            let labels = self.labels(pool, &regions);
            self.show_labelled(draft, pool, rules, chosen, &labels);
            let passed = match draft.outcomes.published.is_empty() {
                true => None,
                false => self.pass_difference(draft, pool, patience.is_none()),
            };
            if let Some(passed) = passed {
                self.snapshots.labels = labelled(draft, labels);
                self.introduce(schedule);
                self.learning.remember_slide(table, &draft.window.dictionaries, regions.loss());
                return Ok(passed);
            }
            if patience.take().is_some() {
                starts.push(first);
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

    /// Sends the draft through the gate, beside the last snapshot. `None` if it does not pass, or if waiting rows would have to be given
    /// up that may not.
    pub(super) fn pass_difference(&self, draft: &Draft, pool: &Pool, may_give_up: bool) -> Option<(Release, Snapshot)> {
        let lineage = |given_up| self.account(draft, pool, given_up).lineage;
        let given_up =
            self.uncommitted.excess(pool.window, lineage).filter(|given_up| may_give_up || *given_up == 0)?;
        let mut batch = self.account(draft, pool, given_up).of(draft.generalize());
        if self.uncommitted.is_bounded() && matches!(draft.recoding, Recoding::Local(_)) {
            batch.lineage.plan.row_levels = Some(draft.shown_levels(&draft.outcomes)?);
        }
        self.add_losses(&mut batch);
        gate::verify_next(batch, &self.rules, self.snapshots.last.as_ref()).ok()
    }
}

/// The classes of the newcomers of a slide.
pub(super) fn recode(
    terms: &Terms<'_>,
    newcomers: &Table,
    schedule: &Schedule,
    first: usize,
    patience: Option<&mut Patience>,
) -> Regions {
    match patience {
        // A record that joins a class which was released without it costs all of that class their finer labels, for as long as they
        // stay. It goes on waiting where that is more than it gains.
        Some(patience) => apply_admitting(terms, newcomers, schedule, (first, u64::MAX), patience),
        None => apply(terms, newcomers, schedule, first, 0),
    }
}

/// Lets newcomers wait for finer steps. A class comes as soon as it loses no more than the share of the longest wait that its
/// records will have behind them by the next slide. So dense regions come at once, sparse ones later and coarser, and those who have waited
/// for the longest time at any step.
pub(super) struct Patience {
    /// Per newcomer that share.
    waited: Vec<f64>,
}

impl Patience {
    /// Of these newcomers, who are among the rows of the window and in the same order.
    pub(super) fn new(newcomers: &Rows, window: &[Position], slide: &Slide) -> Self {
        let longest = (LONGEST_WAIT * window.len() as f64).min(slide.max_hold as f64 * slide.came as f64);
        let mut at = window.len();
        let mut waited = vec![0.0; newcomers.len()];
        for (i, waited) in waited.iter_mut().enumerate().rev() {
            at = window[..at].iter().rposition(|position| *position == newcomers.position(i)).unwrap_or(0);
            *waited = (window.len() - at + slide.came) as f64 / longest;
        }
        Self { waited }
    }

    fn of(&self, table: &Table, tuples: &[u32]) -> f64 {
        let rows = || tuples.iter().flat_map(|&tuple| table.fresh_rows(tuple));
        rows().map(|&row| self.waited[row as usize]).sum::<f64>() / rows().count().max(1) as f64
    }
}

impl Admission for Patience {
    fn step(&mut self, table: &Table, tuples: &mut Vec<u32>, loss: f64) {
        if self.of(table, tuples) < loss {
            tuples.clear();
        }
    }

    fn may_join_any(&self, table: &Table, tuple: u32) -> bool {
        self.of(table, &[tuple]) >= 1.0
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
