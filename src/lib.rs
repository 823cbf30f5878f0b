//! Veilstream turns a stream of personal records into releases that are safe to share. This page is the map.
//!
//! # The promise
//! 1. Every release satisfies every criterion of the policy, counted on the very rows that are sent. Otherwise nothing is
//!    sent: it fails closed.
//! 2. Each input record ends as exactly one of published, suppressed, held (bounded in time) or rejected. The four counts add
//!    up, always.
//! 3. What leaves says no more than the policy allows: fields that it does not name are dropped, rows stand in the order of what they show, and
//!    logs, errors, dead letters and metrics carry positions and codes, never values.
//!
//! # The walk, and the type at each hop
//! ```text
//! Event ─decode→ Record ─encode→ Row ─window→ ClosedWindow ─frequency store→ Evaluator ─search→ Outcome
//!       ─choose→ Recoding ─generalize→ GeneralizedBatch ─gate→ Release ─sink→ written, or one transaction
//! ```
//! [`pipeline`] is that walk, written once, with a bounded channel at three cuts: source | window, window | search,
//! gate | sink. Only two things travel back: a stop (or a revoked partition), and the pressure of full channels.
//!
//! # Where to read on
//! [`pipeline`], then [`gate`] (the only constructor of [`gate::Release`]; a sink takes nothing else), then [`search`] (how
//! to add a search), then `tests/`.
//!
//! # Vocabulary
//! - Data: [`Schema`](model::schema::Schema) says which fields are read and why ([`Role`](model::schema::Role)); an
//!   [`Event`](model::event::Event) at a [`Position`](model::event::Position) decodes to a [`Record`](model::record::Record),
//!   whose values become [`Code`](model::domain::Code)s of a [`Domain`](model::domain::Domain) in a [`Row`](model::batch::Row).
//! - Generalization: a [`Hierarchy`](model::hierarchy::Hierarchy) has levels; a [`Node`](model::lattice::Node) is one level
//!   per quasi-identifier; the [`Lattice`](model::lattice::Lattice) is all nodes; a
//!   [`Recoding`](model::recoding::Recoding) is a node, or a cut through each hierarchy.
//! - Counting: a class is the rows that share their generalized values; a frequency set holds the classes of a node
//!   ([`frequency`]); its size is distinct subjects. A block is the rows that share the generalized value of one attribute
//!   ([`render`]).
//! - Policy: [`Criterion`](model::policy::Criterion), [`SuppressionLimit`](model::policy::SuppressionLimit),
//!   [`Loss`](model::policy::Loss), all in a [`Policy`](model::policy::Policy).
//! - Search: [`Search`](search::Search), [`Budget`](search::Budget), [`Outcome`](search::Outcome),
//!   [`StopReason`](search::StopReason).
//! - Stream: [`OpenWindow`](window::OpenWindow) closes into a [`ClosedWindow`](window::ClosedWindow); a
//!   [`Sliding`](window::Sliding) one shows itself whole again and again, and the gate counts what a reader can
//!   tell apart who has every [`Snapshot`](gate::Snapshot) before it;
//!   a [`GeneralizedBatch`](generalize::GeneralizedBatch) becomes a [`Release`](gate::Release) or a
//!   [`Refusal`](gate::Refusal).
//!
//! # Invariants
//! - Raw values cannot be printed: `Event`, `Record`, `Value`, `Row` have a hand-written `Debug` and no `Display`.
//! - The core (`model`, `frequency`, `privacy`, `loss`, `search`, `window`, `generalize`, `gate`) does no I/O, is not async and
//!   is told the time.
//! - The gate depends on the model and the criteria; it trusts neither frequency sets nor search.
//! - Only `frequency/store.rs` names dashmap, and no guard leaves it.
//! - A tombstone and the records that it retracts have their outcome in one release, the first whose window closes after it.
//! - A half-filled window below k is never flushed, on a stop neither: its records are held or suppressed by policy.
//!
//! # Who may use whom
//! `tests/tidy.rs` fails on a `use crate::` edge that is not listed here.
//! ```text
//! anonymizer -> encode, failpoint, frequency, gate, generalize, loss, model, privacy, render, search, window
//! cli        -> anonymizer, codec, config, encode, files, gate, generalize, kafka, model, pipeline, plot, privacy, search, shutdown, sink, source, telemetry, window
//! codec      -> model
//! config     -> codec, kafka, model, privacy, search, window
//! encode     -> model
//! failpoint  ->
//! files      ->
//! frequency  -> model
//! gate       -> generalize, model, privacy
//! generalize -> encode, model
//! kafka      -> codec, failpoint, gate, model, sink, source
//! loss       -> frequency, generalize, model
//! model      ->
//! pipeline   -> anonymizer, codec, encode, failpoint, gate, model, privacy, search, shutdown, sink, source, telemetry, window
//! plot       ->
//! privacy    -> model
//! render     -> generalize, model
//! search     -> frequency, loss, model, privacy
//! shutdown   ->
//! sink       -> codec, files, gate, model
//! source     -> codec, model
//! telemetry  -> config, gate, model, plot, privacy, search, window
//! window     -> encode, frequency, model
//! ```

pub use veilstream_core::{
    anonymizer, encode, failpoint, frequency, gate, generalize, loss, model, privacy, render, search, window,
};

pub mod cli;
pub mod codec;
pub mod config;
pub mod files;
pub mod kafka;
pub mod pipeline;
pub mod plot;
pub mod shutdown;
pub mod sink;
pub mod source;
pub mod telemetry;
