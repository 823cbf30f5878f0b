//! The interface of every search: [`Search`], its [`Outcome`], and the order of candidates by loss.

use rand::Rng;

use super::aim::Aim;
use super::budget::{Budget, StopReason};
use super::evaluator::{Evaluation, Evaluator};
use super::front::objectives::Front;
use crate::model::lattice::{Lattice, Node};
use crate::model::recoding::Recoding;

/// One lattice search.
pub trait Search: Send + Sync {
    /// Looks for the best satisfying recoding in `lattice` until it is found or the budget is spent.
    fn run(&self, lattice: &Lattice, evaluator: &Evaluator<'_>, budget: &Budget, rng: &mut dyn Rng) -> Outcome;

    /// Which recoding is the best; `front` is the trade-off that it has found, if it looks for one.
    fn aim(&self, _evaluator: &Evaluator<'_>, _front: Option<&Front>) -> Aim {
        Aim::LeastLoss
    }
}

/// A recoding that satisfies the policy, and what it costs.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The recoding; a node, from a search of full-domain generalizations.
    pub recoding: Recoding,
    /// Its evaluation.
    pub evaluation: Evaluation,
}

/// What a search found.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The best satisfying recoding it saw.
    pub best: Option<Candidate>,
    /// Why it ended.
    pub stop: StopReason,
    /// The least loss that any node could still have; equals the best's when proven.
    pub bound: f64,
    /// Nodes whose status was derived and not counted.
    pub predicted: u64,
    /// The minimal satisfying nodes, from searches that know them all.
    pub minimal: Vec<Node>,
    /// The trade-off, from searches that look for one.
    pub front: Option<Front>,
}

/// Losses nearer than this are the same: sums over classes differ in their last digits with the order of the classes.
/// Larger would call different nodes equal, smaller would let rounding choose between equal ones.
pub(crate) const TIE: f64 = 1e-12;

/// True if a node of this loss is the better answer. Ties go to the lower, then lexicographically smaller node, so that
/// every search that sees the same nodes returns the same one.
pub(crate) fn is_better(loss: f64, node: &Node, than: f64, other: &Node) -> bool {
    if (loss - than).abs() > TIE {
        return loss < than;
    }
    (node.height(), node.levels()) < (other.height(), other.levels())
}

/// Keeps the better of two candidates.
pub(crate) fn keep_best(best: &mut Option<Candidate>, node: &Node, evaluation: &Evaluation) {
    if !evaluation.satisfies {
        return;
    }
    let better = match best {
        None => true,
        Some(b) => is_better(evaluation.loss, node, b.evaluation.loss, &b.recoding.coarsest()),
    };
    if better {
        *best = Some(Candidate { recoding: node.clone().into(), evaluation: evaluation.clone() });
    }
}
