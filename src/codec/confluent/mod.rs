//! The Confluent wire format: a zero byte, a four-byte schema id, and the record in Avro, Protobuf or JSON.
//!
//! The reader of messages resolves their ids first ([`SchemaCache::needs`], [`SchemaCache::resolve`]), where waiting is
//! possible; decoding then finds every id settled, either to a plan or to "unknown". A decode that finds one unsettled is
//! a defect: it is refused, logged as an error and counted, never passed over.

mod encode;
mod writer;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

pub use encode::ConfluentEncoder;
use writer::Writer;

use super::json::JsonDecoder;
use super::message::MAGIC;
use super::registry::{Registry, RegistryError};
use super::schemas::{SchemaLanguage, WriterSchema};
use super::{Decode, check_size, malformed};
use crate::model::event::{Reject, RejectCode};
use crate::model::record::Record;
use crate::model::schema::{Path, Schema};

/// The schema id of a message; `None` if it is not in the wire format.
pub fn schema_id(payload: &[u8]) -> Option<u32> {
    match payload {
        [MAGIC, a, b, c, d, ..] => Some(u32::from_be_bytes([*a, *b, *c, *d])),
        _ => None,
    }
}

/// The answer about an id.
#[derive(Clone)]
enum Settled {
    Known(Arc<Writer>),
    /// The registry does not have it.
    Unknown,
    /// It is there, but not a record, or in another language.
    Unusable,
}

/// Plans by schema id, shared by the source that fills it and the decoders that use it.
pub struct SchemaCache {
    registry: Registry,
    language: SchemaLanguage,
    schema: Schema,
    settled: RwLock<HashMap<u32, Settled>>,
    unsettled: AtomicU64,
}

impl SchemaCache {
    /// An empty cache for the fields of `schema`, of schemas in this language.
    pub fn new(registry: Registry, language: SchemaLanguage, schema: &Schema) -> Self {
        let (settled, unsettled) = (RwLock::default(), AtomicU64::new(0));
        Self { registry, language, schema: schema.clone(), settled, unsettled }
    }

    /// The id that must be resolved before this message can be decoded.
    pub fn needs(&self, payload: &[u8]) -> Option<u32> {
        schema_id(payload).filter(|id| self.get(*id).is_none())
    }

    /// Asks the registry, unless the id is settled. [`RegistryError::Unavailable`] means: ask again later;
    /// [`RegistryError::Unknown`] may too, since registries lag, until [`SchemaCache::give_up`].
    pub async fn resolve(&self, id: u32) -> Result<(), RegistryError> {
        if self.get(id).is_some() {
            return Ok(());
        }
        let settled = match self.registry.fetch(id, self.language).await {
            Ok(schema) => match Writer::new(&self.schema, schema) {
                Ok(writer) => Settled::Known(Arc::new(writer)),
                Err(_) => Settled::Unusable,
            },
            Err(RegistryError::Unusable(..)) => Settled::Unusable,
            Err(error) => return Err(error),
        };
        self.settle(id, settled);
        Ok(())
    }

    /// The registry does not know this id and had time to: its messages are rejected from now on.
    pub fn give_up(&self, id: u32) {
        self.settle(id, Settled::Unknown);
    }

    /// The ids whose schemas are known, ascending.
    pub fn known(&self) -> Vec<u32> {
        let settled = self.settled.read().unwrap_or_else(PoisonError::into_inner);
        let mut known: Vec<u32> =
            settled.iter().filter(|(_, s)| matches!(s, Settled::Known(_))).map(|(id, _)| *id).collect();
        known.sort_unstable();
        known
    }

    /// The writer schemas of these ids, as far as they are known, in the order of the ids.
    pub fn writers(&self, ids: impl IntoIterator<Item = u32>) -> Vec<WriterSchema> {
        let known = |id| match self.get(id) {
            Some(Settled::Known(writer)) => writer.schemas(),
            _ => Vec::new(),
        };
        ids.into_iter().flat_map(known).collect()
    }

    /// How many messages were decoded before their id was settled. Anything but zero is a defect.
    pub fn unsettled(&self) -> u64 {
        self.unsettled.load(Ordering::Relaxed)
    }

    /// A decoder of messages whose ids are settled here.
    pub fn decoder(self: &Arc<Self>, max_record_bytes: usize) -> ConfluentDecoder {
        let json = JsonDecoder::new(&self.schema, max_record_bytes);
        ConfluentDecoder { cache: Arc::clone(self), seen: HashMap::new(), json, max_record_bytes }
    }

    fn get(&self, id: u32) -> Option<Settled> {
        self.settled.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    fn settle(&self, id: u32, settled: Settled) {
        self.settled.write().unwrap_or_else(PoisonError::into_inner).entry(id).or_insert(settled);
    }
}

/// Decodes messages, each with the plan of its own writer schema.
#[derive(Clone)]
pub struct ConfluentDecoder {
    cache: Arc<SchemaCache>,
    /// Those of the cache that were used, without its lock.
    seen: HashMap<u32, Settled>,
    json: JsonDecoder,
    max_record_bytes: usize,
}

impl Decode for ConfluentDecoder {
    fn decode<'a>(&mut self, payload: &'a [u8]) -> Result<Record<'a>, Reject> {
        check_size(payload, self.max_record_bytes)?;
        let id = schema_id(payload).ok_or_else(malformed)?;
        if !self.seen.contains_key(&id) {
            let Some(settled) = self.cache.get(id) else {
                self.cache.unsettled.fetch_add(1, Ordering::Relaxed);
                tracing::error!(id, "a message was decoded before its schema was resolved; it is rejected");
                return Err(Reject::record(RejectCode::UnknownSchema));
            };
            self.seen.insert(id, settled);
        }
        match self.seen.get(&id) {
            Some(Settled::Known(writer)) => writer.decode(&payload[5..], &mut self.json, self.max_record_bytes),
            Some(Settled::Unusable) => Err(malformed()),
            Some(Settled::Unknown) | None => Err(Reject::record(RejectCode::UnknownSchema)),
        }
    }

    fn fields(&self, payload: &[u8]) -> Vec<Path> {
        match schema_id(payload).and_then(|id| self.cache.get(id)) {
            Some(Settled::Known(writer)) => writer.fields(&payload[5..], &self.json),
            _ => Vec::new(),
        }
    }

    fn another(&self) -> Box<dyn Decode> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::PublishedRow;
    use crate::codec::schemas::PublishedSchema;
    use crate::model::record::Value;
    use crate::model::schema::Role;

    const ONE: &str = r#"{"type":"record","name":"P","fields":[{"name":"age","type":"int"}]}"#;
    const TWO: &str =
        r#"{"type":"record","name":"P","fields":[{"name":"new","type":"string"},{"name":"age","type":"long"}]}"#;

    fn cache() -> Arc<SchemaCache> {
        let registry = Registry::new("http://127.0.0.1:1", None);
        let cache = SchemaCache::new(registry, SchemaLanguage::Avro, &Schema::new([("age", Role::Quasi)]));
        for (id, text) in [(1, ONE), (2, TWO)] {
            let schema = WriterSchema::parse(SchemaLanguage::Avro, text, &HashMap::new()).unwrap();
            cache.settle(id, Settled::Known(Arc::new(Writer::new(&cache.schema, schema).unwrap())));
        }
        cache.settle(3, Settled::Unusable);
        Arc::new(cache)
    }

    #[test]
    fn each_message_is_read_by_its_own_schema() {
        let cache = cache();
        let mut decoder = cache.decoder(1000);
        for payload in [&[0, 0, 0, 0, 1, 74][..], &[0, 0, 0, 0, 2, 2, b'x', 74]] {
            assert_eq!(cache.needs(payload), None);
            assert!(decoder.decode(payload).unwrap().values[0] == Value::Number("37".into()));
        }
        assert_eq!(cache.writers([2, 9, 1]).len(), 2);
        assert_eq!(cache.unsettled(), 0);
    }

    #[test]
    fn what_is_not_in_the_format_needs_no_schema() {
        let (cache, code) = (cache(), |reject: Reject| reject.code);
        let mut decoder = cache.decoder(8);
        for (payload, expected) in [
            (&b""[..], RejectCode::Empty),
            (b"{\"age\":1}", RejectCode::TooLarge),
            (b"{\"a\":1}", RejectCode::Malformed),
            (&[0, 0, 0, 0], RejectCode::Malformed),
            (&[1, 0, 0, 0, 1, 74], RejectCode::Malformed),
            (&[0, 0, 0, 0, 1], RejectCode::Empty),
            (&[0, 0, 0, 0, 1, 74, 74], RejectCode::Malformed),
            (&[0, 0, 0, 0, 3, 74], RejectCode::Malformed),
        ] {
            assert_eq!(cache.needs(payload), None);
            assert_eq!(decoder.decode(payload).map_err(code), Err(expected), "{} bytes", payload.len());
        }
    }

    #[test]
    fn an_id_is_settled_before_it_is_decoded_or_it_is_counted() {
        let cache = cache();
        let mut decoder = cache.decoder(1000);
        let payload = [0, 0, 0, 0, 7, 74];
        assert_eq!(cache.needs(&payload), Some(7));
        assert_eq!(decoder.decode(&payload).unwrap_err().code, RejectCode::UnknownSchema);
        assert_eq!(cache.unsettled(), 1, "a defect does not go unnoticed");
        cache.give_up(7);
        assert_eq!(cache.needs(&payload), None);
        assert_eq!(decoder.decode(&payload).unwrap_err().code, RejectCode::UnknownSchema);
        assert_eq!(cache.unsettled(), 1);
    }

    fn cache_of(language: SchemaLanguage, fields: &Schema, schemas: &[(u32, &str)]) -> Arc<SchemaCache> {
        let cache = SchemaCache::new(Registry::new("http://127.0.0.1:1", None), language, fields);
        for (id, text) in schemas {
            let schema = WriterSchema::parse(language, text, &HashMap::new()).unwrap();
            cache.settle(*id, Settled::Known(Arc::new(Writer::new(fields, schema).unwrap())));
        }
        Arc::new(cache)
    }

    /// Two schemas in one window, and several messages of one of them.
    #[test]
    fn a_protobuf_message_names_its_type() {
        let one = "syntax = \"proto3\"; message First {} message P { int32 age = 1; message In { sint32 age = 2; } }";
        let two = "syntax = \"proto3\"; message P { string new = 1; int64 age = 3; }";
        let fields = Schema::new([("age", Role::Quasi)]);
        let cache = cache_of(SchemaLanguage::Protobuf, &fields, &[(1, one), (2, two)]);
        let mut decoder = cache.decoder(1000);
        for payload in [
            &[0, 0, 0, 0, 1, 2, 2, 8, 37][..],
            &[0, 0, 0, 0, 1, 4, 2, 0, 16, 74],
            &[0, 0, 0, 0, 2, 0, 10, 1, b'x', 24, 37],
            &[0, 0, 0, 0, 2, 2, 0, 24, 37],
        ] {
            assert!(decoder.decode(payload).unwrap().values[0] == Value::Number("37".into()), "{payload:?}");
            assert!(!decoder.fields(payload).is_empty());
        }
        let read = cache.writers([1, 2]);
        assert_eq!(read.len(), 3, "those that came, and no other");
        for (payload, code) in [
            (&[0, 0, 0, 0, 1][..], RejectCode::Empty),
            (&[0, 0, 0, 0, 1, 2, 6, 8, 37], RejectCode::Malformed),
            (&[0, 0, 0, 0, 1, 2, 1, 8, 37], RejectCode::Malformed),
            (&[0, 0, 0, 0, 1, 126, 2, 8, 37], RejectCode::Malformed),
            (&[0, 0, 0, 0, 1, 1, 8, 37], RejectCode::Malformed),
            (&[0, 0, 0, 0, 1, 4, 2], RejectCode::Malformed),
            (&[0, 0, 0, 0, 2, 0, 24], RejectCode::Malformed),
        ] {
            assert_eq!(decoder.decode(payload).unwrap_err().code, code, "{payload:?}");
        }
        assert_eq!(cache.writers([1, 2]).len(), 3, "a place without a message takes no memory");
    }

    #[test]
    fn a_json_schema_gives_types_to_what_is_published() {
        let schema = r##"{"properties":{"n":{"$ref":"#/definitions/n"},"job":{"type":["string","null"]},
            "codes":{"type":"array","items":{"type":"string"}},"any":{"oneOf":[{"type":"string"},{"type":"integer"}]}},
            "definitions":{"n":{"anyOf":[{"type":"integer"},{"type":"null"}]}}}"##;
        let names = ["n", "job", "codes", "any"];
        let fields = Schema::new(std::iter::once(("age", Role::Quasi)).chain(names.map(|name| (name, Role::Reviewed))));
        let cache = cache_of(SchemaLanguage::Json, &fields, &[(1, schema)]);
        let mut decoder = cache.decoder(1000);
        let mut read = |text: &str| {
            let payload = [&[0, 0, 0, 0, 1][..], text.as_bytes()].concat();
            decoder.decode(&payload).map(drop).map_err(|reject| (reject.code, reject.field))
        };
        assert_eq!(read(r#"{"age":[],"n":1,"job":"x","codes":["a"],"any":{}}"#), Ok(()));
        assert_eq!(read(r#"{"n":null,"job":null}"#), Ok(()));
        assert_eq!(read(r#"{"n":1.5}"#), Err((RejectCode::Malformed, Some(1))));
        assert_eq!(read(r#"{"n":9223372036854775808}"#), Err((RejectCode::Malformed, Some(1))));
        assert_eq!(read(r#"{"job":1}"#), Err((RejectCode::Malformed, Some(2))));
        assert_eq!(read(r#"{"codes":["a",null]}"#), Err((RejectCode::Malformed, Some(3))));
        assert_eq!(read(r#"{"n":1"#), Err((RejectCode::Malformed, None)));
        assert_eq!(read(r#"{"n":1}x"#), Err((RejectCode::Malformed, None)));
        let derived = |language| PublishedSchema::derive(language, &fields, &cache.writers([1])).unwrap();
        let proto = derived(SchemaLanguage::Protobuf);
        for line in [
            "string age = 1",
            "optional int64 n",
            "optional string job",
            "repeated string codes",
            "optional string any",
        ] {
            assert!(proto.text().contains(line), "{line}: {}", proto.text());
        }
        let json: serde_json::Value = serde_json::from_str(derived(SchemaLanguage::Json).text()).unwrap();
        assert_eq!(json["required"], serde_json::json!(["age"]));
        assert_eq!(json["properties"]["n"]["type"], serde_json::json!(["integer", "null"]));
        assert_eq!(json["properties"]["codes"]["items"]["type"], "string");
        assert_eq!(json["properties"]["any"], serde_json::json!({}));
    }

    /// Lists and maps that hold themselves end after a few times, so that every reader takes the schema of the output.
    #[test]
    fn a_json_schema_that_holds_itself_has_an_end() {
        let schema = r##"{"properties":{"list":{"$ref":"#/definitions/l"},"map":{"$ref":"#/definitions/m"},
            "marks":{"type":"object","additionalProperties":{"type":["integer","null"]}}},"definitions":{
            "l":{"type":"array","items":{"$ref":"#/definitions/l"}},
            "m":{"type":"object","additionalProperties":{"$ref":"#/definitions/m"}}}}"##;
        let fields = Schema::new([("list", Role::Reviewed), ("map", Role::Reviewed), ("marks", Role::Reviewed)]);
        let writer = |language, text: &str| WriterSchema::parse(language, text, &HashMap::new()).unwrap();
        let values = ["[[[]],[]]", r#"{"a":{"b":{}},"":{}}"#, r#"{"z":1,"a":null}"#];
        for language in [SchemaLanguage::Avro, SchemaLanguage::Protobuf, SchemaLanguage::Json] {
            let once = PublishedSchema::derive(language, &fields, &[writer(SchemaLanguage::Json, schema)]).unwrap();
            let again = PublishedSchema::derive(language, &fields, &[writer(language, once.text())]).unwrap();
            assert_eq!(once.text(), again.text());
            let written = once.encoder().message(&PublishedRow { quasi: &[], values: &values }, &mut Vec::new());
            assert_eq!(written, Ok(()), "{language}");
        }
        let cache = cache_of(SchemaLanguage::Json, &fields, &[(1, schema)]);
        let read = |text: &str| {
            cache
                .decoder(1000)
                .decode(&[&[0, 0, 0, 0, 1][..], text.as_bytes()].concat())
                .map(drop)
                .map_err(|r| (r.code, r.field))
        };
        assert_eq!(read(r#"{"marks":{"a":1,"b":null}}"#), Ok(()));
        assert_eq!(read(r#"{"marks":{"a":"text"}}"#), Err((RejectCode::Malformed, Some(2))));
        assert_eq!(read(r#"{"map":{"a":null}}"#), Err((RejectCode::Malformed, Some(1))));
    }

    #[tokio::test]
    async fn a_registry_that_is_gone_is_not_an_unknown_schema() {
        let cache = cache();
        assert!(matches!(cache.resolve(9).await, Err(RegistryError::Unavailable { .. })));
        assert_eq!(cache.needs(&[0, 0, 0, 0, 9, 74]), Some(9));
        assert_eq!(cache.resolve(1).await, Ok(()), "what is settled needs no registry");
    }
}
