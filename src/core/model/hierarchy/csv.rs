//! The hierarchy format of ARX: one line per leaf, `value;level1;...;top`, separated by `;`, tab or `,`.
//!
//! Cells may be quoted (`""` is a quote inside quotes); a byte order mark, either line ending and empty lines are fine.
//! Blanks around a cell are no part of its label. An empty first cell is the leaf of the empty value. There is no header.

use std::borrow::Cow;

use super::closed::{Builder, Closed, MAX_COLUMNS};
use super::{Errors, HierarchyError};
use crate::model::record::canonical_text;

/// How many lines vote on the delimiter. Fewer are misled by one odd line; more only cost time.
const SNIFFED: usize = 64;

pub(super) fn parse(bytes: &[u8]) -> Result<Closed, Vec<HierarchyError>> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(_) => return Err(not_utf8(bytes)),
    };
    let delimiter = sniff(text);
    let mut errors = Errors::default();
    let Some(columns) = columns(text, delimiter) else {
        let (mut lines, mut cells) = (Lines::new(text, delimiter), Vec::new());
        while let Some(read) = lines.read(&mut cells) {
            let error = read.map_or_else(
                |error| error,
                |line| HierarchyError::at(line, "one cell; write the value and at least the top, such as `Paris;*`"),
            );
            errors.push(error.line, error.message);
        }
        if errors.list.is_empty() {
            errors.push(None, "the hierarchy is empty; write one line per value, such as `Paris;France;*`");
        }
        return Err(errors.into_list());
    };
    if columns > MAX_COLUMNS {
        errors.push(Some(1), format!("{columns} cells per line; write at most {MAX_COLUMNS}"));
        return Err(errors.into_list());
    }
    let mut builder = Builder::new(columns, errors);
    let mut lines = Lines::new(text, delimiter);
    let mut cells = Vec::with_capacity(columns);
    while let Some(read) = lines.read(&mut cells) {
        match read {
            Err(error) => builder.errors.push(error.line, error.message),
            Ok(line) if cells.len() != columns => {
                let message = format!("{} cells, other lines have {columns}; write one for each level", cells.len());
                builder.errors.push(Some(line), message);
            }
            Ok(line) => {
                for cell in &mut cells {
                    let canonical = canonical_text(cell);
                    if canonical != *cell {
                        *cell = Cow::Owned(canonical.into_owned());
                    }
                }
                builder.add(&cells, Some(line));
            }
        }
    }
    builder.finish()
}

fn not_utf8(bytes: &[u8]) -> Vec<HierarchyError> {
    let mut errors = Errors::default();
    for (at, line) in bytes.split(|&b| b == b'\n').enumerate() {
        if std::str::from_utf8(line).is_err() {
            errors.push(Some(at + 1), "not UTF-8; save the file as UTF-8");
        }
    }
    errors.into_list()
}

/// The first of `;`, tab, `,` that cuts most of the first lines into the same number of cells. The order matters: the labels of
/// files written with `;` often hold commas, as `[15,20)` does.
fn sniff(text: &str) -> u8 {
    let fits = |delimiter: &u8| {
        let widths = widths(text, *delimiter, SNIFFED);
        let read: usize = widths.iter().map(|w| w.1).sum();
        widths.iter().any(|&(width, count)| width > 1 && count * 2 > read)
    };
    let seen = |delimiter: &u8| widths(text, *delimiter, SNIFFED).iter().any(|w| w.0 > 1);
    let candidates = [b';', b'\t', b','];
    candidates.iter().find(|d| fits(d)).or_else(|| candidates.iter().find(|d| seen(d))).copied().unwrap_or(b';')
}

/// How many cells a line has: as most lines do, so that one short line is reported and not all others. `None` if no line
/// has two.
fn columns(text: &str, delimiter: u8) -> Option<usize> {
    let widths = widths(text, delimiter, usize::MAX);
    widths.iter().rev().filter(|w| w.0 > 1).max_by_key(|w| w.1).map(|w| w.0)
}

/// Each number of cells with the number of lines that have it, in the order they come up.
fn widths(text: &str, delimiter: u8, lines: usize) -> Vec<(usize, usize)> {
    let mut widths: Vec<(usize, usize)> = Vec::new();
    let mut reader = Lines::new(text, delimiter);
    let mut cells = Vec::new();
    for _ in 0..lines {
        match reader.read(&mut cells) {
            None => break,
            Some(Err(_)) => continue,
            Some(Ok(_)) => {}
        }
        match widths.iter_mut().find(|w| w.0 == cells.len()) {
            Some(width) => width.1 += 1,
            None => widths.push((cells.len(), 1)),
        }
    }
    widths
}

/// Cuts text into lines of cells, borrowing where no quote has to be removed.
struct Lines<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    delimiter: u8,
}

impl<'a> Lines<'a> {
    fn new(text: &'a str, delimiter: u8) -> Self {
        Self { text, at: 0, line: 1, delimiter }
    }

    /// Reads the cells of the next line that is not empty and returns its number; `None` at the end.
    fn read(&mut self, cells: &mut Vec<Cow<'a, str>>) -> Option<Result<usize, HierarchyError>> {
        cells.clear();
        while self.end_of_line() {}
        if self.at == self.text.len() {
            return None;
        }
        let line = self.line;
        loop {
            let cell = if self.peek() == Some(b'"') { self.quoted() } else { Ok(self.plain()) };
            match cell {
                Ok(cell) => cells.push(cell),
                Err(error) => return Some(Err(error)),
            }
            if self.peek() == Some(self.delimiter) {
                self.at += 1;
            } else {
                self.end_of_line();
                return Some(Ok(line));
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Steps over one line ending, if there is one here.
    fn end_of_line(&mut self) -> bool {
        self.at += match (self.peek(), self.text.as_bytes().get(self.at + 1)) {
            (Some(b'\r'), Some(b'\n')) => 2,
            (Some(b'\r' | b'\n'), _) => 1,
            _ => return false,
        };
        self.line += 1;
        true
    }

    fn plain(&mut self) -> Cow<'a, str> {
        let rest = &self.text[self.at..];
        let ends = |b: u8| b == self.delimiter || b == b'\n' || b == b'\r';
        let cell = &rest[..rest.bytes().position(ends).unwrap_or(rest.len())];
        self.at += cell.len();
        Cow::Borrowed(cell)
    }

    fn quoted(&mut self) -> Result<Cow<'a, str>, HierarchyError> {
        let line = self.line;
        let mut cell = Cow::Borrowed("");
        self.at += 1;
        loop {
            let rest = &self.text[self.at..];
            let Some(length) = rest.find('"') else {
                self.at = self.text.len();
                return Err(HierarchyError::at(
                    line,
                    "a quote is opened and never closed; write `\"` at the end of the cell",
                ));
            };
            let part = &rest[..length];
            self.line += part.bytes().filter(|&b| b == b'\n').count();
            self.at += length + 1;
            if cell.is_empty() {
                cell = Cow::Borrowed(part);
            } else {
                cell.to_mut().push_str(part);
            }
            match self.peek() {
                Some(b'"') => {
                    cell.to_mut().push('"');
                    self.at += 1;
                }
                None | Some(b'\n' | b'\r') => return Ok(cell),
                Some(next) if next == self.delimiter => return Ok(cell),
                Some(_) => {
                    let line = self.line;
                    while !matches!(self.peek(), None | Some(b'\n' | b'\r')) {
                        self.at += 1;
                    }
                    return Err(HierarchyError::at(
                        line,
                        "text after a closing quote; write a quote inside quotes as `\"\"`",
                    ));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Hierarchy, MAX_ERRORS};
    use super::*;

    fn load(text: &str) -> Hierarchy {
        Hierarchy::parse_csv(text.as_bytes()).unwrap()
    }

    /// All errors as `line: start of the message`.
    fn errors(bytes: &[u8]) -> Vec<String> {
        Hierarchy::parse_csv(bytes).unwrap_err().iter().map(ToString::to_string).collect()
    }

    fn assert_errors(bytes: &[u8], expected: &[&str]) {
        let found = errors(bytes);
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found} does not start with {expected}");
            assert!(!found.ends_with('.'), "{found}");
        }
    }

    #[test]
    fn the_usual_file() {
        let h = load("17;[15,20);[0,20);*\n18;[15,20);[0,20);*\n21;[20,25);[20,40);*\n");
        assert_eq!(h.height(), 3);
        assert_eq!(h.top_label(), "*");
        assert_eq!(h.leaves().unwrap().collect::<Vec<_>>(), ["17", "18", "21"]);
        assert_eq!(h.label("21", 1).as_deref(), Some("[20,25)"));
        assert_eq!(h.label("18", 3).as_deref(), Some("*"));
        assert_eq!(h.label("18", 4), None);
        assert_eq!(h.label("19", 0), None);
        assert_eq!(h.canonical("19"), None);
    }

    #[test]
    fn quotes_byte_order_mark_line_endings_and_empty_lines() {
        let h = load("\u{feff}\"a;b\";\"say \"\"x\"\"\";*\r\n\r\n\"two\nlines\";y\"z;\"*\"\r\n\n\n");
        assert_eq!(h.leaves().unwrap().collect::<Vec<_>>(), ["a;b", "two\nlines"]);
        assert_eq!(h.label("a;b", 1).as_deref(), Some("say \"x\""));
        assert_eq!(h.label("two\nlines", 1).as_deref(), Some("y\"z"));
        let old = load("a;x;*\rb;x;*");
        assert_eq!(old.leaves().unwrap().count(), 2);
    }

    #[test]
    fn delimiters_are_sniffed() {
        for text in ["a;x,y;*\nb;x,y;*\n", "a\tx,y\t*\nb\tx,y\t*\n", "a,\"x,y\",*\nb,\"x,y\",*\n"] {
            assert_eq!(load(text).label("b", 1).as_deref(), Some("x,y"), "{text}");
        }
        // Commas inside labels do not win because one line is short.
        let text = "1;[0,5);[0,10);*\n2;[0,5);[0,10);*\n6;[5,10);*\n";
        assert_errors(text.as_bytes(), &["line 3: 3 cells, other lines have 4"]);
    }

    #[test]
    fn an_empty_first_cell_is_the_empty_value() {
        let h = load(";none;*\na;some;*\n");
        assert_eq!(h.canonical("").as_deref(), Some(""));
        assert_eq!(h.label("", 1).as_deref(), Some("none"));
        assert_errors(b";none;*\n;none;*\n", &["line 2: leaf `` is there already on line 1"]);
    }

    #[test]
    fn all_errors_at_once_with_their_lines() {
        let text = "a;x;p;*\nb;x;q;*\n\nc;y;p\na;x;p;*\nd;z;p;+\n\"e\"e;z;p;*\n\"f;z;p;*\n";
        assert_errors(
            text.as_bytes(),
            &[
                "line 2: `x` at level 1 has two parents: `p` on line 1, `q` here",
                "line 4: 3 cells, other lines have 4",
                "line 5: leaf `a` is there already on line 1",
                "line 6: no single top: `+` here, `*` on line 1",
                "line 7: text after a closing quote",
                "line 8: a quote is opened and never closed",
            ],
        );
    }

    #[test]
    fn nothing_to_read() {
        for text in ["", "\n\r\n", "\u{feff}"] {
            assert_errors(text.as_bytes(), &["the hierarchy is empty"]);
        }
        assert_errors(b"a\nb\n", &["line 1: one cell", "line 2: one cell"]);
        assert_errors(b"\"a;*\n", &["line 1: a quote is opened"]);
        assert_errors(b"a;*\n\xff;*\nb;*\n\xc3;*\n", &["line 2: not UTF-8", "line 4: not UTF-8"]);
        let wide = vec!["x"; MAX_COLUMNS + 1].join(";");
        assert_errors(wide.as_bytes(), &["line 1: 257 cells per line"]);
    }

    #[test]
    fn a_file_without_its_top_lists_a_hundred_errors_and_counts_the_rest() {
        let text: String = (0..500).map(|i| format!("{i};group {i}\n")).collect();
        let found = errors(text.as_bytes());
        assert_eq!(found.len(), MAX_ERRORS + 1);
        assert!(found[0].starts_with("line 2: no single top"));
        assert_eq!(found[MAX_ERRORS], "and 399 more");
    }

    #[test]
    fn labels_are_normalised_like_values() {
        let h = load("Cafe\u{301};x;*\n\u{200b}Bar;x;*\n");
        assert_eq!(h.leaves().unwrap().collect::<Vec<_>>(), ["Café", "Bar"]);
        assert_errors("Cafe\u{301};*\nCafé;*\n".as_bytes(), &["line 2: leaf `Café` is there already on line 1"]);
    }

    #[test]
    fn numbers_match_across_fraction_zeros_but_codes_keep_theirs() {
        let h = load("0;*\n7;*\n37.0;*\n1.50;*\n2.0;*\n2.00;*\n0124;*\n");
        for (text, leaf) in
            [("7", "7"), ("7.0", "7"), ("-0", "0"), ("-0.0", "0"), ("37", "37.0"), ("1.5", "1.50"), ("1.500", "1.50")]
        {
            assert_eq!(h.canonical(text).as_deref(), Some(leaf), "{text}");
        }
        for text in ["007", "+7", "7e0", "124", "0124.0", "2", "", "NaN", " 7"] {
            assert_eq!(h.canonical(text), None, "{text}");
        }
        assert_eq!(h.canonical("2.00").as_deref(), Some("2.00"));
    }

    #[test]
    fn a_million_leaves() {
        let mut text = String::with_capacity(40_000_000);
        for i in 0..1_000_000 {
            use std::fmt::Write as _;
            writeln!(text, "{i};{}x;{}y;{}z;*", i / 10, i / 1000, i / 100_000).unwrap();
        }
        let h = load(&text);
        assert_eq!(h.leaves().unwrap().count(), 1_000_000);
        assert_eq!(h.label("999999", 2).as_deref(), Some("999y"));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(proptest::sample::select(b"ab;,\t\"\n\r*\xc3\xa9\xff".to_vec()), 0..60)) {
            match Hierarchy::parse_csv(&bytes) {
                Ok(h) => proptest::prop_assert!(h.height() >= 1),
                Err(errors) => proptest::prop_assert!(!errors.is_empty()),
            }
        }
    }
}
