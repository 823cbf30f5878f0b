//! A glance at a node: what the sizes of its classes say, counted without making its set.
//!
//! Whether too many records are in small classes is all that most nodes are asked, and that takes a byte per class and one pass.
//! Invariant: a glance equals the outline of the node's set.
//! Absent: classes whose size is not their records, and more of them than have places in a flat table; those sets are made.

use super::dense::{Aim, Dense};
use super::key::Key;
use super::outline::Outline;
use super::rollup::Step;
use super::set::FrequencySet;

/// How many places are read for each class that was summed before it is better to visit those again. More reads empty places,
/// fewer jumps about where reading on is faster.
const PLACES_PER_CLASS: usize = 8;

/// Counts at a glance. Its memory is kept from one use to the next.
#[derive(Debug, Default)]
pub(super) struct Glance {
    dense: Dense,
    /// Records by place, up to what a byte holds. All zero between two uses.
    counts: Vec<u8>,
    /// The places that were written to, where few were.
    at: Vec<u32>,
}

impl Glance {
    /// The outline, without cells, of the classes that `finer` has after some steps, of which each has a place in a flat table: by
    /// attribute there are `from[i]` codes, and will be `to[i]`. `None` if its sizes are not its records, or a byte does not tell.
    pub(super) fn at<K: Key>(
        &mut self,
        finer: &FrequencySet<K>,
        from: &[usize],
        to: &[usize],
        steps: &[Step<'_, K>],
        least: u32,
    ) -> Option<Outline> {
        let least = u8::try_from(least).ok().filter(|_| finer.subjects.is_none())?;
        self.dense.aim(&finer.fields, Aim { from, to, below: u32::MAX, keys: finer.keys.len() }, steps);
        let places = self.dense.places();
        if self.counts.len() < places {
            self.counts.resize(places, 0);
        }
        let counts = &mut self.counts[..places];
        let is_full = places <= finer.rows.len() * PLACES_PER_CLASS;
        let mut rows = finer.rows.as_slice();
        self.at.clear();
        self.dense.each(&finer.keys, |at| {
            let (these, others) = rows.split_at(at.len());
            for (&at, &rows) in at.iter().zip(these) {
                let count = &mut counts[at as usize];
                *count = count.saturating_add(rows.min(u32::from(u8::MAX)) as u8);
            }
            if !is_full {
                self.at.extend_from_slice(at);
            }
            rows = others;
        });
        let (left_out, shown) = if is_full { read(counts, least) } else { visit(counts, &self.at, least) };
        Some(Outline::counted(u32::from(least), left_out, shown))
    }
}

/// The records in classes below a least size, and how many classes are not. Leaves all places empty.
fn read(counts: &mut [u8], least: u8) -> (u64, u64) {
    let mut sums = (0, 0);
    // So many that sixteen bits hold what they come to.
    for counts in counts.chunks_mut(256) {
        let (mut left_out, mut shown) = (0u16, 0u16);
        for &count in &*counts {
            left_out += u16::from(if count < least { count } else { 0 });
            shown += u16::from(count >= least.max(1));
        }
        counts.fill(0);
        sums = (sums.0 + u64::from(left_out), sums.1 + u64::from(shown));
    }
    sums
}

/// The same from the places where there is something, each at least once.
fn visit(counts: &mut [u8], at: &[u32], least: u8) -> (u64, u64) {
    let mut sums = (0, 0);
    for &at in at {
        let count = std::mem::take(&mut counts[at as usize]);
        sums.0 += if count < least { u64::from(count) } else { 0 };
        sums.1 += u64::from(count >= least.max(1));
    }
    sums
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Reading all places and visiting those with something in them come to the same, and leave nothing behind.
        #[test]
        fn a_byte_is_enough(rows in prop::collection::vec((0u32..700, 1u32..90), 0..900), least in any::<u8>()) {
            let mut truth = vec![0u32; 700];
            let mut counts = vec![0u8; 700];
            for &(at, rows) in &rows {
                truth[at as usize] += rows;
                counts[at as usize] = counts[at as usize].saturating_add(rows as u8);
            }
            let small = |rows: &&u32| **rows < u32::from(least);
            let left_out: u32 = truth.iter().filter(small).sum();
            let shown = truth.iter().filter(|rows| !small(rows) && **rows > 0).count();
            let expected = (u64::from(left_out), shown as u64);
            prop_assert_eq!(read(&mut counts.clone(), least), expected);
            let at: Vec<u32> = rows.iter().map(|(at, _)| *at).collect();
            prop_assert_eq!(visit(&mut counts, &at, least), expected);
            prop_assert!(counts.iter().all(|count| *count == 0));
        }
    }
}
