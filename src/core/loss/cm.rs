//! `cm`, classification metric (Iyengar 2002): the share of records that are suppressed or do not have the most frequent
//! label of their class.
//!
//! Merging two classes never raises the number of records with the majority label, so the finest classes bound every node
//! and a counted node bounds all above it.

use std::sync::{Arc, OnceLock};

use super::{Counted, LossMetric};
use crate::frequency::set::Classes;
use crate::model::lattice::Node;

pub(super) struct Cm {
    facet: Option<usize>,
    base: Arc<dyn Classes>,
    /// The loss of the finest classes; counted when first asked for.
    finest: OnceLock<f64>,
}

impl Cm {
    /// `facet` is where the label is counted; without a label nothing but suppression costs anything.
    pub(super) fn new(facet: Option<usize>, base: Arc<dyn Classes>) -> Self {
        Self { facet, base, finest: OnceLock::new() }
    }

    /// Records of one class that do not have its majority label.
    fn minority(&self, classes: &dyn Classes, class: usize) -> f64 {
        let rows = classes.rows()[class];
        f64::from(rows - self.facet.map_or(rows, |facet| classes.histogram(facet, class).most()).min(rows))
    }

    fn minorities(&self, classes: &dyn Classes) -> f64 {
        (0..classes.len()).map(|class| self.minority(classes, class)).sum()
    }
}

impl LossMetric for Cm {
    fn loss(&self, node: &Counted<'_>) -> f64 {
        let cost = |(class, &published): (usize, &bool)| {
            if published { self.minority(node.classes, class) } else { f64::from(node.classes.rows()[class]) }
        };
        node.published.iter().enumerate().map(cost).sum::<f64>() / node.records.max(1) as f64
    }

    fn lower_bound(&self, _node: &Node) -> f64 {
        *self.finest.get_or_init(|| self.minorities(&*self.base) / self.base.records().max(1) as f64)
    }

    fn bound_above(&self, node: &Counted<'_>) -> f64 {
        self.minorities(node.classes) / node.records.max(1) as f64
    }
}
