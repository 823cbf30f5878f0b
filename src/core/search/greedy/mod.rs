//! Greedy searches: each step takes the best move at hand, and none proves that no better answer exists.

mod information;
mod parts;
pub mod subtree;
mod tea;
pub mod top_down;
