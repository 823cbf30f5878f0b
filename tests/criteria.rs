//! Every criterion and loss against its definition, the gate against the evaluator, and the declared monotony against both.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "criteria/table.rs"]
#[allow(dead_code)]
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use table::{Engine, Line, VALUES, hierarchy, policy, satisfies};
use veilstream::loss::{self, Counted};
use veilstream::model::confidential::{Field, Formula, Sentence};
use veilstream::model::domain::DomainView;
use veilstream::model::lattice::{Lattice, Node};
use veilstream::model::policy::{Criterion, Distance, Diversity, K, Loss};
use veilstream::model::recoding::{Cut, Recoding};
use veilstream::search::evaluator::Evaluator;
use veilstream::search::{Algorithm, Budget, StopReason};

fn lattice() -> Lattice {
    Lattice::new(Node::new([0, 0]), Node::new([2, 2]))
}

fn line() -> impl Strategy<Value = Line> {
    (0u8..4, 0u8..4, 0u8..4, 0u8..3, 0u8..2, 0u8..2, 0u8..6).prop_map(|(u, v, s, z, kept, label, subject)| Line {
        quasi: [u, v],
        sensitive: [s, z],
        kept,
        label,
        subject,
    })
}

fn sentence(says: Formula, when: Option<Formula>, damage: f64) -> Sentence {
    // What is damaging is rare in the population, too.
    let prior = (damage > 1.0).then_some(0.3);
    Sentence { name: "s".into(), says, when, damage, prior }
}

fn is(field: Field, values: &[&str]) -> Formula {
    Formula::In(field, values.iter().map(|v| (*v).to_owned()).collect())
}

fn unconditional() -> Vec<Sentence> {
    let s = Field::Sensitive(0);
    vec![
        sentence(is(s, &["2"]), None, 1.0),
        sentence(Formula::Any(vec![is(s, &["0", "1"]), is(Field::Sensitive(1), &["1"])]), None, 3.0),
    ]
}

fn conditional() -> Vec<Sentence> {
    let not = Formula::Not(Box::new(is(Field::Sensitive(0), &["3"])));
    let both = Formula::All(vec![is(Field::Sensitive(0), &["1", "2"]), is(Field::Sensitive(1), &["0", "2"])]);
    vec![
        sentence(not, Some(is(Field::Kept(0), &["1"])), 2.0),
        sentence(both, Some(is(Field::Sensitive(1), &["0"])), 1.0),
    ]
}

fn distances() -> Vec<Distance> {
    let order = ["3", "1", "0", "2"].map(str::to_owned).to_vec();
    vec![
        Distance::Equal,
        Distance::Ordered { order: None },
        Distance::Ordered { order: Some(order) },
        Distance::Hierarchical(Arc::new(hierarchy(&VALUES))),
    ]
}

fn criterion() -> impl Strategy<Value = Criterion> {
    let t = (0usize..2, 1u8..9, 0usize..4);
    prop_oneof![
        (1u32..4).prop_map(|k| Criterion::KAnonymity(K(k))),
        t.prop_map(|(field, t, d)| Criterion::TCloseness {
            field,
            t: f64::from(t) / 10.0,
            distance: distances().swap_remove(d)
        }),
        (0usize..2, 2u32..4).prop_map(|(field, p)| Criterion::PSensitive { field, p }),
        (0usize..2, 3u8..10, 1u32..4).prop_map(|(field, a, k)| Criterion::AlphaK {
            field,
            alpha: f64::from(a) / 10.0,
            k: K(k)
        }),
        (1usize..3, 1u32..4, 4u8..11, any::<bool>()).prop_map(|(l, k, c, both)| Criterion::Lkc {
            l,
            k: K(k),
            c: f64::from(c) / 10.0,
            fields: if both { vec![0, 1] } else { vec![1] }
        }),
        any::<bool>().prop_map(|when| Criterion::Confidential(if when { conditional() } else { unconditional() })),
        (0usize..2, over())
            .prop_map(|(at, criterion)| Criterion::Over { known: vec![at], criterion: Box::new(criterion) }),
    ]
}

/// What may be asked over some quasi-identifiers.
fn over() -> impl Strategy<Value = Criterion> {
    prop_oneof![
        (1u32..7).prop_map(|k| Criterion::KAnonymity(K(k))),
        (0usize..2, 2u32..4).prop_map(|(field, p)| Criterion::PSensitive { field, p }),
        (0usize..2, 3u8..10, 1u32..6).prop_map(|(field, a, k)| Criterion::AlphaK {
            field,
            alpha: f64::from(a) / 10.0,
            k: K(k)
        }),
        (0usize..2, 11u8..30).prop_map(|(field, l)| Criterion::LDiversity {
            field,
            l: f64::from(l) / 10.0,
            variant: Diversity::Entropy
        }),
    ]
}

fn criteria() -> impl Strategy<Value = Vec<Criterion>> {
    (prop::collection::vec(criterion(), 1..3), prop::option::of(3u8..10)).prop_map(|(mut criteria, security)| {
        if let (Some(least), true) = (security, criteria.iter().any(|c| matches!(c, Criterion::Confidential(_)))) {
            criteria.push(Criterion::MinSecurity(f64::from(least) / 10.0));
        }
        criteria
    })
}

/// The lines with the person each counts for.
fn counted(lines: &[Line], rows: impl IntoIterator<Item = usize>, subjects: bool) -> Vec<(u64, &Line)> {
    let who = |i: usize| if subjects { u64::from(lines[i].subject) } else { i as u64 };
    rows.into_iter().map(|i| (who(i), &lines[i])).collect()
}

fn all_satisfied(criteria: &[Criterion], lines: &[(u64, &Line)], node: &Node) -> bool {
    let sentences: Vec<&Sentence> = criteria.iter().flat_map(Criterion::sentences).collect();
    criteria.iter().all(|c| satisfies(c, lines, node, &sentences))
}

/// What holds class by class need not hold for the release as a whole: the gate asks both.
#[test]
fn a_release_that_is_not_secure_enough_as_a_whole_is_refused() {
    let mut runner = TestRunner::deterministic();
    let criteria = vec![Criterion::Confidential(unconditional()), Criterion::MinSecurity(0.9)];
    let (mut refused, mut released) = (0, 0);
    for subjects in (0..400).map(|i| i % 2 == 0) {
        let lines = prop::collection::vec(line(), 6..14).new_tree(&mut runner).unwrap().current();
        let engine = Engine::of_lines(policy(criteria.clone(), 0.0, subjects, Loss::Glm), &lines);
        let rows: Vec<usize> = (0..lines.len()).collect();
        for node in lattice().nodes() {
            let right = all_satisfied(&criteria, &counted(&lines, rows.clone(), subjects), &node);
            match engine.release(&node, &rows) {
                Ok(_) => {
                    assert!(right, "{node:?}");
                    released += 1;
                }
                Err(refusal) => {
                    assert!(!right, "{node:?} {refusal}");
                    refused += usize::from(refusal.criterion == "min-security");
                }
            }
        }
    }
    assert!(refused > 10 && released > 10, "{refused} refused by it, {released} released");
}

proptest! {
    #![proptest_config(table::instances(200))]

    #[test]
    fn the_gate_counts_by_the_definitions(
        lines in prop::collection::vec(line(), 1..14),
        keep in prop::collection::vec(any::<bool>(), 14),
        criteria in criteria(),
        subjects in any::<bool>(),
    ) {
        let engine = Engine::of_lines(policy(criteria.clone(), 0.0, subjects, Loss::Glm), &lines);
        let rows: Vec<usize> = (0..lines.len()).filter(|&i| keep[i]).collect();
        for node in lattice().nodes() {
            let right = rows.is_empty() || all_satisfied(&criteria, &counted(&lines, rows.clone(), subjects), &node);
            let refusal = engine.release(&node, &rows).err();
            prop_assert_eq!(refusal.is_none(), right, "{:?} {:?}", node, refusal);
        }
    }

    #[test]
    fn what_the_evaluator_publishes_passes_the_gate(
        lines in prop::collection::vec(line(), 1..16),
        criteria in criteria(),
        subjects in any::<bool>(),
        limit in prop_oneof![Just(0.0), Just(0.3), Just(0.7)],
    ) {
        let engine = Engine::of_lines(policy(criteria.clone(), limit, subjects, Loss::Glm), &lines);
        let evaluator = Evaluator::new(&engine.policy, &engine.rules, Arc::clone(&engine.sets));
        let mut satisfying: Vec<Node> = Vec::new();
        for node in lattice().nodes() {
            let evaluation = evaluator.evaluate(&node);
            let rows = engine.published_rows(&node, &evaluator.published(&*engine.sets.set(&node)));
            if evaluation.satisfies {
                prop_assert!(rows.len() as u64 >= lines.len() as u64 - (limit * lines.len() as f64 + 1e-9) as u64);
                let release = engine.release(&node, &rows);
                prop_assert!(release.is_ok(), "{:?} {:?}", node, release.err());
                prop_assert!(all_satisfied(&criteria, &counted(&lines, rows, subjects), &node));
            } else if limit == 0.0 {
                prop_assert!(!all_satisfied(&criteria, &counted(&lines, 0..lines.len(), subjects), &node));
            }
            if evaluator.monotone() && satisfying.iter().any(|s| s.is_finer_or_equal(&node)) {
                prop_assert!(evaluation.satisfies, "declared monotone, but {:?} fails", node);
            }
            if evaluation.satisfies {
                satisfying.push(node);
            }
        }
    }

    #[test]
    fn bounds_are_below_every_loss(
        lines in prop::collection::vec(line(), 1..20),
        published in prop::collection::vec(any::<bool>(), 20),
        subjects in any::<bool>(),
    ) {
        for loss in Loss::ALL {
            let engine = Engine::of_lines(policy(vec![Criterion::KAnonymity(K(2))], 0.5, subjects, loss), &lines);
            let base = engine.sets.base();
            let metric = loss::metric(loss, &engine.policy, engine.sets.domains(), &base);
            let records = lines.len() as u64;
            let of = |node: &Node, published: &[bool]| {
                let set = engine.sets.set(node);
                let counted = Counted { classes: &*set, published: &published[..set.len()], records };
                (metric.loss(&counted), metric.bound_above(&counted))
            };
            for node in lattice().nodes() {
                let (own, above) = of(&node, &published);
                let bound = metric.lower_bound(&node);
                prop_assert!(own.is_finite() && bound <= own + 1e-9, "{} {node:?}", loss.as_str());
                prop_assert!(loss == Loss::Aecs || (-1e-9..=1.0 + 1e-9).contains(&own), "{} {own}", loss.as_str());
                for other in lattice().nodes().filter(|o| node.is_finer_or_equal(o) && *o != node) {
                    let (loss_above, _) = of(&other, &published);
                    prop_assert!(bound <= loss_above + 1e-9 && above <= loss_above + 1e-9, "{} {node:?} {other:?}", loss.as_str());
                    prop_assert!(bound <= metric.lower_bound(&other) + 1e-9);
                }
            }
        }
    }

    #[test]
    fn losses_are_what_they_say(
        lines in prop::collection::vec(line(), 1..20),
        published in prop::collection::vec(any::<bool>(), 20),
        subjects in any::<bool>(),
        cuts in prop::array::uniform2(0usize..5),
    ) {
        let engine = Engine::of_lines(policy(vec![Criterion::KAnonymity(K(1))], 1.0, subjects, Loss::Glm), &lines);
        let base = engine.sets.base();
        let domains = engine.sets.domains();
        let lattice = lattice();
        let nodes = lattice.nodes().map(Recoding::from);
        let cut = |(view, &at): (&Arc<DomainView>, &usize)| Cut::new(view, CUTS[at].to_vec()).unwrap();
        for recoding in nodes.chain([Recoding::Cuts(domains.iter().zip(&cuts).map(cut).collect())]) {
            let columns = recoding.columns(domains);
            let set = engine.sets.regroup(&recoding, &columns);
            let counted = Counted { classes: &*set, published: &published[..set.len()], records: lines.len() as u64 };
            let codes = |i: usize| columns.iter().zip(engine.rows.quasi(i)).map(|(c, &leaf)| c.map()[leaf as usize]);
            let class = |i: usize| (0..set.len()).find(|&c| codes(i).enumerate().all(|(a, code)| set.code(c, a) == code));
            let kept: Vec<usize> = (0..lines.len()).filter(|&i| published[class(i).unwrap()]).collect();
            let levels: Vec<[u8; 4]> = match &recoding {
                Recoding::Node(node) => node.levels().iter().map(|&level| [level; 4]).collect(),
                Recoding::Cuts(_) => cuts.iter().map(|&at| CUTS[at]).collect(),
                Recoding::Local(_) => unreachable!("no schedule is among them"),
            };
            for loss in [Loss::Cm, Loss::Score, Loss::Ql, Loss::Entropy] {
                let engines = loss::metric(loss, &engine.policy, domains, &base).loss(&counted);
                let naive = naive_loss(loss, &lines, &kept, &levels);
                prop_assert!((engines - naive).abs() < 1e-9, "{} {recoding:?}: {engines} {naive}", loss.as_str());
            }
        }
    }

    #[test]
    fn every_search_is_sound_under_every_criterion(
        lines in prop::collection::vec(line(), 1..16),
        criteria in criteria(),
        subjects in any::<bool>(),
        limit in prop_oneof![Just(0.0), Just(0.3)],
        loss in 0usize..8,
    ) {
        let engine = Engine::of_lines(policy(criteria, limit, subjects, Loss::ALL[loss]), &lines);
        let run = |algorithm: Algorithm, seed: u64, max_checks: u64| {
            let evaluator = Evaluator::new(&engine.policy, &engine.rules, Arc::clone(&engine.sets));
            let budget = Budget { max_checks, ..Budget::unlimited() };
            let outcome = algorithm.search().run(&lattice(), &evaluator, &budget, &mut ChaCha8Rng::seed_from_u64(seed));
            (outcome, evaluator.checks())
        };
        let sorted = |nodes: &[Node]| {
            let mut levels: Vec<Vec<u8>> = nodes.iter().map(|n| n.levels().to_vec()).collect();
            levels.sort();
            levels
        };
        let (truth, _) = run(Algorithm::Exhaustive, 0, u64::MAX);
        let least = truth.best.as_ref().map(|b| b.evaluation.loss);
        for algorithm in Algorithm::ALL {
            let (outcome, _) = run(algorithm, 1, u64::MAX);
            prop_assert_eq!(&outcome.best, &run(algorithm, 1, u64::MAX).0.best);
            let own = outcome.best.as_ref().map(|b| b.evaluation.loss);
            prop_assert!(outcome.best.iter().all(|b| b.evaluation.satisfies));
            // Of nodes that are equal but for rounding, each search returns the lower one.
            prop_assert!(own.is_none_or(|own| own >= outcome.bound - ROUNDING));
            // A cut may lose less than any node does.
            if let (Some(own), Some(best)) = (own, &outcome.best)
                && best.recoding.node().is_some()
            {
                prop_assert!(least.is_some_and(|least| own >= least - ROUNDING), "{:?}", algorithm);
            }
            if outcome.stop == StopReason::Proven {
                let apart = own.zip(least).map(|(own, least)| (own - least).abs());
                prop_assert_eq!(own.is_some(), least.is_some(), "{:?}", algorithm);
                prop_assert!(apart.is_none_or(|apart| apart <= ROUNDING), "{:?}", algorithm);
            }
            if [Algorithm::Exhaustive, Algorithm::BottomUp, Algorithm::Granulation].contains(&algorithm) {
                prop_assert_eq!(sorted(&outcome.minimal), sorted(&truth.minimal), "{:?}", algorithm);
                prop_assert_eq!(own.is_some(), least.is_some());
            }
            if let (Algorithm::Granulation, Some(best)) = (algorithm, &outcome.best) {
                let node = best.recoding.coarsest();
                prop_assert!(truth.minimal.contains(&node), "{node:?} is not one of {:?}", truth.minimal);
                let evaluator = Evaluator::new(&engine.policy, &engine.rules, Arc::clone(&engine.sets));
                let worth = |node: &Node| evaluator.evaluate(node).loss;
                prop_assert!(truth.minimal.iter().all(|other| worth(other) >= worth(&node) - ROUNDING));
            }
            let (stopped, checks) = run(algorithm, 1, 3);
            prop_assert!(checks <= 3 && stopped.best.iter().all(|b| b.evaluation.satisfies));
        }
    }
}

/// Sums over the same classes in another order differ by less.
const ROUNDING: f64 = 1e-9;

/// The level of each of the four leaves.
const CUTS: [[u8; 4]; 5] = [[0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1], [2, 2, 2, 2]];

/// Straight from the definitions, cell by cell; `levels` holds the level of every leaf, by attribute.
fn naive_loss(loss: Loss, lines: &[Line], kept: &[usize], levels: &[[u8; 4]]) -> f64 {
    let at = |line: &Line, a: usize, level: u8| table::LEAVES[usize::from(line.quasi[a])][usize::from(level)];
    let shown = |line: &Line, a: usize| at(line, a, levels[a][usize::from(line.quasi[a])]);
    let n = lines.len() as f64;
    let weights = [1.0, 2.5];
    match loss {
        Loss::Cm => {
            let mut classes: BTreeMap<[&str; 2], [usize; 2]> = BTreeMap::new();
            for line in kept.iter().map(|&i| &lines[i]) {
                classes.entry([shown(line, 0), shown(line, 1)]).or_default()[usize::from(line.label)] += 1;
            }
            1.0 - classes.values().map(|labels| labels[0].max(labels[1])).sum::<usize>() as f64 / n
        }
        Loss::Score => {
            let count = |texts: BTreeSet<&str>| texts.len() as f64;
            let score = |a: usize| count(kept.iter().map(|&i| shown(&lines[i], a)).collect());
            let finest = |a: usize| count(lines.iter().map(|line| at(line, a, 0)).collect());
            1.0 - (score(0) + 3.0 * score(1)) / (finest(0) + 3.0 * finest(1))
        }
        Loss::Ql => {
            // Each leaf of the domain keeps the entropy of the block that it is in.
            let block = |a: usize, leaf: usize| {
                let label = |leaf: usize| table::LEAVES[leaf][usize::from(levels[a][leaf])];
                (0..4).filter(|&other| label(other) == label(leaf)).count() as f64
            };
            let ratio = |a: usize| (0..4).map(|leaf| (4.0 / block(a, leaf)).ln() / 4.0).sum::<f64>() / 4f64.ln();
            1.0 - (0..2).map(|a| weights[a] / 3.5 * ratio(a)).sum::<f64>() * kept.len() as f64 / n
        }
        _ => (0..2)
            .map(|a| {
                let leaves = |line: &Line| lines.iter().filter(|l| l.quasi[a] == line.quasi[a]).count() as f64;
                let alike = |line: &Line| lines.iter().filter(|l| shown(l, a) == shown(line, a)).count() as f64;
                let full: f64 = lines.iter().map(|line| (n / leaves(line)).ln()).sum();
                let cell = |i: usize| if kept.contains(&i) { alike(&lines[i]) } else { n };
                let lost: f64 = (0..lines.len()).map(|i| (cell(i) / leaves(&lines[i])).ln()).sum();
                if full > 0.0 { weights[a] / 3.5 * lost / full } else { 0.0 }
            })
            .sum(),
    }
}

/// Looks for a table on which a node satisfies and one above it fails.
fn counterexample(criteria: &[Criterion], limit: f64, subjects: bool) -> bool {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    (0..20_000).any(|_| {
        let mut random = |n: u8| rng.random_range(0..n);
        let lines: Vec<Line> = (0..4 + random(8))
            .map(|_| Line {
                quasi: [random(4), random(2)],
                sensitive: [random(4), random(3)],
                kept: random(2),
                label: 0,
                subject: random(6),
            })
            .collect();
        let engine = Engine::of_lines(policy(criteria.to_vec(), limit, subjects, Loss::Glm), &lines);
        let evaluator = Evaluator::new(&engine.policy, &engine.rules, Arc::clone(&engine.sets));
        let satisfying: Vec<Node> = lattice().nodes().filter(|n| evaluator.evaluate(n).satisfies).collect();
        let fails = |n: &Node| !satisfying.contains(n);
        lattice().nodes().any(|node| fails(&node) && satisfying.iter().any(|s| s.is_finer_or_equal(&node)))
    })
}

#[test]
fn what_is_not_declared_monotone_is_not() {
    let security = || vec![Criterion::Confidential(unconditional()), Criterion::MinSecurity(0.7)];
    let alpha = || vec![Criterion::AlphaK { field: 0, alpha: 0.5, k: K(2) }];
    let lkc = || vec![Criterion::Lkc { l: 1, k: K(1), c: 0.6, fields: vec![1] }];
    let close = |d: Distance| vec![Criterion::TCloseness { field: 0, t: 0.35, distance: d }];
    let mut cases = vec![(alpha(), 0.4, false), (alpha(), 0.0, true), (lkc(), 0.4, false), (lkc(), 0.0, true)];
    cases.push((vec![Criterion::Confidential(conditional())], 0.4, false));
    cases.push((security(), 0.0, false));
    for distance in distances() {
        cases.push((close(distance.clone()), 0.5, false));
        cases.push((close(distance), 0.0, true));
    }
    for (criteria, limit, subjects) in cases {
        let rules = veilstream::privacy::Rules::new(&policy(criteria.clone(), limit, subjects, Loss::Glm));
        assert!(!rules.monotone(limit > 0.0), "{criteria:?}");
        assert!(counterexample(&criteria, limit, subjects), "{criteria:?} with {limit}, subjects {subjects}");
    }
}

#[test]
fn what_is_declared_monotone_is() {
    let lkc = |c: f64, fields: Vec<usize>| vec![Criterion::Lkc { l: 1, k: K(2), c, fields }];
    let close = Criterion::TCloseness { field: 0, t: 0.35, distance: Distance::Ordered { order: None } };
    let cases = [
        (vec![Criterion::AlphaK { field: 0, alpha: 0.5, k: K(2) }], 0.0, false),
        (lkc(0.6, vec![1]), 0.0, false),
        (lkc(1.0, vec![]), 0.4, true),
        (vec![close], 0.0, false),
        (vec![Criterion::PSensitive { field: 0, p: 2 }, Criterion::KAnonymity(K(2))], 0.4, true),
        (vec![Criterion::Confidential(conditional())], 0.0, true),
        (vec![Criterion::Confidential(unconditional()), Criterion::KAnonymity(K(2))], 0.4, true),
    ];
    for (criteria, limit, subjects) in cases {
        let rules = veilstream::privacy::Rules::new(&policy(criteria.clone(), limit, subjects, Loss::Glm));
        assert!(rules.monotone(limit > 0.0), "{criteria:?}");
        assert!(!counterexample(&criteria, limit, subjects), "{criteria:?}");
    }
}
