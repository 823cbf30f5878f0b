//! `source.kafka` and `sink.kafka` as written.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::file::scalar::{RawDuration, RawProperty, RawSecret};
use crate::kafka::client::{BadStart, OnGap, Rebalance, Start};
use crate::model::words;

/// Topics to read, in a consumer group. Offsets are committed together with the releases, never on their own.
///
/// A message without a payload is a tombstone. It is rejected, and it retracts records that wait: they are suppressed. In its
/// own partition it retracts the records before it that have its key. Where the policy has a `subject`, it also retracts those
/// of the subject that its key names as plain text, in every partition of the same windows. A window that has closed is not
/// called back; the log names the release from which on they are gone. Key the topic by the person, so that one instance
/// reads both.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["brokers", "group"], "x-section" = true))]
pub(crate) struct RawKafkaSource {
    /// Bootstrap addresses, such as `localhost:9092`; a text with commas, or a list.
    pub brokers: Option<RawBrokers>,
    /// The topics to read; all hold records of one policy. Required, unless `topic` is given. A name with `*` is a pattern: `people-*`
    /// is every topic whose name begins so. Topics that come later are found within 30 s and read from where `start` says; with
    /// `rebalance: range` all windows start over then. A topic that is named is read by its own entry, any other by the first pattern
    /// that it fits.
    pub topics: Option<Vec<RawTopic>>,
    /// The topic to read, if it is only one.
    pub topic: Option<String>,
    /// The consumer group; instances of one group share the partitions. Also the first part of every release id.
    pub group: Option<String>,
    /// How messages are encoded. Default: `json`.
    pub format: Option<RawMessageFormat>,
    /// The envelope around the row in a message. Default: none.
    pub envelope: Option<RawEnvelope>,
    /// The array that holds a record in each element, such as `items`: fields of an element are named below it (`items.sku`), all
    /// others belong to each of its records. A message has one outcome and is counted once: it is published if one of its records
    /// is, and rejected if one of them is. Needs `policy.subject`; not with `hold`, `sequential` or `sliding`. Default: none.
    pub explode: Option<String>,
    /// With `format: avro`: the file with the schema that all messages were written with.
    pub schema: Option<PathBuf>,
    /// With `format: protobuf`: the file with the descriptors of all messages, as `protoc --include_imports --descriptor_set_out` writes
    /// it.
    pub descriptor: Option<PathBuf>,
    /// With `format: protobuf`: the type of all messages, with its package.
    pub message: Option<String>,
    /// With `confluent-avro`, `confluent-protobuf` and `confluent-json`: where the schemas come from.
    pub registry: Option<RawRegistry>,
    /// Where to start where the group has committed nothing. Default: `earliest`, so that no record is passed over.
    pub start: Start,
    /// The reaction where retention has deleted records that were not read yet. Default: `stop`, so that somebody knows.
    pub on_gap: OnGap,
    /// The reaction if every message of the first window is turned away. Default: `stop`, before any offset has moved: the topic or the
    /// format may be another one than is meant. With `reject` they are rejected by position, as later ones are. A field that no record
    /// has stops the service all the same.
    pub bad_start: BadStart,
    /// The partitions that move when a member of the group comes or goes. Default: `range`. The others keep the open windows of members whose
    /// partitions stay, and need tumbling windows without `policy.sequential`. All members of a group write the same; to change
    /// it, stop all of them first.
    pub rebalance: Rebalance,
    /// Encrypts the connections. Default: absent, they are in clear.
    pub tls: Option<RawTls>,
    /// Logs in by password. Default: absent, no login.
    pub sasl: Option<RawSasl>,
    /// Logs in by tokens of a token endpoint (OAUTHBEARER). Default: absent.
    pub oauth: Option<RawOAuth>,
    /// Logs in to Amazon MSK by IAM. Default: absent.
    pub aws: Option<RawAws>,
    /// Logs in by Kerberos (GSSAPI). Default: absent.
    pub kerberos: Option<RawKerberos>,
    /// Any librdkafka property, by its own name; wins over our defaults. Those that would break the promise are refused.
    pub properties: BTreeMap<String, RawProperty>,
}

/// A topic to read: its name, or a mapping.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum RawTopic {
    /// Its fields are those of the policy.
    Name(String),
    /// With fields of its own.
    Placed(RawPlacedTopic),
}

impl RawTopic {
    /// Its name, or a pattern.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Name(name) | Self::Placed(RawPlacedTopic { name, .. }) => name,
        }
    }
}

/// A topic whose records have fields in other places than the policy says.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawPlacedTopic {
    /// Its name, or a pattern.
    pub name: String,
    /// The fields that it has elsewhere: the path in the policy, and the path in its records. Releases use the policy's. Default: none.
    #[serde(default)]
    pub fields: BTreeMap<String, String>,
    /// The array of its records that holds a record in each element. Default: as in the source.
    #[serde(default)]
    pub explode: Option<String>,
}

/// The envelope around the row in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RawEnvelope {
    /// Change events of Debezium, with or without their schema part. The policy names the fields of the row (`born`, not
    /// `after.born`). A row that was created, read or updated is a record; `before` is not read. A delete retracts records that
    /// wait under its key, as a tombstone does. Transaction markers, heartbeats and truncates are rejected as `no_row`. Needs
    /// `policy.subject`, because an update is one more record of the same person.
    Debezium,
}

/// Topics to write, each release in one transaction together with the offsets that it finishes.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["topic"], "x-section" = true))]
pub(crate) struct RawKafkaSink {
    /// Other addresses of the source's cluster, or with `progress` another cluster. Default: the source's.
    pub brokers: Option<RawBrokers>,
    /// Where the output is in another cluster than the input: the first part of the names of the progress topics there. For each topic
    /// of the input there is one, `NAME-TOPIC`, with as many partitions and without messages. The group shares them out and keeps
    /// its offsets for them, so that offsets and rows are one transaction in the output's cluster; the input's cluster knows no
    /// group. Of `tls`, `sasl`, `oauth`, `aws` and `properties` the sink then takes nothing over from the source. Delete them with the
    /// input's topic if you make that anew. Default: none, input and output are in one cluster.
    pub progress: Option<String>,
    /// Where the rows go.
    pub topic: Option<String>,
    /// Where the release manifests go, or `none`. Default: the topic's name and `-manifests`.
    pub manifests: Option<String>,
    /// Where positions and codes of rejected records go, or `none`. Default: the topic's name and `-dead-letters`.
    pub dead_letters: Option<String>,
    /// The topic that tells operators which records each release finished, by position and never by value, or `none`.
    /// Let only operators read it: positions of single records tell which of them were held. With `policy.sequential` or
    /// `window.sliding` it also says which records a release shows, so that an instance that takes over knows who was published.
    /// Default: the topic's name and `-journal`.
    pub journal: Option<String>,
    /// Names this instance to the brokers. Must stay the same when the instance starts again, so that what it left open is
    /// ended, and must be another one on every instance of the group: of two with the same id the older one is fenced
    /// and stops. Default: the group, `-`, and the host's name, which is right for one instance per host or container.
    pub transactional_id: Option<String>,
    /// How long a transaction may stay open before the broker aborts it; longer than a release takes to publish, between
    /// 10s and 15m. Default: 60s. Longer: readers wait longer for what a dead instance left open.
    pub transaction_timeout: Option<RawDuration>,
    /// How messages are encoded. Default: as in the source.
    pub format: Option<RawMessageFormat>,
    /// Makes topics of the output that are missing when the service starts: rows with as many partitions as the input has, the
    /// others with one, and as many replicas as the brokers' default. Progress topics also grow with the input. Topics of the input are never made. Default: false, a
    /// missing topic ends the start with an error.
    pub create_topics: bool,
    /// With `confluent-avro`, `confluent-protobuf` and `confluent-json`: where the output's schema is registered, under the topic's name and
    /// `-value`.
    /// Default: the source's.
    pub registry: Option<RawRegistry>,
    /// Encrypts the connections. Default: as in the source.
    pub tls: Option<RawTls>,
    /// Logs in by password. Default: as in the source.
    pub sasl: Option<RawSasl>,
    /// Logs in by tokens of a token endpoint (OAUTHBEARER). Default: as in the source.
    pub oauth: Option<RawOAuth>,
    /// Logs in to Amazon MSK by IAM. Default: as in the source.
    pub aws: Option<RawAws>,
    /// Logs in by Kerberos (GSSAPI). Default: as in the source.
    pub kerberos: Option<RawKerberos>,
    /// Any librdkafka property, by its own name; wins over our defaults. Those that would break the promise are refused.
    /// The source's properties that are about connections count here too.
    pub properties: BTreeMap<String, RawProperty>,
}

/// Addresses: one text, or a list.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum RawBrokers {
    /// Separated by commas.
    Text(String),
    /// One by one.
    List(Vec<String>),
}

words! {
    /// How messages are encoded.
    pub enum RawMessageFormat {
        /// A JSON object per message.
        Json = "json",
        /// A plain Avro datum per message. In the source they are all of one `schema`.
        Avro = "avro",
        /// Avro behind a schema id, with schemas from a `registry`.
        ConfluentAvro = "confluent-avro",
        /// A plain Protobuf message per message. In the source they are all of one type, see `descriptor`.
        Protobuf = "protobuf",
        /// Protobuf behind a schema id, with schemas from a `registry`. Manifests and dead letters are plain JSON.
        ConfluentProtobuf = "confluent-protobuf",
        /// JSON behind a schema id, with JSON Schemas from a `registry`. Manifests and dead letters are plain JSON.
        ConfluentJson = "confluent-json",
    }
}

/// A schema registry with Confluent's REST interface.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["url"], "x-section" = true))]
pub(crate) struct RawRegistry {
    /// Its base address, such as `http://localhost:8081`.
    pub url: Option<String>,
    /// The user name for basic authentication. Default: none.
    pub username: Option<String>,
    /// The password; from `${file:PATH}` or `${NAME}`. Default: none.
    pub password: Option<RawSecret>,
    /// A bearer token instead; from `${file:PATH}` or `${NAME}`. It is not renewed. Default: none.
    pub token: Option<RawSecret>,
    /// The authorities that sign its certificate, and our own certificate if it asks for one. Default: the system's authorities, and none.
    pub tls: Option<RawTls>,
}

/// Encryption. `tls: {}` is enough where the brokers' certificates are from a public authority.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawTls {
    /// The file with the authorities that sign the brokers' certificates, in PEM. Default: those of the system.
    pub ca: Option<PathBuf>,
    /// The file with our own certificate, in PEM, for brokers that ask for one. Default: none.
    pub certificate: Option<PathBuf>,
    /// The file with our own private key, in PEM. Needs `certificate`.
    pub key: Option<PathBuf>,
    /// The password of the private key; from `${file:PATH}` or `${NAME}`. Default: none.
    pub key_password: Option<RawSecret>,
}

/// A login. Without `tls` it crosses the network in clear, with `plain` the password does too.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["mechanism", "username", "password"], "x-section" = true))]
pub(crate) struct RawSasl {
    /// How the password is proven.
    pub mechanism: Option<RawMechanism>,
    /// The user name.
    pub username: Option<String>,
    /// The password; from `${file:PATH}` or `${NAME}`.
    pub password: Option<RawSecret>,
}

/// A login by tokens (SASL OAUTHBEARER), with OpenID Connect's client credentials. Tokens are fetched when a client starts and renewed
/// before they expire. `create_topics` does not go with it.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["token_endpoint", "client_id", "client_secret"], "x-section" = true))]
pub(crate) struct RawOAuth {
    /// The address that gives tokens, such as `https://login.example.com/oauth2/token`.
    pub token_endpoint: Option<String>,
    /// The name of the client.
    pub client_id: Option<String>,
    /// Its secret; from `${file:PATH}` or `${NAME}`.
    pub client_secret: Option<RawSecret>,
    /// The scope to ask for. Default: none.
    pub scope: Option<String>,
    /// The file with the authority that signs the endpoint's certificate, in PEM. Default: those of the system.
    pub ca: Option<PathBuf>,
}

/// A login to Amazon MSK by IAM: a token that is signed with AWS credentials. Needs `tls: {}`. `create_topics` does not go with it.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["region", "access_key_id", "secret_access_key"], "x-section" = true))]
pub(crate) struct RawAws {
    /// The region of the cluster, such as `eu-central-1`.
    pub region: Option<String>,
    /// The name of the access key, such as `${AWS_ACCESS_KEY_ID}`.
    pub access_key_id: Option<String>,
    /// The access key; from `${file:PATH}` or `${AWS_SECRET_ACCESS_KEY}`.
    pub secret_access_key: Option<RawSecret>,
    /// The session of temporary credentials, such as `${AWS_SESSION_TOKEN}`. They are not renewed. Default: none.
    pub session_token: Option<RawSecret>,
}

/// A login by Kerberos (SASL GSSAPI): a ticket for the keys of a file. `kinit` gets it when a client starts and renews it every minute.
/// Only in a build with the feature `kerberos`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("required" = ["principal", "keytab"], "x-section" = true))]
pub(crate) struct RawKerberos {
    /// The client's own name, such as `veilstream/host.example.com@EXAMPLE.COM`.
    pub principal: Option<String>,
    /// The file with our keys.
    pub keytab: Option<PathBuf>,
    /// The first part of the brokers' principals. Default: `kafka`.
    pub service: Option<String>,
}

/// How the password is proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum RawMechanism {
    /// The password itself is sent.
    #[serde(rename = "plain")]
    Plain,
    /// Challenge and response over SHA-256.
    #[serde(rename = "scram-sha-256")]
    ScramSha256,
    /// Challenge and response over SHA-512.
    #[serde(rename = "scram-sha-512")]
    ScramSha512,
}
