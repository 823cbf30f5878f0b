//! When a search stops: after a number of counted nodes, at a deadline, or when it is told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::model::words;

/// When to stop. Anytime: a search checks it before every node it counts.
#[derive(Debug, Clone)]
pub struct Budget {
    /// Nodes that may be counted.
    pub max_checks: u64,
    /// When to stop by the clock.
    pub deadline: Option<Instant>,
    /// Raised from outside to stop at once.
    pub cancelled: Arc<AtomicBool>,
}

impl Budget {
    /// No limit at all.
    pub fn unlimited() -> Self {
        Self { max_checks: u64::MAX, deadline: None, cancelled: Arc::default() }
    }

    /// A limit on time from `now`.
    pub fn within(now: Instant, time: Duration) -> Self {
        Self { deadline: now.checked_add(time), ..Self::unlimited() }
    }

    /// A share of what is left of it from `now` on, when so many nodes were counted.
    pub(super) fn part(&self, share: f64, checks: u64, now: Instant) -> Self {
        let mut part = self.clone();
        if self.max_checks < u64::MAX {
            let left = self.max_checks.saturating_sub(checks);
            part.max_checks = checks + (left as f64 * share).ceil() as u64;
        }
        part.deadline = self.deadline.map(|deadline| now + deadline.saturating_duration_since(now).mul_f64(share));
        part
    }

    /// The reason to stop now, if there is one, after `checks` nodes were counted.
    pub fn spent(&self, checks: u64) -> Option<StopReason> {
        match self.interrupted() {
            Some(StopReason::Deadline) | None if checks >= self.max_checks => Some(StopReason::Budget),
            reason => reason,
        }
    }

    /// The reason to stop even work that counts no node.
    pub fn interrupted(&self) -> Option<StopReason> {
        if self.cancelled.load(Ordering::Relaxed) {
            Some(StopReason::Cancelled)
        } else if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            Some(StopReason::Deadline)
        } else {
            None
        }
    }
}

words! {
    /// Why a search ended.
    pub enum StopReason {
        /// It has nothing left to try; its answer is its best, not proven optimal.
        Exhausted = "exhausted",
        /// Its answer has the least loss of all satisfying nodes, or there is none.
        Proven = "proven",
        /// It has counted as many nodes as it may.
        Budget = "budget",
        /// Its time is over.
        Deadline = "deadline",
        /// It was told to stop.
        Cancelled = "cancelled",
    }
}
