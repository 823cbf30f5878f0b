//! `veilstream run`: runs the service from its source to its sink, until the input ends or a signal stops it.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::shared::{
    Failure, ShownBesideLogs, keep_little, max_record_bytes, now, pipeline, print, reading_beside_logs, runtime, tell,
};
use crate::codec::avro::AvroDecoder;
use crate::codec::confluent::SchemaCache;
use crate::codec::json::JsonDecoder;
use crate::codec::protobuf::ProtobufDecoder;
use crate::codec::{Decode, Format, RecordReader};
use crate::config::{Config, Purpose, SinkConfig, SourceConfig};
use crate::files::is_stdout;
use crate::kafka::client::{BadStart, KafkaSinkConfig, KafkaSourceConfig, MessageFormat};
use crate::kafka::session::Session;
use crate::kafka::sink::KafkaSink;
use crate::kafka::source::{self as kafka_source, KafkaSource, Left};
use crate::kafka::topics::Topics;
use crate::model::schema::{Placement, Schema};
use crate::pipeline::{Pipeline, Summary};
use crate::shutdown::Stop;
use crate::sink::SinkError;
use crate::sink::file::{AudienceFile, FilePaths, FileSink};
use crate::source::generator::{GeneratorSettings, GeneratorSource};
use crate::source::{Input, Preamble, ReaderSource, Source, SourceError, SourceItem, file};
use crate::telemetry::http;

/// The bytes of messages that are fetched ahead if there is no `limits.memory`. Larger: more memory. Smaller: the window waits for the
/// network.
const FETCHED_AHEAD: u64 = 64 << 20;
/// The part of `limits.memory` that is fetched ahead, at most as much, and that waits to be sent. Larger: the limit does not hold. Smaller:
/// as above.
const CLIENT_PART: u64 = 32;
/// An instance whose name in the group is not its transactional id does not start over when it loses the name again so soon: somebody
/// with another id uses the name, too. Longer: a network that is bad for long ends the process. Shorter: two instances take the
/// name from each other more often.
const LOST_AGAIN: Duration = Duration::from_secs(600);
/// How long leaving the group may take. Longer: an unreachable broker delays the end. Shorter: other instances wait for the
/// session timeout although a busy broker would have answered.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the service: reads records, publishes anonymized releases
///
/// Ends when its input ends, or on SIGTERM or SIGINT. Then it reads no further, publishes the records that it can protect, and
/// prints the outcome of all records: one JSON object on standard output, or, if the releases themselves go there
/// (`sink: stdio`), the last line on standard error. The exit code is 1 if records came in but none could be published
/// because nothing satisfies the policy, or because all of the first ones are rejected.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// The pipeline, in YAML
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
}

pub(super) fn run(args: &RunArgs) -> Result<(), Failure> {
    let config = Config::load(&args.config, Purpose::Pipeline)?;
    keep_little(&config);
    config.warnings.iter().for_each(|warning| tracing::warn!(%warning, "a setting is valid but rarely intended"));
    if let Some(output) = published_before(&config) {
        tracing::warn!(
            "{} has rows already, and the input is read from its beginning: if a run published it before, the same people are in it \
             twice",
            output.display()
        );
    }
    let summary = runtime()?.block_on(serve(&config))?;
    let json = serde_json::json!(summary).to_string();
    let not_met = summary.not_met().map(Failure::not_met);
    match not_met {
        // The summary is the last line.
        Some(failure) if rows_on_stdout(&config) => Err(Failure::NotMet(format!("{failure}\n{json}"))),
        None if rows_on_stdout(&config) => {
            tell!("{json}");
            Ok(())
        }
        not_met => print(&json).and(not_met.map_or(Ok(()), Err)),
    }
}

fn rows_on_stdout(config: &Config) -> bool {
    match &config.sink {
        SinkConfig::Stdio { .. } => true,
        SinkConfig::File { path, .. } => is_stdout(path),
        SinkConfig::Kafka(_) => false,
    }
}

/// The output, if it has rows and the input is a file, which is read from its beginning.
fn published_before(config: &Config) -> Option<&Path> {
    let (SourceConfig::File { .. }, SinkConfig::File { path, .. }) = (&config.source, &config.sink) else {
        return None;
    };
    std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() > 0).then_some(path)
}

async fn serve(config: &Config) -> Result<Summary, Failure> {
    let (pipeline, mut stop) = pipeline(config, name(config), seed(config))?;
    let (policy, telemetry) = (Arc::clone(&pipeline.policy), Arc::clone(&pipeline.telemetry));
    if let Some(http) = &config.http {
        let failed = |error: io::Error| Failure::Outside(format!("cannot listen on {}: {error}", http.listen));
        http::serve(http.listen, http.token.clone(), Arc::clone(&telemetry), now).await.map_err(failed)?;
    }
    if let (SourceConfig::Kafka(source), SinkConfig::Kafka(sink)) = (&config.source, &config.sink) {
        let routed = config.route.as_ref().map(|route| source.routed(&route.topic));
        return serve_kafka(config, routed.as_ref().unwrap_or(source), sink, pipeline, stop).await;
    }
    telemetry.set_ready(true);
    let opened = tokio::select! {
        opened = AnySource::open(config) => Some(opened?),
        // The header of a CSV input may not have arrived yet.
        () = stop.asked() => None,
    };
    let Some((source, preamble, _progress)) = opened else { return Ok(Summary::default()) };
    let readers = vec![preamble.reader(&policy.schema, max_record_bytes(config))?];
    let Some(sink) = file_sink(config, &preamble, &mut stop).await? else { return Ok(Summary::default()) };
    Ok(pipeline.run(source, readers, sink, stop).await?)
}

/// Runs from topic to topic. An instance that loses its name in the group to a late join of its own starts over, as a new process would.
async fn serve_kafka(
    config: &Config,
    source: &KafkaSourceConfig,
    sink: &KafkaSinkConfig,
    mut pipeline: Pipeline,
    mut stop: Stop,
) -> Result<Summary, Failure> {
    let named = source.published_by(sink);
    let shares_name = named.member.as_ref().is_some_and(|member| member.name != sink.transactional_id);
    let mut lost: Option<Instant> = None;
    loop {
        let (policy, meter) = (Arc::clone(&pipeline.policy), Arc::clone(pipeline.telemetry.meter()));
        let schemas = schemas(source, &policy.schema);
        let readers = message_readers(config, source, &schemas, &policy.schema)?;
        let session = Session::new(Topics::new(source.topics.clone()), source.start, source.on_gap, Arc::clone(&meter));
        let session = Arc::new(session.sharing(sink.progress.as_deref()));
        let opened = kafka(config, &named, sink, &policy.schema, schemas, &session, &mut stop).await?;
        let Some((events, publisher, left)) = opened else { return Ok(Summary::default()) };
        let next = pipeline.anew(seed(config));
        let ended = pipeline.run(events, readers, publisher, stop.clone()).await;
        leave(left).await;
        let again = shares_name && lost.is_some_and(|lost| lost.elapsed() < LOST_AGAIN);
        if ended.is_ok() || !session.may_start_over() || again {
            return Ok(ended?);
        }
        tracing::warn!("a late join of this instance has taken its name in the group: it starts over under that name");
        meter.took_name_back();
        (pipeline, lost) = (next, Some(Instant::now()));
    }
}

/// Fixes shuffles and searches.
fn seed(config: &Config) -> u64 {
    config.seed.unwrap_or_else(rand::random)
}

/// The first part of every release id. All instances of a group use the same: one may carry out a release that another one
/// has planned.
fn name(config: &Config) -> String {
    match &config.source {
        SourceConfig::Kafka(source) => source.group.clone(),
        _ => config.path.file_stem().map_or_else(|| "run".into(), |stem| stem.to_string_lossy().into_owned()),
    }
}

/// Joins the group and takes over the transactional id. Source and sink share one session, because records and offsets are
/// one transaction. `None` if a stop is asked for before the cluster answers.
async fn kafka(
    config: &Config,
    source: &KafkaSourceConfig,
    sink: &KafkaSinkConfig,
    schema: &Schema,
    schemas: Vec<Arc<SchemaCache>>,
    session: &Arc<Session>,
    stop: &mut Stop,
) -> Result<Option<(KafkaSource, KafkaSink, Left)>, Failure> {
    let journal = sink.journal.as_ref().map(|journal| journal.topic.clone());
    let (events, consumer, left) =
        kafka_source::open(source.clone(), Arc::clone(session), schemas.clone(), ahead(config), journal)?;
    let schema = Arc::new(schema.clone().also_at(&source.placements));
    let (sink, shared) = (KafkaSinkConfig { unsent: part(config), ..sink.clone() }, Arc::clone(session));
    let sink = opened(stop, move || KafkaSink::open(sink, shared, consumer, schema, schemas)).await;
    if let Ok(Some(sink)) = sink {
        return Ok(Some((events, sink, left)));
    }
    session.finish();
    leave(left).await;
    sink.map(|_| None)
}

/// The bytes of messages that are fetched ahead.
pub(super) fn ahead(config: &Config) -> usize {
    part(config).unwrap_or(FETCHED_AHEAD as usize)
}

/// The part of the memory that a client may have, where memory is limited.
pub(super) fn part(config: &Config) -> Option<usize> {
    config.limits.memory.map(|limit| (limit / CLIENT_PART).min(FETCHED_AHEAD) as usize)
}

/// Opens a sink on a thread of its own, because waiting for a cluster or for the reader of a pipe may take for ever. `None`
/// if a stop is asked for first; the thread is then left behind.
pub(super) async fn opened<T: Send + 'static>(
    stop: &mut Stop,
    open: impl FnOnce() -> Result<T, SinkError> + Send + 'static,
) -> Result<Option<T>, Failure> {
    let runtime = Handle::current();
    let (done, opening) = oneshot::channel();
    let open = move || {
        let _runtime = runtime.enter();
        // The receiver is gone after a stop.
        let _ = done.send(open());
    };
    std::thread::Builder::new().name("opening".into()).spawn(open).map_err(|_| SinkError::Closed)?;
    Ok(tokio::select! {
        opened = opening => Some(opened.unwrap_or(Err(SinkError::Closed))?),
        () = stop.asked() => None,
    })
}

/// Waits until the instance has left the group, so that the other instances need not wait for its session timeout.
pub(super) async fn leave(left: Left) {
    if tokio::time::timeout(LEAVE_TIMEOUT, left).await.is_err() {
        tracing::warn!("could not leave the group in time: its partitions are taken over after the session timeout");
    }
}

/// The schemas of the registry by placement, shared by source, readers and sink; none without a registry.
pub(super) fn schemas(source: &KafkaSourceConfig, schema: &Schema) -> Vec<Arc<SchemaCache>> {
    let (Some(config), MessageFormat::Confluent(language)) = (&source.registry, &source.format) else {
        return Vec::new();
    };
    let cache = |placement| Arc::new(SchemaCache::new(config.client(), *language, &schema.placed(placement)));
    source.placements.iter().map(cache).collect()
}

/// A reader of messages for each placement.
pub(super) fn message_readers(
    config: &Config,
    source: &KafkaSourceConfig,
    schemas: &[Arc<SchemaCache>],
    schema: &Schema,
) -> Result<Vec<RecordReader>, Failure> {
    let most = max_record_bytes(config);
    let reader = |(number, placement): (usize, &Placement)| {
        let schema = schema.placed(placement);
        let decoder: Box<dyn Decode> = match (&source.format, schemas.get(number)) {
            (MessageFormat::Avro(writer), _) => Box::new(AvroDecoder::new(&schema, writer, most)?),
            (MessageFormat::Protobuf(message), _) => Box::new(ProtobufDecoder::new(&schema, message, most)?),
            (MessageFormat::Confluent(_), Some(schemas)) => Box::new(schemas.decoder(most)),
            _ => Box::new(JsonDecoder::new(&schema, most)),
        };
        let reader = RecordReader::new(decoder, &schema, most);
        Ok(if source.bad_start == BadStart::Reject { reader.starting_badly() } else { reader })
    };
    source.placements.iter().enumerate().map(reader).collect()
}

/// The sources that need no broker.
enum AnySource {
    Reader(ReaderSource),
    Generator(Box<GeneratorSource>),
}

impl AnySource {
    async fn open(config: &Config) -> Result<(Self, Preamble, Option<ShownBesideLogs>), SourceError> {
        let max_record_bytes = max_record_bytes(config);
        let input = |format, delimiter, encoding| Input { format, likely: None, delimiter, encoding, max_record_bytes };
        Ok(match &config.source {
            SourceConfig::File { path, format, delimiter, encoding, .. } => {
                let input = Input { likely: Format::of_path(path), ..input(*format, *delimiter, *encoding) };
                let bytes = file::bytes(path)?;
                // Rows would tear a display on the same terminal.
                let (progress, bytes) = match rows_on_stdout(config) && io::stdout().is_terminal() {
                    true => (None, bytes),
                    false => {
                        let (shown, bytes) = reading_beside_logs(path, bytes);
                        (Some(shown), bytes)
                    }
                };
                let (source, preamble) = file::open(bytes, input).await?;
                (Self::Reader(source), preamble, progress)
            }
            SourceConfig::Stdio { format } => {
                let (source, preamble) = file::stdin(input(*format, None, None)).await?;
                (Self::Reader(source), preamble, None)
            }
            SourceConfig::Generator { records, rate, seed, subjects } => {
                let settings = GeneratorSettings {
                    records: *records,
                    rate: rate.unwrap_or(0.0),
                    seed: *seed,
                    subjects: Some(*subjects),
                };
                (Self::Generator(Box::new(GeneratorSource::new(settings))), Preamble::Json, None)
            }
            // The configuration allows it with a Kafka sink only.
            SourceConfig::Kafka(_) => return Err(SourceError::Thread),
        })
    }
}

impl Source for AnySource {
    async fn next(&mut self) -> Result<SourceItem, SourceError> {
        match self {
            Self::Reader(source) => source.next().await,
            Self::Generator(source) => source.next().await,
        }
    }
}

/// Opens the sink that needs no broker. `None` if a stop is asked for first.
async fn file_sink(config: &Config, preamble: &Preamble, stop: &mut Stop) -> Result<Option<FileSink>, Failure> {
    let (paths, format, tables) = match &config.sink {
        SinkConfig::File { path, format, manifest, journal, audiences } => {
            let paths = FilePaths { rows: path.clone(), manifest: manifest.clone(), journal: journal.clone() };
            (paths, *format, audiences.as_slice())
        }
        SinkConfig::Stdio { format } => (FilePaths::rows_only("/dev/stdout"), *format, &[][..]),
        // The configuration allows it with a Kafka source only.
        SinkConfig::Kafka(_) => return Err(SinkError::Closed.into()),
    };
    let schema = &config.policy.schema.with_added();
    let encoder = preamble.encoder(schema, format, &paths.rows)?;
    let mut audiences = Vec::new();
    for table in tables {
        let encoder = preamble.encoder(&table.audience.schema(schema), format, &table.rows)?;
        audiences.push(AudienceFile { table: table.clone(), encoder, seen: table.audience.seen(schema) });
    }
    opened(stop, move || FileSink::open(&paths, encoder, audiences)).await
}
