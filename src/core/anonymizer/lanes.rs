//! An anonymizer for each lane of windows, so that what waits in one partition never joins a release of another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::{Anonymizer, Closing};
use crate::model::event::{Millis, Partition};
use crate::model::lattice::Level;
use crate::model::policy::Policy;
use crate::model::release::plan::CommitSpace;
use crate::search::choose::Choice;
use crate::window::{Scope, TooWide};

/// What a new assignment tells every lane: see [`Anonymizer::reset`].
#[derive(Clone)]
struct Assigned {
    partitions: Option<Vec<Partition>>,
    last: Option<Vec<Level>>,
}

/// The anonymizers of an instance.
pub struct Anonymizers {
    policy: Arc<Policy>,
    choice: Choice,
    name: String,
    /// The next lane's seed; the first has the run's own.
    next_seed: u64,
    seeds: ChaCha8Rng,
    assigned: Option<Assigned>,
    lanes: BTreeMap<Partition, Anonymizer>,
    space: Option<Arc<dyn CommitSpace>>,
    memory: Option<usize>,
}

impl Anonymizers {
    /// `name` starts every release id; `seed` fixes searches.
    pub fn new(policy: Arc<Policy>, choice: Choice, name: impl Into<String>, seed: u64) -> Self {
        let seeds = ChaCha8Rng::seed_from_u64(!seed);
        let name = name.into();
        let (assigned, lanes, space, memory) = Default::default();
        Self { policy, choice, name, next_seed: seed, seeds, assigned, lanes, space, memory }
    }

    /// Lets no more wait than can be written down there.
    #[must_use]
    pub fn within(mut self, space: Option<Arc<dyn CommitSpace>>) -> Self {
        self.space = space;
        self
    }

    /// Lets no more wait in all lanes together than so many bytes of rows: the oldest are suppressed. As many bytes are for the people of
    /// earlier releases, where they are only watched.
    #[must_use]
    pub fn holding(mut self, bytes: Option<usize>) -> Self {
        self.memory = bytes;
        self
    }

    /// The anonymizer of a lane.
    pub fn of(&mut self, lane: Partition) -> &mut Anonymizer {
        let others = self.lanes.iter().filter(|(other, _)| **other != lane);
        let elsewhere = others.map(|(_, anonymizer)| anonymizer.waiting() as u64).sum();
        let lanes_in_all = self.lanes.len() + usize::from(!self.lanes.contains_key(&lane));
        let Self { policy, choice, name, next_seed, seeds, assigned, lanes, space, memory } = self;
        let anonymizer = lanes.entry(lane).or_insert_with(|| {
            let seed = std::mem::replace(next_seed, seeds.next_u64());
            let anonymizer = Anonymizer::new(Arc::clone(policy), choice.clone(), name.clone(), seed);
            let mut anonymizer = anonymizer.within(space.clone());
            if let Some(Assigned { partitions, last }) = assigned.clone() {
                anonymizer.reset(partitions, last.as_deref());
            }
            anonymizer
        });
        if let Some(bytes) = memory.map(|bytes| bytes / lanes_in_all) {
            anonymizer.waiting.hold_within(bytes);
            anonymizer.memory.iter_mut().for_each(|memory| memory.hold_within(bytes));
        }
        anonymizer.elsewhere = elsewhere;
        anonymizer
    }

    /// Records that wait for a later release.
    pub fn waiting(&self) -> u64 {
        self.lanes.values().map(|anonymizer| anonymizer.waiting() as u64).sum()
    }

    /// Forgets what waits, in every lane: see [`Anonymizer::reset`].
    pub fn reset(&mut self, partitions: Option<Vec<Partition>>, last: Option<Vec<Level>>) {
        self.lanes.values_mut().for_each(|anonymizer| anonymizer.reset(partitions.clone(), last.as_deref()));
        self.assigned = Some(Assigned { partitions, last });
    }

    /// Takes more partitions over, whose last release had the levels `last`. Waiting records of the others stay.
    pub fn add(&mut self, partitions: &[Partition], last: Option<Vec<Level>>) {
        let own = self.assigned.take().and_then(|assigned| assigned.partitions).unwrap_or_default();
        let all: BTreeSet<Partition> = own.iter().chain(partitions).copied().collect();
        let partitions = Some(all.into_iter().collect::<Vec<_>>());
        self.lanes.values_mut().for_each(|anonymizer| anonymizer.add(partitions.clone(), last.as_deref()));
        self.assigned = Some(Assigned { partitions, last });
    }

    /// Gives some partitions up, with their lanes if they have lanes of their own. Returns how many of their records waited.
    pub fn give_up(&mut self, partitions: &BTreeSet<Partition>, scope: Scope) -> u64 {
        let own = self.assigned.iter_mut().flat_map(|assigned| &mut assigned.partitions);
        own.for_each(|own| own.retain(|partition| !partitions.contains(partition)));
        let gone = self.lanes.values_mut().map(|anonymizer| anonymizer.give_up(partitions)).sum();
        if scope == Scope::Partition {
            self.lanes.retain(|lane, _| !partitions.contains(lane));
        }
        gone
    }

    /// Learns schedules for the windows to come, where it is time to: see [`Anonymizer::learn`].
    pub fn learn(&mut self) {
        self.lanes.values_mut().for_each(Anonymizer::learn);
    }

    /// Accounts for records that have waited too long although no window closes: those of one lane. `None` if there are
    /// none.
    pub fn tick(&mut self, now: Millis) -> Result<Option<Closing>, TooWide> {
        let lanes: Vec<Partition> = self.lanes.keys().copied().collect();
        for lane in lanes {
            if let Some(closing) = self.of(lane).tick(now)? {
                return Ok(Some(closing));
            }
        }
        Ok(None)
    }
}
