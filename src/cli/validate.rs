//! `veilstream validate`: reports every problem of a configuration at once, each with its line.

mod sample;

use std::path::PathBuf;

use clap::Args;

use super::shared::{Failure, InputArgs, OpenArgs, print, runtime, tell};
use crate::config::{Config, Purpose, SinkConfig, SourceConfig};
use crate::kafka::probe::{Blame, probe};

/// Checks a configuration and, with --connect, the servers that it names
///
/// Prints every problem of the file and of its hierarchies to standard error, as FILE:LINE: MESSAGE, and exits with 2 if
/// there is one. Settings that are valid but rarely intended are printed as "warning: FILE:LINE: MESSAGE"; they do not
/// change the exit code. The file may be a policy for `anonymize` or a whole pipeline for `run`.
///
/// With --sample the command reads up to 10,000 messages and prints, per field of the policy, the share of records in which it is
/// missing, null or out of range, the share of messages that are rejected by reason, and which other fields most records have. It exits
/// with 2 if a field of the policy is in no record, or if every message is rejected. It prints names of fields, never values, and no name
/// that fewer than 20 records have.
///
/// With --connect the command then asks the Kafka cluster and the schema registry, with the configured settings: do the
/// topics exist and may they be read, can transactions be started and how long may they last, and does the registry know
/// the schemas. It exits with 3 if something is missing or does not answer. It joins no group and writes nothing. Running
/// instances are not disturbed: transactions are tried under the configured id followed by `-validate`, because using
/// the id itself would fence its owner. It cannot check whether the output topics may be written; the first release shows that.
#[derive(Debug, Args)]
pub(super) struct ValidateArgs {
    /// The configuration to check, in YAML
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Also ask the Kafka cluster and the schema registry
    #[arg(long)]
    connect: bool,
    /// Also read records, from a file or from a topic of the source's cluster, and compare their fields with the policy's
    #[arg(long, value_name = "FILE|TOPIC")]
    sample: Option<PathBuf>,
    #[command(flatten)]
    open: OpenArgs,
}

pub(super) fn run(args: &ValidateArgs) -> Result<(), Failure> {
    let config = Config::load(&args.config, Purpose::Policy)?;
    let policy = &config.policy;
    print(&format!(
        "{} is fine: {}, {}, {} possible generalizations, policy {}",
        args.config.display(),
        numbered(policy.quasi.len(), "quasi-identifier", "quasi-identifiers"),
        numbered(policy.criteria.len(), "criterion", "criteria"),
        policy.lattice().size(),
        policy.fingerprint
    ))?;
    for warning in &config.warnings {
        tell!("warning: {warning}");
    }
    if let Some(input) = &args.sample {
        sample::run(&config, &InputArgs::of(&args.config, input, args.open.clone()))?;
    }
    if args.connect { connect(&config) } else { Ok(()) }
}

/// A number with its word.
fn numbered(number: usize, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}

fn connect(config: &Config) -> Result<(), Failure> {
    let (SourceConfig::Kafka(source), SinkConfig::Kafka(sink)) = (&config.source, &config.sink) else {
        return print("nothing to connect to: source and sink need no server");
    };
    let routed: Vec<&str> = config.route.iter().flat_map(|route| [&*route.topic, &*route.state]).collect();
    let findings = probe(source, sink, &routed, &config.policy.schema, runtime()?.handle());
    if findings.is_empty() {
        return print("connected: everything that can be asked without writing is in place");
    }
    let path = config.path.display();
    let lines: String = findings.iter().map(|finding| format!("{path}: {}\n", finding.message)).collect();
    let said = format!("{lines}{} problem{}", findings.len(), if findings.len() == 1 { "" } else { "s" });
    Err(match findings.iter().any(|finding| finding.blame == Blame::Outside) {
        true => Failure::Outside(said),
        false => Failure::Usage(said),
    })
}
