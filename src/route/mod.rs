//! `veilstream route`: the stage before `run` that gives every message to the partition of its district, so that instances of `run` do
//! not separate people who are alike.
//!
//! ```text
//!  people ──▶ route ──▶ people-routed [0] [1] [2] [3] ──▶ run, run ──▶ releases
//!               │ ▲
//!               ▼ │ map, outlets of people
//!          people-routed-state
//! ```
//! 1. Until there is a map, the first messages wait for as long as a window is open, at most [`FIRST`]; the map is made of them
//!    ([`district`](crate::district)).
//! 2. Messages are gathered for [`LINGER`], given outlets ([`Dispatcher`]), and published in one transaction with the offsets that they
//!    finish and with what is noted about them ([`kafka::route`](crate::kafka::route)).
//! 3. Once enough records have been looked at, the last map is read again. Another instance's is taken over; one that has become uneven is
//!    moved. A new map holds for records that are not routed yet.
//!
//! Invariants:
//! - A message is in one partition, byte for byte, with its key and time; one that retracts records is in every partition.
//! - With a `subject`, somebody's records go to one partition for as long as they keep coming, whatever the map says by then. That holds
//!   across restarts and take-overs if the input is keyed by the person.
//! - The routed messages of an input partition stand in their order in each partition, so a tombstone follows what it retracts.

mod dispatcher;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinHandle, block_in_place, spawn_blocking};
use tokio::time::Instant;

pub use dispatcher::Dispatcher;

use crate::codec::RecordReader;
use crate::district::{DistrictMap, Sketch};
use crate::kafka::route::state::{Note, StateReader};
use crate::kafka::route::{RouteSink, RoutedMessages};
use crate::model::event::{Event, Partition};
use crate::shutdown::Stop;
use crate::sink::{Delivery, SinkError};
use crate::source::{Source, SourceError, SourceItem};
use crate::telemetry::Telemetry;

/// The time that messages wait for others. Larger: every record comes later. Smaller: more transactions.
const LINGER: Duration = Duration::from_millis(100);
/// The longest time that messages wait for the first map. Larger: the first releases come later. Smaller: the first map is made of fewer
/// records than windows hold.
const FIRST: Duration = Duration::from_secs(30);
/// The bytes of messages that wait for the first map. Larger: costs memory. Smaller: as above, where messages are long.
const FIRST_BYTES: usize = 64 << 20;
/// The messages and the bytes of a batch. Larger: costs memory, and transactions take longer. Smaller: more transactions.
const BATCH_MESSAGES: usize = 8192;
const BATCH_BYTES: usize = 16 << 20;

/// A router that failed.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// Its input.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Its output.
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// Routes what a source reads.
pub struct Router {
    /// Reads the records.
    pub reader: RecordReader,
    /// Decides.
    pub dispatcher: Dispatcher,
    /// Publishes.
    pub sink: RouteSink,
    /// Reads what was noted.
    pub state: Arc<StateReader>,
    /// Counts.
    pub telemetry: Arc<Telemetry>,
    /// How long a window is open.
    pub window: Duration,
    /// A map of ours that no committed batch has told others of yet.
    pub untold: Option<DistrictMap>,
}

/// Messages that wait to be routed.
#[derive(Default)]
struct Waiting {
    epoch: u64,
    events: Vec<Event>,
    bytes: usize,
    due: Option<Instant>,
}

/// A map that is being made or read: none if the one before stays, and whether others have to be told.
type NextMap = JoinHandle<Result<Option<(DistrictMap, bool)>, SourceError>>;

impl Router {
    /// Routes until a stop is asked for; returns how many messages were routed. What waits then is read again.
    pub async fn run<S: Source>(mut self, mut source: S, mut stop: Stop) -> Result<u64, RouteError> {
        let routed = self.route(&mut source, &mut stop).await;
        self.telemetry.set_ready(false);
        block_in_place(|| self.sink.finish());
        routed
    }

    async fn route<S: Source>(&mut self, source: &mut S, stop: &mut Stop) -> Result<u64, RouteError> {
        let (mut waiting, mut routed) = (Waiting::default(), 0);
        let mut next_map: Option<NextMap> = None;
        loop {
            let due = waiting.due;
            let item = tokio::select! {
                () = stop.asked() => return Ok(routed),
                () = until(due), if due.is_some() => None,
                item = source.next() => Some(item?),
            };
            match item {
                Some(SourceItem::Events(events)) => self.wait(&mut waiting, events),
                Some(SourceItem::Held(held)) => {
                    self.wait(&mut waiting, held.into_iter().map(|(event, _)| event).collect());
                }
                Some(SourceItem::Assigned(new)) => {
                    waiting = Waiting { epoch: new.epoch, ..Waiting::default() };
                    self.dispatcher.give_up(|_| true);
                    block_in_place(|| self.learn(&new.partitions.unwrap_or_default()))?;
                    self.telemetry.set_ready(true);
                }
                Some(SourceItem::Added(new)) => block_in_place(|| self.learn(&new.partitions.unwrap_or_default()))?,
                Some(SourceItem::Revoked) => {
                    waiting = Waiting { epoch: waiting.epoch, ..Waiting::default() };
                    self.dispatcher.give_up(|_| true);
                    self.telemetry.set_ready(false);
                }
                Some(SourceItem::GivenUp(gone)) => {
                    routed += self.publish(&mut waiting, &mut next_map).await?;
                    self.dispatcher.give_up(|partition| gone.partitions.contains(&partition));
                    // The poller may have given up waiting.
                    let _ = gone.done.send(());
                }
                // A batch has no plan, and nothing is shown.
                Some(SourceItem::Recalled(_) | SourceItem::Replay(_)) => {}
                Some(SourceItem::End) => return Ok(routed),
                None => routed += self.publish(&mut waiting, &mut next_map).await?,
            }
            if self.is_full(&waiting) {
                routed += self.publish(&mut waiting, &mut next_map).await?;
            }
        }
    }

    fn wait(&self, waiting: &mut Waiting, events: Vec<Event>) {
        self.telemetry.read(events.len());
        let linger = if self.dispatcher.map().is_some() { LINGER } else { self.window.min(FIRST) };
        waiting.due.get_or_insert_with(|| Instant::now() + linger);
        waiting.bytes += events.iter().filter_map(|event| event.payload.as_ref()).map(bytes::Bytes::len).sum::<usize>();
        waiting.events.extend(events);
    }

    fn is_full(&self, waiting: &Waiting) -> bool {
        let (most, bytes) = match self.dispatcher.map() {
            Some(_) => (BATCH_MESSAGES, BATCH_BYTES),
            None => (self.dispatcher.enough(), FIRST_BYTES),
        };
        waiting.events.len() >= most || waiting.bytes >= bytes
    }

    /// Learns the map, and the outlets of the people of partitions that are taken over.
    fn learn(&mut self, partitions: &[Partition]) -> Result<(), SourceError> {
        if let Some(map) = self.state.map()? {
            match self.dispatcher.set_map(map) {
                true => self.untold = None,
                false => {
                    tracing::info!(
                        "the map of districts is of another policy or for other partitions: a new one is made"
                    );
                }
            }
        }
        if !self.dispatcher.knows_people() {
            return Ok(());
        }
        let names: BTreeMap<String, Partition> = partitions.iter().map(|&p| (self.sink.name(p), p)).collect();
        let places =
            names.iter().map(|(name, partition)| (name.clone(), self.sink.state_partition(*partition))).collect();
        let dispatcher = &mut self.dispatcher;
        self.state.homes(&places, |name, person, home| {
            if let Some(&partition) = names.get(name) {
                dispatcher.settle(partition, person, home);
            }
        })
    }

    /// Routes what waits, in one transaction.
    async fn publish(&mut self, waiting: &mut Waiting, next_map: &mut Option<NextMap>) -> Result<u64, RouteError> {
        let epoch = waiting.epoch;
        let Waiting { events, .. } = std::mem::replace(waiting, Waiting { epoch, ..Waiting::default() });
        if events.is_empty() {
            return Ok(0);
        }
        if let Some(map) = self.look_at_map(&events, next_map).await? {
            self.untold = Some(map);
        }
        let mut notes: Vec<Note> = self.untold.clone().map(Note::Map).into_iter().collect();
        let mut messages = Vec::with_capacity(events.len());
        for event in events {
            let partition = event.position.partition;
            let (outlet, home) = self.dispatcher.outlet(&mut self.reader, &event);
            notes.extend(home.map(|(person, home)| Note::Home {
                partition,
                name: self.sink.name(partition),
                person,
                home,
            }));
            messages.push((event, outlet));
        }
        let batch = RoutedMessages { epoch, messages, notes };
        Ok(match block_in_place(|| self.sink.publish(&batch))? {
            Delivery::Published => {
                self.untold = None;
                batch.messages.len() as u64
            }
            Delivery::Discarded => 0,
        })
    }

    /// Sees to it that there is a map; returns one that others have to be told of.
    async fn look_at_map(
        &mut self,
        events: &[Event],
        next_map: &mut Option<NextMap>,
    ) -> Result<Option<DistrictMap>, RouteError> {
        if self.dispatcher.map().is_none() {
            self.dispatcher.came(events.len());
            events.iter().for_each(|event| self.dispatcher.look_at(&mut self.reader, event));
            let map = block_in_place(|| self.dispatcher.take_sketch().divide(self.dispatcher.outlets(), None));
            tracing::info!(
                records = events.len(),
                outlets = self.dispatcher.outlets(),
                "the first map of districts is made"
            );
            self.dispatcher.set_map(map.clone());
            return Ok(Some(map));
        }
        let found = match next_map.take_if(|making| making.is_finished()) {
            Some(made) => made.await.map_err(|_| SourceError::Thread)??,
            None => None,
        };
        if next_map.is_none() && self.dispatcher.is_due() {
            let uneven = self.dispatcher.is_uneven();
            let (sketch, last) = (self.dispatcher.take_sketch(), self.dispatcher.map().cloned());
            let (state, outlets) = (Arc::clone(&self.state), self.dispatcher.outlets());
            *next_map = Some(spawn_blocking(move || next(&state, &sketch, outlets, last, uneven)));
        }
        Ok(found.and_then(|(map, is_ours)| {
            let taken = self.dispatcher.map() != Some(&map) && self.dispatcher.set_map(map.clone());
            if taken {
                tracing::info!("the map of districts has changed");
            }
            (taken && is_ours).then_some(map)
        }))
    }
}

/// The map that others have made, or a new one where the last is uneven.
fn next(
    state: &StateReader,
    sketch: &Sketch,
    outlets: u32,
    last: Option<DistrictMap>,
    uneven: bool,
) -> Result<Option<(DistrictMap, bool)>, SourceError> {
    let noted = state.map()?;
    if noted != last && noted.as_ref().is_some_and(|map| map.outlets == outlets) {
        return Ok(noted.map(|map| (map, false)));
    }
    Ok(uneven.then(|| (sketch.divide(outlets, last.as_ref()), true)))
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
