//! The records of a plan, read again by position: the same records, so that the same release is made of them.
//!
//! The group's consumer is polled meanwhile, so the group is kept. Deliberately absent: any waiting for records that are not
//! there any more; a plan that cannot be read again is an error.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset as KafkaOffset, TopicPartitionList};

use super::{POLL, Poller, fatal};
use crate::failpoint::step;
use crate::kafka::client;
use crate::kafka::metadata::PlanPart;
use crate::kafka::runs::Runs;
use crate::kafka::session::Found;
use crate::model::batch::Spans;
use crate::model::event::{Event, Partition};
use crate::model::plan::ReleasePlan;
use crate::source::{Replay, SourceError};

/// How long reading one partition's records again may take.
const REREAD: Duration = Duration::from_secs(60);

impl Poller {
    /// Reads the records of a plan again, by position. None if the assignment is gone meanwhile.
    pub(super) fn reread(&mut self, members: &[Found]) -> Result<Option<Replay>, SourceError> {
        let parts: Vec<(Partition, &PlanPart)> =
            members.iter().filter_map(|m| Some((m.partition, m.state.plan.as_ref()?))).collect();
        let spans = |runs: fn(&PlanPart) -> &Runs| {
            let needed = |m: &Found| Some(m.state.needed(runs(m.state.plan.as_ref()?)).spans().collect());
            Spans::from_runs(members.iter().filter_map(|m| Some((m.partition, needed(m)?))))
        };
        let (fresh, held, refused) = (spans(|p| &p.fresh), spans(|p| &p.held), spans(|p| &p.refused));
        let consumer: BaseConsumer = client::plain_consumer(&self.config).create()?;
        step("rereading");
        let mut events: Vec<Event> = Vec::new();
        for (partition, _) in &parts {
            let runs = [fresh.of(*partition), held.of(*partition)];
            let bounds = runs.iter().filter_map(|spans| Some(spans.first()?.first.0)).min();
            let ends = runs.iter().filter_map(|spans| Some(spans.last()?.last.0)).max();
            let (Some(first), Some(last)) = (bounds, ends) else { continue };
            let before = events.len();
            let Some((topic, number)) = self.session.topics.place(*partition) else { continue };
            let mut at = TopicPartitionList::new();
            at.add_partition_offset(topic, number, KafkaOffset::Offset(first))?;
            consumer.assign(&at)?;
            let started = Instant::now();
            loop {
                self.take(Duration::ZERO)?;
                if self.epoch != self.session.epoch() {
                    return Ok(None);
                }
                match consumer.poll(POLL) {
                    Some(Ok(message)) if message.offset() > last => break,
                    Some(Ok(message)) => {
                        let wanted = self.event(&message);
                        let wanted = wanted.filter(|e| fresh.contains(e.position) || held.contains(e.position));
                        events.extend(wanted);
                        if message.offset() == last {
                            break;
                        }
                    }
                    Some(Err(KafkaError::PartitionEOF(_))) => break,
                    Some(Err(error)) => fatal(&error)?,
                    None if started.elapsed() > REREAD => return Err(SourceError::Reread),
                    None => {}
                }
            }
            let mut found = Runs::default();
            events[before..].iter().for_each(|e| found.insert(e.position.offset.0, e.position.offset.0));
            self.session.progress().reread(*partition, &found);
        }
        if let Some(schemas) = &self.schemas {
            schemas.settle(&events);
        }
        let part = parts.first().map(|(_, part)| *part).ok_or(SourceError::Reread)?;
        let plan = ReleasePlan {
            seed: part.seed,
            levels: part.levels.clone(),
            closed: Some(part.closed),
            fingerprint: part.fingerprint.clone(),
            schema: part.schema,
            fresh,
            held,
            refused,
        };
        Ok(Some(Replay { plan, events }))
    }
}
