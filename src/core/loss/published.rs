//! The loss of the published rows of a release, from these rows and the number of suppressed records alone.
//!
//! A reader of the release could work out the same figures, so they tell nobody anything. That leaves three losses out:
//! `entropy` and `score` compare with values that are not published, and `cm` reads a label that need not be. A suppressed record
//! counts as lost in full.

use std::collections::BTreeSet;

use super::{Quality, RAW_GLM};
use crate::generalize::GeneralizedBatch;
use crate::model::policy::{Loss, Policy};
use crate::model::recoding::Column;
use crate::model::release::manifest::{Named, rounded};

/// The losses of `batch`, beside which `suppressed` records were left out, to three digits; none if it has no rows.
pub fn published(policy: &Policy, batch: &GeneralizedBatch, suppressed: u64) -> Vec<Named> {
    let public = |named: Named| Named { value: rounded(named.value), ..named };
    of_rows(policy, batch, suppressed).into_iter().map(public).collect()
}

/// The same with all digits, for the holder of the records.
pub fn of_rows(policy: &Policy, batch: &GeneralizedBatch, suppressed: u64) -> Vec<Named> {
    if batch.is_empty() {
        return Vec::new();
    }
    let rows = PublishedRows::new(policy, batch, suppressed);
    let raw = rows.mean(Column::loss) * rows.weights * rows.all;
    let losses = policy.losses().filter_map(|metric| Some((metric.as_str(), rows.loss(metric)?)));
    let named = |(name, value): (&str, f64)| Named { name: name.into(), value };
    losses.chain([(RAW_GLM, raw)]).map(named).collect()
}

/// One of these losses; none where it does not follow from published rows.
pub fn of_rows_by(loss: Loss, policy: &Policy, batch: &GeneralizedBatch, suppressed: u64) -> Option<f64> {
    (!batch.is_empty()).then(|| PublishedRows::new(policy, batch, suppressed)).and_then(|rows| rows.loss(loss))
}

/// The rows of a batch with what their losses are made of.
struct PublishedRows<'a> {
    policy: &'a Policy,
    batch: &'a GeneralizedBatch,
    /// The rows of each class.
    sizes: Vec<u64>,
    shown: f64,
    /// With the suppressed ones.
    all: f64,
    weights: f64,
}

impl<'a> PublishedRows<'a> {
    fn new(policy: &'a Policy, batch: &'a GeneralizedBatch, suppressed: u64) -> Self {
        let mut sizes = vec![0u64; batch.class_count];
        batch.classes.iter().for_each(|&class| sizes[class as usize] += 1);
        let (shown, all) = (batch.len() as f64, (batch.len() as u64 + suppressed) as f64);
        let weights = policy.quasi.iter().map(|q| q.weight).sum();
        Self { policy, batch, sizes, shown, all, weights }
    }

    fn mean(&self, cost: fn(&Column, u32) -> f64) -> f64 {
        let Self { policy, batch, sizes, shown, all, weights } = self;
        (cells(policy, batch, sizes, cost) / weights + all - shown) / all
    }

    fn loss(&self, loss: Loss) -> Option<f64> {
        let Self { policy, batch, sizes, shown, all, .. } = self;
        match loss {
            Loss::Glm => Some(self.mean(Column::loss)),
            Loss::Precision => Some(self.mean(|column, code| share(column.value(code).level, column.view().height()))),
            Loss::Dm => {
                let squares: f64 = sizes.iter().map(|&size| (size as f64).powi(2)).sum();
                Some((squares + (all - shown) * all) / all.powi(2))
            }
            Loss::Aecs => Some(all / (batch.class_count as f64 * f64::from(policy.k().0))),
            // It measures a partition of each domain, and values at several levels are none.
            Loss::Ql if batch.columns.iter().any(|column| column.is_mixed()) => None,
            Loss::Ql => Some(1.0 - quality(policy, batch) * shown / all),
            Loss::Entropy | Loss::Score | Loss::Cm => None,
        }
    }
}

/// The cost of every cell of the published rows, times the weight of its attribute, summed up.
fn cells(policy: &Policy, batch: &GeneralizedBatch, sizes: &[u64], cost: fn(&Column, u32) -> f64) -> f64 {
    let row = |class: usize| -> f64 {
        let cells = batch.columns.iter().zip(batch.class_cells(class)).zip(&policy.quasi);
        cells.map(|((column, &code), quasi)| cost(column, code) * quasi.weight).sum()
    };
    sizes.iter().enumerate().map(|(class, &size)| size as f64 * row(class)).sum()
}

fn share(level: u8, height: u8) -> f64 {
    if height == 0 { 0.0 } else { f64::from(level) / f64::from(height) }
}

fn quality(policy: &Policy, batch: &GeneralizedBatch) -> f64 {
    let shown = |attribute: usize| {
        let codes = (0..batch.class_count).map(|class| batch.class_cells(class)[attribute]);
        let codes: BTreeSet<u32> = codes.collect();
        codes.into_iter().map(|code| batch.columns[attribute].value(code)).collect()
    };
    Quality::new(policy).of_columns(&batch.columns, shown)
}
