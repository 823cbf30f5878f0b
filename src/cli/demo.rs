//! `veilstream demo`: runs the whole pipeline on synthetic records, without a broker and without files.
//!
//! Decoding, windows, searches, the gate and the accounting are those of the service; only the records are made up. A second run
//! of the same records with `recoding: local`, as fast as it can and without a table, gives the loss for comparison.

use std::fmt;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use indicatif::{HumanCount, ProgressBar, ProgressState, ProgressStyle};
use serde_json::{Value, json};

use super::shared::{Failure, for_terminal, max_record_bytes, pipeline, print, runtime};
use crate::codec::json::JsonEncoder;
use crate::codec::{Encode as _, PublishedRow};
use crate::config::{Config, Purpose, SourceConfig};
use crate::gate::Release;
use crate::model::policy::{Policy, RecodingKind};
use crate::model::release::manifest::{AttributeLevel, Manifest, rounded};
use crate::pipeline::Summary;
use crate::privacy::Rules;
use crate::sink::{Delivery, Sink, SinkError};
use crate::source::Preamble;
use crate::source::generator::{GeneratorSettings, GeneratorSource, demo_policy_yaml};

/// Published rows that are shown at the end.
const SAMPLE: usize = 3;
/// How often the live line is updated.
const REFRESH: Duration = Duration::from_millis(100);

/// Runs the whole pipeline on synthetic records and shows every release
///
/// Generates records of a skewed population, in which people return and the mix changes half way, and sends them through the
/// real pipeline. Prints one line per release, then the outcome of all records and what the same windows would lose with
/// `recoding: local`. Needs no broker and no file, and ends by itself.
#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// The seed; the same seed gives the same records
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// The number of records
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..))]
    records: u64,
    /// Records per second; 0 for no limit
    #[arg(long, value_name = "R", default_value_t = 20_000.0, value_parser = super::shared::rate)]
    rate: f64,
    /// Print one JSON object at the end, and nothing else
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &DemoArgs) -> Result<(), Failure> {
    let config = Config::parse(demo_policy_yaml(), Path::new("demo.yaml"), Purpose::Pipeline)?;
    let started = Instant::now();
    let Shown { summary, releases, sample, recoding } = runtime()?.block_on(flow(args, &config))?;
    let elapsed = started.elapsed();
    // After a signal there is nothing to compare.
    let local = (summary.records_in == args.records && summary.not_met().is_none())
        .then(|| with_local(args, &config))
        .transpose()?;
    let own = Side::of(&config.policy, &summary, &releases, recoding);
    let sides = own.zip(local.flatten());
    if args.json {
        let mut object = json!(summary);
        object["seed"] = json!(args.seed);
        object["elapsed_ms"] = json!(elapsed.as_millis() as u64);
        object["recoding"] = json!(config.policy.recoding.as_str());
        object["mean_loss"] = json!(sides.as_ref().map(|(own, _)| rounded(own.loss)));
        object["mean_loss_with_local"] = json!(sides.as_ref().map(|(_, local)| rounded(local.loss)));
        object["per_release"] = Value::Array(releases);
        print(&object.to_string())?;
    } else {
        let text = closing(&summary, elapsed, &config.policy, sides.as_ref(), &sample);
        print(&for_terminal(&text, &io::stdout()))?;
    }
    summary.not_met().map_or(Ok(()), |reason| Err(Failure::not_met(reason)))
}

/// The figures of a run.
struct Shown {
    summary: Summary,
    releases: Vec<Value>,
    sample: Vec<String>,
    /// The recoding of the last release that had rows.
    recoding: Vec<AttributeLevel>,
}

/// One recoding in the comparison at the end.
struct Side {
    loss: f64,
    left_out: f64,
    recoding: Vec<AttributeLevel>,
}

impl Side {
    /// `None` if nothing was published.
    fn of(policy: &Policy, summary: &Summary, releases: &[Value], recoding: Vec<AttributeLevel>) -> Option<Self> {
        let left_out = summary.records_suppressed as f64 / summary.records_in.max(1) as f64;
        mean_loss(policy, releases).map(|loss| Self { loss, left_out, recoding })
    }

    /// What most records show of a made-up value, on the levels of this recoding.
    fn shows(&self, policy: &Policy, at: usize, leaf: &str) -> String {
        let level = self.recoding.get(at).map(AttributeLevel::typical);
        let label = level.and_then(|level| policy.quasi[at].hierarchy.label(leaf, level));
        label.map_or("-".into(), |label| label.into_owned())
    }
}

/// The same windows with `recoding: local`.
fn with_local(args: &DemoArgs, config: &Config) -> Result<Option<Side>, Failure> {
    let mut local = config.clone();
    local.policy.recoding = RecodingKind::Local;
    let quick = DemoArgs { rate: 0.0, json: true, ..*args };
    let Shown { summary, releases, recoding, .. } = runtime()?.block_on(flow(&quick, &local))?;
    Ok(Side::of(&local.policy, &summary, &releases, recoding))
}

/// Both recodings side by side: what they lose, and what most records of the last release show of one made-up record.
fn side_by_side(policy: &Policy, own: &Side, local: &Side) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    let own_name = format!("recoding: {}", policy.recoding.as_str());
    table.set_header(["", "as read", &own_name, "recoding: local, mostly"]);
    let loss = format!("mean loss ({})", policy.loss.as_str());
    table.add_row([loss, "0".into(), format!("{:.3}", own.loss), format!("{:.3}", local.loss)]);
    let share = |side: &Side| format!("{:.1} %", 100.0 * side.left_out);
    table.add_row(["left out".to_owned(), "0 %".into(), share(own), share(local)]);
    for (at, quasi) in policy.quasi.iter().enumerate() {
        let Some(leaf) = quasi.hierarchy.example() else { continue };
        table.add_row([
            quasi.name.to_string(),
            leaf.clone(),
            own.shows(policy, at, &leaf),
            local.shows(policy, at, &leaf),
        ]);
    }
    format!("The same windows, and one made-up record before and after in the last release:\n{table}")
}

/// The mean loss of the records of all releases; a suppressed record loses everything.
fn mean_loss(policy: &Policy, releases: &[Value]) -> Option<f64> {
    let records = |release: &Value| release["records_in"].as_f64();
    let lost = |release: &Value| Some(records(release)? * release["loss"][policy.loss.as_str()].as_f64()?);
    let (all, lost): (Option<f64>, Option<f64>) = (releases.iter().map(records).sum(), releases.iter().map(lost).sum());
    all.filter(|all| *all > 0.0).zip(lost).map(|(all, lost)| lost / all)
}

async fn flow(args: &DemoArgs, config: &Config) -> Result<Shown, Failure> {
    let (pipeline, stop) = pipeline(config, "demo".into(), args.seed)?;
    let policy = Arc::clone(&pipeline.policy);
    let line = live_line(args.records);
    let subjects = match config.source {
        // As many people per record as in demo.yaml, for any number of records.
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
    let readers = vec![Preamble::Json.reader(&policy.schema, max_record_bytes(config))?];
    let (mut releases, mut sample, mut recoding) = (Vec::new(), Vec::new(), Vec::new());
    let sink = TableSink {
        policy: &policy,
        quiet: args.json,
        line: line.clone(),
        releases: &mut releases,
        sample: &mut sample,
        recoding: &mut recoding,
        words: String::new(),
    };
    sink.title()?;
    let refresh = tokio::spawn({
        let (line, telemetry) = (line.clone(), Arc::clone(&pipeline.telemetry));
        async move {
            loop {
                line.set_position(telemetry.records_read());
                tokio::time::sleep(REFRESH).await;
            }
        }
    });
    let summary = pipeline.run(GeneratorSource::new(settings), readers, sink, stop).await;
    refresh.abort();
    line.finish_and_clear();
    Ok(Shown { summary: summary?, releases, sample, recoding })
}

/// A line of progress on a terminal, nothing in a pipe.
fn live_line(records: u64) -> ProgressBar {
    let bar = ProgressBar::new(records);
    let template = "{spinner} {bar:30} {human_pos} of {human_len} records, {rate} per second, {elapsed}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        let rate = |state: &ProgressState, out: &mut dyn fmt::Write| {
            let _ = write!(out, "{}", HumanCount(state.per_sec() as u64));
        };
        bar.set_style(style.with_key("rate", rate));
    }
    bar
}

/// Prints a line per release, and keeps the first rows to show them at the end.
struct TableSink<'a> {
    policy: &'a Policy,
    quiet: bool,
    line: ProgressBar,
    releases: &'a mut Vec<Value>,
    sample: &'a mut Vec<String>,
    /// The recoding of the last release that had rows.
    recoding: &'a mut Vec<AttributeLevel>,
    /// What was done to each attribute in the last release; printed when it changes.
    words: String,
}

impl TableSink<'_> {
    fn title(&self) -> Result<(), Failure> {
        if self.quiet {
            return Ok(());
        }
        let criteria: Vec<String> =
            Rules::new(self.policy).iter().map(|rule| format!("{} {}", rule.name(), rule.required())).collect();
        print(&format!(
            "Synthetic records, anonymized window by window. Policy: {}; at most {}% suppressed.\n\
             Recoding: {}.\n\n{}",
            criteria.join(", "),
            self.policy.suppression.0 * 100.0,
            self.policy.recoding.as_str(),
            header(self.policy.loss.as_str())
        ))
    }
}

impl Sink for TableSink<'_> {
    async fn publish(&mut self, release: &Release) -> Result<Delivery, SinkError> {
        let manifest = release.manifest();
        self.releases.push(figures(manifest));
        if !release.is_empty() {
            self.recoding.clone_from(&manifest.provenance.recoding);
        }
        if self.quiet {
            return Ok(Delivery::Published);
        }
        let mut row = row(self.releases.len(), manifest, self.policy.loss.as_str());
        let words = self.policy.recoding_words(&manifest.provenance.recoding);
        if words != self.words && !release.is_empty() {
            row.push_str(&format!("\n    {words}"));
            self.words = words;
        }
        // Hides the live line meanwhile. A reader of the table that went away is no reason to stop.
        self.line.suspend(|| drop(print(&row)));
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
        "{:>3} {:>8} {:>9} {:>10} {:>6} {:>5} {loss:>6} {:>7} {:>9}",
        "#", "records", "published", "suppressed", "held", "k", "checks", "search"
    )
}

fn row(number: usize, manifest: &Manifest, loss: &str) -> String {
    let from = &manifest.provenance;
    let loss = from.loss(loss).map(|value| format!("{value:.3}"));
    let none = || "-".to_owned();
    format!(
        "{number:>3} {:>8} {:>9} {:>10} {:>6} {:>5} {:>6} {:>7} {:>6.1} ms",
        HumanCount(from.records_in).to_string(),
        HumanCount(from.records_published).to_string(),
        HumanCount(from.records_suppressed).to_string(),
        HumanCount(from.records_held).to_string(),
        manifest.k_achieved.map_or_else(none, |k| k.to_string()),
        loss.unwrap_or_else(none),
        from.nodes_checked,
        from.search_ms,
    )
}

/// One release for scripts: totals only, as in its manifest.
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

/// The first rows in the form in which they would be published.
fn sample(policy: &Policy, release: &Release) -> Result<Vec<String>, SinkError> {
    let mut encoder = JsonEncoder::new(&policy.schema.with_added());
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

/// The outcome for people; `sides` are these releases and the same windows with `recoding: local`.
fn closing(
    summary: &Summary,
    elapsed: Duration,
    policy: &Policy,
    sides: Option<&(Side, Side)>,
    sample: &[String],
) -> String {
    let count = |n: u64| HumanCount(n).to_string();
    let mut text = format!(
        "\n{} records in = {} published + {} suppressed + {} held + {} rejected\n{} releases in {:.1} s; the gate counted every \
         one before it was published",
        count(summary.records_in),
        count(summary.records_published),
        count(summary.records_suppressed),
        count(summary.records_held),
        count(summary.records_rejected),
        summary.releases,
        elapsed.as_secs_f64(),
    );
    if let Some((own, local)) = sides {
        text.push_str(&format!("\n\n{}", side_by_side(policy, own, local)));
    }
    if !sample.is_empty() && io::stdout().is_terminal() {
        text.push_str("\n\nRows of the first release, as published:");
        sample.iter().for_each(|row| text.push_str(&format!("\n  {row}")));
    }
    text
}
