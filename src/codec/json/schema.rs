//! JSON Schema: the types that an input's schema gives to the fields of a policy, and the schema of published rows.
//!
//! A schema is read only as far as that needs: `type`, `properties`, `items`, `enum`, `const`, references, and the branches of
//! `allOf`, `anyOf` and `oneOf`. Whatever else it says holds for the input and is not checked.

use std::collections::HashMap;

use serde_json::{Map, Value as Json, json};

use crate::codec::schemas::kind::{Kind, ValueKinds, value_kinds};
use crate::model::event::{Reject, RejectCode};
use crate::model::record::Record;
use crate::model::schema::{Path, PathTree, Schema};

/// The most parts of a schema that are looked at for one field. Larger: a hostile schema, whose branches refer to one another,
/// keeps the reader busy. Smaller: fields of schemas with many branches have no type.
const MAX_PARTS: usize = 4000;

/// A JSON Schema, with those that it refers to.
#[derive(Debug, PartialEq)]
pub struct JsonSchema {
    root: Json,
    /// By the names under which they are referred to.
    others: HashMap<String, Json>,
}

impl JsonSchema {
    /// The schema `text`, and what it refers to; `None` if one of them is not JSON.
    pub fn parse(text: &str, others: &HashMap<String, String>) -> Option<Self> {
        let other = |(name, text): (&String, &String)| Some((name.clone(), serde_json::from_str(text).ok()?));
        let root: Json = serde_json::from_str(text).ok()?;
        let others = others.iter().map(other).collect::<Option<_>>()?;
        (root.is_object() || root.is_boolean()).then_some(Self { root, others })
    }

    /// The types of the field at `path`; none where the schema does not say.
    pub(in crate::codec) fn kinds_at(&self, path: &Path) -> Vec<Kind> {
        self.reach(path).iter().map(|part| self.kind_of(part, &mut { MAX_PARTS })).collect()
    }

    /// The parts of the schema that are about the field at `path`.
    fn reach(&self, path: &Path) -> Vec<Part<'_>> {
        let mut left = MAX_PARTS;
        let mut parts = vec![Part { document: &self.root, schema: &self.root }];
        for name in path.names() {
            let all = parts.into_iter().flat_map(|part| self.branches(part, &mut left)).collect::<Vec<_>>();
            let members = all.into_iter().filter_map(|part| {
                let schema = part.schema.get("properties")?.get(&**name)?;
                Some(Part { schema, ..part })
            });
            parts = members.collect();
        }
        parts
    }

    /// The part and all that it refers to or is made of.
    fn branches<'s>(&'s self, part: Part<'s>, left: &mut usize) -> Vec<Part<'s>> {
        let (mut open, mut all) = (vec![part], Vec::new());
        while let Some(part) = open.pop() {
            if *left == 0 {
                break;
            }
            *left -= 1;
            let within = |schema| Part { document: part.document, schema };
            open.extend(part.schema.get("$ref").and_then(Json::as_str).and_then(|to| self.resolve(to, part.document)));
            for key in ["allOf", "anyOf", "oneOf"] {
                open.extend(part.schema.get(key).and_then(Json::as_array).into_iter().flatten().map(within));
            }
            all.push(part);
        }
        all
    }

    fn resolve<'s>(&'s self, reference: &str, document: &'s Json) -> Option<Part<'s>> {
        let (name, pointer) = reference.split_once('#').unwrap_or((reference, ""));
        let document = if name.is_empty() { document } else { self.others.get(name)? };
        Some(Part { document, schema: document.pointer(pointer)? })
    }

    fn kind_of(&self, part: &Part<'_>, left: &mut usize) -> Kind {
        let mut kinds = Vec::new();
        for branch in self.branches(*part, left) {
            let types = match branch.schema.get("type") {
                Some(Json::Array(types)) => types.iter().filter_map(Json::as_str).collect(),
                Some(Json::String(of)) => vec![of.as_str()],
                _ => Vec::new(),
            };
            for of in types {
                match of {
                    "null" => {}
                    "string" => kinds.push(Kind::String),
                    "integer" => kinds.push(Kind::Long(None)),
                    "number" => kinds.push(Kind::Double),
                    "boolean" => kinds.push(Kind::Boolean),
                    "array" => kinds.push(self.list_of(&branch, left)),
                    "object" => kinds.push(self.object_of(&branch, left)),
                    _ => kinds.push(Kind::Any),
                }
            }
            if branch.schema.get("type").is_none() {
                let constant = branch.schema.get("const").into_iter();
                let listed = branch.schema.get("enum").and_then(Json::as_array).into_iter().flatten();
                kinds.extend(constant.chain(listed).filter_map(kind_of_value));
            }
        }
        kinds.into_iter().reduce(Kind::merged).unwrap_or(Kind::Any)
    }

    fn list_of(&self, part: &Part<'_>, left: &mut usize) -> Kind {
        let Some(items) = part.schema.get("items").filter(|items| items.is_object()) else {
            return Kind::Any.listed(true);
        };
        let (kind, nulls) = self.kind_or_null(&Part { document: part.document, schema: items }, left);
        kind.listed(nulls)
    }

    /// The type of elements or of values of a map, and whether they may be null.
    fn kind_or_null(&self, part: &Part<'_>, left: &mut usize) -> (Kind, bool) {
        let may_be_null = |branch: Part<'_>| match branch.schema.get("type") {
            Some(Json::String(of)) => of == "null",
            Some(Json::Array(of)) => of.iter().any(|of| of == "null"),
            _ => false,
        };
        halved(left, |left| {
            let nulls = self.branches(*part, left).into_iter().any(may_be_null);
            let kind = self.kind_of(part, left);
            let nulls = nulls || kind == Kind::Any;
            (kind, nulls)
        })
    }

    /// An object has known members if the schema says that it has no others, and is a map if it names none and says what all
    /// others are.
    fn object_of(&self, part: &Part<'_>, left: &mut usize) -> Kind {
        let members = part.schema.get("properties").and_then(Json::as_object);
        let others = part.schema.get("additionalProperties").filter(|_| part.schema.get("patternProperties").is_none());
        match (members, others) {
            (None, Some(values @ Json::Object(_))) => {
                let (kind, nulls) = self.kind_or_null(&Part { document: part.document, schema: values }, left);
                kind.mapped(nulls)
            }
            (Some(members), Some(Json::Bool(false))) => {
                let member = |left: &mut usize, (name, schema): (&String, _)| {
                    let member = Part { document: part.document, schema };
                    (name.as_str().into(), self.kind_of(&member, left))
                };
                halved(left, |left| Kind::record(members.iter().map(|each| member(left, each)).collect()))
            }
            _ => Kind::Nested,
        }
    }
}

/// Looks inside a type with half of what is left, so that one in itself ends after a few times.
fn halved<T>(left: &mut usize, look: impl FnOnce(&mut usize) -> T) -> T {
    let (own, mut inside) = (*left / 2, *left / 2);
    let found = look(&mut inside);
    *left -= own - inside;
    found
}

/// A part of a schema, and the document in which its references are looked up.
#[derive(Clone, Copy)]
struct Part<'s> {
    document: &'s Json,
    schema: &'s Json,
}

fn kind_of_value(value: &Json) -> Option<Kind> {
    match value {
        Json::Null => None,
        Json::Bool(_) => Some(Kind::Boolean),
        Json::Number(number) if number.is_i64() => Some(Kind::Long(None)),
        Json::Number(_) => Some(Kind::Double),
        Json::String(_) => Some(Kind::String),
        Json::Array(_) | Json::Object(_) => Some(Kind::Nested),
    }
}

/// The types of an input's published values, so that an output with types can hold them.
pub struct ValueChecks(Vec<(usize, Kind)>);

impl ValueChecks {
    /// The checks of the fields of `fields` in messages of `schema`.
    pub fn new(fields: &Schema, schema: &JsonSchema) -> Self {
        let kinds = value_kinds(fields, |path| schema.kinds_at(path));
        Self(fields.published().skip(fields.quasi.len()).zip(kinds).map(|(slot, (_, kind))| (slot, kind)).collect())
    }

    /// Turns a record away if a value is not of the type that its schema gives it.
    pub fn check<'a>(&self, record: Record<'a>) -> Result<Record<'a>, Reject> {
        match self.0.iter().find(|(slot, kind)| !kind.fits(&record.values[*slot])) {
            Some((slot, _)) => Err(Reject::field(RejectCode::Malformed, *slot)),
            None => Ok(record),
        }
    }
}

/// The schema of published rows of `schema`, with values of these kinds.
pub(in crate::codec) fn output_schema(schema: &Schema, values: &ValueKinds) -> String {
    let mut root = Map::from_iter([
        ("$schema".to_owned(), json!("http://json-schema.org/draft-07/schema#")),
        ("title".to_owned(), json!("Published")),
    ]);
    if let Json::Object(object) = object(&schema.output(), schema.quasi.len(), values) {
        root.extend(object);
    }
    Json::Object(root).to_string()
}

fn object(fields: &PathTree, labels: usize, values: &ValueKinds) -> Json {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, of) in fields.members() {
        let schema = match of {
            PathTree::Leaf(leaf) if *leaf < labels => json!({"type": "string"}),
            PathTree::Leaf(leaf) => schema_of(&values[leaf - labels].1, true),
            PathTree::Object(_) => object(of, labels, values),
        };
        // Values may be null; labels and the objects around them are always there.
        if !matches!(of, PathTree::Leaf(leaf) if *leaf >= labels) {
            required.push(json!(&**name));
        }
        properties.insert(name.to_string(), schema);
    }
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn schema_of(kind: &Kind, or_null: bool) -> Json {
    let of = match kind {
        Kind::Any | Kind::Nested => return json!({}),
        Kind::Boolean => "boolean",
        Kind::Int(_) | Kind::Long(_) | Kind::Unsigned => "integer",
        Kind::Float | Kind::Double | Kind::Decimal { .. } => "number",
        Kind::Bytes | Kind::String => "string",
        Kind::List { .. } => "array",
        Kind::Record(_) | Kind::Map { .. } => "object",
    };
    let mut schema = if or_null { json!({"type": [of, "null"]}) } else { json!({"type": of}) };
    match kind {
        Kind::List { of, nulls } => schema["items"] = schema_of(of, *nulls),
        Kind::Map { of, nulls } => schema["additionalProperties"] = schema_of(of, *nulls),
        Kind::Record(members) => {
            let members = members.iter().map(|(name, kind)| (name.to_string(), schema_of(kind, true)));
            schema["properties"] = members.collect::<Map<_, _>>().into();
            schema["additionalProperties"] = json!(false);
        }
        _ => {}
    }
    schema
}
