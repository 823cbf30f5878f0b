//! The types of sensitive and kept fields, between the schemas of the input and that of the output, whatever their formats are.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::codec::CodecError;
use crate::codec::json::each_member;
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
    /// An array.
    List {
        of: Box<Self>,
        /// True if elements may be null.
        nulls: bool,
    },
    /// An object whose members are known; each may be null.
    Record(Vec<(Arc<str>, Self)>),
    /// An object whose keys are values.
    Map {
        of: Box<Self>,
        /// True if values may be null.
        nulls: bool,
    },
    /// An object or an array, as JSON; or text.
    Nested,
}

/// The most fields inside one kept field that are told apart; what lies beyond is JSON text. Larger: a hostile schema, whose records
/// hold records, makes an output schema of any length. Smaller: the inside of honest documents has no types.
const MAX_MEMBERS: usize = 1000;

/// The sensitive and kept fields with their types, in published order.
pub(in crate::codec) type ValueKinds = Vec<(Arc<str>, Kind)>;

impl Kind {
    /// The type that holds the values of both.
    pub(in crate::codec) fn merged(self, other: Self) -> Self {
        let is_text = |kind: &Self| {
            matches!(kind, Self::String | Self::List { .. } | Self::Record(_) | Self::Map { .. } | Self::Nested)
        };
        match (self, other) {
            (a, b) if a == b => a,
            (Self::Int(None), Self::Long(None)) | (Self::Long(None), Self::Int(None)) => Self::Long(None),
            (Self::Float, Self::Double) | (Self::Double, Self::Float) => Self::Double,
            (Self::List { of: a, nulls }, Self::List { of: b, nulls: or }) => a.merged(*b).listed(nulls || or),
            (Self::Map { of: a, nulls }, Self::Map { of: b, nulls: or }) => a.merged(*b).mapped(nulls || or),
            (Self::Record(mut members), Self::Record(others)) => {
                for (name, kind) in others {
                    match members.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, known)) => *known = std::mem::replace(known, Self::Any).merged(kind),
                        None => members.push((name, kind)),
                    }
                }
                Self::Record(members)
            }
            (a, b) if is_text(&a) && is_text(&b) => Self::Nested,
            _ => Self::Any,
        }
    }

    /// An array of these, or of these and nulls.
    pub(in crate::codec) fn listed(self, nulls: bool) -> Self {
        Self::List { of: Box::new(self), nulls }
    }

    /// A map to these, or to these and nulls.
    pub(in crate::codec) fn mapped(self, nulls: bool) -> Self {
        Self::Map { of: Box::new(self), nulls }
    }

    /// An object of these; one without members is nothing that every format knows.
    pub(in crate::codec) fn record(members: Vec<(Arc<str>, Self)>) -> Self {
        if members.is_empty() { Self::Nested } else { Self::Record(members) }
    }

    /// The same with what is inside changed: elements, members and values of maps.
    pub(in crate::codec) fn inside(self, change: &impl Fn(Self) -> Self) -> Self {
        match self {
            Self::List { of, nulls } => change(*of).listed(nulls),
            Self::Map { of, nulls } => change(*of).mapped(nulls),
            Self::Record(members) => {
                Self::Record(members.into_iter().map(|(name, kind)| (name, change(kind))).collect())
            }
            single => single,
        }
    }

    /// True if every output writes this value of this type.
    pub(in crate::codec) fn fits(&self, value: &Value<'_>) -> bool {
        match (self, value) {
            (_, Value::Missing | Value::Null) | (Self::Any, _) => true,
            (Self::Boolean, Value::Bool(_)) | (Self::String, Value::Text(_)) => true,
            (Self::Nested, Value::Nested(_) | Value::Text(_)) => true,
            (Self::Long(_), Value::Number(number)) => number.parse::<i64>().is_ok(),
            (Self::Double, Value::Number(number)) => number.parse::<f64>().is_ok_and(f64::is_finite),
            (Self::List { of, nulls }, Value::Nested(array)) => {
                elements(array).is_some_and(|elements| elements.iter().all(|text| of.fits_or_null(text, *nulls)))
            }
            (Self::Map { of, nulls }, Value::Nested(object)) => {
                entries(object).is_some_and(|entries| entries.iter().all(|(_, text)| of.fits_or_null(text, *nulls)))
            }
            (Self::Record(names), Value::Nested(object)) => {
                let fits = |((_, kind), text): (&(Arc<str>, Self), &str)| kind.fits_or_null(text, true);
                members(object, names).is_some_and(|members| names.iter().zip(members).all(fits))
            }
            _ => false,
        }
    }

    fn fits_or_null(&self, text: &str, nulls: bool) -> bool {
        match (self, text.as_bytes().first()) {
            (_, Some(b'n')) => nulls,
            (Self::Any, Some(_)) => true,
            (_, Some(b'"')) => matches!(self, Self::String | Self::Nested),
            (_, Some(b't' | b'f')) => matches!(self, Self::Boolean),
            (_, Some(b'-' | b'0'..=b'9')) => self.fits(&Value::Number(text.into())),
            (_, Some(b'[' | b'{')) => self.fits(&Value::Nested(text.into())),
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

/// The way to a type inside others, while schemas are read.
pub(in crate::codec) struct Inside<N> {
    /// The records around it by name: one that holds itself is JSON text.
    open: Vec<N>,
    /// How many more members are told apart.
    left: usize,
}

impl<N> Default for Inside<N> {
    fn default() -> Self {
        Self { open: Vec::new(), left: MAX_MEMBERS }
    }
}

impl<N: PartialEq> Inside<N> {
    /// The type of the record `name`, with the names and types that `kind` finds for its members.
    pub(in crate::codec) fn record<M>(
        &mut self,
        name: N,
        members: impl ExactSizeIterator<Item = M>,
        mut kind: impl FnMut(&mut Self, M) -> (Arc<str>, Kind),
    ) -> Kind {
        if members.len() > self.left || self.open.contains(&name) {
            return Kind::Nested;
        }
        self.left -= members.len();
        self.open.push(name);
        let kinds = members.map(|member| kind(self, member)).collect();
        self.open.pop();
        Kind::record(kinds)
    }
}

/// The names of the records of an output so far: each needs one of its own.
#[derive(Default)]
pub(in crate::codec) struct RecordNames(HashSet<String>);

impl RecordNames {
    /// `name`, or the next one that is free.
    pub(in crate::codec) fn unique(&mut self, mut name: String) -> String {
        while !self.0.insert(name.clone()) {
            name.push('_');
        }
        name
    }
}

/// Refuses a published field with a part in its path that is no name in the output's language.
pub(in crate::codec) fn check_names(
    schema: &Schema,
    is_name: fn(&str) -> bool,
    refused: fn(Arc<str>) -> CodecError,
) -> Result<(), CodecError> {
    let names = schema.published().map(|slot| schema.name(slot));
    let bad = names.into_iter().find(|name| !Path::of(name).names().iter().all(|name| is_name(name)));
    bad.map_or(Ok(()), |name| Err(refused(Arc::clone(name))))
}

/// The bytes that a text has one character for each of.
pub(in crate::codec) fn bytes(text: &str) -> Option<Vec<u8>> {
    text.chars().map(|c| u8::try_from(c).ok()).collect()
}

/// The texts of the elements of a JSON array.
pub(in crate::codec) fn elements(array: &str) -> Option<Vec<&str>> {
    let elements: Vec<&RawValue> = serde_json::from_str(array).ok()?;
    Some(elements.into_iter().map(RawValue::get).collect())
}

/// The keys of a JSON object with the texts of their values, in the object's own order.
pub(in crate::codec) fn entries(object: &str) -> Option<Vec<(Cow<'_, str>, &str)>> {
    let mut entries = Vec::new();
    each_member(object, |key, text| {
        entries.push((key, text));
        Ok(())
    })
    .ok()?;
    Some(entries)
}

/// The texts of the members of a JSON object, in the order of `names`; null for those that it does not have. `None` if it has others.
pub(in crate::codec) fn members<'a>(object: &'a str, names: &[(Arc<str>, Kind)]) -> Option<Vec<&'a str>> {
    let mut found: HashMap<String, &RawValue> = serde_json::from_str(object).ok()?;
    let texts = names.iter().map(|(name, _)| found.remove(&**name).map_or("null", RawValue::get)).collect();
    found.is_empty().then_some(texts)
}
