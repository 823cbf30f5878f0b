//! `source.kafka` and `sink.kafka`: checks their sense, also together, and builds the client settings.
//!
//! Offsets and rows are committed in one transaction, so the two sides go together.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use secrecy::ExposeSecret as _;

use super::audience;
use super::formats::{known_schema, sink_format, sink_registry, source_format, source_registry};
use super::login::RawLogins;
use super::properties::{self, ClientSide};
use super::topics::{brokers, different_audiences, different_topics, legal_topic, topics};
use crate::config::file::At;
use crate::config::raw::{RawAudience, RawKafkaSink, RawKafkaSource, RawSink, RawSource};
use crate::kafka::client::{Cluster, JournalConfig, KafkaSinkConfig, KafkaSourceConfig, Rebalance};
use crate::kafka::topics::is_pattern;
use crate::model::release::audience::Audience;
use crate::model::schema::Schema;

/// Longer: readers of committed data wait longer for what a dead instance left open. Shorter: large releases, or a slow
/// broker, are aborted half way.
const DEFAULT_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(60);
/// Shorter ones end while an ordinary hiccup of a broker lasts.
const MIN_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Brokers refuse more unless their `transaction.max.timeout.ms` was raised.
const MAX_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// The least that a slow broker takes, per second. Larger: releases that time out pass the check. Smaller: honest ones
/// are refused.
const SLOW_ROWS_PER_SECOND: u64 = 20_000;
/// The word for "not at all".
const NONE: &str = "none";

/// The parts of the rest of the file that the checks need.
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
    /// The audiences, as written and as built.
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
    let topics = topics(raw, at, around.schema);
    let group = raw.group.as_ref().filter(|group| {
        if group.trim().is_empty() {
            at.key("group").refuse("`group` is empty: name the consumer group, such as group: veilstream");
        }
        !group.trim().is_empty()
    });
    let placements = topics.as_ref().map_or(&[][..], |(_, placements)| placements);
    let format = source_format(raw, at, around, placements);
    let registry = source_registry(raw, at, around.base);
    let none = BTreeMap::new();
    let (sasl, oauth, aws, kerberos) = (raw.sasl.as_ref(), raw.oauth.as_ref(), raw.aws.as_ref(), raw.kerberos.as_ref());
    let logins = RawLogins { sasl, oauth, aws, kerberos };
    let login = logins.build(None, at, around.base);
    let mut all = properties::security(none, raw.tls.as_ref(), logins, at, around.base);
    all.extend(properties::own(&raw.properties, at, ClientSide::Source));
    poll_interval(raw, at, around);
    let (topics, placements) = topics?;
    Some(KafkaSourceConfig {
        cluster: Cluster { brokers: brokers?, properties: all, login },
        topics,
        placements,
        group: group?.clone(),
        format: format?,
        registry,
        start: raw.start,
        on_gap: raw.on_gap,
        bad_start: raw.bad_start,
        rebalance: rebalance(raw, at, around),
        member: None,
        progress: None,
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
    // In another cluster the names are others' names.
    let beside_input = source.filter(|_| raw.progress.is_none());
    different_topics(&outputs, at, beside_input);
    let audiences = audience::topics(around.audiences.0, around.audiences.1, around.audiences_at());
    different_audiences(&audiences, &outputs, around.audiences_at(), beside_input);
    let progress = progress(raw, at, source, &outputs);
    let format = sink_format(raw, at, source, around);
    let registry = sink_registry(raw, at, source, format.as_ref(), around.base);
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
        progress,
        input: known_schema(source),
        create_topics: raw.create_topics,
        unsent: None,
        audiences,
    })
}

/// The first part of the names of the progress topics, where the output is in another cluster.
fn progress(
    raw: &RawKafkaSink,
    at: At<'_>,
    source: Option<&KafkaSourceConfig>,
    outputs: &[(&str, Option<&str>)],
) -> Option<String> {
    let prefix = raw.progress.as_deref().filter(|prefix| legal_topic(prefix, "progress", at))?;
    if raw.brokers.is_none() && !at.lost("brokers") {
        at.key("progress")
            .refuse("`progress` is for an output in another cluster: add its `brokers`, or remove `progress`");
    }
    let topics = &source?.topics;
    if topics.iter().any(|topic| is_pattern(&topic.name)) {
        at.key("progress")
            .refuse("an output in another cluster needs topics with names: write them instead of patterns");
    }
    let names: Vec<String> = topics.iter().map(|topic| format!("{prefix}-{}", topic.name)).collect();
    for (key, name) in outputs {
        if names.iter().any(|progress| Some(progress.as_str()) == *name) {
            at.key("progress")
                .refuse(format!("a progress topic would be the same topic as `{key}`: write another one"));
        }
    }
    names.iter().all(|name| legal_topic(name, "progress", at)).then(|| prefix.to_owned())
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
    // Another cluster must not be shown the secrets of the first.
    let like = source.filter(|_| raw.progress.is_none());
    let inherited = like.map(|s| properties::of_connections(&s.cluster.properties)).unwrap_or_default();
    let (sasl, oauth, aws, kerberos) = (raw.sasl.as_ref(), raw.oauth.as_ref(), raw.aws.as_ref(), raw.kerberos.as_ref());
    let logins = RawLogins { sasl, oauth, aws, kerberos };
    let login = logins.build(like.and_then(|s| s.cluster.login.clone()), at, around.base);
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

/// The ways to share partitions that the windows and the properties allow.
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
            "`transaction_timeout` is longer than brokers allow, and readers would wait that long for the transaction of a \
             dead instance: write 15m or less",
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
