//! `pbg-ea`: property-based generalizations by an evolutionary algorithm (Dewri, Ray, Ray, Whitley, "On the identification
//! of property based generalizations in microdata anonymization", 2010).
//!
//! Finds not one node but the trade-off between several objectives: an archive of nodes of which none box-dominates
//! another. Population 25 with the bottom and the top in it, 100 iterations; fitness of a node is the sum of the dominance
//! counts of the nodes that dominate it; binary tournament on population and archive, one-point crossover with
//! probability 0.8, then each attribute one level up or down with probability 1/m.
//! For a stream one point is picked, among those that satisfy the policy; see [`Prefer`].
//!
//! Where it departs from the paper, each time to find more of the front with fewer nodes counted, unless it runs as printed:
//! - A node is not counted if what is known without counting it (a loss's lower bound, and what measured nodes above and
//!   below it allow) says that it cannot enter the front. Such nodes count as predicted.
//! - An offspring that is known already, or cannot enter, is replaced by an unknown neighbour of a node of the front, the
//!   oldest first: one level of one attribute, and once many counted nodes in a row did not enter, a second such step. Of
//!   several neighbours it takes the one that may dominate most of the front, by what is known without counting it.
//! - Selection and neighbours use all non-dominated nodes rather than the archive, which with large boxes forgets the
//!   stepping stones between them. The archive is offered every node measured, by the paper's rule.
//! - It ends before its iterations do once about as many nodes were counted as the paper's runs count, and of the last ones none
//!   entered the front.

use std::sync::Arc;

use rand::{Rng, RngExt};
use rustc_hash::{FxHashMap, FxHashSet};

use super::operators::{crossover, random_node, step_mutation, tournament};
use crate::model::lattice::{Lattice, Node};
use crate::model::policy::Loss;
use crate::search::aim::Aim;
use crate::search::evaluator::{Evaluation, Evaluator};
use crate::search::front::archive::{Archive, Point, Undominated, dominates};
use crate::search::front::objectives::{Front, FrontPoint, Indices, Objective, Objectives, Prefer};
use crate::search::front::preference::Preference;
use crate::search::{Budget, Candidate, Outcome, Search, StopReason};

/// The paper's population.
pub const POPULATION: usize = 25;

/// The paper's number of iterations.
pub const ITERATIONS: usize = 100;

/// After this many counted nodes of which none entered the front, nodes two steps from it are tried, too. More counts nodes of the
/// population for little; fewer looks two steps away from nodes that one step improves.
const QUIET: usize = 20;

/// After this many, and [`LEAST`] nodes in all, it is taken as found. More counts nodes for little; fewer gives up between two parts of
/// the front.
const PATIENCE: usize = 40;

/// How many nodes are counted at least before it ends early: on its table the paper's runs count 916 to 1,197. More takes longer;
/// fewer misses nodes of small fronts, which few others lead to.
const LEAST: usize = 890;

/// Of how many unknown neighbours the most promising is counted. More takes time to compare them, fewer counts nodes in vain.
const DRAWS: usize = 16;

/// The most nodes of the front that take part in selection. More makes a generation slow, for every pair is compared;
/// fewer forgets the oldest of a large front.
const MAX_PARENTS: usize = 500;

/// Bounds and indices are sums of many cells in different orders; this much may be rounding.
const ROUNDING: f64 = 1e-12;

/// The evolutionary algorithm.
pub struct PbgEa {
    /// What to trade off.
    pub objectives: Vec<Objective>,
    /// Sides of the archive's boxes, as values of their objectives; the others have defaults.
    pub epsilon: Vec<(Objective, f64)>,
    /// Which point to release.
    pub prefer: Prefer,
    /// How many nodes live at a time.
    pub population: usize,
    /// How many generations.
    pub iterations: usize,
    /// The probability that two parents cross over rather than live on.
    pub crossover: f64,
    /// The probability that an attribute moves by one level; without it, one attribute of each child on average.
    pub mutation: Option<f64>,
    /// The paper's algorithm by the letter: each offspring is counted, parents come from population and archive, and it ends with its
    /// iterations.
    pub as_printed: bool,
}

impl Default for PbgEa {
    fn default() -> Self {
        Self {
            objectives: vec![Objective::K, Objective::Loss(Loss::Glm)],
            epsilon: Vec::new(),
            prefer: Prefer::Knee,
            population: POPULATION,
            iterations: ITERATIONS,
            crossover: 0.8,
            mutation: None,
            as_printed: false,
        }
    }
}

impl Search for PbgEa {
    fn run(&self, lattice: &Lattice, evaluator: &Evaluator<'_>, budget: &Budget, rng: &mut dyn Rng) -> Outcome {
        let objectives = Objectives::new(&self.objectives, evaluator);
        let evolved = self.evolve(lattice, evaluator, &objectives, budget, rng);
        let mut front = front(&objectives, evaluator, evolved.archive.into_points(), &self.prefer, false);
        evaluator.memorise(front.points.iter().map(|point| point.node.clone()).collect());
        // Of everything that was measured: a node that satisfies the policy or meets a bound may be dominated by one that
        // does not, and large boxes forget points.
        let preference = front.preference(&self.prefer);
        let best = preferred(&objectives, evaluator, &preference, evolved.satisfying.iter());
        front.picked = best.and_then(|best| front.points.iter().position(|point| point.node == best.item.0));
        let candidate = |best: &Point<Measured>| {
            let (node, evaluation) = best.item.clone();
            Candidate { recoding: node.into(), evaluation }
        };
        Outcome {
            best: best.map(candidate),
            stop: evolved.stop,
            bound: evaluator.lower_bound(lattice.bottom()),
            predicted: evolved.predicted,
            minimal: Vec::new(),
            front: Some(front),
        }
    }

    fn aim(&self, evaluator: &Evaluator<'_>, front: Option<&Front>) -> Aim {
        let points = front.map_or(&[][..], |front| &front.points);
        let values = points.iter().map(|point| point.values.as_slice());
        let preference = Preference::new(&self.objectives, &self.prefer, values);
        Aim::Preferred(Box::new((Objectives::new(&self.objectives, evaluator), preference)))
    }
}

/// A node of the archive, with what the policy says of it.
pub type Measured = (Node, Evaluation);

/// What the evolution left.
pub struct Evolved {
    /// The front it found.
    pub archive: Archive<Measured>,
    /// Why it ended.
    pub stop: StopReason,
    /// Every satisfying node that was measured.
    pub satisfying: Vec<Point<Measured>>,
    /// Different nodes it measured, counted by this search or before it.
    pub measured: usize,
    /// Different nodes it did not count because they cannot enter the front.
    pub predicted: u64,
}

impl PbgEa {
    /// The evolution itself, for those who want the archive rather than one point of it.
    pub fn evolve(
        &self,
        lattice: &Lattice,
        evaluator: &Evaluator<'_>,
        objectives: &Objectives,
        budget: &Budget,
        rng: &mut dyn Rng,
    ) -> Evolved {
        let mut run = Run {
            lattice,
            evaluator,
            objectives,
            budget,
            as_printed: self.as_printed,
            archive: Archive::new(objectives.epsilon(&self.epsilon)),
            front: Undominated::default(),
            measured: FxHashMap::default(),
            hopeless: FxHashSet::default(),
            closed: [FxHashSet::default(), FxHashSet::default()],
            satisfying: Vec::new(),
            barren: 0,
        };
        let stop = run.generations(self, rng).err().unwrap_or(StopReason::Exhausted);
        Evolved {
            archive: run.archive,
            stop,
            satisfying: run.satisfying,
            measured: run.measured.len(),
            predicted: run.hopeless.len() as u64,
        }
    }
}

struct Run<'a, 'e> {
    lattice: &'a Lattice,
    evaluator: &'a Evaluator<'e>,
    objectives: &'a Objectives,
    budget: &'a Budget,
    as_printed: bool,
    archive: Archive<Measured>,
    front: Undominated<Node>,
    measured: FxHashMap<Node, Arc<Indices>>,
    hopeless: FxHashSet<Node>,
    /// Nodes whose neighbours one and two steps away are all known.
    closed: [FxHashSet<Node>; 2],
    satisfying: Vec<Point<Measured>>,
    /// Nodes counted since one entered the front.
    barren: usize,
}

impl Run<'_, '_> {
    fn generations(&mut self, ea: &PbgEa, rng: &mut dyn Rng) -> Result<(), StopReason> {
        let rate = ea.mutation.unwrap_or(1.0 / self.lattice.width().max(1) as f64);
        // The top first: it is the likeliest to satisfy, should the budget end at once.
        let mut population = vec![self.lattice.top().clone(), self.lattice.bottom().clone()];
        // The last window's front lives on in half of the first population, and through it in the archive.
        let recalled = self.evaluator.recall().into_iter().filter(|node| self.lattice.contains(node));
        population.extend(recalled.take(ea.population / 2));
        while population.len() < ea.population {
            population.push(random_node(self.lattice, rng));
        }
        self.measure_all(&mut population)?;
        for _ in 0..ea.iterations {
            let parents = self.ranked(&population);
            let mut next = Vec::with_capacity(ea.population + 1);
            while next.len() < ea.population {
                let mut select = || &parents[tournament(parents.len(), |i| parents[i].1, rng)].0;
                let (a, b) = (select(), select());
                let (a, b) = if rng.random_bool(ea.crossover) { crossover(a, b, rng) } else { (a.clone(), b.clone()) };
                next.push(step_mutation(self.lattice, &a, rate, rng));
                next.push(step_mutation(self.lattice, &b, rate, rng));
            }
            next.truncate(ea.population);
            let steps = if self.barren > QUIET { 2 } else { 1 };
            for node in &mut next {
                if !self.as_printed
                    && self.is_known(node)
                    && let Some(other) = self.unknown_neighbour(steps, rng)
                {
                    *node = other;
                }
                self.measure(node)?;
            }
            next.retain(|node| self.measured.contains_key(node));
            population = next;
            if !self.as_printed && self.barren >= PATIENCE && self.measured.len() >= LEAST {
                break;
            }
        }
        Ok(())
    }

    fn measure_all(&mut self, nodes: &mut Vec<Node>) -> Result<(), StopReason> {
        for node in nodes.iter() {
            self.measure(node)?;
        }
        nodes.retain(|node| self.measured.contains_key(node));
        Ok(())
    }

    /// Counts the node if it is new and can enter the front, and offers it.
    fn measure(&mut self, node: &Node) -> Result<(), StopReason> {
        if self.is_known(node) {
            return Ok(());
        }
        if self.evaluator.known(node).is_none()
            && let Some(reason) = self.budget.spent(self.evaluator.checks())
        {
            return Err(reason);
        }
        let (evaluation, indices) = self.objectives.measure(self.evaluator, node);
        if evaluation.satisfies {
            self.satisfying.push(Point { item: (node.clone(), evaluation.clone()), indices: indices.own.clone() });
        }
        let entered = self.front.offer(Point { item: node.clone(), indices: indices.own.clone() });
        self.barren = if entered { 0 } else { self.barren + 1 };
        self.archive.offer(Point { item: (node.clone(), evaluation), indices: indices.own.clone() });
        self.measured.insert(node.clone(), indices);
        Ok(())
    }

    /// True if counting the node would tell nothing: it is measured, or cannot enter the front. What cannot enter never
    /// can, for the front only grows better and the bounds only tighter.
    fn is_known(&mut self, node: &Node) -> bool {
        let known = self.measured.contains_key(node) || self.hopeless.contains(node);
        if known || self.as_printed {
            return known;
        }
        let hopeless = self.front.covers(&self.most(node));
        if hopeless {
            self.hopeless.insert(node.clone());
        }
        hopeless
    }

    /// The most that each index of a node can be, by what was measured above and below it.
    fn most(&self, node: &Node) -> Vec<f64> {
        let mut most = self.objectives.most(node);
        for (other, indices) in &self.measured {
            let caps = match node.partial_cmp(other) {
                Some(std::cmp::Ordering::Less) => &indices.below,
                Some(std::cmp::Ordering::Greater) => &indices.above,
                _ => continue,
            };
            most.iter_mut().zip(caps).for_each(|(most, cap)| *most = most.min(*cap));
        }
        most.iter_mut().for_each(|most| *most += most.abs() * ROUNDING);
        most
    }

    /// How much of the front a node may dominate.
    fn promise(&self, node: &Node) -> usize {
        let most = self.most(node);
        self.front.points().iter().filter(|point| dominates(&most, &point.indices)).count()
    }

    /// A node worth counting at most so many steps from the front.
    fn unknown_neighbour(&mut self, steps: usize, rng: &mut dyn Rng) -> Option<Node> {
        for distance in 0..steps {
            let open = |p: &&Point<Node>| !self.closed[distance].contains(&p.item);
            let mut open: Vec<Node> = self.front.points().iter().filter(open).map(|p| p.item.clone()).collect();
            while !open.is_empty() {
                // The oldest are the likeliest to stay; two steps away there are too many to take them in order.
                let at = if distance == 0 { 0 } else { rng.random_range(0..open.len()) };
                let node = open.remove(at);
                let mut unknown = self.steps(&node, distance);
                unknown.retain(|other| !self.is_known(other));
                if unknown.is_empty() {
                    self.closed[distance].insert(node);
                } else {
                    return Some(self.most_promising(unknown, rng));
                }
            }
        }
        None
    }

    /// The most promising of some nodes drawn from `nodes`, the first drawn of equal ones. There is at least one.
    fn most_promising(&self, mut nodes: Vec<Node>, rng: &mut dyn Rng) -> Node {
        let first = nodes.swap_remove(rng.random_range(0..nodes.len()));
        let mut best = (self.promise(&first), first);
        // Never all of them, so that chance keeps a part where there are few.
        for _ in 1..DRAWS.min(nodes.len()) {
            let other = nodes.swap_remove(rng.random_range(0..nodes.len()));
            let promise = self.promise(&other);
            if promise > best.0 {
                best = (promise, other);
            }
        }
        best.1
    }

    /// The nodes one level of one attribute away, or two such steps.
    fn steps(&self, node: &Node, distance: usize) -> Vec<Node> {
        let step =
            |node: &Node| -> Vec<Node> { self.lattice.parents(node).chain(self.lattice.children(node)).collect() };
        let first = step(node);
        if distance == 0 { first } else { first.iter().flat_map(step).filter(|other| other != node).collect() }
    }

    /// Population and front (as printed: archive), each node with its fitness: the sum, over the nodes that dominate it, of how many
    /// those dominate. 0 is best.
    fn ranked(&self, population: &[Node]) -> Vec<(Node, f64)> {
        let mut nodes: Vec<Node> = population.to_vec();
        match self.as_printed {
            true => nodes.extend(self.archive.points().map(|p| p.item.0.clone())),
            false => nodes.extend(self.front.points().iter().rev().take(MAX_PARENTS).map(|p| p.item.clone())),
        }
        let indices: Vec<&[f64]> =
            nodes.iter().map(|node| self.measured.get(node).map_or(&[][..], |i| i.own.as_slice())).collect();
        let count = |a: &&[f64]| indices.iter().filter(|b| dominates(a, b)).count() as f64;
        let counts: Vec<f64> = indices.iter().map(count).collect();
        let fitness =
            |b: &&[f64]| indices.iter().zip(&counts).filter(|(a, _)| dominates(a, b)).map(|(_, count)| *count).sum();
        let fitness: Vec<f64> = indices.iter().map(fitness).collect();
        nodes.into_iter().zip(fitness).collect()
    }
}

/// The front made of `points`, with the point that `prefer` picks among those that satisfy the policy.
pub fn front(
    objectives: &Objectives,
    evaluator: &Evaluator<'_>,
    mut points: Vec<Point<Measured>>,
    prefer: &Prefer,
    exact: bool,
) -> Front {
    points.sort_by(|a, b| {
        let by_index = a.indices.iter().zip(&b.indices).map(|(a, b)| b.total_cmp(a)).find(|o| o.is_ne());
        by_index.unwrap_or_else(|| a.item.0.levels().cmp(b.item.0.levels()))
    });
    let shown = |p: &Point<Measured>| FrontPoint {
        values: objectives.values(&p.indices),
        node: p.item.0.clone(),
        evaluation: p.item.1.clone(),
    };
    let shown = points.iter().map(shown).collect();
    let mut front = Front { objectives: objectives.list().to_vec(), points: shown, picked: None, exact };
    let satisfying = points.iter().filter(|p| p.item.1.satisfies);
    let best = preferred(objectives, evaluator, &front.preference(prefer), satisfying);
    front.picked = best.and_then(|best| front.points.iter().position(|point| point.node == best.item.0));
    front
}

/// The best of `points` by the preference; of equal ones the lexicographically smallest node.
fn preferred<'p>(
    objectives: &Objectives,
    evaluator: &Evaluator<'_>,
    preference: &Preference,
    points: impl Iterator<Item = &'p Point<Measured>>,
) -> Option<&'p Point<Measured>> {
    let ranked = points.map(|point| {
        let released = || objectives.released(evaluator, &point.item.0);
        (preference.rank(&objectives.values(&point.indices), released), point)
    });
    let best = ranked.min_by(|(a, p), (b, q)| a.total_cmp(*b).then_with(|| p.item.0.levels().cmp(q.item.0.levels())));
    best.map(|(_, point)| point)
}

impl Front {
    /// What `prefer` prefers among its points.
    fn preference(&self, prefer: &Prefer) -> Preference {
        Preference::new(&self.objectives, prefer, self.points.iter().map(|point| point.values.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;
    use crate::model::hierarchy::Hierarchy;
    use crate::search::fixture::{Table, policy};
    use crate::search::front::frontier::exact;

    /// In a small lattice both find the whole front; as printed no node is passed over and all iterations are run.
    #[test]
    fn the_front_is_found_as_printed_and_with_fewer_nodes() {
        let hierarchy = || Hierarchy::parse_csv("a;g;x;*\nb;g;x;*\nc;h;x;*\nd;i;y;*\n".as_bytes()).unwrap();
        let quasi = vec![("p", hierarchy()), ("q", hierarchy()), ("r", hierarchy())];
        let row =
            |i: u32| [i % 4, i * i % 4, i / 7 % 4].map(|cell| ["a", "b", "c", "d"][cell as usize].to_owned()).to_vec();
        let table = Table::new(policy(quasi, &[], 2), &(0..40).map(row).collect::<Vec<_>>());
        let lattice = table.policy.lattice();
        let [own, printed] = [false, true].map(|as_printed| {
            let evaluator = table.evaluator();
            let ea = PbgEa { as_printed, ..PbgEa::default() };
            let objectives = Objectives::new(&ea.objectives, &evaluator);
            let rng = &mut ChaCha8Rng::seed_from_u64(1);
            let evolved = ea.evolve(&lattice, &evaluator, &objectives, &Budget::unlimited(), rng);
            let truth = exact(&objectives, &lattice, &evaluator, &Budget::unlimited()).unwrap();
            let mut boxes = Archive::new(objectives.epsilon(&ea.epsilon));
            truth.iter().for_each(|point| _ = boxes.offer(point.clone()));
            let sorted = |archive: &Archive<Measured>| {
                let mut boxes: Vec<Vec<i64>> = archive.boxes().map(<[i64]>::to_vec).collect();
                boxes.sort();
                boxes
            };
            assert_eq!(sorted(&evolved.archive), sorted(&boxes), "as printed: {as_printed}");
            evolved
        });
        assert_eq!((printed.predicted, printed.stop), (0, StopReason::Exhausted));
        assert!(own.predicted > 0 && own.measured < printed.measured);
    }
}
