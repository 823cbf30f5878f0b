//! A writer schema compiled for reading: types in a table, references resolved, fields matched to slots.

use std::collections::HashMap;
use std::sync::Arc;

use apache_avro::Schema as AvroSchema;
use apache_avro::schema::{InnerDecimalSchema, Name, NamespaceRef, UuidSchema};

use super::datum::Cursor;
use super::types::{Type, TypeId, Unit};
use crate::codec::{CodecError, MAX_LISTED, check_size, malformed};
use crate::model::event::{Reject, RejectCode};
use crate::model::record::{Record, Value};
use crate::model::schema::{Envelope, Path, PathTree, Schema};

/// A writer schema, ready to decode data into records of one [`Schema`].
pub struct Plan {
    types: Vec<Type>,
    root: TypeId,
    steps: Vec<Step>,
    envelope: Envelope,
    /// The array that holds a record in each element.
    array: Option<Path>,
    width: usize,
}

/// The treatment of one value of the writer's record, in the order in which values are written.
enum Step {
    /// A field of the policy. With `iso`, dates and timestamps become ISO text: the slot is looked up in a hierarchy or
    /// decides the window.
    Read { slot: usize, of: TypeId, iso: bool },
    /// Nobody asked for it.
    Skip(TypeId),
    /// A record on the way of some paths.
    Record(Vec<Step>),
    /// A union on the way of some paths: a step per variant.
    Union(Vec<Step>),
    /// A null on the way of some paths: their fields are null.
    Null(Vec<usize>),
    /// Something else on the way of a path, which ends in this slot.
    Blocked(Option<usize>),
}

impl Plan {
    /// Compiles `writer` for the fields of `schema`. Fields that the writer does not have stay missing.
    pub fn new(schema: &Schema, writer: &AvroSchema) -> Result<Self, CodecError> {
        let mut compiler = Compiler { types: Vec::new(), names: HashMap::new() };
        let root = compiler.compile(writer, None)?;
        let types = compiler.types;
        let (envelope, array, width) = (schema.envelope, schema.array.clone(), schema.attributes().len());
        // Of an array's elements nobody knows here which of their values are looked up.
        let iso =
            |slot| schema.quasi.contains(&slot) || schema.event_time == Some(slot) || slot >= width && array.is_some();
        match step(&types, root, &schema.input(), &iso) {
            Step::Record(steps) => Ok(Self { types, root, steps, envelope, array, width }),
            _ => Err(CodecError::NotARecord),
        }
    }

    /// True if the writer's row has a field at `path`.
    pub fn has(&self, path: &Path) -> bool {
        self.find(path) == Ok(true)
    }

    /// The type that `path` leads into, if it leads through anything but records.
    pub(crate) fn blocked(&self, path: &Path) -> Option<&'static str> {
        self.find(path).err()
    }

    /// Whether there is a field at `path` of the row; an error if the way is barred.
    fn find(&self, path: &Path) -> Result<bool, &'static str> {
        match self.array.as_ref().filter(|array| array.contains(path)) {
            None => self.reach(self.root, self.envelope.row_place(path).names()),
            Some(array) => match self.items(self.root, array.names()) {
                Some(items) => self.reach(items, &path.names()[array.names().len()..]),
                None => self.reach(self.root, array.names()).and_then(|there| match there {
                    true => Err("something that is no array"),
                    false => Ok(false),
                }),
            },
        }
    }

    /// The type of the elements of the array at these names of a value of type `of`.
    fn items(&self, of: TypeId, names: &[Arc<str>]) -> Option<TypeId> {
        match (&self.types[of], names) {
            (Type::Array(items), []) => Some(*items),
            (Type::Union(variants), _) => {
                let variants = variants.iter().filter(|v| !matches!(self.types[**v], Type::Union(_)));
                variants.filter_map(|variant| self.items(*variant, names)).next()
            }
            (Type::Record(members), [name, rest @ ..]) => {
                members.iter().find(|(member, _)| *member == **name).and_then(|(_, of)| self.items(*of, rest))
            }
            _ => None,
        }
    }

    /// The places of the values in the writer's row, of a very large one only the first; arrays and maps are one value.
    pub(crate) fn fields(&self) -> Vec<Path> {
        let mut found = Vec::new();
        self.list(self.root, &mut Vec::new(), &mut found, &mut { MAX_LISTED });
        found.into_iter().filter_map(|names| self.envelope.row_path(names)).collect()
    }

    /// Lists the values in a value of type `of`; `outer` are the names around it. A record inside itself is one value, and so is an
    /// array, but for the one that holds records.
    fn list(&self, of: TypeId, outer: &mut Vec<(TypeId, Arc<str>)>, found: &mut Vec<Vec<Arc<str>>>, left: &mut usize) {
        let here = |array: &&Path| array.names().iter().eq(outer.iter().map(|(_, name)| name));
        if let Some(items) = self.array.as_ref().filter(here).and_then(|_| self.items(of, &[])) {
            return self.list(items, outer, found, left);
        }
        let record = |of: TypeId| match &self.types[of] {
            Type::Record(members) => Some((of, members)),
            _ => None,
        };
        let inner = match &self.types[of] {
            Type::Union(variants) => variants.iter().find_map(|variant| record(*variant)),
            _ => record(of),
        };
        match inner.filter(|(of, _)| outer.iter().all(|(outer, _)| outer != of)) {
            Some((of, members)) => {
                for (name, member) in members {
                    if *left == 0 {
                        return;
                    }
                    *left -= 1;
                    outer.push((of, Arc::from(name.as_str())));
                    self.list(*member, outer, found, left);
                    outer.pop();
                }
            }
            None => found.push(outer.iter().map(|(_, name)| Arc::clone(name)).collect()),
        }
    }

    /// Whether there is a field of these names in a value of type `of`; an error if the way is barred.
    fn reach(&self, of: TypeId, names: &[Arc<str>]) -> Result<bool, &'static str> {
        let [name, rest @ ..] = names else { return Ok(true) };
        match &self.types[of] {
            Type::Record(members) => {
                members.iter().find(|(member, _)| *member == **name).map_or(Ok(false), |(_, of)| self.reach(*of, rest))
            }
            Type::Union(variants) => {
                let reached = variants.iter().filter(|v| !matches!(self.types[**v], Type::Union(_)));
                let reached: Vec<_> = reached.map(|variant| self.reach(*variant, names)).collect();
                let barred = reached.iter().find(|reached| reached.is_err()).copied();
                if reached.contains(&Ok(true)) { Ok(true) } else { barred.unwrap_or(Ok(false)) }
            }
            Type::Null => Ok(false),
            Type::Array(_) => Err("an array"),
            Type::Map(_) => Err("a map"),
            _ => Err("a single value"),
        }
    }

    /// Decodes one datum; bytes after it are malformed.
    pub fn decode<'a>(&self, payload: &'a [u8], max_record_bytes: usize) -> Result<Record<'a>, Reject> {
        if self.steps.is_empty() && payload.is_empty() {
            return Ok(Record::new(self.width));
        }
        check_size(payload, max_record_bytes)?;
        let mut cursor = Cursor::new(&self.types, payload);
        let mut record = Record::new(self.envelope.slots(self.width));
        self.steps.iter().try_for_each(|step| take(step, &mut cursor, 1, &mut record))?;
        if cursor.is_at_end() { self.envelope.open(record, self.width) } else { Err(malformed()) }
    }

    /// How many bytes the first datum in `bytes` takes, read no further than needed.
    pub fn measure(&self, bytes: &[u8]) -> Result<usize, RejectCode> {
        let mut cursor = Cursor::measuring(&self.types, bytes);
        cursor.skip(self.root, 0)?;
        Ok(bytes.len() - cursor.remaining())
    }
}

/// The step for a value of type `of` at `fields`. Recurses once per name of a path.
fn step(types: &[Type], of: TypeId, fields: &PathTree, iso: &impl Fn(usize) -> bool) -> Step {
    if let PathTree::Leaf(slot) = fields {
        return Step::Read { slot: *slot, of, iso: iso(*slot) };
    }
    let blocked = || Step::Blocked(fields.leaves().first().copied());
    match &types[of] {
        Type::Record(members) => {
            let member = |(name, of): &(String, TypeId)| match fields.get(name) {
                Some(inner) => step(types, *of, inner, iso),
                None => Step::Skip(*of),
            };
            Step::Record(members.iter().map(member).collect())
        }
        Type::Union(variants) => {
            let variant = |of: &TypeId| match types[*of] {
                // The specification forbids a union directly inside a union.
                Type::Union(_) => blocked(),
                _ => step(types, *of, fields, iso),
            };
            Step::Union(variants.iter().map(variant).collect())
        }
        Type::Null => Step::Null(fields.leaves()),
        _ => blocked(),
    }
}

/// Reads one value, `depth` records deep.
fn take<'a>(step: &Step, cursor: &mut Cursor<'_, 'a>, depth: usize, record: &mut Record<'a>) -> Result<(), Reject> {
    match step {
        Step::Read { slot, of, iso } => {
            record.values[*slot] = cursor.value(*of, *iso).map_err(|code| Reject::field(code, *slot))?;
        }
        Step::Skip(of) => cursor.skip(*of, depth).map_err(Reject::record)?,
        Step::Record(steps) => steps.iter().try_for_each(|step| take(step, cursor, depth + 1, record))?,
        Step::Union(variants) => {
            let variant = cursor.index(variants.len()).map_err(Reject::record)?;
            take(&variants[variant], cursor, depth, record)?;
        }
        Step::Null(slots) => slots.iter().for_each(|slot| record.values[*slot] = Value::Null),
        Step::Blocked(field) => return Err(Reject { code: RejectCode::NotAnObject, field: *field }),
    }
    Ok(())
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
