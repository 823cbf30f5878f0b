//! Output files against hostile and unlucky surroundings (THREAT_MODEL.md, T30): planted links, devices, pipes, two
//! writers, restarts, full disks, kills in mid-release, and content of other origin.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod program;

use std::fs::{self, File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::process::Command;

use program::service::{HTTP, Service};
use program::{Desk, Left, PATIENCE, csv, jsonl, people, policy, wait_until};
use serde_json::Value;

/// Records, and rows, of a release.
const RELEASE: usize = 300;

/// A desk with a policy, input of `count` people, and pipelines made by [`pipeline`].
fn desk(count: usize) -> Desk {
    let desk = Desk::new();
    desk.write("policy.yaml", policy(""));
    desk.write("in.csv", csv(',', &people(count)));
    desk.write("in.jsonl", jsonl(&people(count)));
    desk
}

/// Writes `NAME.yaml`: releases of 300 records from in.jsonl, or from stdin, into this sink.
fn pipeline(desk: &Desk, name: &str, source: &str, sink: &str) {
    let window = format!("window: {{ tumbling: {{ max_records: {RELEASE}, max_age: 1h }} }}\n");
    desk.write(&format!("{name}.yaml"), policy(&format!("{window}{source}sink: {{ file: {{ {sink} }} }}\n")));
}

const FROM_FILE: &str = "source: { file: { path: in.jsonl } }\n";

fn anonymize(desk: &Desk, output: &str) -> Left {
    desk.run(&["anonymize", "-c", "policy.yaml", "in.csv", "-o", output])
}

/// The names in the desk's directory, without those that every desk has.
fn names(desk: &Desk) -> Vec<String> {
    let all = fs::read_dir(desk.0.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = all.filter(|name| !name.starts_with("in.") && !name.ends_with(".yaml")).collect();
    names.sort();
    names
}

/// The rows of a file, counted by its format; all must be whole.
fn rows(desk: &Desk, name: &str) -> usize {
    let whole: Vec<bool> = match name.rsplit('.').next().unwrap() {
        "csv" => ::csv::Reader::from_reader(desk.read(name).as_bytes()).records().map(|row| row.is_ok()).collect(),
        "jsonl" => desk.read(name).lines().map(|line| serde_json::from_str::<Value>(line).is_ok()).collect(),
        _ => apache_avro::Reader::new(File::open(desk.path(name)).unwrap()).unwrap().map(|row| row.is_ok()).collect(),
    };
    assert!(whole.iter().all(|whole| *whole), "{name}");
    whole.len()
}

/// The rows that the manifests account for, release by release.
fn accounted(desk: &Desk, name: &str) -> Vec<u64> {
    let rows = |line: &str| serde_json::from_str::<Value>(line).expect("a whole manifest")["rows"].as_u64().unwrap();
    desk.read(name).lines().map(rows).collect()
}

fn mode(desk: &Desk, name: &str) -> u32 {
    fs::metadata(desk.path(name)).unwrap().permissions().mode() & 0o777
}

/// Runs in a shell after `before`, such as a limit.
fn shell(desk: &Desk, before: &str, arguments: &[&str]) -> Left {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("{before}; exec \"$0\" \"$@\"")).arg(env!("CARGO_BIN_EXE_veilstream"));
    command.args(arguments).current_dir(desk.0.path()).env_remove("RUST_LOG");
    Left::of(command.output().unwrap())
}

/// No file grows beyond 16 or 32 KiB, by the shell; writing further fails as on a full disk.
const FULL_DISK: &str = "trap '' XFSZ; ulimit -f 32";
/// The same, but writing further kills the process in the middle of the write.
const KILLED: &str = "ulimit -c 0; ulimit -f 32";

fn fifo(desk: &Desk, name: &str) {
    assert!(Command::new("mkfifo").arg(desk.path(name)).status().unwrap().success());
}

/// Reads a pipe to its end, and counts its lines within patience.
fn reader(desk: &Desk, name: &str) -> impl FnOnce() -> usize {
    let (path, (done, lines)) = (desk.path(name), std::sync::mpsc::channel());
    std::thread::spawn(move || done.send(fs::read_to_string(path).unwrap().lines().count()));
    move || lines.recv_timeout(PATIENCE).expect("the pipe was written and closed")
}

/// A device of the desk's own, by its number; none without the right to make one.
fn device(desk: &Desk, name: &str, minor: &str) -> bool {
    let made = Command::new("mknod").arg(desk.path(name)).args(["c", "1", minor]).output();
    let usable =
        made.is_ok_and(|made| made.status.success()) && OpenOptions::new().write(true).open(desk.path(name)).is_ok();
    if !usable {
        eprintln!("SKIPPED for {name}: no right to make a device here");
    }
    usable
}

#[test]
fn a_link_planted_at_a_temporary_name_is_not_followed() {
    let desk = desk(200);
    desk.write("victim", "precious\n");
    for name in ["out.csv.partial", "out.csv.tmp", "out.csv.undo", ".out.csv.partial"] {
        symlink("victim", desk.path(name)).unwrap();
    }
    anonymize(&desk, "out.csv").expect(0);
    assert_eq!(desk.read("victim"), "precious\n");
    assert!(fs::symlink_metadata(desk.path("out.csv")).unwrap().is_file());
    assert_eq!(rows(&desk, "out.csv"), 200);
    pipeline(&desk, "run", FROM_FILE, "path: fresh.csv");
    symlink("victim", desk.path("fresh.csv.undo")).unwrap();
    let left = desk.run(&["run", "-c", "run.yaml"]).expect(2);
    assert!(left.err.contains("fresh.csv.undo") && left.err.contains("symbolic link"), "{}", left.err);
    assert_eq!(desk.read("victim"), "precious\n");
}

#[test]
fn a_link_at_the_target_is_refused_and_its_file_stays() {
    let desk = desk(200);
    desk.write("victim.csv", "precious\n");
    symlink("victim.csv", desk.path("link.csv")).unwrap();
    symlink("nowhere", desk.path("dangling.csv")).unwrap();
    for link in ["link.csv", "dangling.csv"] {
        pipeline(&desk, "rows", FROM_FILE, &format!("path: {link}"));
        pipeline(&desk, "manifest", FROM_FILE, &format!("path: new.jsonl, manifest: {link}"));
        for arguments in [
            &["anonymize", "-c", "policy.yaml", "in.csv", "-o", link][..],
            &["anonymize", "-c", "policy.yaml", "in.csv", "-o", "new.csv", "--report", link],
            &["frontier", "-c", "policy.yaml", "in.csv", "--plot", link],
            &["run", "-c", "rows.yaml"],
            &["run", "-c", "manifest.yaml"],
        ] {
            let left = desk.run(arguments).expect(2);
            assert!(left.err.contains(link) && left.err.contains("symbolic link"), "{arguments:?}: {}", left.err);
            assert!(fs::symlink_metadata(desk.path(link)).unwrap().is_symlink(), "{arguments:?}");
            assert_eq!(desk.read("victim.csv"), "precious\n", "{arguments:?}");
            assert!(!desk.path("nowhere").exists() && !desk.path("new.csv").exists(), "{arguments:?}");
        }
    }
}

#[test]
fn pipes_are_written_to_and_stay_pipes() {
    let desk = desk(900);
    for name in ["pipe", "manifests"] {
        fifo(&desk, name);
    }
    let is_fifo = |name: &str| fs::symlink_metadata(desk.path(name)).unwrap().file_type().is_fifo();
    let read = reader(&desk, "pipe");
    anonymize(&desk, "pipe").expect(0);
    assert_eq!(read(), 901);
    assert!(is_fifo("pipe"));
    // A link to a pipe is what /dev/stdout is.
    symlink("pipe", desk.path("link")).unwrap();
    let read = reader(&desk, "pipe");
    anonymize(&desk, "link").expect(0);
    assert_eq!(read(), 901);
    pipeline(&desk, "run", FROM_FILE, "path: pipe, format: csv, manifest: manifests");
    let (rows, manifests) = (reader(&desk, "pipe"), reader(&desk, "manifests"));
    desk.run(&["run", "-c", "run.yaml"]).expect(0);
    assert_eq!((rows(), manifests()), (901, 3));
    assert!(is_fifo("pipe") && is_fifo("manifests"));
    assert_eq!(names(&desk), ["link", "manifests", "pipe"]);
}

#[test]
fn devices_are_written_to_and_stay_devices() {
    let desk = desk(900);
    let is_device = |name: &str| fs::symlink_metadata(desk.path(name)).unwrap().file_type().is_char_device();
    if device(&desk, "nothing", "3") {
        anonymize(&desk, "nothing").expect(0);
        assert!(is_device("nothing"));
        pipeline(&desk, "run", FROM_FILE, "path: nothing, format: csv, manifest: manifests.jsonl");
        desk.run(&["run", "-c", "run.yaml"]).expect(0);
        assert!(is_device("nothing"));
        assert_eq!(accounted(&desk, "manifests.jsonl"), [300, 300, 300]);
    }
    if device(&desk, "full", "7") {
        let left = anonymize(&desk, "full").expect(3);
        assert!(left.err.contains("full"), "{}", left.err);
        assert!(is_device("full"));
        // The rows cannot be written, so nothing says that they were.
        pipeline(&desk, "run", FROM_FILE, "path: full, format: csv, manifest: none.jsonl");
        desk.run(&["run", "-c", "run.yaml"]).expect(3);
        assert!(is_device("full"));
        assert_eq!(desk.read("none.jsonl"), "");
    }
    let left = anonymize(&desk, ".").expect(2);
    assert!(left.err.contains("directory"), "{}", left.err);
}

#[test]
fn standard_output_keeps_the_content_that_a_shell_appends_to() {
    let desk = desk(900);
    pipeline(&desk, "run", FROM_FILE, "path: /dev/stdout, format: csv");
    let run = |arguments: &[&str]| {
        desk.write("kept.csv", "# before\n");
        let out = OpenOptions::new().append(true).open(desk.path("kept.csv")).unwrap();
        let code = desk.command(arguments).stdout(out).status().unwrap().code();
        (code, desk.read("kept.csv").lines().next().map(str::to_owned), desk.read("kept.csv").lines().count())
    };
    let kept = (Some(0), Some("# before".into()), 902);
    assert_eq!(run(&["run", "-c", "run.yaml"]), kept);
    assert_eq!(run(&["anonymize", "-c", "policy.yaml", "in.csv", "-o", "/proc/self/fd/1"]), kept);
}

#[test]
fn a_second_writer_is_refused_and_the_first_goes_on() {
    let desk = desk(900);
    pipeline(&desk, "first", HTTP, "path: out.csv, manifest: manifests.jsonl");
    pipeline(&desk, "rows", FROM_FILE, "path: out.csv");
    pipeline(&desk, "manifest", FROM_FILE, "path: other.csv, manifest: manifests.jsonl");
    let mut first = Service::start(&desk, "first.yaml", "info");
    first.send(jsonl(&people(RELEASE)).as_bytes());
    let released = |lines: usize| desk.path("out.csv").exists() && desk.read("out.csv").lines().count() == lines;
    wait_until("a release", || released(RELEASE + 1));
    for (arguments, file) in [
        (&["run", "-c", "rows.yaml"][..], "out.csv"),
        (&["run", "-c", "manifest.yaml"], "manifests.jsonl"),
        (&["anonymize", "-c", "policy.yaml", "in.csv", "-o", "out.csv"], "out.csv"),
        (
            &["anonymize", "-c", "policy.yaml", "in.csv", "-o", "new.csv", "--report", "manifests.jsonl"],
            "manifests.jsonl",
        ),
    ] {
        let left = desk.run(arguments).expect(3);
        assert!(left.err.contains(file) && left.err.contains("another process"), "{arguments:?}: {}", left.err);
        assert!(released(RELEASE + 1), "{arguments:?}");
    }
    first.send(jsonl(&people(RELEASE)).as_bytes());
    wait_until("a second release", || released(2 * RELEASE + 1));
    first.signal("TERM");
    first.end().expect(0);
    assert_eq!(accounted(&desk, "manifests.jsonl"), [300, 300]);
    assert!(!desk.path("new.csv").exists());
    // Nobody writes it any more.
    desk.run(&["run", "-c", "rows.yaml"]).expect(0);
    assert_eq!(rows(&desk, "out.csv"), 1500);
}

#[test]
fn a_restart_continues_rows_and_manifests() {
    let desk = desk(900);
    for out in ["out.csv", "out.jsonl", "out.avro"] {
        let manifests = format!("{out}-manifests");
        pipeline(&desk, "run", FROM_FILE, &format!("path: {out}, manifest: {manifests}"));
        let mut before = Vec::new();
        for times in 1..=3 {
            desk.run(&["run", "-c", "run.yaml"]).expect(0);
            assert_eq!(rows(&desk, out), 900 * times, "{out}");
            assert_eq!(accounted(&desk, &manifests), vec![300; 3 * times], "{out}");
            let now = fs::read(desk.path(out)).unwrap();
            assert!(now.starts_with(&before), "{out}: what was published stays");
            before = now;
        }
        desk.run(&["verify", "-c", "run.yaml", out]).expect(0);
    }
    assert_eq!(desk.read("out.csv").matches("age").count(), 1, "one header");
    assert!(names(&desk).iter().all(|name| !name.ends_with(".undo")), "{:?}", names(&desk));
}

#[test]
fn a_mode_is_kept_and_the_umask_rules_new_files() {
    let desk = desk(300);
    let outputs = ["out.csv", "report.json", "front.svg", "run.csv", "manifests.jsonl"];
    pipeline(&desk, "run", FROM_FILE, "path: run.csv, manifest: manifests.jsonl");
    let write = || {
        let all = [
            &["anonymize", "-c", "policy.yaml", "in.csv", "-o", "out.csv", "--report", "report.json"][..],
            &["frontier", "-c", "policy.yaml", "in.csv", "--plot", "front.svg"],
            &["run", "-c", "run.yaml"],
        ];
        for arguments in all {
            shell(&desk, "umask 027", arguments).expect(0);
        }
    };
    write();
    assert_eq!(outputs.map(|name| mode(&desk, name)), [0o640; 5]);
    for name in outputs {
        fs::set_permissions(desk.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    write();
    assert_eq!(outputs.map(|name| mode(&desk, name)), [0o600; 5]);
}

#[test]
fn a_full_disk_leaves_whole_releases_only() {
    for out in ["out.csv", "out.jsonl", "out.avro"] {
        let desk = desk(6000);
        pipeline(&desk, "run", FROM_FILE, &format!("path: {out}, manifest: manifests.jsonl"));
        let left = shell(&desk, FULL_DISK, &["run", "-c", "run.yaml"]).expect(3);
        let releases = accounted(&desk, "manifests.jsonl");
        assert!(!releases.is_empty() && releases.len() < 20, "{out}: {}", releases.len());
        assert_eq!(rows(&desk, out) as u64, releases.iter().sum::<u64>(), "{out}");
        assert!(left.err.contains(out) || left.err.contains("manifests.jsonl"), "{}", left.err);
        let before = fs::read(desk.path(out)).unwrap();
        // There is room again: the files go on where they were.
        desk.run(&["run", "-c", "run.yaml"]).expect(0);
        assert!(fs::read(desk.path(out)).unwrap().starts_with(&before));
        assert_eq!(rows(&desk, out), releases.len() * RELEASE + 6000, "{out}");
    }
}

#[test]
fn a_full_disk_leaves_the_last_file_and_no_report() {
    let desk = desk(6000);
    desk.write("out.csv", "the last release\n");
    let arguments = ["anonymize", "-c", "policy.yaml", "in.csv", "-o", "out.csv", "--report", "report.json"];
    let left = shell(&desk, FULL_DISK, &arguments).expect(3);
    assert!(left.err.contains("out.csv"), "{}", left.err);
    assert_eq!(desk.read("out.csv"), "the last release\n");
    assert_eq!(names(&desk), ["out.csv"], "a report would tell of a release that is not there");
}

#[test]
fn a_release_that_a_kill_cut_short_is_taken_back_at_the_next_start() {
    for out in ["out.csv", "out.jsonl", "out.avro"] {
        let desk = desk(6000);
        for (name, sink) in
            [("with", format!("path: {out}, manifest: manifests.jsonl")), ("without", format!("path: bare-{out}"))]
        {
            pipeline(&desk, name, FROM_FILE, &sink);
            let config = format!("{name}.yaml");
            assert_eq!(shell(&desk, KILLED, &["run", "-c", &config]).code, -1, "killed");
            desk.run(&["run", "-c", &config]).expect(0);
        }
        let releases = accounted(&desk, "manifests.jsonl");
        assert!(releases.len() > 20, "{out}: some from before, all from after");
        assert_eq!(rows(&desk, out) as u64, releases.iter().sum::<u64>(), "{out}");
        assert_eq!(rows(&desk, &format!("bare-{out}")) % RELEASE, 0, "{out}");
        assert!(names(&desk).iter().all(|name| !name.ends_with(".undo")), "{:?}", names(&desk));
    }
}

#[test]
fn a_file_that_changed_after_a_kill_is_not_cut() {
    let desk = desk(6000);
    pipeline(&desk, "run", FROM_FILE, "path: out.jsonl");
    assert_eq!(shell(&desk, KILLED, &["run", "-c", "run.yaml"]).code, -1, "killed");
    fs::rename(desk.path("out.jsonl"), desk.path("kept.jsonl")).unwrap();
    let torn = desk.read("kept.jsonl");
    desk.write("out.jsonl", torn.as_str());
    let left = desk.run(&["run", "-c", "run.yaml"]).expect(2);
    assert!(left.err.contains("out.jsonl.undo"), "{}", left.err);
    assert_eq!(desk.read("out.jsonl"), torn);
}

#[test]
fn content_of_other_origin_is_refused_and_not_touched() {
    let desk = desk(900);
    desk.run(&["anonymize", "-c", "policy.yaml", "in.jsonl", "-o", "good.avro"]).expect(0);
    let avro = fs::read(desk.path("good.avro")).unwrap();
    let mut other_schema = Vec::new();
    desk.command(&["generate", "--records", "10", "--format", "avro"])
        .stdout(File::create(desk.path("generated.avro")).unwrap())
        .status()
        .unwrap();
    File::open(desk.path("generated.avro")).unwrap().read_to_end(&mut other_schema).unwrap();
    let cases: [(&str, &[u8]); 12] = [
        ("raw.jsonl", b"{\"id\":\"p1\",\"age\":34,\"job\":\"cook\"}\n"),
        ("order.jsonl", b"{\"job\":\"cook\",\"age\":\"30-39\"}\n"),
        ("text.jsonl", b"notes\n"),
        ("torn.jsonl", b"{\"age\":\"30-39\",\"job\":\"cook\"}\n{\"age\":\"30-"),
        ("columns.csv", b"id,age,job\np1,34,cook\n"),
        ("delimiter.csv", b"age;job\n30-39;cook\n"),
        ("longer.csv", b"age,jobs\n30-39,cook\n"),
        ("torn.csv", b"age,job\n30-39,co"),
        ("text.avro", b"notes\n"),
        ("schema.avro", &other_schema),
        ("torn.avro", &avro[..avro.len() - 5]),
        ("short.avro", &avro[..20]),
    ];
    for (name, content) in cases {
        desk.write(name, content);
        pipeline(&desk, "run", FROM_FILE, &format!("path: {name}, manifest: m.jsonl"));
        let left = desk.run(&["run", "-c", "run.yaml"]).expect(2);
        assert!(left.err.contains(name) && left.err.contains("move it away"), "{name}: {}", left.err);
        assert!(!left.err.contains("p1") && !left.err.contains("cook"), "{name}: {}", left.err);
        assert_eq!(fs::read(desk.path(name)).unwrap(), content, "{name}");
    }
    for content in ["notes\n", "{\"age\":\"30-39\"}\n", "{\"release_id\":\"a\",\"ro"] {
        desk.write("manifests.jsonl", content);
        pipeline(&desk, "run", FROM_FILE, "path: rows.csv, manifest: manifests.jsonl");
        let left = desk.run(&["run", "-c", "run.yaml"]).expect(2);
        assert!(left.err.contains("manifests.jsonl"), "{}", left.err);
        assert_eq!(desk.read("manifests.jsonl"), content);
    }
}

#[test]
fn a_file_that_somebody_else_changes_ends_the_run() {
    let desk = desk(900);
    pipeline(&desk, "run", HTTP, "path: out.csv");
    let mut service = Service::start(&desk, "run.yaml", "info");
    service.send(jsonl(&people(RELEASE)).as_bytes());
    wait_until("a release", || desk.path("out.csv").exists() && desk.read("out.csv").lines().count() == RELEASE + 1);
    OpenOptions::new().write(true).open(desk.path("out.csv")).unwrap().set_len(0).unwrap();
    service.send(jsonl(&people(RELEASE)).as_bytes());
    // Although its input stays open.
    wait_until("the run ends", || service.logs().contains("out.csv was changed"));
    service.end().expect(3);
    assert_eq!(desk.read("out.csv"), "", "no rows without their header");
}

#[test]
fn an_unknown_extension_is_refused_before_anything_is_read() {
    let desk = desk(900);
    for name in ["safe.xlsx", "safe.orc", "safe.gz"] {
        let left = anonymize(&desk, name).expect(2);
        let known = [".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".avro", ".parquet"];
        assert!(left.err.contains(name) && known.iter().all(|known| left.err.contains(known)), "{}", left.err);
    }
    assert!(names(&desk).is_empty(), "{:?}", names(&desk));
    anonymize(&desk, "safe").expect(0);
    assert_eq!(desk.read("safe").lines().count(), 901, "the input's format");
}

#[test]
fn a_file_is_not_written_twice_and_not_over_the_input() {
    let desk = desk(300);
    let input = desk.read("in.csv");
    for arguments in [
        &["anonymize", "-c", "policy.yaml", "in.csv", "-o", "out.csv", "--report", "./out.csv"][..],
        &["anonymize", "-c", "policy.yaml", "in.csv", "-o", "out.csv", "--report", "in.csv"],
        &["frontier", "-c", "policy.yaml", "in.csv", "--plot", "in.csv"],
    ] {
        desk.run(arguments).expect(2);
        assert_eq!(desk.read("in.csv"), input);
        assert!(names(&desk).is_empty(), "{arguments:?}");
    }
}
