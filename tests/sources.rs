//! Inputs that have the policy's fields elsewhere, and messages that hold several records.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "common/walk.rs"]
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;

use proptest::prelude::*;
use veilstream::config::{Config, SourceConfig};
use veilstream::kafka::client::BadStart;
use veilstream::model::event::{Event, Key, Partition, Position};
use veilstream::model::release::plan::ReleasePlan;
use veilstream::model::schema::Placement;
use veilstream::pipeline::{PipelineError, Summary};
use veilstream::source::{GivenUp, NewAssignment, Replay, SourceItem};
use walk::{Reader, Seen, config, pipeline, readers, walk_with};

fn run(
    config: &Config,
    placements: &[Placement],
    script: Vec<SourceItem>,
) -> Result<(Summary, Vec<Seen>), PipelineError> {
    run_on(2, config, placements, script)
}

fn run_on(
    cores: usize,
    config: &Config,
    placements: &[Placement],
    script: Vec<SourceItem>,
) -> Result<(Summary, Vec<Seen>), PipelineError> {
    let bad_start = matches!(&config.source, SourceConfig::Kafka(kafka) if kafka.bad_start == BadStart::Reject);
    let pipeline = pipeline(config, cores);
    let readers = readers(&pipeline, placements).into_iter();
    let readers = readers.map(|reader| if bad_start { reader.starting_badly() } else { reader }).collect();
    let reader = Reader::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let summary = runtime.block_on(walk_with(pipeline, readers, script, reader.clone()))?;
    assert!(summary.adds_up(), "{summary:?}");
    Ok((summary, reader.take()))
}

fn event(placement: usize, offset: i64, key: &str, json: Option<String>) -> Event {
    let payload = json.map(|json| json.into_bytes().into());
    let key = Some(Key::from_slice(key.as_bytes()));
    Event { position: Position::new(0, offset), placement, timestamp: None, key, payload }
}

/// Orders with their items: an age and a customer around them, a code and a number in each.
const ORDERS: &str = "\
policy:
  quasi_identifiers:
    - { name: age, hierarchy: { intervals: { widths: [10, 100], min: 0, max: 99 } } }
    - { name: items.code, hierarchy: { prefix: { length: 2 } } }
  keep: [{ name: items.number, reviewed: true }]
  subject: customer
  privacy: [{ k-anonymity: 3 }]
  suppression: { limit: 30% }
window: { tumbling: { max_records: 60, max_age: 1h } }
source: { file: { path: orders.jsonl, explode: items } }
sink: { file: { path: out.jsonl } }
";

fn order(offset: i64, age: u32, items: &[(&str, i64)]) -> Event {
    let items: Vec<String> =
        items.iter().map(|(code, number)| format!(r#"{{"number":{number},"code":"{code}"}}"#)).collect();
    let json = format!(r#"{{"age":{age},"items":[{}],"customer":"c{offset}"}}"#, items.join(","));
    event(0, offset, &format!("k{offset}"), Some(json))
}

fn numbers(seen: &[Seen]) -> BTreeSet<i64> {
    seen.iter().flat_map(|seen| seen.rows.iter().map(|(_, values)| values[0].parse().unwrap())).collect()
}

fn placements(config: &Config) -> Vec<Placement> {
    match &config.source {
        SourceConfig::File { placement, .. } => vec![placement.clone()],
        SourceConfig::Kafka(kafka) => kafka.placements.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_message_has_one_outcome_however_many_records_it_holds() {
    let config = config(ORDERS);
    let mut events: Vec<Event> = (0..20).map(|i| order(i, 30, &[("aa", 10 * i), ("ab", 10 * i + 1)])).collect();
    events.push(order(20, 30, &[]));
    events.push(order(21, 30, &[("aa", 210), ("too long", 211)]));
    events.push(event(0, 22, "k", Some(r#"{"age":30,"customer":"c"}"#.into())));
    events.push(event(0, 23, "k", Some(r#"{"age":30,"customer":"c","items":{"code":"aa"}}"#.into())));
    events.push(event(0, 24, "k", Some(r#"{"age":30,"customer":"c","items":["aa"]}"#.into())));
    events.push(event(0, 25, "k3", None));
    let (summary, seen) = run(&config, &placements(&config), vec![SourceItem::Events(events)]).unwrap();
    let counts = (summary.records_in, summary.records_published, summary.records_suppressed, summary.records_rejected);
    assert_eq!(counts, (26, 19, 1, 6), "all records of the third order are retracted by one tombstone");
    assert_eq!(numbers(&seen), (0..20).filter(|i| *i != 3).flat_map(|i| [10 * i, 10 * i + 1]).collect());
    let [only] = &seen[..] else { panic!("{} releases", seen.len()) };
    assert_eq!((only.manifest.rows, only.manifest.provenance.records_published), (38, 19));
    assert_eq!((only.lineage.finished.count(), only.lineage.plan.fresh.count()), (26, 26));
}

#[test]
fn k_counts_people_and_not_the_records_of_one_message() {
    let config = config(ORDERS);
    let mut events: Vec<Event> = (0..10).map(|i| order(i, 30, &[("aa", i)])).collect();
    // Two people with many records in a class of their own.
    events.extend((10..12).map(|i| order(i, 90, &[("zz", 100 + i), ("zz", 200 + i), ("zz", 300 + i)])));
    let (summary, seen) = run(&config, &placements(&config), vec![SourceItem::Events(events)]).unwrap();
    for seen in &seen {
        let mut classes: BTreeMap<&str, BTreeSet<i64>> = BTreeMap::new();
        for (label, values) in &seen.rows {
            let number: i64 = values[0].parse().unwrap();
            classes.entry(label).or_default().insert(if number < 100 { number } else { number % 100 });
        }
        assert!(classes.values().all(|people| people.len() >= 3), "{classes:?}");
    }
    assert_eq!(summary.records_in, 12);
}

#[test]
fn a_planned_release_is_made_again_of_the_same_messages() {
    let config = config(ORDERS);
    let at = placements(&config);
    let events: Vec<Event> = (0..20)
        .map(|i| order(i, 20 + i as u32, &[("aa", 10 * i), (["ab", "zz"][i as usize % 2], 10 * i + 1)]))
        .collect();
    let (_, first) = run(&config, &at, vec![SourceItem::Events(events.clone())]).unwrap();
    let [planned] = &first[..] else { panic!("{} releases", first.len()) };
    let replay = Replay { plan: planned.lineage.plan.clone(), events };
    let assigned = NewAssignment { epoch: 1, partitions: None, last: None };
    let script = vec![SourceItem::Assigned(assigned), SourceItem::Replay(Box::new(replay))];
    let (summary, again) = run(&config, &at, script).unwrap();
    assert_eq!(again[0].rows, planned.rows);
    assert_eq!(again[0].lineage.finished, planned.lineage.finished);
    assert_eq!(summary.records_in, 20);
}

#[test]
fn partitions_that_move_give_messages_back() {
    let config = config(ORDERS);
    let events: Vec<Event> = (0..5).map(|i| order(i, 30, &[("aa", i), ("aa", 10 + i)])).collect();
    let (done, told) = mpsc::sync_channel(1);
    let gone = GivenUp { partitions: BTreeSet::from([Partition(0)]), done };
    let assigned = NewAssignment { epoch: 1, partitions: Some(vec![Partition(0)]), last: None };
    let script = vec![SourceItem::Assigned(assigned), SourceItem::Events(events), SourceItem::GivenUp(gone)];
    let (summary, seen) = run(&config, &placements(&config), script).unwrap();
    assert_eq!((summary.records_in, summary.records_returned, seen.len()), (5, 5, 0));
    assert_eq!(told.recv(), Ok(()));
}

/// Latitude and longitude in fields of their own, in a place of its own in each topic.
#[test]
fn two_fields_make_one_place() {
    let config = config(
        "\
policy:
  quasi_identifiers:
    - { name: home.cell, from: [home.lat, home.lon], hierarchy: { geohash: { lengths: [5, 3, 1] } } }
  keep: [{ name: number, reviewed: true }]
  missing_value: suppress
  privacy: [{ k-anonymity: 3 }]
  suppression: { limit: 10% }
window: { tumbling: { max_records: 42, max_age: 1h } }
source: { kafka: { brokers: 'b:1', group: g, topics: [a, { name: b, fields: { home.lat: breite, home.lon: laenge } }] } }
sink: { kafka: { topic: safe } }
",
    );
    // Cells of Berlin and Hamburg: u33 and u1x.
    let place = |i: i64| if i % 2 == 0 { ("52.52", "13.405") } else { ("53.55", "9.99") };
    let event = |i: i64| {
        let (lat, lon) = place(i);
        let (at, json) = match i % 3 {
            0 => (0, format!(r#"{{"number":{i},"home":{{"lat":{lat},"lon":{lon}}}}}"#)),
            1 => (0, format!(r#"{{"number":{i},"home":{{"lon":"{lon}","lat":"{lat}"}}}}"#)),
            _ => (1, format!(r#"{{"number":{i},"breite":{lat},"laenge":{lon}}}"#)),
        };
        event(at, i, "k", Some(json))
    };
    let mut events: Vec<Event> = (0..36).map(event).collect();
    let odd = [
        r#"{"number":36,"home":{"lat":52.52}}"#,
        r#"{"number":37,"home":{"lon":13.405}}"#,
        r#"{"number":38,"home":{"lat":null,"lon":13.4}}"#,
        r#"{"number":39,"home":{"lat":[52.52],"lon":13.4}}"#,
        r#"{"number":40,"home":{"lat":13.4,"lon":252.5}}"#,
        r#"{"number":41,"home":{"lat":true,"lon":"u33db"}}"#,
    ];
    events.extend((36..).zip(odd).map(|(i, json)| self::event(0, i, "k", Some(json.into()))));
    let (summary, seen) = run(&config, &placements(&config), vec![SourceItem::Events(events)]).unwrap();
    assert_eq!((summary.records_published, summary.records_suppressed, summary.records_rejected), (36, 2, 4));
    for (label, values) in &seen[0].rows {
        let (lat, lon) = place(values[0].parse().unwrap());
        assert_eq!(label, if lat == "52.52" { "u33dc" } else { "u1x0e" }, "{lat},{lon}");
    }
    let output = config.policy.schema.reading_output();
    assert!(output.published().map(|slot| &**output.name(slot)).eq(["home.cell", "number"]));
}

/// A topic that begins with a window and more of messages that nobody can read; behind them a field may still be misspelt.
#[test]
fn a_bad_start_is_rejected_by_position_if_the_source_says_so() {
    let kafka =
        "source: { kafka: { brokers: 'b:1', group: g, topic: t, explode: items } }\nsink: { kafka: { topic: safe } }\n";
    let (policy, _) = ORDERS.split_once("source:").unwrap();
    let (stop, reject) =
        (format!("{policy}{kafka}"), format!("{policy}{}", kafka.replace("topic: t,", "topic: t, bad_start: reject,")));
    let events = || -> Vec<SourceItem> {
        let bad = (0..150).map(|i| event(0, i, "k", Some("no json".into())));
        let good = (150..210).map(|i| {
            let json = format!(r#"{{"age":30,"items":[{{"number":{i},"code":"aa"}}],"customer":"c{i}"}}"#);
            event(0, i, "k", Some(json))
        });
        vec![SourceItem::Events(bad.chain(good).collect())]
    };
    let ended = |yaml: &str| {
        let config = config(yaml);
        run(&config, &placements(&config), events())
    };
    assert!(matches!(ended(&stop), Err(PipelineError::AllRejected(_))));
    let (summary, _) = ended(&reject).unwrap();
    assert_eq!((summary.records_published, summary.records_rejected), (60, 150));
    let misspelt = reject.replace("name: items.code", "name: items.cod");
    let told = ended(&misspelt).unwrap_err().to_string();
    assert!(told.contains("no record has `items.cod`"), "{told}");
}

/// Held under an earlier policy, which did not take messages apart; this one lets nobody wait.
#[test]
fn a_message_that_waited_before_a_change_of_policy_is_counted_once() {
    let config = config(&ORDERS.replace("  privacy", "  unknown_value: suppress\n  privacy"));
    let held = || SourceItem::Held(vec![(order(0, 30, &[("aa", 0), ("too long", 1)]), None)]);
    let assigned =
        || SourceItem::Assigned(NewAssignment { epoch: 1, partitions: Some(vec![Partition(0)]), last: None });
    let gone = GivenUp { partitions: BTreeSet::from([Partition(0)]), done: mpsc::sync_channel(1).0 };
    let script = vec![assigned(), held(), SourceItem::GivenUp(gone)];
    let (summary, _) = run(&config, &placements(&config), script).unwrap();
    assert_eq!((summary.records_in, summary.records_returned), (1, 1));
    // With the two records of the message that waited they fill a window.
    let events = (1..59).map(|i| order(i, 30, &[("aa", 10 * i)])).collect();
    let script = vec![assigned(), held(), SourceItem::Events(events)];
    let (summary, seen) = run(&config, &placements(&config), script).unwrap();
    assert_eq!((summary.records_in, summary.records_published, summary.records_suppressed), (59, 58, 1));
    assert!(!numbers(&seen).contains(&0));
}

#[test]
fn nobody_waits_for_ever_after_a_change_of_policy() {
    let config = config(&ORDERS.replace(", explode: items", "").replace("items.", ""));
    let person = |i: i64, age: u32| {
        event(0, i, "k", Some(format!(r#"{{"age":{age},"code":"aa","number":{i},"customer":"c{i}"}}"#)))
    };
    let assigned = NewAssignment { epoch: 1, partitions: Some(vec![Partition(0)]), last: None };
    let held = (0..2).map(|i| (person(i, 91), None)).collect();
    let events = (2..122).map(|i| person(i, 30)).collect();
    let script = vec![SourceItem::Assigned(assigned), SourceItem::Held(held), SourceItem::Events(events)];
    let (summary, _) = run(&config, &placements(&config), script).unwrap();
    assert_eq!((summary.records_in, summary.records_suppressed, summary.records_held), (122, 2, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Every message is finished once, its records are published at most once, and the counts are those of messages.
    #[test]
    fn counts_of_messages_add_up(
        orders in prop::collection::vec((0u32..100, prop::collection::vec("[ab][a-c]|x", 0..5)), 0..80),
    ) {
        let config = config(ORDERS);
        let mut owner = BTreeMap::new();
        let mut events = Vec::new();
        for (offset, (age, codes)) in (0..).zip(&orders) {
            let items: Vec<(&str, i64)> = codes.iter().map(String::as_str).zip(10 * offset..).collect();
            owner.extend(items.iter().map(|(_, number)| (*number, offset)));
            events.push(order(offset, *age, &items));
        }
        let ended = run(&config, &placements(&config), vec![SourceItem::Events(events)]);
        let bad = orders.iter().filter(|(_, codes)| codes.is_empty() || codes.iter().any(|code| code == "x")).count();
        if bad == orders.len() && bad > 0 {
            // Messages about no row say nothing of the others.
            let passed_over = orders.iter().all(|(_, codes)| codes.is_empty());
            prop_assert!(passed_over || matches!(ended, Err(PipelineError::AllRejected(_))));
            return Ok(());
        }
        let (summary, seen) = ended.unwrap();
        prop_assert_eq!((summary.records_in, summary.records_rejected), (orders.len() as u64, bad as u64));
        let rows: usize = seen.iter().map(|seen| seen.rows.len()).sum();
        let shown = numbers(&seen);
        prop_assert_eq!(rows, shown.len(), "no record twice");
        let published: BTreeSet<i64> = shown.iter().map(|number| owner[number]).collect();
        prop_assert_eq!(summary.records_published, published.len() as u64);
        let finished: u64 = seen.iter().map(|seen| seen.lineage.finished.count()).sum();
        prop_assert_eq!(finished, orders.len() as u64);
        for seen in &seen {
            let from = &seen.manifest.provenance;
            let counted = from.records_published + from.records_suppressed + from.records_rejected;
            prop_assert_eq!(counted, seen.lineage.finished.count());
        }
    }
}

/// A batch of events, and what comes before it.
fn after(kind: Option<&u8>, epoch: u64, batch: &[Event], replay: (&ReleasePlan, &[Event])) -> Vec<SourceItem> {
    let assigned = NewAssignment { epoch, partitions: Some(vec![Partition(0), Partition(1)]), last: None };
    let mut events = batch.to_vec();
    let mut items = match kind {
        None => vec![],
        Some(0) => vec![SourceItem::Revoked, SourceItem::Assigned(assigned)],
        Some(1) => vec![SourceItem::Added(assigned)],
        Some(2) => {
            let partitions = BTreeSet::from([Partition(1)]);
            vec![SourceItem::GivenUp(GivenUp { partitions, done: mpsc::sync_channel(1).0 })]
        }
        Some(3) => vec![SourceItem::Held(events.drain(..9).map(|event| (event, None)).collect())],
        Some(_) => vec![SourceItem::Replay(Box::new(Replay { plan: replay.0.clone(), events: replay.1.to_vec() }))],
    };
    items.push(SourceItem::Events(events));
    items
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    /// One instance decodes ahead and plans, another one on a smaller machine replays.
    #[test]
    fn releases_are_the_same_on_any_number_of_cores(
        messages in prop::collection::vec(
            (0u32..100, prop::collection::vec(prop_oneof![30 => "[ab][a-c]", 1 => "x"], 1..4), 0u8..30),
            2000,
        ),
        controls in prop::collection::btree_map(0usize..24, 0u8..5, 0..8),
    ) {
        let config = config(ORDERS);
        let at = placements(&config);
        let message = |(i, (age, codes, kind)): (i64, &(u32, Vec<String>, u8))| {
            let items: Vec<(&str, i64)> = codes.iter().map(String::as_str).zip(10 * i..).collect();
            let json = match kind {
                0 => None,
                1 => Some(String::new()),
                2 => Some("{\"age\":1,".to_owned()),
                3 => Some(format!(r#"{{"age":{age},"items":[]}}"#)),
                _ => return Event { position: Position::new(i as u32 % 2, i), ..order(i, *age, &items) },
            };
            Event { position: Position::new(i as u32 % 2, i), ..event(0, i, &format!("k{}", i - 5), json) }
        };
        let events: Vec<Event> = (0..).zip(&messages).map(message).collect();
        let planned: Vec<Event> = (0..60).map(|i| Event { position: Position::new(2, i), ..order(i, 30, &[("aa", i)]) }).collect();
        let (_, first) = run_on(1, &config, &at, vec![SourceItem::Events(planned.clone())]).unwrap();
        let replay = (&first[0].lineage.plan, &planned[..]);
        let script = || {
            let batches = events.chunks(80).enumerate();
            batches.flat_map(|(i, batch)| after(controls.get(&i), i as u64 + 1, batch, replay)).collect()
        };
        let told = |cores| {
            // A script may be none that Kafka writes, so that its counts do not add up: then they do not on any number of cores.
            let (summary, seen) = run_on(cores, &config, &at, script()).map_err(|error| error.to_string())?;
            // Names are random, and a search takes its time.
            let release = |seen: &Seen| {
                let mut manifest = serde_json::to_value(&seen.manifest).unwrap();
                for key in ["release_id", "search_ms"] {
                    manifest[key].take();
                }
                let plan = ReleasePlan { id: 0, ..seen.lineage.plan.clone() };
                (manifest, plan, seen.lineage.finished.clone(), seen.rows.clone())
            };
            Ok::<_, String>((summary, seen.iter().map(release).collect::<Vec<_>>()))
        };
        let one = told(1);
        if let Ok((summary, seen)) = &one {
            prop_assert!(summary.records_published > 600 && seen.len() > 10, "{:?}", summary);
        }
        prop_assert!(told(2) == one, "2 cores");
        prop_assert!(told(4) == one, "4 cores");
    }
}

const TOPICS: &str = "\
policy:
  quasi_identifiers:
    - { name: age, hierarchy: { intervals: { widths: [10, 100], min: 0, max: 99 } } }
    - { name: home.zip, hierarchy: { prefix: { length: 5 } } }
  keep: [{ name: number, reviewed: true }]
  subject: person
  privacy: [{ k-anonymity: 3 }]
window: { tumbling: { max_records: 40, max_age: 1h } }
source:
  kafka:
    brokers: localhost:9092
    group: veil
    topics: [people, { name: kunden-*, fields: { age: alter, home.zip: plz, person: kunde.nummer } }]
sink: { kafka: { topic: safe } }
";

fn person(offset: i64) -> Event {
    let json = format!(r#"{{"age":30,"home":{{"zip":"10115"}},"number":{offset},"person":"p{offset}","alter":99}}"#);
    event(0, offset, "k", Some(json))
}

fn customer(offset: i64, plz: &str) -> Event {
    let json = format!(r#"{{"alter":31,"{plz}":"10117","number":{offset},"kunde":{{"nummer":"p{offset}"}}}}"#);
    event(1, offset, "k", Some(json))
}

#[test]
fn topics_with_names_of_their_own_share_a_release() {
    let config = config(TOPICS);
    let events = (0..20).map(person).chain((20..40).map(|i| customer(i, "plz"))).collect();
    let (summary, seen) = run(&config, &placements(&config), vec![SourceItem::Events(events)]).unwrap();
    assert_eq!((summary.records_published, summary.releases), (40, 1));
    let labels: BTreeSet<&str> = seen[0].rows.iter().map(|(label, _)| label.as_str()).collect();
    assert!(labels.len() <= 2, "{labels:?}");
}

#[test]
fn a_field_that_a_topic_does_not_have_is_told_before_its_first_record_is_published() {
    let config = config(TOPICS);
    let first: Vec<Event> = (0..40).map(person).collect();
    let second: Vec<Event> = (40..80).map(|i| customer(i, "plz5")).collect();
    let error =
        run(&config, &placements(&config), vec![SourceItem::Events(first), SourceItem::Events(second)]).unwrap_err();
    let told = error.to_string();
    assert!(told.contains("no record has `plz` for `home.zip`: did you mean `plz5`?"), "{told}");
}
