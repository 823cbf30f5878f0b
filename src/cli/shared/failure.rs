//! Failures of commands: a message for people, and an exit code for scripts.
//!
//! Messages name files, fields, positions and codes, never a value of a record. The `From` implementations below decide which
//! errors are the user's to fix (2) and which come from outside (3).

use std::error::Error;
use std::io;
use std::process::ExitCode;

use crate::codec::CodecError;
use crate::codec::survey::remedy;
use crate::config::Problem;
use crate::files::FileError;
use crate::model::event::RejectCode;
use crate::model::release::manifest::Unmet;
use crate::pipeline::PipelineError;
use crate::route::RouteError;
use crate::sink::SinkError;
use crate::source::SourceError;
use crate::window::TooWide;

/// A command that did not succeed.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum Failure {
    /// Exit code 1: the policy is not met.
    #[error("{0}")]
    NotMet(String),
    /// Exit code 2: bad usage or configuration.
    #[error("{0}")]
    Usage(String),
    /// Exit code 2: a bad configuration, every problem of it.
    #[error("{}", problems(.0))]
    Configuration(Vec<Problem>),
    /// Exit code 3: something outside failed.
    #[error("{0}")]
    Outside(String),
}

impl Failure {
    /// The exit code that scripts see.
    pub(in crate::cli) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::NotMet(_) => 1,
            Self::Usage(_) | Self::Configuration(_) => 2,
            Self::Outside(_) => 3,
        })
    }

    /// The failure of a command that published nothing although it had records; names a remedy.
    pub(in crate::cli) fn not_met(reason: Unmet) -> Self {
        Self::NotMet(format!("nothing was published: the policy is not met, {}; {}", reason.as_str(), reason.remedy()))
    }

    /// A failed read or write of `what`. A path that does not exist is a mistake in the command; the rest is outside.
    pub(in crate::cli) fn io(what: &str, error: &io::Error) -> Self {
        let message = format!("{what}: {error}");
        if error.kind() == io::ErrorKind::NotFound { Self::Usage(message) } else { Self::Outside(message) }
    }
}

fn problems(problems: &[Problem]) -> String {
    let lines: String = problems.iter().map(|problem| format!("{problem}\n")).collect();
    format!("{lines}{} problem{}", problems.len(), if problems.len() == 1 { "" } else { "s" })
}

/// The message of an error and of its causes.
fn chain(error: &dyn Error) -> String {
    let cause = error.source().map_or(String::new(), |cause| format!(": {}", chain(cause)));
    format!("{error}{cause}")
}

impl From<Vec<Problem>> for Failure {
    fn from(problems: Vec<Problem>) -> Self {
        Self::Configuration(problems)
    }
}

impl From<CodecError> for Failure {
    fn from(error: CodecError) -> Self {
        let remedy = match &error {
            CodecError::MissingFields(_) => {
                ": check the names in the policy; if the columns look run together, give --delimiter"
            }
            CodecError::BadHeader("not valid UTF-8") => remedy(RejectCode::InvalidUtf8),
            CodecError::BadHeader("empty") => {
                ": the input is empty, or begins with an empty line instead of the names of the columns"
            }
            CodecError::BadHeader(_) | CodecError::NoHeader => {
                ": the first line of a csv file must be the names of the columns; add such a line, or give --format if it is no csv"
            }
            CodecError::AmbiguousHeader(_) => ": rename one of the columns",
            _ => "",
        };
        Self::Usage(format!("{error}{remedy}"))
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Open { ref source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Self::Usage(format!("{}: check the path", chain(&error)))
            }
            SourceError::Codec(error) => error.into(),
            SourceError::NotReadable(_) | SourceError::Progress { .. } => Self::Usage(error.to_string()),
            SourceError::Container { records: 0, .. } | SourceError::Parquet { records: 0, .. } => {
                Self::Usage(chain(&error))
            }
            SourceError::Open { .. }
            | SourceError::Read { .. }
            | SourceError::Array { .. }
            | SourceError::Container { .. }
            | SourceError::Parquet { .. } => Self::Outside(chain(&error)),
            _ => Self::Outside(error.to_string()),
        }
    }
}

impl From<SinkError> for Failure {
    fn from(error: SinkError) -> Self {
        match error {
            SinkError::File(error) => error.into(),
            SinkError::Codec(error) => error.into(),
            SinkError::Write(_) | SinkError::Encode(_) => Self::Outside(chain(&error)),
            SinkError::NoTopic(_) | SinkError::TwoClusters(_) => Self::Usage(error.to_string()),
            _ => Self::Outside(error.to_string()),
        }
    }
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        match &error {
            FileError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Self::Usage(format!("{}: check that its directory exists", chain(&error)))
            }
            FileError::Link(_) | FileError::NotAFile { .. } | FileError::Foreign { .. } | FileError::Stale(_) => {
                Self::Usage(error.to_string())
            }
            FileError::Io { .. } | FileError::Locked(_) | FileError::Changed(_) => Self::Outside(chain(&error)),
        }
    }
}

impl From<TooWide> for Failure {
    fn from(error: TooWide) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<RouteError> for Failure {
    fn from(error: RouteError) -> Self {
        match error {
            RouteError::Source(error) => error.into(),
            RouteError::Sink(error) => error.into(),
        }
    }
}

impl From<PipelineError> for Failure {
    fn from(error: PipelineError) -> Self {
        match error {
            PipelineError::Source(error) => error.into(),
            PipelineError::Sink(error) => error.into(),
            PipelineError::Refused(_) | PipelineError::AllRejected(_) => Self::NotMet(error.to_string()),
            PipelineError::TooWide(error) => error.into(),
            PipelineError::NoSuchField(_) => Self::Usage(error.to_string()),
            PipelineError::StageLost(_) | PipelineError::Unaccounted(_) => Self::Outside(error.to_string()),
        }
    }
}
