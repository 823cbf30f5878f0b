//! `veilstream schema`: prints the JSON Schema of the configuration, or the reference that is made from it.

mod reference;

use clap::Args;

use super::shared::{Failure, print};
use crate::config::json_schema;

/// Prints the JSON Schema of the configuration
///
/// Editors use it to complete and check configurations. It gives the unit, the default and the reason of every field.
#[derive(Debug, Args)]
pub(super) struct SchemaArgs {
    /// Print the configuration reference instead: a page in Markdown with an example for each key
    #[arg(long)]
    markdown: bool,
}

/// The part of the configuration reference that is about a line of a configuration.
pub(super) fn reference_of(configuration: &str, line: usize) -> Option<String> {
    let anchor = reference::anchor(&json_schema(), configuration, line)?;
    Some(format!("schemas/CONFIGURATION.md#{anchor}"))
}

pub(super) fn run(args: &SchemaArgs) -> Result<(), Failure> {
    match args.markdown {
        true => print(reference::page(&json_schema()).trim_end()),
        false => print(&format!("{:#}", json_schema())),
    }
}
