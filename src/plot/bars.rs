//! Lying bars, whose names stand beside each other and never overlap: class sizes, losses, levels, and distributions before and
//! after.

use plotters::prelude::*;

use super::{Area, BLUE, Caption, GRID, INK, LABEL, PALE_BLUE, PlotError, RED, WIDTH, failed, picture};

/// The height of one bar with its label.
const ROW: u32 = 32;
/// Room for the names of lying bars.
const NAMES: i32 = 150;
/// Room for a figure.
const FIGURE: i32 = 80;
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
    check(bars.iter().map(|bar| bar.value))?;
    let whole = if whole > 0.0 { whole } else { 1.0 };
    let room = WIDTH as i32 - NAMES - FIGURE;
    lines(caption, bars, room, |bar, top, area| {
        fill(area, [0, room], [top + 3, top + 23], GRID)?;
        fill(area, [0, part(room, bar.value / whole)], [top + 3, top + 23], BLUE)?;
        Ok([&bar.name, &bar.shown].map(Clone::clone))
    })
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
    check(shares())?;
    let most = shares().fold(0.01, f64::max);
    let room = WIDTH as i32 - NAMES - FIGURES;
    lines(caption, rows, room, |row, top, area| {
        fill(area, [0, part(room, row.before / most)], [top + 2, top + 12], PALE_BLUE)?;
        fill(area, [0, part(room, row.after / most)], [top + 13, top + 23], BLUE)?;
        Ok([row.name.clone(), format!("{:.0} to {:.0} %", 100.0 * row.before, 100.0 * row.after)])
    })
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

/// A bar with a mark, for a level on its way from the value itself to nothing at all: filled steps of all steps.
///
/// # Errors
/// If there is nothing to draw.
pub(crate) fn steps(caption: &Caption, rows: &[Steps]) -> Result<String, PlotError> {
    check(rows.iter().map(|_| 0.0))?;
    let room = WIDTH as i32 - NAMES - WORDS;
    lines(caption, rows, room, |row, top, area| {
        let height = i32::from(row.height.max(1));
        for step in 0..height {
            let colour = match step {
                step if step < i32::from(row.typical) => BLUE,
                step if step < i32::from(row.level) => PALE_BLUE,
                _ => GRID,
            };
            fill(area, [room * step / height, room * (step + 1) / height - 3], [top + 3, top + 23], colour)?;
        }
        if row.max_level < row.height {
            let x = NAMES + room * i32::from(row.max_level) / height - 2;
            area.draw(&PathElement::new([(x, top), (x, top + 26)], RED.stroke_width(2))).map_err(failed)?;
        }
        Ok([&row.name, &row.shown].map(Clone::clone))
    })
}

fn check(values: impl Iterator<Item = f64>) -> Result<(), PlotError> {
    let values: Vec<f64> = values.collect();
    if values.is_empty() || !values.iter().all(|value| value.is_finite() && *value >= 0.0) {
        return Err(PlotError("it takes a name, and numbers from zero on".into()));
    }
    Ok(())
}

/// A line per row: its name, the bars that `draw` draws below `top` in a width of `room`, and a text. `draw` returns both texts.
fn lines<T>(
    caption: &Caption,
    rows: &[T],
    room: i32,
    draw: impl Fn(&T, i32, &Area<'_>) -> Result<[String; 2], PlotError>,
) -> Result<String, PlotError> {
    picture(caption, (WIDTH, ROW * rows.len() as u32 + 8), |area| {
        let style = LABEL.into_font().color(&INK);
        for (at, row) in rows.iter().enumerate() {
            let top = (at as u32 * ROW) as i32 + 4;
            let [name, shown] = draw(row, top, area)?;
            area.draw(&Text::new(short(&name), (4, top + 5), style.clone())).map_err(failed)?;
            area.draw(&Text::new(shown, (NAMES + room + 10, top + 5), style.clone())).map_err(failed)?;
        }
        Ok(Vec::new())
    })
}

/// A rectangle right of the names; nothing if it has no width.
fn fill(area: &Area<'_>, [left, right]: [i32; 2], [top, bottom]: [i32; 2], colour: RGBColor) -> Result<(), PlotError> {
    if right <= left {
        return Ok(());
    }
    let place = [(NAMES + left, top), (NAMES + right, bottom)];
    area.draw(&Rectangle::new(place, colour.filled())).map_err(failed)
}

fn part(room: i32, share: f64) -> i32 {
    (f64::from(room) * share.min(1.0)) as i32
}

fn short(name: &str) -> String {
    let mut short: String = name.chars().take(MAX_NAME).collect();
    if name.chars().count() > MAX_NAME {
        short.push('…');
    }
    short
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
