//! What a record costs to decode, flat and nested, in every format of messages, and as an element of an array of JSON.
//!
//! The nested record has the same fields and values as the flat one, in messages of messages, and an unnamed field beside them.
//! Processor time per record, the least of several rounds; the ratios are what counts.
//!
//! `cargo bench --bench formats`
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashMap;

use cpu_time::ProcessTime;
use prost_reflect::prost::Message as _;
use prost_reflect::{DynamicMessage, MessageDescriptor, Value as Dynamic};
use serde_json::{Value as Json, json};
use veilstream::codec::avro::{AvroDecoder, parse_schema};
use veilstream::codec::json::JsonDecoder;
use veilstream::codec::message::write_document;
use veilstream::codec::protobuf::ProtobufDecoder;
use veilstream::codec::schemas::{SchemaLanguage, WriterSchema};
use veilstream::codec::{Decode, RecordReader};
use veilstream::model::schema::{Path, Placement, Role, Schema};

const RECORDS: usize = 20_000;
const ROUNDS: usize = 15;
const LARGEST: usize = 1 << 20;
/// The elements of an array.
const ELEMENTS: usize = 4;

/// A shape: the paths of its fields, its schemas, and a record.
struct Shape {
    name: &'static str,
    paths: [&'static str; 8],
    avro: &'static str,
    proto: &'static str,
    record: fn(usize) -> Json,
}

const FLAT: Shape = Shape {
    name: "flat",
    paths: ["age", "sex", "zip", "country", "education", "diagnosis", "ts", "id"],
    avro: r#"{"type":"record","name":"P","fields":[{"name":"id","type":"long"},{"name":"age","type":"int"},{"name":"sex","type":"string"},
        {"name":"zip","type":"string"},{"name":"country","type":"string"},{"name":"education","type":"string"},
        {"name":"diagnosis","type":"string"},{"name":"ts","type":"long"},{"name":"name","type":"string"}]}"#,
    proto: r#"syntax = "proto3"; message P { int64 id = 1; int32 age = 2; string sex = 3; string zip = 4; string country = 5;
        string education = 6; string diagnosis = 7; int64 ts = 8; string name = 9; }"#,
    record: |i| {
        json!({"id": i, "age": 20 + i % 60, "sex": (["f", "m"][i % 2]), "zip": (10000 + i % 900).to_string(), "country": "DE",
            "education": "Masters", "diagnosis": (["flu", "cold", "cough"][i % 3]), "ts": 1_700_000_000_000_i64 + i as i64,
            "name": "somebody"})
    },
};

const NESTED: Shape = Shape {
    name: "nested",
    paths: [
        "person.age",
        "person.sex",
        "person.home.zip",
        "person.home.country",
        "person.education",
        "visit.diagnosis",
        "visit.ts",
        "person.id",
    ],
    avro: r#"{"type":"record","name":"P","fields":[{"name":"person","type":{"type":"record","name":"Q","fields":[
        {"name":"id","type":"long"},{"name":"age","type":"int"},{"name":"sex","type":"string"},
        {"name":"home","type":{"type":"record","name":"H","fields":[{"name":"zip","type":"string"},{"name":"country","type":"string"}]}},
        {"name":"education","type":"string"}]}},
        {"name":"visit","type":{"type":"record","name":"V","fields":[{"name":"diagnosis","type":"string"},{"name":"ts","type":"long"}]}},
        {"name":"name","type":"string"}]}"#,
    proto: r#"syntax = "proto3"; message P { Q person = 1; V visit = 2; string name = 3; }
        message Q { int64 id = 1; int32 age = 2; string sex = 3; H home = 4; string education = 5; }
        message H { string zip = 1; string country = 2; } message V { string diagnosis = 1; int64 ts = 2; }"#,
    record: |i| {
        let flat = (FLAT.record)(i);
        json!({"person": {"id": flat["id"], "age": flat["age"], "sex": flat["sex"],
            "home": {"zip": flat["zip"], "country": flat["country"]}, "education": flat["education"]},
            "visit": {"diagnosis": flat["diagnosis"], "ts": flat["ts"]}, "name": flat["name"]})
    },
};

fn filled(descriptor: &MessageDescriptor, json: &Json) -> DynamicMessage {
    let mut message = DynamicMessage::new(descriptor.clone());
    for (name, value) in json.as_object().unwrap() {
        let field = descriptor.get_field_by_name(name).unwrap();
        let value = match (value, field.kind()) {
            (Json::String(text), _) => Dynamic::String(text.clone()),
            (Json::Number(number), prost_reflect::Kind::Int32) => Dynamic::I32(number.as_i64().unwrap() as i32),
            (Json::Number(number), _) => Dynamic::I64(number.as_i64().unwrap()),
            (inner, kind) => Dynamic::Message(filled(kind.as_message().unwrap(), inner)),
        };
        message.set_field(&field, value);
    }
    message
}

/// The processor time of one record, in nanoseconds.
fn measure(payloads: &[Vec<u8>], mut decode: impl FnMut(&[u8])) -> f64 {
    let mut round = || {
        let started = ProcessTime::now();
        payloads.iter().for_each(|payload| decode(payload));
        started.elapsed().as_nanos() as f64 / RECORDS as f64
    };
    (0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min)
}

/// Flat records of JSON, several in each message.
fn elements() -> f64 {
    let array = Placement { array: Some(Path::of("rows")), ..Placement::default() };
    let fields = FLAT.paths.map(|path| format!("rows.{path}"));
    let schema = Schema::new(fields.iter().map(|path| (path.as_str(), Role::Quasi))).placed(&array);
    let mut reader = RecordReader::json(&schema, LARGEST);
    let message = |first: usize| {
        let rows: Vec<Json> = (first..first + ELEMENTS).map(FLAT.record).collect();
        json!({ "rows": rows }).to_string().into_bytes()
    };
    let payloads: Vec<Vec<u8>> = (0..RECORDS).step_by(ELEMENTS).map(message).collect();
    measure(&payloads, |payload| {
        reader.each(payload, |record, _| _ = std::hint::black_box(record.clone())).expect("good input");
    })
}

fn main() {
    let mut of_json = HashMap::new();
    println!("{:<10} {:<7} {:>10} {:>14} {:>12}", "format", "shape", "ns/record", "of JSON's", "of flat");
    for format in ["json", "avro", "protobuf"] {
        let mut flat = 0.0;
        for shape in [FLAT, NESTED] {
            let roles = [Role::Quasi; 5].into_iter().chain([Role::Sensitive, Role::Insensitive, Role::Subject]);
            let schema = Schema::new(shape.paths.into_iter().zip(roles));
            let avro = parse_schema(shape.avro).unwrap();
            let writer = WriterSchema::parse(SchemaLanguage::Protobuf, shape.proto, &HashMap::new());
            let WriterSchema::Protobuf(message) = writer.unwrap() else { panic!("a message") };
            let payload = |i: usize| {
                let record = (shape.record)(i);
                match format {
                    "json" => record.to_string().into_bytes(),
                    "avro" => {
                        let mut out = Vec::new();
                        write_document(&avro, &record, &mut out).unwrap();
                        out
                    }
                    _ => filled(&message, &record).encode_to_vec(),
                }
            };
            let payloads: Vec<_> = (0..RECORDS).map(payload).collect();
            let mut decoder: Box<dyn Decode> = match format {
                "json" => Box::new(JsonDecoder::new(&schema, LARGEST)),
                "avro" => Box::new(AvroDecoder::new(&schema, &avro, LARGEST).unwrap()),
                _ => Box::new(ProtobufDecoder::new(&schema, &message, LARGEST).unwrap()),
            };
            let took = measure(&payloads, |payload| {
                std::hint::black_box(decoder.decode(payload).expect("good input"));
            });
            if shape.name == "flat" {
                flat = took;
            }
            let json = *of_json.entry(shape.name).or_insert(took);
            println!("{format:<10} {:<7} {took:>10.0} {:>14.2} {:>12.2}", shape.name, took / json, took / flat);
        }
    }
    let took = elements();
    println!("{:<10} {:<7} {took:>10.0} {:>14.2}", "json", "element", took / of_json["flat"]);
}
