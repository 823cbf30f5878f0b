//! `veilstream hierarchy`: makes a hierarchy for one field from a sample, to be looked at, kept and used like one that a person wrote.
//!
//! A hierarchy that followed the data of each window would say something about them. So it is made once, from a sample, and
//! frozen into a file. Nothing rare is in it: a value that fewer than `--k` people hold is left out, and the policy's
//! `unknown_value` decides about it.

mod groups;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use rustc_hash::{FxHashMap, FxHashSet};

use super::shared::{Failure, OpenArgs, is_standard, refuse_same_file, tell};
use crate::codec::DEFAULT_MAX_RECORD_BYTES;
use crate::codec::csv::write_field;
use crate::codec::survey::{Survey, remedy};
use crate::files::ReplacedFile;
use crate::model::hierarchy::Hierarchy;
use crate::model::record::Record;
use crate::model::schema::{Role, Schema};
use crate::source::file;
use groups::{Held, Paths, by_frequency, by_order, by_quantile};

/// Different values that are counted. Larger: more memory. Smaller: a sample with many names in it is refused.
const MAX_VALUES: usize = 1_000_000;

/// Makes a hierarchy for a field from a sample file
///
/// Counts the people who hold each value, groups the values, and writes a CSV file in ARX's format: one line per value, with its
/// generalizations from fine to coarse. Values that fewer than --k people hold are not written; `unknown_value` of the policy
/// decides about them. Bounds of numbers are rounded.
#[derive(Debug, Args)]
pub(super) struct HierarchyArgs {
    /// The sample; - is standard input
    #[arg(value_name = "FILE")]
    input: PathBuf,
    #[command(flatten)]
    open: OpenArgs,
    /// The field to make a hierarchy for
    #[arg(long, value_name = "NAME")]
    field: String,
    /// The field that identifies the person of a record; people are counted, not records [default: each record is a person]
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,
    /// The grouping of values
    #[arg(long, value_name = "WAY", default_value = "order")]
    by: Grouping,
    /// The fewest people that hold a value, or lie in an interval; take the k of the policy, or more
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(2..))]
    k: u64,
    /// The groups of one level that become one group of the next
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(2..=100))]
    fan: u64,
    /// The intervals of the finest level of --by quantile
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u64).range(2..=1000))]
    groups: u64,
    /// The file for the hierarchy; - is standard output. An existing file is replaced
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Grouping {
    /// Neighbours in the order of the values
    Order,
    /// The values that few people hold, then more of them
    Frequency,
    /// Whole numbers in intervals with about as many people each
    Quantile,
}

pub(super) fn run(args: &HierarchyArgs) -> Result<(), Failure> {
    refuse_same_file(&args.input, &args.output, "is the file that is read")?;
    let counts = count(args)?;
    let values = counts.len();
    let quantile = args.by == Grouping::Quantile;
    // Intervals hold enough people even where no single number does.
    let common: Vec<Held> = counts.into_iter().filter(|(_, held)| quantile || *held >= args.k).collect();
    if common.is_empty() {
        return Err(Failure::Usage(format!(
            "no value of `{}` is held by {} people: give a larger sample, a smaller --k, or write the hierarchy by hand",
            args.field, args.k
        )));
    }
    let (rare, fan) = (values - common.len(), args.fan as usize);
    let paths = match args.by {
        Grouping::Order => by_order(common, fan),
        Grouping::Frequency => by_frequency(common, args.k, fan),
        Grouping::Quantile => by_quantile(&common, args.k, args.groups as usize, fan)
            .map_err(|why| Failure::Usage(format!("`{}` {why}", args.field)))?,
    };
    let bytes = written(&paths);
    let hierarchy = Hierarchy::parse_csv(&bytes).map_err(|errors| {
        let first = errors.first().and_then(|error| error.line).unwrap_or(0);
        Failure::Usage(format!("the groups are no hierarchy (line {first}): choose another --by"))
    })?;
    let mut out = if is_standard(&args.output) { ReplacedFile::stdout() } else { ReplacedFile::create(&args.output)? };
    out.write(&bytes)?;
    out.commit()?;
    tell!(
        "{} values on {} levels; {rare} values that fewer than {} people hold are left out: `unknown_value` decides about them",
        paths.len(),
        hierarchy.height() + 1,
        args.k
    );
    Ok(())
}

/// How many people hold each value.
fn count(args: &HierarchyArgs) -> Result<FxHashMap<String, u64>, Failure> {
    let mut fields = vec![(args.field.as_str(), Role::Quasi)];
    fields.extend(args.subject.as_deref().map(|subject| (subject, Role::Subject)));
    let schema = Schema::new(fields);
    let (from, input) = args.open.open(&args.input, DEFAULT_MAX_RECORD_BYTES)?;
    let mut held: FxHashMap<String, u64> = FxHashMap::default();
    let mut seen: FxHashSet<(String, String)> = FxHashSet::default();
    let mut many = false;
    let mut survey = Survey::new(&schema);
    let mut add = |record: &Record<'_>| {
        let value = schema.quasi.first().and_then(|slot| record.values[*slot].canonical());
        let Some(value) = value.filter(|value| !value.is_empty()) else { return };
        if let Some(slot) = schema.subject {
            let subject = record.values[slot].counted();
            // Intervals hold many values: somebody is in one of them only, or would be all the people at a bound.
            let of_value = if args.by == Grouping::Quantile { String::new() } else { value.clone().into_owned() };
            // Without a subject nobody can be counted.
            if subject.is_empty() || !seen.insert((of_value, subject.into_owned())) {
                return;
            }
        }
        many |= held.len() >= MAX_VALUES;
        if !many {
            *held.entry(value.into_owned()).or_insert(0) += 1;
        }
    };
    file::for_each_message(from, input, &schema, |event, reader| {
        let payload = event.payload.as_deref().unwrap_or_default();
        let read = reader.each(payload, |record, fields| {
            survey.add(record, fields);
            add(record);
        });
        survey.message(read.as_ref().copied(), || reader.fields(payload));
        true
    })?;
    let absent = survey.absent();
    match survey.all_rejected(1) {
        Some(told) => Err(Failure::Usage(format!("every record is rejected: {told}"))),
        None if !absent.is_empty() => Err(Failure::Usage(survey.told(&absent))),
        None if many => {
            Err(Failure::Usage(format!("`{}` has more than {MAX_VALUES} different values: give a sample", args.field)))
        }
        None => {
            survey.reasons().iter().for_each(|(code, told)| tell!("{told}{}", remedy(*code)));
            Ok(held)
        }
    }
}

/// The lines of the file.
fn written(paths: &Paths) -> Vec<u8> {
    let mut bytes = Vec::new();
    for path in paths {
        for (i, label) in path.iter().enumerate() {
            if i > 0 {
                bytes.push(b';');
            }
            write_field(label, b';', &mut bytes);
        }
        bytes.push(b'\n');
    }
    bytes
}
