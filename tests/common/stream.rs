//! Streams of people who return, and what a reader makes of the releases: joined by their labels (T2), or intersected by their
//! sensitive values (T3). Shared by the attacks on full-domain and on local releases.
#![allow(dead_code, unreachable_pub)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use veilstream::anonymizer::Anonymizer;
use veilstream::encode::{Encoded, Encoder};
use veilstream::gate::Release;
use veilstream::model::event::{Millis, Position};
use veilstream::model::policy::{Loss, Policy, RecodingKind, Sequential, SuppressionAction};
use veilstream::model::record::Value;
use veilstream::privacy::Rules;
use veilstream::search::Algorithm;
use veilstream::search::choose::Levels;
use veilstream::window::{CloseRules, ClosedWindow, Tumbling, Windows};

pub use super::common::fixture::NOW;
use super::common::fixture::{choice, released};
use super::common::{Attribute, Line, Rule, Table, hold, numbered};

/// People with a home and an illness, some of whom are recorded again and again. Who is recorded drifts, so that one
/// recoding does not stay the best.
pub fn town(records: usize, people: u16, seed: u64) -> Table {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let attributes =
        vec![Attribute::grouped("street", 12, 3), Attribute::grouped("age", 9, 3), Attribute::grouped("job", 6, 2)];
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

pub fn policy(table: &Table, rules: &[Rule], action: SuppressionAction, sequential: Option<Sequential>) -> Arc<Policy> {
    let policy = numbered(&table.policy_with(rules, 0.2, Loss::Glm, action));
    Arc::new(Policy { sequential, ..policy })
}

/// Three candidates over four releases.
pub fn sequential() -> Sequential {
    Sequential { releases: 4, candidates: 3, field: 0, max_subjects: Sequential::MAX_SUBJECTS }
}

/// One row as published: its labels, and the number of the line that it is.
pub struct Row {
    pub labels: Vec<String>,
    pub line: usize,
}

pub fn rows(release: &Release) -> Vec<Row> {
    let mut rows = Vec::new();
    let read: Result<(), ()> = release.rows(|quasi, values| {
        let line = values[1].trim_matches('"').parse().expect("its number");
        rows.push(Row { labels: quasi.iter().map(ToString::to_string).collect(), line });
        Ok(())
    });
    assert!(read.is_ok());
    rows
}

pub struct Stream {
    pub table: Table,
    pub encoder: Encoder,
    pub windows: Tumbling,
    pub anonymizer: Anonymizer,
    pub next: i64,
    pub waiting: usize,
    pub suppressed: u64,
    /// The levels of each release's plan: of its node, or of all steps of its schedule.
    pub levels: Vec<Vec<u8>>,
}

impl Stream {
    pub fn new(table: &Table, policy: &Arc<Policy>, rules: CloseRules, levels: Levels) -> Self {
        let choice = choice(Algorithm::Optimal, levels);
        Self {
            table: table.clone(),
            encoder: Encoder::new(Arc::clone(policy)),
            windows: Tumbling::new(rules, Arc::new(Rules::new(policy).counting())),
            anonymizer: Anonymizer::new(Arc::clone(policy), choice, "test", 5),
            next: 0,
            waiting: 0,
            suppressed: 0,
            levels: Vec::new(),
        }
    }

    /// The line as record `number`.
    pub fn encode(&mut self, line: &Line, number: i64, time: i64) -> Encoded {
        let mut record = self.table.record(line);
        record.values.push(Value::Text(number.to_string().into()));
        self.encoder.encode(&record, Some(Millis(time)))
    }

    pub fn add(&mut self, line: &Line, time: i64, now: i64) -> Vec<Vec<Row>> {
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

    pub fn drain(&mut self, now: i64) -> Vec<Vec<Row>> {
        let mut closed = Vec::new();
        while let Some(window) = self.windows.drain(Millis(now), &self.encoder).expect("narrow enough") {
            closed.push(window);
        }
        closed.into_iter().map(|window| self.release(window)).collect()
    }

    pub fn release(&mut self, window: ClosedWindow) -> Vec<Row> {
        let release = released(self.anonymizer.release(window).expect("narrow enough"));
        self.waiting = self.anonymizer.waiting();
        self.suppressed += release.manifest().provenance.records_suppressed;
        self.levels.push(release.lineage().plan.levels.clone());
        self.anonymizer.learn();
        rows(&release)
    }
}

pub fn by_count(max_records: usize) -> CloseRules {
    CloseRules { max_records, max_age: Duration::from_secs(3600), event_time: None }
}

/// Every release of the table's lines, a second apart each, in windows of `size`.
pub fn releases(table: &Table, policy: &Arc<Policy>, size: usize, levels: Levels) -> (Vec<Vec<Row>>, Stream) {
    let mut stream = Stream::new(table, policy, by_count(size), levels);
    let mut releases = Vec::new();
    for (i, line) in (0..).zip(&table.lines) {
        releases.extend(stream.add(line, NOW, NOW + i * 1000));
    }
    (releases, stream)
}

pub fn classes(rows: &[Row]) -> BTreeMap<&[String], Vec<usize>> {
    let mut classes: BTreeMap<&[String], Vec<usize>> = BTreeMap::new();
    for row in rows {
        classes.entry(&row.labels).or_default().push(row.line);
    }
    classes
}

/// T2, joining two releases: for somebody in both, the people of either release who fit both of their classes. The share
/// of returning people for whom that is fewer than k.
pub fn joined(table: &Table, releases: &[Vec<Row>], k: usize) -> f64 {
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
pub fn crossing(windows: usize) -> Table {
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let people: Vec<Vec<usize>> = (0..3000).map(|_| (0..3).map(|_| (rng.next_u32() % 9) as usize).collect()).collect();
    let mut lines = Vec::new();
    for window in 0..windows {
        let alike: Vec<usize> = (0..people.len()).filter(|&who| people[who][window % 3] < 2).collect();
        lines.extend((0..600).map(|_| {
            let subject = alike[rng.random_range(0..alike.len())];
            Line { leaves: people[subject].clone(), sensitive: vec![0], subject: subject as u16 }
        }));
    }
    let attributes = ["a", "b", "c"].map(|name| Attribute::grouped(name, 9, 3)).into();
    Table { attributes, lines, with_subject: true, sensitive: 1 }
}

/// T3, intersecting what somebody's classes may have over the last `window` releases: how many times fewer than `m`
/// values are left for somebody who returns.
pub fn intersected(table: &Table, releases: &[Vec<Row>], window: usize, m: usize) -> (usize, usize) {
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

/// The fewest people of a class.
pub fn fewest(table: &Table, rows: &[Row]) -> usize {
    let people = |lines: Vec<usize>| lines.iter().map(|&line| table.lines[line].subject).collect::<BTreeSet<_>>().len();
    classes(rows).into_values().map(people).min().unwrap_or(usize::MAX)
}

/// T3 on two streams, dropping and holding: without `sequential` the intersection finds people, and with it nobody, though more than
/// `many` return.
pub fn intersecting_finds_nobody_with_sequential(recoding: RecodingKind, levels: &Levels, many: usize) {
    let rules = [Rule::K(4), Rule::Distinct(0, 3)];
    for (seed, action) in [(1, SuppressionAction::Drop), (2, hold(Duration::from_secs(900)))] {
        let table = town(4800, 600, seed);
        let published = |sequential| {
            let policy = Policy { recoding, ..(*policy(&table, &rules, action, sequential)).clone() };
            releases(&table, &Arc::new(policy), 400, levels.clone()).0
        };
        let (returned, found) = intersected(&table, &published(None), 4, 3);
        println!("without sequential, {levels:?}: {found} of {returned} who return have fewer than 3 candidates");
        assert!(found > 50, "of {returned} who return {found} are found");
        let published = published(Some(sequential()));
        let (returned, found) = intersected(&table, &published, 4, 3);
        assert_eq!(found, 0, "of {returned} who return");
        // Not for want of people who return.
        assert!(returned > many, "{returned} return");
        assert!(published.iter().all(|rows| fewest(&table, rows) >= 4));
    }
}
