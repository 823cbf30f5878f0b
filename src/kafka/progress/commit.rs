//! Commits: an offset with the text of its metadata.
//!
//! Kafka keeps a string with every committed offset. Ours is short, plain ASCII and versioned, and a reader refuses it as a
//! whole if anything in it is unknown: `3;d=FINISHED_TO;p=PENDING;a=SINCE;l=LEVELS;j=JOURNAL;t=PLAN`. Levels are those of a node or of
//! cuts, or the bytes of a schedule. Offsets are relative to the
//! committed one; offsets of the journal are relative to each other. [`MAX_WAITING_BYTES`] bounds the held records, so that the
//! text of the next plan fits beside them.

use super::{packed, runs_text};
use crate::model::event::{Millis, Partition};
use crate::model::release::runs::Runs;

/// The bytes of metadata that a broker keeps with a commit by default (`offset.metadata.max.bytes`). Larger: brokers refuse
/// commits. Smaller: records are suppressed that could have been held.
pub const MAX_BYTES: usize = 4096;

/// The bytes that the metadata may take between two releases. Larger: the plan of the next release, which names held records
/// once more, does not fit beside them. Smaller: records are suppressed that could have been held.
pub const MAX_WAITING_BYTES: usize = 1600;

/// More levels than these are packed. Larger: cuts and schedules take more space. Smaller: nodes are harder to read.
const FEW_LEVELS: usize = 40;

/// The levels of a plan that are those of the last release.
const AS_LAST: &str = "=";

const VERSION: &str = "3";

/// The version before: the same text, but its plans order rows in another way and cannot be carried out again.
const VERSION_BEFORE: &str = "2";

/// A commit of one partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Commit {
    /// The smallest offset still needed.
    pub offset: i64,
    /// The content of its metadata.
    pub state: CommitState,
}

impl Commit {
    /// The text of its metadata.
    pub fn text(&self) -> String {
        self.state.to_text(self.offset)
    }
}

/// The content of a commit's metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct CommitState {
    /// Every offset below this is finished, except `pending`.
    pub finished_to: i64,
    /// Offsets from the committed one on, below `finished_to`, that are still needed.
    pub pending: Runs,
    /// No pending record has waited since before this time.
    pub since: Option<Millis>,
    /// The levels of the last release, so that `sticky`, `monotone` and `fixed` survive a restart.
    pub last: Option<Vec<u8>>,
    /// The offsets of the journal entries that name the records shown by the last releases of this partition, the newest last.
    pub journal: Vec<i64>,
    /// The release that is being published.
    pub plan: Option<PlanPart>,
}

/// One partition's part of a release plan.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PlanPart {
    /// Names the release; random.
    pub id: u64,
    /// The time at which the window closed.
    pub closed: Millis,
    /// The policy's fingerprint.
    pub fingerprint: String,
    /// Level per quasi-identifier.
    pub levels: Vec<u8>,
    /// The registry's id for the schema of the release's rows.
    pub schema: Option<u32>,
    /// The partition whose owner carries the plan out.
    pub home: Partition,
    /// The numbers of all partitions of the plan; only the home lists them.
    pub members: Runs,
    /// The records of this partition that were read into the release. Gaps of finished or empty offsets may be closed.
    pub fresh: Runs,
    /// The records of this partition that were held when the release was made.
    pub held: Runs,
    /// The records that were rejected because the registry did not know their schema, which it may know by now.
    pub refused: Runs,
    /// The offset of the journal entry that names the records shown by the release.
    pub journal: Option<i64>,
}

impl CommitState {
    /// The part of `offsets` that is still needed: pending, or at `finished_to` and above.
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
            text += &format!(";p={}", runs_text::write(&self.pending, committed));
        }
        if let Some(since) = &self.since {
            text += &format!(";a={}", since.0);
        }
        if let Some(levels) = &self.last {
            text += &format!(";l={}", write_levels(levels));
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
                if self.last.as_ref() == Some(&plan.levels) { AS_LAST.into() } else { write_levels(&plan.levels) },
                plan.schema.map(|id| id.to_string()).unwrap_or_default(),
                plan.home.0,
                runs_text::write(&plan.members, 0),
                runs_text::write(&plan.fresh, committed),
                runs_text::write(&plan.held, committed),
                runs_text::write(&plan.refused, committed),
            );
            if let Some(entry) = plan.journal {
                text += &format!(",{entry}");
            }
        }
        text
    }

    /// The content that [`CommitState::to_text`] wrote. Empty metadata comes from a tool that sets offsets, and adds nothing.
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
                "p" => state.pending = runs_text::parse(value, committed)?,
                "a" => state.since = Some(Millis(value.parse().ok()?)),
                "l" => state.last = Some(read_levels(value)?),
                "j" => state.journal = offsets(value)?,
                "t" if version == VERSION => state.plan = Some(PlanPart::parse(value, committed, state.last.as_ref())?),
                _ => return None,
            }
        }
        Some(state)
    }
}

impl PlanPart {
    fn parse(text: &str, committed: i64, last: Option<&Vec<u8>>) -> Option<Self> {
        let mut fields: Vec<&str> = text.split(',').collect();
        let journal = if fields.len() == 11 { Some(fields.pop()?.parse().ok()?) } else { None };
        let [id, closed, fingerprint, levels, schema, home, members, fresh, held, refused] = fields[..] else {
            return None;
        };
        Some(Self {
            id: u64::from_str_radix(id, 16).ok()?,
            closed: Millis(closed.parse().ok()?),
            fingerprint: fingerprint.to_owned(),
            levels: if levels == AS_LAST { last?.clone() } else { read_levels(levels)? },
            schema: if schema.is_empty() { None } else { Some(schema.parse().ok()?) },
            home: Partition(home.parse().ok()?),
            members: runs_text::parse(members, 0)?,
            fresh: runs_text::parse(fresh, committed)?,
            held: runs_text::parse(held, committed)?,
            refused: runs_text::parse(refused, committed)?,
            journal,
        })
    }
}

/// Levels: numbers with dots between them, or packed where there are many, as of cuts or a schedule: `~PACKED`.
fn write_levels(levels: &[u8]) -> String {
    if levels.len() <= FEW_LEVELS {
        return levels.iter().map(u8::to_string).collect::<Vec<_>>().join(".");
    }
    let levels: Vec<u32> = levels.iter().copied().map(u32::from).collect();
    format!("~{}", packed::write(&levels))
}

fn read_levels(text: &str) -> Option<Vec<u8>> {
    let Some(packed) = text.strip_prefix('~') else {
        return text.split('.').map(|level| level.parse().ok()).collect();
    };
    packed::parse(packed)?.into_iter().map(|level| u8::try_from(level).ok()).collect()
}

/// Offsets from the steps between them; each step is positive.
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
impl PlanPart {
    /// A plan of fresh records, for tests.
    pub(super) fn of_fresh(id: u64, home: Partition, members: &[i64], fresh: &[i64]) -> Self {
        Self {
            id,
            closed: Millis(0),
            fingerprint: String::new(),
            levels: vec![0],
            schema: None,
            home,
            members: members.iter().copied().collect(),
            fresh: fresh.iter().copied().collect(),
            held: Runs::default(),
            refused: Runs::default(),
            journal: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn runs(bits: &[bool], origin: i64) -> Runs {
        (origin..).zip(bits).filter(|(_, bit)| **bit).map(|(offset, _)| offset).collect()
    }

    proptest! {
        #[test]
        fn comes_back_as_it_was(
            committed in 0i64..1 << 40,
            pending in prop::collection::vec(any::<bool>(), 0..50),
            fresh in prop::collection::vec(any::<bool>(), 0..50),
            levels in prop_oneof![prop::collection::vec(any::<u8>(), 1..9), prop::collection::vec(0u8..8, 1..400)],
            moved in any::<bool>(),
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
                last: planned.then(|| if moved { vec![1, 2] } else { levels }),
                journal: runs(&fresh, committed).iter().map(|run| run.first.0).collect(),
                plan: planned.then_some(plan),
            };
            prop_assert_eq!(CommitState::parse(&state.to_text(committed), committed), Some(state));
        }

        #[test]
        fn odd_text_is_refused_and_never_panics(text in "([23];)?(l=~[0-9].[0-9]{1,3}.)?[0-9a-zA-Z.,;=~-]{0,60}", committed in any::<i64>()) {
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
