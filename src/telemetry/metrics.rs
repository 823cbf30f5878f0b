//! Every metric name in one place. Base units, prefix `veilstream_`, bounded labels.
//!
//! Every series is declared at the start, from the policy and from enums: how many there are does not depend on the data.
//! Deliberately absent: labels for partitions, topics, classes and releases.

use prometheus::Encoder as _;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

use crate::gate::Release;
use crate::kafka::meter::{Meter, Transaction};
use crate::model::counting::Facet;
use crate::model::event::{Millis, RejectCode};
use crate::model::policy::{Loss, Policy};
use crate::model::release::manifest::{Provenance, UnmetBound, Work};
use crate::privacy::Rules;
use crate::search::StopReason;
use crate::search::front::objectives::Objective;
use crate::window::CloseReason;

/// Seconds: a search or a publication takes from a fraction of a millisecond to minutes.
const SECONDS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Subjects in a class: from the k of strict policies to classes that hide everybody.
const SUBJECTS: &[f64] = &[1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 10_000.0];
/// Seconds that a record may be under way: it waits for its window, and perhaps for later ones.
const LONG_SECONDS: &[f64] = &[0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 21_600.0, 86_400.0];
/// Candidate values of a person: none, one, and on to so many that they tell nothing.
const CANDIDATES: &[f64] = &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 50.0];
/// Shares between nothing and everything.
const SHARES: &[f64] = &[0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0];

/// Declares every metric once: its field, its type, and how it is made from name, help text, labels and buckets. To add a
/// metric, add an entry; where its series are known at the start, name them in [`Metrics::declare`].
macro_rules! metrics {
    ($($field:ident: $kind:ty = $make:ident($($argument:expr),+);)+) => {
        pub(super) struct Metrics {
            registry: Registry,
            $(pub(super) $field: $kind,)+
        }

        impl Metrics {
            fn registered() -> Result<Self, prometheus::Error> {
                let registry = Registry::new();
                let make = Make(&registry);
                Ok(Self { $($field: make.$make($($argument),+)?,)+ registry })
            }
        }
    };
}

metrics! {
    read: IntCounter = counter("records_read_total", "Records read from the source.");
    records: IntCounterVec = counters("records_total", "Records by outcome.", "outcome");
    rejected: IntCounterVec = counters("records_rejected_total", "Records turned away, by reason.", "reason");
    passed_over: IntCounterVec =
        counters("messages_passed_over_total", "Messages about no row, such as tombstones and heartbeats, by reason.", "reason");
    recurring: IntGauge = gauge(
        "recurring_subjects",
        "Subjects of the last release that were in one of the releases shortly before it."
    );
    candidates: Histogram = histogram(
        "recurring_candidates",
        "Sensitive values left for a subject after intersecting its classes over the last releases.", CANDIDATES
    );
    held: IntGauge = gauge("records_held", "Records that wait for a later release.");
    retracted: IntCounter = counter(
        "records_retracted_total",
        "Records that tombstones retracted: suppressed, or taken out of the snapshots that showed them."
    );
    windows: IntCounterVec = counters("windows_closed_total", "Windows closed, by reason.", "reason");
    window_records: IntGauge = gauge("window_records", "Records in windows that still fill.");
    window_age: Gauge = float_gauge("window_age_seconds", "Age of the oldest window that still fills.");
    frequency_set_entries: IntGauge = gauge("frequency_set_entries", "Distinct tuples in the last closed window.");
    warm_sets_bytes: IntGauge = gauge(
        "warm_sets_bytes",
        "Frequency sets that the last closed window had from earlier searches."
    );
    sets: IntCounterVec = counters(
        "frequency_sets_total",
        "Frequency sets that searches looked at, by origin.", "origin"
    );
    releases: IntCounterVec = counters("releases_total", "Releases by outcome.", "outcome");
    audience_refusals: IntCounterVec = counters(
        "audience_refusals_total",
        "Releases without a table for an audience, because the gate refused it.", "audience"
    );
    unmet_windows: IntGauge = gauge(
        "unmet_windows",
        "Windows since the last release of which nothing could be published."
    );
    groups_left_out: IntGauge = gauge(
        "groups_left_out",
        "Groups of which half or more was left out of the last release."
    );
    top_fallback: GaugeVec = gauges(
        "top_fallback_ratio",
        "Share of the last window that stands as an attribute's top because its value has no place.", &["attribute"]
    );
    kept_unique: GaugeVec = gauges(
        "kept_unique_ratio",
        "Share of the last release's rows whose value of a kept field belongs to one person alone.", &["field"]
    );
    kept_withheld: IntGaugeVec = int_gauges(
        "kept_withheld",
        "1 if a kept field was left out of the last release because it identifies people.", "field"
    );
    loss: GaugeVec = gauges("information_loss", "Information loss of the last release, by metric.", &["metric"]);
    losses: HistogramVec = histograms(
        "information_loss_ratio",
        "Normalised information loss of releases.", "metric", SHARES
    );
    achieved: GaugeVec = gauges(
        "criterion_achieved",
        "Value of the weakest class of the last release.", &["criterion"]
    );
    required: GaugeVec = gauges(
        "criterion_required",
        "Value that the policy asks of every class, at least or at most.", &["criterion", "bound"]
    );
    security: Gauge = float_gauge(
        "security_ratio",
        "Mean security (sf) of the last release by the confidential sentences."
    );
    k: IntGauge = gauge("achieved_k", "Distinct subjects in the smallest class of the last release.");
    classes: IntGauge = gauge("classes", "Classes in the last release.");
    class_subjects: Histogram = histogram("class_subjects", "Distinct subjects in published classes.", SUBJECTS);
    spread: GaugeVec = gauges(
        "privacy_spread",
        "How class size, risk and sensitive values per class are spread over the people of the last release.",
        &["property", "statistic"]
    );
    spread_change: GaugeVec = gauges(
        "privacy_spread_change_ratio",
        "Mean of a property over the people of the last release, relative to the release before.", &["property"]
    );
    level: IntGaugeVec = int_gauges("attribute_level", "Generalization level of the last release.", "attribute");
    search: Histogram = histogram("search_seconds", "Time from the close of a window to its recoding.", SECONDS);
    checks: IntCounter = counter("search_checks_total", "Nodes counted by searches.");
    stops: IntCounterVec = counters("search_stops_total", "Searches by why they ended.", "reason");
    unmet_bounds: IntGaugeVec = int_gauges(
        "bound_unmet",
        "1 if the last release does not meet the bound of `search.prefer` on this objective.", "objective"
    );
    close_to_publish: Histogram = histogram("close_to_publish_seconds", "Time from close to publication.", SECONDS);
    end_to_end: Histogram = histogram(
        "end_to_end_seconds",
        "Time from the arrival of a release's oldest record to its publication.", LONG_SECONDS
    );
    transactions: IntCounterVec = counters("transactions_total", "Transactions by how they ended.", "outcome");
    taken_back: IntCounter = counter(
        "transactional_id_taken_back_total",
        "Times that a late request of this instance took its transactional id away, and a new producer took it back."
    );
    names_taken_back: IntCounter = counter(
        "member_name_taken_back_total",
        "Times that a late join of this instance took its name in the group away, and it started over under that name."
    );
    transaction_age: Gauge = float_gauge("transaction_age_seconds", "Age of the open transaction.");
    lag: IntGauge = gauge("consumer_lag_records", "Records in the assigned partitions not read yet.");
    partitions: IntGaugeVec = int_gauges("partitions", "Partitions of this instance, by state.", "state");
    ready: IntGauge = gauge("ready", "1 while the service has its input and can publish.");
    memory: IntGauge = gauge("resident_memory_bytes", "Memory of the process that is in RAM.");
    started: Gauge = float_gauge("start_time_seconds", "When the service started, in seconds since 1970.");
}

/// Figures that are read only for a scrape.
pub(super) struct Asked<'a> {
    pub(super) now: Millis,
    /// When the oldest window that still fills got its first record.
    pub(super) opened: Option<Millis>,
    pub(super) meter: &'a Meter,
    pub(super) ready: bool,
}

impl Metrics {
    pub(super) fn new(policy: &Policy) -> Result<Self, prometheus::Error> {
        let metrics = Self::registered()?;
        metrics.declare(policy);
        Ok(metrics)
    }

    /// Every series exists from the start, so that a dashboard shows zero and not nothing.
    fn declare(&self, policy: &Policy) {
        let declare = |family: &IntCounterVec, values: &[&str]| {
            values.iter().for_each(|value| drop(family.with_label_values(&[value])));
        };
        declare(&self.records, &["published", "suppressed", "rejected"]);
        declare(&self.releases, &["published", "empty", "unmet", "refused", "skipped", "discarded"]);
        let (passed_over, rejected): (Vec<RejectCode>, Vec<_>) =
            RejectCode::ALL.into_iter().partition(|code| code.is_passed_over());
        let names = |codes: Vec<RejectCode>| codes.into_iter().map(RejectCode::as_str).collect::<Vec<_>>();
        declare(&self.rejected, &names(rejected));
        declare(&self.passed_over, &names(passed_over));
        declare(&self.windows, &CloseReason::ALL.map(CloseReason::as_str));
        declare(&self.stops, &StopReason::ALL.map(StopReason::as_str));
        declare(&self.sets, &["scanned", "rolled_up", "cached"]);
        declare(&self.transactions, &Transaction::ALL.map(Transaction::as_str));
        for loss in policy.losses() {
            self.loss.with_label_values(&[loss.as_str()]);
            if loss.is_share() {
                self.losses.with_label_values(&[loss.as_str()]);
            }
        }
        Objective::all().for_each(|o| drop(self.unmet_bounds.with_label_values(&[o.as_str()])));
        for state in ["assigned", "paused"] {
            self.partitions.with_label_values(&[state]);
        }
        for quasi in &policy.quasi {
            self.level.with_label_values(&[&quasi.name]);
            self.top_fallback.with_label_values(&[&quasi.name]);
        }
        for (field, _) in policy.schema.kept() {
            self.kept_unique.with_label_values(&[&field]);
            self.kept_withheld.with_label_values(&[&field]);
        }
        let counted = Rules::new(policy).facets().iter().any(|facet| matches!(facet, Facet::Sensitive(_)));
        for property in ["class_size", "risk"].into_iter().chain(counted.then_some("sensitive_values")) {
            self.spread_change.with_label_values(&[property]);
            for statistic in ["worst", "p5", "median", "mean"] {
                self.spread.with_label_values(&[property, statistic]);
            }
        }
        for rule in Rules::new(policy).iter() {
            self.achieved.with_label_values(&[&rule.name()]);
            let bound = if rule.at_most() { "at_most" } else { "at_least" };
            self.required.with_label_values(&[rule.name().as_str(), bound]).set(rule.required());
        }
    }

    pub(super) fn released(&self, release: &Release, now: Millis) {
        let manifest = release.manifest();
        let from = &manifest.provenance;
        for (outcome, count) in [
            ("published", from.records_published),
            ("suppressed", from.records_suppressed),
            ("rejected", from.records_rejected),
        ] {
            self.records.with_label_values(&[outcome]).inc_by(count);
        }
        self.retracted.inc_by(from.work.retracted);
        self.held.set((from.records_held + from.work.waiting_elsewhere) as i64);
        let outcome = match manifest.k_achieved {
            Some(_) => "published",
            None if from.work.unmet.is_some() => "unmet",
            None if from.work.skipped => "skipped",
            None => "empty",
        };
        self.releases.with_label_values(&[outcome]).inc();
        self.left_out(&from.work, outcome);
        // Figures that are no metric of their own, such as sums as papers print them, are for reports.
        for loss in Loss::ALL {
            let Some(value) = from.loss(loss.as_str()) else { continue };
            self.loss.with_label_values(&[loss.as_str()]).set(value);
            if loss.is_share() {
                self.losses.with_label_values(&[loss.as_str()]).observe(value);
            }
        }
        for criterion in &manifest.criteria {
            if let Some(achieved) = criterion.achieved {
                self.achieved.with_label_values(&[&criterion.criterion]).set(achieved);
            }
        }
        if let Some(k) = manifest.k_achieved {
            self.k.set(i64::from(k));
            self.classes.set(manifest.classes as i64);
        }
        for (&size, &classes) in release.class_sizes() {
            (0..classes).for_each(|_| self.class_subjects.observe(f64::from(size)));
        }
        self.spread(release);
        if let Some(recurrence) = release.recurrence() {
            self.recurring.set(recurrence.candidates.values().sum::<u64>() as i64);
            for (&left, &subjects) in &recurrence.candidates {
                (0..subjects).for_each(|_| self.candidates.observe(f64::from(left)));
            }
        }
        for level in &from.recoding {
            self.level.with_label_values(&[&level.attribute]).set(i64::from(level.level));
        }
        self.searched(from);
        self.close_to_publish.observe(seconds(from.closed_at, now));
        if let Some(arrived) = from.work.oldest_arrival {
            self.end_to_end.observe(seconds(arrived, now));
        }
    }

    /// How privacy is spread over people, and how that has changed.
    fn spread(&self, release: &Release) {
        for (property, spread) in release.spreads() {
            let last = self.spread.with_label_values(&[property, "mean"]).get();
            self.spread_change.with_label_values(&[property]).set(if last > 0.0 { spread.mean / last } else { 1.0 });
            for (statistic, figure) in spread.named() {
                self.spread.with_label_values(&[property, statistic]).set(figure);
            }
        }
    }

    /// The work of the search.
    fn searched(&self, from: &Provenance) {
        let work = &from.work;
        for (origin, count) in
            [("scanned", work.sets_scanned), ("rolled_up", work.sets_rolled_up), ("cached", work.sets_cached)]
        {
            self.sets.with_label_values(&[origin]).inc_by(count);
        }
        self.search.observe(from.search_ms / 1e3);
        self.checks.inc_by(from.nodes_checked);
        if from.algorithm != "none" {
            self.stops.with_label_values(&[&from.stop]).inc();
        }
        if let Some(security) = work.security {
            self.security.set(security);
        }
        self.bounds(&from.unmet_bounds);
    }

    /// Records, values and groups that were left out.
    fn left_out(&self, work: &Work, outcome: &str) {
        for (attribute, share) in work.fallback_shares() {
            self.top_fallback.with_label_values(&[attribute]).set(share);
        }
        match outcome {
            "unmet" => self.unmet_windows.inc(),
            "published" => {
                self.unmet_windows.set(0);
                self.groups_left_out.set(work.left_out.len() as i64);
                for kept in &work.kept {
                    self.kept_unique.with_label_values(&[&kept.field]).set(kept.unique_share);
                    self.kept_withheld.with_label_values(&[&kept.field]).set(i64::from(kept.withheld));
                }
            }
            _ => {}
        }
    }

    fn bounds(&self, unmet: &[UnmetBound]) {
        for objective in Objective::all().map(Objective::as_str) {
            let missed = unmet.iter().any(|bound| bound.objective == objective);
            self.unmet_bounds.with_label_values(&[objective]).set(i64::from(missed));
        }
    }

    /// The text that Prometheus reads. One caller at a time: counters kept elsewhere are brought up to date first.
    pub(super) fn text(&self, asked: &Asked<'_>) -> Result<String, prometheus::Error> {
        self.window_age.set(asked.opened.map_or(0.0, |opened| seconds(opened.0, asked.now)));
        self.ready.set(i64::from(asked.ready));
        for outcome in Transaction::ALL {
            let counter = self.transactions.with_label_values(&[outcome.as_str()]);
            counter.inc_by(asked.meter.transactions(outcome).saturating_sub(counter.get()));
        }
        self.taken_back.inc_by(asked.meter.taken_back().saturating_sub(self.taken_back.get()));
        self.names_taken_back.inc_by(asked.meter.names_taken_back().saturating_sub(self.names_taken_back.get()));
        self.transaction_age.set(asked.meter.transaction_age(asked.now));
        self.lag.set(asked.meter.lag() as i64);
        let (assigned, paused) = asked.meter.partitions();
        for (state, count) in [("assigned", assigned), ("paused", paused)] {
            self.partitions.with_label_values(&[state]).set(count as i64);
        }
        self.memory.set(resident_bytes().unwrap_or(0) as i64);
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        String::from_utf8(text).map_err(|_| prometheus::Error::Msg("not UTF-8".into()))
    }
}

fn seconds(since: i64, now: Millis) -> f64 {
    now.0.saturating_sub(since).max(0) as f64 / 1e3
}

/// The resident set of this process; unknown where there is no `/proc`.
pub(crate) fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
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

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<GaugeVec, prometheus::Error> {
        self.register(GaugeVec::new(Opts::new(Self::name(name), help), labels)?)
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
