//! Counting: the incremental base set, rollup, and the store that hands out snapshots.
//!
//! Invariant: a class's `size` is the number of distinct subjects in it (records, when no subject is configured), exact
//! at every node. Distinct counts are never added up: subjects that straddle tuples are kept apart and merged with them.

pub mod base;
mod book;
mod changes;
pub mod counter;
pub mod deferred;
mod dense;
mod entries;
mod epoch;
mod exported;
mod flat;
mod glance;
mod index;
pub mod key;
mod ledger;
mod levels;
mod marginal;
mod near;
pub mod outline;
mod probe;
pub mod rollup;
pub mod set;
mod sets;
mod sieve;
mod sorted;
pub mod spread;
pub mod store;
mod table;
mod tallies;
pub mod tally;
mod totals;
mod warm;
