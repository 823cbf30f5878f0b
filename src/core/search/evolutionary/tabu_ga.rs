//! `tabu-ga`: tabu search inside a genetic algorithm (Run, Kim, Lee 2011).
//!
//! The genetic cycle of `genetic.rs` with a walk of `tabu.rs` from each crossed-over node in place of mutation; the nodes
//! that the walks end with replace the population.
//! Fitness is 1/loss; with `dm` the paper's 1/DM, failing classes costing f * n, so that failing nodes have a fitness too.
//! The defaults are those of the paper's experiment: population 20, 20 cycles, 20 candidates, tabu list 6, living time 7, 20
//! cycles of each walk.

use rand::Rng;
use rustc_hash::FxHashSet;

use super::genetic::{GeneticCycle, POPULATION};
use super::tabu::{Walking, Walks};
use crate::model::lattice::{Lattice, Node};
use crate::search::evaluator::Evaluator;
use crate::search::trials::Trials;
use crate::search::{Budget, Outcome, Search};

/// The paper's number of cycles of the genetic part.
const CYCLES: usize = 20;

/// The hybrid.
pub struct TabuGa {
    /// The genetic part.
    pub cycle: GeneticCycle,
    /// The tabu part.
    pub walking: Walking,
    /// Nodes to start from besides random ones.
    pub seeds: Vec<Node>,
}

impl Default for TabuGa {
    fn default() -> Self {
        let cycle = GeneticCycle { population: POPULATION, cycles: CYCLES, crossover_points: 1 };
        Self { cycle, walking: Walking::default(), seeds: Vec::new() }
    }
}

impl Search for TabuGa {
    fn run(&self, lattice: &Lattice, evaluator: &Evaluator<'_>, budget: &Budget, rng: &mut dyn Rng) -> Outcome {
        let mut trials = Trials::new(lattice, evaluator, budget);
        let population = self.cycle.population;
        // The last window's answers live on in half of the first population; the other half keeps looking elsewhere.
        let recalled = evaluator.recall().into_iter().take(population / 2);
        let mut seeds: Vec<Node> = self.seeds.iter().cloned().chain(recalled).collect();
        seeds.retain(|node| lattice.contains(node));
        let mut walks = Walks::new(lattice, &self.walking);
        let ended = self.cycle.evolve(&mut trials, seeds, rng, |trials, starts, rng| {
            starts.iter().map(|&start| walks.walk(trials, start, rng)).collect()
        });
        let outcome = trials.outcome(ended);
        let answer = outcome.best.iter().map(|best| best.recoding.coarsest());
        let others: Vec<Node> = evaluator.recall().into_iter().take(population).collect();
        evaluator.memorise(distinct(answer.chain(others)));
        outcome
    }
}

/// Each node once, in order of first appearance.
pub(crate) fn distinct(nodes: impl Iterator<Item = Node>) -> Vec<Node> {
    let mut seen = FxHashSet::default();
    nodes.filter(|node| seen.insert(node.clone())).collect()
}
