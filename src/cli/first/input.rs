//! The file or topic that a first policy is made of, read once.

use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::ProgressBar;
use secrecy::SecretString;

use crate::cli::shared::{Failure, OpenArgs, is_standard, reading, spinning, working};
use crate::codec::DEFAULT_MAX_RECORD_BYTES;
use crate::codec::csv::look_like_values;
use crate::codec::survey::ENOUGH;
use crate::kafka::client::Cluster;
use crate::kafka::source::sample::{self, SampleError};
use crate::model::event::Event;
use crate::profile::{Intake, TableProfile};
use crate::source::{Preamble, SourceError, file};

/// How many records of a topic are read. Larger: slower on long topics. Smaller: rare kinds of records are missed.
const MOST_OF_A_TOPIC: u64 = 1_000_000;

#[derive(Debug, Clone, Args)]
pub(super) struct FirstArgs {
    /// A CSV, JSON, Avro or Parquet file, - for standard input; or, with --brokers, a topic of JSON messages
    #[arg(value_name = "FILE|TOPIC")]
    pub(super) input: PathBuf,
    #[command(flatten)]
    pub(super) open: OpenArgs,
    /// The Kafka cluster of the topic; HOST:PORT, several separated by commas
    #[arg(long, value_name = "ADDRESS")]
    pub(super) brokers: Option<String>,
    /// The most records of a topic, the last ones of each partition
    #[arg(long, value_name = "N", default_value_t = MOST_OF_A_TOPIC, requires = "brokers")]
    records: u64,
    /// A property for librdkafka, such as security.protocol=ssl; may be repeated
    #[arg(short = 'X', long = "property", value_name = "NAME=VALUE", requires = "brokers", value_parser = crate::cli::generate::property)]
    properties: Vec<(String, SecretString)>,
    /// The field that says whose a record is: people are counted by it
    #[arg(long, value_name = "FIELD")]
    pub(super) subject: Option<String>,
}

/// An input that was read once.
pub(super) struct FirstInput {
    /// Its fields in figures.
    pub(super) profile: TableProfile,
    /// Its header or schema.
    pub(super) preamble: Preamble,
    /// A sample of its records, in memory only.
    pub(super) events: Vec<Event>,
    /// True if older records of a topic were not read.
    pub(super) left_out: bool,
}

impl FirstArgs {
    /// Reads the input and keeps up to `raw` records in memory.
    pub(super) fn read(&self, raw: usize) -> Result<FirstInput, Failure> {
        let (intake, left_out, progress) = match &self.brokers {
            Some(brokers) => self.topic(brokers, raw)?,
            None => self.file(raw)?,
        };
        working(&progress, "counting".into());
        let (profile, preamble, events) = intake.finish()?;
        progress.finish_and_clear();
        if matches!(preamble, Preamble::Json) && profile.records == 1 && self.brokers.is_none() {
            return Err(Failure::Usage(format!(
                "{} is one JSON object: if the records stand in an array of it, write these as lines, such as with `jq -c '.features[]'`; \
                 a policy that is written by hand can read them as they are, with `explode` and the array's name",
                self.name()
            )));
        }
        if profile.records == profile.rejected {
            return Err(Failure::Usage(match profile.records {
                0 => format!("{} has no record", self.name()),
                _ if self.brokers.is_some() => format!(
                    "no record of {} is JSON: of a topic in Avro, Protobuf or with a schema registry, write its records to a file, or write \
                     the policy by hand and see `validate --sample`",
                    self.name()
                ),
                _ => format!("no record of {} can be read: check --format and --delimiter", self.name()),
            }));
        }
        if profile.names.is_empty() {
            return Err(Failure::Usage(format!(
                "no field is in {ENOUGH} records of {}: names that fewer have may be people's, and are not told; give more records",
                self.name()
            )));
        }
        if matches!(preamble, Preamble::Csv(_)) && look_like_values(&profile.names) {
            return Err(Failure::Usage(format!(
                "the first line of {} looks like a record: it must name the columns, each with a word",
                self.name()
            )));
        }
        if let (Some(subject), None) = (&self.subject, profile.subject) {
            let known = profile.names.join(", ");
            return Err(Failure::Usage(format!(
                "{} has no field `{subject}`: --subject takes one of {known}",
                self.name()
            )));
        }
        Ok(FirstInput { profile, preamble, events, left_out })
    }

    /// The name of the input in messages.
    pub(super) fn name(&self) -> String {
        match &self.brokers {
            Some(_) => format!("the topic {}", self.input.display()),
            None if is_standard(&self.input) => "standard input".into(),
            None => self.input.display().to_string(),
        }
    }

    /// The folder in which hierarchies may lie, if the input is a file.
    pub(super) fn folder(&self) -> Option<&Path> {
        let file = self.brokers.is_none() && !is_standard(&self.input);
        file.then(|| self.input.parent()).flatten()
    }

    fn file(&self, raw: usize) -> Result<(Intake, bool, ProgressBar), Failure> {
        if self.brokers.is_none() && !is_standard(&self.input) && !self.input.exists() {
            return Err(Failure::Usage(format!(
                "{} is no file: check the path, or give --brokers if it is a topic",
                self.input.display()
            )));
        }
        let (read, input) = self.open.open(&self.input, DEFAULT_MAX_RECORD_BYTES)?;
        let (progress, read) = reading(&self.input, read);
        let mut intake: Option<Intake> = None;
        let preamble = file::for_each_batch(read, input, |preamble, events| {
            let new = || Intake::new(preamble.clone(), self.subject.clone(), DEFAULT_MAX_RECORD_BYTES, raw);
            Ok::<(), SourceError>(intake.get_or_insert_with(new).take(events)?)
        })?;
        let none = || Intake::new(preamble, self.subject.clone(), DEFAULT_MAX_RECORD_BYTES, raw);
        Ok((intake.unwrap_or_else(none), false, progress))
    }

    fn topic(&self, brokers: &str, raw: usize) -> Result<(Intake, bool, ProgressBar), Failure> {
        let progress = spinning();
        let topic = self.input.to_str().ok_or_else(|| Failure::Usage("the name of the topic is not UTF-8".into()))?;
        let cluster =
            Cluster { brokers: brokers.to_owned(), properties: self.properties.iter().cloned().collect(), login: None };
        let mut intake = Intake::new(Preamble::Json, self.subject.clone(), DEFAULT_MAX_RECORD_BYTES, raw);
        let left_out = sample::for_each_batch(&cluster, topic, self.records, |events| {
            progress.inc(events.len() as u64);
            intake.take(events).map_err(Failure::from)
        })?;
        Ok((intake, left_out, progress))
    }
}

impl From<SampleError> for Failure {
    fn from(error: SampleError) -> Self {
        match error {
            SampleError::NoTopic(_) => Self::Usage(error.to_string()),
            SampleError::Kafka(_) => Self::Outside(format!("{error}; check --brokers and -X")),
        }
    }
}
