//! The criteria of the `privacy` list as written.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::file::scalar::{RawScalar, RawShare};

/// A privacy criterion.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
pub(crate) enum RawCriterion {
    /// Every class holds at least this many distinct subjects: a number, or `{ k: 10, over: [age, zip] }` for the classes over some
    /// quasi-identifiers; several times if there are several outside sources.
    #[serde(rename = "k-anonymity")]
    KAnonymity(RawKAnonymity),
    /// Every class is diverse in a sensitive field; records without a value add nothing to it.
    #[serde(rename = "l-diversity")]
    LDiversity(RawLDiversity),
    /// In every class a sensitive field is distributed nearly as in the whole release; no value counts as one more value.
    #[serde(rename = "t-closeness")]
    TCloseness(RawTCloseness),
    /// Every class has at least p different values of a sensitive field.
    #[serde(rename = "p-sensitive")]
    PSensitive(RawPSensitive),
    /// Every class holds at least k subjects, and no sensitive value more than a share of them; those without a value are
    /// among them.
    #[serde(rename = "alpha-k")]
    AlphaK(RawAlphaK),
    /// A reader who knows at most l quasi-identifiers finds at least k subjects, and no sensitive value with more confidence
    /// than c.
    #[serde(rename = "lkc")]
    Lkc(RawLkc),
    /// No confidential sentence follows about anybody. A record without a value refutes no sentence.
    #[serde(rename = "confidential")]
    Confidential(RawConfidential),
    /// The mean security by the sentences of `confidential` reaches this share.
    #[serde(rename = "min-security")]
    MinSecurity(RawShare),
}

/// A class size. More than ten million can only be a typing error: no window holds that many people.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct RawK(#[schemars(range(min = 1, max = 10_000_000))] pub u32);

/// A class size, of all quasi-identifiers or of some.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum RawKAnonymity {
    /// Of the classes of the release.
    K(RawK),
    /// Of the classes over some quasi-identifiers.
    Over(RawKOver),
}

impl RawKAnonymity {
    /// The class size that is asked of the classes of the release, if any.
    pub(crate) fn of_classes(&self) -> Option<u32> {
        match self {
            Self::K(k) | Self::Over(RawKOver { k, over: None }) => Some(k.0),
            Self::Over(_) => None,
        }
    }
}

/// A class size, and over which quasi-identifiers.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawKOver {
    /// The smallest class, in distinct subjects.
    pub k: RawK,
    /// The quasi-identifiers of an outside source: asked of everybody who looks alike in these. Default: all.
    #[serde(default)]
    pub over: Option<Vec<String>>,
}

/// l-diversity of one sensitive field.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawLDiversity {
    /// The field; must be listed under `sensitive`.
    pub field: String,
    /// The parameter l; above 1, and whole unless the variant is `entropy`.
    #[schemars(extend("exclusiveMinimum" = 1))]
    pub l: f64,
    /// How diversity is measured. Default: `distinct`.
    #[serde(default)]
    pub variant: RawVariant,
    /// The factor c of `recursive`; positive. Required there, meaningless elsewhere.
    #[serde(default)]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub c: Option<f64>,
    /// The quasi-identifiers of an outside source: asked of everybody who looks alike in these. Default: all.
    #[serde(default)]
    pub over: Option<Vec<String>>,
}

/// How diversity is measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawVariant {
    /// At least l different values.
    #[default]
    Distinct,
    /// Entropy of at least log l.
    Entropy,
    /// The most frequent value is rarer than c times the tail from the l-th on.
    Recursive,
}

/// t-closeness of one sensitive field.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawTCloseness {
    /// The field; must be listed under `sensitive`.
    pub field: String,
    /// The greatest distance between a class and the release; below 1.
    pub t: RawShare,
    /// How far apart two values are. Default: `equal`.
    #[serde(default)]
    pub distance: RawDistance,
    /// With `ordered`: the values from least to greatest. Default: the values are numbers. A class with a value that has no
    /// place, or without a value, fails.
    #[serde(default)]
    pub order: Option<Vec<RawScalar>>,
}

/// How far apart two sensitive values are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawDistance {
    /// Any two values are equally far apart.
    #[default]
    Equal,
    /// By rank, of the values that occur.
    Ordered,
    /// By the level of the nearest common ancestor in the hierarchy of the sensitive field.
    Hierarchical,
}

/// p-sensitivity of one sensitive field.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawPSensitive {
    /// The field; must be listed under `sensitive`.
    pub field: String,
    /// How many different values; 2 or more.
    #[schemars(range(min = 2, max = 10_000_000))]
    pub p: u32,
    /// The quasi-identifiers of an outside source: asked of everybody who looks alike in these. Default: all.
    #[serde(default)]
    pub over: Option<Vec<String>>,
}

/// Class size and share of one sensitive field.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAlphaK {
    /// The field; must be listed under `sensitive`.
    pub field: String,
    /// The greatest share of one value in a class; above 0 and below 1.
    pub alpha: RawShare,
    /// The smallest class, in distinct subjects.
    pub k: RawK,
    /// The quasi-identifiers of an outside source: asked of everybody who looks alike in these. Default: all.
    #[serde(default)]
    pub over: Option<Vec<String>>,
}

/// The limits for a reader who knows few attributes.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawLkc {
    /// The number of quasi-identifiers that are known; 1 or more. Every set of that size is counted for every release, at most 5,000 of
    /// them; with a `subject` the smaller sets as well.
    #[schemars(range(min = 1))]
    pub l: u32,
    /// The smallest class, in distinct subjects.
    pub k: RawK,
    /// The greatest confidence in one sensitive value; above 0, and 1 to ask for none.
    pub c: RawShare,
    /// The fields whose values are protected. Default: all that are listed under `sensitive`.
    #[serde(default)]
    pub fields: Option<Vec<String>>,
}

/// Sentences that must not follow about anybody.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawConfidential {
    /// The sentences, at most 64 in all criteria together.
    #[schemars(length(min = 1))]
    pub sentences: Vec<RawSentence>,
}

/// One sentence: a condition, for whom it is confidential, and how bad it is if it becomes known.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawSentence {
    /// Its name in reports. Default: its number.
    pub name: Option<String>,
    /// A sensitive or kept field; with `equals` or `in`.
    pub field: Option<String>,
    /// The field has this value.
    pub equals: Option<RawScalar>,
    /// The field has one of these values.
    #[serde(rename = "in")]
    pub values: Option<Vec<RawScalar>>,
    /// This does not hold.
    pub not: Option<Box<RawCondition>>,
    /// All of these hold.
    pub all: Option<Vec<RawCondition>>,
    /// At least one of these holds.
    pub any: Option<Vec<RawCondition>>,
    /// For which records it is confidential; may name `private` fields, such as consent. Default: for all.
    pub when: Option<RawCondition>,
    /// How bad it is if it becomes known, relative to the other sentences about the same record; from 0.000001 to 1000000.
    /// Default: 1.
    #[schemars(range(min = 0.000_001, max = 1_000_000))]
    pub damage: Option<f64>,
    /// How likely it is in the population, above 0 and below 1: a class that makes it no likelier than that carries no risk.
    /// Default: how often it holds in the release.
    pub prior: Option<RawShare>,
}

/// A condition on one record: `{ field: x, equals: 1 }`, `{ field: x, in: [1, 2] }`, `{ not: .. }`, `{ all: [..] }` or
/// `{ any: [..] }`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawCondition {
    /// A sensitive or kept field; with `equals` or `in`.
    pub field: Option<String>,
    /// The field has this value.
    pub equals: Option<RawScalar>,
    /// The field has one of these values.
    #[serde(rename = "in")]
    pub values: Option<Vec<RawScalar>>,
    /// This does not hold.
    pub not: Option<Box<RawCondition>>,
    /// All of these hold.
    pub all: Option<Vec<RawCondition>>,
    /// At least one of these holds.
    pub any: Option<Vec<RawCondition>>,
}
