//! Windows and what becomes of their records: when they close, which one a record joins, what waits, and that every
//! record is accounted for exactly once. Time is passed in; nothing sleeps.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use common::fixture::{NOW, choice, released};
use common::{Books, Line, Rule, Table, counts_its_rows, flat, hold, tables};
use proptest::prelude::*;
use veilstream::anonymizer::Anonymizer;
use veilstream::encode::{Encoded, Encoder};
use veilstream::gate::Release;
use veilstream::model::event::{Millis, Partition, Position};
use veilstream::model::policy::{Fallback, Loss, Policy, SuppressionAction};
use veilstream::model::record::{Record, Value};
use veilstream::privacy::Rules;
use veilstream::search::Algorithm;
use veilstream::search::choose::{Choice, Levels};
use veilstream::window::{
    CloseReason, CloseRules, ClosedWindow, EventTime, Lanes, Scope, SlideRules, Tumbling, WindowRules, Windows,
};

/// An assignment.
const EPOCH: u64 = 7;
const HOUR: Duration = Duration::from_secs(3600);

/// The windows of one stream, with a clock.
struct Stream {
    table: Table,
    encoder: Encoder,
    windows: Tumbling,
    next: BTreeMap<u32, i64>,
}

impl Stream {
    fn new(table: &Table, policy: &Arc<Policy>, rules: CloseRules) -> Self {
        let counting = Arc::new(Rules::new(policy).counting());
        Self {
            table: table.clone(),
            encoder: Encoder::new(Arc::clone(policy)),
            windows: Tumbling::new(rules, counting),
            next: BTreeMap::new(),
        }
    }

    fn add_record(&mut self, partition: u32, record: &Record<'_>, time: Option<i64>, now: i64) -> Vec<ClosedWindow> {
        self.add_keyed(partition, record, None, time, now)
    }

    fn add_keyed(
        &mut self,
        partition: u32,
        record: &Record<'_>,
        key: Option<u8>,
        time: Option<i64>,
        now: i64,
    ) -> Vec<ClosedWindow> {
        let encoded = self.encoder.encode(record, time.map(Millis));
        self.encoder.set_key(key.as_ref().map(std::slice::from_ref));
        self.take(partition, encoded, now)
    }

    fn tombstone(&mut self, partition: u32, key: u8, now: i64) -> Vec<ClosedWindow> {
        let encoded = self.encoder.tombstone(&[key]);
        self.take(partition, encoded, now)
    }

    fn take(&mut self, partition: u32, encoded: Encoded, now: i64) -> Vec<ClosedWindow> {
        let position = self.position(partition);
        *self.next.entry(partition).or_default() += 1;
        self.windows.add(&self.encoder, position, Millis(now), encoded).expect("narrow enough");
        self.due(now)
    }

    /// Where the next record of a partition stands.
    fn position(&self, partition: u32) -> Position {
        Position::new(partition, self.next.get(&partition).copied().unwrap_or(0))
    }

    fn add(&mut self, line: &Line, time: Option<i64>, now: i64) -> Vec<ClosedWindow> {
        let record = self.table.record(line);
        self.add_record(0, &record, time, now)
    }

    fn due(&mut self, now: i64) -> Vec<ClosedWindow> {
        let due = || self.windows.due(Millis(now), &self.encoder).expect("narrow enough");
        std::iter::from_fn(due).collect()
    }

    fn drain(&mut self, now: i64) -> Vec<ClosedWindow> {
        let drained = || self.windows.drain(Millis(now), &self.encoder).expect("narrow enough");
        std::iter::from_fn(drained).collect()
    }
}

fn by_count(max_records: usize) -> CloseRules {
    CloseRules { max_records, max_age: HOUR, event_time: None }
}

fn by_event_time(size: u64, allowed_lateness: u64) -> CloseRules {
    let [size, allowed_lateness] = [size, allowed_lateness].map(Duration::from_millis);
    CloseRules { event_time: Some(EventTime { size, allowed_lateness }), ..by_count(1000) }
}

/// A stream of one-attribute records, all alike.
fn plain(rules: CloseRules) -> (Stream, Line) {
    let table = flat(&["a", "b"], &[(0, 0, 0)], false);
    let policy = table.policy(&[Rule::K(2)], 0.2, Loss::Glm);
    (Stream::new(&table, &policy, rules), table.lines[0].clone())
}

/// Every position in a window, however it ended up there.
fn positions(window: &ClosedWindow) -> Vec<Position> {
    let rejected = window.rejected.iter().map(|(position, _)| *position);
    window.rows.positions().chain(rejected).chain(window.suppressed.iter().copied()).collect()
}

fn offsets(window: &ClosedWindow) -> Vec<i64> {
    let mut offsets: Vec<i64> = positions(window).iter().map(|position| position.offset.0).collect();
    offsets.sort_unstable();
    offsets
}

/// Records for windows that may hold little.
const HELD: u32 = 12_000;

/// What closes before its rules say so because open windows may hold only so much, and the positions of all its rows.
fn held_within(bytes: usize, rules: WindowRules, scope: Scope) -> (usize, Vec<Position>) {
    let (mut stream, line) = plain(by_count(1));
    let counting = Arc::new(Rules::new(&stream.table.policy(&[Rule::K(2)], 0.2, Loss::Glm)).counting());
    let mut lanes = Lanes::new(rules, scope, counting).holding(bytes);
    let (mut early, mut rows) = (0, Vec::new());
    for record in 0..HELD {
        let encoded = stream.encoder.encode(&stream.table.record(&line), None);
        let position = Position::new(record % 3, i64::from(record / 3));
        lanes.add(&stream.encoder, position, Millis(NOW), encoded).unwrap();
        while let Some(window) = lanes.due(Millis(NOW), &stream.encoder).unwrap() {
            assert_eq!(window.reason, CloseReason::Memory);
            assert!(window.rows.bytes() < 2 * bytes, "{} bytes", window.rows.bytes());
            early += 1;
            rows.extend(window.rows.positions());
        }
    }
    while let Some(window) = lanes.drain(Millis(NOW), &stream.encoder).unwrap() {
        rows.extend(window.rows.positions());
    }
    rows.sort_unstable();
    (early, rows)
}

#[test]
fn windows_that_hold_too_much_close_early_and_lose_nothing() {
    let tumbling = || WindowRules::Tumbling(by_count(1_000_000));
    for scope in [Scope::Instance, Scope::Partition] {
        let (early, rows) = held_within(10_000, tumbling(), scope);
        assert!(early > 2, "{scope:?}: {early}");
        assert!(rows.len() == HELD as usize && rows.is_sorted_by(|a, b| a < b), "every record is in one window");
    }
    assert_eq!(held_within(10 << 20, tumbling(), Scope::Instance).0, 0);
    let sliding =
        SlideRules { size: 100_000, slide: 50_000, time: None, max_hold: 1, changes: false, warm_memory: 1 << 20 };
    let (early, mut rows) = held_within(50_000, WindowRules::Sliding(sliding), Scope::Instance);
    rows.dedup();
    // Its oldest rows leave, a few of them before a snapshot had them: those end as suppressed.
    assert!(
        early > 2 && rows.len() > HELD as usize * 9 / 10,
        "most records were in a snapshot: {early}, {}",
        rows.len()
    );
}

#[test]
fn interleaved_windows_close_together_where_a_log_has_no_room_for_them() {
    for (room, expected) in [(None, 10), (Some(20), 10), (Some(3), 21)] {
        let (mut stream, line) = plain(by_event_time(100, 50));
        if let Some(runs) = room {
            stream.windows.within(runs);
        }
        for _ in 0..10 {
            assert!(stream.add(&line, Some(NOW + 10), NOW).is_empty());
            assert!(stream.add(&line, Some(NOW + 110), NOW).is_empty());
        }
        let closed = stream.add(&line, Some(NOW + 160), NOW);
        assert_eq!(closed.len(), 1);
        assert_eq!(closed[0].rows.len(), expected, "{room:?}");
        let rest: usize = stream.drain(NOW).iter().map(|window| window.rows.len()).sum();
        assert_eq!(rest + expected, 21);
    }
}

#[test]
fn closes_at_its_count() {
    let (mut stream, line) = plain(by_count(10));
    let closed: Vec<ClosedWindow> = (0..25).flat_map(|_| stream.add(&line, None, NOW)).collect();
    assert_eq!(closed.len(), 2);
    assert!(closed.iter().all(|w| w.reason == CloseReason::Full && w.rows.len() == 10));
    let rest = stream.drain(NOW);
    assert_eq!((rest.len(), rest[0].rows.len(), rest[0].reason), (1, 5, CloseReason::Drained));
    assert!(stream.windows.is_empty());
}

#[test]
fn closes_at_its_age() {
    let (mut stream, line) = plain(CloseRules { max_age: Duration::from_secs(30), ..by_count(10) });
    assert!(stream.add(&line, None, NOW).is_empty());
    assert_eq!(stream.windows.next_due(), Some(Millis(NOW + 30_000)));
    assert!(stream.due(NOW + 29_999).is_empty());
    let closed = stream.due(NOW + 30_000);
    assert_eq!((closed.len(), closed[0].reason), (1, CloseReason::Aged));
    assert_eq!(closed[0].closed, Millis(NOW + 30_000));
    // The next window's age counts from its own first record.
    assert!(stream.add(&line, None, NOW + 40_000).is_empty());
    assert!(stream.due(NOW + 69_999).is_empty());
}

#[test]
fn a_clock_that_jumps_back_neither_closes_a_window_nor_keeps_it_open() {
    let (mut stream, line) = plain(CloseRules { max_age: Duration::from_secs(30), ..by_count(10) });
    assert!(stream.add(&line, None, NOW).is_empty());
    let back = NOW - 7_200_000;
    assert!(stream.due(back).is_empty());
    assert!(stream.add(&line, None, back + 1000).is_empty());
    // Two hours must not pass before it closes: at most its age from when the jump was seen.
    assert_eq!(stream.windows.next_due(), Some(Millis(back + 30_000)));
    assert_eq!(stream.due(back + 30_000).len(), 1);
    // A jump ahead closes at once.
    assert!(stream.add(&line, None, back + 30_000).is_empty());
    assert_eq!(stream.due(NOW + 86_400_000).len(), 1);
}

#[test]
fn event_time_waits_for_late_records_and_then_no_longer() {
    let (mut stream, line) = plain(by_event_time(1000, 500));
    assert!(stream.add(&line, Some(NOW + 100), NOW).is_empty());
    assert!(stream.add(&line, Some(NOW + 1499), NOW).is_empty());
    // Late, but waited for.
    assert!(stream.add(&line, Some(NOW + 900), NOW).is_empty());
    let closed = stream.add(&line, Some(NOW + 1500), NOW);
    assert_eq!((closed.len(), closed[0].reason), (1, CloseReason::EventTime));
    assert_eq!(offsets(&closed[0]), [0, 2]);
    // Too late: it goes with the oldest that is open, and opens none of its own.
    assert!(stream.add(&line, Some(NOW + 901), NOW).is_empty());
    let rest = stream.drain(NOW);
    assert_eq!(rest.len(), 1);
    assert_eq!(offsets(&rest[0]), [1, 3, 4]);
}

#[test]
fn a_late_record_without_an_open_window_joins_the_one_that_is_waited_for() {
    let (mut stream, line) = plain(by_event_time(1000, 0));
    assert!(stream.add(&line, Some(NOW), NOW).is_empty());
    assert_eq!(stream.add(&line, Some(NOW + 5000), NOW).len(), 1);
    // The window of NOW + 3000 never was; it would close as soon as it opened.
    assert!(stream.add(&line, Some(NOW + 3000), NOW).is_empty());
    assert_eq!(offsets(&stream.drain(NOW)[0]), [1, 2]);
    // Nothing is open now, and the watermark stands at NOW + 5000.
    assert!(stream.add(&line, Some(NOW + 3000), NOW).is_empty());
    assert!(stream.add(&line, Some(NOW + 5900), NOW).is_empty());
    assert_eq!(offsets(&stream.drain(NOW)[0]), [3, 4]);
}

#[test]
fn a_time_from_the_future_moves_nothing() {
    let (mut stream, line) = plain(by_event_time(1000, 0));
    let year_2099 = 4_070_908_800_000;
    assert!(stream.add(&line, Some(year_2099), NOW).is_empty());
    assert!(stream.add(&line, Some(NOW + 10), NOW).is_empty());
    assert!(stream.add(&line, Some(year_2099), NOW).is_empty());
    assert!(stream.add(&line, Some(i64::MAX), NOW).is_empty());
    assert!(stream.add(&line, Some(NOW + 20), NOW).is_empty());
    let closed = stream.add(&line, Some(NOW + 1000), NOW + 1000);
    assert_eq!(closed.len(), 1);
    assert_eq!(offsets(&closed[0]), [0, 1, 2, 3, 4]);
}

/// Records of last year, read today: nothing but the other records says that one of them is dated months ahead.
#[test]
fn one_record_ahead_of_the_others_does_not_move_event_time() {
    const DAY: i64 = 86_400_000;
    let (then, ahead) = (NOW - 300 * DAY, NOW - 200 * DAY);
    // As the first record, and as a later one.
    for (times, closes) in
        [([ahead, then, then + 10, then + 20], then + 1000), ([then, then + 10, ahead, then + 20], then + 1000)]
    {
        let (mut stream, line) = plain(by_event_time(1000, 0));
        for time in times {
            assert!(stream.add(&line, Some(time), NOW).is_empty(), "{times:?}");
        }
        let closed = stream.add(&line, Some(closes), NOW);
        assert_eq!(closed.iter().map(offsets).collect::<Vec<_>>(), [[0, 1, 2, 3]], "{times:?}");
        assert_eq!(stream.drain(NOW).len(), 1, "nothing waits for next year");
    }
}

/// A stream that has paused goes on later: event time follows when the records agree.
#[test]
fn event_time_follows_a_gap_that_all_records_agree_on() {
    const DAY: i64 = 86_400_000;
    let then = NOW - 300 * DAY;
    let (mut stream, line) = plain(by_event_time(1000, 0));
    for i in 0..20 {
        assert!(stream.add(&line, Some(then + i), NOW).is_empty());
    }
    let closed: Vec<ClosedWindow> = (0..40).flat_map(|i| stream.add(&line, Some(then + 100 * DAY + i), NOW)).collect();
    assert_eq!(closed.len(), 1);
    assert_eq!(closed[0].rows.len(), 29, "those before they agreed go with the window that was open");
    assert_eq!(stream.add(&line, Some(then + 100 * DAY + 1000), NOW)[0].rows.len(), 31);
    // Where the clock has moved as far there is nothing to agree on.
    let (mut stream, line) = plain(by_event_time(1000, 0));
    assert!(stream.add(&line, Some(NOW), NOW).is_empty());
    assert_eq!(stream.add(&line, Some(NOW + DAY), NOW + DAY).len(), 1);
}

#[test]
fn a_time_from_1970_moves_nothing() {
    let (mut stream, line) = plain(by_event_time(1000, 0));
    assert!(stream.add(&line, Some(NOW + 10), NOW).is_empty());
    for ancient in [0, -1, i64::MIN, i64::MIN + 1] {
        assert!(stream.add(&line, Some(ancient), NOW).is_empty(), "{ancient} closed a window");
    }
    assert!(stream.add(&line, Some(NOW + 20), NOW).is_empty());
    let closed = stream.add(&line, Some(NOW + 1000), NOW);
    assert_eq!(closed.len(), 1);
    assert_eq!(offsets(&closed[0]), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn the_first_record_may_have_any_time() {
    for time in [i64::MIN, -1, 0, i64::MAX] {
        let (mut stream, line) = plain(by_event_time(777, 10));
        let mut closed = stream.add(&line, Some(time), NOW);
        closed.extend(stream.add(&line, Some(NOW), NOW));
        closed.extend(stream.drain(NOW));
        let mut read: Vec<i64> = closed.iter().flat_map(offsets).collect();
        read.sort_unstable();
        assert_eq!(read, [0, 1], "{time}");
    }
}

/// One step of a random stream.
#[derive(Debug, Clone)]
enum Step {
    Record {
        line: u16,
        partition: u32,
        kind: u8,
        time: i64,
        pass: i64,
    },
    /// A tombstone, for the key of some lines.
    Tombstone {
        partition: u32,
        key: u8,
    },
}

/// Few keys, so that most tombstones name somebody.
fn key_of(line: u16) -> u8 {
    (line % 6) as u8
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Mostly in order, sometimes hours late or early, sometimes absurd.
    let time = prop_oneof![
        12 => -1500i64..1500,
        2 => -9_000_000i64..9_000_000,
        1 => prop::sample::select(vec![i64::MIN / 2, -NOW, i64::MAX / 2]),
    ];
    let pass = prop_oneof![10 => 0i64..300, 1 => -20_000i64..20_000];
    let record = (any::<u16>(), 0u32..3, 0u8..12, time, pass)
        .prop_map(|(line, partition, kind, time, pass)| Step::Record { line, partition, kind, time, pass });
    let tombstone = (0u32..3, 0u8..6).prop_map(|(partition, key)| Step::Tombstone { partition, key });
    let step = prop_oneof![30 => record, 1 => tombstone];
    prop::collection::vec(step, 1..150)
}

fn close_rules() -> impl Strategy<Value = CloseRules> {
    let event_time = prop::option::of((1u64..3000, 0u64..2000));
    (1usize..40, 1u64..30_000, event_time).prop_map(|(max_records, max_age, event_time)| CloseRules {
        max_records,
        max_age: Duration::from_millis(max_age),
        event_time: event_time.map(|(size, lateness)| EventTime {
            size: Duration::from_millis(size),
            allowed_lateness: Duration::from_millis(lateness),
        }),
    })
}

/// The record of a step: mostly a good one, sometimes one that is turned away or suppressed on arrival.
fn record_of(table: &Table, line: u16, kind: u8) -> Record<'static> {
    let mut record = table.record(&table.lines[usize::from(line) % table.lines.len()]);
    match kind {
        0 => record.values[0] = Value::Missing,
        1 => record.values[0] = Value::Text("nowhere".into()),
        _ => {}
    }
    record
}

fn lenient(policy: &Policy) -> Arc<Policy> {
    Arc::new(Policy { unknown_value: Fallback::Suppress, ..policy.clone() })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Lanes do not ask their windows after every record; the twin does.
    #[test]
    fn a_lane_closes_its_windows_at_the_same_records(
        rules in close_rules(),
        scope in prop::sample::select(vec![Scope::Instance, Scope::Partition]),
        records in prop::collection::vec((0u32..3, prop_oneof![6 => Just(0i64), 1 => -900i64..9000], -1500i64..1500), 1..300),
    ) {
        let (mut stream, line) = plain(rules.clone());
        let counting = Arc::new(Rules::new(&stream.table.policy(&[Rule::K(2)], 0.2, Loss::Glm)).counting());
        let mut lanes = Lanes::new(WindowRules::Tumbling(rules.clone()), scope, Arc::clone(&counting));
        let mut twins: BTreeMap<Partition, Tumbling> = BTreeMap::new();
        let (mut now, record) = (NOW, stream.table.record(&line));
        for (offset, (partition, pass, time)) in (0..).zip(records) {
            now += pass;
            let position = Position::new(partition, offset);
            let encoded = stream.encoder.encode(&record, Some(Millis(now + time)));
            lanes.add(&stream.encoder, position, Millis(now), encoded.clone()).unwrap();
            let twin = twins.entry(scope.lane(position.partition));
            let twin = twin.or_insert_with(|| Tumbling::new(rules.clone(), Arc::clone(&counting)));
            twin.add(&stream.encoder, position, Millis(now), encoded).unwrap();
            let due = || lanes.due(Millis(now), &stream.encoder).unwrap();
            let closed: Vec<_> = std::iter::from_fn(due).map(|window| (window.lane, positions(&window))).collect();
            let mut expected = Vec::new();
            for (lane, twin) in &mut twins {
                while let Some(window) = twin.due(Millis(now), &stream.encoder).unwrap() {
                    expected.push((*lane, positions(&window)));
                }
            }
            prop_assert_eq!(closed, expected);
        }
    }

    #[test]
    fn every_record_is_in_exactly_one_window(table in tables(1..=2, 30), rules in close_rules(), steps in steps()) {
        let policy = lenient(&table.policy(&[Rule::K(2)], 0.2, Loss::Glm));
        let mut stream = Stream::new(&table, &policy, rules);
        let mut now = NOW;
        let mut expected: BTreeSet<Position> = BTreeSet::new();
        // Who waits under which key, and who was named while waiting, by which tombstone first.
        let (mut waits, mut named): (BTreeMap<Position, u8>, BTreeMap<Position, Position>) = Default::default();
        let mut closed: Vec<ClosedWindow> = Vec::new();
        for step in steps {
            let due = match step {
                Step::Record { line, partition, kind, time, pass } => {
                    now += pass;
                    let (position, key) = (stream.position(partition), key_of(line));
                    expected.insert(position);
                    waits.extend((kind > 1).then_some((position, key)));
                    let record = record_of(&table, line, kind);
                    stream.add_keyed(partition, &record, Some(key), Some(now.saturating_add(time)), now)
                }
                Step::Tombstone { partition, key } => {
                    let position = stream.position(partition);
                    expected.insert(position);
                    let those = waits.iter().filter(|(p, k)| p.partition == position.partition && **k == key);
                    for (waiting, _) in those {
                        named.entry(*waiting).or_insert(position);
                    }
                    stream.tombstone(partition, key, now)
                }
            };
            let done: BTreeSet<Position> = due.iter().flat_map(positions).collect();
            waits.retain(|position, _| !done.contains(position));
            closed.extend(due);
            let waiting = expected.len() - closed.iter().map(|w| positions(w).len()).sum::<usize>();
            prop_assert_eq!(stream.windows.len(), waiting);
        }
        closed.extend(stream.drain(now));
        let all: Vec<Position> = closed.iter().flat_map(positions).collect();
        prop_assert_eq!(all.len(), expected.len());
        prop_assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), expected);
        for window in &closed {
            prop_assert!(window.rows.positions().all(|position| !named.contains_key(&position)), "retracted");
            let together = |(gone, tombstone): (&Position, &Position)| {
                window.suppressed.contains(gone) == window.tombstones.positions().contains(tombstone)
            };
            prop_assert!(named.iter().all(together), "outcomes together");
            prop_assert!(window.retracted <= window.suppressed.len() as u64);
            prop_assert!(!positions(window).is_empty(), "nothing closes");
            counts_its_rows(window);
        }
        prop_assert_eq!(closed.iter().map(|w| w.retracted).sum::<u64>(), named.len() as u64);
        let ids: BTreeSet<_> = closed.iter().map(|w| w.id).collect();
        prop_assert_eq!(ids.len(), closed.len());
    }
}

fn anonymizer(policy: &Arc<Policy>, levels: Levels) -> Anonymizer {
    let choice = Choice { keep_within: 0.1, ..choice(Algorithm::Optimal, levels) };
    Anonymizer::new(Arc::clone(policy), choice, "test", 5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// published + suppressed + held + rejected = in, after every release; every record is finished exactly once.
    #[test]
    fn the_books_balance(
        (table, criteria, limit) in common::cases(1..=2, 30),
        rules in close_rules(),
        steps in steps(),
        max_hold in prop::option::of(0u64..20_000),
        sticky in any::<bool>(),
    ) {
        let action = max_hold.map_or(SuppressionAction::Drop, |ms| hold(Duration::from_millis(ms)));
        let policy = lenient(&table.policy_with(&criteria, limit, Loss::Glm, action));
        let mut stream = Stream::new(&table, &policy, rules);
        let mut anonymizer = anonymizer(&policy, if sticky { Levels::Sticky } else { Levels::Free });
        let mut books = Books::default();
        let mut enter = |release: &Release, waiting: usize| {
            assert_eq!(release.manifest().provenance.records_published, release.len() as u64);
            books.enter(release, waiting);
        };
        let mut now = NOW;
        let mut windows = Vec::new();
        for step in steps {
            windows.extend(match step {
                Step::Record { line, partition, kind, time, pass } => {
                    now += pass;
                    let record = record_of(&table, line, kind);
                    stream.add_keyed(partition, &record, Some(key_of(line)), Some(now.saturating_add(time)), now)
                }
                Step::Tombstone { partition, key } => stream.tombstone(partition, key, now),
            });
            for window in windows.drain(..) {
                let release = released(anonymizer.release(window).expect("narrow enough"));
                enter(&release, anonymizer.waiting());
            }
            if let Some(closing) = anonymizer.tick(Millis(now)).expect("narrow enough") {
                enter(&released(closing), anonymizer.waiting());
            }
        }
        for window in stream.drain(now) {
            let release = released(anonymizer.release(window).expect("narrow enough"));
            enter(&release, anonymizer.waiting());
        }
        // Long after the last record nothing waits any more.
        if let Some(closing) = anonymizer.tick(Millis(now + 10_000_000)).expect("narrow enough") {
            enter(&released(closing), anonymizer.waiting());
        }
        prop_assert_eq!(anonymizer.waiting(), 0);
        let all: BTreeSet<Position> =
            stream.next.iter().flat_map(|(&p, &next)| (0..next).map(move |o| Position::new(p, o))).collect();
        prop_assert_eq!(books.finished, all);
        prop_assert_eq!(books.records_in, stream.next.values().sum::<i64>() as u64);
    }
}

/// Windows by count over leaves a, b, c; k = 2; a fifth may be held for a minute.
struct Held {
    stream: Stream,
    anonymizer: Anonymizer,
}

impl Held {
    fn new() -> Self {
        let table = flat(&["a", "b", "c"], &[(0, 0, 0)], false);
        let policy = table.policy_with(&[Rule::K(2)], 0.2, Loss::Glm, hold(Duration::from_secs(60)));
        let stream = Stream::new(&table, &policy, by_count(1000));
        Self { stream, anonymizer: anonymizer(&policy, Levels::Free) }
    }

    /// Closes a window of these leaves at `now`.
    fn window(&mut self, leaves: &[usize], now: i64) -> Box<Release> {
        for &leaf in leaves {
            let line = Line { leaves: vec![leaf], sensitive: vec![0], subject: 0 };
            assert!(self.stream.add(&line, None, now).is_empty());
        }
        let window = self.stream.drain(now).remove(0);
        let window = ClosedWindow { epoch: EPOCH, ..window };
        released(self.anonymizer.release(window).expect("narrow enough"))
    }
}

fn labels(release: &Release) -> BTreeMap<String, usize> {
    let mut labels = BTreeMap::new();
    let seen: Result<(), ()> = release.rows(|quasi, _| {
        *labels.entry(quasi.join(" ")).or_default() += 1;
        Ok(())
    });
    assert!(seen.is_ok());
    labels
}

#[test]
fn a_held_record_joins_a_class_that_is_good_without_it() {
    let mut held = Held::new();
    let first = held.window(&[0, 0, 0, 0, 1], NOW);
    assert_eq!(labels(&first), [("a".to_string(), 4)].into());
    assert_eq!(held.anonymizer.waiting(), 1);
    // One more b: together they would be two, but one of them was seen to be missing.
    let second = held.window(&[0, 0, 0, 0, 1], NOW + 1000);
    assert_eq!(labels(&second), [("a".to_string(), 4)].into());
    assert_eq!(held.anonymizer.waiting(), 2);
    let third = held.window(&[0, 0, 1, 1], NOW + 2000);
    assert_eq!(labels(&third), [("a".to_string(), 2), ("b".to_string(), 4)].into());
    assert_eq!(held.anonymizer.waiting(), 0);
}

/// The offsets that a release finishes.
fn finished(release: &Release) -> Vec<i64> {
    release.lineage().finished.iter().flat_map(|(_, spans)| spans).flat_map(|s| s.first.0..=s.last.0).collect()
}

#[test]
fn a_held_record_is_suppressed_after_max_hold() {
    let mut held = Held::new();
    held.window(&[0, 0, 0, 0, 1], NOW);
    assert!(held.anonymizer.tick(Millis(NOW + 60_000)).expect("narrow enough").is_none());
    let closing = held.anonymizer.tick(Millis(NOW + 60_001)).expect("narrow enough").expect("overdue");
    let release = released(closing);
    assert!(release.is_empty());
    let p = &release.manifest().provenance;
    assert_eq!((p.records_in, p.records_suppressed, p.records_held), (0, 1, 0));
    assert_eq!(finished(&release), [4]);
    assert_eq!(release.lineage().epoch, EPOCH, "it is published in the assignment that the record was read in");
    assert!(p.offsets.is_empty(), "a reader is not told which record it was");
    assert_eq!(held.anonymizer.waiting(), 0);
}

#[test]
fn a_window_too_small_to_publish_starts_over_with_the_next() {
    let mut held = Held::new();
    let first = held.window(&[1], NOW);
    assert!(first.is_empty());
    assert_eq!((first.manifest().provenance.records_held, held.anonymizer.waiting()), (1, 1));
    // Nobody has seen a release without it, so it counts towards k.
    let second = held.window(&[1], NOW + 1000);
    assert_eq!(labels(&second), [("b".to_string(), 2)].into());
    assert_eq!(finished(&second), [0, 1]);
    // It does not wait for ever either.
    held.window(&[2], NOW + 2000);
    let closing = held.anonymizer.tick(Millis(NOW + 62_001)).expect("narrow enough").expect("overdue");
    assert_eq!(released(closing).manifest().provenance.records_suppressed, 1);
}

#[test]
fn what_waits_leaves_with_its_partition() {
    let mut held = Held::new();
    held.anonymizer.reset(Some(vec![Partition(0)]), None);
    held.window(&[0, 0, 0, 0, 1], NOW);
    assert_eq!((held.anonymizer.retract_others(), held.anonymizer.waiting()), (0, 1));
    // Another assignment starts with nothing, and lets go of what is not its own.
    held.anonymizer.reset(Some(vec![Partition(1)]), None);
    assert_eq!(held.anonymizer.waiting(), 0);
    held.window(&[0, 0, 0, 0, 1], NOW + 1000);
    assert_eq!((held.anonymizer.retract_others(), held.anonymizer.waiting()), (1, 0));
    let next = held.window(&[0, 0, 1, 1], NOW + 2000);
    assert_eq!(next.len(), 4);
    assert_eq!(finished(&next), [10, 11, 12, 13]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Records that are given up leave no trace: what is left is the window that never had them.
    #[test]
    fn a_partition_that_goes_leaves_the_window_of_the_others(
        table in tables(1..=2, 60),
        owners in prop::collection::vec(0u32..3, 60),
    ) {
        let policy = table.policy(&[Rule::K(2)], 0.5, Loss::Glm);
        let [mut all, mut others] = [(), ()].map(|()| Stream::new(&table, &policy, by_count(1000)));
        let mut gone = 0;
        for (i, (line, &owner)) in table.lines.iter().zip(&owners).enumerate() {
            let record = table.record(line);
            for stream in [Some(&mut all), Some(&mut others).filter(|_| owner != 1)].into_iter().flatten() {
                match i % 7 {
                    6 => stream.tombstone(owner, (i % 3) as u8, NOW),
                    _ => stream.add_keyed(owner, &record, Some((i % 3) as u8), None, NOW),
                };
            }
            gone += usize::from(owner == 1);
        }
        prop_assert_eq!(all.windows.give_up(&BTreeSet::from([Partition(1)])), gone);
        let release = |stream: &mut Stream| {
            stream.drain(NOW).pop().map(|window| {
                let records = (window.rows.positions().collect::<Vec<_>>(), window.suppressed.clone());
                let release = released(anonymizer(&policy, Levels::Free).release(window).unwrap());
                let (counts, plan) = (&release.manifest().provenance, &release.lineage().plan);
                (records, plan.levels.clone(), plan.fresh.clone(), counts.records_published, counts.records_suppressed)
            })
        };
        prop_assert_eq!(release(&mut all), release(&mut others));
    }
}
