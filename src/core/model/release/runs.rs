//! Offset sets of one partition: sorted, disjoint runs of offsets with the operations of a set.
//!
//! A log is read forwards, so a window's worth of offsets is a few long runs. [`Spans`](super::spans::Spans) holds one
//! [`Runs`] per partition; the commits of Kafka use them directly.
//!
//! Invariant: runs ascend and never touch each other, so equal sets are equal values.

use crate::model::event::Offset;

/// An unbroken run of offsets, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// The first offset.
    pub first: Offset,
    /// The last offset.
    pub last: Offset,
}

impl Span {
    /// The run from `first` to `last`.
    pub fn new(first: i64, last: i64) -> Self {
        Self { first: Offset(first), last: Offset(last) }
    }

    /// Every offset of the run.
    pub fn offsets(self) -> impl Iterator<Item = i64> {
        self.first.0..=self.last.0
    }

    /// The number of offsets.
    pub(super) fn count(self) -> u64 {
        (self.last.0 - self.first.0 + 1) as u64
    }
}

/// A set of offsets of one partition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Runs(Vec<Span>);

impl Runs {
    /// The empty set.
    pub const EMPTY: &'static Self = &Self(Vec::new());

    /// The runs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Span> + '_ {
        self.0.iter().copied()
    }

    /// The runs, ascending.
    pub fn as_slice(&self) -> &[Span] {
        &self.0
    }

    /// Every offset, ascending.
    pub fn offsets(&self) -> impl Iterator<Item = i64> + '_ {
        self.iter().flat_map(Span::offsets)
    }

    /// True if no offset is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of runs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The number of offsets.
    pub fn count(&self) -> u64 {
        self.iter().map(Span::count).sum()
    }

    /// The smallest offset.
    pub fn first(&self) -> Option<i64> {
        self.0.first().map(|run| run.first.0)
    }

    /// The largest offset.
    pub fn last(&self) -> Option<i64> {
        self.0.last().map(|run| run.last.0)
    }

    /// True if the offset is in the set.
    pub fn contains(&self, offset: i64) -> bool {
        self.meets(offset, offset)
    }

    /// Adds the offsets from `first` to `last`; nothing if `last` is smaller.
    pub fn insert(&mut self, first: i64, last: i64) {
        if last < first {
            return;
        }
        match self.0.last_mut() {
            Some(run) if run.last.0.checked_add(1) == Some(first) => return run.last = Offset(last),
            Some(run) if run.last.0 >= first => {}
            _ => return self.0.push(Span::new(first, last)),
        }
        let from = self.0.partition_point(|run| run.last.0.saturating_add(1) < first);
        let to = self.0.partition_point(|run| run.first.0 <= last.saturating_add(1));
        let merged = match (self.0.get(from), to.checked_sub(1).and_then(|to| self.0.get(to))) {
            (Some(a), Some(b)) if from < to => Span::new(a.first.0.min(first), b.last.0.max(last)),
            _ => Span::new(first, last),
        };
        self.0.splice(from..to, [merged]);
    }

    /// Removes the offsets from `first` to `last`.
    pub fn remove(&mut self, first: i64, last: i64) {
        if last < first {
            return;
        }
        let from = self.0.partition_point(|run| run.last.0 < first);
        let to = self.0.partition_point(|run| run.first.0 <= last);
        if from >= to {
            return;
        }
        let (a, b) = (self.0[from], self.0[to - 1]);
        let before = (a.first.0 < first).then(|| Span::new(a.first.0, first - 1));
        let after = (b.last.0 > last).then(|| Span::new(last + 1, b.last.0));
        self.0.splice(from..to, before.into_iter().chain(after));
    }

    /// Adds every offset of `other`.
    pub fn insert_all(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
        *self = Self::from_unsorted(std::mem::take(&mut self.0));
    }

    /// The offsets of this set that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        let mut others = other.0.iter().peekable();
        for span in &self.0 {
            let mut rest = Some(*span);
            while let Some(Span { first, last }) = rest
                && let Some(other) = others.peek().filter(|other| other.first <= last)
            {
                if first < other.first {
                    left.push(Span { first, last: Offset(other.first.0 - 1) });
                }
                // A run of `other` that ends later may cover some of the next run too.
                rest = (other.last < last).then(|| Span { first: first.max(Offset(other.last.0 + 1)), last });
                if rest.is_some() {
                    others.next();
                }
            }
            left.extend(rest);
        }
        Self(left)
    }

    /// The offsets that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut both = Self::default();
        let (mut i, mut j) = (0, 0);
        while let (Some(a), Some(b)) = (self.0.get(i), other.0.get(j)) {
            both.insert(a.first.0.max(b.first.0), a.last.0.min(b.last.0));
            if a.last < b.last { i += 1 } else { j += 1 }
        }
        both
    }

    /// The same set with every gap closed that holds no offset of `apart`. It has fewer runs, and says the same about the
    /// offsets of `self` and of `apart`.
    #[must_use]
    pub fn bridged(&self, apart: &Self) -> Self {
        let mut bridged = Self::default();
        let mut end: Option<i64> = None;
        for Span { first: Offset(first), last: Offset(last) } in self.iter() {
            match end {
                Some(end) if !apart.meets(end + 1, first - 1) => bridged.insert(end + 1, last),
                _ => bridged.insert(first, last),
            }
            end = Some(last);
        }
        bridged
    }

    /// True if an offset from `first` to `last` is in the set.
    fn meets(&self, first: i64, last: i64) -> bool {
        let at = self.0.partition_point(|run| run.last.0 < first);
        first <= last && self.0.get(at).is_some_and(|run| run.first.0 <= last)
    }

    /// The set of spans in any order, which may overlap.
    pub(super) fn from_unsorted(mut spans: Vec<Span>) -> Self {
        // Mostly a few runs that are sorted already; a stable sort only merges those.
        spans.sort_by_key(|span| span.first);
        spans.dedup_by(|next, span| {
            let touches = next.first.0.saturating_sub(span.last.0) <= 1;
            if touches {
                span.last = span.last.max(next.last);
            }
            touches
        });
        Self(spans)
    }
}

impl<'a> IntoIterator for &'a Runs {
    type Item = Span;
    type IntoIter = std::iter::Copied<std::slice::Iter<'a, Span>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter().copied()
    }
}

impl FromIterator<Span> for Runs {
    fn from_iter<T: IntoIterator<Item = Span>>(spans: T) -> Self {
        Self::from_unsorted(spans.into_iter().collect())
    }
}

impl FromIterator<i64> for Runs {
    fn from_iter<T: IntoIterator<Item = i64>>(offsets: T) -> Self {
        let mut runs = Self::default();
        offsets.into_iter().for_each(|offset| runs.insert(offset, offset));
        runs
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn set(runs: &Runs) -> BTreeSet<i64> {
        runs.offsets().collect()
    }

    fn is_canonical(runs: &Runs) -> bool {
        runs.0.windows(2).all(|pair| pair[0].last.0 + 1 < pair[1].first.0)
    }

    proptest! {
        /// Steps of inserting and removing, against a set of single offsets.
        #[test]
        fn runs_are_sets(steps in prop::collection::vec((any::<bool>(), 0i64..60, 0i64..12), 0..40)) {
            let (mut runs, mut naive) = (Runs::default(), BTreeSet::new());
            for (add, first, length) in steps {
                if add { runs.insert(first, first + length) } else { runs.remove(first, first + length) }
                for offset in first..=first + length {
                    if add { naive.insert(offset); } else { naive.remove(&offset); }
                }
                prop_assert_eq!(set(&runs), naive.clone());
                prop_assert!(is_canonical(&runs));
            }
            prop_assert_eq!(runs.count() as usize, naive.len());
            prop_assert_eq!((runs.first(), runs.last()), (naive.first().copied(), naive.last().copied()));
            prop_assert_eq!((runs.is_empty(), runs.len()), (naive.is_empty(), runs.iter().count()));
            prop_assert!((0..80).all(|offset| runs.contains(offset) == naive.contains(&offset)));
            prop_assert_eq!(runs.iter().collect::<Runs>(), runs.clone());
            prop_assert_eq!(naive.iter().rev().copied().collect::<Runs>(), runs);
        }

        /// Spans in any order and overlapping make the same set as their offsets.
        #[test]
        fn spans_in_any_order_make_a_set(spans in prop::collection::vec((0i64..60, 0i64..9), 0..30)) {
            let runs: Runs = spans.iter().map(|&(first, length)| Span::new(first, first + length)).collect();
            let naive: BTreeSet<i64> = spans.iter().flat_map(|&(first, length)| first..=first + length).collect();
            prop_assert_eq!(set(&runs), naive);
            prop_assert!(is_canonical(&runs));
        }

        #[test]
        fn operations_are_those_of_sets(a in prop::collection::btree_set(0i64..40, 0..30),
                                        b in prop::collection::btree_set(0i64..40, 0..30)) {
            let runs = |set: &BTreeSet<i64>| set.iter().copied().collect::<Runs>();
            let (ours, theirs) = (runs(&a), runs(&b));
            prop_assert_eq!(ours.intersection(&theirs), runs(&(&a & &b)));
            prop_assert_eq!(ours.without(&theirs), runs(&(&a - &b)));
            let mut all = ours.clone();
            all.insert_all(&theirs);
            prop_assert_eq!(all, runs(&(&a | &b)));
        }

        #[test]
        fn bridges_change_nothing_that_matters(a in prop::collection::btree_set(0i64..40, 0..20),
                                               b in prop::collection::btree_set(0i64..40, 0..20)) {
            let runs = |set: &BTreeSet<i64>| set.iter().copied().collect::<Runs>();
            let (ours, apart) = (runs(&a), &b - &a);
            let bridged = ours.bridged(&runs(&apart));
            prop_assert!(bridged.len() <= ours.len() && bridged.len() <= apart.len() + 1);
            prop_assert_eq!(&set(&bridged) & &(&a | &b), a);
        }
    }
}
