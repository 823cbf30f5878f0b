//! The terms under which windows are recoded, and their form for one table: what each cell becomes and costs at each level.
//!
//! A [`Ladders`] holds, per attribute and level, the ancestor of every leaf that occurs in the table, as a code of the domain and as a dense
//! number. A key packs these numbers, each at its place in a word. Attributes with few leaves are looked up together: the table has
//! one number for the cells of such a group, and a [`Lookup`] says, for some levels of the group's attributes, which part of the key
//! each number stands for. The key of a tuple at a node is the `or` of one entry per group. Groups whose parts do not fit into one
//! word are packed in several rounds; see [`super::count`].

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::table::{CellGroup, Table};
use crate::model::domain::{Code, DomainView};
use crate::model::lattice::{Lattice, Level, Node};
use crate::model::policy::{Loss, Policy};
use crate::model::recoding::GeneralizedValue;
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
    pub fn cost(&self, attribute: usize, value: GeneralizedValue) -> f64 {
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
    lookups: Vec<Lookup>,
    /// The groups of each packing round.
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
    /// The leaf that stands for values without a place in the hierarchy, if it occurs.
    unplaced: Option<u32>,
    /// The place of the numbers in a packed key.
    shift: u32,
}

/// Parts of keys by the number of a group's cells, for the levels that were asked for.
struct Lookup {
    group: CellGroup,
    parts: FxHashMap<SmallVec<[Level; 16]>, Arc<[u64]>>,
}

impl Ladders {
    pub(super) fn new(terms: &Terms<'_>, table: &Table) -> Self {
        let mut attributes: Vec<Ladder> = (0..table.width).map(|at| Ladder::new(terms, table, at)).collect();
        let mut rounds: Vec<std::ops::Range<usize>> = Vec::new();
        let (mut used, mut first) = (0, 0);
        for (number, group) in table.groups.iter().enumerate() {
            let bits = |&(at, _): &(usize, usize)| attributes[at].bits();
            if used + group.attributes.iter().map(bits).sum::<u32>() > u64::BITS {
                rounds.push(first..number);
                // The number that stands for the rounds before takes the lower half.
                (used, first) = (u32::BITS, number);
            }
            for &(at, _) in &group.attributes {
                // A level of one value takes no bits; any shift will do for its 0.
                attributes[at].shift = used.min(u64::BITS - 1);
                used += attributes[at].bits();
            }
        }
        rounds.push(first..table.groups.len());
        let lookup = |group: &CellGroup| Lookup { group: group.clone(), parts: FxHashMap::default() };
        Self { attributes, lookups: table.groups.iter().map(lookup).collect(), rounds }
    }

    /// For each group of a round its parts of the keys at `node`, without the groups that show one value only.
    pub(super) fn parts(&mut self, round: usize, node: &Node) -> SmallVec<[(usize, Arc<[u64]>); 8]> {
        let (ladders, groups) = (&self.attributes, self.rounds[round].clone());
        let lookups = self.lookups.iter_mut().enumerate().skip(groups.start).take(groups.len());
        let telling = lookups.filter(|(_, lookup)| {
            lookup.group.attributes.iter().any(|&(at, _)| ladders[at].counts[usize::from(node.levels()[at])] > 1)
        });
        telling.map(|(group, lookup)| (group, lookup.parts(ladders, node))).collect()
    }
}

impl Lookup {
    fn parts(&mut self, ladders: &[Ladder], node: &Node) -> Arc<[u64]> {
        let CellGroup { attributes, size } = &self.group;
        let levels = attributes.iter().map(|&(at, _)| node.levels()[at]).collect();
        let make = |_: &SmallVec<[Level; 16]>| -> Arc<[u64]> {
            let mut parts = Vec::with_capacity(*size);
            parts.push(0);
            // The numbers of the first cells, once for each value of the next cell.
            for &(at, worth) in attributes {
                let (ladder, level) = (&ladders[at], usize::from(node.levels()[at]));
                let shifted = |leaf: usize| u64::from(ladder.numbers[level][leaf]) << ladder.shift;
                for leaf in 1..ladder.numbers[level].len() {
                    (0..worth).for_each(|before| parts.push(parts[before] | shifted(leaf)));
                }
                // The first leaf has the number 0, so its entries are right as they are.
                debug_assert!(ladder.numbers[level].first().is_none_or(|&number| number == 0));
            }
            parts.into()
        };
        Arc::clone(self.parts.entry(levels).or_insert_with_key(make))
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
            let value = |&code: &Code| terms.cost(at, GeneralizedValue { level: level as Level, code });
            codes.iter().map(value).collect()
        };
        let costs = codes.iter().enumerate().map(cost).collect();
        let unplaced = view.top_code().and_then(|top| codes[0].iter().position(|&code| code == top));
        Self { min, max, codes, numbers, counts, costs, unplaced: unplaced.map(|leaf| leaf as u32), shift: 0 }
    }

    /// The finest level at which a leaf is shown. A value without a place reads like the top at every level, so it is shown at the
    /// coarsest one: there it is one value with the top.
    pub(super) fn finest(&self, leaf: u32) -> Level {
        if self.unplaced == Some(leaf) { self.max } else { self.min }
    }

    /// How many bits its numbers take in a key.
    fn bits(&self) -> u32 {
        usize::BITS - self.counts[usize::from(self.min)].saturating_sub(1).leading_zeros()
    }

    /// The published value of a leaf at a level.
    pub(super) fn value(&self, level: Level, leaf: u32) -> GeneralizedValue {
        GeneralizedValue { level, code: self.codes[usize::from(level)][leaf as usize] }
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
