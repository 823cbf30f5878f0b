//! Judges a commit that is found on the broker when its partition is taken over: read on from it, start fresh, or stop.
//!
//! A partition is never reset silently. Records that retention has deleted, a topic that was made anew and metadata of another
//! application are faults that a person decides about, unless the configuration already does.

use super::commit::CommitState;
use crate::kafka::client::{OnGap, Start};
use crate::model::event::Partition;

/// The reason why an assignment cannot be taken up. Names topics and offsets only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum AssignmentFault {
    /// The coordinator or a leader did not answer.
    #[error("cannot learn the committed offsets: {0}")]
    Unavailable(String),
    /// Retention has deleted records that were still needed.
    #[error(
        "{topic}:{partition}: records {committed} to {oldest} were deleted before they were read; \
         set `on_gap: continue` to go on without them"
    )]
    Gap {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The first missing offset.
        committed: i64,
        /// The oldest offset of the log.
        oldest: i64,
    },
    /// The committed offset lies behind the end of the log.
    #[error(
        "{topic}:{partition}: offset {committed} is committed but the log ends at {end}: was the topic recreated? \
             delete the group's offsets to start over"
    )]
    Recreated {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The committed offset.
        committed: i64,
        /// The end of the log.
        end: i64,
    },
    /// The group has no commit any more, although this process has committed one.
    #[error(
        "{topic}:{partition}: offset {committed} was committed, and the group has forgotten it: was the topic recreated? \
         start again to read it from its beginning"
    )]
    Forgotten {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// The committed offset.
        committed: i64,
    },
    /// Another application has written the commit's metadata.
    #[error(
        "{topic}:{partition}: the metadata of the committed offset is not ours: does another application use this group?"
    )]
    ForeignMetadata {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
    },
}

/// A partition that can be taken over.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FoundPartition {
    /// The partition.
    pub partition: Partition,
    /// The committed offset, or the offset to start at.
    pub committed: i64,
    /// The content of the commit's metadata.
    pub state: CommitState,
}

impl FoundPartition {
    /// True if the commit contains the plan with this id.
    pub fn is_planned(&self, id: u64) -> bool {
        self.state.plan.as_ref().is_some_and(|plan| plan.id == id)
    }

    fn starting_at(partition: Partition, offset: i64) -> Self {
        let state = CommitState { finished_to: offset, ..CommitState::default() };
        Self { partition, committed: offset, state }
    }
}

/// The facts that the broker tells about one partition.
#[derive(Debug, Clone, Copy)]
pub struct OnBroker<'a> {
    /// The number of the partition.
    pub number: Partition,
    /// Its topic.
    pub topic: &'a str,
    /// Its number in the topic.
    pub partition: i32,
    /// The group's commit: offset and metadata.
    pub commit: Option<(i64, &'a str)>,
    /// The oldest offset of the log.
    pub oldest: i64,
    /// The offset after the last one of the log.
    pub end: i64,
}

impl OnBroker<'_> {
    /// The number of needed records that retention has deleted.
    pub fn deleted(&self) -> i64 {
        self.commit.map_or(0, |(committed, _)| (self.oldest - committed).max(0))
    }

    /// Decides where to read on. `earlier` is the offset that this process has committed in an earlier assignment.
    pub fn judge(&self, start: Start, on_gap: OnGap, earlier: Option<i64>) -> Result<FoundPartition, AssignmentFault> {
        let (topic, partition) = (|| self.topic.to_owned(), self.partition);
        let Some((committed, metadata)) = self.commit else {
            // Brokers drop the offsets of a deleted topic. If another one has its name now, a person has to decide whether to
            // read it from its start.
            if let Some(committed) = earlier {
                return Err(AssignmentFault::Forgotten { topic: topic(), partition, committed });
            }
            let at = if start == Start::Earliest { self.oldest } else { self.end };
            return Ok(FoundPartition::starting_at(self.number, at));
        };
        if committed > self.end {
            return Err(AssignmentFault::Recreated { topic: topic(), partition, committed, end: self.end });
        }
        let state = CommitState::parse(metadata, committed)
            .ok_or_else(|| AssignmentFault::ForeignMetadata { topic: topic(), partition })?;
        if self.deleted() == 0 {
            return Ok(FoundPartition { partition: self.number, committed, state });
        }
        if on_gap == OnGap::Stop {
            return Err(AssignmentFault::Gap { topic: topic(), partition, committed, oldest: self.oldest });
        }
        let mut found = FoundPartition::starting_at(self.number, self.oldest.max(state.finished_to));
        (found.state.last, found.state.journal) = (state.last, state.journal);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: Partition = Partition(0);

    fn on_broker(commit: Option<(i64, &str)>) -> OnBroker<'_> {
        OnBroker { number: P, topic: "t", partition: 0, commit, oldest: 10, end: 50 }
    }

    #[test]
    fn without_a_commit_reading_starts_where_the_configuration_says() {
        let start = |start| on_broker(None).judge(start, OnGap::Stop, None).unwrap().committed;
        assert_eq!((start(Start::Earliest), start(Start::Latest)), (10, 50));
        let forgotten = on_broker(None).judge(Start::Earliest, OnGap::Continue, Some(30));
        assert!(matches!(forgotten, Err(AssignmentFault::Forgotten { committed: 30, .. })));
    }

    #[test]
    fn a_commit_is_read_on_from_unless_something_is_wrong_with_it() {
        let judge = |commit, on_gap| on_broker(Some(commit)).judge(Start::Earliest, on_gap, None);
        let found = judge((20, "3;d=25;l=1.2;j=7"), OnGap::Stop).unwrap();
        assert_eq!((found.committed, found.state.finished_to), (20, 25));
        assert!(matches!(judge((51, ""), OnGap::Continue), Err(AssignmentFault::Recreated { end: 50, .. })));
        assert!(matches!(judge((20, "note"), OnGap::Stop), Err(AssignmentFault::ForeignMetadata { .. })));
        assert_eq!(judge((50, ""), OnGap::Stop).unwrap().committed, 50);
    }

    #[test]
    fn deleted_records_stop_the_service_unless_it_is_told_to_go_on() {
        let (gap, text) = (on_broker(Some((4, "3;d=8;l=1.2;j=7"))), "on_gap");
        assert_eq!((gap.deleted(), on_broker(Some((10, ""))).deleted(), on_broker(None).deleted()), (6, 0, 0));
        let stopped = gap.judge(Start::Earliest, OnGap::Stop, None).unwrap_err();
        assert_eq!(
            stopped,
            AssignmentFault::Gap { topic: "t".into(), partition: 0, committed: 4, oldest: 10 },
            "the first and the last that are missing"
        );
        assert!(stopped.to_string().contains(text));
        let found = gap.judge(Start::Earliest, OnGap::Continue, None).unwrap();
        assert_eq!((found.committed, found.state.finished_to), (10, 10));
        assert_eq!((found.state.last, found.state.journal), (Some(vec![1, 2]), vec![7]), "later releases need them");
        let ahead = on_broker(Some((4, "3;d=15"))).judge(Start::Earliest, OnGap::Continue, None).unwrap();
        assert_eq!(ahead.committed, 15, "what is finished is not read again");
    }
}
