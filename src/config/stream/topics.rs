//! Brokers and topics: names that Kafka takes, and no topic in two roles.

use crate::config::file::{At, shown};
use crate::config::raw::{RawBrokers, RawKafkaSource};
use crate::kafka::client::KafkaSourceConfig;
use crate::model::release::audience::AudienceTable;

/// Kafka's own limit.
const MAX_TOPIC_NAME: usize = 249;

/// The bootstrap addresses, separated by commas.
pub(super) fn brokers(raw: &RawBrokers, at: At<'_>) -> Option<String> {
    let list: Vec<&str> = match raw {
        RawBrokers::Text(text) => text.split(',').map(str::trim).collect(),
        RawBrokers::List(list) => list.iter().map(|broker| broker.trim()).collect(),
    };
    let port = |broker: &str| broker.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    let bad =
        |broker: &&str| broker.contains([',', ' ', '/', '@']) || !(broker.contains(':') && port(broker).is_some());
    match list.iter().find(|broker| bad(broker)) {
        Some(broker) => {
            let broker = if at.is_from_outside() { "a broker".into() } else { format!("`{}`", shown(broker)) };
            at.refuse(format!("{broker} is not an address: write HOST:PORT, such as localhost:9092"));
        }
        None if list.is_empty() => at.refuse("`brokers` is empty: write HOST:PORT, such as localhost:9092"),
        None => return Some(list.join(",")),
    }
    None
}

/// The topics to read.
pub(super) fn topics(raw: &RawKafkaSource, at: At<'_>) -> Option<Vec<String>> {
    if raw.topic.is_some() && raw.topics.is_some() {
        at.key("topic").refuse("`topic` and `topics` are both there: keep one");
        return None;
    }
    if let Some(topic) = &raw.topic {
        return legal_topic(topic, "topic", at).then(|| vec![topic.clone()]);
    }
    let Some(topics) = &raw.topics else {
        if !at.lost("topic") && !at.lost("topics") {
            at.refuse("the Kafka source has no topic: add `topic: NAME` or `topics: [NAME, NAME]`");
        }
        return None;
    };
    let list = at.key("topics");
    if topics.is_empty() && !at.lost("topics") {
        list.refuse("`topics` is empty: name at least one topic");
        return None;
    }
    let mut fine = !at.lost("topics");
    for (i, topic) in topics.iter().enumerate() {
        fine &= legal(topic, "topics", list.index(i));
        if topics[..i].contains(topic) {
            list.index(i).refuse(format!("the topic {} is listed twice: keep one", list.index(i).show(topic)));
            fine = false;
        }
    }
    fine.then(|| topics.clone())
}

/// Whether the name under `key` can be a topic's.
pub(super) fn legal_topic(name: &str, key: &str, at: At<'_>) -> bool {
    legal(name, key, at.key(key))
}

fn legal(name: &str, key: &str, at: At<'_>) -> bool {
    let letters = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    let remedy = if name.is_empty() {
        "name a topic"
    } else if !letters || matches!(name, "." | "..") {
        "use letters, digits, `.`, `_` and `-`"
    } else if name.len() > MAX_TOPIC_NAME {
        "write at most 249 characters"
    } else {
        return true;
    };
    at.refuse(format!("{} in `{key}` is no topic name: {remedy}", at.show(name)));
    false
}

/// Nothing is read and written at once, and every output has a topic of its own: readers could not tell them apart.
pub(super) fn different_topics(outputs: &[(&str, Option<&str>)], at: At<'_>, source: Option<&KafkaSourceConfig>) {
    for (i, (key, name)) in outputs.iter().enumerate() {
        let Some(name) = name else { continue };
        let shown = at.key(key).show(name);
        if source.is_some_and(|s| s.topics.iter().any(|input| input == name)) {
            at.key(key).refuse(format!(
                "`{key}` is {shown}, which the source reads: what is published would come in again; write another topic"
            ));
        }
        if let Some((other, _)) = outputs[..i].iter().find(|(_, other)| other.as_ref() == Some(name)) {
            at.key(key).refuse(format!("`{key}` is the same topic as `{other}`: write another one"));
        }
    }
}

/// The topics of the audiences are none of the others, and no two are the same.
pub(super) fn different_audiences(
    audiences: &[AudienceTable<String>],
    outputs: &[(&str, Option<&str>)],
    at: At<'_>,
    source: Option<&KafkaSourceConfig>,
) {
    let mut taken: Vec<&str> = outputs.iter().filter_map(|(_, name)| *name).collect();
    taken.extend(source.iter().flat_map(|source| source.topics.iter().map(String::as_str)));
    for (i, table) in audiences.iter().enumerate() {
        for (key, name) in [("topic", Some(&table.rows)), ("manifests", table.manifests.as_ref())] {
            let Some(name) = name else { continue };
            if taken.contains(&name.as_str()) {
                let at = at.index(i).key(key);
                at.refuse(format!("the topic {} has another use already: write another one", at.show(name)));
            }
            taken.push(name);
        }
    }
}
