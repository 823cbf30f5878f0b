//! What a search is after: how recodings that satisfy the policy compare by its own lights.
//!
//! A search returns the best recoding by its aim; [`choose`](super::choose) asks the same aim whether the last recoding is as
//! good, so that stickiness follows the search and not the policy's loss behind its back.

mod scores;

use super::evaluator::{Evaluation, Evaluator};
use super::front::objectives::Objectives;
use super::front::preference::{Preference, Rank};
use crate::loss::Quality;
use crate::model::lattice::Node;
use crate::model::policy::Loss;
use crate::model::recoding::Recoding;
use crate::model::release::manifest::UnmetBound;

pub use scores::Scores;

/// What a search is after.
pub enum Aim {
    /// The least loss by the policy's metric.
    LeastLoss,
    /// The least loss by another metric.
    LeastBy(Loss),
    /// The highest score by the priorities of the quasi-identifiers.
    Score(Scores),
    /// The greatest security times quality.
    SecurityTimesQuality(Quality),
    /// What is preferred in a trade-off.
    Preferred(Box<(Objectives, Preference)>),
}

impl Aim {
    /// How good a satisfying recoding is.
    pub fn rank(&self, evaluator: &Evaluator<'_>, recoding: &Recoding, evaluation: &Evaluation) -> Rank {
        let node = || recoding.node();
        let worth = match self {
            Self::LeastLoss => return Rank::of_cost(evaluation.loss),
            Self::LeastBy(loss) if *loss == evaluator.policy().loss => return Rank::of_cost(evaluation.loss),
            Self::LeastBy(loss) => return Rank::of_cost(evaluator.loss_by(*loss, recoding)),
            Self::Score(scores) => node().map(|node| scores.of(&node) as f64),
            Self::SecurityTimesQuality(quality) => {
                node().map(|node| security_times_quality(quality, evaluator, &node, evaluation))
            }
            Self::Preferred(own) => match node() {
                Some(node) => {
                    let values = own.0.values(&own.0.measure(evaluator, &node).1.own);
                    return own.1.rank(&values, || own.0.released(evaluator, &node));
                }
                None => None,
            },
        };
        // A search over nodes cannot tell what a cut is worth.
        worth.map_or(Rank { missed: f64::INFINITY, cost: f64::INFINITY }, Rank::of_worth)
    }

    /// The bounds that a recoding does not meet.
    pub fn unmet_bounds(&self, evaluator: &Evaluator<'_>, recoding: &Recoding) -> Vec<UnmetBound> {
        match (self, recoding.node()) {
            (Self::Preferred(own), Some(node)) => own.1.unmet_bounds(|| own.0.released(evaluator, &node)),
            _ => Vec::new(),
        }
    }
}

/// The security factor times the quality of a node; records that are left out have no quality.
pub(crate) fn security_times_quality(
    quality: &Quality,
    evaluator: &Evaluator<'_>,
    node: &Node,
    evaluation: &Evaluation,
) -> f64 {
    let published = 1.0 - evaluation.suppressed as f64 / evaluator.records().max(1) as f64;
    evaluation.security.max(0.0) * quality.of(node) * published
}
