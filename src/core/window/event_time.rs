//! Where event time stands, by what the records say together: no single record can move it far.
//!
//! A record dated further ahead of the others than an hour (or a window, where that is longer) is believed only when
//! [`AGREE`] records in a row say about the same. Time that has passed by the clock since event time last moved explains as
//! much of the distance, so that a stream that paused goes on at once. The first record has no others to be compared with: unless
//! it is near the clock, an older one that follows it corrects it.

use super::EventTime;
use crate::model::event::Millis;

/// How far ahead of the clock an event time may lie and still be believed. Larger lets a wrong clock close windows early;
/// smaller distrusts clocks that are merely a little fast.
const MAX_AHEAD_MS: i64 = 60_000;
/// How far ahead of the others a record may be and still be believed at once. Larger lets one wrong record make the others late
/// by as much; smaller makes every pause of a stream that is read later a jump.
const LEAST_REACH_MS: i64 = 3_600_000;
/// How many records in a row must agree on a jump. More puts as many records of the new time into the old window; fewer lets a
/// few wrong ones decide.
const AGREE: u32 = 10;

/// The event time of a stream.
pub(super) struct EventClock {
    lateness: i64,
    reach: i64,
    /// The newest time that is believed.
    newest: Option<i64>,
    /// The clock's time when that last moved.
    moved: i64,
    /// True once something else than the first record speaks for it.
    confirmed: bool,
    /// The oldest of the last records in a row that agree on a jump, and how many they are.
    jump: Option<(i64, u32)>,
}

impl EventClock {
    /// No record yet.
    pub(super) fn new(rules: &EventTime) -> Self {
        let millis = |duration: std::time::Duration| i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        let (size, lateness) = (millis(rules.size), millis(rules.allowed_lateness));
        let reach = LEAST_REACH_MS.max(size.saturating_add(lateness));
        Self { lateness, reach, newest: None, moved: 0, confirmed: false, jump: None }
    }

    /// Takes the event time of a record that comes at `now`; true if it is believed.
    pub(super) fn observe(&mut self, Millis(time): Millis, Millis(now): Millis) -> bool {
        if time > now.saturating_add(MAX_AHEAD_MS) {
            return false;
        }
        let Some(newest) = self.newest else {
            self.confirmed = time >= now.saturating_sub(self.reach);
            return self.believe(time, now);
        };
        let passed = now.saturating_sub(self.moved).max(0);
        if time > newest.saturating_add(self.reach).saturating_add(passed) {
            let agrees = |(from, _): &(i64, u32)| from.abs_diff(time) <= self.reach.unsigned_abs();
            let (from, records) = self.jump.filter(agrees).unwrap_or((time, 0));
            self.jump = Some((from.min(time), records + 1));
            return records + 1 >= AGREE && self.believe(from.min(time), now);
        }
        let near = time >= newest.saturating_sub(self.reach);
        if near {
            (self.confirmed, self.jump) = (true, None);
        }
        if time > newest || !(near || self.confirmed) {
            return self.believe(time, now);
        }
        true
    }

    fn believe(&mut self, time: i64, now: i64) -> bool {
        (self.newest, self.moved, self.jump) = (Some(time), now, None);
        true
    }

    /// The newest time that is believed.
    pub(super) fn newest(&self) -> Option<i64> {
        self.newest
    }

    /// No record older than this is waited for.
    pub(super) fn watermark(&self) -> i64 {
        self.newest.map_or(i64::MIN, |newest| newest.saturating_sub(self.lateness))
    }

    /// No window that starts later belongs to a time that is believed.
    pub(super) fn horizon(&self) -> i64 {
        self.newest.map_or(i64::MAX, |newest| newest.saturating_add(self.reach))
    }
}
