//! `granulation`: attribute-oriented granulation (Wang, Liao, Hsu 2007).
//!
//! Breadth-first from the finest node; every minimal secure node is found, and nothing above a secure one is counted: it
//! cannot be minimal. Under a monotone policy candidates come from Incognito's walk over subsets of the attributes, so
//! that a node with an insecure projection is not counted either.
//! Without suppression no loss falls on the way up, so the best minimal node is the best of all. With suppression a coarser
//! node may leave out less and cost less; then the answer is the best minimal node and is not called proven.

use rand::Rng;

use super::bottom_up::Incognito;
use crate::model::lattice::{Lattice, Node};
use crate::search::evaluator::Evaluator;
use crate::search::{Budget, Candidate, Outcome, Search, StopReason, keep_best};

/// All minimal secure nodes.
pub struct Granulation;

impl Search for Granulation {
    fn run(&self, lattice: &Lattice, evaluator: &Evaluator<'_>, budget: &Budget, _rng: &mut dyn Rng) -> Outcome {
        let mut found = Found::default();
        let done = match Incognito::new(lattice, evaluator, budget) {
            Some(mut walk) => {
                let done = walk.satisfying();
                let minimal = walk.minimal();
                let done = done.and_then(|()| walk.weigh(minimal.clone()).map_err(|(reason, _)| reason));
                // A node that was counted on the way may lose less than every minimal one, but is not what was asked for.
                let best = if done.is_ok() { walk.weighed() } else { walk.answer() };
                found = Found { minimal, best, predicted: walk.predicted };
                done
            }
            None => breadth_first(lattice, evaluator, budget, &mut found),
        };
        let Found { mut minimal, best, predicted } = found;
        let lower = |nodes: &[Node]| nodes.iter().map(|n| evaluator.lower_bound(n)).fold(f64::INFINITY, f64::min);
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
        Outcome { best, stop, bound, predicted, minimal, front: None }
    }
}

/// What was found so far.
#[derive(Default)]
struct Found {
    minimal: Vec<Node>,
    best: Option<Candidate>,
    predicted: u64,
}

/// Counts the nodes that are not above a secure one, finest first.
fn breadth_first(
    lattice: &Lattice,
    evaluator: &Evaluator<'_>,
    budget: &Budget,
    found: &mut Found,
) -> Result<(), StopReason> {
    for node in by_height(lattice) {
        if found.minimal.iter().any(|m| m.is_finer_or_equal(&node)) {
            found.predicted += 1;
            continue;
        }
        if let Some(reason) = budget.spent(evaluator.checks()) {
            return Err(reason);
        }
        let evaluation = evaluator.evaluate(&node);
        keep_best(&mut found.best, &node, &evaluation);
        if evaluation.satisfies {
            found.minimal.push(node);
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
