//! The transactional producer, with a time limit on every call.
//!
//! librdkafka's transaction calls have time limits of their own, and some do not keep them when a coordinator goes away. So each
//! call runs on a thread that can be left behind: a new producer then takes the transactional id over, and the broker fences the
//! old one.

use std::error::Error;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::client::OAuthToken;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::{Consumer as _, ConsumerGroupMetadata};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::ToBytes;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::topic_partition_list::TopicPartitionList;

use super::fault::{Fault, classify, is_hopeless};
use crate::kafka::client::login::{self, Login};
use crate::kafka::client::{self, KafkaSinkConfig};
use crate::kafka::connection::{self, Voice, is_decided, remedy};
use crate::kafka::rebalance::GroupConsumer;
use crate::kafka::session::Session;
use crate::sink::SinkError;

/// The time limit of one transaction call; then its answer counts as lost. Larger: a hang is noticed late. Smaller: brokers that
/// are only slow cost a new producer.
pub(super) const CALL: Duration = Duration::from_secs(20);
/// The time limit of the first attempt to take the id over, after which connection errors are looked at. Larger: a wrong password
/// is told late. Smaller: more attempts on a slow network.
const FIRST: Duration = Duration::from_secs(5);
/// Events taken between two attempts. Larger: costs nothing. Smaller: errors of an attempt are left behind in the queue.
const EVENTS: usize = 64;
/// The time that a call may overrun [`CALL`] before its thread is left behind. Larger: a hang is noticed late. Smaller: calls that
/// are only slow cost a new producer.
const GRACE: Duration = Duration::from_secs(5);
/// The time for which a release is tried again; then the service ends and its supervisor starts over. Larger: a cluster that does
/// not recover is told late. Smaller: an outage that a retry survives ends the process.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);
/// The time for which a start waits for the output's topics. Larger: nobody learns that the cluster does not answer. Smaller: a
/// network that is only slow ends the process.
const LOOKED_UP: Duration = Duration::from_secs(60);
/// The pause between two attempts. Larger: a start takes longer. Smaller: the log fills with warnings.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// Records queued between two looks at delivery reports. Larger: reports pile up. Smaller: a lock per record.
const LOOK_EVERY: u64 = 256;
/// The pause between two looks of a flush. Larger: every release waits for it. Smaller: burns a core.
const SOON: Duration = Duration::from_millis(1);
/// A request to end a transaction, or with its offsets, that takes longer may have been sent twice. Larger: that goes unnoticed.
/// Smaller: brokers that are only slow cost a new producer.
pub(super) const PROMPT: Duration = Duration::from_secs(1);

/// A producer that owns the transactional id.
pub(in crate::kafka) struct Transactions {
    producer: Arc<BaseProducer<Context>>,
    timeout: Duration,
    /// True if missing topics were made.
    creates: bool,
    begun: Instant,
    sent: u64,
    /// True if a request to end a transaction, or one with its offsets, may still be under way. It would end the next one of
    /// the same producer, or set its offsets back: brokers tell transactions apart only for clients that know KIP-890. Then
    /// the next one needs a producer of its own.
    spent: bool,
    /// True if the producer was fenced in a transaction that was open for too long: the broker aborts it, and fences its producer.
    overran: bool,
}

impl Transactions {
    /// Takes the transactional id over for the first time. A cluster that refuses us is an error at once: waiting does not make a
    /// wrong password right.
    pub(super) fn first(config: &KafkaSinkConfig, session: &Session) -> Result<Self, SinkError> {
        Self::take(config, session, true)
    }

    /// Takes the transactional id over: the producer that had it is fenced, and its open transaction is aborted or completed.
    pub(super) fn take_over(config: &KafkaSinkConfig, session: &Session) -> Result<Self, SinkError> {
        Self::take(config, session, false)
    }

    fn take(config: &KafkaSinkConfig, session: &Session, first: bool) -> Result<Self, SinkError> {
        let started = Instant::now();
        let login = config.cluster.login.clone();
        let voice = Voice::new(&session.complaints, "kafka producer", &config.cluster);
        let context = Context { refused: Mutex::default(), voice, login };
        let producer =
            BaseProducer::from_config_and_context(&client::producer(config), context).map_err(SinkError::Kafka)?;
        let attempt = if first { FIRST } else { CALL };
        let timeout = config.transaction_timeout;
        let (producer, sent, spent, overran) = (Arc::new(producer), 0, false, false);
        let creates = config.create_topics;
        let mut this = Self { producer, timeout, creates, begun: started, sent, spent, overran };
        login::keep_fresh(&this.producer, config.cluster.login.as_ref());
        loop {
            let error = match this.call(move |producer| producer.init_transactions(attempt)) {
                Ok(()) => return Ok(this),
                Err(Fault::Fenced) => return Err(SinkError::Fenced { id: config.transactional_id.clone() }),
                Err(Fault::Fatal(error)) => return Err(error),
                Err(Fault::Again(error) | Fault::Unknown(error)) => error,
                Err(Fault::Stale | Fault::NoRegistry(_)) => {
                    KafkaError::Global(RDKafkaErrorCode::InvalidTransactionalState)
                }
            };
            // Errors of connections are heard while polling, one a time.
            (0..EVENTS).for_each(|_| this.producer.poll(Duration::ZERO));
            if let Some(code) = this.producer.client().context().refused().filter(|_| first) {
                let brokers = config.cluster.brokers.clone();
                return Err(SinkError::Unusable { brokers, remedy: remedy(Some(code), config.cluster.login_key()) });
            }
            if is_hopeless(&error) || session.is_finished() {
                return Err(SinkError::Kafka(error));
            }
            if started.elapsed() > PATIENCE {
                let brokers = config.cluster.brokers.clone();
                return Err(if first {
                    SinkError::Unusable { brokers, remedy: remedy(None, config.cluster.login_key()) }
                } else {
                    SinkError::Kafka(error)
                });
            }
            this.producer.client().context().voice.say(&error, "");
            std::thread::sleep(TRY_AGAIN);
        }
    }

    /// Fails if offsets of the group's consumer cannot be part of a transaction: it is in another cluster.
    pub(super) fn check_cluster(&self, config: &KafkaSinkConfig, group: &GroupConsumer) -> Result<(), SinkError> {
        let elsewhere = group.context().voice().brokers() != config.cluster.brokers;
        let two = elsewhere && connection::are_two(group.client(), self.producer.client());
        if two { Err(SinkError::TwoClusters(connection::TWO_CLUSTERS)) } else { Ok(()) }
    }

    /// How many partitions a topic has. A topic that was just made is not known to every broker at once.
    pub(in crate::kafka) fn partitions(&self, topic: &str) -> Result<i32, SinkError> {
        let asked = Instant::now();
        loop {
            let failed = match self.producer.client().fetch_metadata(Some(topic), connection::ASK) {
                Ok(found) => match found.topics().first().map_or(0, |topic| topic.partitions().len()) {
                    0 if !self.creates => return Err(SinkError::NoTopic(topic.to_owned())),
                    0 => SinkError::NoTopic(topic.to_owned()),
                    partitions => return Ok(partitions as i32),
                },
                Err(error) => SinkError::Kafka(error),
            };
            if asked.elapsed() > LOOKED_UP {
                return Err(failed);
            }
            tracing::warn!(error = %failed, topic, "a topic of the output cannot be looked up yet");
            std::thread::sleep(TRY_AGAIN);
        }
    }

    pub(super) fn begin(&mut self) -> Result<(), Fault> {
        self.begun = Instant::now();
        self.call(BaseProducer::begin_transaction)
    }

    /// Queues one record, waiting while the queue is full.
    pub(in crate::kafka) fn send<K: ToBytes + ?Sized>(&mut self, record: BaseRecord<'_, K, [u8]>) -> Result<(), Fault> {
        let mut record = record;
        self.sent += 1;
        loop {
            match self.producer.send(record) {
                Ok(()) => {
                    if self.sent.is_multiple_of(LOOK_EVERY) {
                        self.producer.poll(Duration::ZERO);
                    }
                    return Ok(());
                }
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                    record = back;
                    self.producer.poll(Duration::from_millis(50));
                    if self.begun.elapsed() > self.timeout {
                        return Err(Fault::Again(KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull)));
                    }
                }
                Err((error, _)) => return self.judged(Err(classify(error))),
            }
        }
    }

    /// Waits until everything is delivered. rdkafka's own flush looks every 100 ms only, which would be the greater part of
    /// a transaction; once nothing is under way, its look before a commit costs nothing.
    pub(in crate::kafka) fn flush(&mut self) -> Result<(), Fault> {
        self.call(|producer| {
            let asked = Instant::now();
            while producer.in_flight_count() > 0 && asked.elapsed() < CALL {
                // Not inside poll, which spins through what is left of a millisecond.
                std::thread::sleep(SOON);
                producer.poll(Duration::ZERO);
            }
            producer.flush(Duration::ZERO)
        })
    }

    pub(in crate::kafka) fn send_offsets(
        &mut self,
        offsets: TopicPartitionList,
        group: ConsumerGroupMetadata,
    ) -> Result<(), Fault> {
        self.promptly(move |producer| producer.send_offsets_to_transaction(&offsets, &group, CALL))
    }

    pub(super) fn commit(&mut self) -> Result<(), Fault> {
        self.promptly(|producer| producer.commit_transaction(CALL))
    }

    /// Seldom, and mostly because something is wrong: the producer counts as spent.
    pub(super) fn abort(&mut self) -> Result<(), Fault> {
        self.spent = true;
        self.call(|producer| producer.abort_transaction(CALL))
    }

    /// True if the next transaction needs a producer of its own.
    pub(in crate::kafka) fn is_spent(&self) -> bool {
        self.spent
    }

    fn promptly(
        &mut self,
        call: impl FnOnce(&BaseProducer<Context>) -> Result<(), KafkaError> + Send + 'static,
    ) -> Result<(), Fault> {
        let asked = Instant::now();
        let done = self.call(call);
        self.spent |= asked.elapsed() >= PROMPT;
        done
    }

    /// True if the transactional id is known to be lost. Then only the publisher may decide whether it is taken back.
    pub(super) fn is_fenced(&self) -> bool {
        let given_up = self.producer.client().fatal_error();
        given_up.is_some_and(|(code, _)| matches!(classify(KafkaError::Global(code)), Fault::Fenced))
    }

    /// True if the id was lost in a transaction that was open for longer than its timeout.
    pub(super) fn overran(&self) -> bool {
        self.overran
    }

    fn call(
        &mut self,
        call: impl FnOnce(&BaseProducer<Context>) -> Result<(), KafkaError> + Send + 'static,
    ) -> Result<(), Fault> {
        let producer = Arc::clone(&self.producer);
        let done = bounded(CALL + GRACE, move || call(&producer));
        self.judged(done)
    }

    /// The meaning of an answer of this producer. Once it is fenced, some calls say only that it is no longer usable.
    fn judged(&mut self, done: Result<(), Fault>) -> Result<(), Fault> {
        let fenced = match done {
            Err(Fault::Again(_) | Fault::Unknown(_)) => self.is_fenced(),
            Err(Fault::Fenced) => true,
            _ => false,
        };
        if !fenced {
            return done;
        }
        self.overran |= self.begun.elapsed() >= self.timeout;
        Err(Fault::Fenced)
    }
}

impl Drop for Transactions {
    /// The last hold on a client waits for its threads, and a client that hangs would be waited for for ever.
    fn drop(&mut self) {
        let producer = Arc::clone(&self.producer);
        let _ = std::thread::Builder::new().name("old producer".into()).spawn(move || drop(producer));
    }
}

/// Runs a call that may hang on a thread that may be left behind.
pub(super) fn bounded(
    limit: Duration,
    call: impl FnOnce() -> Result<(), KafkaError> + Send + 'static,
) -> Result<(), Fault> {
    let (sender, receiver) = sync_channel(1);
    let run = move || drop(sender.send(call()));
    std::thread::Builder::new().name("transaction".into()).spawn(run).map_err(|_| Fault::lost())?;
    receiver.recv_timeout(limit).map_err(|_| Fault::lost())?.map_err(classify)
}

/// Hears what librdkafka says of connections, which is more than its calls return.
struct Context {
    refused: Mutex<Option<RDKafkaErrorCode>>,
    voice: Voice,
    login: Option<Arc<Login>>,
}

impl Context {
    /// Why the cluster wants nothing of us, if it does not.
    fn refused(&self) -> Option<RDKafkaErrorCode> {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for Context {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn generate_oauth_token(&self, _config: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        login::token(self.login.as_ref())
    }

    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        connection::log(level, facility, message);
    }
    fn error(&self, error: KafkaError, reason: &str) {
        if let Some(code) = error.rdkafka_error_code().filter(|code| is_decided(*code)) {
            *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(code);
        }
        self.voice.say(&error, reason);
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = ();
    /// A record that could not be delivered fails the transaction's commit; nothing to do here.
    fn delivery(&self, _result: &DeliveryResult<'_>, _opaque: ()) {}
}
