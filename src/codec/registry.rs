//! A schema registry with Confluent's REST interface: schemas by id, and our own under a subject.
//!
//! What was answered once is remembered: schemas never change under an id. Nothing here retries; whoever asks knows best
//! what can wait. Deliberately absent: credentials in messages and in `Debug`.

use std::collections::HashMap;
use std::error::Error as _;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use apache_avro::Schema as AvroSchema;
use schema_registry_converter::async_impl::schema_registry::{
    SrSettings, get_all_subjects, get_referenced_schema, get_schema_by_id, get_schema_by_subject_and_version,
    post_schema,
};
use schema_registry_converter::error::SRCError;
use schema_registry_converter::schema_registry_common::{RawError, RegisteredSchema, SchemaType, SuppliedSchema};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value as Json;

use super::avro::parse_schema;

/// How long one call may take. Longer: a hanging registry is noticed late. Shorter: a slow one counts as gone.
const CALL: Duration = Duration::from_secs(5);

/// More schemas behind one schema than this are not fetched. Larger: a hostile one keeps us busy. Smaller: honest ones
/// with many shared types are turned away.
const MAX_REFERENCES: usize = 100;

/// Why the registry gave no answer that helps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// There is no schema with this id.
    #[error("the registry has no schema {0}")]
    Unknown(u32),
    /// There is one, but it is not Avro, or does not parse.
    #[error("schema {0} of the registry is not an avro schema")]
    Unusable(u32),
    /// Our schema is not taken: incompatible with an earlier one, or not valid in the registry's eyes.
    #[error("the registry refuses the schema of {subject} ({reason}): check the compatibility level of the subject")]
    Refused {
        /// The subject.
        subject: String,
        /// The registry's answer.
        reason: String,
    },
    /// It cannot be reached, or does not answer sensibly; later it may.
    #[error("the schema registry is unavailable ({reason})")]
    Unavailable {
        /// What came instead of an answer.
        reason: String,
    },
}

/// The registry, with what it answered so far.
pub struct Registry {
    settings: SrSettings,
    url: String,
    schemas: Mutex<HashMap<u32, Arc<AvroSchema>>>,
    registered: Mutex<HashMap<(String, String), u32>>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registry({})", self.url)
    }
}

impl Registry {
    /// The registry at `url`. Nothing is sent yet.
    pub fn new(url: &str, credentials: Option<&(String, SecretString)>) -> Result<Self, RegistryError> {
        let mut builder = SrSettings::new_builder(url.to_owned());
        builder.set_timeout(CALL);
        if let Some((username, password)) = credentials {
            builder.set_basic_authorization(username, Some(password.expose_secret()));
        }
        let settings = builder.build().map_err(|error| unavailable(&error))?;
        Ok(Self { settings, url: url.to_owned(), schemas: Mutex::default(), registered: Mutex::default() })
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The schema with this id.
    pub async fn fetch(&self, id: u32) -> Result<Arc<AvroSchema>, RegistryError> {
        if let Some(schema) = lock(&self.schemas).get(&id) {
            return Ok(Arc::clone(schema));
        }
        let found = get_schema_by_id(id, &self.settings).await.map_err(|error| classify(&error, id))?;
        let schema = self.parse(found, id).await?;
        Ok(Arc::clone(lock(&self.schemas).entry(id).or_insert(schema)))
    }

    /// The latest schema of a subject; `None` if the subject has none.
    pub async fn latest(&self, subject: &str) -> Result<Option<Arc<AvroSchema>>, RegistryError> {
        match get_schema_by_subject_and_version(&self.settings, subject, None).await {
            Ok(found) => {
                let id = found.id;
                self.parse(found, id).await.map(Some)
            }
            Err(error) => match classify(&error, 0) {
                RegistryError::Unknown(_) => Ok(None),
                other => Err(other),
            },
        }
    }

    /// Registers a schema (as JSON) under `subject`; the same one again gives the same id.
    pub async fn register(&self, subject: &str, schema: &str) -> Result<u32, RegistryError> {
        let key = (subject.to_owned(), schema.to_owned());
        if let Some(id) = lock(&self.registered).get(&key) {
            return Ok(*id);
        }
        let supplied = SuppliedSchema::new(None, SchemaType::Avro, schema.to_owned());
        let registered = post_schema(&self.settings, subject.to_owned(), supplied).await;
        let id = registered.map_err(|error| match status(&error) {
            Some(409 | 422) => RegistryError::Refused { subject: subject.to_owned(), reason: reason(&error) },
            _ => unavailable(&error),
        })?;
        lock(&self.registered).insert(key, id.id);
        Ok(id.id)
    }

    /// Whether it answers at all.
    pub async fn check(&self) -> Result<(), RegistryError> {
        get_all_subjects(&self.settings).await.map(|_| ()).map_err(|error| unavailable(&error))
    }

    async fn parse(&self, found: RegisteredSchema, id: u32) -> Result<Arc<AvroSchema>, RegistryError> {
        if found.schema_type != SchemaType::Avro {
            return Err(RegistryError::Unusable(id));
        }
        let text = if found.references.is_empty() { found.schema } else { self.inline(found, id).await? };
        parse_schema(&text).map_err(|_| RegistryError::Unusable(id))
    }

    /// The schema with what it refers to written out where it first stands.
    async fn inline(&self, found: RegisteredSchema, id: u32) -> Result<String, RegistryError> {
        let unusable = || RegistryError::Unusable(id);
        let mut root: Json = serde_json::from_str(&found.schema).map_err(|_| unusable())?;
        let mut others: HashMap<String, Json> = HashMap::new();
        let mut open = found.references;
        while let Some(reference) = open.pop() {
            if others.contains_key(&reference.name) {
                continue;
            }
            if others.len() >= MAX_REFERENCES {
                return Err(unusable());
            }
            let found =
                get_referenced_schema(&self.settings, &reference).await.map_err(|error| classify(&error, id))?;
            others.insert(reference.name, serde_json::from_str(&found.schema).map_err(|_| unusable())?);
            open.extend(found.references);
        }
        write_out(&mut root, "", &mut others);
        Ok(root.to_string())
    }
}

/// Replaces the first mention of each of `others` by its definition, in reading order.
fn write_out(of: &mut Json, namespace: &str, others: &mut HashMap<String, Json>) {
    match of {
        Json::String(name) => {
            let full =
                if name.contains('.') || namespace.is_empty() { name.clone() } else { format!("{namespace}.{name}") };
            if let Some(definition) = others.remove(&full).or_else(|| others.remove(name)) {
                *of = definition;
                write_out(of, "", others);
            }
        }
        Json::Array(branches) => branches.iter_mut().for_each(|branch| write_out(branch, namespace, others)),
        Json::Object(object) => {
            let own = object.get("namespace").and_then(Json::as_str).map(str::to_owned);
            let name = object.get("name").and_then(Json::as_str).and_then(|name| name.rsplit_once('.'));
            let namespace = name.map(|(space, _)| space.to_owned()).or(own).unwrap_or_else(|| namespace.to_owned());
            for key in ["type", "items", "values"] {
                if let Some(inner) = object.get_mut(key) {
                    write_out(inner, &namespace, others);
                }
            }
            for field in object.get_mut("fields").and_then(Json::as_array_mut).into_iter().flatten() {
                if let Some(inner) = field.get_mut("type") {
                    write_out(inner, &namespace, others);
                }
            }
        }
        _ => {}
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The HTTP status, which the client tells in words only.
fn status(error: &SRCError) -> Option<u16> {
    let (_, after) = error.error.split_once("failed with status ")?;
    after.split_whitespace().next()?.parse().ok()
}

/// Only the registry's own "no such schema" counts as that: a wrong path answers 404 too.
fn classify(error: &SRCError, id: u32) -> RegistryError {
    let code = error.source().and_then(|e| e.downcast_ref::<RawError>()).map_or(0, |raw| raw.error_code);
    match (status(error), code) {
        (Some(404), 40401..=40403) => RegistryError::Unknown(id),
        _ => unavailable(error),
    }
}

fn unavailable(error: &SRCError) -> RegistryError {
    RegistryError::Unavailable { reason: reason(error) }
}

/// Status and cause, without the address: it may be long, and the user knows it.
fn reason(error: &SRCError) -> String {
    match status(error) {
        Some(401 | 403) => "it denies access: check user name and password".into(),
        Some(404) => "it answers 404: check the url".into(),
        Some(status) => format!("it answers {status}"),
        None => {
            let mut cause = error.source();
            let mut text = "no connection".to_owned();
            while let Some(next) = cause {
                cause = next.source();
                if cause.is_none() {
                    text = next.to_string();
                }
            }
            text
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_written_out_once() {
        let mut root = json!({"type": "record", "name": "a.Person", "fields": [
            {"name": "home", "type": "Address"}, {"name": "work", "type": ["null", "a.Address"]},
            {"name": "tags", "type": {"type": "array", "items": "b.Tag"}}]});
        let address = json!({"type": "record", "name": "Address", "namespace": "a", "fields": [
            {"name": "tag", "type": "b.Tag"}]});
        let tag = json!({"type": "enum", "name": "Tag", "namespace": "b", "symbols": ["x"]});
        let mut others = HashMap::from([("a.Address".to_owned(), address), ("b.Tag".to_owned(), tag)]);
        write_out(&mut root, "", &mut others);
        assert!(others.is_empty());
        assert_eq!(root["fields"][0]["type"]["fields"][0]["type"]["symbols"][0], "x");
        assert_eq!(root["fields"][1]["type"][1], "a.Address");
        assert_eq!(root["fields"][2]["type"]["items"], "b.Tag");
        assert!(parse_schema(&root.to_string()).is_ok());
    }

    #[test]
    fn debug_shows_no_password() {
        let registry = Registry::new("http://127.0.0.1:1", Some(&("u".into(), "tr0ub4dor".into()))).unwrap();
        assert_eq!(format!("{registry:?}"), "Registry(http://127.0.0.1:1)");
    }
}
