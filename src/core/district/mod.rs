//! Districts: parts of the space of generalized values, one per outlet, so that people who are alike share an outlet.
//!
//! k people hide one another only within a release, and an instance makes releases of its own. If records are dealt out by chance, each of n
//! instances sees an n-th of the people everywhere and has to generalize as much as a window an n-th as large. If an instance has all
//! people of a district, it sees as many people who are alike as one instance for all would.
//!
//! ```text
//! records ─Sketch::add→ Sketch ─divide→ DistrictMap ─resolve→ Districts ─outlet→ the outlet of each record
//! ```
//! A [`DistrictMap`] is a tree of cuts. A cut asks whether a record's generalized value of one quasi-identifier comes before a bound, in
//! the order of the hierarchy. It divides the outlets of its node in two halves, in proportion to the records: outlets that are neighbours
//! have districts that are neighbours, so an instance with several neighbouring outlets has one larger district.
//!
//! Invariants:
//! - A cut is at a level that the policy lets be published: which release shows a record then tells nothing that a label could not.
//! - A map is made of records that were read before, and both sides of a cut held many of them: it tells of no single person.
//! - A map names generalized values that many records of its sketch had.

mod sketch;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::cmp::Ordering;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

pub use sketch::{FEWEST, MOST, Sketch};

use crate::model::domain::Domain;
use crate::model::hierarchy::Hierarchy;
use crate::model::lattice::Level;
use crate::model::policy::Policy;
use crate::model::record::Record;

/// The districts of all outlets, as text for other instances.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DistrictMap {
    /// How many outlets there are.
    pub outlets: u32,
    /// How the outlets are divided.
    pub districts: District,
}

/// Some neighbouring outlets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum District {
    /// Outlets that share a district, for there were too few records to divide it: the first one, and how many.
    Outlets(u32, u32),
    /// Outlets that are divided.
    Cut(Box<DistrictCut>),
}

/// Divides the outlets of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DistrictCut {
    /// The quasi-identifier.
    pub attribute: String,
    /// The level of the values.
    pub level: Level,
    /// The last value of the first part, in the order of the hierarchy.
    pub to: String,
    /// The part up to it.
    pub first: District,
    /// The others, and what has no place in the hierarchy.
    pub rest: District,
}

impl DistrictMap {
    /// One district for so many outlets.
    pub fn undivided(outlets: u32) -> Self {
        Self { outlets, districts: District::Outlets(0, outlets) }
    }

    /// True if some outlets share a district.
    pub fn is_undivided(&self) -> bool {
        self.outlets > 1 && self.districts.shares()
    }

    /// The districts for records of this policy; `None` if the map speaks of attributes or values that the policy does not have, or of
    /// levels that it does not publish.
    pub fn resolve(&self, policy: &Policy) -> Option<Districts> {
        let mut order = Orders::default();
        let root = self.districts.resolve(policy, self.outlets, &mut order)?;
        let slots = policy.schema.quasi.clone();
        let hierarchies = policy.quasi.iter().map(|quasi| quasi.hierarchy.clone()).collect();
        Some(Districts { root, order, slots, hierarchies })
    }
}

impl District {
    fn shares(&self) -> bool {
        match self {
            Self::Outlets(_, outlets) => *outlets > 1,
            Self::Cut(cut) => cut.first.shares() || cut.rest.shares(),
        }
    }

    fn resolve(&self, policy: &Policy, outlets: u32, orders: &mut Orders) -> Option<Node> {
        Some(match self {
            Self::Outlets(first, count) => {
                (*count > 0 && first.checked_add(*count)? <= outlets).then_some(())?;
                Node::Outlets(*first, *count)
            }
            Self::Cut(cut) => {
                let quasi = policy.quasi.iter().position(|quasi| *quasi.name == *cut.attribute)?;
                let attribute = &policy.quasi[quasi];
                (attribute.min_level <= cut.level && cut.level < attribute.hierarchy.height()).then_some(())?;
                orders.add(quasi, cut.level, &attribute.hierarchy);
                let to = orders.of(quasi, cut.level, &cut.to)?.owned();
                let first = cut.first.resolve(policy, outlets, orders)?;
                let rest = cut.rest.resolve(policy, outlets, orders)?;
                Node::Cut(Box::new(ResolvedCut { quasi, level: cut.level, to, first, rest }))
            }
        })
    }
}

/// The districts, ready to find the outlet of a record.
pub struct Districts {
    root: Node,
    order: Orders,
    /// The place of each quasi-identifier in a record.
    slots: Vec<usize>,
    hierarchies: Vec<std::sync::Arc<Hierarchy>>,
}

enum Node {
    Outlets(u32, u32),
    Cut(Box<ResolvedCut>),
}

struct ResolvedCut {
    quasi: usize,
    level: Level,
    to: Rank<'static>,
    first: Node,
    rest: Node,
}

impl Districts {
    /// The outlet of a record. `spread` decides among outlets that share its district.
    pub fn outlet(&self, record: &Record<'_>, spread: u64) -> u32 {
        let mut node = &self.root;
        loop {
            match node {
                Node::Outlets(first, count) => return first + (spread % u64::from(*count)) as u32,
                Node::Cut(cut) => node = if self.is_first(cut, record) { &cut.first } else { &cut.rest },
            }
        }
    }

    fn is_first(&self, cut: &ResolvedCut, record: &Record<'_>) -> bool {
        let text =
            self.slots.get(cut.quasi).and_then(|slot| record.values.get(*slot)).and_then(|value| value.canonical());
        let hierarchy = &self.hierarchies[cut.quasi];
        let leaf = text.as_deref().and_then(|text| hierarchy.canonical(text));
        let label = leaf.as_deref().and_then(|leaf| hierarchy.label(leaf, cut.level));
        label.and_then(|label| Some(self.order.of(cut.quasi, cut.level, &label)? <= cut.to)).unwrap_or(false)
    }
}

/// The order of the values of hierarchies that list their leaves, by attribute and level.
#[derive(Default)]
struct Orders(FxHashMap<(usize, Level), Option<FxHashMap<String, u32>>>);

impl Orders {
    fn add(&mut self, quasi: usize, level: Level, hierarchy: &std::sync::Arc<Hierarchy>) {
        self.0.entry((quasi, level)).or_insert_with(|| {
            let _listed = hierarchy.leaves()?;
            let view = Domain::new(hierarchy.clone()).view();
            Some(view.level(level).labels().map(str::to_owned).zip(0..).collect())
        });
    }

    /// The rank of a value; `None` if the hierarchy lists its values and has no such one.
    fn of<'l>(&self, quasi: usize, level: Level, label: &'l str) -> Option<Rank<'l>> {
        match self.0.get(&(quasi, level))? {
            Some(listed) => listed.get(label).map(|&place| Rank::listed(place)),
            None => Some(Rank::of(label)),
        }
    }
}

/// The rank of a generalized value among those of its level: by the list, or by the first number in its label and then by the label, so
/// that codes, intervals and dates stand in their order.
#[derive(Debug, Clone, PartialEq)]
struct Rank<'l>(f64, Cow<'l, str>);

impl<'l> Rank<'l> {
    fn listed(place: u32) -> Self {
        Self(f64::from(place), Cow::Borrowed(""))
    }

    fn of(label: &'l str) -> Self {
        let is_part = |c: char| c.is_ascii_digit() || c == '.';
        let number = label.find(|c: char| c.is_ascii_digit()).and_then(|at| {
            let digits = &label[at..];
            let end = digits.find(|c| !is_part(c)).unwrap_or(digits.len());
            let sign = if label[..at].ends_with('-') { -1.0 } else { 1.0 };
            Some(sign * digits[..end].trim_end_matches('.').parse::<f64>().ok()?)
        });
        Self(number.unwrap_or(f64::INFINITY), Cow::Borrowed(label))
    }

    fn owned(self) -> Rank<'static> {
        Rank(self.0, Cow::Owned(self.1.into_owned()))
    }
}

impl PartialOrd for Rank<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.0.total_cmp(&other.0).then_with(|| self.1.cmp(&other.1)))
    }
}
