//! An instance of the model: its membership, its progress and the release that it publishes. Membership, progress and the decisions of a
//! take-over are the service's own code; this file adds what the poller does with them.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

use veilstream::kafka::assignment::Membership;
use veilstream::kafka::progress::found::FoundPartition;
use veilstream::kafka::progress::partition::{CarriedOver, Delivered};
use veilstream::kafka::progress::take_over::{self, Foreign, TakeOver};
use veilstream::model::event::{Offset, Partition, Position};
use veilstream::model::release::plan::ReleasePlan;
use veilstream::model::release::spans::Spans;

use super::broker::{Broker, Commits, Records, bit};
use super::group::Member;

/// The level of a plan whose release leaves its first record out.
const LEAVES_ONE_OUT: u8 = 1;

#[derive(Clone, Default, Debug)]
pub(crate) struct Instance {
    pub(crate) up: bool,
    pub(crate) member: Option<Member>,
    /// The partitions that it knows to be assigned.
    pub(crate) assigned: BTreeSet<Partition>,
    pub(crate) membership: Membership,
    /// The partitions have been taken away; the release under way may still end.
    pub(crate) draining: bool,
    /// The partitions that go while others stay; KIP-848.
    pub(crate) leaving: BTreeSet<Partition>,
    pub(crate) reading: Reading,
    pub(crate) release: Option<Release>,
    /// The epoch of its producer.
    pub(crate) producer: u8,
    /// The group gave its name to another join.
    pub(crate) lost: bool,
    /// It has taken its transactional id once more, and no heartbeats have shown since that its name is still its own.
    pub(crate) taken_again: bool,
    /// It has not taken its transactional id yet.
    pub(crate) early: bool,
    /// See `Transactions::spent`, `Publisher::doubtful` and `Publisher::slow`.
    pub(crate) spent: bool,
    pub(crate) doubtful: bool,
    pub(crate) slow: bool,
}

/// What the poller and the windows know of the assignment.
#[derive(Clone, Hash, Default, Debug)]
pub(crate) struct Reading {
    epoch: u64,
    pub(crate) own: BTreeSet<Partition>,
    pub(crate) replays: Vec<Vec<FoundPartition>>,
    pub(crate) foreign: Vec<FoundPartition>,
    /// The commit of the home of the first foreign plan, as of the last look.
    home: Option<Option<FoundPartition>>,
    /// Left out of a release, and held for the next one.
    held: Spans,
}

/// A release on its way.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Release {
    pub(crate) plan: ReleasePlan,
    pub(crate) epoch: u64,
    pub(crate) finished: Spans,
    left_out: Spans,
    pub(crate) planned: bool,
    pub(crate) at: At,
}

/// The next thing that the publisher does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum At {
    Plan,
    PlanEnd,
    Produce,
    Offsets,
    End,
    Abort,
    /// A new producer before it goes on with a transaction for the plan.
    ReplaceForPlan,
    /// A new producer before it goes on with the transaction of the release.
    ReplaceForRelease,
    /// A new producer, and then the question whether the last transaction went through.
    ReplaceAndAsk,
}

impl At {
    fn first(planned: bool) -> Self {
        if planned { Self::Produce } else { Self::Plan }
    }
}

impl Release {
    /// The same release from its plan, made or found.
    pub(crate) fn of(plan: ReleasePlan, epoch: u64, planned: bool) -> Self {
        let all = plan.fresh.union(&plan.held);
        let first = all.iter().find_map(|(p, runs)| Some(Position { partition: p, offset: Offset(runs.first()?) }));
        let leaves_out = plan.levels.first() == Some(&LEAVES_ONE_OUT) && all.count() > 1;
        let left_out = Spans::covering(first.filter(|_| leaves_out));
        let at = At::first(planned);
        Self { plan, epoch, finished: all.without(&left_out), left_out, planned, at }
    }

    /// The records that a reader sees.
    pub(crate) fn records(&self) -> Records {
        let positions = |(p, runs): (Partition, &veilstream::model::release::runs::Runs)| {
            runs.offsets()
                .map(|offset| bit(Position { partition: p, offset: Offset(offset) }))
                .fold(0, |all, one| all | one)
        };
        self.finished.iter().map(positions).fold(0, |all, one| all | one)
    }
}

impl Instance {
    /// True if records are read and releases may begin.
    pub(crate) fn reads(&self) -> bool {
        self.up && self.membership.is_consuming(self.reading.epoch)
    }

    /// True if the release belongs to the present assignment.
    pub(crate) fn is_current(&self) -> bool {
        self.release.as_ref().is_some_and(|release| release.epoch == self.membership.epoch())
    }

    /// The assignment is gone. A release that has no transaction yet is left to the next owner.
    pub(crate) fn fenced(&mut self) {
        self.reading = Reading::default();
        self.leaving.clear();
        self.release.take_if(|release| matches!(release.at, At::Plan | At::Produce));
    }

    /// The release is tried again with the same bytes, or left to the next owner.
    pub(crate) fn again(&mut self) {
        let current = self.is_current();
        self.release.iter_mut().for_each(|release| release.at = At::first(release.planned));
        self.release.take_if(|_| !current);
    }

    /// The poller takes partitions up, or some beside others. None if a commit that it needs cannot be read yet.
    pub(crate) fn take_up(&mut self, broker: &Broker, defects: Defects) -> Option<()> {
        let look_up = |partition| match broker.is_stable(partition) || defects.reads_unstable {
            true => Ok(broker.found(partition, self.membership.committed_before(partition))),
            false => Err(()),
        };
        let mut membership = self.membership.clone();
        let (found, anew) = match membership.take_up() {
            Some(found) => {
                let (epoch, found) = found.ok()?;
                (found, Some(epoch))
            }
            None => (membership.take_added()?.ok()?, None),
        };
        let mut taken = TakeOver::of(found, look_up).ok()?;
        if defects.ignores_foreign_plans {
            let free = |found: FoundPartition| match Foreign::judge(found.clone(), None, None) {
                Foreign::Waits(mut found) | Foreign::Free(mut found) => {
                    found.state.plan = None;
                    found
                }
            };
            taken.own.extend(std::mem::take(&mut taken.foreign).into_iter().map(free));
        }
        self.membership = membership;
        self.membership.progress().iter_mut().for_each(|progress| taken.start(progress));
        if let Some(epoch) = anew {
            self.reading = Reading { epoch, ..Reading::default() };
        }
        self.reading.own.extend(taken.own.iter().map(|found| found.partition));
        self.reading.foreign.extend(taken.foreign);
        self.reading.replays.extend(taken.replays);
        Some(())
    }

    /// The release of the next plan that was found.
    pub(crate) fn replay(&mut self, new_id: Option<u64>) -> Option<()> {
        let members = self.reading.replays.remove(0);
        let mut plan = take_over::planned(&members)?;
        plan.id = new_id.unwrap_or(plan.id);
        let all = plan.fresh.union(&plan.held);
        let progress = self.membership.progress()?;
        members.iter().for_each(|found| progress.reread(found.partition, all.of(found.partition)));
        self.release = Some(Release::of(plan, self.reading.epoch, true));
        Some(())
    }

    /// Every plan that it knows of.
    pub(crate) fn plans(&self) -> Vec<u64> {
        let Reading { replays, foreign, home, .. } = &self.reading;
        let mut membership = self.membership.clone();
        let mut found = membership.take_up().and_then(Result::ok).map_or_else(Vec::new, |(_, found)| found);
        found.extend(self.membership.clone().take_added().and_then(Result::ok).unwrap_or_default());
        let found = found.iter().chain(replays.iter().flatten()).chain(foreign).chain(home.iter().flatten());
        let plans = found.flat_map(|found| &found.state.plan).map(|plan| plan.id);
        plans.chain(self.release.iter().map(|release| release.plan.id)).collect()
    }

    /// Closes a window with the held records and the next ones of each partition: a new release.
    pub(crate) fn close(&mut self, id: u64, next: &[i64], leaves_one_out: bool, records: i64) -> Option<()> {
        let progress = self.membership.progress()?;
        let (mut fresh, mut held) = (Vec::new(), Vec::new());
        for (partition, wanted) in self.reading.own.iter().zip(next) {
            let mut missing = *wanted;
            while missing > 0 {
                let offset = progress.read_to(*partition).filter(|offset| *offset < records)?;
                let position = Position { partition: *partition, offset: Offset(offset) };
                match progress.deliver(position) {
                    Delivered::Done => continue,
                    Delivered::Fresh => fresh.push(position),
                    Delivered::Held(_) => held.push(position),
                }
                missing -= 1;
            }
        }
        let held = Spans::covering(held).union(&self.reading.held);
        let levels = vec![if leaves_one_out { LEAVES_ONE_OUT } else { 0 }];
        let plan = ReleasePlan { id, levels, fresh: Spans::covering(fresh), held, ..ReleasePlan::default() };
        let release = Release::of(plan, self.reading.epoch, false);
        if release.finished.is_empty() || leaves_one_out && release.left_out.is_empty() {
            return None;
        }
        self.release = Some(release);
        Some(())
    }

    /// The commits of the release under way: with its plan, and after it.
    pub(crate) fn planned(&mut self) -> Option<Commits> {
        let plan = &self.release.as_ref()?.plan;
        self.membership.progress()?.planned(plan)
    }

    pub(crate) fn after(&mut self) -> Option<Commits> {
        let release = self.release.as_ref()?;
        let progress = self.membership.progress()?;
        let commit = |p| Some((p, progress.after(p, &release.finished, carried(&release.plan))?));
        release.plan.partitions().into_iter().map(commit).collect()
    }

    /// The transaction of the release is committed.
    pub(crate) fn published(&mut self) {
        let Some(release) = self.release.take() else { return };
        if let Some(progress) = self.membership.progress() {
            progress.finish(&release.finished, carried(&release.plan));
        }
        if self.membership.is_consuming(release.epoch) {
            let ours = release.left_out.iter().filter(|(p, _)| self.reading.own.contains(p));
            self.reading.held = Spans::from_runs(ours.map(|(p, runs)| (p, runs.clone())));
        }
    }

    /// Looks after the first partition whose plan another instance carries out: at the plan's home, and then at the partition.
    pub(crate) fn look(&mut self, broker: &Broker) -> Option<()> {
        let was = self.reading.foreign.first()?.clone();
        let commit = |partition| {
            let found = broker.found(partition, self.membership.committed_before(partition));
            broker.is_stable(partition).then_some(found)
        };
        let Some(home) = self.reading.home.clone() else {
            self.reading.home = Some(commit(was.state.plan.as_ref()?.home)?);
            return Some(());
        };
        let judged = Foreign::judge(was, home.as_ref(), commit(self.reading.foreign.first()?.partition)?);
        self.reading.home = None;
        match judged {
            Foreign::Waits(found) => *self.reading.foreign.first_mut()? = found,
            Foreign::Free(found) => {
                self.reading.foreign.remove(0);
                self.membership.progress()?.assign(found.partition, found.committed, &found.state);
                self.reading.own.insert(found.partition);
            }
        }
        Some(())
    }

    /// Partitions go while others stay: their records leave the windows.
    pub(crate) fn start_giving_back(&mut self, gone: BTreeSet<Partition>) {
        let stays = |partition: &Partition| !gone.contains(partition);
        self.reading.own.retain(stays);
        self.reading.foreign.retain(|found| stays(&found.partition));
        self.reading.home = None;
        let held = self.reading.held.iter().filter(|(partition, _)| stays(partition));
        self.reading.held = Spans::from_runs(held.map(|(partition, runs)| (partition, runs.clone())));
        self.leaving = gone;
    }
}

/// The numbers of epochs do not matter, only whether one is the present one.
impl Hash for Instance {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.up, self.member, &self.assigned, self.draining, &self.leaving).hash(state);
        (self.producer, self.spent, self.doubtful, self.slow, self.lost, self.early, self.taken_again).hash(state);
        (self.reads(), self.is_current()).hash(state);
        let Reading { epoch: _, own, replays, foreign, home, held } = &self.reading;
        (own, replays, foreign, home, held).hash(state);
        if let Some(Release { plan, epoch: _, finished, left_out, planned, at }) = &self.release {
            (plan, finished, left_out, planned, at).hash(state);
        }
        let mut membership = self.membership.clone();
        membership.take_up().map(|found| found.map(|(_, found)| found)).hash(state);
        let mut membership = self.membership.clone();
        (membership.take_added(), membership.leave()).hash(state);
        membership.progress().hash(state);
    }
}

fn carried(plan: &ReleasePlan) -> CarriedOver<'_> {
    CarriedOver { levels: Some(&plan.levels), ..CarriedOver::default() }
}

/// Mistakes that the protocol once had, or could have: each must break a promise.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Defects {
    /// A producer goes on although a request to end its last transaction may still come.
    pub(crate) keeps_producer: bool,
    /// A member goes on although the commit of a plan may come a second time.
    pub(crate) keeps_membership: bool,
    /// Rows are produced before the plan is committed.
    pub(crate) plans_nothing: bool,
    /// A planned release is made again in another way.
    pub(crate) recodes_replays: bool,
    /// Offsets are committed outside the transaction.
    pub(crate) commits_outside: bool,
    /// Offsets are read while a transaction that changes them is open.
    pub(crate) reads_unstable: bool,
    /// A partition is read although another instance carries out its plan.
    pub(crate) ignores_foreign_plans: bool,
    /// A transaction of unknown outcome is tried again without looking at the offsets.
    pub(crate) asks_nothing: bool,
    /// A transaction whose abort is not answered is left to nobody.
    pub(crate) never_expires: bool,
    /// A lost transactional id is taken back without looking whether another instance has the name.
    pub(crate) takes_back_blindly: bool,
    /// After the loss of its name an instance starts over without asking for its transactional id.
    pub(crate) starts_over_blindly: bool,
    /// The plan is committed by a producer whose last requests may still come, and which is replaced afterwards.
    pub(crate) plans_first: bool,
    /// A transaction of unknown outcome takes the transactional id again although the name is lost.
    pub(crate) takes_after_loss: bool,
    /// An id that was just taken again counts as never lost.
    pub(crate) trusts_taken_again: bool,
    /// The group is joined before the transactional id is taken.
    pub(crate) joins_early: bool,
    /// The group is in the input's cluster, where it cannot fence a transaction.
    pub(crate) fences_nobody: bool,
    /// A progress topic does not grow with its topic of the input.
    pub(crate) grows_nothing: bool,
    /// Offsets are judged by the ends of the progress topics, which have no messages.
    pub(crate) judges_by_progress: bool,
}

impl Defects {
    pub(crate) const NONE: Self = Self {
        keeps_producer: false,
        keeps_membership: false,
        plans_nothing: false,
        recodes_replays: false,
        commits_outside: false,
        reads_unstable: false,
        ignores_foreign_plans: false,
        asks_nothing: false,
        never_expires: false,
        takes_back_blindly: false,
        starts_over_blindly: false,
        plans_first: false,
        takes_after_loss: false,
        trusts_taken_again: false,
        joins_early: false,
        fences_nobody: false,
        grows_nothing: false,
        judges_by_progress: false,
    };
}
