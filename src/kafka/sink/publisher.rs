//! Publishes one release: commits its plan, carries out its transaction, and tries again with the same bytes while that helps.
//!
//! The group's generation fences the offsets of a zombie, and with them its transaction; the transactional id fences a second
//! instance that was given the same one. If the outcome of a transaction is unknown, a new producer takes the id over, which ends
//! the transaction, and the committed offsets tell whether it went through.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset as KafkaOffset, TopicPartitionList};

use super::audience::AudienceOutput;
use super::create;
use super::fault::Fault;
use super::output::{Output, OutputError, RowMessages, blocking, registered};
use super::producer::{CALL, PATIENCE, PROMPT, Transactions};
use crate::codec::confluent::SchemaCache;
use crate::failpoint::step;
use crate::gate::Release;
use crate::kafka::client::KafkaSinkConfig;
use crate::kafka::journal::Journal;
use crate::kafka::progress::commit::{Commit, MAX_BYTES};
use crate::kafka::progress::partition::CarriedOver;
use crate::kafka::rebalance::GroupConsumer;
use crate::kafka::session::Session;
use crate::model::event::Partition;
use crate::model::schema::Schema;
use crate::sink::{Delivery, SinkError};

/// The pause before a release is tried again. Larger: it is published later. Smaller: a broker in trouble gets more load.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// Publishes one release after the other.
pub(super) struct Publisher {
    pub(super) config: KafkaSinkConfig,
    pub(super) session: Arc<Session>,
    pub(super) consumer: Arc<GroupConsumer>,
    pub(super) transactions: Transactions,
    pub(super) output: Output,
    /// The schemas of the input by placement, where there is a registry.
    pub(super) schemas: Vec<Arc<SchemaCache>>,
    /// The encoder for the rows of the release.
    pub(super) rows: Option<RowMessages>,
    pub(super) schema: Arc<Schema>,
    /// The number of partitions of the output.
    pub(super) partitions: i32,
    /// The number of partitions of the manifests.
    pub(super) manifest_partitions: i32,
    pub(super) journal: Option<Journal>,
    /// The tables of the audiences, in the order of the configuration.
    pub(super) tables: Vec<AudienceOutput>,
    /// The offset of the release's journal entry that names its shown records.
    pub(super) entry: Option<i64>,
    /// The number of plans that are still committed by transactions, because a plain commit was answered late.
    pub(super) slow: u32,
    /// True if a request of ours to take the transactional id over may still be under way.
    doubtful: bool,
    /// The time at which the transactional id was taken once more, after the group was joined.
    taken_again: Option<Instant>,
}

impl Publisher {
    /// Takes the transactional id over, and looks the topics of the output up.
    pub(super) fn open(
        config: KafkaSinkConfig,
        session: Arc<Session>,
        consumer: Arc<GroupConsumer>,
        schema: Arc<Schema>,
        schemas: Vec<Arc<SchemaCache>>,
    ) -> Result<Self, SinkError> {
        let mut output = Output::new(&config, &schema)?;
        registered(&session, || blocking(output.prepare()))?;
        let started = Instant::now();
        let transactions = Transactions::first(&config, &session)?;
        let doubtful = started.elapsed() >= PROMPT;
        transactions.check_cluster(&config, &consumer)?;
        session.has_id();
        if config.create_topics {
            create::missing_topics(&config, &session, &consumer)?;
        }
        config.topics().try_for_each(|topic| transactions.partitions(topic).map(drop))?;
        let partitions = transactions.partitions(&config.topic)?;
        let manifest_partitions = config.manifests.as_deref().map_or(Ok(1), |topic| transactions.partitions(topic))?;
        let remembered = config.journal.as_ref().filter(|journal| journal.releases.is_some());
        let journal = remembered.map(|journal| Journal::open(&config.cluster, &journal.topic)).transpose();
        Ok(Self {
            journal: journal.map_err(SinkError::Kafka)?,
            tables: AudienceOutput::open(&config, &session, &schema, &transactions)?,
            config,
            session,
            consumer,
            transactions,
            output,
            schemas,
            rows: None,
            schema,
            partitions,
            manifest_partitions,
            entry: None,
            slow: 0,
            doubtful,
            taken_again: None,
        })
    }

    /// Publishes a release. Holds the right to publish from the first check of the epoch to the end.
    pub(super) fn publish(&mut self, release: &Release) -> Result<Delivery, SinkError> {
        let session = Arc::clone(&self.session);
        let _publishing = session.publishing();
        let started = Instant::now();
        let mut planned = release.lineage().replayed || release.is_empty();
        self.entry = release.lineage().plan.journal;
        loop {
            let done = if planned { Ok(()) } else { self.plan(release) };
            planned |= done.is_ok();
            let again = match done.and_then(|()| self.transact(release)) {
                Ok(()) => {
                    step("committed");
                    return Ok(self.published(release));
                }
                // The generation has moved on, and the assignment has not: partitions have come or gone beside those of the release.
                Err(Fault::Stale) if self.check(release).is_ok() => {
                    SinkError::Kafka(KafkaError::Global(RDKafkaErrorCode::IllegalGeneration))
                }
                Err(Fault::Stale) => {
                    tracing::info!("a release is left to the new owner of its partitions");
                    return Ok(Delivery::Discarded);
                }
                Err(Fault::Fenced) if self.is_alone(release) => {
                    self.take_back()?;
                    if self.went_through(release)? {
                        return Ok(self.published(release));
                    }
                    SinkError::Kafka(KafkaError::Global(RDKafkaErrorCode::ProducerFenced))
                }
                // The next release decides whether the id is taken back.
                Err(Fault::Fenced) if self.check(release).is_err() && self.may_be_ours() => {
                    return Ok(Delivery::Discarded);
                }
                Err(Fault::Fenced) => return Err(SinkError::Fenced { id: self.config.transactional_id.clone() }),
                Err(Fault::Fatal(error)) => return Err(error),
                Err(Fault::Again(error)) => SinkError::Kafka(error),
                Err(Fault::NoRegistry(error)) => error,
                // Somebody else may have the id by now. Who has it ends the transaction.
                Err(Fault::Unknown(_)) if session.has_lost_name() => return Ok(Delivery::Discarded),
                Err(Fault::Unknown(error)) => {
                    tracing::warn!(%error, "the outcome of a transaction is not known: the producer is replaced");
                    self.replace_producer()?;
                    if self.went_through(release)? {
                        return Ok(self.published(release));
                    }
                    SinkError::Kafka(error)
                }
            };
            if started.elapsed() > PATIENCE {
                return Err(again);
            }
            tracing::warn!(error = %again, "a release is tried again with the same bytes");
            std::thread::sleep(TRY_AGAIN);
        }
    }

    /// Takes the transactional id over with a new producer. A request for it that is answered late may have been sent twice, and the
    /// other copy takes the id away when it is delivered. Later requests of a producer name its epoch, and are refused.
    pub(super) fn replace_producer(&mut self) -> Result<(), SinkError> {
        let started = Instant::now();
        self.transactions = Transactions::take_over(&self.config, &self.session)?;
        self.doubtful |= started.elapsed() >= PROMPT;
        self.taken_again = Some(Instant::now());
        Ok(())
    }

    /// Gives the next transaction a producer of its own, where it needs one. An id that is lost is not taken back here.
    pub(super) fn renew_producer(&mut self, release: &Release) -> Result<(), Fault> {
        if self.transactions.is_spent() {
            if self.transactions.is_fenced() {
                return Err(Fault::Fenced);
            }
            self.replace_producer().map_err(Fault::Fatal)?;
            self.check(release)?;
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
    fn is_alone(&self, release: &Release) -> bool {
        let Some(notices) = self.consumer.context().notices.filter(|_| self.may_be_ours()) else {
            return self.transactions.overran() && self.check(release).is_ok();
        };
        let lost = Instant::now();
        while lost.elapsed() < notices && self.check(release).is_ok() {
            std::thread::sleep(TRY_AGAIN);
        }
        self.check(release).is_ok()
    }

    /// True if the transactional id is still ours, as its coordinator says, and was when the name in the group was lost. It is asked by
    /// offsets that the group then refuses, or that are aborted. An id that was taken again shortly before the loss shows nothing: a
    /// second instance may have taken it, lost it to that, and then joined.
    pub(super) fn owns_id(&mut self, lost: Instant) -> bool {
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

    /// Notes that the transaction of a release is committed.
    fn published(&self, release: &Release) -> Delivery {
        self.session.progress(|progress| progress.finish(&release.lineage().finished, self.carried_over(release)));
        Delivery::Published
    }

    /// Tells whether a transaction of unknown outcome was committed, from the offsets on the broker.
    fn went_through(&self, release: &Release) -> Result<bool, SinkError> {
        let Ok(after) = self.after(release) else { return Ok(false) };
        let Ok(wanted) = self.offsets(&after) else { return Ok(false) };
        let started = Instant::now();
        let found = loop {
            match self.consumer.committed_offsets(wanted.clone(), CALL) {
                Ok(found) => break found,
                // The new owner of the partitions will know.
                Err(_) if self.check(release).is_err() => return Ok(false),
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

    /// The commits of every partition that the release touches, as they are after it.
    pub(super) fn after(&self, release: &Release) -> Result<Vec<(Partition, Commit)>, Fault> {
        let lineage = release.lineage();
        let mut partitions = lineage.plan.partitions();
        partitions.extend(lineage.finished.iter().map(|(partition, _)| partition));
        partitions.sort_unstable();
        partitions.dedup();
        let carried = self.carried_over(release);
        let after = self.session.progress(|progress| {
            let commit = |partition| Some((partition, progress.after(partition, &lineage.finished, carried)?));
            partitions.into_iter().map(commit).collect()
        });
        after.flatten().ok_or(Fault::Stale)
    }

    /// The commits as librdkafka takes them.
    pub(super) fn offsets(&self, commits: &[(Partition, Commit)]) -> Result<TopicPartitionList, Fault> {
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

    fn carried_over<'r>(&self, release: &'r Release) -> CarriedOver<'r> {
        let lineage = release.lineage();
        let levels = (!release.is_empty()).then_some(lineage.plan.levels.as_slice());
        let releases = self.config.journal.as_ref().and_then(|journal| journal.releases);
        CarriedOver { levels, since: lineage.since, journal: self.entry.zip(releases) }
    }

    /// Fails if the assignment that the release was made in is gone.
    pub(super) fn check(&self, release: &Release) -> Result<(), Fault> {
        if self.session.epoch() == release.lineage().epoch { Ok(()) } else { Err(Fault::Stale) }
    }
}

impl From<OutputError> for SinkError {
    fn from(error: OutputError) -> Self {
        Self::Output(Box::new(error))
    }
}

impl From<OutputError> for Fault {
    fn from(error: OutputError) -> Self {
        if error.is_passing() { Self::NoRegistry(error.into()) } else { Self::Fatal(error.into()) }
    }
}
