//! The bookkeeping of a search that tries nodes: numbers, statuses, losses, the best satisfying node so far, the budget.
//!
//! A node has a number from when it is first mentioned. Its status is recalled, predicted or counted; its loss is worked out
//! only when somebody asks. Nodes are counted in batches, each on all cores. Which nodes are in a batch follows from the
//! questions alone, so that outcome and checks are the same whatever the number of cores.
//! Nodes already counted cost nothing and are served even when the budget is spent. Nothing is counted past it.

use rustc_hash::FxHashMap;

use super::evaluator::{Evaluator, on_all_cores};
use super::tags::Tags;
use super::{Budget, Candidate, Outcome, StopReason, TIE, is_better};
use crate::model::lattice::{Lattice, Node, Outline};

/// A loss below this is as good as none; fitness is one over the loss and must stay finite.
const NO_LOSS: f64 = 1e-12;

/// The most nodes that are counted at once. More count some that others of the batch would have predicted; fewer leave cores
/// without work.
const BATCH: usize = 16;

/// A node that the search has mentioned.
pub(crate) type Number = u32;

struct Trial {
    node: Node,
    outline: Outline,
    satisfies: Option<bool>,
    /// Its loss, with failing classes counted as left out.
    cost: Option<f64>,
    /// What it costs at least.
    bound: f64,
}

/// One search's trials.
pub(crate) struct Trials<'a, 'e> {
    pub(crate) lattice: &'a Lattice,
    evaluator: &'a Evaluator<'e>,
    budget: &'a Budget,
    tags: Option<Tags>,
    numbers: FxHashMap<Node, Number>,
    trials: Vec<Trial>,
    best: Option<(f64, Node)>,
    predicted: u64,
}

impl<'a, 'e> Trials<'a, 'e> {
    pub(crate) fn new(lattice: &'a Lattice, evaluator: &'a Evaluator<'e>, budget: &'a Budget) -> Self {
        let tags = evaluator.monotone().then(Tags::default);
        let (numbers, trials) = (FxHashMap::default(), Vec::new());
        Self { lattice, evaluator, budget, tags, numbers, trials, best: None, predicted: 0 }
    }

    /// The number of a node.
    pub(crate) fn number(&mut self, node: Node) -> Number {
        if let Some(&number) = self.numbers.get(&node) {
            return number;
        }
        let number = self.trials.len() as Number;
        let bound = self.evaluator.lower_bound(&node);
        let outline = Outline::of(&node);
        self.trials.push(Trial { node: node.clone(), outline, satisfies: None, cost: None, bound });
        self.numbers.insert(node, number);
        number
    }

    /// The node of a number.
    pub(crate) fn node(&self, number: Number) -> &Node {
        &self.trials[number as usize].node
    }

    /// The outline of a node.
    pub(crate) fn outline(&self, number: Number) -> Outline {
        self.trials[number as usize].outline
    }

    /// What a node costs at least.
    pub(crate) fn bound(&self, number: Number) -> f64 {
        self.trials[number as usize].bound
    }

    /// True if a node is known to satisfy.
    pub(crate) fn satisfies(&self, number: Number) -> bool {
        self.trials[number as usize].satisfies == Some(true)
    }

    /// The loss of a satisfying node that was weighed.
    pub(crate) fn loss(&self, number: Number) -> Option<f64> {
        let trial = &self.trials[number as usize];
        trial.cost.filter(|_| trial.satisfies == Some(true))
    }

    /// Finds out which nodes satisfy: recalled, predicted, or counted.
    pub(crate) fn settle(&mut self, numbers: &[Number]) -> Result<(), StopReason> {
        let mut unknown = Vec::with_capacity(BATCH);
        for &number in numbers {
            let Trial { node, satisfies, .. } = &mut self.trials[number as usize];
            if satisfies.is_some() || unknown.contains(&number) {
                continue;
            }
            *satisfies = self.evaluator.status(node);
            if satisfies.is_none() {
                *satisfies = self.tags.as_ref().and_then(|tags| tags.status(node));
                self.predicted += u64::from(satisfies.is_some());
            }
            if satisfies.is_none() {
                unknown.push(number);
            }
            if unknown.len() == BATCH {
                self.count(&mut unknown)?;
            }
        }
        self.count(&mut unknown)
    }

    /// Works out what satisfying nodes lose.
    pub(crate) fn weigh(&mut self, numbers: &[Number]) -> Result<(), StopReason> {
        let evaluator = self.evaluator;
        self.cost(numbers, true, |node| evaluator.check(node).loss)
    }

    /// One over the loss of each node, failing classes counted as left out; higher is better.
    pub(crate) fn fitness(&mut self, numbers: &[Number]) -> Result<Vec<f64>, StopReason> {
        let evaluator = self.evaluator;
        self.settle(numbers)?;
        self.weigh(numbers)?;
        self.cost(numbers, false, |node| evaluator.evaluate(node).penalised)?;
        let cost = |number: &Number| self.trials[*number as usize].cost.unwrap_or(f64::INFINITY);
        Ok(numbers.iter().map(|number| 1.0 / cost(number).max(NO_LOSS)).collect())
    }

    /// Works out what those nodes cost that satisfy, or do not.
    fn cost(
        &mut self,
        numbers: &[Number],
        satisfying: bool,
        of: impl Fn(&Node) -> f64 + Sync,
    ) -> Result<(), StopReason> {
        let is_new = |number: &&Number| {
            let trial = &self.trials[**number as usize];
            trial.satisfies == Some(satisfying) && trial.cost.is_none()
        };
        let mut new: Vec<Number> = numbers.iter().filter(is_new).copied().collect();
        new.sort_unstable();
        new.dedup();
        for batch in new.chunks(BATCH) {
            let (costs, ended) = self.counted(batch, &of);
            batch.iter().zip(costs).for_each(|(&number, cost)| self.take(number, cost));
            ended?;
        }
        Ok(())
    }

    /// Counts what nobody could predict.
    fn count(&mut self, unknown: &mut Vec<Number>) -> Result<(), StopReason> {
        let evaluator = self.evaluator;
        let (statuses, ended) = self.counted(unknown, |node| evaluator.satisfies(node));
        for (&number, &satisfies) in unknown.iter().zip(&statuses) {
            let trial = &mut self.trials[number as usize];
            trial.satisfies = Some(satisfies);
            self.tags.iter_mut().for_each(|tags| tags.record(&trial.node, satisfies));
        }
        // What is counted is not forgotten, should nobody ask for its loss.
        let least = self.best.as_ref().map_or(f64::INFINITY, |best| best.0 + TIE);
        unknown.retain(|&number| self.satisfies(number) && self.bound(number) <= least);
        self.weigh(unknown)?;
        unknown.clear();
        ended
    }

    /// Asks `one` about nodes, all at once, up to the first that is not counted yet when the budget is spent.
    fn counted<T: Send>(
        &self,
        numbers: &[Number],
        one: impl Fn(&Node) -> T + Sync,
    ) -> (Vec<T>, Result<(), StopReason>) {
        let (mut nodes, mut checks) = (Vec::with_capacity(numbers.len()), self.evaluator.checks());
        let mut ended = Ok(());
        for node in numbers.iter().map(|&number| self.node(number)) {
            if self.evaluator.status(node).is_none() {
                if let Some(reason) = self.budget.spent(checks) {
                    ended = Err(reason);
                    break;
                }
                checks += 1;
            }
            nodes.push(node.clone());
        }
        (on_all_cores(&nodes, one), ended)
    }

    /// Takes in what a node costs.
    fn take(&mut self, number: Number, cost: f64) {
        let trial = &mut self.trials[number as usize];
        trial.cost = Some(cost);
        let is_best = |(best, than): &(f64, Node)| is_better(cost, &trial.node, *best, than);
        if trial.satisfies == Some(true) && self.best.as_ref().is_none_or(is_best) {
            self.best = Some((cost, trial.node.clone()));
        }
    }

    /// The outcome of a search that ended as `ended`. If it saw nothing that satisfies, the top gets its chance.
    pub(crate) fn outcome(mut self, ended: Result<(), StopReason>) -> Outcome {
        let mut stop = ended.err().unwrap_or(StopReason::Exhausted);
        if self.best.is_none() {
            let top = [self.number(self.lattice.top().clone())];
            if let Err(reason) = self.settle(&top).and_then(|()| self.weigh(&top)) {
                stop = reason;
            }
        }
        let evaluator = self.evaluator;
        let best =
            self.best.map(|(_, node)| Candidate { evaluation: evaluator.evaluate(&node), recoding: node.into() });
        let bound = evaluator.lower_bound(self.lattice.bottom());
        Outcome { best, stop, bound, predicted: self.predicted, minimal: Vec::new(), front: None }
    }
}
