//! What is in a topic now, read outside any group: for `profile` and `init`. Commits nothing and joins nothing, so running
//! instances are not disturbed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::kafka::client::Cluster;
use crate::kafka::client::login::{self, TokenContext};
use crate::kafka::connection::ASK;
use crate::model::event::{Event, Position};
use crate::source::BATCH;

/// The longest silence before the topic counts as read. Larger: a broker that is gone is noticed late. Smaller: a slow one is cut off.
const SILENCE: Duration = Duration::from_secs(20);

/// A topic that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    /// The cluster failed.
    #[error("kafka: {0}")]
    Kafka(String),
    /// There is no such topic.
    #[error("the topic {0} does not exist: check its name")]
    NoTopic(String),
}

impl From<KafkaError> for SampleError {
    fn from(error: KafkaError) -> Self {
        Self::Kafka(match &error {
            // The rest of it may quote a password.
            KafkaError::ClientConfig(_, _, key, _) => format!("the setting {key} is not taken"),
            other => other.to_string(),
        })
    }
}

/// Hands out the last `most` committed records of a topic, as many of each partition, up to the end that it had at the start.
/// Returns true if older records were left out.
///
/// # Errors
/// If the topic is not there or cannot be read.
pub fn for_each_batch<E: From<SampleError>>(
    cluster: &Cluster,
    topic: &str,
    most: u64,
    mut each: impl FnMut(Vec<Event>) -> Result<(), E>,
) -> Result<bool, E> {
    let consumer = consumer(cluster)?;
    let Starts { mut ends, list, left_out } = starts(&consumer, topic, most)?;
    consumer.assign(&list).map_err(SampleError::from)?;
    let (mut batch, mut heard) = (Vec::with_capacity(BATCH), Instant::now());
    while !ends.is_empty() {
        match consumer.poll(Duration::from_millis(200)) {
            Some(Ok(message)) => {
                heard = Instant::now();
                let (partition, offset) = (message.partition(), message.offset());
                if ends.get(&partition).is_some_and(|end| offset + 1 >= *end) {
                    ends.remove(&partition);
                }
                let payload = message.payload().map(bytes::Bytes::copy_from_slice);
                let position = Position::new(partition.unsigned_abs(), offset);
                batch.push(Event { position, placement: 0, timestamp: None, key: None, payload });
                if batch.len() >= BATCH {
                    each(std::mem::take(&mut batch))?;
                }
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => drop(ends.remove(&partition)),
            Some(Err(error)) => return Err(SampleError::from(error).into()),
            None if heard.elapsed() > SILENCE => {
                return Err(SampleError::Kafka("the brokers have stopped answering".into()).into());
            }
            None => {}
        }
    }
    each(batch)?;
    Ok(left_out)
}

fn consumer(cluster: &Cluster) -> Result<BaseConsumer<TokenContext>, SampleError> {
    let mut client = cluster.client(&[("fetch.message.max.bytes", "4194304")]);
    // A consumer needs a name for its group, also where it never joins.
    client.set("group.id", "veilstream-profile").set("enable.auto.commit", "false");
    client.set("isolation.level", "read_committed").set("enable.partition.eof", "true");
    client.set("auto.offset.reset", "earliest");
    Ok(login::reader(&client, cluster.login.as_ref())?)
}

/// Where to read, and how far.
struct Starts {
    ends: BTreeMap<i32, i64>,
    list: TopicPartitionList,
    left_out: bool,
}

fn starts(consumer: &BaseConsumer<TokenContext>, topic: &str, most: u64) -> Result<Starts, SampleError> {
    let metadata = consumer.fetch_metadata(Some(topic), ASK)?;
    let partitions: Vec<i32> =
        metadata.topics().iter().flat_map(|topic| topic.partitions()).map(|partition| partition.id()).collect();
    if partitions.is_empty() {
        return Err(SampleError::NoTopic(topic.to_owned()));
    }
    let each = i64::try_from(most / partitions.len() as u64).unwrap_or(i64::MAX).max(1);
    let mut starts = Starts { ends: BTreeMap::new(), list: TopicPartitionList::new(), left_out: false };
    for partition in partitions {
        let (low, high) = consumer.fetch_watermarks(topic, partition, ASK)?;
        let from = low.max(high.saturating_sub(each));
        starts.left_out |= from > low;
        if high > from {
            starts.ends.insert(partition, high);
            starts.list.add_partition_offset(topic, partition, Offset::Offset(from))?;
        }
    }
    Ok(starts)
}
