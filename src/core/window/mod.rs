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

/// The windows of one lane that are open now.
enum Windows {
    /// One after the other.
    Tumbling(Box<Tumbling>),
    /// One that moves on.
    Sliding(Box<Sliding>),
}

impl Windows {
    /// No window open yet.
    fn new(rules: &WindowRules, counting: SharedCounting) -> Self {
        match rules {
            WindowRules::Tumbling(rules) => Self::Tumbling(Box::new(Tumbling::new(rules.clone(), counting))),
            WindowRules::Sliding(rules) => Self::Sliding(Box::new(Sliding::new(rules.clone(), counting))),
        }
    }

    /// Where a log must say what is still to be done: closes windows together rather than leave more runs of records open
    /// among closed ones.
    #[must_use]
    fn within(mut self, runs: usize) -> Self {
        if let Self::Tumbling(windows) = &mut self {
            windows.within(runs);
        }
        self
    }

    /// Keeps at most so many bytes of frequency sets.
    #[must_use]
    fn remembering(mut self, bytes: usize) -> Self {
        match &mut self {
            Self::Tumbling(windows) => windows.remembering(bytes),
            Self::Sliding(window) => window.remembering(bytes),
        }
        self
    }

    /// Bytes held by the rows of open windows.
    fn bytes(&self) -> usize {
        match self {
            Self::Tumbling(windows) => windows.bytes(),
            Self::Sliding(window) => window.bytes(),
        }
    }

    /// Makes the open windows hold less, whatever the rules say: closes the largest, or lets the oldest rows leave before their time.
    fn relieve(&mut self, now: Millis, encoder: &Encoder) -> Result<Option<ClosedWindow>, TooWide> {
        match self {
            Self::Tumbling(windows) => windows.relieve(now, encoder),
            Self::Sliding(window) => window.relieve(now, encoder),
        }
    }

    /// Takes the record at `position`, which `encoder` encoded last.
    fn add(&mut self, encoder: &Encoder, position: Position, now: Millis, encoded: Encoded) -> Result<(), TooWide> {
        match self {
            Self::Tumbling(windows) => windows.add(encoder, position, now, encoded),
            Self::Sliding(window) => window.add(encoder, position, now, encoded),
        }
    }

    /// A window that is due at `now`, oldest first; `None` when none is.
    fn due(&mut self, now: Millis, encoder: &Encoder) -> Result<Option<ClosedWindow>, TooWide> {
        match self {
            Self::Tumbling(windows) => windows.due(now, encoder),
            Self::Sliding(window) => window.due(now, encoder),
        }
    }

    /// An open window, whatever the rules say; `None` when none is left.
    fn drain(&mut self, now: Millis, encoder: &Encoder) -> Result<Option<ClosedWindow>, TooWide> {
        match self {
            Self::Tumbling(windows) => windows.drain(now, encoder),
            Self::Sliding(window) => window.drain(now, encoder),
        }
    }

    /// Removes all records of some partitions, and counts them. A sliding window cannot: its next snapshot would show who left.
    fn give_up(&mut self, partitions: &BTreeSet<Partition>) -> usize {
        match self {
            Self::Tumbling(windows) => windows.give_up(partitions),
            Self::Sliding(_) => 0,
        }
    }

    /// Records in open windows.
    fn len(&self) -> usize {
        match self {
            Self::Tumbling(windows) => windows.len(),
            Self::Sliding(window) => window.len(),
        }
    }

    /// Messages of which no closed window has had a record.
    fn unclosed(&self) -> usize {
        match self {
            Self::Tumbling(windows) => windows.messages() as usize,
            Self::Sliding(window) => window.unclosed(),
        }
    }

    /// When the oldest open window got its first record, or last moved on.
    fn opened(&self) -> Option<Millis> {
        match self {
            Self::Tumbling(windows) => windows.opened(),
            Self::Sliding(window) => window.opened(),
        }
    }

    /// After [`Windows::due`] found nothing: the records that leave it so at that time; `None` if the next one may change it.
    fn records_until_due(&self) -> Option<usize> {
        match self {
            Self::Tumbling(windows) => windows.records_until_due(),
            Self::Sliding(_) => None,
        }
    }

    /// When [`Windows::due`] should be asked again by the clock, if nothing arrives before.
    fn next_due(&self) -> Option<Millis> {
        match self {
            Self::Tumbling(windows) => windows.next_due(),
            Self::Sliding(window) => window.next_due(),
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
