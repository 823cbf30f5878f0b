//! A book: the ledgers of a store, of the nodes that searches ask about, where histograms or subjects are counted.
//!
//! A store that has one is made without counting anything: its ledgers are those of the last store, brought up to date by what
//! changed since once somebody asks. The ledger of another node is made of the set that the last full count gives, and
//! follows all that changed since then.
//! Invariant: every ledger equals one made of a full count of the store's moment. Where there is no room for more ledgers, or too
//! many are asked for, there is no answer, and whoever asks has everything counted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::{FxHashMap, FxHashSet};

use super::changes::Changes;
use super::exported::Exported;
use super::key::Key;
use super::ledger::Ledger;
use super::outline::{Outline, Shown};
use super::rollup::Groups;
use super::set::Classes;
use super::store::FrequencyStore;
use crate::model::counting::Counting;
use crate::model::lattice::Node;

/// How many ledgers may be made for one store. More cost more than counting everything and rolling up from that; fewer count
/// everything where a few ledgers would do.
const MANY: usize = 64;

/// How many nodes are followed. More cost more to follow than to count again, and fewer leave a search to count what it needs.
pub(super) const MOST: usize = 512;

/// The ledgers of one store.
pub(super) struct Book<K> {
    counting: Counting,
    /// How many bytes the ledgers may take.
    memory: usize,
    /// The sets of the last full count; none if that is this store's own.
    origin: Option<Arc<FrequencyStore<K>>>,
    /// What changed since that count, store by store.
    since: Vec<Arc<Changes<K>>>,
    /// What changed since the last store.
    news: Arc<Changes<K>>,
    pages: Mutex<Pages<K>>,
}

struct Pages<K> {
    /// The last store, until its ledgers are taken over.
    last: Option<Arc<FrequencyStore<K>>>,
    ledgers: FxHashMap<Node, Ledger<K>>,
    exported: FxHashMap<Node, Arc<Exported<K>>>,
    bytes: usize,
    /// Ledgers made for this store.
    made: usize,
    /// How many stores in a row nobody has asked.
    unasked: usize,
    /// True once the search that asks is over.
    done: bool,
    /// True if there was no answer.
    failed: bool,
    groups: Groups<K>,
}

/// How many stores in a row may wait for their ledgers to be taken over. More hold the memory of stores that nobody asks.
const MAX_UNASKED: usize = 8;

impl<K: Key> Book<K> {
    /// The book of the store after `last`, from which `news` lead to it.
    pub(super) fn after(
        last: Option<Arc<FrequencyStore<K>>>,
        news: Arc<Changes<K>>,
        origin: Option<Arc<FrequencyStore<K>>>,
        since: Vec<Arc<Changes<K>>>,
        counting: Counting,
        memory: usize,
    ) -> Self {
        let unasked = last.as_ref().and_then(|last| last.book()).map_or(0, |book| book.pages().unasked) + 1;
        let pages = Pages {
            last: last.filter(|_| unasked <= MAX_UNASKED),
            ledgers: FxHashMap::default(),
            exported: FxHashMap::default(),
            bytes: 0,
            made: 0,
            unasked,
            done: false,
            failed: false,
            groups: Groups::default(),
        };
        Self { counting, memory, origin, since, news, pages: Mutex::new(pages) }
    }

    /// The outline of a node, with cells as of [`Ledger::outline`]; `None` if there is no ledger, nor to be one.
    pub(super) fn outline(
        &self,
        store: &FrequencyStore<K>,
        node: &Node,
        least: u32,
        shown: Shown<'_>,
        most: u64,
    ) -> Option<Outline> {
        self.with(store, node, |ledger, _| ledger.outline(least, shown, most))?
    }

    /// The classes of a node; `None` if there is no ledger, nor to be one.
    pub(super) fn classes(&self, store: &FrequencyStore<K>, node: &Node) -> Option<Arc<dyn Classes>> {
        let classes = self.with(store, node, |ledger, exported| {
            let made = exported.entry(node.clone()).or_insert_with(|| {
                let subjects = self.counting.subjects;
                Arc::new(Exported::new(ledger.set(), store.finest(), store.owned_steps(node), subjects))
            });
            Arc::clone(made)
        })?;
        Some(classes)
    }

    /// Keeps what the next search is likely to ask for.
    pub(super) fn keep(&self, store: &FrequencyStore<K>, nodes: &[Node]) {
        let mut pages = self.settled(store);
        pages.done = true;
        pages.failed |= nodes.len() > MOST;
        let nodes: FxHashSet<&Node> = nodes.iter().take(if pages.failed { 0 } else { MOST }).collect();
        // What was asked for in passing will be again.
        let failed = pages.failed;
        pages.ledgers.retain(|node, ledger| ledger.take_asked() && !failed || nodes.contains(node));
        pages.exported.clear();
        pages.bytes = pages.ledgers.values().map(Ledger::bytes).sum();
        self.origin.as_deref().unwrap_or(store).shrink(self.memory.saturating_sub(pages.bytes));
    }

    /// About how many bytes it holds.
    pub(super) fn bytes(&self) -> usize {
        self.pages().bytes
    }

    /// True if its store was made without a full count.
    pub(super) fn follows(&self) -> bool {
        self.origin.is_some()
    }

    /// True if somebody asked for more than it could tell.
    pub(super) fn failed(&self) -> bool {
        self.pages().failed
    }

    fn pages(&self) -> MutexGuard<'_, Pages<K>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pages as of this store.
    fn settled(&self, store: &FrequencyStore<K>) -> MutexGuard<'_, Pages<K>> {
        let mut pages = self.pages();
        pages.unasked = 0;
        if let Some(last) = pages.last.take() {
            pages.ledgers = last.book().map(|book| book.handed_on(&last)).unwrap_or_default();
            let Pages { ledgers, groups, .. } = &mut *pages;
            let (bottom, news) = (store.bottom(), &*self.news);
            for ledger in ledgers.values_mut().filter(|_| !news.is_empty()) {
                let keys = groups.mapped(&news.keys, &store.steps(&bottom, ledger.node()));
                ledger.follow(news, keys, &self.counting);
            }
            pages.bytes = pages.ledgers.values().map(Ledger::bytes).sum();
        }
        pages
    }

    /// The ledgers for the next store; none if somebody still asks this one.
    fn handed_on(&self, own: &Arc<FrequencyStore<K>>) -> FxHashMap<Node, Ledger<K>> {
        let mut pages = self.settled(own);
        let free = pages.done || Arc::strong_count(own) == 1;
        if free { std::mem::take(&mut pages.ledgers) } else { FxHashMap::default() }
    }

    fn with<T>(
        &self,
        store: &FrequencyStore<K>,
        node: &Node,
        ask: impl FnOnce(&mut Ledger<K>, &mut FxHashMap<Node, Arc<Exported<K>>>) -> T,
    ) -> Option<T> {
        let mut pages = self.settled(store);
        if !pages.ledgers.contains_key(node) {
            let ledger = self.make(store, node, &mut pages)?;
            pages.bytes += ledger.bytes();
            pages.ledgers.insert(node.clone(), ledger);
        }
        let Pages { ledgers, exported, .. } = &mut *pages;
        ledgers.get_mut(node).map(|ledger| {
            ledger.ask();
            ask(ledger, exported)
        })
    }

    /// A ledger from the last full count. If that is the store's own, its sets are at hand.
    fn make(&self, store: &FrequencyStore<K>, node: &Node, pages: &mut Pages<K>) -> Option<Ledger<K>> {
        let origin = self.origin.as_ref()?;
        let ledger = (pages.made < MANY).then(|| Ledger::of(origin.get(node).set()));
        let Some(mut ledger) = ledger.filter(|ledger| pages.bytes + ledger.bytes() <= self.memory) else {
            pages.failed = true;
            return None;
        };
        pages.made += 1;
        for changes in &self.since {
            let keys = pages.groups.mapped(&changes.keys, &store.steps(&store.bottom(), node));
            ledger.follow(changes, keys, &self.counting);
        }
        Some(ledger)
    }
}
