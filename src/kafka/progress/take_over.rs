//! Decides, from the commits of a new assignment, which partitions to read and which planned releases to carry out.
//!
//! A plan stands in the commit of each of its partitions, and these commits are not one transaction, so a crash can leave some
//! of them without it. The home partition lists all members:
//! - If every member has the plan, rows of it may have been produced. The owner of the home carries it out; owners of other
//!   members wait until its transaction has removed the plan ([`PlanFate::Foreign`]).
//! - If a member lacks it, the commits never went through as a whole, so no row was produced. Everybody drops the plan.

use std::collections::{BTreeMap, BTreeSet};

use super::Progress;
use super::commit::PlanPart;
use super::found::FoundPartition;
use crate::model::event::Partition;
use crate::model::release::plan::ReleasePlan;
use crate::model::release::runs::Runs;
use crate::model::release::spans::Spans;

/// The work that a new assignment starts with.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TakeOver {
    /// The partitions to read.
    pub own: Vec<FoundPartition>,
    /// Assigned partitions whose plan another instance carries out. They are read when it is done.
    pub foreign: Vec<FoundPartition>,
    /// The planned releases to carry out: all partitions of each, including those that are assigned to others.
    pub replays: Vec<Vec<FoundPartition>>,
    /// The levels of the last release.
    pub last: Option<Vec<u8>>,
}

/// The consequence of a plan for a partition.
enum PlanFate {
    /// Carried out by us; stands at the home, with all partitions of the plan.
    Ours(Vec<FoundPartition>),
    /// Carried out by another instance.
    Foreign,
    /// Never committed as a whole; dropped.
    Incomplete,
    /// Its home, which is ours too, lacks it: carried out since the commit of this member was read, or never committed as a whole.
    Ended(Box<Foreign>),
}

impl TakeOver {
    /// Sorts the found partitions. `look_up` gets the commit of a partition that is not among them.
    pub fn of<E>(
        found: Vec<FoundPartition>,
        look_up: impl Fn(Partition) -> Result<Option<FoundPartition>, E>,
    ) -> Result<Self, E> {
        let mut fates = fates(&found, look_up)?;
        let newest =
            found.iter().filter(|found| found.state.last.is_some()).max_by_key(|found| found.state.finished_to);
        let mut this = Self { last: newest.and_then(|found| found.state.last.clone()), ..Self::default() };
        for mut found in found {
            match fates.remove(&found.partition) {
                Some(PlanFate::Foreign) => {
                    this.foreign.push(found);
                    continue;
                }
                Some(PlanFate::Ended(ended)) => match *ended {
                    Foreign::Waits(now) => {
                        this.foreign.push(now);
                        continue;
                    }
                    Foreign::Free(now) => found = now,
                },
                Some(PlanFate::Ours(members)) => this.replays.push(members),
                Some(PlanFate::Incomplete) => found.state.plan = None,
                None => {}
            }
            this.own.push(found);
        }
        Ok(this)
    }

    /// The partitions that are assigned to this instance.
    pub fn assigned(&self) -> BTreeSet<Partition> {
        self.own.iter().chain(&self.foreign).map(|found| found.partition).collect()
    }

    /// Starts the progress of the partitions to read, and of those whose part of a plan is carried out here.
    pub fn start(&self, progress: &mut Progress) {
        let assigned = self.assigned();
        let others = self.replays.iter().flatten().filter(|member| !assigned.contains(&member.partition));
        for found in self.own.iter().chain(others) {
            progress.assign(found.partition, found.committed, &found.state);
        }
    }
}

/// The consequence of each plan, by partition. A partition without an entry has no plan, or follows its home.
fn fates<E>(
    found: &[FoundPartition],
    look_up: impl Fn(Partition) -> Result<Option<FoundPartition>, E>,
) -> Result<BTreeMap<Partition, PlanFate>, E> {
    let own: BTreeMap<Partition, &FoundPartition> = found.iter().map(|found| (found.partition, found)).collect();
    let mut fates = BTreeMap::new();
    for found in found {
        let Some(plan) = &found.state.plan else { continue };
        if plan.home != found.partition {
            match own.get(&plan.home) {
                None => drop(fates.insert(found.partition, PlanFate::Foreign)),
                // Partitions can be added one after the other, so this commit may be older than the home's.
                Some(home) if !home.is_planned(plan.id) => {
                    let now = look_up(found.partition)?;
                    let ended = Foreign::judge(found.clone(), Some(home), now);
                    fates.insert(found.partition, PlanFate::Ended(Box::new(ended)));
                }
                Some(_) => {}
            }
            continue;
        }
        let mut members = Some(Vec::new());
        for number in plan.members.offsets() {
            let partition = Partition(number as u32);
            let member = own.get(&partition).map_or_else(|| look_up(partition), |found| Ok(Some((*found).clone())))?;
            members = members.zip(member.filter(|member| member.is_planned(plan.id))).map(|(mut members, member)| {
                members.push(member);
                members
            });
            if members.is_none() {
                break;
            }
        }
        let members = members.filter(|members| !members.is_empty());
        fates.insert(found.partition, members.map_or(PlanFate::Incomplete, PlanFate::Ours));
    }
    // The members of an incomplete plan are free as well.
    for found in found {
        if let Some(plan) = &found.state.plan
            && matches!(fates.get(&plan.home), Some(PlanFate::Incomplete))
        {
            fates.insert(found.partition, PlanFate::Incomplete);
        }
    }
    Ok(fates)
}

/// The release that is planned in the commits of these members; the shown records are in the journal.
pub fn planned(members: &[FoundPartition]) -> Option<ReleasePlan> {
    let part = members.first()?.state.plan.as_ref()?;
    let spans = |runs: fn(&PlanPart) -> &Runs| {
        let needed =
            |found: &FoundPartition| Some((found.partition, found.state.needed(runs(found.state.plan.as_ref()?))));
        Spans::from_runs(members.iter().filter_map(needed))
    };
    Some(ReleasePlan {
        id: part.id,
        levels: part.levels.clone(),
        closed: Some(part.closed),
        fingerprint: part.fingerprint.clone(),
        schema: part.schema,
        fresh: spans(|part| &part.fresh),
        held: spans(|part| &part.held),
        refused: spans(|part| &part.refused),
        shown: None,
        classes: None,
        journal: part.journal,
    })
}

/// The state of a partition whose plan another instance carries out.
#[derive(Debug, PartialEq, Eq)]
pub enum Foreign {
    /// The plan is not carried out yet, or a new one stands there.
    Waits(FoundPartition),
    /// The plan is gone: the partition can be read.
    Free(FoundPartition),
}

impl Foreign {
    /// Judges the commits of the partition and of the plan's home. The caller reads `home` before `now`: one transaction removes
    /// the plan from both, so a home without the plan beside a member with it means that the plan was never complete.
    pub fn judge(was: FoundPartition, home: Option<&FoundPartition>, now: Option<FoundPartition>) -> Self {
        let Some(id) = was.state.plan.as_ref().map(|plan| plan.id) else { return Self::Free(was) };
        let abandoned = home.is_some_and(|home| !home.is_planned(id));
        match now {
            Some(now) if now.is_planned(id) && !abandoned => Self::Waits(was),
            Some(mut now) => {
                now.state.plan = now.state.plan.filter(|plan| plan.id != id);
                if now.state.plan.is_some() { Self::Waits(now) } else { Self::Free(now) }
            }
            None => Self::Waits(was),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::commit::{CommitState, PlanPart};
    use super::super::partition::Delivered;
    use super::*;
    use crate::model::event::Position;

    /// A partition at offset 2 whose records 2 and 3 are in the plan `id`, if there is one.
    fn found(partition: u32, plan: Option<(u64, u32)>) -> FoundPartition {
        let part = |(id, home)| {
            let members: &[i64] = if home == partition { &[0, 1] } else { &[] };
            PlanPart::of_fresh(id, Partition(home), members, &[2, 3])
        };
        let state = CommitState { finished_to: 2, plan: plan.map(part), ..CommitState::default() };
        FoundPartition { partition: Partition(partition), committed: 2, state }
    }

    fn take_over(own: Vec<FoundPartition>, elsewhere: &[FoundPartition]) -> TakeOver {
        let look_up = |p| Ok::<_, ()>(elsewhere.iter().find(|found| found.partition == p).cloned());
        TakeOver::of(own, look_up).unwrap()
    }

    #[test]
    fn the_owner_of_the_home_carries_the_plan_out_for_all_members() {
        let (home, member) = (found(0, Some((7, 0))), found(1, Some((7, 0))));
        let both = vec![home.clone(), member.clone()];
        let alone = take_over(vec![home.clone()], std::slice::from_ref(&member));
        assert_eq!((alone.own.as_slice(), alone.replays.as_slice()), ([home].as_slice(), [both.clone()].as_slice()));
        let mut progress = Progress::default();
        alone.start(&mut progress);
        assert_eq!(progress.partitions().count(), 2, "the other's part is finished in the same transaction");
        let together = take_over(both.clone(), &[]);
        assert_eq!((together.own, together.replays), (both.clone(), vec![both]));
    }

    #[test]
    fn the_owner_of_another_member_waits() {
        let member = found(1, Some((7, 0)));
        let taken = take_over(vec![member.clone(), found(2, None)], &[]);
        assert_eq!(
            (taken.foreign.as_slice(), taken.own.as_slice()),
            ([member].as_slice(), [found(2, None)].as_slice())
        );
        assert_eq!(taken.assigned().len(), 2);
        let mut progress = Progress::default();
        taken.start(&mut progress);
        assert_eq!(progress.partitions().collect::<Vec<_>>(), [Partition(2)]);
    }

    #[test]
    fn a_plan_that_a_member_lacks_is_dropped_everywhere() {
        let (home, member, lacking) = (found(0, Some((7, 0))), found(1, Some((7, 0))), found(1, None));
        for taken in [
            take_over(vec![home.clone()], std::slice::from_ref(&lacking)),
            take_over(vec![home.clone(), lacking], &[]),
            take_over(vec![home.clone()], &[found(1, Some((8, 0)))]),
            take_over(vec![found(0, None), member.clone()], std::slice::from_ref(&member)),
            take_over(vec![home], &[]),
        ] {
            assert!(taken.replays.is_empty() && taken.foreign.is_empty());
            assert!(taken.own.iter().all(|found| found.state.plan.is_none()));
            let mut progress = Progress::default();
            taken.start(&mut progress);
            let first = taken.own[0].partition.0;
            assert_eq!(
                progress.deliver(Position::new(first, 2)),
                Delivered::Fresh,
                "its records are for a window again"
            );
        }
    }

    #[test]
    fn a_plan_that_is_carried_out_before_its_home_comes_is_not_taken_for_an_incomplete_one() {
        let (was, mut now) = (found(1, Some((7, 0))), found(1, None));
        (now.committed, now.state.finished_to) = (4, 4);
        let taken = take_over(vec![was.clone(), found(0, None)], std::slice::from_ref(&now));
        assert_eq!(taken.own, [now, found(0, None)]);
        let next = found(1, Some((8, 2)));
        let taken = take_over(vec![was, found(0, None)], std::slice::from_ref(&next));
        assert_eq!(taken.foreign, [next], "another plan stands there now");
    }

    #[test]
    fn the_newest_levels_are_followed() {
        let last = |partition, finished_to, last: &[u8]| {
            let mut found = found(partition, None);
            (found.state.finished_to, found.state.last) = (finished_to, Some(last.to_vec()));
            found
        };
        let taken = take_over(vec![last(0, 5, &[1]), last(1, 9, &[2]), found(2, None)], &[]);
        assert_eq!(taken.last, Some(vec![2]));
    }

    #[test]
    fn a_foreign_plan_is_waited_for_until_it_is_gone() {
        let (was, home) = (found(1, Some((7, 0))), found(0, Some((7, 0))));
        let judge = |home: Option<&FoundPartition>, now| Foreign::judge(was.clone(), home, now);
        assert_eq!(judge(Some(&home), Some(was.clone())), Foreign::Waits(was.clone()));
        assert_eq!(judge(None, None), Foreign::Waits(was.clone()), "nobody knows");
        assert_eq!(judge(None, Some(was.clone())), Foreign::Waits(was.clone()));
        assert_eq!(judge(Some(&found(0, None)), Some(found(1, None))), Foreign::Free(found(1, None)));
        assert_eq!(judge(Some(&found(0, None)), Some(was.clone())), Foreign::Free(found(1, None)), "never complete");
        let next = found(1, Some((8, 0)));
        assert_eq!(judge(Some(&home), Some(next.clone())), Foreign::Waits(next), "another plan stands there now");
    }
}
