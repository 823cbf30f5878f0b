//! The bookkeeping of a search that tries node after node: budget, best satisfying node so far, predicted statuses.
//!
//! Nodes already counted cost nothing and are served even when the budget is spent. Nothing is counted past it.

use super::evaluator::{Evaluation, Evaluator};
use super::tags::Tags;
use super::{Budget, Candidate, Outcome, StopReason, keep_best};
use crate::model::lattice::{Lattice, Node};

/// A loss below this is as good as none; fitness is one over the loss and must stay finite.
const NO_LOSS: f64 = 1e-12;

/// One search's trials.
pub(crate) struct Trials<'a, 'e> {
    pub(crate) lattice: &'a Lattice,
    evaluator: &'a Evaluator<'e>,
    budget: &'a Budget,
    tags: Option<Tags>,
    best: Option<Candidate>,
    predicted: u64,
}

impl<'a, 'e> Trials<'a, 'e> {
    pub(crate) fn new(lattice: &'a Lattice, evaluator: &'a Evaluator<'e>, budget: &'a Budget) -> Self {
        let tags = evaluator.monotone().then(Tags::default);
        Self { lattice, evaluator, budget, tags, best: None, predicted: 0 }
    }

    /// Counts the node, or recalls it.
    pub(crate) fn evaluate(&mut self, node: &Node) -> Result<Evaluation, StopReason> {
        if let Some(known) = self.evaluator.known(node) {
            // Another search may have counted it before this one began.
            if self.best.as_ref().is_none_or(|b| known.loss <= b.evaluation.loss) {
                keep_best(&mut self.best, node, &known);
            }
            return Ok(known);
        }
        if let Some(reason) = self.budget.spent(self.evaluator.checks()) {
            return Err(reason);
        }
        let evaluation = self.evaluator.evaluate(node);
        if let Some(tags) = &mut self.tags {
            tags.record(node, evaluation.satisfies);
        }
        keep_best(&mut self.best, node, &evaluation);
        Ok(evaluation)
    }

    /// Whether the node satisfies: recalled, predicted, or counted.
    pub(crate) fn satisfies(&mut self, node: &Node) -> Result<bool, StopReason> {
        if let Some(known) = self.evaluator.known(node) {
            return Ok(known.satisfies);
        }
        if let Some(status) = self.tags.as_ref().and_then(|tags| tags.status(node)) {
            self.predicted += 1;
            return Ok(status);
        }
        self.evaluate(node).map(|e| e.satisfies)
    }

    /// One over the loss, failing classes counted as left out; higher is better.
    pub(crate) fn fitness(&mut self, node: &Node) -> Result<f64, StopReason> {
        self.evaluate(node).map(|e| 1.0 / e.penalised.max(NO_LOSS))
    }

    /// The outcome of a search that ended as `ended`. If it saw nothing that satisfies, the top gets its chance.
    pub(crate) fn outcome(mut self, ended: Result<(), StopReason>) -> Outcome {
        let mut stop = ended.err().unwrap_or(StopReason::Exhausted);
        if self.best.is_none() {
            let top = self.lattice.top().clone();
            if let Err(reason) = self.evaluate(&top) {
                stop = reason;
            }
        }
        let bound = self.evaluator.lower_bound(self.lattice.bottom());
        Outcome { best: self.best, stop, bound, predicted: self.predicted, minimal: Vec::new(), front: None }
    }
}
