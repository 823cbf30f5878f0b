//! Kafka, exactly once, with Kafka as the only state store: plan, publish, take over.
//!
//! # The protocol
//! 1. Plan. A release is made in memory. Before its first row is produced, its plan (which records, which recoding, which seed) is
//!    committed in the metadata of the offset commits of its partitions. Where later releases depend on the people that this one
//!    shows, a journal entry with the shown positions is written first, and the plan names its offset.
//! 2. Publish. Rows, manifest, dead letters, journal entry and the next offsets are one transaction. Its commit removes the plan.
//! 3. Take over. The next owner of a partition reads its commit. A commit without a plan says where to read on and which records
//!    are held. A commit with a plan says that the transaction may have been tried: the owner reads the same records again, makes
//!    the same bytes and publishes them, before it reads on.
//!
//! ```text
//!   poller thread                     pipeline                      sink
//!   ─────────────                     ────────                      ────
//!   poll ──events──▶ window ──▶ search ──▶ gate ──Release──▶ plan ──▶ transaction
//!     │                                                       │            │
//!     │ rebalance callback: fence, wait for the release       │ commit     │ offsets + rows
//!     │ under way, acknowledge; learn commits, assign         ▼            ▼
//!     └──────── Session { Assignment, Progress } ◀─── what is finished ── broker
//! ```
//! A commit holds the smallest offset still needed. Its metadata says which offsets above it are finished, the last levels, the
//! journal entries, and, while a release is being published, its plan. It has to fit [`MAX_BYTES`](progress::commit::MAX_BYTES).
//!
//! # The states
//! [`Assignment`](assignment::Assignment) has one state per phase, with its data: `Unassigned`, `Assigned` (commits found, not taken
//! up), `Consuming` (records are read, releases published), `Draining` (fenced; the release under way may still end), `GivenUp` (as
//! draining; the group has to be joined anew) and `Stopped`. Each end of the right to publish raises the epoch. A release carries
//! the epoch of its window, and the sink discards a release of another epoch: its records are read again by their owner.
//!
//! How a rebalance ends: [`rebalance`] fences and drains, then hands the commits to the poller; [`source`] sorts them, starts the
//! progress, and sends the pipeline one item that resets it, then the shown records of earlier releases, then the planned releases.
//!
//! Where partitions come and go one by one (`rebalance: cooperative | consumer`), `Consuming` goes on: added partitions are taken
//! over beside the others, and partitions that go leave behind a mark that goes through the pipeline ([`source`], `give_back`).
//!
//! # Who owns an instance's names
//! An instance has a transactional id, and by default the same name in the group (static membership). A second instance with the
//! names wins at once and for good: the first one ends with an error. But a request of the first one's own, delivered late by a bad
//! network, can take either name away as well. Each name tells about the other:
//! - The id is lost. A second instance also joins the group under the name, which the first one learns with its next heartbeat. So an
//!   instance that has sent a request for the id that could still be under way, or whose transaction was aborted for its age,
//!   waits for the heartbeats; if its membership stands, it makes a new producer with the same id, once for each such request
//!   (`sink/publisher.rs`).
//! - The name in the group is lost. An instance joins only after it has taken the id. So if the id's coordinator still takes requests of
//!   the first one's producer, nobody else has joined: it starts over under its names, in the same process (`cli/run.rs`). A producer that was
//!   made within two heartbeats before the loss, or after it, would have taken the id from a second instance: then it ends.
//!   If name and id differ, twice within some minutes is taken for another instance that shares the name but not the id.
//!
//! A name that the user gives under `properties` does as well if it is a part of the id. Without a name that tells it ends.
//!
//! # Two clusters
//! A transaction is in one cluster, so plan and offsets are where the rows are. With `sink.kafka.progress` that is another cluster than
//! the input's, and the group moves with them:
//! ```text
//!   input's cluster                      output's cluster
//!   ───────────────                      ────────────────
//!   people  [0] [1] [2] [3]              NAME-people [0] [1] [2] [3]   no messages; shared out by the group
//!      │     no group, no offsets             │   offsets of `people`, plans, generation
//!      ▼                                      ▼
//!   a consumer assigned by hand ◀── group's consumer ──▶ plan, transaction {rows + offsets}
//! ```
//! The group's members subscribe to *progress topics*: one for each topic of the input, with as many partitions. Who is given partition
//! 2 of `NAME-people` reads partition 2 of `people`, and the offset that is committed for the former is the next one needed of the latter.
//! So the generation that shares partitions out is the one that fences plans and transactions, as in one cluster, and everything above
//! and below holds word for word; a group in the input's cluster could not fence a transaction of the output's. What differs:
//! - Only the records come from the input's cluster. When it is away, nothing is read and the membership stands. When the output's is away,
//!   the session ends as ever.
//! - A partition of the input is read once its progress topic has it. The group is joined when they agree, and what is added later is
//!   made or reported ([`source`], `progress_topics`).
//! - The output's cluster does not see that a topic of the input is deleted. A new one of its name is noticed by an offset behind its
//!   end, or by its consumer; one that has grown past the offset while nobody read it is not, so the progress topic has to go with it.
//!
//! # The seven statements
//! Checked under faults by `tests/kafka/faults.py` with an oracle that shares no code with the service. `tests/protocol` visits every state
//! that two instances can reach in a model of the protocol, and finds its mended defects again.
//! - I1, nothing lost: every input offset is published, suppressed, held or rejected, exactly one of them. The offsets move in the
//!   transaction of the release, never past a record that is still needed; the journal lets an operator check it.
//! - I2, nothing twice: a reader with `read_committed` sees each record at most once. The transactional id and the group's
//!   generation fence every instance but one, and a plan that may be committed twice ends the membership.
//! - I3, nothing unsafe: every release satisfies the policy, also together with earlier ones that its people can be compared with.
//! - I4, replays identical: aborted rows stay readable with `read_uncommitted`, and two generalizations of one person can be
//!   intersected. So every physical copy of a release has the same bytes: the plan is committed first and carried out unchanged.
//! - I5, live: once a fault has healed, new records are published; no open transaction blocks readers. Every call has a time limit,
//!   and a new producer with the same id ends the transactions of the old one.
//! - I6, fail closed: a release that the gate refuses is not sent, and no offset moves past it. A window below k is never flushed.
//! - I7, no leak: no value of a record reaches a log, a metric, a dead letter or an error. This folder knows records by position.
//!
//! # The files
//! - [`progress`], the pure part, without rdkafka: offsets, commits and their text, take-over decisions. [`assignment`] is pure too.
//! - [`session`]: the state that poller, callbacks and sink share, and the right to publish. [`rebalance`]: the callbacks.
//! - [`source`]: the polling thread. [`sink`]: plan and transaction. [`journal`]: shown records.
//! - [`client`]: settings, and logins by token. [`connection`]: patience and errors. [`topics`]: numbers of partitions. `defects`: negative controls.
//! - [`route`]: batches of routed records, by the same transactions. [`probe`]: `validate --connect`. [`generate`]: `generate` into a topic.

pub mod assignment;
pub mod client;
pub mod connection;
mod defects;
pub mod generate;
pub mod journal;
pub mod meter;
pub mod probe;
pub mod progress;
pub mod rebalance;
pub mod route;
pub mod session;
pub mod sink;
pub mod source;
pub mod topics;
