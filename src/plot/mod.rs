//! Pictures: figures in, SVG text out. Pure; nothing here reads a clock, a file or a record.
//!
//! The same pictures are drawn for the console, for reports and on the command line. Each has a title and a description for
//! those who do not see it, colours from one palette (which a page may restyle, see `telemetry/console.css`), and no
//! colour that alone tells two things apart.

pub(crate) mod bars;
pub(crate) mod front;
pub(crate) mod lattice;
pub(crate) mod lines;

use std::fmt::Write as _;

use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::style::RGBColor;
use thiserror::Error;

/// Text and axes.
const INK: RGBColor = RGBColor(0x44, 0x4C, 0x56);
/// Lines behind the figures.
const GRID: RGBColor = RGBColor(0xE3, 0xE6, 0xEA);
/// Measured figures; satisfying nodes.
const BLUE: RGBColor = RGBColor(0x1F, 0x5C, 0xA0);
/// The same, further back.
const PALE_BLUE: RGBColor = RGBColor(0xA9, 0xC4, 0xE2);
/// The figure asked for; the choice.
const RED: RGBColor = RGBColor(0xC2, 0x41, 0x1C);
/// Failing nodes, or nodes that are only known.
const GREY: RGBColor = RGBColor(0x9A, 0xA1, 0xAA);

/// Wide enough for a few labels, narrow enough to be read on a phone without turning it.
const WIDTH: u32 = 520;
/// The text of labels; smaller cannot be read on a phone, where the picture shrinks to two thirds.
const LABEL: (&str, u32) = ("sans-serif", 16);

/// The picture could not be drawn.
#[derive(Debug, Error)]
#[error("the picture could not be drawn: {0}")]
pub(crate) struct PlotError(String);

fn failed(error: impl std::fmt::Display) -> PlotError {
    PlotError(error.to_string())
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The title of a picture, and its content in a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caption {
    /// Different for every picture of a page: a word of letters and dashes.
    pub id: String,
    /// The visible text.
    pub title: String,
    /// Its content in a sentence.
    pub description: String,
}

/// A place in a picture that says something to those who point at it, and may lead somewhere.
struct Link {
    at: (i32, i32),
    to: Option<String>,
    label: String,
    /// How far from its middle it can be hit.
    radius: i32,
}

/// How far from its middle a link can be hit. Larger ones overlap on a phone; smaller ones are missed by fingers.
const LINK_RADIUS: i32 = 13;

/// Draws with `draw` on an area of this size and gives the picture its caption and its links.
fn picture(
    caption: &Caption,
    size: (u32, u32),
    draw: impl FnOnce(&Area<'_>) -> Result<Vec<Link>, PlotError>,
) -> Result<String, PlotError> {
    let mut text = String::new();
    let links = {
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        let links = draw(&root)?;
        root.present().map_err(failed)?;
        links
    };
    let (open, rest) = text.split_once('>').ok_or_else(|| PlotError("no SVG".into()))?;
    let body = rest.trim_end().strip_suffix("</svg>").ok_or_else(|| PlotError("no SVG".into()))?;
    let Caption { id, title, description } = caption;
    let mut out = String::with_capacity(text.len() + 512);
    let _ = write!(
        out,
        "{open} role=\"{}\" aria-labelledby=\"{id}-title {id}-desc\">\n<title id=\"{id}-title\">{}</title>\n\
         <desc id=\"{id}-desc\">{}</desc>\n",
        // A picture with links is not one image: a reader must be able to reach them.
        if links.iter().all(|link| link.to.is_none()) { "img" } else { "group" },
        escape(title),
        escape(description),
    );
    out.push_str(body);
    for Link { at: (x, y), to, label, radius } in links {
        let label = escape(&label);
        let place = format!(
            "<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" fill=\"#000000\" fill-opacity=\"0\"><title>{label}</title></circle>"
        );
        let _ = match to {
            Some(to) => writeln!(out, "<a href=\"{}\" aria-label=\"{label}\">{place}</a>", escape(&to)),
            None => writeln!(out, "{place}"),
        };
    }
    out.push_str("</svg>\n");
    Ok(out)
}

/// The picture on white, for a file of its own.
pub(crate) fn standalone(svg: &str) -> String {
    svg.replacen("</desc>", "</desc>\n<rect width=\"100%\" height=\"100%\" fill=\"#FFFFFF\"/>", 1)
}

/// Text for HTML and SVG, in elements and in attributes.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // Not allowed in documents at all.
            c if c.is_control() && c != '\n' && c != '\t' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A figure with as many digits as tell something: at most three after the point, and none where it is whole.
pub(crate) fn figure(value: f64) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    let digits = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

/// A count as a person reads it: 12, 3.4k, 5.6M.
pub(crate) fn count(value: f64) -> String {
    match value.abs() {
        v if v >= 1e9 => format!("{}G", figure(value / 1e9)),
        v if v >= 1e6 => format!("{}M", figure(value / 1e6)),
        v if v >= 1e4 => format!("{}k", figure(value / 1e3)),
        _ => figure(value),
    }
}

/// A share as a person says it: hardly any, about a quarter, nearly all.
pub(crate) fn portion(share: f64) -> &'static str {
    const FRACTIONS: [(f64, &str); 13] = [
        (0.05, "about a twentieth"),
        (0.1, "about a tenth"),
        (0.2, "about a fifth"),
        (0.25, "about a quarter"),
        (1.0 / 3.0, "about a third"),
        (0.4, "about two fifths"),
        (0.5, "about half"),
        (0.6, "about three fifths"),
        (2.0 / 3.0, "about two thirds"),
        (0.75, "about three quarters"),
        (0.8, "about four fifths"),
        (0.9, "about nine tenths"),
        (1.0, "nearly all"),
    ];
    match share {
        share if share <= 0.0 => "none",
        share if share < 0.03 => "hardly any",
        share if share >= 1.0 => "all",
        share => {
            let nearest = FRACTIONS.iter().min_by(|a, b| (a.0 - share).abs().total_cmp(&(b.0 - share).abs()));
            nearest.map_or("all", |(_, said)| said)
        }
    }
}

/// A share in percent.
pub(crate) fn percent(share: f64) -> String {
    format!("{} %", figure(100.0 * share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_said_as_people_say_them() {
        let said = [0.0, 0.01, 0.05, 0.263, 0.48, 0.97, 1.0].map(portion);
        assert_eq!(
            said,
            ["none", "hardly any", "about a twentieth", "about a quarter", "about half", "nearly all", "all"]
        );
        assert_eq!([0.0, 0.0005, 0.26349].map(percent), ["0 %", "0.05 %", "26.3 %"]);
    }

    #[test]
    fn nothing_escapes_the_escape() {
        assert_eq!(escape("<a href='x'>\"&\u{0}"), "&lt;a href=&#39;x&#39;&gt;&quot;&amp;\u{fffd}");
    }

    #[test]
    fn figures_are_short() {
        let shown = [0.0, 0.12345, 1.5, 12.34, 1234.5, f64::NAN].map(figure);
        assert_eq!(shown, ["0", "0.123", "1.5", "12.3", "1234", "-"]);
        assert_eq!([9999.0, 12_345.0, 2e6, 3.25e9].map(count), ["9999", "12.3k", "2M", "3.25G"]);
    }
}
