//! Logs on standard error, and a panic hook that tells where and never what.

use std::io::{self, IsTerminal as _};

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

/// How much is logged, and how.
#[derive(Debug, Clone, Args)]
pub struct LogArgs {
    /// What to log: off, error, warn, info, debug, trace, or a filter such as veilstream=debug [default: RUST_LOG, else
    /// info for `run` and warn for the others]
    #[arg(long, global = true, value_name = "FILTER", help_heading = "Logging")]
    pub log: Option<String>,
    /// How log lines are written to standard error
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text", help_heading = "Logging")]
    pub log_format: LogFormat,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging. `default` counts where neither the command line nor RUST_LOG says anything.
pub(super) fn start(args: &LogArgs, default: &str) -> Result<(), String> {
    let from_environment = std::env::var("RUST_LOG").ok().filter(|filter| !filter.is_empty());
    let filter = args.log.clone().or(from_environment).unwrap_or_else(|| default.to_owned());
    let filter = EnvFilter::try_new(filter)
        .map_err(|_| "cannot understand the log filter: write a level such as debug, or veilstream=debug")?;
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    let started = match args.log_format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    started.map_err(|_| "logging has been started already".to_owned())
}

/// A panic message can hold what the code was looking at. Only the place is printed.
pub fn install_panic_hook() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
        eprintln!("veilstream: a defect at {place}; nothing further is published. Please report this line");
    }));
}
