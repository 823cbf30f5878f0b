//! `granulation`: attribute-oriented granulation (Wang, Liao, Hsu 2007).
//!
//! Breadth-first from the finest node; every minimal secure node is found, and nothing above a secure one is counted: it
//! cannot be minimal. Under a monotone policy candidates come from Incognito's walk over subsets of the attributes, so
//! that a node with an insecure projection is not counted either.
//! Without suppression no loss falls on the way up, so the best minimal node is the best of all. With suppression a coarser
//! node may leave out less and cost less; then the answer is the best minimal node and is not called proven.

use rand::Rng;

use super::bottom_up::{Incognito, Subset};
use super::evaluator::Evaluator;
use super::{Budget, Outcome, Search, StopReason};
use crate::model::lattice::{Lattice, Node};

/// All minimal secure nodes.
pub struct Granulation;

impl Search for Granulation {
    fn run(&self, lattice: &Lattice, evaluator: &Evaluator<'_>, budget: &Budget, _rng: &mut dyn Rng) -> Outcome {
        let mut walk = Incognito::new(lattice, evaluator, budget);
        let mut minimal: Vec<Node> = Vec::new();
        let by_subsets = evaluator.monotone() && lattice.width() <= Subset::BITS as usize;
        let done = if by_subsets {
            walk.whole_candidates()
                .and_then(|candidates| breadth_first(candidates.into_iter(), &mut walk, &mut minimal))
        } else {
            breadth_first(by_height(lattice), &mut walk, &mut minimal)
        };
        let lower = |nodes: &[Node]| nodes.iter().map(|n| evaluator.lower_bound(n)).fold(f64::INFINITY, f64::min);
        let best = walk.best.take();
        let (stop, bound) = match (done, &best) {
            (Err(reason), _) => (reason, evaluator.lower_bound(lattice.bottom())),
            (Ok(()), None) => (StopReason::Proven, f64::INFINITY),
            // Every satisfying node is a minimal one or above one, and bounds do not fall on the way up.
            (Ok(()), Some(best)) => {
                let (loss, bound) = (best.evaluation.loss, lower(&minimal));
                let proven = !evaluator.may_suppress() || bound >= loss;
                (if proven { StopReason::Proven } else { StopReason::Exhausted }, if proven { loss } else { bound })
            }
        };
        if !matches!(stop, StopReason::Proven | StopReason::Exhausted) {
            minimal.clear();
        }
        Outcome { best, stop, bound, predicted: walk.predicted, minimal, front: None }
    }
}

/// Counts the nodes that are not above a secure one; `nodes` come finest first.
fn breadth_first(
    nodes: impl Iterator<Item = Node>,
    walk: &mut Incognito<'_, '_>,
    minimal: &mut Vec<Node>,
) -> Result<(), StopReason> {
    for node in nodes {
        if minimal.iter().any(|m| m.is_finer_or_equal(&node)) {
            walk.predicted += 1;
        } else if walk.check(&node)? {
            minimal.push(node);
        }
    }
    Ok(())
}

/// Every node, height by height.
fn by_height(lattice: &Lattice) -> impl Iterator<Item = Node> + '_ {
    let mut height: Vec<Node> = vec![lattice.bottom().clone()];
    let mut at = 0;
    std::iter::from_fn(move || {
        if at == height.len() {
            let mut above: Vec<Node> = height.iter().flat_map(|node| lattice.parents(node)).collect();
            above.sort_unstable_by(|a, b| a.levels().cmp(b.levels()));
            above.dedup();
            (height, at) = (above, 0);
        }
        let node = height.get(at).cloned();
        at += 1;
        node
    })
}
