//! Where an input has the fields of the policy, if not where the policy says.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Envelope, Path, PathTree, Schema};

/// The places of the fields in one input, such as a topic.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placement {
    /// The fields that stand elsewhere, by their names in the policy.
    pub fields: BTreeMap<Arc<str>, Path>,
    /// The array that holds a record in each element.
    pub array: Option<Path>,
}

impl Schema {
    /// The same projection of an input that has its fields there.
    #[must_use]
    pub fn placed(&self, placement: &Placement) -> Self {
        let place = |name: &Arc<str>, path: &Path| placement.fields.get(name).unwrap_or(path).clone();
        let mut schema = self.reading(|attribute| place(&attribute.name, &attribute.path));
        if placement.array.is_some() {
            (schema.envelope, schema.array) = (Envelope::Array, placement.array.clone());
        }
        schema
    }

    /// The same projection, which knows where inputs have its fields that are placed like these.
    #[must_use]
    pub fn also_at(mut self, placements: &[Placement]) -> Self {
        for attribute in &mut self.attributes {
            let elsewhere = placements.iter().filter_map(|placement| placement.fields.get(&attribute.name));
            attribute.elsewhere = elsewhere.cloned().collect();
        }
        self
    }

    /// The fields of an element, by slot, as the element nests them; none if records are not elements of an array.
    pub fn element(&self) -> PathTree {
        let inner = |path: &Path| {
            let outer = self.array.as_ref().filter(|array| array.contains(path))?;
            Some(Path::from_names(path.names()[outer.names().len()..].to_vec()))
        };
        let paths: Vec<(usize, Path)> =
            self.attributes().iter().enumerate().filter_map(|(slot, a)| Some((slot, inner(&a.path)?))).collect();
        PathTree::of(paths.iter().map(|(slot, path)| (path, *slot)))
    }
}
