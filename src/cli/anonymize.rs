//! `veilstream anonymize`: one release from a file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::batch::{Batch, progress};
use super::input::{is_standard, refuse_same_file};
use super::search::algorithm;
use super::{Failure, InputArgs, Report, report};
use crate::codec::{Encode, EncodeError, Format};
use crate::config::{Config, Purpose};
use crate::files::{FileError, Whole};
use crate::gate::Release;
use crate::plot::figure;
use crate::search::Algorithm;
use crate::source::Preamble;

/// How long the trade-off of a report may take. Longer keeps people waiting; shorter finds less in large files.
const LOOK: Duration = Duration::from_secs(2);
/// How much is written at once. Larger: more memory. Smaller: more system calls.
const WRITE_BYTES: usize = 256 << 10;

/// Makes one release from a CSV, JSONL or Avro file
///
/// Reads the whole file as one window, finds the generalization of least loss that satisfies the policy, lets the gate count the
/// result, and writes it. If the policy cannot be met nothing is written and the exit code is 1. The search has no time
/// limit unless `search.time_budget` is configured.
#[derive(Debug, Args)]
pub struct AnonymizeArgs {
    /// The policy, in YAML; other sections of a pipeline may be there
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    /// What to read.
    #[command(flatten)]
    pub input: InputArgs,
    /// Where to write the release; - is standard output. Its extension tells the format; without one it is the input's
    ///
    /// A file that is there is replaced when the new one is whole, and keeps its mode. Pipes and character devices are
    /// written to. A symbolic link to a file is refused: name the file itself.
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,
    /// Where to write the report: a page to hand on if it ends in .html, else one JSON object
    ///
    /// Written as OUT is, and only after it.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// The search [default: `search.algorithm` of the configuration]
    #[arg(long, value_name = "NAME", value_parser = algorithm)]
    pub algorithm: Option<Algorithm>,
    /// The seed of randomised searches; the same one gives the same bytes [default: `search.seed` of the configuration]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// Makes the release.
pub fn run(args: &AnonymizeArgs) -> Result<(), Failure> {
    let config = Config::load(&args.config, Purpose::Policy)?;
    let format = announced(&args.output)?;
    refuse_same_file(&args.input.input, &args.output, "is the file that is read")?;
    if let Some(report) = &args.report {
        refuse_same_file(&args.input.input, report, "is the file that is read")?;
        refuse_same_file(&args.output, report, "is the file of the release")?;
    }
    let progress = progress();
    let batch = Batch::read(&config, &args.input, &progress)?;
    let mut choice = config.choice();
    choice.algorithm = args.algorithm.unwrap_or(choice.algorithm);
    let seed = args.seed.or(config.search.seed);
    progress.set_message("searching");
    let page = args.report.as_deref().is_some_and(is_page);
    let look = page.then_some(LOOK);
    let (release, insight) = batch.release_and_look(choice, seed.unwrap_or_else(rand::random), look)?;
    progress.finish_and_clear();
    if let Some(rejections) = batch.rejections() {
        eprintln!("{rejections}");
    }
    let report = Report::new(&release);
    let written = args.report.as_deref().map(|path| {
        let text = if page {
            report::html::page(&report, &batch, &release, insight.as_ref())
        } else {
            serde_json::to_string_pretty(&report).map_err(|error| Failure::Outside(error.to_string()))? + "\n"
        };
        let mut file = Whole::create(path)?;
        file.write(text.as_bytes())?;
        Ok::<_, Failure>(file)
    });
    // It appears only after the release that it tells of.
    let written = written.transpose()?;
    if report.satisfies {
        write_release(&args.output, format, &batch, &release)?;
    }
    written.map_or(Ok(()), Whole::commit)?;
    if !report.satisfies {
        return Err(not_met(&report));
    }
    report.warnings().iter().for_each(|warning| eprintln!("{warning}"));
    eprintln!(
        "{} of {} records published, {} suppressed, {} rejected ({} %); smallest class {}; levels: {}",
        report.records_published,
        report.records_in,
        report.records_suppressed,
        report.records_rejected,
        figure(100.0 * report.records_rejected as f64 / report.records_in.max(1) as f64),
        report.k_achieved.map_or_else(|| "none".into(), |k| k.to_string()),
        report.levels(),
    );
    report
        .unmet_bounds
        .iter()
        .for_each(|unmet_bounds| eprintln!("a bound of `search.prefer` is not met: {unmet_bounds}"));
    Ok(())
}

/// Says that nothing was published, why, and what could help.
pub(super) fn not_met(report: &Report) -> Failure {
    let rejected = || Failure::NotMet("nothing was published: every record was rejected".into());
    report.unmet.map_or_else(rejected, Failure::not_met)
}

/// The format that the output's extension announces; none without an extension.
fn announced(output: &Path) -> Result<Option<Format>, Failure> {
    let format = Format::of_path(output);
    if format.is_none() && output.extension().is_some() {
        return Err(Failure::Usage(format!(
            "no format is known by the extension of {}: end it in {}, or in none for the input's format",
            output.display(),
            Format::EXTENSIONS
        )));
    }
    Ok(format)
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("html"))
}

fn write_release(output: &Path, format: Option<Format>, batch: &Batch, release: &Release) -> Result<(), Failure> {
    let format = format.unwrap_or(match batch.preamble {
        Preamble::Json => Format::Json,
        Preamble::Csv(_) => Format::Csv,
        Preamble::Avro(_) => Format::Avro,
    });
    let mut encoder = batch.preamble.encoder(&batch.policy.schema, format)?;
    let mut out = if is_standard(output) { Whole::stdout() } else { Whole::create(output)? };
    write_rows(release, &mut *encoder, &mut out).map_err(|error| match error {
        WriteError::File(error) => error.into(),
        WriteError::Encode(error) => Failure::Outside(format!("cannot write {}: {error}", output.display())),
    })?;
    Ok(out.commit()?)
}

#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

fn write_rows(release: &Release, encoder: &mut dyn Encode, out: &mut Whole) -> Result<(), WriteError> {
    let mut buffer = Vec::with_capacity(WRITE_BYTES * 2);
    encoder.header(&mut buffer);
    let labels = release.labels(|quasi, out| encoder.labels(quasi, out));
    release.labelled_rows(&labels, |labels, values| {
        encoder.labelled(labels, values, &mut buffer)?;
        if buffer.len() >= WRITE_BYTES {
            out.write(&buffer)?;
            buffer.clear();
        }
        Ok::<(), WriteError>(())
    })?;
    encoder.finish(&mut buffer);
    out.write(&buffer)?;
    Ok(())
}
