//! `anonymize --report FILE.html`: one page that stands alone, for whoever has to answer for the release.
//!
//! Says what was asked, what was done, what is left of the risk and what it cost. Aggregates and published values only.

use std::collections::{BTreeMap, BTreeSet};

use super::Report;
use crate::cli::batch::Batch;
use crate::gate::Release;
use crate::model::policy::Policy;
use crate::model::schema::Role;
use crate::plot::{count, figure};
use crate::privacy::Rules;
use crate::search::insight::Insight;
use crate::telemetry::html::{Html, STYLE};
use crate::telemetry::pictures;

/// Published values that are shown of each attribute. More fills the page; fewer does not show what they look like.
const EXAMPLES: usize = 4;

/// The page.
pub(in crate::cli) fn page(report: &Report, batch: &Batch, release: &Release, insight: Option<&Insight>) -> String {
    let mut html = Html::default();
    html.raw(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"content-security-policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <title>Anonymization report</title><style>",
    );
    html.raw(STYLE).raw("</style></head><body><header><h1>Anonymization report</h1>");
    match report.satisfies {
        true => html.text("span class=\"state good\"", "the policy is met"),
        false => html.text("span class=\"state bad\"", "the policy is not met: nothing was published"),
    };
    html.raw("</header><main>");
    tiles(report, &mut html);
    html.raw("<div class=\"cards\">");
    criteria(report, &batch.policy, &mut html);
    records(report, batch, &mut html);
    html.raw("</div>");
    attributes(report, batch, release, insight, &mut html);
    if !release.is_empty() {
        html.raw("<div class=\"cards\">");
        risk(release, &batch.policy, &mut html);
        sizes(release, &mut html);
        html.raw("</div>");
    }
    search(report, &batch.policy, insight, &mut html);
    html.raw("</main><footer>");
    html.text("p", &format!("Policy fingerprint {}.", report.policy_fingerprint));
    html.raw("</footer></body></html>\n");
    html.finish()
}

fn tiles(report: &Report, html: &mut Html) {
    html.raw("<dl class=\"tiles\">");
    html.tile("records read", &count(report.records_in as f64), "");
    html.tile("published", &count(report.records_published as f64), &share(report.records_published, report));
    html.tile("suppressed", &count(report.records_suppressed as f64), &share(report.records_suppressed, report));
    html.tile("rejected", &count(report.records_rejected as f64), &share(report.records_rejected, report));
    let k = report.k_achieved.map_or("-".into(), |k| k.to_string());
    html.tile("smallest class", &k, &format!("of {} classes", report.classes));
    html.raw("</dl>");
}

fn share(records: u64, report: &Report) -> String {
    format!("{} % of those read", figure(100.0 * records as f64 / report.records_in.max(1) as f64))
}

fn criteria(report: &Report, policy: &Policy, html: &mut Html) {
    html.raw("<section class=\"card\"><h2>What was asked, and what was reached</h2>");
    let rules = Rules::new(policy);
    let row = |rule: &dyn crate::privacy::Rule| {
        let reached = report.criteria.iter().find(|c| c.criterion == rule.name()).and_then(|c| c.achieved);
        let bound = if rule.at_most() { "at most" } else { "at least" };
        vec![rule.name(), format!("{bound} {}", figure(rule.required())), reached.map_or("-".into(), figure)]
    };
    let rows: Vec<Vec<String>> = rules.iter().map(row).collect();
    html.table(&["criterion", "asked of every class", "weakest class"], &rows);
    let counted = match policy.schema.subject {
        Some(_) => {
            "A class is the published records that share all generalized values; its size is its distinct people."
        }
        None => "A class is the published records that share all generalized values; its size is its records.",
    };
    html.text("p class=\"note\"", counted);
    for unmet_bounds in &report.unmet_bounds {
        html.text("p class=\"note\"", &format!("A bound of `search.prefer` is not met: {unmet_bounds}."));
    }
    let limit = format!("At most {} % of the records may be left out.", figure(100.0 * policy.suppression.0));
    html.text("p class=\"note\"", &limit).raw("</section>");
}

fn records(report: &Report, batch: &Batch, html: &mut Html) {
    html.raw("<section class=\"card\"><h2>What became of the records</h2>");
    html.picture(
        pictures::outcomes(report.records_published, report.records_suppressed, 0, report.records_rejected),
        "There was no record.",
    );
    let unplaced = report.suppressed_by_value;
    let mut rows = vec![
        vec![
            "published".to_owned(),
            "in a class that meets every criterion".into(),
            report.records_published.to_string(),
        ],
        vec![
            "suppressed".into(),
            "in no class that meets every criterion".into(),
            report.records_suppressed.saturating_sub(unplaced).to_string(),
        ],
    ];
    if unplaced > 0 {
        rows.push(vec!["suppressed".into(), "a value that has no place in its hierarchy".into(), unplaced.to_string()]);
    }
    let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
    for (_, reject) in &batch.window.rejected {
        let field = reject.field.map_or(String::new(), |slot| format!(" in {}", batch.policy.schema.name(slot)));
        *reasons.entry(format!("{}{field}", reject.code.as_str().replace('_', " "))).or_default() += 1;
    }
    rows.extend(reasons.into_iter().map(|(reason, count)| vec!["rejected".into(), reason, count.to_string()]));
    html.table(&["outcome", "reason", "records"], &rows);
    if !report.groups_left_out.is_empty() {
        html.raw("<h3>Who is missing</h3><ul>");
        for group in &report.groups_left_out {
            html.text("li", &group.to_string());
        }
        html.raw("</ul>");
        let note = "Values of which half or more of the records was left out, as generalized as the release; values of few people are \
                    not named.";
        html.text("p class=\"note\"", note);
    }
    html.raw("</section>");
}

fn attributes(report: &Report, batch: &Batch, release: &Release, insight: Option<&Insight>, html: &mut Html) {
    let policy = &batch.policy;
    html.raw("<section class=\"card\"><h2>What was done to each attribute</h2><div class=\"cards\"><div>");
    let recoding = &release.manifest().provenance.recoding;
    let levels: Vec<u8> = recoding.iter().map(|level| level.level).collect();
    html.picture(pictures::levels(policy, &levels), "Nothing was generalized.").raw("</div><div>");
    if let Some(insight) = insight.filter(|_| !release.is_empty()) {
        html.picture(pictures::attribute_losses(policy, insight), "");
    }
    html.raw("</div></div>");
    let examples = examples(policy.quasi.len(), release);
    let quasi = |(at, q): (usize, &crate::model::policy::QuasiIdentifier)| {
        let seen = insight.and_then(|insight| insight.attributes.get(at)).filter(|_| !release.is_empty());
        let level = match recoding.get(at) {
            Some(level) if level.cut.is_some() => format!("generalized, by a cut up to level {}", level.level),
            Some(level) => format!("generalized to level {} of {}", level.level, q.hierarchy.height()),
            None => "not published".into(),
        };
        let level = match report.top_fallbacks.get(&*q.name).and_then(serde_json::Value::as_u64) {
            Some(records) => {
                let share = figure(100.0 * records as f64 / release.manifest().provenance.work.counted.max(1) as f64);
                format!("{level}; {records} records ({share} %) have no usable value and stand as the top")
            }
            None => level,
        };
        vec![
            q.name.to_string(),
            level,
            seen.map_or("-".into(), |a| format!("{} became {}", a.values_before, a.values_after)),
            seen.map_or("-".into(), |a| format!("{} %", figure(100.0 * a.loss))),
            examples[at].join(", "),
        ]
    };
    let mut rows: Vec<Vec<String>> = policy.quasi.iter().enumerate().map(quasi).collect();
    for attribute in policy.schema.attributes() {
        let done = |role: &Role| match role {
            Role::Sensitive => Some("published as it is; protected by the criteria"),
            Role::Insensitive | Role::Reviewed => Some("passed through unchanged"),
            Role::Subject => Some("counted, never published"),
            Role::Quasi | Role::Identifier | Role::Label | Role::EventTime => None,
        };
        if let Some(done) = attribute.roles.iter().find_map(done) {
            let done = match report.kept.iter().find(|kept| kept.field == attribute.name) {
                Some(kept) if kept.withheld => format!("left out: {}", kept.reason()),
                Some(kept) if kept.reviewed => format!("{done}, as reviewed: {}", kept.reason()),
                _ => done.to_owned(),
            };
            rows.push(vec![attribute.name.to_string(), done, "-".into(), "-".into(), String::new()]);
        }
    }
    rows.push(vec!["every other field".into(), "dropped".into(), "-".into(), "-".into(), String::new()]);
    html.table(&["attribute", "what was done", "different values", "loss", "for example"], &rows);
    let losses: Vec<String> = report
        .loss
        .iter()
        .filter(|(name, _)| *name != "glm_raw")
        .filter_map(|(name, loss)| Some(format!("{name} {}", figure(loss.as_f64()?))))
        .collect();
    html.text("p class=\"note\"", &format!("Loss of the whole release: {}.", losses.join(", "))).raw("</section>");
}

/// A few published values of each attribute.
fn examples(width: usize, release: &Release) -> Vec<Vec<String>> {
    let mut seen: Vec<BTreeSet<String>> = vec![BTreeSet::new(); width];
    let collected = release.rows(|quasi, _| {
        for (set, label) in seen.iter_mut().zip(quasi) {
            if set.len() < EXAMPLES && !set.contains(*label) {
                set.insert((*label).to_owned());
            }
        }
        if seen.iter().all(|set| set.len() >= EXAMPLES) { Err(()) } else { Ok(()) }
    });
    // Stopping early is no failure.
    let _ = collected;
    seen.into_iter().map(|set| set.into_iter().collect()).collect()
}

/// What is left of the risk, after El Emam's three attackers.
fn risk(release: &Release, policy: &Policy, html: &mut Html) {
    let sizes = release.class_sizes();
    let people: f64 = sizes.iter().map(|(&size, &classes)| f64::from(size) * f64::from(classes)).sum();
    let classes: f64 = sizes.values().map(|&classes| f64::from(classes)).sum();
    let smallest = sizes.keys().next().copied().unwrap_or(1);
    let highest = 1.0 / f64::from(smallest.max(1));
    let at_highest = sizes.get(&smallest).map_or(0.0, |&c| f64::from(c) * f64::from(smallest)) / people.max(1.0);
    let mean = classes / people.max(1.0);
    let percent = |share: f64| format!("{} %", figure(100.0 * share));
    let who = if policy.schema.subject.is_some() { "people" } else { "records" };
    html.raw("<section class=\"card\"><h2>Risk of re-identification</h2>");
    html.table(
        &["attacker", "highest", "mean"],
        &[
            vec!["prosecutor".into(), percent(highest), percent(mean)],
            vec!["journalist".into(), format!("at most {}", percent(highest)), format!("at most {}", percent(mean))],
            vec!["marketer".into(), "-".into(), percent(mean)],
        ],
    );
    html.text(
        "p",
        &format!("{} of the {who} are in a smallest class, that is, at the highest risk.", percent(at_highest)),
    );
    html.raw("<dl class=\"note\">");
    for (name, meaning) in [
        (
            "Prosecutor",
            "knows that somebody is in the release, and all their quasi-identifiers. The risk of picking the right record is \
             one over the size of the class; the mean is over everybody published.",
        ),
        (
            "Journalist",
            "does not know who is in the release, and wants to show that anybody at all can be found, with the help of a \
             larger register. Classes in the register are at least as large as here. Veilstream knows no register, so this \
             is the risk if the register is the file itself: an upper bound.",
        ),
        (
            "Marketer",
            "wants to find as many as possible and does not mind errors. The figure is the share of records that would be \
             matched correctly: the number of classes over the number of people.",
        ),
    ] {
        html.text("dt", name).text("dd", meaning);
    }
    html.raw("</dl>");
    html.text(
        "p class=\"note\"",
        "These are risks from the quasi-identifiers alone. They say nothing of attackers who know sensitive or kept values, \
         or who hold other releases about the same people.",
    );
    html.raw("</section>");
}

fn sizes(release: &Release, html: &mut Html) {
    let sizes: Vec<(u32, u32)> = release.class_sizes().iter().map(|(&size, &classes)| (size, classes)).collect();
    html.raw("<section class=\"card\"><h2>Classes by size</h2>");
    html.picture(pictures::class_sizes("class-sizes", &sizes), "");
    let rows: Vec<Vec<String>> =
        sizes.iter().map(|(size, classes)| vec![size.to_string(), classes.to_string()]).collect();
    html.behind("class-sizes-table", "The same as a table", &["size", "classes"], &rows).raw("</section>");
}

fn search(report: &Report, policy: &Policy, insight: Option<&Insight>, html: &mut Html) {
    html.raw("<section class=\"card\"><h2>How the generalization was found</h2>");
    let said = format!(
        "By {}, which counted {} of {} generalizations in {} ms and ended because: {}.",
        report.algorithm,
        report.nodes_checked,
        report.nodes_total,
        figure(report.elapsed_ms),
        report.stop
    );
    html.text("p", &said);
    if let Some((insight, front)) = insight.and_then(|insight| Some((insight, insight.front.as_ref()?))) {
        html.raw("<h3>The trade-off that was open</h3>");
        html.text("p class=\"note\"", "The large point is the release; hollow ones do not meet the policy.");
        html.picture(pictures::trade_off_of(policy, insight, front, false), "It cannot be drawn.");
        let row = |(at, p): (usize, &crate::search::objectives::FrontPoint)| {
            let mut row = vec![(at + 1).to_string()];
            row.extend(p.values.iter().map(|v| figure(*v)));
            row.push(if p.evaluation.satisfies { "met" } else { "not met" }.into());
            row
        };
        let head: Vec<&str> =
            ["point"].into_iter().chain(front.objectives.iter().map(|o| o.as_str())).chain(["policy"]).collect();
        let rows: Vec<Vec<String>> = front.points.iter().enumerate().map(row).collect();
        html.behind("front-table", "The same as a table", &head, &rows);
    }
    html.raw("</section>");
}
