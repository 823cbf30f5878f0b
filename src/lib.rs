//! Veilstream turns a stream of personal records into releases that are safe to share. This page is the map.
//!
//! # The promise
//! 1. Every release satisfies every criterion of the policy, counted on the very rows that are sent. Otherwise nothing is
//!    sent: it fails closed.
//! 2. Each input record ends as exactly one of published, suppressed, held (bounded in time) or rejected. The four counts
//!    always add up.
//! 3. A release says no more than the policy allows: fields that the policy does not name are dropped, the order of the rows
//!    follows from the published rows alone, and logs, errors, dead letters and metrics carry positions and codes, never values.
//!
//! # The walk, and the type at each hop
//! ```text
//! Event ─decode→ Record ─encode→ Row ─window→ ClosedWindow ─frequency store→ Evaluator ─search→ Outcome
//!       ─choose→ Recoding ─generalize→ GeneralizedBatch ─gate→ Release ─sink→ written, or one transaction
//! ```
//! [`pipeline`] is that walk, written once, with a bounded channel at three cuts: source | window, window | search,
//! gate | sink. Batches of events in the first channel are decoded on several cores; the window thread takes them in their order and
//! encodes them, so that codes and releases are the same on any number of cores. Only two things travel back: a stop (or a revoked
//! partition), and the pressure of full channels.
//!
//! # Where to read on
//! [`pipeline`], then [`gate`] (the only constructor of [`gate::Release`]; a sink takes nothing else), then [`search`] (how
//! to add a search), then `tests/`.
//!
//! # Where things are, and where a new one goes
//! - A class is counted in [`frequency`] for the search, and again in [`gate`], which counts the generalized rows themselves.
//! - A rebalance ends in [`kafka`]: a revocation raises the fence, waits until nothing of the old assignment is being
//!   published, and only then is acknowledged; the rows of the revoked partitions leave their windows. On assignment, reading
//!   resumes from the committed offset and its metadata.
//! - A recoding becomes classes in `anonymizer/draft/grouping.rs` only; [`local`] learns and applies schedules.
//! - A search: a file below `search/exact`, `search/evolutionary` or `search/greedy`, and a variant of [`search::Algorithm`].
//! - A criterion: a file in `privacy/`, a variant of [`Criterion`](model::policy::Criterion), and a variant of `RawCriterion`
//!   in `config/raw/criteria.rs` with its check in `config/policy/criteria.rs`.
//! - A loss: a file in `loss/` and a variant of [`Loss`](model::policy::Loss).
//! - A codec: a file in `codec/` that implements [`Decode`](codec::Decode) and [`Encode`](codec::Encode), and a variant of
//!   [`Format`](codec::Format) for files or of `MessageFormat` in [`kafka`] for messages. Schemas of messages meet in
//!   `codec/schemas/`, by the types of `codec/kind.rs`.
//! - A metric: an entry in the `metrics!` list of `telemetry/metrics.rs`, set by a method of
//!   [`Telemetry`](telemetry::Telemetry).
//! - A word that gives a field's meaning away: a list in `profile/names.rs`; a hierarchy that `init` proposes: a variant of
//!   `HierarchyProposal` in `profile/hierarchies.rs`.
//! - A key of the configuration: a field in `config/raw/`, checked and built in `config/policy/` or `config/stream/`.
//!
//! # Glossary
//! Words that cross rooms. Each has one meaning, and `tests/tidy.rs` refuses two public types of one name.
//! - *event*: the bytes of one message or line, with its [`Position`](model::event::Position); decodes to a record.
//! - *record*: the values of the fields that the [`Schema`](model::schema::Schema) names, each in a
//!   [`Role`](model::schema::Role).
//! - *path*: the place of a field in a record, and its name; [`Path`](model::schema::Path).
//! - *envelope*: the part of a message around the row, in change data capture; [`Envelope`](model::schema::Envelope).
//! - *row*: a record as codes; a [`Code`](model::domain::Code) is the number of a value in its [`Domain`](model::domain::Domain).
//! - *subject*: the person that a record is about. The size of a class is its number of distinct subjects.
//! - *quasi-identifier*: a field that identifies people in combination with others; generalized before it is published.
//! - *sensitive field*: a field that the criteria protect; published as it is.
//! - *kept field*: a field that passes through unchanged, unless it identifies people.
//! - *hierarchy*: the values of one attribute on levels; level 0 is the value itself, the top is one value for everything.
//! - *alternatives*: hierarchies of one attribute that do not nest in each other, such as weeks beside months; each is a *chain* of
//!   levels, and a level has one number over all chains; [`Alternatives`](model::hierarchy::Alternatives).
//! - *node*: one level per quasi-identifier; all nodes are the [`Lattice`](model::lattice::Lattice).
//! - *cut*: one generalized value per leaf of a hierarchy, on levels that may differ.
//! - *recoding*: how a release is generalized: by a node (`full-domain`), by one cut per quasi-identifier (`subtree`), or by a
//!   schedule (`local`).
//! - *schedule*: nodes from fine to coarse; a record takes the levels of the first node at which its class satisfies the policy.
//!   [`Schedule`](model::schedule::Schedule) is learnt from earlier windows and named in each release.
//! - *regions*: the classes that a schedule makes of a window, with a label for each attribute; [`Regions`](local::Regions).
//! - *generalized value*: a code at one level of a hierarchy; [`GeneralizedValue`](model::recoding::GeneralizedValue).
//! - *class*: the rows that share all their generalized values. *Block*: the rows that share that of one attribute.
//! - *frequency set*: the classes of a node with their sizes. *Rollup*: a coarser set added up from a finer one.
//! - *question*: the counts of a node that a search asks the frequency store for. *Answer*: those counts, or the classes where
//!   the counts are not kept.
//! - *criterion*: a condition that every class must meet. *Policy*: all criteria, fields, limits and the loss.
//! - *loss*: the information that a recoding gives up; most metrics lie in [0, 1].
//! - *search*: looks for the node of least loss that satisfies the policy, within a [`Budget`](search::Budget).
//! - *evaluation*: the loss of a node and whether it satisfies the policy. *Check*: counting a node for an evaluation.
//! - *front*: the nodes that no other node beats in every objective. *Preferred point*: the one that is chosen from it.
//! - *window*: the records that one release is made of. *Tumbling*: each record is in one window. *Sliding*: one window that
//!   moves on; its releases are *snapshots*, and a slide is one move.
//! - *changelog*: releases of a sliding window that say which rows come to its snapshot and which leave; *base*: the release whose
//!   snapshot is changed. [`Accepted`](gate::Accepted): the rows of that snapshot, as the gate remembers them.
//! - *suppressed*: left out for good. *Held*: waits for a later release. *Rejected*: unreadable or without a place.
//! - *gate*: counts the rows that will be sent; turns a batch into a [`Release`](gate::Release) or a
//!   [`Refusal`](gate::Refusal).
//! - *audience*: a group of readers with a table of its own. *View*: that table, made of the rows of a release at coarser levels.
//! - *manifest*: the public description of a release. *Journal*: the operator's list of records that a release finished.
//! - *plan*: the spans, recoding and seed of a release, committed before its first row is produced.
//! - *replay*: making a planned release again after a crash, with the same bytes.
//! - *progress topic*: in the output's cluster, the place of a topic of an input in another cluster: shared out by the group, without
//!   messages.
//! - *span*: consecutive offsets of one partition. *Runs*: a set of offsets of one partition, as spans. *Spans*: runs by
//!   partition. *Fence*: stops the rows of a revoked partition.
//! - *commit space*: the bytes of commit metadata that plans and waiting records must fit;
//!   [`CommitSpace`](model::release::plan::CommitSpace).
//! - *usefulness*: what readers can still get right from a release; for the holder of the data, never in a manifest. The console
//!   compares it for all recodings on a [`WindowSample`](usefulness::recodings::WindowSample).
//! - *tombstone*: a message without a payload; retracts the waiting records of its key or its subject.
//! - *lane*: the windows of one scope, of a whole instance or of one partition.
//! - *outlet*: a partition of the topic that `route` writes. *District*: the part of the space of generalized values whose records go to
//!   one outlet; [`DistrictMap`](district::DistrictMap). *Home*: the outlet of a person.
//! - *fallback*: the treatment of a value that has no place in its hierarchy.
//! - *table profile*: what the fields of an input are like and how far they single people out, before there is a policy.
//! - *bound*: the least or greatest value of an objective that `search.prefer` asks for.
//! - *problem*: a mistake in a configuration with its line. *Warning*: a setting that is valid but rarely intended.
//!
//! # Invariants
//! - Raw values cannot be printed: `Event`, `Record`, `Value`, `Row` have a hand-written `Debug` and no `Display`.
//! - The core (`model`, `encode`, `district`, `window`, `frequency`, `privacy`, `loss`, `search`, `local`, `generalize`, `render`, `gate`,
//!   `anonymizer`, `usefulness`) is the package `veilstream-core`. It does no I/O, is not async and is told the time.
//! - The gate depends on the model and the criteria; it trusts neither frequency sets nor search.
//! - Only `frequency/store.rs` names dashmap, and no guard leaves it.
//! - A tombstone and the records that it retracts have their outcome in one release, the first whose window closes after it.
//! - A window with fewer than k people is never published, not even on a stop: its records are held or suppressed by policy.
//!
//! # Who may use whom
//! `tests/tidy.rs` fails on a `use crate::` edge that is not listed here.
//! ```text
//! anonymizer -> encode, failpoint, frequency, gate, generalize, local, loss, model, privacy, render, search, window
//! cli        -> anonymizer, codec, config, encode, files, gate, generalize, kafka, model, pipeline, plot, privacy, profile, route, search, shutdown, sink, source, telemetry, usefulness, window
//! codec      -> model
//! config     -> codec, kafka, model, privacy, search, window
//! district   -> encode, frequency, model, privacy, search
//! encode     -> model
//! failpoint  ->
//! files      ->
//! frequency  -> model
//! gate       -> generalize, model, privacy
//! generalize -> encode, model
//! kafka      -> codec, district, failpoint, gate, model, sink, source
//! local      -> generalize, model, privacy
//! loss       -> frequency, generalize, model
//! model      ->
//! pipeline   -> anonymizer, codec, encode, failpoint, gate, model, privacy, search, shutdown, sink, source, telemetry, usefulness, window
//! plot       ->
//! privacy    -> model
//! profile    -> codec, model, source
//! render     -> generalize, model
//! route      -> codec, district, kafka, model, shutdown, sink, source, telemetry
//! search     -> frequency, loss, model, privacy
//! shutdown   ->
//! sink       -> codec, files, gate, model
//! source     -> codec, model
//! telemetry  -> config, gate, kafka, model, plot, privacy, search, usefulness, window
//! usefulness -> anonymizer, encode, gate, generalize, local, model, privacy, search, window
//! window     -> encode, frequency, model
//! ```

pub use veilstream_core::{
    anonymizer, district, encode, failpoint, frequency, gate, generalize, local, loss, model, privacy, render, search,
    usefulness, window,
};

pub mod cli;
pub mod codec;
pub mod config;
pub(crate) mod files;
pub mod kafka;
pub mod pipeline;
pub(crate) mod plot;
pub(crate) mod profile;
pub mod route;
pub mod shutdown;
pub mod sink;
pub mod source;
pub mod telemetry;
