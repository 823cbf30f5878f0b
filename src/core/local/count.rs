//! Groups tuples into the classes of a node, and judges the classes.
//!
//! The key of a tuple is looked up in an open-addressing table of class numbers that is sized by the tuples at hand, so a step of a schedule
//! costs in proportion to the tuples that are still left. Where one word does not hold the keys of all attributes, the class number
//! found for the first attributes takes the lower half of the next round's key.
//! Sizes decide first. Where the policy asks for more than a number of records, the classes that are large enough are gathered from
//! their rows, distinct subjects and histograms are counted, and the rules judge each class by itself.

use super::table::Table;
use super::terms::Ladders;
use crate::model::counting::Histogram;
use crate::model::domain::Code;
use crate::model::lattice::Node;
use crate::privacy::{Class, Rules};

/// Classes of some tuples at one node. The buffers are used again from node to node.
#[derive(Default)]
pub(super) struct Counter {
    keys: Vec<u64>,
    slots: Vec<u32>,
    class_keys: Vec<u64>,
    /// The class of every tuple, in the order in which the tuples were given.
    pub(super) class_of: Vec<u32>,
    /// Fresh rows per class.
    sizes: Vec<u32>,
    /// Whether the class satisfies the policy by itself.
    pub(super) good: Vec<bool>,
}

const EMPTY: u32 = u32::MAX;

impl Counter {
    /// Groups `tuples` by what they show at `node`, and counts the fresh rows of each class.
    pub(super) fn group(&mut self, table: &Table, ladders: &Ladders, tuples: &[u32], node: &Node) {
        for (round, attributes) in ladders.rounds.iter().enumerate() {
            self.keys.clear();
            if round > 0 {
                self.keys.extend(self.class_of.iter().map(|&class| u64::from(class)));
            } else {
                self.keys.resize(tuples.len(), 0);
            }
            // An attribute with one value tells nothing apart.
            let telling: Vec<(usize, &[u64])> = attributes
                .clone()
                .map(|at| (at, &ladders.attributes[at], usize::from(node.levels()[at])))
                .filter(|(_, ladder, level)| ladder.counts[*level] > 1)
                .map(|(at, ladder, level)| (at, ladder.packed[level].as_slice()))
                .collect();
            for (key, &tuple) in self.keys.iter_mut().zip(tuples) {
                let cells = table.cells(tuple);
                *key = telling.iter().fold(*key, |key, &(at, packed)| key | packed[cells[at] as usize]);
            }
            self.number();
        }
        self.sizes.clear();
        self.sizes.resize(self.class_keys.len(), 0);
        for (&class, &tuple) in self.class_of.iter().zip(tuples) {
            self.sizes[class as usize] += table.count(tuple);
        }
    }

    /// Numbers the classes of equal keys in order of first appearance.
    fn number(&mut self) {
        let slots = (self.keys.len() * 2).next_power_of_two().max(2);
        let shift = u64::BITS - slots.trailing_zeros();
        self.slots.clear();
        self.slots.resize(slots, EMPTY);
        self.class_keys.clear();
        self.class_of.clear();
        for &key in &self.keys {
            let mut at = ((key ^ (key >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> shift) as usize;
            let class = loop {
                match self.slots[at] {
                    EMPTY => {
                        let class = self.class_keys.len() as u32;
                        self.slots[at] = class;
                        self.class_keys.push(key);
                        break class;
                    }
                    class if self.class_keys[class as usize] == key => break class,
                    _ => at = (at + 1) & (slots - 1),
                }
            };
            self.class_of.push(class);
        }
    }

    /// Judges the classes of `tuples`, which were grouped last, and returns how many fresh rows the good ones have. Where large enough
    /// classes have fewer than `wanted` rows together, nothing more is counted and no class is good.
    pub(super) fn judge(&mut self, judge: &mut Judge<'_>, table: &Table, tuples: &[u32], wanted: u64) -> u64 {
        let least = judge.least;
        self.good.clear();
        self.good.extend(self.sizes.iter().map(|&size| size >= least));
        let covered = |counter: &Self| -> u64 {
            counter.sizes.iter().zip(&counter.good).filter(|(_, good)| **good).map(|(&size, _)| u64::from(size)).sum()
        };
        let large = covered(self);
        if large < wanted {
            self.good.fill(false);
            return 0;
        }
        if judge.sizes_only {
            return large;
        }
        // Tuples of large classes, class by class.
        let mut ends = vec![0u32; self.good.len() + 1];
        for &class in self.class_of.iter().filter(|&&class| self.good[class as usize]) {
            ends[class as usize + 1] += 1;
        }
        (1..ends.len()).for_each(|class| ends[class] += ends[class - 1]);
        let mut grouped = vec![0u32; ends.last().map_or(0, |&all| all as usize)];
        for (&class, &tuple) in self.class_of.iter().zip(tuples).filter(|(class, _)| self.good[**class as usize]) {
            grouped[ends[class as usize] as usize] = tuple;
            ends[class as usize] += 1;
        }
        let mut start = 0;
        for (good, &end) in self.good.iter_mut().zip(&ends) {
            *good = *good && judge.holds(table, &grouped[start as usize..end as usize]);
            start = end;
        }
        covered(self)
    }
}

/// Judges classes by the rules that need nothing but the class.
pub(super) struct Judge<'a> {
    rules: &'a Rules,
    /// No class with fewer rows can satisfy them.
    least: u32,
    /// A number of records is all that they ask for.
    pub(super) sizes_only: bool,
    subjects: Vec<u64>,
    pairs: Vec<(u64, Code)>,
    values: Vec<Code>,
    /// Per facet the codes and their counts.
    counts: Vec<(Vec<Code>, Vec<u32>)>,
}

impl<'a> Judge<'a> {
    pub(super) fn new(rules: &'a Rules) -> Self {
        let counting = rules.counting();
        let more = rules.alone(true, true).chain(rules.alone(true, false)).next().is_some();
        Self {
            rules,
            least: rules.least_size().max(1),
            sizes_only: !counting.subjects && !more,
            subjects: Vec::new(),
            pairs: Vec::new(),
            values: Vec::new(),
            counts: vec![Default::default(); counting.facets.len()],
        }
    }

    /// True if a class of these tuples satisfies the rules.
    pub(super) fn holds(&mut self, table: &Table, tuples: &[u32]) -> bool {
        let rows = || tuples.iter().flat_map(|&tuple| table.fresh.range(tuple));
        let size = if table.subjects.is_empty() {
            rows().count()
        } else {
            self.subjects.clear();
            self.subjects.extend(rows().map(|row| table.subjects[row]));
            self.subjects.sort_unstable();
            self.subjects.dedup();
            self.subjects.len()
        };
        if (size as u32) < self.least {
            return false;
        }
        for (facet, (codes, counts)) in table.facets.iter().zip(&mut self.counts) {
            self.values.clear();
            if table.subjects.is_empty() {
                self.values.extend(rows().map(|row| facet[row]));
            } else {
                // A subject counts once for a value, however many rows it has.
                self.pairs.clear();
                self.pairs.extend(rows().map(|row| (table.subjects[row], facet[row])));
                self.pairs.sort_unstable();
                self.pairs.dedup();
                self.values.extend(self.pairs.iter().map(|&(_, code)| code));
            }
            self.values.sort_unstable();
            codes.clear();
            counts.clear();
            for run in self.values.chunk_by(|a, b| a == b) {
                codes.push(run[0]);
                counts.push(run.len() as u32);
            }
        }
        let histograms: Vec<Histogram<'_>> =
            self.counts.iter().map(|(codes, counts)| Histogram { codes, counts }).collect();
        self.rules.hold_alone(&Class { size: size as u32, facets: &histograms })
    }
}
