//! Windows by scope: one set for all partitions of an instance, or one for each.
//!
//! Invariant: with [`Scope::Partition`] no window ever holds records of two partitions. Windows are numbered in the order in
//! which they close, whatever their lane.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Deserialize;

use super::{ClosedWindow, SharedCounting, TooWide, WindowId, WindowRules, Windows};
use crate::encode::{Encoded, Encoder};
use crate::model::event::{Millis, Partition, Position};

/// Whose records go into one window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Those of all partitions that the instance reads.
    #[default]
    Instance,
    /// Those of one partition, which has windows, levels and waiting records of its own. A partition with few people
    /// publishes little or nothing.
    Partition,
}

impl Scope {
    /// The lane of a partition: what its windows are found by.
    pub fn lane(self, partition: Partition) -> Partition {
        match self {
            Self::Instance => Partition(0),
            Self::Partition => partition,
        }
    }
}

/// The open windows of every lane.
pub struct Lanes {
    rules: WindowRules,
    scope: Scope,
    counting: SharedCounting,
    lanes: BTreeMap<Partition, Box<dyn Windows>>,
    closed: u64,
    most_scattered: Option<usize>,
    most_bytes: Option<usize>,
    /// Records since the last look at the bytes.
    unseen: usize,
    /// When [`Lanes::due`] last found nothing, and how many more records leave it so at that time.
    idle: Option<(Millis, usize)>,
}

/// Records between two looks at the bytes of open windows. Larger: they hold more than they may. Smaller: costs time for every record.
const LOOK_EVERY: usize = 256;

impl Lanes {
    /// No window open yet.
    pub fn new(rules: WindowRules, scope: Scope, counting: SharedCounting) -> Self {
        let (lanes, most_scattered, most_bytes, idle) = Default::default();
        Self { rules, scope, counting, lanes, closed: 0, most_scattered, most_bytes, unseen: 0, idle }
    }

    /// Where a log must say what is still to be done: closes windows together rather than leave more runs of records open
    /// among closed ones.
    #[must_use]
    pub fn within(mut self, runs: usize) -> Self {
        self.most_scattered = Some(runs);
        self
    }

    /// Closes the largest window, whatever the rules say, when the rows of all open ones hold so many bytes. A sliding window lets its
    /// oldest rows go instead. Frequency sets have as much again.
    #[must_use]
    pub fn holding(mut self, bytes: usize) -> Self {
        self.most_bytes = Some(bytes);
        self
    }

    /// Takes the record at `position`, which `encoder` encoded last. Call [`Lanes::due`] next.
    pub fn add(&mut self, encoder: &Encoder, position: Position, now: Millis, encoded: Encoded) -> Result<(), TooWide> {
        let windows = self.lanes.entry(self.scope.lane(position.partition));
        let windows = windows.or_insert_with(|| {
            let mut windows = self.rules.open(self.counting.clone());
            self.most_bytes.into_iter().for_each(|bytes| windows.remembering(bytes));
            self.most_scattered.into_iter().for_each(|runs| windows.within(runs));
            windows
        });
        self.unseen += 1;
        self.idle = self.idle.and_then(|(asked, records)| Some((asked, records.checked_sub(1)?)));
        windows.add(encoder, position, now, encoded)
    }

    /// A window that is due at `now`; `None` when none is.
    pub fn due(&mut self, now: Millis, encoder: &Encoder) -> Result<Option<ClosedWindow>, TooWide> {
        if self.idle.is_some_and(|(asked, _)| asked == now) {
            return Ok(None);
        }
        let closed = match self.first(|windows| windows.due(now, encoder))? {
            None if self.is_over_limit() => {
                let largest = self.lanes.values().map(|windows| windows.bytes()).max();
                self.first(|windows| match Some(windows.bytes()) == largest {
                    true => windows.relieve(now, encoder),
                    false => Ok(None),
                })?
            }
            closed => closed,
        };
        self.idle = if closed.is_none() { self.records_until_due().map(|records| (now, records)) } else { None };
        Ok(closed)
    }

    /// After [`Lanes::due`] found nothing: the records that leave it so at that time; `None` if the next one may change it.
    fn records_until_due(&self) -> Option<usize> {
        let fewest = self.lanes.values().map(|windows| windows.records_until_due()).min()??;
        Some(if self.most_bytes.is_some() { fewest.min(LOOK_EVERY.saturating_sub(self.unseen + 1)) } else { fewest })
    }

    fn is_over_limit(&mut self) -> bool {
        let Some(most) = self.most_bytes.filter(|_| self.unseen >= LOOK_EVERY) else { return false };
        self.unseen = 0;
        self.lanes.values().map(|windows| windows.bytes()).sum::<usize>() >= most
    }

    /// An open window, whatever the rules say; `None` when none is left.
    pub fn drain(&mut self, now: Millis, encoder: &Encoder) -> Result<Option<ClosedWindow>, TooWide> {
        self.first(|windows| windows.drain(now, encoder))
    }

    /// Removes all records of some partitions from the open windows, and counts their messages. The records of the others stay where they
    /// are. For tumbling windows only.
    pub fn give_up(&mut self, partitions: &BTreeSet<Partition>) -> usize {
        self.lanes.values_mut().map(|windows| windows.give_up(partitions)).sum()
    }

    /// Records in open windows.
    pub fn len(&self) -> usize {
        self.lanes.values().map(|windows| windows.len()).sum()
    }

    /// Messages of which no closed window has had a record.
    pub fn unclosed(&self) -> usize {
        self.lanes.values().map(|windows| windows.unclosed()).sum()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When the oldest open window got its first record, or last moved on.
    pub fn opened(&self) -> Option<Millis> {
        self.lanes.values().filter_map(|windows| windows.opened()).min()
    }

    /// When [`Lanes::due`] should be asked again by the clock, if nothing arrives before.
    pub fn next_due(&self) -> Option<Millis> {
        self.lanes.values().filter_map(|windows| windows.next_due()).min()
    }

    fn first(
        &mut self,
        mut close: impl FnMut(&mut dyn Windows) -> Result<Option<ClosedWindow>, TooWide>,
    ) -> Result<Option<ClosedWindow>, TooWide> {
        for (&lane, windows) in &mut self.lanes {
            if let Some(mut window) = close(&mut **windows)? {
                (window.lane, window.id) = (lane, WindowId(self.closed));
                self.closed += 1;
                return Ok(Some(window));
            }
        }
        Ok(None)
    }
}
