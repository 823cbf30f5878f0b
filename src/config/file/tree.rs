//! YAML text -> a tree in which every node knows its line.
//!
//! Invariant: depth is bounded, so every walk over the tree may recurse. Nothing here can print a value: there is no
//! `Debug` on a node. Deliberately absent: aliases, merge keys and tags. They are refused by line, because a reader
//! of a privacy policy should see each value where it counts.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map;
use std::fmt::Display;
use std::path::Path;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError};
use serde_json::{Map, Number, Value as Json};

use super::problem::Problems;

/// Larger: a hostile file overflows the stack of a recursive walk. Smaller: hand-written `tree` hierarchies no longer fit.
const MAX_DEPTH: usize = 64;

/// One value of the file and where it stands.
#[derive(Clone)]
pub(in crate::config) struct YamlNode {
    /// The line, from 1.
    pub(in crate::config) line: usize,
    /// Its content.
    pub(in crate::config) value: YamlValue,
    /// Set if a variable or a file went into it: such a value is never printed, its template is.
    pub(in crate::config) interpolated: Option<Interpolated>,
    /// Keys whose values were unusable and have been left out (`[]` for an item of a list): "there is none" must not be
    /// concluded.
    pub(in crate::config) lost: Vec<String>,
}

/// A scalar before and after interpolation.
#[derive(Clone)]
pub(in crate::config) struct Interpolated {
    /// As written in the file, `${NAME}` and all.
    pub(in crate::config) template: String,
    /// As it counts.
    pub(in crate::config) text: String,
}

/// The content of a node by the YAML 1.2 core schema. Whole floats are integers.
#[derive(Clone)]
pub(in crate::config) enum YamlValue {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<YamlNode>),
    Map(Vec<YamlEntry>),
}

/// One key of a mapping.
#[derive(Clone)]
pub(in crate::config) struct YamlEntry {
    pub(in crate::config) key: String,
    pub(in crate::config) line: usize,
    pub(in crate::config) value: YamlNode,
}

impl YamlNode {
    /// A node straight from the file.
    pub(in crate::config) fn new(line: usize, value: YamlValue) -> Self {
        Self { line, value, interpolated: None, lost: Vec::new() }
    }

    /// True if this node or one below it is so.
    fn any(&self, is_so: &dyn Fn(&Self) -> bool) -> bool {
        is_so(self)
            || match &self.value {
                YamlValue::List(items) => items.iter().any(|item| item.any(is_so)),
                YamlValue::Map(entries) => entries.iter().any(|e| e.value.any(is_so)),
                _ => false,
            }
    }

    /// The tree as JSON, for serde.
    pub(in crate::config) fn to_json(&self) -> Json {
        match &self.value {
            YamlValue::Null => Json::Null,
            YamlValue::Bool(value) => Json::Bool(*value),
            YamlValue::Int(value) => u64::try_from(*value)
                .map(Number::from)
                .or_else(|_| i64::try_from(*value).map(Number::from))
                .map_or(Json::Null, Json::Number),
            YamlValue::Float(value) => Number::from_f64(*value).map_or(Json::Null, Json::Number),
            YamlValue::Text(text) => Json::String(text.clone()),
            YamlValue::List(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            YamlValue::Map(entries) => {
                Json::Object(entries.iter().map(|e| (e.key.clone(), e.value.to_json())).collect::<Map<_, _>>())
            }
        }
    }
}

/// A place in the tree, and where to report its problems. Walks down by key and index; where a step leads nowhere, it stays
/// at the nearest line above.
#[derive(Clone, Copy)]
pub(in crate::config) struct At<'a> {
    node: Option<&'a YamlNode>,
    problems: &'a Problems,
    /// The line that messages name.
    pub(in crate::config) line: usize,
}

impl<'a> At<'a> {
    /// The top of the file.
    pub(in crate::config) fn root(node: &'a YamlNode, problems: &'a Problems) -> Self {
        Self { node: Some(node), problems, line: 1 }
    }

    /// The value under `key`. The line of a nested value is its key's line, the line of a scalar is its own.
    pub(in crate::config) fn key(self, key: &str) -> Self {
        let entry = match self.node {
            Some(YamlNode { value: YamlValue::Map(entries), .. }) => entries.iter().find(|e| e.key == key),
            _ => None,
        };
        let line = entry.map_or(self.line, YamlEntry::value_line);
        Self { node: entry.map(|entry| &entry.value), line, ..self }
    }

    /// The item at `index`.
    pub(in crate::config) fn index(self, index: usize) -> Self {
        let item = match self.node {
            Some(YamlNode { value: YamlValue::List(items), .. }) => items.get(index),
            _ => None,
        };
        Self { node: item, line: item.map_or(self.line, |item| item.line), ..self }
    }

    /// Reports a problem on this line.
    pub(in crate::config) fn refuse(self, message: impl Into<String>) {
        self.problems.add(self.line, message);
    }

    /// Reports on this line a setting that is valid but rarely intended.
    pub(in crate::config) fn warn(self, message: impl Into<String>) {
        self.problems.warn(self.line, message);
    }

    /// Refuses `key`, which has no meaning without `setting`.
    pub(in crate::config) fn only_with(self, key: &str, setting: &str) {
        self.key(key).refuse(format!("`{key}` means something only with `{setting}`: add that, or remove it"));
    }

    /// Reports a problem in a file that is named here.
    pub(in crate::config) fn refuse_elsewhere(self, file: &Path, line: Option<usize>, message: String) {
        self.problems.add_elsewhere(file, line, message);
    }

    /// The number of problems in the whole file so far.
    pub(in crate::config) fn problems(self) -> usize {
        self.problems.len()
    }

    /// True if the file has something here.
    pub(in crate::config) fn is_present(self) -> bool {
        self.node.is_some_and(|n| !matches!(n.value, YamlValue::Null))
    }

    /// True if the list or mapping under `key`, or a part of it, was unusable. That has been reported already.
    pub(in crate::config) fn lost(self, key: &str) -> bool {
        self.node.is_some_and(|n| n.lost.iter().any(|l| l == key))
            || self.key(key).node.is_some_and(|n| !n.lost.is_empty())
    }

    /// The value as a message may show it: its template, if it came from outside.
    pub(in crate::config) fn show(self, value: impl Display) -> String {
        match self.node.and_then(|n| n.interpolated.as_ref()) {
            Some(outside) => format!("`{}`", shown(&outside.template)),
            None => format!("`{}`", shown(&value.to_string())),
        }
    }

    /// True if anything here or below was unusable. That has been reported already.
    pub(in crate::config) fn lost_any(self) -> bool {
        self.node.is_some_and(|n| n.any(&|n| !n.lost.is_empty()))
    }

    /// True if any value here or below came from outside.
    pub(in crate::config) fn is_from_outside(self) -> bool {
        self.node.is_some_and(|n| n.any(&|n| n.interpolated.is_some()))
    }

    /// The values here as JSON; null if there are none.
    pub(in crate::config) fn to_json(self) -> Json {
        self.node.map_or(Json::Null, YamlNode::to_json)
    }
}

impl YamlEntry {
    /// Where to point a reader for the value.
    pub(in crate::config) fn value_line(&self) -> usize {
        match self.value.value {
            YamlValue::List(_) | YamlValue::Map(_) | YamlValue::Null => self.line,
            _ => self.value.line,
        }
    }
}

/// The meaning of a plain scalar.
pub(in crate::config) fn resolve(text: &str) -> YamlValue {
    // Above 2^53 a float no longer names one integer.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return YamlValue::Null,
        "true" | "True" | "TRUE" => return YamlValue::Bool(true),
        "false" | "False" | "FALSE" => return YamlValue::Bool(false),
        ".inf" | ".Inf" | ".INF" | "+.inf" => return YamlValue::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return YamlValue::Float(f64::NEG_INFINITY),
        ".nan" | ".NaN" | ".NAN" => return YamlValue::Float(f64::NAN),
        _ => {}
    }
    let in_range = |i: &i128| (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(i);
    if let Some(integer) = text.parse().ok().filter(in_range) {
        return YamlValue::Int(integer);
    }
    // Digits somewhere, or Rust would read words such as `infinity` as numbers.
    let numeric = text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E'));
    match text.parse::<f64>() {
        Ok(float) if numeric && float.fract() == 0.0 && float.abs() < EXACT => YamlValue::Int(float as i128),
        Ok(float) if numeric => YamlValue::Float(float),
        _ => YamlValue::Text(text.to_owned()),
    }
}

/// Reads one YAML document. `None` if it is not YAML or holds nothing; problems say why.
pub(in crate::config) fn parse(text: &str, problems: &Problems) -> Option<YamlNode> {
    let mut builder = Builder { stack: Vec::new(), root: None };
    let mut documents = 0;
    for event in Parser::new_from_str(text) {
        let (event, span) = match event {
            Ok(event) => event,
            Err(error) => {
                problems.add(error.marker().line().max(1), syntax_message(text, &error));
                return None;
            }
        };
        let line = span.start.line().max(1);
        if let Event::DocumentStart(_) = event {
            documents += 1;
            if documents > 1 {
                problems.add(line, "a second document starts here: keep one configuration per file");
                break;
            }
        }
        if let Err(message) = builder.on(event, line, problems) {
            problems.add(line, message);
            return None;
        }
    }
    if builder.root.is_none() {
        problems.add(1, "the file is empty: write at least a `policy` section");
    }
    builder.root
}

enum Frame {
    List { line: usize, items: Vec<YamlNode> },
    Map { line: usize, entries: Vec<YamlEntry>, seen: HashMap<String, usize>, key: Option<(String, usize)> },
}

struct Builder {
    stack: Vec<Frame>,
    root: Option<YamlNode>,
}

impl Builder {
    /// Takes one event; an error ends the reading of the file.
    fn on(&mut self, event: Event<'_>, line: usize, problems: &Problems) -> Result<(), String> {
        match event {
            Event::Scalar(text, style, _, tag) => {
                if tag.is_some() {
                    problems.add(line, "tags are not supported: remove it, and write text in quotes");
                }
                self.scalar(text, style, line, problems);
            }
            Event::SequenceStart(..) | Event::MappingStart(..) => {
                if self.stack.len() >= MAX_DEPTH {
                    return Err(format!("nested deeper than {MAX_DEPTH} levels: no configuration needs that"));
                }
                if let Some(Frame::Map { key: None, .. }) = self.stack.last() {
                    return Err("a list or a mapping cannot be a key: write a name, and put ${...} in quotes".into());
                }
                self.stack.push(if matches!(event, Event::SequenceStart(..)) {
                    Frame::List { line, items: Vec::new() }
                } else {
                    Frame::Map { line, entries: Vec::new(), seen: HashMap::new(), key: None }
                });
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let node = match self.stack.pop() {
                    Some(Frame::List { line, items }) => YamlNode::new(line, YamlValue::List(items)),
                    Some(Frame::Map { line, entries, .. }) => YamlNode::new(line, YamlValue::Map(entries)),
                    None => return Ok(()),
                };
                self.place(node, problems);
            }
            Event::Alias(_) => {
                return Err("aliases (*name) are not supported: write the value out here".into());
            }
            _ => {}
        }
        Ok(())
    }

    fn scalar(&mut self, text: Cow<'_, str>, style: ScalarStyle, line: usize, problems: &Problems) {
        if let Some(Frame::Map { key: slot @ None, .. }) = self.stack.last_mut() {
            if text == "<<" {
                problems.add(line, "merge keys (<<) are not supported: write the keys out here");
            }
            *slot = Some((text.into_owned(), line));
            return;
        }
        let value = match style {
            ScalarStyle::Plain => resolve(&text),
            _ => YamlValue::Text(text.into_owned()),
        };
        self.place(YamlNode::new(line, value), problems);
    }

    fn place(&mut self, node: YamlNode, problems: &Problems) {
        match self.stack.last_mut() {
            None => self.root = Some(node),
            Some(Frame::List { items, .. }) => items.push(node),
            Some(Frame::Map { entries, seen, key, .. }) => {
                let Some((key, line)) = key.take() else { return };
                match seen.entry(key.clone()) {
                    _ if key == "<<" => {}
                    hash_map::Entry::Occupied(first) => problems.add(
                        line,
                        format!("`{}` is written twice, first on line {}: keep one", shown(&key), first.get()),
                    ),
                    hash_map::Entry::Vacant(slot) => {
                        slot.insert(line);
                        entries.push(YamlEntry { key, line, value: node });
                    }
                }
            }
        }
    }
}

/// Text of the file as it may appear in a message: one line, not too long.
pub(in crate::config) fn shown(text: &str) -> String {
    // Longer: a garbage file floods the terminal. Shorter: names are cut off.
    const MAX_SHOWN: usize = 48;
    let mut short: String = text.chars().take(MAX_SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().nth(MAX_SHOWN).is_some() {
        short.push('…');
    }
    short
}

/// The scanner's message, with the remedy for the usual causes.
fn syntax_message(text: &str, error: &ScanError) -> String {
    let at = error.marker().line().max(1);
    let line = text.lines().nth(at - 1).unwrap_or_default();
    let indent = &line[..line.len() - line.trim_start().len()];
    let remedy = if indent.contains('\t') || error.info().contains("tab") {
        "indent with spaces, not with tabs"
    } else if line.contains("${") {
        "inside { } and [ ] write \"${...}\" in quotes"
    } else {
        "check the indentation, the quotes and the brackets on this line and above"
    };
    format!("not valid YAML ({}): {remedy}", error.info())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Option<YamlNode>, Vec<String>) {
        let problems = Problems::new(Path::new("c"));
        let node = parse(text, &problems);
        (node, problems.into_lines())
    }

    #[test]
    fn scalars_follow_the_core_schema() {
        let (node, problems) =
            read("[1, 1e9, 2.0, 0.5, 'x', \"5\", yes, true, ~, 200ms, 18446744073709551615, 007, nan]");
        assert!(problems.is_empty());
        let expected =
            serde_json::json!([1, 1_000_000_000, 2, 0.5, "x", "5", "yes", true, null, "200ms", u64::MAX, 7, "nan"]);
        assert_eq!(node.unwrap().to_json(), expected);
    }

    #[test]
    fn lines_are_exact() {
        let (node, _) = read("# comment\n\na: 1\nb:\n  - x: 2\n    y:\n      3\n  -\n    x: 4\nc:\n");
        let node = node.unwrap();
        let problems = Problems::new(Path::new("c"));
        let root = At::root(&node, &problems);
        assert_eq!(root.key("a").line, 3);
        assert_eq!(root.key("b").line, 4);
        assert_eq!(root.key("b").index(0).line, 5);
        assert_eq!(root.key("b").index(0).key("y").line, 7);
        assert_eq!(root.key("b").index(1).key("x").line, 9);
        assert_eq!(root.key("b").index(1).key("nowhere").line, 9);
        assert_eq!(root.key("c").line, 10);
    }

    #[test]
    fn every_duplicate_key_is_told() {
        let (node, problems) = read("a: 1\nb: { c: 1, c: 2 }\na: 3\n");
        assert_eq!(
            problems,
            [
                "c:2: `c` is written twice, first on line 2: keep one",
                "c:3: `a` is written twice, first on line 1: keep one"
            ]
        );
        assert_eq!(node.unwrap().to_json(), serde_json::json!({ "a": 1, "b": { "c": 1 } }));
    }

    #[test]
    fn what_is_not_supported_is_refused_by_line() {
        for (text, expected) in [
            ("a: &x 1\nb: *x\n", "c:2: aliases"),
            ("a: 1\n<<: { b: 1 }\n", "c:2: merge keys"),
            ("a: 1\nb: !!str 5\n", "c:2: tags"),
            ("a: 1\n---\nb: 1\n", "c:2: a second document"),
            ("a:\n\tb: 1\n", "c:2: not valid YAML"),
            ("a: [1, 2\nb: 3\n", "c:2: not valid YAML"),
            ("a: 1\n? [x, y]\n: 1\n", "c:2: a list or a mapping cannot be a key"),
            ("", "c:1: the file is empty"),
            ("# only a comment\n", "c:1: the file is empty"),
        ] {
            let (_, problems) = read(text);
            assert!(problems.len() == 1 && problems[0].starts_with(expected), "{text:?}: {problems:?}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        for open in ["[", "{a: ", "- ", "? "] {
            let (node, problems) = read(&open.repeat(100_000));
            assert!(node.is_none() && problems.len() == 1, "{open}: {problems:?}");
        }
    }
}
