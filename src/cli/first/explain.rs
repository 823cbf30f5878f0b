//! `veilstream explain`: a configuration in sentences, as a privacy officer would write it.
//!
//! Every sentence follows from the built policy, not from the text of the file, so it describes the service. The limits of the
//! protection follow the same rules: a limit is named where the policy runs into it (`THREAT_MODEL.md`).

mod limits;
mod said;

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::cli::shared::{Failure, for_terminal, print};
use crate::config::{Config, Purpose};

/// States a configuration in sentences: published fields, criteria, and limits of the protection
///
/// For people who answer for the data and do not read YAML. It reads the configuration and its hierarchies, never a record.
#[derive(Debug, Args)]
pub(in crate::cli) struct ExplainArgs {
    /// The configuration, in YAML: a policy or a whole pipeline
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Print one JSON object: a list of sections, each with its title and sentences
    #[arg(long)]
    json: bool,
}

/// A title and the sentences below it.
pub(in crate::cli) struct Section {
    /// The title.
    pub(in crate::cli) title: &'static str,
    /// The sentences, each with its period.
    pub(in crate::cli) sentences: Vec<String>,
}

/// What the policy of a configuration does for one release, and what it does not protect.
pub(in crate::cli) fn policy_sections(config: &Config) -> [Section; 5] {
    [
        Section { title: "Who is counted", sentences: said::counted(&config.policy) },
        Section { title: "What is published, and how", sentences: said::published(&config.policy) },
        Section { title: "What every release satisfies", sentences: said::criteria(&config.policy) },
        Section { title: "What is left out", sentences: said::left_out(&config.policy) },
        Section { title: "What this does not protect", sentences: limits::limits(config) },
    ]
}

pub(in crate::cli) fn run(args: &ExplainArgs) -> Result<(), Failure> {
    let config = Config::load(&args.config, Purpose::Policy)?;
    let mut sections = Vec::from(policy_sections(&config));
    let releases = Section { title: "Releases and people who return", sentences: said::releases(&config) };
    sections.insert(sections.len() - 1, releases);
    if args.json {
        let one = |section: &Section| json!({ "title": section.title, "sentences": section.sentences });
        let sections: Vec<_> = sections.iter().map(one).collect();
        return print(&json!({ "policy": config.policy.fingerprint, "sections": sections }).to_string());
    }
    let mut text = format!("The policy {} in {}\n", config.policy.fingerprint, args.config.display());
    for Section { title, sentences } in &sections {
        text.push_str(&format!("\n{title}\n"));
        sentences.iter().for_each(|sentence| text.push_str(&format!("  - {sentence}\n")));
    }
    print(&for_terminal(text.trim_end(), &std::io::stdout()))
}
