//! [`Follower`]: makes the stores of a sliding window, from one full count to the next.
//!
//! The counts note who changes. A store then takes over the node counts of the last one, and its finest set is made, by replaying
//! what changed on a copy of the counts, only if somebody asks for more than node counts tell. If that happens, the next stores are
//! counted in full, more of them each time it happens again.

use std::sync::Arc;

use super::followed_store::{FollowedStore, PastChanges};
use crate::frequency::counts::{Belongings, Changes, FinestCounts};
use crate::frequency::key::ClassKey;
use crate::frequency::set::{Classes, Finest, Totals};
use crate::frequency::store::FrequencyStore;
use crate::model::domain::DomainView;
use crate::model::lattice::Node;

/// A change of more than one in so many entries is not followed: counting everything costs less.
const WORTHWHILE: usize = 8;

/// Everything is counted again once what changed is this share of all entries. Less costs a full count more often; more makes every
/// new node count follow more.
const STALE: f64 = 1.0;

/// The most stores in a row that are counted in full because following was of no use. More would not notice that the searches
/// have changed, fewer follow in vain.
const MAX_PAUSE: u32 = 64;

/// The last store, and what the next can be made of.
pub(crate) struct Follower<K> {
    last: Arc<FollowedStore<K>>,
    full: Option<FullCount<K>>,
    pause: Pause,
}

/// The last full count, and what changed since.
struct FullCount<K> {
    sets: Arc<FrequencyStore<K>>,
    /// What the sets were counted from.
    counts: Arc<FinestCounts<K>>,
    /// What changed since, store by store.
    since: Vec<Arc<Changes<K>>>,
    totals: Totals,
    /// Records by tuple, as of the last store.
    tuples: Vec<u32>,
}

/// For how many stores everything is counted.
#[derive(Clone, Copy, Default)]
struct Pause {
    left: u32,
    /// How many it was the last time.
    last: u32,
}

impl Pause {
    /// After a store that could answer all questions from its node counts, or could not.
    fn after<K: ClassKey>(self, store: &FollowedStore<K>) -> Self {
        let last = (self.last * 2).clamp(1, MAX_PAUSE);
        match store {
            _ if self.left > 0 => Self { left: self.left - 1, ..self },
            store if store.failed() => Self { left: last, last },
            store if store.follows() => Self::default(),
            _ => self,
        }
    }
}

impl<K: ClassKey> Follower<K> {
    /// The next store over `counts`, which `place` has followed so far.
    pub(crate) fn next(
        place: &mut Option<Self>,
        counts: &mut FinestCounts<K>,
        domains: &[Arc<DomainView>],
        memory: usize,
    ) -> Arc<FollowedStore<K>> {
        let mut news = Changes::new(counts.counting.facets.len());
        let (mut last, mut pause) = (None, Pause::default());
        if let Some(Self { last: of, full, pause: so_far }) = place {
            pause = so_far.after(of);
            *so_far = pause;
            if let Some(full) = full
                && let Some(known) = full.news(counts)
            {
                if pause.left == 0 && full.is_worthwhile(&known, counts) {
                    *of = Arc::new(full.store(known, Arc::clone(of), counts, domains, memory));
                    return Arc::clone(of);
                }
                (news, last) = (known, Some(Arc::clone(of)));
            }
        }
        let finest = Finest::made(counts.snapshot(Node::new(domains.iter().map(|_| 0))));
        let rollups = FrequencyStore::new(finest, counts.layout.clone(), domains.to_vec()).within(memory);
        let past = PastChanges { news: Arc::new(news), origin: None, since: Vec::new() };
        let store = Arc::new(FollowedStore::after(last, past, rollups, counts.counting.clone(), memory));
        let full = (pause.left == 0).then(|| FullCount::new(store.rollups(), counts));
        match full {
            Some(_) => counts.follow(counts.rows.len() / WORTHWHILE),
            None => counts.unfollow(),
        }
        *place = Some(Self { last: Arc::clone(&store), full, pause });
        store
    }
}

impl<K: ClassKey> FullCount<K> {
    fn new(sets: &Arc<FrequencyStore<K>>, counts: &FinestCounts<K>) -> Self {
        let finest = sets.finest();
        Self {
            sets: Arc::clone(sets),
            counts: Arc::new(counts.frozen()),
            since: Vec::new(),
            totals: Totals { records: finest.records(), classes: finest.len(), marginals: Vec::new() },
            tuples: counts.by_tuple(),
        }
    }

    /// True if this and what changed before is little enough to follow.
    fn is_worthwhile(&self, news: &Changes<K>, counts: &FinestCounts<K>) -> bool {
        let changed: usize = self.since.iter().map(|changes| changes.len()).sum();
        (changed + news.len()) as f64 <= counts.rows.len() as f64 * STALE
    }

    /// A store without a full count.
    fn store(
        &mut self,
        news: Changes<K>,
        last: Arc<FollowedStore<K>>,
        counts: &FinestCounts<K>,
        domains: &[Arc<DomainView>],
        memory: usize,
    ) -> FollowedStore<K> {
        let news = Arc::new(news);
        self.since.push(Arc::clone(&news));
        let (frozen, since) = (Arc::clone(&self.counts), self.since.clone());
        let bottom = Node::new(domains.iter().map(|_| 0));
        let node = bottom.clone();
        let make = move || {
            let mut counts = frozen.frozen();
            since.iter().for_each(|changes| counts.replay(changes));
            counts.snapshot(node.clone())
        };
        let finest = Finest::later(bottom, self.totals.clone(), Box::new(make));
        let rollups = FrequencyStore::new(finest, counts.layout.clone(), domains.to_vec()).within(memory);
        let past = PastChanges { news, origin: Some(Arc::clone(&self.sets)), since: self.since.clone() };
        FollowedStore::after(Some(last), past, rollups, counts.counting.clone(), memory)
    }

    /// What changed since the last store; `None` if that is too much.
    fn news(&mut self, counts: &mut FinestCounts<K>) -> Option<Changes<K>> {
        if self.totals.marginals.is_empty() {
            // Not before it is known that there is a next store.
            self.totals.marginals = self.sets.finest().marginals(&self.sets.leaves());
        }
        let mut news = Changes::new(counts.counting.facets.len());
        let mut tuples = Vec::new();
        // In the order of their keys, in which classes lie, so that memory is visited in order.
        let mut touched: Vec<(u64, Belongings)> = counts.take_touched()?;
        touched.sort_by_cached_key(|(who, before)| counts.first_tuple(*who, before));
        for (who, before) in touched {
            news.push(who, &before, &counts.belongings(who), |entry, codes| {
                let (tuple, key) = counts.part(entry, codes);
                tuples.push(tuple as usize);
                key
            });
        }
        for (at, tuple) in tuples.into_iter().enumerate() {
            let part = news.part(at);
            self.totals.count(&part.key, counts.layout.fields(), part.by);
            self.tuples.resize(self.tuples.len().max(tuple + 1), 0);
            let rows = &mut self.tuples[tuple];
            self.totals.classes -= usize::from(*rows > 0);
            *rows = rows.wrapping_add_signed(part.by);
            self.totals.classes += usize::from(*rows > 0);
        }
        Some(news)
    }
}
