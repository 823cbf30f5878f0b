//! `veilstream schema`: the JSON Schema of the configuration.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;

use crate::config::json_schema;

/// Exit code for a failure outside.
const FAILURE_OUTSIDE: u8 = 3;

/// Prints the JSON Schema of the configuration
///
/// Editors use it to complete and check configurations; every field has its unit, default and reason there.
#[derive(Debug, Args)]
pub struct SchemaArgs {}

/// Prints the schema on standard output.
pub fn run(_: &SchemaArgs) -> ExitCode {
    match write_schema(&mut io::stdout().lock()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("cannot write the schema: {error}");
            ExitCode::from(FAILURE_OUTSIDE)
        }
        _ => ExitCode::SUCCESS,
    }
}

fn write_schema(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{:#}", json_schema())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_json() {
        let mut out = Vec::new();
        write_schema(&mut out).unwrap();
        let schema: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(schema["title"], "VeilstreamConfiguration");
    }
}
