//! A Kafka Streams job that only counts per window (`streams/CountPerWindow.java`), exactly once, on the same topic.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use super::broker::{Broker, busy};
use super::rate::Round;

/// The job's process, between two rounds. Ended by the end of its input.
pub(crate) struct Streams {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Streams {
    /// Compiles and starts the job; `None`, and the reason is printed, where that is not possible.
    pub(crate) fn start(broker: &Broker, input: &str, output: &str, records: usize) -> Option<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/kafka/streams/run");
        let fetched = Command::new(&script).arg("fetch").output().unwrap();
        if !fetched.status.success() {
            println!("Kafka Streams is skipped: {}", String::from_utf8_lossy(&fetched.stderr).trim());
            return None;
        }
        let mut command = Command::new(script);
        command.args([&broker.bootstrap, input, output]).arg(broker.dir.join("streams"));
        // As many threads as the machine of the figures has cores.
        command.args([&records.to_string(), "2"]);
        let log = std::fs::File::create(broker.dir.join("streams.log")).unwrap();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let (orders, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Some(Self { child, orders, answers })
    }

    /// Counts the whole topic once, from the first record to the last commit.
    pub(crate) fn round(&mut self, broker: &Broker, records: usize, name: &str) -> Round {
        writeln!(self.orders, "count-{name}").unwrap();
        self.answer("begun");
        let (started, own, brokers) = (Instant::now(), busy(self.child.id()), broker.busy());
        self.answer("done");
        let micros = 1e6 / records as f64;
        Round {
            rate: records as f64 / started.elapsed().as_secs_f64(),
            own: (busy(self.child.id()) - own) * micros,
            broker: (broker.busy() - brokers) * micros,
        }
    }

    fn answer(&mut self, wanted: &str) {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), wanted, "the Kafka Streams job; see streams.log");
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
