//! `limits.memory`: bounds what the process holds, by accounts.
//!
//! Each holder has a part of the limit, and takes its bytes there before it holds them:
//!
//! | holder | part | kept by |
//! |---|---|---|
//! | messages fetched ahead | 1/32, and as much unpacked | the queue of Kafka's client |
//! | batches of events on their way to the window, decoded | 1/16 | [`MemoryLimit::batch`]: the source waits |
//! | rows of open windows | 1/32 | [`MemoryLimit::share`]: windows close early |
//! | records that wait for a later release | 1/32 | [`MemoryLimit::share`]: the oldest are suppressed |
//! | frequency sets from one search to the next | 1/32 | [`MemoryLimit::share`]: they are counted again |
//! | rows that the console compares recodings on | 1/32 | [`MemoryLimit::compared`]: a smaller sample |
//! | closed windows, until their releases are finished | 3/8 | [`MemoryLimit::window`]: no further window closes |
//! | rows that wait to be sent | 1/32 | the queue of Kafka's client |
//! | people of earlier releases, with `sequential` | 1/4 | `validate`, which asks for fewer or for more memory |
//!
//! While a holder waits, the channels before it fill, and the source pauses its partitions. Whoever holds something gives its bytes back
//! when it is dropped, so no error path leaves the account short. Something that is larger than a part is let in alone, so there is
//! progress however small the limit is. As what a window takes on its way is an estimate, the resident memory of the process is looked
//! at, too: while it is above [`FULL`], no window closes beside one that is under way.
//!
//! The limit is of what is in use. So that allocators keep little beside it, see `cli/shared/allocators.rs`.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::decoded;
use crate::model::event::Event;
use crate::source::SourceItem;
use crate::telemetry::resident_bytes;
use crate::window::{ClosedWindow, WindowKind};

/// The part of the limit for batches. Larger: less for windows. Smaller: cores wait for batches to decode.
const BATCHES: u64 = 16;
/// Holders like the open windows that a limit has room for. More: windows close earlier than they had to. Fewer: the limit does not hold.
const SHARES: u64 = 32;
/// The part of the limit for closed windows, in percent. Larger: the limit does not hold. Smaller: one window at a time is under way.
const WINDOWS: u64 = 37;
/// How many times its rows a closed window takes: rows, keys and classes of the search, the recoded columns, the count of the gate.
/// Larger: fewer windows are under way. Smaller: the limit does not hold.
const FORMS: usize = 8;
/// In percent of the limit: above it no window closes beside another. Larger: no room for what was estimated too low. Smaller: windows
/// wait that would have room.
const FULL: u64 = 70;
/// The pause between two looks at the resident memory. Larger: windows close late. Smaller: wakes up more often.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// A permit of the semaphore, in bytes.
const PERMIT: usize = 1 << 10;

/// The limit and its accounts.
#[derive(Debug)]
pub struct MemoryLimit {
    limit: Option<u64>,
    /// The bytes that the process has resident.
    resident: fn() -> Option<u64>,
    batches: Option<Arc<Semaphore>>,
    windows: Arc<Windows>,
}

/// The account of closed windows.
#[derive(Debug, Default)]
struct Windows {
    bytes: Mutex<usize>,
    fewer: Condvar,
}

/// Bytes that are taken, until this is dropped.
#[derive(Debug, Default)]
pub(super) struct Room {
    bytes: usize,
    of: Option<Arc<Windows>>,
}

/// A batch's bytes, until this is dropped; `None` without a limit.
pub(super) type BatchRoom = Option<OwnedSemaphorePermit>;

impl MemoryLimit {
    /// At most about `limit` bytes; none if the file sets none.
    pub fn new(limit: Option<u64>) -> Self {
        let batches = limit.map(|limit| Arc::new(Semaphore::new(permits(limit / BATCHES) as usize)));
        Self { limit, resident: resident_bytes, batches, windows: Arc::default() }
    }

    /// The same limit, with nothing under way.
    pub(super) fn anew(&self) -> Self {
        Self::new(self.limit)
    }

    /// The bytes that one holder may reach, if there is a limit.
    pub fn share(&self) -> Option<usize> {
        self.limit.map(|limit| usize::try_from(limit / SHARES).unwrap_or(usize::MAX))
    }

    /// Waits until there is room for the events of an item.
    pub(super) async fn batch(&self, item: &SourceItem) -> BatchRoom {
        let (limit, batches) = (self.limit?, self.batches.as_ref()?);
        let bytes = match item {
            SourceItem::Events(events) => decoded::MAX_BYTES + events.iter().map(held).sum::<usize>(),
            SourceItem::Held(events) => events.iter().map(|(event, _)| held(event)).sum(),
            SourceItem::Replay(replay) => replay.events.iter().map(held).sum(),
            SourceItem::Recalled(recalled) => recalled.events.iter().map(held).sum(),
            _ => return None,
        };
        let wanted = permits(bytes as u64).min(permits(limit / BATCHES));
        Arc::clone(batches).acquire_many_owned(wanted).await.ok()
    }

    /// Waits until there is room for a closed window and its release, with so many tables for audiences.
    pub(super) fn window(&self, window: &ClosedWindow, audiences: usize) -> Room {
        let Some(limit) = self.limit else { return Room::default() };
        let bytes = on_its_way(window, audiences);
        let full = || (self.resident)().is_some_and(|bytes| bytes > limit / 100 * FULL);
        let mut taken = self.windows.bytes();
        while *taken > 0 && (*taken + bytes > part_of_windows(limit) || full()) {
            let waited = self.windows.fewer.wait_timeout(taken, LOOK_AGAIN);
            taken = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *taken += bytes;
        Room { bytes, of: Some(Arc::clone(&self.windows)) }
    }

    /// How many of a window's rows may be released once more beside it, by all recodings in turn: each takes up to twice as much.
    pub(super) fn compared(&self, window: &ClosedWindow) -> usize {
        let rows = window.rows.len();
        self.share().map_or(rows, |share| rows.saturating_mul(share) / (2 * on_its_way(window, 0)).max(share).max(1))
    }
}

impl Windows {
    fn bytes(&self) -> MutexGuard<'_, usize> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(of) = &self.of {
            *of.bytes() -= self.bytes;
            of.fewer.notify_all();
        }
    }
}

fn part_of_windows(limit: u64) -> usize {
    usize::try_from(limit / 100 * WINDOWS).unwrap_or(usize::MAX)
}

/// The bytes of a window and of what is made of it.
fn on_its_way(window: &ClosedWindow, audiences: usize) -> usize {
    let held = match &window.kind {
        WindowKind::Replay(replayed) => replayed.held.bytes(),
        _ => window.held.bytes(),
    };
    let others = size_of_val(&window.rejected[..]) + size_of_val(&window.suppressed[..]) + window.tombstones.bytes();
    (FORMS + audiences) * (window.rows.bytes() + held) + others
}

/// The bytes of an event and its payload.
fn held(event: &Event) -> usize {
    size_of::<Event>() + event.payload.as_ref().map_or(0, bytes::Bytes::len)
}

fn permits(bytes: u64) -> u32 {
    u32::try_from(bytes / PERMIT as u64).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::encode::Dictionaries;
    use crate::model::batch::{Row, Rows};
    use crate::model::counting::Counting;
    use crate::model::event::{Millis, Position};

    const LIMIT: u64 = 64 << 20;

    /// The limit in a process that holds nothing else: other tests run in this one.
    fn limited() -> MemoryLimit {
        MemoryLimit { resident: || Some(0), ..MemoryLimit::new(Some(LIMIT)) }
    }

    /// A window whose way takes about so many bytes.
    fn window(bytes: usize) -> ClosedWindow {
        let mut rows = Rows::new(0, 0);
        let row = Row { kept: "x".repeat(1 << 16), ..Row::default() };
        for at in 0.. {
            if rows.bytes() * FORMS >= bytes {
                break;
            }
            rows.push(Position::new(0, at), Millis(0), &row);
        }
        let counting = Counting { subjects: false, facets: Vec::new(), of_subjects: Vec::new() };
        let mut window = ClosedWindow::empty(Millis(0), Dictionaries::default(), counting).unwrap();
        window.rows = Arc::new(rows);
        window
    }

    #[test]
    fn windows_share_their_part_of_the_limit() {
        let memory = limited();
        let half = window(part_of_windows(LIMIT) / 5 * 2);
        let both = [memory.window(&half, 0), memory.window(&half, 0)];
        assert_eq!(*memory.windows.bytes(), 2 * on_its_way(&half, 0));
        drop(both);
        assert_eq!(*memory.windows.bytes(), 0);
        let large = window(LIMIT as usize);
        let _alone = memory.window(&large, 0);
        assert!(memory.compared(&large) < large.rows.len() / 20, "the console takes a sample");
        assert_eq!(MemoryLimit::new(None).compared(&large), large.rows.len());
    }

    #[test]
    fn a_window_waits_for_the_ones_before_it() {
        let memory = limited();
        let most = window(part_of_windows(LIMIT) / 4 * 3);
        let first = memory.window(&most, 0);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| memory.window(&most, 0));
            assert_eq!(*memory.windows.bytes(), on_its_way(&most, 0));
            drop(first);
            assert_eq!(second.join().unwrap().bytes, on_its_way(&most, 0));
        });
    }

    #[test]
    fn no_window_closes_beside_another_while_memory_is_short() {
        static RESIDENT: AtomicU64 = AtomicU64::new(LIMIT);
        let memory = MemoryLimit { resident: || Some(RESIDENT.load(Ordering::SeqCst)), ..limited() };
        let small = window(1);
        let _first = memory.window(&small, 0);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| memory.window(&small, 0));
            assert_eq!(*memory.windows.bytes(), on_its_way(&small, 0));
            RESIDENT.store(0, Ordering::SeqCst);
            assert_eq!(second.join().unwrap().bytes, on_its_way(&small, 0));
        });
    }

    #[tokio::test]
    async fn batches_wait_for_those_that_are_decoded() {
        let memory = limited();
        let event = |bytes| Event {
            position: Position::new(0, 0),
            placement: 0,
            timestamp: None,
            key: None,
            payload: Some(vec![0; bytes].into()),
        };
        let batch = |bytes| SourceItem::Events(vec![event(bytes)]);
        let large = memory.batch(&batch(LIMIT as usize)).await;
        let small = batch(1);
        let mut next = std::pin::pin!(memory.batch(&small));
        assert!(asked_once(&mut next).await.is_none(), "the large one is alone");
        drop(large);
        assert!(next.await.is_some());
        assert!(MemoryLimit::new(None).batch(&small).await.is_none(), "there is no limit");
    }

    /// The result of a future that is asked once.
    async fn asked_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        use std::task::Poll;
        std::future::poll_fn(|context| {
            Poll::Ready(match std::pin::Pin::new(&mut *future).poll(context) {
                Poll::Ready(output) => Some(output),
                Poll::Pending => None,
            })
        })
        .await
    }
}
