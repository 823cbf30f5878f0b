//! [`count`] counts a window that has closed; a [`Counter`] counts one that moves on. The key type is chosen once and not per row.

use std::sync::{Arc, Mutex, PoisonError};

use super::counts::{FinestCounts, scan};
use super::follow::Follower;
use super::key::{ClassKey, Layout, Wide, Width};
use super::set::Finest;
use super::store::{FrequencySets, FrequencyStore};
use crate::model::batch::Rows;
use crate::model::counting::Counting;
use crate::model::domain::{Code, DomainView};

/// How many bytes of node counts are kept from one store to the next, if nobody says. Larger costs memory; smaller counts more
/// nodes again.
pub const DEFAULT_WARM_MEMORY: usize = 64 << 20;

/// Counts rows as they come and go, whatever the key type.
pub trait Counter: Send {
    /// Counts rows `range` of `rows`.
    fn add(&mut self, rows: &Rows, range: std::ops::Range<usize>);
    /// Takes rows out again.
    fn retract(&mut self, rows: &Rows, indices: &[usize]);
    /// Keeps at most so many bytes of node counts from one store to the next, and rollups in proportion.
    fn remember_within(&mut self, bytes: usize);
    /// True if the codes of row i fit the key; if not, count again with a larger layout.
    fn fits(&self, codes: &[Code]) -> bool;
    /// Distinct tuples counted.
    fn tuples(&self) -> usize;
    /// A store over the counts as they are now. A counter may live as long as the stream: the counts that were asked of
    /// the last store are brought up to date by what came and went since.
    fn store(&self, domains: &[Arc<DomainView>]) -> Arc<dyn FrequencySets>;
}

/// A store over rows that nothing comes to and nothing leaves any more, with rollups in proportion to `memory`; `None` if no key is wide
/// enough.
pub fn count(
    rows: &Rows,
    counting: &Counting,
    domains: &[Arc<DomainView>],
    memory: usize,
) -> Option<Arc<dyn FrequencySets>> {
    fn store<K: ClassKey>(
        rows: &Rows,
        layout: Layout,
        counting: &Counting,
        domains: &[Arc<DomainView>],
        memory: usize,
    ) -> Arc<dyn FrequencySets> {
        let finest = Finest::made(scan::<K>(rows, &layout, counting));
        Arc::new(FrequencyStore::new(finest, layout, domains.to_vec()).within(memory))
    }
    let layout = Layout::new(&domains.iter().map(|view| view.leaf_count()).collect::<Vec<_>>())?;
    let store = match layout.width() {
        Width::W32 => store::<u32>,
        Width::W64 => store::<u64>,
        Width::W256 => store::<Wide<4>>,
        Width::W1024 => store::<Wide<16>>,
    };
    Some(store(rows, layout, counting, domains, memory))
}

/// A counter for domains of these sizes; `None` if no key is wide enough.
pub fn counter(sizes: &[usize], counting: Counting) -> Option<Box<dyn Counter>> {
    let layout = Layout::new(sizes)?;
    Some(match layout.width() {
        Width::W32 => StreamCounter::<u32>::boxed(layout, counting),
        Width::W64 => StreamCounter::<u64>::boxed(layout, counting),
        Width::W256 => StreamCounter::<Wide<4>>::boxed(layout, counting),
        Width::W1024 => StreamCounter::<Wide<16>>::boxed(layout, counting),
    })
}

/// The counts, and what the next store can be made of.
struct StreamCounter<K> {
    /// Locked only while a store is made: counting has the counter to itself.
    state: Mutex<(FinestCounts<K>, Option<Follower<K>>)>,
    layout: Layout,
    memory: usize,
}

impl<K: ClassKey> StreamCounter<K> {
    fn boxed(layout: Layout, counting: Counting) -> Box<dyn Counter> {
        let state = Mutex::new((FinestCounts::<K>::new(layout.clone(), counting), None));
        Box::new(Self { state, layout, memory: DEFAULT_WARM_MEMORY })
    }

    fn counts(&mut self) -> &mut FinestCounts<K> {
        &mut self.state.get_mut().unwrap_or_else(PoisonError::into_inner).0
    }
}

impl<K: ClassKey> Counter for StreamCounter<K> {
    fn add(&mut self, rows: &Rows, range: std::ops::Range<usize>) {
        self.counts().add_all(rows, range);
    }
    fn retract(&mut self, rows: &Rows, indices: &[usize]) {
        self.counts().retract_all(rows, indices);
    }
    fn remember_within(&mut self, bytes: usize) {
        self.memory = bytes;
    }
    fn fits(&self, codes: &[Code]) -> bool {
        self.layout.fits(codes)
    }
    fn tuples(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0.len()
    }
    fn store(&self, domains: &[Arc<DomainView>]) -> Arc<dyn FrequencySets> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (counts, follower) = &mut *state;
        Follower::next(follower, counts, domains, self.memory)
    }
}
