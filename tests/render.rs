//! `render` as a user writes it: the program publishes, and says why it does not.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod program;

use program::Desk;

/// Two attributes of which a reader knows one at a time: blocks are counted, not only classes.
const KNOWN: &str = "policy:
  quasi_identifiers:
    - { name: age, hierarchy: { intervals: { widths: [10], min: 0, max: 99 } } }
    - { name: zip, hierarchy: { prefix: { length: 3 } } }
  sensitive: [{ name: job }]
  privacy: [{ lkc: { l: 1, k: 5, c: 0.9 } }]
  render: microaggregate
";

fn people() -> String {
    let job = |i: u32| ["cook", "nurse", "clerk"][(i % 3) as usize];
    let line = |i: u32| format!("{},{:03},{}\n", 20 + i * 7 % 40, 100 + i * 13 % 97, job(i));
    format!("age,zip,job\n{}", (0..400).map(line).collect::<String>())
}

#[test]
fn statistics_go_with_criteria_about_one_attribute() {
    let desk = Desk::new();
    desk.write("policy.yaml", KNOWN);
    desk.write("people.csv", people());
    desk.run(&["anonymize", "-c", "policy.yaml", "people.csv", "-o", "safe.csv"]).expect(0);
    desk.run(&["verify", "-c", "policy.yaml", "safe.csv"]).expect(0);
    assert_eq!(desk.read("safe.csv").lines().count(), 401);
    let json = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        format!("{{\"age\":{},\"zip\":\"{}\",\"job\":\"{}\"}}\n", cells[0], cells[1], cells[2])
    };
    let lines: String = people().lines().skip(1).map(json).collect();
    let left = desk.pipe(&["run", "-c", "policy.yaml"], lines.as_bytes()).expect(0);
    assert_eq!(left.out.lines().count(), 400);
}

/// Each quasi-identifier has its own rendering; a person with many records counts as one.
#[test]
fn each_attribute_is_written_as_it_asks() {
    let desk = Desk::new();
    desk.write(
        "policy.yaml",
        "policy:
  quasi_identifiers:
    - { name: age, hierarchy: { intervals: { widths: [10, 20], min: 0, max: 99 } }, render: mean, max_level: 1 }
    - { name: zip, hierarchy: { prefix: { length: 3 } }, render: interval-of-codes }
  subject: who
  privacy: [{ k-anonymity: 3 }]
",
    );
    let refused = desk.run(&["validate", "-c", "policy.yaml"]).expect(2);
    assert!(refused.err.contains("policy.yaml:4:") && refused.err.contains("`mode`"), "{}", refused.err);
    desk.write("policy.yaml", desk.read("policy.yaml").replace("interval-of-codes", "mode"));
    // Seven records of a person of 28 weigh as one: the mean of 20, 21, 22 and 28 is 22.75, nearer to 20.5 than to 25.5. By
    // record it would be 25.9, and the most frequent zip 109.
    let people = ["20,101,a", "21,101,b", "22,101,c"].into_iter().chain(std::iter::repeat_n("28,109,d", 7));
    desk.write("people.csv", people.fold("age,zip,who\n".to_owned(), |text, line| text + line + "\n"));
    desk.run(&["anonymize", "-c", "policy.yaml", "people.csv", "-o", "safe.csv"]).expect(0);
    let safe = desk.read("safe.csv");
    assert_eq!(safe, format!("age,zip\n{}", "20.5,101\n".repeat(10)));
}
