//! Client settings: the configuration of a source or sink, turned into settings of librdkafka. `Debug` shows no secret.

pub mod login;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rdkafka::ClientConfig;
use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use login::{Login, LoginKey};
use prost_reflect::MessageDescriptor;

use crate::codec::registry::{Registry, RegistryTls};
use crate::codec::schemas::{SchemaLanguage, WriterSchema};
use crate::model::release::audience::AudienceTable;
use crate::model::schema::Placement;

/// The time before the group's consumer sends a request again, give or take a fifth: a commit that is answered sooner was sent
/// once. Larger: requests that a busy broker puts off are answered late. Smaller: commits count as sent twice when brokers are only
/// slow, and each of them costs a rebalance.
pub const RESEND: Duration = Duration::from_secs(1);

/// The property that names a member of the group.
pub const MEMBER_NAME: &str = "group.instance.id";
/// What brokers take.
const MAX_MEMBER_NAME: usize = 249;
/// librdkafka's default.
const HEARTBEAT_MS: u64 = 3000;

/// The time between two looks for new partitions and topics. Larger: their records wait. Smaller: brokers are asked more often.
const REFRESH_MS: u64 = 30_000;

/// How messages are encoded.
#[derive(Debug, Clone, PartialEq)]
pub enum MessageFormat {
    /// A JSON object per message.
    Json,
    /// A plain Avro datum per message, all written with this schema.
    Avro(Arc<apache_avro::Schema>),
    /// A plain Protobuf message of this type per message.
    Protobuf(MessageDescriptor),
    /// The Confluent wire format, with schemas in this language from a registry.
    Confluent(SchemaLanguage),
}

/// A schema registry.
#[derive(Debug, Clone)]
pub struct RegistryConfig {
    /// Its base address.
    pub url: String,
    /// User name and password, if it wants them.
    pub credentials: Option<(String, SecretString)>,
    /// The bearer token, if it wants one.
    pub token: Option<SecretString>,
    /// Whom it must be signed by, and our own certificate.
    pub tls: RegistryTls,
}

impl RegistryConfig {
    /// Its client.
    pub fn client(&self) -> Registry {
        Registry::new(&self.url, self.credentials.as_ref()).secured(self.token.as_ref(), &self.tls)
    }
}

/// The place to start at where nothing is committed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// At the oldest record there is.
    #[default]
    Earliest,
    /// At the records that come from now on.
    Latest,
}

/// The reaction to committed offsets that retention has deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnGap {
    /// Stop with an error: somebody must know that records were lost.
    #[default]
    Stop,
    /// Count them, and go on with the oldest record there is.
    Continue,
}

/// The reaction to a first window of which every message is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BadStart {
    /// Stop with an error, before any offset has moved: the topic or the format may be another one than is meant.
    #[default]
    Stop,
    /// Reject them by position, and judge the messages that follow with them.
    Reject,
}

/// How partitions are shared out when members of the group come and go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Rebalance {
    /// Every member gives all partitions back and starts its windows over; neighbouring partitions stay together.
    #[default]
    Range,
    /// Only the partitions that move are given back (cooperative-sticky); the other windows go on.
    Cooperative,
    /// As `cooperative`, decided by the brokers (KIP-848, Apache Kafka 4). They also decide the session timeout.
    Consumer,
}

impl Rebalance {
    /// True if partitions come and go one by one.
    pub fn is_incremental(self) -> bool {
        self != Self::Range
    }
}

/// How to reach a cluster.
#[derive(Clone)]
pub struct Cluster {
    /// Bootstrap addresses, separated by commas.
    pub brokers: String,
    /// librdkafka properties: TLS, SASL, and others that the user sets.
    pub properties: BTreeMap<String, SecretString>,
    /// How its clients get their tokens, where they log in by token.
    pub login: Option<Arc<Login>>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.properties.keys().collect();
        write!(f, "Cluster({}, properties {names:?})", self.brokers)
    }
}

/// Topics of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicRule {
    /// A topic's name, or a pattern with `*` for any run of characters.
    pub name: String,
    /// The number of the placement of their records.
    pub placement: usize,
}

/// The journal of releases: the records that they finish, and those that they show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalConfig {
    /// The topic.
    pub topic: String,
    /// The number of releases whose shown records later ones must know; `None` if releases do not depend on earlier ones.
    pub releases: Option<usize>,
}

/// The input side.
#[derive(Debug, Clone)]
pub struct KafkaSourceConfig {
    /// The cluster.
    pub cluster: Cluster,
    /// The topics to read.
    pub topics: Vec<TopicRule>,
    /// Where their records have the fields of the policy, by the numbers that topics and events name.
    pub placements: Vec<Placement>,
    /// The consumer group; also the first part of every release id.
    pub group: String,
    /// How messages are encoded.
    pub format: MessageFormat,
    /// Where schemas come from, for [`MessageFormat::Confluent`].
    pub registry: Option<RegistryConfig>,
    /// Where to start.
    pub start: Start,
    /// The reaction to records that retention has deleted.
    pub on_gap: OnGap,
    /// The reaction to a first window of which every message is turned away.
    pub bad_start: BadStart,
    /// How partitions are shared out.
    pub rebalance: Rebalance,
    /// The name of this member, if it has one: see [`KafkaSourceConfig::published_by`].
    pub member: Option<Member>,
    /// The place of the group and its offsets, if that is not the cluster of the records: see [`KafkaSourceConfig::published_by`].
    pub progress: Option<ProgressPlace>,
}

/// A member of the group that has a name (static membership).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// True if it leaves the group when it is stopped. One that the user has named stays, to find its partitions again.
    pub leaves: bool,
    /// True if every instance with the same transactional id has this name, too: then the group tells them apart.
    pub tells: bool,
}

/// The place of a group and its offsets beside the output: in another cluster than the records.
#[derive(Debug, Clone)]
pub struct ProgressPlace {
    /// The cluster of the output.
    pub cluster: Cluster,
    /// The first part of the names of the progress topics.
    pub prefix: String,
    /// True if partitions that they lack are made.
    pub creates: bool,
}

/// Beginnings of the properties of the source that are about the group, wherever it is.
const MEMBERSHIP: [&str; 5] =
    ["group.", "heartbeat.", "max.poll.", "session.timeout.ms", "topic.metadata.refresh.interval.ms"];

impl KafkaSourceConfig {
    /// The input of the instance that writes this output.
    ///
    /// The member of the group is named after the instance (static membership). After a crash it takes its partitions up again as soon
    /// as it is back, where the group would wait for the session timeout of a nameless one. When it is stopped, it leaves the group
    /// like any other. Without a name of ours: a member that the user has named, a name that brokers do not take, and
    /// `rebalance: consumer`, where brokers turn a second member of a name away until the first one's session has ended.
    ///
    /// Where the output is in another cluster, the group and its offsets are there.
    #[must_use]
    pub fn published_by(&self, sink: &KafkaSinkConfig) -> Self {
        let instance = sink.transactional_id.as_str();
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let takes = instance.len() <= MAX_MEMBER_NAME && instance.chars().all(legal) && !matches!(instance, "." | "..");
        let refuses_second = self.rebalance == Rebalance::Consumer;
        let member = match self.cluster.properties.get(MEMBER_NAME).map(|name| name.expose_secret().to_owned()) {
            // A name that is no part of the id may be another one on an instance with the same id.
            Some(name) => {
                let tells = !refuses_second && !name.is_empty() && instance.contains(&name);
                Some(Member { name, leaves: false, tells })
            }
            None => (takes && !refuses_second).then(|| Member { name: instance.to_owned(), leaves: true, tells: true }),
        };
        let progress = sink.progress.clone().map(|prefix| {
            let mut cluster = sink.cluster.clone();
            let of_group = |name: &str| MEMBERSHIP.iter().any(|start| name.starts_with(start));
            let ours = self.cluster.properties.iter().filter(|(name, _)| of_group(name));
            cluster.properties.extend(ours.map(|(name, value)| (name.clone(), value.clone())));
            ProgressPlace { cluster, prefix, creates: sink.create_topics }
        });
        Self { member, progress, ..self.clone() }
    }

    /// The same input after `route`: every record is in one topic.
    #[must_use]
    pub fn routed(&self, topic: &str) -> Self {
        let topics = vec![TopicRule { name: topic.to_owned(), placement: 0 }];
        // What is not routed yet is older than nothing: `route` has decided where to start.
        Self { topics, start: Start::Earliest, ..self.clone() }
    }

    /// The input of `route`, in a group of its own.
    #[must_use]
    pub fn before_route(&self, sink: &KafkaSinkConfig) -> Self {
        Self { group: format!("{}-route", self.group), ..self.clone() }.published_by(sink)
    }

    /// The cluster of the group and its offsets; also that of the output.
    pub fn group_cluster(&self) -> &Cluster {
        self.progress.as_ref().map_or(&self.cluster, |progress| &progress.cluster)
    }

    /// How often topics are looked for that fit a pattern: as often as clients look for partitions.
    pub fn looks_for_topics(&self) -> Duration {
        let own = self.cluster.properties.get("topic.metadata.refresh.interval.ms");
        let millis = own.and_then(|millis| millis.expose_secret().parse().ok()).unwrap_or(REFRESH_MS);
        Duration::from_millis(millis)
    }

    /// The longest time in which this member notices that another instance with its transactional id is in the group; `None` if its
    /// name does not tell.
    pub fn notices(&self) -> Option<Duration> {
        let own = self.cluster.properties.get("heartbeat.interval.ms");
        let heartbeat = own.and_then(|millis| millis.expose_secret().parse().ok()).unwrap_or(HEARTBEAT_MS);
        let tells = self.member.as_ref().is_some_and(|member| member.tells);
        tells.then(|| Duration::from_millis(2 * heartbeat) + RESEND)
    }
}

/// The output side.
#[derive(Debug, Clone)]
pub struct KafkaSinkConfig {
    /// The cluster.
    pub cluster: Cluster,
    /// Where the rows go.
    pub topic: String,
    /// Where the release manifests go.
    pub manifests: Option<String>,
    /// Where positions and codes of rejected records go.
    pub dead_letters: Option<String>,
    /// The journal of releases.
    pub journal: Option<JournalConfig>,
    /// Stable per instance: a second instance with the same id fences the first.
    pub transactional_id: String,
    /// How long a transaction may stay open before the broker aborts it.
    pub transaction_timeout: Duration,
    /// How messages are encoded.
    pub format: MessageFormat,
    /// Where the output's schema is registered, for [`MessageFormat::Confluent`].
    pub registry: Option<RegistryConfig>,
    /// Where the output is in another cluster than the input: the first part of the names of the progress topics.
    pub progress: Option<String>,
    /// The schema of the input, where there is one and it is not from a registry.
    pub input: Option<WriterSchema>,
    /// True if topics of the output that are missing are made at the start.
    pub create_topics: bool,
    /// The tables of the audiences, in topics of their own.
    pub audiences: Vec<AudienceTable<String>>,
    /// The bytes of rows that may wait to be sent, where memory is limited.
    pub unsent: Option<usize>,
}

/// Where routed records go.
#[derive(Debug, Clone)]
pub struct RouteTopics {
    /// The topic of the messages.
    pub routed: String,
    /// The topic of what is noted.
    pub state: String,
    /// How many partitions the routed topic gets if it is made here; as many as the input, if that is not said.
    pub partitions: Option<u32>,
}

impl KafkaSinkConfig {
    /// The output of `route`, by an instance beside the one of `run` that this is for. It is in the input's cluster.
    #[must_use]
    pub fn of_route(&self, source: &KafkaSourceConfig, topic: &str) -> Self {
        Self {
            cluster: source.cluster.clone(),
            topic: topic.to_owned(),
            manifests: None,
            dead_letters: None,
            journal: None,
            transactional_id: format!("{}-route", self.transactional_id),
            registry: None,
            progress: None,
            input: None,
            audiences: Vec::new(),
            ..self.clone()
        }
    }

    /// All topics of the output.
    pub fn topics(&self) -> impl Iterator<Item = &str> {
        let journal = self.journal.as_ref().map(|journal| journal.topic.as_str());
        let beside = [self.manifests.as_deref(), self.dead_letters.as_deref(), journal];
        let audiences = self.audiences.iter().flat_map(|table| [Some(&table.rows), table.manifests.as_ref()]);
        let audiences = audiences.flatten().map(String::as_str);
        std::iter::once(self.topic.as_str()).chain(beside.into_iter().flatten()).chain(audiences)
    }

    /// True for the topics of rows.
    pub fn has_rows(&self, topic: &str) -> bool {
        self.topic == topic || self.audiences.iter().any(|table| table.rows == topic)
    }

    /// True for the journal if later releases depend on it.
    pub fn remembers(&self, topic: &str) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.releases.is_some() && journal.topic == topic)
    }
}

impl Cluster {
    /// The key that the login is under.
    pub fn login_key(&self) -> LoginKey {
        let mechanism = self.properties.get("sasl.mechanism").map(|mechanism| mechanism.expose_secret());
        match self.login.as_deref() {
            Some(Login::Oidc(_)) => LoginKey::OAuth,
            Some(Login::Aws(_)) => LoginKey::Aws,
            None if mechanism == Some("GSSAPI") => LoginKey::Kerberos,
            None => LoginKey::Sasl,
        }
    }

    /// librdkafka's settings: ours first, then the user's on top.
    pub fn client(&self, ours: &[(&str, &str)]) -> ClientConfig {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", &self.brokers);
        for (key, value) in ours {
            client.set(*key, *value);
        }
        for (key, value) in &self.properties {
            client.set(key, value.expose_secret());
        }
        client
    }
}

/// The group's consumer. Where the records are in its cluster, it reads them too.
pub fn group_consumer(config: &KafkaSourceConfig, memory: usize) -> ClientConfig {
    let mut client = consumer(config.group_cluster(), config, memory);
    match config.rebalance {
        Rebalance::Range => client.set("partition.assignment.strategy", "range"),
        Rebalance::Cooperative => client.set("partition.assignment.strategy", "cooperative-sticky"),
        Rebalance::Consumer => client.set("group.protocol", "consumer"),
    };
    if let Some(member) = &config.member {
        client.set(MEMBER_NAME, &member.name);
    }
    client
}

/// The consumer of the records, where the group is in another cluster. It joins none.
pub fn record_consumer(config: &KafkaSourceConfig, memory: usize) -> ClientConfig {
    consumer(&config.cluster, config, memory)
}

/// A consumer that commits no offsets by itself, and to which an offset that is not in the log is an error, never a reset. `memory` bounds
/// what it fetches ahead: it asks for more while it holds less, so one answer of each broker comes on top.
fn consumer(cluster: &Cluster, config: &KafkaSourceConfig, memory: usize) -> ClientConfig {
    let kbytes = (memory / 1024).clamp(1024, 1 << 20).to_string();
    // Batches in it are compressed: unpacked they are ten times as much. A larger record comes alone.
    let answer = (memory / 16).clamp(1 << 16, 4 << 20).to_string();
    let mut client = cluster.client(&[
        // Fetched ahead. Larger: costs memory. Smaller: the window waits for the network.
        ("queued.max.messages.kbytes", &kbytes),
        // Because the client's own data about small messages is larger than they are.
        ("queued.min.messages", &(memory / 4096).clamp(1000, 100_000).to_string()),
        // After they were full. Larger: records that would have room wait; librdkafka's default is 1000. Smaller: wakes up more often.
        ("fetch.queue.backoff.ms", "20"),
        ("fetch.message.max.bytes", &answer),
        ("fetch.max.bytes", &answer),
        // The smallest `fetch.max.bytes` that the client allows.
        ("message.max.bytes", &answer),
        // Finds added partitions. Larger: their records wait. Smaller: brokers are asked more often.
        ("topic.metadata.refresh.interval.ms", &REFRESH_MS.to_string()),
        // Measures the lag. Larger: the metric is old. Smaller: costs time.
        ("statistics.interval.ms", "2000"),
    ]);
    client.set("group.id", &config.group);
    client.set("isolation.level", "read_committed");
    client.set("enable.auto.commit", "false");
    client.set("enable.auto.offset.store", "false");
    client.set("auto.offset.reset", "error");
    client.set("enable.partition.eof", "false");
    let resend = RESEND.as_millis().to_string();
    client.set("retry.backoff.ms", &resend).set("retry.backoff.max.ms", &resend);
    client
}

/// The memory of a consumer that reads few records. Larger: costs memory. Smaller: reads them in more requests.
const FEW: usize = 16 << 20;

/// The wait of a broker for more records, where records are read that are there already. Larger: the next question of the same consumer
/// waits behind it, and with it a restart; librdkafka's default is 500. Smaller: the end of a partition is asked for more often.
const FETCH_WAIT_MS: &str = "10";

/// A consumer outside the group, for reading the records of a plan again.
pub fn plain_consumer(config: &KafkaSourceConfig) -> ClientConfig {
    let mut client = record_consumer(config, FEW);
    client.set("enable.partition.eof", "true").set("fetch.wait.max.ms", FETCH_WAIT_MS);
    client
}

/// A consumer for single entries of the journal that stand outside transactions. It does not wait for transactions that others
/// have left open beside them.
pub fn journal_consumer(config: &KafkaSourceConfig) -> ClientConfig {
    let mut client = consumer(config.group_cluster(), config, FEW);
    client.set("enable.partition.eof", "true").set("isolation.level", "read_uncommitted");
    client.set("fetch.wait.max.ms", FETCH_WAIT_MS);
    client
}

/// The bytes of rows that wait to be sent, at most. Larger: costs memory. Smaller: a release waits for the network.
const MOST_UNSENT: usize = 32 << 20;
/// What the producer's own data about a message takes, with the header that names its release. Larger: fewer messages wait to be sent
/// than there is room for. Smaller: many small ones take more memory than they may.
const MESSAGE_OVERHEAD: usize = 512;

/// The transactional producer.
pub fn producer(config: &KafkaSinkConfig) -> ClientConfig {
    let timeout = config.transaction_timeout.as_millis().to_string();
    let unsent = config.unsent.unwrap_or(MOST_UNSENT).clamp(1 << 20, MOST_UNSENT);
    let mut client = config.cluster.client(&[
        ("linger.ms", "5"),
        ("compression.type", "lz4"),
        ("queue.buffering.max.messages", &(unsent / MESSAGE_OVERHEAD).to_string()),
        ("queue.buffering.max.kbytes", &(unsent / 1024).to_string()),
        // Reports of success are not needed: a failed delivery fails the transaction.
        ("delivery.report.only.error", "true"),
    ]);
    client.set("transactional.id", &config.transactional_id);
    client.set("transaction.timeout.ms", &timeout);
    client.set("enable.idempotence", "true");
    client
}
