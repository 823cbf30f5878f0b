//! A hostile reader: has the rows, the manifests, the log and the status of a run, knows the program, and knows every record but
//! one. Each attack worked on a build that named releases by the seed of their shuffle and told offsets of single records.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod program;

use std::collections::BTreeSet;

use program::{Desk, jsonl, people, policy};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

/// A pipeline over [`people`] into a file with manifests and a journal.
fn pipeline(more: &str) -> String {
    policy(&format!(
        "{more}sink: {{ file: {{ path: out.jsonl, manifest: manifests.jsonl, journal: journal.jsonl }} }}\n"
    ))
}

/// Runs over these lines in a directory of its own; the desk, and the manifests without what differs from run to run.
fn released(pipeline: &str, input: &str) -> (Desk, Vec<Value>) {
    let desk = Desk::new();
    desk.write("pipeline.yaml", pipeline);
    desk.pipe(&["run", "-c", "pipeline.yaml"], input.as_bytes()).expect(0);
    let manifests = desk.read("manifests.jsonl");
    let timeless = |line: &str| {
        let mut manifest: Value = serde_json::from_str(line).unwrap();
        for key in ["release_id", "closed_at", "search_ms"] {
            assert!(manifest.as_object_mut().unwrap().remove(key).is_some(), "{key}");
        }
        manifest
    };
    let manifests = manifests.lines().map(timeless).collect();
    (desk, manifests)
}

/// One person at `place` whose age is far from everybody's, among people of two ages.
fn alone(place: usize, age: u32) -> String {
    let mut people: Vec<_> = people(40).into_iter().map(|(age, job, id)| (20 + age % 2, job, id)).collect();
    people[place].0 = age;
    jsonl(&people)
}

/// T22: the digits of a release's id, and small seeds, were the seed of the shuffle.
#[test]
fn no_public_name_and_no_small_seed_puts_rows_back_into_the_order_of_reading() {
    let desk = Desk::new();
    desk.write("policy.yaml", policy("  keep: [{ name: number, reviewed: true }]\n"));
    desk.write(
        "pipeline.yaml",
        pipeline("  keep: [{ name: number, reviewed: true }]\nsearch: { seed: 17 }\nwindow: { tumbling: { max_records: 2000 } }\n"),
    );
    let lines = jsonl(&people(2000));
    let numbered = lines.lines().enumerate().map(|(i, line)| line.replace('}', &format!(",\"number\":{i}}}\n")));
    let numbered: String = numbered.collect();
    desk.write("in.jsonl", &numbered);
    desk.run(&["anonymize", "-c", "policy.yaml", "in.jsonl", "-o", "once.jsonl", "--seed", "17"]).expect(0);
    desk.pipe(&["run", "-c", "pipeline.yaml"], numbered.as_bytes()).expect(0);
    let public = desk.read("manifests.jsonl");
    let digits = |text: &str| -> Vec<u64> {
        let words = text.split(|c: char| !c.is_ascii_hexdigit()).filter(|word| (1..=16).contains(&word.len()));
        words.filter_map(|word| u64::from_str_radix(word, 16).ok()).collect()
    };
    let guesses: BTreeSet<u64> = digits(&public).into_iter().chain(0..64).collect();
    for file in ["once.jsonl", "out.jsonl"] {
        let out = desk.read(file);
        let number = |line: &str| serde_json::from_str::<Value>(line).unwrap()["number"].as_u64().unwrap() as usize;
        let sent: Vec<usize> = out.lines().map(number).collect();
        assert_eq!(sent.len(), 2000);
        for &seed in &guesses {
            let mut order: Vec<usize> = (0..sent.len()).collect();
            order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
            let back = order.iter().zip(&sent).filter(|(guess, number)| guess == number).count();
            assert!(back < 20, "{file}: seed {seed} puts {back} rows back");
        }
    }
}

/// T22: whoever reads only rows sees nothing of the order in which records were read, and ids are drawn anew for every run.
#[test]
fn the_rows_are_the_same_bytes_whatever_the_order_of_reading() {
    let window = "search: { seed: 17 }\nwindow: { tumbling: { max_records: 2000 } }\n";
    let lines = jsonl(&people(400));
    let mut turned: Vec<&str> = lines.lines().collect();
    turned.shuffle(&mut ChaCha8Rng::seed_from_u64(3));
    let (one, manifests) = released(&pipeline(window), &lines);
    let (other, again) = released(&pipeline(window), &(turned.join("\n") + "\n"));
    assert_eq!((one.read("out.jsonl"), manifests), (other.read("out.jsonl"), again));
    let id = |desk: &Desk| {
        serde_json::from_str::<Value>(desk.read("manifests.jsonl").lines().next().unwrap()).unwrap()["release_id"]
            .clone()
    };
    assert_ne!(id(&one), id(&other));
}

/// T23: which record was held, and later expired or left a sliding window, is in the journal and in nothing that readers have.
#[test]
fn nothing_that_a_reader_has_tells_which_record_was_held() {
    let windows = [
        "  suppression: { limit: 10%, action: hold, max_hold: 1h }\nwindow: { tumbling: { max_records: 20 } }\n",
        "  suppression: { limit: 10%, action: hold, max_hold: 1ms }\nwindow: { tumbling: { max_records: 20 } }\n",
        "  suppression: { limit: 10% }\nwindow: { tumbling: { max_records: 20 } }\n",
        "  suppression: { limit: 10% }\nwindow: { sliding: { size: 20, slide: 10 } }\n",
    ];
    for window in windows {
        let (third, manifests) = released(&pipeline(window), &alone(3, 90));
        // A neighbour of the same age and job, so that what is published is the same.
        let (other, others) = released(&pipeline(window), &alone(7, 90));
        assert_eq!(manifests, others, "{window}");
        assert_ne!(third.read("journal.jsonl"), other.read("journal.jsonl"), "operators are told: {window}");
    }
}

/// T23: a release that only accounts for records that were left out would be about a few people.
#[test]
fn a_manifest_is_about_rows_and_never_about_who_was_left_out() {
    let window =
        "  suppression: { limit: 10%, action: hold, max_hold: 1ms }\nwindow: { tumbling: { max_records: 20 } }\n";
    let (desk, manifests) = released(&pipeline(window), &alone(3, 90));
    assert!(manifests.iter().all(|manifest| manifest["rows"].as_u64().unwrap() > 0));
    let journal: Vec<Value> =
        desk.read("journal.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let span = |entry: &Value| {
        let spans =
            entry["finished"].as_array().unwrap().iter().flat_map(|part| part["spans"].as_array().unwrap().clone());
        spans.map(|span| span[1].as_u64().unwrap() - span[0].as_u64().unwrap() + 1).sum::<u64>()
    };
    let held = journal.last().unwrap()["records_held"].as_u64().unwrap();
    assert_eq!(journal.iter().map(span).sum::<u64>() + held, 40, "every record once");
}

/// T26: the reader who knows everybody but one, and every figure, learns no value of a record that was left out.
#[test]
fn no_figure_moves_with_a_value_that_is_not_published() {
    let unknown =
        "  unknown_value: suppress\n  suppression: { limit: 30% }\nwindow: { tumbling: { max_records: 20 } }\n";
    let window = "  suppression: { limit: 30% }\nwindow: { tumbling: { max_records: 20 } }\n";
    for (window, ages) in [(window, [61, 90]), (unknown, [61, 90]), (unknown, [121, 350])] {
        let [one, other] = ages.map(|age| {
            let (desk, manifests) = released(&pipeline(window), &alone(3, age));
            (desk.read("out.jsonl"), manifests)
        });
        assert_eq!(one, other, "{ages:?} {window}");
    }
    let (_, manifests) = released(&pipeline(window), &jsonl(&people(40)));
    for loss in manifests.iter().flat_map(|manifest| manifest["losses"].as_array().unwrap()) {
        let value = loss["value"].as_f64().unwrap();
        let digits = format!("{value}").chars().filter(char::is_ascii_digit).collect::<String>();
        assert!(digits.trim_matches('0').len() <= 3, "{loss}");
    }
}

#[test]
fn the_loss_of_a_report_is_that_of_the_published_labels() {
    let desk = Desk::new();
    desk.write("in.csv", desk.run(&["generate", "--records", "2000", "--format", "csv", "--seed", "3"]).expect(0).out);
    desk.write("age.csv", (0..120).map(|age| format!("{age};of {};to {};*\n", age / 5, age / 20)).collect::<String>());
    desk.write("sex.csv", "male;*\nfemale;*\nother;*\n");
    for (recoding, limit) in [("full-domain", "5%"), ("subtree", "5%"), ("local", "0"), ("local", "5%")] {
        desk.write(
            "policy.yaml",
            format!(
                "policy:\n  quasi_identifiers:\n    - {{ name: age, hierarchy: {{ csv: age.csv }} }}\n    - {{ name: sex, hierarchy: {{ csv: \
                 sex.csv }} }}\n  privacy: [{{ k-anonymity: 20 }}]\n  recoding: {recoding}\n  suppression: {{ limit: {limit} }}\n"
            ),
        );
        desk.run(&["anonymize", "-c", "policy.yaml", "in.csv", "-o", "out.csv", "--report", "report.json"]).expect(0);
        let report: Value = serde_json::from_str(&desk.read("report.json")).unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/audit/glm.py");
        let mut counted = std::process::Command::new("python3");
        counted.args([script, "--read", "2000"]);
        for name in ["age", "sex"] {
            counted.args(["--hierarchy".into(), format!("{name}={}", desk.path(&format!("{name}.csv")).display())]);
        }
        let counted = counted.arg(desk.path("out.csv")).output().unwrap();
        let counted: Value = serde_json::from_slice(&counted.stdout).unwrap();
        assert_eq!(counted["published"], report["records_published"]);
        let (told, counted) = (report["loss"]["glm"].as_f64().unwrap(), counted["glm"].as_f64().unwrap());
        assert!((told - counted).abs() < 0.001 && counted > 0.0, "{recoding}: {told}, and {counted} by the labels");
    }
}
