//! Warm searches against cold ones: a window whose records come and go, searched after every change with what the last
//! search left, finds what a search of the same records finds that knows nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::sync::Arc;

use common::{cases, close};
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use veilstream::frequency::counter;
use veilstream::frequency::store::FrequencySets;
use veilstream::model::policy::{Loss, Policy};
use veilstream::privacy::Rules;
use veilstream::search::evaluator::{Evaluator, Trail};
use veilstream::search::{Algorithm, Budget, Candidate, Outcome, StopReason};

/// Searches, and says how many nodes it counted.
fn run(
    algorithm: Algorithm,
    policy: &Policy,
    rules: &Rules,
    sets: Arc<dyn FrequencySets>,
    trail: Option<&Arc<Trail>>,
) -> (Outcome, u64) {
    let mut evaluator = Evaluator::new(policy, rules, sets);
    if let Some(trail) = trail {
        evaluator = evaluator.warm(Arc::clone(trail));
    }
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let outcome = algorithm.search().run(&policy.lattice(), &evaluator, &Budget::unlimited(), &mut rng);
    let checks = evaluator.checks();
    (outcome, checks)
}

/// The same answer; the order in which classes are summed may show in the last digit of its loss.
fn alike(a: &Option<Candidate>, b: &Option<Candidate>) -> bool {
    let told = |c: &Candidate| (c.recoding.clone(), c.evaluation.suppressed, c.evaluation.classes, c.evaluation.k);
    let loss = |c: &Option<Candidate>| c.as_ref().map_or(0.0, |c| c.evaluation.loss);
    a.as_ref().map(told) == b.as_ref().map(told) && close(loss(a), loss(b))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn a_warm_search_finds_what_a_cold_one_finds(
        (table, asked, limit) in cases(1..=4, 60),
        loss in prop::sample::select(Loss::ALL.to_vec()),
        // Some so large that everything is counted again, most so small that it is followed.
        changes in prop::collection::vec(
            prop_oneof![3 => prop::collection::vec(any::<u16>(), 1..4), 1 => prop::collection::vec(any::<u16>(), 4..20)],
            1..8,
        ),
    ) {
        let policy = table.policy(&asked, limit, loss);
        let (encoder, rows) = table.encode(&policy);
        let dictionaries = encoder.dictionaries();
        let rules = Rules::new(&policy).bind(&dictionaries.values());
        let mut counter = counter::counter(&encoder.sizes(), rules.counting()).expect("narrow enough");
        // Half of the records are in at first; a change takes out what is in and puts in what is not.
        let mut inside: Vec<bool> = (0..rows.len()).map(|i| i % 2 == 0).collect();
        (0..rows.len()).filter(|&i| inside[i]).for_each(|i| counter.add(&rows, i..i + 1));
        let trails: [Arc<Trail>; 5] = Default::default();
        for change in changes {
            for die in change {
                let i = usize::from(die) % rows.len();
                if inside[i] { counter.retract(&rows, &[i]) } else { counter.add(&rows, i..i + 1) }
                inside[i] = !inside[i];
            }
            let mut afresh = counter::counter(&encoder.sizes(), rules.counting()).expect("narrow enough");
            (0..rows.len()).filter(|&i| inside[i]).for_each(|i| afresh.add(&rows, i..i + 1));
            let sets = |counter: &dyn counter::Counter| counter.store(&dictionaries.quasi);
            let exact = [Algorithm::Optimal, Algorithm::BottomUp, Algorithm::Auto];
            for (algorithm, trail) in exact.into_iter().zip(&trails) {
                let (warm, _) = run(algorithm, &policy, &rules, sets(&*counter), Some(trail));
                let (cold, _) = run(algorithm, &policy, &rules, sets(&*afresh), None);
                prop_assert_eq!(warm.stop, StopReason::Proven);
                let answer = |outcome: &Outcome| outcome.best.as_ref().map(|best| best.recoding.clone());
                prop_assert_eq!(answer(&warm), answer(&cold), "{}", algorithm.as_str());
                // Only a search that began anew knows all minimal nodes.
                prop_assert!(warm.minimal.is_empty() || warm.minimal == cold.minimal, "{}", algorithm.as_str());
                let losses = [&warm, &cold].map(|outcome| outcome.best.as_ref().map_or(0.0, |b| b.evaluation.loss));
                prop_assert!(close(losses[0], losses[1]));
            }
            // The heuristics remember a good population; what they return must hold on the records at hand.
            for (algorithm, trail) in [Algorithm::TabuGa, Algorithm::PbgEa].into_iter().zip(&trails[3..]) {
                let (warm, _) = run(algorithm, &policy, &rules, sets(&*counter), Some(trail));
                let (truth, _) = run(Algorithm::Exhaustive, &policy, &rules, sets(&*afresh), None);
                match (warm.best, truth.best) {
                    (Some(warm), Some(least)) => {
                        prop_assert!(warm.evaluation.satisfies);
                        prop_assert!(warm.evaluation.loss >= least.evaluation.loss - 1e-9);
                    }
                    (Some(_), None) => prop_assert!(false, "{}: nothing satisfies", algorithm.as_str()),
                    _ => {}
                }
            }
        }
    }

    /// Nothing has changed: the nodes that proved the answer prove it again, and no others are counted.
    #[test]
    fn the_same_records_are_proven_by_the_same_nodes((table, asked, limit) in cases(2..=4, 60)) {
        let policy = table.policy(&asked, limit, Loss::Glm);
        let (encoder, rows) = table.encode(&policy);
        let dictionaries = encoder.dictionaries();
        let rules = Rules::new(&policy).bind(&dictionaries.values());
        let mut counter = counter::counter(&encoder.sizes(), rules.counting()).expect("narrow enough");
        counter.add(&rows, 0..rows.len());
        for algorithm in [Algorithm::Optimal, Algorithm::BottomUp] {
            let trail = Arc::new(Trail::default());
            let again = || run(algorithm, &policy, &rules, counter.store(&dictionaries.quasi), Some(&trail));
            let ((first, anew), (second, proven), (third, fewer)) = (again(), again(), again());
            for other in [&second.best, &third.best] {
                prop_assert!(alike(&first.best, other), "{:?} is not {:?}", first.best, other);
            }
            prop_assert!(fewer <= proven, "{}: {fewer} checks after {proven}", algorithm.as_str());
            // What proves the answer of `bottom-up` is not how it was found.
            prop_assert!(algorithm != Algorithm::Optimal || proven <= anew, "{proven} checks after {anew}");
        }
    }
}
