//! Kafka as a sink: plan, then publish, exactly once.
//!
//! The plan of a release is committed as offset metadata before its first record is produced; rows, manifest, dead
//! letters and offsets are then one transaction. Whatever goes wrong in between, the same plan gives the same bytes
//! again. The group's generation fences a zombie's offsets, and with them its transaction; the transactional id fences a
//! second instance that was given the same one. After an answer that never came a new producer takes the id over, and the
//! committed offsets tell whether the transaction went through.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::topic_partition_list::{Offset as KafkaOffset, TopicPartitionList};

use super::{Delivery, Sink, SinkError};
use crate::codec::confluent::SchemaCache;
use crate::failpoint::step;
use crate::gate::Release;
use crate::kafka::client::{self, KafkaSinkConfig};
use crate::kafka::metadata::{MAX_BYTES, PlanPart};
use crate::kafka::output::{Output, Rows};
use crate::kafka::progress::Commit;
use crate::kafka::runs::Runs;
use crate::kafka::session::{self, ASK, GroupConsumer, Session};
use crate::model::batch::{Span, Spans};
use crate::model::dead_letter::DeadLetter;
use crate::model::event::{Millis, Partition};
use crate::model::schema::Schema;

/// How long one transaction call may take before its answer counts as lost.
const CALL: Duration = Duration::from_secs(20);
/// How long a release is tried again before the service gives up and lets its supervisor start over.
const PATIENCE: Duration = Duration::from_secs(300);
/// The header that names a record's release.
pub const RELEASE_HEADER: &str = "veilstream-release";

/// Publishes in transactions.
pub struct KafkaSink {
    inner: Option<Publisher>,
    session: Arc<Session>,
}

struct Publisher {
    config: KafkaSinkConfig,
    session: Arc<Session>,
    consumer: Arc<GroupConsumer>,
    producer: BaseProducer<Context>,
    output: Output,
    /// What the input's schemas are derived from, where there is a registry.
    schemas: Option<Arc<SchemaCache>>,
    rows: Option<Rows>,
    schema: Arc<Schema>,
    partitions: i32,
    manifest_partitions: i32,
}

/// Why a transaction did not go through.
enum Fault {
    /// The assignment is no longer ours.
    Stale,
    /// Aborted cleanly; the same release can be tried again.
    Again(KafkaError),
    /// The outcome is not known, or the producer is no longer usable.
    Unknown(KafkaError),
    /// Another instance has the transactional id.
    Fenced,
    /// No use in trying again.
    Fatal(SinkError),
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
        let producer = take_over(&config, &session)?;
        let count = |topic: &str| -> Result<i32, SinkError> {
            let metadata = producer.client().fetch_metadata(Some(topic), ASK).map_err(SinkError::Kafka)?;
            let partitions = metadata.topics().first().map_or(0, |t| t.partitions().len());
            if partitions == 0 { Err(SinkError::NoTopic(topic.to_owned())) } else { Ok(partitions as i32) }
        };
        let partitions = count(&config.topic)?;
        let manifest_partitions = config.manifests.as_deref().map_or(Ok(1), count)?;
        if let Some(topic) = &config.dead_letters {
            count(topic)?;
        }
        let publisher = Publisher {
            config,
            session: Arc::clone(&session),
            consumer,
            producer,
            output,
            schemas,
            rows: None,
            schema,
            partitions,
            manifest_partitions,
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
        loop {
            let done = if planned { Ok(()) } else { self.plan(release) };
            planned |= done.is_ok();
            let done = done.and_then(|()| self.transact(release));
            let again = match done {
                Ok(()) => {
                    step("committed");
                    let lineage = release.lineage();
                    session.progress().finish(&lineage.finished, levels(release));
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
                    self.producer = take_over(&self.config, &session)?;
                    if self.went_through(release)? {
                        session.progress().finish(&release.lineage().finished, levels(release));
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

    /// Commits the plan where the offsets are. Nothing has been produced yet.
    fn plan(&mut self, release: &Release) -> Result<(), Fault> {
        self.check(release)?;
        let writers = self.schemas.as_ref().map(|s| s.writers(s.known())).unwrap_or_default();
        let rows = blocking(self.output.encoder(&writers)).map_err(|error| Fault::Fatal(error.into()))?;
        let schema_id = rows.schema_id;
        self.rows = Some(rows);
        step("before-plan");
        let plan = &release.lineage().plan;
        let mut parts: std::collections::BTreeMap<Partition, (Runs, Runs)> = std::collections::BTreeMap::new();
        for (partition, spans) in plan.fresh.iter() {
            parts.entry(partition).or_default().0 = Runs::from_spans(spans);
        }
        for (partition, spans) in plan.held.iter() {
            parts.entry(partition).or_default().1 = Runs::from_spans(spans);
        }
        let Some(home) = parts.keys().next().copied() else { return Ok(()) };
        let mut all = Runs::default();
        parts.keys().for_each(|p| all.insert(i64::from(p.0), i64::from(p.0)));
        let progress = self.session.progress();
        let commits = parts.into_iter().map(|(partition, (fresh, held))| {
            let mut commit = progress.commit(partition).ok_or(Fault::Stale)?;
            commit.state.plan = Some(PlanPart {
                seed: plan.seed,
                closed: plan.closed.unwrap_or(Millis(0)),
                fingerprint: plan.fingerprint.clone(),
                levels: plan.levels.clone(),
                schema: schema_id,
                home,
                members: if partition == home { all.clone() } else { Runs::default() },
                fresh,
                held,
            });
            Ok((partition, commit))
        });
        let commits: Vec<(Partition, Commit)> = commits.collect::<Result<_, Fault>>()?;
        drop(progress);
        let offsets = self.offsets(&commits)?;
        // A plain commit is fenced by the group's generation as well, and costs no transaction.
        let committed = self.consumer.commit(&offsets, CommitMode::Sync);
        self.check(release)?;
        committed.map_err(classify)?;
        step("planned");
        Ok(())
    }

    /// Rows, manifest, dead letters and offsets in one transaction.
    fn transact(&mut self, release: &Release) -> Result<(), Fault> {
        self.check(release)?;
        if release.lineage().replayed && !release.is_empty() {
            let planned = blocking(self.output.encoder_of(release.lineage().plan.schema));
            self.rows = Some(planned.map_err(|error| Fault::Fatal(error.into()))?);
        }
        self.producer.begin_transaction().map_err(classify)?;
        step("begun");
        let sent = self.produce(release).and_then(|()| self.send_offsets(release));
        let sent = sent.and_then(|()| {
            step("offsets-sent");
            self.check(release)?;
            self.producer.commit_transaction(CALL).map_err(classify)
        });
        match sent {
            Ok(()) => Ok(()),
            Err(Fault::Unknown(error)) => Err(Fault::Unknown(error)),
            Err(fault) => {
                if let Err(error) = self.producer.abort_transaction(CALL) {
                    return Err(match fault {
                        Fault::Fatal(_) | Fault::Fenced | Fault::Stale => fault,
                        _ => Fault::Unknown(error),
                    });
                }
                Err(fault)
            }
        }
    }

    fn produce(&mut self, release: &Release) -> Result<(), Fault> {
        let provenance = &release.manifest().provenance;
        let headers = || {
            let header = Header { key: RELEASE_HEADER, value: Some(provenance.release_id.as_str()) };
            OwnedHeaders::new_with_capacity(1).insert(header)
        };
        let mut payload = Vec::new();
        let mut at = release.lineage().plan.seed;
        let time = provenance.closed_at;
        let (rows, this) = (&mut self.rows, (&self.producer, &self.session));
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
            send(this.0, record.partition(partition).timestamp(time).headers(headers()))?;
            if at.is_multiple_of(1024) && this.1.epoch() != release.lineage().epoch {
                return Err(Fault::Stale);
            }
            Ok(())
        })?;
        step("produced");
        if let Some(topic) = &self.config.manifests {
            let manifest = self.output.manifest(release.manifest()).map_err(|error| Fault::Fatal(error.into()))?;
            let partition = (release.lineage().plan.seed % self.manifest_partitions as u64) as i32;
            let record = BaseRecord::<(), [u8]>::to(topic).payload(&manifest).partition(partition);
            send(&self.producer, record.timestamp(time).headers(headers()))?;
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
                send(&self.producer, BaseRecord::<(), [u8]>::to(topic).payload(&letter).timestamp(time))?;
            }
            step("dead-letters");
        }
        self.producer.flush(CALL).map_err(classify)?;
        step("flushed");
        Ok(())
    }

    fn send_offsets(&self, release: &Release) -> Result<(), Fault> {
        self.check(release)?;
        let offsets = self.offsets(&self.after(release)?)?;
        if offsets.count() == 0 {
            return Ok(());
        }
        // Fresh each time: the generation in it is what fences a zombie.
        let group = self.consumer.group_metadata().ok_or(Fault::Stale)?;
        self.producer.send_offsets_to_transaction(&offsets, &group, CALL).map_err(classify)
    }

    /// The commits of every partition that the release touches, as they are after it.
    fn after(&self, release: &Release) -> Result<Vec<(Partition, Commit)>, Fault> {
        let lineage = release.lineage();
        let progress = self.session.progress();
        let touched = |spans: &Spans| spans.iter().map(|(p, _): (Partition, &[Span])| p).collect::<Vec<_>>();
        let mut partitions = touched(&lineage.plan.fresh);
        partitions.extend(touched(&lineage.plan.held));
        partitions.extend(touched(&lineage.finished));
        partitions.sort_unstable();
        partitions.dedup();
        partitions
            .into_iter()
            .map(|p| Ok((p, progress.after(p, &lineage.finished, levels(release)).ok_or(Fault::Stale)?)))
            .collect()
    }

    fn offsets(&self, commits: &[(Partition, Commit)]) -> Result<TopicPartitionList, Fault> {
        let mut offsets = TopicPartitionList::new();
        for (partition, commit) in commits {
            let (topic, number) = self.session.topics.place(*partition).ok_or(Fault::Stale)?;
            let metadata = commit.state.to_text(commit.offset);
            if metadata.len() > MAX_BYTES {
                return Err(Fault::Fatal(SinkError::MetadataTooLarge));
            }
            let mut element = offsets.add_partition(topic, number);
            element.set_offset(KafkaOffset::Offset(commit.offset)).map_err(classify)?;
            element.set_metadata(metadata);
        }
        Ok(offsets)
    }

    /// Whether a transaction of unknown outcome was committed: the offsets on the broker tell.
    fn went_through(&self, release: &Release) -> Result<bool, SinkError> {
        let Ok(after) = self.after(release) else { return Ok(false) };
        let Ok(wanted) = self.offsets(&after) else { return Ok(false) };
        let found = self.consumer.committed_offsets(wanted.clone(), CALL).map_err(SinkError::Kafka)?;
        Ok(wanted.elements().iter().all(|wanted| {
            found
                .find_partition(wanted.topic(), wanted.partition())
                .is_some_and(|f| f.offset() == wanted.offset() && f.metadata() == wanted.metadata())
        }))
    }

    fn check(&self, release: &Release) -> Result<(), Fault> {
        if self.session.epoch() == release.lineage().epoch { Ok(()) } else { Err(Fault::Stale) }
    }
}

/// The levels that later releases follow; none if nothing was published.
fn levels(release: &Release) -> Option<&[u8]> {
    (!release.is_empty()).then_some(release.lineage().plan.levels.as_slice())
}

/// A producer that owns the transactional id: whoever had it is fenced, and what it left open is aborted or completed.
fn take_over(config: &KafkaSinkConfig, session: &Session) -> Result<BaseProducer<Context>, SinkError> {
    let started = Instant::now();
    let producer =
        BaseProducer::from_config_and_context(&client::producer(config), Context).map_err(SinkError::Kafka)?;
    loop {
        match producer.init_transactions(CALL) {
            Ok(()) => return Ok(producer),
            Err(KafkaError::Transaction(error)) if error.is_fatal() => {
                return Err(SinkError::Fenced { id: config.transactional_id.clone() });
            }
            Err(error) if started.elapsed() > PATIENCE || session.is_finished() => return Err(SinkError::Kafka(error)),
            Err(error) => {
                tracing::warn!(%error, "the transactional id cannot be taken over yet");
                std::thread::sleep(Duration::from_millis(500));
            }
        }
    }
}

/// Queues one record, waiting while the queue is full.
fn send(producer: &BaseProducer<Context>, record: BaseRecord<'_, (), [u8]>) -> Result<(), Fault> {
    let mut record = record;
    loop {
        match producer.send(record) {
            Ok(()) => {
                producer.poll(Duration::ZERO);
                return Ok(());
            }
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                record = back;
                producer.poll(Duration::from_millis(50));
            }
            Err((error, _)) => return Err(classify(error)),
        }
    }
}

/// What an error means for the release.
fn classify(error: KafkaError) -> Fault {
    use RDKafkaErrorCode as Code;
    let code = match &error {
        KafkaError::Transaction(inner) => Some(inner.code()),
        other => other.rdkafka_error_code(),
    };
    match code {
        Some(Code::UnknownMemberId | Code::IllegalGeneration | Code::RebalanceInProgress | Code::FencedInstanceId) => {
            return Fault::Stale;
        }
        Some(Code::OffsetMetadataTooLarge) => return Fault::Fatal(SinkError::MetadataTooLarge),
        Some(Code::InvalidProducerEpoch | Code::ProducerFenced | Code::Fenced) => {
            return Fault::Fenced;
        }
        Some(
            Code::TopicAuthorizationFailed | Code::GroupAuthorizationFailed | Code::TransactionalIdAuthorizationFailed,
        ) => {
            return Fault::Fatal(SinkError::Kafka(error));
        }
        _ => {}
    }
    match &error {
        KafkaError::Transaction(inner) if inner.is_fatal() => Fault::Unknown(error),
        KafkaError::Transaction(inner) if inner.txn_requires_abort() => Fault::Again(error),
        KafkaError::Transaction(_) => Fault::Unknown(error),
        _ => Fault::Again(error),
    }
}

struct Context;

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        session::log(level, facility, message);
    }
    fn error(&self, error: KafkaError, _reason: &str) {
        tracing::warn!(%error, "kafka producer");
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = ();
    /// A record that could not be delivered fails the transaction's commit; nothing to do here.
    fn delivery(&self, _result: &DeliveryResult<'_>, _opaque: ()) {}
}

/// The registry's client is asynchronous; transactions are not.
fn blocking<T>(answer: impl Future<Output = T>) -> T {
    tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(answer))
}
