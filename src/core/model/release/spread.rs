//! A property vector in four figures: how a figure that every person has (the size of their class, the sensitive values in it,
//! the risk of being picked out) is spread over people, weighted by person (Dewri, Ray, Ray, Whitley 2010). For operators and
//! the holder of the data; no manifest has it, because it moves with single people.

use std::collections::BTreeMap;

use serde::Serialize;

/// How a figure is spread over people, from those who are worst off.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The figure of the person who is worst off.
    pub worst: f64,
    /// One in twenty is no better off.
    pub p5: f64,
    /// Half of the people are no better off.
    pub median: f64,
    /// The mean over people.
    pub mean: f64,
}

impl Spread {
    /// The figures with their names.
    pub fn named(&self) -> [(&'static str, f64); 4] {
        [("worst", self.worst), ("p5", self.p5), ("median", self.median), ("mean", self.mean)]
    }

    /// Of figures and the number of people who have each, the lowest first; none without people.
    pub fn of(counts: &BTreeMap<u32, u64>) -> Option<Self> {
        let people: u64 = counts.values().sum();
        let (&worst, _) = counts.iter().find(|(_, people)| **people > 0)?;
        let at = |share: f64| {
            let mut below = 0;
            let wanted = (share * people as f64).ceil().max(1.0) as u64;
            let reached = counts.iter().find(|(_, own)| {
                below += **own;
                below >= wanted
            });
            f64::from(reached.map_or(worst, |(figure, _)| *figure))
        };
        let sum: f64 = counts.iter().map(|(&figure, &people)| f64::from(figure) * people as f64).sum();
        Some(Self { worst: f64::from(worst), p5: at(0.05), median: at(0.5), mean: sum / people as f64 })
    }

    /// The risk of being picked out of a class: one over its size. `classes` have the number of classes by size.
    pub fn of_risk(classes: &BTreeMap<u32, u32>) -> Option<Self> {
        let sizes = Self::of_sizes(classes)?;
        let count: u64 = classes.values().map(|&classes| u64::from(classes)).sum();
        let people: u64 = classes.iter().map(|(&size, &classes)| u64::from(size) * u64::from(classes)).sum();
        let [worst, p5, median] = [sizes.worst, sizes.p5, sizes.median].map(|size| 1.0 / size);
        Some(Self { worst, p5, median, mean: count as f64 / people as f64 })
    }

    /// The size of one's class.
    pub fn of_sizes(classes: &BTreeMap<u32, u32>) -> Option<Self> {
        let people = |(&size, &classes): (&u32, &u32)| (size, u64::from(size) * u64::from(classes));
        Self::of(&classes.iter().map(people).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_person_counts_once() {
        // Two classes of 2 and one of 36: 40 people, one in ten of them in a class of 2.
        let classes = BTreeMap::from([(2, 2), (36, 1)]);
        let sizes = Spread::of_sizes(&classes).unwrap();
        assert_eq!(sizes, Spread { worst: 2.0, p5: 2.0, median: 36.0, mean: (4.0 * 2.0 + 36.0 * 36.0) / 40.0 });
        let risk = Spread::of_risk(&classes).unwrap();
        assert_eq!(risk, Spread { worst: 0.5, p5: 0.5, median: 1.0 / 36.0, mean: 3.0 / 40.0 });
        // One person in a hundred is below the twentieth.
        assert_eq!(Spread::of(&BTreeMap::from([(1, 1), (9, 99)])).unwrap().p5, 9.0);
        assert_eq!(Spread::of(&BTreeMap::new()), None);
    }
}
