//! The `policy` section as written.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::criteria::RawCriterion;
use crate::config::file::scalar::{RawDecimal, RawDuration, RawShare};
use crate::model::hierarchy::{DateUnit, GeohashSpec, IpSpec, Open, PrefixSpec, TreeNode};
use crate::model::policy::{Fallback, Loss, RecodingKind, Render};

/// The privacy policy. Fields that it does not name are dropped.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["quasi_identifiers", "privacy"]))]
pub(crate) struct RawPolicy {
    /// Fields that identify people in combination; generalized before they are published. At least one.
    pub quasi_identifiers: Vec<RawQuasi>,
    /// Fields that the criteria protect; published as they are. Spellings that a reader takes for one value count once: case,
    /// blanks, invisible characters, full width, and numbers whatever their type. Null and blank text are no value: they add
    /// no diversity. Default: none.
    pub sensitive: Vec<RawSensitive>,
    /// Fields passed through unchanged: names, or `{ name: NAME, reviewed: true }`. A field that was not reviewed is null in
    /// every release in which it holds objects or lists, or in which more than half of its values belong to one person alone.
    /// Default: none, because every extra field can identify.
    pub keep: Vec<RawKeep>,
    /// Fields that conditions of `confidential` read, such as consent; never published. Default: none.
    pub private: Vec<String>,
    /// Direct identifiers, named so that nobody wonders: never read, never published. Default: none.
    pub identifiers: Vec<String>,
    /// The field that says whom a record is about: k counts distinct subjects; never published. Spellings of one name are
    /// one person, as with sensitive values (`007` and 7 too). Default: each record is its own subject, which is only
    /// right if nobody occurs twice in a window.
    pub subject: Option<String>,
    /// The class label for label-aware losses; published only if it is also `keep` or `sensitive`. Default: none.
    pub label: Option<String>,
    /// Criteria; all must hold in every class of a release. At least one.
    pub privacy: Vec<RawCriterion>,
    /// A condition over several releases for people who are in more than one. Not with `sliding`; with Kafka it needs
    /// the journal topic. Default: nothing; how people return is measured all the same, where there are a `subject` and a
    /// sensitive field.
    pub sequential: Option<RawSequential>,
    /// The records that may be left out of a release. Default: none.
    pub suppression: RawSuppression,
    /// The recoding of releases: `full-domain` (one level per field, simple to read), `subtree` (each value at a level of its
    /// own), or `local` (each record at levels of its own; loses the least). Default: `full-domain`, or `subtree` with
    /// `search.algorithm: subtree-bottom-up`.
    pub recoding: Option<RecodingKind>,
    /// The loss that the search minimises. Default: `glm`, because it sees every cell.
    pub loss: Loss,
    /// A quasi value outside its hierarchy. Default: `reject`, so that a wrong hierarchy is noticed. What is suppressed counts
    /// against `suppression.limit`; of what stands as the top the service warns where it is more than 5 % of a window.
    pub unknown_value: Fallback,
    /// A quasi field that is absent. Default: `reject`.
    pub missing_value: Fallback,
    /// A quasi field that is null. Default: `reject`; null never matches everything.
    pub null_value: Fallback,
    /// How generalized values are written, where a quasi-identifier has no `render` of its own. Default: `label`.
    pub render: RawRender,
    /// Adds a field `NAME_level` per quasi-identifier, the level of the row's label as text, so that rows can be grouped by values of
    /// one level where labels have several. It follows from the label and the hierarchy alone: the coarsest level at which values have
    /// this label. Not with another `render` than `label`. Default: false.
    pub row_levels: bool,
}

/// A reader who finds somebody in several releases intersects the sensitive values of their classes: at least so many must be
/// left. Needs a `subject` and a sensitive field.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawSequential {
    /// Over how many releases, the next one included. With Kafka they are remembered over restarts, by the journal; else
    /// every run starts anew. With `scope: partition` each partition counts its own.
    #[schemars(range(min = 2, max = 1000))]
    pub releases: u32,
    /// The candidate values that must be left to everybody who was in an earlier one of these releases. A person with fewer
    /// is held or suppressed, and so are those who no longer satisfy the policy without them.
    #[schemars(range(min = 2))]
    pub candidates: u32,
    /// The sensitive field whose values are candidates. Default: the only one.
    #[serde(default)]
    pub field: Option<String>,
    /// The most people remembered, each once per release they were in, as keyed hashes; those for whom there is no room are
    /// held or suppressed. Default: 1048576, about 32 MiB.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub max_subjects: Option<u64>,
}

/// One quasi-identifier.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawQuasi {
    /// The field's name.
    pub name: String,
    /// The two fields that it is made of, if it is no field of the input: latitude and longitude in degrees, such as
    /// `[home.lat, home.lon]`. With `hierarchy: { geohash: .. }`. Neither of them can be published. Default: none.
    #[serde(default)]
    pub from: Option<[String; 2]>,
    /// How its values generalize.
    pub hierarchy: RawHierarchy,
    /// How much a loss in this attribute counts against the others; from 0.000001 to 1000000. Default: 1.
    #[serde(default = "one_weight")]
    #[schemars(range(min = 0.000_001, max = 1_000_000))]
    pub weight: f64,
    /// The finest level that may be published; 0 is the value itself. Default: 0.
    #[serde(default)]
    pub min_level: u8,
    /// The coarsest level that may be published. Default: the hierarchy's height, everything in one value.
    #[serde(default)]
    pub max_level: Option<u8>,
    /// How much this attribute should stay fine in `score` and `top-down`; 1 or more. Default: 1.
    #[serde(default = "one_priority")]
    #[schemars(range(min = 1))]
    pub priority: u32,
    /// How its generalized values are written. Losses are the same for every rendering: the classes are. Default: as
    /// `policy.render` says.
    #[serde(default)]
    pub render: Option<Render>,
}

fn one_weight() -> f64 {
    1.0
}

fn one_priority() -> u32 {
    1
}

/// How values generalize.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawHierarchy {
    /// A file in ARX's format: one line per value, `value;level1;...;top`, separated by `;` or `,`.
    Csv(PathBuf),
    /// Numbers in intervals of growing width.
    Intervals(RawIntervals),
    /// Codes, masked from their end: 12345, 1234*, 123**, ...
    Prefix(PrefixSpec),
    /// Dates truncated to units: a list of units, or a mapping with `units`.
    Date(RawDate),
    /// IP addresses by networks: 10.1.2.3, 10.1.2.0/24, 10.1.0.0/16, ... `ip: {}` takes the usual networks.
    Ip(IpSpec),
    /// Places in cells of growing size: geohashes, or texts such as `52.52,13.405` (latitude and longitude in degrees).
    /// `geohash: {}` takes cells from 153 m to 1,250 km.
    Geohash(GeohashSpec),
    /// A tree written out here: `{ label: any, children: [ ... ] }`, or a list of such roots below `*`.
    Tree(RawTree),
    /// The value or nothing: any value is known, the top is `*`.
    Trivial,
    /// Alternatives: hierarchies of the same values whose levels do not nest in each other, such as weeks beside months. A release
    /// takes the one that loses the least. Levels are numbered together, as `veilstream explain` lists them. `csv` and `tree`, `intervals`
    /// or `date`; with `recoding: full-domain` and `tumbling` windows.
    #[serde(rename = "any_of")]
    AnyOf(#[schemars(length(min = 2))] Vec<RawHierarchy>),
}

/// Numbers in intervals.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawIntervals {
    /// Widths of the levels above the value, finest first; each a multiple of the one before.
    #[schemars(length(min = 1))]
    pub widths: Vec<RawDecimal>,
    /// The smallest value.
    pub min: RawDecimal,
    /// The largest value; above `min`.
    pub max: RawDecimal,
    /// A number at which intervals of all widths begin. Default: 0.
    #[serde(default)]
    pub origin: Option<RawDecimal>,
    /// Which ends take values beyond the range. Default: `none`, such values are unknown.
    #[serde(default)]
    pub open: Open,
    /// The character before the fraction. With `comma`, points divide thousands: `1.234,5`, and `1.234` is 1234. Labels are
    /// written with a point. Default: `point`.
    #[serde(default)]
    pub decimal: RawDecimalMark,
}

/// The character before the fraction of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawDecimalMark {
    /// `1234.5`
    #[default]
    Point,
    /// `1234,5`
    Comma,
}

/// Dates: the short form is the list of units.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum RawDate {
    /// Units from fine to coarse.
    Units(Vec<DateUnit>),
    /// Units with range and notation.
    Full(RawDateSpec),
}

/// Dates with range and notation.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawDateSpec {
    /// Units from fine to coarse; the first is how exact a value is.
    pub units: Vec<DateUnit>,
    /// The first day inside, such as 1900-01-01. Default: every early date is; losses count from 1900-01-01.
    #[serde(default)]
    pub min: Option<String>,
    /// The last day inside. Default: every late date is; losses count to 2099-12-31.
    #[serde(default)]
    pub max: Option<String>,
    /// How dates are written in the input: strptime letters such as `%d/%m/%Y`, `iso` (ISO 8601), or a number since 1970 in
    /// UTC: `epoch-days`, `epoch-seconds`, `epoch-millis`, `epoch-micros`. Default: `iso`. Logical dates of Avro and Parquet are `iso`.
    #[serde(default)]
    pub format: Option<String>,
    /// Several of them, where one field holds dates in several formats; the first that reads a value decides. Default: `format`
    /// alone.
    #[serde(default)]
    pub formats: Option<Vec<String>>,
}

/// A written-out tree.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum RawTree {
    /// Several roots; `*` is put on top.
    Roots(Vec<TreeNode>),
    /// One root.
    Root(TreeNode),
}

/// A sensitive field.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawSensitive {
    /// The field's name.
    pub name: String,
    /// How its values relate, for `t-closeness` with `distance: hierarchical`; the field is published as it is all the
    /// same. Default: none.
    #[serde(default)]
    pub hierarchy: Option<RawHierarchy>,
}

/// A field that is passed through unchanged: its name, or a mapping.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum RawKeep {
    /// Withheld where it identifies people.
    Name(String),
    /// With what is known of it.
    Field(RawKeptField),
}

impl RawKeep {
    /// The field's name.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Name(name) | Self::Field(RawKeptField { name, .. }) => name,
        }
    }
}

/// A kept field, and whether somebody has looked at it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawKeptField {
    /// The field's name.
    pub name: String,
    /// True if somebody has looked at what the field holds and answers for it: then it is published even where it tells
    /// people apart. Default: false.
    #[serde(default)]
    pub reviewed: bool,
}

/// The records that may be left out of a release.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawSuppression {
    /// The share of a window's records that may be left out, 0.05 or "5%": those in classes that do not satisfy, and those with a
    /// value that `unknown_value`, `missing_value` or `null_value` suppresses, together. Rejected records, and those whom
    /// `sequential` leaves out, are not counted. If values alone exceed it, nothing of the window is published. Default: 0,
    /// because losing records must be asked for.
    pub limit: Option<RawShare>,
    /// Their treatment. Default: `drop`.
    pub action: RawAction,
    /// With `hold`: the longest wait for a later release. Default: 5m, so that what is held stays bounded.
    pub max_hold: Option<RawDuration>,
}

/// The treatment of records that a release cannot protect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawAction {
    /// They are suppressed at once.
    #[default]
    Drop,
    /// They wait for a later release, at most `max_hold`, and are then suppressed.
    Hold,
}

/// How generalized values are written.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawRender {
    /// The hierarchy's label.
    #[default]
    Label,
    /// The smallest interval of numbers or dates that the value allows; names and codes keep their label.
    Interval,
    /// `mean` for numbers, `median` for dates and codes; names keep their label. Not with `sliding`; needs a criterion with k.
    Microaggregate,
}
