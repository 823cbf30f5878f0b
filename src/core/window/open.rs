//! One window: its rows, what was left out of it, and its incremental counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{CloseReason, SharedCounting, TooWide, WindowId, layout_sizes};
use crate::encode::{Dictionaries, Encoded, Encoder};
use crate::frequency::counter::{self, Counter};
use crate::frequency::store::FrequencySets;
use crate::model::batch::Rows;
use crate::model::counting::Counting;
use crate::model::event::{Millis, Partition, Position, Reject, RejectCode};
use crate::model::release::plan::ReleasePlan;
use crate::model::release::spans::Spans;
use crate::model::release::tombstone::Tombstones;

/// Rows are counted in batches: large enough to stay in one loop, small enough that a close never waits for one.
const COUNT_BATCH: usize = 1024;
/// A sliding window's counts remember tuples whose rows have left. Larger holds more of them; smaller counts the window
/// anew more often than once in about as many turnovers.
const STALE: usize = 4;
/// A snapshot may show rows that have left, and its maker puts them behind the window's. Room for those of so many slides:
/// larger asks for memory that is not used; smaller copies the rows where more of them stay.
const STAYING: usize = 4;

/// A window that still fills.
pub struct OpenWindow {
    id: WindowId,
    opened: Millis,
    rows: Rows,
    rejected: Vec<(Position, Reject)>,
    suppressed: Vec<Position>,
    tombstones: Tombstones,
    /// How many rows they have retracted.
    retracted: u64,
    counter: Box<dyn Counter>,
    counted: usize,
    /// The rows before this one were there when the window last moved on.
    shown: usize,
    counting: SharedCounting,
    /// How many bytes of frequency sets to keep, if that was said.
    warm_memory: Option<usize>,
}

/// A window that has closed: what a release is made from.
pub struct ClosedWindow {
    /// Its number.
    pub id: WindowId,
    /// Its lane: the partition, or 0 if its records are those of the instance.
    pub lane: Partition,
    /// When its first record was read.
    pub opened: Millis,
    /// When it closed.
    pub closed: Millis,
    /// Why it closed.
    pub reason: CloseReason,
    /// The records that can be published.
    pub rows: Arc<Rows>,
    /// The records that were turned away.
    pub rejected: Vec<(Position, Reject)>,
    /// The records that the policy suppressed for a value it cannot place, and those that were retracted.
    pub suppressed: Vec<Position>,
    /// The tombstones that were read before it closed, and after the window before it did. They are turned away as well.
    pub tombstones: Tombstones,
    /// How many records they have retracted.
    pub retracted: u64,
    /// The dictionaries its codes belong to.
    pub dictionaries: Dictionaries,
    /// Its frequency sets.
    pub sets: Arc<dyn FrequencySets>,
    /// Records that were held before a restart and were read again with it.
    pub held: Rows,
    /// The assignment it was read in.
    pub epoch: u64,
    /// Its kind: how its release is made.
    pub kind: WindowKind,
}

/// The kinds of closed windows.
#[derive(Default)]
pub enum WindowKind {
    /// A window whose records are in no other window.
    #[default]
    Tumbling,
    /// A sliding window as it stands now.
    Slide(Slide),
    /// A window whose release was planned before a crash, and is made again as planned.
    Replay(Box<Replayed>),
    /// A window without records, which accounts for waiting records that expire.
    Expiry,
}

/// The changes since the sliding window's last snapshot.
#[derive(Debug, Clone, Default)]
pub struct Slide {
    /// The rows that came, those that have left again included.
    pub read: u64,
    /// The rows that left the window.
    pub left: Vec<Position>,
    /// Records that were left out for a value that has no place, since the oldest row of the window.
    pub unplaced: u64,
    /// How many more slides a row may stay in snapshots after it left the window.
    pub max_hold: u64,
    /// How many of the window's last rows came since its last snapshot.
    pub came: usize,
    /// True if only changes are published.
    pub changes: bool,
}

/// The parts of a planned release beside the window's rows.
pub struct Replayed {
    /// The plan.
    pub plan: ReleasePlan,
    /// The rows that were held when it was made.
    pub held: Rows,
}

impl ClosedWindow {
    /// Records that the policy suppressed for a value it cannot place. Those that were retracted are suppressed as well, but
    /// nobody asked for them to be published.
    pub fn unplaced(&self) -> u64 {
        (self.suppressed.len() as u64).saturating_sub(self.retracted)
    }
}

impl ClosedWindow {
    /// A window without records, for accounting only.
    pub fn empty(now: Millis, dictionaries: Dictionaries, counting: Counting) -> Result<Self, TooWide> {
        let sizes = vec![1; dictionaries.quasi.len()];
        let counter = counter::counter(&sizes, counting).ok_or(TooWide)?;
        let rows = Rows::new(dictionaries.quasi.len(), dictionaries.sensitive.len());
        let sets = counter.last_store(&dictionaries.quasi);
        Ok(Self { kind: WindowKind::Expiry, ..Self::of(Arc::new(rows), sets, dictionaries, now) })
    }

    /// Nothing but these rows, at this moment.
    fn of(rows: Arc<Rows>, sets: Arc<dyn FrequencySets>, dictionaries: Dictionaries, now: Millis) -> Self {
        Self {
            id: WindowId(0),
            lane: Partition(0),
            opened: now,
            closed: now,
            reason: CloseReason::Waited,
            rows,
            rejected: Vec::new(),
            suppressed: Vec::new(),
            tombstones: Tombstones::default(),
            retracted: 0,
            sets,
            dictionaries,
            held: Rows::default(),
            epoch: 0,
            kind: WindowKind::Tumbling,
        }
    }
}

impl ClosedWindow {
    /// The same window, counted anew: no search of the other profits from what this one has counted.
    pub fn recounted(&self, counting: Counting) -> Result<Self, TooWide> {
        let sizes: Vec<usize> = self.dictionaries.quasi.iter().map(|view| view.leaf_count()).collect();
        let mut counter = counter::counter(&sizes, counting).ok_or(TooWide)?;
        counter.add(&self.rows, 0..self.rows.len());
        Ok(Self {
            rows: Arc::clone(&self.rows),
            rejected: self.rejected.clone(),
            suppressed: self.suppressed.clone(),
            tombstones: self.tombstones.clone(),
            dictionaries: self.dictionaries.clone(),
            sets: counter.last_store(&self.dictionaries.quasi),
            held: self.held.clone(),
            kind: match &self.kind {
                WindowKind::Slide(slide) => WindowKind::Slide(slide.clone()),
                WindowKind::Expiry => WindowKind::Expiry,
                WindowKind::Tumbling | WindowKind::Replay(_) => WindowKind::Tumbling,
            },
            ..*self
        })
    }
}

impl OpenWindow {
    /// An empty window whose first record came at `opened`.
    pub fn new(id: WindowId, opened: Millis, encoder: &Encoder, counting: SharedCounting) -> Result<Self, TooWide> {
        let counter = counter::counter(&layout_sizes(&encoder.sizes()), (*counting).clone()).ok_or(TooWide)?;
        let dictionaries = encoder.dictionaries();
        let rows = Rows::new(dictionaries.quasi.len(), dictionaries.sensitive.len());
        Ok(Self {
            id,
            opened,
            rows,
            rejected: Vec::new(),
            suppressed: Vec::new(),
            tombstones: Tombstones::default(),
            retracted: 0,
            counter,
            counted: 0,
            shown: 0,
            counting,
            warm_memory: None,
        })
    }

    /// Keeps at most so many bytes of frequency sets from one snapshot to the next.
    pub(super) fn remember_within(&mut self, bytes: usize) {
        self.warm_memory = Some(bytes);
        self.counter.remember_within(bytes);
    }

    /// Takes what became of the record at `position`, which `encoder` encoded last.
    pub fn add(&mut self, encoder: &Encoder, position: Position, now: Millis, encoded: Encoded) -> Result<(), TooWide> {
        match encoded {
            Encoded::Row => self.rows.push(position, now, encoder.row()),
            Encoded::Suppressed => self.suppressed.push(position),
            Encoded::Rejected(reject) => self.rejected.push((position, reject)),
            Encoded::Tombstone(retracts) => self.tombstones.push(position, retracts),
        }
        if self.rows.len() - self.counted >= COUNT_BATCH { self.count_all(encoder) } else { Ok(()) }
    }

    /// Takes out the rows that its tombstones retract: which ones they were, ascending, and where they stood in the source.
    pub(super) fn retract(&mut self, encoder: &Encoder) -> Result<Vec<(usize, Position)>, TooWide> {
        let tombstones = std::mem::take(&mut self.tombstones);
        let gone = self.take_out(&tombstones, encoder)?;
        self.tombstones = tombstones;
        self.retracted += gone.len() as u64;
        Ok(gone)
    }

    /// Takes over the tombstones of other windows, and what all of them retract there.
    pub(super) fn retract_from(&mut self, others: &mut BTreeMap<i64, Self>, encoder: &Encoder) -> Result<(), TooWide> {
        others.values_mut().for_each(|other| self.tombstones.append(std::mem::take(&mut other.tombstones)));
        for other in others.values_mut() {
            let gone = other.take_out(&self.tombstones, encoder)?;
            self.retracted += gone.len() as u64;
            self.suppressed.extend(gone.into_iter().map(|(_, position)| position));
        }
        Ok(())
    }

    fn take_out(&mut self, tombstones: &Tombstones, encoder: &Encoder) -> Result<Vec<(usize, Position)>, TooWide> {
        if tombstones.is_empty() {
            return Ok(Vec::new());
        }
        let indices: Vec<usize> = (0..self.rows.len()).filter(|&i| tombstones.retracts(&self.rows, i)).collect();
        let gone = indices.iter().map(|&i| (i, self.rows.position(i))).collect();
        self.remove(&indices, encoder)?;
        Ok(gone)
    }

    /// Removes all records of some partitions, and counts their messages.
    pub(super) fn give_up(&mut self, partitions: &BTreeSet<Partition>, encoder: &Encoder) -> Result<usize, TooWide> {
        let gone = |position: &Position| partitions.contains(&position.partition);
        let messages = Spans::covering(self.positions().filter(gone)).count();
        let indices: Vec<usize> = (0..self.rows.len()).filter(|&i| gone(&self.rows.position(i))).collect();
        self.remove(&indices, encoder)?;
        self.rejected.retain(|(position, _)| !gone(position));
        self.suppressed.retain(|position| !gone(position));
        self.tombstones.give_up(partitions);
        Ok(messages as usize)
    }

    /// Removes the rows with these numbers, ascending, from the window and from its counts.
    fn remove(&mut self, indices: &[usize], encoder: &Encoder) -> Result<(), TooWide> {
        if !indices.is_empty() {
            self.count_all(encoder)?;
            self.counter.retract(&self.rows, indices);
            self.rows = self.rows.filtered(|i| indices.binary_search(&i).is_err());
            self.counted = self.rows.len();
            self.shown -= indices.partition_point(|&i| i < self.shown);
        }
        Ok(())
    }

    /// Where its records stand, rejected and suppressed ones included.
    pub(super) fn positions(&self) -> impl Iterator<Item = Position> {
        let rejected = self.rejected.iter().map(|(position, _)| *position);
        let others = self.suppressed.iter().chain(self.tombstones.positions()).copied();
        self.rows.positions().iter().copied().chain(rejected).chain(others)
    }

    /// Takes all records of another window in.
    pub(super) fn absorb(&mut self, other: Self) {
        (0..other.rows.len()).for_each(|i| self.rows.push_from(&other.rows, i));
        self.rejected.extend(other.rejected);
        self.suppressed.extend(other.suppressed);
        self.tombstones.append(other.tombstones);
        self.opened = self.opened.min(other.opened);
    }

    /// All records taken, rejected and suppressed ones included.
    pub fn len(&self) -> usize {
        self.rows.len() + self.rejected.len() + self.suppressed.len() + self.tombstones.len()
    }

    /// True if no record was taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When its first record was read.
    pub fn opened(&self) -> Millis {
        self.opened
    }

    /// Counts its age from `now` on, if the clock has been set back to before its first record.
    pub(super) fn not_after(&mut self, now: Millis) {
        self.opened = self.opened.min(now);
    }

    /// Bytes held by its rows.
    pub fn bytes(&self) -> usize {
        self.rows.bytes()
    }

    /// Closes it.
    pub fn close(mut self, now: Millis, reason: CloseReason, encoder: &Encoder) -> Result<ClosedWindow, TooWide> {
        let retracted = self.retract(encoder)?;
        self.suppressed.extend(retracted.into_iter().map(|(_, position)| position));
        self.count_all(encoder)?;
        let rejected = self.take_rejected();
        let dictionaries = encoder.dictionaries();
        let sets = self.counter.last_store(&dictionaries.quasi);
        Ok(ClosedWindow {
            id: self.id,
            opened: self.opened,
            reason,
            rejected,
            suppressed: self.suppressed,
            tombstones: self.tombstones,
            retracted: self.retracted,
            ..ClosedWindow::of(Arc::new(self.rows), sets, dictionaries, now)
        })
    }

    /// The window as it stands once its first `gone` rows have left. The counts go on; what was rejected and suppressed is
    /// handed over.
    pub(super) fn slide(
        &mut self,
        gone: usize,
        now: Millis,
        reason: CloseReason,
        encoder: &Encoder,
    ) -> Result<ClosedWindow, TooWide> {
        self.count_all(encoder)?;
        let left = self.rows.positions()[..gone].to_vec();
        let indices: Vec<usize> = (0..gone).collect();
        self.counter.retract(&self.rows, &indices);
        self.rows.remove_first(gone);
        self.counted = self.rows.len();
        if self.counter.tuples() > STALE * self.rows.len() + COUNT_BATCH {
            self.recount(encoder)?;
        }
        let dictionaries = encoder.dictionaries();
        let sets = self.counter.store(&dictionaries.quasi);
        let room = (STAYING * gone).min(self.rows.len());
        let came = self.rows.len() - self.shown.saturating_sub(gone);
        self.shown = self.rows.len();
        let window = ClosedWindow {
            id: self.id,
            opened: self.opened,
            reason,
            rejected: self.take_rejected(),
            suppressed: std::mem::take(&mut self.suppressed),
            tombstones: std::mem::take(&mut self.tombstones),
            retracted: std::mem::take(&mut self.retracted),
            kind: WindowKind::Slide(Slide { left, came, ..Slide::default() }),
            ..ClosedWindow::of(Arc::new(self.rows.with_room(room)), sets, dictionaries, now)
        };
        self.id = WindowId(self.id.0 + 1);
        self.opened = now;
        Ok(window)
    }

    /// The rejected records, tombstones included.
    fn take_rejected(&mut self) -> Vec<(Position, Reject)> {
        let mut rejected = std::mem::take(&mut self.rejected);
        let tombstone = |&position: &Position| (position, Reject::record(RejectCode::Tombstone));
        rejected.extend(self.tombstones.positions().iter().map(tombstone));
        rejected
    }

    /// Counts anew, with fields for what the dictionaries hold now.
    fn recount(&mut self, encoder: &Encoder) -> Result<(), TooWide> {
        self.counter = counter::counter(&layout_sizes(&encoder.sizes()), (*self.counting).clone()).ok_or(TooWide)?;
        self.warm_memory.into_iter().for_each(|bytes| self.counter.remember_within(bytes));
        self.counter.add(&self.rows, 0..self.rows.len());
        self.counted = self.rows.len();
        Ok(())
    }

    fn count_all(&mut self, encoder: &Encoder) -> Result<(), TooWide> {
        if !(self.counted..self.rows.len()).all(|i| self.counter.fits(self.rows.quasi(i))) {
            // A dictionary has outgrown its field. Sizes double, so this is rare.
            return self.recount(encoder);
        }
        self.counter.add(&self.rows, self.counted..self.rows.len());
        self.counted = self.rows.len();
        Ok(())
    }
}
