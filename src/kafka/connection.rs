//! Connections to the cluster: patience with one that does not answer, and what librdkafka says about them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::client::Client;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::client::Cluster;
use super::client::login::LoginKey;
use super::progress::found::AssignmentFault;

/// The time limit of one question to a broker. Larger: a broker that is gone is noticed late. Smaller: a busy one counts as gone.
pub const ASK: Duration = Duration::from_secs(10);
/// The time for which an assignment keeps asking. Larger: the group expels the instance for not polling (`max.poll.interval.ms`,
/// 5 minutes by default). Smaller: a short outage ends the process.
const ASSIGN_PATIENCE: Duration = Duration::from_secs(90);
/// The pause between two questions. Larger: an assignment starts late. Smaller: the log fills with warnings.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// The time for which an error is not reported again. Larger: nobody sees that it goes on. Smaller: it hides the rest of the
/// log, because librdkafka reports an error at every attempt, many times a second.
const QUIET: Duration = Duration::from_secs(30);

/// Asks again while the cluster does not answer.
pub fn patiently<T>(ask: impl Fn() -> Result<T, KafkaError>) -> Result<T, AssignmentFault> {
    let started = Instant::now();
    loop {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(error) if started.elapsed() > ASSIGN_PATIENCE => {
                return Err(AssignmentFault::Unavailable(error.to_string()));
            }
            Err(error) => {
                tracing::warn!(%error, "the cluster does not answer, asking again");
                std::thread::sleep(ASK_AGAIN);
            }
        }
    }
}

/// The code of an error, also of one that a transaction call returns.
pub fn code(error: &KafkaError) -> Option<RDKafkaErrorCode> {
    match error {
        KafkaError::Transaction(inner) => Some(inner.code()),
        other => other.rdkafka_error_code(),
    }
}

/// The advice for an output that turns out to be in another cluster than the input.
pub const TWO_CLUSTERS: &str = "source and sink are two clusters, and a transaction cannot span them: use one, or name the progress \
                                topics in the output's cluster by `progress` under `sink.kafka`";

/// True if these clients are known to be in two clusters.
pub fn are_two<A: ClientContext, B: ClientContext>(one: &Client<A>, other: &Client<B>) -> bool {
    one.fetch_cluster_id(ASK).zip(other.fetch_cluster_id(ASK)).is_some_and(|(one, other)| one != other)
}

/// Writes librdkafka's log lines to ours. They speak of brokers, topics and offsets, never of a record. Connections that fail are
/// reported by [`Voice`], once in a while and with advice.
pub fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        _ if facility == "FAIL" => tracing::debug!(facility, message, "librdkafka"),
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical | RDKafkaLogLevel::Error => {
            tracing::warn!(facility, message, "librdkafka");
        }
        _ => tracing::debug!(facility, message, "librdkafka"),
    }
}

/// True for connection errors that asking again does not mend.
pub fn is_decided(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(code, Code::Authentication | Code::SaslAuthenticationFailed | Code::SSL | Code::Resolve)
}

/// True for errors of a cluster that is not there, or not there yet.
fn is_unreachable(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(code, Code::AllBrokersDown | Code::BrokerTransportFailure | Code::OperationTimedOut)
}

/// The advice for a connection that does not come about, in words of our configuration; `login` is the key of the login.
pub fn remedy(code: Option<RDKafkaErrorCode>, login: LoginKey) -> &'static str {
    use RDKafkaErrorCode as Code;
    match code {
        Some(Code::SSL) => {
            "check `tls.ca`, `tls.certificate`, the host names in `brokers`, and that no certificate has expired"
        }
        Some(Code::Authentication | Code::SaslAuthenticationFailed) => match login {
            LoginKey::Sasl => "check user name, password and mechanism under `sasl`, and that the port takes them",
            LoginKey::OAuth => {
                "check the client and the `scope` under `oauth`, which issuer and audience the brokers accept, and that the port takes \
                 OAUTHBEARER"
            }
            LoginKey::Aws => {
                "check `region` and keys under `aws`, the policy of their user, and that the port takes IAM"
            }
            LoginKey::Kerberos => {
                "check `principal`, `keytab` and `service` under `kerberos`, the clocks, and that the port takes GSSAPI"
            }
        },
        Some(Code::Resolve) => "check the host names in `brokers`",
        // Without a ticket nothing is tried.
        _ if matches!(login, LoginKey::Kerberos) => {
            "check `brokers`, and `principal` and `keytab` under `kerberos`: what `kinit` says is above"
        }
        _ => {
            "check `brokers`, whether the port wants `tls`, a client certificate, or `sasl`, and that no certificate has expired"
        }
    }
}

/// The errors that clients have reported of late, by the addresses of their cluster.
#[derive(Debug, Default)]
pub struct Complaints(Mutex<Vec<(String, Option<RDKafkaErrorCode>, Instant)>>);

impl Complaints {
    /// True if this error was not reported of late; then it counts as reported. A cluster that cannot be reached is one error,
    /// whichever client notices it.
    fn is_news(&self, brokers: &str, error: &KafkaError, now: Instant) -> bool {
        let code = code(error);
        let code = if code.is_some_and(is_unreachable) { Some(RDKafkaErrorCode::AllBrokersDown) } else { code };
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|(_, _, at)| now.saturating_duration_since(*at) < QUIET);
        let news = said.iter().all(|(whose, said, _)| (whose.as_str(), *said) != (brokers, code));
        if news {
            said.push((brokers.to_owned(), code, now));
        }
        news
    }
}

/// Reports the errors of one client.
#[derive(Debug)]
pub struct Voice {
    complaints: Arc<Complaints>,
    client: &'static str,
    brokers: String,
    login: LoginKey,
}

impl Voice {
    /// For a client of a cluster.
    pub fn new(complaints: &Arc<Complaints>, client: &'static str, cluster: &Cluster) -> Self {
        Self {
            complaints: Arc::clone(complaints),
            client,
            brokers: cluster.brokers.clone(),
            login: cluster.login_key(),
        }
    }

    /// The addresses of its cluster.
    pub fn brokers(&self) -> &str {
        &self.brokers
    }

    /// Reports an error, with its reason if there is more to say than its name, unless it was reported of late.
    pub fn say(&self, error: &KafkaError, reason: &str) {
        let (brokers, client) = (&self.brokers, self.client);
        if !self.complaints.is_news(brokers, error, Instant::now()) {
            return;
        }
        match code(error) {
            Some(code) if is_unreachable(code) => {
                tracing::warn!(
                    "the cluster at {brokers} cannot be reached; trying again: {}",
                    remedy(None, self.login)
                );
            }
            Some(code) if is_decided(code) => {
                tracing::warn!(
                    reason,
                    "the cluster at {brokers} turns us away; trying again: {}",
                    remedy(Some(code), self.login)
                );
            }
            _ => tracing::warn!(%error, client, "a client reports an error"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_for_a_refused_login_names_its_key() {
        let keys = [LoginKey::Sasl, LoginKey::OAuth, LoginKey::Aws, LoginKey::Kerberos];
        for (login, key) in keys.into_iter().zip(["`sasl`", "`oauth`", "`aws`", "`kerberos`"]) {
            let advice = remedy(Some(RDKafkaErrorCode::Authentication), login);
            assert!(advice.contains(&format!("under {key}")), "{advice}");
        }
        assert!(remedy(None, LoginKey::Kerberos).contains("`keytab`"), "without a ticket no broker is asked");
    }

    #[test]
    fn an_error_that_goes_on_is_said_once_in_a_while() {
        let complaints = Complaints::default();
        let start = Instant::now();
        let at = |brokers, code, after: u64| {
            complaints.is_news(brokers, &KafkaError::Global(code), start + Duration::from_secs(after))
        };
        let said = |code, after| at("one:9092", code, after);
        let (down, tls) = (RDKafkaErrorCode::AllBrokersDown, RDKafkaErrorCode::SSL);
        assert!(said(down, 0) && said(tls, 1), "each by itself");
        assert!((1..30).all(|after| !said(down, after)));
        assert!(said(down, 31) && !said(down, 32));
        assert!(!said(RDKafkaErrorCode::BrokerTransportFailure, 33), "the same cluster is away");
        assert!(at("two:9092", down, 34), "another cluster is away");
    }
}
