//! Sorted, disjoint runs of offsets of one partition, and their compact text: the currency of commits.

use crate::model::batch::Span;
use crate::model::event::Offset;

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

    /// Takes everything below `offset` out.
    pub fn remove_below(&mut self, offset: i64) {
        self.remove(i64::MIN, offset.saturating_sub(1));
    }

    /// Digits in base 64, differences only: `+` and `.` end the length of a run and the distance to the next.
    pub fn to_text(&self, origin: i64) -> String {
        let mut text = String::new();
        let mut last = origin;
        for &(first, end) in &self.0 {
            push_number(&mut text, first.wrapping_sub(last) as u64);
            text.push('+');
            push_number(&mut text, (end - first) as u64);
            text.push('.');
            last = end;
        }
        text
    }

    /// What [`Runs::to_text`] wrote; `None` if it is anything else.
    pub fn parse(text: &str, origin: i64) -> Option<Self> {
        let mut runs = Self::default();
        let mut last = origin;
        for part in text.split_terminator('.') {
            let (distance, length) = part.split_once('+')?;
            let first = last.checked_add(i64::try_from(number(distance)?).ok()?)?;
            let end = first.checked_add(i64::try_from(number(length)?).ok()?)?;
            // Runs that touch or overlap were never written.
            if runs.last().is_some_and(|l| first <= l.saturating_add(1)) {
                return None;
            }
            runs.0.push((first, end));
            last = end;
        }
        (text.is_empty() || text.ends_with('.')).then_some(runs)
    }
}

const DIGITS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";

fn push_number(text: &mut String, mut number: u64) {
    let mut digits = Vec::with_capacity(11);
    loop {
        digits.push(DIGITS[(number % 64) as usize]);
        number /= 64;
        if number == 0 {
            break;
        }
    }
    text.extend(digits.iter().rev().map(|&d| char::from(d)));
}

fn number(text: &str) -> Option<u64> {
    if text.is_empty() || text.len() > 11 {
        return None;
    }
    text.bytes().try_fold(0u64, |number, byte| {
        let digit = DIGITS.iter().position(|&d| d == byte)? as u64;
        number.checked_mul(64)?.checked_add(digit)
    })
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
