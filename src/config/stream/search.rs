//! `search`: the algorithm, its budget, and the parameters of the evolutionary searches: the objectives, the smallest
//! differences that matter, and the preferred point.

use std::collections::BTreeMap;
use std::time::Duration;

use super::positive;
use crate::config::Purpose;
use crate::config::file::{At, nearest, shown};
use crate::config::raw::{
    RawConfig, RawCriterion, RawHierarchy, RawLevels, RawPolicy, RawPrefer, RawQuasi, RawSearch, RawSink, RawTabu,
    RawVariant,
};
use crate::model::policy::{Loss, RecodingKind};
use crate::search::choose::{Choice, Levels};
use crate::search::evolutionary::tabu::Walking;
use crate::search::front::objectives::{Objective, Prefer};
use crate::search::{Algorithm, Tuning};

/// Longer: a search may outlast the next window. Shorter: large lattices end without a proof.
const DEFAULT_TIME_BUDGET: Duration = Duration::from_millis(200);
/// Larger: releases keep a recoding that has become needlessly coarse. Smaller: the recoding moves, and people who return
/// are seen at two levels.
const DEFAULT_KEEP_WITHIN: f64 = 0.02;

/// The recoding of releases: as the policy says, or as the algorithm implies.
pub(in crate::config) fn recoding(raw: &RawConfig) -> RecodingKind {
    let implied = match raw.search.algorithm {
        Algorithm::SubtreeBottomUp => RecodingKind::Subtree,
        _ => RecodingKind::FullDomain,
    };
    raw.policy.recoding.unwrap_or(implied)
}

/// Refuses what makes no sense with the policy's recoding; `at` is the whole file.
pub(in crate::config) fn check_recoding(raw: &RawConfig, at: At<'_>) {
    let (algorithm, chosen) = (raw.search.algorithm, at.key("search").key("algorithm"));
    let (policy, window) = (at.key("policy"), at.key("window"));
    let cuts = algorithm == Algorithm::SubtreeBottomUp;
    let named = algorithm.as_str();
    let stays =
        matches!(raw.window.levels, RawLevels::Monotone | RawLevels::Fixed) && raw.window.fixed_levels.is_none();
    if recoding(raw) == RecodingKind::Subtree && stays && matches!(raw.sink, Some(RawSink::Kafka(_))) {
        window.key("levels").warn(
            "a Kafka commit names cuts by their coarsest levels: after a restart or a rebalance, releases go on from one level \
             per field, the coarsest of the last cuts; write `sticky` if cuts may be chosen anew",
        );
    }
    match raw.policy.recoding {
        Some(RecodingKind::FullDomain) if cuts => {
            chosen.refuse(
                "`subtree-bottom-up` finds cuts and no levels: write `recoding: subtree`, or choose another algorithm",
            );
        }
        Some(RecodingKind::Subtree) if !cuts && algorithm != Algorithm::Auto => chosen.refuse(format!(
            "`{named}` finds no cuts: write `algorithm: subtree-bottom-up`, or `recoding: full-domain`"
        )),
        Some(RecodingKind::Local) => {
            if algorithm != Algorithm::Auto {
                chosen.refuse(format!(
                    "`recoding: local` follows a schedule that it learns, and `{named}` finds none: remove it"
                ));
            }
            if window.key("fixed_levels").is_present() {
                window.key("fixed_levels").refuse(
                    "`fixed_levels` names one level per field, and with `recoding: local` each record has its own: remove it",
                );
            }
            match raw.policy.loss {
                Loss::Ql | Loss::Score | Loss::Entropy => policy.key("loss").refuse(format!(
                    "`{}` measures a whole column at one level, and with `recoding: local` there is none: write `glm`",
                    raw.policy.loss.as_str()
                )),
                Loss::Dm | Loss::Aecs | Loss::Cm => policy.key("loss").warn(format!(
                    "`recoding: local` learns by `glm`: `{}` is reported, and not minimised",
                    raw.policy.loss.as_str()
                )),
                Loss::Glm | Loss::Precision => {}
            }
            warn_unused(raw, at);
        }
        _ => {}
    }
}

/// Warns of settings of a search, which `recoding: local` does not make.
fn warn_unused(raw: &RawConfig, at: At<'_>) {
    let unused = |at: At<'_>, name: &str, instead: &str| {
        at.warn(format!(
            "`recoding: local` follows a schedule and searches no levels, so `{name}` has no effect: {instead}"
        ));
    };
    for key in ["time_budget", "max_checks"].into_iter().filter(|key| at.key("search").key(key).is_present()) {
        unused(at.key("search").key(key), key, "remove it");
    }
    let quasi = at.key("policy").key("quasi_identifiers");
    for i in (0..raw.policy.quasi_identifiers.len()).filter(|&i| quasi.index(i).key("priority").is_present()) {
        unused(quasi.index(i).key("priority"), "priority", "write `weight`, which its losses have");
    }
}

/// The most combinations of alternatives. Each has a share of the time budget: more leave too little of it to each.
const MAX_COMBINATIONS: usize = 64;

/// Refuses what makes no sense where hierarchies have alternatives; `at` is the whole file.
pub(in crate::config) fn check_alternatives(raw: &RawConfig, at: At<'_>) {
    let many = |quasi: &RawQuasi| match &quasi.hierarchy {
        RawHierarchy::AnyOf(chains) => chains.len().max(1),
        _ => 1,
    };
    let combinations = raw.policy.quasi_identifiers.iter().map(many).fold(1, usize::saturating_mul);
    let any_of = |quasi: &RawQuasi| matches!(quasi.hierarchy, RawHierarchy::AnyOf(_));
    let Some(first) = raw.policy.quasi_identifiers.iter().position(any_of) else { return };
    let any_of = at.key("policy").key("quasi_identifiers").index(first).key("hierarchy").key("any_of");
    if combinations > MAX_COMBINATIONS {
        any_of.refuse(format!(
            "the alternatives make {combinations} combinations, and each of them is searched: write at most {MAX_COMBINATIONS}"
        ));
    }
    if recoding(raw) != RecodingKind::FullDomain {
        any_of.refuse(format!(
            "with `recoding: {}` a value has one next coarser value, and with `any_of` it has several: write `recoding: full-domain`, \
             or one hierarchy",
            recoding(raw).as_str()
        ));
    }
    if at.key("window").key("sliding").is_present() {
        any_of.refuse(
            "a reader can put the snapshots of a sliding window side by side, and two alternatives show each other's values in part: \
             use `tumbling`, or one hierarchy",
        );
    }
}

/// Builds the `search` section; `levels` are those of the `window` section, `at` is the `search` section.
pub(in crate::config) fn choice(file: &RawConfig, purpose: Purpose, levels: Levels, at: At<'_>) -> Choice {
    let raw = &file.search;
    let default_budget = match purpose {
        // No next window waits: prove the optimum.
        Purpose::Policy => Duration::MAX,
        Purpose::Pipeline => DEFAULT_TIME_BUDGET,
    };
    Choice {
        algorithm: match recoding(file) {
            RecodingKind::Subtree => Algorithm::SubtreeBottomUp,
            RecodingKind::FullDomain | RecodingKind::Local => raw.algorithm,
        },
        time_budget: positive(raw.time_budget, "time_budget", at).unwrap_or(default_budget),
        max_checks: raw.max_checks,
        levels,
        keep_within: raw.keep_within.map_or(DEFAULT_KEEP_WITHIN, |share| share.0),
        tuning: tuning(raw, at),
    }
}

/// Refuses a search, or parameters, that make no sense for the algorithm or for the policy; `at` is the whole file.
pub(in crate::config) fn check_search(raw: &RawSearch, policy: &RawPolicy, at: At<'_>) {
    let search = at.key("search");
    if !search.lost("algorithm") {
        let cuts = raw.algorithm == Algorithm::Auto && policy.recoding == Some(RecodingKind::Subtree);
        check_parameters(if cuts { Algorithm::SubtreeBottomUp } else { raw.algorithm }, search);
    }
    let lost = |key: &str| at.lost("policy") || at.key("policy").lost(key);
    let confidential = policy.privacy.iter().any(|c| matches!(c, RawCriterion::Confidential(_)));
    let granulation = matches!(raw.algorithm, Algorithm::Granulation | Algorithm::GranulationGa);
    if raw.learn_priors && !confidential && !lost("privacy") {
        search.key("learn_priors").refuse(
            "`learn_priors` is about confidential sentences: add a `confidential` criterion to `privacy`, or remove it",
        );
    }
    if raw.learn_priors && at.key("window").key("sliding").is_present() {
        search.key("learn_priors").refuse(
            "`learn_priors` counts windows that share no record, and those of `sliding` do: remove it, or give each sentence a `prior`",
        );
    }
    if granulation && !confidential && !at.key("policy").lost("privacy") {
        search.key("algorithm").refuse(format!(
            "`{}` is about confidential sentences: add a `confidential` criterion to `privacy`, or choose another algorithm",
            raw.algorithm.as_str()
        ));
    }
    for (index, objective) in raw.objectives.iter().enumerate() {
        let at = search.key("objectives").index(index);
        if matches!(objective, Objective::SpreadL) {
            at.warn(
                "`s_l` counts how many in a class share one's own sensitive value, and is sought high: more of it is less \
                 diverse; write `l` if values should differ",
            );
        }
        let missing = match objective {
            Objective::L | Objective::SpreadL if policy.sensitive.is_empty() && !lost("sensitive") => {
                "a sensitive field"
            }
            Objective::Loss(Loss::Cm) if policy.label.is_none() && !lost("label") => "a `label`",
            own if own.rule().is_some() && !asked(own, policy) && !lost("privacy") => own.criterion(),
            Objective::Security if !confidential && !lost("privacy") => "a `confidential` criterion",
            _ => continue,
        };
        at.refuse(format!("`{}` needs {missing} in the policy", objective.as_str()));
    }
}

/// True if the policy has the criterion that measures an objective.
fn asked(objective: &Objective, policy: &RawPolicy) -> bool {
    policy.privacy.iter().any(|criterion| match (objective, criterion) {
        (Objective::T, RawCriterion::TCloseness(_)) | (Objective::Alpha, RawCriterion::AlphaK(_)) => true,
        (Objective::EntropyL, RawCriterion::LDiversity(raw)) => raw.variant == RawVariant::Entropy,
        (Objective::RecursiveL, RawCriterion::LDiversity(raw)) => raw.variant == RawVariant::Recursive,
        (Objective::Confidence, RawCriterion::Lkc(_)) => !policy.sensitive.is_empty(),
        _ => false,
    })
}

/// Refuses parameters that the algorithm does not have; `at` is the `search` section.
fn check_parameters(algorithm: Algorithm, at: At<'_>) {
    use Algorithm::{Auto, Genetic, GranulationGa, PbgEa, SubtreeBottomUp, Tabu, TabuGa, TopDown, TopDownExtended};
    let trades: &[Algorithm] = &[PbgEa];
    let breeds: &[Algorithm] = &[PbgEa, GranulationGa];
    let mutates: &[Algorithm] = &[PbgEa, GranulationGa, Genetic];
    // The first one is the one that a message names.
    for (key, algorithms) in [
        ("objectives", trades),
        ("prefer", trades),
        ("epsilon", trades),
        ("crossover", breeds),
        ("mutation", mutates),
        ("margin", &[TopDown, TopDownExtended]),
        ("as_printed", &[SubtreeBottomUp, TopDownExtended, PbgEa]),
        ("crossover_points", &[TabuGa, Genetic, Auto]),
        ("tabu", &[TabuGa, Tabu, Auto]),
    ] {
        if !algorithms.contains(&algorithm) && at.key(key).is_present() {
            at.only_with(key, &format!("algorithm: {}", algorithms[0].as_str()));
        }
    }
    if algorithm == Tabu && at.key("tabu").key("cycles").is_present() {
        at.key("tabu").key("cycles").refuse("`tabu` alone has one walk: write its cycles as `iterations`");
    }
    let evolves = mutates.contains(&algorithm) || matches!(algorithm, Auto | TabuGa | Tabu);
    for key in ["population", "iterations"].into_iter().filter(|key| !evolves && at.key(key).is_present()) {
        at.key(key).refuse(format!("`{key}` is of no use to the algorithm chosen: remove it"));
    }
}

/// Builds the parameters; `at` is the `search` section.
fn tuning(raw: &RawSearch, at: At<'_>) -> Tuning {
    if at.lost("objectives") {
        // That has been told, and nothing can be compared with what is left.
        return Tuning::default();
    }
    let objectives = raw.objectives.clone();
    if objectives.len() == 1 {
        at.key("objectives")
            .refuse("one objective leaves nothing to trade off: name two or more, or choose another algorithm");
    }
    for (index, objective) in objectives.iter().enumerate() {
        if objectives[..index].contains(objective) {
            at.key("objectives").index(index).refuse(format!("`{}` is there already", objective.as_str()));
        }
    }
    let traded = if objectives.is_empty() { Tuning::default().pbg_ea().objectives } else { objectives.clone() };
    let epsilon_at = at.key("epsilon");
    let epsilon = raw.epsilon.as_ref().map_or(Vec::new(), |sides| figures(sides, &traded, epsilon_at));
    for (objective, side) in &epsilon {
        if *side <= 0.0 {
            let name = objective.as_str();
            let at = epsilon_at.key(name);
            at.refuse(format!("`{name}` is not positive: write the smallest difference that matters"));
        }
    }
    let prefer = match &raw.prefer {
        Some(RawPrefer::Bounds(bounds)) => Prefer::Bounds(figures(bounds, &traded, at.key("prefer").key("bounds"))),
        Some(RawPrefer::Knee) | None => Prefer::Knee,
    };
    let size = |number: Option<u32>| number.map(|n| n as usize);
    Tuning {
        population: size(raw.population),
        iterations: size(raw.iterations),
        crossover_points: size(raw.crossover_points),
        walking: walking(raw.tabu.clone().unwrap_or_default()),
        objectives,
        prefer,
        epsilon,
        crossover: raw.crossover.map(|share| share.0),
        mutation: raw.mutation.map(|share| share.0),
        margin: raw.margin.unwrap_or_default(),
        as_printed: raw.as_printed,
        learns_priors: raw.learn_priors,
    }
}

fn walking(raw: RawTabu) -> Walking {
    let paper = Walking::default();
    let or = |number: Option<u32>, paper: usize| number.map_or(paper, |n| n as usize);
    Walking {
        cycles: or(raw.cycles, paper.cycles),
        candidates: or(raw.candidates, paper.candidates),
        tabu_length: or(raw.length, paper.tabu_length),
        tabu_life: or(raw.life, paper.tabu_life),
        satisfying_share: raw.satisfying.map_or(paper.satisfying_share, |share| share.0),
        aspiration: raw.aspiration,
    }
}

/// Figures by objective; each must be one of those that are traded off.
fn figures(raw: &BTreeMap<String, f64>, traded: &[Objective], at: At<'_>) -> Vec<(Objective, f64)> {
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
                at.key(name).refuse(format!("`{}` is not among the objectives: {advice}", shown(name)));
            }
        }
    }
    figures
}
