//! What the operator is told of those who are not in a release: why there is none, whose values had no place, and which groups
//! vanished.
//!
//! Invariant: a value is named only if it was left out of at least as many people as the policy hides anybody among. Nothing of it
//! is part of what readers get.

use std::sync::Arc;

use super::Plan;
use crate::model::batch::Rows;
use crate::model::domain::{Code, DomainView};
use crate::model::manifest::{Group, Unmet};
use crate::model::policy::{Policy, QuasiIdentifier};
use crate::model::recoding::Column;
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

/// The values of which half or more of the records was left out, with enough people each.
pub(super) fn groups(
    policy: &Policy,
    window: &ClosedWindow,
    rows: &Rows,
    plan: &Plan,
    columns: &[Column],
) -> Vec<Group> {
    let left_out: Vec<u32> = plan.suppressed.iter().chain(&plan.held).copied().collect();
    let least = policy.k().0.max(FEWEST_PEOPLE) as usize;
    if plan.published.is_empty() || left_out.len() < least {
        return Vec::new();
    }
    let people = |of: &dyn Fn(usize) -> bool| {
        let members = left_out.iter().map(|&i| i as usize).filter(|&i| of(i));
        let mut people: Vec<u64> =
            members.map(|i| if policy.schema.subject.is_some() { rows.subject(i) } else { i as u64 }).collect();
        people.sort_unstable();
        people.dedup();
        people.len()
    };
    let mut groups = Vec::new();
    let mut find = |attribute: &str, codes: usize, code: &dyn Fn(usize) -> Code, label: &dyn Fn(Code) -> String| {
        let mut out = vec![0u64; codes];
        left_out.iter().for_each(|&i| out[code(i as usize) as usize] += 1);
        if out.iter().all(|&out| out < least as u64) {
            return;
        }
        let mut all = vec![0u64; codes];
        (0..rows.len()).for_each(|i| all[code(i) as usize] += 1);
        let many = |&at: &usize| out[at] >= least as u64 && 2 * out[at] >= all[at];
        for at in (0..codes).filter(many).filter(|&at| people(&|i| code(i) as usize == at) >= least) {
            let (attribute, value) = (attribute.to_owned(), label(at as Code));
            groups.push(Group { attribute, value, records: all[at], left_out: out[at] });
        }
    };
    for (at, (quasi, column)) in policy.quasi.iter().zip(columns).enumerate() {
        let code = |i: usize| column.map()[rows.quasi(i)[at] as usize];
        find(&quasi.name, column.len(), &code, &|code| column.label(code).to_owned());
    }
    for (at, (slot, view)) in policy.schema.sensitive.iter().zip(&window.dictionaries.sensitive).enumerate() {
        find(policy.schema.name(*slot), view.leaf_count(), &|i| rows.sensitive(i)[at], &|code| text(view, code));
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.left_out));
    groups.truncate(MOST_GROUPS);
    groups
}

/// The text of a value that is carried as JSON.
fn text(view: &DomainView, code: Code) -> String {
    let json = view.level(0).label(code);
    serde_json::from_str(json).unwrap_or_else(|_| json.to_owned())
}
