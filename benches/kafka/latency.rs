//! From the close of a window to the commit of its release, when records come at a steady rate.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rdkafka::Message as _;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{Header, Headers as _, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use serde_json::{Map, Value};
use veilstream::kafka::sink::RELEASE_HEADER;

use super::broker::{Broker, PARTITIONS, PATIENCE, Published, Service, at, commit, send};

/// Windows in which the dictionaries are learnt and the broker's code is compiled.
const COLD: usize = 10;

pub(crate) fn run(broker: &Broker, windows: usize, window: usize, rate: usize) {
    let records = (windows + COLD) * window;
    let patience = PATIENCE + Duration::from_secs((4 * records / rate) as u64);
    let mut service = Service::start(broker, "live", "live", "calm", window);
    let mut input = broker.generate("live", records, rate);
    let (_, published) = service.finish(records, patience);
    assert!(input.wait().unwrap().success());
    drop(service);
    let closed = closed(broker, published.len());
    let mut served: Vec<f64> = published[COLD..].iter().map(|release| release.at - closed[&release.id]).collect();
    let rows = rows(broker, &published[COLD]);
    let producer = broker.producer("passed", "alone".into());
    // As often as the service did, and beside the same input.
    let (every, mut input) =
        (Duration::from_secs_f64(window as f64 / rate as f64), broker.generate("live", records, rate));
    let turn = |_| {
        let took = serialize_and_produce(&producer, &rows);
        std::thread::sleep(every.saturating_sub(Duration::from_secs_f64(took / 1e3)));
        took
    };
    let mut alone: Vec<f64> = (0..windows + COLD).map(turn).skip(COLD).collect();
    let _ = input.kill();
    let _ = input.wait();
    println!("{windows} windows of {window} records at {rate} a second, milliseconds:");
    let (p50, p99) = (at(0.5, &mut served), at(0.99, &mut served));
    let (alone50, alone99) = (at(0.5, &mut alone), at(0.99, &mut alone));
    println!("  close to publish      p50 {p50:7.1}  p99 {p99:7.1}");
    println!("  serialize and produce p50 {alone50:7.1}  p99 {alone99:7.1}   ({} rows)", rows.len());
    println!(
        "  ratio                 p50 {:7.2}  p99 {:7.2}   (p99 to the other's median: {:.2})",
        p50 / alone50,
        p99 / alone99,
        p99 / alone50
    );
}

/// A reader of a topic from its start, by its committed records.
fn reader(broker: &Broker, topic: &str) -> BaseConsumer {
    let mut client = ClientConfig::new();
    client.set("bootstrap.servers", &broker.bootstrap).set("group.id", format!("read-{topic}"));
    client.set("auto.offset.reset", "earliest").set("enable.auto.commit", "false");
    let reader: BaseConsumer = client.create().unwrap();
    reader.subscribe(&[topic]).unwrap();
    reader
}

/// Reads on until `enough`.
fn read(reader: &BaseConsumer, mut enough: impl FnMut(&rdkafka::message::BorrowedMessage<'_>) -> bool) {
    let mut came = Instant::now();
    loop {
        assert!(came.elapsed() < PATIENCE, "nothing more comes");
        let Some(Ok(message)) = reader.poll(Duration::from_millis(500)) else { continue };
        came = Instant::now();
        if enough(&message) {
            return;
        }
    }
}

/// When the windows closed, by release, in milliseconds since 1970.
fn closed(broker: &Broker, releases: usize) -> HashMap<String, f64> {
    let mut closed = HashMap::new();
    read(&reader(broker, "calm-manifests"), |message| {
        let manifest: Value = serde_json::from_slice(message.payload().unwrap()).unwrap();
        closed.insert(manifest["release_id"].as_str().unwrap().to_owned(), manifest["closed_at"].as_f64().unwrap());
        closed.len() == releases
    });
    closed
}

/// The rows of a release, each as its fields and their values as JSON.
fn rows(broker: &Broker, release: &Published) -> Vec<Vec<(String, String)>> {
    let mut rows = Vec::new();
    read(&reader(broker, "calm"), |message| {
        let of = message.headers().map(|headers| headers.get(0).value == Some(release.id.as_bytes()));
        if of == Some(true) {
            let fields: Map<String, Value> = serde_json::from_slice(message.payload().unwrap()).unwrap();
            rows.push(fields.into_iter().map(|(name, value)| (name, value.to_string())).collect());
        }
        rows.len() as u64 == release.rows
    });
    rows
}

/// The least that any program would do to publish these rows; in milliseconds.
fn serialize_and_produce(producer: &BaseProducer, rows: &[Vec<(String, String)>]) -> f64 {
    let started = Instant::now();
    producer.begin_transaction().unwrap();
    let mut payload = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        payload.clear();
        for (at, (name, value)) in row.iter().enumerate() {
            payload.extend_from_slice(if at == 0 { b"{\"" } else { b",\"" });
            payload.extend_from_slice(name.as_bytes());
            payload.extend_from_slice(b"\":");
            payload.extend_from_slice(value.as_bytes());
        }
        payload.push(b'}');
        let header = Header { key: RELEASE_HEADER, value: Some("alone-0123456789abcdef") };
        let record = BaseRecord::to("passed").payload(payload.as_slice()).partition(number as i32 % PARTITIONS);
        send(producer, record.headers(OwnedHeaders::new_with_capacity(1).insert(header)));
        if number % 256 == 0 {
            producer.poll(Duration::ZERO);
        }
    }
    commit(producer);
    started.elapsed().as_secs_f64() * 1e3
}
