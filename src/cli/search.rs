//! `veilstream search`: what a search finds in a file, and what it costs to find it. Publishes nothing.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use serde_json::json;

use super::anonymize::not_met;
use super::batch::{Batch, progress};
use super::{Failure, InputArgs, Report, print};
use crate::config::{Config, Purpose};
use crate::search::Algorithm;

/// Searches a file and tells node, loss, checks, time and stop reason
///
/// Nothing is published. Exit code 1 if a search finds nothing that satisfies the policy. The search has no time limit
/// unless `search.time_budget` is configured.
#[derive(Debug, Args)]
pub struct SearchArgs {
    /// The policy, in YAML; other sections of a pipeline may be there
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    /// What to read.
    #[command(flatten)]
    pub input: InputArgs,
    /// The search, or `all` to compare them [default: `search.algorithm` of the configuration]
    #[arg(long, value_name = "NAME")]
    pub algorithm: Option<Algorithms>,
    /// The seed of randomised searches [default: `search.seed` of the configuration]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// One JSON object on standard output; with `all` it holds a list, `searches`
    #[arg(long)]
    pub json: bool,
}

/// One search, or all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithms {
    /// This one.
    One(Algorithm),
    /// Every one, each on counts of its own.
    All,
}

impl FromStr for Algorithms {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "all" => Ok(Self::All),
            name => algorithm(name).map(Self::One).map_err(|known| format!("{known}, all")),
        }
    }
}

/// The algorithm called `name`, for the command line.
pub(super) fn algorithm(name: &str) -> Result<Algorithm, String> {
    let known = || format!("write one of {}", Algorithm::ALL.map(Algorithm::as_str).join(", "));
    Algorithm::parse(name).ok_or_else(known)
}

/// Searches and tells.
pub fn run(args: &SearchArgs) -> Result<(), Failure> {
    let config = Config::load(&args.config, Purpose::Policy)?;
    let progress = progress();
    let batch = Batch::read(&config, &args.input, &progress)?;
    let seed = args.seed.or(config.search.seed);
    let algorithms = match args.algorithm {
        Some(Algorithms::One(one)) => vec![one],
        Some(Algorithms::All) => Algorithm::ALL.to_vec(),
        None => vec![config.search.algorithm],
    };
    let mut reports = Vec::new();
    for algorithm in algorithms {
        progress.set_message(format!("searching, {}", algorithm.as_str()));
        let mut choice = config.choice();
        choice.algorithm = algorithm;
        reports.push(Report::exact(&batch.release(choice, seed.unwrap_or_default())?));
    }
    progress.finish_and_clear();
    if let Some(rejections) = batch.rejections() {
        eprintln!("{rejections}");
    }
    let text = match (args.json, args.algorithm, reports.as_slice()) {
        (true, Some(Algorithms::All), reports) => json!({ "searches": reports }).to_string(),
        (true, _, reports) => json!(reports.first()).to_string(),
        (false, _, reports) => table(&config, reports),
    };
    print(&text)?;
    reports.iter().find(|report| !report.satisfies).map_or(Ok(()), |report| Err(not_met(report)))
}

fn table(config: &Config, reports: &[Report]) -> String {
    let loss = config.policy.loss.as_str();
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header([
        "algorithm",
        loss,
        "k",
        "published",
        "suppressed",
        "checked",
        "predicted",
        "nodes",
        "ms",
        "stop",
    ]);
    for report in reports {
        let figure = |value: Option<String>| value.unwrap_or_else(|| "-".into());
        table.add_row([
            report.algorithm.clone(),
            figure(report.loss.get(loss).and_then(serde_json::Value::as_f64).map(|loss| format!("{loss:.6}"))),
            figure(report.k_achieved.map(|k| k.to_string())),
            report.records_published.to_string(),
            report.records_suppressed.to_string(),
            report.nodes_checked.to_string(),
            report.nodes_predicted.to_string(),
            report.nodes_total.to_string(),
            format!("{:.1}", report.elapsed_ms),
            report.stop.clone(),
        ]);
    }
    let mut text = table.to_string();
    for report in reports {
        text.push_str(&format!("\n{}: {}", report.algorithm, report.levels()));
        report
            .unmet_bounds
            .iter()
            .for_each(|unmet_bounds| text.push_str(&format!("\n{}: {unmet_bounds}", report.algorithm)));
    }
    text
}
