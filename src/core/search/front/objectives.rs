//! What a front trades off: privacy properties and losses of one node, all turned to "higher is better".
//!
//! After Dewri, Ray, Ray, Whitley, "On the identification of property based generalizations in microdata anonymization"
//! (2010). A property gives every record a number; an index makes one number of them: the worst (`k`, `l`) or the sum
//! (`s_k`, `s_l`, losses), here per record. The suppression budget is the policy's: classes of size 1, 2, ... are left out
//! while their records fit into it, and the first size that does not fit is the node's `k`. Left-out records count fully
//! in every loss and are absent from the privacy properties. `s_l` counts up, like `s_k`: on Adult its lower values would make a
//! front of 2,492 nodes, more than the paper's search ever looked at.
//!
//! To add one: a variant of [`Objective`] with its name and an arm in [`Measure`]; every [`Loss`] is one already.

use std::sync::{Arc, Mutex, PoisonError};

use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::frequency::set::Classes;
use crate::loss::{self, Counted, LossMetric};
use crate::model::counting::{Facet, Histogram};
use crate::model::lattice::Node;
use crate::model::policy::{Loss, Policy};
use crate::privacy::{Class, Rule, Rules};
use crate::search::evaluator::{Evaluation, Evaluator};

/// Something to trade off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Objective {
    /// The smallest class.
    K,
    /// The fewest different sensitive values in a class.
    L,
    /// The mean over records of the size of their class.
    #[serde(rename = "s_k")]
    SpreadK,
    /// The mean over records of how many in their class share their sensitive value. Sought high, as in the paper: more of it
    /// is less diverse.
    #[serde(rename = "s_l")]
    SpreadL,
    /// Mean security by the confidential sentences, over what the policy publishes.
    #[serde(rename = "sf")]
    Security,
    /// The greatest distance of a class from the release, by the policy's `t-closeness`; lower is better.
    T,
    /// The least diversity of a class, by the policy's `l-diversity` of variant `entropy`.
    #[serde(rename = "l_entropy")]
    EntropyL,
    /// The same by the variant `recursive`.
    #[serde(rename = "l_recursive")]
    RecursiveL,
    /// The greatest share of one sensitive value in a class, by the policy's `alpha-k`; lower is better.
    Alpha,
    /// The same by the policy's `lkc`, for somebody who knows all quasi-identifiers; lower is better.
    Confidence,
    /// A loss; lower is better.
    #[serde(untagged)]
    Loss(Loss),
}

impl Objective {
    /// Every objective.
    pub fn all() -> impl Iterator<Item = Self> {
        let properties =
            [Self::K, Self::L, Self::SpreadK, Self::SpreadL, Self::Security].into_iter().chain(Self::BY_RULE);
        properties.chain(Loss::ALL.into_iter().map(Self::Loss))
    }

    /// Those that a criterion of the policy measures.
    const BY_RULE: [Self; 5] = [Self::T, Self::EntropyL, Self::RecursiveL, Self::Alpha, Self::Confidence];

    /// The criterion that measures it, by how the names of its rules begin and end.
    pub fn rule(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::T => Some(("t-closeness/", "")),
            Self::EntropyL => Some(("l-diversity/", "/entropy")),
            Self::RecursiveL => Some(("l-diversity/", "/recursive")),
            Self::Alpha => Some(("alpha-k/", "/alpha")),
            Self::Confidence => Some(("lkc/", "/c")),
            Self::K | Self::L | Self::SpreadK | Self::SpreadL | Self::Security | Self::Loss(_) => None,
        }
    }

    /// The name a user writes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::T => "t",
            Self::EntropyL => "l_entropy",
            Self::RecursiveL => "l_recursive",
            Self::Alpha => "alpha",
            Self::Confidence => "confidence",
            Self::K => "k",
            Self::L => "l",
            Self::SpreadK => "s_k",
            Self::SpreadL => "s_l",
            Self::Security => "sf",
            Self::Loss(loss) => loss.as_str(),
        }
    }

    /// The objective of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::all().find(|o| o.as_str() == name)
    }

    /// True if a reader wants the reported value high; the index always is.
    pub fn higher_is_better(self) -> bool {
        !matches!(self, Self::Loss(_) | Self::T | Self::Alpha | Self::Confidence)
    }

    /// What a value is worth to a person, higher is better, so that equal steps matter alike: counts of people by the risk
    /// 1/count that they leave, `aecs` by its magnitude, shares as they are.
    pub fn worth(self, value: f64) -> f64 {
        match self {
            Self::K | Self::L | Self::SpreadK | Self::SpreadL | Self::EntropyL | Self::RecursiveL => {
                -1.0 / value.max(1.0)
            }
            Self::T | Self::Alpha | Self::Confidence => -value,
            Self::Security => value,
            Self::Loss(Loss::Aecs) => -value.max(f64::MIN_POSITIVE).ln(),
            Self::Loss(_) => -value,
        }
    }

    /// True if the objective needs a sensitive field.
    pub fn needs_sensitive(self) -> bool {
        matches!(self, Self::L | Self::SpreadL)
    }

    /// What the policy lacks that the objective is about.
    pub fn lacks(self, policy: &Policy) -> Option<&'static str> {
        let lacks = |lacks: bool, what| lacks.then_some(what);
        match self {
            Self::L | Self::SpreadL => lacks(policy.schema.sensitive.is_empty(), "a sensitive field"),
            Self::Security => lacks(policy.sentences().next().is_none(), "a `confidential` criterion"),
            Self::Loss(Loss::Cm) => lacks(policy.schema.label.is_none(), "a `label`"),
            Self::K | Self::SpreadK | Self::Loss(_) => None,
            Self::T | Self::EntropyL | Self::RecursiveL | Self::Alpha | Self::Confidence => {
                let asked = self.rule().is_some_and(|(start, end)| !Rules::new(policy).named(start, end).is_empty());
                lacks(!asked, self.criterion())
            }
        }
    }

    /// The criterion that a policy must have for it, for people.
    pub fn criterion(self) -> &'static str {
        match self {
            Self::T => "a `t-closeness` criterion",
            Self::EntropyL => "an `l-diversity` criterion of variant `entropy`",
            Self::RecursiveL => "an `l-diversity` criterion of variant `recursive`",
            Self::Alpha => "an `alpha-k` criterion",
            _ => "an `lkc` criterion about a sensitive field",
        }
    }

    /// What must be counted in each class for it.
    pub fn facets(self, policy: &Policy) -> impl Iterator<Item = Facet> + use<> {
        let fields = if self.needs_sensitive() { policy.schema.sensitive.len() } else { 0 };
        (0..fields).map(Facet::Sensitive)
    }
}

/// Which point of a front to release.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Prefer {
    /// The knee: beyond it, giving up more of one objective buys little of the others.
    #[default]
    Knee,
    /// At least (losses: at most) so much of each objective named, as a report shows it; the knee of those, or the nearest.
    Bounds(Vec<(Objective, f64)>),
}

/// The trade-off, point by point.
#[derive(Debug, Clone, PartialEq)]
pub struct Front {
    /// What is traded off, in the order of the values.
    pub objectives: Vec<Objective>,
    /// From the best by the first objective to the worst.
    pub points: Vec<FrontPoint>,
    /// Which point was picked, if one was.
    pub picked: Option<usize>,
    /// True if this is the whole truth: every node was counted.
    pub exact: bool,
}

/// One point of a front.
#[derive(Debug, Clone, PartialEq)]
pub struct FrontPoint {
    /// The node.
    pub node: Node,
    /// One value per objective, as a report shows it.
    pub values: Vec<f64>,
    /// What the policy says of it.
    pub evaluation: Evaluation,
}

/// Several objectives at work on one window.
pub struct Objectives {
    list: Vec<Objective>,
    measures: Vec<Measure>,
    records: u64,
    budget: u64,
    subjects: bool,
    memo: Mutex<FxHashMap<Node, Arc<Indices>>>,
}

/// What is known of a measured node.
#[derive(Debug, Clone, PartialEq)]
pub struct Indices {
    /// One per objective, higher is better.
    pub own: Vec<f64>,
    /// The most that any finer node can have; infinite where nothing is known.
    pub below: Vec<f64>,
    /// The most that any coarser node can have; infinite where nothing is known.
    pub above: Vec<f64>,
}

enum Measure {
    K,
    L(Vec<usize>),
    SpreadK,
    SpreadL(Vec<usize>),
    Security,
    /// The weakest class by these rules; of shares, what is left to 1.
    Weakest {
        rules: Vec<Arc<dyn Rule>>,
        facets: usize,
    },
    Loss {
        metric: Box<dyn LossMetric>,
        worst: f64,
    },
}

impl Objectives {
    /// The objectives over the window of `evaluator`, whose rules must count what they need
    /// ([`Objective::facets`], `Rules::also_counting`); an objective whose column is not counted is 0 everywhere.
    pub fn new(list: &[Objective], evaluator: &Evaluator<'_>) -> Self {
        let fields = || {
            let sensitive = |(at, facet): (usize, &Facet)| matches!(facet, Facet::Sensitive(_)).then_some(at);
            evaluator.rules().facets().iter().enumerate().filter_map(sensitive).collect()
        };
        let measure = |objective: &Objective| match objective {
            Objective::K => Measure::K,
            Objective::L => Measure::L(fields()),
            Objective::SpreadK => Measure::SpreadK,
            Objective::SpreadL => Measure::SpreadL(fields()),
            Objective::Security => Measure::Security,
            Objective::T | Objective::EntropyL | Objective::RecursiveL | Objective::Alpha | Objective::Confidence => {
                let (start, end) = objective.rule().unwrap_or_default();
                let rules = evaluator.rules();
                Measure::Weakest { rules: rules.named(start, end), facets: rules.facets().len() }
            }
            Objective::Loss(loss) => {
                let base: Arc<dyn Classes> = evaluator.sets().base();
                let metric = loss::metric(*loss, evaluator.policy(), evaluator.sets().domains(), &base);
                Measure::Loss { metric, worst: worst(*loss, evaluator) }
            }
        };
        Self {
            list: list.to_vec(),
            measures: list.iter().map(measure).collect(),
            records: evaluator.records(),
            budget: evaluator.allowed(),
            subjects: evaluator.rules().counting().subjects,
            memo: Mutex::default(),
        }
    }

    /// Which they are.
    pub fn list(&self) -> &[Objective] {
        &self.list
    }

    /// Counts a node, or recalls it: what the policy says of it, and its indices. `evaluator` is the one these were made
    /// for.
    pub fn measure(&self, evaluator: &Evaluator<'_>, node: &Node) -> (Evaluation, Arc<Indices>) {
        let memo = || self.memo.lock().unwrap_or_else(PoisonError::into_inner);
        let known = memo().get(node).map(Arc::clone);
        if let Some(indices) = known {
            return (evaluator.evaluate(node), indices);
        }
        let (evaluation, classes) = evaluator.inspect(node);
        let (k, published) = within_budget(&*classes, self.budget);
        let counted = Counted { classes: &*classes, published: &published, records: self.records };
        let indices = Arc::new(Indices {
            own: self.measures.iter().map(|m| m.index(k, &counted, &evaluation)).collect(),
            below: self.measures.iter().map(|m| self.most_below(m, k, &*classes)).collect(),
            above: self.measures.iter().map(|m| m.most_above(&counted)).collect(),
        });
        memo().insert(node.clone(), Arc::clone(&indices));
        (evaluation, indices)
    }

    /// The values that a release at the node has, by the classes that the policy publishes there.
    pub fn released(&self, evaluator: &Evaluator<'_>, node: &Node) -> Vec<f64> {
        let (evaluation, classes) = evaluator.inspect(node);
        let published = evaluator.published(&*classes);
        let counted = Counted { classes: &*classes, published: &published, records: self.records };
        let index = |m: &Measure| m.index(evaluation.k, &counted, &evaluation);
        self.values(&self.measures.iter().map(index).collect::<Vec<f64>>())
    }

    /// The most that each index of a node can be, known without counting it.
    pub fn most(&self, node: &Node) -> Vec<f64> {
        let of = |(m, max): (&Measure, f64)| match m {
            Measure::Loss { metric, worst } => worst - metric.lower_bound(node),
            _ => max,
        };
        self.measures.iter().zip(self.maxima()).map(of).collect()
    }

    /// The values a report shows for these indices.
    pub fn values(&self, indices: &[f64]) -> Vec<f64> {
        indices.iter().enumerate().map(|(objective, &index)| self.turn(objective, index)).collect()
    }

    /// The largest that each index can be.
    pub fn maxima(&self) -> Vec<f64> {
        let n = self.records as f64;
        let of = |m: &Measure| match m {
            Measure::K | Measure::L(_) | Measure::SpreadK => n,
            Measure::SpreadL(fields) => n * fields.len() as f64,
            Measure::Security => 1.0,
            Measure::Weakest { rules, .. } if at_most(rules) => 1.0,
            Measure::Weakest { .. } => n,
            Measure::Loss { worst, .. } => *worst,
        };
        self.measures.iter().map(of).collect()
    }

    /// The sides of the archive's boxes: `wished` where given, else 1 for whole numbers and a thousandth of the range for
    /// the others. Larger boxes keep fewer points.
    pub fn epsilon(&self, wished: &[(Objective, f64)]) -> Vec<f64> {
        let default = |(m, max): (&Measure, f64)| match m {
            Measure::K | Measure::L(_) => 1.0,
            _ => (max / 1000.0).max(f64::MIN_POSITIVE),
        };
        let defaults: Vec<f64> = self.measures.iter().zip(self.maxima()).map(default).collect();
        let of = |(o, default): (&Objective, f64)| {
            wished.iter().find(|(w, side)| w == o && *side > 0.0).map_or(default, |(_, side)| *side)
        };
        self.list.iter().zip(defaults).map(of).collect()
    }

    /// From an index to its value and back: losses are counted down from their worst.
    fn turn(&self, objective: usize, number: f64) -> f64 {
        match &self.measures[objective] {
            Measure::Loss { worst, .. } => worst - number,
            Measure::Weakest { rules, .. } if at_most(rules) => 1.0 - number,
            _ => number,
        }
    }

    /// What no node below one with these classes can exceed. Specializing splits classes: the sizes of those left out
    /// add up to no less, and sums of squares to no more.
    fn most_below(&self, measure: &Measure, k: u32, classes: &dyn Classes) -> f64 {
        let n = self.records.max(1) as f64;
        let all = 0..classes.len();
        match measure {
            Measure::K => f64::from(k),
            // A class with more records than the budget keeps a part that is published, with no more values than it has.
            Measure::L(fields) => all
                .filter(|&c| u64::from(classes.rows()[c]) > self.budget)
                .flat_map(|c| fields.iter().map(move |&f| classes.histogram(f, c).values().counts.len() as f64))
                .fold(f64::INFINITY, f64::min),
            Measure::SpreadK => all.map(|c| squares_of_class(classes, c)).sum::<f64>() / n,
            // Somebody in two parts of a class counts once in it and twice below.
            Measure::SpreadL(_) if self.subjects => f64::INFINITY,
            Measure::SpreadL(fields) => all.map(|c| squares_of_values(classes, c, fields)).sum::<f64>() / n,
            Measure::Security | Measure::Weakest { .. } | Measure::Loss { .. } => f64::INFINITY,
        }
    }
}

impl Measure {
    fn index(&self, k: u32, node: &Counted<'_>, evaluation: &Evaluation) -> f64 {
        let classes = node.classes;
        let published = (0..classes.len()).filter(|&c| node.published[c]);
        let n = node.records.max(1) as f64;
        match self {
            Self::K => f64::from(k),
            Self::L(fields) => {
                let distinct =
                    |class: usize| fields.iter().map(move |&f| classes.histogram(f, class).values().counts.len());
                published.flat_map(distinct).min().unwrap_or(0) as f64
            }
            Self::SpreadK => published.map(|c| squares_of_class(classes, c)).sum::<f64>() / n,
            Self::SpreadL(fields) => published.map(|c| squares_of_values(classes, c, fields)).sum::<f64>() / n,
            Self::Security => evaluation.security,
            Self::Weakest { rules, facets } => weakest(rules, *facets, node),
            Self::Loss { metric, worst } => (worst - metric.loss(node)).max(0.0),
        }
    }

    /// What no node above a counted one can exceed.
    fn most_above(&self, node: &Counted<'_>) -> f64 {
        match self {
            Self::Loss { metric, worst } => worst - metric.bound_above(node),
            _ => f64::INFINITY,
        }
    }
}

/// True if less is better by these rules.
fn at_most(rules: &[Arc<dyn Rule>]) -> bool {
    rules.first().is_some_and(|rule| rule.at_most())
}

fn histograms(set: &dyn Classes, class: usize, facets: usize) -> Vec<Histogram<'_>> {
    (0..facets).map(|facet| set.histogram(facet, class)).collect()
}

/// What the weakest published class reaches by the rules, higher is better; 0 if nothing is published.
fn weakest(rules: &[Arc<dyn Rule>], facets: usize, node: &Counted<'_>) -> f64 {
    let classes = node.classes;
    let release = classes.seen_by(node.published, &[]).classes;
    if release.is_empty() {
        return 0.0;
    }
    let all = histograms(&*release, 0, facets);
    let everybody = Class { size: release.sizes()[0], facets: &all };
    let of = |class: usize| {
        let own = histograms(classes, class, facets);
        let class = Class { size: classes.sizes()[class], facets: &own };
        let turned = |rule: &Arc<dyn Rule>| {
            let measure = rule.measure(&class, &everybody);
            if rule.at_most() { 1.0 - measure } else { measure }
        };
        rules.iter().map(turned).fold(f64::INFINITY, f64::min)
    };
    let least = (0..classes.len()).filter(|&class| node.published[class]).map(of).fold(f64::INFINITY, f64::min);
    // A rule that does not know the codes measures nothing.
    if least.is_finite() { least.max(0.0) } else { 0.0 }
}

/// The sum over the records of a class of its size.
fn squares_of_class(classes: &dyn Classes, class: usize) -> f64 {
    f64::from(classes.rows()[class]) * f64::from(classes.sizes()[class])
}

/// The sum over the records of a class of how often their sensitive values occur in it.
fn squares_of_values(classes: &dyn Classes, class: usize, fields: &[usize]) -> f64 {
    let squares =
        |&f: &usize| classes.histogram(f, class).values().counts.iter().map(|&c| f64::from(c).powi(2)).sum::<f64>();
    fields.iter().map(squares).sum()
}

/// The largest that a loss can be.
fn worst(loss: Loss, evaluator: &Evaluator<'_>) -> f64 {
    match loss {
        Loss::Aecs => evaluator.records() as f64 / f64::from(evaluator.policy().k().0.max(1)),
        _ => 1.0,
    }
}

/// Leaves out the classes of size 1, 2, ... while their records number at most `budget`. Returns the first size that does
/// not fit (0 if all do) and which classes stay.
pub fn within_budget(classes: &dyn Classes, budget: u64) -> (u32, Vec<bool>) {
    // A class of size s has at least s records, so only sizes up to the budget can go.
    let mut by_size: Vec<(u32, u64)> = (classes.sizes().iter().zip(classes.rows()))
        .filter(|(size, _)| u64::from(**size) <= budget)
        .map(|(&size, &rows)| (size, u64::from(rows)))
        .collect();
    by_size.sort_unstable();
    let mut total = 0;
    let mut k = None;
    for same in by_size.chunk_by(|a, b| a.0 == b.0) {
        total += same.iter().map(|(_, rows)| rows).sum::<u64>();
        if total > budget {
            k = same.first().map(|(size, _)| *size);
            break;
        }
    }
    let larger = || classes.sizes().iter().copied().filter(|&size| u64::from(size) > budget).min();
    match k.or_else(larger) {
        Some(k) => (k, classes.sizes().iter().map(|&size| size >= k).collect()),
        None => (0, vec![false; classes.len()]),
    }
}
