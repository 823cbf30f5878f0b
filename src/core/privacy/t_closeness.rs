//! t-closeness (Li, Li, Venkatasubramanian 2007): in every class a sensitive field is distributed nearly as in the whole
//! release, by the earth mover's distance.
//!
//! The reference is what is published, and nothing else: that is what a reader, or a checker, has. Leaving out a class
//! therefore moves the reference of all others. Monotone without suppression and with one record per person only: there
//! a merged class is a mixture of its parts and the distance is convex.
//! No value is one outcome of the distribution like any other: how many people have none is not told apart either. Values
//! without a place (no number, not in the list, outside the hierarchy) are infinitely far from everything; so is no value,
//! unless list or hierarchy names the empty one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use super::{Class, Place, ROUNDING, Rule, RuleScope, Setting};
use crate::model::counting::{Histogram, Values};
use crate::model::domain::DomainView;
use crate::model::hierarchy::{Decimal, Hierarchy};
use crate::model::policy::Distance;
use crate::model::record::{canonical_number, canonical_text, counted_text, plain_json};

/// How often the values that decide are chosen anew. More often hardly moves the figure; less often excludes fewer nodes.
const ROUNDS: usize = 3;

#[derive(Clone)]
pub(super) struct TCloseness {
    place: Place,
    t: f64,
    distance: Distance,
    ground: Ground,
}

/// How far apart the codes of the moment are.
#[derive(Clone)]
enum Ground {
    Unknown,
    Equal,
    /// The rank of each code among `ranks`; equal numbers share one.
    Ordered {
        rank: Vec<Option<u32>>,
        ranks: usize,
    },
    /// Parents level by level from the leaves up; `leaf` is where each code starts.
    Hierarchical {
        leaf: Vec<Option<u32>>,
        parents: Vec<Vec<u32>>,
    },
}

impl TCloseness {
    pub(super) fn new(place: Place, t: f64, distance: Distance) -> Self {
        Self { place, t, distance, ground: Ground::Unknown }
    }
}

impl Rule for TCloseness {
    fn name(&self) -> String {
        let distance = match self.distance {
            Distance::Equal => "equal",
            Distance::Ordered { .. } => "ordered",
            Distance::Hierarchical(_) => "hierarchical",
        };
        format!("t-closeness/{}/{distance}", self.place.name)
    }

    fn scope(&self) -> RuleScope {
        RuleScope::Within
    }

    fn monotone(&self, setting: Setting) -> bool {
        !setting.suppression && !setting.subjects
    }

    fn measure(&self, class: &Class<'_>, release: &Class<'_>) -> f64 {
        let (class, release) = (class.facets[self.place.facet], release.facets[self.place.facet]);
        if class.counts.is_empty() || release.counts.is_empty() {
            return f64::INFINITY;
        }
        match &self.ground {
            Ground::Unknown => f64::INFINITY,
            Ground::Equal => equal(class, release),
            Ground::Ordered { rank, ranks } => ordered(class, release, rank, *ranks),
            Ground::Hierarchical { leaf, parents } => hierarchical(class, release, leaf, parents),
        }
    }

    /// Over any values O, what is published of the class has at most t more of its records than the release has. Leaving
    /// out a share s of the class leaves at least (c(O) - s) / (1 - s) of it there, and leaving out a share of the window
    /// leaves at most e(O) / (1 - spared) of the release there: so s is at least what [`least_share`] says.
    fn doomed(&self, class: &Class<'_>, everything: &Class<'_>, spared: f64) -> f64 {
        let (Ground::Equal, true) = (&self.ground, self.t + spared < 1.0) else { return 0.0 };
        least_share(class.facets[self.place.facet], everything.facets[self.place.facet], spared, self.t + ROUNDING)
    }

    fn required(&self) -> f64 {
        self.t
    }

    fn at_most(&self) -> bool {
        true
    }

    fn bind(&self, values: &Values<'_>) -> Option<Arc<dyn Rule>> {
        let view = values.sensitive.get(self.place.field)?;
        let ground = match &self.distance {
            Distance::Equal => Ground::Equal,
            Distance::Ordered { order: Some(order) } => listed(view, order),
            Distance::Ordered { order: None } => numbers(view),
            Distance::Hierarchical(hierarchy) => tree(view, values.written.get(self.place.field)?, hierarchy),
        };
        Some(Arc::new(Self { ground, ..self.clone() }))
    }
}

fn numbers(view: &DomainView) -> Ground {
    let number = |text: &str| canonical_number(text)?.parse::<Decimal>().ok();
    let values: Vec<Option<Decimal>> = view.level(0).labels().map(number).collect();
    let mut sorted: Vec<Decimal> = values.iter().flatten().copied().collect();
    sorted.sort_unstable();
    sorted.dedup();
    let rank = |value: Option<Decimal>| sorted.binary_search(&value?).ok().map(|at| at as u32);
    Ground::Ordered { rank: values.into_iter().map(rank).collect(), ranks: sorted.len() }
}

fn listed(view: &DomainView, order: &[String]) -> Ground {
    let at: HashMap<Cow<'_, str>, u32> = order.iter().map(|text| counted_text(text)).zip(0..).collect();
    Ground::Ordered { rank: view.level(0).labels().map(|text| at.get(text).copied()).collect(), ranks: order.len() }
}

fn tree(view: &DomainView, written: &DomainView, hierarchy: &Hierarchy) -> Ground {
    let height = hierarchy.height();
    let mut numbers: Vec<HashMap<String, u32>> = vec![HashMap::new(); usize::from(height) + 1];
    let mut parents: Vec<Vec<u32>> = vec![Vec::new(); usize::from(height)];
    let leaves = leaves(written, hierarchy);
    let mut place = |text: &str| {
        let leaf = leaves.get(text)?;
        // From the top down, so that the parent's number is known.
        let mut above = 0;
        for level in (0..=height).rev() {
            let label = hierarchy.label(leaf, level)?;
            let known = &mut numbers[usize::from(level)];
            let next = known.len() as u32;
            above = *known.entry(label.into_owned()).or_insert_with(|| {
                if let Some(parents) = parents.get_mut(usize::from(level)) {
                    parents.push(above);
                }
                next
            });
        }
        Some(above)
    };
    let leaf = view.level(0).labels().map(&mut place).collect();
    Ground::Hierarchical { leaf, parents }
}

/// The leaf of every value, by the text that it is counted as: listed, or that of a spelling which the hierarchy can read.
fn leaves(written: &DomainView, hierarchy: &Hierarchy) -> HashMap<String, String> {
    let text = |leaf: &str| (counted_text(leaf).into_owned(), leaf.to_owned());
    let spelled = |json: &str| {
        let plain = plain_json(json);
        let leaf = hierarchy.canonical(&canonical_text(&plain))?.into_owned();
        Some((counted_text(&plain).into_owned(), leaf))
    };
    match hierarchy.leaves() {
        Some(listed) => listed.map(text).collect(),
        None => written.level(0).labels().filter_map(spelled).collect(),
    }
}

/// Half the sum of the differences: what has to move at all.
fn equal(class: Histogram<'_>, release: Histogram<'_>) -> f64 {
    let (n, all) = (class.total() as f64, release.total() as f64);
    let (mut moves, mut at) = (0.0, 0);
    for (code, count) in class.iter() {
        // Both ascend.
        while release.codes.get(at).is_some_and(|&other| other < code) {
            at += 1;
        }
        let there = if release.codes.get(at) == Some(&code) { release.counts[at] } else { 0 };
        moves += f64::max(f64::from(count) / n - f64::from(there) / all, 0.0);
    }
    moves
}

/// The largest (c(O) - r(O) - t) / (1 - t - r(O)) over sets O of values, or nearly; never more. A value belongs to the best
/// set if its share c is above 1 - s times r, with s what the best set says: from the values that are too frequent on,
/// each round says more than the one before.
fn least_share(class: Histogram<'_>, everything: Histogram<'_>, spared: f64, t: f64) -> f64 {
    let own = 1.0 / class.total() as f64;
    let all = 1.0 / (everything.total() as f64 * (1.0 - spared));
    let mut share = 0.0;
    for _ in 0..ROUNDS {
        let (mut here, mut there, mut at) = (0.0, 0.0, 0);
        for (code, count) in class.iter() {
            // Both ascend.
            while everything.codes.get(at).is_some_and(|&other| other < code) {
                at += 1;
            }
            let most = if everything.codes.get(at) == Some(&code) { everything.counts[at] } else { 0 };
            let (c, r) = (f64::from(count) * own, f64::from(most) * all);
            if c > (1.0 - share) * r {
                here += c;
                there += r;
            }
        }
        let excess = here - there - t;
        if excess <= 0.0 {
            return share;
        }
        // The rest of the class is elsewhere: here <= 1, so the divisor is no less than the excess.
        share = excess / (1.0 - t - there);
    }
    share
}

/// Class share minus release share, by slot; `None` if a code has none.
fn surplus(
    class: Histogram<'_>,
    release: Histogram<'_>,
    slot: &[Option<u32>],
    slots: usize,
) -> Option<(Vec<f64>, Vec<bool>)> {
    let mut extra = vec![0.0; slots];
    let mut present = vec![false; slots];
    for (histogram, sign) in [(class, 1.0), (release, -1.0)] {
        let total = histogram.total() as f64;
        for (code, count) in histogram.iter() {
            match slot.get(code as usize).copied().flatten() {
                Some(at) => {
                    extra[at as usize] += sign * f64::from(count) / total;
                    present[at as usize] = true;
                }
                // A stranger elsewhere in the release is that class's fault, not this one's.
                None if sign > 0.0 => return None,
                None => {}
            }
        }
    }
    Some((extra, present))
}

/// The share that has to move, times how many of the values that occur it has to pass, over how many there are to pass.
fn ordered(class: Histogram<'_>, release: Histogram<'_>, rank: &[Option<u32>], ranks: usize) -> f64 {
    let Some((extra, present)) = surplus(class, release, rank, ranks) else { return f64::INFINITY };
    let values = present.iter().filter(|p| **p).count();
    let (mut carried, mut work) = (0.0f64, 0.0f64);
    for (extra, _) in extra.iter().zip(&present).filter(|(_, present)| **present) {
        carried += extra;
        work += carried.abs();
    }
    work / (values.max(2) - 1) as f64
}

/// Level by level: what the children of one value can settle among themselves, at the height of that value.
fn hierarchical(class: Histogram<'_>, release: Histogram<'_>, leaf: &[Option<u32>], parents: &[Vec<u32>]) -> f64 {
    let leaves = parents.first().map_or(1, Vec::len);
    let Some((mut extra, _)) = surplus(class, release, leaf, leaves) else { return f64::INFINITY };
    let height = parents.len() as f64;
    let mut work = 0.0;
    for (level, parent) in parents.iter().enumerate() {
        let above = parent.iter().max().map_or(0, |&top| top as usize + 1);
        let mut give = vec![0.0f64; above];
        let mut take = vec![0.0f64; above];
        for (extra, &parent) in extra.iter().zip(parent) {
            let side = if *extra > 0.0 { &mut give } else { &mut take };
            side[parent as usize] += extra.abs();
        }
        let settled: f64 = give.iter().zip(&take).map(|(give, take)| give.min(*take)).sum();
        work += settled * (level + 1) as f64 / height;
        extra = give.iter().zip(&take).map(|(give, take)| give - take).collect();
    }
    work
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is left out of a class and elsewhere: what is left of the class is no nearer to what is left of all than
        /// the share that was left out of it allows.
        #[test]
        fn no_less_is_left_out_than_the_least_share(
            counts in prop::collection::vec((1u32..30, 1u32..60, 0u32..100, 0u32..20), 2..9), more in 0.0..0.1f64,
        ) {
            let codes: Vec<u32> = (0..counts.len() as u32).collect();
            let part = |all: u32, percent: u32| all * percent / 100;
            let class: Vec<u32> = counts.iter().map(|c| c.0).collect();
            let everything: Vec<u32> = counts.iter().map(|c| c.0 + c.1).collect();
            let rest: Vec<u32> = counts.iter().map(|c| c.0 - part(c.0, c.2)).collect();
            let release: Vec<u32> = counts.iter().zip(&rest).map(|(c, rest)| rest + c.1 - part(c.1, c.3)).collect();
            prop_assume!(rest.iter().any(|count| *count > 0));
            let [class, everything, rest, release] =
                [&class, &everything, &rest, &release].map(|counts| Histogram { codes: &codes, counts });
            let gone = |before: Histogram<'_>, after: Histogram<'_>| 1.0 - after.total() as f64 / before.total() as f64;
            let (t, spared) = (equal(rest, release), gone(everything, release) + more);
            prop_assume!(t + spared < 1.0);
            let least = least_share(class, everything, spared, t);
            prop_assert!((0.0..=1.0).contains(&least));
            prop_assert!(gone(class, rest) >= least - 1e-9, "{} of the class, not {least}", gone(class, rest));
        }
    }

    #[test]
    fn the_least_share_is_reached_where_one_value_is_too_many() {
        let (codes, class, all) = ([0, 1], [90, 10], [1000, 1000]);
        let [class, all] = [&class, &all].map(|counts| Histogram { codes: &codes, counts });
        // Half of the release has the value, so 0.7 of the class may: 67 of the 90 must go, 23 of 33 are left.
        let least = least_share(class, all, 0.0, 0.2);
        assert!((least - 2.0 / 3.0).abs() < 1e-9);
    }
}
