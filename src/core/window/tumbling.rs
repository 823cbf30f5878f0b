//! Tumbling windows: by count and age there is one open window; by event time there is one per boundary still waited for.
//!
//! A record that comes when its event-time window is no longer waited for joins the oldest one still open, never a
//! published one, and opens none of its own that would close at once with hardly a record in it.
//! A record whose event time is not believed ([`EventClock`]) does not move the watermark: it joins the newest open window.

use std::collections::{BTreeMap, BTreeSet};

use super::event_time::EventClock;
use super::{CloseReason, CloseRules, ClosedWindow, OpenWindow, SharedCounting, TooWide, WindowId, Windows, age};
use crate::encode::{Encoded, Encoder};
use crate::model::event::{Millis, Offset, Partition, Position};
use crate::model::release::spans::Spans;

/// The windows that are open now.
pub struct Tumbling {
    rules: CloseRules,
    counting: SharedCounting,
    /// By event-time start; without event time the only one starts at 0.
    open: BTreeMap<i64, OpenWindow>,
    /// Where event time stands, if it closes windows.
    event_time: Option<EventClock>,
    next_id: u64,
    /// Where the last row stood, and its window: the rows of one message stay together.
    last: Option<(Position, i64)>,
    /// How many runs of records may be left open below closed ones, in one partition.
    most_scattered: Option<usize>,
    /// The bytes of frequency sets that a window keeps, if that was said.
    memory: Option<usize>,
    /// The highest offset that was ever in a closed window.
    closed_to: BTreeMap<Partition, Offset>,
}

impl Tumbling {
    /// No window open yet.
    pub fn new(rules: CloseRules, counting: SharedCounting) -> Self {
        Self {
            event_time: rules.event_time.as_ref().map(EventClock::new),
            rules,
            counting,
            open: BTreeMap::new(),
            next_id: 0,
            last: None,
            most_scattered: None,
            memory: None,
            closed_to: BTreeMap::new(),
        }
    }

    /// Closes a window with what has to close with it: records that tombstones retract, and windows that it is interleaved with.
    fn close_with_others(
        &mut self,
        start: i64,
        now: Millis,
        reason: CloseReason,
        encoder: &Encoder,
    ) -> Result<Option<ClosedWindow>, TooWide> {
        self.retract_with(start);
        if self.most_scattered.is_some_and(|most| self.scattered(start) > most) {
            self.join(start);
        }
        self.close(start, now, reason, encoder)
    }

    /// How many runs of open records would lie below closed ones in one partition, if this window closed alone.
    fn scattered(&self, start: i64) -> usize {
        if self.open.len() < 2 {
            return 0;
        }
        let mut closed_to = self.closed_to.clone();
        for position in self.open.get(&start).into_iter().flat_map(OpenWindow::positions) {
            let to = closed_to.entry(position.partition).or_insert(position.offset);
            *to = (*to).max(position.offset);
        }
        let others = self.open.iter().filter(|(other, _)| **other != start).flat_map(|(_, window)| window.positions());
        let below = others.filter(|p| closed_to.get(&p.partition).is_some_and(|to| p.offset < *to));
        Spans::covering(below).iter().map(|(_, spans)| spans.len()).max().unwrap_or(0)
    }

    /// Takes all other open windows into this one.
    fn join(&mut self, start: i64) {
        let Some(mut joined) = self.open.remove(&start) else { return };
        std::mem::take(&mut self.open).into_values().for_each(|window| joined.absorb(window));
        self.open.insert(start, joined);
    }

    /// Puts all tombstones, and what they retract of the other open windows, into the one that closes next: a tombstone and
    /// what it retracts have their outcome together.
    fn retract_with(&mut self, start: i64) {
        let Some(mut closing) = self.open.remove(&start) else { return };
        closing.retract_from(&mut self.open);
        self.open.retain(|_, other| !other.is_empty());
        self.open.insert(start, closing);
    }

    fn close(
        &mut self,
        start: i64,
        now: Millis,
        reason: CloseReason,
        encoder: &Encoder,
    ) -> Result<Option<ClosedWindow>, TooWide> {
        let Some(window) = self.open.remove(&start) else { return Ok(None) };
        if self.most_scattered.is_some() {
            for position in window.positions() {
                let to = self.closed_to.entry(position.partition).or_insert(position.offset);
                *to = (*to).max(position.offset);
            }
        }
        window.close(now, reason, encoder).map(Some)
    }

    fn reason(&self, start: i64, window: &OpenWindow, now: Millis) -> Option<CloseReason> {
        let watermark = self.event_time.as_ref().map_or(i64::MIN, EventClock::watermark);
        let ended = |size: i64| start.saturating_add(size) <= watermark;
        if window.len() >= self.rules.max_records {
            Some(CloseReason::Full)
        } else if self.rules.event_time.as_ref().is_some_and(|e| ended(e.size.as_millis() as i64)) {
            Some(CloseReason::EventTime)
        } else if age(now, window.opened()) >= self.rules.max_age {
            Some(CloseReason::Aged)
        } else {
            None
        }
    }

    fn start_of(&mut self, event_time: Option<Millis>, now: Millis) -> i64 {
        let (Some(rules), Some(clock)) = (&self.rules.event_time, &mut self.event_time) else { return 0 };
        let size = rules.size.as_millis() as i64;
        // Saturating, because an event time can be any number at all.
        let start = |time: i64| time.div_euclid(size).saturating_mul(size);
        match event_time.filter(|&time| clock.observe(time, now)) {
            Some(Millis(time)) => {
                let (own, waited_for) = (start(time), start(clock.watermark()));
                if own < waited_for && !self.open.contains_key(&own) {
                    self.open.keys().next().copied().unwrap_or(waited_for)
                } else {
                    own
                }
            }
            None => {
                let newest = self.open.keys().next_back().copied();
                newest.unwrap_or_else(|| start(clock.newest().unwrap_or(now.0)))
            }
        }
    }
}

impl Windows for Tumbling {
    fn within(&mut self, runs: usize) {
        self.most_scattered = Some(runs);
    }

    fn remembering(&mut self, bytes: usize) {
        self.memory = Some(bytes);
    }

    fn add(&mut self, encoder: &Encoder, position: Position, now: Millis, encoded: Encoded) -> Result<(), TooWide> {
        let event_time = if encoded == Encoded::Row { encoder.row().event_time } else { None };
        let beside = self.last.filter(|(last, start)| *last == position && self.open.contains_key(start));
        let start = beside.map_or_else(|| self.start_of(event_time, now), |(_, start)| start);
        self.last = Some((position, start));
        let horizon = self.event_time.as_ref().map_or(i64::MAX, EventClock::horizon);
        let strays = if self.open.last_key_value().is_some_and(|(&last, _)| last > horizon) {
            // Windows of a time that later records have disproved.
            self.open.split_off(&horizon.saturating_add(1))
        } else {
            BTreeMap::new()
        };
        if !self.open.contains_key(&start) {
            let mut window = OpenWindow::new(WindowId(self.next_id), now, encoder, self.counting.clone())?;
            self.memory.into_iter().for_each(|bytes| window.remember_within(bytes));
            self.next_id += 1;
            self.open.insert(start, window);
        }
        let Some(window) = self.open.get_mut(&start) else { return Ok(()) };
        strays.into_values().for_each(|stray| window.absorb(stray));
        window.add(encoder, position, now, encoded);
        Ok(())
    }

    fn due(&mut self, now: Millis, encoder: &Encoder) -> Result<Option<ClosedWindow>, TooWide> {
        self.open.values_mut().for_each(|window| window.not_after(now));
        let due = self.open.iter().find_map(|(&start, window)| Some((start, self.reason(start, window, now)?)));
        due.map_or(Ok(None), |(start, reason)| self.close_with_others(start, now, reason, encoder))
    }

    fn relieve(&mut self, now: Millis, encoder: &Encoder) -> Result<Option<ClosedWindow>, TooWide> {
        let largest = self.open.iter().max_by_key(|(_, window)| window.bytes()).map(|(&start, _)| start);
        largest.map_or(Ok(None), |start| self.close_with_others(start, now, CloseReason::Memory, encoder))
    }

    fn drain(&mut self, now: Millis, encoder: &Encoder) -> Result<Option<ClosedWindow>, TooWide> {
        match self.open.keys().next().copied() {
            Some(start) => {
                self.retract_with(start);
                self.close(start, now, CloseReason::Drained, encoder)
            }
            None => Ok(None),
        }
    }

    fn give_up(&mut self, partitions: &BTreeSet<Partition>) -> usize {
        let gone = self.open.values_mut().map(|window| window.give_up(partitions)).sum();
        self.open.retain(|_, window| !window.is_empty());
        self.closed_to.retain(|partition, _| !partitions.contains(partition));
        gone
    }

    fn bytes(&self) -> usize {
        self.open.values().map(OpenWindow::bytes).sum()
    }

    fn len(&self) -> usize {
        self.open.values().map(OpenWindow::len).sum()
    }

    fn unclosed(&self) -> usize {
        Spans::covering(self.open.values().flat_map(OpenWindow::positions)).count() as usize
    }

    fn opened(&self) -> Option<Millis> {
        self.open.values().map(OpenWindow::opened).min()
    }

    fn next_due(&self) -> Option<Millis> {
        self.opened().map(|opened| Millis(opened.0.saturating_add(self.rules.max_age.as_millis() as i64)))
    }

    fn records_until_due(&self) -> Option<usize> {
        self.event_time.is_none().then(|| self.rules.max_records.saturating_sub(self.len() + 1))
    }
}
