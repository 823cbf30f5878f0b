//! Logs on standard error, and a panic hook that prints the place of a panic but not its message.

use std::io::{self, IsTerminal as _, Write as _};

use clap::{Args, ValueEnum};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

use super::Failure;
use super::progress::BesideProgress;
use crate::codec::parquet::is_guarded;

#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct LogArgs {
    /// The messages to log: off, error, warn, info, debug, trace, or a filter such as veilstream=debug [default: RUST_LOG,
    /// or else info for `run` and warn for the other commands]
    #[arg(long, global = true, value_name = "FILTER", help_heading = "Logging")]
    log: Option<String>,
    /// The format of log lines on standard error
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text", help_heading = "Logging")]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// Plain text for people
    Text,
    /// One JSON object per line
    Json,
}

/// Starts logging. `default` is the filter if neither the command line nor RUST_LOG gives one.
pub(in crate::cli) fn start_log(args: &LogArgs, default: &str) -> Result<(), Failure> {
    let from_environment = std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
    let filter = args.log.clone().or(from_environment).unwrap_or_else(|| default.to_owned());
    // The parser takes a missing target or level for "everything".
    let complete = |part: &str| part.is_empty() || part.split('=').all(|word| !word.trim().is_empty());
    let parsed: Option<Targets> = filter.parse().ok().filter(|_| filter.split(',').all(complete));
    let filter = parsed.ok_or_else(|| {
        Failure::Usage("the log filter is not valid: write a level such as debug, or veilstream=debug".into())
    })?;
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(|| BesideProgress)
        .with_ansi(is_coloured(io::stderr().is_terminal()))
        // They would be printed to the same closed standard error, which is a panic.
        .log_internal_errors(false);
    let layer = match args.log_format {
        LogFormat::Text => layer.boxed(),
        LogFormat::Json => layer.json().boxed(),
    };
    // A filter of the layer alone was seen to drop the first line of an event.
    let started = tracing_subscriber::registry().with(filter).with(layer).try_init();
    started.map_err(|_| Failure::Outside("logging has been started already".into()))
}

/// True if colours may be written to a stream, given whether it is a terminal: NO_COLOR and dumb terminals want none.
pub(in crate::cli) fn is_coloured(is_terminal: bool) -> bool {
    is_terminal && !is_dumb() && std::env::var_os("NO_COLOR").is_none_or(|asked| asked.is_empty())
}

/// True on a terminal that moves no cursor.
pub(in crate::cli) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Makes panics print their place only: a panic message may hold a value of a record.
pub fn install_panic_hook() {
    std::panic::set_hook(Box::new(|panic| {
        if is_guarded() {
            // A broken file; the error says so.
            return;
        }
        let place = panic.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
        // A second panic, because standard error is closed, would abort.
        let _ = writeln!(
            io::stderr(),
            "veilstream: a defect at {place}; nothing further is published. Please report this line"
        );
    }));
}
