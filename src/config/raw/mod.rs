//! The configuration file, field by field. The comments here are the descriptions in `veilstream schema`.
//!
//! Invariant: every section has a default for each of its fields, so that one bad field never hides the mistakes in
//! the others. To add a criterion, a search parameter or a connector, add a variant or a field here, and its check in
//! `config/policy/` or `config/stream/`; the structural check follows from the schema.

mod audience;
mod criteria;
mod kafka;
mod policy;
mod stream;

use schemars::JsonSchema;
use serde::Deserialize;

pub(crate) use audience::*;
pub(crate) use criteria::*;
pub(crate) use kafka::*;
pub(crate) use policy::*;
pub(crate) use stream::*;

/// A Veilstream configuration. Only `policy` is required. `${NAME}` and `${file:PATH}` are replaced in values (`$$` is
/// a dollar sign); relative paths start at the directory of this file; unknown keys are refused.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "VeilstreamConfiguration", extend("required" = ["policy"]))]
pub(crate) struct RawConfig {
    /// The conditions for every release, and what it may cost.
    pub policy: RawPolicy,
    /// How the best generalization is looked for.
    pub search: RawSearch,
    /// When a window closes, and how the recoding may move from release to release.
    pub window: RawWindow,
    /// Where records come from. Default: `stdio`, one JSON object per line.
    pub source: Option<RawSource>,
    /// Where releases go. Default: `stdio`, one JSON object per line.
    pub sink: Option<RawSink>,
    /// The stage before `run` that keeps people who are alike together, for `veilstream route`. Default: absent, `run` reads the source.
    pub route: Option<RawRoute>,
    /// Readers with tables of their own, made of every release. Not with `stdio`. Default: none.
    pub audiences: Vec<RawAudience>,
    /// Metrics, health and console over HTTP. Default: absent, nothing listens.
    pub http: Option<RawHttp>,
    /// Bounds that keep one bad record or one burst from taking the process down.
    pub limits: RawLimits,
}
