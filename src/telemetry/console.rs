//! The console: one calm page about what is being published right now. Rendered here, whole, from a [`View`].
//!
//! Works without scripts, but for the refresh. Only aggregates, generalized values and configured names; the search is
//! shown to the operator and to nobody else.

use super::history::{Look, RecentRelease};
use super::html::{Html, duration, time};
use super::pictures;
use super::view::View;
use crate::config::snippet;
use crate::plot::{count, escape, figure};
use crate::search::front::objectives::{Front, Objective};
use crate::search::insight::{Insight, Seen};

/// The page.
pub(crate) fn page(view: &View) -> String {
    let mut html = Html::default();
    html.raw(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>Veilstream</title>\
         <link rel=\"stylesheet\" href=\"/console.css\"><link rel=\"icon\" href=\"data:,\">\
         <script src=\"/console.js\" defer></script></head><body>",
    );
    header(view, &mut html);
    html.raw("<main>");
    tiles(view, &mut html);
    html.raw("<div class=\"cards\">");
    loss(view, &mut html);
    privacy(view, &mut html);
    records(view, &mut html);
    attributes(view, &mut html);
    left_out(view, &mut html);
    html.raw("</div>");
    match &view.look {
        Some(look) => {
            html.raw(look.drawn.get_or_init(|| {
                let mut html = Html::default();
                html.raw("<div class=\"cards\">");
                trade_off(view, look, &mut html);
                lattice(look, &mut html);
                html.raw("</div>");
                html.finish()
            }));
        }
        None => {
            html.raw("<section class=\"card\"><h2>Search</h2>");
            html.text("p class=\"none\"", "Lattice and trade-off are shown once a window has closed.");
            html.raw("</section>");
        }
    }
    releases(view, &mut html);
    html.raw(
        "</main><footer><p>Read-only. Figures are totals and generalized values; \
         <a href=\"/metrics\">metrics</a>, <a href=\"/status.json\">status as JSON</a>.</p></footer></body></html>\n",
    );
    html.finish()
}

fn header(view: &View, html: &mut Html) {
    html.raw("<header><h1>Veilstream</h1>");
    match (view.refused, view.unmet_said(), view.ready) {
        (0, None, true) => html.text("span class=\"state good\"", "publishing"),
        (0, None, false) => html.text("span class=\"state\"", "waiting for its input"),
        (0, Some(unmet), _) => html.text("span class=\"state bad\"", &unmet),
        (n, ..) => html.text("span class=\"state bad\"", &format!("stopped: the gate refused {n} release(s)")),
    };
    html.raw("<span class=\"soft\">as of ").text("time", &time(view.now));
    html.raw("; <a href=\"/\">refresh</a></span><span id=\"stale\" class=\"state bad\" hidden>no answer: figures are old</span></header>");
}

fn tiles(view: &View, html: &mut Html) {
    html.raw("<dl class=\"tiles\">");
    for (at, wanted) in view.wanted.iter().enumerate() {
        let bound = if wanted.at_most { "at most" } else { "at least" };
        let reached = view.achieved(at).map_or("-".into(), figure);
        html.tile(&wanted.name, &reached, &format!("weakest class; asked: {bound} {}", figure(wanted.required)));
    }
    for unmet_bounds in &view.unmet_bounds {
        let bound = if unmet_bounds.reached < unmet_bounds.asked { "at least" } else { "at most" };
        let note = format!("bound not met; asked: {bound} {}", figure(unmet_bounds.asked));
        html.tile(&unmet_bounds.objective, &figure(unmet_bounds.reached), &note);
    }
    let metric = view.policy.loss.as_str();
    html.tile("information loss", &view.loss().map_or("-".into(), figure), &format!("{metric} of the last release"));
    let last = view.recent.iter().find(|r| r.manifest.rows > 0);
    let ago = last.map_or("-".into(), |r| duration((view.now.0 - r.at.0).max(0) as f64 / 1e3));
    html.tile("last release", &ago, &format!("ago; {} in all", count(view.releases as f64)));
    html.tile(
        "records read",
        &count(view.totals.read as f64),
        &format!("{} in the open window, {}", count(view.window_records as f64), duration(view.window_age)),
    );
    if view.partitions > 0 {
        html.tile("lag", &count(view.lag as f64), &format!("records, {} partitions", view.partitions));
    }
    html.tile("memory", &format!("{} MiB", view.memory >> 20), "resident");
    html.raw("</dl>");
}

fn loss(view: &View, html: &mut Html) {
    html.raw("<section class=\"card\"><h2>Information loss over time</h2>");
    html.picture(pictures::loss(view), "Nothing has been published yet.");
    let rows = series(view, &view.over_time(|m| m.loss));
    html.behind("loss-table", "The same as a table", &["time", view.policy.loss.as_str()], &rows).raw("</section>");
}

/// The newest first, each with its time.
fn series(view: &View, points: &[(f64, f64)]) -> Vec<Vec<String>> {
    let at = |ago: f64| time(crate::model::event::Millis(view.now.0 + (ago * 1e3) as i64));
    points.iter().rev().map(|(ago, value)| vec![at(*ago), figure(*value)]).collect()
}

fn privacy(view: &View, html: &mut Html) {
    for (at, wanted) in view.wanted.iter().enumerate() {
        html.raw("<section class=\"card\">").text("h2", &format!("{}: reached and asked", wanted.name));
        let points = view.over_time(|m| m.achieved.get(at).copied().flatten());
        if points.is_empty() {
            html.text("p class=\"none\"", "Nothing has been published yet.");
        } else {
            html.picture(pictures::criterion(view, at, wanted), "It cannot be drawn.");
        }
        let rows = series(view, &points);
        let table = format!("criterion-{at}-table");
        html.behind(&table, "The same as a table", &["time", "reached"], &rows).raw("</section>");
    }
}

fn records(view: &View, html: &mut Html) {
    let totals = &view.totals;
    html.raw("<section class=\"card\"><h2>What became of the records</h2>");
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
    html.raw("<section class=\"card\"><h2>Records read per second</h2>");
    html.picture(pictures::throughput(view), "It takes two releases.");
    let rows = series(view, &view.throughput());
    html.behind("throughput-table", "The same as a table", &["time", "records per second"], &rows).raw("</section>");
    if view.partitions > 0 {
        html.raw("<section class=\"card\"><h2>Lag</h2>");
        html.picture(pictures::lag(view), "Nothing has been read yet.");
        let rows = series(view, &view.over_time(|m| Some(m.lag as f64)));
        html.behind("lag-table", "The same as a table", &["time", "records not read yet"], &rows).raw("</section>");
    }
}

fn attributes(view: &View, html: &mut Html) {
    html.raw("<section class=\"card\"><h2>Attributes now</h2>");
    let levels: Vec<u8> = view.recoding.iter().map(|level| level.level).collect();
    html.picture(pictures::levels(&view.policy, &levels), "Nothing has been published yet.");
    let insight = view.look.as_ref().map(|look| &look.insight.attributes);
    let row = |(at, level): (usize, &crate::model::release::manifest::AttributeLevel)| {
        let quasi = &view.policy.quasi[at];
        let shown = match &level.cut {
            Some(cut) => format!("cut of {} values, up to level {}", cut.len(), level.level),
            None => format!("{} of {}", level.level, quasi.hierarchy.height()),
        };
        let seen = insight.and_then(|attributes| attributes.get(at));
        let loss = seen.map_or("-".into(), |a| format!("{} %", figure(100.0 * a.loss)));
        let values = seen.map_or("-".into(), |a| format!("{} became {}", a.values_before, a.values_after));
        vec![level.attribute.clone(), shown, loss, values]
    };
    let rows: Vec<Vec<String>> = view.recoding.iter().enumerate().map(row).collect();
    html.behind("attributes-table", "Levels and losses", &["attribute", "level", "loss", "values"], &rows);
    html.raw("</section>");
}

/// What the last release does not show: kept fields, values without a place, and groups that vanished.
fn left_out(view: &View, html: &mut Html) {
    let Some(last) = view.recent.iter().find(|recent| recent.manifest.rows > 0) else { return };
    let work = &last.manifest.provenance.work;
    let kept = work.kept.iter().filter(|kept| kept.withheld);
    let kept = kept.map(|kept| format!("The kept field {} is left out: {}.", kept.field, kept.reason()));
    let fallbacks = work.fallback_shares().filter(|(_, share)| *share > 0.0).map(|(attribute, share)| {
        let share = figure(100.0 * share);
        format!("{attribute}: {share} % of the last window have no usable value and stand as the top.")
    });
    let groups = work.left_out.iter().map(|group| format!("In the last release, {group}."));
    let said: Vec<String> = kept.chain(fallbacks).chain(groups).collect();
    if said.is_empty() {
        return;
    }
    html.raw("<section class=\"card\"><h2>Left out</h2><ul>");
    for line in &said {
        html.text("li", line);
    }
    html.raw("</ul></section>");
}

fn lattice(look: &Look, html: &mut Html) {
    html.raw("<section class=\"card\"><h2>The lattice, as the search saw it</h2>");
    let said = "A row is a height: the values themselves at the bottom, everything in one value on top.";
    html.text("p class=\"soft\"", &format!("{said} {}: {} nodes were counted.", time(look.at), look.insight.checks));
    html.picture(pictures::lattice(&look.insight), "It cannot be drawn.");
    if let Seen::Bands(_) = &look.insight.seen {
        html.text(
            "p class=\"note\"",
            "A cell holds the counted nodes of one height and one tenth of the loss: at its left those that satisfy the policy, at \
             its right those that do not, higher where they are more. The frame is the release.",
        );
    }
    if let Seen::Nodes(nodes) = &look.insight.seen {
        html.raw(LEGEND);
        let row = |n: &crate::search::insight::SeenNode| {
            let levels: Vec<String> = n.node.levels().iter().map(u8::to_string).collect();
            let status = format!("{:?}", n.status).to_lowercase();
            let chosen = if n.node == look.insight.chosen { "chosen" } else { "" };
            let how = if n.counted { "counted" } else { "at least" };
            vec![levels.join(" "), status, format!("{how} {}", figure(n.loss)), chosen.into()]
        };
        let rows: Vec<Vec<String>> = nodes.iter().map(row).collect();
        html.behind("lattice-table", "The same as a table", &["levels", "policy", "loss", ""], &rows);
    }
    html.raw("</section>");
}

/// Shapes, so that the picture does not depend on colours.
const LEGEND: &str = concat!(
    "<ul class=\"legend\">",
    "<li><svg viewBox=\"0 0 16 16\" aria-hidden=\"true\"><circle cx=\"8\" cy=\"8\" r=\"6\" fill=\"#1F5CA0\"/></svg>satisfies the policy</li>",
    "<li><svg viewBox=\"0 0 16 16\" aria-hidden=\"true\"><circle cx=\"8\" cy=\"8\" r=\"5\" fill=\"none\" stroke=\"#9AA1AA\" stroke-width=\"2\"/></svg>does not</li>",
    "<li><svg viewBox=\"0 0 16 16\" aria-hidden=\"true\"><circle cx=\"8\" cy=\"8\" r=\"3\" fill=\"#A9C4E2\"/></svg>small: follows from another, not counted</li>",
    "<li><svg viewBox=\"0 0 16 16\" aria-hidden=\"true\"><circle cx=\"8\" cy=\"8\" r=\"1.5\" fill=\"#9AA1AA\"/></svg>unchecked</li>",
    "<li><svg viewBox=\"0 0 16 16\" aria-hidden=\"true\"><circle cx=\"8\" cy=\"8\" r=\"6\" fill=\"none\" stroke=\"#C2411C\" stroke-width=\"3\"/></svg>chosen</li>",
    "</ul>"
);

fn trade_off(view: &View, look: &Look, html: &mut Html) {
    html.raw("<section class=\"card points\"><h2>The trade-off</h2>");
    let Some(front) = &look.insight.front else {
        html.text("p class=\"none\"", "There was no time for one beside this search.").raw("</section>");
        return;
    };
    html.text(
        "p class=\"soft\"",
        &format!(
            "Choose a point to see what it costs and gains, and to copy it as configuration. The large one is the release of \
             {}; hollow ones do not meet the policy.",
            time(look.at)
        ),
    );
    html.picture(pictures::trade_off_of(&view.policy, &look.insight, front, true), "It cannot be drawn.");
    for at in 0..front.points.len() {
        point(view, &look.insight, front, at, html);
    }
    html.raw(
        "<details id=\"front-table\"><summary>The same as a table</summary><div class=\"scroll\"><table><thead><tr>",
    );
    html.text("th scope=\"col\"", "point");
    for objective in &front.objectives {
        html.text("th scope=\"col\"", objective.as_str());
    }
    html.raw("<th scope=\"col\">policy</th><th scope=\"col\">levels</th></tr></thead><tbody>");
    for (at, p) in front.points.iter().enumerate() {
        let id = pictures::point_id(&p.node);
        html.raw("<tr><th scope=\"row\">").raw(&format!("<a id=\"to-{id}\" href=\"#{id}\">{}</a></th>", at + 1));
        for value in &p.values {
            html.text("td", &figure(*value));
        }
        html.text("td", if p.evaluation.satisfies { "met" } else { "not met" });
        html.text("td", &snippet::levels(&view.policy, &p.node)).raw("</tr>");
    }
    html.raw("</tbody></table></div></details></section>");
}

fn point(view: &View, insight: &Insight, front: &Front, at: usize, html: &mut Html) {
    let p = &front.points[at];
    let released = front.points.iter().position(|p| p.node == insight.chosen);
    let id = pictures::point_id(&p.node);
    // What is shown while nothing is chosen.
    let picked = released.or(front.picked) == Some(at);
    html.raw(&format!("<div id=\"{id}\" class=\"point{}\">", if picked { " picked" } else { "" }));
    let name = match (released == Some(at), front.picked == Some(at)) {
        (true, _) => ": as released",
        (false, true) => ": the knee of those that meet the policy",
        (false, false) => "",
    };
    html.text("h3", &format!("Point {}{name}", at + 1));
    let compared = |(objective, (value, now)): (&Objective, (&f64, Option<f64>))| {
        let change = now.map_or(String::new(), |now| format!(" (released with {})", figure(now)));
        format!("{} {}{change}", objective.as_str(), figure(*value))
    };
    let now = |o: &Objective| match o {
        Objective::K => Some(f64::from(insight.k)),
        Objective::Loss(loss) if *loss == view.policy.loss => Some(insight.loss),
        _ => None,
    };
    let values: Vec<String> =
        front.objectives.iter().zip(p.values.iter().zip(front.objectives.iter().map(now))).map(compared).collect();
    html.text("p", &format!("{}; {} of the window's records left out.", values.join(", "), p.evaluation.suppressed));
    if !p.evaluation.satisfies {
        html.text("p class=\"state bad\"", "It does not meet the policy: nothing would be published.");
    }
    html.text("p class=\"soft\"", "To publish every release so, put this into the configuration:");
    html.raw(&format!("<pre class=\"copy\" tabindex=\"0\" id=\"yaml-{id}\">"));
    html.raw(&escape(&snippet::fixed_window(&view.policy, &p.node)));
    html.raw(&format!("</pre><button type=\"button\" data-copy=\"yaml-{id}\" hidden>Copy</button></div>"));
}

fn releases(view: &View, html: &mut Html) {
    html.raw("<section class=\"card releases\"><h2>Last releases</h2>");
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
