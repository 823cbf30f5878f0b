//! Reads records again by position: those of a plan, to make the same release of them, and those that earlier releases show,
//! where later ones must know.
//!
//! The group's consumer is polled meanwhile, so the group is kept. Deliberately absent: waiting for records that are not in the
//! log any more. A plan that cannot be read again is an error; for shown records `on_gap` decides.

use std::collections::BTreeMap;
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

/// The time limit for reading one partition's records again. Larger: a hang is noticed late. Smaller: a slow broker ends the
/// process.
const REREAD: Duration = Duration::from_secs(60);

/// By offset of their journal entries: the releases to send, each with the number of releases after it and its partitions.
type Entries = BTreeMap<i64, (usize, Vec<Partition>)>;

impl Poller {
    /// Reads the records of a plan again. None if the assignment is gone meanwhile.
    pub(super) fn replay(&mut self, members: &[FoundPartition]) -> Result<Option<Replay>, SourceError> {
        let mut plan = take_over::planned(members).ok_or(SourceError::Reread)?;
        let consumer = login::reader(&client::plain_consumer(&self.config), self.config.cluster.login.as_ref())?;
        step("rereading");
        if let Some(entry) = plan.journal {
            let Some(found) = self.entry(entry)? else { return Ok(None) };
            let found = found.ok_or(SourceError::Reread)?;
            (plan.shown, plan.row_levels, plan.changes) = (Some(found.shown), found.row_levels, found.changes);
        }
        let mut events: Vec<Event> = Vec::new();
        for FoundPartition { partition, .. } in members {
            let mut wanted = plan.fresh.of(*partition).clone();
            wanted.insert_all(plan.held.of(*partition));
            plan.shown.iter().for_each(|shown| wanted.insert_all(shown.of(*partition)));
            let Some(records) = self.records(&consumer, *partition, &wanted)? else { return Ok(None) };
            let found: Runs = records.iter().map(|event| event.position.offset.0).collect();
            self.session.progress(|progress| progress.reread(*partition, &found));
            events.extend(records);
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
        step("recalling");
        for (at, (later, partitions)) in entries {
            let Some(entry) = self.entry(at)? else { return Ok(false) };
            let Some(ShownEntry { levels, fingerprint, shown, row_levels, .. }) = entry else {
                self.missing(topic, 1)?;
                continue;
            };
            let mut events: Vec<Event> = Vec::new();
            for (partition, runs) in shown.iter() {
                let Some(records) = self.records(&consumer, partition, runs)? else { return Ok(false) };
                events.extend(records);
            }
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

    /// The journal's entry, if it is there. None if the assignment is gone meanwhile.
    fn entry(&mut self, at: i64) -> Result<Option<Option<ShownEntry>>, SourceError> {
        let Some(topic) = self.journal.clone() else {
            return Ok(Some(None));
        };
        let session = Arc::clone(&self.session);
        let login = self.config.group_cluster().login.as_ref();
        let consumer = login::reader(&client::journal_consumer(&self.config), login)?;
        let read = journal::read(&consumer, &topic, at, &session.topics, || {
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

    /// The records at these offsets that are still in the log. None if the assignment is gone meanwhile.
    fn records(
        &mut self,
        consumer: &BaseConsumer<TokenContext>,
        partition: Partition,
        wanted: &Runs,
    ) -> Result<Option<Vec<Event>>, SourceError> {
        let mut events: Vec<Event> = Vec::new();
        let Some((topic, number)) = self.session.topics.place(partition) else { return Ok(Some(events)) };
        let (Some(first), Some(last)) = (wanted.first(), wanted.last()) else { return Ok(Some(events)) };
        let (oldest, end) = patiently(|| consumer.fetch_watermarks(topic, number, ASK))?;
        if last < oldest || first >= end {
            return Ok(Some(events));
        }
        let mut at = TopicPartitionList::new();
        at.add_partition_offset(topic, number, KafkaOffset::Offset(first.max(oldest)))?;
        consumer.assign(&at)?;
        let started = Instant::now();
        loop {
            self.poll(Duration::ZERO)?;
            if !self.is_current() {
                return Ok(None);
            }
            match consumer.poll(POLL) {
                Some(Ok(message)) if message.offset() > last => break,
                Some(Ok(message)) => {
                    events.extend(self.event(&message).filter(|_| wanted.contains(message.offset())));
                    if message.offset() == last {
                        break;
                    }
                }
                Some(Err(KafkaError::PartitionEOF(_))) => break,
                Some(Err(error)) => fatal(&error)?,
                None if started.elapsed() > REREAD => return Err(SourceError::Reread),
                None => {}
            }
        }
        Ok(Some(events))
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
