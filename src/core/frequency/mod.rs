//! Counting: how many records and people share their generalized values, at any node of the lattice.
//!
//! ```text
//!  rows ──> counts/ ──snapshot──> set/ (finest) ──rollup──> set/ (any node) <── store ── searches ask here
//!             │                       sum/ adds the classes up                  ^
//!             └──who changed since the last store──> follow/ ──node counts──────┘   (sliding windows)
//! ```
//! A class is the rows that share their generalized values; a [`set`] holds the classes of one node, by packed [`key`]. The
//! [`counter`] takes rows in and out, and makes a [`store`] when a window closes. The store rolls sets up from the smallest finer set that
//! it holds. When a window slides, [`follow`] keeps the counts of the nodes that the last search asked for up to date instead.
//!
//! # What a question costs
//! With n finest classes, m classes of the smallest finer set at hand, and c changes since the last store:
//!
//! | question | first time | in a store that follows another |
//! |---|---|---|
//! | `base().records()`, `marginals` | n | c |
//! | `set(node)` | m (one rollup) | classes of the node, copied from its node counts |
//! | `ask(node, question)` | m, then one pass over the classes | c, and only changed classes are judged |
//! | `regroup(recoding)` for cuts | n | n, after a full count |
//! | the same question again | a look-up | a look-up |
//!
//! Subjects and histograms are merged when they are first looked at, and multiply m and c by the entries per class. Where only the number
//! of different values in a class matters, a bit per value is merged and no histogram. No class has more
//! people than records, so a node whose classes have too few records is settled without either.
//!
//! # Invariants
//! - A class's `size` is the number of distinct subjects in it (records, when no subject is configured), exact at every node. Distinct
//!   counts are never added up: subjects that straddle classes are listed with them and merged with them.
//! - Whatever a store answers equals a full count of its rows at its moment; later changes never reach it.
//! - A rolled-up set, a followed one and a counted one differ in the order of their classes only.
//! - Files depend downwards: key, sum, set, rollup, store, counts, follow, counter.

pub mod counter;
mod counts;
mod follow;
pub mod key;
mod rollup;
pub mod set;
pub mod store;
mod sum;
