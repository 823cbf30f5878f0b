//! What a run ends with: every record's outcome, or why it ended early.

use serde::Serialize;

use crate::gate::{Refusal, Release};
use crate::model::release::manifest::Unmet;
use crate::sink::SinkError;
use crate::source::SourceError;
use crate::window::TooWide;

/// The four outcomes, and that they add up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Records read.
    pub records_in: u64,
    /// Records published.
    pub records_published: u64,
    /// Records left out for good.
    pub records_suppressed: u64,
    /// Records that still wait.
    pub records_held: u64,
    /// Records turned away.
    pub records_rejected: u64,
    /// Records given back to the log, to be read again by whoever has their partition next. None without Kafka.
    #[serde(skip_serializing_if = "is_zero")]
    pub records_returned: u64,
    /// Releases with at least one row.
    pub releases: u64,
    /// Why the last window of which nothing could be published was such a one.
    #[serde(skip)]
    pub unmet: Option<Unmet>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde asks for a reference
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Summary {
    /// True if every record read has exactly one outcome.
    pub fn adds_up(&self) -> bool {
        let outcomes = self.records_published + self.records_suppressed + self.records_held + self.records_rejected;
        self.records_in == outcomes + self.records_returned
    }

    pub(super) fn add(&mut self, release: &Release) {
        let provenance = &release.manifest().provenance;
        self.records_published += provenance.records_published;
        self.records_suppressed += provenance.records_suppressed;
        self.records_rejected += provenance.records_rejected;
        self.releases += u64::from(!release.is_empty());
        self.unmet = provenance.work.unmet.or(self.unmet);
    }

    /// Why nothing at all was published although there were records that could have been; `None` if something was.
    pub fn not_met(&self) -> Option<Unmet> {
        self.unmet.filter(|_| self.releases == 0)
    }
}

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// The input failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The output failed.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// The gate refused a release that the search believed in: nothing of it was sent.
    #[error("the gate refused a release, nothing of it was sent: {0}")]
    Refused(#[from] Refusal),
    /// The class keys are too wide.
    #[error(transparent)]
    TooWide(#[from] TooWide),
    /// A field of the policy is in no record of the first window: nothing was sent.
    #[error(
        "{0}: nothing was published; correct the name in the policy or remove the field, and see `validate --sample`"
    )]
    NoSuchField(String),
    /// Every message of the first window was turned away: nothing was sent, and no offset moved past them.
    #[error("every record is rejected: {0}; nothing was published")]
    AllRejected(String),
    /// A stage died.
    #[error("the {0} stage ended without a reason")]
    StageLost(&'static str),
    /// The counts do not add up: a defect, said rather than hidden.
    #[error("the outcomes of the records do not add up: {0:?}")]
    Unaccounted(Summary),
}
