//! The type of a published field in the schema of a Parquet file: lists and maps as the groups that readers expect, logical types of Avro as
//! those of Parquet.

use std::sync::Arc;

use parquet::basic::{ConvertedType, LogicalType, Repetition, TimeUnit, Type as Physical};
use parquet::errors::Result as ParquetResult;
use parquet::schema::types::Type;

use crate::codec::schemas::kind::Kind;

/// A field that may be null, in the file's schema.
pub(super) fn field_type(name: &str, kind: &Kind) -> ParquetResult<Type> {
    let group = Type::group_type_builder(name).with_repetition(Repetition::OPTIONAL);
    let repeated = |name: &str, fields: Vec<Type>| {
        let fields = fields.into_iter().map(Arc::new).collect();
        let built = Type::group_type_builder(name).with_repetition(Repetition::REPEATED).with_fields(fields).build();
        built.map(|repeated| vec![Arc::new(repeated)])
    };
    match kind {
        Kind::List { of, .. } => group
            .with_logical_type(Some(LogicalType::List))
            .with_converted_type(ConvertedType::LIST)
            .with_fields(repeated("list", vec![field_type("element", of)?])?)
            .build(),
        Kind::Map { of, .. } => {
            let key = leaf_type("key", &Kind::String, Repetition::REQUIRED)?;
            group
                .with_logical_type(Some(LogicalType::Map))
                .with_converted_type(ConvertedType::MAP)
                .with_fields(repeated("key_value", vec![key, field_type("value", of)?])?)
                .build()
        }
        Kind::Record(members) => {
            let member = |(name, kind): &(Arc<str>, Kind)| field_type(name, kind).map(Arc::new);
            group.with_fields(members.iter().map(member).collect::<ParquetResult<_>>()?).build()
        }
        kind => leaf_type(name, kind, Repetition::OPTIONAL),
    }
}

/// A column in the file's schema.
pub(super) fn leaf_type(name: &str, kind: &Kind, repetition: Repetition) -> ParquetResult<Type> {
    let physical = match kind {
        Kind::Boolean => Physical::BOOLEAN,
        Kind::Int(_) => Physical::INT32,
        Kind::Long(_) => Physical::INT64,
        Kind::Float => Physical::FLOAT,
        Kind::Double => Physical::DOUBLE,
        _ => Physical::BYTE_ARRAY,
    };
    let logical = match kind {
        Kind::Any | Kind::String => Some(LogicalType::String),
        Kind::Int(Some("date")) => Some(LogicalType::Date),
        Kind::Int(Some(_)) => Some(LogicalType::time(false, TimeUnit::MILLIS)),
        Kind::Long(Some("time-micros")) => Some(LogicalType::time(false, TimeUnit::MICROS)),
        Kind::Long(Some(name)) => {
            let unit = match *name {
                _ if name.ends_with("millis") => TimeUnit::MILLIS,
                _ if name.ends_with("micros") => TimeUnit::MICROS,
                _ => TimeUnit::NANOS,
            };
            Some(LogicalType::timestamp(!name.starts_with("local"), unit))
        }
        Kind::Decimal { precision, scale } => Some(LogicalType::decimal(*scale as i32, *precision as i32)),
        _ => None,
    };
    let mut column =
        Type::primitive_type_builder(name, physical).with_repetition(repetition).with_logical_type(logical);
    if let Kind::Decimal { precision, scale } = kind {
        column = column.with_precision(*precision as i32).with_scale(*scale as i32);
    }
    column.build()
}
