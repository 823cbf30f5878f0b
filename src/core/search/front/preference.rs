//! Which point of a trade-off a person would take.
//!
//! Objectives are made comparable by what a value is worth ([`Objective::worth`]), scaled to [0, 1] over the front. Counts of
//! people are worth the risk 1/count that they leave: from k = 5 to k = 10 a reader's chance to pick the right person is
//! halved, from 5,000 to 10,000 nothing changes for anybody. On a plain or a logarithmic axis of k the curve of k against
//! loss hardly bends, and its "knee" would be an end of it: k = 28,800 of 30,162 at a loss of 0.92 on Adult.
//! The knee has the greatest sum of scaled worths: it bulges farthest out of the plane through the extremes, so that
//! giving up more of one objective buys little of the others. Bounds come first: a point that meets them all is preferred
//! to every other, and where none does, the nearest to them is. They are about what is published: a front has the k that the
//! suppression limit could buy, a release that of the classes which the policy publishes.

use std::cmp::Ordering;

use super::objectives::{Objective, Prefer};
use crate::model::release::manifest::UnmetBound;

/// How good something is by the aim of a search; the lesser is the better.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rank {
    /// How far it is from what it must reach; 0 if it reaches it.
    pub missed: f64,
    /// What it costs; not negative.
    pub cost: f64,
}

impl Rank {
    /// Of something that must reach nothing and costs so much.
    pub fn of_cost(cost: f64) -> Self {
        Self { missed: 0.0, cost }
    }

    /// Of something that must reach nothing and is worth so much: half the worth costs twice.
    pub fn of_worth(worth: f64) -> Self {
        Self::of_cost(1.0 / worth.max(0.0))
    }

    /// True if it is at most the share `margin` worse than `best`, and meets bounds that the best meets.
    pub fn is_within(self, margin: f64, best: Self) -> bool {
        self.missed <= best.missed * (1.0 + margin) && self.cost <= best.cost * (1.0 + margin)
    }

    /// The better one first.
    pub fn total_cmp(self, other: Self) -> Ordering {
        self.missed.total_cmp(&other.missed).then(self.cost.total_cmp(&other.cost))
    }
}

/// What is preferred among the points of one front.
#[derive(Debug, Clone)]
pub struct Preference {
    objectives: Vec<Objective>,
    bounds: Vec<(Objective, f64)>,
    /// Per objective the least worth on the front, and how far it is from there to the greatest.
    scale: Vec<(f64, f64)>,
}

impl Preference {
    /// By `prefer`, over a front whose points have these values, one per objective.
    pub fn new<'v>(objectives: &[Objective], prefer: &Prefer, front: impl Iterator<Item = &'v [f64]> + Clone) -> Self {
        let scale = |(at, objective): (usize, &Objective)| {
            let worths = front.clone().map(|values| objective.worth(values[at]));
            let low = worths.clone().fold(f64::INFINITY, f64::min);
            (low, worths.fold(f64::NEG_INFINITY, f64::max) - low)
        };
        let bounds = match prefer {
            Prefer::Knee => Vec::new(),
            Prefer::Bounds(bounds) => bounds.clone(),
        };
        Self { objectives: objectives.to_vec(), bounds, scale: objectives.iter().enumerate().map(scale).collect() }
    }

    /// The rank of a point with these values, of which a release would have those of `released`: first by the distance from
    /// the bounds that the release misses, then as a knee.
    pub fn rank(&self, values: &[f64], released: impl FnOnce() -> Vec<f64>) -> Rank {
        let scaled = |at: usize, worth: f64| match self.scale[at] {
            (low, span) if span > 0.0 => (worth - low) / span,
            // All points alike, or none: only bounds tell.
            _ => worth,
        };
        let released = if self.bounds.is_empty() { Vec::new() } else { released() };
        let lacking = |(at, asked): (usize, f64)| {
            let worth = |value: f64| scaled(at, self.objectives[at].worth(value));
            (worth(asked) - worth(released[at])).powi(2)
        };
        let missed: f64 = self.missed(&released).map(lacking).sum();
        let bulge = |(at, o): (usize, &Objective)| {
            if self.scale[at].1 > 0.0 { scaled(at, o.worth(values[at])) } else { 0.0 }
        };
        let worth = self.objectives.iter().enumerate().map(bulge).sum();
        Rank { missed: missed.sqrt(), ..Rank::of_worth(worth) }
    }

    /// The bounds that a release with these values does not meet.
    pub fn unmet_bounds(&self, released: impl FnOnce() -> Vec<f64>) -> Vec<UnmetBound> {
        if self.bounds.is_empty() {
            return Vec::new();
        }
        let released = released();
        let bound = |(at, asked): (usize, f64)| UnmetBound::new(self.objectives[at].as_str(), asked, released[at]);
        self.missed(&released).map(bound).collect()
    }

    fn missed(&self, values: &[f64]) -> impl Iterator<Item = (usize, f64)> {
        let misses = |(objective, asked): &(Objective, f64)| {
            let at = self.objectives.iter().position(|o| o == objective)?;
            let higher = objective.higher_is_better();
            let met = if higher { values[at] >= *asked } else { values[at] <= *asked };
            (!met).then_some((at, *asked))
        };
        self.bounds.iter().filter_map(misses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::policy::Loss;

    const K: Objective = Objective::K;
    const GLM: Objective = Objective::Loss(Loss::Glm);

    /// The exact front of Adult, nine attributes, 5 % may be suppressed: its k, and the loss of each.
    const ADULT_K: [f64; 40] = [
        30162.0, 28800.0, 13368.0, 9340.0, 6396.0, 2443.0, 1572.0, 1257.0, 1046.0, 1045.0, 589.0, 415.0, 401.0, 375.0,
        249.0, 216.0, 158.0, 144.0, 116.0, 86.0, 85.0, 72.0, 61.0, 41.0, 32.0, 30.0, 22.0, 20.0, 18.0, 14.0, 13.0,
        11.0, 10.0, 8.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0,
    ];
    const ADULT_GLM: [f64; 40] = [
        1.0, 0.923, 0.863, 0.817, 0.786, 0.741, 0.7413, 0.7412, 0.711, 0.710, 0.652, 0.643, 0.6427, 0.627, 0.587,
        0.568, 0.561, 0.548, 0.5303, 0.5302, 0.510, 0.470, 0.464, 0.446, 0.442, 0.404, 0.396, 0.385, 0.377, 0.369,
        0.358, 0.330, 0.3178, 0.310, 0.298, 0.270, 0.240, 0.222, 0.175, 0.0,
    ];

    fn picked(prefer: &Prefer, eligible: impl Fn(f64) -> bool) -> (f64, f64) {
        let values: Vec<[f64; 2]> = ADULT_K.into_iter().zip(ADULT_GLM).map(|(k, glm)| [k, glm]).collect();
        let preference = Preference::new(&[K, GLM], prefer, values.iter().map(|v| v.as_slice()));
        let eligible = values.iter().filter(|v| eligible(v[0]));
        let rank = |v: &[f64; 2]| preference.rank(&v[..], || v.to_vec());
        let best = eligible.min_by(|a, b| rank(a).total_cmp(rank(b))).unwrap();
        (best[0], best[1])
    }

    #[test]
    fn the_knee_of_adult_is_one_that_a_person_would_take() {
        assert_eq!(picked(&Prefer::Knee, |k| k >= 5.0), (10.0, 0.3178));
        assert_eq!(picked(&Prefer::Knee, |k| k >= 20.0), (20.0, 0.385));
        assert_eq!(picked(&Prefer::Knee, |k| k >= 100.0).1, 0.5303);
    }

    #[test]
    fn bounds_come_first_and_the_nearest_point_where_none_meets_them() {
        let bounds = |k: f64, glm: f64| Prefer::Bounds(vec![(K, k), (GLM, glm)]);
        assert_eq!(picked(&bounds(50.0, 1.0), |_| true), (61.0, 0.464));
        assert_eq!(picked(&bounds(1.0, 0.2), |_| true).1, 0.175);
        // Neither can be had with the other: something between them.
        let (k, glm) = picked(&bounds(100.0, 0.3), |k| k >= 5.0);
        assert!((8.0..=30.0).contains(&k) && glm < 0.41, "{k} {glm}");
        assert_eq!(picked(&Prefer::Bounds(vec![(K, 50_000.0)]), |_| true).0, 30162.0);
    }

    #[test]
    fn what_is_missed_is_said() {
        let prefer = Prefer::Bounds(vec![(K, 50.0), (GLM, 0.5)]);
        let preference = Preference::new(&[K, GLM], &prefer, [[1.0, 0.0], [100.0, 1.0]].iter().map(|v| v.as_slice()));
        assert_eq!(preference.unmet_bounds(|| vec![60.0, 0.4]), []);
        assert_eq!(
            preference.unmet_bounds(|| vec![6.0, 0.654_321]),
            [UnmetBound::new("k", 50.0, 6.0), UnmetBound::new("glm", 0.5, 0.654)]
        );
    }

    #[test]
    fn a_margin_never_excuses_a_bound() {
        let rank = |missed, cost| Rank { missed, cost };
        assert!(rank(0.0, 1.02).is_within(0.02, rank(0.0, 1.0)));
        assert!(!rank(0.0, 1.03).is_within(0.02, rank(0.0, 1.0)));
        assert!(!rank(1e-9, 0.5).is_within(0.02, rank(0.0, 1.0)));
        assert!(rank(0.1, 1.0).is_within(0.02, rank(0.1, 1.0)));
        assert!(Rank::of_worth(0.0).is_within(0.0, Rank::of_worth(0.0)));
    }
}
