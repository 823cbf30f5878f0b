//! Random tables with random hierarchies, and slow twins: everything counted from the rows, straight from the
//! definitions, sharing no code with the engine. Members of a class are sets of subjects (or of row numbers).
#![allow(dead_code, unreachable_pub)]

pub mod fixture;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use veilstream::encode::Encoder;
use veilstream::frequency::counter;
use veilstream::frequency::store::FrequencySets;
use veilstream::gate::Release;
use veilstream::model::batch::Rows;
use veilstream::model::event::{Offset, Position};
use veilstream::model::hierarchy::Hierarchy;
use veilstream::model::lattice::Node;
use veilstream::model::policy::{Criterion, Diversity, K, Loss, Policy, SuppressionAction, SuppressionLimit};
use veilstream::model::recoding::Recoding;
use veilstream::model::record::{Record, Value};
use veilstream::model::schema::{Role, Schema};
use veilstream::privacy::Rules;
use veilstream::window::ClosedWindow;

/// One quasi-identifier: for every leaf its labels from level 0 to the top.
#[derive(Debug, Clone)]
pub struct Attribute {
    pub paths: Vec<Vec<String>>,
    pub min_level: u8,
    pub max_level: u8,
    pub weight: f64,
}

impl Attribute {
    pub fn height(&self) -> u8 {
        (self.paths[0].len() - 1) as u8
    }

    /// How many leaves have this label at this level.
    fn leaves_below(&self, level: u8, label: &str) -> usize {
        self.paths.iter().filter(|path| path[usize::from(level)] == label).count()
    }

    /// Leaves in groups of so many below one top.
    pub fn grouped(name: &str, leaves: usize, group: usize) -> Self {
        let path = |leaf: usize| vec![format!("{name}{leaf}"), format!("{name}-{}", leaf / group), "*".to_string()];
        Self { paths: (0..leaves).map(path).collect(), min_level: 0, max_level: 2, weight: 1.0 }
    }

    fn csv(&self) -> String {
        self.paths.iter().map(|path| path.join(";") + "\n").collect()
    }
}

#[derive(Debug, Clone)]
pub struct Line {
    pub leaves: Vec<usize>,
    pub sensitive: Vec<u8>,
    pub subject: u16,
}

#[derive(Debug, Clone)]
pub struct Table {
    pub attributes: Vec<Attribute>,
    pub lines: Vec<Line>,
    pub with_subject: bool,
    pub sensitive: usize,
}

/// A criterion, in the tests' own words.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rule {
    K(u32),
    Distinct(usize, u32),
    Entropy(usize, f64),
    Recursive(usize, u32, f64),
}

/// A class, counted naively.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counted {
    pub rows: usize,
    pub members: BTreeSet<u64>,
    /// Per sensitive field and value, who has it.
    pub values: Vec<BTreeMap<u8, BTreeSet<u64>>>,
}

/// What a recoding is worth, counted naively.
#[derive(Debug, Clone)]
pub struct Worth {
    pub satisfies: bool,
    pub suppressed: usize,
    pub losses: Vec<(Loss, Option<f64>)>,
}

impl Worth {
    /// The loss by a metric whose definition is written below.
    pub fn loss(&self, loss: Loss) -> Option<f64> {
        self.losses.iter().find(|(l, _)| *l == loss).and_then(|(_, value)| *value)
    }
}

pub type Classes = BTreeMap<Vec<String>, Counted>;

impl Rule {
    pub fn holds(self, class: &Counted) -> bool {
        let counts = |field: usize| class.values[field].values().map(BTreeSet::len).collect::<Vec<_>>();
        match self {
            Self::K(k) => class.members.len() >= k as usize,
            Self::Distinct(field, l) => counts(field).len() >= l as usize,
            Self::Entropy(field, l) => {
                let counts = counts(field);
                let total: usize = counts.iter().sum();
                let share = |c: &usize| *c as f64 / total as f64;
                let entropy: f64 = counts.iter().map(|c| -share(c) * share(c).log2()).sum();
                entropy >= l.log2() - 1e-9
            }
            Self::Recursive(field, l, c) => {
                let mut counts = counts(field);
                counts.sort_by_key(|c| std::cmp::Reverse(*c));
                let tail: usize = counts.iter().skip(l as usize - 1).sum();
                !counts.is_empty() && (counts[0] as f64) < c * tail as f64
            }
        }
    }

    fn criterion(self) -> Criterion {
        let diversity = |field, l: f64, variant: Diversity| Criterion::LDiversity { field, l, variant };
        match self {
            Self::K(k) => Criterion::KAnonymity(K(k)),
            Self::Distinct(field, l) => diversity(field, f64::from(l), Diversity::Distinct),
            Self::Entropy(field, l) => diversity(field, l, Diversity::Entropy),
            Self::Recursive(field, l, c) => diversity(field, f64::from(l), Diversity::Recursive { c }),
        }
    }
}

impl Table {
    pub fn policy(&self, rules: &[Rule], limit: f64, loss: Loss) -> Arc<Policy> {
        self.policy_with(rules, limit, loss, SuppressionAction::Drop)
    }

    pub fn policy_with(&self, rules: &[Rule], limit: f64, loss: Loss, action: SuppressionAction) -> Arc<Policy> {
        let names: Vec<String> = (0..self.attributes.len()).map(|i| format!("q{i}")).collect();
        let hierarchy = |attribute: &Attribute| Hierarchy::parse_csv(attribute.csv().as_bytes()).expect("it is valid");
        let quasi = names.iter().map(String::as_str).zip(self.attributes.iter().map(hierarchy)).collect();
        let sensitive: Vec<String> = (0..self.sensitive).map(|i| format!("s{i}")).collect();
        let mut others: Vec<(&str, Role)> = sensitive.iter().map(|n| (n.as_str(), Role::Sensitive)).collect();
        others.extend(self.with_subject.then_some(("who", Role::Subject)));
        let mut policy = fixture::policy(quasi, &others, 1);
        for (quasi, attribute) in policy.quasi.iter_mut().zip(&self.attributes) {
            (quasi.weight, quasi.min_level) = (attribute.weight, attribute.min_level);
            quasi.max_level = attribute.max_level;
        }
        let criteria = rules.iter().map(|rule| rule.criterion()).collect();
        Arc::new(Policy { criteria, suppression: SuppressionLimit(limit), action, loss, ..policy })
    }

    /// The record of a line, in slot order.
    pub fn record(&self, line: &Line) -> Record<'static> {
        let mut values: Vec<Value<'static>> = Vec::new();
        for (attribute, &leaf) in self.attributes.iter().zip(&line.leaves) {
            values.push(Value::Text(attribute.paths[leaf][0].clone().into()));
        }
        values.extend(line.sensitive.iter().take(self.sensitive).map(|v| Value::Text(format!("v{v}").into())));
        if self.with_subject {
            values.push(Value::Text(format!("person {}", line.subject).into()));
        }
        Record { values: values.into_iter().collect() }
    }

    pub fn encode(&self, policy: &Arc<Policy>) -> (Encoder, Rows) {
        fixture::encoded(policy, self.lines.iter().map(|line| self.record(line).values))
    }

    /// The engine's frequency sets over this table.
    pub fn sets(&self, policy: &Arc<Policy>) -> Arc<dyn FrequencySets> {
        let (encoder, rows) = self.encode(policy);
        let counting = Rules::new(policy).counting();
        counter::count(&rows, &counting, &encoder.dictionaries().quasi, usize::MAX).expect("narrow enough")
    }

    fn member(&self, i: usize) -> u64 {
        if self.with_subject { u64::from(self.lines[i].subject) } else { i as u64 }
    }

    /// The labels under which line i is published by a recoding.
    pub fn labels(&self, i: usize, recoding: &Recoding) -> Vec<String> {
        let levels = self.levels(i, recoding);
        let label = |a: usize| self.attributes[a].paths[self.lines[i].leaves[a]][usize::from(levels[a])].clone();
        (0..self.attributes.len()).map(label).collect()
    }

    fn levels(&self, i: usize, recoding: &Recoding) -> Vec<u8> {
        match recoding {
            Recoding::Node(node) => node.levels().to_vec(),
            // The codes of listed leaves are their places in the list.
            Recoding::Cuts(cuts) => {
                cuts.iter().zip(&self.lines[i].leaves).map(|(cut, &leaf)| cut.levels()[leaf]).collect()
            }
            Recoding::Local(_) => panic!("the levels of a line depend on the other lines"),
        }
    }

    /// Counts the lines `which` by their labels.
    pub fn count(&self, which: impl IntoIterator<Item = usize>, recoding: &Recoding) -> Classes {
        let mut classes = Classes::new();
        for i in which {
            let class = classes.entry(self.labels(i, recoding)).or_default();
            class.rows += 1;
            class.members.insert(self.member(i));
            class.values.resize(self.sensitive, BTreeMap::new());
            for (field, values) in class.values.iter_mut().enumerate() {
                values.entry(self.lines[i].sensitive[field]).or_default().insert(self.member(i));
            }
        }
        classes
    }

    pub fn classes(&self, recoding: &Recoding) -> Classes {
        self.count(0..self.lines.len(), recoding)
    }

    /// Judges a recoding from the rows alone.
    pub fn worth(&self, recoding: &Recoding, rules: &[Rule], limit: f64) -> Worth {
        let classes = self.classes(recoding);
        let fails = |class: &Counted| !rules.iter().all(|rule| rule.holds(class));
        let suppressed: usize = classes.values().filter(|c| fails(c)).map(|c| c.rows).sum();
        let published = classes.values().filter(|c| !fails(c)).count();
        let satisfies = published > 0 && suppressed as f64 <= limit * self.lines.len() as f64 + 1e-9;
        let k = rules.iter().filter_map(|r| if let Rule::K(k) = r { Some(*k) } else { None }).max().unwrap_or(1);
        let n = self.lines.len() as f64;
        let cells = |cell: &dyn Fn(usize, u8, &str) -> f64| {
            let total: f64 = self.attributes.iter().map(|a| a.weight).sum();
            let mut sum = 0.0;
            for i in 0..self.lines.len() {
                let labels = self.labels(i, recoding);
                let gone = fails(&classes[&labels]);
                for (a, level) in self.levels(i, recoding).into_iter().enumerate() {
                    sum += self.attributes[a].weight * if gone { 1.0 } else { cell(a, level, &labels[a]) };
                }
            }
            sum / (n * total)
        };
        let glm = |a: usize, level: u8, label: &str| {
            let attribute = &self.attributes[a];
            let leaves = attribute.paths.len();
            if leaves == 1 {
                // No leaf to tell apart; only the top says nothing at all.
                return if level == attribute.height() { 1.0 } else { 0.0 };
            }
            (attribute.leaves_below(level, label) - 1) as f64 / (leaves - 1) as f64
        };
        let precision = |a: usize, level: u8, _: &str| f64::from(level) / f64::from(self.attributes[a].height());
        let of = |loss: Loss| match loss {
            Loss::Glm => Some(cells(&glm)),
            Loss::Precision => Some(cells(&precision)),
            Loss::Dm => {
                let cost = |c: &Counted| c.rows as f64 * if fails(c) { n } else { c.rows as f64 };
                Some(classes.values().map(cost).sum::<f64>() / (n * n))
            }
            Loss::Aecs => Some(n / (published.max(1) as f64 * f64::from(k))),
            // A metric without a definition here is still held to its own bounds.
            #[allow(unreachable_patterns)]
            _ => None,
        };
        Worth { satisfies, suppressed, losses: Loss::ALL.into_iter().map(|loss| (loss, of(loss))).collect() }
    }

    /// Every node that the policy permits.
    pub fn nodes(&self) -> Vec<Node> {
        let mut nodes: Vec<Vec<u8>> = vec![Vec::new()];
        for attribute in &self.attributes {
            let levels = attribute.min_level..=attribute.max_level;
            nodes = nodes.iter().flat_map(|n| levels.clone().map(move |l| [n.as_slice(), &[l]].concat())).collect();
        }
        nodes.into_iter().map(Node::new).collect()
    }

    /// Every node of the full hierarchies.
    pub fn all_nodes(&self) -> Vec<Node> {
        let open = |a: &Attribute| Attribute { min_level: 0, max_level: a.height(), ..a.clone() };
        Self { attributes: self.attributes.iter().map(open).collect(), ..self.clone() }.nodes()
    }
}

/// A policy with a number of its own kept in every row, so that rows can be told apart in the output.
pub fn numbered(policy: &Policy) -> Policy {
    let fields = policy.schema.attributes().iter().map(|field| (&*field.name, field.roles[0]));
    let schema = Schema::new(fields.chain([("number", Role::Reviewed)]));
    Policy { schema, ..policy.clone() }
}

/// A hierarchy over `leaves` leaves: at each level every value gets a random parent.
fn attribute(leaves: usize, height: u8, dice: &[u8]) -> Attribute {
    let die = |i: usize| usize::from(dice[i % dice.len()]);
    let mut paths: Vec<Vec<String>> = (0..leaves).map(|leaf| vec![format!("leaf{leaf}")]).collect();
    let mut group: Vec<usize> = (0..leaves).collect();
    for level in 1..height {
        let parents = 1 + group.iter().max().map_or(0, |g| *g);
        for (leaf, path) in paths.iter_mut().enumerate() {
            group[leaf] = die(usize::from(level) * 7 + group[leaf]) % parents;
            path.push(format!("level{level}group{}", group[leaf]));
        }
    }
    paths.iter_mut().for_each(|path| path.push("*".into()));
    let min_level = u8::from(die(1) % 5 == 0 && height > 1);
    let max_level = if die(2) % 5 == 0 && height > 1 { height - 1 } else { height };
    Attribute { paths, min_level, max_level, weight: [1.0, 1.0, 2.0, 0.5][die(3) % 4] }
}

/// Tables of up to `rows` rows over `attributes` attributes. Half of them have few subjects with many records each, so
/// that most subjects are in several classes.
pub fn tables(attributes: std::ops::RangeInclusive<usize>, rows: usize) -> impl Strategy<Value = Table> {
    let attribute =
        (1usize..7, 1u8..4, prop::collection::vec(any::<u8>(), 29)).prop_map(|(l, h, d)| attribute(l, h, &d));
    let line = (prop::collection::vec(any::<u16>(), 48), [0u8..12, 0u8..12], any::<u16>());
    let shape = (prop::collection::vec(attribute, attributes), 0usize..=2, any::<bool>(), 1u16..20, 1u16..5);
    (shape, prop::collection::vec(line, 1..=rows)).prop_map(
        |((attributes, sensitive, with_subject, subjects, skew), lines)| {
            let line = |(dice, values, who): (Vec<u16>, [u8; 2], u16)| Line {
                leaves: attributes
                    .iter()
                    .zip(&dice)
                    // Skewed towards the first leaves, so that some classes are large.
                    .map(|(a, d)| (usize::from(d % 97) * usize::from(d / 97 % skew + 1) / 97).min(a.paths.len() - 1))
                    .collect(),
                sensitive: values.iter().map(|v| [0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 4][usize::from(*v)]).collect(),
                subject: who % subjects,
            };
            let lines = lines.into_iter().map(line).collect();
            Table { attributes, lines, with_subject, sensitive }
        },
    )
}

/// Mixes of criteria over `sensitive` sensitive fields.
pub fn rules(sensitive: usize) -> impl Strategy<Value = Vec<Rule>> {
    let field = move |dice: usize| dice % sensitive.max(1);
    let diversity = (0usize..3, 0usize..2, 0usize..3, 0usize..4).prop_map(move |(variant, f, l, c)| match variant {
        0 => Rule::Distinct(field(f), [1, 2, 3][l]),
        1 => Rule::Entropy(field(f), [1.5, 2.0, 2.5][l]),
        _ => Rule::Recursive(field(f), [1, 2, 3][l], [0.5, 1.0, 1.5, 3.0][c]),
    });
    let k = prop_oneof![Just(1u32), Just(2), Just(3), Just(5), Just(8)];
    (k, prop::collection::vec(diversity, 0..=2)).prop_map(move |(k, mut rules)| {
        if sensitive == 0 {
            rules.clear();
        }
        rules.insert(0, Rule::K(k));
        rules
    })
}

/// How many random instances a property is tried on: `usual`, or what VEILSTREAM_INSTANCES says.
pub fn instances(usual: u32) -> ProptestConfig {
    let asked = std::env::var("VEILSTREAM_INSTANCES").ok().and_then(|n| n.parse().ok());
    ProptestConfig::with_cases(asked.unwrap_or(usual))
}

/// A table, criteria for it and a suppression limit.
pub fn cases(
    attributes: std::ops::RangeInclusive<usize>,
    rows: usize,
) -> impl Strategy<Value = (Table, Vec<Rule>, f64)> {
    let limit = prop_oneof![Just(0.0), Just(0.01), Just(0.05), Just(0.2)];
    tables(attributes, rows).prop_flat_map(move |table| {
        let rules = rules(table.sensitive);
        (Just(table), rules, limit.clone())
    })
}

pub fn hold(max_hold: Duration) -> SuppressionAction {
    SuppressionAction::Hold { max_hold }
}

pub fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0)
}

/// A table of one attribute with one level above its leaves; lines are (leaf, sensitive value, subject).
pub fn flat(leaves: &[&str], lines: &[(usize, u8, u16)], with_subject: bool) -> Table {
    Table {
        attributes: vec![Attribute {
            paths: leaves.iter().map(|leaf| vec![(*leaf).to_string(), "*".to_string()]).collect(),
            min_level: 0,
            max_level: 1,
            weight: 1.0,
        }],
        lines: lines
            .iter()
            .map(|&(leaf, v, subject)| Line { leaves: vec![leaf], sensitive: vec![v], subject })
            .collect(),
        with_subject,
        sensitive: 1,
    }
}

/// What all manifests of a stream say together.
#[derive(Default)]
pub struct Books {
    pub records_in: u64,
    pub published: u64,
    left_out: u64,
    pub finished: BTreeSet<Position>,
}

impl Books {
    /// Every record is finished once, and the books balance.
    pub fn enter(&mut self, release: &Release, waiting: usize) {
        let p = &release.manifest().provenance;
        assert_eq!(p.records_rejected, release.rejected().len() as u64);
        assert_eq!(p.records_held, waiting as u64);
        self.records_in += p.records_in;
        self.published += p.records_published;
        self.left_out += p.records_suppressed + p.records_rejected;
        for (partition, spans) in release.lineage().finished.iter() {
            for offset in spans.iter().flat_map(|span| span.first.0..=span.last.0) {
                let position = Position { partition, offset: Offset(offset) };
                assert!(self.finished.insert(position), "{position} is finished twice");
            }
        }
        assert_eq!(self.finished.len() as u64, self.published + self.left_out);
        assert_eq!(self.records_in, self.finished.len() as u64 + waiting as u64);
    }
}

/// A window's frequency sets count just its rows.
pub fn counts_its_rows(window: &ClosedWindow) {
    let base = window.sets.base();
    let mut counted: BTreeMap<Vec<u32>, u32> = BTreeMap::new();
    for i in 0..window.rows.len() {
        *counted.entry(window.rows.quasi(i).to_vec()).or_default() += 1;
    }
    let codes = |class: usize| (0..base.node().levels().len()).map(|a| base.code(class, a)).collect();
    let sets: BTreeMap<Vec<u32>, u32> = (0..base.len()).map(|c| (codes(c), base.rows()[c])).collect();
    assert_eq!(sets, counted);
}
