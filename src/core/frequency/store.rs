//! The store: every frequency set a search has asked for, rolled up from the smallest finer one at hand.
//!
//! The only file that names dashmap. No guard leaves it: it hands out `Arc` snapshots.
//! [`FrequencySets`] hides the key type, as [`Counter`](super::counter::Counter) does, so that it is chosen once per window and not per row.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use dashmap::DashMap;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

use super::book::Book;
use super::deferred::Deferred;
use super::dense::{is_flat, places};
use super::glance::Glance;
use super::key::{Field, Key, Layout};
use super::levels::Levels;
use super::outline::{Outline, Shown};
use super::rollup::{Expected, Groups, Step, in_place, rollup};
use super::set::{Classes, FrequencySet};
pub use super::sets::{FrequencySets, Origins};
use super::sieve::Sieve;
use super::spread::Spread;
use super::warm::{Due, Stale};
use crate::model::domain::DomainView;
use crate::model::lattice::{Level, Node};
use crate::model::recoding::{Column, Recoding};

/// How many bytes of sets are kept for later rollups. Larger costs memory; smaller means rolling up from finer-than-needed,
/// that is larger, sets again.
const MAX_CACHED_BYTES: usize = 160 << 20;

/// How many sets are rolled up from one before another is made in between. Fewer make some that hardly anything is rolled up
/// from, more come late.
const MANY: u32 = 3;

/// A set in between is worth it if it leaves an attribute's records spread over so many times fewer values: the logarithm.
/// Smaller makes sets that are hardly smaller than what they are rolled up from, larger too few.
const WORTHWHILE: f64 = 1.0;

/// The base set and everything rolled up from it.
pub struct FrequencyStore<K> {
    layout: Layout,
    domains: Vec<Arc<DomainView>>,
    base: Arc<Deferred<K>>,
    sets: DashMap<Node, Held<K>>,
    /// The same sets, smallest first, so that the first that is finer than a node is the one to roll up from.
    by_size: RwLock<Vec<Cached<K>>>,
    /// Tables of rollups that are over.
    spare: Mutex<Vec<Groups<K>>>,
    /// The same of glances.
    glances: Mutex<Vec<Glance>>,
    /// Sets of the last store that are brought up to date together, once any is asked for.
    due: Mutex<Option<Due<K>>>,
    is_due: AtomicBool,
    /// Sets of earlier stores that nobody has asked for yet, smallest first.
    stale: Mutex<Vec<Stale<K>>>,
    /// The outlines of the last store.
    sieve: Mutex<Option<Sieve<K>>>,
    /// The ledgers, where more than records is counted.
    book: Option<Book<K>>,
    /// Parent maps by attribute and (from, to) level, composed on first use.
    maps: Vec<Vec<OnceLock<Vec<K>>>>,
    cached_bytes: AtomicUsize,
    warm_bytes: AtomicUsize,
    /// Made when first asked for, because it looks at the finest set.
    spread: OnceLock<Spread>,
    rolled_up: AtomicU64,
    cached: AtomicU64,
}

/// A set that others may be rolled up from.
struct Cached<K> {
    classes: usize,
    /// Kept here too, for most are only looked at to be passed over.
    levels: Levels,
    set: Arc<Deferred<K>>,
}

/// A set by its node.
struct Held<K> {
    set: Arc<Deferred<K>>,
    /// False while it was only brought along from an earlier store.
    asked: AtomicBool,
}

impl<K: Key> FrequencyStore<K> {
    /// A store over a base set.
    pub fn new(base: Deferred<K>, layout: Layout, domains: Vec<Arc<DomainView>>) -> Self {
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
            glances: Mutex::default(),
            due: Mutex::new(None),
            is_due: AtomicBool::new(false),
            stale: Mutex::default(),
            sieve: Mutex::default(),
            book: None,
            cached_bytes: AtomicUsize::new(0),
            warm_bytes: AtomicUsize::new(0),
            spread: OnceLock::new(),
            rolled_up: AtomicU64::new(0),
            cached: AtomicU64::new(0),
        }
    }

    /// Takes in the ledgers.
    pub(super) fn open(&mut self, book: Book<K>) {
        self.book = Some(book);
    }

    /// The ledgers, where there are any.
    pub(super) fn book(&self) -> Option<&Book<K>> {
        self.book.as_ref()
    }

    /// The finest set.
    pub(super) fn finest(&self) -> Arc<Deferred<K>> {
        Arc::clone(&self.base)
    }

    /// The frequency set of `node`.
    pub fn get(&self, node: &Node) -> Arc<Deferred<K>> {
        self.find(node, true)
    }

    /// The frequency set of `node`; if `asked`, one that is likely to be asked for again.
    fn find(&self, node: &Node, asked: bool) -> Arc<Deferred<K>> {
        if node == self.base.node() {
            return Arc::clone(&self.base);
        }
        self.settle();
        if let Some(held) = self.sets.get(node) {
            self.cached.fetch_add(1, Ordering::Relaxed);
            held.asked.fetch_or(asked, Ordering::Relaxed);
            return Arc::clone(&held.set);
        }
        if let Some(set) = self.refresh(|set| set.node() == node, asked) {
            self.cached.fetch_add(1, Ordering::Relaxed);
            return set;
        }
        let set = Arc::new(Deferred::made(self.summed(self.near(node).set(), node)));
        self.hold(&set, asked);
        set
    }

    /// The classes of `finer` as those of `node`.
    pub(super) fn summed(&self, finer: &Arc<FrequencySet<K>>, node: &Node) -> FrequencySet<K> {
        let (from, to, steps) = (self.sizes(&finer.node), self.sizes(node), self.steps(&finer.node, node));
        // Keys that agree in all bits above the steps lie together where they do so far.
        let below = steps.iter().map(|step| step.field.end()).fold(finer.ascends_from(), u32::max);
        let below =
            self.fields().iter().filter(|field| field.shift() < below).map(|field| field.end()).fold(below, u32::max);
        let near = to.iter().zip(self.fields()).filter(|(_, field)| field.end() <= below).map(|(&codes, _)| codes);
        let expected = match is_flat(places(near), finer.keys.len()) {
            true => Expected::Places { from: &from, to: &to, below },
            false => Expected::AtMost(places(to.iter().copied())),
        };
        self.rollup(finer, node, &steps, expected)
    }

    /// The outline that came from earlier stores.
    fn kept(&self, ask: impl FnOnce(&mut Sieve<K>) -> Option<Outline>) -> Option<Outline> {
        let kept = self.sieve().as_mut().and_then(ask);
        self.cached.fetch_add(u64::from(kept.is_some()), Ordering::Relaxed);
        kept
    }

    /// What the sizes of a node's classes say, if its set is not there and need not be made to know.
    fn glance_at(&self, node: &Node, least: u32) -> Option<Outline> {
        self.settle();
        if node == self.base.node() || self.sets.contains_key(node) {
            return None;
        }
        let finer = self.near(node);
        let (from, to) = (self.sizes(finer.node()), self.sizes(node));
        if !is_flat(places(to.iter().copied()), finer.most()) {
            return None;
        }
        let mut glance = self.glances.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        let outline = glance.at(finer.set(), &from, &to, &self.steps(finer.node(), node), least);
        self.glances.lock().unwrap_or_else(PoisonError::into_inner).push(glance);
        self.rolled_up.fetch_add(u64::from(outline.is_some()), Ordering::Relaxed);
        outline
    }

    /// By attribute how many values it has at a node.
    pub(super) fn sizes(&self, node: &Node) -> SmallVec<[usize; 16]> {
        self.domains.iter().zip(node.levels()).map(|(view, &level)| view.level(level).len()).collect()
    }

    /// From the codes of one node to those of a coarser one.
    pub(super) fn steps(&self, from: &Node, to: &Node) -> Vec<Step<'_, K>> {
        let (from, to) = (from.levels(), to.levels());
        let differ = (0..self.domains.len()).filter(|&a| from[a] != to[a]);
        differ.map(|a| Step { field: self.layout.field(a), map: self.map(a, from[a], to[a]) }).collect()
    }

    /// From the finest codes to those of a node, to be kept.
    pub(super) fn owned_steps(&self, node: &Node) -> Vec<(Field, Vec<K>)> {
        self.steps(&self.bottom(), node).into_iter().map(|step| (step.field, step.map.to_vec())).collect()
    }

    fn hold(&self, set: &Arc<Deferred<K>>, asked: bool) {
        if self.cached_bytes.fetch_add(set.bytes(), Ordering::Relaxed) < MAX_CACHED_BYTES {
            let held = Held { set: Arc::clone(set), asked: AtomicBool::new(asked) };
            self.sets.insert(set.node().clone(), held);
            let cached = Cached { classes: set.most(), levels: Levels::of(set.node()), set: Arc::clone(set) };
            let mut by_size = self.by_size.write().unwrap_or_else(PoisonError::into_inner);
            let at = by_size.partition_point(|other| other.classes < cached.classes);
            by_size.insert(at, cached);
        }
    }

    /// Lets go of what takes more than so many bytes, the largest first: each saves a rollup, so the smallest are worth most by the byte.
    pub(super) fn shrink(&self, memory: usize) {
        let mut by_size = self.by_size.write().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = 0;
        let fits = |cached: &Cached<K>| {
            bytes += cached.set.bytes();
            bytes <= memory
        };
        let kept = by_size.iter().map(fits).take_while(|fits| *fits).count();
        by_size.drain(kept..).for_each(|cached| _ = self.sets.remove(cached.set.node()));
        self.cached_bytes.store(by_size.iter().map(|cached| cached.set.bytes()).sum(), Ordering::Relaxed);
    }

    /// The finest set.
    pub(super) fn base_set(&self) -> &FrequencySet<K> {
        self.base.set()
    }

    /// How many values an attribute has at its finest.
    pub(super) fn codes(&self, attribute: usize) -> usize {
        self.domains[attribute].leaf_count()
    }

    /// For the next store: the rollups that somebody asked for, and the others as they are, which know the first `known`
    /// changes, or fewer. Smallest first.
    pub(super) fn handed_on(self: Arc<Self>, known: usize) -> (Vec<Arc<Deferred<K>>>, Vec<Stale<K>>) {
        self.settle();
        let (mut sets, mut others) = (Vec::new(), std::mem::take(&mut *self.stale()));
        for held in &self.sets {
            match held.asked.load(Ordering::Relaxed) {
                true => sets.push(Arc::clone(&held.set)),
                false => others.push(Stale::new(Arc::clone(&held.set), known)),
            }
        }
        sets.sort_by_key(|set| set.most());
        others.sort_by_key(|stale| stale.set.most());
        (sets, others)
    }

    /// Takes in sets that are brought up to date when they are of use, smallest first.
    pub(super) fn lay_by(&self, sets: Vec<Stale<K>>) {
        self.warm_bytes.fetch_add(sets.iter().map(|stale| stale.set.kept_bytes()).sum(), Ordering::Relaxed);
        *self.stale() = sets;
    }

    /// What has changed since a set was right that knows the first `known` changes.
    pub(super) fn changes(&self, known: usize) -> (Vec<K>, Vec<i32>) {
        self.base.changes(known)
    }

    /// The outlines that are kept from store to store.
    pub(super) fn sieve(&self) -> MutexGuard<'_, Option<Sieve<K>>> {
        self.sieve.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the codes of each attribute are in a key.
    pub(super) fn fields(&self) -> &[Field] {
        self.layout.fields()
    }

    fn stale(&self) -> MutexGuard<'_, Vec<Stale<K>>> {
        self.stale.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings the first that is `wanted` of the sets that were laid by up to date.
    fn refresh(&self, wanted: impl Fn(&Deferred<K>) -> bool, asked: bool) -> Option<Arc<Deferred<K>>> {
        let mut sets = self.stale();
        let at = sets.iter().position(|stale| wanted(&stale.set))?;
        let stale = sets.remove(at);
        drop(sets);
        let set = Arc::new(stale.refreshed(self));
        self.hold(&set, asked);
        Some(set)
    }

    /// Takes in rollups of the last store that are to be brought up to date.
    pub(super) fn expect(&self, due: Due<K>) {
        self.warm_bytes.fetch_add(due.sets.iter().map(|set| set.kept_bytes()).sum(), Ordering::Relaxed);
        *self.due.lock().unwrap_or_else(PoisonError::into_inner) = Some(due);
        self.is_due.store(true, Ordering::Release);
    }

    /// Brings up to date what is due; whoever else asks meanwhile waits for it.
    fn settle(&self) {
        if self.is_due.load(Ordering::Acquire) {
            let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
            due.take().into_iter().flat_map(|due| due.patched(self)).for_each(|set| self.hold(&Arc::new(set), false));
            self.is_due.store(false, Ordering::Release);
        }
    }

    /// The finest node.
    pub(super) fn bottom(&self) -> Node {
        self.base.node().clone()
    }

    fn rollup(
        &self,
        finer: &Arc<FrequencySet<K>>,
        node: &Node,
        steps: &[Step<'_, K>],
        expected: Expected<'_>,
    ) -> FrequencySet<K> {
        let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut groups = spare.unwrap_or_default();
        let set = rollup(finer, node, steps, expected, &mut groups);
        self.spare.lock().unwrap_or_else(PoisonError::into_inner).push(groups);
        self.rolled_up.fetch_add(1, Ordering::Relaxed);
        set
    }

    /// A set to roll `node` up from. Many nodes differ from the finest in one attribute above all (where there were ages,
    /// decades), so once many were rolled up from a set, one with that one attribute generalized is made for them.
    fn near(&self, node: &Node) -> Arc<Deferred<K>> {
        let finer = self.smallest_finer(node);
        if !finer.used(MANY) {
            return finer;
        }
        let (from, to) = (finer.node().levels(), node.levels());
        let narrowing = |&a: &usize| self.spread().at(a, from[a]) - self.spread().at(a, to[a]);
        let most = (0..from.len()).max_by(|a, b| narrowing(a).total_cmp(&narrowing(b)));
        let Some(most) = most.filter(|most| narrowing(most) > WORTHWHILE) else {
            return finer;
        };
        let waypoint = finer.node().with(most, to[most]);
        if waypoint == *node || self.sets.contains_key(&waypoint) {
            return finer;
        }
        self.get(&waypoint);
        self.smallest_finer(node)
    }

    fn smallest_finer(&self, node: &Node) -> Arc<Deferred<K>> {
        let base = self.base.most();
        let by_size = self.by_size.read().unwrap_or_else(PoisonError::into_inner);
        let levels = Levels::of(node);
        let finer =
            |cached: &&Cached<K>| cached.levels.may_be_finer(levels) && cached.set.node().is_finer_or_equal(node);
        let smallest = by_size.iter().take_while(|cached| cached.classes < base).find(finer);
        let smallest = smallest.map(|cached| Arc::clone(&cached.set));
        drop(by_size);
        // Bringing a set up to date costs about as much as it has classes.
        let most = smallest.as_ref().map_or(base, |set| set.most()) / 2;
        let stale = self.refresh(|set| set.most() < most && set.node().is_finer_or_equal(node), false);
        stale.or(smallest).unwrap_or_else(|| Arc::clone(&self.base))
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
        let followed = self.book.as_ref().filter(|_| !self.base.is_made()).and_then(|book| book.classes(self, node));
        self.cached.fetch_add(u64::from(followed.is_some()), Ordering::Relaxed);
        // Whoever asks for it looks at its classes one by one: at the set itself, and not each time through what it is made from.
        followed.unwrap_or_else(|| Arc::clone(self.get(node).set()) as Arc<dyn Classes>)
    }
    fn outline_by(&self, node: &Node, least: u32, shown: Shown<'_>, most: u64) -> Option<Outline> {
        let outline = self.book.as_ref()?.outline(self, node, least, shown, most);
        self.cached.fetch_add(u64::from(outline.is_some()), Ordering::Relaxed);
        outline
    }
    fn outline(&self, node: &Node, least: u32, most: u64) -> Option<Outline> {
        if self.book.is_some()
            && let Some(outline) = self.outline_by(node, least, &|size, _| size >= least, most)
        {
            return Some(outline);
        }
        let kept = self.kept(|sieve| sieve.outline(self, node, least, most));
        if kept.is_some() {
            return kept;
        }
        let set = self.find(node, false);
        let outline = set.outline(least)?;
        if outline.left_out() <= most {
            set.left_out(least)?;
        }
        Some(outline.clone())
    }
    fn glance(&self, node: &Node, least: u32) -> Option<Outline> {
        if self.book.is_some() {
            return self.outline(node, least, 0);
        }
        self.glance_at(node, least).or_else(|| self.find(node, false).outline(least).cloned())
    }
    fn regroup(&self, recoding: &Recoding, columns: &[Column]) -> Arc<dyn Classes> {
        if let Some(node) = recoding.node() {
            return self.set(&node);
        }
        // Published codes are at most as many as leaves, so they fit the same fields.
        let fields = || (0..columns.len()).map(|attribute| self.layout.field(attribute));
        let maps: Vec<Vec<K>> = fields().zip(columns).map(|(field, column)| in_place(field, column.map())).collect();
        let steps: Vec<Step<'_, K>> = fields().zip(&maps).map(|(field, map)| Step { field, map }).collect();
        let mut set = self.rollup(self.base.set(), &recoding.coarsest(), &steps, Expected::AtMost(usize::MAX));
        set.values = columns.iter().map(|column| column.values()).collect();
        Arc::new(set)
    }
    fn remember(&self, nodes: &[Node]) {
        self.settle();
        let nodes_asked: FxHashSet<&Node> = nodes.iter().collect();
        for held in &self.sets {
            held.asked.fetch_and(nodes_asked.contains(held.set.node()), Ordering::Relaxed);
        }
        if let Some(book) = &self.book {
            book.keep(self, nodes);
            return;
        }
        let mut sieve = self.sieve();
        match sieve.as_mut() {
            Some(sieve) => sieve.keep(self, nodes),
            None => *sieve = Some(Sieve::wanting(nodes)),
        }
    }
    fn warm_bytes(&self) -> usize {
        let ledgers = self.book.as_ref().map_or(0, Book::bytes);
        ledgers + self.warm_bytes.load(Ordering::Relaxed) + self.sieve().as_ref().map_or(0, Sieve::bytes)
    }
    fn origins(&self) -> Origins {
        Origins {
            scanned: u64::from(self.base.is_made()),
            rolled_up: self.rolled_up.load(Ordering::Relaxed),
            cached: self.cached.load(Ordering::Relaxed),
        }
    }
    fn domains(&self) -> &[Arc<DomainView>] {
        &self.domains
    }
    fn spread(&self) -> &Spread {
        self.spread.get_or_init(|| Spread::of(&*self.base, &self.domains))
    }
}
