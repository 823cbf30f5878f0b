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
        let outline = Outline::of(node);
        if self.status(outline, node) == Some(satisfies) {
            return;
        }
        let is_finer = |a: (Outline, &Node), b: (Outline, &Node)| a.0.may_be_finer(b.0) && a.1.is_finer_or_equal(b.1);
        let own = (outline, node);
        if satisfies {
            self.satisfying.retain(|(outline, node)| !is_finer(own, (*outline, node)));
            self.satisfying.push((outline, node.clone()));
        } else {
            self.failing.retain(|(outline, node)| !is_finer((*outline, node), own));
            self.failing.push((outline, node.clone()));
        }
    }

    /// The status of the node of this outline that follows from the boundary, if it does.
    pub(crate) fn status(&self, outline: Outline, node: &Node) -> Option<bool> {
        // What was seen last is nearest to what is asked next.
        let above = |(other, own): &&(Outline, Node)| outline.may_be_finer(*other) && node.is_finer_or_equal(own);
        let below = |(other, own): &&(Outline, Node)| other.may_be_finer(outline) && own.is_finer_or_equal(node);
        if self.failing.iter().rev().any(|failing| above(&failing)) {
            Some(false)
        } else if self.satisfying.iter().rev().any(|satisfying| below(&satisfying)) {
            Some(true)
        } else {
            None
        }
    }
}
