//! The words for a release: which records it has, how it is made again, and what is said about it.

pub mod audience;
pub mod dead_letter;
pub mod manifest;
pub mod plan;
pub mod row_levels;
pub mod runs;
pub mod spans;
pub mod spread;
pub mod tombstone;
mod words;
