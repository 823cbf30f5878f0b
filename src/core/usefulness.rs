//! How useful a release still is to its readers: what the rows lose, who pays for it, and what counts and a simple classifier
//! would still get right.
//!
//! Compares the published cells with the rows of the window they were made of, so the figures are for whoever holds the data
//! (reports, `search`), never for a manifest. A reader who counts by an attribute spreads each published value evenly over
//! the leaves below it; the share of records that this puts in the right place is one minus the total variation distance
//! to the true distribution. The classifier is naive Bayes on the published values, trained on one half of the rows and
//! tried on the other, both ways. A suppressed record loses all its cells and is never classified. What a reader can learn beyond
//! the labels is measured beside it ([`AttackRate`]), because the recoding that is most useful also tells most.

mod attack;
mod compare;
pub mod recodings;

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::encode::Dictionaries;
use crate::gate::Release;
use crate::generalize::GeneralizedBatch;
use crate::local::{Table, Terms, walk};
use crate::model::domain::{Code, DomainView};
use crate::model::policy::Policy;
use crate::model::recoding::GeneralizedValue;
use crate::model::schedule::Schedule;
use crate::privacy::Rules;

pub use attack::AttackRate;
pub use compare::{
    Distribution, Exposure, PublishedClass, ValueShare, distributions, raw_class_sizes, smallest_classes,
};

/// Pairs of attributes that are counted. More takes longer for policies with many attributes; fewer is less of a sample.
const MOST_PAIRS: usize = 45;

/// What a release is still good for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Usefulness {
    /// The mean loss (GLM) of each quasi-identifier's cells, in policy order.
    pub loss_by_attribute: Vec<(Arc<str>, f64)>,
    /// The loss of the record in the middle: half of the records lose more.
    pub loss_median: f64,
    /// The loss that one record in twenty exceeds.
    pub loss_p95: f64,
    /// The share of records that counts by one attribute put in the right place, on average over the attributes.
    pub counts_by_one: f64,
    /// The same for counts by two attributes; `None` with one quasi-identifier.
    pub counts_by_two: Option<f64>,
    /// What a classifier of the label gets right, where the policy names one.
    pub classifier: Option<Accuracy>,
    /// What a reader who knows how the release was made can exclude beyond its labels.
    pub attack: AttackRate,
}

/// The share of records whose label a classifier gets right.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Accuracy {
    /// From the published values.
    pub published: f64,
    /// From the values as they were read.
    pub raw: f64,
    /// By always saying the most frequent label.
    pub majority: f64,
}

/// The usefulness of a release that was made of one window with these dictionaries; `None` if it has no rows.
pub fn usefulness(policy: &Policy, release: &Release, dictionaries: &Dictionaries) -> Option<Usefulness> {
    let batch = release.batch();
    let published = Published::of(batch)?;
    let losses = published.losses(policy);
    let by_two = published.counts_by_two();
    Some(Usefulness {
        loss_by_attribute: published.loss_by_attribute(policy),
        loss_median: quantile(&losses, 0.5),
        loss_p95: quantile(&losses, 0.95),
        counts_by_one: mean((0..published.width()).map(|attribute| published.counts_by_one(attribute)))?,
        counts_by_two: by_two,
        classifier: policy.schema.label.map(|_| published.classifier()),
        attack: attack_rate(policy, release, dictionaries, &published),
    })
}

/// Classes of one level or cut per attribute do not overlap, so there the rates are 0.
fn attack_rate(
    policy: &Policy,
    release: &Release,
    dictionaries: &Dictionaries,
    published: &Published<'_>,
) -> AttackRate {
    let schedule = Schedule::from_plan(&release.lineage().plan.levels, &policy.lattice());
    let Some((schedule, first)) = schedule.filter(|_| release.manifest().provenance.schedule.is_some()) else {
        return AttackRate::default();
    };
    let rules = Rules::new(policy);
    let bound = rules.bind(&dictionaries.values());
    let terms = Terms::new(policy, &bound, &dictionaries.quasi);
    let table = Table::new(&published.batch.fresh, &published.batch.held, &rules.counting());
    let (classes, of_row) = walk(&terms, &table, &schedule, first.unwrap_or(0));
    attack::attack(published, &classes, &of_row)
}

/// The published rows of a batch beside the rows of its window.
struct Published<'a> {
    batch: &'a GeneralizedBatch,
    /// Rows of the window that are not published.
    suppressed: usize,
    /// The published value of each class and attribute, class by class.
    values: Vec<GeneralizedValue>,
    /// The rows of each class.
    sizes: Vec<u64>,
}

impl<'a> Published<'a> {
    fn of(batch: &'a GeneralizedBatch) -> Option<Self> {
        if batch.is_empty() || batch.columns.is_empty() {
            return None;
        }
        let class = |class: usize| {
            batch.class_cells(class).iter().zip(&batch.columns).map(|(&code, column)| column.value(code))
        };
        let mut sizes = vec![0; batch.class_count];
        batch.classes.iter().for_each(|&class| sizes[class as usize] += 1);
        Some(Self {
            batch,
            suppressed: batch.fresh.len().saturating_sub(batch.len()),
            values: (0..batch.class_count).flat_map(class).collect(),
            sizes,
        })
    }

    fn width(&self) -> usize {
        self.batch.columns.len()
    }

    fn view(&self, attribute: usize) -> &DomainView {
        self.batch.columns[attribute].view()
    }

    fn value(&self, class: usize, attribute: usize) -> GeneralizedValue {
        self.values[class * self.width() + attribute]
    }

    fn loss(&self, class: usize, attribute: usize) -> f64 {
        self.batch.columns[attribute].loss(self.batch.class_cells(class)[attribute])
    }

    fn records(&self) -> f64 {
        (self.batch.len() + self.suppressed) as f64
    }

    fn loss_by_attribute(&self, policy: &Policy) -> Vec<(Arc<str>, f64)> {
        let lost = |attribute: usize| {
            let cells = self.sizes.iter().enumerate().map(|(class, &rows)| rows as f64 * self.loss(class, attribute));
            (cells.sum::<f64>() + self.suppressed as f64) / self.records()
        };
        policy.quasi.iter().enumerate().map(|(at, quasi)| (Arc::clone(&quasi.name), lost(at))).collect()
    }

    /// The loss of every record, ascending, as (loss, records).
    fn losses(&self, policy: &Policy) -> Vec<(f64, u64)> {
        let weights: f64 = policy.quasi.iter().map(|quasi| quasi.weight).sum();
        let of = |class: usize| {
            let cells = policy.quasi.iter().enumerate().map(|(at, quasi)| quasi.weight * self.loss(class, at));
            cells.sum::<f64>() / weights
        };
        let mut losses: Vec<(f64, u64)> = self.sizes.iter().enumerate().map(|(class, &n)| (of(class), n)).collect();
        losses.push((1.0, self.suppressed as u64));
        losses.sort_by(|a, b| a.0.total_cmp(&b.0));
        losses
    }

    /// The share of records that counts by an attribute put in the right place.
    fn counts_by_one(&self, attribute: usize) -> f64 {
        let view = self.view(attribute);
        let mut truth: BTreeMap<Code, f64> = BTreeMap::new();
        let rows = &self.batch.fresh;
        (0..rows.len()).for_each(|i| *truth.entry(rows.quasi(i)[attribute]).or_default() += 1.0);
        let mut told: FxHashMap<GeneralizedValue, f64> = FxHashMap::default();
        for (class, &rows) in self.sizes.iter().enumerate() {
            *told.entry(self.value(class, attribute)).or_default() += rows as f64;
        }
        let ancestors = ancestors(view);
        let estimate = |leaf: Code| -> f64 {
            let at = |(level, codes): (u8, &Vec<Code>)| {
                let value = GeneralizedValue { level, code: codes[leaf as usize] };
                told.get(&value).map_or(0.0, |rows| rows / spread(view, value))
            };
            (0..).zip(&ancestors).map(at).sum()
        };
        let total = rows.len() as f64;
        agreement(truth.into_iter().map(|(leaf, rows)| (rows / total, estimate(leaf) / self.batch.len() as f64)))
    }

    /// The same by two attributes, on average over the pairs; `None` if there is no pair.
    fn counts_by_two(&self) -> Option<f64> {
        let pairs = (0..self.width()).flat_map(|a| (a + 1..self.width()).map(move |b| (a, b)));
        mean(pairs.take(MOST_PAIRS).map(|(a, b)| self.counts_by_pair(a, b)))
    }

    fn counts_by_pair(&self, a: usize, b: usize) -> f64 {
        let rows = &self.batch.fresh;
        let mut truth: BTreeMap<(Code, Code), f64> = BTreeMap::new();
        for i in 0..rows.len() {
            *truth.entry((rows.quasi(i)[a], rows.quasi(i)[b])).or_default() += 1.0;
        }
        let mut told: FxHashMap<(GeneralizedValue, GeneralizedValue), f64> = FxHashMap::default();
        let mut levels: Vec<(u8, u8)> = Vec::new();
        for (class, &rows) in self.sizes.iter().enumerate() {
            let pair = (self.value(class, a), self.value(class, b));
            *told.entry(pair).or_default() += rows as f64;
            levels.push((pair.0.level, pair.1.level));
        }
        levels.sort_unstable();
        levels.dedup();
        let (view_a, view_b) = (self.view(a), self.view(b));
        let (above_a, above_b) = (ancestors(view_a), ancestors(view_b));
        let estimate = |leaf_a: Code, leaf_b: Code| -> f64 {
            let at = |&(level_a, level_b): &(u8, u8)| {
                let a = GeneralizedValue { level: level_a, code: above_a[usize::from(level_a)][leaf_a as usize] };
                let b = GeneralizedValue { level: level_b, code: above_b[usize::from(level_b)][leaf_b as usize] };
                told.get(&(a, b)).map_or(0.0, |rows| rows / (spread(view_a, a) * spread(view_b, b)))
            };
            levels.iter().map(at).sum()
        };
        let total = rows.len() as f64;
        agreement(truth.into_iter().map(|((a, b), n)| (n / total, estimate(a, b) / self.batch.len() as f64)))
    }

    fn classifier(&self) -> Accuracy {
        let batch = self.batch;
        let row = |at: usize| batch.source(batch.order[at]);
        let labels: Vec<Code> = (0..batch.len()).map(|at| row(at).0.label(row(at).1)).collect();
        let mut counts: BTreeMap<Code, u64> = BTreeMap::new();
        labels.iter().for_each(|label| *counts.entry(*label).or_default() += 1);
        let share = |right: u64| right as f64 / self.records();
        let raw = |at: usize, attribute: usize| row(at).0.quasi(row(at).1)[attribute];
        Accuracy {
            published: share(bayes(&labels, self.width(), |at, attribute| batch.cells(at)[attribute])),
            raw: share(bayes(&labels, self.width(), raw)),
            majority: share(counts.into_values().max().unwrap_or(0)),
        }
    }
}

/// How many labels naive Bayes gets right that was trained on the other half of the rows.
fn bayes(labels: &[Code], width: usize, cell: impl Fn(usize, usize) -> Code) -> u64 {
    let mut right = 0;
    // Rows stand in an order that follows from what they show, so every second one would be no sample.
    let half_of = |at: &usize| (*at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63;
    for half in 0..2 {
        let mut by_label: BTreeMap<Code, f64> = BTreeMap::new();
        let mut by_cell: FxHashMap<(usize, Code, Code), f64> = FxHashMap::default();
        for at in (0..labels.len()).filter(|at| half_of(at) != half) {
            *by_label.entry(labels[at]).or_default() += 1.0;
            (0..width).for_each(|a| *by_cell.entry((a, cell(at, a), labels[at])).or_default() += 1.0);
        }
        for at in (0..labels.len()).filter(|at| half_of(at) == half) {
            // A value that was never seen with a label counts as half a record, so that one cell does not decide alone.
            let score = |(label, rows): (&Code, &f64)| -> f64 {
                let of = |a: usize| by_cell.get(&(a, cell(at, a), *label)).map_or(0.5, |n| *n) / rows;
                rows.ln() + (0..width).map(|a| of(a).ln()).sum::<f64>()
            };
            let best = by_label.iter().map(|entry| (*entry.0, score(entry))).max_by(|a, b| a.1.total_cmp(&b.1));
            right += u64::from(best.is_some_and(|(label, _)| label == labels[at]));
        }
    }
    right
}

/// Per level what each leaf becomes there.
fn ancestors(view: &DomainView) -> Vec<Vec<Code>> {
    (0..=view.height()).map(|level| view.between(0, level)).collect()
}

/// Over how many leaves a reader spreads a value; one at least.
fn spread(view: &DomainView, value: GeneralizedValue) -> f64 {
    view.level(value.level).leaves()[value.code as usize].max(1.0)
}

/// One minus the total variation distance of two distributions, given where the first is not zero.
fn agreement(shares: impl Iterator<Item = (f64, f64)>) -> f64 {
    shares.map(|(truth, told)| truth.min(told)).sum()
}

fn mean(figures: impl Iterator<Item = f64>) -> Option<f64> {
    let figures: Vec<f64> = figures.collect();
    (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
}

/// The figure that a share of the records does not exceed.
fn quantile(ascending: &[(f64, u64)], share: f64) -> f64 {
    let records: u64 = ascending.iter().map(|(_, records)| records).sum();
    let mut left = (share * records as f64).ceil() as u64;
    for &(figure, records) in ascending {
        if left <= records {
            return figure;
        }
        left -= records;
    }
    1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate;
    use crate::generalize::RowRef;
    use crate::model::hierarchy::{Hierarchy, PrefixSpec};
    use crate::model::lattice::Node;
    use crate::model::recoding::Recoding;
    use crate::model::schema::Role;
    use crate::search::fixture::{Table, policy};

    /// Eighty people of two attributes and a label that follows from the first; the first `rows` of them are published at `node`.
    fn of(node: [u8; 2], rows: u32) -> Usefulness {
        let quasi = ["a", "b"].map(|name| (name, Hierarchy::prefix(PrefixSpec::new(1)).unwrap()));
        let people: Vec<Vec<String>> = (0..80)
            .map(|i: u32| {
                vec![(i % 2).to_string(), (i / 40).to_string(), if i.is_multiple_of(2) { "yes" } else { "no" }.into()]
            })
            .collect();
        let table = Table::new(policy(quasi.into(), &[("label", Role::Label)], 1), &people);
        let columns: Vec<_> =
            Recoding::from(Node::new(node)).columns(&table.dictionaries.quasi).into_iter().map(Arc::new).collect();
        let held = Arc::new(table.rows.filtered(|_| false));
        let order = (0..rows).map(RowRef::Fresh).collect();
        let batch = GeneralizedBatch::at(Arc::clone(&table.rows), held, order, &columns, &table.dictionaries);
        let release = gate::verify(batch, &table.rules).unwrap();
        usefulness(&table.policy, &release, &table.dictionaries).unwrap()
    }

    #[test]
    fn values_as_they_are_lose_nothing() {
        let all = of([0, 0], 80);
        assert_eq!((all.loss_median, all.loss_p95, all.counts_by_one, all.counts_by_two), (0.0, 0.0, 1.0, Some(1.0)));
        let Accuracy { published, raw, majority } = all.classifier.unwrap();
        assert_eq!((published, raw, majority), (1.0, 1.0, 0.5));
    }

    #[test]
    fn a_hidden_attribute_is_spread_over_its_leaves() {
        let hidden = of([1, 0], 80);
        assert_eq!(hidden.loss_by_attribute.iter().map(|(_, loss)| *loss).collect::<Vec<_>>(), [1.0, 0.0]);
        // Ten digits are possible and two occur: a reader puts two tenths of the records in the right place.
        assert!((hidden.counts_by_one - (0.2 + 1.0) / 2.0).abs() < 1e-12, "{hidden:?}");
        assert!((hidden.counts_by_two.unwrap() - 0.2).abs() < 1e-12);
        assert_eq!(hidden.loss_median, 0.5);
        let accuracy = hidden.classifier.unwrap();
        assert_eq!(accuracy.raw, 1.0);
        assert!(accuracy.published < 1.0);
    }

    #[test]
    fn suppressed_records_lose_everything() {
        let half = of([0, 0], 40);
        assert_eq!((half.loss_median, half.loss_p95), (0.0, 1.0));
        assert_eq!(half.loss_by_attribute[0].1, 0.5);
        assert_eq!(half.classifier.unwrap().published, 0.5);
        assert!((half.counts_by_one - (1.0 + 0.5) / 2.0).abs() < 1e-12);
    }
}
