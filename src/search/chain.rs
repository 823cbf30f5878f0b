//! A chain of nodes on which a binary search finds where a monotone status turns.

use super::TIE;
use super::evaluator::Evaluator;
use crate::model::lattice::{Level, Node};

/// From `node` one level at a time up to `top`: first the steps that cost least by the bound and leave most values apart,
/// so that failing nodes on it are high and satisfying ones cheap. Attributes at or above the top stay.
pub(super) fn chain(evaluator: &Evaluator<'_>, top: &Node, node: &Node) -> Vec<Node> {
    let columns = evaluator.columns();
    let mut chain = vec![node.clone()];
    let mut last = node.clone();
    loop {
        let bound = if columns.is_none() { evaluator.lower_bound(&last) } else { 0.0 };
        let price = |attribute: usize| {
            let level = last.levels()[attribute];
            let cost = match columns {
                Some(columns) => columns[attribute][usize::from(level) + 1] - columns[attribute][usize::from(level)],
                None => evaluator.lower_bound(&last.with(attribute, level + 1)) - bound,
            };
            cost.max(TIE).powi(2) * narrowing(evaluator, attribute, level)
        };
        let open = |&attribute: &usize| last.levels()[attribute] < top.levels()[attribute];
        let prices = (0..top.levels().len()).filter(open).map(|attribute| (price(attribute), attribute));
        let Some((_, attribute)) = prices.min_by(|a, b| a.0.total_cmp(&b.0)) else { return chain };
        last.set(attribute, last.levels()[attribute] + 1);
        chain.push(last.clone());
    }
}

/// How much fewer values one more level leaves: the logarithm of the ratio. Never zero.
fn narrowing(evaluator: &Evaluator<'_>, attribute: usize, level: Level) -> f64 {
    let values = |level: Level| evaluator.sets().domains()[attribute].level(level).len().max(1) as f64;
    (values(level) / values(level + 1)).ln().max(1e-3)
}
