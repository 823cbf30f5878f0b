//! `tabu-ga`: tabu search inside a genetic algorithm (Run, Kim, Lee 2011).
//!
//! The genetic cycle of `genetic.rs` with a tabu search of `tabu.rs` from each crossed-over node in place of mutation.
//! Fitness is 1/loss; with `dm` the paper's 1/DM, failing classes costing f * n, so that failing nodes have a fitness too.
//! The paper's parameters: population 20, 20 cycles, tabu list 6, living time 7, 20 candidates, 20 tabu cycles.

use rand::Rng;
use rustc_hash::FxHashSet;

use super::genetic::{POPULATION, evolve};
use super::tabu::walk;
use crate::model::lattice::{Lattice, Node};
use crate::search::evaluator::Evaluator;
use crate::search::trials::Trials;
use crate::search::{Budget, Outcome, Search};

/// Cycles of the genetic part, and of each tabu search inside it.
const CYCLES: usize = 20;

/// The hybrid.
pub struct TabuGa {
    /// How many nodes live at a time; at least 1.
    pub population: usize,
    /// How many generations.
    pub cycles: usize,
    /// Nodes to start from besides random ones.
    pub seeds: Vec<Node>,
}

impl Default for TabuGa {
    fn default() -> Self {
        Self { population: POPULATION, cycles: CYCLES, seeds: Vec::new() }
    }
}

impl Search for TabuGa {
    fn run(&self, lattice: &Lattice, evaluator: &Evaluator<'_>, budget: &Budget, rng: &mut dyn Rng) -> Outcome {
        let mut trials = Trials::new(lattice, evaluator, budget);
        // The last window's answers live on in half of the first population; the other half keeps looking elsewhere.
        let recalled = evaluator.recall().into_iter().take(self.population / 2);
        let mut seeds: Vec<Node> = self.seeds.iter().cloned().chain(recalled).collect();
        seeds.retain(|node| lattice.contains(node));
        let ended = evolve(&mut trials, seeds, self.population, self.cycles, rng, |trials, node, rng| {
            walk(trials, node, CYCLES, rng)
        });
        let outcome = trials.outcome(ended);
        let answer = outcome.best.iter().map(|best| best.recoding.coarsest());
        let others: Vec<Node> = evaluator.recall().into_iter().take(self.population).collect();
        evaluator.memorise(distinct(answer.chain(others)));
        outcome
    }
}

/// Each node once, in order of first appearance.
pub(crate) fn distinct(nodes: impl Iterator<Item = Node>) -> Vec<Node> {
    let mut seen = FxHashSet::default();
    nodes.filter(|node| seen.insert(node.clone())).collect()
}
