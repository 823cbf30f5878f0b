//! `veilstream schema`: prints the JSON Schema of the configuration.

use clap::Args;

use super::shared::{Failure, print};
use crate::config::json_schema;

/// Prints the JSON Schema of the configuration
///
/// Editors use it to complete and check configurations. It gives the unit, the default and the reason of every field.
#[derive(Debug, Args)]
pub(super) struct SchemaArgs {}

pub(super) fn run(_: &SchemaArgs) -> Result<(), Failure> {
    print(&format!("{:#}", json_schema()))
}
