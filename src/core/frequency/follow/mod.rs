//! Following a sliding window: one way for sizes, histograms and people alike.
//!
//! ```text
//! FinestCounts ──who changed──> Changes ──Step per node──> NodeCounts of every node that the last search asked for
//! ```
//! [`Follower`] makes store after store; a [`FollowedStore`] answers from node counts that it takes over from the store before it.
//! The work of a slide is proportional to what changed, times the nodes that are followed; the window itself is not looked at.

mod followed_classes;
mod followed_store;
mod follower;
mod histograms;
mod node_counts;

pub(super) use follower::Follower;
