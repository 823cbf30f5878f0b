//! `create_topics`: makes the output's topics that are missing.
//!
//! Rows get as many partitions as the input has, the other topics one. The number of replicas is the brokers' own default. The input's
//! topics are never made: an input that is missing is a misspelt name more often than a new one.

use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::runtime::Handle;

use crate::kafka::client::{KafkaSinkConfig, RouteTopics};
use crate::kafka::connection::ASK;
use crate::kafka::rebalance::{GroupConsumer, reader};
use crate::kafka::session::Session;
use crate::sink::SinkError;

/// The time for which the cluster may make topics. Larger: a start waits longer for brokers that do not answer. Smaller: a busy
/// cluster counts as one that refuses.
const MAKE: Duration = Duration::from_secs(30);
/// A day in milliseconds. Longer: raw records lie in one more place for longer. Shorter: what `run` has not read yet is deleted when it is
/// away over night.
const ROUTED_STAY: &str = "86400000";
/// As many replicas as the brokers' default.
const DEFAULT_REPLICAS: TopicReplication<'static> = TopicReplication::Fixed(-1);

/// Makes the topics of the output that the cluster does not have. Another instance may be doing the same.
pub(super) fn missing_topics(
    config: &KafkaSinkConfig,
    session: &Session,
    consumer: &GroupConsumer,
) -> Result<(), SinkError> {
    let missing = missing(config.topics(), consumer)?;
    if missing.is_empty() {
        return Ok(());
    }
    let read = input_partitions(session, consumer)?;
    let new = missing.into_iter().map(|topic| {
        let partitions = if config.has_rows(topic) { read.max(1) } else { 1 };
        let new = NewTopic::new(topic, partitions as i32, DEFAULT_REPLICAS).set("cleanup.policy", "delete");
        // What later releases depend on must not be deleted by its age.
        if config.remembers(topic) { new.set("retention.ms", "-1") } else { new }
    });
    make(config, &new.collect::<Vec<_>>())
}

/// Makes the topics of `route` that the cluster does not have.
pub(in crate::kafka) fn route_topics(
    config: &KafkaSinkConfig,
    session: &Session,
    consumer: &GroupConsumer,
    topics: &RouteTopics,
) -> Result<(), SinkError> {
    let missing = missing([topics.routed.as_str(), topics.state.as_str()].into_iter(), consumer)?;
    if missing.is_empty() {
        return Ok(());
    }
    let read = input_partitions(session, consumer)?.max(1) as i32;
    let new = missing.into_iter().map(|topic| {
        if topic == topics.routed {
            let partitions = topics.partitions.map_or(read, |partitions| partitions as i32);
            NewTopic::new(topic, partitions, DEFAULT_REPLICAS).set("retention.ms", ROUTED_STAY)
        } else {
            NewTopic::new(topic, read + 1, DEFAULT_REPLICAS).set("cleanup.policy", "compact")
        }
    });
    make(config, &new.collect::<Vec<_>>())
}

/// How many partitions a topic has; 0 if it is not there.
fn partitions(client: &GroupConsumer, topic: &str) -> Result<usize, SinkError> {
    let found = client.fetch_metadata(Some(topic), ASK).map_err(SinkError::Kafka)?;
    Ok(found.topics().first().map_or(0, |topic| topic.partitions().len()))
}

/// How many partitions the input has.
fn input_partitions(session: &Session, consumer: &GroupConsumer) -> Result<usize, SinkError> {
    session.topics.names().into_iter().map(|topic| partitions(reader(consumer), topic)).sum()
}

fn missing<'t>(topics: impl Iterator<Item = &'t str>, consumer: &GroupConsumer) -> Result<Vec<&'t str>, SinkError> {
    let mut missing = Vec::new();
    for topic in topics {
        if partitions(consumer, topic)? == 0 {
            missing.push(topic);
        }
    }
    Ok(missing)
}

fn make(config: &KafkaSinkConfig, new: &[NewTopic<'_>]) -> Result<(), SinkError> {
    let admin: AdminClient<DefaultClientContext> = config.cluster.client(&[]).create().map_err(SinkError::Kafka)?;
    let options = AdminOptions::new().operation_timeout(Some(MAKE));
    let made = Handle::current().block_on(admin.create_topics(new, &options)).map_err(SinkError::Kafka)?;
    for made in made {
        match made {
            Ok(topic) => tracing::info!(topic, "made a topic of the output"),
            Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((topic, RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::ClusterAuthorizationFailed)) => {
                return Err(SinkError::MayNotCreate(topic));
            }
            Err((_, code)) => return Err(SinkError::Kafka(KafkaError::AdminOp(code))),
        }
    }
    Ok(())
}
