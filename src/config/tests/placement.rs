//! Fields that inputs have elsewhere, topics by pattern, and arrays that hold records.

use super::*;

/// A pipeline from the topics on line 8, of a policy that names an element's field and a subject.
fn topics(topics: &str, more: &str) -> String {
    format!(
        "policy:\n  quasi_identifiers:\n    - {{ name: age, hierarchy: {{ prefix: {{ length: 2 }} }} }}\n    - {{ name: items.sku, hierarchy: \
         trivial }}\n  subject: id\n  privacy: [{{ k-anonymity: 5 }}]\nsource:\n  kafka: {{ brokers: 'localhost:9092', group: veil, \
         topics: {topics}{more} }}\nsink: {{ kafka: {{ topic: safe }} }}\n"
    )
}

#[test]
fn topics_have_fields_of_their_own_and_names_with_stars() {
    let yaml = topics("[people, 'shop.*', { name: kunden, fields: { age: person.alter } }]", ", explode: items");
    let config = load(&yaml).unwrap();
    let array = |schema: &crate::model::schema::Schema| schema.array.as_ref().map(|array| array.to_string());
    assert_eq!(array(&config.policy.schema).as_deref(), Some("items"), "commands read files alike");
    let SourceConfig::Kafka(kafka) = &config.source else { panic!("{:?}", config.source) };
    let topics: Vec<_> = kafka.topics.iter().map(|rule| (rule.name.as_str(), rule.placement)).collect();
    assert_eq!(topics, [("people", 0), ("shop.*", 0), ("kunden", 1)]);
    let placed = config.policy.schema.placed(&kafka.placements[1]);
    let paths: Vec<_> = placed.attributes().iter().map(|a| a.path.to_string()).collect();
    assert_eq!(paths, ["person.alter", "items.sku", "id"]);
    assert_eq!(array(&placed).as_deref(), Some("items"));
}

#[test]
fn what_is_read_is_part_of_the_fingerprint() {
    let print = |yaml: &str| load(yaml).unwrap().policy.fingerprint;
    let plain = print(&topics("[people]", ""));
    assert_eq!(plain, print(&topics("[people, { name: others }]", "")), "topics are not");
    let placed = print(&topics("[people, { name: others, fields: { age: alter } }]", ""));
    assert_ne!(placed, plain);
    assert_ne!(placed, print(&topics("[people, { name: others, fields: { age: jahre } }]", "")));
    assert_ne!(plain, print(&topics("[people]", ", explode: items")));
}

#[test]
fn placements_make_sense() {
    let bad = |of: &str, words: &str| one(&topics(of, ""), 8, words);
    bad("[{ name: a, fields: { agee: alter } }]", "did you mean `age`?");
    bad("[{ name: a, fields: { age: a..b } }]", "empty name");
    bad("[{ name: a, fields: { age: id } }]", "`age` and `id` are in the same place");
    bad("[{ name: a, fields: { age: id.x } }]", "in the same place");
    bad("[{ name: a, explode: rows }]", "no field of the policy is in an element of `rows`");
    bad("[{ name: a, explode: items.sku }]", "`items.sku` is the array itself");
    bad("[a, { name: a }]", "listed twice");
    bad("['a b*']", "is no topic name");
    let outputs = problems(&topics("['sa*']", ""));
    assert!(outputs.len() == 4 && outputs.iter().all(|p| p.contains("which the source reads")), "{outputs:#?}");
}

#[test]
fn arrays_are_taken_apart_where_a_message_has_one_outcome() {
    let bad =
        |more: &str, line: usize, words: &str| one(&topics("[a]", &format!(", explode: items{more}")), line, words);
    bad(", envelope: debezium", 8, "does not go with `envelope`");
    let with = |from: &str, to: &str| topics("[a]", ", explode: items").replace(from, to);
    one(&with("  subject: id\n", ""), 7, "name the field that identifies the person");
    one(&with("  subject", "  suppression: { action: hold }\n  subject"), 9, "write `action: drop`");
    one(
        &with("source:", "window: { sliding: { size: 100, slide: 10 } }\nsource:"),
        9,
        "does not go with a sliding window",
    );
    let sequential = "  sensitive: [{ name: job }]\n  sequential: { releases: 2, candidates: 2 }\n  subject";
    one(&with("  subject", sequential), 10, "does not go with `sequential`");
    let file = |more: &str| {
        let yaml = topics("[a]", "").replace("sink: { kafka: { topic: safe } }\n", "");
        let (policy, _) = yaml.split_once("source:").unwrap();
        format!("{policy}source: {{ file: {{ path: a.csv{more} }} }}\n")
    };
    one(&file(", explode: items"), 7, "a CSV file has no arrays");
    let config = load(&file(", fields: { age: ALTER }")).unwrap();
    assert_eq!(config.policy.schema.attributes()[0].path.to_string(), "ALTER");
}
