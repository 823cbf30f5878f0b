//! `optimal`: the node of least loss, proven.
//!
//! Walks the lattice attribute by attribute below a threshold of the bound that needs no frequency set, and raises the
//! threshold round by round up to the best loss. Most nodes are never counted: one that is counted speaks for all below it,
//! because they fail where it fails, and otherwise leave out all that it leaves out, which has its price. A node that nothing
//! speaks for is settled by a search on a chain from it to the top, for the highest node that excludes it, beginning where
//! chains turned before; the nodes on the way that satisfy give early, good upper bounds. Where the policy is not monotone, its rules that are
//! exclude what they can, and the rest is counted.
//! A large lattice is cut into blocks of attributes (Russian dolls): what is left of a node when all other attributes are fully
//! generalized satisfies if the node does, so it is known what each block costs at least by itself, and the sum of that
//! is the bound of the attributes that the walk has not come to yet.
//! A warm start counts the last window's answer and the nodes that proved it first: often they are all it takes.

use std::time::Instant;

use rand::Rng;
use rustc_hash::FxHashMap;

use super::chain::{Guess, Prices, Probe, chain};
use super::cover::{Cover, Mask, Side};
use crate::model::lattice::{Lattice, Node};
use crate::search::evaluator::{Checked, Evaluator};
use crate::search::{Budget, Candidate, Outcome, Search, StopReason, TIE, is_better};

/// Up to here a lattice is walked in few rounds. Walking all of a larger one takes long enough to say, round by round, how
/// far the proof has come; more rounds on a smaller one only repeat work.
const SMALL: u128 = 1 << 16;

/// How far on the way from the least bound to the best loss a small lattice is walked before all of it. What is counted there
/// excludes much of the rest: less does with earlier rounds, and with later ones more is counted in vain. None where an answer is at hand.
const FEW_ROUNDS: &[f64] = &[0.65, 0.9];

/// The same of one that can still be walked to the end. A late round counts nodes that speak for more than those of an early one, so
/// early ones only cost steps; the first says something soon.
const SOME_ROUNDS: &[f64] = &[0.3, 0.6, 0.8, 0.9];

/// The same of one that cannot.
const MANY_ROUNDS: &[f64] = &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];

/// How often the clock is read, in steps of the walk. More often costs more than a step; less often overstays the deadline.
const CLOCK: u64 = 256;

/// From how many nodes on it is asked whether they are all excluded at once. Fewer cost less to visit than to ask about;
/// more leaves large excluded parts of the lattice to be walked.
const WORTH_A_LOOK: u128 = 4;

/// The most nodes of a block of attributes. More leave no time for the other blocks, fewer say less.
const BLOCK: u128 = 1 << 20;

/// The share of the budget for the blocks. More leaves less for the walk that they are to guide, less makes them say less.
const SHARE_FOR_BLOCKS: f64 = 0.5;

/// The same for lattices of more than [`ENDLESS`] nodes.
const SHARE_WITHOUT_END: f64 = 0.9;

/// More nodes are not walked to the end in any time that somebody waits. Larger walks in vain; smaller does not prove what it
/// could.
const ENDLESS: u128 = 1 << 32;

/// Branch and bound.
pub struct Optimal;

impl Search for Optimal {
    fn run(&self, lattice: &Lattice, evaluator: &Evaluator<'_>, budget: &Budget, _rng: &mut dyn Rng) -> Outcome {
        let mut walk = Walk::new(lattice, evaluator, budget);
        walk.block = (lattice.size() > BLOCK).then_some(BLOCK);
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

/// The proof under way; `top-down-extended` makes one by its score.
pub(in crate::search) struct Walk<'a, 'e> {
    lattice: &'a Lattice,
    evaluator: &'a Evaluator<'e>,
    budget: &'a Budget,
    columns: Option<&'a [Vec<f64>]>,
    /// True if a satisfying node costs what its columns say and no more, whatever its classes lose.
    by_columns: bool,
    /// What counted nodes add to the bound of those below them, and the least loss of those above them.
    below: Cover,
    above: Cover,
    pub(in crate::search) best: Option<(f64, Node)>,
    /// No node costs less than this, but for those that were counted.
    proven: f64,
    threshold: f64,
    /// The most nodes of a block, if it begins with blocks.
    block: Option<u128>,
    /// By depth what the attributes from there on cost at least, over their lowest levels.
    rest: Vec<f64>,
    /// Nodes of this round that needed no count of their own.
    pub(in crate::search) covered: u64,
    steps: u64,
    /// What was counted, and in which order.
    seen: FxHashMap<Node, Checked>,
    order: Vec<Node>,
    /// How many nodes agree in the first attributes, by how many these are.
    below_depth: Vec<u128>,
    /// The prefixes of the node at hand: by depth what speaks of it.
    masks: Vec<[Mask; 2]>,
    /// How chains are made, and where they are likely to turn.
    prices: Option<Prices>,
    guess: Guess,
}

impl<'a, 'e> Walk<'a, 'e> {
    fn new(lattice: &'a Lattice, evaluator: &'a Evaluator<'e>, budget: &'a Budget) -> Self {
        let proven = evaluator.lower_bound(lattice.bottom());
        Self { proven, ..Self::over(lattice, evaluator, budget, evaluator.columns()) }
    }

    /// To the satisfying node of least cost, which is a sum by attribute and level and nothing else.
    pub(in crate::search) fn by_columns(
        lattice: &'a Lattice,
        evaluator: &'a Evaluator<'e>,
        budget: &'a Budget,
        columns: &'a [Vec<f64>],
    ) -> Self {
        Self { by_columns: true, ..Self::over(lattice, evaluator, budget, Some(columns)) }
    }

    fn over(
        lattice: &'a Lattice,
        evaluator: &'a Evaluator<'e>,
        budget: &'a Budget,
        columns: Option<&'a [Vec<f64>]>,
    ) -> Self {
        Self {
            lattice,
            evaluator,
            budget,
            columns,
            by_columns: false,
            below: Cover::new(lattice, Side::Below),
            above: Cover::new(lattice, Side::Above),
            best: None,
            proven: 0.0,
            threshold: f64::INFINITY,
            block: None,
            rest: vec![0.0; lattice.width() + 1],
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
            prices: columns.map(|columns| Prices::new(evaluator, columns)),
            guess: Guess::default(),
        }
    }

    pub(in crate::search) fn prove(&mut self) -> Result<(), StopReason> {
        for node in self.evaluator.recall().iter().filter(|node| self.lattice.contains(node)) {
            self.count(node)?;
        }
        let at_hand = self.best.is_some();
        let bottom = self.lattice.bottom().clone();
        let least = self.lower_bound(&bottom);
        if let Some(most) = self.block {
            self.weigh_blocks(most)?;
        }
        self.proven = self.proven.max(least + self.rest[0]);
        if self.best.is_none() {
            self.settle(&bottom, least)?;
        }
        let most = self.best.as_ref().map_or_else(|| self.lower_bound(self.lattice.top()), |best| best.0);
        let rounds = match self.lattice.size() {
            size if size <= SMALL && at_hand => &[],
            size if size <= SMALL => FEW_ROUNDS,
            size if size <= ENDLESS => SOME_ROUNDS,
            _ => MANY_ROUNDS,
        };
        for &round in rounds {
            let low = (least + self.rest[0]).min(most);
            self.threshold = low + (most - low) * round;
            self.sweep(&bottom, least)?;
            self.proven = self.proven.max(self.threshold);
        }
        self.threshold = f64::INFINITY;
        self.sweep(&bottom, least)
    }

    /// Finds what the attributes from each depth on cost at least, block by block from the last attribute, each with one
    /// attribute more at a time, so that what is known of the others guides the next.
    fn weigh_blocks(&mut self, most: u128) -> Result<(), StopReason> {
        let (Some(columns), Some(added), true) = (self.columns, self.evaluator.added(), self.evaluator.monotone())
        else {
            return Ok(());
        };
        let (started, checks, width) = (Instant::now(), self.evaluator.checks(), self.lattice.width());
        let full = Node::new(self.evaluator.sets().domains().iter().map(|view| view.height()));
        let at_full = |a: usize| usize::from(full.levels()[a]);
        // What leaving out records may cost outside of a block, where that is anything.
        let outside =
            |a: usize| added[a][at_full(a)].iter().copied().fold(0.0, f64::max) * self.evaluator.allowed() as f64;
        let outside: Vec<f64> = (0..width).map(|a| columns[a][at_full(a)] + outside(a)).collect();
        let (bottom, top) = (self.lattice.bottom().levels(), self.lattice.top().levels());
        let whole_share = if self.lattice.size() > ENDLESS { SHARE_WITHOUT_END } else { SHARE_FOR_BLOCKS };
        let mut end = width;
        for first in (0..width).rev() {
            let nodes = (first..end).map(|a| u128::from(top[a] - bottom[a]) + 1).fold(1, u128::saturating_mul);
            if nodes > most && first + 1 < end {
                end = first + 1;
            }
            let inside = first..end;
            let pinned = |levels: &[u8]| {
                Node::new((0..width).map(|a| if inside.contains(&a) { levels[a] } else { full.levels()[a] }))
            };
            let block = Lattice::new(pinned(bottom), pinned(top));
            let share = whole_share * (width - first) as f64 / width as f64;
            let budget = self.budget.part(share, checks, started);
            let mut walk = Walk::new(&block, self.evaluator, &budget);
            let known = self.rest[first + 1] - self.rest[end];
            walk.rest[..=first + 1].fill(known);
            (first + 2..=end).for_each(|depth| walk.rest[depth] = self.rest[depth] - self.rest[end]);
            let done = walk.prove();
            let best = walk.best.as_ref().map_or(f64::INFINITY, |best| best.0);
            let bound = if done.is_ok() { best } else { best.min(walk.proven) };
            let others: f64 = (0..width).filter(|a| !inside.contains(a)).map(|a| outside[a]).sum();
            let lowest: f64 = inside.clone().map(|a| columns[a][usize::from(bottom[a])]).sum();
            self.rest[first] = self.rest[end] + known.max(bound - others - lowest);
            let (found, decisive) = (walk.best.take(), walk.certain());
            for node in decisive.into_iter().chain(found.map(|(_, node)| node)) {
                if !self.seen.contains_key(&node) {
                    self.take(&node, self.evaluator.check(&node));
                }
            }
            if let (Err(_), Some(reason)) = (done, self.budget.spent(self.evaluator.checks())) {
                let known = self.rest[first];
                self.rest[..first].fill(known);
                self.proven = self.proven.max(self.evaluator.lower_bound(self.lattice.bottom()) + self.rest[0]);
                return Err(reason);
            }
            if done.is_err() {
                end = first;
            }
            if self.rest[first] == f64::INFINITY {
                self.rest[..first].fill(f64::INFINITY);
                return Ok(());
            }
        }
        Ok(())
    }

    /// The nodes that excluded others for certain, and were needed for it.
    fn certain(&self) -> Vec<Node> {
        self.below
            .needed()
            .map(|at| &self.order[at])
            .filter(|node| self.seen[*node].forced == f64::INFINITY)
            .cloned()
            .collect()
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
            let with_rest = bound + self.rest[depth + 1];
            if with_rest >= self.threshold || self.best.as_ref().is_some_and(|best| with_rest > best.0 + TIE) {
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
        let (Some(columns), true) = (self.columns, self.below_depth[depth] >= WORTH_A_LOOK) else {
            return false;
        };
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
        let Some(speaker) = self.below.excludes_box(&self.masks[depth][0], highest) else {
            return false;
        };
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
        let chain = chain(self.evaluator, self.prices.as_ref(), self.lattice.top(), node);
        let entropies = self.evaluator.sets().entropies();
        let mut probe = Probe::new(chain.len(), self.guess.on(&chain, entropies));
        while let Some(at) = probe.next() {
            let mask = self.below.of(&chain[at]);
            let excluded = self.below.who(&mask, |forced| self.is_out(bound + forced, node)).is_some() || {
                let forced = self.count(&chain[at])?.forced;
                self.is_out(bound + forced, node)
            };
            probe.tell(at, excluded);
        }
        self.guess.learn(&chain, probe.turn(), entropies);
        Ok(())
    }

    /// What the node costs at least.
    fn lower_bound(&self, node: &Node) -> f64 {
        match self.columns {
            Some(columns) => node.levels().iter().zip(columns).map(|(&level, column)| column[usize::from(level)]).sum(),
            None => self.evaluator.lower_bound(node),
        }
    }

    /// Counts a node, if there is budget left for it.
    pub(in crate::search) fn count(&mut self, node: &Node) -> Result<Checked, StopReason> {
        if let Some(reason) = self.budget.spent(self.evaluator.checks()) {
            return Err(reason);
        }
        if let Some(checked) = self.seen.get(node) {
            return Ok(*checked);
        }
        let checked = if self.by_columns { self.check_by_columns(node) } else { self.evaluator.check(node) };
        Ok(self.take(node, checked))
    }

    fn check_by_columns(&self, node: &Node) -> Checked {
        let (satisfies, fails_below) = if self.evaluator.monotone() {
            let satisfies = self.evaluator.satisfies(node);
            (satisfies, !satisfies)
        } else {
            let checked = self.evaluator.check(node);
            (checked.satisfies, checked.forced == f64::INFINITY)
        };
        let loss = if satisfies { self.lower_bound(node) } else { f64::INFINITY };
        Checked { satisfies, loss, forced: if fails_below { f64::INFINITY } else { 0.0 }, bound_above: 0.0 }
    }

    /// Takes in what was counted.
    fn take(&mut self, node: &Node, checked: Checked) -> Checked {
        self.seen.insert(node.clone(), checked);
        self.order.push(node.clone());
        self.below.add(node, checked.forced);
        if checked.bound_above > 0.0 {
            self.above.add(node, checked.bound_above);
        }
        let better = |(best, than): &(f64, Node)| is_better(checked.loss, node, *best, than);
        if checked.satisfies && self.lattice.contains(node) && self.best.as_ref().is_none_or(better) {
            self.best = Some((checked.loss, node.clone()));
        }
        checked
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;
    use crate::model::policy::{Criterion, Diversity, Loss, SuppressionLimit};
    use crate::model::schema::Role;
    use crate::search::exact::exhaustive::Exhaustive;
    use crate::search::fixture::{Table, attributes, policy, taxonomy};

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
        /// Whatever the blocks are, the answer is that of counting every node, and the bound is never above it.
        #[test]
        fn blocks_bound_what_they_are_part_of(
            texts in prop::collection::vec(taxonomy(6), 2..5), values in prop::collection::vec([0_usize..6, 0..6, 0..6, 0..6, 0..3], 1..60),
            k in 1_u32..6, limit in prop::sample::select(vec![0.0, 0.1, 0.3]), bounds in prop::array::uniform4((0_u8..2, 2_u8..4)),
            loss in prop::sample::select(vec![Loss::Glm, Loss::Precision, Loss::Entropy, Loss::Dm]), diverse in any::<bool>(),
            block in prop::sample::select(vec![1_u128, 4, 16, 1 << 20]), checks in prop::option::of(1_u64..60),
        ) {
            let record = |row: &[usize; 5]| -> Vec<String> {
                let cells = texts.iter().zip(row).map(|(text, v)| format!("v{}", v % text.lines().count()));
                cells.chain([format!("s{}", row[4])]).collect()
            };
            let rows: Vec<Vec<String>> = values.iter().map(record).collect();
            let mut policy = policy(attributes(&texts), &[("s", Role::Sensitive)], k);
            (policy.suppression, policy.loss) = (SuppressionLimit(limit), loss);
            for (quasi, (min, max)) in policy.quasi.iter_mut().zip(bounds) {
                (quasi.min_level, quasi.max_level) = (min, max);
            }
            if diverse {
                policy.criteria.push(Criterion::LDiversity { field: 0, l: 2.0, variant: Diversity::Distinct });
            }
            let table = Table::new(policy, &rows);
            let (lattice, truth) = (table.policy.lattice(), table.evaluator());
            let truth = Exhaustive.run(&lattice, &truth, &Budget::unlimited(), &mut ChaCha8Rng::seed_from_u64(0)).best;
            let least = truth.as_ref().map_or(f64::INFINITY, |best| best.evaluation.loss);
            let budget = Budget { max_checks: checks.unwrap_or(u64::MAX), ..Budget::unlimited() };
            let evaluator = table.evaluator();
            let mut walk = Walk::new(&lattice, &evaluator, &budget);
            walk.block = Some(block);
            let done = walk.prove();
            prop_assert!(evaluator.checks() <= budget.max_checks);
            prop_assert!(evaluator.lower_bound(lattice.bottom()) + walk.rest[0] <= least + 1e-9);
            prop_assert!(walk.best.as_ref().map_or(f64::INFINITY, |best| best.0).min(walk.proven) <= least + 1e-9);
            if done.is_ok() {
                prop_assert_eq!(walk.best.map(|best| best.1.into()), truth.map(|best| best.recoding));
            } else {
                prop_assert!(checks.is_some());
            }
        }
    }
}
