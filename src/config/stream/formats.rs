//! The formats of messages: the keys that each needs, and the schemas of the output.

use std::path::Path;

use super::StreamSurroundings;
use super::registry::registry;
use crate::codec::avro::{AvroDecoder, parse_schema};
use crate::codec::protobuf::{ProtobufDecoder, message_of};
use crate::codec::schemas::{PublishedSchema, SchemaLanguage, WriterSchema};
use crate::codec::{CodecError, Decode, Format};
use crate::config::file::{self, At};
use crate::config::raw::{RawKafkaSink, RawKafkaSource, RawMessageFormat};
use crate::kafka::client::{KafkaSourceConfig, MessageFormat, RegistryConfig};
use crate::model::schema::{Placement, Schema};

/// The formats with a registry.
const WITH_REGISTRY: &str = "format: confluent-avro, confluent-protobuf or confluent-json";

impl RawMessageFormat {
    /// The language of its schemas; none where it has none.
    fn language(self) -> Option<SchemaLanguage> {
        match self {
            Self::Json => None,
            Self::Avro | Self::ConfluentAvro => Some(SchemaLanguage::Avro),
            Self::Protobuf | Self::ConfluentProtobuf => Some(SchemaLanguage::Protobuf),
            Self::ConfluentJson => Some(SchemaLanguage::Json),
        }
    }

    fn has_registry(self) -> bool {
        matches!(self, Self::ConfluentAvro | Self::ConfluentProtobuf | Self::ConfluentJson)
    }
}

/// The input's format.
pub(super) fn source_format(
    raw: &RawKafkaSource,
    at: At<'_>,
    around: &StreamSurroundings<'_>,
    placements: &[Placement],
) -> Option<MessageFormat> {
    let format = raw.format.unwrap_or(RawMessageFormat::Json);
    let given = [
        ("schema", raw.schema.is_some(), RawMessageFormat::Avro),
        ("descriptor", raw.descriptor.is_some(), RawMessageFormat::Protobuf),
        ("message", raw.message.is_some(), RawMessageFormat::Protobuf),
    ];
    for (key, _, needed) in given.into_iter().filter(|(_, is_there, needed)| *is_there && format != *needed) {
        if !at.lost("format") {
            at.only_with(key, &format!("format: {}", needed.as_str()));
        }
    }
    match (format, format.language()) {
        (RawMessageFormat::Avro, _) => avro(raw, at, around, placements),
        (RawMessageFormat::Protobuf, _) => protobuf(raw, at, around, placements),
        (_, None) => Some(MessageFormat::Json),
        (_, Some(language)) => Some(MessageFormat::Confluent(language)),
    }
}

fn avro(
    raw: &RawKafkaSource,
    at: At<'_>,
    around: &StreamSurroundings<'_>,
    placements: &[Placement],
) -> Option<MessageFormat> {
    let Some(path) = &raw.schema else {
        if !at.lost("schema") {
            at.key("format")
                .refuse("`format: avro` needs the writer's schema: add `schema: FILE.avsc`, or use `confluent-avro`");
        }
        return None;
    };
    let at = at.key("schema");
    let text = read(path, "schema", at, around).and_then(|bytes| String::from_utf8(bytes).ok());
    match text.as_deref().map(parse_schema)? {
        Ok(schema) if matches!(*schema, apache_avro::Schema::Record(_)) => {
            has_fields(at, around, placements, |fields| AvroDecoder::new(fields, &schema, 1));
            Some(MessageFormat::Avro(schema))
        }
        Ok(_) => {
            at.refuse(format!("the schema {} is not a record: name one", at.show(path.display())));
            None
        }
        Err(_) => {
            at.refuse(format!("{} is not an Avro schema: check it", at.show(path.display())));
            None
        }
    }
}

fn protobuf(
    raw: &RawKafkaSource,
    at: At<'_>,
    around: &StreamSurroundings<'_>,
    placements: &[Placement],
) -> Option<MessageFormat> {
    let (Some(path), Some(name)) = (&raw.descriptor, &raw.message) else {
        if !at.lost("descriptor") && !at.lost("message") {
            at.key("format").refuse(
                "`format: protobuf` needs the type of its messages: add `descriptor: FILE.desc` and `message: PACKAGE.NAME`, \
                 or use `confluent-protobuf`",
            );
        }
        return None;
    };
    let bytes = read(path, "descriptor", at.key("descriptor"), around)?;
    match message_of(&bytes, name) {
        Ok(message) => {
            has_fields(at.key("message"), around, placements, |fields| ProtobufDecoder::new(fields, &message, 1));
            Some(MessageFormat::Protobuf(message))
        }
        Err(error) => {
            let key = if error == CodecError::NoMessage { "message" } else { "descriptor" };
            at.key(key).refuse(error.to_string());
            None
        }
    }
}

fn read(path: &Path, what: &str, at: At<'_>, around: &StreamSurroundings<'_>) -> Option<Vec<u8>> {
    let read = std::fs::read(around.base.join(path));
    let told = |error: &std::io::Error| {
        let path = at.show(path.display());
        at.refuse(format!("the {what} {path} cannot be read ({}): check the path", file::why(error)));
    };
    read.inspect_err(told).ok()
}

/// The schema must have the fields that the policy names, where each topic has them.
fn has_fields<D: Decode>(
    at: At<'_>,
    around: &StreamSurroundings<'_>,
    placements: &[Placement],
    decoder: impl Fn(&Schema) -> Result<D, CodecError>,
) {
    let mut placed = placements.iter().filter_map(|placement| Some(around.schema?.placed(placement)));
    if let Some(error) = placed.find_map(|fields| decoder(&fields).err()) {
        let outside = around.root.key("policy").is_from_outside();
        let detail = if outside { String::new() } else { format!(" ({error})") };
        at.refuse(format!("the schema does not have the policy's fields{detail}: check both"));
    }
}

/// The registry of the input.
pub(super) fn source_registry(raw: &RawKafkaSource, at: At<'_>, base: &Path) -> Option<RegistryConfig> {
    let format = raw.format.unwrap_or(RawMessageFormat::Json);
    if format.has_registry() && raw.registry.is_none() && !at.lost("registry") {
        needs_registry(format, at);
    } else if !format.has_registry() && raw.registry.is_some() && !at.lost("format") {
        at.only_with("registry", WITH_REGISTRY);
    }
    raw.registry.as_ref().and_then(|raw| registry(raw, at.key("registry"), base))
}

fn needs_registry(format: RawMessageFormat, at: At<'_>) {
    let name = format.as_str();
    at.key("format").refuse(format!("`format: {name}` needs a registry: add `registry: {{ url: http://HOST:PORT }}`"));
}

/// The format of the output as written, or else that of the input.
fn wanted(raw: &RawKafkaSink, source: Option<&KafkaSourceConfig>) -> Option<RawMessageFormat> {
    raw.format.or_else(|| {
        Some(match &source?.format {
            MessageFormat::Json => RawMessageFormat::Json,
            MessageFormat::Avro(_) => RawMessageFormat::Avro,
            MessageFormat::Protobuf(_) => RawMessageFormat::Protobuf,
            MessageFormat::Confluent(SchemaLanguage::Avro) => RawMessageFormat::ConfluentAvro,
            MessageFormat::Confluent(SchemaLanguage::Protobuf) => RawMessageFormat::ConfluentProtobuf,
            MessageFormat::Confluent(SchemaLanguage::Json) => RawMessageFormat::ConfluentJson,
        })
    })
}

/// The schema of the input, where it is known before a message is read.
pub(super) fn known_schema(source: Option<&KafkaSourceConfig>) -> Option<WriterSchema> {
    match &source?.format {
        MessageFormat::Avro(schema) => Some(WriterSchema::Avro(schema.clone())),
        MessageFormat::Protobuf(message) => Some(WriterSchema::Protobuf(message.clone())),
        MessageFormat::Json | MessageFormat::Confluent(_) => None,
    }
}

/// The output's format; one without a registry has its schema derived from the input's.
pub(super) fn sink_format(
    raw: &RawKafkaSink,
    at: At<'_>,
    source: Option<&KafkaSourceConfig>,
    around: &StreamSurroundings<'_>,
) -> Option<MessageFormat> {
    let format = wanted(raw, source)?;
    let Some(language) = format.language() else { return Some(MessageFormat::Json) };
    let writers: Vec<WriterSchema> = known_schema(source).into_iter().collect();
    // Derived for the formats with a registry too, because names that they do not take show up here.
    let placements = source.map_or(&[][..], |source| &source.placements);
    let schema = around.schema?;
    let schema =
        placements.first().map_or(schema.clone(), |first| schema.placed(first)).also_at(placements).with_added();
    let derived = PublishedSchema::derive(language, &schema, &writers);
    let built = derived.and_then(|derived| match (format, &derived) {
        (RawMessageFormat::Avro, _) => parse_schema(derived.text()).map(MessageFormat::Avro),
        (RawMessageFormat::Protobuf, PublishedSchema::Protobuf(output)) => {
            output.message().map(MessageFormat::Protobuf)
        }
        _ => Ok(MessageFormat::Confluent(language)),
    });
    built.inspect_err(|error| refuse_names(error, at.key("format"), "format: json", around)).ok()
}

/// The published fields must have names that a file of this format can hold.
pub(super) fn check_file_names(format: Format, at: At<'_>, around: &StreamSurroundings<'_>) {
    if let (Format::Avro, Some(schema)) = (format, around.schema)
        && let Err(error) = PublishedSchema::derive(SchemaLanguage::Avro, &schema.with_added(), &[])
    {
        refuse_names(&error, at, "format: jsonl", around);
    }
}

fn refuse_names(error: &CodecError, at: At<'_>, instead: &str, around: &StreamSurroundings<'_>) {
    let name = match around.root.key("policy").is_from_outside() {
        true => "a published field cannot be a field name of this format: use letters, digits and _".to_owned(),
        false => error.to_string(),
    };
    at.refuse(format!("{name}, or write `{instead}`"));
}

/// The registry of the output; the input's unless there is another one.
pub(super) fn sink_registry(
    raw: &RawKafkaSink,
    at: At<'_>,
    source: Option<&KafkaSourceConfig>,
    format: Option<&MessageFormat>,
    base: &Path,
) -> Option<RegistryConfig> {
    let own = raw.registry.as_ref().and_then(|raw| registry(raw, at.key("registry"), base));
    let registry = own.or_else(|| source.and_then(|s| s.registry.clone()));
    let told = source.is_some_and(|s| matches!(s.format, MessageFormat::Confluent(_))) || at.lost_any();
    match (format, wanted(raw, source)) {
        (Some(MessageFormat::Confluent(_)), Some(wanted)) if registry.is_none() && !told => needs_registry(wanted, at),
        (Some(MessageFormat::Confluent(_)) | None, _) => {}
        (Some(_), _) if raw.registry.is_some() => at.only_with("registry", WITH_REGISTRY),
        (Some(_), _) => {}
    }
    registry
}
