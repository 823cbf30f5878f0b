//! The callbacks of the group's consumer. A rebalance starts here: fence, drain, acknowledge; then learn the commits and assign.
//!
//! librdkafka calls them from within `poll`, on the poller's thread, so the poller never runs at the same time.

use std::sync::Arc;
use std::time::Instant;

use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset as KafkaOffset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, Statistics};

use super::connection::{ASK, Complaints, log, patiently};
use super::progress::found::{AssignmentFault, FoundPartition, OnBroker};
use super::session::Session;
use crate::failpoint::step;

/// The group's consumer.
pub type GroupConsumer = BaseConsumer<GroupContext>;

/// The consumer's callbacks.
pub struct GroupContext {
    session: Arc<Session>,
    /// The connection errors of late.
    pub complaints: Complaints,
}

impl GroupContext {
    /// The callbacks for a session's consumer.
    pub fn new(session: Arc<Session>) -> Self {
        Self { session, complaints: Complaints::default() }
    }

    fn revoked(&self, consumer: &BaseConsumer<Self>, partitions: &TopicPartitionList) {
        self.session.revoke();
        step("revoked");
        tracing::info!(partitions = partitions.count(), "partitions revoked");
        // In librdkafka a pause outlives the assignment: a partition that comes back would stand still for ever.
        if let Err(error) = consumer.resume(partitions) {
            tracing::warn!(%error, "cannot resume what is given up");
        }
        unassign(consumer);
    }

    fn assigned(&self, consumer: &BaseConsumer<Self>, partitions: &TopicPartitionList) {
        let session = &self.session;
        session.revoke();
        let mut found = commits(session, consumer, partitions);
        match &mut found {
            Ok(found) => {
                found.sort_by_key(|found| found.partition);
                if let Err(error) = consumer.assign(&starts(session, found)) {
                    tracing::warn!(%error, "cannot take partitions up");
                }
                tracing::info!(partitions = found.len(), "partitions assigned");
            }
            Err(_) => unassign(consumer),
        }
        session.assigned(found);
    }
}

impl ConsumerContext for GroupContext {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, event: RDKafkaRespErr, tpl: &mut TopicPartitionList) {
        if event == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            self.assigned(consumer, tpl);
        } else {
            self.revoked(consumer, tpl);
        }
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

    /// Measures how far the readable end of each partition is ahead of the poller.
    fn stats(&self, statistics: Statistics) {
        let partitions =
            statistics.topics.iter().flat_map(|(name, topic)| topic.partitions.values().map(move |p| (name, p)));
        let behind = self.session.progress(|progress| {
            let behind = partitions.filter_map(|(topic, partition)| {
                let read = progress.read_to(self.session.topics.number(topic, partition.partition)?)?;
                u64::try_from(partition.ls_offset.max(0) - read).ok()
            });
            behind.sum()
        });
        self.session.meter.set_lag(behind.unwrap_or(0));
    }
}

/// The group's commits of some partitions as the broker has them, judged.
pub(super) fn commits<C: ConsumerContext>(
    session: &Session,
    consumer: &BaseConsumer<C>,
    partitions: &TopicPartitionList,
) -> Result<Vec<FoundPartition>, AssignmentFault> {
    if partitions.count() == 0 {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for element in patiently(|| consumer.committed_offsets(partitions.clone(), ASK))?.elements() {
        let (topic, partition) = (element.topic(), element.partition());
        let Some(number) = session.topics.number(topic, partition) else { continue };
        let (oldest, end) = patiently(|| consumer.fetch_watermarks(topic, partition, ASK))?;
        let commit = match element.offset() {
            KafkaOffset::Offset(offset) => Some((offset, element.metadata())),
            _ => None,
        };
        let on_broker = OnBroker { number, topic, partition, commit, oldest, end };
        found.push(on_broker.judge(session.start, session.on_gap, session.committed_before(number))?);
        if let Some((committed, _)) = commit.filter(|_| on_broker.deleted() > 0) {
            tracing::warn!(topic, partition, committed, oldest, "records were deleted before they were read");
        }
    }
    Ok(found)
}

/// The list to assign: each partition from its committed offset on.
fn starts(session: &Session, found: &[FoundPartition]) -> TopicPartitionList {
    let mut starts = TopicPartitionList::new();
    for found in found {
        if let Some((topic, partition)) = session.topics.place(found.partition) {
            let _ = starts.add_partition_offset(topic, partition, KafkaOffset::Offset(found.committed));
        }
    }
    starts
}

fn unassign(consumer: &BaseConsumer<GroupContext>) {
    if let Err(error) = consumer.unassign() {
        tracing::warn!(%error, "cannot give partitions up");
    }
}
