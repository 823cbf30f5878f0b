//! `optimal`: the node of least loss, proven.
//!
//! Walks the lattice attribute by attribute below a threshold of the bound that needs no frequency set, and raises the
//! threshold round by round up to the best loss. Most nodes are never counted: one that is counted speaks for all below it,
//! because they fail where it fails, and otherwise leave out all that it leaves out, which has its price. A node that nothing
//! speaks for is settled by a search on a chain from it to the top, for the highest node that excludes it, beginning where
//! chains turned before; the nodes on the way that satisfy give early, good upper bounds. Where the policy is not monotone, its rules that are
//! exclude what they can, and the rest is counted.
//! A warm start counts the last window's answer and the nodes that proved it first: often they are all it takes.

use rand::Rng;
use rustc_hash::FxHashMap;

use super::chain::{Guess, Probe, chain};
use super::cover::{Cover, Mask, Side};
use super::evaluator::{Checked, Evaluator};
use super::{Budget, Candidate, Outcome, Search, StopReason, TIE, is_better};
use crate::model::lattice::{Lattice, Node};

/// Up to here a lattice is walked in two rounds. Walking all of a larger one takes long enough to say, round by round, how
/// far the proof has come; rounds on a smaller one only repeat work.
const SMALL: u128 = 1 << 16;

/// How often the clock is read, in steps of the walk. More often costs more than a step; less often overstays the deadline.
const CLOCK: u64 = 256;

/// From how many nodes on it is asked whether they are all excluded at once. Fewer cost less to visit than to ask about;
/// more leaves large excluded parts of the lattice to be walked.
const WORTH_A_LOOK: u128 = 64;

/// Branch and bound.
pub struct Optimal;

impl Search for Optimal {
    fn run(&self, lattice: &Lattice, evaluator: &Evaluator<'_>, budget: &Budget, _rng: &mut dyn Rng) -> Outcome {
        let mut walk = Walk::new(lattice, evaluator, budget);
        let (stop, bound) = match walk.prove() {
            Ok(()) => (StopReason::Proven, f64::INFINITY),
            Err(reason) => (reason, walk.proven),
        };
        let candidate =
            |(_, node): (f64, Node)| Candidate { evaluation: evaluator.evaluate(&node), recoding: node.into() };
        let predicted = walk.covered.saturating_sub(walk.seen.len() as u64);
        evaluator.memorise(walk.decisive());
        let best = walk.best.map(candidate);
        let bound = best.as_ref().map_or(bound, |b| b.evaluation.loss.min(bound));
        Outcome { best, stop, bound, predicted, minimal: Vec::new(), front: None }
    }
}

struct Walk<'a, 'e> {
    lattice: &'a Lattice,
    evaluator: &'a Evaluator<'e>,
    budget: &'a Budget,
    columns: Option<&'a [Vec<f64>]>,
    /// What counted nodes add to the bound of those below them, and the least loss of those above them.
    below: Cover,
    above: Cover,
    best: Option<(f64, Node)>,
    /// No node costs less than this, but for those that were counted.
    proven: f64,
    threshold: f64,
    /// Nodes of this round that needed no count of their own.
    covered: u64,
    steps: u64,
    /// What was counted, and in which order.
    seen: FxHashMap<Node, Checked>,
    order: Vec<Node>,
    /// How many nodes agree in the first attributes, by how many these are.
    below_depth: Vec<u128>,
    /// The prefixes of the node at hand: by depth what speaks of it.
    masks: Vec<[Mask; 2]>,
    /// Where chains are likely to turn; made when first asked, because it looks at the finest set.
    guess: Option<Guess>,
}

impl<'a, 'e> Walk<'a, 'e> {
    fn new(lattice: &'a Lattice, evaluator: &'a Evaluator<'e>, budget: &'a Budget) -> Self {
        Self {
            lattice,
            evaluator,
            budget,
            columns: evaluator.columns(),
            below: Cover::new(lattice, Side::Below),
            above: Cover::new(lattice, Side::Above),
            best: None,
            proven: evaluator.lower_bound(lattice.bottom()),
            threshold: f64::INFINITY,
            covered: 0,
            steps: 0,
            seen: FxHashMap::default(),
            order: Vec::new(),
            below_depth: (0..=lattice.width())
                .map(|depth| {
                    let spans = lattice.bottom().levels().iter().zip(lattice.top().levels()).skip(depth);
                    spans.map(|(low, high)| u128::from(high - low) + 1).fold(1, u128::saturating_mul)
                })
                .collect(),
            masks: vec![[Mask::new(), Mask::new()]; lattice.width() + 1],
            guess: None,
        }
    }

    fn prove(&mut self) -> Result<(), StopReason> {
        for node in self.evaluator.recall().iter().filter(|node| self.lattice.contains(node)) {
            self.count(node)?;
        }
        let bottom = self.lattice.bottom().clone();
        let least = self.evaluator.lower_bound(&bottom);
        if self.best.is_none() {
            self.settle(&bottom, least)?;
        }
        let most = self.best.as_ref().map_or_else(|| self.evaluator.lower_bound(self.lattice.top()), |best| best.0);
        let rounds = if self.lattice.size() <= SMALL { 8..9 } else { 1..10 };
        for round in rounds {
            self.threshold = least + (most - least) * f64::from(round) / 10.0;
            self.sweep(&bottom, least)?;
            self.proven = self.proven.max(self.threshold);
        }
        self.threshold = f64::INFINITY;
        self.sweep(&bottom, least)
    }

    /// The answer, and the nodes that proved it, finest first so that the others can be rolled up from them.
    fn decisive(&self) -> Vec<Node> {
        let mut nodes: Vec<Node> = self.below.needed().map(|at| self.order[at].clone()).collect();
        nodes.sort_by_cached_key(Node::height);
        self.best.iter().map(|(_, node)| node.clone()).chain(nodes).collect()
    }

    /// Settles every node whose bound is below the threshold and not above the best loss.
    fn sweep(&mut self, bottom: &Node, least: f64) -> Result<(), StopReason> {
        self.covered = 0;
        self.below.need_none();
        self.masks[0] = [self.below.everything(), self.above.everything()];
        self.descend(0, &mut bottom.clone(), least)
    }

    /// Walks the nodes that agree with `node` in the first `depth` attributes; the others are at the bottom.
    fn descend(&mut self, depth: usize, node: &mut Node, bound: f64) -> Result<(), StopReason> {
        self.steps += 1;
        if self.steps.is_multiple_of(CLOCK)
            && let Some(reason) = self.budget.interrupted()
        {
            // Long stretches of a large lattice are covered without a single count.
            return Err(reason);
        }
        if depth == self.lattice.width() {
            return self.visit(node, bound);
        }
        let (low, high) = (self.lattice.bottom().levels()[depth], self.lattice.top().levels()[depth]);
        for level in low..=high {
            node.set(depth, level);
            let bound = match self.columns {
                Some(columns) => bound + columns[depth][usize::from(level)] - columns[depth][usize::from(low)],
                None => self.evaluator.lower_bound(node),
            };
            if bound >= self.threshold || self.best.as_ref().is_some_and(|best| bound > best.0 + TIE) {
                break;
            }
            let (prefixes, deeper) = self.masks.split_at_mut(depth + 1);
            self.below.narrow(&prefixes[depth][0], depth, level, &mut deeper[0][0]);
            self.above.narrow(&prefixes[depth][1], depth, level, &mut deeper[0][1]);
            if !self.skip(depth + 1, bound) {
                self.descend(depth + 1, node, bound)?;
            }
        }
        node.set(depth, low);
        Ok(())
    }

    /// True if one failing node lies above every node of the subtree that is still in question.
    fn skip(&mut self, depth: usize, bound: f64) -> bool {
        let (Some(columns), true) = (self.columns, self.below_depth[depth] >= WORTH_A_LOOK) else { return false };
        let limit = self.best.as_ref().map_or(f64::INFINITY, |best| best.0 + TIE).min(self.threshold);
        let (bottom, top) = (self.lattice.bottom().levels(), self.lattice.top().levels());
        let mut nodes = 1u64;
        let highest = (depth..self.lattice.width()).map(|a| {
            let room =
                |level: &u8| bound + columns[a][usize::from(*level)] - columns[a][usize::from(bottom[a])] <= limit;
            let level = (bottom[a]..=top[a]).take_while(room).last().unwrap_or(bottom[a]);
            nodes = nodes.saturating_mul(u64::from(level - bottom[a]) + 1);
            (a, level)
        });
        let Some(speaker) = self.below.excludes_box(&self.masks[depth][0], highest) else { return false };
        self.below.need(speaker);
        self.covered = self.covered.saturating_add(nodes);
        true
    }

    fn visit(&mut self, node: &Node, bound: f64) -> Result<(), StopReason> {
        let [below, above] = &self.masks[self.lattice.width()];
        let is_out = |loss: f64| self.is_out(loss, node);
        let speaker = self.below.who(below, |forced| is_out(bound + forced));
        if speaker.is_some() || self.above.who(above, is_out).is_some() {
            self.covered += 1;
            speaker.into_iter().for_each(|speaker| self.below.need(speaker));
            return Ok(());
        }
        self.settle(node, bound)?;
        // What was counted on the way may speak of the prefixes at hand.
        self.masks[0] = [self.below.everything(), self.above.everything()];
        for depth in 0..self.lattice.width() {
            let (prefixes, deeper) = self.masks.split_at_mut(depth + 1);
            let level = node.levels()[depth];
            self.below.narrow(&prefixes[depth][0], depth, level, &mut deeper[0][0]);
            self.above.narrow(&prefixes[depth][1], depth, level, &mut deeper[0][1]);
        }
        let speaker = self.below.who(&self.masks[self.lattice.width()][0], |forced| self.is_out(bound + forced, node));
        speaker.into_iter().for_each(|speaker| self.below.need(speaker));
        Ok(())
    }

    /// True if a node that costs at least `loss` is not the answer.
    fn is_out(&self, loss: f64, node: &Node) -> bool {
        loss == f64::INFINITY || self.best.as_ref().is_some_and(|(best, than)| !is_better(loss, node, *best, than))
    }

    /// Counts `node`, or one above it that excludes it: the highest on a chain to the top.
    fn settle(&mut self, node: &Node, bound: f64) -> Result<(), StopReason> {
        if !self.evaluator.monotone() {
            let checked = self.count(node)?;
            if checked.forced < f64::INFINITY {
                return Ok(());
            }
        }
        let chain = chain(self.evaluator, self.lattice.top(), node);
        let guess = self.guess.get_or_insert_with(|| Guess::new(self.evaluator));
        let mut probe = Probe::new(chain.len(), guess.on(&chain));
        while let Some(at) = probe.next() {
            let mask = self.below.of(&chain[at]);
            let excluded = self.below.who(&mask, |forced| self.is_out(bound + forced, node)).is_some() || {
                let forced = self.count(&chain[at])?.forced;
                self.is_out(bound + forced, node)
            };
            probe.tell(at, excluded);
        }
        self.guess.iter_mut().for_each(|guess| guess.learn(&chain, probe.turn()));
        Ok(())
    }

    fn count(&mut self, node: &Node) -> Result<Checked, StopReason> {
        if let Some(reason) = self.budget.spent(self.evaluator) {
            return Err(reason);
        }
        if let Some(checked) = self.seen.get(node) {
            return Ok(*checked);
        }
        let checked = self.evaluator.check(node);
        self.seen.insert(node.clone(), checked);
        self.order.push(node.clone());
        self.below.add(node, checked.forced);
        if checked.bound_above > 0.0 {
            self.above.add(node, checked.bound_above);
        }
        if checked.satisfies && self.best.as_ref().is_none_or(|(best, than)| is_better(checked.loss, node, *best, than))
        {
            self.best = Some((checked.loss, node.clone()));
        }
        Ok(checked)
    }
}
