//! Starts on a new assignment, and later on partitions that had to wait for another instance.
//!
//! The decisions are in [`progress::take_over`](crate::kafka::progress::take_over); this file asks the broker and tells the
//! pipeline, in this order: the assignment, the records that earlier releases show, the planned releases.

use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer;
use rdkafka::topic_partition_list::{Offset as KafkaOffset, TopicPartitionList};

use super::poller::{Poller, Reading};
use crate::kafka::progress::Progress;
use crate::kafka::progress::found::{AssignmentFault, FoundPartition};
use crate::kafka::progress::take_over::{Foreign, TakeOver};
use crate::kafka::rebalance::{commits, reader};
use crate::model::event::Partition;
use crate::model::lattice::Node;
use crate::source::{NewAssignment, SourceError, SourceItem};

/// The time between two looks at a plan that another instance carries out. Larger: its partitions stand still for longer.
/// Smaller: the coordinator is asked more often.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// The time limit for going back to the first record that is still needed. Larger: a hang is noticed late. Smaller: a slow
/// broker ends the process.
const SEEK: Duration = Duration::from_secs(60);

impl Poller {
    /// Starts on a new assignment; false if the pipeline is gone.
    pub(super) fn take_up(&mut self, epoch: u64, found: Vec<FoundPartition>) -> Result<bool, SourceError> {
        let taken = TakeOver::of(found, |partition| self.commit_of(partition))?;
        self.reading = Reading::Assigned { epoch, foreign: taken.foreign.clone(), looked: Instant::now() };
        if self.session.consuming(epoch, |progress| taken.start(progress)).is_none() {
            return Ok(true);
        }
        let assigned = taken.assigned();
        self.session.meter.set_partitions(assigned.len() as u64, taken.foreign.len() as u64);
        let (partitions, last) = (Some(assigned.into_iter().collect()), taken.last.clone().map(Node::new));
        if !self.send(SourceItem::Assigned(NewAssignment { epoch, partitions, last }))? {
            return Ok(false);
        }
        self.carry_over(taken)
    }

    /// Starts on partitions beside those that are read; false if the pipeline is gone.
    pub(super) fn add(&mut self, found: Vec<FoundPartition>) -> Result<bool, SourceError> {
        let Reading::Assigned { epoch, .. } = self.reading else { return Ok(true) };
        let taken = TakeOver::of(found, |partition| self.commit_of(partition))?;
        if let Reading::Assigned { foreign, .. } = &mut self.reading {
            foreign.extend(taken.foreign.iter().cloned());
        }
        if self.session.consuming(epoch, |progress| taken.start(progress)).is_none() {
            return Ok(true);
        }
        let partitions = Some(taken.assigned().into_iter().collect());
        let last = taken.last.clone().map(Node::new);
        if !self.send(SourceItem::Added(NewAssignment { epoch, partitions, last }))? {
            return Ok(false);
        }
        let taken = self.carry_over(taken);
        self.pause(false);
        taken
    }

    /// Tells the pipeline what earlier releases show, and makes the planned ones; false if the pipeline is gone.
    fn carry_over(&mut self, taken: TakeOver) -> Result<bool, SourceError> {
        let foreign = taken.foreign.iter().map(|found| found.partition);
        reader(&self.consumer).pause(&self.session.topics.list(foreign))?;
        let journal: Vec<_> = taken.own.iter().map(|found| (found.partition, found.state.journal.clone())).collect();
        if !self.send_shown(&journal)? {
            return Ok(!self.is_closed());
        }
        for members in taken.replays {
            if !self.is_current() {
                return Ok(true);
            }
            self.pause(true);
            let replay = self.replay(&members);
            self.pause(false);
            let Some(replay) = replay? else { return Ok(true) };
            tracing::info!(records = replay.events.len(), "a release that was planned before is carried out");
            if !self.send(SourceItem::Replay(Box::new(replay)))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Starts to read partitions whose foreign plan is gone.
    pub(super) fn look_after_foreign(&mut self) -> Result<(), SourceError> {
        let Reading::Assigned { epoch, foreign, looked } = &mut self.reading else { return Ok(()) };
        if foreign.is_empty() || looked.elapsed() < LOOK_AGAIN {
            return Ok(());
        }
        *looked = Instant::now();
        let (epoch, waited) = (*epoch, std::mem::take(foreign));
        for was in waited {
            let home = match &was.state.plan {
                Some(plan) => self.commit_of(plan.home)?,
                None => None,
            };
            let now = self.commit_of(was.partition)?;
            match Foreign::judge(was, home.as_ref(), now) {
                Foreign::Waits(found) => {
                    if let Reading::Assigned { foreign, .. } = &mut self.reading {
                        foreign.push(found);
                    }
                }
                Foreign::Free(found) => {
                    if !self.start_on(epoch, &found)? {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Starts to read a partition that is free now; false if the pipeline or the assignment is gone.
    fn start_on(&mut self, epoch: u64, found: &FoundPartition) -> Result<bool, SourceError> {
        if !self.send_shown(&[(found.partition, found.state.journal.clone())])? {
            return Ok(false);
        }
        let assign = |progress: &mut Progress| progress.assign(found.partition, found.committed, &found.state);
        if self.session.consuming(epoch, assign).is_none() {
            return Ok(false);
        }
        // Polled before it was ours to read, and read again from its committed offset.
        self.batch.events.retain(|event| event.position.partition != found.partition);
        let mut at = TopicPartitionList::new();
        if let Some((topic, partition)) = self.session.topics.place(found.partition) {
            at.add_partition_offset(topic, partition, KafkaOffset::Offset(found.committed))?;
        }
        let reader = reader(&self.consumer);
        reader.seek_partitions(at, SEEK)?;
        reader.resume(&self.session.topics.list([found.partition]))?;
        Ok(true)
    }

    /// The commit of a partition as the broker has it.
    fn commit_of(&self, partition: Partition) -> Result<Option<FoundPartition>, AssignmentFault> {
        let known = || self.session.topics.place(partition).is_some();
        let found = known() || self.look_for_topics().is_ok() && known();
        if !found {
            // Nobody may take a plan for incomplete only because its topic is not known here.
            return Err(AssignmentFault::Unavailable("a plan names a topic that is not read here".into()));
        }
        Ok(commits(&self.session, &self.consumer, &self.session.shared.list([partition]))?.pop())
    }
}
