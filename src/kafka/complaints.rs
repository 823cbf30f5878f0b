//! Errors of connections, each said once in a while: librdkafka tells them again at every attempt, many times a second.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::error::{KafkaError, RDKafkaErrorCode};

/// How long an error is not said again. Longer: nobody sees that it goes on. Shorter: it hides the rest of the log.
const QUIET: Duration = Duration::from_secs(30);

/// What a client has complained of lately.
#[derive(Debug, Default)]
pub struct Complaints(Mutex<Vec<(Option<RDKafkaErrorCode>, Instant)>>);

impl Complaints {
    /// True if this was not said lately; then it counts as said.
    pub fn is_news(&self, error: &KafkaError, now: Instant) -> bool {
        let code = error.rdkafka_error_code();
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.retain(|(_, at)| now.saturating_duration_since(*at) < QUIET);
        let news = said.iter().all(|(said, _)| *said != code);
        if news {
            said.push((code, now));
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_goes_on_is_said_once_in_a_while() {
        let complaints = Complaints::default();
        let start = Instant::now();
        let said = |code, after: u64| complaints.is_news(&KafkaError::Global(code), start + Duration::from_secs(after));
        let (down, tls) = (RDKafkaErrorCode::AllBrokersDown, RDKafkaErrorCode::SSL);
        assert!(said(down, 0) && said(tls, 1), "each by itself");
        assert!((1..30).all(|after| !said(down, after)));
        assert!(said(down, 31) && !said(down, 32));
    }
}
