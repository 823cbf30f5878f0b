//! What a table of personal records is like, field by field, before there is a policy: types, gaps, and how far fields single
//! people out alone and in combination; and a proposal which field identifies, which is sensitive, and which hierarchy fits.
//!
//! ```text
//! Event ─Intake (names of the fields from the first records)→ Record ─Profiler→ FieldValues (per field), RowSample (rows as hashes)
//!       ─TableProfile→ SinglingOut (of one, two, three fields) ─propose→ RoleProposal, HierarchyProposal
//! ```
//! One pass, bounded memory. Counts of records, gaps and types are of the whole input. Everything that compares records is exact
//! for up to [`sample::MAX_CELLS`] cells; of a larger input the sample keeps all records of a random part of the people, and
//! `TableProfile::whole` says so. Numbers of distinct values are then estimates of a sketch ([`distinct`]).
//!
//! Invariant: a profile has no value of a record in it, but for values of small domains that enough people share
//! ([`TableProfile::shared_values`]).

pub(crate) mod column;
mod distinct;
pub(crate) mod fields;
pub(crate) mod hierarchies;
mod intake;
pub(crate) mod names;
pub(crate) mod roles;
pub(crate) mod sample;

pub(crate) use intake::{Combination, Intake, TableProfile};
pub(crate) use roles::{ProposedRole, RoleProposal, propose};
pub(crate) use sample::SinglingOut;
