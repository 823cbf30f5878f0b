//! The sections around the policy: checks their sense and builds their configurations.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use secrecy::ExposeSecret as _;

use super::problem::{Problems, nearest};
use super::raw::{
    RawCriterion, RawEventTime, RawFileSink, RawFileSource, RawHttp, RawLevels, RawLimits, RawPolicy, RawSearch,
    RawSink, RawSliding, RawSource, RawTumbling, RawWindow,
};
use super::scalar::RawExtent;
use super::tree::{At, shown};
use super::{
    EventTime, EventTimeSource, HttpConfig, LimitsConfig, Purpose, SearchConfig, SinkConfig, SourceConfig,
    WindowConfig, kafka, policy,
};
use super::{sliding, tuning};
use crate::codec::{DEFAULT_MAX_RECORD_BYTES, Format};
use crate::model::lattice::Node;
use crate::search::Algorithm;
use crate::search::choose::Levels;
use crate::window::DEFAULT_WARM_MEMORY;

/// Longer: a search may outlast the next window. Shorter: large lattices end without a proof.
const DEFAULT_TIME_BUDGET: Duration = Duration::from_millis(200);
/// Larger: releases keep a recoding that has become needlessly coarse. Smaller: the recoding moves, and people who return
/// are seen at two levels.
const DEFAULT_KEEP_WITHIN: f64 = 0.02;
/// Larger: more memory per window. Smaller: fewer people to hide among, so more loss.
const DEFAULT_MAX_RECORDS: u64 = 50_000;
/// Longer: slow streams publish late. Shorter: windows of slow streams hold fewer people than k.
const DEFAULT_MAX_AGE: Duration = Duration::from_secs(30);
/// As in the project's examples and dashboards.
const DEFAULT_PORT: u16 = 9464;
/// Enough people that windows of the default size hold classes of many different subjects.
const DEFAULT_SUBJECTS: u64 = 10_000;

/// The most records in a window.
pub(super) fn max_records(raw: &RawWindow) -> u64 {
    match &raw.sliding {
        Some(RawSliding { size: RawExtent::Records(size), .. }) => *size,
        Some(sliding) => sliding.max_records.unwrap_or(DEFAULT_MAX_RECORDS),
        None => raw.tumbling.max_records.unwrap_or(DEFAULT_MAX_RECORDS),
    }
}

/// The same, and how a message shows it; `None` if the file's own number is unusable.
pub(super) fn shown_max_records(raw: &RawWindow, root: At<'_>) -> Option<(u64, String)> {
    let tumbling = root.key("window").key("tumbling");
    let lost = root.lost("window") || root.key("window").lost("tumbling") || tumbling.lost("max_records");
    let most = max_records(raw);
    if raw.sliding.is_some() || root.key("window").lost("sliding") {
        return (!lost && raw.sliding.is_some()).then(|| (most, format!("`{most}`")));
    }
    (!lost).then(|| (most, tumbling.key("max_records").show(most)))
}

/// The field that holds the event time, if it is a field.
pub(super) fn event_time_field<'a>(raw: &'a RawWindow, at: At<'a>) -> Option<(&'a str, At<'a>)> {
    match &raw.tumbling.event_time {
        Some(RawEventTime::Field(name)) => Some((name, at.key("tumbling").key("event_time").key("field"))),
        _ => None,
    }
}

/// Builds the `search` section.
pub(super) fn search(raw: &RawSearch, purpose: Purpose, at: At<'_>, problems: &mut Problems) -> SearchConfig {
    let default_budget = match purpose {
        // Nobody waits for the next window: prove the optimum.
        Purpose::Policy => Duration::MAX,
        Purpose::Pipeline => DEFAULT_TIME_BUDGET,
    };
    SearchConfig {
        algorithm: raw.algorithm,
        time_budget: positive(raw.time_budget.map(|d| d.0), "time_budget", at, problems).unwrap_or(default_budget),
        seed: raw.seed,
        keep_within: raw.keep_within.map_or(DEFAULT_KEEP_WITHIN, |share| share.0),
        warm_memory: raw.warm_memory.map_or(DEFAULT_WARM_MEMORY, |size| usize::try_from(size.0).unwrap_or(usize::MAX)),
        max_checks: raw.max_checks,
        tuning: tuning::tuning(raw, at, problems),
    }
}

/// Refuses a search that makes no sense for the policy.
pub(super) fn check_search(search: &SearchConfig, policy: &RawPolicy, at: At<'_>, problems: &mut Problems) {
    let granulation = matches!(search.algorithm, Algorithm::Granulation | Algorithm::GranulationGa);
    let confidential = policy.privacy.iter().any(|c| matches!(c, RawCriterion::Confidential(_)));
    if granulation && !confidential && !at.key("policy").lost("privacy") {
        let line = at.key("search").key("algorithm").line;
        let name = search.algorithm.as_str();
        problems.add(line, format!("`{name}` is about confidential sentences: add a `confidential` criterion to `privacy`, or choose another algorithm"));
    }
}

/// Builds the `window` section. Levels are checked against what there is of the policy.
pub(super) fn window(raw: &RawWindow, at: At<'_>, policy: &policy::Built, problems: &mut Problems) -> WindowConfig {
    let tumbling = at.key("tumbling");
    let event_time = event_time(&raw.tumbling, tumbling, problems);
    let max_age = positive(raw.tumbling.max_age.map(|d| d.0), "max_age", tumbling, problems);
    let max_records = max_records(raw);
    let default_age = event_time.is_none().then_some(DEFAULT_MAX_AGE);
    WindowConfig {
        sliding: raw.sliding.as_ref().and_then(|raw| sliding::build(raw, at, max_records, problems)),
        max_records,
        max_age: max_age.or(default_age),
        event_time,
        levels: levels(raw, at, policy, problems),
        scope: raw.scope,
    }
}

fn event_time(raw: &RawTumbling, at: At<'_>, problems: &mut Problems) -> Option<EventTime> {
    let size = positive(raw.size.map(|d| d.0), "size", at, problems);
    if raw.size.is_none() && !at.lost("size") {
        for key in ["event_time", "allowed_lateness"] {
            if at.key(key).is_present() {
                let message = format!("`{key}` needs the length of event-time windows: add `size`, such as size: 1h");
                problems.add(at.key(key).line, message);
            }
        }
    }
    Some(EventTime {
        source: match &raw.event_time {
            Some(RawEventTime::Field(name)) => EventTimeSource::Field(name.as_str().into()),
            Some(RawEventTime::Timestamp) | None => EventTimeSource::Timestamp,
        },
        size: size?,
        allowed_lateness: raw.allowed_lateness.map_or(Duration::ZERO, |d| d.0),
    })
}

fn levels(raw: &RawWindow, at: At<'_>, policy: &policy::Built, problems: &mut Problems) -> Levels {
    if raw.levels != RawLevels::Fixed && raw.fixed_levels.is_some() && !at.lost("levels") {
        let line = at.key("fixed_levels").line;
        problems.add(line, "`fixed_levels` means something only with `levels: fixed`: add that, or remove it");
    }
    match raw.levels {
        RawLevels::Free => Levels::Free,
        RawLevels::Sticky => Levels::Sticky,
        RawLevels::Monotone => Levels::Monotone,
        RawLevels::Fixed => {
            Levels::Fixed(raw.fixed_levels.as_ref().map(|fixed| fixed_node(fixed, at, policy, problems)))
        }
    }
}

/// The node that `fixed_levels` names; each quasi-identifier has its level there, within bounds.
fn fixed_node(fixed: &BTreeMap<String, u8>, at: At<'_>, policy: &policy::Built, problems: &mut Problems) -> Node {
    let (lost, at) = (at.lost("fixed_levels"), at.key("fixed_levels"));
    let known = |name: &String| policy.quasi.iter().any(|q| *q.name == **name);
    for name in fixed.keys().filter(|name| policy.complete && !known(name)) {
        let remedy = match nearest(name, policy.shown.iter().map(|s| s.trim_matches('`'))) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "remove it".into(),
        };
        let line = at.key(name).line;
        problems.add(line, format!("`{}` in `fixed_levels` is not a quasi-identifier: {remedy}", shown(name)));
    }
    let mut levels = Vec::new();
    for (q, name) in policy.quasi.iter().zip(&policy.shown) {
        let (least, most, at) = (q.min_level, q.max_level, at.key(&q.name));
        match fixed.get(&*q.name).copied() {
            Some(level) if (least..=most).contains(&level) => levels.push(level),
            Some(level) => {
                let level = at.show(level);
                let message = format!("level {level} of {name} is out of bounds: write {least} to {most}");
                problems.add(at.line, message);
            }
            None if lost => {}
            None => problems.add(at.line, format!("`fixed_levels` lacks {name}: add its level")),
        }
    }
    Node::new(levels)
}

/// Builds the `source` section.
pub(super) fn source(
    raw: Option<&RawSource>,
    at: At<'_>,
    around: &kafka::Surroundings<'_>,
    problems: &mut Problems,
) -> Option<SourceConfig> {
    Some(match raw {
        None => SourceConfig::Stdio { format: Format::Json },
        Some(RawSource::Stdio(raw)) => SourceConfig::Stdio { format: raw.format.unwrap_or_default() },
        Some(RawSource::File(raw)) => file_source(raw, at.key("file"), around.base, problems)?,
        Some(RawSource::Generator(raw)) => SourceConfig::Generator {
            records: raw.records,
            rate: raw.rate,
            seed: raw.seed,
            subjects: raw.subjects.unwrap_or(DEFAULT_SUBJECTS),
        },
        Some(RawSource::Kafka(raw)) => {
            SourceConfig::Kafka(Box::new(kafka::source(raw, at.key("kafka"), around, problems)?))
        }
    })
}

fn file_source(raw: &RawFileSource, at: At<'_>, base: &Path, problems: &mut Problems) -> Option<SourceConfig> {
    let format = file_format(&raw.path, raw.format, at, problems);
    let delimiter = match raw.delimiter {
        Some(character) if !character.is_ascii() || character == '"' || character == '\n' || character == '\r' => {
            let at = at.key("delimiter");
            let message =
                format!("{} cannot delimit CSV: write one ASCII character, such as \";\"", at.show(character));
            problems.add(at.line, message);
            None
        }
        other => other.and_then(|character| u8::try_from(character).ok()),
    };
    if raw.delimiter.is_some() && format.is_some_and(|f| f != Format::Csv) {
        problems.add(at.key("delimiter").line, "`delimiter` means something only for CSV: remove it");
    }
    Some(SourceConfig::File { path: base.join(&raw.path), format: format?, delimiter })
}

/// Builds the `sink` section.
pub(super) fn sink(
    raw: Option<&RawSink>,
    at: At<'_>,
    source: Option<&SourceConfig>,
    around: &kafka::Surroundings<'_>,
    problems: &mut Problems,
) -> Option<SinkConfig> {
    Some(match raw {
        None => SinkConfig::Stdio { format: Format::Json },
        Some(RawSink::Stdio(raw)) => SinkConfig::Stdio { format: raw.format.unwrap_or_default() },
        Some(RawSink::File(raw)) => SinkConfig::File {
            path: around.base.join(&raw.path),
            format: file_format(&raw.path, raw.format, at.key("file"), problems)?,
            manifest: raw.manifest.as_ref().map(|path| around.base.join(path)),
            journal: raw.journal.as_ref().map(|path| around.base.join(path)),
        },
        Some(RawSink::Kafka(raw)) => {
            let source = match source {
                Some(SourceConfig::Kafka(source)) => Some(source.as_ref()),
                _ => None,
            };
            SinkConfig::Kafka(Box::new(kafka::sink(raw, at.key("kafka"), source, around, problems)?))
        }
    })
}

fn file_format(path: &Path, raw: Option<Format>, at: At<'_>, problems: &mut Problems) -> Option<Format> {
    let found = raw.or_else(|| Format::of_path(path));
    if found.is_none() && !at.lost("format") {
        let at = at.key("path");
        let path = at.show(path.display());
        problems.add(at.line, format!("the extension of {path} tells no format: add `format: csv`, `jsonl` or `avro`"));
    }
    found
}

/// Nothing is read and written at once, and nothing is written twice.
pub(super) fn check_files(
    source: Option<&RawSource>,
    sink: Option<&RawSink>,
    root: At<'_>,
    base: &Path,
    problems: &mut Problems,
) {
    let input = match source {
        Some(RawSource::File(RawFileSource { path, .. })) => Some(real(&base.join(path))),
        _ => None,
    };
    let Some(RawSink::File(RawFileSink { path, manifest, journal, .. })) = sink else { return };
    let at = root.key("sink").key("file");
    let output = real(&base.join(path));
    if input.as_ref() == Some(&output) {
        problems.add(at.key("path").line, "the sink writes the file that the source reads: write to another file");
    }
    let mut taken = vec![(output, "the file of the records")];
    taken.extend(input.map(|input| (input, "the file that the source reads")));
    for (key, path) in [("manifest", manifest), ("journal", journal)] {
        let Some(path) = path.as_ref().map(|path| real(&base.join(path))) else { continue };
        if let Some((_, whose)) = taken.iter().find(|(other, _)| *other == path) {
            problems.add(at.key(key).line, format!("`{key}` is {whose}: write it to another file"));
        }
        taken.push((path, "the file of the manifests"));
    }
}

/// The path without links and detours, as far as it exists.
fn real(path: &Path) -> PathBuf {
    if let Ok(real) = fs::canonicalize(path) {
        return real;
    }
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut plain = PathBuf::new();
    for part in absolute.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    match (plain.parent().and_then(|p| fs::canonicalize(p).ok()), plain.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => plain,
    }
}

/// Builds the `http` section.
pub(super) fn http(raw: &RawHttp, at: At<'_>, problems: &mut Problems) -> HttpConfig {
    let listen = raw.listen.map_or(SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT)), |a| a.0);
    let token = raw.token.as_ref().map(|t| t.0.clone());
    match &token {
        Some(token) if token.expose_secret().is_empty() => {
            problems.add(at.key("token").line, "`token` is empty: put a secret into the variable or the file");
        }
        Some(token) if !token.expose_secret().bytes().all(|b| b.is_ascii_graphic()) => {
            let message = "`token` holds spaces or characters that no HTTP header can carry: use letters and digits";
            problems.add(at.key("token").line, message);
        }
        None if !listen.ip().is_loopback() && !at.lost("token") => problems.add(
            at.key("listen").line,
            "`listen` is open to other machines: add `token: ${file:PATH}`, or listen on 127.0.0.1",
        ),
        _ => {}
    }
    HttpConfig { listen, token }
}

/// Builds the `limits` section.
pub(super) fn limits(raw: &RawLimits, at: At<'_>, problems: &mut Problems) -> LimitsConfig {
    let mut positive = |key: &str, size: Option<u64>| {
        if size == Some(0) {
            problems.add(at.key(key).line, format!("`{key}` is zero, so nothing could pass: write a larger size"));
        }
        size
    };
    LimitsConfig {
        max_record_bytes: positive("max_record_bytes", raw.max_record_bytes.map(|s| s.0))
            .unwrap_or(DEFAULT_MAX_RECORD_BYTES as u64),
        memory: positive("memory", raw.memory.map(|s| s.0)),
    }
}

/// The duration under `key`, which must not be zero.
fn positive(duration: Option<Duration>, key: &str, at: At<'_>, problems: &mut Problems) -> Option<Duration> {
    if duration.is_some_and(|d| d.is_zero()) {
        problems.add(at.key(key).line, format!("`{key}` is zero: write a longer time, such as 30s"));
    }
    duration
}
