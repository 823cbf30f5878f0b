//! Which nodes of a lattice satisfy and which fail, where that is monotone: what is above a satisfying node satisfies, what is below a
//! failing one fails. A node takes a byte, so it is for lattices that fit memory.
//!
//! Invariant: all above a node that is marked as satisfying is marked so, and all below one that is marked as failing.

use crate::model::lattice::{Lattice, Node};

/// The most nodes. More take more memory than what is found is worth; with fewer a search of a larger lattice starts over.
const MOST: u128 = 1 << 24;

/// What is known of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Open,
    Satisfies,
    Fails,
}

impl From<bool> for Side {
    fn from(satisfies: bool) -> Self {
        if satisfies { Self::Satisfies } else { Self::Fails }
    }
}

/// The sides of all nodes of a lattice.
pub(super) struct Sides<'a> {
    lattice: &'a Lattice,
    /// By attribute how far apart neighbours are, and how many levels there are.
    strides: Vec<(usize, usize)>,
    /// In the order of [`Lattice::nodes`].
    sides: Vec<Side>,
    open: usize,
}

impl<'a> Sides<'a> {
    /// All open; `None` if the lattice is too large.
    pub(super) fn new(lattice: &'a Lattice) -> Option<Self> {
        let open = usize::try_from(lattice.size()).ok().filter(|_| lattice.size() <= MOST)?;
        let mut stride = 1;
        let strides = lattice.bottom().levels().iter().zip(lattice.top().levels()).map(|(low, high)| {
            let levels = usize::from(high - low) + 1;
            stride *= levels;
            (stride / levels, levels)
        });
        Some(Self { lattice, strides: strides.collect(), sides: vec![Side::Open; open], open })
    }

    /// How many are open, of how many.
    pub(super) fn open(&self) -> (usize, usize) {
        (self.open, self.sides.len())
    }

    /// Whether a node of the lattice satisfies, if that is known.
    pub(super) fn of(&self, node: &Node) -> Option<bool> {
        match self.sides[self.place(node)?] {
            Side::Open => None,
            side => Some(side == Side::Satisfies),
        }
    }

    /// Marks what follows from whether a node satisfies, which need not be in the lattice.
    pub(super) fn mark(&mut self, node: &Node, satisfies: bool) {
        let Some(place) = self.nearest(node, satisfies) else { return };
        let mut follow = vec![place];
        while let Some(place) = follow.pop() {
            if self.sides[place] == Side::Open {
                self.sides[place] = satisfies.into();
                self.open -= 1;
                follow.extend(beside(&self.strides, place, satisfies).filter(|&at| self.sides[at] == Side::Open));
            }
        }
    }

    /// The first open node that is not before `from`.
    pub(super) fn next_open(&self, from: usize) -> Option<usize> {
        self.sides[from..].iter().position(|side| *side == Side::Open).map(|at| from + at)
    }

    /// An open node right above or below.
    pub(super) fn open_beside(&self, place: usize, above: bool) -> Option<usize> {
        beside(&self.strides, place, above).find(|&at| self.sides[at] == Side::Open)
    }

    /// True if what is known of this node does not follow from another, but for those that mark the same.
    pub(super) fn is_edge(&self, node: &Node, satisfies: bool) -> bool {
        self.nearest(node, satisfies).is_some_and(|place| self.is_edge_at(place, satisfies))
    }

    /// The satisfying nodes.
    pub(super) fn satisfying(&self) -> impl Iterator<Item = Node> + '_ {
        self.lattice.nodes().zip(&self.sides).filter(|(_, side)| **side == Side::Satisfies).map(|(node, _)| node)
    }

    /// The satisfying nodes with none below them, finest first.
    pub(super) fn minimal(&self) -> Vec<Node> {
        let places = (0..self.sides.len()).filter(|&at| self.sides[at] == Side::Satisfies && self.is_edge_at(at, true));
        let mut minimal: Vec<Node> = places.map(|place| self.node(place)).collect();
        minimal.sort_by(|a, b| (a.height(), a.levels()).cmp(&(b.height(), b.levels())));
        minimal
    }

    /// The node at a place.
    pub(super) fn node(&self, place: usize) -> Node {
        let low = self.lattice.bottom().levels().iter();
        Node::new(low.zip(&self.strides).map(|(low, (stride, levels))| low + (place / stride % levels) as u8))
    }

    fn is_edge_at(&self, place: usize, satisfies: bool) -> bool {
        beside(&self.strides, place, !satisfies).all(|at| self.sides[at] != satisfies.into())
    }

    /// Where the nodes begin of which it follows.
    fn nearest(&self, node: &Node, satisfies: bool) -> Option<usize> {
        let inside = match satisfies {
            true => self.lattice.join(node, self.lattice.bottom()),
            false => self.lattice.meet(node, self.lattice.top()),
        };
        self.place(&inside)
    }

    fn place(&self, node: &Node) -> Option<usize> {
        let levels = node.levels().iter().zip(self.lattice.bottom().levels()).zip(&self.strides);
        let place = levels.map(|((level, low), (stride, _))| stride * usize::from(level.saturating_sub(*low))).sum();
        self.lattice.contains(node).then_some(place)
    }
}

/// The places right above or below one.
fn beside(strides: &[(usize, usize)], place: usize, above: bool) -> impl Iterator<Item = usize> + '_ {
    strides.iter().filter_map(move |&(stride, levels)| {
        let level = place / stride % levels;
        if above { (level + 1 < levels).then(|| place + stride) } else { (level > 0).then(|| place - stride) }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever nodes are asked in whatever order, the sides follow, and the edge is the edge.
        #[test]
        fn sides_follow_from_the_edge(
            minimal in prop::collection::vec([0u8..4, 0u8..3, 0u8..5], 0..5), asked in prop::collection::vec([0u8..6, 0u8..5, 0u8..7], 0..30),
        ) {
            let lattice = Lattice::new(Node::new([0, 1, 0]), Node::new([3, 2, 4]));
            let minimal: Vec<Node> = minimal.into_iter().map(Node::new).collect();
            let satisfies = |node: &Node| minimal.iter().any(|m| m.is_finer_or_equal(node));
            let mut sides = Sides::new(&lattice).unwrap();
            let asked: Vec<Node> = asked.into_iter().map(Node::new).collect();
            asked.iter().for_each(|node| sides.mark(node, satisfies(node)));
            for node in lattice.nodes() {
                let told = asked.iter().any(|other| match satisfies(other) {
                    true => other.is_finer_or_equal(&node),
                    false => node.is_finer_or_equal(other),
                });
                prop_assert_eq!(sides.of(&node), told.then(|| satisfies(&node)));
            }
            while let Some(open) = sides.next_open(0) {
                let node = sides.node(open);
                prop_assert_eq!(sides.of(&node), None);
                sides.mark(&node, satisfies(&node));
            }
            prop_assert_eq!(sides.open().0, 0);
            let all: Vec<Node> = lattice.nodes().filter(satisfies).collect();
            prop_assert_eq!(sides.satisfying().collect::<Vec<_>>(), all);
            for node in lattice.nodes() {
                let edge = match satisfies(&node) {
                    true => !lattice.children(&node).any(|child| satisfies(&child)),
                    false => lattice.parents(&node).all(|parent| satisfies(&parent)),
                };
                prop_assert_eq!(sides.is_edge(&node, satisfies(&node)), edge);
                prop_assert_eq!(sides.minimal().contains(&node), edge && satisfies(&node));
            }
        }
    }
}
