//! A sliding window as it stands -> a snapshot of it, safe beside the last one.
//!
//! A record counts as published with the first snapshot that shows it, and as suppressed when it leaves the window
//! without one. If no plan passes the gate, nothing is published for this slide, and the last snapshot stays the one to
//! compare with. Bounded: only rows of the window and of the last snapshot are remembered.

use std::sync::Arc;

use rand::Rng;
use rustc_hash::{FxHashMap, FxHashSet};

use super::difference::{Candidates, Standing};
use super::{Anonymizer, Closing, Plan};
use crate::gate::{self, Snapshot};
use crate::generalize::{GeneralizedBatch, RowRef};
use crate::model::batch::{Rows, Spans};
use crate::model::event::Position;
use crate::model::manifest::Named;
use crate::model::recoding::{Column, Recoding};
use crate::search::choose::{Chosen, choose};
use crate::search::evaluator::Evaluator;
use crate::search::insight;
use crate::window::{CloseReason, ClosedWindow, Slide};

/// What outlives a slide.
#[derive(Default)]
pub(super) struct Snapshots {
    last: Option<Snapshot>,
    /// Of the rows in the window and in the last snapshot, those that some snapshot has shown.
    published: FxHashSet<Position>,
    /// By which slide the rows of the last snapshot left the window.
    left: FxHashMap<Position, u64>,
    slides: u64,
    waiting: usize,
}

impl Snapshots {
    /// Rows in the window that no snapshot has shown yet.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }
}

/// The rows that the next snapshot may show.
struct Pool {
    rows: Arc<Rows>,
    standing: Vec<Standing>,
}

impl Anonymizer {
    /// Makes the snapshot of a sliding window.
    pub(super) fn snapshot(&mut self, window: &ClosedWindow, slide: &Slide) -> Closing {
        self.snapshots.slides += 1;
        let pool = self.pool(window, slide.max_hold);
        let seed = self.seeds.next_u64();
        let policy = Arc::clone(&self.policy);
        let lattice = policy.lattice();
        let mut tried = None;
        if !window.rows.is_empty() {
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
                    let chosen = Chosen { recoding: recoding.clone(), ..chosen.clone() };
                    let losses = self.losses(&evaluator, &chosen, &plan);
                    let batch = self.shown(window, slide, &pool, &plan, &recoding, seed, Some((&chosen, losses)));
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
        self.remember(window);
        Closing::Release(Box::new(release))
    }

    /// The rows of the window and, behind them, those of the last snapshot that have left it.
    fn pool(&mut self, window: &ClosedWindow, max_hold: u64) -> Pool {
        let Snapshots { last, left, slides, .. } = &mut self.snapshots;
        let in_window: FxHashSet<Position> = window.rows.positions().iter().copied().collect();
        let mut shown: FxHashSet<Position> = FxHashSet::default();
        let mut rows = (*window.rows).clone();
        let mut standing = Vec::new();
        for (of, i) in last.iter().flat_map(Snapshot::rows) {
            let position = of.position(i);
            shown.insert(position);
            if !in_window.contains(&position) {
                let since = *left.entry(position).or_insert(*slides);
                rows.push_from(of, i);
                let overdue = slides.saturating_sub(since) >= max_hold;
                standing.push(if overdue { Standing::Overdue } else { Standing::Due });
            }
        }
        left.retain(|position, _| shown.contains(position));
        let of = |position: &Position| if shown.contains(position) { Standing::Shown } else { Standing::New };
        let standing = window.rows.positions().iter().map(of).chain(standing).collect();
        Pool { rows: Arc::new(rows), standing }
    }

    fn settled(&self, candidates: &Candidates<'_>, window: &ClosedWindow, recoding: &Recoding) -> Option<Plan> {
        let domains = &window.dictionaries.quasi;
        let columns: Vec<Column> = recoding.columns(domains);
        let join = match &self.last {
            Some(last) => recoding.join(&last.extended(domains, self.policy.lattice().top()), domains).columns(domains),
            None => columns.clone(),
        };
        let shown = candidates.settle(&columns, &join)?;
        Some(Plan { published: shown.into_iter().map(RowRef::Fresh).collect(), ..Plan::default() })
    }

    /// Nothing is shown: only accounts for what was turned away and for what left the window unseen.
    fn skipped(&mut self, window: &ClosedWindow, slide: &Slide, pool: &Pool, seed: u64) -> Closing {
        let top = Recoding::from(self.policy.lattice().top().clone());
        let mut batch = self.shown(window, slide, pool, &Plan::default(), &top, seed, None);
        batch.provenance.work.skipped = !window.rows.is_empty();
        match gate::verify(batch, &self.rules) {
            Ok(release) => {
                self.remember(window);
                Closing::Release(Box::new(release))
            }
            Err(refusal) => Closing::Refused(refusal),
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn shown(
        &self,
        window: &ClosedWindow,
        slide: &Slide,
        pool: &Pool,
        plan: &Plan,
        recoding: &Recoding,
        seed: u64,
        search: Option<(&Chosen, Vec<Named>)>,
    ) -> GeneralizedBatch {
        let (chosen, losses) = search.map_or((None, Vec::new()), |(chosen, losses)| (Some(chosen), losses));
        let mut batch = self.batch(window, &pool.rows, plan, recoding, seed, &[], chosen, losses);
        let seen = &self.snapshots.published;
        let position = |row: &RowRef| match row {
            RowRef::Fresh(i) | RowRef::Held(i) => pool.rows.position(*i as usize),
        };
        let first: FxHashSet<Position> = plan.published.iter().map(position).filter(|p| !seen.contains(p)).collect();
        let unseen = |position: &&Position| !seen.contains(*position) && !first.contains(*position);
        let waiting = window.rows.positions().iter().filter(unseen).count();
        let mut gone: Vec<Position> = slide.left.iter().filter(unseen).copied().collect();
        if window.reason == CloseReason::Drained {
            gone.extend(window.rows.positions().iter().filter(unseen));
        }
        let rejected = window.rejected.iter().map(|(position, _)| *position);
        let finished = first.iter().chain(&gone).chain(&window.suppressed).copied().chain(rejected);
        let finished = Spans::covering(finished);
        let from = &mut batch.provenance;
        from.offsets = Self::offsets(&finished);
        from.records_in = slide.read + (window.rejected.len() + window.suppressed.len()) as u64;
        from.records_published = first.len() as u64;
        from.records_suppressed = (gone.len() + window.suppressed.len()) as u64;
        from.records_held = if window.reason == CloseReason::Drained { 0 } else { waiting as u64 };
        batch.lineage.finished = finished;
        batch
    }

    /// What the next slide has to know.
    fn remember(&mut self, window: &ClosedWindow) {
        let Snapshots { last, published, waiting, .. } = &mut self.snapshots;
        let shown: FxHashSet<Position> =
            last.iter().flat_map(Snapshot::rows).map(|(rows, i)| rows.position(i)).collect();
        let kept = |position: &&Position| published.contains(*position) && !shown.contains(*position);
        let others: Vec<Position> = window.rows.positions().iter().filter(kept).copied().collect();
        *published = shown;
        published.extend(others);
        *waiting = window.rows.positions().iter().filter(|position| !published.contains(position)).count();
        if window.reason == CloseReason::Drained {
            self.snapshots = Snapshots::default();
        }
    }
}
