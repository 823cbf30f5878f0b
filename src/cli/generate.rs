//! `veilstream generate`: writes synthetic records to standard output or into a Kafka topic.

use std::io::{self, ErrorKind, Write};
use std::time::Instant;

use clap::Args;
use secrecy::SecretString;

use super::shared::{Failure, rate, runtime, tell};
use crate::codec::Format;
use crate::codec::avro::container::ContainerWriter;
use crate::codec::registry::Registry;
use crate::codec::schemas::SchemaLanguage;
use crate::kafka::client::Cluster;
use crate::kafka::generate::{GenerateError, Payload, Target, generate};
use crate::kafka::sink::output::value_subject;
use crate::source::generator::{AVRO_SCHEMA, CSV_HEADER, Generator, GeneratorSettings};

/// How much is written at once. Larger: a reader sees the first records later. Smaller: more system calls.
const WRITE_BYTES: usize = 64 << 10;

/// Writes synthetic records to standard output or into a Kafka topic
#[derive(Debug, Clone, Args)]
pub(super) struct GenerateArgs {
    /// The number of records; 0 for no end
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    records: u64,
    /// Records per second; 0 for no limit
    #[arg(long, default_value_t = 0.0, value_name = "R", value_parser = rate)]
    rate: f64,
    /// The seed; the same seed gives the same records
    #[arg(long, default_value_t = 0, value_name = "S")]
    seed: u64,
    /// The number of different people [default: a tenth of the records]
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    subjects: Option<u64>,
    /// The format: csv, jsonl or avro
    #[arg(long, default_value = "jsonl", value_name = "FORMAT")]
    format: Format,
    /// Write into a topic of this Kafka cluster; HOST:PORT, several separated by commas
    #[arg(long, value_name = "ADDRESS", requires = "topic")]
    brokers: Option<String>,
    /// The topic to write into; it must exist
    #[arg(long, value_name = "TOPIC", requires = "brokers")]
    topic: Option<String>,
    /// The key of the messages
    #[arg(long, value_name = "KEY", default_value = "user_id", requires = "brokers")]
    partitions_key: MessageKey,
    /// The schema registry, for --format avro into a topic
    #[arg(long, value_name = "URL", requires = "brokers")]
    registry: Option<String>,
    /// A property for librdkafka, such as security.protocol=ssl; may be repeated
    #[arg(short = 'X', long = "property", value_name = "NAME=VALUE", requires = "brokers", value_parser = property)]
    properties: Vec<(String, SecretString)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum MessageKey {
    /// The person: all records of a person are in one partition, in order
    #[value(name = "user_id")]
    UserId,
    /// No key: records are distributed over the partitions
    None,
}

/// A property of librdkafka, for the command line.
pub(super) fn property(text: &str) -> Result<(String, SecretString), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned().into())),
        _ => Err("write NAME=VALUE".into()),
    }
}

pub(super) fn run(args: &GenerateArgs) -> Result<(), Failure> {
    if args.format == Format::Parquet {
        return Err(Failure::Usage("--format takes csv, jsonl or avro".into()));
    }
    if let (Some(brokers), Some(topic)) = (&args.brokers, &args.topic) {
        return into_topic(args, brokers, topic);
    }
    let mut out = io::stdout().lock();
    match write(args, &mut out).and_then(|()| out.flush()) {
        // The reader went away.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(|error| Failure::io("cannot write the records", &error)),
    }
}

fn into_topic(args: &GenerateArgs, brokers: &str, topic: &str) -> Result<(), Failure> {
    let payload = match (args.format, &args.registry) {
        (Format::Json, None) => Payload::Json,
        (Format::Json, Some(_)) => return Err(Failure::Usage("--registry needs --format avro".into())),
        (Format::Avro, Some(url)) => Payload::ConfluentAvro(registered(url, topic)?),
        (Format::Avro, None) => return Err(Failure::Usage("--format avro into a topic needs --registry URL".into())),
        (Format::Csv | Format::Parquet, _) => {
            return Err(Failure::Usage("a topic takes --format jsonl or avro".into()));
        }
    };
    let properties = args.properties.iter().cloned().collect();
    let client =
        Cluster { brokers: brokers.to_owned(), properties, login: None }.client(&[("compression.type", "lz4")]);
    let target = Target { topic, keyed: args.partitions_key == MessageKey::UserId, payload };
    let written = generate(&client, &target, &settings(args)).map_err(|error| match error {
        GenerateError::NoTopic(_) => Failure::Usage(error.to_string()),
        GenerateError::Kafka(_) => Failure::Outside(error.to_string()),
    })?;
    tell!("{written} records written to {topic}");
    Ok(())
}

/// The id of the records' schema, registered for the topic's values.
fn registered(url: &str, topic: &str) -> Result<u32, Failure> {
    let registry = Registry::new(url, None);
    let id = runtime()?.block_on(registry.register(&value_subject(topic), SchemaLanguage::Avro, &compact(AVRO_SCHEMA)));
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

fn write(args: &GenerateArgs, out: &mut impl Write) -> io::Result<()> {
    let settings = settings(args);
    let mut generator = Generator::new(&settings);
    let started = Instant::now();
    let mut container = ContainerWriter::new(compact(AVRO_SCHEMA));
    let mut text = String::new();
    let mut buffer = Vec::with_capacity(WRITE_BYTES * 2);
    match args.format {
        Format::Json | Format::Parquet => {}
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
            Format::Json | Format::Parquet => {
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
}
