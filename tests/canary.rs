//! Strings planted in every field appear in no log at trace level, no error, no panic message, no metric, no report.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod program;

use program::service::{HTTP, Service};
use program::{Desk, Left, jsonl, people, policy};

/// In whatever was planted.
const CANARY: &str = "canary";

/// Records with a canary in each field in turn: named and unnamed ones, keys, and records that cannot be read.
fn planted() -> Vec<String> {
    [
        // Named: identifier, quasi (outside its hierarchy), sensitive, kept, and a field nobody named.
        r#"{"id":"canary1","age":30,"job":"cook","score":1}"#,
        r#"{"id":"a","age":"canary2","job":"cook","score":1}"#,
        r#"{"id":"b","age":30,"job":{"canary3":"canary3"},"score":1}"#,
        r#"{"id":"c","age":30,"job":"cook","score":1,"unnamed":"canary4","canary5":1}"#,
        r#"{"id":["canary6"],"age":30,"job":"cook","score":1}"#,
        r#"{"id":"d","age":{"canary7":[]},"job":"cook"}"#,
        r#"{"id":"e","age":null,"job":"canary8"}"#,
        // Malformed in many ways.
        r#"{"id":"canary9","age":30,"#,
        r#"{"id":"canary10" "age":30}"#,
        r#"{"id":"f","id":"canary11","age":1,"job":"x"}"#,
        r#"canary12"#,
        r#"["canary13"]"#,
        r#"{"id":"g","age":30,"job":"canary14\ud800"}"#,
        r#"{"canary15":"canary15"}"#,
    ]
    .map(str::to_owned)
    .into()
}

#[track_caller]
fn silent(what: &str, text: &str) {
    let line = text.lines().find(|line| line.contains(CANARY));
    assert!(line.is_none(), "{what}: {line:?}");
}

/// The policy of these tests: everything that can be named is.
fn config(more: &str) -> String {
    policy(&format!("  keep: [score]\n  suppression: {{ limit: 20% }}\n{more}"))
}

#[test]
fn nothing_of_a_record_is_logged_measured_or_reported_by_the_service() {
    let desk = Desk::new();
    desk.write(
        "pipeline.yaml",
        config(&format!("window: {{ tumbling: {{ max_records: 150, max_age: 1h }} }}\n{HTTP}")),
    );
    let mut service = Service::start(&desk, "pipeline.yaml", "trace");
    let people = people(300);
    let mut sent = 0;
    for (bad, good) in planted().iter().cycle().zip(jsonl(&people).lines()) {
        service.send(format!("{bad}\n{good}\n").as_bytes());
        sent += 2;
    }
    service.wait_for_records(sent);
    program::wait_until("a release", || !service.get("/", &[]).1.contains("Nothing has been published yet"));
    for path in ["/", "/status.json", "/metrics"] {
        silent(path, &service.get(path, &[]).1);
    }
    // Who asks for something strange is not told what it was.
    for (path, headers) in [
        ("/canary", &[][..]),
        ("/?canary=canary", &[("Host", "canary.example")]),
        ("/metrics?canary", &[("Authorization", "Bearer canary")]),
        ("/%63%61nary", &[("X-Canary", "canary")]),
    ] {
        silent("errors over HTTP", &service.get(path, headers).1);
    }
    service.signal("TERM");
    let left = service.end().expect(0);
    assert!(left.err.contains("TRACE") || left.err.contains("DEBUG"), "trace is on");
    assert!(left.err.contains("record rejected"), "rejections are logged, by position");
    silent("logs", &left.err);
    // Subjects and unnamed fields never leave; the sensitive ones that do are what the user asked for.
    silent("released rows", &left.out.replace("\"job\":\"canary8\"", ""));
}

#[test]
fn nothing_of_a_file_is_told_by_the_commands() {
    let desk = Desk::new();
    desk.write("policy.yaml", config(""));
    let mut lines = jsonl(&people(200)).replace('}', ",\"score\":1}");
    lines.extend(planted().iter().map(|line| format!("{line}\n")));
    desk.write("in.jsonl", &lines);
    let mut header = "id,age,job,score,canary0\n".to_owned();
    (0..50).for_each(|i| header.push_str(&format!("p{i},3{},cook,1,canary1\n", i % 10)));
    let bad_csv = [
        "canary2,30,cook\n",
        "canary3,30,\"cook,1,2\n",
        "canary4,30,cook,1,2,3,4\n",
        "canary5,\"30\"canary6,cook,1,2\n",
        "x,canary7,cook,1,2\n",
    ];
    desk.write("in.csv", header.clone() + &bad_csv.concat());
    desk.write("invalid.csv", [header.as_bytes(), b"canary8\xff,30,cook,1,2\n"].concat());
    // Headers with a person in them, and files of another kind.
    desk.write("headless.csv", "canary9,30,cook\ncanary10,31,cook\n");
    desk.write("other.avro", "canary11, not Avro at all\n");
    desk.write("truncated.avro", b"Obj\x01canary12");
    let trace = |arguments: &[&str]| -> Left {
        let mut command = desk.command(arguments);
        Left::of(command.env("RUST_LOG", "trace").env("RUST_BACKTRACE", "full").output().unwrap())
    };
    for input in ["in.jsonl", "in.csv", "invalid.csv", "headless.csv", "other.avro", "truncated.avro"] {
        let made = trace(&["anonymize", "-c", "policy.yaml", input, "-o", "out.jsonl", "--report", "report.json"]);
        silent(&format!("anonymize {input}"), &format!("{}{}", made.out, made.err));
        let page = trace(&["anonymize", "-c", "policy.yaml", input, "-o", "out.jsonl", "--report", "report.html"]);
        silent(&format!("anonymize {input}"), &format!("{}{}", page.out, page.err));
        for report in ["report.json", "report.html"] {
            if desk.path(report).exists() {
                silent(report, &desk.read(report));
            }
        }
        for arguments in
            [&["search", "-c", "policy.yaml", input, "--json"][..], &["search", "-c", "policy.yaml", input]]
        {
            let left = trace(arguments);
            silent(&format!("search {input}"), &format!("{}{}", left.out, left.err));
        }
        let front = ["frontier", "-c", "policy.yaml", input, "--objectives", "k,glm", "--plot", "front.svg"];
        let left = trace(&front);
        silent(&format!("frontier {input}"), &format!("{}{}", left.out, left.err));
        if desk.path("front.svg").exists() {
            silent("front.svg", &desk.read("front.svg"));
        }
        // `verify` names a class of a public file, but nothing else: here the records cannot be read at all.
        let left = trace(&["verify", "-c", "policy.yaml", input]);
        let text = format!("{}{}", left.out, left.err);
        silent(&format!("verify {input}"), text.split("  class:").next().unwrap());
    }
    for entry in std::fs::read_dir(desk.path(".")).unwrap() {
        silent("file names", entry.unwrap().file_name().to_str().unwrap());
    }
}

#[test]
fn a_configuration_with_secrets_keeps_them() {
    let desk = Desk::new();
    desk.write("secret", "canary-token\n");
    let broken = config("http: { listen: 127.0.0.1:0, token: '${file:secret}' }\nsearch: { seed: '${file:secret}' }\n");
    desk.write("pipeline.yaml", broken);
    let left = desk.run(&["--log", "trace", "run", "-c", "pipeline.yaml"]).expect(2);
    silent("configuration", &format!("{}{}", left.out, left.err));
}

/// Panics in a process of its own, started by the test below.
#[test]
fn panics_when_asked_to() {
    if std::env::var_os("VEILSTREAM_TEST_PANIC").is_some() {
        veilstream::cli::install_panic_hook();
        panic!("canary in a panic message");
    }
}

#[test]
fn a_panic_tells_where_and_not_what() {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "panics_when_asked_to", "--nocapture"]).env("VEILSTREAM_TEST_PANIC", "1");
    let left = Left::of(child.env("RUST_BACKTRACE", "full").output().unwrap());
    assert_ne!(left.code, 0);
    assert!(left.err.contains("tests/canary.rs"), "{}", left.err);
    silent("panic", &left.err.replace("canary.rs", ""));
}
