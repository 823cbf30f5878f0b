//! Resolves the schemas of messages in the Confluent wire format before the messages are handed on, so that decoding never waits.
//!
//! A message whose schema cannot be had parks its partition, and only that one, until the registry answers. An id that the
//! registry does not know after [`APPEARS`] is given up: its messages are rejected.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use crate::codec::confluent::SchemaCache;
use crate::codec::registry::RegistryError;
use crate::model::event::{Event, Partition};

/// The time in which an id that the registry does not know may still appear there. Larger: one bad message holds a partition up
/// for longer. Smaller: messages that came faster than their schema are rejected.
const APPEARS: Duration = Duration::from_secs(10);
/// The time between two questions to a registry that does not answer. Larger: partitions wait for longer. Smaller: a registry
/// that is overloaded gets more load.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Resolves ids, and parks messages that cannot be decoded yet.
pub(super) struct Schemas {
    /// By placement: a schema is read by a plan for the places of its fields.
    caches: Vec<Arc<SchemaCache>>,
    runtime: Handle,
    parked: BTreeMap<Partition, Parked>,
    asked: Instant,
}

struct Parked {
    events: Vec<Event>,
    since: Instant,
}

/// A batch, sorted.
#[derive(Default)]
pub(super) struct Sorted {
    /// The events that can be decoded.
    pub(super) ready: Vec<Event>,
    /// Partitions to pause.
    pub(super) parked: Vec<Partition>,
    /// Partitions to resume.
    pub(super) released: Vec<Partition>,
}

impl Schemas {
    pub(super) fn new(caches: Vec<Arc<SchemaCache>>, runtime: Handle) -> Self {
        Self { caches, runtime, parked: BTreeMap::new(), asked: Instant::now() }
    }

    /// The partitions that wait for a schema.
    pub(super) fn parked(&self) -> impl Iterator<Item = Partition> + '_ {
        self.parked.keys().copied()
    }

    /// Drops the parked messages: a new assignment reads them again.
    pub(super) fn forget(&mut self) {
        self.parked.clear();
    }

    /// Drops the parked messages of some partitions: their next owner reads them.
    pub(super) fn give_up(&mut self, partitions: &BTreeSet<Partition>) {
        self.parked.retain(|partition, _| !partitions.contains(partition));
    }

    /// Lets through the messages that can be decoded, in order per partition.
    pub(super) fn sort(&mut self, events: Vec<Event>) -> Sorted {
        let mut sorted = Sorted::default();
        if !self.parked.is_empty() && self.asked.elapsed() >= ASK_AGAIN {
            self.asked = Instant::now();
            for (partition, parked) in std::mem::take(&mut self.parked) {
                self.take(parked.events, parked.since, &mut sorted);
                if !self.parked.contains_key(&partition) {
                    sorted.released.push(partition);
                }
            }
        }
        self.take(events, Instant::now(), &mut sorted);
        sorted
    }

    /// Waits until the schemas of all these events are known or given up: a planned release cannot be made without them.
    pub(super) fn resolve_all(&self, events: &[Event]) {
        let since = Instant::now();
        for event in events {
            while !self.resolves(event, since) {
                std::thread::sleep(ASK_AGAIN);
            }
        }
    }

    fn take(&mut self, events: Vec<Event>, since: Instant, sorted: &mut Sorted) {
        for event in events {
            let partition = event.position.partition;
            if let Some(parked) = self.parked.get_mut(&partition) {
                parked.events.push(event);
            } else if self.resolves(&event, since) {
                sorted.ready.push(event);
            } else {
                self.parked.insert(partition, Parked { events: vec![event], since });
                sorted.parked.push(partition);
            }
        }
    }

    /// True if the event can be decoded now, or never.
    fn resolves(&self, event: &Event, since: Instant) -> bool {
        let Some(cache) = self.caches.get(event.placement) else { return true };
        let Some(id) = event.payload.as_deref().and_then(|payload| cache.needs(payload)) else { return true };
        match self.runtime.block_on(cache.resolve(id)) {
            Ok(()) => true,
            Err(RegistryError::Unknown(_)) if since.elapsed() >= APPEARS => {
                tracing::warn!(id, "the registry does not know this schema: its messages are rejected");
                cache.give_up(id);
                true
            }
            Err(error) => {
                tracing::warn!(id, %error, "a partition waits for its schema");
                false
            }
        }
    }
}
