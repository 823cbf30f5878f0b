//! Lattice searches: one algorithm per file, all behind [`Search`].
//!
//! A search asks the [`Evaluator`] about nodes and never touches rows; it never mutates the lattice; randomness and time
//! are passed in. To add one: a file with an `impl Search`, a name in [`Algorithm`], an arm in [`Algorithm::search`]; if it
//! looks for anything but the least loss, [`Search::aim`] says for what.
//! Every search passes the suite in `tests/search.rs`.

pub mod aim;
mod algorithm;
mod auto;
mod budget;
pub mod choose;
pub mod evaluator;
pub mod evolutionary;
pub mod exact;
#[cfg(test)]
pub(crate) mod fixture;
pub mod front;
pub mod greedy;
pub mod insight;
mod interface;
mod publishable;
mod tags;
mod trials;

pub use algorithm::{Algorithm, Tuning};
pub use budget::{Budget, StopReason};
pub use interface::{Candidate, Outcome, Search};
pub(crate) use interface::{TIE, is_better, keep_best};
