//! The configuration reference as a page, made from the JSON Schema: every mapping once, every key with its type, its words and an
//! example.
//!
//! A mapping is named by the path at which it is first reached from the top, and so is its anchor: `#policy.suppression`. Mappings
//! that are used in several places are described once and linked from the others. Examples are flow-style lines that can be pasted;
//! a key without one of its own has an example by its type.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;

use serde_json::Value;

/// Examples of keys, by the mapping and the key as the schema names them.
const EXAMPLES: &[(&str, &str)] = &[
    (
        "RawConfig.policy",
        "policy: { quasi_identifiers: [{ name: zip, hierarchy: { prefix: { length: 5 } } }], privacy: [{ k-anonymity: 5 }] }",
    ),
    ("RawConfig.search", "search: { algorithm: auto, time_budget: 200ms }"),
    ("RawConfig.window", "window: { tumbling: { max_records: 50000, max_age: 30s } }"),
    ("RawConfig.source", "source: { file: { path: people.csv } }"),
    ("RawConfig.sink", "sink: { file: { path: out.csv } }"),
    ("RawConfig.http", "http: { listen: 127.0.0.1:9464 }"),
    ("RawConfig.limits", "limits: { memory: 512MiB }"),
    ("RawPolicy.quasi_identifiers", "quasi_identifiers: [{ name: zip, hierarchy: { prefix: { length: 5 } } }]"),
    ("RawPolicy.sensitive", "sensitive: [{ name: occupation }]"),
    ("RawPolicy.keep", "keep: [score, { name: note, reviewed: true }]"),
    ("RawPolicy.identifiers", "identifiers: [email]"),
    ("RawPolicy.subject", "subject: user_id"),
    ("RawPolicy.label", "label: salary_class"),
    (
        "RawPolicy.privacy",
        "privacy: [{ k-anonymity: 5 }, { l-diversity: { field: occupation, l: 3, variant: distinct } }]",
    ),
    ("RawPolicy.sequential", "sequential: { releases: 4, candidates: 3 }"),
    ("RawPolicy.suppression", "suppression: { limit: 5%, action: drop }"),
    ("RawQuasi.name", "name: zip"),
    ("RawQuasi.from", "from: [home.lat, home.lon]"),
    ("RawQuasi.hierarchy", "hierarchy: { prefix: { length: 5 } }"),
    ("RawQuasi.weight", "weight: 2"),
    ("RawQuasi.min_level", "min_level: 1"),
    ("RawQuasi.max_level", "max_level: 3"),
    ("RawHierarchy.csv", "csv: hierarchies/country.csv"),
    ("RawHierarchy.intervals", "intervals: { widths: [5, 10, 20], min: 0, max: 120 }"),
    ("RawHierarchy.prefix", "prefix: { length: 5 }"),
    ("RawHierarchy.date", "date: [day, month, year, decade]"),
    ("RawHierarchy.tree", "tree: { label: any, children: [{ label: EU, children: [AT, DE] }, { label: US }] }"),
    ("RawHierarchy.any_of", "any_of: [{ date: [day, week] }, { date: [day, month, year] }]"),
    ("RawIntervals.widths", "widths: [5, 10, 20]"),
    ("RawIntervals.min", "min: 0"),
    ("RawIntervals.max", "max: 120"),
    ("RawIntervals.origin", "origin: 0"),
    ("PrefixSpec.length", "length: 5"),
    ("PrefixSpec.alphabet", "alphabet: 36"),
    ("PrefixSpec.mask", "mask: \"*\""),
    ("RawDateSpec.units", "units: [day, month, year]"),
    ("RawDateSpec.min", "min: 1900-01-01"),
    ("RawDateSpec.max", "max: 2030-12-31"),
    ("RawDateSpec.format", "format: \"%d.%m.%Y\""),
    ("TreeNode.label", "label: EU"),
    ("TreeNode.children", "children: [AT, DE]"),
    ("RawSensitive.name", "name: occupation"),
    ("RawSensitive.hierarchy", "hierarchy: { csv: hierarchies/occupation.csv }"),
    ("RawKeptField.name", "name: score"),
    ("RawCriterion.k-anonymity", "k-anonymity: 5"),
    ("RawCriterion.l-diversity", "l-diversity: { field: occupation, l: 3, variant: distinct }"),
    ("RawCriterion.t-closeness", "t-closeness: { field: occupation, t: 0.2 }"),
    ("RawCriterion.p-sensitive", "p-sensitive: { field: occupation, p: 3 }"),
    ("RawCriterion.alpha-k", "alpha-k: { field: occupation, alpha: 0.5, k: 5 }"),
    ("RawCriterion.lkc", "lkc: { l: 2, k: 5, c: 0.5 }"),
    ("RawCriterion.confidential", "confidential: { sentences: [{ name: ill, field: illness, in: [hiv, aids] }] }"),
    ("RawCriterion.min-security", "min-security: 0.5"),
    ("RawLDiversity.l", "l: 3"),
    ("RawLDiversity.c", "c: 2"),
    ("RawTCloseness.t", "t: 0.2"),
    ("RawTCloseness.order", "order: [low, middle, high]"),
    ("RawPSensitive.p", "p: 3"),
    ("RawAlphaK.alpha", "alpha: 0.5"),
    ("RawLkc.l", "l: 2"),
    ("RawLkc.c", "c: 0.5"),
    ("RawLkc.fields", "fields: [occupation]"),
    ("RawConfidential.sentences", "sentences: [{ name: ill, field: illness, in: [hiv, aids] }]"),
    ("RawSentence.name", "name: ill"),
    ("RawSentence.damage", "damage: 2"),
    ("RawSequential.releases", "releases: 4"),
    ("RawSequential.candidates", "candidates: 3"),
    ("RawSequential.max_subjects", "max_subjects: 1000000"),
    ("RawSearch.keep_within", "keep_within: 2%"),
    ("RawSearch.objectives", "objectives: [k, glm]"),
    ("RawSearch.prefer", "prefer: { bounds: { k: 10, glm: 0.4 } }"),
    ("RawPrefer.bounds", "bounds: { k: 10, glm: 0.4 }"),
    ("RawWindow.tumbling", "tumbling: { max_records: 50000, max_age: 30s }"),
    ("RawWindow.sliding", "sliding: { size: 10000, slide: 1000 }"),
    ("RawWindow.fixed_levels", "fixed_levels: { age: 2, zip: 3 }"),
    ("RawTumbling.max_records", "max_records: 50000"),
    ("RawTumbling.event_time", "event_time: { field: seen_at }"),
    ("RawEventTime.field", "field: seen_at"),
    ("RawSliding.size", "size: 10m"),
    ("RawSliding.slide", "slide: 1m"),
    ("RawSource.file", "file: { path: people.csv }"),
    ("RawSource.stdio", "stdio: { format: jsonl }"),
    ("RawSource.generator", "generator: { records: 10000 }"),
    ("RawSource.kafka", "kafka: { brokers: localhost:9092, topic: people, group: veilstream }"),
    ("RawSink.file", "file: { path: out.csv, manifest: manifests.jsonl }"),
    ("RawSink.stdio", "stdio: { format: jsonl }"),
    ("RawSink.kafka", "kafka: { topic: people-anonymous, transactional_id: veilstream-1 }"),
    ("RawFileSource.path", "path: people.csv"),
    ("RawFileSource.delimiter", "delimiter: \";\""),
    ("RawFileSink.path", "path: out.csv"),
    ("RawFileSink.manifest", "manifest: manifests.jsonl"),
    ("RawFileSink.journal", "journal: journal.jsonl"),
    (
        "RawKafkaSource.topics",
        "topics: [people, \"visitors-*\", { name: kunden, fields: { age: alter, zip: adresse.plz } }]",
    ),
    ("RawKafkaSource.explode", "explode: items"),
    ("RawPlacedTopic.name", "name: kunden"),
    ("RawPlacedTopic.fields", "fields: { age: alter, zip: adresse.plz }"),
    ("RawPlacedTopic.explode", "explode: posten"),
    ("RawFileSource.fields", "fields: { age: alter }"),
    ("RawFileSource.explode", "explode: items"),
    ("RawKafkaSource.topic", "topic: people"),
    ("RawKafkaSource.group", "group: veilstream"),
    ("RawKafkaSource.schema", "schema: person.avsc"),
    ("RawKafkaSource.descriptor", "descriptor: person.desc"),
    ("RawKafkaSource.message", "message: shop.Person"),
    ("RawKafkaSink.topic", "topic: people-anonymous"),
    ("RawKafkaSink.manifests", "manifests: people-anonymous-manifests"),
    ("RawKafkaSink.dead_letters", "dead_letters: people-anonymous-dead-letters"),
    ("RawKafkaSink.journal", "journal: people-anonymous-journal"),
    ("RawKafkaSink.transactional_id", "transactional_id: ${HOSTNAME}"),
    ("RawRegistry.url", "url: https://registry:8081"),
    ("RawTls.ca", "ca: /etc/ssl/certs/ca.pem"),
    ("RawTls.certificate", "certificate: client.pem"),
    ("RawTls.key", "key: client.key"),
    ("RawHttp.listen", "listen: 127.0.0.1:9464"),
];
/// Examples of keys that mean the same in every mapping.
const ANYWHERE: &[(&str, &str)] = &[
    ("field", "field: occupation"),
    ("brokers", "brokers: localhost:9092"),
    ("registry", "registry: { url: https://registry:8081 }"),
    ("tls", "tls: { ca: /etc/ssl/certs/ca.pem }"),
    ("sasl", "sasl: { mechanism: scram-sha-512, username: veilstream, password: \"${file:/run/secrets/kafka}\" }"),
    ("username", "username: veilstream"),
    ("password", "password: \"${file:/run/secrets/password}\""),
    ("key_password", "key_password: \"${KEY_PASSWORD}\""),
    ("token", "token: \"${file:/run/secrets/token}\""),
    ("properties", "properties: { client.rack: eu-1 }"),
    ("equals", "equals: hiv"),
    ("in", "in: [hiv, aids]"),
    ("not", "not: { field: illness, equals: none }"),
    ("all", "all: [{ field: illness, equals: hiv }, { field: sex, equals: f }]"),
    ("any", "any: [{ field: illness, equals: hiv }, { field: illness, equals: aids }]"),
    ("when", "when: { field: sex, equals: f }"),
    ("k", "k: 5"),
];

/// The page.
pub(super) fn page(schema: &Value) -> String {
    let mut reference = Reference { schema, text: String::new(), waiting: VecDeque::new(), places: BTreeMap::new() };
    reference.text.push_str(
        "# Configuration reference\n\nMade by `veilstream schema --markdown` from the schema that also checks every configuration; do not \
         edit. [README.md](README.md) explains the keys that work together.\n",
    );
    reference.mapping("", "RawConfig", schema);
    while let Some((path, name)) = reference.waiting.pop_front() {
        reference.mapping(&path, &name, &schema["$defs"][&name]);
    }
    reference.text
}

/// A key of a mapping.
struct Key<'s, 'w> {
    key: &'s str,
    value: &'s Value,
    words: &'w str,
    required: bool,
}

struct Reference<'s> {
    schema: &'s Value,
    text: String,
    /// Paths and names of mappings that are linked and not written yet.
    waiting: VecDeque<(String, String)>,
    /// Where each mapping is described.
    places: BTreeMap<String, String>,
}

impl<'s> Reference<'s> {
    /// Writes a mapping with all its keys, or a choice of mappings with one key each.
    fn mapping(&mut self, path: &str, name: &str, node: &'s Value) {
        let (title, id) = if path.is_empty() { ("The file", "file") } else { (path, path) };
        let words = described(node);
        let _ = write!(self.text, "\n<a id=\"{id}\"></a>\n## {title}\n\n{words}\n");
        let alternatives = ["oneOf", "anyOf"].iter().filter_map(|key| node[key].as_array()).flatten();
        let alternatives: Vec<&Value> = alternatives.collect();
        if !alternatives.is_empty() {
            self.text.push_str("\nOne of:\n");
        }
        for node in [node].into_iter().chain(alternatives) {
            if let Some(value) = node["const"].as_str() {
                let _ = write!(self.text, "\n- `{value}`: {}\n", described(node));
            }
            let required: Vec<&str> =
                node["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            for (key, value) in node["properties"].as_object().into_iter().flatten() {
                // The words of a variant stand beside its only key.
                let words = if described(value).is_empty() { described(node) } else { described(value) };
                // Every variant needs its only key.
                let required = node["properties"].as_object().is_some_and(|keys| keys.len() > 1)
                    && required.contains(&key.as_str());
                self.key(path, name, Key { key, value, words: &words, required });
            }
        }
    }

    fn key(&mut self, path: &str, mapping: &str, Key { key, value, words, required }: Key<'s, '_>) {
        let anchor = if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        let kind = self.kind(&anchor, value);
        let required = if required { ", required" } else { "" };
        // A mapping that is described at this very path has the anchor.
        let linked = self.places.values().any(|place| *place == anchor);
        let id = if linked { String::new() } else { format!("<a id=\"{anchor}\"></a>") };
        let example = self.example(mapping, key, value);
        let _ = write!(self.text, "\n- {id}`{key}` ({kind}{required}): {words}\n  Example: `{example}`\n");
    }

    /// What a value may be, in words.
    fn kind(&mut self, path: &str, value: &'s Value) -> String {
        if let Some(name) = value["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
            return self.linked(path, name);
        }
        if let Some(any) = value["anyOf"].as_array().or_else(|| value["oneOf"].as_array()) {
            let kinds: Vec<String> =
                any.iter().filter(|one| one["type"] != "null").map(|one| self.kind(path, one)).collect();
            return kinds.join(" or ");
        }
        if let Some(value) = value["const"].as_str() {
            return format!("`{value}`");
        }
        match value["x-kind"].as_str() {
            Some("duration") => return "duration".into(),
            Some("share") => return "share".into(),
            Some("bytes" | "size") => return "size".into(),
            _ => {}
        }
        let types = value["type"].as_array().cloned().unwrap_or_else(|| vec![value["type"].clone()]);
        let one = |kind: &Value| match kind.as_str() {
            Some("array") => {
                let of = self.kind(path, &value["items"]);
                Some(if of.is_empty() { "list".into() } else { format!("list of {of}") })
            }
            Some("object") => Some("mapping".into()),
            Some("string") => Some("text".into()),
            Some("integer") => Some("whole number".into()),
            Some("boolean") => Some("true or false".into()),
            Some("null") | None => None,
            Some(other) => Some(other.to_owned()),
        };
        types.iter().filter_map(one).collect::<Vec<String>>().join(" or ")
    }

    /// A definition: its values where it is a choice of words, otherwise a link to its own part of the page.
    fn linked(&mut self, path: &str, name: &str) -> String {
        let node = &self.schema["$defs"][name];
        let all: Vec<&Value> = node["oneOf"].as_array().into_iter().flatten().collect();
        if !all.is_empty() && all.iter().all(|one| one["const"].is_string()) {
            return all
                .iter()
                .filter_map(|one| Some(format!("`{}`", one["const"].as_str()?)))
                .collect::<Vec<_>>()
                .join(", ");
        }
        let has_keys = |node: &Value| node["properties"].is_object();
        if !has_keys(node) && !all.iter().any(|one| has_keys(one)) {
            return self.kind(path, node);
        }
        let place = self.places.entry(name.to_owned()).or_insert_with(|| {
            self.waiting.push_back((path.to_owned(), name.to_owned()));
            path.to_owned()
        });
        format!("[{place}](#{place})")
    }

    fn example(&self, mapping: &str, key: &str, value: &Value) -> String {
        let own = EXAMPLES.iter().find(|(name, _)| *name == format!("{mapping}.{key}"));
        if let Some((_, example)) = own.or_else(|| ANYWHERE.iter().find(|(name, _)| *name == key)) {
            return (*example).to_owned();
        }
        format!("{key}: {}", self.value(value))
    }

    /// A value of this type.
    fn value(&self, value: &Value) -> String {
        if let Some(name) = value["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
            return self.value(&self.schema["$defs"][name]);
        }
        if let Some(first) = value["oneOf"].as_array().or_else(|| value["anyOf"].as_array()).and_then(|any| any.first())
        {
            return self.value(first);
        }
        if let Some(text) = value["const"].as_str() {
            return text.to_owned();
        }
        if !value["default"].is_null() {
            return value["default"].as_str().map_or_else(|| value["default"].to_string(), str::to_owned);
        }
        match (value["x-kind"].as_str(), value["type"].as_str().or_else(|| value["type"][0].as_str())) {
            (Some("duration"), _) => "30s".into(),
            (Some("share"), _) => "5%".into(),
            (Some("bytes" | "size"), _) => "64MiB".into(),
            (_, Some("boolean")) => "true".into(),
            (_, Some("integer")) => "10".into(),
            (_, Some("number")) => "0.5".into(),
            (_, Some("array")) => format!("[{}]", self.value(&value["items"])),
            (_, Some("object")) => "{}".into(),
            _ => "text".into(),
        }
    }
}

/// The anchor of the innermost key that a line of a configuration belongs to, as far as the page has one.
pub(super) fn anchor(schema: &Value, configuration: &str, line: usize) -> Option<String> {
    let page = page(schema);
    let mut path: Vec<(usize, &str)> = Vec::new();
    for text in configuration.lines().take(line) {
        let inner = text.trim_start_matches([' ', '-']);
        let indent = text.len() - inner.len();
        let Some((key, _)) =
            inner.split_once(':').filter(|(key, _)| key.chars().all(|c| c.is_alphanumeric() || "_-".contains(c)))
        else {
            continue;
        };
        path.retain(|(outer, _)| *outer < indent);
        path.push((indent, key));
    }
    let keys: Vec<&str> = path.iter().map(|(_, key)| *key).collect();
    let anchors = (1..=keys.len()).rev().map(|many| keys[..many].join("."));
    anchors.into_iter().find(|anchor| page.contains(&format!("<a id=\"{anchor}\"></a>")))
}

fn described(node: &Value) -> String {
    node["description"].as_str().unwrap_or_default().replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::json_schema;

    #[test]
    fn the_reference_is_made_from_the_schema_of_today() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/CONFIGURATION.md");
        let stands = std::fs::read_to_string(path).unwrap();
        let made = page(&json_schema());
        let stale = "schemas/CONFIGURATION.md is stale: veilstream schema --markdown > schemas/CONFIGURATION.md";
        assert!(stands.trim_end() == made.trim_end(), "{stale}");
    }

    #[test]
    fn every_link_has_its_anchor_once() {
        let page = page(&json_schema());
        let after = |mark: &str, end: char| -> Vec<String> {
            page.split(mark).skip(1).filter_map(|rest| Some(rest.split_once(end)?.0.to_owned())).collect()
        };
        let anchors = after("<a id=\"", '"');
        for link in after("](#", ')') {
            assert_eq!(anchors.iter().filter(|anchor| **anchor == link).count(), 1, "{link}");
        }
        let mut once = anchors.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), anchors.len(), "an anchor stands twice");
    }

    #[test]
    fn a_line_belongs_to_the_innermost_key_above_it() {
        let configuration = "policy:\n  privacy:\n    - { k-anonymity: 5 }\n  suppression:\n    limit: 7\nwindow: { tumbling: {} }\nx: 1\n";
        let of = |line| anchor(&json_schema(), configuration, line);
        assert_eq!(of(3).as_deref(), Some("policy.privacy"));
        assert_eq!(of(5).as_deref(), Some("policy.suppression.limit"));
        assert_eq!(of(6).as_deref(), Some("window"));
        assert_eq!(of(7), None);
    }

    #[test]
    fn every_example_is_of_a_key_that_exists() {
        let schema = json_schema();
        for (name, example) in EXAMPLES {
            let (mapping, key) = name.split_once('.').unwrap();
            let node = if mapping == "RawConfig" { &schema } else { &schema["$defs"][mapping] };
            let variants = ["oneOf", "anyOf"].iter().filter_map(|any| node[any].as_array()).flatten();
            let known = [node].into_iter().chain(variants).any(|node| node["properties"][key].is_object());
            assert!(known, "{name}");
            assert!(example.starts_with(&format!("{key}: ")), "{example}");
        }
    }
}
