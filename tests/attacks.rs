//! Attacks on a stream of releases by somebody who returns, waits or comes late: each is carried out on what was
//! published. Where a defence can be left out, the attack must find people without it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "common/stream.rs"]
mod stream;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use common::{Rule, Table, hold};
use stream::{
    NOW, Row, Stream, by_count, classes, crossing, fewest, intersected, intersecting_finds_nobody_with_sequential,
    joined, policy, releases, rows, sequential, town,
};
use veilstream::anonymizer::{Closing, Past};
use veilstream::gate::Memory;
use veilstream::model::batch::Rows;
use veilstream::model::event::{Millis, Position};
use veilstream::model::lattice::Node;
use veilstream::model::policy::{Loss, Policy, RecodingKind, Sequential, SuppressionAction};
use veilstream::model::record::Value;
use veilstream::model::release::plan::ReleasePlan;
use veilstream::search::choose::Levels;
use veilstream::window::{CloseRules, EventTime, Windows};

#[test]
fn two_releases_joined_single_out_nobody_where_levels_do_not_cross() {
    let table = crossing(9);
    let policy = policy(&table, &[Rule::K(3)], SuppressionAction::Drop, None);
    let rate = |levels: Levels| joined(&table, &releases(&table, &policy, 600, levels).0, 3);
    assert_eq!(rate(Levels::Monotone), 0.0);
    assert_eq!(rate(Levels::Fixed(None)), 0.0);
    let (free, sticky) = (rate(Levels::Free), rate(Levels::Sticky));
    println!("joint classes below k: free {free:.3}, sticky {sticky:.3}, monotone 0, fixed 0");
    assert!(free > 0.0, "the attack finds nobody, so it would miss a defence that does nothing");
    assert!(sticky <= free);
}

#[test]
fn intersecting_the_values_of_who_returns_finds_people_without_sequential_and_none_with_it() {
    intersecting_finds_nobody_with_sequential(RecodingKind::FullDomain, &Levels::Sticky, 500);
}

/// The releases of a stream that starts over after every one of them; it learns what the last `told` ones showed.
fn restarted(table: &Table, policy: &Arc<Policy>, levels: &Levels, told: usize) -> Vec<Vec<Row>> {
    let mut stream = Stream::new(table, policy, by_count(400), levels.clone());
    let mut past: Vec<(ReleasePlan, Vec<Row>)> = Vec::new();
    for (i, line) in (0..).zip(&table.lines) {
        let encoded = stream.encode(line, i, NOW);
        stream.windows.add(&stream.encoder, Position::new(0, i), Millis(NOW), encoded).expect("narrow enough");
        let Some(window) = stream.windows.due(Millis(NOW), &stream.encoder).expect("narrow enough") else { continue };
        let Closing::Release(release) = stream.anonymizer.release(window).expect("narrow") else { panic!("refused") };
        let plan = release.lineage().plan.clone();
        let mut shown = rows(&release);
        shown.sort_by_key(|row| row.line);
        let by_position: BTreeSet<i64> = shown.iter().map(|row| row.line as i64).collect();
        let planned = plan.shown.clone().expect("asked for");
        assert!(by_position.iter().all(|&line| planned.contains(Position::new(0, line))));
        assert_eq!(planned.count(), by_position.len() as u64);
        stream.anonymizer.reset(None, Some(&plan.levels));
        past.push((plan, shown));
        for (later, (plan, shown)) in past.iter().rev().take(told).enumerate() {
            let mut rows = Rows::new(3, 1);
            for row in shown {
                stream.encode(&table.lines[row.line], row.line as i64, NOW);
                rows.push(Position::new(0, row.line as i64), Millis(0), stream.encoder.row());
            }
            let dictionaries = stream.encoder.dictionaries();
            let (node, row_levels) = (Some(Node::new(plan.levels.iter().copied())), plan.row_levels.clone());
            let node = node.filter(|_| policy.recoding == RecodingKind::FullDomain);
            stream.anonymizer.recall(&Past { lanes: Vec::new(), later, row_levels, node, rows, dictionaries });
        }
    }
    past.into_iter().map(|(_, rows)| rows).collect()
}

#[test]
fn who_starts_over_and_is_told_decides_as_who_never_did() {
    let table = town(4800, 600, 7);
    let rules = [Rule::K(4), Rule::Distinct(0, 3)];
    let full_domain = policy(&table, &rules, SuppressionAction::Drop, Some(sequential()));
    let policy = |recoding| Arc::new(Policy { recoding, ..(*full_domain).clone() });
    let lines = |releases: &[Vec<Row>]| -> Vec<BTreeSet<usize>> {
        releases.iter().map(|rows| rows.iter().map(|row| row.line).collect()).collect()
    };
    // A schedule that is learnt again after a start is another one, so it is fixed here.
    for (recoding, levels) in [(RecodingKind::FullDomain, Levels::Sticky), (RecodingKind::Local, Levels::Fixed(None))] {
        let policy = policy(recoding);
        let never = releases(&table, &policy, 400, levels.clone()).0;
        assert_eq!(lines(&restarted(&table, &policy, &levels, 3)), lines(&never), "{recoding:?}");
        // More than the last three releases is out of sight, and fewer is not enough.
        assert_eq!(lines(&restarted(&table, &policy, &levels, 9)), lines(&never), "{recoding:?}");
        let (returned, found) = intersected(&table, &restarted(&table, &policy, &levels, 1), 4, 3);
        assert!(found > 0, "of {returned} who return nobody is found although little was told");
    }
}

#[test]
fn a_full_memory_leaves_people_out_and_not_unwatched() {
    let table = town(4800, 600, 4);
    let rules = [Rule::K(4), Rule::Distinct(0, 3)];
    let sequential = Sequential { max_subjects: 500, ..sequential() };
    let policy = policy(&table, &rules, SuppressionAction::Drop, Some(sequential));
    let (published, stream) = releases(&table, &policy, 400, Levels::Sticky);
    let (returned, found) = intersected(&table, &published, 4, 3);
    assert_eq!(found, 0, "of {returned} who return");
    for last in published.windows(3) {
        let people =
            |rows: &Vec<Row>| rows.iter().map(|row| table.lines[row.line].subject).collect::<BTreeSet<_>>().len();
        assert!(last.iter().map(people).sum::<usize>() <= 500);
    }
    let rows: usize = published.iter().map(Vec::len).sum();
    assert_eq!(rows as u64 + stream.suppressed, 4800);
    assert!(rows > 500);
}

#[test]
fn how_people_return_is_known_although_nobody_asked() {
    let table = town(1200, 300, 5);
    let plain = policy(&table, &[Rule::K(4)], SuppressionAction::Drop, None);
    assert!(Memory::new(&plain).is_some_and(|memory| !memory.is_asked_for()));
    let mut stream = Stream::new(&table, &plain, by_count(400), Levels::Sticky);
    let mut returning = Vec::new();
    for line in &table.lines {
        let record = {
            let mut record = table.record(line);
            record.values.push(Value::Text("0".into()));
            record
        };
        let encoded = stream.encoder.encode(&record, None);
        stream.windows.add(&stream.encoder, Position::new(0, stream.next), Millis(NOW), encoded).expect("narrow");
        stream.next += 1;
        if let Some(window) = stream.windows.due(Millis(NOW), &stream.encoder).expect("narrow enough") {
            let Closing::Release(release) = stream.anonymizer.release(window).expect("narrow") else { panic!() };
            returning.push(release.recurrence().expect("watched").candidates.values().sum::<u64>());
        }
    }
    assert_eq!(returning.len(), 3);
    assert_eq!(returning[0], 0);
    assert!(returning[1] > 50 && returning[2] > returning[1] / 2, "{returning:?}");
    // Without a subject nobody can be seen to return.
    let anonymous = Table { with_subject: false, ..table };
    assert!(Memory::new(&anonymous.policy(&[Rule::K(4)], 0.0, Loss::Glm)).is_none());
}

/// T5: what waited joins only those who would have been published without it, once, and not after its time.
#[test]
fn who_was_held_joins_only_classes_that_are_good_without_them() {
    let table = town(4800, 1200, 6);
    let policy = policy(&table, &[Rule::K(4), Rule::Distinct(0, 2)], hold(Duration::from_secs(1500)), None);
    let (published, stream) = releases(&table, &policy, 400, Levels::Sticky);
    let mut once = BTreeSet::new();
    let mut joined = 0;
    for (window, rows) in published.iter().enumerate() {
        for lines in classes(rows).values() {
            let (fresh, held): (Vec<usize>, Vec<usize>) = lines.iter().partition(|&&line| line / 400 == window);
            joined += held.len();
            // Left out of a release and back in a later one, which closed at most `max_hold` after it came.
            assert!(held.iter().all(|&line| line / 400 < window && (window + 1) * 400 - 1 - line <= 1500));
            let people: BTreeSet<u16> = fresh.iter().map(|&line| table.lines[line].subject).collect();
            let values: BTreeSet<u8> = fresh.iter().map(|&line| table.lines[line].sensitive[0]).collect();
            assert!(people.len() >= 4 && values.len() >= 2, "{} held hide among {}", held.len(), people.len());
            lines.iter().for_each(|line| assert!(once.insert(*line), "published twice"));
        }
    }
    assert!(joined > 20, "{joined} were held and published");
    assert_eq!(once.len() as u64 + stream.suppressed + stream.waiting as u64, 4800);
}

/// T6: records that come when their window is published already go with a later one, and never alone.
#[test]
fn who_comes_late_is_in_a_later_release_and_not_alone() {
    let table = town(4000, 1200, 7);
    let action = hold(Duration::from_secs(3600));
    let policy = policy(&table, &[Rule::K(4)], action, None);
    let event_time = EventTime { size: Duration::from_secs(400), allowed_lateness: Duration::from_secs(5) };
    let rules = CloseRules { event_time: Some(event_time), ..by_count(100_000) };
    let mut stream = Stream::new(&table, &policy, rules, Levels::Sticky);
    // Every fiftieth record is from long before the one that came before it.
    let late = |i: i64| i % 50 == 49 && i > 500;
    let mut published = Vec::new();
    for (i, line) in (0..).zip(&table.lines) {
        let now = NOW + i * 1000;
        published.extend(stream.add(line, if late(i) { now - 450_000 } else { now }, now));
    }
    published.extend(stream.drain(NOW + 4_000_000));
    let mut late_ones = 0;
    for rows in &published {
        assert!(fewest(&table, rows) >= 4);
        for lines in classes(rows).values() {
            late_ones += lines.iter().filter(|&&line| late(line as i64)).count();
        }
        // It does not bring a release of its own with it.
        let in_time = rows.iter().filter(|row| !late(row.line as i64)).count();
        assert!(rows.is_empty() || in_time > 100, "{in_time} in time");
    }
    assert!(late_ones > 30, "{late_ones} late ones are published");
    let rows: usize = published.iter().map(Vec::len).sum();
    assert_eq!(rows as u64 + stream.suppressed + stream.waiting as u64, 4000);
}
