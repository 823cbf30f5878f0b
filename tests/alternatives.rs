//! `any_of`: hierarchies of one field that do not nest in each other, such as weeks beside months.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod program;

use program::Desk;
use serde_json::Value;

const POLICY: &str = "policy:
  quasi_identifiers:
    - name: born
      hierarchy:
        any_of:
          - date: { units: [day, week], min: 1985-01-01, max: 1985-12-31 }
          - date: { units: [day, month], min: 1985-01-01, max: 1985-12-31 }
    - name: age
      hierarchy:
        any_of:
          - intervals: { widths: [5, 20], min: 0, max: 99 }
          - intervals: { widths: [7], min: 0, max: 99 }
  keep: [{ name: line, reviewed: true }]
  privacy: [{ k-anonymity: 3 }]
";

/// One person for each of these days and ages.
fn people(days: &[&str], ages: &[u32]) -> String {
    let cells = days.iter().flat_map(|day| ages.iter().map(move |age| (*day, *age)));
    let of = |(at, (day, age)): (usize, (&str, u32))| format!("{{\"born\":\"{day}\",\"age\":{age},\"line\":{at}}}\n");
    cells.enumerate().map(of).collect()
}

fn rows(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn labels(rows: &[Value], field: &str) -> Vec<String> {
    let mut labels: Vec<String> = rows.iter().map(|row| row[field].as_str().unwrap().to_owned()).collect();
    labels.sort_unstable();
    labels.dedup();
    labels
}

/// Of one week, and of two months.
const WEEK: [&str; 3] = ["1985-01-30", "1985-02-01", "1985-02-03"];
/// Of one month, and of three weeks.
const MONTH: [&str; 3] = ["1985-03-01", "1985-03-14", "1985-03-25"];

fn released(days: &[&str], ages: &[u32]) -> (Vec<Value>, Value) {
    let desk = Desk::new();
    desk.write("policy.yaml", POLICY);
    desk.write("in.jsonl", people(days, ages));
    let report = ["anonymize", "-c", "policy.yaml", "in.jsonl", "-o", "out.jsonl", "--report", "report.json"];
    desk.run(&report).expect(0);
    desk.run(&["verify", "-c", "policy.yaml", "out.jsonl"]).expect(0);
    (rows(&desk.read("out.jsonl")), serde_json::from_str(&desk.read("report.json")).unwrap())
}

#[test]
fn a_release_takes_the_alternative_that_loses_the_least() {
    let (weeks, report) = released(&WEEK, &[40]);
    assert_eq!(labels(&weeks, "born"), ["1985-W05"]);
    assert_eq!(labels(&weeks, "age"), ["40"]);
    assert!(report["levels"].as_str().unwrap().contains("born by week"), "{report}");
    let (months, report) = released(&MONTH, &[40]);
    assert_eq!(labels(&months, "born"), ["1985-03"]);
    assert!(report["levels"].as_str().unwrap().contains("born by month"), "{report}");
    // 35 to 40 lie in one step of 7 and in two of 5.
    let (sevens, report) = released(&["1985-03-01"], &[36, 38, 40]);
    assert_eq!(labels(&sevens, "age"), ["[35,42)"]);
    assert_eq!(report["recoding"]["age"], 2, "{report}");
    let (fives, report) = released(&["1985-03-01"], &[30, 32, 34, 41, 43, 44]);
    assert_eq!(labels(&fives, "age"), ["[30,35)", "[40,45)"]);
    assert_eq!(report["recoding"]["age"], 1, "{report}");
}

/// Two releases on different alternatives cross, so with `monotone` only what is coarser than the last one follows.
#[test]
fn levels_hold_across_alternatives() {
    let windows = |levels: &str| {
        let desk = Desk::new();
        let window = "window: { levels: LEVELS, tumbling: { max_records: 3 } }\n".replace("LEVELS", levels);
        let sink = "sink: { file: { path: out.jsonl, manifest: manifests.jsonl } }\n";
        desk.write("pipeline.yaml", format!("{POLICY}{window}{sink}"));
        let input = people(&WEEK, &[40]) + &people(&MONTH, &[40]);
        desk.pipe(&["run", "-c", "pipeline.yaml"], input.as_bytes()).expect(0);
        desk.run(&["verify", "-c", "pipeline.yaml", "out.jsonl"]).expect(0);
        let rows = rows(&desk.read("out.jsonl"));
        (labels(&rows[..3], "born"), labels(&rows[3..], "born"))
    };
    let texts = |labels: &[&str]| labels.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(windows("free"), (texts(&["1985-W05"]), texts(&["1985-03"])));
    assert_eq!(windows("sticky"), (texts(&["1985-W05"]), texts(&["1985-03"])));
    assert_eq!(windows("monotone"), (texts(&["1985-W05"]), texts(&["*"])));
}

#[test]
fn an_audience_sees_no_level_beside_its_own() {
    let desk = Desk::new();
    let audiences = "audiences:
  - { name: months, path: months.jsonl, min_levels: { born: 2 } }
  - { name: weeks, path: weeks.jsonl, min_levels: { born: 1 } }
window: { tumbling: { max_records: 3 } }
sink: { file: { path: all.jsonl } }
";
    desk.write("pipeline.yaml", format!("{POLICY}{audiences}"));
    desk.pipe(&["run", "-c", "pipeline.yaml"], people(&WEEK, &[40]).as_bytes()).expect(0);
    let born = |file: &str| labels(&rows(&desk.read(file)), "born");
    assert_eq!(
        (born("all.jsonl"), born("weeks.jsonl"), born("months.jsonl")),
        (vec!["1985-W05".to_owned()], vec!["1985-W05".to_owned()], vec!["*".to_owned()])
    );
}

#[test]
fn every_search_but_that_of_cuts_knows_alternatives() {
    let desk = Desk::new();
    desk.write("policy.yaml", POLICY);
    desk.write("in.jsonl", people(&MONTH, &[36, 38, 40]));
    let all = desk.run(&["search", "-c", "policy.yaml", "in.jsonl", "--algorithm", "all"]).expect(0).out;
    assert!(all.contains("\npbg-ea looks for a trade-off"), "{all}");
    assert!(all.contains("subtree-bottom-up: left out, it follows one hierarchy per attribute"), "{all}");
    for algorithm in ["auto", "optimal", "exhaustive", "bottom-up", "top-down", "tabu-ga", "pbg-ea"] {
        assert!(all.contains(&format!("\n{algorithm}: born ")), "{algorithm}: {all}");
    }
    let minimal = all.lines().find(|line| line.starts_with("bottom-up: minimal nodes")).unwrap_or(&all);
    assert!(minimal.contains("by month") && minimal.contains("in steps of 7"), "{minimal}");
    desk.run(&["search", "-c", "policy.yaml", "in.jsonl", "--algorithm", "subtree-bottom-up"]).expect(2);
    let compared = desk.run(&["search", "-c", "policy.yaml", "in.jsonl"]).expect(0).out;
    assert!(compared.contains("local: left out, it follows one hierarchy per attribute"), "{compared}");
    desk.run(&["frontier", "-c", "policy.yaml", "in.jsonl"]).expect(0);
    let said = desk.run(&["explain", "-c", "policy.yaml"]).expect(0).out;
    assert!(said.contains("by week") && said.contains("by month"), "{said}");
}

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    let desk = Desk::new();
    let refused = |policy: &str, wanted: &str| {
        desk.write("policy.yaml", policy);
        let said = desk.run(&["validate", "-c", "policy.yaml"]).expect(2);
        let said = said.out + &said.err;
        assert!(said.contains(wanted), "{wanted}: {said}");
    };
    let simple = |hierarchy: &str| {
        format!(
            "policy:\n  quasi_identifiers: [{{ name: a, hierarchy: {{ {hierarchy} }} }}]\n  privacy: [{{ k-anonymity: 3 }}]\n"
        )
    };
    refused(&simple("date: [day, week, month]"), "a week can lie in two of `month`");
    refused(&simple("date: [day, week, month]"), "any_of: [date: [day, week], date: [day, month]]");
    refused(&simple("intervals: { widths: [5, 7], min: 0, max: 99 }"), "any_of: [intervals: .., intervals: ..]");
    refused(&simple("any_of: [{ date: [day, week] }]"), "needs at least 2");
    refused(&simple("any_of: [{ date: [day, week] }, { date: [month] }]"), "begin with the same unit");
    refused(&simple("any_of: [{ prefix: { length: 5 } }, { prefix: { length: 5 } }]"), "`any_of` takes");
    refused(
        &POLICY.replace("  privacy", "  recoding: local\n  privacy"),
        "with `recoding: local` a value has one next",
    );
    refused(&POLICY.replace("  privacy", "  recoding: subtree\n  privacy"), "with `recoding: subtree`");
    refused(&POLICY.replace("  privacy", "  render: microaggregate\n  privacy"), "along one hierarchy");
    refused(
        &format!("{POLICY}window: {{ sliding: {{ size: 100, slide: 10 }} }}\n"),
        "the snapshots of a sliding window",
    );
    let many: String = (0..7)
        .map(|i| {
            format!(
                "    - {{ name: f{i}, hierarchy: {{ any_of: [{{ date: [day, week] }}, {{ date: [day, month] }}] }} }}\n"
            )
        })
        .collect();
    refused(&format!("policy:\n  quasi_identifiers:\n{many}  privacy: [{{ k-anonymity: 3 }}]\n"), "128 combinations");
}
