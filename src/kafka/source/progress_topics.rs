//! Looks after the progress topics, where the group is in another cluster than the records.
//!
//! There is one for each topic of the input, with as many partitions and without messages: the group shares them out in place of the
//! input, and their committed offsets are those of the input. A partition of the input that its progress topic lacks is read by
//! nobody, so the group is not joined before they agree, and what the input gets later is made there too, or reported.

use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::runtime::Handle;

use crate::kafka::client::ProgressPlace;
use crate::kafka::rebalance::{GroupConsumer, reader};
use crate::kafka::session::Session;
use crate::source::SourceError;

/// The time between two looks. Larger: records of added partitions wait. Smaller: brokers are asked more often.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// The same while the group is not joined yet. Larger: a start takes longer. Smaller: brokers that are away are asked all the time.
const LOOK_SOON: Duration = Duration::from_secs(1);
/// The time limit of one question. Larger: polling stands still for longer when a cluster is away. Smaller: a slow one counts as away.
const ASK: Duration = Duration::from_secs(2);
/// The time for which the cluster may make topics. Larger: polling stands still for longer. Smaller: a busy cluster counts as one
/// that refuses.
const MAKE: Duration = Duration::from_secs(30);

/// The progress topics of this process.
pub(super) struct ProgressTopics {
    place: ProgressPlace,
    runtime: Handle,
    /// True once every partition of the input had its place.
    agreed: bool,
    looked: Option<Instant>,
    /// The time at which a missing topic of the input was last reported.
    reported: Option<Instant>,
}

/// A topic of the input, and what its progress topic lacks.
struct Lack {
    input: String,
    progress: String,
    wanted: usize,
    there: usize,
}

impl ProgressTopics {
    pub(super) fn new(place: ProgressPlace, runtime: Handle) -> Self {
        Self { place, runtime, agreed: false, looked: None, reported: None }
    }

    /// Makes the partitions that are missing.
    fn make(&self, lacks: &[Lack]) -> Result<(), SourceError> {
        use RDKafkaErrorCode as Code;
        let admin: AdminClient<DefaultClientContext> = self.place.cluster.client(&[]).create()?;
        let options = AdminOptions::new().operation_timeout(Some(MAKE));
        for Lack { progress, wanted, there, .. } in lacks {
            let made = if *there == 0 {
                let topic = NewTopic::new(progress, *wanted as i32, TopicReplication::Fixed(-1));
                self.runtime.block_on(admin.create_topics(&[topic], &options))?
            } else {
                let partitions = NewPartitions::new(progress, *wanted);
                self.runtime.block_on(admin.create_partitions(&[partitions], &options))?
            };
            match made.into_iter().next() {
                Some(Ok(topic)) => tracing::info!(topic, partitions = wanted, "made a progress topic"),
                // Another instance was faster.
                Some(Err((_, Code::TopicAlreadyExists | Code::InvalidPartitions))) | None => {}
                Some(Err((topic, Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed))) => {
                    return Err(SourceError::MayNotCreate(topic));
                }
                Some(Err((_, code))) => return Err(KafkaError::AdminOp(code).into()),
            }
        }
        Ok(())
    }

    /// True if the group may be joined: every partition of the input has its place in a progress topic.
    pub(super) fn agree(&mut self, session: &Session, group: &GroupConsumer) -> Result<bool, SourceError> {
        let began = self.agreed;
        let pause = if began { LOOK_AGAIN } else { LOOK_SOON };
        if self.looked.is_some_and(|at| at.elapsed() < pause) {
            return Ok(began);
        }
        let names = session.topics.names().into_iter().zip(session.shared.names());
        let lacks: Result<Vec<Lack>, KafkaError> =
            names.map(|(input, progress)| lack(group, input, progress)).collect();
        self.looked = Some(Instant::now());
        // A cluster that is away is reported by the consumers.
        let Ok(mut lacks) = lacks else { return Ok(began) };
        if let Some(lack) = lacks.iter().find(|lack| lack.wanted == 0) {
            self.report(&lack.input);
            return Ok(began);
        }
        lacks.retain(|lack| lack.there != lack.wanted);
        let more = lacks.iter().any(|lack| lack.there > lack.wanted);
        match lacks.first() {
            None => {}
            Some(_) if self.place.creates && !more => self.make(&lacks)?,
            Some(lack) => {
                let fault =
                    SourceError::Progress { topic: lack.progress.clone(), there: lack.there, wanted: lack.wanted };
                if !began {
                    return Err(fault);
                }
                tracing::warn!("{fault}: until then records of the input wait");
            }
        }
        self.agreed = true;
        Ok(true)
    }

    /// Says now and then that a topic of the input is missing.
    fn report(&mut self, topic: &str) {
        if self.reported.is_none_or(|at| at.elapsed() >= LOOK_AGAIN) {
            self.reported = Some(Instant::now());
            tracing::warn!(
                topic,
                "the topic is not in the input's cluster: check its name under `source.kafka.topics`"
            );
        }
    }
}

fn lack(group: &GroupConsumer, input: &str, progress: &str) -> Result<Lack, KafkaError> {
    let partitions = |client: &GroupConsumer, topic: &str| -> Result<usize, KafkaError> {
        let found = client.fetch_metadata(Some(topic), ASK)?;
        Ok(found.topics().first().map_or(0, |topic| topic.partitions().len()))
    };
    let (wanted, there) = (partitions(reader(group), input)?, partitions(group, progress)?);
    Ok(Lack { input: input.to_owned(), progress: progress.to_owned(), wanted, there })
}
