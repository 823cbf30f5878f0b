//! Kafka as a sink: plan, then publish, exactly once.
//!
//! - [`publisher`]: publishes one release: plan, then transaction. [`transactor`]: carries a transaction out exactly once, with the
//!   reaction to every [`Fault`](fault::Fault); [`route`](super::route) uses it too.
//! - [`plan`]: commits the plan of a release in the offset metadata before its first row is produced.
//! - [`transaction`]: rows, manifest, dead letters, journal entry and offsets in one transaction.
//! - [`producer`]: the transactional producer, with a time limit on every call; [`fault`]: the meaning of every error.
//! - [`output`]: the messages of a release. [`audience`]: the tables of its audiences. [`create`]: its topics, where they are missing.

mod audience;
pub(in crate::kafka) mod create;
pub(in crate::kafka) mod fault;
pub mod output;
mod plan;
mod producer;
mod publisher;
mod transaction;
pub(in crate::kafka) mod transactor;

use std::sync::Arc;

use publisher::Publisher;

use super::client::KafkaSinkConfig;
use super::rebalance::GroupConsumer;
use super::session::Session;
use crate::codec::confluent::SchemaCache;
use crate::gate::Release;
use crate::model::schema::Schema;
use crate::sink::{Delivery, Sink, SinkError};

/// The header that names a record's release.
pub const RELEASE_HEADER: &str = "veilstream-release";

/// The header that names the release whose snapshot a row of a changelog changes.
pub const BASE_HEADER: &str = "veilstream-base";

/// Publishes in transactions.
pub struct KafkaSink {
    publisher: Option<Publisher>,
    session: Arc<Session>,
}

impl KafkaSink {
    /// Takes the transactional id over, which fences the instance that had it before.
    pub fn open(
        config: KafkaSinkConfig,
        session: Arc<Session>,
        consumer: Arc<GroupConsumer>,
        schema: Arc<Schema>,
        schemas: Vec<Arc<SchemaCache>>,
    ) -> Result<Self, SinkError> {
        let publisher = Publisher::open(config, Arc::clone(&session), consumer, schema, schemas)?;
        Ok(Self { publisher: Some(publisher), session })
    }
}

impl Sink for KafkaSink {
    async fn publish(&mut self, release: &Release) -> Result<Delivery, SinkError> {
        let Some(publisher) = &mut self.publisher else { return Err(SinkError::Closed) };
        // librdkafka's transaction calls block; the other tasks go on meanwhile.
        tokio::task::block_in_place(|| publisher.publish(release))
    }

    async fn finish(&mut self) -> Result<(), SinkError> {
        let Some(publisher) = &mut self.publisher else { return Ok(()) };
        tokio::task::block_in_place(|| self.session.judge_name(|lost| publisher.transactor.owns_id(lost)));
        Ok(())
    }
}

impl Drop for KafkaSink {
    fn drop(&mut self) {
        self.publisher = None;
        self.session.finish();
    }
}
