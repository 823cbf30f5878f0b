//! What counted nodes say about others: a figure for every node below (or above) them. One bit per counted node, attribute
//! and level, so that a walk over the lattice asks about whole prefixes of a node with a few words of logic.
//!
//! Invariant: bit i of the mask of a prefix is set if and only if counted node i bounds the prefix from its side.

use crate::model::lattice::{Lattice, Level, Node};

/// One bit per counted node.
pub(super) type Mask = Vec<u64>;

/// From which side counted nodes speak of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// Of every node below them.
    Below,
    /// Of every node above them.
    Above,
}

/// Counted nodes and what they say.
pub(super) struct Cover {
    side: Side,
    /// By attribute and level.
    masks: Vec<Vec<Mask>>,
    figures: Vec<f64>,
    /// Those that exclude all they speak of.
    certain: Mask,
    words: usize,
}

impl Cover {
    pub(super) fn new(lattice: &Lattice, side: Side) -> Self {
        let levels = |&top: &Level| vec![Mask::new(); usize::from(top) + 1];
        let masks = lattice.top().levels().iter().map(levels).collect();
        Self { side, masks, figures: Vec::new(), certain: Mask::new(), words: 0 }
    }

    /// Adds a counted node; an infinite figure excludes everything that it speaks of.
    pub(super) fn add(&mut self, node: &Node, figure: f64) {
        let (word, bit) = (self.figures.len() / 64, 1u64 << (self.figures.len() % 64));
        if word == self.words {
            self.words += 1;
            self.certain.push(0);
            self.masks.iter_mut().flatten().for_each(|mask| mask.push(0));
        }
        self.figures.push(figure);
        if figure == f64::INFINITY {
            self.certain[word] |= bit;
        }
        for (levels, &own) in self.masks.iter_mut().zip(node.levels()) {
            for (level, mask) in levels.iter_mut().enumerate() {
                let speaks = match self.side {
                    Side::Below => level <= usize::from(own),
                    Side::Above => level >= usize::from(own),
                };
                mask[word] |= if speaks { bit } else { 0 };
            }
        }
    }

    /// The mask of the empty prefix.
    pub(super) fn everything(&self) -> Mask {
        vec![u64::MAX; self.words]
    }

    /// Narrows the mask of a prefix to one more attribute.
    pub(super) fn narrow(&self, prefix: &[u64], attribute: usize, level: Level, into: &mut Mask) {
        into.clear();
        into.extend(prefix.iter().zip(&self.masks[attribute][usize::from(level)]).map(|(a, b)| a & b));
    }

    /// True if a node that excludes all it speaks of is among these.
    pub(super) fn excludes(&self, mask: &[u64]) -> bool {
        mask.iter().zip(&self.certain).any(|(a, b)| a & b != 0)
    }

    /// True if one of these says a figure for which `enough` holds.
    pub(super) fn any(&self, mask: &[u64], mut enough: impl FnMut(f64) -> bool) -> bool {
        self.excludes(mask)
            || mask.iter().enumerate().any(|(word, &bits)| {
                let mut bits = bits;
                while bits != 0 {
                    // Bits behind the last node are set in the mask of the empty prefix only.
                    if self.figures.get(word * 64 + bits.trailing_zeros() as usize).is_some_and(|&f| enough(f)) {
                        return true;
                    }
                    bits &= bits - 1;
                }
                false
            })
    }

    /// The mask of a whole node.
    pub(super) fn of(&self, node: &Node) -> Mask {
        let mut mask = self.everything();
        for (levels, &level) in self.masks.iter().zip(node.levels()) {
            mask.iter_mut().zip(&levels[usize::from(level)]).for_each(|(a, b)| *a &= b);
        }
        mask
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn masks_say_what_the_order_says(counted in prop::collection::vec([0u8..4, 0u8..3, 0u8..5], 1..200)) {
            let lattice = Lattice::from_heights(&[3, 2, 4]);
            let counted: Vec<Node> = counted.into_iter().map(Node::new).collect();
            for side in [Side::Below, Side::Above] {
                let mut cover = Cover::new(&lattice, side);
                for (i, node) in counted.iter().enumerate() {
                    cover.add(node, if i % 3 == 0 { f64::INFINITY } else { i as f64 });
                }
                for node in lattice.nodes() {
                    let mask = cover.of(&node);
                    let speaks = |other: &Node| match side {
                        Side::Below => node.is_finer_or_equal(other),
                        Side::Above => other.is_finer_or_equal(&node),
                    };
                    let said: Vec<usize> = (0..counted.len()).filter(|&i| speaks(&counted[i])).collect();
                    prop_assert_eq!(cover.excludes(&mask), said.iter().any(|i| i % 3 == 0));
                    for i in (0..counted.len()).filter(|i| i % 3 != 0) {
                        let told = cover.any(&mask, |figure| figure == i as f64);
                        prop_assert_eq!(told, said.contains(&i) || cover.excludes(&mask));
                    }
                }
            }
        }
    }
}
