//! The finest counts: rows in, rows out, one number per tuple and facet combination.
//!
//! [`FinestCounts`] counts; `snapshot` shows the counts as a frequency set; `followed` says who changed since the last store, as
//! [`Changes`].

mod changes;
mod entries;
mod finest_counts;
mod followed;
mod index;
mod snapshot;
mod sorted;

pub(super) use changes::{Belongings, Changes};
pub(super) use finest_counts::FinestCounts;
pub(super) use index::KeyIndex;
