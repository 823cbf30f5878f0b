//! `validate --connect`, `generate` into a topic, and the schema registry, each against the real server.
//!
//! One broker with TLS and SASL listeners serves all tests here; it ends with this process. Waits are bounded.

#![allow(deprecated, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{HashMap, HashSet};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output as Ran, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rdkafka::Message as _;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use veilstream::codec::confluent::SchemaCache;
use veilstream::codec::message::{DEAD_LETTER_SCHEMA, MANIFEST_SCHEMA};
use veilstream::codec::registry::{Registry, RegistryError};
use veilstream::codec::schemas::{SchemaLanguage, WriterSchema};
use veilstream::codec::{Decode as _, PublishedRow};
use veilstream::kafka::client::{Cluster, KafkaSinkConfig, MessageFormat, RegistryConfig};
use veilstream::kafka::sink::output::Output;
use veilstream::model::event::RejectCode;
use veilstream::model::release::dead_letter::DeadLetter;
use veilstream::model::schema::{Role, Schema};

const PATIENCE: Duration = Duration::from_secs(60);

type Names = HashMap<String, String>;

fn infra(script: &str, arguments: &[&str]) -> Ran {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/infra").join(script);
    let ran = Command::new(path).args(arguments).output().unwrap();
    assert!(ran.status.success(), "{script} {arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    ran
}

fn dir(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn names(dir: &Path) -> Names {
    let text = std::fs::read_to_string(dir.join("env")).unwrap();
    text.lines().filter_map(|line| line.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

/// The broker, with the topics of a small pipeline.
fn broker() -> &'static Names {
    static BROKER: OnceLock<Names> = OnceLock::new();
    BROKER.get_or_init(|| {
        let dir = dir("kafka-config");
        let owner = std::process::id().to_string();
        infra("kafka", &["up", "--dir", dir.to_str().unwrap(), "--sasl", "--tls", "--owner", &owner]);
        let names = names(&dir);
        create(
            &names["BOOTSTRAP"],
            &[
                ("people", &[]),
                ("safe", &[]),
                ("safe-manifests", &[]),
                ("safe-journal", &[]),
                ("safe-dead-letters", &[]),
            ],
        );
        create(&names["BOOTSTRAP"], &[("generated", &[]), ("compacted", &[("cleanup.policy", "compact")])]);
        names
    })
}

fn create(bootstrap: &str, topics: &[(&str, &[(&str, &str)])]) {
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", bootstrap).create().unwrap();
    let new: Vec<NewTopic<'_>> = topics
        .iter()
        .map(|(name, settings)| {
            let topic = NewTopic::new(name, 3, TopicReplication::Fixed(1));
            settings.iter().fold(topic, |topic, (key, value)| topic.set(key, value))
        })
        .collect();
    let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
    for created in runtime().block_on(admin.create_topics(&new, &options)).unwrap() {
        created.unwrap();
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A small pipeline.
fn pipeline(brokers: &str, source: &str, sink: &str) -> String {
    format!(
        "policy:
  quasi_identifiers: [{{ name: age, hierarchy: {{ intervals: {{ widths: [5], min: 0, max: 120 }} }} }}]
  sensitive: [{{ name: diagnosis }}]
  subject: user_id
  privacy: [{{ k-anonymity: 5 }}]
source: {{ kafka: {{ brokers: '{brokers}', topic: people, group: g {source} }} }}
sink: {{ kafka: {{ topic: safe {sink} }} }}
"
    )
}

/// Runs `validate --connect`; its exit code, and what it said.
fn validate(brokers: &str, source: &str, sink: &str) -> (i32, String) {
    with_config(&["validate", "--connect", "-c"], brokers, source, sink)
}

/// Runs a command on a small pipeline; its exit code, and what it said.
fn with_config(command_line: &[&str], brokers: &str, source: &str, sink: &str) -> (i32, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.yaml");
    std::fs::write(&path, pipeline(brokers, source, sink)).unwrap();
    let mut command = assert_cmd::Command::cargo_bin("veilstream").unwrap();
    let password = broker()["SASL_PASSWORD"].as_str();
    command.env("RIGHT", password).env("WRONG", "wr0ng-s3cret").env("RUST_LOG", "trace");
    let ran = command.args(command_line).arg(&path).timeout(PATIENCE).output().unwrap();
    let said = [ran.stdout, ran.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    assert!(!said.contains("wr0ng-s3cret") && !said.contains(password), "a password was shown: {said}");
    (ran.status.code().unwrap_or_else(|| panic!("{}: {said}", ran.status)), said)
}

#[track_caller]
fn connects(brokers: &str, source: &str) {
    let (code, said) = validate(&broker()[brokers], source, "");
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("connected: "), "{said}");
}

#[track_caller]
fn refused(brokers: &str, source: &str, words: &str) {
    let (code, said) = validate(&broker()[brokers], source, "");
    assert_eq!(code, 3, "{said}");
    assert!(said.contains(words) && said.contains("1 problem"), "expected {words:?}: {said}");
}

#[test]
fn tls_is_checked_as_configured() {
    let (ca, wrong) = (&broker()["CA"], &broker()["WRONG_CA"]);
    connects("TLS_BOOTSTRAP", &format!(", tls: {{ ca: {ca} }}"));
    for (brokers, ca) in [("TLS_BOOTSTRAP", wrong), ("TLS_WRONG_HOST_BOOTSTRAP", ca), ("TLS_EXPIRED_BOOTSTRAP", ca)] {
        refused(
            brokers,
            &format!(", tls: {{ ca: {ca} }}"),
            "check `tls.ca`, `tls.certificate`, the host names in `brokers`",
        );
    }
    let (certificate, key) = (&broker()["CLIENT_CERT"], &broker()["CLIENT_KEY"]);
    connects("MTLS_BOOTSTRAP", &format!(", tls: {{ ca: {ca}, certificate: {certificate}, key: {key} }}"));
    refused("MTLS_BOOTSTRAP", &format!(", tls: {{ ca: {ca} }}"), "a client certificate");
    for name in ["CLIENT_EXPIRED", "CLIENT_STRANGER"] {
        let (certificate, key) = (&broker()[&format!("{name}_CERT")], &broker()[&format!("{name}_KEY")]);
        let own = format!(", tls: {{ ca: {ca}, certificate: {certificate}, key: {key} }}");
        refused("MTLS_BOOTSTRAP", &own, "certificate");
    }
    refused("TLS_BOOTSTRAP", "", "whether the port wants `tls`");
}

#[test]
fn logins_are_checked_as_configured() {
    let user = &broker()["SASL_USER"];
    for mechanism in ["plain", "scram-sha-256", "scram-sha-512"] {
        let sasl = |password: &str| {
            format!(", sasl: {{ mechanism: {mechanism}, username: {user}, password: '${{{password}}}' }}")
        };
        connects("SASL_BOOTSTRAP", &sasl("RIGHT"));
        refused("SASL_BOOTSTRAP", &sasl("WRONG"), "check user name, password and mechanism under `sasl`");
    }
    let tls = format!(", tls: {{ ca: {} }}", broker()["CA"]);
    connects(
        "SASL_TLS_BOOTSTRAP",
        &format!("{tls}, sasl: {{ mechanism: scram-sha-512, username: {user}, password: '${{RIGHT}}' }}"),
    );
}

#[test]
fn the_service_ends_when_it_is_refused() {
    let wrong_ca = format!(", tls: {{ ca: {} }}", broker()["WRONG_CA"]);
    let user = &broker()["SASL_USER"];
    let sasl =
        |mechanism: &str| format!(", sasl: {{ mechanism: {mechanism}, username: {user}, password: '${{WRONG}}' }}");
    for (brokers, source, words) in [
        ("TLS_BOOTSTRAP", wrong_ca, "check `tls.ca`"),
        ("SASL_BOOTSTRAP", sasl("plain"), "check user name, password and mechanism under `sasl`"),
        ("SASL_BOOTSTRAP", sasl("scram-sha-512"), "check user name, password and mechanism under `sasl`"),
    ] {
        let (code, said) = with_config(&["run", "-c"], &broker()[brokers], &source, "");
        assert!(code == 3 && said.contains(words), "expected {words:?}, exit 3: {code} {said}");
    }
}

/// A cluster that is not there is waited for, but a stop is not.
#[test]
fn a_stop_does_not_wait_for_the_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.yaml");
    std::fs::write(&path, pipeline("127.0.0.1:1", "", "")).unwrap();
    let binary = assert_cmd::cargo::cargo_bin("veilstream");
    let mut child = Command::new(binary)
        .args(["run", "-c"])
        .arg(&path)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let away = "the cluster at 127.0.0.1:1 cannot be reached; trying again: check `brokers`";
    let first = said.find(|line| line.contains(" WARN ")).unwrap();
    assert!(first.contains(away), "it waits, and says so in one sentence: {first}");
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    // What it says is read to its end, so that it is not held up by us.
    said.for_each(drop);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Several at once, because it takes luck: connections are tried again while the process ends.
#[test]
fn ending_does_not_crash_what_is_still_connecting() {
    let wrong_ca = format!(", tls: {{ ca: {} }}", broker()["WRONG_CA"]);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let (code, said) = with_config(&["run", "-c"], &broker()["TLS_BOOTSTRAP"], &wrong_ca, "");
                assert_eq!(code, 3, "{said}");
            });
        }
    });
}

#[test]
fn topics_and_times_are_checked() {
    let bootstrap = &broker()["BOOTSTRAP"];
    assert_eq!(validate(bootstrap, "", "").0, 0);
    let (code, said) = validate(bootstrap, "", ", manifests: nowhere, dead_letters: compacted");
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("the topic `nowhere`, which the sink writes, does not exist: create it"), "{said}");
    assert!(said.contains("--create --topic nowhere"), "{said}");
    let (code, said) = validate(bootstrap, "", ", manifests: nowhere, create_topics: true");
    assert_eq!(code, 0, "a topic that will be made is not missing: {said}");
    let (code, said) = validate(bootstrap, "", ", manifests: nowhere, dead_letters: compacted");
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("the topic `compacted` is compacted") && said.contains("2 problems"), "{said}");
    let (code, said) = validate("127.0.0.1:1", "", "");
    assert!(code == 3 && said.contains("check `brokers`"), "{said}");
    // Refused before anything connects.
    let (code, said) = validate("127.0.0.1:1", "", ", transaction_timeout: 16m");
    assert!(code == 2 && said.contains("write 15m or less"), "{said}");
}

/// Nothing spans two clusters by accident, and what the group needs in the other one is told or made.
#[test]
fn an_output_in_another_cluster_is_asked_for() {
    let input = &broker()["BOOTSTRAP"];
    let dir = dir("kafka-config-other");
    let owner = std::process::id().to_string();
    infra("kafka", &["up", "--dir", dir.to_str().unwrap(), "--owner", &owner]);
    let output = names(&dir)["BOOTSTRAP"].clone();
    let topics = ["safe", "safe-manifests", "safe-journal", "safe-dead-letters", "short-people"];
    create(&output, &topics.map(|name| (name, [].as_slice())));
    let elsewhere = |more: &str| format!(", brokers: '{output}'{more}");
    let progress = |name: &str| elsewhere(&format!(", progress: {name}"));

    let (code, said) = validate(input, "", &elsewhere(""));
    assert!(code == 2 && said.contains("source and sink are two clusters"), "{code} {said}");
    let (code, said) = with_config(&["run", "-c"], input, "", &elsewhere(""));
    assert!(code == 2 && said.contains("source and sink are two clusters"), "{code} {said}");

    assert_eq!(validate(input, "", &progress("short")).0, 0, "as many partitions as the input");
    let (code, said) = validate(input, "", &progress("none"));
    assert!(code == 3 && said.contains("--create --topic none-people --partitions 3"), "{code} {said}");
    let (code, said) = validate(input, "", &progress("none, create_topics: true"));
    assert_eq!(code, 0, "what will be made is not missing: {said}");
    let (code, said) = with_config(&["run", "-c"], input, "", &progress("none"));
    assert!(code == 2 && said.contains("none-people has 0 partitions"), "{code} {said}");
    // A group of the output's cluster is not asked for in the input's.
    let (code, said) = validate("127.0.0.1:1", "", &progress("short"));
    assert!(code == 3 && said.contains("the cluster at 127.0.0.1:1 cannot be used"), "{code} {said}");
}

/// The first output of a new pipeline: nobody has made its topics.
#[test]
fn missing_topics_are_made_when_asked_for() {
    let bootstrap = &broker()["BOOTSTRAP"];
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.yaml");
    let start = |create: bool| {
        let text = pipeline(bootstrap, "", &format!(", manifests: made-manifests, create_topics: {create}"));
        std::fs::write(&path, text.replace("topic: safe ", "topic: made ")).unwrap();
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("veilstream"));
        command.args(["run", "-c"]).arg(&path).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let refused = start(false).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("create_topics: true"), "{said}");

    let mut child = start(true);
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let made = said.by_ref().filter(|line| line.contains("made a topic of the output")).take(4).count();
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    said.for_each(drop);
    assert!(made == 4 && child.wait().unwrap().success());
    let client: rdkafka::consumer::BaseConsumer =
        ClientConfig::new().set("bootstrap.servers", bootstrap).create().unwrap();
    let partitions = |topic: &str| {
        let found = rdkafka::consumer::Consumer::fetch_metadata(&client, Some(topic), PATIENCE).unwrap();
        found.topics()[0].partitions().len()
    };
    assert_eq!((partitions("made"), partitions("made-journal")), (3, 1), "rows are spread as the input is");
}

#[test]
fn generate_keys_by_person() {
    let bootstrap = &broker()["BOOTSTRAP"];
    let mut command = assert_cmd::Command::cargo_bin("veilstream").unwrap();
    command.args(["generate", "--records", "3000", "--topic", "generated", "--brokers", bootstrap]);
    command.timeout(PATIENCE).assert().success();
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", "reads-generated")
        .set("auto.offset.reset", "earliest")
        .set("enable.partition.eof", "true")
        .create()
        .unwrap();
    consumer.subscribe(&["generated"]).unwrap();
    let (started, mut ended, mut records) = (Instant::now(), HashSet::new(), 0);
    let mut homes: HashMap<Vec<u8>, i32> = HashMap::new();
    while ended.len() < 3 {
        assert!(started.elapsed() < PATIENCE, "only {records} records came");
        match consumer.poll(Duration::from_millis(200)) {
            Some(Ok(message)) => {
                let key = message.key().unwrap().to_vec();
                let record: serde_json::Value = serde_json::from_slice(message.payload().unwrap()).unwrap();
                assert_eq!(record["user_id"].as_str().unwrap().as_bytes(), key);
                assert_eq!(*homes.entry(key).or_insert(message.partition()), message.partition());
                records += 1;
            }
            Some(Err(KafkaError::PartitionEOF(partition))) => drop(ended.insert(partition)),
            Some(Err(error)) => panic!("{error}"),
            None => {}
        }
    }
    assert_eq!(records, 3000);
    let mut command = assert_cmd::Command::cargo_bin("veilstream").unwrap();
    command.args(["generate", "--topic", "nowhere", "--brokers", bootstrap]).timeout(PATIENCE).assert().code(2);
}

/// Ends the registry whatever happens.
struct RealRegistry(PathBuf);

impl RealRegistry {
    fn up(name: &str) -> (Self, String) {
        let this = Self(dir(name));
        infra("registry", &["up", "--dir", this.0.to_str().unwrap()]);
        let url = names(&this.0)["REGISTRY"].clone();
        (this, url)
    }

    fn order(&self, what: &str) {
        infra("registry", &[what, self.0.to_str().unwrap()]);
    }
}

impl Drop for RealRegistry {
    fn drop(&mut self) {
        self.order("down");
    }
}

/// A gate before a registry: TLS with a client certificate, and a bearer token. Ends with its input.
struct Gate(std::process::Child, String);

impl Gate {
    fn before(registry: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/infra/gate.py");
        let tls = |name: &str| dir("kafka-config").join("tls").join(name);
        let mut gate = Command::new("python3");
        gate.arg(script).arg(registry).args([tls("broker.pem"), tls("broker.key"), tls("ca.pem")]);
        gate.arg(&broker()["SASL_PASSWORD"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut gate = gate.spawn().unwrap();
        let mut port = String::new();
        BufReader::new(gate.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self(gate, format!("https://127.0.0.1:{}", port.trim()))
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_registry_may_ask_for_a_certificate_and_a_token() {
    let names = broker();
    let (_real, url) = RealRegistry::up("kafka-config-gated");
    let gate = Gate::before(&url);
    let registry = |token: &str, ca: &str, own: &str| {
        let own = if own.is_empty() {
            String::new()
        } else {
            format!(", certificate: {}, key: {}", names[&format!("{own}_CERT")], names[&format!("{own}_KEY")])
        };
        let tls = format!("{{ ca: {}{own} }}", names[ca]);
        let registry = format!("{{ url: '{}', token: '${{{token}}}', tls: {tls} }}", gate.1);
        validate(&names["BOOTSTRAP"], &format!(", format: confluent-avro, registry: {registry}"), "")
    };
    let (code, said) = registry("RIGHT", "CA", "CLIENT");
    assert_eq!(code, 0, "{said}");
    let (code, said) = registry("WRONG", "CA", "CLIENT");
    assert!(
        code == 3 && said.contains("it denies access: check user name and password, or the token"),
        "{code} {said}"
    );
    for (ca, own) in [("CA", ""), ("CA", "CLIENT_EXPIRED"), ("CA", "CLIENT_STRANGER"), ("WRONG_CA", "CLIENT")] {
        let (code, said) = registry("RIGHT", ca, own);
        assert!(code == 3 && said.contains("the schema registry is unavailable"), "{ca} {own}: {code} {said}");
    }
}

const PERSON: &str = r#"{"type":"record","name":"Person","fields":[{"name":"user_id","type":"string"},
    {"name":"age","type":"int"},{"name":"diagnosis","type":"int"}]}"#;
const WIDER: &str = r#"{"type":"record","name":"Person","fields":[{"name":"note","type":["null","string"],"default":null},
    {"name":"user_id","type":"string"},{"name":"age","type":"long"},{"name":"diagnosis","type":"long"}]}"#;

/// A datum as the library reads it.
fn read(schema: &WriterSchema, mut datum: &[u8]) -> apache_avro::types::Value {
    let WriterSchema::Avro(schema) = schema else { panic!("not avro") };
    let reader = apache_avro::reader::datum::GenericDatumReader::builder(schema).build().unwrap();
    reader.read_value(&mut datum).unwrap()
}

fn wire(id: u32, datum: &[u8]) -> Vec<u8> {
    [&[0], &id.to_be_bytes()[..], datum].concat()
}

#[test]
fn the_registry_may_come_and_go() {
    let (real, url) = RealRegistry::up("kafka-config-registry");
    let config = |lacking: &str| {
        let registry = format!(", format: confluent-avro, registry: {{ url: '{url}' }}");
        validate(&broker()["BOOTSTRAP"], &registry, lacking)
    };
    assert_eq!(config("").0, 0);
    let schema = Schema::new([("age", Role::Quasi), ("diagnosis", Role::Sensitive), ("user_id", Role::Subject)]);
    let runtime = runtime();
    let ask = Registry::new(&url, None);
    let cache = Arc::new(SchemaCache::new(Registry::new(&url, None), SchemaLanguage::Avro, &schema));
    let mut decoder = cache.decoder(1000);

    // Two writer schemas in one window, each resolved once.
    let (old, new) = runtime.block_on(async {
        let old = ask.register("people-value", SchemaLanguage::Avro, PERSON).await.unwrap();
        assert_eq!(ask.register("people-value", SchemaLanguage::Avro, PERSON).await.unwrap(), old);
        (old, ask.register("people-value", SchemaLanguage::Avro, WIDER).await.unwrap())
    });
    let (one, two) = (wire(old, &[2, b'a', 74, 8]), wire(new, &[0, 2, b'b', 76, 10]));
    for payload in [&one, &two] {
        let id = cache.needs(payload).unwrap();
        runtime.block_on(cache.resolve(id)).unwrap();
        assert_eq!(cache.needs(payload), None);
        assert!(decoder.decode(payload).is_ok());
    }

    // An id that nobody registered.
    let stranger = wire(999_999, &[0]);
    let unknown = runtime.block_on(cache.resolve(cache.needs(&stranger).unwrap()));
    assert_eq!(unknown, Err(RegistryError::Unknown(999_999)));
    cache.give_up(999_999);
    assert_eq!(decoder.decode(&stranger).unwrap_err().code, RejectCode::UnknownSchema);

    // Down: what is cached goes on, what is not is unavailable, and validate says so.
    let third = ask.register("others-value", SchemaLanguage::Avro, r#"{"type":"record","name":"O","fields":[]}"#);
    let third = runtime.block_on(third).unwrap();
    real.order("stop");
    assert!(decoder.decode(&one).is_ok() && decoder.decode(&two).is_ok());
    assert!(matches!(runtime.block_on(cache.resolve(third)), Err(RegistryError::Unavailable { .. })));
    assert_eq!(cache.needs(&wire(third, &[])), Some(third), "unavailable is not unknown");
    let (code, said) = config("");
    assert!(code == 3 && said.contains("the schema registry is unavailable"), "{said}");
    real.order("start");
    runtime.block_on(cache.resolve(third)).unwrap();
    assert_eq!(cache.unsettled(), 0);

    // Output: derived from the writers of a release, wider when they are, and the same again from its id alone.
    let sink = KafkaSinkConfig {
        cluster: Cluster { brokers: String::new(), properties: Default::default(), login: None },
        topic: "safe".into(),
        manifests: Some("safe-manifests".into()),
        dead_letters: Some("safe-dead-letters".into()),
        journal: None,
        transactional_id: String::new(),
        transaction_timeout: PATIENCE,
        format: MessageFormat::Confluent(SchemaLanguage::Avro),
        registry: Some(RegistryConfig { url: url.clone(), credentials: None, token: None, tls: Default::default() }),
        progress: None,
        input: None,
        create_topics: false,
        unsent: None,
        audiences: Vec::new(),
    };
    runtime.block_on(async {
        let mut output = Output::new(&sink, &schema).unwrap();
        output.prepare().await.unwrap();
        let mut narrow = output.encoder(&cache.writers([old])).await.unwrap();
        let mut wide = output.encoder(&cache.writers([old, new])).await.unwrap();
        assert_ne!(narrow.schema_id, wide.schema_id);
        let row = PublishedRow { quasi: &["35-39"], values: &["4"] };
        let (mut first, mut again) = (Vec::new(), Vec::new());
        narrow.encoder.message(&row, &mut first).unwrap();
        let mut restarted = Output::new(&sink, &schema).unwrap();
        let mut planned = restarted.encoder_of(narrow.schema_id).await.unwrap();
        planned.encoder.message(&row, &mut again).unwrap();
        assert_eq!(first, again, "a release that is carried out again has the same bytes");
        let large = PublishedRow { quasi: &["35-39"], values: &["4000000000"] };
        assert!(
            narrow.encoder.message(&large, &mut first).is_err() && wide.encoder.message(&large, &mut again).is_ok()
        );
        let published = ask.fetch(wide.schema_id.unwrap(), SchemaLanguage::Avro).await.unwrap();
        let back = read(&published, &again[first.len() + 5..]);
        assert!(format!("{back:?}").contains("Long(4000000000)"));

        // Manifests and dead letters are registered exactly as the files in `schemas/` say.
        for (subject, file) in
            [("safe-manifests-value", MANIFEST_SCHEMA), ("safe-dead-letters-value", DEAD_LETTER_SCHEMA)]
        {
            let registered = ask.latest(subject, SchemaLanguage::Avro).await.unwrap().unwrap();
            let written = WriterSchema::parse(SchemaLanguage::Avro, file, &HashMap::new()).unwrap();
            assert_eq!(registered, written, "{subject}");
        }
        let letter = DeadLetter { topic: "people", partition: 0, offset: 5, code: "malformed", field: None, at: 1 };
        let message = output.dead_letter(&letter).unwrap();
        let id = u32::from_be_bytes(message[1..5].try_into().unwrap());
        let schema = ask.fetch(id, SchemaLanguage::Avro).await.unwrap();
        assert!(format!("{:?}", read(&schema, &message[5..])).contains("people"));
    });
}
