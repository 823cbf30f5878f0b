//! From a search's outcome to the recoding of the release: how the levels may move from release to release.
//!
//! Two incomparable recodings over the same people can be intersected, so free movement is not the default. A cut of an
//! earlier release is first extended to the values that came since; those it covers stay as they were.

mod chains;

use std::time::{Duration, Instant};

use rand::Rng;

pub(in crate::search) use chains::Permitted;

use super::aim::Aim;
use super::evaluator::{Evaluation, Evaluator};
use super::front::objectives::Front;
use super::{Algorithm, Budget, Candidate, Outcome, StopReason, Tuning};
use crate::frequency::store::Origins;
use crate::model::lattice::{Lattice, Node};
use crate::model::policy::{Loss, Policy, RecodingKind};
use crate::model::recoding::Recoding;
use crate::model::release::manifest::UnmetBound;
use crate::privacy::Rules;

/// How the recoding may move from release to release.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Levels {
    /// Anywhere. Unsafe where people return.
    Free,
    /// Stays while it satisfies and is nearly as good as the best by the search's own aim.
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
    /// `sticky` stays while it is at most this share worse than the best, by the search's own aim.
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

    /// The same search, or the default one where it makes another kind of recoding, within `time`.
    #[must_use]
    pub fn for_recoding(&self, recoding: RecodingKind, time: Duration) -> Self {
        let algorithm = match recoding {
            RecodingKind::Subtree => Algorithm::SubtreeBottomUp,
            _ if self.algorithm == Algorithm::SubtreeBottomUp => Algorithm::Auto,
            _ => self.algorithm,
        };
        Self { algorithm, time_budget: self.time_budget.min(time), ..self.clone() }
    }

    /// Why a recoding cannot be made under this policy; `None` if it can.
    pub fn ruled_out(&self, recoding: RecodingKind, policy: &Policy) -> Option<String> {
        if recoding != RecodingKind::FullDomain && policy.branches() {
            return Some("it follows one hierarchy per attribute, and `any_of` has several".into());
        }
        match (recoding, policy.loss, &self.levels) {
            (RecodingKind::Local, loss @ (Loss::Ql | Loss::Score | Loss::Entropy), _) => {
                Some(format!("`{}` measures a whole column at one level", loss.as_str()))
            }
            (RecodingKind::Local, _, Levels::Fixed(Some(_))) => Some("it does not go with `fixed_levels`".into()),
            _ => None,
        }
    }

    /// The bounds of the search that a recoding does not meet.
    pub fn unmet_bounds(&self, evaluator: &Evaluator<'_>, recoding: &Recoding) -> Vec<UnmetBound> {
        self.algorithm.search_with(&self.tuning).aim(evaluator, None).unmet_bounds(evaluator, recoding)
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
    /// The minimal satisfying nodes, from searches that know them all.
    pub minimal: Vec<Node>,
    /// The bounds of the search that it does not meet.
    pub unmet_bounds: Vec<UnmetBound>,
    /// How the frequency sets were made that it looked at.
    pub origins: Origins,
}

impl Chosen {
    /// A recoding that was chosen before, evaluated again.
    pub fn given(recoding: Recoding, choice: &Choice, evaluator: &Evaluator<'_>) -> Self {
        let evaluation = evaluator.evaluate_recoding(&recoding);
        Self {
            unmet_bounds: choice.unmet_bounds(evaluator, &recoding),
            recoding,
            evaluation,
            algorithm: Algorithm::Auto,
            stop: StopReason::Exhausted,
            checks: evaluator.checks(),
            predicted: 0,
            nodes: 1,
            elapsed: Duration::ZERO,
            front: None,
            minimal: Vec::new(),
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
    let (outcome, (recoding, evaluation), unmet_bounds) = match (&choice.levels, last) {
        (Levels::Fixed(None), Some(cuts @ Recoding::Cuts(_))) => {
            let (outcome, stays) = stay(cuts, evaluator);
            (outcome, stays, Vec::new())
        }
        _ => {
            let mut budget = Budget::within(started, choice.time_budget);
            budget.max_checks = choice.max_checks.unwrap_or(u64::MAX);
            let search = match (&choice.levels, last) {
                (Levels::Monotone, Some(last)) => choice.algorithm.search_from(last, &choice.tuning),
                _ => choice.algorithm.search_with(&choice.tuning),
            };
            let outcome = permitted.search(&*search, evaluator, &budget, rng);
            let aim = search.aim(evaluator, outcome.front.as_ref());
            let kept = kept(choice, lattice, last, evaluator, &aim, &outcome);
            let picked = kept.unwrap_or_else(|| found(&outcome, &permitted.lattice, evaluator));
            let unmet_bounds = aim.unmet_bounds(evaluator, &picked.0);
            (outcome, picked, unmet_bounds)
        }
    };
    Chosen {
        recoding,
        evaluation,
        algorithm: choice.algorithm,
        stop: outcome.stop,
        checks: evaluator.checks(),
        predicted: outcome.predicted,
        nodes: permitted.size(evaluator.policy()),
        elapsed: started.elapsed(),
        front: outcome.front,
        minimal: outcome.minimal,
        unmet_bounds,
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
fn permitted(levels: &Levels, lattice: &Lattice, last: Option<&Recoding>) -> Permitted {
    let lattice = match (levels, last) {
        (Levels::Fixed(Some(node)), _) => Lattice::new(node.clone(), node.clone()),
        (Levels::Fixed(None), Some(last)) => Lattice::new(last.coarsest(), last.coarsest()),
        (Levels::Monotone, Some(last)) => Lattice::new(last.coarsest(), lattice.join(lattice.top(), &last.coarsest())),
        _ => lattice.clone(),
    };
    let above = last.filter(|_| *levels == Levels::Monotone).map(Recoding::coarsest);
    Permitted { lattice, above }
}

/// The last recoding, if it may stay: it satisfies, and by the aim it is near the best that was found.
fn kept(
    choice: &Choice,
    lattice: &Lattice,
    last: Option<&Recoding>,
    evaluator: &Evaluator<'_>,
    aim: &Aim,
    outcome: &Outcome,
) -> Option<(Recoding, Evaluation)> {
    let last = last?;
    // A cut lies below the nodes that `monotone` may search, so it is asked for by itself, and needs only not be worse.
    let margin = match (&choice.levels, last) {
        (Levels::Sticky, _) => choice.keep_within,
        (Levels::Monotone, Recoding::Cuts(_)) => 0.0,
        _ => return None,
    };
    if !lattice.contains(&last.finest()) || !lattice.contains(&last.coarsest()) {
        return None;
    }
    let evaluation = evaluator.evaluate_recoding(last);
    if !evaluation.satisfies {
        return None;
    }
    let near = |best: &Candidate| {
        let best = aim.rank(evaluator, &best.recoding, &best.evaluation);
        aim.rank(evaluator, last, &evaluation).is_within(margin, best)
    };
    outcome.best.as_ref().is_none_or(near).then(|| (last.clone(), evaluation))
}

/// The best that was found.
fn found(outcome: &Outcome, permitted: &Lattice, evaluator: &Evaluator<'_>) -> (Recoding, Evaluation) {
    match &outcome.best {
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
    use crate::model::confidential::{Field, Formula, Sentence};
    use crate::model::hierarchy::{Hierarchy, PrefixSpec};
    use crate::model::policy::{Criterion, Loss, SuppressionLimit};
    use crate::model::schema::Role;
    use crate::search::fixture::{self, Table, policy};
    use crate::search::front::objectives::{Objective, Prefer};

    /// A window of codes after one that held the codes of `FIRST`.
    fn window(codes: &str) -> Table {
        let records = |codes: &'static str| codes.split(' ').map(|code| vec![code.to_owned()]).collect::<Vec<_>>();
        let own: Vec<Vec<String>> = codes.split(' ').map(|code| vec![code.to_owned()]).collect();
        let policy = policy(vec![("code", Hierarchy::prefix(PrefixSpec::new(3)).unwrap())], &[], 2);
        Table::after(policy, &records(FIRST), &own)
    }

    fn choice(algorithm: Algorithm) -> Choice {
        fixture::choice(algorithm, Levels::Sticky)
    }

    fn chosen(table: &Table, algorithm: Algorithm, levels: Levels, last: Option<&Recoding>) -> (Recoding, Vec<String>) {
        let choice = Choice { levels, ..choice(algorithm) };
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

    /// Two attributes of four values each and nothing above them but `*`.
    fn pairs(lines: &[&str], criteria: &[Criterion]) -> Table {
        let flat = || Hierarchy::parse_csv(b"a;*\nb;*\nc;*\nd;*\n").unwrap();
        let mut policy = policy(vec![("x", flat()), ("y", flat())], &[("s", Role::Sensitive)], 2);
        policy.criteria.extend_from_slice(criteria);
        policy.quasi[0].priority = 10;
        policy.quasi[0].weight = 10.0;
        // Counts records, so that both attributes cost the same.
        policy.loss = Loss::Dm;
        let records: Vec<Vec<&str>> = lines.iter().map(|line| line.split(' ').collect()).collect();
        Table::new(policy, &records)
    }

    fn node_after(table: &Table, algorithm: Algorithm, tuning: Tuning, last: Option<[u8; 2]>) -> Chosen {
        let last = last.map(|levels| Recoding::from(Node::new(levels)));
        let choice = Choice { tuning, ..choice(algorithm) };
        let rng = &mut ChaCha8Rng::seed_from_u64(0);
        choose(&choice, &table.policy.lattice(), last.as_ref(), &table.evaluator(), rng)
    }

    /// Either attribute may be shown: by `dm` both cost the same, by priority and by weight the first is worth ten times more.
    const EITHER: [&str; 4] = ["a a 1", "a b 2", "b a 2", "b b 1"];

    #[test]
    fn stickiness_follows_priorities() {
        let table = pairs(&EITHER, &[]);
        for algorithm in [Algorithm::TopDown, Algorithm::TopDownExtended] {
            let chosen = node_after(&table, algorithm, Tuning::default(), Some([1, 0]));
            assert_eq!(chosen.recoding, Node::new([0, 1]).into(), "{}", algorithm.as_str());
        }
        // By loss alone the last one is as good as any.
        let chosen = node_after(&table, Algorithm::Optimal, Tuning::default(), Some([1, 0]));
        assert_eq!(chosen.recoding, Node::new([1, 0]).into());
    }

    #[test]
    fn stickiness_follows_security_times_quality() {
        let says = Formula::In(Field::Sensitive(0), vec!["1".into()]);
        let sentence = Sentence { name: "s".into(), says, when: None, damage: 1.0, prior: None };
        let mut table = pairs(&EITHER, &[Criterion::Confidential(vec![sentence])]);
        table.rules = table.rules.bind(&table.dictionaries.values());
        let chosen = node_after(&table, Algorithm::GranulationGa, Tuning::default(), Some([1, 0]));
        assert_eq!(chosen.recoding, Node::new([0, 1]).into());
    }

    fn bounded(k: f64) -> Tuning {
        Tuning { prefer: Prefer::Bounds(vec![(Objective::K, k)]), ..Tuning::default() }
    }

    /// With the second attribute at its top the first has classes of two and of six; the other way round of four and four.
    fn uneven() -> Table {
        let lines = ["a a 1", "a b 1", "b a 1", "b a 1", "b a 1", "b b 1", "b b 1", "b b 1"];
        let mut table = pairs(&lines, &[]);
        let policy = std::sync::Arc::get_mut(&mut table.policy).unwrap();
        policy.quasi[0].weight = 1.0;
        policy.loss = Loss::Glm;
        table
    }

    #[test]
    fn stickiness_keeps_to_the_bounds() {
        for last in [[0, 1], [1, 0]] {
            let chosen = node_after(&uneven(), Algorithm::PbgEa, bounded(4.0), Some(last));
            assert_eq!(chosen.recoding, Node::new([1, 0]).into());
            assert_eq!((chosen.evaluation.k, chosen.unmet_bounds), (4, Vec::new()));
        }
    }

    #[test]
    fn bounds_that_cannot_be_met_are_met_as_far_as_possible() {
        for last in [None, Some([0, 1])] {
            let chosen = node_after(&uneven(), Algorithm::PbgEa, bounded(1000.0), last);
            assert_eq!(chosen.evaluation.k, 8, "the nearest, not the least loss");
            assert_eq!(chosen.unmet_bounds, [UnmetBound::new("k", 1000.0, 8.0)]);
        }
        // A class of two may be left out, but the policy publishes it: the bound is not met there.
        let mut table = uneven();
        std::sync::Arc::get_mut(&mut table.policy).unwrap().suppression = SuppressionLimit(0.25);
        let chosen = node_after(&table, Algorithm::PbgEa, bounded(5.0), None);
        assert_eq!((chosen.evaluation.k, chosen.unmet_bounds), (8, Vec::new()));
        let table = uneven();
        let node = Node::new([0, 1]);
        let choice = Choice { tuning: bounded(4.0), ..choice(Algorithm::PbgEa) };
        let given = Chosen::given(node.into(), &choice, &table.evaluator());
        assert_eq!(given.unmet_bounds, [UnmetBound::new("k", 4.0, 2.0)], "of a release that is made again too");
    }
}
