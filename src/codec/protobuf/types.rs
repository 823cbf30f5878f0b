//! The messages of a descriptor as reading needs them: a table in which messages name one another by index, because a message may
//! hold itself.

use std::collections::HashMap;
use std::sync::Arc;

use prost_reflect::{FieldDescriptor, Kind as Declared, MessageDescriptor};

use crate::codec::schemas::kind::{Inside, Kind};

/// An index into the table of messages.
pub(super) type MessageId = usize;

/// One message: its fields by number.
pub(super) struct MessageType {
    pub(super) fields: Vec<MessageField>,
}

/// One field.
pub(super) struct MessageField {
    pub(super) number: u32,
    pub(super) name: Arc<str>,
    pub(super) of: FieldType,
    pub(super) repeated: bool,
    /// True if the field tells whether it was set; the others have their default where they are absent.
    pub(super) presence: bool,
}

/// The type of a field.
#[derive(Clone)]
pub(super) enum FieldType {
    Double,
    Float,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Sint32,
    Sint64,
    Fixed32,
    Fixed64,
    Sfixed32,
    Sfixed64,
    Bool,
    String,
    Bytes,
    /// The names by number.
    Enum(Arc<[(i32, Arc<str>)]>),
    /// `google.protobuf.Timestamp`: ISO text.
    Timestamp,
    /// `google.protobuf.Duration`: seconds and an `s`, as Protobuf's JSON has it.
    Duration,
    /// `google.protobuf.StringValue` and the like: the value in it, or null.
    Wrapper(Box<Self>),
    Message(MessageId),
    /// A map, by the message of its entries.
    Map(MessageId),
}

impl FieldType {
    /// True if a path can lead through a value of this type.
    pub(super) fn message(&self) -> Option<MessageId> {
        if let Self::Message(id) = self { Some(*id) } else { None }
    }

    /// True if it is read as one value without looking at other messages.
    pub(super) fn is_single(&self) -> bool {
        !matches!(self, Self::Message(_) | Self::Map(_))
    }
}

/// Lists `root` and every message that can stand inside it; `root` is the first.
pub(super) fn table(root: &MessageDescriptor) -> Vec<MessageType> {
    let mut ids = HashMap::from([(root.full_name().to_owned(), 0)]);
    let mut open = vec![root.clone()];
    let mut table = Vec::new();
    while let Some(message) = open.get(table.len()).cloned() {
        let mut id_of = |message: MessageDescriptor| {
            let next = ids.len();
            *ids.entry(message.full_name().to_owned()).or_insert_with(|| {
                open.push(message);
                next
            })
        };
        let fields = message.fields().map(|field| MessageField {
            number: field.number(),
            name: field.name().into(),
            of: type_of(&field, &mut id_of),
            repeated: field.is_list() || field.is_map(),
            presence: field.supports_presence(),
        });
        let mut fields: Vec<MessageField> = fields.collect();
        fields.sort_by_key(|field| field.number);
        table.push(MessageType { fields });
    }
    table
}

fn type_of(field: &FieldDescriptor, id_of: &mut impl FnMut(MessageDescriptor) -> MessageId) -> FieldType {
    match field.kind() {
        Declared::Message(message) if field.is_map() => FieldType::Map(id_of(message)),
        Declared::Message(message) => known(&message).unwrap_or_else(|| FieldType::Message(id_of(message))),
        Declared::Double => FieldType::Double,
        Declared::Float => FieldType::Float,
        Declared::Int32 => FieldType::Int32,
        Declared::Int64 => FieldType::Int64,
        Declared::Uint32 => FieldType::Uint32,
        Declared::Uint64 => FieldType::Uint64,
        Declared::Sint32 => FieldType::Sint32,
        Declared::Sint64 => FieldType::Sint64,
        Declared::Fixed32 => FieldType::Fixed32,
        Declared::Fixed64 => FieldType::Fixed64,
        Declared::Sfixed32 => FieldType::Sfixed32,
        Declared::Sfixed64 => FieldType::Sfixed64,
        Declared::Bool => FieldType::Bool,
        Declared::String => FieldType::String,
        Declared::Bytes => FieldType::Bytes,
        Declared::Enum(of) => {
            let mut names: Vec<_> = of.values().map(|value| (value.number(), Arc::from(value.name()))).collect();
            // Of several names for one number the first is meant.
            names.sort_by_key(|(number, _)| *number);
            names.dedup_by_key(|(number, _)| *number);
            FieldType::Enum(names.into())
        }
    }
}

/// Messages of Protobuf's own that stand for one value.
fn known(message: &MessageDescriptor) -> Option<FieldType> {
    let of = match message.full_name().strip_prefix("google.protobuf.")? {
        "Timestamp" => return Some(FieldType::Timestamp),
        "Duration" => return Some(FieldType::Duration),
        "DoubleValue" => FieldType::Double,
        "FloatValue" => FieldType::Float,
        "Int32Value" => FieldType::Int32,
        "Int64Value" => FieldType::Int64,
        "UInt32Value" => FieldType::Uint32,
        "UInt64Value" => FieldType::Uint64,
        "BoolValue" => FieldType::Bool,
        "StringValue" => FieldType::String,
        "BytesValue" => FieldType::Bytes,
        _ => return None,
    };
    Some(FieldType::Wrapper(Box::new(of)))
}

/// The type that a field has in the output.
pub(super) fn kind_of(field: &FieldDescriptor) -> Kind {
    kind(field, &mut Inside::default())
}

fn kind(field: &FieldDescriptor, inside: &mut Inside<MessageDescriptor>) -> Kind {
    // An index is never asked for.
    let of = match (type_of(field, &mut |_| 0), field.kind()) {
        (FieldType::Map(_), Declared::Message(entry)) => {
            return kind(&entry.map_entry_value_field(), inside).mapped(false);
        }
        (FieldType::Message(_), Declared::Message(message)) => {
            let member = |inside: &mut Inside<_>, field: FieldDescriptor| (field.name().into(), kind(&field, inside));
            inside.record(message.clone(), message.fields(), member)
        }
        (of, _) => single(&of),
    };
    if field.is_list() { of.listed(false) } else { of }
}

fn single(of: &FieldType) -> Kind {
    match of {
        FieldType::Double => Kind::Double,
        FieldType::Float => Kind::Float,
        FieldType::Int32 | FieldType::Sint32 | FieldType::Sfixed32 => Kind::Int(None),
        FieldType::Int64 | FieldType::Sint64 | FieldType::Sfixed64 | FieldType::Uint32 | FieldType::Fixed32 => {
            Kind::Long(None)
        }
        FieldType::Uint64 | FieldType::Fixed64 => Kind::Unsigned,
        FieldType::Bool => Kind::Boolean,
        FieldType::String | FieldType::Enum(_) | FieldType::Timestamp | FieldType::Duration => Kind::String,
        FieldType::Bytes => Kind::Bytes,
        FieldType::Wrapper(inner) => single(inner),
        FieldType::Message(_) | FieldType::Map(_) => Kind::Nested,
    }
}
