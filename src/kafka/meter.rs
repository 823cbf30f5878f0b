//! Figures that the edges of the walk keep while they work, and that telemetry shows when it is asked.
//!
//! Plain atomics: whoever counts need not know who reads. Nothing here belongs to one record or one partition, so the
//! number of series never follows the data.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::model::event::Millis;
use crate::model::words;

words! {
    /// How a transaction ended.
    pub enum Transaction {
        /// Its records are visible.
        Committed = "committed",
        /// It was given up; its records are never visible to readers of committed data.
        Aborted = "aborted",
        /// Another instance has the transactional id.
        Fenced = "fenced",
        /// Nobody answered whether it was committed: the plan is carried out again.
        Unknown = "unknown",
    }
}

/// What source and sink count. All zero where there is no broker.
#[derive(Debug, Default)]
pub struct Meter {
    transactions: [AtomicU64; 4],
    /// 0: none is open.
    transaction_since: AtomicI64,
    taken_back: AtomicU64,
    names_taken_back: AtomicU64,
    lag: AtomicU64,
    partitions: AtomicU64,
    paused: AtomicU64,
}

impl Meter {
    /// A transaction began.
    pub fn transaction_began(&self, now: Millis) {
        self.transaction_since.store(now.0.max(1), Ordering::Relaxed);
    }

    /// The open transaction ended.
    pub fn transaction_ended(&self, outcome: Transaction) {
        self.transaction_since.store(0, Ordering::Relaxed);
        self.transactions[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Transactions that ended so.
    pub fn transactions(&self, outcome: Transaction) -> u64 {
        self.transactions[outcome as usize].load(Ordering::Relaxed)
    }

    /// How long the open transaction has been open; zero if none is.
    pub fn transaction_age(&self, now: Millis) -> f64 {
        match self.transaction_since.load(Ordering::Relaxed) {
            0 => 0.0,
            since => now.0.saturating_sub(since).max(0) as f64 / 1e3,
        }
    }

    /// The transactional id was lost to a late request of this instance, and taken back.
    pub fn took_back(&self) {
        self.taken_back.fetch_add(1, Ordering::Relaxed);
    }

    /// How often the transactional id was taken back.
    pub fn taken_back(&self) -> u64 {
        self.taken_back.load(Ordering::Relaxed)
    }

    /// The name in the group was lost to a late join of this instance, and taken back.
    pub fn took_name_back(&self) {
        self.names_taken_back.fetch_add(1, Ordering::Relaxed);
    }

    /// How often the name in the group was taken back.
    pub fn names_taken_back(&self) -> u64 {
        self.names_taken_back.load(Ordering::Relaxed)
    }

    /// Records in the assigned partitions that have not been read yet.
    pub fn set_lag(&self, records: u64) {
        self.lag.store(records, Ordering::Relaxed);
    }

    /// Records not read yet.
    pub fn lag(&self) -> u64 {
        self.lag.load(Ordering::Relaxed)
    }

    /// Partitions that this instance reads, and how many of them wait for room.
    pub fn set_partitions(&self, assigned: u64, paused: u64) {
        self.partitions.store(assigned, Ordering::Relaxed);
        self.paused.store(paused, Ordering::Relaxed);
    }

    /// Partitions read, and how many of them wait.
    pub fn partitions(&self) -> (u64, u64) {
        (self.partitions.load(Ordering::Relaxed), self.paused.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_transaction_has_an_age_until_it_ends() {
        let meter = Meter::default();
        assert_eq!(meter.transaction_age(Millis(5000)), 0.0);
        meter.transaction_began(Millis(1000));
        assert_eq!(meter.transaction_age(Millis(3500)), 2.5);
        assert_eq!(meter.transaction_age(Millis(500)), 0.0, "a clock that was set back");
        meter.transaction_ended(Transaction::Aborted);
        assert_eq!(meter.transaction_age(Millis(9000)), 0.0);
        let counts = Transaction::ALL.map(|outcome| meter.transactions(outcome));
        assert_eq!(counts, [0, 1, 0, 0]);
    }
}
