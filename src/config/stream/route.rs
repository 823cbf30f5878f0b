//! `route`: checks its sense, and builds what `veilstream route` and `run` need of it.

use std::time::Duration;

use super::positive;
use super::topics::{different_topics, legal_topic};
use crate::config::file::At;
use crate::config::raw::RawRoute;
use crate::config::{RouteConfig, SinkConfig, SourceConfig};

/// A day: records wait for minutes or hours, and people who come daily stay where they are.
const DEFAULT_STAYS: Duration = Duration::from_secs(24 * 3600);

/// Builds the `route` section.
pub(in crate::config) fn route(
    raw: &RawRoute,
    at: At<'_>,
    source: Option<&SourceConfig>,
    sink: Option<&SinkConfig>,
) -> Option<RouteConfig> {
    let topic = raw.topic.as_deref().filter(|topic| legal_topic(topic, "topic", at))?;
    let state = raw.state.clone().unwrap_or_else(|| format!("{topic}-state"));
    legal_topic(&state, "state", at).then_some(())?;
    let source = match source? {
        SourceConfig::Kafka(source) => source,
        _ => {
            at.refuse("records are routed from topic to topic: use a Kafka source, or remove `route`");
            return None;
        }
    };
    different_topics(&[("topic", Some(topic)), ("state", Some(&state))], at, Some(source));
    if let Some(SinkConfig::Kafka(sink)) = sink {
        for (key, name) in [("topic", topic), ("state", state.as_str())] {
            if sink.topics().any(|other| other == name) {
                at.key(key).refuse(format!("{} is a topic of the output: write another one", at.key(key).show(name)));
            }
        }
    }
    if source.placements.len() > 1 {
        at.refuse(
            "topics with fields of their own cannot be routed into one topic, where nobody could tell their records apart: route \
             them with a file each",
        );
    }
    let stays = positive(raw.stays, "stays", at).unwrap_or(DEFAULT_STAYS);
    Some(RouteConfig { topic: topic.to_owned(), state, partitions: raw.partitions, stays })
}
