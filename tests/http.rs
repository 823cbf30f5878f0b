//! `/metrics`, `/healthz` and `/readyz` of a running service.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod program;

use program::service::{HTTP, Service};
use program::{Desk, jsonl, people, policy, wait_until};

fn started(http: &str) -> (Desk, Service) {
    let desk = Desk::new();
    desk.write(
        "pipeline.yaml",
        policy(&format!("  keep: [score]\nwindow: {{ tumbling: {{ max_records: 100, max_age: 1h }} }}\n{http}")),
    );
    let service = Service::start(&desk, "pipeline.yaml", "info");
    (desk, service)
}

#[test]
fn figures_follow_what_happens() {
    let (_desk, mut service) = started(HTTP);
    wait_until("ready", || service.get("/readyz", &[]).0 == 200);
    assert_eq!(service.get("/healthz", &[]), (200, "ok\n".into()));
    // Every series is there from the start.
    for series in ["records_total{outcome=\"published\"}", "releases_total{outcome=\"refused\"}", "records_held"] {
        assert_eq!(service.metric(&format!("veilstream_{series}")), Some(0.0), "{series}");
    }
    let mut lines = jsonl(&people(99));
    lines.push_str("nonsense\n");
    service.send(lines.as_bytes());
    wait_until("a release", || service.metric("veilstream_releases_total{outcome=\"published\"}") == Some(1.0));
    assert_eq!(service.metric("veilstream_records_total{outcome=\"published\"}"), Some(99.0));
    assert_eq!(service.metric("veilstream_records_rejected_total{reason=\"malformed\"}"), Some(1.0));
    assert!(service.metric("veilstream_achieved_k") >= Some(5.0));
    assert!(service.metric("veilstream_information_loss{metric=\"glm\"}") > Some(0.0));
    assert_eq!(service.metric("veilstream_search_seconds_count"), Some(1.0));
    assert_eq!(service.get("/nowhere", &[]).0, 404);
    service.signal("TERM");
    service.end().expect(0);
}

#[test]
fn bounds_that_are_not_met_are_seen() {
    let (_desk, mut service) =
        started(&format!("{HTTP}search: {{ algorithm: pbg-ea, prefer: {{ bounds: {{ k: 1000 }} }} }}\n"));
    wait_until("ready", || service.get("/readyz", &[]).0 == 200);
    let unmet_bounds =
        |service: &Service, name: &str| service.metric(&format!("veilstream_bound_unmet{{objective=\"{name}\"}}"));
    assert_eq!((unmet_bounds(&service, "k"), unmet_bounds(&service, "glm")), (Some(0.0), Some(0.0)));
    service.send(jsonl(&people(100)).as_bytes());
    wait_until("a release", || service.metric("veilstream_releases_total{outcome=\"published\"}") == Some(1.0));
    assert_eq!((unmet_bounds(&service, "k"), unmet_bounds(&service, "glm")), (Some(1.0), Some(0.0)));
    let (_, page) = service.get("/engine", &[]);
    assert!(page.contains("bound not met; asked: at least 1000"), "{page}");
    assert!(service.get("/status.json", &[]).1.contains("\"unmet_bounds\":[{\""));
}

/// Once the page is served, a window is compared under every recoding. Nothing of that is in what readers get.
#[test]
fn the_recodings_are_compared_for_the_holder_of_the_data() {
    let desk = Desk::new();
    let sink = "sink: { file: { path: out.jsonl, manifest: manifests.jsonl, journal: journal.jsonl } }\n";
    let rest = "window: { tumbling: { max_records: 400, max_age: 1h } }\n";
    desk.write("pipeline.yaml", policy(&format!("{rest}{sink}{HTTP}")));
    let mut service = Service::start(&desk, "pipeline.yaml", "info");
    let page = |service: &Service| service.get("/", &[]).1;
    assert!(page(&service).contains("on the first window of at least 200 records"));
    service.send(jsonl(&people(400)).as_bytes());
    wait_until("a comparison", || page(&service).contains("Compared on 400 records"));
    let shown = page(&service);
    for wanted in [
        "recoding: full-domain: every column",
        "of the detail is given up",
        "<th scope=\"col\">full-domain (as published)</th>",
        "<th scope=\"col\">local</th>",
        "loss of one record in twenty, at least",
        "cells narrowed",
    ] {
        assert!(shown.contains(wanted), "{wanted}: {shown}");
    }
    // As `search` counts them on the same records.
    desk.write("in.jsonl", jsonl(&people(400)));
    let found = desk.run(&["search", "-c", "pipeline.yaml", "in.jsonl", "--json"]).expect(0).json();
    let counted = |recoding: &serde_json::Value| format!("<td>{}</td>", recoding["classes"]);
    let counted: String = found["recodings"].as_array().unwrap().iter().map(counted).collect();
    assert!(shown.contains(&format!("<th scope=\"row\">classes</th>{counted}")), "{counted}: {shown}");
    assert!(!shown.contains("glm") && !shown.contains(" dm "), "the page for people speaks in words: {shown}");
    assert!(service.get("/engine", &[]).1.contains("glm"), "the engine room has the figures");
    service.signal("TERM");
    let left = service.end().expect(0);
    for file in ["out.jsonl", "manifests.jsonl", "journal.jsonl"] {
        let text = desk.read(file);
        assert!(!text.is_empty() && !text.contains("local") && !text.contains("narrowed"), "{file}: {text}");
    }
    assert!(!left.err.contains("local"), "{}", left.err);
}

/// After windows that could not be published, one good release does not make the verdict green.
#[test]
fn an_outage_is_not_forgotten_with_the_next_release() {
    let (_desk, mut service) = started(HTTP);
    wait_until("ready", || service.get("/readyz", &[]).0 == 200);
    let verdict = |service: &Service| {
        let status: serde_json::Value = serde_json::from_str(&service.get("/status.json", &[]).1).unwrap();
        let of = |key: &str| status["verdict"][key].as_str().unwrap().to_owned();
        (of("state"), of("sentence"))
    };
    let one_person = "{\"id\":\"p1\",\"age\":30,\"job\":\"cook\"}\n".repeat(200);
    service.send(one_person.as_bytes());
    wait_until("two windows", || verdict(&service).1.contains("nothing of the last 2 windows could be published"));
    let (state, sentence) = verdict(&service);
    assert!(state == "failing" && sentence.contains("Raise `suppression.limit`"), "the remedy is said: {sentence}");
    service.send(jsonl(&people(100)).as_bytes());
    wait_until("a release", || service.metric("veilstream_releases_total{outcome=\"published\"}") == Some(1.0));
    let (state, sentence) = verdict(&service);
    assert!(state == "unsettled" && sentence.contains("2 of the last 3 windows could not be published"), "{sentence}");
    assert!(service.get("/", &[]).1.contains("class=\"state warn\""));
    service.signal("TERM");
    service.end().expect(0);
}

#[test]
fn figures_have_help_and_type() {
    let (_desk, service) = started(HTTP);
    let (_, text) = service.get("/metrics", &[]);
    let mut described = 0;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP veilstream_") {
            assert!(rest.split_once(' ').is_some_and(|(_, help)| help.ends_with('.')), "{line}");
            described += 1;
        } else if !line.starts_with('#') {
            assert!(line.starts_with("veilstream_"), "{line}");
        }
    }
    assert!(described >= 15, "{described} metrics");
}

/// Everything that can be read over HTTP is closed in the same way, and says so in its headers.
#[test]
fn the_console_is_sealed() {
    let (_desk, service) = started(HTTP);
    let (status, page) = service.get("/", &[]);
    assert!(status == 200 && page.contains("Nothing has been published yet"), "{page}");
    assert!(!page.contains("<style") && !page.contains(" style=") && !page.contains("onclick"), "nothing inline");
    for path in ["/", "/engine", "/status.json", "/metrics"] {
        assert_eq!(service.get(path, &[("Host", "evil.example")]).0, 403, "{path}");
    }
    for (path, part) in [("/console.css", "prefers-color-scheme"), ("/console.js", "refresh")] {
        assert!(service.get(path, &[]).1.contains(part), "{path}");
    }
}

/// `top` in a pipe is one snapshot, and one object with `--json`.
#[test]
fn top_shows_what_happens() {
    let (desk, mut service) = started("http: { listen: 127.0.0.1:0, token: tr0ub4dor }\n");
    let token = [("Authorization", "Bearer tr0ub4dor")];
    service.send(jsonl(&people(100)).as_bytes());
    wait_until("a release", || service.get("/status.json", &token).1.contains("\"releases\":1,"));
    desk.write("token", "tr0ub4dor\n");
    let address = service.address().to_owned();
    let top = |more: &[&str]| desk.run(&[&["top", "--url", &address][..], more].concat());
    let text = top(&["--token-file", "token"]).expect(0).out;
    for wanted in [
        "Safe: the first release met the policy. 0 % left out. Age ",
        "1 release, 0 refused",
        "100 published",
        "k-anonymity",
        "at least 5",
        "age",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let json = top(&["--token-file", "token", "--json"]).expect(0).json();
    assert_eq!((&json["records_published"], &json["criteria"][0]["required"]), (&100.into(), &5.0.into()));
    let left = top(&[]).expect(2);
    assert!(left.err.contains("--token-file"), "{}", left.err);
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    desk.run(&["top", "--url", &gone]).expect(3);
}

#[test]
fn a_foreign_name_is_refused() {
    let (_desk, service) = started(HTTP);
    assert_eq!(service.get("/metrics", &[("Host", "evil.example")]).0, 403);
    assert_eq!(service.get("/metrics", &[("Host", "localhost")]).0, 200);
}

#[test]
fn a_token_is_asked_for_and_never_shown() {
    let (_desk, service) = started("http: { listen: 127.0.0.1:0, token: tr0ub4dor }\n");
    let (status, body) = service.get("/metrics", &[]);
    assert!(status == 401 && !body.contains("veilstream_"), "{body}");
    assert_eq!(service.get("/metrics", &[("Authorization", "Bearer wrong")]).0, 401);
    assert_eq!(service.get("/metrics", &[("Authorization", "Bearer tr0ub4dor")]).0, 200);
    // Probes need none.
    assert_eq!(service.get("/healthz", &[]).0, 200);
    assert!(!service.logs().contains("tr0ub4dor"));
}

#[test]
fn an_address_that_is_taken_is_told() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let desk = Desk::new();
    let address = taken.local_addr().unwrap().to_string();
    desk.write("pipeline.yaml", policy(&format!("http: {{ listen: '{address}' }}\n")));
    let left = desk.run(&["run", "-c", "pipeline.yaml"]).expect(3);
    assert!(left.err.contains(&address), "{}", left.err);
}

/// Whoever imports the dashboard or loads the rules finds every series: no name is used that the service does not have.
#[test]
fn dashboard_and_rules_speak_of_metrics_that_exist() {
    let (_desk, service) = started(HTTP);
    let (_, text) = service.get("/metrics", &[]);
    let known: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    for path in ["grafana/veilstream.json", "prometheus/veilstream.rules.yaml"] {
        let text = std::fs::read_to_string(root.join(path)).unwrap();
        let mut used = 0;
        for (at, _) in text.match_indices("veilstream_") {
            let name: String = text[at..].chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part)).unwrap_or(&name);
            assert!(known.contains(&family) || known.contains(&name.as_str()), "{path}: {name}");
            used += 1;
        }
        assert!(used > 10, "{path}");
    }
}
