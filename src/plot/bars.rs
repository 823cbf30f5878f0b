//! Bars: how classes are distributed over sizes, what each attribute lost.

use plotters::prelude::*;

use super::{Area, BLUE, Caption, GRID, INK, LABEL, Link, PlotError, RED, WIDTH, count, failed, picture};

/// The height of upright bars with their axes.
const HEIGHT: u32 = 230;
/// The height of one lying bar with its label.
const ROW: u32 = 32;
/// Room for the names of lying bars.
const NAMES: i32 = 150;
/// Names longer than this are cut: they would run into the bars.
const MAX_NAME: usize = 16;

/// One bar.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bar {
    /// What it stands for.
    pub name: String,
    /// How long it is.
    pub value: f64,
    /// What is written at its end.
    pub shown: String,
}

/// Upright bars, for distributions: names below, values at the left.
///
/// # Errors
/// If there is no bar, or one that is not a number.
pub(crate) fn columns(caption: &Caption, unit: &str, bars: &[Bar]) -> Result<String, PlotError> {
    check(bars)?;
    picture(caption, (WIDTH, HEIGHT), |area| draw_columns(unit, bars, area).map(|()| Vec::<Link>::new()))
}

/// Lying bars, for comparing a few named things; `whole` is as long as a bar can get.
///
/// # Errors
/// If there is no bar, or one that is not a number.
pub(crate) fn rows(caption: &Caption, bars: &[Bar], whole: f64) -> Result<String, PlotError> {
    check(bars)?;
    let height = ROW * bars.len() as u32 + 8;
    picture(caption, (WIDTH, height), |area| draw_rows(bars, whole, area).map(|()| Vec::<Link>::new()))
}

fn check(bars: &[Bar]) -> Result<(), PlotError> {
    if bars.is_empty() || !bars.iter().all(|bar| bar.value.is_finite() && bar.value >= 0.0) {
        return Err(PlotError("it takes a bar, and numbers from zero on".into()));
    }
    Ok(())
}

fn draw_columns(unit: &str, bars: &[Bar], area: &Area<'_>) -> Result<(), PlotError> {
    let top = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    let top = if top > 0.0 { top * 1.15 } else { 1.0 };
    let wide = bars.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .x_label_area_size(4)
        .y_label_area_size(64)
        .margin_bottom(28)
        .build_cartesian_2d(0.0..wide, 0.0..top)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .y_desc(unit)
        .y_label_formatter(&|y| count(*y))
        .y_labels(4)
        .x_labels(0)
        .label_style(LABEL.into_font().color(&INK))
        .axis_desc_style(LABEL.into_font().color(&INK))
        .axis_style(GRID)
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .disable_x_mesh()
        .draw()
        .map_err(failed)?;
    let middle = plotters::style::text_anchor::Pos::new(
        plotters::style::text_anchor::HPos::Center,
        plotters::style::text_anchor::VPos::Top,
    );
    for (at, bar) in bars.iter().enumerate() {
        let left = at as f64;
        let shape = Rectangle::new([(left + 0.12, 0.0), (left + 0.88, bar.value)], BLUE.filled());
        chart.draw_series([shape]).map_err(failed)?;
        let (x, bottom) = chart.backend_coord(&(left + 0.5, 0.0));
        let (_, end) = chart.backend_coord(&(left + 0.5, bar.value));
        let style = LABEL.into_font().color(&INK).pos(middle);
        area.draw(&Text::new(bar.name.clone(), (x, bottom + 8), style.clone())).map_err(failed)?;
        if !bar.shown.is_empty() {
            area.draw(&Text::new(bar.shown.clone(), (x, end - 18), style)).map_err(failed)?;
        }
    }
    Ok(())
}

fn draw_rows(bars: &[Bar], whole: f64, area: &Area<'_>) -> Result<(), PlotError> {
    let whole = if whole > 0.0 { whole } else { 1.0 };
    // Room for the figure at the end of the longest bar.
    let room = f64::from(WIDTH as i32 - NAMES - 80);
    for (at, bar) in bars.iter().enumerate() {
        let y = (at as u32 * ROW) as i32 + 4;
        let right = NAMES + (room * (bar.value / whole).min(1.0)) as i32;
        let track = Rectangle::new([(NAMES, y + 3), (NAMES + room as i32, y + 23)], GRID.filled());
        area.draw(&track).map_err(failed)?;
        if right > NAMES {
            area.draw(&Rectangle::new([(NAMES, y + 3), (right, y + 23)], BLUE.filled())).map_err(failed)?;
        }
        let style = LABEL.into_font().color(&INK);
        area.draw(&Text::new(short(&bar.name), (4, y + 5), style.clone())).map_err(failed)?;
        area.draw(&Text::new(bar.shown.clone(), (NAMES + room as i32 + 10, y + 5), style)).map_err(failed)?;
    }
    Ok(())
}

fn short(name: &str) -> String {
    let mut short: String = name.chars().take(MAX_NAME).collect();
    if name.chars().count() > MAX_NAME {
        short.push('…');
    }
    short
}

/// A bar with a mark, for a level on its way from the value itself to nothing at all: filled steps of all steps.
///
/// # Errors
/// If there is nothing to draw.
pub(crate) fn steps(caption: &Caption, rows: &[Steps]) -> Result<String, PlotError> {
    if rows.is_empty() {
        return Err(PlotError("it takes an attribute".into()));
    }
    let height = ROW * rows.len() as u32 + 8;
    picture(caption, (WIDTH, height), |area| draw_steps(rows, area).map(|()| Vec::<Link>::new()))
}

/// One attribute's level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Steps {
    /// The attribute.
    pub name: String,
    /// Its level.
    pub level: u8,
    /// The coarsest level that is permitted.
    pub max_level: u8,
    /// The level at which all values are one.
    pub height: u8,
}

fn draw_steps(rows: &[Steps], area: &Area<'_>) -> Result<(), PlotError> {
    let room = WIDTH as i32 - NAMES - 80;
    for (at, row) in rows.iter().enumerate() {
        let y = (at as u32 * ROW) as i32 + 4;
        let style = LABEL.into_font().color(&INK);
        area.draw(&Text::new(short(&row.name), (4, y + 5), style.clone())).map_err(failed)?;
        let height = i32::from(row.height.max(1));
        for step in 0..height {
            let (left, right) = (NAMES + room * step / height, NAMES + room * (step + 1) / height - 3);
            let colour = if step < i32::from(row.level) { BLUE } else { GRID };
            area.draw(&Rectangle::new([(left, y + 3), (right, y + 23)], colour.filled())).map_err(failed)?;
        }
        if row.max_level < row.height {
            let x = NAMES + room * i32::from(row.max_level) / height - 2;
            area.draw(&PathElement::new([(x, y), (x, y + 26)], RED.stroke_width(2))).map_err(failed)?;
        }
        let shown = format!("{} of {}", row.level, row.height);
        area.draw(&Text::new(shown, (NAMES + room + 10, y + 5), style)).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caption() -> Caption {
        Caption { id: "bars".into(), title: "Bars".into(), description: "Some bars.".into() }
    }

    fn bar(name: &str, value: f64) -> Bar {
        Bar { name: name.into(), value, shown: count(value) }
    }

    #[test]
    fn bars_show_names_and_figures() {
        let bars = [bar("5", 3.0), bar("6-9", 12.0), bar("<10", 0.0)];
        for text in [columns(&caption(), "classes", &bars).unwrap(), rows(&caption(), &bars, 12.0).unwrap()] {
            for wanted in ["6-9", "&lt;10", "<title id=\"bars-title\">Bars</title>"] {
                assert!(text.contains(wanted), "{wanted}");
            }
        }
        assert!(columns(&caption(), "classes", &[]).is_err());
        assert!(rows(&caption(), &[bar("x", f64::INFINITY)], 1.0).is_err());
    }

    #[test]
    fn steps_are_filled_up_to_the_level() {
        let row = Steps { name: "zip".into(), level: 2, max_level: 4, height: 5 };
        let text = steps(&caption(), &[row]).unwrap();
        assert_eq!(text.matches("fill=\"#1F5CA0\"").count(), 2);
        assert_eq!(text.matches("stroke=\"#C2411C\"").count(), 1, "the coarsest level that is permitted");
        assert!(text.contains("2 of 5"));
    }
}
