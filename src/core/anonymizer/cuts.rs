//! Cuts that a plan can hold.
//!
//! A plan names cuts by one level per published value ([`OccurringLeaves`]), and has to fit the commit space. Where cuts publish too
//! many values, the attribute with the most values is published no finer than one level above, until they fit. Coarser cuts are
//! evaluated again; they satisfy every policy that is monotone, and where they fail nothing is published.

use std::sync::Arc;

use super::Anonymizer;
use super::draft::{Draft, source};
use crate::generalize::RowRef;
use crate::model::batch::Rows;
use crate::model::domain::DomainView;
use crate::model::lattice::Level;
use crate::model::policy::RecodingKind;
use crate::model::recoding::{Cut, OccurringLeaves, Recoding};
use crate::model::release::spans::Spans;
use crate::search::choose::Chosen;
use crate::search::evaluator::Evaluator;

/// The most values of all cuts where they must be committed with offsets (about 600 of 4,096 characters, at three bits each). Larger:
/// no space for waiting records. Smaller: coarser cuts.
const MAX_VALUES: usize = 1_200;

impl Anonymizer {
    /// The choice with cuts that a plan can hold, for a release of some of these rows.
    pub(super) fn plannable(&self, mut chosen: Chosen, rows: &[&Rows], evaluator: &Evaluator<'_>) -> Chosen {
        let Recoding::Cuts(cuts) = &chosen.recoding else { return chosen };
        if !self.uncommitted.is_bounded() {
            return chosen;
        }
        let domains = evaluator.sets().domains();
        let all = rows.iter().flat_map(|&rows| (0..rows.len()).map(move |i| (rows, i)));
        let leaves = OccurringLeaves::new(domains, all);
        let within = bounded(cuts.clone(), MAX_VALUES, |attribute, cut| leaves.values(attribute, cut).len());
        if within != *cuts {
            chosen.recoding = Recoding::Cuts(within);
            chosen.evaluation = evaluator.evaluate_recoding(&chosen.recoding);
            chosen.unmet_bounds = self.choice.unmet_bounds(evaluator, &chosen.recoding);
        }
        chosen
    }
}

/// The cuts, raised until they have at most `most` values to be written; `values` counts those of an attribute.
fn bounded(mut cuts: Vec<Cut>, most: usize, values: impl Fn(usize, &Cut) -> usize) -> Vec<Cut> {
    let mut counts: Vec<usize> = cuts.iter().enumerate().map(|(at, cut)| values(at, cut)).collect();
    while counts.iter().sum::<usize>() > most {
        let Some(longest) = (0..cuts.len()).max_by_key(|&at| counts[at]) else { break };
        cuts[longest] = cuts[longest].raised_to(cuts[longest].range().0 + 1);
        counts[longest] = values(longest, &cuts[longest]);
    }
    cuts
}

impl Draft {
    /// The levels by which the plan names the recoding: by the leaves of the rows that it shows where it lists them, else of all rows. A
    /// repeated plan keeps its own: they can tell more of values that the repeated rows do not have.
    pub(super) fn levels_in_plan(&self, listed: bool) -> Vec<Level> {
        if let Some(plan) = &self.planned {
            return plan.levels.clone();
        }
        match &self.recoding {
            Recoding::Node(node) => return node.levels().to_vec(),
            Recoding::Local(schedule) => return schedule.planned(self.first_step),
            Recoding::Cuts(_) => {}
        }
        let domains = &self.window.dictionaries.quasi;
        let shown = self.outcomes.published.iter().map(|&row| source(row, &self.rows, &self.held));
        let leaves = match listed {
            true => OccurringLeaves::new(domains, shown),
            false => self.all_leaves(domains),
        };
        leaves.write(&self.recoding)
    }

    /// The recoding that the plan names; `None` if it fits neither the policy nor the rows that were read again.
    pub(super) fn planned_recoding(&self) -> Option<Recoding> {
        let plan = self.planned.as_ref().filter(|_| self.policy.recoding != RecodingKind::Local)?;
        let domains = &self.window.dictionaries.quasi;
        let leaves = match &plan.shown {
            Some(shown) => self.leaves_at(domains, shown),
            None => self.all_leaves(domains),
        };
        leaves.read(&plan.levels, &self.policy.lattice())
    }

    fn all_leaves<'a>(&self, domains: &'a [Arc<DomainView>]) -> OccurringLeaves<'a> {
        let rows = [&*self.rows, &*self.held].into_iter();
        OccurringLeaves::new(domains, rows.flat_map(|rows| (0..rows.len()).map(move |i| (rows, i))))
    }

    fn leaves_at<'a>(&self, domains: &'a [Arc<DomainView>], shown: &Spans) -> OccurringLeaves<'a> {
        let fresh = (0..self.rows.len() as u32).map(RowRef::Fresh);
        let held = (0..self.held.len() as u32).map(RowRef::Held);
        let shown = fresh.chain(held).filter(|&row| shown.contains(self.position(row)));
        OccurringLeaves::new(domains, shown.map(|row| source(row, &self.rows, &self.held)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::domain::Domain;
    use crate::model::hierarchy::{Hierarchy, PrefixSpec};

    #[test]
    fn the_cut_of_most_values_is_raised_until_all_fit() {
        let mut domain = Domain::new(Arc::new(Hierarchy::prefix(PrefixSpec::new(3)).unwrap()));
        ["000", "001", "010", "011", "100"].iter().for_each(|text| {
            domain.code(text).unwrap();
        });
        let view = domain.view();
        let fine = Cut::new(&view, [0, 0, 0, 0, 2]).unwrap();
        let coarse = Cut::new(&view, [2, 2, 2, 2, 1]).unwrap();
        let values = |_: usize, cut: &Cut| {
            let column = &Recoding::Cuts(vec![cut.clone()]).columns(std::slice::from_ref(&view))[0];
            if cut.uniform().is_some() { 0 } else { column.len() }
        };
        let cuts = vec![fine.clone(), coarse.clone()];
        assert_eq!(bounded(cuts.clone(), 7, values), cuts, "five and two values fit");
        let raised = bounded(cuts.clone(), 6, values);
        assert_eq!(raised, [Cut::new(&view, [1, 1, 1, 1, 2]).unwrap(), coarse], "three and two values");
        assert_eq!(bounded(cuts, 0, values), [Cut::level(&view, 2), Cut::level(&view, 2)]);
    }
}
