//! How a counted node is judged by the policy: from the sizes of its classes where they settle it, else class by class.
//!
//! Invariant: the quick ways say what [`Evaluator::judge`] says of the same classes, or nothing.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::{Checked, Evaluation, Evaluator};
use crate::frequency::set::{Classes, Question, SmallClasses};
use crate::loss::Counted;
use crate::model::lattice::Node;
use crate::search::publishable::{self, Verdict};

impl Evaluator<'_> {
    /// Stops as soon as too much is left out, and looks inside classes only if their sizes do not settle it.
    pub(super) fn judge_briefly(&self, set: &dyn Classes) -> Checked {
        let least = self.rules.least_size();
        if let Some(checked) = self.judge_by_size(set, least) {
            return checked;
        }
        let mut published: Vec<bool> = set.sizes().iter().map(|&size| size >= least).collect();
        let counted = |published: &[bool]| -> u64 {
            set.rows()
                .iter()
                .zip(published)
                .map(|(&rows, &published)| if published { 0 } else { u64::from(rows) })
                .sum()
        };
        let failed = |published: &[bool]| Checked {
            satisfies: false,
            loss: f64::INFINITY,
            forced: f64::INFINITY,
            bound_above: self.metric.bound_above(&Counted { classes: set, published, records: self.records }),
        };
        if counted(&published) > self.allowed {
            return failed(&published);
        }
        let suppression = self.allowed > 0;
        publishable::leave_out_alone(self.rules.alone(suppression, true), self.rules, set, &mut published);
        let suppressed = counted(&published);
        if suppressed > self.allowed {
            return failed(&published);
        }
        let node = Counted { classes: set, published: &published, records: self.records };
        let (forced, bound_above) = (self.metric.forced(&node), self.metric.bound_above(&node));
        let monotone = self.monotone();
        if monotone && self.rules.only_classes() {
            let satisfies = published.contains(&true);
            let loss = match (satisfies, self.metric.columns()) {
                (false, _) => f64::INFINITY,
                (true, Some(_)) => self.metric.lower_bound(set.node()) + forced,
                (true, None) => self.metric.loss(&node),
            };
            return Checked { satisfies, loss, forced: if satisfies { forced } else { f64::INFINITY }, bound_above };
        }
        if !monotone && published.contains(&true) {
            let everything = self.everything.get_or_init(|| {
                let base = self.sets.base();
                base.seen_by(&vec![true; base.len()], &[]).classes
            });
            let spared = self.allowed as f64 / self.records.max(1) as f64;
            let doomed = publishable::doomed(self.rules, set, &published, &**everything, spared);
            // A whole record more than allowed, so that sums of shares cannot get it wrong.
            if suppressed as f64 + doomed > self.allowed as f64 + 1.0 {
                return failed(&published);
            }
        }
        let evaluation = self.judge(set);
        let Evaluation { satisfies, loss, bound_above, .. } = evaluation;
        // It took the longest way, so nobody need go it again for the rest.
        self.remember(set.node(), |known| known.evaluation = Some(evaluation));
        Checked { satisfies, loss, forced: if satisfies || !monotone { forced } else { f64::INFINITY }, bound_above }
    }

    /// Judges by the small classes of the set, where that is enough.
    pub(super) fn judge_by_size(&self, set: &dyn Classes, least: u32) -> Option<Checked> {
        self.metric.added()?;
        let question = Question::by_size(least);
        let question = if self.sizes_only { question.with_cells(self.allowed) } else { question };
        self.judge_small(set.node(), set.small_classes(&question)?, self.sizes_only)
    }

    /// By small classes that say all, or by what their sizes say alone, where that is enough.
    pub(super) fn judge_small(&self, node: &Node, small: &SmallClasses, all: bool) -> Option<Checked> {
        let satisfies = self.enough(small);
        if small.left_out() > self.allowed || (all && !satisfies) {
            let (loss, forced) = (f64::INFINITY, f64::INFINITY);
            return Some(Checked { satisfies: false, loss, forced, bound_above: 0.0 });
        }
        if !all {
            return None;
        }
        let cells = small.cells_left_out()?.iter().zip(self.metric.added()?).zip(node.levels());
        let column = |((cells, added), &level): ((&Vec<u32>, &Vec<Vec<f64>>), &u8)| -> f64 {
            cells.iter().zip(&added[usize::from(level)]).map(|(&rows, added)| f64::from(rows) * added).sum()
        };
        let forced = cells.map(column).sum();
        let loss = self.metric.lower_bound(node) + forced;
        Some(Checked { satisfies, loss, forced, bound_above: 0.0 })
    }

    /// True if the sizes of the classes leave out no more than is allowed, and something to show.
    pub(super) fn enough(&self, small: &SmallClasses) -> bool {
        small.left_out() <= self.allowed && small.shown() > 0
    }

    pub(super) fn judge(&self, set: &dyn Classes) -> Evaluation {
        // Whatever begins after the time is over is asked for by a search that is about to answer.
        let limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let limit = limit.filter(|budget| budget.interrupted().is_none());
        let in_time = || limit.as_ref().is_none_or(|budget| budget.interrupted().is_none());
        let verdict = publishable::judge(self.rules, set, self.allowed, &in_time);
        self.given_up.fetch_or(verdict.given_up, Ordering::Relaxed);
        let Verdict { published, whole, security, .. } = verdict;
        let counted = Counted { classes: set, published: &published, records: self.records };
        let suppressed: u64 = counted.suppressed().map(|class| u64::from(set.rows()[class])).sum();
        let satisfies = whole && suppressed <= self.allowed && published.iter().any(|p| *p);
        let sizes = set.sizes().iter().zip(&published).filter(|(_, p)| **p).map(|(size, _)| *size);
        let penalised = self.metric.loss(&counted);
        Evaluation {
            satisfies,
            loss: if satisfies { penalised } else { f64::INFINITY },
            penalised,
            bound_above: self.metric.bound_above(&counted),
            suppressed,
            classes: set.len() as u64,
            k: sizes.min().unwrap_or(0),
            security,
        }
    }
}
