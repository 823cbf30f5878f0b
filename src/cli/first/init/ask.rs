//! The few questions of `veilstream init`, each with a default that Enter takes. They are asked on standard error, so that a policy
//! can go to standard output.

use std::io::{self, BufRead as _, Write as _};

use crate::cli::shared::{Failure, tell};

/// Asks, or takes every default.
pub(super) struct Questions {
    /// True if nobody is asked.
    pub(super) silent: bool,
}

impl Questions {
    /// The answer to a question, until `read` understands it. An empty line takes the default.
    pub(super) fn ask<T>(
        &self,
        question: &str,
        default: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<T, Failure> {
        loop {
            let line = if self.silent { String::new() } else { prompt(question, default)? };
            let answer = if line.trim().is_empty() { default } else { line.trim() };
            match read(answer) {
                Ok(value) => return Ok(value),
                Err(problem) if self.silent => return Err(Failure::Usage(problem)),
                Err(problem) => tell!("  {problem}"),
            }
        }
    }

    /// A list of names out of `known`; `-` is none.
    pub(super) fn names(&self, question: &str, default: &[&str], known: &[String]) -> Result<Vec<usize>, Failure> {
        let shown = if default.is_empty() { "-".to_owned() } else { default.join(", ") };
        // A name with a comma in it can be a default and nothing else.
        let places = |names: &[&str]| -> Result<Vec<usize>, String> {
            names
                .iter()
                .map(|name| known.iter().position(|known| known == name).ok_or(format!("there is no field `{name}`")))
                .collect()
        };
        self.ask(question, &shown, |answer| match answer {
            "-" => Ok(Vec::new()),
            answer if answer == shown => places(default),
            answer => places(&answer.split(',').map(str::trim).filter(|name| !name.is_empty()).collect::<Vec<_>>()),
        })
    }
}

fn prompt(question: &str, default: &str) -> Result<String, Failure> {
    let mut line = String::new();
    let _ = write!(io::stderr(), "{question} [{default}]: ");
    let read = io::stderr().flush().and_then(|()| io::stdin().lock().read_line(&mut line));
    match read {
        Ok(0) => Err(Failure::Usage("no answer: nothing was written; --yes takes every default".into())),
        Ok(_) => Ok(line),
        Err(error) => Err(Failure::io("cannot read the answer", &error)),
    }
}
