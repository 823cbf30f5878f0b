//! The release manifest: what was released, how, and what it cost. For readers, so it holds totals, whole ranges of offsets, and
//! figures that follow from the published rows; nothing in it moves with one person. Which records a release finished is in
//! the [`JournalEntry`], for operators.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::model::lattice::Node;
use crate::model::policy::Loss;

/// Where a batch comes from and what was done to it.
#[derive(Debug, Clone, Default, Serialize, PartialEq)]
pub struct Provenance {
    /// The release's name: unique, and the same when the release is carried out again after a crash.
    pub release_id: String,
    /// The window's number in this run.
    pub window_id: u64,
    /// Why the window closed.
    pub close_reason: String,
    /// From where to where the window was read, per partition; none for a sliding window.
    pub offsets: Vec<OffsetRange>,
    /// Level, or cut, per quasi-identifier, in policy order.
    pub recoding: Vec<AttributeLevel>,
    /// The schedule, where the recoding is local.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleName>,
    /// Where releases are a changelog: what this one does to the reader's snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotNote>,
    /// Normalised losses of the published rows and the suppressed records, by metric, to three digits.
    pub losses: Vec<Named>,
    /// Records read into the window.
    pub records_in: u64,
    /// Records published, each with the first release that shows it.
    pub records_published: u64,
    /// Records left out for good.
    pub records_suppressed: u64,
    /// Records that wait for a later release.
    pub records_held: u64,
    /// Records turned away.
    pub records_rejected: u64,
    /// The search that chose the recoding; `auto` in a release that was made again as planned.
    pub algorithm: String,
    /// Nodes it counted.
    pub nodes_checked: u64,
    /// Nodes it could have counted.
    pub nodes_total: u64,
    /// Nodes whose status it derived.
    pub nodes_predicted: u64,
    /// Why it stopped.
    pub stop: String,
    /// How long it took.
    pub search_ms: f64,
    /// The bounds of `search.prefer` that the release does not meet.
    pub unmet_bounds: Vec<UnmetBound>,
    /// The policy.
    pub policy_fingerprint: String,
    /// When the window closed, in milliseconds since the epoch.
    pub closed_at: i64,
    /// Its cost, for the operator's figures; not published.
    #[serde(skip)]
    pub work: Work,
}

/// The cost of a release and the records it left, beside its manifest: for the operator alone.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Work {
    /// When the oldest of its records came in, in milliseconds since the epoch; none without a record.
    pub oldest_arrival: Option<i64>,
    /// Frequency sets counted from rows.
    pub sets_scanned: u64,
    /// Frequency sets summed from finer ones.
    pub sets_rolled_up: u64,
    /// Frequency sets that were there already.
    pub sets_cached: u64,
    /// True if a sliding window's snapshot was not published, because no way to do so was safe beside those before it.
    pub skipped: bool,
    /// Records that wait in lanes other than the release's.
    pub waiting_elsewhere: u64,
    /// Losses as the search counted them, over all records of the window: some of them follow from values that are not
    /// published.
    pub losses: Vec<Named>,
    /// Mean security (sf) by the confidential sentences, as the search counted it; none without sentences.
    pub security: Option<f64>,
    /// The minimal nodes that satisfy the policy, from searches that know them all.
    pub minimal: Vec<Node>,
    /// Tombstones that have a key: no record that they retract is in this release or a later one.
    pub tombstones: u64,
    /// Records that they have retracted.
    pub retracted: u64,
    /// Why nothing of the window was published although it had records.
    pub unmet: Option<Unmet>,
    /// Records that were left out for a value that has no place in its hierarchy.
    pub unplaced: u64,
    /// Records that were counted, all windows included that it was made of.
    pub counted: u64,
    /// How many of those stand as the top of an attribute, for a value that has no place in its hierarchy; in policy order.
    pub fallbacks: Vec<(Arc<str>, u64)>,
    /// The groups of which half or more was left out.
    pub left_out: Vec<Group>,
    /// The share of people whom the kept fields single out.
    pub kept: Vec<KeptField>,
}

impl Work {
    /// The share of the records that stand as the top of an attribute for want of a place; none if nothing was counted.
    pub fn fallback_shares(&self) -> impl Iterator<Item = (&str, f64)> {
        let counted = self.fallbacks.iter().filter(|_| self.counted > 0);
        counted.map(|(attribute, records)| (&**attribute, *records as f64 / self.counted as f64))
    }
}

/// Why nothing of a window was published although it had records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmet {
    /// Nothing that is permitted satisfies the policy.
    Unsatisfied,
    /// The search found nothing in its time.
    Unfound,
    /// Values alone leave out more than is allowed.
    Unplaced,
    /// What satisfies cannot be published: earlier releases, or the room for a plan, forbid it.
    Forbidden,
}

impl Unmet {
    /// The reason, as the end of a sentence.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unsatisfied => "no permitted generalization satisfies the policy within the suppression limit",
            Self::Unfound => "no generalization that satisfies the policy was found before the search ended",
            Self::Unplaced => "more records than the suppression limit have a value that has no place in its hierarchy",
            Self::Forbidden => "earlier releases, or the room to plan this one, leave nobody who may be published",
        }
    }
}

impl Unmet {
    /// What to change in the policy, as the end of a sentence.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Unplaced => "extend the hierarchies, or raise `suppression.limit`",
            Self::Unsatisfied | Self::Unfound | Self::Forbidden => {
                "raise `suppression.limit`, permit coarser levels (`max_level`), or ask less of `privacy`"
            }
        }
    }
}

/// Records that share a value, of which half or more was left out of a release. Never about fewer people than the policy hides
/// anybody among.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Group {
    /// The quasi-identifier or sensitive field.
    pub attribute: String,
    /// The value, as generalized as the release.
    pub value: String,
    /// Records that have it.
    pub records: u64,
    /// How many of them were left out.
    pub left_out: u64,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Group({}, {} of {})", self.attribute, self.left_out, self.records)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { attribute, value, records, left_out } = self;
        match left_out == records {
            true => write!(f, "all {records} records with {attribute} = {value} were left out"),
            false => write!(f, "{left_out} of {records} records with {attribute} = {value} were left out"),
        }
    }
}

/// How far a kept field singles people out in one release.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KeptField {
    /// Its name.
    pub field: Arc<str>,
    /// The share of the rows whose value belongs to one person alone.
    pub unique_share: f64,
    /// True if some value is an object or a list, which may hold anything.
    pub nested: bool,
    /// True if the policy says that somebody has looked at it.
    pub reviewed: bool,
    /// True if null is published in its place.
    pub withheld: bool,
}

impl KeptField {
    /// Why it is withheld.
    pub fn reason(&self) -> String {
        match self.nested {
            true => "it holds objects or lists".into(),
            false => format!("{:.0} % of its values belong to one person alone", 100.0 * self.unique_share),
        }
    }
}

/// Where the records of one partition stand that were read into a window, others between them.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct OffsetRange {
    /// The partition's number in the source.
    pub partition: u64,
    /// The first.
    pub first: i64,
    /// The last.
    pub last: i64,
}

/// The records that a release finished, for operators: every record of the input is in the journal once.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct JournalEntry {
    /// The release.
    pub release_id: String,
    /// The window's number in this run.
    pub window_id: u64,
    /// When the window closed, in milliseconds since the epoch.
    pub closed_at: i64,
    /// Rows published.
    pub rows: u64,
    /// Records published for the first time.
    pub records_published: u64,
    /// Records left out for good.
    pub records_suppressed: u64,
    /// Records turned away.
    pub records_rejected: u64,
    /// Records that wait after it.
    pub records_held: u64,
    /// The records that it finished: published, suppressed or rejected.
    pub finished: Vec<PartitionSpans>,
}

/// Records of one partition.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct PartitionSpans {
    /// The topic, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// The partition.
    pub partition: u64,
    /// First and last offset of each run, both included.
    pub spans: Vec<[i64; 2]>,
}

/// A figure to three digits: what more would tell belongs to single records.
pub fn rounded(figure: f64) -> f64 {
    // A negative zero becomes zero.
    format!("{figure:.2e}").parse().unwrap_or(figure) + 0.0
}

/// The schedule of a local recoding.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct ScheduleName {
    /// Names it: the same levels have the same id.
    pub id: String,
    /// Its steps, from fine to coarse, each a level per quasi-identifier in policy order. Only in the first manifest that
    /// names it, and again after a restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<Vec<i32>>>,
}

/// The effect of a changelog's release on the reader's snapshot.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct SnapshotNote {
    /// `whole`, whose rows replace all before them, or `changes`.
    pub kind: String,
    /// The release that the changes are made to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// The rows of the snapshot that a reader has afterwards.
    pub rows: u64,
}

/// The level of one attribute, or its cut.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct AttributeLevel {
    /// The quasi-identifier.
    pub attribute: String,
    /// Its level; the coarsest one that occurs, where its values have several.
    pub level: u8,
    /// The finest level that occurs, where records have levels of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finest: Option<u8>,
    /// The level of the row in the middle, where records have levels of their own: at least half of the rows are as fine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub typical: Option<u8>,
    /// The labels of the cut that occur in the release; those that do not would tell of records that were left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<Vec<String>>,
}

/// A named figure.
#[derive(Debug, Clone, Serialize, PartialEq)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: f64,
}

/// A bound on an objective that a release does not meet: at least so much was asked for, of a loss at most.
#[derive(Debug, Clone, Serialize, PartialEq)]
pub struct UnmetBound {
    /// The objective.
    pub objective: String,
    /// The bound.
    pub asked: f64,
    /// The release's own figure; of figures that are no counts three digits, so that none tells of one person.
    pub reached: f64,
}

impl UnmetBound {
    /// `reached` may have all its digits.
    pub fn new(objective: &str, asked: f64, reached: f64) -> Self {
        let digits = 2 - reached.abs().log10().floor().clamp(-300.0, 300.0) as i32;
        let scale = 10f64.powi(digits);
        let whole = reached.fract() == 0.0;
        let reached = if whole { reached } else { (reached * scale).round() / scale };
        Self { objective: objective.to_owned(), asked, reached }
    }
}

impl fmt::Display for UnmetBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bound = if self.reached < self.asked { "at least" } else { "at most" };
        write!(f, "{} {bound} {} was asked, {} is reached", self.objective, self.asked, self.reached)
    }
}

/// A criterion as the gate counted it.
#[derive(Debug, Clone, Serialize, PartialEq)]
pub struct Achieved {
    /// The criterion.
    pub criterion: String,
    /// The figure that the policy asks of every class.
    pub required: f64,
    /// The figure that the weakest class reaches; null when nothing was published.
    pub achieved: Option<f64>,
}

/// Provenance and what the gate counted.
#[derive(Debug, Clone, Serialize, PartialEq)]
pub struct Manifest {
    /// Where it comes from.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// The gate's counts.
    pub criteria: Vec<Achieved>,
    /// The smallest class, in subjects (records, without a subject field); null when nothing was published.
    pub k_achieved: Option<u32>,
    /// Classes published.
    pub classes: u64,
    /// Rows published: the snapshot of a sliding window shows records again that count as published once.
    pub rows: u64,
}

impl Provenance {
    /// A loss by its name: of the published rows if it can be known from them, else as the search counted it.
    pub fn loss(&self, name: &str) -> Option<f64> {
        let of = |losses: &[Named]| losses.iter().find(|loss| loss.name == name).map(|loss| loss.value);
        of(&self.losses).or_else(|| of(&self.work.losses))
    }

    /// Security, quality and their product, which is what `granulation-ga` maximises; none without confidential sentences.
    pub fn security_and_quality(&self) -> Option<[(&'static str, f64); 3]> {
        let (security, loss) = (self.work.security?, self.loss(Loss::Ql.as_str())?);
        Some([("sf", security), ("ql", 1.0 - loss), ("sf*ql", security.max(0.0) * (1.0 - loss))])
    }
}
