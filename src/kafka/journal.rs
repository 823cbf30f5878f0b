//! The journal: which records each release finished, for operators, and which records it shows, for the next owner. Both name
//! records by position only; nobody learns a value or a hash of one here.
//!
//! - [`JournalEntry`](crate::model::release::manifest::JournalEntry), written in the transaction of the release: the records that
//!   it finished. Together these entries account for every record of the input (I1).
//! - [`ShownEntry`], written before the plan is committed, where later releases depend on the people that earlier ones show: the
//!   shown records. The plan, then the commit, contain its offset. An entry that no commit names belongs to a release that was
//!   never published. The new owner reads the input again at these positions.
//!
//! Deliberately absent: reading the journal from its beginning.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::topic_partition_list::{Offset as KafkaOffset, TopicPartitionList};
use serde::{Deserialize, Serialize};

use super::client::Cluster;
use super::client::login::TokenContext;
use super::progress::{packed, runs_text};
use super::topics::Topics;
use crate::model::release::plan::PlannedChanges;
use crate::model::release::row_levels::RowLevels;
use crate::model::release::spans::Spans;

/// The time limit for writing or reading an entry. Larger: a hang is noticed late. Smaller: brokers that are only slow cost an
/// entry that no commit names.
const APPEND: Duration = Duration::from_secs(20);
/// The wait of one poll for an entry. Larger: a rebalance is answered late. Smaller: burns a core.
const POLL: Duration = Duration::from_millis(50);
/// The partition of all entries, so that an offset names an entry.
pub(super) const PARTITION: i32 = 0;
const VERSION: u32 = 1;

/// The records that a release shows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShownEntry {
    /// The release's number.
    pub id: u64,
    /// The policy's fingerprint.
    pub fingerprint: String,
    /// Level per quasi-identifier.
    pub levels: Vec<u8>,
    /// The records.
    pub shown: Spans,
    /// The levels of each of them by position, where every record has its own.
    pub row_levels: Option<RowLevels>,
    /// Where releases are a changelog: how the release changes the reader's snapshot.
    pub changes: Option<PlannedChanges>,
}

#[derive(Serialize, Deserialize)]
struct Text {
    version: u32,
    release: String,
    policy: String,
    levels: Vec<u8>,
    shown: Vec<Part>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rows: Option<RowsText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    changes: Option<ChangesText>,
}

/// How a release changes the reader's snapshot.
#[derive(Serialize, Deserialize)]
struct ChangesText {
    base: Option<String>,
    left: Vec<Part>,
    rows: u64,
}

impl ChangesText {
    fn of(changes: &PlannedChanges, topics: &Topics) -> Self {
        let base = changes.base.map(|base| format!("{base:016x}"));
        Self { base, left: parts(&changes.left, topics), rows: changes.rows }
    }

    fn parse(self, topics: &Topics) -> Option<PlannedChanges> {
        let base = self.base.map(|base| u64::from_str_radix(&base, 16)).transpose().ok()?;
        Some(PlannedChanges { base, left: spans(&self.left, topics)?, rows: self.rows })
    }
}

/// The combinations of levels that occur, and that of each record.
#[derive(Serialize, Deserialize)]
struct RowsText {
    levels: Vec<Vec<u8>>,
    packed: String,
}

impl RowsText {
    fn of(levels: &RowLevels) -> Self {
        Self { levels: levels.combinations().to_vec(), packed: packed::write(levels.rows()) }
    }

    fn parse(self) -> Option<RowLevels> {
        RowLevels::from_parts(self.levels, packed::parse(&self.packed)?)
    }
}

#[derive(Serialize, Deserialize)]
struct Part {
    topic: String,
    partition: i32,
    /// As in a commit's metadata.
    offsets: String,
}

impl ShownEntry {
    /// The message of the entry.
    pub fn to_text(&self, topics: &Topics) -> Result<String, serde_json::Error> {
        let text = Text {
            version: VERSION,
            release: format!("{:016x}", self.id),
            policy: self.fingerprint.clone(),
            levels: self.levels.clone(),
            shown: parts(&self.shown, topics),
            rows: self.row_levels.as_ref().map(RowsText::of),
            changes: self.changes.as_ref().map(|changes| ChangesText::of(changes, topics)),
        };
        serde_json::to_string(&text)
    }

    /// The entry that [`ShownEntry::to_text`] wrote for the same topics or some of them; `None` for any other text.
    pub fn parse(text: &[u8], topics: &Topics) -> Option<Self> {
        let text: Text = serde_json::from_slice(text).ok()?;
        (text.version == VERSION).then_some(())?;
        let row_levels = match text.rows {
            Some(rows) => Some(rows.parse()?),
            None => None,
        };
        let changes = match text.changes {
            Some(changes) => Some(changes.parse(topics)?),
            None => None,
        };
        Some(Self {
            id: u64::from_str_radix(&text.release, 16).ok()?,
            fingerprint: text.policy,
            levels: text.levels,
            shown: spans(&text.shown, topics)?,
            row_levels,
            changes,
        })
    }
}

fn parts(records: &Spans, topics: &Topics) -> Vec<Part> {
    let part = |(partition, runs)| {
        let (topic, partition) = topics.place(partition)?;
        Some(Part { topic: topic.to_owned(), partition, offsets: runs_text::write(runs, 0) })
    };
    records.iter().filter_map(part).collect()
}

fn spans(parts: &[Part], topics: &Topics) -> Option<Spans> {
    let part = |part: &Part| Some((topics.number(&part.topic, part.partition)?, runs_text::parse(&part.offsets, 0)?));
    parts.iter().map(part).collect::<Option<Vec<_>>>().map(Spans::from_runs)
}

/// Writes [`ShownEntry`]s.
pub struct Journal {
    producer: FutureProducer<TokenContext>,
    topic: String,
}

impl Journal {
    /// A writer to this topic. Sends nothing yet.
    pub fn open(cluster: &Cluster, topic: &str) -> Result<Self, KafkaError> {
        let timeout = APPEND.as_millis().to_string();
        let mut client = cluster.client(&[("linger.ms", "0"), ("compression.type", "lz4")]);
        client.set("enable.idempotence", "true");
        client.set("message.timeout.ms", timeout);
        let producer = client.create_with_context(TokenContext::new(cluster.login.as_ref()))?;
        Ok(Self { producer, topic: topic.to_owned() })
    }

    /// Writes the text of an entry; returns its offset.
    pub async fn append(&self, text: &str) -> Result<i64, KafkaError> {
        let record = FutureRecord::<(), str>::to(&self.topic).partition(PARTITION).payload(text);
        let delivery = self.producer.send(record, APPEND).await.map_err(|(error, _)| error)?;
        Ok(delivery.offset)
    }
}

/// Reads the entry at `offset`; `None` if it is gone or is not ours. Calls `meanwhile` before every poll, which may end the
/// reading.
pub fn read<E: From<KafkaError>>(
    consumer: &BaseConsumer<TokenContext>,
    topic: &str,
    offset: i64,
    topics: &Topics,
    mut meanwhile: impl FnMut() -> Result<(), E>,
) -> Result<Option<ShownEntry>, E> {
    let mut at = TopicPartitionList::new();
    at.add_partition_offset(topic, PARTITION, KafkaOffset::Offset(offset))?;
    consumer.assign(&at)?;
    let started = Instant::now();
    loop {
        meanwhile()?;
        match consumer.poll(POLL) {
            Some(Ok(message)) => {
                let text = message.payload().filter(|_| message.offset() == offset);
                return Ok(text.and_then(|text| ShownEntry::parse(text, topics)));
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

/// True if the offset is not in the log any more, or not yet.
fn is_gone(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(error.rdkafka_error_code(), Some(Code::AutoOffsetReset | Code::OffsetOutOfRange))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::client::TopicRule;
    use crate::model::event::Position;
    use proptest::prelude::*;

    fn rule(name: &str) -> TopicRule {
        TopicRule { name: name.to_owned(), placement: 0 }
    }

    fn topics() -> Topics {
        Topics::new(["people", "more"].map(rule))
    }

    proptest! {
        #[test]
        fn comes_back_as_it_was(
            shown in prop::collection::vec((0u32..2, 0i32..3, 0i64..1 << 50), 0..80),
            levels in prop::collection::vec(any::<u8>(), 0..9),
            id in any::<u64>(),
            base in prop::option::of(prop::option::of(any::<u64>())),
            rows in prop::option::of(prop::collection::vec(prop::collection::vec(any::<u8>(), 2), 0..9)),
        ) {
            let topics = topics();
            let place = |(topic, partition, offset): &(u32, i32, i64)| {
                let partition = topics.number(topics.names()[*topic as usize], *partition).unwrap();
                Position { partition, offset: crate::model::event::Offset(*offset) }
            };
            let shown = Spans::covering(shown.iter().map(place));
            let left = Spans::covering(shown.iter().take(1).flat_map(|(partition, runs)| {
                runs.offsets().map(move |o| Position { partition, offset: crate::model::event::Offset(o) })
            }).take(3));
            let changes = base.map(|base| PlannedChanges { base, left, rows: id });
            let row_levels = rows.map(RowLevels::new);
            let entry = ShownEntry { id, fingerprint: "00ff".into(), levels, shown, row_levels, changes };
            prop_assert_eq!(ShownEntry::parse(entry.to_text(&topics).unwrap().as_bytes(), &topics), Some(entry));
        }

        #[test]
        fn odd_text_is_refused_and_never_panics(text in "\\{?[ -~]{0,80}\\}?") {
            prop_assert_eq!(ShownEntry::parse(text.as_bytes(), &topics()), None);
        }
    }

    #[test]
    fn an_entry_about_a_topic_that_is_not_ours_is_not_ours() {
        let shown = Spans::covering([Position::new(0, 7)]);
        let entry = ShownEntry { shown, ..ShownEntry::default() };
        let text = entry.to_text(&topics()).unwrap();
        assert_eq!(ShownEntry::parse(text.as_bytes(), &Topics::new([rule("others")])), None);
    }
}
