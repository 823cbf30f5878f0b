//! p-sensitivity (Truta, Vinay 2006): every class has at least p different values of a sensitive field. Monotone, with and
//! without suppression: values only come together. No value is none of them, and sets that have an element in common are one
//! ([`Sets`]). `p-sensitive k-anonymity` is this beside `k-anonymity`.

use std::sync::Arc;

use super::sets::Sets;
use super::{Class, Place, Rule, Setting};
use crate::model::counting::Values;

#[derive(Clone)]
pub(super) struct PSensitive {
    pub(super) place: Place,
    pub(super) sets: Option<Arc<Sets>>,
    pub(super) p: u32,
}

impl Rule for PSensitive {
    fn name(&self) -> String {
        format!("p-sensitive/{}", self.place.name)
    }
    fn monotone(&self, _setting: Setting) -> bool {
        true
    }
    fn distinct_values_of(&self) -> Option<usize> {
        self.sets.is_none().then_some(self.place.facet)
    }
    fn measure(&self, class: &Class<'_>, _release: &Class<'_>) -> f64 {
        let values = class.facets[self.place.facet].values();
        match &self.sets {
            Some(sets) if sets.share_an_element(values) => values.codes.len().min(1) as f64,
            _ => values.codes.len() as f64,
        }
    }
    fn bind(&self, values: &Values<'_>) -> Option<Arc<dyn Rule>> {
        Some(Arc::new(Self { sets: Sets::of(self.place.field, values), ..self.clone() }))
    }
    fn required(&self) -> f64 {
        f64::from(self.p)
    }
}
