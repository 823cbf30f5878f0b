//! Sliding window -> snapshot of the whole window, safe beside all earlier snapshots.
//!
//! A record counts as published with the first snapshot that shows it, and as suppressed when it leaves the window unseen. The
//! snapshots that show it follow one another without a gap. If no option passes the gate, nothing is published for this slide,
//! and the last snapshot stays the one to compare with. Memory is bounded: only rows of the window and of the last snapshot are
//! kept. Where waiting records must fit the commit metadata, the oldest ones are given up.
//!
//! After a restart the log delivers only records that no snapshot has shown, so snapshots from before and after have no row in
//! common and cannot be subtracted. A snapshot that was planned before a crash is made again of the rows that its plan lists.
//!
//! `difference.rs` decides which rows a snapshot may show; `local.rs` makes snapshots by a schedule; `replay.rs` makes a planned
//! snapshot again; `changes.rs` publishes only what changes, and `unseen.rs` keeps the rows that wait.

mod changes;
mod difference;
mod local;
mod replay;
mod unseen;

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::draft::{Draft, Grouping, Numbering, Outcomes, left_out};
use super::{Anonymizer, Closing};
use crate::failpoint::defect;
use crate::gate::{self, Release, Snapshot};
use crate::generalize::{GeneralizedBatch, Lineage, RowRef};
use crate::model::batch::Rows;
use crate::model::event::Position;
use crate::model::lattice::Lattice;
use crate::model::policy::RecodingKind;
use crate::model::recoding::Recoding;
use crate::model::release::manifest::Unmet;
use crate::model::release::plan::{PlannedChanges, ReleasePlan};
use crate::model::release::spans::Spans;
use crate::search::choose::{Choice, Chosen, Levels, choose};
use crate::search::evaluator::Evaluator;
use crate::window::{CloseReason, ClosedWindow, Slide};

use difference::{Candidates, Settled, Standing};

pub(super) use difference::tally;

/// The number of windows within which finer levels must make up for the rows that snapshots leave out for them. More moves to
/// finer levels for less gain and leaves more rows out; fewer stays coarse for longer.
const REPAID_IN: f64 = 4.0;

/// The state between slides.
#[derive(Default)]
pub(super) struct Snapshots {
    last: Option<Snapshot>,
    /// The rows of the last snapshot.
    shown: Spans,
    /// Of the rows in the window and in the last snapshot, those that some snapshot has shown.
    published: Spans,
    /// The slide by which each row of the last snapshot left the window.
    left: FxHashMap<Position, u64>,
    /// The rows of the last snapshot that were retracted: they do not stay.
    retracted: FxHashSet<Position>,
    slides: u64,
    waiting: usize,
    /// Rows of the window that are never shown, because the commit metadata has no space for them while they wait.
    given_up: Spans,
    numbering: Numbering,
    /// With local recoding, the labels of the rows of the last snapshot.
    labels: local::ShownLabels,
    /// The rows of the window.
    in_window: Spans,
    /// Where only changes are published, the snapshot that they change; then `last` is none.
    changelog: Option<changes::Changelog>,
    pace: changes::Pace,
}

impl Snapshots {
    /// Rows in the window that no snapshot has shown yet.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }
}

/// The outcomes of records with a snapshot, and its lineage.
struct Account {
    read: u64,
    published: u64,
    suppressed: u64,
    waiting: u64,
    lineage: Lineage,
}

impl Account {
    /// The batch with the counts of the account.
    fn of(self, mut batch: GeneralizedBatch) -> GeneralizedBatch {
        let from = &mut batch.provenance;
        // Records come and go one by one here, so any range would begin or end with a single one.
        from.offsets = Vec::new();
        from.records_in = self.read;
        from.records_published = self.published;
        from.records_suppressed = self.suppressed;
        from.records_held = self.waiting;
        batch.lineage = self.lineage;
        batch
    }
}

/// The rows that the next snapshot may show.
struct Pool {
    rows: Arc<Rows>,
    standing: Vec<Standing>,
    /// The cell of each in the last snapshot; 0 for those that are new.
    cells: Vec<u32>,
    cell_count: usize,
    in_window: Spans,
    /// How many rows the window has, those that are not shown any more included.
    window: usize,
    /// With local recoding, these rows in the order in which they came.
    arrived: Vec<Position>,
    slide: Slide,
}

impl Settled {
    /// How many of the rows are in the window; the others come after them.
    fn in_window(&self, candidates: &Candidates<'_>) -> usize {
        let is_in_window = |standing: &Standing| matches!(standing, Standing::New | Standing::Shown);
        let window = candidates.standing.partition_point(is_in_window) as u32;
        self.rows.partition_point(|&i| i < window)
    }

    /// The outcomes that show these rows, and their classes.
    fn into_outcomes(self, candidates: &Candidates<'_>) -> (Outcomes, Grouping) {
        let gone = self.rows.len() - self.in_window(candidates);
        let mut published: Vec<RowRef> = self.rows.into_iter().map(RowRef::Fresh).collect();
        // Rows that have left the window mostly stood before it: this order leaves less to sort.
        published.rotate_right(gone);
        (Outcomes { published, ..Outcomes::default() }, self.grouping)
    }
}

/// The choice and the lattice of recodings that tell no values apart which `last` publishes as one.
fn coarser(choice: &Choice, lattice: &Lattice, last: &Recoding) -> (Choice, Lattice) {
    match last {
        Recoding::Node(node) => (choice.clone(), Lattice::new(node.clone(), lattice.join(lattice.top(), node))),
        Recoding::Cuts(_) | Recoding::Local(_) => {
            (Choice { levels: Levels::Monotone, ..choice.clone() }, lattice.clone())
        }
    }
}

impl Anonymizer {
    /// Makes the snapshot of a sliding window.
    pub(super) fn release_snapshot(&mut self, window: ClosedWindow, slide: Slide) -> Closing {
        self.snapshots.slides += 1;
        match self.release_changes(window, &slide) {
            Ok(closing) => closing,
            Err(window) => self.release_whole(*window, slide),
        }
    }

    /// Makes a snapshot that shows all its rows.
    fn release_whole(&mut self, mut window: ClosedWindow, slide: Slide) -> Closing {
        if defect("no-difference") {
            (self.snapshots.last, self.last) = (None, None);
            self.snapshots.shown = Spans::default();
        }
        let pool = self.pool(&mut window, slide);
        let sets = Arc::clone(&window.sets);
        let mut draft = Draft::new(self, window, Arc::clone(&pool.rows), sets);
        draft.changes = pool.slide.changes.then(PlannedChanges::default);
        let (release, snapshot) = match self.pass_any_option(&mut draft, &pool) {
            Ok(passed) => passed,
            Err(unmet) => return self.skip_snapshot(draft, &pool, unmet),
        };
        self.snapshots.last = Some(snapshot);
        self.remember(draft.window.reason, &pool.in_window, &release);
        if pool.slide.changes {
            self.follow_changes(&draft, &pool, &release);
        }
        self.last = Some(draft.recoding);
        Closing::Release(Box::new(release))
    }

    /// The best snapshot that passes the gate; the draft then has its recoding. An error names the reason where the policy
    /// cannot be met.
    fn pass_any_option(&mut self, draft: &mut Draft, pool: &Pool) -> Result<(Release, Snapshot), Option<Unmet>> {
        let policy = Arc::clone(&self.policy);
        let unplaced = pool.slide.unplaced;
        // Records without a place in a hierarchy count against the limit too.
        if policy.suppression.beside(unplaced, draft.sets.base().records()).is_none() {
            return Err(Some(Unmet::Unplaced));
        }
        if pool.window == 0 {
            return Err(None);
        }
        let rules = self.rules.bind(&draft.window.dictionaries.values());
        if policy.recoding == RecodingKind::Local {
            return self.pass_locally(draft, pool, &rules);
        }
        let evaluator = Evaluator::beside(unplaced, &policy, &rules, Arc::clone(&draft.sets));
        let evaluator = evaluator.warm(Arc::clone(&self.trail));
        let Pool { rows, standing, cells, .. } = pool;
        let candidates = Candidates { rows, standing, cells, cell_count: pool.cell_count, rules: &rules };
        for (chosen, settled) in self.options(&draft.window, &candidates, &evaluator, pool.window)? {
            let (outcomes, grouping) = settled.into_outcomes(&candidates);
            draft.recode_grouped(chosen, grouping);
            draft.outcomes = outcomes;
            draft.note_losses(&evaluator);
            if let Some(passed) = self.pass_difference(draft, pool, true) {
                return Ok(passed);
            }
        }
        Err(None)
    }

    /// The recodings to try and the rows that each would show, the better option first. A recoding that tells rows apart which
    /// were shown as one must leave out groups that are too small; the best one that only coarsens the last never does.
    fn options(
        &mut self,
        window: &ClosedWindow,
        candidates: &Candidates<'_>,
        evaluator: &Evaluator<'_>,
        rows: usize,
    ) -> Result<Vec<(Chosen, Settled)>, Unmet> {
        let lattice = self.policy.lattice();
        let chosen = choose(&self.choice, &lattice, self.last.as_ref(), evaluator, &mut self.seeds);
        let chosen = self.plannable(chosen, &[candidates.rows], evaluator);
        let settled = self.settled(candidates, window, &chosen);
        let last = self.last.clone().filter(|_| settled.splits);
        let mut options = vec![(chosen, settled)];
        if let Some(last) = last {
            let (choice, within) = coarser(&self.choice, &lattice, &last);
            let coarser = choose(&choice, &within, Some(&last), evaluator, &mut self.seeds);
            let coarser = self.plannable(coarser, &[candidates.rows], evaluator);
            let settled = self.settled(candidates, window, &coarser);
            options.push((coarser, settled));
            let everything = evaluator.evaluate(lattice.top()).loss;
            let cost = |(chosen, settled): &(Chosen, Settled)| {
                let unseen = 1.0 - settled.in_window(candidates) as f64 / rows as f64;
                let loss = chosen.evaluation.loss;
                // All rows are seen again once the window has been replaced: on average half of them are unseen until then.
                loss + (everything - loss).max(0.0) * unseen / 2.0 / REPAID_IN
            };
            options.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        }
        let unmet = left_out::unmet(&options[0].0);
        options.retain(|(chosen, _)| chosen.evaluation.satisfies);
        let Some((best, _)) = options.first() else { return Err(unmet) };
        self.make_insight(evaluator, best);
        options.retain(|(_, settled)| !settled.rows.is_empty());
        Ok(options)
    }

    fn settled(&mut self, candidates: &Candidates<'_>, window: &ClosedWindow, chosen: &Chosen) -> Settled {
        let numbering = &mut self.snapshots.numbering;
        let grouping = Grouping::followed(numbering, &chosen.recoding, candidates.rows, &window.dictionaries);
        candidates.settle(grouping)
    }

    /// The rows of the window and, behind them, those of the last snapshot that have left it.
    fn pool(&mut self, closed: &mut ClosedWindow, slide: Slide) -> Pool {
        let Snapshots { last, shown, published, left, retracted, slides, given_up, .. } = &mut self.snapshots;
        let mut rows = std::mem::take(&mut closed.rows);
        let window = rows.len();
        let is_local = self.policy.recoding == RecodingKind::Local;
        let arrived = if is_local { rows.positions().collect() } else { Vec::new() };
        let in_window = Spans::covering(rows.positions());
        let gone = shown.without(&in_window);
        let over = if last.is_some() { published.without(shown).union(given_up) } else { given_up.clone() };
        if !over.is_empty() {
            let mut is_over = over.finder();
            rows = Arc::new(rows.filtered(|i| !is_over.contains(rows.position(i))));
        }
        let mut cell_of = last.as_ref().map(Snapshot::cells);
        let mut cell = |position: Position| cell_of.as_mut().and_then(|cell_of| cell_of(position));
        let of = |position: Position| match cell(position) {
            Some(cell) => (Standing::Shown, cell),
            None => (Standing::New, 0),
        };
        let (mut standing, mut cells): (Vec<Standing>, Vec<u32>) = rows.positions().map(of).unzip();
        // The window's rows have no other owner, so nothing is copied.
        let pool = Arc::make_mut(&mut rows);
        for (of, i) in last.iter().flat_map(|last| last.rows_at(&gone)) {
            let position = of.position(i);
            if closed.tombstones.retracts(of, i) && retracted.insert(position) {
                // The window has counted the rows that were in it until now.
                closed.retracted += u64::from(left.contains_key(&position));
            }
            let since = *left.entry(position).or_insert(*slides);
            pool.push_from(of, i);
            let overdue = slides.saturating_sub(since) >= slide.max_hold || retracted.contains(&position);
            standing.push(if overdue { Standing::Overdue } else { Standing::Due });
            cells.extend(cell(of.position(i)));
        }
        left.retain(|position, _| shown.contains(*position));
        retracted.retain(|position| shown.contains(*position));
        let cell_count = last.as_ref().map_or(0, Snapshot::cell_count);
        Pool { rows, standing, cells, cell_count, in_window, window, arrived, slide }
    }

    /// Shows nothing: accounts only for rejected records and for rows that left the window unseen.
    fn skip_snapshot(&mut self, mut draft: Draft, pool: &Pool, unmet: Option<Unmet>) -> Closing {
        draft.clear();
        let lineage = |given_up| self.account(&draft, pool, given_up).lineage;
        let given_up = self.uncommitted.excess(pool.window, lineage).unwrap_or(pool.window);
        let mut batch = self.account(&draft, pool, given_up).of(draft.generalize());
        batch.provenance.work.skipped = pool.window > 0 && unmet.is_none();
        batch.provenance.work.unmet = unmet;
        match gate::verify(batch, &self.rules) {
            Ok(release) => {
                self.remember(draft.window.reason, &pool.in_window, &release);
                Closing::Release(Box::new(release))
            }
            Err(refusal) => Closing::Refused(refusal),
        }
    }

    /// The account of a snapshot if the oldest `given_up` waiting rows of the window are given up.
    fn account(&self, draft: &Draft, pool: &Pool, given_up: usize) -> Account {
        let Snapshots { published: seen, given_up: given_up_before, .. } = &self.snapshots;
        let window = &draft.window;
        let shown = Spans::covering(draft.outcomes.published.iter().map(|&row| draft.position(row)));
        let first = shown.without(seen);
        let settled = seen.union(&first).union(given_up_before);
        let waiting = pool.in_window.without(&settled);
        let waits = waiting.count() as usize;
        let given_up = if window.reason == CloseReason::Drained { waits } else { given_up.min(waits) };
        let mut is_waiting = waiting.finder();
        let oldest = pool.rows.positions().filter(|position| is_waiting.contains(*position));
        let left = pool.slide.left.iter().copied().filter(|position| !settled.contains(*position));
        let gone: Vec<Position> = left.chain(oldest.take(given_up)).collect();
        let rejected = window.rejected.iter().map(|(position, _)| *position);
        let others = Spans::covering(gone.iter().chain(&window.suppressed).copied().chain(rejected));
        let finished = first.union(&others);
        let shown = (!shown.is_empty()).then_some(shown);
        let plan = ReleasePlan { fresh: finished.clone(), shown, ..draft.plan(true) };
        Account {
            read: pool.slide.read + (window.rejected.len() + window.suppressed.len()) as u64,
            published: first.count(),
            suppressed: (gone.len() + window.suppressed.len()) as u64,
            waiting: (waits - given_up) as u64,
            lineage: Lineage { epoch: window.epoch, plan, replayed: false, finished, since: None },
        }
    }

    /// Updates the state for the next slide.
    fn remember(&mut self, reason: CloseReason, in_window: &Spans, release: &Release) {
        let finished = &release.lineage().finished;
        self.uncommitted.made(finished);
        let Snapshots { shown, published, waiting, given_up, in_window: last_window, .. } = &mut self.snapshots;
        let plan = &release.lineage().plan;
        match (&plan.shown, &plan.changes) {
            (Some(sent), Some(PlannedChanges { base: Some(_), left, .. })) => *shown = shown.union(sent).without(left),
            (Some(now), _) => shown.clone_from(now),
            (None, _) => {}
        }
        last_window.clone_from(in_window);
        *published = published.within(in_window).union(shown);
        let unseen = in_window.without(published);
        *given_up = unseen.within(&given_up.union(finished));
        *waiting = (unseen.count() - given_up.count()) as usize;
        if reason == CloseReason::Drained {
            self.snapshots = Snapshots::default();
        }
    }
}
