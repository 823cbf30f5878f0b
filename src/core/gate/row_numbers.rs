//! The number of a row by the position of its record. Positions of a window stand close together, so their numbers lie in small pages: a
//! look-up touches a table of pages, which is small, and one page, in which the next position is too.
//!
//! Invariant: a page without numbers is not kept.

use rustc_hash::FxHashMap;

use super::difference::NONE;
use crate::model::event::{Partition, Position};

/// Offsets per page. More hold more empty places where few offsets are of rows; fewer make more pages to look up.
const PAGE: i64 = 64;

/// Numbers by position.
#[derive(Default)]
pub(super) struct RowNumbers {
    pages: FxHashMap<(Partition, i64), Box<Page>>,
    len: usize,
}

struct Page {
    numbers: [u32; PAGE as usize],
    len: usize,
}

fn place(position: Position) -> ((Partition, i64), usize) {
    let offset = position.offset.0;
    ((position.partition, offset.div_euclid(PAGE)), offset.rem_euclid(PAGE) as usize)
}

impl RowNumbers {
    /// How many positions have a number.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The number of a position.
    pub(super) fn get(&self, position: Position) -> Option<u32> {
        let (page, at) = place(position);
        self.pages.get(&page).map(|page| page.numbers[at]).filter(|number| *number != NONE)
    }

    /// Gives a position a number; it has none yet.
    pub(super) fn insert(&mut self, position: Position, number: u32) {
        let (page, at) = place(position);
        let page = self.pages.entry(page).or_insert_with(|| Box::new(Page { numbers: [NONE; PAGE as usize], len: 0 }));
        let is_new = std::mem::replace(&mut page.numbers[at], number) == NONE;
        page.len += usize::from(is_new);
        self.len += usize::from(is_new);
    }

    /// Takes the number of a position away.
    pub(super) fn remove(&mut self, position: Position) {
        let (key, at) = place(position);
        let Some(page) = self.pages.get_mut(&key) else { return };
        let had = usize::from(std::mem::replace(&mut page.numbers[at], NONE) != NONE);
        page.len -= had;
        self.len -= had;
        if page.len == 0 {
            self.pages.remove(&key);
        }
    }

    /// Replaces each number by the one that stands there in `numbers`.
    pub(super) fn renumber(&mut self, numbers: &[u32]) {
        let all = self.pages.values_mut().flat_map(|page| &mut page.numbers);
        all.filter(|number| **number != NONE).for_each(|number| *number = numbers[*number as usize]);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn positions_have_the_numbers_of_a_map(steps in prop::collection::vec((any::<bool>(), 0u32..2, -9i64..400), 0..200)) {
            let (mut places, mut twin) = (RowNumbers::default(), BTreeMap::new());
            for (number, (adds, partition, offset)) in (0..).zip(steps) {
                let position = Position::new(partition, offset);
                if adds {
                    places.insert(position, number);
                    twin.insert((partition, offset), number);
                } else {
                    places.remove(position);
                    twin.remove(&(partition, offset));
                }
                prop_assert_eq!(places.len(), twin.len());
            }
            let all = (0..2).flat_map(|partition| (-9..400).map(move |offset| (partition, offset)));
            for (partition, offset) in all {
                let number = places.get(Position::new(partition, offset));
                prop_assert_eq!(number, twin.get(&(partition, offset)).copied());
            }
            places.renumber(&(0..200).map(|number| number + 7).collect::<Vec<u32>>());
            for ((partition, offset), number) in twin {
                prop_assert_eq!(places.get(Position::new(partition, offset)), Some(number + 7));
            }
        }
    }
}
