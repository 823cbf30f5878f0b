//! `optimal`: the node of least loss, proven.
//!
//! Walks nodes best bound first. A bound needs no frequency set, so most of the lattice is never counted: the walk ends
//! as soon as the next bound is not below the best loss. Under a monotone policy an undecided node is settled by a binary
//! search on a chain from it to the top, which tags everything below a failing and above a satisfying node; the
//! satisfying ones give early, good upper bounds. Without monotony nothing is tagged, and only the bound prunes.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use rand::Rng;

use super::evaluator::Evaluator;
use super::tags::Tags;
use super::{Budget, Candidate, Outcome, Search, StopReason, keep_best};
use crate::model::lattice::{Lattice, Node};

/// Best-first branch and bound.
pub struct Optimal;

/// A node to visit. Its successors raise attributes from `from` on only, so each node is reached once.
struct Visit {
    bound: f64,
    node: Node,
    from: usize,
}

impl Search for Optimal {
    fn run(&self, lattice: &Lattice, evaluator: &Evaluator<'_>, budget: &Budget, _rng: &mut dyn Rng) -> Outcome {
        let mut walk = Walk {
            lattice,
            evaluator,
            budget,
            tags: Tags::default(),
            monotone: evaluator.monotone(),
            best: None,
            predicted: 0,
        };
        let bottom = lattice.bottom().clone();
        let mut heap = BinaryHeap::from([Visit { bound: evaluator.lower_bound(&bottom), node: bottom, from: 0 }]);
        let mut stop = StopReason::Proven;
        let mut bound = f64::INFINITY;
        while let Some(visit) = heap.pop() {
            if walk.best.as_ref().is_some_and(|b| visit.bound >= b.evaluation.loss) {
                break;
            }
            let above = match walk.settle(&visit.node) {
                Ok(above) => above,
                Err(reason) => {
                    stop = reason;
                    bound = visit.bound;
                    break;
                }
            };
            for attribute in visit.from..lattice.width() {
                let level = visit.node.levels()[attribute];
                if level < lattice.top().levels()[attribute] {
                    let node = visit.node.with(attribute, level + 1);
                    let bound = evaluator.lower_bound(&node).max(visit.bound).max(above);
                    heap.push(Visit { bound, node, from: attribute });
                }
            }
        }
        let best = walk.best;
        let bound = best.as_ref().map_or(bound, |b: &Candidate| b.evaluation.loss.min(bound));
        Outcome { best, stop, bound, predicted: walk.predicted, minimal: Vec::new(), front: None }
    }
}

struct Walk<'a, 'e> {
    lattice: &'a Lattice,
    evaluator: &'a Evaluator<'e>,
    budget: &'a Budget,
    tags: Tags,
    monotone: bool,
    best: Option<Candidate>,
    predicted: u64,
}

impl Walk<'_, '_> {
    /// Decides whether `node` satisfies, counting it if need be; returns what every node above it costs at least.
    fn settle(&mut self, node: &Node) -> Result<f64, StopReason> {
        if self.monotone {
            let mut status = self.tags.status(node);
            if status.is_none() {
                self.search_chain(node)?;
                status = self.tags.status(node);
            }
            if status == Some(false) {
                if self.evaluator.known(node).is_none() {
                    self.predicted += 1;
                }
                // Long stretches of a large lattice can be predicted without a single count.
                return self.budget.interrupted().map_or(Ok(0.0), Err);
            }
        }
        self.count(node).map(|(_, above)| above)
    }

    /// Finds where the chain from `node` to the top turns from failing to satisfying.
    fn search_chain(&mut self, node: &Node) -> Result<(), StopReason> {
        let chain = self.chain(node);
        let (mut low, mut high) = (0, chain.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let satisfies = match self.tags.status(&chain[middle]) {
                Some(status) => status,
                None => self.count(&chain[middle])?.0,
            };
            if satisfies { high = middle } else { low = middle + 1 }
        }
        Ok(())
    }

    /// From `node` to the top, each step the one that costs least by the bound, so that satisfying nodes on it are cheap.
    fn chain(&self, node: &Node) -> Vec<Node> {
        let mut chain = vec![node.clone()];
        let mut last = node.clone();
        let by_bound = |a: &Node, b: &Node| self.evaluator.lower_bound(a).total_cmp(&self.evaluator.lower_bound(b));
        while let Some(next) = self.lattice.parents(&last).min_by(by_bound) {
            chain.push(next.clone());
            last = next;
        }
        chain
    }

    fn count(&mut self, node: &Node) -> Result<(bool, f64), StopReason> {
        if let Some(reason) = self.budget.spent(self.evaluator) {
            return Err(reason);
        }
        let evaluation = self.evaluator.evaluate(node);
        if self.monotone {
            self.tags.record(node, evaluation.satisfies);
        }
        keep_best(&mut self.best, node, &evaluation);
        Ok((evaluation.satisfies, evaluation.bound_above))
    }
}

impl PartialEq for Visit {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Visit {}

impl PartialOrd for Visit {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Visit {
    /// The heap pops the greatest: least bound first, then the lower node, then lexicographically.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.bound.total_cmp(&self.bound))
            .then_with(|| other.node.height().cmp(&self.node.height()))
            .then_with(|| other.node.levels().cmp(self.node.levels()))
    }
}
