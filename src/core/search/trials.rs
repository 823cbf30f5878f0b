//! The bookkeeping of a search that tries nodes: numbers, statuses, losses, the best satisfying node so far, the budget.
//!
//! Every node has a number: its rank in a small lattice, else one from when it is first mentioned. Its status is recalled, predicted or
//! counted; its loss is worked out only when somebody asks, and of what was counted, at the end, least bound first. Each node is counted
//! after all that was learnt from those before, so that outcome and checks follow from the questions alone.
//! Nodes already counted cost nothing and are served even when the budget is spent. Nothing is counted past it.

use rustc_hash::FxHashMap;

use super::evaluator::Evaluator;
use super::tags::{Ranks, Tags};
use super::{Budget, Candidate, Outcome, StopReason, TIE, is_better};
use crate::model::lattice::{Lattice, Level, Node, Outline};

/// A loss below this is as good as none; fitness is one over the loss and must stay finite.
const NO_LOSS: f64 = 1e-12;

/// The number of a node.
pub(crate) type Number = u32;

/// How nodes are numbered.
enum Nodes {
    Ranked(Ranks),
    Mentioned(Vec<Node>, FxHashMap<Node, Number>),
}

/// One search's trials.
pub(crate) struct Trials<'a, 'e> {
    pub(crate) lattice: &'a Lattice,
    evaluator: &'a Evaluator<'e>,
    budget: &'a Budget,
    nodes: Nodes,
    monotone: bool,
    /// The boundary, where nodes have no ranks.
    tags: Tags,
    statuses: Vec<Option<bool>>,
    /// What nodes cost at least; zero where nobody has asked.
    bounds: Vec<f64>,
    /// Losses, with failing classes counted as left out.
    costs: FxHashMap<Number, f64>,
    /// The satisfying nodes that were counted.
    counted: Vec<Number>,
    best: Option<(f64, Number)>,
    predicted: u64,
}

impl<'a, 'e> Trials<'a, 'e> {
    pub(crate) fn new(lattice: &'a Lattice, evaluator: &'a Evaluator<'e>, budget: &'a Budget) -> Self {
        let ranks = Ranks::new(lattice);
        let all = ranks.as_ref().map_or(0, Ranks::size);
        Self {
            lattice,
            evaluator,
            budget,
            nodes: ranks.map_or_else(|| Nodes::Mentioned(Vec::new(), FxHashMap::default()), Nodes::Ranked),
            monotone: evaluator.monotone(),
            tags: Tags::default(),
            statuses: vec![None; all],
            bounds: vec![0.0; all],
            costs: FxHashMap::default(),
            counted: Vec::new(),
            best: None,
            predicted: 0,
        }
    }

    /// The number of a node.
    pub(crate) fn number(&mut self, node: Node) -> Number {
        match &mut self.nodes {
            Nodes::Ranked(ranks) => ranks.of(&node),
            Nodes::Mentioned(nodes, numbers) => *numbers.entry(node).or_insert_with_key(|node| {
                nodes.push(node.clone());
                self.statuses.push(None);
                self.bounds.push(0.0);
                nodes.len() as Number - 1
            }),
        }
    }

    /// The node of a number.
    pub(crate) fn node(&self, number: Number) -> Node {
        match &self.nodes {
            Nodes::Ranked(ranks) => ranks.node(number),
            Nodes::Mentioned(nodes, _) => nodes[number as usize].clone(),
        }
    }

    /// The ranks that are the numbers of nodes, in a small lattice.
    pub(crate) fn ranks(&self) -> Option<&Ranks> {
        match &self.nodes {
            Nodes::Ranked(ranks) => Some(ranks),
            Nodes::Mentioned(..) => None,
        }
    }

    /// One more than the greatest number so far.
    pub(crate) fn numbers(&self) -> usize {
        self.statuses.len()
    }

    /// The number of the node that differs in one attribute; `None` if that attribute is at this level already.
    pub(crate) fn beside(&mut self, number: Number, attribute: usize, level: Level) -> Option<Number> {
        let node = self.node(number);
        (node.levels()[attribute] != level).then(|| self.number(node.with(attribute, level)))
    }

    /// What a node costs at least.
    pub(crate) fn bound(&mut self, number: Number) -> f64 {
        if self.bounds[number as usize] == 0.0 {
            self.bounds[number as usize] = self.evaluator.lower_bound(&self.node(number));
        }
        self.bounds[number as usize]
    }

    /// Whether a node satisfies, if that is known.
    #[inline]
    pub(crate) fn status(&self, number: Number) -> Option<bool> {
        self.statuses[number as usize]
    }

    /// The loss of a satisfying node that was weighed.
    pub(crate) fn loss(&self, number: Number) -> Option<f64> {
        self.costs.get(&number).copied().filter(|_| self.status(number) == Some(true))
    }

    /// Finds out whether a node satisfies: recalled, predicted, or counted.
    #[inline]
    pub(crate) fn settle(&mut self, number: Number) -> Result<bool, StopReason> {
        self.status(number).map_or_else(|| self.work_out(number), Ok)
    }

    fn work_out(&mut self, number: Number) -> Result<bool, StopReason> {
        let node = self.node(number);
        let recalled = self.evaluator.status(&node);
        let predict = || self.tags.status(Outline::of(&node), &node).inspect(|_| self.predicted += 1);
        let satisfies = match recalled.or_else(predict) {
            Some(satisfies) => satisfies,
            None => {
                if let Some(reason) = self.budget.spent(self.evaluator.checks()) {
                    return Err(reason);
                }
                let satisfies = self.evaluator.satisfies(&node);
                self.counted.extend(satisfies.then_some(number));
                satisfies
            }
        };
        self.statuses[number as usize] = Some(satisfies);
        match &self.nodes {
            _ if !self.monotone => {}
            Nodes::Ranked(ranks) => self.predicted += ranks.tag(&mut self.statuses, number, satisfies),
            Nodes::Mentioned(..) => self.tags.record(&node, satisfies),
        }
        Ok(satisfies)
    }

    /// Works out what a node loses, if it satisfies.
    pub(crate) fn weigh(&mut self, number: Number) -> Result<(), StopReason> {
        if self.status(number) == Some(true) && !self.costs.contains_key(&number) {
            let evaluator = self.evaluator;
            self.cost(number, |node| evaluator.check(node).loss)?;
        }
        Ok(())
    }

    /// The better of `best` and the best of some satisfying nodes, which are forgotten. Only those are weighed that may be better.
    pub(crate) fn best_of(
        &mut self,
        met: &mut Vec<Number>,
        mut best: Option<(f64, Number)>,
    ) -> Result<Option<(f64, Number)>, StopReason> {
        met.iter().for_each(|&number| _ = self.bound(number));
        let bound = |number: &Number| self.bounds[*number as usize];
        met.sort_unstable_by(|a, b| bound(a).total_cmp(&bound(b)).then(a.cmp(b)));
        for number in met.drain(..) {
            if best.is_some_and(|best| self.bounds[number as usize] > best.0 + TIE) {
                break;
            }
            self.weigh(number)?;
            best = self.loss(number).map(|loss| (loss, number)).filter(|own| self.is_better(*own, best)).or(best);
        }
        Ok(best)
    }

    fn is_better(&self, (loss, number): (f64, Number), best: Option<(f64, Number)>) -> bool {
        best.is_none_or(|best| is_better(loss, &self.node(number), best.0, &self.node(best.1)))
    }

    /// One over the loss of each node, failing classes counted as left out; higher is better.
    pub(crate) fn fitness(&mut self, numbers: &[Number]) -> Result<Vec<f64>, StopReason> {
        let evaluator = self.evaluator;
        for &number in numbers {
            self.settle(number)?;
            self.weigh(number)?;
            if !self.costs.contains_key(&number) {
                self.cost(number, |node| evaluator.evaluate(node).penalised)?;
            }
        }
        let cost = |number: &Number| self.costs.get(number).copied().unwrap_or(f64::INFINITY);
        Ok(numbers.iter().map(|number| 1.0 / cost(number).max(NO_LOSS)).collect())
    }

    /// Asks what a node costs, unless it is not counted yet when the budget is spent.
    fn cost(&mut self, number: Number, of: impl Fn(&Node) -> f64) -> Result<(), StopReason> {
        let node = self.node(number);
        if self.evaluator.status(&node).is_none()
            && let Some(reason) = self.budget.spent(self.evaluator.checks())
        {
            return Err(reason);
        }
        let cost = of(&node);
        self.costs.insert(number, cost);
        if self.status(number) == Some(true) && self.is_better((cost, number), self.best) {
            self.best = Some((cost, number));
        }
        Ok(())
    }

    /// The outcome of a search that ended as `ended`. If it saw nothing that satisfies, the top gets its chance.
    pub(crate) fn outcome(mut self, ended: Result<(), StopReason>) -> Outcome {
        let mut counted = std::mem::take(&mut self.counted);
        let weighed = self.best_of(&mut counted, self.best).map(drop);
        let mut stop = ended.and(weighed).err().unwrap_or(StopReason::Exhausted);
        if self.best.is_none() {
            let top = self.number(self.lattice.top().clone());
            if let Err(reason) = self.settle(top).and_then(|_| self.weigh(top)) {
                stop = reason;
            }
        }
        let evaluator = self.evaluator;
        let candidate = |node: Node| Candidate { evaluation: evaluator.evaluate(&node), recoding: node.into() };
        let best = self.best.map(|(_, number)| candidate(self.node(number)));
        let bound = evaluator.lower_bound(self.lattice.bottom());
        Outcome { best, stop, bound, predicted: self.predicted, minimal: Vec::new(), front: None }
    }
}
