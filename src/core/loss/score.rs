//! `score` (Kiyomoto, Tanaka 2010), as a loss: a node's score is the sum over attributes of priority times the number of
//! different values still shown; the loss is what it lacks of the finest node's score, as a share.

use std::sync::Arc;

use super::{Counted, LossMetric, distinct_values};
use crate::frequency::set::Classes;
use crate::model::domain::DomainView;
use crate::model::lattice::Node;
use crate::model::policy::Policy;

pub(super) struct Score {
    priorities: Vec<f64>,
    distinct: Vec<Vec<u64>>,
    finest: f64,
}

impl Score {
    pub(super) fn new(policy: &Policy, domains: &[Arc<DomainView>], base: &dyn Classes) -> Self {
        let priorities: Vec<f64> = policy.quasi.iter().map(|q| f64::from(q.priority)).collect();
        let distinct = distinct_values(domains, base);
        let finest = priorities.iter().zip(&distinct).map(|(v, e)| v * e[0] as f64).sum();
        Self { priorities, distinct, finest }
    }

    fn lacking(&self, shown: impl Iterator<Item = u64>) -> f64 {
        if self.finest == 0.0 {
            return 0.0;
        }
        let score: f64 = self.priorities.iter().zip(shown).map(|(v, e)| v * e as f64).sum();
        1.0 - score / self.finest
    }
}

impl LossMetric for Score {
    /// Values shown only in classes that are left out do not count.
    fn loss(&self, node: &Counted<'_>) -> f64 {
        let by_level = (0..self.priorities.len()).all(|attribute| node.classes.values(attribute).is_none());
        if by_level && node.published.iter().all(|p| *p) {
            return self.lower_bound(node.classes.node());
        }
        let shown = |attribute: usize| {
            let published = (0..node.classes.len()).filter(|&class| node.published[class]);
            let mut codes: Vec<u32> = published.map(|class| node.classes.code(class, attribute)).collect();
            codes.sort_unstable();
            codes.dedup();
            codes.len() as u64
        };
        self.lacking((0..self.priorities.len()).map(shown))
    }

    fn lower_bound(&self, node: &Node) -> f64 {
        self.lacking(node.levels().iter().zip(&self.distinct).map(|(&level, distinct)| distinct[usize::from(level)]))
    }
}
