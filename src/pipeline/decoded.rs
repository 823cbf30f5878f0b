//! Decoded batches: the records of many messages in one text, so that no value costs an allocation.
//!
//! Invariant: [`Decoded::each`] hands out the records that the reader of the placement hands out, and fails as it does. The payloads
//! of decoded messages are dropped by the thread that decodes them.

use std::ops::Range;

use crate::codec::RecordReader;
use crate::model::event::{Event, Reject};
use crate::model::record::{Record, Value};

/// The most bytes that the records of a batch take. Larger: batches on their way hold more memory, most of all where the records of a
/// message repeat the fields around an array. Smaller: the window stage itself decodes the rest of a batch of large messages.
pub(super) const MAX_BYTES: usize = 2 << 20;

/// Some events in the order of the source; the first ones are decoded.
pub(super) struct EventBatch {
    events: Vec<Event>,
    /// `None` if nothing is decoded.
    decoder: Option<Decoder>,
}

/// Decodes a batch, and keeps what it makes of it: one memory for many batches.
pub(super) struct Decoder {
    /// By placement.
    readers: Vec<RecordReader>,
    /// By event, as far as there is room; `None` for an event that has no payload or no reader.
    messages: Vec<Option<Message>>,
    /// The values of all records in slot order, each with the end of its text.
    values: Vec<(Kind, u32)>,
    text: String,
}

/// The records that a reader has made of a message.
struct Message {
    records: usize,
    values: Range<usize>,
    /// Where the text of the values begins.
    text: usize,
    /// The failure of the reader behind them.
    reject: Option<Reject>,
}

/// The kind of a [`Value`].
#[derive(Clone, Copy)]
enum Kind {
    Missing,
    Null,
    True,
    False,
    Number,
    Text,
    Nested,
}

impl Decoder {
    /// Decodes with readers like these.
    pub(super) fn new(readers: &[RecordReader]) -> Self {
        let readers = readers.iter().map(RecordReader::another).collect();
        Self { readers, messages: Vec::new(), values: Vec::new(), text: String::new() }
    }

    /// Decodes events, each with the reader of its placement.
    pub(super) fn decode(mut self, mut events: Vec<Event>) -> EventBatch {
        self.messages.clear();
        self.values.clear();
        self.text.clear();
        let mut readers = std::mem::take(&mut self.readers);
        for event in &mut events {
            let message = match (readers.get_mut(event.placement), &event.payload) {
                (Some(reader), Some(payload)) => match self.read(payload, reader) {
                    Some(message) => Some(message),
                    None => break,
                },
                _ => None,
            };
            if message.is_some() {
                event.payload = None;
            }
            self.messages.push(message);
        }
        self.readers = readers;
        EventBatch { events, decoder: Some(self) }
    }

    /// Appends the records of one more message; `None`, and nothing has changed, if they have no room.
    fn read(&mut self, payload: &[u8], reader: &mut RecordReader) -> Option<Message> {
        let (values, text) = (self.values.len(), self.text.len());
        let (mut records, mut fits) = (0, true);
        let read = reader.each(payload, |record, _| {
            if fits {
                records += 1;
                self.push(record);
                fits = self.bytes() <= MAX_BYTES;
            }
        });
        if !fits {
            self.values.truncate(values);
            self.text.truncate(text);
            return None;
        }
        Some(Message { records, values: values..self.values.len(), text, reject: read.err() })
    }

    fn bytes(&self) -> usize {
        self.text.len() + size_of_val(&self.values[..])
    }

    fn push(&mut self, record: &Record<'_>) {
        for value in &record.values {
            let (kind, text) = match value {
                Value::Missing => (Kind::Missing, ""),
                Value::Null => (Kind::Null, ""),
                Value::Bool(true) => (Kind::True, ""),
                Value::Bool(false) => (Kind::False, ""),
                Value::Number(text) => (Kind::Number, &**text),
                Value::Text(text) => (Kind::Text, &**text),
                Value::Nested(text) => (Kind::Nested, &**text),
            };
            self.text.push_str(text);
            self.values.push((kind, self.text.len() as u32));
        }
    }
}

impl EventBatch {
    /// Nothing is decoded.
    pub(super) fn undecoded(events: Vec<Event>) -> Self {
        Self { events, decoder: None }
    }

    /// The number of events.
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// Hands out the events, each with its records if it is decoded, until one is refused.
    pub(super) fn each<E>(
        &self,
        mut each: impl FnMut(&Event, Option<Decoded<'_, '_>>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut record = Record::new(0);
        for (i, event) in self.events.iter().enumerate() {
            let decoded = self.decoder.as_ref().and_then(|from| Some((from, from.messages.get(i)?.as_ref()?)));
            each(event, decoded.map(|(from, message)| Decoded { from, message, record: &mut record }))?;
        }
        Ok(())
    }

    /// The decoder, for another batch.
    pub(super) fn into_decoder(self) -> Option<Decoder> {
        self.decoder
    }
}

/// A decoded message.
pub(super) struct Decoded<'m, 'b> {
    from: &'b Decoder,
    message: &'b Message,
    /// A buffer for the batch.
    record: &'m mut Record<'b>,
}

impl Decoded<'_, '_> {
    /// Hands out the records, as [`RecordReader::each`] has done.
    pub(super) fn each(self, mut each: impl FnMut(&Record<'_>)) -> Result<(), Reject> {
        let Self { from, message, record } = self;
        let values = &from.values[message.values.clone()];
        let mut start = message.text;
        for values in values.chunks(values.len().div_ceil(message.records.max(1)).max(1)) {
            record.values.clear();
            for &(kind, end) in values {
                let text = &from.text[start..end as usize];
                start = end as usize;
                record.values.push(match kind {
                    Kind::Missing => Value::Missing,
                    Kind::Null => Value::Null,
                    Kind::True => Value::Bool(true),
                    Kind::False => Value::Bool(false),
                    Kind::Number => Value::Number(text.into()),
                    Kind::Text => Value::Text(text.into()),
                    Kind::Nested => Value::Nested(text.into()),
                });
            }
            each(record);
        }
        message.reject.clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::event::Position;
    use crate::model::schema::{Envelope, Path, Placement, Role, Schema};

    type Read = (Vec<Record<'static>>, Result<(), Reject>);

    /// Plain rows, change events and arrays of rows.
    fn readers() -> Vec<RecordReader> {
        let roles = [Role::Quasi, Role::Sensitive, Role::Insensitive];
        let plain = Schema::new(["a", "items.b", "items.c"].into_iter().zip(roles));
        let mut changes = Schema::new(["a", "b", "c"].into_iter().zip(roles));
        changes.envelope = Envelope::Debezium;
        let arrays = plain.placed(&Placement { array: Some(Path::of("items")), ..Placement::default() });
        [plain, changes, arrays].iter().map(|schema| RecordReader::json(schema, 1 << 22)).collect()
    }

    fn event(placement: usize, payload: Option<&str>) -> Event {
        let payload = payload.map(|text| text.to_owned().into_bytes().into());
        Event { position: Position::new(0, 0), placement, timestamp: None, key: None, payload }
    }

    fn owned(record: &Record<'_>) -> Record<'static> {
        let text = |text: &str| text.to_owned().into();
        let value = |value: &Value<'_>| match value {
            Value::Missing => Value::Missing,
            Value::Null => Value::Null,
            Value::Bool(value) => Value::Bool(*value),
            Value::Number(number) => Value::Number(text(number)),
            Value::Text(value) => Value::Text(text(value)),
            Value::Nested(nested) => Value::Nested(text(nested)),
        };
        Record { values: record.values.iter().map(value).collect() }
    }

    /// One event after the other, without a batch.
    fn read(event: &Event, readers: &mut [RecordReader]) -> Option<Read> {
        let (reader, payload) = (readers.get_mut(event.placement)?, event.payload.as_ref()?);
        let mut records = Vec::new();
        let read = reader.each(payload, |record, _| records.push(owned(record)));
        Some((records, read))
    }

    /// The events of a batch, as they are read from it; those that it has not decoded, by the readers.
    fn read_from(batch: &EventBatch) -> Vec<Option<Read>> {
        let (mut all, mut readers) = (Vec::new(), readers());
        let each = |event: &Event, decoded: Option<Decoded<'_, '_>>| {
            all.push(match decoded {
                Some(decoded) => {
                    assert_eq!(event.payload, None);
                    let mut records = Vec::new();
                    let read = decoded.each(|record| records.push(owned(record)));
                    Some((records, read))
                }
                None => read(event, &mut readers),
            });
            Ok::<(), ()>(())
        };
        batch.each(each).unwrap();
        all
    }

    fn value() -> impl Strategy<Value = String> {
        let values = ["null", "true", "false", "1.50", "\"a\\u00e9\"", "\"\"", "{\"x\": [1, 2]}", "[ ]", "{"];
        prop_oneof![prop::sample::select(values.to_vec()).prop_map(str::to_owned), "\"[a-zé]{0,9}\"", "[1-9]{1,4}"]
    }

    fn payload() -> impl Strategy<Value = Option<String>> {
        let object = |(a, b, c)| format!(r#"{{"a":{a},"x":0,"b":{b},"c":{c}}}"#);
        let row = || (value(), value(), value()).prop_map(object);
        let change = (row(), "[cudrt]").prop_map(|(row, op)| format!(r#"{{"op":"{op}","after":{row}}}"#));
        let array = (value(), prop::collection::vec(row(), 0..4))
            .prop_map(|(a, rows)| format!(r#"{{"items":[{}],"a":{a}}}"#, rows.join(",")));
        prop_oneof![
            Just(None),
            Just(Some(String::new())),
            row().prop_map(Some),
            change.prop_map(Some),
            array.prop_map(Some)
        ]
    }

    proptest! {
        /// Every record, every failure, and the records before a failure.
        #[test]
        fn a_batch_reads_as_its_events(payloads in prop::collection::vec((0usize..4, payload()), 0..60)) {
            let events: Vec<Event> = payloads.iter().map(|(placement, text)| event(*placement, text.as_deref())).collect();
            let mut one_by_one = readers();
            let expected: Vec<_> = events.iter().map(|event| read(event, &mut one_by_one)).collect();
            // The memory of a batch before it, too.
            let before = Decoder::new(&readers()).decode(events.iter().rev().take(9).cloned().collect());
            let batch = before.into_decoder().unwrap().decode(events.clone());
            prop_assert_eq!(batch.len(), events.len());
            prop_assert_eq!(&read_from(&batch), &expected);
            prop_assert_eq!(&read_from(&EventBatch::undecoded(events)), &expected);
        }
    }

    /// Elements that repeat a long text, or have hardly any: the rest of the batch is decoded by the window stage.
    #[test]
    fn a_batch_holds_so_many_bytes() {
        let long = "x".repeat(MAX_BYTES / 8);
        let wide = format!(r#"{{"a":"{long}","items":[{}]}}"#, [r#"{"b":1,"c":2}"#; 5].join(","));
        let many = format!(r#"{{"a":1,"items":[{}]}}"#, ["{}"; 9000].join(","));
        for large in [wide, many] {
            let events = vec![event(2, Some(&large)); 15];
            let batch = Decoder::new(&readers()).decode(events.clone());
            assert_eq!(read_from(&batch), read_from(&EventBatch::undecoded(events)));
            let decoder = batch.into_decoder().unwrap();
            assert!((1..15).contains(&decoder.messages.len()), "{} decoded", decoder.messages.len());
            assert!((MAX_BYTES / 4..=MAX_BYTES).contains(&decoder.bytes()));
        }
    }
}
