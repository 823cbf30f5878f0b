//! A [`Counter`]: the base set, whatever its key type, which is chosen once per window and not per row.

use std::sync::Arc;

use super::base::BaseSet;
use super::key::{Key, Layout, Wide, Width};
use super::store::FrequencySets;
use crate::model::batch::Rows;
use crate::model::counting::Counting;
use crate::model::domain::{Code, DomainView};

/// Counts rows as they come and go, whatever the key type.
pub trait Counter: Send {
    /// Counts rows `range` of `rows`.
    fn add(&mut self, rows: &Rows, range: std::ops::Range<usize>);
    /// Takes rows out again.
    fn retract(&mut self, rows: &Rows, indices: &[usize]);
    /// Keeps at most so many bytes of sets from one store to the next.
    fn remember_within(&mut self, bytes: usize);
    /// True if the codes of row i fit the key; if not, count again with a larger layout.
    fn fits(&self, codes: &[Code]) -> bool;
    /// Distinct tuples counted.
    fn tuples(&self) -> usize;
    /// A store over the counts as they are now. A counter may live as long as the stream: the sets that were asked of the last
    /// store are brought up to date by what came and went since, and not rolled up again.
    fn store(&self, domains: &[Arc<DomainView>]) -> Arc<dyn FrequencySets>;
    /// The last store over the counts, of a counter that nothing is counted with any more.
    fn last_store(self: Box<Self>, domains: &[Arc<DomainView>]) -> Arc<dyn FrequencySets>;
}

/// A counter for domains of these sizes; `None` if no key is wide enough.
pub fn counter(sizes: &[usize], counting: Counting) -> Option<Box<dyn Counter>> {
    let layout = Layout::new(sizes)?;
    Some(match layout.width() {
        Width::W32 => Box::new(BaseSet::<u32>::new(layout, counting)),
        Width::W64 => Box::new(BaseSet::<u64>::new(layout, counting)),
        Width::W128 => Box::new(BaseSet::<u128>::new(layout, counting)),
        Width::W256 => Box::new(BaseSet::<Wide<4>>::new(layout, counting)),
        Width::W1024 => Box::new(BaseSet::<Wide<16>>::new(layout, counting)),
    })
}

impl<K: Key> Counter for BaseSet<K> {
    fn add(&mut self, rows: &Rows, range: std::ops::Range<usize>) {
        self.add_all(rows, range);
    }
    fn retract(&mut self, rows: &Rows, indices: &[usize]) {
        self.retract_all(rows, indices);
    }
    fn remember_within(&mut self, bytes: usize) {
        BaseSet::remember_within(self, bytes);
    }
    fn fits(&self, codes: &[Code]) -> bool {
        self.layout().fits(codes)
    }
    fn tuples(&self) -> usize {
        self.len()
    }
    fn store(&self, domains: &[Arc<DomainView>]) -> Arc<dyn FrequencySets> {
        self.store_of(domains)
    }
    fn last_store(self: Box<Self>, domains: &[Arc<DomainView>]) -> Arc<dyn FrequencySets> {
        BaseSet::last_store(*self, domains)
    }
}
