//! What source and sink share on Kafka: how partitions are numbered, what a commit says, how far each partition is done.
//!
//! Kafka is the only state store. A commit holds the smallest offset still needed; its metadata says which offsets above
//! it are finished, which recoding was used last, and, while a release is being published, the plan of that release. What
//! takes more room, because later releases depend on who was shown, is in the [`journal`].

pub mod client;
pub mod complaints;
pub mod generate;
pub mod journal;
pub mod metadata;
pub mod output;
pub mod probe;
pub mod progress;
pub mod runs;
pub mod session;

use crate::model::event::Partition;

/// Which topic and partition a [`Partition`] number means; the same on every instance with the same topics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topics(Vec<String>);

/// More partitions than this in one topic cannot be numbered. Kafka clusters rarely pass a few thousand.
const PARTITION_BITS: u32 = 20;

impl Topics {
    /// Numbers by the sorted names, so that the order in the configuration does not matter.
    pub fn new(topics: impl IntoIterator<Item = String>) -> Self {
        let mut topics: Vec<String> = topics.into_iter().collect();
        topics.sort();
        topics.dedup();
        Self(topics)
    }

    /// The topics.
    pub fn names(&self) -> Vec<&str> {
        self.0.iter().map(String::as_str).collect()
    }

    /// The number of a topic's partition; `None` for a topic that is not ours.
    pub fn number(&self, topic: &str, partition: i32) -> Option<Partition> {
        let topic = self.0.iter().position(|t| t == topic)? as u32;
        let partition = u32::try_from(partition).ok().filter(|p| *p < 1 << PARTITION_BITS)?;
        Some(Partition(topic << PARTITION_BITS | partition))
    }

    /// The topic and partition of a number.
    pub fn place(&self, partition: Partition) -> Option<(&str, i32)> {
        let topic = self.0.get((partition.0 >> PARTITION_BITS) as usize)?;
        Some((topic, (partition.0 & ((1 << PARTITION_BITS) - 1)) as i32))
    }
}
