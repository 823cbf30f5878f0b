//! Losses that add up cell by cell: `glm` (Iyengar 2002) and `precision` (Sweeney 2002).
//!
//! A generalized cell costs a share in [0, 1], a suppressed one costs 1; the loss is their weighted mean. The generalized
//! part is additive per attribute and level, so a lower bound of any node costs O(m) and needs no frequency set.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Counted, LossMetric, by_published_code, marginals};
use crate::frequency::set::Classes;
use crate::model::domain::DomainView;
use crate::model::lattice::Node;
use crate::model::policy::Policy;

pub(super) struct CellLoss {
    /// Weighted cost of one cell by attribute, level and code; a suppressed cell costs the attribute's weight.
    cost: Vec<Vec<Vec<f64>>>,
    /// The cost of a suppressed cell beyond that of the generalized one, by the same, normalised.
    added: Vec<Vec<Vec<f64>>>,
    /// The whole window at one level of one attribute, normalised.
    column: Vec<Vec<f64>>,
    total_weight: f64,
}

impl CellLoss {
    /// (leaves below the value - 1) / (leaves - 1).
    pub(super) fn glm(policy: &Policy, domains: &[Arc<DomainView>], base: &dyn Classes) -> Self {
        Self::new(policy, domains, base, |view, level| view.level(level).loss().to_vec())
    }

    /// Level / height, whatever the value.
    pub(super) fn precision(policy: &Policy, domains: &[Arc<DomainView>], base: &dyn Classes) -> Self {
        Self::new(policy, domains, base, |view, level| vec![view.height_share(level); view.level(level).len()])
    }

    fn new(
        policy: &Policy,
        domains: &[Arc<DomainView>],
        base: &dyn Classes,
        cell: impl Fn(&DomainView, u8) -> Vec<f64>,
    ) -> Self {
        let total_weight: f64 = policy.quasi.iter().map(|q| q.weight).sum();
        let records: f64 = base.records() as f64;
        let mut cost = Vec::new();
        let mut added = Vec::new();
        let mut column = Vec::new();
        for ((view, quasi), marginal) in domains.iter().zip(&policy.quasi).zip(marginals(domains, base)) {
            let levels: Vec<Vec<f64>> = (0..=view.height())
                .map(|level| cell(view, level).into_iter().map(|share| share * quasi.weight).collect())
                .collect();
            let at = |(level, costs): (usize, &Vec<f64>)| {
                let map = view.between(0, level as u8);
                let sum: f64 =
                    (marginal.iter().zip(&map)).map(|(&rows, &code)| rows as f64 * costs[code as usize]).sum();
                sum / (records.max(1.0) * total_weight)
            };
            column.push(levels.iter().enumerate().map(at).collect());
            let more = |cost: &f64| (quasi.weight - cost) / (records.max(1.0) * total_weight);
            added.push(levels.iter().map(|costs| costs.iter().map(more).collect()).collect());
            cost.push(levels);
        }
        Self { cost, added, column, total_weight }
    }
}

impl LossMetric for CellLoss {
    fn loss(&self, node: &Counted<'_>) -> f64 {
        let owned = by_published_code(&self.cost, node.classes);
        let generalized = if owned.iter().all(|table| matches!(table, Cow::Borrowed(_))) {
            self.lower_bound(node.classes.node())
        } else {
            let tables: Vec<&[f64]> = owned.iter().map(AsRef::as_ref).collect();
            let all = node.records.max(1) as f64 * self.total_weight;
            let rows = node.classes.rows().iter().enumerate();
            rows.map(|(c, &rows)| f64::from(rows) * node.classes.cells(c, &tables)).sum::<f64>() / all
        };
        generalized + self.forced(node)
    }

    fn columns(&self) -> Option<&[Vec<f64>]> {
        Some(&self.column)
    }

    fn added(&self) -> Option<&[Vec<Vec<f64>>]> {
        Some(&self.added)
    }

    /// The cost that suppression adds on top of the generalized cells it replaces; a finer cell costs less, so there it adds more.
    fn forced(&self, node: &Counted<'_>) -> f64 {
        let owned = by_published_code(&self.cost, node.classes);
        let tables: Vec<&[f64]> = owned.iter().map(AsRef::as_ref).collect();
        let added: f64 = node
            .suppressed()
            .map(|c| f64::from(node.classes.rows()[c]) * (self.total_weight - node.classes.cells(c, &tables)))
            .sum();
        added / (node.records.max(1) as f64 * self.total_weight)
    }

    fn lower_bound(&self, node: &Node) -> f64 {
        node.levels().iter().zip(&self.column).map(|(&level, column)| column[usize::from(level)]).sum()
    }
}
