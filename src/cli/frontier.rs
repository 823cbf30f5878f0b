//! `veilstream frontier`: prints the trade-off between objectives, for a person to choose from, and releases by other recodings beside
//! it. Publishes nothing.

mod recodings;

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde_json::{Map, Value, json};

use super::shared::{Batch, Failure, InputArgs, print, refuse_same_file};
use crate::config::snippet;
use crate::files::ReplacedFile;
use crate::model::policy::{Policy, RecodingKind};
use crate::model::release::manifest::Unmet;
use crate::plot::standalone;
use crate::search::evaluator::Evaluator;
use crate::search::front::frontier::{Frontier, Method, frontier};
use crate::search::front::objectives::{FrontPoint, Objective};
use crate::search::{Algorithm, Budget};
use crate::telemetry::pictures;

/// Shows the trade-off between privacy and loss in a file; each point is a generalization
///
/// Small lattices are counted completely; for larger ones the evolutionary search `pbg-ea` looks for the front. The output
/// says which of the two was done. One point is preferred: each objective is scaled from 0 to 1 over the front (counts of
/// people by the risk 1/count), and the point with the greatest sum wins; with `search.prefer`, among those that meet its
/// bounds. Where k and losses are traded off, releases by `recoding: subtree` and `local` for a few values of k stand beside the
/// front. Publishes nothing.
#[derive(Debug, Args)]
pub(super) struct FrontierArgs {
    #[command(flatten)]
    input: InputArgs,
    /// The objectives: k, l, s_k, s_l, sf, or a loss [default: `search.objectives` of the configuration, or k,glm]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = objective)]
    objectives: Vec<Objective>,
    /// The file for a plot of the front, in SVG
    ///
    /// An existing file is replaced; a symbolic link to a file is refused.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// The way to find the front: auto, exact (count every node), or pbg-ea
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = method)]
    method: Method,
    /// The seed of the evolutionary search [default: `search.seed` of the configuration, or 0]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn objective(name: &str) -> Result<Objective, String> {
    let known = || format!("write some of {}", Objective::all().map(Objective::as_str).collect::<Vec<_>>().join(", "));
    Objective::parse(name).ok_or_else(known)
}

fn method(name: &str) -> Result<Method, String> {
    match name {
        "auto" => Ok(Method::Auto),
        "exact" => Ok(Method::Exact),
        "pbg-ea" => Ok(Method::Evolutionary),
        _ => Err("write auto, exact or pbg-ea".into()),
    }
}

pub(super) fn run(args: &FrontierArgs) -> Result<(), Failure> {
    let config = args.input.load()?;
    if let Some(plot) = &args.plot {
        refuse_same_file(&args.input.input, plot, "is the file that is read")?;
    }
    let mut choice = config.choice.clone();
    choice.algorithm = Algorithm::PbgEa;
    if !args.objectives.is_empty() {
        choice.tuning.objectives = args.objectives.clone();
    }
    let ea = choice.tuning.pbg_ea();
    check(&ea.objectives, &config.policy)?;
    let batch = Batch::read(&config, &args.input)?;
    if batch.window.rows.is_empty() {
        return Err(Failure::NotMet("there is no record to trade anything off".into()));
    }
    let rules = choice.rules(&batch.policy);
    let window = batch.window.recounted(rules.counting())?;
    let rules = rules.bind(&window.dictionaries.values());
    let unplaced = window.suppressed.len() as u64;
    if batch.policy.suppression.beside(unplaced, window.rows.len() as u64).is_none() {
        return Err(Failure::NotMet(format!("there is nothing to trade off: {}", Unmet::Unplaced.as_str())));
    }
    let evaluator = Evaluator::beside(unplaced, &batch.policy, &rules, window.sets);
    batch.working("searching".into());
    let started = Instant::now();
    let mut budget = Budget::within(started, choice.time_budget);
    budget.max_checks = choice.max_checks.unwrap_or(u64::MAX);
    let mut rng = ChaCha8Rng::seed_from_u64(args.seed.or(config.seed).unwrap_or_default());
    let found = frontier(&ea, args.method, &batch.policy.lattice(), &evaluator, &budget, &mut rng);
    let elapsed_ms = started.elapsed().as_secs_f64() * 1e3;
    let others = recodings::points(&config, &batch, &found.front.objectives, args.seed.or(config.seed).unwrap_or(0))?;
    batch.finish();
    if let Some(path) = &args.plot {
        let beside = others.iter().map(|point| (point.name(), point.values.clone()));
        let picture = pictures::trade_off(&found.front, beside).map_err(|error| Failure::Outside(error.to_string()))?;
        let mut file = ReplacedFile::create(path)?;
        file.write(standalone(&picture).as_bytes())?;
        file.commit()?;
    }
    print(&if args.json {
        let mut object = object(&found, &batch.policy, elapsed_ms);
        object["recodings"] = recodings::json(&others, &found.front.objectives);
        object.to_string()
    } else {
        text(&found, &batch.policy, elapsed_ms) + &recodings::text(&others, &found.front.objectives)
    })
}

/// Refuses objectives that the policy cannot answer, and fewer than two.
fn check(objectives: &[Objective], policy: &Policy) -> Result<(), Failure> {
    if objectives.len() < 2 {
        return Err(Failure::Usage("one objective leaves nothing to trade off: name two or more".into()));
    }
    for (at, objective) in objectives.iter().enumerate() {
        if objectives[..at].contains(objective) {
            return Err(Failure::Usage(format!("`{}` is among the objectives twice", objective.as_str())));
        }
        if let Some(missing) = objective.lacks(policy) {
            return Err(Failure::Usage(format!("`{}` needs {missing} in the policy", objective.as_str())));
        }
    }
    Ok(())
}

fn method_used(found: &Frontier) -> String {
    let Frontier { checks, nodes, .. } = found;
    if found.front.exact {
        format!("exact: all {nodes} nodes were counted")
    } else {
        format!("by pbg-ea: {checks} of {nodes} nodes were counted, so points may be missing")
    }
}

fn text(found: &Frontier, policy: &Policy, elapsed_ms: f64) -> String {
    let front = &found.front;
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
    let objectives = front.objectives.iter().map(|o| o.as_str());
    table.set_header(["point"].into_iter().chain(objectives).chain(["policy", "levels"]));
    for (at, point) in front.points.iter().enumerate() {
        let mut row = vec![(at + 1).to_string()];
        row.extend(front.objectives.iter().zip(&point.values).map(|(o, v)| figure(*o, *v)));
        let picked = front.picked == Some(at);
        row.push(match (point.evaluation.satisfies, picked) {
            (true, true) => "met, preferred".into(),
            (true, false) => "met".into(),
            (false, _) => "not met".into(),
        });
        row.push(policy.node_words(point.node.levels()));
        table.add_row(row);
    }
    let mut text = format!("{table}\n{} points, {} ({elapsed_ms:.0} ms)", front.points.len(), method_used(found));
    if let Some(quality) = found.quality {
        text.push_str(&format!(
            "\nagainst the exact front: representation ratio {:.3}, convergence error {:.1e}",
            quality.representation_ratio, quality.convergence_error
        ));
    }
    let kind = if policy.recoding == RecodingKind::FullDomain { "" } else { ", and `recoding: full-domain`" };
    text.push_str(&format!("\nto release at a point, write its levels into the configuration{kind}:"));
    let example = front.picked.unwrap_or(0);
    if let Some(point) = front.points.get(example) {
        let section = snippet::fixed_window(policy, &point.node);
        text.push_str(&format!("\n\n# point {}\n{}", example + 1, section.trim_end()));
    }
    text
}

/// A value of an objective, for the table.
fn figure(objective: Objective, value: f64) -> String {
    match objective {
        Objective::K | Objective::L => format!("{value:.0}"),
        Objective::SpreadK | Objective::SpreadL => format!("{value:.1}"),
        Objective::EntropyL | Objective::RecursiveL => format!("{value:.2}"),
        Objective::Security | Objective::T | Objective::Alpha | Objective::Confidence | Objective::Loss(_) => {
            format!("{value:.4}")
        }
    }
}

fn object(found: &Frontier, policy: &Policy, elapsed_ms: f64) -> Value {
    let front = &found.front;
    let point = |(at, point): (usize, &FrontPoint)| {
        let values: Map<String, Value> =
            front.objectives.iter().zip(&point.values).map(|(o, v)| (o.as_str().into(), json!(v))).collect();
        let levels = policy.quasi.iter().zip(point.node.levels());
        let recoding: Map<_, _> = levels.map(|(quasi, level)| (quasi.name.to_string(), json!(level))).collect();
        json!({
            "point": at + 1,
            "values": values,
            "recoding": recoding,
            "satisfies": point.evaluation.satisfies,
            "k_achieved": point.evaluation.k,
            "records_suppressed": point.evaluation.suppressed,
            "preferred": front.picked == Some(at),
        })
    };
    let mut object = json!({
        "objectives": front.objectives.iter().map(|o| o.as_str()).collect::<Vec<_>>(),
        "exact": front.exact,
        "algorithm": if front.exact { Algorithm::Exhaustive.as_str() } else { Algorithm::PbgEa.as_str() },
        "front": front.points.iter().enumerate().map(point).collect::<Vec<_>>(),
        "nodes_total": u64::try_from(found.nodes).unwrap_or(u64::MAX),
        "nodes_checked": found.checks,
        "elapsed_ms": elapsed_ms,
        "stop": found.stop.as_str(),
    });
    if let Some(quality) = found.quality {
        object["representation_ratio"] = json!(quality.representation_ratio);
        object["convergence_error"] = json!(quality.convergence_error);
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_on_the_command_line() {
        assert_eq!(objective("s_k"), Ok(Objective::SpreadK));
        assert!(objective("K").unwrap_err().contains("k, l, s_k, s_l"));
        assert!(method("best").is_err());
    }
}
