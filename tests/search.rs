//! Every search, one suite: what each of [`Algorithm::ALL`] returns is recounted naively, compared with the truth over
//! all nodes where it claims to be proven, and stopped early in every way there is. Beside it what searches rely on:
//! losses by their definitions, lower bounds, and the criteria's declarations of monotony.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use common::{Attribute, Line, Rule, Table, Worth, cases, close, flat};
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use veilstream::model::lattice::Node;
use veilstream::model::policy::{Loss, Policy};
use veilstream::model::recoding::Recoding;
use veilstream::privacy::Rules;
use veilstream::search::evaluator::Evaluator;
use veilstream::search::{Algorithm, Budget, Outcome, StopReason};

/// Every permitted node, judged naively.
struct Truth {
    worth: HashMap<Node, Worth>,
    /// The least loss of a satisfying node. A metric that has no naive definition is taken at its word here.
    least: Option<f64>,
    minimal: Vec<Vec<u8>>,
}

fn truth(table: &Table, rules: &[Rule], limit: f64, loss: Loss) -> Truth {
    let worth: HashMap<Node, Worth> =
        table.nodes().into_iter().map(|node| (node.clone(), table.worth(&node.into(), rules, limit))).collect();
    let satisfying: Vec<&Node> = worth.iter().filter(|(_, w)| w.satisfies).map(|(node, _)| node).collect();
    let policy = table.policy(rules, limit, loss);
    let checked = Rules::new(&policy);
    let evaluator = Evaluator::new(&policy, &checked, table.sets(&policy));
    let own_word = |node: &Node| evaluator.loss_by(loss, &Recoding::from(node.clone()));
    let of = |node: &&Node| worth[*node].loss(loss).unwrap_or_else(|| own_word(node));
    let least = satisfying.iter().map(of).min_by(f64::total_cmp);
    let minimal = satisfying.iter().filter(|n| !satisfying.iter().any(|m| m != *n && m.is_finer_or_equal(n)));
    let mut minimal: Vec<Vec<u8>> = minimal.map(|n| n.levels().to_vec()).collect();
    minimal.sort();
    Truth { worth, least, minimal }
}

/// Runs a search from scratch; returns the evaluator's memory of the permitted nodes too.
fn run(algorithm: Algorithm, table: &Table, policy: &Arc<Policy>, budget: &Budget, seed: u64) -> Run {
    let rules = Rules::new(policy);
    let evaluator = Evaluator::new(policy, &rules, table.sets(policy));
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let outcome = algorithm.search().run(&policy.lattice(), &evaluator, budget, &mut rng);
    let counted = |node: Node| evaluator.known(&node).filter(|e| e.satisfies).map(|e| e.loss);
    let least_counted = table.nodes().into_iter().filter_map(counted).min_by(f64::total_cmp);
    Run { outcome, checks: evaluator.checks(), least_counted }
}

struct Run {
    outcome: Outcome,
    checks: u64,
    least_counted: Option<f64>,
}

/// The others have aims of their own: the best score, the best product of security and quality, a point of the front, the
/// best of the minimal nodes.
fn minimises_loss(algorithm: Algorithm) -> bool {
    use Algorithm::{Granulation, GranulationGa, PbgEa, TopDown, TopDownExtended};
    !matches!(algorithm, TopDown | TopDownExtended | Granulation | GranulationGa | PbgEa)
}

/// What must hold of any outcome, however the search ended.
fn check(algorithm: Algorithm, table: &Table, rules: &[Rule], limit: f64, loss: Loss, truth: &Truth, run: &Run) {
    let name = algorithm.as_str();
    let Outcome { best, stop, bound, .. } = &run.outcome;
    if let Some(best) = best {
        let worth = table.worth(&best.recoding, rules, limit);
        assert!(worth.satisfies, "{name}: {:?} does not satisfy", best.recoding);
        assert_eq!(best.evaluation.suppressed, worth.suppressed as u64, "{name}");
        if let Some(true_loss) = worth.loss(loss) {
            assert!(close(best.evaluation.loss, true_loss), "{name}: {} is not {true_loss}", best.evaluation.loss);
        }
        assert!(*bound <= best.evaluation.loss + 1e-9, "{name}: bound {bound} above {}", best.evaluation.loss);
        if minimises_loss(algorithm)
            && let Some(least) = run.least_counted
        {
            assert!(best.evaluation.loss <= least + 1e-9, "{name}: forgot a better node that it counted");
        }
    } else {
        assert_eq!(run.least_counted, None, "{name}: forgot a satisfying node that it counted");
    }
    match (best, truth.least) {
        (Some(best), Some(least)) if best.recoding.node().is_some() => {
            assert!(*bound <= least + 1e-9, "{name}: bound {bound} above the truth {least}");
            let (loss, proven) = (best.evaluation.loss, *stop == StopReason::Proven);
            assert!(!proven || close(loss, least), "{name}: proven {loss}, but {least} is possible");
        }
        (None, Some(_)) => {
            assert_ne!(*stop, StopReason::Proven, "{name}: proven that nothing satisfies, but something does")
        }
        _ => {}
    }
}

fn same(a: &Outcome, b: &Outcome) -> bool {
    a.best == b.best && a.stop == b.stop && a.bound == b.bound && a.predicted == b.predicted && a.minimal == b.minimal
}

fn losses() -> impl Strategy<Value = Loss> {
    prop::sample::select(Loss::ALL.to_vec())
}

proptest! {
    #![proptest_config(common::instances(96))]

    #[test]
    fn every_search_is_right_and_repeatable((table, rules, limit) in cases(1..=4, 50), loss in losses(), seed in any::<u64>()) {
        let policy = table.policy(&rules, limit, loss);
        let truth = truth(&table, &rules, limit, loss);
        for algorithm in Algorithm::ALL {
            let name = algorithm.as_str();
            let first = run(algorithm, &table, &policy, &Budget::unlimited(), seed);
            check(algorithm, &table, &rules, limit, loss, &truth, &first);
            prop_assert!(matches!(first.outcome.stop, StopReason::Proven | StopReason::Exhausted), "{name}");
            let again = run(algorithm, &table, &policy, &Budget::unlimited(), seed);
            prop_assert!(same(&first.outcome, &again.outcome) && first.checks == again.checks, "{name}: another result");
        }
        // These three claim the optimum, and the first two all minimal nodes.
        for algorithm in [Algorithm::Exhaustive, Algorithm::BottomUp, Algorithm::Optimal] {
            let found = run(algorithm, &table, &policy, &Budget::unlimited(), seed);
            prop_assert_eq!(found.outcome.stop, StopReason::Proven);
            prop_assert_eq!(found.outcome.best.is_some(), truth.least.is_some());
            if algorithm != Algorithm::Optimal {
                let mut minimal: Vec<Vec<u8>> = found.outcome.minimal.iter().map(|n| n.levels().to_vec()).collect();
                minimal.sort();
                prop_assert_eq!(&minimal, &truth.minimal, "{}", algorithm.as_str());
            }
        }
    }

    #[test]
    fn every_search_stops_at_its_budget((table, rules, limit) in cases(2..=4, 40), loss in losses(), max in 0u64..40) {
        let policy = table.policy(&rules, limit, loss);
        let truth = truth(&table, &rules, limit, loss);
        for algorithm in Algorithm::ALL {
            let name = algorithm.as_str();
            let budget = Budget { max_checks: max, ..Budget::unlimited() };
            let stopped = run(algorithm, &table, &policy, &budget, 7);
            check(algorithm, &table, &rules, limit, loss, &truth, &stopped);
            prop_assert!(stopped.checks <= max, "{name}: {} checks of {max}", stopped.checks);
            if stopped.outcome.stop == StopReason::Budget {
                prop_assert_eq!(stopped.checks, max, "{} stopped too early", name);
            }

            let cancelled = Budget { cancelled: Arc::new(AtomicBool::new(true)), ..Budget::unlimited() };
            let late = Budget::within(Instant::now() - Duration::from_secs(1), Duration::ZERO);
            for (budget, reason) in [(cancelled, StopReason::Cancelled), (late, StopReason::Deadline)] {
                let stopped = run(algorithm, &table, &policy, &budget, 7);
                check(algorithm, &table, &rules, limit, loss, &truth, &stopped);
                prop_assert_eq!(stopped.outcome.stop, reason, "{}", name);
                prop_assert_eq!(stopped.checks, 0, "{}", name);
            }
        }
    }

    #[test]
    fn losses_follow_their_definitions_and_bounds_stay_below((table, rules, limit) in cases(1..=3, 40)) {
        for loss in Loss::ALL {
            let policy = table.policy(&rules, limit, loss);
            let checked = Rules::new(&policy);
            let evaluator = Evaluator::new(&policy, &checked, table.sets(&policy));
            let truth = truth(&table, &rules, limit, loss);
            let lattice = policy.lattice();
            for (node, worth) in &truth.worth {
                let evaluation = evaluator.evaluate(node);
                prop_assert_eq!(evaluation.satisfies, worth.satisfies, "{:?}", node);
                prop_assert_eq!(evaluation.suppressed, worth.suppressed as u64);
                let counted = evaluator.loss_by(loss, &Recoding::from(node.clone()));
                if let Some(naive) = worth.loss(loss) {
                    prop_assert!(close(counted, naive), "{loss:?} at {node:?}: {counted}, not {naive}");
                }
                prop_assert!(!worth.satisfies || close(evaluation.loss, counted));
                for above in lattice.nodes().filter(|above| node.is_finer_or_equal(above)) {
                    let of_above = evaluator.loss_by(loss, &Recoding::from(above.clone()));
                    prop_assert!(evaluator.lower_bound(node) <= of_above + 1e-12, "{loss:?} {node:?} {above:?}");
                    prop_assert!(evaluator.lower_bound(node) <= evaluator.lower_bound(&above) + 1e-12);
                    prop_assert!(evaluation.bound_above <= of_above + 1e-12, "{loss:?} {node:?} {above:?}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(common::instances(400))]

    /// Where the policy says that it is monotone, no node above a satisfying one fails.
    #[test]
    fn monotone_means_monotone((table, rules, limit) in cases(1..=3, 30)) {
        let policy = table.policy(&rules, limit, Loss::Glm);
        let checked = Rules::new(&policy);
        if Evaluator::new(&policy, &checked, table.sets(&policy)).monotone() {
            let satisfies = |node: &Node| table.worth(&node.clone().into(), &rules, limit).satisfies;
            let lattice = policy.lattice();
            for node in lattice.nodes().filter(satisfies) {
                for parent in lattice.parents(&node) {
                    prop_assert!(satisfies(&parent), "{node:?} satisfies, {parent:?} does not");
                }
            }
        }
    }
}

/// The finest node satisfies, the top does not; so the policy must not call itself monotone, and every search that
/// claims a proof must still find the finest node.
fn satisfies_only_below(table: &Table, rules: &[Rule], limit: f64) {
    let [bottom, top] = [0, 1].map(|level| Recoding::from(Node::new([level])));
    assert!(table.worth(&bottom, rules, limit).satisfies);
    assert!(!table.worth(&top, rules, limit).satisfies);
    let policy = table.policy(rules, limit, Loss::Glm);
    let checked = Rules::new(&policy);
    assert!(!Evaluator::new(&policy, &checked, table.sets(&policy)).monotone());
    for algorithm in [Algorithm::Exhaustive, Algorithm::Optimal, Algorithm::BottomUp] {
        let found = run(algorithm, table, &policy, &Budget::unlimited(), 1).outcome;
        assert_eq!(found.best.expect("the finest node").recoding, bottom, "{}", algorithm.as_str());
    }
}

#[test]
fn a_suppressed_class_spoils_the_class_it_merges_into() {
    // `a` is evenly split, `b` holds one record of one value and can be suppressed, but not once it is part of `*`.
    let table = flat(&["a", "b"], &[(0, 0, 0), (0, 0, 1), (0, 1, 2), (0, 1, 3), (1, 0, 4)], false);
    satisfies_only_below(&table, &[Rule::Entropy(0, 2.0)], 0.2);
    satisfies_only_below(&table, &[Rule::Recursive(0, 2, 1.3)], 0.2);
}

#[test]
fn people_with_several_records_spoil_the_union_of_two_good_classes() {
    // Both classes are two against two. In their union value 0 has four people and value 1 still the same two.
    let lines = [(0, 0, 1), (0, 0, 2), (0, 1, 3), (0, 1, 4), (1, 0, 5), (1, 0, 6), (1, 1, 3), (1, 1, 4)];
    let table = flat(&["a", "b"], &lines, true);
    satisfies_only_below(&table, &[Rule::Entropy(0, 2.0)], 0.0);
    satisfies_only_below(&table, &[Rule::Recursive(0, 2, 1.5)], 0.0);
}

/// Only the top of 8^12 nodes satisfies, so that nearly all nodes are predicted and hardly any is counted.
#[test]
fn a_deadline_holds_where_nothing_is_counted() {
    let path = |leaf: &str| {
        let lone = (0..7).map(|level| format!("{leaf}{level}"));
        lone.chain(["*".to_string()]).collect()
    };
    let attribute = Attribute { paths: vec![path("a"), path("b")], min_level: 0, max_level: 7, weight: 1.0 };
    let line = |leaf: usize| Line { leaves: vec![leaf; 12], sensitive: Vec::new(), subject: 0 };
    let table =
        Table { attributes: vec![attribute; 12], lines: vec![line(0), line(1)], with_subject: false, sensitive: 0 };
    let policy = table.policy(&[Rule::K(2)], 0.0, Loss::Glm);
    for algorithm in Algorithm::ALL {
        let budget = Budget::within(Instant::now(), Duration::from_millis(200));
        let rules = Rules::new(&policy);
        let evaluator = Evaluator::new(&policy, &rules, table.sets(&policy));
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        // Walking the whole lattice would take days: that this returns at all is what is asked.
        algorithm.search().run(&policy.lattice(), &evaluator, &budget, &mut rng);
        assert!(evaluator.checks() < 1_000_000, "{}", algorithm.as_str());
    }
}
