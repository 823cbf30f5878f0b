//! Checks what the last releases said about people who return: a reader who finds somebody in several releases intersects the
//! sensitive values of the classes they were in.
//!
//! A [`Memory`] holds, for the last releases, each subject's candidate values; no value is no candidate. Subjects are the keyed hashes of the
//! encoder (a random key per run), values are codes; the number of subjects is bounded. It learns from what the gate has
//! let pass, now or before a restart, and from nothing else. Where the policy asks for `sequential`, the gate refuses a
//! release after which somebody who returns would have fewer candidates than asked for, or whom the memory has no room
//! for; else it only watches.

use std::collections::{BTreeMap, VecDeque};

use smallvec::SmallVec;

use super::count::{Count, runs};
use super::{Refusal, Release, as_sent, counted};
use crate::generalize::GeneralizedBatch;
use crate::model::counting::NO_VALUE;
use crate::model::domain::Code;
use crate::model::policy::{Policy, Sequential};
use crate::privacy::Rules;

/// How many releases are looked back at where the policy does not ask. More holds more memory; fewer sees fewer return.
const WATCHED_RELEASES: usize = 5;

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
    seen: Candidates,
}

/// Each subject's candidate values by one release: those of its class, or common to all its classes.
struct Candidates {
    /// Ascending subjects, and which of the sets each has.
    subjects: Vec<(u64, u32)>,
    /// Ascending values.
    sets: Vec<Vec<Code>>,
}

impl Candidates {
    /// Of rows with their subjects and which of the sets is that of their class.
    fn new(mut rows: Vec<(u64, u32)>, mut sets: Vec<Vec<Code>>) -> Self {
        rows.sort_by_key(|(subject, _)| *subject);
        let mut subjects = Vec::with_capacity(rows.len());
        for own in rows.chunk_by(|a, b| a.0 == b.0) {
            let (subject, first) = own[0];
            let others = own[1..].iter().map(|(_, other)| &sets[*other as usize]);
            let mut others = others.filter(|other| **other != sets[first as usize]).peekable();
            let set = if others.peek().is_none() { first } else { sets.len() as u32 };
            if set != first {
                let common = others.fold(sets[first as usize].clone(), |common, other| in_both(&common, other));
                sets.push(common);
            }
            subjects.push((subject, set));
        }
        Self { subjects, sets }
    }

    fn len(&self) -> usize {
        self.subjects.len()
    }

    /// The values of one subject after the other, ascending.
    fn in_order<'s>(&'s self) -> impl FnMut(u64) -> Option<&'s [Code]> {
        let mut rest = &self.subjects[..];
        move |subject| {
            while let [(first, _), others @ ..] = rest
                && *first < subject
            {
                rest = others;
            }
            rest.first().filter(|(first, _)| *first == subject).map(|(_, set)| &*self.sets[*set as usize])
        }
    }

    /// The values of a subject, if it is there.
    fn of(&self, subject: u64) -> Option<&[Code]> {
        // Subjects are keyed hashes and spread evenly, so that most stand near where they would if they were spread exactly.
        let len = self.subjects.len();
        let (place, around) = (((u128::from(subject) * len as u128) >> u64::BITS) as usize, 2 * len.isqrt() + 1);
        let near = &self.subjects[place.saturating_sub(around)..len.min(place + around)];
        let is_near =
            near.first().is_some_and(|first| first.0 <= subject) && near.last().is_some_and(|last| subject <= last.0);
        let among = if is_near { near } else { &self.subjects };
        let at = among.binary_search_by_key(&subject, |(subject, _)| *subject).ok()?;
        Some(&self.sets[among[at].1 as usize])
    }
}

/// How many of the values are in all earlier ones too; `None` if there are no earlier ones.
fn left<'a>(values: &[Code], earlier: impl Iterator<Item = &'a [Code]>) -> Option<u32> {
    let earlier: SmallVec<[&[Code]; 8]> = earlier.collect();
    let in_all = |value: &&Code| earlier.iter().all(|earlier| earlier.binary_search(value).is_ok());
    (!earlier.is_empty()).then(|| values.iter().filter(in_all).count() as u32)
}

/// The values of two ascending lists.
fn in_both(a: &[Code], b: &[Code]) -> Vec<Code> {
    let (mut both, mut rest) = (Vec::with_capacity(a.len().min(b.len())), b);
    for &value in a {
        while let [first, others @ ..] = rest
            && *first < value
        {
            rest = others;
        }
        if rest.first() == Some(&value) {
            both.push(value);
        }
    }
    both
}

/// The different values among some, ascending; no value is none.
fn values(codes: Vec<Code>) -> Vec<Code> {
    let (mut codes, _) = runs(codes);
    codes.retain(|code| *code != NO_VALUE);
    codes
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
        left(values, self.past.iter().filter_map(|past| past.seen.of(subject)))
    }

    /// True if a subject may be published in a class of `values`.
    pub fn allows(&self, subject: u64, values: &[Code]) -> bool {
        self.least.is_none_or(|least| self.left(subject, values).is_none_or(|left| left >= least))
    }

    /// Learns what a release showed before a restart, which `later` ones have followed: `classes` hold subjects and values.
    pub fn recall<C: AsRef<[(u64, Code)]>>(&mut self, later: usize, classes: impl IntoIterator<Item = C>) {
        if later < self.releases - 1 {
            let before = self.past.partition_point(|past| past.later > later);
            let (mut rows, mut sets) = (Vec::new(), Vec::new());
            for class in classes {
                rows.extend(class.as_ref().iter().map(|(subject, _)| (*subject, sets.len() as u32)));
                sets.push(values(class.as_ref().iter().map(|(_, value)| *value).collect()));
            }
            self.past.insert(before, Past { later, seen: Candidates::new(rows, sets) });
        }
    }

    fn remember(&mut self, seen: Candidates) {
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
    let mut earlier: Vec<_> = memory.past.iter().map(|past| past.seen.in_order()).collect();
    for &(subject, set) in &seen.subjects {
        let earlier = earlier.iter_mut().filter_map(|earlier| earlier(subject));
        if let Some(left) = left(&seen.sets[set as usize], earlier) {
            *recurrence.candidates.entry(left).or_default() += 1;
        }
    }
    drop(earlier);
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
fn shown(batch: &GeneralizedBatch, count: &Count<'_>, field: usize) -> Candidates {
    let known = batch.sensitive[field].leaf_count() as Code;
    let value = |at: &u32| {
        let (rows, i) = batch.source(batch.order[*at as usize]);
        // Other codes mean something else in the next release.
        Some(count.values().code(rows, i, field)).filter(|value| *value < known).unwrap_or(NO_VALUE)
    };
    let mut class_of = vec![0; batch.len()];
    let class = |(class, rows): (u32, &[u32])| {
        rows.iter().for_each(|&row| class_of[row as usize] = class);
        values(rows.iter().map(value).collect())
    };
    let sets = (0..).zip(count.classes().iter()).map(class).collect();
    Candidates::new(count.by_subject().map(|(subject, row)| (subject, class_of[row as usize])).collect(), sets)
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
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_value_is_no_candidate() {
        let classes = [vec![(1, NO_VALUE), (2, 7), (3, 4)], vec![(4, NO_VALUE)], vec![(3, 4), (3, NO_VALUE)]];
        let mut memory = Memory { field: 0, releases: 2, least: None, max_subjects: 9, past: VecDeque::new() };
        memory.recall(0, classes);
        let of = |subject: u64| memory.past[0].seen.of(subject).map(<[Code]>::to_vec);
        assert_eq!((of(1), of(2), of(3)), (Some(vec![4, 7]), Some(vec![4, 7]), Some(vec![4])));
        assert_eq!((of(4), of(5)), (Some(vec![]), None));
    }

    proptest! {
        /// Wherever subjects stand, and however many classes they are in.
        #[test]
        fn candidates_are_those_of_a_map(
            rows in prop::collection::vec((prop_oneof![0u64..9, any::<u64>(), Just(u64::MAX)], 0u32..4), 0..300),
            sets in prop::collection::vec(prop::collection::btree_set(1u32..6, 0..5), 4),
        ) {
            let mut twin: BTreeMap<u64, BTreeSet<Code>> = BTreeMap::new();
            for (subject, set) in &rows {
                let own = &sets[*set as usize];
                twin.entry(*subject).or_insert_with(|| own.clone()).retain(|value| own.contains(value));
            }
            let lists = sets.iter().map(|set| set.iter().copied().collect()).collect();
            let candidates = Candidates::new(rows.clone(), lists);
            prop_assert_eq!(candidates.len(), twin.len());
            for (subject, _) in rows {
                prop_assert_eq!(candidates.of(subject).map(<[Code]>::to_vec), twin.get(&subject).map(|set| set.iter().copied().collect()));
                let next = subject.wrapping_add(1);
                prop_assert_eq!(candidates.of(next).is_some(), twin.contains_key(&next));
            }
        }
    }
}
