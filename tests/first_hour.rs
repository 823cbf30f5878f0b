//! The first hour as a user spends it: `profile`, `init`, `explain`, `test`, and the examples in `deploy/examples`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod program;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use program::Desk;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::Value;
use veilstream::codec::avro::{AvroEncoder, OutputSchema, parse_schema};
use veilstream::codec::{Encode as _, PublishedRow};
use veilstream::model::schema::{Role, Schema};

type Table = (Vec<&'static str>, Vec<Vec<String>>);

fn csv(table: &Table, delimiter: &str) -> String {
    let mut text = table.0.join(delimiter) + "\n";
    table.1.iter().for_each(|row| text.push_str(&(row.join(delimiter) + "\n")));
    text
}

/// One of the values, the first ones more often.
fn one(rng: &mut StdRng, values: &[&str]) -> String {
    let place = rng.random_range(0..values.len()).min(rng.random_range(0..values.len()));
    values[place].to_owned()
}

fn day(rng: &mut StdRng, from: i32, to: i32) -> String {
    format!("{}-{:02}-{:02}", rng.random_range(from..to), rng.random_range(1..13), rng.random_range(1..29))
}

const CITIES: [&str; 12] =
    ["Berlin", "Hamburg", "Munich", "Cologne", "Leipzig", "Dresden", "Bremen", "Essen", "Kiel", "Mainz", "Ulm", "Jena"];

fn orders(rows: usize) -> Table {
    let mut rng = StdRng::seed_from_u64(1);
    let row = |i: usize| {
        let customer = rng.random_range(0..rows / 3);
        vec![
            format!("o-{i:06}"),
            format!("c{customer:05}"),
            format!("c{customer}@shop.example"),
            format!("{:05}", 10_000 + 100 * rng.random_range(0..40) + rng.random_range(0..20)),
            one(&mut rng, &CITIES),
            one(&mut rng, &["DE", "AT", "CH", "FR", "NL"]),
            rng.random_range(18..80).to_string(),
            day(&mut rng, 2023, 2025),
            one(&mut rng, &["books", "shoes", "games", "garden"]),
            rng.random_range(1..5).to_string(),
        ]
    };
    let names =
        vec!["order_id", "customer_id", "email", "zip", "city", "country", "age", "ordered_at", "category", "quantity"];
    (names, (0..rows).map(row).collect())
}

fn patients(rows: usize) -> Table {
    let mut rng = StdRng::seed_from_u64(2);
    let row = |i: usize| {
        vec![
            format!("p{i:05}"),
            format!("Name{i} Surname{i}"),
            day(&mut rng, 1930, 2010),
            one(&mut rng, &["f", "m", "x"]),
            format!("{:05}", 20_000 + rng.random_range(0..60) * 10),
            day(&mut rng, 2024, 2025),
            one(&mut rng, &["cardiology", "surgery", "oncology", "neurology", "psychiatry", "dermatology"]),
            one(&mut rng, &["I10", "E11", "J45", "F32", "K21", "M54", "C50"]),
        ]
    };
    let names = vec!["patient_id", "full_name", "birth_date", "sex", "zipcode", "admission_date", "ward", "diagnosis"];
    (names, (0..rows).map(row).collect())
}

fn clicks(rows: usize) -> Table {
    let mut rng = StdRng::seed_from_u64(3);
    let row = |_| {
        let visitor = rng.random_range(0..rows / 4);
        vec![
            format!("{visitor:08x}"),
            format!(
                "2024-05-{:02}T{:02}:{:02}:00Z",
                rng.random_range(1..29),
                rng.random_range(0..24),
                rng.random_range(0..60)
            ),
            one(&mut rng, &["Firefox", "Chrome", "Safari", "Edge", "Opera"]),
            one(&mut rng, &["Windows", "Android", "iOS", "macOS", "Linux"]),
            one(&mut rng, &["de-DE", "en-US", "fr-FR", "it-IT"]),
            one(&mut rng, &["DE", "FR", "IT", "US"]),
            one(&mut rng, &["home", "search", "cart", "checkout"]),
        ]
    };
    let names = vec!["visitor_id", "timestamp", "browser", "os", "language", "country", "page"];
    (names, (0..rows).map(row).collect())
}

/// Distinction and separation by their definitions: every pair of rows is looked at.
fn by_definition(rows: &[Vec<String>], fields: &[usize]) -> (f64, f64) {
    let keys: Vec<Vec<&str>> =
        rows.iter().map(|row| fields.iter().map(|field| row[*field].as_str()).collect()).collect();
    let distinct: BTreeSet<&Vec<&str>> = keys.iter().collect();
    let (mut differ, mut pairs) = (0u64, 0u64);
    for (i, a) in keys.iter().enumerate() {
        for b in &keys[i + 1..] {
            pairs += 1;
            differ += u64::from(a != b);
        }
    }
    (distinct.len() as f64 / rows.len() as f64, differ as f64 / pairs as f64)
}

/// The same from the sizes of the groups, for tables with too many pairs to look at.
fn by_groups(rows: &[Vec<String>], fields: &[usize]) -> (f64, f64) {
    let mut groups: HashMap<Vec<&str>, u64> = HashMap::new();
    rows.iter().for_each(|row| *groups.entry(fields.iter().map(|f| row[*f].as_str()).collect()).or_default() += 1);
    let n = rows.len() as u64;
    let alike: u64 = groups.values().map(|size| size * (size - 1)).sum();
    (groups.len() as f64 / n as f64, 1.0 - alike as f64 / (n * (n - 1)) as f64)
}

/// Distinction and separation of some columns of a table.
type Count = fn(&[Vec<String>], &[usize]) -> (f64, f64);

/// Every figure of a profile equals the independent count.
fn figures_are_right(profile: &Value, table: &[Vec<String>], names: &[String], count: Count) {
    assert_eq!((&profile["records"], &profile["sampled"]), (&table.len().into(), &false.into()));
    let place = |name: &Value| names.iter().position(|known| known == name.as_str().unwrap()).unwrap();
    let close = |found: &Value, (distinction, separation): (f64, f64)| {
        let of = |key: &str| found[key].as_f64().unwrap();
        assert!(
            (of("distinction") - distinction).abs() < 1e-9 && (of("separation") - separation).abs() < 1e-9,
            "{found}"
        );
    };
    for field in profile["fields"].as_array().unwrap() {
        close(field, count(table, &[place(&field["field"])]));
    }
    let combinations = profile["combinations"].as_array().unwrap();
    assert_eq!(profile["rows_combined"], profile["rows_compared"]);
    for found in combinations {
        let fields: Vec<usize> = found["fields"].as_array().unwrap().iter().map(place).collect();
        close(found, count(table, &fields));
    }
    assert!(combinations.len() >= 20, "{}", combinations.len());
}

/// Two sources write a day in two ways: both are read, and neither is hidden for it.
#[test]
fn dates_of_two_notations_are_dates() {
    let desk = Desk::new();
    let day = |i: usize| (1 + i % 28, 1 + i % 12, 1940 + i % 60);
    let written = |i: usize, (d, m, y): (usize, usize, usize)| match i % 3 {
        0 => format!("{d:02}.{m:02}.{y}"),
        _ => format!("{y}-{m:02}-{d:02}"),
    };
    let rows: String = (0..1500).map(|i| format!("p{i},{},{}\n", written(i, day(i)), ["flu", "cold"][i % 2])).collect();
    desk.write("people.csv", format!("person,birthday,illness\n{rows}"));
    desk.run(&["init", "people.csv", "--yes", "-o", "policy.yaml"]).expect(0);
    let policy = desk.read("policy.yaml");
    assert!(policy.contains("formats: [iso, \"%d.%m.%Y\"]"), "{policy}");
    let left = desk.run(&["anonymize", "-c", "policy.yaml", "people.csv", "-o", "-"]).expect(0);
    assert!(left.out.contains("1950s") || left.out.lines().any(|row| row.starts_with("195")), "{}", left.out);
}

#[test]
fn the_figures_of_a_profile_equal_an_independent_count() {
    let desk = Desk::new();
    let table = orders(400);
    desk.write("orders.csv", csv(&table, ","));
    let names: Vec<String> = table.0.iter().map(|name| (*name).to_owned()).collect();
    let profile = desk.run(&["profile", "orders.csv", "--json"]).expect(0).json();
    figures_are_right(&profile, &table.1, &names, by_definition);
    // Alone is a person whose combination nobody else has.
    let by_person = desk.run(&["profile", "orders.csv", "--json", "--subject", "customer_id"]).expect(0).json();
    let people: BTreeSet<&String> = table.1.iter().map(|row| &row[1]).collect();
    assert_eq!(by_person["people"], people.len());
    for (field, name) in names.iter().enumerate() {
        let mut owners: HashMap<&String, BTreeSet<&String>> = HashMap::new();
        table.1.iter().for_each(|row| {
            owners.entry(&row[field]).or_default().insert(&row[1]);
        });
        let alone: BTreeSet<&String> = owners.values().filter(|owners| owners.len() == 1).flatten().copied().collect();
        let told = by_person["fields"][field]["uniqueness"].as_f64().unwrap();
        assert!((told - alone.len() as f64 / people.len() as f64).abs() < 1e-9, "{name}: {told}");
    }
}

#[test]
fn a_profile_shows_no_value() {
    let desk = Desk::new();
    let table = patients(300);
    desk.write("patients.csv", csv(&table, ";"));
    let shown = desk.run(&["profile", "patients.csv"]).expect(0).out
        + &desk.run(&["profile", "patients.csv", "--json"]).expect(0).out;
    for row in &table.1 {
        for value in row.iter().filter(|value| value.len() > 4) {
            assert!(!shown.contains(value.as_str()), "{value}");
        }
    }
    assert!(shown.contains("Pairs that single out the most") && shown.contains("Triples"), "{shown}");
    // A file without a header has a person in its first line.
    desk.write("headless.csv", csv(&table, ";").split_once('\n').unwrap().1);
    let left = desk.run(&["profile", "headless.csv"]).expect(2);
    assert!(left.err.contains("looks like a record") && !left.err.contains(&table.1[0][1]), "{}", left.err);
}

fn adult() -> Option<PathBuf> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    let folder = std::env::var_os("VEILSTREAM_DATA").map_or_else(beside, PathBuf::from).join("adult");
    folder.join("adult.csv").is_file().then_some(folder)
}

#[test]
fn the_figures_of_adult_equal_an_independent_count() {
    let Some(folder) = adult() else {
        return eprintln!("SKIPPED: no Adult table in ../shared/data or VEILSTREAM_DATA");
    };
    let file = folder.join("adult.csv");
    let text = fs::read_to_string(&file).unwrap();
    let mut lines = text.lines().map(|line| line.split(';').map(str::to_owned).collect::<Vec<String>>());
    let names = lines.next().unwrap();
    let profile = Desk::new().run(&["profile", file.to_str().unwrap(), "--json"]).expect(0).json();
    figures_are_right(&profile, &lines.collect::<Vec<_>>(), &names, by_groups);
}

/// Runs the proposal unedited: it validates, its release satisfies, and nearly all of the known quasi-identifiers are in it.
#[track_caller]
fn init_is_usable(desk: &Desk, input: &str, output: &str, known: &[&str]) -> String {
    let left = desk.run(&["init", input, "--yes"]).expect(0);
    assert!(left.err.contains("the release satisfies") && left.err.contains("full-domain"), "{}", left.err);
    desk.run(&["validate", "-c", "pipeline.yaml"]).expect(0);
    let summary = desk.run(&["run", "-c", "pipeline.yaml"]).expect(0).json();
    let (all, published) = (summary["records_in"].as_u64().unwrap(), summary["records_published"].as_u64().unwrap());
    assert!(published * 10 >= all * 8, "{summary}");
    desk.run(&["verify", "-c", "pipeline.yaml", output]).expect(0);
    let policy = desk.read("pipeline.yaml");
    let quasi = policy.split("  privacy:").next().unwrap();
    let found = known.iter().filter(|name| quasi.contains(&format!("    - name: {name}\n"))).count();
    assert!(found * 10 >= known.len() * 9, "{found} of {known:?} in {policy}");
    policy
}

#[test]
fn a_proposed_policy_satisfies_unedited() {
    for (name, table, known, subject) in [
        ("orders.csv", orders(6000), &["zip", "city", "country", "age", "ordered_at"][..], "customer_id"),
        ("patients.csv", patients(6000), &["birth_date", "sex", "zipcode", "admission_date", "ward"], "patient_id"),
        ("clicks.csv", clicks(6000), &["timestamp", "browser", "os", "language", "country"], "visitor_id"),
    ] {
        let desk = Desk::new();
        desk.write(name, csv(&table, ","));
        let policy = init_is_usable(&desk, name, &name.replace(".csv", "-safe.csv"), known);
        assert!(policy.contains(&format!("  subject: {subject} ")), "{policy}");
        // No rare value is in it: of a value with five letters or more, ten people must have it.
        for field in 0..table.0.len() {
            let mut counts: HashMap<&String, usize> = HashMap::new();
            table.1.iter().for_each(|row| *counts.entry(&row[field]).or_default() += 1);
            for (value, count) in counts.into_iter().filter(|(value, _)| value.len() > 4) {
                assert!(count >= 10 || !policy.contains(value.as_str()), "{value} in {policy}");
            }
        }
        let again = desk.run(&["init", name, "--yes"]).expect(2);
        assert!(again.err.contains("--force"), "{}", again.err);
    }
}

/// Customers with an address inside, as they are or as change events of Debezium.
fn customers(rows: usize, change_events: bool) -> String {
    let mut rng = StdRng::seed_from_u64(4);
    let mut text = String::new();
    for i in 0..rows {
        let row = serde_json::json!({
            "id": i,
            "contact": { "email": format!("c{i}@mail.example"), "phone": format!("+49 170 {:07}", i) },
            "birth_date": day(&mut rng, 1940, 2005),
            "gender": one(&mut rng, &["f", "m"]),
            "address": { "city": one(&mut rng, &CITIES), "zip": format!("{:05}", 10_000 + 10 * rng.random_range(0..50)) },
            "segment": one(&mut rng, &["basic", "plus", "premium"]),
        });
        let line = match change_events {
            true => {
                serde_json::json!({ "before": null, "after": row, "op": "c", "ts_ms": 1_700_000_000_000u64 + i as u64 })
            }
            false => row,
        };
        text.push_str(&format!("{line}\n"));
    }
    text
}

#[test]
fn a_proposed_policy_names_fields_by_path() {
    let known = ["birth_date", "gender", "address.city", "address.zip"];
    for change_events in [false, true] {
        let desk = Desk::new();
        desk.write("customers.jsonl", customers(4000, change_events));
        let policy = init_is_usable(&desk, "customers.jsonl", "customers-safe.jsonl", &known);
        assert_eq!(
            policy.contains("envelope: debezium") && policy.contains("  subject: id "),
            change_events,
            "{policy}"
        );
        assert!(policy.contains(" contact.email ") && policy.contains("- contact.phone "), "{policy}");
        let released = desk.read("customers-safe.jsonl");
        assert!(released.contains("\"address\":{\"city\":") && !released.contains("mail.example"), "{released:.300}");
    }
}

#[test]
fn a_proposed_policy_for_adult_finds_its_hierarchies() {
    let Some(folder) = adult() else {
        return eprintln!("SKIPPED: no Adult table in ../shared/data or VEILSTREAM_DATA");
    };
    let desk = Desk::new();
    for file in fs::read_dir(folder).unwrap().flatten() {
        desk.write(file.file_name().to_str().unwrap(), fs::read(file.path()).unwrap());
    }
    let known = ["sex", "age", "race", "marital-status", "education", "native-country", "workclass", "occupation"];
    let policy = init_is_usable(&desk, "adult.csv", "adult-safe.csv", &known);
    assert!(policy.contains("{ csv: age.csv }") && policy.contains("- { name: salary-class }"), "{policy}");
}

#[test]
fn init_asks_nobody_in_a_pipe_and_needs_enough_people() {
    let desk = Desk::new();
    desk.write("few.csv", csv(&patients(7), ","));
    let left = desk.run(&["init", "few.csv"]).expect(2);
    assert!(left.err.contains("--yes"), "{}", left.err);
    let left = desk.run(&["init", "few.csv", "--yes"]).expect(1);
    assert!(left.err.contains("nothing was written"), "{}", left.err);
    assert!(!desk.path("pipeline.yaml").exists());
    let left = desk.run(&["init", "none.csv", "--yes"]).expect(2);
    assert!(left.err.contains("--brokers"), "{}", left.err);
    let bytes = csv(&clicks(3000), "\t");
    let left = desk.pipe(&["init", "-", "--yes", "-o", "-"], bytes.as_bytes()).expect(0);
    assert!(left.out.contains("stdio") && left.out.contains("subject: visitor_id"), "{}", left.out);
}

/// A table in which people return, as hospitals have them: their numbers are not ids in name, and names are few.
fn stays(rows: usize) -> Table {
    let mut rng = StdRng::seed_from_u64(11);
    let row = |i: usize| {
        let person = rng.random_range(0..rows / 2);
        vec![
            format!("F{:06}", 100_000 + i),
            format!("P{person:05}"),
            one(&mut rng, &["Anna", "Ben", "Clara", "David"]),
            one(&mut rng, &["Müller", "Schmidt", "Weber"]),
            format!("{:02}.{:02}.{}", 1 + person % 28, 1 + person % 12, 1930 + person % 70),
            one(&mut rng, &["w", "m"]),
            format!(
                "{:02}.{:02}.2024 {:02}:00",
                rng.random_range(1..29),
                rng.random_range(1..13),
                rng.random_range(0..24)
            ),
            one(&mut rng, &["I10.0", "E11.9", "J45.0"]),
            one(&mut rng, &["no", "yes"]),
        ]
    };
    let names = vec![
        "Fallnummer",
        "Patienten-ID",
        "Vorname",
        "Nachname",
        "Geburtsdatum",
        "Geschlecht",
        "Aufnahme",
        "Hauptdiagnose",
        "churn",
    ];
    (names, (0..rows).map(row).collect())
}

#[test]
fn people_who_return_are_counted_and_their_names_are_not_published() {
    let desk = Desk::new();
    desk.write("stays.csv", csv(&stays(4000), ";"));
    let known = ["Geburtsdatum", "Geschlecht", "Aufnahme"];
    let policy = init_is_usable(&desk, "stays.csv", "stays-safe.csv", &known);
    for line in [
        "  subject: Patienten-ID ",
        "    - Vorname ",
        "    - Nachname ",
        "    - Fallnummer ",
        "format: \"%d.%m.%Y %H:%M\"",
        "l-diversity: { field: churn, l: 2,",
        "manifest: stays-safe-manifests.jsonl",
        "journal: stays-safe-journal.jsonl",
    ] {
        assert!(policy.contains(line), "{line} in {policy}");
    }
    let released = desk.read("stays-safe.csv");
    assert!(!released.contains("Weber") && !released.contains("Nachname"), "{released:.200}");
    let said = desk.run(&["explain", "-c", "pipeline.yaml"]).expect(0).out;
    assert!(said.contains("by day"), "a time is published as its day: {said}");
    // The same people twice would be two releases of one file.
    let again = desk.run(&["run", "-c", "pipeline.yaml"]).expect(0);
    assert!(again.err.contains("stays-safe.csv has rows already"), "{}", again.err);
    // Nobody's number: k counts records, and that is told.
    let table = stays(3000);
    let anonymous: String =
        csv(&table, ";").lines().map(|line| line.splitn(3, ';').nth(2).unwrap().to_owned() + "\n").collect();
    desk.write("anonymous.csv", anonymous);
    let left = desk.run(&["init", "anonymous.csv", "--yes", "-o", "anonymous.yaml"]).expect(0);
    assert!(left.err.contains("No field says whose a record is: k counts records"), "{}", left.err);
}

#[test]
fn a_proposal_reads_the_input_as_it_was_read() {
    let desk = Desk::new();
    let latin = |text: String| text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect::<Vec<u8>>();
    desk.write("stays.csv", latin(csv(&stays(3000), "|") + "cut|short\n"));
    let left = desk.run(&["init", "stays.csv", "--yes", "--encoding", "latin-1", "--delimiter", "|"]).expect(0);
    assert!(left.err.contains("1 of them cannot be read"), "{}", left.err);
    let policy = desk.read("pipeline.yaml");
    assert!(policy.contains("delimiter: \"|\", encoding: latin-1"), "{policy}");
    let summary = desk.run(&["run", "-c", "pipeline.yaml"]).expect(0).json();
    assert_eq!((&summary["records_in"], &summary["records_rejected"]), (&3001.into(), &1.into()));
    let piped = desk.pipe(&["init", "-", "--yes", "--delimiter", "|", "-o", "-"], b"a|b\n1|2\n").expect(2);
    assert!(piped.err.contains("name a file instead of -"), "{}", piped.err);
}

/// Places, networks, codes of several lengths and times, below names that mean something else.
#[test]
fn proposals_fit_what_the_values_are() {
    let desk = Desk::new();
    let mut rng = StdRng::seed_from_u64(12);
    let mut text = String::new();
    for i in 0..4000 {
        let area = one(&mut rng, &["AB", "EH", "G"]);
        let visit = serde_json::json!({
            "id": format!("u{}", rng.random_range(0..2500)),
            "patient": {
                "name": format!("N{i}"),
                "address": {
                    "zip": format!("{:05}", 10_000 + rng.random_range(0..300)),
                    "postcode": format!("{area}{} {}AB", rng.random_range(1..20), rng.random_range(1..9)),
                },
            },
            "ip": format!("10.{}.{}.{}", rng.random_range(0..2), rng.random_range(0..200), rng.random_range(0..200)),
            "geohash": one(&mut rng, &["u33db2m", "u33db2k", "u33dbc1", "u33e6xz", "9q8yyk8"]),
            "at": 1_700_000_000_000u64 + i * 1000,
            "flag": i % 2,
            "home": { "lat": 47.0 + f64::from(rng.random_range(0..800)) / 100.0, "lon": 6.0 + f64::from(rng.random_range(0..900)) / 100.0 },
            "work_Latitude": f64::from(rng.random_range(4700..5500)) / 100.0,
            "plate": i % 3,
        });
        text.push_str(&format!("{visit}\n"));
    }
    desk.write("visits.jsonl", text);
    let known = ["patient.address.zip", "patient.address.postcode", "ip", "geohash", "at", "flag", "home.cell"];
    let policy = init_is_usable(&desk, "visits.jsonl", "visits-safe.jsonl", &known);
    for line in [
        "  subject: id ",
        "hierarchy: { ip: {} }",
        "hierarchy: { geohash: {} }",
        "hierarchy: { prefix: { length: 7, min_length: 5, alphabet: 36 } }",
        "name: home.cell\n      from: [home.lat, home.lon]\n      hierarchy: { geohash: {} }",
        // Half of a place is a number.
        "name: work_Latitude\n      hierarchy: { intervals:",
        "format: epoch-millis",
        "name: flag\n      hierarchy: trivial",
    ] {
        assert!(policy.contains(line), "{line} in {policy}");
    }
}

/// As Excel exports a table in Germany: a line that tells the delimiter, a byte order mark, commas before fractions, times of two kinds.
#[test]
fn a_table_from_excel_is_proposed_as_it_is() {
    let desk = Desk::new();
    let mut rng = StdRng::seed_from_u64(14);
    let mut text = "\u{feff}sep=;\r\nKundennr;Geburtsdatum;PLZ;Gehalt;Umsatz;Breitengrad;Längengrad\r\n".to_owned();
    for i in 0..4000 {
        let (day, month, year) = (rng.random_range(1..29), rng.random_range(1..13), rng.random_range(1950..2005));
        let born = match i % 10 {
            0 => year.to_string(),
            1 => format!("{year}-{month:02}"),
            _ => format!("{year}-{month:02}-{day:02}"),
        };
        let degrees = |from: i32, to: i32, rng: &mut StdRng| {
            format!("{},{:04}", rng.random_range(from..to), rng.random_range(0..9999))
        };
        let place = (degrees(47, 54, &mut rng), degrees(6, 14, &mut rng));
        let pay =
            format!("{}.{:03},{:02}", rng.random_range(20..90), rng.random_range(0..999), rng.random_range(0..99));
        let zip = format!("{:05}", 10_000 + rng.random_range(0..300));
        text.push_str(&format!("K{i:05};{born};{zip};{pay};{},5;{};{}\r\n", i % 50, place.0, place.1));
    }
    desk.write("kunden.csv", text);
    let policy = init_is_usable(&desk, "kunden.csv", "kunden-safe.csv", &["Geburtsdatum", "PLZ", "cell"]);
    for line in [
        "  subject: Kundennr ",
        "name: Geburtsdatum\n      hierarchy: { date: [day, month, year, decade] }",
        "name: cell\n      from: [Breitengrad, \"Längengrad\"]\n      hierarchy: { geohash: {} }",
        "- { name: Gehalt }",
        "name: Umsatz\n      hierarchy: { intervals:",
        "open: both, decimal: comma }",
    ] {
        assert!(policy.contains(line), "{line} in {policy}");
    }
    let said = desk.run(&["validate", "-c", "pipeline.yaml", "--sample", "kunden.csv"]).expect(0).out;
    let places = said.lines().find(|line| line.trim_start().starts_with("cell ")).unwrap();
    assert!(places.trim_end().ends_with(" 0.0 %"), "places are read with their commas: {said}");
    let released = desk.read("kunden-safe.csv");
    assert!(released.starts_with("Geburtsdatum;PLZ;"), "{released:.100}");
    desk.write("map.geojson", r#"{"type":"FeatureCollection","features":[{"properties":{"age":4}}]}"#);
    let told = desk.run(&["init", "map.geojson", "--yes", "--force"]).expect(2);
    assert!(told.err.contains("is one JSON object") && told.err.contains("`explode`"), "{}", told.err);
}

/// Dates of a format with types are numbers in the file, and dates to a hierarchy.
#[test]
fn dates_with_a_type_are_proposed_as_dates() {
    let desk = Desk::new();
    let mut rng = StdRng::seed_from_u64(15);
    let writer = r#"{"type":"record","name":"P","fields":[{"name":"id","type":"long"},
        {"name":"born","type":{"type":"int","logicalType":"date"}},
        {"name":"seen","type":["null",{"type":"long","logicalType":"timestamp-micros"}]},
        {"name":"since","type":"int"}]}"#;
    let fields = Schema::new(["id", "born", "seen", "since"].map(|name| (name, Role::Insensitive)));
    let output = OutputSchema::derive(&fields, &[parse_schema(writer).unwrap().as_ref()]).unwrap();
    let mut encoder = AvroEncoder::new(output);
    let mut bytes = Vec::new();
    encoder.header(&mut bytes);
    for i in 0..4000 {
        let born = rng.random_range(-5000..12_000).to_string();
        let seen = (1_700_000_000_000_000i64 + i64::from(rng.random_range(0..30)) * 86_400_000_000).to_string();
        let values = [&*i.to_string(), &born, &seen, &rng.random_range(1990..2020).to_string()];
        encoder.row(&PublishedRow { quasi: &[], values: &values }, &mut bytes).unwrap();
    }
    encoder.finish(&mut bytes).unwrap();
    desk.write("people.avro", bytes);
    let policy = init_is_usable(&desk, "people.avro", "people-safe.avro", &["born", "seen"]);
    for line in ["name: born\n      hierarchy: { date: [", "name: seen\n      hierarchy: { date: ["] {
        assert!(policy.contains(line), "{line} in {policy}");
    }
    let profile = desk.run(&["profile", "people.avro", "--json"]).expect(0).json();
    let kind = |name: &str| {
        let fields = profile["fields"].as_array().unwrap().iter().find(|field| field["field"] == name);
        fields.unwrap()["type"].as_str().unwrap().to_owned()
    };
    assert_eq!(["born", "seen", "since"].map(kind), ["date", "date", "integer"]);
}

/// A date of birth that nearly identifies by itself is shown with the fields that finish it.
#[test]
fn a_profile_shows_zip_birth_and_sex_together() {
    let desk = Desk::new();
    let mut rng = StdRng::seed_from_u64(13);
    let mut text = "zip,dob,sex,disease\n".to_owned();
    for _ in 0..6000 {
        let (zip, sex) = (10_000 + rng.random_range(0..300), one(&mut rng, &["f", "m"]));
        text.push_str(&format!("{zip},{},{sex},{}\n", day(&mut rng, 1930, 2005), one(&mut rng, &["cold", "flu"])));
    }
    desk.write("sweeney.csv", text);
    let shown = desk.run(&["profile", "sweeney.csv"]).expect(0).out;
    assert!(shown.contains("zip, dob, sex"), "{shown}");
    assert!(shown.contains("All 3 quasi-identifiers together: "), "{shown}");
    let left = desk.run(&["profile", "sweeney.csv", "--subject", "who"]).expect(2);
    let told = "--subject takes one of zip, dob, sex, disease";
    assert!(left.err.contains(told) && !left.err.contains("policy"), "{}", left.err);
    let left = desk.run(&["init", "sweeney.csv", "--yes", "-o", "none/p.yaml"]).expect(2);
    assert!(!left.err.contains(".partial"), "{}", left.err);
}

/// One person has 60 salaries that nobody else has, and a place that nobody else lives in: neither is in a frozen hierarchy.
#[test]
fn a_frozen_hierarchy_has_nothing_of_few_people() {
    let desk = Desk::new();
    let mut sample = "who,salary,place\n".to_owned();
    (0..400).for_each(|i| sample.push_str(&format!("p{i},{},{}\n", 1000 + 7 * i, CITIES[i % 12])));
    (0..60).for_each(|i| sample.push_str(&format!("rich,{},Hideaway\n", 900_000 + i)));
    desk.write("sample.csv", sample);
    let made = |field: &str, by: &str| {
        let output = format!("{field}-{by}.csv");
        let arguments =
            ["hierarchy", "sample.csv", "--field", field, "--subject", "who", "--by", by, "--k", "20", "-o", &output];
        desk.run(&arguments).expect(0);
        desk.read(&output)
    };
    let quantiles = made("salary", "quantile");
    assert!(quantiles.lines().count() > 2000 && quantiles.lines().all(|line| !line.starts_with("90000")));
    assert!(quantiles.lines().count() < 5000, "the range is that of one person");
    assert!(["order", "frequency"].iter().all(|by| !made("place", by).contains("Hideaway")));
}

#[test]
fn explain_says_the_policy_and_its_limits() {
    let desk = Desk::new();
    desk.write(
        "policy.yaml",
        "policy:
  quasi_identifiers:
    - { name: age, min_level: 1, hierarchy: { intervals: { widths: [5, 10, 20], min: 0, max: 120 } } }
    - { name: zip, max_level: 3, hierarchy: { prefix: { length: 5 } } }
  sensitive: [{ name: diagnosis }]
  subject: patient
  privacy: [{ k-anonymity: 7 }, { t-closeness: { field: diagnosis, t: 0.3 } }]
  suppression: { limit: 5%, action: hold }
  recoding: local
",
    );
    let said = desk.run(&["explain", "-c", "policy.yaml"]).expect(0).out;
    for sentence in [
        "People are counted by `patient`",
        "`age` is published as finely as the criteria allow: in steps of 5, or in steps of 10, or in steps of 20, or hidden; never exactly",
        "`zip` is published as finely as the criteria allow: as it is, or by its first 4 characters, or by its first 3 characters, or by its first 2 characters; no criterion hides it altogether",
        "at least 7 people (k-anonymity)",
        "at most 0.3 apart of 1 (t-closeness)",
        "At most 5 % of the records of a window may be left out because they are too rare; they wait for a later release, at most 5 min",
        "(T31)",
        "no `sequential` (T3)",
        "differential privacy",
    ] {
        assert!(said.contains(sentence), "{sentence} in {said}");
    }
    assert!(!said.contains("(T8)"), "t-closeness protects the values: {said}");
    let json = desk.run(&["explain", "-c", "policy.yaml", "--json"]).expect(0).json();
    assert_eq!(json["sections"].as_array().unwrap().len(), 6);
    // Every threat that it names is in the threat model.
    let model = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("THREAT_MODEL.md")).unwrap();
    for threat in said.split("(T").skip(1).map(|rest| rest.split(')').next().unwrap()) {
        assert!(model.contains(&format!("T{threat}")), "T{threat}");
    }
}

const CASES: &str = "policy: policy.yaml
cases:
  - name: six people in one place
    records:
      - { id: u1, age: 31, job: cook }
      - { id: u2, age: 32, job: smith }
      - { id: u3, age: 33, job: cook }
      - { id: u4, age: 34, job: nurse }
      - { id: u5, age: 31, job: cook }
      - { id: u6, job: cook }
    expect:
      published: PUBLISHED
      suppressed: { at_most: 0 }
      rejected: 1
      rows: [{ age: '[30,35)', job: cook }, { age: '[30,35)', job: cook }, { age: '[30,35)', job: cook }, { age: '[30,35)', job: nurse }, { age: '[30,35)', job: smith }]
      criteria: { k-anonymity: 5 }
      loss: 0.5
      never: [u1, NEVER]
";

#[test]
fn cases_pass_or_tell_what_differs() {
    let desk = Desk::new();
    desk.write("policy.yaml", program::policy(""));
    desk.write("cases.yaml", CASES.replace("PUBLISHED", "5").replace("NEVER", "u9"));
    let left = desk.run(&["test", "cases.yaml"]).expect(0);
    assert!(left.out.contains("ok    six people in one place"), "{}", left.out);
    desk.write(
        "wrong.yaml",
        CASES
            .replace("PUBLISHED", "{ at_least: 6 }")
            .replace("NEVER", "smith")
            .replace("', job: cook }", "', job: judge }"),
    );
    let left = desk.run(&["test", "cases.yaml", "wrong.yaml"]).expect(1);
    for told in [
        "FAIL  six people in one place",
        "published: expected at least 6, was 5",
        "never: `smith` is in 1 published rows",
        "rows: expected 3 more of {\"age\":\"[30,35)\",\"job\":\"judge\"}",
        "rows: 3 not expected of {\"age\":\"[30,35)\",\"job\":\"cook\"}",
    ] {
        assert!(left.out.contains(told), "{told} in {}", left.out);
    }
    assert!(left.err.contains("1 of 2 cases failed"), "{}", left.err);
    let json = desk.run(&["test", "cases.yaml", "wrong.yaml", "--json"]).expect(1).json();
    assert_eq!((&json["passed"], &json["failed"]), (&1.into(), &1.into()));
    let left = desk.run(&["test", "policy.yaml"]).expect(2);
    assert!(left.err.contains("a file of cases has `policy: FILE`") && !left.err.contains("map"), "{}", left.err);
    desk.write("bad.yaml", program::policy("").replace("k-anonymity: 5", "k-anonymity: none"));
    let left = desk.run(&["explain", "-c", "bad.yaml"]).expect(2);
    assert!(left.err.contains("(schemas/CONFIGURATION.md#policy.privacy"), "{}", left.err);
    desk.write("odd.yaml", "policy: policy.yaml\ncases: []\nmore: 1\n");
    let left = desk.run(&["test", "odd.yaml"]).expect(2);
    assert!(left.err.contains("more"), "{}", left.err);
}

#[test]
fn shells_and_manuals_know_every_command() {
    let desk = Desk::new();
    let help = desk.run(&["--help"]).expect(0).out;
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|word| !word.is_empty()))
        .collect();
    assert!(commands.len() > 12, "{commands:?}");
    for shell in ["bash", "zsh", "fish", "powershell"] {
        let script = desk.run(&["completions", shell]).expect(0).out;
        commands.iter().for_each(|command| assert!(script.contains(command), "{command} for {shell}"));
    }
    assert!(desk.run(&["man"]).expect(0).out.contains(".TH veilstream 1"));
    desk.run(&["man", "--output", "pages"]).expect(0);
    for command in commands.into_iter().filter(|command| *command != "help") {
        assert!(desk.read(&format!("pages/veilstream-{command}.1")).contains("veilstream"), "{command}");
    }
}

#[test]
fn every_example_runs_and_its_cases_pass() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/examples");
    let mut seen = 0;
    for example in fs::read_dir(examples).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
        let desk = Desk::new();
        for file in fs::read_dir(example.path()).unwrap().flatten() {
            desk.write(file.file_name().to_str().unwrap(), fs::read(file.path()).unwrap());
        }
        let name = example.file_name().into_string().unwrap();
        desk.run(&["validate", "-c", "pipeline.yaml"]).expect(0);
        desk.run(&["explain", "-c", "pipeline.yaml"]).expect(0);
        desk.run(&["test", "cases.yaml"]).expect(0);
        let summary = desk.run(&["run", "-c", "pipeline.yaml"]).expect(0).json();
        let (all, published) =
            (summary["records_in"].as_u64().unwrap(), summary["records_published"].as_u64().unwrap());
        assert!(all >= 200 && published * 10 >= all * 8, "{name}: {summary}");
        let released =
            fs::read_dir(desk.0.path()).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
        let released = released.into_iter().find(|file| file.starts_with("safe.")).unwrap();
        desk.run(&["verify", "-c", "pipeline.yaml", &released]).expect(0);
        seen += 1;
    }
    assert!(seen >= 6, "{seen}");
}
