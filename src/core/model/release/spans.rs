//! Record sets: offsets of several partitions, one [`Runs`] per partition.
//!
//! Invariant: a partition without offsets has no entry, so equal sets are equal values.

use std::collections::BTreeMap;

pub use super::runs::{Runs, Span};
use crate::model::batch::Rows;
use crate::model::event::{Offset, Partition, Position};

/// A set of records by position.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Spans(BTreeMap<Partition, Runs>);

impl Spans {
    /// The set of these positions. A log is read forwards, so they mostly come as runs already, those of several partitions in
    /// turn.
    pub fn covering(positions: impl IntoIterator<Item = Position>) -> Self {
        let mut covering = Covering::default();
        positions.into_iter().for_each(|position| covering.add(position));
        covering.spans()
    }

    /// The set of the positions of rows, and of others.
    pub fn of_rows(rows: &Rows, others: impl IntoIterator<Item = Position>) -> Self {
        let mut covering = Covering::default();
        covering.add_rows(rows);
        others.into_iter().for_each(|position| covering.add(position));
        covering.spans()
    }

    /// The set with these offsets in each partition.
    pub fn from_runs(runs: impl IntoIterator<Item = (Partition, Runs)>) -> Self {
        Self(runs.into_iter().filter(|(_, runs)| !runs.is_empty()).collect())
    }

    /// The partitions that have offsets, ascending, with their offsets.
    pub fn iter(&self) -> impl Iterator<Item = (Partition, &Runs)> {
        self.0.iter().map(|(partition, runs)| (*partition, runs))
    }

    /// The offsets of one partition.
    pub fn of(&self, partition: Partition) -> &Runs {
        self.0.get(&partition).unwrap_or(Runs::EMPTY)
    }

    /// The records that are in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut all = self.0.clone();
        for (&partition, runs) in &other.0 {
            all.entry(partition).or_default().insert_all(runs);
        }
        Self(all)
    }

    /// The records of this set that are not in the other.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self::from_runs(self.iter().map(|(partition, runs)| (partition, runs.without(other.of(partition)))))
    }

    /// The records that are in both sets.
    #[must_use]
    pub fn within(&self, other: &Self) -> Self {
        Self::from_runs(self.iter().map(|(partition, runs)| (partition, runs.intersection(other.of(partition)))))
    }

    /// True if no record is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of records.
    pub fn count(&self) -> u64 {
        self.0.values().map(Runs::count).sum()
    }

    /// True if the record is in the set.
    pub fn contains(&self, position: Position) -> bool {
        self.of(position.partition).contains(position.offset.0)
    }

    /// Answers [`Spans::contains`] for many positions; constant time for positions that come in order.
    pub fn finder<'a>(&'a self) -> Finder<'a> {
        let mut before = 0;
        let cursor = |(partition, runs): (Partition, &'a Runs)| {
            let start = |run: Span| {
                before += run.count() as usize;
                before - run.count() as usize
            };
            let starts = runs.iter().map(start).collect();
            Cursor { partition, runs: runs.as_slice(), starts, at: 0, from: 1, to: 0, start: None }
        };
        Finder { cursors: self.iter().map(cursor).collect(), current: 0 }
    }
}

/// Builds [`Spans`] from single positions; constant time for positions that come in order.
#[derive(Default)]
pub struct Covering {
    partitions: Vec<(Partition, Vec<Span>)>,
    /// The index of the partition that the last position was in.
    current: usize,
}

impl Covering {
    /// Adds a position.
    #[inline]
    pub fn add(&mut self, position: Position) {
        self.add_run(position, 1);
    }

    /// Adds a position and those of the next offsets, so many in all.
    #[inline]
    pub fn add_run(&mut self, Position { partition, offset }: Position, count: usize) {
        if count == 0 {
            return;
        }
        let Self { partitions, current } = self;
        if partitions.get(*current).is_none_or(|(known, _)| *known != partition) {
            *current = partitions.iter().position(|(known, _)| *known == partition).unwrap_or_else(|| {
                partitions.push((partition, Vec::new()));
                partitions.len() - 1
            });
        }
        let spans = &mut partitions[*current].1;
        let last = Offset(offset.0 + (count as i64 - 1));
        match spans.last_mut() {
            Some(span) if span.last.0.checked_add(1) == Some(offset.0) => span.last = last,
            _ => spans.push(Span { first: offset, last }),
        }
    }

    /// Adds the positions of rows.
    pub fn add_rows(&mut self, rows: &Rows) {
        rows.position_runs().for_each(|(first, count)| self.add_run(first, count));
    }

    /// The set of all positions that were added.
    pub fn spans(self) -> Spans {
        Spans(self.partitions.into_iter().map(|(partition, spans)| (partition, Runs::from_unsorted(spans))).collect())
    }
}

/// Remembers the last answer in each partition, and the range of offsets that share it: the next position is near.
pub struct Finder<'a> {
    cursors: Vec<Cursor<'a>>,
    /// The index of the cursor that answered last.
    current: usize,
}

/// The part of a [`Finder`] for one partition.
struct Cursor<'a> {
    partition: Partition,
    runs: &'a [Span],
    /// The number of offsets before each run, those of smaller partitions included.
    starts: Vec<usize>,
    /// The runs before this one ended before the last offset.
    at: usize,
    /// The offsets with the last answer, both ends included; none at first.
    from: i64,
    to: i64,
    /// The place of the first of them, if they are in the set.
    start: Option<usize>,
}

impl Finder<'_> {
    /// True if the position is in the set.
    #[inline]
    pub fn contains(&mut self, position: Position) -> bool {
        self.place(position).is_some()
    }

    /// The number of records of the set before this one, partition by partition; `None` if it is not in the set.
    #[inline]
    pub fn place(&mut self, position: Position) -> Option<usize> {
        if self.cursors.get(self.current).is_none_or(|cursor| cursor.partition != position.partition) {
            self.current = self.cursors.iter().position(|cursor| cursor.partition == position.partition)?;
        }
        let cursor = &mut self.cursors[self.current];
        if position.offset.0 < cursor.from || cursor.to < position.offset.0 {
            cursor.look_up(position.offset);
        }
        cursor.start.map(|start| start + (position.offset.0 - cursor.from) as usize)
    }
}

impl Cursor<'_> {
    fn look_up(&mut self, offset: Offset) {
        let Self { runs, at, .. } = self;
        let ended = |run: usize| runs.get(run).is_some_and(|run| run.last < offset);
        let is_first = |run: usize| !ended(run) && (run == 0 || ended(run - 1));
        if !is_first(*at) {
            *at += 1;
            if !is_first(*at) {
                *at = runs.partition_point(|run| run.last < offset);
            }
        }
        let before = at.checked_sub(1).and_then(|before| runs.get(before));
        (self.from, self.to, self.start) = match runs.get(*at) {
            Some(run) if run.first <= offset => (run.first.0, run.last.0, self.starts.get(*at).copied()),
            next => {
                let from = before.map_or(i64::MIN, |run| run.last.0.saturating_add(1));
                (from, next.map_or(i64::MAX, |run| run.first.0.saturating_sub(1)), None)
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::model::batch::Row;
    use crate::model::event::Millis;

    proptest! {
        /// Whatever the order, the same spans as from sorted positions, each as long as can be.
        #[test]
        fn spans_are_those_of_a_sorted_set(runs in prop::collection::vec((0u32..3, 0i64..60, 1i64..9), 0..30)) {
            let positions: Vec<Position> =
                runs.iter().flat_map(|&(p, first, len)| (first..first + len).map(move |o| Position::new(p, o))).collect();
            let spans = Spans::covering(positions.iter().copied());
            let covered: Vec<Position> = spans
                .iter()
                .flat_map(|(p, runs)| runs.offsets().map(move |o| Position { partition: p, offset: Offset(o) }))
                .collect();
            let sorted: BTreeSet<Position> = positions.into_iter().collect();
            prop_assert_eq!(covered, sorted.into_iter().collect::<Vec<_>>());
            for (_, runs) in spans.iter() {
                prop_assert!(runs.as_slice().windows(2).all(|pair| pair[0].last.0 + 1 < pair[1].first.0));
            }
        }

        /// Position by position, as sets have it.
        #[test]
        fn spans_are_added_and_subtracted_as_sets(
            a in prop::collection::btree_set((0u32..3, 0i64..40), 0..60),
            b in prop::collection::btree_set((0u32..3, 0i64..40), 0..60),
        ) {
            let spans = |set: BTreeSet<(u32, i64)>| Spans::covering(set.into_iter().map(|(p, o)| Position::new(p, o)));
            let (of_a, of_b) = (spans(a.clone()), spans(b.clone()));
            prop_assert_eq!(of_a.union(&of_b), spans(&a | &b));
            prop_assert_eq!(of_a.without(&of_b), spans(&a - &b));
            prop_assert_eq!(of_a.within(&of_b), spans(&a & &b));
            prop_assert_eq!(of_a.without(&of_b).is_empty(), a.is_subset(&b));
        }

        /// Rows, of which the first have left, and others.
        #[test]
        fn spans_of_rows_are_those_of_their_positions(
            runs in prop::collection::vec((0u32..3, 0i64..90, 1usize..2000), 0..9), gone in 0usize..6000, others in prop::collection::vec((0u32..3, 0i64..60), 0..9),
        ) {
            let mut rows = Rows::new(0, 0);
            for (partition, first, count) in runs {
                (0..count as i64).for_each(|i| rows.push(Position::new(partition, first + i), Millis(0), &Row::default()));
            }
            rows.remove_first(gone.min(rows.len()));
            let others = || others.iter().map(|&(p, o)| Position::new(p, o));
            prop_assert_eq!(Spans::of_rows(&rows, others()), Spans::covering(rows.positions().chain(others())));
            prop_assert_eq!(rows.position_runs().map(|(_, count)| count).sum::<usize>(), rows.len());
        }

        /// In order or not, the finder says what the spans say.
        #[test]
        fn a_finder_finds_what_is_there(
            covered in prop::collection::vec((0u32..3, 0i64..60), 0..60),
            asked in prop::collection::vec((0u32..4, -2i64..64, 1i64..9), 0..30),
        ) {
            let covered = covered.into_iter().map(|(p, o)| Position::new(p, o)).collect::<Vec<_>>();
            let spans = Spans::covering(covered.iter().copied());
            let mut finder = spans.finder();
            let sorted: BTreeSet<Position> = covered.into_iter().collect();
            for (partition, first, len) in asked {
                for position in (first..first + len).map(|offset| Position::new(partition, offset)) {
                    prop_assert_eq!(finder.contains(position), spans.contains(position), "{}", position);
                    let place = sorted.iter().position(|other| *other == position);
                    prop_assert_eq!(finder.place(position), place, "{}", position);
                }
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
