//! What the console costs a stream at full load, and how long it takes to answer.
//!
//! The service reads a generator as fast as it can. In turns, nobody watches, and a reader asks for the page once a second,
//! five times as often as the page itself does. CPU seconds per record are compared, because other work on the machine
//! moves the clock but hardly the CPU time. `cargo bench --bench console`; seconds per turn in VEILSTREAM_BENCH_SECONDS.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "../tests/program/mod.rs"]
mod program;

use std::time::{Duration, Instant};

use program::Desk;
use program::service::{HTTP, Service};

/// Turns of each kind. More take longer; fewer leave the comparison to chance.
const TURNS: usize = 7;

/// User and system time of a process, in clock ticks of 10 ms.
fn ticks(id: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).expect("a process");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
    // The 14th and 15th field of the whole line; the first two end with the parenthesis.
    fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()
}

/// CPU microseconds per record over a turn; asks for the page once a second if `watched`, and notes how long it took.
fn turn(service: &Service, length: Duration, watched: bool, answers: &mut Vec<f64>) -> f64 {
    let read = || service.metric("veilstream_records_read_total").expect("a metric");
    let (cpu, records, started) = (ticks(service.id()), read(), Instant::now());
    while started.elapsed() < length {
        let asked = Instant::now();
        if watched {
            let (status, page) = service.get("/", &[]);
            assert!(status == 200 && page.contains("</html>"));
            answers.push(asked.elapsed().as_secs_f64() * 1e3);
        }
        std::thread::sleep(Duration::from_secs(1).saturating_sub(asked.elapsed()));
    }
    (ticks(service.id()) - cpu) * 1e4 / (read() - records)
}

fn main() {
    let seconds = std::env::var("VEILSTREAM_BENCH_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(10);
    let desk = Desk::new();
    let policy = veilstream::source::generator::demo_policy_yaml().split("\nsearch:").next().unwrap().to_owned();
    let rest = "window: { tumbling: { max_records: 5000 } }\nsearch: { time_budget: 200ms }\n\
                source: { generator: { subjects: 20000 } }\nsink: { file: { path: /dev/null, format: jsonl } }\n";
    desk.write("pipeline.yaml", format!("{policy}\n{rest}{HTTP}"));
    let service = Service::start(&desk, "pipeline.yaml", "warn,veilstream::telemetry::http=info");
    program::wait_until("it runs", || service.metric("veilstream_releases_total{outcome=\"published\"}") >= Some(10.0));
    let length = Duration::from_secs(seconds);
    let (mut alone, mut more, mut answers) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let cost = turn(&service, length, false, &mut answers);
        alone.push(cost);
        more.push(100.0 * (turn(&service, length, true, &mut answers) / cost - 1.0));
    }
    [&mut alone, &mut more, &mut answers].into_iter().for_each(|figures| figures.sort_by(f64::total_cmp));
    let at = |share: f64| answers[((answers.len() - 1) as f64 * share) as usize];
    let (least, median, most) = (more[0], more[TURNS / 2], more[TURNS - 1]);
    println!("CPU per record: {:.2} us alone; watched {median:+.2} % ({least:+.2} to {most:+.2})", alone[TURNS / 2]);
    println!(
        "page answers: median {:.1} ms, p95 {:.1} ms, longest {:.1} ms of {}",
        at(0.5),
        at(0.95),
        at(1.0),
        answers.len()
    );
    let (_, page) = service.get("/", &[]);
    println!("page: {} kB", page.len() / 1000);
}
