//! `anonymize --report FILE.html`: a self-contained page for the person who is responsible for the release.
//!
//! It shows the policy, the outcome of the records, the generalization of each attribute, the remaining risk and the cost.
//! It holds only aggregates and published values.

use std::collections::{BTreeMap, BTreeSet};

use crate::cli::shared::{Batch, ReleaseReport};
use crate::gate::Release;
use crate::model::policy::{Policy, QuasiIdentifier, RecodingKind};
use crate::model::release::manifest::{AttributeLevel, Provenance};
use crate::model::schema::Role;
use crate::plot::{count, figure};
use crate::privacy::{Rule, Rules};
use crate::search::front::objectives::FrontPoint;
use crate::search::insight::Insight;
use crate::telemetry::html::{Html, STYLE};
use crate::telemetry::pictures;
use crate::usefulness::{Accuracy, Usefulness};

/// Published values that are shown of each attribute. More fill the page; fewer do not show what they look like.
const EXAMPLES: usize = 4;

/// The page.
pub(super) fn page(report: &ReleaseReport, batch: &Batch, release: &Release, insight: Option<&Insight>) -> String {
    let from = report.provenance();
    let mut html = Html::page(&format!(
        "<meta http-equiv=\"content-security-policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <title>Anonymization report</title><style>{STYLE}</style>"
    ));
    html.raw("<header><h1>Anonymization report</h1>");
    match report.satisfies {
        true => html.text("span class=\"state good\"", "the policy is met"),
        false => html.text("span class=\"state bad\"", "the policy is not met: nothing was published"),
    };
    html.raw("</header><main>");
    tiles(report, &mut html);
    html.raw("<div class=\"cards\">");
    html.card("What was asked, and what was reached", |html| criteria(report, &batch.policy, html));
    html.card("What became of the records", |html| records(from, batch, html));
    html.raw("</div>");
    html.card("What was done to each attribute", |html| attributes(report, batch, release, insight, html));
    if let Some(useful) = &report.usefulness {
        html.card("What the release is still good for", |html| usefulness(useful, &batch.policy, html));
    }
    if !release.is_empty() {
        html.raw("<div class=\"cards\">");
        html.card("Risk of re-identification", |html| risk(release, &batch.policy, html));
        html.card("Classes by size", |html| sizes(release, html));
        html.raw("</div>");
    }
    html.card("How the generalization was found", |html| search(from, &batch.policy, insight, html));
    html.raw("</main><footer>");
    html.text("p", &format!("Policy fingerprint {}.", from.policy_fingerprint));
    html.raw("</footer></body></html>\n");
    html.finish()
}

fn tiles(report: &ReleaseReport, html: &mut Html) {
    let from = report.provenance();
    let share = |records: u64| format!("{} of those read", percent(records as f64 / from.records_in.max(1) as f64));
    html.raw("<dl class=\"tiles\">");
    html.tile("records read", &count(from.records_in as f64), "");
    for (name, records) in [
        ("published", from.records_published),
        ("suppressed", from.records_suppressed),
        ("rejected", from.records_rejected),
    ] {
        html.tile(name, &count(records as f64), &share(records));
    }
    let k = report.manifest.k_achieved.map_or("-".into(), |k| k.to_string());
    html.tile("smallest class", &k, &format!("of {} classes", report.manifest.classes)).raw("</dl>");
}

fn percent(share: f64) -> String {
    format!("{} %", figure(100.0 * share))
}

fn criteria(report: &ReleaseReport, policy: &Policy, html: &mut Html) {
    let row = |rule: &dyn Rule| {
        let reached = report.manifest.criteria.iter().find(|c| c.criterion == rule.name()).and_then(|c| c.achieved);
        let bound = if rule.at_most() { "at most" } else { "at least" };
        vec![rule.name(), format!("{bound} {}", figure(rule.required())), reached.map_or("-".into(), figure)]
    };
    let rows: Vec<Vec<String>> = Rules::new(policy).iter().map(row).collect();
    html.table(&["criterion", "asked of every class", "weakest class"], &rows);
    let size = if policy.schema.subject.is_some() { "distinct people" } else { "records" };
    let class = "A class is the published records that share all generalized values; its size is its";
    html.text("p class=\"note\"", &format!("{class} {size}."));
    for bound in &report.provenance().unmet_bounds {
        html.text("p class=\"note\"", &format!("A bound of `search.prefer` is not met: {bound}."));
    }
    let limit = format!("At most {} of the records may be left out.", percent(policy.suppression.0));
    html.text("p class=\"note\"", &limit);
}

fn records(from: &Provenance, batch: &Batch, html: &mut Html) {
    let picture = pictures::outcomes(from.records_published, from.records_suppressed, 0, from.records_rejected);
    html.picture(picture, "There was no record.");
    let unplaced = from.work.unplaced;
    let row = |outcome: &str, reason: &str, records: u64| vec![outcome.into(), reason.into(), records.to_string()];
    let mut rows = vec![
        row("published", "in a class that meets every criterion", from.records_published),
        row("suppressed", "in no class that meets every criterion", from.records_suppressed.saturating_sub(unplaced)),
    ];
    if unplaced > 0 {
        rows.push(row("suppressed", "a value that has no place in its hierarchy", unplaced));
    }
    let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
    for (_, reject) in &batch.window.rejected {
        let field = reject.field.map_or(String::new(), |slot| format!(" in {}", batch.policy.schema.name(slot)));
        *reasons.entry(format!("{}{field}", reject.code.as_str().replace('_', " "))).or_default() += 1;
    }
    rows.extend(reasons.iter().map(|(reason, &records)| row("rejected", reason, records)));
    html.table(&["outcome", "reason", "records"], &rows);
    if !from.work.left_out.is_empty() {
        html.raw("<h3>Who is missing</h3>").list(from.work.left_out.iter().map(ToString::to_string));
        let note = "Values of which half or more of the records were left out, as generalized as the release; values of few people \
                    are not named.";
        html.text("p class=\"note\"", note);
    }
}

fn attributes(report: &ReleaseReport, batch: &Batch, release: &Release, insight: Option<&Insight>, html: &mut Html) {
    let (policy, from) = (&batch.policy, report.provenance());
    let insight = insight.filter(|_| !release.is_empty());
    html.raw("<div class=\"cards\"><div>");
    let levels: Vec<u8> = from.recoding.iter().map(|level| level.level).collect();
    // With levels of their own for each record there is no single one to draw.
    if from.recoding.iter().all(|level| level.finest.is_none_or(|finest| finest == level.level)) {
        html.picture(pictures::levels(policy, &levels), "Nothing was generalized.");
    }
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
    let names = from.work.losses.iter().map(|loss| &loss.name).filter(|name| *name != "glm_raw");
    let losses: Vec<String> = names.filter_map(|name| Some(format!("{name} {}", figure(from.loss(name)?)))).collect();
    html.text("p class=\"note\"", &format!("Loss of the whole release: {}.", losses.join(", ")));
}

/// The generalization of one quasi-identifier, in words.
fn generalization(report: &ReleaseReport, at: usize, quasi: &QuasiIdentifier) -> String {
    let from = report.provenance();
    let level = match from.recoding.get(at) {
        Some(level) if level.cut.is_some() => format!("generalized, by a cut up to level {}", level.level),
        Some(AttributeLevel { level, finest: Some(finest), .. }) if finest != level => {
            format!("generalized to levels {finest} to {level} of {}, record by record", quasi.hierarchy.height())
        }
        Some(level) => format!("generalized to level {} of {}", level.level, quasi.hierarchy.height()),
        None => "not published".into(),
    };
    match report.top_fallbacks().find(|(attribute, _)| *attribute == &*quasi.name) {
        Some((_, records)) => {
            let share = percent(records as f64 / from.work.counted.max(1) as f64);
            format!("{level}; {records} records ({share}) have no usable value and stand as the top")
        }
        None => level,
    }
}

/// What the rows lose, and what counts and a classifier would still get right.
fn usefulness(useful: &Usefulness, policy: &Policy, html: &mut Html) {
    let row = |measure: &str, value: f64| vec![measure.to_owned(), percent(value)];
    let mut rows = vec![
        row("loss of the record in the middle", useful.loss_median),
        row("loss that one record in twenty exceeds", useful.loss_p95),
        row("counts by one attribute: records in the right place", useful.counts_by_one),
    ];
    rows.extend(useful.counts_by_two.map(|share| row("counts by two attributes: records in the right place", share)));
    if let Some(Accuracy { published, raw, majority }) = useful.classifier {
        rows.push(row("classifier of the label, on published values: right", published));
        rows.push(row("the same on the values as they were read", raw));
        rows.push(row("always saying the most frequent label", majority));
    }
    html.table(&["measure", "share"], &rows);
    let recoding = format!(
        "With recoding: {}. `veilstream search` shows these figures for each recoding, side by side.",
        policy.recoding.as_str()
    );
    html.text("p class=\"note\"", &recoding);
    let note = "A record loses 0 % if all its values stay, and 100 % if it is suppressed or every value is at its top. Counts spread \
                each published value evenly over the values below it.";
    html.text("p class=\"note\"", note);
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

/// The remaining risk for the three attackers of El Emam's model.
fn risk(release: &Release, policy: &Policy, html: &mut Html) {
    let sizes = release.class_sizes();
    let people: f64 = sizes.iter().map(|(&size, &classes)| f64::from(size) * f64::from(classes)).sum();
    let classes: f64 = sizes.values().map(|&classes| f64::from(classes)).sum();
    let smallest = sizes.keys().next().copied().unwrap_or(1);
    let highest = 1.0 / f64::from(smallest.max(1));
    let at_highest = sizes.get(&smallest).map_or(0.0, |&c| f64::from(c) * f64::from(smallest)) / people.max(1.0);
    let mean = classes / people.max(1.0);
    let who = if policy.schema.subject.is_some() { "people" } else { "records" };
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
    html.raw("</dl>").text(
        "p class=\"note\"",
        "These are risks from the quasi-identifiers alone. They say nothing of attackers who know sensitive or kept values, \
         or who hold other releases about the same people.",
    );
}

fn sizes(release: &Release, html: &mut Html) {
    let sizes: Vec<(u32, u32)> = release.class_sizes().iter().map(|(&size, &classes)| (size, classes)).collect();
    html.picture(pictures::class_sizes("class-sizes", &sizes), "");
    let rows: Vec<Vec<String>> =
        sizes.iter().map(|(size, classes)| vec![size.to_string(), classes.to_string()]).collect();
    html.same_as_table("class-sizes-table", &["size", "classes"], &rows);
}

fn search(from: &Provenance, policy: &Policy, insight: Option<&Insight>, html: &mut Html) {
    if policy.recoding == RecodingKind::Local {
        let how =
            "By a schedule of levels, from fine to coarse, that was learnt from these records and applied to them in";
        html.text("p", &format!("{how} {} ms.", figure(from.search_ms)));
        return;
    }
    let said = format!(
        "By {}, which counted {} of {} generalizations in {} ms and ended because: {}.",
        from.algorithm,
        from.nodes_checked,
        from.nodes_total,
        figure(from.search_ms),
        from.stop
    );
    html.text("p", &said);
    let Some((insight, front)) = insight.and_then(|insight| Some((insight, insight.front.as_ref()?))) else { return };
    html.raw("<h3>The trade-off that was open</h3>");
    html.text("p class=\"note\"", "The large point is the release; hollow ones do not meet the policy.");
    html.picture(pictures::trade_off_of(policy, insight, front, false), "It cannot be drawn.");
    let row = |(at, p): (usize, &FrontPoint)| {
        let mut row = vec![(at + 1).to_string()];
        row.extend(p.values.iter().map(|v| figure(*v)));
        row.push(if p.evaluation.satisfies { "met" } else { "not met" }.into());
        row
    };
    let objectives = front.objectives.iter().map(|o| o.as_str());
    let head: Vec<&str> = ["point"].into_iter().chain(objectives).chain(["policy"]).collect();
    let rows: Vec<Vec<String>> = front.points.iter().enumerate().map(row).collect();
    html.same_as_table("front-table", &head, &rows);
}
