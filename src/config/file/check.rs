//! The structural check: walks the tree along the JSON Schema of the raw configuration and tells every mistake by line.
//!
//! The result is the tree without its unusable parts, so that the other sections can still be checked for sense.
//! Invariant: what comes back deserializes. Deliberately absent: keywords that our schema does not use.

use serde_json::Value as Json;

use super::interpolate::NOT_INTERPOLATED;
use super::problem::{Problems, nearest};
use super::scalar;
use super::tree::{Interpolated, YamlEntry, YamlNode, YamlValue, shown};

/// Sections deeper than this are left out whole if a required key is missing; above it every key has a default.
const SECTION_DEPTH: usize = 1;

/// The keyword of deeper mappings that can be read without their required keys too.
const SECTION: &str = "x-section";

/// Checks `node` against `schema`. `None` if nothing of it can be used.
pub(in crate::config) fn check(node: &YamlNode, schema: &Json, problems: &Problems) -> Option<YamlNode> {
    Checker { root: schema, problems }.node(schema, node, &Place { path: String::new(), line: node.line, depth: 0 })
}

/// Where the walk is.
struct Place {
    path: String,
    line: usize,
    depth: usize,
}

impl Place {
    fn key(&self, entry: &YamlEntry) -> Self {
        let path =
            if self.path.is_empty() { entry.key.clone() } else { format!("{}.{}", self.path, shown(&entry.key)) };
        Self { path, line: entry.value_line(), depth: self.depth + 1 }
    }

    fn index(&self, index: usize, item: &YamlNode) -> Self {
        Self { path: format!("{}[{index}]", self.path), line: item.line, depth: self.depth + 1 }
    }

    fn name(&self) -> String {
        if self.path.is_empty() { "the configuration".into() } else { format!("`{}`", self.path) }
    }
}

struct Checker<'a> {
    root: &'a Json,
    problems: &'a Problems,
}

impl<'a> Checker<'a> {
    fn node(&mut self, schema: &'a Json, node: &YamlNode, place: &Place) -> Option<YamlNode> {
        if node.lost.iter().any(|l| l == NOT_INTERPOLATED) {
            // That has been told.
            return None;
        }
        let schema = self.resolve(schema);
        let alternatives = self.alternatives(schema);
        if !alternatives.is_empty() {
            return self.choose(&alternatives, node, place);
        }
        if let Some(kind) = schema.get(scalar::KIND).and_then(Json::as_str) {
            return self.notation(kind, schema, node, place);
        }
        if !accepts(schema, node) {
            self.mismatch(&[schema], node, place);
            return None;
        }
        match &node.value {
            YamlValue::Map(entries) => self.mapping(schema, node, entries, place),
            YamlValue::List(items) => self.list(schema, node, items, place),
            YamlValue::Int(number) => self.bounds(schema, *number as f64, node, place),
            YamlValue::Float(number) => self.bounds(schema, *number, node, place),
            _ => Some(node.clone()),
        }
        .map(|checked| as_text(schema, checked))
    }

    /// Follows `$ref`.
    fn resolve(&self, mut schema: &'a Json) -> &'a Json {
        while let Some(target) = schema.get("$ref").and_then(Json::as_str) {
            match self.root.pointer(target.trim_start_matches('#')) {
                Some(next) => schema = next,
                None => break,
            }
        }
        schema
    }

    /// The branches of `oneOf` and `anyOf`, flattened; empty if there are none.
    fn alternatives(&self, schema: &'a Json) -> Vec<&'a Json> {
        let branches = schema.get("oneOf").or_else(|| schema.get("anyOf")).and_then(Json::as_array);
        branches
            .into_iter()
            .flatten()
            .flat_map(|branch| {
                let branch = self.resolve(branch);
                let nested = self.alternatives(branch);
                if nested.is_empty() { vec![branch] } else { nested }
            })
            .collect()
    }

    /// Takes the branch that the value itself points at: by its tag, by its word, or by its type.
    fn choose(&mut self, alternatives: &[&'a Json], node: &YamlNode, place: &Place) -> Option<YamlNode> {
        if let YamlValue::Map(entries) = &node.value {
            let tags: Vec<(&'a str, &'a Json)> = alternatives.iter().filter_map(|s| tag(s)).collect();
            if !tags.is_empty() {
                return self.tagged(&tags, node, entries, place);
            }
        }
        if let YamlValue::Text(text) = &node.value
            && alternatives.iter().any(|s| words(s).any(|w| w == text))
        {
            return Some(node.clone());
        }
        let fits = |s: &&&Json| words(s).next().is_none() && tag(s).is_none() && accepts(s, node);
        match alternatives.iter().find(fits) {
            Some(schema) => self.node(schema, node, place),
            None => {
                self.mismatch(alternatives, node, place);
                None
            }
        }
    }

    /// A mapping with one key, which says what it is.
    fn tagged(
        &mut self,
        tags: &[(&'a str, &'a Json)],
        node: &YamlNode,
        entries: &[YamlEntry],
        place: &Place,
    ) -> Option<YamlNode> {
        let names = || tags.iter().map(|(name, _)| *name);
        let mut chosen: Option<YamlNode> = None;
        let mut first: Option<&str> = None;
        for entry in entries {
            let Some((name, schema)) = tags.iter().find(|(name, _)| *name == entry.key) else {
                self.unknown(entry, names(), place);
                continue;
            };
            if let Some(first) = first {
                let both = format!("{} has both `{first}` and `{name}`: keep one", place.name());
                self.problems.add(entry.line, both);
                continue;
            }
            first = Some(name);
            chosen = self.node(schema, &entry.value, &place.key(entry)).map(|value| {
                let only = YamlEntry { key: entry.key.clone(), line: entry.line, value };
                YamlNode { value: YamlValue::Map(vec![only]), ..node.clone() }
            });
        }
        if entries.is_empty() {
            self.problems.add(place.line, format!("{} is empty: write one of {}", place.name(), listed(names())));
        }
        chosen
    }

    fn mapping(&mut self, schema: &'a Json, node: &YamlNode, entries: &[YamlEntry], place: &Place) -> Option<YamlNode> {
        let known = schema.get("properties").and_then(Json::as_object);
        let others = schema.get("additionalProperties").filter(|s| s.is_object());
        let mut kept = Vec::with_capacity(entries.len());
        let mut lost = Vec::new();
        for entry in entries {
            let Some(property) = known.and_then(|k| k.get(&entry.key)).or(others) else {
                let known = known.into_iter().flat_map(|k| k.keys().map(String::as_str));
                lost.extend(self.unknown(entry, known, place).map(str::to_owned));
                continue;
            };
            match self.node(property, &entry.value, &place.key(entry)) {
                Some(value) => kept.push(YamlEntry { key: entry.key.clone(), line: entry.line, value }),
                None => lost.push(entry.key.clone()),
            }
        }
        let required = schema.get("required").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
        let mut complete = true;
        for name in required.filter(|name| !kept.iter().any(|e| e.key == *name)) {
            complete = false;
            if !lost.iter().any(|l| l == name) {
                self.problems.add(place.line, format!("{} lacks `{name}`: add it", place.name()));
            }
        }
        let defaults = schema.get(SECTION).is_some();
        (complete || defaults || place.depth <= SECTION_DEPTH).then(|| YamlNode {
            value: YamlValue::Map(kept),
            lost,
            ..node.clone()
        })
    }

    fn list(&mut self, schema: &'a Json, node: &YamlNode, items: &[YamlNode], place: &Place) -> Option<YamlNode> {
        let least = schema.get("minItems").and_then(Json::as_u64).unwrap_or(0);
        if (items.len() as u64) < least {
            self.problems.add(place.line, format!("{} needs at least {least} item", place.name()));
            return None;
        }
        let kept: Vec<YamlNode> = match schema.get("items") {
            Some(each) => {
                items.iter().enumerate().filter_map(|(i, item)| self.node(each, item, &place.index(i, item))).collect()
            }
            None => items.to_vec(),
        };
        let lost = if kept.len() < items.len() { vec!["[]".to_owned()] } else { Vec::new() };
        Some(YamlNode { value: YamlValue::List(kept), lost, ..node.clone() })
    }

    fn bounds(&mut self, schema: &Json, number: f64, node: &YamlNode, place: &Place) -> Option<YamlNode> {
        let bound = |key: &str| schema.get(key).and_then(Json::as_f64);
        // The generator writes the bounds of small integers, and of these only the format.
        let format = schema.get("format").and_then(Json::as_str);
        let widest = (format == Some("uint32")).then_some(f64::from(u32::MAX));
        let broken = if let Some(least) = bound("minimum").filter(|b| number < *b) {
            format!("write {least} or more")
        } else if let Some(most) = bound("maximum").or(widest).filter(|b| number > *b) {
            format!("write {most} or less")
        } else if let Some(above) = bound("exclusiveMinimum").filter(|b| number <= *b) {
            format!("write more than {above}")
        } else {
            return Some(node.clone());
        };
        self.problems.add(place.line, format!("{} is {}, out of range: {broken}", place.name(), found(schema, node)));
        None
    }

    /// A scalar in a notation of its own.
    fn notation(&mut self, kind: &str, schema: &'a Json, node: &YamlNode, place: &Place) -> Option<YamlNode> {
        let as_written = scalar::check(kind, &node.to_json());
        let Err(message) = as_written else { return Some(node.clone()) };
        // A number from a variable may well be text here, and the other way round.
        if let Some(Interpolated { text, .. }) = &node.interpolated
            && scalar::check(kind, &Json::String(text.clone())).is_ok()
        {
            return Some(YamlNode { value: YamlValue::Text(text.clone()), ..node.clone() });
        }
        self.problems.add(place.line, format!("{}: {message}, found {}", place.name(), found(schema, node)));
        None
    }

    fn mismatch(&mut self, alternatives: &[&Json], node: &YamlNode, place: &Place) {
        if matches!(node.value, YamlValue::Null) {
            let message = format!("{} is empty: write {}, or remove the key", place.name(), expected(alternatives));
            self.problems.add(place.line, message);
            return;
        }
        let secret = alternatives.iter().copied().find(|s| is_secret(s)).unwrap_or(&Json::Null);
        let mut message =
            format!("{}: expected {}, found {}", place.name(), expected(alternatives), found(secret, node));
        if let (YamlValue::Text(text), None) = (&node.value, &node.interpolated)
            && let Some(word) = nearest(text, alternatives.iter().flat_map(|s| words(s)))
        {
            message.push_str(&format!(": did you mean `{word}`?"));
        } else if is_number(node)
            && alternatives.iter().any(|s| types(s).any(|t| t == "string") && words(s).next().is_none())
        {
            message.push_str(": write it in quotes");
        }
        self.problems.add(place.line, message);
    }

    /// Tells of an unknown key; returns the key that was probably meant.
    fn unknown<'k>(
        &mut self,
        entry: &YamlEntry,
        known: impl Iterator<Item = &'k str>,
        place: &Place,
    ) -> Option<&'k str> {
        let known: Vec<&str> = known.collect();
        let near = nearest(&entry.key, known.iter().copied());
        let remedy = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("write one of {}", listed(known.into_iter())),
        };
        let within = if place.path.is_empty() { String::new() } else { format!(" in `{}`", place.path) };
        self.problems.add(entry.line, format!("unknown key `{}`{within}: {remedy}", shown(&entry.key)));
        near
    }
}

/// The key and the schema below it, if `schema` is a mapping with exactly one key: a variant with content.
fn tag(schema: &Json) -> Option<(&str, &Json)> {
    let required = schema.get("required")?.as_array()?;
    let properties = schema.get("properties")?.as_object()?;
    match (required.as_slice(), properties.len()) {
        ([name], 1) => properties.get_key_value(name.as_str()?).map(|(name, schema)| (name.as_str(), schema)),
        _ => None,
    }
}

/// The words of a variant without content.
fn words(schema: &Json) -> impl Iterator<Item = &str> {
    let listed = schema.get("enum").and_then(Json::as_array).into_iter().flatten();
    schema.get("const").into_iter().chain(listed).filter_map(Json::as_str)
}

/// The JSON types that `schema` allows.
fn types(schema: &Json) -> impl Iterator<Item = &str> {
    let (one, many) = match schema.get("type") {
        Some(Json::Array(many)) => (None, many.as_slice()),
        one => (one, &[][..]),
    };
    one.into_iter().chain(many).filter_map(Json::as_str)
}

/// True if the value has one of the types, and one of the words, that `schema` allows.
fn accepts(schema: &Json, node: &YamlNode) -> bool {
    if words(schema).next().is_some() {
        return matches!(&node.value, YamlValue::Text(text) if words(schema).any(|w| w == text));
    }
    let one_character = schema.get("maxLength").and_then(Json::as_u64) == Some(1);
    let length_fits = |text: &str| !one_character || text.chars().count() == 1;
    let fits = |name: &str| match (&node.value, name) {
        (YamlValue::Null, "null")
        | (YamlValue::Bool(_), "boolean")
        | (YamlValue::List(_), "array")
        | (YamlValue::Map(_), "object") => true,
        (YamlValue::Int(_), "integer" | "number") => true,
        (YamlValue::Float(number), "number") => number.is_finite(),
        (YamlValue::Text(text), "string") => length_fits(text),
        (_, "string") => node.interpolated.as_ref().is_some_and(|i| length_fits(&i.text)),
        _ => false,
    };
    // A kind may stand beside its types, and a schema without types allows all.
    schema.get(scalar::KIND).is_some() || schema.get("type").is_none() || types(schema).any(fits)
}

/// A value from outside is text where text is asked for, even if it looks like a number.
fn as_text(schema: &Json, node: YamlNode) -> YamlNode {
    match &node.interpolated {
        Some(Interpolated { text, .. })
            if is_secret(schema) || types(schema).eq(["string"]) || types(schema).eq(["string", "null"]) =>
        {
            YamlNode { value: YamlValue::Text(text.clone()), ..node }
        }
        _ => node,
    }
}

fn is_secret(schema: &Json) -> bool {
    schema.get("writeOnly").and_then(Json::as_bool) == Some(true)
}

fn is_number(node: &YamlNode) -> bool {
    matches!(node.value, YamlValue::Int(_) | YamlValue::Float(_))
}

/// The expected value: completes "expected ...".
fn expected(alternatives: &[&Json]) -> String {
    let words: Vec<&str> = alternatives.iter().flat_map(|s| words(s)).collect();
    let tags = alternatives.iter().filter_map(|s| tag(s)).map(|(name, _)| format!("`{{ {name}: ... }}`"));
    let mut parts: Vec<String> = tags.collect();
    parts.extend(words.iter().map(|w| format!("`{w}`")));
    for schema in alternatives.iter().filter(|s| self::words(s).next().is_none() && tag(s).is_none()) {
        parts.extend(types(schema).filter(|t| *t != "null").map(|name| {
            match name {
                "string" if schema.get("maxLength").is_some() => "one character",
                "string" => "text",
                "integer" => "a whole number",
                "number" => "a number",
                "boolean" => "true or false",
                "array" => "a list",
                _ => "a mapping",
            }
            .to_owned()
        }));
    }
    match parts.as_slice() {
        [] => "nothing".into(),
        [one] => one.clone(),
        _ => format!("one of {}", parts.join(", ")),
    }
}

/// The value that stands there instead; never a secret, and never text from outside.
fn found(schema: &Json, node: &YamlNode) -> String {
    if let Some(outside) = &node.interpolated {
        return format!("another value in `{}`", shown(&outside.template));
    }
    if is_secret(schema) {
        return "another value".into();
    }
    match &node.value {
        YamlValue::Null => "nothing".into(),
        YamlValue::Bool(value) => format!("`{value}`"),
        YamlValue::Int(value) => format!("`{value}`"),
        YamlValue::Float(value) => format!("`{value}`"),
        YamlValue::Text(text) => format!("`{}`", shown(text)),
        YamlValue::List(_) => "a list".into(),
        YamlValue::Map(_) => "a mapping".into(),
    }
}

fn listed<'k>(names: impl Iterator<Item = &'k str>) -> String {
    names.map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")
}
