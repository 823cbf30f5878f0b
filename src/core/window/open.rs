//! One window: its rows, and what was left out of it.
//!
//! Nothing is counted while it fills. A window that closes is counted once, by sorting; one that moves on keeps its counts, to which the
//! rows that came are added and from which those that left are taken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{CloseReason, DEFAULT_WARM_MEMORY, SharedCounting, TooWide, WindowId, layout_sizes};
use crate::encode::{Dictionaries, Encoded, Encoder};
use crate::frequency::counter::{self, Counter};
use crate::frequency::key::Layout;
use crate::frequency::store::FrequencySets;
use crate::model::batch::Rows;
use crate::model::counting::Counting;
use crate::model::event::{Millis, Partition, Position, Reject, RejectCode};
use crate::model::release::plan::ReleasePlan;
use crate::model::release::spans::Spans;
use crate::model::release::tombstone::Tombstones;

/// A sliding window's counts remember tuples whose rows have left. Larger holds more of them; smaller counts the window
/// anew more often than once in about as many turnovers.
const STALE: usize = 4;
/// So many tuples of rows that have left are always remembered. Larger holds more of them beside small windows; smaller counts small
/// windows anew more often.
const SPARE: usize = 1024;

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
    /// The counts of the first rows, as of the last time that the window moved on.
    counted: Option<(Box<dyn Counter>, usize)>,
    counting: SharedCounting,
    /// How many bytes of frequency sets to keep.
    warm_memory: usize,
}

/// A window that has closed: what a release is made from.
pub struct ClosedWindow {
    /// Its number.
    pub id: WindowId,
    /// Its lane: the partition, or 0 if its records are those of the instance.
    pub lane: Partition,
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
    /// What they count.
    pub counting: SharedCounting,
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
        let rows = Rows::new(dictionaries.quasi.len(), dictionaries.sensitive.len());
        Ok(Self { kind: WindowKind::Expiry, ..Self::alone(rows, dictionaries, counting, now)? })
    }

    /// A window of these rows alone, counted here.
    pub fn alone(rows: Rows, dictionaries: Dictionaries, counting: Counting, now: Millis) -> Result<Self, TooWide> {
        let sets = counter::count(&rows, &counting, &dictionaries.quasi, DEFAULT_WARM_MEMORY).ok_or(TooWide)?;
        Ok(Self::of(Arc::new(rows), (sets, Arc::new(counting)), dictionaries, now))
    }

    /// Nothing but these rows, at this moment.
    fn of(
        rows: Arc<Rows>,
        (sets, counting): (Arc<dyn FrequencySets>, SharedCounting),
        dictionaries: Dictionaries,
        now: Millis,
    ) -> Self {
        Self {
            id: WindowId(0),
            lane: Partition(0),
            closed: now,
            reason: CloseReason::Waited,
            rows,
            rejected: Vec::new(),
            suppressed: Vec::new(),
            tombstones: Tombstones::default(),
            retracted: 0,
            sets,
            counting,
            dictionaries,
            held: Rows::default(),
            epoch: 0,
            kind: WindowKind::Tumbling,
        }
    }
}

impl ClosedWindow {
    /// The same window with frequency sets of its own: no search of the other profits from the rollups of this one. The rows are counted
    /// again only if something else is counted in them.
    pub fn recounted(&self, counting: Counting) -> Result<Self, TooWide> {
        let domains = &self.dictionaries.quasi;
        let sets = match *self.counting == counting {
            true => Some(self.sets.over(domains.clone())),
            false => counter::count(&self.rows, &counting, domains, DEFAULT_WARM_MEMORY),
        };
        Ok(Self {
            rows: Arc::clone(&self.rows),
            rejected: self.rejected.clone(),
            suppressed: self.suppressed.clone(),
            tombstones: self.tombstones.clone(),
            dictionaries: self.dictionaries.clone(),
            sets: sets.ok_or(TooWide)?,
            counting: Arc::new(counting),
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
        // A policy that can never be counted is refused now, and not when the window closes.
        Layout::new(&encoder.sizes()).ok_or(TooWide)?;
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
            counted: None,
            counting,
            warm_memory: DEFAULT_WARM_MEMORY,
        })
    }

    /// Keeps at most so many bytes of frequency sets from one snapshot to the next.
    pub(super) fn remember_within(&mut self, bytes: usize) {
        self.warm_memory = bytes;
    }

    /// Takes what became of the record at `position`, which `encoder` encoded last.
    pub fn add(&mut self, encoder: &Encoder, position: Position, now: Millis, encoded: Encoded) {
        match encoded {
            Encoded::Row => self.rows.push(position, now, encoder.row()),
            Encoded::Suppressed => self.suppressed.push(position),
            Encoded::Rejected(reject) => self.rejected.push((position, reject)),
            Encoded::Tombstone(retracts) => self.tombstones.push(position, retracts),
        }
    }

    /// Takes out the rows that its tombstones retract: which ones they were, ascending, and where they stood in the source.
    pub(super) fn retract(&mut self) -> Vec<(usize, Position)> {
        let tombstones = std::mem::take(&mut self.tombstones);
        let gone = self.take_out(&tombstones);
        self.tombstones = tombstones;
        self.retracted += gone.len() as u64;
        gone
    }

    /// Takes over the tombstones of other windows, and what all of them retract there.
    pub(super) fn retract_from(&mut self, others: &mut BTreeMap<i64, Self>) {
        others.values_mut().for_each(|other| self.tombstones.append(std::mem::take(&mut other.tombstones)));
        for other in others.values_mut() {
            let gone = other.take_out(&self.tombstones);
            self.retracted += gone.len() as u64;
            self.suppressed.extend(gone.into_iter().map(|(_, position)| position));
        }
    }

    fn take_out(&mut self, tombstones: &Tombstones) -> Vec<(usize, Position)> {
        if tombstones.is_empty() {
            return Vec::new();
        }
        let indices: Vec<usize> = (0..self.rows.len()).filter(|&i| tombstones.retracts(&self.rows, i)).collect();
        let gone = indices.iter().map(|&i| (i, self.rows.position(i))).collect();
        self.remove(&indices);
        gone
    }

    /// Removes all records of some partitions, and counts their messages.
    pub(super) fn give_up(&mut self, partitions: &BTreeSet<Partition>) -> usize {
        let gone = |position: &Position| partitions.contains(&position.partition);
        let messages = Spans::covering(self.positions().filter(gone)).count();
        let indices: Vec<usize> = (0..self.rows.len()).filter(|&i| gone(&self.rows.position(i))).collect();
        self.remove(&indices);
        self.rejected.retain(|(position, _)| !gone(position));
        self.suppressed.retain(|position| !gone(position));
        self.tombstones.give_up(partitions);
        messages as usize
    }

    /// Removes the rows with these numbers, ascending, from the window and from its counts.
    fn remove(&mut self, indices: &[usize]) {
        if indices.is_empty() {
            return;
        }
        if let Some((counter, rows)) = &mut self.counted {
            let counted = indices.partition_point(|i| i < rows);
            counter.retract(&self.rows, &indices[..counted]);
            *rows -= counted;
        }
        self.rows = self.rows.filtered(|i| indices.binary_search(&i).is_err());
    }

    /// Where its records stand, rejected and suppressed ones included.
    pub(super) fn positions(&self) -> impl Iterator<Item = Position> {
        let rejected = self.rejected.iter().map(|(position, _)| *position);
        let others = self.suppressed.iter().chain(self.tombstones.positions()).copied();
        self.rows.positions().chain(rejected).chain(others)
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

    /// Bytes held by its rows and by the positions of its other records.
    pub fn bytes(&self) -> usize {
        let rejected = size_of_val(&self.rejected[..]);
        self.rows.bytes() + rejected + size_of_val(&self.suppressed[..]) + self.tombstones.bytes()
    }

    /// Closes it.
    pub fn close(mut self, now: Millis, reason: CloseReason, encoder: &Encoder) -> Result<ClosedWindow, TooWide> {
        let retracted = self.retract();
        self.suppressed.extend(retracted.into_iter().map(|(_, position)| position));
        let rejected = self.take_rejected();
        let dictionaries = encoder.dictionaries();
        let sets = counter::count(&self.rows, &self.counting, &dictionaries.quasi, self.warm_memory).ok_or(TooWide)?;
        Ok(ClosedWindow {
            id: self.id,
            reason,
            rejected,
            suppressed: self.suppressed,
            tombstones: self.tombstones,
            retracted: self.retracted,
            ..ClosedWindow::of(Arc::new(self.rows), (sets, self.counting), dictionaries, now)
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
        let left: Vec<Position> = self.rows.positions().take(gone).collect();
        let shown = self.counted.as_ref().map_or(0, |(_, rows)| *rows).saturating_sub(gone);
        let counter = self.count_without(gone, encoder)?;
        let dictionaries = encoder.dictionaries();
        let sets = counter.store(&dictionaries.quasi);
        let came = self.rows.len() - shown;
        self.counted = Some((counter, self.rows.len()));
        let window = ClosedWindow {
            id: self.id,
            reason,
            rejected: self.take_rejected(),
            suppressed: std::mem::take(&mut self.suppressed),
            tombstones: std::mem::take(&mut self.tombstones),
            retracted: std::mem::take(&mut self.retracted),
            kind: WindowKind::Slide(Slide { left, came, ..Slide::default() }),
            ..ClosedWindow::of(Arc::new(self.rows.clone()), (sets, Arc::clone(&self.counting)), dictionaries, now)
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

    /// Takes the first `gone` rows out, and counts the others: what came since the last time is added to the counts, unless a dictionary
    /// has outgrown its field or they remember too much.
    fn count_without(&mut self, gone: usize, encoder: &Encoder) -> Result<Box<dyn Counter>, TooWide> {
        if let Some((mut counter, counted)) = self.counted.take()
            && (counted..self.rows.len()).all(|i| counter.fits(self.rows.quasi(i)))
        {
            counter.add(&self.rows, counted..self.rows.len());
            counter.retract(&self.rows, &(0..gone).collect::<Vec<usize>>());
            if counter.tuples() <= STALE * (self.rows.len() - gone) + SPARE {
                self.rows.remove_first(gone);
                return Ok(counter);
            }
        }
        self.rows.remove_first(gone);
        let mut counter = counter::counter(&layout_sizes(&encoder.sizes()), (*self.counting).clone()).ok_or(TooWide)?;
        counter.remember_within(self.warm_memory);
        counter.add(&self.rows, 0..self.rows.len());
        Ok(counter)
    }
}
