//! What the evolutionary searches share: random nodes, selection, crossover, mutation.
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
    swap(a, b, rng.random_range(1..width)..width)
}

/// Two-point crossover: the two nodes swap what lies between two random cuts. Nodes of two attributes have room for one cut only.
pub fn two_point_crossover(a: &Node, b: &Node, rng: &mut dyn Rng) -> (Node, Node) {
    let width = a.levels().len();
    if width < 3 {
        return crossover(a, b, rng);
    }
    // Each pair of different cuts is as likely as any other.
    let (one, other) = (rng.random_range(1..width), rng.random_range(1..width - 1));
    let other = if other < one { other } else { other + 1 };
    swap(a, b, one.min(other)..one.max(other))
}

fn swap(a: &Node, b: &Node, part: std::ops::Range<usize>) -> (Node, Node) {
    let take = |own: &Node, other: &Node| {
        let level = |at: usize| if part.contains(&at) { other.levels()[at] } else { own.levels()[at] };
        Node::new((0..own.levels().len()).map(level))
    };
    (take(a, b), take(b, a))
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
            let (c, d) = two_point_crossover(&a, &b, &mut rng);
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
            let (c, d) = two_point_crossover(&a, &b, &mut rng);
            assert_eq!((c.levels(), d.levels()), (&[0, 1, 0][..], &[1, 0, 1][..]), "two cuts have one place here");
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
