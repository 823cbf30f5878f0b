//! What counted nodes say about others: a figure for every node below (or above) them. One bit per counted node, attribute
//! and level, so that a walk over the lattice asks about whole prefixes of a node with a few words of logic.
//!
//! Invariant: bit i of the mask of a prefix is set if and only if counted node i bounds the prefix from its side.

use smallvec::SmallVec;

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
    /// Those that were needed so far; asked first, so that few are.
    needed: Mask,
    heights: Vec<usize>,
    words: usize,
}

impl Cover {
    pub(super) fn new(lattice: &Lattice, side: Side) -> Self {
        let levels = |&top: &Level| vec![Mask::new(); usize::from(top) + 1];
        let masks = lattice.top().levels().iter().map(levels).collect();
        let (certain, needed) = (Mask::new(), Mask::new());
        Self { side, masks, figures: Vec::new(), certain, needed, heights: Vec::new(), words: 0 }
    }

    /// Adds a counted node; an infinite figure excludes everything that it speaks of.
    pub(super) fn add(&mut self, node: &Node, figure: f64) {
        let (word, bit) = (self.figures.len() / 64, 1u64 << (self.figures.len() % 64));
        if word == self.words {
            self.words += 1;
            self.certain.push(0);
            self.needed.push(0);
            self.masks.iter_mut().flatten().for_each(|mask| mask.push(0));
        }
        self.figures.push(figure);
        self.heights.push(node.height());
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

    /// One of these that says a figure for which `enough` holds. Those that exclude all come first: one that was needed
    /// before, else the highest.
    pub(super) fn who(&self, mask: &[u64], mut enough: impl FnMut(f64) -> bool) -> Option<usize> {
        let certain = || mask.iter().zip(&self.certain).map(|(a, b)| a & b);
        let known = certain().zip(&self.needed).map(|(a, b)| a & b).enumerate().find(|(_, bits)| *bits != 0);
        if let Some((word, bits)) = known {
            return Some(word * 64 + bits.trailing_zeros() as usize);
        }
        let highest = ones(certain()).max_by_key(|&at| self.heights[at]);
        // Bits behind the last node are set in the mask of the empty prefix only.
        highest.or_else(|| ones(mask.iter().copied()).find(|&at| self.figures.get(at).is_some_and(|&f| enough(f))))
    }

    /// One of these that excludes the whole box of nodes whose other attributes are at most at the levels of `rest`.
    pub(super) fn excludes_box(&self, mask: &[u64], rest: impl Iterator<Item = (usize, Level)>) -> Option<usize> {
        let mut certain: SmallVec<[u64; 16]> = mask.iter().zip(&self.certain).map(|(a, b)| a & b).collect();
        let mut some = certain.iter().any(|bits| *bits != 0);
        for (attribute, level) in rest {
            if !some {
                return None;
            }
            let levels = &self.masks[attribute][usize::from(level)];
            certain.iter_mut().zip(levels).for_each(|(bits, mask)| *bits &= mask);
            some = certain.iter().any(|bits| *bits != 0);
        }
        let known = ones(certain.iter().zip(&self.needed).map(|(a, b)| a & b)).next();
        known.or_else(|| ones(certain.iter().copied()).max_by_key(|&at| self.heights[at]))
    }

    /// Notes that this one was needed.
    pub(super) fn need(&mut self, at: usize) {
        self.needed[at / 64] |= 1 << (at % 64);
    }

    /// Forgets which were needed.
    pub(super) fn need_none(&mut self) {
        self.needed.fill(0);
    }

    /// Those that were needed.
    pub(super) fn needed(&self) -> impl Iterator<Item = usize> + '_ {
        ones(self.needed.iter().copied())
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

/// The positions of the bits that are set.
fn ones(words: impl Iterator<Item = u64>) -> impl Iterator<Item = usize> {
    words.enumerate().flat_map(|(word, mut bits)| {
        std::iter::from_fn(move || {
            let at = (bits != 0).then(|| word * 64 + bits.trailing_zeros() as usize);
            bits &= bits.wrapping_sub(1);
            at
        })
    })
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
                for node in lattice.nodes().filter(|_| side == Side::Below) {
                    // A box is excluded if its highest node is.
                    let mut prefix = Mask::new();
                    cover.narrow(&cover.everything(), 0, node.levels()[0], &mut prefix);
                    let told = cover.excludes_box(&prefix, (1..3).map(|a| (a, node.levels()[a])));
                    prop_assert_eq!(told, cover.who(&cover.of(&node), |_| false));
                }
                for node in lattice.nodes() {
                    let mask = cover.of(&node);
                    let speaks = |other: &Node| match side {
                        Side::Below => node.is_finer_or_equal(other),
                        Side::Above => other.is_finer_or_equal(&node),
                    };
                    let said: Vec<usize> = (0..counted.len()).filter(|&i| speaks(&counted[i])).collect();
                    let certain: Vec<usize> = said.iter().copied().filter(|i| i % 3 == 0).collect();
                    let highest = certain.iter().map(|&i| counted[i].height()).max();
                    let told = cover.who(&mask, |_| false);
                    prop_assert_eq!(told.map(|i| counted[i].height()), highest);
                    prop_assert!(told.is_none_or(|i| certain.contains(&i)));
                    for i in (0..counted.len()).filter(|i| i % 3 != 0 && certain.is_empty()) {
                        let told = cover.who(&mask, |figure| figure == i as f64);
                        prop_assert_eq!(told, said.contains(&i).then_some(i));
                    }
                }
            }
        }
    }
}
