//! Numbers the classes of rows: rows whose published codes are all equal have one number.
//!
//! Codes are packed into one word per step, and looked up there. Where a word does not hold them all, the number found for the first
//! ones stands for them in the next step, so that keys of any width cost words only.

use rustc_hash::FxHashMap;

use crate::model::domain::Code;

/// The classes so far, numbered from 0.
pub(crate) struct ClassIndex {
    steps: Vec<Step>,
    width: usize,
    /// The codes of every class, class by class.
    cells: Vec<Code>,
    len: u32,
}

/// Some of the columns, packed.
#[derive(Default)]
struct Step {
    shifts: Vec<u32>,
    table: FxHashMap<u64, u32>,
}

impl ClassIndex {
    /// No classes yet, over columns of so many published codes each.
    pub(crate) fn new(sizes: impl Iterator<Item = usize>) -> Self {
        let (steps, width) = steps(sizes);
        Self { steps, width, cells: Vec::new(), len: 0 }
    }

    /// True if codes of columns of these sizes can be looked up too.
    pub(crate) fn fits(&self, sizes: impl Iterator<Item = usize>) -> bool {
        let shifts = |steps: &[Step]| steps.iter().map(|step| step.shifts.clone()).collect::<Vec<_>>();
        shifts(&steps(sizes).0) == shifts(&self.steps)
    }

    /// The number of the class with these codes, one per column; a new one if there was none.
    pub(crate) fn number(&mut self, codes: impl Iterator<Item = Code> + Clone) -> u32 {
        let mut rest = codes.clone();
        let mut number = 0;
        for step in &mut self.steps {
            let key = key(number, &step.shifts, &mut rest);
            let next = step.table.len() as u32;
            number = *step.table.entry(key).or_insert(next);
        }
        if number == self.len {
            self.cells.extend(codes);
            self.len += 1;
        }
        number
    }

    /// How many classes there are.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// The codes of all classes, class by class.
    pub(crate) fn cells(&self) -> &[Code] {
        &self.cells
    }

    /// The codes of all classes, class by class, and how many classes there are.
    pub(crate) fn into_cells(self) -> (Vec<Code>, usize) {
        debug_assert_eq!(self.cells.len(), self.width * self.len as usize);
        (self.cells, self.len as usize)
    }
}

/// The steps for columns of these sizes, and how many columns there are.
fn steps(sizes: impl Iterator<Item = usize>) -> (Vec<Step>, usize) {
    let mut steps = vec![Step::default()];
    let (mut used, mut room, mut width) = (0, u64::BITS, 0);
    for size in sizes {
        let bits = (usize::BITS - size.saturating_sub(1).leading_zeros()).min(Code::BITS);
        if used + bits > room {
            steps.push(Step::default());
            // The number of the step before takes the other half.
            (used, room) = (0, u64::BITS - u32::BITS);
        }
        if let Some(step) = steps.last_mut() {
            // A column of one code takes no bits; any shift will do for its 0.
            step.shifts.push(used.min(u64::BITS - 1));
        }
        used += bits;
        width += 1;
    }
    (steps, width)
}

#[inline]
fn key(number: u32, shifts: &[u32], codes: &mut impl Iterator<Item = Code>) -> u64 {
    let pack = |key: u64, (shift, code): (&u32, Code)| key | u64::from(code) << shift;
    shifts.iter().zip(codes).fold(u64::from(number) << 32, pack)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The slow twin: a map of whole rows.
        #[test]
        fn equal_rows_have_one_number(
            sizes in prop::collection::vec(prop_oneof![Just(1usize), 2usize..5, Just(1 << 20), Just(u32::MAX as usize)], 0..9),
            dice in prop::collection::vec(prop::collection::vec(0u32..3, 9), 1..60),
        ) {
            let mut index = ClassIndex::new(sizes.iter().copied());
            let mut naive: HashMap<Vec<Code>, u32> = HashMap::new();
            for dice in &dice {
                // Small codes and the largest ones.
                let code = |(&size, &die): (&usize, &u32)| if die == 2 { size as u32 - 1 } else { die.min(size as u32 - 1) };
                let row: Vec<Code> = sizes.iter().zip(dice).map(code).collect();
                let next = naive.len() as u32;
                let expected = *naive.entry(row.clone()).or_insert(next);
                prop_assert_eq!(index.number(row.iter().copied()), expected);
            }
            let (cells, len) = index.into_cells();
            prop_assert_eq!(len, naive.len());
            for (row, number) in naive {
                prop_assert_eq!(&cells[number as usize * sizes.len()..][..sizes.len()], row);
            }
        }
    }
}
