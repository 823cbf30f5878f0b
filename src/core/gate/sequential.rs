//! Checks what the last releases said about people who return: a reader who finds somebody in several releases intersects the
//! sensitive values of the classes they were in.
//!
//! A [`Memory`] holds, for the last releases, each subject's candidate values; no value is no candidate. Subjects are the keyed hashes of the
//! encoder (a random key per run), values are codes; the number of subjects is bounded. It learns from what the gate has
//! let pass, now or before a restart, and from nothing else. Where the policy asks for `sequential`, the gate refuses a
//! release after which somebody who returns would have fewer candidates than asked for, or whom the memory has no room
//! for; else it only watches.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::count::Count;
use super::{Refusal, Release, as_sent, counted};
use crate::generalize::GeneralizedBatch;
use crate::model::counting::NO_VALUE;
use crate::model::domain::Code;
use crate::model::policy::{Policy, Sequential};
use crate::privacy::Rules;

/// How many releases are looked back at where the policy does not ask. More holds more memory; fewer sees fewer return.
const WATCHED_RELEASES: usize = 5;
type Values = Arc<[Code]>;

/// The people of the last releases, with their candidate values.
pub struct Memory {
    field: usize,
    /// Releases that count, the next one included.
    releases: usize,
    /// How many candidates must be left; `None` if it only watches.
    least: Option<u32>,
    max_subjects: usize,
    past: VecDeque<Past>,
}

/// A release as it is remembered.
struct Past {
    /// How many releases have followed it.
    later: usize,
    seen: FxHashMap<u64, Values>,
}

/// How people return, in figures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recurrence {
    /// By how many candidate values are left: how many subjects who were in an earlier release too.
    pub candidates: BTreeMap<u32, u64>,
}

impl Memory {
    /// An empty memory for a policy with a subject and a sensitive field; `None` for others.
    pub fn new(policy: &Policy) -> Option<Self> {
        policy.schema.subject?;
        policy.schema.sensitive.first()?;
        let asked = policy.sequential.as_ref();
        Some(Self {
            field: asked.map_or(0, |s| s.field),
            releases: asked.map_or(WATCHED_RELEASES, |s| s.releases as usize),
            least: asked.map(|s: &Sequential| s.candidates),
            max_subjects: asked.map_or(Sequential::MAX_SUBJECTS, |s| s.max_subjects),
            past: VecDeque::new(),
        })
    }

    /// Takes so many bytes at most, where it only watches.
    pub fn hold_within(&mut self, bytes: usize) {
        if !self.is_asked_for() {
            self.max_subjects = self.max_subjects.min(bytes / Sequential::SUBJECT_BYTES);
        }
    }

    /// The sensitive field whose values are candidates.
    pub fn field(&self) -> usize {
        self.field
    }

    /// True if releases are held to it.
    pub fn is_asked_for(&self) -> bool {
        self.least.is_some()
    }

    /// How many subjects the next release may have; what falls out of sight by then makes room.
    pub fn room(&self) -> usize {
        let kept = self.past.iter().filter(|past| past.later + 1 < self.releases - 1).map(|past| past.seen.len());
        self.max_subjects.saturating_sub(kept.sum())
    }

    /// How many candidates are left for a subject whose next class holds `values`, ascending; `None` if it was in none of
    /// the last releases.
    pub fn left(&self, subject: u64, values: &[Code]) -> Option<u32> {
        let mut left: Option<Vec<Code>> = None;
        for earlier in self.past.iter().filter_map(|past| past.seen.get(&subject)) {
            left.get_or_insert_with(|| values.to_vec()).retain(|value| earlier.binary_search(value).is_ok());
        }
        left.map(|left| left.len() as u32)
    }

    /// True if a subject may be published in a class of `values`.
    pub fn allows(&self, subject: u64, values: &[Code]) -> bool {
        self.least.is_none_or(|least| self.left(subject, values).is_none_or(|left| left >= least))
    }

    /// Learns what a release showed before a restart, which `later` ones have followed: `classes` hold subjects and values.
    pub fn recall<C: AsRef<[(u64, Code)]>>(&mut self, later: usize, classes: impl IntoIterator<Item = C>) {
        if later < self.releases - 1 {
            let before = self.past.partition_point(|past| past.later > later);
            self.past.insert(before, Past { later, seen: candidates(classes) });
        }
    }

    fn remember(&mut self, seen: FxHashMap<u64, Values>) {
        self.past.iter_mut().for_each(|past| past.later += 1);
        self.past.retain(|past| past.later < self.releases - 1);
        if self.releases > 1 {
            self.past.push_back(Past { later: 0, seen });
        }
        // Where it only watches, room is made by looking back less far.
        while !self.is_asked_for() && self.entries() > self.max_subjects {
            self.past.pop_front();
        }
    }

    fn entries(&self) -> usize {
        self.past.iter().map(|past| past.seen.len()).sum()
    }
}

/// Like [`super::verify`], after the releases that `memory` knows of; remembers what passes. A release that was `planned`
/// before a crash is only remembered: it was held to the memory of that time, and its bytes may have been seen.
pub fn verify_recurring(
    batch: GeneralizedBatch,
    rules: &Rules,
    memory: &mut Memory,
    planned: bool,
) -> Result<Release, Refusal> {
    let batch = as_sent(batch, rules);
    let count = Count::new(&batch, rules);
    let mut release = counted(&batch, &count, rules)?;
    if batch.is_empty() {
        return Ok(release);
    }
    let seen = shown(&batch, &count, memory.field);
    let asked = memory.is_asked_for() && !planned;
    if asked && seen.len() > memory.room() {
        return Err(refusal(memory.room() as f64, seen.len() as f64, true));
    }
    let mut recurrence = Recurrence::default();
    for (&subject, values) in &seen {
        if let Some(left) = memory.left(subject, values) {
            *recurrence.candidates.entry(left).or_default() += 1;
        }
    }
    if let (Some(least), Some((&fewest, _))) = (memory.least, recurrence.candidates.first_key_value())
        && asked
        && fewest < least
    {
        return Err(refusal(f64::from(least), f64::from(fewest), false));
    }
    memory.remember(seen);
    release.recurrence = Some(recurrence);
    Ok(release)
}

/// Each subject's candidate values by this batch alone.
fn shown(batch: &GeneralizedBatch, count: &Count<'_>, field: usize) -> FxHashMap<u64, Values> {
    let all: Vec<usize> = (0..batch.quasi.len()).collect();
    let known = batch.sensitive[field].leaf_count() as Code;
    let row = |at: &u32| {
        let (rows, i) = batch.source(batch.order[*at as usize]);
        // Other codes mean something else in the next release.
        let value = Some(count.values().code(rows, i, field)).filter(|value| *value < known);
        (rows.subject(i), value.unwrap_or(NO_VALUE))
    };
    let classes = count.groups(count.everything(), &all);
    candidates(classes.iter().map(|class| class.iter().map(row).collect::<Vec<_>>()))
}

/// Each subject's candidate values: those of its class, or common to all its classes.
fn candidates<C: AsRef<[(u64, Code)]>>(classes: impl IntoIterator<Item = C>) -> FxHashMap<u64, Values> {
    let mut seen: FxHashMap<u64, Values> = FxHashMap::default();
    for class in classes {
        let mut values: Vec<Code> =
            class.as_ref().iter().map(|(_, value)| *value).filter(|value| *value != NO_VALUE).collect();
        values.sort_unstable();
        values.dedup();
        let values: Values = values.into();
        for (subject, _) in class.as_ref() {
            let known = seen.entry(*subject).or_insert_with(|| Arc::clone(&values));
            if !Arc::ptr_eq(known, &values) {
                *known = known.iter().copied().filter(|value| values.binary_search(value).is_ok()).collect();
            }
        }
    }
    seen
}

fn refusal(required: f64, achieved: f64, at_most: bool) -> Refusal {
    Refusal {
        criterion: "sequential".into(),
        required,
        at_most,
        achieved,
        size: 1,
        without_held: false,
        difference: false,
        class: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_is_no_candidate() {
        let seen = candidates([vec![(1, NO_VALUE), (2, 7), (3, 4)], vec![(4, NO_VALUE)], vec![(3, 4), (3, NO_VALUE)]]);
        let of = |subject: u64| seen[&subject].to_vec();
        assert_eq!((of(1), of(2), of(3), of(4)), (vec![4, 7], vec![4, 7], vec![4], vec![]));
    }
}
