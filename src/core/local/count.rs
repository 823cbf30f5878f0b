//! Groups tuples into the classes of a node, and judges the classes.
//!
//! Most tuples that are left at a step are in classes that are too small. So the keys are first counted in a table of buckets, without
//! comparing them: a class has no more rows than its bucket. Only tuples of large buckets are grouped by their very keys, in an
//! open-addressing table of class numbers. A step of a schedule costs in proportion to the tuples that are still left.
//! Where one word does not hold the keys of all attributes, the class number found for the first attributes takes the lower half of
//! the next round's key.
//! Sizes decide first. Where the policy asks for more than a number of records, the classes that are large enough are gathered from
//! their rows, distinct subjects and histograms are counted, and the rules judge each class by itself.

use std::sync::Arc;

use super::table::{CodeCounts, Everybody, Table};
use super::terms::Ladders;
use crate::model::counting::Histogram;
use crate::model::domain::Code;
use crate::model::lattice::Node;
use crate::privacy::{Class, Rule, RuleScope, Rules};

/// Classes of some tuples at one node. The buffers are used again from node to node.
#[derive(Default)]
pub(super) struct NodeCounter {
    keys: Vec<u64>,
    /// Rows per bucket of keys, up to the largest number.
    buckets: Vec<u8>,
    /// The places of the tuples in large buckets.
    pub(super) places: Vec<u32>,
    /// The class of each of them.
    pub(super) class_of: Vec<u32>,
    slots: Vec<u32>,
    class_keys: Vec<u64>,
    /// Fresh rows per class.
    sizes: Vec<u32>,
    /// Whether the class satisfies the policy by itself.
    pub(super) good: Vec<bool>,
}

const EMPTY: u32 = u32::MAX;

impl NodeCounter {
    /// Groups `tuples` by what they show at `node`, judges the classes, and returns how many fresh rows the good ones have; 0, and no
    /// class, where classes of sufficient size have fewer than `wanted` rows together.
    pub(super) fn count(
        &mut self,
        (table, ladders): (&Table, &mut Ladders),
        judge: &mut Judge<'_>,
        tuples: &[u32],
        node: &Node,
        wanted: u64,
    ) -> u64 {
        self.pack(table, ladders, tuples, node);
        if self.find_places(table, tuples, judge.least) < wanted {
            self.places.clear();
        }
        self.number();
        self.sizes.clear();
        self.sizes.resize(self.class_keys.len(), 0);
        for (&class, &place) in self.class_of.iter().zip(&self.places) {
            self.sizes[class as usize] += table.count(tuples[place as usize]);
        }
        self.good.clear();
        self.good.extend(self.sizes.iter().map(|&size| size >= judge.least));
        let large = self.covered();
        if large < wanted {
            self.good.fill(false);
            return 0;
        }
        if judge.sizes_only { large } else { self.judge(judge, table, tuples) }
    }

    fn covered(&self) -> u64 {
        self.sizes.iter().zip(&self.good).filter(|(_, good)| **good).map(|(&size, _)| u64::from(size)).sum()
    }

    /// The keys of `tuples` at `node`.
    fn pack(&mut self, table: &Table, ladders: &mut Ladders, tuples: &[u32], node: &Node) {
        self.keys.clear();
        self.keys.resize(tuples.len(), 0);
        for round in 0..ladders.rounds.len() {
            if round > 0 {
                self.places.clear();
                self.places.extend(0..tuples.len() as u32);
                self.number();
                self.keys.clear();
                self.keys.extend(self.class_of.iter().map(|&class| u64::from(class)));
            }
            let parts = ladders.parts(round, node);
            for parts in parts.chunks(4) {
                let keys = &mut self.keys;
                match parts {
                    [a] => add_parts(keys, table, tuples, [a]),
                    [a, b] => add_parts(keys, table, tuples, [a, b]),
                    [a, b, c] => add_parts(keys, table, tuples, [a, b, c]),
                    [a, b, c, d] => add_parts(keys, table, tuples, [a, b, c, d]),
                    _ => {}
                }
            }
        }
    }

    /// Finds the tuples whose bucket has at least `least` rows, and returns how many rows they have.
    fn find_places(&mut self, table: &Table, tuples: &[u32], least: u32) -> u64 {
        let buckets = (self.keys.len() * 4).next_power_of_two().max(2);
        let shift = u64::BITS - buckets.trailing_zeros();
        self.buckets.clear();
        self.buckets.resize(buckets, 0);
        for (&key, &tuple) in self.keys.iter().zip(tuples) {
            let rows = &mut self.buckets[(spread(key) >> shift) as usize];
            *rows = rows.saturating_add(table.count(tuple).min(u32::from(u8::MAX)) as u8);
        }
        let least = least.min(u32::from(u8::MAX)) as u8;
        self.places.clear();
        let mut rows = 0;
        for (place, &key) in self.keys.iter().enumerate() {
            if self.buckets[(spread(key) >> shift) as usize] >= least {
                self.places.push(place as u32);
                rows += u64::from(table.count(tuples[place]));
            }
        }
        rows
    }

    /// Numbers the classes of the tuples in `places` in order of first appearance.
    fn number(&mut self) {
        let slots = (self.places.len() * 2).next_power_of_two().max(2);
        let shift = u64::BITS - slots.trailing_zeros();
        self.slots.clear();
        self.slots.resize(slots, EMPTY);
        self.class_keys.clear();
        self.class_of.clear();
        for &place in &self.places {
            let key = self.keys[place as usize];
            let mut at = (spread(key) >> shift) as usize;
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

    /// Judges the classes that are large enough by all rules, and returns how many fresh rows the good ones have.
    fn judge(&mut self, judge: &mut Judge<'_>, table: &Table, tuples: &[u32]) -> u64 {
        // Tuples of large classes, class by class.
        let mut ends = vec![0u32; self.good.len() + 1];
        for &class in self.class_of.iter().filter(|&&class| self.good[class as usize]) {
            ends[class as usize + 1] += 1;
        }
        (1..ends.len()).for_each(|class| ends[class] += ends[class - 1]);
        let mut grouped = vec![0u32; ends.last().map_or(0, |&all| all as usize)];
        for (&class, &place) in self.class_of.iter().zip(&self.places).filter(|(class, _)| self.good[**class as usize])
        {
            grouped[ends[class as usize] as usize] = tuples[place as usize];
            ends[class as usize] += 1;
        }
        let mut start = 0;
        for (good, &end) in self.good.iter_mut().zip(&ends) {
            *good = *good && judge.holds(table, &grouped[start as usize..end as usize]);
            start = end;
        }
        self.covered()
    }
}

/// Adds the parts of some groups to the keys. Their number is known to the compiler, so there is no loop over them.
fn add_parts<const N: usize>(keys: &mut [u64], table: &Table, tuples: &[u32], parts: [&(usize, Arc<[u64]>); N]) {
    let parts = parts.map(|(group, parts)| (*group, &**parts));
    for (key, &tuple) in keys.iter_mut().zip(tuples) {
        let joint = table.joint(tuple);
        *key = parts.iter().fold(*key, |key, (group, parts)| key | parts[joint[*group] as usize]);
    }
}

/// Spreads keys over the upper bits, by which slots and buckets are chosen.
#[inline]
fn spread(key: u64) -> u64 {
    (key ^ (key >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Judges classes by the rules that need nothing but the class.
pub(super) struct Judge<'a> {
    rules: &'a Rules,
    /// No class with fewer rows can satisfy them.
    least: u32,
    /// A number of records is all that they ask for.
    pub(super) sizes_only: bool,
    /// Some rule compares a class with everybody.
    compares: bool,
    subjects: Vec<u64>,
    pairs: Vec<(u64, Code)>,
    values: Vec<Code>,
    /// Per facet the codes and their counts.
    counts: Vec<CodeCounts>,
}

impl<'a> Judge<'a> {
    pub(super) fn new(rules: &'a Rules) -> Self {
        let counting = rules.counting();
        let more = judged(rules).any(|rule| rule.least_size().is_none());
        Self {
            rules,
            least: rules.least_size().max(1),
            sizes_only: !counting.subjects && !more,
            compares: rules.of(RuleScope::Within).next().is_some(),
            subjects: Vec::new(),
            pairs: Vec::new(),
            values: Vec::new(),
            counts: vec![Default::default(); counting.facets.len()],
        }
    }

    /// True if a class of these tuples satisfies the rules.
    pub(super) fn holds(&mut self, table: &Table, tuples: &[u32]) -> bool {
        let Some(size) = self.tally(table, tuples) else { return false };
        let rules = self.rules;
        let holds =
            |class: &Class<'_>, release: &Class<'_>| judged(rules).all(|rule| rule.meets(rule.measure(class, release)));
        let histograms = histograms(&self.counts);
        let class = Class { size, facets: &histograms };
        if !self.compares {
            return holds(&class, &class);
        }
        let everybody = table.everybody.get_or_init(|| {
            let all: Vec<u32> = (0..table.len() as u32).collect();
            let mut judge = Judge { least: 0, ..Judge::new(rules) };
            Everybody { people: judge.tally(table, &all).unwrap_or(0), facets: judge.counts }
        });
        let release = self::histograms(&everybody.facets);
        holds(&class, &Class { size: everybody.people, facets: &release })
    }

    /// Counts the people and the facets of some tuples; returns the number of people, or `None` if they are too few.
    fn tally(&mut self, table: &Table, tuples: &[u32]) -> Option<u32> {
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
            return None;
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
        Some(size as u32)
    }
}

/// The rules that classes are judged by: all but those about the release as a whole. A class that satisfies a rule about people who
/// know some attributes satisfies it whatever they know, for what they see is a union of such classes.
fn judged(rules: &Rules) -> impl Iterator<Item = &dyn Rule> {
    rules.iter().filter(|rule| rule.scope() != RuleScope::Release)
}

fn histograms(counts: &[CodeCounts]) -> Vec<Histogram<'_>> {
    counts.iter().map(|(codes, counts)| Histogram { codes, counts }).collect()
}
