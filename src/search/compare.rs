//! Every search on the same window, side by side: what `search --algorithm all` prints.

use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::evaluator::Evaluator;
use super::{Algorithm, Budget, Outcome, Tuning};
use crate::model::lattice::Lattice;

/// What one search did.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Which search.
    pub algorithm: Algorithm,
    /// What it found.
    pub outcome: Outcome,
    /// Different nodes it counted.
    pub checks: u64,
    /// How long it took.
    pub elapsed: Duration,
}

impl Comparison {
    /// The loss of its best node, if it found one.
    pub fn loss(&self) -> Option<f64> {
        self.outcome.best.as_ref().map(|b| b.evaluation.loss)
    }
}

/// Runs each of `algorithms` with the same seed and its own budget. `fresh` makes an evaluator over sets that nobody has
/// used yet, so that no search profits from another's counts; what it costs is not part of the times.
pub fn compare<'a>(
    algorithms: &[Algorithm],
    tuning: &Tuning,
    lattice: &Lattice,
    mut fresh: impl FnMut() -> Evaluator<'a>,
    time_budget: Duration,
    max_checks: Option<u64>,
    seed: u64,
) -> Vec<Comparison> {
    let mut run = |&algorithm: &Algorithm| {
        let evaluator = fresh();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let started = Instant::now();
        let mut budget = Budget::within(started, time_budget);
        budget.max_checks = max_checks.unwrap_or(u64::MAX);
        let outcome = algorithm.search_with(tuning).run(lattice, &evaluator, &budget, &mut rng);
        Comparison { algorithm, outcome, checks: evaluator.checks(), elapsed: started.elapsed() }
    };
    algorithms.iter().map(&mut run).collect()
}
