//! The entropy of every attribute's values, level by level.
//!
//! It estimates how many classes a generalization merges. Searches use it to decide where to look first, and the store to decide which
//! set to roll up on the way; it never decides which node is found.

use std::sync::Arc;

use super::classes::Classes;
use crate::model::domain::DomainView;
use crate::model::lattice::Level;

/// Entropies by attribute and level, in nats.
#[derive(Debug)]
pub struct Entropies(Vec<Vec<f64>>);

impl Entropies {
    /// Of the finest set.
    pub(crate) fn of(base: &dyn Classes, domains: &[Arc<DomainView>]) -> Self {
        let marginals = base.marginals(&domains.iter().map(|view| view.leaf_count()).collect::<Vec<_>>());
        let entropies = marginals.iter().zip(domains).map(|(leaves, view)| {
            let at = |level: Level| {
                let mut counts = vec![0.0; view.level(level).len()];
                let above = view.between(0, level);
                leaves.iter().zip(above).for_each(|(&rows, code)| counts[code as usize] += rows as f64);
                entropy(&counts)
            };
            (0..=view.height()).map(at).collect()
        });
        Self(entropies.collect())
    }

    /// The entropy of an attribute's values at a level.
    pub fn at(&self, attribute: usize, level: Level) -> f64 {
        self.0[attribute][usize::from(level)]
    }

    /// The sum over the attributes of a node.
    pub fn sum(&self, levels: &[Level]) -> f64 {
        levels.iter().enumerate().map(|(attribute, &level)| self.at(attribute, level)).sum()
    }
}

fn entropy(counts: &[f64]) -> f64 {
    let all: f64 = counts.iter().sum::<f64>().max(1.0);
    -counts.iter().filter(|rows| **rows > 0.0).map(|rows| rows / all * (rows / all).ln()).sum::<f64>()
}
