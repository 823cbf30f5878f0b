//! `tabu`: tabu search alone, and the walks of `tabu_ga.rs` (Run, Kim, Lee 2011).
//!
//! A walk checks several nodes at a time, at first its start. Each cycle draws candidates from the union of their neighbours,
//! which are the nodes that differ in exactly one attribute: a satisfying node with probability 0.7, a failing one with 0.3,
//! evenly within each kind. The candidates are checked next and are tabu for a while. A walk ends with the best satisfying
//! node that it met.
//!
//! Bounds come before counts: whether a node satisfies is mostly predicted, and its loss is worked out only where its
//! lower bound is below the loss of the walk's best. Most of the time goes into drawing: a neighbour is found by its outline.

use std::collections::VecDeque;

use rand::{Rng, RngExt};

use super::genetic::CYCLES_ALONE;
use super::operators::random_node;
use crate::model::lattice::{Lattice, Level, Outline};
use crate::search::evaluator::Evaluator;
use crate::search::trials::{Number, Trials};
use crate::search::{Budget, Outcome, Search, StopReason, is_better};

/// How many times a node of the kind that is wanted is looked for. More looks long for a kind that hardly occurs; fewer takes
/// one of the other kind though there is one.
const ATTEMPTS: usize = 40;

/// After so many attempts without a single node of a kind there is taken to be none. More look for what is not there; fewer
/// overlook a kind that is rare.
const NONE_SEEN: usize = 4;

/// A number that is not given yet.
const NONE: Number = Number::MAX;

/// How a walk goes on. The defaults are the paper's.
#[derive(Debug, Clone, PartialEq)]
pub struct Walking {
    /// How many cycles.
    pub cycles: usize,
    /// How many candidates a cycle draws; at least 1.
    pub candidates: usize,
    /// How many nodes are tabu at most.
    pub tabu_length: usize,
    /// How many cycles a node stays tabu.
    pub tabu_life: usize,
    /// The probability that a candidate is a satisfying node, where there are both kinds.
    pub satisfying_share: f64,
    /// True if the best node that a walk has met is never tabu, so that it can look around it again. Not in the paper,
    /// which names an aspiration criterion as future work.
    pub aspiration: bool,
}

impl Default for Walking {
    fn default() -> Self {
        let (tabu_length, tabu_life) = (6, 7);
        Self { cycles: 20, candidates: 20, tabu_length, tabu_life, satisfying_share: 0.7, aspiration: false }
    }
}

/// Tabu search from a random node.
pub struct Tabu {
    /// The walk.
    pub walking: Walking,
}

impl Default for Tabu {
    fn default() -> Self {
        Self { walking: Walking { cycles: CYCLES_ALONE, ..Walking::default() } }
    }
}

impl Search for Tabu {
    fn run(&self, lattice: &Lattice, evaluator: &Evaluator<'_>, budget: &Budget, rng: &mut dyn Rng) -> Outcome {
        let mut trials = Trials::new(lattice, evaluator, budget);
        let start = trials.number(random_node(lattice, rng));
        let ended = Neighbours::new(lattice).walk(&mut trials, &self.walking, &[start], rng).map(drop);
        trials.outcome(ended)
    }
}

/// The neighbours of nodes.
pub(super) struct Neighbours {
    /// Every level of every attribute that has several.
    moves: Vec<(usize, Level)>,
}

impl Neighbours {
    pub(super) fn new(lattice: &Lattice) -> Self {
        let spans = lattice.bottom().levels().iter().zip(lattice.top().levels()).enumerate();
        let several = spans.filter(|(_, (low, high))| low < high);
        let moves = several.flat_map(|(attribute, (&low, &high))| (low..=high).map(move |level| (attribute, level)));
        Self { moves: moves.collect() }
    }

    /// A walk from each of `starts`; returns the best satisfying node that each met, or its start where it met none.
    pub(super) fn walk(
        &self,
        trials: &mut Trials<'_, '_>,
        walking: &Walking,
        starts: &[Number],
        rng: &mut dyn Rng,
    ) -> Result<Vec<Number>, StopReason> {
        let mut walks: Vec<Walk> = starts.iter().map(|&start| Walk::new(start, walking)).collect();
        for &start in starts {
            trials.settle(start)?;
        }
        for cycle in 0..walking.cycles {
            for walk in &mut walks {
                walk.take_in(trials, cycle)?;
            }
            self.draw(trials, walking, &mut walks, rng)?;
        }
        for walk in &mut walks {
            walk.take_in(trials, walking.cycles)?;
        }
        Ok(walks.iter().map(|walk| walk.best.map_or(walk.start, |best| best.1)).collect())
    }

    /// The candidates of a cycle of every walk. Each is wanted of one kind, and nodes are drawn until one is of that kind.
    fn draw(
        &self,
        trials: &mut Trials<'_, '_>,
        walking: &Walking,
        walks: &mut [Walk],
        rng: &mut dyn Rng,
    ) -> Result<(), StopReason> {
        // By candidate: of which walk, whether it is to satisfy, and the last node drawn for it.
        let mut wanted: Vec<(usize, bool, Number)> = Vec::with_capacity(walks.len() * walking.candidates);
        for walk in 0..walks.len() {
            wanted.extend((0..walking.candidates).map(|_| (walk, rng.random_bool(walking.satisfying_share), NONE)));
        }
        // By walk: whether a failing node was drawn, and a satisfying one.
        let mut seen = vec![[false; 2]; walks.len()];
        for attempt in 1..=ATTEMPTS {
            for (walk, _, number) in &mut wanted {
                if let Some(drawn) = self.propose(trials, &walks[*walk], rng) {
                    *number = drawn;
                }
            }
            wanted.retain(|(_, _, number)| *number != NONE);
            for &(walk, _, number) in &wanted {
                seen[walk][usize::from(trials.settle(number)?)] = true;
            }
            wanted.retain(|&(walk, satisfying, number)| {
                let found = trials.satisfies(number) == satisfying;
                let done = found || attempt >= NONE_SEEN && !seen[walk][usize::from(satisfying)];
                if done {
                    walks[walk].checked.push(number);
                }
                !done
            });
            if wanted.is_empty() {
                break;
            }
        }
        wanted.iter().for_each(|&(walk, _, number)| walks[walk].checked.push(number));
        Ok(())
    }

    /// A node of the union of the neighbours of the nodes that a walk checks, each as likely as any other; `None` if all that
    /// were drawn are tabu.
    fn propose(&self, trials: &mut Trials<'_, '_>, walk: &Walk, rng: &mut dyn Rng) -> Option<Number> {
        if walk.expanded.is_empty() || self.moves.is_empty() {
            return None;
        }
        for _ in 0..ATTEMPTS {
            let at = rng.random_range(0..walk.expanded.len());
            let (attribute, level) = self.moves[rng.random_range(0..self.moves.len())];
            let Some(number) = trials.beside(walk.expanded[at].0, attribute, level) else { continue };
            // A node is drawn as the neighbour of the first that it is next to, and so once.
            let neighbour = (number, trials.outline(number));
            let mut earlier = walk.expanded[..at].iter();
            if !walk.is_tabu(number) && !earlier.any(|&other| trials.are_neighbours(other, neighbour)) {
                return Some(number);
            }
        }
        None
    }
}

/// One walk.
struct Walk {
    start: Number,
    /// The candidates drawn last.
    checked: Vec<Number>,
    /// The different nodes whose neighbours are drawn from.
    expanded: Vec<(Number, Outline)>,
    tabu: TabuList,
    aspiration: bool,
    /// The best satisfying node that it met, and its loss.
    best: Option<(f64, Number)>,
}

impl Walk {
    fn new(start: Number, walking: &Walking) -> Self {
        let tabu = TabuList { nodes: VecDeque::new(), length: walking.tabu_length, life: walking.tabu_life };
        let aspiration = walking.aspiration;
        Self { start, checked: vec![start], expanded: Vec::new(), tabu, aspiration, best: None }
    }

    /// Remembers the best of the nodes just checked, makes them tabu, and goes on from them. Only those that may be better than the
    /// best are weighed.
    fn take_in(&mut self, trials: &mut Trials<'_, '_>, cycle: usize) -> Result<(), StopReason> {
        let least = self.best.map_or(f64::INFINITY, |best| best.0);
        for &number in &self.checked {
            if trials.satisfies(number) && trials.bound(number) <= least {
                trials.weigh(number)?;
            }
            let better =
                |loss: f64, (best, than): (f64, Number)| is_better(loss, trials.node(number), best, trials.node(than));
            if let Some(loss) = trials.loss(number)
                && self.best.is_none_or(|best| better(loss, best))
            {
                self.best = Some((loss, number));
            }
            self.tabu.push(number, cycle);
        }
        self.checked.sort_unstable();
        self.checked.dedup();
        self.expanded.clear();
        self.expanded.extend(self.checked.drain(..).map(|number| (number, trials.outline(number))));
        Ok(())
    }

    fn is_tabu(&self, number: Number) -> bool {
        self.tabu.contains(number) && !(self.aspiration && self.best.is_some_and(|best| best.1 == number))
    }
}

/// The nodes drawn last, oldest first, each with the cycle in which it became tabu.
struct TabuList {
    nodes: VecDeque<(Number, usize)>,
    length: usize,
    life: usize,
}

impl TabuList {
    fn push(&mut self, node: Number, cycle: usize) {
        self.nodes.retain(|(_, since)| cycle - since < self.life);
        self.nodes.push_back((node, cycle));
        if self.nodes.len() > self.length {
            self.nodes.pop_front();
        }
    }

    fn contains(&self, node: Number) -> bool {
        self.nodes.iter().any(|(tabu, _)| *tabu == node)
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;
    use crate::model::hierarchy::Hierarchy;
    use crate::model::lattice::Node;
    use crate::search::fixture::{Table, policy};

    #[test]
    fn the_list_is_short_and_forgets() {
        let mut list = TabuList { nodes: VecDeque::new(), length: 6, life: 7 };
        for cycle in 0..10 {
            list.push(cycle as Number, cycle);
        }
        assert_eq!(list.nodes.len(), 6);
        assert!(!list.contains(3) && list.contains(4));
        list.push(77, 15);
        assert_eq!(list.nodes.len(), 2, "only the last two are younger than their living time");
    }

    /// Three attributes of three levels each; about half of the nodes satisfy.
    fn table() -> Table {
        let text = "a;g;*\nb;g;*\nc;h;*\n";
        let quasi = ["x", "y", "z"].map(|name| (name, Hierarchy::parse_csv(text.as_bytes()).unwrap()));
        let rows = ["aa", "aa", "ab", "ba", "bb", "ca", "cb"];
        let row = |cells: &str| cells.chars().chain(['a']).map(String::from).collect();
        let rows: Vec<Vec<String>> = rows.into_iter().map(row).collect();
        Table::new(policy(quasi.into(), &[], 2), &rows)
    }

    /// What the paper prints: satisfying nodes of the union share 0.7, failing ones 0.3, evenly within each.
    #[test]
    fn candidates_are_drawn_evenly_within_each_kind() {
        let table = table();
        let (lattice, evaluator) = (table.policy.lattice(), table.evaluator());
        let budget = Budget::unlimited();
        let mut trials = Trials::new(&lattice, &evaluator, &budget);
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        // Two nodes next to each other: their neighbours overlap.
        let checked = [[1, 1, 0], [1, 0, 0]].map(|levels| trials.number(Node::new(levels)));
        let neighbours = Neighbours::new(&lattice);
        let walking = Walking { candidates: 20_000, tabu_length: 1, ..Walking::default() };
        let mut walk = Walk::new(checked[0], &walking);
        walk.expanded = checked.iter().map(|&number| (number, trials.outline(number))).collect();
        walk.checked.clear();
        walk.tabu.push(trials.number(Node::new([1, 2, 0])), 0);
        let mut walks = [walk];
        neighbours.draw(&mut trials, &walking, &mut walks, &mut rng).unwrap();
        let mut union: Vec<Node> = lattice.nodes().collect();
        let bases = checked.map(|number| trials.node(number).clone());
        let differ = |a: &Node, b: &Node| a.levels().iter().zip(b.levels()).filter(|(a, b)| a != b).count();
        union.retain(|node| bases.iter().any(|base| differ(node, base) == 1) && node.levels() != [1, 2, 0]);
        let (good, bad): (Vec<Node>, Vec<Node>) = union.into_iter().partition(|node| table.evaluator().satisfies(node));
        assert!(good.len() > 2 && bad.len() > 2, "{good:?} {bad:?}");
        for (nodes, share) in [(good, 0.7), (bad, 0.3)] {
            let expected = 20_000.0 * share / nodes.len() as f64;
            for node in nodes {
                let number = trials.number(node.clone());
                let times = walks[0].checked.iter().filter(|drawn| **drawn == number).count() as f64;
                assert!((times / expected - 1.0).abs() < 0.1, "{node:?}: {times} and not {expected}");
            }
        }
    }

    /// A tabu node may be drawn again if it is the best, and if that is asked for.
    #[test]
    fn aspiration_lifts_the_ban_on_the_best() {
        for aspiration in [false, true] {
            let mut walk = Walk::new(1, &Walking { aspiration, ..Walking::default() });
            walk.best = Some((0.5, 1));
            walk.tabu.push(1, 0);
            walk.tabu.push(2, 0);
            assert_eq!((walk.is_tabu(1), walk.is_tabu(2)), (!aspiration, true));
        }
    }
}
