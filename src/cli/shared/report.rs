//! The figures of a release, for `anonymize --report` and `search --json`.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Batch, Failure};
use crate::gate::Release;
use crate::model::lattice::Node;
use crate::model::release::manifest::{AttributeLevel, KeptField, Manifest, Provenance, rounded};
use crate::model::release::spread::Spread;
use crate::search::insight::Insight;
use crate::usefulness::{Accuracy, Exposure, Usefulness, raw_class_sizes, usefulness};

/// A release in figures; keeps no rows.
pub(in crate::cli) struct ReleaseReport {
    /// The manifest of the release.
    pub(in crate::cli) manifest: Manifest,
    /// True if the policy is met: something was published, or there was no record.
    pub(in crate::cli) satisfies: bool,
    /// What the release is still good for; `None` if it was not measured or the release has no rows.
    pub(in crate::cli) usefulness: Option<Usefulness>,
    /// What was done to each attribute, in one line for people.
    pub(in crate::cli) words: String,
    /// The same on a made-up record, in a sentence; empty if no hierarchy has an example.
    pub(in crate::cli) example: String,
    /// How far people stand out if everything is published as it is, and in the release.
    pub(in crate::cli) exposure: (Exposure, Exposure),
    /// The SHA-256 of the published bytes, once they are written.
    pub(in crate::cli) published_sha256: Option<String>,
    /// What a person may choose from, and what could go; in words.
    pub(in crate::cli) findings: Vec<String>,
    /// The largest sets of quasi-identifiers that could be left out at no cost to the others, each set by itself.
    pub(in crate::cli) superfluous: Vec<Vec<Arc<str>>>,
    minimal: Vec<Value>,
    spreads: Map<String, Value>,
}

/// The most minimal nodes that a text lists. JSON has them all.
const MAX_LISTED: usize = 10;

impl ReleaseReport {
    pub(in crate::cli) fn new(batch: &Batch, release: &Release) -> Self {
        let manifest = release.manifest().clone();
        let satisfies = !release.is_empty() || manifest.provenance.records_in == 0;
        let words = batch.policy.recoding_words(&manifest.provenance.recoding);
        let example = batch.policy.example_words(&manifest.provenance.recoding);
        let work = &manifest.provenance.work;
        let measured = manifest.provenance.security_and_quality().map(|three| {
            let [sf, ql, both] = three.map(|(name, figure)| format!("{name} {}", rounded(figure)));
            format!("security {sf}, quality {ql}, {both}")
        });
        let mut findings: Vec<String> = measured.into_iter().collect();
        let levels = |node: &Node| batch.policy.node_words(node.levels());
        let listed = work.minimal.iter().take(MAX_LISTED).map(|node| format!("minimal: {}", levels(node)));
        findings.extend(listed);
        if work.minimal.len() > MAX_LISTED {
            findings.push(format!("minimal: {} nodes in all", work.minimal.len()));
        }
        let by_name = |node: &Node| -> Value {
            let levels = batch.policy.quasi.iter().zip(node.levels());
            levels.map(|(quasi, level)| (quasi.name.to_string(), json!(level))).collect::<Map<_, _>>().into()
        };
        let minimal = work.minimal.iter().map(by_name).collect();
        let spread = |spread: Spread| -> Map<_, _> {
            spread.named().map(|(name, figure)| (name.into(), json!(rounded(figure)))).into_iter().collect()
        };
        let spreads = release.spreads().map(|(name, own)| (name.into(), spread(own).into())).collect();
        let exposure = (Exposure::default(), Exposure::of(release.class_sizes(), batch.policy.k().0));
        Self {
            manifest,
            satisfies,
            usefulness: None,
            words,
            example,
            exposure,
            published_sha256: None,
            findings,
            superfluous: Vec::new(),
            minimal,
            spreads,
        }
    }

    /// The same with what was seen of the search.
    pub(in crate::cli) fn with_insight(mut self, batch: &Batch, insight: Option<&Insight>) -> Self {
        if let Some(insight) = insight {
            self.findings.extend(insight.superfluous_words(&batch.policy));
            let name = |&at: &usize| Arc::clone(&batch.policy.quasi[at].name);
            self.superfluous = insight.superfluous.iter().map(|set| set.iter().map(name).collect()).collect();
        }
        self
    }

    /// The same with the usefulness of the release and the exposure of its input, which takes about as long as a search.
    pub(in crate::cli) fn measured(batch: &Batch, release: &Release) -> Self {
        let usefulness = usefulness(&batch.policy, release, &batch.window.dictionaries);
        let mut report = Self { usefulness, ..Self::new(batch, release) };
        report.exposure.0 = Exposure::of(&raw_class_sizes(&batch.policy, &batch.window.rows), batch.policy.k().0);
        report
    }

    /// How the release was made.
    pub(in crate::cli) fn provenance(&self) -> &Provenance {
        &self.manifest.provenance
    }

    /// One JSON object with stable keys; losses as the search counted them.
    pub(in crate::cli) fn exact_json(&self) -> Value {
        let Manifest { provenance: from, criteria, k_achieved, classes, .. } = &self.manifest;
        let recoding: Map<_, _> = from.recoding.iter().map(|a| (a.attribute.clone(), level(a))).collect();
        let loss: Map<_, _> = from.work.losses.iter().map(|loss| (loss.name.clone(), json!(loss.value))).collect();
        let fallbacks: Map<_, _> = self.top_fallbacks().map(|(name, records)| (name.into(), json!(records))).collect();
        json!({
            "algorithm": from.algorithm,
            "recoding": recoding,
            "levels": self.words,
            "example": self.example,
            "satisfies": self.satisfies,
            "loss": loss,
            "k_achieved": k_achieved,
            "criteria": criteria,
            "classes": classes,
            "spread": self.spreads,
            "records_in": from.records_in,
            "records_published": from.records_published,
            "records_suppressed": from.records_suppressed,
            "suppressed_by_value": from.work.unplaced,
            "records_rejected": from.records_rejected,
            "top_fallbacks": fallbacks,
            "kept": from.work.kept,
            "groups_left_out": from.work.left_out,
            "nodes_total": from.nodes_total,
            "nodes_checked": from.nodes_checked,
            "nodes_predicted": from.nodes_predicted,
            "elapsed_ms": from.search_ms,
            "stop": from.stop,
            "security": from.work.security,
            "minimal": self.minimal,
            "superfluous": self.superfluous,
            "unmet_bounds": from.unmet_bounds,
            "policy_fingerprint": from.policy_fingerprint,
        })
    }

    /// The same object with losses to three digits, because a report is often handed on with the rows, and with `usefulness`.
    pub(in crate::cli) fn json(&self) -> Value {
        let mut object = self.exact_json();
        object["usefulness"] = self.usefulness_json();
        object["risk"] = json!({ "as_read": exposed(&self.exposure.0), "published": exposed(&self.exposure.1) });
        object["published_sha256"] = json!(self.published_sha256);
        object["version"] = json!(env!("CARGO_PKG_VERSION"));
        for loss in &self.provenance().work.losses {
            object["loss"][&loss.name] = json!(self.provenance().loss(&loss.name).map(rounded));
        }
        object["security"] = json!(self.provenance().work.security.map(rounded));
        object
    }

    /// What the release is still good for, to three digits; null if it has no rows.
    pub(in crate::cli) fn usefulness_json(&self) -> Value {
        let Some(useful) = &self.usefulness else { return Value::Null };
        let by_attribute = useful.loss_by_attribute.iter();
        let by_attribute: Map<_, _> =
            by_attribute.map(|(name, loss)| (name.to_string(), json!(rounded(*loss)))).collect();
        let classifier = useful.classifier.as_ref().map(|Accuracy { published, raw, majority }| {
            json!({ "published": rounded(*published), "raw": rounded(*raw), "majority": rounded(*majority) })
        });
        json!({
            "loss_by_attribute": by_attribute,
            "loss_median": rounded(useful.loss_median),
            "loss_p95": rounded(useful.loss_p95),
            "counts_by_one": rounded(useful.counts_by_one),
            "counts_by_two": useful.counts_by_two.map(rounded),
            "classifier": classifier,
            "attack": {
                "rows_narrowed": rounded(useful.attack.rows),
                "cells_narrowed": rounded(useful.attack.cells),
                "cells_exact": rounded(useful.attack.cells_exact),
                "rows_sampled": useful.attack.sampled,
            },
        })
    }

    /// Attributes with the number of records whose value has no place in the hierarchy and is published as its top.
    pub(in crate::cli) fn top_fallbacks(&self) -> impl Iterator<Item = (&str, u64)> {
        let counts = self.provenance().work.fallbacks.iter().filter(|(_, records)| *records > 0);
        counts.map(|(attribute, records)| (&**attribute, *records))
    }

    /// Warnings for the person who hands the release on.
    pub(in crate::cli) fn warnings(&self) -> Vec<String> {
        let fallback = |(attribute, records): (&str, u64)| {
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
        let withheld = self.provenance().work.kept.iter().filter(|kept| kept.withheld);
        self.top_fallbacks().map(fallback).chain(withheld.map(kept)).collect()
    }

    /// The failure of a command whose release does not satisfy the policy.
    pub(in crate::cli) fn not_met(&self) -> Failure {
        let rejected = || Failure::NotMet("nothing was published: every record was rejected".into());
        self.provenance().work.unmet.map_or_else(rejected, Failure::not_met)
    }
}

fn exposed(exposure: &Exposure) -> Value {
    let share = |people: u64| rounded(people as f64 / exposure.people.max(1) as f64);
    json!({
        "people": exposure.people,
        "alone": share(exposure.alone),
        "below_k": share(exposure.below),
        "classes": exposure.classes,
        "smallest_class": exposure.smallest,
    })
}

fn level(attribute: &AttributeLevel) -> Value {
    match (&attribute.cut, attribute.finest) {
        (Some(cut), _) => json!(cut),
        (None, Some(finest)) => {
            json!({ "finest": finest, "typical": attribute.typical, "coarsest": attribute.level })
        }
        (None, None) => json!(attribute.level),
    }
}
