//! `cargo bench --bench kafka`: the service against a pass-through, on a real broker.
//!
//! `-- rate`: both read the same topic and write transactions of the same size with the same librdkafka settings; the pass-through
//! does nothing else. Records per second from the first record to the last commit, and processor time per record, the broker's
//! included. They take turns, and the medians are compared, for what else is on the machine disturbs single rounds. Beside them, a
//! Kafka Streams job that only counts per window ([`streams`]; skipped without Java and Maven).
//! `-- latency`: records come at a steady rate. The time from the close of a window to the commit of its release, beside the
//! time it takes to serialize rows of the same release and commit them in a transaction, while as much comes in.
//!
//! `VEILSTREAM_BENCH_RECORDS` (default 1000000), `VEILSTREAM_BENCH_WINDOW` (50000), `VEILSTREAM_BENCH_ROUNDS` (7),
//! `VEILSTREAM_BENCH_WINDOWS` (120, of `latency`) and `VEILSTREAM_BENCH_RATE` (80000 a second, of `latency`) change the size.
//! `VEILSTREAM_BENCH_PROGRAM` is another build to measure. Deliberately absent: the time to start and to join the group.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod broker;
mod latency;
mod rate;
mod streams;

use broker::Broker;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` only asks whether it builds.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    let wanted = |part: &str| arguments.len() == 1 || arguments.iter().any(|argument| argument == part);
    let broker = Broker::up();
    broker.create(&["people", "live", "passed", "counts"]);
    for topic in ["safe", "calm"] {
        broker.create(&[
            topic,
            &format!("{topic}-manifests"),
            &format!("{topic}-journal"),
            &format!("{topic}-dead-letters"),
        ]);
    }
    let window = number("VEILSTREAM_BENCH_WINDOW", 50_000);
    if wanted("rate") {
        rate::run(&broker, number("VEILSTREAM_BENCH_RECORDS", 1_000_000), window, number("VEILSTREAM_BENCH_ROUNDS", 7));
    }
    if wanted("latency") {
        let (windows, rate) = (number("VEILSTREAM_BENCH_WINDOWS", 120), number("VEILSTREAM_BENCH_RATE", 80_000));
        latency::run(&broker, windows, window, rate);
    }
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
