//! A copy of the state of the service at one moment: the figures for the page, the terminal and scripts.
//!
//! Aggregates, generalized values and configured names only.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::history::{Compared, Look, Moment, RecentRelease};
use super::html::time;
use crate::model::event::Millis;
use crate::model::policy::Policy;
use crate::model::release::manifest::{AttributeLevel, Unmet, UnmetBound};
use crate::model::schedule::Schedule;
use crate::plot::{count, figure};

/// The number of past losses in the JSON object; a terminal shows no more.
const LOSSES: usize = 60;

/// Over less than this a rate says more about how windows happened to close than about the stream; over more it is late.
const RATE_SECONDS: f64 = 1.0;

/// A criterion of the policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// The required value.
    pub required: f64,
    /// True if `required` is an upper bound, false if it is a lower bound.
    pub at_most: bool,
}

impl Wanted {
    /// Its name as people read it: `l-diversity of occupation (distinct)`.
    pub fn words(&self) -> String {
        match self.name.split('/').collect::<Vec<_>>()[..] {
            [criterion, field] => format!("{criterion} of {field}"),
            [criterion, field, variant] => format!("{criterion} of {field} ({variant})"),
            _ => self.name.clone(),
        }
    }
}

/// Records by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecordTotals {
    /// Read.
    pub read: u64,
    /// Published.
    pub published: u64,
    /// Left out for good.
    pub suppressed: u64,
    /// Waiting.
    pub held: u64,
    /// Rejected.
    pub rejected: u64,
}

/// Whether the releases can be trusted, in one sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Headline {
    /// `safe`, `unsettled` (windows before could not be published, or more is left out than the policy allows), `waiting` or `failing`.
    pub state: &'static str,
    /// Why.
    pub sentence: String,
}

/// The state of the service at one moment.
#[derive(Debug, Clone)]
pub struct View {
    /// The moment.
    pub now: Millis,
    /// True while the service has its input and can publish.
    pub ready: bool,
    /// How many windows since the last release could not be published at all, and why the last of them.
    pub unmet: Option<(u64, Unmet)>,
    /// The policy.
    pub policy: Arc<Policy>,
    /// Its criteria.
    pub wanted: Vec<Wanted>,
    /// Records by outcome.
    pub totals: RecordTotals,
    /// Releases with rows.
    pub releases: u64,
    /// Releases that the gate refused.
    pub refused: u64,
    /// Records in windows that still fill.
    pub window_records: u64,
    /// The age of the oldest of these windows in seconds.
    pub window_age: f64,
    /// Records not read yet.
    pub lag: u64,
    /// Partitions read; none without a broker.
    pub partitions: u64,
    /// Resident memory in bytes.
    pub memory: u64,
    /// The last releases in figures, oldest first.
    pub moments: Vec<Moment>,
    /// The last releases, newest first.
    pub recent: Vec<Arc<RecentRelease>>,
    /// The recoding of the last release that had rows.
    pub recoding: Vec<AttributeLevel>,
    /// The schedule of the last release, where the recoding is local.
    pub schedule: Option<Schedule>,
    /// The bounds of `search.prefer` that it does not meet.
    pub unmet_bounds: Vec<UnmetBound>,
    /// The last look at a search.
    pub look: Option<Arc<Look>>,
    /// The last comparison of the recodings.
    pub comparison: Option<Arc<Compared>>,
}

impl View {
    /// Seconds before now, negative, and records per second between releases that are at least [`RATE_SECONDS`] apart.
    pub fn throughput(&self) -> Vec<(f64, f64)> {
        let mut rates = Vec::new();
        let Some(mut from) = self.moments.first() else { return rates };
        for moment in &self.moments {
            let seconds = (moment.at.0 - from.at.0) as f64 / 1e3;
            if seconds >= RATE_SECONDS {
                rates.push((self.ago(moment.at), moment.read.saturating_sub(from.read) as f64 / seconds));
                from = moment;
            }
        }
        rates
    }

    /// Seconds before now, negative, and a figure of each release that has one.
    pub fn over_time(&self, figure: impl Fn(&Moment) -> Option<f64>) -> Vec<(f64, f64)> {
        self.moments.iter().filter_map(|m| Some((self.ago(m.at), figure(m)?))).collect()
    }

    /// The same with the releases of the last `seconds` only, in pictures and tables.
    pub fn since(mut self, seconds: i64) -> Self {
        let oldest = self.now.0.saturating_sub(seconds.saturating_mul(1000));
        self.moments.retain(|moment| moment.at.0 >= oldest);
        self
    }

    /// What the criterion's weakest class reached in the last release that had rows.
    pub fn achieved(&self, criterion: usize) -> Option<f64> {
        self.moments.iter().rev().find_map(|m| *m.achieved.get(criterion)?)
    }

    /// The share of the detail that the last release gave up.
    pub fn detail(&self) -> Option<f64> {
        self.moments.iter().rev().find_map(|m| m.detail)
    }

    /// The last loss.
    pub fn loss(&self) -> Option<f64> {
        self.moments.iter().rev().find_map(|m| m.loss)
    }

    fn ago(&self, at: Millis) -> f64 {
        -(self.now.0.saturating_sub(at.0).max(0) as f64) / 1e3
    }

    /// The reason why nothing can be published, if nothing can.
    pub fn unmet_said(&self) -> Option<String> {
        let (windows, reason) = self.unmet?;
        let last = if windows == 1 { "window".into() } else { format!("{windows} windows") };
        Some(format!("nothing of the last {last} could be published: {}", reason.as_str()))
    }

    /// The headline: every release that was published has passed the gate, so what can be wrong is that there are none.
    pub fn headline(&self) -> Headline {
        let says = |state, sentence| Headline { state, sentence };
        if self.refused > 0 {
            let s = if self.refused == 1 { "" } else { "s" };
            return says(
                "failing",
                format!("Stopped: the gate refused {} release{s}, and nothing of it was sent.", self.refused),
            );
        }
        if let Some(unmet) = self.unmet_said() {
            // The first window without rows after the last release.
            let since = self.moments.iter().rev().take_while(|m| m.loss.is_none()).last();
            let since = since.map_or(String::new(), |m| format!(" since {}", time(m.at)));
            let remedy = self.unmet.map_or("", |(_, reason)| reason.remedy());
            return says("failing", format!("Not publishing{since}: {unmet}. {}.", capital(remedy)));
        }
        if self.releases == 0 {
            let why = if self.ready { "the first window is filling" } else { "it waits for its input" };
            return says("waiting", format!("Nothing has been published yet: {why}."));
        }
        let all = match self.releases {
            1 => "the first release".to_owned(),
            many => format!("all {} releases", count(many as f64)),
        };
        let ended = self.totals.published + self.totals.suppressed + self.totals.rejected;
        let share = |records: u64| figure(100.0 * records as f64 / ended.max(1) as f64);
        let mut left_out = format!("{} % left out.", share(self.totals.suppressed));
        if self.totals.rejected > 0 {
            left_out.push_str(&format!(" {} % rejected.", share(self.totals.rejected)));
        }
        let words = capital(&self.policy.recoding_words(&self.recoding));
        let waits = if self.ready { "" } else { " It waits for its input now." };
        if let Some((since, lost, windows)) = self.outage() {
            let last = if windows == 1 { "window".into() } else { format!("{windows} windows") };
            let sentence = format!(
                "Safe again since {}: {lost} of the last {last} could not be published. What was published met the policy ({all}). \
                 {left_out} {words}.{waits}",
                time(since)
            );
            return says("unsettled", sentence);
        }
        let over = self.totals.suppressed as f64 > self.policy.suppression.0 * ended as f64;
        let state = match (self.ready, over) {
            (false, _) => "waiting",
            (true, true) => "unsettled",
            (true, false) => "safe",
        };
        let limit = match over {
            true => {
                format!(" More than the {} % that one window may leave out.", figure(100.0 * self.policy.suppression.0))
            }
            false => String::new(),
        };
        says(state, format!("Safe: {all} met the policy. {left_out}{limit} {words}.{waits}"))
    }

    /// Since when windows have rows again, how many of the remembered windows had none, and how many there are; none if all had.
    fn outage(&self) -> Option<(Millis, usize, usize)> {
        let empty = self.moments.iter().filter(|moment| moment.rows == 0 && moment.suppressed > 0).count();
        let since = self.moments.iter().rev().take_while(|moment| moment.rows > 0).last()?;
        (empty > 0).then_some((since.at, empty, self.moments.len()))
    }

    /// For scripts and terminals.
    pub fn json(&self) -> Value {
        let criterion = |(at, wanted): (usize, &Wanted)| {
            json!({
                "criterion": wanted.name,
                "required": wanted.required,
                "bound": if wanted.at_most { "at_most" } else { "at_least" },
                "achieved": self.achieved(at),
            })
        };
        let level = |(at, quasi): (usize, &crate::model::policy::QuasiIdentifier)| {
            let level = self.recoding.get(at);
            let words = level.map(|level| level.words(&quasi.hierarchy));
            let level = level.map(|level| level.level);
            json!({ "attribute": &*quasi.name, "level": level, "height": quasi.hierarchy.height(), "words": words })
        };
        let losses = self.over_time(|m| m.loss);
        let verdict = self.headline();
        json!({
            "now": self.now.0,
            "verdict": { "state": verdict.state, "sentence": verdict.sentence },
            "example": self.policy.example_words(&self.recoding),
            "ready": self.ready,
            "unmet_windows": self.unmet.map_or(0, |(windows, _)| windows),
            "unmet_reason": self.unmet_said(),
            "recoding": self.policy.recoding.as_str(),
            "records_in": self.totals.read,
            "records_published": self.totals.published,
            "records_suppressed": self.totals.suppressed,
            "records_held": self.totals.held,
            "records_rejected": self.totals.rejected,
            "records_per_second": self.throughput().last().map(|(_, rate)| *rate),
            "releases": self.releases,
            "releases_refused": self.refused,
            "window_records": self.window_records,
            "window_age_seconds": self.window_age,
            "consumer_lag_records": self.lag,
            "resident_memory_bytes": self.memory,
            "loss": {
                "metric": self.policy.loss.as_str(),
                "last": self.loss(),
                "history": losses.iter().skip(losses.len().saturating_sub(LOSSES)).map(|p| p.1).collect::<Vec<_>>(),
            },
            "criteria": self.wanted.iter().enumerate().map(criterion).collect::<Vec<_>>(),
            "attributes": self.policy.quasi.iter().enumerate().map(level).collect::<Vec<_>>(),
            "last_releases": self.recent.iter().map(|recent| release(recent)).collect::<Vec<_>>(),
        })
    }
}

/// The same with a capital first letter.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// One release for scripts and terminals.
fn release(recent: &RecentRelease) -> Value {
    let from = &recent.manifest.provenance;
    let losses: Map<String, Value> = from.losses.iter().map(|l| (l.name.clone(), json!(l.value))).collect();
    json!({
        "release_id": from.release_id,
        "published_at": recent.at.0,
        "rows": recent.manifest.rows,
        "records_published": from.records_published,
        "records_suppressed": from.records_suppressed,
        "records_held": from.records_held,
        "records_rejected": from.records_rejected,
        "k_achieved": recent.manifest.k_achieved,
        "classes": recent.manifest.classes,
        "loss": losses,
        "algorithm": from.algorithm,
        "stop": from.stop,
        "unmet_bounds": from.unmet_bounds,
        "search_ms": from.search_ms,
    })
}
