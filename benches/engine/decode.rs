//! What it costs to decode a nested record, against a flat one with the same fields and bytes, and a record that is an element of an
//! array. The cases take turns, so that other work on the machine is spread over all of them.

use std::hint::black_box;
use std::time::Duration;

use veilstream::codec::avro::{AvroDecoder, parse_schema};
use veilstream::codec::json::JsonDecoder;
use veilstream::codec::{DEFAULT_MAX_RECORD_BYTES, Decode, RecordReader};
use veilstream::model::schema::{Path, Placement, Role, Schema};

use super::timed;

/// Turns of each case. More find a quieter moment; fewer are over sooner.
const TURNS: usize = 400;
/// Payloads decoded in one turn. More: each turn is interrupted more often. Fewer: the clock is too coarse.
const PAYLOADS: usize = 200;
/// The elements of the array.
const ELEMENTS: usize = 4;

const FLAT: &str = r#"{"number":"1234567890","zip":"10115","street":"Chausseestr.","age":37,"name":"Ada Lovelace","job":"cook","note":"nothing to say here"}"#;
const NESTED: &str = r#"{"order":"123456","home":{"zip":"10115","street":"Chauss."},"who":{"age":37,"name":"Ada L."},"job":"cook","note":"nothing to say"}"#;
const FIELDS: [[&str; 3]; 2] = [["zip", "age", "job"], ["home.zip", "who.age", "job"]];

fn schema(fields: [&'static str; 3]) -> Schema {
    Schema::new(fields.map(|field| (field, Role::Quasi)))
}

/// Both schemas write the same bytes.
fn avro(fields: [&'static str; 3]) -> (AvroDecoder, Vec<u8>) {
    let field = |name: &str, of: &str| format!(r#"{{"name":"{name}","type":{of}}}"#);
    let (text, int) = (r#""string""#, r#""int""#);
    let [home, who] = [[("zip", text), ("street", text)], [("age", int), ("name", text)]]
        .map(|members| members.map(|(name, of)| field(name, of)).join(","));
    let record = |name: &str, members: &str| {
        field(&name.to_lowercase(), &format!(r#"{{"type":"record","name":"{name}","fields":[{members}]}}"#))
    };
    let [home, who] = if fields[0].contains('.') { [record("Home", &home), record("Who", &who)] } else { [home, who] };
    let members = [field("order", text), home, who, field("job", text), field("note", text)].join(",");
    let writer = parse_schema(&format!(r#"{{"type":"record","name":"P","fields":[{members}]}}"#)).expect("a schema");
    let text = |text: &str| [&[(text.len() * 2) as u8][..], text.as_bytes()].concat();
    let [order, zip, street, name] = ["123456", "10115", "Chausseestr.", "Ada Lovelace"].map(text);
    let datum = [order, zip, street, vec![37 * 2], name, text("cook"), text("nothing to say here")].concat();
    (AvroDecoder::new(&schema(fields), &writer, DEFAULT_MAX_RECORD_BYTES).expect("fits"), datum)
}

/// Prints nanoseconds per record and their ratios.
pub(crate) fn run() {
    let mut cases: Vec<(&str, Box<dyn Decode>, Vec<u8>)> = Vec::new();
    for (name, fields, text) in [("json flat", FIELDS[0], FLAT), ("json nested", FIELDS[1], NESTED)] {
        cases.push((name, Box::new(JsonDecoder::new(&schema(fields), DEFAULT_MAX_RECORD_BYTES)), text.into()));
    }
    for (name, fields) in [("avro flat", FIELDS[0]), ("avro nested", FIELDS[1])] {
        let (decoder, datum) = avro(fields);
        cases.push((name, Box::new(decoder), datum));
    }
    let placement = Placement { array: Some(Path::of("rows")), ..Placement::default() };
    let placed = schema(["rows.zip", "rows.age", "rows.job"]).placed(&placement);
    let mut elements = RecordReader::json(&placed, DEFAULT_MAX_RECORD_BYTES);
    let array = format!(r#"{{"rows":[{}]}}"#, [FLAT; ELEMENTS].join(",")).into_bytes();
    let mut least = vec![Duration::MAX; cases.len() + 1];
    for _ in 0..TURNS {
        for ((_, decoder, payload), least) in cases.iter_mut().zip(&mut least) {
            let decode = || (0..PAYLOADS).for_each(|_| drop(black_box(decoder.decode(payload).expect("good input"))));
            *least = timed(decode).0.min(*least);
        }
        let decode = || {
            for _ in 0..PAYLOADS / ELEMENTS {
                elements.each(&array, |record, _| drop(black_box(record.clone()))).expect("good input");
            }
        };
        least[cases.len()] = timed(decode).0.min(least[cases.len()]);
    }
    let nanos: Vec<f64> = least.iter().map(|least| least.as_nanos() as f64 / PAYLOADS as f64).collect();
    for ((name, _, payload), nanos) in cases.iter().zip(&nanos) {
        println!("decode {name:<12} {nanos:>6.0} ns, {} bytes", payload.len());
    }
    println!("decode json element {:>5.0} ns, {} bytes with its share of the array", nanos[4], array.len() / ELEMENTS);
    println!(
        "nested against flat: json {:.2}, avro {:.2}; avro against json, nested: {:.2}",
        nanos[1] / nanos[0],
        nanos[3] / nanos[2],
        nanos[3] / nanos[1]
    );
}
