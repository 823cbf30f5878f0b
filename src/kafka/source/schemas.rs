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
    /// The time at which the registry last did not answer. Until it is asked again, nothing more is asked: each question takes seconds.
    away: Option<Instant>,
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
        Self { caches, runtime, parked: BTreeMap::new(), asked: Instant::now(), away: None }
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

    /// True if the schemas of all these events are known, or given up after they were waited for `since` then.
    pub(super) fn resolve(&mut self, events: &[Event], since: Instant) -> bool {
        events.iter().all(|event| self.resolves(event, since))
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
    fn resolves(&mut self, event: &Event, since: Instant) -> bool {
        let Some(cache) = self.caches.get(event.placement) else { return true };
        let Some(id) = event.payload.as_deref().and_then(|payload| cache.needs(payload)) else { return true };
        if self.away.is_some_and(|at| at.elapsed() < ASK_AGAIN) {
            return false;
        }
        let answer = self.runtime.block_on(cache.resolve(id));
        self.away = matches!(answer, Err(RegistryError::Unavailable { .. })).then(Instant::now);
        match answer {
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::codec::registry::Registry;
    use crate::codec::schemas::SchemaLanguage;
    use crate::model::event::Position;
    use crate::model::schema::{Role, Schema};

    fn event(partition: u32, schema: u8) -> Event {
        let payload = Some(vec![0, 0, 0, 0, schema, 2].into());
        Event { position: Position::new(partition, 0), placement: 0, timestamp: None, key: None, payload }
    }

    #[test]
    fn a_registry_that_is_away_is_asked_once_for_all_partitions_that_wait() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicUsize::new(0));
        let heard = Arc::clone(&asked);
        // Hangs up on everybody.
        std::thread::spawn(move || {
            listener.incoming().for_each(|caller| {
                heard.fetch_add(1, Ordering::SeqCst);
                drop(caller);
            });
        });
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let schema = Schema::new([("age", Role::Quasi)]);
        let cache = Arc::new(SchemaCache::new(Registry::new(&url, None), SchemaLanguage::Avro, &schema));
        let one = |ids: &[u8]| {
            let mut schemas = Schemas::new(vec![Arc::clone(&cache)], runtime.handle().clone());
            let events = ids.iter().zip(0..).map(|(id, partition)| event(partition, *id)).collect();
            let before = asked.load(Ordering::SeqCst);
            let sorted = schemas.sort(events);
            assert!(sorted.ready.is_empty() && sorted.parked.len() == ids.len(), "each of them waits");
            asked.load(Ordering::SeqCst) - before
        };
        let once = one(&[1]);
        assert!(once > 0 && one(&[1, 2, 3, 4]) == once);
    }
}
