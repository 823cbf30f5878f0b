//! ClosedWindow -> Release: the stage between the window and the sink. It does no I/O.
//!
//! [`Anonymizer::release`] turns a window into a [`Draft`](draft::Draft) and takes it through six steps, always in this order:
//! ```text
//! draft ─choose→ recoding ─group→ classes of the rows ─plan rows→ outcome of each row
//!       ─fit the commit space→ fewer waiting records ─generalize→ GeneralizedBatch ─gate→ Release
//! ```
//! The kind of the window decides who chooses: `tumbling.rs` searches a recoding, `local.rs` follows a schedule, `replay.rs` repeats
//! the recoding that was planned before a crash, `sliding/` picks one whose snapshot is safe beside the earlier snapshots.
//!
//! The [`Anonymizer`] is the state between windows: the last recoding, the waiting records (`waiting.rs`), the last snapshot
//! (`sliding/`), the values shown by earlier releases (`sequential.rs`), the releases not committed yet (`uncommitted.rs`).
//! Invariant: only a draft that passed the gate changes the waiting records, apart from records that expire or are retracted
//! with it.

mod audience;
mod cuts;
mod draft;
mod lanes;
mod local;
mod priors;
mod replay;
mod sequential;
mod sliding;
mod tumbling;
mod uncommitted;
mod waiting;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::encode::Dictionaries;
use crate::gate::{Memory, Refusal, Release};
use crate::generalize::GeneralizedBatch;
use crate::loss;
use crate::model::event::{Millis, Partition};
use crate::model::lattice::Level;
use crate::model::policy::Policy;
use crate::model::recoding::Recoding;
use crate::model::release::plan::CommitSpace;
use crate::model::words;
use crate::privacy::Rules;
use crate::search::choose::{Choice, Chosen, Levels};
use crate::search::evaluator::{Evaluator, Trail};
use crate::search::insight::{self, Insight};
use crate::window::{ClosedWindow, TooWide, WindowKind};

use local::Learning;
use priors::SentenceShares;
use sliding::Snapshots;
use uncommitted::Uncommitted;
use waiting::Waiting;

pub use audience::view;
pub use lanes::Anonymizers;
pub use sequential::Past;

/// Makes releases, window after window.
pub struct Anonymizer {
    policy: Arc<Policy>,
    rules: Rules,
    choice: Choice,
    name: String,
    seeds: ChaCha8Rng,
    last: Option<Recoding>,
    /// Results of the last search that the next one starts from.
    trail: Arc<Trail>,
    waiting: Waiting,
    snapshots: Snapshots,
    memory: Option<Memory>,
    /// Waiting records of other lanes, for the operator's figures.
    elsewhere: u64,
    /// The dictionaries of the last window: they explain the codes of waiting records.
    dictionaries: Option<Dictionaries>,
    /// The assignment of the last window: its waiting records are those of this assignment.
    epoch: u64,
    /// The partitions whose waiting records belong to this instance; all, if `None`.
    partitions: Option<Vec<Partition>>,
    /// The time that an insight into the next search may take, if one was asked for.
    look: Option<Duration>,
    insight: Option<Insight>,
    uncommitted: Uncommitted,
    learning: Learning,
    /// How often each confidential sentence was true, where the search learns that.
    sentences: SentenceShares,
    /// Told what follows the search.
    watcher: Option<Box<dyn Fn(ReleaseStep) + Send>>,
}

words! {
    /// What follows the search of a release.
    pub enum ReleaseStep {
        /// The rows get their labels.
        Generalizing = "generalizing",
        /// The gate counts the rows that will be sent.
        Checking = "counting the result",
    }
}

/// The result of a window.
#[derive(Debug)]
pub enum Closing {
    /// Safe to send; possibly without rows, when it only accounts for records that were left out.
    Release(Box<Release>),
    /// The gate refused: nothing may be sent, and the records stay where they are.
    Refused(Refusal),
}

impl Anonymizer {
    /// `name` starts every release id; `seed` fixes searches.
    pub fn new(policy: Arc<Policy>, choice: Choice, name: impl Into<String>, seed: u64) -> Self {
        Self {
            rules: choice.rules(&policy),
            memory: Memory::new(&policy),
            elsewhere: 0,
            waiting: Waiting::new(&policy),
            policy,
            choice,
            name: name.into(),
            seeds: ChaCha8Rng::seed_from_u64(seed),
            last: None,
            trail: Arc::default(),
            snapshots: Snapshots::default(),
            dictionaries: None,
            epoch: 0,
            partitions: None,
            uncommitted: Uncommitted::default(),
            look: None,
            insight: None,
            learning: Learning::default(),
            sentences: SentenceShares::default(),
            watcher: None,
        }
    }

    /// Tells `watcher` of each step that follows the search, as it begins.
    pub fn watch(&mut self, watcher: impl Fn(ReleaseStep) + Send + 'static) {
        self.watcher = Some(Box::new(watcher));
    }

    fn begin(&self, step: ReleaseStep) {
        self.watcher.iter().for_each(|watcher| watcher(step));
    }

    /// Asks for an insight into the search of the next window, which may take `time`.
    pub fn look(&mut self, time: Duration) {
        self.look = Some(time);
    }

    /// The insight since the last call, if there is one.
    pub fn take_insight(&mut self) -> Option<Insight> {
        self.insight.take()
    }

    /// Caps waiting records so that `space` can hold every release.
    #[must_use]
    pub fn within(mut self, space: Option<Arc<dyn CommitSpace>>) -> Self {
        self.uncommitted = Uncommitted::new(space);
        self
    }

    /// The rules of the policy.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Records that wait for a later release.
    pub fn waiting(&self) -> usize {
        self.waiting.len() + self.snapshots.waiting()
    }

    /// Drops waiting records of other instances' partitions, which a planned release may have included. Returns their number.
    pub fn retract_others(&mut self) -> u64 {
        let Some(partitions) = &self.partitions else { return 0 };
        self.waiting.take(|rows, i| !partitions.contains(&rows.position(i).partition)).len() as u64
    }

    /// Drops all waiting records: other instances own them now, or the source reads them again. The next release follows one
    /// at the levels `last`: of a node, or of all steps of a schedule.
    pub fn reset(&mut self, partitions: Option<Vec<Partition>>, last: Option<&[Level]>) {
        self.partitions = partitions;
        self.learning = Learning::default();
        self.uncommitted.forget();
        drop(self.waiting.put_aside());
        // Records of a snapshot are finished, so the next window has none of them: there is nothing to compare.
        self.snapshots = Snapshots::default();
        if self.remembers() {
            // Other instances have published meanwhile, so the log tells all earlier releases again.
            self.memory = Memory::new(&self.policy);
        }
        self.last = last.and_then(|levels| self.policy.recoding_at(levels));
    }

    /// Takes more partitions over; `partitions` are all of them. With `levels: monotone` the next release is as coarse as the
    /// last one of either.
    fn add(&mut self, partitions: Option<Vec<Partition>>, last: Option<&[Level]>) {
        self.partitions = partitions;
        let theirs = last.and_then(|levels| self.policy.recoding_at(levels));
        let ours = self.last.take();
        self.last = self.follow(ours, theirs);
    }

    /// Drops the waiting records of partitions that others own now; returns their number.
    fn give_up(&mut self, partitions: &BTreeSet<Partition>) -> u64 {
        self.partitions.iter_mut().for_each(|own| own.retain(|partition| !partitions.contains(partition)));
        self.waiting.take(|rows, i| partitions.contains(&rows.position(i).partition)).len() as u64
    }

    /// The recoding to go on from after releases of two histories.
    fn follow(&self, ours: Option<Recoding>, theirs: Option<Recoding>) -> Option<Recoding> {
        match (ours, theirs) {
            (Some(Recoding::Node(a)), Some(Recoding::Node(b))) if self.choice.levels == Levels::Monotone => {
                Some(Recoding::Node(self.policy.join(&a, &b)))
            }
            (ours, theirs) => ours.or(theirs),
        }
    }

    /// Makes the release of a window.
    pub fn release(&mut self, mut window: ClosedWindow) -> Result<Closing, TooWide> {
        self.epoch = window.epoch;
        match std::mem::take(&mut window.kind) {
            WindowKind::Tumbling | WindowKind::Expiry => self.release_tumbling(window),
            WindowKind::Slide(slide) => Ok(self.release_snapshot(window, slide)),
            WindowKind::Replay(replayed) => self.release_again(window, *replayed),
        }
    }

    /// Accounts for records that have waited longer than `max_hold` although no window closes. `None` if there are none.
    pub fn tick(&mut self, now: Millis) -> Result<Option<Closing>, TooWide> {
        match &self.dictionaries {
            Some(dictionaries) if self.waiting.is_overdue(now) => {
                let window = ClosedWindow::empty(now, dictionaries.clone(), self.rules.counting())?;
                self.release(ClosedWindow { epoch: self.epoch, ..window }).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Writes the losses of the published rows into the provenance.
    fn add_losses(&self, batch: &mut GeneralizedBatch) {
        let suppressed = batch.provenance.records_suppressed;
        batch.provenance.losses = loss::published(&self.policy, batch, suppressed);
    }

    /// Makes the insight that the operator asked for, if one is due.
    fn make_insight(&mut self, evaluator: &Evaluator<'_>, chosen: &Chosen) {
        if let Some(time) = self.look.take() {
            self.insight = Some(insight::look(&self.policy.lattice(), evaluator, chosen, time));
        }
    }
}
