//! The trade-off over a whole lattice, for a person to choose from: exact where every node can be counted, else by
//! `pbg-ea`. An archive can also be measured against the exact front.

use rand::Rng;
use rayon::prelude::*;

use super::archive::{FrontQuality, Point, non_dominated, quality};
use super::objectives::{Front, Objectives};
use crate::model::lattice::{Lattice, Node};
use crate::search::choose::Permitted;
use crate::search::evaluator::Evaluator;
use crate::search::evolutionary::pbg_ea::{Evolved, Measured, PbgEa, front};
use crate::search::{Budget, StopReason};

/// The largest lattice whose every node is counted for an exact front. Larger takes minutes on a large file; smaller
/// gives up the truth where it is cheap.
pub const EXACT_NODES: u128 = 50_000;

/// How many nodes are counted between two looks at the budget.
const BATCH: usize = 256;

/// How the front is to be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Method {
    /// Exact up to [`EXACT_NODES`] nodes and within the budget, else evolutionary.
    #[default]
    Auto,
    /// Every node.
    Exact,
    /// `pbg-ea`.
    Evolutionary,
}

/// A front and how it was found.
#[derive(Debug, Clone)]
pub struct Frontier {
    /// The front; `front.exact` says whether it is the whole truth.
    pub front: Front,
    /// Why the search ended; `Proven` if the front is exact.
    pub stop: StopReason,
    /// Nodes counted.
    pub checks: u64,
    /// Nodes in the lattice.
    pub nodes: u128,
    /// How good an evolutionary front is, where the exact one is known too.
    pub quality: Option<FrontQuality>,
}

/// The front of `lattice` by the objectives of `ea`.
pub fn frontier(
    ea: &PbgEa,
    method: Method,
    lattice: &Lattice,
    evaluator: &Evaluator<'_>,
    budget: &Budget,
    rng: &mut dyn Rng,
) -> Frontier {
    let objectives = Objectives::new(&ea.objectives, evaluator);
    let small = lattice.size() <= EXACT_NODES;
    let nodes = lattice.size();
    if method == Method::Exact || (method == Method::Auto && small) {
        // Half the time, so that the evolutionary search still has some if every node is too much.
        let part = if method == Method::Auto { halved(budget) } else { budget.clone() };
        if let Some(points) = exact(&objectives, lattice, evaluator, &part) {
            let front = front(&objectives, evaluator, points, &ea.prefer, true);
            return Frontier { front, stop: StopReason::Proven, checks: evaluator.checks(), nodes, quality: None };
        }
    }
    if evaluator.policy().branches() {
        let permitted = Permitted { lattice: lattice.clone(), above: None };
        let outcome = permitted.search(ea, evaluator, budget, rng);
        if let Some(front) = outcome.front {
            return Frontier { front, stop: outcome.stop, checks: evaluator.checks(), nodes, quality: None };
        }
    }
    let Evolved { archive, stop, .. } = ea.evolve(lattice, evaluator, &objectives, budget, rng);
    let checks = evaluator.checks();
    let truth = (method == Method::Evolutionary && small).then(|| exact(&objectives, lattice, evaluator, budget));
    let quality = truth.flatten().map(|truth| quality(&archive, &truth));
    Frontier {
        front: front(&objectives, evaluator, archive.into_points(), &ea.prefer, false),
        stop,
        checks,
        nodes,
        quality,
    }
}

/// The exact front: every node counted, in parallel. `None` if the budget does not reach.
pub fn exact(
    objectives: &Objectives,
    lattice: &Lattice,
    evaluator: &Evaluator<'_>,
    budget: &Budget,
) -> Option<Vec<Point<Measured>>> {
    let mut nodes = lattice.nodes();
    let mut points: Vec<Point<Measured>> = Vec::new();
    loop {
        let batch: Vec<Node> = nodes.by_ref().take(BATCH).collect();
        if batch.is_empty() {
            return Some(points);
        }
        if budget.spent(evaluator.checks()).is_some() {
            return None;
        }
        let measure = |node: Node| {
            let (evaluation, indices) = objectives.measure(evaluator, &node);
            Point { indices: indices.own.clone(), item: (node, evaluation) }
        };
        points.par_extend(batch.into_par_iter().map(measure));
        points = non_dominated(points);
    }
}

fn halved(budget: &Budget) -> Budget {
    let now = std::time::Instant::now();
    let deadline = budget.deadline.map(|deadline| now + deadline.saturating_duration_since(now) / 2);
    Budget { deadline, ..budget.clone() }
}
