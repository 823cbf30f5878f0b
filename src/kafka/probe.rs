//! `validate --connect`: asks cluster and registry, with the configured settings, whether the pipeline could run.
//!
//! It changes nothing: it joins no group, writes no record, and its producer has an id of its own, because the configured one would
//! fence a running instance. So it does not prove write access to the topics. Every question has a time limit, and findings hold
//! no secret.

pub mod sample;

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::admin::{AdminClient, AdminOptions, ConfigResource, ResourceSpecifier};
use rdkafka::client::{DefaultClientContext, OAuthToken};
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::producer::{BaseProducer, Producer, ProducerContext};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::runtime::Handle;

use super::client::login::{self, Login};
use super::client::{self, Cluster, KafkaSinkConfig, KafkaSourceConfig, MessageFormat, RegistryConfig};
use super::connection::{TWO_CLUSTERS, are_two, is_decided, remedy};
use super::progress::commit::MAX_BYTES;
use super::sink::output::value_subject;
use super::topics::{self, Topics};
use crate::codec::registry::Registry;
use crate::codec::schemas::SchemaLanguage;
use crate::model::schema::Schema;

/// Events taken between two attempts to reach a cluster. Larger: costs nothing. Smaller: errors of an attempt are left behind.
const EVENTS: usize = 64;
/// The time for reaching the cluster. Larger: a wrong address is told late. Smaller: a slow network counts as gone.
const CONNECT: Duration = Duration::from_secs(15);
/// The time limit of one question. Larger: a broker that is gone is told late. Smaller: a busy one counts as gone.
const ASK: Duration = Duration::from_secs(10);
/// The time limit of one attempt, after which connection errors are looked at. Larger: a wrong password is told late. Smaller: more
/// attempts on a slow network.
const ATTEMPT: Duration = Duration::from_millis(500);
/// The role of a topic that the service makes if it is missing.
const MADE: &str = "the sink writes and makes";

/// Who has to act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The configuration does not fit what is there: exit code 2.
    Configuration,
    /// Something outside is missing, refuses or does not answer: exit code 3.
    Outside,
}

/// One thing that keeps the pipeline from running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Who has to act.
    pub blame: Blame,
    /// What is wrong and what to do: lowercase, no period.
    pub message: String,
}

/// Everything that would keep the pipeline from running, with the topics that `route` writes if it has that stage. Blocks; the runtime
/// behind `handle` does the rest.
pub fn probe(
    source: &KafkaSourceConfig,
    sink: &KafkaSinkConfig,
    routed: &[&str],
    schema: &Schema,
    handle: &Handle,
) -> Vec<Finding> {
    let mut probe = Probe { findings: Vec::new(), handle };
    let source = &source.published_by(sink);
    let input = probe.input(source);
    if let Some(input) = &input {
        let role = if sink.create_topics { MADE } else { "`route` writes" };
        for topic in routed {
            probe.partitions(input, topic, role, &source.cluster);
        }
    }
    let same = sink.cluster.brokers == source.cluster.brokers;
    if input.is_some() || !same {
        probe.output(source, sink, input.as_ref());
    }
    probe.registries(source, sink, schema);
    probe.findings
}

struct Probe<'a> {
    findings: Vec<Finding>,
    handle: &'a Handle,
}

type Asker = BaseConsumer<Ears>;

impl Probe<'_> {
    fn outside(&mut self, message: impl Into<String>) {
        self.findings.push(Finding { blame: Blame::Outside, message: message.into() });
    }

    fn configuration(&mut self, message: impl Into<String>) {
        self.findings.push(Finding { blame: Blame::Configuration, message: message.into() });
    }

    /// Whether the input can be read; `None` if the cluster cannot be reached.
    fn input(&mut self, config: &KafkaSourceConfig) -> Option<Asker> {
        let asker = self.connect(&config.cluster, &client::plain_consumer(config))?;
        let mut list = TopicPartitionList::new();
        for topic in &self.topics_of(config, &asker) {
            if self.partitions(&asker, topic, "the source reads", &config.cluster).is_some() {
                // From the end on: whether we may read is the question, not what.
                let _ = list.add_partition_offset(topic, 0, Offset::End);
            }
        }
        if list.count() > 0 {
            if config.progress.is_none() {
                self.group(&asker, &list, config);
            }
            self.read(&asker, &list);
        }
        Some(asker)
    }

    /// Whether the group's offsets can be read.
    fn group(&mut self, asker: &Asker, list: &TopicPartitionList, config: &KafkaSourceConfig) {
        if let Err(error) = committed(asker, list) {
            self.outside(format!(
                "the offsets of the group `{}` cannot be read ({}): allow this user to read the group",
                config.group,
                told(&error)
            ));
        }
    }

    /// The topics to read, and those that are there now for a pattern. A pattern that finds none may find one later.
    fn topics_of(&mut self, config: &KafkaSourceConfig, asker: &Asker) -> Vec<String> {
        let topics = Topics::new(config.topics.iter().cloned());
        if topics.has_patterns() {
            let there = asker.fetch_metadata(None, ASK).map(|there| {
                let there: Vec<String> = there.topics().iter().map(|topic| topic.name().to_owned()).collect();
                topics.find(there.iter().map(String::as_str))
            });
            match there {
                Ok(Ok(_)) => {}
                Ok(Err(same)) => self.configuration(same.to_string()),
                Err(error) => self.outside(format!("the topics of the cluster cannot be listed ({})", told(&error))),
            }
        }
        topics.names().into_iter().map(str::to_owned).collect()
    }

    /// Reads from the end of each topic: access is only checked when something is fetched.
    fn read(&mut self, asker: &Asker, list: &TopicPartitionList) {
        let mut waiting: BTreeSet<String> = list.elements().iter().map(|e| e.topic().to_owned()).collect();
        if let Err(error) = asker.assign(list) {
            self.outside(format!("the input cannot be read ({})", told(&error)));
            return;
        }
        let started = Instant::now();
        let mut ended = 0;
        while ended < waiting.len() && started.elapsed() < ASK {
            match asker.poll(ATTEMPT) {
                Some(Ok(message)) => {
                    use rdkafka::Message as _;
                    waiting.remove(message.topic());
                }
                Some(Err(KafkaError::PartitionEOF(_))) => ended += 1,
                Some(Err(error)) if error.rdkafka_error_code() == Some(Code::TopicAuthorizationFailed) => {
                    self.outside("a topic of the source may not be read: allow this user to read it");
                    return;
                }
                Some(Err(_)) | None => {}
            }
        }
        if ended < waiting.len() {
            self.outside("the input cannot be fetched: check that every partition has a leader");
        }
        let _ = asker.unassign();
    }

    /// Whether the output can be written in transactions.
    fn output(&mut self, source: &KafkaSourceConfig, config: &KafkaSinkConfig, input: Option<&Asker>) {
        let settings = match &source.progress {
            Some(_) => client::journal_consumer(source),
            None => config.cluster.client(&[]),
        };
        let Some(asker) = self.connect(&config.cluster, &settings) else { return };
        if source.progress.is_some() {
            self.progress(source, input, &asker);
        } else if let Some(input) = input
            && source.cluster.brokers != config.cluster.brokers
            && are_two(input.client(), asker.client())
        {
            self.configuration(TWO_CLUSTERS);
        }
        let role = if config.create_topics { MADE } else { "the sink writes" };
        let there: Vec<&str> =
            config.topics().filter(|topic| self.partitions(&asker, topic, role, &config.cluster).is_some()).collect();
        self.settings(&asker, config, &there);
        self.transactions(config);
    }

    /// Whether the progress topics have the partitions of the input, and the group's offsets can be read.
    fn progress(&mut self, source: &KafkaSourceConfig, input: Option<&Asker>, asker: &Asker) {
        let (Some(place), Some(input)) = (&source.progress, input) else { return };
        let inputs = Topics::new(source.topics.clone());
        let shared = inputs.progress(&place.prefix);
        let count = |asker: &Asker, topic: &str| {
            let found = asker.fetch_metadata(Some(topic), ASK).ok();
            found.and_then(|found| found.topics().first().map(|topic| topic.partitions().len())).unwrap_or(0)
        };
        let mut list = TopicPartitionList::new();
        for (topic, progress) in inputs.names().into_iter().zip(shared.names()) {
            let (wanted, there) = (count(input, topic), count(asker, progress));
            if there > 0 {
                list.add_partition(progress, 0);
            }
            if wanted > 0 && wanted != there && (there > wanted || !place.creates) {
                let change = if there == 0 { "create" } else { "alter" };
                self.outside(format!(
                    "the progress topic `{progress}` has {there} partitions and `{topic}` has {wanted}: make them as many, for example \
                     by kafka-topics.sh --bootstrap-server {} --{change} --topic {progress} --partitions {wanted}",
                    place.cluster.brokers
                ));
            }
        }
        if list.count() > 0 {
            self.group(asker, &list, source);
        }
    }

    /// What the broker and the topics are set to. Not everybody may ask, and clients that log in by token cannot; then the producer
    /// finds out.
    fn settings(&mut self, asker: &Asker, config: &KafkaSinkConfig, topics: &[&str]) {
        if config.cluster.login.is_some() {
            return;
        }
        let Ok(admin) = config.cluster.client(&[]).create::<AdminClient<DefaultClientContext>>() else { return };
        let broker = asker.fetch_metadata(topics.first().copied(), ASK).ok();
        let broker = broker.and_then(|m| m.brokers().first().map(|b| ResourceSpecifier::Broker(b.id())));
        let mut wanted: Vec<ResourceSpecifier<'_>> = topics.iter().map(|t| ResourceSpecifier::Topic(t)).collect();
        wanted.extend(broker);
        let options = AdminOptions::new().request_timeout(Some(ASK));
        // Asked for one by one: one that is denied must not hide the others.
        for resource in &wanted {
            let described = self.handle.block_on(admin.describe_configs([resource], &options));
            let Some(found) = described.ok().and_then(|mut all| all.pop()).and_then(Result::ok) else { continue };
            match resource {
                ResourceSpecifier::Broker(_) => self.broker(&found, config),
                ResourceSpecifier::Topic(topic) => self.topic(&found, topic),
                ResourceSpecifier::Group(_) => {}
            }
        }
    }

    fn broker(&mut self, found: &ConfigResource, config: &KafkaSinkConfig) {
        let number = |name: &str| found.get(name).and_then(|e| e.value.as_ref()?.parse::<u128>().ok());
        let timeout = config.transaction_timeout.as_millis();
        if let Some(most) = number("transaction.max.timeout.ms").filter(|most| timeout > *most) {
            self.configuration(format!(
                "`transaction_timeout` is {timeout}ms and the brokers allow {most}ms (transaction.max.timeout.ms): write a \
                 shorter one, or raise theirs"
            ));
        }
        if let Some(most) = number("offset.metadata.max.bytes").filter(|most| *most < MAX_BYTES as u128) {
            self.outside(format!(
                "the brokers keep {most} bytes of metadata with an offset, and release plans need up to {MAX_BYTES}: raise \
                 offset.metadata.max.bytes"
            ));
        }
    }

    fn topic(&mut self, found: &ConfigResource, topic: &str) {
        let policy = found.get("cleanup.policy").and_then(|e| e.value.as_deref()).unwrap_or_default();
        if policy.contains("compact") {
            self.outside(format!(
                "the topic `{topic}` is compacted, and brokers refuse messages without a key there; keys would identify \
                 people: set cleanup.policy=delete"
            ));
        }
    }

    fn transactions(&mut self, config: &KafkaSinkConfig) {
        let mut own = config.clone();
        own.transactional_id.push_str("-validate");
        let created: Result<BaseProducer<Ears>, _> =
            client::producer(&own).create_with_context(Ears::new(&config.cluster));
        let producer = match created {
            Ok(producer) => Arc::new(producer),
            Err(error) => {
                return self.outside(format!("no producer can be made with these settings ({})", told(&error)));
            }
        };
        login::keep_fresh(&producer, config.cluster.login.as_ref());
        if let Err(error) = producer.init_transactions(ASK) {
            let message = match error.rdkafka_error_code() {
                Some(Code::TransactionalIdAuthorizationFailed) => format!(
                    "this user may not write as `{}`: allow transactional ids that begin with `{}`",
                    own.transactional_id, config.transactional_id
                ),
                Some(Code::InvalidTransactionTimeout) => {
                    let message = "`transaction_timeout` is longer than the brokers allow (transaction.max.timeout.ms): write a \
                                   shorter one, or raise theirs";
                    // Told by the broker's settings already, if they could be read.
                    if !self.findings.iter().any(|f| f.message.starts_with("`transaction_timeout`")) {
                        self.configuration(message);
                    }
                    return;
                }
                _ => format!(
                    "no transaction can be begun ({}): check that the brokers' transaction state topic has its replicas",
                    told(&error)
                ),
            };
            self.outside(message);
        }
    }

    /// A client that has reached the cluster.
    fn connect(&mut self, cluster: &Cluster, settings: &ClientConfig) -> Option<Asker> {
        let asker: Asker = match settings.create_with_context(Ears::new(cluster)) {
            Ok(asker) => asker,
            Err(error) => {
                self.outside(format!("no client can be made with these settings ({})", told(&error)));
                return None;
            }
        };
        let started = Instant::now();
        loop {
            // A topic that nobody has: the question is whether somebody answers.
            let answer = asker.client().fetch_metadata(Some("veilstream-validate"), ATTEMPT);
            let Err(error) = answer else { return Some(asker) };
            // Errors of connections are heard while polling, one event a time, and log lines stand in the same queue.
            for _ in 0..EVENTS {
                if let Some(Err(error)) = asker.poll(Duration::ZERO) {
                    asker.context().hear(&error, "");
                }
            }
            let heard = asker.context().worst();
            let decided = heard.as_ref().is_some_and(|(code, _)| is_decided(*code));
            if decided || started.elapsed() > CONNECT {
                let remedy = remedy(heard.as_ref().map(|(code, _)| *code), cluster.login_key());
                let heard = heard.map_or_else(|| told(&error), |(_, reason)| reason);
                self.outside(format!("the cluster at {} cannot be used: {remedy} ({heard})", cluster.brokers));
                return None;
            }
        }
    }

    /// How many partitions a topic has; `None` if it cannot be used.
    fn partitions(&mut self, asker: &Asker, topic: &str, role: &str, cluster: &Cluster) -> Option<usize> {
        let metadata = match asker.fetch_metadata(Some(topic), ASK) {
            Ok(metadata) => metadata,
            Err(error) => {
                self.outside(format!("the topic `{topic}`, which {role}, cannot be looked up ({})", told(&error)));
                return None;
            }
        };
        let found = metadata.topics().iter().find(|t| t.name() == topic);
        let error = found.and_then(|t| t.error()).map(Code::from);
        match (error, found.map_or(0, |t| t.partitions().len())) {
            (None, partitions) if partitions > 0 => return Some(partitions),
            (Some(Code::TopicAuthorizationFailed), _) => {
                self.outside(format!("the topic `{topic}`, which {role}, is denied to this user: allow it"));
            }
            (None | Some(Code::UnknownTopicOrPartition | Code::UnknownTopic), _) if role == MADE => {}
            (None | Some(Code::UnknownTopicOrPartition | Code::UnknownTopic), _) => {
                self.outside(format!(
                    "the topic `{topic}`, which {role}, does not exist: create it, for example by kafka-topics.sh \
                     --bootstrap-server {} --create --topic {topic}",
                    cluster.brokers
                ));
            }
            (Some(code), _) => self.outside(format!("the topic `{topic}`, which {role}, cannot be used ({code})")),
        }
        None
    }

    fn registries(&mut self, source: &KafkaSourceConfig, sink: &KafkaSinkConfig, schema: &Schema) {
        let used = |format: &MessageFormat| matches!(format, MessageFormat::Confluent(_));
        let reads = source.registry.as_ref().filter(|_| used(&source.format));
        let writes = sink.registry.as_ref().filter(|_| used(&sink.format));
        if let (Some(config), MessageFormat::Confluent(language)) = (reads, &source.format)
            && let Some(registry) = self.registry(config)
        {
            for rule in source.topics.iter().filter(|rule| !topics::is_pattern(&rule.name)) {
                let placed = source.placements.get(rule.placement).map(|placement| schema.placed(placement));
                self.input_schema(&registry, &rule.name, *language, placed.as_ref().unwrap_or(schema));
            }
        }
        if let Some(config) = writes.filter(|w| reads.is_none_or(|r| r.url != w.url)) {
            self.registry(config);
        }
    }

    fn registry(&mut self, config: &RegistryConfig) -> Option<Registry> {
        let registry = config.client();
        let answer = self.handle.block_on(registry.check()).map(|()| registry);
        answer.map_err(|error| self.outside(format!("{error}: {} does not serve", config.url))).ok()
    }

    /// The latest schema of a topic should have the fields that the policy names.
    fn input_schema(&mut self, registry: &Registry, topic: &str, language: SchemaLanguage, schema: &Schema) {
        let subject = value_subject(topic);
        match self.handle.block_on(registry.latest(&subject, language)) {
            Ok(Some(writer)) => {
                if let Err(error) = writer.check(schema) {
                    self.configuration(format!("the latest schema of `{subject}` does not fit the policy: {error}"));
                }
            }
            // Other namings of subjects are fine: messages name their schemas by id.
            Ok(None) => {}
            Err(error) => self.outside(format!("the latest schema of `{subject}` cannot be had: {error}")),
        }
    }
}

/// The group's offsets. A coordinator that moves or loads says so for a moment, and is asked again.
fn committed(asker: &Asker, list: &TopicPartitionList) -> Result<TopicPartitionList, KafkaError> {
    let started = Instant::now();
    loop {
        match asker.committed_offsets(list.clone(), ASK) {
            Err(error) if passing(&error) && started.elapsed() < ASK => std::thread::sleep(ATTEMPT),
            answer => return answer,
        }
    }
}

fn passing(error: &KafkaError) -> bool {
    let code = error.rdkafka_error_code();
    matches!(code, Some(Code::NotCoordinator | Code::CoordinatorLoadInProgress | Code::CoordinatorNotAvailable))
}

/// An error in words. What librdkafka says of a setting may quote its value, so only the name is told.
fn told(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, _, key, _) => format!("the setting {key} is not taken"),
        other => other.rdkafka_error_code().map_or_else(|| other.to_string(), |code| code.to_string()),
    }
}

/// Hears what librdkafka says of connections, which is more than its calls return.
struct Ears {
    heard: Mutex<Vec<(Code, String)>>,
    login: Option<Arc<Login>>,
}

impl Ears {
    fn new(cluster: &Cluster) -> Self {
        Self { heard: Mutex::default(), login: cluster.login.clone() }
    }

    fn hear(&self, error: &KafkaError, reason: &str) {
        let Some(code) = error.rdkafka_error_code() else { return };
        let reason = if reason.is_empty() { code.to_string() } else { reason.to_owned() };
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).push((code, reason));
    }

    /// What says most: a refusal rather than a connection that went away.
    fn worst(&self) -> Option<(Code, String)> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let vague = |code: Code| matches!(code, Code::AllBrokersDown | Code::OperationTimedOut);
        let find = |wanted: &dyn Fn(Code) -> bool| heard.iter().find(|(code, _)| wanted(*code)).cloned();
        find(&is_decided).or_else(|| find(&|code| !vague(code))).or_else(|| heard.first().cloned())
    }
}

impl ClientContext for Ears {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, _config: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        login::token(self.login.as_ref())
    }

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(?level, facility, message, "librdkafka");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.hear(&error, reason);
    }
}

impl ConsumerContext for Ears {}

impl ProducerContext for Ears {
    type DeliveryOpaque = ();

    fn delivery(&self, _result: &rdkafka::producer::DeliveryResult<'_>, _opaque: ()) {}
}
