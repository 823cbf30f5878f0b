//! Bytes to [`Record`], and published rows to bytes: JSON, CSV, Avro, Parquet, Protobuf.
//!
//! Invariants: only fields of the [`Schema`] are read, the rest is checked for syntax and dropped; no input panics,
//! recurses or allocates beyond its own size; no rejection and no error carries a value. Reading files and pipes is
//! `source`'s work, generalizing is `generalize`'s: neither is here.

pub mod avro;
pub mod compress;
pub mod confluent;
pub(crate) mod csv;
mod elements;
pub mod encoding;
pub mod json;
mod layout;
pub mod message;
pub mod parquet;
pub mod protobuf;
pub mod registry;
pub mod schemas;
pub mod survey;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use compress::Compression;
pub use elements::RecordReader;
use survey::nearest;

use crate::model::event::{Reject, RejectCode};
use crate::model::record::Record;
use crate::model::schema::{Path, Schema};
use crate::model::words;

/// The default of `max_record_bytes`. Larger: one record can hold that much memory several times over while it is
/// decoded. Smaller: honest records with a long free text are turned away. Kafka's own default limit is the same.
pub const DEFAULT_MAX_RECORD_BYTES: usize = 1 << 20;

/// How deep a record may nest. Larger: a hostile record reaches the end of the stack where Avro recurses. Smaller:
/// documents that people do send are turned away; they rarely pass 20.
pub const MAX_DEPTH: usize = 100;

/// The most members that are looked at for a list of fields. Larger: a hostile schema, whose records hold records, keeps the
/// reader busy. Smaller: the later fields of wide records are not told.
const MAX_LISTED: usize = 4096;

words! {
    /// How records are written down.
    #[derive(Default)]
    pub enum Format {
        /// One JSON object per line; of a file that is read also one array of objects.
        #[default]
        Json = "jsonl",
        /// Delimited text with a header line.
        Csv = "csv",
        /// An Avro object container file.
        Avro = "avro",
        /// A Parquet file.
        Parquet = "parquet",
    }
}

impl Format {
    /// The extensions that announce a format, for messages.
    pub const EXTENSIONS: &str =
        ".csv, .tsv, .jsonl, .ndjson or .json (each also with .gz or .zst behind it), .avro or .parquet";

    /// The format that a file name announces by its extension; of `people.csv.gz` it is CSV.
    pub fn of_path(path: &std::path::Path) -> Option<Self> {
        extension(path)?.parse().ok()
    }

    /// True if a file of this name has tabs between its fields.
    pub fn has_tabs(path: &std::path::Path) -> bool {
        extension(path).is_some_and(|extension| extension == "tsv")
    }
}

/// The last extension of a name, without that of a compression, in small letters.
fn extension(path: &std::path::Path) -> Option<String> {
    let inside = Compression::of_path(path).map(|_| path.with_extension(""));
    let extension = inside.as_deref().unwrap_or(path).extension()?;
    Some(extension.to_str()?.to_ascii_lowercase())
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Format {
    type Err = CodecError;

    fn from_str(text: &str) -> Result<Self, CodecError> {
        match text {
            "json" | "jsonl" | "ndjson" => Ok(Self::Json),
            "csv" | "tsv" => Ok(Self::Csv),
            "avro" => Ok(Self::Avro),
            "parquet" => Ok(Self::Parquet),
            _ => Err(CodecError::UnknownFormat),
        }
    }
}

/// The reason why a decoder or encoder cannot be made. Names in it are configured ones, never read from records.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Records cannot be elements of an array in this format.
    #[error("a csv file has no arrays: remove `explode`")]
    NoArrays,
    /// Not the name of a format.
    #[error("unknown format: use csv, jsonl, avro or parquet")]
    UnknownFormat,
    /// Fields of the policy that the input does not have at all, every one of them, each with the one that is probably meant.
    #[error("the input has no field called {}", .0.iter().map(missing).collect::<Vec<_>>().join(", "))]
    MissingFields(Vec<(Arc<str>, Option<Path>)>),
    /// Paths of the policy that lead through something without fields, each with what it is.
    #[error(
        "{}: a path leads through objects only; keep the whole field instead",
        .0.iter().map(|(name, what)| format!("`{name}` leads into {what}")).collect::<Vec<_>>().join(", ")
    )]
    LeadsInto(Vec<(Arc<str>, &'static str)>),
    /// The first line of a CSV file seems to hold values, and none of the names that are needed.
    #[error("the first line of the csv looks like a record")]
    NoHeader,
    /// The header of a CSV file cannot be read.
    #[error("the csv header is {0}")]
    BadHeader(&'static str),
    /// A field of the policy is twice in the CSV header: which one is meant?
    #[error("the csv header has `{0}` more than once")]
    AmbiguousHeader(Arc<str>),
    /// The Avro schema does not parse.
    #[error("the avro schema does not parse")]
    BadAvroSchema,
    /// The Avro schema is something else than a record.
    #[error("the avro schema is not a record")]
    NotARecord,
    /// A published field's name cannot be an Avro name.
    #[error("`{0}` cannot be an avro field name: use letters, digits and _")]
    BadAvroName(Arc<str>),
    /// The Protobuf schema does not compile.
    #[error("the protobuf schema does not compile")]
    BadProtobufSchema,
    /// The JSON Schema does not parse.
    #[error("the json schema does not parse")]
    BadJsonSchema,
    /// A file that is no set of descriptors.
    #[error("the file is no set of protobuf descriptors: write it with protoc --include_imports --descriptor_set_out")]
    BadDescriptor,
    /// The descriptors have no such message.
    #[error("the descriptors have no message of this name: write it with its package")]
    NoMessage,
    /// A published field's name cannot be a Protobuf name.
    #[error("`{0}` cannot be a protobuf field name: use letters, digits and _")]
    BadProtobufName(Arc<str>),
    /// Published fields whose names are the same to Protobuf.
    #[error("two published fields have the same name in protobuf's json")]
    BadProtobufNames,
}

/// Turns one payload into a [`Record`].
pub trait Decode: Send {
    /// Decodes `payload`; the record borrows from it where it can.
    fn decode<'a>(&mut self, payload: &'a [u8]) -> Result<Record<'a>, Reject>;

    /// The places of all values in the row of `payload`, whether or not the policy names them; arrays are one value. For telling
    /// an operator which fields there are; none if the payload cannot be read.
    fn fields(&self, payload: &[u8]) -> Vec<Path>;

    /// Another decoder of the same payloads, for another thread.
    fn another(&self) -> Box<dyn Decode>;
}

/// One row as it will be published, in the order of [`Schema::published`].
#[derive(Clone, Copy)]
pub struct PublishedRow<'a> {
    /// The generalized labels of the quasi-identifiers; always written as strings.
    pub quasi: &'a [&'a str],
    /// The sensitive and then the kept values, as [`write_json`](crate::model::record::Value::write_json) makes them.
    pub values: &'a [&'a str],
}

impl fmt::Debug for PublishedRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublishedRow({} fields)", self.quasi.len() + self.values.len())
    }
}

/// Writes published rows as a file or a stream. Appends to `out`; the caller does the I/O.
pub trait Encode: Send {
    /// The bytes before the first row.
    fn header(&mut self, out: &mut Vec<u8>);
    /// The first part of every row with these labels.
    fn labels(&self, quasi: &[&str], out: &mut Vec<u8>);
    /// One row: what [`Encode::labels`] made of its labels, and its values. Nothing may appear in `out` before `finish`.
    fn labelled(&mut self, labels: &[u8], values: &[&str], out: &mut Vec<u8>) -> Result<(), EncodeError>;
    /// One row by itself.
    fn row(&mut self, row: &PublishedRow<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut labels = Vec::new();
        self.labels(row.quasi, &mut labels);
        self.labelled(&labels, row.values, out)
    }
    /// Completes the rows so far; more may follow, but for Parquet.
    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), EncodeError>;
    /// True if a file that begins with `first` holds rows of the same fields in the same format, so that more can be appended.
    fn continues(&mut self, first: &[u8]) -> bool {
        let mut header = Vec::new();
        self.header(&mut header);
        first.starts_with(&header)
    }
    /// The end of every file whose last row is whole.
    fn ending(&self) -> &[u8] {
        b"\n"
    }
}

/// A row that cannot be written. It is not: fail closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A value that does not fit the output's type.
    #[error("a value of `{field}` does not fit its type in the output schema")]
    Misfit {
        /// The configured name of the field.
        field: Arc<str>,
    },
    /// The library that writes the format failed.
    #[error("{0} cannot be made")]
    Broken(&'static str),
}

fn missing((name, meant): &(Arc<str>, Option<Path>)) -> String {
    match meant {
        Some(meant) => format!("`{name}` (did you mean `{meant}`?)"),
        None => format!("`{name}`"),
    }
}

/// The fields without which a record cannot be protected and that `present` does not know.
pub(crate) fn missing_fields(
    schema: &Schema,
    fields: &[Path],
    present: impl Fn(&Path) -> bool,
) -> Result<(), CodecError> {
    let missing: Vec<_> = schema
        .attributes()
        .iter()
        .filter(|a| a.roles.iter().any(|role| role.is_needed()) && !present(&a.path))
        .map(|a| (Arc::clone(&a.name), nearest(&a.path, fields.iter()).cloned()))
        .collect();
    if missing.is_empty() { Ok(()) } else { Err(CodecError::MissingFields(missing)) }
}

/// Lists every path of `schema` that is barred by something without fields, and every needed field that is missing.
fn check_fields(
    schema: &Schema,
    blocked: impl Fn(&Path) -> Option<&'static str>,
    fields: &[Path],
    present: impl Fn(&Path) -> bool,
) -> Result<(), CodecError> {
    let barred = schema.attributes().iter().filter_map(|a| blocked(&a.path).map(|what| (a.name.clone(), what)));
    let barred: Vec<_> = barred.collect();
    if barred.is_empty() { missing_fields(schema, fields, present) } else { Err(CodecError::LeadsInto(barred)) }
}

/// The checks that all formats share, before the first byte is parsed.
fn check_size(payload: &[u8], max_record_bytes: usize) -> Result<(), Reject> {
    if payload.is_empty() {
        return Err(Reject::record(RejectCode::Empty));
    }
    if payload.len() > max_record_bytes {
        return Err(Reject::record(RejectCode::TooLarge));
    }
    Ok(())
}

fn malformed() -> Reject {
    Reject::record(RejectCode::Malformed)
}

#[cfg(test)]
mod tests;
