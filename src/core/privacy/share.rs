//! `alpha-k` (Wong et al. 2006) and `lkc` (Mohammed et al. 2009): no sensitive value has too large a share of a class.
//!
//! The share of a value is how many of the class's people have it. A missing value has no share, but a person without a value is one
//! of the people: a reader cannot tell them from the others, so they lower the confidence in every value. Without suppression and with one record per person the
//! share in a merged class lies between those of its parts, so it is monotone; otherwise it is not: a class that was left
//! out can spoil one that was good, and somebody who is in both parts counts once in the merged class.
//! The share of a set is that of its most frequent element ([`Sets`]). For `lkc` somebody knows any L attributes; [`super::Rules::knowledge`] says which
//! choices decide.

use std::sync::Arc;

use super::k_anonymity::KAnonymity;
use super::sets::Sets;
use super::{Class, Place, Rule, RuleScope, Setting};
use crate::model::counting::Values;
use crate::model::policy::K;

/// The rules of `alpha-k`.
pub(super) fn alpha_k(k: K, alpha: f64, place: Place) -> Vec<Arc<dyn Rule>> {
    let name = format!("alpha-k/{}/alpha", place.name);
    let share = Share { name, place, sets: None, most: alpha, scope: RuleScope::Class };
    vec![Arc::new(KAnonymity::part("alpha-k/k", k, RuleScope::Class)), Arc::new(share)]
}

/// The rules of `lkc`.
pub(super) fn lkc(l: usize, k: K, c: f64, fields: impl Iterator<Item = Place>) -> Vec<Arc<dyn Rule>> {
    let scope = RuleScope::Known(l);
    let mut rules: Vec<Arc<dyn Rule>> = vec![Arc::new(KAnonymity::part("lkc/k", k, scope))];
    for place in fields {
        rules.push(Arc::new(Share { name: format!("lkc/{}/c", place.name), place, sets: None, most: c, scope }));
    }
    rules
}

#[derive(Clone)]
struct Share {
    name: String,
    place: Place,
    sets: Option<Arc<Sets>>,
    most: f64,
    scope: RuleScope,
}

impl Rule for Share {
    fn name(&self) -> String {
        self.name.clone()
    }
    fn scope(&self) -> RuleScope {
        self.scope
    }
    fn monotone(&self, setting: Setting) -> bool {
        !setting.suppression && !setting.subjects
    }
    fn measure(&self, class: &Class<'_>, _release: &Class<'_>) -> f64 {
        let values = class.facets[self.place.facet].values();
        let most = match &self.sets {
            Some(sets) => sets.most(values).min(class.size),
            None => values.most(),
        };
        f64::from(most) / f64::from(class.size)
    }
    fn bind(&self, values: &Values<'_>) -> Option<Arc<dyn Rule>> {
        Some(Arc::new(Self { sets: Sets::of(self.place.field, values), ..self.clone() }))
    }
    fn required(&self) -> f64 {
        self.most
    }
    fn at_most(&self) -> bool {
        true
    }
}
