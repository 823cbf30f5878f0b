//! The levels at which rows are shown, where every row has levels of its own.
//!
//! The values of a row and its levels give its labels, and rows with the same labels are one class. So these levels are enough to make
//! a snapshot again from the log, and to know the classes of an earlier release. They hold no value, and few combinations occur, so
//! each is listed once.

use rustc_hash::FxHashMap;

use crate::model::lattice::Level;

/// The levels of some rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RowLevels {
    /// The combinations that occur: a level per quasi-identifier.
    combinations: Vec<Vec<Level>>,
    /// The combination of each row.
    rows: Vec<u32>,
}

impl RowLevels {
    /// The most rows whose levels are noted in a journal. More: the entry does not fit into a message (1 MB). Fewer: larger snapshots
    /// of local recoding cannot be made again, and after a restart people who return are left out.
    pub const MAX_ROWS: usize = 300_000;

    /// The levels of rows, in the order of the rows.
    pub fn new(rows: impl IntoIterator<Item = Vec<Level>>) -> Self {
        let mut numbers: FxHashMap<Vec<Level>, u32> = FxHashMap::default();
        let mut levels = Self::default();
        for row in rows {
            let next = levels.combinations.len() as u32;
            let number = *numbers.entry(row).or_insert_with_key(|row| {
                levels.combinations.push(row.clone());
                next
            });
            levels.rows.push(number);
        }
        levels
    }

    /// Rows that have these combinations; `None` if a row has none of them, or their numbers of levels differ.
    pub fn from_parts(combinations: Vec<Vec<Level>>, rows: Vec<u32>) -> Option<Self> {
        let even = combinations.windows(2).all(|pair| pair[0].len() == pair[1].len());
        let known = rows.iter().all(|&row| (row as usize) < combinations.len());
        (even && known).then_some(Self { combinations, rows })
    }

    /// The combinations that occur.
    pub fn combinations(&self) -> &[Vec<Level>] {
        &self.combinations
    }

    /// The combination of each row.
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// The levels of the rows at these places, in this order; `None` if there is no such row.
    pub fn of(&self, places: impl IntoIterator<Item = usize>) -> Option<Self> {
        let rows: Option<Vec<u32>> = places.into_iter().map(|place| self.rows.get(place).copied()).collect();
        Some(Self { combinations: self.combinations.clone(), rows: rows? })
    }
}
