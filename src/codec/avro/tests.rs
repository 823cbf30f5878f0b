//! Avro against `apache_avro` as the slow twin, and against what it gets wrong.

use apache_avro::types::Value as AvroValue;
use apache_avro::writer::datum::GenericDatumWriter;
use proptest::prelude::*;

use super::container::{ContainerReader, ContainerWriter, write_bytes, write_long};
use super::*;
use crate::codec::message::MessageEncoder as _;
use crate::codec::{DEFAULT_MAX_RECORD_BYTES, Encode as _, PublishedRow};
use crate::model::event::RejectCode;
use crate::model::record::Value;
use crate::model::schema::Role;

const WRITER: &str = r#"{"type":"record","name":"T","namespace":"n","fields":[
    {"name":"unnamed","type":["null","string",{"type":"array","items":"long"}]},
    {"name":"age","type":"int"},
    {"name":"born","type":{"type":"int","logicalType":"date"}},
    {"name":"job","type":{"type":"enum","name":"E","symbols":["cook","nurse"]}},
    {"name":"at","type":["null",{"type":"long","logicalType":"timestamp-millis"}]},
    {"name":"paid","type":{"type":"bytes","logicalType":"decimal","precision":10,"scale":2}},
    {"name":"score","type":"double"},
    {"name":"tree","type":["null",{"type":"record","name":"Tree","fields":[
        {"name":"label","type":"string"},{"name":"children","type":{"type":"map","values":"Tree"}}]}]},
    {"name":"id","type":["long","string"]}]}"#;

fn schema() -> Schema {
    Schema::new([
        ("age", Role::Quasi),
        ("born", Role::Quasi),
        ("job", Role::Sensitive),
        ("at", Role::Insensitive),
        ("paid", Role::Insensitive),
        ("score", Role::Insensitive),
        ("tree", Role::Insensitive),
        ("id", Role::Subject),
    ])
}

fn decoder() -> AvroDecoder {
    AvroDecoder::new(&schema(), &parse_schema(WRITER).unwrap(), DEFAULT_MAX_RECORD_BYTES).unwrap()
}

fn union(index: u32, value: AvroValue) -> AvroValue {
    AvroValue::Union(index, Box::new(value))
}

fn tree(label: &str, children: impl IntoIterator<Item = AvroValue>) -> AvroValue {
    let children = children.into_iter().enumerate().map(|(i, c)| (format!("c{i}"), c)).collect();
    AvroValue::Record(vec![
        ("label".into(), AvroValue::String(label.into())),
        ("children".into(), AvroValue::Map(children)),
    ])
}

fn sample(age: i32, label: &str) -> Vec<u8> {
    let value = AvroValue::Record(vec![
        ("unnamed".into(), union(2, AvroValue::Array(vec![AvroValue::Long(1), AvroValue::Long(-1)]))),
        ("age".into(), AvroValue::Int(age)),
        ("born".into(), AvroValue::Date(7305)),
        ("job".into(), AvroValue::Enum(1, "nurse".into())),
        ("at".into(), union(1, AvroValue::TimestampMillis(1_700_000_000_123))),
        ("paid".into(), AvroValue::Decimal(apache_avro::Decimal::from([0xfb, 0x2e]))),
        ("score".into(), AvroValue::Double(-0.0)),
        ("tree".into(), union(1, tree(label, [tree("leaf", [])]))),
        ("id".into(), union(0, AvroValue::Long(i64::MIN))),
    ]);
    encode(&parse_schema(WRITER).unwrap(), value)
}

fn encode(schema: &apache_avro::Schema, value: AvroValue) -> Vec<u8> {
    let writer = GenericDatumWriter::builder(schema).build().unwrap();
    writer.write_value_to_vec(value).unwrap()
}

#[test]
fn reads_every_kind_of_field() {
    let payload = sample(37, "a\"b");
    let record = decoder().decode(&payload).unwrap();
    let expected = [
        Value::Number("37".into()),
        Value::Text("1990-01-01".into()),
        Value::Text("nurse".into()),
        Value::Number("1700000000123".into()),
        Value::Number("-12.34".into()),
        Value::Number("0".into()),
        Value::Nested(r#"{"label":"a\"b","children":{"c0":{"label":"leaf","children":{}}}}"#.into()),
        Value::Number("-9223372036854775808".into()),
    ];
    for (slot, (found, expected)) in record.values.iter().zip(&expected).enumerate() {
        assert!(found == expected, "slot {slot}");
    }
}

#[test]
fn times_are_text_where_they_decide() {
    let schema = Schema::new([("t", Role::EventTime), ("l", Role::Quasi)]);
    let writer = r#"{"type":"record","name":"T","fields":[
        {"name":"t","type":{"type":"long","logicalType":"timestamp-micros"}},
        {"name":"l","type":{"type":"long","logicalType":"local-timestamp-millis"}}]}"#;
    let mut decoder = AvroDecoder::new(&schema, &parse_schema(writer).unwrap(), 100).unwrap();
    let mut payload = Vec::new();
    write_long(1_700_000_000_123_456, &mut payload);
    write_long(0, &mut payload);
    let record = decoder.decode(&payload).unwrap();
    assert!(record.values[0] == Value::Text("2023-11-14T22:13:20.123456Z".into()));
    assert!(record.values[1] == Value::Text("1970-01-01T00:00:00".into()));
    let mut payload = Vec::new();
    write_long(i64::MAX, &mut payload);
    write_long(0, &mut payload);
    assert_eq!(decoder.decode(&payload).unwrap_err(), Reject::field(RejectCode::Malformed, 0));
}

#[test]
fn every_truncation_is_malformed() {
    let payload = sample(37, "root");
    let mut decoder = decoder();
    for end in 1..payload.len() {
        let reject = decoder.decode(&payload[..end]).expect_err("truncated");
        assert_eq!(reject.code, RejectCode::Malformed, "at {end}");
    }
    assert_eq!(decoder.decode(&[]).unwrap_err().code, RejectCode::Empty);
    let trailing = [payload.as_slice(), &[0]].concat();
    assert_eq!(decoder.decode(&trailing).unwrap_err().code, RejectCode::Malformed);
    let large = vec![0; DEFAULT_MAX_RECORD_BYTES + 1];
    assert_eq!(decoder.decode(&large).unwrap_err().code, RejectCode::TooLarge);
}

#[test]
fn corrupt_lengths_depth_and_text_are_refused() {
    let writer = r#"{"type":"record","name":"R","fields":[
        {"name":"next","type":["null","R"]},{"name":"s","type":"string"},
        {"name":"n","type":{"type":"array","items":"null"}}]}"#;
    for name in ["next", "other"] {
        let schema = Schema::new([(name, Role::Insensitive)]);
        let mut decoder = AvroDecoder::new(&schema, &parse_schema(writer).unwrap(), 1 << 20).unwrap();
        let mut code = |bytes: &[u8]| decoder.decode(bytes).expect_err("must be refused").code;
        assert_eq!(code(&[2; 10_000]), RejectCode::TooDeep);
        let mut huge = vec![0];
        write_long(i64::MAX, &mut huge);
        assert_eq!(code(&huge), RejectCode::Malformed);
        assert_eq!(code(&[0, 2, 0xff, 0]), RejectCode::InvalidUtf8);
        let mut nulls = vec![0, 0];
        write_long(1 << 40, &mut nulls);
        assert_eq!(code(&nulls), RejectCode::Malformed);
        let mut negative = vec![0, 0];
        write_long(i64::MIN, &mut negative);
        assert_eq!(code(&negative), RejectCode::Malformed);
        assert_eq!(code(&[4]), RejectCode::Malformed, "no such branch");
        assert_eq!(code(&[0x80; 11]), RejectCode::Malformed);
    }
}

#[test]
fn work_is_bounded_by_the_datum_not_by_the_schema() {
    // Each record holds two of the next: 2^40 empty leaves in no bytes at all.
    let mut inner = r#"{"type":"record","name":"L0","fields":[]}"#.to_owned();
    for i in 1..40 {
        inner = format!(
            r#"{{"type":"record","name":"L{i}","fields":[{{"name":"a","type":{inner}}},{{"name":"b","type":"L{}"}}]}}"#,
            i - 1
        );
    }
    let writer = format!(
        r#"{{"type":"record","name":"T","fields":[{{"name":"x","type":{inner}}},{{"name":"i","type":"int"}}]}}"#
    );
    for name in ["x", "other"] {
        let schema = Schema::new([(name, Role::Insensitive)]);
        let mut decoder = AvroDecoder::new(&schema, &parse_schema(&writer).unwrap(), 100).unwrap();
        assert_eq!(decoder.decode(&[0]).unwrap_err().code, RejectCode::TooLarge);
    }
}

#[test]
fn not_a_number_is_malformed_and_repeated_map_keys_are_refused() {
    let writer = r#"{"type":"record","name":"R","fields":[
        {"name":"d","type":"double"},{"name":"m","type":{"type":"map","values":"int"}}]}"#;
    let schema = Schema::new([("d", Role::Quasi), ("m", Role::Insensitive)]);
    let mut decoder = AvroDecoder::new(&schema, &parse_schema(writer).unwrap(), 100).unwrap();
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let payload = [bad.to_le_bytes().as_slice(), &[0]].concat();
        assert_eq!(decoder.decode(&payload).unwrap_err(), Reject::field(RejectCode::Malformed, 0));
    }
    let mut payload = 2.5f64.to_le_bytes().to_vec();
    payload.extend_from_slice(&[4, 2, b'k', 2, 2, b'k', 4, 0]);
    assert_eq!(decoder.decode(&payload).unwrap_err().code, RejectCode::DuplicateKey);
}

#[test]
fn evolution_drops_what_is_new_and_misses_what_is_gone() {
    let schema = Schema::new([("age", Role::Quasi), ("zip", Role::Quasi)]);
    let old = parse_schema(
        r#"{"type":"record","name":"T","fields":[{"name":"age","type":"int"},{"name":"zip","type":"string"}]}"#,
    );
    let new = parse_schema(
        r#"{"type":"record","name":"T","fields":[{"name":"nick","type":"string"},{"name":"age","type":"long"}]}"#,
    );
    assert!(AvroDecoder::new(&schema, &old.unwrap(), 100).is_ok());
    let plan = Plan::new(&schema, new.as_ref().unwrap()).unwrap();
    let mut payload = Vec::new();
    write_bytes(b"canary", &mut payload);
    write_long(1 << 40, &mut payload);
    let record = plan.decode(&payload, 100).unwrap();
    assert!(record.values[0] == Value::Number("1099511627776".into()) && record.values[1] == Value::Missing);
    let missing = AvroDecoder::new(&schema, new.as_ref().unwrap(), 100).err();
    assert_eq!(missing, Some(CodecError::MissingFields(vec![("zip".into(), None)])));
    assert_eq!(Plan::new(&schema, &apache_avro::Schema::Int).err(), Some(CodecError::NotARecord));
}

#[test]
fn output_keeps_the_types_of_the_input() {
    let schema = Schema::new([
        ("age", Role::Quasi),
        ("job", Role::Sensitive),
        ("born", Role::Insensitive),
        ("at", Role::Insensitive),
        ("paid", Role::Insensitive),
        ("tree", Role::Insensitive),
        ("id", Role::Insensitive),
        ("nowhere", Role::Insensitive),
    ]);
    let output = OutputSchema::derive(&schema, &[&parse_schema(WRITER).unwrap()]).unwrap();
    let json: serde_json::Value = serde_json::from_str(output.json()).unwrap();
    let of = |i: usize| json["fields"][i]["type"].to_string();
    assert_eq!(of(0), r#""string""#);
    assert_eq!(of(1), r#"["null","string"]"#);
    assert_eq!(of(2), r#"["null",{"type":"int","logicalType":"date"}]"#);
    assert_eq!(of(3), r#"["null",{"type":"long","logicalType":"timestamp-millis"}]"#);
    assert_eq!(of(4), r#"["null",{"type":"bytes","logicalType":"decimal","precision":10,"scale":2}]"#);
    // A record that holds itself is text: here in a map.
    let of_tree = r#"{"name":"label","type":["null","string"],"default":null},{"name":"children","type":["null",{"type":"map","values":"string"}],"default":null}"#;
    assert_eq!(of(5), format!(r#"["null",{{"type":"record","name":"Published_tree","fields":[{of_tree}]}}]"#));
    assert_eq!(of(6), r#"["null","boolean","long","double","string"]"#);
    assert_eq!(of(6), of(7));
    let writer = parse_schema(output.json()).unwrap();
    for paid in ["-12.34", "0", "1.5", "-1.28", "1.27", "1.28", "99999999.99", "-0.01", "655.36"] {
        let tree = r#"{"label":"x","children":{"c":[1]}}"#;
        let values = [r#""nurse""#, "7305", "null", paid, tree, "0.1", "9223372036854775808"];
        let mut payload = Vec::new();
        output.clone().message(&PublishedRow { quasi: &["[30, 40["], values: &values }, &mut payload).unwrap();
        // The slow twin must be able to read what we write.
        let twin = apache_avro::reader::datum::GenericDatumReader::builder(&writer).build().unwrap();
        assert!(twin.read_value(&mut payload.as_slice()).is_ok());
        let mut back = AvroDecoder::new(&schema, &writer, 1000).unwrap();
        let record = back.decode(&payload).unwrap();
        assert!(record.values[4] == Value::Number(paid.into()), "{paid}");
        assert!(record.values[5] == Value::Nested(r#"{"label":"x","children":{"c":"[1]"}}"#.into()));
        assert!(record.values[6] == Value::Number("0.1".into()));
        assert!(record.values[7] == Value::Text("9223372036854775808".into()), "no double holds it");
    }
    let values = [r#""nurse""#, r#""x""#, "null", "null", "null", "null", "null"];
    let error = output.clone().message(&PublishedRow { quasi: &["*"], values: &values }, &mut Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), "a value of `born` does not fit its type in the output schema");
    let bad = Schema::new([("post-code", Role::Quasi)]);
    assert_eq!(OutputSchema::derive(&bad, &[]).unwrap_err(), CodecError::BadAvroName("post-code".into()));
}

#[test]
fn output_type_holds_both_when_the_input_changes() {
    let schema = Schema::new([("v", Role::Insensitive)]);
    let of = |types: &[&str]| {
        let writers: Vec<_> = types
            .iter()
            .map(|t| {
                parse_schema(&format!(r#"{{"type":"record","name":"T","fields":[{{"name":"v","type":{t}}}]}}"#))
                    .unwrap()
            })
            .collect();
        let output = OutputSchema::derive(&schema, &writers.iter().map(|w| w.as_ref()).collect::<Vec<_>>()).unwrap();
        serde_json::from_str::<serde_json::Value>(output.json()).unwrap()["fields"][0]["type"].to_string()
    };
    assert_eq!(of(&[r#""int""#, r#"["null","long"]"#]), r#"["null","long"]"#);
    assert_eq!(of(&[r#""float""#, r#""double""#]), r#"["null","double"]"#);
    assert_eq!(of(&[r#""long""#, r#""string""#]), r#"["null","boolean","long","double","string"]"#);
}

#[test]
fn container_is_read_by_the_twin_and_the_twin_by_us() {
    let writer = parse_schema(WRITER).unwrap();
    let mut ours = ContainerWriter::new(serde_json::to_string(writer.as_ref()).unwrap());
    let mut bytes = Vec::new();
    ours.header(&mut bytes);
    for age in 0..1000 {
        ours.datum(&mut bytes, |out| {
            out.extend(sample(age, "x"));
            Ok::<(), ()>(())
        })
        .unwrap();
    }
    ours.flush(&mut bytes);
    let twin = apache_avro::Reader::new(bytes.as_slice()).unwrap();
    assert_eq!(twin.filter(Result::is_ok).count(), 1000);

    let deflate = apache_avro::Codec::Deflate(apache_avro::DeflateSettings::default());
    let mut twin = apache_avro::Writer::with_codec(&writer, Vec::new(), deflate).unwrap();
    for age in 0..1000 {
        let datum = sample(age, "x");
        let reader = apache_avro::reader::datum::GenericDatumReader::builder(&writer).build().unwrap();
        twin.append_value(reader.read_value(&mut datum.as_slice()).unwrap()).unwrap();
    }
    let bytes = twin.into_inner().unwrap();
    let mut reader = ContainerReader::open(bytes.as_slice()).unwrap();
    let mut count = 0;
    while let Some(block) = reader.next_block().unwrap() {
        count += block.count;
    }
    assert_eq!(count, 1000);
}

#[test]
fn broken_containers_are_errors() {
    let schema = OutputSchema::derive(&Schema::new([("a", Role::Quasi)]), &[]).unwrap();
    let mut encoder = AvroEncoder::new(schema);
    let mut bytes = Vec::new();
    encoder.header(&mut bytes);
    let header = bytes.len();
    encoder.row(&PublishedRow { quasi: &["canary"], values: &[] }, &mut bytes).unwrap();
    encoder.finish(&mut bytes).unwrap();
    let read = |bytes: &[u8]| -> Result<usize, container::ContainerError> {
        let mut reader = ContainerReader::open(bytes)?;
        let mut count = 0;
        while let Some(block) = reader.next_block()? {
            count += block.count;
        }
        Ok(count)
    };
    assert_eq!(read(&bytes).unwrap(), 1);
    for end in (0..bytes.len()).filter(|end| *end != header) {
        let error = read(&bytes[..end]).expect_err("truncated");
        assert!(!format!("{error:?} {error}").contains("canary"));
    }
    for at in 0..bytes.len() {
        let mut corrupt = bytes.clone();
        corrupt[at] ^= 0xff;
        let _ = read(&corrupt);
    }
}

proptest! {
    #[test]
    fn numbers_agree_with_the_twin(long in any::<i64>(), double in any::<f64>(), text in ".{0,20}", flag in any::<bool>()) {
        let writer = parse_schema(r#"{"type":"record","name":"T","fields":[{"name":"l","type":"long"},
            {"name":"d","type":["null","double"]},{"name":"s","type":"string"},{"name":"b","type":"boolean"}]}"#).unwrap();
        let finite = if double.is_finite() { double } else { 0.0 };
        let payload = encode(&writer, AvroValue::Record(vec![
            ("l".into(), AvroValue::Long(long)),
            ("d".into(), union(1, AvroValue::Double(finite))),
            ("s".into(), AvroValue::String(text.clone())),
            ("b".into(), AvroValue::Boolean(flag)),
        ]));
        let schema = Schema::new([("l", Role::Quasi), ("d", Role::Quasi), ("s", Role::Quasi), ("b", Role::Quasi)]);
        let mut decoder = AvroDecoder::new(&schema, &writer, 10_000).unwrap();
        let record = decoder.decode(&payload).unwrap();
        prop_assert!(record.values[0] == Value::Number(long.to_string().into()));
        let Value::Number(number) = &record.values[1] else { panic!("not a number") };
        prop_assert_eq!(number.parse::<f64>().unwrap(), finite);
        prop_assert!(record.values[2] == Value::Text(text.into()));
        prop_assert!(record.values[3] == Value::Bool(flag));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decoder().decode(&bytes);
        let _ = decoder().plan.measure(&bytes);
        let _ = ContainerReader::open(bytes.as_slice()).map(|mut reader| reader.next_block());
    }

    #[test]
    fn damaged_data_never_panic(at in 0usize..80, to in any::<u8>()) {
        let mut payload = sample(37, "root");
        let at = at % payload.len();
        payload[at] = to;
        let _ = decoder().decode(&payload);
    }
}
