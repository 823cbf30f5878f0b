//! `auto`: the proven optimum where lattice and budget allow it, `tabu-ga` where not.
//!
//! `optimal` goes first with part of the budget. If it ends without a proof, `tabu-ga` starts from its best node with the
//! rest; the better of the two is the answer, and the bound is the one `optimal` left.

use std::time::Instant;

use rand::Rng;

use super::evaluator::Evaluator;
use super::evolutionary::tabu_ga::{TabuGa, distinct};
use super::exact::optimal::Optimal;
use super::{Budget, Outcome, Search, StopReason, keep_best};
use crate::model::lattice::Lattice;

/// The share of the budget for the proof. More proves more but leaves less to improve on what is not proven; less starts
/// the heuristic on lattices that a little more time would have settled.
const SHARE_FOR_PROOF: f64 = 0.6;

/// First the proof, then the heuristic.
#[derive(Default)]
pub(super) struct Auto {
    /// The heuristic's parameters.
    pub fallback: TabuGa,
}

impl Search for Auto {
    fn run(&self, lattice: &Lattice, evaluator: &Evaluator<'_>, budget: &Budget, rng: &mut dyn Rng) -> Outcome {
        let proof =
            Optimal.run(lattice, evaluator, &budget.part(SHARE_FOR_PROOF, evaluator.checks(), Instant::now()), rng);
        if matches!(proof.stop, StopReason::Proven | StopReason::Cancelled)
            || budget.spent(evaluator.checks()).is_some()
        {
            // With the whole budget spent on the way, the reason is the budget's and not the part's; they are the same.
            return proof;
        }
        let seeds =
            proof.best.iter().map(|b| b.recoding.coarsest()).chain(self.fallback.seeds.iter().cloned()).collect();
        let fallback = TabuGa { seeds, population: self.fallback.population, cycles: self.fallback.cycles };
        let proving = evaluator.recall();
        let mut outcome = fallback.run(lattice, evaluator, budget, rng);
        if let Some(best) = proof.best {
            keep_best(&mut outcome.best, &best.recoding.coarsest(), &best.evaluation);
        }
        let bound = proof.bound.max(outcome.bound);
        // What the heuristic found may reach what the proof had left open.
        if outcome.best.as_ref().is_some_and(|b| b.evaluation.loss <= bound) {
            outcome.stop = StopReason::Proven;
        }
        outcome.bound = outcome.best.as_ref().map_or(bound, |b| b.evaluation.loss.min(bound));
        let answer = outcome.best.iter().map(|best| best.recoding.coarsest());
        evaluator.memorise(distinct(answer.chain(proving)));
        outcome.predicted += proof.predicted;
        outcome
    }
}
