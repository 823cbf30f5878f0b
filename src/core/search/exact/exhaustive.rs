//! `exhaustive`: counts every node, prunes nothing. The slow twin of every other search.

use rand::Rng;

use crate::model::lattice::{Lattice, Node};
use crate::search::evaluator::{Evaluator, on_all_cores};
use crate::search::{Budget, Outcome, Search, StopReason, keep_best};

/// The most nodes that are counted at once. More overstay the deadline, fewer leave cores without work.
const BATCH: u64 = 64;

/// Every node of the lattice.
pub struct Exhaustive;

impl Search for Exhaustive {
    fn run(&self, lattice: &Lattice, evaluator: &Evaluator<'_>, budget: &Budget, _rng: &mut dyn Rng) -> Outcome {
        let mut best = None;
        let mut satisfying: Vec<Node> = Vec::new();
        let mut stop = StopReason::Proven;
        let mut nodes = lattice.nodes().peekable();
        while nodes.peek().is_some() {
            if let Some(reason) = budget.spent(evaluator.checks()) {
                stop = reason;
                break;
            }
            let room = budget.max_checks.saturating_sub(evaluator.checks()).min(BATCH) as usize;
            let batch: Vec<Node> = nodes.by_ref().take(room).collect();
            let evaluations = on_all_cores(&batch, |node| evaluator.evaluate(node));
            for (node, evaluation) in batch.into_iter().zip(evaluations) {
                keep_best(&mut best, &node, &evaluation);
                if evaluation.satisfies {
                    satisfying.push(node);
                }
            }
        }
        let proven = stop == StopReason::Proven;
        let minimal = if proven { minimal_of(&satisfying) } else { Vec::new() };
        let bound = match &best {
            Some(best) if proven => best.evaluation.loss,
            _ => evaluator.lower_bound(lattice.bottom()),
        };
        Outcome { best, stop, bound, predicted: 0, minimal, front: None }
    }
}

/// The nodes with no other one of `nodes` below them; `nodes` come finest first along every chain.
pub(super) fn minimal_of(nodes: &[Node]) -> Vec<Node> {
    let mut minimal: Vec<Node> = Vec::new();
    for node in nodes {
        if !minimal.iter().any(|m| m.is_finer_or_equal(node)) {
            minimal.push(node.clone());
        }
    }
    minimal
}
