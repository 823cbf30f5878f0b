//! How the records spread over the values of each attribute, level by level: the entropy, from a sample of the classes. A guess at what
//! generalizing merges, which decides where to look first and what to roll up on the way, and never what is found.

use super::set::Classes;
use crate::model::domain::DomainView;
use crate::model::lattice::Level;

/// How many classes the entropies are taken from. More cost more than a better guess saves, fewer guess badly.
const SAMPLE: usize = 1000;

/// Entropies by attribute and level, in nats.
#[derive(Debug)]
pub struct Spread(Vec<Vec<f64>>);

impl Spread {
    /// Of the finest set.
    pub(super) fn of<'a>(base: &dyn Classes, domains: impl Iterator<Item = &'a DomainView>) -> Self {
        let stride = base.len().div_ceil(SAMPLE).max(1);
        let entropies = domains.enumerate().map(|(attribute, view)| {
            let leaves = base.spread(attribute, view.leaf_count(), stride);
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
