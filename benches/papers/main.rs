//! `cargo bench --bench papers`: the tables of the papers and ours, side by side.
//!
//! One module per paper; arguments name the modules to run (all without arguments). The Adult data is read from
//! `$VEILSTREAM_DATA`, or `../shared/data` beside the repository; what needs it is not measured, and says so, where it is
//! absent. `tests/papers.rs` runs a short form of the same modules.
#![allow(
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::type_complexity
)]

#[path = "../../tests/common/adult.rs"]
mod adult;
mod cuts;
mod data;
#[path = "../../tests/common/fixture.rs"]
mod fixture;
mod granulation;
mod pbg;
mod tabu;
mod users;

use data::{Effort, FULL, Sheet};

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let papers: [(&str, fn(&Effort) -> Vec<Sheet>); 5] = [
        ("pbg", pbg::sheets),
        ("cuts", cuts::sheets),
        ("users", users::sheets),
        ("granulation", granulation::sheets),
        ("tabu", tabu::sheets),
    ];
    let (mut missed, mut unmeasured) = (Vec::new(), Vec::new());
    for (name, sheets) in papers.into_iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|w| w == name)) {
        for sheet in sheets(&FULL) {
            print!("{sheet}");
            match sheet.reached {
                Some(false) => missed.push(name),
                None => unmeasured.push(name),
                Some(true) => {}
            }
        }
    }
    println!("\nmissed: {}; not compared: {}", listed(&missed), listed(&unmeasured));
    std::process::exit(i32::from(!missed.is_empty()));
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "nothing".into() } else { names.join(", ") }
}
