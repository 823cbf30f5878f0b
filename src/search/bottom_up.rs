//! `bottom-up`: Incognito (LeFevre, DeWitt, Ramakrishnan 2005).
//!
//! Finds all satisfying nodes by the generalization, rollup and subset properties, subset size by subset size; then the
//! one of least loss among them. A node over a subset of the attributes is a node of the whole lattice in which the other
//! attributes are fully generalized, so its frequency set is a rollup like any other.
//! Pruning needs a monotone policy; without one every node of the whole lattice is counted.

use rand::Rng;
use rustc_hash::{FxHashMap, FxHashSet};

use super::evaluator::Evaluator;
use super::exhaustive::{Exhaustive, minimal_of};
use super::{Budget, Candidate, Outcome, Search, StopReason, TIE, is_better, keep_best};
use crate::model::lattice::{Lattice, Level, Node};

/// Incognito.
pub struct BottomUp;

/// A set of attributes, one bit each.
pub(super) type Subset = u64;

impl Search for BottomUp {
    fn run(&self, lattice: &Lattice, evaluator: &Evaluator<'_>, budget: &Budget, rng: &mut dyn Rng) -> Outcome {
        if !evaluator.monotone() || lattice.width() > Subset::BITS as usize {
            return Exhaustive.run(lattice, evaluator, budget, rng);
        }
        let mut incognito = Incognito::new(lattice, evaluator, budget);
        match incognito.satisfying() {
            Ok(satisfying) => incognito.least_loss(satisfying),
            Err(stop) => Outcome {
                best: incognito.best,
                stop,
                bound: evaluator.lower_bound(lattice.bottom()),
                predicted: incognito.predicted,
                minimal: Vec::new(),
                front: None,
            },
        }
    }
}

/// The walk over subset sizes, shared with `granulation`.
pub(super) struct Incognito<'a, 'e> {
    lattice: &'a Lattice,
    evaluator: &'a Evaluator<'e>,
    budget: &'a Budget,
    /// Nodes whose status was derived.
    pub(super) predicted: u64,
    /// The best satisfying node counted so far.
    pub(super) best: Option<Candidate>,
}

impl<'a, 'e> Incognito<'a, 'e> {
    pub(super) fn new(lattice: &'a Lattice, evaluator: &'a Evaluator<'e>, budget: &'a Budget) -> Self {
        Self { lattice, evaluator, budget, predicted: 0, best: None }
    }

    /// All satisfying nodes of the whole lattice, finest first.
    fn satisfying(&mut self) -> Result<Vec<Node>, StopReason> {
        let candidates = self.whole_candidates()?;
        self.breadth_first(candidates)
    }

    /// The nodes of the whole lattice whose projections to one attribute less all satisfy, finest first.
    pub(super) fn whole_candidates(&mut self) -> Result<Vec<Node>, StopReason> {
        let width = self.lattice.width();
        // The subset of size zero: everything fully generalized.
        let everything = self.fully_generalized();
        if !self.check(&everything)? {
            return Ok(Vec::new());
        }
        let mut survivors: FxHashMap<Subset, Vec<Node>> = FxHashMap::from_iter([(0, vec![everything])]);
        let mut whole = Vec::new();
        for size in 1..=width {
            let mut next = FxHashMap::default();
            let members: FxHashMap<Subset, FxHashSet<&Node>> =
                survivors.iter().map(|(subset, nodes)| (*subset, nodes.iter().collect())).collect();
            for (&subset, nodes) in &survivors {
                // Join: each larger subset is built once, from the subset without its last attribute.
                let first = (Subset::BITS - subset.leading_zeros()) as usize;
                for attribute in first..width {
                    let candidates = self.candidates(subset, nodes, attribute, &members);
                    if size == width {
                        whole = candidates;
                        continue;
                    }
                    next.insert(subset | 1 << attribute, self.breadth_first(candidates)?);
                }
            }
            survivors = next;
        }
        Ok(whole)
    }

    /// The nodes over `subset` and `attribute` whose every projection to one attribute less survived.
    fn candidates(
        &self,
        subset: Subset,
        nodes: &[Node],
        attribute: usize,
        members: &FxHashMap<Subset, FxHashSet<&Node>>,
    ) -> Vec<Node> {
        let full = self.fully_generalized();
        let joined = subset | 1 << attribute;
        let survives = |node: &Node| {
            (0..self.lattice.width()).filter(|a| subset >> a & 1 == 1).all(|a| {
                let projection = node.with(a, full.levels()[a]);
                members.get(&(joined & !(1 << a))).is_some_and(|m| m.contains(&projection))
            })
        };
        let levels = self.lattice.bottom().levels()[attribute]..=self.lattice.top().levels()[attribute];
        let mut candidates: Vec<Node> = nodes
            .iter()
            .flat_map(|node| levels.clone().map(|level| node.with(attribute, level)))
            .filter(survives)
            .collect();
        candidates.sort_by_cached_key(Node::height);
        candidates
    }

    /// Which candidates satisfy: counted from the finest up, marked without counting above a satisfying one.
    fn breadth_first(&mut self, candidates: Vec<Node>) -> Result<Vec<Node>, StopReason> {
        let mut marked: FxHashSet<Node> = FxHashSet::default();
        let mut satisfying = Vec::new();
        for node in candidates {
            let satisfies = if marked.contains(&node) {
                self.predicted += 1;
                true
            } else {
                self.check(&node)?
            };
            if satisfies {
                marked.extend(self.lattice.parents(&node));
                satisfying.push(node);
            }
        }
        Ok(satisfying)
    }

    fn least_loss(&mut self, satisfying: Vec<Node>) -> Outcome {
        let minimal = minimal_of(&satisfying);
        let mut by_bound: Vec<(f64, Node)> =
            satisfying.into_iter().map(|node| (self.evaluator.lower_bound(&node), node)).collect();
        by_bound.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut best = self.best.take();
        let mut stop = StopReason::Proven;
        let mut bound = f64::INFINITY;
        for (lower, node) in &by_bound {
            if best.as_ref().is_some_and(|b: &Candidate| *lower > b.evaluation.loss + TIE) {
                break;
            }
            if let Some(reason) = self.budget.spent(self.evaluator) {
                (stop, bound) = (reason, *lower);
                break;
            }
            keep_best(&mut best, node, &self.evaluator.evaluate(node));
        }
        let bound = best.as_ref().map_or(bound, |b| b.evaluation.loss.min(bound));
        Outcome { best, stop, bound, predicted: self.predicted, minimal, front: None }
    }

    /// Counts a node, unless the budget is spent. Nodes that project some attributes away may lie outside the lattice.
    pub(super) fn check(&mut self, node: &Node) -> Result<bool, StopReason> {
        if let Some(reason) = self.budget.spent(self.evaluator) {
            return Err(reason);
        }
        let checked = self.evaluator.check(node);
        let better = |b: &Candidate| is_better(checked.loss, node, b.evaluation.loss, &b.recoding.coarsest());
        if checked.satisfies && self.lattice.contains(node) && self.best.as_ref().is_none_or(better) {
            keep_best(&mut self.best, node, &self.evaluator.evaluate(node));
        }
        Ok(checked.satisfies)
    }

    fn fully_generalized(&self) -> Node {
        Node::new(self.evaluator.sets().domains().iter().map(|view| view.height() as Level))
    }
}
