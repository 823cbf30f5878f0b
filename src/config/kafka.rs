//! `source.kafka` and `sink.kafka`: checks their sense, also together, and builds the client settings.
//!
//! Offsets and rows are committed in one transaction, so the two sides are on one cluster and go together.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use secrecy::ExposeSecret as _;

use super::problem::Problems;
use super::properties::{self, Side};
use super::raw::{RawKafkaSink, RawKafkaSource, RawMessageFormat, RawRegistry, RawSearch, RawSink, RawSource};
use super::topics::{brokers, different_topics, legal_topic, topics};
use super::tree::At;
use crate::codec::avro::{AvroDecoder, OutputSchema, parse_schema};
use crate::kafka::client::{Cluster, JournalConfig, KafkaSinkConfig, KafkaSourceConfig, MessageFormat, RegistryConfig};
use crate::model::schema::Schema;
use crate::search::Algorithm;

/// Longer: readers of committed data wait longer for what a dead instance left open. Shorter: large releases, or a slow
/// broker, are aborted half way.
const DEFAULT_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(60);
/// Shorter ones end while an ordinary hiccup of a broker lasts.
const MIN_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Brokers refuse more unless their `transaction.max.timeout.ms` was raised.
const MAX_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// What a slow broker takes for sure, per second. Larger: releases that time out pass the check. Smaller: honest ones
/// are refused.
const SLOW_ROWS_PER_SECOND: u64 = 20_000;
/// The word for "not at all".
const NONE: &str = "none";

/// What the checks need from the rest of the file.
pub(super) struct Surroundings<'a> {
    /// The top of the file.
    pub(super) root: At<'a>,
    /// Relative paths start here.
    pub(super) base: &'a Path,
    /// The value of an environment variable.
    pub(super) variable: &'a dyn Fn(&str) -> Option<String>,
    /// The longest search, if the file says so.
    pub(super) time_budget: Duration,
    /// The largest window.
    pub(super) max_records: u64,
    /// The policy's fields, if there is a usable policy.
    pub(super) schema: Option<&'a Schema>,
    /// Of how many releases it must be known what they show.
    pub(super) journal: Option<usize>,
}

/// Builds `source.kafka`.
pub(super) fn source(
    raw: &RawKafkaSource,
    at: At<'_>,
    around: &Surroundings<'_>,
    problems: &mut Problems,
) -> Option<KafkaSourceConfig> {
    let brokers = raw.brokers.as_ref().and_then(|raw| brokers(raw, at.key("brokers"), problems));
    let topics = topics(raw, at, problems);
    let group = raw.group.as_ref().filter(|group| {
        if group.trim().is_empty() {
            problems.add(at.key("group").line, "`group` is empty: name the consumer group, such as group: veilstream");
        }
        !group.trim().is_empty()
    });
    let format = source_format(raw, at, around, problems);
    let registry = raw.registry.as_ref().and_then(|raw| registry(raw, at.key("registry"), problems));
    let confluent = raw.format == Some(RawMessageFormat::ConfluentAvro);
    if confluent && raw.registry.is_none() && !at.lost("registry") {
        let message = "`format: confluent-avro` needs a registry: add `registry: { url: http://HOST:PORT }`";
        problems.add(at.key("format").line, message);
    } else if !confluent && raw.registry.is_some() && !at.lost("format") {
        let message = "`registry` means something only with `format: confluent-avro`: add that, or remove it";
        problems.add(at.key("registry").line, message);
    }
    let none = BTreeMap::new();
    let mut all = properties::security(none, raw.tls.as_ref(), raw.sasl.as_ref(), at, around.base, problems);
    all.extend(properties::own(&raw.properties, at, Side::Source, problems));
    poll_interval(raw, at, around, problems);
    Some(KafkaSourceConfig {
        cluster: Cluster { brokers: brokers?, properties: all },
        topics: topics?,
        group: group?.clone(),
        format: format?,
        registry,
        start: raw.start,
        on_gap: raw.on_gap,
    })
}

/// Builds `sink.kafka`; what it leaves out is as in `source`.
pub(super) fn sink(
    raw: &RawKafkaSink,
    at: At<'_>,
    source: Option<&KafkaSourceConfig>,
    around: &Surroundings<'_>,
    problems: &mut Problems,
) -> Option<KafkaSinkConfig> {
    let brokers = match &raw.brokers {
        Some(raw) => brokers(raw, at.key("brokers"), problems),
        None => source.map(|s| s.cluster.brokers.clone()),
    };
    let topic = raw.topic.as_deref().filter(|topic| legal_topic(topic, "topic", at, problems));
    let beside = |raw: &Option<String>, key: &str, problems: &mut Problems| match raw.as_deref() {
        Some(NONE) => None,
        Some(name) => legal_topic(name, key, at, problems).then(|| name.to_owned()),
        None => topic.map(|topic| format!("{topic}-{}", key.replace('_', "-"))),
    };
    let manifests = beside(&raw.manifests, "manifests", problems);
    let dead_letters = beside(&raw.dead_letters, "dead_letters", problems);
    let journal = beside(&raw.journal, "journal", problems);
    if around.journal.is_some() && raw.journal.as_deref() == Some(NONE) {
        let message = "a release of `sequential` or `sliding` cannot be made again after a crash without the journal: name a \
                       topic";
        problems.add(at.key("journal").line, message);
    }
    let outputs = [
        ("topic", topic),
        ("manifests", manifests.as_deref()),
        ("dead_letters", dead_letters.as_deref()),
        ("journal", journal.as_deref()),
    ];
    different_topics(&outputs, at, source, problems);
    let format = sink_format(raw, at, source, around, problems);
    let own_registry = raw.registry.as_ref().and_then(|raw| registry(raw, at.key("registry"), problems));
    let registry = own_registry.or_else(|| source.and_then(|s| s.registry.clone()));
    let told = source.is_some_and(|s| s.format == MessageFormat::ConfluentAvro) || at.lost_any();
    if matches!(format, Some(MessageFormat::ConfluentAvro)) && registry.is_none() && !told {
        let message = "`format: confluent-avro` needs a registry: add `registry: { url: http://HOST:PORT }`";
        problems.add(at.key("format").line, message);
    } else if raw.registry.is_some() && matches!(format, Some(MessageFormat::Json | MessageFormat::Avro(_))) {
        let message = "`registry` means something only with `format: confluent-avro`: add that, or remove it";
        problems.add(at.key("registry").line, message);
    }
    let timeout = transaction_timeout(raw, at, around, problems);
    let transactional_id = transactional_id(raw, at, source, around, problems);
    let inherited = source.map(|s| properties::of_connections(&s.cluster.properties)).unwrap_or_default();
    let mut all = properties::security(inherited, raw.tls.as_ref(), raw.sasl.as_ref(), at, around.base, problems);
    all.extend(properties::own(&raw.properties, at, Side::Sink, problems));
    Some(KafkaSinkConfig {
        cluster: Cluster { brokers: brokers?, properties: all },
        topic: topic?.to_owned(),
        manifests,
        dead_letters,
        journal: journal.map(|topic| JournalConfig { topic, releases: around.journal }),
        transactional_id: transactional_id?,
        transaction_timeout: timeout,
        format: format?,
        registry,
    })
}

/// Source and sink go together: offsets and rows are committed in one transaction.
pub(super) fn check_both(
    source: Option<&RawSource>,
    sink: Option<&RawSink>,
    search: &RawSearch,
    root: At<'_>,
    problems: &mut Problems,
) {
    let kafka_in = matches!(source, Some(RawSource::Kafka(_)));
    let kafka_out = matches!(sink, Some(RawSink::Kafka(_)));
    if kafka_out && matches!(search.algorithm, Algorithm::SubtreeBottomUp) {
        let message = "`subtree-bottom-up` does not go with a Kafka sink: its cuts are too large to be planned before they are \
                       published, and a release must come out the same after a crash: choose another algorithm";
        problems.add(root.key("search").key("algorithm").line, message);
    }
    if kafka_in && !kafka_out && !root.lost("sink") {
        let message = "a Kafka source needs a Kafka sink, because offsets and rows are committed in one transaction: add \
                       `sink: { kafka: { topic: NAME } }`";
        let at = if root.key("sink").is_present() { root.key("sink") } else { root.key("source") };
        problems.add(at.line, message);
    }
    if kafka_out && !kafka_in && !root.lost("source") {
        let message = "a Kafka sink needs a Kafka source for now, because offsets and rows are committed in one \
                       transaction: add `source: { kafka: { ... } }`, or write to a file";
        problems.add(root.key("sink").line, message);
    }
}

fn source_format(
    raw: &RawKafkaSource,
    at: At<'_>,
    around: &Surroundings<'_>,
    problems: &mut Problems,
) -> Option<MessageFormat> {
    let format = raw.format.unwrap_or(RawMessageFormat::Json);
    if format != RawMessageFormat::Avro && raw.schema.is_some() && !at.lost("format") {
        problems
            .add(at.key("schema").line, "`schema` means something only with `format: avro`: add that, or remove it");
    }
    match (format, &raw.schema) {
        (RawMessageFormat::Json, _) => Some(MessageFormat::Json),
        (RawMessageFormat::ConfluentAvro, _) => Some(MessageFormat::ConfluentAvro),
        (RawMessageFormat::Avro, None) => {
            if !at.lost("schema") {
                let message =
                    "`format: avro` needs the writer's schema: add `schema: FILE.avsc`, or use `confluent-avro`";
                problems.add(at.key("format").line, message);
            }
            None
        }
        (RawMessageFormat::Avro, Some(path)) => {
            let at = at.key("schema");
            let text = match std::fs::read_to_string(around.base.join(path)) {
                Ok(text) => text,
                Err(error) => {
                    let path = at.show(path.display());
                    problems
                        .add(at.line, format!("the schema {path} cannot be read ({}): check the path", error.kind()));
                    return None;
                }
            };
            match parse_schema(&text) {
                Ok(schema) if matches!(*schema, apache_avro::Schema::Record(_)) => {
                    let decoder = around.schema.map(|fields| AvroDecoder::new(fields, &schema, 1));
                    if let Some(Err(error)) = decoder {
                        let outside = around.root.key("policy").is_from_outside();
                        let detail = if outside { String::new() } else { format!(" ({error})") };
                        problems
                            .add(at.line, format!("the schema does not have the policy's fields{detail}: check both"));
                    }
                    Some(MessageFormat::Avro(schema))
                }
                Ok(_) => {
                    problems.add(at.line, format!("the schema {} is not a record: name one", at.show(path.display())));
                    None
                }
                Err(_) => {
                    problems.add(at.line, format!("{} is not an Avro schema: check it", at.show(path.display())));
                    None
                }
            }
        }
    }
}

/// The output's format; plain Avro has its schema derived from the input's.
fn sink_format(
    raw: &RawKafkaSink,
    at: At<'_>,
    source: Option<&KafkaSourceConfig>,
    around: &Surroundings<'_>,
    problems: &mut Problems,
) -> Option<MessageFormat> {
    let input = source.map(|s| &s.format);
    let format = raw.format.or(match input {
        Some(MessageFormat::Json) => Some(RawMessageFormat::Json),
        Some(MessageFormat::Avro(_)) => Some(RawMessageFormat::Avro),
        Some(MessageFormat::ConfluentAvro) => Some(RawMessageFormat::ConfluentAvro),
        None => None,
    })?;
    if format == RawMessageFormat::Json {
        return Some(MessageFormat::Json);
    }
    let writer = match input {
        Some(MessageFormat::Avro(schema)) => Some(schema.as_ref()),
        _ => None,
    };
    let writers: Vec<&apache_avro::Schema> = writer.into_iter().collect();
    // Derived for `confluent-avro` too, because names that Avro does not take show up here.
    match OutputSchema::derive(around.schema?, &writers).and_then(|schema| parse_schema(schema.json())) {
        Ok(_) if format == RawMessageFormat::ConfluentAvro => Some(MessageFormat::ConfluentAvro),
        Ok(schema) => Some(MessageFormat::Avro(Arc::clone(&schema))),
        Err(error) => {
            let name = if around.root.key("policy").is_from_outside() {
                "a published field cannot be an avro field name: use letters, digits and _".to_owned()
            } else {
                error.to_string()
            };
            problems.add(at.key("format").line, format!("{name}, or write `format: json`"));
            None
        }
    }
}

fn registry(raw: &RawRegistry, at: At<'_>, problems: &mut Problems) -> Option<RegistryConfig> {
    let before = problems.len();
    let url = raw.url.as_deref().map(|url| url.trim().trim_end_matches('/'));
    if let Some(url) = url {
        let at = at.key("url");
        let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")).unwrap_or_default();
        if host.contains('@') {
            let message = "`url` holds a login, and would be shown: use `username` and `password`";
            problems.add(at.line, message);
        } else if host.is_empty() || host.starts_with(['/', ':']) || host.contains(char::is_whitespace) {
            problems.add(at.line, "`url` is not an address: write http://HOST:PORT or https://HOST:PORT");
        }
    }
    let credentials = match (&raw.username, &raw.password) {
        (Some(username), Some(password)) => Some((username.clone(), password.0.clone())),
        (Some(_), None) if !at.lost("password") => {
            problems.add(at.key("username").line, "`username` needs a password: add `password: ${file:PATH}`");
            None
        }
        (None, Some(_)) if !at.lost("username") => {
            problems.add(at.key("password").line, "`password` needs a user name: add `username`");
            None
        }
        _ => None,
    };
    let url = url?.to_owned();
    (problems.len() == before).then_some(RegistryConfig { url, credentials })
}

/// A search that outlasts the poll interval would cost the group its member.
fn poll_interval(raw: &RawKafkaSource, at: At<'_>, around: &Surroundings<'_>, problems: &mut Problems) {
    const PROPERTY: &str = "max.poll.interval.ms";
    /// librdkafka's default.
    const DEFAULT: u64 = 300_000;
    let own = raw.properties.get(PROPERTY);
    let millis = own.and_then(|p| p.0.expose_secret().parse().ok()).unwrap_or(DEFAULT);
    if around.time_budget >= Duration::from_millis(millis) {
        let line = match own {
            Some(_) => at.key("properties").key(PROPERTY).line,
            None => around.root.key("search").key("time_budget").line,
        };
        let message = "`search.time_budget` is not below the poll interval, so the group would give this instance up: write a \
                       shorter `time_budget`, or a longer `max.poll.interval.ms` under `properties`";
        problems.add(line, message);
    }
}

fn transaction_timeout(raw: &RawKafkaSink, at: At<'_>, around: &Surroundings<'_>, problems: &mut Problems) -> Duration {
    let timeout = raw.transaction_timeout.map_or(DEFAULT_TRANSACTION_TIMEOUT, |d| d.0);
    let at_timeout = at.key("transaction_timeout");
    let slow = Duration::from_secs(around.max_records.div_ceil(SLOW_ROWS_PER_SECOND));
    if timeout < MIN_TRANSACTION_TIMEOUT {
        let message = "`transaction_timeout` is shorter than publishing may take, so releases would be aborted: write 10s or more";
        problems.add(at_timeout.line, message);
    } else if timeout > MAX_TRANSACTION_TIMEOUT {
        let message = "`transaction_timeout` is longer than brokers allow, and readers would wait that long for what a dead \
                       instance left open: write 15m or less";
        problems.add(at_timeout.line, message);
    } else if timeout < slow {
        let seconds = slow.as_secs();
        let message = format!(
            "a window of {} records may take {seconds}s to publish, longer than `transaction_timeout`: write \
             transaction_timeout: {seconds}s, or a smaller `max_records`",
            around.max_records
        );
        problems.add(at_timeout.line, message);
    }
    const PROPERTY: &str = "message.timeout.ms";
    let own = ["message.timeout.ms", "delivery.timeout.ms"].into_iter().find_map(|name| {
        let millis = raw.properties.get(name)?.0.expose_secret().parse().ok()?;
        Some((name, Duration::from_millis(millis)))
    });
    if let Some((name, _)) = own.filter(|(_, own)| *own > timeout || own.is_zero()) {
        let line = at.key("properties").key(name).line;
        problems
            .add(line, format!("`{PROPERTY}` is longer than `transaction_timeout`: write a shorter one, or remove it"));
    }
    timeout
}

fn transactional_id(
    raw: &RawKafkaSink,
    at: At<'_>,
    source: Option<&KafkaSourceConfig>,
    around: &Surroundings<'_>,
    problems: &mut Problems,
) -> Option<String> {
    if let Some(id) = &raw.transactional_id {
        if id.trim().is_empty() {
            let message = "`transactional_id` is empty: write one that stays the same on this instance, such as \
                           veilstream-${HOSTNAME}";
            problems.add(at.key("transactional_id").line, message);
            return None;
        }
        return Some(id.clone());
    }
    let group = &source?.group;
    let host = (around.variable)("HOSTNAME").or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    match host.as_deref().map(str::trim).filter(|host| !host.is_empty()) {
        Some(host) => Some(format!("{group}-{host}")),
        None => {
            let message = "the host has no name to make a transactional id from: set `HOSTNAME`, or add `transactional_id`, \
                           the same at every start and another one on every instance";
            problems.add(at.line, message);
            None
        }
    }
}
