//! `veilstream anonymize`: makes one release from a file.
//!
//! The release, and then its report, which names the SHA-256 of the release, appear under their names only when they are complete.

mod advice;
mod page;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use indicatif::ProgressBar;

use super::search::recodings::others;
use super::shared::{
    Batch, Failure, FileDigest, InputArgs, ReleaseReport, algorithm, is_standard, now, refuse_same_file, tell,
};
use crate::codec::compress::Compression;
use crate::codec::{Encode, EncodeError, Format};
use crate::files::{FileError, ReplacedFile};
use crate::gate::Release;
use crate::model::policy::RecodingKind;
use crate::plot::figure;
use crate::search::Algorithm;
use page::Sheet;

/// How long the trade-off of a report may take. Longer keeps people waiting; shorter finds less in large files.
const INSIGHT_TIME: Duration = Duration::from_secs(2);
/// How much is written at once. Larger: more memory. Smaller: more system calls.
const WRITE_BYTES: usize = 256 << 10;

/// Makes one release from a CSV, JSON, Avro or Parquet file
///
/// Reads the whole file as one window, finds the generalization of least loss that satisfies the policy, lets the gate
/// count the result, and writes it. If the policy cannot be met, nothing is written and the exit code is 1. The search
/// has no time limit unless `search.time_budget` is configured.
#[derive(Debug, Args)]
pub(super) struct AnonymizeArgs {
    #[command(flatten)]
    input: InputArgs,
    /// The file for the release; - is standard output. Its extension sets the format; without one, the input's format is used
    ///
    /// An existing file is replaced when the new one is complete, and keeps its mode. Pipes and character devices are
    /// written directly. A symbolic link to a file is refused: name the file itself.
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// The file for the report: a web page if its name ends in .html, otherwise one JSON object
    ///
    /// It is written in the same way as OUT, and after it; `verify --report` checks that it is about OUT and its policy.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The search [default: `search.algorithm` of the configuration]
    #[arg(long, value_name = "NAME", value_parser = algorithm)]
    algorithm: Option<Algorithm>,
    /// The seed of randomised searches; the same seed gives the same bytes [default: `search.seed` of the configuration]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

pub(super) fn run(args: &AnonymizeArgs) -> Result<(), Failure> {
    let config = args.input.load()?;
    if let (RecodingKind::Local, Some(algorithm)) = (config.policy.recoding, args.algorithm) {
        return Err(Failure::Usage(format!(
            "`recoding: local` follows a schedule that it learns, and `{}` finds none: remove --algorithm",
            algorithm.as_str()
        )));
    }
    let format = announced(&args.output)?;
    refuse_same_file(&args.input.input, &args.output, "is the file that is read")?;
    if let Some(report) = &args.report {
        refuse_same_file(&args.input.input, report, "is the file that is read")?;
        refuse_same_file(&args.output, report, "is the file of the release")?;
    }
    let batch = Batch::read(&config, &args.input)?;
    let mut choice = config.choice.clone();
    choice.algorithm = args.algorithm.unwrap_or(choice.algorithm);
    let seed = args.seed.or(config.seed).unwrap_or_else(rand::random);
    batch.working("searching".into());
    let page = args.report.as_deref().is_some_and(is_page);
    let look = args.report.as_ref().map(|_| if page { INSIGHT_TIME } else { Duration::ZERO });
    let (release, insight) = batch.release_with_insight(choice.clone(), seed, look)?;
    let mut report = match &args.report {
        Some(_) => ReleaseReport::measured(&batch, &release).with_insight(&batch, insight.as_ref()),
        None => ReleaseReport::new(&batch, &release),
    };
    let advice = if page { advice::advice(&batch, &choice, seed, &report) } else { Vec::new() };
    let others = if page { others(&config, &batch, &choice, seed)? } else { Vec::new() };
    let mut report_file = args.report.as_deref().map(ReplacedFile::create).transpose()?;
    let mut published = None;
    if report.satisfies {
        let (file, sha256) = write_release(&args.output, format, &batch, &release)?;
        (published, report.published_sha256) = (Some(file), Some(sha256));
    }
    batch.finish();
    if let Some(file) = &mut report_file {
        let (name, policy_text) = (args.input.file_name(), args.input.policy_text());
        let sheet = Sheet {
            report: &report,
            config: &config,
            batch: &batch,
            release: &release,
            insight: insight.as_ref(),
            advice: &advice,
            others: &others,
            file: &name,
            policy_text: policy_text.as_deref(),
            at: now(),
        };
        let text = if page { page::page(&sheet) } else { format!("{:#}\n", report.json()) };
        file.write(text.as_bytes())?;
    }
    published.map_or(Ok(()), ReplacedFile::commit)?;
    report_file.map_or(Ok(()), ReplacedFile::commit)?;
    if !report.satisfies {
        return Err(report.not_met());
    }
    summarize(&report);
    Ok(())
}

/// Prints warnings and the outcome for people.
fn summarize(report: &ReleaseReport) {
    report.warnings().iter().for_each(|warning| tell!("{warning}"));
    let from = report.provenance();
    tell!(
        "{} of {} records published, {} suppressed, {} rejected ({} %); smallest class {}; {}",
        from.records_published,
        from.records_in,
        from.records_suppressed,
        from.records_rejected,
        figure(100.0 * from.records_rejected as f64 / from.records_in.max(1) as f64),
        report.manifest.k_achieved.map_or_else(|| "none".into(), |k| k.to_string()),
        report.words,
    );
    if report.satisfies && !report.example.is_empty() {
        tell!("{}", report.example);
    }
    for bound in &from.unmet_bounds {
        tell!("a bound of `search.prefer` is not met: {bound}");
    }
}

/// The format that the output's extension announces; none without an extension.
fn announced(output: &Path) -> Result<Option<Format>, Failure> {
    let format = Format::of_path(output);
    if format.is_none() && output.extension().is_some() {
        return Err(Failure::Usage(format!(
            "the extension of {} names no known format: end the name in {}, or in none for the input's format",
            output.display(),
            Format::EXTENSIONS
        )));
    }
    if matches!(format, Some(Format::Avro | Format::Parquet)) && Compression::of_path(output).is_some() {
        return Err(Failure::Usage(format!(
            "{} is compressed already, or compresses by itself: end the name of the output without .gz or .zst",
            format.map_or("", Format::as_str)
        )));
    }
    Ok(format)
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("html"))
}

/// Writes the release and leaves it to be committed, with the SHA-256 of its bytes.
fn write_release(
    output: &Path,
    format: Option<Format>,
    batch: &Batch,
    release: &Release,
) -> Result<(ReplacedFile, String), Failure> {
    let format = format.unwrap_or_else(|| batch.preamble.format());
    let mut encoder = batch.preamble.encoder(&batch.policy.schema.with_added(), format, output)?;
    let mut out = if is_standard(output) { ReplacedFile::stdout() } else { ReplacedFile::create(output)? };
    let written =
        write_rows(release, &mut *encoder, &mut out, &batch.writing(release.len())).map_err(|error| match error {
            WriteError::File(error) => error.into(),
            WriteError::Encode(error) => Failure::Outside(format!("cannot write {}: {error}", output.display())),
        })?;
    Ok((out, written))
}

#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

fn write_rows(
    release: &Release,
    encoder: &mut dyn Encode,
    out: &mut ReplacedFile,
    progress: &ProgressBar,
) -> Result<String, WriteError> {
    let mut fingerprint = FileDigest::default();
    let mut buffer = Vec::with_capacity(WRITE_BYTES * 2);
    encoder.header(&mut buffer);
    let labels = release.labels(|quasi, out| encoder.labels(quasi, out));
    let mut rows = 0;
    release.labelled_rows(&labels, |labels, values| {
        encoder.labelled(labels, values, &mut buffer)?;
        rows += 1;
        if buffer.len() >= WRITE_BYTES {
            progress.inc(std::mem::take(&mut rows));
            fingerprint.update(&buffer);
            out.write(&buffer)?;
            buffer.clear();
        }
        Ok::<(), WriteError>(())
    })?;
    encoder.finish(&mut buffer)?;
    fingerprint.update(&buffer);
    out.write(&buffer)?;
    Ok(fingerprint.finish())
}
