//! Cuts in a plan: the levels from which the same cuts are made again after a crash.
//!
//! A plan is small and must not contain a value, and the codes of a dictionary follow the order of reading, which is another one when
//! a release is made again. So cuts are written for the leaves that occur in some rows, which the replay reads again: the leaves of
//! an attribute are ordered by the labels on their path from the top, so that the leaves below a published value stand together, and
//! each published value adds its level, in that order. The reader walks the same leaves and takes the next level whenever a leaf is
//! not below the value before it.
//!
//! ```text
//! coarsest level per attribute [, finest level per attribute, then for each attribute where they differ its published values]
//! ```
//! Levels of a node have the first part only. It names the least node above the cuts: all that can be read without the rows.
//!
//! Invariant: written and read for rows with the same leaves, the cuts publish these leaves as the same values.

use std::sync::Arc;

use super::{Cut, Recoding};
use crate::model::batch::Rows;
use crate::model::domain::{Code, DomainView};
use crate::model::lattice::{Lattice, Level, Node};

/// The leaves that occur in some rows, by attribute, each ordered by the labels from the top down.
pub struct OccurringLeaves<'a> {
    domains: &'a [Arc<DomainView>],
    leaves: Vec<Vec<Code>>,
}

impl<'a> OccurringLeaves<'a> {
    /// The leaves of these rows.
    pub fn new<'r>(domains: &'a [Arc<DomainView>], rows: impl Iterator<Item = (&'r Rows, usize)>) -> Self {
        let mut occurs: Vec<Vec<bool>> = domains.iter().map(|view| vec![false; view.leaf_count()]).collect();
        for (rows, i) in rows {
            occurs.iter_mut().zip(rows.quasi(i)).for_each(|(occurs, &leaf)| occurs[leaf as usize] = true);
        }
        let ordered = |(view, occurs): (&Arc<DomainView>, Vec<bool>)| {
            let mut leaves: Vec<Code> = (0..).zip(occurs).filter(|(_, occurs)| *occurs).map(|(leaf, _)| leaf).collect();
            let maps: Vec<Vec<Code>> = (0..=view.height()).map(|level| view.between(0, level)).collect();
            let maps = &maps;
            let path = |leaf: Code| {
                let label = move |level: Level| view.level(level).label(maps[usize::from(level)][leaf as usize]);
                (0..=view.height()).rev().map(label)
            };
            leaves.sort_unstable_by(|&a, &b| path(a).cmp(path(b)));
            leaves
        };
        Self { domains, leaves: domains.iter().zip(occurs).map(ordered).collect() }
    }

    /// The levels by which a plan names a recoding for these leaves.
    pub fn write(&self, recoding: &Recoding) -> Vec<Level> {
        let mut levels = recoding.coarsest().levels().to_vec();
        let Recoding::Cuts(cuts) = recoding else { return levels };
        if recoding.node().is_none() {
            levels.extend_from_slice(recoding.finest().levels());
            (0..cuts.len()).for_each(|at| levels.extend(self.values(at, &cuts[at])));
        }
        levels
    }

    /// The levels of the values that a cut of an attribute publishes; none if it has one level for all leaves.
    pub fn values(&self, attribute: usize, cut: &Cut) -> Vec<Level> {
        let mut levels = Vec::new();
        if cut.uniform().is_none() {
            let mut walk = Walk::new(&self.domains[attribute]);
            for &leaf in &self.leaves[attribute] {
                if !walk.covers(leaf) {
                    walk.publish(leaf, cut.levels()[leaf as usize]);
                    levels.push(walk.level);
                }
            }
        }
        levels
    }

    /// The recoding that [`OccurringLeaves::write`] named; `None` if it does not fit these leaves or this lattice.
    pub fn read(&self, levels: &[Level], lattice: &Lattice) -> Option<Recoding> {
        let (coarsest, rest) = levels.split_at_checked(self.domains.len())?;
        let node = Node::new(coarsest.iter().copied());
        if !lattice.contains(&node) {
            return None;
        }
        if rest.is_empty() {
            return Some(Recoding::Node(node));
        }
        let (finest, mut rest) = rest.split_at_checked(self.domains.len())?;
        if finest == coarsest {
            // Written as a node.
            return None;
        }
        let mut cuts = Vec::new();
        for (at, (view, leaves)) in self.domains.iter().zip(&self.leaves).enumerate() {
            let permitted = finest[at].max(lattice.bottom().levels()[at])..=coarsest[at];
            if finest[at] == coarsest[at] {
                cuts.push(Cut::level(view, coarsest[at]));
                continue;
            }
            let mut walk = Walk::new(view);
            let mut known = vec![None; view.leaf_count()];
            for &leaf in leaves {
                if !walk.covers(leaf) {
                    let (&level, others) = rest.split_first()?;
                    rest = others;
                    walk.publish(leaf, Some(level).filter(|level| permitted.contains(level))?);
                }
                known[leaf as usize] = Some(walk.level);
            }
            cuts.push(Cut::completed(view, &known, coarsest[at]));
        }
        rest.is_empty().then_some(Recoding::Cuts(cuts))
    }
}

/// The published value that the walk over ordered leaves is below.
struct Walk {
    maps: Vec<Vec<Code>>,
    level: Level,
    value: Option<Code>,
}

impl Walk {
    fn new(view: &DomainView) -> Self {
        Self { maps: (0..=view.height()).map(|level| view.between(0, level)).collect(), level: 0, value: None }
    }

    fn covers(&self, leaf: Code) -> bool {
        self.value == Some(self.maps[usize::from(self.level)][leaf as usize])
    }

    fn publish(&mut self, leaf: Code, level: Level) {
        (self.level, self.value) = (level, Some(self.maps[usize::from(level)][leaf as usize]));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{random_cut, zips};
    use super::*;
    use crate::model::batch::Row;
    use crate::model::event::{Millis, Position};

    /// Rows of the leaves with these texts.
    fn rows(domain: &mut crate::model::domain::Domain, texts: &[&str]) -> Rows {
        let mut rows = Rows::new(1, 0);
        for (at, text) in texts.iter().enumerate() {
            let row = Row { quasi: [domain.code(text).unwrap()].into_iter().collect(), ..Row::default() };
            rows.push(Position::new(0, at as i64), Millis(0), &row);
        }
        rows
    }

    fn labels(view: &Arc<DomainView>, rows: &Rows, recoding: &Recoding) -> Vec<String> {
        let column = &recoding.columns(std::slice::from_ref(view))[0];
        (0..rows.len()).map(|i| column.label(column.map()[rows.quasi(i)[0] as usize]).to_owned()).collect()
    }

    proptest! {
        /// Another process reads the rows in another order, beside other leaves, and publishes the same values.
        #[test]
        fn cuts_are_made_again_from_the_same_rows(
            texts in prop::collection::vec("[0-2]{3}", 1..20), other in prop::collection::vec("[0-3]{3}", 0..9),
            more in prop::collection::vec("[0-3]{3}", 0..9), seed in any::<u64>(), max in 0_u8..=3,
        ) {
            let own: Vec<&str> = texts.iter().map(String::as_str).collect();
            let (mut domain, _) = zips(&other.iter().map(String::as_str).collect::<Vec<_>>());
            let before = rows(&mut domain, &own);
            let view = domain.view();
            let cuts = Recoding::Cuts(vec![random_cut(&view, seed, max)]);
            let at = |rows| (0..own.len()).map(move |i| (rows, i));
            let levels = OccurringLeaves::new(std::slice::from_ref(&view), at(&before)).write(&cuts);
            let lattice = Lattice::from_heights(&[max]);

            let (mut domain, _) = zips(&more.iter().map(String::as_str).collect::<Vec<_>>());
            let reversed: Vec<&str> = own.iter().rev().copied().collect();
            let after = rows(&mut domain, &reversed);
            let again = domain.view();
            let leaves = OccurringLeaves::new(std::slice::from_ref(&again), at(&after));
            let read = leaves.read(&levels, &lattice);
            prop_assert!(read.is_some(), "{:?}", levels);
            let read = read.unwrap();
            let mut shown = labels(&again, &after, &read);
            shown.reverse();
            prop_assert_eq!(labels(&view, &before, &cuts), shown);
            prop_assert!(Cut::new(&again, read.cuts(std::slice::from_ref(&again))[0].levels()).is_some());
            // A process that has not read the rows knows this much.
            prop_assert_eq!(levels[0], cuts.coarsest().levels()[0]);
            // A level more or less is another recoding.
            prop_assert_eq!(leaves.read(&[&levels[..], &[0]].concat(), &lattice).is_some(), false);
            prop_assert!(levels.len() < 3 || leaves.read(&levels[..levels.len() - 1], &lattice).is_none());
        }
    }
}
