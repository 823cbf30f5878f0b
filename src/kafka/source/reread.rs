//! Reads records again by position: those of a plan, to make the same release of them, and those that earlier releases show,
//! where later ones must know.
//!
//! The group's consumer is polled meanwhile, so the group is kept. A restart waits for what is read here, so it costs round trips and
//! no waiting: one consumer reads all entries of the journal and one all records, the partitions of a topic at the same time.
//! Deliberately absent: waiting for records that are not in the log any more. A plan that cannot be read again is an error; for shown
//! records `on_gap` decides.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset as KafkaOffset, TopicPartitionList};

use super::poller::{POLL, Poller, fatal};
use crate::failpoint::step;
use crate::kafka::client::login::{self, TokenContext};
use crate::kafka::client::{self, OnGap};
use crate::kafka::connection::{ASK, patiently};
use crate::kafka::defects;
use crate::kafka::journal::{self, ShownEntry};
use crate::kafka::progress::found::FoundPartition;
use crate::kafka::progress::take_over;
use crate::model::event::{Event, Partition};
use crate::model::release::runs::Runs;
use crate::source::{Recalled, Replay, SourceError, SourceItem};

/// The time limit for the next of the records that are read again. Larger: a hang is noticed late. Smaller: a slow broker ends the
/// process.
const REREAD: Duration = Duration::from_secs(60);

/// By offset of their journal entries: the releases to send, each with the number of releases after it and its partitions.
type Entries = BTreeMap<i64, (usize, Vec<Partition>)>;

/// By partition: the oldest offset that is still in the log, and the next one, both asked for once.
type Ends = BTreeMap<Partition, (i64, i64)>;

/// A consumer outside the group.
type Reader = BaseConsumer<TokenContext>;

/// The records of a partition that are read again.
struct Reread<'a> {
    partition: Partition,
    wanted: &'a Runs,
    /// None if the log has nothing of it any more.
    first: Option<i64>,
    events: Vec<Event>,
}

impl<'a> Reread<'a> {
    fn of(partition: Partition, wanted: &'a Runs, (oldest, end): (i64, i64)) -> Self {
        let there = wanted.first().zip(wanted.last()).filter(|(first, last)| *last >= oldest && *first < end);
        Self { partition, wanted, first: there.map(|(first, _)| first.max(oldest)), events: Vec::new() }
    }
}

impl Poller {
    /// Reads the records of a plan again. None if the assignment is gone meanwhile.
    pub(super) fn replay(&mut self, members: &[FoundPartition]) -> Result<Option<Replay>, SourceError> {
        let mut plan = take_over::planned(members).ok_or(SourceError::Reread)?;
        let consumer = login::reader(&client::plain_consumer(&self.config), self.config.cluster.login.as_ref())?;
        step("rereading");
        if let Some(entry) = plan.journal {
            let journal = self.journal_reader()?;
            let Some(found) = self.entry(&journal, entry)? else { return Ok(None) };
            let found = found.ok_or(SourceError::Reread)?;
            (plan.shown, plan.row_levels, plan.changes) = (Some(found.shown), found.row_levels, found.changes);
        }
        let wanted = |FoundPartition { partition, .. }: &FoundPartition| {
            let mut wanted = plan.fresh.of(*partition).clone();
            wanted.insert_all(plan.held.of(*partition));
            plan.shown.iter().for_each(|shown| wanted.insert_all(shown.of(*partition)));
            (*partition, wanted)
        };
        let wanted: Vec<(Partition, Runs)> = members.iter().map(wanted).collect();
        let wanted: Vec<_> = wanted.iter().map(|(partition, runs)| (*partition, runs)).collect();
        let Some(events) = self.records(&consumer, &wanted, &mut Ends::new())? else { return Ok(None) };
        for (partition, _) in &wanted {
            let own = events.iter().filter(|event| event.position.partition == *partition);
            let found: Runs = own.map(|event| event.position.offset.0).collect();
            self.session.progress(|progress| progress.reread(*partition, &found));
        }
        if !self.resolve(&events)? {
            return Ok(None);
        }
        Ok(Some(Replay { plan, events }))
    }

    /// Sends the records that the last releases of these partitions show; false if the pipeline or the assignment is gone.
    pub(super) fn send_shown(&mut self, journals: &[(Partition, Vec<i64>)]) -> Result<bool, SourceError> {
        let Some(topic) = self.journal.clone() else { return Ok(true) };
        let entries = entries(journals);
        if entries.is_empty() || defects::forgets_earlier_releases() {
            return Ok(true);
        }
        self.pause(true);
        let sent = self.send_entries(&topic, entries);
        self.pause(false);
        sent
    }

    fn send_entries(&mut self, topic: &str, entries: Entries) -> Result<bool, SourceError> {
        let consumer = login::reader(&client::plain_consumer(&self.config), self.config.cluster.login.as_ref())?;
        let (journal, mut ends) = (self.journal_reader()?, Ends::new());
        step("recalling");
        for (at, (later, partitions)) in entries {
            let Some(entry) = self.entry(&journal, at)? else { return Ok(false) };
            let Some(ShownEntry { levels, fingerprint, shown, row_levels, .. }) = entry else {
                self.missing(topic, 1)?;
                continue;
            };
            let wanted: Vec<_> = shown.iter().collect();
            let Some(events) = self.records(&consumer, &wanted, &mut ends)? else { return Ok(false) };
            let missing = shown.count() - events.len() as u64;
            if missing > 0 {
                let names = shown.iter().filter_map(|(p, _)| self.session.topics.place(p).map(|(name, _)| name));
                self.missing(names.last().unwrap_or_default(), missing)?;
            }
            if !self.resolve(&events)? {
                return Ok(false);
            }
            let mut places = shown.finder();
            let places = events.iter().filter_map(|event| places.place(event.position));
            let row_levels = row_levels.and_then(|of_shown| of_shown.of(places));
            let recalled = Recalled { partitions, later, levels, row_levels, fingerprint, events };
            if !self.send(SourceItem::Recalled(Box::new(recalled)))? || !self.is_current() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A consumer of single entries of the journal.
    fn journal_reader(&self) -> Result<Reader, SourceError> {
        let login = self.config.group_cluster().login.as_ref();
        let consumer = login::reader(&client::journal_consumer(&self.config), login)?;
        if let Some(topic) = &self.journal {
            // A consumer that does not know its leader yet looks for it once a second.
            patiently(|| consumer.fetch_metadata(Some(topic), ASK))?;
        }
        Ok(consumer)
    }

    /// The journal's entry, if it is there. None if the assignment is gone meanwhile.
    fn entry(&mut self, journal: &Reader, at: i64) -> Result<Option<Option<ShownEntry>>, SourceError> {
        let Some(topic) = self.journal.clone() else {
            return Ok(Some(None));
        };
        let session = Arc::clone(&self.session);
        let read = journal::read(journal, &topic, at, &session.topics, || {
            self.poll(Duration::ZERO)?;
            if self.is_current() { Ok(()) } else { Err(SourceError::Reread) }
        });
        if self.is_current() { read.map(Some) } else { Ok(None) }
    }

    /// Waits until these events can be decoded: a planned release cannot be made without them. False if the assignment is gone.
    fn resolve(&mut self, events: &[Event]) -> Result<bool, SourceError> {
        let since = Instant::now();
        while self.schemas.as_mut().is_some_and(|schemas| !schemas.resolve(events, since)) {
            self.poll(POLL)?;
            if !self.is_current() || self.is_closed() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Shown records cannot be read again, so nobody can tell any more which people they belong to.
    fn missing(&self, topic: &str, missing: u64) -> Result<(), SourceError> {
        if self.session.on_gap == OnGap::Stop {
            return Err(SourceError::Forgotten { topic: topic.to_owned(), missing });
        }
        tracing::warn!(topic, missing, "what an earlier release has shown is not in the log any more");
        Ok(())
    }

    /// The records at these offsets that are still in the log, partition by partition. None if the assignment is gone meanwhile.
    fn records(
        &mut self,
        consumer: &Reader,
        wanted: &[(Partition, &Runs)],
        ends: &mut Ends,
    ) -> Result<Option<Vec<Event>>, SourceError> {
        let mut rereads = Vec::with_capacity(wanted.len());
        for (partition, runs) in wanted {
            let ends = match ends.get(partition) {
                Some(known) => *known,
                None => *ends.entry(*partition).or_insert(self.ends(consumer, *partition)?),
            };
            rereads.push(Reread::of(*partition, runs, ends));
        }
        // The end of a partition is told by its number, which is its own within a topic only.
        let topics: BTreeSet<String> = rereads.iter().filter_map(|reread| self.topic_of(reread)).collect();
        for topic in topics {
            if !self.read_topic(consumer, &topic, &mut rereads)? {
                return Ok(None);
            }
        }
        Ok(Some(rereads.into_iter().flat_map(|reread| reread.events).collect()))
    }

    /// The ends of a partition; nothing lies between those of one that is not there.
    fn ends(&self, consumer: &Reader, partition: Partition) -> Result<(i64, i64), SourceError> {
        let Some((topic, number)) = self.session.topics.place(partition) else { return Ok((0, 0)) };
        Ok(patiently(|| consumer.fetch_watermarks(topic, number, ASK))?)
    }

    fn topic_of(&self, reread: &Reread<'_>) -> Option<String> {
        reread.first.and_then(|_| self.session.topics.place(reread.partition)).map(|(topic, _)| topic.to_owned())
    }

    /// Reads the records of the partitions of a topic. False if the assignment is gone meanwhile.
    fn read_topic(&mut self, consumer: &Reader, topic: &str, rereads: &mut [Reread<'_>]) -> Result<bool, SourceError> {
        let mut at = TopicPartitionList::new();
        let mut open: BTreeMap<i32, &mut Reread<'_>> = BTreeMap::new();
        for reread in rereads {
            let place = self.session.topics.place(reread.partition).filter(|(own, _)| *own == topic);
            if let (Some((_, number)), Some(first)) = (place, reread.first) {
                at.add_partition_offset(topic, number, KafkaOffset::Offset(first))?;
                open.insert(number, reread);
            }
        }
        consumer.assign(&at)?;
        let mut heard = Instant::now();
        while !open.is_empty() {
            self.poll(Duration::ZERO)?;
            if !self.is_current() {
                return Ok(false);
            }
            let ended = match consumer.poll(POLL) {
                Some(Ok(message)) => {
                    let (number, offset) = (message.partition(), message.offset());
                    open.get_mut(&number).and_then(|reread| {
                        heard = Instant::now();
                        if reread.wanted.contains(offset) {
                            reread.events.extend(self.event(&message));
                        }
                        (reread.wanted.last() <= Some(offset)).then_some(number)
                    })
                }
                Some(Err(KafkaError::PartitionEOF(number))) => Some(number),
                Some(Err(error)) => {
                    fatal(&error)?;
                    None
                }
                None => None,
            };
            if heard.elapsed() > REREAD {
                return Err(SourceError::Reread);
            }
            // What comes behind is fetched for nothing. A pause would let the client sleep for a second, and the next assignment with it.
            if let Some(number) = ended {
                open.remove(&number);
            }
        }
        Ok(true)
    }
}

/// The releases that the commits of some partitions name, the oldest first. If several partitions name a release, the smallest
/// number of later ones is right: it is forgotten when all of them forget it.
fn entries(journals: &[(Partition, Vec<i64>)]) -> Entries {
    let mut entries = Entries::new();
    for (partition, journal) in journals {
        for (later, entry) in journal.iter().rev().enumerate() {
            let known = entries.entry(*entry).or_insert((later, Vec::new()));
            known.0 = known.0.min(later);
            known.1.push(*partition);
        }
    }
    entries
}
