//! The parameters of the evolutionary searches: what is traded off, how finely, and which point is released.

use std::collections::BTreeMap;

use super::problem::{Problems, nearest};
use super::raw::{RawCriterion, RawPolicy, RawPrefer, RawSearch};
use super::tree::{At, shown};
use crate::model::policy::Loss;
use crate::search::front::objectives::{Objective, Prefer};
use crate::search::{Algorithm, Tuning};

/// Builds the parameters; `at` is the `search` section.
pub(super) fn tuning(raw: &RawSearch, at: At<'_>, problems: &mut Problems) -> Tuning {
    if at.lost("objectives") {
        // That has been told, and nothing can be compared with what is left.
        return Tuning::default();
    }
    let objectives = raw.objectives.clone();
    if objectives.len() == 1 {
        let message = "one objective leaves nothing to trade off: name two or more, or choose another algorithm";
        problems.add(at.key("objectives").line, message);
    }
    for (index, objective) in objectives.iter().enumerate() {
        if objectives[..index].contains(objective) {
            let line = at.key("objectives").index(index).line;
            problems.add(line, format!("`{}` is there already", objective.as_str()));
        }
    }
    let traded = if objectives.is_empty() { Tuning::default().pbg_ea().objectives } else { objectives.clone() };
    let epsilon_at = at.key("epsilon");
    let epsilon = raw.epsilon.as_ref().map_or(Vec::new(), |sides| figures(sides, &traded, epsilon_at, problems));
    for (objective, side) in &epsilon {
        if *side <= 0.0 {
            let line = epsilon_at.key(objective.as_str()).line;
            problems.add(
                line,
                format!("`{}` is not positive: write the smallest difference that matters", objective.as_str()),
            );
        }
    }
    let prefer = match &raw.prefer {
        Some(RawPrefer::Bounds(bounds)) => {
            Prefer::Bounds(figures(bounds, &traded, at.key("prefer").key("bounds"), problems))
        }
        Some(RawPrefer::Knee) | None => Prefer::Knee,
    };
    let size = |number: Option<u32>| number.map(|n| n as usize);
    Tuning { population: size(raw.population), iterations: size(raw.iterations), objectives, prefer, epsilon }
}

/// Refuses parameters that make no sense for the algorithm or for the policy; `at` is the whole file.
pub(super) fn check(raw: &RawSearch, policy: &RawPolicy, at: At<'_>, problems: &mut Problems) {
    let search = at.key("search");
    let trades = matches!(raw.algorithm, Algorithm::PbgEa);
    if !trades && !search.lost("algorithm") {
        for key in ["objectives", "prefer", "epsilon"] {
            if search.key(key).is_present() {
                let message = format!("`{key}` means something only with `algorithm: pbg-ea`: add that, or remove it");
                problems.add(search.key(key).line, message);
            }
        }
    }
    let evolves =
        trades || matches!(raw.algorithm, Algorithm::Auto | Algorithm::TabuGa | Algorithm::Genetic | Algorithm::Tabu);
    if !evolves && !search.lost("algorithm") {
        for key in ["population", "iterations"] {
            if search.key(key).is_present() {
                let message = format!("`{key}` is of no use to the algorithm chosen: remove it");
                problems.add(search.key(key).line, message);
            }
        }
    }
    let lost = |key: &str| at.lost("policy") || at.key("policy").lost(key);
    let confidential = policy.privacy.iter().any(|c| matches!(c, RawCriterion::Confidential(_)));
    for (index, raw) in raw.objectives.iter().enumerate() {
        if matches!(raw, Objective::SpreadL) {
            let message = "`s_l` counts how many in a class share one's own sensitive value, and is sought high: more of it is \
                           less diverse; write `l` if values should differ";
            problems.warn(search.key("objectives").index(index).line, message);
        }
        let missing = match raw {
            Objective::L | Objective::SpreadL if policy.sensitive.is_empty() && !lost("sensitive") => {
                "a sensitive field"
            }
            Objective::Loss(Loss::Cm) if policy.label.is_none() && !lost("label") => "a `label`",
            Objective::Security if !confidential && !lost("privacy") => "a `confidential` criterion",
            _ => continue,
        };
        let line = search.key("objectives").index(index).line;
        problems.add(line, format!("`{}` needs {missing} in the policy", raw.as_str()));
    }
}

/// Figures by objective; each must be one of those that are traded off.
fn figures(
    raw: &BTreeMap<String, f64>,
    traded: &[Objective],
    at: At<'_>,
    problems: &mut Problems,
) -> Vec<(Objective, f64)> {
    let mut figures = Vec::new();
    for (name, figure) in raw {
        match traded.iter().find(|o| o.as_str() == name) {
            Some(objective) => figures.push((*objective, *figure)),
            None => {
                let names = || traded.iter().map(|o| o.as_str());
                let advice = nearest(name, names()).map_or_else(
                    || format!("write one of {}", names().collect::<Vec<_>>().join(", ")),
                    |nearest| format!("did you mean `{nearest}`?"),
                );
                problems.add(at.key(name).line, format!("`{}` is not among the objectives: {advice}", shown(name)));
            }
        }
    }
    figures
}
