//! Everything at one moment, and the steps that lead on: members, pollers, crashes and the network. The publisher's are in `sink`.

use std::collections::BTreeSet;

use veilstream::model::event::Partition;

use super::broker::{Broker, INSTANCES, Request};
use super::checker::{Model, Step};
use super::group::Protocol;
use super::instance::{At, Defects, Instance, Release};
use super::{clusters, names, sink};

/// The faults that may still come.
#[derive(Clone, Copy, Hash, Debug)]
pub(crate) struct Faults {
    pub(crate) crashes: u8,
    /// Requests that are answered late, or not at all, and may be carried out later.
    pub(crate) late: u8,
    /// Sessions and transactions of living instances that the broker gives up.
    pub(crate) expiries: u8,
    /// Times for which the input's cluster is away, where it is another one than the output's.
    pub(crate) outages: u8,
}

/// The extent of a search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) protocol: Protocol,
    pub(crate) partitions: u32,
    pub(crate) records: i64,
    /// Releases may leave a record out, which is held.
    pub(crate) holds: bool,
    /// Input and output are in two clusters.
    pub(crate) apart: bool,
    /// Both instances have the same names: transactional id and name in the group.
    pub(crate) twins: bool,
    pub(crate) faults: Faults,
    pub(crate) defects: Defects,
}

#[derive(Clone, Hash, Debug)]
pub(crate) struct World {
    pub(crate) broker: Broker,
    pub(crate) instances: [Instance; INSTANCES],
    /// Requests that the network may still deliver.
    pub(crate) under_way: Vec<Request>,
    pub(crate) faults: Faults,
    /// By instance, the number of its transactional id and of its name in the group.
    pub(crate) names: [usize; INSTANCES],
    /// The instance that has started last.
    pub(crate) owner: usize,
    /// No instance may end by itself: nobody takes its names but its own late requests.
    pub(crate) lasts: bool,
    /// The input's cluster cannot be reached.
    pub(crate) away: bool,
}

/// The steps that can be taken in a state.
pub(crate) struct Steps<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) world: &'a World,
    steps: Vec<Step<World>>,
}

impl Model for Rules {
    type State = World;

    fn start(&self) -> World {
        let names = if self.twins { [0; INSTANCES] } else { std::array::from_fn(|instance| instance) };
        let one_fault = matches!(self.faults, Faults { crashes: 0, late: 0 | 1, expiries: 0, .. });
        let lasts = self.protocol == Protocol::Classic && !self.twins && one_fault;
        let (instances, under_way, owner, away) = Default::default();
        World { broker: clusters::broker(self), instances, under_way, faults: self.faults, names, owner, lasts, away }
    }

    fn steps(&self, world: &World) -> Vec<Step<World>> {
        let mut steps = Steps { rules: self, world, steps: Vec::new() };
        for instance in 0..INSTANCES {
            steps.lives(instance);
            steps.member(instance);
            match self.protocol {
                Protocol::Classic => steps.classic(instance),
                Protocol::Consumer => steps.consumer(instance),
            }
            steps.poller(instance);
            names::steps(&mut steps, instance);
            sink::steps(&mut steps, instance);
        }
        clusters::steps(&mut steps);
        steps.network();
        steps.steps
    }

    fn broken(&self, world: &World) -> Option<&'static str> {
        world.broker.broken
    }

    fn is_done(&self, world: &World) -> bool {
        world.broker.is_done()
    }
}

impl Steps<'_> {
    /// A step that need not fail.
    pub(crate) fn step(&mut self, name: &'static str, by: usize, change: impl FnOnce(&mut World)) {
        self.push(name, by, false, |next| {
            change(next);
            Some(())
        });
    }

    /// A step that is possible only if `change` says so.
    pub(crate) fn step_if(&mut self, name: &'static str, by: usize, change: impl FnOnce(&mut World) -> Option<()>) {
        self.push(name, by, false, change);
    }

    /// A fault.
    pub(crate) fn fault(&mut self, name: &'static str, by: usize, change: impl FnOnce(&mut World)) {
        self.push(name, by, true, |next| {
            change(next);
            Some(())
        });
    }

    fn push(&mut self, name: &'static str, by: usize, fault: bool, change: impl FnOnce(&mut World) -> Option<()>) {
        let mut next = self.world.clone();
        if change(&mut next).is_some() {
            next.forget_numbers();
            self.steps.push(Step { name, by, fault, next });
        }
    }

    /// An instance starts or dies.
    fn lives(&mut self, i: usize) {
        if self.world.instances[i].up {
            if self.world.faults.crashes > 0 {
                self.fault("crash", i, |next| {
                    next.faults.crashes -= 1;
                    next.instances[i] = Instance::default();
                });
            }
            return;
        }
        let (id, early, twins) = (self.world.names[i], self.rules.defects.joins_early, self.rules.twins);
        let start = |next: &mut World, doubtful| {
            next.instances[i] = Instance { up: true, doubtful, early, ..Instance::default() };
            next.owner = if twins { i } else { 0 };
            if !early {
                next.take_id(i);
            }
        };
        self.step("start", i, |next| start(next, false));
        if self.world.faults.late > 0 {
            self.fault("start; its request may come again", i, |next| {
                next.late(Request::Init { id });
                start(next, true);
            });
        }
    }

    /// Steps of a member that are the same in both protocols.
    fn member(&mut self, i: usize) {
        let (instance, group, name) = (&self.world.instances[i], &self.world.broker.group, self.world.names[i]);
        let alive = instance.member.is_some_and(|member| group.knows(member));
        if group.members[name].is_some() {
            let expire = |next: &mut World| next.broker.group.remove(name);
            if !self.world.is_living(name) {
                self.step("session of a dead member ends", i, expire);
            } else if alive && self.world.faults.expiries > 0 {
                self.fault("session ends", i, |next| {
                    next.faults.expiries -= 1;
                    expire(next);
                });
            }
        }
        if !instance.up || instance.lost {
            return;
        }
        match instance.member {
            None if !instance.draining && group.can_join(name) => {
                self.step("join", i, |next| next.join(i));
                if group.protocol == Protocol::Classic && self.world.faults.late > 0 {
                    self.fault("join; the request may come again", i, |next| {
                        next.late(Request::Join { name });
                        next.join(i);
                    });
                }
            }
            Some(_) if !alive && group.protocol == Protocol::Classic && group.members[name].is_some() => {}
            Some(_) if !alive && !instance.draining => {
                self.step("learn that the session has ended", i, |next| next.fence(i))
            }
            _ => {}
        }
        if instance.release.is_none() && instance.membership.clone().leave() {
            self.step("leave the group", i, |next| {
                let instance = &mut next.instances[i];
                instance.membership.leave();
                instance.membership.fence();
                instance.membership.drained();
                (instance.member, instance.draining) = (None, false);
                instance.leaving.clear();
                next.broker.group.remove(name);
            });
        }
    }

    fn classic(&mut self, i: usize) {
        let (instance, group, name) = (&self.world.instances[i], &self.world.broker.group, self.world.names[i]);
        if i == 0 && group.is_complete() {
            self.step("a new generation", i, |next| next.broker.group.complete());
        }
        if !instance.up || instance.lost {
            return;
        }
        let Some(member) = instance.member else { return };
        if group.calls(name) && group.knows(member) && !instance.draining {
            self.step("hear of the rebalance", i, |next| next.fence(i));
        }
        if instance.draining && instance.release.is_none() {
            self.step("drained", i, |next| {
                let known = next.broker.group.knows(member);
                next.drained(i);
                if known && next.broker.group.calls(name) {
                    next.broker.group.rejoin(name);
                }
            });
        }
        let untold = group.knows(member) && group.members[name].as_ref().is_some_and(|known| known.untold);
        if untold && !instance.draining && instance.release.is_none() {
            self.learn(i, |next| {
                let instance = &mut next.instances[i];
                instance.membership.fence();
                instance.membership.drained();
            });
        }
    }

    fn consumer(&mut self, i: usize) {
        let (instance, group) = (&self.world.instances[i], &self.world.broker.group);
        let Some(member) = instance.member.filter(|_| instance.up) else { return };
        if instance.draining && instance.release.is_none() {
            let excess = group.excess(i);
            let stays: BTreeSet<Partition> = instance.assigned.difference(&excess).copied().collect();
            self.step("drained", i, |next| {
                let known = next.broker.group.knows(member);
                next.drained(i);
                if known {
                    // Only partitions that come are told: those that stay are not told again.
                    next.instances[i].assigned = stays;
                    next.broker.group.given_back(i, &excess);
                }
            });
        }
        if !group.knows(member) {
            return;
        }
        let excess = group.excess(i);
        let idle = instance.release.is_none() && instance.reading.replays.is_empty();
        if !instance.leaving.is_empty() && instance.reads() && idle {
            self.step("given back", i, |next| {
                let gone = std::mem::take(&mut next.instances[i].leaving);
                next.instances[i].membership.give_back(&gone);
                next.instances[i].assigned.retain(|partition| !gone.contains(partition));
                next.broker.group.given_back(i, &gone);
            });
        }
        let untold = group.members[i].as_ref().is_some_and(|known| known.untold);
        if !excess.is_empty() && instance.leaving.is_empty() && !instance.draining && !untold {
            self.step("partitions are taken away", i, |next| {
                let stays = next.instances[i].assigned.len() > excess.len();
                if next.instances[i].membership.is_partial(&excess, stays) {
                    next.instances[i].start_giving_back(excess.clone());
                } else {
                    next.fence(i);
                }
            });
        }
        self.step_if("heartbeat", i, |next| next.broker.group.beat(i).then_some(()));
        if untold && !instance.draining {
            self.learn(i, |_| ());
        }
    }

    /// The member learns its assignment and the commits of the partitions that are new to it.
    fn learn(&mut self, i: usize, before: impl FnOnce(&mut World)) {
        let (reads_unstable, name) = (self.rules.defects.reads_unstable, self.world.names[i]);
        if self.world.away {
            return;
        }
        self.step_if("learn the assignment", i, |next| {
            before(next);
            let Some(known) = &mut next.broker.group.members[name] else { return None };
            known.untold = false;
            let assigned = known.assigned.clone();
            next.instances[i].member = next.broker.group.membership(name);
            let had = match next.broker.group.protocol {
                Protocol::Classic => BTreeSet::new(),
                Protocol::Consumer => next.instances[i].assigned.clone(),
            };
            let fresh: Vec<Partition> = assigned.difference(&had).copied().collect();
            if !fresh.iter().all(|partition| next.broker.is_stable(*partition) || reads_unstable) {
                return None;
            }
            let instance = &mut next.instances[i];
            instance.assigned = assigned;
            let found = fresh.iter().map(|p| next.broker.found(*p, instance.membership.committed_before(*p)));
            let found: Option<Vec<_>> = found.collect();
            if found.is_none() {
                next.broker.broken = Some("a commit cannot be taken up");
            }
            match next.broker.group.protocol {
                Protocol::Classic => instance.membership.assigned(Ok(found?)),
                Protocol::Consumer if fresh.is_empty() => {}
                Protocol::Consumer => instance.membership.added(Ok(found?)),
            }
            Some(())
        });
    }

    /// What the poller does with its assignment.
    fn poller(&mut self, i: usize) {
        let (instance, defects, records) = (&self.world.instances[i], self.rules.defects, self.rules.records);
        if !instance.up || self.world.away {
            return;
        }
        self.step_if("take partitions up", i, |next| next.instances[i].take_up(&next.broker, defects));
        if !instance.reads() {
            return;
        }
        self.step_if("look after a foreign plan", i, |next| next.instances[i].look(&next.broker));
        if instance.release.is_some() {
            return;
        }
        if !instance.reading.replays.is_empty() {
            self.step_if("carry a plan out again", i, |next| {
                let id = defects.recodes_replays.then(|| next.new_plan());
                next.instances[i].replay(id)
            });
            return;
        }
        let own = instance.reading.own.len();
        for (first, second) in (0..=records).flat_map(|first| (0..=records).map(move |second| (first, second))) {
            if own < 2 && second > 0 || own < 1 && first > 0 {
                continue;
            }
            for leaves_one_out in [false, true].into_iter().take(1 + usize::from(self.rules.holds)) {
                self.step_if("close a window", i, |next| {
                    let id = next.new_plan();
                    next.instances[i].close(id, &[first, second], leaves_one_out, records)?;
                    if defects.plans_nothing {
                        next.instances[i].release.as_mut()?.planned = true;
                        next.instances[i].again();
                    }
                    Some(())
                });
            }
        }
    }

    /// Late requests arrive; transactions expire.
    fn network(&mut self) {
        for at in 0..self.world.under_way.len() {
            let name = match &self.world.under_way[at] {
                Request::Commit { .. } => "a late commit arrives",
                Request::Init { .. } => "a late request for the transactional id arrives",
                Request::Join { .. } => "a late join arrives",
                Request::Offsets { .. } => "late offsets of a transaction arrive",
                Request::End { commit: true, .. } => "a late commit of a transaction arrives",
                Request::End { commit: false, .. } => "a late abort arrives",
            };
            self.fault(name, 9, |next| {
                let request = next.under_way.remove(at);
                next.broker.take(&request);
            });
        }
        for id in 0..INSTANCES {
            let transactional = &self.world.broker.ids[id];
            if transactional.open.is_none() {
                continue;
            }
            // Late offsets can open one that the instance knows nothing of.
            let begun = |release: &Release| !matches!(release.at, At::Plan | At::Produce);
            let owners = self.world.instances.iter().zip(self.world.names).filter(|(_, name)| *name == id);
            let idle = !owners
                .filter(|(instance, _)| instance.producer == transactional.epoch)
                .any(|(instance, _)| instance.release.as_ref().is_some_and(begun));
            if idle && !self.rules.defects.never_expires {
                self.step("an open transaction expires", id, |next| next.broker.expire(id));
            } else if !idle && self.world.faults.expiries > 0 {
                self.fault("a transaction takes too long", id, |next| {
                    next.faults.expiries -= 1;
                    next.broker.expire(id);
                });
            }
        }
    }
}

impl World {
    /// A copy of a request stays in the network.
    pub(crate) fn late(&mut self, request: Request) {
        self.faults.late -= 1;
        self.under_way.push(request);
    }

    fn join(&mut self, i: usize) {
        let (id, name) = (self.broker.group.next_id(), self.names[i]);
        self.broker.group.join(name, id);
        self.instances[i].assigned.clear();
        self.instances[i].member = self.broker.group.membership(name);
    }

    /// An instance takes its transactional id over.
    pub(crate) fn take_id(&mut self, i: usize) {
        self.broker.take(&Request::Init { id: self.names[i] });
        self.instances[i].producer = self.broker.ids[self.names[i]].epoch;
    }

    /// True if the member of this name is an instance that knows of it.
    fn is_living(&self, name: usize) -> bool {
        let own = self.instances.iter().zip(self.names).filter(|(_, own)| *own == name);
        own.filter_map(|(instance, _)| instance.member).any(|member| self.broker.group.knows(member))
    }

    pub(crate) fn fence(&mut self, i: usize) {
        let instance = &mut self.instances[i];
        instance.membership.fence();
        instance.draining = true;
        instance.fenced();
    }

    /// The smallest number that no plan has.
    fn new_plan(&self) -> u64 {
        let mut known = self.broker.plans();
        known.extend(self.instances.iter().flat_map(Instance::plans));
        for request in &self.under_way {
            if let Request::Commit { commits, .. } | Request::Offsets { commits, .. } = request {
                known.extend(commits.iter().flat_map(|(_, commit)| &commit.state.plan).map(|plan| plan.id));
            }
        }
        (1..).find(|id| !known.contains(id)).unwrap_or_default()
    }

    /// Numbers members and epochs anew, because only their equality matters, and drops late requests that can change nothing any
    /// more. Otherwise the same states would come again under other numbers.
    fn forget_numbers(&mut self) {
        if !self.instances[self.owner].up {
            self.owner = 0;
        }
        let World { broker, instances, under_way, names, .. } = self;
        under_way.retain(|request| match request {
            Request::Commit { member, .. } => broker.group.accepts(*member),
            Request::Init { .. } | Request::Join { .. } => true,
            Request::Offsets { id, epoch, .. } | Request::End { id, epoch, .. } => broker.ids[*id].epoch == *epoch,
        });
        for (i, instance) in instances.iter_mut().enumerate() {
            instance.producer = u8::from(instance.up && instance.producer == broker.ids[names[i]].epoch);
        }
        broker.ids.iter_mut().for_each(|id| id.epoch = 1);
        let requests = under_way.iter_mut().flat_map(Request::member);
        broker.group.forget_numbers(instances.iter_mut().flat_map(|instance| &mut instance.member).chain(requests));
        for request in under_way {
            if let Request::Offsets { epoch, .. } | Request::End { epoch, .. } = request {
                *epoch = 1;
            }
        }
    }

    /// Nothing of the old assignment is under way any more.
    fn drained(&mut self, i: usize) {
        let instance = &mut self.instances[i];
        instance.membership.drained();
        instance.draining = false;
        instance.assigned.clear();
        if !instance.member.is_some_and(|member| self.broker.group.knows(member)) {
            instance.member = None;
        }
    }
}
