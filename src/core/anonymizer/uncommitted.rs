//! Caps held records so that plan and offsets fit Kafka's 4 KiB of commit metadata.
//!
//! Each run of waiting records takes space there. Where the space does not suffice, the oldest waiting records are suppressed:
//! they were left out most often. Published rows do not depend on it, so a release that is made again after a crash has the
//! same bytes. Without a [`CommitSpace`] (files, standard output) there is no cap.

use std::sync::Arc;

use super::draft::{Draft, Outcomes};
use crate::generalize::Lineage;
use crate::model::release::plan::{CommitSpace, Fit};
use crate::model::release::spans::Spans;

/// Releases that may be made and not committed: one is being published, one waits for it, one is being made. More reserves
/// space that is never used; fewer lets a commit grow beyond its limit.
const UNDER_WAY: usize = 3;

/// The commit space, if it is bounded, and the releases that are not committed yet.
#[derive(Default)]
pub(super) struct Uncommitted {
    space: Option<Arc<dyn CommitSpace>>,
    earlier: Vec<Spans>,
}

impl Uncommitted {
    pub(super) fn new(space: Option<Arc<dyn CommitSpace>>) -> Self {
        Self { space, earlier: Vec::new() }
    }

    /// True if plans must fit a bounded space.
    pub(super) fn is_bounded(&self) -> bool {
        self.space.is_some()
    }

    /// Records a release that finishes these records.
    pub(super) fn made(&mut self, finished: &Spans) {
        if self.space.is_some() {
            self.earlier.push(finished.clone());
            if self.earlier.len() > UNDER_WAY {
                self.earlier.remove(0);
            }
        }
    }

    /// Starts a new assignment: releases made before it will not be committed.
    pub(super) fn forget(&mut self) {
        self.earlier.clear();
    }

    /// How many of `most` waiting records must be suppressed so that the release fits; `None` if it does not fit even without
    /// them. `lineage` gives the lineage for that number.
    pub(super) fn excess(&self, most: usize, lineage: impl Fn(usize) -> Lineage) -> Option<usize> {
        let Some(space) = &self.space else { return Some(0) };
        let fits = |n: usize| {
            let lineage = lineage(n);
            let planned = lineage.plan.shown.is_some().then_some(&lineage.plan);
            space.fit(&self.earlier, planned, &lineage.finished) == Fit::Fits
        };
        if fits(0) {
            return Some(0);
        }
        let enough = least(most, fits);
        (most > 0 && fits(enough)).then_some(enough)
    }

    /// Suppresses as many of the draft's oldest waiting records as it takes to fit. Where the plan itself is too long, nothing
    /// is published and nothing waits: then there is no plan.
    pub(super) fn fit(&self, draft: &mut Draft) {
        let Some(space) = &self.space else { return };
        let asked = |outcomes: &Outcomes| {
            let lineage = draft.lineage(outcomes);
            let planned = !outcomes.published.is_empty() && !lineage.replayed;
            space.fit(&self.earlier, planned.then_some(&lineage.plan), &lineage.finished)
        };
        let outcomes = match asked(&draft.outcomes) {
            Fit::Fits => return,
            Fit::PlanTooLong => Outcomes {
                expired: (0..draft.held.len() as u32).collect(),
                ..Outcomes::all_suppressed(draft.rows.len())
            },
            Fit::TooManyHeld => {
                let waiting = draft.outcomes.waiting(&draft.rows, &draft.held);
                let suppressing = |n: usize| draft.outcomes.suppressing(&waiting[..n]);
                suppressing(least(waiting.len(), |n| asked(&suppressing(n)) == Fit::Fits))
            }
        };
        draft.outcomes = outcomes;
    }
}

/// The least number up to `most` that fits, by bisection. Suppressing a record in the middle of a run makes two runs, so the
/// space is not strictly monotone; only numbers below `most` that were tried are returned.
fn least(most: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut too_few, mut enough) = (0, most);
    while enough - too_few > 1 {
        let middle = too_few + (enough - too_few) / 2;
        if fits(middle) { enough = middle } else { too_few = middle }
    }
    enough
}
