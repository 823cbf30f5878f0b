//! [`FollowedClasses`]: the classes of followed node counts as criteria and losses see them.
//!
//! Invariant: equal to the rollup of a full count, class by class, in the order of the node counts. Who straddles classes is known only
//! after a full count, which is made if somebody asks for what depends on it.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::frequency::key::ClassKey;
use crate::frequency::set::{ClassTally, Classes, FrequencySet, GONE, Question, SeenClasses, SmallClasses};
use crate::frequency::store::FrequencyStore;
use crate::model::counting::Histogram;
use crate::model::domain::Code;
use crate::model::lattice::Node;

/// Classes without those who straddle them, until somebody asks.
pub(crate) struct FollowedClasses<K> {
    set: FrequencySet<K>,
    /// Counts everything, if need be.
    store: Arc<FrequencyStore<K>>,
    /// True if subjects are counted.
    subjects: bool,
}

impl<K: ClassKey> FollowedClasses<K> {
    pub(crate) fn new(set: FrequencySet<K>, store: Arc<FrequencyStore<K>>, subjects: bool) -> Self {
        Self { set, store, subjects }
    }

    /// The same classes with those who straddle them, and where each of these classes is there.
    fn complete(&self) -> (Arc<FrequencySet<K>>, Vec<usize>) {
        let complete = self.store.get(self.set.node());
        let by_key: FxHashMap<K, usize> = complete.keys.iter().enumerate().map(|(at, key)| (*key, at)).collect();
        let places = self.set.keys.iter().map(|key| by_key[key]).collect();
        (complete, places)
    }
}

impl<K: ClassKey> Classes for FollowedClasses<K> {
    fn node(&self) -> &Node {
        self.set.node()
    }
    fn len(&self) -> usize {
        self.set.len()
    }
    fn rows(&self) -> &[u32] {
        self.set.rows()
    }
    fn small_classes(&self, question: &Question<'_>) -> Option<&SmallClasses> {
        self.set.small_classes(question)
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
    fn distinct_values(&self, facet: usize) -> Option<Vec<u32>> {
        self.set.distinct_values(facet)
    }
    fn tallies(&self) -> Vec<ClassTally> {
        if !self.subjects {
            return self.set.tallies();
        }
        let (complete, places) = self.complete();
        let mut all: Vec<Option<ClassTally>> = complete.tallies().into_iter().map(Some).collect();
        places.into_iter().map(|at| all[at].take().unwrap_or_default()).collect()
    }
    fn seen_by(&self, published: &[bool], known: &[usize]) -> SeenClasses {
        if !self.subjects {
            return self.set.seen_by(published, known);
        }
        let (complete, places) = self.complete();
        let mut shown = vec![false; published.len()];
        places.iter().zip(published).for_each(|(&at, &published)| shown[at] = published);
        let seen = complete.seen_by(&shown, known);
        let class_of = places.iter().map(|&at| seen.class_of.get(at).copied().unwrap_or(GONE)).collect();
        SeenClasses { classes: seen.classes, class_of }
    }
}
