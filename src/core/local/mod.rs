//! Local recoding: dense regions of a window stay fine, sparse ones are coarsened.
//!
//! A [`Schedule`](crate::model::schedule::Schedule) is a list of lattice nodes from fine to coarse. At each node the classes of the records that are left and satisfy the
//! policy are released, and the rest goes on to the next node. A schedule is learnt from past windows ([`learn()`]) and applied to later ones
//! ([`apply()`]). Applying needs no search: it groups the distinct tuples that are left, once per node.
//!
//! ```text
//! Rows ─Table::new→ Table ─┬─ learn (background) → Schedule
//!                          └─ apply(Schedule) → Regions: the class of every row, one label per attribute and class
//! ```
//! - `table`: the distinct tuples of a window, with the rows of each.
//! - `terms`: level bounds, weights and rules; what each cell becomes and costs at each level.
//! - `count`: classes of tuples at a node, and the judgement on them.
//! - `apply`: the walk, who goes on to a later step, tight labels, records that no node released, equal labels.
//! - `regions`: the result.
//! - `learn`: the greedy search for a schedule.
//!
//! Deliberately absent: rules about the release as a whole. The gate counts every release again; where it refuses, the caller starts
//! at a coarser step.

mod apply;
mod count;
mod learn;
mod regions;
mod table;
mod terms;
#[cfg(test)]
mod tests;

pub use apply::{Admission, StepClass, apply, apply_admitting, walk};
pub use learn::{Effort, learn};
pub use regions::Regions;
pub use table::Table;
pub use terms::Terms;
