//! Records per second, and where the processor's time goes.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use cpu_time::ProcessTime;
use rdkafka::Message as _;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::producer::{BaseRecord, Producer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use veilstream::kafka::client::{KafkaSourceConfig, MessageFormat, OnGap, Start, TopicRule, group_consumer};

use super::broker::{Broker, PARTITIONS, PATIENCE, Service, at, commit, send};
use super::streams::Streams;

/// One round of one program.
pub(crate) struct Round {
    /// Records per second.
    pub(crate) rate: f64,
    /// Microseconds of processor time per record: its own, and the broker's meanwhile.
    pub(crate) own: f64,
    pub(crate) broker: f64,
}

impl Round {
    fn sum(&self) -> f64 {
        self.own + self.broker
    }
}

/// The medians of some rounds.
fn median(rounds: &[Round]) -> Round {
    let of = |value: fn(&Round) -> f64| at(0.5, &mut rounds.iter().map(value).collect::<Vec<_>>());
    Round { rate: of(|round| round.rate), own: of(|round| round.own), broker: of(|round| round.broker) }
}

pub(crate) fn run(broker: &Broker, records: usize, window: usize, rounds: usize) {
    assert!(broker.generate("people", records, 0).wait().unwrap().success());
    println!("{records} records, transactions of {window}, {PARTITIONS} partitions, {rounds} rounds");
    let mut streams = Streams::start(broker, "people", "counts", records);
    // The broker's code is compiled while it is used: not a matter of whoever comes first. So is that of Kafka Streams.
    pass_through(broker, records, window, "warm");
    if let Some(streams) = &mut streams {
        streams.round(broker, records, "warm");
    }
    let (mut passed, mut served, mut counted) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let name = format!("round-{round}");
        let mut turns = [true, false];
        turns.rotate_left(round % 2);
        for passes in turns {
            match passes {
                true => passed.push(pass_through(broker, records, window, &name)),
                false => served.push(service(broker, records, window, &name)),
            }
        }
        counted.extend(streams.iter_mut().map(|streams| streams.round(broker, records, &name)));
        let (passed, served) = (passed[round].rate, served[round].rate);
        println!(
            "pass-through {passed:9.0} records/s   veilstream {served:9.0} records/s   ratio {:.2}",
            served / passed
        );
    }
    println!("medians:              records/s   processor time per record, own + broker's");
    let print = |name: &str, round: &Round| {
        let Round { rate, own, broker } = round;
        println!("  {name:<18} {rate:10.0}   {own:.2} + {broker:.2} = {:.2} us", own + broker);
    };
    let (passed, served) = (median(&passed), median(&served));
    print("pass-through", &passed);
    print("veilstream", &served);
    println!(
        "veilstream to pass-through: {:.2} of the records/s, {:.2} times the processor time",
        served.rate / passed.rate,
        served.sum() / passed.sum()
    );
    if !counted.is_empty() {
        let counted = median(&counted);
        print("kafka streams", &counted);
        println!(
            "veilstream to kafka streams: {:.1} times the records per second of processor time, {:.1} without the broker's",
            counted.sum() / served.sum(),
            counted.own / served.own
        );
    }
}

/// Consume, produce, commit: what any exactly-once program must at least do. From the first record on.
fn pass_through(broker: &Broker, records: usize, window: usize, name: &str) -> Round {
    let source = KafkaSourceConfig {
        rebalance: Default::default(),
        member: None,
        cluster: broker.cluster(),
        topics: vec![TopicRule { name: "people".into(), placement: 0 }],
        placements: Vec::new(),
        progress: None,
        group: format!("pass-{name}"),
        format: MessageFormat::Json,
        registry: None,
        start: Start::Earliest,
        on_gap: OnGap::Stop,
        bad_start: Default::default(),
    };
    let mut settings = group_consumer(&source, 64 << 20);
    let consumer: BaseConsumer = settings.set("auto.offset.reset", "earliest").create().unwrap();
    consumer.subscribe(&["people"]).unwrap();
    let producer = broker.producer("passed", format!("pass-{name}"));
    let (mut read, mut started, mut next, mut came) = (0, None, HashMap::new(), Instant::now());
    let (own, busy) = (ProcessTime::now(), broker.busy());
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
        send(&producer, BaseRecord::to("passed").payload(message.payload().unwrap()));
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
            commit(&producer);
        }
    }
    let micros = 1e6 / records as f64;
    Round {
        rate: records as f64 / started.unwrap().elapsed().as_secs_f64(),
        own: own.elapsed().as_secs_f64() * micros,
        broker: (broker.busy() - busy) * micros,
    }
}

/// `veilstream run` on the same topic. From when it has its partitions on.
fn service(broker: &Broker, records: usize, window: usize, name: &str) -> Round {
    let busy = broker.busy();
    let mut service = Service::start(broker, name, "people", "safe", window);
    let (assigned, published) = service.finish(records, 10 * PATIENCE);
    let last = published.last().expect("a release").at;
    let micros = 1e6 / records as f64;
    Round {
        rate: records as f64 / (last - assigned) * 1e3,
        own: service.busy() * micros,
        broker: (broker.busy() - busy) * micros,
    }
}
