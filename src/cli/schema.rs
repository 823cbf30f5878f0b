//! `veilstream schema`: prints the JSON Schema of the configuration, the reference that is made from it, or the schema of published
//! rows.

mod reference;

use std::path::{Path, PathBuf};

use clap::Args;

use super::shared::{Failure, print};
use crate::codec::schemas::{PublishedSchema, SchemaLanguage};
use crate::config::{Config, Purpose, SinkConfig, json_schema};
use crate::kafka::client::MessageFormat;

/// Prints the JSON Schema of the configuration
///
/// Editors use it to complete and check configurations. It gives the unit, the default and the reason of every field.
#[derive(Debug, Args)]
pub(super) struct SchemaArgs {
    /// Print the configuration reference instead: a page in Markdown with an example for each key
    #[arg(long)]
    markdown: bool,
    /// Print the schema of the rows that `run` publishes with this configuration instead, for `format: avro` and `protobuf`
    #[arg(long, value_name = "FILE", conflicts_with = "markdown")]
    rows: Option<PathBuf>,
}

/// Adds to every problem of a configuration the part of the configuration reference that is about its line.
pub(super) fn with_references(failure: Failure) -> Failure {
    let Failure::Configuration(mut problems) = failure else { return failure };
    let schema = json_schema();
    for problem in &mut problems {
        // The message was made from this file just now; if it is gone, the message stands alone.
        let text = std::fs::read_to_string(&problem.file).unwrap_or_default();
        if let Some(anchor) = problem.line.and_then(|line| reference::anchor(&schema, &text, line)) {
            problem.message = format!("{} (schemas/CONFIGURATION.md#{anchor})", problem.message);
        }
    }
    Failure::Configuration(problems)
}

pub(super) fn run(args: &SchemaArgs) -> Result<(), Failure> {
    if let Some(path) = &args.rows {
        return rows(path);
    }
    match args.markdown {
        true => print(reference::page(&json_schema()).trim_end()),
        false => print(&format!("{:#}", json_schema())),
    }
}

/// Readers of a format without a registry have the schema from here.
fn rows(path: &Path) -> Result<(), Failure> {
    let config = Config::load(path, Purpose::Pipeline)?;
    let refused = |reason: &str| Err(Failure::Usage(format!("{}: {reason}", path.display())));
    let SinkConfig::Kafka(sink) = &config.sink else { return refused("a file of rows says itself what is in it") };
    let language = match &sink.format {
        MessageFormat::Json => return refused("rows in json have no schema"),
        MessageFormat::Confluent(_) => return refused("the registry has the schema of the rows"),
        MessageFormat::Avro(_) => SchemaLanguage::Avro,
        MessageFormat::Protobuf(_) => SchemaLanguage::Protobuf,
    };
    let output = PublishedSchema::derive(language, &config.policy.schema, sink.input.as_slice())?;
    print(output.text().trim_end())
}
