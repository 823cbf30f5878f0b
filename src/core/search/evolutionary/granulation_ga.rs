//! `granulation-ga`: the node of greatest security times quality, by a genetic algorithm (Wang, Liao, Hsu 2007).
//!
//! A chromosome is the index of each attribute's partition, in as many bits as its count needs, one after the other.
//! Roulette selection, one-point crossover between any two bits, bit-flip mutation; an index that is too large is repaired
//! modulo the count. The answer is the fittest node that satisfies the policy; ties go to the lesser loss. Evaluations are
//! memoised by the evaluator, so a node is counted once however often it is bred.

use rand::{Rng, RngExt as _};

use crate::loss::Quality;
use crate::model::lattice::{Lattice, Level, Node};
use crate::search::aim::{Aim, security_times_quality};
use crate::search::evaluator::Evaluator;
use crate::search::front::objectives::Front;
use crate::search::{Budget, Candidate, Outcome, Search, StopReason, keep_best};

/// The parameters. The paper leaves them open.
#[derive(Debug, Clone, PartialEq)]
pub struct GranulationGa {
    /// More see more nodes per generation; fewer lose variety sooner.
    pub population: usize,
    /// More refine longer; fewer stop before the population has settled.
    pub generations: usize,
    /// How likely two parents exchange their tails; otherwise they live on as they are.
    pub crossover: f64,
    /// How likely a bit flips; without it, one bit of each child on average.
    pub mutation: Option<f64>,
}

impl Default for GranulationGa {
    fn default() -> Self {
        Self { population: 30, generations: 50, crossover: 0.8, mutation: None }
    }
}

impl Search for GranulationGa {
    fn run(&self, lattice: &Lattice, evaluator: &Evaluator<'_>, budget: &Budget, rng: &mut dyn Rng) -> Outcome {
        let mut breeding = Breeding {
            code: NodeBits::new(lattice),
            quality: Quality::new(evaluator.policy()),
            evaluator,
            budget,
            best: None,
        };
        let stop = breeding.evolve(self, lattice, rng).err().unwrap_or(StopReason::Exhausted);
        Outcome {
            best: breeding.best.map(|(_, candidate)| candidate),
            stop,
            bound: evaluator.lower_bound(lattice.bottom()),
            predicted: 0,
            minimal: Vec::new(),
            front: None,
        }
    }

    fn aim(&self, evaluator: &Evaluator<'_>, _front: Option<&Front>) -> Aim {
        Aim::SecurityTimesQuality(Quality::new(evaluator.policy()))
    }
}

/// How nodes are written in bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeBits {
    bottom: Node,
    /// How many partitions each attribute has.
    counts: Vec<u32>,
}

impl NodeBits {
    /// The code of a lattice's nodes.
    pub fn new(lattice: &Lattice) -> Self {
        let levels = lattice.bottom().levels().iter().zip(lattice.top().levels());
        let counts = levels.map(|(bottom, top)| u32::from(top - bottom) + 1).collect();
        Self { bottom: lattice.bottom().clone(), counts }
    }

    /// Bits per attribute: as many as its greatest index needs.
    fn widths(&self) -> impl Iterator<Item = usize> + '_ {
        self.counts.iter().map(|count| (u32::BITS - (count - 1).leading_zeros()) as usize)
    }

    /// Bits per chromosome.
    pub fn len(&self) -> usize {
        self.widths().sum()
    }

    /// True if there is only one node.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bits of these indices, which may be too large as long as their bits suffice.
    pub fn bits(&self, indices: impl IntoIterator<Item = u32>) -> Vec<bool> {
        let of = |(index, width): (u32, usize)| (0..width).rev().map(move |bit| index >> bit & 1 == 1);
        indices.into_iter().zip(self.widths()).flat_map(of).collect()
    }

    /// The bits of a node.
    pub fn encode(&self, node: &Node) -> Vec<bool> {
        self.bits(node.levels().iter().zip(self.bottom.levels()).map(|(level, bottom)| u32::from(level - bottom)))
    }

    /// The node that the bits stand for; indices that are too large are taken modulo the count.
    pub fn decode(&self, bits: &[bool]) -> Node {
        let mut rest = bits;
        let mut index = |(width, count): (usize, &u32)| {
            let (own, others) = rest.split_at(width);
            rest = others;
            own.iter().fold(0u32, |index, &bit| index << 1 | u32::from(bit)) % count
        };
        let indices: Vec<u32> = self.widths().zip(&self.counts).map(&mut index).collect();
        Node::new(indices.iter().zip(self.bottom.levels()).map(|(&index, bottom)| bottom + index as Level))
    }
}

struct Breeding<'a, 'e> {
    code: NodeBits,
    quality: Quality,
    evaluator: &'a Evaluator<'e>,
    budget: &'a Budget,
    best: Option<(f64, Candidate)>,
}

impl Breeding<'_, '_> {
    fn evolve(&mut self, parameters: &GranulationGa, lattice: &Lattice, rng: &mut dyn Rng) -> Result<(), StopReason> {
        let length = self.code.len();
        // The coarsest node first: it is the likeliest to satisfy, so that there is an answer early.
        let mut population = vec![self.code.encode(lattice.top())];
        while population.len() < parameters.population {
            population.push((0..length).map(|_| rng.random_bool(0.5)).collect());
        }
        let mut fitness = self.fitness(&mut population)?;
        if length == 0 {
            return Ok(());
        }
        let mutation = parameters.mutation.unwrap_or(1.0 / length as f64);
        for _ in 0..parameters.generations {
            let mut offspring = Vec::with_capacity(population.len() + 1);
            while offspring.len() < population.len() {
                let mut pair = [roulette(&fitness, rng), roulette(&fitness, rng)].map(|i| population[i].clone());
                if rng.random_bool(parameters.crossover) {
                    cross(&mut pair, rng.random_range(0..length));
                }
                for child in &mut pair {
                    child.iter_mut().for_each(|bit| *bit ^= rng.random_bool(mutation));
                }
                offspring.extend(pair);
            }
            offspring.truncate(population.len());
            population = offspring;
            fitness = self.fitness(&mut population)?;
        }
        Ok(())
    }

    /// Repairs and evaluates everybody.
    fn fitness(&mut self, population: &mut [Vec<bool>]) -> Result<Vec<f64>, StopReason> {
        let mut fitness = Vec::with_capacity(population.len());
        for bits in population {
            let node = self.code.decode(bits);
            *bits = self.code.encode(&node);
            let known = self.evaluator.known(&node);
            if let (None, Some(reason)) = (&known, self.budget.spent(self.evaluator.checks())) {
                return Err(reason);
            }
            let evaluation = known.unwrap_or_else(|| self.evaluator.evaluate(&node));
            let own = security_times_quality(&self.quality, self.evaluator, &node, &evaluation);
            fitness.push(own);
            if evaluation.satisfies {
                let mut same = match self.best.take() {
                    Some((best, candidate)) if best > own => {
                        self.best = Some((best, candidate));
                        continue;
                    }
                    Some((best, candidate)) if best == own => Some(candidate),
                    _ => None,
                };
                keep_best(&mut same, &node, &evaluation);
                self.best = same.map(|candidate| (own, candidate));
            }
        }
        Ok(fitness)
    }
}

/// An index, drawn in proportion to its fitness; all alike if nobody is fit.
fn roulette(fitness: &[f64], rng: &mut dyn Rng) -> usize {
    let total: f64 = fitness.iter().sum();
    if total <= 0.0 {
        return rng.random_range(0..fitness.len());
    }
    let mut left = rng.random::<f64>() * total;
    let drawn = fitness.iter().position(|own| {
        left -= own;
        left < 0.0
    });
    drawn.unwrap_or(fitness.len() - 1)
}

/// Exchanges everything from bit `from` on.
fn cross([a, b]: &mut [Vec<bool>; 2], from: usize) {
    a[from..].swap_with_slice(&mut b[from..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bits: &[bool]) -> String {
        bits.iter().map(|&bit| if bit { '1' } else { '0' }).collect()
    }

    /// Date of birth by 3 partitions or 4, zip by 6, height by 5: the paper's 2 + 3 + 3 bits.
    #[test]
    fn the_papers_codes() {
        let code = NodeBits::new(&Lattice::from_heights(&[3, 5, 4]));
        assert_eq!(text(&code.encode(&Node::new([1, 3, 2]))), "01011010");
        let repaired = |indices: [u32; 3]| text(&code.encode(&code.decode(&code.bits(indices))));
        assert_eq!(repaired([1, 0, 5]), "01000000");
        assert_eq!(repaired([0, 7, 2]), "00001010");
    }

    #[test]
    fn every_node_has_a_code_of_its_own() {
        let lattice = Lattice::new(Node::new([1, 0, 2]), Node::new([3, 0, 5]));
        let code = NodeBits::new(&lattice);
        assert_eq!(code.len(), 4);
        for node in lattice.nodes() {
            assert_eq!(code.decode(&code.encode(&node)), node);
        }
    }

    #[test]
    fn crossing_exchanges_the_tails() {
        let mut pair = [vec![true; 4], vec![false; 4]];
        cross(&mut pair, 1);
        assert_eq!(pair.map(|bits| text(&bits)), ["1000", "0111"]);
    }
}
