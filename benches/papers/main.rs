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
    // Whether every figure reaches its paper's; none where the data is absent.
    let papers: [(&str, fn() -> Option<bool>); 2] = [("pbg", pbg::run), ("tabu", || Some(tabu::run()))];
    let chosen = papers.into_iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|w| w == name));
    let (mut missed, mut skipped) = (false, false);
    for reached in chosen.map(|(_, run)| run()) {
        skipped |= reached.is_none();
        missed |= reached == Some(false);
    }
    println!(
        "\n{}",
        match (missed, skipped) {
            (true, _) => "at least one figure misses its paper's",
            (false, true) => "SKIPPED in part: no Adult data; no figure that was looked at misses its paper's",
            (false, false) => "every figure reaches its paper's",
        }
    );
    std::process::exit(i32::from(missed));
}
