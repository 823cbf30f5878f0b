//! Predictive tagging for monotone policies: above a satisfying node all satisfy, below a failing one all fail.

use crate::model::lattice::Node;

/// The boundary seen so far: minimal satisfying and maximal failing nodes.
#[derive(Debug, Default)]
pub(crate) struct Tags {
    satisfying: Vec<Node>,
    failing: Vec<Node>,
}

impl Tags {
    /// Records what was counted at `node`.
    pub(crate) fn record(&mut self, node: &Node, satisfies: bool) {
        if satisfies {
            if !self.satisfying.iter().any(|s| s.is_finer_or_equal(node)) {
                self.satisfying.retain(|s| !node.is_finer_or_equal(s));
                self.satisfying.push(node.clone());
            }
        } else if !self.failing.iter().any(|f| node.is_finer_or_equal(f)) {
            self.failing.retain(|f| !f.is_finer_or_equal(node));
            self.failing.push(node.clone());
        }
    }

    /// The status that follows from the boundary, if it does.
    pub(crate) fn status(&self, node: &Node) -> Option<bool> {
        if self.failing.iter().any(|f| node.is_finer_or_equal(f)) {
            Some(false)
        } else if self.satisfying.iter().any(|s| s.is_finer_or_equal(node)) {
            Some(true)
        } else {
            None
        }
    }
}
