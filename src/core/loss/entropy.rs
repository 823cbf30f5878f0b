//! `entropy`, non-uniform entropy (Gionis, Tassa 2007): what a reader of the release still has to guess about each cell.
//!
//! A cell whose value v was generalized to c costs log(n(c) / n(v)), counts taken over the window; suppressed it costs
//! log(n / n(v)). Summed over a column that is suppressed throughout, this is the attribute's full entropy, by which its
//! cost is divided; the loss is the weighted mean over attributes. What suppression adds to a cell, log(n / n(c)), does not
//! depend on v, so the classes are enough to know the loss exactly.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Counted, LossMetric, by_published_code, marginals};
use crate::frequency::set::Classes;
use crate::model::domain::DomainView;
use crate::model::lattice::Node;
use crate::model::policy::Policy;

pub(super) struct Entropy {
    /// The mean cost of one cell by attribute, level and code, normalised and weighted.
    cost: Vec<Vec<Vec<f64>>>,
    /// The whole window at one level of one attribute, in the same unit.
    column: Vec<Vec<f64>>,
    /// The cost that suppression adds to one cell, by attribute, level and code, in the same unit.
    added: Vec<Vec<Vec<f64>>>,
}

impl Entropy {
    pub(super) fn new(policy: &Policy, domains: &[Arc<DomainView>], base: &dyn Classes) -> Self {
        let total_weight: f64 = policy.quasi.iter().map(|q| q.weight).sum();
        let records: f64 = base.records() as f64;
        let (mut cost, mut column, mut added) = (Vec::new(), Vec::new(), Vec::new());
        for ((view, quasi), marginal) in domains.iter().zip(&policy.quasi).zip(marginals(domains, base)) {
            let leaves: Vec<f64> = marginal.into_iter().map(|rows| rows as f64).collect();
            let full: f64 = leaves.iter().filter(|n| **n > 0.0).map(|n| n * (records / n).ln()).sum();
            // A column of one value has nothing to lose.
            let unit = if full > 0.0 { quasi.weight / (total_weight * full) } else { 0.0 };
            let (mut means, mut sums, mut extras) = (Vec::new(), Vec::new(), Vec::new());
            for level in 0..=view.height() {
                let map = view.between(0, level);
                let mut counts = vec![0.0f64; view.level(level).len()];
                leaves.iter().zip(&map).for_each(|(n, &code)| counts[code as usize] += n);
                let mut lost = vec![0.0f64; counts.len()];
                for (&n, &code) in leaves.iter().zip(&map).filter(|(n, _)| **n > 0.0) {
                    lost[code as usize] += n * (counts[code as usize] / n).ln() * unit;
                }
                sums.push(lost.iter().sum());
                means.push(lost.iter().zip(&counts).map(|(lost, n)| lost / n.max(1.0)).collect());
                let extra = |&n: &f64| if n > 0.0 { (records / n).ln() * unit } else { 0.0 };
                extras.push(counts.iter().map(extra).collect());
            }
            cost.push(means);
            column.push(sums);
            added.push(extras);
        }
        Self { cost, column, added }
    }
}

impl LossMetric for Entropy {
    fn loss(&self, node: &Counted<'_>) -> f64 {
        let cost = by_published_code(&self.cost, node.classes);
        let generalized = if cost.iter().all(|table| matches!(table, Cow::Borrowed(_))) {
            self.lower_bound(node.classes.node())
        } else {
            sum(node, &cost, 0..node.classes.len())
        };
        generalized + self.forced(node)
    }

    fn columns(&self) -> Option<&[Vec<f64>]> {
        Some(&self.column)
    }

    fn added(&self) -> Option<&[Vec<Vec<f64>>]> {
        Some(&self.added)
    }

    /// A finer value has no more records, so there suppression adds no less.
    fn forced(&self, node: &Counted<'_>) -> f64 {
        sum(node, &by_published_code(&self.added, node.classes), node.suppressed())
    }

    fn lower_bound(&self, node: &Node) -> f64 {
        node.levels().iter().zip(&self.column).map(|(&level, column)| column[usize::from(level)]).sum()
    }
}

/// Over the records of some classes, what `tables` say of their cells.
fn sum(node: &Counted<'_>, tables: &[Cow<'_, [f64]>], classes: impl Iterator<Item = usize>) -> f64 {
    let tables: Vec<&[f64]> = tables.iter().map(AsRef::as_ref).collect();
    classes.map(|c| f64::from(node.classes.rows()[c]) * node.classes.cells(c, &tables)).sum()
}
