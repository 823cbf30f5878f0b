//! `tabu`: tabu search alone, and the walks of `tabu_ga.rs` (Run, Kim, Lee 2011).
//!
//! A walk checks several nodes at a time, at first its start. Each cycle draws different candidates from the union of their neighbours,
//! which are the nodes that differ in exactly one attribute: a satisfying node with probability 0.7, a failing one with 0.3,
//! evenly within each kind. The candidates are checked next and are tabu for a while. A walk ends with the best satisfying
//! node that it met.
//!
//! Whether a node satisfies is found out when it is drawn, and mostly predicted. In a small lattice the union is listed; in a large one it
//! is drawn from without a list. Losses are worked out at the end of a walk, and only where a lower bound leaves a chance.

use std::collections::VecDeque;

use rand::{Rng, RngExt};

use super::genetic::CYCLES_ALONE;
use super::operators::random_node;
use crate::model::lattice::{Lattice, Level, Node};
use crate::search::evaluator::Evaluator;
use crate::search::trials::{Number, Trials};
use crate::search::{Budget, Outcome, Search, StopReason};

/// How many nodes of a large lattice are looked at for a candidate. More look long for a kind that hardly occurs; fewer take
/// one of the other kind though there is one.
const PROPOSALS: usize = 8;

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
        let ended = Walks::new(lattice, &self.walking).walk(&mut trials, start, rng).map(drop);
        trials.outcome(ended)
    }
}

/// Walks, one after the other.
pub(super) struct Walks<'w> {
    walking: &'w Walking,
    around: Around,
}

impl<'w> Walks<'w> {
    pub(super) fn new(lattice: &Lattice, walking: &'w Walking) -> Self {
        Self { walking, around: Around::new(lattice) }
    }

    /// A walk; returns the best satisfying node that it met, or its start where it met none.
    pub(super) fn walk(
        &mut self,
        trials: &mut Trials<'_, '_>,
        start: Number,
        rng: &mut dyn Rng,
    ) -> Result<Number, StopReason> {
        let Self { walking, around } = self;
        let mut tabu = TabuList { nodes: VecDeque::new(), length: walking.tabu_length, life: walking.tabu_life };
        let (mut checked, mut met, mut best) = (vec![start], Vec::new(), None);
        trials.settle(start)?;
        for cycle in 0..walking.cycles {
            met.extend(checked.iter().filter(|number| trials.status(**number) == Some(true)));
            checked.iter().for_each(|&number| tabu.push(number, cycle));
            if walking.aspiration {
                best = trials.best_of(&mut met, best)?;
            }
            let spared = best.map(|best: (f64, Number)| best.1);
            around.look(trials, &checked, tabu.numbers().filter(|number| Some(*number) != spared));
            around.left = PROPOSALS * walking.candidates;
            checked.clear();
            for _ in 0..walking.candidates {
                let satisfying = rng.random_bool(walking.satisfying_share);
                let drawn = match around.draw(trials, satisfying, rng)? {
                    None => around.draw(trials, !satisfying, rng)?,
                    drawn => drawn,
                };
                checked.extend(drawn);
            }
        }
        met.extend(checked.iter().filter(|number| trials.status(**number) == Some(true)));
        Ok(trials.best_of(&mut met, best)?.map_or(start, |best| best.1))
    }
}

/// The union of the neighbours of some nodes, without tabu nodes and those drawn already.
struct Around {
    /// Every level of every attribute that has several.
    moves: Vec<(usize, Level)>,
    nodes: Vec<Number>,
    /// The union in a small lattice, with room for all nodes, and how many nodes it has.
    union: Vec<Number>,
    len: usize,
    /// Failing and satisfying nodes that came up when one of the other kind was wanted.
    kinds: [Vec<Number>; 2],
    /// By number, when a node was last listed, proposed or tabu.
    seen: Vec<u32>,
    now: u32,
    /// How many nodes may still be proposed.
    left: usize,
}

impl Around {
    fn new(lattice: &Lattice) -> Self {
        let spans = lattice.bottom().levels().iter().zip(lattice.top().levels()).enumerate();
        let several = spans.filter(|(_, (low, high))| low < high);
        let moves = several.flat_map(|(attribute, (&low, &high))| (low..=high).map(move |level| (attribute, level)));
        let (nodes, union, seen, kinds) = (Vec::new(), Vec::new(), Vec::new(), Default::default());
        Self { moves: moves.collect(), nodes, union, len: 0, kinds, seen, now: 0, left: 0 }
    }

    /// Turns to the neighbours of some nodes, and lists them in a small lattice.
    fn look(&mut self, trials: &Trials<'_, '_>, nodes: &[Number], tabu: impl Iterator<Item = Number>) {
        self.nodes.clear();
        self.nodes.extend(nodes);
        self.kinds.iter_mut().for_each(Vec::clear);
        self.now += 1;
        self.seen.resize(trials.numbers(), 0);
        tabu.for_each(|number| self.seen[number as usize] = self.now);
        let (mut len, now) = (0, self.now);
        if let Some(ranks) = trials.ranks() {
            // What is put down is overwritten by the next unless it is new: nothing branches on that.
            self.union.resize(ranks.size() + 1, 0);
            let (union, seen) = (&mut self.union[..], &mut self.seen[..]);
            for &node in nodes {
                ranks.around(node, |number, differs| {
                    let seen = &mut seen[number as usize];
                    union[len] = number;
                    len += usize::from(differs & (*seen != now));
                    *seen = if differs { now } else { *seen };
                });
            }
        }
        self.len = len;
    }

    /// A node of a kind, each as likely as any other; `None` if there is none, or none was found in a large lattice.
    fn draw(
        &mut self,
        trials: &mut Trials<'_, '_>,
        satisfying: bool,
        rng: &mut dyn Rng,
    ) -> Result<Option<Number>, StopReason> {
        loop {
            if let Some(number) = self.kinds[usize::from(satisfying)].pop() {
                return Ok(Some(number));
            }
            let number = if self.len > 0 {
                let at = rng.random_range(0..self.len);
                self.len -= 1;
                self.union.swap(at, self.len);
                self.union[self.len]
            } else if let Some(number) = self.propose(trials, rng) {
                number
            } else {
                return Ok(None);
            };
            let kind = trials.settle(number)?;
            if kind == satisfying {
                return Ok(Some(number));
            }
            self.kinds[usize::from(kind)].push(number);
        }
    }

    /// A node of the union that was not seen yet, in a large lattice.
    fn propose(&mut self, trials: &mut Trials<'_, '_>, rng: &mut dyn Rng) -> Option<Number> {
        if trials.ranks().is_some() || self.nodes.is_empty() || self.moves.is_empty() {
            return None;
        }
        while self.left > 0 {
            self.left -= 1;
            let at = rng.random_range(0..self.nodes.len());
            let (attribute, level) = self.moves[rng.random_range(0..self.moves.len())];
            let Some(number) = trials.beside(self.nodes[at], attribute, level) else { continue };
            let node = trials.node(number);
            let differ = |other: Node| other.levels().iter().zip(node.levels()).filter(|(a, b)| a != b).count();
            self.seen.resize(trials.numbers(), 0);
            // A node is proposed as the neighbour of the first that it is next to, and so once.
            if self.seen[number as usize] != self.now
                && !self.nodes[..at].iter().any(|&other| differ(trials.node(other)) == 1)
            {
                self.seen[number as usize] = self.now;
                return Some(number);
            }
        }
        None
    }
}

/// The different nodes drawn last, oldest first, each with the cycle in which it became tabu.
struct TabuList {
    nodes: VecDeque<(Number, usize)>,
    length: usize,
    life: usize,
}

impl TabuList {
    fn push(&mut self, node: Number, cycle: usize) {
        self.nodes.retain(|(other, since)| *other != node && cycle - since < self.life);
        self.nodes.push_back((node, cycle));
        if self.nodes.len() > self.length {
            self.nodes.pop_front();
        }
    }

    fn numbers(&self) -> impl Iterator<Item = Number> {
        self.nodes.iter().map(|(number, _)| *number)
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;
    use crate::model::hierarchy::Hierarchy;
    use crate::search::fixture::{Table, policy};

    #[test]
    fn the_list_is_short_and_forgets() {
        let mut list = TabuList { nodes: VecDeque::new(), length: 6, life: 7 };
        for cycle in 0..10 {
            list.push(cycle as Number, cycle);
        }
        assert_eq!(list.numbers().collect::<Vec<_>>(), [4, 5, 6, 7, 8, 9]);
        list.push(6, 10);
        assert_eq!(list.numbers().collect::<Vec<_>>(), [4, 5, 7, 8, 9, 6], "no node takes two places");
        list.push(77, 15);
        assert_eq!(list.numbers().collect::<Vec<_>>(), [9, 6, 77], "the others are too old");
    }

    /// These attributes with these levels below a group and a top.
    fn table(attributes: usize, hierarchy: &str, rows: &[&str]) -> Table {
        let names: Vec<String> = (0..attributes).map(|at| format!("q{at}")).collect();
        let hierarchy = |name| (name, Hierarchy::parse_csv(hierarchy.as_bytes()).unwrap());
        let row = |cells: &&str| cells.chars().map(String::from).collect();
        let rows: Vec<Vec<String>> = rows.iter().map(row).collect();
        Table::new(policy(names.iter().map(|name| hierarchy(name.as_str())).collect(), &[], 2), &rows)
    }

    /// What the paper prints: satisfying nodes of the union share 0.7, failing ones 0.3, evenly within each.
    #[track_caller]
    fn is_even(table: &Table, checked: &[Node], tabu: &Node) {
        let (lattice, evaluator) = (table.policy.lattice(), table.evaluator());
        let budget = Budget::unlimited();
        let mut trials = Trials::new(&lattice, &evaluator, &budget);
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let numbers: Vec<Number> = checked.iter().map(|node| trials.number(node.clone())).collect();
        let banned = trials.number(tabu.clone());
        let mut around = Around::new(&lattice);
        let mut union: Vec<Node> = checked.iter().flat_map(|node| beside(&lattice, node)).collect();
        union.sort_by(|a, b| a.levels().cmp(b.levels()));
        union.dedup();
        union.retain(|node| node != tabu);
        let (good, bad): (Vec<Node>, Vec<Node>) = union.into_iter().partition(|node| evaluator.satisfies(node));
        assert!(good.len() > 2 && bad.len() > 2, "{good:?} {bad:?}");
        for (satisfying, nodes) in [(true, good), (false, bad)] {
            let mut times = vec![0; nodes.len()];
            for _ in 0..2_000 * nodes.len() {
                around.look(&trials, &numbers, [banned].into_iter());
                around.left = 1_000;
                let drawn: Vec<Number> =
                    (0..2).filter_map(|_| around.draw(&mut trials, satisfying, &mut rng).unwrap()).collect();
                assert_ne!(drawn[0], drawn[1], "candidates differ");
                let first = trials.node(drawn[0]);
                times[nodes.iter().position(|node| *node == first).unwrap()] += 1;
            }
            assert!(times.iter().all(|times| (1_800..2_200).contains(times)), "{nodes:?}: {times:?}");
        }
    }

    fn beside(lattice: &Lattice, node: &Node) -> Vec<Node> {
        let moves = Around::new(lattice).moves;
        moves.iter().map(|&(attribute, level)| node.with(attribute, level)).filter(|other| other != node).collect()
    }

    #[test]
    fn candidates_are_drawn_evenly_within_each_kind() {
        let rows = ["aaa", "aaa", "aba", "baa", "bba", "caa", "cba"];
        let small = table(3, "a;g;*\nb;g;*\nc;h;*\n", &rows);
        // Two nodes next to each other: their neighbours overlap.
        is_even(&small, &[Node::new([1, 1, 0]), Node::new([1, 0, 0])], &Node::new([1, 2, 0]));
        // 2^21 nodes are too many for ranks; the first eleven attributes tell nobody apart.
        let large = table(21, "a;*\nb;*\n", &["aaaaaaaaaaaababababab", "aaaaaaaaaaabababababa"]);
        let top = large.policy.lattice().top().clone();
        is_even(&large, &[top.clone(), top.with(0, 0)], &top.with(1, 0));
    }

    /// A walk between two nodes that stay tabu looks at the better one again only with aspiration.
    #[test]
    fn aspiration_lifts_the_ban_on_the_best() {
        let table = table(1, "a;*\nb;*\n", &["a", "a", "b", "b"]);
        let (lattice, evaluator, budget) = (table.policy.lattice(), table.evaluator(), Budget::unlimited());
        for aspiration in [false, true] {
            let mut trials = Trials::new(&lattice, &evaluator, &budget);
            let walking = Walking { cycles: 3, aspiration, ..Walking::default() };
            let mut walks = Walks::new(&lattice, &walking);
            walks.walk(&mut trials, 0, &mut ChaCha8Rng::seed_from_u64(1)).unwrap();
            // The third cycle goes on from the best, or from nothing.
            assert_eq!(walks.around.nodes, if aspiration { vec![0] } else { vec![] });
        }
    }
}
