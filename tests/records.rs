//! Ordinary mistakes with ordinary records, as a new user makes them: no record vanishes from the counts, nothing useless is published,
//! and every message says what the matter is and what to do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod program;

use std::fmt::Write as _;
use std::process::Stdio;

use program::{Desk, Left, csv, jsonl, people, policy};
use serde_json::Value;

const WINDOW: &str = "window: { tumbling: { max_records: 1000, max_age: 1h } }\n";

/// Criteria that ask a private field.
const CONSENT: &str = "{ k-anonymity: 5 }, { confidential: { sentences: [{ not: { field: job, in: [cook] }, when: { field: notes, in: [\"1\"] } }] } }";

/// A pipeline from a file to a file.
fn pipeline(more: &str, source: &str) -> String {
    format!(
        "{}{WINDOW}source: {{ file: {{ {source} }} }}\nsink: {{ file: {{ path: out.jsonl }} }}\n",
        policy(&format!("  suppression: {{ limit: 50% }}\n{more}"))
    )
}

fn counts(summary: &Value, name: &str) -> u64 {
    summary[name].as_u64().unwrap_or_else(|| panic!("{name} in {summary}"))
}

/// 300 people in CSV, every third with a quoted field.
fn quoted_csv() -> Vec<String> {
    let mut lines = vec!["id,age,job".to_owned()];
    lines.extend(people(300).into_iter().enumerate().map(|(i, (age, job, id))| match i % 3 {
        0 => format!("{id},{age},\"{job}, {i}\""),
        1 => format!("{id},{age},{job}"),
        _ => format!("{id},{age},\"\""),
    }));
    lines
}

#[test]
fn one_damaged_line_of_csv_costs_one_record() {
    let desk = Desk::new();
    desk.write("policy.yaml", policy("  suppression: { limit: 50% }\n"));
    desk.write("pipeline.yaml", pipeline("", "path: in.csv"));
    for (at, from, to) in [(2, ",", ",\""), (300, ",", ",\""), (4, "\"", ""), (6, ",\"\"", ",\""), (2, "", "\"")] {
        let mut lines = quoted_csv();
        lines[at] = lines[at].replacen(from, to, 1);
        desk.write("in.csv", lines.join("\n") + "\n");
        desk.run(&["anonymize", "-c", "policy.yaml", "in.csv", "-o", "out.csv", "--report", "r.json"]).expect(0);
        let report: Value = serde_json::from_str(&desk.read("r.json")).unwrap();
        assert_eq!((counts(&report, "records_in"), counts(&report, "records_rejected")), (300, 1), "line {at}: {to}");
        let summary = desk.run(&["run", "-c", "pipeline.yaml"]).expect(0).json();
        assert_eq!((counts(&summary, "records_in"), counts(&summary, "records_rejected")), (300, 1), "line {at}: {to}");
    }
}

#[test]
fn a_damaged_array_stops_with_its_place() {
    let desk = Desk::new();
    desk.write("policy.yaml", policy("  suppression: { limit: 50% }\n"));
    desk.write("pipeline.yaml", pipeline("", "path: in.json"));
    let elements: Vec<String> = jsonl(&people(300)).lines().map(str::to_owned).collect();
    let whole = elements[200].as_str();
    let cases = [
        ("a quote is missing", whole.replacen("\"id\"", "\"id", 1), ","),
        ("an opening quote is missing", whole.replacen("\"id\"", "id\"", 1), ","),
        ("a closing brace is missing", whole.replace('}', ""), ","),
        ("an opening brace is missing", whole.replace('{', ""), ","),
        ("a comma is missing", whole.to_owned() + elements[201].as_str(), ","),
        ("a bracket too many", whole.replace('}', "]}"), ",\n"),
        ("a bracket of another kind", whole.replace('}', "]"), ",\n"),
    ];
    for (what, damaged, between) in cases {
        let mut elements = elements.clone();
        elements[200] = damaged;
        desk.write("in.json", format!("[{}]\n", elements.join(between)));
        for arguments in
            [&["anonymize", "-c", "policy.yaml", "in.json", "-o", "out.json"][..], &["run", "-c", "pipeline.yaml"]]
        {
            let left = desk.run(arguments).expect(3);
            assert!(left.err.contains("after record 200"), "{what}: {}", left.err);
            assert!(left.err.contains("one object per line"), "{what}: {}", left.err);
        }
    }
    desk.write("in.json", format!("[{}", elements.join(",")));
    let left = desk.run(&["anonymize", "-c", "policy.yaml", "in.json", "-o", "out.json"]).expect(3);
    assert!(left.err.contains("cut short"), "{}", left.err);
}

#[test]
fn a_misspelt_field_stops_before_anything_is_published() {
    let desk = Desk::new();
    let mut lines: Vec<String> = jsonl(&people(500)).lines().map(|l| l.replace('}', ",\"note\":1}")).collect();
    desk.write("whole.jsonl", lines.join("\n"));
    lines[77] = lines[77].replace('}', ",\"agee\":3,\"jobb\":\"x\",\"idd\":1}");
    desk.write("in.jsonl", lines.join("\n"));
    let right = policy("  suppression: { limit: 50% }\n  missing_value: top\n  keep: [note]\n");
    let on = |policy: &str, path: &str| {
        format!("{policy}{WINDOW}source: {{ file: {{ path: {path} }} }}\nsink: {{ file: {{ path: out.jsonl }} }}\n")
    };
    for (from, to, meant) in [
        ("name: age", "name: agee", "`age`"),
        ("name: job", "name: jobb", "`job`"),
        ("subject: id", "subject: idd", "`id`"),
        ("keep: [note]", "keep: [notes]", "`note`"),
        ("keep: [note]", "private: [notes]", "`note`"),
    ] {
        let wrong = match to.starts_with("private") {
            true => right.replace(from, to).replace("{ k-anonymity: 5 }", CONSENT),
            false => right.replace(from, to),
        };
        for path in ["in.jsonl", "whole.jsonl"] {
            desk.write("policy.yaml", &wrong);
            desk.write("pipeline.yaml", on(&wrong, path));
            for arguments in
                [&["anonymize", "-c", "policy.yaml", path, "-o", "out.jsonl"][..], &["run", "-c", "pipeline.yaml"]]
            {
                let left = desk.run(arguments).expect(2);
                assert!(
                    left.err.contains(&format!("did you mean {meant}?")),
                    "{to} {path} {arguments:?}: {}",
                    left.err
                );
                assert!(left.err.contains("nothing was published"), "{}", left.err);
                assert!(!desk.path("out.jsonl").exists() || desk.read("out.jsonl").is_empty(), "{arguments:?}");
            }
        }
    }
    desk.write("policy.yaml", &right);
    desk.run(&["anonymize", "-c", "policy.yaml", "in.jsonl", "-o", "out.jsonl"]).expect(0);
}

#[test]
fn a_kept_field_that_few_records_have_is_no_mistake() {
    let desk = Desk::new();
    let mut lines: Vec<String> = jsonl(&people(500)).lines().map(str::to_owned).collect();
    lines[77] = lines[77].replace('}', ",\"remark\":3}");
    desk.write("in.jsonl", lines.join("\n"));
    desk.write("pipeline.yaml", pipeline("  keep: [remark]\n", "path: in.jsonl"));
    desk.run(&["run", "-c", "pipeline.yaml"]).expect(0);
    // No record of the first window has it, and no other field is spelt alike: later ones may.
    lines.rotate_left(70);
    desk.write("in.jsonl", lines.join("\n"));
    let config = pipeline("  keep: [remark]\n", "path: in.jsonl").replace("max_records: 1000", "max_records: 100");
    desk.write("pipeline.yaml", config.replace("[remark]", "[something_else]").replace("out.jsonl", "other.jsonl"));
    let left = desk.run(&["run", "-c", "pipeline.yaml"]).expect(0);
    assert!(left.err.contains("no record has `something_else`"), "it is warned of: {}", left.err);
}

#[test]
fn an_input_of_which_nothing_can_be_read_publishes_nothing() {
    let desk = Desk::new();
    let people = people(300);
    let orders: String = people
        .iter()
        .map(|(age, job, id)| format!("{{\"id\":\"{id}\",\"age\":{age},\"items\":[{{\"job\":\"{job}\"}}]}}\n"))
        .collect();
    desk.write("orders.jsonl", orders);
    desk.write("people.txt", csv(',', &people));
    desk.write("people.jsonl", jsonl(&people));
    let wrong = |more: &str, source: &str| pipeline(more, source);
    for (config, reason) in [
        (wrong("", "path: people.txt, format: jsonl"), "100.0 % rejected as malformed"),
        (wrong("", "path: people.jsonl, envelope: debezium"), "envelope"),
        (
            wrong("", "path: orders.jsonl, explode: itemz").replace("name: job", "name: itemz.job"),
            "100.0 % rejected as missing_field",
        ),
        (wrong("", "path: people.jsonl").replace("max: 120", "max: 19"), "100.0 % rejected as unknown_value in `age`"),
    ] {
        desk.write("pipeline.yaml", config);
        let left = desk.run(&["run", "-c", "pipeline.yaml"]).expect(1);
        assert!(left.err.contains(reason), "{reason}: {}", left.err);
        assert!(left.err.contains("nothing was published"), "{reason}: {}", left.err);
        assert!(!left.err.contains("release published"), "{reason}: {}", left.err);
        assert!(!desk.path("out.jsonl").exists() || desk.read("out.jsonl").is_empty(), "{reason}");
    }
    // Fewer than any window needs, at the end of a file.
    desk.write("few.jsonl", "{\"a\":1}\nx\n{}\n".repeat(3));
    desk.write("pipeline.yaml", wrong("", "path: few.jsonl"));
    assert_ne!(desk.run(&["run", "-c", "pipeline.yaml"]).code, 0);
    desk.write("few.jsonl", "x\n".repeat(3));
    desk.run(&["run", "-c", "pipeline.yaml"]).expect(1);
}

#[test]
fn a_sample_says_what_keeps_records_from_being_read() {
    let desk = Desk::new();
    let people = people(300);
    let sample = |config: &str, input: &str, more: &[&str]| -> Left {
        desk.write("c.yaml", config);
        desk.run(&[&["validate", "-c", "c.yaml", "--sample", input], more].concat())
    };
    let told = |left: &Left| format!("{}{}", left.out, left.err);
    // A path that leads into an array.
    let nested: String = people
        .iter()
        .map(|(age, job, id)| format!("{{\"id\":\"{id}\",\"age\":{age},\"w\":[{{\"job\":\"{job}\"}}]}}\n"))
        .collect();
    desk.write("nested.jsonl", &nested);
    let left = sample(&policy("").replace("name: job", "name: w.job"), "nested.jsonl", &[]);
    assert!(left.code == 2 && told(&left).contains("100.0 % rejected as not_an_object"), "{}", told(&left));
    // A misspelt array.
    let config = pipeline("", "path: nested.jsonl, explode: v").replace("name: job", "name: v.job");
    let left = sample(&config, "nested.jsonl", &[]);
    assert!(left.code == 2 && told(&left).contains("missing_field"), "{}", told(&left));
    assert!(
        told(&left).contains("did you mean `w`?") || told(&left).contains("most records have age, id, w"),
        "{}",
        told(&left)
    );
    // An exploded message is one message.
    let three = nested.replace("}]", "},{\"job\":\"cook\"},{\"job\":\"cook\"}]");
    desk.write("three.jsonl", three);
    let left =
        sample(&config.replace("v.job", "w.job").replace("explode: v", "explode: w"), "three.jsonl", &[]).expect(0);
    assert!(left.out.contains("300 messages were read"), "{}", left.out);
    assert!(left.out.contains("900 records"), "{}", left.out);
    // The settings of the configuration count, and so do flags.
    let latin: Vec<u8> = csv(';', &people).replace("cook", "k\u{f6}ch").chars().map(|c| c as u8).collect();
    desk.write("latin.dat", &latin);
    let left = sample(&policy(""), "latin.dat", &[]);
    assert!(told(&left).contains("rejected as invalid_utf8"), "{}", told(&left));
    sample(&policy(""), "latin.dat", &["--encoding", "latin-1"]).expect(0);
    sample(&pipeline("", "path: latin.dat, format: csv, encoding: latin-1, delimiter: ';'"), "latin.dat", &[])
        .expect(0);
    desk.run(&["anonymize", "-c", "c.yaml", "latin.dat", "-o", "out.csv"]).expect(0);
    assert!(desk.read("out.csv").contains("k\u{f6}ch"));
    // Pretty-printed JSON.
    let pretty: String = jsonl(&people).replace('{', "{\n").replace(',', ",\n").replace('}', "\n}");
    desk.write("pretty.json", pretty);
    let left = sample(&policy(""), "pretty.json", &[]);
    assert!(left.code == 2 && told(&left).contains("one object per line"), "{}", told(&left));
    // What is turned away by the policy, per field.
    desk.write("people.jsonl", jsonl(&people));
    let left = sample(&policy("").replace("max: 120", "max: 29"), "people.jsonl", &[]);
    assert!(left.out.contains("rejected as unknown_value in `age`"), "{}", left.out);
}

#[test]
fn keys_of_a_few_records_are_told_to_nobody() {
    let desk = Desk::new();
    let few = |n: usize| "{\"canary@example.org\":{\"agex\":3,\"age\":1}}\n".repeat(n);
    desk.write("one.yaml", pipeline("", "path: in.jsonl"));
    desk.write("policy.yaml", policy(""));
    let tells_nobody = |n: usize, arguments: &[&str]| {
        let left = desk.run(arguments);
        let told = format!("{}{}", left.out, left.err);
        assert!(!told.contains("canary"), "{n} {arguments:?}: {told}");
    };
    for n in [1, 3, 19] {
        let mut text = few(n);
        desk.write("in.jsonl", &text);
        for arguments in [
            &["run", "-c", "one.yaml"][..],
            &["validate", "-c", "policy.yaml", "--sample", "in.jsonl"],
            &["anonymize", "-c", "policy.yaml", "in.jsonl", "-o", "out.jsonl"],
            &["profile", "in.jsonl"],
            &["init", "--yes", "in.jsonl", "-o", "-"],
        ] {
            tells_nobody(n, arguments);
        }
        // Nor among many others.
        text.push_str(&jsonl(&people(400)));
        desk.write("in.jsonl", &text);
        for arguments in [&["profile", "in.jsonl"][..], &["validate", "-c", "policy.yaml", "--sample", "in.jsonl"]] {
            tells_nobody(n, arguments);
        }
    }
    // A person in the place of a header.
    desk.write("headless.csv", "canary1@example.org,31,cook\ncanary2@example.org,32,cook\n");
    desk.write("subject.yaml", policy("").replace("subject: id", "subject: canary@example.org"));
    for config in ["policy.yaml", "subject.yaml"] {
        let left = desk.run(&["anonymize", "-c", config, "headless.csv", "-o", "out.jsonl"]).expect(2);
        assert!(!left.err.replace("`canary@example.org`", "").contains("canary"), "{}", left.err);
    }
}

#[test]
fn an_output_named_tsv_has_tabs() {
    let desk = Desk::new();
    desk.write("policy.yaml", policy("  suppression: { limit: 50% }\n"));
    desk.write("in.csv", csv(',', &people(300)));
    desk.write("in.jsonl", jsonl(&people(300)));
    for (input, output, header) in
        [("in.csv", "out.tsv", "age\tjob"), ("in.jsonl", "out.tsv", "age\tjob"), ("in.csv", "out.csv", "age,job")]
    {
        desk.run(&["anonymize", "-c", "policy.yaml", input, "-o", output]).expect(0);
        assert_eq!(desk.read(output).lines().next(), Some(header), "{input} to {output}");
    }
    let config = pipeline("", "path: in.csv")
        .replace("out.jsonl", "run.tsv")
        .replace("path: run.tsv", "path: run.tsv, format: csv");
    desk.write("pipeline.yaml", config);
    desk.run(&["run", "-c", "pipeline.yaml"]).expect(0);
    assert_eq!(desk.read("run.tsv").lines().next(), Some("age\tjob"));
}

#[test]
fn a_hierarchy_says_why_there_is_none() {
    let desk = Desk::new();
    let people = people(300);
    desk.write("in.jsonl", jsonl(&people));
    let made = |input: &str, field: &str| {
        let left = desk.run(&["hierarchy", input, "--field", field, "-o", "h.csv"]).expect(2);
        assert!(!left.err.contains("is held by"), "{input} {field}: {}", left.err);
        left.err
    };
    assert!(made("in.jsonl", "jobb").contains("did you mean `job`?"));
    let latin: Vec<u8> = csv(',', &people)
        .replace("cook", "k\u{f6}ch")
        .replace("nurse", "k\u{f6}ch")
        .replace("clerk", "\u{f6}")
        .replace("smith", "\u{f6}")
        .chars()
        .map(|c| c as u8)
        .collect();
    desk.write("latin.csv", &latin);
    assert!(made("latin.csv", "job").contains("--encoding"));
    let changes: String =
        jsonl(&people).lines().map(|line| format!("{{\"before\":null,\"after\":{line},\"op\":\"c\"}}\n")).collect();
    desk.write("changes.jsonl", changes);
    assert!(made("changes.jsonl", "job").contains("did you mean `after.job`?"));
}

#[test]
fn an_input_of_another_kind_is_named_with_the_remedy() {
    let desk = Desk::new();
    desk.write("policy.yaml", policy("  suppression: { limit: 50% }\n"));
    let people = people(300);
    let (json, lines) = (jsonl(&people), csv(',', &people));
    let objects: Vec<&str> = json.lines().collect();
    let arrow = [&[0xff, 0xff, 0xff, 0xff, 0x10, 1, 0, 0, 0x10, 0, 0, 0][..], &[0; 300]].concat();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, b"PAR1\x15\x04\x15\x00PAR1").unwrap();
    let cases: Vec<(&str, Vec<u8>, &[&str])> = vec![
        ("people.csv", json.clone().into(), &["JSON", "jsonl"]),
        ("people.json", lines.clone().into(), &["CSV", "csv"]),
        ("pretty.json", json.replace(',', ",\n ").replace('{', "{\n ").into(), &["one object per line"]),
        ("empty.json", b"[]".to_vec(), &["no record"]),
        ("nothing.json", b"".to_vec(), &["no record"]),
        (
            "headless.csv",
            lines.lines().skip(1).collect::<Vec<_>>().join("\n").into(),
            &["first line", "names of the columns"],
        ),
        ("flat.parquet.gz", gzip.finish().unwrap(), &["Parquet", "unpack"]),
        ("one.feather", [&b"FEA1\0\0\0\0"[..], &[0; 300]].concat(), &["Feather", "Parquet"]),
        ("stream.arrows", arrow, &["Arrow", "Parquet"]),
        ("page.json", format!("{{\"data\":[{}]}}\n", objects.join(",")).into(), &["one object", "array"]),
    ];
    for (name, bytes, words) in cases {
        desk.write(name, bytes);
        for arguments in [
            &["anonymize", "-c", "policy.yaml", name, "-o", "out.jsonl"][..],
            &["validate", "-c", "policy.yaml", "--sample", name],
        ] {
            let left = desk.run(arguments);
            let nothing = words == ["no record"] && arguments[0] == "anonymize";
            assert!(
                if nothing { left.code == 0 } else { matches!(left.code, 1 | 2) },
                "{name}: {} {}",
                left.code,
                left.err
            );
            for word in words {
                assert!(left.err.contains(word), "{word} about {arguments:?}: {}", left.err);
            }
        }
    }
}

#[test]
fn a_reader_that_went_away_ends_a_command_quietly() {
    let desk = Desk::new();
    desk.write("in.csv", csv(',', &people(3000)));
    for arguments in [
        &["init", "--yes", "in.csv", "-o", "p.yaml", "--force"][..],
        &["profile", "in.csv"],
        &["profile", "missing.csv"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = desk.command(arguments);
        command.stdout(writer.try_clone().unwrap()).stderr(Stdio::from(writer));
        let status = command.status().unwrap();
        assert!(status.code().is_some_and(|code| code < 4), "{arguments:?}: {status}");
    }
}

#[test]
fn a_first_policy_leaves_records_without_a_value_out() {
    let desk = Desk::new();
    let rows = |every: usize| {
        let mut text = String::new();
        for (i, (age, job, id)) in people(2000).into_iter().enumerate() {
            let age = if i % every == 0 { "null".into() } else { age.to_string() };
            let zip = i % 10;
            writeln!(text, "{{\"user_id\":\"{id}\",\"age\":{age},\"zip\":\"1{zip}\",\"diagnosis\":\"{job}\"}}")
                .unwrap();
        }
        text
    };
    // A third of the records is more than any limit: there, they are published as the top.
    for (every, word) in [(50, "suppress"), (3, "top")] {
        desk.write("in.jsonl", rows(every));
        desk.run(&["init", "--yes", "--force", "in.jsonl", "-o", "p.yaml"]).expect(0);
        let made = desk.read("p.yaml");
        assert!(
            made.contains(&format!("missing_value: {word}")) && made.contains(&format!("null_value: {word}")),
            "{made}"
        );
    }
    desk.write("null.yaml", policy("").replace("subject: id", "subject: user_id").replace("job", "diagnosis"));
    let left = desk.run(&["anonymize", "-c", "null.yaml", "in.jsonl", "-o", "out.jsonl"]);
    assert!(left.err.contains("write `null_value: suppress`") && !left.err.contains("`top`"), "{}", left.err);
}

#[test]
fn standard_input_is_recognised_by_its_first_bytes() {
    let desk = Desk::new();
    let config = |source: &str| {
        format!(
            "{}{WINDOW}source: {source}\nsink: {{ stdio: {{ format: jsonl }} }}\n",
            policy("  suppression: { limit: 50% }\n")
        )
    };
    desk.write("any.yaml", config("{ stdio: {} }"));
    for input in [csv(',', &people(300)), csv(';', &people(300)), jsonl(&people(300))] {
        let left = desk.pipe(&["run", "-c", "any.yaml"], input.as_bytes()).expect(0);
        assert_eq!(left.out.lines().count(), 300, "{}", left.err);
    }
}

#[test]
fn dates_of_debezium_are_read() {
    let desk = Desk::new();
    let text: String =
        (0..300).map(|i| format!("{{\"id\":{i},\"born\":{}}}\n", 86_400_000_000_i64 * (i % 5))).collect();
    desk.write("in.jsonl", text);
    desk.write(
        "policy.yaml",
        "policy:\n  quasi_identifiers: [{ name: born, hierarchy: { date: { units: [day, month], format: epoch-micros } } }]\n  subject: id\n  privacy: [{ k-anonymity: 5 }]\n",
    );
    desk.run(&["anonymize", "-c", "policy.yaml", "in.jsonl", "-o", "out.jsonl"]).expect(0);
    assert!(desk.read("out.jsonl").contains("1970-01-05"));
}
