//! Attacks on a stream of releases by somebody who returns, waits or comes late: each is carried out on what was
//! published. Where a defence can be left out, the attack must find people without it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use common::{Attribute, Line, Rule, Table, hold};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use veilstream::anonymizer::{Anonymizer, Closing, Past};
use veilstream::encode::{Encoded, Encoder};
use veilstream::gate::{Memory, Release};
use veilstream::model::batch::Rows;
use veilstream::model::event::{Millis, Position};
use veilstream::model::lattice::Node;
use veilstream::model::policy::{Loss, Policy, Sequential, SuppressionAction};
use veilstream::model::recoding::Recoding;
use veilstream::model::record::Value;
use veilstream::model::schema::{Role, Schema};
use veilstream::privacy::Rules;
use veilstream::search::choose::{Choice, Levels};
use veilstream::search::{Algorithm, Tuning};
use veilstream::window::{CloseRules, ClosedWindow, EventTime, Tumbling};

const NOW: i64 = 1_700_000_000_000;

/// People with a home and an illness, some of whom are recorded again and again. Who is recorded drifts, so that one
/// recoding does not stay the best.
fn town(records: usize, people: u16, seed: u64) -> Table {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let attribute = |name: &str, leaves: usize, group: usize| Attribute {
        paths: (0..leaves)
            .map(|leaf| vec![format!("{name}{leaf}"), format!("{name}-{}", leaf / group), "*".to_string()])
            .collect(),
        min_level: 0,
        max_level: 2,
        weight: 1.0,
    };
    let attributes = vec![attribute("street", 12, 3), attribute("age", 9, 3), attribute("job", 6, 2)];
    let people: Vec<(Vec<usize>, u8)> = (0..people)
        .map(|_| {
            let leaves = [12, 9, 6].map(|leaves| (rng.next_u32() % leaves) as usize);
            (leaves.to_vec(), (rng.next_u32() % 6) as u8)
        })
        .collect();
    let lines = (0..records)
        .map(|i| {
            // The first half of the stream is mostly about the first half of the town.
            let half = people.len() / 2;
            let from = if (i * 2 < records) == (rng.next_u32() % 5 > 0) { 0 } else { half };
            let subject = from + rng.random_range(0..half);
            let (leaves, illness) = people[subject].clone();
            Line { leaves, sensitive: vec![illness], subject: subject as u16 }
        })
        .collect();
    Table { attributes, lines, with_subject: true, sensitive: 1 }
}

/// The table's policy, with a number of its own kept in every row, so that rows can be told apart in the output.
fn policy(table: &Table, rules: &[Rule], action: SuppressionAction, sequential: Option<Sequential>) -> Arc<Policy> {
    let policy = table.policy_with(rules, 0.2, Loss::Glm, action);
    let fields = [("q0", Role::Quasi), ("q1", Role::Quasi), ("q2", Role::Quasi), ("s0", Role::Sensitive)];
    let schema = Schema::new(fields.into_iter().chain([("who", Role::Subject), ("number", Role::Reviewed)]));
    Arc::new(Policy { schema, sequential, ..(*policy).clone() })
}

/// One row as published: its labels, and the number of the line that it is.
struct Row {
    labels: Vec<String>,
    line: usize,
}

fn rows(release: &Release) -> Vec<Row> {
    let mut rows = Vec::new();
    let read: Result<(), ()> = release.rows(|quasi, values| {
        let line = values[1].trim_matches('"').parse().expect("its number");
        rows.push(Row { labels: quasi.iter().map(ToString::to_string).collect(), line });
        Ok(())
    });
    assert!(read.is_ok());
    rows
}

struct Stream {
    table: Table,
    encoder: Encoder,
    windows: Tumbling,
    anonymizer: Anonymizer,
    next: i64,
    waiting: usize,
    suppressed: u64,
}

impl Stream {
    fn new(table: &Table, policy: &Arc<Policy>, rules: CloseRules, levels: Levels) -> Self {
        let choice = Choice {
            algorithm: Algorithm::Optimal,
            time_budget: Duration::from_secs(3600),
            max_checks: None,
            levels,
            keep_within: 0.02,
            tuning: Tuning::default(),
        };
        Self {
            table: table.clone(),
            encoder: Encoder::new(Arc::clone(policy)),
            windows: Tumbling::new(rules, Arc::new(Rules::new(policy).counting())),
            anonymizer: Anonymizer::new(Arc::clone(policy), choice, "test", 5),
            next: 0,
            waiting: 0,
            suppressed: 0,
        }
    }

    /// The line as record `number`.
    fn encode(&mut self, line: &Line, number: i64, time: i64) -> Encoded {
        let mut record = self.table.record(line);
        record.values.push(Value::Text(number.to_string().into()));
        self.encoder.encode(&record, Some(Millis(time)))
    }

    fn add(&mut self, line: &Line, time: i64, now: i64) -> Vec<Vec<Row>> {
        let encoded = self.encode(line, self.next, time);
        let position = Position::new(0, self.next);
        self.next += 1;
        self.windows.add(&self.encoder, position, Millis(now), encoded).expect("narrow enough");
        let mut closed = Vec::new();
        while let Some(window) = self.windows.due(Millis(now), &self.encoder).expect("narrow enough") {
            closed.push(window);
        }
        closed.into_iter().map(|window| self.release(window)).collect()
    }

    fn drain(&mut self, now: i64) -> Vec<Vec<Row>> {
        let mut closed = Vec::new();
        while let Some(window) = self.windows.drain(Millis(now), &self.encoder).expect("narrow enough") {
            closed.push(window);
        }
        closed.into_iter().map(|window| self.release(window)).collect()
    }

    fn release(&mut self, window: ClosedWindow) -> Vec<Row> {
        match self.anonymizer.release(window).expect("narrow enough") {
            Closing::Release(release) => {
                self.waiting = self.anonymizer.waiting();
                self.suppressed += release.manifest().provenance.records_suppressed;
                rows(&release)
            }
            Closing::Refused(refusal) => panic!("refused: {refusal}"),
        }
    }
}

fn by_count(max_records: usize) -> CloseRules {
    CloseRules { max_records, max_age: Duration::from_secs(3600), event_time: None }
}

/// Every release of the table's lines, a second apart each, in windows of `size`.
fn releases(table: &Table, policy: &Arc<Policy>, size: usize, levels: Levels) -> (Vec<Vec<Row>>, Stream) {
    let mut stream = Stream::new(table, policy, by_count(size), levels);
    let mut releases = Vec::new();
    for (i, line) in (0..).zip(&table.lines) {
        releases.extend(stream.add(line, NOW, NOW + i * 1000));
    }
    (releases, stream)
}

fn classes(rows: &[Row]) -> BTreeMap<&[String], Vec<usize>> {
    let mut classes: BTreeMap<&[String], Vec<usize>> = BTreeMap::new();
    for row in rows {
        classes.entry(&row.labels).or_default().push(row.line);
    }
    classes
}

/// T2, joining two releases: for somebody in both, the people of either release who fit both of their classes. The share
/// of returning people for whom that is fewer than k.
fn joined(table: &Table, releases: &[Vec<Row>], k: usize) -> f64 {
    let (mut returning, mut exposed) = (0usize, 0usize);
    for (i, a) in releases.iter().enumerate() {
        for b in &releases[i + 1..] {
            let by_subject = |rows: &[Row]| -> BTreeMap<u16, Vec<String>> {
                rows.iter().map(|row| (table.lines[row.line].subject, row.labels.clone())).collect()
            };
            let (in_a, in_b) = (by_subject(a), by_subject(b));
            for (who, labels_a) in &in_a {
                let Some(labels_b) = in_b.get(who) else { continue };
                returning += 1;
                // A label is a set of leaves; whoever's leaf is in both sets fits.
                let fits = |row: &&Row| {
                    table.lines[row.line].leaves.iter().zip(&table.attributes).enumerate().all(
                        |(at, (&leaf, attribute))| {
                            let path = &attribute.paths[leaf];
                            path.contains(&labels_a[at]) && path.contains(&labels_b[at])
                        },
                    )
                };
                let people = |rows: &[Row]| {
                    rows.iter().filter(fits).map(|row| table.lines[row.line].subject).collect::<BTreeSet<_>>().len()
                };
                exposed += usize::from(people(a).max(people(b)) < k);
            }
        }
    }
    assert!(returning > 1000, "{returning} returned");
    exposed as f64 / returning as f64
}

/// Windows of 600 in turn about people who are alike in the first, the second and the third attribute, so that each
/// asks for another recoding.
fn crossing(windows: usize) -> Table {
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let path = |name: &str, leaf: usize| vec![format!("{name}{leaf}"), format!("{name}-{}", leaf / 3), "*".to_string()];
    let attribute = |name: &&str| Attribute {
        paths: (0..9).map(|leaf| path(name, leaf)).collect(),
        min_level: 0,
        max_level: 2,
        weight: 1.0,
    };
    let people: Vec<Vec<usize>> = (0..3000).map(|_| (0..3).map(|_| (rng.next_u32() % 9) as usize).collect()).collect();
    let mut lines = Vec::new();
    for window in 0..windows {
        let alike: Vec<usize> = (0..people.len()).filter(|&who| people[who][window % 3] < 2).collect();
        lines.extend((0..600).map(|_| {
            let subject = alike[rng.random_range(0..alike.len())];
            Line { leaves: people[subject].clone(), sensitive: vec![0], subject: subject as u16 }
        }));
    }
    Table { attributes: ["a", "b", "c"].iter().map(attribute).collect(), lines, with_subject: true, sensitive: 1 }
}

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

/// T3, intersecting what somebody's classes may have over the last `window` releases: how many times fewer than `m`
/// values are left for somebody who returns.
fn intersected(table: &Table, releases: &[Vec<Row>], window: usize, m: usize) -> (usize, usize) {
    let (mut returned, mut found) = (0, 0);
    let candidates: Vec<BTreeMap<u16, BTreeSet<u8>>> = releases
        .iter()
        .map(|rows| {
            let mut candidates: BTreeMap<u16, BTreeSet<u8>> = BTreeMap::new();
            for lines in classes(rows).values() {
                let values: BTreeSet<u8> = lines.iter().map(|&line| table.lines[line].sensitive[0]).collect();
                for &line in lines {
                    let known = candidates.entry(table.lines[line].subject).or_insert_with(|| values.clone());
                    *known = known.intersection(&values).copied().collect();
                }
            }
            candidates
        })
        .collect();
    for (now, of) in candidates.iter().enumerate() {
        for (who, values) in of {
            let earlier =
                candidates[(now + 1).saturating_sub(window)..now].iter().filter_map(|release| release.get(who));
            let (mut left, mut before) = (values.clone(), 0);
            for earlier in earlier {
                left = left.intersection(earlier).copied().collect();
                before += 1;
            }
            returned += usize::from(before > 0);
            found += usize::from(before > 0 && left.len() < m);
        }
    }
    (returned, found)
}

#[test]
fn intersecting_the_values_of_who_returns_finds_people_without_sequential_and_none_with_it() {
    let rules = [Rule::K(4), Rule::Distinct(0, 3)];
    for (seed, action) in [(1, SuppressionAction::Drop), (2, hold(Duration::from_secs(900)))] {
        let table = town(4800, 600, seed);
        let sequential = Sequential { releases: 4, candidates: 3, field: 0, max_subjects: Sequential::MAX_SUBJECTS };
        let off = policy(&table, &rules, action, None);
        let (returned, found) = intersected(&table, &releases(&table, &off, 400, Levels::Sticky).0, 4, 3);
        assert!(found > 50, "of {returned} who return {found} are found");
        let on = policy(&table, &rules, action, Some(sequential));
        let (published, _) = releases(&table, &on, 400, Levels::Sticky);
        let (returned, found) = intersected(&table, &published, 4, 3);
        assert_eq!(found, 0, "of {returned} who return");
        // Not for want of people who return.
        assert!(returned > 500, "{returned} return");
        for rows in &published {
            for lines in classes(rows).values() {
                let people: BTreeSet<u16> = lines.iter().map(|&line| table.lines[line].subject).collect();
                assert!(people.len() >= 4);
            }
        }
    }
}

/// The releases of a stream that starts over after every one of them; it learns what the last `told` ones showed.
fn restarted(table: &Table, policy: &Arc<Policy>, told: usize) -> Vec<Vec<Row>> {
    let mut stream = Stream::new(table, policy, by_count(400), Levels::Sticky);
    let mut past: Vec<(Node, Vec<Row>)> = Vec::new();
    for (i, line) in (0..).zip(&table.lines) {
        let encoded = stream.encode(line, i, NOW);
        stream.windows.add(&stream.encoder, Position::new(0, i), Millis(NOW), encoded).expect("narrow enough");
        let Some(window) = stream.windows.due(Millis(NOW), &stream.encoder).expect("narrow enough") else { continue };
        let Closing::Release(release) = stream.anonymizer.release(window).expect("narrow") else { panic!("refused") };
        let node = Node::new(release.lineage().plan.levels.iter().copied());
        let shown = rows(&release);
        let by_position: BTreeSet<i64> = shown.iter().map(|row| row.line as i64).collect();
        let planned = release.lineage().plan.shown.clone().expect("asked for");
        assert!(by_position.iter().all(|&line| planned.contains(Position::new(0, line))));
        assert_eq!(planned.count(), by_position.len() as u64);
        past.push((node.clone(), shown));
        stream.anonymizer.reset(None, Some(node.levels()));
        for (later, (node, shown)) in past.iter().rev().take(told).enumerate() {
            let mut rows = Rows::new(3, 1);
            for row in shown {
                stream.encode(&table.lines[row.line], row.line as i64, NOW);
                rows.push(Position::new(0, row.line as i64), Millis(0), stream.encoder.row());
            }
            let dictionaries = stream.encoder.dictionaries();
            let recoding = Some(Recoding::from(node.clone()));
            stream.anonymizer.recall(&Past { lanes: Vec::new(), later, recoding, rows, dictionaries });
        }
    }
    past.into_iter().map(|(_, rows)| rows).collect()
}

#[test]
fn who_starts_over_and_is_told_decides_as_who_never_did() {
    let table = town(4800, 600, 7);
    let sequential = Sequential { releases: 4, candidates: 3, field: 0, max_subjects: Sequential::MAX_SUBJECTS };
    let rules = [Rule::K(4), Rule::Distinct(0, 3)];
    let policy = policy(&table, &rules, SuppressionAction::Drop, Some(sequential));
    let lines = |releases: &[Vec<Row>]| -> Vec<BTreeSet<usize>> {
        releases.iter().map(|rows| rows.iter().map(|row| row.line).collect()).collect()
    };
    let never = releases(&table, &policy, 400, Levels::Sticky).0;
    assert_eq!(lines(&restarted(&table, &policy, 3)), lines(&never));
    // More than the last three releases is out of sight, and fewer is not enough.
    assert_eq!(lines(&restarted(&table, &policy, 9)), lines(&never));
    let (returned, found) = intersected(&table, &restarted(&table, &policy, 1), 4, 3);
    assert!(found > 0, "of {returned} who return nobody is found although little was told");
}

#[test]
fn a_full_memory_leaves_people_out_and_not_unwatched() {
    let table = town(4800, 600, 4);
    let rules = [Rule::K(4), Rule::Distinct(0, 3)];
    let sequential = Sequential { releases: 4, candidates: 3, field: 0, max_subjects: 500 };
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
        for lines in classes(rows).values() {
            let people: BTreeSet<u16> = lines.iter().map(|&line| table.lines[line].subject).collect();
            assert!(people.len() >= 4);
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
