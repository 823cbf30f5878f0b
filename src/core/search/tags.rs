//! Predictive tagging for monotone policies: above a satisfying node all satisfy, below a failing one all fail.

use crate::model::lattice::{Node, Outline};

/// The boundary seen so far: minimal satisfying and maximal failing nodes.
#[derive(Debug, Default)]
pub(crate) struct Tags {
    satisfying: Vec<(Outline, Node)>,
    failing: Vec<(Outline, Node)>,
}

impl Tags {
    /// Records what was counted at `node`.
    pub(crate) fn record(&mut self, node: &Node, satisfies: bool) {
        if self.status(node) == Some(satisfies) {
            return;
        }
        let own = (Outline::of(node), node.clone());
        if satisfies {
            self.satisfying.retain(|other| !is_finer(&own, other));
            self.satisfying.push(own);
        } else {
            self.failing.retain(|other| !is_finer(other, &own));
            self.failing.push(own);
        }
    }

    /// The status that follows from the boundary, if it does.
    pub(crate) fn status(&self, node: &Node) -> Option<bool> {
        let own = (Outline::of(node), node.clone());
        if self.failing.iter().any(|failing| is_finer(&own, failing)) {
            Some(false)
        } else if self.satisfying.iter().any(|satisfying| is_finer(satisfying, &own)) {
            Some(true)
        } else {
            None
        }
    }
}

fn is_finer(a: &(Outline, Node), b: &(Outline, Node)) -> bool {
    a.0.may_be_finer(b.0) && a.1.is_finer_or_equal(&b.1)
}
