//! The pictures that console, report and command line share: from figures of the service to [`plot`](crate::plot).

use super::view::{View, Wanted};
use crate::model::lattice::Node;
use crate::model::policy::{Policy, QuasiIdentifier};
use crate::model::release::manifest::AttributeLevel;
use crate::plot::bars::{Bar, Steps, rows, steps};
use crate::plot::front::{Plot, PlotPoint};
use crate::plot::lattice::{Dot, LatticeCell, Mark, cells, dots};
use crate::plot::lines::{Lines, Series, Style};
use crate::plot::{Caption, PlotError, count, figure, front, lines};
use crate::search::front::objectives::{Front, FrontPoint, Objective};
use crate::search::insight::{BANDS, Insight, Seen, Status};

/// The most bars of a distribution. More make a picture that nobody reads; fewer hide its shape.
const MAX_BARS: usize = 10;

fn caption(id: &str, title: impl Into<String>, description: impl Into<String>) -> Caption {
    Caption { id: id.into(), title: title.into(), description: description.into() }
}

/// One measured line over time.
fn measured(caption: Caption, unit: &str, name: &str, points: Vec<(f64, f64)>) -> Result<String, PlotError> {
    let series = vec![Series { name: name.into(), style: Style::Measured, points }];
    lines::svg(&Lines { caption, unit: unit.into(), series })
}

/// The last figure of a line.
fn last(points: &[(f64, f64)], shown: impl Fn(f64) -> String) -> String {
    points.last().map_or("-".into(), |(_, value)| shown(*value))
}

/// Loss over time.
pub(crate) fn loss(view: &View) -> Result<String, PlotError> {
    let (points, metric) = (view.over_time(|m| m.loss), view.policy.loss.as_str());
    let said = format!("{} releases, the last at {} by {metric}; 0 is no loss.", points.len(), last(&points, figure));
    measured(caption("loss", "Information loss over time", said), metric, metric, points)
}

/// The share of the detail that is given up, over time.
pub(crate) fn detail(view: &View) -> Result<String, PlotError> {
    let points = view.over_time(|m| m.detail.map(|share| 100.0 * share));
    let share = last(&points, |share| format!("{} %", figure(share)));
    let said = format!("{} releases, the last gives up {share} of the detail.", points.len());
    measured(caption("detail", "Detail given up over time", said), "% given up", "given up", points)
}

/// What one criterion's weakest class reached, against what the policy asks.
pub(crate) fn criterion(view: &View, at: usize, wanted: &Wanted) -> Result<String, PlotError> {
    let points = view.over_time(|m| m.achieved.get(at).copied().flatten());
    let bound = if wanted.at_most { "at most" } else { "at least" };
    let last = last(&points, figure);
    let oldest = points.first().map_or(0.0, |p| p.0).min(-60.0);
    let asked = vec![(oldest, wanted.required), (0.0, wanted.required)];
    lines::svg(&Lines {
        caption: caption(
            &format!("criterion-{at}"),
            format!("{} of the weakest class", wanted.words()),
            format!("Last {last}; the broken line is what the policy asks: {bound} {}.", figure(wanted.required)),
        ),
        unit: wanted.name.split('/').next().unwrap_or_default().into(),
        series: vec![
            Series { name: "reached".into(), style: Style::Measured, points },
            Series { name: "asked".into(), style: Style::Bound, points: asked },
        ],
    })
}

/// Records per second between releases.
pub(crate) fn throughput(view: &View) -> Result<String, PlotError> {
    let points = view.throughput();
    let said = format!("Last {}.", last(&points, count));
    measured(caption("throughput", "Records read per second", said), "records/s", "read", points)
}

/// Records not read yet.
pub(crate) fn lag(view: &View) -> Result<String, PlotError> {
    let mut points = view.over_time(|m| Some(m.lag as f64));
    points.push((0.0, view.lag as f64));
    let said = format!("{} records not read yet.", count(view.lag as f64));
    measured(caption("lag", "Consumer lag", said), "records", "lag", points)
}

/// What became of the records, as shares of those that have an outcome.
pub(crate) fn outcomes(published: u64, suppressed: u64, held: u64, rejected: u64) -> Result<String, PlotError> {
    let whole = published + suppressed + held + rejected;
    let bar = |(name, records): (&str, u64)| Bar {
        name: name.into(),
        value: records as f64,
        shown: format!("{} %", figure(100.0 * records as f64 / whole.max(1) as f64)),
    };
    let bars = [("published", published), ("suppressed", suppressed), ("held", held), ("rejected", rejected)].map(bar);
    let said = bars.iter().map(|bar| format!("{} {}", bar.name, bar.shown)).collect::<Vec<_>>().join(", ");
    rows(&caption("outcomes", "What became of the records", format!("{said}.")), &bars, whole as f64)
}

/// The level of each attribute.
pub(crate) fn levels(policy: &Policy, recoding: &[AttributeLevel]) -> Result<String, PlotError> {
    let row = |(quasi, level): (&QuasiIdentifier, &AttributeLevel)| Steps {
        name: quasi.name.to_string(),
        shown: match level.finest() == level.level {
            true => level.words(&quasi.hierarchy),
            false => {
                level.typical.map_or("mixed".into(), |typical| format!("mostly {}", quasi.hierarchy.words(typical)))
            }
        },
        typical: level.typical(),
        level: level.level,
        max_level: quasi.max_level,
        height: quasi.hierarchy.height(),
    };
    let all: Vec<Steps> = policy.quasi.iter().zip(recoding).map(row).collect();
    let said = policy.recoding_words(recoding);
    let description = format!("{said}. The more steps are filled, the less is told; pale steps are taken by few.");
    steps(&caption("levels", "Generalization level of each attribute", description), &all)
}

/// What each attribute lost.
pub(crate) fn attribute_losses(policy: &Policy, insight: &Insight) -> Result<String, PlotError> {
    let bar = |(quasi, a): (&crate::model::policy::QuasiIdentifier, &crate::search::insight::AttributeInsight)| Bar {
        name: quasi.name.to_string(),
        value: a.loss,
        shown: format!("{} %", figure(100.0 * a.loss)),
    };
    let bars: Vec<Bar> = policy.quasi.iter().zip(&insight.attributes).map(bar).collect();
    let said = bars.iter().map(|bar| format!("{} {}", bar.name, bar.shown)).collect::<Vec<_>>().join(", ");
    let description = format!("{said}; 100 % means that nothing can be told apart any more.");
    rows(&caption("attribute-losses", "Loss of each attribute", description), &bars, 1.0)
}

/// How many classes there are of which size, as picture `id`, in at most [`MAX_BARS`] columns.
pub(crate) fn class_sizes(id: &str, sizes: &[(u32, u32)]) -> Result<String, PlotError> {
    let bars = size_columns(sizes);
    let said = bars.iter().map(|bar| format!("{} of size {}", bar.shown, bar.name)).collect::<Vec<_>>().join(", ");
    let most = bars.iter().map(|bar| bar.value).fold(1.0, f64::max);
    rows(&caption(id, "Classes by size", format!("{said}.")), &bars, most)
}

/// Columns from the smallest class to the largest, each about twice as wide as the one before where sizes are many.
fn size_columns(sizes: &[(u32, u32)]) -> Vec<Bar> {
    let bar = |name: String, classes: u64| Bar { name, value: classes as f64, shown: count(classes as f64) };
    if sizes.len() <= MAX_BARS {
        return sizes.iter().map(|&(size, classes)| bar(size.to_string(), u64::from(classes))).collect();
    }
    let (low, high) = (f64::from(sizes[0].0), f64::from(sizes[sizes.len() - 1].0));
    let ratio = (high / low).powf(1.0 / MAX_BARS as f64);
    let mut bars = Vec::new();
    let mut from = sizes[0].0;
    for column in 1..=MAX_BARS {
        let end = if column == MAX_BARS { high + 1.0 } else { (low * ratio.powi(column as i32)).ceil() };
        // Narrow columns at the low end may hold no whole number of their own.
        if end as u32 <= from {
            continue;
        }
        let last = end as u32 - 1;
        let classes = sizes.iter().filter(|(s, _)| (from..=last).contains(s)).map(|(_, c)| u64::from(*c)).sum();
        let short = |size: u32| count(f64::from(size));
        let name = if from == last { short(from) } else { format!("{}-{}", short(from), short(last)) };
        bars.push(bar(name, classes));
        from = last + 1;
    }
    bars
}

/// The lattice of a search.
pub(crate) fn lattice(policy: &Policy, insight: &Insight) -> Result<String, PlotError> {
    let size = insight.lattice.size();
    let title = "The lattice of generalizations";
    match &insight.seen {
        Seen::Nodes(nodes) => {
            let dot = |seen: &crate::search::insight::SeenNode| Dot {
                levels: seen.node.levels().to_vec(),
                mark: match (seen.status, seen.counted) {
                    (Status::Satisfies, true) => Mark::Satisfies,
                    (Status::Satisfies, false) => Mark::MustSatisfy,
                    (Status::Fails, true) => Mark::Fails,
                    (Status::Fails, false) => Mark::MustFail,
                    (Status::Unchecked, _) => Mark::Unchecked,
                },
                loss: seen.loss,
                said: format!(
                    "{}: {}, loss {}{}",
                    policy.node_words(seen.node.levels()),
                    match seen.status {
                        Status::Satisfies => "meets the policy",
                        Status::Fails => "does not meet the policy",
                        Status::Unchecked => "not counted",
                    },
                    if seen.counted { "" } else { "at least " },
                    figure(seen.loss),
                ),
                chosen: seen.node == insight.chosen,
            };
            let many = |status: Status| nodes.iter().filter(|n| n.status == status).count();
            let description = format!(
                "{size} nodes: {} satisfy the policy, {} do not, {} unchecked; {} were counted.",
                many(Status::Satisfies),
                many(Status::Fails),
                many(Status::Unchecked),
                insight.checks
            );
            dots(
                &caption("lattice", title, description),
                &nodes.iter().map(dot).collect::<Vec<_>>(),
                !policy.branches(),
            )
        }
        Seen::Bands(heights) => {
            let chosen = insight.chosen.height().saturating_sub(insight.lattice.bottom().height());
            let band = ((insight.loss * BANDS as f64) as usize).min(BANDS - 1);
            let row = |(height, (row, unchecked)): (usize, &([crate::search::insight::Cell; BANDS], u128))| {
                let cell = |(at, cell): (usize, &crate::search::insight::Cell)| LatticeCell {
                    satisfying: cell.satisfying,
                    failing: cell.failing,
                    chosen: height == chosen && at == band,
                };
                (row.iter().enumerate().map(cell).collect(), *unchecked)
            };
            let rows: Vec<(Vec<LatticeCell>, u128)> = heights.iter().enumerate().map(row).collect();
            let description = format!("{size} nodes, {} of them counted, by height and loss.", insight.checks);
            cells(&caption("lattice", title, description), &rows)
        }
    }
}

/// The trade-off with the preferred point marked, and named points of another kind beside it, for a file.
pub(crate) fn trade_off(front: &Front, beside: impl Iterator<Item = (String, Vec<f64>)>) -> Result<String, PlotError> {
    let mut plot = plot(front, front.picked, false);
    let known = plot.points.len();
    plot.points.extend(beside.map(|(label, values)| PlotPoint {
        label,
        values,
        satisfies: true,
        picked: false,
        on_front: false,
        link: None,
    }));
    if plot.points.len() > known {
        plot.caption.description.push_str(" Triangles are releases by other recodings.");
    }
    front::svg(&plot)
}

/// The trade-off with the release marked, which is on the front or near it; if `linked`, points lead to `#point-LEVELS`.
pub(crate) fn trade_off_of(
    policy: &Policy,
    insight: &Insight,
    front: &Front,
    linked: bool,
) -> Result<String, PlotError> {
    let released = front.points.iter().position(|p| p.node == insight.chosen);
    let mut plot = plot(front, released, linked);
    if released.is_none() && insight.met && front.objectives == [Objective::K, Objective::Loss(policy.loss)] {
        plot.points.push(PlotPoint {
            label: "released".into(),
            values: vec![f64::from(insight.k), insight.loss],
            satisfies: true,
            picked: true,
            on_front: false,
            link: None,
        });
    }
    front::svg(&plot)
}

fn plot(front: &Front, picked: Option<usize>, linked: bool) -> Plot {
    let better =
        |o: &Objective| format!("{} ({} is better)", o.as_str(), if o.higher_is_better() { "higher" } else { "lower" });
    let point = |(at, p): (usize, &FrontPoint)| PlotPoint {
        label: (at + 1).to_string(),
        values: p.values.clone(),
        satisfies: p.evaluation.satisfies,
        picked: picked == Some(at),
        on_front: true,
        link: linked.then(|| format!("#{}", point_id(&p.node))),
    };
    let names: Vec<&str> = front.objectives.iter().map(|o| o.as_str()).collect();
    Plot {
        caption: caption(
            "front",
            format!("Trade-off between {}", names.join(", ")),
            format!(
                "{} points, {}; hollow ones do not meet the policy.",
                front.points.len(),
                if front.exact { "exact" } else { "as far as they were found" }
            ),
        ),
        axes: front.objectives.iter().map(better).collect(),
        points: front.points.iter().enumerate().map(point).collect(),
    }
}

/// What a point is called in links: by its levels, so that it keeps its name when others come and go.
pub(crate) fn point_id(node: &Node) -> String {
    let levels: Vec<String> = node.levels().iter().map(u8::to_string).collect();
    format!("point-{}", levels.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_hold_every_class_once() {
        for most in [3u32, 9, 10, 11, 40, 5000] {
            let sizes: Vec<(u32, u32)> = (5..5 + most).map(|size| (size, size % 3 + 1)).collect();
            let bars = size_columns(&sizes);
            let all: f64 = sizes.iter().map(|(_, classes)| f64::from(*classes)).sum();
            assert_eq!(bars.iter().map(|bar| bar.value).sum::<f64>(), all, "{most}");
            assert!(bars.len() <= MAX_BARS, "{most}");
        }
        assert!(size_columns(&[]).is_empty());
    }
}
