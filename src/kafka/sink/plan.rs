//! Commits the plan of a release in the offset metadata of its partitions, before its first row is produced (I4).
//!
//! A commit that takes long may have been sent twice, and the second copy may arrive after the release: the release would then
//! stand there as planned again, and be published twice (I2). So after a commit of doubtful number the membership is given up, and
//! the coordinator refuses a copy of the old generation. The plans after it are committed by transactions, so that a broker that always
//! answers slowly costs a new producer per release and not a rebalance.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::topic_partition_list::TopicPartitionList;

use super::fault::{Fault, classify, unwritten};
use super::output::blocking;
use super::producer::{PATIENCE, bounded};
use super::publisher::Publisher;
use crate::failpoint::step;
use crate::gate::Release;
use crate::kafka::client::RESEND;
use crate::kafka::journal::ShownEntry;
use crate::model::release::plan::ReleasePlan;
use crate::sink::SinkError;

/// A commit that was answered sooner was sent once: the client waits for [`RESEND`], a fifth less at most, before it sends a
/// request again. Larger: a second copy goes unnoticed. Smaller: brokers that are only slow cost a rebalance.
const SENT_ONCE: Duration = Duration::from_millis(RESEND.as_millis() as u64 * 3 / 4);

/// The number of plans in a row that a transaction must commit promptly before plain commits are tried again. Larger: a broker that was
/// slow once costs more requests for longer. Smaller: one that is often slow costs more rebalances.
const SLOW_PLANS: u32 = 100;

impl Publisher {
    /// Commits the plan of a release, behind its journal entry.
    pub(super) fn plan(&mut self, release: &Release) -> Result<(), Fault> {
        self.transactor.check(release.lineage().epoch)?;
        // Late requests of the last transaction, its offsets and then its end, would take the plan out of the commit again.
        self.transactor.renew_producer(release.lineage().epoch)?;
        let writers = match self.schemas.is_empty() {
            false => self.schemas.iter().flat_map(|schemas| schemas.writers(schemas.known())).collect::<Vec<_>>(),
            true => self.transactor.config.input.iter().cloned().collect(),
        };
        let rows = blocking(self.output.encoder(&writers))?;
        let schema = rows.schema_id;
        self.rows = Some(rows);
        step("before-plan");
        self.entry = self.append_shown(release)?;
        let plan = ReleasePlan { schema, journal: self.entry, ..release.lineage().plan.clone() };
        let commits =
            self.transactor.session.progress(|progress| progress.planned(&plan)).flatten().ok_or(Fault::Stale)?;
        let offsets = self.transactor.offsets(&commits)?;
        if self.slow > 0 {
            return self.plan_in_transaction(release, offsets);
        }
        // A plain commit is fenced by the group's generation as well, and costs no transaction. It is waited for to its end: the
        // client would send a commit that is left behind in a later generation.
        let (asked, consumer) = (Instant::now(), Arc::clone(&self.transactor.consumer));
        let committed = bounded(PATIENCE, move || consumer.commit(&offsets, CommitMode::Sync));
        let took = asked.elapsed();
        if took >= PATIENCE {
            return Err(Fault::Fatal(SinkError::Kafka(KafkaError::Global(RDKafkaErrorCode::OperationTimedOut))));
        }
        self.transactor.check(release.lineage().epoch)?;
        match committed {
            Ok(()) if took < SENT_ONCE => {
                step("planned");
                Ok(())
            }
            Ok(()) | Err(Fault::Again(_) | Fault::Unknown(_)) => {
                tracing::warn!(?took, "the commit of a plan may come a second time: the group is joined anew");
                self.transactor.session.give_up();
                self.slow = SLOW_PLANS;
                Err(Fault::Stale)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Commits a plan by a transaction of its own. It costs more than a plain commit, but a late copy of its requests is refused as
    /// soon as the next transaction has a producer of its own: no membership has to be given up.
    fn plan_in_transaction(&mut self, release: &Release, offsets: TopicPartitionList) -> Result<(), Fault> {
        self.transactor.transactions.begin()?;
        let group = self.transactor.consumer.group_metadata().ok_or(Fault::Stale);
        let sent = group.and_then(|group| self.transactor.transactions.send_offsets(offsets, group));
        let sent = sent
            .and_then(|()| self.transactor.check(release.lineage().epoch))
            .and_then(|()| self.transactor.transactions.commit());
        self.transactor.ended(sent)?;
        self.slow = if self.transactor.transactions.is_spent() { SLOW_PLANS } else { self.slow - 1 };
        step("planned");
        Ok(())
    }

    /// Writes the journal entry that names the shown records, where later releases must know them; returns its offset.
    fn append_shown(&self, release: &Release) -> Result<Option<i64>, Fault> {
        let plan = &release.lineage().plan;
        let (Some(journal), Some(shown)) = (&self.journal, &plan.shown) else { return Ok(None) };
        let entry = ShownEntry {
            id: plan.id,
            fingerprint: plan.fingerprint.clone(),
            levels: plan.levels.clone(),
            shown: shown.clone(),
            row_levels: plan.row_levels.clone(),
            changes: plan.changes.clone(),
        };
        let text = entry.to_text(&self.transactor.session.topics).map_err(unwritten)?;
        let written = blocking(journal.append(&text)).map_err(classify)?;
        step("journalled");
        Ok(Some(written))
    }
}
