//! Routed records: messages of the input, byte for byte, in the partitions of another topic, exactly once.
//!
//! A batch of messages, what is noted about the people in them, and the offsets that it finishes are one transaction
//! ([`exactly_once`]): the sessions, fences and take-overs are those of releases. A batch needs no plan. It is made of records that are in
//! the input, so a copy of it that is aborted says nothing that the input does not, and another owner may route its records otherwise.
//!
//! - [`state`]: the compacted topic with the map and the outlets of people.

pub mod state;

use std::sync::Arc;

use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::BaseRecord;

use super::client::{Cluster, KafkaSinkConfig, RouteTopics};
use super::progress::partition::CarriedOver;
use super::rebalance::GroupConsumer;
use super::session::Session;
use super::sink::create;
use super::sink::fault::Fault;
use super::sink::transactor::{Attempt, Commits, Transactor, exactly_once};
use crate::failpoint::step;
use crate::model::event::{Event, Partition};
use crate::model::release::spans::Spans;
use crate::sink::{Delivery, SinkError};
use state::Note;

/// The header that names the place of a routed message in the input: topic, partition and offset.
pub const FROM_HEADER: &str = "veilstream-from";

/// The partitions that a message goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlet {
    /// This one.
    One(u32),
    /// All: it retracts records that may be in any of them.
    All,
}

/// Messages of one epoch and their outlets.
#[derive(Default)]
pub struct RoutedMessages {
    /// The assignment in which they were read.
    pub epoch: u64,
    /// The messages.
    pub messages: Vec<(Event, Outlet)>,
    /// What is noted with them.
    pub notes: Vec<Note>,
}

/// Publishes batches.
pub struct RouteSink {
    transactor: Transactor,
    topics: RouteTopics,
    outlets: u32,
    state_partitions: i32,
}

impl RouteSink {
    /// Takes the transactional id over, which fences the instance that had it before; finds the topics, or makes them.
    pub fn open(
        config: KafkaSinkConfig,
        session: Arc<Session>,
        consumer: Arc<GroupConsumer>,
        topics: RouteTopics,
    ) -> Result<Self, SinkError> {
        let transactor = Transactor::open(config, session, consumer)?;
        let Transactor { config, session, consumer, transactions, .. } = &transactor;
        if config.create_topics {
            create::route_topics(config, session, consumer, &topics)?;
        }
        let outlets = transactions.partitions(&topics.routed)? as u32;
        let state_partitions = transactions.partitions(&topics.state)?;
        Ok(Self { outlets, state_partitions, transactor, topics })
    }

    /// How many partitions the routed topic has.
    pub fn outlets(&self) -> u32 {
        self.outlets
    }

    /// The cluster of the topics.
    pub fn cluster(&self) -> &Cluster {
        &self.transactor.config.cluster
    }

    /// The partition of the state topic for what is noted about the people of a partition of the input.
    pub fn state_partition(&self, partition: Partition) -> i32 {
        let place = self.transactor.session.topics.place(partition);
        place.map_or(0, |(_, number)| state::of_partition(number, self.state_partitions))
    }

    /// The name of a partition of the input.
    pub fn name(&self, partition: Partition) -> String {
        let place = self.transactor.session.topics.place(partition);
        place.map_or_else(String::new, |(topic, number)| format!("{topic}/{number}"))
    }

    /// Publishes a batch: all of it, or nothing.
    pub fn publish(&mut self, batch: &RoutedMessages) -> Result<Delivery, SinkError> {
        let finished = Spans::covering(batch.messages.iter().map(|(event, _)| event.position));
        exactly_once(&mut RoutedBatch { sink: self, batch, finished })
    }

    /// Called once after the last batch.
    pub fn finish(&mut self) {
        let session = Arc::clone(&self.transactor.session);
        session.judge_name(|lost| self.transactor.owns_id(lost));
    }
}

impl Drop for RouteSink {
    fn drop(&mut self) {
        self.transactor.session.finish();
    }
}

/// A batch on its way out.
struct RoutedBatch<'b> {
    sink: &'b mut RouteSink,
    batch: &'b RoutedMessages,
    finished: Spans,
}

impl Attempt for RoutedBatch<'_> {
    const WHAT: &'static str = "a batch of routed records";

    fn transactor(&mut self) -> &mut Transactor {
        &mut self.sink.transactor
    }

    fn epoch(&self) -> u64 {
        self.batch.epoch
    }

    fn produce(&mut self) -> Result<(), Fault> {
        for (event, outlet) in &self.batch.messages {
            let outlets = match *outlet {
                Outlet::One(outlet) => outlet..outlet + 1,
                Outlet::All => 0..self.sink.outlets,
            };
            outlets.into_iter().try_for_each(|outlet| self.sink.send(event, outlet as i32))?;
        }
        step("produced");
        for note in &self.batch.notes {
            let (key, text) = (note.key(), note.text());
            let partition = note.home().map_or(state::MAP_PARTITION, |partition| self.sink.state_partition(partition));
            let record = BaseRecord::<[u8], [u8]>::to(&self.sink.topics.state).key(key.as_bytes());
            self.sink.transactor.transactions.send(record.payload(text.as_bytes()).partition(partition))?;
        }
        Ok(())
    }

    fn after(&self) -> Result<Commits, Fault> {
        let commits = self.sink.transactor.session.progress(|progress| {
            let after =
                |(partition, _)| Some((partition, progress.after(partition, &self.finished, CarriedOver::default())?));
            self.finished.iter().map(after).collect()
        });
        commits.flatten().ok_or(Fault::Stale)
    }

    fn committed(&mut self) {
        let finished = &self.finished;
        self.sink.transactor.session.progress(|progress| progress.finish(finished, CarriedOver::default()));
    }
}

impl RouteSink {
    fn send(&mut self, event: &Event, outlet: i32) -> Result<(), Fault> {
        let from = format!("{}/{}", self.name(event.position.partition), event.position.offset.0);
        let headers = OwnedHeaders::new().insert(Header { key: FROM_HEADER, value: Some(&from) });
        let mut record = BaseRecord::<[u8], [u8]>::to(&self.topics.routed).partition(outlet).headers(headers);
        if let Some(key) = &event.key {
            record = record.key(key);
        }
        if let Some(payload) = &event.payload {
            record = record.payload(payload);
        }
        if let Some(time) = event.timestamp {
            record = record.timestamp(time.0);
        }
        self.transactor.transactions.send(record)
    }
}
