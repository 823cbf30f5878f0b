//! Messages of every kind, beside what the library makes of them.

use std::collections::HashMap;

use proptest::prelude::*;
use prost_reflect::prost::Message as _;
use prost_reflect::{DynamicMessage, FileDescriptor, MapKey, MessageDescriptor, Value as Dynamic};
use serde_json::json;

use super::*;
use crate::codec::PublishedRow;
use crate::codec::schemas::{PublishedSchema, SchemaLanguage, WriterSchema};
use crate::model::event::RejectCode;
use crate::model::record::Value;
use crate::model::schema::{Envelope, Role};

const PROTO: &str = r#"
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";

message Order {
  Customer customer = 1;
  optional string diagnosis = 2;
  repeated string codes = 3;
  repeated sint64 counts = 4;
  map<string, int32> tags = 5;
  oneof place { string zip = 6; int32 box = 7; Customer other = 8; }
  google.protobuf.Timestamp at = 9;
  google.protobuf.StringValue note = 10;
  Color color = 11;
  bytes raw = 12;
  uint64 big = 13;
  fixed32 small = 14;
  double score = 15;
  bool known = 16;
  Order parent = 17;
  sfixed64 low = 18;
}
message Customer {
  int64 id = 1;
  int32 age = 2;
  string secret = 3;
}
enum Color { RED = 0; GREEN = 5; }
"#;

fn file() -> FileDescriptor {
    compile(PROTO, &HashMap::new()).unwrap()
}

fn order() -> MessageDescriptor {
    message_at(&file(), &[0]).unwrap()
}

const FIELDS: [&str; 17] = [
    "customer.id",
    "customer.age",
    "diagnosis",
    "codes",
    "counts",
    "tags",
    "zip",
    "box",
    "other",
    "at",
    "note",
    "color",
    "raw",
    "big",
    "small",
    "score",
    "known",
];

fn schema(names: &[&'static str]) -> Schema {
    Schema::new(names.iter().map(|name| (*name, Role::Reviewed)))
}

fn texts(record: &Record<'_>) -> Vec<String> {
    let text = |value: &Value<'_>| {
        let mut json = String::new();
        value.write_json(&mut json);
        json
    };
    record.values.iter().map(text).collect()
}

fn read(names: &[&'static str], payload: &[u8]) -> Result<Vec<String>, RejectCode> {
    let plan = MessagePlan::new(&schema(names), &order());
    plan.decode(payload, 1 << 20).map(|record| texts(&record)).map_err(|reject| reject.code)
}

fn message(text: &str) -> Vec<u8> {
    DynamicMessage::parse_text_format(order(), text).unwrap().encode_to_vec()
}

#[test]
fn every_kind_of_field_is_read() {
    let payload = message(
        r#"customer { id: -9223372036854775808 age: 37 secret: "canary" } diagnosis: "flu" codes: "B20" codes: "E11"
           counts: -1 counts: 9223372036854775807 tags { key: "a\"b" value: 1 } zip: "10115" at { seconds: 86400 nanos: 5000000 }
           note { value: "n" } color: GREEN raw: "\xff\x01" big: 18446744073709551615 small: 4294967295 score: 0.5 known: true"#,
    );
    let expected = [
        "-9223372036854775808",
        "37",
        r#""flu""#,
        r#"["B20","E11"]"#,
        "[-1,9223372036854775807]",
        r#"{"a\"b":1}"#,
        r#""10115""#,
        "null",
        "null",
        r#""1970-01-02T00:00:00.005Z""#,
        r#""n""#,
        r#""GREEN""#,
        "\"\u{ff}\\u0001\"",
        "18446744073709551615",
        "4294967295",
        "0.5",
        "true",
    ];
    assert_eq!(read(&FIELDS, &payload).unwrap(), expected);
}

#[test]
fn what_is_absent_has_its_default_where_it_does_not_tell() {
    let names =
        ["color", "big", "known", "raw", "customer.age", "diagnosis", "note", "at", "zip", "codes", "tags", "nowhere"];
    let expected = [r#""RED""#, "0", "false", r#""""#, "null", "null", "null", "null", "null", "[]", "{}", "null"];
    assert_eq!(read(&names, b"").unwrap(), expected);
    assert_eq!(
        read(&["customer.age", "customer.secret", "note"], &message("customer {} note {}")).unwrap(),
        ["0", r#""""#, r#""""#]
    );
    let plan = MessagePlan::new(&schema(&["nowhere", "diagnosis"]), &order());
    let record = plan.decode(b"", 10).unwrap();
    assert!(record.values[0] == Value::Missing && record.values[1] == Value::Null);
}

#[test]
fn what_comes_twice_counts_as_the_specification_has_it() {
    let twice =
        [message("customer { id: 7 age: 1 } big: 1 codes: \"a\""), message("customer { age: 2 } big: 2 codes: \"b\"")]
            .concat();
    assert_eq!(
        read(&["customer.id", "customer.age", "big", "codes"], &twice).unwrap(),
        ["7", "2", "2", r#"["a","b"]"#]
    );
    assert_eq!(
        read(&["parent"], &[message("parent { big: 1 }"), message("parent { small: 2 }")].concat()).unwrap()[0].len(),
        { read(&["parent"], &message("parent { big: 1 small: 2 }")).unwrap()[0].len() }
    );
    // Of a oneof the last member is set, whether or not the policy names it.
    let members = [message("zip: \"10115\""), message("other { age: 3 }"), message("box: 4")].concat();
    assert_eq!(read(&["zip", "box", "other.age"], &members).unwrap(), ["null", "4", "null"]);
    assert_eq!(read(&["zip"], &members).unwrap(), ["null"]);
    // Packed or not, a list is a list: counts as single fields.
    assert_eq!(read(&["counts"], &[0x20, 1, 0x22, 2, 2, 4]).unwrap(), ["[-1,1,2]"]);
    // A number that an older schema does not name: text, as names are, for outputs with types.
    assert_eq!(read(&["color"], &[0x58, 9]).unwrap(), ["\"9\""]);
}

#[test]
fn what_is_malformed_is_refused() {
    let code = |names: &[&'static str], bytes: &[u8]| read(names, bytes).unwrap_err();
    for bytes in [
        &[0x0a][..],                                                      // no length
        &[0x0a, 5, 1],                                                    // longer than what is left
        &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], // longer than anything
        &[0x68, 0x80],                                                    // a number without its end
        &[0x68, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2], // of more than 64 bits
        &[0x00, 1],                                                       // field 0
        &[0x0f],                                                          // no such wire type
        &[0x9b, 6, 0x08],                                                 // a group without its end
        &[0x9b, 6, 0xa4, 6],                                              // with another one's
        &[0x9c, 6],                                                       // an end without its start
        &[0x6a, 1, 1], // a field of the policy with another wire type
    ] {
        assert_eq!(code(&["big"], bytes), RejectCode::Malformed, "{bytes:?}");
    }
    assert_eq!(code(&["diagnosis"], &[0x12, 1, 0xff]), RejectCode::InvalidUtf8);
    assert_eq!(code(&["customer"], &[0x0a, 1, 0x08]), RejectCode::Malformed, "inside a message that is kept");
    assert_eq!(code(&["customer.age"], &[0x08, 1]), RejectCode::Malformed);
    assert_eq!(code(&["score"], &[&[0x79][..], &f64::NAN.to_le_bytes()].concat()), RejectCode::Malformed);
    assert_eq!(code(&["at"], &message("at { seconds: 9223372036854775807 }")), RejectCode::Malformed);
    assert_eq!(code(&["diagnosis.x"], &message("diagnosis: \"\"")), RejectCode::NotAnObject);
    let entry = message("tags { key: \"a\" value: 1 }");
    assert_eq!(code(&["tags"], &entry.repeat(2)), RejectCode::DuplicateKey);
    let plan = MessagePlan::new(&schema(&["big"]), &order());
    assert_eq!(plan.decode(&[0x68, 1], 1).unwrap_err().code, RejectCode::TooLarge);
    assert_eq!(
        plan.decode(&message("diagnosis: \"x\""), 100).map(|r| texts(&r)).unwrap(),
        ["0"],
        "others are passed over"
    );
}

#[test]
fn bombs_do_not_go_off() {
    // Messages in messages, groups in groups.
    let mut deep = Vec::new();
    for _ in 0..5000 {
        let mut outer = vec![0x8a, 1];
        crate::codec::layout::write_varint(deep.len() as u64, &mut outer);
        outer.extend(&deep);
        deep = outer;
    }
    assert_eq!(read(&["parent"], &deep), Err(RejectCode::TooDeep));
    assert_eq!(read(&["big"], &deep).unwrap(), ["0"], "nobody looks inside");
    assert_eq!(read(&["big"], &[0x9b, 6].repeat(5000)), Err(RejectCode::TooDeep));
    // Schemas that nest deeper than the parser should go.
    let nested = format!("syntax = \"proto3\"; {} {}", "message A {".repeat(5000), "}".repeat(5000));
    assert!(compile(&nested, &HashMap::new()).is_err());
    assert!(compile("message", &HashMap::new()).is_err());
    assert!(compile(r#"syntax = "proto3"; import "gone.proto"; message A {}"#, &HashMap::new()).is_err());
}

#[test]
fn a_schema_may_be_serialized_and_refer_to_others() {
    use base64::Engine as _;
    let address = r#"syntax = "proto3"; package a; message Address { string zip = 1; }"#;
    let person = r#"syntax = "proto3"; import "a/address.proto"; message Person { message Inner { int32 x = 1; } a.Address home = 1; }"#;
    let others = HashMap::from([("a/address.proto".to_owned(), address.to_owned())]);
    let file = compile(person, &others).unwrap();
    assert_eq!(message_at(&file, &[0, 0]).unwrap().full_name(), "Person.Inner");
    assert!(
        message_at(&file, &[1]).is_none() && message_at(&file, &[0, 1]).is_none() && message_at(&file, &[]).is_none()
    );
    let serialized =
        |file: &FileDescriptor| base64::prelude::BASE64_STANDARD.encode(file.file_descriptor_proto().encode_to_vec());
    let imported = file.dependencies().next().unwrap();
    let others = HashMap::from([("a/address.proto".to_owned(), serialized(&imported))]);
    let again = compile(&serialized(&file), &others).unwrap();
    assert_eq!(message_at(&again, &[0]).unwrap().get_field_by_name("home").unwrap().number(), 1);
}

#[test]
fn a_change_event_is_the_row_after_it() {
    let text = r#"syntax = "proto3"; message Envelope { Row before = 1; Row after = 2; string op = 3; }
        message Row { int64 id = 1; string born = 2; }"#;
    let envelope = message_at(&compile(text, &HashMap::new()).unwrap(), &[0]).unwrap();
    let mut fields = Schema::new([("born", Role::Quasi), ("id", Role::Subject)]);
    fields.envelope = Envelope::Debezium;
    let mut decoder = ProtobufDecoder::new(&fields, &envelope, 1000).unwrap();
    let event = |text: &str| DynamicMessage::parse_text_format(envelope.clone(), text).unwrap().encode_to_vec();
    let update = event(r#"before { born: "canary" } after { id: 7 born: "1980" } op: "u""#);
    assert_eq!(texts(&decoder.decode(&update).unwrap()), [r#""1980""#, "7"]);
    let mut code = |text: &str| decoder.decode(&event(text)).unwrap_err().code;
    assert_eq!(code(r#"before { id: 7 } op: "d""#), RejectCode::Tombstone);
    assert_eq!(code(r#"op: "t""#), RejectCode::NoRow);
    assert_eq!(code(r#"op: "c""#), RejectCode::Malformed);
    assert_eq!(decoder.decode(b"").unwrap_err().code, RejectCode::Empty);
    assert_eq!(decoder.fields(b""), [crate::model::schema::Path::of("id"), crate::model::schema::Path::of("born")]);
}

#[test]
fn a_path_that_leads_nowhere_says_so() {
    let told = |names: &[&'static str]| {
        let fields = Schema::new(names.iter().map(|name| (*name, Role::Quasi)));
        ProtobufDecoder::new(&fields, &order(), 10).err().unwrap().to_string()
    };
    assert_eq!(told(&["diagnose"]), "the input has no field called `diagnose` (did you mean `diagnosis`?)");
    let said = told(&["codes.x", "tags.x", "zip.x"]);
    assert!(
        said.starts_with("`codes.x` leads into a list, `tags.x` leads into a map, `zip.x` leads into a single value"),
        "{said}"
    );
}

/// The fields of the output, in published order: labels first.
fn published() -> Schema {
    Schema::new(
        [("customer.age", Role::Quasi), ("zip", Role::Quasi)].into_iter().chain(
            [
                "customer.id",
                "diagnosis",
                "codes",
                "counts",
                "tags",
                "at",
                "color",
                "raw",
                "big",
                "small",
                "score",
                "known",
                "low",
            ]
            .into_iter()
            .map(|name| (name, Role::Reviewed)),
        ),
    )
}

const VALUES: [&str; 13] = [
    "-7",
    r#""flu""#,
    r#"["B20","E11"]"#,
    "[-1,3]",
    r#"{"a":1}"#,
    r#""1970-01-01T00:00:00Z""#,
    r#""GREEN""#,
    "\"\u{ff}\"",
    "18446744073709551615",
    "4294967295",
    "0.5",
    "true",
    "-1",
];

fn derived(language: SchemaLanguage) -> PublishedSchema {
    PublishedSchema::derive(language, &published(), &[WriterSchema::Protobuf(order())]).unwrap()
}

#[test]
fn rows_keep_the_shape_and_the_types_of_the_input() {
    let output = derived(SchemaLanguage::Protobuf);
    let text = output.text();
    for line in [
        "message Published {\n  Published_customer customer = 1;\n  string zip = 2;\n",
        "optional int64 id = 2;",
        "  string age = 1;",
        "repeated string codes",
        "repeated int64 counts",
        "map<string, int32> tags",
        "optional string color",
        "optional bytes raw",
        "optional uint64 big",
        "optional int64 small",
        "optional double score",
        "optional bool known",
        "optional int64 low",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    assert!(!text.contains("secret") && !text.contains("parent"), "what the policy does not name: {text}");
    let row = PublishedRow { quasi: &["30-39", "1****"], values: &VALUES };
    let mut payload = Vec::new();
    output.encoder().message(&row, &mut payload).unwrap();
    // The slow twin reads it.
    let PublishedSchema::Protobuf(own) = &output else { panic!() };
    let message = own.message().unwrap();
    assert_eq!(message.full_name(), "veilstream.Published");
    let twin = DynamicMessage::decode(message.clone(), payload.as_slice()).unwrap();
    assert_eq!(twin.unknown_fields().count(), 0);
    let customer = twin.get_field_by_name("customer").unwrap();
    let customer = customer.as_message().unwrap();
    assert_eq!(customer.get_field_by_name("age").unwrap().as_str(), Some("30-39"));
    assert_eq!(customer.get_field_by_name("id").unwrap().as_i64(), Some(-7));
    // And so do we, as what it was.
    let plan = MessagePlan::new(&published(), &message);
    let back = texts(&plan.decode(&payload, 1000).unwrap());
    assert_eq!(back, ["\"30-39\"", "\"1****\""].into_iter().chain(VALUES).collect::<Vec<_>>());
}

#[test]
fn null_is_nothing_and_a_misfit_leaves_nothing() {
    let output = derived(SchemaLanguage::Protobuf);
    let mut out = b"before".to_vec();
    let nulls = PublishedRow { quasi: &["a", "b"], values: &["null"; 13] };
    output.encoder().message(&nulls, &mut out).unwrap();
    assert_eq!(out, b"before\x0a\x03\x0a\x01a\x12\x01b");
    let mut values = VALUES;
    values[0] = "\"no number\"";
    assert!(output.encoder().message(&PublishedRow { quasi: &["a", "b"], values: &values }, &mut out).is_err());
    assert_eq!(out.len(), 14);
}

/// What lets a release be carried out again knowing only its schema id.
#[test]
fn deriving_from_an_output_changes_nothing() {
    for language in [SchemaLanguage::Protobuf, SchemaLanguage::Json, SchemaLanguage::Avro] {
        let once = derived(language);
        let registered = WriterSchema::parse(language, once.text(), &HashMap::new()).unwrap();
        let again = PublishedSchema::derive(language, &published().reading_output(), &[registered]).unwrap();
        let row = PublishedRow { quasi: &["30-39", "1****"], values: &VALUES };
        let bytes = |schema: &PublishedSchema| {
            let mut out = Vec::new();
            schema.encoder().message(&row, &mut out).unwrap();
            out
        };
        assert_eq!(bytes(&once), bytes(&again), "{language}");
        assert_eq!(once.text(), again.text(), "{language}");
    }
}

/// Messages of one type after another, in one window: the output has a type for both.
#[test]
fn schemas_that_differ_have_one_output() {
    let kinds = |fields: &[&str]| {
        let writers = fields.iter().map(|field| {
            let text = format!("syntax = \"proto3\"; message P {{ string age = 1; {field} }}");
            WriterSchema::parse(SchemaLanguage::Protobuf, &text, &HashMap::new()).unwrap()
        });
        let fields = Schema::new([("age", Role::Quasi), ("n", Role::Reviewed)]);
        PublishedSchema::derive(SchemaLanguage::Protobuf, &fields, &writers.collect::<Vec<_>>())
            .unwrap()
            .text()
            .to_owned()
    };
    assert!(kinds(&["int32 n = 2;"]).contains("optional int32 n"));
    assert!(kinds(&["int32 n = 2;", "sint64 n = 7;", ""]).contains("optional int64 n"));
    assert!(kinds(&["int32 n = 2;", "string n = 2;"]).contains("optional string n"));
    assert!(kinds(&["repeated int32 n = 2;", "int32 n = 2;"]).contains("optional string n"));
    // What is inside grows with the window, and a message that holds itself ends.
    let inside = "repeated R n = 2; message R { int32 a = 1; repeated R rs = 2; map<string, int32> m = 3; }";
    let more = "repeated R n = 2; message R { sint64 a = 1; repeated R rs = 2; optional bool b = 9; }";
    let text = kinds(&[inside, more]);
    let message = "message Published_n {\n  repeated string rs = 3875;\n  optional bool b = 5078;\n  optional int64 a = 12221;\n  map<string, int32> m = 12697;\n}";
    assert!(text.contains("repeated Published_n n = 2;") && text.contains(message), "{text}");
}

#[test]
fn names_that_protobuf_does_not_take_are_refused() {
    let derive = |names: [&'static str; 2]| {
        let fields = Schema::new([(names[0], Role::Quasi), (names[1], Role::Reviewed)]);
        PublishedSchema::derive(SchemaLanguage::Protobuf, &fields, &[]).err().map(|error| error.to_string())
    };
    assert_eq!(derive(["age", "x"]), None);
    assert_eq!(
        derive(["a", "job title"]).unwrap(),
        "`job title` cannot be a protobuf field name: use letters, digits and _"
    );
    assert!(derive(["aB", "a_b"]).unwrap().contains("the same name"));
    assert_eq!(derive(["a.b", "Published"]), None);
    assert_eq!(derive(["message", "string.optional"]), None);
}

/// A random order as the library writes it, and what it holds.
fn any_order() -> impl Strategy<Value = (Vec<u8>, serde_json::Value)> {
    let customer = (any::<i64>(), any::<i32>(), "\\PC{0,8}");
    let lists = (prop::collection::vec("\\PC{0,5}", 0..4), prop::collection::vec(any::<i64>(), 0..4));
    let numbers = (any::<u64>(), any::<u32>(), any::<i16>(), any::<bool>(), any::<i64>());
    let tags = prop::collection::btree_map("[a-z]{0,3}", any::<i32>(), 0..3);
    let (message, customer_message) = (order(), message_at(&file(), &[1]).unwrap());
    (prop::option::of(customer), prop::option::of("\\PC{0,8}"), lists, numbers, tags).prop_map(
        move |(customer, diagnosis, (codes, counts), (big, small, score, known, low), tags)| {
            let mut order = DynamicMessage::new(message.clone());
            let mut set = |name: &str, value: Dynamic| order.set_field_by_name(name, value);
            if let Some((id, age, secret)) = &customer {
                let mut own = DynamicMessage::new(customer_message.clone());
                own.set_field_by_name("id", Dynamic::I64(*id));
                own.set_field_by_name("age", Dynamic::I32(*age));
                own.set_field_by_name("secret", Dynamic::String(secret.clone()));
                set("customer", Dynamic::Message(own));
            }
            if let Some(diagnosis) = &diagnosis {
                set("diagnosis", Dynamic::String(diagnosis.clone()));
            }
            set("codes", Dynamic::List(codes.iter().cloned().map(Dynamic::String).collect()));
            set("counts", Dynamic::List(counts.iter().copied().map(Dynamic::I64).collect()));
            let entry = |(key, value): (&String, &i32)| (MapKey::String(key.clone()), Dynamic::I32(*value));
            set("tags", Dynamic::Map(tags.iter().map(entry).collect()));
            set("big", Dynamic::U64(big));
            set("small", Dynamic::U32(small));
            set("score", Dynamic::F64(f64::from(score) + 0.5));
            set("known", Dynamic::Bool(known));
            set("low", Dynamic::I64(low));
            let customer = customer.map(|(id, age, secret)| json!({"id": id, "age": age, "secret": secret}));
            let twin = json!({"customer": customer, "diagnosis": diagnosis, "codes": codes, "counts": counts, "tags": tags,
                "big": big, "small": small, "score": f64::from(score) + 0.5, "known": known, "low": low});
            (order.encode_to_vec(), twin)
        },
    )
}

proptest! {
    /// The slow twin is the library's dynamic message.
    #[test]
    fn we_read_what_the_library_wrote((payload, twin) in any_order()) {
        let schema = schema(&["customer", "diagnosis", "codes", "counts", "tags", "big", "small", "score", "known", "low"]);
        let plan = MessagePlan::new(&schema, &order());
        let record = plan.decode(&payload, 1 << 20).unwrap();
        for (attribute, text) in schema.attributes().iter().zip(texts(&record)) {
            let own: serde_json::Value = serde_json::from_str(&text).unwrap();
            prop_assert!(own == twin[&*attribute.name], "{}", attribute.name);
        }
    }
}
