//! Which attributes a release could do without: what is left is a reduct, which tells the same classes apart.
//!
//! Every part of a set that could go could go, too, so sets grow attribute by attribute in their order, and one that cannot grow by any
//! attribute is one of the largest. Attributes that show one value everywhere tell nothing and are not named.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::Evaluator;
use crate::frequency::set::Classes;
use crate::model::domain::Code;
use crate::model::recoding::Recoding;

/// How many codes are looked at for sets of several attributes. More takes longer than somebody who looks at a search waits; fewer
/// leaves sets of large releases unnamed.
const MOST_CODES: usize = 1 << 22;

impl Evaluator<'_> {
    /// The largest sets of attributes that the release could do without, each set by itself; empty if it needs all of them. All such
    /// sets of a release of usual size, otherwise those that a bounded time finds, at least one.
    pub fn superfluous(&self, recoding: &Recoding) -> Vec<Vec<usize>> {
        let set = self.classes(recoding);
        let published = self.published(&*set);
        let shown: Vec<usize> = (0..set.len()).filter(|&class| published[class]).collect();
        let differs = |&at: &usize| shown.iter().any(|&class| set.code(class, at) != set.code(shown[0], at));
        let telling: Vec<usize> = (0..set.node().levels().len()).filter(differs).collect();
        let mut growth =
            Growth { set: &*set, shown, alone: Vec::new(), known: FxHashMap::default(), left: MOST_CODES, telling };
        growth.alone = growth.telling.clone().into_iter().filter(|&at| growth.tells_apart_without(&[at])).collect();
        let mut largest = Vec::new();
        growth.grow(&mut Vec::new(), &mut largest);
        largest
    }
}

struct Growth<'a> {
    set: &'a dyn Classes,
    shown: Vec<usize>,
    /// The attributes that show several values, and those of them that could go alone.
    telling: Vec<usize>,
    alone: Vec<usize>,
    /// Whether a set could go, as far as that was asked.
    known: FxHashMap<Vec<usize>, bool>,
    /// Codes that may still be looked at.
    left: usize,
}

impl Growth<'_> {
    /// Adds the largest sets to `largest` that begin with the attributes of `gone`.
    fn grow(&mut self, gone: &mut Vec<usize>, largest: &mut Vec<Vec<usize>>) {
        let (mut grows, last) = (false, gone.last().copied());
        for at in self.alone.clone() {
            // Without time left the first of the largest sets is still found, by one more look at each attribute.
            if gone.contains(&at) || (self.left == 0 && !largest.is_empty()) {
                continue;
            }
            let mut with = gone.clone();
            with.push(at);
            with.sort_unstable();
            if !self.could_go(with) {
                continue;
            }
            grows = true;
            if last.is_none_or(|last| last < at) {
                gone.push(at);
                self.grow(gone, largest);
                gone.pop();
            }
        }
        let is_new = !gone.is_empty() && !grows && (self.left > 0 || largest.is_empty());
        largest.extend(is_new.then(|| gone.clone()));
    }

    fn could_go(&mut self, gone: Vec<usize>) -> bool {
        if let Some(&known) = self.known.get(&gone) {
            return known;
        }
        let could = self.tells_apart_without(&gone);
        self.left = self.left.saturating_sub(self.shown.len() * (self.telling.len() - gone.len()));
        self.known.insert(gone, could);
        could
    }

    /// Whether the attributes that are not gone tell all classes apart.
    fn tells_apart_without(&self, gone: &[usize]) -> bool {
        let kept: SmallVec<[usize; 16]> = self.telling.iter().copied().filter(|at| !gone.contains(at)).collect();
        let mut seen = FxHashSet::default();
        let codes = |class: usize| kept.iter().map(|&at| self.set.code(class, at)).collect::<SmallVec<[Code; 16]>>();
        self.shown.iter().all(|&class| seen.insert(codes(class)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::model::hierarchy::Hierarchy;
    use crate::model::lattice::Node;
    use crate::model::recoding::Recoding;
    use crate::search::fixture::{Table, policy};

    proptest! {
        /// What is said of any set of attributes is what comparing the texts of all published classes without it says.
        #[test]
        fn every_largest_set_is_found(
            rows in prop::collection::vec([0_u8..3, 0..3, 0..3, 0..2, 0..2], 1..30), k in 1_u32..3,
            levels in prop::array::uniform5(0_u8..2),
        ) {
            let hierarchy = || Hierarchy::parse_csv("v0;g;*\nv1;g;*\nv2;h;*\n".as_bytes()).unwrap();
            let names = ["a", "b", "c", "d", "e"];
            let texts: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|v| format!("v{v}")).collect()).collect();
            let mut policy = policy(names.iter().map(|name| (*name, hierarchy())).collect(), &[], k);
            policy.suppression.0 = 1.0;
            let table = Table::new(policy, &texts);
            let evaluator = table.evaluator();
            let recoding = Recoding::Node(Node::new(levels));
            let set = evaluator.classes(&recoding);
            let published = evaluator.published(&*set);
            let classes: Vec<[u32; 5]> = (0..set.len())
                .filter(|&class| published[class])
                .map(|class| std::array::from_fn(|at| set.code(class, at)))
                .collect();
            let differs = |at: usize| classes.iter().any(|class| class[at] != classes[0][at]);
            let could_go = |gone: u32| (0..5).all(|at| gone >> at & 1 == 0 || differs(at)) && {
                let kept = |class: &[u32; 5]| (0..5).filter(|at| gone >> at & 1 == 0).map(|at| class[at]).collect::<Vec<_>>();
                (0..classes.len()).all(|a| (0..a).all(|b| kept(&classes[a]) != kept(&classes[b])))
            };
            let largest = |gone: &u32| could_go(*gone) && (0..5).all(|at| gone >> at & 1 == 1 || !could_go(gone | 1 << at));
            let named = |gone: u32| (0..5).filter(|at| gone >> at & 1 == 1).collect::<Vec<usize>>();
            let mut expected: Vec<Vec<usize>> = (1..32).filter(largest).map(named).collect();
            let mut found = evaluator.superfluous(&recoding);
            expected.sort();
            found.sort();
            prop_assert_eq!(found, expected);
        }
    }
}
