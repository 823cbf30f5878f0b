//! Advice for a report: the release of the same records under the policy with one change.
//!
//! Nothing is guessed. Each change is tried: a release is made in memory under the changed policy and compared with the one that
//! was made. Tries end after [`TIME`]; changes that were not tried by then are not listed.

use std::time::{Duration, Instant};

use crate::cli::shared::{Batch, ReleaseReport};
use crate::model::policy::{Criterion, K, Policy, RecodingKind, SuppressionLimit};
use crate::plot::figure;
use crate::privacy::{Rule, Rules};
use crate::search::choose::Choice;

/// How long all tries may take. Longer keeps people waiting for a report; shorter leaves advice on large files untried.
const TIME: Duration = Duration::from_secs(5);
/// How long the search of one try may take. Longer leaves no time for the others; shorter finds worse than there is.
const ONE: Duration = Duration::from_secs(1);
/// Limits of suppression that are tried for a policy that is not met.
const LIMITS: [f64; 4] = [0.05, 0.1, 0.2, 0.5];

/// What a changed policy would publish.
pub(super) struct Advice {
    /// The change, as it is written in the policy.
    pub(super) change: String,
    /// What becomes of the levels and the records.
    pub(super) effect: String,
    /// The loss by the policy's metric; none if nothing would be published.
    pub(super) loss: Option<f64>,
}

/// The advice for a release that was made with `choice`.
pub(super) fn advice(batch: &Batch, choice: &Choice, seed: u64, report: &ReleaseReport) -> Vec<Advice> {
    let until = Instant::now() + TIME;
    let policy = &*batch.policy;
    let changes = if report.satisfies { changes(policy, choice, report) } else { remedies(policy) };
    let mut given = Vec::new();
    for Change { written, policy, only_if_it_helps } in changes {
        if Instant::now() >= until {
            break;
        }
        let Ok(release) = batch.release_under(&policy, choice.for_recoding(policy.recoding, ONE), seed) else {
            continue;
        };
        let tried = ReleaseReport::new(batch, &release);
        let helps = if report.satisfies { is_finer(&tried, report) } else { tried.satisfies };
        if only_if_it_helps && !helps {
            continue;
        }
        let loss = tried.provenance().loss(policy.loss.as_str()).filter(|_| tried.satisfies);
        given.push(Advice { change: written, effect: effect(&tried, report, &policy), loss });
    }
    given
}

/// One change of a policy.
struct Change {
    written: String,
    policy: Policy,
    /// True if it is not worth a line where nothing gets finer or met.
    only_if_it_helps: bool,
}

impl Change {
    fn to(policy: &Policy, written: String, only_if_it_helps: bool, change: impl FnOnce(&mut Policy)) -> Self {
        let mut policy = policy.clone();
        change(&mut policy);
        Self { written, policy, only_if_it_helps }
    }
}

/// What somebody who has a release may want instead.
fn changes(policy: &Policy, choice: &Choice, report: &ReleaseReport) -> Vec<Change> {
    let mut changes = Vec::new();
    if policy.recoding != RecodingKind::Local && choice.ruled_out(RecodingKind::Local, policy).is_none() {
        changes.push(Change::to(policy, "recoding: local".into(), false, |p| p.recoding = RecodingKind::Local));
    }
    let limit = policy.suppression.0;
    let other_limits = if limit > 0.0 { vec![0.0, (2.0 * limit).min(1.0)] } else { vec![0.05] };
    changes.extend(other_limits.into_iter().map(|other| limited(policy, other, false)));
    changes.extend(with_k(policy, |k| k.saturating_mul(2)).filter(|_| policy.k().0 > 1));
    if policy.recoding == RecodingKind::FullDomain {
        let coarser = policy.quasi.iter().enumerate().zip(&report.provenance().recoding);
        let coarser = coarser.filter(|((_, quasi), now)| now.level < quasi.max_level);
        changes.extend(coarser.map(|((at, quasi), now)| {
            let least = now.level + 1;
            let words = quasi.hierarchy.words(least);
            let written = format!("min_level: {least} on {} ({words})", quasi.name);
            Change::to(policy, written, true, |p| p.quasi[at].min_level = least)
        }));
    }
    changes
}

/// What may make a policy satisfiable.
fn remedies(policy: &Policy) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    let capped = policy.quasi.iter().enumerate().filter(|(_, quasi)| quasi.max_level < quasi.hierarchy.height());
    for (at, quasi) in capped {
        let top = quasi.hierarchy.height();
        let written = format!("max_level: {top} on {} (instead of {})", quasi.name, quasi.max_level);
        changes.push(Change::to(policy, written, false, |p| p.quasi[at].max_level = top));
    }
    let larger = LIMITS.into_iter().filter(|limit| *limit > policy.suppression.0);
    changes.extend(larger.map(|limit| limited(policy, limit, false)));
    changes.extend(with_k(policy, |k| (k / 2).max(2)).filter(|_| policy.k().0 > 2));
    let names: Vec<String> = Rules::new(policy).iter().map(Rule::name).collect();
    // A criterion can be several rules: then their names do not tell which one to leave out.
    if names.len() == policy.criteria.len() && names.len() > 1 {
        changes.extend(names.into_iter().enumerate().map(|(at, name)| {
            let without = |p: &mut Policy| {
                p.criteria.remove(at);
            };
            Change::to(policy, format!("without {name}"), false, without)
        }));
    }
    changes
}

fn limited(policy: &Policy, limit: f64, only_if_it_helps: bool) -> Change {
    let written = format!("suppression: {{ limit: {} % }}", figure(100.0 * limit));
    Change::to(policy, written, only_if_it_helps, |p| p.suppression = SuppressionLimit(limit))
}

/// The policy with another k of its k-anonymity, if it has one.
fn with_k(policy: &Policy, change: impl Fn(u32) -> u32) -> Option<Change> {
    let k = policy.criteria.iter().find_map(|c| if let Criterion::KAnonymity(k) = c { Some(k.0) } else { None })?;
    let other = change(k);
    Some(Change::to(policy, format!("k-anonymity: {other}"), false, |policy| {
        for criterion in &mut policy.criteria {
            if let Criterion::KAnonymity(k) = criterion {
                *k = K(other);
            }
        }
    }))
}

/// True if an attribute is published finer than now.
fn is_finer(tried: &ReleaseReport, now: &ReleaseReport) -> bool {
    let levels = tried.provenance().recoding.iter().zip(&now.provenance().recoding);
    tried.satisfies && levels.into_iter().any(|(tried, now)| tried.level < now.level)
}

/// What becomes of levels and records.
fn effect(tried: &ReleaseReport, now: &ReleaseReport, policy: &Policy) -> String {
    if !tried.satisfies {
        return "nothing would be published".into();
    }
    let (then, before) = (tried.provenance(), now.provenance());
    let suppressed = format!("{} of {} records left out", then.records_suppressed, then.records_in);
    if !now.satisfies {
        return format!("the policy would be met: {}; {suppressed}", tried.words);
    }
    let changed = policy.quasi.iter().zip(then.recoding.iter().zip(&before.recoding));
    let changed = changed.filter_map(|(quasi, (then, before))| {
        let (then, before) = (then.words(&quasi.hierarchy), before.words(&quasi.hierarchy));
        (then != before).then(|| format!("{} {then} instead of {before}", quasi.name))
    });
    let changed: Vec<String> = changed.collect();
    let levels = if changed.is_empty() { "the same levels".into() } else { changed.join("; ") };
    format!("{levels}; {suppressed} instead of {}", before.records_suppressed)
}
