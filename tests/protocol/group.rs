//! The group's coordinator, for both protocols: classic, in which all members join again and get a new generation, and KIP-848, in
//! which each member has an epoch of its own and partitions move one by one.

use std::collections::BTreeSet;

use veilstream::model::event::Partition;

use super::broker::INSTANCES;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Protocol {
    /// With names (`group.instance.id`): a member that starts again has its partitions back at once.
    Classic,
    /// KIP-848, without names.
    Consumer,
}

/// A membership as the member knows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Member {
    pub(crate) instance: usize,
    pub(crate) id: u8,
    /// The generation, or the member's epoch.
    pub(crate) epoch: u8,
}

/// A membership as the coordinator knows it.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Known {
    pub(crate) id: u8,
    /// Of this member alone; KIP-848.
    pub(crate) epoch: u8,
    pub(crate) assigned: BTreeSet<Partition>,
    /// It has joined the generation that is being prepared; classic.
    pub(crate) joined: bool,
    /// It does not know what it is assigned.
    pub(crate) untold: bool,
}

#[derive(Clone, Hash, Debug)]
pub(crate) struct Group {
    pub(crate) protocol: Protocol,
    /// The generation, or the group's epoch.
    epoch: u8,
    /// All members are to join again; classic.
    preparing: bool,
    pub(crate) members: [Option<Known>; INSTANCES],
    /// Those that are shared out.
    pub(crate) partitions: u32,
    ids: u8,
}

impl Group {
    pub(crate) fn new(protocol: Protocol, partitions: u32) -> Self {
        Self { protocol, epoch: 0, preparing: false, members: Default::default(), partitions, ids: 0 }
    }

    /// True if a request of this membership is carried out.
    pub(crate) fn accepts(&self, member: Member) -> bool {
        let epoch = |known: &Known| if self.protocol == Protocol::Classic { self.epoch } else { known.epoch };
        let known = self.members[member.instance].as_ref();
        known.is_some_and(|known| known.id == member.id && epoch(known) == member.epoch)
    }

    /// True if the coordinator knows this member, whatever its generation is.
    pub(crate) fn knows(&self, member: Member) -> bool {
        self.members[member.instance].as_ref().is_some_and(|known| known.id == member.id)
    }

    /// A new id for a member.
    pub(crate) fn next_id(&mut self) -> u8 {
        self.ids += 1;
        self.ids
    }

    /// True if this instance can join: without names, the session of its last life has to end first.
    pub(crate) fn can_join(&self, instance: usize) -> bool {
        self.protocol == Protocol::Classic || self.members[instance].is_none()
    }

    /// An instance joins. A named member that comes back to a group at rest has its partitions at once.
    pub(crate) fn join(&mut self, instance: usize, id: u8) {
        let assigned = BTreeSet::new();
        match (self.protocol, &mut self.members[instance]) {
            (Protocol::Classic, Some(known)) if !self.preparing => {
                known.id = id;
                known.untold = true;
            }
            (Protocol::Classic, place) => {
                self.preparing = true;
                *place = Some(Known { id, epoch: 0, assigned, joined: true, untold: false });
            }
            (Protocol::Consumer, place) => {
                self.epoch += 1;
                *place = Some(Known { id, epoch: 0, assigned, joined: false, untold: true });
            }
        }
    }

    /// A member leaves, or is given up.
    pub(crate) fn remove(&mut self, instance: usize) {
        self.members[instance] = None;
        match self.protocol {
            Protocol::Classic if self.members.iter().any(Option::is_some) => self.preparing = true,
            Protocol::Classic => {
                self.preparing = false;
                self.epoch += 1;
            }
            Protocol::Consumer => self.epoch += 1,
        }
    }

    /// True if the member has to give everything back and join again; classic.
    pub(crate) fn calls(&self, instance: usize) -> bool {
        self.preparing && self.members[instance].as_ref().is_some_and(|known| !known.joined)
    }

    /// The member has given everything back and joins again; classic.
    pub(crate) fn rejoin(&mut self, instance: usize) {
        if let Some(known) = &mut self.members[instance] {
            (known.joined, known.untold) = (true, false);
        }
    }

    /// One more partition to share out.
    pub(crate) fn grow(&mut self) {
        self.partitions += 1;
        match self.protocol {
            Protocol::Classic => self.preparing = self.members.iter().any(Option::is_some),
            Protocol::Consumer => self.epoch += 1,
        }
    }

    /// True if all members have joined; classic.
    pub(crate) fn is_complete(&self) -> bool {
        self.preparing && self.members.iter().flatten().all(|known| known.joined)
    }

    /// Ends the preparation: a new generation with its assignment; classic.
    pub(crate) fn complete(&mut self) {
        self.epoch += 1;
        self.preparing = false;
        for instance in 0..INSTANCES {
            let assigned = self.target(instance);
            if let Some(known) = &mut self.members[instance] {
                (known.joined, known.untold, known.assigned) = (false, true, assigned);
            }
        }
    }

    /// The partitions that the member should have: each to the members in turn.
    fn target(&self, instance: usize) -> BTreeSet<Partition> {
        let members: Vec<usize> = (0..INSTANCES).filter(|at| self.members[*at].is_some()).collect();
        let owner = |partition: u32| members.get(partition as usize % members.len().max(1));
        (0..self.partitions)
            .filter(|partition| owner(*partition) == Some(&instance))
            .map(|number| Partition(number.into()))
            .collect()
    }

    /// The partitions that the member has to give back; KIP-848.
    pub(crate) fn excess(&self, instance: usize) -> BTreeSet<Partition> {
        let target = self.target(instance);
        self.members[instance]
            .iter()
            .flat_map(|known| &known.assigned)
            .filter(|p| !target.contains(p))
            .copied()
            .collect()
    }

    /// The member has given partitions back, which brings it to another epoch at the same time; KIP-848.
    pub(crate) fn given_back(&mut self, instance: usize, gone: &BTreeSet<Partition>) {
        if let Some(known) = &mut self.members[instance] {
            known.assigned.retain(|partition| !gone.contains(partition));
            (known.epoch, known.untold) = (known.epoch + 1, true);
        }
        self.beat(instance);
    }

    /// The coordinator's work on a heartbeat: a member with nothing to give back comes to the group's epoch, and gets those partitions of
    /// its target that nobody else has. False if nothing changes; KIP-848.
    pub(crate) fn beat(&mut self, instance: usize) -> bool {
        if !self.excess(instance).is_empty() {
            return false;
        }
        let others = self.members.iter().enumerate().filter(|(at, _)| *at != instance);
        let taken: BTreeSet<Partition> =
            others.flat_map(|(_, known)| known).flat_map(|known| known.assigned.clone()).collect();
        let assigned: BTreeSet<Partition> = self.target(instance).difference(&taken).copied().collect();
        let epoch = self.epoch;
        let Some(known) = &mut self.members[instance] else { return false };
        if known.epoch == epoch && known.assigned == assigned {
            return false;
        }
        (known.epoch, known.assigned, known.untold) = (epoch, assigned, true);
        true
    }

    /// The membership as the member learns it.
    pub(crate) fn membership(&self, instance: usize) -> Option<Member> {
        let known = self.members[instance].as_ref()?;
        let epoch = if self.protocol == Protocol::Classic { self.epoch } else { known.epoch };
        Some(Member { instance, id: known.id, epoch })
    }

    /// Numbers ids and epochs anew. A membership that is not accepted any more never will be.
    pub(crate) fn forget_numbers<'a>(&mut self, members: impl Iterator<Item = &'a mut Member>) {
        let mut epochs: Vec<u8> = self.members.iter().flatten().map(|known| known.epoch).chain([self.epoch]).collect();
        epochs.sort_unstable();
        epochs.dedup();
        let number = |epoch: u8| epochs.iter().position(|known| *known == epoch).map_or(0, |at| at as u8 + 1);
        for member in members {
            let (known, accepted) = (self.knows(*member), self.accepts(*member));
            (member.id, member.epoch) = (u8::from(known), if accepted { number(member.epoch) } else { 0 });
        }
        self.members.iter_mut().flatten().for_each(|known| (known.id, known.epoch) = (1, number(known.epoch)));
        (self.epoch, self.ids) = (number(self.epoch), 1);
    }
}
