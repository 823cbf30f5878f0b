//! Privacy criteria: one per file. Each says when it holds, and whether it is monotone.
//!
//! A criterion of the policy becomes one or more [`Rule`]s, one per figure that it asks for. A rule's [`RuleScope`] says what
//! it is judged on: a class alone, a class within the whole release, the classes of somebody who knows only some
//! attributes, or the release as a whole. The judge (the evaluator from frequency sets, the gate from rows) brings the
//! counts; the rules bring the meaning.
//! To add one: a variant of [`Criterion`] in the policy, a file here, an arm in [`rules_of`].

mod confidential;
mod k_anonymity;
mod l_diversity;
mod over;
mod p_sensitive;
mod security;
mod sets;
mod share;
mod t_closeness;

use std::sync::Arc;

use crate::model::confidential::Profiler;
use crate::model::counting::{Counting, Facet, Histogram, Values};
use crate::model::policy::{Criterion, Policy};

/// One class, or a whole release, as a criterion sees it.
#[derive(Debug, Clone, Copy)]
pub struct Class<'a> {
    /// Distinct subjects (records, without a subject field).
    pub size: u32,
    /// One histogram per facet of [`Rules::facets`].
    pub facets: &'a [Histogram<'a>],
}

/// The material that a rule is judged on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleScope {
    /// Each class by itself.
    Class,
    /// Each class within everything that is published.
    Within,
    /// Each class that somebody sees who knows this many quasi-identifiers, whichever they are.
    Known(usize),
    /// Each class over one set of quasi-identifiers, by its number in the policy.
    Over(usize),
    /// The mean over everybody who is published.
    Release,
}

/// Under which conditions a policy is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Classes that fail may be left out within a limit, and a failing class that merges into a good one may spoil it.
    pub suppression: bool,
    /// Distinct subjects are counted. Somebody may be in both of two classes that merge, so that shares of the merged
    /// class are no longer between those of the two.
    pub subjects: bool,
}

/// A criterion at work.
pub trait Rule: Send + Sync {
    /// The criterion as a user would write it, for manifests and reports.
    fn name(&self) -> String;
    /// The material that it is judged on.
    fn scope(&self) -> RuleScope {
        RuleScope::Class
    }
    /// True if a node above a satisfying node always satisfies too.
    fn monotone(&self, setting: Setting) -> bool;
    /// How many people it wants in each class, where it looks at nothing else and at each class by itself.
    fn least_size(&self) -> Option<u32> {
        None
    }
    /// The facet of which it counts the different values in a class, where it looks at nothing else.
    fn distinct_values_of(&self) -> Option<usize> {
        None
    }
    /// The share of a class's records that is left out at this node and at every finer one at least, where the release is
    /// `everything` but for a share of `spared` at most, and each record is somebody else's.
    fn doomed(&self, _class: &Class<'_>, _everything: &Class<'_>, _spared: f64) -> f64 {
        0.0
    }
    /// The figure that one class reaches, given the whole release.
    fn measure(&self, class: &Class<'_>, release: &Class<'_>) -> f64;
    /// The figure that must be reached, or not be exceeded.
    fn required(&self) -> f64;
    /// True if less is better.
    fn at_most(&self) -> bool {
        false
    }
    /// The same rule knowing what the codes mean; `None` if it does not ask. A rule that asks and was not told fails.
    fn bind(&self, _values: &Values<'_>) -> Option<Arc<dyn Rule>> {
        None
    }
}

/// Where a sensitive field is.
#[derive(Clone)]
struct Place {
    /// Its index among the sensitive fields.
    field: usize,
    name: String,
    facet: usize,
}

/// Sums of shares may come out a hair above the figure that they are.
const ROUNDING: f64 = 1e-12;

impl dyn Rule + '_ {
    /// True if the figure is good enough. Whatever is not a number is not.
    pub fn meets(&self, measure: f64) -> bool {
        if self.at_most() { measure <= self.required() + ROUNDING } else { measure >= self.required() }
    }

    /// The worse of two figures.
    pub fn weaker(&self, a: f64, b: f64) -> f64 {
        if self.at_most() { a.max(b) } else { a.min(b) }
    }
}

/// All criteria of a policy, and what must be counted for them.
#[derive(Clone)]
pub struct Rules {
    rules: Vec<Arc<dyn Rule>>,
    security: Option<Arc<dyn Rule>>,
    facets: Vec<Facet>,
    /// Those of which it matters how many people have each code.
    of_subjects: Vec<Facet>,
    /// The sets of quasi-identifiers that rules ask about, each once.
    subsets: Vec<Vec<usize>>,
    subjects: bool,
    profiler: Profiler,
    kept: Arc<[(Arc<str>, bool)]>,
}

impl Rules {
    /// The rules of `policy`.
    pub fn new(policy: &Policy) -> Self {
        let facets = Facet::of(policy);
        let (mut sentences, mut subsets) = (0, Vec::new());
        for criterion in &policy.criteria {
            if let Criterion::Over { known, .. } = criterion
                && !subsets.contains(known)
            {
                subsets.push(known.clone());
            }
        }
        let of = |c| rules_of(c, policy, &facets, &subsets, &mut sentences);
        let rules = policy.criteria.iter().flat_map(of).collect();
        let security = index(&facets, Facet::Profile)
            .map(|facet| Arc::new(security::Security::new(policy, facet, 0.0)) as Arc<dyn Rule>);
        Self {
            rules,
            security,
            facets,
            of_subjects: Facet::counted(policy),
            subsets,
            subjects: policy.schema.subject.is_some(),
            profiler: Profiler::new(policy.sentences()),
            kept: policy.schema.kept().collect(),
        }
    }

    /// The kept fields, and whether they were reviewed.
    pub fn kept(&self) -> &[(Arc<str>, bool)] {
        &self.kept
    }

    /// The same rules counting records, for files in which the subject is no longer to be seen.
    pub fn counting_records(mut self) -> Self {
        self.subjects = false;
        self
    }

    /// The same rules with more columns counted, for searches that measure what no criterion asks for.
    pub fn also_counting(mut self, facets: impl IntoIterator<Item = Facet>) -> Self {
        for facet in facets {
            if !self.facets.contains(&facet) {
                self.facets.push(facet);
            }
            if facet != Facet::Label {
                self.of_subjects.push(facet);
            }
        }
        self
    }

    /// The same rules knowing what the codes mean. Judge with these; codes that came later are not known to them.
    pub fn bind(&self, values: &Values<'_>) -> Self {
        let bind = |rule: &Arc<dyn Rule>, values| rule.bind(values).unwrap_or_else(|| Arc::clone(rule));
        // A criterion is counted again from the release alone, so only the search may know more.
        let release = Values { shares: &[], ..*values };
        Self {
            rules: self.rules.iter().map(|rule| bind(rule, &release)).collect(),
            security: self.security.as_ref().map(|rule| bind(rule, values)),
            ..self.clone()
        }
    }

    /// The rules, in policy order.
    pub fn iter(&self) -> impl Iterator<Item = &dyn Rule> {
        self.rules.iter().map(|r| &**r)
    }

    /// The rules whose names begin and end like this.
    pub fn named(&self, start: &str, end: &str) -> Vec<Arc<dyn Rule>> {
        let named = |rule: &&Arc<dyn Rule>| rule.name().starts_with(start) && rule.name().ends_with(end);
        self.rules.iter().filter(named).map(Arc::clone).collect()
    }

    /// The rules of one scope.
    pub fn of(&self, scope: RuleScope) -> impl Iterator<Item = &dyn Rule> {
        self.iter().filter(move |rule| rule.scope() == scope)
    }

    /// The scopes of those who know some attributes only, each once.
    pub fn partial(&self) -> Vec<RuleScope> {
        let partial = |scope: &RuleScope| matches!(scope, RuleScope::Known(_) | RuleScope::Over(_));
        let mut scopes: Vec<RuleScope> = self.iter().map(Rule::scope).filter(partial).collect();
        scopes.sort_unstable();
        scopes.dedup();
        scopes
    }

    /// The knowledge of `attributes` that `scope` allows, as far as it decides, one set after the other; `None` if there are more
    /// than [`MAX_KNOWLEDGE`], and then nothing may be published. An attribute that has the same value everywhere tells nobody
    /// anything: callers leave it out.
    pub fn knowledge(&self, attributes: &[usize], scope: RuleScope) -> Option<Vec<Vec<usize>>> {
        match scope {
            RuleScope::Known(l) => self.known(attributes, l).map(Iterator::collect),
            RuleScope::Over(set) => {
                let asked = |at: &usize| self.subsets[set].contains(at);
                Some(vec![attributes.iter().copied().filter(asked).collect()])
            }
            RuleScope::Class | RuleScope::Within | RuleScope::Release => Some(Vec::new()),
        }
    }

    /// The sets of somebody who knows at most `l` attributes. Knowing fewer merges classes, and a merged class is no worse than
    /// its parts; unless subjects are counted, for somebody in several parts counts once in the merged class.
    fn known(&self, attributes: &[usize], l: usize) -> Option<impl Iterator<Item = Vec<usize>>> {
        let most = l.min(attributes.len());
        let least = if self.subjects { 0 } else { most };
        let bounded = knowledge_count(attributes.len(), l, self.subjects) <= MAX_KNOWLEDGE;
        let sets = move |size| combinations(attributes.len(), size);
        let named = |set: Vec<usize>| set.into_iter().map(|at| attributes[at]).collect();
        bounded.then(|| (least..=most).flat_map(sets).map(named))
    }

    /// Security by the confidential sentences, whether or not the policy asks for a least one; `None` without sentences.
    pub fn security(&self) -> Option<&dyn Rule> {
        self.security.as_deref()
    }

    /// The share of a class's records that no release at this node or a finer one can show; see [`Rule::doomed`].
    pub fn doomed(&self, class: &Class<'_>, everything: &Class<'_>, spared: f64) -> f64 {
        let share = |rule: &dyn Rule| rule.doomed(class, everything, spared);
        if self.subjects { 0.0 } else { self.iter().map(share).fold(0.0, f64::max) }
    }

    /// The columns to count inside each class.
    pub fn facets(&self) -> &[Facet] {
        &self.facets
    }

    /// The counts that frequency sets must keep.
    pub fn counting(&self) -> Counting {
        Counting { subjects: self.subjects, facets: self.facets.clone(), of_subjects: self.of_subjects.clone() }
    }

    /// A profiler of its own, for the gate, which trusts no code.
    pub fn profiler(&self) -> Profiler {
        self.profiler.clone()
    }

    /// True if every rule that needs nothing but the class holds for it.
    pub fn hold_alone(&self, class: &Class<'_>) -> bool {
        self.of(RuleScope::Class).all(|rule| rule.meets(rule.measure(class, class)))
    }

    /// How many people every class must have, by the rules that look at nothing else.
    pub fn least_size(&self) -> u32 {
        self.iter().filter_map(Rule::least_size).max().unwrap_or(0)
    }

    /// The rules that need nothing but the class, and more of it than its size: those that are monotone, or the others.
    pub fn alone(&self, suppression: bool, monotone: bool) -> impl Iterator<Item = &dyn Rule> {
        let setting = Setting { suppression, subjects: self.subjects };
        self.of(RuleScope::Class).filter(move |rule| rule.least_size().is_none() && rule.monotone(setting) == monotone)
    }

    /// True if no rule needs more than the class.
    pub fn only_classes(&self) -> bool {
        self.iter().all(|rule| rule.scope() == RuleScope::Class)
    }

    /// True if every rule is monotone. Rules that are so with suppression hold no matter who joins a class, so what is published
    /// at a finer node, and all that shares its classes at a coarser one, holds there by all of them at once.
    pub fn monotone(&self, suppression: bool) -> bool {
        let setting = Setting { suppression, subjects: self.subjects };
        self.rules.iter().all(|r| r.monotone(setting))
    }
}

/// The most sets of attributes that are counted for `lkc`. More take longer than a window may: the gate counts all published
/// rows for each set, 50,000 rows in about 3 ms. Fewer refuse policies that can be checked.
pub const MAX_KNOWLEDGE: u128 = 5000;

/// How many sets of attributes [`Rules::knowledge`] looks at.
pub fn knowledge_count(attributes: usize, l: usize, subjects: bool) -> u128 {
    let most = l.min(attributes);
    let least = if subjects { 0 } else { most };
    // Each quotient is exact: it is a binomial coefficient itself.
    let of_size = |size: usize| {
        let times =
            |count: Option<u128>, i: usize| Some(count?.checked_mul((attributes - i) as u128)? / (i as u128 + 1));
        (0..size).fold(Some(1), times).unwrap_or(u128::MAX)
    };
    (least..=most).map(of_size).fold(0, u128::saturating_add)
}

/// The sets of `size` of the numbers below `n`, in lexicographic order, made one at a time.
fn combinations(n: usize, size: usize) -> impl Iterator<Item = Vec<usize>> {
    std::iter::successors((size <= n).then(|| (0..size).collect::<Vec<usize>>()), move |last| {
        let at = (0..size).rev().find(|&at| last[at] < n - size + at)?;
        Some(last[..at].iter().copied().chain((0..size - at).map(|up| last[at] + 1 + up)).collect())
    })
}

fn index(facets: &[Facet], wanted: Facet) -> Option<usize> {
    facets.iter().position(|f| *f == wanted)
}

/// The rules of one criterion. `sentences` counts the sentences of the criteria before it.
fn rules_of(
    criterion: &Criterion,
    policy: &Policy,
    facets: &[Facet],
    subsets: &[Vec<usize>],
    sentences: &mut usize,
) -> Vec<Arc<dyn Rule>> {
    let facet = |wanted: Facet| index(facets, wanted).unwrap_or_default();
    let place = |field: usize| Place {
        field,
        name: policy.schema.name(policy.schema.sensitive[field]).to_string(),
        facet: facet(Facet::Sensitive(field)),
    };
    match criterion {
        Criterion::KAnonymity(k) => vec![Arc::new(k_anonymity::KAnonymity::new(*k))],
        Criterion::LDiversity { field, l, variant } => {
            let (place, l, variant) = (place(*field), *l, *variant);
            vec![Arc::new(l_diversity::LDiversity { place, sets: None, l, variant })]
        }
        Criterion::TCloseness { field, t, distance } => {
            vec![Arc::new(t_closeness::TCloseness::new(place(*field), *t, distance.clone()))]
        }
        Criterion::PSensitive { field, p } => {
            vec![Arc::new(p_sensitive::PSensitive { place: place(*field), sets: None, p: *p })]
        }
        Criterion::AlphaK { field, alpha, k } => share::alpha_k(*k, *alpha, place(*field)),
        Criterion::Lkc { l, k, c, fields } => {
            let known = (*l).min(policy.quasi.len());
            share::lkc(known, *k, *c, fields.iter().map(|&field| place(field)))
        }
        Criterion::Confidential(own) => {
            let first = *sentences;
            *sentences += own.len();
            vec![Arc::new(confidential::Confidential::new(own, first, facet(Facet::Profile)))]
        }
        Criterion::MinSecurity(least) => {
            vec![Arc::new(security::Security::new(policy, facet(Facet::Profile), *least))]
        }
        Criterion::Over { known, criterion } => {
            let names: Vec<&str> = known.iter().map(|&at| &*policy.quasi[at].name).collect();
            let names: Arc<str> = names.join(", ").into();
            let scope = RuleScope::Over(subsets.iter().position(|set| set == known).unwrap_or_default());
            let over = |rule| Arc::new(over::Over { rule, names: Arc::clone(&names), scope }) as Arc<dyn Rule>;
            rules_of(criterion, policy, facets, subsets, sentences).into_iter().map(over).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(subjects: bool) -> Rules {
        Rules {
            rules: Vec::new(),
            security: None,
            facets: Vec::new(),
            of_subjects: Vec::new(),
            subsets: Vec::new(),
            subjects,
            profiler: Profiler::new([]),
            kept: Arc::default(),
        }
    }

    #[test]
    fn only_the_largest_knowledge_decides_unless_subjects_are_counted() {
        let sets = |subjects, width: usize, l| -> Vec<Vec<usize>> {
            let attributes: Vec<usize> = (0..width).collect();
            rules(subjects).knowledge(&attributes, RuleScope::Known(l)).unwrap()
        };
        assert_eq!(sets(false, 3, 2), [vec![0, 1], vec![0, 2], vec![1, 2]]);
        assert_eq!(sets(false, 2, 5), [vec![0, 1]]);
        assert_eq!(sets(true, 2, 2), [vec![], vec![0], vec![1], vec![0, 1]]);
        assert_eq!(rules(false).knowledge(&[3, 7, 9], RuleScope::Known(2)).unwrap().last(), Some(&vec![7, 9]));
        for (subjects, width, l) in [(false, 8, 3), (true, 8, 3), (false, 9, 9), (true, 5, 0), (false, 0, 2)] {
            let sets = sets(subjects, width, l);
            assert_eq!(sets.len() as u128, knowledge_count(width, l, subjects));
            assert!(sets.iter().collect::<std::collections::BTreeSet<_>>().len() == sets.len());
        }
    }

    #[test]
    fn what_is_too_much_to_count_is_not_counted() {
        let attributes: Vec<usize> = (0..60).collect();
        assert_eq!(knowledge_count(60, 6, false), 50_063_860);
        assert_eq!(knowledge_count(4000, 2000, true), u128::MAX);
        assert!(rules(false).knowledge(&attributes, RuleScope::Known(6)).is_none());
        assert!(rules(false).knowledge(&attributes[..14], RuleScope::Known(6)).is_some());
        assert!(rules(true).knowledge(&attributes[..14], RuleScope::Known(6)).is_none());
        assert!(rules(true).knowledge(&attributes[..14], RuleScope::Known(4)).is_some());
    }
}
