//! `veilstream run`: the service, from its source to its sink, until the input ends or a signal asks for a drain.

use std::fs::File;
use std::io::{self, Stdout, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::{Failure, now, print, runtime};
use crate::codec::avro::AvroDecoder;
use crate::codec::confluent::SchemaCache;
use crate::codec::json::JsonDecoder;
use crate::codec::registry::Registry;
use crate::codec::{Decode, Encode};
use crate::config::{Config, Purpose, SinkConfig, SourceConfig};
use crate::gate::Release;
use crate::kafka::Topics;
use crate::kafka::client::{KafkaSinkConfig, KafkaSourceConfig, MessageFormat};
use crate::kafka::session::Session;
use crate::model::meter::Meter;
use crate::model::schema::Schema;
use crate::pipeline::{Pipeline, Summary};
use crate::shutdown::{self, Stop};
use crate::sink::file::{self as file_sink, WriterSink};
use crate::sink::kafka::KafkaSink;
use crate::sink::{Delivery, Sink, SinkError};
use crate::source::generator::{GeneratorSettings, GeneratorSource};
use crate::source::kafka::{self as kafka_source, KafkaSource, Left};
use crate::source::{Input, Preamble, ReaderSource, Source, SourceError, SourceItem, file, stdio};
use crate::telemetry::{Telemetry, http};

/// Fetched ahead without a memory limit. Larger: more memory. Smaller: the window waits for the network.
const DEFAULT_FETCH_BYTES: usize = 64 << 20;
/// How long leaving the group may take. Longer: a broker that is away holds up the end. Shorter: the others wait for the
/// session's timeout although a busy broker would have answered.
const LEAVE: Duration = Duration::from_secs(10);

/// Runs the service: records in, safe releases out
///
/// Ends when its input ends, or on SIGTERM or SIGINT: then it reads no further, publishes what it can protect, and says
/// what became of every record. That summary is one JSON object on standard output; if the releases themselves go there
/// (`sink: stdio`), it is the last line on standard error.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The pipeline, in YAML
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
}

/// Runs the service.
pub fn run(args: &RunArgs) -> Result<(), Failure> {
    let config = Config::load(&args.config, Purpose::Pipeline)?;
    config.warnings.iter().for_each(|warning| tracing::warn!(%warning, "the configuration is hardly meant so"));
    let summary = runtime()?.block_on(serve(&config))?;
    let json = serde_json::to_string(&summary).map_err(|error| Failure::Outside(error.to_string()))?;
    match config.sink {
        SinkConfig::Stdio { .. } => {
            writeln!(io::stderr(), "{json}").map_err(|error| Failure::io("cannot write to standard error", &error))
        }
        SinkConfig::File { .. } | SinkConfig::Kafka(_) => print(&json),
    }
}

async fn serve(config: &Config) -> Result<Summary, Failure> {
    let policy = Arc::new(config.policy.clone());
    let telemetry = Telemetry::new(&policy).map_err(|error| Failure::Outside(error.to_string()))?;
    let telemetry = Arc::new(telemetry);
    if let Some(http) = &config.http {
        let failed = |error: io::Error| Failure::Outside(format!("cannot listen on {}: {error}", http.listen));
        http::serve(http.listen, http.token.clone(), Arc::clone(&telemetry), now).await.map_err(failed)?;
    }
    let (stopper, mut stop) = shutdown::channel();
    shutdown::on_signals(stopper).map_err(|error| Failure::io("cannot listen for signals", &error))?;
    let pipeline = Pipeline {
        policy: Arc::clone(&policy),
        windows: config.window_rules(),
        scope: config.window.scope,
        choice: config.choice(),
        name: name(config),
        seed: seed(config),
        telemetry: Arc::clone(&telemetry),
        clock: now,
    };
    if let (SourceConfig::Kafka(source), SinkConfig::Kafka(sink)) = (&config.source, &config.sink) {
        let schemas = schemas(source, &policy.schema)?;
        let decoder = message_decoder(config, source, schemas.as_ref(), &policy.schema)?;
        let meter = Arc::clone(telemetry.meter());
        let opened = kafka(config, source, sink, &policy.schema, schemas, meter, &mut stop).await?;
        let Some((source, sink, left)) = opened else { return Ok(Summary::default()) };
        let ended = pipeline.run(source, decoder, sink, stop).await;
        leave(left).await;
        return Ok(ended?);
    }
    let opened = tokio::select! {
        opened = AnySource::open(config) => Some(opened?),
        // A CSV header, say, that has not come yet.
        () = stop.asked() => None,
    };
    let Some((source, preamble)) = opened else { return Ok(Summary::default()) };
    let max_record_bytes = max_record_bytes(config);
    let decoder = preamble.decoder(&policy.schema, max_record_bytes)?;
    let sink = AnySink::open(config, &preamble)?;
    telemetry.set_ready(true);
    Ok(pipeline.run(source, decoder, sink, stop).await?)
}

/// The seed of shuffles and searches. Never a given one with Kafka: it also names releases and their plans, which must
/// differ between instances and from start to start.
fn seed(config: &Config) -> u64 {
    match config.source {
        SourceConfig::Kafka(_) => rand::random(),
        _ => config.search.seed.unwrap_or_else(rand::random),
    }
}

/// The first part of every release id: the same on every instance of a group, because any of them may have to carry out
/// what another one has planned.
fn name(config: &Config) -> String {
    match &config.source {
        SourceConfig::Kafka(source) => source.group.clone(),
        _ => config.path.file_stem().map_or_else(|| "run".into(), |stem| stem.to_string_lossy().into_owned()),
    }
}

/// Joins the group and takes the transactional id over. Both sides share one session: records and offsets are one
/// transaction. `None` if a stop is asked for while the cluster is waited for.
async fn kafka(
    config: &Config,
    source: &KafkaSourceConfig,
    sink: &KafkaSinkConfig,
    schema: &Schema,
    schemas: Option<Arc<SchemaCache>>,
    meter: Arc<Meter>,
    stop: &mut Stop,
) -> Result<Option<(KafkaSource, KafkaSink, Left)>, Failure> {
    let session = Arc::new(Session::new(Topics::new(source.topics.clone()), source.start, source.on_gap, meter));
    let memory = config.limits.memory.map_or(DEFAULT_FETCH_BYTES, |m| usize::try_from(m / 4).unwrap_or(usize::MAX));
    let journal = sink.journal.as_ref().map(|journal| journal.topic.clone());
    let (events, consumer, left) =
        kafka_source::open(source.clone(), Arc::clone(&session), schemas.clone(), memory, journal)?;
    let (sink, schema, shared, runtime) =
        (sink.clone(), Arc::new(schema.clone()), Arc::clone(&session), Handle::current());
    // On a thread that may be left behind, for nothing says how long a cluster is waited for.
    let (opened, opening) = oneshot::channel();
    let open = move || {
        let _runtime = runtime.enter();
        // Nobody may wait for it any more.
        let _ = opened.send(KafkaSink::open(sink, shared, consumer, schema, schemas));
    };
    std::thread::Builder::new().name("opening".into()).spawn(open).map_err(|_| SourceError::Thread)?;
    let sink = tokio::select! {
        opened = opening => opened.unwrap_or(Err(SinkError::Closed)).map(Some),
        () = stop.asked() => Ok(None),
    };
    if let Ok(Some(sink)) = sink {
        return Ok(Some((events, sink, left)));
    }
    session.finish();
    leave(left).await;
    sink.map(|_| None).map_err(Failure::from)
}

/// Waits until the instance has left the group, so that the others need not wait for its session to end.
async fn leave(left: Left) {
    if tokio::time::timeout(LEAVE, left).await.is_err() {
        tracing::warn!("the group was not left in time: others wait for the session's timeout");
    }
}

/// What is known of the registry's schemas, shared by source, decoder and sink.
fn schemas(source: &KafkaSourceConfig, schema: &Schema) -> Result<Option<Arc<SchemaCache>>, Failure> {
    let Some(config) = &source.registry else { return Ok(None) };
    let registry = Registry::new(&config.url, config.credentials.as_ref());
    let registry = registry.map_err(|error| Failure::Outside(error.to_string()))?;
    Ok(Some(Arc::new(SchemaCache::new(registry, schema))))
}

fn message_decoder(
    config: &Config,
    source: &KafkaSourceConfig,
    schemas: Option<&Arc<SchemaCache>>,
    schema: &Schema,
) -> Result<Box<dyn Decode>, Failure> {
    let most = max_record_bytes(config);
    Ok(match (&source.format, schemas) {
        (MessageFormat::Avro(writer), _) => Box::new(AvroDecoder::new(schema, writer, most)?),
        (MessageFormat::ConfluentAvro, Some(schemas)) => Box::new(schemas.decoder(most)),
        _ => Box::new(JsonDecoder::new(schema, most)),
    })
}

fn max_record_bytes(config: &Config) -> usize {
    usize::try_from(config.limits.max_record_bytes).unwrap_or(usize::MAX)
}

/// The sources that need no broker.
enum AnySource {
    Reader(ReaderSource),
    Generator(Box<GeneratorSource>),
}

impl AnySource {
    async fn open(config: &Config) -> Result<(Self, Preamble), SourceError> {
        let max_record_bytes = max_record_bytes(config);
        Ok(match &config.source {
            SourceConfig::File { path, format, delimiter } => {
                let input = Input { format: *format, delimiter: *delimiter, max_record_bytes };
                let (source, preamble) = file::open(path, input).await?;
                (Self::Reader(source), preamble)
            }
            SourceConfig::Stdio { format } => {
                let input = Input { format: *format, delimiter: None, max_record_bytes };
                let (source, preamble) = stdio::open(input).await?;
                (Self::Reader(source), preamble)
            }
            SourceConfig::Generator { records, rate, seed, subjects } => {
                let settings = GeneratorSettings {
                    records: *records,
                    rate: rate.unwrap_or(0.0),
                    seed: *seed,
                    subjects: Some(*subjects),
                };
                (Self::Generator(Box::new(GeneratorSource::new(settings))), Preamble::Json)
            }
            // Never without a Kafka sink: the configuration is checked.
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

/// The sinks that need no broker.
enum AnySink {
    File(WriterSink<File>),
    Stdout(WriterSink<Stdout>),
}

impl AnySink {
    fn open(config: &Config, preamble: &Preamble) -> Result<Self, SinkError> {
        let encoder =
            |format| -> Result<Box<dyn Encode>, SinkError> { Ok(preamble.encoder(&config.policy.schema, format)?) };
        Ok(match &config.sink {
            SinkConfig::File { path, format, manifest } => {
                Self::File(file_sink::create(path, manifest.as_deref(), encoder(*format)?)?)
            }
            SinkConfig::Stdio { format } => Self::Stdout(file_sink::stdout(None, encoder(*format)?)?),
            // Never without a Kafka source: the configuration is checked.
            SinkConfig::Kafka(_) => return Err(SinkError::Closed),
        })
    }
}

impl Sink for AnySink {
    async fn publish(&mut self, release: &Release) -> Result<Delivery, SinkError> {
        match self {
            Self::File(sink) => sink.publish(release).await,
            Self::Stdout(sink) => sink.publish(release).await,
        }
    }

    async fn finish(&mut self) -> Result<(), SinkError> {
        match self {
            Self::File(sink) => sink.finish().await,
            Self::Stdout(sink) => sink.finish().await,
        }
    }
}
