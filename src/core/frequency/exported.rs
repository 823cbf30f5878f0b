//! The classes of a ledger as criteria and losses see them.
//!
//! Invariant: equal to the rollup of a full count, class by class, in the ledger's order. Who straddles classes is known only
//! after a full count, which is made if somebody asks for what depends on it.

use std::sync::{Arc, OnceLock};

use rustc_hash::FxHashMap;

use super::deferred::Deferred;
use super::key::{Field, Key};
use super::outline::Outline;
use super::rollup::{Expected, Groups, Step, rollup};
use super::set::{Classes, FrequencySet, GONE, Origin, Seen};
use super::tally::Tally;
use crate::model::counting::Histogram;
use crate::model::domain::Code;
use crate::model::lattice::Node;

/// Classes without those who straddle them, until somebody asks.
#[derive(Debug)]
pub(super) struct Exported<K> {
    set: FrequencySet<K>,
    finest: Arc<Deferred<K>>,
    /// From the finest codes to those of the node.
    steps: Vec<(Field, Vec<K>)>,
    /// True if subjects are counted.
    subjects: bool,
    complete: OnceLock<FrequencySet<K>>,
}

impl<K: Key> Exported<K> {
    pub(super) fn new(
        set: FrequencySet<K>,
        finest: Arc<Deferred<K>>,
        steps: Vec<(Field, Vec<K>)>,
        subjects: bool,
    ) -> Self {
        Self { set, finest, steps, subjects, complete: OnceLock::new() }
    }

    /// The same classes, in another order, with those who straddle them.
    fn complete(&self) -> &FrequencySet<K> {
        self.complete.get_or_init(|| {
            let steps: Vec<Step<'_, K>> = self.steps.iter().map(|(field, map)| Step { field: *field, map }).collect();
            let most = Expected::AtMost(self.set.keys.len());
            rollup(self.finest.set(), &self.set.node, &steps, most, &mut Groups::default())
        })
    }

    /// Where each of these classes is in the complete set.
    fn places(&self) -> Vec<usize> {
        let keys = self.complete().keys.iter().enumerate();
        let by_key: FxHashMap<&K, usize> = keys.map(|(at, key)| (key, at)).collect();
        self.set.keys.iter().map(|key| by_key[key]).collect()
    }
}

impl<K: Key> Classes for Exported<K> {
    fn node(&self) -> &Node {
        self.set.node()
    }
    fn len(&self) -> usize {
        self.set.len()
    }
    fn rows(&self) -> &[u32] {
        self.set.rows()
    }
    fn outline(&self, least: u32) -> Option<&Outline> {
        self.set.outline(least)
    }
    fn left_out(&self, least: u32) -> Option<&[Vec<u32>]> {
        self.set.left_out(least)
    }
    fn sizes(&self) -> &[u32] {
        self.set.sizes()
    }
    fn code(&self, class: usize, attribute: usize) -> Code {
        self.set.code(class, attribute)
    }
    fn cells(&self, class: usize, tables: &[&[f64]]) -> f64 {
        self.set.cells(class, tables)
    }
    fn marginals(&self, codes: &[usize]) -> Vec<Vec<u64>> {
        self.set.marginals(codes)
    }
    fn histogram(&self, facet: usize, class: usize) -> Histogram<'_> {
        self.set.histogram(facet, class)
    }
    fn tallies(&self) -> Vec<Tally> {
        if !self.subjects {
            return self.set.tallies();
        }
        let mut all: Vec<Option<Tally>> = self.complete().tallies().into_iter().map(Some).collect();
        self.places().into_iter().map(|at| all[at].take().unwrap_or_default()).collect()
    }
    fn origin(&self) -> Origin {
        Origin::RolledUp
    }
    fn seen_by(&self, published: &[bool], known: &[usize]) -> Seen {
        if !self.subjects {
            return self.set.seen_by(published, known);
        }
        let places = self.places();
        let mut shown = vec![false; published.len()];
        places.iter().zip(published).for_each(|(&at, &published)| shown[at] = published);
        let seen = self.complete().seen_by(&shown, known);
        let class_of = places.iter().map(|&at| seen.class_of.get(at).copied().unwrap_or(GONE)).collect();
        Seen { classes: seen.classes, class_of }
    }
}
