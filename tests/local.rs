//! Local and subtree recoding through the public interface: their promises on random tables and policies, each counted again from the texts of the
//! published rows, and the attacks of a reader who knows the schedule and the hierarchies (T31), or joins releases about returning
//! people (T2, T3). Rates that are not zero are printed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;
#[path = "common/naive.rs"]
mod naive;
#[path = "common/refine.rs"]
mod refine;
#[path = "common/stream.rs"]
mod stream;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use common::fixture::{choice, released};
use common::{Attribute, Line, Rule, Table, flat, hold, instances, numbered, rules, tables};
use naive::{Member, satisfies};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use refine::{Narrowed, refine, skewed, steps};
use stream::{Row, crossing, intersecting_finds_nobody_with_sequential, joined, policy, releases, sequential, town};
use veilstream::anonymizer::Anonymizer;
use veilstream::encode::{Dictionaries, Encoded, Encoder};
use veilstream::gate::Release;
use veilstream::model::batch::Rows;
use veilstream::model::confidential::{Field, Formula, Sentence};
use veilstream::model::event::{Millis, Position};
use veilstream::model::policy::{
    Criterion, Distance, Fallback, K, Loss, Policy, RecodingKind, Sequential, SuppressionAction, SuppressionLimit,
};
use veilstream::model::record::Value;
use veilstream::model::release::plan::ReleasePlan;
use veilstream::model::schedule::Schedule;
use veilstream::privacy::Rules;
use veilstream::search::Algorithm;
use veilstream::search::choose::Levels;
use veilstream::telemetry::Telemetry;
use veilstream::usefulness::usefulness;
use veilstream::window::{CloseReason, OpenWindow, Replayed, WindowId, WindowKind};

/// A table, its policy and the number of windows that it is read in.
#[derive(Debug, Clone)]
struct Case {
    table: Table,
    policy: Arc<Policy>,
    levels: Levels,
    windows: usize,
    /// Lines with this remainder modulo 16 have a value outside the first hierarchy.
    unknown: usize,
}

/// A criterion beyond k and l-diversity, by dice.
fn criterion(sensitive: usize, kind: u8, dice: usize) -> Criterion {
    let field = dice % sensitive;
    let pick = |values: [f64; 3]| values[dice / 2 % 3];
    match kind % 7 {
        0 => Criterion::TCloseness { field, t: pick([0.3, 0.5, 0.8]), distance: Distance::Equal },
        1 => Criterion::PSensitive { field, p: 2 + dice as u32 % 2 },
        2 => Criterion::AlphaK { field, alpha: pick([0.5, 0.7, 0.9]), k: K(2 + dice as u32 % 3) },
        3 => {
            let k = K(2 + dice as u32 % 4);
            Criterion::Lkc { l: 1 + dice % 2, k, c: pick([0.6, 0.8, 1.0]), fields: vec![field] }
        }
        4 => {
            let k = Criterion::KAnonymity(K(3 + dice as u32 % 4));
            Criterion::Over { known: vec![0], criterion: Box::new(k) }
        }
        _ => {
            let says = |value: &str| Formula::In(Field::Sensitive(field), vec![value.to_owned()]);
            let when = (dice.is_multiple_of(2)).then(|| Formula::Not(Box::new(says("v1"))));
            Criterion::Confidential(vec![Sentence {
                name: "s".into(),
                says: says("v0"),
                when,
                damage: 1.0,
                prior: None,
            }])
        }
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let limit = prop_oneof![Just(0.0), Just(0.05), Just(0.3)];
    let action = prop_oneof![Just(SuppressionAction::Drop), Just(hold(Duration::from_secs(2)))];
    let more = prop::collection::vec((any::<u8>(), 0usize..60), 0..3);
    let levels = prop_oneof![Just(Levels::Free), Just(Levels::Sticky), Just(Levels::Fixed(None))];
    let loss = prop_oneof![Just(Loss::Glm), Just(Loss::Precision)];
    let settings = (limit, action, more, levels, loss, any::<bool>(), 1usize..5, 0usize..32);
    (tables(1..=4, 160), settings).prop_flat_map(|(table, settings)| {
        (rules(table.sensitive), Just(table), Just(settings)).prop_map(|(rules, table, settings)| {
            let (limit, action, more, levels, loss, sequential, windows, unknown) = settings;
            let base = table.policy_with(&rules, limit, loss, action);
            let mut policy = (*base).clone();
            if table.sensitive > 0 {
                policy.criteria.extend(more.iter().map(|&(kind, dice)| criterion(table.sensitive, kind, dice)));
            }
            let asked = sequential && table.with_subject && table.sensitive > 0;
            let sequential = Sequential { releases: 3, candidates: 2, field: 0, max_subjects: 1000 };
            policy.sequential = asked.then_some(sequential);
            policy.recoding = RecodingKind::Local;
            policy.unknown_value = Fallback::Suppress;
            Case { table, policy: Arc::new(numbered(&policy)), levels, windows, unknown }
        })
    })
}

/// An anonymizer and what it reads with.
struct Engine<'c> {
    case: &'c Case,
    encoder: Encoder,
    anonymizer: Anonymizer,
    /// Those of the last release.
    dictionaries: Option<Dictionaries>,
}

fn position(line: usize) -> Position {
    Position::new((line % 3) as u32, (line / 3) as i64)
}

impl<'c> Engine<'c> {
    fn new(case: &'c Case) -> Self {
        let algorithm = match case.policy.recoding {
            RecodingKind::Subtree => Algorithm::SubtreeBottomUp,
            RecodingKind::FullDomain | RecodingKind::Local => Algorithm::Optimal,
        };
        let choice = choice(algorithm, case.levels.clone());
        let policy = Arc::clone(&case.policy);
        Self {
            case,
            encoder: Encoder::new(Arc::clone(&policy)),
            anonymizer: Anonymizer::new(policy, choice, "test", 5),
            dictionaries: None,
        }
    }

    fn encode(&mut self, line: usize) -> Encoded {
        let mut record = self.case.table.record(&self.case.table.lines[line]);
        record.values.push(Value::Text(line.to_string().into()));
        if line % 16 == self.case.unknown {
            record.values[0] = Value::Text("nowhere".into());
        }
        self.encoder.encode(&record, None)
    }

    /// The release of these lines, or of those of a plan.
    fn release(&mut self, lines: &[usize], now: i64, plan: Option<ReleasePlan>) -> Release {
        let counting = Arc::new(Rules::new(&self.case.policy).counting());
        let mut window = OpenWindow::new(WindowId(0), Millis(now), &self.encoder, counting).unwrap();
        let mut held = Rows::new(self.case.table.attributes.len(), self.case.table.sensitive);
        for &line in lines {
            let encoded = self.encode(line);
            match &plan {
                Some(plan) if plan.held.contains(position(line)) => {
                    assert_eq!(encoded, Encoded::Row);
                    held.push(position(line), Millis(now), self.encoder.row());
                }
                Some(plan) if !plan.fresh.contains(position(line)) => {}
                _ => window.add(&self.encoder, position(line), Millis(now), encoded),
            }
        }
        let mut window = window.close(Millis(now), CloseReason::Full, &self.encoder).unwrap();
        self.dictionaries = Some(window.dictionaries.clone());
        if let Some(plan) = plan {
            window.kind = WindowKind::Replay(Box::new(Replayed { plan, held }));
        }
        *released(self.anonymizer.release(window).unwrap())
    }
}

/// The rows of a release as they are written: labels, and the values with the number of the line at the end.
fn texts(release: &Release) -> Vec<(Vec<String>, Vec<String>)> {
    let mut rows = Vec::new();
    let owned = |cells: &[&str]| cells.iter().map(ToString::to_string).collect::<Vec<String>>();
    let read: Result<(), ()> = release.rows(|quasi, values| {
        rows.push((owned(quasi), owned(values)));
        Ok(())
    });
    assert!(read.is_ok());
    rows
}

fn line(values: &[String]) -> usize {
    values.last().unwrap().trim_matches('"').parse().expect("its number")
}

/// The published rows as members of classes, for counting.
fn members(table: &Table, rows: &[(Vec<String>, Vec<String>)]) -> Vec<Member> {
    let member = |(labels, values): &(Vec<String>, Vec<String>)| {
        let (number, own) = (line(values), &table.lines[line(values)]);
        let who = if table.with_subject { u64::from(own.subject) } else { number as u64 };
        Member { labels: labels.clone(), who, sensitive: own.sensitive[..table.sensitive].to_vec(), kept: None }
    };
    rows.iter().map(member).collect()
}

/// True if all of the lines together, at the coarsest node, satisfy the policy.
fn coarsest_satisfies(case: &Case, lines: std::ops::Range<usize>) -> bool {
    let label = |line: &Line| {
        let of =
            |(attribute, &leaf): (&Attribute, &usize)| attribute.paths[leaf][usize::from(attribute.max_level)].clone();
        case.table.attributes.iter().zip(&line.leaves).map(of).collect::<Vec<String>>()
    };
    let rows: Vec<_> = lines
        .filter(|line| line % 16 != case.unknown)
        .map(|line| (label(&case.table.lines[line]), vec![line.to_string()]))
        .collect();
    let members = members(&case.table, &rows);
    // Every class by itself must reach what is asked of everybody who looks alike in some attributes.
    let by_class = |criterion: &Criterion| match criterion {
        Criterion::Over { criterion, .. } => satisfies(criterion, &members, &[]),
        criterion => satisfies(criterion, &members, &[]),
    };
    !members.is_empty() && case.policy.criteria.iter().all(by_class)
}

fn check(case: &Case, seed: u64) -> Result<(), TestCaseError> {
    let table = &case.table;
    let (mut engine, mut twin) = (Engine::new(case), Engine::new(case));
    let size = table.lines.len().div_ceil(case.windows);
    let (mut published, mut suppressed, mut once, mut named) = (0, 0, BTreeSet::new(), None);
    for (window, start) in (0..table.lines.len()).step_by(size).enumerate() {
        let lines: Vec<usize> = (start..(start + size).min(table.lines.len())).collect();
        let now = window as i64 * 1000;
        let release = engine.release(&lines, now, None);
        let rows = texts(&release);
        // The same input and seed give the same rows.
        prop_assert_eq!(&rows, &texts(&twin.release(&lines, now, None)));
        engine.anonymizer.learn();
        twin.anonymizer.learn();
        let mut of_tuple: BTreeMap<&[usize], &[String]> = BTreeMap::new();
        for (labels, values) in &rows {
            let number = line(values);
            prop_assert!(once.insert(number), "published twice");
            let leaves = &table.lines[number].leaves;
            // Each label is an ancestor of its raw value, at a permitted level.
            for ((label, &leaf), attribute) in labels.iter().zip(leaves).zip(&table.attributes) {
                let permitted = usize::from(attribute.min_level)..=usize::from(attribute.max_level);
                prop_assert!(attribute.paths[leaf][permitted].contains(label));
            }
            prop_assert_eq!(*of_tuple.entry(leaves).or_insert(labels), labels, "identical tuples are separated");
        }
        let members = members(table, &rows);
        for criterion in &case.policy.criteria {
            prop_assert!(satisfies(criterion, &members, &[]), "{criterion:?} fails in window {window}");
        }
        let provenance = &release.manifest().provenance;
        prop_assert_eq!(provenance.records_published, rows.len() as u64);
        prop_assert_eq!(provenance.records_rejected, 0);
        published += provenance.records_published;
        suppressed += provenance.records_suppressed;
        let (read, waiting) = (lines[lines.len() - 1] as u64 + 1, engine.anonymizer.waiting() as u64);
        prop_assert_eq!(published + suppressed + waiting, read, "the counts do not add up");
        let unlimited = case.unknown >= 16 && case.policy.sequential.is_none();
        if window == 0 && unlimited && coarsest_satisfies(case, 0..size.min(table.lines.len())) {
            prop_assert!(!rows.is_empty(), "nothing is published although the coarsest node satisfies the policy");
        }
        if rows.is_empty() {
            continue;
        }
        // Steps that one window has to skip are tried again in the next.
        let schedule = provenance.schedule.as_ref().map(|schedule| schedule.id.clone());
        if case.levels == Levels::Fixed(None) {
            prop_assert_eq!(named.get_or_insert_with(|| schedule.clone()), &schedule, "a fixed schedule moves");
        }
        // A replay reads the records in any order, with new dictionaries, and gives the same rows.
        let mut order: Vec<usize> = (0..table.lines.len()).collect();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        (1..order.len()).for_each(|i| order.swap(i, rng.random_range(0..=i)));
        let replayed = Engine::new(case).release(&order, now, Some(release.lineage().plan.clone()));
        prop_assert_eq!(&rows, &texts(&replayed), "a replay gives other rows");
        prop_assert_eq!(&release.lineage().plan.levels, &replayed.lineage().plan.levels);
    }
    Ok(())
}

proptest! {
    #![proptest_config(instances(400))]

    #[test]
    fn local_releases_keep_their_promises(case in cases(), seed in any::<u64>()) {
        check(&case, seed)?;
    }

    #[test]
    fn subtree_releases_keep_their_promises(mut case in cases(), seed in any::<u64>()) {
        case.policy = Arc::new(Policy { recoding: RecodingKind::Subtree, ..(*case.policy).clone() });
        check(&case, seed)?;
    }
}

/// Two windows under a policy by which one half of a class at most may have the same illness, nearly. In the second one all people
/// of the second value have the same one, and only all three values together make up for them: its release starts at the last step.
fn one_sided() -> Case {
    let even = (0..60).map(|i| (i % 3, u8::from(i / 3 % 2 == 0)));
    let beside = (0..40).map(|i| (i % 2 * 2, u8::from(i / 2 % 2 == 0)));
    let lines = even.chain(beside).chain([(1, 0); 6]).zip(0..).map(|((leaf, illness), who)| (leaf, illness, who));
    let table = flat(&["a", "b", "c"], &lines.collect::<Vec<_>>(), false);
    let base = table.policy_with(&[Rule::K(2)], 0.0, Loss::Glm, SuppressionAction::Drop);
    let criteria = vec![Criterion::AlphaK { field: 0, alpha: 0.6, k: K(2) }];
    let policy = Policy { criteria, recoding: RecodingKind::Local, ..numbered(&base) };
    Case { table, policy: Arc::new(policy), levels: Levels::Sticky, windows: 2, unknown: 16 }
}

fn released_from_the_last_step(case: &Case) -> Release {
    let mut engine = Engine::new(case);
    engine.release(&(0..60).collect::<Vec<usize>>(), 0, None);
    engine.release(&(60..106).collect::<Vec<usize>>(), 1000, None)
}

#[test]
fn the_console_shows_the_schedule_that_the_manifest_names() {
    let case = one_sided();
    let release = released_from_the_last_step(&case);
    let named = release.manifest().provenance.schedule.clone().unwrap();
    let planned = Schedule::from_plan(&release.lineage().plan.levels, &case.policy.lattice());
    assert_eq!(planned, Some(("0;1".parse().unwrap(), Some(1))), "two steps, and the one at which it starts");
    let telemetry = Telemetry::new(&case.policy).unwrap();
    telemetry.released(&release, Millis(0));
    assert_eq!(telemetry.view(Millis(0)).schedule.unwrap().id(), named.id);
}

#[test]
fn a_planned_schedule_that_does_not_fit_is_not_replaced_by_another() {
    let case = one_sided();
    let release = released_from_the_last_step(&case);
    let mut plan = release.lineage().plan.clone();
    plan.levels = vec![7];
    let mut engine = Engine::new(&case);
    let again = engine.release(&(60..106).collect::<Vec<usize>>(), 1000, Some(plan));
    assert!(again.is_empty(), "readers may have other bytes under this release");
    let provenance = &again.manifest().provenance;
    assert_eq!((provenance.records_suppressed, engine.anonymizer.waiting()), (46, 0));
}

#[test]
fn whoever_repeats_the_release_of_another_goes_on_with_the_own_fixed_schedule() {
    for levels in [Levels::Fixed(None), Levels::Monotone] {
        let table = skewed(1800, 1);
        let policy = local(&table, 5);
        let case = Case { table, policy, levels, windows: 1, unknown: 16 };
        let lines = |window: usize| (window * 600..(window + 1) * 600).collect::<Vec<usize>>();
        let schedule = |release: &Release| release.manifest().provenance.schedule.as_ref().unwrap().id.clone();
        let (mut engine, mut other) = (Engine::new(&case), Engine::new(&case));
        let first = schedule(&engine.release(&lines(0), 0, None));
        let theirs = other.release(&lines(1), 0, None);
        assert_ne!(schedule(&theirs), first);
        engine.release(&lines(1), 0, Some(theirs.lineage().plan.clone()));
        assert_eq!(schedule(&engine.release(&lines(2), 0, None)), first);
    }
}

fn local(table: &Table, k: u32) -> Arc<Policy> {
    let policy = policy(table, &[Rule::K(k)], SuppressionAction::Drop, None);
    Arc::new(Policy { recoding: RecodingKind::Local, ..(*policy).clone() })
}

#[test]
fn excluding_what_earlier_steps_would_release_narrows_cells_and_leaves_k_people() {
    const SIZE: usize = 1000;
    let (mut own, mut before, mut sticky) = (Narrowed::default(), Narrowed::default(), Narrowed::default());
    for (seed, levels) in (0..6).flat_map(|seed| [(seed, Levels::Fixed(None)), (seed, Levels::Sticky)]) {
        let is_fixed = levels == Levels::Fixed(None);
        let table = skewed(4 * SIZE, seed);
        let policy = local(&table, 5);
        let policy = Arc::new(Policy { suppression: SuppressionLimit(0.0), ..(*policy).clone() });
        let (published, stream) = releases(&table, &policy, SIZE, levels);
        assert!(!is_fixed || stream.levels.windows(2).all(|pair| pair[0] == pair[1]), "the schedule is fixed");
        for (window, (rows, levels)) in published.iter().zip(&stream.levels).enumerate() {
            assert_eq!(rows.len(), SIZE);
            let lines: Vec<usize> = (window * SIZE..(window + 1) * SIZE).collect();
            let found = refine(&table, rows, &lines, &steps(&policy, levels), 5);
            // The first window has learnt the schedule from itself.
            let sum = match (window, is_fixed) {
                (0, _) => &mut own,
                (_, true) => &mut before,
                (_, false) => &mut sticky,
            };
            sum.add(&found);
        }
    }
    for (name, found) in [("the same window", &own), ("an earlier window", &before), ("earlier windows", &sticky)] {
        println!("schedule of {name}: {found}");
        assert!(found.fewer > 0, "the attack narrows nothing, so it would miss a defence that does nothing");
    }
}

#[test]
fn the_attack_rate_of_a_report_is_that_of_the_whole_attack() {
    let (mut narrowed, mut found) = (0, 0.0);
    for seed in 0..4 {
        let table = skewed(400, seed);
        let policy = local(&table, 5);
        let policy = Arc::new(Policy {
            suppression: SuppressionLimit(0.0),
            unknown_value: Fallback::Suppress,
            ..(*policy).clone()
        });
        let case = Case { table, policy, levels: Levels::Fixed(None), windows: 1, unknown: 16 };
        let (table, lines) = (&case.table, (0..400).collect::<Vec<usize>>());
        let mut engine = Engine::new(&case);
        let release = engine.release(&lines, 0, None);
        let row = |(labels, values): (Vec<String>, Vec<String>)| Row { labels, line: line(&values) };
        let rows: Vec<Row> = texts(&release).into_iter().map(row).collect();
        let schedule = steps(&case.policy, &release.lineage().plan.levels);
        let whole = refine(table, &rows, &lines, &schedule, 5);
        let rate = usefulness(&case.policy, &release, engine.dictionaries.as_ref().unwrap()).unwrap().attack;
        // Every row is attacked, so only the tries of a value can differ, and then for the reader.
        assert_eq!(rate.sampled, 400);
        let share = |count: usize, all: usize| count as f64 / all as f64;
        assert!((rate.rows - share(whole.combinations, whole.rows)).abs() < 1e-9, "{rate:?}");
        let (cells, exact) = (share(whole.fewer, whole.cells), share(whole.one, whole.cells));
        assert!(rate.cells >= cells - 1e-9 && rate.cells - cells < 0.01, "{rate:?}, not {cells}");
        assert!(rate.cells_exact >= exact - 1e-9 && rate.cells_exact - exact < 0.01, "{rate:?}, not {exact}");
        narrowed += whole.fewer;
        found += rate.cells;
    }
    assert!(narrowed > 0 && found > 0.0, "the attack finds nothing, so nothing was compared");
}

#[test]
fn with_sequential_local_suppresses_no_more_than_full_domain_and_loses_less() {
    let rules = [Rule::K(4), Rule::Distinct(0, 3)];
    for seed in 0..3 {
        let table = town(4800, 600, seed);
        let of = |policy: &Arc<Policy>| {
            let (published, stream) = releases(&table, policy, 400, Levels::Sticky);
            let below = |attribute: &Attribute, label: &str| {
                attribute.paths.iter().filter(|path| path.iter().any(|of| of == label)).count() as f64
            };
            let cell = |(label, attribute): (&String, &Attribute)| {
                (below(attribute, label) - 1.0) / (attribute.paths.len() as f64 - 1.0)
            };
            let row = |row: &Row| row.labels.iter().zip(&table.attributes).map(cell).sum::<f64>() / 3.0;
            let lost: f64 = published.iter().flatten().map(row).sum();
            (stream.suppressed, (lost + stream.suppressed as f64) / 4800.0)
        };
        let node = policy(&table, &rules, SuppressionAction::Drop, Some(sequential()));
        let node = Policy { suppression: SuppressionLimit(0.05), ..(*node).clone() };
        let local = Policy { recoding: RecodingKind::Local, ..node.clone() };
        let ((full_suppressed, full), (suppressed, lost)) = (of(&Arc::new(node)), of(&Arc::new(local)));
        println!(
            "seed {seed}: local {suppressed} suppressed, loss {lost:.3}; full-domain {full_suppressed}, {full:.3}"
        );
        assert!(suppressed <= full_suppressed && lost < full, "{suppressed} {lost}, {full_suppressed} {full}");
    }
}

#[test]
fn two_local_releases_joined_single_people_out_at_a_measured_rate() {
    for (name, table) in [("alternating", crossing(9)), ("drifting", town(5400, 1500, 3))] {
        let local = local(&table, 3);
        let node = policy(&table, &[Rule::K(3)], SuppressionAction::Drop, None);
        let rate = |policy: &Arc<Policy>, levels| joined(&table, &releases(&table, policy, 600, levels).0, 3);
        let (free, sticky) = (rate(&local, Levels::Free), rate(&local, Levels::Sticky));
        let fixed = rate(&local, Levels::Fixed(None));
        let full = (rate(&node, Levels::Sticky), rate(&node, Levels::Fixed(None)));
        println!(
            "{name}: joint classes below k: local free {free:.3}, sticky {sticky:.3}, fixed {fixed:.3}; \
             full-domain sticky {:.3}, fixed {:.3}",
            full.0, full.1
        );
        assert!(fixed > 0.0, "records have levels of their own, so even a fixed schedule crosses");
    }
}

#[test]
fn intersecting_local_releases_finds_people_without_sequential_and_none_with_it() {
    for levels in [Levels::Sticky, Levels::Fixed(None)] {
        intersecting_finds_nobody_with_sequential(RecodingKind::Local, &levels, 200);
    }
}
