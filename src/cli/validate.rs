//! `veilstream validate`: every problem of a configuration at once, each with its line.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::runtime;
use crate::config::{Config, Problem, Purpose, SinkConfig, SourceConfig};
use crate::kafka::probe::{Blame, Finding, probe};

/// Exit code for bad usage or configuration.
const BAD_CONFIGURATION: u8 = 2;
/// Exit code for a failure outside.
const FAILURE_OUTSIDE: u8 = 3;

/// Checks a configuration, and with --connect what it connects to
///
/// Prints every problem of the file, and of the hierarchies that it names, as FILE:LINE: MESSAGE on standard error and
/// exits with 2 if there is any. What can be meant, and mostly is not, is told as "warning: FILE:LINE: MESSAGE", and the
/// exit code stays 0. Policies for `anonymize` and whole pipelines for `run` are both accepted.
///
/// With --connect it then asks the Kafka cluster and the schema registry, with the configured settings, whether the topics
/// are there and may be read, whether transactions can be begun and for how long, and what the registry knows; exits with 3
/// if something is missing or does not answer. It joins no group, writes nothing, and leaves running instances alone:
/// transactions are tried under the configured id with `-validate` behind it, since the id itself would fence its owner.
/// Whether the output topics may be written shows only when the first release is.
#[derive(Debug, Args)]
pub struct ValidateArgs {
    /// The configuration to check, in YAML
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    /// Ask the cluster and the registry too
    #[arg(long)]
    pub connect: bool,
}

/// Checks the file and says what is wrong with it.
pub fn run(args: &ValidateArgs) -> ExitCode {
    // Not locked: while we wait for the cluster its client logs from threads of its own.
    let (mut out, mut err) = (io::stdout(), io::stderr());
    // A reader that went away does not change the verdict.
    let Some(config) = report(&args.config, &mut out, &mut err).unwrap_or(None) else {
        return ExitCode::from(BAD_CONFIGURATION);
    };
    if args.connect { ExitCode::from(connect(&config, &mut out, &mut err)) } else { ExitCode::SUCCESS }
}

/// Asks what the configuration connects to; the exit code.
fn connect(config: &Config, out: &mut impl Write, err: &mut impl Write) -> u8 {
    let (SourceConfig::Kafka(source), SinkConfig::Kafka(sink)) = (&config.source, &config.sink) else {
        let _ = writeln!(out, "nothing to connect to: source and sink need no server");
        return 0;
    };
    let findings = match runtime() {
        Ok(runtime) => probe(source, sink, &config.policy.schema, runtime.handle()),
        Err(failure) => vec![Finding { blame: Blame::Outside, message: failure.to_string() }],
    };
    if findings.is_empty() {
        let _ = writeln!(out, "connected: everything that can be asked without writing is in place");
        return 0;
    }
    for finding in &findings {
        let _ = writeln!(err, "{}: {}", config.path.display(), finding.message);
    }
    let _ = writeln!(err, "{} problem{}", findings.len(), if findings.len() == 1 { "" } else { "s" });
    if findings.iter().any(|f| f.blame == Blame::Outside) { FAILURE_OUTSIDE } else { BAD_CONFIGURATION }
}

/// Writes problems as every command shows them: one line each, and their number at the end.
///
/// # Errors
/// If `out` cannot be written.
pub fn write_problems(problems: &[Problem], out: &mut impl Write) -> io::Result<()> {
    for problem in problems {
        writeln!(out, "{problem}")?;
    }
    writeln!(out, "{} problem{}", problems.len(), if problems.len() == 1 { "" } else { "s" })
}

/// The configuration, if the file is fine.
fn report(path: &Path, out: &mut impl Write, err: &mut impl Write) -> io::Result<Option<Config>> {
    match Config::load(path, Purpose::Policy) {
        Ok(config) => {
            let policy = &config.policy;
            // The verdict counts even if nobody reads it.
            let _ = writeln!(
                out,
                "{} is fine: {} quasi-identifiers, {} criteria, {} possible generalizations, policy {}",
                path.display(),
                policy.quasi.len(),
                policy.criteria.len(),
                policy.lattice().size(),
                policy.fingerprint
            );
            for warning in &config.warnings {
                let _ = writeln!(err, "warning: {warning}");
            }
            Ok(Some(config))
        }
        Err(problems) => write_problems(&problems, err).map(|()| None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(yaml: &str) -> (bool, String, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.yaml");
        std::fs::write(&path, yaml).unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let fine = report(&path, &mut out, &mut err).unwrap().is_some();
        let text = |bytes| String::from_utf8(bytes).unwrap().replace(&dir.path().display().to_string(), "DIR");
        (fine, text(out), text(err))
    }

    #[test]
    fn says_what_is_wrong_and_how_much() {
        let (fine, out, err) = check("policy:\n  quasi_identifiers: []\n  privacy: [{ k-anonymity: 0 }]\n");
        assert!(!fine && out.is_empty());
        let lines: Vec<&str> = err.lines().collect();
        assert!(lines[0].starts_with("DIR/c.yaml:2: ") && lines[1].starts_with("DIR/c.yaml:3: "), "{err}");
        assert_eq!(lines[2], "2 problems");
    }

    #[test]
    fn warnings_are_told_and_do_not_fail() {
        let policy = |privacy: &str| {
            format!(
                "policy:\n  quasi_identifiers: [{{ name: a, hierarchy: trivial }}]\n  sensitive: [{{ name: s }}]\n  privacy: {privacy}\n"
            )
        };
        for (privacy, said) in [
            ("[{ k-anonymity: 1 }]", "k = 1 "),
            ("[{ l-diversity: { field: s, l: 2 } }]", "number of people"),
            ("[{ t-closeness: { field: s, t: 0.3 } }]", "number of people"),
            ("[{ lkc: { l: 1, k: 1, c: 0.5 } }]", "k = 1 "),
            ("[{ alpha-k: { field: s, alpha: 0.5, k: 1 } }]", "k = 1 "),
        ] {
            let (fine, out, err) = check(&policy(privacy));
            assert!(fine && out.contains("is fine"), "{privacy}: {err}");
            assert!(
                err.lines().count() == 1 && err.starts_with("warning: DIR/c.yaml:4: ") && err.contains(said),
                "{err}"
            );
        }
        let both = "[{ k-anonymity: 2 }, { l-diversity: { field: s, l: 2 } }]";
        assert_eq!(check(&policy(both)).2, "");
        let search = "search: { algorithm: pbg-ea, objectives: [k, s_l, glm] }\n";
        let (fine, _, err) = check(&(policy(both) + search));
        assert!(fine && err.starts_with("warning: DIR/c.yaml:5: `s_l`") && err.lines().count() == 1, "{err}");
    }

    #[test]
    fn one_friendly_line_if_all_is_well() {
        let yaml = "policy:\n  quasi_identifiers: [{ name: a, hierarchy: trivial }]\n  privacy: [{ k-anonymity: 2 }]\n";
        let (fine, out, err) = check(yaml);
        assert!(fine && err.is_empty() && out.lines().count() == 1, "{out}{err}");
        assert!(out.starts_with("DIR/c.yaml is fine: "), "{out}");
    }
}
