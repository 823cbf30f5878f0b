//! The state topic of `route`: compacted, written in the transactions of the batches, read by whoever takes partitions over.
//!
//! | key | text | partition |
//! |---|---|---|
//! | `map` | the last [`DistrictMap`] as JSON | 0 |
//! | `TOPIC/PARTITION/HASH` | the outlet of somebody whose records come from that partition, and when it was noted | one of the others, by that number |
//!
//! Whoever takes a partition over reads what was noted about its people. It waits until every transaction that was open at that time has
//! ended, so that it knows what the owner before has committed. A hash is of a subject's name: the topic needs the input's access rules.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::district::DistrictMap;
use crate::kafka::client::Cluster;
use crate::kafka::client::login::{self, TokenContext};
use crate::kafka::connection::{ASK, patiently};
use crate::model::event::{Millis, Partition};
use crate::source::SourceError;

/// The partition of the map.
pub const MAP_PARTITION: i32 = 0;
const MAP_KEY: &str = "map";
/// How long open transactions and silent brokers are waited for. Larger: a cluster that is gone is noticed late. Smaller: a transaction
/// that a dead instance has left open (up to its timeout, 60 s by default) ends the process.
const PATIENCE: Duration = Duration::from_secs(90);
/// The pause between two looks at open transactions. Larger: an assignment starts late. Smaller: brokers are asked more often.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// The wait of one poll. Larger and smaller: nothing changes, a message ends it.
const POLL: Duration = Duration::from_millis(100);

/// The partition, of so many, with the people of a partition of the input. The map stands alone where it can, for it is read often.
pub(super) fn of_partition(number: i32, partitions: i32) -> i32 {
    if partitions > 1 { 1 + number % (partitions - 1) } else { MAP_PARTITION }
}

/// What is noted in the transaction of a batch.
#[derive(Debug, Clone, PartialEq)]
pub enum Note {
    /// A new map.
    Map(DistrictMap),
    /// The outlet of somebody.
    Home {
        /// The partition of the input that the person's records come from.
        partition: Partition,
        /// Its name.
        name: String,
        /// The hash of the person's name.
        person: u64,
        /// The outlet.
        home: Home,
    },
}

/// The outlet of somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Home {
    /// The outlet.
    pub outlet: u32,
    /// A time at which the person was seen, by the messages' own time.
    pub seen: Millis,
}

impl Note {
    /// The key of its message.
    pub(super) fn key(&self) -> String {
        match self {
            Self::Map(_) => MAP_KEY.to_owned(),
            Self::Home { name, person, .. } => format!("{name}/{person:016x}"),
        }
    }

    /// The text of its message.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Map(map) => serde_json::json!(map).to_string(),
            Self::Home { home, .. } => format!("{} {}", home.outlet, home.seen.0),
        }
    }

    /// The partition of the input that it belongs to.
    pub(super) fn home(&self) -> Option<Partition> {
        match self {
            Self::Map(_) => None,
            Self::Home { partition, .. } => Some(*partition),
        }
    }
}

/// Reads the state topic.
pub struct StateReader {
    topic: String,
    committed: BaseConsumer<TokenContext>,
    /// Sees the ends of partitions with the transactions that are open.
    open: BaseConsumer<TokenContext>,
}

impl StateReader {
    /// A reader outside any group.
    pub fn open(cluster: &Cluster, topic: &str) -> Result<Self, SourceError> {
        let consumer = |isolation: &str| {
            let mut client = cluster.client(&[("fetch.message.max.bytes", "4194304")]);
            // A consumer needs a name for its group, also where it never joins.
            client.set("group.id", "veilstream-route-state").set("enable.auto.commit", "false");
            client.set("isolation.level", isolation).set("enable.partition.eof", "true");
            client.set("auto.offset.reset", "earliest");
            login::reader(&client, cluster.login.as_ref())
        };
        let (committed, open) = (consumer("read_committed")?, consumer("read_uncommitted")?);
        Ok(Self { topic: topic.to_owned(), committed, open })
    }

    /// The last map, if there is one.
    pub fn map(&self) -> Result<Option<DistrictMap>, SourceError> {
        let mut map = None;
        self.read([MAP_PARTITION].into(), |key, text| {
            if key == MAP_KEY {
                map = serde_json::from_str(text).ok();
            }
        })?;
        Ok(map)
    }

    /// Hands out what was noted about the people of a partition of the input with this name.
    pub fn homes(
        &self,
        names: &BTreeMap<String, i32>,
        mut each: impl FnMut(&str, u64, Home),
    ) -> Result<(), SourceError> {
        self.read(names.values().copied().collect(), |key, text| {
            let home = || {
                let (name, person) = key.rsplit_once('/').filter(|(name, _)| names.contains_key(*name))?;
                let (outlet, seen) = text.split_once(' ')?;
                let home = Home { outlet: outlet.parse().ok()?, seen: Millis(seen.parse().ok()?) };
                Some((name, u64::from_str_radix(person, 16).ok()?, home))
            };
            if let Some((name, person, home)) = home() {
                each(name, person, home);
            }
        })
    }

    /// Reads partitions from their beginning to the end that they have now, open transactions included.
    fn read(&self, mut partitions: Vec<i32>, mut each: impl FnMut(&str, &str)) -> Result<(), SourceError> {
        partitions.sort_unstable();
        partitions.dedup();
        let started = Instant::now();
        let mut list = TopicPartitionList::new();
        let mut unread = BTreeMap::new();
        for partition in partitions {
            // A topic that was just made has no leader for a moment.
            let ends = |reader: &BaseConsumer<_>| patiently(|| reader.fetch_watermarks(&self.topic, partition, ASK));
            let (low, high) = ends(&self.open)?;
            while ends(&self.committed)?.1 < high {
                if started.elapsed() > PATIENCE {
                    return Err(SourceError::Reread);
                }
                std::thread::sleep(LOOK_AGAIN);
            }
            if high > low {
                list.add_partition_offset(&self.topic, partition, Offset::Offset(low))?;
                unread.insert(partition, high);
            }
        }
        self.committed.assign(&list)?;
        let mut heard = Instant::now();
        while !unread.is_empty() {
            match self.committed.poll(POLL) {
                Some(Ok(message)) => {
                    heard = Instant::now();
                    if unread.get(&message.partition()).is_some_and(|end| message.offset() + 1 >= *end) {
                        unread.remove(&message.partition());
                    }
                    let text = |bytes: Option<&'_ [u8]>| bytes.and_then(|bytes| String::from_utf8(bytes.to_vec()).ok());
                    if let (Some(key), Some(text)) = (text(message.key()), text(message.payload())) {
                        each(&key, &text);
                    }
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => drop(unread.remove(&partition)),
                Some(Err(error)) => tracing::debug!(%error, "the state topic"),
                None if heard.elapsed() > PATIENCE => return Err(SourceError::Reread),
                None => {}
            }
        }
        Ok(self.committed.unassign()?)
    }
}
