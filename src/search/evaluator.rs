//! The evaluator: counts a node once, judges it by the policy, remembers the answer.
//!
//! Invariant: `satisfies` means that the classes that fail some criterion hold at most the suppression limit's share of
//! the window's records, that something is left to publish, and that the rules about the whole release hold for it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::publishable::{self, Verdict};
use crate::frequency::set::Classes;
use crate::frequency::store::{FrequencySets, Origins};
use crate::loss::{self, Counted, LossMetric};
use crate::model::lattice::Node;
use crate::model::policy::{Loss, Policy};
use crate::model::recoding::Recoding;
use crate::privacy::Rules;

/// What is known of a counted node.
#[derive(Debug, Clone, PartialEq)]
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

/// Counts and judges the nodes of one window.
pub struct Evaluator<'a> {
    policy: &'a Policy,
    rules: &'a Rules,
    sets: Arc<dyn FrequencySets>,
    metric: Box<dyn LossMetric>,
    records: u64,
    allowed: u64,
    memo: Mutex<HashMap<Node, Evaluation>>,
    checks: AtomicU64,
}

impl<'a> Evaluator<'a> {
    /// An evaluator over the sets of one window.
    pub fn new(policy: &'a Policy, rules: &'a Rules, sets: Arc<dyn FrequencySets>) -> Self {
        let base = sets.base();
        let records = base.rows().iter().map(|&r| u64::from(r)).sum();
        let metric = loss::metric(policy.loss, policy, sets.domains(), &*base);
        Self {
            policy,
            rules,
            metric,
            records,
            allowed: policy.suppression.of(records),
            sets,
            memo: Mutex::default(),
            checks: AtomicU64::new(0),
        }
    }

    /// Counts the node, or recalls it.
    pub fn evaluate(&self, node: &Node) -> Evaluation {
        self.known(node).unwrap_or_else(|| self.count(node).0)
    }

    /// Counts the node, or recalls it, and returns its classes too, for searches that look at more than the loss.
    pub fn inspect(&self, node: &Node) -> (Evaluation, Arc<dyn Classes>) {
        match self.known(node) {
            Some(known) => (known, self.sets.set(node)),
            None => self.count(node),
        }
    }

    fn count(&self, node: &Node) -> (Evaluation, Arc<dyn Classes>) {
        let set = self.sets.set(node);
        let evaluation = self.judge(&*set);
        let mut memo = self.memo.lock().unwrap_or_else(PoisonError::into_inner);
        if memo.insert(node.clone(), evaluation.clone()).is_none() {
            self.checks.fetch_add(1, Ordering::Relaxed);
        }
        (evaluation, set)
    }

    /// Counts a recoding; nodes are recalled, cuts are counted each time.
    pub fn evaluate_recoding(&self, recoding: &Recoding) -> Evaluation {
        if let Some(node) = recoding.node() {
            return self.evaluate(&node);
        }
        self.checks.fetch_add(1, Ordering::Relaxed);
        self.judge(&*self.classes(recoding))
    }

    /// The classes of a recoding over this window's domains.
    pub fn classes(&self, recoding: &Recoding) -> Arc<dyn Classes> {
        match recoding {
            Recoding::Node(node) => self.sets.set(node),
            cuts => self.sets.regroup(cuts, &cuts.columns(self.sets.domains())),
        }
    }

    /// The evaluation of a node that was counted before.
    pub fn known(&self, node: &Node) -> Option<Evaluation> {
        self.memo.lock().unwrap_or_else(PoisonError::into_inner).get(node).cloned()
    }

    /// Every node that was counted.
    pub fn counted(&self) -> Vec<(Node, Evaluation)> {
        let memo = self.memo.lock().unwrap_or_else(PoisonError::into_inner);
        memo.iter().map(|(node, evaluation)| (node.clone(), evaluation.clone())).collect()
    }

    /// True if the attributes of a subset lattice, the others fully generalized, meet the policy at `node`. Counted, but
    /// not remembered as an answer about the whole lattice.
    pub fn satisfies_projection(&self, node: &Node) -> bool {
        self.evaluate(node).satisfies
    }

    /// Which classes of `set` may be published.
    pub fn published(&self, set: &dyn Classes) -> Vec<bool> {
        publishable::judge(self.rules, set, self.allowed).published
    }

    /// What the node costs at least, without counting it.
    pub fn lower_bound(&self, node: &Node) -> f64 {
        self.metric.lower_bound(node)
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
        let set = self.classes(recoding);
        let published = self.published(&*set);
        let base = self.sets.base();
        let metric = loss::metric(loss, self.policy, self.sets.domains(), &*base);
        metric.loss(&Counted { classes: &*set, published: &published, records: self.records })
    }

    /// The generalized loss metric as papers print it: the sum over all cells, each by its attribute's weight.
    pub fn raw_glm(&self, recoding: &Recoding) -> f64 {
        let weights: f64 = self.policy.quasi.iter().map(|q| q.weight).sum();
        self.loss_by(Loss::Glm, recoding) * weights * self.records as f64
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

    fn judge(&self, set: &dyn Classes) -> Evaluation {
        let Verdict { published, whole, security } = publishable::judge(self.rules, set, self.allowed);
        let counted = Counted { classes: set, published: &published, records: self.records };
        let suppressed: u64 = counted.suppressed().map(|class| u64::from(set.rows()[class])).sum();
        let satisfies = whole && suppressed <= self.allowed && published.iter().any(|p| *p);
        let sizes = set.sizes().iter().zip(&published).filter(|(_, p)| **p).map(|(size, _)| *size);
        let penalised = self.metric.loss(&counted);
        Evaluation {
            satisfies,
            loss: if satisfies { penalised } else { f64::INFINITY },
            penalised,
            bound_above: self.metric.bound_above(&counted),
            suppressed,
            classes: set.len() as u64,
            k: sizes.min().unwrap_or(0),
            security,
        }
    }
}
