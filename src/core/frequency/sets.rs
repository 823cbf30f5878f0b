//! What searches ask of the counts of one window, whatever the key type: sets and outlines by node.

use std::sync::Arc;

use super::outline::{Outline, Shown};
use super::set::Classes;
use super::spread::Spread;
use crate::model::domain::DomainView;
use crate::model::lattice::Node;
use crate::model::recoding::{Column, Recoding};

/// Frequency sets by node, whatever the key type.
pub trait FrequencySets: Send + Sync {
    /// The finest set.
    fn base(&self) -> Arc<dyn Classes>;
    /// The set of `node`, which may be any node of the full hierarchies.
    fn set(&self, node: &Node) -> Arc<dyn Classes>;
    /// What the sizes of the classes of `node` say about a least one by themselves, with the cells left out if they are of at most
    /// `most` records. Where a store follows another that was asked the same, this is far less work than the classes.
    fn outline(&self, node: &Node, least: u32, most: u64) -> Option<Outline>;
    /// The same by another rule than a least size, for which `least` stands, where a store follows another that was asked the same
    /// and counts what the rule looks at; `None` otherwise.
    fn outline_by(&self, node: &Node, least: u32, shown: Shown<'_>, most: u64) -> Option<Outline>;
    /// The same as [`FrequencySets::outline`] without the cells, for nodes that hardly any other is rolled up from: where it can be counted without the set, that
    /// is not made.
    fn glance(&self, node: &Node, least: u32) -> Option<Outline>;
    /// The classes of any recoding whose columns over the same domains are `columns`, summed from the finest set.
    fn regroup(&self, recoding: &Recoding, columns: &[Column]) -> Arc<dyn Classes>;
    /// Which of the sets asked for so far the next store should have at hand; the others it brings up to date if need be.
    fn remember(&self, nodes: &[Node]);
    /// Bytes of the sets that came from earlier stores.
    fn warm_bytes(&self) -> usize;
    /// How many sets were scanned and rolled up so far.
    fn origins(&self) -> Origins;
    /// The domains the codes belong to.
    fn domains(&self) -> &[Arc<DomainView>];
    /// How the records spread over the values of the attributes.
    fn spread(&self) -> &Spread;
}

/// How the sets handed out were made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Origins {
    /// Counted from rows.
    pub scanned: u64,
    /// Summed from a finer set.
    pub rolled_up: u64,
    /// Found in the store.
    pub cached: u64,
}
