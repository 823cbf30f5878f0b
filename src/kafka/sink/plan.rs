//! Commits the plan of a release in the offset metadata of its partitions, before its first row is produced (I4).
//!
//! A commit that takes long may have been sent twice, and the second copy may arrive after the release: the release would then
//! stand there as planned again, and be published twice (I2). So after a commit of doubtful number the membership is given up, and
//! the coordinator refuses a copy of the old generation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::fault::{Fault, classify};
use super::producer::{PATIENCE, bounded};
use super::publisher::{Publisher, blocking};
use crate::failpoint::step;
use crate::gate::Release;
use crate::kafka::client::RESEND;
use crate::kafka::journal::ShownEntry;
use crate::model::release::plan::ReleasePlan;
use crate::sink::SinkError;

/// A commit that was answered sooner was sent once: the client waits for [`RESEND`], a fifth less at most, before it sends a
/// request again. Larger: a second copy goes unnoticed. Smaller: brokers that are only slow cost a rebalance.
const SENT_ONCE: Duration = Duration::from_millis(RESEND.as_millis() as u64 * 3 / 4);

impl Publisher {
    /// Commits the plan of a release, behind its journal entry.
    pub(super) fn plan(&mut self, release: &Release) -> Result<(), Fault> {
        self.check(release)?;
        let writers = self.schemas.as_ref().map(|s| s.writers(s.known())).unwrap_or_default();
        let rows = blocking(self.output.encoder(&writers))?;
        let schema = rows.schema_id;
        self.rows = Some(rows);
        step("before-plan");
        self.entry = self.append_shown(release)?;
        let plan = ReleasePlan { schema, journal: self.entry, ..release.lineage().plan.clone() };
        let commits = self.session.progress(|progress| progress.planned(&plan)).flatten().ok_or(Fault::Stale)?;
        let offsets = self.offsets(&commits)?;
        // A plain commit is fenced by the group's generation as well, and costs no transaction. It is waited for to its end: the
        // client would send a commit that is left behind in a later generation.
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
            Ok(()) | Err(Fault::Again(_) | Fault::Unknown(_)) => {
                tracing::warn!(?took, "the commit of a plan may come a second time: the group is joined anew");
                self.session.give_up();
                Err(Fault::Stale)
            }
            Err(fault) => Err(fault),
        }
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
        };
        let written = blocking(journal.append(&entry, &self.session.topics)).map_err(classify)?;
        step("journalled");
        Ok(Some(written))
    }
}
