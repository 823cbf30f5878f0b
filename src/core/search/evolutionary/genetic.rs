//! `genetic`: the genetic algorithm alone, as the hybrid of Run, Kim, Lee, "An effective use of tabu search inside a
//! genetic algorithm for k-anonymity" (2011) is compared with.
//!
//! A uniform random population, roulette wheel on fitness 1/loss, one-point crossover between attributes, mutation; the
//! new group replaces the old one and the best satisfying node ever seen is kept. The paper does not print its mutation
//! rate: each attribute moves one level up or down with probability 1/m, one attribute on average.

use rand::Rng;

use super::operators::{crossover, random_node, roulette, step_mutation};
use crate::model::lattice::{Lattice, Node};
use crate::search::evaluator::Evaluator;
use crate::search::trials::Trials;
use crate::search::{Budget, Outcome, Search, StopReason};

/// The paper's population.
pub const POPULATION: usize = 20;

/// The paper's number of cycles for a part that searches alone.
pub const CYCLES_ALONE: usize = 300;

/// The genetic algorithm.
pub struct Genetic {
    /// How many nodes live at a time; at least 1.
    pub population: usize,
    /// How many generations.
    pub cycles: usize,
}

impl Default for Genetic {
    fn default() -> Self {
        Self { population: POPULATION, cycles: CYCLES_ALONE }
    }
}

impl Search for Genetic {
    fn run(&self, lattice: &Lattice, evaluator: &Evaluator<'_>, budget: &Budget, rng: &mut dyn Rng) -> Outcome {
        let mut trials = Trials::new(lattice, evaluator, budget);
        let rate = 1.0 / lattice.width().max(1) as f64;
        let ended = evolve(&mut trials, Vec::new(), self.population, self.cycles, rng, |_, node, rng| {
            Ok(step_mutation(lattice, &node, rate, rng))
        });
        trials.outcome(ended)
    }
}

/// The genetic cycle around any way to change a crossed-over node. `seeds` are part of the first population.
pub(super) fn evolve(
    trials: &mut Trials<'_, '_>,
    seeds: Vec<Node>,
    size: usize,
    cycles: usize,
    rng: &mut dyn Rng,
    mut change: impl FnMut(&mut Trials<'_, '_>, Node, &mut dyn Rng) -> Result<Node, StopReason>,
) -> Result<(), StopReason> {
    let mut population = seeds;
    population.truncate(size);
    while population.len() < size.max(1) {
        population.push(random_node(trials.lattice, rng));
    }
    for _ in 0..cycles {
        let mut fitness = Vec::with_capacity(population.len());
        for node in &population {
            fitness.push(trials.fitness(node)?);
        }
        let mut next = Vec::with_capacity(population.len() + 1);
        while next.len() < population.len() {
            let (a, b) = (roulette(&fitness, rng), roulette(&fitness, rng));
            let (a, b) = crossover(&population[a], &population[b], rng);
            next.push(change(trials, a, rng)?);
            next.push(change(trials, b, rng)?);
        }
        next.truncate(population.len());
        population = next;
    }
    population.iter().try_for_each(|node| trials.evaluate(node).map(drop))
}
