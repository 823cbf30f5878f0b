//! `veilstream anonymize`: one release from a file.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::batch::{Batch, progress};
use super::input::{is_standard, name};
use super::search::algorithm;
use super::{Failure, InputArgs, Report, report};
use crate::codec::{Encode, EncodeError, Format};
use crate::config::{Config, Purpose};
use crate::gate::Release;
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
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,
    /// Where to write the report: a page to hand on if it ends in .html, else one JSON object
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// The search [default: `search.algorithm` of the configuration]
    #[arg(long, value_name = "NAME", value_parser = algorithm)]
    pub algorithm: Option<Algorithm>,
    /// The same seed gives the same bytes [default: `search.seed` of the configuration, else a new one]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// Makes the release.
pub fn run(args: &AnonymizeArgs) -> Result<(), Failure> {
    let config = Config::load(&args.config, Purpose::Policy)?;
    refuse_same_file(&args.input.input, &args.output)?;
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
    let report = Report::new(&release, seed);
    if let Some(path) = &args.report {
        let text = if page {
            report::html::page(&report, &batch, &release, insight.as_ref())
        } else {
            serde_json::to_string_pretty(&report).map_err(|error| Failure::Outside(error.to_string()))? + "\n"
        };
        fs::write(path, text).map_err(|error| Failure::io(&format!("cannot write {}", path.display()), &error))?;
    }
    if !report.satisfies {
        return Err(not_met(&report));
    }
    write_release(&args.output, &batch, &release)?;
    eprintln!(
        "{} of {} records published, {} suppressed, {} rejected; smallest class {}; levels: {}",
        report.records_published,
        report.records_in,
        report.records_suppressed,
        report.records_rejected,
        report.k_achieved.map_or_else(|| "none".into(), |k| k.to_string()),
        report.levels(),
    );
    report.unmet_bounds.iter().for_each(|unmet_bounds| eprintln!("a bound of `search.prefer` is not met: {unmet_bounds}"));
    Ok(())
}

/// Says that nothing was published, why, and what could help.
pub(super) fn not_met(report: &Report) -> Failure {
    if report.records_rejected == report.records_in {
        return Failure::NotMet("nothing was published: every record was rejected".into());
    }
    let found = match report.stop.as_str() {
        "deadline" | "budget" | "cancelled" => "no generalization that satisfies it was found before the search ended",
        _ => "no permitted generalization satisfies it within the suppression limit",
    };
    Failure::NotMet(format!(
        "nothing was published: the policy is not met, {found}; raise `suppression.limit`, permit coarser levels \
         (`max_level`), or ask less of `privacy`"
    ))
}

fn refuse_same_file(input: &Path, output: &Path) -> Result<(), Failure> {
    let real = |path: &Path| fs::canonicalize(path).ok();
    if !is_standard(input) && real(input).is_some_and(|input| Some(input) == real(output)) {
        return Err(Failure::Usage(format!("{} is the file that is read: write to another file", name(output))));
    }
    Ok(())
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("html"))
}

/// Writes the rows beside `output` and moves them there when all are written: no half file is ever seen under that name.
fn write_release(output: &Path, batch: &Batch, release: &Release) -> Result<(), Failure> {
    let format = Format::of_path(output).unwrap_or(match batch.preamble {
        Preamble::Json => Format::Json,
        Preamble::Csv(_) => Format::Csv,
        Preamble::Avro(_) => Format::Avro,
    });
    let mut encoder = batch.preamble.encoder(&batch.policy.schema, format)?;
    if is_standard(output) {
        return match write_rows(release, &mut *encoder, &mut io::stdout().lock()) {
            Err(WriteError::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other.map_err(|error| error.failure("standard output")),
        };
    }
    let mut partial = output.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let shown = output.display().to_string();
    let written = File::create(&partial)
        .map_err(WriteError::Io)
        .and_then(|file| write_rows(release, &mut *encoder, &mut BufWriter::new(file)))
        .and_then(|()| fs::rename(&partial, output).map_err(WriteError::Io));
    written.map_err(|error| {
        // Best effort: what could not be written may not be removable either.
        let _ = fs::remove_file(&partial);
        error.failure(&shown)
    })
}

#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

impl WriteError {
    fn failure(&self, output: &str) -> Failure {
        match self {
            Self::Io(error) => Failure::io(&format!("cannot write {output}"), error),
            Self::Encode(error) => Failure::Outside(format!("cannot write {output}: {error}")),
        }
    }
}

fn write_rows(release: &Release, encoder: &mut dyn Encode, out: &mut dyn Write) -> Result<(), WriteError> {
    let mut buffer = Vec::with_capacity(WRITE_BYTES * 2);
    encoder.header(&mut buffer);
    let labels = release.labels(|quasi, out| encoder.labels(quasi, out));
    release.labelled_rows(&labels, |labels, values| {
        encoder.labelled(labels, values, &mut buffer)?;
        if buffer.len() >= WRITE_BYTES {
            out.write_all(&buffer)?;
            buffer.clear();
        }
        Ok::<(), WriteError>(())
    })?;
    encoder.finish(&mut buffer);
    out.write_all(&buffer)?;
    out.flush()?;
    Ok(())
}
