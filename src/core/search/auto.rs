//! `auto`: the proven optimum where lattice and budget allow it, `tabu-ga` where not.
//!
//! `optimal` goes first with part of the budget. If it ends without a proof, its best node is improved step by step, and then
//! `tabu-ga` starts from that with the rest; the best of all is the answer, and the bound is the one `optimal` left.

use std::time::Instant;

use rand::{Rng, RngExt};

use super::evaluator::Evaluator;
use super::evolutionary::tabu_ga::{TabuGa, distinct};
use super::exact::optimal::Optimal;
use super::trials::{Number, Trials};
use super::{Budget, Outcome, Search, StopReason, TIE, keep_best};
use crate::model::lattice::{Lattice, Node};

/// The share of the budget for the proof. More proves more but leaves less to improve on what is not proven; less starts
/// the heuristic on lattices that a little more time would have settled.
const SHARE_FOR_PROOF: f64 = 0.8;

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
        let improved = proof.best.as_ref().and_then(|best| {
            let mut trials = Trials::new(lattice, evaluator, budget);
            let ended = descend(&mut trials, best.recoding.coarsest(), rng);
            trials.outcome(ended).best
        });
        let seeds = improved.iter().map(|b| b.recoding.coarsest()).chain(self.fallback.seeds.iter().cloned()).collect();
        let TabuGa { cycle, walking, .. } = &self.fallback;
        let fallback = TabuGa { seeds, cycle: cycle.clone(), walking: walking.clone() };
        let proving = evaluator.recall();
        let mut outcome = fallback.run(lattice, evaluator, budget, rng);
        for best in proof.best.into_iter().chain(improved) {
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

/// Goes from a satisfying node to one around it that loses less, and on from there, until there is none: one attribute at any
/// finer level, or one attribute one level finer and another one level coarser.
fn descend(trials: &mut Trials<'_, '_>, from: Node, rng: &mut dyn Rng) -> Result<(), StopReason> {
    let mut here = trials.number(from);
    trials.settle(here)?;
    trials.weigh(here)?;
    'steps: while let Some(loss) = trials.loss(here) {
        let node = trials.node(here);
        let around = finer_by_one(trials.lattice, &node).chain(exchanged(trials.lattice, &node));
        let mut around: Vec<Number> = around.collect::<Vec<_>>().into_iter().map(|node| trials.number(node)).collect();
        around.retain(|&number| trials.bound(number) < loss - TIE);
        for at in (1..around.len()).rev() {
            around.swap(at, rng.random_range(0..=at));
        }
        for number in around {
            trials.settle(number)?;
            trials.weigh(number)?;
            if trials.loss(number).is_some_and(|less| less < loss - TIE) {
                here = number;
                continue 'steps;
            }
        }
        break;
    }
    Ok(())
}

/// Each attribute at every finer level.
fn finer_by_one<'a>(lattice: &'a Lattice, node: &'a Node) -> impl Iterator<Item = Node> + 'a {
    let attributes = lattice.bottom().levels().iter().zip(node.levels()).enumerate();
    attributes.flat_map(move |(attribute, (&low, &level))| (low..level).map(move |level| node.with(attribute, level)))
}

/// Each attribute one level finer with each other one level coarser.
fn exchanged<'a>(lattice: &'a Lattice, node: &'a Node) -> impl Iterator<Item = Node> + 'a {
    lattice.children(node).flat_map(move |finer| {
        let coarser: Vec<Node> = lattice.parents(&finer).filter(|other| other != node).collect();
        coarser.into_iter()
    })
}
