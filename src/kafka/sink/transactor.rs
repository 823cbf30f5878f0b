//! Carries transactions out exactly once: tries again with the same bytes while that helps, and tells whether one went through.
//!
//! The group's generation fences the offsets of a zombie, and with them its transaction; the transactional id fences a second
//! instance that was given the same one. If the outcome of a transaction is unknown, a new producer takes the id over, which ends
//! the transaction, and the committed offsets tell whether it went through. Releases and batches of routed records are such transactions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset as KafkaOffset, TopicPartitionList};

use super::fault::Fault;
use super::producer::{CALL, PATIENCE, PROMPT, Transactions};
use crate::failpoint::step;
use crate::kafka::client::KafkaSinkConfig;
use crate::kafka::defects;
use crate::kafka::meter::Transaction;
use crate::kafka::progress::commit::{Commit, MAX_BYTES};
use crate::kafka::rebalance::GroupConsumer;
use crate::kafka::session::Session;
use crate::model::event::{Millis, Partition};
use crate::sink::{Delivery, SinkError};

/// The pause before a transaction is tried again. Larger: it is published later. Smaller: a broker in trouble gets more load.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// The commits of partitions.
pub(in crate::kafka) type Commits = Vec<(Partition, Commit)>;

/// The owner of a transactional id.
pub(in crate::kafka) struct Transactor {
    pub(in crate::kafka) config: KafkaSinkConfig,
    pub(in crate::kafka) session: Arc<Session>,
    pub(in crate::kafka) consumer: Arc<GroupConsumer>,
    pub(in crate::kafka) transactions: Transactions,
    /// True if a request of ours to take the transactional id over may still be under way.
    doubtful: bool,
    /// The time at which the transactional id was taken once more, after the group was joined.
    taken_again: Option<Instant>,
}

/// What is to be published in one transaction, together with the offsets that it finishes.
pub(in crate::kafka) trait Attempt {
    /// What is published, for logs.
    const WHAT: &'static str;

    /// Its transactor.
    fn transactor(&mut self) -> &mut Transactor;

    /// The assignment in which it was made.
    fn epoch(&self) -> u64;

    /// Does what has to be done before the transaction begins.
    fn prepare(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// Sends the messages; the same bytes each time.
    fn produce(&mut self) -> Result<(), Fault>;

    /// The commits of the partitions that it touches, as they are after it.
    fn after(&self) -> Result<Commits, Fault>;

    /// Notes that it is committed.
    fn committed(&mut self);
}

/// Publishes once. Holds the right to publish from the first check of the epoch to the end.
pub(in crate::kafka) fn exactly_once<A: Attempt>(attempt: &mut A) -> Result<Delivery, SinkError> {
    let session = Arc::clone(&attempt.transactor().session);
    let _publishing = session.publishing();
    let started = Instant::now();
    loop {
        let again = match carry_out(attempt) {
            Ok(()) => {
                step("committed");
                attempt.committed();
                return Ok(Delivery::Published);
            }
            Err(fault) => match judged(attempt, fault)? {
                Judged::Again(error) => error,
                Judged::Ended(Delivery::Published) => {
                    attempt.committed();
                    return Ok(Delivery::Published);
                }
                Judged::Ended(Delivery::Discarded) => return Ok(Delivery::Discarded),
            },
        };
        if started.elapsed() > PATIENCE {
            return Err(again);
        }
        tracing::warn!(error = %again, "{} is tried again with the same bytes", A::WHAT);
        std::thread::sleep(TRY_AGAIN);
    }
}

/// The transaction, by a producer whose earlier calls have all been answered.
fn carry_out<A: Attempt>(attempt: &mut A) -> Result<(), Fault> {
    attempt.prepare()?;
    let epoch = attempt.epoch();
    let transactor = attempt.transactor();
    transactor.check(epoch)?;
    transactor.renew_producer(epoch)?;
    transactor.session.meter.transaction_began(now());
    let ended = transaction(attempt);
    let transactor = attempt.transactor();
    transactor.session.meter.transaction_ended(match &ended {
        Ok(()) => Transaction::Committed,
        Err(Fault::Fenced) if !transactor.transactions.overran() => Transaction::Fenced,
        Err(Fault::Fenced | Fault::Unknown(_)) => Transaction::Unknown,
        Err(_) => Transaction::Aborted,
    });
    ended
}

fn transaction<A: Attempt>(attempt: &mut A) -> Result<(), Fault> {
    attempt.transactor().transactions.begin()?;
    step("begun");
    let sent = attempt.produce().and_then(|()| attempt.transactor().transactions.flush()).and_then(|()| {
        step("flushed");
        send_offsets(attempt)
    });
    let (epoch, transactor) = (attempt.epoch(), attempt.transactor());
    let sent = sent.and_then(|()| {
        step("offsets-sent");
        transactor.check(epoch)?;
        transactor.transactions.commit()
    });
    transactor.ended(sent)
}

fn send_offsets<A: Attempt>(attempt: &mut A) -> Result<(), Fault> {
    let epoch = attempt.epoch();
    attempt.transactor().check(epoch)?;
    let after = attempt.after()?;
    let transactor = attempt.transactor();
    let offsets = transactor.offsets(&after)?;
    if offsets.count() == 0 {
        return Ok(());
    }
    if defects::commits_outside_the_transaction() {
        return transactor.consumer.commit(&offsets, CommitMode::Sync).map_err(Fault::Again);
    }
    // Fresh each time: the generation in it is what fences a zombie.
    let group = transactor.consumer.group_metadata().ok_or(Fault::Stale)?;
    transactor.transactions.send_offsets(offsets, group)
}

/// What a fault means for the attempt.
enum Judged {
    /// It is tried again; the error if that helps nothing.
    Again(SinkError),
    /// It has come to this.
    Ended(Delivery),
}

fn judged<A: Attempt>(attempt: &mut A, fault: Fault) -> Result<Judged, SinkError> {
    let epoch = attempt.epoch();
    let error = match fault {
        // The generation has moved on, and the assignment has not: partitions have come or gone beside those of the attempt.
        Fault::Stale if attempt.transactor().check(epoch).is_ok() => {
            SinkError::Kafka(KafkaError::Global(RDKafkaErrorCode::IllegalGeneration))
        }
        Fault::Stale => {
            tracing::info!("{} is left to the new owner of its partitions", A::WHAT);
            return Ok(Judged::Ended(Delivery::Discarded));
        }
        Fault::Fenced if attempt.transactor().is_alone(epoch) => {
            attempt.transactor().take_back()?;
            if went_through(attempt)? {
                return Ok(Judged::Ended(Delivery::Published));
            }
            SinkError::Kafka(KafkaError::Global(RDKafkaErrorCode::ProducerFenced))
        }
        // The next attempt decides whether the id is taken back.
        Fault::Fenced if attempt.transactor().check(epoch).is_err() && attempt.transactor().may_be_ours() => {
            return Ok(Judged::Ended(Delivery::Discarded));
        }
        Fault::Fenced => return Err(SinkError::Fenced { id: attempt.transactor().config.transactional_id.clone() }),
        Fault::Fatal(error) => return Err(error),
        Fault::Again(error) => SinkError::Kafka(error),
        Fault::NoRegistry(error) => error,
        // Somebody else may have the id by now. Who has it ends the transaction.
        Fault::Unknown(_) if attempt.transactor().session.has_lost_name() => {
            return Ok(Judged::Ended(Delivery::Discarded));
        }
        Fault::Unknown(error) => {
            tracing::warn!(%error, "the outcome of a transaction is not known: the producer is replaced");
            attempt.transactor().replace_producer()?;
            if went_through(attempt)? {
                return Ok(Judged::Ended(Delivery::Published));
            }
            SinkError::Kafka(error)
        }
    };
    Ok(Judged::Again(error))
}

/// Tells whether a transaction of unknown outcome was committed, from the offsets on the broker.
fn went_through<A: Attempt>(attempt: &mut A) -> Result<bool, SinkError> {
    let (Ok(after), epoch) = (attempt.after(), attempt.epoch()) else { return Ok(false) };
    let transactor = attempt.transactor();
    let Ok(wanted) = transactor.offsets(&after) else { return Ok(false) };
    let started = Instant::now();
    let found = loop {
        match transactor.consumer.committed_offsets(wanted.clone(), CALL) {
            Ok(found) => break found,
            // The new owner of the partitions will know.
            Err(_) if transactor.check(epoch).is_err() => return Ok(false),
            Err(error) if started.elapsed() > PATIENCE => return Err(SinkError::Kafka(error)),
            Err(error) => tracing::warn!(%error, "the committed offsets cannot be read yet"),
        }
    };
    Ok(wanted.elements().iter().all(|wanted| {
        found
            .find_partition(wanted.topic(), wanted.partition())
            .is_some_and(|f| f.offset() == wanted.offset() && f.metadata() == wanted.metadata())
    }))
}

impl Transactor {
    /// Takes the transactional id over. The group is not joined before.
    pub(in crate::kafka) fn open(
        config: KafkaSinkConfig,
        session: Arc<Session>,
        consumer: Arc<GroupConsumer>,
    ) -> Result<Self, SinkError> {
        let started = Instant::now();
        let transactions = Transactions::first(&config, &session)?;
        let doubtful = started.elapsed() >= PROMPT;
        transactions.check_cluster(&config, &consumer)?;
        session.has_id();
        Ok(Self { config, session, consumer, transactions, doubtful, taken_again: None })
    }

    /// Aborts a transaction that has failed before its commit.
    pub(super) fn ended(&mut self, sent: Result<(), Fault>) -> Result<(), Fault> {
        match sent {
            Ok(()) => Ok(()),
            Err(Fault::Unknown(error)) => Err(Fault::Unknown(error)),
            Err(fault) => match (self.transactions.abort(), fault) {
                // Whatever has failed first: the id is not ours, and must not be taken back as if it were.
                (Err(Fault::Fenced), _) => Err(Fault::Fenced),
                (Err(Fault::Again(error) | Fault::Unknown(error)), Fault::Again(_)) => Err(Fault::Unknown(error)),
                (_, fault) => Err(fault),
            },
        }
    }

    /// Takes the transactional id over with a new producer. A request for it that is answered late may have been sent twice, and the
    /// other copy takes the id away when it is delivered. Later requests of a producer name its epoch, and are refused.
    fn replace_producer(&mut self) -> Result<(), SinkError> {
        let started = Instant::now();
        self.transactions = Transactions::take_over(&self.config, &self.session)?;
        self.doubtful |= started.elapsed() >= PROMPT;
        self.taken_again = Some(Instant::now());
        Ok(())
    }

    /// Gives the next transaction a producer of its own, where it needs one. An id that is lost is not taken back here.
    pub(in crate::kafka) fn renew_producer(&mut self, epoch: u64) -> Result<(), Fault> {
        if self.transactions.is_spent() {
            if self.transactions.is_fenced() {
                return Err(Fault::Fenced);
            }
            self.replace_producer().map_err(Fault::Fatal)?;
            self.check(epoch)?;
        }
        Ok(())
    }

    /// True if the loss of the transactional id may be our own doing: a request of ours can be under way, or the broker has aborted
    /// a transaction that was open for too long.
    fn may_be_ours(&self) -> bool {
        self.doubtful || self.transactions.overran()
    }

    /// Tells, when the transactional id is lost, whether it may be taken back. Two things must hold: the loss may be our own doing, and
    /// no other instance has our name in the group. A second instance with the id also takes the name, and that is noticed with the
    /// next heartbeat and ends this instance. So the heartbeats are waited for; a second owner keeps the id. Without a name there
    /// is no telling, and only a transaction that was open for too long is explanation enough.
    fn is_alone(&self, epoch: u64) -> bool {
        let Some(notices) = self.consumer.context().notices.filter(|_| self.may_be_ours()) else {
            return self.transactions.overran() && self.check(epoch).is_ok();
        };
        let lost = Instant::now();
        while lost.elapsed() < notices && self.check(epoch).is_ok() {
            std::thread::sleep(TRY_AGAIN);
        }
        self.check(epoch).is_ok()
    }

    /// True if the transactional id is still ours, as its coordinator says, and was when the name in the group was lost. It is asked by
    /// offsets that the group then refuses, or that are aborted. An id that was taken again shortly before the loss shows nothing: a
    /// second instance may have taken it, lost it to that, and then joined.
    pub(in crate::kafka) fn owns_id(&mut self, lost: Instant) -> bool {
        let notices = self.consumer.context().notices.unwrap_or_default();
        if self.taken_again.is_some_and(|taken| lost.saturating_duration_since(taken) < notices) {
            return false;
        }
        let Some(group) = self.consumer.group_metadata() else { return false };
        let mut offsets = TopicPartitionList::new();
        let names = self.session.shared.names();
        let at = names.first().map(|topic| offsets.add_partition_offset(topic, 0, KafkaOffset::Offset(0)));
        if !matches!(at, Some(Ok(()))) {
            return false;
        }
        let asked = self.transactions.begin().and_then(|()| self.transactions.send_offsets(offsets, group));
        let taken = matches!(asked, Ok(()) | Err(Fault::Stale));
        self.transactions.abort().is_ok() && taken
    }

    /// Takes the transactional id back.
    fn take_back(&mut self) -> Result<(), SinkError> {
        if self.transactions.overran() {
            tracing::warn!("a transaction took longer than `transaction_timeout`: the broker has aborted it");
        } else {
            tracing::warn!("a late request of this instance has taken its transactional id: the producer is replaced");
            self.session.meter.took_back();
            // Once for each such request: a second owner that is not in our group keeps the id.
            self.doubtful = false;
        }
        self.replace_producer()
    }

    /// The commits as librdkafka takes them.
    pub(in crate::kafka) fn offsets(&self, commits: &[(Partition, Commit)]) -> Result<TopicPartitionList, Fault> {
        let mut offsets = TopicPartitionList::new();
        for (partition, commit) in commits {
            let (topic, number) = self.session.shared.place(*partition).ok_or(Fault::Stale)?;
            let metadata = commit.text();
            if metadata.len() > MAX_BYTES {
                return Err(Fault::Fatal(SinkError::MetadataTooLarge));
            }
            let mut element = offsets.add_partition(topic, number);
            element.set_offset(KafkaOffset::Offset(commit.offset)).map_err(Fault::Again)?;
            element.set_metadata(metadata);
        }
        Ok(offsets)
    }

    /// Fails if the assignment of this epoch is gone.
    pub(in crate::kafka) fn check(&self, epoch: u64) -> Result<(), Fault> {
        if self.session.epoch() == epoch { Ok(()) } else { Err(Fault::Stale) }
    }
}

/// The wall clock.
fn now() -> Millis {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Millis(since.map_or(0, |since| since.as_millis() as i64))
}
