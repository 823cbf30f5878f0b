//! `window.sliding.publish: changes`: a reader of the changelog has every snapshot, it is as safe as whole snapshots are, and planned
//! releases of it are made again byte for byte.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
mod program;
#[path = "common/slides.rs"]
mod slides;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use common::{Rule, Table};
use program::{Desk, jsonl, people};
use slides::{NOW, Reader, Stream, by_records, choice, policy, released, texts, town};
use veilstream::anonymizer::Anonymizer;
use veilstream::encode::{Encoded, Encoder};
use veilstream::gate::Release;
use veilstream::model::event::{Millis, Position};
use veilstream::model::policy::{Policy, RecodingKind};
use veilstream::model::record::Value;
use veilstream::model::release::plan::{CommitSpace, Fit, ReleasePlan};
use veilstream::model::release::spans::Spans;
use veilstream::privacy::Rules;
use veilstream::search::Algorithm;
use veilstream::search::choose::{Choice, Levels};
use veilstream::window::{CloseReason, OpenWindow, Replayed, SlideRules, WindowId, WindowKind};

const RECODINGS: [RecodingKind; 3] = [RecodingKind::FullDomain, RecodingKind::Subtree, RecodingKind::Local];

/// Room for every plan, so that plans are complete.
struct Enough;

impl CommitSpace for Enough {
    fn fit(&self, _: &[Spans], _: Option<&ReleasePlan>, _: &Spans) -> Fit {
        Fit::Fits
    }
}

fn anonymizer(policy: &Arc<Policy>, levels: &Levels) -> Anonymizer {
    let cuts = policy.recoding == RecodingKind::Subtree;
    let algorithm = if cuts { Algorithm::SubtreeBottomUp } else { Algorithm::Optimal };
    let choice = Choice { algorithm, ..choice(levels.clone()) };
    Anonymizer::new(Arc::clone(policy), choice, "test", 5).within(Some(Arc::new(Enough)))
}

/// All releases of a table's lines, some of whose records are deleted on the way.
fn releases(table: &Table, policy: &Arc<Policy>, window: SlideRules, levels: &Levels, deleted: i64) -> Vec<Release> {
    let mut stream = Stream::new(table, policy, window);
    let mut anonymizer = anonymizer(policy, levels);
    let mut windows = Vec::new();
    for line in &table.lines {
        windows.extend(match deleted > 0 && stream.next % deleted == deleted - 1 {
            true => stream.tombstone(stream.next - deleted / 2, NOW),
            false => stream.add(line, NOW),
        });
    }
    windows.extend(stream.drain(NOW));
    windows.into_iter().map(|window| *released(anonymizer.release(window).expect("narrow enough"))).collect()
}

fn recoded(table: &Table, rules: &[Rule], recoding: RecodingKind) -> Arc<Policy> {
    Arc::new(Policy { recoding, ..(*policy(table, rules, 0.2)).clone() })
}

#[test]
fn a_reader_of_the_changes_has_the_snapshots_that_are_sent_whole() {
    let rules = [Rule::K(3), Rule::Distinct(0, 2)];
    for (recoding, deleted) in RECODINGS.into_iter().flat_map(|recoding| [(recoding, 0), (recoding, 40)]) {
        let table = town(2400, 400, 3);
        let policy = recoded(&table, &rules, recoding);
        let window = |changes| SlideRules { changes, ..by_records(300, 20) };
        // Where levels may move, they move by the search, which is asked less often for changes.
        let levels = Levels::Fixed(None);
        let [whole, changes] =
            [false, true].map(|changes| releases(&table, &policy, window(changes), &levels, deleted));
        assert_eq!(whole.len(), changes.len());
        let (mut twin, mut reader) = (Reader::default(), Reader::default());
        for (whole, changes) in whole.iter().zip(&changes) {
            twin.read(whole);
            reader.read(changes);
            assert!(reader.rows == twin.rows, "{recoding:?}: other rows than the whole snapshot has");
            let outcomes = |release: &Release| release.lineage().finished.clone();
            assert_eq!(outcomes(whole), outcomes(changes), "{recoding:?}");
        }
        let rows: usize = whole.iter().map(Release::len).sum();
        println!(
            "{recoding:?}: {} of {} releases are changes, {} rows for {rows}",
            reader.changes,
            changes.len(),
            reader.sent
        );
        assert!(reader.changes > changes.len() * 3 / 4, "{recoding:?}: {} of {}", reader.changes, changes.len());
        assert!(reader.sent < rows / 4, "{recoding:?}: {} rows of changes, {rows} of whole snapshots", reader.sent);
    }
}

#[test]
fn the_rows_that_come_and_those_that_leave_satisfy_the_policy_by_themselves() {
    let rules = [Rule::K(3), Rule::Distinct(0, 2)];
    for (recoding, levels) in RECODINGS.into_iter().flat_map(|r| [(r, Levels::Sticky), (r, Levels::Free)]) {
        let table = town(2400, 400, 4);
        let policy = recoded(&table, &rules, recoding);
        let all = releases(&table, &policy, SlideRules { changes: true, ..by_records(300, 20) }, &levels, 0);
        let (mut reader, mut counted, mut after_a_move) = (Reader::default(), 0, 0);
        for release in &all {
            let first = reader.rows.is_empty();
            reader.read(release);
            let mut classes: BTreeMap<Vec<String>, (BTreeSet<u16>, BTreeSet<u8>)> = BTreeMap::new();
            for (labels, values) in texts(release) {
                let line = &table.lines[values[1].trim_matches('"').parse::<usize>().unwrap()];
                let class = classes.entry(labels).or_default();
                class.0.insert(line.subject);
                class.1.insert(line.sensitive[0]);
            }
            assert!(classes.values().all(|(people, values)| people.len() >= 3 && values.len() >= 2));
            counted += classes.len();
            let kind = release.manifest().provenance.snapshot.as_ref().map(|snapshot| snapshot.kind.as_str());
            after_a_move += usize::from(!first && kind == Some("whole"));
        }
        println!("{recoding:?}, {levels:?}: {counted} classes, {after_a_move} whole snapshots on the way");
        assert!(counted > 100 && reader.changes > 60, "{recoding:?}: {} of {}", reader.changes, all.len());
    }
}

#[test]
fn a_planned_snapshot_and_planned_changes_are_made_again_byte_for_byte() {
    let rules = [Rule::K(3), Rule::Distinct(0, 2)];
    for (recoding, changes) in RECODINGS.into_iter().flat_map(|recoding| [(recoding, false), (recoding, true)]) {
        let table = town(1500, 300, 5);
        let policy = recoded(&table, &rules, recoding);
        let window = SlideRules { changes, ..by_records(300, 20) };
        let all = releases(&table, &policy, window, &Levels::Sticky, 0);
        let mut again = 0;
        for release in all.iter().filter(|release| !release.is_empty()).step_by(3) {
            let repeated = repeated(&table, &policy, &release.lineage().plan);
            assert!(texts(&repeated) == texts(release), "{recoding:?}, changes {changes}: other bytes");
            let said = |release: &Release| {
                let from = &release.manifest().provenance;
                (from.release_id.clone(), from.snapshot.clone(), from.schedule.as_ref().map(|named| named.id.clone()))
            };
            assert_eq!(said(&repeated), said(release));
            assert_eq!(repeated.lineage().finished, release.lineage().finished);
            again += 1;
        }
        assert!(again > 10);
    }
}

/// A planned release by an instance that has read nothing but the records that the plan names, in another order.
fn repeated(table: &Table, policy: &Arc<Policy>, plan: &ReleasePlan) -> Release {
    let mut encoder = Encoder::new(Arc::clone(policy));
    let counting = Arc::new(Rules::new(policy).counting());
    let mut window = OpenWindow::new(WindowId(0), Millis(NOW), &encoder, counting).unwrap();
    let shown = plan.shown.as_ref().unwrap();
    let mut lines: Vec<usize> = (0..table.lines.len()).collect();
    lines.sort_by_key(|line| line * 7919 % 1009);
    for line in lines {
        let position = Position::new(0, line as i64);
        if plan.is_read(position) || shown.contains(position) {
            let mut record = table.record(&table.lines[line]);
            record.values.push(Value::Text(line.to_string().into()));
            assert_eq!(encoder.encode(&record, None), Encoded::Row);
            window.add(&encoder, position, Millis(NOW), Encoded::Row);
        }
    }
    let mut window = window.close(Millis(NOW), CloseReason::Replayed, &encoder).unwrap();
    let (plan, held) = (plan.clone(), window.rows.filtered(|_| false));
    window.kind = WindowKind::Replay(Box::new(Replayed { plan, held }));
    *released(anonymizer(policy, &Levels::Sticky).release(window).expect("narrow enough"))
}

/// The snapshots that a reader of an output has, release by release: each row with how often it is there.
fn snapshots(desk: &Desk, name: &str) -> Vec<BTreeMap<(String, String), usize>> {
    let rows: Vec<serde_json::Value> = match name.ends_with(".csv") {
        true => ::csv::Reader::from_reader(desk.read(name).as_bytes())
            .deserialize::<BTreeMap<String, String>>()
            .map(|row| serde_json::to_value(row.unwrap()).unwrap())
            .collect(),
        false => desk.read(name).lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
    };
    let text = |row: &serde_json::Value, field: &str| row[field].as_str().map(str::to_owned);
    let (mut rows, mut snapshot) = (rows.iter(), BTreeMap::new());
    let mut snapshots = Vec::new();
    for manifest in desk.read(&format!("{name}.manifest")).lines() {
        let manifest: serde_json::Value = serde_json::from_str(manifest).unwrap();
        let sent: Vec<_> = rows.by_ref().take(manifest["rows"].as_u64().unwrap() as usize).collect();
        if manifest["snapshot"]["kind"] != "changes" {
            snapshot.clear();
        }
        for row in sent {
            let count = snapshot.entry((text(row, "age").unwrap(), text(row, "job").unwrap())).or_insert(0usize);
            *count = if text(row, "change").as_deref() == Some("-") { *count - 1 } else { *count + 1 };
        }
        snapshot.retain(|_, count| *count > 0);
        snapshots.push(snapshot.clone());
    }
    assert!(rows.next().is_none());
    snapshots
}

#[test]
fn a_file_of_changes_gives_the_snapshots_and_passes_verify() {
    let desk = Desk::new();
    desk.write("in.jsonl", jsonl(&people(2000)));
    for (name, publish) in [("whole.csv", "snapshots"), ("changes.csv", "changes"), ("changes.jsonl", "changes")] {
        let window = format!("window: {{ levels: fixed, sliding: {{ size: 500, slide: 50, publish: {publish} }} }}\n");
        let sink = format!("sink: {{ file: {{ path: {name}, manifest: {name}.manifest }} }}\n");
        let source = "source: { file: { path: in.jsonl } }\n";
        desk.write(&format!("{name}.yaml"), program::policy(&format!("{window}{source}{sink}")));
        desk.run(&["run", "-c", &format!("{name}.yaml")]).expect(0);
        desk.run(&["verify", "-c", &format!("{name}.yaml"), name]).expect(0);
    }
    let whole = snapshots(&desk, "whole.csv");
    assert!(whole.len() > 30);
    assert_eq!(snapshots(&desk, "changes.csv"), whole);
    assert_eq!(snapshots(&desk, "changes.jsonl"), whole);
    let rows = |name: &str| desk.read(name).lines().count();
    assert!(rows("changes.csv") < rows("whole.csv") / 2, "{} and {}", rows("changes.csv"), rows("whole.csv"));
}
