//! Every metric name in one place. Base units, prefix `veilstream_`, bounded labels.

use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

use crate::model::event::{Millis, RejectCode};
use crate::model::manifest::Manifest;
use crate::model::policy::{Loss, Policy};
use crate::privacy::Rules;
use crate::search::StopReason;
use crate::window::CloseReason;

/// Seconds: a search or a publication takes from a fraction of a millisecond to minutes.
const SECONDS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Shares between nothing and everything.
const SHARES: &[f64] = &[0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];

pub(super) struct Metrics {
    pub(super) registry: Registry,
    pub(super) read: IntCounter,
    pub(super) records: IntCounterVec,
    pub(super) rejected: IntCounterVec,
    pub(super) held: IntGauge,
    pub(super) windows: IntCounterVec,
    pub(super) window_records: IntGauge,
    pub(super) frequency_set_entries: IntGauge,
    pub(super) releases: IntCounterVec,
    pub(super) loss: GaugeVec,
    pub(super) losses: HistogramVec,
    pub(super) achieved: GaugeVec,
    pub(super) k: Gauge,
    pub(super) classes: IntGauge,
    pub(super) level: IntGaugeVec,
    pub(super) search: Histogram,
    pub(super) checks: IntCounter,
    pub(super) stops: IntCounterVec,
    pub(super) close_to_publish: Histogram,
}

impl Metrics {
    pub(super) fn new(policy: &Policy) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let make = Make(&registry);
        let metrics = Self {
            read: make.counter("records_read_total", "Records read from the source.")?,
            records: make.counters("records_total", "Records by outcome.", "outcome")?,
            rejected: make.counters("records_rejected_total", "Records turned away, by reason.", "reason")?,
            held: make.gauge("records_held", "Records that wait for a later release.")?,
            windows: make.counters("windows_closed_total", "Windows closed, by reason.", "reason")?,
            window_records: make.gauge("window_records", "Records in windows that still fill.")?,
            frequency_set_entries: make.gauge("frequency_set_entries", "Distinct tuples in the last closed window.")?,
            releases: make.counters("releases_total", "Releases by outcome.", "outcome")?,
            loss: make.gauges("information_loss", "Information loss of the last release, by metric.", "metric")?,
            losses: make.histograms(
                "information_loss_ratio",
                "Normalised information loss of releases.",
                "metric",
                SHARES,
            )?,
            achieved: make.gauges(
                "criterion_achieved",
                "What the weakest class of the last release reaches.",
                "criterion",
            )?,
            k: make.float_gauge("achieved_k", "Distinct subjects in the smallest class of the last release.")?,
            classes: make.gauge("classes", "Classes in the last release.")?,
            level: make.int_gauges("attribute_level", "Generalization level of the last release.", "attribute")?,
            search: make.histogram("search_seconds", "Time from the close of a window to its recoding.", SECONDS)?,
            checks: make.counter("search_checks_total", "Nodes counted by searches.")?,
            stops: make.counters("search_stops_total", "Searches by why they ended.", "reason")?,
            close_to_publish: make.histogram("close_to_publish_seconds", "Time from close to publication.", SECONDS)?,
            registry,
        };
        metrics.declare(policy);
        Ok(metrics)
    }

    /// Every series exists from the start, so that a dashboard shows zero and not nothing.
    fn declare(&self, policy: &Policy) {
        for outcome in ["published", "suppressed", "rejected"] {
            self.records.with_label_values(&[outcome]);
        }
        for outcome in ["published", "empty", "refused"] {
            self.releases.with_label_values(&[outcome]);
        }
        RejectCode::ALL.iter().for_each(|code| drop(self.rejected.with_label_values(&[code.as_str()])));
        for reason in [CloseReason::Full, CloseReason::Aged, CloseReason::EventTime, CloseReason::Drained] {
            self.windows.with_label_values(&[reason.as_str()]);
        }
        use StopReason::{Budget, Cancelled, Deadline, Exhausted, Proven};
        for reason in [Exhausted, Proven, Budget, Deadline, Cancelled] {
            self.stops.with_label_values(&[reason.as_str()]);
        }
        for loss in Loss::ALL {
            self.loss.with_label_values(&[loss.as_str()]);
        }
        policy.quasi.iter().for_each(|q| drop(self.level.with_label_values(&[&q.name])));
        Rules::new(policy).iter().for_each(|rule| drop(self.achieved.with_label_values(&[&rule.name()])));
    }

    pub(super) fn released(&self, manifest: &Manifest, now: Millis) {
        let from = &manifest.provenance;
        for (outcome, count) in [
            ("published", from.records_published),
            ("suppressed", from.records_suppressed),
            ("rejected", from.records_rejected),
        ] {
            self.records.with_label_values(&[outcome]).inc_by(count);
        }
        self.held.set(from.records_held as i64);
        let outcome = if from.records_published > 0 { "published" } else { "empty" };
        self.releases.with_label_values(&[outcome]).inc();
        for named in &from.losses {
            self.loss.with_label_values(&[&named.name]).set(named.value);
            self.losses.with_label_values(&[&named.name]).observe(named.value);
        }
        for criterion in &manifest.criteria {
            if let Some(achieved) = criterion.achieved {
                self.achieved.with_label_values(&[&criterion.criterion]).set(achieved);
            }
        }
        if let Some(k) = manifest.k_achieved {
            self.k.set(f64::from(k));
            self.classes.set(manifest.classes as i64);
        }
        for level in &from.recoding {
            self.level.with_label_values(&[&level.attribute]).set(i64::from(level.level));
        }
        self.search.observe(from.search_ms / 1e3);
        self.checks.inc_by(from.nodes_checked);
        if from.algorithm != "none" {
            self.stops.with_label_values(&[&from.stop]).inc();
        }
        self.close_to_publish.observe((now.0 - from.closed_at).max(0) as f64 / 1e3);
    }
}

/// Makes and registers metrics.
struct Make<'a>(&'a Registry);

impl Make<'_> {
    fn name(name: &str) -> String {
        format!("veilstream_{name}")
    }

    fn register<C: prometheus::core::Collector + Clone + 'static>(&self, metric: C) -> Result<C, prometheus::Error> {
        self.0.register(Box::new(metric.clone()))?;
        Ok(metric)
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        self.register(IntCounter::new(Self::name(name), help)?)
    }

    fn counters(&self, name: &str, help: &str, label: &str) -> Result<IntCounterVec, prometheus::Error> {
        self.register(IntCounterVec::new(Opts::new(Self::name(name), help), &[label])?)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        self.register(IntGauge::new(Self::name(name), help)?)
    }

    fn float_gauge(&self, name: &str, help: &str) -> Result<Gauge, prometheus::Error> {
        self.register(Gauge::new(Self::name(name), help)?)
    }

    fn gauges(&self, name: &str, help: &str, label: &str) -> Result<GaugeVec, prometheus::Error> {
        self.register(GaugeVec::new(Opts::new(Self::name(name), help), &[label])?)
    }

    fn int_gauges(&self, name: &str, help: &str, label: &str) -> Result<IntGaugeVec, prometheus::Error> {
        self.register(IntGaugeVec::new(Opts::new(Self::name(name), help), &[label])?)
    }

    fn histogram(&self, name: &str, help: &str, buckets: &[f64]) -> Result<Histogram, prometheus::Error> {
        self.register(Histogram::with_opts(HistogramOpts::new(Self::name(name), help).buckets(buckets.to_vec()))?)
    }

    fn histograms(
        &self,
        name: &str,
        help: &str,
        label: &str,
        buckets: &[f64],
    ) -> Result<HistogramVec, prometheus::Error> {
        let options = HistogramOpts::new(Self::name(name), help).buckets(buckets.to_vec());
        self.register(HistogramVec::new(options, &[label])?)
    }
}
