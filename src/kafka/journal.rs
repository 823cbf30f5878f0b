//! The journal, for operators and for whoever takes over. It holds two kinds of entries, both by position.
//!
//! Which records each release finished ([`JournalEntry`](crate::model::release::manifest::JournalEntry)) is written in the transaction of the
//! release: together these entries account for every record of the input. Which records a release shows ([`Entry`]) is written
//! where later releases must know: before the plan of its release is committed; the plan, then the commit, say where it
//! stands. An entry that no commit speaks of belongs to a release that never was. Entries hold positions and levels, never a
//! value or a hash of one: who was shown is read from the input again. Deliberately absent: any reading from the beginning.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::topic_partition_list::{Offset as KafkaOffset, TopicPartitionList};
use serde::{Deserialize, Serialize};

use super::Topics;
use super::client::Cluster;
use super::runs::Runs;
use crate::model::release::spans::Spans;

/// How long an entry may take to be written. Longer: a hang is noticed late. Shorter: brokers that are only slow cost an
/// entry that nobody speaks of.
const APPEND: Duration = Duration::from_secs(20);
/// How long one poll for an entry waits.
const POLL: Duration = Duration::from_millis(50);
/// Entries of all releases are in one partition, whose offsets name them.
pub(crate) const PARTITION: i32 = 0;
const VERSION: u32 = 1;

/// What a release shows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    /// The release's number.
    pub id: u64,
    /// The policy's fingerprint.
    pub fingerprint: String,
    /// Level per quasi-identifier.
    pub levels: Vec<u8>,
    /// The records.
    pub shown: Spans,
}

#[derive(Serialize, Deserialize)]
struct Text {
    version: u32,
    release: String,
    policy: String,
    levels: Vec<u8>,
    shown: Vec<Part>,
}

#[derive(Serialize, Deserialize)]
struct Part {
    topic: String,
    partition: i32,
    /// As in a commit's metadata.
    offsets: String,
}

impl Entry {
    /// The message of it.
    pub fn to_text(&self, topics: &Topics) -> String {
        let part = |(partition, spans)| {
            let (topic, partition) = topics.place(partition)?;
            Some(Part { topic: topic.to_owned(), partition, offsets: Runs::from_spans(spans).to_text(0) })
        };
        let text = Text {
            version: VERSION,
            release: format!("{:016x}", self.id),
            policy: self.fingerprint.clone(),
            levels: self.levels.clone(),
            shown: self.shown.iter().filter_map(part).collect(),
        };
        serde_json::to_string(&text).unwrap_or_default()
    }

    /// What [`Entry::to_text`] wrote, by the same topics or more; `None` if it is anything else.
    pub fn parse(text: &[u8], topics: &Topics) -> Option<Self> {
        let text: Text = serde_json::from_slice(text).ok()?;
        let part = |part: &Part| {
            let spans = Runs::parse(&part.offsets, 0)?.spans().collect();
            Some((topics.number(&part.topic, part.partition)?, spans))
        };
        let shown: Option<Vec<_>> = text.shown.iter().map(part).collect();
        (text.version == VERSION).then_some(())?;
        Some(Self {
            id: u64::from_str_radix(&text.release, 16).ok()?,
            fingerprint: text.policy,
            levels: text.levels,
            shown: Spans::from_runs(shown?),
        })
    }
}

/// Writes entries.
pub struct Journal {
    producer: FutureProducer,
    topic: String,
}

impl Journal {
    /// Nothing is sent yet.
    pub fn open(cluster: &Cluster, topic: &str) -> Result<Self, KafkaError> {
        let timeout = APPEND.as_millis().to_string();
        let mut client = cluster.client(&[("linger.ms", "0"), ("compression.type", "lz4")]);
        client.set("enable.idempotence", "true");
        client.set("message.timeout.ms", timeout);
        Ok(Self { producer: client.create()?, topic: topic.to_owned() })
    }

    /// Writes an entry; returns where it stands.
    pub async fn append(&self, entry: &Entry, topics: &Topics) -> Result<i64, KafkaError> {
        let text = entry.to_text(topics);
        let record = FutureRecord::<(), str>::to(&self.topic).partition(PARTITION).payload(&text);
        let delivery = self.producer.send(record, APPEND).await.map_err(|(error, _)| error)?;
        Ok(delivery.offset)
    }
}

/// The entry at `offset`; `None` if it is gone, or is none of ours. `meanwhile` is called before every poll, and may end the
/// reading.
pub fn read<E: From<KafkaError>>(
    consumer: &BaseConsumer,
    topic: &str,
    offset: i64,
    topics: &Topics,
    mut meanwhile: impl FnMut() -> Result<(), E>,
) -> Result<Option<Entry>, E> {
    let mut at = TopicPartitionList::new();
    at.add_partition_offset(topic, PARTITION, KafkaOffset::Offset(offset))?;
    consumer.assign(&at)?;
    let started = Instant::now();
    loop {
        meanwhile()?;
        match consumer.poll(POLL) {
            Some(Ok(message)) => {
                let text = message.payload().filter(|_| message.offset() == offset);
                return Ok(text.and_then(|text| Entry::parse(text, topics)));
            }
            Some(Err(KafkaError::PartitionEOF(_))) => return Ok(None),
            Some(Err(error)) if is_gone(&error) => return Ok(None),
            _ if started.elapsed() > APPEND => {
                return Err(KafkaError::MessageConsumption(RDKafkaErrorCode::OperationTimedOut).into());
            }
            _ => {}
        }
    }
}

/// True if the log does not reach to the offset any more, or not yet.
fn is_gone(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(error.rdkafka_error_code(), Some(Code::AutoOffsetReset | Code::OffsetOutOfRange))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::event::Position;
    use proptest::prelude::*;

    fn topics() -> Topics {
        Topics::new(["people".to_owned(), "more".to_owned()])
    }

    proptest! {
        #[test]
        fn comes_back_as_it_was(
            shown in prop::collection::vec((0u32..2, 0i32..3, 0i64..1 << 50), 0..80),
            levels in prop::collection::vec(any::<u8>(), 0..9),
            id in any::<u64>(),
        ) {
            let topics = topics();
            let place = |(topic, partition, offset): &(u32, i32, i64)| {
                let partition = topics.number(topics.names()[*topic as usize], *partition).unwrap();
                Position { partition, offset: crate::model::event::Offset(*offset) }
            };
            let shown = Spans::covering(shown.iter().map(place));
            let entry = Entry { id, fingerprint: "00ff".into(), levels, shown };
            prop_assert_eq!(Entry::parse(entry.to_text(&topics).as_bytes(), &topics), Some(entry));
        }

        #[test]
        fn odd_text_is_refused_and_never_panics(text in "\\{?[ -~]{0,80}\\}?") {
            prop_assert_eq!(Entry::parse(text.as_bytes(), &topics()), None);
        }
    }

    #[test]
    fn an_entry_about_a_topic_that_is_not_ours_is_not_ours() {
        let shown = Spans::covering([Position::new(0, 7)]);
        let entry = Entry { shown, ..Entry::default() };
        let text = entry.to_text(&topics());
        assert_eq!(Entry::parse(text.as_bytes(), &Topics::new(["others".to_owned()])), None);
    }
}
