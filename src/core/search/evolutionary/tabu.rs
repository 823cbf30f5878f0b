//! `tabu`: tabu search alone, as the hybrid of Run, Kim, Lee 2011 is compared with; see `tabu_ga.rs`.
//!
//! From a node, draw candidates among the nodes that differ in exactly one attribute, satisfying ones sharing probability
//! 0.7 and failing ones 0.3, evenly within each; step to the fittest, better or not. Nodes just left are tabu for a while.

use std::collections::VecDeque;

use rand::{Rng, RngExt};

use super::genetic::CYCLES_ALONE;
use super::operators::{neighbours, random_node};
use crate::model::lattice::{Lattice, Node};
use crate::search::evaluator::Evaluator;
use crate::search::trials::Trials;
use crate::search::{Budget, Outcome, Search, StopReason};

/// The paper's number of candidates per cycle.
const CANDIDATES: usize = 20;

/// The probability that a candidate is a satisfying node, where there are both kinds.
const SATISFYING_SHARE: f64 = 0.7;

/// How many nodes are tabu at most.
const TABU_LENGTH: usize = 6;

/// How many cycles a node stays tabu.
const TABU_LIFE: usize = 7;

/// Tabu search from a random node.
pub struct Tabu {
    /// How many steps.
    pub cycles: usize,
}

impl Default for Tabu {
    fn default() -> Self {
        Self { cycles: CYCLES_ALONE }
    }
}

impl Search for Tabu {
    fn run(&self, lattice: &Lattice, evaluator: &Evaluator<'_>, budget: &Budget, rng: &mut dyn Rng) -> Outcome {
        let mut trials = Trials::new(lattice, evaluator, budget);
        let start = random_node(lattice, rng);
        let ended = walk(&mut trials, start, self.cycles, rng).map(drop);
        trials.outcome(ended)
    }
}

/// Walks `cycles` steps from `start` and returns the fittest node on the way, `start` included.
pub(super) fn walk(
    trials: &mut Trials<'_, '_>,
    start: Node,
    cycles: usize,
    rng: &mut dyn Rng,
) -> Result<Node, StopReason> {
    let mut tabu = TabuList::default();
    let mut fittest = (trials.fitness(&start)?, start.clone());
    let mut here = start;
    for cycle in 0..cycles {
        tabu.push(here.clone(), cycle);
        let Some(next) = step(trials, &here, &tabu, rng)? else { break };
        if next.0 > fittest.0 {
            fittest = next.clone();
        }
        here = next.1;
    }
    Ok(fittest.1)
}

/// The fittest of the candidates drawn around `here`; `None` if all its neighbours are tabu.
fn step(
    trials: &mut Trials<'_, '_>,
    here: &Node,
    tabu: &TabuList,
    rng: &mut dyn Rng,
) -> Result<Option<(f64, Node)>, StopReason> {
    let (mut satisfying, mut failing) = (Vec::new(), Vec::new());
    for node in neighbours(trials.lattice, here) {
        if !tabu.contains(&node) {
            if trials.satisfies(&node)? { satisfying.push(node) } else { failing.push(node) }
        }
    }
    let mut best: Option<(f64, Node)> = None;
    for _ in 0..CANDIDATES {
        let group = match (satisfying.is_empty(), failing.is_empty()) {
            (true, true) => break,
            (false, true) => &satisfying,
            (true, false) => &failing,
            (false, false) if rng.random_bool(SATISFYING_SHARE) => &satisfying,
            (false, false) => &failing,
        };
        let node = &group[rng.random_range(0..group.len())];
        if best.as_ref().is_some_and(|(_, known)| known == node) {
            continue;
        }
        let fitness = trials.fitness(node)?;
        if best.as_ref().is_none_or(|(most, _)| fitness > *most) {
            best = Some((fitness, node.clone()));
        }
    }
    Ok(best)
}

/// The nodes left last, oldest first, each with the cycle in which it became tabu.
#[derive(Default)]
struct TabuList(VecDeque<(Node, usize)>);

impl TabuList {
    fn push(&mut self, node: Node, cycle: usize) {
        self.0.retain(|(_, since)| cycle - since < TABU_LIFE);
        if self.0.len() == TABU_LENGTH {
            self.0.pop_front();
        }
        self.0.push_back((node, cycle));
    }

    fn contains(&self, node: &Node) -> bool {
        self.0.iter().any(|(tabu, _)| tabu == node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_short_and_forgets() {
        let mut list = TabuList::default();
        for cycle in 0..10 {
            list.push(Node::new([cycle as u8]), cycle);
        }
        assert_eq!(list.0.len(), TABU_LENGTH);
        assert!(!list.contains(&Node::new([3])) && list.contains(&Node::new([4])));
        list.push(Node::new([77]), 15);
        assert_eq!(list.0.len(), 2, "only the last two are younger than their living time");
    }
}
