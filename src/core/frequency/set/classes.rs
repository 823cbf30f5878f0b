//! [`Classes`]: the view of a frequency set that criteria, losses and searches have. It hides the key type.

use super::small_classes::{Question, SmallClasses};
use super::tally::ClassTally;
use crate::model::counting::Histogram;
use crate::model::domain::Code;
use crate::model::lattice::Node;
use crate::model::recoding::GeneralizedValue;

/// What criteria and losses see of a frequency set, whatever its key type.
pub trait Classes: Send + Sync {
    /// The node these are the classes of; for a cut, the least node above it.
    fn node(&self) -> &Node;
    /// What the codes of an attribute stand for where it is published by a cut; `None` where they are the codes of the
    /// node's level.
    fn values(&self, _attribute: usize) -> Option<&[GeneralizedValue]> {
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
    /// The answer to a question about the classes that are left out. `None` where the set does not keep it: the question has a rule
    /// about histograms, or names another least size than the first question did.
    fn small_classes(&self, _question: &Question<'_>) -> Option<&SmallClasses> {
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
    /// How many different values each class has of one facet. `None` where the set does not tell them apart faster than by histograms.
    fn distinct_values(&self, _facet: usize) -> Option<Vec<u32>> {
        None
    }
    /// The counts of every class, to be merged class by class.
    fn tallies(&self) -> Vec<ClassTally>;
    /// The published classes as somebody sees them who knows only the attributes `known`; with none, that is one class of
    /// everything published. Exact for subjects too.
    fn seen_by(&self, published: &[bool], known: &[usize]) -> SeenClasses;
}

/// Published classes, merged where somebody cannot tell them apart.
pub struct SeenClasses {
    /// What they see.
    pub classes: Box<dyn Classes>,
    /// For each class, the one that it is part of there; [`GONE`](super::subjects::GONE) if it is not published.
    pub class_of: Vec<u32>,
}
