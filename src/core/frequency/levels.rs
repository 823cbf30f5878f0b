//! The levels of a node in one integer: of very many nodes, nearly all are passed over by one subtraction.

use crate::model::lattice::Node;

/// The first levels of a node in one integer, a byte each, so that most nodes are told apart at once.
#[derive(Clone, Copy)]
pub(super) struct Levels(u128);

impl Levels {
    /// The highest bit of each byte, which no level has here.
    const HIGH: u128 = u128::MAX / 0xff * 0x80;

    pub(super) fn of(node: &Node) -> Self {
        let levels = node.levels().iter().take(16);
        Self(levels.fold(0, |all, &level| all << 8 | u128::from(level.min(0x7f))))
    }

    /// False only if it is not finer.
    #[inline]
    pub(super) fn may_be_finer(self, other: Self) -> bool {
        ((other.0 | Self::HIGH) - self.0) & Self::HIGH == Self::HIGH
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn levels_side_by_side_pass_over_no_finer_node(levels in prop::collection::vec((any::<u8>(), any::<u8>()), 1..20), near in any::<bool>()) {
            let near = |(a, b): (u8, u8)| if near { (a % 3, b % 3 + 1) } else { (a, b) };
            let (a, b): (Vec<u8>, Vec<u8>) = levels.into_iter().map(near).unzip();
            let (a, b) = (Node::new(a), Node::new(b));
            let may_be = Levels::of(&a).may_be_finer(Levels::of(&b));
            prop_assert!(may_be || !a.is_finer_or_equal(&b));
            let told = a.levels().len() <= 16 && a.levels().iter().all(|level| *level < 0x80);
            prop_assert!(!told || may_be == a.is_finer_or_equal(&b));
        }
    }
}
