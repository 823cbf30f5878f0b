//! The vocabulary every room speaks. No I/O, no async, no clock, no randomness, no globals.

pub mod batch;
pub mod confidential;
pub mod counting;
pub mod domain;
pub mod event;
pub mod hierarchy;
pub mod lattice;
pub mod policy;
pub mod recoding;
pub mod record;
pub mod release;
pub mod schedule;
pub mod schema;
