//! `min-security` (Wang, Liao, Hsu 2007): the mean security sf over everybody who is published reaches a figure.
//!
//! sf = 1 - mean risk. The risk of a person is the sum, over the sentences confidential for them, of damage times
//! max((log Pr(s) - log Pr_class(s)) / log Pr(s), 0): how much more likely the class makes the sentence than the whole
//! release does; where a sentence has a `prior`, or the search has learnt one, than it is in the population. Damages of one person are scaled to sum to 1; a sentence true of everybody or of nobody carries no risk.
//! A record without a value counts as one of which the sentence is true, in the class and in the release.
//! Never monotone: the risk is concave in Pr_class, so merging two risky classes can raise the mean.

use std::sync::Arc;

use super::{Class, Rule, RuleScope, Setting};
use crate::model::confidential::{MAX_SENTENCES, Profile};
use crate::model::counting::{Histogram, Values};
use crate::model::policy::Policy;

#[derive(Clone)]
pub(super) struct Security {
    facet: usize,
    damages: Arc<[f64]>,
    priors: Arc<[Option<f64>]>,
    least: f64,
    profiles: Option<Arc<Vec<Profile>>>,
}

impl Security {
    pub(super) fn new(policy: &Policy, facet: usize, least: f64) -> Self {
        let damages = policy.sentences().take(MAX_SENTENCES).map(|s| s.damage).collect();
        let priors = policy.sentences().take(MAX_SENTENCES).map(|s| s.prior).collect();
        Self { facet, damages, priors, least, profiles: None }
    }
}

impl Rule for Security {
    fn name(&self) -> String {
        "min-security".into()
    }

    fn scope(&self) -> RuleScope {
        RuleScope::Release
    }

    fn monotone(&self, _setting: Setting) -> bool {
        false
    }

    /// 1 - the mean risk of the people in one class.
    fn measure(&self, class: &Class<'_>, release: &Class<'_>) -> f64 {
        let Some(profiles) = &self.profiles else { return f64::NAN };
        let histogram = class.facets[self.facet];
        if histogram.codes.iter().any(|&code| code as usize >= profiles.len()) {
            return if self.damages.is_empty() { 1.0 } else { f64::NAN };
        }
        let risks: Vec<f64> = (0..self.damages.len())
            .map(|bit| {
                let known = self.priors[bit].unwrap_or_else(|| share(release.facets[self.facet], profiles, bit));
                risk(known, share(histogram, profiles, bit))
            })
            .collect();
        let of = |profile: Profile| {
            let minded = || (0..risks.len()).filter(|&bit| profile.confidential >> bit & 1 == 1);
            let damage: f64 = minded().map(|bit| self.damages[bit]).sum();
            if damage > 0.0 { minded().map(|bit| self.damages[bit] * risks[bit]).sum::<f64>() / damage } else { 0.0 }
        };
        let sum: f64 = histogram.iter().map(|(code, count)| f64::from(count) * of(profiles[code as usize])).sum();
        1.0 - sum / histogram.total().max(1) as f64
    }

    fn required(&self) -> f64 {
        self.least
    }

    fn bind(&self, values: &Values<'_>) -> Option<Arc<dyn Rule>> {
        let learnt = values.shares.iter().copied().map(Some).chain(std::iter::repeat(None));
        let priors = self.priors.iter().zip(learnt).map(|(given, learnt)| given.or(learnt)).collect();
        Some(Arc::new(Self { profiles: Some(Arc::clone(values.profiles)), priors, ..self.clone() }))
    }
}

/// The share of people of whom the sentence is true.
fn share(histogram: Histogram<'_>, profiles: &[Profile], bit: usize) -> f64 {
    let holds = |&(code, _): &(u32, u32)| profiles.get(code as usize).is_some_and(|p| p.holds >> bit & 1 == 1);
    let holding: u64 = histogram.iter().filter(holds).map(|(_, count)| u64::from(count)).sum();
    holding as f64 / histogram.total().max(1) as f64
}

fn risk(release: f64, class: f64) -> f64 {
    if release <= 0.0 || release >= 1.0 || class <= 0.0 {
        return 0.0;
    }
    ((release.ln() - class.ln()) / release.ln()).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn risk_is_one_where_the_sentence_follows_and_none_where_the_class_says_nothing_new() {
        assert_eq!(risk(0.25, 1.0), 1.0);
        assert_eq!(risk(0.25, 0.25), 0.0);
        assert_eq!(risk(0.25, 0.1), 0.0);
        assert!((risk(0.25, 0.5) - 0.5).abs() < 1e-12);
        assert_eq!([risk(0.0, 0.0), risk(1.0, 1.0), risk(0.5, 0.0)], [0.0; 3]);
    }

    #[test]
    fn merging_two_risky_classes_can_raise_the_mean() {
        // Shares 0.9 and 0.6 in classes of equal size, 0.5 in the release.
        let apart = (risk(0.5, 0.9) + risk(0.5, 0.6)) / 2.0;
        assert!(risk(0.5, 0.75) > apart);
    }
}
