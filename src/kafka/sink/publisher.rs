//! Publishes one release: commits its plan, then carries out its transaction.

use std::sync::Arc;

use super::audience::AudienceOutput;
use super::create;
use super::fault::Fault;
use super::output::{Output, OutputError, RowMessages, blocking, registered};
use super::transactor::{Attempt, Commits, Transactor, exactly_once};
use crate::codec::confluent::SchemaCache;
use crate::gate::Release;
use crate::kafka::client::KafkaSinkConfig;
use crate::kafka::journal::Journal;
use crate::kafka::progress::partition::CarriedOver;
use crate::kafka::rebalance::GroupConsumer;
use crate::kafka::session::Session;
use crate::model::schema::Schema;
use crate::sink::{Delivery, SinkError};

/// Publishes one release after the other.
pub(super) struct Publisher {
    pub(super) transactor: Transactor,
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
        let transactor = Transactor::open(config, session, consumer)?;
        let Transactor { config, session, consumer, transactions, .. } = &transactor;
        if config.create_topics {
            create::missing_topics(config, session, consumer)?;
        }
        config.topics().try_for_each(|topic| transactions.partitions(topic).map(drop))?;
        let partitions = transactions.partitions(&config.topic)?;
        let manifest_partitions = config.manifests.as_deref().map_or(Ok(1), |topic| transactions.partitions(topic))?;
        let remembered = config.journal.as_ref().filter(|journal| journal.releases.is_some());
        let journal = remembered.map(|journal| Journal::open(&config.cluster, &journal.topic)).transpose();
        Ok(Self {
            journal: journal.map_err(SinkError::Kafka)?,
            tables: AudienceOutput::open(config, session, &schema, transactions)?,
            transactor,
            output,
            schemas,
            rows: None,
            schema,
            partitions,
            manifest_partitions,
            entry: None,
            slow: 0,
        })
    }

    /// Publishes a release, behind its plan.
    pub(super) fn publish(&mut self, release: &Release) -> Result<Delivery, SinkError> {
        let planned = release.lineage().replayed || release.is_empty();
        self.entry = release.lineage().plan.journal;
        exactly_once(&mut Publication { publisher: self, release, planned })
    }

    /// The commits of every partition that the release touches, as they are after it.
    fn after(&self, release: &Release) -> Result<Commits, Fault> {
        let lineage = release.lineage();
        let mut partitions = lineage.plan.partitions();
        partitions.extend(lineage.finished.iter().map(|(partition, _)| partition));
        partitions.sort_unstable();
        partitions.dedup();
        let carried = self.carried_over(release);
        let after = self.transactor.session.progress(|progress| {
            let commit = |partition| Some((partition, progress.after(partition, &lineage.finished, carried)?));
            partitions.into_iter().map(commit).collect()
        });
        after.flatten().ok_or(Fault::Stale)
    }

    fn carried_over<'r>(&self, release: &'r Release) -> CarriedOver<'r> {
        let lineage = release.lineage();
        let levels = (!release.is_empty()).then_some(lineage.plan.levels.as_slice());
        let releases = self.transactor.config.journal.as_ref().and_then(|journal| journal.releases);
        CarriedOver { levels, since: lineage.since, journal: self.entry.zip(releases) }
    }
}

/// A release on its way out.
struct Publication<'p> {
    publisher: &'p mut Publisher,
    release: &'p Release,
    /// True once its plan is committed, or if it needs none.
    planned: bool,
}

impl Attempt for Publication<'_> {
    const WHAT: &'static str = "a release";

    fn transactor(&mut self) -> &mut Transactor {
        &mut self.publisher.transactor
    }

    fn epoch(&self) -> u64 {
        self.release.lineage().epoch
    }

    fn prepare(&mut self) -> Result<(), Fault> {
        if !self.planned {
            self.publisher.plan(self.release)?;
            self.planned = true;
        }
        self.publisher.prepare_rows(self.release)
    }

    fn produce(&mut self) -> Result<(), Fault> {
        self.publisher.produce(self.release)
    }

    fn after(&self) -> Result<Commits, Fault> {
        self.publisher.after(self.release)
    }

    fn committed(&mut self) {
        let (publisher, finished) = (&self.publisher, &self.release.lineage().finished);
        let carried = publisher.carried_over(self.release);
        publisher.transactor.session.progress(|progress| progress.finish(finished, carried));
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
