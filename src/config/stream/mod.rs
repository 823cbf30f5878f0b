//! The sections around the policy: search, window, source, sink, http and limits. Each function checks one section and
//! builds its part of the configuration; `kafka`, `search` and `window` have files of their own.

mod audience;
mod formats;
mod kafka;
mod login;
mod placement;
mod properties;
mod registry;
mod route;
mod search;
mod topics;
mod window;

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use secrecy::ExposeSecret as _;

use super::file::At;
use super::file::scalar::RawDuration;
use super::raw::{RawConfig, RawEnvelope, RawFileSink, RawFileSource, RawHttp, RawLimits, RawSink, RawSource};
use super::{HttpConfig, LimitsConfig, SinkConfig, SourceConfig};
use crate::codec::compress::Compression;
use crate::codec::{DEFAULT_MAX_RECORD_BYTES, Format};
use crate::model::policy::Sequential;
use crate::model::schema::Envelope;

pub(super) use self::kafka::{StreamSurroundings, check_both};
pub(super) use self::placement::{check_explode, parts as placement_parts};
pub(super) use self::route::route;
pub(super) use self::search::{check_alternatives, check_recoding, check_search, choice, recoding};
#[cfg(test)]
pub(super) use self::window::NEVER;
pub(super) use self::window::{
    check_changes, check_sliding, event_time_field, levels, max_records, publishes_changes, shown_max_records, windows,
};

/// As in the project's examples and dashboards.
const DEFAULT_PORT: u16 = 9464;
/// Less leaves no room for windows beside the program and its clients.
const MIN_MEMORY: u64 = 64 << 20;
/// The part of the memory that the people of earlier releases may take. Larger: the limit does not hold. Smaller: fewer are remembered.
const REMEMBERED_PART: u64 = 4;
/// The bytes of a person that `sequential` remembers, about.
const SUBJECT_BYTES: u64 = 32;
/// Enough people that windows of the default size hold classes of many different subjects.
const DEFAULT_SUBJECTS: u64 = 10_000;

/// Builds the `source` section.
pub(super) fn source(
    raw: Option<&RawSource>,
    at: At<'_>,
    around: &kafka::StreamSurroundings<'_>,
) -> Option<SourceConfig> {
    Some(match raw {
        None => SourceConfig::Stdio { format: None },
        Some(RawSource::Stdio(raw)) => {
            if raw.format == Some(Format::Parquet) {
                let at = at.key("stdio").key("format");
                at.refuse(
                    "a Parquet file is read from its end on, which a pipe cannot do: write `file: { path: ... }`",
                );
            }
            SourceConfig::Stdio { format: raw.format }
        }
        Some(RawSource::File(raw)) => file_source(raw, at.key("file"), around)?,
        Some(RawSource::Generator(raw)) => SourceConfig::Generator {
            records: raw.records,
            rate: raw.rate,
            seed: raw.seed,
            subjects: raw.subjects.unwrap_or(DEFAULT_SUBJECTS),
        },
        Some(RawSource::Kafka(raw)) => SourceConfig::Kafka(Box::new(kafka::source(raw, at.key("kafka"), around)?)),
    })
}

/// The envelope of the source's rows, and its place in the file.
pub(super) fn envelope<'a>(raw: Option<&RawSource>, at: At<'a>) -> Option<(Envelope, At<'a>)> {
    let (envelope, at) = match raw? {
        RawSource::Kafka(raw) => (raw.envelope?, at.key("kafka")),
        RawSource::File(raw) => (raw.envelope?, at.key("file")),
        RawSource::Stdio(_) | RawSource::Generator(_) => return None,
    };
    match envelope {
        RawEnvelope::Debezium => Some((Envelope::Debezium, at.key("envelope"))),
    }
}

fn file_source(raw: &RawFileSource, at: At<'_>, around: &kafka::StreamSurroundings<'_>) -> Option<SourceConfig> {
    let format = raw.format.or_else(|| Format::of_path(&raw.path));
    let delimiter = match raw.delimiter {
        Some(character) if !character.is_ascii() || character == '"' || character == '\n' || character == '\r' => {
            let at = at.key("delimiter");
            at.refuse(format!("{} cannot delimit CSV: write one ASCII character, such as \";\"", at.show(character)));
            None
        }
        other => other.and_then(|character| u8::try_from(character).ok()),
    };
    if raw.envelope.is_some() && format == Some(Format::Csv) {
        at.key("envelope").refuse("a CSV file has no envelope around its rows: remove `envelope`");
    }
    if raw.explode.is_some() && format == Some(Format::Csv) {
        at.key("explode").refuse("a CSV file has no arrays: remove `explode`");
    }
    if raw.delimiter.is_some() && format.is_some_and(|f| f != Format::Csv) {
        at.key("delimiter").refuse("`delimiter` means something only for CSV: remove it");
    }
    if raw.encoding.is_some() && format.is_some_and(|f| !matches!(f, Format::Csv | Format::Json)) {
        at.key("encoding").refuse("`encoding` means something only for text: remove it");
    }
    let placement = placement::build(&raw.fields, raw.explode.as_deref(), at, around.schema)?;
    let (path, format) = (around.base.join(&raw.path), raw.format);
    Some(SourceConfig::File { path, format, delimiter, encoding: raw.encoding, placement })
}

/// Builds the `sink` section.
pub(super) fn sink(
    raw: Option<&RawSink>,
    at: At<'_>,
    source: Option<&SourceConfig>,
    around: &kafka::StreamSurroundings<'_>,
) -> Option<SinkConfig> {
    if !around.audiences.0.is_empty() && matches!(raw, None | Some(RawSink::Stdio(_))) {
        around
            .audiences_at()
            .refuse("audiences need places of their own: write `sink: { file: ... }` or `{ kafka: ... }`");
    }
    Some(match raw {
        None => SinkConfig::Stdio { format: Format::Json },
        Some(RawSink::Stdio(raw)) => {
            let format = raw.format.unwrap_or_default();
            growing(format, at.key("stdio").key("format"))?;
            formats::check_file_names(format, at.key("stdio").key("format"), around);
            SinkConfig::Stdio { format }
        }
        Some(RawSink::File(raw)) => SinkConfig::File {
            path: around.base.join(&raw.path),
            format: file_format(raw, at.key("file"), around)?,
            manifest: raw.manifest.as_ref().map(|path| around.base.join(path)),
            journal: raw.journal.as_ref().map(|path| around.base.join(path)),
            audiences: audience::files(around.audiences.0, around.audiences.1, around.audiences_at(), around.base),
        },
        Some(RawSink::Kafka(raw)) => {
            let source = match source {
                Some(SourceConfig::Kafka(source)) => Some(source.as_ref()),
                _ => None,
            };
            SinkConfig::Kafka(Box::new(kafka::sink(raw, at.key("kafka"), source, around)?))
        }
    })
}

fn file_format(raw: &RawFileSink, at: At<'_>, around: &kafka::StreamSurroundings<'_>) -> Option<Format> {
    let (path, raw) = (&raw.path, raw.format);
    let found = raw.or_else(|| Format::of_path(path));
    if found.is_none() && !at.lost("format") {
        let at = at.key("path");
        let path = at.show(path.display());
        at.refuse(format!("the extension of {path} tells no format: add `format: csv`, `jsonl` or `avro`"));
    }
    let key = at.key(if raw.is_some() { "format" } else { "path" });
    if found == Some(Format::Avro) && Compression::of_path(path).is_some() {
        key.refuse("an Avro file is not compressed as a whole: end the path in .avro");
    }
    formats::check_file_names(found?, key, around);
    growing(found?, key)
}

/// Refuses a format that ends with a footer: a sink appends release after release.
fn growing(format: Format, at: At<'_>) -> Option<Format> {
    if format == Format::Parquet {
        at.refuse(
            "a Parquet file ends with its footer, so releases cannot be appended to it: write .avro or .jsonl, or make one \
             release with `veilstream anonymize`",
        );
    }
    (format != Format::Parquet).then_some(format)
}

/// Nothing is read and written at once, and nothing is written twice.
pub(super) fn check_files(source: Option<&RawSource>, sink: Option<&RawSink>, root: At<'_>, base: &Path) {
    let input = match source {
        Some(RawSource::File(RawFileSource { path, .. })) => Some(real(&base.join(path))),
        _ => None,
    };
    let Some(RawSink::File(RawFileSink { path, manifest, journal, .. })) = sink else { return };
    let at = root.key("sink").key("file");
    let output = real(&base.join(path));
    if input.as_ref() == Some(&output) {
        at.key("path").refuse("the sink writes the file that the source reads: write to another file");
    }
    let mut taken = vec![(output, "the file of the records")];
    taken.extend(input.map(|input| (input, "the file that the source reads")));
    for (key, path) in [("manifest", manifest), ("journal", journal)] {
        let Some(path) = path.as_ref().map(|path| real(&base.join(path))) else { continue };
        if let Some((_, whose)) = taken.iter().find(|(other, _)| *other == path) {
            at.key(key).refuse(format!("`{key}` is {whose}: write it to another file"));
        }
        taken.push((path, "the file of the manifests"));
    }
}

/// The path without links and detours, as far as it exists.
fn real(path: &Path) -> PathBuf {
    if let Ok(real) = fs::canonicalize(path) {
        return real;
    }
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut plain = PathBuf::new();
    for part in absolute.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    match (plain.parent().and_then(|p| fs::canonicalize(p).ok()), plain.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => plain,
    }
}

/// Builds the `http` section.
pub(super) fn http(raw: &RawHttp, at: At<'_>) -> HttpConfig {
    let listen = raw.listen.map_or(SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT)), |a| a.0);
    let token = raw.token.as_ref().map(|t| t.0.clone());
    match &token {
        Some(token) if token.expose_secret().is_empty() => {
            at.key("token").refuse("`token` is empty: put a secret into the variable or the file");
        }
        Some(token) if !token.expose_secret().bytes().all(|b| b.is_ascii_graphic()) => {
            at.key("token")
                .refuse("`token` holds spaces or characters that no HTTP header can carry: use letters and digits");
        }
        None if !listen.ip().is_loopback() && !at.lost("token") => at
            .key("listen")
            .refuse("`listen` is open to other machines: add `token: ${file:PATH}`, or listen on 127.0.0.1"),
        _ => {}
    }
    HttpConfig { listen, token }
}

/// Builds the `limits` section.
pub(super) fn limits(raw: &RawLimits, at: At<'_>) -> LimitsConfig {
    let positive = |key: &str, size: Option<u64>| {
        if size == Some(0) {
            at.key(key).refuse(format!("`{key}` is zero, so nothing could pass: write a larger size"));
        }
        size
    };
    LimitsConfig {
        max_record_bytes: positive("max_record_bytes", raw.max_record_bytes.map(|s| s.0))
            .unwrap_or(DEFAULT_MAX_RECORD_BYTES as u64),
        memory: raw.memory.map(|size| size.0).inspect(|&size| {
            if size < MIN_MEMORY {
                at.key("memory")
                    .refuse("`memory` is less than the process needs without a record: write 64MiB or more");
            }
        }),
    }
}

/// Refuses to remember more people than there is memory for.
pub(super) fn check_memory(raw: &RawConfig, at: At<'_>) {
    let (Some(sequential), Some(limit)) = (&raw.policy.sequential, raw.limits.memory) else { return };
    let most = sequential.max_subjects.unwrap_or(Sequential::MAX_SUBJECTS as u64);
    let room = limit.0 / REMEMBERED_PART / SUBJECT_BYTES;
    if most > room {
        at.key("limits").key("memory").refuse(format!(
            "`sequential` remembers {most} people, who take more than a quarter of `memory`: write `max_subjects: {room}` there, or more \
             memory"
        ));
    }
}

/// The duration under `key`, which must not be zero.
fn positive(duration: Option<RawDuration>, key: &str, at: At<'_>) -> Option<Duration> {
    let duration = duration.map(|duration| duration.0);
    if duration.is_some_and(|duration| duration.is_zero()) {
        at.key(key).refuse(format!("`{key}` is zero: write a longer time, such as 30s"));
    }
    duration
}
