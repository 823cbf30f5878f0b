//! Pieces of HTML that console and report share. Everything that is not markup is escaped here.

use std::fmt::Write as _;

use crate::plot::{PlotError, escape};

/// The style of every page, also for reports, which must stand alone.
pub(crate) const STYLE: &str = include_str!("console.css");

/// A page under construction.
#[derive(Default)]
pub(crate) struct Html(String);

impl Html {
    /// Starts a page: everything up to the opening tag of its body, with `head` inside its head.
    pub(crate) fn page(head: &str) -> Self {
        Self(format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">{head}</head><body>"
        ))
    }

    /// A titled section.
    pub(crate) fn card(&mut self, title: &str, content: impl FnOnce(&mut Self)) -> &mut Self {
        self.raw("<section class=\"card\">").text("h2", title);
        content(self);
        self.raw("</section>")
    }

    /// A list of escaped lines.
    pub(crate) fn list(&mut self, lines: impl Iterator<Item = String>) -> &mut Self {
        self.raw("<ul>");
        for line in lines {
            self.text("li", &line);
        }
        self.raw("</ul>")
    }

    /// The figures of a picture, collapsed.
    pub(crate) fn same_as_table(&mut self, id: &str, head: &[&str], rows: &[Vec<String>]) -> &mut Self {
        self.behind(id, "The same as a table", head, rows)
    }

    /// Markup as it is; only for text written in the source.
    pub(crate) fn raw(&mut self, markup: &str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// An element around escaped text.
    pub(crate) fn text(&mut self, element: &str, text: &str) -> &mut Self {
        let name = element.split(' ').next().unwrap_or_default();
        let _ = write!(self.0, "<{element}>{}</{name}>", escape(text));
        self
    }

    /// A picture, or why there is none yet.
    pub(crate) fn picture(&mut self, picture: Result<String, PlotError>, otherwise: &str) -> &mut Self {
        match picture {
            Ok(svg) => {
                let _ = write!(self.0, "<figure>{svg}</figure>");
            }
            Err(_) => {
                self.text("p class=\"none\"", otherwise);
            }
        }
        self
    }

    /// The figures behind a picture, folded away.
    pub(crate) fn behind(&mut self, id: &str, summary: &str, head: &[&str], rows: &[Vec<String>]) -> &mut Self {
        let _ = write!(self.0, "<details id=\"{}\"><summary>{}</summary>", escape(id), escape(summary));
        self.table(head, rows).raw("</details>")
    }

    /// A table; the first cell of a row names it.
    pub(crate) fn table(&mut self, head: &[&str], rows: &[Vec<String>]) -> &mut Self {
        self.raw("<div class=\"scroll\" tabindex=\"0\"><table><thead><tr>");
        for name in head {
            self.text("th scope=\"col\"", name);
        }
        self.raw("</tr></thead><tbody>");
        for row in rows {
            self.raw("<tr>");
            for (at, cell) in row.iter().enumerate() {
                self.text(if at == 0 { "th scope=\"row\"" } else { "td" }, cell);
            }
            self.raw("</tr>");
        }
        self.raw("</tbody></table></div>")
    }

    /// Links of which one is where the reader is: name, address, and whether it is that one.
    pub(crate) fn choices(&mut self, label: &str, links: &[(&str, String, bool)]) -> &mut Self {
        let _ = write!(self.0, "<nav aria-label=\"{}\"><ul>", escape(label));
        for (name, address, here) in links {
            let here = if *here { " aria-current=\"page\"" } else { "" };
            let _ = write!(self.0, "<li><a href=\"{}\"{here}>{}</a></li>", escape(address), escape(name));
        }
        self.raw("</ul></nav>")
    }

    /// The figure that matters most.
    pub(crate) fn heavy_tile(&mut self, name: &str, value: &str, note: &str) -> &mut Self {
        self.tile_as("tile heavy", name, value, note)
    }

    /// A figure that is seen from afar.
    pub(crate) fn tile(&mut self, name: &str, value: &str, note: &str) -> &mut Self {
        self.tile_as("tile", name, value, note)
    }

    fn tile_as(&mut self, class: &str, name: &str, value: &str, note: &str) -> &mut Self {
        self.raw(&format!("<div class=\"{class}\">"))
            .text("dt", name)
            .text("dd", value)
            .text("dd class=\"note\"", note)
            .raw("</div>")
    }

    /// The text so far.
    pub(crate) fn finish(self) -> String {
        self.0
    }
}

/// A moment as people and machines read it.
pub(crate) fn time(at: crate::model::event::Millis) -> String {
    jiff::Timestamp::from_second(at.0.div_euclid(1000)).map_or_else(|_| "-".into(), |at| at.to_string())
}

/// A length of time as people read it.
pub(crate) fn duration(seconds: f64) -> String {
    use crate::plot::figure;
    match seconds {
        s if s >= 172_800.0 => format!("{} days", figure(s / 86_400.0)),
        s if s >= 7200.0 => format!("{} h", figure(s / 3600.0)),
        s if s >= 120.0 => format!("{} min", figure(s / 60.0)),
        s if s >= 1.0 || s == 0.0 => format!("{} s", figure(s)),
        s => format!("{} ms", figure(s * 1e3)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::Millis;

    #[test]
    fn what_is_not_markup_is_escaped() {
        let mut html = Html::default();
        html.table(&["<a>"], &[vec!["<b>".into(), "&".into()]]).behind("x", "<s>", &[], &[]).tile("<n>", "<v>", "'");
        let html = html.finish();
        for raw in ["<a>", "<b>", "<s>", "<n>", "<v>"] {
            assert!(!html.contains(raw), "{raw}");
        }
        assert!(html.contains("&lt;b&gt;") && html.contains("&#39;"));
    }

    #[test]
    fn times_are_short() {
        assert_eq!(time(Millis(1_700_000_000_999)), "2023-11-14T22:13:20Z");
        assert_eq!([0.0, 0.0123, 5.0, 150.0, 9000.0].map(duration), ["0 s", "12.3 ms", "5 s", "2.5 min", "2.5 h"]);
    }
}
