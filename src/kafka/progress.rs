//! How far each partition is done: what was delivered, what of it is finished, what a commit must say.
//!
//! Invariant: an offset is skipped only if it was finished by a committed release, or belongs to a plan that is carried
//! out; the committed offset is never above one that is still needed. Offsets that hold no record (transaction markers,
//! compacted away) are noticed because delivery passes them, and are needed by nobody.

use std::collections::BTreeMap;

use super::metadata::CommitState;
use super::runs::Runs;
use crate::model::batch::Spans;
use crate::model::event::{Partition, Position};

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
    /// Left out of a release before a restart, and still waiting: known to be missing from it.
    Held,
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
    last: Option<Vec<u8>>,
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
            for (first, last) in plan.fresh.iter().chain(plan.held.iter()) {
                claimed.insert(first, last);
                unfinished.insert(first, last);
                finished_to = finished_to.max(last + 1);
            }
            // What lies between the records of the plan was not read into it, and is still to come.
            let mut between = Runs::default();
            between.insert(state.finished_to.max(committed), finished_to - 1);
            claimed.iter().for_each(|(first, last)| between.remove(first, last));
            between.iter().for_each(|(first, last)| unfinished.insert(first, last));
        }
        let (held, last) = (state.pending.clone(), state.last.clone());
        self.lanes.insert(partition, Lane { cursor: committed, finished_to, unfinished, held, claimed, last });
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
                true if lane.held.contains(offset) => Delivered::Held,
                true => Delivered::Fresh,
            };
        }
        lane.unfinished.insert(offset, offset);
        Delivered::Fresh
    }

    /// The records of a release are finished.
    pub fn finish(&mut self, finished: &Spans, levels: Option<&[u8]>) {
        for (partition, spans) in finished.iter() {
            if let Some(lane) = self.lanes.get_mut(&partition) {
                for span in spans {
                    lane.unfinished.remove(span.first.0, span.last.0);
                    lane.finished_to = lane.finished_to.max(span.last.0 + 1);
                }
                if let Some(levels) = levels {
                    lane.last = Some(levels.to_vec());
                }
            }
        }
    }

    /// What to commit for a partition after `finished` would be finished too, without changing anything yet.
    pub fn after(&self, partition: Partition, finished: &Spans, levels: Option<&[u8]>) -> Option<Commit> {
        let mut one = Self { lanes: BTreeMap::from([(partition, self.lanes.get(&partition)?.clone())]) };
        one.finish(finished, levels);
        one.lanes.get(&partition).map(Lane::commit)
    }

    /// What to commit for a partition as things are.
    pub fn commit(&self, partition: Partition) -> Option<Commit> {
        self.lanes.get(&partition).map(Lane::commit)
    }

    /// The partitions of the assignment.
    pub fn partitions(&self) -> Vec<Partition> {
        self.lanes.keys().copied().collect()
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
        let state = CommitState { finished_to, pending, last: self.last.clone(), plan: None };
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
                        let before = progress.after(P, &spans(&part), None);
                        progress.finish(&spans(&part), None);
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
        }
    }

    #[test]
    fn records_of_a_plan_are_claimed_until_it_is_carried_out() {
        let mut progress = Progress::default();
        let mut fresh = Runs::default();
        fresh.insert(2, 4);
        fresh.insert(7, 8);
        let plan = super::super::metadata::PlanPart {
            seed: 1,
            closed: crate::model::event::Millis(0),
            fingerprint: String::new(),
            levels: vec![0],
            schema: None,
            home: P,
            members: Runs::default(),
            fresh,
            held: Runs::default(),
        };
        progress.assign(P, 2, &CommitState { finished_to: 2, plan: Some(plan), ..CommitState::default() });
        let wanted: Vec<i64> = (2..12).filter(|&o| progress.deliver(Position::new(0, o)) == Delivered::Fresh).collect();
        assert_eq!(wanted, [5, 6, 9, 10, 11]);
        assert_eq!(progress.commit(P).unwrap().offset, 2);
        progress.finish(&spans(&[2, 3, 4, 7, 8]), None);
        assert_eq!(progress.commit(P).unwrap().offset, 5);
    }
}
