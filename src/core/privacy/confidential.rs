//! `confidential` (Wang, Liao, Hsu 2007): about nobody does a confidential sentence follow from their class. It follows if it
//! is true of everybody in the class, so somebody has to falsify it. A record without a value falsifies nothing that is said of it.
//!
//! Per class the union of what its records falsify is a word, and so is the union of what is confidential for them: O(n).
//! Monotone without suppression, for unions only grow. With suppression too, as long as every sentence is confidential
//! for everybody: a class that is good falsifies them all, no matter who joins it. With a condition, somebody may join for whom
//! a sentence is confidential that nobody in the good class minded.

use std::sync::Arc;

use super::{Class, Rule, Setting};
use crate::model::confidential::{Profile, Sentence};
use crate::model::counting::Values;

pub(super) struct Confidential {
    facet: usize,
    /// The bits of the sentences in a profile.
    mask: u64,
    conditional: bool,
    profiles: Option<Arc<Vec<Profile>>>,
}

impl Confidential {
    /// The sentences `own`, which start at bit `first`.
    pub(super) fn new(own: &[Sentence], first: usize, facet: usize) -> Self {
        let mask = (first..first + own.len()).filter_map(|bit| 1u64.checked_shl(bit as u32)).fold(0, |a, b| a | b);
        Self { facet, mask, conditional: own.iter().any(|s| s.when.is_some()), profiles: None }
    }
}

impl Rule for Confidential {
    fn name(&self) -> String {
        "confidential".into()
    }

    fn monotone(&self, setting: Setting) -> bool {
        !setting.suppression || !self.conditional
    }

    /// How many people have a sentence that follows about them.
    fn measure(&self, class: &Class<'_>, _release: &Class<'_>) -> f64 {
        let Some(profiles) = &self.profiles else { return f64::INFINITY };
        let histogram = class.facets[self.facet];
        let mut follows = self.mask;
        for &code in histogram.codes {
            match profiles.get(code as usize) {
                Some(profile) => follows &= profile.holds,
                None => return f64::INFINITY,
            }
        }
        let exposed = |&(code, _): &(u32, u32)| profiles[code as usize].confidential & follows != 0;
        histogram.iter().filter(exposed).map(|(_, count)| f64::from(count)).sum()
    }

    fn required(&self) -> f64 {
        0.0
    }

    fn at_most(&self) -> bool {
        true
    }

    fn bind(&self, values: &Values<'_>) -> Option<Arc<dyn Rule>> {
        let profiles = Some(Arc::clone(values.profiles));
        Some(Arc::new(Self { profiles, facet: self.facet, mask: self.mask, conditional: self.conditional }))
    }
}
