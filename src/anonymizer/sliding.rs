//! A sliding window as it stands -> a snapshot of it, safe beside the last one.
//!
//! A record counts as published with the first snapshot that shows it, and as suppressed when it leaves the window
//! without one. If no plan passes the gate, nothing is published for this slide, and the last snapshot stays the one to
//! compare with. Bounded: only rows of the window and of the last snapshot are remembered. Where what waits must be written
//! down, the oldest rows that wait are given up when there is no room for them.
//!
//! What a log reads again after a restart has never been shown, so the window then starts without what was, and no two
//! snapshots from before and after have a row in common: there is nothing to subtract. A snapshot that was planned
//! before a crash is made again of the very rows that it was to show.

use std::sync::Arc;

use rand::Rng;
use rustc_hash::FxHashMap;

use super::difference::{Candidates, Standing};
use super::numbering::Numbering;
use super::{Anonymizer, Closing, Plan};
use crate::failpoint::defect;
use crate::gate::{self, Release, Snapshot};
use crate::generalize::{GeneralizedBatch, Lineage, RowRef};
use crate::model::batch::{Rows, Spans};
use crate::model::event::{Position, RejectCode};
use crate::model::lattice::Node;
use crate::model::plan::ReleasePlan;
use crate::model::recoding::{Column, Recoding};
use crate::search::choose::{Chosen, choose};
use crate::search::evaluator::Evaluator;
use crate::search::insight;
use crate::window::{CloseReason, ClosedWindow, Slide};

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
    in_window: Spans,
    /// How many rows are in the window; the first ones are, without those given up.
    window: usize,
}

impl Anonymizer {
    /// Makes the snapshot of a sliding window.
    pub(super) fn snapshot(&mut self, window: &mut ClosedWindow, slide: &Slide) -> Closing {
        self.snapshots.slides += 1;
        if defect("no-difference") {
            (self.snapshots.last, self.last) = (None, None);
            self.snapshots.shown = Spans::default();
        }
        let pool = self.pool(std::mem::take(&mut window.rows), slide.max_hold);
        let window = &*window;
        let seed = self.seeds.next_u64();
        let policy = Arc::clone(&self.policy);
        let lattice = policy.lattice();
        let mut tried = None;
        if pool.window > 0 {
            let rules = self.rules.bind(&window.dictionaries.values());
            let evaluator = Evaluator::new(&policy, &rules, Arc::clone(&window.sets)).warm(Arc::clone(&self.trail));
            let chosen = choose(&self.choice, &lattice, self.last.as_ref(), &evaluator, &mut self.seeds);
            if let Some(time) = self.look.take() {
                self.insight = Some(insight::look(&lattice, &evaluator, &chosen, time));
            }
            if chosen.evaluation.satisfies {
                // The last recoding never fails on what was shown before, where the best one may.
                let mut recodings = vec![chosen.recoding.clone()];
                recodings
                    .extend(self.last.as_ref().map(|last| last.extended(&window.dictionaries.quasi, lattice.top())));
                recodings.dedup();
                let candidates = Candidates { rows: &pool.rows, standing: &pool.standing, rules: &rules };
                for recoding in recodings {
                    let plan = self.settled(&candidates, window, &recoding).filter(|plan| !plan.published.is_empty());
                    let Some(plan) = plan else { continue };
                    let unmet_bounds = self.choice.unmet_bounds(&evaluator, &recoding);
                    let chosen = Chosen { recoding: recoding.clone(), unmet_bounds, ..chosen.clone() };
                    let losses = self.losses(&evaluator, &chosen, &plan);
                    let account = |given_up| self.account(window, slide, &pool, &plan, &recoding, seed, given_up);
                    let Some(given_up) = self.ledgers.excess(pool.window, |n| account(n).lineage) else {
                        continue;
                    };
                    let account = account(given_up);
                    let (rows, finished) = (&pool.rows, &account.lineage.finished);
                    let batch = self.batch(window, rows, &plan, &recoding, seed, &[], finished, Some(&chosen), losses);
                    let batch = account.of(batch);
                    if let Ok(release) = gate::verify_next(batch, &self.rules, self.snapshots.last.as_ref()) {
                        tried = Some((release, recoding));
                        break;
                    }
                }
            }
        }
        let Some((release, recoding)) = tried else { return self.skipped(window, slide, &pool, seed) };
        self.snapshots.last = Some(release.snapshot());
        self.last = Some(recoding);
        self.remember(window, &pool.in_window, &release);
        Closing::Release(Box::new(release))
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
        let finished = &account.lineage.finished;
        let batch = self.batch(window, rows, &plan, recoding, planned.seed, &[], finished, Some(&chosen), losses);
        match gate::verify(account.of(batch), &self.rules) {
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
    fn pool(&mut self, mut rows: Arc<Rows>, max_hold: u64) -> Pool {
        let Snapshots { last, shown, left, slides, given_up, .. } = &mut self.snapshots;
        let window = rows.len();
        let in_window = Spans::covering(rows.positions().iter().copied());
        let gone = shown.without(&in_window);
        if !given_up.is_empty() {
            rows = Arc::new(rows.filtered(|i| !given_up.contains(rows.position(i))));
        }
        let mut is_shown = shown.finder();
        let of = |&position: &Position| if is_shown.contains(position) { Standing::Shown } else { Standing::New };
        let mut standing: Vec<Standing> = rows.positions().iter().map(of).collect();
        // Nobody else has the window's rows, so that nothing is copied.
        let pool = Arc::make_mut(&mut rows);
        for (of, i) in last.iter().flat_map(|last| last.rows_at(&gone)) {
            let since = *left.entry(of.position(i)).or_insert(*slides);
            pool.push_from(of, i);
            let overdue = slides.saturating_sub(since) >= max_hold;
            standing.push(if overdue { Standing::Overdue } else { Standing::Due });
        }
        left.retain(|position, _| shown.contains(*position));
        Pool { rows, standing, in_window, window }
    }

    fn settled(&mut self, candidates: &Candidates<'_>, window: &ClosedWindow, recoding: &Recoding) -> Option<Plan> {
        let domains = &window.dictionaries.quasi;
        let columns: Vec<Column> = recoding.columns(domains);
        let last = self.last.as_ref().map(|last| last.extended(domains, self.policy.lattice().top()));
        let again = last.as_ref() == Some(recoding);
        let join = last.filter(|_| !again).map(|last| recoding.join(&last, domains).columns(domains));
        let numbering = &mut self.snapshots.numbering;
        let (shown, numbers) = candidates.settle(numbering, &columns, join.as_deref(), again)?;
        let is_in_window = |standing: &Standing| matches!(standing, Standing::New | Standing::Shown);
        let window = candidates.standing.partition_point(is_in_window) as u32;
        let gone = shown.len() - shown.partition_point(|&i| i < window);
        let mut published: Vec<RowRef> = shown.into_iter().map(RowRef::Fresh).collect();
        // Who has left the window stood before it, mostly: so there is less to sort.
        published.rotate_right(gone);
        Some(Plan { published, numbers: Some(numbers), ..Plan::default() })
    }

    /// Nothing is shown: only accounts for what was turned away and for what left the window unseen.
    fn skipped(&mut self, window: &ClosedWindow, slide: &Slide, pool: &Pool, seed: u64) -> Closing {
        let top = Recoding::from(self.policy.lattice().top().clone());
        let plan = Plan::default();
        let account = |given_up| self.account(window, slide, pool, &plan, &top, seed, given_up);
        let everybody = pool.window;
        let given_up = self.ledgers.excess(everybody, |n| account(n).lineage).unwrap_or(everybody);
        let account = account(given_up);
        let finished = &account.lineage.finished;
        let mut batch = self.batch(window, &pool.rows, &plan, &top, seed, &[], finished, None, Vec::new());
        batch = account.of(batch);
        batch.provenance.work.skipped = pool.window > 0;
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
        seed: u64,
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
            seed,
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
