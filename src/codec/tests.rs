//! Promises of all formats: rows come back as they were written, and nothing that carries a value can print it.

mod nested;

use bytes::Bytes;
use proptest::prelude::*;

use super::avro::{AvroDecoder, AvroEncoder, OutputSchema, container::ContainerReader, parse_schema};
use super::csv::{CsvDecoder, CsvEncoder, CsvHeader};
use super::json::{JsonDecoder, JsonEncoder};
use super::message::MessageEncoder as _;
use super::*;
use crate::model::event::{Event, Key, Position};
use crate::model::record::Value;
use crate::model::schema::Role;

fn schema() -> Schema {
    Schema::new([("age", Role::Quasi), ("zip", Role::Quasi), ("job", Role::Sensitive), ("score", Role::Insensitive)])
}

fn encoded(mut encoder: impl Encode, rows: &[PublishedRow<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    encoder.header(&mut out);
    for row in rows {
        encoder.row(row, &mut out).unwrap();
    }
    encoder.finish(&mut out).unwrap();
    out
}

fn value() -> impl Strategy<Value = Value<'static>> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(|n| Value::Number(n.to_string().into())),
        (-100_000i32..100_000).prop_map(|n| {
            let text = (f64::from(n) / 16.0).to_string();
            Value::Number(crate::model::record::canonical_number(&text).unwrap().into_owned().into())
        }),
        "[ -~é\n\t]{0,10}".prop_map(|text| Value::Text(text.into())),
        Just(Value::Nested(r#"{"a":[1,"x,\"y"]}"#.into())),
    ]
}

proptest! {
    #[test]
    fn rows_come_back_as_they_were_written(
        labels in prop::collection::vec("[ -~é\n;]{0,8}", 2), values in prop::collection::vec(value(), 2),
    ) {
        let json: Vec<String> = values.iter().map(|v| { let mut s = String::new(); v.write_json(&mut s); s }).collect();
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let texts: Vec<&str> = json.iter().map(String::as_str).collect();
        let row = PublishedRow { quasi: &labels, values: &texts };
        let rows = [row; 3];

        let lines = encoded(JsonEncoder::new(&schema()), &rows);
        let mut decoder = JsonDecoder::new(&schema(), 10_000);
        let mut count = 0;
        for line in lines.split_inclusive(|b| *b == b'\n') {
            let record = decoder.decode(line).unwrap();
            prop_assert!(record.values[0] == Value::Text(labels[0].into()));
            prop_assert!(record.values[1] == Value::Text(labels[1].into()));
            prop_assert!(record.values[2] == values[0] && record.values[3] == values[1]);
            count += 1;
        }
        prop_assert_eq!(count, 3);

        // In CSV everything is text: a string its text, null nothing, the rest its JSON.
        let table = encoded(CsvEncoder::new(&schema(), b';'), &rows[..1]);
        let header_end = table.iter().position(|b| *b == b'\n').unwrap() + 1;
        let header = CsvHeader::parse(&table[..header_end], None).unwrap();
        prop_assert_eq!(header.delimiter(), b';');
        let mut decoder = CsvDecoder::new(&schema(), &header, 10_000).unwrap();
        let record = decoder.decode(&table[header_end..]).unwrap();
        let plain = |value: &Value<'_>, json: &str| match value {
            Value::Null => String::new(),
            Value::Text(text) => text.to_string(),
            _ => json.to_owned(),
        };
        prop_assert!(record.values[0] == Value::Text(labels[0].into()));
        prop_assert!(record.values[2] == Value::Text(plain(&values[0], &json[0]).into()));
        prop_assert!(record.values[3] == Value::Text(plain(&values[1], &json[1]).into()));

        let file = encoded(AvroEncoder::new(OutputSchema::derive(&schema(), &[]).unwrap()), &rows);
        let mut reader = ContainerReader::open(file.as_slice()).unwrap();
        let plan = avro::Plan::new(&schema(), reader.schema()).unwrap();
        let block = reader.next_block().unwrap().unwrap();
        prop_assert_eq!(block.count, 3);
        let mut rest = &block.bytes[..];
        while !rest.is_empty() {
            let (datum, after) = rest.split_at(plan.measure(rest).unwrap());
            rest = after;
            let record = plan.decode(datum, 10_000).unwrap();
            prop_assert!(record.values[1] == Value::Text(labels[1].into()));
            for (found, expected) in record.values[2..].iter().zip(&values) {
                match expected {
                    Value::Nested(text) => prop_assert!(*found == Value::Text(text.clone())),
                    _ => prop_assert!(found == expected),
                }
            }
        }
    }
}

/// The same rows make the same bytes: a release that is made again must not differ.
#[test]
fn encoding_is_deterministic() {
    let rows = [PublishedRow { quasi: &["[0, 10[", "1****"], values: &["\"cook\"", "1.5"] }; 5000];
    let avro = || encoded(AvroEncoder::new(OutputSchema::derive(&schema(), &[]).unwrap()), &rows);
    assert_eq!(avro(), avro());
}

#[test]
fn format_is_told_by_the_extension() {
    for (path, format) in
        [("a.csv", Some(Format::Csv)), ("a.JSONL", Some(Format::Json)), ("b.avro", Some(Format::Avro))]
    {
        assert_eq!(Format::of_path(path.as_ref()), format);
    }
    assert_eq!(Format::of_path("noextension".as_ref()), None);
}

/// Canaries in named and unnamed fields, in values and in keys; nothing with a `Debug` or a `Display` shows one.
#[test]
fn values_cannot_be_printed() {
    const CANARY: &str = "CANARY";
    let mut shown = String::new();
    let mut show = |what: String| {
        shown.push_str(&what);
        shown.push('\n');
    };
    let json = [
        r#"{"age":"CANARY","zip":"CANARY","job":{"CANARY":"CANARY"},"x":"CANARY","CANARY":1}"#,
        r#"{"age":"CANARY","age":"CANARY"}"#,
        r#"{"CANARY":"CANARY","CANARY":2}"#,
        r#"{"age":"CANARY\ud800"}"#,
        r#"{"age":CANARY}"#,
        r#""CANARY""#,
        r#"["CANARY"]"#,
        r#"{"job":[{"CANARY":1,"CANARY":2}]}"#,
    ];
    for text in json {
        let event = Event {
            position: Position::new(0, 7),
            placement: 0,
            timestamp: None,
            key: Some(Key::from_slice(b"CANARY")),
            payload: Some(Bytes::copy_from_slice(text.as_bytes())),
        };
        show(format!("{event:?}"));
        match JsonDecoder::new(&schema(), 1000).decode(text.as_bytes()) {
            Ok(record) => show(format!("{record:?} {:?}", record.values)),
            Err(reject) => show(format!("{reject:?} {}", reject.code.as_str())),
        }
    }
    let header = CsvHeader::parse(b"CANARY,age,zip,job,score", None).unwrap();
    show(format!("{header:?}"));
    for line in ["CANARY,CANARY,CANARY,CANARY,CANARY", "CANARY", "\"CANARY"] {
        match CsvDecoder::new(&schema(), &header, 1000).unwrap().decode(line.as_bytes()) {
            Ok(record) => show(format!("{record:?} {:?}", record.values)),
            Err(reject) => show(format!("{reject:?}")),
        }
    }
    for header in ["CANARY", "\"CANARY", "CANARY,\"x\"CANARY"] {
        let made = CsvHeader::parse(header.as_bytes(), None).and_then(|h| CsvDecoder::new(&schema(), &h, 1000));
        show(made.map_or_else(|error| format!("{error:?} {error}"), |_| String::new()));
    }
    let writer = OutputSchema::derive(&schema(), &[]).unwrap();
    let row = PublishedRow { quasi: &[CANARY, CANARY], values: &["\"CANARY\"", "CANARY"] };
    show(format!("{row:?} {:?}", writer.clone().message(&row, &mut Vec::new())));
    let row = PublishedRow { quasi: &[CANARY, CANARY], values: &["\"CANARY\"", "1"] };
    let mut datum = Vec::new();
    writer.clone().message(&row, &mut datum).unwrap();
    let mut decoder = AvroDecoder::new(&schema(), &parse_schema(writer.json()).unwrap(), 1000).unwrap();
    show(format!("{:?}", decoder.decode(&datum).map(|record| format!("{record:?} {:?}", record.values))));
    for end in 0..datum.len() {
        show(format!("{:?}", decoder.decode(&datum[..end]).unwrap_err()));
    }
    show(format!("{:?} {}", parse_schema(CANARY), CodecError::BadAvroSchema));
    assert!(!shown.contains(CANARY), "{shown}");
    assert!(shown.contains("Event(0:7") && shown.contains("Record(4 fields)"));
}
