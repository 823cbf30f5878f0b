//! One case: its records, its expectation, and how a release differs from it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::cli::shared::{Batch, Failure, OpenArgs, ReleaseReport, max_record_bytes};
use crate::codec::Format;
use crate::config::Config;
use crate::gate::Release;
use crate::model::event::{Event, Position};
use crate::source::{Preamble, file};

/// The rows of a difference that are shown. More hide the rest.
const SHOWN: usize = 5;

/// A file of cases.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseFile {
    /// The configuration, relative to this file.
    #[serde(deserialize_with = "path_of_a_policy")]
    pub(super) policy: PathBuf,
    /// The cases.
    pub(super) cases: Vec<Case>,
}

/// A configuration has its policy under the same key.
fn path_of_a_policy<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    PathBuf::deserialize(deserializer).map_err(|_| {
        serde::de::Error::custom(
            "`policy` is not a path: this looks like a configuration; a file of cases has `policy: FILE` and `cases` (see \
             `veilstream test --help`)",
        )
    })
}

/// Records, and what must become of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    /// What it shows.
    pub(super) name: String,
    #[serde(default)]
    records: Vec<Map<String, Value>>,
    #[serde(default)]
    file: Option<PathBuf>,
    expect: Expectation,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Expectation {
    published: Option<Number>,
    suppressed: Option<Number>,
    rejected: Option<Number>,
    rows: Option<Vec<Map<String, Value>>>,
    criteria: BTreeMap<String, f64>,
    loss: Option<f64>,
    never: Vec<String>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Number {
    Exactly(u64),
    Between(Between),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
struct Between {
    #[serde(default)]
    at_least: u64,
    #[serde(default = "any")]
    at_most: u64,
}

fn any() -> u64 {
    u64::MAX
}

impl Number {
    fn difference(self, what: &str, was: u64) -> Option<String> {
        match self {
            Self::Exactly(wanted) if wanted != was => Some(format!("{what}: expected {wanted}, was {was}")),
            Self::Between(Between { at_least, .. }) if was < at_least => {
                Some(format!("{what}: expected at least {at_least}, was {was}"))
            }
            Self::Between(Between { at_most, .. }) if was > at_most => {
                Some(format!("{what}: expected at most {at_most}, was {was}"))
            }
            _ => None,
        }
    }
}

impl Case {
    /// Makes the release; returns how it differs from the expectation.
    pub(super) fn run(&self, config: &Config, folder: &Path) -> Result<Vec<String>, Failure> {
        let (preamble, events) = self.events(config, folder)?;
        let batch = Batch::of_events(config, &preamble, &events)?;
        let release = batch.release_with_insight(config.choice.clone(), 0, None);
        batch.quiet();
        match release {
            Ok((release, _)) => self.compare(config, &batch, &release),
            Err(Failure::NotMet(reason)) => Ok(vec![reason]),
            Err(other) => Err(other),
        }
    }

    fn events(&self, config: &Config, folder: &Path) -> Result<(Preamble, Vec<Event>), Failure> {
        let mut events = Vec::new();
        match (&self.file, self.records.is_empty()) {
            (Some(path), true) => {
                let (read, input) = OpenArgs::default().open(&folder.join(path), max_record_bytes(config))?;
                let preamble = file::for_each_batch(read, input, |_, batch| {
                    events.extend(batch);
                    Ok(())
                })?;
                Ok((preamble, events))
            }
            (None, false) => {
                for (number, record) in self.records.iter().enumerate() {
                    let payload = Some(Bytes::from(Value::Object(record.clone()).to_string()));
                    events.push(Event {
                        position: Position::new(0, number as i64),
                        placement: 0,
                        timestamp: None,
                        key: None,
                        payload,
                    });
                }
                Ok((Preamble::Json, events))
            }
            _ => Err(Failure::Usage(format!("the case `{}` needs `records` or a `file`, and not both", self.name))),
        }
    }

    fn compare(&self, config: &Config, batch: &Batch, release: &Release) -> Result<Vec<String>, Failure> {
        let expect = &self.expect;
        let report = ReleaseReport::new(batch, release);
        let from = report.provenance();
        let mut differences: Vec<String> = [
            (expect.published, "published", from.records_published),
            (expect.suppressed, "suppressed", from.records_suppressed),
            (expect.rejected, "rejected", from.records_rejected),
        ]
        .into_iter()
        .filter_map(|(number, what, was)| number?.difference(what, was))
        .collect();
        differences.extend(expect.criteria.iter().filter_map(|(name, wanted)| criterion(&report, name, *wanted)));
        let lost = from.work.losses.iter().find(|loss| loss.name == config.policy.loss.as_str());
        if let (Some(most), Some(lost)) = (expect.loss, lost)
            && lost.value > most
        {
            differences.push(format!("loss ({}): expected at most {most}, was {:.4}", lost.name, lost.value));
        }
        let rows = rows(batch, release)?;
        if let Some(wanted) = &expect.rows {
            differences.extend(rows_apart(wanted, &rows));
        }
        for text in &expect.never {
            let found = rows.iter().filter(|row| row.values().any(|value| holds(value, text))).count();
            if found > 0 {
                differences.push(format!("never: `{text}` is in {found} published rows"));
            }
        }
        Ok(differences)
    }
}

/// How a criterion was missed: of distances less is better, of the others more.
fn criterion(report: &ReleaseReport, name: &str, wanted: f64) -> Option<String> {
    let Some(reached) = report.manifest.criteria.iter().find(|reached| reached.criterion.starts_with(name)) else {
        let known: Vec<&str> = report.manifest.criteria.iter().map(|reached| reached.criterion.as_str()).collect();
        return Some(format!("criteria: the policy has no `{name}`, but {}", known.join(", ")));
    };
    let less = ["t-closeness", "alpha-k"].contains(&name);
    let Some(achieved) = reached.achieved else {
        return Some(format!("{name}: expected {wanted}, nothing was published"));
    };
    let (met, side) = if less { (achieved <= wanted, "at most") } else { (achieved >= wanted, "at least") };
    (!met).then(|| format!("{name}: expected {side} {wanted}, was {achieved}"))
}

/// The published rows as JSON.
fn rows(batch: &Batch, release: &Release) -> Result<Vec<Map<String, Value>>, Failure> {
    let mut encoder = batch.preamble.encoder(&batch.policy.schema, Format::Json, Path::new(""))?;
    let mut text = Vec::new();
    let labels = release.labels(|quasi, out| encoder.labels(quasi, out));
    let written = release.labelled_rows(&labels, |labels, values| encoder.labelled(labels, values, &mut text));
    let written = written.and_then(|()| encoder.finish(&mut text));
    written.map_err(|error| Failure::Outside(error.to_string()))?;
    let rows: Result<Vec<_>, _> = serde_json::Deserializer::from_slice(&text).into_iter().collect();
    rows.map_err(|_| Failure::Outside("the published rows cannot be read back".into()))
}

/// The rows that are on one side only.
fn rows_apart(wanted: &[Map<String, Value>], published: &[Map<String, Value>]) -> Vec<String> {
    let mut counts: BTreeMap<String, i64> = BTreeMap::new();
    // Fields in one order: a reader of JSON does not see the order either.
    let text = |row: &Map<String, Value>| {
        let sorted: BTreeMap<&String, &Value> = row.iter().collect();
        serde_json::to_string(&sorted).unwrap_or_default()
    };
    wanted.iter().for_each(|row| *counts.entry(text(row)).or_default() += 1);
    published.iter().for_each(|row| *counts.entry(text(row)).or_default() -= 1);
    counts.retain(|_, count| *count != 0);
    let line = |(row, count): (&String, &i64)| match *count {
        missing if missing > 0 => format!("rows: expected {missing} more of {row}"),
        surplus => format!("rows: {} not expected of {row}", -surplus),
    };
    let mut lines: Vec<String> = counts.iter().take(SHOWN).map(line).collect();
    if counts.len() > SHOWN {
        lines.push(format!("rows: and {} more differences", counts.len() - SHOWN));
    }
    lines
}

/// True if the text is in a value, or in a value inside it.
fn holds(value: &Value, text: &str) -> bool {
    match value {
        Value::String(value) => value.contains(text),
        Value::Array(values) => values.iter().any(|value| holds(value, text)),
        Value::Object(object) => object.iter().any(|(key, value)| key.contains(text) || holds(value, text)),
        other => other.to_string().contains(text),
    }
}
