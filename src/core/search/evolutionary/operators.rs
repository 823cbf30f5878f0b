//! What the evolutionary searches share: random nodes, selection, crossover, mutation, neighbours.
//!
//! Everything is a pure function of its arguments and of the random numbers it draws, so a seed fixes a whole search.

use rand::{Rng, RngExt};

use crate::model::lattice::{Lattice, Node};

/// A node, each level uniform within the lattice.
pub fn random_node(lattice: &Lattice, rng: &mut dyn Rng) -> Node {
    let spans = lattice.bottom().levels().iter().zip(lattice.top().levels());
    Node::new(spans.map(|(&low, &high)| rng.random_range(low..=high)))
}

/// Roulette wheel: an index with a probability in proportion to its weight. Weights are finite and not negative; if all
/// are zero every index is equally likely. There is at least one.
pub fn roulette(weights: &[f64], rng: &mut dyn Rng) -> usize {
    let total: f64 = weights.iter().sum();
    if total <= 0.0 {
        return rng.random_range(0..weights.len());
    }
    let mut left = rng.random_range(0.0..total);
    for (index, weight) in weights.iter().enumerate() {
        if left < *weight {
            return index;
        }
        left -= weight;
    }
    weights.iter().rposition(|w| *w > 0.0).unwrap_or(0)
}

/// Binary tournament: the better of two indices drawn from `0..len`, where `fitness` is better the smaller it is. Ties go
/// to the first drawn.
pub fn tournament(len: usize, fitness: impl Fn(usize) -> f64, rng: &mut dyn Rng) -> usize {
    let (first, second) = (rng.random_range(0..len), rng.random_range(0..len));
    if fitness(second) < fitness(first) { second } else { first }
}

/// One-point crossover between attributes: the two nodes swap everything from a random cut on. Nodes of one attribute
/// come back unchanged.
pub fn crossover(a: &Node, b: &Node, rng: &mut dyn Rng) -> (Node, Node) {
    let width = a.levels().len();
    if width < 2 {
        return (a.clone(), b.clone());
    }
    let cut = rng.random_range(1..width);
    let join = |head: &Node, tail: &Node| Node::new(head.levels()[..cut].iter().chain(&tail.levels()[cut..]).copied());
    (join(a, b), join(b, a))
}

/// Each attribute moves one level up or down with probability `rate`, if the lattice lets it.
pub fn step_mutation(lattice: &Lattice, node: &Node, rate: f64, rng: &mut dyn Rng) -> Node {
    let spans = lattice.bottom().levels().iter().zip(lattice.top().levels());
    let moved = node.levels().iter().zip(spans).map(|(&level, (&low, &high))| {
        if !rng.random_bool(rate) {
            level
        } else if rng.random_bool(0.5) {
            level.saturating_add(1).min(high)
        } else {
            level.saturating_sub(1).max(low)
        }
    });
    Node::new(moved)
}

/// The nodes that differ in exactly one attribute, by any number of levels.
pub fn neighbours(lattice: &Lattice, node: &Node) -> Vec<Node> {
    let mut neighbours = Vec::new();
    for (attribute, &level) in node.levels().iter().enumerate() {
        let span = lattice.bottom().levels()[attribute]..=lattice.top().levels()[attribute];
        neighbours.extend(span.filter(|&other| other != level).map(|other| node.with(attribute, other)));
    }
    neighbours
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    fn lattice() -> Lattice {
        Lattice::new(Node::new([0, 1, 0, 2]), Node::new([3, 4, 0, 5]))
    }

    #[test]
    fn every_operator_stays_inside_the_lattice() {
        let lattice = lattice();
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for _ in 0..500 {
            let (a, b) = (random_node(&lattice, &mut rng), random_node(&lattice, &mut rng));
            let (c, d) = crossover(&a, &b, &mut rng);
            let e = step_mutation(&lattice, &c, 0.5, &mut rng);
            assert!([a, b, c, d, e].iter().all(|n| lattice.contains(n)));
        }
    }

    #[test]
    fn crossover_swaps_tails() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let (a, b) = (Node::new([0, 0, 0]), Node::new([1, 1, 1]));
        for _ in 0..50 {
            let (c, d) = crossover(&a, &b, &mut rng);
            assert_eq!((c.levels()[0], d.levels()[0], c.levels()[2], d.levels()[2]), (0, 1, 1, 0));
            assert_eq!(c.height() + d.height(), 3);
        }
    }

    #[test]
    fn neighbours_differ_in_exactly_one_attribute() {
        let (lattice, node) = (lattice(), Node::new([1, 1, 0, 5]));
        let neighbours = neighbours(&lattice, &node);
        assert_eq!(neighbours.len(), 3 + 3 + 3);
        for other in &neighbours {
            let differing = node.levels().iter().zip(other.levels()).filter(|(a, b)| a != b).count();
            assert!(differing == 1 && lattice.contains(other));
        }
    }

    #[test]
    fn roulette_follows_the_weights() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let mut drawn = [0; 4];
        (0..4000).for_each(|_| drawn[roulette(&[0.0, 1.0, 3.0, 0.0], &mut rng)] += 1);
        assert_eq!((drawn[0], drawn[3]), (0, 0));
        assert!((2700..3300).contains(&drawn[2]), "{drawn:?}");
        assert!(roulette(&[0.0, 0.0], &mut rng) < 2);
    }

    #[test]
    fn a_tournament_prefers_the_smaller_fitness() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let wins = (0..1000).filter(|_| tournament(2, |i| i as f64, &mut rng) == 0).count();
        assert!((700..800).contains(&wins), "{wins}");
    }
}
