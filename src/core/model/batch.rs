//! Rows: dictionary-encoded records, column by column, and what becomes of them.
//!
//! Invariant: raw values cannot be printed. `Debug` shows counts only. Subjects are keyed hashes; a collision can only
//! make two people count as one, which errs on the safe side.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use super::domain::Code;
use super::event::{Millis, Offset, Position};

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

/// How many rows a chunk holds. More copy more where a window of the stream grows or is shown, fewer cost more allocations.
const CHUNK: usize = 1 << 12;

/// Many rows, column by column in chunks of [`CHUNK`]: nothing is copied as they grow, and copies share the chunks that are full.
#[derive(Clone, Default)]
pub struct Rows {
    width: usize,
    sensitive_width: usize,
    full: VecDeque<Arc<Chunk>>,
    /// What the full chunks hold.
    full_bytes: usize,
    /// The last rows.
    open: Chunk,
    /// So many rows of the first chunk have been taken out.
    gone: usize,
}

/// Some rows. What few policies ask for is empty while no row has it.
#[derive(Clone, Default)]
struct Chunk {
    quasi: Vec<Code>,
    sensitive: Vec<Code>,
    written: Vec<Code>,
    labels: Sparse<Code>,
    profiles: Sparse<Code>,
    subjects: Sparse<u64>,
    keys: Sparse<u64>,
    positions: Runs<Position>,
    arrived: Runs<Millis>,
    kept: String,
    kept_ends: Sparse<u64>,
    rows: usize,
}

/// A value per row; empty while all are zero.
#[derive(Clone, Default)]
struct Sparse<T>(Vec<T>);

impl<T: Copy + Default + PartialEq> Sparse<T> {
    /// The value of row `at`, which comes next.
    #[inline]
    fn push(&mut self, at: usize, value: T) {
        if value != T::default() || !self.0.is_empty() {
            self.0.resize(at, T::default());
            self.0.push(value);
        }
    }

    #[inline]
    fn get(&self, at: usize) -> T {
        self.0.get(at).copied().unwrap_or_default()
    }
}

/// A value per row, told by the rows at which it does not follow from the one before.
#[derive(Clone)]
struct Runs<T> {
    starts: Vec<u16>,
    values: Vec<T>,
}

impl<T> Default for Runs<T> {
    fn default() -> Self {
        Self { starts: Vec::new(), values: Vec::new() }
    }
}

impl<T: Copy + PartialEq> Runs<T> {
    /// The value of row `at`, which comes next; `next` is that of a row so many behind one.
    #[inline]
    fn push(&mut self, at: usize, value: T, next: impl Fn(T, i64) -> T) {
        if self.values.is_empty() || self.get(at, next) != value {
            self.starts.push(at as u16);
            self.values.push(value);
        }
    }

    #[inline]
    fn get(&self, at: usize, next: impl Fn(T, i64) -> T) -> T {
        let run = match self.starts.last() {
            Some(&last) if usize::from(last) <= at => self.starts.len() - 1,
            _ => self.starts.partition_point(|&start| usize::from(start) <= at) - 1,
        };
        next(self.values[run], (at - usize::from(self.starts[run])) as i64)
    }
}

/// The position of a row so many behind one, if nothing lies between.
fn following(first: Position, rows: i64) -> Position {
    Position { offset: Offset(first.offset.0.wrapping_add(rows)), ..first }
}

/// A row of other rows.
struct RowView<'a> {
    quasi: &'a [Code],
    sensitive: &'a [Code],
    written: &'a [Code],
    label: Code,
    profile: Code,
    subject: u64,
    key: u64,
    kept: &'a str,
}

impl Chunk {
    /// No rows yet, with room for as much as a full chunk holds.
    fn like(full: &Self) -> Self {
        fn room<T>(list: &[T]) -> Vec<T> {
            Vec::with_capacity(list.len())
        }
        Self {
            quasi: room(&full.quasi),
            sensitive: room(&full.sensitive),
            written: room(&full.written),
            labels: Sparse(room(&full.labels.0)),
            profiles: Sparse(room(&full.profiles.0)),
            subjects: Sparse(room(&full.subjects.0)),
            keys: Sparse(room(&full.keys.0)),
            kept: String::with_capacity(full.kept.len()),
            kept_ends: Sparse(room(&full.kept_ends.0)),
            ..Self::default()
        }
    }

    fn push(&mut self, position: Position, arrived: Millis, row: &RowView<'_>) {
        let at = self.rows;
        self.quasi.extend_from_slice(row.quasi);
        self.sensitive.extend_from_slice(row.sensitive);
        self.written.extend_from_slice(row.written);
        self.labels.push(at, row.label);
        self.profiles.push(at, row.profile);
        self.subjects.push(at, row.subject);
        self.keys.push(at, row.key);
        self.positions.push(at, position, following);
        self.arrived.push(at, arrived, |first, _| first);
        self.kept.push_str(row.kept);
        self.kept_ends.push(at, self.kept.len() as u64);
        self.rows += 1;
    }

    /// The runs of rows whose positions follow one another: the first position of each, and its number of rows.
    fn position_runs(&self) -> impl Iterator<Item = (Position, usize)> + Clone {
        let Runs { starts, values } = &self.positions;
        let ends = starts.iter().skip(1).map(|&start| usize::from(start)).chain([self.rows]);
        starts.iter().zip(values).zip(ends).map(|((&start, &first), end)| (first, end - usize::from(start)))
    }

    /// The kept values of a row one after the other.
    #[inline]
    fn kept(&self, at: usize) -> &str {
        let start = if at == 0 { 0 } else { self.kept_ends.get(at - 1) };
        &self.kept[start as usize..self.kept_ends.get(at) as usize]
    }

    fn bytes(&self) -> usize {
        let codes = self.quasi.len() + self.sensitive.len() + self.written.len();
        let codes = codes + self.labels.0.len() + self.profiles.0.len();
        let words = self.subjects.0.len() + self.keys.0.len() + self.kept_ends.0.len();
        let runs = self.positions.starts.len() * size_of::<(u16, Position)>();
        let runs = runs + self.arrived.starts.len() * size_of::<(u16, Millis)>();
        codes * size_of::<Code>() + words * size_of::<u64>() + runs + self.kept.len()
    }
}

impl Rows {
    /// No rows yet, of `width` quasi-identifiers and `sensitive_width` sensitive fields.
    pub fn new(width: usize, sensitive_width: usize) -> Self {
        Self { width, sensitive_width, ..Self::default() }
    }

    /// Appends a row that arrived at `arrived`.
    pub fn push(&mut self, position: Position, arrived: Millis, row: &Row) {
        debug_assert_eq!(row.quasi.len(), self.width);
        let Row { quasi, sensitive, written, label, profile, subject, key, kept, event_time: _ } = row;
        let (label, profile, subject, key) = (*label, *profile, *subject, *key);
        self.put(position, arrived, &RowView { quasi, sensitive, written, label, profile, subject, key, kept });
    }

    /// Appends row `i` of `other`.
    pub fn push_from(&mut self, other: &Self, i: usize) {
        let row = RowView {
            quasi: other.quasi(i),
            sensitive: other.sensitive(i),
            written: other.written(i),
            label: other.label(i),
            profile: other.profile(i),
            subject: other.subject(i),
            key: other.key(i).unwrap_or(0),
            kept: other.kept_text(i),
        };
        self.put(other.position(i), other.arrived(i), &row);
    }

    #[inline]
    fn put(&mut self, position: Position, arrived: Millis, row: &RowView<'_>) {
        if self.open.rows == CHUNK {
            let next = Chunk::like(&self.open);
            let mut full = std::mem::replace(&mut self.open, next);
            full.kept.shrink_to_fit();
            self.full_bytes += full.bytes();
            self.full.push_back(Arc::new(full));
        }
        self.open.push(position, arrived, row);
    }

    /// Keeps only the rows for which `keep` says so; the order stays.
    pub fn filtered(&self, mut keep: impl FnMut(usize) -> bool) -> Self {
        let mut rows = Self::new(self.width, self.sensitive_width);
        (0..self.len()).filter(|&i| keep(i)).for_each(|i| rows.push_from(self, i));
        rows
    }

    /// Takes the first `gone` rows out.
    pub fn remove_first(&mut self, gone: usize) {
        self.gone += gone;
        let chunks = (self.gone / CHUNK).min(self.full.len());
        self.full_bytes -= self.full.drain(..chunks).map(|chunk| chunk.bytes()).sum::<usize>();
        self.gone -= chunks * CHUNK;
        if self.full.is_empty() && self.gone > 0 {
            // Few rows are left: those that have left would take as much as they do.
            *self = self.filtered(|_| true);
        }
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.full.len() * CHUNK + self.open.rows - self.gone
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The chunk of row i, and its place there.
    #[inline]
    fn at(&self, i: usize) -> (&Chunk, usize) {
        let at = i + self.gone;
        (self.full.get(at / CHUNK).map_or(&self.open, |chunk| chunk), at % CHUNK)
    }

    /// The leaf codes of row i.
    #[inline]
    pub fn quasi(&self, i: usize) -> &[Code] {
        let (chunk, at) = self.at(i);
        &chunk.quasi[at * self.width..(at + 1) * self.width]
    }

    /// The leaf codes of row i and of some rows behind it, one row after the other; with those behind these, of all.
    #[inline]
    pub fn quasi_from(&self, i: usize) -> &[Code] {
        let (chunk, at) = self.at(i);
        &chunk.quasi[at * self.width..]
    }

    /// The codes that the sensitive values of row i are counted as.
    #[inline]
    pub fn sensitive(&self, i: usize) -> &[Code] {
        let (chunk, at) = self.at(i);
        &chunk.sensitive[at * self.sensitive_width..(at + 1) * self.sensitive_width]
    }

    /// The sensitive texts of row i as they are published.
    #[inline]
    pub fn written(&self, i: usize) -> &[Code] {
        let (chunk, at) = self.at(i);
        &chunk.written[at * self.sensitive_width..(at + 1) * self.sensitive_width]
    }

    /// The label's code of row i.
    #[inline]
    pub fn label(&self, i: usize) -> Code {
        let (chunk, at) = self.at(i);
        chunk.labels.get(at)
    }

    /// The profile's code of row i.
    pub fn profile(&self, i: usize) -> Code {
        let (chunk, at) = self.at(i);
        chunk.profiles.get(at)
    }

    /// The subject of row i.
    #[inline]
    pub fn subject(&self, i: usize) -> u64 {
        let (chunk, at) = self.at(i);
        chunk.subjects.get(at)
    }

    /// The keyed hash of row i's key, if it has one.
    #[inline]
    pub fn key(&self, i: usize) -> Option<u64> {
        let (chunk, at) = self.at(i);
        Some(chunk.keys.get(at)).filter(|&key| key != 0)
    }

    /// Where row i stood in the source.
    #[inline]
    pub fn position(&self, i: usize) -> Position {
        let (chunk, at) = self.at(i);
        chunk.positions.get(at, following)
    }

    /// All positions.
    pub fn positions(&self) -> impl Iterator<Item = Position> + Clone {
        self.position_runs().flat_map(|(first, rows)| (0..rows as i64).map(move |i| following(first, i)))
    }

    /// The same as runs of consecutive offsets: the first position of each, and its number of rows.
    pub fn position_runs(&self) -> impl Iterator<Item = (Position, usize)> + Clone {
        let chunks = self.full.iter().map(|chunk| &**chunk).chain([&self.open]);
        let mut gone = self.gone;
        chunks.flat_map(Chunk::position_runs).filter_map(move |(first, rows)| {
            let skipped = gone.min(rows);
            gone -= skipped;
            (skipped < rows).then(|| (following(first, skipped as i64), rows - skipped))
        })
    }

    /// When row i was read.
    pub fn arrived(&self, i: usize) -> Millis {
        let (chunk, at) = self.at(i);
        chunk.arrived.get(at, |first, _| first)
    }

    /// The kept values of row i, as JSON.
    pub fn kept(&self, i: usize) -> impl Iterator<Item = &str> {
        // Each value ends in a newline, and has none of its own: it is JSON without white space. Most are short.
        let mut rest = self.kept_text(i);
        std::iter::from_fn(move || {
            let end = rest.bytes().position(|byte| byte == b'\n')?;
            let value = &rest[..end];
            rest = &rest[end + 1..];
            Some(value)
        })
    }

    /// The kept values of row i one after the other.
    #[inline]
    pub(crate) fn kept_text(&self, i: usize) -> &str {
        let (chunk, at) = self.at(i);
        chunk.kept(at)
    }

    /// Bytes held by all rows together.
    pub fn bytes(&self) -> usize {
        let gone = self.full.front().map_or(0, |first| first.bytes() * self.gone / CHUNK);
        self.full_bytes + self.open.bytes() - gone
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

    type Given = (Position, Millis, Row);

    /// Row `n`: what few rows have begins at `first`, and some positions leave gaps, repeat or change the partition.
    fn given(n: usize, first: usize, die: u64) -> Given {
        let code = n as u32;
        let codes = |codes: &[Code]| SmallVec::from_slice(codes);
        let has = n >= first && !(n as u64 * 7 + die).is_multiple_of(3);
        let or = |value: u64| if has { value } else { 0 };
        let row = Row {
            quasi: SmallVec::from_slice(&[code, code + 1]),
            sensitive: codes(&[code + 2]),
            written: codes(&[code + 3]),
            label: or(n as u64) as Code,
            profile: or(die) as Code,
            subject: or(n as u64 / 2 + 1),
            key: or(n as u64 + 1),
            kept: if has { format!("{n}\n\"x\"\n") } else { String::new() },
            event_time: None,
        };
        let offset = n as u64 + die % 5 * (n as u64 / 1000) - u64::from(n % 900 == 899);
        (Position::new((n / 1500) as u32, offset as i64), Millis((n as u64 / (die + 1)) as i64), row)
    }

    fn same(rows: &Rows, expected: &[Given]) -> Result<(), TestCaseError> {
        prop_assert_eq!(rows.len(), expected.len());
        let positions: Vec<Position> = expected.iter().map(|(position, ..)| *position).collect();
        prop_assert_eq!(rows.positions().collect::<Vec<_>>(), positions);
        for (i, (_, arrived, row)) in expected.iter().enumerate() {
            prop_assert_eq!((rows.quasi(i), rows.sensitive(i)), (&row.quasi[..], &row.sensitive[..]));
            prop_assert_eq!((rows.written(i), rows.kept_text(i)), (&row.written[..], &*row.kept));
            prop_assert_eq!((rows.label(i), rows.profile(i), rows.subject(i)), (row.label, row.profile, row.subject));
            prop_assert_eq!((rows.key(i), rows.arrived(i)), (Some(row.key).filter(|key| *key > 0), *arrived));
            prop_assert!(rows.quasi_from(i).starts_with(&row.quasi));
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
        /// Rows come, some are copied, and the first leave, a few or whole chunks.
        #[test]
        fn they_are_what_was_pushed(
            (count, more) in (0..2 * CHUNK + 100, 0..CHUNK + 100),
            (gone, then, first) in (0..2 * CHUNK + 100, 0..CHUNK, 0..2 * CHUNK),
            die in 0u64..9,
        ) {
            let mut twin: Vec<Given> = (0..count).map(|n| given(n, first, die)).collect();
            let mut rows = Rows::new(2, 1);
            twin.iter().for_each(|(position, arrived, row)| rows.push(*position, *arrived, row));
            let (copy, of_copy) = (rows.clone(), twin.clone());
            for gone in [gone, then] {
                let gone = gone.min(rows.len());
                rows.remove_first(gone);
                twin.drain(..gone);
                let new = (count..count + more).map(|n| given(n, first, die));
                for (position, arrived, row) in new {
                    rows.push(position, arrived, &row);
                    twin.push((position, arrived, row));
                }
                same(&rows, &twin)?;
            }
            same(&copy, &of_copy)?;
            let mut odd = 0;
            twin.retain(|_| (odd += 1, odd % 2 == 0).1);
            same(&rows.filtered(|i| i % 2 == 1), &twin)?;
        }
    }
}
