//! One published row to the value of one message, and the documents beside the rows: manifests and dead letters.

use apache_avro::Schema as AvroSchema;
use serde_json::Value as Json;

use super::avro::OutputSchema;
use super::avro::container::{write_bytes, write_long};
use super::json::JsonEncoder;
use super::{EncodeError, PublishedRow};

/// The Avro schema of release manifests, as published.
pub const MANIFEST_SCHEMA: &str = include_str!("../../schemas/release-manifest.avsc");

/// The Avro schema of dead letters, as published.
pub const DEAD_LETTER_SCHEMA: &str = include_str!("../../schemas/dead-letter.avsc");

/// The first byte of a message in the Confluent wire format.
pub const MAGIC: u8 = 0;

/// Writes rows as messages: no header, no newline, nothing between them.
pub trait MessageEncoder: Send {
    /// The first part of every message with these labels.
    fn message_labels(&self, quasi: &[&str], out: &mut Vec<u8>);
    /// Appends one row: what [`MessageEncoder::message_labels`] made of its labels, and its values. After an error nothing
    /// has been appended.
    fn labelled_message(&mut self, labels: &[u8], values: &[&str], out: &mut Vec<u8>) -> Result<(), EncodeError>;
    /// Appends one row by itself.
    fn message(&mut self, row: &PublishedRow<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut labels = Vec::new();
        self.message_labels(row.quasi, &mut labels);
        self.labelled_message(&labels, row.values, out)
    }
}

impl MessageEncoder for JsonEncoder {
    fn message_labels(&self, quasi: &[&str], out: &mut Vec<u8>) {
        self.object_labels(quasi, out);
    }

    fn labelled_message(&mut self, labels: &[u8], values: &[&str], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.object(labels, values, out);
        Ok(())
    }
}

/// A bare datum per message.
impl MessageEncoder for OutputSchema {
    fn message_labels(&self, quasi: &[&str], out: &mut Vec<u8>) {
        self.datum_labels(quasi, out);
    }

    fn labelled_message(&mut self, labels: &[u8], values: &[&str], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let start = out.len();
        self.datum(labels, values, out).inspect_err(|_| out.truncate(start))
    }
}

/// Appends what stands before the datum in the Confluent wire format.
pub fn write_schema_id(id: u32, out: &mut Vec<u8>) {
    out.push(MAGIC);
    out.extend_from_slice(&id.to_be_bytes());
}

/// A document that its schema does not describe: a defect, kept from being published.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a document does not fit its schema at `{path}`")]
pub struct DocumentError {
    /// Where, by the schema's own names.
    pub path: String,
}

/// Appends a JSON document as a datum of `schema`. Every key must be in the schema, and have its type.
pub fn write_document(schema: &AvroSchema, document: &Json, out: &mut Vec<u8>) -> Result<(), DocumentError> {
    write(schema, document, out).map_err(|mut path| {
        path.reverse();
        DocumentError { path: path.join(".") }
    })
}

/// The error is the path, innermost name first.
fn write(schema: &AvroSchema, value: &Json, out: &mut Vec<u8>) -> Result<(), Vec<String>> {
    let written = match (schema, value) {
        (AvroSchema::Null, Json::Null) => Some(()),
        (AvroSchema::Boolean, Json::Bool(value)) => {
            out.push(u8::from(*value));
            Some(())
        }
        (AvroSchema::Int, value) => {
            value.as_i64().and_then(|v| i32::try_from(v).ok()).map(|v| write_long(i64::from(v), out))
        }
        (AvroSchema::Long | AvroSchema::TimestampMillis, value) => value.as_i64().map(|v| write_long(v, out)),
        (AvroSchema::Double, value) => value.as_f64().map(|v| out.extend_from_slice(&v.to_le_bytes())),
        (AvroSchema::String, Json::String(text)) => {
            write_bytes(text.as_bytes(), out);
            Some(())
        }
        (AvroSchema::Array(array), Json::Array(items)) => {
            if !items.is_empty() {
                write_long(items.len() as i64, out);
                items.iter().try_for_each(|item| write(&array.items, item, out))?;
            }
            write_long(0, out);
            Some(())
        }
        (AvroSchema::Union(union), value) => {
            let fits = |variant: &&AvroSchema| matches!(variant, AvroSchema::Null) == value.is_null();
            match union.variants().iter().enumerate().find(|(_, variant)| fits(variant)) {
                Some((index, variant)) => {
                    write_long(index as i64, out);
                    write(variant, value, out)?;
                    Some(())
                }
                None => None,
            }
        }
        (AvroSchema::Record(record), Json::Object(object)) => {
            if let Some(stranger) = object.keys().find(|key| !record.fields.iter().any(|f| f.name == **key)) {
                return Err(vec![stranger.clone()]);
            }
            for field in &record.fields {
                let value = object.get(&field.name).unwrap_or(&Json::Null);
                write(&field.schema, value, out).map_err(|mut path| {
                    path.push(field.name.clone());
                    path
                })?;
            }
            Some(())
        }
        _ => None,
    };
    written.ok_or_else(Vec::new)
}

#[cfg(test)]
mod tests {
    // The replacement wants a builder for what is one call here.
    #![allow(deprecated)]
    use std::collections::BTreeSet;

    use super::*;
    use crate::codec::avro::parse_schema;
    use crate::codec::confluent::ConfluentEncoder;
    use crate::codec::schemas::PublishedSchema;
    use crate::model::event::RejectCode;
    use crate::model::release::dead_letter::DeadLetter;
    use crate::model::release::manifest::{
        Achieved, AttributeLevel, Manifest, Named, OffsetRange, Provenance, ScheduleName, SnapshotNote, UnmetBound,
    };
    use crate::model::schema::{Role, Schema};

    fn manifest() -> Manifest {
        let recoding = |cut: Option<Vec<String>>| AttributeLevel {
            attribute: "age".into(),
            level: 2,
            finest: None,
            typical: None,
            cut,
        };
        Manifest {
            provenance: Provenance {
                release_id: "g-1".into(),
                window_id: 3,
                offsets: vec![OffsetRange { partition: i64::MAX as u64, first: 0, last: i64::MAX }],
                recoding: vec![recoding(None), recoding(Some(vec!["20-39".into()]))],
                schedule: Some(ScheduleName { id: "00ff".into(), steps: Some(vec![vec![0], vec![2]]) }),
                snapshot: Some(SnapshotNote { kind: "changes".into(), base: Some("g-0".into()), rows: 40 }),
                losses: vec![Named { name: "glm".into(), value: 0.25 }],
                records_in: 12,
                unmet_bounds: vec![UnmetBound::new("k", 50.0, 6.0)],
                closed_at: 1_700_000_000_000,
                ..Provenance::default()
            },
            criteria: vec![Achieved { criterion: "k-anonymity".into(), required: 5.0, achieved: Some(7.0) }],
            k_achieved: Some(7),
            classes: 2,
            rows: 20,
        }
    }

    /// Every key of the document is in the schema and the other way round, and what is read back is what was written.
    fn fits(schema: &str, document: &Json, left_out: &[&str]) {
        let schema = parse_schema(schema).unwrap();
        let mut datum = Vec::new();
        write_document(&schema, document, &mut datum).unwrap();
        let AvroSchema::Record(record) = &*schema else { panic!("a record") };
        let declared: BTreeSet<&str> = record.fields.iter().map(|f| f.name.as_str()).collect();
        let present: BTreeSet<&str> = document.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(declared.difference(&present).copied().collect::<Vec<_>>(), left_out);
        let reader = apache_avro::reader::datum::GenericDatumReader::builder(&schema).build().unwrap();
        let back: Json = reader.read_value(&mut datum.as_slice()).unwrap().try_into().unwrap();
        for (key, value) in document.as_object().unwrap() {
            let (value, back) = (without_nulls(value), without_nulls(&back[key]));
            assert_eq!(value.to_string(), back.to_string(), "{key}");
        }
    }

    fn without_nulls(value: &Json) -> Json {
        match value {
            Json::Object(map) => {
                map.iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k.clone(), without_nulls(v))).collect()
            }
            Json::Array(list) => list.iter().map(without_nulls).collect(),
            other => other.clone(),
        }
    }

    #[test]
    fn manifests_fit_their_schema() {
        fits(MANIFEST_SCHEMA, &serde_json::to_value(manifest()).unwrap(), &[]);
        let empty = Manifest {
            provenance: Provenance::default(),
            criteria: vec![Achieved { criterion: "k-anonymity".into(), required: 5.0, achieved: None }],
            k_achieved: None,
            classes: 0,
            rows: 0,
        };
        fits(MANIFEST_SCHEMA, &serde_json::to_value(empty).unwrap(), &["schedule", "snapshot"]);
    }

    #[test]
    fn dead_letters_fit_their_schema() {
        let letter = DeadLetter {
            topic: "people",
            partition: 2,
            offset: 77,
            code: RejectCode::Malformed.as_str(),
            field: Some("age"),
            at: 1_700_000_000_000,
        };
        fits(DEAD_LETTER_SCHEMA, &serde_json::to_value(&letter).unwrap(), &[]);
        fits(DEAD_LETTER_SCHEMA, &serde_json::to_value(DeadLetter { field: None, ..letter }).unwrap(), &[]);
    }

    #[test]
    fn a_stranger_in_a_document_is_refused() {
        let schema = parse_schema(DEAD_LETTER_SCHEMA).unwrap();
        let mut document = serde_json::json!({"topic": "t", "partition": 1, "offset": 2, "code": "empty", "at": 3});
        assert!(write_document(&schema, &document, &mut Vec::new()).is_ok());
        document["value"] = "tr0ub4dor".into();
        let error = write_document(&schema, &document, &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "a document does not fit its schema at `value`");
        document = serde_json::json!({"topic": "t", "partition": "1"});
        assert_eq!(write_document(&schema, &document, &mut Vec::new()).unwrap_err().path, "partition");
    }

    #[test]
    fn every_format_writes_one_message() {
        let schema = Schema::new([("age", Role::Quasi), ("job", Role::Sensitive)]);
        let writer = r#"{"type":"record","name":"P","fields":[{"name":"job","type":{"type":"enum","name":"J","symbols":["a"]}}]}"#;
        let output = OutputSchema::derive(&schema, &[parse_schema(writer).unwrap().as_ref()]).unwrap();
        let row = PublishedRow { quasi: &["20-39"], values: &["\"nurse\""] };
        let mut out = Vec::new();
        JsonEncoder::new(&schema).message(&row, &mut out).unwrap();
        assert_eq!(out, br#"{"age":"20-39","job":"nurse"}"#);
        let (mut plain, mut wire) = (Vec::new(), Vec::new());
        output.clone().message(&row, &mut plain).unwrap();
        let published = PublishedSchema::Avro(output.clone());
        ConfluentEncoder::new(258, &published).message(&row, &mut wire).unwrap();
        assert_eq!(wire[..5], [0, 0, 0, 1, 2]);
        assert_eq!(wire[5..], plain);
        let wrong = PublishedRow { quasi: &["20-39"], values: &["12"] };
        assert!(ConfluentEncoder::new(1, &published).message(&wrong, &mut wire).is_err());
        assert_eq!(wire.len(), plain.len() + 5, "nothing is left of a row that does not fit");
    }

    /// What lets a release be carried out again knowing only its schema id.
    #[test]
    fn deriving_from_an_output_schema_changes_nothing() {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
        let types = [
            r#""int""#,
            r#"["null","long"]"#,
            r#"{"type":"long","logicalType":"timestamp-micros"}"#,
            r#"["int","string"]"#,
            r#"{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}"#,
            r#""bytes""#,
            r#""float""#,
            r#"{"type":"array","items":"string"}"#,
            r#"{"type":"array","items":["null","long","string"]}"#,
            r#"{"type":"array","items":{"type":"record","name":"R","fields":[{"name":"x","type":"int"},{"name":"y",
                "type":{"type":"array","items":["null",{"type":"map","values":"int"}]}},{"name":"z","type":["null","R"]}]}}"#,
            r#"["null",{"type":"record","name":"S","fields":[{"name":"e","type":{"type":"enum","name":"E","symbols":["q"]}},
                {"name":"f","type":{"type":"array","items":"E"}},{"name":"r","type":"R"}]}]"#,
            r#"{"type":"map","values":{"type":"map","values":["int","string"]}}"#,
        ];
        let fields: Vec<String> =
            names.iter().zip(types).map(|(name, of)| format!(r#"{{"name":"{name}","type":{of}}}"#)).collect();
        let writer = format!(r#"{{"type":"record","name":"P","fields":[{}]}}"#, fields.join(","));
        let schema =
            Schema::new(std::iter::once(("q", Role::Quasi)).chain(names.iter().map(|name| (*name, Role::Insensitive))));
        let once = OutputSchema::derive(&schema, &[parse_schema(&writer).unwrap().as_ref()]).unwrap();
        let twice = OutputSchema::derive(&schema, &[parse_schema(once.json()).unwrap().as_ref()]).unwrap();
        assert_eq!(once, twice);
    }
}
