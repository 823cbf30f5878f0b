//! The score of `top-down`: over all quasi-identifiers, the sum of priority times the distinct values that remain at its level.

use std::sync::Arc;

use crate::model::domain::DomainView;
use crate::model::lattice::Node;
use crate::search::evaluator::Evaluator;

/// The score of every node of a lattice.
pub struct Scores {
    /// Per attribute and level: priority times distinct values.
    pub(in crate::search) parts: Vec<Vec<u64>>,
}

impl Scores {
    /// The scores of one window.
    pub fn new(evaluator: &Evaluator<'_>) -> Self {
        let base = evaluator.sets().base();
        let part = |(attribute, view): (usize, &Arc<DomainView>)| {
            let mut leaves: Vec<u32> = (0..base.len()).map(|class| base.code(class, attribute)).collect();
            leaves.sort_unstable();
            leaves.dedup();
            let priority = u64::from(evaluator.policy().quasi[attribute].priority.max(1));
            (0..=view.height())
                .map(|level| {
                    let above = view.between(0, level);
                    let mut codes: Vec<u32> = leaves.iter().map(|&leaf| above[leaf as usize]).collect();
                    codes.sort_unstable();
                    codes.dedup();
                    priority * codes.len() as u64
                })
                .collect()
        };
        Self { parts: evaluator.sets().domains().iter().enumerate().map(part).collect() }
    }

    /// The score of a node; higher is better.
    pub fn of(&self, node: &Node) -> u64 {
        node.levels().iter().zip(&self.parts).map(|(&level, parts)| parts[usize::from(level)]).sum()
    }
}
