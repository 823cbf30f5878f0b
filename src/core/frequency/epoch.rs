//! An epoch: from one full count to the next, stores are made of what changed since, where histograms or subjects are counted.
//!
//! The counter notes who changes. A store then takes over the ledgers of the last one ([`Book`]), and its finest set is made, by
//! replaying what changed on a copy of the counts, only if somebody asks for more than ledgers tell. If that happens, the
//! next stores are counted in full, more of them each time it happens again.

use std::sync::Arc;

use super::base::BaseSet;
use super::book::Book;
use super::changes::{Belongings, Changes, Touched};
use super::deferred::Deferred;
use super::key::Key;
use super::set::Classes;
use super::store::FrequencyStore;
use super::totals::Totals;
use crate::model::domain::DomainView;
use crate::model::lattice::Node;

/// A change of more than one in so many entries is not followed: counting everything costs less.
const WORTHWHILE: usize = 8;

/// Everything is counted again once what changed is this share of all entries. Less costs a full count more often; more makes every
/// new ledger follow more.
const STALE: f64 = 1.0;

/// The most stores in a row that are counted in full because following was of no use. More would not notice that the searches
/// have changed, fewer follow in vain.
const MAX_PAUSE: u32 = 64;

/// What is known since the last full count.
pub(super) struct Epoch<K> {
    last: Arc<FrequencyStore<K>>,
    follow: Option<Follow<K>>,
    pause: Pause,
}

/// What stores are made of.
struct Follow<K> {
    /// The sets of the last full count, and what they were counted from.
    origin: Arc<FrequencyStore<K>>,
    frozen: Arc<BaseSet<K>>,
    /// What changed since, store by store, and since the last one.
    since: Vec<Arc<Changes<K>>>,
    touched: Touched,
    totals: Totals,
    /// Records by tuple.
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
    /// After a store whose book could tell all that was asked, or could not.
    fn after<K: Key>(self, book: Option<&Book<K>>) -> Self {
        let last = (self.last * 2).clamp(1, MAX_PAUSE);
        match book {
            _ if self.left > 0 => Self { left: self.left - 1, ..self },
            Some(book) if book.failed() => Self { left: last, last },
            Some(book) if book.follows() => Self::default(),
            _ => self,
        }
    }
}

impl<K: Key> Epoch<K> {
    /// The next store over `counts`, which `place` has followed so far.
    pub(super) fn next(
        place: &mut Option<Self>,
        counts: &BaseSet<K>,
        domains: &[Arc<DomainView>],
        memory: usize,
    ) -> Arc<FrequencyStore<K>> {
        let mut news = Changes::new(counts.counting().facets.len());
        let (mut last, mut pause) = (None, Pause::default());
        if let Some(Self { last: of, follow, pause: so_far }) = place {
            pause = so_far.after(of.book());
            *so_far = pause;
            if let Some(follow) = follow
                && let Some(known) = follow.news(counts)
            {
                if pause.left == 0 && follow.is_worthwhile(&known, counts) {
                    *of = Arc::new(follow.store(known, Arc::clone(of), counts, domains, memory));
                    return Arc::clone(of);
                }
                (news, last) = (known, Some(Arc::clone(of)));
            }
        }
        let finest = Deferred::made(counts.snapshot(Node::new(domains.iter().map(|_| 0))));
        let mut store = FrequencyStore::new(finest, counts.layout().clone(), domains.to_vec());
        store.open(Book::after(last, Arc::new(news), None, Vec::new(), counts.counting().clone(), memory));
        let store = Arc::new(store);
        let follow = (pause.left == 0).then(|| Follow::new(&store, counts));
        *place = Some(Self { last: Arc::clone(&store), follow, pause });
        store
    }

    /// Somebody is about to change who has `now`.
    pub(super) fn touch(&mut self, who: u64, now: impl FnOnce() -> Belongings) {
        if let Some(follow) = &mut self.follow {
            follow.touched.touch(who, now);
        }
    }
}

impl<K: Key> Follow<K> {
    fn new(origin: &Arc<FrequencyStore<K>>, counts: &BaseSet<K>) -> Self {
        let base = origin.base_set();
        Self {
            origin: Arc::clone(origin),
            frozen: Arc::new(counts.frozen()),
            since: Vec::new(),
            touched: Touched::new(counts.entry_count() / WORTHWHILE),
            totals: Totals { records: base.records(), classes: base.len(), marginals: Vec::new() },
            tuples: counts.by_tuple(),
        }
    }

    /// True if this and what changed before is little enough to follow.
    fn is_worthwhile(&self, news: &Changes<K>, counts: &BaseSet<K>) -> bool {
        let changed: usize = self.since.iter().map(|changes| changes.len()).sum();
        (changed + news.len()) as f64 <= counts.entry_count() as f64 * STALE
    }

    /// A store without a full count.
    fn store(
        &mut self,
        news: Changes<K>,
        last: Arc<FrequencyStore<K>>,
        counts: &BaseSet<K>,
        domains: &[Arc<DomainView>],
        memory: usize,
    ) -> FrequencyStore<K> {
        let news = Arc::new(news);
        self.since.push(Arc::clone(&news));
        let (frozen, since) = (Arc::clone(&self.frozen), self.since.clone());
        let make = move |bottom: &Node| {
            let mut counts = frozen.frozen();
            since.iter().for_each(|changes| counts.replay(changes));
            counts.snapshot(bottom.clone())
        };
        let bottom = Node::new(domains.iter().map(|_| 0));
        let finest = Deferred::later(bottom, self.totals.clone(), Box::new(make));
        let mut store = FrequencyStore::new(finest, counts.layout().clone(), domains.to_vec());
        let (origin, since) = (Some(Arc::clone(&self.origin)), self.since.clone());
        store.open(Book::after(Some(last), news, origin, since, counts.counting().clone(), memory));
        store
    }

    /// What changed since the last store; `None` if that is too much.
    fn news(&mut self, counts: &BaseSet<K>) -> Option<Changes<K>> {
        if self.totals.marginals.is_empty() {
            // Not before it is known that there is a next store.
            let codes: Vec<usize> = (0..counts.layout().fields().len()).map(|a| self.origin.codes(a)).collect();
            self.totals.marginals = self.origin.base_set().marginals(&codes);
        }
        let mut news = Changes::new(counts.counting().facets.len());
        let mut tuples = Vec::new();
        // In the order of their keys, in which classes lie, so that whoever follows goes through memory and not about in it.
        let mut touched: Vec<(u64, Belongings)> = self.touched.drain()?.collect();
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
            self.totals.count(&part.key, counts.layout().fields(), part.by);
            self.tuples.resize(self.tuples.len().max(tuple + 1), 0);
            let rows = &mut self.tuples[tuple];
            self.totals.classes -= usize::from(*rows > 0);
            *rows = rows.wrapping_add_signed(part.by);
            self.totals.classes += usize::from(*rows > 0);
        }
        Some(news)
    }
}
