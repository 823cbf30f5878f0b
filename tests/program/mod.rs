//! The real binary, run as a user runs it, in a directory of its own.
#![allow(dead_code, unreachable_pub, missing_docs)]

pub mod service;

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long to wait for something that must happen. Only a defect, or a machine under great load, gets there.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A directory to work in.
pub struct Desk(pub TempDir);

/// What a command left behind.
pub struct Left {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Left {
    pub fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        Self { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
    }

    /// The one JSON object on standard output.
    pub fn json(&self) -> serde_json::Value {
        assert_eq!(self.out.lines().count(), 1, "one object: {}", self.out);
        serde_json::from_str(&self.out).expect("JSON on standard output")
    }

    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }
}

impl Desk {
    pub fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, content).expect("written");
    }

    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The binary, ready to be started here.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_veilstream"));
        command.args(arguments).current_dir(self.0.path()).env_remove("RUST_LOG");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Left {
        Left::of(self.command(arguments).output().expect("started"))
    }

    /// Runs with `input` on standard input.
    pub fn pipe(&self, arguments: &[&str], input: &[u8]) -> Left {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().expect("started");
        let mut stdin = child.stdin.take().expect("a pipe");
        let input = input.to_vec();
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let left = Left::of(child.wait_with_output().expect("ended"));
        writer.join().expect("written");
        left
    }
}

/// Waits until `done`, within patience.
#[track_caller]
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < PATIENCE, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ages and jobs: `count` records in classes of `count / 10` by decade.
pub fn people(count: usize) -> Vec<(u32, &'static str, String)> {
    let jobs = ["cook", "nurse", "clerk", "smith"];
    (0..count).map(|i| ((20 + i % 50) as u32, jobs[i % 4], format!("p{i}"))).collect()
}

pub fn csv(delimiter: char, people: &[(u32, &str, String)]) -> String {
    let d = delimiter;
    let mut text = format!("id{d}age{d}job\n");
    people.iter().for_each(|(age, job, id)| text.push_str(&format!("{id}{d}{age}{d}{job}\n")));
    text
}

pub fn jsonl(people: &[(u32, &str, String)]) -> String {
    people.iter().map(|(age, job, id)| format!("{{\"id\":\"{id}\",\"age\":{age},\"job\":\"{job}\"}}\n")).collect()
}

/// A policy over [`people`], with `more` at the end.
pub fn policy(more: &str) -> String {
    format!(
        "policy:
  quasi_identifiers:
    - {{ name: age, hierarchy: {{ intervals: {{ widths: [5, 10, 20], min: 0, max: 120 }} }} }}
  sensitive: [{{ name: job }}]
  subject: id
  privacy: [{{ k-anonymity: 5 }}]
{more}"
    )
}
