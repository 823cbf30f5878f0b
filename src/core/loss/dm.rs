//! `dm`, discernibility (Bayardo and Agrawal 2005): a published record costs the size of its class, a suppressed one
//! the size of the window. Normalised by n squared.

use std::sync::Arc;

use super::{Counted, LossMetric, distinct_values, most_classes};
use crate::frequency::set::Classes;
use crate::model::domain::DomainView;
use crate::model::lattice::Node;

pub(super) struct Dm {
    distinct: Vec<Vec<u64>>,
    records: u64,
}

impl Dm {
    pub(super) fn new(domains: &[Arc<DomainView>], base: &dyn Classes) -> Self {
        let records = base.records();
        Self { distinct: distinct_values(domains, base), records }
    }

    fn normalised(&self, sum: f64) -> f64 {
        sum / (self.records.max(1) as f64).powi(2)
    }
}

impl LossMetric for Dm {
    fn loss(&self, node: &Counted<'_>) -> f64 {
        let cost = |(&rows, &published): (&u32, &bool)| {
            let rows = f64::from(rows);
            if published { rows * rows } else { rows * node.records as f64 }
        };
        self.normalised(node.classes.rows().iter().zip(node.published).map(cost).sum())
    }

    /// Squares of a fixed sum over at most c classes are least when all are equal.
    fn lower_bound(&self, node: &Node) -> f64 {
        1.0 / most_classes(&self.distinct, node, self.records) as f64
    }

    /// Classes only merge on the way up, and suppressing one costs no less than its square.
    fn bound_above(&self, node: &Counted<'_>) -> f64 {
        self.normalised(node.classes.rows().iter().map(|&r| f64::from(r).powi(2)).sum())
    }
}
