//! `veilstream verify`: runs the gate on a file that is already generalized, by Veilstream or another program.
//!
//! Counts records: the subject is never published, so it cannot be counted here. A class is all rows with the same values,
//! whether or not these are labels of the policy's hierarchies. A file of several releases is checked release by release: a
//! class that is large enough only over several releases is too small. In a changelog the rows that come and those that leave are
//! classes of their own.

mod report;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use rustc_hash::FxHashMap;
use serde::Deserialize;

use super::shared::{Failure, InputArgs, check_report, is_standard, now, print, reading, tell};
use crate::config::{Config, SinkConfig};
use crate::encode::{Encoded, Encoder};
use crate::gate;
use crate::generalize::GeneralizedBatch;
use crate::model::batch::Rows;
use crate::model::domain::Code;
use crate::model::event::{Position, Reject, RejectCode};
use crate::model::hierarchy::Hierarchy;
use crate::model::policy::{Fallback, Policy, QuasiIdentifier};
use crate::model::record::{Record, Value};
use crate::model::schema::{AddedFields, Role, Schema};
use crate::privacy::Rules;
use crate::source::file;
use crate::window::WindowRules;
use report::{FileReport, ReleaseVerdict};

/// Checks whether an already generalized file satisfies the policy
///
/// Reads the quasi-identifiers and the sensitive fields as they are and lets the gate count every class of every release.
/// The exit code is 0 if all criteria hold and 1 if not; then each failing release is named, with the values and the size of
/// one of its classes. Counts records, not subjects: the subject is never published.
#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    input: InputArgs,
    /// The manifests of the file, one JSON object per line; `rows` is the number of rows of each release, in order
    /// [default: the manifest of `sink.file`, if that sink writes this file; otherwise the file is one release]
    #[arg(long, value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// The field that names the release of each row
    #[arg(long, value_name = "NAME", conflicts_with = "manifest")]
    release_field: Option<String>,
    /// A report of `anonymize --report`: fail unless it is about this file, byte by byte, and this policy
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &VerifyArgs) -> Result<(), Failure> {
    let config = args.input.load()?;
    let division = Division::of(&config, args)?;
    if let Some(report) = &args.report {
        if is_standard(&args.input.input) {
            return Err(Failure::Usage("--report needs a file: standard input can be read only once".into()));
        }
        check_report(report, &args.input.input, &config.policy.fingerprint)?;
        tell!("{} is about this file and this policy", report.display());
    }
    let rules = Rules::new(&config.policy).counting_records();
    let verdict = |(release, batch): (Option<String>, GeneralizedBatch)| ReleaseVerdict {
        release,
        records: batch.len(),
        outcome: gate::verify(batch, &rules),
    };
    let verdicts = read(&config, &args.input, &division)?.into_iter().map(verdict).collect();
    let report = FileReport { file: args.input.name(), policy: &config.policy, rules: &rules, verdicts };
    match report.satisfies() {
        true => print(&if args.json { report.json() } else { report.passed() }),
        false => {
            if args.json {
                print(&report.json())?;
            }
            Err(Failure::NotMet(report.refused()))
        }
    }
}

/// How the file is divided into releases.
enum Division {
    /// The file is one release.
    Whole,
    /// Consecutive rows, by the lengths in the manifests.
    Manifest(Vec<ManifestLine>),
    /// Rows with the same value in this field.
    Field(String),
}

/// The part of a release manifest that divides the file.
#[derive(Deserialize)]
struct ManifestLine {
    release_id: String,
    rows: usize,
}

impl Division {
    fn of(config: &Config, args: &VerifyArgs) -> Result<Self, Failure> {
        if let Some(field) = &args.release_field {
            return Ok(Self::Field(field.clone()));
        }
        match args.manifest.as_deref().or_else(|| own_manifest(config, &args.input.input)) {
            Some(path) => manifest(path).map(Self::Manifest),
            None => Ok(Self::Whole),
        }
    }
}

/// The manifest that the configured sink writes beside `file`, if it exists.
fn own_manifest<'c>(config: &'c Config, file: &Path) -> Option<&'c Path> {
    let SinkConfig::File { path, manifest: Some(manifest), .. } = &config.sink else { return None };
    let real = fs::canonicalize(file).ok()?;
    (fs::canonicalize(path).ok()? == real && manifest.exists()).then_some(manifest)
}

fn manifest(path: &Path) -> Result<Vec<ManifestLine>, Failure> {
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::io(&format!("cannot read the manifest {}", path.display()), &error))?;
    let line = |(i, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|_| {
            Failure::Usage(format!("{}: line {} is not a manifest with `release_id` and `rows`", path.display(), i + 1))
        })
    };
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(line).collect()
}

/// The rows of one release, as they are read.
struct ReleaseRows {
    release: Option<String>,
    /// The number of records in the file up to the end of this release, by the manifest.
    end: usize,
    rows: Rows,
    /// Label codes, row by row.
    cells: Vec<Code>,
}

/// The releases of a file.
struct DividedRows<'p> {
    policy: &'p Policy,
    list: Vec<ReleaseRows>,
    by_name: FxHashMap<String, usize>,
}

impl<'p> DividedRows<'p> {
    fn new(division: &Division, policy: &'p Policy) -> Self {
        let mut parts = Self { policy, list: Vec::new(), by_name: FxHashMap::default() };
        match division {
            Division::Whole => parts.add(None, usize::MAX),
            Division::Manifest(lines) => {
                let mut end = 0;
                for line in lines.iter().filter(|line| line.rows > 0) {
                    end += line.rows;
                    parts.add(Some(line.release_id.clone()), end);
                }
            }
            Division::Field(_) => {}
        }
        parts
    }

    fn add(&mut self, release: Option<String>, end: usize) {
        let rows = Rows::new(self.policy.quasi.len(), self.policy.schema.sensitive.len());
        self.list.push(ReleaseRows { release, end, rows, cells: Vec::new() });
    }

    /// The release of record number `at`; none if the manifest ends before it.
    fn of_record(&mut self, at: usize, record: &Record<'_>) -> Result<Option<&mut ReleaseRows>, Reject> {
        let Some(slot) = self.policy.schema.label else {
            let part = self.list.partition_point(|part| part.end <= at);
            return Ok(self.list.get_mut(part));
        };
        let name = exact(record, slot);
        if name.is_empty() {
            return Err(Reject::field(RejectCode::MissingField, slot));
        }
        let part = self.by_name.get(name).copied().unwrap_or_else(|| {
            self.by_name.insert(name.to_owned(), self.list.len());
            self.add(Some(name.to_owned()), usize::MAX);
            self.list.len() - 1
        });
        Ok(self.list.get_mut(part))
    }

    /// Fails if a manifest counts more or fewer records than the file has.
    fn check(&self, division: &Division, records: usize, file: &str) -> Result<(), Failure> {
        let rows = self.list.last().map_or(0, |part| part.end);
        if !matches!(division, Division::Manifest(_)) || rows == records {
            return Ok(());
        }
        Err(Failure::Usage(format!(
            "{file} has {records} records, but there are {rows} rows in the manifest: they do not belong together"
        )))
    }
}

/// Reads the published fields, release by release. Fails if a record cannot be read, because then it cannot be checked.
fn read(
    config: &Config,
    args: &InputArgs,
    division: &Division,
) -> Result<Vec<(Option<String>, GeneralizedBatch)>, Failure> {
    let field = match division {
        Division::Field(field) => Some(field.as_str()),
        Division::Whole | Division::Manifest(_) => None,
    };
    let changelog = matches!(&config.windows, WindowRules::Sliding(rules) if rules.changes);
    let policy = Arc::new(as_published(&config.policy, field, changelog));
    let (read, input) = args.open(config)?;
    let (progress, read) = reading(&args.input, read);
    let mut encoder = Encoder::new(Arc::clone(&policy));
    let mut tables = vec![LabelCodes::default(); policy.quasi.len()];
    let mut parts = DividedRows::new(division, &policy);
    let mut records = 0;
    let mut bad: Option<(Position, Reject)> = None;
    let at = now();
    file::for_each_record(read, input, &policy.schema, |position, record| {
        let taken = record.and_then(|record| match encoder.encode(record, None) {
            Encoded::Rejected(reject) => Err(reject),
            Encoded::Tombstone(_) => Err(Reject::record(RejectCode::Tombstone)),
            Encoded::Row | Encoded::Suppressed => {
                if let Some(part) = parts.of_record(records, record)? {
                    part.rows.push(position, at, encoder.row());
                    let slots = policy.schema.quasi.iter().zip(&mut tables);
                    part.cells.extend(slots.map(|(&slot, table)| table.code(exact(record, slot))));
                }
                Ok(())
            }
        });
        records += 1;
        if let (Err(reject), None) = (taken, &bad) {
            bad = Some((position, reject));
        }
    })?;
    progress.finish_and_clear();
    if let Some((position, reject)) = bad {
        let field = reject.field.map_or(String::new(), |slot| format!(" in `{}`", policy.schema.name(slot)));
        return Err(Failure::NotMet(format!(
            "record {} of {} cannot be counted: {}{field}",
            position.offset.0 + 1,
            args.name(),
            reject.code.as_str()
        )));
    }
    parts.check(division, records, &args.name())?;
    let tables: Vec<Arc<[String]>> = tables.into_iter().map(|table| table.labels.into()).collect();
    let dictionaries = encoder.dictionaries();
    let batch = |part: ReleaseRows| {
        (part.release, GeneralizedBatch::as_read(part.rows, tables.clone(), &part.cells, &dictionaries))
    };
    Ok(parts.list.into_iter().map(batch).collect())
}

/// The policy for a file of labels: every value is known, and only the published fields exist. The field that names the
/// release is read like a class label: every record must have it. The field `change` of a changelog counts as a part of the row.
fn as_published(policy: &Policy, release_field: Option<&str>, changelog: bool) -> Policy {
    let any = Arc::new(Hierarchy::trivial());
    let schema = &policy.schema;
    let role = |slots: &[usize], role: Role| -> Vec<(String, Role)> {
        slots.iter().map(|&slot| (schema.name(slot).to_string(), role)).collect()
    };
    let mut fields = role(&schema.quasi, Role::Quasi);
    fields.extend(changelog.then(|| (AddedFields::CHANGE.to_owned(), Role::Quasi)));
    fields.extend(role(&schema.sensitive, Role::Sensitive));
    fields.extend(role(&schema.keep, Role::Insensitive));
    fields.extend(release_field.map(|name| (name.to_owned(), Role::Label)));
    let mut published = policy.clone();
    published.schema = Schema::new(fields.iter().map(|(name, role)| (name.as_str(), *role)));
    published.quasi.iter_mut().for_each(|q| q.hierarchy = Arc::clone(&any));
    if let Some(like) = published.quasi.first().filter(|_| changelog).cloned() {
        published.quasi.push(QuasiIdentifier { name: AddedFields::CHANGE.into(), ..like });
    }
    published.unknown_value = Fallback::Reject;
    published.missing_value = Fallback::Reject;
    published.null_value = Fallback::Reject;
    published
}

/// The value exactly as written: two spellings of a number are two classes.
fn exact<'a>(record: &'a Record<'_>, slot: usize) -> &'a str {
    match &record.values[slot] {
        Value::Text(text) | Value::Number(text) | Value::Nested(text) => text,
        Value::Bool(true) => "true",
        Value::Bool(false) => "false",
        Value::Missing | Value::Null => "",
    }
}

/// The labels of one column, in the order of their first appearance.
#[derive(Clone, Default)]
struct LabelCodes {
    labels: Vec<String>,
    codes: FxHashMap<String, Code>,
}

impl LabelCodes {
    fn code(&mut self, label: &str) -> Code {
        if let Some(&code) = self.codes.get(label) {
            return code;
        }
        let code = self.labels.len() as Code;
        self.labels.push(label.to_owned());
        self.codes.insert(label.to_owned(), code);
        code
    }
}
