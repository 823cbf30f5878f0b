//! Pareto fronts: dominance, the epsilon-box archive of Dewri et al. 2010, and its quality.
//!
//! Every index is "higher is better". Invariants of an [`Archive`]: one entry per box, no entry box-dominates another, and
//! so its size is bounded whatever it is offered (Laumanns et al. 2002); see [`Archive::capacity`].

use std::cmp::Ordering;

/// True if `a` is nowhere worse than `b` and somewhere better.
pub fn dominates(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).all(|(a, b)| a >= b) && a.iter().zip(b).any(|(a, b)| a > b)
}

/// Something with its indices.
#[derive(Debug, Clone, PartialEq)]
pub struct Point<T> {
    /// What has these indices.
    pub item: T,
    /// One index per objective, higher is better.
    pub indices: Vec<f64>,
}

/// The points that no other point dominates; of equal ones the first. In the order of their first index, descending.
pub fn non_dominated<T>(mut points: Vec<Point<T>>) -> Vec<Point<T>> {
    // In descending lexicographic order a point can be dominated by an earlier one only.
    points.sort_by(|a, b| lexicographic(&b.indices, &a.indices));
    let mut front: Vec<Point<T>> = Vec::new();
    for point in points {
        let covers = |f: &Point<T>| f.indices.iter().zip(&point.indices).all(|(a, b)| a >= b);
        if !front.iter().any(covers) {
            front.push(point);
        }
    }
    front
}

/// Points of which none is at least as good as another everywhere, oldest first. Not bounded, unlike an [`Archive`].
#[derive(Debug, Clone)]
pub struct Undominated<T> {
    points: Vec<Point<T>>,
}

impl<T> Default for Undominated<T> {
    fn default() -> Self {
        Self { points: Vec::new() }
    }
}

impl<T> Undominated<T> {
    /// Offers a point; it enters, in place of those it dominates, unless one is at least as good.
    pub fn offer(&mut self, point: Point<T>) -> bool {
        if self.covers(&point.indices) {
            return false;
        }
        self.points.retain(|p| !dominates(&point.indices, &p.indices));
        self.points.push(point);
        true
    }

    /// True if some point is at least as good everywhere.
    pub fn covers(&self, indices: &[f64]) -> bool {
        self.points.iter().any(|p| p.indices.iter().zip(indices).all(|(a, b)| a >= b))
    }

    /// The points, oldest first.
    pub fn points(&self) -> &[Point<T>] {
        &self.points
    }
}

fn lexicographic(a: &[f64], b: &[f64]) -> Ordering {
    a.iter().zip(b).map(|(a, b)| a.total_cmp(b)).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
}

/// A bounded set of points, none of which box-dominates another.
#[derive(Debug, Clone)]
pub struct Archive<T> {
    epsilon: Vec<f64>,
    entries: Vec<(Vec<i64>, Point<T>)>,
}

impl<T> Archive<T> {
    /// An empty archive; `epsilon` holds the side of a box per objective, each positive.
    pub fn new(epsilon: Vec<f64>) -> Self {
        Self { epsilon, entries: Vec::new() }
    }

    /// The box of a point: floor(index / epsilon) per objective.
    pub fn box_of(&self, indices: &[f64]) -> Vec<i64> {
        indices.iter().zip(&self.epsilon).map(|(index, epsilon)| (index / epsilon).floor() as i64).collect()
    }

    /// Offers a point. It enters only if nothing in the archive box-dominates it and, once what it box-dominates has
    /// left, its box is empty. Different boxes compare by box, points of one box by themselves.
    pub fn offer(&mut self, point: Point<T>) -> bool {
        let own = self.box_of(&point.indices);
        let beaten =
            |(theirs, other): &(Vec<i64>, Point<T>)| box_dominates(theirs, &other.indices, &own, &point.indices);
        if self.entries.iter().any(beaten) {
            return false;
        }
        self.entries.retain(|(theirs, other)| !box_dominates(&own, &point.indices, theirs, &other.indices));
        if self.entries.iter().any(|(theirs, _)| *theirs == own) {
            return false;
        }
        self.entries.push((own, point));
        true
    }

    /// The points, in the order in which they entered.
    pub fn points(&self) -> impl ExactSizeIterator<Item = &Point<T>> {
        self.entries.iter().map(|(_, point)| point)
    }

    /// The boxes that are occupied.
    pub fn boxes(&self) -> impl Iterator<Item = &[i64]> {
        self.entries.iter().map(|(own, _)| own.as_slice())
    }

    /// How many points there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The points themselves.
    pub fn into_points(self) -> Vec<Point<T>> {
        self.entries.into_iter().map(|(_, point)| point).collect()
    }

    /// The most points an archive can hold while no index is negative or above its maximum: the product of all but the
    /// smallest of the numbers of boxes per objective.
    pub fn capacity(&self, maxima: &[f64]) -> u128 {
        let mut boxes: Vec<u128> = self.box_of(maxima).into_iter().map(|b| b.max(0) as u128 + 1).collect();
        boxes.sort_unstable();
        boxes.iter().skip(1).fold(1, |product: u128, boxes| product.saturating_mul(*boxes))
    }
}

fn box_dominates(box_a: &[i64], a: &[f64], box_b: &[i64], b: &[f64]) -> bool {
    if box_a == box_b { dominates(a, b) } else { box_a.iter().zip(box_b).all(|(a, b)| a >= b) }
}

/// How good an archive is, measured against the true front.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FrontQuality {
    /// Convergence error: the sum over the archive of the distance to the nearest point of the true front, each index
    /// divided by its maximum there. 0 is best.
    pub convergence_error: f64,
    /// Representation ratio: the share of the true front's non-dominated boxes that the archive occupies. 1 is best.
    pub representation_ratio: f64,
}

/// Measures `archive` against `truth`, the exact non-dominated points.
pub fn quality<T, U>(archive: &Archive<T>, truth: &[Point<U>]) -> FrontQuality {
    let width = archive.epsilon.len();
    let scale: Vec<f64> = (0..width)
        .map(|i| truth.iter().map(|p| p.indices[i].abs()).fold(0.0, f64::max))
        .map(|max| if max > 0.0 { max } else { 1.0 })
        .collect();
    let distance =
        |a: &[f64], b: &[f64]| a.iter().zip(b).zip(&scale).map(|((a, b), s)| ((a - b) / s).powi(2)).sum::<f64>().sqrt();
    let nearest = |p: &Point<T>| truth.iter().map(|t| distance(&p.indices, &t.indices)).fold(f64::INFINITY, f64::min);
    let convergence_error = if truth.is_empty() { 0.0 } else { archive.points().map(nearest).sum() };
    let mut boxes = Archive::new(archive.epsilon.clone());
    truth.iter().for_each(|t| {
        boxes.offer(Point { item: (), indices: t.indices.clone() });
    });
    let occupied = boxes.boxes().filter(|b| archive.boxes().any(|a| a == *b)).count();
    let representation_ratio = if boxes.is_empty() { 1.0 } else { occupied as f64 / boxes.len() as f64 };
    FrontQuality { convergence_error, representation_ratio }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn points(raw: &[Vec<u8>]) -> Vec<Point<usize>> {
        let indices = |p: &Vec<u8>| p.iter().map(|&v| f64::from(v)).collect();
        raw.iter().enumerate().map(|(item, p)| Point { item, indices: indices(p) }).collect()
    }

    #[test]
    fn points_of_one_box_compare_by_themselves() {
        let mut archive = Archive::new(vec![10.0, 10.0]);
        let point = |a: f64, b: f64| Point { item: (), indices: vec![a, b] };
        assert!(archive.offer(point(12.0, 15.0)));
        assert!(!archive.offer(point(15.0, 12.0)), "the box is taken");
        assert!(archive.offer(point(13.0, 15.0)), "dominates within the box");
        assert!(!archive.offer(point(19.0, 9.0)), "its box is dominated, though it is not");
        assert!(archive.offer(point(9.0, 25.0)));
        assert_eq!(archive.len(), 2);
        assert!(archive.offer(point(20.0, 29.0)), "takes the place of both");
        assert_eq!(archive.len(), 1);
    }

    #[test]
    fn quality_of_the_true_front_is_perfect() {
        let truth = points(&[vec![0, 100], vec![70, 80], vec![100, 0]]);
        let mut archive = Archive::new(vec![1.0, 1.0]);
        truth.iter().for_each(|p| assert!(archive.offer(p.clone())));
        let perfect = quality(&archive, &truth);
        assert_eq!((perfect.convergence_error, perfect.representation_ratio), (0.0, 1.0));
        let mut poor = Archive::new(vec![1.0, 1.0]);
        poor.offer(Point { item: 0usize, indices: vec![70.0, 70.0] });
        let poor = quality(&poor, &truth);
        assert!((poor.convergence_error - 0.1).abs() < 1e-9);
        assert_eq!(poor.representation_ratio, 0.0);
    }

    proptest! {
        #[test]
        fn non_dominated_is_what_pairwise_comparison_leaves(raw in prop::collection::vec(prop::collection::vec(0u8..6, 3), 0..40)) {
            let all = points(&raw);
            let front = non_dominated(all.clone());
            for p in &all {
                let dominated = all.iter().any(|q| dominates(&q.indices, &p.indices));
                prop_assert_eq!(!dominated, front.iter().any(|f| f.indices == p.indices));
            }
            for (i, f) in front.iter().enumerate() {
                prop_assert!(front[..i].iter().all(|g| g.indices != f.indices));
            }
        }

        #[test]
        fn an_archive_keeps_its_invariants(
            raw in prop::collection::vec(prop::collection::vec(0u8..100, 2..=3), 1..120),
            epsilon in prop::collection::vec(1u8..30, 3),
        ) {
            let width = raw[0].len();
            let raw: Vec<_> = raw.into_iter().filter(|r| r.len() == width).collect();
            let epsilon: Vec<f64> = epsilon[..width].iter().map(|&e| f64::from(e)).collect();
            let mut archive = Archive::new(epsilon);
            let all = points(&raw);
            for p in &all {
                archive.offer(p.clone());
                let entries: Vec<_> = archive.entries.clone();
                for (i, (box_a, a)) in entries.iter().enumerate() {
                    for (j, (box_b, b)) in entries.iter().enumerate() {
                        prop_assert!(i == j || (box_a != box_b && !box_dominates(box_a, &a.indices, box_b, &b.indices)));
                    }
                }
                prop_assert!(archive.len() as u128 <= archive.capacity(&vec![99.0; width]));
            }
            // Nothing that was offered is out of reach: some entry's box is at least as good.
            for p in &all {
                let own = archive.box_of(&p.indices);
                prop_assert!(archive.boxes().any(|b| b.iter().zip(&own).all(|(b, own)| b >= own)));
            }
            // And the boxes are exactly the non-dominated boxes of everything offered.
            let boxes: Vec<Point<()>> = all.iter().map(|p| {
                let indices = archive.box_of(&p.indices).iter().map(|&b| b as f64).collect();
                Point { item: (), indices }
            }).collect();
            prop_assert_eq!(non_dominated(boxes).len(), archive.len());
        }
    }
}
