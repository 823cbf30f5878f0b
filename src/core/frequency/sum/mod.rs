//! Adding classes up: the one kernel behind rollups, recodings and the views of attackers.
//!
//! ```text
//! keys, rows ── Step per attribute (finer code -> coarser code) ──> classes: keys, rows [, class of each finer key]
//! ```
//! [`Sums::sum`] picks one of three ways, and nothing outside this folder knows which:
//! - [`placed`]: every coarser class has a place in a small flat table. Nothing is looked for; the result is in place order.
//! - [`runs`]: the finer keys ascend from some bit on, so only the classes inside one run of equal high bits need places.
//! - [`hashed`]: open addressing. It is several times as slow, and always possible.
//!
//! Invariant: all three return the same classes with the same rows; only their order differs.

mod hashed;
mod placed;
pub(super) mod places;
pub(super) mod probe;
mod runs;
mod step;
mod sums;

pub(super) use step::{Step, in_place};
pub(super) use sums::{Codes, FinerClasses, Summed, Sums};
