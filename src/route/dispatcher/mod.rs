//! Decides to which outlet a message goes: by its district, or where its person is already.
//!
//! No clock: whether somebody has stayed away is told by the messages' own times, so that a batch that is routed again after a crash is
//! routed alike.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::codec::RecordReader;
use crate::district::{DistrictMap, Districts, FEWEST, MOST, Sketch};
use crate::kafka::route::Outlet;
use crate::kafka::route::state::Home;
use crate::model::event::{Event, Millis, Partition, RejectCode};
use crate::model::policy::Policy;
use crate::model::record::Record;

/// After the first map, one of so many records is looked at. Larger: drift is noticed later. Smaller: costs time for every record.
const LOOK_EVERY: u64 = 8;
/// An outlet with so many times its share is too full. Larger: one instance has much more to do than the others. Smaller: maps change often.
const UNEVEN: f64 = 1.3;
/// The part of `stays` after which it is noted again that somebody is still there. Larger: after a restart somebody counts as away too
/// soon. Smaller: more notes.
const NOTED_AGAIN: i64 = 4;

/// The outlets of records and people.
pub struct Dispatcher {
    policy: Arc<Policy>,
    outlets: u32,
    map: Option<(DistrictMap, Districts)>,
    /// How long somebody who does not come is expected, where people are known.
    stays: Option<Duration>,
    people: FxHashMap<Partition, FxHashMap<u64, Home>>,
    sketch: Sketch,
    /// The records of a full sketch.
    enough: usize,
    /// By outlet, the records that the map gave to it, of those looked at.
    shares: Vec<u64>,
    /// The times of the records looked at.
    times: Vec<i64>,
    seen: u64,
}

/// What a message is to the router.
enum Kind {
    /// A record: its person, where people are known, and the outlet of its district.
    Record { person: Option<u64>, outlet: u32 },
    /// It retracts records.
    Retraction,
    /// `run` will turn it away.
    Unreadable,
}

impl Dispatcher {
    /// Knows no map and nobody yet. The levels of the policy are those that every reader may see; `window` is how many records all
    /// windows that are open at a time may hold.
    pub fn new(policy: &Arc<Policy>, outlets: u32, stays: Duration, window: usize) -> Self {
        Self {
            enough: window.clamp(FEWEST, MOST),
            sketch: Sketch::new(policy),
            stays: policy.schema.subject.map(|_| stays),
            policy: Arc::clone(policy),
            map: None,
            people: FxHashMap::default(),
            shares: vec![0; outlets as usize],
            times: Vec::new(),
            seen: 0,
            outlets,
        }
    }

    /// How many records a full sketch has.
    pub fn enough(&self) -> usize {
        self.enough
    }

    /// How many outlets there are.
    pub fn outlets(&self) -> u32 {
        self.outlets
    }

    /// The map, if there is one.
    pub fn map(&self) -> Option<&DistrictMap> {
        self.map.as_ref().map(|(map, _)| map)
    }

    /// Routes by this map from now on; false if it is for another policy or other outlets.
    pub fn set_map(&mut self, map: DistrictMap) -> bool {
        let fits = map.outlets == self.outlets;
        match map.resolve(&self.policy).filter(|_| fits) {
            Some(districts) => {
                self.map = Some((map, districts));
                self.shares.fill(0);
                true
            }
            None => false,
        }
    }

    /// True if the outlets of people are kept.
    pub fn knows_people(&self) -> bool {
        self.stays.is_some()
    }

    /// Somebody was noted in an outlet.
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

    /// True if the map gives an outlet too many records, or could not divide all outlets when it was made.
    pub fn is_uneven(&self) -> bool {
        let (all, most) = (self.shares.iter().sum::<u64>(), self.shares.iter().copied().max().unwrap_or(0));
        let undivided = self.map().is_none_or(DistrictMap::is_undivided);
        undivided || most as f64 * f64::from(self.outlets) > UNEVEN * all as f64
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

    /// The outlet of a message; with it, what is to be noted about its person.
    pub fn outlet(&mut self, reader: &mut RecordReader, event: &Event) -> (Outlet, Option<(u64, Home)>) {
        let (person, outlet) = match self.kind(reader, event) {
            Kind::Retraction => return (Outlet::All, None),
            Kind::Unreadable => return (Outlet::One((spread(event) % u64::from(self.outlets)) as u32), None),
            Kind::Record { person, outlet } => (person, outlet),
        };
        let (Some(person), Some(stays)) = (person, self.stays) else { return (Outlet::One(outlet), None) };
        let (time, stays) = (event.timestamp.unwrap_or(Millis(0)), stays.as_millis() as i64);
        let people = self.people.entry(event.position.partition).or_default();
        let away = |home: &Home| time.0.saturating_sub(home.seen.0);
        let home = people.get(&person).copied().filter(|home| home.outlet < self.outlets && away(home) <= stays);
        if let Some(home) = home.filter(|home| away(home) <= stays / NOTED_AGAIN) {
            return (Outlet::One(home.outlet), None);
        }
        let home = Home { outlet: home.map_or(outlet, |home| home.outlet), seen: time };
        people.insert(person, home);
        (Outlet::One(home.outlet), Some((person, home)))
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
            (Ok(()), Some((person, outlet))) => Kind::Record { person, outlet },
            _ => Kind::Unreadable,
        }
    }

    fn place(&mut self, record: &Record<'_>, event: &Event, looks: bool) -> (Option<u64>, u32) {
        let subject = self.policy.schema.subject.map(|slot| record.values[slot].counted());
        let person = subject.filter(|name| !name.is_empty()).map(|name| stable_hash(name.as_bytes()));
        let spread = person.unwrap_or_else(|| spread(event));
        let outlet = self.map.as_ref().map_or(0, |(_, districts)| districts.outlet(record, spread));
        if looks && self.sketch.len() < self.enough && self.sketch.add(record) {
            self.shares[outlet as usize] += 1;
            self.times.extend(event.timestamp.map(|time| time.0));
        }
        (person, outlet)
    }
}

/// Spreads messages without a district, those of one key alike.
fn spread(event: &Event) -> u64 {
    match &event.key {
        Some(key) => stable_hash(key),
        None => stable_hash(&event.position.offset.0.to_le_bytes()),
    }
}

/// The same in every build, because it is noted for later ones (FNV-1a, mixed). Two people with one hash share an outlet.
fn stable_hash(bytes: &[u8]) -> u64 {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    (hash ^ hash >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hash >> 29
}

#[cfg(test)]
mod tests;
