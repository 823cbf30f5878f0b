//! `veilstream run`: the service, from its source to its sink, until the input ends or a signal asks for a drain.

use std::io::{self, Stdout, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::{Failure, now, print, runtime};
use crate::codec::Decode;
use crate::codec::avro::AvroDecoder;
use crate::codec::confluent::SchemaCache;
use crate::codec::json::JsonDecoder;
use crate::codec::registry::Registry;
use crate::config::{Config, Purpose, SinkConfig, SourceConfig};
use crate::files::is_stdout;
use crate::gate::Release;
use crate::kafka::Topics;
use crate::kafka::client::{KafkaSinkConfig, KafkaSourceConfig, MessageFormat};
use crate::kafka::session::Session;
use crate::model::meter::Meter;
use crate::model::schema::Schema;
use crate::pipeline::{Pipeline, Summary};
use crate::shutdown::{self, Stop};
use crate::sink::file::{FilePaths, FileSink, WriterSink};
use crate::sink::kafka::KafkaSink;
use crate::sink::{Delivery, Sink, SinkError};
use crate::source::generator::{GeneratorSettings, GeneratorSource};
use crate::source::kafka::{self as kafka_source, KafkaSource, Left};
use crate::source::{Input, Preamble, ReaderSource, Source, SourceError, SourceItem, file, stdio};
use crate::telemetry::{Telemetry, http};

/// `limits.memory` if there is none; a quarter of it is fetched ahead. Larger: more memory. Smaller: the window waits for the
/// network.
const DEFAULT_MEMORY: u64 = 256 << 20;
/// How long leaving the group may take. Longer: a broker that is away holds up the end. Shorter: the others wait for the
/// session's timeout although a busy broker would have answered.
const LEAVE: Duration = Duration::from_secs(10);

/// Runs the service: records in, safe releases out
///
/// Ends when its input ends, or on SIGTERM or SIGINT: then it reads no further, publishes what it can protect, and says
/// what became of every record. That summary is one JSON object on standard output; if the releases themselves go there
/// (`sink: stdio`), it is the last line on standard error. The exit code is 1 if records came in and none could be published
/// because nothing satisfies the policy.
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
    let not_met = summary.not_met().map(Failure::not_met);
    let rows_on_stdout = match &config.sink {
        SinkConfig::Stdio { .. } => true,
        SinkConfig::File { path, .. } => is_stdout(path),
        SinkConfig::Kafka(_) => false,
    };
    match not_met {
        // The summary is the last line.
        Some(failure) if rows_on_stdout => Err(Failure::NotMet(format!("{failure}\n{json}"))),
        None if rows_on_stdout => {
            writeln!(io::stderr(), "{json}").map_err(|error| Failure::io("cannot write to standard error", &error))
        }
        not_met => print(&json).and(not_met.map_or(Ok(()), Err)),
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
        seed: config.search.seed.unwrap_or_else(rand::random),
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
    let Some(sink) = AnySink::open(config, &preamble, &mut stop).await? else { return Ok(Summary::default()) };
    telemetry.set_ready(true);
    Ok(pipeline.run(source, decoder, sink, stop).await?)
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
    let memory = usize::try_from(config.limits.memory.unwrap_or(DEFAULT_MEMORY) / 4).unwrap_or(usize::MAX);
    let journal = sink.journal.as_ref().map(|journal| journal.topic.clone());
    let (events, consumer, left) =
        kafka_source::open(source.clone(), Arc::clone(&session), schemas.clone(), memory, journal)?;
    let (sink, schema, shared) = (sink.clone(), Arc::new(schema.clone()), Arc::clone(&session));
    let sink = opened(stop, move || KafkaSink::open(sink, shared, consumer, schema, schemas)).await;
    if let Ok(Some(sink)) = sink {
        return Ok(Some((events, sink, left)));
    }
    session.finish();
    leave(left).await;
    sink.map(|_| None)
}

/// Opens a sink on a thread that may be left behind, for nothing says how long a cluster, or the reader of a pipe, is waited
/// for. `None` if a stop is asked for first.
async fn opened<T: Send + 'static>(
    stop: &mut Stop,
    open: impl FnOnce() -> Result<T, SinkError> + Send + 'static,
) -> Result<Option<T>, Failure> {
    let runtime = Handle::current();
    let (done, opening) = oneshot::channel();
    let open = move || {
        let _runtime = runtime.enter();
        // Nobody may wait for it any more.
        let _ = done.send(open());
    };
    std::thread::Builder::new().name("opening".into()).spawn(open).map_err(|_| SinkError::Closed)?;
    Ok(tokio::select! {
        opened = opening => Some(opened.unwrap_or(Err(SinkError::Closed))?),
        () = stop.asked() => None,
    })
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
    File(FileSink),
    Stdout(WriterSink<Stdout>),
}

impl AnySink {
    async fn open(config: &Config, preamble: &Preamble, stop: &mut Stop) -> Result<Option<Self>, Failure> {
        let encoder = |format| preamble.encoder(&config.policy.schema, format);
        Ok(match &config.sink {
            SinkConfig::File { path, format, manifest, journal } => {
                let encoder = encoder(*format)?;
                let paths = FilePaths { rows: path.clone(), manifest: manifest.clone(), journal: journal.clone() };
                opened(stop, move || FileSink::open(&paths, encoder)).await?.map(Self::File)
            }
            SinkConfig::Stdio { format } => Some(Self::Stdout(WriterSink::new(io::stdout(), encoder(*format)?))),
            // Never without a Kafka source: the configuration is checked.
            SinkConfig::Kafka(_) => return Err(SinkError::Closed.into()),
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
