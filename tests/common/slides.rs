//! Streams through a sliding window, and a reader who keeps the snapshot that their releases give. Shared by the tests of snapshots
//! and of changelogs.
#![allow(dead_code, unreachable_pub)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use veilstream::encode::{Encoded, Encoder};
use veilstream::gate::Release;
use veilstream::model::event::{Millis, Position};
use veilstream::model::policy::{Fallback, Loss, Policy};
use veilstream::model::record::Value;
use veilstream::privacy::Rules;
use veilstream::search::Algorithm;
use veilstream::search::choose::{Choice, Levels};
use veilstream::window::{ClosedWindow, DEFAULT_WARM_MEMORY, SlideRules, Sliding, Windows};

pub use super::common::fixture::{NOW, released};
use super::common::{Attribute, Line, Rule, Table, fixture, numbered};

pub fn policy(table: &Table, rules: &[Rule], limit: f64) -> Arc<Policy> {
    let policy = numbered(&table.policy(rules, limit, Loss::Glm));
    Arc::new(Policy { unknown_value: Fallback::Suppress, ..policy })
}

pub fn choice(levels: Levels) -> Choice {
    Choice { keep_within: 0.1, ..fixture::choice(Algorithm::Optimal, levels) }
}

/// A stream of the table's lines through a sliding window.
pub struct Stream {
    pub table: Table,
    pub encoder: Encoder,
    pub window: Sliding,
    pub next: i64,
}

impl Stream {
    pub fn new(table: &Table, policy: &Arc<Policy>, rules: SlideRules) -> Self {
        let counting = Arc::new(Rules::new(policy).counting());
        let window = Sliding::new(rules, counting);
        Self { table: table.clone(), encoder: Encoder::new(Arc::clone(policy)), window, next: 0 }
    }

    pub fn add(&mut self, line: &Line, now: i64) -> Option<ClosedWindow> {
        let mut record = self.table.record(line);
        record.values.push(Value::Text(self.next.to_string().into()));
        self.add_values(record, now)
    }

    pub fn add_values(&mut self, record: veilstream::model::record::Record<'_>, now: i64) -> Option<ClosedWindow> {
        let encoded = self.encoder.encode(&record, None);
        self.encoder.set_key(Some(&self.next.to_le_bytes()));
        self.take(encoded, now)
    }

    /// A tombstone for the record at an offset.
    pub fn tombstone(&mut self, offset: i64, now: i64) -> Option<ClosedWindow> {
        let encoded = self.encoder.tombstone(&offset.to_le_bytes());
        self.take(encoded, now)
    }

    pub fn take(&mut self, encoded: Encoded, now: i64) -> Option<ClosedWindow> {
        self.window.add(&self.encoder, Position::new(0, self.next), Millis(now), encoded).expect("narrow enough");
        self.next += 1;
        self.due(now)
    }

    pub fn due(&mut self, now: i64) -> Option<ClosedWindow> {
        self.window.due(Millis(now), &self.encoder).expect("narrow enough")
    }

    pub fn drain(&mut self, now: i64) -> Option<ClosedWindow> {
        self.window.drain(Millis(now), &self.encoder).expect("narrow enough")
    }
}

pub fn by_records(size: usize, slide: usize) -> SlideRules {
    let (max_hold, warm_memory) = (size.div_ceil(slide) as u64, DEFAULT_WARM_MEMORY);
    SlideRules { size, slide, time: None, max_hold, warm_memory, changes: false }
}

pub fn by_time(size: u64, slide: u64, max_records: usize) -> SlideRules {
    let time = Some((Duration::from_millis(size), Duration::from_millis(slide)));
    let slide = max_records.div_ceil(size.div_ceil(slide) as usize);
    SlideRules { size: max_records, slide, time, max_hold: 2, warm_memory: DEFAULT_WARM_MEMORY, changes: false }
}

/// What a reader has of a snapshot: who is in it, and as what.
pub struct Seen {
    pub levels: Vec<u8>,
    pub rows: BTreeMap<usize, Vec<String>>,
    pub glm: f64,
}

/// A row as it is written: labels, and values with the number of the row at the end.
pub type Text = (Vec<String>, Vec<String>);

/// The rows of a release in the order in which they are sent.
pub fn texts(release: &Release) -> Vec<Text> {
    let owned = |cells: &[&str]| cells.iter().map(ToString::to_string).collect::<Vec<String>>();
    let mut rows = Vec::new();
    let read: Result<(), ()> = release.rows(|labels, values| {
        rows.push((owned(labels), owned(values)));
        Ok(())
    });
    assert!(read.is_ok());
    rows
}

/// Keeps the snapshot: releases are whole ones, or a changelog.
#[derive(Default)]
pub struct Reader {
    /// The rows, each with how often it is there.
    pub rows: BTreeMap<Text, usize>,
    base: Option<String>,
    /// The coarsest level of each attribute since the last whole snapshot: a manifest of changes names that of the changed rows only.
    levels: Vec<u8>,
    /// Releases of changes so far, and their rows.
    pub changes: usize,
    pub sent: usize,
}

impl Reader {
    /// Takes a release in; false if it has no rows and so says nothing.
    pub fn read(&mut self, release: &Release) -> bool {
        let provenance = &release.manifest().provenance;
        let changed = provenance.snapshot.as_ref().filter(|snapshot| snapshot.kind == "changes");
        if release.is_empty() {
            return false;
        }
        match changed {
            Some(changed) => {
                assert_eq!(changed.base, self.base, "changes of another snapshot");
                self.changes += 1;
                self.sent += release.len();
            }
            None => {
                self.rows.clear();
                self.levels.clear();
            }
        }
        let levels = provenance.recoding.iter().map(|attribute| attribute.level);
        self.levels =
            levels.enumerate().map(|(i, level)| level.max(self.levels.get(i).copied().unwrap_or(0))).collect();
        for (mut labels, values) in texts(release) {
            let change = provenance.snapshot.as_ref().and_then(|_| labels.pop());
            assert_eq!(change.as_deref() == Some("="), provenance.snapshot.is_some() && changed.is_none());
            let row = (labels, values);
            if change.as_deref() != Some("-") {
                *self.rows.entry(row).or_default() += 1;
                continue;
            }
            let count = self.rows.get_mut(&row).expect("whoever leaves was there, and reads as before");
            *count -= 1;
            if *count == 0 {
                self.rows.remove(&row);
            }
        }
        self.base = Some(provenance.release_id.clone());
        if let Some(snapshot) = &provenance.snapshot {
            assert_eq!(snapshot.rows, self.rows.values().sum::<usize>() as u64);
        }
        true
    }

    /// The snapshot after a release, where every row has its own number behind the `sensitive` values.
    pub fn seen(&mut self, release: &Release, sensitive: usize) -> Option<Seen> {
        if !self.read(release) {
            return None;
        }
        let number = |values: &[String]| values[sensitive].trim_matches('"').parse().expect("its number");
        let rows: BTreeMap<usize, Vec<String>> =
            self.rows.keys().map(|(labels, values)| (number(values), labels.clone())).collect();
        assert_eq!(rows.len(), self.rows.values().sum::<usize>(), "a row is in one snapshot once");
        let provenance = &release.manifest().provenance;
        let glm = provenance.losses.iter().find(|loss| loss.name == "glm").map_or(0.0, |loss| loss.value);
        Some(Seen { levels: self.levels.clone(), rows, glm })
    }
}

/// A town of people with two attributes, who come and go in no order.
pub fn town(records: usize, people: u16, seed: u64) -> Table {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let attributes = vec![Attribute::grouped("street", 12, 4), Attribute::grouped("age", 8, 2)];
    let homes: Vec<[usize; 2]> =
        (0..people).map(|_| [(rng.next_u32() % 12) as usize, (rng.next_u32() % 8) as usize]).collect();
    let lines = (0..records)
        .map(|_| {
            let subject = rng.random_range(0..people);
            let value = (rng.next_u32() % 5) as u8;
            Line { leaves: homes[usize::from(subject)].to_vec(), sensitive: vec![value], subject }
        })
        .collect();
    Table { attributes, lines, with_subject: true, sensitive: 1 }
}
