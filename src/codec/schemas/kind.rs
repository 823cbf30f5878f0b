//! The types of sensitive and kept fields, between the schemas of the input and that of the output, whatever their formats are.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::model::record::Value;
use crate::model::schema::{Path, Schema};

/// The type of a sensitive or kept field, beside null.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::codec) enum Kind {
    /// Not known, or several.
    Any,
    Boolean,
    /// A number of 32 bits, with its logical type in Avro.
    Int(Option<&'static str>),
    /// A number of 64 bits, with its logical type in Avro.
    Long(Option<&'static str>),
    /// A number of 64 bits without a sign.
    Unsigned,
    Float,
    Double,
    /// Text with one character per byte.
    Bytes,
    String,
    Decimal {
        precision: usize,
        scale: usize,
    },
    /// An array of single values.
    List(Box<Self>),
    /// An object or an array, as JSON; or text.
    Nested,
}

/// The sensitive and kept fields with their types, in published order.
pub(in crate::codec) type ValueKinds = Vec<(Arc<str>, Kind)>;

impl Kind {
    /// The type that holds the values of both.
    pub(in crate::codec) fn merged(self, other: Self) -> Self {
        let is_text = |kind: &Self| matches!(kind, Self::String | Self::List(_) | Self::Nested);
        match (self, other) {
            (a, b) if a == b => a,
            (Self::Int(None), Self::Long(None)) | (Self::Long(None), Self::Int(None)) => Self::Long(None),
            (Self::Float, Self::Double) | (Self::Double, Self::Float) => Self::Double,
            (a, b) if is_text(&a) && is_text(&b) => Self::Nested,
            _ => Self::Any,
        }
    }

    /// An array of these.
    pub(in crate::codec) fn listed(self) -> Self {
        match self {
            Self::Any | Self::List(_) | Self::Nested => Self::Nested,
            single => Self::List(Box::new(single)),
        }
    }

    /// True if every output writes this value of this type.
    pub(in crate::codec) fn fits(&self, value: &Value<'_>) -> bool {
        match (self, value) {
            (_, Value::Missing | Value::Null) | (Self::Any | Self::Nested, _) => true,
            (Self::Boolean, Value::Bool(_)) | (Self::String, Value::Text(_)) => true,
            (Self::Long(_), Value::Number(number)) => number.parse::<i64>().is_ok(),
            (Self::Double, Value::Number(number)) => number.parse::<f64>().is_ok_and(f64::is_finite),
            (Self::List(kind), Value::Nested(array)) => {
                elements(array).is_some_and(|elements| elements.iter().all(|text| kind.fits_json(text)))
            }
            _ => false,
        }
    }

    fn fits_json(&self, text: &str) -> bool {
        match text.as_bytes().first() {
            Some(b'"') => matches!(self, Self::String),
            Some(b't' | b'f') => matches!(self, Self::Boolean),
            Some(b'-' | b'0'..=b'9') => self.fits(&Value::Number(text.into())),
            _ => false,
        }
    }
}

/// The sensitive and kept fields of `schema` with the types that `kinds_at` finds for them in the input.
pub(in crate::codec) fn value_kinds(schema: &Schema, kinds_at: impl Fn(&Path) -> Vec<Kind>) -> ValueKinds {
    let mut values = Vec::new();
    for slot in schema.published().skip(schema.quasi.len()) {
        let attribute = &schema.attributes()[slot];
        let path = schema.envelope.row_place(&attribute.path);
        let kinds = [&path].into_iter().chain(&attribute.elsewhere).flat_map(&kinds_at);
        values.push((Arc::clone(schema.name(slot)), kinds.reduce(Kind::merged).unwrap_or(Kind::Any)));
    }
    values
}

/// The texts of the elements of a JSON array.
pub(in crate::codec) fn elements(array: &str) -> Option<Vec<&str>> {
    let elements: Vec<&RawValue> = serde_json::from_str(array).ok()?;
    Some(elements.into_iter().map(RawValue::get).collect())
}
