//! The space of a commit: held records and plans are written in its metadata, which is bounded. On random streams with many held
//! records and random crashes, every commit fits, every record has one outcome, and a plan that is carried out again publishes
//! the same records.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::fixture::{choice, released};
use common::{Line, Rule, Table, flat, hold};
use proptest::prelude::*;
use veilstream::anonymizer::Anonymizer;
use veilstream::encode::{Encoded, Encoder};
use veilstream::gate::Release;
use veilstream::kafka::client::{OnGap, Start, TopicRule};
use veilstream::kafka::progress::Progress;
use veilstream::kafka::progress::commit::{Commit, CommitState, MAX_BYTES};
use veilstream::kafka::progress::found::FoundPartition;
use veilstream::kafka::progress::partition::{CarriedOver, Delivered};
use veilstream::kafka::session::Session;
use veilstream::kafka::topics::Topics;
use veilstream::model::batch::Rows;
use veilstream::model::counting::Counting;
use veilstream::model::event::{Millis, Partition, Position, Reject, RejectCode};
use veilstream::model::policy::{Loss, Policy};
use veilstream::model::record::Value;
use veilstream::model::release::plan::ReleasePlan;
use veilstream::model::release::spans::Spans;
use veilstream::privacy::Rules;
use veilstream::search::Algorithm;
use veilstream::search::choose::{Choice, Levels};
use veilstream::window::{CloseReason, OpenWindow, Replayed, WindowId, WindowKind};

const HOUR: Duration = Duration::from_secs(3600);
const P: Partition = Partition(0);

/// One partition of a log, with offsets that hold no record.
struct Log {
    records: BTreeMap<i64, Message>,
}

#[derive(Clone, Copy)]
enum Message {
    Garbage,
    /// A record of a leaf, under a key.
    Record(usize, u16),
    Tombstone(u16),
}

/// What the broker keeps.
struct Broker {
    offset: i64,
    metadata: String,
}

impl Broker {
    fn commit(&mut self, commit: &Commit) {
        self.offset = commit.offset;
        self.metadata = commit.text();
        assert!(self.metadata.len() <= MAX_BYTES, "{} bytes", self.metadata.len());
    }
}

struct Instance {
    session: Arc<Session>,
    anonymizer: Anonymizer,
    encoder: Encoder,
    counting: Arc<Counting>,
    table: Table,
    next: i64,
    held: Rows,
    /// Made, and not published yet.
    under_way: Vec<Release>,
}

impl Instance {
    fn start(table: &Table, policy: &Arc<Policy>, broker: &Broker, seed: u64) -> (Self, Option<ReleasePlan>) {
        let session = Arc::new(Session::new(
            Topics::new([TopicRule { name: "t".into(), placement: 0 }]),
            Start::Earliest,
            OnGap::Stop,
            Arc::default(),
        ));
        let state = CommitState::parse(&broker.metadata, broker.offset).expect("ours");
        session.assigned(Ok(vec![FoundPartition { partition: P, committed: broker.offset, state: state.clone() }]));
        let (epoch, found) = session.take_up().expect("assigned").expect("without a fault");
        session.consuming(epoch, |progress| progress.assign(P, found[0].committed, &found[0].state)).expect("current");
        let choice = Choice { keep_within: 0.1, ..choice(Algorithm::Optimal, Levels::Free) };
        let anonymizer = Anonymizer::new(Arc::clone(policy), choice, "test", seed);
        let this = Self {
            anonymizer: anonymizer.within(Some(Arc::clone(&session) as _)),
            session,
            encoder: Encoder::new(Arc::clone(policy)),
            counting: Arc::new(Rules::new(policy).counting()),
            table: table.clone(),
            next: broker.offset,
            held: Rows::new(1, 1),
            under_way: Vec::new(),
        };
        let plan = state.plan.as_ref().map(|part| {
            let spans = |runs| Spans::from_runs([(P, state.needed(runs))]);
            ReleasePlan {
                id: part.id,
                levels: part.levels.clone(),
                closed: Some(part.closed),
                fingerprint: part.fingerprint.clone(),
                schema: part.schema,
                fresh: spans(&part.fresh),
                held: spans(&part.held),
                refused: spans(&part.refused),
                ..ReleasePlan::default()
            }
        });
        (this, plan)
    }

    fn progress<T>(&self, work: impl FnOnce(&mut Progress) -> T) -> T {
        self.session.progress(work).expect("the partition is ours")
    }

    /// A record's sensitive value says where it stands.
    fn encode(&mut self, offset: i64, message: Message) -> Encoded {
        match message {
            Message::Record(leaf, key) => {
                let line = Line { leaves: vec![leaf], sensitive: vec![0], subject: 0 };
                let mut record = self.table.record(&line);
                record.values[1] = Value::Text(offset.to_string().into());
                let encoded = self.encoder.encode(&record, None);
                self.encoder.set_key(Some(&key.to_le_bytes()));
                encoded
            }
            Message::Tombstone(key) => self.encoder.tombstone(&key.to_le_bytes()),
            Message::Garbage => Encoded::Rejected(Reject::record(RejectCode::Malformed)),
        }
    }

    fn open(&self, now: Millis) -> OpenWindow {
        OpenWindow::new(WindowId(0), now, &self.encoder, Arc::clone(&self.counting)).unwrap()
    }

    fn make(&mut self, window: OpenWindow, now: Millis, replay: Option<Replayed>) {
        let reason = if replay.is_some() { CloseReason::Replayed } else { CloseReason::Full };
        let mut window = window.close(now, reason, &self.encoder).unwrap();
        window.kind = replay.map_or(WindowKind::Tumbling, |replayed| WindowKind::Replay(Box::new(replayed)));
        window.held = std::mem::replace(&mut self.held, Rows::new(1, 1));
        self.under_way.push(*released(self.anonymizer.release(window).unwrap()));
    }

    /// Reads a window's worth and makes a release of it.
    fn read(&mut self, log: &Log, records: usize, now: Millis) {
        let mut window = self.open(now);
        let batch: Vec<(i64, Message)> =
            log.records.range(self.next..).take(records).map(|(offset, record)| (*offset, *record)).collect();
        for (offset, record) in batch {
            self.next = offset + 1;
            let position = Position::new(0, offset);
            let delivered = self.progress(|progress| progress.deliver(position));
            if delivered == Delivered::Done {
                continue;
            }
            let encoded = self.encode(offset, record);
            match delivered {
                Delivered::Held(_) if encoded == Encoded::Row => self.held.push(position, now, self.encoder.row()),
                _ => window.add(&self.encoder, position, now, encoded),
            }
        }
        self.make(window, now, None);
    }

    /// The planned release once more, as the source and the pipeline do it.
    fn replay(&mut self, log: &Log, plan: ReleasePlan) {
        let closed = plan.closed.unwrap();
        let (mut window, mut held, mut found) = (self.open(closed), Rows::new(1, 1), Vec::new());
        for (&offset, &record) in &log.records {
            let position = Position::new(0, offset);
            if !plan.fresh.contains(position) && !plan.held.contains(position) {
                continue;
            }
            found.push(position);
            let encoded = self.encode(offset, record);
            if encoded == Encoded::Row && plan.held.contains(position) {
                held.push(position, closed, self.encoder.row());
            } else {
                window.add(&self.encoder, position, closed, encoded);
            }
        }
        self.progress(|progress| progress.reread(P, Spans::covering(found).of(P)));
        self.make(window, closed, Some(Replayed { plan, held }));
    }
}

/// What is in the topics: committed outcomes, and every plan that was ever written down with the records it published.
#[derive(Default)]
struct Published {
    finished: BTreeMap<i64, usize>,
    releases: BTreeMap<u64, Vec<i64>>,
    published: u64,
    suppressed: u64,
    /// The last tombstone of each key that has its outcome.
    deleted: BTreeMap<u16, i64>,
    /// Records that were retracted.
    retracted: u64,
}

impl Published {
    /// Publishes the oldest release that is under way; `crash` stops after its plan was written down.
    fn publish(&mut self, log: &Log, instance: &mut Instance, broker: &mut Broker, crash: bool) {
        let release = instance.under_way.remove(0);
        let lineage = release.lineage();
        let mut rows: Vec<i64> = Vec::new();
        release
            .rows(|_, values| {
                rows.push(values[0].trim_matches('"').parse().unwrap());
                Ok::<(), ()>(())
            })
            .unwrap();
        rows.sort_unstable();
        let finished: Vec<i64> = lineage.finished.of(P).offsets().collect();
        self.retracted += release.manifest().provenance.work.retracted;
        for &offset in &finished {
            if let Message::Tombstone(key) = log.records[&offset] {
                let last = self.deleted.entry(key).or_default();
                *last = offset.max(*last);
            }
        }
        for &offset in &rows {
            let Message::Record(_, key) = log.records[&offset] else { panic!("{offset} is no record") };
            let deleted = self.deleted.get(&key).copied().unwrap_or(-1);
            assert!(deleted < offset, "{offset} was deleted by {deleted}, and is published");
        }
        if !release.is_empty() {
            if !lineage.replayed {
                for (_, commit) in instance.progress(|progress| progress.planned(&lineage.plan)).expect("ours") {
                    broker.commit(&commit);
                }
            }
            // A release is known by its id: made again, it has the same rows.
            assert_eq!(self.releases.entry(lineage.plan.id).or_insert_with(|| rows.clone()), &rows);
            if crash {
                return;
            }
        }
        let carried = CarriedOver { since: lineage.since, ..CarriedOver::default() };
        if !lineage.finished.of(P).is_empty() {
            let after = instance.progress(|progress| progress.after(P, &lineage.finished, carried)).expect("ours");
            broker.commit(&after);
        }
        instance.progress(|progress| progress.finish(&lineage.finished, carried));
        let provenance = &release.manifest().provenance;
        self.published += provenance.records_published;
        self.suppressed += provenance.records_suppressed;
        finished.into_iter().for_each(|offset| *self.finished.entry(offset).or_default() += 1);
    }
}

/// Classes are never merged, and those below k wait: the more leaves, the more records wait, all over the log.
fn crowd(leaves: usize) -> (Table, Arc<Policy>) {
    let names: Vec<String> = (0..leaves).map(|leaf| format!("leaf{leaf}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut table = flat(&names, &[(0, 0, 0)], false);
    table.attributes[0].max_level = 0;
    let policy = table.policy_with(&[Rule::K(3)], 1.0, Loss::Glm, hold(HOUR));
    (table, policy)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_waits_always_fits(
        leaves in 20usize..900,
        window in 50usize..1500,
        holes in 1u64..9,
        garbage in 0u64..30,
        tombstones in 0u64..20,
        keys in 100u64..5000,
        seed in any::<u64>(),
        steps in prop::collection::vec((0u8..8, 1usize..4), 4..14),
    ) {
        // xorshift: proptest's own values would make a log of thousands of records slow to shrink.
        let mut state = seed | 1;
        let mut dice = move || { state ^= state << 13; state ^= state >> 7; state ^= state << 17; state };
        let records = (0..30_000i64)
            .filter_map(|offset| {
                let leaf = (dice() % leaves as u64) as usize;
                let message = match dice() % 100 {
                    die if die < garbage => Message::Garbage,
                    die if die < garbage + tombstones => Message::Tombstone((dice() % keys) as u16),
                    _ => Message::Record(leaf, (dice() % keys) as u16),
                };
                (dice() % 10 >= holes - 1).then_some((offset, message))
            })
            .collect();
        let log = Log { records };
        let (table, policy) = crowd(leaves);
        let mut broker = Broker { offset: 0, metadata: String::new() };
        let mut published = Published::default();
        let (mut instance, _) = Instance::start(&table, &policy, &broker, 1);
        for (turn, (step, windows)) in steps.into_iter().enumerate() {
            let now = Millis(1_000 * turn as i64);
            for _ in 0..windows {
                instance.read(&log, window, now);
                if instance.under_way.len() > 2 {
                    published.publish(&log, &mut instance, &mut broker, false);
                }
            }
            if step > 4 {
                // Dies, with or without a plan on the broker.
                if step > 5 {
                    published.publish(&log, &mut instance, &mut broker, step == 7);
                }
                let (fresh, plan) = Instance::start(&table, &policy, &broker, 2 + turn as u64);
                instance = fresh;
                if let Some(plan) = plan {
                    instance.replay(&log, plan);
                    published.publish(&log, &mut instance, &mut broker, false);
                }
            }
        }
        while !instance.under_way.is_empty() {
            published.publish(&log, &mut instance, &mut broker, false);
        }
        prop_assert!(published.finished.values().all(|times| *times == 1), "an outcome twice");
        prop_assert!(published.finished.keys().all(|offset| log.records.contains_key(offset)));
        // Nothing is lost: what has no outcome is still to be read, or waits.
        let state = CommitState::parse(&broker.metadata, broker.offset).unwrap();
        for offset in log.records.keys().filter(|offset| !published.finished.contains_key(offset)) {
            prop_assert!(*offset >= broker.offset);
            prop_assert!(*offset >= state.finished_to || state.pending.contains(*offset), "offset {} is lost", offset);
        }
    }
}

#[test]
fn the_oldest_give_way() {
    let (table, policy) = crowd(1500);
    let leaf = |offset: i64| ((offset as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize % 1500;
    let log = Log { records: (0..20_000).map(|offset| (offset, Message::Record(leaf(offset), 0))).collect() };
    let mut broker = Broker { offset: 0, metadata: String::new() };
    let mut published = Published::default();
    let (mut instance, _) = Instance::start(&table, &policy, &broker, 1);
    for turn in 0..10 {
        instance.read(&log, 2000, Millis(turn));
        published.publish(&log, &mut instance, &mut broker, false);
    }
    assert!(published.suppressed > 0, "the space was never short: this proves nothing");
    assert!(published.published > 0);
    let state = CommitState::parse(&broker.metadata, broker.offset).unwrap();
    assert!(state.pending.count() > 100, "all of it was thrown out");
}

/// Somebody is held, and deleted in a window whose release is planned when the process dies: the plan names both, so that
/// who is read again is retracted again. Nobody may be left with a tombstone that has its outcome.
#[test]
fn who_is_held_and_deleted_is_finished_with_the_tombstone() {
    let (table, policy) = crowd(3);
    let alike = |from: i64, leaf: usize| (from..from + 5).map(move |offset| (offset, Message::Record(leaf, 9)));
    // Offset 0 is held by the first window, and would join the second and the third.
    let named = [(0, Message::Record(1, 7)), (11, Message::Tombstone(7))];
    let log = Log { records: alike(1, 0).chain(named).chain(alike(6, 1)).chain(alike(12, 1)).collect() };
    for crash in [false, true] {
        let mut broker = Broker { offset: 0, metadata: String::new() };
        let mut published = Published::default();
        let (mut instance, _) = Instance::start(&table, &policy, &broker, 1);
        instance.read(&log, 6, Millis(0));
        published.publish(&log, &mut instance, &mut broker, false);
        assert_eq!(CommitState::parse(&broker.metadata, broker.offset).unwrap().pending.first(), Some(0), "held");
        instance.read(&log, 6, Millis(1));
        published.publish(&log, &mut instance, &mut broker, crash);
        let (mut instance, plan) = Instance::start(&table, &policy, &broker, 2);
        assert_eq!(plan.is_some(), crash);
        if let Some(plan) = plan {
            instance.replay(&log, plan);
            published.publish(&log, &mut instance, &mut broker, false);
        }
        assert_eq!((broker.offset, published.finished.contains_key(&0)), (12, true), "finished with its tombstone");
        instance.read(&log, 20, Millis(2));
        published.publish(&log, &mut instance, &mut broker, false);
        assert_eq!((published.published, published.suppressed), (15, 1));
        assert_eq!(published.retracted, 1 + u64::from(crash), "counted each time that it is made");
    }
}
