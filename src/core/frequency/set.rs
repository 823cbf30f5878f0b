//! A [`FrequencySet`]: the classes of one node with their counts, and a histogram per facet and class.
//!
//! A facet is a column that a criterion or a loss wants counted inside each class (a sensitive field, the label).
//! Invariant: `sizes` counts distinct subjects exactly. A subject with records in several classes of this set is a
//! straddler: it is listed with its classes, so that a coarser set can count it once wherever they merge.

use std::sync::{Arc, OnceLock};

use super::key::{Field, Key};
use super::marginal;
use super::outline::{self, Outline};
use super::tally::{self, Tally};
use crate::model::counting::Histogram;
use crate::model::domain::Code;
use crate::model::lattice::Node;
use crate::model::recoding::Value;

/// Where a frequency set came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Counted from rows.
    Scanned,
    /// Summed from a finer set.
    RolledUp,
}

/// What criteria and losses see of a frequency set, whatever its key type.
pub trait Classes: Send + Sync {
    /// The node these are the classes of; for a cut, the least node above it.
    fn node(&self) -> &Node;
    /// What the codes of an attribute stand for where it is published by a cut; `None` where they are the codes of the
    /// node's level.
    fn values(&self, _attribute: usize) -> Option<&[Value]> {
        None
    }
    /// How many classes there are.
    fn len(&self) -> usize;
    /// True if there is no class.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Records per class.
    fn rows(&self) -> &[u32];
    /// Records in all classes.
    fn records(&self) -> u64 {
        self.rows().iter().map(|&rows| u64::from(rows)).sum()
    }
    /// What the sizes of the classes say about a least one by themselves, where that is kept.
    fn outline(&self, _least: u32) -> Option<&Outline> {
        None
    }
    /// The records in classes below a least size, by attribute and code, where that is kept. Codes behind the last have none.
    fn left_out(&self, _least: u32) -> Option<&[Vec<u32>]> {
        None
    }
    /// Distinct subjects per class (records, when no subject is configured).
    fn sizes(&self) -> &[u32];
    /// The generalized code of one attribute in one class.
    fn code(&self, class: usize, attribute: usize) -> Code;
    /// The sum over all attributes of `tables[attribute][code]` for one class.
    fn cells(&self, class: usize, tables: &[&[f64]]) -> f64;
    /// Records by attribute and code; `codes` says how many an attribute has.
    fn marginals(&self, codes: &[usize]) -> Vec<Vec<u64>>;
    /// The histogram of one facet in one class.
    fn histogram(&self, facet: usize, class: usize) -> Histogram<'_>;
    /// The counts of every class, to be merged class by class.
    fn tallies(&self) -> Vec<Tally>;
    /// How it was made.
    fn origin(&self) -> Origin;
    /// The published classes as somebody sees them who knows only the attributes `known`; with none, that is one class of
    /// everything published. Exact for subjects too.
    fn seen_by(&self, published: &[bool], known: &[usize]) -> Seen;
}

/// Published classes, merged where somebody cannot tell them apart.
pub struct Seen {
    /// What they see.
    pub classes: Box<dyn Classes>,
    /// For each class, the one that it is part of there; [`GONE`] if it is not published.
    pub class_of: Vec<u32>,
}

/// In a map from slots to slots: leads nowhere.
pub const GONE: u32 = u32::MAX;

/// Lists of indices, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lists {
    starts: Vec<u32>,
    items: Vec<u32>,
}

impl Default for Lists {
    fn default() -> Self {
        Self { starts: vec![0], items: Vec::new() }
    }
}

impl Lists {
    pub(super) fn push(&mut self, list: &[u32]) {
        self.items.extend_from_slice(list);
        self.starts.push(self.items.len() as u32);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u32]> {
        self.starts.windows(2).map(|w| &self.items[w[0] as usize..w[1] as usize])
    }
}

/// Counts of subjects over some slots (classes, or histogram entries): those in one slot only, and the straddlers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Subjects {
    pub(super) single: Vec<u32>,
    pub(super) straddlers: Lists,
}

impl Subjects {
    pub(super) fn new(slots: usize) -> Self {
        Self { single: vec![0; slots], straddlers: Lists::default() }
    }

    /// Adds a subject that occurs in `slots`, which is sorted and deduplicated in place.
    pub(super) fn add(&mut self, slots: &mut Vec<u32>) {
        slots.sort_unstable();
        slots.dedup();
        match slots.as_slice() {
            [] => {}
            [slot] => self.single[*slot as usize] += 1,
            several => self.straddlers.push(several),
        }
    }

    /// The same subjects after slot i became slot `map[i]`, or was left out if that is [`GONE`].
    pub(super) fn merge(&self, map: &[u32], slots: usize) -> Self {
        let mut merged = Self::new(slots);
        for (&count, &to) in self.single.iter().zip(map).filter(|(_, to)| **to != GONE) {
            merged.single[to as usize] += count;
        }
        let mut list = Vec::new();
        for straddler in self.straddlers.iter() {
            list.clear();
            list.extend(straddler.iter().map(|&slot| map[slot as usize]).filter(|&to| to != GONE));
            merged.add(&mut list);
        }
        merged
    }

    /// Distinct subjects per slot.
    pub(super) fn totals(&self) -> Vec<u32> {
        let mut totals = self.single.clone();
        for straddler in self.straddlers.iter() {
            for &slot in straddler {
                totals[slot as usize] += 1;
            }
        }
        totals
    }
}

/// One facet's histograms, class by class. Within a class codes are ascending.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FacetCounts {
    pub(super) starts: Vec<u32>,
    pub(super) codes: Vec<Code>,
    /// Distinct subjects (or records) per entry.
    pub(super) counts: Vec<u32>,
    /// Present only when subjects are counted; its slots are the entries.
    pub(super) subjects: Option<Subjects>,
}

impl FacetCounts {
    /// The entries of one class.
    pub(super) fn range(&self, class: usize) -> std::ops::Range<usize> {
        self.starts[class] as usize..self.starts[class + 1] as usize
    }
}

/// The histograms of a set, one [`FacetCounts`] per facet.
#[derive(Debug)]
pub(super) enum Facets<K> {
    /// Merged with the classes.
    Now(Vec<FacetCounts>),
    /// To be merged when first asked for.
    Later(Box<Later<K>>),
}

/// What histograms are to be merged from.
#[derive(Debug)]
pub(super) struct Later<K> {
    pub(super) finer: Arc<FrequencySet<K>>,
    /// For each class of `finer` the one it is part of.
    pub(super) class_of: Vec<u32>,
    pub(super) classes: usize,
    pub(super) merged: OnceLock<Vec<FacetCounts>>,
}

impl<K> Default for Facets<K> {
    fn default() -> Self {
        Self::Now(Vec::new())
    }
}

impl<K> Facets<K> {
    /// True if anything is counted inside the classes.
    pub(super) fn any(&self) -> bool {
        match self {
            Self::Now(facets) => !facets.is_empty(),
            Self::Later(_) => true,
        }
    }

    pub(super) fn get(&self) -> &[FacetCounts] {
        match self {
            Self::Now(facets) => facets,
            Self::Later(later) => later
                .merged
                .get_or_init(|| super::rollup::merge_facets(later.finer.facets.get(), &later.class_of, later.classes)),
        }
    }
}

/// The classes of one node.
#[derive(Debug)]
pub struct FrequencySet<K> {
    pub(super) node: Node,
    /// Per attribute the values of its cut; empty for a node.
    pub(super) values: Vec<Option<Arc<[Value]>>>,
    pub(super) origin: Origin,
    pub(super) fields: Vec<Field>,
    pub(super) keys: Vec<K>,
    pub(super) rows: Vec<u32>,
    /// Distinct subjects; absent where they are not counted, and records are.
    pub(super) sizes: Option<Vec<u32>>,
    /// Present only when subjects are counted; its slots are the classes.
    pub(super) subjects: Option<Subjects>,
    pub(super) facets: Facets<K>,
    pub(super) outline: OnceLock<Outline>,
    pub(super) marginals: OnceLock<Vec<Vec<u64>>>,
    pub(super) ascends: OnceLock<u32>,
}

impl<K: Key> FrequencySet<K> {
    /// Classes of which nothing but records is counted.
    pub(super) fn of_records(node: Node, origin: Origin, fields: Vec<Field>, keys: Vec<K>, rows: Vec<u32>) -> Self {
        let (sizes, subjects, facets) = (None, None, Facets::default());
        let (outline, marginals, ascends) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        let values = Vec::new();
        Self { node, values, origin, fields, keys, rows, sizes, subjects, facets, outline, marginals, ascends }
    }

    /// From which bit on its keys ascend, so that those that agree in all bits from there on lie together.
    pub(super) fn ascends_from(&self) -> u32 {
        if size_of::<K>() > size_of::<u64>() {
            return u32::MAX;
        }
        let falls = |pair: &[K]| if pair[0] > pair[1] { pair[0].word() ^ pair[1].word() } else { 0 };
        *self
            .ascends
            .get_or_init(|| u64::BITS - self.keys.windows(2).fold(0, |all, pair| all | falls(pair)).leading_zeros())
    }

    /// The class keys, in no particular order.
    pub fn keys(&self) -> &[K] {
        &self.keys
    }

    /// About how many bytes it holds.
    pub fn bytes(&self) -> usize {
        let per_class = size_of::<K>() + size_of::<u32>() * if self.subjects.is_some() { 3 } else { 1 };
        let facets = match &self.facets {
            Facets::Now(facets) => facets.iter().map(|f| f.codes.len()).sum::<usize>() * 2,
            Facets::Later(later) => later.class_of.len(),
        };
        self.keys.len() * per_class + facets * size_of::<u32>()
    }
}

impl<K: Key> Classes for FrequencySet<K> {
    fn node(&self) -> &Node {
        &self.node
    }
    fn values(&self, attribute: usize) -> Option<&[Value]> {
        self.values.get(attribute)?.as_deref()
    }
    fn len(&self) -> usize {
        self.keys.len()
    }
    fn rows(&self) -> &[u32] {
        &self.rows
    }
    fn sizes(&self) -> &[u32] {
        self.sizes.as_deref().unwrap_or(&self.rows)
    }
    fn outline(&self, least: u32) -> Option<&Outline> {
        let outline = self.outline.get_or_init(|| match &self.sizes {
            Some(sizes) => Outline::of(self.rows.iter().copied().zip(sizes.iter().copied()), least),
            None => Outline::of_records(&self.rows, least),
        });
        (outline.least() == least).then_some(outline)
    }
    fn left_out(&self, least: u32) -> Option<&[Vec<u32>]> {
        let classes = || self.keys.iter().copied().zip(self.rows.iter().copied()).zip(self.sizes());
        let small = || classes().filter(|(_, size)| **size < least).map(|(class, _)| class);
        self.outline(least).map(|outline| outline.cells(|| outline::cells(&self.fields, small())))
    }
    fn code(&self, class: usize, attribute: usize) -> Code {
        self.keys[class].get(self.fields[attribute])
    }
    fn cells(&self, class: usize, tables: &[&[f64]]) -> f64 {
        let key = &self.keys[class];
        self.fields.iter().zip(tables).map(|(&field, table)| table[key.get(field) as usize]).sum()
    }
    fn marginals(&self, codes: &[usize]) -> Vec<Vec<u64>> {
        let count = || marginal::marginals(&self.fields, &self.keys, &self.rows, codes);
        let mut marginals = self.marginals.get_or_init(count).clone();
        marginals.iter_mut().zip(codes).for_each(|(marginal, &codes)| marginal.resize(codes, 0));
        marginals
    }
    fn histogram(&self, facet: usize, class: usize) -> Histogram<'_> {
        let facet = &self.facets.get()[facet];
        let range = facet.range(class);
        Histogram { codes: &facet.codes[range.clone()], counts: &facet.counts[range] }
    }
    fn tallies(&self) -> Vec<Tally> {
        tally::tallies(&self.rows, self.sizes(), self.subjects.as_ref(), self.facets.get())
    }
    fn origin(&self) -> Origin {
        self.origin
    }
    fn seen_by(&self, published: &[bool], known: &[usize]) -> Seen {
        super::rollup::seen_by(self, published, known)
    }
}
