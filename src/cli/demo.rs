//! `veilstream demo`: the whole pipeline on an embedded stream, without a broker and without files.
//!
//! Only the population is made up: decoding, windows, searches, the gate and the accounting are those of the service.

use std::fmt;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};
use serde_json::{Value, json};

use super::{Failure, now, print, runtime};
use crate::codec::json::JsonEncoder;
use crate::codec::{Encode as _, PublishedRow};
use crate::config::{Config, Purpose, SourceConfig};
use crate::gate::Release;
use crate::model::manifest::Manifest;
use crate::model::policy::Policy;
use crate::pipeline::{Pipeline, Summary};
use crate::privacy::Rules;
use crate::shutdown;
use crate::sink::{Delivery, Sink, SinkError};
use crate::source::Preamble;
use crate::source::generator::{GeneratorSettings, GeneratorSource, demo_policy_yaml};
use crate::telemetry::Telemetry;

/// How many published rows are shown at the end.
const SAMPLE: usize = 3;
/// How often the live line is brought up to date.
const REFRESH: Duration = Duration::from_millis(100);

/// Shows the whole pipeline on an embedded stream of synthetic people
///
/// Generates a population with realistic skew, people who return and a drift half way, and sends it through the real
/// pipeline: one line per release, then what became of every record. Needs no broker and no file, and ends by itself.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// The same seed gives the same stream
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// How many records to send through
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub records: u64,
    /// Records per second; 0 is as fast as they are taken
    #[arg(long, value_name = "R", default_value_t = 20_000.0, value_parser = super::generate::rate)]
    pub rate: f64,
    /// Print one JSON object at the end, and nothing else
    #[arg(long)]
    pub json: bool,
}

/// Runs the demo.
pub fn run(args: &DemoArgs) -> Result<(), Failure> {
    let config = Config::parse(demo_policy_yaml(), Path::new("demo.yaml"), Purpose::Pipeline)?;
    let started = Instant::now();
    let (summary, releases, sample) = runtime()?.block_on(flow(args, &config))?;
    let elapsed = started.elapsed();
    if args.json {
        let mut object = json!(summary);
        object["seed"] = json!(args.seed);
        object["elapsed_ms"] = json!(elapsed.as_millis() as u64);
        object["per_release"] = Value::Array(releases);
        print(&object.to_string())?;
    } else {
        print(&closing(&summary, elapsed, &sample))?;
    }
    summary.not_met().map_or(Ok(()), |reason| Err(Failure::not_met(reason)))
}

async fn flow(args: &DemoArgs, config: &Config) -> Result<(Summary, Vec<Value>, Vec<String>), Failure> {
    let policy = Arc::new(config.policy.clone());
    let telemetry = Telemetry::new(&policy).map_err(|error| Failure::Outside(error.to_string()))?;
    let telemetry = Arc::new(telemetry);
    let (stopper, stop) = shutdown::channel();
    shutdown::on_signals(stopper).map_err(|error| Failure::io("cannot listen for signals", &error))?;
    let line = live_line(args.records);
    let subjects = match config.source {
        // As many people per record as in the file, whatever the number of records.
        SourceConfig::Generator { subjects, records: Some(records), .. } => {
            (u128::from(subjects) * u128::from(args.records) / u128::from(records.max(1))) as u64
        }
        _ => args.records,
    };
    let settings = GeneratorSettings {
        records: Some(args.records),
        rate: args.rate,
        seed: args.seed,
        subjects: Some(subjects.max(1)),
    };
    let pipeline = Pipeline {
        policy: Arc::clone(&policy),
        windows: config.window_rules(),
        scope: config.window.scope,
        choice: config.choice(),
        name: "demo".into(),
        seed: args.seed,
        telemetry: Arc::clone(&telemetry),
        clock: now,
    };
    let decoder = Preamble::Json.decoder(&policy.schema, config.limits.max_record_bytes as usize)?;
    let mut releases = Vec::new();
    let mut sample = Vec::new();
    let sink = TableSink::new(&policy, args.json, line.clone(), &mut releases, &mut sample);
    sink.title()?;
    let refresh = tokio::spawn({
        let (line, telemetry) = (line.clone(), Arc::clone(&telemetry));
        async move {
            loop {
                line.set_position(telemetry.records_read());
                tokio::time::sleep(REFRESH).await;
            }
        }
    });
    let summary = pipeline.run(GeneratorSource::new(settings), decoder, sink, stop).await;
    refresh.abort();
    line.finish_and_clear();
    Ok((summary?, releases, sample))
}

/// A line of progress on a terminal, nothing in a pipe.
fn live_line(records: u64) -> ProgressBar {
    let bar = ProgressBar::new(records);
    let template = "{spinner} {bar:30} {human_pos} of {human_len} records, {rate} per second, {elapsed}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        let rate = |state: &ProgressState, out: &mut dyn fmt::Write| {
            // A live line that cannot be drawn is not worth a failure.
            let _ = write!(out, "{}", HumanCount(state.per_sec() as u64));
        };
        bar.set_style(style.with_key("rate", rate));
    }
    bar
}

/// Prints a line per release. Publishes nowhere else: the rows end here, but for a few that are shown.
struct TableSink<'a> {
    policy: &'a Policy,
    quiet: bool,
    line: ProgressBar,
    releases: &'a mut Vec<Value>,
    sample: &'a mut Vec<String>,
}

impl<'a> TableSink<'a> {
    fn new(
        policy: &'a Policy,
        quiet: bool,
        line: ProgressBar,
        releases: &'a mut Vec<Value>,
        sample: &'a mut Vec<String>,
    ) -> Self {
        Self { policy, quiet, line, releases, sample }
    }

    fn title(&self) -> Result<(), Failure> {
        if self.quiet {
            return Ok(());
        }
        let names: Vec<&str> = self.policy.quasi.iter().map(|q| &*q.name).collect();
        let criteria: Vec<String> =
            Rules::new(self.policy).iter().map(|rule| format!("{} {}", rule.name(), rule.required())).collect();
        print(&format!(
            "Synthetic people, made safe window by window. Policy: {}; at most {}% suppressed.\n\
             Levels are those of {}; 0 is the value itself.\n\n{}",
            criteria.join(", "),
            self.policy.suppression.0 * 100.0,
            names.join(", "),
            header(self.policy.loss.as_str())
        ))
    }

    fn show(&self, text: &str) {
        // The live line steps aside; a reader of the table that went away is no reason to stop.
        self.line.suspend(|| drop(print(text)));
    }
}

impl Sink for TableSink<'_> {
    async fn publish(&mut self, release: &Release) -> Result<Delivery, SinkError> {
        let manifest = release.manifest();
        self.releases.push(figures(manifest));
        if self.quiet {
            return Ok(Delivery::Published);
        }
        self.show(&row(self.releases.len(), manifest, self.policy.loss.as_str()));
        if self.sample.is_empty() {
            *self.sample = sample(self.policy, release)?;
        }
        Ok(Delivery::Published)
    }

    async fn finish(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

fn header(loss: &str) -> String {
    format!(
        "{:>3} {:>8} {:>9} {:>10} {:>6} {:>5} {loss:>6}  {:<12} {:>7} {:>9}",
        "#", "records", "published", "suppressed", "held", "k", "levels", "checks", "search"
    )
}

fn row(number: usize, manifest: &Manifest, loss: &str) -> String {
    let from = &manifest.provenance;
    let levels: Vec<String> = from.recoding.iter().map(|attribute| attribute.level.to_string()).collect();
    let loss = from.loss(loss).map(|value| format!("{value:.3}"));
    let none = || "-".to_owned();
    format!(
        "{number:>3} {:>8} {:>9} {:>10} {:>6} {:>5} {:>6}  {:<12} {:>7} {:>6.1} ms",
        HumanCount(from.records_in).to_string(),
        HumanCount(from.records_published).to_string(),
        HumanCount(from.records_suppressed).to_string(),
        HumanCount(from.records_held).to_string(),
        manifest.k_achieved.map_or_else(none, |k| k.to_string()),
        loss.unwrap_or_else(none),
        levels.join(" "),
        from.nodes_checked,
        from.search_ms,
    )
}

/// One release for scripts. Totals only, as in its manifest.
fn figures(manifest: &Manifest) -> Value {
    let from = &manifest.provenance;
    let levels: serde_json::Map<_, _> =
        from.recoding.iter().map(|level| (level.attribute.clone(), json!(level.level))).collect();
    let losses: serde_json::Map<_, _> = from.losses.iter().map(|loss| (loss.name.clone(), json!(loss.value))).collect();
    json!({
        "release_id": from.release_id, "records_in": from.records_in, "records_published": from.records_published,
        "records_suppressed": from.records_suppressed, "records_held": from.records_held,
        "records_rejected": from.records_rejected, "k_achieved": manifest.k_achieved, "criteria": manifest.criteria,
        "loss": losses, "recoding": levels, "nodes_checked": from.nodes_checked, "search_ms": from.search_ms,
        "stop": from.stop,
    })
}

/// The first rows as a reader would get them.
fn sample(policy: &Policy, release: &Release) -> Result<Vec<String>, SinkError> {
    let mut encoder = JsonEncoder::new(&policy.schema);
    let mut rows = Vec::new();
    release.rows(|quasi, values| {
        if rows.len() < SAMPLE {
            let mut line = Vec::new();
            encoder.row(&PublishedRow { quasi, values }, &mut line)?;
            rows.push(String::from_utf8_lossy(line.trim_ascii_end()).into_owned());
        }
        Ok::<(), SinkError>(())
    })?;
    Ok(rows)
}

fn closing(summary: &Summary, elapsed: Duration, sample: &[String]) -> String {
    let count = |n: u64| HumanCount(n).to_string();
    let mut text = format!(
        "\n{} records in = {} published + {} suppressed + {} held + {} rejected\n{} releases in {:.1} s; every one was counted \
         by the gate before it left",
        count(summary.records_in),
        count(summary.records_published),
        count(summary.records_suppressed),
        count(summary.records_held),
        count(summary.records_rejected),
        summary.releases,
        elapsed.as_secs_f64(),
    );
    if !sample.is_empty() && io::stdout().is_terminal() {
        text.push_str("\n\nWhat a reader of the first release sees:");
        sample.iter().for_each(|row| text.push_str(&format!("\n  {row}")));
    }
    text
}
