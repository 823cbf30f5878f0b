//! The generalization lattice: a [`Node`] is one level per quasi-identifier, ordered component by component.

use std::cmp::Ordering;
use std::fmt;

use smallvec::SmallVec;

/// A generalization level: 0 is the value itself, the height of the hierarchy is everything in one value.
pub type Level = u8;

/// One level per quasi-identifier, in policy order. `PartialOrd` is the lattice order: `a <= b` if b generalizes a.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Node(SmallVec<[Level; 16]>);

impl Node {
    /// The node with these levels.
    pub fn new(levels: impl IntoIterator<Item = Level>) -> Self {
        Self(levels.into_iter().collect())
    }

    /// The levels in policy order.
    pub fn levels(&self) -> &[Level] {
        &self.0
    }

    /// The sum of the levels: the node's distance from the bottom.
    pub fn height(&self) -> usize {
        self.0.iter().map(|&l| usize::from(l)).sum()
    }

    /// The same node with another level for one attribute.
    pub fn with(&self, attribute: usize, level: Level) -> Self {
        let mut node = self.clone();
        node.0[attribute] = level;
        node
    }

    /// Changes the level of one attribute.
    pub fn set(&mut self, attribute: usize, level: Level) {
        self.0[attribute] = level;
    }

    /// True if every level is at most the other's.
    #[inline]
    pub fn is_finer_or_equal(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a <= b)
    }
}

impl PartialOrd for Node {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (self.is_finer_or_equal(other), other.is_finer_or_equal(self)) {
            (true, true) => Some(Ordering::Equal),
            (true, false) => Some(Ordering::Less),
            (false, true) => Some(Ordering::Greater),
            (false, false) => None,
        }
    }
}

/// The levels of a node side by side in one integer, a byte each, to compare one node with very many. Where a node has more
/// attributes or levels than fit, it says what it can: a node that is finer always passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Outline(u128);

impl Outline {
    /// The highest bit of every byte.
    const HIGHEST: u128 = u128::from_ne_bytes([0x80; 16]);

    /// The outline of a node.
    pub fn of(node: &Node) -> Self {
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(&node.0).for_each(|(byte, &level)| *byte = level.min(0x7f));
        Self(u128::from_ne_bytes(bytes))
    }

    /// False only if the node is not finer than or equal to the other.
    #[inline]
    pub fn may_be_finer(self, other: Self) -> bool {
        // No byte borrows from the next: each is at least 0x80, and what is taken away is less.
        ((other.0 | Self::HIGHEST) - self.0) & Self::HIGHEST == Self::HIGHEST
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0.as_slice())
    }
}

/// All nodes between a bottom and a top, both inclusive. Never mutated by a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lattice {
    bottom: Node,
    top: Node,
}

impl Lattice {
    /// The lattice from `bottom` (minimum levels) to `top` (maximum levels).
    pub fn new(bottom: Node, top: Node) -> Self {
        debug_assert!(bottom.is_finer_or_equal(&top));
        Self { bottom, top }
    }

    /// The lattice from all zeros to `heights`.
    #[cfg(test)]
    pub(crate) fn from_heights(heights: &[Level]) -> Self {
        Self::new(Node::new(heights.iter().map(|_| 0)), Node::new(heights.iter().copied()))
    }

    /// The finest node.
    pub fn bottom(&self) -> &Node {
        &self.bottom
    }

    /// The coarsest node.
    pub fn top(&self) -> &Node {
        &self.top
    }

    /// How many attributes a node has.
    pub fn width(&self) -> usize {
        self.top.0.len()
    }

    /// How many nodes there are; saturates.
    pub fn size(&self) -> u128 {
        let span = |(b, t): (&Level, &Level)| u128::from(t - b) + 1;
        self.bottom.0.iter().zip(&self.top.0).map(span).fold(1, u128::saturating_mul)
    }

    /// True if the node lies between bottom and top.
    pub fn contains(&self, node: &Node) -> bool {
        node.0.len() == self.width() && self.bottom.is_finer_or_equal(node) && node.is_finer_or_equal(&self.top)
    }

    /// The direct generalizations: one attribute one level up.
    pub fn parents<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = Node> + 'a {
        (0..self.width()).filter(|&i| node.0[i] < self.top.0[i]).map(|i| node.with(i, node.0[i] + 1))
    }

    /// The direct specializations: one attribute one level down.
    pub fn children<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = Node> + 'a {
        (0..self.width()).filter(|&i| node.0[i] > self.bottom.0[i]).map(|i| node.with(i, node.0[i] - 1))
    }

    /// The least node above both.
    pub fn join(&self, a: &Node, b: &Node) -> Node {
        Node::new(a.0.iter().zip(&b.0).map(|(a, b)| *a.max(b)))
    }

    /// Every node, finest first in mixed-radix order. For small lattices only.
    pub fn nodes(&self) -> impl Iterator<Item = Node> + '_ {
        let mut next = Some(self.bottom.clone());
        std::iter::from_fn(move || {
            let node = next.take()?;
            let mut successor = node.clone();
            for i in 0..self.width() {
                if successor.0[i] < self.top.0[i] {
                    successor.0[i] += 1;
                    next = Some(successor);
                    break;
                }
                successor.0[i] = self.bottom.0[i];
            }
            Some(node)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enumerates_each_node_once() {
        let lattice = Lattice::from_heights(&[2, 1, 3]);
        let nodes: Vec<_> = lattice.nodes().collect();
        assert_eq!(nodes.len() as u128, lattice.size());
        let distinct: std::collections::HashSet<_> = nodes.iter().cloned().collect();
        assert_eq!(distinct.len(), nodes.len());
        assert!(nodes.iter().all(|n| lattice.contains(n)));
    }

    #[test]
    fn outlines_compare_as_nodes_do() {
        let levels = [[0, 3, 127], [1, 3, 126], [0, 2, 255], [2, 0, 0], [1, 3, 200]];
        for (a, b) in levels.iter().flat_map(|a| levels.iter().map(move |b| (Node::new(*a), Node::new(*b)))) {
            let (finer, may) = (a.is_finer_or_equal(&b), Outline::of(&a).may_be_finer(Outline::of(&b)));
            let fits = a.0.iter().chain(&b.0).all(|level| *level <= 0x7f);
            assert!(if fits { finer == may } else { may || !finer }, "{a:?} {b:?}");
        }
        let (low, high) = (Node::new([1; 20]), Node::new((0..20).map(|a| if a < 16 { 1 } else { 0 })));
        assert!(Outline::of(&low).may_be_finer(Outline::of(&high)) && !low.is_finer_or_equal(&high));
    }

    #[test]
    fn order_is_component_wise() {
        let (a, b) = (Node::new([0, 2]), Node::new([1, 1]));
        assert_eq!(a.partial_cmp(&b), None);
        let lattice = Lattice::from_heights(&[3, 3]);
        assert!(a < lattice.join(&a, &b));
    }
}
