//! What is known of the finest set without making it: how many records and classes there are, and how the records spread over
//! the values of each attribute.

use super::key::{Field, Key};

/// Figures that follow changes.
#[derive(Debug, Clone, Default)]
pub(super) struct Totals {
    pub(super) records: u64,
    /// Tuples that have records.
    pub(super) classes: usize,
    /// Records by attribute and code.
    pub(super) marginals: Vec<Vec<u64>>,
}

impl Totals {
    /// Records more or less of a tuple.
    pub(super) fn count<K: Key>(&mut self, key: &K, fields: &[Field], by: i32) {
        self.records = self.records.wrapping_add_signed(i64::from(by));
        for (marginal, &field) in self.marginals.iter_mut().zip(fields) {
            let code = key.get(field) as usize;
            if marginal.len() <= code {
                marginal.resize(code + 1, 0);
            }
            marginal[code] = marginal[code].wrapping_add_signed(i64::from(by));
        }
    }

    /// The records by attribute and code; `codes` says how many an attribute has.
    pub(super) fn marginals(&self, codes: &[usize]) -> Vec<Vec<u64>> {
        let mut marginals = self.marginals.clone();
        marginals.iter_mut().zip(codes).for_each(|(marginal, &codes)| marginal.resize(codes, 0));
        marginals
    }
}
