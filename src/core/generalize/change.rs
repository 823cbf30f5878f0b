//! The column of a changelog: whether a row is part of a whole snapshot, comes, or leaves.
//!
//! It is one more column of the batch, so everything after it (the gate's count, the order of the rows, the sinks) treats it as what
//! it is for a reader: a part of the row. Rows that come and rows that leave are different classes.

use std::sync::Arc;

use super::{GeneralizedBatch, Labels, RowRef};
use crate::model::domain::Code;
use crate::model::words;

words! {
    /// The effect of a changelog's row on the reader's snapshot; the column has their numbers in this order.
    pub enum Change {
        /// It is part of a snapshot that replaces all before it.
        Whole = "=",
        /// It is added.
        Comes = "+",
        /// One row that reads like it is removed.
        Leaves = "-",
    }
}

impl GeneralizedBatch {
    /// The same batch with the column of a changelog behind the quasi-identifiers.
    #[must_use]
    pub(crate) fn into_changelog(mut self, change: impl Fn(RowRef) -> Change) -> Self {
        const NONE: u32 = u32::MAX;
        let width = self.quasi.len();
        let mut numbers = vec![[NONE; Change::ALL.len()]; self.class_count];
        let (mut cells, mut count) = (Vec::with_capacity(self.class_cells.len() + self.class_count), 0);
        for (class, &row) in self.classes.iter_mut().zip(&self.order) {
            let change = change(row);
            let number = &mut numbers[*class as usize][change as usize];
            if *number == NONE {
                *number = count;
                count += 1;
                let old = *class as usize * width;
                cells.extend_from_slice(&self.class_cells[old..old + width]);
                cells.push(change as Code);
            }
            *class = *number;
        }
        (self.class_cells, self.class_count) = (cells, count as usize);
        let texts: Arc<[String]> = Change::ALL.map(|change| change.as_str().to_owned()).into();
        self.quasi.push(Labels::Table(texts));
        self
    }

    /// The effect of a row by the column of a changelog, and the codes of its other columns; `None` for a batch that is none.
    pub(crate) fn change(&self, class: usize) -> Option<(Change, &[Code])> {
        let (&last, others) = self.class_cells(class).split_last()?;
        let is_changelog = self.quasi.len() > self.columns.len();
        is_changelog.then(|| Change::ALL.get(last as usize).copied().zip(Some(others))).flatten()
    }
}
