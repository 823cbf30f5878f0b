//! What the service says about itself: one event is one log line and its metrics, per window and not per record.
//!
//! Invariant: labels come from bounded sets known at start (codes, configured names). No value of a record is ever
//! logged or counted under its own name; positions and codes only.

pub mod http;
mod metrics;

use std::sync::atomic::{AtomicBool, Ordering};

use prometheus::{Encoder as _, TextEncoder};

use crate::gate::{Refusal, Release};
use crate::model::event::{Millis, Position, Reject};
use crate::model::policy::Policy;
use crate::window::ClosedWindow;
use metrics::Metrics;

/// Counts and logs what happens.
pub struct Telemetry {
    metrics: Metrics,
    ready: AtomicBool,
}

impl Telemetry {
    /// Everything at zero, every series of `policy` declared.
    pub fn new(policy: &Policy) -> Result<Self, prometheus::Error> {
        Ok(Self { metrics: Metrics::new(policy)?, ready: AtomicBool::new(false) })
    }

    /// The service has its input and can publish, or no longer.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }

    /// True while the service has its input and can publish.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    /// Records read so far.
    pub fn records_read(&self) -> u64 {
        self.metrics.read.get()
    }

    /// Some records were read; `open` are in windows that still fill.
    pub fn read(&self, records: usize, open: usize) {
        self.metrics.read.inc_by(records as u64);
        self.metrics.window_records.set(open as i64);
    }

    /// A record was turned away.
    pub fn rejected(&self, position: Position, reject: &Reject) {
        let code = reject.code.as_str();
        tracing::debug!(%position, code, field = reject.field, "record rejected");
        self.metrics.rejected.with_label_values(&[code]).inc();
    }

    /// A window closed.
    pub fn closed(&self, window: &ClosedWindow) {
        tracing::debug!(
            window = window.id.0,
            rows = window.rows.len(),
            reason = window.reason.as_str(),
            "window closed"
        );
        self.metrics.windows.with_label_values(&[window.reason.as_str()]).inc();
        self.metrics.frequency_set_entries.set(window.sets.base().len() as i64);
    }

    /// A release was published.
    pub fn released(&self, release: &Release, now: Millis) {
        let manifest = release.manifest();
        let from = &manifest.provenance;
        tracing::info!(
            release = from.release_id,
            window = from.window_id,
            published = from.records_published,
            suppressed = from.records_suppressed,
            held = from.records_held,
            rejected = from.records_rejected,
            k = manifest.k_achieved,
            checks = from.nodes_checked,
            stop = from.stop,
            "release published"
        );
        self.metrics.released(manifest, now);
    }

    /// The gate refused a release.
    pub fn refused(&self, refusal: &Refusal) {
        tracing::error!(%refusal, "the gate refused a release: nothing was sent");
        self.metrics.releases.with_label_values(&["refused"]).inc();
    }

    /// The metrics in Prometheus's text format.
    pub fn metrics_text(&self) -> Result<String, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.metrics.registry.gather(), &mut text)?;
        String::from_utf8(text).map_err(|_| prometheus::Error::Msg("not UTF-8".into()))
    }
}
