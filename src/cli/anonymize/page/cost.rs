//! What the release costs and is still good for, how it was found, and what a changed policy would do.

use super::{Sheet, percent};
use crate::cli::shared::ReleaseReport;
use crate::model::policy::{Policy, RecodingKind};
use crate::model::release::manifest::Provenance;
use crate::plot::figure;
use crate::search::front::objectives::FrontPoint;
use crate::search::insight::Insight;
use crate::telemetry::html::Html;
use crate::telemetry::pictures;
use crate::usefulness::{Accuracy, Usefulness};

/// What the rows lose, and what counts and a classifier would still get right; beside it what the other recodings would publish of the
/// same records.
pub(super) fn usefulness(own: &Usefulness, sheet: &Sheet<'_>, html: &mut Html) {
    let policy = &sheet.batch.policy;
    let mut releases = vec![(policy.recoding, sheet.report)];
    releases.extend(sheet.others.iter().filter_map(|(kind, made)| Some((*kind, made.as_ref().ok()?))));
    let row = |measure: &str, value: &dyn Fn(&ReleaseReport) -> Option<String>| -> Vec<String> {
        let values = releases.iter().map(|(_, report)| value(report).unwrap_or_else(|| "-".into()));
        std::iter::once(measure.to_owned()).chain(values).collect()
    };
    let share = |measure: &str, value: &dyn Fn(&Usefulness) -> Option<f64>| {
        row(measure, &|report| report.usefulness.as_ref().and_then(value).map(percent))
    };
    let mut rows = vec![
        row("classes", &|report| Some(report.manifest.classes.to_string())),
        row("records left out", &|report| Some(report.provenance().records_suppressed.to_string())),
        share("loss of the record in the middle", &|useful| Some(useful.loss_median)),
        share("loss that one record in twenty exceeds", &|useful| Some(useful.loss_p95)),
        share("counts by one attribute: records in the right place", &|useful| Some(useful.counts_by_one)),
        share("counts by two attributes: records in the right place", &|useful| useful.counts_by_two),
    ];
    let classified = |of: fn(&Accuracy) -> f64| move |useful: &Usefulness| useful.classifier.as_ref().map(of);
    if own.classifier.is_some() {
        rows.push(share("classifier of the label, on published values: right", &classified(|right| right.published)));
        rows.push(share("the same on the values as they were read", &classified(|right| right.raw)));
        rows.push(share("always saying the most frequent label", &classified(|right| right.majority)));
    }
    rows.push(share("rows narrowed by a reader who knows how it was made", &|useful| Some(useful.attack.rows)));
    rows.push(share("cells narrowed by the same reader", &|useful| Some(useful.attack.cells)));
    rows.push(share("cells narrowed to one value", &|useful| Some(useful.attack.cells_exact)));
    for (at, quasi) in policy.quasi.iter().enumerate() {
        let lost = |useful: &Usefulness| useful.loss_by_attribute.get(at).map(|(_, loss)| *loss);
        rows.push(share(&format!("loss of {}", quasi.name), &lost));
    }
    let name = |&(kind, _): &(RecodingKind, &ReleaseReport)| match kind == policy.recoding {
        true => format!("{} (this release)", kind.as_str()),
        false => kind.as_str().to_owned(),
    };
    let head: Vec<String> = std::iter::once("measure".to_owned()).chain(releases.iter().map(name)).collect();
    html.table(&head.iter().map(String::as_str).collect::<Vec<_>>(), &rows);
    for (kind, made) in sheet.others {
        if let Err(reason) = made {
            html.text("p class=\"note\"", &format!("{}: left out, {reason}.", kind.as_str()));
        }
    }
    let note = "A record loses 0 % if all its values stay, and 100 % if it is suppressed or every value is at its top. Counts spread \
                each published value evenly over the values below it. A reader who knows the levels of every step and the values that occur can \
                exclude some combinations, because an earlier step would have published them elsewhere: these rows and cells are narrowed. \
                Every class keeps as many people as the policy asks. With one level per column or value nothing can be excluded.";
    html.text("p class=\"note\"", note);
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
