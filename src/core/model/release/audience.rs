//! A group of readers with a table of its own, made of the same releases.
//!
//! Every row of an audience's table is a function of one published row: its values raised to the audience's levels, its other
//! fields kept or left out. A table with one level per column leaves whole classes out, chosen by the published rows. So all
//! audiences together, with everything that they know of each other, find at most what the release itself says, and that
//! satisfies the policy.

use std::sync::Arc;

use crate::model::lattice::Level;
use crate::model::policy::Loss;
use crate::model::schema::Schema;

/// A group of readers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audience {
    /// Its name, for logs and metrics.
    pub name: Arc<str>,
    /// The finest level of each quasi-identifier that it sees, in policy order.
    pub finest: Vec<Level>,
    /// The sensitive and kept fields that it does not see.
    pub dropped: Vec<Arc<str>>,
    /// If each column of its table has one level, although the release has several: the loss that chooses it.
    pub one_level: Option<Loss>,
}

/// An audience, and where its rows and its manifests go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AudienceTable<Place> {
    /// Its readers.
    pub audience: Audience,
    /// Where its rows go.
    pub rows: Place,
    /// Where its manifests go, if anywhere.
    pub manifests: Option<Place>,
}

impl Audience {
    /// The fields of its table.
    pub fn schema(&self, schema: &Schema) -> Schema {
        let seen = |slot: &usize| !self.dropped.contains(schema.name(*slot));
        let mut own = schema.clone();
        own.sensitive.retain(seen);
        own.keep.retain(seen);
        own
    }

    /// Which of the values of a row it sees, sensitive ones first, then kept ones.
    pub fn seen(&self, schema: &Schema) -> Vec<bool> {
        schema.sensitive.iter().chain(&schema.keep).map(|&slot| !self.dropped.contains(schema.name(slot))).collect()
    }
}
