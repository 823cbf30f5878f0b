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

/// The classes of a cut.
pub(super) struct Parts<'a> {
    costs: Costs<'a>,
    base: &'a dyn Classes,
    tallies: Vec<ClassTally>,
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
}

impl<'a> Parts<'a> {
    /// The classes of `cut`, which says the value of each leaf, by place in `order`.
    pub(super) fn new(
        costs: Costs<'a>,
        base: &'a dyn Classes,
        order: &'a [usize],
        taxonomies: &'a [Taxonomy],
        cut: Vec<Vec<ValueId>>,
    ) -> Self {
        let by_leaf = order.iter().zip(&cut).map(|(&at, cut)| sorted(base, at, cut.len())).collect();
        let mut parts = Self {
            costs,
            base,
            tallies: base.tallies(),
            order,
            taxonomies,
            by_leaf,
            cut,
            class_of: vec![0; base.len()],
            parts: Vec::new(),
            failing: 0,
            holding: 0,
            cost: [0.0; 2],
        };
        let mut count = 1;
        for (place, &at) in order.iter().enumerate() {
            let mut known: FxHashMap<(u32, ValueId), u32> = FxHashMap::default();
            for (class, of) in parts.class_of.iter_mut().enumerate() {
                let next = known.len() as u32;
                *of = *known.entry((*of, parts.cut[place][base.code(class, at) as usize])).or_insert(next);
            }
            count = known.len();
        }
        let everything: Vec<u32> = (0..base.len() as u32).collect();
        let groups: Vec<u32> = parts.class_of.clone();
        let made = parts.count(&everything, &groups, count);
        parts.add(&made, 1);
        parts.parts = made;
        parts
    }

    /// Records in classes that fail.
    pub(super) fn failing(&self) -> u64 {
        self.failing
    }

    /// Takes "all children of `value` become it" back if no more than `allowed` records fail then and nothing gets costlier; true
    /// if it did.
    pub(super) fn take_back(&mut self, place: usize, value: ValueId, allowed: u64) -> bool {
        let members = self.below(place, value);
        let old = std::mem::take(&mut self.cut[place]);
        self.cut[place] = old.clone();
        let taxonomy = &self.taxonomies[place];
        for (leaf, id) in self.cut[place].iter_mut().enumerate().filter(|(_, id)| **id == value) {
            let leaf = taxonomy.leaf(leaf as Code);
            let below = std::iter::once(leaf).chain(taxonomy.above(leaf)).take_while(|&above| above != value);
            *id = below.last().unwrap_or(leaf);
        }
        let mut known: FxHashMap<(u32, ValueId), u32> = FxHashMap::default();
        let mut before: Vec<u32> = Vec::new();
        let groups: Vec<u32> = members
            .iter()
            .map(|&class| {
                let of = self.class_of[class as usize];
                let code = self.base.code(class as usize, self.order[place]);
                let next = known.len() as u32;
                *known.entry((of, self.cut[place][code as usize])).or_insert_with(|| {
                    before.push(of);
                    next
                })
            })
            .collect();
        let made = self.count(&members, &groups, known.len());
        before.sort_unstable();
        before.dedup();
        let gone: Vec<Part> = before.iter().map(|&class| self.parts[class as usize]).collect();
        let (failing, holding, cost) = (self.failing, self.holding, self.cost);
        self.add(&gone, -1);
        self.add(&made, 1);
        if self.failing > allowed || self.holding == 0 || is_costlier(self.cost.into(), cost.into()) {
            (self.failing, self.holding, self.cost) = (failing, holding, cost);
            self.cut[place] = old;
            return false;
        }
        let first = self.parts.len() as u32;
        self.parts.extend(made);
        members.iter().zip(groups).for_each(|(&class, group)| self.class_of[class as usize] = first + group);
        true
    }

    /// The finest classes whose value is `value`.
    fn below(&self, place: usize, value: ValueId) -> Vec<u32> {
        let (classes, starts) = &self.by_leaf[place];
        let leaves = self.cut[place].iter().enumerate().filter(|(_, id)| **id == value);
        leaves.flat_map(|(leaf, _)| &classes[starts[leaf] as usize..starts[leaf + 1] as usize]).copied().collect()
    }

    /// What each group of `members` is as a class.
    fn count(&self, members: &[u32], groups: &[u32], count: usize) -> Vec<Part> {
        let mut tallies: Vec<Option<(ClassTally, u32)>> = vec![None; count];
        for (&class, &group) in members.iter().zip(groups) {
            let own = &self.tallies[class as usize];
            match &mut tallies[group as usize] {
                Some((tally, _)) => tally.merge(own),
                empty => *empty = Some((own.clone(), class)),
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
        tallies.into_iter().flatten().map(part).collect()
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
