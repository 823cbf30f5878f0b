//! `bottom-up`: Incognito (LeFevre, DeWitt, Ramakrishnan 2005).
//!
//! Finds all satisfying nodes by the generalization, rollup and subset properties, subset size by subset size; then the
//! one of least loss among them. A node over a subset of the attributes is a node of the whole lattice in which the other
//! attributes are fully generalized, so its frequency set is a rollup like any other, and a node over a subset that
//! generalizes one of its attributes fully is settled already: it is one over a smaller subset.
//! Pruning needs a monotone policy; without one every node of the whole lattice is counted.
//! A warm start has an answer to prove or to refute, and for that not all satisfying nodes have to be found: it goes on as
//! [`optimal`](super::optimal), which finds the same one. The minimal nodes are then found by
//! [`minimal`] for somebody who looks at the search, such as the console.

use std::convert::Infallible;

use rand::Rng;
use rustc_hash::FxHashSet;

use super::exhaustive::Exhaustive;
use super::optimal::Optimal;
use super::packing::{Packed, Packing};
use crate::model::lattice::{Lattice, Level, Node};
use crate::search::evaluator::Evaluator;
use crate::search::{Budget, Candidate, Outcome, Search, StopReason, TIE, is_better};

/// Incognito.
pub struct BottomUp;

/// A set of attributes, one bit each.
type Subset = u64;

/// The most classes that the set of a subset at its finest may have for nodes to be counted from it. Larger makes sets that are
/// hardly smaller than those they are made from; smaller counts many nodes from larger sets than need be.
const FEW: usize = 1 << 17;

impl Search for BottomUp {
    fn run(&self, lattice: &Lattice, evaluator: &Evaluator<'_>, budget: &Budget, rng: &mut dyn Rng) -> Outcome {
        let Some(mut incognito) = Incognito::new(lattice, evaluator, budget) else {
            return Exhaustive.run(lattice, evaluator, budget, rng);
        };
        if !evaluator.recall().is_empty() {
            return Optimal.run(lattice, evaluator, budget, rng);
        }
        let (done, minimal) = match incognito.satisfying() {
            Ok(()) => (incognito.weigh(incognito.in_lattice().collect()), incognito.minimal()),
            Err(stop) => (Err((stop, evaluator.lower_bound(lattice.bottom()))), Vec::new()),
        };
        let (stop, bound) = done.err().unwrap_or((StopReason::Proven, f64::INFINITY));
        let best = incognito.answer();
        let node = best.as_ref().and_then(|best| best.recoding.node());
        evaluator.memorise(vec![node.unwrap_or_else(|| lattice.top().clone())]);
        let bound = best.as_ref().map_or(bound, |b| b.evaluation.loss.min(bound));
        Outcome { best, stop, bound, predicted: incognito.predicted, minimal, front: None }
    }
}

/// The minimal satisfying nodes alone; `None` if the budget does not reach, or its properties do not hold.
pub(in crate::search) fn minimal(lattice: &Lattice, evaluator: &Evaluator<'_>, budget: &Budget) -> Option<Vec<Node>> {
    let mut incognito = Incognito::new(lattice, evaluator, budget)?;
    incognito.satisfying().ok()?;
    Some(incognito.minimal())
}

/// The walk over subset sizes, shared with `granulation`.
pub(super) struct Incognito<'a, 'e> {
    lattice: &'a Lattice,
    evaluator: &'a Evaluator<'e>,
    budget: &'a Budget,
    packing: Packing,
    /// The highest levels that there are; those of an attribute that is not in a subset.
    full: Node,
    /// Every node that satisfies, over all subsets so far.
    satisfying: FxHashSet<Packed>,
    /// Subsets whose finest set is made.
    made: FxHashSet<Subset>,
    /// Nodes whose status was derived.
    pub(super) predicted: u64,
    /// What was counted, and whether it satisfies.
    known: Vec<(Node, bool)>,
    /// The best of those that were weighed.
    best: Option<(f64, Node)>,
}

impl<'a, 'e> Incognito<'a, 'e> {
    /// `None` where its properties do not hold, or no budget would be enough anyway.
    pub(super) fn new(lattice: &'a Lattice, evaluator: &'a Evaluator<'e>, budget: &'a Budget) -> Option<Self> {
        let full = Node::new(evaluator.sets().domains().iter().map(|view| view.height() as Level));
        let packing = Packing::new(&full)?;
        if !evaluator.monotone() || lattice.width() > Subset::BITS as usize {
            return None;
        }
        Some(Self {
            lattice,
            evaluator,
            budget,
            packing,
            full,
            satisfying: FxHashSet::default(),
            made: FxHashSet::default(),
            predicted: 0,
            known: Vec::new(),
            best: None,
        })
    }

    /// Finds all satisfying nodes.
    pub(super) fn satisfying(&mut self) -> Result<(), StopReason> {
        // The subset of size zero: everything fully generalized.
        let everything = self.packing.pack(&self.full);
        if !self.check(&self.full.clone())? {
            return Ok(());
        }
        self.satisfying.insert(everything);
        let mut survivors: Vec<(Subset, Vec<Packed>)> = vec![(0, vec![everything])];
        while !survivors.is_empty() {
            let mut next = Vec::new();
            for (subset, nodes) in &survivors {
                // Join: each larger subset is built once, from the subset without its last attribute.
                let first = (Subset::BITS - subset.leading_zeros()) as usize;
                for attribute in first..self.lattice.width() {
                    let joined = subset | 1 << attribute;
                    let nodes = self.breadth_first(joined, self.joined(nodes, attribute))?;
                    if !nodes.is_empty() {
                        next.push((joined, nodes));
                    }
                }
            }
            survivors = next;
        }
        Ok(())
    }

    /// The nodes over one attribute more, finest first. Those in which it is fully generalized are known.
    fn joined(&self, nodes: &[Packed], attribute: usize) -> Vec<Packed> {
        let (low, high) = (self.lattice.bottom().levels()[attribute], self.lattice.top().levels()[attribute]);
        let levels = || (low..=high).filter(|level| *level < self.full.levels()[attribute]);
        let with = |&node: &Packed| levels().map(move |level| self.packing.with(node, attribute, level));
        let mut joined: Vec<Packed> = nodes.iter().flat_map(with).collect();
        joined.sort_by_cached_key(|&node| self.packing.height(node));
        joined
    }

    /// Which of `nodes` over `subset` satisfy: without one of their projections to one attribute less none, above a satisfying one
    /// marked without counting, the others counted from the finest up.
    fn breadth_first(&mut self, subset: Subset, mut nodes: Vec<Packed>) -> Result<Vec<Packed>, StopReason> {
        let attributes: Vec<usize> = (0..self.lattice.width()).filter(|a| subset >> a & 1 == 1).collect();
        nodes.retain(|&node| {
            let projects = |&a: &usize| self.satisfying.contains(&self.packing.with(node, a, self.full.levels()[a]));
            attributes.iter().all(projects)
        });
        for &node in &nodes {
            let finer = |&a: &usize| {
                let level = self.packing.level(node, a);
                level > self.lattice.bottom().levels()[a] && self.satisfying.contains(&self.packing.lower(node, a))
            };
            if attributes.iter().any(finer) {
                self.predicted += 1;
                self.satisfying.insert(node);
                continue;
            }
            self.make(subset);
            if self.check(&self.packing.node(node))? {
                self.satisfying.insert(node);
            }
        }
        nodes.retain(|node| self.satisfying.contains(node));
        Ok(nodes)
    }

    /// Has the set of a subset at its finest made, if it is small, from which those of all its nodes are rolled up (cube-style):
    /// itself from the one with the missing attribute of fewest values, which is the smallest.
    fn make(&mut self, subset: Subset) {
        let (width, sets) = (self.lattice.width(), self.evaluator.sets());
        let levels = |a: usize| if subset >> a & 1 == 1 { self.lattice.bottom() } else { &self.full };
        let finest = Node::new((0..width).map(|a| levels(a).levels()[a]));
        let values = sets.domains().iter().zip(finest.levels()).map(|(view, &level)| view.level(level).len().max(1));
        if values.fold(1, usize::saturating_mul) > FEW || !self.made.insert(subset) {
            return;
        }
        let missing = (0..width).filter(|a| subset >> a & 1 == 0);
        if let Some(attribute) = missing.min_by_key(|&a| sets.domains()[a].leaf_count()) {
            self.make(subset | 1 << attribute);
        }
        sets.set(&finest);
    }

    /// Finds the node of least loss among satisfying ones; if the budget is spent before, what the others cost at least.
    pub(super) fn weigh(&mut self, nodes: Vec<Node>) -> Result<(), (StopReason, f64)> {
        let (budget, evaluator) = (self.budget, self.evaluator);
        self.weigh_while(nodes, |lower| budget.spent(evaluator.checks()).map_or(Ok(()), |reason| Err((reason, lower))))
    }

    /// Those that may cost least come first, and of these most are passed over by what they cost at least.
    fn weigh_while<E>(&mut self, nodes: Vec<Node>, go_on: impl Fn(f64) -> Result<(), E>) -> Result<(), E> {
        let most = self.best.as_ref().map_or(f64::INFINITY, |(best, _)| best + TIE);
        let bounded = nodes.into_iter().map(|node| (self.evaluator.lower_bound(&node), node));
        let mut by_bound: Vec<(f64, Node)> = bounded.filter(|(lower, _)| *lower <= most).collect();
        by_bound.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (lower, node) in by_bound {
            if self.best.as_ref().is_some_and(|(best, _)| lower > best + TIE) {
                break;
            }
            go_on(lower)?;
            let loss = self.evaluator.check(&node).loss;
            if self.best.as_ref().is_none_or(|(best, than)| is_better(loss, &node, *best, than)) {
                self.best = Some((loss, node));
            }
        }
        Ok(())
    }

    /// The satisfying nodes of the lattice.
    fn in_lattice(&self) -> impl Iterator<Item = Node> + '_ {
        self.satisfying.iter().map(|&node| self.packing.node(node)).filter(|node| self.lattice.contains(node))
    }

    /// The satisfying nodes of the lattice with none below them, finest first.
    pub(super) fn minimal(&self) -> Vec<Node> {
        let satisfies = |node: Node| self.satisfying.contains(&self.packing.pack(&node));
        let mut minimal: Vec<Node> =
            self.in_lattice().filter(|node| !self.lattice.children(node).any(satisfies)).collect();
        minimal.sort_by(|a, b| (a.height(), a.levels()).cmp(&(b.height(), b.levels())));
        minimal
    }

    /// The best satisfying node that was weighed or counted. No node is counted for it that was not.
    pub(super) fn answer(&mut self) -> Option<Candidate> {
        let satisfying = self.known.iter().filter(|(node, satisfies)| *satisfies && self.lattice.contains(node));
        let Ok(()) = self.weigh_while(satisfying.map(|(node, _)| node.clone()).collect(), |_| Ok::<_, Infallible>(()));
        self.weighed()
    }

    /// The best node that was weighed.
    pub(super) fn weighed(&mut self) -> Option<Candidate> {
        let (_, node) = self.best.take()?;
        Some(Candidate { evaluation: self.evaluator.evaluate(&node), recoding: node.into() })
    }

    /// Counts a node, unless the budget is spent. Nodes that project some attributes away may lie outside the lattice.
    fn check(&mut self, node: &Node) -> Result<bool, StopReason> {
        if let Some(reason) = self.budget.spent(self.evaluator.checks()) {
            return Err(reason);
        }
        let satisfies = self.evaluator.satisfies(node);
        self.known.push((node.clone(), satisfies));
        Ok(satisfies)
    }
}
