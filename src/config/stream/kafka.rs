//! `source.kafka` and `sink.kafka`: checks their sense, also together, and builds the client settings.
//!
//! Offsets and rows are committed in one transaction, so the two sides are on one cluster and go together.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use secrecy::ExposeSecret as _;

use super::audience;
use super::login::RawLogins;
use super::properties::{self, ClientSide};
use super::topics::{brokers, different_audiences, different_topics, legal_topic, topics};
use crate::codec::avro::{AvroDecoder, OutputSchema, parse_schema};
use crate::config::file::At;
use crate::config::raw::{
    RawAudience, RawKafkaSink, RawKafkaSource, RawMessageFormat, RawRegistry, RawSink, RawSource,
};
use crate::kafka::client::{
    Cluster, JournalConfig, KafkaSinkConfig, KafkaSourceConfig, MessageFormat, Rebalance, RegistryConfig,
};
use crate::model::release::audience::Audience;
use crate::model::schema::Schema;

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
pub(in crate::config) struct StreamSurroundings<'a> {
    /// The top of the file.
    pub(in crate::config) root: At<'a>,
    /// Relative paths start here.
    pub(in crate::config) base: &'a Path,
    /// The value of an environment variable.
    pub(in crate::config) variable: &'a dyn Fn(&str) -> Option<String>,
    /// The longest search, if the file says so.
    pub(in crate::config) time_budget: Duration,
    /// The largest window.
    pub(in crate::config) max_records: u64,
    /// The policy's fields, if there is a usable policy.
    pub(in crate::config) schema: Option<&'a Schema>,
    /// Who gets a table of its own, as written and as built.
    pub(in crate::config) audiences: (&'a [RawAudience], &'a [Audience]),
    /// Of how many releases it must be known what they show.
    pub(in crate::config) journal: Option<usize>,
}

impl<'a> StreamSurroundings<'a> {
    /// Where the audiences are said.
    pub(super) fn audiences_at(&self) -> At<'a> {
        self.root.key("audiences")
    }
}

/// Builds `source.kafka`.
pub(super) fn source(raw: &RawKafkaSource, at: At<'_>, around: &StreamSurroundings<'_>) -> Option<KafkaSourceConfig> {
    let brokers = raw.brokers.as_ref().and_then(|raw| brokers(raw, at.key("brokers")));
    let topics = topics(raw, at);
    let group = raw.group.as_ref().filter(|group| {
        if group.trim().is_empty() {
            at.key("group").refuse("`group` is empty: name the consumer group, such as group: veilstream");
        }
        !group.trim().is_empty()
    });
    let format = source_format(raw, at, around);
    let registry = raw.registry.as_ref().and_then(|raw| registry(raw, at.key("registry")));
    let confluent = raw.format == Some(RawMessageFormat::ConfluentAvro);
    if confluent && raw.registry.is_none() && !at.lost("registry") {
        at.key("format").refuse("`format: confluent-avro` needs a registry: add `registry: { url: http://HOST:PORT }`");
    } else if !confluent && raw.registry.is_some() && !at.lost("format") {
        at.only_with("registry", "format: confluent-avro");
    }
    let none = BTreeMap::new();
    let logins = RawLogins { sasl: raw.sasl.as_ref(), oauth: raw.oauth.as_ref(), aws: raw.aws.as_ref() };
    let login = logins.build(None, at, around.base);
    let mut all = properties::security(none, raw.tls.as_ref(), logins, at, around.base);
    all.extend(properties::own(&raw.properties, at, ClientSide::Source));
    poll_interval(raw, at, around);
    Some(KafkaSourceConfig {
        cluster: Cluster { brokers: brokers?, properties: all, login },
        topics: topics?,
        group: group?.clone(),
        format: format?,
        registry,
        start: raw.start,
        on_gap: raw.on_gap,
        rebalance: rebalance(raw, at, around),
        member: None,
    })
}

/// Builds `sink.kafka`; what it leaves out is as in `source`.
pub(super) fn sink(
    raw: &RawKafkaSink,
    at: At<'_>,
    source: Option<&KafkaSourceConfig>,
    around: &StreamSurroundings<'_>,
) -> Option<KafkaSinkConfig> {
    let cluster = sink_cluster(raw, at, source, around);
    let topic = raw.topic.as_deref().filter(|topic| legal_topic(topic, "topic", at));
    let beside = |raw: &Option<String>, key: &str| match raw.as_deref() {
        Some(NONE) => None,
        Some(name) => legal_topic(name, key, at).then(|| name.to_owned()),
        None => topic.map(|topic| format!("{topic}-{}", key.replace('_', "-"))),
    };
    let manifests = beside(&raw.manifests, "manifests");
    let dead_letters = beside(&raw.dead_letters, "dead_letters");
    let journal = beside(&raw.journal, "journal");
    if around.journal.is_some() && raw.journal.as_deref() == Some(NONE) {
        at.key("journal").refuse(
            "a release of `sequential` or `sliding` cannot be made again after a crash without the journal: name a \
                       topic",
        );
    }
    let outputs = [
        ("topic", topic),
        ("manifests", manifests.as_deref()),
        ("dead_letters", dead_letters.as_deref()),
        ("journal", journal.as_deref()),
    ];
    different_topics(&outputs, at, source);
    let audiences = audience::topics(around.audiences.0, around.audiences.1, around.audiences_at());
    different_audiences(&audiences, &outputs, around.audiences_at(), source);
    let format = sink_format(raw, at, source, around);
    let registry = sink_registry(raw, at, source, format.as_ref());
    let timeout = transaction_timeout(raw, at, around);
    let transactional_id = transactional_id(raw, at, source, around);
    Some(KafkaSinkConfig {
        cluster: cluster?,
        topic: topic?.to_owned(),
        manifests,
        dead_letters,
        journal: journal.map(|topic| JournalConfig { topic, releases: around.journal }),
        transactional_id: transactional_id?,
        transaction_timeout: timeout,
        format: format?,
        registry,
        create_topics: raw.create_topics,
        audiences,
    })
}

/// The cluster of the output: as in the source, but for what is written here.
fn sink_cluster(
    raw: &RawKafkaSink,
    at: At<'_>,
    source: Option<&KafkaSourceConfig>,
    around: &StreamSurroundings<'_>,
) -> Option<Cluster> {
    let brokers = match &raw.brokers {
        Some(raw) => brokers(raw, at.key("brokers")),
        None => source.map(|s| s.cluster.brokers.clone()),
    };
    let inherited = source.map(|s| properties::of_connections(&s.cluster.properties)).unwrap_or_default();
    let logins = RawLogins { sasl: raw.sasl.as_ref(), oauth: raw.oauth.as_ref(), aws: raw.aws.as_ref() };
    let login = logins.build(source.and_then(|s| s.cluster.login.clone()), at, around.base);
    if raw.create_topics && login.is_some() {
        at.key("create_topics").refuse(
            "topics cannot be made by a client that logs in by token: create them yourself, and remove `create_topics`",
        );
    }
    let mut all = properties::security(inherited, raw.tls.as_ref(), logins, at, around.base);
    all.extend(properties::own(&raw.properties, at, ClientSide::Sink));
    Some(Cluster { brokers: brokers?, properties: all, login })
}

/// Source and sink go together: offsets and rows are committed in one transaction.
pub(in crate::config) fn check_both(source: Option<&RawSource>, sink: Option<&RawSink>, root: At<'_>) {
    let kafka_in = matches!(source, Some(RawSource::Kafka(_)));
    let kafka_out = matches!(sink, Some(RawSink::Kafka(_)));
    if kafka_in && !kafka_out && !root.lost("sink") {
        let message = "a Kafka source needs a Kafka sink, because offsets and rows are committed in one transaction: add \
                       `sink: { kafka: { topic: NAME } }`";
        let at = if root.key("sink").is_present() { root.key("sink") } else { root.key("source") };
        at.refuse(message);
    }
    if kafka_out && !kafka_in && !root.lost("source") {
        root.key("sink").refuse(
            "a Kafka sink needs a Kafka source for now, because offsets and rows are committed in one \
                       transaction: add `source: { kafka: { ... } }`, or write to a file",
        );
    }
}

/// What the windows and the properties allow.
fn rebalance(raw: &RawKafkaSource, at: At<'_>, around: &StreamSurroundings<'_>) -> Rebalance {
    if raw.rebalance.is_incremental() && around.journal.is_some() {
        at.key("rebalance").refuse(
            "with `sequential` or `sliding` windows start over when partitions move, because a later release would show who \
             has left: write `rebalance: range`",
        );
    }
    if raw.rebalance == Rebalance::Consumer {
        for name in ["session.timeout.ms", "heartbeat.interval.ms"] {
            if raw.properties.contains_key(name) {
                at.key("properties").key(name).refuse(format!(
                    "with `rebalance: consumer` the brokers decide `{name}`: remove it, and set \
                     group.consumer.{name} there"
                ));
            }
        }
    }
    raw.rebalance
}

fn source_format(raw: &RawKafkaSource, at: At<'_>, around: &StreamSurroundings<'_>) -> Option<MessageFormat> {
    let format = raw.format.unwrap_or(RawMessageFormat::Json);
    if format != RawMessageFormat::Avro && raw.schema.is_some() && !at.lost("format") {
        at.only_with("schema", "format: avro");
    }
    match (format, &raw.schema) {
        (RawMessageFormat::Json, _) => Some(MessageFormat::Json),
        (RawMessageFormat::ConfluentAvro, _) => Some(MessageFormat::ConfluentAvro),
        (RawMessageFormat::Avro, None) => {
            if !at.lost("schema") {
                at.key("format").refuse(
                    "`format: avro` needs the writer's schema: add `schema: FILE.avsc`, or use `confluent-avro`",
                );
            }
            None
        }
        (RawMessageFormat::Avro, Some(path)) => {
            let at = at.key("schema");
            let text = match std::fs::read_to_string(around.base.join(path)) {
                Ok(text) => text,
                Err(error) => {
                    let path = at.show(path.display());
                    at.refuse(format!("the schema {path} cannot be read ({}): check the path", error.kind()));
                    return None;
                }
            };
            match parse_schema(&text) {
                Ok(schema) if matches!(*schema, apache_avro::Schema::Record(_)) => {
                    let decoder = around.schema.map(|fields| AvroDecoder::new(fields, &schema, 1));
                    if let Some(Err(error)) = decoder {
                        let outside = around.root.key("policy").is_from_outside();
                        let detail = if outside { String::new() } else { format!(" ({error})") };
                        at.refuse(format!("the schema does not have the policy's fields{detail}: check both"));
                    }
                    Some(MessageFormat::Avro(schema))
                }
                Ok(_) => {
                    at.refuse(format!("the schema {} is not a record: name one", at.show(path.display())));
                    None
                }
                Err(_) => {
                    at.refuse(format!("{} is not an Avro schema: check it", at.show(path.display())));
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
    around: &StreamSurroundings<'_>,
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
    match OutputSchema::derive(&around.schema?.with_added(), &writers).and_then(|schema| parse_schema(schema.json())) {
        Ok(_) if format == RawMessageFormat::ConfluentAvro => Some(MessageFormat::ConfluentAvro),
        Ok(schema) => Some(MessageFormat::Avro(Arc::clone(&schema))),
        Err(error) => {
            let name = if around.root.key("policy").is_from_outside() {
                "a published field cannot be an avro field name: use letters, digits and _".to_owned()
            } else {
                error.to_string()
            };
            at.key("format").refuse(format!("{name}, or write `format: json`"));
            None
        }
    }
}

/// The registry of the output; the input's unless there is another one.
fn sink_registry(
    raw: &RawKafkaSink,
    at: At<'_>,
    source: Option<&KafkaSourceConfig>,
    format: Option<&MessageFormat>,
) -> Option<RegistryConfig> {
    let own = raw.registry.as_ref().and_then(|raw| registry(raw, at.key("registry")));
    let registry = own.or_else(|| source.and_then(|s| s.registry.clone()));
    let told = source.is_some_and(|s| s.format == MessageFormat::ConfluentAvro) || at.lost_any();
    if matches!(format, Some(MessageFormat::ConfluentAvro)) && registry.is_none() && !told {
        at.key("format").refuse("`format: confluent-avro` needs a registry: add `registry: { url: http://HOST:PORT }`");
    } else if raw.registry.is_some() && matches!(format, Some(MessageFormat::Json | MessageFormat::Avro(_))) {
        at.only_with("registry", "format: confluent-avro");
    }
    registry
}

fn registry(raw: &RawRegistry, at: At<'_>) -> Option<RegistryConfig> {
    let before = at.problems();
    let url = raw.url.as_deref().map(|url| url.trim().trim_end_matches('/'));
    if let Some(url) = url {
        let at = at.key("url");
        let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")).unwrap_or_default();
        if host.contains('@') {
            at.refuse("`url` holds a login, and would be shown: use `username` and `password`");
        } else if host.is_empty() || host.starts_with(['/', ':']) || host.contains(char::is_whitespace) {
            at.refuse("`url` is not an address: write http://HOST:PORT or https://HOST:PORT");
        }
    }
    let credentials = match (&raw.username, &raw.password) {
        (Some(username), Some(password)) => Some((username.clone(), password.0.clone())),
        (Some(_), None) if !at.lost("password") => {
            at.key("username").refuse("`username` needs a password: add `password: ${file:PATH}`");
            None
        }
        (None, Some(_)) if !at.lost("username") => {
            at.key("password").refuse("`password` needs a user name: add `username`");
            None
        }
        _ => None,
    };
    let url = url?.to_owned();
    (at.problems() == before).then_some(RegistryConfig { url, credentials })
}

/// A search that outlasts the poll interval would cost the group its member.
fn poll_interval(raw: &RawKafkaSource, at: At<'_>, around: &StreamSurroundings<'_>) {
    const PROPERTY: &str = "max.poll.interval.ms";
    /// librdkafka's default.
    const DEFAULT: u64 = 300_000;
    let own = raw.properties.get(PROPERTY);
    let millis = own.and_then(|p| p.0.expose_secret().parse().ok()).unwrap_or(DEFAULT);
    if around.time_budget >= Duration::from_millis(millis) {
        let at = match own {
            Some(_) => at.key("properties").key(PROPERTY),
            None => around.root.key("search").key("time_budget"),
        };
        at.refuse(
            "`search.time_budget` is not below the poll interval, so the group would give this instance up: write a \
                       shorter `time_budget`, or a longer `max.poll.interval.ms` under `properties`",
        );
    }
}

fn transaction_timeout(raw: &RawKafkaSink, at: At<'_>, around: &StreamSurroundings<'_>) -> Duration {
    let timeout = raw.transaction_timeout.map_or(DEFAULT_TRANSACTION_TIMEOUT, |d| d.0);
    let at_timeout = at.key("transaction_timeout");
    let slow = Duration::from_secs(around.max_records.div_ceil(SLOW_ROWS_PER_SECOND));
    if timeout < MIN_TRANSACTION_TIMEOUT {
        at_timeout.refuse("`transaction_timeout` is shorter than publishing may take, so releases would be aborted: write 10s or more");
    } else if timeout > MAX_TRANSACTION_TIMEOUT {
        at_timeout.refuse(
            "`transaction_timeout` is longer than brokers allow, and readers would wait that long for what a dead \
                       instance left open: write 15m or less",
        );
    } else if timeout < slow {
        let seconds = slow.as_secs();
        at_timeout.refuse(format!(
            "a window of {} records may take {seconds}s to publish, longer than `transaction_timeout`: write \
             transaction_timeout: {seconds}s, or a smaller `max_records`",
            around.max_records
        ));
    }
    const PROPERTY: &str = "message.timeout.ms";
    let own = ["message.timeout.ms", "delivery.timeout.ms"].into_iter().find_map(|name| {
        let millis = raw.properties.get(name)?.0.expose_secret().parse().ok()?;
        Some((name, Duration::from_millis(millis)))
    });
    if let Some((name, _)) = own.filter(|(_, own)| *own > timeout || own.is_zero()) {
        at.key("properties")
            .key(name)
            .refuse(format!("`{PROPERTY}` is longer than `transaction_timeout`: write a shorter one, or remove it"));
    }
    timeout
}

fn transactional_id(
    raw: &RawKafkaSink,
    at: At<'_>,
    source: Option<&KafkaSourceConfig>,
    around: &StreamSurroundings<'_>,
) -> Option<String> {
    if let Some(id) = &raw.transactional_id {
        if id.trim().is_empty() {
            at.key("transactional_id").refuse(
                "`transactional_id` is empty: write one that stays the same on this instance, such as \
                           veilstream-${HOSTNAME}",
            );
            return None;
        }
        return Some(id.clone());
    }
    let group = &source?.group;
    let host = (around.variable)("HOSTNAME").or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok());
    match host.as_deref().map(str::trim).filter(|host| !host.is_empty()) {
        Some(host) => Some(format!("{group}-{host}")),
        None => {
            at.refuse(
                "the host has no name to make a transactional id from: set `HOSTNAME`, or add `transactional_id`, \
                           the same at every start and another one on every instance",
            );
            None
        }
    }
}
