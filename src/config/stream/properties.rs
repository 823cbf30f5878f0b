//! librdkafka properties: those that follow from `tls` and `sasl`, and those that a user writes.
//!
//! A user's properties win over our defaults, but for those on which exactly once rests: these are refused, with the
//! reason. Values may be secrets, so none is ever shown.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaConfRes;
use secrecy::{ExposeSecret as _, SecretString};

use super::login::{RawLogins, kerberos};
use crate::config::file::scalar::RawProperty;
use crate::config::file::{self, At, shown};
use crate::config::raw::{RawMechanism, RawSasl, RawTls};

/// Property names and values.
pub(super) type Properties = BTreeMap<String, SecretString>;

/// Which side of the pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientSide {
    /// The consumer.
    Source,
    /// The producer.
    Sink,
}

const PROTOCOL: &str = "security.protocol";

/// The settings that follow from `tls`, by property.
const TLS: [&str; 4] = ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location", KEY_PASSWORD];
pub(super) const KEY_PASSWORD: &str = "ssl.key.password";

/// The settings that follow from `sasl`, by property.
const SASL: [&str; 4] = ["sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"];

/// The beginning of those that follow from `kerberos`.
const KERBEROS: &str = "sasl.kerberos.";

/// Properties that a user may not set, and what to do instead.
const REFUSED: [(&str, &str); 29] = [
    ("bootstrap.servers", "write `brokers`"),
    ("metadata.broker.list", "write `brokers`"),
    ("group.id", "write `group` in the source"),
    ("group.protocol", "write `rebalance` in the source"),
    ("partition.assignment.strategy", "write `rebalance` in the source"),
    ("isolation.level", "records of aborted transactions must not be published; remove it"),
    ("enable.auto.commit", "offsets are committed together with the release; remove it"),
    ("auto.commit.enable", "offsets are committed together with the release; remove it"),
    ("auto.commit.interval.ms", "offsets are committed together with the release; remove it"),
    ("enable.auto.offset.store", "offsets are committed together with the release; remove it"),
    ("auto.offset.reset", "a silent reset loses records or publishes them twice; write `start` and `on_gap`"),
    ("enable.partition.eof", "the source needs it as it is; remove it"),
    ("transactional.id", "write `transactional_id` in the sink"),
    ("transaction.timeout.ms", "write `transaction_timeout` in the sink"),
    ("enable.idempotence", "without it a row could be written twice; remove it"),
    ("enable.gapless.guarantee", "a lost row must fail the transaction as a whole; remove it"),
    ("acks", "a row counts only when all in-sync replicas have it; remove it"),
    ("request.required.acks", "a row counts only when all in-sync replicas have it; remove it"),
    ("retry.backoff.ms", "it tells a commit that was sent once from one sent again; remove it"),
    ("retry.backoff.max.ms", "it tells a commit that was sent once from one sent again; remove it"),
    ("retries", "a failed request must be tried again; remove it"),
    ("message.send.max.retries", "a failed request must be tried again; remove it"),
    ("max.in.flight", "more than five requests at once could write a row twice; remove it"),
    ("max.in.flight.requests.per.connection", "more than five requests at once could write a row twice; remove it"),
    ("queuing.strategy", "rows keep the order of the release; remove it"),
    ("dr_msg_cb", "a configuration cannot hold code; remove it"),
    ("allow.auto.create.topics", "a misspelt topic would be made; create topics yourself, and remove it"),
    ("test.mock.num.brokers", "a pretended cluster publishes nothing; remove it"),
    ("test.mock.broker.rtt", "a pretended cluster publishes nothing; remove it"),
];

/// Beginnings of properties that are about connections: good for the source means good for the sink.
const CONNECTION: [&str; 13] = [
    "api.version.",
    "broker.",
    "client.",
    "connections.",
    "enable.sasl.",
    "enable.ssl.",
    "https.",
    "metadata.",
    "reconnect.",
    "sasl.",
    "security.",
    "socket.",
    "ssl.",
];

/// The properties that are about connections.
pub(super) fn of_connections(all: &Properties) -> Properties {
    let about = |name: &str| CONNECTION.iter().any(|start| name.starts_with(start));
    all.iter().filter(|(name, _)| about(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Puts what follows from `tls` and `sasl` over `inherited`.
pub(super) fn security(
    mut inherited: Properties,
    tls: Option<&RawTls>,
    logins: RawLogins<'_>,
    at: At<'_>,
    base: &Path,
) -> Properties {
    let before = inherited.get(PROTOCOL).map(|p| p.expose_secret().to_ascii_lowercase()).unwrap_or_default();
    if let Some(tls) = tls {
        inherited.retain(|name, _| !TLS.contains(&name.as_str()));
        inherited.extend(tls_properties(tls, at.key("tls"), base));
    }
    if logins.any() {
        inherited.retain(|name, _| !SASL.contains(&name.as_str()));
        inherited.retain(|name, _| !name.starts_with(KERBEROS));
        inherited.extend(logins.sasl.map(|sasl| sasl_properties(sasl, at.key("sasl"))).unwrap_or_default());
        inherited.extend(logins.kerberos.map(|raw| kerberos(raw, at.key("kerberos"), base)).unwrap_or_default());
    }
    if logins.by_token() {
        inherited.insert("sasl.mechanism".into(), "OAUTHBEARER".into());
    }
    if logins.aws.is_some() && tls.is_none() && !before.ends_with("ssl") && !at.lost("tls") {
        at.key("aws").refuse(
            "Amazon MSK takes IAM by TLS only, because a token that is read on the network is a login: add `tls: {}`",
        );
    }
    if tls.is_some() || logins.any() {
        let encrypted = tls.is_some() || before.ends_with("ssl");
        let login = logins.any() || before.starts_with("sasl");
        let protocol = match (encrypted, login) {
            (true, true) => "SASL_SSL",
            (true, false) => "SSL",
            (false, true) => "SASL_PLAINTEXT",
            (false, false) => "PLAINTEXT",
        };
        inherited.insert(PROTOCOL.into(), protocol.into());
    }
    inherited
}

/// Checks `tls`; its files and the key's password by the properties of librdkafka.
pub(super) fn tls_properties(raw: &RawTls, at: At<'_>, base: &Path) -> Properties {
    let mut properties = Properties::new();
    let files = [("ca", TLS[0], &raw.ca), ("certificate", TLS[1], &raw.certificate), ("key", TLS[2], &raw.key)];
    for (key, property, path) in files {
        let Some(path) = path else { continue };
        let (at, full) = (at.key(key), base.join(path));
        let shown = at.show(path.display());
        match fs::read(&full) {
            Err(error) => {
                at.refuse(format!(
                    "{shown} in `tls.{key}` cannot be read ({}): check path and permissions",
                    file::why(&error)
                ));
            }
            Ok(bytes) if !bytes.windows(11).any(|w| w == b"-----BEGIN ") => {
                at.refuse(format!("{shown} in `tls.{key}` is not PEM: convert it"));
            }
            Ok(_) => {
                properties.insert(property.into(), full.to_string_lossy().into_owned().into());
            }
        }
    }
    if raw.certificate.is_some() && raw.key.is_none() && !at.lost("key") {
        at.key("certificate").refuse("`tls.certificate` needs its private key: add `key`");
    }
    if raw.key.is_some() && raw.certificate.is_none() && !at.lost("certificate") {
        at.key("key").refuse("`tls.key` needs its certificate: add `certificate`");
    }
    if let Some(password) = &raw.key_password {
        if raw.key.is_none() && !at.lost("key") {
            at.key("key_password").refuse("`tls.key_password` needs `key`: add it, or remove the password");
        }
        properties.insert(KEY_PASSWORD.into(), password.0.clone());
    }
    properties
}

fn sasl_properties(raw: &RawSasl, at: At<'_>) -> Properties {
    let mut properties = Properties::new();
    let mechanism = raw.mechanism.map(|mechanism| match mechanism {
        RawMechanism::Plain => "PLAIN",
        RawMechanism::ScramSha256 => "SCRAM-SHA-256",
        RawMechanism::ScramSha512 => "SCRAM-SHA-512",
    });
    properties.extend(mechanism.map(|name| ("sasl.mechanism".to_owned(), name.into())));
    if let Some(username) = &raw.username {
        if username.is_empty() {
            at.key("username").refuse("`sasl.username` is empty: write the user's name");
        }
        properties.insert("sasl.username".into(), username.clone().into());
    }
    if let Some(password) = &raw.password {
        if password.0.expose_secret().is_empty() {
            at.key("password").refuse("`sasl.password` is empty: put the password into the variable or the file");
        }
        properties.insert("sasl.password".into(), password.0.clone());
    }
    properties
}

/// The user's own properties, if librdkafka takes them and the promise allows them.
pub(super) fn own(raw: &BTreeMap<String, RawProperty>, at: At<'_>, side: ClientSide) -> Properties {
    let mut properties = Properties::new();
    for (name, value) in raw {
        let at_name = at.key("properties").key(name);
        let lower = name.to_ascii_lowercase();
        let derived = |key: &str, of: &[&str]| at.key(key).is_present() && of.contains(&lower.as_str());
        let reason = REFUSED.iter().find(|(refused, _)| *refused == lower).map(|(_, reason)| *reason);
        let reason = match reason {
            Some(reason) => Some(reason),
            None if derived("tls", &TLS) => Some("it follows from `tls`; remove one of the two"),
            None if derived("oauth", &SASL) => Some("it follows from `oauth`; remove one of the two"),
            None if derived("kerberos", &SASL) => Some("it follows from `kerberos`; remove one of the two"),
            None if derived("aws", &SASL) => Some("it follows from `aws`; remove one of the two"),
            None if derived("sasl", &SASL) => Some("it follows from `sasl`; remove one of the two"),
            None if lower == PROTOCOL
                && ["tls", "sasl", "oauth", "aws", "kerberos"].iter().any(|key| at.key(key).is_present()) =>
            {
                Some("it follows from `tls` and the login; remove it")
            }
            None => None,
        };
        if let Some(reason) = reason {
            at_name.refuse(format!("the property `{}` cannot be set: {reason}", shown(name)));
            continue;
        }
        match ClientConfig::new().set(name, value.0.expose_secret()).create_native_config() {
            Ok(_) => {
                properties.insert(name.clone(), value.0.clone());
            }
            Err(KafkaError::ClientConfig(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, ..)) => {
                at_name.refuse(format!(
                    "librdkafka has no property `{}`: check its name in CONFIGURATION.md",
                    shown(name)
                ));
            }
            // The client's message may quote the value.
            Err(_) => at_name.refuse(format!(
                "librdkafka does not take this value for `{}`: check it in CONFIGURATION.md",
                shown(name)
            )),
        }
    }
    if side == ClientSide::Sink && properties.contains_key("group.instance.id") {
        at.key("properties").refuse("`group.instance.id` belongs to the source: move it there");
    }
    properties
}
