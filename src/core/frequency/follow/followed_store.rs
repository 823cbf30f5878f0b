//! [`FollowedStore`]: a store of a sliding window, made from the last one without a full count.
//!
//! It takes over the node counts of the last store and brings them up to date by what changed since, once somebody asks. The counts of
//! another node are made from the set that the last full count gives, and follow all that changed since then.
//! Invariant: all node counts equal those of a full count at the store's moment. Where there is no room for more, or too many
//! are asked for, the question goes to the rollups, which count everything.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::{FxHashMap, FxHashSet};

use super::followed_classes::FollowedClasses;
use super::node_counts::NodeCounts;
use crate::frequency::counts::Changes;
use crate::frequency::key::ClassKey;
use crate::frequency::set::{Classes, Entropies, Question};
use crate::frequency::store::{Answer, FrequencySets, FrequencyStore, Origins};
use crate::frequency::sum::Sums;
use crate::model::counting::Counting;
use crate::model::domain::DomainView;
use crate::model::lattice::Node;
use crate::model::recoding::{Column, Recoding};

/// How many node counts may be made for one store. More cost more than counting everything and rolling up from that; fewer count
/// everything where a few node counts would do. Exact searches leave up to 130 nodes to the next.
const MANY: usize = 256;

/// How many nodes are followed. More cost more to follow than to count again, and fewer leave a search to count what it needs.
const MOST: usize = 512;

/// How many stores in a row may wait for their node counts to be taken over. More hold the memory of stores that nobody asks; fewer
/// lose the counts where windows are skipped. After more of them a search counts everything.
const MAX_UNASKED: usize = 8;

/// What changed before a store.
pub(crate) struct PastChanges<K> {
    /// What changed since the last store.
    pub(crate) news: Arc<Changes<K>>,
    /// The sets of the last full count; `None` if that is this store's own.
    pub(crate) origin: Option<Arc<FrequencyStore<K>>>,
    /// What changed since that count, store by store.
    pub(crate) since: Vec<Arc<Changes<K>>>,
}

/// A store of a sliding window.
pub(crate) struct FollowedStore<K> {
    rollups: Arc<FrequencyStore<K>>,
    counting: Counting,
    /// How many bytes the node counts may take.
    memory: usize,
    past: PastChanges<K>,
    followed: Mutex<Followed<K>>,
}

struct Followed<K> {
    /// The last store, until its node counts are taken over.
    last: Option<Arc<FollowedStore<K>>>,
    nodes: FxHashMap<Node, NodeCounts<K>>,
    classes: FxHashMap<Node, Arc<FollowedClasses<K>>>,
    bytes: usize,
    /// Node counts made for this store.
    made: usize,
    /// How many stores in a row nobody has asked.
    unasked: usize,
    /// True if too many stores in a row were not asked: following them all up to now costs more than counting everything once.
    is_late: bool,
    /// True once the search that asks is over.
    done: bool,
    /// True if a question had to be passed on.
    failed: bool,
    sums: Sums<K>,
}

impl<K: ClassKey> FollowedStore<K> {
    /// The store after `last`.
    pub(crate) fn after(
        last: Option<Arc<Self>>,
        past: PastChanges<K>,
        rollups: FrequencyStore<K>,
        counting: Counting,
        memory: usize,
    ) -> Self {
        let unasked = last.as_ref().map_or(0, |last| last.followed().unasked) + 1;
        let followed = Followed {
            last: last.filter(|_| unasked <= MAX_UNASKED),
            nodes: FxHashMap::default(),
            classes: FxHashMap::default(),
            bytes: 0,
            made: 0,
            unasked,
            is_late: unasked > MAX_UNASKED,
            done: false,
            failed: false,
            sums: Sums::default(),
        };
        Self { rollups: Arc::new(rollups), counting, memory, past, followed: Mutex::new(followed) }
    }

    /// The rollups of the store's own finest set.
    pub(crate) fn rollups(&self) -> &Arc<FrequencyStore<K>> {
        &self.rollups
    }

    /// True if it was made without a full count.
    pub(crate) fn follows(&self) -> bool {
        self.past.origin.is_some()
    }

    /// True if a question had to be passed on.
    pub(crate) fn failed(&self) -> bool {
        self.followed().failed
    }

    fn followed(&self) -> MutexGuard<'_, Followed<K>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node counts as of this store.
    fn current(&self) -> MutexGuard<'_, Followed<K>> {
        let mut followed = self.followed();
        followed.unasked = 0;
        if let Some(last) = followed.last.take() {
            followed.nodes = last.handed_on();
            drop(last);
            let Followed { nodes, sums, .. } = &mut *followed;
            nodes.values_mut().for_each(|node| self.apply(&self.past.news, node, sums));
            followed.bytes = followed.nodes.values().map(NodeCounts::bytes).sum();
        }
        followed
    }

    fn apply(&self, changes: &Changes<K>, node: &mut NodeCounts<K>, sums: &mut Sums<K>) {
        if !changes.is_empty() {
            let steps = self.rollups.steps(self.rollups.finest().node(), node.node());
            node.follow(changes, sums.mapped(&changes.keys, &steps), &self.counting);
        }
    }

    /// The node counts for the next store; none if somebody still asks this one.
    fn handed_on(self: &Arc<Self>) -> FxHashMap<Node, NodeCounts<K>> {
        let mut followed = self.current();
        let free = followed.done || Arc::strong_count(self) == 1;
        if free { std::mem::take(&mut followed.nodes) } else { FxHashMap::default() }
    }

    /// Asks the counts of a node; `None` if there are none, nor to be any.
    fn with<T>(
        &self,
        node: &Node,
        ask: impl FnOnce(&mut NodeCounts<K>, &mut FxHashMap<Node, Arc<FollowedClasses<K>>>) -> T,
    ) -> Option<T> {
        let mut followed = self.current();
        if !followed.nodes.contains_key(node) {
            let counts = self.make(node, &mut followed)?;
            followed.bytes += counts.bytes();
            followed.nodes.insert(node.clone(), counts);
        }
        let Followed { nodes, classes, .. } = &mut *followed;
        nodes.get_mut(node).map(|counts| {
            counts.ask();
            ask(counts, classes)
        })
    }

    /// The counts of a node from the last full count. If that is the store's own, its sets are at hand.
    fn make(&self, node: &Node, followed: &mut Followed<K>) -> Option<NodeCounts<K>> {
        let origin = self.past.origin.as_ref().filter(|_| !followed.is_late)?;
        let counts = (followed.made < MANY).then(|| NodeCounts::of(&origin.get(node)));
        let Some(mut counts) = counts.filter(|counts| followed.bytes + counts.bytes() <= self.memory) else {
            followed.failed = true;
            return None;
        };
        followed.made += 1;
        self.past.since.iter().for_each(|changes| self.apply(changes, &mut counts, &mut followed.sums));
        Some(counts)
    }
}

impl<K: ClassKey> FrequencySets for FollowedStore<K> {
    fn base(&self) -> Arc<dyn Classes> {
        self.rollups.base()
    }
    fn set(&self, node: &Node) -> Arc<dyn Classes> {
        let classes = |counts: &mut NodeCounts<K>, classes: &mut FxHashMap<Node, Arc<FollowedClasses<K>>>| {
            let made = classes.entry(node.clone()).or_insert_with(|| {
                Arc::new(FollowedClasses::new(counts.set(), Arc::clone(&self.rollups), self.counting.subjects))
            });
            Arc::clone(made) as Arc<dyn Classes>
        };
        let followed = if self.rollups.finest().is_made() { None } else { self.with(node, classes) };
        match followed {
            Some(classes) => {
                self.rollups.count_cached();
                classes
            }
            None => self.rollups.set(node),
        }
    }
    fn ask(&self, node: &Node, question: &Question<'_>) -> Answer {
        match self.with(node, |counts, _| counts.small_classes(question)).flatten() {
            Some(small) => {
                self.rollups.count_cached();
                Answer::Small(small)
            }
            None => self.rollups.ask(node, question),
        }
    }
    fn regroup(&self, recoding: &Recoding, columns: &[Column]) -> Arc<dyn Classes> {
        match recoding.node() {
            Some(node) => self.set(&node),
            None => self.rollups.regroup(recoding, columns),
        }
    }
    fn remember(&self, nodes: &[Node]) {
        let mut followed = self.current();
        followed.done = true;
        followed.failed |= nodes.len() > MOST;
        let failed = followed.failed;
        let nodes: FxHashSet<&Node> = nodes.iter().take(if failed { 0 } else { MOST }).collect();
        // What was asked for in passing will be again.
        followed.nodes.retain(|node, counts| counts.take_asked() && !failed || nodes.contains(node));
        followed.classes.clear();
        followed.bytes = followed.nodes.values().map(NodeCounts::bytes).sum();
        self.past.origin.as_deref().unwrap_or(&self.rollups).shrink(self.memory.saturating_sub(followed.bytes));
    }
    fn warm_bytes(&self) -> usize {
        self.followed().bytes
    }
    fn over(&self, domains: Vec<Arc<DomainView>>) -> Arc<dyn FrequencySets> {
        self.rollups.over(domains)
    }
    fn origins(&self) -> Origins {
        self.rollups.origins()
    }
    fn domains(&self) -> &[Arc<DomainView>] {
        self.rollups.domains()
    }
    fn entropies(&self) -> &Entropies {
        self.rollups.entropies()
    }
}
