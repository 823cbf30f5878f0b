//! Kafka sections: what ten lines give, what is refused, and that no secret is ever shown.

use super::*;
use crate::codec::schemas::SchemaLanguage;
use crate::kafka::client::{
    KafkaSinkConfig, KafkaSourceConfig, MessageFormat, OnGap, Start, TopicRule, group_consumer, journal_consumer,
    producer, record_consumer,
};

const SOURCE: &str = "source: { kafka: { brokers: 'localhost:9092', topic: people, group: veil } }\n";
const SINK: &str = "sink: { kafka: { topic: safe } }\n";

fn both(config: Config) -> (KafkaSourceConfig, KafkaSinkConfig) {
    match (config.source, config.sink) {
        (SourceConfig::Kafka(source), SinkConfig::Kafka(sink)) => (*source, *sink),
        other => panic!("{other:?}"),
    }
}

fn kafka(yaml: &str) -> (KafkaSourceConfig, KafkaSinkConfig) {
    both(load(yaml).unwrap())
}

/// The source of [`SOURCE`] with more keys, on line 7, and the sink, on line 8.
fn with_source(more: &str) -> String {
    policy(&format!("{}{SINK}", SOURCE.replace("group: veil", &format!("group: veil, {more}"))))
}

/// The source, on line 7, and the sink of [`SINK`] with more keys, on line 8.
fn with_sink(more: &str) -> String {
    policy(&format!("{SOURCE}{}", SINK.replace("topic: safe", &format!("topic: safe, {more}"))))
}

#[test]
fn ten_lines_are_enough() {
    let yaml = "policy:\n  quasi_identifiers:\n    - { name: age, hierarchy: { intervals: { widths: [5, 10], min: 0, max: 120 } } }\n    - { \
                name: zip, hierarchy: { prefix: { length: 5 } } }\n  subject: user_id\n  privacy: [{ k-anonymity: 5 }]\nsource:\n  kafka: { \
                brokers: localhost:9092, topic: people, group: veilstream }\nsink:\n  kafka: { topic: people-safe }\n";
    assert_eq!(yaml.lines().count(), 10);
    let (source, sink) = kafka(yaml);
    let people = TopicRule { name: "people".to_owned(), placement: 0 };
    assert_eq!((source.topics, source.group.as_str()), (vec![people], "veilstream"));
    assert_eq!((source.start, source.on_gap, source.format), (Start::Earliest, OnGap::Stop, MessageFormat::Json));
    assert_eq!((sink.cluster.brokers.as_str(), sink.topic.as_str()), ("localhost:9092", "people-safe"));
    assert_eq!(sink.manifests.as_deref(), Some("people-safe-manifests"));
    assert_eq!(sink.dead_letters.as_deref(), Some("people-safe-dead-letters"));
    assert!(sink.transactional_id.starts_with("veilstream-") && sink.transactional_id.len() > 11);
    assert_eq!((sink.transaction_timeout, sink.format), (Duration::from_secs(60), MessageFormat::Json));
}

#[test]
fn everything_can_be_set() {
    let dir = dir(b"");
    for name in ["ca.pem", "cert.pem", "key.pem"] {
        std::fs::write(dir.path().join(name), "-----BEGIN CERTIFICATE-----\n").unwrap();
    }
    let yaml = policy(
        "source:
  kafka:
    brokers: [one:9092, 'two:9093']
    topics: [a, b]
    group: g
    start: latest
    on_gap: continue
    tls: { ca: ca.pem, certificate: cert.pem, key: key.pem, key_password: '${SECRET}' }
    sasl: { mechanism: scram-sha-512, username: u, password: '${file:secret}' }
    properties: { socket.timeout.ms: 12000, fetch.wait.max.ms: 50, ssl.endpoint.identification.algorithm: none }
sink:
  kafka:
    topic: out
    manifests: m
    dead_letters: none
    transactional_id: me-${FIVE}
    transaction_timeout: 2m
    sasl: { mechanism: plain, username: v, password: '${SECRET}' }
    properties: { linger.ms: 20, compression.type: gzip }
",
    );
    std::fs::write(dir.path().join("c.yaml"), yaml).unwrap();
    let config = Config::load_with(&dir.path().join("c.yaml"), Purpose::Pipeline, &variable).unwrap();
    let shown = format!("{config:?}{config:#?}");
    assert!(!shown.contains(SECRET), "{shown}");
    let (source, sink) = both(config);
    assert_eq!(source.cluster.brokers, "one:9092,two:9093");
    assert_eq!((source.start, source.on_gap), (Start::Latest, OnGap::Continue));
    let consumer = group_consumer(&source, 1 << 26);
    for (name, value) in [
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanism", "SCRAM-SHA-512"),
        ("sasl.password", SECRET),
        ("ssl.key.password", SECRET),
        ("socket.timeout.ms", "12000"),
        ("isolation.level", "read_committed"),
    ] {
        assert_eq!(consumer.get(name), Some(value), "{name}");
    }
    assert!(consumer.get("ssl.ca.location").unwrap().ends_with("/ca.pem"));
    assert_eq!((sink.manifests.as_deref(), sink.dead_letters.as_deref()), (Some("m"), None));
    let producer = producer(&sink);
    for (name, value) in [
        ("bootstrap.servers", "one:9092,two:9093"),
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.username", "v"),
        ("socket.timeout.ms", "12000"),
        ("ssl.endpoint.identification.algorithm", "none"),
        ("transactional.id", "me-5"),
        ("transaction.timeout.ms", "120000"),
        ("linger.ms", "20"),
        ("compression.type", "gzip"),
    ] {
        assert_eq!(producer.get(name), Some(value), "{name}");
    }
    assert_eq!(producer.get("fetch.wait.max.ms"), None, "only what is about connections is taken over");
}

#[test]
fn kafka_goes_to_kafka() {
    one(&policy(SOURCE), 7, "needs a Kafka sink, because offsets and rows are committed in one transaction");
    one(&policy(&format!("{SOURCE}sink: {{ stdio: {{}} }}\n")), 8, "needs a Kafka sink");
    one(&policy(SINK), 7, "needs a Kafka source for now");
    one(&policy(&format!("source: {{ generator: {{}} }}\n{SINK}")), 8, "needs a Kafka source for now");
    one(&policy(&format!("source: {{ kafak: {{}} }}\n{SINK}")), 7, "did you mean `kafka`?");
}

#[test]
fn topics_are_there_and_differ() {
    let source = |more: &str| policy(&format!("{}{SINK}", SOURCE.replace("topic: people", more)));
    one(&source("topics: []"), 7, "`topics` is empty");
    one(&source("topics: [a, a]"), 7, "listed twice");
    one(&source("topics: [a], topic: b"), 7, "keep one");
    one(&source("start: latest"), 7, "has no topic");
    one(&source("topic: '^a.*'"), 7, "no topic name");
    one(&source("topic: ''"), 7, "no topic name");
    one(&source("topic: safe"), 8, "`topic` is `safe`, which the source reads");
    one(&source("topics: [x, safe-manifests]"), 8, "`manifests` is `safe-manifests`, which the source reads");
    one(&source("topics: [x, safe-dead-letters]"), 8, "`dead_letters` is");
    one(&with_sink("dead_letters: safe"), 8, "the same topic as `topic`");
    one(&with_sink("manifests: m, dead_letters: m"), 8, "the same topic as `manifests`");
    one(&with_sink(&format!("manifests: {}", "x".repeat(250))), 8, "at most 249");
    let (_, sink) = kafka(&with_sink("manifests: none, dead_letters: none"));
    assert_eq!((sink.manifests, sink.dead_letters), (None, None));
}

#[test]
fn what_is_missing_is_told_at_once() {
    let yaml =
        policy("source:\n  kafka:\n    topic: 'a b'\n    format: avro\nsink:\n  kafka:\n    transaction_timeout: 5s\n");
    let problems = problems(&yaml);
    let said = |words: &str| assert!(problems.iter().any(|p| p.contains(words)), "{words}: {problems:#?}");
    said("`source.kafka` lacks `brokers`");
    said("`source.kafka` lacks `group`");
    said("no topic name");
    said("needs the writer's schema");
    said("`sink.kafka` lacks `topic`");
    said("write 10s or more");
    assert_eq!(problems.len(), 6, "{problems:#?}");
}

#[test]
fn addresses_and_groups_are_checked() {
    for bad in ["localhost", "localhost:", "localhost:99999", "http://localhost:9092", "a:1,,b:2", "''"] {
        let yaml =
            policy(&format!("{}{SINK}", SOURCE.replace("'localhost:9092'", &format!("'{bad}'").replace("''''", "''"))));
        one(&yaml, 7, "HOST:PORT");
    }
    one(&policy(&format!("{}{SINK}", SOURCE.replace("veil", "' '"))), 7, "`group` is empty");
    assert!(load(&policy(&format!("{}{SINK}", SOURCE.replace("'localhost:9092'", "'[::1]:9092, b:1'")))).is_ok());
}

#[test]
fn formats_have_what_they_need() {
    let avsc = r#"{"type":"record","name":"P","fields":[{"name":"age","type":"int"},{"name":"country","type":"string"},{"name":"job","type":"string"}]}"#;
    one(&with_source("format: avro"), 7, "needs the writer's schema");
    one(&with_source("format: avro, schema: nowhere.avsc"), 7, "cannot be read");
    one(&with_source("format: avro, schema: secret"), 7, "not an Avro schema");
    one(&with_source("schema: secret"), 7, "only with `format: avro`");
    one(&with_source("format: confluent-avro"), 7, "needs a registry");
    one(&with_source("registry: { url: 'http://r:1' }"), 7, "only with `format: confluent-avro,");
    one(&with_source("format: confluent-avro, registry: {}"), 7, "lacks `url`");
    one(&with_source("format: confluent-avro, registry: { url: 'r:1' }"), 7, "http://HOST:PORT");
    one(&with_source("format: confluent-avro, registry: { url: 'http://u:p@r:1' }"), 7, "holds a login");
    one(&with_source("format: confluent-avro, registry: { url: 'http://r:1', username: u }"), 7, "needs a password");
    for (format, name) in [("confluent-protobuf", SchemaLanguage::Protobuf), ("confluent-json", SchemaLanguage::Json)] {
        one(&with_source(&format!("format: {format}")), 7, &format!("`format: {format}` needs a registry"));
        let (source, sink) = kafka(&with_source(&format!("format: {format}, registry: {{ url: 'http://r:1/' }}")));
        assert_eq!((source.format, sink.format), (MessageFormat::Confluent(name), MessageFormat::Confluent(name)));
    }
    one(&with_source("format: protobuf"), 7, "needs the type of its messages");
    one(&with_source("format: protobuf, descriptor: nowhere.desc, message: P"), 7, "cannot be read");
    one(&with_source("format: protobuf, descriptor: secret, message: P"), 7, "no set of protobuf descriptors");
    one(&with_source("descriptor: secret"), 7, "only with `format: protobuf`");
    one(&with_source("message: P"), 7, "only with `format: protobuf`");
    one(&with_sink("format: protobuf").replace("name: job", "name: 'job title'"), 8, "cannot be a protobuf field name");
    one(&with_sink("format: confluent-avro"), 8, "needs a registry");
    one(&with_sink("format: json, registry: { url: 'http://r:1' }"), 8, "only with `format: confluent-avro,");
    one(&with_sink("format: avro").replace("name: job", "name: 'job title'"), 8, "cannot be an avro field name");
    for sink in ["file: { path: safe.avro }", "stdio: { format: avro }"] {
        let title = policy(&format!("sink: {{ {sink} }}\n")).replace("name: job", "name: 'job title'");
        one(&title, 7, "cannot be an avro field name: use letters, digits and _, or write `format: jsonl`");
    }
    let registry =
        |more: &str| with_source(&format!("format: confluent-avro, registry: {{ url: 'https://r:1', {more} }}"));
    one(&registry("token: t, username: u, password: p"), 7, "keep one login");
    one(&registry("token: 'a b'"), 7, "cannot stand in an HTTP header");
    one(&registry("tls: { ca: nowhere.pem }"), 7, "cannot be read");
    one(&registry("tls: {}").replace("https", "http"), 7, "only for https");
    assert!(load(&registry("token: '${SECRET}', tls: {}")).is_ok());
    let (source, sink) = kafka(&with_source("format: confluent-avro, registry: { url: 'http://r:1/' }"));
    assert_eq!(
        (sink.format, sink.registry.unwrap().url.as_str()),
        (MessageFormat::Confluent(SchemaLanguage::Avro), "http://r:1")
    );
    assert_eq!(source.format, MessageFormat::Confluent(SchemaLanguage::Avro));

    let dir = dir(with_source("format: avro, schema: p.avsc").as_bytes());
    std::fs::write(dir.path().join("p.avsc"), avsc).unwrap();
    let load = || Config::load_with(&dir.path().join("c.yaml"), Purpose::Pipeline, &variable);
    let (_, sink) = both(load().unwrap());
    std::fs::write(dir.path().join("p.avsc"), avsc.replace("country", "county")).unwrap();
    let lacking = load().unwrap_err();
    assert!(lacking.len() == 1 && lacking[0].message.contains("`country`"), "{lacking:?}");
    let MessageFormat::Avro(schema) = sink.format else { panic!("{:?}", sink.format) };
    assert!(serde_json::to_string(&*schema).unwrap().contains("Published"), "the output has a schema of its own");
}

#[test]
fn times_fit_together() {
    one(&with_sink("transaction_timeout: 9s"), 8, "write 10s or more");
    one(&with_sink("transaction_timeout: 16m"), 8, "write 15m or less");
    one(
        &format!("{}window: {{ tumbling: {{ max_records: 2000000 }} }}\n", with_sink("")),
        8,
        "may take 100s to publish",
    );
    one(&format!("{}search: {{ time_budget: 5m }}\n", with_sink("")), 9, "below the poll interval");
    let slow =
        format!("{}search: {{ time_budget: 20s }}\n", with_source("properties: { max.poll.interval.ms: 15000 }"));
    one(&slow, 7, "below the poll interval");
    one(&with_sink("properties: { message.timeout.ms: 70000 }"), 8, "longer than `transaction_timeout`");
}

#[test]
fn properties_that_break_the_promise_are_refused() {
    for name in ["isolation.level", "enable.auto.commit", "auto.offset.reset", "group.id", "bootstrap.servers"] {
        one(&with_source(&format!("properties: {{ {name}: x }}")), 7, &format!("the property `{name}` cannot be set"));
    }
    for name in ["transactional.id", "enable.idempotence", "acks", "Transaction.Timeout.ms", "bootstrap.servers"] {
        one(&with_sink(&format!("properties: {{ {name}: 1 }}")), 8, &format!("the property `{name}` cannot be set"));
    }
    one(&with_source("properties: { sockte.timeout.ms: 1 }"), 7, "has no property");
    one(&with_source("properties: { socket.timeout.ms: soon }"), 7, "does not take this value");
    one(&with_source("properties: { socket.timeout.ms: [1] }"), 7, "expected one of text");
    one(&with_source("tls: {}, properties: { security.protocol: ssl }"), 7, "follows from `tls`");
    assert!(load(&with_source("properties: { security.protocol: ssl, client.id: '${FIVE}' }")).is_ok());
}

#[test]
fn keys_and_logins_are_whole() {
    one(&with_source("tls: { ca: nowhere.pem }"), 7, "cannot be read");
    one(&with_source("tls: { ca: secret }"), 7, "not PEM");
    one(&with_source("tls: { key_password: x }"), 7, "needs `key`");
    one(&with_source("sasl: { mechanism: plain, username: u }"), 7, "lacks `password`");
    one(&with_source("sasl: { mechanism: scram, username: u, password: p }"), 7, "`scram-sha-256`");
    one(&with_source("sasl: { mechanism: plain, username: u, password: '${EMPTY}' }"), 7, "`sasl.password` is empty");
    let kerberos = "kerberos: { principal: 'veil/host@EXAMPLE.COM', keytab: secret }";
    if cfg!(feature = "kerberos") {
        let (source, sink) = kafka(&with_source(kerberos));
        for cluster in [source.cluster, sink.cluster] {
            assert_eq!(cluster.client(&[]).get("sasl.mechanism"), Some("GSSAPI"));
        }
        one(&with_source(&kerberos.replace("veil/", "`x`/")), 7, "other characters than");
        one(&with_source(&kerberos.replace("secret", "nowhere")), 7, "`keytab` cannot be read");
    } else {
        one(&with_source(kerberos), 7, "this build has no Kerberos");
    }
    let (source, sink) = kafka(&with_source("tls: {}"));
    for cluster in [source.cluster, sink.cluster] {
        assert_eq!(cluster.client(&[]).get("security.protocol"), Some("SSL"));
    }
}

#[test]
fn an_output_in_another_cluster_takes_the_group_along_and_no_secret() {
    let yaml = policy(
        "source:
  kafka:
    brokers: in:9092
    topics: [safe, people]
    group: g
    sasl: { mechanism: plain, username: u, password: '${SECRET}' }
    properties: { session.timeout.ms: 7000, max.poll.interval.ms: 70000, fetch.wait.max.ms: 50, socket.timeout.ms: 12000 }
sink:
  kafka:
    brokers: out:9092
    topic: safe
    progress: mark
    transactional_id: veil-1
    properties: { socket.timeout.ms: 13000 }
",
    );
    let (source, sink) = kafka(&yaml);
    let source = source.published_by(&sink);
    let (group, records) = (group_consumer(&source, 0), record_consumer(&source, 0));
    for (name, of_group, of_records) in [
        ("bootstrap.servers", Some("out:9092"), Some("in:9092")),
        ("group.instance.id", Some("veil-1"), None),
        ("session.timeout.ms", Some("7000"), Some("7000")),
        ("max.poll.interval.ms", Some("70000"), Some("70000")),
        ("socket.timeout.ms", Some("13000"), Some("12000")),
        ("fetch.wait.max.ms", None, Some("50")),
        ("sasl.password", None, Some(SECRET)),
        ("security.protocol", None, Some("SASL_PLAINTEXT")),
    ] {
        assert_eq!((group.get(name), records.get(name)), (of_group, of_records), "{name}");
    }
    assert_eq!(producer(&sink).get("sasl.password"), None, "another cluster is not shown the password");
    assert_eq!(journal_consumer(&source).get("bootstrap.servers"), Some("out:9092"));

    let other = ", brokers: 'out:9092'";
    one(&with_sink("progress: mark"), 8, "add its `brokers`");
    one(&with_sink(&format!("progress: 'a b'{other}")), 8, "no topic name");
    one(&with_sink(&format!("progress: {}{other}", "x".repeat(245))), 8, "at most 249");
    one(&with_sink(&format!("progress: mark, journal: mark-people{other}")), 8, "the same topic as `journal`");
}

#[test]
fn partitions_may_move_one_by_one_where_windows_allow_it() {
    let (_, sink) = kafka(&with_sink("create_topics: false"));
    let named = |source: &KafkaSourceConfig, instance: &str| {
        source.published_by(&KafkaSinkConfig { transactional_id: instance.into(), ..sink.clone() })
    };
    let (source, _) = kafka(&with_source("rebalance: cooperative"));
    assert_eq!(group_consumer(&source, 0).get("partition.assignment.strategy"), Some("cooperative-sticky"));
    assert_eq!(group_consumer(&named(&source, "veil-1"), 0).get("group.instance.id"), Some("veil-1"));
    assert_eq!(group_consumer(&named(&source, "veil 1"), 0).get("group.instance.id"), None, "brokers do not take it");
    let (source, _) = kafka(&with_source("rebalance: consumer"));
    assert_eq!(group_consumer(&source, 0).get("group.protocol"), Some("consumer"));
    assert_eq!(group_consumer(&named(&source, "veil-1"), 0).get("group.instance.id"), None);
    let (source, _) = kafka(&with_source("properties: { group.instance.id: mine }"));
    assert_eq!(group_consumer(&named(&source, "veil-1"), 0).get("group.instance.id"), Some("mine"));
    let tells = |source: &str, instance| named(&kafka(&with_source(source)).0, instance).notices().is_some();
    assert!(tells("rebalance: range", "veil-1") && tells("properties: { group.instance.id: veil-1 }", "ns.veil-1"));
    assert!(
        !tells("properties: { group.instance.id: mine }", "veil-1"),
        "another instance with the id may be named otherwise"
    );
    assert!(
        !tells("rebalance: consumer, properties: { group.instance.id: veil-1 }", "veil-1"),
        "a second one is turned away"
    );
    let sliding = "window: { sliding: { size: 1000, slide: 100 } }\n";
    one(&format!("{}{sliding}", with_source("rebalance: cooperative")), 7, "write `rebalance: range`");
    one(&with_source("rebalance: sticky"), 7, "`cooperative`");
    one(
        &with_source("rebalance: consumer, properties: { session.timeout.ms: 6000 }"),
        7,
        "group.consumer.session.timeout.ms",
    );
    one(&with_source("properties: { group.protocol: consumer }"), 7, "write `rebalance` in the source");
}

#[test]
fn logins_by_token_are_whole_and_count_for_both_sides() {
    let oauth = "oauth: { token_endpoint: 'https://login/token', client_id: veil, client_secret: '${SECRET}' }";
    let (source, sink) = kafka(&with_source(&format!("tls: {{}}, {oauth}")));
    for cluster in [source.cluster, sink.cluster] {
        let client = cluster.client(&[]);
        assert_eq!(
            (client.get("security.protocol"), client.get("sasl.mechanism")),
            (Some("SASL_SSL"), Some("OAUTHBEARER"))
        );
        assert!(cluster.login.is_some() && !format!("{cluster:?} {:?}", cluster.login).contains(SECRET));
    }
    let aws = "aws: { region: eu-central-1, access_key_id: AKID, secret_access_key: '${SECRET}' }";
    assert!(kafka(&with_source(&format!("tls: {{}}, {aws}"))).1.cluster.login.is_some());
    one(&with_source(aws), 7, "add `tls: {}`");
    one(&with_source(&format!("tls: {{}}, {oauth}, {aws}")), 7, "keep one login");
    let warned = |url: &str| load(&with_source(&oauth.replace("https://login", url))).unwrap().warnings.len();
    assert_eq!(["https://login", "http://login", "http://localhost:9", "http://127.0.0.1:9"].map(warned), [0, 1, 0, 0]);
    one(&with_source(&oauth.replace("https://login/token", "login")), 7, "write https://HOST/PATH");
    one(&with_source("oauth: { token_endpoint: 'https://l/t', client_id: veil }"), 7, "lacks `client_secret`");
    one(&with_source(&oauth.replace("SECRET", "EMPTY")), 7, "`client_secret` is empty");
    one(
        &with_source(&format!("tls: {{}}, {}", aws.replace("eu-central-1", "'EU central'"))),
        7,
        "`region` is not a region",
    );
    one(&with_sink(&format!("create_topics: true, {oauth}")), 8, "remove `create_topics`");
    one(&with_source(&format!("{oauth}, properties: {{ sasl.mechanism: PLAIN }}")), 7, "follows from `oauth`");
}

#[test]
fn no_secret_is_shown() {
    for yaml in [
        with_source("properties: { socket.timeout.ms: '${SECRET}', sasl.passwort: '${SECRET}', acks: '${SECRET}' }"),
        with_source("properties: { socket.timeout.ms: tr0ub4dor, ssl.key.password: [tr0ub4dor] }"),
        with_source("sasl: { mechanism: '${SECRET}', username: [x], password: [tr0ub4dor] }"),
        with_source("tls: { ca: '${SECRET}', key: '${SECRET}' }"),
        with_source("format: confluent-avro, registry: { url: '${SECRET}', password: '${SECRET}' }"),
        with_source("format: avro, schema: '${SECRET}'").replace("'localhost:9092'", "'${SECRET}'"),
        with_sink("manifests: '${SECRET}', dead_letters: '${SECRET}', transaction_timeout: '${SECRET}'"),
        with_source("topics: ['${SECRET}', '${SECRET}']"),
        with_sink("format: avro").replace("name: job", "name: '${SECRET} x'"),
    ] {
        let problems = problems(&yaml);
        assert!(!problems.iter().any(|p| p.contains(SECRET)), "{problems:#?}");
    }
    let yaml = with_source("properties: { sasl.password: '${SECRET}', sasl.username: tr0ub4dor }");
    let config = load(&yaml).unwrap();
    assert!(!format!("{config:?}{config:#?}").contains(SECRET));
}

#[test]
fn digits_from_outside_stay_text() {
    let yaml = with_source("properties: { sasl.password: '${ZEROS}' }");
    let dir = dir(yaml.as_bytes());
    let config = Config::load_with(&dir.path().join("c.yaml"), Purpose::Pipeline, &|_| Some("007".into())).unwrap();
    let (source, _) = both(config);
    assert_eq!(group_consumer(&source, 0).get("sasl.password"), Some("007"));
}

#[test]
fn cuts_and_local_snapshots_go_through_kafka() {
    let with = |recoding: &str, window: &str| {
        let text = policy(&format!("{SOURCE}{SINK}window: {{ {window} }}\n"));
        text.replacen("policy:\n", &format!("policy:\n  recoding: {recoding}\n"), 1)
    };
    let warnings = |recoding: &str, window: &str| load(&with(recoding, window)).unwrap().warnings;
    assert!(warnings("subtree", "levels: sticky").is_empty());
    assert!(warnings("local", "levels: fixed").is_empty());
    // After a restart the cuts themselves are not known.
    assert_eq!(warnings("subtree", "levels: monotone").len(), 1);
    // Settings of a search, and with `local` there is none.
    let search = |recoding: &str| with(recoding, "levels: sticky") + "search: { time_budget: 1s, max_checks: 9 }\n";
    assert_eq!(["local", "full-domain"].map(|recoding| load(&search(recoding)).unwrap().warnings.len()), [2, 0]);
    one(&with("local", "sliding: { size: 400000, slide: 100 }"), 10, "write a smaller window");
    for recoding in ["local", "subtree"] {
        assert!(load(&with(recoding, "sliding: { size: 1000, slide: 100 }")).is_ok());
    }
}
