//! The searches by the names that users write, and the one place that makes a search from its name and parameters.

use super::auto::Auto;
use super::evolutionary::genetic::{Genetic, GeneticCycle};
use super::evolutionary::granulation_ga::GranulationGa;
use super::evolutionary::pbg_ea::PbgEa;
use super::evolutionary::tabu::{Tabu, Walking};
use super::evolutionary::tabu_ga::TabuGa;
use super::exact::bottom_up::BottomUp;
use super::exact::exhaustive::Exhaustive;
use super::exact::granulation::Granulation;
use super::exact::optimal::Optimal;
use super::front::objectives::{Objective, Prefer};
use super::greedy::subtree::SubtreeBottomUp;
use super::greedy::top_down::{Extension, TopDown};
use super::interface::Search;
use crate::model::recoding::Recoding;
use crate::model::words;

words! {
    /// A search algorithm.
    #[derive(Default)]
    pub enum Algorithm {
        /// The proven optimum where the budget allows it, else the best of `tabu-ga`.
        #[default]
        Auto = "auto",
        /// The node of least loss, proven, with pruning.
        Optimal = "optimal",
        /// Every node, no pruning.
        Exhaustive = "exhaustive",
        /// Incognito: all satisfying nodes, by subset size.
        BottomUp = "bottom-up",
        /// Subtree recoding: each value at a level of its own.
        SubtreeBottomUp = "subtree-bottom-up",
        /// The node that shows the most values, by the priorities of the quasi-identifiers.
        TopDown = "top-down",
        /// The same, past the policy and back, for a better score.
        TopDownExtended = "top-down-extended",
        /// Every minimal secure node, breadth-first from the finest. Needs a `confidential` criterion.
        Granulation = "granulation",
        /// Greatest security times quality, by a genetic algorithm. Needs a `confidential` criterion.
        GranulationGa = "granulation-ga",
        /// Tabu search inside a genetic algorithm.
        TabuGa = "tabu-ga",
        /// The genetic algorithm alone.
        Genetic = "genetic",
        /// Tabu search alone.
        Tabu = "tabu",
        /// The trade-off between `objectives`, and one point of it.
        PbgEa = "pbg-ea",
    }
}

impl Algorithm {
    /// What it looks for, where that is not the least loss by the policy's metric.
    pub fn looks_for(self) -> Option<&'static str> {
        match self {
            Self::TopDown | Self::TopDownExtended => Some("the highest score by the priorities"),
            Self::Granulation => Some("the minimal nodes, and takes the one of least loss among them"),
            Self::GranulationGa => Some("the greatest security times quality"),
            Self::PbgEa => Some("a trade-off between its objectives, and takes the preferred point of it"),
            _ => None,
        }
    }

    /// The algorithm of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.as_str() == name)
    }

    /// The search itself, with its paper's parameters.
    pub fn search(self) -> Box<dyn Search> {
        self.search_with(&Tuning::default())
    }

    /// The search itself.
    pub fn search_with(self, tuning: &Tuning) -> Box<dyn Search> {
        match self {
            Self::Auto => Box::new(Auto { fallback: tuning.tabu_ga() }),
            Self::Optimal => Box::new(Optimal),
            Self::Exhaustive => Box::new(Exhaustive),
            Self::BottomUp => Box::new(BottomUp),
            Self::TabuGa => Box::new(tuning.tabu_ga()),
            Self::Genetic => Box::new(tuning.genetic()),
            Self::Tabu => Box::new(tuning.tabu()),
            Self::PbgEa => Box::new(tuning.pbg_ea()),
            Self::SubtreeBottomUp => Box::new(SubtreeBottomUp { from: None, refine: !tuning.as_printed }),
            Self::TopDown => Box::new(TopDown { margin: tuning.margin, ..TopDown::default() }),
            Self::TopDownExtended => {
                let extension = if tuning.as_printed { Extension::Printed } else { Extension::Complete };
                Box::new(TopDown { extension, margin: tuning.margin })
            }
            Self::Granulation => Box::new(Granulation),
            Self::GranulationGa => Box::new(tuning.granulation_ga()),
        }
    }

    /// The search, to go on from a recoding that may only coarsen.
    pub fn search_from(self, last: &Recoding, tuning: &Tuning) -> Box<dyn Search> {
        match (self, last) {
            (Self::SubtreeBottomUp, Recoding::Cuts(cuts)) => {
                Box::new(SubtreeBottomUp { from: Some(cuts.clone()), refine: !tuning.as_printed })
            }
            _ => self.search_with(tuning),
        }
    }
}

/// The parameters of the evolutionary searches. What is not given is as in the search's paper.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tuning {
    /// How many nodes live at a time; positive.
    pub population: Option<usize>,
    /// How many generations (`tabu`: steps).
    pub iterations: Option<usize>,
    /// At how many points `tabu-ga` and `genetic` cut a pair; 1 or 2.
    pub crossover_points: Option<usize>,
    /// The walks of `tabu-ga` and `tabu`.
    pub walking: Walking,
    /// What `pbg-ea` trades off; empty means `k` and `glm`.
    pub objectives: Vec<Objective>,
    /// Which point of its front `pbg-ea` picks.
    pub prefer: Prefer,
    /// Sides of the boxes of `pbg-ea`'s archive, as values of their objectives.
    pub epsilon: Vec<(Objective, f64)>,
    /// How likely two parents of `pbg-ea` and `granulation-ga` are crossed.
    pub crossover: Option<f64>,
    /// How likely an attribute (`granulation-ga`: a bit) of their children changes.
    pub mutation: Option<f64>,
    /// The p of `top-down`: by how much the groups of an attribute alone exceed k where it starts.
    pub margin: u32,
    /// `subtree-bottom-up`, `top-down-extended` and `pbg-ea` as their papers print them.
    pub as_printed: bool,
    /// How likely a confidential sentence is without a `prior`: in all windows so far, and not in the release.
    pub learns_priors: bool,
}

impl Tuning {
    fn granulation_ga(&self) -> GranulationGa {
        let paper = GranulationGa::default();
        GranulationGa {
            population: self.population.unwrap_or(paper.population),
            generations: self.iterations.unwrap_or(paper.generations),
            crossover: self.crossover.unwrap_or(paper.crossover),
            mutation: self.mutation,
        }
    }

    fn cycle(&self, paper: GeneticCycle) -> GeneticCycle {
        GeneticCycle {
            population: self.population.unwrap_or(paper.population),
            cycles: self.iterations.unwrap_or(paper.cycles),
            crossover_points: self.crossover_points.unwrap_or(paper.crossover_points),
        }
    }

    fn genetic(&self) -> Genetic {
        Genetic { cycle: self.cycle(Genetic::default().cycle), mutation: self.mutation }
    }

    fn tabu(&self) -> Tabu {
        let cycles = self.iterations.unwrap_or(Tabu::default().walking.cycles);
        Tabu { walking: Walking { cycles, ..self.walking.clone() } }
    }

    fn tabu_ga(&self) -> TabuGa {
        let paper = TabuGa::default();
        TabuGa { cycle: self.cycle(paper.cycle), walking: self.walking.clone(), seeds: paper.seeds }
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
            crossover: self.crossover.unwrap_or(paper.crossover),
            mutation: self.mutation,
            as_printed: self.as_printed,
        }
    }
}
