//! `veilstream frontier`: the trade-off between objectives, for a person to choose from. Publishes nothing.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde_json::{Map, Value, json};

use super::batch::{Batch, progress};
use super::input::refuse_same_file;
use super::{Failure, InputArgs, print};
use crate::config::{Config, Purpose, snippet};
use crate::files::Whole;
use crate::model::manifest::Unmet;
use crate::model::policy::Policy;
use crate::plot::standalone;
use crate::search::evaluator::Evaluator;
use crate::search::frontier::{Frontier, Method, frontier};
use crate::search::objectives::{FrontPoint, Objective};
use crate::search::{Algorithm, Budget};
use crate::telemetry::pictures;

/// Shows the trade-off between privacy and loss in a file, each point a recoding for the configuration
///
/// Every node is counted where there are few enough, otherwise the evolutionary search `pbg-ea` looks for the front; the
/// output says which. The preferred point is the knee, or by `search.prefer` what meets its bounds: each objective is scaled
/// from 0 to 1 over the front, counts of people by the risk 1/count that they leave, and the greatest sum is preferred.
/// Nothing is published.
#[derive(Debug, Args)]
pub struct FrontierArgs {
    /// The policy, in YAML; other sections of a pipeline may be there
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    /// What to read.
    #[command(flatten)]
    pub input: InputArgs,
    /// What to trade off: k, l, s_k, s_l, sf, or a loss [default: `search.objectives` of the configuration, or k,glm]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = objective)]
    pub objectives: Vec<Objective>,
    /// Draws the front as SVG
    ///
    /// A file that is there is replaced; a symbolic link to a file is refused.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// How to find the front: auto, exact, or pbg-ea
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = method)]
    pub method: Method,
    /// The seed of the evolutionary search [default: `search.seed` of the configuration, or 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// One JSON object on standard output
    #[arg(long)]
    pub json: bool,
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

/// Finds the front and shows it.
pub fn run(args: &FrontierArgs) -> Result<(), Failure> {
    let config = Config::load(&args.config, Purpose::Policy)?;
    if let Some(plot) = &args.plot {
        refuse_same_file(&args.input.input, plot, "is the file that is read")?;
    }
    let mut choice = config.choice();
    choice.algorithm = Algorithm::PbgEa;
    if !args.objectives.is_empty() {
        choice.tuning.objectives = args.objectives.clone();
    }
    let ea = choice.tuning.pbg_ea();
    check(&ea.objectives, &config.policy)?;
    let progress = progress();
    let batch = Batch::read(&config, &args.input, &progress)?;
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
    progress.set_message("searching");
    let started = Instant::now();
    let mut budget = Budget::within(started, choice.time_budget);
    budget.max_checks = choice.max_checks.unwrap_or(u64::MAX);
    let mut rng = ChaCha8Rng::seed_from_u64(args.seed.or(config.search.seed).unwrap_or_default());
    let found = frontier(&ea, args.method, &batch.policy.lattice(), &evaluator, &budget, &mut rng);
    let elapsed_ms = started.elapsed().as_secs_f64() * 1e3;
    progress.finish_and_clear();
    if let Some(rejections) = batch.rejections() {
        eprintln!("{rejections}");
    }
    if let Some(path) = &args.plot {
        let picture = pictures::trade_off(&found.front).map_err(|error| Failure::Outside(error.to_string()))?;
        let mut file = Whole::create(path)?;
        file.write(standalone(&picture).as_bytes())?;
        file.commit()?;
    }
    print(&if args.json { object(&found, &batch.policy, elapsed_ms) } else { text(&found, &batch.policy, elapsed_ms) })
}

/// Objectives that the policy cannot answer, or that leave nothing to trade off, are refused.
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

fn how(found: &Frontier) -> String {
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
        row.push(levels(point, policy));
        table.add_row(row);
    }
    let mut text = format!("{table}\n{} points, {} ({elapsed_ms:.0} ms)", front.points.len(), how(found));
    if let Some(quality) = found.quality {
        text.push_str(&format!(
            "\nagainst the exact front: representation ratio {:.3}, convergence error {:.1e}",
            quality.representation_ratio, quality.convergence_error
        ));
    }
    text.push_str("\nto release at a point, write its levels into the configuration:");
    let example = front.picked.or(if front.points.is_empty() { None } else { Some(0) });
    if let Some(point) = example {
        let section = snippet::fixed_window(policy, &front.points[point].node);
        text.push_str(&format!("\n\n# point {}\n{}", point + 1, section.trim_end()));
    }
    text
}

/// A value as a table shows it: whole where it is.
fn figure(objective: Objective, value: f64) -> String {
    match objective {
        Objective::K | Objective::L => format!("{value:.0}"),
        Objective::SpreadK | Objective::SpreadL => format!("{value:.1}"),
        Objective::Security | Objective::Loss(_) => format!("{value:.4}"),
    }
}

/// The levels as `fixed_levels` reads them.
fn levels(point: &FrontPoint, policy: &Policy) -> String {
    snippet::levels(policy, &point.node)
}

fn recoding<'a>(point: &'a FrontPoint, policy: &'a Policy) -> impl Iterator<Item = (String, u8)> + 'a {
    policy.quasi.iter().zip(point.node.levels()).map(|(quasi, &level)| (quasi.name.to_string(), level))
}

fn object(found: &Frontier, policy: &Policy, elapsed_ms: f64) -> String {
    let front = &found.front;
    let point = |(at, point): (usize, &FrontPoint)| {
        let values: Map<String, Value> =
            front.objectives.iter().zip(&point.values).map(|(o, v)| (o.as_str().into(), json!(v))).collect();
        json!({
            "point": at + 1,
            "values": values,
            "recoding": recoding(point, policy).map(|(name, level)| (name, json!(level))).collect::<Map<_, _>>(),
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
    object.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_on_the_command_line() {
        assert_eq!(objective("s_k"), Ok(Objective::SpreadK));
        assert!(objective("K").unwrap_err().contains("k, l, s_k, s_l, sf, glm"));
        assert!(method("best").is_err());
    }
}
