//! A rule asked of the classes over some quasi-identifiers (Wang, Yu, Chakraborty 2004: several virtual identifiers, each with
//! its own k): somebody who holds an outside source with those columns sees whole classes as one.
//!
//! As monotone as the rule itself: a coarser node merges such classes, too, and what is left at a finer node is left at a
//! coarser one.

use std::sync::Arc;

use super::{Class, Rule, RuleScope, Setting};
use crate::model::counting::Values;

pub(super) struct Over {
    pub(super) rule: Arc<dyn Rule>,
    /// The names of the quasi-identifiers.
    pub(super) names: Arc<str>,
    pub(super) scope: RuleScope,
}

impl Rule for Over {
    fn name(&self) -> String {
        format!("{} over {}", self.rule.name(), self.names)
    }
    fn scope(&self) -> RuleScope {
        self.scope
    }
    fn monotone(&self, setting: Setting) -> bool {
        self.rule.monotone(setting)
    }
    fn measure(&self, class: &Class<'_>, release: &Class<'_>) -> f64 {
        self.rule.measure(class, release)
    }
    fn required(&self) -> f64 {
        self.rule.required()
    }
    fn at_most(&self) -> bool {
        self.rule.at_most()
    }
    fn bind(&self, values: &Values<'_>) -> Option<Arc<dyn Rule>> {
        let rule = self.rule.bind(values)?;
        Some(Arc::new(Self { rule, names: Arc::clone(&self.names), scope: self.scope }))
    }
}
