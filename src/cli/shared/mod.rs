//! Shared by several subcommands: the arguments of a file to read, that file as one window, the report of its release,
//! failures with their exit codes, and logging.

mod allocators;
mod batch;
mod failure;
mod fingerprint;
mod input;
mod log;
mod progress;
mod report;
mod wrap;

use std::fmt;
use std::io::{self, Write as _};
use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;

pub(super) use allocators::keep_little;
pub(super) use batch::Batch;
pub(super) use failure::Failure;
pub(super) use fingerprint::{FileDigest, POLICY, PUBLISHED, check_report};
pub(super) use input::{InputArgs, OpenArgs, algorithm, is_standard, rate, refuse_same_file};
pub use log::install_panic_hook;
pub(super) use log::{LogArgs, is_coloured, is_dumb, start_log};
pub(super) use progress::{ShownBesideLogs, reading, reading_beside_logs, spinning, working, writing};
pub(super) use report::ReleaseReport;
pub(super) use wrap::{for_terminal, wrapped};

use crate::config::Config;
use crate::model::event::Millis;
use crate::pipeline::{MemoryLimit, Pipeline};
use crate::shutdown::{self, Stop};
use crate::telemetry::Telemetry;

/// Prints a line for people to standard error. It may be closed: unlike with `eprintln!`, that is no defect.
macro_rules! tell {
    ($($part:tt)*) => { $crate::cli::shared::tell_people(format_args!($($part)*)) };
}
pub(super) use tell;

/// What [`tell`] does.
pub(super) fn tell_people(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Prints a result to standard output, with a newline at its end. A reader that went away is no failure.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    print_bytes(format!("{text}\n").as_bytes())
}

/// Prints a result to standard output as it is. A reader that went away is no failure.
pub(super) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::io("cannot write to standard output", &error))
        }
        _ => Ok(()),
    }
}

/// The runtime for sources, sinks and HTTP; windows and searches have threads of their own.
pub(super) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let built = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    built.map_err(|error| Failure::io("cannot start", &error))
}

/// The configured pipeline, and a stop that SIGTERM and SIGINT ask for. Must run inside the runtime.
pub(super) fn pipeline(config: &Config, name: String, seed: u64) -> Result<(Pipeline, Stop), Failure> {
    let policy = Arc::new(config.policy.clone());
    let telemetry = Telemetry::new(&policy).map_err(|error| Failure::Outside(error.to_string()))?;
    let (stopper, stop) = shutdown::channel();
    shutdown::on_signals(stopper).map_err(|error| Failure::io("cannot listen for signals", &error))?;
    let pipeline = Pipeline {
        policy,
        windows: config.windows.clone(),
        scope: config.scope,
        choice: config.choice.clone(),
        audiences: config.audiences.clone(),
        name,
        seed,
        memory: MemoryLimit::new(config.limits.memory),
        cores: available_parallelism().map_or(1, NonZero::get),
        telemetry: Arc::new(telemetry),
        clock: now,
    };
    Ok((pipeline, stop))
}

/// The configured limit of a record's length.
pub(super) fn max_record_bytes(config: &Config) -> usize {
    usize::try_from(config.limits.max_record_bytes).unwrap_or(usize::MAX)
}

/// The wall clock.
pub(super) fn now() -> Millis {
    Millis(jiff::Timestamp::now().as_millisecond())
}
