//! The page for the person who keeps the service running: what came in, how fast, the search, and the manifests.

use super::{NOTHING_YET, over_time, search, series};
use crate::model::policy::RecodingKind;
use crate::plot::{count, escape, figure};
use crate::telemetry::history::RecentRelease;
use crate::telemetry::html::{Html, duration, time};
use crate::telemetry::pictures;
use crate::telemetry::tables::spreads;
use crate::telemetry::view::View;

/// Steps of a schedule that are shown, spread over all. More fill the page with steps that hardly differ; fewer hide the way.
const STEPS: usize = 12;

/// The page below its header.
pub(super) fn page(view: &View, html: &mut Html) {
    tiles(view, html);
    html.raw("<h2>Records</h2><div class=\"cards\">");
    records(view, html);
    html.raw("</div>");
    html.raw("<h2 id=\"front\">Search</h2><div class=\"cards\">");
    loss(view, html);
    schedule(view, html);
    match &view.look {
        Some(look) => {
            let [front, lattice] = search::drawn(view, look);
            html.raw(front).raw("</div>").raw(lattice);
        }
        None if view.policy.recoding != RecodingKind::Local => {
            html.raw("<section class=\"card\"><h3>The trade-off</h3>");
            html.text("p class=\"none\"", "It is shown once a window has closed.").raw("</section></div>");
        }
        None => {
            html.raw("</div>");
        }
    }
    html.raw("<h2>Manifests</h2>");
    manifests(view, html);
}

fn tiles(view: &View, html: &mut Html) {
    html.raw("<dl class=\"tiles\">");
    html.heavy_tile(
        "records read",
        &count(view.totals.read as f64),
        &format!("{} in the open window, {}", count(view.window_records as f64), duration(view.window_age)),
    );
    if view.partitions > 0 {
        html.tile("lag", &count(view.lag as f64), &format!("records, {} partitions", view.partitions));
    }
    html.tile("releases", &count(view.releases as f64), &format!("{} refused by the gate", view.refused));
    for unmet_bounds in &view.unmet_bounds {
        let bound = if unmet_bounds.reached < unmet_bounds.asked { "at least" } else { "at most" };
        let note = format!("bound not met; asked: {bound} {}", figure(unmet_bounds.asked));
        html.tile(&unmet_bounds.objective, &figure(unmet_bounds.reached), &note);
    }
    let last = view.recent.iter().find(|recent| recent.manifest.rows > 0);
    let measured = last.and_then(|last| last.manifest.provenance.security_and_quality());
    for ((name, value), note) in measured.into_iter().flatten().zip(["security", "quality", "security times quality"]) {
        html.tile(name, &figure(value), &format!("{note} of the last release"));
    }
    html.tile("memory", &format!("{} MiB", view.memory >> 20), "resident").raw("</dl>");
}

fn records(view: &View, html: &mut Html) {
    let totals = &view.totals;
    html.raw("<section class=\"card\"><h3>What became of the records</h3>");
    html.picture(
        pictures::outcomes(totals.published, totals.suppressed, totals.held, totals.rejected),
        "No record has been read yet.",
    );
    let row = |(name, records): (&str, u64)| vec![name.to_owned(), records.to_string()];
    let rows = [
        ("read", totals.read),
        ("published", totals.published),
        ("suppressed", totals.suppressed),
        ("held", totals.held),
        ("rejected", totals.rejected),
        ("in open windows", view.window_records),
    ]
    .map(row);
    html.same_as_table("records-table", &["records", "count"], &rows).raw("</section>");
    let names = ["throughput", "Records read per second", "records per second"];
    over_time(names, pictures::throughput(view), series(view, &view.throughput()), "It takes two releases.", html);
    if view.partitions > 0 {
        let table = series(view, &view.over_time(|m| Some(m.lag as f64)));
        over_time(
            ["lag", "Lag", "records not read yet"],
            pictures::lag(view),
            table,
            "Nothing has been read yet.",
            html,
        );
    }
}

fn loss(view: &View, html: &mut Html) {
    html.raw("<section class=\"card\"><h3>Information loss over time</h3>");
    html.picture(pictures::loss(view), NOTHING_YET);
    let rows = series(view, &view.over_time(|m| m.loss));
    html.same_as_table("loss-table", &["time", view.policy.loss.as_str()], &rows);
    let mut published = view.recent.iter().filter(|recent| recent.manifest.rows > 0);
    if let Some(last) = published.next() {
        html.raw("<h4>How the last release spreads over people</h4>");
        let before = published.next().map_or(&[][..], |before| &before.spreads);
        spreads(last.spreads.iter().copied(), before, html);
    }
    html.raw("</section>");
}

/// The steps of the schedule in words.
fn schedule(view: &View, html: &mut Html) {
    let Some(schedule) = &view.schedule else { return };
    let steps = schedule.steps();
    let every = steps.len().div_ceil(STEPS).max(1);
    let shown = |step: usize| step.is_multiple_of(every) || step + 1 == steps.len();
    let row = |(step, node): (usize, &crate::model::lattice::Node)| {
        vec![(step + 1).to_string(), view.policy.node_words(node.levels())]
    };
    let rows: Vec<Vec<String>> = steps.iter().enumerate().filter(|(step, _)| shown(*step)).map(row).collect();
    let some = if rows.len() < steps.len() { format!("; {} of them are shown", rows.len()) } else { String::new() };
    html.raw("<section class=\"card\"><h3>The schedule</h3>");
    html.text("p class=\"soft\"", &format!("The schedule {} has {} steps{some}.", schedule.id(), steps.len()));
    html.behind("schedule-table", "The schedule in words", &["step", "levels"], &rows).raw("</section>");
}

fn manifests(view: &View, html: &mut Html) {
    html.raw("<section class=\"card releases\"><h3>The last releases in full</h3>");
    if view.recent.is_empty() {
        html.text("p class=\"none\"", NOTHING_YET);
    }
    for recent in &view.recent {
        html.raw(recent.drawn.get_or_init(|| release(view, recent)));
    }
    html.raw("</section>");
}

fn release(view: &View, recent: &RecentRelease) -> String {
    let mut html = Html::default();
    let from = &recent.manifest.provenance;
    html.raw(&format!("<details id=\"release-{}\"><summary>", escape(&from.release_id)));
    html.text("code", &from.release_id);
    let k = recent.manifest.k_achieved.map_or("-".into(), |k| k.to_string());
    let loss = from.loss(view.policy.loss.as_str()).map_or("-".into(), figure);
    let said = format!(
        " {}: {} rows, {} suppressed, k {k}, {} {loss}",
        time(recent.at),
        recent.manifest.rows,
        from.records_suppressed,
        view.policy.loss.as_str(),
    );
    html.raw(&escape(&said)).raw("</summary>");
    if recent.class_sizes.iter().any(|(_, classes)| *classes > 0) {
        html.picture(pictures::class_sizes(&format!("sizes-{}", from.release_id), &recent.class_sizes), "");
    }
    if let Ok(json) = serde_json::to_string_pretty(&recent.manifest) {
        html.raw("<pre tabindex=\"0\">").raw(&escape(&json)).raw("</pre>");
    }
    html.raw("</details>");
    html.finish()
}
