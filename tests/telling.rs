//! The service says what is wrong: a policy that nothing satisfies, kept fields that identify, limits that are reached by
//! another way, columns that became their top, groups that vanished.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod program;

use program::service::{HTTP, Service};
use program::{Desk, Left, jsonl, people, policy, wait_until};
use serde_json::{Value, json};

const WINDOW: &str = "window: { tumbling: { max_records: 100, max_age: 1h } }\n";

fn serve(config: &str) -> (Desk, Service) {
    let desk = Desk::new();
    desk.write("pipeline.yaml", config);
    let service = Service::start(&desk, "pipeline.yaml", "info");
    (desk, service)
}

fn lines(left: &Left) -> Vec<Value> {
    left.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// One person a hundred times is a window of which nothing can be published.
fn one_person() -> String {
    jsonl(&people(100).into_iter().map(|(age, job, _)| (age, job, "same".into())).collect::<Vec<_>>())
}

#[test]
fn a_stream_that_nothing_satisfies_is_neither_green_nor_ready() {
    let (desk, mut service) = serve(&policy(&format!("{WINDOW}{HTTP}")));
    let suppressed = |service: &Service| service.metric("veilstream_records_total{outcome=\"suppressed\"}");
    service.send(one_person().as_bytes());
    wait_until("a window is suppressed", || suppressed(&service) == Some(100.0));
    // One window may be too small by chance.
    assert_eq!(service.get("/readyz", &[]).0, 200);
    assert_eq!(service.metric("veilstream_unmet_windows"), Some(1.0));
    service.send(one_person().repeat(2).as_bytes());
    wait_until("three windows are suppressed", || suppressed(&service) == Some(300.0));
    let (status, reason) = service.get("/readyz", &[]);
    assert!(
        status == 503 && reason.contains("3 windows") && reason.contains("no permitted generalization"),
        "{reason}"
    );
    assert_eq!(service.metric("veilstream_ready"), Some(0.0));
    assert_eq!(service.metric("veilstream_releases_total{outcome=\"unmet\"}"), Some(3.0));
    let (_, page) = service.get("/", &[]);
    let header = page.split("</header>").next().unwrap();
    assert!(header.contains("state bad") && header.contains("nothing of the last 3 windows"), "{header}");
    let status: Value = serde_json::from_str(&service.get("/status.json", &[]).1).unwrap();
    assert_eq!((&status["unmet_windows"], &status["ready"]), (&3.into(), &false.into()));
    let top = desk.run(&["top", "--url", service.address()]).expect(0).out;
    assert!(top.contains("nothing of the last 3 windows"), "{top}");
    let logs = service.logs();
    let warned = logs.lines().filter(|line| line.contains("WARN") && line.contains("nothing of a window")).count();
    assert_eq!(warned, 3, "{logs}");
    // The first release makes it ready again.
    service.send(jsonl(&people(100)).as_bytes());
    wait_until("ready", || service.get("/readyz", &[]).0 == 200);
    assert_eq!(service.metric("veilstream_unmet_windows"), Some(0.0));
    service.signal("TERM");
    service.end().expect(0);
}

#[test]
fn a_run_that_publishes_nothing_ends_with_1() {
    let desk = Desk::new();
    let diverse = policy("").replace("k-anonymity: 5 }", "l-diversity: { field: job, l: 60 } }");
    desk.write("pipeline.yaml", format!("{diverse}{WINDOW}"));
    let left = desk.pipe(&["run", "-c", "pipeline.yaml"], jsonl(&people(250)).as_bytes()).expect(1);
    assert!(left.err.contains("the policy is not met"), "{}", left.err);
    let summary: Value = serde_json::from_str(left.err.lines().last().unwrap()).unwrap();
    assert_eq!((&summary["records_in"], &summary["records_suppressed"]), (&250.into(), &250.into()));
    assert_eq!(summary.as_object().unwrap().len(), 6, "{summary}");
    // Nothing came in: there is no policy to meet.
    desk.pipe(&["run", "-c", "pipeline.yaml"], b"").expect(0);
    let demo = desk.run(&["demo", "--records", "3", "--rate", "0"]).expect(1);
    assert!(demo.out.contains("3 records in = 0 published"), "{}", demo.out);
    desk.run(&["demo", "--records", "3", "--rate", "0", "--json"]).expect(1).json();
}

/// `granulation-ga` maximises security times quality, so that people want to see all three.
#[test]
fn security_quality_and_their_product_are_shown() {
    let desk = Desk::new();
    desk.write("in.jsonl", jsonl(&people(300)));
    let confidential = "k-anonymity: 5 }, { confidential: { sentences: [{ name: nurse, field: job, in: [nurse] }] } }";
    let config = policy("").replace("k-anonymity: 5 }", confidential);
    desk.write("policy.yaml", config);
    let told = desk.run(&["search", "-c", "policy.yaml", "in.jsonl", "--algorithm", "granulation-ga"]).expect(0).out;
    let figure = |name: &str| -> f64 {
        let after = told.split(&format!(" {name} ")).nth(1).unwrap_or_else(|| panic!("{name} in {told}"));
        after.split([',', '\n']).next().unwrap().trim().parse().unwrap()
    };
    assert!((figure("sf") * figure("ql") - figure("sf*ql")).abs() < 0.002, "{told}");
}

/// People with a number that only they have, and an object that says who they are.
fn named_people(count: usize) -> String {
    let more = |(i, line): (usize, &str)| {
        let more = format!(",\"account\":{i},\"shop\":\"s{}\",\"customer\":{{\"name\":\"n{i}\"}}}}\n", i % 3);
        line.replace('}', &more)
    };
    jsonl(&people(count)).lines().enumerate().map(more).collect()
}

#[test]
fn a_kept_field_that_identifies_is_left_out_unless_it_was_reviewed() {
    let desk = Desk::new();
    desk.write("in.jsonl", named_people(500));
    let release = |keep: &str| {
        desk.write("policy.yaml", policy(&format!("  keep: {keep}\n")));
        let run = |report: &str| {
            desk.run(&["anonymize", "-c", "policy.yaml", "in.jsonl", "-o", "-", "--report", report]).expect(0)
        };
        let left = run("report.json");
        run("report.html");
        let report: Value = serde_json::from_str(&desk.read("report.json")).unwrap();
        (lines(&left), left.err.clone(), report, desk.read("report.html"))
    };
    let (rows, said, report, page) = release("[account, shop, customer]");
    assert_eq!(rows.len(), 500);
    for row in rows {
        assert!(row["account"].is_null() && row["customer"].is_null() && row["shop"].is_string(), "{row}");
    }
    assert!(said.contains("`account`") && said.contains("`customer`") && said.contains("reviewed: true"), "{said}");
    let kept = |field: &str, unique: f64, nested: bool, reviewed: bool, withheld: bool| json!({ "field": field, "unique_share": unique, "nested": nested, "reviewed": reviewed, "withheld": withheld });
    let expected = [
        kept("account", 1.0, false, false, true),
        kept("shop", 0.0, false, false, false),
        kept("customer", 1.0, true, false, true),
    ];
    assert_eq!(report["kept"], json!(expected));
    assert!(page.contains("left out: 100 % of its values belong to one person alone"), "{page}");
    assert!(page.contains("left out: it holds objects or lists"), "{page}");
    let (rows, said, report, _) = release("[{ name: account, reviewed: true }, { name: customer, reviewed: true }]");
    assert!(rows.iter().all(|row| row["account"].is_u64() && row["customer"]["name"].is_string()));
    assert!(!said.contains("account"), "{said}");
    assert_eq!(report["kept"][0], kept("account", 1.0, false, true, false));
}

#[test]
fn whoever_comes_often_does_not_make_a_kept_field_common() {
    let desk = Desk::new();
    // Fifty people, each ten times, with a number of their own.
    let often = (0..500)
        .map(|i| format!("{{\"id\":\"p{0}\",\"age\":{1},\"job\":\"cook\",\"account\":{0}}}\n", i % 50, 20 + i % 5));
    desk.write("in.jsonl", often.collect::<String>());
    desk.write("policy.yaml", policy("  keep: [account]\n"));
    let left = desk.run(&["anonymize", "-c", "policy.yaml", "in.jsonl", "-o", "-"]).expect(0);
    assert!(lines(&left).iter().all(|row| row["account"].is_null()));
}

#[test]
fn a_stream_leaves_out_a_kept_field_that_identifies_and_goes_on() {
    let (_desk, mut service) = serve(&policy(&format!("  keep: [account, shop]\n{WINDOW}{HTTP}")));
    service.send(named_people(300).as_bytes());
    wait_until("three releases", || service.out().lines().count() == 300);
    assert!(service.out().lines().all(|line| line.contains("\"account\":null") && line.contains("\"shop\":\"s")));
    wait_until("counted", || service.metric("veilstream_kept_withheld{field=\"account\"}") == Some(1.0));
    assert_eq!(service.metric("veilstream_kept_unique_ratio{field=\"account\"}"), Some(1.0));
    assert_eq!(service.metric("veilstream_kept_withheld{field=\"shop\"}"), Some(0.0));
    let (_, page) = service.get("/", &[]);
    assert!(page.contains("account") && page.contains("is left out"), "the console names it");
    service.signal("TERM");
    let left = service.end().expect(0);
    let told = left.err.lines().filter(|line| line.contains("WARN") && line.contains("kept field")).count();
    assert_eq!(told, 1, "once: {}", left.err);
}

#[test]
fn a_kept_field_is_neither_subject_identifier_nor_quasi_identifier() {
    let desk = Desk::new();
    for (field, more) in [("id", ""), ("age", ""), ("job", ""), ("mail", "  identifiers: [mail]\n")] {
        desk.write("policy.yaml", policy(&format!("{more}  keep: [{{ name: {field}, reviewed: true }}]\n")));
        let left = desk.run(&["validate", "-c", "policy.yaml"]).expect(2);
        assert!(left.err.contains(&format!("`{field}`")), "{}", left.err);
    }
}

/// `unknown` of a hundred people have an age that is no number; one more is alone in whatever is not the top.
fn unplaced(unknown: usize) -> String {
    let aged = |(i, (age, job, id)): (usize, (u32, &str, String))| match i {
        i if i < unknown => format!("{{\"id\":\"{id}\",\"age\":\"old\",\"job\":\"{job}\"}}\n"),
        i if i == unknown => format!("{{\"id\":\"{id}\",\"age\":119,\"job\":\"{job}\"}}\n"),
        _ => format!("{{\"id\":\"{id}\",\"age\":{},\"job\":\"{job}\"}}\n", 20 + age % 5),
    };
    people(100).into_iter().enumerate().map(aged).collect()
}

#[test]
fn the_suppression_limit_is_a_limit_of_all_that_is_left_out() {
    let desk = Desk::new();
    desk.write("policy.yaml", policy("  suppression: { limit: 5% }\n  unknown_value: suppress\n"));
    let release = |unknown: usize, code: i32| {
        desk.write("in.jsonl", unplaced(unknown));
        let run = ["anonymize", "-c", "policy.yaml", "in.jsonl", "-o", "out.jsonl", "--report", "report.json"];
        let left = desk.run(&run).expect(code);
        let report: Value = serde_json::from_str(&desk.read("report.json")).unwrap();
        (left.err, report)
    };
    // Four for their value, and one more that is alone: five in all.
    let (_, report) = release(4, 0);
    assert_eq!((&report["records_suppressed"], &report["recoding"]["age"]), (&5.into(), &0.into()));
    // Five for their value: nobody else may be left out, so the one alone makes everybody's age the top.
    let (_, report) = release(5, 0);
    assert_eq!((&report["records_suppressed"], &report["recoding"]["age"]), (&5.into(), &4.into()));
    for unknown in [6, 90] {
        let (said, report) = release(unknown, 1);
        assert!(said.contains("a value that has no place") && said.contains("`suppression.limit`"), "{said}");
        assert_eq!((&report["satisfies"], &report["records_suppressed"]), (&false.into(), &100.into()));
        assert_eq!(report["suppressed_by_value"], unknown);
    }
    desk.write(
        "pipeline.yaml",
        policy(&format!("  suppression: {{ limit: 5% }}\n  unknown_value: suppress\n{WINDOW}")),
    );
    let left = desk.pipe(&["run", "-c", "pipeline.yaml"], unplaced(6).as_bytes()).expect(1);
    assert!(left.err.contains("a value that has no place"), "{}", left.err);
    // What waits for the next window does not forget whom it lost.
    let hold = "  suppression: { limit: 5%, action: hold }\n  unknown_value: suppress\n";
    desk.write("pipeline.yaml", policy(&format!("{hold}{WINDOW}")));
    let two = unplaced(12) + &unplaced(0);
    let left = desk.pipe(&["run", "-c", "pipeline.yaml"], two.as_bytes()).expect(1);
    assert_eq!(left.out, "");
}

#[test]
fn a_sliding_window_counts_whom_it_lost_while_they_would_be_in_it() {
    let desk = Desk::new();
    let window = "window: { sliding: { size: 100, slide: 10 } }\n";
    desk.write(
        "pipeline.yaml",
        policy(&format!("  suppression: {{ limit: 5% }}\n  unknown_value: suppress\n{window}")),
    );
    // Of every ten records one is lost: never more than a slide's worth of them since the last snapshot.
    let one_in_ten = jsonl(&people(500))
        .replace("\"age\":20", "\"age\":\"old\"")
        .replace("\"age\":30", "\"age\":\"old\"")
        .replace("\"age\":40", "\"age\":\"old\"")
        .replace("\"age\":50", "\"age\":\"old\"")
        .replace("\"age\":60", "\"age\":\"old\"");
    let left = desk.pipe(&["run", "-c", "pipeline.yaml"], one_in_ten.as_bytes()).expect(1);
    assert_eq!(left.out, "");
}

#[test]
fn a_column_that_became_its_top_is_named() {
    let desk = Desk::new();
    desk.write("in.jsonl", unplaced(30));
    desk.write("policy.yaml", policy("  unknown_value: top\n"));
    let run = |report: &str| {
        desk.run(&["anonymize", "-c", "policy.yaml", "in.jsonl", "-o", "out.jsonl", "--report", report]).expect(0)
    };
    let said = run("report.json").err;
    assert!(said.contains("30 records have no usable `age`"), "{said}");
    let report: Value = serde_json::from_str(&desk.read("report.json")).unwrap();
    assert_eq!(report["top_fallbacks"], json!({ "age": 30 }));
    run("report.html");
    assert!(
        desk.read("report.html").contains("30 records (30 %) have no usable value"),
        "{}",
        desk.read("report.html")
    );
    let (_desk, mut service) = serve(&policy(&format!("  unknown_value: top\n{WINDOW}{HTTP}")));
    service.send(unplaced(30).as_bytes());
    wait_until("a release", || service.metric("veilstream_top_fallback_ratio{attribute=\"age\"}") == Some(0.3));
    assert!(service.logs().lines().any(|line| line.contains("WARN") && line.contains("age")), "{}", service.logs());
    assert!(service.get("/", &[]).1.contains("30 % of the last window have no usable value"));
}

/// 400 people share two zips; 138 of another race and a rare disease are alone in theirs, and so are three of a fourth.
fn minority() -> String {
    let person = |i: usize| {
        let (race, zip, disease) = match i {
            0..400 => (["A", "B"][i % 2], format!("1000{}", i % 4), ["flu", "cold"][i / 2 % 2]),
            400..538 => ("X", format!("2{i:04}"), "rare"),
            _ => ("Y", format!("3{i:04}"), "flu"),
        };
        format!("{{\"id\":\"p{i}\",\"race\":\"{race}\",\"zip\":\"{zip}\",\"disease\":\"{disease}\"}}\n")
    };
    (0..541).map(person).collect()
}

const MINORITY: &str = "policy:
  quasi_identifiers:
    - { name: race, hierarchy: { tree: [{ label: A }, { label: B }, { label: X }, { label: Y }] }, max_level: 0 }
    - { name: zip, hierarchy: { prefix: { length: 5 } }, max_level: 0 }
  sensitive: [{ name: disease }]
  subject: id
  privacy: [{ k-anonymity: 5 }]
  suppression: { limit: 30% }
";

#[test]
fn a_minority_that_vanished_is_named() {
    let desk = Desk::new();
    desk.write("in.jsonl", minority());
    desk.write("policy.yaml", MINORITY);
    let run = |report: &str| {
        desk.run(&["anonymize", "-c", "policy.yaml", "in.jsonl", "-o", "out.jsonl", "--report", report]).expect(0)
    };
    run("report.json");
    let report: Value = serde_json::from_str(&desk.read("report.json")).unwrap();
    let group = |attribute: &str, value: &str| json!({ "attribute": attribute, "value": value, "records": 138, "left_out": 138 });
    // Neither the three of race Y, nor anybody's zip: fewer than k people have it.
    assert_eq!(report["groups_left_out"], json!([group("race", "X"), group("disease", "rare")]));
    run("report.html");
    let page = desk.read("report.html");
    assert!(page.contains("all 138 records with race = X"), "{page}");
    assert!(page.contains("all 138 records with disease = rare"), "{page}");
    let (_desk, mut service) = serve(&format!("{MINORITY}window: {{ tumbling: {{ max_records: 541 }} }}\n{HTTP}"));
    service.send(minority().as_bytes());
    wait_until("a release", || service.metric("veilstream_groups_left_out") == Some(2.0));
    let (_, page) = service.get("/", &[]);
    assert!(page.contains("all 138 records with race = X"), "{page}");
    for elsewhere in [service.get("/status.json", &[]).1, service.get("/metrics", &[]).1, service.logs()] {
        assert!(!elsewhere.contains("rare"), "{elsewhere}");
    }
}

/// On a terminal `run` says how much of a file it has read and how long the rest takes; not so for dumb terminals, and not in a pipe.
#[test]
fn run_shows_its_progress_on_a_terminal() {
    let desk = Desk::new();
    desk.write("in.jsonl", jsonl(&people(3000)));
    let ends = "window: { tumbling: { max_records: 500 } }\nsource: { file: { path: in.jsonl } }\n\
                sink: { file: { path: /dev/null, format: jsonl } }\n";
    desk.write("pipeline.yaml", policy(&format!("  keep: [score]\n{ends}")));
    let run = |terminal: &str| {
        let mut command = std::process::Command::new("script");
        command.args(["-qec", concat!(env!("CARGO_BIN_EXE_veilstream"), " run -c pipeline.yaml"), "/dev/null"]);
        command
            .current_dir(desk.path(""))
            .env("TERM", terminal)
            .env("NO_COLOR", "1")
            .stdin(std::process::Stdio::null());
        let done = command.output().unwrap();
        assert!(done.status.success(), "{done:?}");
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let shown = run("xterm");
    assert!(shown.contains("reading: ") && shown.contains(" % of ") && shown.contains(" left"), "{shown:?}");
    assert!(shown.matches("release published").count() == 6, "the log is whole: {shown:?}");
    assert!(!shown.contains("\u{1b}[3"), "no colours with NO_COLOR: {shown:?}");
    let dumb = run("dumb");
    assert!(!dumb.contains("reading: ") && !dumb.contains('\u{1b}'), "{dumb:?}");
    let piped = desk.run(&["run", "-c", "pipeline.yaml"]).expect(0);
    assert!(!piped.err.contains("reading: ") && !piped.err.contains('\u{1b}'), "{}", piped.err);
}
