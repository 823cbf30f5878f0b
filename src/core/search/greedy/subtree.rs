//! `subtree-bottom-up`: bottom-up generalization over the TEA index (Wang, Yu, Chakraborty 2004, as told by Dalvi and
//! Keole), followed by a refinement of our own.
//!
//! A recoding is a cut per attribute. While the policy fails, the best step "all children of v become v" is applied: the
//! one of least IL / PG among those that make the smallest class larger, else the one of least IL. PG is the growth of
//! the smallest class; IL the entropy lost about the class label, or without one the rise of GLM.
//! The paper stops there. Its early steps cannot see privacy (with many smallest classes no step is critical), so some
//! turn out not to be needed: the refinement takes them back, the costliest first, as long as the policy still holds.
//! It starts a second time from the best full-domain node that a bounded search finds, so the result is never above it.
//! With a class label it is the label that decides all of this, by `cm`; the policy's loss only breaks ties.
//! That search comes first, for an answer at any time. `refine: false` is the algorithm as printed.

use std::cmp::Ordering;
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::time::Instant;

use rand::Rng;

use super::information::{entropy_loss, glm_rise};
use super::parts::{Costs, Parts, is_costlier};
use super::tea::{Taxonomy, Tea, ValueId};
use crate::frequency::set::Classes;
use crate::model::counting::Facet;
use crate::model::domain::DomainView;
use crate::model::lattice::{Lattice, Level, Node};
use crate::model::policy::{Loss, Policy};
use crate::model::recoding::{Cut, Recoding};
use crate::search::aim::Aim;
use crate::search::evaluator::Evaluator;
use crate::search::exact::optimal::Optimal;
use crate::search::front::objectives::Front;
use crate::search::{Budget, Candidate, Outcome, Search, StopReason};

/// Subtree recoding from the finest permitted cut up.
#[derive(Debug, Clone)]
pub struct SubtreeBottomUp {
    /// The cuts to start from, which may be finer than the lattice's bottom; without them, that bottom.
    pub from: Option<Vec<Cut>>,
    /// Take back what was not needed, after the paper's algorithm has ended.
    pub refine: bool,
}

impl Default for SubtreeBottomUp {
    fn default() -> Self {
        Self { from: None, refine: true }
    }
}

impl Search for SubtreeBottomUp {
    fn run(&self, lattice: &Lattice, evaluator: &Evaluator<'_>, budget: &Budget, rng: &mut dyn Rng) -> Outcome {
        let bottom = || Recoding::Node(lattice.bottom().clone()).cuts(evaluator.sets().domains());
        let start = self.from.clone().unwrap_or_else(bottom);
        let mut climb = Climb::new(lattice, evaluator, start);
        // First a full-domain node: it comes soon, so that there is an answer whenever the time is over.
        let full_domain = if self.refine { full_domain(lattice, evaluator, budget, rng) } else { None };
        let mut best = full_domain.clone();
        let mut stop = match climb.climb(budget) {
            Ok(Some(found)) if self.refine => climb.keep_better(&mut best, |climb| climb.refine(found, budget)),
            Ok(found) => climb.keep_better(&mut best, |_| (found, StopReason::Exhausted)),
            Err(stop) => stop,
        };
        if let Some(found) = full_domain
            && stop == StopReason::Exhausted
        {
            climb.descend_from(&found.recoding.coarsest());
            stop = climb.keep_better(&mut best, |climb| climb.refine(found, budget));
        }
        let bound = evaluator.lower_bound(&climb.recoding_of(climb.start.clone()).finest());
        Outcome { best, stop, bound, predicted: 0, minimal: Vec::new(), front: None }
    }

    fn aim(&self, evaluator: &Evaluator<'_>, _front: Option<&Front>) -> Aim {
        aim(evaluator)
    }
}

/// With a class label, what the classes still say about it; never another loss behind the user's back.
fn aim(evaluator: &Evaluator<'_>) -> Aim {
    let label = evaluator.rules().facets().contains(&Facet::Label);
    if label { Aim::LeastBy(Loss::Cm) } else { Aim::LeastLoss }
}

/// The best full-domain node by what is sought, as far as a part of the budget goes.
fn full_domain(lattice: &Lattice, evaluator: &Evaluator<'_>, budget: &Budget, rng: &mut dyn Rng) -> Option<Candidate> {
    let part = first_part(budget, evaluator);
    let Aim::LeastBy(loss) = aim(evaluator) else { return Optimal.run(lattice, evaluator, &part, rng).best };
    let policy = Policy { loss, ..evaluator.policy().clone() };
    let other = evaluator.beside_policy(&policy);
    let left = part.max_checks.saturating_sub(evaluator.checks());
    let best = Optimal.run(lattice, &other, &Budget { max_checks: left, ..part }, rng).best;
    evaluator.add_checks(&other);
    let best = best.filter(|_| evaluator.checks() < budget.max_checks)?;
    let evaluation = evaluator.evaluate_recoding(&best.recoding);
    Some(Candidate { evaluation, ..best })
}

/// Nodes that may be counted for a full-domain start of the refinement. More cost time that cuts do not need; fewer may
/// leave the result above the full-domain optimum.
const FULL_DOMAIN_CHECKS: u64 = 500;

/// What the full-domain search may use: some checks, and half of the time that is left.
fn first_part(budget: &Budget, evaluator: &Evaluator<'_>) -> Budget {
    let now = Instant::now();
    let half = |deadline: Instant| now + deadline.saturating_duration_since(now) / 2;
    Budget {
        max_checks: budget.max_checks.min(evaluator.checks() + FULL_DOMAIN_CHECKS),
        deadline: budget.deadline.map(half),
        cancelled: Arc::clone(&budget.cancelled),
    }
}

struct Climb<'a, 'e> {
    evaluator: &'a Evaluator<'e>,
    aim: Aim,
    base: Arc<dyn Classes>,
    /// The policy's attributes, those with few values first: at the root of the index a step costs most. What follows
    /// is in this order.
    order: Vec<usize>,
    start: Vec<Cut>,
    taxonomies: Arc<[Taxonomy]>,
    attributes: Vec<Attribute>,
}

/// Where one attribute's cut is, and what each step costs; by value.
struct Attribute {
    max_level: Level,
    /// Values that "all children become this" was applied to.
    applied: Vec<bool>,
    /// How many children that occur are not in the cut yet.
    missing: Vec<u32>,
    /// IL of each step.
    loss: Vec<f64>,
}

/// A possible step. The least is the one of least IL; then the lower one.
#[derive(Debug, Clone, Copy)]
struct Step {
    loss: f64,
    level: Level,
    attribute: usize,
    value: ValueId,
}

impl<'a, 'e> Climb<'a, 'e> {
    fn new(lattice: &Lattice, evaluator: &'a Evaluator<'e>, start: Vec<Cut>) -> Self {
        let base = evaluator.sets().base();
        let label = evaluator.rules().facets().iter().position(|facet| *facet == Facet::Label);
        let domains = evaluator.sets().domains();
        let occurring: Vec<Vec<bool>> = domains.iter().enumerate().map(|(at, v)| occurring(&*base, at, v)).collect();
        let mut order: Vec<usize> = (0..domains.len()).collect();
        order.sort_by_key(|&at| occurring[at].iter().filter(|occurs| **occurs).count());
        let (mut taxonomies, mut attributes) = (Vec::new(), Vec::new());
        for &at in &order {
            let view = &domains[at];
            let taxonomy = Taxonomy::new(view, &occurring[at]);
            let loss = match label {
                Some(facet) => entropy_loss(&*base, at, facet, &taxonomy),
                None => glm_rise(&*base, at, view, &taxonomy, evaluator.policy().quasi[at].weight),
            };
            attributes.push(Attribute {
                max_level: lattice.top().levels()[at],
                applied: vec![false; taxonomy.len()],
                missing: (0..taxonomy.len()).map(|v| taxonomy.children(v as ValueId).len() as u32).collect(),
                loss,
            });
            taxonomies.push(taxonomy);
        }
        let start = order.iter().map(|&at| start[at].clone()).collect();
        Self { evaluator, aim: aim(evaluator), base, order, start, taxonomies: taxonomies.into(), attributes }
    }

    /// The paper's algorithm: generalizes until the policy holds; `None` if it never does.
    fn climb(&mut self, budget: &Budget) -> Result<Option<Candidate>, StopReason> {
        let taxonomies = Arc::clone(&self.taxonomies);
        let in_time = || budget.interrupted().is_none();
        let rules = self.evaluator.rules();
        let Some(mut tea) = Tea::new(&*self.base, &self.order, &taxonomies, &self.start, rules, &in_time) else {
            return Err(budget.interrupted().unwrap_or(StopReason::Deadline));
        };
        let mut steps = BTreeSet::new();
        for (attribute, taxonomy) in taxonomies.iter().enumerate() {
            let ids = taxonomy.ids(&self.start[attribute]);
            let codes = (0..self.base.len()).map(|class| self.base.code(class, self.order[attribute]));
            let in_cut: BTreeSet<ValueId> = codes.map(|leaf| ids[leaf as usize]).collect();
            in_cut.into_iter().for_each(|value| self.enter(attribute, value, &mut steps));
        }
        loop {
            if let Some(reason) = budget.spent(self.evaluator.checks()) {
                return Err(reason);
            }
            if tea.holding() > 0 && tea.failing_rows() <= self.evaluator.allowed() {
                let recoding = self.recoding();
                let evaluation = self.evaluator.evaluate_recoding(&recoding);
                // Rules that look at more than one class at a time may fail still.
                if evaluation.satisfies {
                    return Ok(Some(Candidate { recoding, evaluation }));
                }
            }
            let Some(step) = self.best_step(&tea, &steps) else { return Ok(None) };
            tea.apply(step.attribute, step.value);
            steps.remove(&step);
            self.attributes[step.attribute].applied[step.value as usize] = true;
            self.enter(step.attribute, step.value, &mut steps);
        }
    }

    /// `value` is in the cut now: the step above it may have become possible.
    fn enter(&mut self, attribute: usize, value: ValueId, steps: &mut BTreeSet<Step>) {
        let Some(above) = self.taxonomies[attribute].parent(value) else { return };
        let missing = &mut self.attributes[attribute].missing[above as usize];
        *missing = missing.saturating_sub(1);
        steps.extend(self.possible(attribute, above));
    }

    fn possible(&self, attribute: usize, value: ValueId) -> Option<Step> {
        let own = &self.attributes[attribute];
        let step = self.step(attribute, value);
        (own.missing[value as usize] == 0 && step.level <= own.max_level).then_some(step)
    }

    fn step(&self, attribute: usize, value: ValueId) -> Step {
        let level = self.taxonomies[attribute].value(value).level;
        Step { loss: self.attributes[attribute].loss[value as usize], level, attribute, value }
    }

    /// The critical step of least IL / PG, else the step of least IL.
    fn best_step(&self, tea: &Tea<'_>, steps: &BTreeSet<Step>) -> Option<Step> {
        let critical = tea.may_be_critical().into_iter().filter_map(|(attribute, value)| {
            let step = self.possible(attribute, value)?;
            let gain = tea.gain(attribute, value);
            (gain > 0).then(|| (step.loss / f64::from(gain), step))
        });
        let best = critical.min_by(|a, b| a.0.total_cmp(&b.0).then_with(|| a.1.cmp(&b.1)));
        best.map(|(_, step)| step).or_else(|| steps.first().copied())
    }

    /// The cuts that the applied steps have made.
    fn recoding(&self) -> Recoding {
        let cut = |(attribute, start): (&Attribute, &Cut), taxonomy: &Taxonomy| {
            let raised = |(id, &level): (ValueId, &Level)| {
                let applied = taxonomy.above(id).filter(|&above| attribute.applied[above as usize]);
                applied.last().map_or(level, |above| taxonomy.value(above).level)
            };
            Cut::raised(taxonomy.ids(start).into_iter().zip(start.levels()).map(raised))
        };
        let cuts = self.attributes.iter().zip(&self.start).zip(&*self.taxonomies);
        self.recoding_of(cuts.map(|(own, taxonomy)| cut(own, taxonomy)).collect())
    }

    /// Cuts in the policy's order.
    fn recoding_of(&self, cuts: Vec<Cut>) -> Recoding {
        let mut placed: Vec<(usize, Cut)> = self.order.iter().copied().zip(cuts).collect();
        placed.sort_by_key(|(at, _)| *at);
        Recoding::Cuts(placed.into_iter().map(|(_, cut)| cut).collect())
    }

    /// Applies every step up to the levels of `node`.
    fn descend_from(&mut self, node: &Node) {
        for (place, own) in self.attributes.iter_mut().enumerate() {
            let (taxonomy, level) = (&self.taxonomies[place], node.levels()[self.order[place]]);
            let start: BTreeSet<ValueId> = taxonomy.ids(&self.start[place]).into_iter().collect();
            own.applied.fill(false);
            for above in start.iter().flat_map(|&value| taxonomy.above(value)) {
                own.applied[above as usize] = taxonomy.value(above).level <= level;
            }
        }
    }

    /// What a candidate costs by the aim; of two that cost the same the policy's loss decides.
    fn cost(&self, candidate: &Candidate) -> (f64, f64) {
        let rank = self.aim.rank(self.evaluator, &candidate.recoding, &candidate.evaluation);
        (rank.cost, candidate.evaluation.loss)
    }

    /// Keeps the better candidate, and passes on why the search for it ended.
    fn keep_better(
        &mut self,
        best: &mut Option<Candidate>,
        search: impl FnOnce(&mut Self) -> (Option<Candidate>, StopReason),
    ) -> StopReason {
        let (found, stop) = search(self);
        let better = |found: &Candidate| best.as_ref().is_none_or(|best| self.cost(found) < self.cost(best));
        if found.as_ref().is_some_and(better) {
            *best = found;
        }
        stop
    }

    /// Takes back steps that the policy does not need, the costliest first. A step that is needed stays needed when
    /// others are taken back, as far as the policy is monotone, so each is tried once.
    fn refine(&mut self, found: Candidate, budget: &Budget) -> (Option<Candidate>, StopReason) {
        let costs = self.costs();
        if !costs.are_known() {
            return self.refine_by_counting(found, budget);
        }
        let (base, order, taxonomies) = (Arc::clone(&self.base), self.order.clone(), Arc::clone(&self.taxonomies));
        let cut = self.values_in_cut();
        let in_time = || budget.interrupted().is_none();
        let Some(mut parts) = Parts::new(costs, &*base, &order, &taxonomies, cut, &in_time) else {
            return (Some(found), budget.interrupted().unwrap_or(StopReason::Deadline));
        };
        let (mut queue, mut stop, mut moved) = (self.outermost(), StopReason::Exhausted, false);
        while let Some(Step { attribute, value, .. }) = queue.pop() {
            if let Some(reason) = budget.spent(self.evaluator.checks()) {
                stop = reason;
                break;
            }
            if parts.take_back(attribute, value, self.evaluator.allowed()) {
                moved = true;
                self.attributes[attribute].applied[value as usize] = false;
                queue.extend(self.applied_below(attribute, value));
            }
        }
        if !moved {
            return (Some(found), stop);
        }
        let recoding = self.recoding();
        let evaluation = self.evaluator.evaluate_recoding(&recoding);
        debug_assert_eq!(evaluation.suppressed, parts.failing());
        (Some(Candidate { recoding, evaluation }), stop)
    }

    /// What classes cost by the aim, and by the policy's loss.
    fn costs(&self) -> Costs<'a> {
        let (rules, own) = (self.evaluator.rules(), self.evaluator.policy().loss);
        let by = match self.aim {
            Aim::LeastBy(loss) => [loss, own],
            _ => [own, own],
        };
        let label = rules.facets().iter().position(|facet| *facet == Facet::Label);
        let records = self.evaluator.records().max(1) as f64;
        Costs { by, added: self.evaluator.added(), label, records, rules }
    }

    /// Per attribute and leaf, the value in the cut that the applied steps have made.
    fn values_in_cut(&self) -> Vec<Vec<ValueId>> {
        let of = |((own, start), taxonomy): ((&Attribute, &Cut), &Taxonomy)| {
            let raised =
                |id: ValueId| taxonomy.above(id).filter(|&above| own.applied[above as usize]).last().unwrap_or(id);
            taxonomy.ids(start).into_iter().map(raised).collect()
        };
        self.attributes.iter().zip(&self.start).zip(&*self.taxonomies).map(of).collect()
    }

    /// The steps that nothing above was applied to.
    fn outermost(&self) -> BinaryHeap<Step> {
        let mut queue = BinaryHeap::new();
        for (attribute, own) in self.attributes.iter().enumerate() {
            let outermost = |&value: &ValueId| {
                let mut above = self.taxonomies[attribute].above(value);
                own.applied[value as usize] && !above.any(|above| own.applied[above as usize])
            };
            let values = (0..own.applied.len() as ValueId).filter(outermost);
            queue.extend(values.map(|value| self.step(attribute, value)));
        }
        queue
    }

    /// The steps one level below that were applied.
    fn applied_below(&self, attribute: usize, value: ValueId) -> Vec<Step> {
        let below = self.taxonomies[attribute].children(value).iter();
        let applied = below.filter(|&&below| self.attributes[attribute].applied[below as usize]);
        applied.map(|&below| self.step(attribute, below)).collect()
    }

    /// The same for losses and rules that are no sums over classes: each try counts the whole cut.
    fn refine_by_counting(&mut self, found: Candidate, budget: &Budget) -> (Option<Candidate>, StopReason) {
        let (mut cost, mut best) = (self.cost(&found), found);
        let mut queue = self.outermost();
        while let Some(Step { attribute, value, .. }) = queue.pop() {
            if let Some(reason) = budget.spent(self.evaluator.checks()) {
                return (Some(best), reason);
            }
            self.attributes[attribute].applied[value as usize] = false;
            let recoding = self.recoding();
            let evaluation = self.evaluator.evaluate_recoding(&recoding);
            let found = Candidate { recoding, evaluation };
            if found.evaluation.satisfies && !is_costlier(self.cost(&found), cost) {
                (cost, best) = (self.cost(&found), found);
                queue.extend(self.applied_below(attribute, value));
            } else {
                self.attributes[attribute].applied[value as usize] = true;
            }
        }
        (Some(best), StopReason::Exhausted)
    }
}

fn occurring(base: &dyn Classes, attribute: usize, view: &DomainView) -> Vec<bool> {
    let mut occurs = vec![false; view.leaf_count()];
    (0..base.len()).for_each(|class| occurs[base.code(class, attribute) as usize] = true);
    occurs
}

impl Ord for Step {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.loss.total_cmp(&other.loss))
            .then_with(|| self.level.cmp(&other.level))
            .then_with(|| (self.attribute, self.value).cmp(&(other.attribute, other.value)))
    }
}

impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Step {}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;
    use crate::model::policy::{Criterion, Diversity, SuppressionLimit};
    use crate::model::schema::Role;
    use crate::search::fixture::{Table, attributes, csv, policy, records, taxonomy};

    fn run(table: &Table, search: &SubtreeBottomUp) -> Outcome {
        let evaluator = table.evaluator();
        search.run(&table.policy.lattice(), &evaluator, &Budget::unlimited(), &mut ChaCha8Rng::seed_from_u64(0))
    }

    fn labels(table: &Table, recoding: &Recoding, attribute: usize) -> Vec<String> {
        let column = &recoding.columns(&table.dictionaries.quasi)[attribute];
        column.map().iter().map(|&code| column.label(code).to_owned()).collect()
    }

    /// The label is the first attribute. By `glm`, weighted, the first attribute is the cheap one to give up.
    #[test]
    fn with_a_label_the_label_decides() {
        let quasi = vec![("x", csv("p;*\nq;*\n")), ("y", csv("a;*\nb;*\n"))];
        let mut policy = policy(quasi, &[("label", Role::Label)], 2);
        policy.quasi[1].weight = 10.0;
        let rows: Vec<Vec<&str>> = ["p a p", "p b p", "q a q", "q b q"].map(|line| line.split(' ').collect()).to_vec();
        let table = Table::new(policy, &rows);
        let best = run(&table, &SubtreeBottomUp::default()).best.unwrap();
        assert_eq!(labels(&table, &best.recoding, 0), ["p", "q"]);
        assert_eq!(labels(&table, &best.recoding, 1), ["*", "*"]);
    }

    /// Figure 1 of the paper: 66 records, 2-anonymous and not 3-anonymous, with hypertension as the label.
    #[test]
    fn the_papers_figure() {
        let lines = [("divorced M 35", 0, 2), ("divorced M 40", 16, 1), ("divorced F 35", 0, 2)];
        let lines = lines.into_iter().chain([("married M 35", 8, 2), ("married F 40", 2, 7), ("single M 50", 6, 20)]);
        let people = lines.flat_map(|(qid, yes, no)| [(qid, "Y", yes), (qid, "N", no)]);
        let row = |qid: &'static str, label: &'static str| qid.split(' ').chain([label]).collect::<Vec<_>>();
        let rows: Vec<Vec<&str>> = people.flat_map(|(qid, label, n)| (0..n).map(move |_| row(qid, label))).collect();
        assert_eq!(rows.len(), 66);
        let quasi = || {
            let marital = csv("divorced;been married;*\nmarried;been married;*\nsingle;never married;*\n");
            vec![("marital", marital), ("sex", csv("M;*\nF;*\n")), ("hours", csv("35;<40;*\n40;>=40;*\n50;>=40;*\n"))]
        };
        let best = |k| {
            let table = Table::new(policy(quasi(), &[("hypertension", Role::Label)], k), &rows);
            let best = run(&table, &SubtreeBottomUp { from: None, refine: false }).best.unwrap();
            let columns = (0..3).map(|at| labels(&table, &best.recoding, at)).collect::<Vec<_>>();
            (columns, best.evaluation.k)
        };
        // As it is, for k = 2.
        assert_eq!(best(2).1, 2);
        assert_eq!(best(2).0[2], ["35", "40", "50"]);
        // For k = 3 the two pairs of divorced people who work 35 hours come together with each other or with others.
        let (columns, k) = best(3);
        assert!(k >= 3, "{columns:?}");
        assert_eq!(columns[2], ["35", "40", "50"], "hours say most about hypertension: {columns:?}");
    }

    /// The label needs both attributes, so that no step by itself shows what it costs; a node that keeps it exists.
    #[test]
    fn with_a_label_the_full_domain_start_is_by_the_label() {
        let quasi = vec![("x", csv("p;*\nq;*\n")), ("y", csv("a;*\nb;*\n")), ("z", csv("1;*\n2;*\n"))];
        let mut policy = policy(quasi, &[("label", Role::Label)], 2);
        policy.quasi[2].weight = 10.0;
        let lines = ["p a 1 t", "p a 2 t", "p b 1 f", "p b 2 f", "q a 1 f", "q a 2 f", "q b 1 t", "q b 2 t"];
        let rows: Vec<Vec<&str>> = lines.map(|line| line.split(' ').collect()).to_vec();
        let table = Table::new(policy, &rows);
        let best = run(&table, &SubtreeBottomUp::default()).best.unwrap();
        assert_eq!(table.evaluator().loss_by(Loss::Cm, &best.recoding), 0.0);
    }

    #[test]
    fn only_what_needs_it_is_generalized() {
        let rows: Vec<Vec<&str>> = ["a", "a", "b", "b", "c", "d", "d"].into_iter().map(|value| vec![value]).collect();
        let table = Table::new(policy(vec![("v", csv("a;x;*\nb;x;*\nc;y;*\nd;y;*\n"))], &[], 2), &rows);
        let best = run(&table, &SubtreeBottomUp::default()).best.unwrap();
        assert_eq!(labels(&table, &best.recoding, 0), ["a", "b", "y", "y"]);
    }

    #[test]
    fn with_a_label_the_step_that_keeps_it_apart_wins() {
        // {a, b} differ in their label, {c, d} do not: merging those costs nothing, and either pair needs to be merged.
        let rows: Vec<Vec<&str>> = ["a yes", "b no", "c yes", "d yes"].iter().map(|r| r.split(' ').collect()).collect();
        let quasi = vec![("v", csv("a;x;*\nb;x;*\nc;y;*\nd;y;*\n"))];
        let mut policy = policy(quasi, &[("class", Role::Label)], 2);
        policy.suppression = SuppressionLimit(0.5);
        let table = Table::new(policy, &rows);
        let best = run(&table, &SubtreeBottomUp { from: None, refine: false }).best.unwrap();
        assert_eq!(labels(&table, &best.recoding, 0), ["a", "b", "y", "y"]);
    }

    #[test]
    fn when_the_time_is_over_there_is_an_answer() {
        let rows: Vec<Vec<&str>> = ["a", "a", "b", "b", "c", "d", "d"].into_iter().map(|value| vec![value]).collect();
        let table = Table::new(policy(vec![("v", csv("a;x;*\nb;x;*\nc;y;*\nd;y;*\n"))], &[], 2), &rows);
        for max_checks in 1..12 {
            let evaluator = table.evaluator();
            let budget = Budget { max_checks, ..Budget::unlimited() };
            let rng = &mut ChaCha8Rng::seed_from_u64(0);
            let outcome = SubtreeBottomUp::default().run(&table.policy.lattice(), &evaluator, &budget, rng);
            assert!(evaluator.checks() <= max_checks);
            assert!(outcome.best.is_some_and(|best| best.evaluation.satisfies) || max_checks < 3);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
        #[test]
        fn what_it_finds_satisfies_the_policy_counted_naively(
            texts in prop::collection::vec(taxonomy(8), 1..4), seed in any::<u64>(), n in 1_usize..60, k in 1_u32..6,
            limit in prop_oneof![Just(0.0), Just(0.15)], refine in any::<bool>(), people in 5_u64..60,
            bounds in prop::array::uniform3((0_u8..2, 2_u8..4)), diverse in any::<bool>(),
        ) {
            let records = records(&texts, &[("s", 3), ("p", people)], n, seed);
            let mut policy = policy(attributes(&texts), &[("s", Role::Sensitive), ("p", Role::Subject)], k);
            policy.suppression = SuppressionLimit(limit);
            for (quasi, (min, max)) in policy.quasi.iter_mut().zip(bounds) {
                (quasi.min_level, quasi.max_level) = (min, max);
            }
            if diverse {
                policy.criteria.push(Criterion::LDiversity { field: 0, l: 2.0, variant: Diversity::Distinct });
            }
            let table = Table::new(policy, &records);
            // Taking classes apart finds what counting the whole cut each time finds.
            let evaluator = table.evaluator();
            let start = Recoding::Node(table.policy.lattice().bottom().clone()).cuts(evaluator.sets().domains());
            let refined = |counting: bool| {
                let mut climb = Climb::new(&table.policy.lattice(), &evaluator, start.clone());
                let found = climb.climb(&Budget::unlimited()).unwrap()?;
                let budget = Budget::unlimited();
                if counting { climb.refine_by_counting(found, &budget).0 } else { climb.refine(found, &budget).0 }
            };
            let losses = [refined(false), refined(true)].map(|best| best.map(|best| best.evaluation.loss));
            prop_assert_eq!(losses[0].is_some(), losses[1].is_some());
            prop_assert!((losses[0].unwrap_or(0.0) - losses[1].unwrap_or(0.0)).abs() < 1e-9, "{:?}", losses);
            let outcome = run(&table, &SubtreeBottomUp { from: None, refine });
            let top = table.evaluator().evaluate(table.policy.lattice().top()).satisfies;
            prop_assert!(outcome.best.is_some() || !top, "the top satisfies, so something is found");
            let Some(best) = outcome.best else { return Ok(()) };
            let columns = best.recoding.columns(&table.dictionaries.quasi);
            let cuts = best.recoding.cuts(&table.dictionaries.quasi);
            for ((cut, view), quasi) in cuts.iter().zip(&table.dictionaries.quasi).zip(&table.policy.quasi) {
                prop_assert!(Cut::new(view, cut.levels()).is_some());
                prop_assert!(cut.range().0 >= quasi.min_level && cut.range().1 <= quasi.max_level);
            }
            let mut classes: BTreeMap<Vec<&str>, Vec<usize>> = BTreeMap::new();
            for i in 0..table.rows.len() {
                let cells = table.rows.quasi(i).iter().zip(&columns);
                let labels = cells.map(|(&leaf, column)| column.label(column.map()[leaf as usize])).collect();
                classes.entry(labels).or_default().push(i);
            }
            let holds = |rows: &Vec<usize>| {
                let people: BTreeSet<u64> = rows.iter().map(|&i| table.rows.subject(i)).collect();
                let values: BTreeSet<u32> = rows.iter().map(|&i| table.rows.sensitive(i)[0]).collect();
                people.len() >= k as usize && (!diverse || values.len() >= 2)
            };
            let left_out: usize = classes.values().filter(|rows| !holds(rows)).map(Vec::len).sum();
            prop_assert!(left_out as u64 <= table.policy.suppression.of(n as u64));
            prop_assert_eq!(best.evaluation.suppressed, left_out as u64);
            prop_assert!(best.evaluation.loss >= outcome.bound - 1e-12);
            // The cell loss of the published rows, cell by cell.
            let cost = |rows: &Vec<usize>| -> f64 {
                let cell = |i: usize, a: usize| columns[a].loss(columns[a].map()[table.rows.quasi(i)[a] as usize]);
                let all = rows.iter().flat_map(|&i| (0..columns.len()).map(move |a| (i, a)));
                all.map(|(i, a)| if holds(rows) { cell(i, a) } else { 1.0 }).sum()
            };
            let glm = classes.values().map(cost).sum::<f64>() / (n * columns.len()) as f64;
            prop_assert!((best.evaluation.loss - glm).abs() < 1e-9, "{} is not {}", best.evaluation.loss, glm);
        }
    }
}
