//! Audiences: tables of one release at coarser levels. What they say together is no more than the release itself (T32).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod program;

use std::collections::{BTreeMap, BTreeSet};

use program::Desk;
use serde_json::Value;

const POLICY: &str = "policy:
  quasi_identifiers:
    - { name: age, hierarchy: { intervals: { widths: [5, 10, 20], min: 0, max: 120 } } }
    - { name: sex, hierarchy: trivial }
    - { name: zip, hierarchy: { prefix: { length: 5 } } }
    - { name: born, hierarchy: { date: [day, month, year, decade] } }
  sensitive: [{ name: occupation }]
  keep: [{ name: line, reviewed: true }]
  subject: user_id
  privacy: [{ k-anonymity: 5 }, { l-diversity: { field: occupation, l: 2 } }]
  suppression: { limit: 5% }
";

const AUDIENCES: &str = "audiences:
  - { name: partner, path: partner.jsonl, manifest: partner-manifests.jsonl, min_levels: { zip: 3, age: 1 }, drop: [occupation] }
  - { name: research, path: research.jsonl, manifest: research-manifests.jsonl, min_levels: { born: 2 }, priorities: { zip: 5 } }
window: { tumbling: { max_records: 1500 } }
sink: { file: { path: all.jsonl, manifest: manifests.jsonl } }
";

/// The rows of a file by the line of the input that they were made of.
fn rows(desk: &Desk, file: &str) -> BTreeMap<u64, Value> {
    let read = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    desk.read(file).lines().map(read).map(|row| (row["line"].as_u64().unwrap(), row)).collect()
}

/// The labels of a row, as text.
fn labels(row: &Value) -> String {
    ["age", "sex", "zip", "born"].map(|name| row[name].as_str().unwrap()).join("|")
}

/// The desk of a run, and the person of each line of its input.
fn released(recoding: &str) -> (Desk, Vec<String>) {
    released_as(POLICY, recoding, AUDIENCES)
}

fn released_as(policy: &str, recoding: &str, audiences: &str) -> (Desk, Vec<String>) {
    let desk = Desk::new();
    let records = desk.run(&["generate", "--records", "4500", "--seed", "3", "--format", "jsonl"]).expect(0).out;
    let records: Vec<Value> = records.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let people = records.iter().map(|record| record["user_id"].to_string()).collect();
    let numbered = |(line, mut record): (usize, Value)| {
        record["line"] = line.into();
        format!("{record}\n")
    };
    let records: String = records.into_iter().enumerate().map(numbered).collect();
    desk.write("pipeline.yaml", format!("{policy}  recoding: {recoding}\n{audiences}"));
    desk.pipe(&["run", "-c", "pipeline.yaml"], records.as_bytes()).expect(0);
    (desk, people)
}

#[test]
fn an_audience_sees_no_level_and_no_field_that_it_may_not() {
    for recoding in ["full-domain", "subtree", "local"] {
        let (desk, _) = released(recoding);
        let (all, partner, research) =
            (rows(&desk, "all.jsonl"), rows(&desk, "partner.jsonl"), rows(&desk, "research.jsonl"));
        assert!(!all.is_empty() && all.len() == partner.len() && all.len() == research.len(), "{recoding}");
        for row in partner.values() {
            assert!(row["zip"].as_str().unwrap().ends_with("***"), "{recoding}: {row}");
            assert!(row["age"].as_str().unwrap().parse::<u32>().is_err(), "{recoding}: {row}");
            assert!(row.get("occupation").is_none() && row.as_object().unwrap().len() == 5, "{recoding}: {row}");
        }
        for row in research.values() {
            let born = row["born"].as_str().unwrap();
            assert!(born == "*" || born.len() <= 5, "by year or decade, {recoding}: {row}");
            assert!(row["occupation"].is_string());
        }
        // The criterion is about a field that partners do not see.
        assert!(desk.read("manifests.jsonl").contains("l-diversity/occupation"));
        assert!(desk.read("research-manifests.jsonl").contains("l-diversity/occupation"));
        assert!(!desk.read("partner-manifests.jsonl").contains("occupation"), "{recoding}");
        let manifest: Value =
            serde_json::from_str(desk.read("partner-manifests.jsonl").lines().next().unwrap()).unwrap();
        let zip = manifest["recoding"].as_array().unwrap().iter().find(|a| a["attribute"] == "zip").unwrap();
        assert!(zip["level"].as_u64().unwrap() >= 3 && manifest["k_achieved"].as_u64().unwrap() >= 5, "{manifest}");
        let verified = ["verify", "-c", "pipeline.yaml", "research.jsonl", "--manifest", "research-manifests.jsonl"];
        desk.run(&verified).expect(0);
    }
}

/// The order of a table says nothing about a field that its readers do not see.
#[test]
fn the_order_of_a_table_does_not_follow_from_dropped_fields() {
    let lines = |job: &dyn Fn(usize) -> usize| -> String {
        let line = |i: usize| {
            let (age, job) = (20 + i % 40, job(i) % 7);
            format!(
                "{{\"age\":{age},\"sex\":\"f\",\"zip\":\"10115\",\"born\":\"1980-01-01\",\"occupation\":\"job {job}\",\"line\":{i},\"user_id\":\"u{i}\"}}\n"
            )
        };
        (0..400).map(line).collect()
    };
    let table = |input: String| {
        let desk = Desk::new();
        desk.write("pipeline.yaml", format!("{POLICY}{AUDIENCES}"));
        desk.pipe(&["run", "-c", "pipeline.yaml"], input.as_bytes()).expect(0);
        (desk.read("partner.jsonl"), desk.read("all.jsonl"))
    };
    let (partner, all) = table(lines(&|i| i));
    let (same, other) = table(lines(&|i| i * 3 + 1));
    assert!(partner.lines().count() > 300 && all != other, "the release itself shows the field");
    assert!(partner == same, "the same rows in the same order, whatever is hidden");
}

/// T32: readers who put their tables together, and even know which rows were made of one record.
#[test]
fn all_audiences_together_find_no_group_below_k() {
    for recoding in ["full-domain", "subtree", "local"] {
        let (desk, people) = released(recoding);
        let (partner, research) = (rows(&desk, "partner.jsonl"), rows(&desk, "research.jsonl"));
        let mut groups: BTreeMap<(u64, String, String), BTreeSet<&str>> = BTreeMap::new();
        for (&line, row) in &partner {
            // Nothing is held, so a window is so many lines.
            let group = (line / 1500, labels(row), labels(&research[&line]));
            groups.entry(group).or_default().insert(&people[line as usize]);
        }
        assert!(groups.len() > 10, "{recoding}");
        assert!(groups.values().all(|people| people.len() >= 5), "{recoding}");
    }
}

const ONE_LEVEL: &str = "audiences:
  - { name: counts, path: counts.jsonl, manifest: counts-manifests.jsonl, recoding: full-domain, loss: glm, min_levels: { zip: 1 } }
  - { name: groups, path: groups.jsonl, manifest: groups-manifests.jsonl, recoding: full-domain, loss: dm }
  - { name: partner, path: partner.jsonl, min_levels: { zip: 3, age: 1 }, drop: [occupation] }
window: { tumbling: { max_records: 1500 } }
sink: { file: { path: all.jsonl, manifest: manifests.jsonl } }
";

/// One level per column for an audience of a release that has several, chosen by its own loss.
#[test]
fn an_audience_can_have_one_level_per_column() {
    for recoding in ["subtree", "local"] {
        let policy = POLICY.replace("policy:\n", "policy:\n  row_levels: true\n");
        let (desk, people) = released_as(&policy, recoding, ONE_LEVEL);
        let (all, partner) = (rows(&desk, "all.jsonl"), rows(&desk, "partner.jsonl"));
        let levels = |row: &Value| ["age", "sex", "zip", "born"].map(|name| row[format!("{name}_level")].clone());
        let mut losses: BTreeMap<(&str, &str), f64> = BTreeMap::new();
        for name in ["counts", "groups"] {
            let table = rows(&desk, &format!("{name}.jsonl"));
            assert!(table.len() <= all.len() && table.len() * 20 >= all.len() * 19, "{recoding}: {}", table.len());
            let manifests: Vec<Value> = desk
                .read(&format!("{name}-manifests.jsonl"))
                .lines()
                .map(|l| serde_json::from_str(l).unwrap())
                .collect();
            assert_eq!(manifests.len(), 3);
            for (window, manifest) in (0..).zip(&manifests) {
                let of: Vec<&Value> =
                    table.iter().filter(|(line, _)| **line / 1500 == window).map(|(_, row)| row).collect();
                let kinds: BTreeSet<String> = of.iter().map(|row| format!("{:?}", levels(row))).collect();
                assert!(kinds.len() == 1, "{recoding}, {name}: {kinds:?}");
                assert_eq!(manifest["records_published"].as_u64(), Some(of.len() as u64));
                assert_eq!(manifest["records_in"], 1500);
                assert_eq!(manifest["records_suppressed"].as_u64(), Some(1500 - of.len() as u64));
                assert!(
                    manifest["recoding"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .all(|a| a["finest"].is_null() && a["cut"].is_null()),
                    "{manifest}"
                );
                for loss in ["glm", "dm"] {
                    let losses = losses.entry((name, loss)).or_default();
                    *losses +=
                        manifest["losses"].as_array().unwrap().iter().find(|l| l["name"] == loss).unwrap()["value"]
                            .as_f64()
                            .unwrap();
                }
            }
            let manifest = format!("{name}-manifests.jsonl");
            desk.run(&["verify", "-c", "pipeline.yaml", &format!("{name}.jsonl"), "--manifest", &manifest]).expect(0);
        }
        assert!(losses[&("groups", "dm")] <= losses[&("counts", "dm")], "{recoding}: {losses:?}");
        // T32: also which rows a table leaves out follows from the release alone.
        let tables = ["counts", "groups"].map(|name| rows(&desk, &format!("{name}.jsonl")));
        let mut groups: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for line in all.keys() {
            let shown = |table: &BTreeMap<u64, Value>| table.get(line).map(labels);
            let group =
                format!("{} {} {:?} {:?}", line / 1500, labels(&partner[line]), shown(&tables[0]), shown(&tables[1]));
            groups.entry(group).or_default().insert(&people[*line as usize]);
        }
        assert!(groups.len() > 10 && groups.values().all(|people| people.len() >= 5), "{recoding}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_its_place() {
    let desk = Desk::new();
    let wrong = AUDIENCES.replace("{ zip: 3, age: 1 }", "{ zap: 3, age: 9 }").replace("[occupation]", "[occupations]");
    desk.write("pipeline.yaml", format!("{POLICY}{wrong}"));
    let said = desk.run(&["validate", "-c", "pipeline.yaml"]).expect(2);
    let said = said.out + &said.err;
    for wanted in ["did you mean `zip`?", "levels 0 to 4", "did you mean `occupation`?"] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    // The statistics of two levels could be subtracted, and would be finer than the audience's level.
    let median = POLICY.replace("length: 5 } } }", "length: 5 } }, render: median }");
    desk.write("median.yaml", format!("{median}{AUDIENCES}"));
    let said = desk.run(&["validate", "-c", "median.yaml"]).expect(2);
    assert!((said.out + &said.err).contains("the statistics of two levels"));
    for (recoding, audience, wanted) in [
        ("full-domain", "recoding: full-domain", "one level per column already"),
        (
            "full-domain",
            "recoding: local",
            "write `policy.recoding: local`, and for each audience that counts by columns",
        ),
        ("full-domain", "recoding: subtree", "two generalizations of the same people"),
        ("local", "recoding: local", "the release is `local` already: leave it out"),
        ("local", "recoding: subtree", "leave it out for the levels of the release"),
        ("local", "recoding: full-domain, loss: cm", "write `glm`, `precision`, `dm` or `aecs`"),
        ("local", "loss: dm", "has nothing to choose"),
    ] {
        let audience =
            format!("audiences: [{{ name: a, path: a.jsonl, {audience} }}]\nsink: {{ file: {{ path: all.jsonl }} }}\n");
        desk.write("own.yaml", format!("{POLICY}  recoding: {recoding}\n{audience}"));
        let said = desk.run(&["validate", "-c", "own.yaml"]).expect(2);
        assert!((said.out + &said.err).contains(wanted), "{audience}");
    }
    desk.write("stdio.yaml", format!("{POLICY}audiences: [{{ name: a, path: a.jsonl }}]\n"));
    let said = desk.run(&["validate", "-c", "stdio.yaml"]).expect(2);
    assert!((said.out + &said.err).contains("audiences need places of their own"));
}
