//! Frequency sets: the classes of one node, with all that criteria and losses ask about them.
//!
//! [`Classes`] is the view that the rest of the program has; [`FrequencySet`] holds the classes by packed key; [`Finest`] is the set of
//! the finest node, which may not be made yet. [`SmallClasses`] answers the [`Question`] that nearly every node check asks.
//! Facets, subjects, marginals, entropies and tallies are what is counted beside the records.

mod classes;
mod entropies;
mod facets;
mod finest;
mod frequency_set;
mod marginals;
mod small_classes;
mod subjects;
mod tally;

pub use classes::{Classes, SeenClasses};
pub use entropies::Entropies;
pub(super) use facets::{FacetCounts, Facets};
pub(super) use finest::{Finest, Totals};
pub(super) use frequency_set::FrequencySet;
pub(super) use small_classes::cells;
pub use small_classes::{Question, Shown, SmallClasses};
pub use subjects::GONE;
pub(super) use subjects::{People, Subjects};
pub use tally::ClassTally;
