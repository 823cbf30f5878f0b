//! The operator's figures about left-out records: why nothing was published, how many values had no place in their hierarchy,
//! and which groups are missing from a release.
//!
//! Invariant: a group is named only if it has at least k people, and at least [`FEWEST_PEOPLE`]. Readers of a release get none
//! of these figures.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::Draft;
use crate::model::domain::{Code, DomainView};
use crate::model::policy::{Policy, QuasiIdentifier};
use crate::model::release::manifest::{Group, Unmet};
use crate::search::StopReason;
use crate::search::choose::Chosen;
use crate::window::ClosedWindow;

/// No group of fewer people is named, whatever the policy asks. Larger hides small minorities; smaller comes near to naming people
/// where the policy asks for little.
const FEWEST_PEOPLE: u32 = 5;
/// Groups that are named; the largest come first. More fills the page; fewer hides some.
const MOST_GROUPS: usize = 20;

/// Why nothing is published by the recoding that was chosen.
pub(in crate::anonymizer) fn unmet(chosen: &Chosen) -> Unmet {
    match chosen.stop {
        _ if chosen.evaluation.satisfies => Unmet::Forbidden,
        StopReason::Budget | StopReason::Deadline | StopReason::Cancelled => Unmet::Unfound,
        StopReason::Exhausted | StopReason::Proven => Unmet::Unsatisfied,
    }
}

/// The number of counted records of a window, and for each attribute how many of them have the top instead of a value without
/// a place.
pub(in crate::anonymizer) fn fallbacks(policy: &Policy, window: &ClosedWindow) -> (u64, Vec<(Arc<str>, u64)>) {
    let base = window.sets.base();
    let count = |(attribute, (quasi, view)): (usize, (&QuasiIdentifier, &Arc<DomainView>))| {
        let at_top = |&class: &usize| Some(base.code(class, attribute)) == view.top_code();
        let classes = if view.top_code().is_some() { base.len() } else { 0 };
        let records = (0..classes).filter(at_top).map(|class| u64::from(base.rows()[class])).sum();
        (Arc::clone(&quasi.name), records)
    };
    (base.records(), policy.quasi.iter().zip(&window.dictionaries.quasi).enumerate().map(count).collect())
}

/// The values of which half or more of the records was left out, with enough people each. None for a release whose plan lists
/// the shown records: the operator was told when it was planned.
pub(in crate::anonymizer) fn groups(draft: &Draft) -> Vec<Group> {
    let Draft { policy, rows, outcomes, grouping, .. } = draft;
    let least = u64::from(policy.k().0.max(FEWEST_PEOPLE));
    let left_out: Vec<usize> = outcomes.suppressed.iter().chain(&outcomes.held).map(|&i| i as usize).collect();
    if outcomes.published.is_empty() || (left_out.len() as u64) < least || draft.planned_to_show().is_some() {
        return Vec::new();
    }
    let numbers = &grouping.numbers;
    let person = |i: usize| if policy.schema.subject.is_some() { rows.subject(i) } else { i as u64 };
    let mut missing = Missing { least, left_out: &left_out, person: &person, groups: Vec::new() };
    let classes = missing.count(numbers.count, rows.len(), |i| numbers.fresh[i]);
    for (at, (quasi, column)) in policy.quasi.iter().zip(&grouping.columns).enumerate() {
        let mut counts = vec![Counted::default(); column.len()];
        for (class, counted) in (0..).zip(&classes) {
            let of = &mut counts[grouping.code(class, at) as usize];
            (of.records, of.left_out) = (of.records + counted.records, of.left_out + counted.left_out);
        }
        let code = |i: usize| grouping.code(numbers.fresh[i], at);
        missing.name(&quasi.name, &counts, code, |code| column.label(code).to_owned());
    }
    for (at, (slot, view)) in policy.schema.sensitive.iter().zip(&draft.window.dictionaries.sensitive).enumerate() {
        let code = |i: usize| rows.sensitive(i)[at];
        let counts = missing.count(view.leaf_count(), rows.len(), code);
        missing.name(policy.schema.name(*slot), &counts, code, |code| text(view, code));
    }
    let mut groups = missing.groups;
    groups.sort_by_key(|group| std::cmp::Reverse(group.left_out));
    groups.truncate(MOST_GROUPS);
    groups
}

/// Records of a class or of a value.
#[derive(Clone, Default)]
struct Counted {
    records: u64,
    left_out: u64,
}

/// The left-out rows, and the groups of them that can be named.
struct Missing<'a> {
    least: u64,
    left_out: &'a [usize],
    person: &'a dyn Fn(usize) -> u64,
    groups: Vec<Group>,
}

impl Missing<'_> {
    /// All rows and the left-out ones, by code.
    fn count(&self, codes: usize, rows: usize, code: impl Fn(usize) -> Code) -> Vec<Counted> {
        let mut counts = vec![Counted::default(); codes];
        (0..rows).for_each(|i| counts[code(i) as usize].records += 1);
        self.left_out.iter().for_each(|&i| counts[code(i) as usize].left_out += 1);
        counts
    }

    /// Names the values of one attribute that are missing.
    fn name(
        &mut self,
        attribute: &str,
        counts: &[Counted],
        code: impl Fn(usize) -> Code,
        label: impl Fn(Code) -> String,
    ) {
        for (value, &Counted { records, left_out }) in (0..).zip(counts) {
            if left_out < self.least || 2 * left_out < records {
                continue;
            }
            let members = self.left_out.iter().filter(|&&i| code(i) == value);
            let people: FxHashSet<u64> = members.map(|&i| (self.person)(i)).collect();
            if people.len() as u64 >= self.least {
                let (attribute, value) = (attribute.to_owned(), label(value));
                self.groups.push(Group { attribute, value, records, left_out });
            }
        }
    }
}

/// The text of a value that is carried as JSON.
fn text(view: &DomainView, code: Code) -> String {
    let json = view.level(0).label(code);
    serde_json::from_str(json).unwrap_or_else(|_| json.to_owned())
}
