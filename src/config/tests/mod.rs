//! Whole files through the loader: valid files load, and every problem is reported on its line.

use secrecy::ExposeSecret as _;
use tempfile::TempDir;

use super::*;
use crate::model::lattice::Node;
use crate::model::policy::{Criterion, Diversity, Fallback, K, SuppressionAction};
use crate::search::Algorithm;
use crate::search::choose::Levels;
use crate::window::{CloseRules, EventTime, SlideRules};

mod criteria;
mod file;
mod kafka;
mod placement;
mod route;
mod search;
mod window;

const COUNTRY: &str = "DE;Europe;*\nFR;Europe;*\nUS;America;*\n";
const SECRET: &str = "tr0ub4dor";

/// A directory with a hierarchy, a secret and the configuration.
fn dir(yaml: &[u8]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("hierarchies")).unwrap();
    std::fs::write(dir.path().join("hierarchies/country.csv"), COUNTRY).unwrap();
    std::fs::write(dir.path().join("hierarchies/bad.csv"), "DE;Europe;*\nFR;Europe\nDE;Europe;*\n").unwrap();
    std::fs::write(dir.path().join("secret"), format!("{SECRET}\n")).unwrap();
    std::fs::write(dir.path().join("c.yaml"), yaml).unwrap();
    dir
}

fn variable(name: &str) -> Option<String> {
    match name {
        "SECRET" => Some(SECRET.into()),
        "FIVE" => Some("5".into()),
        "BUDGET" => Some("1s".into()),
        "EMPTY" => Some(String::new()),
        _ => None,
    }
}

fn load_bytes(yaml: &[u8], purpose: Purpose) -> Result<Config, Vec<String>> {
    let dir = dir(yaml);
    Config::load_with(&dir.path().join("c.yaml"), purpose, &variable).map_err(|problems| {
        let prefix = format!("{}/", dir.path().display());
        problems.iter().map(|p| p.to_string().replace(&prefix, "")).collect()
    })
}

fn load(yaml: &str) -> Result<Config, Vec<String>> {
    load_bytes(yaml.as_bytes(), Purpose::Pipeline)
}

fn problems(yaml: &str) -> Vec<String> {
    load(yaml).map(|c| c.policy.fingerprint).unwrap_err()
}

/// A small policy that is fine, with `more` below it: six lines.
fn policy(more: &str) -> String {
    format!(
        "policy:\n  quasi_identifiers:\n    - {{ name: age, hierarchy: {{ prefix: {{ length: 2 }} }} }}\n    - {{ name: country, \
         hierarchy: {{ csv: hierarchies/country.csv }} }}\n  sensitive: [{{ name: job }}]\n  privacy: [{{ k-anonymity: 5 \
         }}]\n{more}"
    )
}

/// The file has exactly one problem, on `line`, and it says `words`.
#[track_caller]
fn one(yaml: &str, line: usize, words: &str) {
    let problems = problems(yaml);
    assert!(
        problems.len() == 1 && problems[0].starts_with(&format!("c.yaml:{line}: ")) && problems[0].contains(words),
        "expected one problem on line {line} with {words:?}: {problems:#?}"
    );
}

const DESIGN: &str = "\
policy:
  quasi_identifiers:
    - { name: age, hierarchy: { intervals: { widths: [5, 10, 20], min: 0, max: 120 } } }
    - { name: zip, hierarchy: { prefix: { length: 5 } } }
    - { name: country, hierarchy: { csv: hierarchies/country.csv }, weight: 2, max_level: 3, priority: 10 }
    - { name: born, hierarchy: { date: [day, month, year, decade] } }
  sensitive: [{ name: occupation }]
  keep: [score]                 # passed through unchanged; everything not named anywhere is dropped
  subject: user_id              # k counts distinct subjects; never published
  label: salary_class           # class label for cm and ILPG, optional
  privacy:
    - { k-anonymity: 5 }
    - { l-diversity: { field: occupation, l: 3, variant: distinct } }
  suppression: { limit: 0.05, action: drop }      # drop | hold
  loss: glm
  unknown_value: reject         # a value outside its hierarchy: reject | suppress | top
  render: label                 # label | interval | microaggregate
search: { algorithm: auto, time_budget: 200ms }
window: { tumbling: { max_records: 50000, max_age: 30s } }
http: { listen: 127.0.0.1:9464 }
";

#[test]
fn the_documented_example_loads() {
    // As in the design document, but for source and sink, which are Kafka there.
    let dir = dir(DESIGN.as_bytes());
    let deep = COUNTRY.replace(";*", ";World;*");
    std::fs::write(dir.path().join("hierarchies/country.csv"), deep).unwrap();
    let config = Config::load_with(&dir.path().join("c.yaml"), Purpose::Pipeline, &variable).unwrap();
    let policy = &config.policy;
    assert_eq!(policy.quasi.iter().map(|q| &*q.name).collect::<Vec<_>>(), ["age", "zip", "country", "born"]);
    assert_eq!((policy.quasi[2].weight, policy.quasi[2].max_level, policy.quasi[2].priority), (2.0, 3, 10));
    assert_eq!(policy.criteria[0], Criterion::KAnonymity(K(5)));
    assert_eq!(policy.criteria[1], Criterion::LDiversity { field: 0, l: 3.0, variant: Diversity::Distinct });
    assert_eq!(policy.suppression.of(100), 5);
    assert_eq!(policy.action, SuppressionAction::Drop);
    assert_eq!(policy.unknown_value, Fallback::Reject);
    assert_eq!(policy.schema.attributes().len(), 8);
    assert_eq!(config.choice.time_budget, Duration::from_millis(200));
    let event_time = None;
    let rules = CloseRules { max_records: 50_000, max_age: Duration::from_secs(30), event_time };
    assert_eq!(config.windows, WindowRules::Tumbling(rules));
    assert!(matches!(config.source, SourceConfig::Stdio { format: None }));
    assert_eq!(config.http.unwrap().listen.to_string(), "127.0.0.1:9464");
}

#[test]
fn the_demo_loads() {
    let config =
        Config::parse(include_str!("../../source/demo.yaml"), Path::new("demo.yaml"), Purpose::Pipeline).unwrap();
    assert!(matches!(config.source, SourceConfig::Generator { records: Some(50_000), subjects: 20_000, .. }));
}

#[test]
fn commands_that_make_one_release_have_no_deadline() {
    let budget = |yaml: &str, purpose| load_bytes(yaml.as_bytes(), purpose).unwrap().choice.time_budget;
    assert_eq!(budget(&policy(""), Purpose::Policy), Duration::MAX);
    assert_eq!(budget(&policy(""), Purpose::Pipeline), Duration::from_millis(200));
    assert_eq!(budget(&policy("search: { time_budget: 1s }\n"), Purpose::Policy), Duration::from_secs(1));
}

#[test]
fn a_policy_alone_is_enough() {
    for purpose in [Purpose::Policy, Purpose::Pipeline] {
        let config = load_bytes(policy("").as_bytes(), purpose).unwrap();
        assert!(matches!(config.windows, WindowRules::Tumbling(CloseRules { max_records: 50_000, .. })));
        assert_eq!(config.choice.levels, Levels::Sticky);
        assert_eq!(config.limits.max_record_bytes, 1 << 20);
        assert!(config.http.is_none());
    }
}

#[test]
fn every_key_is_understood() {
    let yaml = "\
policy:
  quasi_identifiers:
    - name: a
      hierarchy: { intervals: { widths: [0.5, 1], min: -1, max: 1.5, origin: 0, open: both } }
      min_level: 1
    - { name: b, hierarchy: { date: { units: [day, year], min: 1950-01-01, max: 2020-12-31, format: '%d/%m/%Y' } } }
    - { name: c, hierarchy: { tree: { label: any, children: [{ label: x }, { label: y }] } } }
    - { name: d, hierarchy: { tree: [{ label: x }, { label: y }] } }
    - { name: e, hierarchy: trivial, weight: 0.5 }
    - { name: f, hierarchy: { prefix: { length: 3, alphabet: 36, mask: '#' } } }
  sensitive: [{ name: s }, { name: t }]
  identifiers: [ssn]
  subject: who
  label: s
  privacy:
    - l-diversity: { field: t, l: 2.5, variant: entropy }
    - l-diversity: { field: s, l: 2, variant: recursive, c: 3 }
  suppression: { limit: 5%, action: hold, max_hold: 1h }
  loss: aecs
  unknown_value: top
  missing_value: suppress
  null_value: top
search: { algorithm: bottom-up, time_budget: 1s, seed: 18446744073709551615, keep_within: 2%, max_checks: 1000 }
window:
  tumbling: { max_records: 10, size: 1h, event_time: { field: at }, allowed_lateness: 5m }
  levels: fixed
  fixed_levels: { a: 1, b: 0, c: 0, d: 0, e: 1, f: 2 }
source: { generator: { records: 1000, rate: 0.5, seed: 7, subjects: 3 } }
sink: { file: { path: out/released.csv, manifest: out/manifest.jsonl } }
http: { listen: '0.0.0.0:9464', token: '${file:secret}' }
limits: { max_record_bytes: 64KiB, memory: 256MiB }
";
    let config = load(yaml).unwrap();
    assert_eq!(config.policy.action, SuppressionAction::Hold { max_hold: Duration::from_secs(3600) });
    assert_eq!(config.policy.quasi[0].min_level, 1);
    assert_eq!(config.policy.schema.event_time, config.policy.schema.slot("at"));
    assert_eq!(config.policy.schema.slot("ssn"), None);
    assert_eq!(config.seed, Some(u64::MAX));
    assert_eq!(config.choice.levels, Levels::Fixed(Some(Node::new([1, 0, 0, 0, 1, 2]))));
    let event_time = EventTime { size: Duration::from_secs(3600), allowed_lateness: Duration::from_secs(300) };
    let rules = CloseRules { max_records: 10, max_age: stream::NEVER, event_time: Some(event_time) };
    assert_eq!(config.windows, WindowRules::Tumbling(rules));
    assert_eq!(config.limits, LimitsConfig { max_record_bytes: 65_536, memory: Some(256 << 20) });
    assert!(matches!(config.sink, SinkConfig::File { format: Format::Csv, .. }));
    assert_eq!(config.http.unwrap().token.unwrap().expose_secret(), SECRET);
}

#[test]
fn ten_mistakes_are_ten_messages() {
    let yaml = "\
policy:
  quasi_identifiers:
    - name: age
      hierarchy: { intervals: { widths: [5, 12], min: 0, max: 120 } }
    - { name: zip, hierarchy: { prefix: { length: 5 } }, weight: -1 }
    - name: country
      hierarchy: { csv: hierarchies/country.csv }
      max_level: 9
    - { name: city, hierarchy: { csv: hierarchies/nowhere.csv } }
    - { name: country, hierarchy: trivial }
    - { name: job, hierarchy: trivial }
  sensitive: [{ name: job }]
  privacy: [{ k-anonymity: 0 }]
  suppression: { limit: 1.5 }
serach: { algorithm: auto }
window:
  tumbling:
    max_age: 30s
    max_records: 0
";
    let expected = [
        "c.yaml:4: width 12 after 5; write a larger multiple of 5, such as 10, or widths that do not nest as alternatives: \
         `any_of: [intervals: .., intervals: ..]`",
        "c.yaml:5: `policy.quasi_identifiers[1].weight` is `-1`, out of range: write 0.000001 or more",
        "c.yaml:8: `max_level` `9` of `country` is above its hierarchy: write 2 or less",
        "c.yaml:9: cannot read the hierarchy `hierarchies/nowhere.csv` (no such file): check the path, which is relative to \
         this file",
        "c.yaml:10: `country` is listed twice as a quasi-identifier, first on line 6: keep one",
        "c.yaml:12: `job` is a sensitive field here and a quasi-identifier on line 11: a generalized field cannot also be \
         published as it is; keep one of the two",
        "c.yaml:13: `policy.privacy[0].k-anonymity` is `0`, out of range: write 1 or more",
        "c.yaml:14: `policy.suppression.limit`: expected a share between 0 and 1 such as 0.05, or a percentage such as 5%, found \
         `1.5`",
        "c.yaml:15: unknown key `serach`: did you mean `search`?",
        "c.yaml:19: `window.tumbling.max_records` is `0`, out of range: write 1 or more",
    ];
    assert_eq!(problems(yaml), expected);
}

#[test]
fn structure_is_checked() {
    one(&policy("serch: {}\n"), 7, "did you mean `search`?");
    one(&policy("wibble: 1\n"), 7, "write one of `policy`, `search`");
    one(&policy("search: { algorithm: optmal }\n"), 7, "did you mean `optimal`?");
    one(&policy("search: fast\n"), 7, "`search`: expected a mapping, found `fast`");
    one(&policy("search: { time_budget: 200 }\n"), 7, "such as 200ms");
    one(&policy("search: { seed: -1 }\n"), 7, "write 0 or more");
    one(&policy("search: { seed: 1.5 }\n"), 7, "a whole number");
    one(&policy("search:\n  keep_within:\n    - 1\n"), 8, "a share");
    one(&policy("search:\n"), 7, "`search` is empty");
    one(&policy("source: { fil: { path: a.csv } }\n"), 7, "did you mean `file`?");
    one(&policy("source: { file: { path: a.csv }, stdio: {} }\n"), 7, "has both `file` and `stdio`");
    one(&policy("source: {}\n"), 7, "write one of `file`, `stdio`, `generator`");
    one(&policy("source: { file: { format: csv } }\n"), 7, "`source.file` lacks `path`");
    one(&policy("source: { file: { path: 5 } }\n"), 7, "write it in quotes");
    one(&policy("source: { file: { path: a.csv, delimiter: '||' } }\n"), 7, "one character");
    one(&policy("http: { listen: 9464 }\n"), 7, "127.0.0.1:9464");
    one(&policy("limits: { memory: lots }\n"), 7, "1MiB");
    one(&policy("limits: { memory: 63MiB }\n"), 7, "write 64MiB or more");
    one(&policy("  keep: score\n"), 7, "`policy.keep`: expected a list");
    one(&policy("  loss: gml\n"), 7, "did you mean `glm`?");
    one("policy:\n  quasi_identifiers: [{ name: a, hierarchy: trivial }]\n", 1, "lacks `privacy`");
    one("search: {}\n", 1, "lacks `policy`");
    one("- 1\n", 1, "expected a mapping, found a list");
    one("just words\n", 1, "expected a mapping");
    one(
        "policy:\n  quasi_identifiers: [{ name: a, hierarchy: trival }]\n  privacy: [{ k-anonymity: 2 }]\n",
        2,
        "did you mean `trivial`?",
    );
    one(
        "policy:\n  quasi_identifiers: [{ name: a, hierarchy: { interval: 1 } }]\n  privacy: [{ k-anonymity: 2 }]\n",
        2,
        "did you mean `intervals`?",
    );
    one(
        "policy:\n  quasi_identifiers: [{ name: a, hierarchy: { date: [day, yaer] } }]\n  privacy: [{ k-anonymity: 2 }]\n",
        2,
        "did you mean `year`?",
    );
}

#[test]
fn k_and_l_make_sense() {
    let privacy = |text: &str| policy("").replace("[{ k-anonymity: 5 }]", text);
    for k in ["0", "-1", "1e9", "1.5", "five", "99999999999999999999"] {
        one(&privacy(&format!("[{{ k-anonymity: {k} }}]")), 6, "k-anonymity");
    }
    one(&privacy("[{ k-anonymity: 50001 }]"), 6, "can never be reached: a window closes at `50000`");
    assert!(load_bytes(privacy("[{ k-anonymity: 50001 }]").as_bytes(), Purpose::Policy).is_ok());
    one(&privacy("[]"), 6, "`privacy` is empty");
    one(&privacy("[{ l-diversity: { field: jop, l: 2 } }]"), 6, "did you mean `job`?");
    one(&privacy("[{ l-diversity: { field: job, l: 1 } }]"), 6, "more than 1");
    one(&privacy("[{ l-diversity: { field: job, l: 2.5 } }]"), 6, "not whole");
    one(&privacy("[{ l-diversity: { field: job, l: 2, variant: recursive } }]"), 6, "needs the factor `c`");
    one(&privacy("[{ l-diversity: { field: job, l: 2, variant: recursive, c: 0 } }]"), 6, "more than 0");
    one(&privacy("[{ l-diversity: { field: job, l: 2, c: 2 } }]"), 6, "only with `variant: recursive`");
    one(&privacy("[{ m-anonymity: 2 }]"), 6, "did you mean `k-anonymity`?");
}

#[test]
fn roles_do_not_contradict() {
    one(&policy("  subject: age\n"), 7, "the subject is never published");
    one(&policy("  subject: job\n"), 7, "the subject is never published");
    one(&policy("  keep: [id]\n  subject: id\n"), 8, "the subject is never published");
    one(&policy("  keep: [age]\n"), 7, "undo its generalization");
    one(&policy("  keep: [x, { name: x, reviewed: true }]\n"), 7, "listed twice as a kept field");
    one(&policy("  keep: [{ name: x, review: true }]\n"), 7, "did you mean `reviewed`?");
    one(&policy("  keep: [job]\n"), 7, "remove it from `keep`");
    one(&policy("  keep: [x, x]\n"), 7, "listed twice");
    one(&policy("  identifiers: [age]\n"), 7, "never published");
    one(&policy("  identifiers: [id]\n  subject: id\n"), 8, "never read");
    one(&policy("  keep: ['']\n"), 7, "empty name");
    one(
        &policy("  identifiers: [at]\nwindow: { tumbling: { size: 1h, event_time: { field: at } } }\n"),
        8,
        "never read",
    );
    assert!(load(&policy("  label: job\n  subject: id\n")).is_ok());
    assert!(load(&policy("  label: age\nwindow: { tumbling: { size: 1h, event_time: { field: age } } }\n")).is_ok());
    one("policy:\n  quasi_identifiers: []\n  privacy: [{ k-anonymity: 2 }]\n", 2, "`quasi_identifiers` is empty");
}

#[test]
fn levels_stay_within_the_hierarchy() {
    let with = |text: &str| policy("").replace("country.csv }", &format!("country.csv }}, {text}"));
    one(&with("max_level: 3"), 4, "write 2 or less");
    one(&with("min_level: 3"), 4, "write 2 or less");
    one(&with("min_level: 2, max_level: 1"), 4, "`min_level` `2` of `country` is above `max_level` `1`");
    one(&with("max_level: 300"), 4, "write 255 or less");
    one(&with("priority: 0"), 4, "write 1 or more");
    one(&with("priority: 1e12"), 4, "write 4294967295 or less");
    one(&with("weight: .nan"), 4, "a number");
    one(&with("weight: 1e308"), 4, "write 1000000 or less");
    assert!(load(&with("min_level: 1, max_level: 2")).is_ok());
    one(
        &policy("window:\n  levels: fixed\n  fixed_levels: { age: 3, country: 1 }\n"),
        9,
        "out of bounds: write 0 to 2",
    );
    one(&policy("window:\n  levels: fixed\n  fixed_levels: { age: 1 }\n"), 9, "lacks `country`");
    one(
        &policy("window:\n  levels: fixed\n  fixed_levels:\n    age: 1\n    country: 1\n    cuontry: 1\n"),
        12,
        "did you mean `country`?",
    );
    one(&policy("window:\n  fixed_levels: { age: 1, country: 1 }\n"), 8, "only with `levels: fixed`");
    assert_eq!(load(&policy("window: { levels: fixed }\n")).unwrap().choice.levels, Levels::Fixed(None));
}

#[test]
fn windows_and_waits_are_not_empty() {
    one(&policy("window: { tumbling: { max_age: 0s } }\n"), 7, "`max_age` is zero");
    one(&policy("window: { tumbling: { size: 0s } }\n"), 7, "`size` is zero");
    one(&policy("window: { tumbling: { max_records: 0 } }\n"), 7, "write 1 or more");
    one(&policy("window: { tumbling: { event_time: timestamp } }\n"), 7, "add `size`");
    one(&policy("window: { tumbling: { allowed_lateness: 5s } }\n"), 7, "add `size`");
    one(&policy("search: { time_budget: 0ms }\n"), 7, "`time_budget` is zero");
    one(&policy("  suppression: { action: hold, max_hold: 0s }\n"), 7, "`max_hold` is zero");
    one(&policy("  suppression: { max_hold: 5s }\n"), 7, "only with `action: hold`");
    one(&policy("limits: { max_record_bytes: 0 }\n"), 7, "is zero");
    let held = load(&policy("  suppression: { action: hold }\n")).unwrap().policy.action;
    assert_eq!(held, SuppressionAction::Hold { max_hold: Duration::from_secs(300) });
}

#[test]
fn values_as_they_come() {
    let yaml = |hierarchy: &str| {
        format!(
            "policy:\n  quasi_identifiers:\n    - {{ name: a, hierarchy: {{ {hierarchy} }} }}\n  privacy: [{{ k-anonymity: 5 }}]\n"
        )
    };
    for good in [
        "ip: {}",
        "ip: { v4: [16], v6: [48] }",
        "geohash: {}",
        "geohash: { lengths: [6, 4] }",
        "prefix: { length: 8, min_length: 4, alphabet: 36 }",
        "date: { units: [day, year], formats: [iso, '%d.%m.%Y', epoch-millis] }",
        "date: { units: [day], format: epoch-days }",
        "intervals: { widths: [5], min: 0, max: 10, decimal: comma }",
    ] {
        assert!(load(&yaml(good)).is_ok(), "{good}: {:?}", problems(&yaml(good)));
    }
    let pair = |more: &str| yaml(more).replace("name: a,", "name: a, from: [b.lat, b.lon],");
    assert!(load(&pair("geohash: {}")).is_ok());
    assert_ne!(
        load(&pair("geohash: {}")).unwrap().policy.fingerprint,
        load(&yaml("geohash: {}")).unwrap().policy.fingerprint
    );
    one(&pair("prefix: { length: 5 }"), 3, "write `hierarchy: { geohash: {} }`");
    let published = pair("geohash: {}").replace("  privacy", "  keep: [b.lon]\n  privacy");
    one(&published, 4, "a coordinate is published as a cell and in no other way");
    one(&published.replace("b.lon]\n", "b]\n"), 4, "name the parts or the whole");
    one(&pair("geohash: {}").replace("b.lat", "b.lon"), 3, "listed twice as a coordinate");
    one(&yaml("ip: { v4: [8, 16, 24] }"), 3, "from long to short");
    one(&yaml("geohash: { lengths: [4, 5] }"), 3, "from long to short");
    one(&yaml("prefix: { length: 4, min_length: 5 }"), 3, "min_length 5");
    one(&yaml("date: { units: [day], formats: [] }"), 3, "`formats` is empty");
    one(&yaml("date: { units: [day], format: iso, formats: [iso] }"), 3, "`formats` alone");
    one(&yaml("date: { units: [day], formats: [iso, '%H'] }"), 3, "epoch-seconds");
}

#[test]
fn files_in_and_out_differ() {
    let files = |source: &str, sink: &str| {
        policy(&format!("source: {{ file: {{ path: {source} }} }}\nsink: {{ file: {{ path: {sink} }} }}\n"))
    };
    one(&files("a.csv", "./x/../a.csv"), 8, "the file that the source reads");
    one(
        &files("hierarchies/country.csv", "hierarchies/../hierarchies/country.csv"),
        8,
        "the file that the source reads",
    );
    one(&files("a.csv", "b.csv, manifest: b.csv"), 8, "the file of the records");
    one(&files("a.csv", "b.csv, manifest: a.csv"), 8, "the file that the source reads");
    one(&files("a.csv", "b.dat"), 8, "tells no format");
    one(&files("a.jsonl, delimiter: ';'", "b.csv"), 7, "only for CSV");
    one(&files("a.parquet, encoding: latin-1", "b.csv"), 7, "only for text");
    one(&files("a.csv", "b.parquet"), 8, "cannot be appended");
    one(&files("a.csv", "b.avro.gz"), 8, "end the path in .avro");
    one(&policy("source: { stdio: { format: parquet } }\n"), 7, "read from its end on");
    let config = load(&files("a.dat", "b.csv.gz")).unwrap();
    assert!(matches!(config.source, SourceConfig::File { format: None, .. }), "recognised by its first bytes");
    assert!(matches!(config.sink, SinkConfig::File { format: Format::Csv, .. }));
    assert!(load(&files("a.dat, format: csv, delimiter: ';'", "b.avro")).is_ok());
}

#[test]
fn an_open_port_needs_a_token() {
    one(&policy("http: { listen: '0.0.0.0:9464' }\n"), 7, "add `token");
    one(&policy("http: { listen: '[::]:9464' }\n"), 7, "add `token");
    one(&policy("http:\n  listen: '0.0.0.0:9464'\n  token: ${EMPTY}\n"), 9, "`token` is empty");
    one(&policy("http:\n  listen: '0.0.0.0:9464'\n  token: ${NOT_SET}\n"), 9, "`NOT_SET` is not set");
    one(&policy("http:\n  token: 'a b'\n"), 8, "spaces");
    assert!(load(&policy("http: { listen: '[::1]:9464' }\n")).is_ok());
    // A token of digits stays text.
    let config = load(&policy("http: { listen: '0.0.0.0:9464', token: '${FIVE}' }\n")).unwrap();
    assert_eq!(config.http.unwrap().token.unwrap().expose_secret(), "5");
}

#[test]
fn every_key_of_the_schema_is_described() {
    fn walk(value: &serde_json::Value, path: &str, root: &serde_json::Value) {
        if let Some(properties) = value.get("properties").and_then(|p| p.as_object()) {
            for (name, property) in properties {
                // The variants of an enum are described beside their only key.
                let described = [property, value].iter().any(|v| v.get("description").is_some());
                assert!(described, "{path}/{name}");
            }
        }
        if let Some(target) = value.get("$ref").and_then(|r| r.as_str()) {
            assert!(root.pointer(target.trim_start_matches('#')).is_some(), "{path}: {target}");
        }
        match value {
            serde_json::Value::Object(map) => map.iter().for_each(|(k, v)| match (k.as_str(), v.as_object()) {
                // Names, not keywords: one of ours is called `properties` itself.
                ("properties", Some(named)) => {
                    named.iter().for_each(|(k, v)| walk(v, &format!("{path}/{k}"), root));
                }
                _ => walk(v, &format!("{path}/{k}"), root),
            }),
            serde_json::Value::Array(list) => list.iter().for_each(|v| walk(v, path, root)),
            _ => {}
        }
    }
    let schema = json_schema();
    walk(&schema, "", &schema);
    assert_eq!(schema["required"], serde_json::json!(["policy"]));
    assert_eq!(schema["additionalProperties"], false);
}
