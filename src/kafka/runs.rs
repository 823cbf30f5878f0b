//! Sorted, disjoint runs of offsets of one partition, and their compact text: the currency of commits.

use crate::model::event::Offset;
use crate::model::release::spans::Span;

/// Runs of offsets, both ends included, ascending, never touching each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Runs(Vec<(i64, i64)>);

impl Runs {
    /// The runs of spans that are ascending and disjoint.
    pub fn from_spans(spans: &[Span]) -> Self {
        let mut runs = Self::default();
        spans.iter().for_each(|s| runs.insert(s.first.0, s.last.0));
        runs
    }

    /// The same as spans.
    pub fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        self.0.iter().map(|&(first, last)| Span { first: Offset(first), last: Offset(last) })
    }

    /// First and last of each run.
    pub fn iter(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.0.iter().copied()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many offsets.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(first, last)| (last - first + 1) as u64).sum()
    }

    /// The smallest offset.
    pub fn first(&self) -> Option<i64> {
        self.0.first().map(|run| run.0)
    }

    /// The largest offset.
    pub fn last(&self) -> Option<i64> {
        self.0.last().map(|run| run.1)
    }

    /// True if the offset is in a run.
    pub fn contains(&self, offset: i64) -> bool {
        let at = self.0.partition_point(|run| run.1 < offset);
        self.0.get(at).is_some_and(|run| run.0 <= offset)
    }

    /// Adds a run, merging what it touches.
    pub fn insert(&mut self, first: i64, last: i64) {
        if last < first {
            return;
        }
        match self.0.last_mut() {
            Some(run) if run.1.checked_add(1) == Some(first) => return run.1 = last,
            Some(run) if run.1 >= first => {}
            _ => return self.0.push((first, last)),
        }
        let from = self.0.partition_point(|run| run.1.saturating_add(1) < first);
        let to = self.0.partition_point(|run| run.0 <= last.saturating_add(1));
        let merged = match (self.0.get(from), to.checked_sub(1).and_then(|t| self.0.get(t))) {
            (Some(a), Some(b)) if from < to => (a.0.min(first), b.1.max(last)),
            _ => (first, last),
        };
        self.0.splice(from..to, [merged]);
    }

    /// Takes a run out.
    pub fn remove(&mut self, first: i64, last: i64) {
        if last < first {
            return;
        }
        let from = self.0.partition_point(|run| run.1 < first);
        let to = self.0.partition_point(|run| run.0 <= last);
        if from >= to {
            return;
        }
        let (a, b) = (self.0[from], self.0[to - 1]);
        let mut rest = Vec::with_capacity(2);
        if a.0 < first {
            rest.push((a.0, first - 1));
        }
        if b.1 > last {
            rest.push((last + 1, b.1));
        }
        self.0.splice(from..to, rest);
    }

    /// The offsets that are in both.
    pub fn intersection(&self, other: &Self) -> Self {
        let mut both = Self::default();
        let (mut i, mut j) = (0, 0);
        while let (Some(a), Some(b)) = (self.0.get(i), other.0.get(j)) {
            both.insert(a.0.max(b.0), a.1.min(b.1));
            if a.1 < b.1 { i += 1 } else { j += 1 }
        }
        both
    }

    /// The same with every gap closed that holds none of `apart`: fewer runs, and the same set among `self` and `apart`.
    pub fn bridged(&self, apart: &Self) -> Self {
        let mut bridged = Self::default();
        let mut end: Option<i64> = None;
        for &(first, last) in &self.0 {
            match end {
                Some(end) if !apart.meets(end + 1, first - 1) => bridged.insert(end + 1, last),
                _ => bridged.insert(first, last),
            }
            end = Some(last);
        }
        bridged
    }

    /// True if an offset from `first` to `last` is in a run.
    fn meets(&self, first: i64, last: i64) -> bool {
        let at = self.0.partition_point(|run| run.1 < first);
        first <= last && self.0.get(at).is_some_and(|run| run.0 <= last)
    }

    /// Distances and lengths in turn, each in digits of five bits, the sixth bit says that more follow: two letters for
    /// most runs, where separators would take as much again.
    pub fn to_text(&self, origin: i64) -> String {
        let mut text = String::new();
        let mut last = origin;
        for &(first, end) in &self.0 {
            push_number(&mut text, first.wrapping_sub(last) as u64);
            push_number(&mut text, (end - first) as u64);
            last = end;
        }
        text
    }

    /// What [`Runs::to_text`] wrote; `None` if it is anything else.
    pub fn parse(text: &str, origin: i64) -> Option<Self> {
        let mut runs = Self::default();
        let (mut last, mut rest) = (origin, text.as_bytes());
        while !rest.is_empty() {
            let first = last.checked_add(number(&mut rest)?)?;
            let end = first.checked_add(number(&mut rest)?)?;
            // Runs that touch or overlap were never written.
            if runs.last().is_some_and(|l| first <= l.saturating_add(1)) {
                return None;
            }
            runs.0.push((first, end));
            last = end;
        }
        Some(runs)
    }
}

const DIGITS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
const MORE: u64 = 32;

fn push_number(text: &mut String, mut number: u64) {
    loop {
        let more = if number < MORE { 0 } else { MORE };
        text.push(char::from(DIGITS[(number % MORE + more) as usize]));
        number /= MORE;
        if more == 0 {
            return;
        }
    }
}

fn number(rest: &mut &[u8]) -> Option<i64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(5) {
        let (byte, others) = rest.split_first()?;
        *rest = others;
        let digit = DIGITS.iter().position(|d| d == byte)? as u64;
        let part = digit % MORE;
        number |= part.checked_mul(1 << shift).filter(|shifted| shifted >> shift == part)?;
        if digit < MORE {
            return i64::try_from(number).ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn set(runs: &Runs) -> BTreeSet<i64> {
        runs.iter().flat_map(|(a, b)| a..=b).collect()
    }

    proptest! {
        #[test]
        fn runs_are_sets(steps in prop::collection::vec((any::<bool>(), 0i64..60, 0i64..12), 0..40)) {
            let (mut runs, mut naive) = (Runs::default(), BTreeSet::new());
            for (add, first, length) in steps {
                if add { runs.insert(first, first + length) } else { runs.remove(first, first + length) }
                for offset in first..=first + length {
                    if add { naive.insert(offset); } else { naive.remove(&offset); }
                }
                prop_assert_eq!(set(&runs), naive.clone());
                prop_assert!(runs.0.windows(2).all(|w| w[0].1 + 1 < w[1].0));
            }
            prop_assert_eq!(runs.count() as usize, naive.len());
            prop_assert!((0..80).all(|o| runs.contains(o) == naive.contains(&o)));
            prop_assert_eq!(Runs::from_spans(&runs.spans().collect::<Vec<_>>()), runs.clone());
            prop_assert_eq!(runs.spans().flat_map(|s| s.first.0..=s.last.0).collect::<BTreeSet<_>>(), naive);
            prop_assert_eq!(Runs::parse(&runs.to_text(0), 0), Some(runs));
        }

        #[test]
        fn bridges_and_intersections_are_those_of_sets(a in prop::collection::btree_set(0i64..40, 0..20),
                                                       b in prop::collection::btree_set(0i64..40, 0..20)) {
            let runs = |set: &BTreeSet<i64>| {
                let mut runs = Runs::default();
                set.iter().for_each(|&o| runs.insert(o, o));
                runs
            };
            let (ours, theirs) = (runs(&a), runs(&b));
            prop_assert_eq!(set(&ours.intersection(&theirs)), a.intersection(&b).copied().collect::<BTreeSet<_>>());
            let apart: BTreeSet<i64> = b.difference(&a).copied().collect();
            let bridged = ours.bridged(&runs(&apart));
            prop_assert!(bridged.0.len() <= ours.0.len() && bridged.0.len() <= apart.len() + 1);
            let known: BTreeSet<i64> = a.union(&b).copied().collect();
            prop_assert_eq!(set(&bridged).intersection(&known).copied().collect::<BTreeSet<_>>(), a);
        }

        #[test]
        fn numbers_come_back(number in 0i64..=i64::MAX) {
            let mut runs = Runs::default();
            runs.insert(number, number);
            prop_assert_eq!(Runs::parse(&runs.to_text(0), 0), Some(runs));
        }

        #[test]
        fn any_text_parses_or_not_but_never_panics(text in "\\PC{0,40}", origin in any::<i64>()) {
            if let Some(runs) = Runs::parse(&text, origin) {
                prop_assert!(runs.0.windows(2).all(|w| w[0].1 < w[1].0));
            }
        }
    }
}
