//! Measures on the rows that would be sent how far kept fields single people out.
//!
//! A field whose values mostly belong to one person alone names people however coarse the rest is, and an object may hold more
//! than its name says. Such a field is withheld (null stands in its place) unless the policy says that somebody has looked at
//! it. The verdict depends on the rows and the policy alone, so that a release that is made again comes out the same.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use rustc_hash::{FxBuildHasher, FxHashMap};

use super::GeneralizedBatch;
use crate::model::batch::Rows;
use crate::model::release::manifest::KeptField;

/// Withheld if more than this share of the rows has a value that belongs to one person alone. Larger passes fields that name most
/// people; smaller withholds amounts and durations, of which many are rare and most are not.
const MOST_UNIQUE: f64 = 0.5;
/// Larger releases are measured by those of their values, about this many, that a fixed hash picks. More costs time at every
/// close; fewer makes the share uncertain by more than a few hundredths.
const SAMPLE: usize = 1 << 11;

/// The people who have a value, and its number of rows.
struct Holder {
    person: u64,
    rows: usize,
    alone: bool,
}

impl GeneralizedBatch {
    /// The same batch with the kept fields measured, those withheld that identify people. `kept` has the names, and whether they
    /// were reviewed; without `by_subject` every record is a person of its own.
    pub(crate) fn withholding(mut self, kept: &[(Arc<str>, bool)], by_subject: bool) -> Self {
        let measured = kept.iter().zip(self.measured(kept.len(), by_subject));
        let field = |((field, reviewed), (unique_share, nested)): (&(Arc<str>, bool), (f64, bool))| KeptField {
            field: Arc::clone(field),
            unique_share,
            nested,
            reviewed: *reviewed,
            withheld: !reviewed && (nested || unique_share > MOST_UNIQUE),
        };
        self.provenance.work.kept = measured.map(field).collect();
        self
    }

    /// The kept values of a row as they are sent: of the fields that were measured, and of no other.
    pub(crate) fn kept<'a>(&'a self, rows: &'a Rows, i: usize) -> impl Iterator<Item = &'a str> {
        let fields = self.provenance.work.kept.iter();
        rows.kept(i).zip(fields).map(|(value, field)| if field.withheld { "null" } else { value })
    }

    /// For each kept field the share of rows with a value that one person alone has, and whether some value is nested.
    fn measured(&self, fields: usize, by_subject: bool) -> Vec<(f64, bool)> {
        let mut holders: Vec<FxHashMap<&str, Holder>> = (0..fields).map(|_| FxHashMap::default()).collect();
        let mut nested = vec![false; fields];
        let skip = (self.len() / SAMPLE).next_power_of_two().trailing_zeros();
        for (at, &place) in self.order.iter().enumerate() {
            if fields == 0 {
                break;
            }
            let (rows, i) = self.source(place);
            let person = if by_subject { rows.subject(i) } else { at as u64 };
            for (field, value) in rows.kept(i).enumerate().take(fields) {
                nested[field] |= value.starts_with(['{', '[']);
                if FxBuildHasher.hash_one(value).leading_zeros() >= skip {
                    let holder = holders[field].entry(value).or_insert(Holder { person, rows: 0, alone: true });
                    holder.rows += 1;
                    holder.alone &= holder.person == person;
                }
            }
        }
        let share = |holders: FxHashMap<&str, Holder>| {
            let alone: usize = holders.values().filter(|holder| holder.alone).map(|holder| holder.rows).sum();
            ((alone << skip) as f64 / self.len().max(1) as f64).min(1.0)
        };
        holders.into_iter().map(share).zip(nested).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::Dictionaries;
    use crate::model::batch::Row;
    use crate::model::event::{Millis, Position};

    /// The figures of `rows` rows with one kept field, from the people who have each value.
    fn measured(rows: u32, value: impl Fn(u32) -> String, subject: impl Fn(u32) -> u64) -> (f64, bool) {
        let mut all = Rows::new(0, 0);
        for i in 0..rows {
            let row = Row { kept: value(i) + "\n", subject: subject(i), ..Row::default() };
            all.push(Position::new(0, i64::from(i)), Millis(0), &row);
        }
        GeneralizedBatch::as_read(all, Vec::new(), &[], &Dictionaries::default()).measured(1, true)[0]
    }

    #[test]
    fn large_releases_are_measured_by_some_of_their_values() {
        for rows in [100u32, 9_000, 50_000] {
            let number = |i: u32| i.to_string();
            let near = |share: f64, expected: f64| assert!((share - expected).abs() < 0.08, "{rows}: {share}");
            near(measured(rows, number, u64::from).0, 1.0);
            near(measured(rows, |i| format!("\"2024-05-01T10:00:00.{i:06}Z\""), u64::from).0, 1.0);
            // Everybody comes twice with a number of their own, and two people share one.
            near(measured(rows, |i| number(i / 2), |i| u64::from(i / 2)).0, 1.0);
            near(measured(rows, |i| number(i / 2), u64::from).0, 0.0);
            // A third has what nobody else has; the others all have the same.
            near(measured(rows, |i| number(if i % 3 == 0 { i } else { 1 }), u64::from).0, 1.0 / 3.0);
        }
        assert!(!measured(3, |i| format!("\"{{{i}\""), |_| 0).1 && measured(3, |i| format!("[{i}]"), |_| 0).1);
    }
}
