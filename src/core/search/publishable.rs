//! Which classes of a node may be published, where that depends on what else is: t-closeness compares with the release,
//! and whoever knows only some attributes sees several classes as one.
//!
//! By rounds: classes that fail against what is left are left out, until nothing changes or more would be left out than
//! the policy allows. What remains satisfies every rule counted on itself alone, which is how the gate counts it.

use crate::frequency::set::{Classes, GONE};
use crate::model::counting::Histogram;
use crate::privacy::{Class, Rule, RuleScope, Rules};

/// The verdict on one node.
pub(super) struct Verdict {
    /// Whether class i may be published. If more records are left out than is allowed, this is as far as it was judged.
    pub(super) published: Vec<bool>,
    /// True if the rules about the release as a whole hold.
    pub(super) whole: bool,
    /// Mean security over what is published; 1 without confidential sentences.
    pub(super) security: f64,
    /// True if the time was over before it was judged: nothing is published then.
    pub(super) given_up: bool,
}

/// Judges the classes of `set`, of which classes with `allowed` records together may be left out, as long as there is time.
pub(super) fn judge(rules: &Rules, set: &dyn Classes, allowed: u64, in_time: &dyn Fn() -> bool) -> Verdict {
    let least = rules.least_size();
    let mut published: Vec<bool> = set.sizes().iter().map(|&size| size >= least).collect();
    leave_out_alone(rules.alone(true, true).chain(rules.alone(true, false)), rules, set, &mut published);
    let mut verdict = Verdict { published, whole: true, security: 1.0, given_up: false };
    if !rules.only_classes() {
        let left_out = |published: &[bool]| -> u64 {
            published.iter().zip(set.rows()).filter(|(p, _)| !**p).map(|(_, &rows)| u64::from(rows)).sum()
        };
        let within = |published: &[bool]| left_out(published) <= allowed;
        let go_on = |published: &[bool]| in_time() && within(published);
        while go_on(&verdict.published) && leave_out(rules, set, &go_on, &mut verdict.published) {}
        if !in_time() {
            verdict.published.fill(false);
            verdict.given_up = true;
        }
    }
    if rules.security().is_some() || rules.of(RuleScope::Release).next().is_some() {
        let release = set.seen_by(&verdict.published, &[]).classes;
        let (mut classes, mut release) = (View::new(set, rules), View::new(&*release, rules));
        let mean = |rule: &dyn Rule, classes: &mut View<'_>, release: &mut View<'_>| {
            let (mut sum, mut people) = (0.0, 0.0);
            for class in (0..set.len()).filter(|&class| verdict.published[class]) {
                let size = f64::from(set.sizes()[class]);
                sum += size * rule.measure(&classes.class(class), &release.class(0));
                people += size;
            }
            if people > 0.0 { sum / people } else { 1.0 }
        };
        let whole = rules.of(RuleScope::Release).all(|rule| rule.meets(mean(rule, &mut classes, &mut release)));
        let security = rules.security().map_or(1.0, |rule| mean(rule, &mut classes, &mut release));
        (verdict.whole, verdict.security) = (whole, security);
    }
    verdict
}

/// Leaves out the classes for which one of `alone` does not hold.
pub(super) fn leave_out_alone<'r>(
    alone: impl Iterator<Item = &'r dyn Rule>,
    rules: &Rules,
    set: &dyn Classes,
    published: &mut [bool],
) {
    let mut others: Vec<&dyn Rule> = Vec::new();
    for rule in alone {
        match rule.distinct_values_of().and_then(|facet| set.distinct_values(facet)) {
            Some(values) => {
                published.iter_mut().zip(values).for_each(|(p, values)| *p &= rule.meets(f64::from(values)))
            }
            None => others.push(rule),
        }
    }
    if others.is_empty() {
        return;
    }
    let mut classes = View::new(set, rules);
    for (class, published) in published.iter_mut().enumerate().filter(|(_, published)| **published) {
        let class = classes.class(class);
        *published = others.iter().all(|rule| rule.meets(rule.measure(&class, &class)));
    }
}

/// Records in published classes that cannot all be published, here or at a finer node.
pub(super) fn doomed(
    rules: &Rules,
    set: &dyn Classes,
    published: &[bool],
    everything: &dyn Classes,
    spared: f64,
) -> f64 {
    let (mut classes, mut all) = (View::new(set, rules), View::new(everything, rules));
    let all = all.class(0);
    let of = |class: usize| f64::from(set.rows()[class]) * rules.doomed(&classes.class(class), &all, spared);
    (0..set.len()).filter(|&class| published[class]).map(of).sum()
}

/// One round, as long as `go_on`; true if it left out a class, and something was left.
fn leave_out(rules: &Rules, set: &dyn Classes, go_on: &dyn Fn(&[bool]) -> bool, published: &mut [bool]) -> bool {
    let before: Vec<bool> = published.to_vec();
    if !before.contains(&true) {
        return false;
    }
    if rules.of(RuleScope::Within).next().is_some() {
        let release = set.seen_by(&before, &[]).classes;
        let (mut classes, mut release) = (View::new(set, rules), View::new(&*release, rules));
        for class in (0..set.len()).filter(|&class| before[class]) {
            let (class_counts, release) = (classes.class(class), release.class(0));
            published[class] =
                rules.of(RuleScope::Within).all(|rule| rule.meets(rule.measure(&class_counts, &release)));
        }
    }
    for scope in rules.partial() {
        let telling = telling(set, &before);
        let Some(knowledge) = rules.knowledge(&telling, scope) else {
            published.fill(false);
            return true;
        };
        for known in knowledge {
            if !go_on(published) {
                return true;
            }
            let seen = set.seen_by(&before, &known);
            let mut merged = View::new(&*seen.classes, rules);
            let mut holds = |class: usize| {
                let class = merged.class(class);
                rules.of(scope).all(|rule| rule.meets(rule.measure(&class, &class)))
            };
            let good: Vec<bool> = (0..seen.classes.len()).map(&mut holds).collect();
            for (published, &class) in published.iter_mut().zip(&seen.class_of).filter(|(_, class)| **class != GONE) {
                *published &= good[class as usize];
            }
        }
    }
    *published != *before
}

/// The attributes in which published classes differ: the others tell nobody anything.
fn telling(set: &dyn Classes, published: &[bool]) -> Vec<usize> {
    let shown = || (0..set.len()).filter(|&class| published[class]);
    let Some(first) = shown().next() else { return Vec::new() };
    let differs = |&attribute: &usize| shown().any(|class| set.code(class, attribute) != set.code(first, attribute));
    (0..set.node().levels().len()).filter(differs).collect()
}

/// The classes of a set as criteria see them.
struct View<'a> {
    set: &'a dyn Classes,
    histograms: Vec<Histogram<'a>>,
}

impl<'a> View<'a> {
    fn new(set: &'a dyn Classes, rules: &Rules) -> Self {
        Self { set, histograms: vec![Histogram::default(); rules.facets().len()] }
    }

    fn class(&mut self, class: usize) -> Class<'_> {
        for (facet, histogram) in self.histograms.iter_mut().enumerate() {
            *histogram = self.set.histogram(facet, class);
        }
        Class { size: self.set.sizes()[class], facets: &self.histograms }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::model::hierarchy::Hierarchy;
    use crate::model::lattice::Node;
    use crate::model::policy::{Criterion, K};
    use crate::search::Budget;
    use crate::search::fixture::{Table, policy};

    /// Eight attributes of two values, in all combinations.
    fn table(l: usize, k: u32) -> Table {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let mut policy = policy(names.map(|name| (name, Hierarchy::trivial())).into(), &[], 1);
        policy.criteria = vec![Criterion::Lkc { l, k: K(k), c: 1.0, fields: Vec::new() }];
        let cells = |i: u32| (0..8).map(|bit| if i >> bit & 1 == 1 { "x" } else { "y" }).collect::<Vec<_>>();
        Table::new(policy, &(0..256).map(cells).collect::<Vec<_>>())
    }

    fn judged(table: &Table, in_time: &dyn Fn() -> bool) -> Verdict {
        judge(&table.rules, &*table.sets().set(&Node::new([0; 8])), 0, in_time)
    }

    #[test]
    fn what_is_not_judged_in_time_is_not_published() {
        // Whoever knows three attributes finds 32 people: 56 sets, all of which hold.
        let table = table(3, 32);
        let asked = Cell::new(0);
        let counting = || {
            asked.set(asked.get() + 1);
            true
        };
        assert!(judged(&table, &counting).published.iter().all(|p| *p));
        assert!(asked.get() > 56, "asked before each set");
        for patience in [0u32, 1, 30] {
            let left = Cell::new(patience);
            let verdict = judged(&table, &|| left.replace(left.get().saturating_sub(1)) > 0);
            assert!(verdict.given_up && !verdict.published.contains(&true));
        }
    }

    /// A search checks a node, and asks for its evaluation when it answers: the time may be over by then.
    #[test]
    fn a_node_is_judged_once() {
        let table = table(3, 32);
        let (evaluator, node) = (table.evaluator(), Node::new([1, 0, 0, 0, 0, 0, 0, 0]));
        let budget = Budget { deadline: Some(Instant::now() + Duration::from_secs(3600)), ..Budget::unlimited() };
        let (evaluation, given_up) = evaluator.within(&budget, || {
            assert!(evaluator.check(&node).satisfies);
            budget.cancelled.store(true, Ordering::Relaxed);
            evaluator.evaluate(&node)
        });
        assert!(evaluation.satisfies && !given_up);
        assert_eq!((evaluator.checks(), evaluator.origins().cached), (1, 0), "its set is not asked for again");
    }

    #[test]
    fn a_node_that_fails_is_known_after_the_first_sets() {
        let asked = Cell::new(0);
        let counting = || {
            asked.set(asked.get() + 1);
            true
        };
        let verdict = judged(&table(3, 33), &counting);
        assert!(!verdict.given_up && !verdict.published.contains(&true) && asked.get() < 6, "{}", asked.get());
    }

    #[test]
    fn attributes_that_are_alike_everywhere_are_not_counted() {
        let table = table(3, 32);
        let asked = Cell::new(0);
        let counting = || {
            asked.set(asked.get() + 1);
            true
        };
        // Three attributes are left to tell something: one set of three.
        let set = table.sets().set(&Node::new([0, 0, 0, 1, 1, 1, 1, 1]));
        assert!(judge(&table.rules, &*set, 0, &counting).published.iter().all(|p| *p));
        assert!(asked.get() < 6, "{}", asked.get());
    }
}
