//! Brokers and topics: names that Kafka takes, and no topic in two roles.

use std::collections::BTreeMap;

use super::placement;
use crate::config::file::{At, shown};
use crate::config::raw::{RawBrokers, RawKafkaSource, RawPlacedTopic, RawTopic};
use crate::kafka::client::{KafkaSourceConfig, TopicRule};
use crate::kafka::topics::matches;
use crate::model::release::audience::AudienceTable;
use crate::model::schema::{Placement, Schema};

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

/// The topics to read, and the placements that they name. The first placement is that of topics without one of their own.
pub(super) fn topics(
    raw: &RawKafkaSource,
    at: At<'_>,
    schema: Option<&Schema>,
) -> Option<(Vec<TopicRule>, Vec<Placement>)> {
    let own = placement::build(&BTreeMap::new(), raw.explode.as_deref(), at, schema);
    if raw.topic.is_some() && raw.topics.is_some() {
        at.key("topic").refuse("`topic` and `topics` are both there: keep one");
        return None;
    }
    if let Some(topic) = &raw.topic {
        let rule = TopicRule { name: topic.clone(), placement: 0 };
        return legal_topic(topic, "topic", at).then_some((vec![rule], vec![own?]));
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
    let (mut rules, mut placements) = (Vec::new(), vec![own?]);
    for (i, topic) in topics.iter().enumerate() {
        let (at, name) = (list.index(i), topic.name());
        fine &= legal(&name.replace('*', "x"), name, "topics", at);
        if topics[..i].iter().any(|other| other.name() == name) {
            at.refuse(format!("the topic {} is listed twice: keep one", at.show(name)));
            fine = false;
        }
        let mut placement = 0;
        if let RawTopic::Placed(RawPlacedTopic { fields, explode, .. }) = topic {
            let explode = explode.as_deref().or(raw.explode.as_deref());
            match placement::build(fields, explode, at, schema) {
                Some(placed) => {
                    placement = placements.len();
                    placements.push(placed);
                }
                None => fine = false,
            }
        }
        rules.push(TopicRule { name: name.to_owned(), placement });
    }
    fine.then_some((rules, placements))
}

/// Whether the name under `key` can be a topic's.
pub(super) fn legal_topic(name: &str, key: &str, at: At<'_>) -> bool {
    legal(name, name, key, at.key(key))
}

/// Whether `name` is legal, which a message shows as it is `written`.
fn legal(name: &str, written: &str, key: &str, at: At<'_>) -> bool {
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
    at.refuse(format!("{} in `{key}` is no topic name: {remedy}", at.show(written)));
    false
}

/// Whether the source reads a topic, also by a pattern.
fn reads(source: &KafkaSourceConfig, topic: &str) -> bool {
    source.topics.iter().any(|rule| matches(&rule.name, topic))
}

/// Nothing is read and written at once, and every output has a topic of its own: readers could not tell them apart.
pub(super) fn different_topics(outputs: &[(&str, Option<&str>)], at: At<'_>, source: Option<&KafkaSourceConfig>) {
    for (i, (key, name)) in outputs.iter().enumerate() {
        let Some(name) = name else { continue };
        let shown = at.key(key).show(name);
        if source.is_some_and(|s| reads(s, name)) {
            at.key(key).refuse(format!(
                "`{key}` is {shown}, which the source reads: published rows would come in again; write another topic"
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
    for (i, table) in audiences.iter().enumerate() {
        for (key, name) in [("topic", Some(&table.rows)), ("manifests", table.manifests.as_ref())] {
            let Some(name) = name else { continue };
            if taken.contains(&name.as_str()) || source.is_some_and(|source| reads(source, name)) {
                let at = at.index(i).key(key);
                at.refuse(format!("the topic {} has another use already: write another one", at.show(name)));
            }
            taken.push(name);
        }
    }
}
