//! The protocol of `src/kafka` (plan, publish, take over) as a model of which every reachable state is visited.
//!
//! Two instances, their group and a network: an instance can die between any two requests, requests are answered late or not at all,
//! and copies of them arrive at any later time. Membership, progress, commits and take-over decisions are the service's own code; the
//! publisher and the brokers are written again here (`sink.rs`, `broker.rs`, `group.rs`).
//!
//! In every state: nothing is lost (I1: what a commit calls finished is published), nothing is published twice (I2), no record is shown in
//! two ways, aborted copies included (I4); and from every state everything can still be published without another fault (I5).
//! Defects that were mended, or that the protocol exists to exclude, are put back one by one, and must be found.
//!
//! The extent: one or two partitions with two records in all, one crash and one late request, or one late request and one session or
//! transaction that the broker gives up. VEILSTREAM_LONG=1 allows all three, and one crash more.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod broker;
mod checker;
mod group;
mod instance;
mod sink;
mod world;

use checker::{Finding, Visited, explore};
use group::Protocol;
use instance::Defects;
use world::{Faults, Rules};

const CLASSIC: Rules = Rules {
    protocol: Protocol::Classic,
    partitions: 1,
    records: 2,
    holds: false,
    faults: Faults { crashes: 1, late: 1, expiries: 0 },
    defects: Defects::NONE,
};
const CONSUMER: Rules = Rules { protocol: Protocol::Consumer, ..CLASSIC };
const EXPIRES: Faults = Faults { crashes: 0, late: 1, expiries: 1 };
const SPLIT: Rules = Rules { partitions: 2, records: 1, ..CLASSIC };

/// Visits everything; nothing must be wrong.
fn holds(mut rules: Rules) {
    if std::env::var_os("VEILSTREAM_LONG").is_some() {
        rules.faults = Faults { crashes: 2, late: 1, expiries: 1 };
    }
    match explore(&rules) {
        Ok(Visited { states, steps, done }) => {
            println!("{states} states, {steps} steps, {done} states at the goal: {rules:?}")
        }
        Err(found) => panic!("{} is broken after {} states:\n{}", found.promise, found.states, found.path.join("\n")),
    }
}

/// With both group protocols the defect breaks one of these promises.
fn breaks(promises: &[&str], defect: impl Fn(&mut Defects)) {
    for mut rules in [CLASSIC, CONSUMER] {
        defect(&mut rules.defects);
        turns_red(promises, rules);
    }
}

fn turns_red(promises: &[&str], rules: Rules) {
    match explore(&rules) {
        Ok(visited) => panic!("the defect is not found in {} states", visited.states),
        Err(Finding { promise, path, states }) => {
            println!("{promise} turned red after {states} states:\n{}", path.join("\n"));
            assert!(promises.contains(&promise), "{promise}:\n{}", path.join("\n"));
        }
    }
}

#[test]
fn classic() {
    holds(CLASSIC);
    holds(Rules { faults: EXPIRES, ..CLASSIC });
}

#[test]
fn consumer() {
    holds(CONSUMER);
    holds(Rules { faults: EXPIRES, ..CONSUMER });
}

#[test]
fn held_records() {
    holds(Rules { holds: true, ..CLASSIC });
}

#[test]
fn two_partitions() {
    holds(SPLIT);
    holds(Rules { protocol: Protocol::Consumer, ..SPLIT });
}

/// Mended once: a request that ends a transaction, or has its offsets, arrives while the next one of its producer is open.
#[test]
fn a_producer_that_is_kept_after_a_late_request() {
    breaks(&["I1", "I2"], |defects| defects.keeps_producer = true);
}

/// Mended once: the commit of a plan arrives when its release has long gone through.
#[test]
fn a_membership_that_is_kept_after_a_late_plan() {
    breaks(&["I2", "I4"], |defects| defects.keeps_membership = true);
}

#[test]
fn rows_before_their_plan() {
    breaks(&["I4"], |defects| defects.plans_nothing = true);
}

#[test]
fn a_replay_with_another_recoding() {
    breaks(&["I4"], |defects| defects.recodes_replays = true);
}

#[test]
fn offsets_outside_the_transaction() {
    breaks(&["I1"], |defects| defects.commits_outside = true);
}

#[test]
fn offsets_that_are_read_too_early() {
    breaks(&["I2"], |defects| defects.reads_unstable = true);
}

#[test]
fn a_transaction_that_is_tried_again_unasked() {
    breaks(&["I2"], |defects| defects.asks_nothing = true);
}

#[test]
fn a_transaction_that_stays_open() {
    breaks(&["I5"], |defects| defects.never_expires = true);
}

#[test]
fn a_partition_whose_plan_another_instance_carries_out() {
    let mut rules = SPLIT;
    rules.defects.ignores_foreign_plans = true;
    turns_red(&["I2", "I4"], rules);
}
