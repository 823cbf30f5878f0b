//! The numbers of partitions: every instance with the same topics gives a topic's partition the same [`Partition`] number.

use std::collections::BTreeSet;

use rdkafka::topic_partition_list::TopicPartitionList;

use crate::model::event::Partition;

/// The bits of a number that hold the partition; the others hold the topic. Larger: fewer topics can be read together. Smaller:
/// topics with many partitions cannot be read. Clusters rarely have more than a few thousand partitions.
const PARTITION_BITS: u32 = 20;

/// The topics of the input, sorted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topics(Vec<String>);

impl Topics {
    /// Numbers by the sorted names, so that the order in the configuration does not matter.
    pub fn new(topics: impl IntoIterator<Item = String>) -> Self {
        let mut topics: Vec<String> = topics.into_iter().collect();
        topics.sort();
        topics.dedup();
        Self(topics)
    }

    /// The progress topics of these: the same numbers, under names that begin with `prefix`.
    #[must_use]
    pub fn progress(&self, prefix: &str) -> Self {
        Self(self.0.iter().map(|topic| format!("{prefix}-{topic}")).collect())
    }

    /// The names of the topics.
    pub fn names(&self) -> Vec<&str> {
        self.0.iter().map(String::as_str).collect()
    }

    /// The number of a topic's partition; `None` for a topic that is not ours.
    pub fn number(&self, topic: &str, partition: i32) -> Option<Partition> {
        let topic = self.0.iter().position(|t| t == topic)? as u32;
        let partition = u32::try_from(partition).ok().filter(|p| *p < 1 << PARTITION_BITS)?;
        Some(Partition(topic << PARTITION_BITS | partition))
    }

    /// The numbers of the partitions in a list.
    pub fn numbers(&self, list: &TopicPartitionList) -> BTreeSet<Partition> {
        list.elements().iter().filter_map(|element| self.number(element.topic(), element.partition())).collect()
    }

    /// A list of partitions without offsets.
    pub fn list(&self, partitions: impl IntoIterator<Item = Partition>) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        for (topic, partition) in partitions.into_iter().filter_map(|partition| self.place(partition)) {
            list.add_partition(topic, partition);
        }
        list
    }

    /// The topic and partition of a number.
    pub fn place(&self, partition: Partition) -> Option<(&str, i32)> {
        let topic = self.0.get((partition.0 >> PARTITION_BITS) as usize)?;
        Some((topic, (partition.0 & ((1 << PARTITION_BITS) - 1)) as i32))
    }
}
