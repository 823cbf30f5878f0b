//! Paths in every format: what they lead to is read and laid out again, and nothing else appears.

use apache_avro::types::Value as AvroValue;
use apache_avro::writer::datum::GenericDatumWriter;

use super::*;
use crate::model::event::RejectCode;
use crate::model::schema::{Envelope, Path, Role};

const FIELDS: [(&str, Role); 6] = [
    ("customer.address.zip", Role::Quasi),
    ("age", Role::Quasi),
    ("customer.job", Role::Sensitive),
    ("customer.address.since", Role::Insensitive),
    (r#"customer."a.b""#, Role::Reviewed),
    ("customer.id", Role::Subject),
];

const NESTED: &str = r#"{"x":{"age":"canary"},"customer":{"address":{"street":"canary","zip":"10115","since":2001},
    "job":"cook","a.b":{"c":[1]},"id":7,"a":{"b":"canary"},"more":[{"zip":"canary"}]},"age":37}"#;

fn nested() -> Schema {
    Schema::new(FIELDS)
}

fn texts(record: &Record<'_>) -> Vec<String> {
    let text = |value: &Value<'_>| {
        let mut json = String::new();
        value.write_json(&mut json);
        json
    };
    record.values.iter().map(text).collect()
}

fn code(decoder: &mut JsonDecoder, text: &str) -> RejectCode {
    decoder.decode(text.as_bytes()).expect_err("must be refused").code
}

#[test]
fn paths_lead_to_fields_at_every_depth() {
    let mut decoder = JsonDecoder::new(&nested(), 10_000);
    // The second time it takes the short way.
    for _ in 0..2 {
        let record = decoder.decode(NESTED.as_bytes()).unwrap();
        assert_eq!(texts(&record), [r#""10115""#, "37", r#""cook""#, "2001", r#"{"c":[1]}"#, "7"]);
    }
    let record = decoder.decode(br#"{"age":1,"customer":{"address":null,"job":"cook"}}"#).unwrap();
    assert!(record.values[0] == Value::Null && record.values[3] == Value::Null, "null above a field is null");
    assert!(record.values[5] == Value::Missing);
    let record = decoder.decode(br#"{"age":1}"#).unwrap();
    assert!(record.values[0] == Value::Missing);
}

#[test]
fn what_is_wrong_at_any_depth_is_refused() {
    let mut decoder = JsonDecoder::new(&nested(), 100_000);
    decoder.decode(NESTED.as_bytes()).unwrap();
    for text in [
        r#"{"customer":{"job":1,"job":2}}"#,
        r#"{"customer":{"address":{"x":1,"x":2}}}"#,
        r#"{"customer":{},"customer":{}}"#,
        r#"{"customer":{"id":1,"\u0069d":2}}"#,
        r#"{"customer":{"more":[{"a":1,"a":1}]}}"#,
    ] {
        assert_eq!(code(&mut decoder, text), RejectCode::DuplicateKey, "{text}");
    }
    for value in ["[]", r#"[{"zip":"1"}]"#, r#""text""#, "1", "true"] {
        let text = format!(r#"{{"customer":{{"address":{value}}}}}"#);
        let reject = decoder.decode(text.as_bytes()).unwrap_err();
        assert_eq!(reject, Reject::field(RejectCode::NotAnObject, 0), "{text}");
    }
    let deep = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"customer":{{"address":{{"unnamed":{open}{close}}}}}}}"#)
    };
    assert_eq!(code(&mut decoder, &deep(MAX_DEPTH)), RejectCode::TooDeep);
    assert_eq!(code(&mut decoder, &deep(MAX_DEPTH - 2)), RejectCode::TooDeep);
    assert!(decoder.decode(deep(MAX_DEPTH - 3).as_bytes()).is_ok());
}

#[test]
fn rows_keep_the_shape_of_the_input() {
    let row = PublishedRow { quasi: &["101**", "30-39"], values: &[r#""cook""#, "2001", r#"{"c":[1]}"#] };
    let mut encoder = JsonEncoder::new(&nested());
    let lines = encoded(JsonEncoder::new(&nested()), &[row; 2]);
    let line = concat!(
        r#"{"customer":{"address":{"zip":"101**","since":2001},"job":"cook","a.b":{"c":[1]}},"age":"30-39"}"#,
        "\n"
    );
    assert_eq!(String::from_utf8(lines).unwrap(), line.repeat(2));
    assert!(encoder.continues(line.as_bytes()));
    assert!(!encoder.continues(br#"{"customer":{"address":{"zip":"1"},"job":1,"a.b":1},"age":"1"}"#));

    let table = encoded(CsvEncoder::new(&nested(), b','), &[row]);
    let table = String::from_utf8(table).unwrap();
    let header = "customer.address.zip,age,customer.job,customer.address.since,\"customer.\"\"a.b\"\"\"\n";
    assert!(table.starts_with(header), "{table}");
    let header = CsvHeader::parse(table.lines().next().unwrap().as_bytes(), None).unwrap();
    let published = Schema::new(FIELDS.into_iter().filter(|(_, role)| *role != Role::Subject));
    let mut decoder = CsvDecoder::new(&published, &header, 1000).unwrap();
    let record = decoder.decode(table.lines().nth(1).unwrap().as_bytes()).unwrap();
    assert!(record.values[0] == Value::Text("101**".into()) && record.values[2] == Value::Text("cook".into()));
}

const WRITER: &str = r#"{"type":"record","name":"Order","namespace":"shop","fields":[
    {"name":"note","type":"string"},
    {"name":"customer","type":["null",{"type":"record","name":"Customer","fields":[
        {"name":"address","type":{"type":"record","name":"Address","fields":[
            {"name":"street","type":"string"},{"name":"zip","type":"string"},{"name":"since","type":"int"}]}},
        {"name":"other","type":["null","Address"]},
        {"name":"job","type":["null","string"]},
        {"name":"id","type":"long"},
        {"name":"tags","type":{"type":"array","items":"string"}}]}]},
    {"name":"age","type":"int"}]}"#;

fn order(customer: Option<&str>) -> Vec<u8> {
    let writer = parse_schema(WRITER).unwrap();
    let text = |text: &str| AvroValue::String(text.into());
    let address = |zip: &str| {
        let fields = [("street", text("canary")), ("zip", text(zip)), ("since", AvroValue::Int(2001))];
        AvroValue::Record(fields.map(|(name, value)| (name.to_owned(), value)).into())
    };
    let union = |index, value| AvroValue::Union(index, Box::new(value));
    let customer = customer.map_or(union(0, AvroValue::Null), |zip| {
        let fields = [
            ("address", address(zip)),
            ("other", union(1, address("99999"))),
            ("job", union(1, text("cook"))),
            ("id", AvroValue::Long(7)),
            ("tags", AvroValue::Array(vec![text("canary")])),
        ];
        union(1, AvroValue::Record(fields.map(|(name, value)| (name.to_owned(), value)).into()))
    });
    let fields = [("note", text("canary")), ("customer", customer), ("age", AvroValue::Int(37))];
    let value = AvroValue::Record(fields.map(|(name, value)| (name.to_owned(), value)).into());
    GenericDatumWriter::builder(&writer).build().unwrap().write_value_to_vec(value).unwrap()
}

#[test]
fn avro_records_in_records_are_read_and_written() {
    let fields = [
        ("customer.address.zip", Role::Quasi),
        ("age", Role::Quasi),
        ("customer.job", Role::Sensitive),
        ("customer.other.since", Role::Insensitive),
        ("customer.id", Role::Subject),
    ];
    let schema = Schema::new(fields);
    let writer = parse_schema(WRITER).unwrap();
    let mut decoder = AvroDecoder::new(&schema, &writer, 1000).unwrap();
    let record = decoder.decode(&order(Some("10115"))).map(|record| texts(&record));
    assert_eq!(record.unwrap(), [r#""10115""#, "37", r#""cook""#, "2001", "7"]);
    let payload = order(None);
    let record = decoder.decode(&payload).unwrap();
    assert!(record.values[0] == Value::Null && record.values[1] == Value::Number("37".into()));

    let output = OutputSchema::derive(&schema, &[&writer]).unwrap();
    let json: serde_json::Value = serde_json::from_str(output.json()).unwrap();
    let customer = &json["fields"][0]["type"];
    assert_eq!(customer["name"], "Published_customer");
    assert_eq!(customer["fields"][0]["type"]["fields"][0], serde_json::json!({"name": "zip", "type": "string"}));
    assert_eq!(
        customer["fields"][2]["type"]["fields"][0]["type"],
        serde_json::json!(["null", "int"]),
        "by a reference"
    );
    let row = PublishedRow { quasi: &["101**", "30-39"], values: &[r#""cook""#, "2001"] };
    let mut payload = Vec::new();
    output.clone().message(&row, &mut payload).unwrap();
    let published = parse_schema(output.json()).unwrap();
    // The slow twin reads it too.
    let twin = apache_avro::reader::datum::GenericDatumReader::builder(&published).build().unwrap();
    assert!(twin.read_value(&mut payload.as_slice()).is_ok());
    let back = Schema::new(fields.into_iter().filter(|(_, role)| *role != Role::Subject));
    let mut back = AvroDecoder::new(&back, &published, 1000).unwrap();
    let record = back.decode(&payload).map(|record| texts(&record));
    assert_eq!(record.unwrap(), [r#""101**""#, r#""30-39""#, r#""cook""#, "2001"]);
    // What was registered gives the same schema again.
    assert_eq!(OutputSchema::derive(&schema, &[&published]).unwrap(), output);
}

#[test]
fn an_avro_path_into_an_array_says_so() {
    let schema = Schema::new([("customer.tags.name", Role::Quasi), ("age.years", Role::Quasi)]);
    let writer = parse_schema(WRITER).unwrap();
    let error = AvroDecoder::new(&schema, &writer, 1000).err().unwrap();
    assert_eq!(
        error.to_string(),
        "`customer.tags.name` leads into an array, `age.years` leads into a single value: a path leads through objects \
         only; keep the whole field instead"
    );
    let plan = avro::Plan::new(&schema, &writer).unwrap();
    assert_eq!(plan.decode(&order(Some("1")), 1000).unwrap_err().code, RejectCode::NotAnObject);
}

#[test]
fn a_change_event_is_the_row_after_it() {
    let mut schema = Schema::new([("born", Role::Quasi), ("home.zip", Role::Quasi), ("id", Role::Subject)]);
    schema.envelope = Envelope::Debezium;
    let mut decoder = JsonDecoder::new(&schema, 10_000);
    let row = |zip: &str| format!(r#"{{"id":7,"born":"1980-01-01","name":"canary","home":{{"zip":"{zip}"}}}}"#);
    for op in ["c", "r", "u"] {
        let change = format!(r#"{{"before":{},"after":{},"op":"{op}","ts_ms":1}}"#, row("canary"), row("10115"));
        for text in [change.clone(), format!(r#"{{"schema":{{"type":"struct"}},"payload":{change}}}"#)] {
            let record = decoder.decode(text.as_bytes()).unwrap();
            assert_eq!(texts(&record), [r#""1980-01-01""#, r#""10115""#, "7"], "{text}");
        }
    }
    let deleted = format!(r#"{{"before":{},"after":null,"op":"d"}}"#, row("1"));
    for (text, expected) in [
        (deleted.as_str(), RejectCode::Tombstone),
        (r#"{"op":"t","ts_ms":1}"#, RejectCode::NoRow),
        (r#"{"op":"m","message":{}}"#, RejectCode::NoRow),
        (r#"{"status":"BEGIN","id":"571","event_count":null}"#, RejectCode::NoRow),
        (r#"{"status":"END","id":"571","event_count":2,"ts_ms":1}"#, RejectCode::NoRow),
        (r#"{"id":1,"home":{"zip":"10115"}}"#, RejectCode::NotAChange),
        (r#"{"schema":{},"payload":{"ts_ms":1}}"#, RejectCode::NoRow),
        (r#"{"op":"c","after":null}"#, RejectCode::Malformed),
        (r#"{"op":"c","after":[]}"#, RejectCode::NotAnObject),
        (r#"{"op":"c","after":{"id":1,"id":2}}"#, RejectCode::DuplicateKey),
    ] {
        assert_eq!(code(&mut decoder, text), expected, "{text}");
    }
}

#[test]
fn an_avro_change_event_is_the_row_after_it() {
    let writer = r#"{"type":"record","name":"Envelope","namespace":"db","fields":[
        {"name":"before","type":["null",{"type":"record","name":"Value","fields":[
            {"name":"id","type":"int"},{"name":"born","type":{"type":"int","logicalType":"date"}}]}]},
        {"name":"after","type":["null","Value"]},
        {"name":"op","type":"string"}]}"#;
    let writer = parse_schema(writer).unwrap();
    let mut schema = Schema::new([("born", Role::Insensitive), ("id", Role::Subject)]);
    schema.envelope = Envelope::Debezium;
    let mut decoder = AvroDecoder::new(&schema, &writer, 1000).unwrap();
    // A union's index, then the row: id 3, born day 10; zigzag doubles.
    let update = [2, 6, 18, 2, 6, 20, 2, b'u'];
    assert_eq!(texts(&decoder.decode(&update).unwrap()), ["10", "3"]);
    let delete = [2, 6, 18, 0, 2, b'd'];
    assert_eq!(decoder.decode(&delete).unwrap_err().code, RejectCode::Tombstone);
    let output = OutputSchema::derive(&schema, &[&writer]).unwrap();
    assert!(output.json().contains(r#""logicalType":"date""#), "typed as in the row: {}", output.json());
    let mut misspelt = Schema::new([("bron", Role::Quasi)]);
    misspelt.envelope = Envelope::Debezium;
    let error = AvroDecoder::new(&misspelt, &writer, 1000).err();
    assert_eq!(error.unwrap().to_string(), "the input has no field called `bron` (did you mean `born`?)");
}

#[test]
fn a_field_may_stand_elsewhere_in_the_input() {
    let schema = Schema::new([("zip", Role::Quasi), ("age", Role::Quasi)]);
    let elsewhere = schema.reading(|a| if *a.name == *"zip" { Path::of("address.postcode") } else { a.path.clone() });
    let mut decoder = JsonDecoder::new(&elsewhere, 1000);
    let record = decoder.decode(br#"{"zip":"canary","address":{"postcode":"10115"},"age":1}"#).unwrap();
    assert_eq!(texts(&record), [r#""10115""#, "1"]);
    assert_eq!(elsewhere.output(), schema.output());
}
