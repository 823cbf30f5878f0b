//! The columns of a Parquet file as types of Avro, and their values as Avro data.
//!
//! Structs are records, standard lists are arrays, maps with text or whole numbers as keys are maps. Columns of other types (intervals, lists in
//! the forms from before the standard) are left out: the policy then says that the input has no such field.

use std::collections::{BTreeMap, HashSet};

use apache_avro::Schema as AvroSchema;
use apache_avro::schema::{
    ArraySchema, DecimalSchema, InnerDecimalSchema, MapSchema, Name, RecordField, RecordSchema, UnionSchema,
};
use parquet::basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::record::Field;
use parquet::schema::types::{Type, TypePtr};

use super::ParquetFileError;
use crate::codec::MAX_DEPTH;
use crate::codec::avro::container::{write_block, write_bytes, write_long};
use crate::codec::avro::uuid;

/// Digits that hold every unsigned 64-bit number: Avro's long does not.
const UNSIGNED_DIGITS: usize = 20;

/// One column, or one member of a struct.
pub(super) struct ParquetColumn {
    pub(super) name: String,
    nullable: bool,
    shape: Shape,
}

enum Shape {
    Leaf(AvroSchema),
    Struct(Vec<ParquetColumn>),
    List(Box<ParquetColumn>),
    Map(Box<ParquetColumn>),
}

impl ParquetColumn {
    /// The column of a type; `None` if it is of a kind that is not read.
    pub(super) fn of(field: &TypePtr, depth: usize) -> Option<Self> {
        let repetition = field.get_basic_info().repetition();
        if repetition == Repetition::REPEATED || depth >= MAX_DEPTH / 4 {
            return None;
        }
        let shape = match field.get_basic_info().converted_type() {
            _ if field.is_primitive() => Shape::Leaf(leaf(field)?),
            ConvertedType::LIST => Shape::List(Box::new(Self::of(element(field)?, depth + 1)?)),
            ConvertedType::MAP | ConvertedType::MAP_KEY_VALUE => {
                let [pair] = field.get_fields() else { return None };
                let [key, value] = members(pair)? else { return None };
                let key = Self::of(key, depth + 1)?.shape;
                let plain = matches!(key, Shape::Leaf(AvroSchema::String | AvroSchema::Int | AvroSchema::Long));
                Shape::Map(Box::new(Self::of(value, depth + 1).filter(|_| plain)?))
            }
            ConvertedType::NONE => {
                let members: Option<Vec<_>> = field.get_fields().iter().map(|f| Self::of(f, depth + 1)).collect();
                Shape::Struct(members?)
            }
            _ => return None,
        };
        Some(Self { name: field.name().to_owned(), nullable: repetition == Repetition::OPTIONAL, shape })
    }

    /// The Avro type of the column. `names` counts the records, which need a name of their own each.
    fn avro(&self, names: &mut usize) -> Result<AvroSchema, ParquetFileError> {
        let schema = match &self.shape {
            Shape::Leaf(leaf) => leaf.clone(),
            Shape::Struct(members) => record(members, names)?,
            Shape::List(element) => {
                AvroSchema::Array(ArraySchema { items: Box::new(element.avro(names)?), attributes: BTreeMap::new() })
            }
            Shape::Map(value) => {
                AvroSchema::Map(MapSchema { types: Box::new(value.avro(names)?), attributes: BTreeMap::new() })
            }
        };
        if !self.nullable {
            return Ok(schema);
        }
        UnionSchema::new(vec![AvroSchema::Null, schema]).map(AvroSchema::Union).map_err(|_| ParquetFileError::Corrupt)
    }

    /// Appends a value as Avro; `None` if it is not of this column's type.
    pub(super) fn write(&self, value: &Field, out: &mut Vec<u8>) -> Option<()> {
        match (self.nullable, matches!(value, Field::Null)) {
            (true, true) => {
                write_long(0, out);
                return Some(());
            }
            (true, false) => write_long(1, out),
            (false, null) => (!null).then_some(())?,
        }
        match (&self.shape, value) {
            (Shape::Leaf(leaf), value) => write_leaf(leaf, value, out),
            (Shape::Struct(members), Field::Group(row)) => {
                let mut values = row.get_column_iter().map(|(_, value)| value);
                members.iter().try_for_each(|member| member.write(values.next()?, out))
            }
            (Shape::List(element), Field::ListInternal(list)) => {
                write_block(list.elements(), out, |value, out| element.write(value, out))
            }
            (Shape::Map(of), Field::MapInternal(map)) => write_block(map.entries(), out, |(key, value), out| {
                match key {
                    Field::Str(key) => write_bytes(key.as_bytes(), out),
                    Field::Null | Field::Bytes(_) => return None,
                    number => write_bytes(number.to_string().as_bytes(), out),
                }
                of.write(value, out)
            }),
            _ => None,
        }
    }
}

/// The record of these columns, with their names as they are: they need not be names of Avro.
pub(super) fn record(columns: &[ParquetColumn], names: &mut usize) -> Result<AvroSchema, ParquetFileError> {
    let mut seen = HashSet::new();
    if !columns.iter().all(|column| seen.insert(column.name.as_str())) {
        return Err(ParquetFileError::Ambiguous);
    }
    *names += 1;
    let name = Name::new(format!("Group{names}")).map_err(|_| ParquetFileError::Corrupt)?;
    let field = |column: &ParquetColumn| {
        Ok(RecordField::builder().name(column.name.clone()).schema(column.avro(names)?).build())
    };
    let fields = columns.iter().map(field).collect::<Result<Vec<_>, ParquetFileError>>()?;
    Ok(AvroSchema::Record(RecordSchema::builder().name(name).fields(fields).build()))
}

/// The members of a repeated group.
fn members(group: &Type) -> Option<&[TypePtr]> {
    let repeated = group.is_group() && group.get_basic_info().repetition() == Repetition::REPEATED;
    repeated.then(|| group.get_fields())
}

/// The element of a list in its standard form: a repeated group of one member, not named as older writers named their elements.
fn element(list: &Type) -> Option<&TypePtr> {
    let [repeated] = list.get_fields() else { return None };
    let [element] = members(repeated)? else { return None };
    let old = repeated.name() == "array" || repeated.name() == format!("{}_tuple", list.name());
    (!old && element.get_basic_info().repetition() != Repetition::REPEATED).then_some(element)
}

/// The Avro type of a primitive, as the library will convert its values.
fn leaf(field: &Type) -> Option<AvroSchema> {
    let info = field.get_basic_info();
    let logical = info.logical_type_ref();
    let decimal = |precision: i32, scale: i32| {
        let (precision, scale) = (usize::try_from(precision).ok()?, usize::try_from(scale).ok()?);
        let fits = precision > 0 && scale <= precision;
        fits.then_some(AvroSchema::Decimal(DecimalSchema { precision, scale, inner: InnerDecimalSchema::Bytes }))
    };
    if info.converted_type() == ConvertedType::DECIMAL {
        return decimal(field.get_precision(), field.get_scale());
    }
    Some(match (field.get_physical_type(), info.converted_type(), logical) {
        (Physical::BOOLEAN, ..) => AvroSchema::Boolean,
        (Physical::INT96, ..) => AvroSchema::TimestampMillis,
        (Physical::FLOAT, ..) => AvroSchema::Float,
        (Physical::DOUBLE, ..) => AvroSchema::Double,
        (Physical::INT32, ConvertedType::DATE, _) => AvroSchema::Date,
        (Physical::INT32, ConvertedType::TIME_MILLIS, _) => AvroSchema::TimeMillis,
        (Physical::INT32, ConvertedType::UINT_32, _) => AvroSchema::Long,
        (
            Physical::INT32,
            ConvertedType::NONE
            | ConvertedType::INT_8
            | ConvertedType::INT_16
            | ConvertedType::INT_32
            | ConvertedType::UINT_8
            | ConvertedType::UINT_16,
            _,
        ) => AvroSchema::Int,
        (Physical::INT64, ConvertedType::UINT_64, _) => return decimal(UNSIGNED_DIGITS as i32, 0),
        (Physical::INT64, ConvertedType::TIME_MICROS, _) => AvroSchema::TimeMicros,
        (Physical::INT64, _, Some(LogicalType::Timestamp(time))) => timestamp(time.unit, !time.is_adjusted_to_u_t_c),
        (Physical::INT64, ConvertedType::TIMESTAMP_MILLIS, _) => AvroSchema::TimestampMillis,
        (Physical::INT64, ConvertedType::TIMESTAMP_MICROS, _) => AvroSchema::TimestampMicros,
        (Physical::INT64, ConvertedType::NONE | ConvertedType::INT_64, _) => AvroSchema::Long,
        (Physical::BYTE_ARRAY, ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON, _) => {
            AvroSchema::String
        }
        (Physical::BYTE_ARRAY, ConvertedType::NONE | ConvertedType::BSON, _) => AvroSchema::Bytes,
        (Physical::FIXED_LEN_BYTE_ARRAY, ConvertedType::NONE, Some(LogicalType::Float16)) => AvroSchema::Float,
        // Written as text below.
        (Physical::FIXED_LEN_BYTE_ARRAY, ConvertedType::NONE, Some(LogicalType::Uuid)) => AvroSchema::String,
        (Physical::FIXED_LEN_BYTE_ARRAY, ConvertedType::NONE, _) => AvroSchema::Bytes,
        _ => return None,
    })
}

fn timestamp(unit: TimeUnit, local: bool) -> AvroSchema {
    match (unit, local) {
        (TimeUnit::MILLIS, false) => AvroSchema::TimestampMillis,
        (TimeUnit::MILLIS, true) => AvroSchema::LocalTimestampMillis,
        (TimeUnit::MICROS, false) => AvroSchema::TimestampMicros,
        (TimeUnit::MICROS, true) => AvroSchema::LocalTimestampMicros,
        (TimeUnit::NANOS, false) => AvroSchema::TimestampNanos,
        (TimeUnit::NANOS, true) => AvroSchema::LocalTimestampNanos,
    }
}

fn write_leaf(leaf: &AvroSchema, value: &Field, out: &mut Vec<u8>) -> Option<()> {
    match value {
        Field::Bool(value) => out.push(u8::from(*value)),
        Field::Byte(value) => write_long(i64::from(*value), out),
        Field::Short(value) => write_long(i64::from(*value), out),
        Field::Int(value) | Field::Date(value) | Field::TimeMillis(value) => write_long(i64::from(*value), out),
        Field::UByte(value) => write_long(i64::from(*value), out),
        Field::UShort(value) => write_long(i64::from(*value), out),
        Field::UInt(value) => write_long(i64::from(*value), out),
        Field::Long(value)
        | Field::TimeMicros(value)
        | Field::TimestampMillis(value)
        | Field::TimestampMicros(value) => write_long(*value, out),
        Field::ULong(value) => {
            let mut unscaled = [0; 9];
            unscaled[1..].copy_from_slice(&value.to_be_bytes());
            write_bytes(&unscaled, out);
        }
        Field::Float16(value) => out.extend_from_slice(&value.to_f32().to_le_bytes()),
        Field::Float(value) => out.extend_from_slice(&value.to_le_bytes()),
        Field::Double(value) => out.extend_from_slice(&value.to_le_bytes()),
        Field::Decimal(value) => write_bytes(value.data(), out),
        Field::Str(value) => write_bytes(value.as_bytes(), out),
        Field::Bytes(value) if matches!(leaf, AvroSchema::String) => write_bytes(uuid(value.data())?.as_bytes(), out),
        Field::Bytes(value) => write_bytes(value.data(), out),
        Field::Null | Field::Group(_) | Field::ListInternal(_) | Field::MapInternal(_) => return None,
    }
    Some(())
}
