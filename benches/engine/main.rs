//! The engine alone: where each nanosecond of a record goes, records per second on one and on two cores, bytes per buffered record.
//!
//! `cargo bench --bench engine` runs everything but `-- anonymize 5000000 20000000` (files of so many records); `-- stages`, `-- flow`, `-- memory`, `-- intake` (with warm rollups, and without),
//! `-- slide` (one slide of a sliding window, and the same window begun anew) and `-- long` (a thousand windows) run one part; `-- --save` keeps the ratios as the new baseline. Every figure is also a ratio to a reference kernel that is timed in the same run, so that runs on other machines
//! and beside other work can be compared; what has moved by more than [`MARGIN`] since the baseline is said at the end.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../tests/common/adult.rs"]
mod adult;
mod baseline;
mod batch;
#[path = "../../tests/common/fixture.rs"]
mod fixture;
mod flow;
mod long;
mod people;
mod slide;
mod stages;

use std::process::Command;

use baseline::{shortest, timed};
use people::Case;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What has moved by more is said. Smaller: neighbours on the machine are reported as changes. Larger: changes hide.
const MARGIN: f64 = 0.25;

/// Records per window, as the targets say.
const WINDOW: usize = 50_000;

/// Behind the name of a case: the same with `recoding: local`.
const LOCAL: &str = "-local";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let save = arguments.iter().any(|a| a == "--save");
    let words: Vec<&str> = arguments.iter().map(String::as_str).filter(|a| *a != "--save").collect();
    match words[..] {
        ["flow-here", case, windows] => return flow::run(&named(case), windows.parse().expect("a number")),
        ["memory-here", case] => return flow::memory(&named(case)),
        ["entries-here", case] => return flow::entries(&named(case)),
        ["long-here", case] => return long::endure(case),
        ["anonymize", ref sizes @ ..] => {
            return batch::run(&sizes.iter().map(|size| size.parse().expect("a number")).collect::<Vec<_>>());
        }
        _ => {}
    }
    let wanted = |part: &str| words.is_empty() || words.contains(&part);
    let mut figures = Vec::new();
    if wanted("stages") {
        for case in Case::all() {
            figures.extend(stages::run(&case));
        }
    }
    if wanted("flow") {
        Case::all().iter().for_each(rates);
    }
    if wanted("memory") {
        for case in Case::all() {
            child(&["memory-here", case.name], None);
            child(&["entries-here", case.name], None);
        }
    }
    if wanted("intake") {
        Case::all().iter().for_each(long::intake);
    }
    if wanted("slide") {
        for case in Case::all().iter().filter(|case| case.name != "adult") {
            figures.extend(slide::run(case));
        }
    }
    if wanted("long") {
        for case in ["records", "people", "records-sliding", "people-sliding"] {
            child(&["long-here", case], None);
        }
    }
    baseline::compare("engine/baseline.json", MARGIN, &figures, save);
}

/// Prints the rates of a case on one core and on two, and what is left of them with local recoding.
fn rates(case: &Case) {
    let local = format!("{}{LOCAL}", case.name);
    for cores in [1, 2] {
        let best = |case: &str| {
            let seen = (0..3).filter_map(|_| child(&["flow-here", case, "12"], Some(cores)));
            seen.fold((f64::MAX, 0.0f64), |best, seen| (best.0.min(seen.0), best.1.max(seen.1)))
        };
        let (best, local) = (best(case.name), best(&local));
        println!("{:<10} with local {:.2} of the rate by processor time (asked: 0.6)", case.name, best.0 / local.0);
        println!(
            "{:<10} {:>10.0} records/s on {cores} core{}, {:.0} ns of processor time per record",
            case.name,
            best.1,
            if cores == 1 { "" } else { "s" },
            best.0,
        );
    }
}

fn named(name: &str) -> Case {
    let full = name.strip_suffix(LOCAL).unwrap_or(name);
    let case = Case::all().into_iter().find(|case| case.name == full).expect("a case");
    if full == name { case } else { case.local() }
}

/// Runs this program again, on so many cores; gives the two numbers it prints.
fn child(arguments: &[&str], cores: Option<usize>) -> Option<(f64, f64)> {
    let exe = std::env::current_exe().expect("this program");
    let mut command = match cores {
        Some(cores) => {
            let mut command = Command::new("taskset");
            command.args(["-c", &format!("0-{}", cores - 1)]).arg(exe).env("RAYON_NUM_THREADS", cores.to_string());
            command
        }
        None => Command::new(exe),
    };
    let output = command.args(arguments).output().expect("taskset, of util-linux");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    match cores {
        Some(_) => {
            let (busy, rate) = text.trim().split_once(' ')?;
            Some((busy.parse().ok()?, rate.parse().ok()?))
        }
        None => {
            print!("{text}");
            None
        }
    }
}
