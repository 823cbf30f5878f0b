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
//! That search comes first, for an answer at any time.

use std::cmp::Ordering;
use std::collections::{BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::time::Instant;

use rand::Rng;

use super::tea::{Taxonomy, Tea, ValueId};
use crate::frequency::set::Classes;
use crate::model::counting::Facet;
use crate::model::domain::DomainView;
use crate::model::lattice::{Lattice, Level, Node};
use crate::model::policy::Loss;
use crate::model::recoding::{Cut, GeneralizedValue, Recoding};
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
        let full_domain =
            self.refine.then(|| Optimal.run(lattice, evaluator, &first_part(budget, evaluator), rng).best);
        let full_domain = full_domain.flatten();
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
        let mut tea = Tea::new(&*self.base, &self.order, &taxonomies, &self.start, self.evaluator.rules());
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
        let (mut cost, mut best) = (self.cost(&found), found);
        let mut queue = BinaryHeap::new();
        for (attribute, own) in self.attributes.iter().enumerate() {
            let outermost = |&value: &ValueId| {
                let mut above = self.taxonomies[attribute].above(value);
                own.applied[value as usize] && !above.any(|above| own.applied[above as usize])
            };
            let values = (0..own.applied.len() as ValueId).filter(outermost);
            queue.extend(values.map(|value| self.step(attribute, value)));
        }
        while let Some(Step { attribute, value, .. }) = queue.pop() {
            if let Some(reason) = budget.spent(self.evaluator.checks()) {
                return (Some(best), reason);
            }
            self.attributes[attribute].applied[value as usize] = false;
            let recoding = self.recoding();
            let evaluation = self.evaluator.evaluate_recoding(&recoding);
            let found = Candidate { recoding, evaluation };
            if found.evaluation.satisfies && self.cost(&found) <= cost {
                (cost, best) = (self.cost(&found), found);
                let below = self.taxonomies[attribute].children(value).iter();
                let applied = below.filter(|&&below| self.attributes[attribute].applied[below as usize]);
                queue.extend(applied.map(|&below| self.step(attribute, below)));
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

/// By value: what GLM rises by, in records and weighted, when the children that occur become it.
fn glm_rise(base: &dyn Classes, attribute: usize, view: &DomainView, taxonomy: &Taxonomy, weight: f64) -> Vec<f64> {
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
fn entropy_loss(base: &dyn Classes, attribute: usize, facet: usize, taxonomy: &Taxonomy) -> Vec<f64> {
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
    use crate::model::hierarchy::Hierarchy;
    use crate::model::policy::{Criterion, Diversity, SuppressionLimit};
    use crate::model::schema::Role;
    use crate::search::fixture::{Table, policy};

    fn csv(text: &str) -> Hierarchy {
        Hierarchy::parse_csv(text.as_bytes()).unwrap()
    }

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

    fn taxonomy() -> impl Strategy<Value = String> {
        (1_usize..9, 1_usize..5, 1_usize..3).prop_map(|(leaves, groups, upper)| {
            (0..leaves).map(|i| format!("v{i};g{};u{};*\n", i % groups, i % groups % upper)).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
        #[test]
        fn what_it_finds_satisfies_the_policy_counted_naively(
            texts in prop::collection::vec(taxonomy(), 1..4), seed in any::<u64>(), n in 1_usize..60, k in 1_u32..6,
            limit in prop_oneof![Just(0.0), Just(0.15)], refine in any::<bool>(), people in 5_u64..60,
            bounds in prop::array::uniform3((0_u8..2, 2_u8..4)), diverse in any::<bool>(),
        ) {
            let mut state = seed;
            let mut draw = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % below
            };
            let leaves: Vec<u64> = texts.iter().map(|t| t.lines().count() as u64).collect();
            let records: Vec<Vec<String>> = (0..n).map(|_| {
                let quasi: Vec<String> = leaves.iter().map(|&l| format!("v{}", draw(l))).collect();
                quasi.into_iter().chain([format!("s{}", draw(3)), format!("p{}", draw(people))]).collect()
            }).collect();
            let quasi = texts.iter().zip(["a", "b", "c"]).map(|(text, name)| (name, csv(text))).collect();
            let mut policy = policy(quasi, &[("s", Role::Sensitive), ("p", Role::Subject)], k);
            policy.suppression = SuppressionLimit(limit);
            for (quasi, (min, max)) in policy.quasi.iter_mut().zip(bounds) {
                (quasi.min_level, quasi.max_level) = (min, max);
            }
            if diverse {
                policy.criteria.push(Criterion::LDiversity { field: 0, l: 2.0, variant: Diversity::Distinct });
            }
            let table = Table::new(policy, &records);
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
