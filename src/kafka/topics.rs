//! The topics of the input, and the numbers of their partitions.
//!
//! Every instance gives a topic's partition the same [`Partition`] number, because plans in the commit metadata name partitions by it.
//! A topic that the configuration names is numbered by its place among these names. A topic that was found by a pattern is numbered
//! by a hash of its name, so that topics that come later change no number.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use rdkafka::topic_partition_list::TopicPartitionList;

use super::client::TopicRule;
use crate::model::event::Partition;

/// The bits of a number that hold the partition; the others hold the topic. Larger: fewer bits are left to tell topics apart. Smaller:
/// topics with many partitions cannot be read. Clusters rarely have more than a few thousand partitions.
const PARTITION_BITS: u32 = 20;
/// The bits of the hash of a topic's name. Larger: numbers do not fit where offsets do. Smaller: two topics have the same number
/// more often; among a thousand topics the chance is one in ten million.
const HASH_BITS: u32 = 42;
/// The names that no pattern finds, unless it begins like this itself: Kafka's own topics.
const INTERNAL: &str = "__";

/// The topics of the input.
#[derive(Debug, Clone, Default)]
pub struct Topics {
    /// Those with names, sorted.
    named: Vec<TopicRule>,
    patterns: Vec<TopicRule>,
    found: Arc<RwLock<Vec<Found>>>,
}

/// A topic that was found by a pattern. It is never forgotten: records may wait in it.
#[derive(Debug, Clone, Copy)]
struct Found {
    id: u64,
    name: &'static str,
    placement: usize,
}

/// Two topics whose names have the same hash.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the topics {0} and {1} cannot be read together, because their names have the same hash: name one of them in `topics`"
)]
pub struct SameHash(String, String);

impl Topics {
    /// Numbers named topics by their sorted names, so that the order in the configuration does not matter.
    pub fn new(rules: impl IntoIterator<Item = TopicRule>) -> Self {
        let (patterns, mut named): (Vec<_>, Vec<_>) = rules.into_iter().partition(|rule| is_pattern(&rule.name));
        named.sort_by(|a, b| a.name.cmp(&b.name));
        named.dedup_by(|a, b| a.name == b.name);
        Self { named, patterns, found: Arc::default() }
    }

    /// The progress topics of these: the same numbers, under names that begin with `prefix`. Patterns have none.
    #[must_use]
    pub fn progress(&self, prefix: &str) -> Self {
        let named = |rule: &TopicRule| TopicRule { name: format!("{prefix}-{}", rule.name), ..rule.clone() };
        Self { named: self.named.iter().map(named).collect(), ..Self::default() }
    }

    /// True if topics are found by patterns.
    pub fn has_patterns(&self) -> bool {
        !self.patterns.is_empty()
    }

    /// Takes in the names of topics that the cluster has; true if there are new ones among them that are to be read.
    pub fn find<'a>(&self, there: impl IntoIterator<Item = &'a str>) -> Result<bool, SameHash> {
        let mut new = false;
        for name in there {
            let rule = self.patterns.iter().find(|rule| matches(&rule.name, name));
            let Some(rule) = rule.filter(|_| self.named.iter().all(|named| named.name != name)) else { continue };
            let mut found = self.found.write().unwrap_or_else(PoisonError::into_inner);
            match found.iter().find(|found| found.id == hash(name)) {
                Some(same) if same.name == name => {}
                Some(same) => return Err(SameHash(same.name.to_owned(), name.to_owned())),
                None => {
                    // Lent to everybody who asks for the topic's place, for as long as the process lives.
                    let kept: &'static str = String::from(name).leak();
                    found.push(Found { id: hash(name), name: kept, placement: rule.placement });
                    new = true;
                }
            }
        }
        Ok(new)
    }

    /// The names of the topics, as far as they have been found.
    pub fn names(&self) -> Vec<&str> {
        let found = self.found().iter().map(|found| found.name).collect::<Vec<_>>();
        self.named.iter().map(|rule| rule.name.as_str()).chain(found).collect()
    }

    /// The number of a topic's partition; `None` for a topic that is not ours.
    pub fn number(&self, topic: &str, partition: i32) -> Option<Partition> {
        let id = match self.named.iter().position(|rule| rule.name == topic) {
            Some(place) => place as u64,
            None => self.found().iter().find(|found| found.name == topic)?.id,
        };
        let partition = u64::try_from(partition).ok().filter(|p| *p < 1 << PARTITION_BITS)?;
        Some(Partition(id << PARTITION_BITS | partition))
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
        let id = partition.0 >> PARTITION_BITS;
        let topic = match self.named.get(id as usize) {
            Some(rule) => rule.name.as_str(),
            None => self.found().iter().find(|found| found.id == id)?.name,
        };
        Some((topic, (partition.0 & ((1 << PARTITION_BITS) - 1)) as i32))
    }

    /// The placement of the records of a partition.
    pub fn placement(&self, partition: Partition) -> usize {
        let id = partition.0 >> PARTITION_BITS;
        let found = || self.found().iter().find(|found| found.id == id).map(|found| found.placement);
        self.named.get(id as usize).map(|rule| rule.placement).or_else(found).unwrap_or(0)
    }

    fn found(&self) -> RwLockReadGuard<'_, Vec<Found>> {
        self.found.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True for a name that stands for several topics.
pub fn is_pattern(name: &str) -> bool {
    name.contains('*')
}

/// Whether a topic is one of those that a pattern stands for: `*` is any run of characters.
pub fn matches(pattern: &str, topic: &str) -> bool {
    if topic.starts_with(INTERNAL) && !pattern.starts_with(INTERNAL) {
        return false;
    }
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == topic };
    let Some(mut left) = topic.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(last)
}

/// FNV-1a of a topic's name, the same in every build; never a number that a named topic can have.
fn hash(name: &str) -> u64 {
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3u64));
    (hash ^ hash >> HASH_BITS) & ((1 << HASH_BITS) - 1) | 1 << (HASH_BITS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(name: &str, placement: usize) -> TopicRule {
        TopicRule { name: name.to_owned(), placement }
    }

    #[test]
    fn a_star_is_any_run_of_characters() {
        for (pattern, topic, expected) in [
            ("people-*", "people-eu", true),
            ("people-*", "people-", true),
            ("people-*", "people", false),
            ("*-people", "eu-people", true),
            ("shop.*.orders.*", "shop.eu.orders.v1", true),
            ("shop.*.orders.*", "shop.orders.v1", false),
            ("a*a", "a", false),
            ("a*b*c", "a-b-b-c", true),
            ("*", "__consumer_offsets", false),
            ("__t*", "__transaction_state", true),
            ("people", "people", true),
            ("people", "people-eu", false),
        ] {
            assert_eq!(matches(pattern, topic), expected, "{pattern} {topic}");
        }
    }

    #[test]
    fn numbers_do_not_depend_on_what_is_found_when() {
        let [one, other] = [0, 1].map(|_| Topics::new([rule("people-*", 0), rule("people-eu", 1), rule("a", 2)]));
        assert_eq!(one.number("people-us", 3), None, "not found yet");
        assert_eq!(one.find(["people-us", "b"]), Ok(true));
        assert_eq!(
            one.find(["people-us", "people-eu"]),
            Ok(false),
            "nothing new: a name in the configuration comes first"
        );
        assert_eq!(other.find(["people-asia", "people-us"]), Ok(true));
        assert_eq!(one.names(), ["a", "people-eu", "people-us"]);
        for (topic, placement) in [("people-us", 0), ("people-eu", 1), ("a", 2)] {
            let number = one.number(topic, 7).unwrap();
            assert_eq!((other.number(topic, 7), one.place(number)), (Some(number), Some((topic, 7))));
            assert_eq!(one.placement(number), placement);
            assert!(i64::try_from(number.0).is_ok(), "plans list numbers as they list offsets");
        }
        let stranger = other.number("people-asia", 0).unwrap();
        assert_eq!((one.number("b", 0), one.place(stranger)), (None, None));
        assert_eq!(one.number("a", 1 << 20), None);
    }
}
