//! Every command as a user runs it: what it writes, what it says, and its exit code.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod program;

use std::io::{BufRead as _, BufReader};

use program::service::{HTTP, Service};
use program::{Desk, csv, jsonl, people, policy, wait_until};
use serde_json::Value;

const REPORT_KEYS: [&str; 13] = [
    "algorithm",
    "recoding",
    "satisfies",
    "loss",
    "k_achieved",
    "records_in",
    "records_published",
    "records_suppressed",
    "nodes_total",
    "nodes_checked",
    "nodes_predicted",
    "elapsed_ms",
    "stop",
];

#[track_caller]
fn adds_up(summary: &Value) {
    let of = |key: &str| summary[key].as_u64().unwrap_or_else(|| panic!("{key} in {summary}"));
    let outcomes = ["records_published", "records_suppressed", "records_held", "records_rejected"].map(of);
    assert_eq!(of("records_in"), outcomes.iter().sum::<u64>(), "{summary}");
    of("releases");
}

#[test]
fn demo_in_a_pipe_is_plain_lines_that_add_up() {
    let desk = Desk::new();
    let left = desk.run(&["demo", "--records", "6000", "--rate", "0"]).expect(0);
    assert!(left.out.contains("6,000 records in = "), "{}", left.out);
    assert!(left.out.contains("Recoding: full-domain."), "{}", left.out);
    let row = |name: &str| left.out.lines().find(|line| line.trim_start().starts_with(name)).unwrap_or_default();
    let figures: Vec<f64> = row("mean loss").split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(matches!(figures[..], [_, own, local] if 0.0 < local && local < own), "{}", left.out);
    assert!(row("zip").contains("12345"), "one record before and after: {}", left.out);
    assert!(!left.out.contains('\u{1b}') && left.err.is_empty(), "no colours and no progress: {:?}", left.err);
}

#[test]
fn demo_as_json_is_one_object_and_the_seed_decides() {
    let desk = Desk::new();
    let run = |seed: &str| desk.run(&["demo", "--json", "--records", "10000", "--rate", "0", "--seed", seed]).expect(0);
    let first = run("7").json();
    adds_up(&first);
    assert_eq!(first["records_in"], 10_000);
    assert_eq!(first["releases"], 2);
    assert!(first["records_published"].as_u64() > Some(8000), "{first}");
    for release in first["per_release"].as_array().unwrap() {
        assert!(release["k_achieved"].as_u64() >= Some(5), "{release}");
    }
    let published = |object: &Value| (object["records_published"].clone(), object["per_release"][0]["loss"].clone());
    assert_eq!(published(&first), published(&run("7").json()));
    assert_ne!(published(&first), published(&run("8").json()));
}

/// `anonymize | verify` for one policy and one input.
#[track_caller]
fn anonymized_is_verified(desk: &Desk, config: &str, input: &str, output: &str) -> Value {
    desk.write("policy.yaml", config);
    desk.run(&["anonymize", "-c", "policy.yaml", input, "-o", output, "--report", "report.json"]).expect(0);
    let left = desk.run(&["verify", "-c", "policy.yaml", output]).expect(0);
    assert!(left.out.contains("satisfies the policy"), "{}", left.out);
    let report: Value = serde_json::from_str(&desk.read("report.json")).unwrap();
    for key in REPORT_KEYS {
        assert!(report.get(key).is_some(), "{key} in {report}");
    }
    assert_eq!(report["satisfies"], true);
    let of = |key: &str| report[key].as_u64().unwrap();
    assert_eq!(of("records_in"), of("records_published") + of("records_suppressed") + of("records_rejected"));
    report
}

#[test]
fn every_format_and_delimiter_is_read_and_written() {
    let desk = Desk::new();
    let people = people(400);
    desk.write("comma.csv", csv(',', &people));
    desk.write("semicolon.csv", csv(';', &people));
    desk.write("tab.tsv", csv('\t', &people));
    desk.write("pipe.csv", csv('|', &people));
    desk.write("lines.jsonl", jsonl(&people));
    desk.write("noextension", jsonl(&people));
    let config = policy("");
    for input in ["comma.csv", "semicolon.csv", "tab.tsv", "lines.jsonl", "noextension"] {
        for output in ["out.csv", "out.jsonl", "out.avro", "out"] {
            let report = anonymized_is_verified(&desk, &config, input, output);
            assert_eq!((&report["records_in"], &report["records_published"]), (&400.into(), &400.into()));
        }
    }
    // A file in Avro goes in as well as out.
    let avro = desk.command(&["generate", "--records", "2000", "--format", "avro"]).output().unwrap().stdout;
    desk.write("people.avro", avro);
    let generated = "policy:\n  quasi_identifiers:\n    - { name: age, hierarchy: { intervals: { widths: [10, 40], min: 0, max: 120 } } \
                     }\n    - { name: zip, hierarchy: { prefix: { length: 5 } } }\n  sensitive: [{ name: occupation }]\n  keep: [score]\n  \
                     subject: user_id\n  privacy: [{ k-anonymity: 5 }]\n  suppression: { limit: 5% }\n";
    for output in ["from-avro.avro", "from-avro.csv", "from-avro.jsonl"] {
        anonymized_is_verified(&desk, generated, "people.avro", output);
    }
    // A delimiter that is not sniffed must be given.
    let unknown = desk.run(&["anonymize", "-c", "policy.yaml", "pipe.csv", "-o", "x.csv"]).expect(2);
    assert!(unknown.err.contains("--delimiter"), "{}", unknown.err);
    desk.write("policy.yaml", config);
    desk.run(&["anonymize", "-c", "policy.yaml", "pipe.csv", "--delimiter", "|", "-o", "x.csv"]).expect(0);
    assert!(desk.read("x.csv").starts_with("age|job\n"), "the output keeps the delimiter");
    desk.run(&["verify", "-c", "policy.yaml", "x.csv", "--delimiter", "|"]).expect(0);
}

#[test]
fn anonymize_and_verify_make_a_pipe() {
    let desk = Desk::new();
    desk.write("policy.yaml", policy(""));
    let released =
        desk.pipe(&["anonymize", "-c", "policy.yaml", "-", "-o", "-"], csv(';', &people(300)).as_bytes()).expect(0);
    assert!(released.out.starts_with("age;job\n"), "{}", released.out);
    desk.pipe(&["verify", "-c", "policy.yaml", "-"], released.out.as_bytes()).expect(0);
}

#[test]
fn anonymize_and_verify_agree_on_every_policy() {
    let desk = Desk::new();
    desk.write("in.csv", csv(',', &people(600)));
    let base = policy("");
    let policies = [
        base.clone(),
        base.replace("k-anonymity: 5 }", "k-anonymity: 5 }, { l-diversity: { field: job, l: 3, variant: distinct } }"),
        base.replace("k-anonymity: 5 }", "k-anonymity: 2 }, { l-diversity: { field: job, l: 2.5, variant: entropy } }"),
        base.replace("k-anonymity: 5 }", "l-diversity: { field: job, l: 2, variant: recursive, c: 3 } }"),
        policy("  suppression: { limit: 10% }\n  loss: dm\n"),
        policy("  suppression: { limit: 10%, action: hold }\n  loss: aecs\n"),
        policy("  loss: precision\n").replace("  subject: id\n", ""),
        policy("search: { algorithm: bottom-up, seed: 3 }\n"),
    ];
    for policy in policies {
        anonymized_is_verified(&desk, &policy, "in.csv", "out.csv");
    }
}

#[test]
fn a_class_of_k_minus_1_is_named_with_its_size() {
    let desk = Desk::new();
    desk.write("policy.yaml", policy(""));
    let class = |age: &str, size: usize| format!("\"{age}\",cook\n").repeat(size);
    for (name, other) in [("good.csv", 5), ("bad.csv", 4)] {
        desk.write(name, format!("age,job\n{}{}", class("[20, 30[", 7), class("[30, 40[", other)));
    }
    desk.run(&["verify", "-c", "policy.yaml", "good.csv"]).expect(0);
    let left = desk.run(&["verify", "-c", "policy.yaml", "bad.csv"]).expect(1);
    assert!(left.err.contains("age = [30, 40[") && left.err.contains("size: 4"), "{}", left.err);
    let json = desk.run(&["verify", "-c", "policy.yaml", "bad.csv", "--json"]).expect(1).json();
    assert_eq!((&json["class"]["age"], &json["size"]), (&"[30, 40[".into(), &4.into()));
    desk.write("broken.csv", "age,job\n\"[20, 30[,cook\n");
    let broken = desk.run(&["verify", "-c", "policy.yaml", "broken.csv"]).expect(1);
    assert!(broken.err.contains("record 1") && !broken.err.contains("cook"), "{}", broken.err);
}

/// A page that stands alone: what was asked, what was done, and what is left of the risk, in figures that are right.
#[test]
fn a_report_can_be_a_page() {
    let desk = Desk::new();
    desk.write("policy.yaml", policy("  suppression: { limit: 20% }\n"));
    // Decades of 100 people each, one person alone, and one that cannot be read.
    let mut lines = jsonl(&people(500));
    lines
        .push_str("{\"id\":\"alone\",\"age\":111,\"job\":\"cook\"}\n{\"id\":\"x\",\"age\":\"old\",\"job\":\"cook\"}\n");
    desk.write("in.jsonl", lines.replace("nurse", "Nurse"));
    let arguments = ["anonymize", "-c", "policy.yaml", "in.jsonl", "-o", "out.jsonl", "--report", "report.html"];
    desk.run(&arguments).expect(0);
    let page = desk.read("report.html");
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    for wanted in [
        "The policy is met: 500 of 502 records published, ",
        "in.jsonl, made 20",
        // What is published, and what is compared; sensitive values as they are written.
        "Published as it is; compared in steps of 10 here.",
        "<th scope=\"row\">Nurse</th>",
        // Fifty-one ages, one of them of one person.
        "<th scope=\"row\">people alone in their class</th><td>0.2 %</td><td>0 %</td>",
        "k-anonymity: 10",
        "suppression: { limit: 20% }",
        "People are counted by `id`",
        "<h3>What this does not protect</h3>",
        "(T9)",
        "<th scope=\"row\">k-anonymity</th><td>at least 5</td>",
        "in no class that meets every criterion</td><td>1</td>",
        "unknown value in age</td><td>1</td>",
        "counted, never published",
        "every other field",
        "Prosecutor",
        "Journalist",
        "Marketer",
        // Fifty ages of ten people each stay as they are.
        "<th scope=\"row\">prosecutor</th><td>10 %</td><td>10 %</td>",
        "<th scope=\"row\">marketer</th><td>-</td><td>10 %</td>",
    ] {
        assert!(page.contains(wanted), "{wanted}");
    }
    assert!(!page.contains("111"), "the age of one person");
    let verify = |policy: &str| desk.run(&["verify", "-c", policy, "out.jsonl", "--report", "report.html"]);
    assert!(verify("policy.yaml").expect(0).err.contains("is about this file and this policy"));
    desk.write("other.yaml", policy("  suppression: { limit: 19% }\n"));
    assert!(verify("other.yaml").expect(1).err.contains("is about another policy"));
    desk.write("out.jsonl", desk.read("out.jsonl") + "\n");
    assert!(verify("policy.yaml").expect(1).err.contains("is about another file"));
    assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("<link"), "nothing from elsewhere");
    desk.write("few.jsonl", jsonl(&people(3)));
    let arguments = ["anonymize", "-c", "policy.yaml", "few.jsonl", "-o", "none.jsonl", "--report", "none.html"];
    desk.run(&arguments).expect(1);
    let page = desk.read("none.html");
    for wanted in ["The policy is not met", "Why nothing was published", "suppression: { limit: 50 % }"] {
        assert!(page.contains(wanted), "{wanted}");
    }
}

#[test]
fn a_policy_that_cannot_be_met_writes_nothing() {
    let desk = Desk::new();
    desk.write("policy.yaml", policy(""));
    desk.write("few.csv", csv(',', &people(4)));
    let arguments = ["anonymize", "-c", "policy.yaml", "few.csv", "-o", "out.csv", "--report", "report.json"];
    let left = desk.run(&arguments).expect(1);
    assert!(left.err.contains("policy is not met"), "{}", left.err);
    assert!(!desk.path("out.csv").exists());
    let report: Value = serde_json::from_str(&desk.read("report.json")).unwrap();
    assert_eq!((&report["satisfies"], &report["records_published"]), (&false.into(), &0.into()));
    // One person many times is one person.
    desk.write(
        "one.csv",
        csv(',', &people(50))
            .lines()
            .map(|l| format!("same{}\n", &l[l.find(',').unwrap()..]))
            .collect::<String>()
            .replacen("same", "id", 1),
    );
    desk.run(&["anonymize", "-c", "policy.yaml", "one.csv", "-o", "out.csv"]).expect(1);
    assert!(!desk.path("out.csv").exists());
}

#[test]
fn search_tells_what_it_found() {
    let desk = Desk::new();
    desk.write("policy.yaml", policy(""));
    desk.write("in.csv", csv(',', &people(500)));
    let (mut losses, mut minimal) = (Vec::new(), Vec::new());
    for algorithm in ["optimal", "exhaustive", "bottom-up", "auto"] {
        let left =
            desk.run(&["search", "-c", "policy.yaml", "in.csv", "--algorithm", algorithm, "--seed", "1", "--json"]);
        let json = left.expect(0).json();
        for key in REPORT_KEYS {
            assert!(json.get(key).is_some(), "{key} in {json}");
        }
        losses.push(json["loss"]["glm"].clone());
        let mut nodes: Vec<String> = json["minimal"].as_array().unwrap().iter().map(ToString::to_string).collect();
        nodes.sort();
        minimal.push(nodes);
    }
    assert!(losses.iter().all(|loss| *loss == losses[0]), "{losses:?}");
    assert!(minimal[1] == minimal[2] && !minimal[2].is_empty() && minimal[0].is_empty(), "{minimal:?}");
    let text = desk.run(&["search", "-c", "policy.yaml", "in.csv", "--algorithm", "bottom-up"]).expect(0);
    let words = "bottom-up: minimal: ";
    assert!(text.out.contains(words), "{}", text.out);
    let all = desk.run(&["search", "-c", "policy.yaml", "in.csv", "--algorithm", "all", "--json"]).expect(0).json();
    assert!(all["searches"].as_array().unwrap().len() >= 4);
    let table = desk.run(&["search", "-c", "policy.yaml", "in.csv"]).expect(0);
    assert!(table.out.contains("glm") && table.out.contains("age "), "{}", table.out);
    let unknown = desk.run(&["search", "-c", "policy.yaml", "in.csv", "--algorithm", "magic"]).expect(2);
    assert!(unknown.err.contains("optimal"), "{}", unknown.err);
}

/// A policy for the people of `generate`, with a label, and 2,000 of them.
fn generated(desk: &Desk, more: &str) {
    desk.write("in.csv", desk.run(&["generate", "--records", "2000", "--format", "csv", "--seed", "3"]).expect(0).out);
    desk.write(
        "policy.yaml",
        format!(
            "policy:
  quasi_identifiers:
    - {{ name: age, hierarchy: {{ intervals: {{ widths: [5, 10, 20], min: 0, max: 120 }} }} }}
    - {{ name: sex, hierarchy: trivial }}
    - {{ name: zip, hierarchy: {{ prefix: {{ length: 5 }} }} }}
  sensitive: [{{ name: occupation }}]
  label: occupation
  subject: user_id
  privacy: [{{ k-anonymity: 5 }}]
{more}"
        ),
    );
}

#[test]
fn recodings_are_shown_side_by_side() {
    let desk = Desk::new();
    for own in ["full-domain", "subtree", "local"] {
        generated(&desk, &format!("  recoding: {own}\n"));
        let json = desk.run(&["search", "-c", "policy.yaml", "in.csv", "--json"]).expect(0).json();
        for key in REPORT_KEYS {
            assert!(json.get(key).is_some(), "{key} in {json}");
        }
        let recodings = json["recodings"].as_array().unwrap();
        let of = |key: &str| recodings.iter().map(|one| one[key].clone()).collect::<Vec<_>>();
        assert_eq!(of("recoding"), ["full-domain", "subtree", "local"]);
        let asked: Vec<&Value> = recodings.iter().filter(|one| one["asked"] == true).collect();
        assert_eq!((asked.len(), &asked[0]["recoding"]), (1, &own.into()));
        assert_eq!(asked[0]["loss"], json["loss"]["glm"], "the object is that of the policy's own recoding");
        let losses: Vec<f64> = of("loss").iter().map(|loss| loss.as_f64().unwrap()).collect();
        // With a label, cuts are chosen by `cm`, so `subtree` can lose more than `full-domain` by the policy's own loss.
        assert!(losses[2] < losses[0] && losses[2] < losses[1], "{losses:?}");
        for one in recodings {
            assert!(one["k_achieved"].as_u64() >= Some(5) && one["satisfies"] == true, "{one}");
            let useful = &one["usefulness"];
            let share = |key: &str| useful[key].as_f64().filter(|share| (0.0..=1.0).contains(share)).unwrap();
            assert!(share("loss_median") <= share("loss_p95"), "{one}");
            assert!(share("counts_by_one") >= share("counts_by_two"), "{one}");
            assert_eq!(useful["loss_by_attribute"].as_object().unwrap().len(), 3, "{one}");
            assert!(useful["classifier"]["published"].is_f64(), "{one}");
            // Only classes of mixed levels overlap, so only there a reader can exclude anything.
            let narrowed = useful["attack"]["cells_narrowed"].as_f64().unwrap();
            assert!(narrowed <= useful["attack"]["rows_narrowed"].as_f64().unwrap(), "{one}");
            assert!(narrowed == 0.0 || one["recoding"] == "local", "{one}");
        }
        let shown = desk.run(&["search", "-c", "policy.yaml", "in.csv"]).expect(0).out;
        let mark = |name: &str| shown.lines().any(|line| line.trim_start().starts_with(&format!("{name} *")));
        // Sentences, which have a colon, can have a hidden value in them.
        let marks = shown.lines().filter(|line| !line.contains(':')).map(|line| line.matches(" *").count());
        assert!(mark(own) && marks.sum::<usize>() == 1, "{shown}");
        let levels = shown.lines().find(|line| line.starts_with("local: age "));
        assert!(levels.is_some_and(|line| line.contains("mostly ")) && shown.contains("  loss: age "), "{shown}");
        assert!(shown.contains("with a label, its cuts are chosen by `cm`"), "{shown}");
    }
}

#[test]
fn a_recoding_that_the_policy_rules_out_is_left_out() {
    let desk = Desk::new();
    generated(&desk, "  loss: entropy\n");
    let json = desk.run(&["search", "-c", "policy.yaml", "in.csv", "--json"]).expect(0).json();
    assert!(json["recodings"][2]["left_out"].as_str().unwrap().contains("`entropy`"), "{json}");
    let shown = desk.run(&["search", "-c", "policy.yaml", "in.csv"]).expect(0).out;
    assert!(shown.contains("local: left out"), "{shown}");
    generated(&desk, "");
    desk.write("few.csv", desk.read("in.csv").lines().take(4).map(|line| format!("{line}\n")).collect::<String>());
    let none = desk.run(&["search", "-c", "policy.yaml", "few.csv"]).expect(1);
    assert!(none.out.contains("local: publishes nothing"), "{}", none.out);
    // An explicit search is the full-domain or subtree one, whatever the policy asks for.
    generated(&desk, "  recoding: local\n");
    let one = desk.run(&["search", "-c", "policy.yaml", "in.csv", "--json", "--algorithm", "optimal"]).expect(0).json();
    assert_eq!((&one["algorithm"], one["recoding"]["age"].is_u64()), (&"optimal".into(), true), "{one}");
    let arguments = ["anonymize", "-c", "policy.yaml", "in.csv", "-o", "out.csv", "--algorithm", "optimal"];
    assert!(desk.run(&arguments).expect(2).err.contains("remove --algorithm"));
}

#[test]
fn reports_tell_what_a_release_is_still_good_for() {
    let desk = Desk::new();
    generated(&desk, "  recoding: local\n");
    let search = desk.run(&["search", "-c", "policy.yaml", "in.csv", "--json"]).expect(0).json();
    let anonymize = |report: &str| {
        desk.run(&["anonymize", "-c", "policy.yaml", "in.csv", "-o", "out.csv", "--report", report]).expect(0);
        desk.read(report)
    };
    let report: Value = serde_json::from_str(&anonymize("report.json")).unwrap();
    assert_eq!(report["usefulness"], search["recodings"][2]["usefulness"]);
    let page = anonymize("report.html");
    for wanted in [
        "What the release is still good for",
        "loss of the record in the middle",
        "counts by two attributes",
        "classifier of the label",
        "local (this release)",
        "full-domain",
        "subtree",
        "records left out",
        "loss of age",
        "mostly ",
        "narrowed",
    ] {
        assert!(page.contains(wanted), "{wanted}");
    }
}

#[test]
fn ten_mistakes_are_ten_messages() {
    let desk = Desk::new();
    desk.write("bad.csv", "a;x;*\nb;x\n");
    desk.write(
        "ten.yaml",
        "policy:
  quasi_identifiers:
    - { name: age, hierarchy: { intervals: { widths: [5, 12], min: 0, max: 120 } } }
    - { name: zip, hierarchy: { prefix: { length: 0 } } }
    - { name: city, hierarchy: { csv: nowhere.csv } }
    - { name: town, hierarchy: trivial, weight: -1 }
    - { name: town, hierarchy: trivial }
  privacy:
    - { k-anonymity: 0 }
    - { l-diversity: { field: job, l: 3 } }
  suppression: { limit: 1.5 }
serach: { algorithm: auto }
window: { tumbling: { max_records: 0 } }
",
    );
    let left = desk.run(&["validate", "-c", "ten.yaml"]).expect(2);
    let lines: Vec<&str> = left.err.lines().collect();
    assert_eq!(lines.last(), Some(&"10 problems"), "{}", left.err);
    for line in &lines[..10] {
        let number = line.strip_prefix("ten.yaml:").and_then(|rest| rest.split_once(':')).map(|(number, _)| number);
        assert!(number.is_some_and(|number| number.parse::<u32>().is_ok()), "a line number: {line}");
    }
    // The same messages from whatever command is given the file.
    let run = desk.run(&["run", "-c", "ten.yaml"]).expect(2);
    assert_eq!(run.err, left.err);
    assert!(lines[7].ends_with("(schemas/CONFIGURATION.md#policy.suppression)"), "{}", lines[7]);
    desk.write("fine.yaml", policy(""));
    desk.run(&["validate", "-c", "fine.yaml"]).expect(0);
    let schema: Value = serde_json::from_str(&desk.run(&["schema"]).expect(0).out).unwrap();
    assert!(schema["properties"]["policy"].is_object());
}

/// What could not be computed within time, memory or the numbers that there are is refused before anything is read.
#[test]
fn what_cannot_be_counted_is_refused() {
    let desk = Desk::new();
    let many: Vec<String> = (0..60).map(|i| format!("{{ name: a{i}, hierarchy: trivial }}")).collect();
    let lkc = |l: u32| {
        let quasi = many.join(", ");
        format!("policy:\n  quasi_identifiers: [{quasi}]\n  privacy:\n    - {{ lkc: {{ l: {l}, k: 5, c: 1 }} }}\n")
    };
    desk.write("lkc.yaml", lkc(6));
    for command in [["validate", "-c", "lkc.yaml"], ["run", "-c", "lkc.yaml"]] {
        let left = desk.run(&command).expect(2);
        assert!(left.err.starts_with("lkc.yaml:4: l = `6` of 60 quasi-identifiers are 50063860 sets"), "{}", left.err);
        assert!(left.err.contains("write a smaller l"), "{}", left.err);
    }
    desk.write("lkc.yaml", lkc(2));
    desk.run(&["validate", "-c", "lkc.yaml"]).expect(0);
    for (weight, remedy) in [("1e308", "write 1000000 or less"), ("1e-9", "write 0.000001 or more")] {
        desk.write(
            "weight.yaml",
            policy("").replace("max: 120 } } }", &format!("max: 120 }} }}, weight: {weight} }}")),
        );
        let left = desk.run(&["validate", "-c", "weight.yaml"]).expect(2);
        assert!(left.err.starts_with("weight.yaml:3: ") && left.err.contains(remedy), "{}", left.err);
    }
}

#[test]
fn settings_that_are_rarely_intended_are_warned_of() {
    let desk = Desk::new();
    let warnings = |privacy: &str, more: &str| {
        let quasi = "policy:\n  quasi_identifiers: [{ name: a, hierarchy: trivial }]\n  sensitive: [{ name: s }]\n";
        desk.write("c.yaml", format!("{quasi}  privacy: {privacy}\n{more}"));
        let left = desk.run(&["validate", "-c", "c.yaml"]).expect(0);
        assert!(left.out.starts_with("c.yaml is fine: ") && left.out.lines().count() == 1, "{}", left.out);
        left.err
    };
    for (privacy, said) in [
        ("[{ k-anonymity: 1 }]", "k = 1 "),
        ("[{ l-diversity: { field: s, l: 2 } }]", "number of people"),
        ("[{ t-closeness: { field: s, t: 0.3 } }]", "number of people"),
        ("[{ lkc: { l: 1, k: 1, c: 0.5 } }]", "k = 1 "),
        ("[{ alpha-k: { field: s, alpha: 0.5, k: 1 } }]", "k = 1 "),
    ] {
        let err = warnings(privacy, "");
        assert!(err.lines().count() == 1 && err.starts_with("warning: c.yaml:4: ") && err.contains(said), "{err}");
    }
    let both = "[{ k-anonymity: 2 }, { l-diversity: { field: s, l: 2 } }]";
    assert_eq!(warnings(both, ""), "");
    let err = warnings(both, "search: { algorithm: pbg-ea, objectives: [k, s_l, glm] }\n");
    assert!(err.starts_with("warning: c.yaml:5: `s_l`") && err.lines().count() == 1, "{err}");
    // The service logs them.
    let ends = "source: { generator: { records: 10 } }\nsink: { file: { path: out.jsonl } }\n";
    let config = policy(ends).replace("k-anonymity: 5", "k-anonymity: 1");
    desk.write(
        "pipeline.yaml",
        config.replace("name: job", "name: occupation").replace("subject: id", "subject: user_id"),
    );
    let left = desk.run(&["run", "-c", "pipeline.yaml"]).expect(0);
    assert!(left.err.contains("pipeline.yaml:6: k = 1 protects nobody"), "{}", left.err);
}

#[test]
fn mistakes_are_named_with_a_remedy_and_without_values() {
    let desk = Desk::new();
    desk.write("policy.yaml", policy(""));
    desk.write("in.csv", csv(',', &people(100)));
    desk.write("lacks.csv", "id,years\nsecret1,30\n");
    desk.write("empty.csv", "");
    desk.write("unknown.csv", format!("{}p,secret2,cook\n", csv(',', &people(100))));
    let check = |arguments: &[&str], code: i32, words: &[&str]| {
        let left = desk.run(arguments).expect(code);
        for word in words {
            assert!(left.err.contains(word), "{word} in {}", left.err);
        }
        assert!(!left.err.contains("secret") && !left.out.contains("secret"), "{}", left.err);
    };
    let anonymize = |input: &'static str| ["anonymize", "-c", "policy.yaml", input, "-o", "out.csv"];
    check(&anonymize("nowhere.csv"), 2, &["nowhere.csv"]);
    check(&anonymize("lacks.csv"), 2, &["`age`", "`job`"]);
    check(&anonymize("empty.csv"), 2, &["header", "the input is empty"]);
    check(&anonymize("policy.yaml"), 2, &["no field"]);
    check(
        &anonymize("unknown.csv"),
        0,
        &["1 x unknown_value in `age`, first in record 101", "unknown_value: suppress"],
    );
    check(&["anonymize", "-c", "policy.yaml", "in.csv", "-o", "in.csv"], 2, &["another file"]);
    check(&["anonymize", "-c", "policy.yaml", "in.csv", "-o", "no/such/out.csv"], 2, &["no/such/out.csv"]);
    check(&["anonymize", "-c", "nowhere.yaml", "in.csv", "-o", "out.csv"], 2, &["nowhere.yaml"]);
    check(&["anonymize", "-c", "policy.yaml", "in.csv"], 2, &["--output"]);
    check(&["frobnicate"], 2, &["frobnicate"]);
    check(&["--log", "=,=", "schema"], 2, &["log filter"]);
}

#[test]
fn run_reads_and_writes_files_and_sums_up_on_stdout() {
    let desk = Desk::new();
    let mut lines = jsonl(&people(1000));
    lines.push_str("{not json\n{\"id\":\"x\",\"age\":999,\"job\":\"cook\"}\n");
    desk.write("in.jsonl", lines);
    for sink in ["out.csv", "out.jsonl", "out.avro"] {
        let config = format!(
            "{}window: {{ tumbling: {{ max_records: 300 }} }}\nsource: {{ file: {{ path: in.jsonl }} }}\nsink: {{ file: {{ path: {sink}, \
             manifest: {sink}.manifest }} }}\n",
            policy("  suppression: { limit: 5% }\n")
        );
        desk.write("pipeline.yaml", config);
        let summary = desk.run(&["run", "-c", "pipeline.yaml"]).expect(0).json();
        adds_up(&summary);
        assert_eq!((&summary["records_in"], &summary["records_rejected"]), (&1002.into(), &2.into()));
        assert_eq!(summary["releases"].as_u64(), Some(desk.read(&format!("{sink}.manifest")).lines().count() as u64));
        desk.run(&["verify", "-c", "pipeline.yaml", sink]).expect(0);
    }
}

#[test]
fn run_with_a_generator_ends_by_itself() {
    let desk = Desk::new();
    let config = policy("window: { tumbling: { max_records: 500 } }\nsource: { generator: { records: 2000, subjects: 1000 } }\nsink: { file: { path: out.jsonl } }\n")
        .replace("name: job", "name: occupation").replace("subject: id", "subject: user_id");
    desk.write("pipeline.yaml", config);
    let summary = desk.run(&["run", "-c", "pipeline.yaml"]).expect(0).json();
    adds_up(&summary);
    assert_eq!(summary["records_in"], 2000);
    desk.run(&["verify", "-c", "pipeline.yaml", "out.jsonl"]).expect(0);
}

/// Two windows of 100 people: first ten in every five years of age, then four of those from 20 to 24 are older.
fn drifting() -> String {
    let ages = (0..100).map(|i| 20 + i % 50).chain((0..100).map(|i| if i % 25 == 0 { 69 } else { 20 + i % 50 }));
    let line = |(i, age): (usize, usize)| format!("{{\"id\":\"p{i}\",\"age\":{age},\"job\":\"cook\"}}\n");
    ages.enumerate().map(line).collect()
}

fn bounded(desk: &Desk, k: u32) -> (Vec<Value>, String) {
    let search = format!("search: {{ algorithm: pbg-ea, prefer: {{ bounds: {{ k: {k} }} }} }}\n");
    let windows = "window: { tumbling: { max_records: 100, max_age: 1h } }\n";
    let ends = "source: { file: { path: in.jsonl } }\nsink: { file: { path: out.jsonl, manifest: manifests.jsonl } }\n";
    desk.write("in.jsonl", drifting());
    desk.write("pipeline.yaml", policy(&(search + windows + ends)));
    let left = desk.run(&["run", "-c", "pipeline.yaml"]).expect(0);
    let manifests = desk.read("manifests.jsonl");
    let manifests = manifests.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (manifests, left.err)
}

/// The second window meets the policy at the levels of the first, but not the bound.
#[test]
fn releases_keep_to_the_bounds_of_their_search() {
    let desk = Desk::new();
    let (manifests, log) = bounded(&desk, 20);
    let k: Vec<u64> = manifests.iter().map(|m| m["k_achieved"].as_u64().unwrap()).collect();
    assert!(k.len() == 2 && k.iter().all(|&k| k >= 20), "{k:?}");
    assert!(
        manifests.iter().all(|m| m["unmet_bounds"].as_array().unwrap().is_empty()) && !log.contains("bound"),
        "{log}"
    );
}

#[test]
fn bounds_that_cannot_be_met_are_said_aloud() {
    let desk = Desk::new();
    let (manifests, log) = bounded(&desk, 1000);
    assert_eq!(manifests.len(), 2);
    for manifest in &manifests {
        assert_eq!(manifest["k_achieved"], 100, "the nearest point");
        assert_eq!(
            manifest["unmet_bounds"],
            serde_json::json!([{ "objective": "k", "asked": 1000.0, "reached": 100.0 }])
        );
    }
    assert_eq!(log.matches("cannot be met").count(), 1, "once, not for every release: {log}");
    assert!(log.contains("k at least 1000 was asked, 100 is reached"), "{log}");
    let found = desk.run(&["search", "-c", "pipeline.yaml", "in.jsonl", "--json"]).expect(0).json();
    assert_eq!(found["unmet_bounds"][0]["objective"], "k");
    let shown = desk.run(&["search", "-c", "pipeline.yaml", "in.jsonl"]).expect(0);
    assert!(shown.out.contains("k at least 1000 was asked"), "{}", shown.out);
}

#[test]
fn the_preferred_point_is_one_that_a_person_would_take() {
    let desk = Desk::new();
    let people = desk.run(&["generate", "--records", "3000", "--subjects", "3000", "--seed", "4"]).expect(0);
    desk.write("in.jsonl", people.out);
    desk.write(
        "policy.yaml",
        "policy:
  quasi_identifiers:
    - { name: age, hierarchy: { intervals: { widths: [5, 10, 20, 40], min: 0, max: 119 } } }
    - { name: sex, hierarchy: trivial }
    - { name: zip, hierarchy: { prefix: { length: 5 } } }
    - { name: education, hierarchy: trivial }
    - { name: marital_status, hierarchy: trivial }
  privacy: [{ k-anonymity: 5 }]
  suppression: { limit: 5% }
",
    );
    for method in ["exact", "pbg-ea"] {
        let found =
            desk.run(&["frontier", "-c", "policy.yaml", "in.jsonl", "--method", method, "--json"]).expect(0).json();
        let preferred = found["front"].as_array().unwrap().iter().find(|point| point["preferred"] == true).unwrap();
        let (k, glm) = (preferred["values"]["k"].as_f64().unwrap(), preferred["values"]["glm"].as_f64().unwrap());
        assert!((5.0..100.0).contains(&k) && glm < 0.5, "{method}: k {k} at a loss of {glm}");
        let value = |point: &Value, name: &str| point["values"][name].as_f64().unwrap();
        let nodes = found["front"].as_array().unwrap().iter().filter(|point| value(point, "k") >= 5.0);
        let best = nodes.map(|point| value(point, "glm")).fold(1.0, f64::min);
        for recoding in ["subtree", "local"] {
            let others = found["recodings"].as_array().unwrap();
            let of = |k: u64| others.iter().find(|point| point["recoding"] == recoding && point["k"] == k).unwrap();
            assert!([2, 5, 10, 20, 50].iter().all(|&k| value(of(k), "k") >= k as f64));
            assert!(recoding != "local" || value(of(5), "glm") < best, "local loses more than the best node, {best}");
        }
    }
}

/// Like `tail -f x.jsonl | veilstream run`: releases come while the input stays open, and a stop drains.
#[test]
fn a_pipe_that_stays_open_publishes_and_drains_on_a_signal() {
    for name in ["TERM", "INT"] {
        let desk = Desk::new();
        desk.write(
            "pipeline.yaml",
            policy(&format!("window: {{ tumbling: {{ max_records: 100, max_age: 1h }} }}\n{HTTP}")),
        );
        let mut service = Service::start(&desk, "pipeline.yaml", "info");
        // Two full windows: 200 rows must come out although the input goes on.
        service.send(jsonl(&people(200)).as_bytes());
        wait_until("two releases", || service.out().lines().count() == 200);
        for line in service.out().lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            assert!(row.get("age").is_some() && row.get("id").is_none(), "{row}");
        }
        // A window that is not full, but large enough to be protected: published by the drain.
        service.send(jsonl(&people(60)).as_bytes());
        service.wait_for_records(260);
        service.signal(name);
        let left = service.end().expect(0);
        let summary: Value = serde_json::from_str(left.err.lines().last().unwrap()).unwrap();
        adds_up(&summary);
        assert_eq!(summary["records_in"], 260);
        assert_eq!(summary["records_published"].as_u64(), Some(left.out.lines().count() as u64), "{summary}");
        assert!(left.out.lines().count() > 200, "the drain published");
    }
}

#[test]
fn the_order_of_the_input_is_gone() {
    let desk = Desk::new();
    desk.write("policy.yaml", policy("  keep: [{ name: number, reviewed: true }]\n"));
    let lines = jsonl(&people(2000));
    let numbered = lines.lines().enumerate().map(|(i, line)| line.replace('}', &format!(",\"number\":{i}}}\n")));
    desk.write("in.jsonl", numbered.collect::<String>());
    desk.run(&["anonymize", "-c", "policy.yaml", "in.jsonl", "-o", "out.jsonl", "--seed", "1"]).expect(0);
    let out = desk.read("out.jsonl");
    let number = |line: &str| serde_json::from_str::<Value>(line).unwrap()["number"].as_f64().unwrap();
    let ranks: Vec<f64> = out.lines().map(number).collect();
    assert_eq!(ranks.len(), 2000);
    // The correlation of place and number: 1 if nothing was shuffled, and about 0.02 from zero for 2000 shuffled ones.
    let (n, mean) = (ranks.len() as f64, (ranks.len() as f64 - 1.0) / 2.0);
    let covariance: f64 = ranks.iter().enumerate().map(|(place, rank)| (place as f64 - mean) * (rank - mean)).sum();
    let rho = covariance / (n * (n * n - 1.0) / 12.0);
    assert!(rho.abs() < 0.1, "{rho}");
}

#[test]
fn a_half_filled_window_below_k_is_never_flushed() {
    let desk = Desk::new();
    desk.write("pipeline.yaml", policy("window: { tumbling: { max_records: 100, max_age: 1h } }\n"));
    let left = desk.pipe(&["run", "-c", "pipeline.yaml"], jsonl(&people(4)).as_bytes()).expect(1);
    assert_eq!(left.out, "");
    let summary: Value = serde_json::from_str(left.err.lines().last().unwrap()).unwrap();
    adds_up(&summary);
    assert_eq!((&summary["records_suppressed"], &summary["releases"]), (&4.into(), &0.into()));
}

#[test]
fn a_sliding_window_publishes_snapshots_of_itself() {
    let desk = Desk::new();
    desk.write(
        "pipeline.yaml",
        policy(
            "window: { sliding: { size: 200, slide: 50 } }\nsink: { file: { path: out.jsonl, manifest: m.jsonl } }\n",
        ),
    );
    let left = desk.pipe(&["run", "-c", "pipeline.yaml"], jsonl(&people(620)).as_bytes()).expect(0);
    let summary: Value = serde_json::from_str(left.out.lines().last().unwrap()).unwrap();
    adds_up(&summary);
    assert_eq!((&summary["records_in"], &summary["records_held"]), (&620.into(), &0.into()));
    let manifests: Vec<Value> = desk.read("m.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sum = |key: &str| manifests.iter().map(|manifest| manifest[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!(sum("records_published"), summary["records_published"].as_u64().unwrap());
    assert_eq!(sum("rows"), desk.read("out.jsonl").lines().count() as u64);
    assert!(sum("rows") > sum("records_published"), "snapshots show records again");
    assert_eq!(manifests.len(), 13, "one per slide, and the drain");
}

#[test]
fn generate_says_the_same_for_the_same_seed() {
    let desk = Desk::new();
    let run = |seed: &str| desk.run(&["generate", "--records", "50", "--seed", seed, "--format", "csv"]).expect(0).out;
    assert_eq!(run("1"), run("1"));
    assert_ne!(run("1"), run("2"));
    assert_eq!(run("1").lines().count(), 51);
    // A reader that goes away is no failure.
    let mut child = desk.command(&["generate", "--records", "0"]).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with('{'));
    wait_until("generate ends with its reader", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
