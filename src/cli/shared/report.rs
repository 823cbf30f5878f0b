//! The figures of a release, for `anonymize --report` and `search --json`.

use serde_json::{Map, Value, json};

use super::Failure;
use crate::gate::Release;
use crate::model::policy::Policy;
use crate::model::release::manifest::{AttributeLevel, KeptField, Manifest, Provenance, rounded};
use crate::usefulness::{Accuracy, Usefulness, usefulness};

/// A release in figures; keeps no rows.
pub(in crate::cli) struct ReleaseReport {
    /// The manifest of the release.
    pub(in crate::cli) manifest: Manifest,
    /// True if the policy is met: something was published, or there was no record.
    pub(in crate::cli) satisfies: bool,
    /// What the release is still good for; `None` if it was not measured or the release has no rows.
    pub(in crate::cli) usefulness: Option<Usefulness>,
}

impl ReleaseReport {
    pub(in crate::cli) fn new(release: &Release) -> Self {
        let manifest = release.manifest().clone();
        let satisfies = !release.is_empty() || manifest.provenance.records_in == 0;
        Self { manifest, satisfies, usefulness: None }
    }

    /// The same with the usefulness of the release, which takes about as long as a search.
    pub(in crate::cli) fn measured(policy: &Policy, release: &Release) -> Self {
        Self { usefulness: usefulness(policy, release), ..Self::new(release) }
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
            "satisfies": self.satisfies,
            "loss": loss,
            "k_achieved": k_achieved,
            "criteria": criteria,
            "classes": classes,
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
            "unmet_bounds": from.unmet_bounds,
            "policy_fingerprint": from.policy_fingerprint,
        })
    }

    /// The same object with losses to three digits, because a report is often handed on with the rows, and with `usefulness`.
    pub(in crate::cli) fn json(&self) -> Value {
        let mut object = self.exact_json();
        object["usefulness"] = self.usefulness_json();
        for loss in &self.provenance().work.losses {
            object["loss"][&loss.name] = json!(self.provenance().loss(&loss.name).map(rounded));
        }
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

    /// The levels in one line, for people.
    pub(in crate::cli) fn levels(&self) -> String {
        let one = |AttributeLevel { attribute, level, finest, cut }: &AttributeLevel| match (cut, finest) {
            (Some(cut), _) => format!("{attribute} cut of {}", cut.len()),
            (None, Some(finest)) if finest != level => format!("{attribute} {finest} to {level}"),
            (None, _) => format!("{attribute} {level}"),
        };
        self.provenance().recoding.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// The failure of a command whose release does not satisfy the policy.
    pub(in crate::cli) fn not_met(&self) -> Failure {
        let rejected = || Failure::NotMet("nothing was published: every record was rejected".into());
        self.provenance().work.unmet.map_or_else(rejected, Failure::not_met)
    }
}

fn level(attribute: &AttributeLevel) -> Value {
    match (&attribute.cut, attribute.finest) {
        (Some(cut), _) => json!(cut),
        (None, Some(finest)) => json!({ "finest": finest, "coarsest": attribute.level }),
        (None, None) => json!(attribute.level),
    }
}
