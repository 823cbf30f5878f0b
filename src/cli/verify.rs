//! `veilstream verify`: the gate on a file that was generalized before, by us or by others.
//!
//! Counts records: the subject is never published, so it cannot be counted here. A class is whatever rows show the same
//! values, whether or not they are labels of the policy's hierarchies.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use rustc_hash::FxHashMap;
use serde_json::json;

use super::input::name;
use super::{Failure, InputArgs, now, print};
use crate::config::{Config, Purpose};
use crate::encode::{Encoded, Encoder};
use crate::gate::{self, Refusal, Release};
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

/// Counts an already generalized file: does it satisfy the policy?
///
/// Reads the quasi-identifiers and the sensitive fields as they stand and lets the gate count every class. Exit code 0 if
/// all criteria hold; 1 if not, naming a class that fails by its values and its size. Records are counted, not subjects:
/// the subject is never published.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The policy, in YAML; other sections of a pipeline may be there
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    /// What to read.
    #[command(flatten)]
    pub input: InputArgs,
    /// One JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// Counts the file.
pub fn run(args: &VerifyArgs) -> Result<(), Failure> {
    let config = Config::load(&args.config, Purpose::Policy)?;
    let shown = name(&args.input.input);
    let batch = read(&config, &args.input)?;
    let rules = Rules::new(&config.policy).counting_records();
    match gate::verify(batch, &rules) {
        Ok(release) => {
            let by_subject = config.policy.schema.subject.is_some();
            print(&if args.json { passed_json(&release) } else { passed(&shown, by_subject, &release) })
        }
        Err(refusal) => {
            if args.json {
                print(&refused_json(&config.policy, &refusal))?;
            }
            Err(Failure::NotMet(refused(&shown, &config.policy, &refusal)))
        }
    }
}

/// Reads the published fields; a record that cannot be read cannot be vouched for.
fn read(config: &Config, args: &InputArgs) -> Result<GeneralizedBatch, Failure> {
    let policy = Arc::new(as_published(&config.policy));
    let (read, input) = args.open(config)?;
    let mut encoder = Encoder::new(Arc::clone(&policy));
    let mut tables = vec![Table::default(); policy.quasi.len()];
    let mut rows = Rows::new(policy.quasi.len(), policy.schema.sensitive.len());
    let mut cells = Vec::new();
    let mut bad: Option<(Position, Reject)> = None;
    let at = now();
    file::for_each_record_in(read, input, &policy.schema, |position, record| {
        let taken = record.and_then(|record| match encoder.encode(&record, None) {
            Encoded::Rejected(reject) => Err(reject),
            Encoded::Tombstone(_) => Err(Reject::record(RejectCode::Tombstone)),
            Encoded::Row | Encoded::Suppressed => {
                rows.push(position, at, encoder.row());
                let slots = policy.schema.quasi.iter().zip(&mut tables);
                cells.extend(slots.map(|(&slot, table)| table.code(exact(&record, slot))));
                Ok(())
            }
        });
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
    let tables = tables.into_iter().map(|table| table.labels.into()).collect();
    Ok(GeneralizedBatch::as_read(rows, tables, &cells, encoder.dictionaries().sensitive))
}

/// The policy over a file of labels: any value is known, and nothing but the published fields is there.
fn as_published(policy: &Policy) -> Policy {
    let any = Arc::new(Hierarchy::trivial());
    let schema = &policy.schema;
    let role = |slots: &[usize], role: Role| -> Vec<(String, Role)> {
        slots.iter().map(|&slot| (schema.name(slot).to_string(), role)).collect()
    };
    let fields = [role(&schema.quasi, Role::Quasi), role(&schema.sensitive, Role::Sensitive)].concat();
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

fn passed(shown: &str, by_subject: bool, release: &Release) -> String {
    let manifest = release.manifest();
    let mut text = format!(
        "{shown} satisfies the policy: {} records in {} classes, the smallest of {}{}",
        release.len(),
        manifest.classes,
        manifest.k_achieved.unwrap_or(0),
        if by_subject { "; counted in records, for the subject is not in the file" } else { "" },
    );
    for criterion in &manifest.criteria {
        if let Some(achieved) = criterion.achieved {
            text.push_str(&format!("\n  {}: {achieved}, {} required", criterion.criterion, criterion.required));
        }
    }
    text
}

fn passed_json(release: &Release) -> String {
    let manifest = release.manifest();
    json!({
        "satisfies": true, "counted": "records", "records": release.len(), "classes": manifest.classes,
        "k_achieved": manifest.k_achieved, "criteria": manifest.criteria,
    })
    .to_string()
}

fn refused(shown: &str, policy: &Policy, refusal: &Refusal) -> String {
    let value = |(q, label): (&crate::model::policy::QuasiIdentifier, &String)| format!("{} = {label}", q.name);
    let class: Vec<String> = policy.quasi.iter().zip(refusal.class()).map(value).collect();
    format!(
        "{shown} does not satisfy the policy: {} is not met\n  class: {}\n  size: {} records, reaches {}, {} required",
        refusal.criterion,
        class.join(", "),
        refusal.size,
        refusal.achieved,
        refusal.required,
    )
}

fn refused_json(policy: &Policy, refusal: &Refusal) -> String {
    let values = policy.quasi.iter().zip(refusal.class()).map(|(q, label)| (q.name.to_string(), json!(label)));
    let class: serde_json::Map<_, _> = values.collect();
    json!({
        "satisfies": false, "counted": "records", "criterion": refusal.criterion, "class": class, "size": refusal.size,
        "achieved": refusal.achieved, "required": refusal.required,
    })
    .to_string()
}
