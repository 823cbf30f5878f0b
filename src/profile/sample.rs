//! Rows as hashes of their values: enough to count classes of any set of fields, and nothing to print.
//!
//! A row belongs to a person: the value of the subject field, or the row itself. A row is kept while the hash of its person lies
//! below a threshold. When the sample is full the threshold is halved and the rows above it are dropped, so the sample holds all
//! rows of a random part of the people. A small sample makes people look more unique than they are in the whole: that errs on
//! the safe side, and [`RowSample::whole`] tells.
//!
//! The measures are those of Motwani and Xu (2007): distinction is the number of distinct combinations by the number of rows,
//! separation the share of pairs of rows that differ. Uniqueness is the share of people who are alone with a combination.

use std::hash::{BuildHasher as _, Hasher as _};

use hashbrown::HashMap;
use rustc_hash::{FxBuildHasher, FxHasher};

/// The most cells in memory, 8 bytes each. Larger: more memory. Smaller: figures of smaller inputs are of a sample.
pub(crate) const MAX_CELLS: usize = 1 << 24;

/// The hash by which a value is counted; the same text has the same hash in every field.
pub(crate) fn hash(text: &str) -> u64 {
    mix(FxBuildHasher.hash_one(text))
}

/// Spreads a hash over all bits: the sample and the sketch compare hashes by size.
fn mix(mut bits: u64) -> u64 {
    bits ^= bits >> 30;
    bits = bits.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits ^= bits >> 27;
    bits = bits.wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// How far a set of fields singles people out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SinglingOut {
    /// Distinct combinations of values; a missing value is one value.
    pub(crate) distinct: u64,
    /// Distinct combinations by the number of rows.
    pub(crate) distinction: f64,
    /// The share of pairs of rows that differ.
    pub(crate) separation: f64,
    /// The share of people (rows, without a subject) who are alone with a combination.
    pub(crate) uniqueness: f64,
}

/// A bounded sample of rows.
pub(crate) struct RowSample {
    width: usize,
    /// Row by row, a hash per field.
    cells: Vec<u64>,
    /// Per row, the hash of its person.
    people: Vec<u64>,
    threshold: u64,
    max_rows: usize,
}

impl RowSample {
    /// An empty sample of rows with `width` fields.
    pub(crate) fn new(width: usize) -> Self {
        Self::with_cells(width, MAX_CELLS)
    }

    fn with_cells(width: usize, cells: usize) -> Self {
        let max_rows = (cells / width.max(1)).max(1);
        Self { width, cells: Vec::new(), people: Vec::new(), threshold: u64::MAX, max_rows }
    }

    /// Adds a row of the person with this hash, if the sample takes that person.
    pub(crate) fn add(&mut self, person: u64, row: &[u64]) {
        if person > self.threshold {
            return;
        }
        self.cells.extend_from_slice(row);
        self.people.push(person);
        while self.people.len() > self.max_rows && self.threshold > 1 {
            self.threshold /= 2;
            self.shrink();
        }
    }

    /// The person of the row with this number, where every row is a person of its own.
    pub(crate) fn lone_person(number: u64) -> u64 {
        let mut hasher = FxHasher::default();
        hasher.write_u64(number);
        mix(hasher.finish() ^ 0x9e37_79b9_7f4a_7c15)
    }

    fn shrink(&mut self) {
        let (mut kept, width) = (0, self.width);
        for row in 0..self.people.len() {
            if self.people[row] <= self.threshold {
                self.people[kept] = self.people[row];
                self.cells.copy_within(row * width..(row + 1) * width, kept * width);
                kept += 1;
            }
        }
        self.people.truncate(kept);
        self.cells.truncate(kept * width);
    }

    /// True if every row is in it.
    pub(crate) fn whole(&self) -> bool {
        self.threshold == u64::MAX
    }

    /// The number of rows in it.
    pub(crate) fn rows(&self) -> usize {
        self.people.len()
    }

    /// The people, as codes from 0, by the subject field if there is one.
    pub(crate) fn people(&self, subject: Option<usize>) -> RowCodes {
        match subject {
            Some(field) => self.codes(field),
            None => RowCodes::of(self.people.iter().copied()),
        }
    }

    /// The values of a field as codes from 0.
    pub(crate) fn codes(&self, field: usize) -> RowCodes {
        RowCodes::of((0..self.rows()).map(|row| self.cells[row * self.width + field]))
    }

    /// How many people have a value in a field.
    pub(crate) fn people_with(&self, field: usize, value: u64, subject: Option<usize>) -> u64 {
        let rows = (0..self.rows()).filter(|row| self.cells[row * self.width + field] == value);
        match subject {
            None => rows.count() as u64,
            Some(subject) => {
                let people: hashbrown::HashSet<u64, FxBuildHasher> =
                    rows.map(|row| self.cells[row * self.width + subject]).collect();
                people.len() as u64
            }
        }
    }
}

/// One code per row.
pub(crate) struct RowCodes {
    codes: Vec<u32>,
    distinct: u32,
}

impl RowCodes {
    /// One code for the codes of several fields together.
    pub(crate) fn combined(rows: usize, fields: impl Iterator<Item = Self>) -> Self {
        let none = Self { codes: vec![0; rows], distinct: 1 };
        fields.fold(none, |all, field| {
            let pairs = all.codes.iter().zip(&field.codes);
            Self::of(pairs.map(|(a, b)| u64::from(*a) << 32 | u64::from(*b)))
        })
    }

    fn of(hashes: impl Iterator<Item = u64>) -> Self {
        let mut known: HashMap<u64, u32, FxBuildHasher> = HashMap::default();
        let codes = hashes.map(|hash| {
            let next = known.len() as u32;
            *known.entry(hash).or_insert(next)
        });
        let codes = codes.collect();
        Self { codes, distinct: known.len() as u32 }
    }
}

/// A class: how many rows, of whom.
#[derive(Clone, Copy)]
struct Class {
    rows: u64,
    /// The person of all its rows, as long as it is one.
    only: Option<u32>,
}

/// Measures a set of fields on every `step`-th row.
pub(crate) fn measure(fields: &[&RowCodes], people: &RowCodes, step: usize) -> SinglingOut {
    let chosen = (0..people.codes.len()).step_by(step.max(1));
    let rows = chosen.len();
    let mut classes: HashMap<u128, Class, FxBuildHasher> = HashMap::default();
    for row in chosen {
        let key = fields.iter().fold(0u128, |key, field| key << 32 | u128::from(field.codes[row]));
        let person = people.codes[row];
        let class = classes.entry(key).or_insert(Class { rows: 0, only: Some(person) });
        class.rows += 1;
        class.only = class.only.filter(|only| *only == person);
    }
    let alike: u128 = classes.values().map(|class| u128::from(class.rows) * u128::from(class.rows - 1)).sum();
    let pairs = rows as f64 * (rows as f64 - 1.0);
    let mut alone = vec![false; people.distinct as usize];
    classes.values().filter_map(|class| class.only).for_each(|person| alone[person as usize] = true);
    let met = if step <= 1 { people.distinct as usize } else { met(people, step) };
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    SinglingOut {
        distinct: classes.len() as u64,
        distinction: share(classes.len() as f64, rows as f64),
        separation: share(pairs - alike as f64, pairs),
        uniqueness: share(alone.iter().filter(|alone| **alone).count() as f64, met as f64),
    }
}

/// How many people every `step`-th row is of.
fn met(people: &RowCodes, step: usize) -> usize {
    people.codes.iter().step_by(step).collect::<hashbrown::HashSet<_, FxBuildHasher>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[[&str; 3]]) -> RowSample {
        let mut sample = RowSample::new(3);
        for (number, row) in rows.iter().enumerate() {
            sample.add(RowSample::lone_person(number as u64), &row.map(hash));
        }
        sample
    }

    #[test]
    fn measures_follow_their_definitions() {
        let sample = table(&[["u1", "a", "x"], ["u1", "a", "y"], ["u2", "a", "x"], ["u3", "b", "x"]]);
        let [subject, letter, cross] = [0, 1, 2].map(|field| sample.codes(field));
        let rows = sample.people(None);
        let one = measure(&[&letter], &rows, 1);
        assert_eq!((one.distinct, one.distinction, one.separation, one.uniqueness), (2, 0.5, 0.5, 0.25));
        let two = measure(&[&letter, &cross], &rows, 1);
        assert_eq!((two.distinct, two.distinction, two.uniqueness), (3, 0.75, 0.5));
        assert!((two.separation - 5.0 / 6.0).abs() < 1e-12);
        let people = sample.people(Some(0));
        let by_person = measure(&[&letter, &cross], &people, 1);
        assert!((by_person.uniqueness - 2.0 / 3.0).abs() < 1e-12, "u1 is alone with a, y; u3 with b, x");
        assert_eq!(measure(&[&subject], &people, 1).uniqueness, 1.0);
        assert_eq!((sample.people_with(1, hash("a"), None), sample.people_with(1, hash("a"), Some(0))), (3, 2));
    }

    #[test]
    fn a_full_sample_keeps_whole_people() {
        let mut sample = RowSample::with_cells(1, 1000);
        for number in 0..20_000u64 {
            let person = hash(&(number % 4_000).to_string());
            sample.add(person, &[number]);
        }
        assert!(!sample.whole() && sample.rows() <= 1000 && sample.rows() >= 250, "{}", sample.rows());
        assert_eq!(sample.rows() % 5, 0, "all five rows of everybody who is in it");
    }
}
