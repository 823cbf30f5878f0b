//! Windows: rows gather in an [`OpenWindow`] until a rule closes it into a [`ClosedWindow`].
//!
//! Time is an argument. Frequency sets are kept up to date while the window fills, so that a search can start the moment
//! it closes. A record is in exactly one window.

mod open;
mod tumbling;

use std::sync::Arc;
use std::time::Duration;

pub use open::{ClosedWindow, OpenWindow, Replayed};
pub use tumbling::Tumbling;

use crate::model::event::Millis;

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

/// Why a window closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CloseReason {
    /// `max_records`.
    Full,
    /// `max_age`.
    Aged,
    /// The watermark passed its end.
    EventTime,
    /// The input ended, or the service was told to stop.
    Drained,
    /// Records waited too long; no window closed at all.
    Waited,
    /// It had closed before a crash, and its release is made again.
    Replayed,
}

impl CloseReason {
    /// Every reason.
    pub const ALL: [Self; 6] = [Self::Full, Self::Aged, Self::EventTime, Self::Drained, Self::Waited, Self::Replayed];

    /// The word for manifests and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Aged => "aged",
            Self::EventTime => "event_time",
            Self::Drained => "drained",
            Self::Waited => "waited",
            Self::Replayed => "replayed",
        }
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

/// What a window counts, shared by all of a run.
pub(crate) type SharedCounting = Arc<crate::model::counting::Counting>;
