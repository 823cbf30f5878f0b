//! Logins by token (SASL OAUTHBEARER): every client gets its tokens here, by the callback of its context.
//!
//! librdkafka asks for a token when a client is made and again after four fifths of its lifetime, in an event that is served by polling.
//! So a client that nobody polls gets none: [`keep_fresh`] polls a producer that is idle or in a call, and [`reader`] waits for the
//! first token of a consumer. Administrative clients cannot be polled at all; `config` refuses what would need one.
//!
//! - [`Oidc`]: a token endpoint, asked with the client's credentials (RFC 6749, section 4.4).
//! - [`Aws`]: MSK IAM. The token is a signed address (signature version 4), which needs no endpoint.
//!
//! Invariant: neither tokens nor secrets are in an error, a log line or `Debug`.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use openssl::error::ErrorStack;
use openssl::hash::{MessageDigest, hash};
use openssl::pkey::PKey;
use openssl::sign::Signer;
use rdkafka::client::OAuthToken;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, ProducerContext};
use rdkafka::{ClientConfig, ClientContext};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

/// The time for one request for a token. Larger: polling stands still for longer when the endpoint hangs. Smaller: a slow one counts as
/// gone.
const ASK: Duration = Duration::from_secs(5);
/// The largest answer that is read. Larger: a hostile endpoint fills the memory. Smaller: honest tokens are turned away.
const MAX_ANSWER_BYTES: u64 = 1 << 20;
/// The lifetime of a token whose endpoint tells none. Larger: brokers refuse it before it is renewed. Smaller: more requests.
const LIFETIME: Duration = Duration::from_secs(300);
/// The lifetime of an AWS token: the longest that brokers take. Smaller: more reconnections.
const AWS_LIFETIME: Duration = Duration::from_secs(900);
/// The wait of one poll for tokens. Larger: a client that is dropped lives on for longer. Smaller: wakes up more often.
const POLL: Duration = Duration::from_millis(100);
/// The time in which a consumer should have its first token. Larger: a hang is noticed late. Smaller: a slow endpoint costs an attempt.
const FIRST_TOKEN: Duration = Duration::from_secs(10);

/// The key of the configuration that a login is under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginKey {
    /// `sasl`: a password, or a login that the user writes as properties.
    Sasl,
    /// `oauth`.
    OAuth,
    /// `aws`.
    Aws,
    /// `kerberos`.
    Kerberos,
}

/// How tokens are made.
pub enum Login {
    /// By a token endpoint.
    Oidc(Oidc),
    /// By a signature with AWS credentials.
    Aws(Aws),
}

/// The credentials of a client, and the endpoint that gives tokens for them.
pub struct Oidc {
    /// The address of the endpoint.
    pub endpoint: String,
    /// The name of the client.
    pub client_id: String,
    /// Its secret.
    pub client_secret: SecretString,
    /// The scope to ask for.
    pub scope: Option<String>,
    /// The authority that signs the endpoint's certificate, in PEM; that of the system if there is none.
    pub ca: Option<Vec<u8>>,
}

/// AWS credentials.
pub struct Aws {
    /// The region of the cluster.
    pub region: String,
    /// The name of the key.
    pub access_key_id: String,
    /// The key.
    pub secret_access_key: SecretString,
    /// The session, for temporary credentials.
    pub session_token: Option<SecretString>,
}

/// The reason why there is no token.
#[derive(Debug, thiserror::Error)]
enum LoginError {
    #[error("the token endpoint cannot be reached ({0})")]
    Unreachable(String),
    #[error("the token endpoint answers {0}: check `client_id`, `client_secret` and `scope` under `oauth`")]
    Denied(u16),
    #[error("the answer of the token endpoint holds no token")]
    Unreadable,
    #[error("the address cannot be signed")]
    Unsigned(#[from] ErrorStack),
    #[error("the client has no token login")]
    NotConfigured,
}

/// The answer of a token endpoint.
#[derive(Deserialize)]
struct Answer {
    access_token: String,
    expires_in: Option<f64>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Oidc(oidc) => write!(f, "Oidc({})", oidc.endpoint),
            Self::Aws(aws) => write!(f, "Aws({})", aws.region),
        }
    }
}

impl Login {
    fn token(&self) -> Result<OAuthToken, LoginError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        match self {
            Self::Oidc(oidc) => oidc.token(now),
            Self::Aws(aws) => aws.token(now),
        }
    }
}

/// The token for a client's callback.
pub fn token(login: Option<&Arc<Login>>) -> Result<OAuthToken, Box<dyn Error>> {
    let token = login.ok_or(LoginError::NotConfigured).and_then(|login| login.token());
    token.map_err(|error| {
        tracing::warn!(%error, "no token for the cluster; trying again");
        error.into()
    })
}

impl Oidc {
    fn token(&self, now: Duration) -> Result<OAuthToken, LoginError> {
        let roots = match self.ca.as_deref().and_then(|pem| Certificate::from_pem(pem).ok()) {
            Some(ca) => RootCerts::from(vec![ca]),
            None => RootCerts::PlatformVerifier,
        };
        let tls = TlsConfig::builder().provider(TlsProvider::NativeTls).root_certs(roots).build();
        let agent = ureq::Agent::config_builder().timeout_global(Some(ASK)).http_status_as_error(false);
        let agent: ureq::Agent = agent.tls_config(tls).build().into();
        let scope = self.scope.as_ref().map(|scope| format!("&scope={}", encoded(scope))).unwrap_or_default();
        let pair = format!("{}:{}", encoded(&self.client_id), encoded(self.client_secret.expose_secret()));
        let request = agent
            .post(&self.endpoint)
            .header("Authorization", format!("Basic {}", BASE64_STANDARD.encode(pair)))
            .header("Accept", "application/json")
            .header("Content-Type", "application/x-www-form-urlencoded");
        // The kind of a failure says enough, and cannot quote what was sent.
        let unreachable = |error: ureq::Error| LoginError::Unreachable(kind(&error).to_owned());
        let mut answer = request.send(format!("grant_type=client_credentials{scope}")).map_err(unreachable)?;
        if answer.status() != 200 {
            return Err(LoginError::Denied(answer.status().as_u16()));
        }
        let text = answer.body_mut().with_config().limit(MAX_ANSWER_BYTES).read_to_string().map_err(unreachable)?;
        let answer: Answer = serde_json::from_str(&text).map_err(|_| LoginError::Unreadable)?;
        if answer.access_token.is_empty() || answer.access_token.contains('\0') {
            return Err(LoginError::Unreadable);
        }
        let lifetime = answer.expires_in.filter(|seconds| (0.0..1e9).contains(seconds));
        let lifetime = lifetime.map_or(LIFETIME, Duration::from_secs_f64);
        Ok(OAuthToken {
            token: answer.access_token,
            principal_name: self.client_id.clone(),
            lifetime_ms: (now + lifetime).as_millis() as i64,
        })
    }
}

impl Aws {
    fn token(&self, now: Duration) -> Result<OAuthToken, LoginError> {
        let address = format!("{}&User-Agent=veilstream", self.signed_address(now)?);
        Ok(OAuthToken {
            token: BASE64_URL_SAFE_NO_PAD.encode(address),
            principal_name: self.access_key_id.clone(),
            lifetime_ms: (now + AWS_LIFETIME).as_millis() as i64,
        })
    }

    /// The address that connects to a cluster of the region, signed by its query (AWS signature version 4).
    fn signed_address(&self, now: Duration) -> Result<String, ErrorStack> {
        let host = format!("kafka.{}.amazonaws.com", self.region);
        let (day, time) = moment(now);
        let scope = format!("{day}/{}/kafka-cluster/aws4_request", self.region);
        let query = format!(
            "Action=kafka-cluster%3AConnect&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={}&X-Amz-Date={time}&X-Amz-Expires={}",
            encoded(&format!("{}/{scope}", self.access_key_id)),
            AWS_LIFETIME.as_secs(),
        );
        let session = self.session_token.as_ref().map(|token| encoded(token.expose_secret()));
        let session = session.map(|token| format!("&X-Amz-Security-Token={token}")).unwrap_or_default();
        let headers = "&X-Amz-SignedHeaders=host";
        // Signed in the order of the names.
        let request = format!("GET\n/\n{query}{session}{headers}\nhost:{host}\n\nhost\n{}", hex(&sha256(b"")?));
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex(&sha256(request.as_bytes())?));
        let mut key = format!("AWS4{}", self.secret_access_key.expose_secret()).into_bytes();
        for part in [day.as_str(), &self.region, "kafka-cluster", "aws4_request", &text] {
            key = hmac(&key, part)?;
        }
        Ok(format!("https://{host}/?{query}{headers}{session}&X-Amz-Signature={}", hex(&key)))
    }
}

/// Day and second in AWS's notation: `20260102` and `20260102T030405Z`.
fn moment(now: Duration) -> (String, String) {
    let now = jiff::Timestamp::from_second(now.as_secs() as i64).unwrap_or_default();
    let now = now.to_zoned(jiff::tz::TimeZone::UTC);
    (now.strftime("%Y%m%d").to_string(), now.strftime("%Y%m%dT%H%M%SZ").to_string())
}

fn sha256(data: &[u8]) -> Result<Vec<u8>, ErrorStack> {
    hash(MessageDigest::sha256(), data).map(|digest| digest.to_vec())
}

fn hmac(key: &[u8], text: &str) -> Result<Vec<u8>, ErrorStack> {
    let key = PKey::hmac(key)?;
    let mut signer = Signer::new(MessageDigest::sha256(), &key)?;
    signer.update(text.as_bytes())?;
    signer.sign_to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A text as part of a query.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

fn kind(error: &ureq::Error) -> &'static str {
    match error {
        ureq::Error::Timeout(_) => "no answer in time",
        ureq::Error::HostNotFound => "its host is not known",
        ureq::Error::Tls(_) | ureq::Error::NativeTls(_) | ureq::Error::Pem(_) => "tls: check `oauth.ca`",
        ureq::Error::Io(_) | ureq::Error::ConnectionFailed => "no connection",
        _ => "no usable answer",
    }
}

/// The context of a client without callbacks of its own.
#[derive(Debug, Default)]
pub struct TokenContext {
    login: Option<Arc<Login>>,
    has_token: AtomicBool,
}

impl TokenContext {
    /// For clients of a cluster with this login.
    pub fn new(login: Option<&Arc<Login>>) -> Self {
        Self { login: login.cloned(), has_token: AtomicBool::new(false) }
    }
}

impl ClientContext for TokenContext {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, _level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(facility, message, "librdkafka");
    }

    /// Who calls the client reports its errors.
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "librdkafka");
    }

    fn generate_oauth_token(&self, _config: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        let token = token(self.login.as_ref())?;
        self.has_token.store(true, Ordering::SeqCst);
        Ok(token)
    }
}

impl ConsumerContext for TokenContext {}

/// A consumer outside the group.
pub fn reader(settings: &ClientConfig, login: Option<&Arc<Login>>) -> Result<BaseConsumer<TokenContext>, KafkaError> {
    let consumer: BaseConsumer<TokenContext> = settings.create_with_context(TokenContext::new(login))?;
    let asked = Instant::now();
    while login.is_some() && !consumer.context().has_token.load(Ordering::SeqCst) && asked.elapsed() < FIRST_TOKEN {
        let _ = consumer.poll(POLL);
    }
    Ok(consumer)
}

/// Renews the tokens of a producer until it is dropped, also while it is idle or in a call.
pub fn keep_fresh<C: ProducerContext + 'static>(producer: &Arc<BaseProducer<C>>, login: Option<&Arc<Login>>) {
    if login.is_none() {
        return;
    }
    let producer = Arc::downgrade(producer);
    let run = move || {
        while let Some(producer) = producer.upgrade() {
            producer.poll(POLL);
            drop(producer);
            std::thread::sleep(POLL);
        }
    };
    // Without the thread the first connection fails, and says why.
    let _ = std::thread::Builder::new().name("tokens".into()).spawn(run);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `aws-msk-iam-sasl-signer-python` 1.0.2 and botocore sign for the same time and keys, without the user agent.
    #[test]
    fn an_aws_token_is_that_of_the_official_signer() {
        let aws = |session: Option<&str>| Aws {
            region: "eu-central-1".into(),
            access_key_id: "AKIDEXAMPLE".into(),
            secret_access_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
            session_token: session.map(SecretString::from),
        };
        let now = Duration::from_secs(1_767_323_045);
        assert_eq!(moment(now).1, "20260102T030405Z");
        let signed = |session| aws(session).signed_address(now).unwrap();
        assert_eq!(signed(None), OFFICIAL);
        assert_eq!(signed(Some("se/ssion+token==")), OFFICIAL_WITH_SESSION);
        assert!(!format!("{:?}", Login::Aws(aws(None))).contains("wJalr"));
    }

    const OFFICIAL: &str = "https://kafka.eu-central-1.amazonaws.com/?Action=kafka-cluster%3AConnect&X-Amz-Algorithm=AWS4-HMAC-SHA256\
         &X-Amz-Credential=AKIDEXAMPLE%2F20260102%2Feu-central-1%2Fkafka-cluster%2Faws4_request&X-Amz-Date=20260102T030405Z&X-Amz-Expires=900\
         &X-Amz-SignedHeaders=host&X-Amz-Signature=00629abe90095b91c1a9e460b67a01a8e4e7499b99f571276b99dd9258dd65e5";
    const OFFICIAL_WITH_SESSION: &str = "https://kafka.eu-central-1.amazonaws.com/?Action=kafka-cluster%3AConnect&X-Amz-Algorithm=AWS4-HMAC-SHA256\
         &X-Amz-Credential=AKIDEXAMPLE%2F20260102%2Feu-central-1%2Fkafka-cluster%2Faws4_request&X-Amz-Date=20260102T030405Z&X-Amz-Expires=900\
         &X-Amz-SignedHeaders=host&X-Amz-Security-Token=se%2Fssion%2Btoken%3D%3D&X-Amz-Signature=6e54dbda25ee22e570f104fa8f5b7931ddaadc63de6a7464ce4a893a8340629d";
}
