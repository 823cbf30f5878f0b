//! The parameters of the evolutionary searches, as a user may set them.

use super::genetic::Genetic;
use super::objectives::{Objective, Prefer};
use super::pbg_ea::PbgEa;
use super::tabu::Tabu;
use super::tabu_ga::TabuGa;

/// The parameters of the evolutionary searches. What is not given is as in the search's paper.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tuning {
    /// How many nodes live at a time; positive.
    pub population: Option<usize>,
    /// How many generations (`tabu`: steps).
    pub iterations: Option<usize>,
    /// What `pbg-ea` trades off; empty means `k` and `glm`.
    pub objectives: Vec<Objective>,
    /// Which point of its front `pbg-ea` picks.
    pub prefer: Prefer,
    /// Sides of the boxes of `pbg-ea`'s archive, as values of their objectives.
    pub epsilon: Vec<(Objective, f64)>,
}

impl Tuning {
    pub(super) fn genetic(&self) -> Genetic {
        let paper = Genetic::default();
        Genetic {
            population: self.population.unwrap_or(paper.population),
            cycles: self.iterations.unwrap_or(paper.cycles),
        }
    }

    pub(super) fn tabu(&self) -> Tabu {
        Tabu { cycles: self.iterations.unwrap_or(Tabu::default().cycles) }
    }

    pub(super) fn tabu_ga(&self) -> TabuGa {
        let paper = TabuGa::default();
        TabuGa {
            population: self.population.unwrap_or(paper.population),
            cycles: self.iterations.unwrap_or(paper.cycles),
            seeds: paper.seeds,
        }
    }

    /// `pbg-ea` with these parameters.
    pub fn pbg_ea(&self) -> PbgEa {
        let paper = PbgEa::default();
        let objectives = if self.objectives.is_empty() { paper.objectives } else { self.objectives.clone() };
        PbgEa {
            objectives,
            epsilon: self.epsilon.clone(),
            prefer: self.prefer.clone(),
            population: self.population.unwrap_or(paper.population),
            iterations: self.iterations.unwrap_or(paper.iterations),
        }
    }
}
