//! `veilstream test`: cases beside a policy, for the users' own continuous integration.
//!
//! A case is a few records, or a file of them, and their expected outcomes. Its records are one window and give one release, made
//! by encoder, search and gate of the service, with the seed 0. Each difference from the expectation is a line.

mod case;

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use self::case::CaseFile;
use crate::cli::shared::{Failure, print};
use crate::config::{Config, Purpose, read_document};

/// Runs the cases of a policy: records, and their expected outcomes
///
/// A case file is YAML: `policy` names the configuration, `cases` is a list. Each case has a `name`, `records` (a list of objects) or a
/// `file`, and `expect`: `published`, `suppressed` and `rejected` (a number, or { at_least: N, at_most: M }), `rows` (the published
/// rows, in any order), `criteria` (a mapping from a criterion to the value that must be reached), `loss` (the most that may be
/// lost), `never` (texts that no published row may contain). Exits with 1 if a case fails.
#[derive(Debug, Args)]
pub(in crate::cli) struct TestArgs {
    /// The case files, in YAML
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A case that was run: where, which, and what differs.
struct Verdict {
    file: String,
    name: String,
    differences: Vec<String>,
}

pub(in crate::cli) fn run(args: &TestArgs) -> Result<(), Failure> {
    let mut verdicts = Vec::new();
    for path in &args.files {
        let file: CaseFile = read_document(path)?;
        let folder = path.parent().map(PathBuf::from).unwrap_or_default();
        let config = Config::load(&folder.join(&file.policy), Purpose::Policy)?;
        for case in &file.cases {
            let differences = case.run(&config, &folder)?;
            verdicts.push(Verdict { file: path.display().to_string(), name: case.name.clone(), differences });
        }
    }
    let failed = verdicts.iter().filter(|verdict| !verdict.differences.is_empty()).count();
    match args.json {
        true => print(&as_json(&verdicts, failed).to_string())?,
        false => print(&as_text(&verdicts))?,
    }
    let all = verdicts.len();
    match failed {
        0 if all == 0 => Err(Failure::Usage("the files have no case".into())),
        0 => Ok(()),
        failed => Err(Failure::NotMet(format!("{failed} of {all} cases failed"))),
    }
}

fn as_json(verdicts: &[Verdict], failed: usize) -> Value {
    let one = |verdict: &Verdict| {
        json!({
            "file": verdict.file,
            "name": verdict.name,
            "passed": verdict.differences.is_empty(),
            "differences": verdict.differences,
        })
    };
    json!({
        "passed": verdicts.len() - failed,
        "failed": failed,
        "cases": verdicts.iter().map(one).collect::<Vec<_>>(),
    })
}

fn as_text(verdicts: &[Verdict]) -> String {
    let mut lines = Vec::new();
    let mut before = None;
    for Verdict { file, name, differences } in verdicts {
        if before != Some(file) {
            lines.push(file.clone());
            before = Some(file);
        }
        lines.push(format!("  {}  {name}", if differences.is_empty() { "ok  " } else { "FAIL" }));
        lines.extend(differences.iter().map(|difference| format!("          {difference}")));
    }
    lines.join("\n")
}
