//! Releases by `subtree` and `local` beside the full-domain front, for a few values of k.
//!
//! A point of the front is a node. Cuts and schedules are no nodes, so these points belong to no front: each is one release, made in
//! memory under the policy with another k, and its values are those of that release. Objectives other than k and losses are not known
//! of a release, and then there are no such points.

use std::time::Duration;

use comfy_table::{Table, presets};
use serde_json::{Map, Value, json};

use super::figure;
use crate::cli::shared::{Batch, Failure};
use crate::config::Config;
use crate::model::policy::{Criterion, K, Policy, RecodingKind};
use crate::search::front::objectives::Objective;

/// The values of k that are tried beside the policy's own. More take longer; fewer show less of the trade-off.
const TRIED: [u32; 5] = [2, 5, 10, 20, 50];
/// The time limit of one search for cuts. Longer: people wait. Shorter: cuts come out worse than they are.
const TIME: Duration = Duration::from_secs(2);

/// A release by cuts or by a schedule.
pub(super) struct RecodingPoint {
    pub(super) recoding: RecodingKind,
    /// The k that was asked for; `None` if the policy asks for none.
    pub(super) k: Option<u32>,
    /// One value per objective.
    pub(super) values: Vec<f64>,
    classes: u64,
    suppressed: u64,
}

impl RecodingPoint {
    /// Its name in the picture.
    pub(super) fn name(&self) -> String {
        let k = self.k.map_or(String::new(), |k| format!(" k={k}"));
        format!("{}{k}", self.recoding.as_str())
    }
}

/// The releases by both recodings for every k that is tried.
pub(super) fn points(
    config: &Config,
    batch: &Batch,
    objectives: &[Objective],
    seed: u64,
) -> Result<Vec<RecodingPoint>, Failure> {
    let mut points = Vec::new();
    if !objectives.iter().all(|objective| matches!(objective, Objective::K | Objective::Loss(_))) {
        return Ok(points);
    }
    for recoding in [RecodingKind::Subtree, RecodingKind::Local] {
        if config.choice.ruled_out(recoding, &config.policy).is_some() {
            continue;
        }
        let choice = config.choice.for_recoding(recoding, TIME);
        for (k, policy) in policies(&batch.policy, recoding) {
            batch.working(format!("recoding, {}", recoding.as_str()));
            let release = match batch.release_under(&policy, choice.clone(), seed) {
                Err(Failure::NotMet(_)) => continue,
                made => made?,
            };
            let manifest = release.manifest();
            let value = |objective: &Objective| match objective {
                Objective::K => manifest.k_achieved.map(f64::from),
                _ => manifest.provenance.work.losses.iter().find(|l| l.name == objective.as_str()).map(|l| l.value),
            };
            let Some(values) = objectives.iter().map(value).collect() else { continue };
            let (classes, suppressed) = (manifest.classes, manifest.provenance.records_suppressed);
            points.push(RecodingPoint { recoding, k, values, classes, suppressed });
        }
    }
    Ok(points)
}

/// The policy with each k that is tried, the least first; the policy itself if it asks for none.
fn policies(policy: &Policy, recoding: RecodingKind) -> Vec<(Option<u32>, Policy)> {
    let own = policy.criteria.iter().find_map(|criterion| match criterion {
        Criterion::KAnonymity(k) => Some(k.0),
        _ => None,
    });
    let with = |criteria| Policy { criteria, recoding, ..policy.clone() };
    let Some(own) = own else { return vec![(None, with(policy.criteria.clone()))] };
    let mut tried: Vec<u32> = TRIED.into_iter().chain([own]).collect();
    tried.sort_unstable();
    tried.dedup();
    let at = |k: u32| {
        let criterion = |criterion: &Criterion| match criterion {
            Criterion::KAnonymity(_) => Criterion::KAnonymity(K(k)),
            other => other.clone(),
        };
        (Some(k), with(policy.criteria.iter().map(criterion).collect()))
    };
    tried.into_iter().map(at).collect()
}

/// The points as a table for people; nothing if there are none.
pub(super) fn text(points: &[RecodingPoint], objectives: &[Objective]) -> String {
    if points.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    let names = objectives.iter().map(|objective| objective.as_str());
    table.set_header(["recoding", "asked"].into_iter().chain(names).chain(["classes", "suppressed"]));
    for point in points {
        let mut row = vec![point.recoding.as_str().to_owned(), point.k.map_or("-".into(), |k| format!("k = {k}"))];
        row.extend(objectives.iter().zip(&point.values).map(|(objective, value)| figure(*objective, *value)));
        row.extend([point.classes.to_string(), point.suppressed.to_string()]);
        table.add_row(row);
    }
    format!(
        "\n\nreleases by other recodings, for comparison (no points of the front: their columns mix levels)\n{table}\nto release \
         like one of them, write its `recoding` and its k into the policy"
    )
}

/// The points as a JSON list.
pub(super) fn json(points: &[RecodingPoint], objectives: &[Objective]) -> Value {
    let one = |point: &RecodingPoint| {
        let values: Map<String, Value> = objectives
            .iter()
            .zip(&point.values)
            .map(|(objective, value)| (objective.as_str().into(), json!(value)))
            .collect();
        json!({
            "recoding": point.recoding.as_str(),
            "k": point.k,
            "values": values,
            "classes": point.classes,
            "records_suppressed": point.suppressed,
        })
    };
    points.iter().map(one).collect()
}
