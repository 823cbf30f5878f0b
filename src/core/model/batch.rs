//! Rows: dictionary-encoded records, column by column, and what becomes of them.
//!
//! Invariant: raw values cannot be printed. `Debug` shows counts only. Subjects are keyed hashes; a collision can only
//! make two people count as one, which errs on the safe side.

use std::fmt;

use smallvec::SmallVec;

use super::domain::Code;
use super::event::{Millis, Position};

/// One encoded record on its way into a window.
#[derive(Clone, Default)]
pub struct Row {
    /// A leaf code per quasi-identifier.
    pub quasi: SmallVec<[Code; 16]>,
    /// A code per sensitive field: what its value is counted as.
    pub sensitive: SmallVec<[Code; 4]>,
    /// A code per sensitive field: the text that is published.
    pub written: SmallVec<[Code; 4]>,
    /// The dictionary code of the class label; 0 if there is none.
    pub label: Code,
    /// The code of its profile by the confidential sentences; 0 if there are none.
    pub profile: Code,
    /// The subject; 0 if none is configured.
    pub subject: u64,
    /// A keyed hash of its message's key; 0 if that has none.
    pub key: u64,
    /// The kept values as JSON, each followed by a newline.
    pub kept: String,
    /// When it happened, if event time is configured.
    pub event_time: Option<Millis>,
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Row({} quasi, {} sensitive)", self.quasi.len(), self.sensitive.len())
    }
}

/// Many rows, stored by column so that a window is a handful of allocations.
#[derive(Clone, Default)]
pub struct Rows {
    width: usize,
    sensitive_width: usize,
    quasi: Vec<Code>,
    sensitive: Vec<Code>,
    written: Vec<Code>,
    labels: Vec<Code>,
    profiles: Vec<Code>,
    subjects: Vec<u64>,
    /// Empty while no row has a key.
    keys: Vec<u64>,
    positions: Vec<Position>,
    arrived: Vec<Millis>,
    kept: String,
    kept_ends: Vec<u64>,
}

impl Rows {
    /// No rows yet, of `width` quasi-identifiers and `sensitive_width` sensitive fields.
    pub fn new(width: usize, sensitive_width: usize) -> Self {
        Self { width, sensitive_width, ..Self::default() }
    }

    /// Appends a row that arrived at `arrived`.
    pub fn push(&mut self, position: Position, arrived: Millis, row: &Row) {
        debug_assert_eq!(row.quasi.len(), self.width);
        self.quasi.extend_from_slice(&row.quasi);
        self.sensitive.extend_from_slice(&row.sensitive);
        self.written.extend_from_slice(&row.written);
        self.labels.push(row.label);
        self.profiles.push(row.profile);
        self.subjects.push(row.subject);
        self.push_key(row.key);
        self.positions.push(position);
        self.arrived.push(arrived);
        self.kept.push_str(&row.kept);
        self.kept_ends.push(self.kept.len() as u64);
    }

    /// Appends row `i` of `other`.
    pub fn push_from(&mut self, other: &Self, i: usize) {
        self.quasi.extend_from_slice(other.quasi(i));
        self.sensitive.extend_from_slice(other.sensitive(i));
        self.written.extend_from_slice(other.written(i));
        self.labels.push(other.labels[i]);
        self.profiles.push(other.profiles[i]);
        self.subjects.push(other.subjects[i]);
        self.push_key(other.key(i).unwrap_or(0));
        self.positions.push(other.positions[i]);
        self.arrived.push(other.arrived[i]);
        self.kept.push_str(other.kept_text(i));
        self.kept_ends.push(self.kept.len() as u64);
    }

    /// Of the row that is being pushed.
    #[inline]
    fn push_key(&mut self, key: u64) {
        if key != 0 || !self.keys.is_empty() {
            self.keys.resize(self.positions.len(), 0);
            self.keys.push(key);
        }
    }

    /// The same rows, with room for `more`.
    pub fn with_room(&self, more: usize) -> Self {
        fn roomy<T: Copy>(list: &[T], more: usize) -> Vec<T> {
            let mut roomy = Vec::with_capacity(list.len() + more);
            roomy.extend_from_slice(list);
            roomy
        }
        let mut kept = String::with_capacity(self.kept.len() + self.kept.len().div_ceil(self.len().max(1)) * more);
        kept.push_str(&self.kept);
        Self {
            width: self.width,
            sensitive_width: self.sensitive_width,
            quasi: roomy(&self.quasi, more * self.width),
            sensitive: roomy(&self.sensitive, more * self.sensitive_width),
            written: roomy(&self.written, more * self.sensitive_width),
            labels: roomy(&self.labels, more),
            profiles: roomy(&self.profiles, more),
            subjects: roomy(&self.subjects, more),
            keys: if self.keys.is_empty() { Vec::new() } else { roomy(&self.keys, more) },
            positions: roomy(&self.positions, more),
            arrived: roomy(&self.arrived, more),
            kept,
            kept_ends: roomy(&self.kept_ends, more),
        }
    }

    /// Keeps only the rows for which `keep` says so; the order stays.
    pub fn filtered(&self, mut keep: impl FnMut(usize) -> bool) -> Self {
        let mut rows = Self::new(self.width, self.sensitive_width);
        (0..self.len()).filter(|&i| keep(i)).for_each(|i| rows.push_from(self, i));
        rows
    }

    /// Takes the first `gone` rows out.
    pub fn remove_first(&mut self, gone: usize) {
        self.quasi.drain(..gone * self.width);
        self.sensitive.drain(..gone * self.sensitive_width);
        self.written.drain(..gone * self.sensitive_width);
        self.labels.drain(..gone);
        self.profiles.drain(..gone);
        self.subjects.drain(..gone);
        self.keys.drain(..gone.min(self.keys.len()));
        self.positions.drain(..gone);
        self.arrived.drain(..gone);
        let text = gone.checked_sub(1).map_or(0, |last| self.kept_ends[last]);
        self.kept.drain(..text as usize);
        self.kept_ends.drain(..gone);
        self.kept_ends.iter_mut().for_each(|end| *end -= text);
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// The leaf codes of row i.
    #[inline]
    pub fn quasi(&self, i: usize) -> &[Code] {
        &self.quasi[i * self.width..(i + 1) * self.width]
    }

    /// The leaf codes of several rows, one row after the other.
    #[inline]
    pub fn quasi_of(&self, rows: std::ops::Range<usize>) -> &[Code] {
        &self.quasi[rows.start * self.width..rows.end * self.width]
    }

    /// The codes that the sensitive values of row i are counted as.
    #[inline]
    pub fn sensitive(&self, i: usize) -> &[Code] {
        &self.sensitive[i * self.sensitive_width..(i + 1) * self.sensitive_width]
    }

    /// The sensitive texts of row i as they are published.
    #[inline]
    pub fn written(&self, i: usize) -> &[Code] {
        &self.written[i * self.sensitive_width..(i + 1) * self.sensitive_width]
    }

    /// The label's code of row i.
    #[inline]
    pub fn label(&self, i: usize) -> Code {
        self.labels[i]
    }

    /// The profile's code of row i.
    pub fn profile(&self, i: usize) -> Code {
        self.profiles[i]
    }

    /// The subject of row i.
    #[inline]
    pub fn subject(&self, i: usize) -> u64 {
        self.subjects[i]
    }

    /// The keyed hash of row i's key, if it has one.
    #[inline]
    pub fn key(&self, i: usize) -> Option<u64> {
        self.keys.get(i).copied().filter(|&key| key != 0)
    }

    /// Where row i stood in the source.
    #[inline]
    pub fn position(&self, i: usize) -> Position {
        self.positions[i]
    }

    /// All positions.
    pub fn positions(&self) -> &[Position] {
        &self.positions
    }

    /// When row i was read.
    pub fn arrived(&self, i: usize) -> Millis {
        self.arrived[i]
    }

    /// The kept values of row i, as JSON.
    pub fn kept(&self, i: usize) -> impl Iterator<Item = &str> {
        // Each value ends in a newline, and has none of its own: it is JSON without white space.
        self.kept_text(i).split_terminator('\n')
    }

    /// The kept values of row i one after the other.
    #[inline]
    fn kept_text(&self, i: usize) -> &str {
        let start = if i == 0 { 0 } else { self.kept_ends[i - 1] as usize };
        &self.kept[start..self.kept_ends[i] as usize]
    }

    /// Bytes held by all rows together.
    pub fn bytes(&self) -> usize {
        let codes = self.quasi.len() + self.sensitive.len() + self.written.len();
        codes * 4 + self.labels.len() * (4 + 4 + 8 + 16 + 8 + 8) + self.keys.len() * 8 + self.kept.len()
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rows({})", self.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_left_is_what_was_not_first(
            kept in prop::collection::vec("[a-c]{0,3}\n", 0..12),
            keys in prop::collection::vec(0u64..2, 12),
            gone in 0usize..=12,
        ) {
            let mut rows = Rows::new(2, 1);
            for (i, kept) in kept.iter().enumerate() {
                let n = i as u32;
                let codes = |codes: &[Code]| SmallVec::from_slice(codes);
                let (quasi, sensitive, written) = (SmallVec::from_slice(&[n, n + 1]), codes(&[n + 2]), codes(&[n + 3]));
                let (label, profile, kept, key) = (n, n, kept.clone(), keys[i] * u64::from(n + 1));
                let row = Row { quasi, sensitive, written, label, profile, subject: 3, key, kept, event_time: None };
                rows.push(Position::new(0, i as i64), Millis(i as i64), &row);
            }
            let gone = gone.min(rows.len());
            let twin = rows.with_room(3).filtered(|i| i >= gone);
            rows.remove_first(gone);
            prop_assert_eq!(rows.len(), twin.len());
            prop_assert!(rows.bytes() >= twin.bytes(), "keys are kept while some row had one");
            let all = |rows: &Rows, i: usize| {
                let carried = (rows.sensitive(i).to_vec(), rows.written(i).to_vec());
                let codes = (rows.quasi(i).to_vec(), carried, rows.label(i), rows.profile(i));
                let names = (rows.subject(i), rows.key(i), rows.position(i));
                (codes, names, rows.arrived(i), rows.kept_text(i).to_owned())
            };
            for i in 0..rows.len() {
                prop_assert_eq!(all(&rows, i), all(&twin, i));
                prop_assert_eq!(rows.key(i).is_some(), keys[gone + i] == 1);
            }
        }
    }
}
