//! Kafka as a sink: plan, then publish, exactly once.
//!
//! The plan of a release is committed as offset metadata before its first record is produced; rows, manifest, dead
//! letters and offsets are then one transaction. Whatever goes wrong in between, the same plan gives the same bytes
//! again. The group's generation fences a zombie's offsets, and with them its transaction; the transactional id fences a
//! second instance that was given the same one. After an answer that never came a new producer takes the id over, and the
//! committed offsets tell whether the transaction went through. After a plan whose commit may have been sent twice, the
//! group is joined anew: a copy that a network delivers late is refused.

mod producer;

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::BaseRecord;
use rdkafka::topic_partition_list::{Offset as KafkaOffset, TopicPartitionList};

use producer::{CALL, Fault, PATIENCE, Transactions, bounded, classify};

use super::{Delivery, Sink, SinkError, journal_entry};
use crate::codec::confluent::SchemaCache;
use crate::failpoint::{defect, step};
use crate::gate::Release;
use crate::kafka::client::{KafkaSinkConfig, RESEND};
use crate::kafka::journal::{self, Entry, Journal};
use crate::kafka::metadata::MAX_BYTES;
use crate::kafka::output::{Output, Rows};
use crate::kafka::progress::{Commit, Leaves};
use crate::kafka::session::{GroupConsumer, Session};
use crate::model::event::{Millis, Partition};
use crate::model::meter::Transaction;
use crate::model::release::dead_letter::DeadLetter;
use crate::model::release::plan::ReleasePlan;
use crate::model::schema::Schema;

/// The header that names a record's release.
pub const RELEASE_HEADER: &str = "veilstream-release";

/// A commit that was answered sooner was sent once: the client waits for [`client::RESEND`], a fifth less at most, before it
/// sends a request again. Longer: a second copy goes unnoticed. Shorter: brokers that are only slow cost a rebalance.
const SENT_ONCE: Duration = Duration::from_millis(RESEND.as_millis() as u64 * 3 / 4);

/// Publishes in transactions.
pub struct KafkaSink {
    inner: Option<Publisher>,
    session: Arc<Session>,
}

struct Publisher {
    config: KafkaSinkConfig,
    session: Arc<Session>,
    consumer: Arc<GroupConsumer>,
    transactions: Transactions,
    output: Output,
    /// What the input's schemas are derived from, where there is a registry.
    schemas: Option<Arc<SchemaCache>>,
    rows: Option<Rows>,
    schema: Arc<Schema>,
    partitions: i32,
    manifest_partitions: i32,
    journal: Option<Journal>,
    /// Where the journal says what the release shows that is being published.
    entry: Option<i64>,
}

impl KafkaSink {
    /// Takes the transactional id over, fencing whoever had it before.
    pub fn open(
        config: KafkaSinkConfig,
        session: Arc<Session>,
        consumer: Arc<GroupConsumer>,
        schema: Arc<Schema>,
        schemas: Option<Arc<SchemaCache>>,
    ) -> Result<Self, SinkError> {
        let mut output = Output::new(&config, &schema)?;
        blocking(output.prepare())?;
        let transactions = Transactions::first(&config, &session)?;
        let partitions = transactions.partitions(&config.topic)?;
        let manifest_partitions = config.manifests.as_deref().map_or(Ok(1), |topic| transactions.partitions(topic))?;
        if let Some(topic) = &config.dead_letters {
            transactions.partitions(topic)?;
        }
        if let Some(journal) = &config.journal {
            transactions.partitions(&journal.topic)?;
        }
        let journal = config
            .journal
            .as_ref()
            .filter(|journal| journal.releases.is_some())
            .map(|journal| Journal::open(&config.cluster, &journal.topic).map_err(SinkError::Kafka));
        let journal = journal.transpose()?;
        let publisher = Publisher {
            config,
            session: Arc::clone(&session),
            consumer,
            transactions,
            output,
            schemas,
            rows: None,
            schema,
            partitions,
            manifest_partitions,
            journal,
            entry: None,
        };
        Ok(Self { inner: Some(publisher), session })
    }
}

impl Sink for KafkaSink {
    async fn publish(&mut self, release: &Release) -> Result<Delivery, SinkError> {
        let Some(publisher) = &mut self.inner else { return Err(SinkError::Closed) };
        // librdkafka's transaction calls block; the other tasks go on meanwhile.
        tokio::task::block_in_place(|| publisher.publish(release))
    }

    async fn finish(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

impl Drop for KafkaSink {
    fn drop(&mut self) {
        self.inner = None;
        self.session.finish();
    }
}

impl Publisher {
    fn publish(&mut self, release: &Release) -> Result<Delivery, SinkError> {
        let session = Arc::clone(&self.session);
        let _publishing = session.publishing();
        let started = Instant::now();
        let mut planned = release.lineage().replayed || release.is_empty();
        self.entry = release.lineage().plan.journal;
        loop {
            let done = if planned { Ok(()) } else { self.plan(release) };
            planned |= done.is_ok();
            let done = done.and_then(|()| self.transact(release));
            let again = match done {
                Ok(()) => {
                    step("committed");
                    session.progress().finish(&release.lineage().finished, self.leaves(release));
                    return Ok(Delivery::Published);
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
                        session.progress().finish(&release.lineage().finished, self.leaves(release));
                        return Ok(Delivery::Published);
                    }
                    error
                }
            };
            if started.elapsed() > PATIENCE {
                return Err(SinkError::Kafka(again));
            }
            tracing::warn!(error = %again, "a release is tried again with the same bytes");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Commits the plan where the offsets are, behind the journal's entry. No row has been produced yet.
    fn plan(&mut self, release: &Release) -> Result<(), Fault> {
        self.check(release)?;
        let writers = self.schemas.as_ref().map(|s| s.writers(s.known())).unwrap_or_default();
        let rows = blocking(self.output.encoder(&writers)).map_err(|error| Fault::Fatal(error.into()))?;
        let schema_id = rows.schema_id;
        self.rows = Some(rows);
        step("before-plan");
        self.entry = self.journalled(release)?;
        let plan = ReleasePlan { schema: schema_id, journal: self.entry, ..release.lineage().plan.clone() };
        let commits = self.session.progress().planned(&plan).ok_or(Fault::Stale)?;
        let offsets = self.offsets(&commits)?;
        // A plain commit is fenced by the group's generation as well, and costs no transaction. It is waited for to its end: the
        // client would send what is left behind in a later generation.
        let (asked, consumer) = (Instant::now(), Arc::clone(&self.consumer));
        let committed = bounded(PATIENCE, move || consumer.commit(&offsets, CommitMode::Sync));
        let took = asked.elapsed();
        if took >= PATIENCE {
            return Err(Fault::Fatal(SinkError::Kafka(KafkaError::Global(RDKafkaErrorCode::OperationTimedOut))));
        }
        self.check(release)?;
        match committed {
            Ok(()) if took < SENT_ONCE => {
                step("planned");
                Ok(())
            }
            // A copy may still be under way. If it came after the release, the release would stand there as planned again.
            Ok(()) | Err(Fault::Again(_) | Fault::Unknown(_)) => {
                tracing::warn!(?took, "the commit of a plan may come a second time: the group is joined anew");
                self.session.give_up();
                Err(Fault::Stale)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Writes down what the release shows, where later ones must know; where it stands.
    fn journalled(&self, release: &Release) -> Result<Option<i64>, Fault> {
        let plan = &release.lineage().plan;
        let (Some(journal), Some(shown)) = (&self.journal, &plan.shown) else { return Ok(None) };
        let entry = Entry {
            id: plan.id,
            fingerprint: plan.fingerprint.clone(),
            levels: plan.levels.clone(),
            shown: shown.clone(),
        };
        let written = blocking(journal.append(&entry, &self.session.topics)).map_err(classify)?;
        step("journalled");
        Ok(Some(written))
    }

    /// Rows, manifest, dead letters and offsets in one transaction.
    fn transact(&mut self, release: &Release) -> Result<(), Fault> {
        self.check(release)?;
        if self.transactions.is_spent() {
            self.transactions = Transactions::take_over(&self.config, &self.session).map_err(Fault::Fatal)?;
            self.check(release)?;
        }
        if release.lineage().replayed && !release.is_empty() {
            let planned = blocking(self.output.encoder_of(release.lineage().plan.schema));
            self.rows = Some(planned.map_err(|error| Fault::Fatal(error.into()))?);
        }
        self.session.meter.transaction_began(now());
        let ended = self.transaction(release);
        self.session.meter.transaction_ended(match &ended {
            Ok(()) => Transaction::Committed,
            Err(Fault::Unknown(_)) => Transaction::Unknown,
            Err(Fault::Fenced) => Transaction::Fenced,
            Err(_) => Transaction::Aborted,
        });
        ended
    }

    fn transaction(&mut self, release: &Release) -> Result<(), Fault> {
        self.transactions.begin()?;
        step("begun");
        let sent = self.produce(release).and_then(|()| self.send_offsets(release));
        let sent = sent.and_then(|()| {
            step("offsets-sent");
            self.check(release)?;
            self.transactions.commit()
        });
        match sent {
            Ok(()) => Ok(()),
            Err(Fault::Unknown(error)) => Err(Fault::Unknown(error)),
            Err(fault) => match (self.transactions.abort(), fault) {
                (Err(Fault::Again(error) | Fault::Unknown(error)), Fault::Again(_)) => Err(Fault::Unknown(error)),
                (_, fault) => Err(fault),
            },
        }
    }

    fn produce(&mut self, release: &Release) -> Result<(), Fault> {
        let provenance = &release.manifest().provenance;
        let headers = || {
            let header = Header { key: RELEASE_HEADER, value: Some(provenance.release_id.as_str()) };
            OwnedHeaders::new_with_capacity(1).insert(header)
        };
        let mut payload = Vec::new();
        // The same partitions when the release is carried out again. The id is public, and the order follows from the rows.
        let mut at = release.lineage().plan.id;
        let time = provenance.closed_at;
        let (rows, transactions) = (&mut self.rows, &mut self.transactions);
        let labels = release.labels(|quasi, out| {
            if let Some(rows) = rows {
                rows.encoder.message_labels(quasi, out);
            }
        });
        release.labelled_rows(&labels, |labels, values| {
            payload.clear();
            let rows = rows.as_mut().ok_or(Fault::Fatal(SinkError::Closed))?;
            let written = rows.encoder.labelled_message(labels, values, &mut payload);
            written.map_err(|error| Fault::Fatal(error.into()))?;
            let partition = (at % self.partitions as u64) as i32;
            at = at.wrapping_add(1);
            let record = BaseRecord::<(), [u8]>::to(&self.config.topic).payload(&payload);
            transactions.send(record.partition(partition).timestamp(time).headers(headers()))?;
            if at.is_multiple_of(1024) && self.session.epoch() != release.lineage().epoch {
                return Err(Fault::Stale);
            }
            Ok(())
        })?;
        step("produced");
        // Without rows there is nothing to tell a reader: it would be about the few records that were left out.
        if let Some(topic) = self.config.manifests.as_ref().filter(|_| !release.is_empty()) {
            let manifest = self.output.manifest(release.manifest()).map_err(|error| Fault::Fatal(error.into()))?;
            let partition = (release.lineage().plan.id % self.manifest_partitions as u64) as i32;
            let record = BaseRecord::<(), [u8]>::to(topic).payload(&manifest).partition(partition);
            self.transactions.send(record.timestamp(time).headers(headers()))?;
        }
        if let Some(journal) = &self.config.journal {
            let place = |partition| {
                let place = self.session.topics.place(partition);
                place.map_or((None, partition.0), |(topic, number)| (Some(topic.to_owned()), number as u32))
            };
            let entry = serde_json::to_vec(&journal_entry(release, place)).unwrap_or_default();
            let record = BaseRecord::<(), [u8]>::to(&journal.topic).payload(&entry).partition(journal::PARTITION);
            self.transactions.send(record.timestamp(time))?;
        }
        if let Some(topic) = &self.config.dead_letters {
            for (position, reject) in release.rejected() {
                let Some((source, partition)) = self.session.topics.place(position.partition) else { continue };
                let letter = DeadLetter {
                    topic: source,
                    partition,
                    offset: position.offset.0,
                    code: reject.code.as_str(),
                    field: reject.field.map(|slot| self.schema.name(slot).as_ref()),
                    at: time,
                };
                let letter = self.output.dead_letter(&letter).map_err(|error| Fault::Fatal(error.into()))?;
                self.transactions.send(BaseRecord::<(), [u8]>::to(topic).payload(&letter).timestamp(time))?;
            }
            step("dead-letters");
        }
        self.transactions.flush()?;
        step("flushed");
        Ok(())
    }

    fn send_offsets(&mut self, release: &Release) -> Result<(), Fault> {
        self.check(release)?;
        let offsets = self.offsets(&self.after(release)?)?;
        if offsets.count() == 0 {
            return Ok(());
        }
        if defect("offsets-outside") {
            return self.consumer.commit(&offsets, CommitMode::Sync).map_err(Fault::Again);
        }
        // Fresh each time: the generation in it is what fences a zombie.
        let group = self.consumer.group_metadata().ok_or(Fault::Stale)?;
        self.transactions.send_offsets(offsets, group)
    }

    /// The commits of every partition that the release touches, as they are after it.
    fn after(&self, release: &Release) -> Result<Vec<(Partition, Commit)>, Fault> {
        let lineage = release.lineage();
        let progress = self.session.progress();
        let mut partitions = lineage.plan.partitions();
        partitions.extend(lineage.finished.iter().map(|(partition, _)| partition));
        partitions.sort_unstable();
        partitions.dedup();
        partitions
            .into_iter()
            .map(|p| Ok((p, progress.after(p, &lineage.finished, self.leaves(release)).ok_or(Fault::Stale)?)))
            .collect()
    }

    fn offsets(&self, commits: &[(Partition, Commit)]) -> Result<TopicPartitionList, Fault> {
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

    /// Whether a transaction of unknown outcome was committed: the offsets on the broker tell.
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

    /// What a release leaves behind for later ones.
    fn leaves<'r>(&self, release: &'r Release) -> Leaves<'r> {
        let lineage = release.lineage();
        let levels = (!release.is_empty()).then_some(lineage.plan.levels.as_slice());
        let releases = self.config.journal.as_ref().and_then(|journal| journal.releases);
        Leaves { levels, since: lineage.since, journal: self.entry.zip(releases) }
    }

    fn check(&self, release: &Release) -> Result<(), Fault> {
        if self.session.epoch() == release.lineage().epoch { Ok(()) } else { Err(Fault::Stale) }
    }
}

/// The wall clock.
fn now() -> Millis {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Millis(since.map_or(0, |since| since.as_millis() as i64))
}

/// The clients of the registry and the journal are asynchronous; transactions are not.
fn blocking<T: Send>(answer: impl Future<Output = T> + Send) -> T {
    let runtime = tokio::runtime::Handle::current();
    // On a thread of its own: to wait on that of the pipeline would take the pipeline's wakes for those of the answer, and a
    // stop that came meanwhile would never be heard.
    let waited = std::thread::scope(|scope| scope.spawn(|| runtime.block_on(answer)).join());
    waited.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
