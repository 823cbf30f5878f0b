//! The cost of the release, its usefulness, the search that found it, and the effect of changed policies.

use super::Sheet;
use crate::cli::shared::ReleaseReport;
use crate::model::policy::{Policy, RecodingKind};
use crate::model::release::manifest::Provenance;
use crate::plot::figure;
use crate::search::front::objectives::FrontPoint;
use crate::search::insight::Insight;
use crate::telemetry::html::Html;
use crate::telemetry::pictures;
use crate::telemetry::tables::{NOTE, RecodingColumn, side_by_side};

/// One release as a column.
fn column(name: String, report: &ReleaseReport) -> RecodingColumn<'_> {
    RecodingColumn {
        name,
        classes: report.manifest.classes,
        left_out: report.provenance().records_suppressed,
        useful: report.usefulness.as_ref(),
    }
}

/// What the rows lose, and what counts and a classifier would still get right; beside it what the other recodings would publish of the
/// same records.
pub(super) fn usefulness(sheet: &Sheet<'_>, html: &mut Html) {
    let policy = &sheet.batch.policy;
    let own = column(format!("{} (this release)", policy.recoding.as_str()), sheet.report);
    let others =
        sheet.others.iter().filter_map(|(kind, made)| Some(column(kind.as_str().to_owned(), made.as_ref().ok()?)));
    side_by_side(policy, &std::iter::once(own).chain(others).collect::<Vec<_>>(), html);
    for (kind, made) in sheet.others {
        if let Err(reason) = made {
            html.text("p class=\"note\"", &format!("{}: left out, {reason}.", kind.as_str()));
        }
    }
    html.text("p class=\"note\"", NOTE);
}

/// What was tried with one change of the policy.
pub(super) fn advice(sheet: &Sheet<'_>, html: &mut Html) {
    let metric = sheet.batch.policy.loss.as_str();
    let row = |advice: &super::Advice| {
        vec![advice.change.clone(), advice.effect.clone(), advice.loss.map_or("-".into(), figure)]
    };
    let mut rows: Vec<Vec<String>> = sheet.advice.iter().map(row).collect();
    if let Some(loss) = sheet.report.provenance().loss(metric).filter(|_| sheet.report.satisfies) {
        rows.insert(0, vec!["the policy as it is".into(), sheet.report.words.clone(), figure(loss)]);
    }
    html.table(&["with this in the policy", "the release would have", metric], &rows);
    let note = "Each line was tried on these records. A smaller loss keeps more; whether a weaker promise is acceptable is for a \
                person to decide.";
    html.text("p class=\"note\"", note);
}

/// The most minimal nodes on a page. More make it long.
const MAX_MINIMAL: usize = 20;

/// How the generalization was found, and the trade-off around it.
pub(super) fn search(from: &Provenance, policy: &Policy, insight: Option<&Insight>, html: &mut Html) {
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
    if let Some(insight) = insight {
        if let Some(said) = insight.superfluous_words(policy) {
            html.text("p", &said);
        }
        let minimal = insight.minimal.iter().take(MAX_MINIMAL).map(|node| policy.node_words(node.levels()));
        if !insight.minimal.is_empty() {
            html.raw("<h3>The finest generalizations that satisfy the policy</h3>").list(minimal);
        }
    }
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
