//! A client of a schema registry with Confluent's REST interface: reads schemas by id, registers our own under a subject.
//!
//! Answers are kept, because a schema never changes under its id. Nothing here retries: the caller knows what can wait.
//! Neither messages nor `Debug` show credentials.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use openssl::pkey::PKey;
use openssl::x509::X509;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, TlsProvider, parse_pem};

use super::schemas::{SchemaLanguage, WriterSchema};

/// How long one call may take. Longer: a hanging registry is noticed late. Shorter: a slow one counts as gone.
const CALL: Duration = Duration::from_secs(5);

/// More schemas behind one schema than this are not fetched. Larger: a hostile one keeps us busy. Smaller: honest ones
/// with many shared types are turned away.
const MAX_REFERENCES: usize = 100;

/// The largest answer that is read. Larger: a hostile registry fills the memory. Smaller: long schemas are turned away.
const MAX_ANSWER_BYTES: u64 = 16 << 20;

/// Why the registry gave no answer that helps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// There is no schema with this id.
    #[error("the registry has no schema {0}")]
    Unknown(u32),
    /// There is one, but it is in another language, or does not parse.
    #[error("schema {0} of the registry is not {1}")]
    Unusable(u32, SchemaLanguage),
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
        /// The failure that came instead of an answer.
        reason: String,
    },
}

/// The registry, with what it answered so far.
pub struct Registry {
    agent: ureq::Agent,
    url: String,
    authorization: Option<SecretString>,
    schemas: Mutex<HashMap<(u32, SchemaLanguage), WriterSchema>>,
    registered: Mutex<HashMap<(String, String), u32>>,
}

/// How a registry is reached by TLS: whom it must be signed by (the machine's own authorities, if nothing is said), and our own
/// certificate, if it asks for one.
#[derive(Clone, Default)]
pub struct RegistryTls {
    roots: Option<Vec<Certificate<'static>>>,
    own: Option<ClientCert>,
}

impl fmt::Debug for RegistryTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegistryTls({} roots, certificate {})", self.roots.iter().flatten().count(), self.own.is_some())
    }
}

impl RegistryTls {
    /// Trusts the authorities in this PEM; `None` if there is none in it.
    #[must_use]
    pub fn trusting(self, pem: &[u8]) -> Option<Self> {
        certificates(pem).map(|roots| Self { roots: Some(roots), ..self })
    }

    /// Shows the first certificate of this PEM, with the others behind it. `None` if the key is not its key, or not readable.
    #[must_use]
    pub fn showing(self, pem: &[u8], key: &[u8], password: Option<&SecretString>) -> Option<Self> {
        let chain = certificates(pem)?;
        let password = password.map_or("", |password| password.expose_secret());
        let key = PKey::private_key_from_pem_passphrase(key, password.as_bytes()).ok()?;
        let public = X509::from_der(chain.first()?.der()).ok()?.public_key().ok()?;
        let plain = PrivateKey::from_pem(&key.private_key_to_pem_pkcs8().ok()?).ok()?;
        let own = ClientCert::new_with_certs(&chain, plain);
        public.public_eq(&key).then_some(Self { own: Some(own), ..self })
    }

    fn agent(&self) -> ureq::Agent {
        // OpenSSL is here for Kafka already.
        let roots = self.roots.clone().map_or(RootCerts::PlatformVerifier, RootCerts::from);
        let tls = TlsConfig::builder().provider(TlsProvider::NativeTls).root_certs(roots).client_cert(self.own.clone());
        let agent = ureq::Agent::config_builder().timeout_global(Some(CALL)).http_status_as_error(false);
        agent.tls_config(tls.build()).build().into()
    }
}

fn certificates(pem: &[u8]) -> Option<Vec<Certificate<'static>>> {
    let certificate = |item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    };
    let all: Vec<_> = parse_pem(pem).filter_map(certificate).collect();
    (!all.is_empty()).then_some(all)
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registry({})", self.url)
    }
}

impl Registry {
    /// The registry at `url`. Nothing is sent yet.
    pub fn new(url: &str, credentials: Option<&(String, SecretString)>) -> Self {
        let authorization = credentials.map(|(username, password)| {
            let pair = format!("{username}:{}", password.expose_secret());
            format!("Basic {}", BASE64_STANDARD.encode(pair)).into()
        });
        Self {
            agent: RegistryTls::default().agent(),
            url: url.trim_end_matches('/').to_owned(),
            authorization,
            schemas: Mutex::default(),
            registered: Mutex::default(),
        }
    }

    /// The same registry, reached with a bearer token, if there is one, and by this TLS.
    #[must_use]
    pub fn secured(self, token: Option<&SecretString>, tls: &RegistryTls) -> Self {
        let bearer = token.map(|token| format!("Bearer {}", token.expose_secret()).into());
        Self { authorization: bearer.or(self.authorization), agent: tls.agent(), ..self }
    }

    /// The schema with this id, which must be in this language.
    pub async fn fetch(&self, id: u32, language: SchemaLanguage) -> Result<WriterSchema, RegistryError> {
        let key = (id, language);
        if let Some(schema) = lock(&self.schemas).get(&key) {
            return Ok(schema.clone());
        }
        let found = self.get(format!("schemas/ids/{id}")).await?.schema(id)?;
        let schema = self.parse(found, key).await?;
        Ok(lock(&self.schemas).entry(key).or_insert(schema).clone())
    }

    /// The latest schema of a subject; `None` if the subject has none.
    pub async fn latest(&self, subject: &str, language: SchemaLanguage) -> Result<Option<WriterSchema>, RegistryError> {
        match self.version(subject, "latest").await?.schema(0) {
            Ok(found) => {
                let id = found.id;
                self.parse(found, (id, language)).await.map(Some)
            }
            Err(RegistryError::Unknown(_)) => Ok(None),
            Err(other) => Err(other),
        }
    }

    /// Registers a schema under `subject`; the same one again gives the same id.
    pub async fn register(&self, subject: &str, language: SchemaLanguage, schema: &str) -> Result<u32, RegistryError> {
        let key = (subject.to_owned(), schema.to_owned());
        if let Some(id) = lock(&self.registered).get(&key) {
            return Ok(*id);
        }
        let path = format!("subjects/{}/versions", encoded(subject));
        let body = match language {
            SchemaLanguage::Avro => json!({ "schema": schema }),
            other => json!({ "schema": schema, "schemaType": other.as_str() }),
        };
        let answer = self.call(path, Some(body.to_string())).await?;
        if matches!(answer.status, 409 | 422) {
            return Err(RegistryError::Refused { subject: subject.to_owned(), reason: answer.reason() });
        }
        let id = answer.json()?.get("id").and_then(Json::as_u64).and_then(|id| u32::try_from(id).ok());
        let id = id.ok_or_else(|| answer.unavailable())?;
        lock(&self.registered).insert(key, id);
        Ok(id)
    }

    /// Whether it answers at all.
    pub async fn check(&self) -> Result<(), RegistryError> {
        self.get("subjects".into()).await?.json().map(|_| ())
    }

    async fn version(&self, subject: &str, version: &str) -> Result<Answer, RegistryError> {
        self.get(format!("subjects/{}/versions/{version}", encoded(subject))).await
    }

    async fn get(&self, path: String) -> Result<Answer, RegistryError> {
        self.call(path, None).await
    }

    /// One request, on a thread where blocking is allowed.
    async fn call(&self, path: String, body: Option<String>) -> Result<Answer, RegistryError> {
        let (agent, authorization) = (self.agent.clone(), self.authorization.clone());
        let url = format!("{}/{path}", self.url);
        let answered = tokio::task::spawn_blocking(move || -> Result<Answer, ureq::Error> {
            let authorized = |request: ureq::http::request::Builder| match &authorization {
                Some(secret) => request.header("Authorization", secret.expose_secret()),
                None => request,
            };
            let request = ureq::http::Request::builder().uri(url).header("Accept", MEDIA_TYPE);
            let mut response = match body {
                None => agent.run(authorized(request).method("GET").body(())?)?,
                Some(body) => {
                    let request = authorized(request).method("POST").header("Content-Type", MEDIA_TYPE);
                    agent.run(request.body(body)?)?
                }
            };
            let text = response.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_string()?;
            Ok(Answer { status: response.status().as_u16(), text })
        });
        match answered.await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(RegistryError::Unavailable { reason: cause(&error) }),
            Err(_) => Err(RegistryError::Unavailable { reason: "the request was cut off".into() }),
        }
    }

    async fn parse(&self, found: FoundSchema, key: (u32, SchemaLanguage)) -> Result<WriterSchema, RegistryError> {
        let (id, language) = key;
        let unusable = || RegistryError::Unusable(id, language);
        if found.schema_type != language.as_str() {
            return Err(unusable());
        }
        let others = self.references(found.references, key).await?;
        let mut text = found.schema;
        if language == SchemaLanguage::Avro && !others.is_empty() {
            text = inlined(&text, &others).ok_or_else(unusable)?;
        }
        WriterSchema::parse(language, &text, &others).map_err(|_| unusable())
    }

    /// The texts of all schemas that are referred to, also by one another, by the names under which they are.
    async fn references(
        &self,
        mut open: Vec<Reference>,
        (id, language): (u32, SchemaLanguage),
    ) -> Result<HashMap<String, String>, RegistryError> {
        let mut others: HashMap<String, String> = HashMap::new();
        while let Some(reference) = open.pop() {
            if others.contains_key(&reference.name) {
                continue;
            }
            if others.len() >= MAX_REFERENCES {
                return Err(RegistryError::Unusable(id, language));
            }
            let found = self.version(&reference.subject, &reference.version.to_string()).await?.schema(id)?;
            others.insert(reference.name, found.schema);
            open.extend(found.references);
        }
        Ok(others)
    }
}

/// An Avro schema with what it refers to written out where it first stands.
fn inlined(schema: &str, others: &HashMap<String, String>) -> Option<String> {
    let mut root: Json = serde_json::from_str(schema).ok()?;
    let other = |(name, text): (&String, &String)| Some((name.clone(), serde_json::from_str(text).ok()?));
    write_out(&mut root, "", &mut others.iter().map(other).collect::<Option<_>>()?);
    Some(root.to_string())
}

/// The media type of the registry's interface.
const MEDIA_TYPE: &str = "application/vnd.schemaregistry.v1+json";

/// A schema as the registry tells it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FoundSchema {
    #[serde(default)]
    id: u32,
    schema: String,
    /// Left out where it is Avro.
    #[serde(default = "avro")]
    schema_type: String,
    #[serde(default)]
    references: Vec<Reference>,
}

fn avro() -> String {
    "AVRO".into()
}

/// Another schema that one refers to by name.
#[derive(Deserialize)]
struct Reference {
    name: String,
    subject: String,
    version: u32,
}

/// An answer, of whatever status.
struct Answer {
    status: u16,
    text: String,
}

impl Answer {
    fn json(&self) -> Result<Json, RegistryError> {
        let body = Some(()).filter(|()| self.status == 200).and_then(|()| serde_json::from_str(&self.text).ok());
        body.ok_or_else(|| self.unavailable())
    }

    /// The schema in it. Only the registry's own "no such schema" counts as that: a wrong path answers 404 too.
    fn schema(&self, id: u32) -> Result<FoundSchema, RegistryError> {
        let code = || serde_json::from_str::<Json>(&self.text).ok()?.get("error_code")?.as_u64();
        if self.status == 404 && matches!(code(), Some(40401..=40403)) {
            return Err(RegistryError::Unknown(id));
        }
        serde_json::from_value(self.json()?).map_err(|_| self.unavailable())
    }

    fn unavailable(&self) -> RegistryError {
        RegistryError::Unavailable { reason: self.reason() }
    }

    /// The meaning of the status, without the address: it may be long, and the user knows it.
    fn reason(&self) -> String {
        match self.status {
            401 | 403 => "it denies access: check user name and password, or the token".into(),
            404 => "it answers 404: check the url".into(),
            200 => "its answer cannot be read".into(),
            status => format!("it answers {status}"),
        }
    }
}

/// The innermost cause, without the address.
fn cause(error: &ureq::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// A subject as one step of a path.
fn encoded(subject: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    subject.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
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
        assert!(crate::codec::avro::parse_schema(&root.to_string()).is_ok());
    }

    #[test]
    fn debug_shows_no_password() {
        let registry = Registry::new("http://127.0.0.1:1", Some(&("u".into(), "tr0ub4dor".into())));
        assert_eq!(format!("{registry:?}"), "Registry(http://127.0.0.1:1)");
    }
}
