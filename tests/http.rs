//! `/metrics`, `/healthz` and `/readyz` of a running service.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod program;

use program::service::{HTTP, Service};
use program::{Desk, jsonl, people, policy, wait_until};

fn started(http: &str) -> (Desk, Service) {
    let desk = Desk::new();
    desk.write(
        "pipeline.yaml",
        policy(&format!("window: {{ tumbling: {{ max_records: 100, max_age: 1h }} }}\n{http}")),
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
