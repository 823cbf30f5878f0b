//! Where releases and what waits between them are written down in bounded room, no more may wait than fits there.
//!
//! Records that wait are scattered, and every scattered one takes room. When there is not enough, the oldest are suppressed:
//! they are the ones that were left out most often. Nothing that is published depends on it, so a release that is
//! carried out again comes out the same.

use std::sync::Arc;

use super::{Anonymizer, Plan};
use crate::generalize::{Lineage, RowRef};
use crate::model::batch::Rows;
use crate::model::event::{Millis, Position, RejectCode};
use crate::model::recoding::Recoding;
use crate::model::release::plan::{CommitSpace, Fit, ReleasePlan};
use crate::model::release::spans::Spans;
use crate::window::{ClosedWindow, Replayed};

/// Releases that may have been made and not yet written down: one is being published, one waits for it, one is being made.
const UNDER_WAY: usize = 3;

/// The ledger, if there is one, and what it does not know yet.
#[derive(Default)]
pub(super) struct Ledgers {
    ledger: Option<Arc<dyn CommitSpace>>,
    earlier: Vec<Spans>,
}

impl Ledgers {
    pub(super) fn new(ledger: Arc<dyn CommitSpace>) -> Self {
        Self { ledger: Some(ledger), earlier: Vec::new() }
    }

    /// A release was made that finishes these.
    pub(super) fn made(&mut self, finished: &Spans) {
        if self.ledger.is_some() {
            self.earlier.push(finished.clone());
            if self.earlier.len() > UNDER_WAY {
                self.earlier.remove(0);
            }
        }
    }

    /// A new assignment: nothing that was made before will be written down.
    pub(super) fn forget(&mut self) {
        self.earlier.clear();
    }

    /// How many of `most` records that wait must be suppressed to write a release down; `None` if even all do not help.
    /// `lineage` says what is written down if so many are.
    pub(super) fn excess(&self, most: usize, lineage: impl Fn(usize) -> Lineage) -> Option<usize> {
        let Some(ledger) = &self.ledger else { return Some(0) };
        let fits = |n: usize| {
            let lineage = lineage(n);
            let planned = lineage.plan.shown.is_some().then_some(&lineage.plan);
            ledger.fit(&self.earlier, planned, &lineage.finished) == Fit::Fits
        };
        if fits(0) {
            return Some(0);
        }
        let (mut too_few, mut enough) = (0, most);
        while enough - too_few > 1 {
            let middle = too_few + (enough - too_few) / 2;
            if fits(middle) { enough = middle } else { too_few = middle }
        }
        (most > 0 && fits(enough)).then_some(enough)
    }

    /// The plan, with as many of the oldest waiting records suppressed as it takes to write it down. If even that does not
    /// help, nothing is published: then there is no plan to write down.
    pub(super) fn make_room(&self, rows: &Rows, held: &Rows, plan: Plan, lineage: impl Fn(&Plan) -> Lineage) -> Plan {
        let Some(ledger) = &self.ledger else { return plan };
        let room = |plan: &Plan| {
            let lineage = lineage(plan);
            let planned = !plan.published.is_empty() && !lineage.replayed;
            ledger.fit(&self.earlier, planned.then_some(&lineage.plan), &lineage.finished)
        };
        match room(&plan) {
            Fit::Fits => return plan,
            Fit::PlanTooLong => return plan.without_release(rows, held),
            Fit::TooManyHeld => {}
        }
        let waiting = plan.waiting(rows, held);
        // Fewer is not always less, because one from the middle of a run leaves two; so what is found is tried, not derived.
        let (mut too_few, mut enough) = (0, waiting.len());
        while enough - too_few > 1 {
            let middle = too_few + (enough - too_few) / 2;
            match room(&plan.suppressing(&waiting[..middle])) {
                Fit::Fits => enough = middle,
                _ => too_few = middle,
            }
        }
        plan.suppressing(&waiting[..enough])
    }
}

impl Anonymizer {
    /// What is written down of a release beside its rows.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn lineage(
        &self,
        window: &ClosedWindow,
        rows: &Rows,
        plan: &Plan,
        recoding: &Recoding,
        id: u64,
        expired: &[Position],
        replay: Option<&Replayed>,
    ) -> Lineage {
        let read = rows.positions().iter().chain(&window.suppressed).chain(window.rejected.iter().map(|(p, _)| p));
        let refused = window.rejected.iter().filter(|(_, reject)| reject.code == RejectCode::UnknownSchema);
        Lineage {
            epoch: window.epoch,
            plan: ReleasePlan {
                id,
                levels: recoding.coarsest().levels().to_vec(),
                closed: Some(window.closed),
                fingerprint: self.policy.fingerprint.clone(),
                schema: replay.and_then(|replay| replay.plan.schema),
                fresh: Spans::covering(read.copied()),
                // Read again with their tombstones, they are retracted again.
                held: Spans::covering(self.held.positions().iter().chain(&window.waited).copied()),
                refused: Spans::covering(refused.map(|(position, _)| *position)),
                shown: self.remembers().then(|| Spans::covering(self.published(rows, plan))),
                journal: replay.and_then(|replay| replay.plan.journal),
            },
            replayed: replay.is_some(),
            finished: self.finished(window, rows, plan, expired),
            since: plan.waiting_since(rows, &self.held),
        }
    }

    /// The records that the release shows.
    fn published(&self, rows: &Rows, plan: &Plan) -> impl Iterator<Item = Position> {
        plan.published.iter().map(|row| match row {
            RowRef::Fresh(i) => rows.position(*i as usize),
            RowRef::Held(i) => self.held.position(*i as usize),
        })
    }

    /// The records that have their outcome with this release.
    pub(super) fn finished(&self, window: &ClosedWindow, rows: &Rows, plan: &Plan, expired: &[Position]) -> Spans {
        Spans::covering(
            self.published(rows, plan)
                .chain(plan.suppressed.iter().map(|&i| rows.position(i as usize)))
                .chain(plan.expired.iter().map(|&i| self.held.position(i as usize)))
                .chain(expired.iter().copied())
                .chain(window.suppressed.iter().copied())
                .chain(window.rejected.iter().map(|(position, _)| *position)),
        )
    }
}

impl Plan {
    /// What waits after the release, the oldest first.
    fn waiting(&self, rows: &Rows, held: &Rows) -> Vec<RowRef> {
        let mut stays = vec![true; held.len()];
        let gone = self.published.iter().filter_map(|row| if let RowRef::Held(i) = row { Some(*i) } else { None });
        gone.chain(self.expired.iter().copied()).for_each(|i| stays[i as usize] = false);
        let held_still = (0..held.len() as u32).filter(|&i| stays[i as usize]).map(RowRef::Held);
        let mut waiting: Vec<RowRef> = held_still.chain(self.held.iter().map(|&i| RowRef::Fresh(i))).collect();
        waiting.sort_by_key(|row| match row {
            RowRef::Held(i) => (held.arrived(*i as usize), held.position(*i as usize)),
            RowRef::Fresh(i) => (rows.arrived(*i as usize), rows.position(*i as usize)),
        });
        waiting
    }

    /// Since when the oldest of it waits.
    pub(super) fn waiting_since(&self, rows: &Rows, held: &Rows) -> Option<Millis> {
        self.waiting(rows, held).first().map(|row| match row {
            RowRef::Held(i) => held.arrived(*i as usize),
            RowRef::Fresh(i) => rows.arrived(*i as usize),
        })
    }

    /// The same with some of what waits suppressed.
    fn suppressing(&self, oldest: &[RowRef]) -> Self {
        let mut plan = self.clone();
        let mut fresh = Vec::new();
        for row in oldest {
            match row {
                RowRef::Held(i) => plan.expired.push(*i),
                RowRef::Fresh(i) => fresh.push(*i),
            }
        }
        fresh.sort_unstable();
        plan.held.retain(|i| fresh.binary_search(i).is_err());
        plan.suppressed.extend(fresh);
        plan
    }

    /// Publishes nothing, and lets nothing wait.
    fn without_release(&self, rows: &Rows, held: &Rows) -> Self {
        Self {
            suppressed: (0..rows.len() as u32).collect(),
            expired: (0..held.len() as u32).collect(),
            ..Self::default()
        }
    }
}
