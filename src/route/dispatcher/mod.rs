//! Decides to which lane a message goes: by its district, or where its person is already.
//!
//! No clock: whether somebody has stayed away is told by the messages' own times, so that a batch that is routed again after a crash is
//! routed alike.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::codec::RecordReader;
use crate::district::{DistrictMap, Districts, FEWEST, MOST, Sketch};
use crate::kafka::route::Lane;
use crate::kafka::route::state::Home;
use crate::model::event::{Event, Millis, Partition, RejectCode};
use crate::model::policy::Policy;
use crate::model::record::Record;

/// After the first map, one of so many records is looked at. Larger: drift is noticed later. Smaller: costs time for every record.
const LOOK_EVERY: u64 = 8;
/// A lane with so many times its share is too full. Larger: one instance has much more to do than the others. Smaller: maps change often.
const UNEVEN: f64 = 1.3;
/// The part of `stays` after which it is noted again that somebody is still there. Larger: after a restart somebody counts as away too
/// soon. Smaller: more notes.
const NOTED_AGAIN: i64 = 4;

/// The lanes of records and people.
pub struct Dispatcher {
    policy: Arc<Policy>,
    lanes: u32,
    map: Option<(DistrictMap, Districts)>,
    /// How long somebody who does not come is expected, where people are known.
    stays: Option<Duration>,
    people: FxHashMap<Partition, FxHashMap<u64, Home>>,
    sketch: Sketch,
    /// The records of a full sketch.
    enough: usize,
    /// By lane, the records that the map gave to it, of those looked at.
    shares: Vec<u64>,
    /// The times of the records looked at.
    times: Vec<i64>,
    seen: u64,
}

/// What a message is to the router.
enum Kind {
    /// A record: its person, where people are known, and the lane of its district.
    Record { person: Option<u64>, lane: u32 },
    /// It retracts records.
    Retraction,
    /// `run` will turn it away.
    Unreadable,
}

impl Dispatcher {
    /// Knows no map and nobody yet. The levels of the policy are those that every reader may see; `window` is how many records all
    /// windows that are open at a time may hold.
    pub fn new(policy: &Arc<Policy>, lanes: u32, stays: Duration, window: usize) -> Self {
        Self {
            enough: window.clamp(FEWEST, MOST),
            sketch: Sketch::new(policy),
            stays: policy.schema.subject.map(|_| stays),
            policy: Arc::clone(policy),
            map: None,
            people: FxHashMap::default(),
            shares: vec![0; lanes as usize],
            times: Vec::new(),
            seen: 0,
            lanes,
        }
    }

    /// How many records a full sketch has.
    pub fn enough(&self) -> usize {
        self.enough
    }

    /// How many lanes there are.
    pub fn lanes(&self) -> u32 {
        self.lanes
    }

    /// The map, if there is one.
    pub fn map(&self) -> Option<&DistrictMap> {
        self.map.as_ref().map(|(map, _)| map)
    }

    /// Routes by this map from now on; false if it is for another policy or other lanes.
    pub fn set_map(&mut self, map: DistrictMap) -> bool {
        let fits = map.lanes == self.lanes;
        match map.resolve(&self.policy).filter(|_| fits) {
            Some(districts) => {
                self.map = Some((map, districts));
                self.shares.fill(0);
                true
            }
            None => false,
        }
    }

    /// True if the lanes of people are kept.
    pub fn knows_people(&self) -> bool {
        self.stays.is_some()
    }

    /// Somebody was noted in a lane.
    pub fn settle(&mut self, partition: Partition, person: u64, home: Home) {
        self.people.entry(partition).or_default().insert(person, home);
    }

    /// Forgets the people of partitions that others read.
    pub fn give_up(&mut self, is_gone: impl Fn(Partition) -> bool) {
        self.people.retain(|partition, _| !is_gone(*partition));
    }

    /// True once enough records were looked at.
    pub fn is_due(&self) -> bool {
        self.sketch.len() >= self.enough
    }

    /// True if the map gives a lane too many records, or could not divide all lanes when it was made.
    pub fn is_uneven(&self) -> bool {
        let (all, most) = (self.shares.iter().sum::<u64>(), self.shares.iter().copied().max().unwrap_or(0));
        let undivided = self.map().is_none_or(DistrictMap::is_undivided);
        undivided || most as f64 * f64::from(self.lanes) > UNEVEN * all as f64
    }

    /// The records looked at, and a new beginning. People who have stayed away are forgotten.
    pub fn take_sketch(&mut self) -> Sketch {
        self.shares.fill(0);
        let mut times = std::mem::take(&mut self.times);
        if let (Some(stays), false) = (self.stays, times.is_empty()) {
            // In the middle, so that single records with wrong times decide nothing.
            let middle = times.len() / 2;
            let now = *times.select_nth_unstable(middle).1;
            let stays = stays.as_millis() as i64;
            self.people
                .values_mut()
                .for_each(|people| people.retain(|_, home| now.saturating_sub(home.seen.0) <= stays));
        }
        std::mem::replace(&mut self.sketch, Sketch::new(&self.policy))
    }

    /// What came in the time of a window: later sketches have as many records.
    pub fn came(&mut self, records: usize) {
        self.enough = records.clamp(FEWEST, MOST);
    }

    /// Looks at a message for a map, and routes nothing.
    pub fn look_at(&mut self, reader: &mut RecordReader, event: &Event) {
        let Some(payload) = &event.payload else { return };
        let (sketch, mut first) = (&mut self.sketch, true);
        let _ = reader.each(payload, |record, _| {
            if std::mem::take(&mut first) {
                sketch.add(record);
            }
        });
    }

    /// The lane of a message; with it, what is to be noted about its person.
    pub fn lane(&mut self, reader: &mut RecordReader, event: &Event) -> (Lane, Option<(u64, Home)>) {
        let (person, lane) = match self.kind(reader, event) {
            Kind::Retraction => return (Lane::All, None),
            Kind::Unreadable => return (Lane::One((spread(event) % u64::from(self.lanes)) as u32), None),
            Kind::Record { person, lane } => (person, lane),
        };
        let (Some(person), Some(stays)) = (person, self.stays) else { return (Lane::One(lane), None) };
        let (time, stays) = (event.timestamp.unwrap_or(Millis(0)), stays.as_millis() as i64);
        let people = self.people.entry(event.position.partition).or_default();
        let away = |home: &Home| time.0.saturating_sub(home.seen.0);
        let home = people.get(&person).copied().filter(|home| home.lane < self.lanes && away(home) <= stays);
        if let Some(home) = home.filter(|home| away(home) <= stays / NOTED_AGAIN) {
            return (Lane::One(home.lane), None);
        }
        let home = Home { lane: home.map_or(lane, |home| home.lane), seen: time };
        people.insert(person, home);
        (Lane::One(home.lane), Some((person, home)))
    }

    fn kind(&mut self, reader: &mut RecordReader, event: &Event) -> Kind {
        let Some(payload) = &event.payload else {
            return if event.key.is_some() { Kind::Retraction } else { Kind::Unreadable };
        };
        self.seen += 1;
        let looks = self.seen.is_multiple_of(LOOK_EVERY);
        let mut found = None;
        let read = reader.each(payload, |record, _| {
            // The records of a message are about one person, and stay together.
            if found.is_none() {
                found = Some(self.place(record, event, looks));
            }
        });
        match (read, found) {
            (Err(reject), _) if reject.code == RejectCode::Tombstone => Kind::Retraction,
            (Ok(()), Some((person, lane))) => Kind::Record { person, lane },
            _ => Kind::Unreadable,
        }
    }

    fn place(&mut self, record: &Record<'_>, event: &Event, looks: bool) -> (Option<u64>, u32) {
        let subject = self.policy.schema.subject.map(|slot| record.values[slot].counted());
        let person = subject.filter(|name| !name.is_empty()).map(|name| stable_hash(name.as_bytes()));
        let spread = person.unwrap_or_else(|| spread(event));
        let lane = self.map.as_ref().map_or(0, |(_, districts)| districts.lane(record, spread));
        if looks && self.sketch.len() < self.enough && self.sketch.add(record) {
            self.shares[lane as usize] += 1;
            self.times.extend(event.timestamp.map(|time| time.0));
        }
        (person, lane)
    }
}

/// Spreads messages without a district, those of one key alike.
fn spread(event: &Event) -> u64 {
    match &event.key {
        Some(key) => stable_hash(key),
        None => stable_hash(&event.position.offset.0.to_le_bytes()),
    }
}

/// The same in every build, because it is noted for later ones (FNV-1a, mixed). Two people with one hash share a lane.
fn stable_hash(bytes: &[u8]) -> u64 {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hash >> 29
}

#[cfg(test)]
mod tests;
