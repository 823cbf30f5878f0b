//! A payload to its records: one, or one for each element of an array in it (`explode`).
//!
//! The payload's own decoder reads the array as one nested value, so every format can be taken apart here. Its elements are JSON
//! objects by then. Each record has the fields around the array and those of its element.
//!
//! Invariant: the records of a payload stand at one position and have their outcome in one release, so they are read together: an
//! element that cannot be read turns the whole payload away.

use serde_json::value::RawValue;

use super::json::JsonDecoder;
use super::survey::Survey;
use super::{Decode, malformed};
use crate::model::event::{Reject, RejectCode};
use crate::model::record::{Record, Value};
use crate::model::schema::{Path, Schema};

/// The most elements of one payload. Larger: one message fills a window. Smaller: long lists that people do send are turned away.
const MAX_ELEMENTS: usize = 10_000;

/// The most bytes that the fields around an array may take in all records of a payload together. Larger: a small message with a long
/// text beside many elements fills the memory. Smaller: honest messages are turned away.
const MAX_REPEATED: usize = 64 << 20;

/// Reads the records of payloads of one kind.
pub struct RecordReader {
    decoder: Box<dyn Decode>,
    schema: Schema,
    elements: Option<Elements>,
    may_start_badly: bool,
}

/// Reads the elements of an array.
#[derive(Clone)]
struct Elements {
    decoder: JsonDecoder,
    array: Path,
    /// The slots that an element fills.
    slots: Vec<usize>,
}

impl RecordReader {
    /// Reads payloads of at most `bytes` bytes with `decoder`, a decoder for `schema`.
    pub fn new(decoder: Box<dyn Decode>, schema: &Schema, max_record_bytes: usize) -> Self {
        let elements = |array: &Path| Elements {
            decoder: JsonDecoder::of_elements(schema, max_record_bytes),
            array: array.clone(),
            slots: schema.element().leaves(),
        };
        let elements = schema.array.as_ref().map(elements);
        Self { decoder, schema: schema.clone(), elements, may_start_badly: false }
    }

    /// The same, of an input whose first messages may all be unreadable.
    #[must_use]
    pub fn starting_badly(self) -> Self {
        Self { may_start_badly: true, ..self }
    }

    /// Reads JSON objects.
    pub fn json(schema: &Schema, max_record_bytes: usize) -> Self {
        Self::new(Box::new(JsonDecoder::new(schema, max_record_bytes)), schema, max_record_bytes)
    }

    /// Hands out every record of `payload`, each with the places of all values that it was made of, whether or not the policy names
    /// them; arrays are one value. After an error some may have been handed out already.
    pub fn each(
        &mut self,
        payload: &[u8],
        mut each: impl FnMut(&Record<'_>, &dyn Fn() -> Vec<Path>),
    ) -> Result<(), Reject> {
        let record = self.decoder.decode(payload)?;
        let decoder = &*self.decoder;
        match &mut self.elements {
            None => {
                each(&record, &|| decoder.fields(payload));
                Ok(())
            }
            Some(elements) => elements.each(record, &|| decoder.fields(payload), each),
        }
    }

    /// Another reader of the same payloads, for another thread.
    #[must_use]
    pub fn another(&self) -> Self {
        Self {
            decoder: self.decoder.another(),
            schema: self.schema.clone(),
            elements: self.elements.clone(),
            may_start_badly: self.may_start_badly,
        }
    }

    /// True if messages that are all turned away are no reason to stop.
    pub fn may_start_badly(&self) -> bool {
        self.may_start_badly
    }

    /// A survey of what it reads.
    pub fn survey(&self) -> Survey {
        Survey::new(&self.schema)
    }

    /// The places of the values in a payload, as far as they can be told without its elements.
    pub fn fields(&self, payload: &[u8]) -> Vec<Path> {
        self.decoder.fields(payload)
    }
}

impl Elements {
    fn each(
        &mut self,
        mut record: Record<'_>,
        around: &dyn Fn() -> Vec<Path>,
        mut each: impl FnMut(&Record<'_>, &dyn Fn() -> Vec<Path>),
    ) -> Result<(), Reject> {
        let refused = |code| Reject { code, field: self.slots.first().copied() };
        let array = match record.values.pop() {
            Some(Value::Nested(array)) if array.starts_with('[') => array,
            Some(Value::Missing) | None => return Err(refused(RejectCode::MissingField)),
            Some(Value::Null) => return Err(refused(RejectCode::NullField)),
            Some(_) => return Err(refused(RejectCode::NotAnArray)),
        };
        let elements: Vec<&RawValue> = serde_json::from_str(&array).map_err(|_| malformed())?;
        if elements.is_empty() {
            return Err(Reject::record(RejectCode::NoRow));
        }
        let repeated: usize = record.values.iter().map(length).sum();
        if elements.len() > MAX_ELEMENTS || elements.len() * repeated > MAX_REPEATED {
            return Err(Reject::record(RejectCode::TooLarge));
        }
        if elements.iter().any(|element| !element.get().starts_with('{')) {
            return Err(refused(RejectCode::NotAnObject));
        }
        // Lives no longer than the text of the elements: a list of values is not shortened by itself.
        let mut row = Record { values: record.values.into_iter().map(|value| value as Value<'_>).collect() };
        for element in elements {
            let text = element.get().as_bytes();
            let mut inner = self.decoder.decode(text)?;
            for &slot in &self.slots {
                row.values[slot] = std::mem::take(&mut inner.values[slot]);
            }
            let fields = || {
                let outer: Vec<&str> = self.array.names().iter().map(|name| &**name).collect();
                let inside = self.decoder.fields(text).into_iter().map(|path| path.below(&outer));
                around().into_iter().filter(|path| !self.array.contains(path)).chain(inside).collect()
            };
            each(&row, &fields);
        }
        Ok(())
    }
}

/// The bytes of a value's text.
fn length(value: &Value<'_>) -> usize {
    match value {
        Value::Missing | Value::Null | Value::Bool(_) => 0,
        Value::Number(text) | Value::Text(text) | Value::Nested(text) => text.len(),
    }
}
