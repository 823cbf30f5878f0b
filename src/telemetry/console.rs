//! The console: two pages about the releases of a running service, rendered on the server from a [`View`].
//!
//! Both begin with the verdict. `/` is for the person who answers for the releases ([`officer`]), `/engine` for the person who keeps
//! the service running ([`engine`]). Works without scripts, but for the refresh. Only aggregates, generalized values, configured
//! names and made-up examples; the search is shown to the operator and to nobody else.

pub(crate) mod ask;
mod engine;
mod officer;
mod recodings;
mod search;

use self::ask::{Ask, Page};
use super::html::{Html, time};
use super::view::View;
use crate::plot::{PlotError, escape, figure};

/// The text in the place of a picture before the first release.
const NOTHING_YET: &str = "Nothing has been published yet.";

/// The page that was asked for.
pub(crate) fn page(view: &View, ask: Ask) -> String {
    let mut html = Html::page(
        "<meta name=\"color-scheme\" content=\"light dark\"><title>Veilstream</title>\
         <link rel=\"stylesheet\" href=\"/console.css\"><link rel=\"icon\" href=\"data:,\">\
         <script src=\"/console.js\" defer></script>",
    );
    header(view, ask, &mut html);
    html.raw("<main>");
    match ask.page {
        Page::Releases => officer::page(view, ask, &mut html),
        Page::Engine => engine::page(view, &mut html),
    }
    html.raw(
        "</main><footer><p>Read-only. Figures are totals and generalized values; \
         <a href=\"/metrics\">metrics</a>, <a href=\"/status.json\">status as JSON</a>.</p></footer></body></html>\n",
    );
    html.finish()
}

fn header(view: &View, ask: Ask, html: &mut Html) {
    let verdict = view.headline();
    let class = match verdict.state {
        "safe" => "state good",
        "failing" => "state bad",
        "unsettled" => "state warn",
        _ => "state",
    };
    html.raw("<header><h1>Veilstream</h1><span class=\"soft\">as of ").text("time", &time(view.now));
    html.raw(&format!("; <a href=\"{}\">refresh</a></span>", escape(&ask.address())));
    html.raw("<span id=\"stale\" class=\"state bad\" hidden>no answer: figures are old</span>");
    html.text(&format!("p id=\"verdict\" class=\"{class}\""), &verdict.sentence).raw("<div class=\"navigation\">");
    html.choices("Pages", &ask.pages()).choices("Time range", &ask.ranges()).raw("</div></header>");
}

/// A figure over time: its picture, and the same as a table. `id` names both.
fn over_time(
    [id, title, head]: [&str; 3],
    picture: Result<String, PlotError>,
    table: Vec<Vec<String>>,
    otherwise: &str,
    html: &mut Html,
) {
    html.raw("<section class=\"card\">").text("h3", title).picture(picture, otherwise);
    html.same_as_table(&format!("{id}-table"), &["time", head], &table).raw("</section>");
}

/// The newest first, each with its time.
fn series(view: &View, points: &[(f64, f64)]) -> Vec<Vec<String>> {
    let at = |ago: f64| time(crate::model::event::Millis(view.now.0 + (ago * 1e3) as i64));
    points.iter().rev().map(|(ago, value)| vec![at(*ago), figure(*value)]).collect()
}
