//! The release manifest: what was released, how, and what it cost. Totals only; nothing in it moves with one person.

use std::fmt;

use serde::Serialize;

/// Where a batch comes from and what was done to it.
#[derive(Debug, Clone, Default, Serialize, PartialEq)]
pub struct Provenance {
    /// The release's name: unique, and the same when the release is carried out again after a crash.
    pub release_id: String,
    /// The window's number in this run.
    pub window_id: u64,
    /// Why the window closed.
    pub close_reason: String,
    /// The offsets that this release finishes, per partition.
    pub offsets: Vec<PartitionSpans>,
    /// Level, or cut, per quasi-identifier, in policy order.
    pub recoding: Vec<AttributeLevel>,
    /// Normalised losses by metric.
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
    /// The search that chose the recoding.
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
    /// What it took, for the operator's figures; not part of what is published.
    #[serde(skip)]
    pub work: Work,
}

/// What a release took, beside what its manifest says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// When the oldest of its records came in, in milliseconds since the epoch; none without a record.
    pub oldest_arrival: Option<i64>,
    /// Frequency sets counted from rows.
    pub sets_scanned: u64,
    /// Frequency sets summed from finer ones.
    pub sets_rolled_up: u64,
    /// Frequency sets that were there already.
    pub sets_cached: u64,
    /// True if a sliding window's snapshot was not published, because no way to do so was safe beside the last one.
    pub skipped: bool,
    /// Records that wait in lanes other than the release's.
    pub waiting_elsewhere: u64,
}

/// Offsets of one partition.
#[derive(Debug, Clone, Serialize, PartialEq)]
pub struct PartitionSpans {
    /// The partition's number in the source.
    pub partition: u32,
    /// First and last offset of each run, both included.
    pub spans: Vec<[i64; 2]>,
}

/// The level of one attribute, or its cut.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct AttributeLevel {
    /// The quasi-identifier.
    pub attribute: String,
    /// Its level; the coarsest one, where it is published by a cut.
    pub level: u8,
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
    /// What the release has instead; of figures that are no counts three digits, so that none tells of one person.
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
    /// What the policy asks of every class.
    pub required: f64,
    /// What the weakest class reaches; null when nothing was published.
    pub achieved: Option<f64>,
}

/// Provenance and what the gate counted.
#[derive(Debug, Clone, Serialize, PartialEq)]
pub struct Manifest {
    /// Where it comes from.
    #[serde(flatten)]
    pub provenance: Provenance,
    /// What the gate counted.
    pub criteria: Vec<Achieved>,
    /// The smallest class, in subjects (records, without a subject field); null when nothing was published.
    pub k_achieved: Option<u32>,
    /// Classes published.
    pub classes: u64,
    /// Rows published: the snapshot of a sliding window shows records again that count as published once.
    pub rows: u64,
}
