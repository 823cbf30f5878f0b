//! Variables, secrets, bytes and line ends of a file, and the fingerprint of its policy.

use super::*;

#[test]
fn hierarchy_problems_name_their_own_lines() {
    let problems = problems(&policy("").replace("country.csv", "bad.csv"));
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].starts_with("hierarchies/bad.csv:2: ") && problems[1].starts_with("hierarchies/bad.csv:3: "));
    let intervals = "policy:\n  quasi_identifiers:\n    - name: a\n      hierarchy:\n        intervals:\n          min: 9\n          max: \
                     1\n          widths:\n            - 2\n            - 3\n  privacy: [{ k-anonymity: 2 }]\n";
    let lines: Vec<String> = self::problems(intervals).iter().map(|p| p[..p.find(": ").unwrap()].to_owned()).collect();
    assert_eq!(lines, ["c.yaml:6", "c.yaml:8"]);
}

#[test]
fn variables_are_typed_where_they_stand() {
    let yaml = policy("search: { time_budget: '${BUDGET}', seed: '${FIVE}' }\n")
        .replace("k-anonymity: 5", "k-anonymity: '${FIVE}'");
    let config = load(&yaml).unwrap();
    assert_eq!((config.seed, config.choice.time_budget), (Some(5), Duration::from_secs(1)));
    assert_eq!(config.policy.k(), K(5));
    one(&policy("search: { seed: ${FIVE} }\n"), 7, "in quotes");
}

#[test]
fn secrets_are_never_shown() {
    // In every place where a value can be wrong.
    let wrong = [
        policy(
            "search: { algorithm: '${SECRET}', time_budget: '${SECRET}', seed: '${SECRET}', keep_within: '${SECRET}' }\n",
        ),
        policy("sink: { file: { path: '${SECRET}' } }\n"),
        policy(
            "source: '${SECRET}'\nhttp: { listen: '${SECRET}' }\nlimits: { memory: '${SECRET}' }\nwindow: '${SECRET}'\n",
        ),
        policy("  keep: ['${SECRET}', '${SECRET}']\n  subject: '${SECRET}'\n  loss: ${SECRET}\n"),
        policy("  keep: [{ name: '${SECRET}' }, '${SECRET}', { name: '${SECRET}', reviewed: '${SECRET}' }]\n"),
        policy("")
            .replace("hierarchies/country.csv", "'${SECRET}.csv'")
            .replace("k-anonymity: 5", "k-anonymity: '${SECRET}'"),
        policy("")
            .replace("length: 2", "length: 0, mask: '${SECRET}'")
            .replace("k-anonymity: 5", "l-diversity: { field: '${SECRET}', l: 2 }"),
        policy("").replace("prefix: { length: 2 }", "date: { units: [day], format: '${SECRET}', min: '${SECRET}' }"),
        policy("").replace("prefix: { length: 2 }", "date: { units: [day], format: '%Q${SECRET}' }"),
        policy("").replace("prefix: { length: 2 }", "tree: [{ label: '${SECRET}' }, { label: '${SECRET}' }]"),
        policy("http:\n  listen: 0.0.0.0:1\n  token: [tr0ub4dor]\n"),
        policy("http:\n  token: { tr0ub4: dor }\n"),
        policy("window: { levels: fixed, fixed_levels: { age: 1 } }\n").replace("name: country", "name: '${SECRET}'"),
    ];
    for yaml in wrong {
        let problems = problems(&yaml);
        assert!(!problems.iter().any(|p| p.contains(SECRET) || p.contains("tr0ub")), "{problems:#?}");
    }
    let config = load(&policy("http: { token: '${SECRET}' }\n")).unwrap();
    assert!(!format!("{config:?}{config:#?}").contains(SECRET));
}

#[test]
fn structure_and_sense_are_told_together() {
    let yaml = "policy:\n  quasi_identifiers:\n    - { name: a, hierarchy: trivial, max_level: 7, colour: red }\n    - { hierarchy: \
                trivial }\n  privacy:\n    - { k-anonymity: 60000 }\n  supression: {}\nhttp: { listen: '0.0.0.0:1' }\nsink: { fille: \
                {} }\n";
    let lines: Vec<String> = problems(yaml).iter().map(|p| p[..p.find(": ").unwrap()].to_owned()).collect();
    assert_eq!(lines, ["c.yaml:3", "c.yaml:3", "c.yaml:4", "c.yaml:6", "c.yaml:7", "c.yaml:8", "c.yaml:9"]);
}

#[test]
fn what_was_unusable_causes_no_second_message() {
    // `sensitive` is misspelt, so that its field cannot be known.
    one(
        &policy("")
            .replace("  sensitive:", "  sensitve:")
            .replace("k-anonymity: 5", "l-diversity: { field: job, l: 2 }"),
        5,
        "did you mean `sensitive`?",
    );
    one(&policy("").replace("prefix: { length: 2 }", "date: [dya]"), 3, "did you mean `day`?");
    one(&policy("").replace("privacy:", "privcy:"), 6, "did you mean `privacy`?");
    one(
        &policy("window: { tumbling: { max_records: many } }\n").replace("k-anonymity: 5", "k-anonymity: 60000"),
        7,
        "a whole number",
    );
}

#[test]
fn the_fingerprint_is_of_the_meaning() {
    let of = |yaml: &str| load(yaml).unwrap().policy.fingerprint;
    let base = policy("");
    assert_eq!(of(&base).len(), 32);
    let same = [
        format!("# a comment\n{base}"),
        policy("  loss: glm\n  suppression: { limit: 0% }\n"),
        policy("search: { seed: 9 }\nwindow: { tumbling: { size: 1h, event_time: { field: at } } }\n"),
        base.replace(
            "{ name: age, hierarchy: { prefix: { length: 2 } } }",
            "{ hierarchy: { prefix: { length: 2 } }, weight: 1.0, name: age }",
        ),
        base.replace("k-anonymity: 5", "k-anonymity: '${FIVE}'"),
    ];
    for yaml in same {
        assert_eq!(of(&yaml), of(&base), "{yaml}");
    }
    let other = [
        policy("  loss: dm\n"),
        policy("  keep: [x]\n"),
        policy("  subject: x\n"),
        policy("  null_value: top\n"),
        base.replace("k-anonymity: 5", "k-anonymity: 6"),
        base.replace("length: 2", "length: 3"),
        base.replace("length: 2 }", "length: 2, mask: '#' }"),
    ];
    for yaml in other {
        assert_ne!(of(&yaml), of(&base), "{yaml}");
    }
    let kept = |keep: &str| of(&policy(&format!("  keep: [{keep}]\n")));
    assert_eq!(kept("x"), kept("{ name: x, reviewed: false }"));
    assert_ne!(kept("x"), kept("{ name: x, reviewed: true }"));
    // Written once and for all: a change of this value makes old manifests strangers.
    assert_eq!(of(&base), "b39295b59fa9d5c303161d1321bc1919");
}

#[test]
fn hierarchy_bytes_are_in_the_fingerprint() {
    let dir = dir(policy("").as_bytes());
    let of = |csv: &str| {
        std::fs::write(dir.path().join("hierarchies/country.csv"), csv).unwrap();
        Config::load(&dir.path().join("c.yaml"), Purpose::Policy).unwrap().policy.fingerprint
    };
    let base = of(COUNTRY);
    assert_eq!(of(&format!("\u{feff}{}", COUNTRY.replace('\n', "\r\n"))), base);
    assert_ne!(of(&COUNTRY.replace("America", "Americas")), base);
}

#[test]
fn a_byte_order_mark_and_line_ends_do_not_matter() {
    let yaml = format!("\u{feff}{}search: {{ seed: x }}\n", policy("")).replace('\n', "\r\n");
    one(&yaml, 7, "a whole number");
}

#[test]
fn unreadable_files_are_told() {
    let gone = Config::load(Path::new("/nowhere/c.yaml"), Purpose::Policy).unwrap_err();
    assert!(gone.len() == 1 && gone[0].line.is_none(), "{gone:?}");
    one("", 1, "empty");
    one("policy:\n\tquasi_identifiers: []\n", 2, "tabs");
    let latin1 = load_bytes(b"policy:\n  keep: [\xe9]\n", Purpose::Policy).unwrap_err();
    assert_eq!(latin1, ["c.yaml:2: not UTF-8: save the file as UTF-8"]);
}

#[test]
fn garbage_is_refused_without_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let huge: Vec<u8> = (0..10_000_000).map(|_| next() as u8).collect();
    assert!(load_bytes(&huge, Purpose::Pipeline).is_err());
    let alphabet = b"{}[]:,-?&*!|>'\"%@`#\n \t$abc019.~<\\";
    for round in 0..200 {
        let text: Vec<u8> = (0..round * 20).map(|_| alphabet[next() as usize % alphabet.len()]).collect();
        assert!(load_bytes(&text, Purpose::Pipeline).is_err());
    }
    for piece in ["- ", "a: ", "[", "{", "? ", "\n", "'", "&a *a ", "a: 1\n", "|\n  "] {
        let large = piece.repeat(1_000_000 / piece.len());
        assert!(load_bytes(large.as_bytes(), Purpose::Pipeline).is_err());
    }
    // A good file with one byte changed is refused or read, never a panic.
    for at in 0..DESIGN.len() {
        let mut bytes = DESIGN.as_bytes().to_vec();
        bytes[at] = alphabet[next() as usize % alphabet.len()];
        let _ = load_bytes(&bytes, Purpose::Pipeline);
    }
}

#[test]
fn fields_are_named_by_path() {
    let yaml = |quasi: &str, keep: &str| {
        format!(
            "policy:\n  quasi_identifiers:\n    - {{ name: '{quasi}', hierarchy: {{ prefix: {{ length: 5 }} }} }}\n  \
             keep: [{keep}]\n  privacy: [{{ k-anonymity: 5 }}]\n"
        )
    };
    let config = load(&yaml("customer.address.zip", r#"'customer."a.b"'"#)).unwrap();
    let names = |slot: usize| config.policy.schema.attributes()[slot].path.names().to_vec();
    assert_eq!(names(0).iter().map(|n| &**n).collect::<Vec<_>>(), ["customer", "address", "zip"]);
    assert_eq!(names(1).iter().map(|n| &**n).collect::<Vec<_>>(), ["customer", "a.b"]);
    for (quasi, keep, message) in [
        ("a.b", "a", "c.yaml:4: `a.b` is a part of `a` (see line 3): name the parts or the whole, not both"),
        ("a", "a.b.c", "c.yaml:4: `a.b.c` is a part of `a` (see line 3): name the parts or the whole, not both"),
        ("a..b", "c", "c.yaml:3: the field `a..b` has an empty name: write one name, or names joined by single dots"),
        (r#""age""#, "c", r#"c.yaml:3: `\"age\"` needs no quotes: write `age`"#),
        (
            "a.b",
            r#"'"a.b"'"#,
            r#"c.yaml:4: `\"a.b\"` and `a.b` on line 3 are the same column of a flat file: name one of them"#,
        ),
    ] {
        assert_eq!(problems(&yaml(quasi, keep)), [message]);
    }
}

#[test]
fn an_envelope_needs_a_subject() {
    let yaml = |subject: &str| {
        policy(&format!(
            "{subject}source: {{ file: {{ path: in.jsonl, envelope: debezium }} }}\nsink: {{ stdio: {{}} }}\n"
        ))
    };
    let found = problems(&yaml(""));
    assert!(found.len() == 1 && found[0].contains("an update is one more record of the same person"), "{found:?}");
    let config = load(&yaml("  subject: id\n")).unwrap();
    assert_eq!(config.policy.schema.envelope, crate::model::schema::Envelope::Debezium);
}
