//! [`SmallClasses`]: the records of a node that are in classes too small to be published.
//!
//! This is all that most node checks need: how many records are left out, how many classes are shown, and, where few enough are left
//! out, the values of the records left out. A [`Question`] says how much of that is wanted.
//! Invariant: after any change of the classes that it follows, it equals the one made anew. It holds counts only, so that no
//! rounding adds up however long the stream is.

use std::sync::OnceLock;

use crate::frequency::key::{ClassKey, KeyField};
use crate::model::counting::Histogram;
use crate::model::domain::Code;

/// Says whether a class of this size, with these histograms, may be shown.
pub type Shown<'a> = &'a dyn Fn(u32, &[Histogram<'_>]) -> bool;

/// What a search wants to know of a node.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// The least size of a class that is shown. With a rule it only stands for the rule: one store is always asked the same.
    pub least: u32,
    /// The rule by which a class is shown, where that is not its size alone.
    pub rule: Option<Shown<'a>>,
    /// The values of the records left out are wanted if these are at most so many. If they are more, any number above it may stand for
    /// theirs.
    pub cells_up_to: Option<u64>,
}

impl<'a> Question<'a> {
    /// Which records are in classes below a least size.
    pub fn by_size(least: u32) -> Self {
        Self { least, rule: None, cells_up_to: None }
    }

    /// Which records are in classes that may not be shown; always the same rule with the same `least`.
    pub fn by_rule(least: u32, rule: Shown<'a>) -> Self {
        Self { least, rule: Some(rule), cells_up_to: None }
    }

    /// The same with the values of the records left out, if these are at most so many.
    pub fn with_cells(self, most: u64) -> Self {
        Self { cells_up_to: Some(most), ..self }
    }

    /// True if the values of so many records left out are wanted.
    pub(crate) fn wants_cells(&self, left_out: u64) -> bool {
        self.cells_up_to.is_some_and(|most| left_out <= most)
    }

    /// True if a class is shown.
    pub(crate) fn shows(&self, size: u32, facets: &[Histogram<'_>]) -> bool {
        self.rule.map_or(size >= self.least, |rule| rule(size, facets))
    }
}

/// The classes of a set below a least size.
#[derive(Debug, Clone)]
pub struct SmallClasses {
    least: u32,
    left_out: u64,
    shown: u64,
    /// Records left out by attribute and code; made when first asked for.
    cells: OnceLock<Vec<Vec<u32>>>,
}

impl SmallClasses {
    /// Of classes with their records and sizes.
    pub(crate) fn of(classes: impl Iterator<Item = (u32, u32)>, least: u32) -> Self {
        let mut small = Self { least, left_out: 0, shown: 0, cells: OnceLock::new() };
        for (rows, size) in classes {
            let shown = size >= least;
            small.shown += u64::from(shown);
            small.left_out += if shown { 0 } else { u64::from(rows) };
        }
        small
    }

    /// Of classes whose sizes are their records. No window holds more records than a count of 32 bits, which several at a time are
    /// added up in.
    pub(crate) fn of_records(rows: &[u32], least: u32) -> Self {
        let (mut left_out, mut shown) = (0u32, 0u32);
        for &rows in rows {
            let small = rows < least;
            left_out += if small { rows } else { 0 };
            shown += u32::from(!small);
        }
        Self::counted(least, u64::from(left_out), u64::from(shown))
    }

    /// Of classes that were counted, without their cells.
    pub(crate) fn counted(least: u32, left_out: u64, shown: u64) -> Self {
        Self { least, left_out, shown, cells: OnceLock::new() }
    }

    /// The least size that it was made for.
    pub(crate) fn least(&self) -> u32 {
        self.least
    }

    /// Records in classes below the least size.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Classes of at least that size.
    pub fn shown(&self) -> u64 {
        self.shown
    }

    /// The records left out by attribute and code; `count` counts them if nobody has.
    pub(crate) fn cells(&self, count: impl FnOnce() -> Vec<Vec<u32>>) -> &[Vec<u32>] {
        self.cells.get_or_init(count)
    }

    /// The same, if anybody has counted them.
    pub fn cells_left_out(&self) -> Option<&[Vec<u32>]> {
        self.cells.get().map(Vec::as_slice)
    }

    /// To follow changes of its classes.
    pub(crate) fn follow(&mut self) -> Following<'_> {
        let Self { left_out, shown, cells, .. } = self;
        Following { left_out, shown, left: 0, more: 0, cells: cells.get_mut() }
    }
}

/// Small classes on their way from one moment to the next; they have arrived once this is dropped.
pub(crate) struct Following<'a> {
    left_out: &'a mut u64,
    shown: &'a mut u64,
    /// What is to be added to these.
    left: i64,
    more: i64,
    cells: Option<&'a mut Vec<Vec<u32>>>,
}

impl Following<'_> {
    /// Follows a class from its records, and whether it was shown, to what they become.
    #[inline]
    pub(crate) fn judged<K: ClassKey>(
        &mut self,
        key: &K,
        fields: &[KeyField],
        before: (u32, bool),
        after: (u32, bool),
    ) {
        let of = |(rows, shown): (u32, bool)| rows * u32::from(!shown);
        let (was, is) = (of(before), of(after));
        self.more += i64::from(after.1) - i64::from(before.1);
        self.left += i64::from(is) - i64::from(was);
        if let Some(cells) = &mut self.cells
            && was != is
        {
            for (cells, &field) in cells.iter_mut().zip(fields) {
                let cell = at(cells, key.get(field));
                *cell = *cell + is - was;
            }
        }
    }
}

impl Drop for Following<'_> {
    fn drop(&mut self) {
        *self.left_out = self.left_out.wrapping_add_signed(self.left);
        *self.shown = self.shown.wrapping_add_signed(self.more);
    }
}

/// The records of some classes, by attribute and code.
pub(crate) fn cells<K: ClassKey>(fields: &[KeyField], classes: impl Iterator<Item = (K, u32)>) -> Vec<Vec<u32>> {
    let mut cells = vec![Vec::new(); fields.len()];
    for (key, rows) in classes {
        cells.iter_mut().zip(fields).for_each(|(cells, &field)| *at(cells, key.get(field)) += rows);
    }
    cells
}

fn at(cells: &mut Vec<u32>, code: Code) -> &mut u32 {
    if cells.len() <= code as usize {
        cells.resize(code as usize + 1, 0);
    }
    &mut cells[code as usize]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// By size or by records alone, the same is left out.
        #[test]
        fn records_are_sizes_where_nobody_returns(classes in prop::collection::vec(1u32..12, 0..60), least in 1u32..7) {
            let small = SmallClasses::of(classes.iter().map(|&rows| (rows, rows)), least);
            let same = SmallClasses::of_records(&classes, least);
            prop_assert_eq!((small.left_out(), small.shown()), (same.left_out(), same.shown()));
            let left_out: u32 = classes.iter().filter(|rows| **rows < least).sum();
            prop_assert_eq!(small.left_out(), u64::from(left_out));
        }
    }
}
