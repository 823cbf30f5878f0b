//! `veilstream init`: from a file or topic to a commented policy that satisfies unedited.
//!
//! Reads the input once, proposes roles and hierarchies, asks a few questions, tries the policy on a sample in memory with both
//! recodings, shows what each would lose, and writes the configuration only if the release that it gives satisfies. The sample is
//! never written anywhere, and the configuration holds no value that fewer than k people have.

mod ask;
mod draft;

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};

use clap::Args;

use self::ask::Questions;
use self::draft::{Ends, PolicyDraft, Readers, seen_from};
use super::input::{FirstArgs, FirstInput};
use super::profile::{Figures, table};
use crate::cli::shared::{
    Batch, Failure, ReleaseReport, for_terminal, is_standard, print_bytes, refuse_same_file, tell,
};
use crate::codec::Format;
use crate::codec::compress::Compression;
use crate::config::{Config, Purpose};
use crate::files::ReplacedFile;
use crate::model::policy::{Fallback, RecodingKind};
use crate::model::schema::Envelope;
use crate::profile::hierarchies::{HierarchyProposal, Shared, coordinates, fitting};
use crate::profile::roles::percent;
use crate::profile::{ProposedRole, RoleProposal};

/// The records of the trial, and of a window of the proposed pipeline. Larger: slower, more memory. Smaller: rare combinations
/// are missed, and small windows lose more.
const TRIED: usize = 50_000;
/// The shares of records that may be left out, in percent: the first with which the policy can be met is taken.
const LIMITS: [u32; 3] = [5, 10, 20];

/// Proposes a policy for a file or topic, tries it, and writes it with comments
///
/// Reads the input once and proposes a role for every field, with the reason, and a hierarchy for every quasi-identifier: files in
/// ARX's format that lie beside the input (NAME.csv), dates, intervals with round bounds, codes by prefix, groups by frequency. On a
/// terminal it asks who will read the releases, whose the records are, and whether the roles are right; with --yes it takes
/// its own proposals. Then it makes a release of up to 50,000 records in memory, by levels for whole columns and by levels for each
/// record, shows what both lose, and writes the pipeline. If nothing satisfies, nothing is written and the exit code is 1.
#[derive(Debug, Args)]
pub(in crate::cli) struct InitArgs {
    #[command(flatten)]
    input: FirstArgs,
    /// The file for the configuration; - is standard output
    #[arg(short, long, value_name = "FILE", default_value = "pipeline.yaml")]
    output: PathBuf,
    /// The readers of the releases [default: partner]
    #[arg(long, value_name = "READERS")]
    readers: Option<Readers>,
    /// Ask nothing
    #[arg(long)]
    yes: bool,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
}

pub(in crate::cli) fn run(args: &InitArgs) -> Result<(), Failure> {
    let silent = args.yes;
    let is_terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
    if !silent && !is_terminal {
        return Err(Failure::Usage("there is no terminal to ask on: add --yes to take every proposal".into()));
    }
    refuse_same_file(&args.input.input, &args.output, "is the file that is read")?;
    if !args.force && !is_standard(&args.output) && args.output.exists() {
        return Err(Failure::Usage(format!("{} exists: add --force to replace it", args.output.display())));
    }
    let input = args.input.read(TRIED)?;
    if input.profile.envelope == Envelope::Debezium && args.input.brokers.is_none() && is_standard(&args.input.input) {
        return Err(Failure::Usage("change events are read from a file or a topic: name one instead of -".into()));
    }
    if is_standard(&args.input.input) && !args.input.open.keys().is_empty() {
        let message =
            "a pipeline that reads standard input finds delimiter and encoding by itself: name a file instead of -";
        return Err(Failure::Usage(message.into()));
    }
    let questions = Questions { silent };
    let mut draft = propose(args, &input, &questions)?;
    describe(&draft);
    let trial = Trial::run(&mut draft, &input, &args.output)?;
    say(&trial.table());
    draft.recoding = questions.ask("Recoding: full-domain or local", trial.best().as_str(), |answer| {
        let found = trial.reports.iter().find(|(kind, _)| kind.as_str() == answer);
        found.map(|(kind, _)| *kind).ok_or_else(|| "write one that the table has".into())
    })?;
    let outcome = trial.words(draft.recoding);
    let text = draft.yaml(&intro(args, &input, &outcome));
    Config::parse(&text, &args.output, Purpose::Pipeline)?;
    let go = questions.ask(&format!("Write {}", args.output.display()), "yes", |answer| match answer {
        "yes" | "y" => Ok(true),
        "no" | "n" => Ok(false),
        _ => Err("write yes or no".into()),
    })?;
    if !go {
        tell!("nothing was written");
        return Ok(());
    }
    write(&args.output, &text)?;
    say(&outcome);
    if !is_standard(&args.output) {
        let file = args.output.display();
        tell!("Wrote {file}. Next: veilstream explain -c {file}, then veilstream run -c {file}");
    }
    Ok(())
}

/// Roles and hierarchies, with the answers to the questions.
fn propose<'a>(args: &InitArgs, input: &'a FirstInput, questions: &Questions) -> Result<PolicyDraft<'a>, Failure> {
    let profile = &input.profile;
    let mut roles = Figures::roles_of(profile);
    tell!("{}: {} records, {} fields", args.input.name(), profile.records, profile.names.len());
    if profile.rejected > 0 {
        tell!("{} of them cannot be read: `run` will reject them, and tell why", profile.rejected);
    }
    tell!("");
    if !questions.silent {
        for (name, role) in profile.names.iter().zip(&roles) {
            say(&format!("  {name}: {}, {}", role.role.as_str(), role.reason));
        }
        tell!("");
    }
    let readers = match args.readers {
        Some(readers) => readers,
        None => questions.ask("Who will read the releases: internal, partner or public", "partner", |answer| {
            clap::ValueEnum::from_str(answer, true).map_err(|_| "write internal, partner or public".to_owned())
        })?,
    };
    for (role, question) in [
        (ProposedRole::Subject, "The field that says whose a record is, - for none"),
        (ProposedRole::Quasi, "Fields that others may know (quasi-identifiers)"),
        (ProposedRole::Sensitive, "Sensitive fields, - for none"),
    ] {
        let proposed: Vec<usize> = (0..roles.len()).filter(|field| roles[*field].role == role).collect();
        let names: Vec<&str> = proposed.iter().map(|field| profile.names[*field].as_str()).collect();
        let chosen = questions.names(question, &names, &profile.names)?;
        proposed.iter().for_each(|field| {
            if !chosen.contains(field) {
                roles[*field] = RoleProposal::chosen(ProposedRole::Leave);
            }
        });
        chosen
            .iter()
            .filter(|field| !proposed.contains(field))
            .for_each(|field| roles[*field] = RoleProposal::chosen(role));
    }
    if !roles.iter().any(|role| role.role == ProposedRole::Quasi) {
        return Err(Failure::Usage(
            "no field looks like a quasi-identifier: write the policy by hand, and see `veilstream profile`".into(),
        ));
    }
    let hierarchies = hierarchies(args, input, &roles, readers);
    let (recoding, limit, max_records) = (RecodingKind::FullDomain, LIMITS[0], TRIED);
    let (ends, missing) = (ends(args, input), Fallback::Suppress);
    Ok(PolicyDraft { profile, roles, hierarchies, readers, recoding, limit, missing, ends, max_records })
}

fn hierarchies(
    args: &InitArgs,
    input: &FirstInput,
    roles: &[RoleProposal],
    readers: Readers,
) -> Vec<Option<HierarchyProposal>> {
    let subject = roles.iter().position(|role| role.role == ProposedRole::Subject);
    let shared = Shared { least: u64::from(readers.k()), subject };
    let one = |(field, role): (usize, &RoleProposal)| {
        let proposal = || fitting(&input.profile, field, args.input.folder(), shared);
        let proposal = (role.role == ProposedRole::Quasi).then(proposal)?;
        Some(match proposal {
            HierarchyProposal::File(path) => HierarchyProposal::File(seen_from(&args.output, &path)),
            other => other,
        })
    };
    let mut proposals: Vec<Option<HierarchyProposal>> = roles.iter().enumerate().map(one).collect();
    // A hierarchy that somebody wrote comes before one of both fields.
    let free = |proposal: &Option<HierarchyProposal>| matches!(proposal, Some(proposal) if !matches!(proposal, HierarchyProposal::File(_)));
    for (latitude, longitude, name) in coordinates(&input.profile) {
        if free(&proposals[latitude]) && free(&proposals[longitude]) {
            let longitude_name = input.profile.names[longitude].clone();
            proposals[longitude] = Some(HierarchyProposal::Longitude(name.clone()));
            proposals[latitude] = Some(HierarchyProposal::Coordinates { name, longitude: longitude_name });
        }
    }
    proposals
}

fn ends(args: &InitArgs, input: &FirstInput) -> Ends {
    let path = &args.input.input;
    if let Some(brokers) = &args.input.brokers {
        return Ends::Topics { brokers: brokers.clone(), topic: path.to_string_lossy().into_owned() };
    }
    let format = input.preamble.format();
    if is_standard(path) {
        return Ends::Stdio(format);
    }
    // The name without `.gz`; releases cannot be appended to a Parquet file.
    let plain: PathBuf = match Compression::of_path(path) {
        Some(_) => path.with_extension(""),
        None => path.to_path_buf(),
    };
    let extension = Format::of_path(&plain).filter(|format| *format != Format::Parquet);
    let extension = extension.and_then(|_| plain.extension()).and_then(|extension| extension.to_str());
    let stem = plain.file_stem().unwrap_or_default().to_string_lossy();
    let grown = if format == Format::Parquet { Format::Json } else { format };
    let output = format!("{stem}-safe.{}", extension.unwrap_or(grown.as_str()));
    Ends::Files {
        input: seen_from(&args.output, path),
        output: PathBuf::from(output),
        format,
        reading: args.input.open.keys(),
    }
}

/// Tells something to the user, broken at the width of the terminal.
fn say(text: &str) {
    tell!("{}", for_terminal(text, &io::stderr()));
}

/// Prints what was chosen, with a reason each.
fn describe(draft: &PolicyDraft<'_>) {
    for (field, role) in draft.roles.iter().enumerate() {
        let name = &draft.profile.names[field];
        match &draft.hierarchies[field] {
            Some(hierarchy) => {
                say(&format!("  {name}: {}, {}; {}", role.role.as_str(), role.reason, hierarchy.words()))
            }
            None => say(&format!("  {name}: {}, {}", role.role.as_str(), role.reason)),
        }
    }
    if draft.with(ProposedRole::Subject).next().is_none() {
        tell!("  No field says whose a record is: k counts records, and one person with many can fill a class alone.");
    }
    tell!("");
}

/// What both recodings would publish of the sample.
struct Trial {
    records: usize,
    reports: Vec<(RecodingKind, ReleaseReport)>,
}

impl Trial {
    /// Makes the releases with the smallest limit that works; the draft takes that limit. Records without a value are left out, unless
    /// there are too many of them.
    fn run(draft: &mut PolicyDraft<'_>, input: &FirstInput, output: &Path) -> Result<Self, Failure> {
        let mut reason = String::new();
        let fallbacks = [Fallback::Suppress, Fallback::Top].into_iter().take(1 + usize::from(draft.lacks_values()));
        for (missing, limit) in fallbacks.flat_map(|fallback| LIMITS.map(|limit| (fallback, limit))) {
            (draft.missing, draft.limit) = (missing, limit);
            let config = Config::parse(&draft.yaml(&[]), output, Purpose::Pipeline)?;
            let batch = Batch::of_events(&config, &input.preamble, &input.events)?;
            let mut reports = Vec::new();
            for kind in [RecodingKind::FullDomain, RecodingKind::Local] {
                batch.working(format!("trying, {}", kind.as_str()));
                match batch.release_as(kind, config.choice.clone(), 0) {
                    Ok(release) => {
                        let report = ReleaseReport::measured(&batch, &release);
                        if report.satisfies {
                            reports.push((kind, report));
                        } else {
                            reason = report.not_met().to_string();
                        }
                    }
                    Err(Failure::NotMet(why)) => reason = why,
                    Err(other) => return Err(other),
                }
            }
            batch.finish();
            if !reports.is_empty() {
                return Ok(Self { records: input.events.len(), reports });
            }
        }
        Err(Failure::NotMet(format!("nothing was written: of {} records, {reason}", input.events.len())))
    }

    /// The recoding of least loss, but levels for whole columns, which are simpler to read, unless they lose twice as much.
    fn best(&self) -> RecodingKind {
        let loss = |kind: RecodingKind| self.reports.iter().find(|(k, _)| *k == kind).map(|(_, report)| loss(report));
        match (loss(RecodingKind::FullDomain), loss(RecodingKind::Local)) {
            (Some(full), Some(local)) if full <= 2.0 * local => RecodingKind::FullDomain,
            (Some(_), None) => RecodingKind::FullDomain,
            _ => RecodingKind::Local,
        }
    }

    /// The trade-off, for people.
    fn table(&self) -> String {
        let mut table = table(["recoding", "loss", "left out", "smallest class", "counts right", "cells narrowed"]);
        let mut text = String::new();
        for (kind, report) in &self.reports {
            let (from, useful) = (report.provenance(), report.usefulness.as_ref());
            let share = |value: Option<f64>| value.map_or("-".into(), percent);
            table.add_row([
                kind.as_str().to_owned(),
                format!("{:.3}", loss(report)),
                percent(from.records_suppressed as f64 / from.records_in.max(1) as f64),
                report.manifest.k_achieved.map_or("-".into(), |k| k.to_string()),
                share(useful.map(|useful| useful.counts_by_one)),
                share(useful.map(|useful| useful.attack.cells)),
            ]);
            let name = kind.as_str();
            for words in [&report.words, &report.example].into_iter().filter(|words| !words.is_empty()) {
                text.push_str(&format!("\n{name}: {words}"));
            }
        }
        format!(
            "Tried on {} records:\n{table}\n{text}\n\nloss: 0 gives everything, 1 nothing (glm); counts right: records that counts by \
             one field put in the right place;\ncells narrowed: what a reader who knows the method can exclude\n",
            self.records
        )
    }

    /// What a recoding gave, in one sentence.
    fn words(&self, kind: RecodingKind) -> String {
        let Some((_, report)) = self.reports.iter().find(|(found, _)| *found == kind) else { return String::new() };
        let from = report.provenance();
        format!(
            "Tried on {} records with recoding {}: the release satisfies, {} published, smallest class {}, loss {:.3} (glm).",
            self.records,
            kind.as_str(),
            percent(from.records_published as f64 / from.records_in.max(1) as f64),
            report.manifest.k_achieved.map_or("none".into(), |k| k.to_string()),
            loss(report)
        )
    }
}

fn loss(report: &ReleaseReport) -> f64 {
    report.provenance().work.losses.iter().find(|loss| loss.name == "glm").map_or(1.0, |loss| loss.value)
}

fn intro(args: &InitArgs, input: &FirstInput, outcome: &str) -> Vec<String> {
    let file = if is_standard(&args.output) { "pipeline.yaml".into() } else { args.output.display().to_string() };
    vec![
        format!("A first policy for {}, proposed from {} records.", args.input.name(), input.profile.records),
        outcome.to_owned(),
        "Read it and change it: nobody knows your readers as you do.".into(),
        format!("  veilstream explain -c {file}     the policy in sentences"),
        format!("  veilstream validate -c {file}    every problem at once"),
        format!("  veilstream run -c {file}"),
    ]
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    if is_standard(path) {
        return print_bytes(text.as_bytes());
    }
    let mut file = ReplacedFile::create(path)?;
    file.write(text.as_bytes())?;
    Ok(file.commit()?)
}
