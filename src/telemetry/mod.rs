//! Logs, metrics and the console: one event is one log line and its metrics, per window and not per record.
//!
//! Invariant: labels come from bounded sets known at start (codes, configured names). No value of a record is ever
//! logged or counted under its own name; positions and codes only.

pub(crate) mod console;
pub(crate) mod history;
pub(crate) mod html;
pub mod http;
mod metrics;
pub(crate) mod pictures;
pub(crate) mod tables;
pub(crate) mod view;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::gate::{Refusal, Release};
use crate::kafka::meter::Meter;
use crate::model::event::{Millis, Position, Reject};
use crate::model::policy::Policy;
use crate::model::release::audience::Audience;
use crate::model::release::manifest::Unmet;
use crate::privacy::Rules;
use crate::search::insight::Insight;
use crate::usefulness::recodings::Recodings;
use crate::window::ClosedWindow;
use history::{History, Look};
pub(crate) use metrics::resident_bytes;
use metrics::{Asked, Metrics};
use view::{RecordTotals, View, Wanted};

/// Counts and logs what happens.
pub struct Telemetry {
    metrics: Metrics,
    policy: Arc<Policy>,
    wanted: Vec<Wanted>,
    history: Mutex<History>,
    ready: AtomicBool,
    /// True once somebody can ask for pages.
    served: AtomicBool,
    meter: Arc<Meter>,
    /// When the oldest window that still fills got its first record; `NEVER` if none fills.
    opened: AtomicI64,
    /// One scrape at a time.
    scrape: Mutex<()>,
}

/// No window fills.
const NEVER: i64 = i64::MAX;
/// The number of consecutive windows without a publishable record after which the service counts as not ready. Larger: a
/// policy that nothing satisfies goes unnoticed for longer. Smaller: one small window looks like such a policy.
const UNMET_WINDOWS: u64 = 3;
/// The largest share of a window whose value has no place in its hierarchy that is not logged as a warning.
const MOST_FALLBACKS: f64 = 0.05;

impl Telemetry {
    /// Starts with every series of `policy` at zero.
    pub fn new(policy: &Arc<Policy>) -> Result<Self, prometheus::Error> {
        let wanted = |rule: &dyn crate::privacy::Rule| Wanted {
            name: rule.name(),
            required: rule.required(),
            at_most: rule.at_most(),
        };
        Ok(Self {
            metrics: Metrics::new(policy)?,
            wanted: Rules::new(policy).iter().map(wanted).collect(),
            policy: Arc::clone(policy),
            history: Mutex::default(),
            ready: AtomicBool::new(false),
            served: AtomicBool::new(false),
            meter: Arc::default(),
            opened: AtomicI64::new(NEVER),
            scrape: Mutex::new(()),
        })
    }

    /// The counters of source and sink: lag, partitions, transactions.
    pub fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// The service starts, and its pages can be asked for.
    pub fn started(&self, now: Millis) {
        self.served.store(true, Ordering::Relaxed);
        self.metrics.started.set(now.0 as f64 / 1e3);
    }

    /// The service has its input and can publish, or no longer.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }

    /// True while the service has its input and can publish.
    pub fn is_ready(&self) -> bool {
        self.unready().is_none()
    }

    /// Why the service is not ready, if it is not.
    pub fn unready(&self) -> Option<String> {
        if !self.ready.load(Ordering::Relaxed) {
            return Some("nothing is assigned, or it is draining".into());
        }
        let (windows, reason) = self.history().unmet.filter(|(windows, _)| *windows >= UNMET_WINDOWS)?;
        Some(format!("nothing of the last {windows} windows could be published: {}", reason.as_str()))
    }

    /// Records read so far.
    pub fn records_read(&self) -> u64 {
        self.metrics.read.get()
    }

    /// Some records were read.
    pub fn read(&self, records: usize) {
        self.metrics.read.inc_by(records as u64);
    }

    /// Sets the number of records in open windows; the oldest of these got its first record at `opened`.
    pub fn filling(&self, records: usize, opened: Option<Millis>) {
        self.metrics.window_records.set(records as i64);
        self.opened.store(opened.map_or(NEVER, |at| at.0), Ordering::Relaxed);
    }

    /// A message was turned away.
    pub fn rejected(&self, position: Position, reject: &Reject) {
        let code = reject.code.as_str();
        if reject.code.is_passed_over() {
            tracing::debug!(%position, code, "message passed over");
            self.metrics.passed_over.with_label_values(&[code]).inc();
            return;
        }
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
        self.metrics.warm_sets_bytes.set(window.sets.warm_bytes() as i64);
    }

    /// A release was published.
    pub fn released(&self, release: &Release, now: Millis) {
        self.tell(release);
        self.metrics.released(release, now);
        let (read, lag) = (self.records_read(), self.meter.lag());
        let changed = self.history().released(release, &self.policy, read, lag, now);
        let from = &release.manifest().provenance;
        for bound in from.unmet_bounds.iter().filter(|_| changed) {
            tracing::warn!(release = from.release_id, %bound, "a bound of `search.prefer` cannot be met");
        }
        if changed && from.unmet_bounds.is_empty() {
            tracing::info!(release = from.release_id, "every bound of `search.prefer` is met again");
        }
    }

    /// Logs a release.
    fn tell(&self, release: &Release) {
        let manifest = release.manifest();
        let from = &manifest.provenance;
        let work = &from.work;
        if work.tombstones > 0 {
            tracing::info!(
                release = from.release_id,
                tombstones = work.tombstones,
                retracted = work.retracted,
                "records are retracted from this release on"
            );
        }
        if let Some(reason) = work.unmet.map(Unmet::as_str) {
            tracing::warn!(
                window = from.window_id,
                suppressed = from.records_suppressed,
                held = from.records_held,
                rejected = from.records_rejected,
                reason,
                "nothing of a window could be published"
            );
            return;
        }
        if release.is_empty() {
            tracing::info!(
                window = from.window_id,
                suppressed = from.records_suppressed,
                held = from.records_held,
                rejected = from.records_rejected,
                "a window without rows to publish"
            );
            return;
        }
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
            levels = self.policy.recoding_words(&from.recoding),
            groups_left_out = from.work.left_out.len(),
            "release published"
        );
        for (attribute, share) in from.work.fallback_shares().filter(|(_, share)| *share > MOST_FALLBACKS) {
            tracing::warn!(attribute, share, "values that have no place in their hierarchy stand as its top");
        }
        for kept in from.work.kept.iter().filter(|kept| kept.withheld) {
            // Once, not with every release.
            if self.metrics.kept_withheld.with_label_values(&[&kept.field]).get() == 0 {
                let reason = kept.reason();
                tracing::warn!(field = &*kept.field, reason, "a kept field identifies people and is left out");
            }
        }
    }

    /// True if the next search should be recorded for the console: seldom, and more often while the console is open.
    pub fn look_due(&self, now: Millis) -> bool {
        self.history().look_due(now)
    }

    /// A search was recorded for the console.
    pub fn looked(&self, insight: Insight, now: Millis) {
        self.history().look = Some(Arc::new(Look::new(now, insight)));
    }

    /// True if the recodings should be compared on the next window: once the pages are served, seldom, and one at a time.
    pub fn comparison_due(&self, now: Millis) -> bool {
        self.served.load(Ordering::Relaxed) && self.history().comparison_due(now)
    }

    /// A comparison of the recodings begins.
    pub fn comparing(&self) {
        self.history().comparing();
    }

    /// A comparison of the recodings has ended.
    pub fn compared(&self, recodings: Option<Recodings>, at: Millis, took: Duration) {
        self.history().compared(recodings, at, took);
    }

    /// A copy of everything that the console shows now.
    pub fn view(&self, now: Millis) -> View {
        let history = {
            let mut history = self.history();
            history.asked(now);
            history.clone()
        };
        let metrics = &self.metrics;
        let outcome = |name: &str| metrics.records.with_label_values(&[name]).get();
        View {
            now,
            ready: self.is_ready(),
            unmet: history.unmet,
            policy: Arc::clone(&self.policy),
            wanted: self.wanted.clone(),
            totals: RecordTotals {
                read: self.records_read(),
                published: outcome("published"),
                suppressed: outcome("suppressed"),
                held: metrics.held.get().max(0) as u64,
                rejected: outcome("rejected"),
            },
            releases: metrics.releases.with_label_values(&["published"]).get(),
            refused: metrics.releases.with_label_values(&["refused"]).get(),
            window_records: metrics.window_records.get().max(0) as u64,
            window_age: self.opened().map_or(0.0, |opened| (now.0 - opened.0).max(0) as f64 / 1e3),
            lag: self.meter.lag(),
            partitions: self.meter.partitions().0,
            memory: resident_bytes().unwrap_or(0),
            moments: history.moments.into(),
            recent: history.recent.into(),
            recoding: history.recoding,
            schedule: history.schedule,
            unmet_bounds: history.unmet_bounds,
            look: history.look,
            comparison: history.comparison,
        }
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self) -> Option<Millis> {
        Some(self.opened.load(Ordering::Relaxed)).filter(|&at| at != NEVER).map(Millis)
    }

    /// A release was discarded: its records belong to another instance now.
    pub fn discarded(&self, release: &Release) {
        tracing::info!(release = release.manifest().provenance.release_id, "release left to another instance");
        self.metrics.releases.with_label_values(&["discarded"]).inc();
    }

    /// The gate refused a release.
    pub fn refused(&self, refusal: &Refusal) {
        tracing::error!(%refusal, "the gate refused a release: nothing was sent");
        self.metrics.releases.with_label_values(&["refused"]).inc();
    }

    /// The gate refused the table of an audience.
    pub fn audience_refused(&self, audience: &Audience, refusal: &Refusal) {
        let audience = &*audience.name;
        tracing::warn!(audience, %refusal, "the gate refused the table of an audience: this release has none for it");
        self.metrics.audience_refusals.with_label_values(&[audience]).inc();
    }

    /// The metrics in Prometheus's text format.
    pub fn metrics_text(&self, now: Millis) -> Result<String, prometheus::Error> {
        let _one = self.scrape.lock().unwrap_or_else(PoisonError::into_inner);
        self.metrics.text(&Asked { now, opened: self.opened(), meter: &self.meter, ready: self.is_ready() })
    }
}
