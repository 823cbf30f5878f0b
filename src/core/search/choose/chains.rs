//! Searching where hierarchies have alternatives ([`Alternatives`](crate::model::hierarchy::Alternatives)).
//!
//! A search knows lattices, in which each attribute has one chain of levels. So it runs once along each combination of chains, over
//! the same finest counts, and the time and checks that are left are shared evenly among the combinations to come. What
//! it finds is named by the numbers of the levels, and put together: the best by the search's own aim, the minimal nodes that no
//! other one refines, one front. Every node is on some combination, so what is proven along each of them is proven.
//! Invariant: without alternatives this is the search itself.

use std::time::Instant;

use rand::Rng;

use crate::model::lattice::{Lattice, Level, Node};
use crate::model::policy::{Policy, QuasiIdentifier};
use crate::model::recoding::Recoding;
use crate::search::evaluator::Evaluator;
use crate::search::evolutionary::pbg_ea::front;
use crate::search::front::archive::{Point, non_dominated};
use crate::search::front::objectives::{Front, Objectives, Prefer};
use crate::search::{Budget, Candidate, Outcome, Search, StopReason};

/// The nodes that a search may find.
pub(in crate::search) struct Permitted {
    /// Between its bottom and its top.
    pub(in crate::search) lattice: Lattice,
    /// Only what this node refines.
    pub(in crate::search) above: Option<Node>,
}

/// The permitted levels of one chain of one attribute.
#[derive(Clone)]
struct Piece {
    /// Which chain; `None` if there are no alternatives.
    chain: Option<usize>,
    /// The number of each level of the chain.
    numbers: Vec<Level>,
    /// The finest and the coarsest level, as the chain counts them.
    range: (Level, Level),
}

impl Piece {
    /// The numbers of the permitted levels.
    fn permitted(&self) -> &[Level] {
        &self.numbers[usize::from(self.range.0)..=usize::from(self.range.1)]
    }
}

impl Permitted {
    /// The permitted pieces of an attribute, of which none holds another.
    fn pieces(&self, at: usize, quasi: &QuasiIdentifier) -> Vec<Piece> {
        let (bottom, top) = (self.lattice.bottom().levels()[at], self.lattice.top().levels()[at]);
        let Some(any) = quasi.hierarchy.alternatives() else {
            let bottom = self.above.as_ref().map_or(bottom, |above| bottom.max(above.levels()[at]));
            let numbers = (0..=quasi.hierarchy.height()).collect();
            return vec![Piece { chain: None, numbers, range: (bottom, top.max(bottom)) }];
        };
        let is_permitted = |number: &Level| {
            let above = self.above.as_ref().map(|above| above.levels()[at]);
            (bottom..=top).contains(number) && above.is_none_or(|above| any.refines(above, *number))
        };
        let piece = |chain: usize| {
            let numbers = any.numbers(chain).to_vec();
            let finest = numbers.iter().position(is_permitted)?;
            let coarsest = numbers.iter().rposition(is_permitted)?;
            Some(Piece { chain: Some(chain), numbers, range: (finest as Level, coarsest as Level) })
        };
        let mut pieces: Vec<Piece> = (0..any.chains().len()).filter_map(piece).collect();
        pieces.sort_by_key(|piece| std::cmp::Reverse(piece.permitted().len()));
        let mut kept: Vec<Piece> = Vec::new();
        for piece in pieces {
            let holds = |other: &Piece| piece.permitted().iter().all(|number| other.permitted().contains(number));
            if !kept.iter().any(holds) {
                kept.push(piece);
            }
        }
        kept
    }

    /// How many nodes there are; saturates.
    pub(in crate::search) fn size(&self, policy: &Policy) -> u128 {
        let levels = |(at, quasi): (usize, &QuasiIdentifier)| {
            let mut numbers: Vec<Level> = self.pieces(at, quasi).iter().flat_map(Piece::permitted).copied().collect();
            numbers.sort_unstable();
            numbers.dedup();
            numbers.len() as u128
        };
        policy.quasi.iter().enumerate().map(levels).fold(1, u128::saturating_mul)
    }

    /// Runs a search within its budget. Says `Deadline` where judging a node was given up, for a node may be thought to fail then of
    /// which nothing is known.
    pub(in crate::search) fn search(
        &self,
        search: &dyn Search,
        evaluator: &Evaluator<'_>,
        budget: &Budget,
        rng: &mut dyn Rng,
    ) -> Outcome {
        let policy = evaluator.policy();
        if !policy.branches() {
            return run(search, &self.lattice, evaluator, budget, rng);
        }
        let mut combinations: Vec<Vec<Piece>> = vec![Vec::new()];
        for (at, quasi) in policy.quasi.iter().enumerate() {
            let pieces = self.pieces(at, quasi);
            let with =
                |begun: Vec<Piece>| pieces.iter().map(move |piece| [&begun[..], std::slice::from_ref(piece)].concat());
            combinations = combinations.into_iter().flat_map(with).collect();
        }
        let many = combinations.len();
        let along = |(done, pieces): (usize, Vec<Piece>)| {
            let mut part = budget.part(1.0 / (many - done) as f64, evaluator.checks(), Instant::now());
            if part.max_checks < u64::MAX {
                part.max_checks -= evaluator.checks();
            }
            search_along(search, &pieces, evaluator, &part, rng)
        };
        merged(combinations.into_iter().enumerate().map(along).collect(), search, evaluator)
    }
}

/// Runs a search within its budget.
fn run(
    search: &dyn Search,
    lattice: &Lattice,
    evaluator: &Evaluator<'_>,
    budget: &Budget,
    rng: &mut dyn Rng,
) -> Outcome {
    let (mut outcome, given_up) = evaluator.within(budget, || search.run(lattice, evaluator, budget, rng));
    if given_up && matches!(outcome.stop, StopReason::Proven | StopReason::Exhausted) {
        (outcome.stop, outcome.bound) = (StopReason::Deadline, evaluator.lower_bound(lattice.bottom()));
    }
    outcome
}

/// Runs a search along one chain of each hierarchy, and names what it finds by numbers.
fn search_along(
    search: &dyn Search,
    pieces: &[Piece],
    evaluator: &Evaluator<'_>,
    budget: &Budget,
    rng: &mut dyn Rng,
) -> Outcome {
    let mut policy = evaluator.policy().clone();
    for (quasi, piece) in policy.quasi.iter_mut().zip(pieces) {
        (quasi.min_level, quasi.max_level) = piece.range;
        let chain = quasi.hierarchy.alternatives().zip(piece.chain).map(|(any, chain)| any.chains()[chain].clone());
        quasi.hierarchy = chain.unwrap_or_else(|| quasi.hierarchy.clone());
    }
    let domains = evaluator.sets().domains().iter().zip(pieces);
    let domains = domains.map(|(view, piece)| view.along(piece.chain.unwrap_or_default())).collect();
    let own = evaluator.over(&policy, evaluator.sets().over(domains));
    let mut outcome = run(search, &policy.lattice(), &own, budget, rng);
    let numbered = |node: &Node| {
        Node::new(node.levels().iter().zip(pieces).map(|(&level, piece)| piece.numbers[usize::from(level)]))
    };
    evaluator.take_over(&own, numbered);
    outcome.best = outcome.best.and_then(|best| {
        let recoding = Recoding::Node(numbered(&best.recoding.node()?));
        Some(Candidate { recoding, ..best })
    });
    outcome.minimal = outcome.minimal.iter().map(numbered).collect();
    outcome.front.iter_mut().flat_map(|front| &mut front.points).for_each(|point| point.node = numbered(&point.node));
    outcome
}

/// The outcomes along all combinations as one.
fn merged(outcomes: Vec<Outcome>, search: &dyn Search, evaluator: &Evaluator<'_>) -> Outcome {
    let mut front = merged_front(&outcomes, evaluator);
    let aim = search.aim(evaluator, front.as_ref());
    let ranked = |best: &Candidate| {
        let rank = aim.rank(evaluator, &best.recoding, &best.evaluation);
        let node = best.recoding.coarsest();
        (rank, node.height(), node)
    };
    let best = outcomes.iter().filter_map(|outcome| outcome.best.as_ref()).min_by(|a, b| {
        let (a, b) = (ranked(a), ranked(b));
        a.0.total_cmp(b.0).then(a.1.cmp(&b.1)).then_with(|| a.2.levels().cmp(b.2.levels()))
    });
    if let (Some(front), Some(best)) = (&mut front, best) {
        front.picked = front.points.iter().position(|point| Some(&point.node) == best.recoding.node().as_ref());
    }
    Outcome {
        best: best.cloned(),
        stop: outcomes
            .iter()
            .map(|outcome| outcome.stop)
            .max_by_key(|stop| unfinished(*stop))
            .unwrap_or(StopReason::Proven),
        bound: outcomes.iter().map(|outcome| outcome.bound).fold(f64::INFINITY, f64::min),
        predicted: outcomes.iter().map(|outcome| outcome.predicted).sum(),
        minimal: minimal(&outcomes, evaluator.policy()),
        front,
    }
}

/// How much a search may have left to find.
fn unfinished(stop: StopReason) -> u8 {
    match stop {
        StopReason::Proven => 0,
        StopReason::Exhausted => 1,
        StopReason::Budget => 2,
        StopReason::Deadline => 3,
        StopReason::Cancelled => 4,
    }
}

/// The nodes that no other one refines; none unless all are known along every combination where there is one.
fn minimal(outcomes: &[Outcome], policy: &Policy) -> Vec<Node> {
    if outcomes.iter().any(|outcome| outcome.minimal.is_empty() && outcome.best.is_some()) {
        return Vec::new();
    }
    let mut nodes: Vec<&Node> = outcomes.iter().flat_map(|outcome| &outcome.minimal).collect();
    nodes.sort_unstable_by_key(|node| (node.height(), node.levels().to_vec()));
    nodes.dedup();
    let is_minimal = |node: &&&Node| !nodes.iter().any(|other| other != *node && policy.refines(other, node));
    nodes.iter().filter(is_minimal).map(|node| (*node).clone()).collect()
}

fn merged_front(outcomes: &[Outcome], evaluator: &Evaluator<'_>) -> Option<Front> {
    let fronts: Vec<&Front> = outcomes.iter().filter_map(|outcome| outcome.front.as_ref()).collect();
    let objectives = Objectives::new(&fronts.first()?.objectives, evaluator);
    let mut nodes: Vec<Node> = fronts.iter().flat_map(|front| &front.points).map(|point| point.node.clone()).collect();
    nodes.sort_unstable_by(|a, b| a.levels().cmp(b.levels()));
    nodes.dedup();
    let measured = |node: Node| {
        let (evaluation, indices) = objectives.measure(evaluator, &node);
        Point { indices: indices.own.clone(), item: (node, evaluation) }
    };
    let points = non_dominated(nodes.into_iter().map(measured).collect());
    let exact = fronts.len() == outcomes.len() && fronts.iter().all(|front| front.exact);
    Some(front(&objectives, evaluator, points, &Prefer::Knee, exact))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use proptest::prelude::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::super::{Choice, Chosen, Levels, choose};
    use super::*;
    use crate::model::hierarchy::{DateSpec, DateUnit, Decimal, Hierarchy, IntervalSpec};
    use crate::model::policy::SuppressionLimit;
    use crate::search::evaluator::Trail;
    use crate::search::fixture::{Table, choice, policy};
    use crate::search::insight::look;
    use crate::search::{Algorithm, Tuning};

    /// Ages by 5 and 20 or by 7, birthdays by week or by month and year, and a code that has one hierarchy.
    fn table(records: &[(u8, u16, u8)], limit: f64) -> Table {
        let ages = |widths: &[i64]| {
            let widths: Vec<Decimal> = widths.iter().map(|&width| width.into()).collect();
            Hierarchy::intervals(IntervalSpec::new(widths, 0.into(), 99.into())).unwrap()
        };
        let dates = |units: &[DateUnit]| Hierarchy::dates(DateSpec::new(units)).unwrap();
        let ages = Hierarchy::any_of(vec![ages(&[5, 20]), ages(&[7])]).unwrap();
        let (by_week, by_month) = ([DateUnit::Day, DateUnit::Week], [DateUnit::Day, DateUnit::Month, DateUnit::Year]);
        let born = Hierarchy::any_of(vec![dates(&by_week), dates(&by_month)]).unwrap();
        let code = Hierarchy::parse_csv(b"a;x;*\nb;x;*\nc;y;*\n").unwrap();
        let mut policy = policy(vec![("age", ages), ("born", born), ("code", code)], &[], 2);
        policy.suppression = SuppressionLimit(limit);
        let cells = |&(age, day, code): &(u8, u16, u8)| {
            let born = format!("1985-{:02}-{:02}", 1 + day / 28 % 12, 1 + day % 28);
            vec![age.to_string(), born, ["a", "b", "c"][usize::from(code % 3)].to_owned()]
        };
        Table::new(policy, &records.iter().map(cells).collect::<Vec<_>>())
    }

    fn chosen(table: &Table, algorithm: Algorithm, levels: Levels, last: Option<&Recoding>) -> Chosen {
        let (time_budget, tuning) = (Duration::from_secs(600), Tuning::default());
        let choice = Choice { algorithm, time_budget, max_checks: None, levels, keep_within: 0.0, tuning };
        let rng = &mut ChaCha8Rng::seed_from_u64(0);
        choose(&choice, &table.policy.lattice(), last, &table.evaluator(), rng)
    }

    fn records() -> impl Strategy<Value = Vec<(u8, u16, u8)>> {
        prop::collection::vec((0_u8..99, 0_u16..60, 0_u8..3), 2..40)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// The twin counts every combination of levels.
        #[test]
        fn the_best_of_all_chains_is_found(records in records(), suppress in any::<bool>()) {
            let table = table(&records, if suppress { 0.2 } else { 0.0 });
            let (evaluator, lattice) = (table.evaluator(), table.policy.lattice());
            let satisfying: Vec<Node> = lattice.nodes().filter(|node| evaluator.evaluate(node).satisfies).collect();
            let least = satisfying.iter().map(|node| evaluator.evaluate(node).loss).fold(f64::INFINITY, f64::min);
            for algorithm in [Algorithm::Auto, Algorithm::Optimal, Algorithm::Exhaustive, Algorithm::BottomUp] {
                let found = chosen(&table, algorithm, Levels::Free, None);
                prop_assert_eq!(found.evaluation.satisfies, !satisfying.is_empty());
                if !satisfying.is_empty() {
                    prop_assert!((found.evaluation.loss - least).abs() < 1e-9, "{:?} {}", algorithm, least);
                    prop_assert_eq!(found.stop, StopReason::Proven);
                }
                prop_assert_eq!(found.nodes, lattice.size());
                let node = found.recoding.node().unwrap();
                prop_assert_eq!(evaluator.evaluate(&node), found.evaluation);
            }
            let minimal = |node: &&Node| !satisfying.iter().any(|other| other != *node && table.policy.refines(other, node));
            let mut minimal: Vec<&Node> = satisfying.iter().filter(minimal).collect();
            minimal.sort_by_key(|node| (node.height(), node.levels().to_vec()));
            // Also in a window that follows another.
            let trail = Arc::new(Trail::default());
            for _ in 0..2 {
                let evaluator = table.evaluator().warm(Arc::clone(&trail));
                let choice = choice(Algorithm::BottomUp, Levels::Free);
                let found = choose(&choice, &lattice, None, &evaluator, &mut ChaCha8Rng::seed_from_u64(0));
                prop_assert_eq!(found.minimal.iter().collect::<Vec<_>>(), minimal.clone());
                let shown = look(&lattice, &evaluator, &found, Duration::from_secs(600)).minimal;
                prop_assert_eq!(shown.iter().collect::<Vec<_>>(), minimal.clone());
            }
        }

        /// What was told apart never is again.
        #[test]
        fn monotone_goes_to_what_the_last_node_refines(first in records(), then in records()) {
            let (first, then) = (table(&first, 0.1), table(&then, 0.0));
            let last = chosen(&first, Algorithm::Auto, Levels::Monotone, None);
            let next = chosen(&then, Algorithm::Auto, Levels::Monotone, Some(&last.recoding));
            let (last, next) = (last.recoding.node().unwrap(), next.recoding.node().unwrap());
            prop_assert!(then.policy.refines(&last, &next), "{:?} {:?}", last, next);
            let fixed = chosen(&then, Algorithm::Auto, Levels::Fixed(None), Some(&Recoding::Node(last.clone())));
            prop_assert_eq!(fixed.recoding.node(), Some(last.clone()));
            prop_assert_eq!(fixed.nodes, 1);
            let joined = then.policy.join(&last, &next);
            prop_assert_eq!(joined, next);
        }

        /// Points of one combination that those of another beat are not on it.
        #[test]
        fn a_front_is_one_over_all_chains(records in records()) {
            let table = table(&records, 0.0);
            let found = chosen(&table, Algorithm::PbgEa, Levels::Free, None);
            let front = found.front.unwrap();
            let beats = |a: &[f64], b: &[f64]| a[0] >= b[0] && a[1] <= b[1] && a != b;
            for point in &front.points {
                prop_assert!(!front.points.iter().any(|other| beats(&other.values, &point.values)));
            }
            prop_assert_eq!(front.picked.is_some(), found.evaluation.satisfies);
        }
    }

    #[test]
    fn the_budget_is_shared() {
        let records: Vec<(u8, u16, u8)> =
            (0..60_u16).map(|i| ((i * 7 % 99) as u8, i * 11 % 60, (i % 3) as u8)).collect();
        let table = table(&records, 0.0);
        let choice = Choice { max_checks: Some(20), ..choice(Algorithm::Exhaustive, Levels::Free) };
        let rng = &mut ChaCha8Rng::seed_from_u64(0);
        let found = choose(&choice, &table.policy.lattice(), None, &table.evaluator(), rng);
        assert_eq!(found.stop, StopReason::Budget);
        assert!((5..=24).contains(&found.checks), "{}", found.checks);
    }
}
