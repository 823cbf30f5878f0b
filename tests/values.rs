//! What counts as one value and as one person, whatever its spelling and type (T25); that the gate counts the text that is
//! written (T27); and that `verify` judges release by release.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "criteria/table.rs"]
#[allow(dead_code)]
mod criteria;
mod program;

use std::collections::{BTreeMap, BTreeSet};

use criteria::{Engine, fixture};
use program::{Desk, csv, people, policy};
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use veilstream::model::confidential::{Field, Formula, Sentence};
use veilstream::model::hierarchy::Hierarchy;
use veilstream::model::lattice::Node;
use veilstream::model::policy::{Criterion, Distance, Diversity, K, Policy};
use veilstream::model::record::Value;
use veilstream::model::release::manifest::rounded;
use veilstream::model::schema::Role;

/// Each line is one value or one person, as JSON.
const SPELLINGS: [&[&str]; 9] = [
    &[
        r#""Flu""#,
        r#""flu""#,
        r#""FLU ""#,
        r#""\t flu""#,
        r#""\uff46\uff4c\uff35""#,
        r#""fl\u00adu""#,
        r#""f\u200bl\u2060u\ufeff""#,
        r#""flu\ufe0f""#,
        r#""f\u034flu""#,
        r#""\u202eflu""#,
        r#""flu\udb40\udc41""#,
        r#""\u3164flu\uffa0""#,
        r#""flu\u00a0""#,
        r#""\u3000flu""#,
        r#""flu\u0007""#,
    ],
    &[
        "1",
        r#""1""#,
        "1.0",
        r#""01""#,
        r#""1.00""#,
        r#""1e0""#,
        r#""+1""#,
        r#""\uff11""#,
        r#"" 1""#,
        "10e-1",
        r#""1.""#,
    ],
    &["0.5", r#"".5""#, r#""0.50""#, "5e-1"],
    &["0", "-0", r#""-0.0""#, r#""000""#],
    &["true", r#""true""#, r#""TRUE""#, r#""True ""#],
    &[r#""Stra\u00dfe""#, r#""STRASSE""#, r#""strasse""#, r#""STRA\u1e9eE""#],
    &[r#""caf\u00e9""#, r#""cafe\u0301""#, r#""CAF\u00c9""#, r#""CAFE\u200d\u0301""#],
    &[r#""\ufb01n""#, r#""fin""#, r#""FIN""#],
    &[r#""heart attack""#, r#""Heart  attack""#, r#""heart\u00a0attack""#, r#""heart\tattack""#],
];

/// All of them say nothing.
const NOTHING: [&str; 7] = ["null", r#""""#, r#""  ""#, r#""\u200b""#, r#""\u3000""#, r#""\u00ad \ufeff""#, r#""\n""#];

/// A policy over a trivial `q` and a sensitive `s`, on which the criterion asks something.
fn over(privacy: &str, more: &str) -> String {
    format!(
        "policy:\n  quasi_identifiers: [{{ name: q, hierarchy: trivial }}]\n  sensitive: [{{ name: s }}]\n  privacy: [{privacy}]\n{more}"
    )
}

fn lines(name: &str, values: &[&str]) -> String {
    values
        .iter()
        .map(|value| format!("{{\"q\":\"x\",\"s\":\"y\",\"{name}\":{value}}}\n").replace("\"s\":\"y\",\"s\"", "\"s\""))
        .collect()
}

/// The exit code of `anonymize`.
fn anonymized(desk: &Desk, policy: &str, input: &str, output: &str) -> i32 {
    desk.write("policy.yaml", policy);
    desk.write("in.jsonl", input);
    desk.run(&["anonymize", "-c", "policy.yaml", "in.jsonl", "-o", output, "--report", "report.json"]).code
}

const DISTINCT: &str = "{ l-diversity: { field: s, l: 2 } }";

#[test]
fn spellings_of_one_value_are_not_diverse() {
    let desk = Desk::new();
    for spellings in SPELLINGS {
        let input = lines("s", spellings);
        assert_eq!(anonymized(&desk, &over(DISTINCT, ""), &input, "out.jsonl"), 1, "{spellings:?}");
        // Beside another value, and as they were written.
        let all = [spellings, &["\"cough\""]].concat();
        assert_eq!(anonymized(&desk, &over(DISTINCT, ""), &lines("s", &all), "out.jsonl"), 0, "{spellings:?}");
        let read = |value: &str| serde_json::from_str::<Json>(value).unwrap();
        let shown =
            |value: &Json| value.as_f64().map_or_else(|| value.to_string(), |number| (number + 0.0).to_string());
        let mut wrote: Vec<String> = desk.read("out.jsonl").lines().map(|line| shown(&read(line)["s"])).collect();
        let mut had: Vec<String> = all.iter().map(|value| shown(&read(value))).collect();
        wrote.sort();
        had.sort();
        assert_eq!(wrote, had);
    }
}

#[test]
fn spellings_of_one_person_are_one_person() {
    let desk = Desk::new();
    let policy = over("{ k-anonymity: 2 }", "  subject: who\n");
    for spellings in SPELLINGS {
        assert_eq!(anonymized(&desk, &policy, &lines("who", spellings), "out.jsonl"), 1, "{spellings:?}");
        let two = [spellings, &["\"somebody else\""]].concat();
        assert_eq!(anonymized(&desk, &policy, &lines("who", &two), "out.jsonl"), 0, "{spellings:?}");
    }
    // Whoever has no name is turned away, and makes nobody safe.
    let nobody = [&NOTHING[..], &["\"somebody\""]].concat();
    assert_eq!(anonymized(&desk, &policy, &lines("who", &nobody), "out.jsonl"), 1);
    let report: Json = serde_json::from_str(&desk.read("report.json")).unwrap();
    assert_eq!(report["records_rejected"], NOTHING.len());
}

#[test]
fn no_value_adds_no_diversity_and_falsifies_nothing() {
    let desk = Desk::new();
    let with = |more: &[&str]| lines("s", &[&NOTHING[..], more].concat());
    let sentence = "{ confidential: { sentences: [{ field: s, in: [HIV, Flu] }] } }";
    let conditional =
        "{ confidential: { sentences: [{ not: { field: s, equals: healthy }, when: { field: s, in: [hiv] } }] } }";
    for criterion in [
        DISTINCT,
        "{ l-diversity: { field: s, l: 1.1, variant: entropy } }",
        "{ l-diversity: { field: s, l: 2, variant: recursive, c: 50 } }",
        "{ p-sensitive: { field: s, p: 2 } }",
        sentence,
        conditional,
    ] {
        assert_eq!(anonymized(&desk, &over(criterion, ""), &with(&[]), "out.csv"), 1, "{criterion}");
        assert_eq!(anonymized(&desk, &over(criterion, ""), &with(&["\"hiv\""]), "out.csv"), 1, "{criterion}");
        assert_eq!(
            anonymized(&desk, &over(criterion, ""), &with(&["\"hiv\"", "\"HEALTHY\""]), "out.csv"),
            0,
            "{criterion}"
        );
    }
    // No value has no share, and those without one are in the class all the same.
    for criterion in ["{ alpha-k: { field: s, alpha: 0.2, k: 2 } }", "{ lkc: { l: 1, k: 2, c: 0.2 } }"] {
        assert_eq!(anonymized(&desk, &over(criterion, ""), &with(&["\"hiv\""]), "out.csv"), 0, "{criterion}");
        let spelled = with(&["\"hiv\"", "\"HIV\"", "\"hiv \""]);
        assert_eq!(anonymized(&desk, &over(criterion, ""), &spelled, "out.csv"), 1, "{criterion}");
    }
}

/// Sets tell each of their elements: what everybody in a class has is known of everybody in it.
#[test]
fn an_element_that_all_sets_have_is_no_secret() {
    let one = [r#"["hiv","flu"]"#, r#"["gout","HIV"]"#, r#"["hiv"]"#, r#"["hiv","asthma",7]"#];
    let none = [r#"["hiv","flu"]"#, r#""hiv""#, r#"["gout"]"#, "null"];
    let minds = "{ confidential: { sentences: [{ field: s, in: [hiv] }] } }";
    let distinct = "{ l-diversity: { field: s, l: 2 } }";
    let most = "{ alpha-k: { field: s, alpha: 0.6, k: 2 } }";
    let policies = [distinct, "{ p-sensitive: { field: s, p: 2 } }", minds, most, "{ lkc: { l: 1, k: 2, c: 0.6 } }"];
    for privacy in policies {
        let desk = Desk::new();
        for (name, values, exit) in [("one", &one, 1), ("none", &none, 0)] {
            assert_eq!(
                anonymized(&desk, &over(privacy, ""), &lines("s", values), &format!("{name}.jsonl")),
                exit,
                "{privacy}"
            );
        }
    }
    // One element alone is a set of it.
    let desk = Desk::new();
    assert_eq!(anonymized(&desk, &over(distinct, ""), &lines("s", &[r#"["flu"]"#, r#""Flu""#]), "out.jsonl"), 1);
}

#[test]
fn an_order_and_a_hierarchy_know_every_spelling() {
    let desk = Desk::new();
    let of = |distance: &str, hierarchy: &str| {
        over(&format!("{{ t-closeness: {{ field: s, t: 0.5, {distance} }} }}"), "")
            .replace("{ name: s }", &format!("{{ name: s{hierarchy} }}"))
    };
    let tree = ", hierarchy: { tree: { label: any, children: [{ label: Lungs, children: [{ label: Flu }, { label: Cold }] }, { label: Head, children: [{ label: Migraine }] }] } }";
    let policies = [
        (of("distance: ordered, order: [Cold, Flu, Migraine]", ""), r#""FLU ""#),
        (of("distance: hierarchical", tree), r#""\uff46lu""#),
        (of("distance: ordered", ""), r#"" 07.0""#),
        (of("distance: hierarchical", ", hierarchy: { prefix: { length: 2 } }"), r#""07 ""#),
    ];
    for (policy, spelled) in policies {
        let known: &[&str] = if spelled.contains('7') { &["\"07\"", "\"08\""] } else { &["\"flu\"", "\"COLD\""] };
        let all = [known, &[spelled]].concat();
        assert_eq!(anonymized(&desk, &policy, &lines("s", &all), "out.csv"), 0, "{policy}");
        // No value has no place, so the class is infinitely far.
        let without = [known, &["null"]].concat();
        assert_eq!(anonymized(&desk, &policy, &lines("s", &without), "out.csv"), 1, "{policy}");
    }
    // By the equal distance it is one more outcome: a class of it alone is not close to a release with values.
    let equal = of("distance: equal", "")
        .replace("{ name: q, hierarchy: trivial }", "{ name: q, hierarchy: trivial, max_level: 0 }");
    let mixed = lines("s", &["null", "\"\"", "\"flu\"", "\"flu\""]);
    assert_eq!(anonymized(&desk, &equal, &mixed, "out.csv"), 0);
    let apart = mixed.replace("\"q\":\"x\",\"s\":\"flu\"", "\"q\":\"y\",\"s\":\"flu\"");
    assert_eq!(anonymized(&desk, &equal.replace("0.5", "0.4"), &apart, "out.csv"), 1);
}

/// Values and labels that one format or the other writes alike, or nearly.
const MIXED: [&str; 24] = [
    "1",
    r#""1""#,
    "1.0",
    r#""01""#,
    r#""1.0""#,
    "null",
    r#""""#,
    r#"" ""#,
    r#""null""#,
    "true",
    r#""true""#,
    r#""TRUE""#,
    r#""a""#,
    r#""A""#,
    r#""a ""#,
    r#""\u00e9""#,
    r#""e\u0301""#,
    r#""a,b;c\td""#,
    r#""\"q\"""#,
    r#""x\ny""#,
    r#""x\r\ny""#,
    "12345678901234567890.5",
    "1e300",
    r#""*""#,
];

fn verified(desk: &Desk, output: &str) -> Json {
    desk.run(&["verify", "-c", "policy.yaml", output, "--json"]).expect(0).json()
}

#[test]
fn what_csv_writes_alike_the_gate_counts_alike() {
    let desk = Desk::new();
    for values in [&["1", r#""1""#][..], &["null", r#""""#, r#""x""#], &["true", r#""true""#]] {
        for output in ["out.csv", "out.jsonl", "out.avro"] {
            if anonymized(&desk, &over(DISTINCT, ""), &lines("s", values), output) == 0 {
                verified(&desk, output);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is published passes `verify` in every format, in the same classes.
    #[test]
    fn verify_accepts_what_was_published_in_every_format(
        records in prop::collection::vec((0..MIXED.len(), 0..MIXED.len()), 4..40), criterion in 0usize..7,
    ) {
        let criterion = [
            "{ k-anonymity: 2 }",
            DISTINCT,
            "{ l-diversity: { field: s, l: 1.8, variant: entropy } }",
            "{ p-sensitive: { field: s, p: 2 } }",
            "{ alpha-k: { field: s, alpha: 0.6, k: 2 } }",
            "{ t-closeness: { field: s, t: 0.4 } }",
            "{ confidential: { sentences: [{ field: s, equals: 1 }, { not: { field: s, equals: a } }] } }",
        ][criterion];
        let policy = over(criterion, "  suppression: { limit: 60% }\n  null_value: suppress\n");
        let text = |(q, s): &(usize, usize)| format!("{{\"q\":{},\"s\":{}}}\n", MIXED[*q], MIXED[*s]);
        let input: String = records.iter().map(text).collect();
        let desk = Desk::new();
        let mut classes = BTreeSet::new();
        for output in ["out.csv", "out.tsv", "out.jsonl", "out.avro"] {
            if anonymized(&desk, &policy, &input, output) == 0 {
                let verdict = verified(&desk, output);
                classes.insert((verdict["classes"].to_string(), verdict["k_achieved"].to_string(), verdict["records"].to_string()));
                let report: Json = serde_json::from_str(&desk.read("report.json")).unwrap();
                prop_assert_eq!(&report["k_achieved"], &verdict["k_achieved"]);
            }
        }
        prop_assert!(classes.len() <= 1, "{:?}", classes);
    }
}

/// Spellings of five values and of none, each with what it counts as.
const SPELLED: [(&str, usize); 14] = [
    ("Flu", 1),
    ("flu ", 1),
    ("ｆＬＵ", 1),
    ("HIV", 2),
    ("h\u{200c}iv", 2),
    ("7", 3),
    ("07.0", 3),
    ("Maß", 4),
    ("MASS", 4),
    ("é", 5),
    ("E\u{301}", 5),
    ("", 0),
    (" \u{feff}", 0),
    ("\u{ad}", 0),
];

fn spelled(at: usize) -> Value<'static> {
    match SPELLED[at] {
        ("7", _) => Value::Number("7".into()),
        ("", _) => Value::Null,
        (text, _) => Value::Text(text.into()),
    }
}

fn spelled_policy(criteria: Vec<Criterion>) -> Policy {
    let others = [("s", Role::Sensitive), ("who", Role::Subject)];
    Policy { criteria, ..fixture::policy(vec![("q", Hierarchy::trivial())], &others, 1) }
}

/// What the value and the person of a record count as.
type Member = (usize, usize);

proptest! {
    /// The slow twin knows by number what each text counts as; the gate has to find out.
    #[test]
    fn the_gate_counts_values_and_people_by_what_their_texts_mean(
        records in prop::collection::vec((0u8..3, 0..SPELLED.len(), 0usize..11), 1..40),
    ) {
        let any = |values: &[&str]| Formula::In(Field::Sensitive(0), values.iter().map(|v| (*v).to_owned()).collect());
        let sentence = Sentence { name: "ill".into(), says: any(&["FLU", "hiv"]), when: None, damage: 1.0, prior: None };
        let policy = spelled_policy(vec![
            Criterion::KAnonymity(K(1)),
            Criterion::LDiversity { field: 0, l: 0.0, variant: Diversity::Distinct },
            Criterion::PSensitive { field: 0, p: 0 },
            Criterion::AlphaK { field: 0, alpha: 1.0, k: K(1) },
            Criterion::TCloseness { field: 0, t: 1.0, distance: Distance::Equal },
            Criterion::MinSecurity(0.0),
            Criterion::Confidential(vec![sentence]),
        ]);
        // People are spelled as the values are.
        let record = |&(q, s, who): &(u8, usize, usize)| {
            vec![Value::Text(q.to_string().into()), spelled(s), spelled(who)]
        };
        let engine = Engine::new(policy, records.iter().map(record));
        let mut classes: BTreeMap<u8, Vec<Member>> = BTreeMap::new();
        for &(q, s, who) in &records {
            classes.entry(q).or_default().push((SPELLED[s].1, SPELLED[who].1));
        }
        let people = |class: &[Member]| class.iter().map(|(_, who)| *who).collect::<BTreeSet<_>>().len();
        let has = |class: &[Member], value: usize| {
            class.iter().filter(|(s, _)| *s == value).map(|(_, who)| *who).collect::<BTreeSet<_>>().len()
        };
        let distinct = |class: &[Member]| class.iter().map(|(s, _)| *s).filter(|s| *s > 0).collect::<BTreeSet<_>>().len();
        let follows = |class: &Vec<Member>| class.iter().all(|(s, _)| *s <= 2);
        let all: Vec<usize> = (0..records.len()).collect();
        let release = match engine.release(&Node::new([0]), &all) {
            Ok(release) => release,
            Err(refusal) => {
                prop_assert_eq!(&refusal.criterion, "confidential");
                prop_assert!(classes.values().any(follows));
                return Ok(());
            }
        };
        prop_assert!(!classes.values().any(follows));
        let manifest = release.manifest();
        let achieved = |name: &str| {
            manifest.criteria.iter().find(|c| c.criterion.contains(name)).and_then(|c| c.achieved).expect("counted")
        };
        let least = |of: &dyn Fn(&[Member]) -> usize| classes.values().map(|class| of(class)).min().unwrap_or(0);
        prop_assert_eq!(manifest.k_achieved, Some(least(&people) as u32));
        prop_assert_eq!(achieved("l-diversity"), least(&distinct) as f64);
        prop_assert_eq!(achieved("p-sensitive"), least(&distinct) as f64);
        let share = |class: &Vec<Member>| {
            (1..=5).map(|value| has(class, value)).max().unwrap_or(0) as f64 / people(class) as f64
        };
        prop_assert_eq!(achieved("s/alpha"), rounded(classes.values().map(share).fold(0.0, f64::max)));
        // No value is one outcome of the distribution.
        let everybody: Vec<Member> = classes.values().flatten().copied().collect();
        let shares = |class: &[Member]| {
            let counts: Vec<f64> = (0..=5).map(|value| has(class, value) as f64).collect();
            let total: f64 = counts.iter().sum();
            counts.into_iter().map(|count| count / total).collect::<Vec<f64>>()
        };
        let moved = |class: &Vec<Member>| {
            shares(class).iter().zip(shares(&everybody)).map(|(c, r)| (c - r).max(0.0)).sum::<f64>()
        };
        let most = classes.values().map(moved).fold(0.0, f64::max);
        prop_assert!((achieved("t-closeness") - most).abs() < 0.005 * most + 1e-9, "three digits");
    }
}

const PER_RELEASE: &str = "policy:
  quasi_identifiers: [{ name: age, hierarchy: trivial }]
  sensitive: [{ name: job }]
  privacy: [{ k-anonymity: 5 }, { l-diversity: { field: job, l: 2 } }]
";

/// Three rows of the class `x` in each of two releases, and enough of others: together nothing is too small.
fn two_releases() -> (String, String) {
    let row = |age: &str, i: usize, release: &str| format!("{age},{},{release}\n", ["cook", "nurse"][i % 2]);
    let part = |release: &str, wide: &str| -> String {
        (0..3).map(|i| row("x", i, release)).chain((0..6).map(|i| row(wide, i, release))).collect()
    };
    let good: String = (0..5).map(|i| row("y", i, "r-2")).collect();
    let file = format!("age,job,release\n{}{good}{}", part("r-1", "y"), part("r-4", "z"));
    let line = |id: &str, rows: usize| json!({"release_id": id, "rows": rows, "more": 1}).to_string() + "\n";
    let manifest = [line("r-1", 9), line("r-2", 5), line("r-3", 0), line("r-4", 9)].concat();
    (file, manifest)
}

#[test]
fn verify_judges_release_by_release() {
    let desk = Desk::new();
    let (file, manifest) = two_releases();
    desk.write("policy.yaml", PER_RELEASE);
    desk.write("out.csv", &file);
    desk.write("out.manifests.jsonl", &manifest);
    let whole = desk.run(&["verify", "-c", "policy.yaml", "out.csv"]).expect(0);
    assert!(whole.out.contains("as one release"), "{}", whole.out);
    for more in [["--manifest", "out.manifests.jsonl"], ["--release-field", "release"]] {
        let arguments = [&["verify", "-c", "policy.yaml", "out.csv"][..], &more].concat();
        let left = desk.run(&arguments).expect(1);
        for said in ["2 of 3 releases", "r-1", "r-4", "age = x", "size: 3 records", "k-anonymity: 3"] {
            assert!(left.err.contains(said), "{said}: {}", left.err);
        }
        assert!(!left.err.contains("release r-2:") && !left.err.contains("r-3"), "{}", left.err);
        let json = desk.run(&[&arguments[..], &["--json"]].concat()).expect(1).json();
        assert_eq!((&json["satisfies"], &json["records"]), (&json!(false), &json!(23)), "{json}");
        let of =
            |key: &str| -> Vec<Json> { json["releases"].as_array().unwrap().iter().map(|r| r[key].clone()).collect() };
        assert_eq!(of("release_id"), ["r-1", "r-2", "r-4"]);
        assert_eq!(of("satisfies"), [false, true, false]);
        assert_eq!(of("records"), [9, 5, 9]);
        assert_eq!(json["releases"][0]["class"]["age"], "x", "{json}");
    }
    // Where all hold: one line for the whole, and the worst figure of each criterion.
    let kept: String = file.lines().filter(|line| !line.starts_with("x,")).map(|line| format!("{line}\n")).collect();
    desk.write("good.csv", kept);
    let good = desk.run(&["verify", "-c", "policy.yaml", "good.csv", "--release-field", "release"]).expect(0);
    for said in
        ["3 releases", "17 records", "the smallest of 5", "k-anonymity: 5, 5 required", "l-diversity/job/distinct: 2"]
    {
        assert!(good.out.contains(said), "{said}: {}", good.out);
    }
    let json =
        desk.run(&["verify", "-c", "policy.yaml", "good.csv", "--release-field", "release", "--json"]).expect(0).json();
    assert_eq!(
        (&json["satisfies"], &json["k_achieved"], &json["classes"]),
        (&json!(true), &json!(5), &json!(3)),
        "{json}"
    );
}

#[test]
fn a_manifest_of_another_file_is_an_error_that_says_so() {
    let desk = Desk::new();
    let (file, manifest) = two_releases();
    desk.write("policy.yaml", PER_RELEASE);
    desk.write("out.csv", &file);
    let verify = |manifest: &str| {
        desk.write("m.jsonl", manifest);
        desk.run(&["verify", "-c", "policy.yaml", "out.csv", "--manifest", "m.jsonl"]).expect(2).err
    };
    for wrong in [manifest.lines().take(3).collect::<Vec<_>>().join("\n"), format!("{manifest}{manifest}")] {
        let said = verify(&wrong);
        assert!(said.contains("23 records") && said.contains("rows in the manifest"), "{said}");
    }
    assert!(verify("{\"release_id\": \"x\"}\n").contains("line 1"));
    assert!(verify("not json\n").contains("line 1"));
    let both = ["verify", "-c", "policy.yaml", "out.csv", "--manifest", "m.jsonl", "--release-field", "release"];
    desk.run(&both).expect(2);
    let absent = desk.run(&["verify", "-c", "policy.yaml", "out.csv", "--release-field", "batch"]).expect(2);
    assert!(absent.err.contains("`batch`"), "{}", absent.err);
    desk.write("gap.csv", file.replacen(",r-1", ",", 1));
    let gap = desk.run(&["verify", "-c", "policy.yaml", "gap.csv", "--release-field", "release"]).expect(1);
    assert!(gap.err.contains("record 1 of gap.csv") && gap.err.contains("`release`"), "{}", gap.err);
}

#[test]
fn the_manifest_of_the_configuration_is_used_by_itself() {
    let desk = Desk::new();
    desk.write("in.csv", csv(',', &people(400)));
    let more = "source: { file: { path: in.csv } }
sink: { file: { path: out.jsonl, manifest: out.manifests.jsonl } }
window: { tumbling: { max_records: 100 } }
";
    desk.write("pipeline.yaml", policy(more));
    desk.run(&["run", "-c", "pipeline.yaml"]).expect(0);
    let left = desk.run(&["verify", "-c", "pipeline.yaml", "./out.jsonl"]).expect(0);
    assert!(left.out.contains("4 releases") && left.out.contains("400 records"), "{}", left.out);
    std::fs::rename(desk.path("out.jsonl"), desk.path("moved.jsonl")).unwrap();
    let moved = desk.run(&["verify", "-c", "pipeline.yaml", "moved.jsonl"]).expect(0);
    assert!(moved.out.contains("as one release"), "{}", moved.out);
}
