//! `anonymize --report FILE.html`: a self-contained page for the person who is responsible for the release.
//!
//! From the verdict to the signature: risk, generalization, cost, alternatives, the policy, and the hash of the release. It holds
//! aggregates, published values, and values of many people; it prints in black on white.

mod attributes;
mod cost;
mod risk;

use std::collections::BTreeMap;

use super::advice::Advice;
use crate::cli::first::explain::{Section, policy_sections};
use crate::cli::search::recodings::Made;
use crate::cli::shared::{Batch, POLICY, PUBLISHED, ReleaseReport};
use crate::config::Config;
use crate::gate::Release;
use crate::model::event::Millis;
use crate::model::policy::Policy;
use crate::model::release::manifest::Provenance;
use crate::plot::{count, escape, figure, percent};
use crate::privacy::{Rule, Rules};
use crate::search::insight::Insight;
use crate::telemetry::html::{Html, STYLE, time};
use crate::telemetry::pictures;

/// Everything that the page is made of.
#[derive(Clone, Copy)]
pub(super) struct Sheet<'a> {
    pub(super) report: &'a ReleaseReport,
    pub(super) config: &'a Config,
    pub(super) batch: &'a Batch,
    pub(super) release: &'a Release,
    pub(super) insight: Option<&'a Insight>,
    pub(super) advice: &'a [Advice],
    /// The releases by the recodings that the policy does not ask for.
    pub(super) others: &'a [Made],
    /// The name of the file that was read.
    pub(super) file: &'a str,
    /// The section `policy` of the configuration as it is written, where it can be told from the rest.
    pub(super) policy_text: Option<&'a str>,
    pub(super) at: Millis,
}

/// The page.
pub(super) fn page(sheet: &Sheet<'_>) -> String {
    let Sheet { report, batch, release, insight, .. } = *sheet;
    let from = report.provenance();
    let mut html = Html::page(&format!(
        "<meta http-equiv=\"content-security-policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>Anonymization report</title><style>{STYLE}</style>"
    ));
    header(sheet, &mut html);
    html.raw("<main class=\"report\">");
    tiles(report, &mut html);
    if !report.satisfies {
        html.card("Why nothing was published", |html| unmet(sheet, html));
    }
    html.raw("<div class=\"cards\">");
    html.card("Risk before and after", |html| risk::before_and_after(sheet, html));
    html.card("What was asked, and what was reached", |html| criteria(report, &batch.policy, html));
    html.raw("</div>");
    if !release.is_empty() {
        html.card("The classes at most risk", |html| risk::classes(sheet, html));
        html.card("What was done to each attribute", |html| attributes::attributes(sheet, html));
        html.card("Each attribute before and after", |html| attributes::compared(sheet, html));
    }
    html.raw("<div class=\"cards\">");
    if report.usefulness.is_some() {
        html.card("What the release is still good for", |html| cost::usefulness(sheet, html));
    }
    html.card("What became of the records", |html| records(from, batch, html));
    html.raw("</div>");
    if !sheet.advice.is_empty() {
        html.card("What another policy would do", |html| cost::advice(sheet, html));
    }
    if !release.is_empty() {
        html.raw("<div class=\"cards\">");
        html.card("Who could find whom", |html| risk::attackers(release, &batch.policy, html));
        html.card("Classes by size", |html| risk::sizes(release, html));
        html.raw("</div>");
    }
    html.card("The policy", |html| policy(sheet, html));
    html.card("How the generalization was found", |html| {
        // Without a release no point of the trade-off is one.
        cost::search(from, &batch.policy, insight.filter(|_| report.satisfies), html)
    });
    html.card("What this report is about", |html| signature(sheet, html));
    html.raw("</main></body></html>\n");
    html.finish()
}

fn header(sheet: &Sheet<'_>, html: &mut Html) {
    let from = sheet.report.provenance();
    html.raw("<header><h1>Anonymization report</h1>");
    let version = env!("CARGO_PKG_VERSION");
    html.text("span class=\"soft\"", &format!("{}, made {} by Veilstream {version}", sheet.file, time(sheet.at)));
    let (class, verdict) = match sheet.report.satisfies {
        true => (
            "state good",
            format!(
                "The policy is met: {} of {} records published, {} left out.",
                from.records_published,
                from.records_in,
                percent(from.records_suppressed as f64 / from.records_in.max(1) as f64),
            ),
        ),
        false => ("state bad", "The policy is not met: nothing was published.".to_owned()),
    };
    html.text(&format!("p id=\"verdict\" class=\"{class}\""), &verdict);
    if sheet.report.satisfies {
        html.text("p", &format!("Levels: {}.", sheet.report.words));
    }
    html.raw("</header>");
}

/// Why a run failed, and where to begin.
fn unmet(sheet: &Sheet<'_>, html: &mut Html) {
    let work = &sheet.report.provenance().work;
    let reason = work.unmet.map_or("every record was rejected", |unmet| unmet.as_str());
    html.text("p", &format!("Nothing was published because {reason}."));
    let met = sheet.advice.iter().find(|advice| advice.loss.is_some());
    let start = match met {
        Some(advice) => format!("It would be met with {}: {}.", advice.change, advice.effect),
        None => "None of the changes below was enough. Look at the records that were rejected, and at how few people there are.".into(),
    };
    html.text("p", &start);
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

/// The policy in sentences, and as it is written.
fn policy(sheet: &Sheet<'_>, html: &mut Html) {
    for Section { title, sentences } in policy_sections(sheet.config) {
        html.text("h3", title).list(sentences.into_iter());
    }
    if let Some(text) = sheet.policy_text {
        html.raw("<details id=\"policy-text\" open><summary>As it is written</summary><pre tabindex=\"0\">");
        html.raw(&escape(text)).raw("</pre></details>");
    }
}

/// The bytes and the policy that the report is about, and a line to sign.
fn signature(sheet: &Sheet<'_>, html: &mut Html) {
    let published = sheet.report.published_sha256.as_deref().unwrap_or("nothing was published");
    html.raw("<dl class=\"facts\"><dt>SHA-256 of the published file</dt><dd>");
    html.text(&format!("code id=\"{PUBLISHED}\""), published).raw("</dd><dt>Fingerprint of the policy</dt><dd>");
    html.text(&format!("code id=\"{POLICY}\""), &sheet.report.provenance().policy_fingerprint).raw("</dd></dl>");
    let check = "`veilstream verify -c POLICY OUT --report THIS-FILE` checks both and counts the file again.";
    html.text("p class=\"note\"", check);
    html.raw("<dl class=\"signature\">");
    for line in ["Name", "Date", "Signature"] {
        html.raw("<div>").text("dt", line).raw("<dd></dd></div>");
    }
    html.raw("</dl>");
}
