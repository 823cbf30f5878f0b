//! Sliding windows: what a reader learns who subtracts one snapshot from the next, what becomes of every record, and that
//! the counts of a window that moves on are those of its rows.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use common::{Line, Rule, Table, cases, flat};
use proptest::prelude::*;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use veilstream::anonymizer::{Anonymizer, Closing};
use veilstream::encode::{Encoded, Encoder};
use veilstream::gate::{Release, verify, verify_next};
use veilstream::generalize::{GeneralizedBatch, RowRef};
use veilstream::model::event::{Millis, Position};
use veilstream::model::lattice::Node;
use veilstream::model::policy::{Fallback, Loss, Policy};
use veilstream::model::recoding::Recoding;
use veilstream::model::record::Value;
use veilstream::model::schema::{Role, Schema};
use veilstream::privacy::Rules;
use veilstream::search::choose::{Choice, Levels};
use veilstream::search::{Algorithm, Tuning};
use veilstream::window::{CloseReason, ClosedWindow, DEFAULT_WARM_MEMORY, SlideRules, Sliding};

const NOW: i64 = 1_700_000_000_000;

/// The table's policy, with a number of its own kept in every row, so that rows can be told apart in the output.
fn policy(table: &Table, rules: &[Rule], limit: f64) -> Arc<Policy> {
    let policy = table.policy(rules, limit, Loss::Glm);
    let mut fields: Vec<(String, Role)> = (0..table.attributes.len()).map(|i| (format!("q{i}"), Role::Quasi)).collect();
    fields.extend((0..table.sensitive).map(|i| (format!("s{i}"), Role::Sensitive)));
    if table.with_subject {
        fields.push(("who".into(), Role::Subject));
    }
    fields.push(("number".into(), Role::Reviewed));
    let schema = Schema::new(fields.iter().map(|(name, role)| (name.as_str(), *role)));
    Arc::new(Policy { schema, unknown_value: Fallback::Suppress, ..(*policy).clone() })
}

fn choice(levels: Levels) -> Choice {
    Choice {
        algorithm: Algorithm::Optimal,
        time_budget: Duration::from_secs(3600),
        max_checks: None,
        levels,
        keep_within: 0.1,
        tuning: Tuning::default(),
    }
}

/// A stream of the table's lines through a sliding window.
struct Stream {
    table: Table,
    encoder: Encoder,
    window: Sliding,
    next: i64,
}

impl Stream {
    fn new(table: &Table, policy: &Arc<Policy>, rules: SlideRules) -> Self {
        let counting = Arc::new(Rules::new(policy).counting());
        let window = Sliding::new(rules, counting);
        Self { table: table.clone(), encoder: Encoder::new(Arc::clone(policy)), window, next: 0 }
    }

    fn add(&mut self, line: &Line, now: i64) -> Option<ClosedWindow> {
        let mut record = self.table.record(line);
        record.values.push(Value::Text(self.next.to_string().into()));
        self.add_values(record, now)
    }

    fn add_values(&mut self, record: veilstream::model::record::Record<'_>, now: i64) -> Option<ClosedWindow> {
        let encoded = self.encoder.encode(&record, None);
        self.encoder.set_key(Some(&self.next.to_le_bytes()));
        self.take(encoded, now)
    }

    /// A tombstone for the record at an offset.
    fn tombstone(&mut self, offset: i64, now: i64) -> Option<ClosedWindow> {
        let encoded = self.encoder.tombstone(&offset.to_le_bytes());
        self.take(encoded, now)
    }

    fn take(&mut self, encoded: Encoded, now: i64) -> Option<ClosedWindow> {
        self.window.add(&self.encoder, Position::new(0, self.next), Millis(now), encoded).expect("narrow enough");
        self.next += 1;
        self.due(now)
    }

    fn due(&mut self, now: i64) -> Option<ClosedWindow> {
        self.window.due(Millis(now), &self.encoder).expect("narrow enough")
    }

    fn drain(&mut self, now: i64) -> Option<ClosedWindow> {
        self.window.drain(Millis(now), &self.encoder).expect("narrow enough")
    }
}

fn by_records(size: usize, slide: usize) -> SlideRules {
    let warm_memory = DEFAULT_WARM_MEMORY;
    SlideRules { size, slide, time: None, max_hold: size.div_ceil(slide) as u64, warm_memory }
}

fn by_time(size: u64, slide: u64, max_records: usize) -> SlideRules {
    let time = Some((Duration::from_millis(size), Duration::from_millis(slide)));
    let slide = max_records.div_ceil(size.div_ceil(slide) as usize);
    SlideRules { size: max_records, slide, time, max_hold: 2, warm_memory: DEFAULT_WARM_MEMORY }
}

fn released(closing: Closing) -> Box<Release> {
    match closing {
        Closing::Release(release) => release,
        Closing::Refused(refusal) => panic!("refused: {refusal}"),
    }
}

/// What a reader has of a snapshot: who is in it, and at which levels.
struct Seen {
    levels: Vec<u8>,
    rows: BTreeSet<usize>,
}

fn seen(release: &Release, sensitive: usize) -> Option<Seen> {
    let mut rows = BTreeSet::new();
    let read: Result<(), ()> = release.rows(|_, values| {
        let number = values[sensitive].trim_matches('"').parse().expect("its number");
        assert!(rows.insert(number), "a row is in one snapshot once");
        Ok(())
    });
    assert!(read.is_ok());
    let levels = release.manifest().provenance.recoding.iter().map(|attribute| attribute.level).collect();
    (!rows.is_empty()).then_some(Seen { levels, rows })
}

/// The attack: subtracts consecutive snapshots at the join of their levels; the classes among those who left or came that
/// break a rule. `lines` are all records by number.
fn attack(lines: &Table, snapshots: &[Seen], rules: &[Rule]) -> usize {
    let mut found = 0;
    for pair in snapshots.windows(2) {
        let join = Node::new(pair[0].levels.iter().zip(&pair[1].levels).map(|(a, b)| *a.max(b)));
        for (of, other) in [(&pair[0], &pair[1]), (&pair[1], &pair[0])] {
            let only = of.rows.difference(&other.rows).copied();
            let classes = lines.count(only, &Recoding::from(join.clone()));
            found += classes.values().filter(|class| !rules.iter().all(|rule| rule.holds(class))).count();
        }
    }
    found
}

/// What all manifests say together.
#[derive(Default)]
struct Books {
    records_in: u64,
    published: u64,
    suppressed: u64,
    rejected: u64,
    finished: BTreeSet<i64>,
}

impl Books {
    fn enter(&mut self, release: &Release, waiting: usize) {
        let p = &release.manifest().provenance;
        self.records_in += p.records_in;
        self.published += p.records_published;
        self.suppressed += p.records_suppressed;
        self.rejected += p.records_rejected;
        assert_eq!(p.records_held, waiting as u64);
        assert!(p.offsets.is_empty(), "single records come and go");
        let spans = release.lineage().finished.iter().flat_map(|(_, spans)| spans);
        for offset in spans.flat_map(|span| span.first.0..=span.last.0) {
            assert!(self.finished.insert(offset), "{offset} is finished twice");
        }
        assert_eq!(self.finished.len() as u64, self.published + self.suppressed + self.rejected);
        assert_eq!(self.records_in, self.finished.len() as u64 + waiting as u64);
    }
}

/// A town of people with two attributes, who come and go in no order.
fn town(records: usize, people: u16, seed: u64) -> Table {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let attribute = |name: &str, leaves: usize, group: usize| common::Attribute {
        paths: (0..leaves)
            .map(|leaf| vec![format!("{name}{leaf}"), format!("{name}-{}", leaf / group), "*".to_string()])
            .collect(),
        min_level: 0,
        max_level: 2,
        weight: 1.0,
    };
    let attributes = vec![attribute("street", 12, 4), attribute("age", 8, 2)];
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

/// Sends every line through a sliding window. `checked`: each snapshot knows of the last one; if not, it is made as if it
/// were the first, after the same levels.
fn snapshots(table: &Table, rules: &[Rule], window: &SlideRules, levels: &Levels, checked: bool) -> Vec<Seen> {
    let policy = policy(table, rules, 0.2);
    let mut stream = Stream::new(table, &policy, window.clone());
    let fresh = || Anonymizer::new(Arc::clone(&policy), choice(levels.clone()), "test", 5);
    let mut anonymizer = fresh();
    let mut snapshots: Vec<Seen> = Vec::new();
    for line in &table.lines {
        let Some(window) = stream.add(line, NOW) else { continue };
        if !checked {
            anonymizer = fresh();
            anonymizer.reset(None, snapshots.last().map(|last| Node::new(last.levels.clone())));
        }
        let release = released(anonymizer.release(window).expect("narrow enough"));
        snapshots.extend(seen(&release, 1));
    }
    snapshots
}

#[test]
fn subtracting_snapshots_finds_people_without_the_check_and_none_with_it() {
    let rules = [Rule::K(3), Rule::Distinct(0, 2)];
    let mut without = 0;
    for (seed, levels) in (0..).zip([Levels::Free, Levels::Sticky, Levels::Monotone, Levels::Fixed(None)]) {
        let table = town(3000, 400, seed);
        let window = by_records(300, 60);
        let safe = snapshots(&table, &rules, &window, &levels, true);
        assert_eq!(attack(&table, &safe, &rules), 0, "{levels:?}");
        // Not for want of snapshots, or of rows in them.
        assert!(safe.len() >= 35, "{levels:?}: {} snapshots of 50", safe.len());
        let rows: usize = safe.iter().map(|seen| seen.rows.len()).sum();
        assert!(rows >= safe.len() * 150, "{levels:?}: {rows} rows in {} snapshots", safe.len());
        without += attack(&table, &snapshots(&table, &rules, &window, &levels, false), &rules);
    }
    assert!(without > 100, "the attack finds {without} classes, so it would miss a gate that does nothing");
}

#[test]
fn nobody_stays_in_snapshots_for_longer_than_max_hold() {
    let table = town(3000, 400, 9);
    let window = SlideRules { max_hold: 2, ..by_records(300, 60) };
    let all = snapshots(&table, &[Rule::K(5)], &window, &Levels::Sticky, true);
    assert!(all.len() >= 30, "{} snapshots", all.len());
    for pair in all.windows(2) {
        let newest = *pair[1].rows.last().expect("not empty");
        // The window ends at most a slide behind its newest row.
        let oldest = (newest + 1).saturating_sub(300 + 60 * (2 + 1));
        assert!(pair[1].rows.iter().all(|&row| row >= oldest), "{oldest} {:?}", pair[1].rows.first());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Whatever the policy, nothing is found; the four counts add up after every slide, and every record is finished once.
    /// Whoever is deleted is in no snapshot from then on.
    #[test]
    fn every_snapshot_is_safe_and_the_books_balance(
        (table, rules, limit) in cases(1..=2, 120),
        size in 1usize..60,
        share in 1usize..6,
        time in prop::option::of((1u64..400, 1u64..5)),
        kinds in prop::collection::vec((0u8..14, 0i64..40), 120),
        levels in prop::sample::select(vec![Levels::Free, Levels::Sticky, Levels::Monotone, Levels::Fixed(None)]),
    ) {
        let policy = policy(&table, &rules, limit);
        let window = match time {
            None => by_records(size, size.div_ceil(share)),
            Some((slide, times)) => by_time(slide * times, slide, size),
        };
        let mut stream = Stream::new(&table, &policy, window);
        let mut anonymizer = Anonymizer::new(Arc::clone(&policy), choice(levels), "test", 5);
        let (mut books, mut snapshots, mut now) = (Books::default(), Vec::new(), NOW);
        let mut windows = Vec::new();
        // Whom the tombstone at an offset names.
        let mut named: BTreeMap<i64, i64> = BTreeMap::new();
        for (line, (kind, pass)) in table.lines.iter().zip(kinds) {
            now += if pass == 39 { -500 } else { pass };
            if kind == 2 && stream.next > 0 {
                let offset = (stream.next - 1 - pass).max(0);
                named.insert(stream.next, offset);
                windows.extend(stream.tombstone(offset, now));
                continue;
            }
            let mut record = table.record(line);
            record.values.push(Value::Text(stream.next.to_string().into()));
            match kind {
                0 => record.values[0] = Value::Missing,
                1 => record.values[0] = Value::Text("nowhere".into()),
                _ => {}
            }
            windows.extend(stream.add_values(record, now));
        }
        windows.extend(stream.due(now + 1000));
        windows.extend(stream.drain(now + 1000));
        prop_assert!(stream.window.is_empty());
        let mut gone: BTreeSet<usize> = BTreeSet::new();
        for window in windows {
            gone.extend(window.tombstones.positions().iter().map(|position| named[&position.offset.0] as usize));
            // Its frequency sets count just its rows.
            let base = window.sets.base();
            let mut counted: BTreeMap<Vec<u32>, u32> = BTreeMap::new();
            for i in 0..window.rows.len() {
                *counted.entry(window.rows.quasi(i).to_vec()).or_default() += 1;
            }
            let codes = |class: usize| (0..table.attributes.len()).map(|a| base.code(class, a)).collect();
            let sets: BTreeMap<Vec<u32>, u32> = (0..base.len()).map(|c| (codes(c), base.rows()[c])).collect();
            prop_assert_eq!(sets, counted);
            let release = released(anonymizer.release(window).expect("narrow enough"));
            books.enter(&release, anonymizer.waiting());
            let seen = seen(&release, table.sensitive);
            prop_assert!(seen.iter().all(|seen| seen.rows.is_disjoint(&gone)), "somebody deleted is shown");
            snapshots.extend(seen);
        }
        prop_assert_eq!(attack(&table, &snapshots, &rules), 0);
        prop_assert_eq!(anonymizer.waiting(), 0);
        prop_assert_eq!(books.finished, (0..stream.next).collect::<BTreeSet<_>>());
        let shown: BTreeSet<usize> = snapshots.iter().flat_map(|seen| seen.rows.iter().copied()).collect();
        prop_assert_eq!(books.published, shown.len() as u64);
    }
}

/// A batch of these lines of a table of leaves a and b, at a level.
fn batch(table: &Table, lines: &[u32], level: u8) -> GeneralizedBatch {
    let policy = table.policy(&[Rule::K(2)], 0.0, Loss::Glm);
    let (encoder, rows) = table.encode(&policy);
    let dictionaries = encoder.dictionaries();
    let columns: Vec<_> =
        Recoding::from(Node::new([level])).columns(&dictionaries.quasi).into_iter().map(Arc::new).collect();
    let (fresh, held) = (Arc::new(rows), Arc::default());
    let order = lines.iter().copied().map(RowRef::Fresh).collect();
    GeneralizedBatch::at(fresh, held, order, &columns, &dictionaries)
}

#[test]
fn the_gate_counts_who_left_and_who_came_for_itself() {
    let lines = [0, 0, 0, 0, 0, 0, 1, 1, 1, 1].map(|leaf| (leaf, 0, 0));
    let table = flat(&["a", "b"], &lines, false);
    let rules = Rules::new(&table.policy(&[Rule::K(2)], 0.0, Loss::Glm));
    let after = |before: (&[u32], u8), now: (&[u32], u8)| {
        let last = verify(batch(&table, before.0, before.1), &rules).expect("good in itself").snapshot();
        verify_next(batch(&table, now.0, now.1), &rules, Some(&last))
    };
    let refused = |before: (&[u32], u8), now: (&[u32], u8)| {
        let refusal = after(before, now).expect_err("too few left or came");
        assert!(refusal.difference, "{refusal}");
        assert!(refusal.to_string().ends_with("of those who left or came since the last snapshot"));
        refusal.size
    };
    // One more, one less, one for another.
    assert_eq!(refused((&[0, 1, 2], 0), (&[0, 1, 2, 3], 0)), 1);
    assert_eq!(refused((&[0, 1, 2], 0), (&[0, 1], 0)), 1);
    assert_eq!(refused((&[0, 1, 2], 0), (&[0, 1, 3], 0)), 1);
    assert!(after((&[0, 1, 2], 0), (&[0, 1, 2], 0)).is_ok());
    assert!(after((&[0, 1, 2], 0), (&[0, 1, 2, 3, 4], 0)).is_ok());
    assert!(after((&[0, 1, 2, 3], 0), (&[2, 3, 4, 5], 0)).is_ok());
    assert!(after((&[0, 1], 0), (&[6, 7], 0)).is_ok());
    // Two came, of two leaves: seen apart where both snapshots tell them apart, and together where one does not.
    assert_eq!(refused((&[0, 1, 6, 7], 0), (&[0, 1, 2, 6, 7, 8], 0)), 1);
    assert!(after((&[0, 1, 6, 7], 1), (&[0, 1, 2, 6, 7, 8], 0)).is_ok());
    assert!(after((&[0, 1, 6, 7], 0), (&[0, 1, 2, 6, 7, 8], 1)).is_ok());
    // Nothing that nobody sees.
    assert!(after((&[0, 1, 2], 0), (&[], 0)).is_ok());
}

#[test]
fn slides_by_time_and_when_it_is_full() {
    let table = flat(&["a", "b"], &[(0, 0, 0)], false);
    let policy = policy(&table, &[Rule::K(2)], 0.2);
    let mut stream = Stream::new(&table, &policy, by_time(1000, 250, 8));
    let line = table.lines[0].clone();
    let rows = |window: &ClosedWindow| window.rows.positions().iter().map(|p| p.offset.0).collect::<Vec<_>>();
    assert!(stream.due(NOW).is_none());
    assert!(stream.add(&line, NOW).is_none());
    assert_eq!(stream.window.next_due(), Some(Millis(NOW + 250)));
    assert!(stream.due(NOW + 249).is_none());
    let window = stream.due(NOW + 250).expect("moves on");
    assert_eq!((window.reason, rows(&window)), (CloseReason::Slid, vec![0]));
    // A quarter of its records come before a quarter of its time has passed.
    assert!(stream.add(&line, NOW + 300).is_none());
    assert_eq!(rows(&stream.add(&line, NOW + 301).expect("full")), [0, 1, 2]);
    // The first record is a second old.
    assert!(stream.add(&line, NOW + 400).is_none());
    let window = stream.due(NOW + 1000).expect("moves on");
    assert_eq!(rows(&window), [1, 2, 3]);
    assert_eq!(window.slide.expect("of a sliding window").left, [Position::new(0, 0)]);
    // The clock is set back by an hour: they do not stay an hour longer.
    assert!(stream.due(NOW - 3_600_000).is_none());
    let window = stream.due(NOW - 3_600_000 + 1000).expect("moves on");
    assert_eq!(rows(&window), [0i64; 0]);
    assert!(stream.window.is_empty() && stream.window.next_due().is_none());
    assert!(stream.drain(NOW).is_none());
}
