//! Figures over time: one line per series, the last value at its end.

use plotters::prelude::*;

use super::{Area, BLUE, Caption, GREY, GRID, INK, LABEL, Link, PlotError, RED, WIDTH, count, failed, picture};

/// High enough to see a trend, low enough that four fit on a screen.
const HEIGHT: u32 = 230;
/// How much of the height is left free above the highest point, so that labels do not cover it.
const HEADROOM: f64 = 0.12;

/// Lines over a common time axis.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Lines {
    /// The visible text.
    pub caption: Caption,
    /// The name and unit of the vertical axis.
    pub unit: String,
    /// The lines.
    pub series: Vec<Series>,
}

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    /// Its name, written at its end.
    pub name: String,
    /// How it looks.
    pub style: Style,
    /// Seconds before now, as negative numbers from the oldest to the newest, and the values.
    pub points: Vec<(f64, f64)>,
}

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// A solid line for measured values.
    Measured,
    /// A broken line for the bound that the policy asks for.
    Bound,
}

/// The lines as SVG.
///
/// # Errors
/// If there is no point at all, or one that is not a number.
pub(crate) fn svg(lines: &Lines) -> Result<String, PlotError> {
    let all = || lines.series.iter().flat_map(|series| &series.points);
    if all().next().is_none() || !all().all(|(x, y)| x.is_finite() && y.is_finite()) {
        return Err(PlotError("it takes a point of numbers".into()));
    }
    let oldest = all().map(|p| p.0).fold(f64::INFINITY, f64::min);
    let top = all().map(|p| p.1).fold(0.0, f64::max);
    let top = if top > 0.0 { top * (1.0 + HEADROOM) } else { 1.0 };
    // One release is a point in the middle of a minute rather than a line of no length.
    let oldest = oldest.min(-60.0);
    picture(&lines.caption, (WIDTH, HEIGHT), |area| draw(lines, area, oldest, top).map(|()| Vec::<Link>::new()))
}

fn draw(lines: &Lines, area: &Area<'_>, oldest: f64, top: f64) -> Result<(), PlotError> {
    // In the unit of the labels, so that the ticks are round numbers of it.
    let (unit, seconds) = unit(-oldest);
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(20)
        .x_label_area_size(30)
        .y_label_area_size(64)
        .build_cartesian_2d(oldest / seconds..0.0, 0.0..top)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .y_desc(lines.unit.as_str())
        .x_label_formatter(&|x| ago(*x, unit))
        .y_label_formatter(&|y| count(*y))
        .x_labels(5)
        .y_labels(4)
        .label_style(LABEL.into_font().color(&INK))
        .axis_desc_style(LABEL.into_font().color(&INK))
        .axis_style(GRID)
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .disable_x_mesh()
        .draw()
        .map_err(failed)?;
    for series in &lines.series {
        let points = || series.points.iter().map(|(x, y)| (x / seconds, *y));
        match series.style {
            Style::Bound => {
                let line = DashedLineSeries::new(points(), 7, 5, RED.stroke_width(2));
                chart.draw_series(line).map_err(failed)?;
            }
            style => {
                let colour = if style == Style::Measured { BLUE } else { GREY };
                chart.draw_series(LineSeries::new(points(), colour.stroke_width(2))).map_err(failed)?;
                if let Some(last) = points().next_back() {
                    chart.draw_series([Circle::new(last, 4, colour.filled())]).map_err(failed)?;
                }
            }
        }
    }
    Ok(())
}

/// The largest unit that fits a time, and its seconds.
fn unit(span: f64) -> (&'static str, f64) {
    match span {
        span if span > 2.0 * 86_400.0 => ("d", 86_400.0),
        span if span > 2.0 * 3600.0 => ("h", 3600.0),
        span if span > 2.0 * 60.0 => ("min", 60.0),
        _ => ("s", 1.0),
    }
}

/// A place on the time axis.
fn ago(x: f64, unit: &str) -> String {
    if x.abs() < 1e-9 { "now".into() } else { format!("{} {unit}", super::figure(x)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(points: Vec<(f64, f64)>) -> Lines {
        Lines {
            caption: Caption { id: "loss".into(), title: "Loss".into(), description: "Over <time>".into() },
            unit: "glm".into(),
            series: vec![
                Series { name: "glm".into(), style: Style::Measured, points: points.clone() },
                Series { name: "limit".into(), style: Style::Bound, points },
            ],
        }
    }

    #[test]
    fn lines_have_a_title_a_description_and_an_end() {
        let text = svg(&lines(vec![(-120.0, 0.5), (-60.0, 0.25), (-1.0, 0.75)])).unwrap();
        for wanted in
            ["role=\"img\"", "aria-labelledby=\"loss-title loss-desc\"", "Over &lt;time&gt;", "now", "<polyline"]
        {
            assert!(text.contains(wanted), "{wanted}");
        }
        assert_eq!(text.matches("<circle").count(), 1, "only what is measured has an end");
    }

    #[test]
    fn one_point_is_enough_and_none_is_not() {
        assert!(svg(&lines(vec![(0.0, 0.0)])).is_ok());
        assert!(svg(&lines(Vec::new())).is_err());
        assert!(svg(&lines(vec![(0.0, f64::NAN)])).is_err());
    }

    #[test]
    fn times_are_said_in_their_unit() {
        assert_eq!([90.0, 600.0, 20_000.0, 200_000.0].map(|span| unit(span).0), ["s", "min", "h", "d"]);
        assert_eq!((ago(-30.0, "s"), ago(-2.5, "h"), ago(0.0, "s")), ("-30 s".into(), "-2.5 h".into(), "now".into()));
    }
}
