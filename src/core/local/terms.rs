//! The terms under which windows are recoded, and their form for one table: what each cell becomes and costs at each level.
//!
//! A [`Ladders`] holds, per attribute and level, the ancestor of every leaf that occurs in the table: as a code of the domain, as a dense
//! number, and as that number shifted to its place in a packed key. The key of a tuple at a node is the `or` of one such entry per
//! attribute. Attributes whose numbers do not fit into one word together are packed in several rounds; see [`super::count`].

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::table::Table;
use crate::model::domain::{Code, DomainView};
use crate::model::lattice::{Lattice, Level};
use crate::model::policy::{Loss, Policy};
use crate::model::recoding::Value;
use crate::privacy::Rules;

/// The terms under which windows are recoded.
#[derive(Clone)]
pub struct Terms<'a> {
    pub(super) domains: &'a [Arc<DomainView>],
    pub(super) rules: &'a Rules,
    pub(super) lattice: Lattice,
    /// Per attribute, adding up to 1.
    weights: Vec<f64>,
    /// Cells cost their level over the height, not their loss of leaves.
    by_level: bool,
}

impl<'a> Terms<'a> {
    /// The terms of a policy; `rules` are bound to the dictionaries that `domains` belong to. Loss is measured by `precision` where the
    /// policy asks for that, and by `glm` otherwise: the other metrics are no sums over cells.
    pub fn new(policy: &Policy, rules: &'a Rules, domains: &'a [Arc<DomainView>]) -> Self {
        let all: f64 = policy.quasi.iter().map(|quasi| quasi.weight).sum();
        Self {
            domains,
            rules,
            lattice: policy.lattice(),
            weights: policy.quasi.iter().map(|quasi| quasi.weight / all).collect(),
            by_level: policy.loss == Loss::Precision,
        }
    }

    /// The permitted nodes.
    pub fn lattice(&self) -> &Lattice {
        &self.lattice
    }

    /// What a cell costs that is published as `value`, weighted: a record of which nothing is left costs 1 in all.
    pub fn cost(&self, attribute: usize, value: Value) -> f64 {
        let view = &self.domains[attribute];
        let loss = if self.by_level {
            f64::from(value.level) / f64::from(view.height().max(1))
        } else {
            view.level(value.level).loss()[value.code as usize]
        };
        loss * self.weights[attribute]
    }
}

/// The levels of all attributes for the leaves of one table.
pub(super) struct Ladders {
    pub(super) attributes: Vec<Ladder>,
    /// The attributes of each packing round.
    pub(super) rounds: Vec<std::ops::Range<usize>>,
}

/// The levels of one attribute, by level and leaf.
pub(super) struct Ladder {
    pub(super) min: Level,
    pub(super) max: Level,
    codes: Vec<Vec<Code>>,
    /// Dense numbers; equal just if the codes are.
    pub(super) numbers: Vec<Vec<u32>>,
    /// How many numbers each level has.
    pub(super) counts: Vec<usize>,
    pub(super) costs: Vec<Vec<f64>>,
    pub(super) packed: Vec<Vec<u64>>,
}

impl Ladders {
    pub(super) fn new(terms: &Terms<'_>, table: &Table) -> Self {
        let mut attributes: Vec<Ladder> = (0..table.width).map(|at| Ladder::new(terms, table, at)).collect();
        let mut rounds: Vec<std::ops::Range<usize>> = Vec::new();
        let (mut used, mut first) = (0, 0);
        for (at, ladder) in attributes.iter_mut().enumerate() {
            let most = ladder.counts[usize::from(ladder.min)];
            let bits = usize::BITS - most.saturating_sub(1).leading_zeros();
            if used + bits > u64::BITS {
                rounds.push(first..at);
                // The number that stands for the rounds before takes the lower half.
                (used, first) = (u32::BITS, at);
            }
            // A level of one value takes no bits; any shift will do for its 0.
            let shift = used.min(u64::BITS - 1);
            let shifted = |numbers: &Vec<u32>| numbers.iter().map(|&number| u64::from(number) << shift).collect();
            ladder.packed = ladder.numbers.iter().map(shifted).collect();
            used += bits;
        }
        rounds.push(first..attributes.len());
        Self { attributes, rounds }
    }
}

impl Ladder {
    fn new(terms: &Terms<'_>, table: &Table, at: usize) -> Self {
        let view = &terms.domains[at];
        let (min, max) = (terms.lattice.bottom().levels()[at], terms.lattice.top().levels()[at]);
        let mut codes = vec![table.leaves[at].clone()];
        for level in 0..max {
            let parents = view.level(level).parent();
            codes.push(codes[usize::from(level)].iter().map(|&code| parents[code as usize]).collect());
        }
        let (numbers, counts) = codes.iter().map(|codes| numbered(codes)).unzip();
        let cost = |(level, codes): (usize, &Vec<Code>)| {
            let value = |&code: &Code| terms.cost(at, Value { level: level as Level, code });
            codes.iter().map(value).collect()
        };
        let costs = codes.iter().enumerate().map(cost).collect();
        Self { min, max, codes, numbers, counts, costs, packed: Vec::new() }
    }

    /// The published value of a leaf at a level.
    pub(super) fn value(&self, level: Level, leaf: u32) -> Value {
        Value { level, code: self.codes[usize::from(level)][leaf as usize] }
    }

    /// The lowest level from `level` on at which two leaves have the same ancestor; `None` if no permitted level has one.
    #[inline]
    pub(super) fn common(&self, level: Level, a: u32, b: u32) -> Option<Level> {
        let same = |level: &Level| {
            let numbers = &self.numbers[usize::from(*level)];
            numbers[a as usize] == numbers[b as usize]
        };
        (level..=self.max).find(same)
    }
}

fn numbered(codes: &[Code]) -> (Vec<u32>, usize) {
    let mut numbers: FxHashMap<Code, u32> = FxHashMap::default();
    let of = |&code: &Code| {
        let next = numbers.len() as u32;
        *numbers.entry(code).or_insert(next)
    };
    let dense: Vec<u32> = codes.iter().map(of).collect();
    let count = dense.iter().max().map_or(0, |&last| last as usize + 1);
    (dense, count)
}
