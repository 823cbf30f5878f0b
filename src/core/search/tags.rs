//! Predictive tagging for monotone policies: above a satisfying node all satisfy, below a failing one all fail.
//!
//! [`Ranks`] writes that down for every node of a small lattice as soon as it is known, which takes one step for each node and attribute
//! however many are counted. [`Tags`] keeps the boundary only, for lattices of any size, and compares a node with all of it.

use crate::model::lattice::{Lattice, Node, Outline};

/// The most nodes of a lattice that are written down one by one. Larger takes memory that small searches never touch; smaller
/// compares with the boundary, which takes long.
const FEW: u128 = 1 << 20;

/// The nodes of a small lattice counted through: the rank of a node is a number of mixed radix, whose digits are the levels.
pub(crate) struct Ranks {
    bottom: Node,
    digits: Vec<Digit>,
    size: usize,
}

/// One attribute in a rank.
struct Digit {
    levels: u32,
    /// How far apart two nodes are that are one level apart.
    stride: u32,
    /// To divide by the stride, and by that of the next attribute: see [`divided`].
    inverses: [u64; 2],
}

/// Ranks and strides have at most 20 bits, so that a product with this many more is divided exactly.
const INVERSE_BITS: u32 = 40;

fn divided(rank: u32, inverse: u64) -> u32 {
    ((u64::from(rank) * inverse) >> INVERSE_BITS) as u32
}

impl Ranks {
    /// The ranks of a lattice, if it is small.
    pub(crate) fn new(lattice: &Lattice) -> Option<Self> {
        let size = usize::try_from(lattice.size()).ok().filter(|_| lattice.size() <= FEW)?;
        let spans = lattice.bottom().levels().iter().zip(lattice.top().levels());
        let inverse = |stride: u32| (1 << INVERSE_BITS) / u64::from(stride) + 1;
        let digits = spans.scan(1, |next, (low, high)| {
            let (levels, stride) = (u32::from(high - low) + 1, *next);
            *next *= levels;
            Some(Digit { levels, stride, inverses: [stride, *next].map(inverse) })
        });
        Some(Self { bottom: lattice.bottom().clone(), digits: digits.collect(), size })
    }

    /// How many nodes there are.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The rank of a node.
    pub(crate) fn of(&self, node: &Node) -> u32 {
        let levels = node.levels().iter().zip(self.bottom.levels());
        levels.zip(&self.digits).map(|((level, low), digit)| u32::from(level - low) * digit.stride).sum()
    }

    /// The node of a rank.
    pub(crate) fn node(&self, rank: u32) -> Node {
        Node::new(self.levels(rank).zip(self.bottom.levels()).map(|((own, _), low)| low + own as u8))
    }

    /// The level of each attribute, counted from the bottom's.
    fn levels(&self, rank: u32) -> impl Iterator<Item = (u32, &Digit)> {
        let own = move |digit: &Digit| digit.inverses.map(|inverse| divided(rank, inverse));
        self.digits.iter().map(move |digit| (own(digit)[0] - own(digit)[1] * digit.levels, digit))
    }

    /// The nodes that differ from one in at most one attribute, and whether they do.
    #[inline]
    pub(crate) fn around(&self, rank: u32, mut see: impl FnMut(u32, bool)) {
        for (own, digit) in self.levels(rank) {
            let lowest = rank - own * digit.stride;
            (0..digit.levels).for_each(|level| see(lowest + level * digit.stride, level != own));
        }
    }

    /// Writes down whether a node satisfies, and what follows for others of which nothing is known yet; returns how many.
    pub(crate) fn tag(&self, statuses: &mut [Option<bool>], rank: u32, satisfies: bool) -> u64 {
        statuses[rank as usize] = Some(satisfies);
        let (mut open, mut tagged) = (vec![rank], 0);
        while let Some(rank) = open.pop() {
            for (own, digit) in self.levels(rank) {
                let next = match satisfies {
                    true if own + 1 < digit.levels => rank + digit.stride,
                    false if own > 0 => rank - digit.stride,
                    _ => continue,
                };
                // What is known was written down with all that follows from it.
                if statuses[next as usize].is_none() {
                    statuses[next as usize] = Some(satisfies);
                    tagged += 1;
                    open.push(next);
                }
            }
        }
        tagged
    }
}

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Ranks and the boundary say the same of every node, which is what the counted nodes say; a rank is one node's.
        #[test]
        fn what_follows_is_written_down(
            spans in prop::collection::vec((0u8..3, 0u8..4), 1..5), counted in prop::collection::vec((any::<u32>(), 0usize..9), 0..12),
        ) {
            let lattice = Lattice::new(Node::new(spans.iter().map(|s| s.0)), Node::new(spans.iter().map(|s| s.0 + s.1)));
            let (ranks, mut tags) = (Ranks::new(&lattice).unwrap(), Tags::default());
            let mut statuses = vec![None; ranks.size()];
            prop_assert_eq!(ranks.size() as u128, lattice.size());
            // Satisfying from some height on is monotone.
            let from = lattice.bottom().height() + counted.first().map_or(0, |first| first.1);
            let counted: Vec<Node> = counted.iter().map(|(rank, _)| ranks.node(rank % ranks.size() as u32)).collect();
            for node in &counted {
                ranks.tag(&mut statuses, ranks.of(node), node.height() >= from);
                tags.record(node, node.height() >= from);
            }
            for node in lattice.nodes() {
                let rank = ranks.of(&node);
                prop_assert_eq!(&ranks.node(rank), &node);
                let follows = counted.iter().find_map(|other| match other.height() >= from {
                    true => other.is_finer_or_equal(&node).then_some(true),
                    false => node.is_finer_or_equal(other).then_some(false),
                });
                prop_assert_eq!(statuses[rank as usize], follows);
                prop_assert_eq!(tags.status(Outline::of(&node), &node), follows);
                let mut beside = Vec::new();
                ranks.around(rank, |other, differs| if differs { beside.push(ranks.node(other)) });
                let differ = |other: &Node| other.levels().iter().zip(node.levels()).filter(|(a, b)| a != b).count();
                prop_assert!(beside.iter().all(|other| lattice.contains(other) && differ(other) == 1));
                prop_assert_eq!(beside.len(), spans.iter().map(|s| usize::from(s.1)).sum::<usize>());
            }
        }
    }
}
