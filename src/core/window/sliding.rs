//! The sliding window: rows enter as they come and leave as they age; at every slide it shows itself whole.
//!
//! By records: the newest `size` rows, shown after every `slide` records read (rejected ones included). By time: the rows
//! that came within `size` by the clock, shown every `slide`; a stream too fast for `max_records` slides earlier, and its
//! oldest rows leave before their time, so that memory is bounded. Frequency sets follow by adding and retracting.
//! Deliberately absent: event time, and revoked partitions; a new assignment starts with an empty window.

use std::collections::VecDeque;
use std::time::Duration;

use super::{CloseReason, ClosedWindow, OpenWindow, SharedCounting, TooWide, WindowId, WindowKind, Windows, age};
use crate::encode::{Encoded, Encoder};
use crate::model::event::{Millis, Position};

/// The extent of a sliding window, and the rule by which it moves on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlideRules {
    /// Holds at most the newest so many rows; positive.
    pub size: usize,
    /// Moves on after so many records; positive, at most `size`.
    pub slide: usize,
    /// By the clock: rows leave at the first age, and it moves on at the second.
    pub time: Option<(Duration, Duration)>,
    /// How many slides a row that has left may stay in snapshots.
    pub max_hold: u64,
    /// How many bytes of frequency sets are kept from one snapshot to the next.
    pub warm_memory: usize,
    /// Publishes what changes from snapshot to snapshot, and whole snapshots only to begin with.
    pub changes: bool,
}

/// One row in so many leaves a window that holds too much. Larger: it has to move on again sooner. Smaller: it holds less than it could.
const SPARED: usize = 8;

/// A window that moves on.
pub struct Sliding {
    rules: SlideRules,
    counting: SharedCounting,
    window: Option<OpenWindow>,
    /// When each row came, by a clock that is never behind.
    arrived: VecDeque<Millis>,
    /// Records since the last slide, and the rows among them.
    read: usize,
    fresh: u64,
    /// Rows that have come and that have left, since the start.
    came: u64,
    left: u64,
    /// Records that were left out for a value that has no place: slide by slide, behind so many rows.
    unplaced: VecDeque<(u64, u64)>,
    /// When it last moved on, or when its first record came.
    moved: Millis,
    next_id: u64,
}

impl Sliding {
    /// Empty.
    pub fn new(rules: SlideRules, counting: SharedCounting) -> Self {
        Self {
            rules,
            counting,
            window: None,
            arrived: VecDeque::new(),
            read: 0,
            fresh: 0,
            came: 0,
            left: 0,
            unplaced: VecDeque::new(),
            moved: Millis(0),
            next_id: 0,
        }
    }

    fn slide(&mut self, now: Millis, reason: CloseReason, encoder: &Encoder) -> Result<Option<ClosedWindow>, TooWide> {
        let Some(mut window) = self.window.take() else { return Ok(None) };
        let retracted = window.retract();
        if !retracted.is_empty() {
            let (mut rows, mut gone) = (0.., retracted.iter().map(|(row, _)| *row).peekable());
            self.arrived.retain(|_| rows.next().is_none_or(|row| gone.next_if_eq(&row).is_none()));
        }
        let old = |arrived: &&Millis| self.rules.time.is_some_and(|(size, _)| age(now, **arrived) >= size);
        let gone = self.arrived.iter().take_while(old).count().max(self.arrived.len().saturating_sub(self.rules.size));
        self.arrived.drain(..gone);
        self.left += gone as u64;
        // They would have left with the row that came before them.
        while self.unplaced.pop_front_if(|(behind, _)| *behind <= self.left).is_some() {}
        let mut closed = window.slide(gone, now, reason, encoder)?;
        if let WindowKind::Slide(slide) = &mut closed.kind {
            (slide.read, slide.max_hold, slide.changes) = (self.fresh, self.rules.max_hold, self.rules.changes);
            slide.left.extend(retracted.into_iter().map(|(_, position)| position));
            // Those since the last slide count even if no row is left.
            let unplaced: u64 = self.unplaced.iter().map(|(_, records)| records).sum();
            slide.unplaced = unplaced.max(closed.suppressed.len() as u64);
        }
        (self.read, self.fresh, self.moved) = (0, 0, now);
        self.next_id = closed.id.0 + 1;
        // An empty window has nothing to wait for; the next record starts it again.
        self.window = (!window.is_empty()).then_some(window);
        Ok(Some(closed))
    }
}

impl Windows for Sliding {
    fn remembering(&mut self, bytes: usize) {
        self.rules.warm_memory = self.rules.warm_memory.min(bytes);
    }

    fn add(&mut self, encoder: &Encoder, position: Position, now: Millis, encoded: Encoded) -> Result<(), TooWide> {
        if self.window.is_none() {
            let mut window = OpenWindow::new(WindowId(self.next_id), now, encoder, self.counting.clone())?;
            window.remember_within(self.rules.warm_memory);
            self.window = Some(window);
            self.moved = now;
        }
        self.read += 1;
        match &encoded {
            Encoded::Row => {
                self.arrived.push_back(now);
                self.fresh += 1;
                self.came += 1;
            }
            Encoded::Suppressed => match self.unplaced.back_mut() {
                Some((behind, records)) if *behind + self.fresh >= self.came => *records += 1,
                _ => self.unplaced.push_back((self.came, 1)),
            },
            Encoded::Rejected(_) | Encoded::Tombstone(_) => {}
        }
        if let Some(window) = &mut self.window {
            window.add(encoder, position, now, encoded);
        }
        Ok(())
    }

    fn due(&mut self, now: Millis, encoder: &Encoder) -> Result<Option<ClosedWindow>, TooWide> {
        if self.moved > now {
            // The clock was set back: nothing is older than now.
            self.moved = now;
            self.arrived.iter_mut().for_each(|arrived| *arrived = (*arrived).min(now));
        }
        let in_time = self.rules.time.is_some_and(|(_, slide)| age(now, self.moved) >= slide);
        if in_time || self.read >= self.rules.slide { self.slide(now, CloseReason::Slid, encoder) } else { Ok(None) }
    }

    fn relieve(&mut self, now: Millis, encoder: &Encoder) -> Result<Option<ClosedWindow>, TooWide> {
        self.rules.size = (self.arrived.len() - self.arrived.len() / SPARED).max(1);
        self.slide(now, CloseReason::Memory, encoder)
    }

    fn drain(&mut self, now: Millis, encoder: &Encoder) -> Result<Option<ClosedWindow>, TooWide> {
        let closed = self.slide(now, CloseReason::Drained, encoder)?;
        *self = Self { next_id: self.next_id, ..Self::new(self.rules.clone(), self.counting.clone()) };
        Ok(closed)
    }

    fn bytes(&self) -> usize {
        self.window.as_ref().map_or(0, OpenWindow::bytes)
    }

    fn len(&self) -> usize {
        self.window.as_ref().map_or(0, OpenWindow::len)
    }

    fn unclosed(&self) -> usize {
        self.read
    }

    fn opened(&self) -> Option<Millis> {
        self.window.as_ref().map(|_| self.moved)
    }

    fn next_due(&self) -> Option<Millis> {
        let (_, slide) = self.rules.time?;
        self.window.as_ref().map(|_| Millis(self.moved.0.saturating_add(slide.as_millis() as i64)))
    }
}
