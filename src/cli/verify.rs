//! `veilstream verify`: the gate on a file that was generalized before, by us or by others.
//!
//! Counts records: the subject is never published, so it cannot be counted here. A class is whatever rows show the same
//! values, whether or not they are labels of the policy's hierarchies. A file of several releases is judged release by
//! release: a class that only their rows together fill is too small.

mod report;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use rustc_hash::FxHashMap;
use serde::Deserialize;

use super::input::name;
use super::{Failure, InputArgs, now, print};
use crate::config::{Config, Purpose, SinkConfig};
use crate::encode::{Encoded, Encoder};
use crate::gate;
use crate::generalize::GeneralizedBatch;
use crate::model::batch::Rows;
use crate::model::domain::Code;
use crate::model::event::{Position, Reject, RejectCode};
use crate::model::hierarchy::Hierarchy;
use crate::model::policy::{Fallback, Policy};
use crate::model::record::{Record, Value};
use crate::model::schema::{Role, Schema};
use crate::privacy::Rules;
use crate::source::file;
use report::{Report, Verdict};

/// Counts an already generalized file: does it satisfy the policy?
///
/// Reads the quasi-identifiers and the sensitive fields as they stand and lets the gate count every class of every release.
/// Exit code 0 if all criteria hold; 1 if not, naming each release that fails, and a class of it by its values and its size.
/// Records are counted, not subjects: the subject is never published.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The policy, in YAML; other sections of a pipeline may be there
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    /// What to read.
    #[command(flatten)]
    pub input: InputArgs,
    /// The manifests of the file, one JSON object per line: the `rows` of each say how many rows of the file are its release,
    /// in order [default: that of `sink.file`, if it writes this file; else the file is one release]
    #[arg(long, value_name = "FILE")]
    pub manifest: Option<PathBuf>,
    /// The field of the file that names the release of a row
    #[arg(long, value_name = "NAME", conflicts_with = "manifest")]
    pub release_field: Option<String>,
    /// One JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// Counts the file.
pub fn run(args: &VerifyArgs) -> Result<(), Failure> {
    let config = Config::load(&args.config, Purpose::Policy)?;
    let releases = Releases::of(&config, args)?;
    let rules = Rules::new(&config.policy).counting_records();
    let verdict = |(release, batch): (Option<String>, GeneralizedBatch)| Verdict {
        release,
        records: batch.len(),
        outcome: gate::verify(batch, &rules),
    };
    let verdicts = read(&config, &args.input, &releases)?.into_iter().map(verdict).collect();
    let report = Report { file: name(&args.input.input), policy: &config.policy, rules: &rules, verdicts };
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

/// Which rows of the file are one release.
enum Releases {
    /// All of them.
    Whole,
    /// One after the other, as many as each says.
    Manifest(Vec<ManifestLine>),
    /// Those that have the same value in this field.
    Field(String),
}

/// As far as a release manifest speaks of the file.
#[derive(Deserialize)]
struct ManifestLine {
    release_id: String,
    rows: usize,
}

impl Releases {
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

/// The manifest that the configuration's sink writes beside `file`, if it is there.
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
            Failure::Usage(format!("{}: line {} is no manifest with `release_id` and `rows`", path.display(), i + 1))
        })
    };
    text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()).map(line).collect()
}

/// The rows of one release, as they are read.
struct Part {
    release: Option<String>,
    /// By a manifest: how many records the file has up to the end of this release.
    end: usize,
    rows: Rows,
    /// Label codes, row by row.
    cells: Vec<Code>,
}

/// The releases of a file.
struct Parts<'p> {
    policy: &'p Policy,
    list: Vec<Part>,
    by_name: FxHashMap<String, usize>,
}

impl<'p> Parts<'p> {
    fn of(releases: &Releases, policy: &'p Policy) -> Self {
        let mut parts = Self { policy, list: Vec::new(), by_name: FxHashMap::default() };
        match releases {
            Releases::Whole => parts.add(None, usize::MAX),
            Releases::Manifest(lines) => {
                let mut end = 0;
                for line in lines.iter().filter(|line| line.rows > 0) {
                    end += line.rows;
                    parts.add(Some(line.release_id.clone()), end);
                }
            }
            Releases::Field(_) => {}
        }
        parts
    }

    fn add(&mut self, release: Option<String>, end: usize) {
        let rows = Rows::new(self.policy.quasi.len(), self.policy.schema.sensitive.len());
        self.list.push(Part { release, end, rows, cells: Vec::new() });
    }

    /// The part of record number `at`; none if the manifest does not speak of it.
    fn of_record(&mut self, at: usize, record: &Record<'_>) -> Result<Option<&mut Part>, Reject> {
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

    /// Fails if a manifest speaks of more or fewer records than the file has.
    fn check(&self, releases: &Releases, records: usize, file: &Path) -> Result<(), Failure> {
        let rows = self.list.last().map_or(0, |part| part.end);
        if !matches!(releases, Releases::Manifest(_)) || rows == records {
            return Ok(());
        }
        let file = name(file);
        Err(Failure::Usage(format!(
            "{file} has {records} records, but there are {rows} rows in the manifest: they do not belong together"
        )))
    }
}

/// Reads the published fields, release by release; a record that cannot be read cannot be vouched for.
fn read(
    config: &Config,
    args: &InputArgs,
    releases: &Releases,
) -> Result<Vec<(Option<String>, GeneralizedBatch)>, Failure> {
    let field = match releases {
        Releases::Field(field) => Some(field.as_str()),
        Releases::Whole | Releases::Manifest(_) => None,
    };
    let policy = Arc::new(as_published(&config.policy, field));
    let (read, input) = args.open(config)?;
    let mut encoder = Encoder::new(Arc::clone(&policy));
    let mut tables = vec![Table::default(); policy.quasi.len()];
    let mut parts = Parts::of(releases, &policy);
    let mut records = 0;
    let mut bad: Option<(Position, Reject)> = None;
    let at = now();
    file::for_each_record_in(read, input, &policy.schema, |position, record| {
        let taken = record.and_then(|record| match encoder.encode(&record, None) {
            Encoded::Rejected(reject) => Err(reject),
            Encoded::Tombstone(_) => Err(Reject::record(RejectCode::Tombstone)),
            Encoded::Row | Encoded::Suppressed => {
                if let Some(part) = parts.of_record(records, &record)? {
                    part.rows.push(position, at, encoder.row());
                    let slots = policy.schema.quasi.iter().zip(&mut tables);
                    part.cells.extend(slots.map(|(&slot, table)| table.code(exact(&record, slot))));
                }
                Ok(())
            }
        });
        records += 1;
        if let (Err(reject), None) = (taken, &bad) {
            bad = Some((position, reject));
        }
    })?;
    if let Some((position, reject)) = bad {
        let field = reject.field.map_or(String::new(), |slot| format!(" in `{}`", policy.schema.name(slot)));
        return Err(Failure::NotMet(format!(
            "record {} of {} cannot be counted: {}{field}",
            position.offset.0 + 1,
            name(&args.input),
            reject.code.as_str()
        )));
    }
    parts.check(releases, records, &args.input)?;
    let tables: Vec<Arc<[String]>> = tables.into_iter().map(|table| table.labels.into()).collect();
    let dictionaries = encoder.dictionaries();
    let batch =
        |part: Part| (part.release, GeneralizedBatch::as_read(part.rows, tables.clone(), &part.cells, &dictionaries));
    Ok(parts.list.into_iter().map(batch).collect())
}

/// The policy over a file of labels: any value is known, and nothing but the published fields is there. The field that names
/// the release is read like a class label: every record must have it.
fn as_published(policy: &Policy, release_field: Option<&str>) -> Policy {
    let any = Arc::new(Hierarchy::trivial());
    let schema = &policy.schema;
    let role = |slots: &[usize], role: Role| -> Vec<(String, Role)> {
        slots.iter().map(|&slot| (schema.name(slot).to_string(), role)).collect()
    };
    let mut fields = role(&schema.quasi, Role::Quasi);
    fields.extend(role(&schema.sensitive, Role::Sensitive));
    fields.extend(role(&schema.keep, Role::Insensitive));
    fields.extend(release_field.map(|name| (name.to_owned(), Role::Label)));
    let mut published = policy.clone();
    published.schema = Schema::new(fields.iter().map(|(name, role)| (name.as_str(), *role)));
    published.quasi.iter_mut().for_each(|q| q.hierarchy = Arc::clone(&any));
    published.unknown_value = Fallback::Reject;
    published.missing_value = Fallback::Reject;
    published.null_value = Fallback::Reject;
    published
}

/// The value as a reader sees it: two spellings are two classes, even if they look alike.
fn exact<'a>(record: &'a Record<'_>, slot: usize) -> &'a str {
    match &record.values[slot] {
        Value::Text(text) | Value::Number(text) | Value::Nested(text) => text,
        Value::Bool(true) => "true",
        Value::Bool(false) => "false",
        Value::Missing | Value::Null => "",
    }
}

/// The labels of one column, as they come.
#[derive(Clone, Default)]
struct Table {
    labels: Vec<String>,
    codes: FxHashMap<String, Code>,
}

impl Table {
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
