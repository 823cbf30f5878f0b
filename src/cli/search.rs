//! `veilstream search`: compares the recodings on a file, or reports the result and the cost of one search, or of all.
//! Publishes nothing.

pub(super) mod recodings;

use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use serde_json::{Value, json};

use self::recodings::Comparison;
use super::shared::{Batch, Failure, InputArgs, ReleaseReport, algorithm, print};
use crate::config::Config;
use crate::model::policy::RecodingKind;
use crate::search::Algorithm;

/// The time limit of each search of `all`. Longer: the slowest search keeps people waiting. Shorter: searches of large files come
/// out worse than they are.
const TIME_OF_EACH: Duration = Duration::from_secs(10);

/// Compares the recodings of a file, or its searches
///
/// Without `--algorithm`, makes a release in memory for each value of `policy.recoding` and prints side by side what each
/// loses, who pays for it, what counts and a classifier would still get right, and what a reader who knows how it was made
/// could exclude. With it, prints levels, loss, checked nodes,
/// time and stop reason of that full-domain or subtree search. Publishes nothing. The exit code is 1 if the policy's own
/// recoding, or a search, finds nothing that satisfies the policy. The policy's own search has no time limit unless
/// `search.time_budget` is configured; the others, and each search of `all`, end after ten seconds.
#[derive(Debug, Args)]
pub(super) struct SearchArgs {
    #[command(flatten)]
    input: InputArgs,
    /// The search, or `all` to compare searches [default: compare the recodings]
    ///
    /// One of auto, optimal, exhaustive, bottom-up, subtree-bottom-up, top-down, top-down-extended, granulation, granulation-ga, tabu-ga,
    /// genetic, tabu and pbg-ea.
    #[arg(long, value_name = "NAME")]
    algorithm: Option<Algorithms>,
    /// The seed of randomised searches [default: `search.seed` of the configuration, or 0]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print one JSON object: the policy's own release, with a list `recodings`; with `all` a list `searches`
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Algorithms {
    One(Algorithm),
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

pub(super) fn run(args: &SearchArgs) -> Result<(), Failure> {
    let config = args.input.load()?;
    let batch = Batch::read(&config, &args.input)?;
    let seed = args.seed.or(config.seed).unwrap_or_default();
    let algorithms = match args.algorithm {
        Some(Algorithms::One(one)) => vec![one],
        Some(Algorithms::All) => Algorithm::ALL.to_vec(),
        None => return compare_recodings(args, &config, &batch, seed),
    };
    let (mut reports, mut left_out) = (Vec::new(), Vec::new());
    for algorithm in algorithms {
        batch.working(format!("searching, {}", algorithm.as_str()));
        let mut choice = config.choice.clone();
        choice.algorithm = algorithm;
        if args.algorithm == Some(Algorithms::All) {
            choice.time_budget = choice.time_budget.min(TIME_OF_EACH);
        }
        let recoding = kind_of(algorithm);
        if let Some(reason) = config.choice.ruled_out(recoding, &config.policy) {
            left_out.push((algorithm, reason));
            continue;
        }
        let (release, insight) = batch.searched(recoding, choice, seed)?;
        reports.push((recoding, ReleaseReport::new(&batch, &release).with_insight(&batch, insight.as_ref())));
    }
    batch.finish();
    if let (true, Some((algorithm, reason))) = (reports.is_empty(), left_out.first()) {
        return Err(Failure::Usage(format!("`{}` does not go with this policy: {reason}", algorithm.as_str())));
    }
    let mut objects = reports.iter().map(|(recoding, report)| {
        let mut object = report.exact_json();
        object["recoding_kind"] = json!(recoding.as_str());
        object
    });
    let text = match (args.json, args.algorithm) {
        (true, Some(Algorithms::All)) => json!({ "searches": objects.collect::<Vec<_>>() }).to_string(),
        (true, _) => objects.next().unwrap_or(Value::Null).to_string(),
        (false, _) => {
            let reason =
                |(algorithm, reason): &(Algorithm, String)| format!("\n{}: left out, {reason}", algorithm.as_str());
            table(config.policy.loss.as_str(), &reports) + &left_out.iter().map(reason).collect::<String>()
        }
    };
    print(&text)?;
    let unmet = reports.iter().find(|(_, report)| !report.satisfies);
    unmet.map_or(Ok(()), |(_, report)| Err(report.not_met()))
}

/// What a search makes: one cut per hierarchy, or one level.
fn kind_of(algorithm: Algorithm) -> RecodingKind {
    match algorithm {
        Algorithm::SubtreeBottomUp => RecodingKind::Subtree,
        _ => RecodingKind::FullDomain,
    }
}

fn compare_recodings(args: &SearchArgs, config: &Config, batch: &Batch, seed: u64) -> Result<(), Failure> {
    let comparison = Comparison::make(config, batch, seed)?;
    batch.finish();
    print(&if args.json { comparison.json().to_string() } else { comparison.text() })?;
    let own = comparison.own();
    if own.satisfies { Ok(()) } else { Err(own.not_met()) }
}

fn table(loss: &str, reports: &[(RecodingKind, ReleaseReport)]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    let (counts, costs) = (["k", "published", "suppressed"], ["checked", "predicted", "nodes", "ms", "stop"]);
    table.set_header(["algorithm", "recoding", loss].into_iter().chain(counts).chain(costs));
    for (recoding, report) in reports {
        let from = report.provenance();
        let exact = from.work.losses.iter().find(|named| named.name == loss);
        table.add_row([
            from.algorithm.clone(),
            recoding.as_str().to_owned(),
            exact.map_or("-".into(), |loss| format!("{:.6}", loss.value)),
            report.manifest.k_achieved.map_or("-".into(), |k| k.to_string()),
            from.records_published.to_string(),
            from.records_suppressed.to_string(),
            from.nodes_checked.to_string(),
            from.nodes_predicted.to_string(),
            from.nodes_total.to_string(),
            format!("{:.1}", from.search_ms),
            from.stop.clone(),
        ]);
    }
    let mut text = table.to_string();
    for (_, report) in reports {
        let algorithm = &report.provenance().algorithm;
        text.push_str(&format!("\n{algorithm}: {}", report.words));
        if report.satisfies && !report.example.is_empty() {
            text.push_str(&format!("\n{algorithm}: {}", report.example));
        }
        report.findings.iter().for_each(|finding| text.push_str(&format!("\n{algorithm}: {finding}")));
        for bound in &report.provenance().unmet_bounds {
            text.push_str(&format!("\n{algorithm}: {bound}"));
        }
    }
    for algorithm in reports.iter().filter_map(|(_, report)| Algorithm::parse(&report.provenance().algorithm)) {
        let looks_for = algorithm.looks_for().map(|what| format!("\n{} looks for {what}", algorithm.as_str()));
        text.push_str(&looks_for.unwrap_or_default());
    }
    let kinds = |kind: RecodingKind| reports.iter().any(|(recoding, _)| *recoding == kind);
    if kinds(RecodingKind::Subtree) && kinds(RecodingKind::FullDomain) {
        text.push_str(
            "\nsubtree: one level per value instead of one per column, so its loss can be lower than that of every full-domain search",
        );
    }
    text
}
