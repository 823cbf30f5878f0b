//! The number of distinct values in bounded memory: the k smallest hashes. Exact while there are fewer than [`KEPT`] values; beyond
//! that the k-th smallest hash tells how densely the hashes lie (Bar-Yossef et al., 2002), with an error of about
//! 1 / sqrt([`KEPT`]), 0.8 %.

use std::collections::BTreeSet;

/// The hashes that are kept. Larger: more memory per field. Smaller: a worse estimate.
const KEPT: usize = 1 << 14;

/// Counts distinct hashes.
#[derive(Debug, Clone, Default)]
pub(super) struct DistinctCounter {
    smallest: BTreeSet<u64>,
}

impl DistinctCounter {
    /// Counts a value by its hash.
    pub(super) fn add(&mut self, hash: u64) {
        if self.smallest.len() < KEPT {
            self.smallest.insert(hash);
        } else if self.smallest.last().is_some_and(|last| hash < *last) && self.smallest.insert(hash) {
            self.smallest.pop_last();
        }
    }

    /// The number of distinct values, and whether it is exact.
    pub(super) fn count(&self) -> (u64, bool) {
        match self.smallest.last() {
            Some(last) if self.smallest.len() == KEPT => {
                let share = *last as f64 / u64::MAX as f64;
                (((KEPT - 1) as f64 / share) as u64, false)
            }
            _ => (self.smallest.len() as u64, true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::sample::hash;

    #[test]
    fn few_values_are_counted_and_many_are_estimated() {
        let mut counter = DistinctCounter::default();
        (0..30_000).for_each(|i: u32| counter.add(hash(&(i % 10_000).to_string())));
        assert_eq!(counter.count(), (10_000, true));
        (0..500_000).for_each(|i: u32| counter.add(hash(&i.to_string())));
        let (count, exact) = counter.count();
        assert!(!exact && (480_000..520_000).contains(&count), "{count}");
    }
}
