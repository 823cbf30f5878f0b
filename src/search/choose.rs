//! From a search's outcome to the recoding of the release: how the levels may move from release to release.
//!
//! Two incomparable recodings over the same people can be intersected, so free movement is not the default. A cut of an
//! earlier release is first extended to the values that came since; those it covers stay as they were.

use std::time::{Duration, Instant};

use rand::Rng;

use super::evaluator::{Evaluation, Evaluator};
use super::objectives::Front;
use super::{Algorithm, Budget, Outcome, StopReason, Tuning};
use crate::frequency::store::Origins;
use crate::model::lattice::{Lattice, Node};
use crate::model::policy::Policy;
use crate::model::recoding::Recoding;
use crate::privacy::Rules;

/// How the recoding may move from release to release.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Levels {
    /// Anywhere. Unsafe where people return.
    Free,
    /// Stays while it satisfies and its loss is near the best.
    #[default]
    Sticky,
    /// Only coarsens.
    Monotone,
    /// Never moves: these levels, or those of the first release.
    Fixed(Option<Node>),
}

/// How to search and how to choose.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Which search.
    pub algorithm: Algorithm,
    /// How long it may take.
    pub time_budget: Duration,
    /// How many nodes it may count.
    pub max_checks: Option<u64>,
    /// How the recoding may move.
    pub levels: Levels,
    /// `sticky` stays while its loss is at most this share above the best's.
    pub keep_within: f64,
    /// Parameters of the evolutionary searches.
    pub tuning: Tuning,
}

impl Choice {
    /// The rules of `policy`, counting what the search wants to see besides.
    pub fn rules(&self, policy: &Policy) -> Rules {
        let wanted = match self.algorithm {
            Algorithm::PbgEa => self.tuning.objectives.as_slice(),
            _ => &[],
        };
        Rules::new(policy).also_counting(wanted.iter().flat_map(|o| o.facets(policy)))
    }
}

/// The recoding of a release, and how it was found.
#[derive(Debug, Clone)]
pub struct Chosen {
    /// The recoding.
    pub recoding: Recoding,
    /// Its evaluation; it may fail the policy, and then the window is held or suppressed.
    pub evaluation: Evaluation,
    /// The search that was run.
    pub algorithm: Algorithm,
    /// Why it ended.
    pub stop: StopReason,
    /// The least loss that any permitted recoding could have.
    pub bound: f64,
    /// Nodes counted.
    pub checks: u64,
    /// Nodes whose status was derived.
    pub predicted: u64,
    /// Nodes in the lattice that was permitted.
    pub nodes: u128,
    /// How long the search took.
    pub elapsed: Duration,
    /// The trade-off the node was picked from, if the search looks for one.
    pub front: Option<Front>,
    /// How the frequency sets were made that it looked at.
    pub origins: Origins,
}

impl Chosen {
    /// A recoding that was chosen before, evaluated again.
    pub fn given(node: Node, evaluator: &Evaluator<'_>) -> Self {
        let evaluation = evaluator.evaluate(&node);
        Self {
            bound: evaluation.loss,
            recoding: node.into(),
            evaluation,
            algorithm: Algorithm::Auto,
            stop: StopReason::Exhausted,
            checks: evaluator.checks(),
            predicted: 0,
            nodes: 1,
            elapsed: Duration::ZERO,
            front: None,
            origins: evaluator.origins(),
        }
    }
}

/// Searches what `choice.levels` permits after `last`, and picks one.
pub fn choose(
    choice: &Choice,
    lattice: &Lattice,
    last: Option<&Recoding>,
    evaluator: &Evaluator<'_>,
    rng: &mut dyn Rng,
) -> Chosen {
    let started = Instant::now();
    let last = last.map(|last| last.extended(evaluator.sets().domains(), lattice.top()));
    let last = last.as_ref();
    let permitted = permitted(&choice.levels, lattice, last);
    let (outcome, (recoding, evaluation)) = match (&choice.levels, last) {
        (Levels::Fixed(None), Some(cuts @ Recoding::Cuts(_))) => stay(cuts, evaluator),
        _ => {
            let mut budget = Budget::within(started, choice.time_budget);
            budget.max_checks = choice.max_checks.unwrap_or(u64::MAX);
            let search = match (&choice.levels, last) {
                (Levels::Monotone, Some(last)) => choice.algorithm.search_from(last, &choice.tuning),
                _ => choice.algorithm.search_with(&choice.tuning),
            };
            let outcome = search.run(&permitted, evaluator, &budget, rng);
            let picked = pick(choice, lattice, &permitted, last, evaluator, &outcome);
            (outcome, picked)
        }
    };
    Chosen {
        recoding,
        evaluation,
        algorithm: choice.algorithm,
        stop: outcome.stop,
        bound: outcome.bound,
        checks: evaluator.checks(),
        predicted: outcome.predicted,
        nodes: permitted.size(),
        elapsed: started.elapsed(),
        front: outcome.front,
        origins: evaluator.origins(),
    }
}

/// The one recoding that is permitted.
fn stay(recoding: &Recoding, evaluator: &Evaluator<'_>) -> (Outcome, (Recoding, Evaluation)) {
    let evaluation = evaluator.evaluate_recoding(recoding);
    let outcome = Outcome {
        best: None,
        stop: StopReason::Proven,
        bound: evaluation.loss,
        predicted: 0,
        minimal: Vec::new(),
        front: None,
    };
    (outcome, (recoding.clone(), evaluation))
}

/// The nodes that may be chosen. Above a cut these start at the least node above it.
fn permitted(levels: &Levels, lattice: &Lattice, last: Option<&Recoding>) -> Lattice {
    match (levels, last) {
        (Levels::Fixed(Some(node)), _) => Lattice::new(node.clone(), node.clone()),
        (Levels::Fixed(None), Some(last)) => Lattice::new(last.coarsest(), last.coarsest()),
        (Levels::Monotone, Some(last)) => Lattice::new(last.coarsest(), lattice.join(lattice.top(), &last.coarsest())),
        _ => lattice.clone(),
    }
}

fn pick(
    choice: &Choice,
    lattice: &Lattice,
    permitted: &Lattice,
    last: Option<&Recoding>,
    evaluator: &Evaluator<'_>,
    outcome: &Outcome,
) -> (Recoding, Evaluation) {
    let best = outcome.best.as_ref();
    // A cut lies below the nodes that `monotone` may search, so it is asked for by itself, and needs only not be worse.
    let margin = match (&choice.levels, last) {
        (Levels::Sticky, Some(_)) if best.is_some() => Some(choice.keep_within),
        (Levels::Monotone, Some(Recoding::Cuts(_))) => Some(0.0),
        _ => None,
    };
    if let (Some(margin), Some(last)) = (margin, last)
        && lattice.contains(&last.finest())
        && lattice.contains(&last.coarsest())
    {
        let evaluation = evaluator.evaluate_recoding(last);
        let near = best.is_none_or(|best| evaluation.loss <= best.evaluation.loss * (1.0 + margin));
        if evaluation.satisfies && near {
            return (last.clone(), evaluation);
        }
    }
    match best {
        Some(best) => (best.recoding.clone(), best.evaluation.clone()),
        None => {
            // Nothing found in time: the coarsest node is the likeliest to satisfy, and its evaluation says whether it does.
            let top = permitted.top().clone();
            let evaluation = evaluator.evaluate(&top);
            (top.into(), evaluation)
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;
    use crate::model::hierarchy::{Hierarchy, PrefixSpec};
    use crate::search::fixture::{Table, policy};

    /// A window of codes after one that held the codes of `FIRST`.
    fn window(codes: &str) -> Table {
        let records = |codes: &'static str| codes.split(' ').map(|code| vec![code.to_owned()]).collect::<Vec<_>>();
        let own: Vec<Vec<String>> = codes.split(' ').map(|code| vec![code.to_owned()]).collect();
        let policy = policy(vec![("code", Hierarchy::prefix(PrefixSpec::new(3)).unwrap())], &[], 2);
        Table::after(policy, &records(FIRST), &own)
    }

    fn chosen(table: &Table, algorithm: Algorithm, levels: Levels, last: Option<&Recoding>) -> (Recoding, Vec<String>) {
        let time_budget = Duration::from_secs(600);
        let choice =
            Choice { algorithm, time_budget, max_checks: None, levels, keep_within: 0.02, tuning: Tuning::default() };
        let rng = &mut ChaCha8Rng::seed_from_u64(0);
        let chosen = choose(&choice, &table.policy.lattice(), last, &table.evaluator(), rng);
        assert!(chosen.evaluation.satisfies);
        let column = &chosen.recoding.columns(&table.dictionaries.quasi)[0];
        let labels = column.map().iter().map(|&code| column.label(code).to_owned()).collect();
        (chosen.recoding, labels)
    }

    const FIRST: &str = "000 000 001 010 020 020 100 101";

    #[test]
    fn a_cut_moves_as_the_levels_say() {
        let (cut, labels) = chosen(&window(FIRST), Algorithm::SubtreeBottomUp, Levels::Free, None);
        assert_eq!(labels, ["0**", "0**", "0**", "0**", "10*", "10*"]);
        assert!(cut.node().is_none());
        // More of everything: a finer cut would do, and a new code stands apart.
        let more = window(&format!("{FIRST} {FIRST} 550 550"));
        let (_, free) = chosen(&more, Algorithm::SubtreeBottomUp, Levels::Free, Some(&cut));
        assert_eq!(free, ["000", "001", "010", "020", "100", "101", "550"]);
        let (_, sticky) = chosen(&more, Algorithm::SubtreeBottomUp, Levels::Sticky, Some(&cut));
        assert_eq!(sticky, free, "its loss is far from the best");
        for levels in [Levels::Monotone, Levels::Fixed(None)] {
            for algorithm in [Algorithm::SubtreeBottomUp, Algorithm::Optimal] {
                let (_, kept) = chosen(&more, algorithm, levels.clone(), Some(&cut));
                assert_eq!(kept, ["0**", "0**", "0**", "0**", "10*", "10*", "5**"]);
            }
        }
        // The same window again: the cut is as good as the best, and stays.
        let (same, _) = chosen(&window(FIRST), Algorithm::SubtreeBottomUp, Levels::Sticky, Some(&cut));
        assert_eq!(same, cut);
    }

    #[test]
    fn a_cut_only_coarsens() {
        let (cut, _) = chosen(&window(FIRST), Algorithm::SubtreeBottomUp, Levels::Free, None);
        // 10* is alone now, and so is the new code.
        let fewer = window("000 000 001 010 020 020 100 110");
        for algorithm in [Algorithm::SubtreeBottomUp, Algorithm::Optimal] {
            let (coarser, labels) = chosen(&fewer, algorithm, Levels::Monotone, Some(&cut));
            assert_eq!(labels, ["0**", "0**", "0**", "0**", "1**", "1**", "1**"]);
            let last = cut.extended(&fewer.dictionaries.quasi, fewer.policy.lattice().top());
            let domains = &fewer.dictionaries.quasi;
            assert!(last.cuts(domains)[0].is_finer_or_equal(&coarser.cuts(domains)[0]));
        }
    }
}
