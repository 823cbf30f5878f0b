//! Tombstones: whoever is deleted at the source while a record of theirs waits is not published any more, however it waits,
//! and a release that is carried out again comes out the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "common/walk.rs"]
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use veilstream::model::event::{Event, Key, Position};
use veilstream::model::schema::Placement;
use veilstream::pipeline::Summary;
use veilstream::source::{NewAssignment, Replay, SourceItem};
use walk::{Reader, Seen, config, now, pipeline, walk};

/// The label of each record, by its number.
fn labels(seen: &Seen) -> BTreeMap<i64, String> {
    seen.rows.iter().map(|(label, values)| (values[1].parse().unwrap(), label.clone())).collect()
}

/// A record, of which `number` is published as it is.
fn record(at: (u32, i64), key: Option<&str>, who: &str, age: u32, number: i64) -> Event {
    let json = format!(r#"{{"age":{age},"job":"j{}","id":"{who}","n":{number}}}"#, number % 3);
    Event { payload: Some(json.into_bytes().into()), ..tombstone(at, key) }
}

fn tombstone((partition, offset): (u32, i64), key: Option<&str>) -> Event {
    let key = key.map(|key| Key::from_slice(key.as_bytes()));
    Event { position: Position::new(partition, offset), placement: 0, timestamp: None, key, payload: None }
}

/// Runs to the end of the script: what is read, in which releases, and how many records were retracted.
async fn run(more: &str, script: Vec<SourceItem>) -> (Summary, Vec<Seen>, u64) {
    let text = format!(
        "policy:\n  quasi_identifiers:\n    - {{ name: age, hierarchy: {{ intervals: {{ widths: [10], min: 0, max: 100 }} }} }}\n  \
         sensitive: [{{ name: job }}]\n  subject: id\n  keep: [{{ name: n, reviewed: true }}]\n  privacy: [{{ k-anonymity: 5 }}]\n{more}"
    );
    let pipeline = pipeline(&config(&text), 2);
    let (telemetry, reader) = (Arc::clone(&pipeline.telemetry), Reader::default());
    let summary = walk(pipeline, &[Placement::default()], script, reader.clone()).await.expect("runs to its end");
    assert!(summary.adds_up(), "{summary:?}");
    let text = telemetry.metrics_text(now()).unwrap();
    let retracted = text.lines().find_map(|line| line.strip_prefix("veilstream_records_retracted_total "));
    (summary, reader.take(), retracted.map_or(0, |count| count.parse().unwrap()))
}

fn published(releases: &[Seen]) -> BTreeSet<i64> {
    releases.iter().flat_map(|release| labels(release).into_keys()).collect()
}

const WINDOW: &str = "window: { tumbling: { max_records: 100, max_age: 1h } }\n";

/// In one window: everybody before a tombstone that names them, by their key or as the subject, and nobody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_in_the_open_window_is_not_published() {
    for (key, gone) in [
        (Some("k3"), vec![3]),          // the key of a record
        (Some("p4"), vec![4, 105]),     // the name of a subject
        (Some("Jose\u{301}"), vec![6]), // written in another way
        (Some("42"), vec![7]),          // a number
        (Some("nobody"), vec![]),
        (None, vec![]),
    ] {
        let mut events: Vec<Event> = (0..20)
            .map(|i| {
                let who = match i {
                    6 => "Jos\u{e9}".to_owned(),
                    7 => "42".to_owned(),
                    i => format!("p{i}"),
                };
                record((0, i), Some(&format!("k{i}")), &who, 10, i)
            })
            .collect();
        // A subject's record in a partition of its own, under another key.
        events.push(record((1, 5), Some("k0"), "p4", 10, 105));
        events.push(tombstone((0, 20), key));
        // Whoever comes back is somebody new.
        events.push(record((0, 21), key, "p3", 10, 21));
        events.push(record((0, 22), Some("k4"), "p4", 10, 22));
        let (summary, releases, retracted) = run(WINDOW, vec![SourceItem::Events(events)]).await;
        let all: BTreeSet<i64> = (0..20).chain([105, 21, 22]).collect();
        let left: BTreeSet<i64> = all.difference(&published(&releases)).copied().collect();
        assert_eq!(left, gone.iter().copied().collect(), "{key:?}");
        let gone = gone.len() as u64;
        assert_eq!((summary.records_suppressed, summary.records_rejected, retracted), (gone, 1, gone), "{key:?}");
    }
}

const HOLD: &str =
    "  suppression: { limit: 10%, action: hold }\nwindow: { tumbling: { max_records: 20, max_age: 1h } }\n";

/// A window of 20: 19 of one age, and somebody of another, who is held. Then one in which they would be among enough others,
/// with a tombstone for somebody.
fn held_then_named(key: &str) -> Vec<Event> {
    let mut events: Vec<Event> =
        (0..19).map(|i| record((0, i), Some(&format!("k{i}")), &format!("p{i}"), 10, i)).collect();
    events.push(record((0, 19), Some("k19"), "p19", 95, 19));
    events.push(tombstone((0, 20), Some(key)));
    for i in 21..30 {
        events.push(record((0, i), Some(&format!("k{i}")), &format!("p{i}"), 95, i));
    }
    for i in 0..10 {
        events.push(record((1, i), Some(&format!("k{i}")), &format!("q{i}"), 10, 1000 + i));
    }
    events
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_held_or_carried_on_is_not_published() {
    for (key, gone) in [("k19", true), ("p19", true), ("q3", true), ("k7", false)] {
        let mut events = held_then_named(key);
        if key == "q3" {
            // The subject's tombstone is in another partition than the record that is held.
            let named = record((0, 19), Some("k19"), "q3", 95, 19);
            let tombstone = Event { position: Position::new(1, -1), ..tombstone((1, 0), Some(key)) };
            (events[19], events[20], events[33]) = (named, tombstone, record((1, 3), None, "p33", 10, 1003));
        }
        let (summary, releases, retracted) = run(HOLD, vec![SourceItem::Events(events)]).await;
        assert_eq!(labels(&releases[0]).len(), 19, "one is held");
        assert_eq!(labels(&releases[1]).contains_key(&19), !gone, "{key}");
        assert_eq!((summary.records_held, summary.records_suppressed), (0, u64::from(gone)), "{key}");
        assert_eq!(retracted, u64::from(gone));
    }
    // Nothing of a window was published: all of one subject. With the next one it would be.
    for (key, gone) in [("k0", true), ("nobody", false)] {
        let mut events: Vec<Event> = (0..20).map(|i| record((0, i), Some(&format!("k{i}")), "same", 10, i)).collect();
        events.push(tombstone((0, 20), Some(key)));
        events.extend((21..40).map(|i| record((0, i), None, &format!("p{i}"), 10, i)));
        let (summary, releases, _) = run(HOLD, vec![SourceItem::Events(events)]).await;
        assert_eq!((releases[0].rows.len(), labels(&releases[1]).contains_key(&0)), (0, !gone), "{key}");
        assert_eq!((summary.records_published, summary.records_suppressed), (39 - u64::from(gone), u64::from(gone)));
    }
}

/// Held before a restart, and read again; the tombstone comes after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_was_held_before_a_restart_is_not_published() {
    for (key, gone) in [("k19", true), ("p19", true), ("k7", false)] {
        let mut events = held_then_named(key).split_off(19);
        let held = vec![(events.remove(0), None)];
        let assignment = NewAssignment { epoch: 1, partitions: None, last: None };
        let script = vec![SourceItem::Assigned(assignment), SourceItem::Held(held), SourceItem::Events(events)];
        let (summary, releases, _) = run(HOLD, script).await;
        assert_eq!(published(&releases).contains(&19), !gone, "{key}");
        assert_eq!(summary.records_suppressed, u64::from(gone), "{key}");
    }
}

/// A plan is carried out again by reading its records again, partition by partition: the same rows, and the same records
/// are finished, those that waited and were retracted with their tombstones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_is_carried_out_again_is_the_same() {
    let mut events = held_then_named("k19");
    // In the second window: one of its own is named, comes back, and a subject is named in another partition.
    events[35] = tombstone((1, 5), Some("k2"));
    events[36] = record((1, 6), Some("k2"), "q2", 10, 1006);
    events[37] = tombstone((1, 7), Some("p25"));
    let (_, releases, retracted) = run(HOLD, vec![SourceItem::Events(events.clone())]).await;
    let first = &releases[1];
    let missing: Vec<i64> = [19, 25, 1002].into_iter().filter(|n| labels(first).contains_key(n)).collect();
    assert!(missing.is_empty() && labels(first).contains_key(&1006), "{missing:?} are there");
    assert_eq!((first.rows.len(), retracted), (15, 3));
    let plan = first.lineage.plan.clone();
    assert!(plan.held.contains(Position::new(0, 19)) && plan.fresh.contains(Position::new(0, 20)));
    let mut read: Vec<Event> = events.iter().filter(|event| plan.is_read(event.position)).cloned().collect();
    read.sort_by_key(|event| event.position);
    let assignment = NewAssignment { epoch: 1, partitions: None, last: None };
    let replay = Replay { plan, events: read };
    let script = vec![SourceItem::Assigned(assignment), SourceItem::Replay(Box::new(replay))];
    let (summary, again, retracted) = run(HOLD, script).await;
    assert_eq!(again[0].rows, first.rows);
    assert_eq!(again[0].lineage.finished, first.lineage.finished);
    assert_eq!((summary.records_suppressed, summary.records_held, retracted), (3, 0, 3));
}

/// What a reader who subtracts two snapshots learns: the fewest records that left a class, or came, at the join of both.
fn fewest(before: &Seen, after: &Seen) -> usize {
    let (before, after) = (labels(before), labels(after));
    let whole = before.values().chain(after.values()).any(|label| label == "*");
    let mut groups: BTreeMap<(bool, &str), usize> = BTreeMap::new();
    for (of, other, left) in [(&before, &after, true), (&after, &before, false)] {
        for (_, label) in of.iter().filter(|(number, _)| !other.contains_key(number)) {
            *groups.entry((left, if whole { "*" } else { label })).or_default() += 1;
        }
    }
    groups.into_values().min().unwrap_or(usize::MAX)
}

/// A sliding window: who was never shown never is; who was leaves with the next snapshot, and never alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_in_snapshots_leaves_them_with_enough_others() {
    const SLIDE: i64 = 20;
    let window = "window: { sliding: { size: 100, slide: 20 } }\n";
    let (mut left_alone, mut shown_before) = (usize::MAX, 0);
    for named in [vec![30, 58], vec![45], vec![55, 56, 57], vec![0, 59]] {
        // Two ages; in the fourth slide some are named, most of whom were shown already.
        let mut events: Vec<Event> = (0..200)
            .map(|i| record((0, i), Some(&format!("k{i}")), &format!("p{i}"), 5 + 10 * (i as u32 % 2), i))
            .collect();
        for (at, number) in (62..).zip(&named) {
            events[at] = tombstone((0, at as i64), Some(&format!("k{number}")));
        }
        let (summary, releases, retracted) = run(window, vec![SourceItem::Events(events)]).await;
        let snapshots: Vec<&Seen> = releases.iter().filter(|release| !release.rows.is_empty()).collect();
        assert!(snapshots.len() > 5, "{} snapshots", snapshots.len());
        let seen = |number: &i64| snapshots.iter().any(|snapshot| labels(snapshot).contains_key(number));
        shown_before += named.iter().filter(|number| seen(number)).count();
        for snapshot in &snapshots {
            let newest = *labels(snapshot).last_key_value().unwrap().0;
            let there = named.iter().any(|number| labels(snapshot).contains_key(number));
            assert!(newest < 3 * SLIDE || !there, "{named:?} are in a snapshot up to {newest}");
        }
        let fewest = snapshots.windows(2).map(|pair| fewest(pair[0], pair[1])).min().unwrap();
        left_alone = left_alone.min(fewest);
        assert_eq!((retracted, summary.records_rejected), (named.len() as u64, named.len() as u64));
    }
    assert!(left_alone >= 5, "{left_alone} left alone");
    assert!(shown_before >= 5, "only {shown_before} had been shown");
}
