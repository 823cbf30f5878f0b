//! Gives partitions back while others are read on.
//!
//! A mark goes through the pipeline behind the last record of the partitions. The window stage takes their records out of the open
//! windows, the search stage drops those that wait, and when the mark comes out at the sink every release before it has ended. Then
//! nothing of the partitions is under way, their commits are as their next owner must find them, and the group is told.
//!
//! Invariant: until then this instance owns them, so releases with their records are published as ever. If the mark does not come out
//! in time, the whole assignment is fenced and the group joined anew, as after a commit of doubtful number.

use std::sync::mpsc::{TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use rdkafka::consumer::Consumer;
use rdkafka::topic_partition_list::TopicPartitionList;

use super::poller::{GivingBack, Poller, Reading};
use crate::failpoint::step;
use crate::source::{GivenUp, SourceError, SourceItem};

/// The time that the releases under way may take. Larger: the next owner waits for longer when the output is blocked. Smaller: slow
/// releases cost all windows of this instance.
const PATIENCE: Duration = Duration::from_secs(20);

impl Poller {
    /// True if partitions should be given back by now. Then a full pipeline is waited for no longer, and their mark not sent.
    pub(super) fn is_overdue(&self) -> bool {
        let asked = self.consumer.context().leaving_since().or(self.giving_back.as_ref().map(|giving| giving.since));
        asked.is_some_and(|asked| asked.elapsed() >= PATIENCE)
    }

    /// Starts to give partitions back that the group takes away, and ends it when nothing of them is under way.
    pub(super) fn give_back(&mut self) -> Result<(), SourceError> {
        if let Some((list, since)) = self.consumer.context().take_leaving() {
            self.start_giving_back(list, since)?;
        }
        let Some(giving) = &self.giving_back else { return Ok(()) };
        let current = self.session.is_consuming(giving.epoch);
        match giving.done.try_recv() {
            Err(TryRecvError::Empty) if current && giving.since.elapsed() < PATIENCE => return Ok(()),
            Ok(()) if current => self.session.give_back(&giving.partitions),
            _ => {
                tracing::warn!("releases with partitions that move did not end in time: the group is joined anew");
                self.session.revoke();
                self.leave_group();
            }
        }
        step("revoked");
        if let Some(giving) = self.giving_back.take() {
            self.consumer.context().release(&self.consumer, &giving.list);
            self.pause(false);
        }
        Ok(())
    }

    fn start_giving_back(&mut self, list: TopicPartitionList, since: Instant) -> Result<(), SourceError> {
        let partitions = self.session.shared.numbers(&list);
        self.batch.events.retain(|event| !partitions.contains(&event.position.partition));
        self.schemas.iter_mut().for_each(|schemas| schemas.give_up(&partitions));
        if let Reading::Assigned { foreign, .. } = &mut self.reading {
            foreign.retain(|found| !partitions.contains(&found.partition));
        }
        let (told, done) = sync_channel(1);
        let epoch = self.session.epoch();
        let giving = GivingBack { list, partitions: partitions.clone(), done, epoch, since };
        self.giving_back = Some(giving);
        // If the pipeline is gone, or the assignment, nobody tells: both end the wait.
        self.send(SourceItem::GivenUp(GivenUp { partitions, done: told })).map(drop)
    }
}
