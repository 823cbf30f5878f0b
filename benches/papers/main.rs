//! `cargo bench --bench papers`: the tables of the papers and ours, side by side.
//!
//! One module per paper; arguments name the modules to run (all without arguments). The Adult data is read from
//! `$VEILSTREAM_DATA`, or `../shared/data` beside the repository; what needs it is skipped, and says so, where it is absent.
#![allow(
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::type_complexity
)]

mod data;
mod pbg;
mod tabu;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let papers: [(&str, fn() -> bool); 2] = [("pbg", pbg::run), ("tabu", tabu::run)];
    let mut missed = false;
    for (name, run) in papers {
        if wanted.is_empty() || wanted.iter().any(|w| w == name) {
            missed |= !run();
        }
    }
    println!(
        "\n{}",
        if missed { "at least one figure misses its paper's" } else { "every figure reaches its paper's" }
    );
    std::process::exit(i32::from(missed));
}
