//! Which records: offsets of partitions as runs, so that a window's worth of positions is a few of them.
//!
//! Invariant: the runs of a partition are ascending and disjoint, and a partition without any is not there.

use std::collections::BTreeMap;

use crate::model::event::{Offset, Partition, Position};

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

impl Span {
    fn len(self) -> u64 {
        (self.last.0 - self.first.0 + 1) as u64
    }
}

impl Spans {
    /// The spans that cover exactly these positions. A log is read forwards, so they mostly come as runs already, those of
    /// several partitions in turn.
    pub fn covering(positions: impl IntoIterator<Item = Position>) -> Self {
        let mut covering = Covering::default();
        positions.into_iter().for_each(|position| covering.add(position));
        covering.spans()
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

    /// What either of them covers.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut all = self.0.clone();
        for (&partition, spans) in &other.0 {
            let own = all.entry(partition).or_default();
            own.extend_from_slice(spans);
            merge(own);
        }
        Self(all)
    }

    /// What this one covers and the other does not.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self::from_runs(self.iter().map(|(partition, spans)| (partition, subtract(spans, other.of(partition)))))
    }

    /// What both of them cover.
    #[must_use]
    pub fn within(&self, other: &Self) -> Self {
        self.without(&self.without(other))
    }

    /// True if nothing is covered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many offsets are covered.
    pub fn count(&self) -> u64 {
        self.0.values().flatten().map(|span| span.len()).sum()
    }

    /// True if the position is covered.
    pub fn contains(&self, position: Position) -> bool {
        let runs = self.of(position.partition);
        let at = runs.partition_point(|s| s.last < position.offset);
        runs.get(at).is_some_and(|s| s.first <= position.offset)
    }

    /// Answers the same for one position after the other, at a step each where they come in order.
    pub fn finder<'a>(&'a self) -> Finder<'a> {
        let mut before = 0;
        let lane = |(partition, runs): (Partition, &'a [Span])| {
            let start = |run: &Span| {
                before += run.len() as usize;
                before - run.len() as usize
            };
            let starts = runs.iter().map(start).collect();
            Lane { partition, runs, starts, at: 0, from: 1, to: 0, start: None }
        };
        Finder { lanes: self.iter().map(lane).collect(), lane: 0 }
    }
}

/// Spans that grow by one position after the other, at a step each where they come in order.
#[derive(Default)]
pub struct Covering {
    lanes: Vec<(Partition, Vec<Span>)>,
    lane: usize,
}

impl Covering {
    /// Covers the position too.
    #[inline]
    pub fn add(&mut self, Position { partition, offset }: Position) {
        let Self { lanes, lane } = self;
        if lanes.get(*lane).is_none_or(|lane| lane.0 != partition) {
            *lane = lanes.iter().position(|lane| lane.0 == partition).unwrap_or_else(|| {
                lanes.push((partition, Vec::new()));
                lanes.len() - 1
            });
        }
        match lanes[*lane].1.last_mut() {
            Some(span) if span.last.0.checked_add(1) == Some(offset.0) => span.last = offset,
            _ => lanes[*lane].1.push(Span { first: offset, last: offset }),
        }
    }

    /// What is covered.
    pub fn spans(mut self) -> Spans {
        self.lanes.iter_mut().for_each(|(_, spans)| merge(spans));
        Spans(self.lanes.into_iter().collect())
    }
}

/// Remembers the last answer in each partition, and which offsets around it have the same one: the next position is near.
pub struct Finder<'a> {
    lanes: Vec<Lane<'a>>,
    lane: usize,
}

struct Lane<'a> {
    partition: Partition,
    runs: &'a [Span],
    /// How many offsets are covered before each run, those of partitions before it included.
    starts: Vec<usize>,
    /// The runs before this one ended before the last offset.
    at: usize,
    /// The offsets with the last answer, both ends included; none at first.
    from: i64,
    to: i64,
    /// The place of the first of them, if they are covered.
    start: Option<usize>,
}

impl Finder<'_> {
    /// True if the position is covered.
    #[inline]
    pub fn contains(&mut self, position: Position) -> bool {
        self.place(position).is_some()
    }

    /// How many covered positions stand before this one, partition by partition; `None` if it is not covered.
    #[inline]
    pub fn place(&mut self, position: Position) -> Option<usize> {
        if self.lanes.get(self.lane).is_none_or(|lane| lane.partition != position.partition) {
            let found = self.lanes.iter().position(|lane| lane.partition == position.partition);
            self.lane = found?;
        }
        let lane = &mut self.lanes[self.lane];
        if position.offset.0 < lane.from || lane.to < position.offset.0 {
            lane.look_up(position.offset);
        }
        lane.start.map(|start| start + (position.offset.0 - lane.from) as usize)
    }
}

impl Lane<'_> {
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

/// What is left of ascending spans without others.
fn subtract(spans: &[Span], others: &[Span]) -> Vec<Span> {
    let mut left = Vec::new();
    let mut others = others.iter().peekable();
    for span in spans {
        let mut rest = Some(*span);
        while let Some(Span { first, last }) = rest
            && let Some(other) = others.peek().filter(|other| other.first <= last)
        {
            if first < other.first {
                left.push(Span { first, last: Offset(other.first.0 - 1) });
            }
            // One that ends later may cover some of the next span too.
            rest = (other.last < last).then(|| Span { first: first.max(Offset(other.last.0 + 1)), last });
            if rest.is_some() {
                others.next();
            }
        }
        left.extend(rest);
    }
    left
}

/// Sorts spans, and makes one of those that touch.
fn merge(spans: &mut Vec<Span>) {
    // Mostly a few runs that are sorted already, which a stable sort merges.
    spans.sort_by_key(|span| span.first);
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
