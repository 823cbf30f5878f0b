//! Windows: rows gather in an [`OpenWindow`] until a rule closes it into a [`ClosedWindow`].
//!
//! Time is an argument. Nothing is counted while a window fills, so that a buffered record takes its codes and little more. A record
//! is in exactly one tumbling window; a sliding one is a single window that rows enter and leave.

mod event_time;
mod lanes;
mod open;
mod sliding;
mod tumbling;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

pub use lanes::{Lanes, Scope};
pub use open::{ClosedWindow, OpenWindow, Replayed, Slide, WindowKind};
pub use sliding::{SlideRules, Sliding};
pub use tumbling::Tumbling;

use crate::encode::{Encoded, Encoder};
pub use crate::frequency::counter::DEFAULT_WARM_MEMORY;
use crate::model::event::{Millis, Partition, Position};
use crate::model::words;

/// A window's number, counted from the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WindowId(pub u64);

/// When a tumbling window closes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloseRules {
    /// At this many records, rejected ones included.
    pub max_records: usize,
    /// At this age of its first record by the clock.
    pub max_age: Duration,
    /// At event-time boundaries.
    pub event_time: Option<EventTime>,
}

/// Event-time windows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventTime {
    /// The length of a window.
    pub size: Duration,
    /// How long a window waits for records that come late.
    pub allowed_lateness: Duration,
}

/// Which windows there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WindowRules {
    /// One after the other.
    Tumbling(CloseRules),
    /// One that moves on.
    Sliding(SlideRules),
}

/// The windows of one lane that are open now: [`Tumbling`] or [`Sliding`] ones.
pub trait Windows: Send {
    /// Closes windows together whose records are so interleaved that more runs than this would be left open among closed ones: where a
    /// log must say what is still to be done, it has no room for more. A sliding window is alone.
    fn within(&mut self, _runs: usize) {}
    /// Keeps at most so many bytes of frequency sets.
    fn remembering(&mut self, bytes: usize);
    /// Takes the record at `position`, which `encoder` encoded last. Ask [`Windows::due`] next.
    fn add(&mut self, encoder: &Encoder, position: Position, now: Millis, encoded: Encoded) -> Result<(), TooWide>;
    /// A window that is due at `now`, oldest first; `None` when none is.
    fn due(&mut self, now: Millis, encoder: &Encoder) -> Result<Option<ClosedWindow>, TooWide>;
    /// Makes the open windows hold less, whatever the rules say: closes the largest, or lets the oldest rows leave before their time.
    fn relieve(&mut self, now: Millis, encoder: &Encoder) -> Result<Option<ClosedWindow>, TooWide>;
    /// An open window, whatever the rules say; `None` when none is left.
    fn drain(&mut self, now: Millis, encoder: &Encoder) -> Result<Option<ClosedWindow>, TooWide>;
    /// Removes all records of some partitions, and counts their messages. A sliding window cannot: its next snapshot would show who left.
    fn give_up(&mut self, _partitions: &BTreeSet<Partition>) -> usize {
        0
    }
    /// Bytes held by the records of open windows.
    fn bytes(&self) -> usize;
    /// Records in open windows, rejected and suppressed ones included.
    fn len(&self) -> usize;
    /// True if there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Messages of which no closed window has had a record.
    fn unclosed(&self) -> usize;
    /// When the oldest open window got its first record, or last moved on.
    fn opened(&self) -> Option<Millis>;
    /// When [`Windows::due`] should be asked again by the clock, if nothing arrives before.
    fn next_due(&self) -> Option<Millis>;
    /// After [`Windows::due`] found nothing: the records that leave it so at that time; `None` if the next one may change it.
    fn records_until_due(&self) -> Option<usize> {
        None
    }
}

impl WindowRules {
    /// No window open yet.
    fn open(&self, counting: SharedCounting) -> Box<dyn Windows> {
        match self {
            Self::Tumbling(rules) => Box::new(Tumbling::new(rules.clone(), counting)),
            Self::Sliding(rules) => Box::new(Sliding::new(rules.clone(), counting)),
        }
    }
}

words! {
    /// Why a window closed.
    pub enum CloseReason {
        /// `max_records`.
        Full = "full",
        /// `max_age`.
        Aged = "aged",
        /// The watermark passed its end.
        EventTime = "event_time",
        /// All windows together held as much as they may.
        Memory = "memory",
        /// The input ended, or the service was told to stop.
        Drained = "drained",
        /// Records waited too long; no window closed at all.
        Waited = "waited",
        /// It had closed before a crash, and its release is made again.
        Replayed = "replayed",
        /// It has moved on by its slide.
        Slid = "slid",
    }
}

/// Fewer bits than this many codes are never planned for an attribute that can still grow: a larger headroom wastes key
/// bits, a smaller one means counting a window again more often.
const HEADROOM: usize = 64;

fn layout_sizes(sizes: &[usize]) -> Vec<usize> {
    sizes.iter().map(|s| s * 2 + HEADROOM).collect()
}

fn age(now: Millis, since: Millis) -> Duration {
    Duration::from_millis(now.0.saturating_sub(since.0).max(0) as u64)
}

/// The error of a policy whose class keys are wider than any key type.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the quasi-identifiers have too many different values to count together; use fewer, or coarser hierarchies")]
pub struct TooWide;

/// The counts of a window, shared by all of a run.
pub type SharedCounting = Arc<crate::model::counting::Counting>;
