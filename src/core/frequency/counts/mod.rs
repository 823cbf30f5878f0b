//! The finest counts: rows in, rows out, one number per tuple and facet combination.
//!
//! [`scan`] counts the rows of a window that has closed; [`FinestCounts`] those of one that moves on; `snapshot` shows the counts as a frequency set; `followed` says who changed since the last store, as
//! [`Changes`].

mod changes;
mod entries;
mod finest_counts;
mod followed;
mod index;
mod scan;
mod snapshot;
mod sorted;

pub(super) use changes::{Belongings, Changes};
pub(super) use finest_counts::FinestCounts;
pub(super) use index::KeyIndex;
pub(super) use scan::scan;
