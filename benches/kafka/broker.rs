//! A broker of the bench's own, a service on it, and what both say about themselves.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::types::RDKafkaErrorCode;
use veilstream::kafka::client::{Cluster, KafkaSinkConfig, MessageFormat, producer};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const PARTITIONS: i32 = 6;

/// Gone at the end.
pub(crate) struct Broker {
    pub(crate) dir: PathBuf,
    pub(crate) bootstrap: String,
    process: u32,
}

impl Broker {
    fn script() -> Command {
        let mut script = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/infra/kafka"));
        script.env("VEILSTREAM_KAFKA_JVM", "-XX:TieredStopAtLevel=4 -Xmx1g");
        script
    }

    pub(crate) fn up() -> Self {
        let dir = std::env::temp_dir().join(format!("veilstream-bench-{}", std::process::id()));
        let owner = std::process::id().to_string();
        let up = Self::script().args(["up", "--owner", &owner, "--dir"]).arg(&dir).output().unwrap();
        assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
        let lines = String::from_utf8(up.stdout).unwrap();
        let names: HashMap<&str, &str> = lines.lines().filter_map(|line| line.split_once('=')).collect();
        Self { dir, bootstrap: names["BOOTSTRAP"].to_owned(), process: names["BROKER_1_PID"].parse().unwrap() }
    }

    pub(crate) fn create(&self, topics: &[&str]) {
        let admin: AdminClient<DefaultClientContext> =
            ClientConfig::new().set("bootstrap.servers", &self.bootstrap).create().unwrap();
        let new: Vec<NewTopic<'_>> =
            topics.iter().map(|name| NewTopic::new(name, PARTITIONS, TopicReplication::Fixed(1))).collect();
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(admin.create_topics(&new, &options)).unwrap();
    }

    pub(crate) fn cluster(&self) -> Cluster {
        Cluster { brokers: self.bootstrap.clone(), properties: Default::default(), login: None }
    }

    /// A transactional producer with the service's own settings.
    pub(crate) fn sink(&self, topic: &str, id: String) -> KafkaSinkConfig {
        KafkaSinkConfig {
            cluster: self.cluster(),
            topic: topic.into(),
            manifests: None,
            dead_letters: None,
            journal: None,
            transactional_id: id,
            transaction_timeout: PATIENCE,
            format: MessageFormat::Json,
            registry: None,
            input: None,
            progress: None,
            create_topics: false,
            unsent: None,
            audiences: Vec::new(),
        }
    }

    /// A producer with these settings, ready for transactions.
    pub(crate) fn producer(&self, topic: &str, id: String) -> BaseProducer {
        let producer: BaseProducer = producer(&self.sink(topic, id)).create().unwrap();
        producer.init_transactions(PATIENCE).unwrap();
        producer
    }

    /// So many people into a topic, at so many a second; 0 is as fast as they are taken.
    pub(crate) fn generate(&self, topic: &str, records: usize, rate: usize) -> Child {
        let mut generate = program();
        generate.args(["generate", "--topic", topic, "--brokers", &self.bootstrap]);
        generate.args(["--records", &records.to_string(), "--rate", &rate.to_string()]);
        generate.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Seconds of processor time that it has used.
    pub(crate) fn busy(&self) -> f64 {
        busy(self.process)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = Self::script().arg("down").arg(&self.dir).status();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// User and system time of a process, in seconds.
pub(crate) fn busy(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("a process");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    // The 14th and 15th field of the whole line, in ticks of 10 ms; the first two end with the parenthesis.
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

/// `veilstream run`. Its log tells when each release was published, so that nobody has to disturb it by asking.
pub(crate) struct Service {
    child: Child,
    log: PathBuf,
}

/// A release as the log tells of it.
pub(crate) struct Published {
    pub(crate) id: String,
    /// Records that got their outcome with it, and those that it shows.
    pub(crate) records: u64,
    pub(crate) rows: u64,
    /// Milliseconds since 1970.
    pub(crate) at: f64,
}

impl Service {
    pub(crate) fn start(broker: &Broker, name: &str, from: &str, to: &str, window: usize) -> Self {
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
source: {{ kafka: {{ brokers: '{}', topic: {from}, group: {name} }} }}
sink: {{ kafka: {{ topic: {to}, transactional_id: {name} }} }}
",
            broker.bootstrap
        );
        let config = broker.dir.join(format!("{name}.yaml"));
        std::fs::write(&config, yaml).unwrap();
        let log = broker.dir.join(format!("{name}.log"));
        let mut command = program();
        command.args(["run", "--log", "info", "--log-format", "json", "-c"]).arg(&config);
        let child = command.stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
        Self { child, log }
    }

    /// Waits until so many records have their outcome; when it got its partitions, and every release since.
    pub(crate) fn finish(&mut self, records: usize, patience: Duration) -> (f64, Vec<Published>) {
        let asked = Instant::now();
        loop {
            let (assigned, published) = self.read();
            if published.iter().map(|release| release.records).sum::<u64>() >= records as u64 {
                return (assigned.expect("an assignment"), published);
            }
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none() && asked.elapsed() < patience, "no end; see {}", self.log.display());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn read(&self) -> (Option<f64>, Vec<Published>) {
        let text = std::fs::read_to_string(&self.log).unwrap();
        let (mut assigned, mut published) = (None, Vec::new());
        for line in text.lines() {
            let Ok(line) = serde_json::from_str::<serde_json::Value>(line) else { continue };
            let fields = &line["fields"];
            let count = |name: &str| fields[name].as_u64().unwrap_or(0);
            let at = || {
                let time: jiff::Timestamp = line["timestamp"].as_str().unwrap().parse().unwrap();
                time.as_nanosecond() as f64 / 1e6
            };
            match fields["message"].as_str() {
                Some("partitions assigned") => assigned = assigned.or_else(|| Some(at())),
                Some("release published") => published.push(Published {
                    id: fields["release"].as_str().unwrap().to_owned(),
                    rows: count("published"),
                    records: count("published") + count("suppressed") + count("rejected"),
                    at: at(),
                }),
                _ => {}
            }
        }
        (assigned, published)
    }

    /// Seconds of processor time that it has used.
    pub(crate) fn busy(&self) -> f64 {
        busy(self.child.id())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Commits as soon as everything is delivered. The client's own flush looks every 100 ms only, and would make the others in this
/// bench look slow.
pub(crate) fn commit(producer: &BaseProducer) {
    while producer.in_flight_count() > 0 {
        std::thread::sleep(Duration::from_millis(1));
        producer.poll(Duration::ZERO);
    }
    producer.commit_transaction(PATIENCE).unwrap();
}

/// Queues a record, waiting while the queue is full.
pub(crate) fn send(producer: &BaseProducer, mut record: BaseRecord<'_, (), [u8]>) {
    while let Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) = producer.send(record) {
        record = back;
        producer.poll(Duration::from_millis(10));
    }
}

/// The program under test: this build's, or another one to compare.
fn program() -> Command {
    Command::new(std::env::var("VEILSTREAM_BENCH_PROGRAM").unwrap_or_else(|_| env!("CARGO_BIN_EXE_veilstream").into()))
}

/// The value at a share of the way from the least to the most.
pub(crate) fn at(share: f64, values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share).round() as usize]
}
