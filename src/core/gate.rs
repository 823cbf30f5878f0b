//! The gate: counts the very rows that would be sent, and only then makes a [`Release`] of them.
//!
//! Depends on the model and the criteria only; trusts neither frequency sets nor search. It fails closed: whatever does
//! not hold is a [`Refusal`], and a sink takes nothing but a `Release`. Two label codes with the same text are one value
//! here, because a reader could not tell them apart; sensitive values are counted by the texts that a sink writes, not by the
//! encoder's codes for them. Rows held from earlier windows may only join classes that satisfy the policy without them. Kept fields
//! that would identify people are withheld, and rows are sent in the order of what they show. Where a reader has earlier
//! snapshots of the same window, every group of records that can be told apart beside them must satisfy the policy too
//! ([`verify_next`]); where only changes are sent, the gate remembers the snapshot that they change ([`verify_changes`]).

mod changes;
mod count;
mod difference;
mod row_numbers;
mod sequential;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::generalize::{GeneralizedBatch, Lineage};
use crate::model::counting::Facet;
use crate::model::event::{Position, Reject};
use crate::model::release::manifest::{Achieved, Manifest, rounded};
use crate::model::release::spread::Spread;
use crate::privacy::{Class, Rule, RuleScope, Rules};
use count::{Count, Groups};

pub use changes::{Accepted, verify_changes};
pub(crate) use count::Tally;
pub use difference::{Snapshot, verify_next};
pub use sequential::{Memory, Recurrence, verify_recurring};

/// Rows that satisfy the policy, counted. There is no way to make one but [`verify`].
pub struct Release {
    batch: Arc<GeneralizedBatch>,
    manifest: Manifest,
    class_sizes: BTreeMap<u32, u32>,
    values: BTreeMap<u32, u64>,
    recurrence: Option<Recurrence>,
    views: Vec<Option<Release>>,
}

/// Why a batch may not be sent. Prints figures, never values; [`Refusal::class`] is for files that are public already.
#[derive(Clone, PartialEq, thiserror::Error)]
#[error("{criterion} is not met: a class of {size} reaches {achieved}, {} {required} is required{}", bound(*.at_most), note(*.without_held, *.difference))]
pub struct Refusal {
    /// The criterion that fails.
    pub criterion: String,
    /// The figure that it asks for.
    pub required: f64,
    /// True if it asks for no more than that, false if for no less.
    pub at_most: bool,
    /// The figure that the class reaches.
    pub achieved: f64,
    /// Distinct subjects (records, without a subject field) in the class.
    pub size: u32,
    /// True if the class fails only without the rows that were held.
    pub without_held: bool,
    /// True if the class is a group of records that only the earlier snapshots tell apart.
    pub difference: bool,
    class: Vec<String>,
}

impl Refusal {
    /// The class's generalized values, in policy order; of some attributes only where the criterion asks about those who
    /// know no others, and empty where it asks about the release as a whole.
    pub fn class(&self) -> &[String] {
        &self.class
    }
}

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Refusal({self})")
    }
}

fn bound(at_most: bool) -> &'static str {
    if at_most { "at most" } else { "at least" }
}

fn note(without_held: bool, difference: bool) -> &'static str {
    match (without_held, difference) {
        (_, true) => " of every group that can be told apart beside the earlier snapshots",
        (true, _) => " without the records that were held",
        _ => "",
    }
}

/// Counts the batch by the rules; a release if every class of every rule holds.
pub fn verify(batch: GeneralizedBatch, rules: &Rules) -> Result<Release, Refusal> {
    let batch = as_sent(batch, rules);
    counted(&batch, &Count::new(&batch, rules), rules)
}

/// The rows as a sink would send them: without kept fields that identify people, in an order that follows from what they show.
fn as_sent(batch: GeneralizedBatch, rules: &Rules) -> Arc<GeneralizedBatch> {
    Arc::new(batch.withholding(rules.kept(), rules.counting().subjects).arranged())
}

fn counted(batch: &Arc<GeneralizedBatch>, count: &Count<'_>, rules: &Rules) -> Result<Release, Refusal> {
    let rules = rules.bind(&count.meanings());
    if !batch.levels_follow_from_labels() {
        return Err(difference::twice("one level per label"));
    }
    let read = |without_held: bool| Reading { batch, rules: &rules, count, without_held, difference: false }.check();
    let Checked { criteria, class_sizes, values } = read(false)?;
    if count.any_held() {
        read(true)?;
    }
    let k_achieved = class_sizes.keys().next().copied();
    let classes = class_sizes.values().map(|&classes| u64::from(classes)).sum();
    let rows = batch.len() as u64;
    let manifest = Manifest { provenance: batch.provenance.clone(), criteria, k_achieved, classes, rows };
    Ok(Release { batch: Arc::clone(batch), manifest, class_sizes, values, recurrence: None, views: Vec::new() })
}

impl Release {
    /// Shows `row` every row in the order of sending: the generalized labels in policy order, then the sensitive and
    /// the kept values as JSON. Stops at the first error.
    pub fn rows<E>(&self, mut row: impl FnMut(&[&str], &[&str]) -> Result<(), E>) -> Result<(), E> {
        let mut quasi: SmallVec<[&str; 16]> = SmallVec::new();
        self.each(|class, values| {
            self.batch.show(class, &mut quasi);
            row(&quasi, values)
        })
    }

    /// The text that `write` makes of the labels of each class: the first part of all its rows, written once.
    pub fn labels(&self, mut write: impl FnMut(&[&str], &mut Vec<u8>)) -> ClassLabels {
        let mut labels = ClassLabels { bytes: Vec::new(), ends: Vec::with_capacity(self.batch.class_count) };
        let mut quasi: SmallVec<[&str; 16]> = SmallVec::new();
        for class in 0..self.batch.class_count {
            self.batch.show(class, &mut quasi);
            write(&quasi, &mut labels.bytes);
            labels.ends.push(labels.bytes.len());
        }
        labels
    }

    /// Like [`Release::rows`], with what [`Release::labels`] made in place of the labels.
    pub fn labelled_rows<E>(
        &self,
        labels: &ClassLabels,
        mut row: impl FnMut(&[u8], &[&str]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.each(|class, values| row(labels.of(class), values))
    }

    fn each<'a, E>(&'a self, mut row: impl FnMut(usize, &[&'a str]) -> Result<(), E>) -> Result<(), E> {
        let batch = &self.batch;
        let mut values: SmallVec<[&str; 16]> = SmallVec::new();
        for (&class, &place) in batch.classes.iter().zip(&batch.order) {
            values.clear();
            let (rows, i) = batch.source(place);
            values.extend(batch.written.iter().zip(rows.written(i)).map(|(v, &code)| v.level(0).label(code)));
            values.extend(batch.kept(rows, i));
            row(class as usize, &values)?;
        }
        Ok(())
    }

    /// The counted rows, to be compared with the records that they were made of.
    pub(crate) fn batch(&self) -> &GeneralizedBatch {
        &self.batch
    }

    /// Where it stands in the log, for sinks that can replay.
    pub fn lineage(&self) -> &Lineage {
        &self.batch.lineage
    }

    /// The records that were turned away: position and code, for the dead letters.
    pub fn rejected(&self) -> &[(Position, Reject)] {
        &self.batch.rejected
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// True if it only accounts for records that are not published.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// How many classes there are of each size, in subjects (records, without a subject field). A reader of the rows
    /// could count the same.
    pub fn class_sizes(&self) -> &BTreeMap<u32, u32> {
        &self.class_sizes
    }

    /// How class size, risk and, where criteria count them, sensitive values are spread over people; by name.
    pub fn spreads(&self) -> impl Iterator<Item = (&'static str, Spread)> {
        let sizes = Spread::of_sizes(&self.class_sizes).map(|spread| ("class_size", spread));
        let risk = Spread::of_risk(&self.class_sizes).map(|spread| ("risk", spread));
        let values = Spread::of(&self.values).map(|spread| ("sensitive_values", spread));
        sizes.into_iter().chain(risk).chain(values)
    }

    /// How people return in it, where that is watched.
    pub fn recurrence(&self) -> Option<&Recurrence> {
        self.recurrence.as_ref()
    }

    /// The same release with the tables of its audiences, each of them a release that passed the gate; `None` where the gate
    /// refused one.
    #[must_use]
    pub fn with_views(self, views: Vec<Option<Self>>) -> Self {
        Self { views, ..self }
    }

    /// The same release with only those figures of criteria in its manifest that `tells` takes, by their names.
    #[must_use]
    pub(crate) fn with_figures(mut self, tells: impl Fn(&str) -> bool) -> Self {
        self.manifest.criteria.retain(|achieved| tells(&achieved.criterion));
        self
    }

    /// The tables of the audiences, in the order of the configuration.
    pub fn views(&self) -> &[Option<Self>] {
        &self.views
    }

    /// Its manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }
}

impl fmt::Debug for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Release({}, {} rows)", self.manifest.provenance.release_id, self.len())
    }
}

/// The labels of every class as a sink writes them.
pub struct ClassLabels {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl ClassLabels {
    fn of(&self, class: usize) -> &[u8] {
        let start = if class == 0 { 0 } else { self.ends[class - 1] };
        &self.bytes[start..self.ends[class]]
    }
}

/// How many rows of a large part are counted first. More are counted in vain where fewer would do; fewer are tried in vain.
const FEW: usize = 64;

/// One reading of the batch: with the rows that were held, without them, or of parts that earlier snapshots tell apart.
struct Reading<'a> {
    batch: &'a GeneralizedBatch,
    rules: &'a Rules,
    count: &'a Count<'a>,
    without_held: bool,
    difference: bool,
}

/// The findings of a reading, where everything holds.
struct Checked {
    /// The weakest figure by each rule.
    criteria: Vec<Achieved>,
    /// How many classes there are of each size that was counted.
    class_sizes: BTreeMap<u32, u32>,
    /// How many people have classes with so many values of the sensitive field that has the fewest, of those that rules look at.
    values: BTreeMap<u32, u64>,
}

/// How many classes there are of each size, and how many people by the sensitive values in their class.
type SizesAndValues = (BTreeMap<u32, u32>, BTreeMap<u32, u64>);

impl Reading<'_> {
    /// Every rule on everything it is judged on. Without held rows only the classes that have some are judged again, and
    /// one that consists of them alone fails.
    fn check(&self) -> Result<Checked, Refusal> {
        let release = self.everybody();
        let release_histograms = release.histograms();
        let release = release.class(&release_histograms);
        let mut weakest: Vec<Option<f64>> = vec![None; self.rules.iter().count()];
        let all: Vec<usize> = (0..self.batch.quasi.len()).collect();
        let classes = self.count.classes();
        let (class_sizes, values) =
            self.classes(classes, &all, &[RuleScope::Class, RuleScope::Within], &release, &mut weakest)?;
        for scope in self.rules.partial() {
            let telling = self.count.telling(self.count.everything(), all.len());
            let Some(knowledge) = self.rules.knowledge(&telling, scope) else {
                return Err(self.uncountable(scope));
            };
            for known in knowledge {
                let groups = self.count.groups(self.count.everything(), &known);
                self.classes(&groups, &known, &[scope], &release, &mut weakest)?;
            }
        }
        self.whole(classes, &release, &mut weakest)?;
        let achieved = |(rule, achieved): (&dyn Rule, Option<f64>)| Achieved {
            criterion: rule.name(),
            required: rule.required(),
            achieved: achieved.map(|figure| public(rule, figure)),
        };
        Ok(Checked { criteria: self.rules.iter().zip(weakest).map(achieved).collect(), class_sizes, values })
    }

    /// Every rule on each of these parts. One that satisfies the rules of those who know some of the columns as if they
    /// knew all does so whatever they know.
    fn check_parts(&self, parts: &Groups) -> Result<(), Refusal> {
        if parts.ends.is_empty() {
            return Ok(());
        }
        let release = self.everybody();
        let histograms = release.histograms();
        let release = release.class(&histograms);
        let mut weakest: Vec<Option<f64>> = vec![None; self.rules.iter().count()];
        let all: Vec<usize> = (0..self.batch.quasi.len()).collect();
        let scopes: Vec<RuleScope> =
            [RuleScope::Class, RuleScope::Within].into_iter().chain(self.rules.partial()).collect();
        self.classes(parts, &all, &scopes, &release, &mut weakest)?;
        self.whole(parts, &release, &mut weakest)
    }

    /// True if a few of the rows of a part do for all, because the rules hold whoever joins them: most large ones are known
    /// soon.
    fn few_hold(&self, rows: &[u32]) -> bool {
        let asks = self.difference && rows.len() > FEW && self.rules.monotone(true) && self.rules.only_classes();
        asks && {
            let tally = self.count.tally(&rows[..FEW], self.rules, self.without_held);
            self.rules.hold_alone(&tally.class(&tally.histograms()))
        }
    }

    /// Everybody who is published, where some rule looks at that: it costs more to count than all classes.
    fn everybody(&self) -> Tally {
        let compares = self.rules.iter().any(|rule| matches!(rule.scope(), RuleScope::Within | RuleScope::Release));
        let everybody = if compares { self.count.everything() } else { &[] };
        self.count.tally(everybody, self.rules, self.without_held)
    }

    /// The rules of these scopes on every class of the columns `known`; how many classes there are of each size, and people by
    /// the sensitive values in their class.
    fn classes(
        &self,
        classes: &Groups,
        known: &[usize],
        scopes: &[RuleScope],
        release: &Class<'_>,
        weakest: &mut [Option<f64>],
    ) -> Result<SizesAndValues, Refusal> {
        let (mut sizes, mut values) = (BTreeMap::new(), BTreeMap::new());
        let facets = self.rules.facets().iter().enumerate();
        let sensitive: Vec<usize> =
            facets.filter(|(_, facet)| matches!(facet, Facet::Sensitive(_))).map(|(at, _)| at).collect();
        for rows in classes.iter() {
            if self.without_held && !self.count.holds_held(rows) || self.few_hold(rows) {
                continue;
            }
            let tally = self.count.tally(rows, self.rules, self.without_held);
            let histograms = tally.histograms();
            let class = tally.class(&histograms);
            *sizes.entry(class.size).or_default() += 1;
            if let Some(least) = sensitive.iter().map(|&at| class.facets[at].values().codes.len()).min() {
                *values.entry(least as u32).or_default() += u64::from(class.size);
            }
            for (rule, weakest) in self.rules.iter().zip(&mut *weakest) {
                if !scopes.contains(&rule.scope()) {
                    continue;
                }
                let measure = rule.measure(&class, release);
                if class.size == 0 || !rule.meets(measure) {
                    let labels = rows.first().map(|&row| self.batch.labels(row, known)).unwrap_or_default();
                    return Err(self.refusal(rule, measure, class.size, labels));
                }
                *weakest = Some(weakest.map_or(measure, |w| rule.weaker(w, measure)));
            }
        }
        Ok((sizes, values))
    }

    /// The rules about the release as a whole: the mean over its people.
    fn whole(&self, classes: &Groups, release: &Class<'_>, weakest: &mut [Option<f64>]) -> Result<(), Refusal> {
        if self.rules.of(RuleScope::Release).next().is_none() || release.size == 0 {
            return Ok(());
        }
        let mut sums = vec![0.0; weakest.len()];
        let mut people = 0.0;
        for rows in classes.iter() {
            let tally = self.count.tally(rows, self.rules, self.without_held);
            if tally.size == 0 {
                continue;
            }
            let histograms = tally.histograms();
            let class = tally.class(&histograms);
            people += f64::from(class.size);
            for (rule, sum) in self.rules.iter().zip(&mut sums).filter(|(rule, _)| rule.scope() == RuleScope::Release) {
                *sum += f64::from(class.size) * rule.measure(&class, release);
            }
        }
        for ((rule, sum), weakest) in self.rules.iter().zip(sums).zip(weakest) {
            if rule.scope() != RuleScope::Release {
                continue;
            }
            let mean = sum / people;
            if !rule.meets(mean) {
                return Err(self.refusal(rule, mean, release.size, Vec::new()));
            }
            *weakest = Some(mean);
        }
        Ok(())
    }

    /// Where there is too much to count, nothing is known to hold.
    fn uncountable(&self, scope: RuleScope) -> Refusal {
        let rule = self.rules.of(scope).next();
        let (criterion, required) = rule.map_or_else(Default::default, |rule| (rule.name(), rule.required()));
        let at_most = rule.is_some_and(|rule| rule.at_most());
        let (without_held, difference) = (self.without_held, self.difference);
        let (achieved, size, class) = (f64::NAN, self.batch.len() as u32, Vec::new());
        Refusal { criterion, required, at_most, achieved, size, without_held, difference, class }
    }

    fn refusal(&self, rule: &dyn Rule, achieved: f64, size: u32, class: Vec<String>) -> Refusal {
        Refusal {
            criterion: rule.name(),
            required: rule.required(),
            at_most: rule.at_most(),
            achieved,
            size,
            without_held: self.without_held,
            difference: self.difference,
            class,
        }
    }
}

/// The form of a figure for readers: counts as they are, the rest to three digits, and never on the wrong side of what is
/// required.
fn public(rule: &dyn Rule, figure: f64) -> f64 {
    let figure = if figure.fract() == 0.0 { figure } else { rounded(figure) };
    if rule.meets(figure) { figure } else { rule.required() }
}

impl GeneralizedBatch {
    /// Puts the labels of a class into `quasi`.
    fn show<'a>(&'a self, class: usize, quasi: &mut SmallVec<[&'a str; 16]>) {
        quasi.clear();
        quasi.extend(self.quasi.iter().zip(self.class_cells(class)).map(|(labels, &code)| labels.text(code)));
        if self.shows_levels {
            // Behind the quasi-identifiers, before what a release adds to their columns.
            quasi.insert_many(self.columns.len(), self.level_texts(class).map(|text| -> &'a str { text }));
        }
    }

    fn labels(&self, at: u32, known: &[usize]) -> Vec<String> {
        known.iter().map(|&column| self.quasi[column].text(self.cells(at as usize)[column]).to_owned()).collect()
    }
}
