//! The pure part of the protocol: delivered, finished, held and claimed offsets, and the commits that follow from them.
//!
//! Nothing in this folder names rdkafka, a clock or a thread, so its tests need no broker.
//! - [`Progress`], here: the partitions of an assignment together; the commits of a plan; whether they fit.
//! - [`partition`]: the offsets of one partition.
//! - [`commit`]: a commit, and the text of its metadata; [`runs_text`]: the text of an offset set; [`packed`]: that of
//!   a list of numbers.
//! - [`found`]: judges a commit that was found on the broker when its partition is taken over.
//! - [`take_over`]: decides who carries out the plans that the found commits contain.
//!
//! Invariant: an offset is skipped only if a committed release finished it or a plan that is carried out claims it, and the
//! committed offset is never above one that is still needed (I1, I2). Offsets without a record (transaction markers, compacted
//! records) show up as gaps in the delivery, and nobody waits for them.

pub mod commit;
pub mod found;
pub mod packed;
pub mod partition;
pub mod runs_text;
pub mod take_over;

use std::collections::{BTreeMap, BTreeSet};

use commit::{Commit, CommitState, MAX_BYTES, MAX_WAITING_BYTES, PlanPart};
use partition::{CarriedOver, Delivered, PartitionProgress};

use crate::model::event::{Millis, Partition, Position};
use crate::model::release::plan::{Fit, ReleasePlan};
use crate::model::release::runs::Runs;
use crate::model::release::spans::Spans;

/// Bytes of a commit that are kept free for values that are unknown when [`Progress::fit`] is asked: levels, the schema's id,
/// the time of the oldest held record. Larger: records are suppressed that could have been held. Smaller: a commit may
/// not fit although `fit` said that it does, and the service stops.
const SLACK: usize = 256;

/// The progress of all partitions of an assignment.
#[derive(Debug, Default)]
pub struct Progress {
    partitions: BTreeMap<Partition, PartitionProgress>,
}

impl Progress {
    /// Takes a partition over at its committed offset.
    pub fn assign(&mut self, partition: Partition, committed: i64, state: &CommitState) {
        self.partitions.insert(partition, PartitionProgress::new(committed, state));
    }

    /// Gives partitions up; returns the offsets that were committed in this assignment.
    pub fn remove(&mut self, partitions: &BTreeSet<Partition>) -> Vec<(Partition, i64)> {
        let committed = self.committed().filter(|(partition, _)| partitions.contains(partition)).collect();
        self.partitions.retain(|partition, _| !partitions.contains(partition));
        committed
    }

    /// Notes that the records of a plan have been read again and that these are all: its other offsets hold no record.
    pub fn reread(&mut self, partition: Partition, records: &Runs) {
        if let Some(progress) = self.partitions.get_mut(&partition) {
            progress.reread(records);
        }
    }

    /// Notes a delivery, and tells what to do with the record.
    pub fn deliver(&mut self, position: Position) -> Delivered {
        let progress = self.partitions.get_mut(&position.partition);
        progress.map_or(Delivered::Done, |progress| progress.deliver(position.offset.0))
    }

    /// Notes that a release has finished its records.
    pub fn finish(&mut self, finished: &Spans, carried: CarriedOver<'_>) {
        for (partition, offsets) in finished.iter() {
            if let Some(progress) = self.partitions.get_mut(&partition) {
                progress.finish(offsets, carried);
            }
        }
    }

    /// The commit of a partition once `finished` is finished too. Changes nothing.
    pub fn after(&self, partition: Partition, finished: &Spans, carried: CarriedOver<'_>) -> Option<Commit> {
        let mut one = self.only([partition]);
        one.finish(finished, carried);
        one.commit(partition)
    }

    /// The commits that contain the plan of a release, to be made before any of its rows is produced. `None` if the release
    /// has records of a partition that belongs to another instance.
    pub fn planned(&self, plan: &ReleasePlan) -> Option<Vec<(Partition, Commit)>> {
        let partitions = plan.partitions();
        let Some(&home) = partitions.first() else { return Some(Vec::new()) };
        let members: Runs = partitions.iter().map(|partition| i64::from(partition.0)).collect();
        let part = |&partition: &Partition| {
            let progress = self.partitions.get(&partition)?;
            let mut commit = progress.commit();
            let fresh = plan.fresh.of(partition);
            commit.state.plan = Some(PlanPart {
                id: plan.id,
                closed: plan.closed.unwrap_or(Millis(0)),
                fingerprint: plan.fingerprint.clone(),
                levels: plan.levels.clone(),
                schema: plan.schema,
                home,
                members: if partition == home { members.clone() } else { Runs::default() },
                fresh: fresh.bridged(&progress.unfinished().without(fresh)),
                held: plan.held.of(partition).clone(),
                refused: plan.refused.of(partition).clone(),
                journal: plan.journal,
            });
            Some((partition, commit))
        };
        partitions.iter().map(part).collect()
    }

    /// Tells whether the commits of a release fit once the `earlier` releases are finished: the one with its plan, unless it
    /// needs none, and the one after it.
    pub fn fit(&self, earlier: &[Spans], plan: Option<&ReleasePlan>, finished: &Spans) -> Fit {
        let touched = finished.iter().map(|(p, _)| p).chain(plan.iter().flat_map(|plan| plan.partitions()));
        let mut then = self.only(touched);
        earlier.iter().for_each(|finished| then.finish(finished, CarriedOver::default()));
        if let Some(plan) = plan.and_then(|plan| then.planned(plan))
            && plan.iter().any(|(_, commit)| commit.text().len() + SLACK > MAX_BYTES)
        {
            return Fit::PlanTooLong;
        }
        then.finish(finished, CarriedOver::default());
        let fits = then.partitions.values().all(|progress| progress.commit().text().len() <= MAX_WAITING_BYTES);
        if fits { Fit::Fits } else { Fit::TooManyHeld }
    }

    /// The commit of a partition as it is now.
    pub fn commit(&self, partition: Partition) -> Option<Commit> {
        self.partitions.get(&partition).map(PartitionProgress::commit)
    }

    /// The offsets that were committed in this assignment.
    pub fn committed(&self) -> impl Iterator<Item = (Partition, i64)> + '_ {
        let committed = self.partitions.iter().filter(|(_, progress)| progress.is_committed());
        committed.map(|(partition, progress)| (*partition, progress.commit().offset))
    }

    /// The next offset that delivery may bring.
    pub fn read_to(&self, partition: Partition) -> Option<i64> {
        self.partitions.get(&partition).map(PartitionProgress::read_to)
    }

    /// The partitions of the assignment, and those of the plans that it carries out.
    pub fn partitions(&self) -> impl Iterator<Item = Partition> + '_ {
        self.partitions.keys().copied()
    }

    /// A copy with some partitions only.
    fn only(&self, partitions: impl IntoIterator<Item = Partition>) -> Self {
        let copy = |partition| Some((partition, self.partitions.get(&partition)?.clone()));
        Self { partitions: partitions.into_iter().filter_map(copy).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const P: Partition = Partition(0);

    fn spans(offsets: &[i64]) -> Spans {
        Spans::covering(offsets.iter().map(|&o| Position::new(0, o)))
    }

    proptest! {
        /// A log with holes is read, finished in random portions and restarted at random from what was committed: every
        /// record is handed out again until it is finished, and never afterwards.
        #[test]
        fn nothing_lost_nothing_twice(
            holes in prop::collection::btree_set(0i64..60, 0..20),
            steps in prop::collection::vec((0u8..4, any::<u64>()), 1..60),
        ) {
            let log: Vec<i64> = (0..60).filter(|o| !holes.contains(o)).collect();
            let mut progress = Progress::default();
            progress.assign(P, 0, &CommitState::default());
            let (mut next, mut open, mut done) = (0usize, BTreeSet::new(), BTreeSet::new());
            for (step, seed) in steps {
                match step {
                    0 | 1 => {
                        for _ in 0..seed % 7 {
                            if let Some(&offset) = log.get(next) {
                                next += 1;
                                let wanted = progress.deliver(Position::new(0, offset)) != Delivered::Done;
                                prop_assert_eq!(wanted, !done.contains(&offset), "offset {}", offset);
                                if wanted { open.insert(offset); }
                            }
                        }
                    }
                    2 => {
                        let part: Vec<i64> = open.iter().copied().filter(|o| seed >> (o % 64) & 1 == 1).collect();
                        let before = progress.after(P, &spans(&part), CarriedOver::default());
                        progress.finish(&spans(&part), CarriedOver::default());
                        prop_assert_eq!(before, progress.commit(P));
                        for offset in part { open.remove(&offset); done.insert(offset); }
                    }
                    _ => {
                        let commit = progress.commit(P).unwrap();
                        prop_assert!(open.iter().all(|o| *o >= commit.offset));
                        let text = commit.state.to_text(commit.offset);
                        let state = CommitState::parse(&text, commit.offset).unwrap();
                        progress = Progress::default();
                        progress.assign(P, commit.offset, &state);
                        next = log.partition_point(|o| *o < commit.offset);
                        open.clear();
                    }
                }
            }
            // In the end no hole is waited for.
            for &offset in &log[next..] {
                if progress.deliver(Position::new(0, offset)) != Delivered::Done { open.insert(offset); }
            }
            progress.finish(&spans(&open.iter().copied().collect::<Vec<_>>()), CarriedOver::default());
            let commit = progress.commit(P).unwrap();
            prop_assert!(commit.state.pending.is_empty());
            prop_assert!(log.iter().all(|offset| *offset < commit.offset));
        }
    }

    /// A release of offsets 2 to 4, 7 and 8.
    fn planned() -> CommitState {
        let plan = PlanPart::of_fresh(1, P, &[], &[2, 3, 4, 7, 8]);
        CommitState { finished_to: 2, plan: Some(plan), ..CommitState::default() }
    }

    #[test]
    fn an_offset_of_a_plan_without_a_record_is_not_waited_for() {
        let mut progress = Progress::default();
        progress.assign(P, 2, &planned());
        progress.reread(P, &Runs::from_iter([2, 4, 7, 8]));
        progress.finish(&spans(&[2, 4, 7, 8]), CarriedOver::default());
        assert_eq!(progress.commit(P).unwrap().offset, 5);
    }

    #[test]
    fn records_of_a_plan_are_claimed_until_it_is_carried_out() {
        let mut progress = Progress::default();
        progress.assign(P, 2, &planned());
        let wanted: Vec<i64> = (2..12).filter(|&o| progress.deliver(Position::new(0, o)) == Delivered::Fresh).collect();
        assert_eq!(wanted, [5, 6, 9, 10, 11]);
        assert_eq!(progress.commit(P).unwrap().offset, 2);
        progress.finish(&spans(&[2, 3, 4, 7, 8]), CarriedOver::default());
        assert_eq!(progress.commit(P).unwrap().offset, 5);
    }

    #[test]
    fn a_hole_between_the_records_of_a_plan_is_not_waited_for() {
        let mut progress = Progress::default();
        progress.assign(P, 2, &planned());
        let wanted: Vec<i64> = [2, 3, 4, 6, 7, 8]
            .into_iter()
            .filter(|&o| progress.deliver(Position::new(0, o)) == Delivered::Fresh)
            .collect();
        assert_eq!(wanted, [6]);
        progress.finish(&spans(&[2, 3, 4, 6, 7, 8]), CarriedOver::default());
        assert_eq!(progress.commit(P).unwrap().offset, 9, "5 holds no record");
    }

    #[test]
    fn a_plan_stands_in_each_of_its_partitions_and_its_home_lists_them() {
        let mut progress = Progress::default();
        for number in 0..3 {
            progress.assign(Partition(number), 0, &CommitState::default());
            (0..4).for_each(|offset| assert_eq!(progress.deliver(Position::new(number, offset)), Delivered::Fresh));
        }
        let records = [(1, 0), (1, 2), (2, 1)].map(|(partition, offset)| Position::new(partition, offset));
        let plan = ReleasePlan { id: 7, fresh: Spans::covering(records), ..ReleasePlan::default() };
        let commits = progress.planned(&plan).unwrap();
        let runs = |runs: &Runs| runs.iter().map(|run| (run.first.0, run.last.0)).collect::<Vec<_>>();
        let parts: Vec<_> = commits
            .iter()
            .map(|(partition, commit)| {
                let part = commit.state.plan.as_ref().unwrap();
                (partition.0, part.id, part.home.0, runs(&part.members), runs(&part.fresh))
            })
            .collect();
        assert_eq!(parts, [(1, 7, 1, vec![(1, 2)], vec![(0, 0), (2, 2)]), (2, 7, 1, vec![], vec![(1, 1)])]);
        assert_eq!(progress.planned(&ReleasePlan::default()), Some(Vec::new()));
    }

    #[test]
    fn what_is_written_down_has_room_to_the_last_byte() {
        let mut progress = Progress::default();
        progress.assign(P, 0, &CommitState::default());
        progress.deliver(Position::new(0, 0));
        let plan = |fingerprint: usize| ReleasePlan {
            fresh: spans(&[0]),
            fingerprint: "f".repeat(fingerprint),
            ..ReleasePlan::default()
        };
        let length = |plan: &ReleasePlan| progress.planned(plan).unwrap()[0].1.text().len();
        let most = MAX_BYTES - SLACK - length(&plan(0));
        assert_eq!(length(&plan(most)), MAX_BYTES - SLACK);
        assert_eq!(progress.fit(&[], Some(&plan(most)), &spans(&[0])), Fit::Fits);
        assert_eq!(progress.fit(&[], Some(&plan(most + 1)), &spans(&[0])), Fit::PlanTooLong);
        assert_eq!(progress.fit(&[], None, &spans(&[0])), Fit::Fits);
        // Every second record waits: two letters each.
        (1..2000).for_each(|offset| assert_eq!(progress.deliver(Position::new(0, offset)), Delivered::Fresh));
        let every_second = |first: i64, end| spans(&(first..end).step_by(2).collect::<Vec<_>>());
        let fits: Vec<Fit> = (1400..1800)
            .map(|end| {
                let length = progress.after(P, &every_second(1, end), CarriedOver::default()).unwrap().text().len();
                let fit = progress.fit(&[], None, &every_second(1, end));
                assert_eq!(fit == Fit::Fits, length <= MAX_WAITING_BYTES, "{length} bytes");
                fit
            })
            .collect();
        assert_eq!((fits[0], fits[399]), (Fit::Fits, Fit::TooManyHeld));
        // What is under way will be finished by then.
        assert_eq!(progress.fit(&[every_second(0, 2000)], None, &every_second(1, 2000)), Fit::Fits);
    }

    #[test]
    fn who_waits_is_known_to_wait() {
        let mut progress = Progress::default();
        let pending = Runs::from_iter([2, 3]);
        let state = CommitState { finished_to: 5, pending, since: Some(Millis(7)), ..CommitState::default() };
        progress.assign(P, 2, &state);
        let seen: Vec<Delivered> = (2..6).map(|offset| progress.deliver(Position::new(0, offset))).collect();
        let held = Delivered::Held(Some(Millis(7)));
        assert_eq!(seen, [held, held, Delivered::Done, Delivered::Fresh]);
        let commit = progress.commit(P).unwrap();
        assert_eq!((commit.state.since, commit.state.finished_to), (Some(Millis(7)), 5));
        assert_eq!(commit.state.pending.last(), Some(3), "5 waits for nothing that is written down");
        progress.finish(&spans(&[2, 3, 5]), CarriedOver { since: Some(Millis(7)), ..CarriedOver::default() });
        assert_eq!(progress.commit(P).unwrap().state.since, None, "nobody waits any more");
    }

    #[test]
    fn a_partition_that_is_not_assigned_is_not_ours() {
        let mut progress = Progress::default();
        progress.assign(P, 3, &CommitState::default());
        assert_eq!(progress.partitions().collect::<Vec<_>>(), [P]);
        assert_eq!(progress.committed().count(), 0, "nothing yet in this assignment");
        assert_eq!(progress.read_to(P), Some(3));
        assert_eq!(progress.deliver(Position::new(0, 4)), Delivered::Fresh);
        assert_eq!(progress.read_to(P), Some(5));
        progress.finish(&spans(&[4]), CarriedOver::default());
        assert_eq!(progress.committed().collect::<Vec<_>>(), [(P, 5)]);
        let mut progress = Progress::default();
        assert_eq!((progress.partitions().count(), progress.committed().count()), (0, 0));
        assert_eq!(progress.deliver(Position::new(0, 5)), Delivered::Done, "it belongs to others");
        assert_eq!((progress.commit(P), progress.read_to(P)), (None, None));
        let plan = ReleasePlan { fresh: spans(&[5]), ..ReleasePlan::default() };
        assert_eq!(progress.planned(&plan), None, "not ours to plan");
    }
}
