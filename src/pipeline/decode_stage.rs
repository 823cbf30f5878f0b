//! The decode stage: events to records on several cores, between the source and the window stage.
//!
//! ```text
//!   source ── batch, Assigned, batch, batch ──> the first channel ──> window stage
//!               └ each batch is decoded on a thread of its own ┘  └ awaits each batch in its turn
//! ```
//! A batch of events goes through the channel as the task that decodes it, every other item as it is. So the window stage takes all
//! items in the order of the source and encodes the records on its one thread: codes, releases and replays are the same on any number
//! of cores. The bound of the channel also bounds how many batches are decoded or wait decoded, each of at most so many bytes.
//!
//! On one core nothing is decoded ahead, and the window stage decodes the events itself, as it does with events that are rare: held
//! records, replays, and the first records of a placement, whose fields are surveyed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::{JoinHandle, spawn_blocking};

use super::decoded::{Decoder, EventBatch};
use crate::codec::RecordReader;
use crate::model::event::Event;
use crate::source::SourceItem;

/// The smallest batch that is decoded ahead. Larger: a stream that comes in small batches stays on one core. Smaller: to hand a batch to
/// another thread takes longer than to decode it.
const SMALLEST_BATCH: usize = 64;

/// An item on its way to the window stage.
pub(super) enum Upcoming {
    /// A batch of events that is being decoded.
    Decoding(JoinHandle<EventBatch>),
    /// Any other item, and events that are not decoded ahead.
    Item(SourceItem),
}

/// The decoders, shared by the decode stage, which takes them, and the window stage, which gives them back.
pub(super) struct Decoders {
    /// Those that no batch has at present. All of them read a payload alike: what one learns from payloads makes it faster, and
    /// nothing else.
    idle: Mutex<Vec<Decoder>>,
    /// By placement, whether the window stage surveys the fields of its payloads and so reads them itself.
    surveyed: Vec<AtomicBool>,
}

impl Decoders {
    /// For so many placements, all of which are surveyed.
    pub(super) fn new(placements: usize) -> Arc<Self> {
        let surveyed = (0..placements).map(|_| AtomicBool::new(true)).collect();
        Arc::new(Self { idle: Mutex::default(), surveyed })
    }

    /// Tells by placement which ones are surveyed from now on.
    pub(super) fn survey(&self, placements: impl Iterator<Item = bool>) {
        for (surveyed, now) in self.surveyed.iter().zip(placements) {
            surveyed.store(now, Ordering::Relaxed);
        }
    }

    /// Takes the decoder of a batch back, so that its memory is used again.
    pub(super) fn give_back(&self, batch: EventBatch) {
        self.idle().extend(batch.into_decoder());
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Decoder>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the decoding of batches.
pub(super) struct DecodeStage {
    readers: Vec<RecordReader>,
    decoders: Arc<Decoders>,
    /// False on one core.
    ahead: bool,
}

impl DecodeStage {
    /// Decodes with readers like these, on so many cores.
    pub(super) fn new(readers: &[RecordReader], decoders: Arc<Decoders>, cores: usize) -> Self {
        Self { readers: readers.iter().map(RecordReader::another).collect(), decoders, ahead: cores > 1 }
    }

    /// Starts to decode the events of an item.
    pub(super) fn start(&self, item: SourceItem) -> Upcoming {
        match item {
            SourceItem::Events(events) if self.decodes(&events) => {
                let decoder = self.decoders.idle().pop().unwrap_or_else(|| Decoder::new(&self.readers));
                Upcoming::Decoding(spawn_blocking(move || decoder.decode(events)))
            }
            item => Upcoming::Item(item),
        }
    }

    fn decodes(&self, events: &[Event]) -> bool {
        let surveyed = &self.decoders.surveyed;
        let surveyed = |event: &Event| surveyed.get(event.placement).is_some_and(|of| of.load(Ordering::Relaxed));
        self.ahead && events.len() >= SMALLEST_BATCH && !events.iter().any(surveyed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::Position;
    use crate::model::schema::{Role, Schema};

    fn stage(cores: usize) -> DecodeStage {
        let reader = RecordReader::json(&Schema::new([("age", Role::Quasi)]), 1000);
        let decoders = Decoders::new(2);
        decoders.survey([true, false].into_iter());
        DecodeStage::new(&[reader.another(), reader], decoders, cores)
    }

    fn events(count: usize, placement: usize) -> SourceItem {
        let payload = Some(bytes::Bytes::from_static(b"{\"age\":1}"));
        let event = Event { position: Position::new(0, 0), placement, timestamp: None, key: None, payload };
        SourceItem::Events(vec![event; count])
    }

    #[tokio::test]
    async fn batches_are_decoded_ahead_where_that_helps() {
        let ahead = |cores, count, placement| match stage(cores).start(events(count, placement)) {
            Upcoming::Decoding(batch) => Some(batch),
            Upcoming::Item(_) => None,
        };
        let batch = ahead(2, SMALLEST_BATCH, 1).expect("decoded ahead").await.unwrap();
        assert_eq!(batch.len(), SMALLEST_BATCH);
        assert!(ahead(1, SMALLEST_BATCH, 1).is_none(), "there is no other core");
        assert!(ahead(2, SMALLEST_BATCH - 1, 1).is_none(), "it is too small");
        assert!(ahead(2, SMALLEST_BATCH, 0).is_none(), "the window stage needs the payloads");
        assert!(ahead(2, SMALLEST_BATCH, 2).is_some(), "the window stage rejects it in its place");
        assert!(matches!(stage(2).start(SourceItem::Revoked), Upcoming::Item(SourceItem::Revoked)));
    }
}
