//! Evolutionary searches: they breed or walk nodes at random. A seed fixes the result.

pub mod genetic;
pub mod granulation_ga;
pub mod operators;
pub mod pbg_ea;
pub mod tabu;
pub mod tabu_ga;
