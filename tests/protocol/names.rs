//! The names of an instance: its transactional id and its name in the group, and what it does when it loses one of them.
//!
//! A second instance with the same names has to win, at once and for good; a late request of the instance's own is no second instance.
//! Time is left out, but for one thing: whoever starts takes the id and then joins, and an instance with the same names that waits, or
//! makes a new producer, is taken to be slower than that. Without this a transaction of unknown outcome takes the id from a second owner
//! that has not joined yet, which then ends instead of the first: nothing is lost or doubled, but the first one wins.

use super::broker::Answer;
use super::group::Protocol;
use super::instance::{At, Defects, Instance};
use super::world::{Steps, World};

/// The promise that nobody takes a name back from the instance that has started last.
pub(crate) const OWNER: &str = "a second owner";
/// The promise that late requests of its own end no instance.
pub(crate) const LASTS: &str = "it goes on";

/// The steps of an instance that is about to lose its name in the group, or has lost it.
pub(crate) fn steps(steps: &mut Steps<'_>, i: usize) {
    let (world, defects) = (steps.world, steps.rules.defects);
    let (instance, group, name) = (&world.instances[i], &world.broker.group, world.names[i]);
    if !instance.up || group.protocol != Protocol::Classic {
        return;
    }
    if instance.early && instance.member.is_some() {
        steps.step("take the transactional id, late", i, |next| {
            next.instances[i].early = false;
            next.take_id(i);
        });
    }
    let known = instance.member.is_some_and(|member| group.knows(member));
    if instance.taken_again && known && !world.starts_beside(i) {
        steps.step("two heartbeats are answered", i, |next| next.instances[i].taken_again = false);
    }
    if instance.member.is_some() && !known && !instance.lost && group.members[name].is_some() {
        steps.step("learn that another join has the name", i, |next| {
            next.fence(i);
            next.instances[i].lost = true;
        });
    }
    if instance.lost && instance.release.is_none() {
        steps.step("end, or start over", i, |next| {
            let instance = &next.instances[i];
            let owns_id = instance.producer == next.broker.ids[name].epoch && !instance.early;
            let owns_id = owns_id && (!instance.taken_again || defects.trusts_taken_again);
            if owns_id || defects.starts_over_blindly {
                next.keeps(i, false);
            } else {
                next.ends();
            }
            // Both as a new process: by itself, or because its supervisor starts it again.
            next.instances[i] = Instance::default();
        });
    }
}

impl World {
    /// A transaction whose outcome is not known, or whose producer is not the newest one.
    pub(crate) fn failed(&mut self, i: usize, answer: Answer, defects: Defects) {
        let expired = self.broker.ids[self.names[i]].expired;
        let named = self.broker.group.protocol == Protocol::Classic;
        if answer != Answer::Fenced || expired && !named {
            return self.instances[i].go(At::ReplaceAndAsk);
        }
        let stands = self.instances[i].member.is_some_and(|member| self.broker.group.knows(member));
        let instance = &mut self.instances[i];
        let (current, may_be_ours) = (instance.is_current(), instance.doubtful || expired);
        if may_be_ours && !current {
            instance.release = None;
        } else if may_be_ours && named && (stands && !self.starts_beside(i) || defects.takes_back_blindly) {
            self.keeps(i, true);
            let instance = &mut self.instances[i];
            instance.doubtful &= expired;
            instance.go(At::ReplaceAndAsk);
        } else if !may_be_ours || !named {
            self.ends();
            self.instances[i] = Instance::default();
        }
        // Otherwise the next heartbeat tells.
    }

    /// True if another instance with its names has still to join, or to learn that it lost its name.
    pub(crate) fn starts_beside(&self, i: usize) -> bool {
        let others = self.instances.iter().enumerate().filter(|(at, _)| *at != i && self.names[*at] == self.names[i]);
        let is_known = |other: &Instance| other.member.is_some_and(|member| self.broker.group.knows(member));
        others.into_iter().any(|(_, other)| other.up && !other.lost && !is_known(other))
    }

    /// An instance takes its name in the group back, or its transactional id. The one that has started last must not have it: the name, or
    /// where the id is taken, both.
    fn keeps(&mut self, i: usize, id: bool) {
        let (owner, name) = (&self.instances[self.owner], self.names[i]);
        let has_name = owner.member.is_some_and(|member| self.broker.group.knows(member));
        let has_id = !owner.early && owner.producer == self.broker.ids[name].epoch;
        let is_another = self.owner != i && self.names[self.owner] == name;
        if is_another && owner.up && has_name && (has_id || !id) {
            self.broker.broken = Some(OWNER);
        }
    }

    /// An instance ends by itself.
    fn ends(&mut self) {
        if self.lasts {
            self.broker.broken = Some(LASTS);
        }
    }
}
