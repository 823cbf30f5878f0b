//! `genetic`: the genetic algorithm alone, as the hybrid of Run, Kim, Lee, "An effective use of tabu search inside a
//! genetic algorithm for k-anonymity" (2011) is compared with.
//!
//! A uniform random population, roulette wheel on fitness 1/loss, one-point crossover between attributes, mutation; the
//! new group replaces the old one and the best satisfying node ever seen is kept. The paper does not print its mutation
//! rate: by default each attribute moves one level up or down with probability 1/m, one attribute on average.

use rand::Rng;

use super::operators::{crossover, random_node, roulette, step_mutation, two_point_crossover};
use crate::model::lattice::{Lattice, Node};
use crate::search::evaluator::Evaluator;
use crate::search::trials::{Number, Trials};
use crate::search::{Budget, Outcome, Search, StopReason};

/// The paper's population.
pub const POPULATION: usize = 20;

/// The paper's number of cycles for a part that searches alone.
pub const CYCLES_ALONE: usize = 300;

/// The genetic cycle. The defaults are the paper's.
#[derive(Debug, Clone, PartialEq)]
pub struct GeneticCycle {
    /// How many nodes live at a time; at least 1.
    pub population: usize,
    /// How many generations.
    pub cycles: usize,
    /// At how many points a pair is cut and exchanged: one, as in the paper, or two, which it names as future work.
    pub crossover_points: usize,
}

/// The genetic algorithm.
pub struct Genetic {
    /// The cycle.
    pub cycle: GeneticCycle,
    /// The probability that an attribute of a child moves by one level; without it, one attribute on average.
    pub mutation: Option<f64>,
}

impl Default for Genetic {
    fn default() -> Self {
        let cycle = GeneticCycle { population: POPULATION, cycles: CYCLES_ALONE, crossover_points: 1 };
        Self { cycle, mutation: None }
    }
}

impl Search for Genetic {
    fn run(&self, lattice: &Lattice, evaluator: &Evaluator<'_>, budget: &Budget, rng: &mut dyn Rng) -> Outcome {
        let mut trials = Trials::new(lattice, evaluator, budget);
        let rate = self.mutation.unwrap_or(1.0 / lattice.width().max(1) as f64);
        let ended = self.cycle.evolve(&mut trials, Vec::new(), rng, |trials, children, rng| {
            let mut mutated = |&child: &Number| {
                let node = step_mutation(lattice, &trials.node(child), rate, rng);
                trials.number(node)
            };
            Ok(children.iter().map(&mut mutated).collect())
        });
        trials.outcome(ended)
    }
}

impl GeneticCycle {
    /// The genetic cycle around any way to change the crossed-over nodes. `seeds` are part of the first population.
    pub(super) fn evolve(
        &self,
        trials: &mut Trials<'_, '_>,
        seeds: Vec<Node>,
        rng: &mut dyn Rng,
        mut change: impl FnMut(&mut Trials<'_, '_>, &[Number], &mut dyn Rng) -> Result<Vec<Number>, StopReason>,
    ) -> Result<(), StopReason> {
        let mut first = seeds;
        first.truncate(self.population);
        while first.len() < self.population.max(1) {
            first.push(random_node(trials.lattice, rng));
        }
        let mut population: Vec<Number> = first.into_iter().map(|node| trials.number(node)).collect();
        for _ in 0..self.cycles {
            let fitness = trials.fitness(&population)?;
            let mut children = Vec::with_capacity(population.len() + 1);
            while children.len() < population.len() {
                let [a, b] = [roulette(&fitness, rng), roulette(&fitness, rng)].map(|at| population[at]);
                let cross = if self.crossover_points > 1 { two_point_crossover } else { crossover };
                let (a, b) = cross(&trials.node(a), &trials.node(b), rng);
                children.extend([a, b].map(|node| trials.number(node)));
            }
            children.truncate(population.len());
            population = change(trials, &children, rng)?;
        }
        for number in population {
            trials.settle(number)?;
            trials.weigh(number)?;
        }
        Ok(())
    }
}
