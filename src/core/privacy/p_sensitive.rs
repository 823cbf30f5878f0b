//! p-sensitivity (Truta, Vinay 2006): every class has at least p different values of a sensitive field. Monotone, with and
//! without suppression: values only come together. No value is none of them. `p-sensitive k-anonymity` is this beside `k-anonymity`.

use super::{Class, Rule, Setting};

pub(super) struct PSensitive {
    pub(super) field: String,
    pub(super) facet: usize,
    pub(super) p: u32,
}

impl Rule for PSensitive {
    fn name(&self) -> String {
        format!("p-sensitive/{}", self.field)
    }
    fn monotone(&self, _setting: Setting) -> bool {
        true
    }
    fn measure(&self, class: &Class<'_>, _release: &Class<'_>) -> f64 {
        class.facets[self.facet].values().codes.len() as f64
    }
    fn required(&self) -> f64 {
        f64::from(self.p)
    }
}
