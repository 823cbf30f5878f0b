//! A running `veilstream run`, watched over HTTP and through its logs.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use super::{Desk, Left, wait_until};

/// The section to add to a pipeline so that it can be watched.
pub const HTTP: &str = "http: { listen: 127.0.0.1:0 }\n";

/// A service, its input open.
pub struct Service {
    child: Child,
    stdin: Option<ChildStdin>,
    address: String,
    logs: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
    out: Arc<Mutex<String>>,
}

impl Service {
    /// Starts `run -c CONFIG`, whose configuration has [`HTTP`] in it, and waits until it listens.
    pub fn start(desk: &Desk, config: &str, log: &str) -> Self {
        let mut command = desk.command(&["--log", log, "run", "-c", config]);
        let mut child = command.stdin(Stdio::piped()).spawn().expect("started");
        let stdin = child.stdin.take();
        let (logs, out) = (Arc::new(Mutex::new(String::new())), Arc::new(Mutex::new(String::new())));
        let collect = |mut read: Box<dyn std::io::BufRead + Send>, into: &Arc<Mutex<String>>| {
            let into = Arc::clone(into);
            std::thread::spawn(move || {
                let mut line = String::new();
                while read.read_line(&mut line).is_ok_and(|read| read > 0) {
                    into.lock().expect("unpoisoned").push_str(&line);
                    line.clear();
                }
            })
        };
        let readers = vec![
            collect(Box::new(BufReader::new(child.stderr.take().expect("a pipe"))), &logs),
            collect(Box::new(BufReader::new(child.stdout.take().expect("a pipe"))), &out),
        ];
        let mut service = Self { child, stdin, address: String::new(), logs, readers, out };
        let find = |logs: &str| {
            let line = logs.lines().find(|line| line.contains("serving the console"))?;
            Some(line.split("address=").nth(1)?.split_whitespace().next()?.to_owned())
        };
        wait_until("the service listens", || {
            service.address = find(&service.logs()).unwrap_or_default();
            !service.address.is_empty()
        });
        service
    }

    /// Where it listens.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The process's number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn logs(&self) -> String {
        self.logs.lock().expect("unpoisoned").clone()
    }

    pub fn out(&self) -> String {
        self.out.lock().expect("unpoisoned").clone()
    }

    pub fn send(&mut self, text: &[u8]) {
        use std::io::Write as _;
        let stdin = self.stdin.as_mut().expect("still open");
        stdin.write_all(text).and_then(|()| stdin.flush()).expect("taken");
    }

    /// Status and body of a page.
    pub fn get(&self, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let mut request = agent.get(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut response = request.call().expect("an answer");
        let mut body = String::new();
        response.body_mut().as_reader().read_to_string(&mut body).expect("a body");
        (response.status().as_u16(), body)
    }

    /// The value of a series in `/metrics`.
    pub fn metric(&self, series: &str) -> Option<f64> {
        let (_, text) = self.get("/metrics", &[]);
        text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    /// Waits until this many records have been read.
    pub fn wait_for_records(&self, count: usize) {
        wait_until("the records are read", || self.metric("veilstream_records_read_total") >= Some(count as f64));
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status();
        assert!(status.expect("kill").success());
    }

    /// Waits for the end, with the input still open.
    pub fn end(mut self) -> Left {
        let code = self.child.wait().expect("ended").code().unwrap_or(-1);
        self.readers.drain(..).for_each(|reader| reader.join().expect("read"));
        Left { code, out: self.out(), err: self.logs() }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // A test that failed half way leaves nothing running.
        let _ = self.child.kill();
    }
}
