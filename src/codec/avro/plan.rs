//! A writer schema compiled for reading: types in a table, references resolved, fields matched to slots.

use std::collections::HashMap;

use apache_avro::Schema as AvroSchema;
use apache_avro::schema::{InnerDecimalSchema, Name, NamespaceRef, UuidSchema};

use super::datum::Cursor;
use super::types::{Type, TypeId, Unit};
use crate::codec::{CodecError, check_size, malformed};
use crate::model::event::{Reject, RejectCode};
use crate::model::record::Record;
use crate::model::schema::Schema;

/// A writer schema, ready to decode data into records of one [`Schema`].
pub struct Plan {
    types: Vec<Type>,
    fields: Vec<PlannedField>,
    width: usize,
}

/// A field of the writer's record, in the order it is written.
struct PlannedField {
    name: String,
    of: TypeId,
    slot: Option<usize>,
    /// Dates and timestamps become ISO text: the slot is looked up in a hierarchy or decides the window.
    iso: bool,
}

impl Plan {
    /// Compiles `writer` for the fields of `schema`. Fields that the writer does not have stay missing.
    pub fn new(schema: &Schema, writer: &AvroSchema) -> Result<Self, CodecError> {
        let AvroSchema::Record(root) = writer else { return Err(CodecError::NotARecord) };
        let mut compiler = Compiler { types: Vec::new(), names: HashMap::new() };
        let id = compiler.compile(writer, None)?;
        let Type::Record(members) = &compiler.types[id] else { return Err(CodecError::NotARecord) };
        let fields = root
            .fields
            .iter()
            .zip(members)
            .map(|(field, (_, of))| {
                let slot = schema.slot(&field.name);
                let iso = slot.is_some_and(|s| schema.quasi.contains(&s) || schema.event_time == Some(s));
                PlannedField { name: field.name.clone(), of: *of, slot, iso }
            })
            .collect();
        Ok(Self { types: compiler.types, fields, width: schema.attributes().len() })
    }

    /// True if the writer's record has a field called `name`.
    pub fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|field| field.name == name)
    }

    /// Decodes one datum; bytes after it are malformed.
    pub fn decode<'a>(&self, payload: &'a [u8], max_record_bytes: usize) -> Result<Record<'a>, Reject> {
        if self.fields.is_empty() && payload.is_empty() {
            return Ok(Record::new(self.width));
        }
        check_size(payload, max_record_bytes)?;
        let mut cursor = Cursor::new(&self.types, payload);
        let mut record = Record::new(self.width);
        for field in &self.fields {
            match field.slot {
                Some(slot) => {
                    record.values[slot] = cursor.value(field.of, field.iso).map_err(|c| Reject::field(c, slot))?;
                }
                None => cursor.skip(field.of, 1).map_err(Reject::record)?,
            }
        }
        if cursor.is_at_end() { Ok(record) } else { Err(malformed()) }
    }

    /// How many bytes the first datum in `bytes` takes, read no further than needed.
    pub fn measure(&self, bytes: &[u8]) -> Result<usize, RejectCode> {
        let mut cursor = Cursor::measuring(&self.types, bytes);
        self.fields.iter().try_for_each(|field| cursor.skip(field.of, 1))?;
        Ok(bytes.len() - cursor.remaining())
    }
}

struct Compiler {
    types: Vec<Type>,
    names: HashMap<Name, TypeId>,
}

impl Compiler {
    fn compile(&mut self, schema: &AvroSchema, namespace: NamespaceRef<'_>) -> Result<TypeId, CodecError> {
        if let AvroSchema::Ref { name } = schema {
            let name = name.fully_qualified_name(namespace);
            return self.names.get(&*name).copied().ok_or(CodecError::BadAvroSchema);
        }
        let id = self.types.len();
        self.types.push(Type::Pending);
        let full_name = schema.name().map(|name| name.fully_qualified_name(namespace).into_owned());
        if let Some(name) = &full_name {
            // Before the members are compiled: they may refer to it.
            self.names.insert(name.clone(), id);
        }
        let inner = full_name.as_ref().map_or(namespace, Name::namespace);
        self.types[id] = match schema {
            AvroSchema::Ref { .. } => return Err(CodecError::BadAvroSchema),
            AvroSchema::Null => Type::Null,
            AvroSchema::Boolean => Type::Boolean,
            AvroSchema::Int | AvroSchema::TimeMillis => Type::Int,
            AvroSchema::Long | AvroSchema::TimeMicros => Type::Long,
            AvroSchema::Float => Type::Float,
            AvroSchema::Double => Type::Double,
            AvroSchema::Bytes => Type::Bytes,
            AvroSchema::String => Type::String,
            AvroSchema::Date => Type::Date,
            AvroSchema::TimestampMillis => Type::Timestamp { unit: Unit::Millis, local: false },
            AvroSchema::TimestampMicros => Type::Timestamp { unit: Unit::Micros, local: false },
            AvroSchema::TimestampNanos => Type::Timestamp { unit: Unit::Nanos, local: false },
            AvroSchema::LocalTimestampMillis => Type::Timestamp { unit: Unit::Millis, local: true },
            AvroSchema::LocalTimestampMicros => Type::Timestamp { unit: Unit::Micros, local: true },
            AvroSchema::LocalTimestampNanos => Type::Timestamp { unit: Unit::Nanos, local: true },
            AvroSchema::Decimal(decimal) => Type::Decimal {
                size: match &decimal.inner {
                    InnerDecimalSchema::Bytes => None,
                    InnerDecimalSchema::Fixed(fixed) => Some(fixed.size),
                },
                scale: decimal.scale,
            },
            AvroSchema::BigDecimal => Type::BigDecimal,
            AvroSchema::Uuid(UuidSchema::String) => Type::String,
            AvroSchema::Uuid(UuidSchema::Bytes) => Type::Uuid { size: None },
            AvroSchema::Uuid(UuidSchema::Fixed(fixed)) => Type::Uuid { size: Some(fixed.size) },
            AvroSchema::Fixed(fixed) => Type::Fixed(fixed.size),
            AvroSchema::Duration(_) => Type::Duration,
            AvroSchema::Enum(schema) => Type::Enum(schema.symbols.clone()),
            AvroSchema::Array(array) => Type::Array(self.compile(&array.items, inner)?),
            AvroSchema::Map(map) => Type::Map(self.compile(&map.types, inner)?),
            AvroSchema::Union(union) => {
                let variants: Result<_, _> = union.variants().iter().map(|v| self.compile(v, inner)).collect();
                Type::Union(variants?)
            }
            AvroSchema::Record(record) => {
                let member = |field: &apache_avro::schema::RecordField| {
                    self.compile(&field.schema, inner).map(|of| (field.name.clone(), of))
                };
                Type::Record(record.fields.iter().map(member).collect::<Result<_, _>>()?)
            }
        };
        Ok(id)
    }
}
