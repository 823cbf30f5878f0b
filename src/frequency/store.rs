//! The store: every frequency set a search has asked for, rolled up from the smallest finer one at hand.
//!
//! The only file that names dashmap. No guard leaves it: it hands out `Arc` snapshots.
//! [`Counter`] and [`FrequencySets`] hide the key type, so that it is chosen once per window and not per row.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use dashmap::DashMap;

use super::base::BaseSet;
use super::key::{Key, Layout, Wide, Width};
use super::rollup::{Groups, Step, in_place, map_keys, rollup};
use super::set::{Classes, FrequencySet};
use crate::model::batch::Rows;
use crate::model::counting::Counting;
use crate::model::domain::{Code, DomainView};
use crate::model::lattice::{Level, Node};
use crate::model::recoding::{Column, Recoding};

/// How many bytes of sets are kept for later rollups. Larger costs memory; smaller means rolling up from finer-than-needed,
/// that is larger, sets again.
const MAX_CACHED_BYTES: usize = 160 << 20;

/// Counts rows as they come and go, whatever the key type.
pub trait Counter: Send {
    /// Counts rows `range` of `rows`.
    fn add(&mut self, rows: &Rows, range: std::ops::Range<usize>);
    /// Takes rows out again.
    fn retract(&mut self, rows: &Rows, indices: &[usize]);
    /// True if the codes of row i fit the key; if not, count again with a larger layout.
    fn fits(&self, codes: &[Code]) -> bool;
    /// Distinct tuples counted.
    fn tuples(&self) -> usize;
    /// A store over the counts as they are now. A counter may live as long as the stream: the sets that were asked of the last
    /// store are brought up to date by what came and went since, and not rolled up again.
    fn store(&self, domains: &[Arc<DomainView>]) -> Arc<dyn FrequencySets>;
}

/// Frequency sets by node, whatever the key type.
pub trait FrequencySets: Send + Sync {
    /// The finest set.
    fn base(&self) -> Arc<dyn Classes>;
    /// The set of `node`, which may be any node of the full hierarchies.
    fn set(&self, node: &Node) -> Arc<dyn Classes>;
    /// The classes of any recoding whose columns over the same domains are `columns`, summed from the finest set.
    fn regroup(&self, recoding: &Recoding, columns: &[Column]) -> Arc<dyn Classes>;
    /// How many sets were scanned and rolled up so far.
    fn origins(&self) -> Origins;
    /// The domains the codes belong to.
    fn domains(&self) -> &[Arc<DomainView>];
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

/// A counter for domains of these sizes; `None` if no key is wide enough.
pub fn counter(sizes: &[usize], counting: Counting) -> Option<Box<dyn Counter>> {
    let layout = Layout::new(sizes)?;
    Some(match layout.width() {
        Width::W64 => Box::new(BaseSet::<u64>::new(layout, counting)),
        Width::W128 => Box::new(BaseSet::<u128>::new(layout, counting)),
        Width::W256 => Box::new(BaseSet::<Wide<4>>::new(layout, counting)),
        Width::W1024 => Box::new(BaseSet::<Wide<16>>::new(layout, counting)),
    })
}

impl<K: Key> Counter for BaseSet<K> {
    fn add(&mut self, rows: &Rows, range: std::ops::Range<usize>) {
        for i in range {
            BaseSet::add(self, rows, i);
        }
    }
    fn retract(&mut self, rows: &Rows, indices: &[usize]) {
        for &i in indices {
            BaseSet::retract(self, rows, i);
        }
    }
    fn fits(&self, codes: &[Code]) -> bool {
        self.layout().fits(codes)
    }
    fn tuples(&self) -> usize {
        self.len()
    }
    fn store(&self, domains: &[Arc<DomainView>]) -> Arc<dyn FrequencySets> {
        let bottom = Node::new(domains.iter().map(|_| 0));
        let store = Arc::new(FrequencyStore::new(self.snapshot(bottom), self.layout().clone(), domains.to_vec()));
        self.follow(&store);
        store
    }
}

/// The base set and everything rolled up from it.
pub struct FrequencyStore<K> {
    layout: Layout,
    domains: Vec<Arc<DomainView>>,
    base: Arc<FrequencySet<K>>,
    sets: DashMap<Node, Held<K>>,
    /// The same sets, smallest first, so that the first that is finer than a node is the one to roll up from.
    by_size: RwLock<Vec<Cached<K>>>,
    /// Tables of rollups that are over.
    spare: Mutex<Vec<Groups<K>>>,
    /// Parent maps by attribute and (from, to) level, composed on first use.
    maps: Vec<Vec<OnceLock<Vec<K>>>>,
    cached_bytes: AtomicUsize,
    rolled_up: AtomicU64,
    cached: AtomicU64,
}

/// A set that others may be rolled up from.
struct Cached<K> {
    classes: usize,
    height: usize,
    set: Arc<FrequencySet<K>>,
}

/// A set by its node.
struct Held<K> {
    set: Arc<FrequencySet<K>>,
    /// False while it was only brought along from an earlier store.
    asked: AtomicBool,
}

impl<K: Key> FrequencyStore<K> {
    /// A store over a base set.
    pub fn new(base: FrequencySet<K>, layout: Layout, domains: Vec<Arc<DomainView>>) -> Self {
        let pairs = |view: &Arc<DomainView>| (usize::from(view.height()) + 1).pow(2);
        let maps = domains.iter().map(|view| (0..pairs(view)).map(|_| OnceLock::new()).collect()).collect();
        Self {
            layout,
            maps,
            domains,
            base: Arc::new(base),
            sets: DashMap::new(),
            by_size: RwLock::default(),
            spare: Mutex::default(),
            cached_bytes: AtomicUsize::new(0),
            rolled_up: AtomicU64::new(0),
            cached: AtomicU64::new(0),
        }
    }

    /// The frequency set of `node`.
    pub fn get(&self, node: &Node) -> Arc<FrequencySet<K>> {
        if node == self.base.node() {
            return Arc::clone(&self.base);
        }
        if let Some(held) = self.sets.get(node) {
            self.cached.fetch_add(1, Ordering::Relaxed);
            held.asked.store(true, Ordering::Relaxed);
            return Arc::clone(&held.set);
        }
        let finer = self.smallest_finer(node);
        let steps: Vec<Step<'_, K>> = (0..self.domains.len())
            .filter(|&a| finer.node().levels()[a] != node.levels()[a])
            .map(|a| Step { field: self.layout.field(a), map: self.map(a, finer.node().levels()[a], node.levels()[a]) })
            .collect();
        let set = Arc::new(self.rollup(&finer, node, &steps));
        self.hold(&set, true);
        set
    }

    fn hold(&self, set: &Arc<FrequencySet<K>>, asked: bool) {
        if self.cached_bytes.fetch_add(set.bytes(), Ordering::Relaxed) < MAX_CACHED_BYTES {
            let held = Held { set: Arc::clone(set), asked: AtomicBool::new(asked) };
            self.sets.insert(set.node().clone(), held);
            let cached = Cached { classes: set.len(), height: set.node().height(), set: Arc::clone(set) };
            let mut by_size = self.by_size.write().unwrap_or_else(PoisonError::into_inner);
            let at = by_size.partition_point(|other| other.classes < cached.classes);
            by_size.insert(at, cached);
        }
    }

    /// The finest set.
    pub(super) fn base_set(&self) -> &FrequencySet<K> {
        &self.base
    }

    /// The rollups that somebody asked for, smallest first.
    pub(super) fn asked_for(&self) -> Vec<Arc<FrequencySet<K>>> {
        let asked = self.sets.iter().filter(|held| held.asked.load(Ordering::Relaxed));
        let mut sets: Vec<_> = asked.map(|held| Arc::clone(&held.set)).collect();
        sets.sort_by_key(|set| set.len());
        sets
    }

    /// Takes in a rollup that was made elsewhere.
    pub(super) fn keep(&self, set: FrequencySet<K>) {
        self.hold(&Arc::new(set), false);
    }

    /// The keys of the finest node as keys of `node`.
    pub(super) fn generalize(&self, keys: &[K], node: &Node, into: &mut Vec<K>) {
        let fields = (0..self.domains.len()).filter(|&a| node.levels()[a] != 0);
        let steps: Vec<Step<'_, K>> =
            fields.map(|a| Step { field: self.layout.field(a), map: self.map(a, 0, node.levels()[a]) }).collect();
        map_keys(keys, &steps, into);
    }

    fn rollup(&self, finer: &Arc<FrequencySet<K>>, node: &Node, steps: &[Step<'_, K>]) -> FrequencySet<K> {
        let values = |(view, &level): (&Arc<DomainView>, &Level)| view.level(level).len();
        let most = self.domains.iter().zip(node.levels()).map(values).fold(1, usize::saturating_mul);
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut groups = spare.unwrap_or_default();
        let set = rollup(finer, node, steps, most, &mut groups);
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(groups);
        self.rolled_up.fetch_add(1, Ordering::Relaxed);
        set
    }

    fn smallest_finer(&self, node: &Node) -> Arc<FrequencySet<K>> {
        let (base, height) = (self.base.len(), node.height());
        let by_size = self.by_size.read().unwrap_or_else(PoisonError::into_inner);
        let finer = |cached: &&Cached<K>| cached.height <= height && cached.set.node().is_finer_or_equal(node);
        let smallest = by_size.iter().take_while(|cached| cached.classes < base).find(finer);
        Arc::clone(smallest.map_or(&self.base, |cached| &cached.set))
    }

    fn map(&self, attribute: usize, from: Level, to: Level) -> &[K] {
        let view = &self.domains[attribute];
        let at = usize::from(from) * (usize::from(view.height()) + 1) + usize::from(to);
        self.maps[attribute][at].get_or_init(|| in_place(self.layout.field(attribute), &view.between(from, to)))
    }
}

impl<K: Key> FrequencySets for FrequencyStore<K> {
    fn base(&self) -> Arc<dyn Classes> {
        Arc::clone(&self.base) as Arc<dyn Classes>
    }
    fn set(&self, node: &Node) -> Arc<dyn Classes> {
        self.get(node)
    }
    fn regroup(&self, recoding: &Recoding, columns: &[Column]) -> Arc<dyn Classes> {
        if let Some(node) = recoding.node() {
            return self.get(&node);
        }
        // Published codes are at most as many as leaves, so they fit the same fields.
        let fields = || (0..columns.len()).map(|attribute| self.layout.field(attribute));
        let maps: Vec<Vec<K>> = fields().zip(columns).map(|(field, column)| in_place(field, column.map())).collect();
        let steps: Vec<Step<'_, K>> = fields().zip(&maps).map(|(field, map)| Step { field, map }).collect();
        let mut set = self.rollup(&self.base, &recoding.coarsest(), &steps);
        set.values = columns.iter().map(|column| column.values().cloned()).collect();
        Arc::new(set)
    }
    fn origins(&self) -> Origins {
        Origins {
            scanned: 1,
            rolled_up: self.rolled_up.load(Ordering::Relaxed),
            cached: self.cached.load(Ordering::Relaxed),
        }
    }
    fn domains(&self) -> &[Arc<DomainView>] {
        &self.domains
    }
}
