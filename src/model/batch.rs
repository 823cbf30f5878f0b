//! Rows: dictionary-encoded records, column by column, and what becomes of them.
//!
//! Invariant: raw values cannot be printed. `Debug` shows counts only. Subjects are keyed hashes; a collision can only
//! make two people count as one, which errs on the safe side.

use std::collections::BTreeMap;
use std::fmt;

use smallvec::SmallVec;

use super::domain::Code;
use super::event::{Millis, Offset, Partition, Position};

/// A keyed hash of the subject; meaningless outside the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Subject(pub u64);

/// One encoded record on its way into a window.
#[derive(Clone, Default)]
pub struct Row {
    /// A leaf code per quasi-identifier.
    pub quasi: SmallVec<[Code; 16]>,
    /// A dictionary code per sensitive field.
    pub sensitive: SmallVec<[Code; 4]>,
    /// The dictionary code of the class label; 0 if there is none.
    pub label: Code,
    /// The code of its profile by the confidential sentences; 0 if there are none.
    pub profile: Code,
    /// Who it is about; 0 if no subject is configured.
    pub subject: u64,
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
    labels: Vec<Code>,
    profiles: Vec<Code>,
    subjects: Vec<u64>,
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
        self.labels.push(row.label);
        self.profiles.push(row.profile);
        self.subjects.push(row.subject);
        self.positions.push(position);
        self.arrived.push(arrived);
        self.kept.push_str(&row.kept);
        self.kept_ends.push(self.kept.len() as u64);
    }

    /// Appends row `i` of `other`.
    pub fn push_from(&mut self, other: &Self, i: usize) {
        self.quasi.extend_from_slice(other.quasi(i));
        self.sensitive.extend_from_slice(other.sensitive(i));
        self.labels.push(other.labels[i]);
        self.profiles.push(other.profiles[i]);
        self.subjects.push(other.subjects[i]);
        self.positions.push(other.positions[i]);
        self.arrived.push(other.arrived[i]);
        self.kept.push_str(other.kept_text(i));
        self.kept_ends.push(self.kept.len() as u64);
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
        self.labels.drain(..gone);
        self.profiles.drain(..gone);
        self.subjects.drain(..gone);
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

    /// The sensitive codes of row i.
    #[inline]
    pub fn sensitive(&self, i: usize) -> &[Code] {
        &self.sensitive[i * self.sensitive_width..(i + 1) * self.sensitive_width]
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

    /// Who row i is about.
    #[inline]
    pub fn subject(&self, i: usize) -> u64 {
        self.subjects[i]
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

    #[inline]
    fn kept_text(&self, i: usize) -> &str {
        let start = if i == 0 { 0 } else { self.kept_ends[i - 1] as usize };
        &self.kept[start..self.kept_ends[i] as usize]
    }

    /// Bytes held by all rows together.
    pub fn bytes(&self) -> usize {
        self.quasi.len() * 4 + self.sensitive.len() * 4 + self.labels.len() * (4 + 4 + 8 + 16 + 8 + 8) + self.kept.len()
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rows({})", self.len())
    }
}

/// An unbroken run of offsets, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first offset.
    pub first: Offset,
    /// The last offset.
    pub last: Offset,
}

/// Which offsets of which partitions: run-length encoded, ascending, disjoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spans(BTreeMap<Partition, Vec<Span>>);

impl Spans {
    /// The spans that cover exactly these positions. A log is read forwards, so they mostly come as runs already, those of
    /// several partitions in turn.
    pub fn covering(positions: impl IntoIterator<Item = Position>) -> Self {
        let mut lanes: Vec<(Partition, Vec<Span>)> = Vec::new();
        let mut at = 0;
        for Position { partition, offset } in positions {
            if lanes.get(at).is_none_or(|lane| lane.0 != partition) {
                at = lanes.iter().position(|lane| lane.0 == partition).unwrap_or_else(|| {
                    lanes.push((partition, Vec::new()));
                    lanes.len() - 1
                });
            }
            match lanes[at].1.last_mut() {
                Some(span) if span.last.0.checked_add(1) == Some(offset.0) => span.last = offset,
                _ => lanes[at].1.push(Span { first: offset, last: offset }),
            }
        }
        lanes.iter_mut().for_each(|(_, spans)| merge(spans));
        Self(lanes.into_iter().collect())
    }

    /// These spans, which are ascending and disjoint in each partition.
    pub fn from_runs(runs: impl IntoIterator<Item = (Partition, Vec<Span>)>) -> Self {
        Self(runs.into_iter().filter(|(_, spans)| !spans.is_empty()).collect())
    }

    /// Partition by partition.
    pub fn iter(&self) -> impl Iterator<Item = (Partition, &[Span])> {
        self.0.iter().map(|(p, s)| (*p, s.as_slice()))
    }

    /// The spans of one partition.
    pub fn of(&self, partition: Partition) -> &[Span] {
        self.0.get(&partition).map_or(&[], Vec::as_slice)
    }

    /// How many offsets are covered.
    pub fn count(&self) -> u64 {
        self.0.values().flatten().map(|s| (s.last.0 - s.first.0 + 1) as u64).sum()
    }

    /// True if the position is covered.
    pub fn contains(&self, position: Position) -> bool {
        let runs = self.of(position.partition);
        let at = runs.partition_point(|s| s.last < position.offset);
        runs.get(at).is_some_and(|s| s.first <= position.offset)
    }
}

/// Sorts spans, and makes one of those that touch.
fn merge(spans: &mut Vec<Span>) {
    spans.sort_unstable_by_key(|span| span.first);
    spans.dedup_by(|next, span| {
        let touches = next.first.0.saturating_sub(span.last.0) <= 1;
        if touches {
            span.last = span.last.max(next.last);
        }
        touches
    });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever the order, the same spans as from sorted positions, each as long as can be.
        #[test]
        fn spans_are_those_of_a_sorted_set(runs in prop::collection::vec((0u32..3, 0i64..60, 1i64..9), 0..30)) {
            let positions: Vec<Position> =
                runs.iter().flat_map(|&(p, first, len)| (first..first + len).map(move |o| Position::new(p, o))).collect();
            let spans = Spans::covering(positions.iter().copied());
            let covered: Vec<Position> = spans
                .iter()
                .flat_map(|(p, spans)| spans.iter().map(move |s| (p, s)))
                .flat_map(|(p, s)| (s.first.0..=s.last.0).map(move |o| Position { partition: p, offset: Offset(o) }))
                .collect();
            let sorted: BTreeSet<Position> = positions.into_iter().collect();
            prop_assert_eq!(covered, sorted.into_iter().collect::<Vec<_>>());
            for (_, spans) in spans.iter() {
                prop_assert!(spans.windows(2).all(|pair| pair[0].last.0 + 1 < pair[1].first.0));
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_left_is_what_was_not_first(
            kept in prop::collection::vec("[a-c]{0,3}\n", 0..12),
            gone in 0usize..=12,
        ) {
            let mut rows = Rows::new(2, 1);
            for (i, kept) in kept.iter().enumerate() {
                let n = i as u32;
                let (quasi, sensitive) = (SmallVec::from_slice(&[n, n + 1]), SmallVec::from_slice(&[n + 2]));
                let row = Row { quasi, sensitive, label: n, profile: n, subject: 3, kept: kept.clone(), event_time: None };
                rows.push(Position::new(0, i as i64), Millis(i as i64), &row);
            }
            let gone = gone.min(rows.len());
            let twin = rows.filtered(|i| i >= gone);
            rows.remove_first(gone);
            prop_assert_eq!((rows.len(), rows.bytes()), (twin.len(), twin.bytes()));
            let all = |rows: &Rows, i: usize| {
                let codes = (rows.quasi(i).to_vec(), rows.sensitive(i).to_vec(), rows.label(i), rows.profile(i));
                (codes, rows.subject(i), rows.position(i), rows.arrived(i), rows.kept_text(i).to_owned())
            };
            for i in 0..rows.len() {
                prop_assert_eq!(all(&rows, i), all(&twin, i));
            }
        }
    }

    #[test]
    fn spans_cover_exactly_what_was_given() {
        let positions = [(0, 5), (0, 3), (0, 4), (1, 9), (0, 8), (0, 4)].map(|(p, o)| Position::new(p, o));
        let spans = Spans::covering(positions);
        assert_eq!(spans.count(), 5);
        for partition in 0..2 {
            for offset in 0..12 {
                let position = Position::new(partition, offset);
                assert_eq!(spans.contains(position), positions.contains(&position), "{position}");
            }
        }
    }
}
