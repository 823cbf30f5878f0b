//! Sliding windows: what a reader learns who subtracts one snapshot from the next, what becomes of every record, and that
//! the counts of a window that moves on are those of its rows.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "common/slides.rs"]
mod slides;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use common::{Books, Rule, Table, cases, counts_its_rows, flat};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use slides::{NOW, Reader, Seen, Stream, by_records, by_time, choice, policy, released, town};
use veilstream::anonymizer::Anonymizer;
use veilstream::gate::verify_next;
use veilstream::generalize::{GeneralizedBatch, RowRef};
use veilstream::model::event::{Millis, Position};
use veilstream::model::lattice::Node;
use veilstream::model::policy::{Loss, Policy, RecodingKind};
use veilstream::model::recoding::Recoding;
use veilstream::model::record::Value;
use veilstream::privacy::Rules;
use veilstream::search::Algorithm;
use veilstream::search::choose::{Choice, Levels};
use veilstream::window::{CloseReason, ClosedWindow, SlideRules, WindowKind, Windows};

/// What an attack has found: groups of people that break a rule.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// Of those who are in all of the snapshots.
    stayed: usize,
    /// Of those who are in some of them only.
    others: usize,
}

/// Groups records that a reader cannot tell apart, who knows in which of the snapshots a person is.
fn told_apart<K: Ord>(lines: &Table, of: &[&Seen], rules: &[Rule], key: impl Fn(usize) -> K, found: &mut Found) {
    let top = Recoding::from(Node::new(lines.attributes.iter().map(common::Attribute::height)));
    let mut groups: BTreeMap<(Vec<bool>, K), Vec<usize>> = BTreeMap::new();
    for line in of.iter().flat_map(|seen| seen.rows.keys().copied()).collect::<BTreeSet<usize>>() {
        let pattern = of.iter().map(|seen| seen.rows.contains_key(&line)).collect();
        groups.entry((pattern, key(line))).or_default().push(line);
    }
    for ((pattern, _), group) in groups {
        let class = lines.count(group, &top).into_values().next().expect("somebody");
        if !rules.iter().all(|rule| rule.holds(&class)) {
            *(if pattern.contains(&false) { &mut found.others } else { &mut found.stayed }) += 1;
        }
    }
}

/// The attack: puts any two, any three and all of the snapshots side by side, those that have nobody in common aside, and
/// looks for groups that break a rule; among records with the same labels in all of them, and among records that are alike
/// at the join of their levels. What was found in twos, in threes and in all.
fn attack(lines: &Table, snapshots: &[Seen], rules: &[Rule]) -> [Found; 3] {
    let meets = |a: &Seen, b: &Seen| a.rows.keys().any(|row| b.rows.contains_key(row));
    let after = |i: usize| (i + 1..snapshots.len()).take_while(move |&j| meets(&snapshots[i], &snapshots[j]));
    let mut found: [Found; 3] = Default::default();
    let mut look = |of: &[&Seen]| {
        let found = &mut found[of.len().min(4) - 2];
        let labels = |line: usize| of.iter().map(|seen| seen.rows.get(&line)).collect::<Vec<_>>();
        told_apart(lines, of, rules, labels, found);
        let level = |attribute: usize| of.iter().map(|seen| seen.levels[attribute]).max().unwrap_or_default();
        let join = Recoding::from(Node::new((0..lines.attributes.len()).map(level)));
        told_apart(lines, of, rules, |line| lines.labels(line, &join), found);
    };
    for i in 0..snapshots.len() {
        for j in after(i) {
            look(&[&snapshots[i], &snapshots[j]]);
            after(j).for_each(|l| look(&[&snapshots[i], &snapshots[j], &snapshots[l]]));
        }
    }
    if snapshots.len() > 3 {
        look(&snapshots.iter().collect::<Vec<_>>());
    }
    found
}

/// Sends every line through a sliding window. `checked`: each snapshot knows of the last one; if not, it is made as if it
/// were the first, after the same levels.
fn snapshots(table: &Table, rules: &[Rule], window: &SlideRules, levels: &Levels, checked: bool) -> Vec<Seen> {
    snapshots_of(table, &policy(table, rules, 0.2), window, levels, checked)
}

fn snapshots_of(table: &Table, policy: &Arc<Policy>, window: &SlideRules, levels: &Levels, checked: bool) -> Vec<Seen> {
    let mut stream = Stream::new(table, policy, window.clone());
    let fresh = || Anonymizer::new(Arc::clone(policy), choice(levels.clone()), "test", 5);
    let mut anonymizer = fresh();
    let (mut reader, mut snapshots): (Reader, Vec<Seen>) = Default::default();
    for line in &table.lines {
        let Some(window) = stream.add(line, NOW) else { continue };
        if !checked {
            anonymizer = fresh();
            let last = snapshots.last().filter(|_| policy.recoding == RecodingKind::FullDomain);
            anonymizer.reset(None, last.map(|last| last.levels.as_slice()));
        }
        let release = released(anonymizer.release(window).expect("narrow enough"));
        snapshots.extend(reader.seen(&release, 1));
        // As the service does while a release is on its way.
        anonymizer.learn();
    }
    snapshots
}

#[test]
fn subtracting_snapshots_finds_people_without_the_check_and_none_with_it() {
    let rules = [Rule::K(3), Rule::Distinct(0, 2)];
    let window = by_records(300, 60);
    for (seed, levels) in (0..).zip([Levels::Free, Levels::Sticky, Levels::Monotone, Levels::Fixed(None)]) {
        let table = town(2400, 400, seed);
        let safe = snapshots(&table, &rules, &window, &levels, true);
        assert_eq!(attack(&table, &safe, &rules), <[Found; 3]>::default(), "{levels:?}");
        // Not for want of snapshots, of rows in them, or of levels that move where they may.
        assert_eq!(safe.len(), 40, "{levels:?}");
        let rows: usize = safe.iter().map(|seen| seen.rows.len()).sum();
        let published: BTreeSet<usize> = safe.iter().flat_map(|seen| seen.rows.keys().copied()).collect();
        let moves = safe.windows(2).filter(|pair| pair[0].levels != pair[1].levels).count();
        let glm = safe.iter().map(|seen| seen.glm).sum::<f64>() / safe.len() as f64;
        println!("{levels:?}: {rows} rows, {} published, {moves} moves, mean loss {glm:.3}", published.len());
        assert!(rows > 9_600 && published.len() > 2_300, "{levels:?}: {rows} rows of {}", published.len());
        assert_eq!(moves > 0, matches!(levels, Levels::Free | Levels::Sticky), "{levels:?}: {moves} moves");
        let without = attack(&table, &snapshots(&table, &rules, &window, &levels, false), &rules);
        assert!(without.iter().all(|found| found.others > 50), "{levels:?}: the attack finds only {without:?}");
    }
}

#[test]
fn subtracting_local_snapshots_finds_people_without_the_check_and_none_with_it() {
    let rules = [Rule::K(3), Rule::Distinct(0, 2)];
    let window = by_records(300, 60);
    for (seed, levels) in (0..).zip([Levels::Fixed(None), Levels::Sticky, Levels::Free, Levels::Monotone]) {
        let table = town(2400, 400, seed);
        let node = policy(&table, &rules, 0.2);
        let local = Arc::new(Policy { recoding: RecodingKind::Local, ..(*node).clone() });
        // Newcomers wait for longer where slides are small.
        let slides = if levels == Levels::Sticky { vec![60, 30] } else { vec![60] };
        for slide in slides {
            let safe = snapshots_of(&table, &local, &by_records(300, slide), &levels, true);
            assert_eq!(attack(&table, &safe, &rules), <[Found; 3]>::default(), "{levels:?}");
            assert_eq!(safe.len(), 2400 / slide);
            // A record has the same labels for as long as it stays.
            for pair in safe.windows(2) {
                let both = pair[0].rows.iter().filter_map(|(row, labels)| Some((labels, pair[1].rows.get(row)?)));
                assert!(both.clone().count() > 0);
                assert!(both.into_iter().all(|(before, after)| before == after));
            }
            let published: BTreeSet<usize> = safe.iter().flat_map(|seen| seen.rows.keys().copied()).collect();
            assert!(published.len() > 2_300, "{} published", published.len());
        }
        let without = attack(&table, &snapshots_of(&table, &local, &window, &levels, false), &rules);
        assert!(without.iter().all(|found| found.others > 50), "the attack finds only {without:?}");
    }
}

/// What the records of full windows lose on average, from the labels; who waits loses everything.
fn loss_with_waiting(table: &Table, snapshots: &[Seen], size: usize, slide: usize) -> f64 {
    let leaves_below = |attribute: usize| {
        let mut below: BTreeMap<&str, usize> = BTreeMap::new();
        for path in &table.attributes[attribute].paths {
            path.iter().collect::<BTreeSet<_>>().into_iter().for_each(|label| *below.entry(label).or_default() += 1);
        }
        below
    };
    let below: Vec<BTreeMap<&str, usize>> = (0..table.attributes.len()).map(leaves_below).collect();
    let lost = |labels: &Vec<String>| {
        let cell = |(label, below): (&String, &BTreeMap<&str, usize>)| {
            (below[label.as_str()] - 1) as f64 / (below["*"] - 1) as f64
        };
        labels.iter().zip(&below).map(cell).sum::<f64>() / below.len() as f64
    };
    let (mut sum, mut count) = (0.0, 0);
    for (end, seen) in (1..).map(|at| at * slide).zip(snapshots).filter(|(end, _)| *end >= size) {
        sum += (end - size..end).map(|line| seen.rows.get(&line).map_or(1.0, lost)).sum::<f64>();
        count += size;
    }
    sum / f64::from(count as u32)
}

#[test]
fn local_snapshots_lose_less_than_full_domain_at_every_slide() {
    const SIZE: usize = 1000;
    let mut table = town(4000, 4000, 1);
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for (attribute, (leaves, group)) in table.attributes.iter_mut().zip([(40, 5), (32, 4)]) {
        attribute.paths =
            (0..leaves).map(|leaf| vec![format!("v{leaf}"), format!("g{}", leaf / group), "*".to_string()]).collect();
    }
    for (number, line) in table.lines.iter_mut().enumerate() {
        let mut leaf = |leaves: usize| (0..3).map(|_| rng.random_range(0..leaves)).min().unwrap();
        (line.leaves, line.subject) = (vec![leaf(40), leaf(32)], number as u16);
    }
    let node = policy(&table, &[Rule::K(5)], 0.05);
    let local = Arc::new(Policy { recoding: RecodingKind::Local, ..(*node).clone() });
    // Few newcomers share fine labels, so small slides are where waiting matters most.
    for slide in [50, 10, 5, 2].map(|part| SIZE / part) {
        let of = |policy: &Arc<Policy>| {
            let snapshots = snapshots_of(&table, policy, &by_records(SIZE, slide), &Levels::Sticky, true);
            assert_eq!(snapshots.len(), 4000 / slide);
            loss_with_waiting(&table, &snapshots, SIZE, slide)
        };
        let (full_domain, local) = (of(&node), of(&local));
        println!("slides of {slide} in {SIZE}: local {local:.3}, full-domain {full_domain:.3}");
        assert!(local < full_domain, "slides of {slide}: {local} and {full_domain}");
    }
}

#[test]
fn nobody_stays_in_snapshots_for_longer_than_max_hold() {
    let table = town(3000, 400, 9);
    let window = SlideRules { max_hold: 2, ..by_records(300, 60) };
    let all = snapshots(&table, &[Rule::K(5)], &window, &Levels::Sticky, true);
    assert!(all.len() >= 30, "{} snapshots", all.len());
    for pair in all.windows(2) {
        let newest = *pair[1].rows.last_key_value().expect("not empty").0;
        // The window ends at most a slide behind its newest row.
        let oldest = (newest + 1).saturating_sub(300 + 60 * (2 + 1));
        assert!(pair[1].rows.keys().all(|&row| row >= oldest), "{oldest} {:?}", pair[1].rows.first_key_value());
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
        recoding in prop::sample::select(vec![RecodingKind::FullDomain, RecodingKind::Subtree, RecodingKind::Local]),
        changes in any::<bool>(),
    ) {
        let policy = Arc::new(Policy { recoding, ..(*policy(&table, &rules, limit)).clone() });
        let cuts = recoding == RecodingKind::Subtree;
        let algorithm = if cuts { Algorithm::SubtreeBottomUp } else { Algorithm::Optimal };
        let window = match time {
            None => by_records(size, size.div_ceil(share)),
            Some((slide, times)) => by_time(slide * times, slide, size),
        };
        let window = SlideRules { changes, ..window };
        let mut stream = Stream::new(&table, &policy, window);
        let mut anonymizer = Anonymizer::new(Arc::clone(&policy), Choice { algorithm, ..choice(levels) }, "test", 5);
        let (mut books, mut snapshots, mut now) = (Books::default(), Vec::new(), NOW);
        let (mut windows, mut reader) = (Vec::new(), Reader::default());
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
            counts_its_rows(&window);
            let release = released(anonymizer.release(window).expect("narrow enough"));
            prop_assert!(release.manifest().provenance.offsets.is_empty(), "single records come and go");
            books.enter(&release, anonymizer.waiting());
            let seen = reader.seen(&release, table.sensitive);
            prop_assert!(seen.iter().all(|seen| seen.rows.keys().all(|row| !gone.contains(row))), "somebody deleted is shown");
            snapshots.extend(seen);
        }
        prop_assert_eq!(attack(&table, &snapshots, &rules), <[Found; 3]>::default());
        prop_assert_eq!(anonymizer.waiting(), 0);
        prop_assert_eq!(books.finished, (0..stream.next).map(|offset| Position::new(0, offset)).collect::<BTreeSet<_>>());
        let shown: BTreeSet<usize> = snapshots.iter().flat_map(|seen| seen.rows.keys().copied()).collect();
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
        let (_, last) = verify_next(batch(&table, before.0, before.1), &rules, None).expect("good in itself");
        verify_next(batch(&table, now.0, now.1), &rules, Some(&last))
    };
    let refused = |before: (&[u32], u8), now: (&[u32], u8)| {
        let refusal = after(before, now).expect_err("too few left or came");
        assert!(refusal.difference, "{refusal}");
        assert!(refusal.to_string().ends_with("of every group that can be told apart beside the earlier snapshots"));
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
    // Two came, of two leaves: seen apart where this snapshot tells them apart, and together where it does not.
    assert_eq!(refused((&[0, 1, 6, 7], 0), (&[0, 1, 2, 6, 7, 8], 0)), 1);
    assert_eq!(refused((&[0, 1, 6, 7], 1), (&[0, 1, 2, 6, 7, 8], 0)), 1);
    assert!(after((&[0, 1, 6, 7], 0), (&[0, 1, 2, 6, 7, 8], 1)).is_ok());
    // Who stays is not told apart by finer labels either: of those in both, one alone is a b.
    assert!(after((&[0, 1, 6, 7], 1), (&[0, 1, 6, 7], 0)).is_ok());
    assert_eq!(refused((&[0, 1, 6], 1), (&[0, 1, 6, 7, 8], 0)), 1);
    // Three in a row: two by two enough leave and come, but of the first two one leaves alone. And who left does not return.
    let third = |second: &[u32], third: &[u32]| {
        let (_, first) = verify_next(batch(&table, &[0, 1], 0), &rules, None).expect("good in itself");
        let (_, second) = verify_next(batch(&table, second, 0), &rules, Some(&first)).expect("two came");
        verify_next(batch(&table, third, 0), &rules, Some(&second)).map(drop).map_err(|refusal| refusal.to_string())
    };
    assert!(third(&[0, 1, 2, 3], &[1, 3]).expect_err("one of two left").starts_with("k-anonymity"));
    assert_eq!(third(&[0, 1, 2, 3], &[2, 3]), Ok(()));
    assert!(third(&[2, 3], &[0, 1, 2, 3]).expect_err("two return").starts_with("no record returns"));
    // Nothing that nobody sees.
    assert!(after((&[0, 1, 2], 0), (&[], 0)).is_ok());
}

#[test]
fn slides_by_time_and_when_it_is_full() {
    let table = flat(&["a", "b"], &[(0, 0, 0)], false);
    let policy = policy(&table, &[Rule::K(2)], 0.2);
    let mut stream = Stream::new(&table, &policy, by_time(1000, 250, 8));
    let line = table.lines[0].clone();
    let rows = |window: &ClosedWindow| window.rows.positions().map(|p| p.offset.0).collect::<Vec<_>>();
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
    let WindowKind::Slide(slide) = window.kind else { panic!("not a sliding window") };
    assert_eq!(slide.left, [Position::new(0, 0)]);
    // The clock is set back by an hour: they do not stay an hour longer.
    assert!(stream.due(NOW - 3_600_000).is_none());
    let window = stream.due(NOW - 3_600_000 + 1000).expect("moves on");
    assert_eq!(rows(&window), [0i64; 0]);
    assert!(stream.window.is_empty() && stream.window.next_due().is_none());
    assert!(stream.drain(NOW).is_none());
}
