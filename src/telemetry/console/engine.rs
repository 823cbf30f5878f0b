//! The page for the person who keeps the service running: what came in, how fast, the search, and the manifests.

use super::{search, series};
use crate::plot::{count, escape, figure};
use crate::telemetry::history::RecentRelease;
use crate::telemetry::html::{Html, duration, time};
use crate::telemetry::pictures;
use crate::telemetry::view::View;

/// The page below its header.
pub(super) fn page(view: &View, html: &mut Html) {
    tiles(view, html);
    html.raw("<h2>Records</h2><div class=\"cards\">");
    records(view, html);
    html.raw("</div>");
    if let Some(look) = &view.look {
        html.raw("<h2>Search</h2>").raw(&search::drawn(view, look)[1]);
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
    html.behind("records-table", "The same as a table", &["records", "count"], &rows).raw("</section>");
    html.raw("<section class=\"card\"><h3>Records read per second</h3>");
    html.picture(pictures::throughput(view), "It takes two releases.");
    let rows = series(view, &view.throughput());
    html.behind("throughput-table", "The same as a table", &["time", "records per second"], &rows).raw("</section>");
    if view.partitions > 0 {
        html.raw("<section class=\"card\"><h3>Lag</h3>");
        html.picture(pictures::lag(view), "Nothing has been read yet.");
        let rows = series(view, &view.over_time(|m| Some(m.lag as f64)));
        html.behind("lag-table", "The same as a table", &["time", "records not read yet"], &rows).raw("</section>");
    }
}

fn manifests(view: &View, html: &mut Html) {
    html.raw("<section class=\"card releases\"><h3>The last releases in full</h3>");
    if view.recent.is_empty() {
        html.text("p class=\"none\"", "Nothing has been published yet.");
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
