//! Records that are read again by position: those of a plan, so that the same release is made of them, and those that the
//! last releases show, where the next ones must know.
//!
//! The group's consumer is polled meanwhile, so the group is kept. Deliberately absent: any waiting for records that are not
//! there any more; a plan that cannot be read again is an error, and for what was shown `on_gap` says what it is.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset as KafkaOffset, TopicPartitionList};

use super::{POLL, Poller, fatal};
use crate::failpoint::{defect, step};
use crate::kafka::client::{self, OnGap};
use crate::kafka::journal::{self, Entry};
use crate::kafka::metadata::PlanPart;
use crate::kafka::runs::Runs;
use crate::kafka::session::{ASK, Found, patiently};
use crate::model::event::{Event, Partition};
use crate::model::release::plan::ReleasePlan;
use crate::model::release::spans::Spans;
use crate::source::{Recalled, Replay, SourceError, SourceItem};

/// How long reading one partition's records again may take.
const REREAD: Duration = Duration::from_secs(60);

impl Poller {
    /// Reads the records of a plan again, by position. None if the assignment is gone meanwhile.
    pub(super) fn reread(&mut self, members: &[Found]) -> Result<Option<Replay>, SourceError> {
        let parts: Vec<(Partition, &PlanPart)> =
            members.iter().filter_map(|m| Some((m.partition, m.state.plan.as_ref()?))).collect();
        let part = parts.first().map(|(_, part)| *part).ok_or(SourceError::Reread)?;
        let spans = |runs: fn(&PlanPart) -> &Runs| {
            let needed = |m: &Found| Some(m.state.needed(runs(m.state.plan.as_ref()?)).spans().collect());
            Spans::from_runs(members.iter().filter_map(|m| Some((m.partition, needed(m)?))))
        };
        let (fresh, held, refused) = (spans(|p| &p.fresh), spans(|p| &p.held), spans(|p| &p.refused));
        let consumer: BaseConsumer = client::plain_consumer(&self.config).create()?;
        step("rereading");
        let mut shown: Option<Spans> = None;
        if let Some(entry) = part.journal {
            let Some(found) = self.entry(entry)? else { return Ok(None) };
            shown = Some(found.ok_or(SourceError::Reread)?.shown);
        }
        let mut events: Vec<Event> = Vec::new();
        for (partition, _) in &parts {
            let (fresh, held) = (fresh.of(*partition), held.of(*partition));
            let mut wanted = Runs::from_spans(fresh);
            let again = shown.iter().flat_map(|shown| shown.of(*partition));
            held.iter().chain(again).for_each(|span| wanted.insert(span.first.0, span.last.0));
            let Some(records) = self.records(&consumer, *partition, &wanted)? else { return Ok(None) };
            let mut found = Runs::default();
            records.iter().for_each(|e| found.insert(e.position.offset.0, e.position.offset.0));
            self.session.progress().reread(*partition, &found);
            events.extend(records);
        }
        if let Some(schemas) = &self.schemas {
            schemas.settle(&events);
        }
        let plan = ReleasePlan {
            id: part.id,
            levels: part.levels.clone(),
            closed: Some(part.closed),
            fingerprint: part.fingerprint.clone(),
            schema: part.schema,
            fresh,
            held,
            refused,
            shown,
            journal: part.journal,
        };
        Ok(Some(Replay { plan, events }))
    }

    /// Sends what the last releases show of these partitions; false if the pipeline or the assignment is gone.
    pub(super) fn recall(&mut self, found: &[(Partition, Vec<i64>)]) -> Result<bool, SourceError> {
        let Some(topic) = self.journal.clone().filter(|_| !defect("forgetful")) else { return Ok(true) };
        // Of a release that several partitions were in, the latest count is right: it is out of sight when it is for all.
        let mut entries: BTreeMap<i64, (usize, Vec<Partition>)> = BTreeMap::new();
        for (partition, journal) in found {
            for (later, entry) in journal.iter().rev().enumerate() {
                let known = entries.entry(*entry).or_insert((later, Vec::new()));
                known.0 = known.0.min(later);
                known.1.push(*partition);
            }
        }
        if entries.is_empty() {
            return Ok(true);
        }
        self.pause(true);
        let sent = self.recall_entries(&topic, entries);
        self.pause(false);
        sent
    }

    fn recall_entries(
        &mut self,
        topic: &str,
        entries: BTreeMap<i64, (usize, Vec<Partition>)>,
    ) -> Result<bool, SourceError> {
        let consumer: BaseConsumer = client::plain_consumer(&self.config).create()?;
        step("recalling");
        for (at, (later, partitions)) in entries {
            let Some(entry) = self.entry(at)? else { return Ok(false) };
            let Some(entry) = entry else {
                self.forgotten(topic, 1)?;
                continue;
            };
            let mut events: Vec<Event> = Vec::new();
            for (partition, spans) in entry.shown.iter() {
                let Some(records) = self.records(&consumer, partition, &Runs::from_spans(spans))? else {
                    return Ok(false);
                };
                events.extend(records);
            }
            let missing = entry.shown.count() - events.len() as u64;
            if missing > 0 {
                let names = entry.shown.iter().filter_map(|(p, _)| self.session.topics.place(p).map(|(name, _)| name));
                let name = names.last().unwrap_or_default().to_owned();
                self.forgotten(&name, missing)?;
            }
            if let Some(schemas) = &self.schemas {
                schemas.settle(&events);
            }
            let Entry { levels, fingerprint, .. } = entry;
            let recalled = Recalled { partitions, later, levels, fingerprint, events };
            if !self.send(SourceItem::Recalled(Box::new(recalled)))? || self.epoch != self.session.epoch() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The journal's entry, if it is there. None if the assignment is gone meanwhile.
    fn entry(&mut self, at: i64) -> Result<Option<Option<Entry>>, SourceError> {
        let Some(topic) = self.journal.clone() else {
            return Ok(Some(None));
        };
        let session = std::sync::Arc::clone(&self.session);
        let consumer: BaseConsumer = client::journal_consumer(&self.config).create()?;
        let read = journal::read(&consumer, &topic, at, &session.topics, || {
            self.take(Duration::ZERO)?;
            if self.epoch == self.session.epoch() { Ok(()) } else { Err(SourceError::Reread) }
        });
        if self.epoch == self.session.epoch() { read.map(Some) } else { Ok(None) }
    }

    /// Something that a release has shown cannot be read again: nobody can tell any more who it was.
    fn forgotten(&self, topic: &str, missing: u64) -> Result<(), SourceError> {
        if self.session.on_gap == OnGap::Stop {
            return Err(SourceError::Forgotten { topic: topic.to_owned(), missing });
        }
        tracing::warn!(topic, missing, "what an earlier release has shown is not in the log any more");
        Ok(())
    }

    /// The records at these offsets that are still there. None if the assignment is gone meanwhile.
    fn records(
        &mut self,
        consumer: &BaseConsumer,
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
            self.take(Duration::ZERO)?;
            if self.epoch != self.session.epoch() {
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
