//! The pure part of Veilstream: from a record to a release that the gate let through. No input, no output, no clock.

// The fixture of the tests names the package as tests outside it do.
#[cfg(test)]
extern crate self as veilstream;

pub mod anonymizer;
pub mod district;
pub mod encode;
pub mod failpoint;
pub mod frequency;
pub mod gate;
pub mod generalize;
pub mod local;
pub mod loss;
pub mod model;
pub mod privacy;
pub mod render;
pub mod search;
pub mod usefulness;
pub mod window;
