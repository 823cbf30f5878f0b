//! IL, the information that a step of `subtree-bottom-up` loses: the entropy about the class label, or without one the rise of
//! GLM. By attribute alone, so it is known for every step before the first is applied.

use super::tea::{Taxonomy, ValueId};
use crate::frequency::set::Classes;
use crate::model::domain::DomainView;
use crate::model::recoding::GeneralizedValue;

/// By value: what GLM rises by, in records and weighted, when the children that occur become it.
pub(super) fn glm_rise(
    base: &dyn Classes,
    attribute: usize,
    view: &DomainView,
    taxonomy: &Taxonomy,
    weight: f64,
) -> Vec<f64> {
    let mut records = vec![0.0; taxonomy.len()];
    for (class, &rows) in base.rows().iter().enumerate() {
        let leaf = taxonomy.id(GeneralizedValue { level: 0, code: base.code(class, attribute) });
        records[leaf as usize] += f64::from(rows);
    }
    let mut rise = vec![0.0; taxonomy.len()];
    // Children have smaller numbers than their parents, so they are summed up before they are needed.
    for value in 0..taxonomy.len() as ValueId {
        let cost = |id: ValueId| {
            let GeneralizedValue { level, code } = taxonomy.value(id);
            view.level(level).loss()[code as usize]
        };
        let children = taxonomy.children(value);
        if !children.is_empty() {
            records[value as usize] = children.iter().map(|&child| records[child as usize]).sum();
        }
        let before: f64 = children.iter().map(|&child| records[child as usize] * cost(child)).sum();
        rise[value as usize] = (records[value as usize] * cost(value) - before).max(0.0) * weight;
    }
    rise
}

/// By value: Info(R_v) - sum over children of |R_c| / |R_v| Info(R_c), Info the entropy of the class label.
pub(super) fn entropy_loss(base: &dyn Classes, attribute: usize, facet: usize, taxonomy: &Taxonomy) -> Vec<f64> {
    let mut counts: Vec<Vec<f64>> = vec![Vec::new(); taxonomy.len()];
    for class in 0..base.len() {
        let leaf = taxonomy.id(GeneralizedValue { level: 0, code: base.code(class, attribute) });
        let histogram = base.histogram(facet, class);
        for (&code, &count) in histogram.codes.iter().zip(histogram.counts) {
            let own = &mut counts[leaf as usize];
            own.resize(own.len().max(code as usize + 1), 0.0);
            own[code as usize] += f64::from(count);
        }
    }
    let mut loss = vec![0.0; taxonomy.len()];
    for value in 0..taxonomy.len() as ValueId {
        let children = taxonomy.children(value);
        let mut own = std::mem::take(&mut counts[value as usize]);
        for &child in children {
            let below = &counts[child as usize];
            own.resize(own.len().max(below.len()), 0.0);
            own.iter_mut().zip(below).for_each(|(sum, count)| *sum += count);
        }
        if !children.is_empty() {
            let (all, info) = entropy(&own);
            let below = children.iter().map(|&child| entropy(&counts[child as usize]));
            let kept: f64 = below.map(|(part, info)| part / all.max(1.0) * info).sum();
            loss[value as usize] = (info - kept).max(0.0);
        }
        counts[value as usize] = own;
    }
    loss
}

/// The sum of the counts, and their entropy in bits.
fn entropy(counts: &[f64]) -> (f64, f64) {
    let all: f64 = counts.iter().sum();
    let shares = counts.iter().filter(|count| **count > 0.0).map(|count| count / all);
    (all, -shares.map(|share| share * share.log2()).sum::<f64>())
}
