//! What the sizes of a node's classes say by themselves: which records are in classes that are too small to be shown.
//!
//! Invariant: after any change to a set that it follows, it equals the outline of that set made anew. Counts only, so that no
//! rounding adds up however long the stream is.

use std::sync::OnceLock;

use super::key::{Field, Key};
use crate::model::domain::Code;

/// The classes of a set below a least size.
#[derive(Debug, Clone)]
pub struct Outline {
    least: u32,
    left_out: u64,
    shown: u64,
    /// Records left out by attribute and code; made when first asked for.
    cells: OnceLock<Vec<Vec<u32>>>,
}

impl Outline {
    /// Of classes with their records and sizes.
    pub(super) fn of(classes: impl Iterator<Item = (u32, u32)>, least: u32) -> Self {
        let mut outline = Self { least, left_out: 0, shown: 0, cells: OnceLock::new() };
        for (rows, size) in classes {
            let shown = size >= least;
            outline.shown += u64::from(shown);
            outline.left_out += if shown { 0 } else { u64::from(rows) };
        }
        outline
    }

    /// Of classes that were counted, without their cells.
    pub(super) fn counted(least: u32, left_out: u64, shown: u64) -> Self {
        Self { least, left_out, shown, cells: OnceLock::new() }
    }

    /// The least size that it was made for.
    pub(super) fn least(&self) -> u32 {
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
    pub(super) fn cells(&self, count: impl FnOnce() -> Vec<Vec<u32>>) -> &[Vec<u32>] {
        self.cells.get_or_init(count)
    }

    /// The same, if anybody has counted them.
    pub fn cells_left_out(&self) -> Option<&[Vec<u32>]> {
        self.cells.get().map(Vec::as_slice)
    }

    /// Follows a class whose records, which are its size, become `after`.
    pub(super) fn follow<K: Key>(&mut self, key: &K, fields: &[Field], before: u32, after: u32) {
        let of = |rows: u32| if rows < self.least { rows } else { 0 };
        let (was, is) = (of(before), of(after));
        self.shown =
            self.shown + u64::from(after >= self.least && after > 0) - u64::from(before >= self.least && before > 0);
        if was == is {
            return;
        }
        self.left_out = self.left_out + u64::from(is) - u64::from(was);
        if let Some(cells) = self.cells.get_mut() {
            for (cells, &field) in cells.iter_mut().zip(fields) {
                let cell = at(cells, key.get(field));
                *cell = *cell + is - was;
            }
        }
    }
}

/// The records of some classes, by attribute and code.
pub(super) fn cells<K: Key>(fields: &[Field], classes: impl Iterator<Item = (K, u32)>) -> Vec<Vec<u32>> {
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
