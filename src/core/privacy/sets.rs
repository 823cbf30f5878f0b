//! Sensitive arrays: what a class gives away of the elements of its sets.
//!
//! A record tells every element of its set, so `{hiv, flu}`, `{hiv, gout}` and `{hiv}` are three values and no secret: an element that
//! all of them have is known of everybody in the class. Diversity is 1 then, however many sets there are, and the share of a value is
//! that of its most frequent element. Where somebody has several records, an element counts once for each different set, so that a
//! share can come out too large, never too small.
//! A merged class has no element in common that its parts do not have, so what is monotone for values is so for sets.

use std::collections::HashMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::model::counting::{Histogram, Values};
use crate::model::domain::Code;
use crate::model::record::counted_elements;

/// The elements of every value of a sensitive field, where some value has several.
pub(super) struct Sets {
    /// By code, ascending numbers of elements.
    elements: Vec<Box<[u32]>>,
}

impl Sets {
    /// Those of the field with this index among the sensitive ones; `None` if all its values are single ones.
    pub(super) fn of(field: usize, values: &Values<'_>) -> Option<Arc<Self>> {
        let labels = || values.sensitive.get(field).map(|view| view.level(0).labels());
        labels()?.any(|text| counted_elements(text).is_some()).then_some(())?;
        let mut numbers: HashMap<String, u32> = HashMap::new();
        let mut number = |element: String| {
            let next = numbers.len() as u32;
            *numbers.entry(element).or_insert(next)
        };
        let mut set = |text: &str| {
            let elements = counted_elements(text).unwrap_or_else(|| vec![text.to_owned()]);
            let mut elements: Box<[u32]> = elements.into_iter().map(&mut number).collect();
            elements.sort_unstable();
            elements
        };
        Some(Arc::new(Self { elements: labels()?.map(&mut set).collect() }))
    }

    /// True if everybody who has a value has one element. A code that nothing is known of may have any element.
    pub(super) fn share_an_element(&self, histogram: Histogram<'_>) -> bool {
        let mut known = histogram.codes.iter().filter_map(|&code| self.elements.get(code as usize));
        let Some(first) = known.next() else { return true };
        let mut common = first.to_vec();
        for own in known {
            common.retain(|element| own.binary_search(element).is_ok());
        }
        !common.is_empty()
    }

    /// How many people have the most frequent element, or more.
    pub(super) fn most(&self, histogram: Histogram<'_>) -> u32 {
        let (mut counts, mut unknown) = (FxHashMap::<u32, u32>::default(), 0);
        for (code, count) in histogram.iter() {
            match self.of_code(code) {
                Some(own) => own.iter().for_each(|&element| *counts.entry(element).or_default() += count),
                None => unknown += count,
            }
        }
        counts.into_values().max().unwrap_or(0) + unknown
    }

    fn of_code(&self, code: Code) -> Option<&[u32]> {
        self.elements.get(code as usize).map(|own| &**own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::domain::Domain;
    use crate::model::hierarchy::Hierarchy;

    /// The sets of a field that has counted these texts, from code 1 on.
    fn sets(texts: &[&str]) -> Option<Arc<Sets>> {
        let mut domain = Domain::new(Arc::new(Hierarchy::trivial()));
        std::iter::once(&"").chain(texts).for_each(|text| assert!(domain.code(text).is_some()));
        let view = [domain.view()];
        Sets::of(0, &Values { sensitive: &view, written: &view, profiles: &Arc::default(), shares: &[] })
    }

    #[test]
    fn an_element_that_all_sets_have_is_no_secret() {
        let sets = sets(&[r#"["flu","hiv"]"#, r#"["gout","hiv"]"#, "hiv", "flu"]).unwrap();
        let of = |codes: &[Code]| {
            let counts: Vec<u32> = codes.iter().map(|_| 2).collect();
            let histogram = Histogram { codes, counts: &counts };
            (sets.share_an_element(histogram), sets.most(histogram))
        };
        assert_eq!(of(&[1, 2, 3]), (true, 6));
        assert_eq!(of(&[1, 2, 4]), (false, 4));
        assert_eq!(of(&[2, 4]), (false, 2));
        // A miscounted class may be anything.
        assert_eq!(of(&[1, 2, 99]), (true, 6));
        assert_eq!(of(&[99]), (true, 2));
    }

    #[test]
    fn single_values_have_no_sets() {
        assert!(sets(&["flu", "[1,2)", "[x"]).is_none());
    }
}
