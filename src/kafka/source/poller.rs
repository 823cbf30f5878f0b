//! The polling thread: the only one that polls the group's consumer, and so the one that rebalances are answered on.
//!
//! Each turn polls a batch, then acts on the state of the assignment: take a new one up, tell the pipeline that one is gone, or
//! hand the batch on. Invariant: a batch holds events of one epoch; a rebalance inside `poll` empties it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::topic_partition_list::TopicPartitionList;
use tokio::sync::mpsc::{self, error::TrySendError};

use super::progress_topics::ProgressTopics;
use super::schemas::Schemas;
use crate::kafka::client::{self, KafkaSourceConfig, Member};
use crate::kafka::progress::found::FoundPartition;
use crate::kafka::progress::partition::Delivered;
use crate::kafka::rebalance::{GroupConsumer, reader};
use crate::kafka::session::Session;
use crate::model::event::{Event, Key, Millis, Offset, Partition, Position};
use crate::source::{BATCH, SourceError, SourceItem};

/// The wait of one poll. Larger: a stop or a waiting batch goes unnoticed for longer. Smaller: burns a core.
pub(super) const POLL: Duration = Duration::from_millis(50);
/// The time that a full pipeline is waited for before the partitions are paused. Larger: a rebalance is answered late. Smaller:
/// records that were fetched ahead are thrown away by the pause and fetched again.
const UNPAUSED: Duration = Duration::from_millis(500);
/// The time between leaving the group and joining it again. Larger: nothing is read meanwhile. Smaller: a heartbeat of the old
/// membership that is sent again comes after the join, and looks like a second instance with the same `group.instance.id`.
const REJOIN: Duration = Duration::from_millis(2 * client::RESEND.as_millis() as u64);
/// The time for giving the last partitions up. Larger: a stop takes longer when brokers do not answer. Smaller: the others wait for the
/// session timeout.
const LEAVE: Duration = Duration::from_secs(3);
/// The time in which brokers must list their topics. Larger: polling waits for longer. Smaller: busy brokers are asked twice.
const LOOK: Duration = Duration::from_secs(5);
/// The pause between two attempts to hand a batch to a full pipeline. Larger: the pipeline starves. Smaller: burns a core.
const FULL: Duration = Duration::from_millis(1);

/// A batch is full with this part of the bytes that are fetched ahead. Larger: large records go one by one. Smaller: the batches on their
/// way hold more memory.
const BATCH_PART: usize = 64;

/// The polling thread's state.
pub(super) struct Poller {
    pub(super) config: KafkaSourceConfig,
    /// The topic of the entries that name the records shown by earlier releases, where later ones must know.
    pub(super) journal: Option<String>,
    pub(super) session: Arc<Session>,
    pub(super) consumer: Arc<GroupConsumer>,
    sender: mpsc::Sender<Result<SourceItem, SourceError>>,
    /// Resolves the schemas of messages in the Confluent wire format.
    pub(super) schemas: Option<Schemas>,
    /// The progress topics, where the group is in another cluster than the records.
    pub(super) progress_topics: Option<ProgressTopics>,
    pub(super) batch: Polled,
    pub(super) reading: Reading,
    /// Partitions that go to another member while others are read on.
    pub(super) giving_back: Option<GivingBack>,
    group: Group,
    looked_for_topics: Instant,
    /// The bytes of payloads that fill a batch.
    batch_bytes: usize,
}

/// Events that were polled and not handed on yet.
#[derive(Default)]
pub(super) struct Polled {
    /// The epoch that they were polled in.
    epoch: u64,
    pub(super) events: Vec<Event>,
    /// Those of their payloads.
    bytes: usize,
}

/// The assignment as the pipeline knows it.
pub(super) enum Reading {
    /// It knows of none.
    Nothing,
    /// It reads the partitions of this epoch. Another instance carries out the plan of the `foreign` ones, as of the last look.
    Assigned { epoch: u64, foreign: Vec<FoundPartition>, looked: Instant },
    /// The assignment that it knows of is gone, and it has to be told.
    Gone,
}

/// Partitions that are being given back.
pub(super) struct GivingBack {
    /// As the group knows them.
    pub(super) list: TopicPartitionList,
    pub(super) partitions: BTreeSet<Partition>,
    /// Told by the sink when nothing of them is under way.
    pub(super) done: Receiver<()>,
    pub(super) epoch: u64,
    pub(super) since: Instant,
}

/// The relation to the group.
enum Group {
    Member,
    /// Not joined yet, or left on purpose; to be joined at this time.
    Left(Instant),
}

impl Poller {
    pub(super) fn new(
        config: KafkaSourceConfig,
        journal: Option<String>,
        session: Arc<Session>,
        consumer: Arc<GroupConsumer>,
        sender: mpsc::Sender<Result<SourceItem, SourceError>>,
        memory: usize,
    ) -> Self {
        let (batch, reading, group) = (Polled::default(), Reading::Nothing, Group::Left(Instant::now()));
        let (schemas, progress_topics, giving_back) = (None, None, None);
        let looked_for_topics = Instant::now();
        Self {
            config,
            journal,
            session,
            consumer,
            sender,
            schemas,
            progress_topics,
            batch,
            reading,
            giving_back,
            group,
            looked_for_topics,
            batch_bytes: memory / BATCH_PART,
        }
    }

    pub(super) fn resolving(self, schemas: Option<Schemas>) -> Self {
        Self { schemas, ..self }
    }

    pub(super) fn sharing(self, progress_topics: Option<ProgressTopics>) -> Self {
        Self { progress_topics, ..self }
    }

    /// Joins the group for the topics that are there; [`Poller::find_topics`] looks for more.
    fn join_group(&mut self) -> Result<(), SourceError> {
        self.look_for_topics()?;
        let names = self.session.shared.names();
        if names.is_empty() {
            tracing::warn!("no topic fits the patterns of `topics` yet");
            self.group = Group::Left(Instant::now() + self.config.looks_for_topics());
            return Ok(());
        }
        self.group = Group::Member;
        Ok(self.consumer.subscribe(&names)?)
    }

    /// Looks for topics that fit the patterns, now and then; new ones are read from now on.
    fn find_topics(&mut self) -> Result<(), SourceError> {
        let due =
            self.session.topics.has_patterns() && self.looked_for_topics.elapsed() >= self.config.looks_for_topics();
        if !due || !matches!(self.group, Group::Member) {
            return Ok(());
        }
        self.looked_for_topics = Instant::now();
        if self.look_for_topics()? {
            let names = self.session.topics.names();
            tracing::info!(topics = names.len(), "a new topic fits the patterns: the group is joined for it, too");
            self.consumer.subscribe(&names)?;
        }
        Ok(())
    }

    /// True if there are new ones. Brokers that do not answer are asked again.
    pub(super) fn look_for_topics(&self) -> Result<bool, SourceError> {
        if !self.session.topics.has_patterns() {
            return Ok(false);
        }
        match self.consumer.fetch_metadata(None, LOOK) {
            Ok(there) => {
                let found = self.session.topics.find(there.topics().iter().map(|topic| topic.name()));
                found.map_err(|error| SourceError::Assignment(Box::new(error)))
            }
            Err(error) => {
                self.consumer.context().voice().say(&error, "");
                Ok(false)
            }
        }
    }

    /// Polls until no release will be published any more.
    pub(super) fn run(mut self) {
        self.consumer.context().set_gives_back(true);
        let polled = self.poll_until_closed();
        // From now on nobody looks after single partitions: they are fenced like all others.
        self.consumer.context().set_gives_back(false);
        if let Some(list) = self
            .consumer
            .context()
            .take_leaving()
            .map(|(list, _)| list)
            .or(self.giving_back.take().map(|giving| giving.list))
        {
            self.session.revoke();
            self.consumer.context().release(&self.consumer, &list);
        }
        if let Err(error) = polled {
            let tells = self.config.member.as_ref().is_some_and(|member| member.tells);
            if tells && matches!(error, SourceError::Fenced { .. }) {
                self.session.lose_name();
            }
            // Without a receiver the pipeline has failed for another reason, and reports that.
            let _ = self.sender.blocking_send(Err(error));
        }
        // Still a member: the last release needs the group. Partitions are paused, rebalances are answered.
        self.pause(true);
        while !self.session.is_finished() {
            let _ = self.consumer.poll(POLL);
        }
        // Closed as it is dropped here, for nobody else holds it by now: a dynamic member leaves the group.
        if self.config.member.as_ref().is_some_and(|member| member.leaves) {
            self.leave_for_good();
        }
    }

    /// Makes a named member leave the group, which it does not do when it is closed.
    fn leave_for_good(&self) {
        self.consumer.unsubscribe();
        let asked = Instant::now();
        while asked.elapsed() < LEAVE && self.consumer.assignment().is_ok_and(|list| list.count() > 0) {
            let _ = self.consumer.poll(POLL);
        }
        // The request is on its way once the partitions are given up; a client that is closed sends nothing more.
        let _ = self.consumer.poll(2 * POLL);
    }

    /// Fails if another instance has the name of this member.
    fn fenced(&self, error: &KafkaError) -> Result<(), SourceError> {
        let fenced = |code| code == RDKafkaErrorCode::FencedInstanceId;
        let last = self.consumer.client().fatal_error().map(|(code, _)| code);
        match self.config.member.clone() {
            Some(Member { name: id, .. }) if error.rdkafka_error_code().into_iter().chain(last).any(fenced) => {
                Err(SourceError::Fenced { id })
            }
            _ => Ok(()),
        }
    }

    /// Polls until the pipeline takes nothing more.
    fn poll_until_closed(&mut self) -> Result<(), SourceError> {
        while !self.session.is_finished() {
            // Messages that are there already go into the same batch; others are not waited for.
            let mut came = self.poll(POLL)?;
            while came && self.batch.events.len() < BATCH && self.batch.bytes < self.batch_bytes {
                came = self.poll(Duration::ZERO)?;
            }
            if let Some(assigned) = self.session.take_up() {
                let (epoch, found) = assigned?;
                self.schemas.iter_mut().for_each(Schemas::forget);
                if !self.take_up(epoch, found)? {
                    return Ok(());
                }
                continue;
            }
            if let Some(added) = self.session.take_added() {
                if !self.add(added?)? {
                    return Ok(());
                }
                continue;
            }
            self.give_back()?;
            self.find_topics()?;
            if matches!(self.reading, Reading::Assigned { .. }) && !self.is_current() {
                self.reading = Reading::Gone;
            }
            match self.reading {
                Reading::Assigned { .. } => {
                    if !self.hand_on()? {
                        return Ok(());
                    }
                    self.look_after_foreign()?;
                }
                Reading::Gone => {
                    self.batch.events.clear();
                    if self.sender.try_send(Ok(SourceItem::Revoked)).is_ok() {
                        self.reading = Reading::Nothing;
                    }
                }
                Reading::Nothing => self.batch.events.clear(),
            }
        }
        Ok(())
    }

    /// Polls once, which also answers rebalances, and adds the message to the batch; true if one came.
    ///
    /// A batch from before a rebalance belongs to others, or is read again. A message that comes after it, even from the same
    /// poll or before the assignment is taken up, is the first of the new assignment and must not be lost: progress takes
    /// offsets that are passed over for offsets without a record.
    pub(super) fn poll(&mut self, wait: Duration) -> Result<bool, SourceError> {
        let shared_out = match &mut self.progress_topics {
            Some(topics) => topics.agree(&self.session, &self.consumer)?,
            None => true,
        };
        if shared_out
            && self.session.may_join()
            && matches!(self.group, Group::Left(join_at) if join_at <= Instant::now())
        {
            self.join_group()?;
        }
        let reader = reader(&self.consumer);
        if !std::ptr::eq(reader, &*self.consumer)
            && let Some(Err(error)) = self.consumer.poll(Duration::ZERO)
        {
            self.judge(&error)?;
        }
        let polled = reader.poll(wait).map(|polled| polled.map(|message| self.event(&message)));
        let epoch = self.session.epoch();
        if self.batch.epoch != epoch {
            self.batch = Polled { epoch, ..Polled::default() };
            if self.session.leave() {
                self.leave_group();
            }
        }
        match polled {
            Some(Ok(event)) => {
                self.batch.bytes += event.as_ref().and_then(|event| event.payload.as_ref()).map_or(0, Bytes::len);
                self.batch.events.extend(event);
                return Ok(true);
            }
            Some(Err(error)) => self.judge(&error)?,
            None => {}
        }
        Ok(false)
    }

    /// Fails on errors that no waiting mends, and reports the others.
    fn judge(&self, error: &KafkaError) -> Result<(), SourceError> {
        self.fenced(error)?;
        fatal(error)?;
        // The callbacks have reported most of them already.
        self.consumer.context().voice().say(error, "");
        Ok(())
    }

    /// Leaves the group, to join it again a little later.
    pub(super) fn leave_group(&mut self) {
        self.consumer.unsubscribe();
        self.group = Group::Left(Instant::now() + REJOIN);
    }

    /// True while the assignment that the pipeline reads is ours.
    pub(super) fn is_current(&self) -> bool {
        matches!(self.reading, Reading::Assigned { epoch, .. } if self.session.is_consuming(epoch))
    }

    /// True if the pipeline takes nothing more.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    pub(super) fn event(&self, message: &BorrowedMessage<'_>) -> Option<Event> {
        let partition = self.session.topics.number(message.topic(), message.partition())?;
        if self.giving_back.as_ref().is_some_and(|giving| giving.partitions.contains(&partition)) {
            return None;
        }
        Some(Event {
            position: Position { partition, offset: Offset(message.offset()) },
            placement: self.session.topics.placement(partition),
            timestamp: message.timestamp().to_millis().map(Millis),
            key: message.key().map(Key::from_slice),
            payload: message.payload().map(Bytes::copy_from_slice),
        })
    }

    /// Sends the batch without records that are finished already; false if the pipeline is gone.
    fn hand_on(&mut self) -> Result<bool, SourceError> {
        let Reading::Assigned { epoch, .. } = self.reading else { return Ok(true) };
        let mut events = self.decodable();
        if events.is_empty() {
            return Ok(!self.is_closed());
        }
        let mut held = Vec::new();
        let sorted = self.session.consuming(epoch, |progress| {
            events.retain(|event| match progress.deliver(event.position) {
                Delivered::Done => false,
                Delivered::Fresh => true,
                Delivered::Held(since) => {
                    held.push((event.clone(), since));
                    false
                }
            });
        });
        if sorted.is_none() {
            return Ok(true);
        }
        Ok((held.is_empty() || self.send(SourceItem::Held(held))?)
            && (events.is_empty() || self.send(SourceItem::Events(events))?))
    }

    /// The events of the batch whose schema is known. Pauses the partitions of the others, and resumes those that waited.
    fn decodable(&mut self) -> Vec<Event> {
        let events = std::mem::take(&mut self.batch.events);
        self.batch.bytes = 0;
        let Some(schemas) = &mut self.schemas else { return events };
        let sorted = schemas.sort(events);
        let (park, resume) = (self.session.topics.list(sorted.parked), self.session.topics.list(sorted.released));
        let reader = reader(&self.consumer);
        for (result, what) in [(reader.pause(&park), "pause"), (reader.resume(&resume), "resume")] {
            if let Err(error) = result {
                tracing::debug!(%error, what, "a partition whose schema is awaited");
            }
        }
        sorted.ready
    }

    /// Sends an item, polling on while the pipeline is busy; false if it is gone. Dropped if the assignment changes.
    pub(super) fn send(&mut self, item: SourceItem) -> Result<bool, SourceError> {
        let mut item = Ok(item);
        let waited = Instant::now();
        while waited.elapsed() < UNPAUSED {
            item = match self.sender.try_send(item) {
                Ok(()) => return Ok(true),
                Err(TrySendError::Closed(_)) => return Ok(false),
                Err(TrySendError::Full(back)) => back,
            };
            std::thread::sleep(FULL);
        }
        self.pause(true);
        let sent = loop {
            // Messages that were fetched before the pause took hold are still to be taken, in order.
            self.poll(POLL)?;
            if self.is_overdue() {
                self.session.revoke();
            }
            if !self.is_current() {
                break true;
            }
            match self.sender.try_send(item) {
                Ok(()) => break true,
                Err(TrySendError::Closed(_)) => break false,
                Err(TrySendError::Full(back)) => item = back,
            }
        };
        self.pause(false);
        Ok(sent)
    }

    /// Pauses or resumes the partitions, except those that wait for another instance or for a schema.
    pub(super) fn pause(&self, pause: bool) {
        let foreign: &[FoundPartition] =
            if let Reading::Assigned { foreign, .. } = &self.reading { foreign } else { &[] };
        let mut waiting: BTreeSet<Partition> = foreign.iter().map(|found| found.partition).collect();
        waiting.extend(self.schemas.iter().flat_map(Schemas::parked));
        let ours: Vec<Partition> = self.session.progress(|p| p.partitions().collect()).unwrap_or_default();
        let assigned = ours.len() as u64;
        let list = self.session.topics.list(ours.into_iter().filter(|p| !waiting.contains(p)));
        self.session.meter.set_partitions(assigned, if pause { assigned } else { waiting.len() as u64 });
        let reader = reader(&self.consumer);
        let result = if pause { reader.pause(&list) } else { reader.resume(&list) };
        if let Err(error) = result {
            tracing::debug!(%error, "cannot pause or resume");
        }
    }
}

/// Fails on errors that no waiting mends.
pub(super) fn fatal(error: &KafkaError) -> Result<(), SourceError> {
    use RDKafkaErrorCode as Code;
    match error.rdkafka_error_code() {
        Some(Code::AutoOffsetReset | Code::OffsetOutOfRange) => Err(SourceError::Lost(error.clone())),
        Some(
            Code::LogTruncation
            | Code::Fatal
            | Code::TopicAuthorizationFailed
            | Code::GroupAuthorizationFailed
            | Code::FencedInstanceId,
        ) => Err(SourceError::Kafka(error.clone())),
        _ => Ok(()),
    }
}
