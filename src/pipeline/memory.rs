//! `limits.memory`: bounds what the process holds.
//!
//! The measure is the resident memory of the process, because windows, waiting records, frequency sets, queues and the buffers of
//! the clients all count. While it is above [`FULL`], nothing begins that takes more, as long as something is under way whose end frees
//! memory: before each batch, [`MemoryLimit::wait`] holds the window stage up for closed windows and releases, and before each search
//! [`MemoryLimit::wait_to_search`] holds the search stage up for releases. Channels then fill, and the source pauses its partitions. What
//! is left is for one window on its way to the output. [`MemoryLimit::share`] bounds what one holder can grow to while nothing else is under
//! way; a window that reaches its share closes early, so there is progress however small the limit is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crate::telemetry::resident_bytes;

/// In percent of the limit: above it nothing more is read. Larger: no room to publish what is closed. Smaller: reading waits often.
const FULL: u64 = 50;
/// The holders that a limit has room for: open windows, waiting records, sets, and each queue, with the several forms that a window
/// takes on its way to the output: together five times its rows. More: windows close earlier than they had to. Fewer: the limit does
/// not hold.
const SHARES: u64 = 24;
/// The pause between two looks. Larger: reading goes on late. Smaller: wakes up more often.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The limit, and whether its use will fall by itself.
#[derive(Debug, Default)]
pub struct MemoryLimit {
    limit: Option<u64>,
    /// Closed windows that are not searched.
    windows: AtomicU64,
    /// Releases that are not finished.
    releases: AtomicU64,
}

impl MemoryLimit {
    /// At most about `limit` bytes; none if the file sets none.
    pub fn new(limit: Option<u64>) -> Self {
        Self { limit, ..Self::default() }
    }

    /// The same limit, with nothing under way.
    pub(super) fn anew(&self) -> Self {
        Self::new(self.limit)
    }

    /// The bytes that one holder may reach, if there is a limit.
    pub fn share(&self) -> Option<usize> {
        self.limit.map(|limit| usize::try_from(limit / SHARES).unwrap_or(usize::MAX))
    }

    /// Waits while memory is short and windows or releases are under way.
    pub(super) fn wait(&self) {
        self.wait_for(|| self.windows.load(Ordering::SeqCst) + self.releases.load(Ordering::SeqCst));
    }

    /// Waits while memory is short and releases are under way.
    pub(super) fn wait_to_search(&self) {
        self.wait_for(|| self.releases.load(Ordering::SeqCst));
    }

    fn wait_for(&self, under_way: impl Fn() -> u64) {
        let Some(limit) = self.limit else { return };
        let full = || resident_bytes().is_some_and(|bytes| bytes > limit / 100 * FULL);
        while under_way() > 0 && full() {
            sleep(LOOK_AGAIN);
        }
    }

    /// A window has closed.
    pub(super) fn closed(&self) {
        self.windows.fetch_add(1, Ordering::SeqCst);
    }

    /// It is searched.
    pub(super) fn searched(&self) {
        self.windows.fetch_sub(1, Ordering::SeqCst);
    }

    /// A release is made.
    pub(super) fn released(&self) {
        self.releases.fetch_add(1, Ordering::SeqCst);
    }

    /// It is published, or discarded.
    pub(super) fn finished(&self) {
        self.releases.fetch_sub(1, Ordering::SeqCst);
    }
}
