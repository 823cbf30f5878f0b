//! The states of an assignment, with the data that each of them has. Pure: the callbacks and locks are in
//! [`session`](super::session).
//!
//! ```text
//!                 assigned            take_up
//!  Unassigned ───────────────▶ Assigned ────────▶ Consuming ──give_up──▶ GivenUp
//!       ▲ ▲                       │                   │                     │ leave
//!       │ └──────── fence ────────┘                   │ fence               ▼
//!       └───────────── drained ──────────────── Draining ◀──────────────────┘
//!
//!  any state ──stop──▶ Stopped
//! ```
//! `GivenUp` outlives a fence: where only some partitions are taken away, the membership goes on, and a commit of it may still come.
//! With an incremental [`Rebalance`](super::client::Rebalance), partitions are added to `Consuming` and removed from it one by one:
//! neither ends the right to publish what the other partitions have.
//!
//! Invariant: the epoch grows whenever the right to publish ends (fence, give_up), so a release that was made in an earlier
//! epoch is recognised as stale. [`Progress`] exists exactly while a release of the assignment can be under way.

use std::collections::{BTreeMap, BTreeSet};

use super::progress::Progress;
use super::progress::found::{AssignmentFault, FoundPartition};
use crate::model::event::Partition;

/// The state of this instance's assignment.
#[derive(Debug, Clone, Default, Hash)]
pub enum Assignment {
    /// No partition belongs to this instance, and no release is under way.
    #[default]
    Unassigned,
    /// The group has assigned partitions; the poller has not taken them up yet. Their commits, or why they cannot be taken up.
    Assigned(Result<Vec<FoundPartition>, AssignmentFault>),
    /// The poller reads the partitions, and releases of this epoch are published.
    Consuming(Progress),
    /// The partitions are taken away. No release begins; one that is under way may still end.
    Draining(Progress),
    /// This instance has given its membership up, because a commit may be delivered twice. As `Draining`, and the poller has to
    /// leave the group and join it anew, so that the coordinator refuses the second copy. A new assignment ends this state as well.
    GivenUp(Progress),
    /// No release will be published any more: the consumer may leave the group.
    Stopped,
}

/// The assignment of this instance with its number.
#[derive(Debug, Clone, Default, Hash)]
pub struct Membership {
    epoch: u64,
    assignment: Assignment,
    /// Partitions that were added while others are read, or why they cannot be taken up. The poller has not taken them up yet.
    added: Vec<Result<Vec<FoundPartition>, AssignmentFault>>,
    /// The offsets that this process committed in earlier assignments.
    committed: BTreeMap<Partition, i64>,
}

impl Membership {
    /// The number of the assignment.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// True while the partitions of this epoch are read and its releases are published.
    pub fn is_consuming(&self, epoch: u64) -> bool {
        self.epoch == epoch && matches!(self.assignment, Assignment::Consuming(_))
    }

    /// True once no release will be published any more.
    pub fn is_stopped(&self) -> bool {
        matches!(self.assignment, Assignment::Stopped)
    }

    /// The progress of the assignment, while it has one.
    pub fn progress(&mut self) -> Option<&mut Progress> {
        match &mut self.assignment {
            Assignment::Consuming(progress) | Assignment::Draining(progress) | Assignment::GivenUp(progress) => {
                Some(progress)
            }
            Assignment::Unassigned | Assignment::Assigned(_) | Assignment::Stopped => None,
        }
    }

    /// The offset that this process committed for a partition in an earlier assignment.
    pub fn committed_before(&self, partition: Partition) -> Option<i64> {
        self.committed.get(&partition).copied()
    }

    /// The group takes the partitions away: from now on no release begins.
    pub fn fence(&mut self) {
        self.epoch += 1;
        self.added.clear();
        self.change(|assignment| match assignment {
            Assignment::Consuming(progress) | Assignment::Draining(progress) => Assignment::Draining(progress),
            Assignment::Unassigned | Assignment::Assigned(_) => Assignment::Unassigned,
            other @ (Assignment::GivenUp(_) | Assignment::Stopped) => other,
        });
    }

    /// The release that was under way when the fence rose has ended.
    pub fn drained(&mut self) {
        if let Assignment::Draining(progress) | Assignment::GivenUp(progress) = &self.assignment {
            self.committed.extend(progress.committed());
        }
        self.change(|assignment| match assignment {
            Assignment::Draining(_) => Assignment::Unassigned,
            other => other,
        });
    }

    /// The group has assigned partitions, with these commits. The assignment before it is drained.
    pub fn assigned(&mut self, found: Result<Vec<FoundPartition>, AssignmentFault>) {
        if !self.is_stopped() {
            self.assignment = Assignment::Assigned(found);
        }
    }

    /// The group has added partitions, with these commits, to those that are read.
    pub fn added(&mut self, found: Result<Vec<FoundPartition>, AssignmentFault>) {
        match (&mut self.assignment, found) {
            (Assignment::Assigned(Ok(before)), Ok(found)) => before.extend(found),
            (Assignment::Consuming(_), found) => self.added.push(found),
            // The service ends, or the poller is about to leave the group.
            (Assignment::Assigned(Err(_)) | Assignment::GivenUp(_), _) => {}
            (_, found) => {
                self.epoch += 1;
                self.assigned(found);
            }
        }
    }

    /// The poller takes added partitions up, if there are any.
    pub fn take_added(&mut self) -> Option<Result<Vec<FoundPartition>, AssignmentFault>> {
        let added = std::mem::take(&mut self.added);
        (!added.is_empty()).then(|| Ok(added.into_iter().collect::<Result<Vec<_>, _>>()?.concat()))
    }

    /// The group takes some partitions away and leaves others (`stays`), or none. True if the pipeline has to give their records up
    /// first: the others are read on. Otherwise the caller ends the assignment.
    pub fn is_partial(&mut self, gone: &BTreeSet<Partition>, stays: bool) -> bool {
        for found in self.added.iter_mut().flatten() {
            found.retain(|found| !gone.contains(&found.partition));
        }
        match &mut self.assignment {
            // The poller takes the others up before it gives these back.
            Assignment::Assigned(Ok(found)) => {
                found.retain(|found| !gone.contains(&found.partition));
                stays
            }
            Assignment::Consuming(_) => stays,
            _ => false,
        }
    }

    /// Nothing of these partitions is under way any more, and others are read on.
    pub fn give_back(&mut self, gone: &BTreeSet<Partition>) {
        if let Some(progress) = self.progress() {
            let removed = progress.remove(gone);
            self.committed.extend(removed);
        }
    }

    /// The poller takes a new assignment up, if there is one: its epoch and its commits. The progress is still empty.
    pub fn take_up(&mut self) -> Option<Result<(u64, Vec<FoundPartition>), AssignmentFault>> {
        let found = match std::mem::take(&mut self.assignment) {
            Assignment::Assigned(found) => found,
            other => {
                self.assignment = other;
                return None;
            }
        };
        Some(found.map(|found| {
            self.assignment = Assignment::Consuming(Progress::default());
            (self.epoch, found)
        }))
    }

    /// The sink gives the membership up: no release begins. A fence that has risen before ends the membership as well.
    pub fn give_up(&mut self) {
        self.epoch += 1;
        self.change(|assignment| match assignment {
            Assignment::Consuming(progress) => Assignment::GivenUp(progress),
            other => other,
        });
    }

    /// True once after [`Membership::give_up`], unless there is a new assignment already: the poller leaves the group.
    pub fn leave(&mut self) -> bool {
        let given_up = matches!(self.assignment, Assignment::GivenUp(_));
        self.change(|assignment| match assignment {
            Assignment::GivenUp(progress) => Assignment::Draining(progress),
            other => other,
        });
        given_up
    }

    /// No release will be published any more.
    pub fn stop(&mut self) {
        self.assignment = Assignment::Stopped;
    }

    fn change(&mut self, next: impl FnOnce(Assignment) -> Assignment) {
        self.assignment = next(std::mem::take(&mut self.assignment));
    }
}

#[cfg(test)]
mod tests {
    use super::super::progress::commit::CommitState;
    use super::super::progress::partition::CarriedOver;
    use super::*;
    use crate::model::event::Position;
    use crate::model::release::spans::Spans;

    const P: Partition = Partition(0);

    fn found() -> FoundPartition {
        FoundPartition { partition: P, committed: 3, state: CommitState::default() }
    }

    fn consuming() -> (Membership, u64) {
        let mut membership = Membership::default();
        membership.fence();
        membership.drained();
        membership.assigned(Ok(vec![found()]));
        let (epoch, found) = membership.take_up().unwrap().unwrap();
        membership.progress().unwrap().assign(P, found[0].committed, &found[0].state);
        (membership, epoch)
    }

    #[test]
    fn an_assignment_is_taken_up_once_and_its_releases_are_current() {
        let (mut membership, epoch) = consuming();
        assert!(membership.is_consuming(epoch) && !membership.is_consuming(epoch - 1));
        assert!(membership.take_up().is_none());
        membership.fence();
        assert!(!membership.is_consuming(epoch) && membership.epoch() > epoch);
    }

    #[test]
    fn an_assignment_that_is_gone_or_faulty_is_not_taken_up() {
        let mut membership = Membership::default();
        membership.assigned(Ok(vec![found()]));
        membership.fence();
        assert!(membership.take_up().is_none(), "it was revoked before the poller saw it");
        let fault = AssignmentFault::Unavailable("why".into());
        membership.assigned(Err(fault.clone()));
        assert_eq!(membership.take_up(), Some(Err(fault)));
        assert!(membership.take_up().is_none() && membership.progress().is_none());
    }

    #[test]
    fn a_release_that_is_under_way_when_the_fence_rises_still_counts() {
        let (mut membership, _) = consuming();
        let position = Position::new(0, 3);
        membership.progress().unwrap().deliver(position);
        membership.fence();
        let progress = membership.progress().unwrap();
        progress.finish(&Spans::covering([position]), CarriedOver::default());
        assert_eq!(membership.committed_before(P), None);
        membership.drained();
        assert!(membership.progress().is_none(), "the partitions belong to others");
        assert_eq!(membership.committed_before(P), Some(4));
    }

    #[test]
    fn who_gives_up_publishes_nothing_more_and_joins_anew_once() {
        let (mut membership, epoch) = consuming();
        assert!(!membership.leave());
        membership.give_up();
        assert!(!membership.is_consuming(epoch), "releases of the old membership are stale at once");
        assert!(membership.leave() && !membership.leave());
        let (mut membership, _) = consuming();
        membership.give_up();
        membership.fence();
        membership.drained();
        membership.added(Ok(vec![found()]));
        assert!(membership.leave(), "partitions that were not taken away would be read by nobody");
        let (mut membership, _) = consuming();
        membership.give_up();
        membership.fence();
        membership.drained();
        membership.assigned(Ok(vec![found()]));
        assert!(!membership.leave(), "a rebalance has ended the old membership already");
        let (mut membership, _) = consuming();
        membership.fence();
        membership.give_up();
        assert!(!membership.leave(), "the rebalance came first");
    }

    #[test]
    fn partitions_come_and_go_beside_those_that_are_read() {
        let (mut membership, epoch) = consuming();
        let other = FoundPartition { partition: Partition(1), ..found() };
        membership.added(Ok(vec![other.clone()]));
        assert_eq!(membership.take_added(), Some(Ok(vec![other.clone()])));
        assert!(membership.take_added().is_none());
        let progress = membership.progress().unwrap();
        progress.assign(other.partition, other.committed, &other.state);
        progress.deliver(Position::new(0, 3));
        progress.finish(&Spans::covering([Position::new(0, 3)]), CarriedOver::default());
        assert!(!membership.is_partial(&BTreeSet::from([P, Partition(1)]), false), "nothing is left to read");
        assert!(membership.is_partial(&BTreeSet::from([P]), true));
        membership.give_back(&BTreeSet::from([P]));
        assert!(membership.is_consuming(epoch), "the other one is read on, and its releases are published");
        assert_eq!(membership.progress().unwrap().partitions().collect::<Vec<_>>(), [Partition(1)]);
        assert_eq!(membership.committed_before(P), Some(4));
        membership.added(Ok(vec![found()]));
        assert!(membership.is_partial(&BTreeSet::from([P]), true));
        assert_eq!(membership.take_added(), Some(Ok(Vec::new())), "it was taken away before the poller saw it");
        membership.added(Ok(vec![found()]));
        membership.fence();
        assert!(membership.take_added().is_none());
    }

    #[test]
    fn partitions_that_go_before_the_others_are_taken_up_leave_those() {
        let other = FoundPartition { partition: Partition(1), ..found() };
        let mut membership = Membership::default();
        membership.added(Ok(vec![found(), other.clone()]));
        assert!(membership.is_partial(&BTreeSet::from([P]), true));
        let (_, taken) = membership.take_up().unwrap().unwrap();
        assert_eq!(taken, [other]);
        membership.added(Ok(vec![found()]));
        assert_eq!(membership.take_added(), Some(Ok(vec![found()])));
        let mut membership = Membership::default();
        membership.added(Ok(vec![found()]));
        assert!(!membership.is_partial(&BTreeSet::from([P]), false), "nothing is left to read");
    }

    #[test]
    fn after_a_stop_nothing_begins() {
        let (mut membership, epoch) = consuming();
        membership.stop();
        membership.fence();
        membership.drained();
        membership.assigned(Ok(vec![found()]));
        membership.give_up();
        assert!(membership.is_stopped() && !membership.is_consuming(epoch));
        assert!(membership.take_up().is_none() && !membership.leave());
    }
}
