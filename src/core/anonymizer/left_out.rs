//! What the operator is told of those who are not in a release: why there is none, whose values had no place, and which groups
//! vanished.
//!
//! Invariant: a value is named only if it was left out of at least as many people as the policy hides anybody among. Nothing of it
//! is part of what readers get.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::Plan;
use crate::model::batch::Rows;
use crate::model::domain::{Code, DomainView};
use crate::model::policy::{Policy, QuasiIdentifier};
use crate::model::recoding::Column;
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
pub(super) fn unmet(chosen: &Chosen) -> Unmet {
    match chosen.stop {
        _ if chosen.evaluation.satisfies => Unmet::Forbidden,
        StopReason::Budget | StopReason::Deadline | StopReason::Cancelled => Unmet::Unfound,
        StopReason::Exhausted | StopReason::Proven => Unmet::Unsatisfied,
    }
}

/// How many records of a window were counted, and how many of them stand as the top of each attribute for want of a place.
pub(super) fn fallbacks(policy: &Policy, window: &ClosedWindow) -> (u64, Vec<(Arc<str>, u64)>) {
    let base = window.sets.base();
    let count = |(attribute, (quasi, view)): (usize, (&QuasiIdentifier, &Arc<DomainView>))| {
        let at_top = |&class: &usize| Some(base.code(class, attribute)) == view.top_code();
        let classes = if view.top_code().is_some() { base.len() } else { 0 };
        let records = (0..classes).filter(at_top).map(|class| u64::from(base.rows()[class])).sum();
        (Arc::clone(&quasi.name), records)
    };
    (base.records(), policy.quasi.iter().zip(&window.dictionaries.quasi).enumerate().map(count).collect())
}

/// The values of which half or more of the records was left out, with enough people each. None for a release that is made again:
/// they were told when it was planned.
pub(super) fn groups(
    policy: &Policy,
    window: &ClosedWindow,
    rows: &Rows,
    plan: &Plan,
    columns: &[Column],
) -> Vec<Group> {
    let least = u64::from(policy.k().0.max(FEWEST_PEOPLE));
    let left_out: Vec<usize> = plan.suppressed.iter().chain(&plan.held).map(|&i| i as usize).collect();
    let numbers = plan.numbers.as_ref().filter(|_| !plan.published.is_empty() && left_out.len() as u64 >= least);
    let Some(numbers) = numbers else { return Vec::new() };
    let person = |i: usize| if policy.schema.subject.is_some() { rows.subject(i) } else { i as u64 };
    let mut missing = Missing { least, left_out: &left_out, person: &person, groups: Vec::new() };
    let classes = missing.count(numbers.count, rows.len(), |i| numbers.fresh[i]);
    for (at, (quasi, column)) in policy.quasi.iter().zip(columns).enumerate() {
        let code = |class: usize| numbers.cells[class * columns.len() + at];
        let mut counts = vec![Counted::default(); column.len()];
        for (class, counted) in classes.iter().enumerate() {
            let of = &mut counts[code(class) as usize];
            (of.records, of.left_out) = (of.records + counted.records, of.left_out + counted.left_out);
        }
        let code = |i: usize| code(numbers.fresh[i] as usize);
        missing.name(&quasi.name, &counts, code, |code| column.label(code).to_owned());
    }
    for (at, (slot, view)) in policy.schema.sensitive.iter().zip(&window.dictionaries.sensitive).enumerate() {
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

/// Those who are left out, and which groups of them can be named.
struct Missing<'a> {
    least: u64,
    left_out: &'a [usize],
    person: &'a dyn Fn(usize) -> u64,
    groups: Vec<Group>,
}

impl Missing<'_> {
    /// All rows and those left out, by one of so many codes.
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
