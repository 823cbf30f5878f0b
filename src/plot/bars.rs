//! Lying bars, whose names stand beside each other and never overlap: class sizes, losses, levels, and distributions before and
//! after.

use plotters::prelude::*;

use super::{Area, BLUE, Caption, GRID, INK, LABEL, Link, PALE_BLUE, PlotError, RED, WIDTH, failed, picture};

/// The height of one bar with its label.
const ROW: u32 = 32;
/// Room for the names of lying bars.
const NAMES: i32 = 150;
/// Room for two shares.
const FIGURES: i32 = 115;
/// Room for a level in words.
const WORDS: i32 = 205;
/// Names longer than this are cut: they would run into the bars.
const MAX_NAME: usize = 16;

/// One bar.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bar {
    /// Its meaning.
    pub name: String,
    /// How long it is.
    pub value: f64,
    /// The text at its end.
    pub shown: String,
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

/// A share before and after.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pair {
    /// Its meaning.
    pub name: String,
    /// The share before, from 0 to 1.
    pub before: f64,
    /// The share after.
    pub after: f64,
}

/// Two bars below each other for each name, on the scale of the longest one: pale before, dark after.
///
/// # Errors
/// If there is nothing to draw, or something that is not a number.
pub(crate) fn pairs(caption: &Caption, rows: &[Pair]) -> Result<String, PlotError> {
    let shares = || rows.iter().flat_map(|row| [row.before, row.after]);
    if rows.is_empty() || !shares().all(|share| share.is_finite() && share >= 0.0) {
        return Err(PlotError("it takes a name, and shares from zero on".into()));
    }
    let most = shares().fold(0.01, f64::max);
    let height = ROW * rows.len() as u32 + 8;
    picture(caption, (WIDTH, height), |area| draw_pairs(rows, most, area).map(|()| Vec::<Link>::new()))
}

fn draw_pairs(rows: &[Pair], most: f64, area: &Area<'_>) -> Result<(), PlotError> {
    let room = f64::from(WIDTH as i32 - NAMES - FIGURES);
    for (at, row) in rows.iter().enumerate() {
        let y = (at as u32 * ROW) as i32 + 4;
        let style = LABEL.into_font().color(&INK);
        area.draw(&Text::new(short(&row.name), (4, y + 5), style.clone())).map_err(failed)?;
        for (share, top, colour) in [(row.before, y + 2, PALE_BLUE), (row.after, y + 13, BLUE)] {
            let right = NAMES + (room * share / most) as i32;
            if right > NAMES {
                area.draw(&Rectangle::new([(NAMES, top), (right, top + 10)], colour.filled())).map_err(failed)?;
            }
        }
        let said = format!("{:.0} to {:.0} %", 100.0 * row.before, 100.0 * row.after);
        area.draw(&Text::new(said, (NAMES + room as i32 + 10, y + 5), style)).map_err(failed)?;
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
    /// The level in words.
    pub shown: String,
    /// The level up to which most rows are coarsened; the level itself where there is only one.
    pub typical: u8,
    /// Its level, the coarsest one where several occur.
    pub level: u8,
    /// The coarsest level that is permitted.
    pub max_level: u8,
    /// The level at which all values are one.
    pub height: u8,
}

fn draw_steps(rows: &[Steps], area: &Area<'_>) -> Result<(), PlotError> {
    let room = WIDTH as i32 - NAMES - WORDS;
    for (at, row) in rows.iter().enumerate() {
        let y = (at as u32 * ROW) as i32 + 4;
        let style = LABEL.into_font().color(&INK);
        area.draw(&Text::new(short(&row.name), (4, y + 5), style.clone())).map_err(failed)?;
        let height = i32::from(row.height.max(1));
        for step in 0..height {
            let (left, right) = (NAMES + room * step / height, NAMES + room * (step + 1) / height - 3);
            let colour = match step {
                step if step < i32::from(row.typical) => BLUE,
                step if step < i32::from(row.level) => PALE_BLUE,
                _ => GRID,
            };
            area.draw(&Rectangle::new([(left, y + 3), (right, y + 23)], colour.filled())).map_err(failed)?;
        }
        if row.max_level < row.height {
            let x = NAMES + room * i32::from(row.max_level) / height - 2;
            area.draw(&PathElement::new([(x, y), (x, y + 26)], RED.stroke_width(2))).map_err(failed)?;
        }
        area.draw(&Text::new(row.shown.clone(), (NAMES + room + 10, y + 5), style)).map_err(failed)?;
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
        Bar { name: name.into(), value, shown: crate::plot::count(value) }
    }

    #[test]
    fn bars_show_names_and_figures() {
        let bars = [bar("5", 3.0), bar("6-9", 12.0), bar("<10", 0.0)];
        let text = rows(&caption(), &bars, 12.0).unwrap();
        for wanted in ["6-9", "&lt;10", "<title id=\"bars-title\">Bars</title>"] {
            assert!(text.contains(wanted), "{wanted}");
        }
        assert!(rows(&caption(), &[], 1.0).is_err());
        assert!(rows(&caption(), &[bar("x", f64::INFINITY)], 1.0).is_err());
    }

    #[test]
    fn pairs_have_a_bar_for_each_share_that_is_not_none() {
        let pair = |name: &str, before, after| Pair { name: name.into(), before, after };
        let text = pairs(&caption(), &[pair("<20", 0.5, 0.25), pair("20", 0.5, 0.0)]).unwrap();
        assert_eq!((text.matches("<rect").count(), text.contains("50 to 25 %")), (3, true));
        assert!(pairs(&caption(), &[]).is_err() && pairs(&caption(), &[pair("x", f64::NAN, 0.0)]).is_err());
    }

    #[test]
    fn steps_are_filled_up_to_the_level() {
        let row =
            Steps { name: "zip".into(), shown: "in 2 groups".into(), typical: 1, level: 2, max_level: 4, height: 5 };
        let text = steps(&caption(), &[row]).unwrap();
        assert_eq!(text.matches("fill=\"#1F5CA0\"").count(), 1);
        assert_eq!(text.matches("fill=\"#A9C4E2\"").count(), 1, "the levels that only some records have");
        assert_eq!(text.matches("stroke=\"#C2411C\"").count(), 1, "the coarsest level that is permitted");
        assert!(text.contains("in 2 groups"));
    }
}
