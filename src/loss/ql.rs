//! `ql`, quality of granulation (Wang, Liao, Hsu 2007), as a loss 1 - ql.
//!
//! ql is the weighted mean over attributes of h(partition) / log |V|: the Shannon entropy of the partition that a level makes
//! of the attribute's domain V, all values of the domain alike, over the most it could be. Where a hierarchy does not list
//! its values, the domain is those seen so far. A record that is suppressed keeps nothing.

use std::sync::Arc;

use super::{Counted, LossMetric, by_published_code};
use crate::model::domain::DomainView;
use crate::model::lattice::Node;
use crate::model::policy::Policy;
use crate::model::recoding::Column;

/// The quality of every node of a window's domains.
pub struct Quality {
    /// By attribute, level and code: what publishing the values below that code keeps, weighted.
    kept: Vec<Vec<Vec<f64>>>,
    /// The same of the whole domain at one level.
    column: Vec<Vec<f64>>,
}

impl Quality {
    /// The quality of nodes over `domains`.
    pub fn new(policy: &Policy, domains: &[Arc<DomainView>]) -> Self {
        let weights: f64 = policy.quasi.iter().map(|q| q.weight).sum();
        let levels = |(view, weight): (&Arc<DomainView>, f64)| {
            (0..=view.height()).map(|level| kept(view, level, weight / weights)).collect()
        };
        let kept: Vec<Vec<Vec<f64>>> = domains.iter().zip(policy.quasi.iter().map(|q| q.weight)).map(levels).collect();
        let column = kept.iter().map(|levels| levels.iter().map(|codes| codes.iter().sum()).collect()).collect();
        Self { kept, column }
    }

    /// ql of what these columns show.
    pub(super) fn of_columns(&self, columns: &[Arc<Column>]) -> f64 {
        let of = |((column, kept), whole): ((&Arc<Column>, &Vec<Vec<f64>>), &Vec<f64>)| match column.values() {
            Some(cut) => cut.iter().map(|v| kept[usize::from(v.level)][v.code as usize]).sum(),
            None => whole[usize::from(column.value(0).level)],
        };
        columns.iter().zip(&self.kept).zip(&self.column).map(of).sum::<f64>()
    }

    /// ql of the node, in [0, 1]; nothing suppressed.
    pub fn of(&self, node: &Node) -> f64 {
        node.levels().iter().zip(&self.column).map(|(&level, column)| column[usize::from(level)]).sum()
    }
}

/// For each code of a level, the share of the domain's entropy that its block keeps. A single value has nothing to lose.
fn kept(view: &DomainView, level: u8, weight: f64) -> Vec<f64> {
    let mut blocks = vec![0.0f64; view.level(level).len()];
    view.between(0, level).into_iter().for_each(|code| blocks[code as usize] += 1.0);
    let total = view.leaf_count() as f64;
    let share = |block: f64| if total < 2.0 { block } else { block / total * (total / block).ln() / total.ln() };
    blocks.into_iter().map(|block| if block > 0.0 { weight * share(block) } else { 0.0 }).collect()
}

pub(super) struct Ql(pub(super) Quality);

impl LossMetric for Ql {
    fn loss(&self, node: &Counted<'_>) -> f64 {
        let left_out: u64 = node.suppressed().map(|class| u64::from(node.classes.rows()[class])).sum();
        let published = 1.0 - left_out as f64 / node.records.max(1) as f64;
        let kept: f64 = (by_published_code(&self.0.kept, node.classes).iter().zip(&self.0.column).enumerate())
            .map(|(attribute, (codes, column))| match node.classes.values(attribute) {
                Some(_) => codes.iter().sum(),
                None => column[usize::from(node.classes.node().levels()[attribute])],
            })
            .sum();
        1.0 - kept * published
    }

    fn lower_bound(&self, node: &Node) -> f64 {
        1.0 - self.0.of(node)
    }
}
