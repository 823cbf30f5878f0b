//! `top-down` and `top-down-extended`: user-oriented top-down specialization (Kiyomoto, Tanaka 2010).
//!
//! The user gives each attribute a priority v_i and bounds for its levels. A node's score is the sum of v_i * e_i, e_i
//! the number of different values that attribute i still shows; it needs no count of classes. Instead of from the top,
//! the search starts at a node that is computed attribute by attribute: each alone is generalized until its own smallest
//! group has k + p members, then all rise together until the policy holds. From there it specializes while the score
//! grows; children are tried in the order of their scores, so the first that satisfies is the best.
//! The extension looks for nodes that are past the policy somewhere and have a better score elsewhere. As printed, it specializes one
//! level past the policy and takes one or two steps back up; ours goes on from the best node of that as `optimal` does and ends
//! with the best score there is.
//! Minimises no loss: the node of best score is returned with whatever the policy's loss says of it.

use std::cmp::Reverse;

use rand::Rng;

use crate::model::lattice::{Lattice, Level, Node, Outline};
use crate::search::aim::{Aim, Scores};
use crate::search::evaluator::Evaluator;
use crate::search::exact::optimal::Walk;
use crate::search::front::objectives::Front;
use crate::search::tags::Tags;
use crate::search::{Budget, Candidate, Outcome, Search, StopReason};

/// Top-down specialization from a computed start.
#[derive(Debug, Clone, Copy, Default)]
pub struct TopDown {
    /// Whether to specialize past the policy and repair, for a better score.
    pub extension: Extension,
    /// The p of the pre-computation: by how much the smallest group of an attribute alone must exceed k. Larger starts
    /// coarser: fewer rises and more specializations.
    pub margin: u32,
}

/// What follows when no specialization satisfies the policy any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Extension {
    /// Nothing.
    #[default]
    None,
    /// The paper's second top-down and bottom-up, by the letter of its listing.
    Printed,
    /// Every node that may have a better score, by branch and bound.
    Complete,
}

impl Search for TopDown {
    fn run(&self, lattice: &Lattice, evaluator: &Evaluator<'_>, budget: &Budget, _rng: &mut dyn Rng) -> Outcome {
        let alone = |margin| precomputed(lattice, evaluator, margin);
        let mut descent = Descent {
            lattice,
            evaluator,
            budget,
            scores: Scores::new(evaluator),
            tags: evaluator.monotone().then(Tags::default),
            // Below it some attribute alone is too fine already.
            floor: if evaluator.monotone() { alone(0) } else { lattice.bottom().clone() },
            order: by_priority(evaluator),
            best: None,
            counted: Vec::new(),
            predicted: 0,
        };
        let stop = descent.search(alone(self.margin), self.extension).unwrap_or_else(|stop| stop);
        let candidate = |node: Node| Candidate { evaluation: evaluator.evaluate(&node), recoding: node.into() };
        Outcome {
            best: descent.best.map(|(_, node)| candidate(node)),
            stop,
            bound: evaluator.lower_bound(lattice.bottom()),
            predicted: descent.predicted,
            minimal: Vec::new(),
            front: None,
        }
    }

    fn aim(&self, evaluator: &Evaluator<'_>, _front: Option<&Front>) -> Aim {
        Aim::Score(Scores::new(evaluator))
    }
}

/// The attributes, the lowest priority first.
fn by_priority(evaluator: &Evaluator<'_>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..evaluator.policy().quasi.len()).collect();
    order.sort_by_key(|&attribute| evaluator.policy().quasi[attribute].priority);
    order
}

/// Each attribute at the least permitted level at which its own groups, the others fully generalized, have k + `margin`
/// members; groups that may be left out do not count. At its highest level if that is never so.
fn precomputed(lattice: &Lattice, evaluator: &Evaluator<'_>, margin: u32) -> Node {
    let wanted = evaluator.policy().k().0.saturating_add(margin);
    let full = Node::new(evaluator.sets().domains().iter().map(|view| view.height()));
    let suffices = |attribute: usize, level: Level| {
        let set = evaluator.sets().set(&full.with(attribute, level));
        let small = set.sizes().iter().zip(set.rows()).filter(|(size, _)| **size < wanted);
        small.map(|(_, &rows)| u64::from(rows)).sum::<u64>() <= evaluator.allowed()
    };
    let level = |(attribute, (&min, &max)): (usize, (&Level, &Level))| {
        (min..max).find(|&level| suffices(attribute, level)).unwrap_or(max)
    };
    Node::new(lattice.bottom().levels().iter().zip(lattice.top().levels()).enumerate().map(level))
}

struct Descent<'a, 'e> {
    lattice: &'a Lattice,
    evaluator: &'a Evaluator<'e>,
    budget: &'a Budget,
    scores: Scores,
    /// What follows from counted nodes, under a monotone policy.
    tags: Option<Tags>,
    /// No node that is not above it satisfies.
    floor: Node,
    order: Vec<usize>,
    best: Option<(u64, Node)>,
    counted: Vec<Node>,
    predicted: u64,
}

impl Descent<'_, '_> {
    fn search(&mut self, start: Node, extension: Extension) -> Result<StopReason, StopReason> {
        let Some(start) = self.rise(start)? else {
            // Under a monotone policy nothing satisfies if the top does not.
            return Ok(if self.tags.is_some() { StopReason::Proven } else { StopReason::Exhausted });
        };
        self.specialize(start)?;
        match extension {
            Extension::None => {}
            Extension::Printed => while self.second_descent()? {},
            Extension::Complete => {
                while self.second_descent()? {}
                self.best_of_all()?;
            }
        }
        Ok(StopReason::Exhausted)
    }

    /// Raises all attributes that may rise, level by level, until the policy holds.
    fn rise(&mut self, start: Node) -> Result<Option<Node>, StopReason> {
        let mut node = start;
        loop {
            if self.satisfies(&node)? {
                return Ok(Some(node));
            }
            let top = self.lattice.top();
            if node == *top {
                return Ok(None);
            }
            node = Node::new(node.levels().iter().zip(top.levels()).map(|(&level, &max)| max.min(level + 1)));
        }
    }

    /// Specializes one attribute by one level as long as that satisfies and has a better score; the best each time.
    fn specialize(&mut self, start: Node) -> Result<(), StopReason> {
        let mut node = start;
        'step: loop {
            let score = self.scores.of(&node);
            let lower = |&attribute: &usize| {
                let level = node.levels()[attribute];
                (level > self.floor.levels()[attribute]).then(|| node.with(attribute, level - 1))
            };
            let children = self.order.iter().filter_map(lower).map(|child| (self.scores.of(&child), child));
            let mut better: Vec<(u64, Node)> = children.filter(|(own, _)| *own > score).collect();
            better.sort_by_key(|(own, _)| Reverse(*own));
            for (_, child) in better {
                if self.satisfies(&child)? {
                    node = child;
                    continue 'step;
                }
            }
            return Ok(());
        }
    }

    /// One round of the printed extension: from the best node the last attribute, by rising priority, whose specialization raises
    /// the score; then up again to the best node that satisfies with a better score, at most two steps. True if there is one.
    fn second_descent(&mut self) -> Result<bool, StopReason> {
        let Some((score, best)) = self.best.clone() else { return Ok(false) };
        let finer = self.steps(&best, false).into_iter().rfind(|node| self.scores.of(node) > score);
        let Some(mut node) = finer else { return Ok(false) };
        let mut least = score;
        while !self.satisfies(&node)? {
            let coarser = self.steps(&node, true);
            let mut found = false;
            for other in &coarser {
                found |= self.scores.of(other) > score && self.satisfies(other)?;
            }
            if found {
                return Ok(true);
            }
            let next = coarser.into_iter().max_by_key(|other| self.scores.of(other));
            match next.filter(|other| self.scores.of(other) > least) {
                Some(next) => (least, node) = (self.scores.of(&next), next),
                None => return Ok(false),
            }
        }
        Ok(self.best.as_ref().is_some_and(|(own, _)| *own > score))
    }

    /// The nodes one level of one attribute up or down, by rising priority.
    fn steps(&self, node: &Node, up: bool) -> Vec<Node> {
        let (bottom, top) = (self.lattice.bottom().levels(), self.lattice.top().levels());
        let step = |&attribute: &usize| {
            let level = node.levels()[attribute];
            match up {
                true => (level < top[attribute]).then(|| node.with(attribute, level + 1)),
                false => (level > bottom[attribute]).then(|| node.with(attribute, level - 1)),
            }
        };
        self.order.iter().filter_map(step).collect()
    }

    /// The node of best score there is, by the walk of [`optimal`](crate::search::exact::optimal): a score is a sum by attribute
    /// and level, as a loss is.
    fn best_of_all(&mut self) -> Result<(), StopReason> {
        let parts = &self.scores.parts;
        let columns: Vec<Vec<f64>> =
            parts.iter().map(|levels| levels.iter().map(|&part| levels[0] as f64 - part as f64).collect()).collect();
        let lattice = Lattice::new(self.floor.clone(), self.lattice.top().clone());
        let mut walk = Walk::by_columns(&lattice, self.evaluator, self.budget, &columns);
        let done = self.counted.iter().try_for_each(|node| walk.count(node).map(drop)).and_then(|()| walk.prove());
        self.predicted += walk.covered;
        let found = walk.best.map(|(_, node)| (self.scores.of(&node), node));
        let better = |(score, _): &(u64, Node)| self.best.as_ref().is_none_or(|(best, _)| score > best);
        self.best = found.filter(better).or(self.best.take());
        done
    }

    /// Whether the node satisfies, counted only if it does not follow from what was counted; keeps the best.
    fn satisfies(&mut self, node: &Node) -> Result<bool, StopReason> {
        let predicted = self.tags.as_ref().and_then(|tags| tags.status(Outline::of(node), node));
        let satisfies = match predicted {
            Some(status) => {
                self.predicted += u64::from(self.evaluator.known(node).is_none());
                status
            }
            None => {
                if let Some(reason) = self.budget.spent(self.evaluator.checks()) {
                    return Err(reason);
                }
                let satisfies = self.evaluator.evaluate(node).satisfies;
                if let Some(tags) = &mut self.tags {
                    tags.record(node, satisfies);
                }
                self.counted.push(node.clone());
                satisfies
            }
        };
        let score = self.scores.of(node);
        if satisfies && self.best.as_ref().is_none_or(|(best, _)| score > *best) {
            self.best = Some((score, node.clone()));
        }
        Ok(satisfies)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;
    use crate::model::hierarchy::{Hierarchy, PrefixSpec};
    use crate::model::policy::SuppressionLimit;
    use crate::model::recoding::Recoding;
    use crate::search::fixture::{Table, attributes, csv, policy, records, taxonomy};

    fn run(table: &Table, extended: bool) -> (Outcome, u64) {
        let extension = if extended { Extension::Complete } else { Extension::None };
        run_with(table, TopDown { extension, margin: 0 })
    }

    fn run_with(table: &Table, search: TopDown) -> (Outcome, u64) {
        let evaluator = table.evaluator();
        let lattice = table.policy.lattice();
        let outcome = search.run(&lattice, &evaluator, &Budget::unlimited(), &mut ChaCha8Rng::seed_from_u64(0));
        (outcome, evaluator.checks())
    }

    fn node(outcome: &Outcome) -> Node {
        outcome.best.as_ref().unwrap().recoding.node().unwrap()
    }

    /// Kiyomoto and Tanaka's example: made 2-anonymous by priorities 10, 5, 1 and 1.
    fn people() -> Table {
        let quasi = vec![
            ("birth", csv("1984;1980s;*\n1985;1980s;*\n")),
            ("gender", csv("Male;*\nFemale;*\n")),
            ("zip", Hierarchy::prefix(PrefixSpec::new(5)).unwrap()),
            ("nationality", csv("UK;Europe;*\nItaly;Europe;*\nFrance;Europe;*\nUSA;USA;*\nJapan;Asia;*\n")),
        ];
        let records = [
            "1985 Male 01243 UK",
            "1985 Male 01242 Italy",
            "1985 Female 01241 UK",
            "1985 Female 01245 Italy",
            "1984 Male 01234 USA",
            "1984 Male 01232 USA",
        ];
        let records: Vec<Vec<&str>> = records.iter().map(|line| line.split(' ').collect()).collect();
        let mut policy = policy(quasi, &[], 2);
        policy.quasi.iter_mut().zip([10, 5, 1, 1]).for_each(|(quasi, priority)| quasi.priority = priority);
        Table::new(policy, &records)
    }

    #[test]
    fn the_papers_table() {
        let table = people();
        for extension in [Extension::None, Extension::Printed, Extension::Complete] {
            let (outcome, _) = run_with(&table, TopDown { extension, margin: 1 });
            let columns = Recoding::Node(node(&outcome)).columns(&table.dictionaries.quasi);
            let row = |i: usize| {
                let cells = table.rows.quasi(i).iter().zip(&columns);
                cells.map(|(&leaf, column)| column.label(column.map()[leaf as usize])).collect::<Vec<_>>().join("/")
            };
            assert_eq!((row(0), row(1)), ("1985/Male/0124*/Europe".into(), "1985/Male/0124*/Europe".into()));
            assert_eq!((row(2), row(3)), ("1985/Female/0124*/Europe".into(), "1985/Female/0124*/Europe".into()));
            assert_eq!((row(4), row(5)), ("1984/Male/0123*/USA".into(), "1984/Male/0123*/USA".into()));
        }
    }

    #[test]
    fn it_says_when_no_permitted_node_satisfies() {
        let mut table = people();
        let policy = std::sync::Arc::get_mut(&mut table.policy).unwrap();
        policy.quasi[2].max_level = 0;
        let (outcome, _) = run(&table, true);
        assert!(outcome.best.is_none());
        assert_eq!(outcome.stop, StopReason::Proven);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
        #[test]
        fn the_extension_has_the_best_score_of_all(
            texts in prop::collection::vec(taxonomy(8), 1..4), seed in any::<u64>(), n in 1_usize..60, k in 1_u32..6,
            limit in prop_oneof![Just(0.0), Just(0.1)], priorities in prop::array::uniform3(1_u32..6),
            margin in 0_u32..3,
        ) {
            let mut policy = policy(attributes(&texts), &[], k);
            policy.suppression = SuppressionLimit(limit);
            policy.quasi.iter_mut().zip(priorities).for_each(|(quasi, priority)| quasi.priority = priority);
            let table = Table::new(policy, &records(&texts, &[], n, seed));
            let evaluator = table.evaluator();
            let scores = Scores::new(&evaluator);
            let lattice = table.policy.lattice();
            let best = lattice.nodes().filter(|node| evaluator.evaluate(node).satisfies).map(|node| scores.of(&node)).max();
            let (outcome, checks) = run(&table, true);
            prop_assert_eq!(outcome.best.as_ref().map(|_| scores.of(&node(&outcome))), best);
            prop_assert!(checks as u128 <= lattice.size());
            let (basic, _) = run(&table, false);
            prop_assert_eq!(basic.best.is_some(), best.is_some());
            let (printed, _) = run_with(&table, TopDown { extension: Extension::Printed, margin });
            prop_assert_eq!(printed.best.is_some(), best.is_some());
            if let Some(found) = &printed.best {
                let own = scores.of(&node(&printed));
                prop_assert!(found.evaluation.satisfies && Some(own) <= best);
                prop_assert!(margin > 0 || own >= scores.of(&node(&basic)), "the extension keeps what it had");
            }
            if let Some(found) = &basic.best {
                prop_assert!(found.evaluation.satisfies);
                prop_assert_eq!(&evaluator.evaluate(&node(&basic)), &found.evaluation);
            }
        }
    }
}
