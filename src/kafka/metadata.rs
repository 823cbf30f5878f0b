//! The text of a commit's metadata: short, plain ASCII, versioned, and refused as a whole if anything in it is odd.
//!
//! `3;d=FINISHED_TO;p=PENDING;a=SINCE;l=LEVELS;j=JOURNAL;t=PLAN`. Offsets are relative to the committed one; those of the
//! journal to each other. How much may wait is bounded so that it always fits: see [`MAX_WAITING_BYTES`].

use super::runs::Runs;
use crate::model::event::{Millis, Partition};

/// What a broker keeps of a commit by default (`offset.metadata.max.bytes`).
pub const MAX_BYTES: usize = 4096;

/// What the metadata may take between two releases. More: the plan of the next release, which names waiting records once
/// more, would not fit beside it. Less: records are suppressed that could still have waited.
pub const MAX_WAITING_BYTES: usize = 1600;

const VERSION: &str = "3";

/// Its plans ordered rows in another way, so that they cannot be carried out again; everything else is as it is now.
const VERSION_BEFORE: &str = "2";

/// What a commit says beside its offset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommitState {
    /// Every offset below this is finished, except `pending`.
    pub finished_to: i64,
    /// Offsets from the committed one on, below `finished_to`, that are still needed.
    pub pending: Runs,
    /// None of them has waited since before this.
    pub since: Option<Millis>,
    /// The levels of the last release, so that `sticky`, `monotone` and `fixed` survive a restart.
    pub last: Option<Vec<u8>>,
    /// Where the journal says what the last releases show of this partition, the newest last.
    pub journal: Vec<i64>,
    /// The release that is being published.
    pub plan: Option<PlanPart>,
}

/// One partition's part of a release plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanPart {
    /// Names the release; random.
    pub id: u64,
    /// When the window closed.
    pub closed: Millis,
    /// The policy's fingerprint.
    pub fingerprint: String,
    /// Level per quasi-identifier.
    pub levels: Vec<u8>,
    /// The schema of the release's rows, as the registry numbers it.
    pub schema: Option<u32>,
    /// The partition whose owner carries the plan out.
    pub home: Partition,
    /// All partitions of the plan; only the home lists them.
    pub members: Runs,
    /// The records of this partition that were read into the release. Spans offsets that are finished or hold no record.
    pub fresh: Runs,
    /// The records of this partition that were held when it was made.
    pub held: Runs,
    /// Those that were rejected because nobody knew their schema: by now somebody may.
    pub refused: Runs,
    /// Where the journal says what the release shows.
    pub journal: Option<i64>,
}

impl CommitState {
    /// What is still to be done of some offsets: those that are pending, or at `finished_to` and above.
    pub fn needed(&self, offsets: &Runs) -> Runs {
        let mut needed = self.pending.clone();
        needed.remove(self.finished_to, i64::MAX);
        needed.insert(self.finished_to, i64::MAX);
        needed.intersection(offsets)
    }

    /// The metadata of a commit at `committed`.
    pub fn to_text(&self, committed: i64) -> String {
        let mut text = format!("{VERSION};d={}", self.finished_to);
        if !self.pending.is_empty() {
            text += &format!(";p={}", self.pending.to_text(committed));
        }
        if let Some(since) = &self.since {
            text += &format!(";a={}", since.0);
        }
        if let Some(levels) = &self.last {
            text += &format!(";l={}", join(levels));
        }
        if !self.journal.is_empty() {
            let earlier = std::iter::once(&0).chain(&self.journal);
            let steps: Vec<String> =
                self.journal.iter().zip(earlier).map(|(at, last)| (at - last).to_string()).collect();
            text += &format!(";j={}", steps.join("."));
        }
        if let Some(plan) = &self.plan {
            text += &format!(
                ";t={:x},{},{},{},{},{},{},{},{},{}",
                plan.id,
                plan.closed.0,
                plan.fingerprint,
                join(&plan.levels),
                plan.schema.map(|id| id.to_string()).unwrap_or_default(),
                plan.home.0,
                plan.members.to_text(0),
                plan.fresh.to_text(committed),
                plan.held.to_text(committed),
                plan.refused.to_text(committed),
            );
            if let Some(entry) = plan.journal {
                text += &format!(",{entry}");
            }
        }
        text
    }

    /// What [`CommitState::to_text`] wrote; empty metadata is a commit of somebody else's, with nothing to add.
    pub fn parse(text: &str, committed: i64) -> Option<Self> {
        let mut state = Self { finished_to: committed, ..Self::default() };
        if text.is_empty() {
            return Some(state);
        }
        let mut parts = text.split(';');
        let version = parts.next().filter(|version| [VERSION, VERSION_BEFORE].contains(version))?;
        for part in parts {
            let (key, value) = part.split_once('=')?;
            match key {
                "d" => state.finished_to = value.parse().ok()?,
                "p" => state.pending = Runs::parse(value, committed)?,
                "a" => state.since = Some(Millis(value.parse().ok()?)),
                "l" => state.last = Some(split(value)?),
                "j" => state.journal = offsets(value)?,
                "t" if version == VERSION => state.plan = Some(PlanPart::parse(value, committed)?),
                _ => return None,
            }
        }
        Some(state)
    }
}

impl PlanPart {
    fn parse(text: &str, committed: i64) -> Option<Self> {
        let mut fields: Vec<&str> = text.split(',').collect();
        let journal = if fields.len() == 11 { Some(fields.pop()?.parse().ok()?) } else { None };
        let [id, closed, fingerprint, levels, schema, home, members, fresh, held, refused] = fields[..] else {
            return None;
        };
        Some(Self {
            id: u64::from_str_radix(id, 16).ok()?,
            closed: Millis(closed.parse().ok()?),
            fingerprint: fingerprint.to_owned(),
            levels: split(levels)?,
            schema: if schema.is_empty() { None } else { Some(schema.parse().ok()?) },
            home: Partition(home.parse().ok()?),
            members: Runs::parse(members, 0)?,
            fresh: Runs::parse(fresh, committed)?,
            held: Runs::parse(held, committed)?,
            refused: Runs::parse(refused, committed)?,
            journal,
        })
    }
}

fn join(levels: &[u8]) -> String {
    levels.iter().map(u8::to_string).collect::<Vec<_>>().join(".")
}

fn split(text: &str) -> Option<Vec<u8>> {
    text.split('.').map(|level| level.parse().ok()).collect()
}

/// Offsets by their steps, each of which is positive.
fn offsets(text: &str) -> Option<Vec<i64>> {
    let mut offsets: Vec<i64> = Vec::new();
    for step in text.split('.') {
        let step: i64 = step.parse().ok()?;
        let next = offsets.last().copied().unwrap_or(0).checked_add(step)?;
        if step < 0 || offsets.last().is_some_and(|last| next <= *last) {
            return None;
        }
        offsets.push(next);
    }
    Some(offsets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn runs(bits: &[bool], origin: i64) -> Runs {
        let mut runs = Runs::default();
        for (i, _) in bits.iter().enumerate().filter(|(_, b)| **b) {
            runs.insert(origin + i as i64, origin + i as i64);
        }
        runs
    }

    proptest! {
        #[test]
        fn comes_back_as_it_was(
            committed in 0i64..1 << 40,
            pending in prop::collection::vec(any::<bool>(), 0..50),
            fresh in prop::collection::vec(any::<bool>(), 0..50),
            levels in prop::collection::vec(any::<u8>(), 1..9),
            id in any::<u64>(),
            planned in any::<bool>(),
        ) {
            let plan = PlanPart {
                id,
                closed: Millis(committed - 7),
                fingerprint: "00ff".into(),
                levels: levels.clone(),
                schema: planned.then_some(7),
                home: Partition(3),
                members: runs(&pending, 0),
                fresh: runs(&fresh, committed),
                held: runs(&pending, committed),
                refused: runs(&fresh, committed),
                journal: planned.then_some(committed),
            };
            let state = CommitState {
                finished_to: committed + 60,
                pending: runs(&pending, committed),
                since: planned.then_some(Millis(committed)),
                last: planned.then_some(levels),
                journal: runs(&fresh, committed).iter().map(|(first, _)| first).collect(),
                plan: planned.then_some(plan),
            };
            prop_assert_eq!(CommitState::parse(&state.to_text(committed), committed), Some(state));
        }

        #[test]
        fn odd_text_is_refused_and_never_panics(text in "(2;)?[0-9a-z.,;=-]{0,60}", committed in any::<i64>()) {
            let _ = CommitState::parse(&text, committed);
        }
    }

    #[test]
    fn a_foreign_commit_has_nothing_to_add() {
        assert_eq!(CommitState::parse("", 9), Some(CommitState { finished_to: 9, ..CommitState::default() }));
        assert_eq!(CommitState::parse("1;d=9", 9), None);
        assert_eq!(CommitState::parse("somebody's note", 9), None);
    }
}
