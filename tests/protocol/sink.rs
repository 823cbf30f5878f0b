//! The publisher of an instance, request by request, as `src/kafka/sink` has it: plan, transaction, and what follows from each answer.

use super::broker::{Answer, Commits, Request};
use super::instance::{At, Defects, Instance};
use super::world::{Steps, World};

/// The steps of the release under way.
pub(crate) fn steps(steps: &mut Steps<'_>, i: usize) {
    let instance = &steps.world.instances[i];
    let Some(at) = instance.release.as_ref().map(|release| release.at).filter(|_| instance.up && !instance.early)
    else {
        return;
    };
    match at {
        At::ReplaceForPlan | At::ReplaceForRelease | At::ReplaceAndAsk => return replace(steps, i, at),
        At::Abort => return abort(steps, i),
        _ => {}
    }
    if !instance.is_current() {
        return abort(steps, i);
    }
    match at {
        At::Plan if instance.spent && (instance.slow || !steps.rules.defects.plans_first) => {
            replace(steps, i, At::ReplaceForPlan);
        }
        At::Plan if instance.slow => offsets(steps, i, Instance::planned, At::PlanEnd),
        At::Plan => plan(steps, i),
        At::Produce if instance.spent => replace(steps, i, At::ReplaceForRelease),
        At::Produce => {
            let defects = steps.rules.defects;
            steps.step("produce", i, |next| next.produce(i, defects));
        }
        At::Offsets => offsets(steps, i, Instance::after, At::End),
        _ => end(steps, i, at),
    }
}

/// Sends a request, with the fates that it may have: carried out and answered at once; carried out, answered late, and under way once
/// more; only under way. A request that is carried out and not answered is one of the second kind, except where [`end`] says so.
fn send(
    steps: &mut Steps<'_>,
    i: usize,
    name: [&'static str; 3],
    request: &Request,
    answered: impl Fn(&mut World, Answer, bool),
) {
    steps.step(name[0], i, |next| {
        let answer = next.broker.take(request);
        answered(next, answer, false);
    });
    if steps.world.faults.late == 0 {
        return;
    }
    steps.fault(name[1], i, |next| {
        next.late(request.clone());
        let answer = next.broker.take(request);
        answered(next, answer, true);
    });
    steps.fault(name[2], i, |next| {
        next.late(request.clone());
        answered(next, Answer::Lost, true);
    });
}

/// The plan as a plain commit. One that may come again ends the membership.
fn plan(steps: &mut Steps<'_>, i: usize) {
    let instance = &steps.world.instances[i];
    let (Some(member), Some(commits)) = (instance.member, instance.clone().planned()) else {
        return steps.step("nothing to plan for", i, |next| next.instances[i].release = None);
    };
    let defects = steps.rules.defects;
    let answered = |next: &mut World, answer: Answer, late: bool| {
        let instance = &mut next.instances[i];
        match answer {
            Answer::Done if !late || defects.keeps_membership => instance.planned_now(),
            Answer::Stale => {}
            _ if defects.keeps_membership => {}
            _ => {
                instance.membership.give_up();
                instance.slow = true;
                instance.fenced();
            }
        }
    };
    // The commits of several partitions need not all be stored.
    if steps.world.faults.late > 0 && commits.len() > 1 {
        for stored in &commits {
            let part = Request::Commit { member, commits: vec![stored.clone()] };
            steps.fault("half of the plan is committed, and no answer comes", i, |next| {
                next.faults.late -= 1;
                next.broker.take(&part);
                answered(next, Answer::Lost, true);
            });
        }
    }
    let name =
        ["commit the plan", "commit the plan; the request may come again", "commit the plan; the request is late"];
    send(steps, i, name, &Request::Commit { member, commits }, answered);
}

/// The offsets of a transaction, for the plan or for the release.
fn offsets(steps: &mut Steps<'_>, i: usize, commits: fn(&mut Instance) -> Option<Commits>, then: At) {
    let instance = &steps.world.instances[i];
    let (Some(member), Some(commits)) = (instance.member, commits(&mut instance.clone())) else {
        return steps.step("abort, the assignment is gone", i, |next| next.instances[i].go(At::Abort));
    };
    if steps.rules.defects.commits_outside && then == At::End {
        return steps.step("commit the offsets outside the transaction", i, |next| {
            match next.broker.take(&Request::Commit { member, commits: commits.clone() }) {
                Answer::Done => next.instances[i].go(At::End),
                _ => next.instances[i].go(At::Abort),
            }
        });
    }
    let defects = steps.rules.defects;
    let name =
        ["send the offsets", "send the offsets; the request may come again", "send the offsets; the request is late"];
    let request = Request::Offsets { id: steps.world.names[i], epoch: instance.producer, member, commits };
    send(steps, i, name, &request, |next, answer, late| {
        next.instances[i].spend(late, defects);
        match answer {
            Answer::Done => next.instances[i].go(then),
            Answer::Stale => next.instances[i].go(At::Abort),
            other => next.failed(i, other, defects),
        }
    });
}

/// Commits the transaction of the plan or of the release.
fn end(steps: &mut Steps<'_>, i: usize, at: At) {
    let defects = steps.rules.defects;
    let name = ["commit", "commit; the request may come again", "commit; the request is late"];
    let request = Request::End { id: steps.world.names[i], epoch: steps.world.instances[i].producer, commit: true };
    let answered = |next: &mut World, answer: Answer, late: bool| {
        next.instances[i].spend(late, defects);
        match answer {
            Answer::Done if at == At::PlanEnd => next.instances[i].planned_now(),
            Answer::Done => next.instances[i].published(),
            other => next.failed(i, other, defects),
        }
    };
    send(steps, i, name, &request, answered);
    if steps.world.faults.late > 0 {
        steps.fault("commit; no answer comes", i, |next| {
            next.faults.late -= 1;
            next.broker.take(&request);
            answered(next, Answer::Lost, true);
        });
    }
}

/// Aborts the transaction, whose assignment or membership is gone.
fn abort(steps: &mut Steps<'_>, i: usize) {
    let defects = steps.rules.defects;
    let name = ["abort", "abort; the request may come again", "abort; the request is late"];
    let request = Request::End { id: steps.world.names[i], epoch: steps.world.instances[i].producer, commit: false };
    send(steps, i, name, &request, |next, _, _| {
        let instance = &mut next.instances[i];
        instance.spend(true, defects);
        instance.again();
    });
}

/// A new producer takes the transactional id over, which ends the transaction of the old one.
fn replace(steps: &mut Steps<'_>, i: usize, at: At) {
    let (defects, twins) = (steps.rules.defects, steps.rules.twins);
    if steps.world.instances[i].lost && !defects.takes_after_loss {
        return steps.step("leave the transaction to the owner of the id", i, |next| next.instances[i].release = None);
    }
    if steps.world.starts_beside(i) {
        return;
    }
    let asked = steps.world.instances[i].clone().after();
    let (broker, id) = (&steps.world.broker, steps.world.names[i]);
    let is_readable = asked.iter().flatten().all(|(partition, _)| broker.is_stable_beside(*partition, id));
    if at == At::ReplaceAndAsk && !is_readable && steps.world.instances[i].is_current() {
        return;
    }
    let replaced = |next: &mut World, doubtful: bool| {
        next.broker.take(&Request::Init { id });
        let instance = &mut next.instances[i];
        instance.producer = next.broker.ids[id].epoch;
        (instance.spent, instance.doubtful, instance.taken_again) = (false, instance.doubtful || doubtful, twins);
        let went_through = is_readable && asked.as_ref().is_some_and(|commits| next.broker.has(commits));
        match (at, instance.is_current()) {
            (At::ReplaceAndAsk, _) if went_through && !defects.asks_nothing => instance.published(),
            (At::ReplaceForPlan, true) => instance.go(At::Plan),
            _ => instance.again(),
        }
    };
    steps.step("take the transactional id over", i, |next| replaced(next, false));
    if steps.world.faults.late > 0 {
        steps.fault("take the transactional id over; the request may come again", i, |next| {
            next.late(Request::Init { id });
            replaced(next, true);
        });
    }
}

impl Instance {
    pub(crate) fn go(&mut self, at: At) {
        if let Some(release) = &mut self.release {
            release.at = at;
        }
    }

    fn planned_now(&mut self) {
        self.release.iter_mut().for_each(|release| release.planned = true);
        self.again();
    }

    /// A request that may come again would end the next transaction of this producer.
    fn spend(&mut self, late: bool, defects: Defects) {
        self.spent |= late && !defects.keeps_producer;
    }
}

impl World {
    fn produce(&mut self, i: usize, defects: Defects) {
        let instance = &self.instances[i];
        let Some(release) = &instance.release else { return };
        match self.broker.produce(self.names[i], instance.producer, (release.plan.id, release.records())) {
            Answer::Done => self.instances[i].go(At::Offsets),
            other => self.failed(i, other, defects),
        }
    }
}
