//! How far each partition is done: what was delivered, what of it is finished, what a commit must say.
//!
//! Invariant: an offset is skipped only if it was finished by a committed release, or belongs to a plan that is carried
//! out; the committed offset is never above one that is still needed. Offsets that hold no record (transaction markers,
//! compacted away) are noticed because delivery passes them, and are needed by nobody.

use std::collections::BTreeMap;

use super::metadata::{CommitState, MAX_BYTES, MAX_WAITING_BYTES, PlanPart};
use super::runs::Runs;
use crate::model::event::{Millis, Partition, Position};
use crate::model::release::plan::{ReleasePlan, Room};
use crate::model::release::spans::Spans;

/// Kept free for what is not known yet when room is asked for: levels, the schema's number, since when records wait.
const SLACK: usize = 256;

/// All partitions of the current assignment.
#[derive(Debug, Default)]
pub struct Progress {
    lanes: BTreeMap<Partition, Lane>,
}

/// What a delivered record is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivered {
    /// Finished before, or part of a plan that is carried out: to be skipped.
    Done,
    /// For a window.
    Fresh,
    /// Left out of a release before a restart, and still waiting: known to be missing from it. Not waiting since before
    /// this, if it is known.
    Held(Option<Millis>),
}

/// A commit as it should be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// The smallest offset still needed.
    pub offset: i64,
    /// What its metadata says.
    pub state: CommitState,
}

#[derive(Debug, Clone)]
struct Lane {
    /// The next offset that delivery may bring.
    cursor: i64,
    finished_to: i64,
    /// Delivered or pending from before, and not finished.
    unfinished: Runs,
    /// Left out of a release before this assignment.
    held: Runs,
    /// Part of a plan that is carried out: not for a window.
    claimed: Runs,
    since: Option<Millis>,
    last: Option<Vec<u8>>,
    /// Where the journal says what the last releases show, the newest last.
    journal: Vec<i64>,
    /// True once something was committed in this assignment.
    committed: bool,
}

/// What a release leaves behind beside the records that it finishes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Leaves<'a> {
    /// The levels that later releases follow; `None` if nothing was published.
    pub levels: Option<&'a [u8]>,
    /// Since when the oldest record waits that still does.
    pub since: Option<Millis>,
    /// Where the journal says what it shows, and of how many releases that is to be known.
    pub journal: Option<(i64, usize)>,
}

impl Progress {
    /// Forgets everything: the partitions belong to others now.
    pub fn clear(&mut self) {
        self.lanes.clear();
    }

    /// Takes a partition over at its committed offset.
    pub fn assign(&mut self, partition: Partition, committed: i64, state: &CommitState) {
        let mut claimed = Runs::default();
        let mut unfinished = state.pending.clone();
        let mut finished_to = state.finished_to.max(committed);
        if let Some(plan) = &state.plan {
            for runs in [&plan.fresh, &plan.held] {
                state.needed(runs).iter().for_each(|(first, last)| claimed.insert(first, last));
            }
            // What lies between the records of the plan was not read into it, and is still to come.
            let end = claimed.last().map_or(finished_to, |last| finished_to.max(last + 1));
            unfinished.insert(finished_to, end - 1);
            finished_to = end;
        }
        let lane = Lane {
            cursor: committed,
            finished_to,
            unfinished,
            held: state.pending.clone(),
            claimed,
            since: state.since,
            last: state.last.clone(),
            journal: state.journal.clone(),
            committed: false,
        };
        self.lanes.insert(partition, lane);
    }

    /// The records of a plan have been read again, and these are all: the other offsets that it spans hold none.
    pub fn reread(&mut self, partition: Partition, records: &Runs) {
        if let Some(lane) = self.lanes.get_mut(&partition) {
            let mut empty = lane.claimed.clone();
            records.iter().for_each(|(first, last)| empty.remove(first, last));
            empty.iter().for_each(|(first, last)| lane.unfinished.remove(first, last));
        }
    }

    /// Notes a delivery, and says what to do with the record.
    pub fn deliver(&mut self, position: Position) -> Delivered {
        let Some(lane) = self.lanes.get_mut(&position.partition) else { return Delivered::Done };
        let offset = position.offset.0;
        if offset < lane.cursor {
            return Delivered::Done;
        }
        if offset > lane.cursor {
            lane.unfinished.remove(lane.cursor, offset - 1);
        }
        lane.cursor = offset + 1;
        if offset < lane.finished_to {
            return match lane.unfinished.contains(offset) && !lane.claimed.contains(offset) {
                false => Delivered::Done,
                true if lane.held.contains(offset) => Delivered::Held(lane.since),
                true => Delivered::Fresh,
            };
        }
        lane.unfinished.insert(offset, offset);
        Delivered::Fresh
    }

    /// The records of a release are finished.
    pub fn finish(&mut self, finished: &Spans, leaves: Leaves<'_>) {
        for (partition, spans) in finished.iter() {
            if let Some(lane) = self.lanes.get_mut(&partition) {
                for span in spans {
                    lane.unfinished.remove(span.first.0, span.last.0);
                    lane.finished_to = lane.finished_to.max(span.last.0 + 1);
                }
                lane.committed = true;
                lane.since = leaves.since;
                if let Some(levels) = leaves.levels {
                    lane.last = Some(levels.to_vec());
                }
                if let Some((entry, releases)) = leaves.journal {
                    lane.journal.push(entry);
                    lane.journal.drain(..lane.journal.len().saturating_sub(releases));
                }
            }
        }
    }

    /// What to commit for a partition after `finished` would be finished too, without changing anything yet.
    pub fn after(&self, partition: Partition, finished: &Spans, leaves: Leaves<'_>) -> Option<Commit> {
        let mut one = self.only([partition]);
        one.finish(finished, leaves);
        one.commit(partition)
    }

    /// The commits that say what a release consists of, before anything of it is produced. `None` if it has records of a
    /// partition that is not ours.
    pub fn planned(&self, plan: &ReleasePlan) -> Option<Vec<(Partition, Commit)>> {
        let partitions = plan.partitions();
        let Some(&home) = partitions.first() else { return Some(Vec::new()) };
        let mut members = Runs::default();
        partitions.iter().for_each(|p| members.insert(i64::from(p.0), i64::from(p.0)));
        let runs = |spans: &Spans, partition| Runs::from_spans(spans.of(partition));
        let part = |&partition: &Partition| {
            let mut commit = self.commit(partition)?;
            let fresh = runs(&plan.fresh, partition);
            let mut others = self.lanes.get(&partition)?.unfinished.clone();
            fresh.iter().for_each(|(first, last)| others.remove(first, last));
            commit.state.plan = Some(PlanPart {
                id: plan.id,
                closed: plan.closed.unwrap_or(Millis(0)),
                fingerprint: plan.fingerprint.clone(),
                levels: plan.levels.clone(),
                schema: plan.schema,
                home,
                members: if partition == home { members.clone() } else { Runs::default() },
                fresh: fresh.bridged(&others),
                held: runs(&plan.held, partition),
                refused: runs(&plan.refused, partition),
                journal: plan.journal,
            });
            Some((partition, commit))
        };
        partitions.iter().map(part).collect()
    }

    /// Whether the commits of a release fit, once the `earlier` ones are finished: its plan's, unless it needs none, and
    /// the one after it.
    pub fn room(&self, earlier: &[Spans], plan: Option<&ReleasePlan>, finished: &Spans) -> Room {
        let touched = finished.iter().map(|(p, _)| p).chain(plan.iter().flat_map(|plan| plan.partitions()));
        let mut then = self.only(touched);
        earlier.iter().for_each(|finished| then.finish(finished, Leaves::default()));
        if let Some(plan) = plan.and_then(|plan| then.planned(plan))
            && plan.iter().any(|(_, commit)| commit.text().len() + SLACK > MAX_BYTES)
        {
            return Room::TooMuchPlanned;
        }
        then.finish(finished, Leaves::default());
        let waiting = |lane: &Lane| lane.commit().text().len();
        let fits = then.lanes.values().all(|lane| waiting(lane) <= MAX_WAITING_BYTES);
        if fits { Room::Enough } else { Room::TooMuchWaits }
    }

    /// A copy with some partitions only.
    fn only(&self, partitions: impl IntoIterator<Item = Partition>) -> Self {
        let lane = |partition| Some((partition, self.lanes.get(&partition)?.clone()));
        Self { lanes: partitions.into_iter().filter_map(lane).collect() }
    }

    /// What to commit for a partition as things are.
    pub fn commit(&self, partition: Partition) -> Option<Commit> {
        self.lanes.get(&partition).map(Lane::commit)
    }

    /// What was committed in this assignment.
    pub fn committed(&self) -> impl Iterator<Item = (Partition, i64)> + '_ {
        self.lanes.iter().filter(|(_, lane)| lane.committed).map(|(partition, lane)| (*partition, lane.commit().offset))
    }

    /// The next offset that delivery may bring.
    pub fn read_to(&self, partition: Partition) -> Option<i64> {
        self.lanes.get(&partition).map(|lane| lane.cursor)
    }

    /// The partitions of the assignment.
    pub fn partitions(&self) -> Vec<Partition> {
        self.lanes.keys().copied().collect()
    }
}

impl Commit {
    /// Its metadata.
    pub fn text(&self) -> String {
        self.state.to_text(self.offset)
    }
}

impl Lane {
    fn commit(&self) -> Commit {
        let offset = self.unfinished.first().unwrap_or_else(|| self.cursor.max(self.finished_to));
        let mut pending = self.unfinished.clone();
        if self.finished_to <= pending.last().unwrap_or(i64::MIN) {
            pending.remove(self.finished_to, i64::MAX);
        }
        let finished_to = self.finished_to.max(offset);
        // A single run from the committed offset to the end of what is finished says nothing that is not finished.
        let since = self.since.filter(|_| !pending.is_empty());
        let (last, journal) = (self.last.clone(), self.journal.clone());
        let state = CommitState { finished_to, pending, since, last, journal, plan: None };
        Commit { offset, state }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

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
                        let before = progress.after(P, &spans(&part), Leaves::default());
                        progress.finish(&spans(&part), Leaves::default());
                        prop_assert_eq!(before, progress.commit(P));
                        for offset in part { open.remove(&offset); done.insert(offset); }
                    }
                    _ => {
                        let commit = progress.commit(P).unwrap();
                        prop_assert!(open.iter().all(|o| *o >= commit.offset));
                        let text = commit.state.to_text(commit.offset);
                        let state = CommitState::parse(&text, commit.offset).unwrap();
                        progress.clear();
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
            progress.finish(&spans(&open.iter().copied().collect::<Vec<_>>()), Leaves::default());
            let commit = progress.commit(P).unwrap();
            prop_assert!(commit.state.pending.is_empty());
            prop_assert!(log.iter().all(|offset| *offset < commit.offset));
        }
    }

    /// A release of offsets 2 to 4, 7 and 8.
    fn planned() -> CommitState {
        let mut fresh = Runs::default();
        fresh.insert(2, 4);
        fresh.insert(7, 8);
        let plan = PlanPart {
            id: 1,
            closed: Millis(0),
            fingerprint: String::new(),
            levels: vec![0],
            schema: None,
            home: P,
            members: Runs::default(),
            fresh,
            held: Runs::default(),
            refused: Runs::default(),
            journal: None,
        };
        CommitState { finished_to: 2, plan: Some(plan), ..CommitState::default() }
    }

    #[test]
    fn an_offset_of_a_plan_without_a_record_is_not_waited_for() {
        let mut progress = Progress::default();
        progress.assign(P, 2, &planned());
        let mut found = Runs::default();
        [2, 4, 7, 8].iter().for_each(|&offset| found.insert(offset, offset));
        progress.reread(P, &found);
        progress.finish(&spans(&[2, 4, 7, 8]), Leaves::default());
        assert_eq!(progress.commit(P).unwrap().offset, 5);
    }

    #[test]
    fn records_of_a_plan_are_claimed_until_it_is_carried_out() {
        let mut progress = Progress::default();
        progress.assign(P, 2, &planned());
        let wanted: Vec<i64> = (2..12).filter(|&o| progress.deliver(Position::new(0, o)) == Delivered::Fresh).collect();
        assert_eq!(wanted, [5, 6, 9, 10, 11]);
        assert_eq!(progress.commit(P).unwrap().offset, 2);
        progress.finish(&spans(&[2, 3, 4, 7, 8]), Leaves::default());
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
        progress.finish(&spans(&[2, 3, 4, 6, 7, 8]), Leaves::default());
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
        let runs = |runs: &Runs| runs.iter().collect::<Vec<_>>();
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
        assert_eq!(progress.room(&[], Some(&plan(most)), &spans(&[0])), Room::Enough);
        assert_eq!(progress.room(&[], Some(&plan(most + 1)), &spans(&[0])), Room::TooMuchPlanned);
        assert_eq!(progress.room(&[], None, &spans(&[0])), Room::Enough);
        // Every second record waits: two letters each.
        (1..2000).for_each(|offset| assert_eq!(progress.deliver(Position::new(0, offset)), Delivered::Fresh));
        let every_second = |first: i64, end| spans(&(first..end).step_by(2).collect::<Vec<_>>());
        let rooms: Vec<Room> = (1400..1800)
            .map(|end| {
                let length = progress.after(P, &every_second(1, end), Leaves::default()).unwrap().text().len();
                let room = progress.room(&[], None, &every_second(1, end));
                assert_eq!(room == Room::Enough, length <= MAX_WAITING_BYTES, "{length} bytes");
                room
            })
            .collect();
        assert_eq!((rooms[0], rooms[399]), (Room::Enough, Room::TooMuchWaits));
        // What is under way will be finished by then.
        assert_eq!(progress.room(&[every_second(0, 2000)], None, &every_second(1, 2000)), Room::Enough);
    }

    #[test]
    fn who_waits_is_known_to_wait() {
        let mut progress = Progress::default();
        let mut pending = Runs::default();
        pending.insert(2, 3);
        let state = CommitState { finished_to: 5, pending, since: Some(Millis(7)), ..CommitState::default() };
        progress.assign(P, 2, &state);
        let seen: Vec<Delivered> = (2..6).map(|offset| progress.deliver(Position::new(0, offset))).collect();
        let held = Delivered::Held(Some(Millis(7)));
        assert_eq!(seen, [held, held, Delivered::Done, Delivered::Fresh]);
        let commit = progress.commit(P).unwrap();
        assert_eq!((commit.state.since, commit.state.finished_to), (Some(Millis(7)), 5));
        assert_eq!(commit.state.pending.last(), Some(3), "5 waits for nothing that is written down");
        progress.finish(&spans(&[2, 3, 5]), Leaves { since: Some(Millis(7)), ..Leaves::default() });
        assert_eq!(progress.commit(P).unwrap().state.since, None, "nobody waits any more");
    }

    #[test]
    fn what_is_cleared_is_nobodys() {
        let mut progress = Progress::default();
        progress.assign(P, 3, &CommitState::default());
        assert_eq!(progress.partitions(), [P]);
        assert_eq!(progress.committed().count(), 0, "nothing yet in this assignment");
        assert_eq!(progress.read_to(P), Some(3));
        assert_eq!(progress.deliver(Position::new(0, 4)), Delivered::Fresh);
        assert_eq!(progress.read_to(P), Some(5));
        progress.finish(&spans(&[4]), Leaves::default());
        assert_eq!(progress.committed().collect::<Vec<_>>(), [(P, 5)]);
        progress.clear();
        assert!(progress.partitions().is_empty());
        assert_eq!(progress.committed().count(), 0);
        assert_eq!(progress.deliver(Position::new(0, 5)), Delivered::Done, "it belongs to others now");
        assert_eq!((progress.commit(P), progress.read_to(P)), (None, None));
        let plan = ReleasePlan { fresh: spans(&[5]), ..ReleasePlan::default() };
        assert_eq!(progress.planned(&plan), None, "not ours to plan");
    }
}
