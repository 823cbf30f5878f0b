//! The page for the person who answers for the releases: what is lost, who is at risk, what to change, and the releases.
//!
//! It speaks of detail that is given up, in words and in percent (`glm`, whatever metric the search follows). What the search is about
//! is in the engine room.

use super::ask::{Ask, Kept};
use super::{NOTHING_YET, over_time, recodings, series};
use crate::model::policy::QuasiIdentifier;
use crate::model::release::manifest::AttributeLevel;
use crate::plot::{count, escape, figure, percent, portion};
use crate::telemetry::history::Moment;
use crate::telemetry::html::{Html, duration, time};
use crate::telemetry::pictures;
use crate::telemetry::tables::class_sizes;
use crate::telemetry::view::View;
use crate::usefulness::recodings::FEWEST;

/// The page below its header.
pub(super) fn page(view: &View, ask: Ask, html: &mut Html) {
    tiles(view, html);
    html.raw("<h2>What is lost</h2><div class=\"cards\">");
    attributes(view, html);
    detail(view, html);
    left_out(view, html);
    html.raw("</div><h2>Who is at risk</h2><div class=\"cards\">");
    risk(view, html);
    privacy(view, html);
    html.raw("</div><h2>What to change</h2>");
    change(view, html);
    html.raw("<h2 id=\"releases\">Releases</h2>");
    releases(view, ask, html);
}

fn tiles(view: &View, html: &mut Html) {
    html.raw("<dl class=\"tiles\">");
    let totals = &view.totals;
    let ended = (totals.published + totals.suppressed + totals.rejected).max(1) as f64;
    let left_out = percent(totals.suppressed as f64 / ended);
    for (at, wanted) in view.wanted.iter().enumerate() {
        let bound = if wanted.at_most { "at most" } else { "at least" };
        let reached = view.achieved(at).map_or("-".into(), figure);
        let note = format!("weakest class; asked: {bound} {}", figure(wanted.required));
        match at {
            0 => html.heavy_tile(&wanted.words(), &reached, &note),
            _ => html.tile(&wanted.words(), &reached, &note),
        };
    }
    let detail = view.detail();
    let said = detail.map_or("-".into(), |share| format!("{} of the detail", portion(share)));
    let note = detail.map_or(String::new(), |share| {
        format!("{} in the last release; if every value were hidden, it would be 100 %", percent(share))
    });
    html.tile("given up", &said, &note);
    html.tile("left out", &left_out, &format!("{} of {} records", count(totals.suppressed as f64), count(ended)));
    let last = view.recent.iter().find(|r| r.manifest.rows > 0);
    let ago = last.map_or("-".into(), |r| duration((view.now.0 - r.at.0).max(0) as f64 / 1e3));
    html.tile("last release", &ago, &format!("ago; {} in all", count(view.releases as f64))).raw("</dl>");
}

fn attributes(view: &View, html: &mut Html) {
    html.raw("<section class=\"card\"><h3>Attributes now</h3>");
    html.picture(pictures::levels(&view.policy, &view.recoding), NOTHING_YET);
    // A look may be of another release than the last one: then its losses belong to other levels.
    let levels: Vec<u8> = view.recoding.iter().map(|level| level.level).collect();
    let look = view.look.as_ref().filter(|look| look.insight.chosen.levels() == levels);
    let insight = look.map(|look| &look.insight.attributes);
    let row = |(at, (quasi, level)): (usize, (&QuasiIdentifier, &AttributeLevel))| {
        let mut row = vec![level.attribute.clone(), level.words(&quasi.hierarchy)];
        if let Some(seen) = insight.and_then(|attributes| attributes.get(at)) {
            let values = format!("{} became {}", seen.values_before, seen.values_after);
            row.extend([percent(seen.loss), values]);
        }
        row
    };
    let rows: Vec<Vec<String>> = view.policy.quasi.iter().zip(&view.recoding).enumerate().map(row).collect();
    if !rows.is_empty() {
        let head = ["attribute", "is published", "given up", "values"];
        html.table(&head[..rows[0].len()], &rows);
        html.text("p class=\"note\"", &view.policy.example_words(&view.recoding));
    }
    html.raw("</section>");
}

fn detail(view: &View, html: &mut Html) {
    let table = series(view, &view.over_time(|m| m.detail.map(|share| 100.0 * share)));
    let names = ["detail", "Detail given up over time", "given up, in percent"];
    over_time(names, pictures::detail(view), table, NOTHING_YET, html);
}

/// What the last release does not show: kept fields, values without a place, and groups that vanished.
fn left_out(view: &View, html: &mut Html) {
    let Some(last) = view.recent.iter().find(|recent| recent.manifest.rows > 0) else { return };
    let work = &last.manifest.provenance.work;
    let kept = work.kept.iter().filter(|kept| kept.withheld);
    let kept = kept.map(|kept| format!("The kept field {} is left out: {}.", kept.field, kept.reason()));
    let fallbacks = work.fallback_shares().filter(|(_, share)| *share > 0.0).map(|(attribute, share)| {
        format!("{attribute}: {} of the last window have no usable value and are hidden.", percent(share))
    });
    let groups = work.left_out.iter().map(|group| format!("In the last release, {group}."));
    let said: Vec<String> = kept.chain(fallbacks).chain(groups).collect();
    if said.is_empty() {
        return;
    }
    html.raw("<section class=\"card\"><h3>Left out</h3><ul>");
    for line in &said {
        html.text("li", line);
    }
    html.raw("</ul></section>");
}

/// The spread of the class sizes of the last release, in a sentence and a picture.
fn risk(view: &View, html: &mut Html) {
    let Some(last) = view.recent.iter().find(|recent| recent.manifest.rows > 0) else { return };
    let people = |&(size, classes): &(u32, u32)| u64::from(size) * u64::from(classes);
    let (all, smallest) = (last.class_sizes.iter().map(people).sum::<u64>(), last.class_sizes.first());
    let Some(&(least, classes)) = smallest.filter(|_| all > 0) else { return };
    let mut below = 0;
    let middle = last.class_sizes.iter().find(|class| {
        below += people(class);
        2 * below >= all
    });
    let who = if view.policy.schema.subject.is_some() { "people" } else { "records" };
    html.raw("<section class=\"card\"><h3>Classes of the last release</h3>");
    html.text(
        "p",
        &format!(
            "By these fields, nobody is told from fewer than {} others: the smallest class has {least} {who}. {} of the {who} are \
             in classes of that size, and half of them in classes of at least {}.",
            least.saturating_sub(1),
            percent(people(&(least, classes)) as f64 / all as f64),
            middle.map_or(least, |(size, _)| *size),
        ),
    );
    class_sizes("risk", &last.class_sizes, html);
    html.raw("</section>");
}

fn privacy(view: &View, html: &mut Html) {
    for (at, wanted) in view.wanted.iter().enumerate() {
        let points = view.over_time(|m| m.achieved.get(at).copied().flatten());
        let otherwise = if points.is_empty() { NOTHING_YET } else { "It cannot be drawn." };
        let picture = pictures::criterion(view, at, wanted);
        let names = [&format!("criterion-{at}"), &format!("{}: reached and asked", wanted.words()), "reached"];
        over_time(names, picture, series(view, &points), otherwise, html);
    }
}

/// What could be done about the loss: another recoding, on the records of a window.
fn change(view: &View, html: &mut Html) {
    html.raw("<section class=\"card\"><h3>Another recoding</h3>");
    html.text("p", &recodings::own_words(view.policy.recoding));
    match view.comparison.as_ref().map(|compared| (compared, &compared.recodings)) {
        Some((compared, Some(recodings))) => recodings::shown(view, compared.at, recodings, html),
        Some((_, None)) => {
            html.text("p class=\"none\"", "The recodings could not be compared.");
        }
        None => {
            let least =
                format!("They are compared in the background, on the first window of at least {FEWEST} records.");
            html.text("p class=\"none\"", &least);
        }
    }
    let more = "To choose another point between protection and detail, see <a href=\"/engine#front\">the trade-off</a>; to try \
                a recoding on a file of your own records, run <code>veilstream search</code>.";
    html.raw("<p class=\"note\">").raw(more).raw("</p></section>");
}

/// The releases of the time range, newest first, each with a link to its manifest while that is kept.
fn releases(view: &View, ask: Ask, html: &mut Html) {
    html.raw("<section class=\"card\">").choices("Releases to show", &ask.selections());
    let wanted = |moment: &&Moment| match ask.kept {
        Kept::All => true,
        Kept::LeftOut => moment.suppressed > 0,
        Kept::Unmet => moment.rows == 0,
    };
    let shown: Vec<&Moment> = view.moments.iter().rev().filter(wanted).collect();
    if shown.is_empty() {
        html.text("p class=\"none\"", "There is no such release in this time.").raw("</section>");
        return;
    }
    html.raw("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Releases\"><table><thead><tr>");
    for head in ["release", "time", "rows", "left out", "smallest class", "detail given up"] {
        html.text("th scope=\"col\"", head);
    }
    html.raw("</tr></thead><tbody>");
    for moment in shown {
        let known = view.recent.iter().any(|recent| recent.manifest.provenance.release_id == moment.id);
        html.raw("<tr><th scope=\"row\">");
        match known {
            true => html.raw(&format!("<a href=\"/engine#release-{0}\">{0}</a>", escape(&moment.id))),
            false => html.raw(&escape(&moment.id)),
        };
        html.raw("</th>").text("td", &time(moment.at)).text("td", &moment.rows.to_string());
        html.text("td", &moment.suppressed.to_string());
        html.text("td", &moment.k.map_or("-".into(), |k| k.to_string()));
        html.text("td", &moment.detail.map_or("nothing published".into(), percent)).raw("</tr>");
    }
    html.raw("</tbody></table></div></section>");
}
