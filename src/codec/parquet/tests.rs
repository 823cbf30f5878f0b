//! Rows come back as they were written, and no file makes the reader panic.

use std::fs::File;
use std::io::Write as _;

use proptest::prelude::*;

use super::*;
use crate::codec::avro::AvroDecoder;
use crate::codec::{Decode as _, Encode as _, PublishedRow, Schema};
use crate::model::record::Value;
use crate::model::schema::Role;

fn schema() -> Schema {
    Schema::new([("marital status", Role::Quasi), ("job", Role::Sensitive), ("score", Role::Insensitive)])
}

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn written(rows: &[[&str; 3]]) -> Vec<u8> {
    let mut encoder = ParquetEncoder::new(&schema(), &[]);
    let mut out = Vec::new();
    encoder.header(&mut out);
    for [label, job, score] in rows {
        encoder.row(&PublishedRow { quasi: &[label], values: &[job, score] }, &mut out).unwrap();
    }
    encoder.finish(&mut out).unwrap();
    out
}

fn read(bytes: &[u8]) -> Result<usize, ParquetFileError> {
    let mut reader = ParquetReader::open(file(bytes))?;
    let mut rows = 0;
    while reader.next_row()?.is_some() {
        rows += 1;
    }
    Ok(rows)
}

#[test]
fn rows_come_back() {
    let bytes = written(&[["[20,40)", "\"cook\"", "1.5"], ["*", "null", "true"]]);
    assert_eq!(written(&[["[20,40)", "\"cook\"", "1.5"], ["*", "null", "true"]]), bytes, "same rows, same bytes");
    let mut reader = ParquetReader::open(file(&bytes)).unwrap();
    let mut decoder = AvroDecoder::new(&schema(), reader.schema(), 1000).unwrap();
    let text = |text: &'static str| Value::Text(text.into());
    let expected = [[text("[20,40)"), text("cook"), text("1.5")], [text("*"), Value::Null, text("true")]];
    for row in expected {
        let datum = reader.next_row().unwrap().unwrap();
        assert!(decoder.decode(&datum).unwrap().values.as_slice() == row);
    }
    assert_eq!(reader.next_row().unwrap(), None);
    assert_eq!(read(&written(&[])), Ok(0));
}

#[test]
fn types_of_the_input_stay() {
    let writer = r#"{"type": "record", "name": "r", "fields": [{"name": "job", "type": {"type": "int", "logicalType": "date"}},
        {"name": "score", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]}]}"#;
    let writer = crate::codec::avro::parse_schema(writer).unwrap();
    let mut encoder = ParquetEncoder::new(&schema(), &[writer.as_ref()]);
    let mut out = Vec::new();
    encoder.header(&mut out);
    encoder.row(&PublishedRow { quasi: &["*"], values: &["-3", "-12.5"] }, &mut out).unwrap();
    let misfit = encoder.row(&PublishedRow { quasi: &["*"], values: &["\"x\"", "1"] }, &mut out);
    assert!(matches!(misfit, Err(crate::codec::EncodeError::Misfit { field }) if &*field == "job"));
    encoder.finish(&mut out).unwrap();
    let mut reader = ParquetReader::open(file(&out)).unwrap();
    let mut decoder = AvroDecoder::new(&schema(), reader.schema(), 1000).unwrap();
    let datum = reader.next_row().unwrap().unwrap();
    let record = decoder.decode(&datum).unwrap();
    assert!(record.values[1] == Value::Number("-3".into()) && record.values[2] == Value::Number("-12.5".into()));
    let dates = Schema::new([("job", Role::Quasi)]);
    let mut decoder = AvroDecoder::new(&dates, reader.schema(), 1000).unwrap();
    assert!(decoder.decode(&datum).unwrap().values[0] == Value::Text("1969-12-29".into()), "a logical date is one");
    assert_eq!(reader.next_row().unwrap(), None, "the row that did not fit is not there");
}

/// Lists and structs keep their types and come back as they were, with nulls and empty lists at every depth.
#[test]
fn what_is_inside_stays() {
    let writer = r#"{"type": "record", "name": "r", "fields": [
        {"name": "job", "type": ["null", {"type": "array", "items": "string"}]},
        {"name": "score", "type": {"type": "array", "items": ["null", {"type": "record", "name": "s", "fields": [
            {"name": "x", "type": "long"}, {"name": "y", "type": {"type": "array", "items": {"type": "array", "items": "int"}}},
            {"name": "m", "type": ["null", {"type": "map", "values": {"type": "map", "values": ["null",
                {"type": "array", "items": "double"}]}}]}]}]}}]}"#;
    let writer = crate::codec::avro::parse_schema(writer).unwrap();
    let mut encoder = ParquetEncoder::new(&schema(), &[writer.as_ref()]);
    let rows = [
        [
            r#"["a","b"]"#,
            r#"[{"x":1,"y":[[1,2],[],[3]],"m":{"k":{"b":[1.5,2],"a":null},"":{}}},null,{"x":2,"y":[],"m":null}]"#,
        ],
        ["null", "[]"],
        ["[]", "[null]"],
        [r#"["c"]"#, r#"[{"x":3,"y":[[]],"m":{}}]"#],
    ];
    let mut out = Vec::new();
    encoder.header(&mut out);
    for values in rows {
        encoder.row(&PublishedRow { quasi: &["*"], values: &values }, &mut out).unwrap();
    }
    for misfit in [r#"["a",1]"#, r#""a""#, r#"{"a":1}"#] {
        assert!(encoder.row(&PublishedRow { quasi: &["*"], values: &[misfit, "[]"] }, &mut out).is_err(), "{misfit}");
    }
    let misfit = PublishedRow { quasi: &["*"], values: &["[]", r#"[{"x":1,"m":{"k":{"a":["text"]}}}]"#] };
    assert!(encoder.row(&misfit, &mut out).is_err(), "a value of a map has its type");
    let stranger = PublishedRow { quasi: &["*"], values: &["[]", r#"[{"x":1,"new":2}]"#] };
    assert!(encoder.row(&stranger, &mut out).is_err(), "a member that no schema names is not left out in silence");
    encoder.finish(&mut out).unwrap();
    let mut reader = ParquetReader::open(file(&out)).unwrap();
    let mut decoder = AvroDecoder::new(&schema(), reader.schema(), 1000).unwrap();
    for [job, score] in rows {
        let datum = reader.next_row().unwrap().unwrap();
        let record = decoder.decode(&datum).unwrap();
        let nested = |text: &'static str| if text == "null" { Value::Null } else { Value::Nested(text.into()) };
        assert!(record.values[1] == nested(job), "{job}");
        assert!(record.values[2] == nested(score), "{score}");
    }
    assert_eq!(reader.next_row().unwrap(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn damaged_files_are_errors(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
        let rows = vec![["20", "\"cook\"", "1"]; 50];
        let mut bytes = written(&rows);
        let place = at.index(bytes.len());
        bytes[place] = byte;
        let _ = read(&bytes);
        bytes.truncate(cut.index(bytes.len()));
        let _ = read(&bytes);
    }
}
