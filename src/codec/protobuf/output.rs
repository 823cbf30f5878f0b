//! Published rows as Protobuf: a schema derived from the policy, with the types of the input.
//!
//! A row is the message `veilstream.Published`, the first of its file; paths are messages inside it. Fields are numbered in the order
//! of the output. Labels are strings; sensitive and kept fields are optional, lists are repeated, maps have text as keys, objects whose
//! members are known are messages, whose fields have numbers that follow from their names, and what has no one type is text. So is what
//! Protobuf has no type for: a list or a map directly in another, or one with nulls.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;

use prost_reflect::MessageDescriptor;

use super::file::{compile, message_at};
use super::types::kind_of;
use crate::codec::layout::{RowLayout, RowPart, write_varint};
use crate::codec::message::MessageEncoder;
use crate::codec::schemas::kind::{Kind, RecordNames, ValueKinds, bytes, check_names, elements, entries, members};
use crate::codec::{CodecError, EncodeError};
use crate::model::record::plain_json;
use crate::model::schema::{Path, PathTree, Schema};

/// The Protobuf schema of published rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtobufOutput {
    text: String,
    layout: RowLayout,
    /// The sensitive and kept fields: name, number and type.
    values: Vec<(Arc<str>, u32, Kind)>,
}

impl ProtobufOutput {
    /// The output of `schema` with values of these kinds.
    pub(in crate::codec) fn new(schema: &Schema, values: ValueKinds) -> Result<Self, CodecError> {
        check_names(schema, is_name, CodecError::BadProtobufName)?;
        let labels = schema.quasi.len();
        let values: ValueKinds = values.into_iter().map(|(name, kind)| (name, in_protobuf(kind))).collect();
        let mut output = Text {
            labels,
            values: &values,
            numbers: vec![0; values.len()],
            taken: RecordNames::default(),
            done: Vec::new(),
        };
        let (_, parts) = output.message("Published".to_owned(), &schema.output());
        let Text { numbers, done, .. } = output;
        let text = format!(
            "syntax = \"proto3\";\npackage veilstream;\n\n{}",
            done.into_iter().rev().collect::<Vec<_>>().join("\n")
        );
        // Names that differ in letters only in which Protobuf's JSON does not, for one.
        compile(&text, &HashMap::new()).map_err(|_| CodecError::BadProtobufNames)?;
        let values = values.into_iter().zip(numbers).map(|((name, kind), number)| (name, number, kind)).collect();
        Ok(Self { text, layout: RowLayout::new(parts), values })
    }

    /// The schema as text, for the registry.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The message of the rows.
    pub fn message(&self) -> Result<MessageDescriptor, CodecError> {
        let file = compile(&self.text, &HashMap::new())?;
        message_at(&file, &[0]).ok_or(CodecError::BadProtobufSchema)
    }
}

impl MessageEncoder for ProtobufOutput {
    fn message_labels(&self, quasi: &[&str], out: &mut Vec<u8>) {
        self.layout.labels(quasi, out, |label, out| write_bytes(label.as_bytes(), out));
    }

    fn labelled_message(&mut self, labels: &[u8], values: &[&str], out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let start = out.len();
        let written = self.layout.row(labels, out, |value, out| {
            let (field, number, kind) = &self.values[value];
            let text = values.get(value).copied().unwrap_or("null");
            write_field(kind, *number, text, out).ok_or_else(|| EncodeError::Misfit { field: Arc::clone(field) })
        });
        written.inspect_err(|_| out.truncate(start))
    }
}

/// The schema while it is written: messages, those inside others first.
struct Text<'a> {
    labels: usize,
    values: &'a ValueKinds,
    /// Of the sensitive and kept fields.
    numbers: Vec<u32>,
    /// The names of messages so far.
    taken: RecordNames,
    done: Vec<String>,
}

impl Text<'_> {
    /// Writes a message with these fields; returns its name, and the parts of a row that it is.
    fn message(&mut self, name: String, fields: &PathTree) -> (String, Vec<RowPart>) {
        let unique = self.taken.unique(name);
        let (mut text, mut parts) = (format!("message {unique} {{\n"), Vec::new());
        for (number, (name, of)) in (1u32..).zip(fields.members()) {
            let declared = match of {
                PathTree::Leaf(leaf) if *leaf < self.labels => {
                    parts.extend([RowPart::Fixed(tag(number, LENGTH)), RowPart::Label(*leaf)]);
                    "string".to_owned()
                }
                PathTree::Leaf(leaf) => {
                    let value = leaf - self.labels;
                    self.numbers[value] = number;
                    parts.push(RowPart::Value(value));
                    self.declared(&self.values[value].1, &format!("{unique}_{name}"))
                }
                PathTree::Object(_) => {
                    let (inner, inside) = self.message(format!("{unique}_{name}"), of);
                    parts.extend([RowPart::Fixed(tag(number, LENGTH)), RowPart::Measured(inside)]);
                    inner
                }
            };
            let _ = writeln!(text, "  {declared} {name} = {number};");
        }
        text.push_str("}\n");
        self.done.push(text);
        (unique, parts)
    }

    /// The declaration of a value, without its name. An object is a message called `name`, which is written first.
    fn declared(&mut self, kind: &Kind, name: &str) -> String {
        match kind {
            Kind::List { of, .. } => format!("repeated {}", self.type_of(of, name)),
            Kind::Map { of, .. } => format!("map<string, {}>", self.type_of(of, name)),
            kind => format!("optional {}", self.type_of(kind, name)),
        }
    }

    fn type_of(&mut self, kind: &Kind, name: &str) -> String {
        let Kind::Record(members) = kind else { return type_name(kind).to_owned() };
        let unique = self.taken.unique(name.to_owned());
        let mut text = format!("message {unique} {{\n");
        for (number, (member, kind)) in member_numbers(members).zip(members) {
            let declared = self.declared(kind, &format!("{unique}_{member}"));
            let _ = writeln!(text, "  {declared} {member} = {number};");
        }
        text.push_str("}\n");
        self.done.push(text);
        unique
    }
}

/// The numbers of the members of an object, which are in the order of the numbers that they want. A number follows from the name, so
/// that a member keeps it while others come and go with the schemas of the input.
fn member_numbers(members: &[(Arc<str>, Kind)]) -> impl Iterator<Item = u32> {
    members.iter().scan(0, |last, (name, _)| {
        *last = wanted_number(name).max(*last + 1);
        Some(*last)
    })
}

/// A number for a name, below those that Protobuf keeps to itself. More numbers make longer tags; fewer make two names meet.
fn wanted_number(name: &str) -> u32 {
    name.bytes().fold(2_166_136_261_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619)) % 15_000 + 1
}

/// The type that stands for this one in Protobuf.
fn in_protobuf(kind: Kind) -> Kind {
    match kind {
        Kind::List { nulls: true, .. } | Kind::Map { nulls: true, .. } => Kind::Nested,
        Kind::List { of, .. } if is_repeated(&of) => Kind::Nested.listed(false),
        Kind::Map { of, .. } if is_repeated(&of) => Kind::Nested.mapped(false),
        Kind::Record(members) => {
            // As in Protobuf's JSON, where names that differ in capitals and underscores may be one.
            let one_name = |name: &str| name.replace('_', "").to_ascii_lowercase();
            let distinct: HashSet<String> = members.iter().map(|(name, _)| one_name(name)).collect();
            if distinct.len() < members.len() || !members.iter().all(|(name, _)| is_name(name)) {
                return Kind::Nested;
            }
            let mut members = members;
            members.sort_by_cached_key(|(name, _)| (wanted_number(name), Arc::clone(name)));
            Kind::Record(members).inside(&in_protobuf)
        }
        kind => kind.inside(&in_protobuf),
    }
}

fn is_repeated(kind: &Kind) -> bool {
    matches!(kind, Kind::List { .. } | Kind::Map { .. })
}

/// Wire types.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH: u32 = 2;
const FIXED32: u32 = 5;

fn type_name(kind: &Kind) -> &'static str {
    match kind {
        Kind::Boolean => "bool",
        Kind::Int(_) => "int32",
        Kind::Long(_) => "int64",
        Kind::Unsigned => "uint64",
        Kind::Float => "float",
        Kind::Double => "double",
        Kind::Bytes => "bytes",
        _ => "string",
    }
}

fn tag(number: u32, wire: u32) -> Vec<u8> {
    let mut tag = Vec::new();
    write_varint(u64::from(number << 3 | wire), &mut tag);
    tag
}

fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    write_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Appends a field whose value is given as JSON text; nothing if it is null. `None` if it does not fit.
fn write_field(kind: &Kind, number: u32, value: &str, out: &mut Vec<u8>) -> Option<()> {
    if value == "null" {
        return Some(());
    }
    let wire = |kind: &Kind| match kind {
        Kind::Boolean | Kind::Int(_) | Kind::Long(_) | Kind::Unsigned => VARINT,
        Kind::Double => FIXED64,
        Kind::Float => FIXED32,
        _ => LENGTH,
    };
    match kind {
        Kind::List { of, .. } if wire(of) == LENGTH => elements(value)?.iter().try_for_each(|element| {
            out.extend(tag(number, LENGTH));
            write_single(of, element, out)
        }),
        Kind::List { of, .. } => {
            let mut packed = Vec::new();
            elements(value)?.iter().try_for_each(|element| write_single(of, element, &mut packed))?;
            out.extend(tag(number, LENGTH));
            write_bytes(&packed, out);
            Some(())
        }
        Kind::Map { of, .. } => entries(value)?.iter().try_for_each(|(key, value)| {
            let mut entry = tag(1, LENGTH);
            write_bytes(key.as_bytes(), &mut entry);
            entry.extend(tag(2, wire(of)));
            write_single(of, value, &mut entry)?;
            out.extend(tag(number, LENGTH));
            write_bytes(&entry, out);
            Some(())
        }),
        kind => {
            out.extend(tag(number, wire(kind)));
            write_single(kind, value, out)
        }
    }
}

fn write_single(kind: &Kind, value: &str, out: &mut Vec<u8>) -> Option<()> {
    match kind {
        Kind::Boolean => out.push(u8::from(value.parse::<bool>().ok()?)),
        // Negative numbers of 32 bits take ten bytes, too.
        Kind::Int(_) => write_varint(i64::from(value.parse::<i32>().ok()?) as u64, out),
        Kind::Long(_) => write_varint(value.parse::<i64>().ok()? as u64, out),
        Kind::Unsigned => write_varint(value.parse().ok()?, out),
        Kind::Float => out.extend_from_slice(&value.parse::<f32>().ok()?.to_le_bytes()),
        Kind::Double => out.extend_from_slice(&value.parse::<f64>().ok()?.to_le_bytes()),
        Kind::Bytes => {
            let text = value.starts_with('"').then(|| plain_json(value))?;
            write_bytes(&bytes(&text)?, out);
        }
        Kind::Record(names) => {
            let mut message = Vec::new();
            for (number, ((_, kind), text)) in member_numbers(names).zip(names.iter().zip(members(value, names)?)) {
                write_field(kind, number, text, &mut message)?;
            }
            write_bytes(&message, out);
        }
        _ => write_bytes(plain_json(value).as_bytes(), out),
    }
    Some(())
}

fn is_name(name: &str) -> bool {
    name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The type that the field at `path` has in `message`, if it has one.
pub(in crate::codec) fn kind_at(message: &MessageDescriptor, path: &Path) -> Option<Kind> {
    let [outer @ .., last] = path.names() else { return None };
    let inner = outer.iter().try_fold(message.clone(), |message, name| {
        let field = message.get_field_by_name(name)?;
        if field.is_list() || field.is_map() { None } else { field.kind().as_message().cloned() }
    })?;
    inner.get_field_by_name(last).map(|field| kind_of(&field))
}
