//! Who goes where: people stay, retractions reach all, what cannot be read has a place, and a restart continues.

use bytes::Bytes;

use super::*;
use crate::config::{Config, Purpose};
use crate::model::event::{Key, Position};

const OUTLETS: u32 = 4;
const STAYS: Duration = Duration::from_secs(1000);

fn policy(subject: bool) -> Arc<Policy> {
    let subject = if subject { "subject: user" } else { "" };
    let text = format!(
        "policy:\n  quasi_identifiers:\n    - {{ name: age, hierarchy: {{ intervals: {{ widths: [10, 40], min: 0, max: 120 }} }} }}\n    \
         - {{ name: zip, hierarchy: {{ prefix: {{ length: 3 }} }} }}\n  {subject}\n  privacy: [{{ k-anonymity: 3 }}]\n"
    );
    let config = Config::parse(&text, std::path::Path::new("policy.yaml"), Purpose::Policy).unwrap();
    Arc::new(config.policy)
}

fn event(offset: i64, user: &str, zip: u32, time: i64) -> Event {
    let payload = format!(r#"{{"user":"{user}","age":{},"zip":"{zip:03}"}}"#, 20 + zip % 50);
    Event {
        position: Position::new(0, offset),
        placement: 0,
        timestamp: Some(Millis(time)),
        key: Some(Key::from_slice(user.as_bytes())),
        payload: Some(Bytes::from(payload)),
    }
}

struct Routing {
    dispatcher: Dispatcher,
    reader: RecordReader,
}

impl Routing {
    fn new(subject: bool) -> Self {
        let policy = policy(subject);
        let (dispatcher, reader) =
            (Dispatcher::new(&policy, OUTLETS, STAYS, FEWEST), RecordReader::json(&policy.schema, 1000));
        let mut this = Self { dispatcher, reader };
        let events = (0..4000).map(|i| event(i, &format!("u{i}"), (i * 7 % 1000) as u32, 0));
        events.for_each(|event| this.dispatcher.look_at(&mut this.reader, &event));
        let map = this.dispatcher.take_sketch().divide(OUTLETS, None);
        assert!(!map.is_undivided() && this.dispatcher.set_map(map));
        this
    }

    fn outlet(&mut self, event: &Event) -> (Outlet, Option<(u64, Home)>) {
        self.dispatcher.outlet(&mut self.reader, event)
    }
}

#[test]
fn people_stay_where_they_are_while_they_come_and_move_after_they_stayed_away() {
    let mut routing = Routing::new(true);
    let places: Vec<(i64, Outlet)> = (0..500)
        .step_by(20)
        .map(|zip| (zip, routing.outlet(&event(zip, &format!("p{zip}"), zip as u32, 0)).0))
        .collect();
    let (from, here) = places[0];
    let (to, there) = *places.iter().find(|(_, outlet)| *outlet != here).expect("another outlet");
    let mut at = |zip: i64, time| {
        let (outlet, note) =
            routing.outlet(&Event { position: Position::new(0, 9), ..event(from, "who", zip as u32, time) });
        (outlet, note.is_some())
    };
    assert_eq!(at(from, 0), (here, true), "somebody new is noted");
    assert_eq!(at(to, 100_000), (here, false), "who comes again is not, and stays whatever the record says");
    assert_eq!(at(to, 300_000), (here, true), "that somebody is still there is noted again");
    assert_eq!(at(to, 1_200_000), (here, true), "a thousand seconds since then");
    assert_eq!(at(to, 2_300_000), (there, true), "somebody who stayed away is routed anew");
    // Without a subject nobody is known, and alike records share an outlet.
    let mut plain = Routing::new(false);
    let outlets: Vec<_> =
        (0..50).map(|i| plain.outlet(&Event { payload: event(1, "x", 5, 0).payload, ..event(i, "y", 0, i) })).collect();
    assert!(outlets.iter().all(|outlet| *outlet == outlets[0] && outlet.1.is_none()));
}

#[test]
fn a_restart_that_reads_the_notes_continues() {
    let mut routing = Routing::new(true);
    let map = routing.dispatcher.map().unwrap().clone();
    let people: Vec<Event> = (0..300).map(|i| event(i, &format!("p{i}"), (i * 13 % 1000) as u32, i)).collect();
    let before: Vec<_> = people.iter().map(|event| routing.outlet(event)).collect();
    // Another map by then: what was noted counts.
    let mut after = Routing::new(true);
    after.dispatcher = Dispatcher::new(&policy(true), OUTLETS, STAYS, FEWEST);
    assert!(after.dispatcher.set_map(DistrictMap::undivided(OUTLETS)));
    for (outlet, note) in &before {
        let (person, home) = note.expect("everybody is new");
        assert_eq!(Outlet::One(home.outlet), *outlet);
        after.dispatcher.settle(Partition(0), person, home);
    }
    for (event, (outlet, _)) in people.iter().zip(&before) {
        assert_eq!(after.outlet(event), (*outlet, None));
    }
    after.dispatcher.give_up(|partition| partition == Partition(0));
    assert!(after.dispatcher.set_map(map));
    assert_eq!(
        people.iter().map(|event| after.outlet(event)).collect::<Vec<_>>(),
        before,
        "the same map, and nobody known"
    );
}

#[test]
fn what_retracts_reaches_all_outlets_and_what_cannot_be_read_one() {
    let mut routing = Routing::new(true);
    let tombstone = Event { payload: None, ..event(1, "u1", 0, 0) };
    assert_eq!(routing.outlet(&tombstone), (Outlet::All, None));
    let nobody = Event { key: None, ..tombstone };
    assert!(matches!(routing.outlet(&nobody), (Outlet::One(outlet), None) if outlet < OUTLETS));
    for text in ["{", "", r#"{"user":null,"age":3,"zip":"123"}"#, r#"{"user":"u","age":"old","zip":"?"}"#, "[1]"] {
        let bad = Event { payload: Some(Bytes::copy_from_slice(text.as_bytes())), ..event(2, "u2", 0, 0) };
        assert!(matches!(routing.outlet(&bad).0, Outlet::One(outlet) if outlet < OUTLETS), "{text}");
    }
}

#[test]
fn a_stream_that_drifts_is_uneven_and_one_record_with_a_wrong_time_forgets_nobody() {
    let mut routing = Routing::new(true);
    let first = routing.outlet(&event(0, "first", 1, 0)).0;
    for i in 0..(FEWEST as i64 * LOOK_EVERY as i64) {
        let time = if i == 14 { i64::MAX } else { 500_000 };
        // Everybody moves to a corner.
        routing.outlet(&event(i, &format!("n{i}"), (i / 8 % 20) as u32, time));
    }
    assert!(routing.dispatcher.is_due() && routing.dispatcher.is_uneven());
    let last = routing.dispatcher.map().cloned();
    let map = routing.dispatcher.take_sketch().divide(OUTLETS, last.as_ref());
    assert_eq!(routing.outlet(&event(0, "first", 900, 500_001)).0, first);
    let known = FEWEST * LOOK_EVERY as usize + 1;
    assert_eq!(routing.dispatcher.people[&Partition(0)].len(), known);
    assert!(routing.dispatcher.set_map(map));
    for i in 0..4000 {
        routing.outlet(&event(i, &format!("m{i}"), (i / 8 % 20) as u32, 500_000));
    }
    assert!(!routing.dispatcher.is_uneven(), "{:?}", routing.dispatcher.shares);
}
