//! A sliding window as it stands -> a snapshot of it, safe beside all that came before it.
//!
//! A record counts as published with the first snapshot that shows it, and as suppressed when it leaves the window
//! without one. It is shown in snapshots that follow one another, and never again after one without it. If no plan passes
//! the gate, nothing is published for this slide, and the last snapshot stays the one to compare with. Bounded: only rows
//! of the window and of the last snapshot are remembered. Where what waits must be written down, the oldest rows that wait
//! are given up when there is no room for them.
//!
//! What a log reads again after a restart has never been shown, so the window then starts without what was, and no two
//! snapshots from before and after have a row in common: there is nothing to subtract. A snapshot that was planned
//! before a crash is made again of the very rows that it was to show.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::difference::{Candidates, Settled, Standing};
use super::numbering::Numbering;
use super::{Anonymizer, Closing, Plan, left_out};
use crate::failpoint::defect;
use crate::gate::{self, Release, Snapshot};
use crate::generalize::{GeneralizedBatch, Lineage, RowRef};
use crate::model::batch::Rows;
use crate::model::event::{Position, RejectCode};
use crate::model::lattice::{Lattice, Node};
use crate::model::recoding::{Column, Recoding};
use crate::model::release::manifest::Unmet;
use crate::model::release::plan::ReleasePlan;
use crate::model::release::spans::Spans;
use crate::search::choose::{Choice, Chosen, Levels, choose};
use crate::search::evaluator::Evaluator;
use crate::search::insight;
use crate::window::{CloseReason, ClosedWindow, Slide};

/// In how many windows' time finer levels must make good the rows that snapshots are without for their sake. More gets finer
/// for less, and empties snapshots more often; fewer stays coarse for longer.
const REPAID_IN: f64 = 4.0;

/// What outlives a slide.
#[derive(Default)]
pub(super) struct Snapshots {
    last: Option<Snapshot>,
    /// The rows of the last snapshot.
    shown: Spans,
    /// Of the rows in the window and in the last snapshot, those that some snapshot has shown.
    published: Spans,
    /// By which slide the rows of the last snapshot left the window.
    left: FxHashMap<Position, u64>,
    /// The rows of the last snapshot that were retracted: they do not stay.
    retracted: FxHashSet<Position>,
    slides: u64,
    waiting: usize,
    /// Rows of the window that are never shown, for want of room to write down that they wait.
    given_up: Spans,
    numbering: Numbering,
}

impl Snapshots {
    /// Rows in the window that no snapshot has shown yet.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }
}

/// What becomes of whom with a snapshot.
struct Account {
    read: u64,
    published: u64,
    suppressed: u64,
    waiting: u64,
    lineage: Lineage,
}

impl Account {
    /// The batch, with what the account says.
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
    /// How many rows are in the window; the first ones are, without those that are not shown any more.
    window: usize,
}

impl Settled {
    /// How many of the rows are in the window; the others come after them.
    fn in_window(&self, candidates: &Candidates<'_>) -> usize {
        let is_in_window = |standing: &Standing| matches!(standing, Standing::New | Standing::Shown);
        let window = candidates.standing.partition_point(is_in_window) as u32;
        self.rows.partition_point(|&i| i < window)
    }

    fn plan(self, candidates: &Candidates<'_>) -> Plan {
        let gone = self.rows.len() - self.in_window(candidates);
        let mut published: Vec<RowRef> = self.rows.into_iter().map(RowRef::Fresh).collect();
        // Who has left the window stood before it, mostly: so there is less to sort.
        published.rotate_right(gone);
        Plan { published, numbers: Some(self.numbers), ..Plan::default() }
    }
}

/// How and where to search for the best recoding that tells nothing apart which `last` does not.
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
    pub(super) fn snapshot(&mut self, window: &mut ClosedWindow, slide: &Slide) -> Closing {
        self.snapshots.slides += 1;
        if defect("no-difference") {
            (self.snapshots.last, self.last) = (None, None);
            self.snapshots.shown = Spans::default();
        }
        let pool = self.pool(window, slide.max_hold);
        let window = &*window;
        let id = rand::random();
        let (release, snapshot, recoding) = match self.passed(window, slide, &pool, id) {
            Ok(passed) => passed,
            Err(unmet) => return self.skipped(window, slide, &pool, id, unmet),
        };
        self.snapshots.last = Some(snapshot);
        self.last = Some(recoding);
        self.remember(window, &pool.in_window, &release);
        Closing::Release(Box::new(release))
    }

    /// The best snapshot that passes the gate, and its recoding; if there is none, why, where the policy cannot be met.
    fn passed(
        &mut self,
        window: &ClosedWindow,
        slide: &Slide,
        pool: &Pool,
        id: u64,
    ) -> Result<(Release, Snapshot, Recoding), Option<Unmet>> {
        let policy = Arc::clone(&self.policy);
        // What was left out for its value counts too.
        if policy.suppression.beside(slide.unplaced, window.sets.base().records()).is_none() {
            return Err(Some(Unmet::Unplaced));
        }
        if pool.window == 0 {
            return Err(None);
        }
        let rules = self.rules.bind(&window.dictionaries.values());
        let evaluator = Evaluator::beside(slide.unplaced, &policy, &rules, Arc::clone(&window.sets));
        let evaluator = evaluator.warm(Arc::clone(&self.trail));
        let Pool { rows, standing, cells, .. } = pool;
        let candidates = Candidates { rows, standing, cells, cell_count: pool.cell_count, rules: &rules };
        for (chosen, plan) in self.options(window, &candidates, &evaluator, pool.window)? {
            let losses = self.losses(&evaluator, &chosen, &plan);
            let recoding = &chosen.recoding;
            let account = |given_up| self.account(window, slide, pool, &plan, recoding, id, given_up);
            let Some(given_up) = self.ledgers.excess(pool.window, |n| account(n).lineage) else { continue };
            let account = account(given_up);
            let mut batch = account.of(self.batch(window, rows, &plan, recoding, id, &[], Some(&chosen), losses));
            self.price(&mut batch);
            let verdict = gate::verify_next(batch, &self.rules, self.snapshots.last.as_ref());
            if let Ok((release, snapshot)) = verdict {
                return Ok((release, snapshot, chosen.recoding));
            }
        }
        Err(None)
    }

    /// The recodings to try and what each would show, the better one first. One that tells rows apart which were shown as
    /// one must let go of those that are too few to be told apart; the best that only coarsens the last one never does.
    fn options(
        &mut self,
        window: &ClosedWindow,
        candidates: &Candidates<'_>,
        evaluator: &Evaluator<'_>,
        rows: usize,
    ) -> Result<Vec<(Chosen, Plan)>, Unmet> {
        let lattice = self.policy.lattice();
        let chosen = choose(&self.choice, &lattice, self.last.as_ref(), evaluator, &mut self.seeds);
        let settled = self.settled(candidates, window, &chosen);
        let last = self.last.clone().filter(|_| settled.splits);
        let mut options = vec![(chosen, settled)];
        if let Some(last) = last {
            let (choice, within) = coarser(&self.choice, &lattice, &last);
            let coarser = choose(&choice, &within, Some(&last), evaluator, &mut self.seeds);
            let settled = self.settled(candidates, window, &coarser);
            options.push((coarser, settled));
            let everything = evaluator.evaluate(lattice.top()).loss;
            let cost = |(chosen, settled): &(Chosen, Settled)| {
                let unseen = 1.0 - settled.in_window(candidates) as f64 / rows as f64;
                let loss = chosen.evaluation.loss;
                // Nobody is unseen any more when the window has been replaced: half of them, on average until then.
                loss + (everything - loss).max(0.0) * unseen / 2.0 / REPAID_IN
            };
            options.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        }
        let unmet = left_out::unmet(&options[0].0);
        options.retain(|(chosen, _)| chosen.evaluation.satisfies);
        if options.is_empty() {
            return Err(unmet);
        }
        if let (Some((chosen, _)), Some(time)) = (options.first(), self.look.take()) {
            self.insight = Some(insight::look(&lattice, evaluator, chosen, time));
        }
        let plans = options.into_iter().map(|(chosen, settled)| (chosen, settled.plan(candidates)));
        Ok(plans.filter(|(_, plan)| !plan.published.is_empty()).collect())
    }

    /// Makes a snapshot again that was planned before a crash: the window has the rows that it shows, and those that it
    /// accounts for. What it was to be compared with is gone; the gate compared them when it was planned.
    pub(super) fn snapshot_again(&mut self, window: &ClosedWindow, planned: &ReleasePlan, shown: &Spans) -> Closing {
        let policy = Arc::clone(&self.policy);
        let rules = self.rules.bind(&window.dictionaries.values());
        let evaluator = Evaluator::new(&policy, &rules, Arc::clone(&window.sets));
        let chosen = Chosen::given(Node::new(planned.levels.iter().copied()), &self.choice, &evaluator);
        let plan = Plan { suppressed: Vec::new(), ..self.planned(&window.rows, shown) };
        let losses = self.losses(&evaluator, &chosen, &plan);
        drop(evaluator);
        let (rows, recoding) = (&window.rows, &chosen.recoding);
        let own = rows.positions().iter().copied().filter(|position| planned.is_read(*position));
        let (first, gone): (Vec<Position>, Vec<Position>) = own.partition(|position| shown.contains(*position));
        let rejected = window.rejected.iter().map(|(position, _)| *position);
        let finished = Spans::covering(first.iter().chain(&gone).chain(&window.suppressed).copied().chain(rejected));
        let account = Account {
            read: finished.count(),
            published: first.len() as u64,
            suppressed: (gone.len() + window.suppressed.len()) as u64,
            waiting: 0,
            lineage: Lineage { epoch: window.epoch, plan: planned.clone(), replayed: true, finished, since: None },
        };
        let batch = self.batch(window, rows, &plan, recoding, planned.id, &[], Some(&chosen), losses);
        let mut batch = account.of(batch);
        self.price(&mut batch);
        match gate::verify(batch, &self.rules) {
            Ok(release) => {
                self.snapshots = Snapshots::default();
                self.ledgers.made(&release.lineage().finished);
                self.last = Some(chosen.recoding);
                Closing::Release(Box::new(release))
            }
            Err(refusal) => Closing::Refused(refusal),
        }
    }

    /// The rows of the window and, behind them, those of the last snapshot that have left it.
    fn pool(&mut self, closed: &mut ClosedWindow, max_hold: u64) -> Pool {
        let Snapshots { last, shown, published, left, retracted, slides, given_up, .. } = &mut self.snapshots;
        let mut rows = std::mem::take(&mut closed.rows);
        let window = rows.len();
        let in_window = Spans::covering(rows.positions().iter().copied());
        let gone = shown.without(&in_window);
        let over = if last.is_some() { published.without(shown).union(given_up) } else { given_up.clone() };
        if !over.is_empty() {
            let mut is_over = over.finder();
            rows = Arc::new(rows.filtered(|i| !is_over.contains(rows.position(i))));
        }
        let mut cell_of = last.as_ref().map(Snapshot::cells);
        let mut cell = |position: Position| cell_of.as_mut().and_then(|cell_of| cell_of(position));
        let of = |&position: &Position| match cell(position) {
            Some(cell) => (Standing::Shown, cell),
            None => (Standing::New, 0),
        };
        let (mut standing, mut cells): (Vec<Standing>, Vec<u32>) = rows.positions().iter().map(of).unzip();
        // Nobody else has the window's rows, so that nothing is copied.
        let pool = Arc::make_mut(&mut rows);
        for (of, i) in last.iter().flat_map(|last| last.rows_at(&gone)) {
            let position = of.position(i);
            if closed.tombstones.retracts(of, i) && retracted.insert(position) {
                // The others were in the window until now, which has counted them.
                closed.retracted += u64::from(left.contains_key(&position));
            }
            let since = *left.entry(position).or_insert(*slides);
            pool.push_from(of, i);
            let overdue = slides.saturating_sub(since) >= max_hold || retracted.contains(&position);
            standing.push(if overdue { Standing::Overdue } else { Standing::Due });
            cells.extend(cell(of.position(i)));
        }
        left.retain(|position, _| shown.contains(*position));
        retracted.retain(|position| shown.contains(*position));
        let cell_count = last.as_ref().map_or(0, Snapshot::cell_count);
        Pool { rows, standing, cells, cell_count, in_window, window }
    }

    fn settled(&mut self, candidates: &Candidates<'_>, window: &ClosedWindow, chosen: &Chosen) -> Settled {
        let columns: Vec<Column> = chosen.recoding.columns(&window.dictionaries.quasi);
        candidates.settle(&mut self.snapshots.numbering, &columns)
    }

    /// Nothing is shown: only accounts for what was turned away and for what left the window unseen.
    fn skipped(&mut self, window: &ClosedWindow, slide: &Slide, pool: &Pool, id: u64, unmet: Option<Unmet>) -> Closing {
        let top = Recoding::from(self.policy.lattice().top().clone());
        let plan = Plan::default();
        let account = |given_up| self.account(window, slide, pool, &plan, &top, id, given_up);
        let everybody = pool.window;
        let given_up = self.ledgers.excess(everybody, |n| account(n).lineage).unwrap_or(everybody);
        let account = account(given_up);
        let mut batch = self.batch(window, &pool.rows, &plan, &top, id, &[], None, Vec::new());
        batch = account.of(batch);
        batch.provenance.work.skipped = pool.window > 0 && unmet.is_none();
        batch.provenance.work.unmet = unmet;
        match gate::verify(batch, &self.rules) {
            Ok(release) => {
                self.remember(window, &pool.in_window, &release);
                Closing::Release(Box::new(release))
            }
            Err(refusal) => Closing::Refused(refusal),
        }
    }

    /// What becomes of whom with a snapshot, if the oldest `given_up` rows that wait in the window are.
    #[allow(clippy::too_many_arguments)]
    fn account(
        &self,
        window: &ClosedWindow,
        slide: &Slide,
        pool: &Pool,
        plan: &Plan,
        recoding: &Recoding,
        id: u64,
        given_up: usize,
    ) -> Account {
        let Snapshots { published: seen, given_up: given_up_before, .. } = &self.snapshots;
        let position = |row: &RowRef| match row {
            RowRef::Fresh(i) | RowRef::Held(i) => pool.rows.position(*i as usize),
        };
        let shown = Spans::covering(plan.published.iter().map(position));
        let first = shown.without(seen);
        let settled = seen.union(&first).union(given_up_before);
        let waiting = pool.in_window.without(&settled);
        let waits = waiting.count() as usize;
        let given_up = if window.reason == CloseReason::Drained { waits } else { given_up.min(waits) };
        let mut is_waiting = waiting.finder();
        let oldest = pool.rows.positions().iter().copied().filter(|position| is_waiting.contains(*position));
        let left = slide.left.iter().copied().filter(|position| !settled.contains(*position));
        let gone: Vec<Position> = left.chain(oldest.take(given_up)).collect();
        let rejected = window.rejected.iter().map(|(position, _)| *position);
        let others = Spans::covering(gone.iter().chain(&window.suppressed).copied().chain(rejected));
        let finished = first.union(&others);
        let refused = window.rejected.iter().filter(|(_, reject)| reject.code == RejectCode::UnknownSchema);
        let plan = ReleasePlan {
            id,
            levels: recoding.coarsest().levels().to_vec(),
            closed: Some(window.closed),
            fingerprint: self.policy.fingerprint.clone(),
            schema: None,
            fresh: finished.clone(),
            held: Spans::default(),
            refused: Spans::covering(refused.map(|(position, _)| *position)),
            shown: (!shown.is_empty()).then_some(shown),
            journal: None,
        };
        Account {
            read: slide.read + (window.rejected.len() + window.suppressed.len()) as u64,
            published: first.count(),
            suppressed: (gone.len() + window.suppressed.len()) as u64,
            waiting: (waits - given_up) as u64,
            lineage: Lineage { epoch: window.epoch, plan, replayed: false, finished, since: None },
        }
    }

    /// What the next slide has to know.
    fn remember(&mut self, window: &ClosedWindow, in_window: &Spans, release: &Release) {
        let finished = &release.lineage().finished;
        self.ledgers.made(finished);
        let Snapshots { shown, published, waiting, given_up, .. } = &mut self.snapshots;
        if let Some(now) = &release.lineage().plan.shown {
            shown.clone_from(now);
        }
        *published = published.within(in_window).union(shown);
        let unseen = in_window.without(published);
        *given_up = unseen.within(&given_up.union(finished));
        *waiting = (unseen.count() - given_up.count()) as usize;
        if window.reason == CloseReason::Drained {
            self.snapshots = Snapshots::default();
        }
    }
}
