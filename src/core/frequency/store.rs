//! The store: every frequency set that a search has asked for, rolled up from the smallest finer one at hand.
//!
//! This is the only file that names dashmap. No guard leaves it: it hands out `Arc` snapshots, so that node checks of one search can
//! run on several cores against one store. Two that ask for the same node at once may both roll it up; both results are equal.
//! [`FrequencySets`] hides the key type, as [`Counter`](super::counter::Counter) does, so that it is chosen once per window.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use dashmap::DashMap;
use smallvec::SmallVec;

use super::key::{ClassKey, Layout};
use super::rollup::rollup;
use super::set::{Classes, Entropies, Finest, FrequencySet, Question, SmallClasses};
use super::sum::{Codes, Step, Sums, in_place};
use crate::model::domain::DomainView;
use crate::model::lattice::{Level, Node, Outline};
use crate::model::recoding::{Column, Recoding};

/// Frequency sets by node, whatever the key type.
pub trait FrequencySets: Send + Sync {
    /// The finest set.
    fn base(&self) -> Arc<dyn Classes>;
    /// The set of `node`, which may be any node of the full hierarchies.
    fn set(&self, node: &Node) -> Arc<dyn Classes>;
    /// The answer to a question about `node`: the counts that it asks for, or the classes where the counts are not kept. In a store
    /// that follows another which was asked the same, the counts cost the work of the changes only.
    fn ask(&self, node: &Node, question: &Question<'_>) -> Answer;
    /// The classes of any recoding whose columns over the same domains are `columns`, summed from the finest set.
    fn regroup(&self, recoding: &Recoding, columns: &[Column]) -> Arc<dyn Classes>;
    /// The nodes that the next search is likely to ask for: the next store brings their counts up to date.
    fn remember(&self, nodes: &[Node]);
    /// Bytes of the counts that came from earlier stores.
    fn warm_bytes(&self) -> usize;
    /// A store of its own over the same finest set, with other generalizations of the same leaves.
    fn over(&self, domains: Vec<Arc<DomainView>>) -> Arc<dyn FrequencySets>;
    /// How many sets were scanned and rolled up so far.
    fn origins(&self) -> Origins;
    /// The domains the codes belong to.
    fn domains(&self) -> &[Arc<DomainView>];
    /// How the records spread over the values of the attributes.
    fn entropies(&self) -> &Entropies;
}

/// The answer to a [`Question`].
pub enum Answer {
    /// The counts that were asked for.
    Small(SmallClasses),
    /// The classes, for the caller to judge.
    Classes(Arc<dyn Classes>),
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

/// How many bytes of sets are kept for later rollups. Larger costs memory; smaller means rolling up from finer-than-needed,
/// that is larger, sets again.
const MAX_CACHED_BYTES: usize = 160 << 20;

/// In tenths of the memory for warm counts: the memory for rollups, up to the most. Larger and smaller: as [`MAX_CACHED_BYTES`].
const CACHED_TENTHS: usize = 25;

/// How many sets are rolled up from one before another is made in between. Fewer make some that hardly anything is rolled up
/// from, more come late.
const MANY: u32 = 3;

/// From sets of at most so many classes, small classes are counted without making a set. Larger: nodes above have to be counted from
/// larger sets. Smaller: memory is taken for sets from which hardly anything is rolled up.
const LIGHT: usize = 1 << 13;

/// A set in between is worth it if it leaves an attribute's records spread over so many times fewer values: the logarithm.
/// Smaller makes sets that are hardly smaller than what they are rolled up from, larger too few.
const WORTHWHILE: f64 = 1.0;

/// The finest set and everything rolled up from it.
pub(super) struct FrequencyStore<K> {
    layout: Layout,
    domains: Vec<Arc<DomainView>>,
    /// True if some attribute has levels of which neither refines the other.
    branches: bool,
    finest: Arc<Finest<K>>,
    /// How often something was rolled up from the finest set.
    finest_uses: AtomicU32,
    sets: DashMap<Node, Arc<Held<K>>>,
    /// The same sets, smallest first, so that the first that is finer than a node is the one to roll up from.
    by_size: RwLock<Vec<(Outline, Arc<Held<K>>)>>,
    /// The memory of sums that are over.
    spare: Mutex<Vec<Sums<K>>>,
    /// Parent maps by attribute and (from, to) level, composed on first use.
    maps: Vec<Vec<OnceLock<Vec<K>>>>,
    cached_bytes: AtomicUsize,
    most_cached: usize,
    /// Made when first asked for, because it looks at the finest set.
    entropies: OnceLock<Entropies>,
    rolled_up: AtomicU64,
    cached: AtomicU64,
}

/// A set that others may be rolled up from.
struct Held<K> {
    set: Arc<FrequencySet<K>>,
    /// How often something was rolled up from it.
    uses: AtomicU32,
}

impl<K: ClassKey> FrequencyStore<K> {
    /// A store over the finest set.
    pub(super) fn new(finest: Finest<K>, layout: Layout, domains: Vec<Arc<DomainView>>) -> Self {
        Self::sharing(Arc::new(finest), layout, domains)
    }

    fn sharing(finest: Arc<Finest<K>>, layout: Layout, domains: Vec<Arc<DomainView>>) -> Self {
        let pairs = |view: &Arc<DomainView>| (usize::from(view.height()) + 1).pow(2);
        let maps = domains.iter().map(|view| (0..pairs(view)).map(|_| OnceLock::new()).collect()).collect();
        Self {
            layout,
            maps,
            branches: domains.iter().any(|view| view.branches()),
            domains,
            finest,
            finest_uses: AtomicU32::new(0),
            sets: DashMap::new(),
            by_size: RwLock::default(),
            spare: Mutex::default(),
            cached_bytes: AtomicUsize::new(0),
            most_cached: MAX_CACHED_BYTES,
            entropies: OnceLock::new(),
            rolled_up: AtomicU64::new(0),
            cached: AtomicU64::new(0),
        }
    }

    /// Keeps rollups in proportion to the memory for warm counts.
    #[must_use]
    pub(super) fn within(mut self, memory: usize) -> Self {
        self.most_cached = (memory / 10).saturating_mul(CACHED_TENTHS).min(MAX_CACHED_BYTES);
        self
    }

    /// The finest set.
    pub(super) fn finest(&self) -> &Finest<K> {
        &self.finest
    }

    /// The frequency set of `node`.
    pub(super) fn get(&self, node: &Node) -> Arc<FrequencySet<K>> {
        if node == self.finest.node() {
            return Arc::clone(self.finest.set());
        }
        if let Some(held) = self.sets.get(node) {
            self.count_cached();
            return Arc::clone(&held.set);
        }
        let finer = self.finer(node);
        let (from, to) = (self.sizes(&finer.node), self.sizes(node));
        let codes = Codes { from: &from, to: &to };
        let set = Arc::new(self.rollup(&finer, node, &self.steps(&finer.node, node), Some(codes)));
        self.hold(&set);
        set
    }

    /// Notes that a set or its counts were at hand.
    pub(super) fn count_cached(&self) {
        self.cached.fetch_add(1, Ordering::Relaxed);
    }

    /// How many values each attribute has at a node.
    fn sizes(&self, node: &Node) -> SmallVec<[usize; 16]> {
        self.domains.iter().zip(node.levels()).map(|(view, &level)| view.level(level).len()).collect()
    }

    /// From the codes of one node to those of a coarser one.
    pub(super) fn steps(&self, from: &Node, to: &Node) -> Vec<Step<'_, K>> {
        let (from, to) = (from.levels(), to.levels());
        let differ = (0..self.domains.len()).filter(|&a| from[a] != to[a]);
        differ.map(|a| Step { field: self.layout.field(a), map: self.map(a, from[a], to[a]) }).collect()
    }

    /// How many values each attribute has at its finest.
    pub(super) fn leaves(&self) -> Vec<usize> {
        self.domains.iter().map(|view| view.leaf_count()).collect()
    }

    /// Drops the largest sets until the rest takes at most so many bytes. Each set saves one rollup, so the smallest are worth most by
    /// the byte.
    pub(super) fn shrink(&self, memory: usize) {
        let mut by_size = self.by_size.write().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = 0;
        let fits = |(_, held): &(Outline, Arc<Held<K>>)| {
            bytes += held.set.bytes();
            bytes <= memory
        };
        let kept = by_size.iter().map(fits).take_while(|fits| *fits).count();
        by_size.drain(kept..).for_each(|(_, held)| _ = self.sets.remove(&held.set.node));
        self.cached_bytes.store(by_size.iter().map(|(_, held)| held.set.bytes()).sum(), Ordering::Relaxed);
    }

    fn hold(&self, set: &Arc<FrequencySet<K>>) {
        if self.cached_bytes.fetch_add(set.bytes(), Ordering::Relaxed) < self.most_cached {
            let held = Arc::new(Held { set: Arc::clone(set), uses: AtomicU32::new(0) });
            self.sets.insert(set.node.clone(), Arc::clone(&held));
            let mut by_size = self.by_size.write().unwrap_or_else(PoisonError::into_inner);
            let at = by_size.partition_point(|(_, other)| other.set.len() < set.len());
            by_size.insert(at, (Outline::of(&set.node), held));
        }
    }

    fn rollup(
        &self,
        finer: &FrequencySet<K>,
        node: &Node,
        steps: &[Step<'_, K>],
        codes: Option<Codes<'_>>,
    ) -> FrequencySet<K> {
        self.rolled_up.fetch_add(1, Ordering::Relaxed);
        self.with_sums(|sums| rollup(finer, node, steps, codes, sums))
    }

    fn with_sums<T>(&self, sum: impl FnOnce(&mut Sums<K>) -> T) -> T {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut sums = spare.unwrap_or_default();
        let summed = sum(&mut sums);
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(sums);
        summed
    }

    /// The classes of a node that are small by their records, counted without making a set, where a finer set is small and the question
    /// is settled by that: such nodes are many, and little is saved by rolling up from them.
    fn counted_in_place(&self, node: &Node, question: &Question<'_>) -> Option<SmallClasses> {
        let held = self.smallest_finer(node).filter(|held| held.set.len() <= LIGHT)?;
        let (finer, least, most) = (&held.set, question.least, question.cells_up_to);
        let by_records = question.rule.is_none() && finer.people.is_none();
        if least == 0 || finer.node == *node || most.is_none() && !by_records {
            return None;
        }
        let (from, to) = (self.sizes(&finer.node), self.sizes(node));
        let codes = Codes { from: &from, to: &to };
        let steps = self.steps(&finer.node, node);
        let small = |rows: &[u32]| SmallClasses::of_records(rows, least);
        let small = self.with_sums(|sums| sums.flat(&finer.input(), &steps, codes, small))?;
        let is_settled = most.is_none_or(|most| small.left_out() > most);
        self.rolled_up.fetch_add(u64::from(is_settled), Ordering::Relaxed);
        is_settled.then_some(small)
    }

    /// A set to roll `node` up from. Many nodes differ from the finest in one attribute above all (where there were ages,
    /// decades), so once many were rolled up from a set, one with that one attribute generalized is made for them.
    fn finer(&self, node: &Node) -> Arc<FrequencySet<K>> {
        let held = self.smallest_finer(node);
        let uses = held.as_ref().map_or(&self.finest_uses, |held| &held.uses);
        let is_due = uses.fetch_add(1, Ordering::Relaxed) % MANY == MANY - 1;
        let finer = held.map_or_else(|| Arc::clone(self.finest.set()), |held| Arc::clone(&held.set));
        if !is_due {
            return finer;
        }
        let (from, to) = (finer.node.levels(), node.levels());
        let narrowing = |&a: &usize| self.entropies().at(a, from[a]) - self.entropies().at(a, to[a]);
        let most = (0..from.len()).max_by(|a, b| narrowing(a).total_cmp(&narrowing(b)));
        let Some(most) = most.filter(|most| narrowing(most) > WORTHWHILE) else {
            return finer;
        };
        let between = finer.node.with(most, to[most]);
        if between == *node || self.sets.contains_key(&between) {
            return finer;
        }
        self.get(&between);
        self.smallest_finer(node).map_or(finer, |held| Arc::clone(&held.set))
    }

    /// The smallest set that is finer than `node`; `None` if that is the finest.
    fn smallest_finer(&self, node: &Node) -> Option<Arc<Held<K>>> {
        let by_size = self.by_size.read().unwrap_or_else(PoisonError::into_inner);
        let outline = Outline::of(node);
        let mut finer = by_size.iter().filter(|(own, _)| own.may_be_finer(outline));
        let smallest = finer.find(|(_, held)| self.refines(&held.set.node, node));
        smallest.map(|(_, held)| Arc::clone(held)).filter(|held| held.set.len() < self.finest.len())
    }

    fn refines(&self, fine: &Node, coarse: &Node) -> bool {
        let mut levels = fine.levels().iter().zip(coarse.levels()).zip(&self.domains);
        fine.is_finer_or_equal(coarse) && (!self.branches || levels.all(|((&a, &b), view)| view.refines(a, b)))
    }

    fn map(&self, attribute: usize, from: Level, to: Level) -> &[K] {
        let view = &self.domains[attribute];
        let at = usize::from(from) * (usize::from(view.height()) + 1) + usize::from(to);
        self.maps[attribute][at].get_or_init(|| in_place(self.layout.field(attribute), &view.between(from, to)))
    }
}

impl<K: ClassKey> FrequencySets for FrequencyStore<K> {
    fn base(&self) -> Arc<dyn Classes> {
        Arc::clone(&self.finest) as Arc<dyn Classes>
    }
    fn set(&self, node: &Node) -> Arc<dyn Classes> {
        self.get(node)
    }
    fn ask(&self, node: &Node, question: &Question<'_>) -> Answer {
        if node != self.finest.node()
            && let Some(small) = self.counted_in_place(node, question)
        {
            return Answer::Small(small);
        }
        let set = self.get(node);
        match set.fails_by_records(question) {
            Some(small) => Answer::Small(small),
            None => set.small_classes(question).cloned().map_or(Answer::Classes(set), Answer::Small),
        }
    }
    fn regroup(&self, recoding: &Recoding, columns: &[Column]) -> Arc<dyn Classes> {
        if let Some(node) = recoding.node() {
            return self.set(&node);
        }
        // Published codes are at most as many as leaves, so they fit the same fields.
        let fields = || (0..columns.len()).map(|attribute| self.layout.field(attribute));
        let maps: Vec<Vec<K>> = fields().zip(columns).map(|(field, column)| in_place(field, column.map())).collect();
        let steps: Vec<Step<'_, K>> = fields().zip(&maps).map(|(field, map)| Step { field, map }).collect();
        let mut set = self.rollup(self.finest.set(), &recoding.coarsest(), &steps, None);
        set.values = columns.iter().map(Column::values).collect();
        Arc::new(set)
    }
    /// Nothing: no other store follows.
    fn remember(&self, _: &[Node]) {}
    fn warm_bytes(&self) -> usize {
        0
    }
    fn over(&self, domains: Vec<Arc<DomainView>>) -> Arc<dyn FrequencySets> {
        Arc::new(Self::sharing(Arc::clone(&self.finest), self.layout.clone(), domains))
    }
    fn origins(&self) -> Origins {
        Origins {
            scanned: u64::from(self.finest.is_made()),
            rolled_up: self.rolled_up.load(Ordering::Relaxed),
            cached: self.cached.load(Ordering::Relaxed),
        }
    }
    fn domains(&self) -> &[Arc<DomainView>] {
        &self.domains
    }
    fn entropies(&self) -> &Entropies {
        self.entropies.get_or_init(|| Entropies::of(&*self.finest, &self.domains))
    }
}
