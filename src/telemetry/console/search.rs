//! The search on the console: the trade-off with a configuration to copy for each point, and the lattice.

use crate::config::snippet;
use crate::model::lattice::Node;
use crate::plot::{escape, figure};
use crate::search::front::objectives::{Front, Objective};
use crate::search::insight::{BANDS, Cell, Insight, Seen};
use crate::telemetry::history::Look;
use crate::telemetry::html::{Html, time};
use crate::telemetry::pictures;
use crate::telemetry::view::View;

/// The trade-off and the lattice of a look, each drawn once.
pub(super) fn drawn<'l>(view: &View, look: &'l Look) -> &'l [String; 2] {
    look.drawn.get_or_init(|| {
        let (mut front, mut seen) = (Html::default(), Html::default());
        trade_off(view, look, &mut front);
        lattice(view, look, &mut seen);
        [front.finish(), seen.finish()]
    })
}

fn lattice(view: &View, look: &Look, html: &mut Html) {
    html.raw("<section class=\"card\"><h3>The lattice, as the search saw it</h3>");
    let said = "A row is a height: the values themselves at the bottom, everything in one value on top.";
    html.text("p class=\"soft\"", &format!("{said} {}: {} nodes were counted.", time(look.at), look.insight.checks));
    html.picture(pictures::lattice(&view.policy, &look.insight), "It cannot be drawn.");
    found(view, &look.insight, html);
    if let Seen::Bands(_) = &look.insight.seen {
        html.text(
            "p class=\"note\"",
            "A cell holds the counted nodes of one height and one tenth of the loss: at its left those that satisfy the policy, at \
             its right those that do not, higher where they are more. The frame is the release.",
        );
    }
    if let Seen::Bands(heights) = &look.insight.seen {
        let row = |(height, (cells, unchecked)): (usize, &([Cell; BANDS], u128))| {
            let sum = |of: fn(&Cell) -> u64| cells.iter().map(of).sum::<u64>().to_string();
            vec![height.to_string(), sum(|cell| cell.satisfying), sum(|cell| cell.failing), unchecked.to_string()]
        };
        let rows: Vec<Vec<String>> = heights.iter().enumerate().map(row).collect();
        html.same_as_table("lattice-table", &["height", "meet the policy", "do not", "not counted"], &rows);
    }
    if let Seen::Nodes(nodes) = &look.insight.seen {
        html.raw(LEGEND);
        let row = |n: &crate::search::insight::SeenNode| {
            let status = format!("{:?}", n.status).to_lowercase();
            let chosen = if n.node == look.insight.chosen { "chosen" } else { "" };
            let how = if n.counted { "counted" } else { "at least" };
            vec![view.policy.node_words(n.node.levels()), status, format!("{how} {}", figure(n.loss)), chosen.into()]
        };
        let rows: Vec<Vec<String>> = nodes.iter().map(row).collect();
        html.behind("lattice-table", "The same as a table", &["levels", "policy", "loss", "choice"], &rows);
    }
    html.raw("</section>");
}

/// The minimal nodes, and the attributes that could go.
pub(crate) fn found(view: &View, insight: &Insight, html: &mut Html) {
    if let Some(said) = insight.superfluous_words(&view.policy) {
        html.text("p class=\"note\"", &said);
    }
    if !insight.minimal.is_empty() {
        let words = |node: &Node| vec![view.policy.node_words(node.levels())];
        let rows: Vec<Vec<String>> = insight.minimal.iter().take(MAX_MINIMAL).map(words).collect();
        let title = format!("The {} minimal nodes that satisfy the policy", insight.minimal.len());
        html.behind("minimal-table", &title, &["levels"], &rows);
    }
}

/// The most minimal nodes on a page. More make it long; the first are the finest.
const MAX_MINIMAL: usize = 100;

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
    html.raw("<section class=\"card points\"><h3>The trade-off</h3>");
    let Some(front) = &look.insight.front else {
        html.text("p class=\"none\"", "There was no time for one beside this search.").raw("</section>");
        return;
    };
    html.text(
        "p class=\"soft\"",
        &format!(
            "Choose a point to see what it costs and gains, and to copy it as configuration. {} {}; hollow ones do not meet the \
             policy.",
            match look.insight.met {
                true => "The large one is the release of",
                false => "Nothing could be published of the window of",
            },
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
        html.text("td", &view.policy.node_words(p.node.levels())).raw("</tr>");
    }
    html.raw("</tbody></table></div></details></section>");
}

/// The point of the release; none if nothing of the window could be published.
fn released(front: &Front, insight: &Insight) -> Option<usize> {
    front.points.iter().position(|p| p.node == insight.chosen && p.evaluation.satisfies)
}

fn point(view: &View, insight: &Insight, front: &Front, at: usize, html: &mut Html) {
    let p = &front.points[at];
    let released = released(front, insight);
    let id = pictures::point_id(&p.node);
    // What is shown while nothing is chosen.
    let picked = released.or(front.picked) == Some(at);
    html.raw(&format!("<div id=\"{id}\" class=\"point{}\">", if picked { " picked" } else { "" }));
    let name = match (released == Some(at), front.picked == Some(at)) {
        (true, _) => ": as released",
        (false, true) => ": the knee of those that meet the policy",
        (false, false) => "",
    };
    html.text("h4", &format!("Point {}{name}", at + 1));
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
    let words = view.policy.node_words(p.node.levels());
    let suppressed = p.evaluation.suppressed;
    html.text("p", &format!("{words}. {}; {suppressed} of the window's records left out.", values.join(", ")));
    if !p.evaluation.satisfies {
        html.text("p class=\"state bad\"", "It does not meet the policy: nothing would be published.");
    }
    html.text("p class=\"soft\"", "To publish every release so, put this into the configuration:");
    html.raw(&format!("<pre class=\"copy\" tabindex=\"0\" id=\"yaml-{id}\">"));
    html.raw(&escape(&snippet::fixed_window(&view.policy, &p.node)));
    html.raw(&format!("</pre><button type=\"button\" data-copy=\"yaml-{id}\" hidden>Copy</button></div>"));
}
