//! The bookkeeping of a search that tries nodes: numbers, statuses, losses, the best satisfying node so far, the budget.
//!
//! A node has a number from when it is first mentioned. Its status is recalled, predicted or counted; its loss is worked out
//! only when somebody asks. Each node is counted after all that was learnt from those before, so that outcome and checks follow
//! from the questions alone.
//! Nodes already counted cost nothing and are served even when the budget is spent. Nothing is counted past it.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use super::evaluator::Evaluator;
use super::tags::Tags;
use super::{Budget, Candidate, Outcome, StopReason, TIE, is_better};
use crate::model::lattice::{Lattice, Level, Node, Outline};

/// The most nodes of a lattice whose numbers lie in a plain table. Larger takes memory that small searches never touch; smaller looks
/// numbers up by their outlines, which waits for memory more often.
const FEW: u128 = 1 << 20;

/// A loss below this is as good as none; fitness is one over the loss and must stay finite.
const NO_LOSS: f64 = 1e-12;

/// A node that the search has mentioned.
pub(crate) type Number = u32;

/// What is known of a node, by its number. Searches ask for statuses and outlines again and again, so these lie close together.
#[derive(Default)]
struct Known {
    outlines: Vec<Outline>,
    statuses: Vec<Option<bool>>,
    nodes: Vec<Node>,
    /// Losses, with failing classes counted as left out.
    costs: Vec<Option<f64>>,
    /// What nodes cost at least.
    bounds: Vec<f64>,
}

/// The numbers of a small lattice's nodes, by the place of a node when all are counted through.
struct Ranks {
    /// By attribute, how far apart nodes are that are one level apart.
    strides: Vec<u32>,
    /// One more than the number; zero where a node has none yet.
    numbers: Vec<Number>,
    /// By number, the place of its node.
    places: Vec<u32>,
}

impl Ranks {
    fn new(lattice: &Lattice) -> Option<Self> {
        // Places below the bottom stay empty.
        let codes = |&level: &Level| u128::from(level) + 1;
        let strides = lattice.top().levels().iter().scan(1, |next: &mut u128, level| {
            let own = *next;
            *next = own.saturating_mul(codes(level));
            Some(own as u32)
        });
        let all = lattice.top().levels().iter().map(codes).fold(1, u128::saturating_mul);
        let numbers = || vec![0; all as usize];
        (all <= FEW).then(|| Self { strides: strides.collect(), numbers: numbers(), places: Vec::new() })
    }

    fn insert(&mut self, node: &Node, number: Number) {
        let place = node.levels().iter().zip(&self.strides).map(|(&level, stride)| u32::from(level) * stride).sum();
        self.places.push(place);
        self.numbers[place as usize] = number + 1;
    }

    #[inline]
    fn beside(&self, number: Number, attribute: usize, from: Level, to: Level) -> Option<Number> {
        let stride = self.strides[attribute];
        let place = self.places[number as usize] + u32::from(to) * stride - u32::from(from) * stride;
        self.numbers[place as usize].checked_sub(1)
    }
}

/// One search's trials.
pub(crate) struct Trials<'a, 'e> {
    pub(crate) lattice: &'a Lattice,
    evaluator: &'a Evaluator<'e>,
    budget: &'a Budget,
    tags: Option<Tags>,
    /// The numbers, by the outlines of their nodes.
    numbers: HashTable<Number>,
    /// True if nodes of one outline are the same.
    whole: bool,
    ranks: Option<Ranks>,
    known: Known,
    best: Option<(f64, Node)>,
    predicted: u64,
}

impl<'a, 'e> Trials<'a, 'e> {
    pub(crate) fn new(lattice: &'a Lattice, evaluator: &'a Evaluator<'e>, budget: &'a Budget) -> Self {
        let tags = evaluator.monotone().then(Tags::default);
        let (numbers, whole) = (HashTable::new(), Outline::is_whole(lattice.top()));
        let ranks = Ranks::new(lattice).filter(|_| whole);
        let known = Known::default();
        Self { lattice, evaluator, budget, tags, numbers, whole, ranks, known, best: None, predicted: 0 }
    }

    /// The number of a node.
    pub(crate) fn number(&mut self, node: Node) -> Number {
        let Self { numbers, known, whole, .. } = self;
        let outline = Outline::of(&node);
        let same =
            |&at: &Number| known.outlines[at as usize] == outline && (*whole || known.nodes[at as usize] == node);
        if let Some(&number) = numbers.find(hash(outline), same) {
            return number;
        }
        let number = known.nodes.len() as Number;
        if let Some(ranks) = &mut self.ranks {
            ranks.insert(&node, number);
        }
        known.outlines.push(outline);
        known.statuses.push(None);
        known.costs.push(None);
        known.bounds.push(self.evaluator.lower_bound(&node));
        known.nodes.push(node);
        numbers.insert_unique(hash(outline), number, |&at| hash(known.outlines[at as usize]));
        number
    }

    /// The number of the node that differs in one attribute; `None` if that attribute is at this level already.
    #[inline]
    pub(crate) fn beside(&mut self, number: Number, attribute: usize, level: Level) -> Option<Number> {
        if self.whole {
            let own = self.outline(number);
            let outline = own.with(attribute, level);
            if own == outline {
                return None;
            }
            if let Some(ranks) = &self.ranks {
                let known = ranks.beside(number, attribute, own.level(attribute), level);
                if known.is_some() {
                    return known;
                }
            }
            let same = |&at: &Number| self.known.outlines[at as usize] == outline;
            if let Some(&known) = self.numbers.find(hash(outline), same) {
                return Some(known);
            }
        }
        let node = self.node(number);
        (node.levels()[attribute] != level).then(|| node.with(attribute, level)).map(|node| self.number(node))
    }

    /// The node of a number.
    pub(crate) fn node(&self, number: Number) -> &Node {
        &self.known.nodes[number as usize]
    }

    /// The outline of a node.
    pub(crate) fn outline(&self, number: Number) -> Outline {
        self.known.outlines[number as usize]
    }

    /// True if two nodes differ in exactly one attribute.
    #[inline]
    pub(crate) fn are_neighbours(&self, (a, outline): (Number, Outline), (b, other): (Number, Outline)) -> bool {
        let differ = || self.node(a).levels().iter().zip(self.node(b).levels()).filter(|(a, b)| a != b).count();
        a != b && outline.may_be_neighbour(other) && (self.whole || differ() == 1)
    }

    /// What a node costs at least.
    pub(crate) fn bound(&self, number: Number) -> f64 {
        self.known.bounds[number as usize]
    }

    /// True if a node is known to satisfy.
    pub(crate) fn satisfies(&self, number: Number) -> bool {
        self.known.statuses[number as usize] == Some(true)
    }

    /// The loss of a satisfying node that was weighed.
    pub(crate) fn loss(&self, number: Number) -> Option<f64> {
        self.known.costs[number as usize].filter(|_| self.satisfies(number))
    }

    /// Finds out whether a node satisfies: recalled, predicted, or counted.
    #[inline]
    pub(crate) fn settle(&mut self, number: Number) -> Result<bool, StopReason> {
        match self.known.statuses[number as usize] {
            Some(satisfies) => Ok(satisfies),
            None => self.work_out(number),
        }
    }

    fn work_out(&mut self, number: Number) -> Result<bool, StopReason> {
        let Self { evaluator, tags, known, .. } = self;
        let node = &known.nodes[number as usize];
        let predict = || tags.as_ref()?.status(known.outlines[number as usize], node);
        let recalled = evaluator.status(node);
        let status = recalled.or_else(predict);
        self.predicted += u64::from(recalled.is_none() && status.is_some());
        let satisfies = match status {
            Some(satisfies) => satisfies,
            None => {
                if let Some(reason) = self.budget.spent(evaluator.checks()) {
                    return Err(reason);
                }
                let satisfies = evaluator.satisfies(node);
                tags.iter_mut().for_each(|tags| tags.record(node, satisfies));
                satisfies
            }
        };
        known.statuses[number as usize] = Some(satisfies);
        // What is counted is not forgotten, should nobody ask for its loss.
        let least = self.best.as_ref().map_or(f64::INFINITY, |best| best.0 + TIE);
        if status.is_none() && satisfies && self.bound(number) <= least {
            self.weigh(number)?;
        }
        Ok(satisfies)
    }

    /// Works out what a node loses, if it satisfies.
    pub(crate) fn weigh(&mut self, number: Number) -> Result<(), StopReason> {
        if self.satisfies(number) && self.known.costs[number as usize].is_none() {
            let evaluator = self.evaluator;
            self.cost(number, |node| evaluator.check(node).loss)?;
        }
        Ok(())
    }

    /// One over the loss of each node, failing classes counted as left out; higher is better.
    pub(crate) fn fitness(&mut self, numbers: &[Number]) -> Result<Vec<f64>, StopReason> {
        let evaluator = self.evaluator;
        for &number in numbers {
            self.settle(number)?;
            self.weigh(number)?;
            if self.known.costs[number as usize].is_none() {
                self.cost(number, |node| evaluator.evaluate(node).penalised)?;
            }
        }
        let cost = |number: &Number| self.known.costs[*number as usize].unwrap_or(f64::INFINITY);
        Ok(numbers.iter().map(|number| 1.0 / cost(number).max(NO_LOSS)).collect())
    }

    /// Asks what a node costs, unless it is not counted yet when the budget is spent.
    fn cost(&mut self, number: Number, of: impl Fn(&Node) -> f64) -> Result<(), StopReason> {
        let node = &self.known.nodes[number as usize];
        if self.evaluator.status(node).is_none()
            && let Some(reason) = self.budget.spent(self.evaluator.checks())
        {
            return Err(reason);
        }
        let cost = of(node);
        self.known.costs[number as usize] = Some(cost);
        let is_best = |(best, than): &(f64, Node)| is_better(cost, node, *best, than);
        if self.satisfies(number) && self.best.as_ref().is_none_or(is_best) {
            self.best = Some((cost, node.clone()));
        }
        Ok(())
    }

    /// The outcome of a search that ended as `ended`. If it saw nothing that satisfies, the top gets its chance.
    pub(crate) fn outcome(mut self, ended: Result<(), StopReason>) -> Outcome {
        let mut stop = ended.err().unwrap_or(StopReason::Exhausted);
        if self.best.is_none() {
            let top = self.number(self.lattice.top().clone());
            if let Err(reason) = self.settle(top).and_then(|_| self.weigh(top)) {
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

#[inline]
fn hash(outline: Outline) -> u64 {
    FxBuildHasher.hash_one(outline)
}
