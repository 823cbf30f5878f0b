//! Property tests: local recoding against a slow twin that works on texts, and the promises of [`Regions`].

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{Admission, Effort, Regions, Table, Terms, apply, apply_admitting, learn};
use crate::model::batch::Rows;
use crate::model::hierarchy::{Hierarchy, PrefixSpec};
use crate::model::lattice::Node;
use crate::model::policy::{Criterion, Diversity, K, Policy};
use crate::model::schedule::Schedule;
use crate::model::schema::Role;
use crate::search::fixture;

/// A window over three attributes, a sensitive field and a subject.
struct Window {
    table: fixture::Table,
    records: Vec<Vec<String>>,
    fresh: Rows,
    held: Rows,
}

const WIDTH: usize = 3;

fn hierarchies() -> Vec<(&'static str, Hierarchy)> {
    let csv = |text: &str| Hierarchy::parse_csv(text.as_bytes()).unwrap();
    vec![
        (
            "a",
            csv(
                "0;01;0123;*\n1;01;0123;*\n2;23;0123;*\n3;23;0123;*\n4;45;4567;*\n5;45;4567;*\n6;67;4567;*\n7;67;4567;*\n",
            ),
        ),
        ("b", csv("x;xy;*\ny;xy;*\nz;zz;*\n")),
        ("c", csv("m;*\nf;*\n")),
    ]
}

fn policy(k: u32, l: Option<f64>, subjects: bool, bounds: &[(u8, u8)]) -> Policy {
    let others: &[(&str, Role)] = if subjects {
        &[("s", Role::Sensitive), ("p", Role::Subject)]
    } else {
        &[("s", Role::Sensitive), ("p", Role::Insensitive)]
    };
    let mut policy = fixture::policy(hierarchies(), others, k);
    policy.criteria = vec![Criterion::KAnonymity(K(k))];
    policy.criteria.extend(l.map(|l| Criterion::LDiversity { field: 0, l, variant: Diversity::Distinct }));
    for (quasi, &(min, max)) in policy.quasi.iter_mut().zip(bounds) {
        quasi.min_level = min.min(quasi.max_level);
        quasi.max_level = max.clamp(quasi.min_level, quasi.max_level);
    }
    policy
}

impl Window {
    /// Every `every`-th record is held.
    fn new(policy: Policy, records: Vec<Vec<String>>, every: usize) -> Self {
        let table = fixture::Table::new(policy, &records);
        let is_held = |row: usize| every > 0 && row % every == every - 1;
        let (fresh, held) = (table.rows.filtered(|row| !is_held(row)), table.rows.filtered(is_held));
        let (mut kept, mut waiting) = (Vec::new(), Vec::new());
        for (row, record) in records.into_iter().enumerate() {
            if is_held(row) { waiting.push(record) } else { kept.push(record) }
        }
        kept.append(&mut waiting);
        Self { table, records: kept, fresh, held }
    }

    fn recode(&self, schedule: &Schedule, first: usize) -> Regions {
        let tuples = Table::new(&self.fresh, &self.held, &self.table.rules.counting());
        let rules = self.table.rules.bind(&self.table.dictionaries.values());
        let terms = Terms::new(&self.table.policy, &rules, &self.table.dictionaries.quasi);
        apply(&terms, &tuples, schedule, first, 0)
    }

    fn learn(&self, share: f64, evaluations: u64) -> Schedule {
        let tuples = Table::new(&self.fresh, &self.held, &self.table.rules.counting());
        let terms = Terms::new(&self.table.policy, &self.table.rules, &self.table.dictionaries.quasi);
        learn(&terms, &[&tuples, &tuples], &Effort { evaluations, shares: vec![share, 0.1], max_steps: 5 })
    }

    /// The label of a record's value at a level, as text.
    fn text(&self, record: usize, at: usize, level: u8) -> String {
        let view = &self.table.dictionaries.quasi[at];
        let leaf = view.level(0).labels().position(|label| label == self.records[record][at]).unwrap();
        view.level(level).label(view.between(0, level)[leaf]).to_owned()
    }

    /// True if these records, as fresh ones, satisfy the criteria.
    fn satisfies(&self, records: &[usize], k: u32, l: Option<f64>, subjects: bool) -> bool {
        let people: BTreeSet<String> =
            records.iter().map(|&r| if subjects { self.records[r][4].clone() } else { r.to_string() }).collect();
        let values: BTreeSet<&String> = records.iter().map(|&r| &self.records[r][3]).collect();
        people.len() >= k as usize && values.len() as f64 >= l.unwrap_or(0.0)
    }

    fn class(&self, regions: &Regions, record: usize) -> Option<u32> {
        match record.checked_sub(self.fresh.len()) {
            Some(held) => regions.held(held),
            None => regions.fresh(record),
        }
    }
}

/// The slow twin of the walk: which records each step releases together, by texts.
fn naive_walk(window: &Window, schedule: &Schedule, k: u32, l: Option<f64>, subjects: bool) -> Vec<Vec<usize>> {
    let mut left: Vec<usize> = (0..window.records.len()).collect();
    let mut released = Vec::new();
    for node in schedule.steps() {
        let mut classes: BTreeMap<Vec<String>, Vec<usize>> = BTreeMap::new();
        for &record in &left {
            let shown = (0..WIDTH).map(|at| window.text(record, at, node.levels()[at])).collect();
            classes.entry(shown).or_default().push(record);
        }
        for members in classes.into_values() {
            let fresh: Vec<usize> = members.iter().copied().filter(|&record| record < window.fresh.len()).collect();
            if window.satisfies(&fresh, k, l, subjects) {
                left.retain(|record| !members.contains(record));
                released.push(members);
            }
        }
    }
    released
}

fn records() -> impl Strategy<Value = Vec<Vec<String>>> {
    let record = (0..8u8, 0..3usize, 0..2usize, 0..4u8, 0..12u8).prop_map(|(a, b, c, s, p)| {
        vec![a.to_string(), ["x", "y", "z"][b].into(), ["m", "f"][c].into(), format!("s{s}"), format!("p{p}")]
    });
    prop::collection::vec(record, 0..60)
}

fn nodes() -> impl Strategy<Value = Vec<Node>> {
    prop::collection::vec((0..4u8, 0..3u8, 0..2u8).prop_map(|(a, b, c)| Node::new([a, b, c])), 0..6)
}

proptest! {
    #[test]
    fn regions_keep_their_promises(
        records in records(), nodes in nodes(), k in 1..5u32, l in prop::option::of(1..4u8), subjects in any::<bool>(),
        every in prop_oneof![Just(0usize), Just(4)], bounds in prop::collection::vec((0..3u8, 0..4u8), WIDTH),
    ) {
        let l = l.map(f64::from);
        let policy = policy(k, l, subjects, &bounds);
        let lattice = policy.lattice();
        let window = Window::new(policy, records, every);
        let schedule = Schedule::new(nodes, &lattice);
        let regions = window.recode(&schedule, 0);
        let views = &window.table.dictionaries.quasi;
        // Every label is an ancestor of the raw value, within the permitted levels.
        let mut classes: BTreeMap<Vec<String>, BTreeSet<u32>> = BTreeMap::new();
        let mut members: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        let mut of_tuple: BTreeMap<&[String], BTreeSet<Option<u32>>> = BTreeMap::new();
        for record in 0..window.records.len() {
            let class = window.class(&regions, record);
            of_tuple.entry(&window.records[record][..WIDTH]).or_default().insert(class);
            let Some(class) = class else { continue };
            members.entry(class).or_default().push(record);
            let labels = regions.labels(class);
            for (at, value) in labels.iter().enumerate() {
                prop_assert!((lattice.bottom().levels()[at]..=lattice.top().levels()[at]).contains(&value.level));
                prop_assert_eq!(views[at].level(value.level).label(value.code), window.text(record, at, value.level));
            }
            let shown = labels.iter().map(|value| format!("{value:?}")).collect();
            classes.entry(shown).or_default().insert(class);
        }
        // Identical tuples stay together; equal labels are one class; no class is empty.
        prop_assert!(of_tuple.values().all(|classes| classes.len() == 1));
        prop_assert!(classes.values().all(|numbers| numbers.len() == 1));
        prop_assert_eq!(members.len(), regions.len());
        // The naive recount agrees: each class satisfies the policy by its fresh rows alone.
        for (class, members) in &members {
            prop_assert_eq!(regions.size(*class) as usize, members.len());
            let fresh: Vec<usize> = members.iter().copied().filter(|&record| record < window.fresh.len()).collect();
            prop_assert!(window.satisfies(&fresh, k, l, subjects));
            // Labels are tight.
            for (at, value) in regions.labels(*class).iter().enumerate().filter(|(at, v)| v.level > lattice.bottom().levels()[*at]) {
                let below: BTreeSet<String> = members.iter().map(|&r| window.text(r, at, value.level - 1)).collect();
                prop_assert!(below.len() > 1);
            }
        }
        let left = (0..window.fresh.len()).filter(|&row| regions.fresh(row).is_none()).count();
        prop_assert_eq!(regions.left(), left);
        // What the slow twin releases together is published together, unless merged classes count people twice.
        for together in naive_walk(&window, &schedule, k, l, subjects) {
            let numbers: BTreeSet<Option<u32>> = together.iter().map(|&record| window.class(&regions, record)).collect();
            prop_assert_eq!(numbers.len(), 1);
            prop_assert!(!numbers.contains(&None));
        }
    }

    #[test]
    fn the_same_input_gives_the_same_schedule_and_regions(
        records in records(), k in 1..5u32, l in prop::option::of(1..4u8), subjects in any::<bool>(),
        share in prop_oneof![Just(0.0), Just(0.05)], evaluations in 0..200u64,
    ) {
        let window = Window::new(policy(k, l.map(f64::from), subjects, &[]), records, 0);
        let schedule = window.learn(share, evaluations);
        prop_assert_eq!(&schedule, &window.learn(share, evaluations));
        prop_assert!(schedule.fits(&window.table.policy.lattice()));
        prop_assert_eq!(&schedule.to_string().parse::<Schedule>().unwrap(), &schedule);
        let (once, again) = (window.recode(&schedule, 0), window.recode(&schedule, 0));
        for row in 0..window.fresh.len() {
            prop_assert_eq!(once.fresh(row), again.fresh(row));
        }
        prop_assert!((0..once.len() as u32).all(|class| once.labels(class) == again.labels(class)));
        // The top is the last step: whatever is left over there could not be published at all.
        if window.satisfies(&(0..window.fresh.len()).collect::<Vec<_>>(), k, l.map(f64::from), subjects) {
            prop_assert_eq!(once.left(), 0);
        }
    }
}

#[test]
fn a_coarser_start_makes_coarser_classes() {
    let records: Vec<Vec<String>> =
        (0..40).map(|i: u32| vec![(i % 8).to_string(), "x".into(), "m".into(), "s".into(), i.to_string()]).collect();
    let window = Window::new(policy(2, None, false, &[]), records, 0);
    let schedule: Schedule = "0,0,0;1,0,0;2,1,0;3,2,1".parse().unwrap();
    assert_eq!([0, 1, 2, 3].map(|first| window.recode(&schedule, first).len()), [8, 4, 2, 1]);
}

#[test]
fn records_that_no_node_releases_join_the_cheapest_class() {
    let record = |a: &str, b: &str| vec![a.to_owned(), b.to_owned(), "m".into(), "s".into(), "p".into()];
    let many = |a: &str, b: &str, times: usize| vec![record(a, b); times];
    let records = [many("0", "x", 3), many("6", "z", 3), many("1", "x", 1)].concat();
    let window = Window::new(policy(3, None, false, &[]), records, 0);
    let schedule: Schedule = "0,0,0;3,2,1".parse().unwrap();
    let regions = window.recode(&schedule, 0);
    assert_eq!((regions.len(), regions.left()), (2, 0));
    assert_eq!(regions.fresh(6), regions.fresh(0));
    let levels: Vec<u8> = regions.labels(regions.fresh(6).unwrap()).iter().map(|value| value.level).collect();
    assert_eq!(levels, [1, 0, 0]);
    // Where the top level is not permitted, a record may find no class.
    let window = Window::new(policy(3, None, false, &[(0, 0)]), window.records, 0);
    let regions = window.recode(&"0,0,0;0,2,1".parse().unwrap(), 0);
    assert_eq!((regions.len(), regions.left(), regions.fresh(6)), (2, 1, None));
}

/// Nobody may join a class later; counts how often that was asked of a class.
struct Waiting(usize);

impl Admission for Waiting {
    fn step(&mut self, _: &Table, _: &mut Vec<u32>, _: f64) {}

    fn may_join_any(&self, _: &Table, _: u32) -> bool {
        false
    }

    fn joins(&mut self, _: &Table, _: &[u32]) -> bool {
        self.0 += 1;
        false
    }
}

#[test]
fn records_that_may_join_no_class_are_compared_with_none() {
    let record = |a: usize| vec![a.to_string(), "x".to_owned(), "m".into(), "s".into(), "p".into()];
    let window = Window::new(policy(3, None, false, &[]), [0, 0, 0, 6, 6, 6, 1].map(record).to_vec(), 0);
    let fixture::Table { policy, rules, dictionaries, .. } = &window.table;
    let (terms, mut waiting) = (Terms::new(policy, rules, &dictionaries.quasi), Waiting(0));
    let tuples = Table::new(&window.fresh, &window.held, &rules.counting());
    let schedule = "0,0,0;3,2,1".parse().unwrap();
    let regions = apply_admitting(&terms, &tuples, &schedule, (0, 0), &mut waiting);
    assert_eq!((regions.len(), regions.left(), waiting.0), (2, 1, 0));
}

#[test]
fn keys_of_more_than_one_word_are_told_apart() {
    const ATTRIBUTES: usize = 14;
    let names: Vec<String> = (0..ATTRIBUTES).map(|at| format!("q{at}")).collect();
    let quasi = names.iter().map(|name| (name.as_str(), Hierarchy::trivial())).collect();
    let cell = |record: usize, at: usize| if at == ATTRIBUTES - 1 { record % 2 } else { record / 2 };
    let records: Vec<Vec<String>> =
        (0..200).map(|record| (0..ATTRIBUTES).map(|at| cell(record % 100, at).to_string()).collect()).collect();
    let table = fixture::Table::new(fixture::policy(quasi, &[], 2), &records);
    let tuples = Table::new(&table.rows, &Rows::new(ATTRIBUTES, 0), &table.rules.counting());
    let terms = Terms::new(&table.policy, &table.rules, &table.dictionaries.quasi);
    let regions = apply(&terms, &tuples, &Schedule::new([terms.lattice().bottom().clone()], terms.lattice()), 0, 0);
    assert_eq!((regions.len(), regions.left(), regions.loss()), (100, 0, 0.0));
}

#[test]
fn a_large_lattice_is_never_enumerated() {
    const ATTRIBUTES: usize = 12;
    let names: Vec<String> = (0..ATTRIBUTES).map(|at| format!("q{at}")).collect();
    let prefix = || Hierarchy::prefix(PrefixSpec::new(6)).unwrap();
    let quasi = names.iter().map(|name| (name.as_str(), prefix())).collect();
    let cell = |record: usize, at: usize| format!("{:06}", (record * (at + 3) * 7919) % 1_000_003 % 1_000_000);
    let records: Vec<Vec<String>> =
        (0..300).map(|record| (0..ATTRIBUTES).map(|at| cell(record, at)).collect()).collect();
    let table = fixture::Table::new(fixture::policy(quasi, &[], 3), &records);
    let tuples = Table::new(&table.rows, &Rows::new(ATTRIBUTES, 0), &table.rules.counting());
    let terms = Terms::new(&table.policy, &table.rules, &table.dictionaries.quasi);
    assert!(terms.lattice().size() > 10_000_000_000);
    let learnt =
        |evaluations| learn(&terms, &[&tuples], &Effort { evaluations, shares: vec![0.01], ..Effort::default() });
    let loss = |schedule: &Schedule| {
        let regions = apply(&terms, &tuples, schedule, 0, 0);
        assert_eq!(regions.left(), 0);
        regions.loss()
    };
    let (climbed, searched) = (learnt(0), learnt(5_000));
    assert!(climbed.steps().len() > 1, "the climb stops below the top");
    assert!(loss(&searched) < 1.0 && loss(&climbed) < 1.0);
}
