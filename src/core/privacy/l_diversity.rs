//! l-diversity (Machanavajjhala et al. 2007): every class is diverse in a sensitive field.
//!
//! Distinct l-diversity is monotone, with and without suppression. Entropy and recursive l-diversity are monotone without
//! suppression and with one record per person only: a class that failed, merged into a good one, can spoil it, and a
//! person who is in both of two classes counts once in the merged one, so that it is no mixture of the two.
//! Records without a value add no diversity: every variant looks at the others only, and a class of them alone reaches 0. Nor do sets
//! that have an element in common ([`Sets`]).

use std::sync::Arc;

use super::sets::Sets;
use super::{Class, Place, Rule, Setting};
use crate::model::counting::Values;
use crate::model::policy::Diversity;

#[derive(Clone)]
pub(super) struct LDiversity {
    pub(super) place: Place,
    pub(super) sets: Option<Arc<Sets>>,
    pub(super) l: f64,
    pub(super) variant: Diversity,
}

impl Rule for LDiversity {
    fn name(&self) -> String {
        let variant = match self.variant {
            Diversity::Distinct => "distinct",
            Diversity::Entropy => "entropy",
            Diversity::Recursive { .. } => "recursive",
        };
        format!("l-diversity/{}/{variant}", self.place.name)
    }

    fn monotone(&self, setting: Setting) -> bool {
        self.variant == Diversity::Distinct || !setting.suppression && !setting.subjects
    }

    fn distinct_values_of(&self) -> Option<usize> {
        (self.variant == Diversity::Distinct && self.sets.is_none()).then_some(self.place.facet)
    }

    fn measure(&self, class: &Class<'_>, _release: &Class<'_>) -> f64 {
        let values = class.facets[self.place.facet].values();
        let counts = values.counts;
        let reached = match self.variant {
            Diversity::Distinct => counts.len() as f64,
            Diversity::Entropy if counts.is_empty() => 0.0,
            Diversity::Entropy => entropy(counts).exp(),
            Diversity::Recursive { c } => recursive(counts, c),
        };
        match &self.sets {
            Some(sets) if sets.share_an_element(values) => reached.min(1.0),
            _ => reached,
        }
    }

    fn bind(&self, values: &Values<'_>) -> Option<Arc<dyn Rule>> {
        Some(Arc::new(Self { sets: Sets::of(self.place.field, values), ..self.clone() }))
    }

    fn required(&self) -> f64 {
        // exp(entropy) of l equally frequent values may come out a hair below l.
        if self.variant == Diversity::Entropy { self.l * (1.0 - 1e-12) } else { self.l }
    }
}

fn entropy(counts: &[u32]) -> f64 {
    let total: f64 = counts.iter().map(|&c| f64::from(c)).sum();
    -counts.iter().map(|&c| f64::from(c) / total).map(|p| p * p.ln()).sum::<f64>()
}

/// The largest whole l for which the class is (c, l)-diverse: r1 < c (rl + ... + rm), the r in descending order.
fn recursive(counts: &[u32], c: f64) -> f64 {
    let mut sorted = counts.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let Some(&most) = sorted.first() else { return 0.0 };
    let mut tail: f64 = 0.0;
    for l in (1..=sorted.len()).rev() {
        tail += f64::from(sorted[l - 1]);
        if f64::from(most) < c * tail {
            return l as f64;
        }
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recursive_counts_the_tail_from_l_on() {
        // r = 4, 3, 2, 1 and c = 2: 4 < 2*(2+1) holds for l = 3, 4 < 2*1 does not for l = 4.
        assert_eq!(recursive(&[1, 4, 2, 3], 2.0), 3.0);
        assert_eq!(recursive(&[5], 1.0), 0.0);
        assert_eq!(recursive(&[5], 2.0), 1.0);
    }

    #[test]
    fn entropy_of_equal_values_is_log_l() {
        assert!((entropy(&[7, 7, 7]).exp() - 3.0).abs() < 1e-9);
        assert!(entropy(&[100, 1, 1]).exp() < 1.2);
    }
}
