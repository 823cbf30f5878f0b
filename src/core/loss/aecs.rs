//! `aecs`, average equivalence class size (LeFevre et al. 2006): n / (classes * k). 1 is the best that k allows; the
//! records that are suppressed stay in n, so leaving out classes does not look like a gain.

use std::sync::Arc;

use super::{Counted, LossMetric, distinct_values, most_classes};
use crate::frequency::set::Classes;
use crate::model::domain::DomainView;
use crate::model::lattice::Node;
use crate::model::policy::K;

pub(super) struct Aecs {
    distinct: Vec<Vec<u64>>,
    records: u64,
    k: f64,
}

impl Aecs {
    pub(super) fn new(k: K, domains: &[Arc<DomainView>], base: &dyn Classes) -> Self {
        let records = base.records();
        Self { distinct: distinct_values(domains, base), records, k: f64::from(k.0) }
    }

    fn of(&self, classes: u64) -> f64 {
        self.records as f64 / (classes.max(1) as f64 * self.k)
    }
}

impl LossMetric for Aecs {
    fn loss(&self, node: &Counted<'_>) -> f64 {
        self.of(node.published.iter().filter(|p| **p).count() as u64)
    }

    fn lower_bound(&self, node: &Node) -> f64 {
        self.of(most_classes(&self.distinct, node, self.records))
    }

    fn bound_above(&self, node: &Counted<'_>) -> f64 {
        self.of(node.classes.len() as u64)
    }
}
