//! The evaluator: counts a node once, judges it by the policy, remembers the answer.
//!
//! Invariant: `satisfies` means that the classes that fail some criterion hold at most what is left of the suppression limit's
//! share of the window's records, that something is left to publish, and that the rules about the whole release hold for it.

mod judge;
mod superfluous;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::Budget;
use super::publishable;
use crate::frequency::set::{Classes, Question};
use crate::frequency::store::{Answer, FrequencySets, Origins};
use crate::loss::{self, Counted, LossMetric};
use crate::model::counting::Histogram;
use crate::model::lattice::Node;
use crate::model::policy::{Loss, Policy};
use crate::model::recoding::Recoding;
use crate::privacy::{Class, Rules};

/// What is known of a counted node.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evaluation {
    /// True if a release at this node meets the policy within the suppression limit.
    pub satisfies: bool,
    /// The policy's loss; infinite if the node does not satisfy.
    pub loss: f64,
    /// The same loss whether or not the node satisfies: what it would cost if every failing class were left out.
    pub penalised: f64,
    /// What any node above costs at least, as far as this count tells.
    pub bound_above: f64,
    /// Records in failing classes.
    pub suppressed: u64,
    /// Classes, failing ones included.
    pub classes: u64,
    /// The smallest published class.
    pub k: u32,
    /// Mean security (sf) by the confidential sentences; 1 without any.
    pub security: f64,
}

/// What a proof needs to know of a counted node, and what is least work to know.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Checked {
    /// As of [`Evaluation`].
    pub satisfies: bool,
    /// As of [`Evaluation`].
    pub loss: f64,
    /// What this node and every finer one lose at least on top of their lower bound; infinite if they all fail.
    pub forced: f64,
    /// As of [`Evaluation`].
    pub bound_above: f64,
}

/// What is remembered of a node.
#[derive(Default)]
struct Known {
    satisfies: Option<bool>,
    checked: Option<Checked>,
    evaluation: Option<Evaluation>,
}

/// Fewer nodes are asked about one by one. Larger: cores idle. Smaller: the few candidates of a walk cost more to hand out and to
/// remember side by side than they take to count.
const FEW_NODES: usize = 64;

/// Asks `one` about every node, on all cores where there are many; the answers come in the order of the nodes.
pub(super) fn on_all_cores<T: Send>(nodes: &[Node], one: impl Fn(&Node) -> T + Sync) -> Vec<T> {
    match nodes.len() < FEW_NODES {
        true => nodes.iter().map(one).collect(),
        false => nodes.par_iter().with_max_len(1).map(&one).collect(),
    }
}

/// Counts and judges the nodes of one window.
pub struct Evaluator<'a> {
    policy: &'a Policy,
    rules: &'a Rules,
    sets: Arc<dyn FrequencySets>,
    metric: Box<dyn LossMetric>,
    records: u64,
    allowed: u64,
    /// True if nothing but the size of a class decides whether it is published.
    sizes_only: bool,
    /// True if nothing but the class decides it, and what is published at a node is at every coarser one.
    alone: bool,
    memo: Mutex<FxHashMap<Node, Known>>,
    checks: AtomicU64,
    /// The whole window as one class.
    everything: OnceLock<Box<dyn Classes>>,
    trail: Option<Arc<Trail>>,
    /// When to give up what takes long to judge.
    limit: Mutex<Option<Budget>>,
    given_up: AtomicBool,
}

/// What a search leaves for the next window's: the answer first, then the nodes whose counts proved it. Wherever the data
/// has hardly changed they prove the next answer too; what they are worth is counted anew, so that a warm
/// search finds what a cold one does.
#[derive(Debug, Default)]
pub struct Trail {
    nodes: Mutex<Vec<Node>>,
}

/// How many nodes are left for the next search. More are counted before it begins to look around; fewer leave it to find
/// again what it knew.
const MAX_REMEMBERED: usize = 512;

impl<'a> Evaluator<'a> {
    /// An evaluator over the sets of one window.
    pub fn new(policy: &'a Policy, rules: &'a Rules, sets: Arc<dyn FrequencySets>) -> Self {
        Self::beside(0, policy, rules, sets)
    }

    /// The same for a window from which `gone` records were left out before they were counted: the suppression limit, which they
    /// do not exceed, is theirs too.
    pub fn beside(gone: u64, policy: &'a Policy, rules: &'a Rules, sets: Arc<dyn FrequencySets>) -> Self {
        let base = sets.base();
        let records = base.records();
        let metric = loss::metric(policy.loss, policy, sets.domains(), &base);
        let allowed = policy.suppression.beside(gone, records).unwrap_or(0);
        let suppression = allowed > 0;
        let alone = rules.only_classes() && rules.monotone(suppression);
        let sizes_only = alone && rules.alone(suppression, true).next().is_none();
        Self {
            policy,
            rules,
            metric,
            records,
            allowed,
            sizes_only,
            alone,
            sets,
            memo: Mutex::default(),
            checks: AtomicU64::new(0),
            everything: OnceLock::new(),
            trail: None,
            limit: Mutex::default(),
            given_up: AtomicBool::new(false),
        }
    }

    /// Runs a search within its budget even where judging one node takes long: when the time is over meanwhile the node
    /// fails, and is not remembered. Returns whether that happened. A node that is asked for later is judged to the end.
    pub fn within<T>(&self, budget: &Budget, search: impl FnOnce() -> T) -> (T, bool) {
        *self.limit.lock().unwrap_or_else(PoisonError::into_inner) = Some(budget.clone());
        let found = search();
        *self.limit.lock().unwrap_or_else(PoisonError::into_inner) = None;
        (found, self.given_up.swap(false, Ordering::Relaxed))
    }

    /// An evaluator of the same counts by another policy, such as one with another loss. What it counts is counted here, too.
    pub fn beside_policy<'p>(&'p self, policy: &'p Policy) -> Evaluator<'p> {
        self.over(policy, Arc::clone(&self.sets))
    }

    /// The same over other sets of the same records.
    pub(super) fn over<'p>(&'p self, policy: &'p Policy, sets: Arc<dyn FrequencySets>) -> Evaluator<'p> {
        let mut other = Evaluator::beside(0, policy, self.rules, sets);
        other.allowed = self.allowed;
        other
    }

    /// Remembers what another evaluator of the same records knows, each of its nodes under the name that it has here.
    pub(super) fn take_over(&self, other: &Self, name: impl Fn(&Node) -> Node) {
        let theirs = std::mem::take(&mut *other.memo.lock().unwrap_or_else(PoisonError::into_inner));
        for (node, theirs) in theirs {
            self.remember(&name(&node), |known| {
                known.satisfies = known.satisfies.or(theirs.satisfies);
                known.checked = known.checked.or(theirs.checked);
                known.evaluation = known.evaluation.take().or(theirs.evaluation);
            });
        }
    }

    /// Counts what another evaluator has checked as this one's checks.
    pub fn add_checks(&self, other: &Self) {
        self.checks.fetch_add(other.checks(), Ordering::Relaxed);
    }

    /// The same evaluator for searches that start from `trail` and leave there what the next may start from.
    pub fn warm(self, trail: Arc<Trail>) -> Self {
        Self { trail: Some(trail), ..self }
    }

    /// What the last search left.
    pub fn recall(&self) -> Vec<Node> {
        let held = |trail: &Arc<Trail>| trail.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.trail.as_ref().map_or_else(Vec::new, held)
    }

    /// Leaves `nodes` for the next search.
    pub fn memorise(&self, mut nodes: Vec<Node>) {
        if let Some(trail) = &self.trail {
            nodes.truncate(MAX_REMEMBERED);
            self.sets.remember(&nodes);
            *trail.nodes.lock().unwrap_or_else(PoisonError::into_inner) = nodes;
        }
    }

    /// Counts the node, or recalls it.
    pub fn evaluate(&self, node: &Node) -> Evaluation {
        self.remembered(node, |known| known.evaluation.clone()).unwrap_or_else(|| self.count(node).0)
    }

    /// Counts the node, or recalls it, and returns its classes too, for searches that look at more than the loss.
    pub fn inspect(&self, node: &Node) -> (Evaluation, Arc<dyn Classes>) {
        match self.remembered(node, |known| known.evaluation.clone()) {
            Some(known) => (known, self.sets.set(node)),
            None => self.count(node),
        }
    }

    /// Counts the node, or recalls it, and works out no more than a proof needs.
    pub fn check(&self, node: &Node) -> Checked {
        self.remembered(node, |known| known.checked).unwrap_or_else(|| {
            let checked = match self.ask(node) {
                Answer::Classes(set) => self.judge_briefly(&*set),
                Answer::Small(small) => {
                    self.judge_small(node, &small, true).unwrap_or_else(|| self.judge_briefly(&*self.sets.set(node)))
                }
            };
            self.remember(node, |known| known.checked = Some(checked));
            checked
        })
    }

    /// What is left out at a node, where each class decides that by itself; its classes otherwise.
    fn ask(&self, node: &Node) -> Answer {
        let least = self.rules.least_size();
        let shown = |size: u32, facets: &[Histogram<'_>]| self.rules.hold_alone(&Class { size, facets });
        let question = match (self.sizes_only, self.alone) {
            _ if self.metric.added().is_none() => None,
            (true, _) => Some(Question::by_size(least)),
            (_, true) => Some(Question::by_rule(least, &shown)),
            _ => None,
        };
        match question {
            Some(question) => self.sets.ask(node, &question.with_cells(self.allowed)),
            None => Answer::Classes(self.sets.set(node)),
        }
    }

    /// Whether the node satisfies, if it was counted before.
    pub(super) fn status(&self, node: &Node) -> Option<bool> {
        self.remembered(node, |known| {
            let counted = known.checked.map(|checked| checked.satisfies).or(known.satisfies);
            counted.or_else(|| known.evaluation.as_ref().map(|evaluation| evaluation.satisfies))
        })
    }

    /// Counts the node, or recalls it, and works out no more than whether it satisfies.
    pub fn satisfies(&self, node: &Node) -> bool {
        self.status(node).unwrap_or_else(|| {
            let question = Question::by_size(self.rules.least_size());
            let answer = self.sizes_only.then(|| self.sets.ask(node, &question));
            let Some(Answer::Small(small)) = answer else {
                return self.check(node).satisfies;
            };
            let satisfies = self.enough(&small);
            self.remember(node, |known| known.satisfies = Some(satisfies));
            satisfies
        })
    }

    fn count(&self, node: &Node) -> (Evaluation, Arc<dyn Classes>) {
        let set = self.sets.set(node);
        let evaluation = self.judge(&*set);
        self.remember(node, |known| known.evaluation = Some(evaluation.clone()));
        (evaluation, set)
    }

    fn remembered<T>(&self, node: &Node, what: impl FnOnce(&Known) -> Option<T>) -> Option<T> {
        self.memo.lock().unwrap_or_else(PoisonError::into_inner).get(node).and_then(what)
    }

    fn remember(&self, node: &Node, what: impl FnOnce(&mut Known)) {
        if self.given_up.load(Ordering::Relaxed) {
            return;
        }
        let mut memo = self.memo.lock().unwrap_or_else(PoisonError::into_inner);
        what(memo.entry(node.clone()).or_insert_with(|| {
            self.checks.fetch_add(1, Ordering::Relaxed);
            Known::default()
        }));
    }

    /// Counts a recoding; nodes are recalled, cuts are counted each time.
    pub fn evaluate_recoding(&self, recoding: &Recoding) -> Evaluation {
        if let Some(node) = recoding.node() {
            return self.evaluate(&node);
        }
        self.checks.fetch_add(1, Ordering::Relaxed);
        self.judge(&*self.classes(recoding))
    }

    /// The classes of a recoding over this window's domains; of a schedule those of its coarsest levels.
    pub fn classes(&self, recoding: &Recoding) -> Arc<dyn Classes> {
        match recoding {
            Recoding::Cuts(_) => self.sets.regroup(recoding, &recoding.columns(self.sets.domains())),
            Recoding::Node(_) | Recoding::Local(_) => self.sets.set(&recoding.coarsest()),
        }
    }

    /// The evaluation of a node that was counted before.
    pub fn known(&self, node: &Node) -> Option<Evaluation> {
        self.remembered(node, |_| Some(()))?;
        Some(self.evaluate(node))
    }

    /// Every node that was counted.
    pub fn counted(&self) -> Vec<(Node, Evaluation)> {
        let nodes: Vec<Node> = self.memo.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        nodes.into_iter().map(|node| (node.clone(), self.evaluate(&node))).collect()
    }

    /// Which classes of `set` may be published.
    pub fn published(&self, set: &dyn Classes) -> Vec<bool> {
        publishable::judge(self.rules, set, self.allowed, &|| true).published
    }

    /// What the node costs at least, without counting it.
    pub fn lower_bound(&self, node: &Node) -> f64 {
        self.metric.lower_bound(node)
    }

    /// The lower bound as a sum, by attribute and level; see [`LossMetric::columns`].
    pub fn columns(&self) -> Option<&[Vec<f64>]> {
        self.metric.columns()
    }

    /// What leaving out one cell adds to that, by attribute, level and code; see [`LossMetric::added`].
    pub fn added(&self) -> Option<&[Vec<Vec<f64>>]> {
        self.metric.added()
    }

    /// True if nodes above a satisfying node satisfy, and nodes below a failing one fail.
    pub fn monotone(&self) -> bool {
        self.rules.monotone(self.allowed > 0)
    }

    /// True if the policy lets some record of this window be left out.
    pub fn may_suppress(&self) -> bool {
        self.allowed > 0
    }

    /// The loss of a recoding by another metric.
    pub fn loss_by(&self, loss: Loss, recoding: &Recoding) -> f64 {
        self.losses_by([loss], recoding).into_iter().sum()
    }

    /// The same by several losses: its classes are counted and judged once.
    pub fn losses_by(&self, losses: impl IntoIterator<Item = Loss>, recoding: &Recoding) -> Vec<f64> {
        let set = self.classes(recoding);
        let published = self.published(&*set);
        let base = self.sets.base();
        let counted = Counted { classes: &*set, published: &published, records: self.records };
        let metric = |loss| loss::metric(loss, self.policy, self.sets.domains(), &base);
        losses.into_iter().map(|loss| metric(loss).loss(&counted)).collect()
    }

    /// A generalized loss metric as papers print it: the sum over all cells, each by its attribute's weight.
    pub fn raw(&self, glm: f64) -> f64 {
        let weights: f64 = self.policy.quasi.iter().map(|q| q.weight).sum();
        glm * weights * self.records as f64
    }

    /// Different nodes counted so far.
    pub fn checks(&self) -> u64 {
        self.checks.load(Ordering::Relaxed)
    }

    /// How the frequency sets were made.
    pub fn origins(&self) -> Origins {
        self.sets.origins()
    }

    /// The frequency sets themselves.
    pub fn sets(&self) -> &dyn FrequencySets {
        &*self.sets
    }

    /// The policy's criteria at work.
    pub fn rules(&self) -> &Rules {
        self.rules
    }

    /// How many records may be left out of the release.
    pub fn allowed(&self) -> u64 {
        self.allowed
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        self.policy
    }

    /// Records in the window.
    pub fn records(&self) -> u64 {
        self.records
    }
}
