//! `route`: what few lines give, who reads and writes what, and what is refused.

use super::*;
use crate::kafka::client::{Start, TopicRule};

const SOURCE: &str = "source: { kafka: { brokers: 'localhost:9092', topic: people, group: veil, start: latest } }\n";
const SINK: &str = "sink: { kafka: { topic: safe, transactional_id: one, manifests: told } }\n";

fn with(route: &str) -> String {
    policy(&format!("{SOURCE}{SINK}route: {{ {route} }}\n"))
}

#[test]
fn run_reads_what_route_writes_and_each_has_names_of_its_own() {
    let config = load(&with("topic: routed")).unwrap();
    let route = config.route.unwrap();
    assert_eq!((route.topic.as_str(), route.state.as_str(), route.partitions), ("routed", "routed-state", None));
    assert_eq!(route.stays, Duration::from_secs(24 * 3600));
    let (SourceConfig::Kafka(source), SinkConfig::Kafka(sink)) = (config.source, config.sink) else { panic!() };
    let after = source.routed(&route.topic);
    assert_eq!(after.topics, [TopicRule { name: "routed".into(), placement: 0 }]);
    assert_eq!((after.group.as_str(), after.start), ("veil", Start::Earliest), "what is routed is wanted");
    let output = sink.of_route(&source, &route.topic);
    assert_eq!(output.topics().collect::<Vec<_>>(), ["routed"]);
    assert_eq!(output.transactional_id, "one-route");
    let before = source.before_route(&output);
    assert_eq!((before.group.as_str(), before.start, &before.topics), ("veil-route", Start::Latest, &source.topics));
    assert_eq!(before.member.map(|member| member.name).as_deref(), Some("one-route"));
    let config = load(&with("topic: routed, state: kept, partitions: 8, stays: 2h")).unwrap();
    let all = RouteConfig {
        topic: "routed".into(),
        state: "kept".into(),
        partitions: Some(8),
        stays: Duration::from_secs(7200),
    };
    assert_eq!(config.route, Some(all));
    assert!(load(&policy("")).unwrap().route.is_none());
}

#[test]
fn what_makes_no_sense_is_refused() {
    for (route, words) in [
        ("topic: people", "which the source reads"),
        ("topic: safe", "a topic of the output"),
        ("topic: routed, state: told", "a topic of the output"),
        ("topic: routed, state: routed", "the same topic as `topic`"),
        ("topic: 'no name'", "no topic name"),
        ("topic: routed, stays: 0s", "`stays` is zero"),
        ("topic: routed, partitions: 0", "partitions"),
        ("state: kept", "topic"),
    ] {
        let found = problems(&with(route));
        assert!(found.iter().any(|problem| problem.contains(words)), "{route}: {found:?}");
    }
    let found = problems(&policy("route: { topic: routed }\n"));
    assert!(found.iter().any(|problem| problem.contains("use a Kafka source")), "{found:?}");
    let placed =
        with("topic: routed").replace("topic: people", "topics: [people, { name: others, fields: { age: years } }]");
    let found = problems(&placed);
    assert!(found.iter().any(|problem| problem.contains("cannot be routed into one topic")), "{found:?}");
}
