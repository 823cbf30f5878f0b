//! What an operator may see of a search: which nodes were counted and how they came out, the trade-off around the choice,
//! and what each attribute gave up.
//!
//! Made on request, after the choice and within a time of its own, so that a release hardly waits for it. It is for the
//! operator's eyes and is never published: the way to a node can tell more about people than the node does.

use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::choose::Chosen;
use super::evaluator::{Evaluation, Evaluator};
use super::evolutionary::pbg_ea::{PbgEa, front};
use super::exact::bottom_up;
use super::front::archive::{Point, non_dominated};
use super::front::frontier::exact;
use super::front::objectives::{Front, Objective, Objectives};
use super::{Algorithm, Budget, Tuning};
use crate::model::lattice::{Lattice, Node};
use crate::model::policy::Policy;

/// The largest lattice that is shown node by node. More dots than this run together on a page; fewer would hide the shape of
/// lattices that a person can still read.
pub const MAX_NODES: u128 = 400;

/// Loss bands of a lattice that is too large to be shown node by node. More are thinner than their labels; fewer tell less.
pub const BANDS: usize = 10;

/// What is known of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// It meets the policy: counted, or derived from a node below.
    Satisfies,
    /// It does not: counted, or derived from a node above.
    Fails,
    /// Nobody asked.
    Unchecked,
}

/// One node of a small lattice.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenNode {
    /// The node.
    pub node: Node,
    /// What is known of it.
    pub status: Status,
    /// True if it was counted; otherwise its status follows from others.
    pub counted: bool,
    /// Its loss whether it satisfies or not; if it was not counted, what it costs at least.
    pub loss: f64,
}

/// One cell of a large lattice: the counted nodes of a height whose loss lies in a band.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cell {
    /// How many of them satisfy.
    pub satisfying: u64,
    /// How many do not.
    pub failing: u64,
}

/// The lattice as it was seen.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    /// Every node.
    Nodes(Vec<SeenNode>),
    /// For each height above the bottom: its cells from the least loss to the greatest, and how many nodes nobody counted.
    Bands(Vec<([Cell; BANDS], u128)>),
}

/// What one attribute went through.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttributeInsight {
    /// Its own loss by `glm`, records that were left out included.
    pub loss: f64,
    /// Different values in the window.
    pub values_before: u64,
    /// Different generalized values in the release.
    pub values_after: u64,
}

/// What was seen of one search.
#[derive(Debug, Clone)]
pub struct Insight {
    /// The lattice that was permitted.
    pub lattice: Lattice,
    /// What is known of it.
    pub seen: Seen,
    /// The node of the release; the least one above, if cuts are published.
    pub chosen: Node,
    /// True if it satisfies: otherwise nothing of the window could be published.
    pub met: bool,
    /// The loss of the release by the policy's metric.
    pub loss: f64,
    /// Its smallest class.
    pub k: u32,
    /// How many nodes the search counted.
    pub checks: u64,
    /// The trade-off around it; none if there was no time for one.
    pub front: Option<Front>,
    /// In policy order.
    pub attributes: Vec<AttributeInsight>,
    /// The minimal satisfying nodes: from searches that know them all, and for `bottom-up` found afterwards where there is time.
    pub minimal: Vec<Node>,
    /// The largest sets of attributes that the release could do without, each set by itself: the others, a reduct, tell its classes
    /// apart.
    pub superfluous: Vec<Vec<usize>>,
}

impl Insight {
    /// Which attributes could be left out at no cost to the others, for people; none if all tell something.
    pub fn superfluous_words(&self, policy: &Policy) -> Option<String> {
        let name = |&at: &usize| &*policy.quasi[at].name;
        let together = |set: &Vec<usize>| set.iter().map(name).collect::<Vec<_>>().join(" and ");
        let sets: Vec<String> = self.superfluous.iter().map(together).collect();
        let said = "could be left out: the other attributes tell the same classes apart.";
        (!sets.is_empty()).then(|| format!("{} {said}", sets.join(", or ")))
    }
}

/// Looks at a search that has just chosen; the trade-off may take `time`.
pub fn look(lattice: &Lattice, evaluator: &Evaluator<'_>, chosen: &Chosen, time: Duration) -> Insight {
    // Before the rest, which counts nodes that the search did not need.
    let seen = seen(lattice, evaluator);
    let started = Instant::now();
    let minimal = minimal(lattice, evaluator, chosen, time / 2);
    let left = time.saturating_sub(started.elapsed());
    Insight {
        lattice: lattice.clone(),
        seen,
        chosen: chosen.recoding.coarsest(),
        met: chosen.evaluation.satisfies,
        loss: chosen.evaluation.penalised,
        k: chosen.evaluation.k,
        checks: chosen.checks,
        front: chosen.front.clone().or_else(|| trade_off(lattice, evaluator, chosen, left)),
        attributes: attributes(evaluator, chosen),
        minimal,
        superfluous: evaluator.superfluous(&chosen.recoding),
    }
}

/// The minimal nodes of `bottom-up`, found now where the search went on from the last window's answer and did not need them.
fn minimal(lattice: &Lattice, evaluator: &Evaluator<'_>, chosen: &Chosen, time: Duration) -> Vec<Node> {
    let wanted = chosen.algorithm == Algorithm::BottomUp && !evaluator.policy().branches();
    if !wanted || !chosen.minimal.is_empty() {
        return chosen.minimal.clone();
    }
    bottom_up::minimal(lattice, evaluator, &Budget::within(Instant::now(), time)).unwrap_or_default()
}

fn seen(lattice: &Lattice, evaluator: &Evaluator<'_>) -> Seen {
    let counted: Vec<(Node, Evaluation)> =
        evaluator.counted().into_iter().filter(|(node, _)| lattice.contains(node)).collect();
    if lattice.size() > MAX_NODES {
        return Seen::Bands(bands(lattice, &counted));
    }
    let monotone = evaluator.monotone();
    let of = |node: Node| match counted.iter().find(|(n, _)| *n == node) {
        Some((_, e)) => {
            let status = if e.satisfies { Status::Satisfies } else { Status::Fails };
            SeenNode { node, status, counted: true, loss: e.penalised }
        }
        None => {
            let policy = evaluator.policy();
            let below = |(n, e): &(Node, Evaluation)| e.satisfies && policy.refines(n, &node);
            let above = |(n, e): &(Node, Evaluation)| !e.satisfies && policy.refines(&node, n);
            let status = if monotone && counted.iter().any(below) {
                Status::Satisfies
            } else if monotone && counted.iter().any(above) {
                Status::Fails
            } else {
                Status::Unchecked
            };
            SeenNode { status, counted: false, loss: evaluator.lower_bound(&node), node }
        }
    };
    Seen::Nodes(lattice.nodes().map(of).collect())
}

fn bands(lattice: &Lattice, counted: &[(Node, Evaluation)]) -> Vec<([Cell; BANDS], u128)> {
    let bottom = lattice.bottom().height();
    let mut rows: Vec<([Cell; BANDS], u128)> =
        nodes_by_height(lattice).into_iter().map(|nodes| ([Cell::default(); BANDS], nodes)).collect();
    for (node, evaluation) in counted {
        let (cells, unchecked) = &mut rows[node.height() - bottom];
        *unchecked = unchecked.saturating_sub(1);
        // Losses that are no shares end up in the last band.
        let band = ((evaluation.penalised * BANDS as f64) as usize).min(BANDS - 1);
        let cell = &mut cells[band];
        *if evaluation.satisfies { &mut cell.satisfying } else { &mut cell.failing } += 1;
    }
    rows
}

/// How many nodes there are at each height above the bottom.
fn nodes_by_height(lattice: &Lattice) -> Vec<u128> {
    let mut counts = vec![1u128];
    for (low, high) in lattice.bottom().levels().iter().zip(lattice.top().levels()) {
        let span = usize::from(high - low);
        let mut next = vec![0u128; counts.len() + span];
        for (height, count) in counts.iter().enumerate() {
            (0..=span).for_each(|up| next[height + up] = next[height + up].saturating_add(*count));
        }
        counts = next;
    }
    counts
}

/// Size against loss: exact if, by what the search needed per node, there is time for every node; else of the nodes that the
/// search counted and those that an evolution finds in the time that is left.
fn trade_off(lattice: &Lattice, evaluator: &Evaluator<'_>, chosen: &Chosen, time: Duration) -> Option<Front> {
    let each = chosen.elapsed.as_secs_f64() / chosen.checks.max(1) as f64;
    let wanted = [Objective::K, Objective::Loss(evaluator.policy().loss)];
    let ea = PbgEa { objectives: wanted.to_vec(), ..Tuning::default().pbg_ea() };
    let objectives = Objectives::new(&ea.objectives, evaluator);
    let budget = Budget::within(Instant::now(), time);
    if lattice.size() as f64 * each <= time.as_secs_f64() {
        let points = exact(&objectives, lattice, evaluator, &Budget::unlimited())?;
        return Some(front(&objectives, evaluator, points, &ea.prefer, true));
    }
    let mut points = Vec::new();
    let mut counted = evaluator.counted();
    counted.sort_by(|(a, _), (b, _)| a.levels().cmp(b.levels()));
    for (node, _) in counted.into_iter().filter(|(node, _)| lattice.contains(node)) {
        if budget.interrupted().is_some() {
            break;
        }
        let (evaluation, indices) = objectives.measure(evaluator, &node);
        points.push(Point { indices: indices.own.clone(), item: (node, evaluation) });
    }
    if !evaluator.policy().branches() {
        let rng = &mut ChaCha8Rng::seed_from_u64(0);
        points.extend(ea.evolve(lattice, evaluator, &objectives, &budget, rng).archive.into_points());
    }
    let points = non_dominated(points);
    (!points.is_empty()).then(|| front(&objectives, evaluator, points, &ea.prefer, false))
}

fn attributes(evaluator: &Evaluator<'_>, chosen: &Chosen) -> Vec<AttributeInsight> {
    let base = evaluator.sets().base();
    let classes = evaluator.classes(&chosen.recoding);
    let published = evaluator.published(&*classes);
    let columns = chosen.recoding.columns(evaluator.sets().domains());
    let one = |(attribute, column): (usize, &crate::model::recoding::Column)| {
        let mut before = vec![false; column.map().len()];
        (0..base.len()).for_each(|class| before[base.code(class, attribute) as usize] = true);
        let mut after = vec![false; column.len()];
        let mut lost = 0.0;
        for (class, &published) in published.iter().enumerate() {
            let code = classes.code(class, attribute);
            let rows = f64::from(classes.rows()[class]);
            if published {
                after[code as usize] = true;
                lost += rows * column.loss(code);
            } else {
                lost += rows;
            }
        }
        let many = |seen: &[bool]| seen.iter().filter(|s| **s).count() as u64;
        AttributeInsight {
            loss: lost / evaluator.records().max(1) as f64,
            values_before: many(&before),
            values_after: many(&after),
        }
    };
    columns.iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::model::hierarchy::{Hierarchy, PrefixSpec};
    use crate::model::policy::{Loss, SuppressionLimit};
    use crate::search::choose::{Levels, choose};
    use crate::search::evaluator::Trail;
    use crate::search::fixture::{Table, choice, policy};

    fn table(records: &[(u8, u8)], lengths: (u32, u32), limit: f64) -> Table {
        let hierarchy = |length| Hierarchy::prefix(PrefixSpec::new(length)).unwrap();
        let mut policy = policy(vec![("a", hierarchy(lengths.0)), ("b", hierarchy(lengths.1))], &[], 2);
        policy.suppression = SuppressionLimit(limit);
        let code = |value: u8, length: u32| format!("{:0>width$}", value, width = length as usize);
        let records: Vec<Vec<String>> =
            records.iter().map(|&(a, b)| vec![code(a, lengths.0), code(b, lengths.1)]).collect();
        Table::new(policy, &records)
    }

    fn looked(table: &Table, algorithm: Algorithm) -> (Insight, Chosen) {
        let choice = choice(algorithm, Levels::Free);
        let evaluator = table.evaluator();
        let lattice = table.policy.lattice();
        let chosen = choose(&choice, &lattice, None, &evaluator, &mut ChaCha8Rng::seed_from_u64(0));
        (look(&lattice, &evaluator, &chosen, Duration::from_secs(600)), chosen)
    }

    #[test]
    fn a_large_lattice_is_shown_in_bands_that_add_up() {
        let records: Vec<(u8, u8)> = (0..40u16).map(|i| ((i * 7 % 90) as u8, (i % 10) as u8)).collect();
        let table = table(&records, (30, 20), 0.0);
        let (insight, chosen) = looked(&table, Algorithm::Optimal);
        let Seen::Bands(rows) = &insight.seen else { panic!("more than {MAX_NODES} nodes") };
        let counted: u64 = rows.iter().flat_map(|(cells, _)| cells).map(|c| c.satisfying + c.failing).sum();
        let unchecked: u128 = rows.iter().map(|(_, unchecked)| unchecked).sum();
        assert_eq!(counted, chosen.checks);
        // However little was found of it, the front is never behind the release.
        let front = insight.front.as_ref().unwrap();
        assert!(front.points.iter().any(|p| p.values[0] >= f64::from(insight.k) && p.values[1] <= insight.loss + 1e-9));
        assert_eq!(u128::from(counted) + unchecked, insight.lattice.size());
    }

    /// A second window goes on from the first one's answer; its minimal nodes are still those that counting every node leaves.
    #[test]
    fn minimal_nodes_are_found_after_a_warm_search() {
        let records: Vec<(u8, u8)> = (0..60u16).map(|i| ((i * 7 % 40) as u8, (i * i % 30) as u8)).collect();
        let table = table(&records, (2, 2), 0.1);
        let (lattice, trail) = (table.policy.lattice(), Arc::new(Trail::default()));
        let choice = choice(Algorithm::BottomUp, Levels::Free);
        let windows = [true, false].map(|afresh| {
            let evaluator = table.evaluator().warm(Arc::clone(&trail));
            let chosen = choose(&choice, &lattice, None, &evaluator, &mut ChaCha8Rng::seed_from_u64(0));
            assert_eq!(chosen.minimal.is_empty(), !afresh, "a warm search does not need them");
            look(&lattice, &evaluator, &chosen, Duration::from_secs(600)).minimal
        });
        let fresh = table.evaluator();
        let satisfies = |node: &Node| fresh.evaluate(node).satisfies;
        let minimal = |node: &Node| satisfies(node) && !lattice.children(node).any(|child| satisfies(&child));
        let mut expected: Vec<Node> = lattice.nodes().filter(minimal).collect();
        expected.sort_by(|a, b| (a.height(), a.levels()).cmp(&(b.height(), b.levels())));
        assert!(expected.len() > 1);
        assert_eq!(windows, [expected.clone(), expected]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// What is said of a node that nobody counted is what counting it says; the front is what all nodes leave.
        #[test]
        fn what_is_shown_is_what_counting_every_node_says(
            records in prop::collection::vec((0u8..40, 0u8..30), 3..60),
            suppress in any::<bool>(),
        ) {
            let table = table(&records, (2, 2), if suppress { 0.2 } else { 0.0 });
            let (insight, chosen) = looked(&table, Algorithm::Optimal);
            let Seen::Nodes(nodes) = &insight.seen else { panic!("a small lattice") };
            prop_assert_eq!(nodes.len() as u128, insight.lattice.size());
            let fresh = table.evaluator();
            for seen in nodes {
                let truth = fresh.evaluate(&seen.node);
                match seen.status {
                    Status::Satisfies => prop_assert!(truth.satisfies),
                    Status::Fails => prop_assert!(!truth.satisfies),
                    Status::Unchecked => prop_assert!(!seen.counted),
                }
                if seen.counted {
                    prop_assert_eq!(seen.loss, truth.penalised);
                } else {
                    prop_assert!(seen.loss <= truth.penalised + 1e-12);
                }
            }
            prop_assert_eq!(nodes.iter().filter(|n| n.counted).count() as u64, chosen.checks);
            let front = insight.front.as_ref().unwrap();
            prop_assert!(front.exact);
            for point in &front.points {
                prop_assert_eq!(fresh.evaluate(&point.node).satisfies, point.evaluation.satisfies);
            }
            // With equal weights the attributes' losses are the parts of the whole.
            let parts: f64 = insight.attributes.iter().map(|a| a.loss).sum();
            let whole = fresh.loss_by(Loss::Glm, &chosen.recoding);
            prop_assert!((parts / 2.0 - whole).abs() < 1e-9, "{} {}", parts, whole);
        }
    }
}
