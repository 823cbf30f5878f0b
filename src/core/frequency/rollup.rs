//! Rollup: the frequency set of a coarser node as the sum of a finer one. Pure; it never looks at a row.
//!
//! Invariant: the result equals a count of the rows at the coarser node, subjects and histograms included.

use super::key::ClassKey;
use super::set::FrequencySet;
use super::sum::{Codes, Step, Sums};
use crate::model::lattice::Node;

/// Rolls `finer` up to `node`; `steps` holds the attributes whose level differs, and `codes` how many codes they have, where that is
/// known.
pub(super) fn rollup<K: ClassKey>(
    finer: &FrequencySet<K>,
    node: &Node,
    steps: &[Step<'_, K>],
    codes: Option<Codes<'_>>,
    sums: &mut Sums<K>,
) -> FrequencySet<K> {
    let note = finer.people.is_some() || finer.facets.any();
    let summed = sums.sum(&finer.input(), steps, codes, note);
    FrequencySet::merged_of(finer, node.clone(), summed)
}
