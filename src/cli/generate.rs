//! `veilstream generate`: a synthetic population on standard output, or into a Kafka topic.

use std::io::{self, ErrorKind, Write};
use std::time::Instant;

use clap::Args;
use secrecy::SecretString;

use super::{Failure, runtime};
use crate::codec::Format;
use crate::codec::avro::container::ContainerWriter;
use crate::codec::registry::Registry;
use crate::kafka::client::Cluster;
use crate::kafka::generate::{GenerateError, Payload, Target, generate};
use crate::kafka::output::value_subject;
use crate::source::generator::{AVRO_SCHEMA, CSV_HEADER, Generator, GeneratorSettings};

/// How much is written at once. Larger: a reader sees the first records later. Smaller: more system calls.
const WRITE_BYTES: usize = 64 << 10;

/// Writes a synthetic population to standard output, or into a Kafka topic
#[derive(Debug, Clone, Args)]
pub struct GenerateArgs {
    /// How many records to write; 0 goes on until stopped
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    pub records: u64,
    /// Records per second; 0 is as fast as they are taken
    #[arg(long, default_value_t = 0.0, value_name = "R", value_parser = rate)]
    pub rate: f64,
    /// The same seed gives the same records
    #[arg(long, default_value_t = 0, value_name = "S")]
    pub seed: u64,
    /// How many different people; a tenth of the records if not given
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub subjects: Option<u64>,
    /// csv, jsonl or avro
    #[arg(long, default_value = "jsonl", value_name = "FORMAT")]
    pub format: Format,
    /// Write into a topic of this cluster instead: HOST:PORT, several with commas
    #[arg(long, value_name = "ADDRESS", requires = "topic")]
    pub brokers: Option<String>,
    /// The topic to write into; it must be there
    #[arg(long, value_name = "TOPIC", requires = "brokers")]
    pub topic: Option<String>,
    /// What the messages have as their key: the person, as most real topics do, or nothing
    #[arg(long, value_name = "KEY", default_value = "user_id", requires = "brokers")]
    pub partitions_key: MessageKey,
    /// With --format avro into a topic: the schema registry
    #[arg(long, value_name = "URL", requires = "brokers")]
    pub registry: Option<String>,
    /// A librdkafka property, such as security.protocol=ssl; may be given several times
    #[arg(short = 'X', long = "property", value_name = "NAME=VALUE", requires = "brokers", value_parser = property)]
    pub properties: Vec<(String, SecretString)>,
}

/// What messages have as their key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum MessageKey {
    /// The person: all records of one are in one partition, in order
    #[value(name = "user_id")]
    UserId,
    /// Nothing: records are spread
    None,
}

fn property(text: &str) -> Result<(String, SecretString), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned().into())),
        _ => Err("write NAME=VALUE".into()),
    }
}

pub(super) fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate >= 0.0 => Ok(rate),
        _ => Err("write a number of records per second, 0 for no limit".into()),
    }
}

/// Runs the command. A reader that goes away is no failure.
pub fn run(args: &GenerateArgs) -> Result<(), Failure> {
    if let (Some(brokers), Some(topic)) = (&args.brokers, &args.topic) {
        return into_topic(args, brokers, topic);
    }
    write_out(args).map_err(|error| Failure::io("cannot write the records", &error))
}

fn into_topic(args: &GenerateArgs, brokers: &str, topic: &str) -> Result<(), Failure> {
    let payload = match (args.format, &args.registry) {
        (Format::Json, None) => Payload::Json,
        (Format::Json, Some(_)) => return Err(Failure::Usage("--registry needs --format avro".into())),
        (Format::Avro, Some(url)) => Payload::ConfluentAvro(registered(url, topic)?),
        (Format::Avro, None) => return Err(Failure::Usage("--format avro into a topic needs --registry URL".into())),
        (Format::Csv, _) => return Err(Failure::Usage("a topic takes --format jsonl or avro".into())),
    };
    let properties = args.properties.iter().cloned().collect();
    let client = Cluster { brokers: brokers.to_owned(), properties }.client(&[("compression.type", "lz4")]);
    let target = Target { topic, keyed: args.partitions_key == MessageKey::UserId, payload };
    let written = generate(&client, &target, &settings(args)).map_err(|error| match error {
        GenerateError::NoTopic(_) => Failure::Usage(error.to_string()),
        GenerateError::Kafka(_) => Failure::Outside(error.to_string()),
    })?;
    // Nothing is waiting for it on standard output, which belongs to records.
    let _ = writeln!(io::stderr(), "{written} records written to {topic}");
    Ok(())
}

/// The id of the records' schema, registered for the topic's values.
fn registered(url: &str, topic: &str) -> Result<u32, Failure> {
    let registry = Registry::new(url, None).map_err(|error| Failure::Outside(error.to_string()))?;
    let id = runtime()?.block_on(registry.register(&value_subject(topic), &compact(AVRO_SCHEMA)));
    id.map_err(|error| Failure::Outside(error.to_string()))
}

fn settings(args: &GenerateArgs) -> GeneratorSettings {
    GeneratorSettings {
        records: (args.records > 0).then_some(args.records),
        rate: args.rate,
        seed: args.seed,
        subjects: args.subjects,
    }
}

fn write_out(args: &GenerateArgs) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match write(args, &mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Writes what `args` ask for.
pub(crate) fn write(args: &GenerateArgs, out: &mut impl Write) -> io::Result<()> {
    let settings = settings(args);
    let mut generator = Generator::new(&settings);
    let started = Instant::now();
    let mut container = ContainerWriter::new(compact(AVRO_SCHEMA));
    let mut text = String::new();
    let mut buffer = Vec::with_capacity(WRITE_BYTES * 2);
    match args.format {
        Format::Json => {}
        Format::Csv => buffer.extend_from_slice(CSV_HEADER.as_bytes()),
        Format::Avro => container.header(&mut buffer),
    }
    loop {
        let wait = settings.due(generator.emitted()).saturating_sub(started.elapsed());
        if !wait.is_zero() {
            // What is due must be seen now, also by a reader of blocks.
            container.flush(&mut buffer);
            flush(&mut buffer, out)?;
            std::thread::sleep(wait);
        }
        let Some(event) = generator.next_event() else { break };
        text.clear();
        match args.format {
            Format::Json => {
                event.write_json(&mut text);
                text.push('\n');
            }
            Format::Csv => event.write_csv(&mut text),
            Format::Avro => container.datum(&mut buffer, |datum| {
                event.write_avro(datum);
                io::Result::Ok(())
            })?,
        }
        buffer.extend_from_slice(text.as_bytes());
        if buffer.len() >= WRITE_BYTES {
            flush(&mut buffer, out)?;
        }
    }
    container.flush(&mut buffer);
    flush(&mut buffer, out)
}

fn flush(buffer: &mut Vec<u8>, out: &mut impl Write) -> io::Result<()> {
    out.write_all(buffer)?;
    buffer.clear();
    out.flush()
}

/// A schema file without its line breaks and indentation: none of its strings holds a space.
fn compact(schema: &str) -> String {
    schema.split_whitespace().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::avro::container::ContainerReader;

    fn args(format: Format) -> GenerateArgs {
        GenerateArgs {
            records: 2000,
            rate: 0.0,
            seed: 7,
            subjects: None,
            format,
            brokers: None,
            topic: None,
            partitions_key: MessageKey::UserId,
            registry: None,
            properties: Vec::new(),
        }
    }

    fn written(format: Format) -> Vec<u8> {
        let mut out = Vec::new();
        write(&args(format), &mut out).unwrap();
        out
    }

    #[test]
    fn every_format_holds_every_record() {
        assert_eq!(written(Format::Json).split(|b| *b == b'\n').count(), 2001);
        assert_eq!(written(Format::Csv).split(|b| *b == b'\n').count(), 2002);
        let file = written(Format::Avro);
        let mut reader = ContainerReader::open(file.as_slice()).unwrap();
        let mut count = 0;
        while let Some(block) = reader.next_block().unwrap() {
            count += block.count;
        }
        assert_eq!(count, 2000);
        assert_eq!(apache_avro::Reader::new(file.as_slice()).unwrap().filter(Result::is_ok).count(), 2000);
        assert_eq!(written(Format::Avro), file);
    }

    #[test]
    fn rates_are_checked() {
        assert_eq!(rate("2.5"), Ok(2.5));
        for bad in ["-1", "NaN", "inf", "fast"] {
            assert!(rate(bad).is_err(), "{bad}");
        }
    }
}
