//! [`Finest`]: the frequency set of the finest node, at hand or made when somebody asks for its classes.
//!
//! A store that follows a sliding window is made without a full count. Its finest set is then known by its [`Totals`], which is all
//! that most searches ask of it: records, classes, and the records of every value. The classes are counted on demand.
//! Invariant: it equals the set counted at the moment of its store.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::classes::{Classes, SeenClasses};
use super::frequency_set::FrequencySet;
use super::small_classes::{Question, SmallClasses};
use super::tally::ClassTally;
use crate::frequency::key::{ClassKey, KeyField};
use crate::model::counting::Histogram;
use crate::model::domain::Code;
use crate::model::lattice::Node;

/// Makes the finest set.
pub(crate) type Make<K> = Box<dyn Fn() -> FrequencySet<K> + Send + Sync>;

/// The finest set.
pub(crate) struct Finest<K> {
    node: Node,
    /// What is known of the set before it is made, and how to make it; `None` if it was at hand.
    later: Option<(Totals, Make<K>)>,
    set: OnceLock<Arc<FrequencySet<K>>>,
}

impl<K: ClassKey> Finest<K> {
    /// At hand.
    pub(crate) fn made(set: FrequencySet<K>) -> Self {
        Self { node: set.node.clone(), later: None, set: OnceLock::from(Arc::new(set)) }
    }

    /// Made when somebody asks for its classes.
    pub(crate) fn later(node: Node, totals: Totals, make: Make<K>) -> Self {
        Self { node, later: Some((totals, make)), set: OnceLock::new() }
    }

    /// True if its classes are at hand.
    pub(crate) fn is_made(&self) -> bool {
        self.set.get().is_some()
    }

    /// Its classes.
    pub(crate) fn set(&self) -> &Arc<FrequencySet<K>> {
        self.set.get_or_init(|| match &self.later {
            Some((_, make)) => Arc::new(make()),
            // Unreachable: a set without a way to make it is at hand.
            None => Arc::new(FrequencySet::of_records(self.node.clone(), Vec::new(), Vec::new(), Vec::new())),
        })
    }

    fn totals(&self) -> Option<&Totals> {
        self.later.as_ref().map(|(totals, _)| totals)
    }
}

impl<K> fmt::Debug for Finest<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finest").field("node", &self.node).finish_non_exhaustive()
    }
}

impl<K: ClassKey> Classes for Finest<K> {
    fn node(&self) -> &Node {
        &self.node
    }
    fn len(&self) -> usize {
        self.totals().map_or_else(|| self.set().len(), |totals| totals.classes)
    }
    fn rows(&self) -> &[u32] {
        self.set().rows()
    }
    fn records(&self) -> u64 {
        self.totals().map_or_else(|| self.set().records(), |totals| totals.records)
    }
    fn small_classes(&self, question: &Question<'_>) -> Option<&SmallClasses> {
        self.set().small_classes(question)
    }
    fn sizes(&self) -> &[u32] {
        self.set().sizes()
    }
    fn code(&self, class: usize, attribute: usize) -> Code {
        self.set().code(class, attribute)
    }
    fn cells(&self, class: usize, tables: &[&[f64]]) -> f64 {
        self.set().cells(class, tables)
    }
    fn marginals(&self, codes: &[usize]) -> Vec<Vec<u64>> {
        self.totals().map_or_else(|| self.set().marginals(codes), |totals| totals.marginals(codes))
    }
    fn histogram(&self, facet: usize, class: usize) -> Histogram<'_> {
        self.set().histogram(facet, class)
    }
    fn distinct_values(&self, facet: usize) -> Option<Vec<u32>> {
        self.set().distinct_values(facet)
    }
    fn tallies(&self) -> Vec<ClassTally> {
        self.set().tallies()
    }
    fn seen_by(&self, published: &[bool], known: &[usize]) -> SeenClasses {
        self.set().seen_by(published, known)
    }
}

/// Figures that follow changes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Totals {
    pub(crate) records: u64,
    /// Tuples that have records.
    pub(crate) classes: usize,
    /// Records by attribute and code.
    pub(crate) marginals: Vec<Vec<u64>>,
}

impl Totals {
    /// Records more or less of a tuple.
    pub(crate) fn count<K: ClassKey>(&mut self, key: &K, fields: &[KeyField], by: i32) {
        self.records = self.records.wrapping_add_signed(i64::from(by));
        for (marginal, &field) in self.marginals.iter_mut().zip(fields) {
            let code = key.get(field) as usize;
            if marginal.len() <= code {
                marginal.resize(code + 1, 0);
            }
            marginal[code] = marginal[code].wrapping_add_signed(i64::from(by));
        }
    }

    /// The records by attribute and code; `codes` says how many an attribute has.
    pub(crate) fn marginals(&self, codes: &[usize]) -> Vec<Vec<u64>> {
        let mut marginals = self.marginals.clone();
        marginals.iter_mut().zip(codes).for_each(|(marginal, &codes)| marginal.resize(codes, 0));
        marginals
    }
}
