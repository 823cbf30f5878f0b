//! Information loss: one metric per file. Each says what a node costs, and from below what it must cost at least.
//!
//! Losses count records, also where classes count subjects: it is records that lose information.
//! To add one: a variant of [`Loss`] in the policy, a file here, an arm in [`metric`].

mod aecs;
mod cells;
mod cm;
mod dm;
mod entropy;
mod published;
mod ql;
mod score;

use std::borrow::Cow;
use std::sync::Arc;

pub use published::{of_rows, of_rows_by, published};
pub use ql::Quality;

use crate::frequency::set::Classes;
use crate::model::counting::Facet;
use crate::model::domain::DomainView;
use crate::model::lattice::Node;
use crate::model::policy::{Loss, Policy};

/// The name of the sum of `glm` over all cells, as papers print it.
pub const RAW_GLM: &str = "glm_raw";

/// One counted node: its classes, and which of them are published.
pub struct Counted<'a> {
    /// The classes.
    pub classes: &'a dyn Classes,
    /// Whether class i is published; the others are suppressed or held.
    pub published: &'a [bool],
    /// Records in the window.
    pub records: u64,
}

impl Counted<'_> {
    /// The classes that are left out.
    pub fn suppressed(&self) -> impl Iterator<Item = usize> + '_ {
        self.published.iter().enumerate().filter(|(_, p)| !**p).map(|(class, _)| class)
    }
}

/// A metric at work on one window.
pub trait LossMetric: Send + Sync {
    /// The loss of the node; lower is better, 0 is no loss.
    fn loss(&self, node: &Counted<'_>) -> f64;
    /// The least loss of the node, known without counting it. Never decreases from a node to one above it.
    fn lower_bound(&self, node: &Node) -> f64;
    /// The lower bound as a sum of one figure by attribute and level, where it is one; then a node's loss is that sum plus
    /// what its classes that are left out add to it, see [`LossMetric::forced`].
    fn columns(&self) -> Option<&[Vec<f64>]> {
        None
    }
    /// The least that the classes left out here add to the lower bound of this node, and of every finer one that
    /// leaves out their records too.
    fn forced(&self, _node: &Counted<'_>) -> f64 {
        0.0
    }
    /// The amount that leaving out one cell adds to the lower bound, by attribute, level and code, where [`LossMetric::forced`] is the
    /// sum of that over all cells left out, and [`LossMetric::bound_above`] says nothing.
    fn added(&self) -> Option<&[Vec<Vec<f64>>]> {
        None
    }
    /// The least loss of every node above this one, known once this one is counted.
    fn bound_above(&self, _node: &Counted<'_>) -> f64 {
        0.0
    }
}

/// The metric `loss` for a window whose finest classes are `base`.
pub fn metric(
    loss: Loss,
    policy: &Policy,
    domains: &[Arc<DomainView>],
    base: &Arc<dyn Classes>,
) -> Box<dyn LossMetric> {
    let finest = Arc::clone(base);
    let base = &**base;
    match loss {
        Loss::Glm => Box::new(cells::CellLoss::glm(policy, domains, base)),
        Loss::Precision => Box::new(cells::CellLoss::precision(policy, domains, base)),
        Loss::Dm => Box::new(dm::Dm::new(domains, base)),
        Loss::Cm => {
            let facet = Facet::of(policy).into_iter().position(|f| f == Facet::Label);
            Box::new(cm::Cm::new(facet, finest))
        }
        Loss::Score => Box::new(score::Score::new(policy, domains, base)),
        Loss::Ql => Box::new(ql::Ql { quality: Quality::new(policy), domains: domains.to_vec() }),
        Loss::Entropy => Box::new(entropy::Entropy::new(policy, domains, base)),
        Loss::Aecs => Box::new(aecs::Aecs::new(policy.k(), domains, base)),
    }
}

/// For each attribute and level, how many different values occur in the window.
fn distinct_values(domains: &[Arc<DomainView>], base: &dyn Classes) -> Vec<Vec<u64>> {
    let of = |(marginal, view): (Vec<u64>, &Arc<DomainView>)| {
        let seen: Vec<bool> = marginal.into_iter().map(|rows| rows > 0).collect();
        (0..=view.height())
            .map(|level| {
                let map = view.between(0, level);
                let mut above = vec![false; view.level(level).len()];
                seen.iter().zip(&map).filter(|(s, _)| **s).for_each(|(_, &code)| above[code as usize] = true);
                above.iter().filter(|s| **s).count() as u64
            })
            .collect()
    };
    marginals(domains, base).into_iter().zip(domains).map(of).collect()
}

/// The records of the window by attribute and leaf.
fn marginals(domains: &[Arc<DomainView>], base: &dyn Classes) -> Vec<Vec<u64>> {
    base.marginals(&domains.iter().map(|view| view.leaf_count()).collect::<Vec<_>>())
}

/// Per attribute what `cost` (by attribute, level and code) says of each published code; owned where a cut is published.
fn by_published_code<'c>(cost: &'c [Vec<Vec<f64>>], classes: &dyn Classes) -> Vec<Cow<'c, [f64]>> {
    let table = |(attribute, (cost, &level)): (usize, (&'c Vec<Vec<f64>>, &u8))| match classes.values(attribute) {
        Some(cut) => Cow::Owned(cut.iter().map(|v| cost[usize::from(v.level)][v.code as usize]).collect()),
        None => Cow::Borrowed(cost[usize::from(level)].as_slice()),
    };
    cost.iter().zip(classes.node().levels()).enumerate().map(table).collect()
}

/// The number of classes that a node can have at most: the product of its attributes' distinct values, or one per record.
fn most_classes(distinct: &[Vec<u64>], node: &Node, records: u64) -> u64 {
    let product = node.levels().iter().zip(distinct).map(|(&l, d)| d[usize::from(l)]).fold(1, u64::saturating_mul);
    product.clamp(1, records.max(1))
}
