//! `validate --sample`: which fields the records have, against those that the policy names.
//!
//! Prints names of fields and shares, never a value, and only names that [`Survey`] tells.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use comfy_table::{Table, presets};

use crate::cli::run::{message_readers, schemas};
use crate::cli::shared::{Failure, InputArgs, print, runtime};
use crate::codec::RecordReader;
use crate::codec::survey::{Survey, remedy};
use crate::config::{Config, SourceConfig};
use crate::encode::{Encoded, Encoder, quasi_value};
use crate::kafka::client::KafkaSourceConfig;
use crate::kafka::probe::sample::sample;
use crate::kafka::topics::matches;
use crate::model::domain::Domain;
use crate::model::policy::Policy;
use crate::model::record::{Record, Value};
use crate::source::file;

/// The most messages that are read. Larger: takes longer. Smaller: rare mistakes are not seen.
const MOST: usize = 10_000;

/// The result of reading a sample.
struct Sample<'a> {
    policy: &'a Policy,
    survey: Survey,
    encoder: Encoder,
    /// Per quasi-identifier its values, and how many records have one outside its hierarchy.
    quasi: Vec<(Domain, u64)>,
}

/// Reads the sample, prints what it shows, and fails if a field of the policy is in no record.
pub(super) fn run(config: &Config, args: &InputArgs) -> Result<(), Failure> {
    let policy = &config.policy;
    let quasi = policy.quasi.iter().map(|q| (Domain::new(Arc::clone(&q.hierarchy)), 0)).collect();
    let encoder = Encoder::new(Arc::new(policy.clone()));
    let mut sample = Sample { policy, survey: Survey::new(&policy.schema), encoder, quasi };
    match &config.source {
        SourceConfig::Kafka(source) if !is_file(&args.input) => {
            let topic = args.input.to_string_lossy();
            sample.of_topic(config, source, &topic)?;
        }
        _ => sample.of_file(config, args)?,
    }
    sample.report()
}

/// The placement of a topic's records; of a topic that the source does not read, the first one.
fn placement_of(source: &KafkaSourceConfig, topic: &str) -> usize {
    let named = source.topics.iter().find(|rule| rule.name == topic);
    let rule = named.or_else(|| source.topics.iter().find(|rule| matches(&rule.name, topic)));
    rule.map_or(0, |rule| rule.placement)
}

fn is_file(path: &Path) -> bool {
    path.as_os_str() == "-" || path.exists()
}

impl Sample<'_> {
    fn of_file(&mut self, config: &Config, args: &InputArgs) -> Result<(), Failure> {
        let (read, input) = args.open(config)?;
        file::for_each_message(read, input, &self.policy.schema, |event, reader| {
            event.payload.iter().for_each(|payload| self.add(payload, reader));
            self.survey.messages() < MOST as u64
        })?;
        Ok(())
    }

    fn of_topic(&mut self, config: &Config, source: &KafkaSourceConfig, topic: &str) -> Result<(), Failure> {
        let runtime = runtime()?;
        let placement = placement_of(source, topic);
        let schemas = schemas(source, &self.policy.schema);
        let schemas_of = schemas.get(placement);
        let mut readers = message_readers(config, source, &schemas, &self.policy.schema)?;
        let Some(reader) = readers.get_mut(placement) else { return Ok(()) };
        self.survey = reader.survey();
        let mut unavailable = None;
        let read = sample(source, topic, MOST, |payload| {
            if let Some((schemas, id)) = schemas_of.and_then(|s| s.needs(payload).map(|id| (s, id)))
                && let Err(error) = runtime.block_on(schemas.resolve(id))
            {
                unavailable = Some(error);
                schemas.give_up(id);
            }
            self.add(payload, reader);
        });
        read.map_err(|error| Failure::Outside(format!("cannot read the topic {topic}: {error}")))?;
        match unavailable.filter(|_| self.survey.records() == 0) {
            Some(error) => Err(Failure::Outside(error.to_string())),
            None => Ok(()),
        }
    }

    fn add(&mut self, payload: &[u8], reader: &mut RecordReader) {
        let Self { policy, survey, encoder, quasi } = self;
        let read = |each: &mut dyn FnMut(&Record<'_>)| {
            reader.each(payload, |record, fields| {
                look_up(policy, quasi, record);
                survey.add(record, fields);
                each(record);
            })
        };
        let mut refused = None;
        let Ok(()) = encoder.message(None, None, read, |_, encoded| {
            refused = if let Encoded::Rejected(reject) = encoded { Some(reject) } else { None };
            Ok::<(), Infallible>(())
        });
        survey.message(refused.as_ref().map_or(Ok(()), Err), || reader.fields(payload));
    }

    fn report(&self) -> Result<(), Failure> {
        let (messages, records) = (self.survey.messages(), self.survey.records());
        let share = |count: u64| format!("{:.1} %", 100.0 * count as f64 / records.max(1) as f64);
        let inside = if records > messages { format!(" with {records} records") } else { String::new() };
        print(&format!("{messages} messages were read{inside}, {} of them are rejected", self.survey.rejected()))?;
        for (code, told) in self.survey.reasons() {
            print(&format!("  {told}{}", remedy(code)))?;
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(["field", "missing", "null", "out of range"]);
        for (slot, counts) in self.survey.counts().iter().enumerate() {
            let quasi = self.policy.schema.quasi.iter().position(|quasi| *quasi == slot);
            let outside = quasi.map_or(String::new(), |i| share(self.quasi[i].1));
            let name = self.policy.schema.name(slot).to_string();
            table.add_row([name, share(counts.missing), share(counts.null), outside]);
        }
        if records > 0 {
            print(&table.to_string())?;
        }
        let dropped = self.survey.present().into_iter().filter(|path| !self.survey.knows(path));
        let dropped: Vec<String> = dropped.map(|path| path.to_string()).collect();
        if !dropped.is_empty() {
            print(&format!("also there, and dropped: {}", dropped.join(", ")))?;
        }
        let absent = self.survey.absent();
        match self.survey.all_rejected(1) {
            _ if messages == 0 => Err(Failure::Usage("the sample has no record".into())),
            _ if !absent.is_empty() => Err(Failure::Usage(self.survey.told(&absent))),
            Some(told) => Err(Failure::Usage(format!("every record is rejected: {told}"))),
            None => Ok(()),
        }
    }
}

/// Counts the quasi values that are outside their hierarchies.
fn look_up(policy: &Policy, quasi: &mut [(Domain, u64)], record: &Record<'_>) {
    for ((domain, outside), slot) in quasi.iter_mut().zip(&policy.schema.quasi) {
        let value = quasi_value(&policy.schema, record, *slot);
        let known = value.canonical().is_some_and(|text| domain.code(&text).is_some());
        *outside += u64::from(!known && !matches!(*value, Value::Missing | Value::Null));
    }
}
