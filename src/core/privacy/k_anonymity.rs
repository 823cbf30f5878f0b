//! k-anonymity (Sweeney 2002): every class has at least k people. Monotone, with and without suppression.
//!
//! Also the size part of `alpha-k` and `lkc`. With only some attributes known, a class that is left out is missing from the
//! classes of others too; still, what is left at a finer node is at least as good at a coarser one, for sizes only grow.

use super::{Class, Rule, RuleScope, Setting};
use crate::model::policy::K;

pub(super) struct KAnonymity {
    name: &'static str,
    k: K,
    scope: RuleScope,
}

impl KAnonymity {
    pub(super) fn new(k: K) -> Self {
        Self { name: "k-anonymity", k, scope: RuleScope::Class }
    }

    /// As a part of another criterion.
    pub(super) fn part(name: &'static str, k: K, scope: RuleScope) -> Self {
        Self { name, k, scope }
    }
}

impl Rule for KAnonymity {
    fn name(&self) -> String {
        self.name.into()
    }
    fn scope(&self) -> RuleScope {
        self.scope
    }
    fn monotone(&self, _setting: Setting) -> bool {
        true
    }
    fn least_size(&self) -> Option<u32> {
        (self.scope == RuleScope::Class).then_some(self.k.0)
    }
    fn measure(&self, class: &Class<'_>, _release: &Class<'_>) -> f64 {
        f64::from(class.size)
    }
    fn required(&self) -> f64 {
        f64::from(self.k.0)
    }
}
