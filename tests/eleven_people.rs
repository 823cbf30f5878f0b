//! The table of eleven people of Wang, Liao and Hsu (2007): its classes, what is secure at which node, and its generalized
//! form, exactly.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "criteria/table.rs"]
#[allow(dead_code)]
mod table;

use std::collections::BTreeSet;
use std::sync::Arc;

use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use table::{Engine, fixture};
use veilstream::model::confidential::{Field, Formula, Sentence};
use veilstream::model::hierarchy::{DateSpec, DateUnit, Decimal, Hierarchy, IntervalSpec, PrefixSpec};
use veilstream::model::lattice::{Lattice, Node};
use veilstream::model::policy::{Criterion, K, Loss, Policy, Render};
use veilstream::model::record::Value;
use veilstream::model::schema::Role;
use veilstream::search::evaluator::Evaluator;
use veilstream::search::evolutionary::granulation_ga::NodeBits;
use veilstream::search::{Algorithm, Budget, StopReason};

const PEOPLE: [[&str; 5]; 11] = [
    ["1956-09-24", "24126", "161", "400K", "1"],
    ["1956-09-06", "24129", "167", "300K", "1"],
    ["1956-09-30", "24133", "163", "300K", "1"],
    ["1956-03-23", "10427", "160", "300K", "0"],
    ["1956-03-18", "10431", "165", "100K", "2"],
    ["1956-03-05", "10466", "168", "100K", "2"],
    ["1955-04-20", "26015", "175", "400K", "2"],
    ["1955-04-18", "26032", "170", "300K", "1"],
    ["1955-04-09", "26617", "173", "100K", "0"],
    ["1955-04-01", "26628", "171", "400K", "0"],
    ["1955-04-23", "26328", "176", "400K", "0"],
];

/// (mm/yy, d1d2***, width 10).
fn paper() -> Node {
    Node::new([1, 3, 2])
}

fn health(value: &str) -> Formula {
    Formula::In(Field::Sensitive(1), vec![value.to_owned()])
}

fn sentence(says: Formula, when: Option<Formula>) -> Sentence {
    Sentence { name: "s".into(), says, when, damage: 1.0, prior: None }
}

/// Only u1 has this income and this health.
fn is_u1() -> Formula {
    Formula::All(vec![Formula::In(Field::Sensitive(0), vec!["400K".into()]), health("1")])
}

fn engine(criteria: Vec<Criterion>) -> Engine {
    let units = [DateUnit::Day, DateUnit::Month, DateUnit::Year];
    let born = DateSpec::new(units);
    let height = IntervalSpec::new([5, 10, 20].map(Decimal::from), 100.into(), 220.into());
    let quasi = vec![
        ("born", Hierarchy::dates(born).unwrap()),
        ("zip", Hierarchy::prefix(PrefixSpec::new(5)).unwrap()),
        ("height", Hierarchy::intervals(height).unwrap()),
    ];
    let others = [("income", Role::Sensitive), ("health", Role::Sensitive)];
    let policy = Policy { criteria, loss: Loss::Ql, ..fixture::policy(quasi, &others, 1) };
    let values = |person: &[&'static str; 5]| {
        let text = |i: usize| Value::Text(person[i].into());
        vec![text(0), text(1), text(2), text(3), Value::Number(person[4].into())]
    };
    Engine::new(policy, PEOPLE.iter().map(values))
}

/// Every row as published, its sensitive values behind its cells.
fn shown(engine: &Engine, node: &Node) -> Vec<String> {
    let release = engine.release(node, &(0..11).collect::<Vec<_>>()).unwrap();
    let mut shown = Vec::new();
    let row = |quasi: &[&str], values: &[&str]| -> Result<(), ()> {
        shown.push([quasi.join(" "), values.join(" ")].join(" "));
        Ok(())
    };
    release.rows(row).unwrap();
    shown.sort();
    shown
}

/// The rows of these people, with the same cells each.
fn class(who: &[usize], cells: &str) -> Vec<String> {
    who.iter().map(|&i| format!("{cells} \"{}\" {}", PEOPLE[i][3], PEOPLE[i][4])).collect()
}

fn secure(engine: &Engine, node: &Node) -> bool {
    let evaluator = Evaluator::new(&engine.policy, &engine.rules, Arc::clone(&engine.sets));
    let satisfies = evaluator.evaluate(node).satisfies;
    let all: Vec<usize> = (0..PEOPLE.len()).collect();
    assert_eq!(engine.release(node, &all).is_ok(), satisfies, "gate and evaluator differ");
    satisfies
}

#[test]
fn the_lattice_is_the_papers() {
    let engine = engine(vec![Criterion::Confidential(vec![sentence(health("2"), None)])]);
    let code = NodeBits::new(&engine.policy.lattice());
    let text: String = code.encode(&paper()).iter().map(|&bit| if bit { '1' } else { '0' }).collect();
    assert_eq!((code.len(), text.as_str()), (8, "01011010"));
}

#[test]
fn classes_and_generalized_table() {
    let engine = engine(vec![Criterion::Confidential(vec![sentence(health("2"), None)])]);
    let classes: BTreeSet<Vec<usize>> = (0..11)
        .map(|i| (0..11).filter(|&j| engine.class_of(&paper(), i) == engine.class_of(&paper(), j)).collect())
        .collect();
    assert_eq!(classes, BTreeSet::from([vec![0, 1, 2], vec![3, 4, 5], vec![6, 7, 8, 9, 10]]));
    let mut expected = [
        class(&[0, 1, 2], "1956-09 24*** [160,170)"),
        class(&[3, 4, 5], "1956-03 10*** [160,170)"),
        class(&[6, 7, 8, 9, 10], "1955-04 26*** [170,180)"),
    ]
    .concat();
    expected.sort();
    assert_eq!(shown(&engine, &paper()), expected);
}

/// The paper averages height over u1..u6 (164) and u7..u11 (173), and takes the medians of dates and zips. 173 is the height of
/// u9, and 164 could be anybody's: means are shown half a centimetre beside, in steps of 2. The medians, each one person's,
/// become the label that three people share.
#[test]
fn the_microaggregated_table() {
    let criteria = vec![Criterion::Confidential(vec![sentence(health("2"), None)]), Criterion::KAnonymity(K(3))];
    let labels = engine(criteria);
    let mut policy = (*labels.policy).clone();
    let renders = [Render::Median, Render::Median, Render::Mean];
    policy.quasi.iter_mut().zip(renders).for_each(|(quasi, render)| quasi.render = render);
    let engine = Engine { policy: Arc::new(policy), ..labels };
    let mut expected = [
        class(&[0, 1, 2], "1956-09 241** 164.5"),
        class(&[3, 4, 5], "1956-03 104** 164.5"),
        class(&[6, 7, 8, 9, 10], "1955-04 26*** 172.5"),
    ]
    .concat();
    expected.sort();
    assert_eq!(shown(&engine, &paper()), expected);
}

#[test]
fn security_at_the_papers_node() {
    assert!(secure(&engine(vec![Criterion::Confidential(vec![sentence(health("2"), None)])]), &paper()));
    let for_u1 = || vec![sentence(health("2"), None), sentence(health("1"), Some(is_u1()))];
    assert!(!secure(&engine(vec![Criterion::Confidential(for_u1())]), &paper()));
    // u1 alone is exposed: the class reports one person.
    let refusal = engine(vec![Criterion::Confidential(for_u1())]).release(&paper(), &(0..11).collect::<Vec<_>>());
    let refusal = refusal.unwrap_err();
    assert_eq!((refusal.achieved, refusal.size), (1.0, 3));
    // With the years instead of the months, u1 joins u4, who falsifies it.
    assert!(secure(&engine(vec![Criterion::Confidential(for_u1())]), &Node::new([2, 5, 2])));
}

#[test]
fn security_measure_of_the_papers_node() {
    let engine = engine(vec![Criterion::Confidential(vec![sentence(health("2"), None)])]);
    let evaluator = Evaluator::new(&engine.policy, &engine.rules, Arc::clone(&engine.sets));
    // health = 2 for 3 of 11; for none, 2 of 3 and 1 of 5 in the classes. Only the second is above the release's share.
    let (release, class) = ((3.0f64 / 11.0).ln(), (2.0f64 / 3.0).ln());
    let mean = 3.0 / 11.0 * (release - class) / release;
    assert!((evaluator.evaluate(&paper()).security - (1.0 - mean)).abs() < 1e-12);
}

#[test]
fn every_minimal_secure_node_and_the_fittest() {
    let engine = engine(vec![Criterion::Confidential(vec![sentence(health("2"), None)])]);
    let lattice: Lattice = engine.policy.lattice();
    let run = |algorithm: Algorithm| {
        let evaluator = Evaluator::new(&engine.policy, &engine.rules, Arc::clone(&engine.sets));
        let rng = &mut ChaCha8Rng::seed_from_u64(11);
        let outcome = algorithm.search().run(&lattice, &evaluator, &Budget::unlimited(), rng);
        (outcome, evaluator.checks())
    };
    let (all, every) = run(Algorithm::Exhaustive);
    let (minimal, checks) = run(Algorithm::Granulation);
    let levels = |nodes: &[Node]| nodes.iter().map(|n| n.levels().to_vec()).collect::<BTreeSet<_>>();
    assert_eq!(levels(&minimal.minimal), levels(&all.minimal));
    assert_eq!(minimal.stop, StopReason::Proven);
    assert_eq!(minimal.best, all.best);
    assert!(checks < every, "{checks} of {every}");
    // The genetic search finds the greatest security times quality among the secure nodes.
    let evaluator = Evaluator::new(&engine.policy, &engine.rules, Arc::clone(&engine.sets));
    let fitness = |node: &Node| evaluator.evaluate(node).security * (1.0 - evaluator.evaluate(node).loss);
    let greatest = lattice.nodes().filter(|n| evaluator.evaluate(n).satisfies).map(|n| fitness(&n)).fold(0.0, f64::max);
    let (fittest, _) = run(Algorithm::GranulationGa);
    let found = fittest.best.unwrap().recoding.node().unwrap();
    assert!((fitness(&found) - greatest).abs() < 1e-12, "{found:?}: {} of {greatest}", fitness(&found));
}
