//! Input and output in two clusters (`sink.kafka.progress`): the group shares out progress topics beside the output, and the records come
//! from a cluster that can be away by itself.
//!
//! Everything else is as in one cluster, because group, offsets, plans and transactions are in the output's. A progress topic begins with
//! one partition less than its topic of the input, and an instance lets it grow.

use super::broker::Broker;
use super::group::Group;
use super::world::{Rules, Steps};

/// The brokers at the start.
pub(crate) fn broker(rules: &Rules) -> Broker {
    let shared_out = rules.partitions - u32::from(rules.apart && rules.partitions > 1);
    let mut broker = Broker::new(Group::new(rules.protocol, shared_out), rules.partitions, rules.records);
    broker.fences_nobody = rules.defects.fences_nobody;
    if rules.defects.judges_by_progress {
        broker.end = 0;
    }
    broker
}

/// What happens to the clusters.
pub(crate) fn steps(steps: &mut Steps<'_>) {
    let (rules, world) = (steps.rules, steps.world);
    if !rules.apart {
        return;
    }
    if world.away {
        steps.step("the input's cluster is back", 9, |next| next.away = false);
        return;
    }
    if world.faults.outages > 0 {
        steps.fault("the input's cluster goes away", 9, |next| {
            next.faults.outages -= 1;
            next.away = true;
        });
    }
    let lacks = world.broker.group.partitions < world.broker.partitions;
    if let Some(i) = world.instances.iter().position(|instance| instance.up)
        && lacks
        && !rules.defects.grows_nothing
    {
        steps.step("let the progress topic grow", i, |next| next.broker.group.grow());
    }
}
