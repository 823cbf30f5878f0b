//! The class of every row, handed from the planning of a release to its making, so that rows are looked up once.
//!
//! Any numbers do, as long as rows have the same one just if their published codes are equal. What is written does not depend
//! on them: a batch numbers its classes in the order of its rows.

use std::sync::Arc;

use super::{ClassIndex, RowRef};
use crate::model::batch::Rows;
use crate::model::domain::Code;
use crate::model::recoding::Column;

/// Numbers of classes, by row.
#[derive(Default)]
pub(crate) struct Numbers {
    /// Of the fresh rows.
    pub(crate) fresh: Vec<u32>,
    /// Of the held rows.
    pub(crate) held: Vec<u32>,
    /// The published codes of every class, class by class. Some may have no rows.
    pub(crate) cells: Vec<Code>,
    /// How many classes there are.
    pub(crate) count: usize,
}

/// No class has it: there are no more of them than rows.
const UNNAMED: u32 = u32::MAX;

impl Numbers {
    /// Of these rows; the others may have any.
    pub(crate) fn of(fresh: &Rows, held: &Rows, rows: &[RowRef], columns: &[Arc<Column>]) -> Self {
        let mut index = ClassIndex::new(columns.iter().map(|column| column.len()));
        let (mut of_fresh, mut of_held) = (vec![0; fresh.len()], vec![0; held.len()]);
        for row in rows {
            let (leaves, number) = match *row {
                RowRef::Fresh(i) => (fresh.quasi(i as usize), &mut of_fresh[i as usize]),
                RowRef::Held(i) => (held.quasi(i as usize), &mut of_held[i as usize]),
            };
            *number = index.number(leaves.iter().zip(columns).map(|(&leaf, column)| column.map()[leaf as usize]));
        }
        let (cells, count) = index.into_cells();
        Self { fresh: of_fresh, held: of_held, cells, count }
    }

    /// The number of a row.
    #[inline]
    pub(super) fn get(&self, row: RowRef) -> u32 {
        match row {
            RowRef::Fresh(i) => self.fresh[i as usize],
            RowRef::Held(i) => self.held[i as usize],
        }
    }

    /// True if the class of every one of these rows has the codes that the columns give it.
    pub(super) fn are_of(&self, fresh: &Rows, held: &Rows, rows: &[RowRef], columns: &[Arc<Column>]) -> bool {
        rows.iter().all(|&row| {
            let leaves = match row {
                RowRef::Fresh(i) => fresh.quasi(i as usize),
                RowRef::Held(i) => held.quasi(i as usize),
            };
            let cells = &self.cells[self.get(row) as usize * columns.len()..][..columns.len()];
            leaves.iter().zip(columns).zip(cells).all(|((&leaf, column), &code)| column.shows(leaf, code))
        })
    }

    /// For every number that of the same class in order of first appearance among `rows`, if it appears; the published codes
    /// of those that do, class by class, and how many do.
    pub(super) fn in_order(&self, rows: &[RowRef], width: usize) -> (Vec<u32>, Vec<Code>, usize) {
        let mut names = vec![UNNAMED; self.count];
        let (mut cells, mut count) = (Vec::new(), 0);
        for &row in rows {
            let number = self.get(row) as usize;
            if names[number] == UNNAMED {
                names[number] = count;
                cells.extend_from_slice(&self.cells[number * width..(number + 1) * width]);
                count += 1;
            }
        }
        (names, cells, count as usize)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::generalize::GeneralizedBatch;
    use crate::model::hierarchy::{Hierarchy, PrefixSpec};
    use crate::model::lattice::Node;
    use crate::model::recoding::Recoding;
    use crate::search::fixture::{Table, policy};

    proptest! {
        /// However the classes were numbered before, and whichever others there were, the batch is the same.
        #[test]
        fn a_batch_does_not_depend_on_the_numbers_it_is_handed(
            people in prop::collection::vec((0u8..16, 0u8..4), 1..60),
            level in 0u8..3,
        ) {
            let zip = Hierarchy::prefix(PrefixSpec::new(2)).unwrap();
            let records: Vec<Vec<String>> = people.iter().map(|(zip, _)| vec![format!("{}{}", zip / 4, zip % 4)]).collect();
            let table = Table::new(policy(vec![("zip", zip)], &[], 1), &records);
            let columns = Recoding::from(Node::new([level])).columns(&table.dictionaries.quasi);
            let columns: Vec<Arc<Column>> = columns.into_iter().map(Arc::new).collect();
            let place = |(i, (_, die)): (u32, &(u8, u8))| match die {
                0 => None,
                1 => Some(RowRef::Held(i)),
                _ => Some(RowRef::Fresh(i)),
            };
            let order: Vec<RowRef> = (0..).zip(&people).filter_map(place).collect();
            let rows = || Arc::clone(&table.rows);
            // The last code first.
            let count = columns[0].len();
            let number = |i: usize| (count - 1) as u32 - columns[0].map()[table.rows.quasi(i)[0] as usize];
            let all: Vec<u32> = (0..people.len()).map(number).collect();
            let numbers = Numbers { fresh: all.clone(), held: all, cells: (0..count as Code).rev().collect(), count };
            let dictionaries = &table.dictionaries;
            let made = GeneralizedBatch::numbered(rows(), rows(), order.clone(), &numbers, &columns, dictionaries);
            let twin = GeneralizedBatch::at(rows(), rows(), order, &columns, dictionaries);
            prop_assert_eq!((&made.order, &made.classes), (&twin.order, &twin.classes));
            prop_assert_eq!((&made.class_cells, made.class_count), (&twin.class_cells, twin.class_count));
            for (at, &row) in made.order.iter().enumerate() {
                let (rows, i) = made.source(row);
                prop_assert_eq!(made.cells(at), &[columns[0].map()[rows.quasi(i)[0] as usize]]);
            }
            // In order of first appearance by position, so that there is just one way.
            let mut classes: Vec<(u32, u32)> = made.classes.iter().copied().zip(made.order.iter().map(|row| match row {
                RowRef::Fresh(i) | RowRef::Held(i) => *i,
            })).collect();
            classes.sort_unstable_by_key(|(_, i)| *i);
            let mut next = 0;
            for (class, _) in classes {
                prop_assert!(class <= next);
                next = next.max(class + 1);
            }
            prop_assert_eq!(next as usize, made.class_count);
        }
    }
}
