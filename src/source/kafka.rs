//! Kafka as a source: one thread polls for ever, so the group is kept however long a search or a transaction takes.
//!
//! After an assignment, releases that were planned before a crash come first. A plan is carried out by the owner of its
//! home partition, which reads the records of all its partitions again; owners of the other partitions wait until it is
//! done. When the window is full of work the partitions are paused: nothing is dropped, nothing grows.

mod reread;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::topic_partition_list::{Offset as KafkaOffset, TopicPartitionList};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::schemas::Schemas;
use super::{Assignment, BATCH, Source, SourceError, SourceItem};
use crate::codec::confluent::SchemaCache;
use crate::kafka::client::{self, KafkaSourceConfig};
use crate::kafka::progress::Delivered;
use crate::kafka::session::{Found, GroupConsumer, GroupContext, Session};
use crate::model::event::{Event, Key, Millis, Partition, Position};
use crate::model::lattice::Node;
use crate::model::release::plan::Ledger;

/// How long one poll waits: the longest that a stop or a waiting batch goes unnoticed.
const POLL: Duration = Duration::from_millis(50);
/// How often the owner of a partition looks whether somebody else's plan for it is done.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How long going back to the first record that is still needed may take.
const SEEK: Duration = Duration::from_secs(60);
/// How long a full pipeline is waited for before the partitions are paused. A pause throws away what was fetched ahead, so
/// shorter fetches it again and again; longer answers a rebalance later.
const UNPAUSED: Duration = Duration::from_millis(500);
/// How long a group is left for before it is joined again. Longer: nothing is read meanwhile. Shorter: a heartbeat of the old
/// membership that is sent again comes after the join, and looks like a second instance with the same `group.instance.id`.
const REJOIN: Duration = Duration::from_millis(2 * client::RESEND.as_millis() as u64);
/// How often a full pipeline is looked at. Longer lets it starve; shorter burns a core.
const FULL: Duration = Duration::from_millis(1);
/// Batches between the poller and the pipeline. More costs memory; fewer lets the pipeline starve.
const WAITING: usize = 4;

/// The events of the partitions that this instance owns.
pub struct KafkaSource {
    session: Arc<Session>,
    items: mpsc::Receiver<Result<SourceItem, SourceError>>,
}

/// Resolves once the instance has left the group.
pub type Left = oneshot::Receiver<()>;

/// Joins the group. The consumer is shared with the sink, which commits with it. Who ends the process before [`Left`] does
/// leaves the others waiting for the session's timeout.
pub fn open(
    config: KafkaSourceConfig,
    session: Arc<Session>,
    schemas: Option<Arc<SchemaCache>>,
    memory: usize,
    journal: Option<String>,
) -> Result<(KafkaSource, Arc<GroupConsumer>, Left), SourceError> {
    let context = GroupContext::new(Arc::clone(&session));
    let consumer: GroupConsumer = client::group_consumer(&config, memory).create_with_context(context)?;
    consumer.subscribe(&session.topics.names())?;
    let consumer = Arc::new(consumer);
    let (sender, items) = mpsc::channel(WAITING);
    let poller = Poller {
        config,
        journal,
        session: Arc::clone(&session),
        consumer: Arc::clone(&consumer),
        sender,
        epoch: 0,
        polled: 0,
        batch: Vec::new(),
        foreign: Vec::new(),
        looked: Instant::now(),
        revoked: false,
        rejoin: None,
        schemas: schemas.map(|cache| Schemas::new(cache, Handle::current())),
    };
    let (leaving, left) = oneshot::channel();
    let run = move || {
        poller.run();
        // Nobody may wait for it any more.
        let _ = leaving.send(());
    };
    std::thread::Builder::new().name("kafka".into()).spawn(run).map_err(|_| SourceError::Thread)?;
    Ok((KafkaSource { session, items }, consumer, left))
}

impl Source for KafkaSource {
    const REREADS: bool = true;

    fn ledger(&self) -> Option<Arc<dyn Ledger>> {
        Some(Arc::clone(&self.session) as Arc<dyn Ledger>)
    }

    async fn next(&mut self) -> Result<SourceItem, SourceError> {
        self.items.recv().await.unwrap_or(Ok(SourceItem::End))
    }
}

struct Poller {
    config: KafkaSourceConfig,
    /// The topic that says what the last releases show, where the next ones must know.
    journal: Option<String>,
    session: Arc<Session>,
    consumer: Arc<GroupConsumer>,
    sender: mpsc::Sender<Result<SourceItem, SourceError>>,
    /// The assignment that is taken up.
    epoch: u64,
    /// The one that `batch` was polled under.
    polled: u64,
    batch: Vec<Event>,
    /// Partitions of which somebody else carries a plan out.
    foreign: Vec<Found>,
    looked: Instant,
    /// The pipeline has been told that the assignment is gone.
    revoked: bool,
    /// When to join the group again after it was left.
    rejoin: Option<Instant>,
    /// Resolves the schemas of messages in the Confluent wire format.
    schemas: Option<Schemas>,
}

impl Poller {
    fn run(mut self) {
        if let Err(error) = self.poll() {
            // Nobody may be left to hear it; then the pipeline has failed for another reason and said so.
            let _ = self.sender.blocking_send(Err(error));
        }
        // Still a member: the last release needs the group. Partitions are paused, rebalances are answered.
        self.pause(true);
        while !self.session.is_finished() {
            let _ = self.consumer.poll(POLL);
        }
        // Closed as it is dropped here, for it is ours alone by now: a dynamic member leaves the group, and a static one
        // stays, to find its partitions again when it restarts. To unsubscribe would make both leave.
    }

    /// Until the pipeline takes nothing more.
    fn poll(&mut self) -> Result<(), SourceError> {
        while !self.session.is_finished() {
            // What is there already goes into the same batch; what is not is not waited for.
            let mut came = self.take(POLL)?;
            while came && self.batch.len() < BATCH {
                came = self.take(Duration::ZERO)?;
            }
            if let Some(assigned) = self.session.take_assigned() {
                self.schemas.iter_mut().for_each(Schemas::forget);
                if !self.take_up(assigned?)? {
                    return Ok(());
                }
                continue;
            }
            if self.epoch != self.session.epoch() {
                self.batch.clear();
                self.revoked = self.revoked || self.sender.try_send(Ok(SourceItem::Revoked)).is_ok();
                continue;
            }
            if !self.flush()? {
                return Ok(());
            }
            self.look_after_foreign()?;
        }
        Ok(())
    }

    /// Polls once, which also answers rebalances, and keeps what is delivered for the next batch; true if something was.
    ///
    /// What was kept before a rebalance belongs to others now, or is read again. What comes after it, even in the same poll
    /// or before the assignment is taken up, is the first of the new assignment and must not be lost: progress takes what
    /// is passed over for offsets that hold no record.
    fn take(&mut self, wait: Duration) -> Result<bool, SourceError> {
        if self.session.take_rejoin() {
            self.consumer.unsubscribe();
            self.rejoin = Some(Instant::now() + REJOIN);
        }
        if self.rejoin.is_some_and(|at| at <= Instant::now()) {
            self.rejoin = None;
            self.consumer.subscribe(&self.session.topics.names())?;
        }
        let polled = self.consumer.poll(wait).map(|polled| polled.map(|message| self.event(&message)));
        let epoch = self.session.epoch();
        if self.polled != epoch {
            self.polled = epoch;
            self.batch.clear();
        }
        match polled {
            Some(Ok(event)) => {
                self.batch.extend(event);
                return Ok(true);
            }
            Some(Err(error)) => {
                fatal(&error)?;
                // Most of them the context has heard and said already.
                if self.consumer.context().complaints.is_news(&error, Instant::now()) {
                    tracing::warn!(%error, "kafka consumer");
                }
            }
            None => {}
        }
        Ok(false)
    }

    fn event(&self, message: &BorrowedMessage<'_>) -> Option<Event> {
        let partition = self.session.topics.number(message.topic(), message.partition())?;
        Some(Event {
            position: Position { partition, offset: crate::model::event::Offset(message.offset()) },
            timestamp: message.timestamp().to_millis().map(Millis),
            key: message.key().map(Key::from_slice),
            payload: message.payload().map(Bytes::copy_from_slice),
        })
    }

    /// Sends the batch without what is finished already; false if the pipeline is gone.
    fn flush(&mut self) -> Result<bool, SourceError> {
        let mut events = std::mem::take(&mut self.batch);
        if let Some(schemas) = &mut self.schemas {
            let sorted = schemas.sort(events);
            let (park, resume) = (self.list(sorted.parked), self.list(sorted.released));
            events = sorted.ready;
            for (result, what) in [(self.consumer.pause(&park), "pause"), (self.consumer.resume(&resume), "resume")] {
                if let Err(error) = result {
                    tracing::debug!(%error, what, "a partition whose schema is awaited");
                }
            }
        }
        if events.is_empty() {
            return Ok(!self.sender.is_closed());
        }
        let mut held = Vec::new();
        {
            let mut progress = self.session.progress();
            if self.epoch != self.session.epoch() {
                return Ok(true);
            }
            events.retain(|event| match progress.deliver(event.position) {
                Delivered::Done => false,
                Delivered::Fresh => true,
                Delivered::Held(since) => {
                    held.push((event.clone(), since));
                    false
                }
            });
        }
        Ok((held.is_empty() || self.send(SourceItem::Held(held))?)
            && (events.is_empty() || self.send(SourceItem::Events(events))?))
    }

    /// Sends an item, polling on while the pipeline is busy; false if it is gone. Dropped if the assignment changes.
    fn send(&mut self, item: SourceItem) -> Result<bool, SourceError> {
        let mut item = Ok(item);
        let waited = Instant::now();
        while waited.elapsed() < UNPAUSED {
            item = match self.sender.try_send(item) {
                Ok(()) => return Ok(true),
                Err(mpsc::error::TrySendError::Closed(_)) => return Ok(false),
                Err(mpsc::error::TrySendError::Full(back)) => back,
            };
            std::thread::sleep(FULL);
        }
        self.pause(true);
        let sent = loop {
            // What was fetched before the pause took hold is still to be taken, in order.
            self.take(POLL)?;
            if self.epoch != self.session.epoch() {
                break true;
            }
            match self.sender.try_send(item) {
                Ok(()) => break true,
                Err(mpsc::error::TrySendError::Closed(_)) => break false,
                Err(mpsc::error::TrySendError::Full(back)) => item = back,
            }
        };
        self.pause(false);
        Ok(sent)
    }

    fn pause(&self, pause: bool) {
        let mut foreign: BTreeSet<Partition> = self.foreign.iter().map(|f| f.partition).collect();
        foreign.extend(self.schemas.iter().flat_map(Schemas::parked));
        let ours = self.session.progress().partitions();
        let assigned = ours.len() as u64;
        let list = self.list(ours.into_iter().filter(|p| !foreign.contains(p)));
        self.session.meter.set_partitions(assigned, if pause { assigned } else { foreign.len() as u64 });
        let result = if pause { self.consumer.pause(&list) } else { self.consumer.resume(&list) };
        if let Err(error) = result {
            tracing::debug!(%error, "cannot pause or resume");
        }
    }

    /// Starts on a new assignment; false if the pipeline is gone.
    fn take_up(&mut self, found: Vec<Found>) -> Result<bool, SourceError> {
        self.epoch = self.session.epoch();
        self.revoked = false;
        self.foreign.clear();
        let own: BTreeSet<Partition> = found.iter().map(|f| f.partition).collect();
        let plans = self.plans(&found)?;
        let newest = found.iter().filter(|f| f.state.last.is_some()).max_by_key(|f| f.state.finished_to);
        let last = newest.and_then(|f| f.state.last.clone()).map(Node::new);
        let (mut replays, mut journal) = (Vec::new(), Vec::new());
        {
            let mut progress = self.session.progress();
            if self.epoch != self.session.epoch() {
                return Ok(true);
            }
            for mut found in found {
                match plans.get(&found.partition) {
                    Some(Plan::Foreign) => {
                        self.foreign.push(found);
                        continue;
                    }
                    Some(Plan::Ours(_)) | None => {}
                    Some(Plan::Incomplete) => found.state.plan = None,
                }
                progress.assign(found.partition, found.committed, &found.state);
                journal.push((found.partition, found.state.journal));
            }
            for plan in plans.into_values() {
                if let Plan::Ours(members) = plan {
                    for member in members.iter().filter(|m| !own.contains(&m.partition)) {
                        progress.assign(member.partition, member.committed, &member.state);
                    }
                    replays.push(members);
                }
            }
        }
        let foreign = self.list(self.foreign.iter().map(|f| f.partition));
        self.session.meter.set_partitions(own.len() as u64, self.foreign.len() as u64);
        self.consumer.pause(&foreign)?;
        let partitions = Some(own.into_iter().collect());
        if !self.send(SourceItem::Assigned(Assignment { epoch: self.epoch, partitions, last }))? {
            return Ok(false);
        }
        if !self.recall(&journal)? {
            return Ok(!self.sender.is_closed());
        }
        for members in replays {
            if self.epoch != self.session.epoch() {
                return Ok(true);
            }
            self.pause(true);
            let replay = self.reread(&members);
            self.pause(false);
            let Some(replay) = replay? else { return Ok(true) };
            tracing::info!(records = replay.events.len(), "a release that was planned before is carried out");
            if !self.send(SourceItem::Replay(Box::new(replay)))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What to do about the plans that the commits speak of, by partition. A plan of ours stands at its home.
    fn plans(&self, found: &[Found]) -> Result<BTreeMap<Partition, Plan>, SourceError> {
        let own: BTreeMap<Partition, &Found> = found.iter().map(|f| (f.partition, f)).collect();
        let mut plans = BTreeMap::new();
        for found in found {
            let Some(plan) = &found.state.plan else { continue };
            if plan.home != found.partition {
                // Follows its home: carried out with it, or by its owner.
                match own.get(&plan.home) {
                    None => drop(plans.insert(found.partition, Plan::Foreign)),
                    Some(home) if !home.is_planned(plan.id) => {
                        plans.insert(found.partition, Plan::Incomplete);
                    }
                    Some(_) => {}
                }
                continue;
            }
            let mut members = Vec::new();
            for number in plan.members.iter().flat_map(|(first, last)| first..=last) {
                let member = self.look_up(Partition(number as u32), &own)?;
                match member.filter(|m| m.is_planned(plan.id)) {
                    Some(member) => members.push(member),
                    None => {
                        members.clear();
                        break;
                    }
                }
            }
            plans.insert(found.partition, if members.is_empty() { Plan::Incomplete } else { Plan::Ours(members) });
        }
        // The members of an incomplete plan are free as well.
        for found in found {
            if let Some(plan) = &found.state.plan
                && matches!(plans.get(&plan.home), Some(Plan::Incomplete))
            {
                plans.insert(found.partition, Plan::Incomplete);
            }
        }
        Ok(plans)
    }

    fn look_up(&self, partition: Partition, own: &BTreeMap<Partition, &Found>) -> Result<Option<Found>, SourceError> {
        if let Some(found) = own.get(&partition) {
            return Ok(Some((*found).clone()));
        }
        Ok(self.session.found(&self.consumer, &self.list([partition]))?.pop())
    }

    /// Whether others are done with their plans for partitions of ours; then those are ours to read.
    fn look_after_foreign(&mut self) -> Result<(), SourceError> {
        if self.foreign.is_empty() || self.looked.elapsed() < LOOK_AGAIN {
            return Ok(());
        }
        self.looked = Instant::now();
        let mut waiting = Vec::new();
        for was in std::mem::take(&mut self.foreign) {
            let list = self.list([was.partition]);
            // The home first: it and ours are finished in one transaction, so if it has no plan any more and ours still
            // has, the plan was never committed as a whole.
            let Some(plan) = &was.state.plan else { continue };
            let home = self.session.found(&self.consumer, &self.list([plan.home]))?.pop();
            let now = self.session.found(&self.consumer, &list)?.pop();
            let abandoned = home.is_some_and(|home| !home.is_planned(plan.id));
            match now {
                Some(mut now) if !now.is_planned(plan.id) || abandoned => {
                    if now.is_planned(plan.id) {
                        now.state.plan = None;
                    }
                    if now.state.plan.is_some() {
                        waiting.push(now);
                        continue;
                    }
                    if !self.recall(&[(now.partition, now.state.journal.clone())])? {
                        return Ok(());
                    }
                    let mut progress = self.session.progress();
                    if self.epoch != self.session.epoch() {
                        return Ok(());
                    }
                    progress.assign(now.partition, now.committed, &now.state);
                    drop(progress);
                    // Read before it was ours to read, and read again from where it is now.
                    self.batch.retain(|event| event.position.partition != now.partition);
                    let mut at = TopicPartitionList::new();
                    if let Some((topic, partition)) = self.session.topics.place(now.partition) {
                        at.add_partition_offset(topic, partition, KafkaOffset::Offset(now.committed))?;
                    }
                    self.consumer.seek_partitions(at, SEEK)?;
                    self.consumer.resume(&list)?;
                }
                _ => waiting.push(was),
            }
        }
        self.foreign = waiting;
        Ok(())
    }

    fn list(&self, partitions: impl IntoIterator<Item = Partition>) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        for partition in partitions {
            if let Some((topic, partition)) = self.session.topics.place(partition) {
                list.add_partition(topic, partition);
            }
        }
        list
    }
}

/// What a plan in a commit means to us.
enum Plan {
    /// Ours to carry out: all its partitions.
    Ours(Vec<Found>),
    /// Somebody else's to carry out.
    Foreign,
    /// Never committed as a whole, so nothing of it was produced.
    Incomplete,
}

/// Errors that no waiting mends.
fn fatal(error: &KafkaError) -> Result<(), SourceError> {
    match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange) => {
            Err(SourceError::Lost(error.clone()))
        }
        Some(
            RDKafkaErrorCode::LogTruncation
            | RDKafkaErrorCode::Fatal
            | RDKafkaErrorCode::TopicAuthorizationFailed
            | RDKafkaErrorCode::GroupAuthorizationFailed
            | RDKafkaErrorCode::FencedInstanceId,
        ) => Err(SourceError::Kafka(error.clone())),
        _ => Ok(()),
    }
}
