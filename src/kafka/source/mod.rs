//! Kafka as a source: one thread polls for ever, so the group is kept however long a search or a transaction takes.
//!
//! - [`poller`]: the thread. It polls, batches, hands batches to the pipeline, and pauses partitions while the pipeline is full:
//!   nothing is dropped, nothing grows.
//! - [`take_over`]: starts on a new assignment: planned releases first, then the partitions whose plan others carry out.
//! - [`give_back`]: gives single partitions back while others are read on.
//! - [`progress_topics`]: looks after the topics that the group shares out, where it is in another cluster than the records.
//! - [`reread`]: reads records again by position, for planned releases and for those that earlier releases show.
//! - [`schemas`]: resolves the schemas of messages in the Confluent wire format before they are decoded.

mod give_back;
mod poller;
mod progress_topics;
mod reread;
pub mod sample;
mod schemas;
mod take_over;

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use poller::Poller;
use progress_topics::ProgressTopics;
use schemas::Schemas;

use super::client::{self, KafkaSourceConfig};
use super::progress::found::AssignmentFault;
use super::rebalance::{GroupConsumer, GroupContext};
use super::session::Session;
use crate::codec::confluent::SchemaCache;
use crate::model::release::plan::CommitSpace;
use crate::source::{Source, SourceError, SourceItem};

/// Batches between the poller and the pipeline. Larger: costs memory. Smaller: the pipeline starves.
const WAITING: usize = 4;

/// The events of the partitions that this instance owns.
pub struct KafkaSource {
    session: Arc<Session>,
    items: mpsc::Receiver<Result<SourceItem, SourceError>>,
}

/// Resolves once the instance has left the group.
pub type Left = oneshot::Receiver<()>;

/// Joins the group. The group's consumer is shared with the sink, which commits with it. A process that ends before [`Left`]
/// resolves leaves the other instances waiting for the session timeout. `memory` bounds the records that are fetched ahead; `journal`
/// is the topic of [`ShownEntry`](super::journal::ShownEntry)s, `schemas` are by placement.
pub fn open(
    config: KafkaSourceConfig,
    session: Arc<Session>,
    schemas: Vec<Arc<SchemaCache>>,
    memory: usize,
    journal: Option<String>,
) -> Result<(KafkaSource, Arc<GroupConsumer>, Left), SourceError> {
    let context = |cluster, reader| GroupContext::new(Arc::clone(&session), &config, cluster, reader);
    let reader = config.progress.as_ref().map(|_| {
        let settings = client::record_consumer(&config, memory);
        settings.create_with_context(context(&config.cluster, None)).map(Arc::new)
    });
    let context = context(config.group_cluster(), reader.transpose()?);
    let consumer: GroupConsumer = client::group_consumer(&config, memory).create_with_context(context)?;
    let consumer = Arc::new(consumer);
    let (sender, items) = mpsc::channel(WAITING);
    let schemas = (!schemas.is_empty()).then(|| Schemas::new(schemas, Handle::current()));
    let progress = config.progress.clone().map(|place| ProgressTopics::new(place, Handle::current()));
    let poller = Poller::new(config, journal, Arc::clone(&session), Arc::clone(&consumer), sender, memory);
    let poller = poller.resolving(schemas).sharing(progress);
    let (leaving, left) = oneshot::channel();
    let run = move || {
        poller.run();
        // The receiver may be gone.
        let _ = leaving.send(());
    };
    std::thread::Builder::new().name("kafka".into()).spawn(run).map_err(|_| SourceError::Thread)?;
    Ok((KafkaSource { session, items }, consumer, left))
}

impl Source for KafkaSource {
    const REREADS: bool = true;

    fn commit_space(&self) -> Option<Arc<dyn CommitSpace>> {
        Some(Arc::clone(&self.session) as Arc<dyn CommitSpace>)
    }

    async fn next(&mut self) -> Result<SourceItem, SourceError> {
        self.items.recv().await.unwrap_or(Ok(SourceItem::End))
    }
}

impl From<AssignmentFault> for SourceError {
    fn from(fault: AssignmentFault) -> Self {
        Self::Assignment(Box::new(fault))
    }
}
