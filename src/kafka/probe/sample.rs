//! `validate --sample TOPIC`: the newest messages of a topic, read outside the group. Nothing is committed or written.

use std::time::{Duration, Instant};

use rdkafka::Message as _;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::kafka::client::{self, KafkaSourceConfig, login};

/// The time limit of the whole sample. Larger: a broker that is gone is told late. Smaller: a slow one gives a small sample.
const LIMIT: Duration = Duration::from_secs(20);
/// The longest wait for one message. Larger: costs nothing. Smaller: more empty rounds.
const POLL: Duration = Duration::from_millis(200);

/// Calls `each` with the payloads of the newest messages of `topic`, at most about `most` of them.
pub fn sample(
    config: &KafkaSourceConfig,
    topic: &str,
    most: usize,
    mut each: impl FnMut(&[u8]),
) -> Result<(), KafkaError> {
    let consumer = login::reader(&client::plain_consumer(config), config.cluster.login.as_ref())?;
    let metadata = consumer.fetch_metadata(Some(topic), LIMIT)?;
    let partitions: Vec<i32> = metadata.topics().iter().flat_map(|t| t.partitions()).map(|p| p.id()).collect();
    let share = i64::try_from(most.div_ceil(partitions.len().max(1))).unwrap_or(i64::MAX);
    let mut list = TopicPartitionList::new();
    for partition in &partitions {
        let (first, next) = consumer.fetch_watermarks(topic, *partition, LIMIT)?;
        list.add_partition_offset(topic, *partition, Offset::Offset(first.max(next - share)))?;
    }
    consumer.assign(&list)?;
    let (started, mut ended) = (Instant::now(), 0);
    while ended < partitions.len() && started.elapsed() < LIMIT {
        match consumer.poll(POLL) {
            Some(Ok(message)) => message.payload().into_iter().for_each(&mut each),
            Some(Err(KafkaError::PartitionEOF(_))) => ended += 1,
            Some(Err(error)) => return Err(error),
            None => {}
        }
    }
    Ok(())
}
