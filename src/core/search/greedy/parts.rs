//! The classes of a cut as they are taken apart again, for the refinement of `subtree-bottom-up`.
//!
//! Every finest class knows which class of the cut it is in. Taking back "all children of v become v" concerns the finest
//! classes below v alone: each class there falls into one part per child. So a try costs what lies below v, and all tries
//! together what one pass over the data costs, times the levels; counting the whole cut anew costs the data for each try.
//! Invariant: `failing` and `cost` are what the evaluator would count of the same cut.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::tea::{Taxonomy, ValueId};
use crate::frequency::set::{ClassTally, Classes};
use crate::model::domain::Code;
use crate::model::policy::Loss;
use crate::privacy::{Class, Rules};

/// How the classes of a cut cost something, where that is a sum over classes.
pub(super) struct Costs<'a> {
    /// What decides, then what breaks ties.
    pub(super) by: [Loss; 2],
    /// What leaving out a cell adds by the cell loss, by attribute, level and code.
    pub(super) added: Option<&'a [Vec<Vec<f64>>]>,
    /// Where the label is among the facets.
    pub(super) label: Option<usize>,
    /// Records in the window.
    pub(super) records: f64,
    pub(super) rules: &'a Rules,
}

impl Costs<'_> {
    /// True if all of it is a sum over classes that is known here.
    pub(super) fn are_known(&self) -> bool {
        let known = |loss: &Loss| match loss {
            Loss::Glm | Loss::Precision => self.added.is_some(),
            Loss::Cm | Loss::Dm => true,
            Loss::Aecs | Loss::Score | Loss::Ql | Loss::Entropy => false,
        };
        self.by.iter().all(known) && self.rules.only_classes()
    }

    fn of(&self, tally: &ClassTally, values: &[(usize, u8, Code)]) -> Part {
        let holds = tally.with_histograms(|facets| self.rules.hold_alone(&Class { size: tally.size(), facets }));
        let rows = f64::from(tally.rows());
        let cost = |loss: Loss| match loss {
            Loss::Dm => rows * if holds { rows } else { self.records } / self.records.powi(2),
            Loss::Cm if holds => {
                let most = |label: usize| tally.with_histograms(|facets| facets[label].most());
                (rows - f64::from(self.label.map_or(tally.rows(), most))) / self.records
            }
            Loss::Cm => rows / self.records,
            // Up to the same sum for every cut: a cell costs its weight less what leaving it out would add.
            _ if holds => {
                let kept = |&(at, level, code): &(usize, u8, Code)| {
                    self.added.map_or(0.0, |added| added[at][usize::from(level)][code as usize])
                };
                -rows * values.iter().map(kept).sum::<f64>()
            }
            _ => 0.0,
        };
        Part { rows: tally.rows(), holds, cost: self.by.map(cost) }
    }
}

/// True if a cut costs more than another: by what decides, and where that is equal by what breaks ties. Sums in another order differ
/// in their last digits, which do not count.
pub(super) fn is_costlier(cost: (f64, f64), than: (f64, f64)) -> bool {
    match (cost.0 - than.0, cost.1 - than.1) {
        (first, _) if first.abs() > TIE => first > 0.0,
        (_, second) => second > TIE,
    }
}

/// What is known of one class of the cut.
#[derive(Clone, Copy)]
struct Part {
    rows: u32,
    holds: bool,
    cost: [f64; 2],
}

/// Where a class of the cut was met last while finest classes are grouped.
#[derive(Clone, Copy, Default)]
struct Met {
    attempt: u32,
    child: u32,
    group: u32,
}

/// The classes of a cut.
pub(super) struct Parts<'a> {
    costs: Costs<'a>,
    base: &'a dyn Classes,
    /// What merges class by class; `None` where nothing but records is counted.
    tallies: Option<Vec<ClassTally>>,
    order: &'a [usize],
    taxonomies: &'a [Taxonomy],
    /// Per attribute: finest classes by leaf, and where each leaf begins.
    by_leaf: Vec<(Vec<u32>, Vec<u32>)>,
    /// Per attribute and leaf: the value in the cut.
    cut: Vec<Vec<ValueId>>,
    class_of: Vec<u32>,
    parts: Vec<Part>,
    failing: u64,
    holding: usize,
    cost: [f64; 2],
    /// By class of the cut; attempts and children are counted through all of them.
    met: Vec<Met>,
    attempts: u32,
    children: u32,
}

impl<'a> Parts<'a> {
    /// The classes of `cut`, which says the value of each leaf, by place in `order`; `None` if the time is over before.
    pub(super) fn new(
        costs: Costs<'a>,
        base: &'a dyn Classes,
        order: &'a [usize],
        taxonomies: &'a [Taxonomy],
        cut: Vec<Vec<ValueId>>,
        in_time: &dyn Fn() -> bool,
    ) -> Option<Self> {
        let counting = costs.rules.counting();
        let plain = !counting.subjects && counting.facets.is_empty();
        let by_leaf = order.iter().zip(&cut).map(|(&at, cut)| sorted(base, at, cut.len())).collect();
        let mut parts = Self {
            costs,
            base,
            tallies: (!plain).then(|| base.tallies()),
            order,
            taxonomies,
            by_leaf,
            cut,
            class_of: vec![0; base.len()],
            parts: Vec::new(),
            failing: 0,
            holding: 0,
            cost: [0.0; 2],
            met: Vec::new(),
            attempts: 0,
            children: 0,
        };
        let mut count = 1;
        for (place, &at) in order.iter().enumerate() {
            let mut known: FxHashMap<u64, u32> = FxHashMap::default();
            for (class, of) in parts.class_of.iter_mut().enumerate() {
                let (next, value) = (known.len() as u32, parts.cut[place][base.code(class, at) as usize]);
                *of = *known.entry(u64::from(*of) << u32::BITS | u64::from(value)).or_insert(next);
            }
            count = known.len();
            if !in_time() {
                return None;
            }
        }
        let everything: Vec<u32> = (0..base.len() as u32).collect();
        let groups: Vec<u32> = parts.class_of.clone();
        let made = parts.count(&everything, &groups, count);
        parts.add(&made, 1);
        parts.parts = made;
        Some(parts)
    }

    /// Records in classes that fail.
    pub(super) fn failing(&self) -> u64 {
        self.failing
    }

    /// Takes "all children of `value` become it" back if no more than `allowed` records fail then and nothing gets costlier; true
    /// if it did.
    pub(super) fn take_back(&mut self, place: usize, value: ValueId, allowed: u64) -> bool {
        let leaves = self.taken_back(place, value);
        leaves.iter().for_each(|&(child, leaf)| self.cut[place][leaf] = child);
        let (members, groups, before, count) = self.grouped(place, &leaves);
        let made = self.count(&members, &groups, count);
        let gone: Vec<Part> = before.iter().map(|&class| self.parts[class as usize]).collect();
        let (failing, holding, cost) = (self.failing, self.holding, self.cost);
        self.add(&gone, -1);
        self.add(&made, 1);
        if self.failing > allowed || self.holding == 0 || is_costlier(self.cost.into(), cost.into()) {
            (self.failing, self.holding, self.cost) = (failing, holding, cost);
            leaves.iter().for_each(|&(_, leaf)| self.cut[place][leaf] = value);
            return false;
        }
        let first = self.parts.len() as u32;
        self.parts.extend(made);
        members.iter().zip(groups).for_each(|(&class, group)| self.class_of[class as usize] = first + group);
        true
    }

    /// The leaves whose value is `value`, each with the child of it that it would have instead, child by child.
    fn taken_back(&self, place: usize, value: ValueId) -> Vec<(ValueId, usize)> {
        let taxonomy = &self.taxonomies[place];
        let child = |leaf: usize| {
            let leaf = taxonomy.leaf(leaf as Code);
            std::iter::once(leaf).chain(taxonomy.above(leaf)).take_while(|&above| above != value).last().unwrap_or(leaf)
        };
        let leaves = self.cut[place].iter().enumerate().filter(|(_, id)| **id == value);
        let mut leaves: Vec<(ValueId, usize)> = leaves.map(|(leaf, _)| (child(leaf), leaf)).collect();
        leaves.sort_unstable();
        leaves
    }

    /// The finest classes of some leaves, which come child by child: of each the group that it is in, which is of one class of the cut
    /// and one child. Then these classes, and how many groups there are.
    fn grouped(&mut self, place: usize, leaves: &[(ValueId, usize)]) -> (Vec<u32>, Vec<u32>, Vec<u32>, usize) {
        let (mut members, mut groups, mut before, mut count) = (Vec::new(), Vec::new(), Vec::new(), 0);
        let (classes, starts) = &self.by_leaf[place];
        self.met.resize(self.parts.len(), Met::default());
        self.attempts += 1;
        for leaves in leaves.chunk_by(|a, b| a.0 == b.0) {
            self.children += 1;
            for class in leaves.iter().flat_map(|&(_, leaf)| &classes[starts[leaf] as usize..starts[leaf + 1] as usize])
            {
                let of = self.class_of[*class as usize];
                let met = &mut self.met[of as usize];
                if met.attempt != self.attempts {
                    met.attempt = self.attempts;
                    before.push(of);
                }
                if met.child != self.children {
                    (met.child, met.group) = (self.children, count);
                    count += 1;
                }
                members.push(*class);
                groups.push(met.group);
            }
        }
        (members, groups, before, count as usize)
    }

    /// What each group of `members` is as a class.
    fn count(&self, members: &[u32], groups: &[u32], count: usize) -> Vec<Part> {
        let mut speakers = vec![0; count];
        members.iter().zip(groups).for_each(|(&class, &group)| speakers[group as usize] = class);
        let mut tallies = vec![ClassTally::default(); count];
        match &self.tallies {
            None => {
                let (mut sums, rows) = (vec![0; count], self.base.rows());
                members.iter().zip(groups).for_each(|(&class, &group)| sums[group as usize] += rows[class as usize]);
                tallies.iter_mut().zip(sums).for_each(|(tally, rows)| *tally = ClassTally::of_records(rows));
            }
            Some(own) => {
                for (&class, &group) in members.iter().zip(groups) {
                    let tally = &mut tallies[group as usize];
                    match tally.rows() {
                        0 => *tally = own[class as usize].clone(),
                        _ => tally.merge(&own[class as usize]),
                    }
                }
            }
        }
        let part = |(tally, class): (ClassTally, u32)| {
            let values: SmallVec<[(usize, u8, Code); 16]> = (self.order.iter().enumerate())
                .map(|(place, &at)| {
                    let id = self.cut[place][self.base.code(class as usize, at) as usize];
                    let value = self.taxonomies[place].value(id);
                    (at, value.level, value.code)
                })
                .collect();
            self.costs.of(&tally, &values)
        };
        tallies.into_iter().zip(speakers).map(part).collect()
    }

    fn add(&mut self, parts: &[Part], sign: i64) {
        for part in parts {
            match part.holds {
                true => self.holding = self.holding.wrapping_add_signed(sign as isize),
                false => self.failing = self.failing.wrapping_add_signed(sign * i64::from(part.rows)),
            }
            self.cost.iter_mut().zip(part.cost).for_each(|(sum, cost)| *sum += sign as f64 * cost);
        }
    }
}

/// Costs nearer than this are the same.
const TIE: f64 = 1e-12;

/// The finest classes by their leaf of one attribute, and where each leaf begins.
fn sorted(base: &dyn Classes, attribute: usize, leaves: usize) -> (Vec<u32>, Vec<u32>) {
    let mut starts = vec![0_u32; leaves + 1];
    (0..base.len()).for_each(|class| starts[base.code(class, attribute) as usize + 1] += 1);
    (0..leaves).for_each(|leaf| starts[leaf + 1] += starts[leaf]);
    let mut next = starts.clone();
    let mut classes = vec![0; base.len()];
    for class in 0..base.len() {
        let at = &mut next[base.code(class, attribute) as usize];
        classes[*at as usize] = class as u32;
        *at += 1;
    }
    (classes, starts)
}
