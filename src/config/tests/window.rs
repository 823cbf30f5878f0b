//! Which windows can be written, what must hold over several releases, and what does not go with them.

use super::*;
use crate::config::SinkConfig;
use crate::kafka::client::JournalConfig;
use crate::model::policy::Sequential;
use crate::window::DEFAULT_WARM_MEMORY;

fn sliding(text: &str) -> SlideRules {
    match load(&policy(&format!("window: {{ sliding: {text} }}\n"))).unwrap().windows {
        WindowRules::Sliding(rules) => rules,
        other => panic!("{other:?}"),
    }
}

#[test]
fn sliding_windows_are_in_records_or_in_time() {
    let warm_memory = DEFAULT_WARM_MEMORY;
    let records = SlideRules { size: 10_000, slide: 1000, time: None, max_hold: 10, warm_memory, changes: false };
    assert_eq!(sliding("{ size: 10000, slide: 1000 }"), records);
    assert_eq!(sliding("{ size: 10000, slide: 1000, max_hold: 2500 }"), SlideRules { max_hold: 3, ..records });
    let time = Some((Duration::from_secs(600), Duration::from_secs(60)));
    let expected = SlideRules { size: 50_000, slide: 5000, time, max_hold: 10, warm_memory, changes: false };
    assert_eq!(sliding("{ size: 10m, slide: 60s }"), expected);
    let rules = sliding("{ size: 10m, slide: 60s, max_hold: 1m, max_records: 2000 }");
    assert_eq!(rules, SlideRules { size: 2000, slide: 200, time, max_hold: 1, warm_memory, changes: false });
    let rules = sliding("{ size: 10000, slide: 1000 } }\nsearch: { warm_memory: 1MiB");
    assert_eq!(rules.warm_memory, 1 << 20);
}

#[test]
fn sliding_windows_that_make_no_sense_are_refused() {
    let sliding = |text: &str| policy(&format!("window: {{ sliding: {text} }}\n"));
    one(&sliding("{ size: 1000, slide: 10s }"), 7, "different units");
    one(&sliding("{ size: 1000, slide: 10, max_hold: 1m }"), 7, "different units");
    one(&sliding("{ size: 1000, slide: 1001 }"), 7, "longer than `size`");
    one(&sliding("{ size: 1m, slide: 2m }"), 7, "longer than `size`");
    one(&sliding("{ size: 0, slide: 1 }"), 7, "1 record or more");
    one(&sliding("{ size: 1m, slide: 0s }"), 7, "longer than zero");
    one(&sliding("{ size: some, slide: 1 }"), 7, "a number of records such as 10000");
    one(&sliding("{ size: 1000 }"), 7, "`slide`");
    one(&sliding("{ size: 1000, slide: 10, max_records: 5 }"), 7, "remove it");
    one(&sliding("{ size: 4, slide: 2 }"), 6, "can never be reached");
    one(&policy("window: { tumbling: { max_age: 1s }, sliding: { size: 10, slide: 5 } }\n"), 7, "keep one");
}

#[test]
fn what_does_not_go_with_a_sliding_window_is_refused() {
    let window = "window: { sliding: { size: 1000, slide: 100 } }\n";
    one(&policy(&format!("  suppression: {{ action: hold }}\n{window}")), 7, "`action: drop`");
    one(&policy(&format!("  render: microaggregate\n{window}")), 7, "tell the values");
    one(&policy(window).replace("{ name: country,", "{ name: country, render: mode,"), 4, "tell the values");
    let kafka = "source: { kafka: { brokers: 'localhost:9092', topic: people, group: veil } }\nsink: { kafka: { topic: safe } }\n";
    let SinkConfig::Kafka(sink) = load(&policy(&format!("{window}{kafka}"))).unwrap().sink else {
        panic!("another sink")
    };
    assert_eq!(sink.journal, Some(JournalConfig { topic: "safe-journal".into(), releases: Some(0) }));
}

#[test]
fn changes_are_published_where_parts_can_be_judged_by_themselves() {
    let window = "window: { sliding: { size: 1000, slide: 100, publish: changes } }\n";
    assert!(sliding("{ size: 1000, slide: 100, publish: changes }").changes);
    assert!(!sliding("{ size: 1000, slide: 100 }").changes);
    let built = load(&policy(&format!("  keep: [{{ name: score, reviewed: true }}]\n{window}"))).unwrap().policy;
    assert!(built.schema.added.change && built.schema.with_added().slot("change").is_some());
    one(&policy(&format!("  keep: [score]\n{window}")), 8, "`{ name: NAME, reviewed: true }`");
    one(
        &policy(&format!("  render: interval\n{window}"))
            .replace("prefix: { length: 2 }", "intervals: { widths: [5], min: 0, max: 99 }"),
        8,
        "`render: label`",
    );
    let closeness =
        policy(window).replace("[{ k-anonymity: 5 }]", "[{ k-anonymity: 5 }, { t-closeness: { field: job, t: 0.3 } }]");
    one(&closeness, 7, "judged by everything that is published");
    one(&policy(window).replace("{ name: country,", "{ name: change,"), 2, "add a field `change`");
}

#[test]
fn rows_have_levels_where_labels_have_one() {
    let with = |hierarchy: &str| policy("  row_levels: true\n").replace("prefix: { length: 2 }", hierarchy);
    let built = load(&with("prefix: { length: 2 }")).unwrap().policy;
    assert!(built.schema.added.levels && built.schema.with_added().slot("age_level").is_some());
    assert_ne!(built.fingerprint, load(&policy("")).unwrap().policy.fingerprint);
    // A label that stays the same on the next level has the coarser one; one on two branches has none.
    let tree = |third: &str| {
        format!(
            "tree: {{ label: any, children: [{{ label: b, children: [{{ label: b }}] }}, {{ label: c, children: \
             [{{ label: {third} }}, {{ label: d }}] }}] }}"
        )
    };
    assert!(load(&with(&tree("e"))).is_ok());
    one(&with(&tree("any")), 7, "on level");
    one(
        &with("prefix: { length: 2 }").replace("row_levels: true", "row_levels: true\n  keep: [age_level]"),
        7,
        "add a field `age_level`",
    );
    let intervals = with("intervals: { widths: [5], min: 0, max: 99 }");
    one(&intervals.replace("row_levels: true", "row_levels: true\n  render: interval"), 7, "`render: label`");
}

#[test]
fn sequential_needs_somebody_and_something() {
    let with = |sequential: &str| policy(&format!("  subject: id\n  sequential: {sequential}\n"));
    let built = load(&with("{ releases: 3, candidates: 2 }")).unwrap().policy;
    let most = Sequential::MAX_SUBJECTS;
    assert_eq!(built.sequential, Some(Sequential { releases: 3, candidates: 2, field: 0, max_subjects: most }));
    let plain = load(&policy("  subject: id\n")).unwrap().policy;
    assert_ne!(built.fingerprint, plain.fingerprint);
    let built = load(&with("{ releases: 3, candidates: 2, field: job, max_subjects: 9 }")).unwrap().policy;
    assert_eq!(built.sequential.unwrap().max_subjects, 9);
    let limited = |bytes: &str| format!("{}limits: {{ memory: {bytes} }}\n", with("{ releases: 3, candidates: 2 }"));
    one(&limited("64MiB"), 9, "`max_subjects: 524288`");
    assert!(load(&limited("128MiB")).is_ok(), "they take a quarter of it");
    one(&with("{ releases: 1, candidates: 2 }"), 8, "out of range");
    one(&with("{ releases: 3, candidates: 1 }"), 8, "2 or more");
    one(&with("{ releases: 3, candidates: 2, field: jop }"), 8, "did you mean `job`?");
    one(&policy("  sequential: { releases: 3, candidates: 2 }\n"), 7, "under `subject`");
    let none = with("{ releases: 3, candidates: 2 }").replace("  sensitive: [{ name: job }]\n", "");
    one(&none, 7, "name one under `sensitive`");
    let two = with("{ releases: 3, candidates: 2 }").replace("{ name: job }", "{ name: job }, { name: pay }");
    one(&two, 8, "add `field`");
    let more = with("{ releases: 3, candidates: 2 }");
    one(&format!("{more}window: {{ sliding: {{ size: 1000, slide: 100 }} }}\n"), 8, "in which everybody returns");
    let kafka = "source: { kafka: { brokers: 'localhost:9092', topic: people, group: veil } }\nsink: { kafka: { topic: safe } }\n";
    let journal = |text: String| match load(&text).unwrap().sink {
        SinkConfig::Kafka(sink) => sink.journal,
        _ => panic!("another sink"),
    };
    let expected = JournalConfig { topic: "safe-journal".into(), releases: Some(2) };
    assert_eq!(journal(format!("{more}{kafka}")), Some(expected.clone()));
    let named = kafka.replace("topic: safe", "topic: safe, journal: j");
    assert_eq!(journal(format!("{more}{named}")), Some(JournalConfig { topic: "j".into(), ..expected }));
    let for_operators = JournalConfig { releases: None, ..expected.clone() };
    assert_eq!(journal(policy(kafka)), Some(for_operators));
    assert_eq!(journal(policy(&kafka.replace("topic: safe", "topic: safe, journal: none"))), None);
    one(&format!("{more}{}", named.replace("journal: j", "journal: none")), 10, "without the journal");
    one(&format!("{more}{}", named.replace("journal: j", "journal: safe")), 10, "the same topic as `topic`");
}

#[test]
fn windows_are_of_an_instance_or_of_a_partition() {
    let scope = |text: &str| load(&policy(text)).unwrap().scope;
    assert_eq!(scope(""), Scope::Instance);
    assert_eq!(scope("window: { scope: instance }\n"), Scope::Instance);
    assert_eq!(scope("window: { scope: partition, tumbling: { max_age: 1s } }\n"), Scope::Partition);
    one(&policy("window: { scope: topic }\n"), 7, "`partition`");
}
