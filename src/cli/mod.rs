//! The command line: one file per subcommand, and what they share.
//!
//! What a script reads goes to standard output; logs, progress and errors go to standard error. Exit codes: 0 done, 1 the
//! policy is not met, 2 bad usage or configuration, 3 a failure outside.

pub mod anonymize;
mod batch;
pub mod demo;
mod failure;
pub mod frontier;
pub mod generate;
mod input;
mod log;
mod report;
pub mod run;
pub mod schema;
pub mod search;
pub mod top;
pub mod validate;
pub mod verify;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use failure::Failure;
pub use input::InputArgs;
pub use log::{LogArgs, LogFormat, install_panic_hook};
pub use report::Report;

/// Turns a stream of personal records into releases that are safe to share
///
/// Records are gathered into windows; each window is generalized just enough to satisfy the privacy policy, counted again
/// by an independent gate, and only then published. Start with `veilstream demo`.
#[derive(Debug, Parser)]
#[command(
    version,
    propagate_version = true,
    after_help = "Exit codes: 0 done, 1 the policy is not met, 2 bad usage or configuration, 3 a failure outside"
)]
pub struct Cli {
    /// How to log.
    #[command(flatten)]
    pub log: LogArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do. Each is described beside its arguments.
#[derive(Debug, Subcommand)]
#[allow(missing_docs)]
pub enum Command {
    Demo(demo::DemoArgs),
    Run(run::RunArgs),
    Anonymize(anonymize::AnonymizeArgs),
    Verify(verify::VerifyArgs),
    Search(search::SearchArgs),
    Frontier(frontier::FrontierArgs),
    Generate(generate::GenerateArgs),
    Top(top::TopArgs),
    Validate(validate::ValidateArgs),
    Schema(schema::SchemaArgs),
}

impl Cli {
    /// Carries the command out and says how it ended.
    pub fn execute(&self) -> ExitCode {
        let default_log = if matches!(self.command, Command::Run(_)) { "info" } else { "warn" };
        let done = log::start(&self.log, default_log).map_err(Failure::Usage).and_then(|()| self.dispatch());
        match done {
            Ok(code) => code,
            Err(failure) => {
                // If even this cannot be written there is nobody to tell.
                let _ = writeln!(io::stderr(), "{failure}");
                failure.exit_code()
            }
        }
    }

    fn dispatch(&self) -> Result<ExitCode, Failure> {
        match &self.command {
            Command::Demo(args) => demo::run(args)?,
            Command::Run(args) => run::run(args)?,
            Command::Anonymize(args) => anonymize::run(args)?,
            Command::Verify(args) => verify::run(args)?,
            Command::Search(args) => search::run(args)?,
            Command::Frontier(args) => frontier::run(args)?,
            Command::Generate(args) => generate::run(args)?,
            Command::Top(args) => top::run(args)?,
            Command::Validate(args) => return Ok(validate::run(args)),
            Command::Schema(args) => return Ok(schema::run(args)),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints what a script reads. A reader that went away is no failure.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::io("cannot write to standard output", &error))
        }
        _ => Ok(()),
    }
}

/// The runtime for sources, sinks and HTTP; windows and searches have threads of their own.
fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    built.map_err(|error| Failure::io("cannot start", &error))
}

/// The wall clock.
fn now() -> crate::model::event::Millis {
    crate::model::event::Millis(jiff::Timestamp::now().as_millisecond())
}
