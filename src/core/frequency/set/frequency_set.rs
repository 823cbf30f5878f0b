//! A [`FrequencySet`]: the classes of one node with their counts, and a histogram per facet and class.
//!
//! Invariant: sizes count distinct subjects exactly. A subject with records in several classes of this set is a straddler: it is
//! listed with its classes, so that a coarser set counts it once wherever they merge.

use std::sync::{Arc, OnceLock};

use super::classes::{Classes, SeenClasses};
use super::facets::Facets;
use super::marginals;
use super::small_classes::{self, Question, SmallClasses};
use super::subjects::{GONE, People};
use super::tally::{self, ClassTally};
use crate::frequency::key::{ClassKey, KeyField};
use crate::frequency::sum::{FinerClasses, Summed, Sums};
use crate::model::counting::Histogram;
use crate::model::domain::Code;
use crate::model::lattice::Node;
use crate::model::recoding::GeneralizedValue;

/// The classes of one node.
#[derive(Debug)]
pub(crate) struct FrequencySet<K> {
    pub(crate) node: Node,
    /// Per attribute the values of its cut; empty for a node.
    pub(crate) values: Vec<Option<Arc<[GeneralizedValue]>>>,
    pub(crate) fields: Vec<KeyField>,
    pub(crate) keys: Vec<K>,
    pub(crate) rows: Vec<u32>,
    /// Distinct subjects; absent where they are not counted, and records are.
    pub(crate) people: Option<Arc<People>>,
    pub(crate) facets: Arc<Facets>,
    pub(crate) small: OnceLock<SmallClasses>,
    pub(crate) marginals: OnceLock<Vec<Vec<u64>>>,
    pub(crate) ascends: OnceLock<u32>,
}

impl<K: ClassKey> FrequencySet<K> {
    /// Classes of which nothing but records is counted.
    pub(crate) fn of_records(node: Node, fields: Vec<KeyField>, keys: Vec<K>, rows: Vec<u32>) -> Self {
        let (people, facets) = (None, Arc::default());
        let (small, marginals, ascends) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let values = Vec::new();
        Self { node, values, fields, keys, rows, people, facets, small, marginals, ascends }
    }

    /// From which bit on its keys ascend, so that those that agree in all bits from there on lie together.
    pub(crate) fn ascends_from(&self) -> u32 {
        if size_of::<K>() > size_of::<u64>() {
            return u32::MAX;
        }
        let falls = |pair: &[K]| if pair[0] > pair[1] { pair[0].word() ^ pair[1].word() } else { 0 };
        *self
            .ascends
            .get_or_init(|| u64::BITS - self.keys.windows(2).fold(0, |all, pair| all | falls(pair)).leading_zeros())
    }

    /// The classes to be added up.
    pub(crate) fn input(&self) -> FinerClasses<'_, K> {
        FinerClasses { fields: &self.fields, keys: &self.keys, rows: &self.rows, ascends_from: self.ascends_from() }
    }

    /// The coarser classes that those of `finer` were added up to.
    pub(crate) fn merged_of(finer: &Self, node: Node, summed: Summed<K>) -> Self {
        let Summed { keys, rows, class_of } = summed;
        let class_of = Arc::new(class_of);
        let people = finer.people.as_ref().and_then(|people| people.merged_later(&class_of, rows.len()));
        let facets = finer.facets.merged_later(&class_of, rows.len());
        Self { people, facets, ..Self::of_records(node, finer.fields.clone(), keys, rows) }
    }

    /// The published classes with all attributes made one that are not `known`.
    fn merged(&self, published: &[bool], known: &[usize]) -> SeenClasses {
        let shown = || (0..self.keys.len()).filter(|&class| published[class]);
        let mut keep = K::ZERO;
        known
            .iter()
            .for_each(|&attribute| keep = keep.or(K::of(self.fields[attribute], self.fields[attribute].ones())));
        let keys: Vec<K> = shown().map(|class| self.keys[class].and(keep)).collect();
        let rows: Vec<u32> = shown().map(|class| self.rows[class]).collect();
        let input = FinerClasses { fields: &self.fields, keys: &keys, rows: &rows, ascends_from: u32::MAX };
        let Summed { keys, rows, class_of: seen } = Sums::default().sum(&input, &[], None, true);
        let mut class_of = vec![GONE; self.keys.len()];
        shown().zip(seen).for_each(|(class, seen)| class_of[class] = seen);
        let summed = Summed { keys, rows, class_of: class_of.clone() };
        let classes = Self::merged_of(self, self.node.clone(), summed);
        SeenClasses { classes: Box::new(classes), class_of }
    }

    /// The classes that are small by their records, where these alone are more than a question goes into: no class has more people
    /// than records, and none that a rule shows is smaller.
    pub(crate) fn fails_by_records(&self, question: &Question<'_>) -> Option<SmallClasses> {
        let is_counted = question.rule.is_none() && self.people.as_ref().is_none_or(|people| !people.is_pending());
        let most = question.cells_up_to.filter(|_| !is_counted)?;
        Some(SmallClasses::of_records(&self.rows, question.least)).filter(|small| small.left_out() > most)
    }

    /// About how many bytes it holds.
    pub(crate) fn bytes(&self) -> usize {
        let per_class = size_of::<K>() + size_of::<u32>() * if self.people.is_some() { 3 } else { 1 };
        self.keys.len() * per_class + self.facets.bytes()
    }
}

impl<K: ClassKey> Classes for FrequencySet<K> {
    fn node(&self) -> &Node {
        &self.node
    }
    fn values(&self, attribute: usize) -> Option<&[GeneralizedValue]> {
        self.values.get(attribute)?.as_deref()
    }
    fn len(&self) -> usize {
        self.keys.len()
    }
    fn rows(&self) -> &[u32] {
        &self.rows
    }
    fn sizes(&self) -> &[u32] {
        self.people.as_ref().map_or(&self.rows, |people| people.sizes())
    }
    fn small_classes(&self, question: &Question<'_>) -> Option<&SmallClasses> {
        let least = question.least;
        let small = self.small.get_or_init(|| match &self.people {
            Some(people) => SmallClasses::of(self.rows.iter().copied().zip(people.sizes().iter().copied()), least),
            None => SmallClasses::of_records(&self.rows, least),
        });
        if small.least() != least || question.rule.is_some() {
            return None;
        }
        if question.wants_cells(small.left_out()) {
            let classes = self.keys.iter().copied().zip(self.rows.iter().copied()).zip(self.sizes());
            let below = || classes.filter(|(_, size)| **size < least).map(|(class, _)| class);
            small.cells(|| small_classes::cells(&self.fields, below()));
        }
        Some(small)
    }
    fn code(&self, class: usize, attribute: usize) -> Code {
        self.keys[class].get(self.fields[attribute])
    }
    fn cells(&self, class: usize, tables: &[&[f64]]) -> f64 {
        let key = &self.keys[class];
        self.fields.iter().zip(tables).map(|(&field, table)| table[key.get(field) as usize]).sum()
    }
    fn marginals(&self, codes: &[usize]) -> Vec<Vec<u64>> {
        let count = || marginals::marginals(&self.fields, &self.keys, &self.rows, codes);
        let mut marginals = self.marginals.get_or_init(count).clone();
        marginals.iter_mut().zip(codes).for_each(|(marginal, &codes)| marginal.resize(codes, 0));
        marginals
    }
    fn histogram(&self, facet: usize, class: usize) -> Histogram<'_> {
        let facet = &self.facets.get()[facet];
        let range = facet.range(class);
        Histogram { codes: &facet.codes[range.clone()], counts: &facet.counts[range] }
    }
    fn distinct_values(&self, facet: usize) -> Option<Vec<u32>> {
        Some(self.facets.occurring(facet)?.values().collect())
    }
    fn tallies(&self) -> Vec<ClassTally> {
        let subjects = self.people.as_ref().and_then(|people| people.subjects());
        tally::tallies(&self.rows, self.sizes(), subjects, self.facets.get())
    }
    fn seen_by(&self, published: &[bool], known: &[usize]) -> SeenClasses {
        self.merged(published, known)
    }
}
