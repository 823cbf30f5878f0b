//! Which classes of a node may be published, where that depends on what else is: t-closeness compares with the release,
//! and whoever knows only some attributes sees several classes as one.
//!
//! By rounds: classes that fail against what is left are left out, until nothing changes or more would be left out than
//! the policy allows. What remains satisfies every rule counted on itself alone, which is how the gate counts it.

use crate::frequency::set::{Classes, GONE};
use crate::model::counting::Histogram;
use crate::privacy::{Class, Rule, Rules, Scope};

/// The verdict on one node.
pub(super) struct Verdict {
    /// Whether class i may be published. If more records are left out than is allowed, this is as far as it was judged.
    pub(super) published: Vec<bool>,
    /// True if the rules about the release as a whole hold.
    pub(super) whole: bool,
    /// Mean security over what is published; 1 without confidential sentences.
    pub(super) security: f64,
}

/// Judges the classes of `set`, of which classes with `allowed` records together may be left out.
pub(super) fn judge(rules: &Rules, set: &dyn Classes, allowed: u64) -> Verdict {
    let mut classes = View::new(set, rules);
    let published = (0..set.len()).map(|class| rules.hold_alone(&classes.class(class))).collect();
    let mut verdict = Verdict { published, whole: true, security: 1.0 };
    if !rules.only_classes() {
        let left_out = |published: &[bool]| -> u64 {
            published.iter().zip(set.rows()).filter(|(p, _)| !**p).map(|(_, &rows)| u64::from(rows)).sum()
        };
        let within = |published: &[bool]| left_out(published) <= allowed;
        while within(&verdict.published) && leave_out(rules, set, &within, &mut verdict.published) {}
    }
    if rules.security().is_some() || rules.of(Scope::Release).next().is_some() {
        let release = set.seen_by(&verdict.published, &[]).classes;
        let mut release = View::new(&*release, rules);
        let mean = |rule: &dyn Rule, classes: &mut View<'_>, release: &mut View<'_>| {
            let (mut sum, mut people) = (0.0, 0.0);
            for class in (0..set.len()).filter(|&class| verdict.published[class]) {
                let size = f64::from(set.sizes()[class]);
                sum += size * rule.measure(&classes.class(class), &release.class(0));
                people += size;
            }
            if people > 0.0 { sum / people } else { 1.0 }
        };
        let whole = rules.of(Scope::Release).all(|rule| rule.meets(mean(rule, &mut classes, &mut release)));
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
    let alone: Vec<&dyn Rule> = alone.collect();
    if alone.is_empty() {
        return;
    }
    let mut classes = View::new(set, rules);
    for (class, published) in published.iter_mut().enumerate().filter(|(_, published)| **published) {
        let class = classes.class(class);
        *published = alone.iter().all(|rule| rule.meets(rule.measure(&class, &class)));
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

/// One round, or as much of it as leaves out too much; true if it left out a class, and something was left.
fn leave_out(rules: &Rules, set: &dyn Classes, within: &dyn Fn(&[bool]) -> bool, published: &mut [bool]) -> bool {
    let before: Vec<bool> = published.to_vec();
    if !before.contains(&true) {
        return false;
    }
    if rules.of(Scope::Within).next().is_some() {
        let release = set.seen_by(&before, &[]).classes;
        let (mut classes, mut release) = (View::new(set, rules), View::new(&*release, rules));
        for class in (0..set.len()).filter(|&class| before[class]) {
            let (class_counts, release) = (classes.class(class), release.class(0));
            published[class] = rules.of(Scope::Within).all(|rule| rule.meets(rule.measure(&class_counts, &release)));
        }
    }
    let telling = telling(set, &before);
    for l in rules.known() {
        let Some(knowledge) = rules.knowledge(&telling, l) else {
            published.fill(false);
            return true;
        };
        for known in knowledge {
            if !within(published) {
                return true;
            }
            let seen = set.seen_by(&before, &known);
            let mut merged = View::new(&*seen.classes, rules);
            let mut holds = |class: usize| {
                let class = merged.class(class);
                rules.of(Scope::Known(l)).all(|rule| rule.meets(rule.measure(&class, &class)))
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
