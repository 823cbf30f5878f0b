//! Learns a schedule from past windows.
//!
//! Greedy: of all nodes, in the order of the mean loss over the records that are left, the first one whose good classes cover at least a
//! share of all records becomes the next step; these records leave, and so on until none are left. The mean loss of a node is a sum
//! over attributes, so marginals of the records that are left suffice to order nodes. A node's good classes only shrink when
//! records leave, so a node is evaluated once: it becomes a step then or never.
//!
//! The lattice is never enumerated. Nodes are visited best first from the bottom: the cheapest node not visited yet always has only visited
//! nodes below it, so it is in the frontier, also after the order has changed. In a large lattice the walk could spend its budget
//! among fine nodes that cover nothing: after [`PATIENCE`] evaluations without a step, it climbs from the cheapest node of the
//! frontier straight up to a node that covers enough. When the budget is spent, it climbs from the last step to the top, so that the
//! remaining steps take no more evaluations than the lattice has levels and attributes.
//!
//! Classes are counted per window, so a schedule that was learnt from several windows holds for windows of their size. The number of
//! evaluations is the only budget: the same tables give the same schedule on every machine.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use rayon::prelude::*;
use rustc_hash::FxHashSet;

use super::apply::apply;
use super::count::{Judge, NodeCounter};
use super::table::Table;
use super::terms::{Ladders, Terms};
use crate::model::lattice::{Lattice, Node};
use crate::model::schedule::Schedule;

/// Evaluations without a step before the walk climbs. Larger: a large lattice costs more before its first step. Smaller: steps of less
/// loss are passed over.
const PATIENCE: u64 = 2_000;

/// How much is spent on learning.
#[derive(Debug, Clone, PartialEq)]
pub struct Effort {
    /// How many nodes may be counted for each share. A node is counted in every window.
    pub evaluations: u64,
    /// The shares of all records that a step must cover. A smaller share makes a longer schedule with less loss. The schedule of the
    /// share that loses least is kept.
    pub shares: Vec<f64>,
    /// The most steps that the schedule may have. The fewer are left, the more records a step must cover.
    pub max_steps: usize,
}

impl Default for Effort {
    /// About half a second for 30,000 records and nine attributes. More evaluations take longer; with fewer, large lattices get coarser
    /// schedules. Smaller shares apply more slowly. The second share was chosen on Adult with k = 50, where shares from 0.001 to 0.003
    /// lose 0.150 to 0.152 in no order: it is a second draw, not a better value.
    fn default() -> Self {
        Self { evaluations: 20_000, shares: vec![0.001, 0.0017], max_steps: usize::MAX }
    }
}

/// Learns a schedule from past windows.
pub fn learn(terms: &Terms<'_>, tables: &[&Table], effort: &Effort) -> Schedule {
    let one = |&share: &f64| Learner::new(terms, tables, share).run(effort);
    let schedules: Vec<Schedule> = effort.shares.par_iter().map(one).collect();
    let loss = |schedule: &Schedule| -> f64 {
        tables.iter().map(|table| apply(terms, table, schedule, 0, 0).loss() * table.records() as f64).sum()
    };
    let best = if schedules.len() > 1 {
        let losses: Vec<f64> = schedules.par_iter().map(loss).collect();
        schedules.into_iter().zip(losses).min_by(|a, b| a.1.total_cmp(&b.1)).map(|(schedule, _)| schedule)
    } else {
        schedules.into_iter().next()
    };
    best.unwrap_or_else(|| Schedule::new([], terms.lattice()))
}

/// One window, and the tuples of it that no step has released yet.
struct Window<'a> {
    table: &'a Table,
    ladders: Ladders,
    left: Vec<u32>,
    counter: NodeCounter,
}

struct Learner<'a> {
    lattice: Lattice,
    judge: Judge<'a>,
    windows: Vec<Window<'a>>,
    /// How many rows a step must cover.
    wanted: u64,
    evaluations: u64,
    seen: FxHashSet<Node>,
    frontier: Vec<Node>,
    last: Option<Node>,
}

/// A node and its mean loss; the greatest is the cheapest, and of equally cheap nodes the first by levels.
#[derive(PartialEq)]
struct Priced(f64, Node);

impl Eq for Priced {}

impl Ord for Priced {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.total_cmp(&self.0).then_with(|| other.1.levels().cmp(self.1.levels()))
    }
}

impl PartialOrd for Priced {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Per attribute and level, what the records that are left lose there in all.
type Prices = Vec<Vec<f64>>;

fn price(prices: &Prices, node: &Node) -> f64 {
    prices.iter().zip(node.levels()).map(|(levels, &level)| levels[usize::from(level)]).sum()
}

impl<'a> Learner<'a> {
    fn new(terms: &Terms<'a>, tables: &[&'a Table], share: f64) -> Self {
        let window = |table: &&'a Table| Window {
            table,
            ladders: Ladders::new(terms, table),
            left: (0..table.len() as u32).filter(|&tuple| table.count(tuple) > 0).collect(),
            counter: NodeCounter::default(),
        };
        let records: usize = tables.iter().map(|table| table.records()).sum();
        let bottom = terms.lattice.bottom().clone();
        Self {
            lattice: terms.lattice.clone(),
            judge: Judge::new(terms.rules),
            windows: tables.iter().filter(|table| !table.is_empty()).map(window).collect(),
            wanted: ((share * records as f64).ceil() as u64).max(1),
            evaluations: 0,
            seen: [bottom.clone()].into_iter().collect(),
            frontier: vec![bottom],
            last: None,
        }
    }

    fn run(mut self, effort: &Effort) -> Schedule {
        let mut steps = Vec::new();
        let wanted = self.wanted;
        while self.windows.iter().any(|window| !window.left.is_empty()) {
            // The last step is the coarsest node.
            let steps_left = effort.max_steps.saturating_sub(steps.len() + 1) as u64;
            if steps_left == 0 {
                break;
            }
            self.wanted = wanted.max(self.rows_left() / steps_left.saturating_mul(2));
            let prices = self.prices();
            let Some(node) = self.next(&prices, effort.evaluations) else { break };
            self.release();
            self.last = Some(node.clone());
            steps.push(node);
        }
        Schedule::new(steps, &self.lattice)
    }

    fn rows_left(&self) -> u64 {
        let rows =
            |window: &Window<'_>| window.left.iter().map(|&tuple| u64::from(window.table.count(tuple))).sum::<u64>();
        self.windows.iter().map(rows).sum()
    }

    /// What the records that are left lose per attribute and level.
    fn prices(&self) -> Prices {
        let mut prices: Prices =
            self.lattice.top().levels().iter().map(|&max| vec![0.0; usize::from(max) + 1]).collect();
        for Window { table, ladders, left, .. } in &self.windows {
            let mut marginals: Vec<Vec<u32>> = table.leaves.iter().map(|leaves| vec![0; leaves.len()]).collect();
            for &tuple in left {
                let count = table.count(tuple);
                marginals.iter_mut().zip(table.cells(tuple)).for_each(|(rows, &leaf)| rows[leaf as usize] += count);
            }
            for ((prices, ladder), rows) in prices.iter_mut().zip(&ladders.attributes).zip(&marginals) {
                for (price, costs) in prices.iter_mut().zip(&ladder.costs) {
                    *price += costs.iter().zip(rows).map(|(cost, &rows)| cost * f64::from(rows)).sum::<f64>();
                }
            }
        }
        prices
    }

    /// The cheapest node that covers enough of what is left; `None` if the coarsest node does not.
    fn next(&mut self, prices: &Prices, budget: u64) -> Option<Node> {
        let priced = |node: Node| Priced(price(prices, &node), node);
        let mut heap: BinaryHeap<Priced> = self.frontier.drain(..).map(priced).collect();
        let patient = self.evaluations + PATIENCE;
        let mut found = None;
        while found.is_none() {
            if self.evaluations >= patient.min(budget) {
                let cheapest = heap.peek().map(|cheapest| cheapest.1.clone());
                let last = self.last.clone().filter(|_| self.evaluations >= budget);
                found = self.climb(last.or(cheapest)?, prices);
                let fresh = found.iter().filter(|node| self.seen.insert((*node).clone()));
                heap.extend(fresh.map(|node| priced(node.clone())));
                break;
            }
            let Some(Priced(_, node)) = heap.pop() else { break };
            let fresh = self.lattice.parents(&node).filter(|parent| self.seen.insert(parent.clone()));
            heap.extend(fresh.map(priced));
            let top = node == *self.lattice.top();
            if self.covered(&node) >= if top { 1 } else { self.wanted } {
                found = Some(node);
            }
        }
        self.frontier = heap.into_iter().map(|priced| priced.1).collect();
        found
    }

    /// Raises `node` until it covers enough: of all levels that can be raised by one, the one that covers most for its loss.
    fn climb(&mut self, mut node: Node, prices: &Prices) -> Option<Node> {
        loop {
            let covered = self.covered(&node);
            if covered >= self.wanted || (node == *self.lattice.top() && covered > 0) {
                return Some(node);
            }
            let parents: Vec<Node> = self.lattice.parents(&node).collect();
            let rate = |parent: &Node, covered: u64| {
                (covered as f64 + 0.5) / (price(prices, parent) - price(prices, &node) + 1e-9)
            };
            let rated: Vec<(f64, Node)> =
                parents.into_iter().map(|parent| (rate(&parent, self.covered(&parent)), parent)).collect();
            node = rated.into_iter().max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.levels().cmp(a.1.levels())))?.1;
        }
    }

    /// How many of the rows that are left are in good classes at `node`.
    fn covered(&mut self, node: &Node) -> u64 {
        self.evaluations += 1;
        let judge = &mut self.judge;
        let of = |Window { table, ladders, left, counter }: &mut Window<'_>| {
            counter.count((table, ladders), judge, left, node, 1)
        };
        self.windows.iter_mut().map(of).sum()
    }

    /// Takes the rows out that the good classes of `node`, which was evaluated last, cover.
    fn release(&mut self) {
        for Window { left, counter, .. } in &mut self.windows {
            let good = counter.places.iter().zip(&counter.class_of).filter(|(_, class)| counter.good[**class as usize]);
            let mut gone = good.map(|(&place, _)| place).peekable();
            let mut place = 0;
            left.retain(|_| {
                place += 1;
                gone.next_if_eq(&(place - 1)).is_none()
            });
        }
    }
}
