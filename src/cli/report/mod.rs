//! What `anonymize --report` and `search --json` say about a release. The keys are stable.

pub(super) mod html;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::gate::Release;
use crate::model::manifest::{Achieved, AttributeLevel, Group, KeptField, Manifest, Unmet, UnmetBound, rounded};

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
    /// Those of them that have a value which has no place in its hierarchy.
    pub suppressed_by_value: u64,
    /// Records turned away.
    pub records_rejected: u64,
    /// Attribute -> records whose value has no place in its hierarchy and stands as the top.
    pub top_fallbacks: Map<String, Value>,
    /// What the kept fields give away, and which were left out for it.
    pub kept: Vec<KeptField>,
    /// The groups of which half or more was left out, where they are of enough people to be named.
    pub groups_left_out: Vec<Group>,
    /// Why nothing was published.
    #[serde(skip)]
    pub unmet: Option<Unmet>,
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
    /// Which policy this was.
    pub policy_fingerprint: String,
}

impl Report {
    /// The report of a release, with its losses to three digits: a report is often handed on with the rows.
    pub fn new(release: &Release) -> Self {
        let mut report = Self::exact(release);
        let from = &release.manifest().provenance;
        for (name, loss) in &mut report.loss {
            *loss = json!(from.loss(name).map(rounded));
        }
        report
    }

    /// The report of a search, with losses as it counted them.
    pub fn exact(release: &Release) -> Self {
        let Manifest { provenance, criteria, k_achieved, classes, .. } = release.manifest();
        let fallbacks = provenance.work.fallbacks.iter().filter(|(_, records)| *records > 0);
        Self {
            algorithm: provenance.algorithm.clone(),
            recoding: provenance.recoding.iter().map(|a| (a.attribute.clone(), level(a))).collect(),
            // Nothing asked for, nothing refused.
            satisfies: !release.is_empty() || provenance.records_in == 0,
            loss: provenance.work.losses.iter().map(|loss| (loss.name.clone(), json!(loss.value))).collect(),
            k_achieved: *k_achieved,
            criteria: criteria.clone(),
            classes: *classes,
            records_in: provenance.records_in,
            records_published: provenance.records_published,
            records_suppressed: provenance.records_suppressed,
            suppressed_by_value: provenance.work.unplaced,
            records_rejected: provenance.records_rejected,
            top_fallbacks: fallbacks.map(|(attribute, records)| (attribute.to_string(), json!(records))).collect(),
            kept: provenance.work.kept.clone(),
            groups_left_out: provenance.work.left_out.clone(),
            unmet: provenance.work.unmet,
            nodes_total: provenance.nodes_total,
            nodes_checked: provenance.nodes_checked,
            nodes_predicted: provenance.nodes_predicted,
            elapsed_ms: provenance.search_ms,
            stop: provenance.stop.clone(),
            unmet_bounds: provenance.unmet_bounds.clone(),
            policy_fingerprint: provenance.policy_fingerprint.clone(),
        }
    }

    /// What a person should know before they hand the release on.
    pub fn warnings(&self) -> Vec<String> {
        let fallback = |(attribute, records): (&String, &Value)| {
            format!(
                "{records} records have no usable `{attribute}`: their value has no place in its hierarchy and stands as the top"
            )
        };
        let kept = |kept: &KeptField| {
            let (field, reason) = (&kept.field, kept.reason());
            format!(
                "`{field}` was left out: {reason}; to publish it all the same, write {{ name: {field}, reviewed: true }}"
            )
        };
        let withheld = self.kept.iter().filter(|kept| kept.withheld);
        self.top_fallbacks.iter().map(fallback).chain(withheld.map(kept)).collect()
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
