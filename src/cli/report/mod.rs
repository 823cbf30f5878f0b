//! What `anonymize --report` and `search --json` say about a release. The keys are stable.

pub(super) mod html;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::gate::Release;
use crate::model::manifest::{Achieved, AttributeLevel, Manifest, UnmetBound};

/// A release in figures.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The search that chose the recoding.
    pub algorithm: String,
    /// Attribute -> level, or the labels of its cut.
    pub recoding: Map<String, Value>,
    /// True if the policy is met.
    pub satisfies: bool,
    /// Metric -> loss, normalised; empty if nothing is published.
    pub loss: Map<String, Value>,
    /// The smallest class, in subjects (records, without a subject field).
    pub k_achieved: Option<u32>,
    /// Every criterion: what it asks and what the weakest class reaches.
    pub criteria: Vec<Achieved>,
    /// Classes published.
    pub classes: u64,
    /// Records read.
    pub records_in: u64,
    /// Records published.
    pub records_published: u64,
    /// Records left out.
    pub records_suppressed: u64,
    /// Records turned away.
    pub records_rejected: u64,
    /// Nodes that the search could have counted.
    pub nodes_total: u64,
    /// Nodes that it counted.
    pub nodes_checked: u64,
    /// Nodes whose status it derived.
    pub nodes_predicted: u64,
    /// How long the search took.
    pub elapsed_ms: f64,
    /// Why it ended.
    pub stop: String,
    /// The bounds of `search.prefer` that the release does not meet.
    pub unmet_bounds: Vec<UnmetBound>,
    /// The seed of searches and of the row order, if the user gave one: an unknown one keeps the shuffle safe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Which policy this was.
    pub policy_fingerprint: String,
}

impl Report {
    /// The report of a release made with `seed`.
    pub fn new(release: &Release, seed: Option<u64>) -> Self {
        let Manifest { provenance, criteria, k_achieved, classes, .. } = release.manifest();
        Self {
            algorithm: provenance.algorithm.clone(),
            recoding: provenance.recoding.iter().map(|a| (a.attribute.clone(), level(a))).collect(),
            // Nothing asked for, nothing refused.
            satisfies: !release.is_empty() || provenance.records_in == 0,
            loss: provenance.losses.iter().map(|loss| (loss.name.clone(), json!(loss.value))).collect(),
            k_achieved: *k_achieved,
            criteria: criteria.clone(),
            classes: *classes,
            records_in: provenance.records_in,
            records_published: provenance.records_published,
            records_suppressed: provenance.records_suppressed,
            records_rejected: provenance.records_rejected,
            nodes_total: provenance.nodes_total,
            nodes_checked: provenance.nodes_checked,
            nodes_predicted: provenance.nodes_predicted,
            elapsed_ms: provenance.search_ms,
            stop: provenance.stop.clone(),
            unmet_bounds: provenance.unmet_bounds.clone(),
            seed,
            policy_fingerprint: provenance.policy_fingerprint.clone(),
        }
    }

    /// The levels in one line, for people.
    pub fn levels(&self) -> String {
        let one = |(attribute, level): (&String, &Value)| match level {
            Value::Array(cut) => format!("{attribute} cut of {}", cut.len()),
            level => format!("{attribute} {level}"),
        };
        self.recoding.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

fn level(attribute: &AttributeLevel) -> Value {
    match &attribute.cut {
        Some(cut) => json!(cut),
        None => json!(attribute.level),
    }
}
