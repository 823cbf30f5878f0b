//! What source and sink share while they run: the assignment, its epoch, the progress, and the right to publish.
//!
//! Invariant: whoever publishes holds `publishing` and has checked the epoch under it. A revocation first raises the epoch
//! (the fence), then waits for `publishing`, so that when it is acknowledged nothing of the old assignment is under way.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset as KafkaOffset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, Statistics};

use super::Topics;
use super::client::{OnGap, Start};
use super::complaints::Complaints;
use super::metadata::CommitState;
use super::progress::Progress;
use crate::failpoint::step;
use crate::model::event::Partition;
use crate::model::meter::Meter;
use crate::model::release::plan::{Ledger, ReleasePlan, Room};
use crate::model::release::spans::Spans;

/// How long one question to a broker may take.
pub const ASK: Duration = Duration::from_secs(10);
/// How long an assignment keeps asking before it gives up; well below the default `max.poll.interval.ms` of 5 minutes.
const ASSIGN_PATIENCE: Duration = Duration::from_secs(90);

/// The group's consumer.
pub type GroupConsumer = BaseConsumer<GroupContext>;

/// What keeps an assignment from being taken up. Names topics and offsets only.
#[derive(Debug, Clone, thiserror::Error)]
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
        /// The first that is missing.
        committed: i64,
        /// The oldest that is there.
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
    /// The committed offset is no more.
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
    /// The commit's metadata is not ours.
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

/// One partition as it was found.
#[derive(Debug, Clone)]
pub struct Found {
    /// The partition.
    pub partition: Partition,
    /// The committed offset, or where to start.
    pub committed: i64,
    /// What the commit says.
    pub state: CommitState,
}

impl Found {
    /// True if the commit speaks of the plan with this id.
    pub fn is_planned(&self, id: u64) -> bool {
        self.state.plan.as_ref().is_some_and(|plan| plan.id == id)
    }
}

/// Shared by the consumer's callbacks, the polling thread and the sink.
pub struct Session {
    /// How partitions are numbered.
    pub topics: Topics,
    start: Start,
    /// What to do about records that retention has deleted.
    pub on_gap: OnGap,
    epoch: AtomicU64,
    publishing: Mutex<()>,
    progress: Mutex<Progress>,
    /// What this process has committed in earlier assignments.
    committed: Mutex<BTreeMap<Partition, i64>>,
    assigned: Mutex<Option<Result<Vec<Found>, AssignmentFault>>>,
    finished: AtomicBool,
    /// The poller shall leave the group and join it anew.
    rejoin: AtomicBool,
    lost: AtomicU64,
    /// What the metrics show of it.
    pub meter: Arc<Meter>,
}

impl Session {
    /// Nothing assigned yet.
    pub fn new(topics: Topics, start: Start, on_gap: OnGap, meter: Arc<Meter>) -> Self {
        Self {
            meter,
            topics,
            start,
            on_gap,
            epoch: AtomicU64::new(0),
            publishing: Mutex::default(),
            progress: Mutex::default(),
            committed: Mutex::default(),
            assigned: Mutex::default(),
            finished: AtomicBool::new(false),
            rejoin: AtomicBool::new(false),
            lost: AtomicU64::new(0),
        }
    }

    /// The current assignment's number.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// The right to publish; held for a whole release.
    pub fn publishing(&self) -> MutexGuard<'_, ()> {
        self.publishing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far each partition is done.
    pub fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new assignment, once.
    pub fn take_assigned(&self) -> Option<Result<Vec<Found>, AssignmentFault>> {
        self.assigned.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// A commit may still be under way, and nobody knows for how long: this membership publishes nothing more, and is given up
    /// for a new one, so that the coordinator refuses what comes late. Called by whoever holds `publishing`.
    pub fn give_up(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.rejoin.store(true, Ordering::SeqCst);
    }

    /// True once after the membership was given up, unless a rebalance has ended it meanwhile.
    pub fn take_rejoin(&self) -> bool {
        self.rejoin.swap(false, Ordering::SeqCst)
    }

    /// Nothing more will be published: the consumer may leave the group.
    pub fn finish(&self) {
        self.finished.store(true, Ordering::SeqCst);
    }

    /// True once nothing more will be published.
    pub fn is_finished(&self) -> bool {
        self.finished.load(Ordering::SeqCst)
    }

    /// Records that retention deleted before they were read, where the user allowed to go on.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::SeqCst)
    }

    /// Raises the fence and waits until nothing of the old assignment is being published.
    fn fence(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        let _idle = self.publishing();
        // A rebalance ends the membership's generation as well.
        self.rejoin.store(false, Ordering::SeqCst);
        let mut progress = self.progress();
        self.committed().extend(progress.committed());
        progress.clear();
    }

    fn committed(&self) -> MutexGuard<'_, BTreeMap<Partition, i64>> {
        self.committed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits of the partitions in `tpl` as they are on the broker, with where to start for the others.
    pub fn found<C: ConsumerContext>(
        &self,
        consumer: &BaseConsumer<C>,
        tpl: &TopicPartitionList,
    ) -> Result<Vec<Found>, AssignmentFault> {
        if tpl.count() == 0 {
            return Ok(Vec::new());
        }
        let committed = patiently(|| consumer.committed_offsets(tpl.clone(), ASK))?;
        committed
            .elements()
            .iter()
            .filter_map(|element| {
                let number = self.topics.number(element.topic(), element.partition())?;
                Some(self.find(
                    consumer,
                    number,
                    element.topic(),
                    element.partition(),
                    element.offset(),
                    element.metadata(),
                ))
            })
            .collect()
    }

    fn find<C: ConsumerContext>(
        &self,
        consumer: &BaseConsumer<C>,
        number: Partition,
        topic: &str,
        partition: i32,
        offset: KafkaOffset,
        metadata: &str,
    ) -> Result<Found, AssignmentFault> {
        let (oldest, end) = patiently(|| consumer.fetch_watermarks(topic, partition, ASK))?;
        let topic = topic.to_owned();
        let fresh = |committed: i64| Found {
            partition: number,
            committed,
            state: CommitState { finished_to: committed, ..CommitState::default() },
        };
        let KafkaOffset::Offset(committed) = offset else {
            // Brokers drop the offsets of a deleted topic. Where there is another one of its name now, reading on at its start
            // is for a person to decide.
            if let Some(&committed) = self.committed().get(&number) {
                return Err(AssignmentFault::Forgotten { topic, partition, committed });
            }
            return Ok(fresh(if self.start == Start::Earliest { oldest } else { end }));
        };
        if committed > end {
            return Err(AssignmentFault::Recreated { topic, partition, committed, end });
        }
        let state = CommitState::parse(metadata, committed)
            .ok_or_else(|| AssignmentFault::ForeignMetadata { topic: topic.clone(), partition })?;
        if committed < oldest {
            if self.on_gap == OnGap::Stop {
                return Err(AssignmentFault::Gap { topic, partition, committed, oldest });
            }
            self.lost.fetch_add((oldest - committed) as u64, Ordering::SeqCst);
            tracing::warn!(topic, partition, committed, oldest, "records were deleted before they were read");
            let mut found = fresh(oldest.max(state.finished_to));
            (found.state.last, found.state.journal) = (state.last, state.journal);
            return Ok(found);
        }
        Ok(Found { partition: number, committed, state })
    }
}

impl Ledger for Session {
    fn room(&self, earlier: &[Spans], plan: Option<&ReleasePlan>, finished: &Spans) -> Room {
        self.progress().room(earlier, plan, finished)
    }
}

/// Asks again while the cluster does not answer.
pub fn patiently<T>(ask: impl Fn() -> Result<T, KafkaError>) -> Result<T, AssignmentFault> {
    let started = Instant::now();
    loop {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(error) if started.elapsed() > ASSIGN_PATIENCE => {
                return Err(AssignmentFault::Unavailable(error.to_string()));
            }
            Err(error) => {
                tracing::warn!(%error, "the cluster does not answer, asking again");
                std::thread::sleep(Duration::from_millis(500));
            }
        }
    }
}

/// The consumer's callbacks.
pub struct GroupContext {
    session: Arc<Session>,
    /// What it was told of connections lately.
    pub complaints: Complaints,
}

impl GroupContext {
    /// Of a session's consumer.
    pub fn new(session: Arc<Session>) -> Self {
        Self { session, complaints: Complaints::default() }
    }
}

impl ClientContext for GroupContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }
    fn error(&self, error: KafkaError, _reason: &str) {
        if self.complaints.is_news(&error, Instant::now()) {
            tracing::warn!(%error, "kafka consumer");
        }
    }
    /// How far the readable end of each partition is ahead of what was read.
    fn stats(&self, statistics: Statistics) {
        let progress = self.session.progress();
        let partitions =
            statistics.topics.iter().flat_map(|(name, topic)| topic.partitions.values().map(move |p| (name, p)));
        let behind = partitions.filter_map(|(topic, partition)| {
            let read = progress.read_to(self.session.topics.number(topic, partition.partition)?)?;
            u64::try_from(partition.ls_offset.max(0) - read).ok()
        });
        self.session.meter.set_lag(behind.sum());
    }
}

/// librdkafka's own log lines. They speak of brokers, topics and offsets, never of a record.
pub fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical | RDKafkaLogLevel::Error => {
            tracing::warn!(facility, message, "librdkafka");
        }
        _ => tracing::debug!(facility, message, "librdkafka"),
    }
}

impl ConsumerContext for GroupContext {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, event: RDKafkaRespErr, tpl: &mut TopicPartitionList) {
        let session = &self.session;
        if event != RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            session.fence();
            step("revoked");
            tracing::info!(partitions = tpl.count(), "partitions revoked");
            // In librdkafka a pause outlives the assignment: a partition that comes back would stand still for ever.
            if let Err(error) = consumer.resume(tpl) {
                tracing::warn!(%error, "cannot resume what is given up");
            }
            if let Err(error) = consumer.unassign() {
                tracing::warn!(%error, "cannot give partitions up");
            }
            return;
        }
        session.fence();
        let mut found = session.found(consumer, tpl);
        if let Ok(found) = &found {
            let mut starts = TopicPartitionList::new();
            for found in found {
                if let Some((topic, partition)) = session.topics.place(found.partition) {
                    let _ = starts.add_partition_offset(topic, partition, KafkaOffset::Offset(found.committed));
                }
            }
            if let Err(error) = consumer.assign(&starts) {
                tracing::warn!(%error, "cannot take partitions up");
            }
        } else if let Err(error) = consumer.unassign() {
            tracing::warn!(%error, "cannot give partitions up");
        }
        if let Ok(found) = &mut found {
            found.sort_by_key(|f| f.partition);
            tracing::info!(partitions = found.len(), "partitions assigned");
        }
        *session.assigned.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_gives_up_publishes_nothing_more_and_joins_anew_once() {
        let session = Session::new(Topics::new(["t".into()]), Start::Earliest, OnGap::Stop, Arc::default());
        let epoch = session.epoch();
        assert!(!session.take_rejoin());
        session.give_up();
        assert_ne!(session.epoch(), epoch, "releases of the old membership are stale at once");
        assert!(session.take_rejoin() && !session.take_rejoin());
        session.give_up();
        session.fence();
        assert!(!session.take_rejoin(), "a rebalance has ended the old membership already");
    }
}
