//! Trade-offs between objectives: dominance, the bounded archive, the objectives and the choice of one point.

pub mod archive;
pub mod frontier;
pub mod objectives;
pub mod preference;
