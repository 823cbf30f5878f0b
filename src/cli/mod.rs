//! The command line: one file per subcommand, and `shared/` for what several of them need.
//!
//! Results for scripts go to standard output; logs, progress and errors go to standard error. [`Failure`] decides the exit
//! code: 0 done, 1 the policy is not met, 2 bad usage or configuration, 3 a failure outside.

mod anonymize;
mod demo;
mod first;
mod frontier;
mod generate;
mod hierarchy;
mod route;
mod run;
mod schema;
mod search;
mod shared;
mod top;
mod validate;
mod verify;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use first::{explain, init, profile, shell, test};
pub use shared::install_panic_hook;
use shared::{Failure, LogArgs};

/// Turns a stream of personal records into releases that are safe to share
///
/// Veilstream gathers records into windows, generalizes each window just enough to satisfy the privacy policy, counts the
/// result again with an independent gate, and only then publishes it. Start with `veilstream demo`,
/// then with your own data: `veilstream init FILE`.
#[derive(Debug, Parser)]
#[command(
    version,
    propagate_version = true,
    after_help = "Exit codes: 0 done, 1 the policy is not met, 2 bad usage or configuration, 3 a failure outside (broker, disk, network)"
)]
pub struct Cli {
    #[command(flatten)]
    log: LogArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Demo(demo::DemoArgs),
    Profile(profile::ProfileArgs),
    Init(init::InitArgs),
    Explain(explain::ExplainArgs),
    Test(test::TestArgs),
    Run(run::RunArgs),
    Route(route::RouteArgs),
    Anonymize(anonymize::AnonymizeArgs),
    Verify(verify::VerifyArgs),
    Search(search::SearchArgs),
    Frontier(frontier::FrontierArgs),
    Hierarchy(hierarchy::HierarchyArgs),
    Generate(generate::GenerateArgs),
    Top(top::TopArgs),
    Validate(validate::ValidateArgs),
    Schema(schema::SchemaArgs),
    Completions(shell::CompletionsArgs),
    Man(shell::ManArgs),
}

impl Cli {
    /// Carries the command out; prints the message of a failure.
    pub fn execute(&self) -> ExitCode {
        let default_log = if matches!(self.command, Command::Run(_) | Command::Route(_)) { "info" } else { "warn" };
        match shared::start_log(&self.log, default_log).and_then(|()| self.dispatch()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => {
                let failure = schema::with_references(failure);
                // Standard error may be closed.
                let _ = writeln!(io::stderr(), "{failure}");
                failure.exit_code()
            }
        }
    }

    fn dispatch(&self) -> Result<(), Failure> {
        match &self.command {
            Command::Demo(args) => demo::run(args),
            Command::Profile(args) => profile::run(args),
            Command::Init(args) => init::run(args),
            Command::Explain(args) => explain::run(args),
            Command::Test(args) => test::run(args),
            Command::Run(args) => run::run(args),
            Command::Route(args) => route::run(args),
            Command::Anonymize(args) => anonymize::run(args),
            Command::Verify(args) => verify::run(args),
            Command::Search(args) => search::run(args),
            Command::Frontier(args) => frontier::run(args),
            Command::Hierarchy(args) => hierarchy::run(args),
            Command::Generate(args) => generate::run(args),
            Command::Top(args) => top::run(args),
            Command::Validate(args) => validate::run(args),
            Command::Schema(args) => schema::run(args),
            Command::Completions(args) => shell::completions(args, Self::command()),
            Command::Man(args) => shell::man(args, Self::command()),
        }
    }
}
