//! `cargo bench --bench kafka`: the service against a pass-through, on a real broker.
//!
//! Both read the same topic and write transactions of the same size with the same librdkafka settings; the pass-through does
//! nothing else. Prints records per second of each and their ratio. `VEILSTREAM_BENCH_RECORDS` (default 500000) and
//! `VEILSTREAM_BENCH_WINDOW` (default 50000) change the size. Deliberately absent: the time to start and to join the group.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rdkafka::Message as _;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode;
use veilstream::kafka::client::{
    Cluster, KafkaSinkConfig, KafkaSourceConfig, MessageFormat, OnGap, Start, group_consumer, producer,
};

const PATIENCE: Duration = Duration::from_secs(60);
const PARTITIONS: i32 = 6;
/// How often to measure: the best of them counts, since what disturbs only ever slows down.
const ROUNDS: usize = 3;

fn main() {
    // `cargo test --benches` only asks whether it builds.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let (records, window) = (number("VEILSTREAM_BENCH_RECORDS", 500_000), number("VEILSTREAM_BENCH_WINDOW", 50_000));
    let broker = Broker::up();
    broker.create(&["people", "safe", "safe-manifests", "safe-dead-letters", "passed"]);
    let mut generate = Command::new(env!("CARGO_BIN_EXE_veilstream"));
    generate.args(["generate", "--topic", "people", "--brokers", &broker.bootstrap, "--records", &records.to_string()]);
    assert!(generate.stderr(Stdio::null()).status().unwrap().success());
    println!("{records} records, transactions of {window}, {PARTITIONS} partitions");
    let mut best = [0.0f64; 2];
    for round in 0..ROUNDS {
        let passed = pass_through(&broker, records, window, round);
        let served = service(&broker, records, window, round);
        println!(
            "pass-through {passed:9.0} records/s   veilstream {served:9.0} records/s   ratio {:.2}",
            served / passed
        );
        best = [best[0].max(passed), best[1].max(served)];
    }
    println!("best of each: ratio {:.2}", best[1] / best[0]);
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A broker of its own, gone at the end.
struct Broker {
    dir: PathBuf,
    bootstrap: String,
}

impl Broker {
    fn script() -> Command {
        let mut script = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/infra/kafka"));
        script.env("VEILSTREAM_KAFKA_JVM", "-XX:TieredStopAtLevel=4 -Xmx1g");
        script
    }

    fn up() -> Self {
        let dir = std::env::temp_dir().join(format!("veilstream-bench-{}", std::process::id()));
        let owner = std::process::id().to_string();
        let up = Self::script().args(["up", "--owner", &owner, "--dir"]).arg(&dir).output().unwrap();
        assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
        let lines = String::from_utf8(up.stdout).unwrap();
        let names: HashMap<&str, &str> = lines.lines().filter_map(|line| line.split_once('=')).collect();
        Self { dir, bootstrap: names["BOOTSTRAP"].to_owned() }
    }

    fn create(&self, topics: &[&str]) {
        let admin: AdminClient<DefaultClientContext> =
            ClientConfig::new().set("bootstrap.servers", &self.bootstrap).create().unwrap();
        let new: Vec<NewTopic<'_>> =
            topics.iter().map(|name| NewTopic::new(name, PARTITIONS, TopicReplication::Fixed(1))).collect();
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(admin.create_topics(&new, &options)).unwrap();
    }

    fn cluster(&self) -> Cluster {
        Cluster { brokers: self.bootstrap.clone(), properties: Default::default() }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = Self::script().arg("down").arg(&self.dir).status();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Consume, produce, commit: what any exactly-once program must at least do. Records per second from the first record on.
fn pass_through(broker: &Broker, records: usize, window: usize, round: usize) -> f64 {
    let source = KafkaSourceConfig {
        cluster: broker.cluster(),
        topics: vec!["people".into()],
        group: format!("pass-{round}"),
        format: MessageFormat::Json,
        registry: None,
        start: Start::Earliest,
        on_gap: OnGap::Stop,
    };
    let sink = KafkaSinkConfig {
        cluster: broker.cluster(),
        topic: "passed".into(),
        manifests: None,
        dead_letters: None,
        transactional_id: format!("pass-{round}"),
        transaction_timeout: PATIENCE,
        format: MessageFormat::Json,
        registry: None,
    };
    let mut settings = group_consumer(&source, 64 << 20);
    let consumer: BaseConsumer = settings.set("auto.offset.reset", "earliest").create().unwrap();
    consumer.subscribe(&["people"]).unwrap();
    let producer: BaseProducer = producer(&sink).create().unwrap();
    producer.init_transactions(PATIENCE).unwrap();
    let (mut read, mut started, mut next, mut came) = (0, None, HashMap::new(), Instant::now());
    while read < records {
        // Nothing is also what a poll says after an event that is not a record.
        let Some(message) = consumer.poll(Duration::from_secs(1)) else {
            assert!(came.elapsed() < PATIENCE, "nothing more came after {read}");
            continue;
        };
        let message = message.unwrap();
        if read % 1000 == 0 {
            came = Instant::now();
        }
        started.get_or_insert_with(Instant::now);
        if read % window == 0 {
            producer.begin_transaction().unwrap();
        }
        next.insert(message.partition(), message.offset() + 1);
        let mut record = BaseRecord::<(), [u8]>::to("passed").payload(message.payload().unwrap());
        while let Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) = producer.send(record) {
            record = back;
            producer.poll(Duration::from_millis(10));
        }
        read += 1;
        if read % 256 == 0 {
            producer.poll(Duration::ZERO);
        }
        if read % window == 0 || read == records {
            let mut offsets = TopicPartitionList::new();
            for (partition, offset) in next.drain() {
                offsets.add_partition_offset("people", partition, Offset::Offset(offset)).unwrap();
            }
            let group = consumer.group_metadata().unwrap();
            producer.send_offsets_to_transaction(&offsets, &group, PATIENCE).unwrap();
            producer.commit_transaction(PATIENCE).unwrap();
        }
    }
    records as f64 / started.unwrap().elapsed().as_secs_f64()
}

/// Ends the service whatever happens.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `veilstream run` on the same topic. Records per second from the first record read to the last outcome committed.
fn service(broker: &Broker, records: usize, window: usize, round: usize) -> f64 {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let yaml = format!(
        "policy:
  quasi_identifiers:
    - {{ name: age, hierarchy: {{ intervals: {{ widths: [5, 10, 20, 40], min: 0, max: 120 }} }} }}
    - {{ name: sex, hierarchy: trivial }}
    - {{ name: zip, hierarchy: {{ prefix: {{ length: 5 }} }} }}
    - {{ name: education, hierarchy: trivial }}
  sensitive: [{{ name: diagnosis }}]
  keep: [score]
  subject: user_id
  privacy: [{{ k-anonymity: 5 }}, {{ l-diversity: {{ field: diagnosis, l: 2, variant: distinct }} }}]
  suppression: {{ limit: 0.05 }}
window: {{ tumbling: {{ max_records: {window}, max_age: 5s }} }}
source: {{ kafka: {{ brokers: '{}', topic: people, group: bench-{round} }} }}
sink: {{ kafka: {{ topic: safe, transactional_id: bench-{round} }} }}
http: {{ listen: '127.0.0.1:{port}' }}
",
        broker.bootstrap
    );
    let config = broker.dir.join(format!("bench-{round}.yaml"));
    std::fs::write(&config, yaml).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_veilstream"));
    let log = std::fs::File::create(broker.dir.join(format!("bench-{round}.log"))).unwrap();
    let service = Service(command.args(["run", "-c"]).arg(&config).stdout(Stdio::null()).stderr(log).spawn().unwrap());
    let (asked, mut started) = (Instant::now(), None);
    loop {
        assert!(asked.elapsed() < 10 * PATIENCE, "the service does not finish; see {}", broker.dir.display());
        let text = metrics(port);
        let sum = |name: &str| -> f64 {
            let lines = text.lines().filter(|line| line.starts_with(name));
            lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
        };
        if sum("veilstream_records_read_total") > 0.0 {
            started.get_or_insert_with(Instant::now);
        }
        if sum("veilstream_records_total{") >= records as f64 {
            drop(service);
            return records as f64 / started.unwrap().elapsed().as_secs_f64();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What `/metrics` says; nothing while it is not there yet.
fn metrics(port: u16) -> String {
    let mut text = String::new();
    if let Ok(answer) = ureq::get(format!("http://127.0.0.1:{port}/metrics")).call() {
        let _ = answer.into_body().into_reader().read_to_string(&mut text);
    }
    text
}
