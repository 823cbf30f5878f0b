//! The plan of a release: enough to make the very same bytes again after a crash. It has to fit a [`CommitSpace`].

use super::row_levels::RowLevels;
use super::spans::Spans;
use crate::model::event::{Millis, Partition, Position};

/// The plan of a release: its records and how it is made.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ReleasePlan {
    /// Shuffles the rows, and names the release.
    pub id: u64,
    /// The recoding: a level per quasi-identifier, or the bytes of a schedule ([`Schedule::planned`](crate::model::schedule::Schedule::planned)).
    pub levels: Vec<u8>,
    /// When its window closed.
    pub closed: Option<Millis>,
    /// The policy's fingerprint.
    pub fingerprint: String,
    /// The schema of its rows, as the registry numbers it.
    pub schema: Option<u32>,
    /// The records that were read into it, rejected and suppressed ones included.
    pub fresh: Spans,
    /// The records that were held when it was made.
    pub held: Spans,
    /// Those of them that were rejected because nobody knew their schema; by the time of a replay somebody may.
    pub refused: Spans,
    /// The records that it shows, where levels and policy do not tell: what earlier releases showed decides too. Some may have
    /// been finished by an earlier snapshot.
    pub shown: Option<Spans>,
    /// The levels of each of them by position, where later releases or a replay must know them and no node tells.
    pub row_levels: Option<RowLevels>,
    /// Where releases are a changelog: how this one changes the reader's snapshot.
    pub changes: Option<PlannedChanges>,
    /// Where the journal says so.
    pub journal: Option<i64>,
}

/// How a release changes the reader's snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PlannedChanges {
    /// The number of the release whose snapshot is changed; `None` for a snapshot that replaces all before it.
    pub base: Option<u64>,
    /// Those of the shown records that leave.
    pub left: Spans,
    /// The rows of the snapshot that a reader has afterwards.
    pub rows: u64,
}

impl ReleasePlan {
    /// True if the record was read for it; others it shows again.
    pub fn is_read(&self, position: Position) -> bool {
        self.fresh.contains(position) || self.held.contains(position)
    }

    /// The partitions it has records of, ascending.
    pub fn partitions(&self) -> Vec<Partition> {
        let shown = self.shown.iter().flat_map(Spans::iter);
        let mut partitions: Vec<Partition> =
            self.fresh.iter().chain(self.held.iter()).chain(shown).map(|(p, _)| p).collect();
        partitions.sort_unstable();
        partitions.dedup();
        partitions
    }
}

/// The bounded space of a commit, where the plan of a release and the offsets of held records are written.
pub trait CommitSpace: Send + Sync {
    /// Tells whether the commits of a release fit: the one with its plan, unless it needs none, and the one after it, which
    /// marks `finished` as done. Releases that were made before it and may not be committed yet finish the `earlier` records.
    fn fit(&self, earlier: &[Spans], plan: Option<&ReleasePlan>, finished: &Spans) -> Fit;
}

/// The answer of a [`CommitSpace`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// All commits fit.
    Fits,
    /// Too many scattered records would be held after the release.
    TooManyHeld,
    /// The plan itself is too long.
    PlanTooLong,
}
