//! Exact searches: each proves its answer, or says that its budget ended before the proof.

pub mod bottom_up;
mod chain;
mod cover;
pub mod exhaustive;
pub mod granulation;
pub mod optimal;
mod packing;
