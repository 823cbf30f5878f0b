//! Greedy searches: each step takes the best move at hand, and none proves that no better answer exists.

pub mod subtree;
mod tea;
pub mod top_down;
