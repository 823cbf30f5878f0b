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
//! transaction that the broker gives up. VEILSTREAM_LONG=1 allows all three, and one crash more. Beside one cluster there are two
//! (`clusters.rs`), and beside instances with names of their own there are two with the same (`names.rs`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod broker;
mod checker;
mod clusters;
mod group;
mod instance;
mod names;
mod sink;
mod world;

use checker::{Finding, Visited, explore};
use group::Protocol;
use instance::Defects;
use names::OWNER;
use world::{Faults, Rules};

const CLASSIC: Rules = Rules {
    protocol: Protocol::Classic,
    partitions: 1,
    records: 2,
    holds: false,
    apart: false,
    twins: false,
    faults: Faults { crashes: 1, late: 1, expiries: 0, outages: 0 },
    defects: Defects::NONE,
};
const CONSUMER: Rules = Rules { protocol: Protocol::Consumer, ..CLASSIC };
const EXPIRES: Faults = Faults { crashes: 0, late: 1, expiries: 1, outages: 0 };
/// Two requests of one transaction.
const TWICE: Faults = Faults { late: 2, ..LATE };
const LATE: Faults = Faults { crashes: 0, late: 1, expiries: 0, outages: 0 };
const APART: Rules = Rules { apart: true, faults: Faults { crashes: 1, late: 1, expiries: 0, outages: 1 }, ..CLASSIC };
const GROWS: Rules = Rules { apart: true, ..SPLIT };
const SPLIT: Rules = Rules { partitions: 2, records: 1, ..CLASSIC };

fn is_long() -> bool {
    std::env::var_os("VEILSTREAM_LONG").is_some()
}

/// Visits everything; nothing must be wrong.
fn holds(mut rules: Rules) {
    if is_long() && rules.faults.late < 2 {
        rules.faults = Faults { crashes: 2, late: 1, expiries: 1, ..rules.faults };
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

/// Input and output in two clusters: the input's is away by itself, and its topic gets a partition.
#[test]
fn two_clusters() {
    for protocol in [Protocol::Classic, Protocol::Consumer] {
        holds(Rules { protocol, ..APART });
        holds(Rules { protocol, faults: Faults { crashes: 1, late: 1, expiries: 0, outages: 0 }, ..GROWS });
    }
}

/// Names that are lost to late requests of one's own: no instance ends by that.
#[test]
fn names_that_are_lost_to_late_requests() {
    holds(Rules { faults: LATE, ..CLASSIC });
    if is_long() {
        holds(Rules { faults: TWICE, ..CLASSIC });
    }
}

/// Two instances with the same names: the one that started last has them.
#[test]
fn a_second_owner() {
    holds(Rules { twins: true, ..CLASSIC });
    if is_long() {
        holds(Rules { twins: true, faults: EXPIRES, ..CLASSIC });
    }
}

/// Found by this model: the offsets of a transaction and its end both come again, and take the next plan out of the commit.
#[test]
fn a_plan_before_the_producer_is_renewed() {
    let mut rules = Rules { faults: TWICE, ..CLASSIC };
    rules.defects.plans_first = true;
    turns_red(&["I2", "I4"], rules);
}

#[test]
fn an_id_that_is_taken_back_from_a_second_owner() {
    let mut rules = Rules { twins: true, ..CLASSIC };
    rules.defects.takes_back_blindly = true;
    turns_red(&[OWNER], rules);
}

#[test]
fn a_name_that_is_taken_back_from_a_second_owner() {
    let mut rules = Rules { twins: true, ..CLASSIC };
    rules.defects.starts_over_blindly = true;
    turns_red(&[OWNER], rules);
}

/// Found by this model: the id is taken from a second owner, and then counts as the first one's own.
#[test]
fn an_id_that_is_taken_again_around_the_loss_of_the_name() {
    let mut rules = Rules { twins: true, ..CLASSIC };
    rules.defects.takes_after_loss = true;
    rules.defects.trusts_taken_again = true;
    turns_red(&[OWNER], rules);
    rules.defects.takes_after_loss = false;
    turns_red(&[OWNER], rules);
}

#[test]
fn a_group_that_is_joined_before_the_id_is_taken() {
    let mut rules = Rules { twins: true, ..CLASSIC };
    rules.defects.joins_early = true;
    turns_red(&[OWNER], rules);
}

#[test]
fn a_group_in_the_cluster_of_the_input() {
    for protocol in [Protocol::Classic, Protocol::Consumer] {
        let mut rules = Rules { protocol, faults: EXPIRES, ..APART };
        rules.defects.fences_nobody = true;
        turns_red(&["I1", "I2"], rules);
    }
}

#[test]
fn a_progress_topic_that_does_not_grow() {
    let mut rules = GROWS;
    rules.defects.grows_nothing = true;
    turns_red(&["I5"], rules);
}

#[test]
fn offsets_that_are_judged_by_the_progress_topic() {
    let mut rules = APART;
    rules.defects.judges_by_progress = true;
    turns_red(&["I5"], rules);
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
