//! Rollups that live longer than a window: the sets that the last search asked for, kept up to date by what came and went. Nodes of
//! which only the sizes of classes matter are left to the [`Sieve`], which is far less work.
//!
//! Invariant: a set handed out equals the rollup of the base set of the same moment. Where histograms or
//! subjects are counted, a [`Book`](super::book::Book) does the same. Nothing is tracked before a first search has asked for something, so that windows
//! that are counted once pay nothing. What changed is itself rolled up on the way to the sets, once for all that share levels,
//! and a set that nobody else holds is patched in its place: the work is in what changed, not in the window.

use std::sync::Arc;

use super::deferred::{Copied, Deferred, Since};
use super::key::{Key, Layout};
use super::rollup::Groups;
use super::set::Classes;
use super::sieve::{News, Sieve};
use super::store::FrequencyStore;
use super::table::Table;
use super::totals::Totals;
use crate::model::domain::DomainView;
use crate::model::lattice::Node;

/// A change of more than one in so many tuples is not worth following: rolling up again costs less than patching.
const WORTHWHILE: usize = 4;

/// The finest set is copied once what changed since the last copy is more than one in so many tuples. More often copies
/// for little; less often makes every store carry, and whoever asks for the finest set redo, more changes.
const STALE: usize = 8;

/// The sets of the last search, and what has changed since.
pub(super) struct Warm<K> {
    last: Arc<FrequencyStore<K>>,
    copied: Arc<Copied<K>>,
    /// Records more or less since the copy, by the tuple's number.
    changes: Vec<(u32, i32)>,
    /// How many of the changes the last store knows.
    known: usize,
    /// Of the others, the tuple's records after each.
    counts: Vec<u32>,
    /// True if there were too many to follow.
    lost: bool,
    /// Without marginals before the first store that follows.
    totals: Totals,
}

/// The finest counts, by the tuples' numbers.
pub(super) struct Tuples<'a, K> {
    pub(super) keys: &'a [K],
    pub(super) rows: &'a [u32],
    pub(super) layout: &'a Layout,
}

impl<K: Key> Tuples<'_, K> {
    fn copied(&self) -> Arc<Copied<K>> {
        Arc::new(Copied { keys: self.keys.to_vec(), rows: self.rows.to_vec() })
    }
}

impl<K: Key> Warm<K> {
    /// Follows what happens after `last` was handed out.
    pub(super) fn after(last: Arc<FrequencyStore<K>>, now: &Tuples<'_, K>) -> Self {
        let totals = Totals { records: last.base_set().records(), classes: last.base_set().len(), ..Totals::default() };
        Self { copied: now.copied(), changes: Vec::new(), known: 0, counts: Vec::new(), lost: false, totals, last }
    }

    /// One record more or less of a tuple, which then has `rows`.
    #[inline]
    pub(super) fn change(&mut self, tuple: u32, by: i32, rows: u32) {
        if self.changes.len() - self.known <= self.copied.keys.len() / WORTHWHILE {
            self.changes.push((tuple, by));
            self.counts.push(rows);
            let before = rows.wrapping_add_signed(-by);
            self.totals.classes = self.totals.classes + usize::from(rows > 0) - usize::from(before > 0);
        } else {
            self.lost = true;
        }
    }

    /// A store over the counts of now, with the sets that were asked for last. `None` if too much has changed since. Each set
    /// saves a rollup, so the smallest are worth most by the byte, and are kept first where `memory` does not hold all.
    pub(super) fn advance(
        &mut self,
        now: &Tuples<'_, K>,
        bottom: Node,
        domains: &[Arc<DomainView>],
        memory: usize,
    ) -> Option<Arc<FrequencyStore<K>>> {
        if self.lost {
            return None;
        }
        if self.totals.marginals.is_empty() {
            // Not before it is known that there is a next store.
            let codes: Vec<usize> =
                (0..now.layout.fields().len()).map(|attribute| self.last.codes(attribute)).collect();
            self.totals.marginals = self.last.base_set().marginals(&codes);
        }
        let news = &self.changes[self.known..];
        let keys: Vec<K> = news.iter().map(|(tuple, _)| now.keys[*tuple as usize]).collect();
        let by: Vec<i32> = news.iter().map(|(_, by)| *by).collect();
        keys.iter().zip(&by).for_each(|(key, &by)| self.totals.count(key, now.layout.fields(), by));
        let counts = by.iter().zip(self.counts.drain(..)).map(|(&by, after)| [after.wrapping_add_signed(-by), after]);
        let news: News<K> = keys.iter().copied().zip(counts).collect();
        let (known, renewed) = (self.known, self.changes.len() > self.copied.keys.len() / STALE);
        if renewed {
            self.copied = now.copied();
            self.changes.clear();
        }
        self.known = self.changes.len();
        let since = Since {
            copied: Arc::clone(&self.copied),
            fresh: now.keys[self.copied.keys.len()..].to_vec(),
            changes: self.changes.clone(),
            fields: now.layout.fields().to_vec(),
            totals: self.totals.clone(),
        };
        let finest = Deferred::since(bottom, since);
        let next = Arc::new(FrequencyStore::new(finest, now.layout.clone(), domains.to_vec()));
        let is_shared = Arc::strong_count(&self.last) > 1;
        *next.sieve() = Sieve::after(&mut self.last.sieve(), &self.last, is_shared, news, memory);
        let (sets, mut stale) = std::mem::replace(&mut self.last, Arc::clone(&next)).handed_on(known);
        let mut bytes = 0;
        let mut fits = |set: &Arc<Deferred<K>>| {
            bytes += set.kept_bytes();
            bytes <= memory
        };
        next.expect(Due { sets: sets.into_iter().take_while(&mut fits).collect(), keys, by });
        stale.retain(|stale| !renewed && fits(&stale.set));
        next.lay_by(stale);
        Some(next)
    }
}

/// A set that is right but for what changed since.
pub(super) struct Stale<K> {
    pub(super) set: Arc<Deferred<K>>,
    /// How many of the changes since the copy it knows.
    known: usize,
}

impl<K: Key> Stale<K> {
    pub(super) fn new(set: Arc<Deferred<K>>, known: usize) -> Self {
        Self { set, known }
    }

    /// The set as of `store`.
    pub(super) fn refreshed(self, store: &FrequencyStore<K>) -> Deferred<K> {
        let (keys, by) = store.changes(self.known);
        let mut sets = [Following::new(self.set)];
        Patch::new(store, &mut sets).apply(&store.bottom(), &keys, &by, &mut sets);
        let [set] = sets;
        set.deferred()
    }
}

/// Sets of the last store, and what came and went since: to be brought up to date by whoever searches, so that whoever counts is
/// not held up.
pub(super) struct Due<K> {
    pub(super) sets: Vec<Arc<Deferred<K>>>,
    keys: Vec<K>,
    by: Vec<i32>,
}

impl<K: Key> Due<K> {
    /// The sets as of `store`.
    pub(super) fn patched(self, store: &FrequencyStore<K>) -> impl Iterator<Item = Deferred<K>> {
        let mut sets: Vec<_> = self.sets.into_iter().map(Following::new).collect();
        Patch::new(store, &mut sets).apply(&store.bottom(), &self.keys, &self.by, &mut sets);
        sets.into_iter().map(Following::deferred)
    }
}

/// A rollup on its way from one store to the next.
struct Following<K> {
    node: Node,
    table: Table<K>,
}

impl<K: Key> Following<K> {
    fn new(set: Arc<Deferred<K>>) -> Self {
        Self { node: set.node().clone(), table: set.into_table() }
    }

    fn deferred(self) -> Deferred<K> {
        Deferred::table(self.node, self.table)
    }

    fn level(&self, attribute: usize) -> u8 {
        self.node.levels()[attribute]
    }
}

/// Changes on their way from the finest node to the nodes of some sets.
struct Patch<'a, K> {
    store: &'a FrequencyStore<K>,
    /// The attributes, those first in which the sets agree most.
    order: Vec<usize>,
    groups: Groups<K>,
}

/// From how many sets on changes are summed once for all of them. Fewer cost less to patch one by one; more repeats work.
const WORTH_SUMMING: usize = 3;

impl<'a, K: Key> Patch<'a, K> {
    /// Sorts the sets so that those with like levels are next to each other.
    fn new(store: &'a FrequencyStore<K>, sets: &mut [Following<K>]) -> Self {
        let width = sets.first().map_or(0, |set| set.node.levels().len());
        let mut order: Vec<usize> = (0..width).collect();
        order.sort_by_cached_key(|&attribute| {
            let mut levels: Vec<u8> = sets.iter().map(|set| set.level(attribute)).collect();
            levels.sort_unstable();
            levels.dedup();
            levels.len()
        });
        sets.sort_by_cached_key(|set| order.iter().map(|&a| set.level(a)).collect::<Vec<_>>());
        Self { store, order, groups: Groups::default() }
    }

    /// Patches sets by changes at a node that is finer than all of them.
    fn apply(&mut self, at: &Node, keys: &[K], by: &[i32], sets: &mut [Following<K>]) {
        if sets.len() < WORTH_SUMMING {
            for set in sets {
                let keys = self.groups.mapped(keys, &self.store.steps(at, &set.node));
                set.table.follow(keys, by, |_, _, _| ());
            }
            return;
        }
        // The node that they have in common is as coarse as can be, so few changes are left.
        let least = |attribute: usize| sets.iter().map(|set| set.level(attribute)).min().unwrap_or(0);
        let common = Node::new((0..self.order.len()).map(least));
        let (keys, by) = self.groups.changes(keys, by, &self.store.steps(at, &common));
        let differs = |attribute: &&usize| sets.iter().any(|set| set.level(**attribute) != sets[0].level(**attribute));
        let Some(&attribute) = self.order.iter().find(differs) else {
            return;
        };
        for sets in sets.chunk_by_mut(|a, b| a.level(attribute) == b.level(attribute)) {
            self.apply(&common, &keys, &by, sets);
        }
    }
}
