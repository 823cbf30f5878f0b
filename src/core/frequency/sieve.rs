//! What the sizes of classes say at many nodes, kept up to date by few changes: whether a class is too small to be shown is
//! settled by its first `least` records, so a class counts for no more than that towards those that it is part of.
//!
//! The tables form a tree, each fed by a finer one. A class that has at least `least` records before a change and after it tells
//! nobody, so the coarser a table, the less reaches it.
//! Invariant: the value of a class is the sum of the values of its parts, each at most `least`. So it is the class's records where
//! these are fewer than `least`, and at least that where they are not: outlines are exact. The records of larger classes are
//! deliberately absent; whoever needs those asks for the set.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::dense::{Aim, Dense, places};
use super::flat::Flat;
use super::key::Key;
use super::outline::Outline;
use super::rollup::Groups;
use super::set::{FrequencySet, Origin};
use super::store::{FrequencySets, FrequencyStore};
use super::table::Table;
use crate::model::lattice::{Level, Node};

/// How many tables one feeds before some are fed through another. More tell each what only a few need to know, fewer make
/// tables that hardly hold anything back.
const FAN: usize = 6;

/// Outlines that follow changes.
pub(super) struct Sieve<K> {
    /// What the next search is likely to ask for, until the first question.
    wanted: Vec<Node>,
    /// Zero until the first question.
    least: u32,
    /// Each behind the one that feeds it.
    branches: Vec<Branch<K>>,
    places: FxHashMap<Node, usize>,
    /// What has not been followed yet.
    news: News<K>,
    /// How many bytes the tables may take.
    memory: usize,
    bytes: usize,
    /// True once the search that asks is over.
    done: bool,
    groups: Groups<K>,
    dense: Dense,
}

/// A table of the tree.
#[derive(Clone)]
struct Branch<K> {
    node: Node,
    /// What feeds it; the finest set if nothing does.
    from: Option<usize>,
    feeds: usize,
    /// True if it came by itself, and was put where it could be.
    alone: bool,
    table: Counts<K>,
    /// What those that it feeds have to follow.
    told: (Vec<K>, Vec<i32>),
}

/// Once more than one in so many bytes are used, tables are flat where that is smaller. With more all of them are, which takes longer
/// to follow; with fewer there is no room left for those to come.
const SCARCE: usize = 3;

/// A table, flat where memory is scarce.
#[derive(Clone)]
enum Counts<K> {
    Flat(Flat),
    Keyed(Table<K>),
}

impl<K: Key> Counts<K> {
    fn bytes(&self) -> usize {
        match self {
            Self::Flat(table) => table.bytes(),
            Self::Keyed(table) => table.bytes(),
        }
    }

    fn classes(&self) -> usize {
        match self {
            Self::Flat(table) => table.classes(),
            Self::Keyed(table) => table.classes(),
        }
    }

    fn unzip(&self) -> (Vec<K>, Vec<u32>) {
        match self {
            Self::Flat(table) => table.iter::<K>().unzip(),
            Self::Keyed(table) => table.iter().unzip(),
        }
    }

    fn outline(&self, least: u32) -> Option<&Outline> {
        match self {
            Self::Flat(table) => table.outline(least),
            Self::Keyed(table) => table.outline(least),
        }
    }

    fn left_out(&self, least: u32) -> Option<&[Vec<u32>]> {
        match self {
            Self::Flat(table) => table.left_out::<K>(least),
            Self::Keyed(table) => table.left_out(least),
        }
    }

    /// Follows changes; `codes` are those that the node has now, of which more may have come.
    fn follow(&mut self, codes: &[usize], keys: &[K], by: &[i32], tell: impl FnMut(K, u32, u32)) {
        match self {
            Self::Flat(table) => {
                table.make_room::<K>(codes);
                table.follow(keys, by, tell);
            }
            Self::Keyed(table) => table.follow(keys, by, tell),
        }
    }
}

/// Changes of finest classes: their records before and after each.
pub(super) type News<K> = Vec<(K, [u32; 2])>;

impl<K: Key> Sieve<K> {
    /// To be asked about some nodes by the next store.
    pub(super) fn wanting(nodes: &[Node]) -> Self {
        Self {
            wanted: nodes.to_vec(),
            least: 0,
            branches: Vec::new(),
            places: FxHashMap::default(),
            news: News::new(),
            memory: 0,
            bytes: 0,
            done: true,
            groups: Groups::default(),
            dense: Dense::default(),
        }
    }

    /// For the store after `store`, in whose place it was: what has changed in between is followed once somebody asks. If others
    /// hold `store` and still have questions, it is copied.
    pub(super) fn after(
        place: &mut Option<Self>,
        store: &FrequencyStore<K>,
        is_shared: bool,
        news: News<K>,
        memory: usize,
    ) -> Option<Self> {
        place.iter_mut().for_each(|sieve| sieve.follow(store));
        let copied = |sieve: &Self| Self {
            wanted: sieve.wanted.clone(),
            branches: sieve.branches.clone(),
            places: sieve.places.clone(),
            groups: Groups::default(),
            dense: Dense::default(),
            news: News::new(),
            ..*sieve
        };
        let sieve = match place {
            Some(sieve) if is_shared && !sieve.done => copied(sieve),
            place => place.take()?,
        };
        Some(Self { news, memory, done: false, ..sieve })
    }

    /// About how many bytes it holds.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps what the next search is likely to ask for, and what feeds that.
    pub(super) fn keep(&mut self, store: &FrequencyStore<K>, nodes: &[Node]) {
        self.done = true;
        if self.least == 0 {
            self.wanted = nodes.to_vec();
            return;
        }
        self.follow(store);
        let nodes: FxHashSet<&Node> = nodes.iter().collect();
        let mut kept: Vec<bool> = self.branches.iter().map(|branch| nodes.contains(&branch.node)).collect();
        for at in (0..kept.len()).rev() {
            if let (true, Some(from)) = (kept[at], self.branches[at].from) {
                kept[from] = true;
            }
        }
        self.retain(&kept);
        let is_alone = |branch: &&Branch<K>| branch.alone && branch.feeds == 0;
        let mut crowds: FxHashMap<Option<usize>, usize> = FxHashMap::default();
        self.branches.iter().filter(is_alone).for_each(|branch| *crowds.entry(branch.from).or_default() += 1);
        let mut crowded: Vec<Option<usize>> =
            crowds.into_iter().filter(|(_, alone)| *alone > FAN).map(|(from, _)| from).collect();
        // From the last on: what is before it stays where it is.
        crowded.sort_unstable_by_key(|from| std::cmp::Reverse(*from));
        for from in crowded {
            let in_crowd = |branch: &Branch<K>| is_alone(&branch) && branch.from == from;
            let kept: Vec<bool> = self.branches.iter().map(|branch| !in_crowd(branch)).collect();
            let crowd = self.branches.iter().filter(|branch| in_crowd(branch));
            let nodes = crowd.map(|branch| branch.node.clone()).collect();
            self.retain(&kept);
            self.grow(store, from, nodes);
        }
    }

    /// The outline of a node; with the cells that are left out if they are of at most `most` records. `None` if there is no room for
    /// it, or it is asked about another size than before.
    pub(super) fn outline(&mut self, store: &FrequencyStore<K>, node: &Node, least: u32, most: u64) -> Option<Outline> {
        let at = match self.find(store, node, least)? {
            Some(at) => at,
            None => {
                let finer = |at: &usize| self.branches[*at].node.is_finer_or_equal(node);
                // Not worth looking for where there is no room anyway.
                self.room(store, node, usize::MAX)?;
                let from = (0..self.branches.len()).filter(finer).min_by_key(|&at| self.branches[at].table.classes());
                let at = self.add(store, from, &self.capped(store, from), node.clone())?;
                self.branches[at].alone = true;
                at
            }
        };
        let table = &self.branches[at].table;
        let outline = table.outline(least)?;
        if outline.left_out() <= most {
            table.left_out(least)?;
        }
        Some(outline.clone())
    }

    /// Where the table of a node is, after all that is new; `None` if it is asked about another size than before.
    fn find(&mut self, store: &FrequencyStore<K>, node: &Node, least: u32) -> Option<Option<usize>> {
        if self.least == 0 && least > 0 {
            self.least = least;
            self.news.clear();
            let wanted = std::mem::take(&mut self.wanted);
            self.grow(store, None, wanted);
        }
        if self.least != least {
            return None;
        }
        self.follow(store);
        Some(self.places.get(node).copied())
    }

    /// Takes out all others; what feeds one that is kept is kept.
    fn retain(&mut self, kept: &[bool]) {
        if kept.iter().all(|kept| *kept) {
            return;
        }
        let mut places = Vec::with_capacity(kept.len());
        let mut next = 0;
        for &kept in kept {
            places.push(next);
            next += usize::from(kept);
        }
        let all = std::mem::take(&mut self.branches).into_iter().zip(kept);
        self.branches = all.filter(|(_, kept)| **kept).map(|(branch, _)| branch).collect();
        self.branches.iter_mut().for_each(|branch| branch.feeds = 0);
        for at in 0..self.branches.len() {
            if let Some(from) = self.branches[at].from.map(|from| places[from]) {
                self.branches[at].from = Some(from);
                self.branches[from].feeds += 1;
            }
        }
        let named = self.branches.iter().enumerate().map(|(at, branch)| (branch.node.clone(), at));
        self.places = named.collect();
        self.bytes = self.branches.iter().map(|branch| branch.table.bytes()).sum();
    }

    /// Makes tables of `nodes`, fed by one that is finer: those that have much in common through one that has it too.
    fn grow(&mut self, store: &FrequencyStore<K>, from: Option<usize>, mut nodes: Vec<Node>) {
        let at = from.map_or_else(|| store.bottom(), |from| self.branches[from].node.clone());
        nodes.retain(|node| *node != at);
        let finer = self.capped(store, from);
        while nodes.len() > FAN
            && let Some((common, group)) = densest(store, &at, &nodes)
        {
            // What has all of that in common was in the group.
            nodes.retain(|node| !common.is_finer_or_equal(node));
            match self.add(store, from, &finer, common) {
                Some(at) => self.grow(store, Some(at), group),
                None => return,
            }
        }
        for node in nodes {
            self.add(store, from, &finer, node);
        }
    }

    /// The classes of a table, or the finest, each with what it counts for towards others.
    fn capped(&self, store: &FrequencyStore<K>, from: Option<usize>) -> Arc<FrequencySet<K>> {
        let (node, (keys, mut rows)): (Node, (Vec<K>, Vec<u32>)) = match from.map(|from| &self.branches[from]) {
            Some(from) => (from.node.clone(), from.table.unzip()),
            None => (store.bottom(), (store.base_set().keys.clone(), store.base_set().rows.clone())),
        };
        rows.iter_mut().for_each(|rows| *rows = self.least.min(*rows));
        Arc::new(FrequencySet::of_records(node, Origin::RolledUp, store.fields().to_vec(), keys, rows))
    }

    /// Whether the table of a node of at most so many classes is to be flat; `None` if there is no room for it.
    fn room(&self, store: &FrequencyStore<K>, node: &Node, most: usize) -> Option<bool> {
        let places = places(store.sizes(node).into_iter());
        let (flat, keyed) = (Flat::bytes_for(places), Table::<K>::bytes_for(most.min(places)));
        let is_flat = flat <= keyed && self.bytes > self.memory / SCARCE;
        let bytes = if is_flat { flat } else { keyed };
        (self.bytes.saturating_add(bytes) <= self.memory).then_some(is_flat)
    }

    /// Makes the table of a node, fed by one that is finer, whose classes these are.
    fn add(
        &mut self,
        store: &FrequencyStore<K>,
        from: Option<usize>,
        finer: &Arc<FrequencySet<K>>,
        node: Node,
    ) -> Option<usize> {
        let codes = store.sizes(&node);
        let table = match self.room(store, &node, finer.keys.len())? {
            true => {
                let aim = Aim { from: &store.sizes(&finer.node), to: &codes, below: u32::MAX, keys: finer.keys.len() };
                self.dense.aim(&finer.fields, aim, &store.steps(&finer.node, &node));
                Counts::Flat(Flat::of(finer, &self.dense, codes))
            }
            false => Counts::Keyed(Table::of(&store.summed(finer, &node))),
        };
        self.bytes += table.bytes();
        from.into_iter().for_each(|from| self.branches[from].feeds += 1);
        self.places.insert(node.clone(), self.branches.len());
        self.branches.push(Branch { node, from, feeds: 0, alone: false, table, told: Default::default() });
        Some(self.branches.len() - 1)
    }

    /// Follows what is new.
    fn follow(&mut self, store: &FrequencyStore<K>) {
        if self.news.is_empty() || self.least == 0 {
            return;
        }
        let least = self.least;
        let tell = |told: &mut (Vec<K>, Vec<i32>), key: K, before: u32, after: u32| {
            let by = after.min(least).cast_signed() - before.min(least).cast_signed();
            if by != 0 {
                told.0.push(key);
                told.1.push(by);
            }
        };
        let mut told = (Vec::new(), Vec::new());
        self.news.drain(..).for_each(|(key, [before, after])| tell(&mut told, key, before, after));
        let bottom = store.bottom();
        for at in 0..self.branches.len() {
            let (feeding, rest) = self.branches.split_at_mut(at);
            let Branch { node, from, feeds, table, told: tells, .. } = &mut rest[0];
            let (finer, (keys, by)) = match from {
                Some(from) => (&feeding[*from].node, &feeding[*from].told),
                None => (&bottom, &told),
            };
            tells.0.clear();
            tells.1.clear();
            if keys.is_empty() {
                continue;
            }
            let keys = self.groups.mapped(keys, &store.steps(finer, node));
            let codes = store.sizes(node);
            match *feeds > 0 {
                true => table.follow(&codes, keys, by, |key, before, after| tell(tells, key, before, after)),
                false => table.follow(&codes, keys, by, |_, _, _| ()),
            }
        }
    }
}

/// Of nodes that are coarser than `at` some that have most in common beyond it, and what they have.
fn densest<K: Key>(store: &FrequencyStore<K>, at: &Node, nodes: &[Node]) -> Option<(Node, Vec<Node>)> {
    let values = |attribute: usize, level: Level| store.domains()[attribute].level(level).len().max(1) as f64;
    let width = at.levels().len();
    let mut best: Option<(f64, Node, Vec<Node>)> = None;
    for attribute in 0..width {
        let mut levels: Vec<Level> = nodes.iter().map(|node| node.levels()[attribute]).collect();
        levels.sort_unstable();
        levels.dedup();
        for level in levels.into_iter().filter(|&level| level > at.levels()[attribute]) {
            let group = || nodes.iter().filter(move |node| node.levels()[attribute] >= level);
            let common = Node::new((0..width).map(|a| group().map(|node| node.levels()[a]).min().unwrap_or(0)));
            let narrowing = (0..width).map(|a| (values(a, at.levels()[a]) / values(a, common.levels()[a])).ln());
            let gain = narrowing.sum::<f64>() * (group().count() - 1) as f64;
            if gain > best.as_ref().map_or(0.0, |best| best.0) {
                best = Some((gain, common, group().cloned().collect()));
            }
        }
    }
    best.map(|(_, common, group)| (common, group))
}
