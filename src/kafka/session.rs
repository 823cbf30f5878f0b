//! The state that the poller, the rebalance callbacks and the sink share: the assignment and the right to publish.
//!
//! Invariant: a publisher holds the right to publish and has checked its epoch under it. A revocation first raises the fence,
//! then waits for the right to publish; when it is acknowledged, no release of the old assignment is under way.
//! The membership's lock is held for short steps only, never across a call to a broker.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::assignment::Membership;
use super::client::{OnGap, Start};
use super::connection::Complaints;
use super::progress::Progress;
use super::progress::found::{AssignmentFault, FoundPartition};
use super::topics::Topics;
use crate::kafka::meter::Meter;
use crate::model::event::Partition;
use crate::model::release::plan::{CommitSpace, Fit, ReleasePlan};
use crate::model::release::spans::Spans;

/// Shared by the consumer's callbacks, the polling thread and the sink.
pub struct Session {
    /// The topics of the records, and the numbers of their partitions.
    pub topics: Topics,
    /// The topics that the group shares out and commits offsets of: the same, or where the output is in another cluster, the progress
    /// topics there. Their partitions have the same numbers.
    pub shared: Topics,
    /// The place to start at where nothing was committed.
    pub start: Start,
    /// The reaction to records that retention has deleted.
    pub on_gap: OnGap,
    /// The figures for metrics.
    pub meter: Arc<Meter>,
    /// The errors that its clients have reported of late.
    pub complaints: Arc<Complaints>,
    membership: Mutex<Membership>,
    /// A copy of the membership's epoch, which is read for every polled message.
    epoch: AtomicU64,
    publishing: Mutex<()>,
    name: Mutex<Name>,
}

/// What is known of the name of this member in the group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Name {
    /// The transactional id is not taken over yet: the group must not be joined under the name.
    #[default]
    Early,
    /// The group may be joined.
    Ours,
    /// The group gave the name to another join; noticed at this time.
    Lost(Instant),
    /// The group gave the name to another join, and the transactional id is still ours: it was a late one of our own.
    LostToOurselves,
}

impl Session {
    /// A session without an assignment.
    pub fn new(topics: Topics, start: Start, on_gap: OnGap, meter: Arc<Meter>) -> Self {
        let (complaints, membership, epoch, publishing, name) = Default::default();
        let shared = topics.clone();
        Self { topics, shared, start, on_gap, meter, complaints, membership, epoch, publishing, name }
    }

    /// Names the topics that the group shares out, where they are not those of the records.
    #[must_use]
    pub fn sharing(self, progress: Option<&str>) -> Self {
        let shared = progress.map_or_else(|| self.shared.clone(), |prefix| self.topics.progress(prefix));
        Self { shared, ..self }
    }

    /// The number of the current assignment.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// True while partitions of this epoch are read and its releases are published.
    pub fn is_consuming(&self, epoch: u64) -> bool {
        self.epoch() == epoch && self.membership().is_consuming(epoch)
    }

    /// The right to publish; held for a whole release.
    pub fn publishing(&self) -> MutexGuard<'_, ()> {
        self.publishing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works on the progress of this epoch; `None` if its assignment is gone.
    pub fn consuming<T>(&self, epoch: u64, work: impl FnOnce(&mut Progress) -> T) -> Option<T> {
        let mut membership = self.membership();
        if membership.is_consuming(epoch) { membership.progress().map(work) } else { None }
    }

    /// Works on the progress of the current assignment, or of the one that is being drained.
    pub fn progress<T>(&self, work: impl FnOnce(&mut Progress) -> T) -> Option<T> {
        self.membership().progress().map(work)
    }

    /// Takes the partitions away: raises the fence, then waits until no release of the old assignment is under way.
    pub fn revoke(&self) {
        self.change(Membership::fence);
        let _idle = self.publishing();
        self.change(Membership::drained);
    }

    /// Hands a new assignment to the poller.
    pub fn assigned(&self, found: Result<Vec<FoundPartition>, AssignmentFault>) {
        self.change(|membership| membership.assigned(found));
    }

    /// A new assignment with its epoch, once.
    pub fn take_up(&self) -> Option<Result<(u64, Vec<FoundPartition>), AssignmentFault>> {
        self.change(Membership::take_up)
    }

    /// Hands added partitions to the poller; those that it reads stay.
    pub fn added(&self, found: Result<Vec<FoundPartition>, AssignmentFault>) {
        self.change(|membership| membership.added(found));
    }

    /// Added partitions, once.
    pub fn take_added(&self) -> Option<Result<Vec<FoundPartition>, AssignmentFault>> {
        self.change(Membership::take_added)
    }

    /// True if partitions that the group takes away are read together with others, some of which stay.
    pub fn is_partial(&self, gone: &BTreeSet<Partition>, stays: bool) -> bool {
        self.change(|membership| membership.is_partial(gone, stays))
    }

    /// Nothing of these partitions is under way any more; the others are read on.
    pub fn give_back(&self, gone: &BTreeSet<Partition>) {
        self.change(|membership| membership.give_back(gone));
    }

    /// Gives the membership up: a commit may still be under way, and nobody knows for how long. The caller holds the right to
    /// publish.
    pub fn give_up(&self) {
        self.change(Membership::give_up);
    }

    /// True once after the membership was given up, unless a rebalance has ended it.
    pub fn leave(&self) -> bool {
        self.change(Membership::leave)
    }

    /// No release will be published any more: the consumer may leave the group.
    pub fn finish(&self) {
        self.change(Membership::stop);
    }

    /// True once no release will be published any more.
    pub fn is_finished(&self) -> bool {
        self.membership().is_stopped()
    }

    /// The offset that this process committed for a partition in an earlier assignment.
    pub fn committed_before(&self, partition: Partition) -> Option<i64> {
        self.membership().committed_before(partition)
    }

    /// The transactional id is taken over. An instance takes it before it joins the group, so whoever takes its name in the group has
    /// also taken its id.
    pub fn has_id(&self) {
        *self.name() = Name::Ours;
    }

    /// True once the group may be joined.
    pub fn may_join(&self) -> bool {
        *self.name() != Name::Early
    }

    /// The group has given the name of this member to another join. Ends the right to publish.
    pub fn lose_name(&self) {
        // Before the release under way ends: it must not take the transactional id again.
        *self.name() = Name::Lost(Instant::now());
        self.revoke();
    }

    /// True once the name is lost.
    pub fn has_lost_name(&self) -> bool {
        matches!(*self.name(), Name::Lost(_))
    }

    /// If the name is lost: notes whether the transactional id is still ours, as `owns_id` finds out, which is told the time of the loss.
    pub fn judge_name(&self, owns_id: impl FnOnce(Instant) -> bool) {
        let name = *self.name();
        if let Name::Lost(at) = name
            && owns_id(at)
        {
            *self.name() = Name::LostToOurselves;
        }
    }

    /// True if the name was lost to a late join of our own: everything may start over under the same names.
    pub fn may_start_over(&self) -> bool {
        *self.name() == Name::LostToOurselves
    }

    fn name(&self) -> MutexGuard<'_, Name> {
        self.name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn membership(&self) -> MutexGuard<'_, Membership> {
        self.membership.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Membership) -> T) -> T {
        let mut membership = self.membership();
        let changed = change(&mut membership);
        self.epoch.store(membership.epoch(), Ordering::SeqCst);
        changed
    }
}

impl CommitSpace for Session {
    fn fit(&self, earlier: &[Spans], plan: Option<&ReleasePlan>, finished: &Spans) -> Fit {
        // Without an assignment the release is discarded: it needs no space.
        self.progress(|progress| progress.fit(earlier, plan, finished)).unwrap_or(Fit::Fits)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    use super::*;
    use crate::kafka::client::TopicRule;

    fn session() -> Session {
        let topics = Topics::new([TopicRule { name: "t".into(), placement: 0 }]);
        Session::new(topics, Start::Earliest, OnGap::Stop, Arc::default())
    }

    #[test]
    fn only_who_still_owns_the_id_starts_over_after_the_loss_of_its_name() {
        for owns_id in [true, false] {
            let session = session();
            assert!(!session.may_join(), "whoever joins has the id");
            session.has_id();
            assert!(session.may_join());
            session.judge_name(|_| true);
            assert!(!session.may_start_over(), "the name is not lost");
            session.assigned(Ok(Vec::new()));
            let (epoch, _) = session.take_up().unwrap().unwrap();
            session.lose_name();
            assert!(!session.is_consuming(epoch), "nothing is published any more");
            assert!(session.has_lost_name(), "and its id is not taken again");
            session.judge_name(|_| owns_id);
            assert_eq!(session.may_start_over(), owns_id);
        }
    }

    #[test]
    fn a_revocation_fences_at_once_and_waits_for_the_release_under_way() {
        let session = session();
        session.assigned(Ok(Vec::new()));
        let (epoch, _) = session.take_up().unwrap().unwrap();
        assert!(session.consuming(epoch, |_| ()).is_some());
        let publishing = session.publishing();
        std::thread::scope(|scope| {
            let (acknowledge, acknowledged) = channel();
            let session = &session;
            scope.spawn(move || {
                session.revoke();
                acknowledge.send(()).unwrap();
            });
            while session.is_consuming(epoch) {
                std::thread::yield_now();
            }
            assert!(session.consuming(epoch, |_| ()).is_none(), "no release begins");
            assert!(session.progress(|_| ()).is_some(), "the release under way can still be noted");
            assert_eq!(acknowledged.recv_timeout(Duration::from_millis(20)), Err(RecvTimeoutError::Timeout));
            drop(publishing);
            acknowledged.recv().unwrap();
        });
        assert!(session.progress(|_| ()).is_none());
    }
}
