//! Small tables with what the engine makes of them, and the criteria counted straight from their definitions.
#![allow(unreachable_pub, clippy::type_complexity)]

#[path = "../common/fixture.rs"]
pub mod fixture;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use veilstream::encode::Dictionaries;
use veilstream::frequency::counter;
use veilstream::frequency::store::FrequencySets;
use veilstream::gate::{self, Refusal, Release};
use veilstream::generalize::{GeneralizedBatch, RowRef};
use veilstream::model::batch::Rows;
use veilstream::model::confidential::{Field, Formula, Sentence};
use veilstream::model::hierarchy::Hierarchy;
use veilstream::model::lattice::Node;
use veilstream::model::policy::{Criterion, Distance, Diversity, Loss, Policy, SuppressionLimit};
use veilstream::model::recoding::Recoding;
use veilstream::model::record::Value;
use veilstream::model::schema::Role;
use veilstream::privacy::Rules;
use veilstream::render::render;

/// How many random instances a property is tried on: `usual`, or what VEILSTREAM_INSTANCES says.
pub fn instances(usual: u32) -> proptest::prelude::ProptestConfig {
    let asked = std::env::var("VEILSTREAM_INSTANCES").ok().and_then(|n| n.parse().ok());
    proptest::prelude::ProptestConfig::with_cases(asked.unwrap_or(usual))
}

/// Four leaves, two groups, one top.
pub const LEAVES: [[&str; 3]; 4] = [["a", "p", "*"], ["b", "p", "*"], ["c", "q", "*"], ["d", "q", "*"]];
/// The same shape for the sensitive values 0 to 3.
pub const VALUES: [[&str; 3]; 4] = [["0", "low", "*"], ["1", "low", "*"], ["2", "high", "*"], ["3", "high", "*"]];

#[derive(Debug, Clone)]
pub struct Line {
    pub quasi: [u8; 2],
    pub sensitive: [u8; 2],
    pub kept: u8,
    pub label: u8,
    pub subject: u8,
}

/// A policy over such lines.
pub fn policy(criteria: Vec<Criterion>, limit: f64, subjects: bool, loss: Loss) -> Policy {
    let mut others =
        vec![("s", Role::Sensitive), ("z", Role::Sensitive), ("w", Role::Insensitive), ("label", Role::Label)];
    others.extend(subjects.then_some(("who", Role::Subject)));
    let mut policy = fixture::policy(vec![("u", hierarchy(&LEAVES)), ("v", hierarchy(&LEAVES))], &others, 1);
    (policy.quasi[1].weight, policy.quasi[1].priority) = (2.5, 3);
    Policy { criteria, suppression: SuppressionLimit(limit), loss, ..policy }
}

pub fn hierarchy(paths: &[[&str; 3]]) -> Hierarchy {
    Hierarchy::parse_csv(paths.iter().map(|path| path.join(";") + "\n").collect::<String>().as_bytes()).unwrap()
}

/// A table on its way through the engine.
pub struct Engine {
    pub policy: Arc<Policy>,
    pub rules: Rules,
    pub rows: Arc<Rows>,
    pub dictionaries: Dictionaries,
    pub sets: Arc<dyn FrequencySets>,
}

impl Engine {
    pub fn of_lines(policy: Policy, lines: &[Line]) -> Self {
        let values = |line: &Line| {
            let text = |value: u8| Value::Text(value.to_string().into());
            let leaf = |value: u8| Value::Text(LEAVES[usize::from(value)][0].into());
            // One sensitive field as numbers, one as text: both kinds reach the criteria.
            let number = Value::Number(line.sensitive[0].to_string().into());
            let mut values = vec![leaf(line.quasi[0]), leaf(line.quasi[1]), number, text(line.sensitive[1])];
            values.extend([text(line.kept), text(line.label), text(line.subject)]);
            values
        };
        Self::new(policy, lines.iter().map(values))
    }

    /// From records in the order of the schema.
    pub fn new<'v>(policy: Policy, records: impl Iterator<Item = Vec<Value<'v>>>) -> Self {
        let policy = Arc::new(policy);
        let (encoder, rows) = fixture::encoded(&policy, records);
        let dictionaries = encoder.dictionaries();
        let rules = Rules::new(&policy).bind(&dictionaries.values());
        let sets = counter::count(&rows, &rules.counting(), &dictionaries.quasi, usize::MAX).unwrap();
        Self { policy, rules, rows: Arc::new(rows), dictionaries, sets }
    }

    /// The codes of row i at a node.
    pub fn class_of(&self, node: &Node, i: usize) -> Vec<u32> {
        let views = self.dictionaries.quasi.iter().zip(node.levels());
        views.zip(self.rows.quasi(i)).map(|((view, &level), &leaf)| view.between(0, level)[leaf as usize]).collect()
    }

    /// The rows of the published classes.
    pub fn published_rows(&self, node: &Node, published: &[bool]) -> Vec<usize> {
        let set = self.sets.set(node);
        let codes = |class: usize| (0..node.levels().len()).map(|a| set.code(class, a)).collect::<Vec<u32>>();
        let classes: BTreeSet<Vec<u32>> = (0..set.len()).filter(|&c| published[c]).map(codes).collect();
        (0..self.rows.len()).filter(|&i| classes.contains(&self.class_of(node, i))).collect()
    }

    /// These rows at a node, through the gate.
    pub fn release(&self, node: &Node, rows: &[usize]) -> Result<Release, Refusal> {
        let columns: Vec<_> =
            Recoding::from(node.clone()).columns(&self.dictionaries.quasi).into_iter().map(Arc::new).collect();
        let order = rows.iter().map(|&i| RowRef::Fresh(i as u32)).collect();
        let held = Arc::new(Rows::new(self.policy.quasi.len(), self.policy.schema.sensitive.len()));
        let mut batch = GeneralizedBatch::at(Arc::clone(&self.rows), held, order, &columns, &self.dictionaries);
        render(&mut batch, &columns, &self.policy);
        // The gate binds the rules itself.
        gate::verify(batch, &Rules::new(&self.policy))
    }
}

/// What one line looks like at a node, on some attributes.
pub fn seen(line: &Line, node: &Node, known: &[usize]) -> Vec<&'static str> {
    known.iter().map(|&a| LEAVES[usize::from(line.quasi[a])][usize::from(node.levels()[a])]).collect()
}

type Group<'l> = Vec<(u64, &'l Line)>;

/// The lines that look alike; each with the person it counts for.
pub fn groups<'l>(lines: &[(u64, &'l Line)], node: &Node, known: &[usize]) -> Vec<Group<'l>> {
    let mut groups: BTreeMap<Vec<&str>, Group<'l>> = BTreeMap::new();
    for &(who, line) in lines {
        groups.entry(seen(line, node, known)).or_default().push((who, line));
    }
    groups.into_values().collect()
}

fn people(group: &Group<'_>, mut which: impl FnMut(&Line) -> bool) -> f64 {
    group.iter().filter(|(_, line)| which(line)).map(|(who, _)| *who).collect::<BTreeSet<u64>>().len() as f64
}

/// The share of each value, by people who have it.
fn shares(group: &Group<'_>, field: usize) -> Vec<f64> {
    let counts: Vec<f64> = (0..4).map(|value| people(group, |l| l.sensitive[field] == value)).collect();
    let total: f64 = counts.iter().sum();
    counts.into_iter().map(|count| count / total).collect()
}

fn truth(formula: &Formula, line: &Line) -> bool {
    match formula {
        Formula::In(Field::Sensitive(f), values) => values.contains(&line.sensitive[*f].to_string()),
        Formula::In(Field::Kept(_), values) => values.contains(&line.kept.to_string()),
        Formula::Not(inner) => !truth(inner, line),
        Formula::All(inner) => inner.iter().all(|f| truth(f, line)),
        Formula::Any(inner) => inner.iter().any(|f| truth(f, line)),
    }
}

fn minds(sentence: &Sentence, line: &Line) -> bool {
    sentence.when.as_ref().is_none_or(|when| truth(when, line))
}

/// True if the published lines satisfy the criterion, by its definition.
pub fn satisfies(criterion: &Criterion, lines: &[(u64, &Line)], node: &Node, sentences: &[&Sentence]) -> bool {
    let all = lines.to_vec();
    let (criterion, known) = match criterion {
        Criterion::Over { known, criterion } => (&**criterion, known.as_slice()),
        plain => (plain, &[0, 1][..]),
    };
    let classes = groups(lines, node, known);
    match criterion {
        Criterion::KAnonymity(k) => classes.iter().all(|c| people(c, |_| true) >= f64::from(k.0)),
        Criterion::PSensitive { field, p } => {
            classes.iter().all(|c| shares(c, *field).iter().filter(|s| **s > 0.0).count() >= *p as usize)
        }
        Criterion::AlphaK { field, alpha, k } => {
            classes.iter().all(|c| confident(c, *field) <= *alpha + 1e-9 && people(c, |_| true) >= f64::from(k.0))
        }
        Criterion::Lkc { l, k, c, fields } => {
            let subsets: Vec<Vec<usize>> = vec![vec![], vec![0], vec![1], vec![0, 1]];
            subsets.iter().filter(|s| s.len() <= *l).all(|known| {
                groups(lines, node, known).iter().all(|class| {
                    people(class, |_| true) >= f64::from(k.0)
                        && fields.iter().all(|f| confident(class, *f) <= *c + 1e-9)
                })
            })
        }
        Criterion::TCloseness { field, t, distance } => {
            let release = shares(&all, *field);
            classes.iter().all(|class| earth_moved(&shares(class, *field), &release, distance) <= *t + 1e-9)
        }
        Criterion::Confidential(own) => classes.iter().all(|class| {
            class
                .iter()
                .all(|(_, u)| own.iter().filter(|s| minds(s, u)).all(|s| class.iter().any(|(_, v)| !truth(&s.says, v))))
        }),
        Criterion::MinSecurity(least) => security(&classes, &all, sentences) >= *least - 1e-9,
        Criterion::LDiversity { field, l, variant: Diversity::Entropy } => classes.iter().all(|class| {
            let bits: f64 = shares(class, *field).iter().filter(|s| **s > 0.0).map(|s| -s * s.ln()).sum();
            bits >= l.ln() - 1e-9
        }),
        Criterion::LDiversity { .. } | Criterion::Over { .. } => unreachable!(),
    }
}

fn confident(class: &Group<'_>, field: usize) -> f64 {
    let most = (0..4).map(|value| people(class, |l| l.sensitive[field] == value)).fold(0.0, f64::max);
    most / people(class, |_| true)
}

/// The cheapest way to turn one distribution into the other. Small enough to be found by moving along the ground
/// distance pair by pair, nearest first, which is optimal for the three distances used here only on a line and in a tree;
/// so it is solved as a flow by successive cheapest paths.
fn earth_moved(class: &[f64], release: &[f64], distance: &Distance) -> f64 {
    let present: Vec<usize> = (0..4).filter(|&v| class[v] + release[v] > 0.0).collect();
    let ground = |a: usize, b: usize| -> f64 {
        if a == b {
            return 0.0;
        }
        match distance {
            Distance::Equal => 1.0,
            Distance::Ordered { order } => {
                let rank = |value: usize| match order {
                    None => present.iter().position(|v| *v == value).unwrap(),
                    Some(order) => {
                        let mut listed = order.iter().filter(|v| present.iter().any(|p| p.to_string() == **v));
                        listed.position(|v| *v == value.to_string()).unwrap()
                    }
                };
                rank(a).abs_diff(rank(b)) as f64 / (present.len() - 1) as f64
            }
            Distance::Hierarchical(_) => {
                if VALUES[a][1] == VALUES[b][1] {
                    0.5
                } else {
                    1.0
                }
            }
        }
    };
    // min cost flow on 4 x 4: augment along the cheapest path in the residual graph (Bellman-Ford).
    let mut give: Vec<f64> = (0..4).map(|v| (class[v] - release[v]).max(0.0)).collect();
    let mut take: Vec<f64> = (0..4).map(|v| (release[v] - class[v]).max(0.0)).collect();
    let mut flow = [[0.0f64; 4]; 4];
    let mut cost = 0.0;
    loop {
        // Nodes 0..4 give, 4..8 take.
        let mut least = [f64::INFINITY; 8];
        let mut from = [usize::MAX; 8];
        (0..4).filter(|&v| give[v] > 1e-12).for_each(|v| least[v] = 0.0);
        for _ in 0..8 {
            for a in present.iter().copied() {
                for b in present.iter().copied() {
                    if least[a] + ground(a, b) < least[4 + b] - 1e-12 {
                        (least[4 + b], from[4 + b]) = (least[a] + ground(a, b), a);
                    }
                    if flow[a][b] > 1e-12 && least[4 + b] - ground(a, b) < least[a] - 1e-12 {
                        (least[a], from[a]) = (least[4 + b] - ground(a, b), 4 + b);
                    }
                }
            }
        }
        let goals = (0..4).filter(|&v| take[v] > 1e-12 && least[4 + v].is_finite());
        let Some(goal) = goals.min_by(|a, b| least[4 + a].total_cmp(&least[4 + b])) else { return cost };
        let mut path = vec![4 + goal];
        while from[path[path.len() - 1]] != usize::MAX {
            path.push(from[path[path.len() - 1]]);
        }
        path.reverse();
        let mut amount = give[path[0]].min(take[goal]);
        for step in path.windows(2).filter(|step| step[0] >= 4) {
            amount = amount.min(flow[step[1]][step[0] - 4]);
        }
        for step in path.windows(2) {
            if step[0] < 4 { flow[step[0]][step[1] - 4] += amount } else { flow[step[1]][step[0] - 4] -= amount }
        }
        give[path[0]] -= amount;
        take[goal] -= amount;
        cost += amount * least[4 + goal];
    }
}

/// Which sentences are true of a record, and which are confidential for it.
type Kind = (Vec<bool>, Vec<bool>);

/// Mean security. With a subject, a person counts once per class and kind of record.
fn security(classes: &[Group<'_>], all: &Group<'_>, sentences: &[&Sentence]) -> f64 {
    let kind = |line: &Line| -> Kind {
        (sentences.iter().map(|s| truth(&s.says, line)).collect(), sentences.iter().map(|s| minds(s, line)).collect())
    };
    let kinds =
        |group: &Group<'_>| -> BTreeSet<(u64, Kind)> { group.iter().map(|(who, line)| (*who, kind(line))).collect() };
    let share = |kinds: &BTreeSet<(u64, Kind)>, s: usize| {
        kinds.iter().filter(|(_, (holds, _))| holds[s]).count() as f64 / kinds.len() as f64
    };
    let release = kinds(all);
    let (mut sum, mut people_in_all) = (0.0, 0.0);
    for class in classes {
        let own = kinds(class);
        let mut risks = 0.0;
        for (_, (_, minded)) in &own {
            let damage: f64 = (0..sentences.len()).filter(|&s| minded[s]).map(|s| sentences[s].damage).sum();
            for s in (0..sentences.len()).filter(|&s| minded[s]) {
                let (before, after) = (sentences[s].prior.unwrap_or(share(&release, s)), share(&own, s));
                if before > 0.0 && before < 1.0 && after > 0.0 {
                    risks += sentences[s].damage / damage * ((before.ln() - after.ln()) / before.ln()).max(0.0);
                }
            }
        }
        let size = people(class, |_| true);
        sum += size * (1.0 - risks / own.len() as f64);
        people_in_all += size;
    }
    sum / people_in_all
}
