//! `anonymize` of files of generated records: memory, and processor time per record as the file grows.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use veilstream::source::generator::demo_policy_yaml;

const PROGRAM: &str = env!("CARGO_BIN_EXE_veilstream");

/// The policy of `demo` without subjects and with two attributes more, of which there are eight then.
fn policy() -> String {
    let tree = |name: &str, values: &[&str]| {
        let values: String = values.iter().map(|value| format!("{{ label: \"{value}\" }}, ")).collect();
        format!("    - {{ name: {name}, hierarchy: {{ tree: [{values}] }} }}\n")
    };
    let more = tree("marital_status", &["single", "married", "divorced", "widowed", "separated"])
        + &tree("salary_class", &["<=50K", ">50K"]);
    let text = demo_policy_yaml().replace("  subject: user_id\n", "").replace("  keep: [score]\n", "");
    text.replace("  sensitive:", &format!("{more}  sensitive:"))
}

/// Prints both for each number of records. The files take about 170 bytes per record below the folder for temporary files.
pub(crate) fn run(sizes: &[usize]) {
    let folder = tempfile::tempdir().expect("a directory");
    let (policy, input, output) =
        (folder.path().join("policy.yaml"), folder.path().join("in.csv"), folder.path().join("out.csv"));
    std::fs::write(&policy, self::policy()).expect("written");
    for &records in sizes {
        let text = File::create(&input).expect("a file");
        let mut generate = Command::new(PROGRAM);
        generate.args(["generate", "--format", "csv", "--records", &records.to_string()]).stdout(text);
        assert!(generate.status().expect("the program").success());
        let mut anonymize = Command::new(PROGRAM);
        anonymize.args(["anonymize", "--config"]).arg(&policy).arg("--output").arg(&output).arg(&input);
        let child = anonymize.stderr(Stdio::null()).spawn().expect("the program");
        let (busy, most) = watch(child);
        let size = |path: &Path| std::fs::metadata(path).expect("a file").len() as usize / records;
        println!(
            "anonymize: {records} records of {} bytes, {:.2} GB at most, {:.0} ns of processor time and {} bytes out per record",
            size(&input),
            most as f64 / 1e9,
            busy.as_nanos() as f64 / records as f64,
            size(&output),
        );
    }
}

/// Waits for a program; gives its processor time and the most memory that was resident.
fn watch(mut child: Child) -> (Duration, usize) {
    let folder = format!("/proc/{}", child.id());
    let (mut ticks, mut most) = (0, 0);
    while child.try_wait().expect("a child").is_none() {
        let read = |name: &str| std::fs::read_to_string(format!("{folder}/{name}")).unwrap_or_default();
        let peak = |status: &str| {
            status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok())
        };
        most = peak(&read("status")).unwrap_or(most);
        // Of the thread group, in hundredths of a second, behind the name.
        let times = |stat: &str| {
            Some(stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(2).flat_map(str::parse::<u64>).sum())
        };
        ticks = times(&read("stat")).filter(|ticks| *ticks > 0).unwrap_or(ticks);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(child.wait().expect("a child").success());
    (Duration::from_millis(ticks * 10), most * 1024usize)
}
