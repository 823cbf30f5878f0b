//! The attributes of a report: the level of each in words, its loss, and its distribution before and after.

use std::collections::BTreeSet;

use super::Sheet;
use crate::cli::shared::ReleaseReport;
use crate::gate::Release;
use crate::model::policy::QuasiIdentifier;
use crate::model::schema::Role;
use crate::plot::bars::{Pair, pairs};
use crate::plot::{Caption, figure, percent};
use crate::telemetry::html::Html;
use crate::telemetry::pictures;
use crate::usefulness::{Distribution, ValueShare, distributions};

/// Published values that are shown of each attribute. More fill the page; fewer do not show what they look like.
const EXAMPLES: usize = 4;
/// The fewest people of a value that is named, whatever k is: the report may be handed on.
const FEWEST: u64 = 5;

/// A picture of the levels, and a table of every field.
pub(super) fn attributes(sheet: &Sheet<'_>, html: &mut Html) {
    let Sheet { report, batch, release, insight, .. } = *sheet;
    let (policy, from) = (&batch.policy, report.provenance());
    let insight = insight.filter(|_| !release.is_empty());
    html.raw("<div class=\"cards\"><div>");
    html.picture(pictures::levels(policy, &from.recoding), "Nothing was generalized.");
    html.raw("</div><div>");
    if let Some(insight) = insight {
        html.picture(pictures::attribute_losses(policy, insight), "");
    }
    html.raw("</div></div>");
    let examples = examples(policy.quasi.len(), release);
    let quasi = |(at, q): (usize, &QuasiIdentifier)| {
        let seen = insight.and_then(|insight| insight.attributes.get(at));
        let lost = || report.usefulness.as_ref()?.loss_by_attribute.get(at).map(|(_, loss)| *loss);
        vec![
            q.name.to_string(),
            generalization(report, at, q),
            seen.map_or("-".into(), |a| format!("{} became {}", a.values_before, a.values_after)),
            seen.map(|a| a.loss).or_else(lost).map_or("-".into(), percent),
            examples[at].join(", "),
        ]
    };
    let mut rows: Vec<Vec<String>> = policy.quasi.iter().enumerate().map(quasi).collect();
    let other = |name: &str, done: String| vec![name.into(), done, "-".into(), "-".into(), String::new()];
    for attribute in policy.schema.attributes() {
        let done = |role: &Role| match role {
            Role::Sensitive => Some("published as it is; protected by the criteria"),
            Role::Insensitive | Role::Reviewed => Some("passed through unchanged"),
            Role::Subject => Some("counted, never published"),
            Role::Private => Some("read for conditions, never published"),
            Role::Coordinate => Some("published as a cell only"),
            Role::Quasi | Role::Identifier | Role::Label | Role::EventTime => None,
        };
        if let Some(done) = attribute.roles.iter().find_map(done) {
            let done = match from.work.kept.iter().find(|kept| kept.field == attribute.name) {
                Some(kept) if kept.withheld => format!("left out: {}", kept.reason()),
                Some(kept) if kept.reviewed => format!("{done}, as reviewed: {}", kept.reason()),
                _ => done.to_owned(),
            };
            rows.push(other(&attribute.name, done));
        }
    }
    rows.push(other("every other field", "dropped".into()));
    html.table(&["attribute", "what was done", "different values", "loss", "for example"], &rows);
    html.text("p class=\"note\"", &policy.example_words(&from.recoding));
    let names = from.work.losses.iter().map(|loss| &loss.name).filter(|name| *name != "glm_raw");
    let losses: Vec<String> = names.filter_map(|name| Some(format!("{name} {}", figure(from.loss(name)?)))).collect();
    html.text("p class=\"note\"", &format!("Loss of the whole release: {}.", losses.join(", ")));
}

/// The generalization of one quasi-identifier, in words.
fn generalization(report: &ReleaseReport, at: usize, quasi: &QuasiIdentifier) -> String {
    let from = report.provenance();
    let level = from.recoding.get(at).map_or("not published".into(), |level| level.words(&quasi.hierarchy));
    match report.top_fallbacks().find(|(attribute, _)| *attribute == &*quasi.name) {
        Some((_, records)) => {
            let share = percent(records as f64 / from.work.counted.max(1) as f64);
            format!("{level}; {records} records ({share}) have no usable value and stand as the top")
        }
        None => level,
    }
}

/// A few published values of each attribute.
fn examples(width: usize, release: &Release) -> Vec<Vec<String>> {
    let mut seen: Vec<BTreeSet<String>> = vec![BTreeSet::new(); width];
    // The error only ends the loop early.
    let _ = release.rows(|quasi, _| {
        for (set, label) in seen.iter_mut().zip(quasi) {
            if set.len() < EXAMPLES && !set.contains(*label) {
                set.insert((*label).to_owned());
            }
        }
        if seen.iter().all(|set| set.len() >= EXAMPLES) { Err(()) } else { Ok(()) }
    });
    seen.into_iter().map(|set| set.into_iter().collect()).collect()
}

/// The distribution of each attribute before and after, as pictures with their tables.
pub(super) fn compared(sheet: &Sheet<'_>, html: &mut Html) {
    let policy = &*sheet.batch.policy;
    let floor = u64::from(policy.block_k().0).max(FEWEST);
    let all = distributions(policy, sheet.release, &sheet.batch.window.dictionaries, floor);
    let said = format!(
        "The pale bar is the share of the records that were read, the dark bar the share of those published. Values of fewer than \
         {floor} people are not named and stand together."
    );
    html.text("p class=\"note\"", &said).raw("<div class=\"cards\">");
    for (at, shown) in all.iter().enumerate() {
        html.raw("<section>");
        distribution(at, shown, sheet, html);
        html.raw("</section>");
    }
    html.raw("</div>");
    if all.is_empty() {
        html.text("p class=\"none\"", "No attribute has two values of enough people to be compared.");
    }
}

fn distribution(at: usize, shown: &Distribution, sheet: &Sheet<'_>, html: &mut Html) {
    let quasi = sheet.batch.policy.quasi.iter().position(|quasi| quasi.name == shown.field);
    html.text("h3", &shown.field);
    // What is compared may be coarser than what is published.
    let said = match (quasi, shown.level) {
        (Some(at), Some(level)) => {
            let quasi = &sheet.batch.policy.quasi[at];
            let published = generalization(sheet.report, at, quasi);
            format!("Published {published}; compared {} here.", quasi.hierarchy.words(level))
        }
        _ => "Published as it is.".to_owned(),
    };
    html.text("p class=\"note\"", &said);
    let name = |value: &ValueShare| value.label.clone().unwrap_or_else(|| "all others".into());
    let mut rows: Vec<Pair> =
        shown.values.iter().map(|value| Pair { name: name(value), before: value.before, after: value.after }).collect();
    if shown.coarser > 0.0 {
        rows.push(Pair { name: "coarser".into(), before: 0.0, after: shown.coarser });
    }
    let caption = Caption {
        id: format!("distribution-{at}"),
        title: format!("{} before and after", shown.field),
        description: format!("The shares of {} values, of the records read and of those published.", rows.len()),
    };
    html.picture(pairs(&caption, &rows), "It cannot be drawn.");
    let whole = |share: f64| format!("{:.0} %", 100.0 * share);
    let row = |pair: &Pair| vec![pair.name.clone(), whole(pair.before), whole(pair.after)];
    let rows: Vec<Vec<String>> = rows.iter().map(row).collect();
    html.same_as_table(&format!("distribution-{at}-table"), &["value", "before", "after"], &rows);
}
