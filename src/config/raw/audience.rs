//! The `audiences` section as written.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::model::policy::{Loss, RecodingKind};

/// Readers with a table of their own, made of the rows of every release: no value finer than their levels, without the fields that
/// they must not see. All tables of a release are published together, and put together they say no more than the release itself.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAudience {
    /// Its name, for logs and metrics.
    pub name: String,
    /// With a Kafka sink: the topic of its rows.
    #[serde(default)]
    pub topic: Option<String>,
    /// With a Kafka sink: the topic of its manifests, or `none`. Default: its topic's name and `-manifests`.
    #[serde(default)]
    pub manifests: Option<String>,
    /// With a file sink: the file of its rows, in the format of the sink.
    #[serde(default)]
    pub path: Option<PathBuf>,
    /// With a file sink: the file of its manifests. Default: none.
    #[serde(default)]
    pub manifest: Option<PathBuf>,
    /// The finest level of a quasi-identifier that it sees, such as `{ zip: 2 }`. Default: the level of the release.
    #[serde(default)]
    pub min_levels: BTreeMap<String, u8>,
    /// Sensitive and kept fields that it does not see. Default: none.
    #[serde(default)]
    pub drop: Vec<String>,
    /// `full-domain`: its table has one level per column, although the release (`recoding: local` or `subtree`) has several.
    /// Rows that are coarser somewhere are left out of its table, within the limit of `suppression`. Default: the levels of the
    /// release. Another generalization of the same people is not possible, because a reader could put the two together.
    #[serde(default)]
    pub recoding: Option<RecodingKind>,
    /// With `recoding: full-domain`, what its levels are chosen by: `glm`, `precision`, `dm` or `aecs`. Default: the loss of the
    /// policy if it is one of these, otherwise `glm`.
    #[serde(default)]
    pub loss: Option<Loss>,
    /// How much it wants a quasi-identifier to stay fine, in `score` and `top-down`. The priorities of all audiences and of the
    /// policy are added up, because one generalization serves them all. Default: nothing is added.
    #[serde(default)]
    pub priorities: BTreeMap<String, u32>,
}
