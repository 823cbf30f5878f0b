//! A node in one integer: searches that ask about very many nodes at once hash and change that, and not a list of levels.

use smallvec::SmallVec;

use crate::model::lattice::{Level, Node};

/// The levels of a node, side by side.
pub(super) type Packed = u128;

/// Where each attribute's level lies.
pub(super) struct Packing {
    /// By attribute: how far to the left, and the bits there.
    fields: SmallVec<[(u32, Packed); 16]>,
}

impl Packing {
    /// Room for the levels of `highest` and of every node below it; `None` if they are too many bits.
    pub(super) fn new(highest: &Node) -> Option<Self> {
        let mut used = 0;
        let field = |&level: &Level| {
            let (shift, bits) = (used, Level::BITS - level.leading_zeros());
            used += bits;
            (shift, ((1 << bits) - 1) << shift.min(Packed::BITS - 1))
        };
        let fields = highest.levels().iter().map(field).collect();
        (used < Packed::BITS).then_some(Self { fields })
    }

    pub(super) fn pack(&self, node: &Node) -> Packed {
        let levels = node.levels().iter().zip(&self.fields);
        levels.fold(0, |packed, (&level, &(shift, _))| packed | Packed::from(level) << shift)
    }

    pub(super) fn node(&self, packed: Packed) -> Node {
        Node::new((0..self.fields.len()).map(|attribute| self.level(packed, attribute)))
    }

    pub(super) fn level(&self, packed: Packed, attribute: usize) -> Level {
        let (shift, mask) = self.fields[attribute];
        ((packed & mask) >> shift) as Level
    }

    /// The same node with another level for one attribute.
    pub(super) fn with(&self, packed: Packed, attribute: usize, level: Level) -> Packed {
        let (shift, mask) = self.fields[attribute];
        packed & !mask | Packed::from(level) << shift
    }

    /// One attribute one level down; it must not be at 0.
    pub(super) fn lower(&self, packed: Packed, attribute: usize) -> Packed {
        packed - (1 << self.fields[attribute].0)
    }

    /// The sum of the levels.
    pub(super) fn height(&self, packed: Packed) -> usize {
        (0..self.fields.len()).map(|attribute| usize::from(self.level(packed, attribute))).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_the_node(levels in prop::collection::vec((0u8..12, 0u8..12), 1..30), at in any::<usize>()) {
            let highest = Node::new(levels.iter().map(|(a, b)| *a.max(b)));
            let node = Node::new(levels.iter().map(|(a, _)| *a));
            let Some(packing) = Packing::new(&highest) else { return Ok(()) };
            let (packed, at) = (packing.pack(&node), at % levels.len());
            prop_assert_eq!(&packing.node(packed), &node);
            prop_assert_eq!(packing.height(packed), node.height());
            prop_assert_eq!(packing.node(packing.with(packed, at, levels[at].1)), node.with(at, levels[at].1));
            if levels[at].0 > 0 {
                prop_assert_eq!(packing.node(packing.lower(packed, at)), node.with(at, levels[at].0 - 1));
            }
        }
    }

    #[test]
    fn too_many_levels_do_not_fit() {
        assert!(Packing::new(&Node::new([7; 42])).is_some());
        assert!(Packing::new(&Node::new([7; 60])).is_none());
        assert!(Packing::new(&Node::new([255; 40])).is_none());
    }
}
