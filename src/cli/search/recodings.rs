//! The recodings side by side: what `full-domain`, `subtree` and `local` would publish of the same records.
//!
//! Makes one release in memory per value of `policy.recoding`, all under the same criteria, suppression limit and levels, and
//! measures each with [`usefulness`](crate::usefulness). The policy's own recoding runs with the search and the time limit of
//! the configuration and decides the exit code. The others run with their default search and a time limit; a recoding that
//! the policy rules out, or that the gate refuses, is left out with the reason. The figures compare with the raw records, so
//! they are for the holder of the data; they contain no value of a record.

use std::time::Duration;

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::{Value, json};

use crate::cli::shared::{Batch, Failure, ReleaseReport};
use crate::config::Config;
use crate::model::policy::{Loss, Policy, RecodingKind};
use crate::plot::figure;
use crate::search::StopReason;
use crate::search::choose::Choice;
use crate::usefulness::Accuracy;
use crate::usefulness::recodings::RECODINGS;
use crate::window::WindowRules;

/// The time limit of a recoding that the policy does not ask for. Longer: people wait for figures that they did not ask for.
/// Shorter: cuts of large files come out worse than they are.
const TIME_OF_OTHERS: Duration = Duration::from_secs(10);

/// The releases of all recodings in figures.
pub(super) struct Comparison<'a> {
    policy: &'a Policy,
    own: ReleaseReport,
    others: Vec<Made>,
    /// The records of a window as it is configured, where it has fewer than the file.
    window: Option<usize>,
}

/// The release by a recoding, or why there is none.
pub(in crate::cli) type Made = (RecodingKind, Result<ReleaseReport, String>);

/// The releases of the recodings that the policy does not ask for; `own` is how its own is searched.
pub(in crate::cli) fn others(config: &Config, batch: &Batch, own: &Choice, seed: u64) -> Result<Vec<Made>, Failure> {
    let mut others = Vec::new();
    for kind in RECODINGS.into_iter().filter(|kind| *kind != config.policy.recoding) {
        let made = match own.ruled_out(kind, &config.policy) {
            Some(reason) => Err(reason),
            None => match measured(batch, kind, own.for_recoding(kind, TIME_OF_OTHERS), seed) {
                Err(Failure::NotMet(reason)) => Err(reason),
                made => Ok(made?),
            },
        };
        others.push((kind, made));
    }
    Ok(others)
}

fn measured(batch: &Batch, kind: RecodingKind, choice: Choice, seed: u64) -> Result<ReleaseReport, Failure> {
    batch.working(format!("recoding, {}", kind.as_str()));
    batch.release_as(kind, choice, seed).map(|release| ReleaseReport::measured(batch, &release))
}

/// The records of a configured window, if the file has more.
fn smaller_window(config: &Config, batch: &Batch) -> Option<usize> {
    let records = match &config.windows {
        WindowRules::Tumbling(rules) => rules.max_records,
        WindowRules::Sliding(rules) => rules.size,
    };
    (records < batch.window.rows.len()).then_some(records)
}

impl<'a> Comparison<'a> {
    /// Makes a release by each recoding. Fails if the policy's own cannot be made.
    pub(super) fn make(config: &'a Config, batch: &Batch, seed: u64) -> Result<Self, Failure> {
        let policy = &config.policy;
        let own = measured(batch, policy.recoding, config.choice.clone(), seed)?;
        Ok(Self {
            policy,
            own,
            others: others(config, batch, &config.choice, seed)?,
            window: smaller_window(config, batch),
        })
    }

    /// The release by the policy's own recoding.
    pub(super) fn own(&self) -> &ReleaseReport {
        &self.own
    }

    /// The object of the policy's own release, with the list `recodings`.
    pub(super) fn json(&self) -> Value {
        let one = |(kind, made): (RecodingKind, Result<&ReleaseReport, &str>)| {
            let (name, asked) = (kind.as_str(), kind == self.policy.recoding);
            let report = match made {
                Ok(report) => report,
                Err(reason) => return json!({ "recoding": name, "asked": asked, "left_out": reason }),
            };
            let from = report.provenance();
            json!({
                "recoding": name,
                "asked": asked,
                "satisfies": report.satisfies,
                "loss": self.loss(report),
                "levels": report.words,
                "k_achieved": report.manifest.k_achieved,
                "classes": report.manifest.classes,
                "records_published": from.records_published,
                "records_suppressed": from.records_suppressed,
                "usefulness": report.usefulness_json(),
                "elapsed_ms": from.search_ms,
                "stop": from.stop,
            })
        };
        let mut object = self.own.exact_json();
        object["recodings"] = self.all().into_iter().map(one).collect();
        object["smaller_window"] = json!(self.window);
        object
    }

    /// A table of all recodings, then levels and losses of each, for people.
    pub(super) fn text(&self) -> String {
        let labelled = self.policy.schema.label.is_some();
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
        let mut head = vec!["recoding", self.policy.loss.as_str(), "median", "p95", "classes", "k", "suppressed"];
        head.extend(["counts by 1", "by 2", "narrowed"]);
        head.extend(labelled.then_some("label"));
        head.push("ms");
        table.set_header(head);
        for (kind, made) in self.all() {
            if let Ok(report) = made {
                table.add_row(self.row(kind, report, labelled));
            }
        }
        let mut text = table.to_string();
        for (kind, made) in self.all() {
            text.push('\n');
            text.push_str(&self.lines(kind, made));
        }
        text.push_str(
            "\n\n* the policy's own recoding\nmedian, p95: half of the records lose at least the median, one in twenty at least \
             p95\ncounts: the share of records that counts by one and by two attributes put in the right place\nnarrowed: the share \
             of cells of which a reader who knows the levels of every step can exclude a value; each class keeps its k people",
        );
        if let Some(records) = self.window {
            text.push_str(&format!(
                "\nThe whole file is one window here. With windows of {records} records, as configured, each recoding loses more."
            ));
        }
        if let Some((raw, majority)) = self.baselines() {
            text.push_str(&format!(
                "\nlabel: the share of labels that a classifier gets right; from the raw values {}, by always saying the most \
                 frequent one {}",
                figure(raw),
                figure(majority)
            ));
        }
        text
    }

    /// Every recoding with its release, or the reason why there is none.
    fn all(&self) -> Vec<(RecodingKind, Result<&ReleaseReport, &str>)> {
        let other = |kind| self.others.iter().find(|(other, _)| *other == kind);
        let one = |kind| match other(kind) {
            Some((_, made)) => (kind, made.as_ref().map_err(String::as_str)),
            None => (kind, Ok(&self.own)),
        };
        RECODINGS.map(one).into()
    }

    /// What a classifier gets right from the raw values, and by always saying the most frequent label. A release knows these
    /// of its published records only, so the one that leaves out the fewest comes closest.
    fn baselines(&self) -> Option<(f64, f64)> {
        let of = |made: Result<&'_ ReleaseReport, _>| made.ok()?.usefulness.as_ref()?.classifier.clone();
        let all = self.all().into_iter().filter_map(|(_, made)| of(made));
        all.map(|Accuracy { raw, majority, .. }| (raw, majority)).reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)))
    }

    fn loss(&self, report: &ReleaseReport) -> Option<f64> {
        let losses = &report.provenance().work.losses;
        losses.iter().find(|loss| loss.name == self.policy.loss.as_str()).map(|loss| loss.value)
    }

    fn row(&self, kind: RecodingKind, report: &ReleaseReport, labelled: bool) -> Vec<String> {
        let (from, useful) = (report.provenance(), report.usefulness.as_ref());
        let shown = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.3}"));
        let mark = if kind == self.policy.recoding { " *" } else { "" };
        let mut row = vec![
            format!("{}{mark}", kind.as_str()),
            shown(self.loss(report).filter(|_| report.satisfies)),
            shown(useful.map(|u| u.loss_median)),
            shown(useful.map(|u| u.loss_p95)),
            report.manifest.classes.to_string(),
            report.manifest.k_achieved.map_or("-".into(), |k| k.to_string()),
            from.records_suppressed.to_string(),
            shown(useful.map(|u| u.counts_by_one)),
            shown(useful.and_then(|u| u.counts_by_two)),
            shown(useful.map(|u| u.attack.cells)),
        ];
        if labelled {
            row.push(shown(useful.and_then(|u| u.classifier.as_ref()).map(|accuracy| accuracy.published)));
        }
        row.push(format!("{:.1}", from.search_ms));
        row
    }

    /// The levels of one recoding and the loss of each attribute, or why there are none.
    fn lines(&self, kind: RecodingKind, made: Result<&ReleaseReport, &str>) -> String {
        let name = kind.as_str();
        let report = match made {
            Ok(report) => report,
            Err(reason) => return format!("{name}: left out, {reason}"),
        };
        let mut text = match &report.usefulness {
            Some(_) => format!("{name}: {}\n{name}: {}", report.words, report.example),
            None => format!("{name}: publishes nothing"),
        };
        if let Some(useful) = &report.usefulness {
            let lost = |(attribute, loss): &(_, f64)| format!("{attribute} {}", figure(*loss));
            let losses: Vec<String> = useful.loss_by_attribute.iter().map(lost).collect();
            text.push_str(&format!("\n  loss: {}", losses.join(", ")));
        }
        for bound in &report.provenance().unmet_bounds {
            text.push_str(&format!("\n  {bound}"));
        }
        if kind == RecodingKind::Subtree && self.policy.schema.label.is_some() && self.policy.loss != Loss::Cm {
            text.push_str(&format!(
                "\n  with a label, its cuts are chosen by `cm`, not by `{}`",
                self.policy.loss.as_str()
            ));
        }
        if report.provenance().stop == StopReason::Deadline.as_str() {
            text.push_str("\n  its time was over before it had tried everything");
        }
        text
    }
}
