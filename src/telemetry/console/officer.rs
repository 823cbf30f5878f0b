//! The page for the person who answers for the releases: what is lost, who is at risk, what to change, and the releases.

use std::sync::Arc;

use super::ask::{Ask, Kept};
use super::{search, series};
use crate::model::policy::{QuasiIdentifier, RecodingKind};
use crate::model::release::manifest::AttributeLevel;
use crate::model::release::spread::Spread;
use crate::plot::{count, escape, figure};
use crate::telemetry::history::{Moment, RecentRelease};
use crate::telemetry::html::{Html, duration, time};
use crate::telemetry::pictures;
use crate::telemetry::view::View;

/// Steps of a schedule that are shown, spread over all. More fill the page with steps that hardly differ; fewer hide the way.
const STEPS: usize = 12;

/// The page below its header.
pub(super) fn page(view: &View, ask: Ask, html: &mut Html) {
    tiles(view, html);
    html.raw("<h2>What is lost</h2><div class=\"cards\">");
    attributes(view, html);
    loss(view, html);
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
    let left_out = format!("{} %", figure(100.0 * totals.suppressed as f64 / ended));
    for (at, wanted) in view.wanted.iter().enumerate() {
        let bound = if wanted.at_most { "at most" } else { "at least" };
        let reached = view.achieved(at).map_or("-".into(), figure);
        let note = format!("weakest class; asked: {bound} {}", figure(wanted.required));
        match at {
            0 => html.heavy_tile(&wanted.name, &reached, &note),
            _ => html.tile(&wanted.name, &reached, &note),
        };
    }
    for unmet_bounds in &view.unmet_bounds {
        let bound = if unmet_bounds.reached < unmet_bounds.asked { "at least" } else { "at most" };
        let note = format!("bound not met; asked: {bound} {}", figure(unmet_bounds.asked));
        html.tile(&unmet_bounds.objective, &figure(unmet_bounds.reached), &note);
    }
    let metric = view.policy.loss.as_str();
    html.tile("information loss", &view.loss().map_or("-".into(), figure), &format!("{metric} of the last release"));
    html.tile("left out", &left_out, &format!("{} of {} records", count(totals.suppressed as f64), count(ended)));
    let last = view.recent.iter().find(|r| r.manifest.rows > 0);
    let measured = last.and_then(|last| last.manifest.provenance.security_and_quality());
    for ((name, value), note) in measured.into_iter().flatten().zip(["security", "quality", "security times quality"]) {
        html.tile(name, &figure(value), &format!("{note} of the last release"));
    }
    let ago = last.map_or("-".into(), |r| duration((view.now.0 - r.at.0).max(0) as f64 / 1e3));
    html.tile("last release", &ago, &format!("ago; {} in all", count(view.releases as f64))).raw("</dl>");
}

fn attributes(view: &View, html: &mut Html) {
    html.raw("<section class=\"card\"><h3>Attributes now</h3>");
    html.picture(pictures::levels(&view.policy, &view.recoding), "Nothing has been published yet.");
    // A look may be of another release than the last one: then its losses belong to other levels.
    let levels: Vec<u8> = view.recoding.iter().map(|level| level.level).collect();
    let look = view.look.as_ref().filter(|look| look.insight.chosen.levels() == levels);
    let insight = look.map(|look| &look.insight.attributes);
    let row = |(at, (quasi, level)): (usize, (&QuasiIdentifier, &AttributeLevel))| {
        let mut row = vec![level.attribute.clone(), level.words(&quasi.hierarchy)];
        if let Some(seen) = insight.and_then(|attributes| attributes.get(at)) {
            let values = format!("{} became {}", seen.values_before, seen.values_after);
            row.extend([format!("{} %", figure(100.0 * seen.loss)), values]);
        }
        row
    };
    let rows: Vec<Vec<String>> = view.policy.quasi.iter().zip(&view.recoding).enumerate().map(row).collect();
    if !rows.is_empty() {
        let head = ["attribute", "is published", "loss", "values"];
        html.table(&head[..rows[0].len()], &rows);
        html.text("p class=\"note\"", &view.policy.example_words(&view.recoding));
    }
    html.raw("</section>");
}

fn loss(view: &View, html: &mut Html) {
    html.raw("<section class=\"card\"><h3>Information loss over time</h3>");
    html.picture(pictures::loss(view), "Nothing has been published yet.");
    let rows = series(view, &view.over_time(|m| m.loss));
    html.behind("loss-table", "The same as a table", &["time", view.policy.loss.as_str()], &rows).raw("</section>");
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
    html.raw("<section class=\"card\"><h3>Left out</h3><ul>");
    for line in &said {
        html.text("li", line);
    }
    html.raw("</ul></section>");
}

/// The property vectors of a release in figures, and their means in the release before it.
fn spreads(last: &RecentRelease, before: Option<&Arc<RecentRelease>>, html: &mut Html) {
    let row = |(property, spread): &(&'static str, Spread)| -> Vec<String> {
        let earlier = before.and_then(|before| before.spreads.iter().find(|(other, _)| other == property));
        let earlier = earlier.map_or("-".into(), |(_, earlier)| figure(earlier.mean));
        let figures = spread.named().map(|(_, value)| figure(value));
        std::iter::once(property.replace('_', " ")).chain(figures).chain([earlier]).collect()
    };
    let rows: Vec<Vec<String>> = last.spreads.iter().map(row).collect();
    html.table(&["over people", "worst", "5 % worst", "median", "mean", "mean before"], &rows);
}

/// The spread of the class sizes of the last release, in a sentence and a picture.
fn risk(view: &View, html: &mut Html) {
    let mut published = view.recent.iter().filter(|recent| recent.manifest.rows > 0);
    let (Some(last), before) = (published.next(), published.next()) else { return };
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
            "Nobody is told from fewer than {} others: the smallest class has {least} {who}. {} % of the {who} are in classes of \
             that size, and half of them in classes of at least {}.",
            least.saturating_sub(1),
            figure(100.0 * people(&(least, classes)) as f64 / all as f64),
            middle.map_or(least, |(size, _)| *size),
        ),
    );
    html.picture(pictures::class_sizes("risk", &last.class_sizes), "");
    spreads(last, before, html);
    let rows: Vec<Vec<String>> =
        last.class_sizes.iter().map(|(size, classes)| vec![size.to_string(), classes.to_string()]).collect();
    html.same_as_table("risk-table", &["size", "classes"], &rows).raw("</section>");
}

fn privacy(view: &View, html: &mut Html) {
    for (at, wanted) in view.wanted.iter().enumerate() {
        html.raw("<section class=\"card\">").text("h3", &format!("{}: reached and asked", wanted.name));
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

/// What could be done about the loss: another recoding, or another point of the trade-off.
fn change(view: &View, html: &mut Html) {
    html.raw("<div class=\"cards\"><section class=\"card\"><h3>Recoding</h3>");
    let recoding = view.policy.recoding;
    let said = match recoding {
        RecodingKind::FullDomain => {
            "every column has one level, the same for all records. `recoding: local` coarsens only the records \
                                     that need it, and mostly loses much less; its columns mix levels"
        }
        RecodingKind::Subtree => {
            "every value has one level. `recoding: local` coarsens only the records that need it, and mostly loses \
                                  less"
        }
        RecodingKind::Local => {
            "each record takes the finest levels of the schedule at which enough others look like it. `recoding: \
                                full-domain` gives every column one level, which is easier to count by and mostly loses much more"
        }
    };
    let hint = "`veilstream search` shows the recodings side by side on a file of your own records.";
    html.text("p", &format!("recoding: {}: {said}. {hint}", recoding.as_str()));
    schedule(view, html);
    html.raw("</section>");
    if let Some(look) = &view.look {
        html.raw(&search::drawn(view, look)[0]);
    } else if recoding != RecodingKind::Local {
        html.raw("<section class=\"card\"><h3>The trade-off</h3>");
        html.text("p class=\"none\"", "It is shown once a window has closed.").raw("</section>");
    }
    html.raw("</div>");
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
    html.text("p class=\"soft\"", &format!("The schedule {} has {} steps{some}.", schedule.id(), steps.len()));
    html.behind("schedule-table", "The schedule in words", &["step", "levels"], &rows);
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
    let metric = view.policy.loss.as_str();
    html.raw("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Releases\"><table><thead><tr>");
    for head in ["release", "time", "rows", "left out", "smallest class", metric] {
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
        html.text("td", &moment.loss.map_or("nothing published".into(), figure)).raw("</tr>");
    }
    html.raw("</tbody></table></div></section>");
}
