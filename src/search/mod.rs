//! Lattice searches: one algorithm per file, all behind [`Search`].
//!
//! A search asks the [`Evaluator`] about nodes and never touches rows; it never mutates the lattice; randomness and time
//! are passed in. To add one: a file with an `impl Search`, a name in [`Algorithm`], an arm in [`Algorithm::search`]; if it
//! looks for anything but the least loss, [`Search::aim`] says for what.
//! Every search passes the suite in `tests/search.rs`.

pub mod aim;
pub mod auto;
pub mod bottom_up;
mod chain;
pub mod choose;
mod cover;
pub mod evaluator;
pub mod exhaustive;
#[cfg(test)]
pub(crate) mod fixture;
pub mod front;
pub mod frontier;
pub mod genetic;
pub mod granulation;
pub mod granulation_ga;
pub mod insight;
pub mod objectives;
pub mod operators;
pub mod optimal;
mod packing;
pub mod pbg_ea;
pub mod preference;
mod publishable;
pub mod subtree;
pub mod tabu;
pub mod tabu_ga;
mod tags;
mod tea;
pub mod top_down;
mod trials;
mod tuning;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::Rng;

use crate::model::lattice::{Lattice, Node};
use crate::model::recoding::Recoding;
use aim::Aim;
use evaluator::{Evaluation, Evaluator};
use objectives::Front;
pub use tuning::Tuning;

/// The searches a user can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// The proven optimum where the budget allows it, else the best of `tabu-ga`.
    Auto,
    /// Least loss, proven, by bounds.
    Optimal,
    /// Least loss, by counting every node.
    Exhaustive,
    /// Incognito.
    BottomUp,
    /// Subtree recoding by the TEA index.
    SubtreeBottomUp,
    /// User-oriented specialization by priorities.
    TopDown,
    /// The same, past the policy and back.
    TopDownExtended,
    /// Every minimal secure node, breadth-first.
    Granulation,
    /// Security times quality, by a genetic algorithm.
    GranulationGa,
    /// Tabu search inside a genetic algorithm.
    TabuGa,
    /// The genetic algorithm alone.
    Genetic,
    /// Tabu search alone.
    Tabu,
    /// The trade-off between objectives, and one point of it.
    PbgEa,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Self; 13] = [
        Self::Auto,
        Self::Optimal,
        Self::Exhaustive,
        Self::BottomUp,
        Self::SubtreeBottomUp,
        Self::TopDown,
        Self::TopDownExtended,
        Self::Granulation,
        Self::GranulationGa,
        Self::TabuGa,
        Self::Genetic,
        Self::Tabu,
        Self::PbgEa,
    ];

    /// The name a user writes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Optimal => "optimal",
            Self::Exhaustive => "exhaustive",
            Self::BottomUp => "bottom-up",
            Self::SubtreeBottomUp => "subtree-bottom-up",
            Self::TopDown => "top-down",
            Self::TopDownExtended => "top-down-extended",
            Self::Granulation => "granulation",
            Self::GranulationGa => "granulation-ga",
            Self::TabuGa => "tabu-ga",
            Self::Genetic => "genetic",
            Self::Tabu => "tabu",
            Self::PbgEa => "pbg-ea",
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
            Self::Auto => Box::new(auto::Auto { fallback: tuning.tabu_ga() }),
            Self::Optimal => Box::new(optimal::Optimal),
            Self::Exhaustive => Box::new(exhaustive::Exhaustive),
            Self::BottomUp => Box::new(bottom_up::BottomUp),
            Self::TabuGa => Box::new(tuning.tabu_ga()),
            Self::Genetic => Box::new(tuning.genetic()),
            Self::Tabu => Box::new(tuning.tabu()),
            Self::PbgEa => Box::new(tuning.pbg_ea()),
            Self::SubtreeBottomUp => Box::new(subtree::SubtreeBottomUp::default()),
            Self::TopDown => Box::new(top_down::TopDown::default()),
            Self::TopDownExtended => Box::new(top_down::TopDown { extended: true, ..Default::default() }),
            Self::Granulation => Box::new(granulation::Granulation),
            Self::GranulationGa => Box::new(granulation_ga::GranulationGa::default()),
        }
    }

    /// The search, to go on from a recoding that may only coarsen.
    pub fn search_from(self, last: &Recoding, tuning: &Tuning) -> Box<dyn Search> {
        match (self, last) {
            (Self::SubtreeBottomUp, Recoding::Cuts(cuts)) => {
                Box::new(subtree::SubtreeBottomUp { from: Some(cuts.clone()), refine: true })
            }
            _ => self.search_with(tuning),
        }
    }
}

/// One lattice search.
pub trait Search: Send + Sync {
    /// Looks for the best satisfying recoding in `lattice` until it is found or the budget is spent.
    fn run(&self, lattice: &Lattice, evaluator: &Evaluator<'_>, budget: &Budget, rng: &mut dyn Rng) -> Outcome;

    /// Which recoding is the best; `front` is the trade-off that it has found, if it looks for one.
    fn aim(&self, _evaluator: &Evaluator<'_>, _front: Option<&Front>) -> Aim {
        Aim::LeastLoss
    }
}

/// When to stop. Anytime: a search checks it before every node it counts.
#[derive(Debug, Clone)]
pub struct Budget {
    /// Nodes that may be counted.
    pub max_checks: u64,
    /// When to stop by the clock.
    pub deadline: Option<Instant>,
    /// Raised from outside to stop at once.
    pub cancelled: Arc<AtomicBool>,
}

impl Budget {
    /// No limit at all.
    pub fn unlimited() -> Self {
        Self { max_checks: u64::MAX, deadline: None, cancelled: Arc::default() }
    }

    /// A limit on time from `now`.
    pub fn within(now: Instant, time: Duration) -> Self {
        Self { deadline: now.checked_add(time), ..Self::unlimited() }
    }

    /// A share of what is left of it from `now` on, when so many nodes were counted.
    fn part(&self, share: f64, checks: u64, now: Instant) -> Self {
        let mut part = self.clone();
        if self.max_checks < u64::MAX {
            let left = self.max_checks.saturating_sub(checks);
            part.max_checks = checks + (left as f64 * share).ceil() as u64;
        }
        part.deadline = self.deadline.map(|deadline| now + deadline.saturating_duration_since(now).mul_f64(share));
        part
    }

    /// The reason to stop now, if there is one.
    pub fn spent(&self, evaluator: &Evaluator<'_>) -> Option<StopReason> {
        match self.interrupted() {
            Some(StopReason::Deadline) | None if evaluator.checks() >= self.max_checks => Some(StopReason::Budget),
            reason => reason,
        }
    }

    /// The reason to stop even work that counts no node.
    pub fn interrupted(&self) -> Option<StopReason> {
        if self.cancelled.load(Ordering::Relaxed) {
            Some(StopReason::Cancelled)
        } else if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            Some(StopReason::Deadline)
        } else {
            None
        }
    }
}

/// Why a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// It has nothing left to try; its answer is its best, not proven optimal.
    Exhausted,
    /// Its answer has the least loss of all satisfying nodes, or there is none.
    Proven,
    /// It has counted as many nodes as it may.
    Budget,
    /// Its time is over.
    Deadline,
    /// It was told to stop.
    Cancelled,
}

impl StopReason {
    /// Every reason.
    pub const ALL: [Self; 5] = [Self::Exhausted, Self::Proven, Self::Budget, Self::Deadline, Self::Cancelled];

    /// The word for reports and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Proven => "proven",
            Self::Budget => "budget",
            Self::Deadline => "deadline",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A recoding that satisfies the policy, and what it costs.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The recoding; a node, from a search of full-domain generalizations.
    pub recoding: Recoding,
    /// Its evaluation.
    pub evaluation: Evaluation,
}

/// What a search found.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The best satisfying recoding it saw.
    pub best: Option<Candidate>,
    /// Why it ended.
    pub stop: StopReason,
    /// The least loss that any node could still have; equals the best's when proven.
    pub bound: f64,
    /// Nodes whose status was derived and not counted.
    pub predicted: u64,
    /// The minimal satisfying nodes, from searches that know them all.
    pub minimal: Vec<Node>,
    /// The trade-off, from searches that look for one.
    pub front: Option<Front>,
}

/// Losses nearer than this are the same: sums over classes differ in their last digits with the order of the classes.
/// Larger would call different nodes equal, smaller would let rounding choose between equal ones.
const TIE: f64 = 1e-12;

/// True if a node of this loss is the better answer. Ties go to the lower, then lexicographically smaller node, so that
/// every search that sees the same nodes returns the same one.
pub(crate) fn is_better(loss: f64, node: &Node, than: f64, other: &Node) -> bool {
    if (loss - than).abs() > TIE {
        return loss < than;
    }
    (node.height(), node.levels()) < (other.height(), other.levels())
}

/// Keeps the better of two candidates.
pub(crate) fn keep_best(best: &mut Option<Candidate>, node: &Node, evaluation: &Evaluation) {
    if !evaluation.satisfies {
        return;
    }
    let better = match best {
        None => true,
        Some(b) => is_better(evaluation.loss, node, b.evaluation.loss, &b.recoding.coarsest()),
    };
    if better {
        *best = Some(Candidate { recoding: node.clone().into(), evaluation: evaluation.clone() });
    }
}
