//! The messages of a release: rows in the sink's format, manifest and dead letters. The last two are JSON, but beside rows in Avro.
//!
//! In the Confluent wire format the schema of the rows is derived from the writer schemas of the input, and registered. A release
//! that is carried out again has the same bytes (I4), so it uses the schema id of its plan ([`Output::encoder_of`]), not one
//! derived from the schemas that are known by then.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apache_avro::Schema as AvroSchema;
use rdkafka::message::{Header, OwnedHeaders};
use serde::Serialize;

use super::producer::PATIENCE;
use super::{BASE_HEADER, RELEASE_HEADER};
use crate::codec::CodecError;
use crate::codec::avro::parse_schema;
use crate::codec::confluent::ConfluentEncoder;
use crate::codec::json::JsonEncoder;
use crate::codec::message::{
    DEAD_LETTER_SCHEMA, DocumentError, MANIFEST_SCHEMA, MessageEncoder, write_document, write_schema_id,
};
use crate::codec::registry::{Registry, RegistryError};
use crate::codec::schemas::{PublishedSchema, SchemaLanguage, WriterSchema};
use crate::gate::Release;
use crate::kafka::client::{KafkaSinkConfig, MessageFormat};
use crate::kafka::session::Session;
use crate::model::release::dead_letter::DeadLetter;
use crate::model::release::manifest::Manifest;
use crate::model::schema::Schema;

/// The pause between two attempts to register schemas. Larger: a start takes longer. Smaller: the log fills with warnings.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The reason why a release cannot be written. Names fields and subjects, never values.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The output's schema cannot be made.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The registry does not help.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A manifest or dead letter does not fit its schema.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The format needs a registry and has none.
    #[error("the format needs a schema registry")]
    NoRegistry,
    /// [`Output::prepare`] was not called.
    #[error("the schemas of manifests and dead letters are not registered yet")]
    NotPrepared,
}

impl OutputError {
    /// True for a registry that does not answer, and may do so later.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Registry(RegistryError::Unavailable { .. }))
    }
}

/// The rows' encoder for one release.
pub struct RowMessages {
    /// The id of the output's schema, to be planned with the release; `None` without a registry.
    pub schema_id: Option<u32>,
    /// The encoder.
    pub encoder: Box<dyn MessageEncoder>,
}

/// Writes the messages of releases.
pub struct Output {
    format: MessageFormat,
    schema: Schema,
    registry: Option<(Arc<Registry>, SchemaLanguage)>,
    subject: String,
    manifest: Document,
    dead_letter: Document,
    known: HashMap<u32, PublishedSchema>,
}

/// A kind of document with a schema of its own.
struct Document {
    text: &'static str,
    schema: Arc<AvroSchema>,
    subject: Option<String>,
    id: Option<u32>,
}

impl Document {
    fn new(text: &'static str, topic: Option<&str>) -> Result<Self, CodecError> {
        Ok(Self { text, schema: parse_schema(text)?, subject: topic.map(value_subject), id: None })
    }

    fn message(&self, format: &MessageFormat, document: &impl Serialize) -> Result<Vec<u8>, OutputError> {
        let failed = |_| DocumentError { path: String::new() };
        let mut out = Vec::new();
        match (format, self.id) {
            (MessageFormat::Avro(_), _) => {}
            (MessageFormat::Confluent(SchemaLanguage::Avro), Some(id)) => write_schema_id(id, &mut out),
            (MessageFormat::Confluent(SchemaLanguage::Avro), None) => return Err(OutputError::NotPrepared),
            // Plain JSON, also beside rows in Protobuf.
            _ => return Ok(serde_json::to_vec(document).map_err(failed)?),
        }
        let json = serde_json::to_value(document).map_err(failed)?;
        write_document(&self.schema, &json, &mut out)?;
        Ok(out)
    }
}

/// The subject of a topic's values, by the naming that registries use by default.
pub fn value_subject(topic: &str) -> String {
    format!("{topic}-value")
}

impl Output {
    /// The output of `config` for the published fields of `schema`. Nothing is sent yet.
    pub fn new(config: &KafkaSinkConfig, schema: &Schema) -> Result<Self, OutputError> {
        let registry = match (&config.format, &config.registry) {
            (MessageFormat::Confluent(language), Some(config)) => Some((Arc::new(config.client()), *language)),
            (MessageFormat::Confluent(_), None) => return Err(OutputError::NoRegistry),
            _ => None,
        };
        Ok(Self {
            format: config.format.clone(),
            schema: schema.with_added(),
            registry,
            subject: value_subject(&config.topic),
            manifest: Document::new(MANIFEST_SCHEMA, config.manifests.as_deref())?,
            dead_letter: Document::new(DEAD_LETTER_SCHEMA, config.dead_letters.as_deref())?,
            known: HashMap::new(),
        })
    }

    /// Registers the schemas of manifests and dead letters, where there is a registry. Once, at the start.
    pub async fn prepare(&mut self) -> Result<(), OutputError> {
        let Some((registry, language @ SchemaLanguage::Avro)) = &self.registry else { return Ok(()) };
        for document in [&mut self.manifest, &mut self.dead_letter] {
            if let Some(subject) = &document.subject {
                document.id = Some(registry.register(subject, *language, document.text).await?);
            }
        }
        Ok(())
    }

    /// The encoder for a release whose records were written with `writers`; its schema is registered. `writers` matter in
    /// the Confluent format only.
    pub async fn encoder(&mut self, writers: &[WriterSchema]) -> Result<RowMessages, OutputError> {
        let Some((registry, language)) = self.registry.clone() else { return self.plain() };
        let output = PublishedSchema::derive(language, &self.schema, writers)?;
        let id = registry.register(&self.subject, language, output.text()).await?;
        self.known.insert(id, output);
        self.encoder_of(Some(id)).await
    }

    /// The encoder of a release that was planned with this schema id.
    pub async fn encoder_of(&mut self, schema_id: Option<u32>) -> Result<RowMessages, OutputError> {
        let (Some((registry, language)), Some(id)) = (&self.registry, schema_id) else { return self.plain() };
        if !self.known.contains_key(&id) {
            // Deriving from an output schema gives that schema again.
            let registered = registry.fetch(id, *language).await?;
            let output = PublishedSchema::derive(*language, &self.schema.reading_output(), &[registered])?;
            self.known.insert(id, output);
        }
        let output = self.known.get(&id).ok_or(OutputError::NotPrepared)?;
        Ok(RowMessages { schema_id: Some(id), encoder: Box::new(ConfluentEncoder::new(id, output)) })
    }

    /// The schema that rows were written with; `None` without a registry.
    pub fn rows_schema(&self, schema_id: Option<u32>) -> Option<WriterSchema> {
        let output = schema_id.and_then(|id| self.known.get(&id))?;
        let (_, language) = self.registry.as_ref()?;
        WriterSchema::parse(*language, output.text(), &HashMap::new()).ok()
    }

    /// The value of a manifest's message.
    pub fn manifest(&self, manifest: &Manifest) -> Result<Vec<u8>, OutputError> {
        self.manifest.message(&self.format, manifest)
    }

    /// The value of a dead letter's message.
    pub fn dead_letter(&self, letter: &DeadLetter<'_>) -> Result<Vec<u8>, OutputError> {
        self.dead_letter.message(&self.format, letter)
    }

    fn plain(&self) -> Result<RowMessages, OutputError> {
        let encoder: Box<dyn MessageEncoder> = match &self.format {
            MessageFormat::Json => Box::new(JsonEncoder::new(&self.schema)),
            MessageFormat::Avro(published) => {
                let published = WriterSchema::Avro(Arc::clone(published));
                PublishedSchema::derive(SchemaLanguage::Avro, &self.schema.reading_output(), &[published])?.encoder()
            }
            MessageFormat::Protobuf(published) => {
                let published = WriterSchema::Protobuf(published.clone());
                PublishedSchema::derive(SchemaLanguage::Protobuf, &self.schema.reading_output(), &[published])?
                    .encoder()
            }
            MessageFormat::Confluent(_) => return Err(OutputError::NoRegistry),
        };
        Ok(RowMessages { schema_id: None, encoder })
    }
}

/// Names the release of a message.
pub(super) fn headers(release: &Release) -> OwnedHeaders {
    let from = &release.manifest().provenance;
    let headers = OwnedHeaders::new_with_capacity(2);
    let headers = headers.insert(Header { key: RELEASE_HEADER, value: Some(from.release_id.as_str()) });
    match from.snapshot.as_ref().and_then(|snapshot| snapshot.base.as_deref()) {
        Some(base) => headers.insert(Header { key: BASE_HEADER, value: Some(base) }),
        None => headers,
    }
}

/// Registers schemas at the start, and waits for a registry that does not answer yet.
pub(super) fn registered(
    session: &Session,
    mut register: impl FnMut() -> Result<(), OutputError>,
) -> Result<(), OutputError> {
    let asked = Instant::now();
    loop {
        match register() {
            Err(error) if error.is_passing() && asked.elapsed() < PATIENCE && !session.is_finished() => {
                tracing::warn!(%error, "the schemas of the output cannot be registered yet; trying again");
                std::thread::sleep(ASK_AGAIN);
            }
            done => return done,
        }
    }
}

/// Waits for the asynchronous clients of the registry and of the journal.
pub(super) fn blocking<T: Send>(answer: impl Future<Output = T> + Send) -> T {
    let runtime = tokio::runtime::Handle::current();
    // On a thread of its own: to wait on that of the pipeline would take the pipeline's wakes for those of the answer, and a
    // stop that came meanwhile would never be heard.
    let waited = std::thread::scope(|scope| scope.spawn(|| runtime.block_on(answer)).join());
    waited.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
