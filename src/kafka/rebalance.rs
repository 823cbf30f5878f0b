//! The callbacks of the group's consumer. A rebalance starts here: fence, drain, acknowledge; then learn the commits and assign.
//!
//! librdkafka calls them from within `poll`, on the poller's thread, so the poller never runs at the same time.
//!
//! Where the group is in another cluster than the records ([`two clusters`](super)), it shares the progress topics out, and a second
//! consumer, which is in no group, reads the same partitions of the input ([`reader`]).
//!
//! Where partitions come and go one by one ([`Rebalance::is_incremental`]), those that stay are not touched. A partition that goes is
//! only noted here ([`GroupContext::take_leaving`]): the poller sends a mark through the pipeline, behind all of the partition's records,
//! and acknowledges when the mark has come out at the sink ([`give_back`](super::source)). Everything that was read before the mark is
//! then published or dropped. If an assignment is lost as a whole, it is fenced at once.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::client::OAuthToken;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset as KafkaOffset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientContext, Statistics};

use super::client::login::{self, Login};
use super::client::{Cluster, KafkaSourceConfig, Rebalance};
use super::connection::{ASK, Voice, log, patiently};
use super::progress::found::{AssignmentFault, FoundPartition, OnBroker};
use super::session::Session;
use crate::failpoint::step;

/// The group's consumer.
pub type GroupConsumer = BaseConsumer<GroupContext>;

/// The consumer that reads the records: the group's own, or where the group is in another cluster, one of the input's.
pub fn reader(group: &GroupConsumer) -> &GroupConsumer {
    group.context().reader.as_deref().unwrap_or(group)
}

/// The callbacks of the group's consumer, and of the one beside it that reads the records.
pub struct GroupContext {
    session: Arc<Session>,
    rebalance: Rebalance,
    /// The consumer of the records, if it is another one.
    reader: Option<Arc<GroupConsumer>>,
    voice: Voice,
    /// True while the poller gives partitions back by itself.
    gives_back: AtomicBool,
    /// What the poller has to give back, and since when.
    leaving: Mutex<Option<(TopicPartitionList, Instant)>>,
    login: Option<Arc<Login>>,
    /// The time in which a second instance with the same transactional id is noticed in the group, if the name of this member tells.
    pub notices: Option<Duration>,
}

impl GroupContext {
    /// The callbacks for a session's consumer of `cluster`. The group's gets the `reader` of the records, if that is another one.
    pub fn new(
        session: Arc<Session>,
        config: &KafkaSourceConfig,
        cluster: &Cluster,
        reader: Option<Arc<GroupConsumer>>,
    ) -> Self {
        let (gives_back, leaving) = Default::default();
        let voice = Voice::new(&session.complaints, "kafka consumer", cluster);
        let (login, rebalance, notices) = (cluster.login.clone(), config.rebalance, config.notices());
        Self { session, rebalance, reader, voice, notices, gives_back, leaving, login }
    }

    /// Reports the errors of the consumer.
    pub(super) fn voice(&self) -> &Voice {
        &self.voice
    }

    /// Tells whether the poller gives partitions back that are read together with others.
    pub(super) fn set_gives_back(&self, gives_back: bool) {
        self.gives_back.store(gives_back, Ordering::SeqCst);
    }

    /// The time since which partitions wait for the poller to give them back.
    pub(super) fn leaving_since(&self) -> Option<Instant> {
        self.leaving().as_ref().map(|(_, since)| *since)
    }

    /// The partitions that the poller has to give back, once.
    pub(super) fn take_leaving(&self) -> Option<(TopicPartitionList, Instant)> {
        self.leaving().take()
    }

    fn leaving(&self) -> MutexGuard<'_, Option<(TopicPartitionList, Instant)>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn revoked(&self, consumer: &BaseConsumer<Self>, partitions: &TopicPartitionList) {
        // Also those that are not read yet, because another instance carries out their plan.
        let stays = consumer.assignment().is_ok_and(|list| list.count() > partitions.count());
        if self.rebalance.is_incremental()
            && self.gives_back.load(Ordering::SeqCst)
            && !consumer.assignment_lost()
            && self.session.is_partial(&self.session.shared.numbers(partitions), stays)
        {
            *self.leaving() = Some((partitions.clone(), Instant::now()));
            return;
        }
        *self.leaving() = None;
        self.session.revoke();
        step("revoked");
        self.release(consumer, partitions);
    }

    /// Acknowledges that partitions are taken away.
    pub(super) fn release(&self, consumer: &BaseConsumer<Self>, partitions: &TopicPartitionList) {
        tracing::info!(partitions = partitions.count(), "partitions revoked");
        let read = self.session.topics.list(self.session.shared.numbers(partitions));
        // In librdkafka a pause outlives the assignment: a partition that comes back would stand still for ever.
        if let Err(error) = reader(consumer).resume(&read) {
            tracing::warn!(%error, "cannot resume what is given up");
        }
        let release = |consumer: &GroupConsumer, partitions: &TopicPartitionList| match self.rebalance.is_incremental()
        {
            true => consumer.incremental_unassign(partitions),
            false => consumer.unassign(),
        };
        let read = self.reader.as_ref().map_or(Ok(()), |reader| release(reader, &read));
        // The group is told last: then nobody reads them here any more.
        if let Err(error) = read.and_then(|()| release(consumer, partitions)) {
            tracing::warn!(%error, "cannot give partitions up");
        }
    }

    fn assigned(&self, consumer: &BaseConsumer<Self>, partitions: &TopicPartitionList) {
        let session = &self.session;
        if !self.rebalance.is_incremental() {
            session.revoke();
        }
        let mut found = commits(session, consumer, partitions);
        match &mut found {
            Ok(found) => {
                found.sort_by_key(|found| found.partition);
                self.start(consumer, &starts(session, found));
                tracing::info!(partitions = found.len(), "partitions assigned");
            }
            // The service ends; until then nothing is read.
            Err(_) => self.start(consumer, &TopicPartitionList::new()),
        }
        match self.rebalance.is_incremental() {
            true => session.added(found),
            false => session.assigned(found),
        }
    }

    fn start(&self, consumer: &BaseConsumer<Self>, starts: &TopicPartitionList) {
        let start = |consumer: &GroupConsumer, starts: &TopicPartitionList| match self.rebalance.is_incremental() {
            true => consumer.incremental_assign(starts),
            false => consumer.assign(starts),
        };
        let shared = self.reader.as_ref().map_or(Ok(()), |_| {
            // The group learns that they are taken. There is nothing to fetch in progress topics.
            let mut shared = self.session.shared.list(self.session.topics.numbers(starts));
            shared.set_all_offsets(KafkaOffset::End)?;
            start(consumer, &shared).and_then(|()| consumer.pause(&shared))
        });
        if let Err(error) = shared.and_then(|()| start(reader(consumer), starts)) {
            tracing::warn!(%error, "cannot take partitions up");
        }
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
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, _config: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        login::token(self.login.as_ref())
    }

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.voice.say(&error, reason);
    }

    /// Measures how far the readable end of each partition is ahead of the poller.
    fn stats(&self, statistics: Statistics) {
        if self.reader.is_some() {
            return;
        }
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
pub(super) fn commits(
    session: &Session,
    group: &GroupConsumer,
    partitions: &TopicPartitionList,
) -> Result<Vec<FoundPartition>, AssignmentFault> {
    if partitions.count() == 0 {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for element in patiently(|| group.committed_offsets(partitions.clone(), ASK))?.elements() {
        let Some(number) = session.shared.number(element.topic(), element.partition()) else { continue };
        let Some((topic, partition)) = session.topics.place(number) else { continue };
        let (oldest, end) = patiently(|| reader(group).fetch_watermarks(topic, partition, ASK))?;
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
