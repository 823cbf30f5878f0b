//! The meaning of every error for the release that is being published.

use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::kafka::connection::code;
use crate::sink::SinkError;

/// The reason why a plan or a transaction did not go through.
pub(in crate::kafka) enum Fault {
    /// The assignment is no longer ours.
    Stale,
    /// Aborted cleanly; the same release can be tried again.
    Again(KafkaError),
    /// The outcome is not known, or the producer is no longer usable.
    Unknown(KafkaError),
    /// Another instance has the transactional id.
    Fenced,
    /// The schema registry does not answer. Nothing of the release is sent yet.
    NoRegistry(SinkError),
    /// Trying again does not help.
    Fatal(SinkError),
}

impl Fault {
    /// The answer of a broker did not come in time.
    pub(in crate::kafka) fn lost() -> Self {
        Self::Unknown(KafkaError::Global(RDKafkaErrorCode::OperationTimedOut))
    }
}

/// An entry of the journal that cannot be written as text.
pub(in crate::kafka) fn unwritten(error: serde_json::Error) -> Fault {
    Fault::Fatal(SinkError::Output(Box::new(error)))
}

/// The meaning of an error.
pub(in crate::kafka) fn classify(error: KafkaError) -> Fault {
    use RDKafkaErrorCode as Code;
    match code(&error) {
        Some(
            Code::UnknownMemberId
            | Code::IllegalGeneration
            | Code::RebalanceInProgress
            | Code::FencedInstanceId
            | Code::StaleMemberEpoch
            | Code::FencedMemberEpoch,
        ) => return Fault::Stale,
        Some(Code::OffsetMetadataTooLarge) => return Fault::Fatal(SinkError::MetadataTooLarge),
        Some(Code::InvalidProducerEpoch | Code::ProducerFenced | Code::Fenced) => return Fault::Fenced,
        _ if is_hopeless(&error) => return Fault::Fatal(SinkError::Kafka(error)),
        _ => {}
    }
    match &error {
        KafkaError::Transaction(inner) if inner.is_fatal() => Fault::Unknown(error),
        KafkaError::Transaction(inner) if inner.txn_requires_abort() => Fault::Again(error),
        KafkaError::Transaction(_) => Fault::Unknown(error),
        _ => Fault::Again(error),
    }
}

/// True for errors that no waiting mends.
pub(in crate::kafka) fn is_hopeless(error: &KafkaError) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code(error),
        Some(
            Code::TopicAuthorizationFailed
                | Code::GroupAuthorizationFailed
                | Code::TransactionalIdAuthorizationFailed
                | Code::ClusterAuthorizationFailed
                | Code::InvalidTransactionTimeout
                | Code::UnsupportedVersion
                | Code::MessageSizeTooLarge
        )
    )
}
