//! The messages of a release: rows in the sink's format, manifest and dead letters.
//!
//! In the Confluent wire format the schema of the rows is derived from the writer schemas of the input, and registered. A release
//! that is carried out again has the same bytes (I4), so it uses the schema id of its plan ([`Output::encoder_of`]), not one
//! derived from the schemas that are known by then.

use std::collections::HashMap;
use std::sync::Arc;

use apache_avro::Schema as AvroSchema;
use rdkafka::message::{Header, OwnedHeaders};
use serde::Serialize;

use super::{BASE_HEADER, RELEASE_HEADER};
use crate::codec::CodecError;
use crate::codec::avro::{OutputSchema, parse_schema};
use crate::codec::json::JsonEncoder;
use crate::codec::message::{
    ConfluentEncoder, DEAD_LETTER_SCHEMA, DocumentError, MANIFEST_SCHEMA, MessageEncoder, write_document,
    write_schema_id,
};
use crate::codec::registry::{Registry, RegistryError};
use crate::gate::Release;
use crate::kafka::client::{KafkaSinkConfig, MessageFormat};
use crate::model::release::dead_letter::DeadLetter;
use crate::model::release::manifest::Manifest;
use crate::model::schema::Schema;

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
    #[error("confluent-avro needs a schema registry")]
    NoRegistry,
    /// [`Output::prepare`] was not called.
    #[error("the schemas of manifests and dead letters are not registered yet")]
    NotPrepared,
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
    registry: Option<Arc<Registry>>,
    subject: String,
    manifest: Document,
    dead_letter: Document,
    known: HashMap<u32, OutputSchema>,
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
            (MessageFormat::Json, _) => return Ok(serde_json::to_vec(document).map_err(failed)?),
            (MessageFormat::Avro(_), _) => {}
            (MessageFormat::ConfluentAvro, Some(id)) => write_schema_id(id, &mut out),
            (MessageFormat::ConfluentAvro, None) => return Err(OutputError::NotPrepared),
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
            (MessageFormat::ConfluentAvro, Some(r)) => Some(Arc::new(Registry::new(&r.url, r.credentials.as_ref()))),
            (MessageFormat::ConfluentAvro, None) => return Err(OutputError::NoRegistry),
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
        let Some(registry) = &self.registry else { return Ok(()) };
        for document in [&mut self.manifest, &mut self.dead_letter] {
            if let Some(subject) = &document.subject {
                document.id = Some(registry.register(subject, document.text).await?);
            }
        }
        Ok(())
    }

    /// The encoder for a release whose records were written with `writers`; its schema is registered. `writers` matter in
    /// the Confluent format only.
    pub async fn encoder(&mut self, writers: &[Arc<AvroSchema>]) -> Result<RowMessages, OutputError> {
        let Some(registry) = self.registry.clone() else { return self.plain() };
        let writers: Vec<&AvroSchema> = writers.iter().map(Arc::as_ref).collect();
        let output = OutputSchema::derive(&self.schema, &writers)?;
        let id = registry.register(&self.subject, output.json()).await?;
        self.known.insert(id, output);
        self.encoder_of(Some(id)).await
    }

    /// The encoder of a release that was planned with this schema id.
    pub async fn encoder_of(&mut self, schema_id: Option<u32>) -> Result<RowMessages, OutputError> {
        let (Some(registry), Some(id)) = (&self.registry, schema_id) else { return self.plain() };
        let output = match self.known.get(&id) {
            Some(output) => output.clone(),
            None => {
                // Deriving from an output schema gives that schema again.
                let registered = registry.fetch(id).await?;
                let output = OutputSchema::derive(&self.schema.reading_output(), &[registered.as_ref()])?;
                self.known.insert(id, output.clone());
                output
            }
        };
        Ok(RowMessages { schema_id: Some(id), encoder: Box::new(ConfluentEncoder::new(id, output)) })
    }

    /// The text of a schema that rows were written with; `None` without a registry.
    pub fn schema_text(&self, schema_id: Option<u32>) -> Option<&str> {
        schema_id.and_then(|id| self.known.get(&id)).map(OutputSchema::json)
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
                Box::new(OutputSchema::derive(&self.schema.reading_output(), &[published.as_ref()])?)
            }
            MessageFormat::ConfluentAvro => return Err(OutputError::NoRegistry),
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

/// Waits for the asynchronous clients of the registry and of the journal.
pub(super) fn blocking<T: Send>(answer: impl Future<Output = T> + Send) -> T {
    let runtime = tokio::runtime::Handle::current();
    // On a thread of its own: to wait on that of the pipeline would take the pipeline's wakes for those of the answer, and a
    // stop that came meanwhile would never be heard.
    let waited = std::thread::scope(|scope| scope.spawn(|| runtime.block_on(answer)).join());
    waited.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
