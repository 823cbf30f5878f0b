//! Publishes one release: commits its plan, carries out its transaction, and tries again with the same bytes while that helps.
//!
//! The group's generation fences the offsets of a zombie, and with them its transaction; the transactional id fences a second
//! instance that was given the same one. If the outcome of a transaction is unknown, a new producer takes the id over, which ends
//! the transaction, and the committed offsets tell whether it went through.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer;
use rdkafka::topic_partition_list::{Offset as KafkaOffset, TopicPartitionList};

use super::create;
use super::fault::Fault;
use super::output::{Output, OutputError, RowMessages};
use super::producer::{CALL, PATIENCE, Transactions};
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
    /// The schemas of the input, where there is a registry.
    pub(super) schemas: Option<Arc<SchemaCache>>,
    /// The encoder for the rows of the release.
    pub(super) rows: Option<RowMessages>,
    pub(super) schema: Arc<Schema>,
    /// The number of partitions of the output.
    pub(super) partitions: i32,
    /// The number of partitions of the manifests.
    pub(super) manifest_partitions: i32,
    pub(super) journal: Option<Journal>,
    /// The offset of the release's journal entry that names its shown records.
    pub(super) entry: Option<i64>,
}

impl Publisher {
    /// Takes the transactional id over, and looks the topics of the output up.
    pub(super) fn open(
        config: KafkaSinkConfig,
        session: Arc<Session>,
        consumer: Arc<GroupConsumer>,
        schema: Arc<Schema>,
        schemas: Option<Arc<SchemaCache>>,
    ) -> Result<Self, SinkError> {
        let mut output = Output::new(&config, &schema)?;
        blocking(output.prepare())?;
        let transactions = Transactions::first(&config, &session)?;
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
                Err(Fault::Stale) => {
                    tracing::info!("a release is left to the new owner of its partitions");
                    return Ok(Delivery::Discarded);
                }
                Err(Fault::Fenced) => return Err(SinkError::Fenced { id: self.config.transactional_id.clone() }),
                Err(Fault::Fatal(error)) => return Err(error),
                Err(Fault::Again(error)) => error,
                Err(Fault::Unknown(error)) => {
                    tracing::warn!(%error, "the outcome of a transaction is not known: the producer is replaced");
                    self.transactions = Transactions::take_over(&self.config, &session)?;
                    if self.went_through(release)? {
                        return Ok(self.published(release));
                    }
                    error
                }
            };
            if started.elapsed() > PATIENCE {
                return Err(SinkError::Kafka(again));
            }
            tracing::warn!(error = %again, "a release is tried again with the same bytes");
            std::thread::sleep(TRY_AGAIN);
        }
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
            let (topic, number) = self.session.topics.place(*partition).ok_or(Fault::Stale)?;
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
        Self::Fatal(error.into())
    }
}

/// Waits for the asynchronous clients of the registry and of the journal.
pub(super) fn blocking<T: Send>(answer: impl Future<Output = T> + Send) -> T {
    let runtime = tokio::runtime::Handle::current();
    // On a thread of its own: to wait on that of the pipeline would take the pipeline's wakes for those of the answer, and a
    // stop that came meanwhile would never be heard.
    let waited = std::thread::scope(|scope| scope.spawn(|| runtime.block_on(answer)).join());
    waited.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
