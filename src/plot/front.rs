//! The trade-off: every point a recoding, the first axis against each other one.

use plotters::prelude::*;

use super::{
    Area, BLUE, Caption, GREY, GRID, INK, LABEL, LINK_RADIUS, Link, PALE_BLUE, PlotError, RED, WIDTH, failed, figure,
    picture,
};

/// The height of one panel.
const PANEL_HEIGHT: u32 = 380;
/// An axis whose largest value is so many times its smallest is shown by orders of magnitude: on a plain one all but the
/// last few points would fall together.
const LOGARITHMIC_FROM: f64 = 100.0;
/// The room that a label takes. Larger leaves points unnamed; smaller lets names cover each other.
const LABEL_ROOM: (i32, i32) = (26, 16);
/// Half the width of a marker. Larger leaves points unnamed; smaller lets names touch markers.
const MARKER: i32 = 5;

/// A trade-off to draw. The first axis is the horizontal one of every panel; each other axis has a panel of its own.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plot {
    /// Title and description.
    pub caption: Caption,
    /// The names of the axes; at least two.
    pub axes: Vec<String>,
    /// The points.
    pub points: Vec<PlotPoint>,
}

/// One point of a trade-off.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlotPoint {
    /// Its name in the table beside the picture.
    pub label: String,
    /// One value per axis.
    pub values: Vec<f64>,
    /// True if a release could be made there; the others are drawn hollow.
    pub satisfies: bool,
    /// True for the point that was picked.
    pub picked: bool,
    /// False for a point that is shown for comparison: the line of the front does not lead through it, and it is a triangle.
    pub on_front: bool,
    /// Where a click on it leads.
    pub link: Option<String>,
}

/// The plot as SVG.
///
/// # Errors
/// If there are fewer than two axes, no points, or values that are not numbers.
pub(crate) fn svg(plot: &Plot) -> Result<String, PlotError> {
    let finite = |p: &PlotPoint| p.values.len() == plot.axes.len() && p.values.iter().all(|v| v.is_finite());
    if plot.axes.len() < 2 || plot.points.is_empty() || !plot.points.iter().all(finite) {
        return Err(PlotError("it takes two axes and at least one point of numbers".into()));
    }
    let panels = plot.axes.len() - 1;
    picture(&plot.caption, (WIDTH, PANEL_HEIGHT * panels as u32), |root| {
        let mut links = Vec::new();
        for (panel, area) in root.split_evenly((panels, 1)).iter().enumerate() {
            links.extend(draw(plot, panel + 1, area)?);
        }
        Ok(links)
    })
}

/// Draws the first axis against another.
fn draw(plot: &Plot, vertical: usize, area: &Area<'_>) -> Result<Vec<Link>, PlotError> {
    let (x, y) = (Axis::of(plot, 0), Axis::of(plot, vertical));
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .margin_right(24)
        .x_label_area_size(54)
        .y_label_area_size(74)
        .build_cartesian_2d(x.range(), y.range())
        .map_err(failed)?;
    chart
        .configure_mesh()
        .x_desc(x.description(&plot.axes[0]))
        .y_desc(y.description(&plot.axes[vertical]))
        .x_label_formatter(&|v| x.text(*v))
        .y_label_formatter(&|v| y.text(*v))
        .x_labels(6)
        .y_labels(6)
        .axis_desc_style(LABEL.into_font().color(&INK))
        .label_style(LABEL.into_font().color(&INK))
        .axis_style(GRID)
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .draw()
        .map_err(failed)?;
    let at = |p: &PlotPoint| (x.place(p.values[0]), y.place(p.values[vertical]));
    if plot.axes.len() == 2 {
        let mut line: Vec<(f64, f64)> = plot.points.iter().filter(|p| p.on_front).map(at).collect();
        line.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        chart.draw_series(LineSeries::new(line, PALE_BLUE.stroke_width(1))).map_err(failed)?;
    }
    // The picked one last, on top of the others; but it is named first.
    let mut order: Vec<&PlotPoint> = plot.points.iter().collect();
    order.sort_by_key(|p| p.picked);
    for point in &order {
        match (point.picked, point.satisfies) {
            (false, _) if !point.on_front => chart.draw_series([TriangleMarker::new(at(point), 7, INK.filled())]),
            (true, _) => chart.draw_series([Circle::new(at(point), 8, RED.filled())]),
            (false, true) => chart.draw_series([Circle::new(at(point), 5, BLUE.filled())]),
            (false, false) => chart.draw_series([Circle::new(at(point), 5, GREY.stroke_width(2))]),
        }
        .map_err(failed)?;
    }
    for (point, beside) in named(&order, |p| chart.backend_coord(&at(p))) {
        let style = LABEL.into_font().color(if point.picked { &RED } else { &INK });
        let label = EmptyElement::at(at(point)) + Text::new(point.label.clone(), beside, style);
        chart.draw_series([label]).map_err(failed)?;
    }
    let link = |p: &&PlotPoint| {
        Some(Link {
            at: chart.backend_coord(&at(p)),
            to: Some(p.link.clone()?),
            label: described(plot, p),
            radius: LINK_RADIUS,
        })
    };
    Ok(order.iter().filter_map(link).collect())
}

/// The points that have room for their names, the picked one first, and where each name stands beside its point: where it covers
/// no marker and no other name. The picked one is named whatever it covers.
fn named<'p>(order: &[&'p PlotPoint], place: impl Fn(&PlotPoint) -> (i32, i32)) -> Vec<(&'p PlotPoint, (i32, i32))> {
    let markers: Vec<(i32, i32)> = order.iter().map(|point| place(point)).collect();
    let (mut taken, mut named): (Vec<(i32, i32)>, _) = (Vec::new(), Vec::new());
    for &point in order.iter().rev() {
        let (px, py) = place(point);
        let is_free = |beside: &(i32, i32)| {
            let (left, top) = (px + beside.0, py + beside.1);
            let covers = |(x, y): &(i32, i32)| {
                (left - MARKER..left + LABEL_ROOM.0).contains(x) && (top - MARKER..top + LABEL_ROOM.1).contains(y)
            };
            let near = |(l, t): &(i32, i32)| (l - left).abs() < LABEL_ROOM.0 && (t - top).abs() < LABEL_ROOM.1;
            !markers.iter().any(|marker| *marker != (px, py) && covers(marker)) && !taken.iter().any(near)
        };
        let sides = match (point.picked, point.on_front) {
            // Larger than the others.
            (true, _) => [(11, -22), (11, 6), (-30, -22), (-30, 6)],
            (false, true) => [(8, -18), (8, 4), (-26, -18), (-26, 4)],
            (false, false) => [(9, 0), (9, -18), (-27, 0), (-27, -18)],
        };
        let Some(beside) = sides.into_iter().find(is_free).or(point.picked.then_some(sides[0])) else { continue };
        taken.push((px + beside.0, py + beside.1));
        named.push((point, beside));
    }
    named
}

/// A point in words, with its value on every axis.
fn described(plot: &Plot, point: &PlotPoint) -> String {
    let values = plot.axes.iter().zip(&point.values).map(|(axis, value)| format!("{axis}: {}", figure(*value)));
    format!("Point {}: {}", point.label, values.collect::<Vec<_>>().join(", "))
}

/// How the values of one axis become places on it.
struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Axis {
    fn of(plot: &Plot, axis: usize) -> Self {
        let values = || plot.points.iter().map(|p| p.values[axis]);
        let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
        Self { low, high, logarithmic: low > 0.0 && high / low >= LOGARITHMIC_FROM }
    }

    fn place(&self, value: f64) -> f64 {
        if self.logarithmic { value.log10() } else { value }
    }

    /// From the least to the greatest place with a margin, so that no point sits on the frame.
    fn range(&self) -> std::ops::Range<f64> {
        let (low, high) = (self.place(self.low), self.place(self.high));
        let span = if high > low { high - low } else { high.abs().max(1.0) };
        low - span * 0.05..high + span * 0.08
    }

    fn description(&self, name: &str) -> String {
        if self.logarithmic { format!("{name} (by orders of magnitude)") } else { name.into() }
    }

    fn text(&self, place: f64) -> String {
        if self.logarithmic {
            // Places between the powers of ten are no round numbers.
            return if (place - place.round()).abs() < 1e-6 { figure(10f64.powf(place)) } else { String::new() };
        }
        let value = place;
        // As many digits as the axis can tell apart.
        match (self.high - self.low).abs() {
            span if span >= 20.0 => format!("{value:.0}"),
            span if span >= 2.0 => format!("{value:.1}"),
            span if span >= 0.2 => format!("{value:.2}"),
            _ => format!("{value:.4}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(axes: usize, points: usize) -> Plot {
        let point = |i: usize| PlotPoint {
            label: format!("#{i}"),
            values: (0..axes).map(|a| ((i + 1) * 10usize.pow(a as u32 % 3)) as f64).collect(),
            satisfies: i.is_multiple_of(2),
            picked: i == 1,
            on_front: true,
            link: Some(format!("#point-{i}")),
        };
        Plot {
            caption: Caption { id: "front".into(), title: "k against <glm>".into(), description: "Points.".into() },
            axes: (0..axes).map(|a| format!("axis {a}")).collect(),
            points: (0..points).map(point).collect(),
        }
    }

    #[test]
    fn a_picture_has_title_axes_and_labelled_points() {
        let text = svg(&plot(2, 5)).unwrap();
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        for wanted in ["k against &lt;glm&gt;", "axis 0", "axis 1", "#0", "#4"] {
            assert!(text.contains(wanted), "{wanted}");
        }
        // Each point, and where it can be hit.
        assert_eq!(text.matches("<circle").count(), 10);
        assert_eq!(text.matches("<a href=\"#point-").count(), 5);
    }

    #[test]
    fn no_name_covers_a_marker() {
        let points = plot(2, 3).points;
        let order: Vec<&PlotPoint> = points.iter().collect();
        // The second stands where the name of the first would.
        let at = |point: &PlotPoint| match &*point.label {
            "#0" => (100, 100),
            "#1" => (115, 90),
            _ => (300, 300),
        };
        let names = named(&order, at);
        assert_eq!(names.len(), 3);
        for (point, beside) in names {
            let (left, top) = (at(point).0 + beside.0, at(point).1 + beside.1);
            for other in order.iter().filter(|other| other.label != point.label) {
                let (x, y) = at(other);
                let covered = (left..left + LABEL_ROOM.0).contains(&x) && (top..top + LABEL_ROOM.1).contains(&y);
                assert!(!covered, "{} on {}", point.label, other.label);
            }
        }
    }

    #[test]
    fn further_axes_have_panels_of_their_own() {
        let text = svg(&plot(4, 3)).unwrap();
        assert_eq!(text.matches("<circle").count(), 18);
        assert!(["axis 1", "axis 2", "axis 3"].iter().all(|axis| text.contains(axis)));
    }

    #[test]
    fn wide_axes_go_by_orders_of_magnitude() {
        let mut wide = plot(2, 300);
        let text = svg(&wide).unwrap();
        assert!(text.contains("axis 0 (by orders of magnitude)"));
        assert!(text.matches(">\n#").count() < 100, "names do not cover each other");
        wide.points.truncate(1);
        assert!(svg(&wide).is_ok(), "one point is a front too");
    }

    #[test]
    fn what_cannot_be_drawn_is_refused() {
        assert!(svg(&plot(1, 3)).is_err() && svg(&plot(2, 0)).is_err());
        let mut bad = plot(2, 2);
        bad.points[0].values[0] = f64::NAN;
        assert!(svg(&bad).is_err());
    }
}
