//! Small tables with what the engine makes of them, and whether they satisfy a criterion, counted without the engine.
#![allow(unreachable_pub, clippy::type_complexity)]

#[path = "../common/fixture.rs"]
pub mod fixture;
#[path = "../common/naive.rs"]
mod naive;

use std::collections::BTreeSet;
use std::sync::Arc;

use naive::Member;
use veilstream::encode::Dictionaries;
use veilstream::frequency::counter;
use veilstream::frequency::store::FrequencySets;
use veilstream::gate::{self, Refusal, Release};
use veilstream::generalize::{GeneralizedBatch, RowRef};
use veilstream::model::batch::Rows;
use veilstream::model::confidential::Sentence;
use veilstream::model::hierarchy::Hierarchy;
use veilstream::model::lattice::Node;
use veilstream::model::policy::{Criterion, Loss, Policy, SuppressionLimit};
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

/// True if the published lines satisfy the criterion, by its definition; each comes with the person it counts for.
pub fn satisfies(criterion: &Criterion, lines: &[(u64, &Line)], node: &Node, sentences: &[&Sentence]) -> bool {
    let member = |&(who, line): &(u64, &Line)| Member {
        labels: seen(line, node, &[0, 1]).into_iter().map(str::to_owned).collect(),
        who,
        sensitive: line.sensitive.to_vec(),
        kept: Some(line.kept),
    };
    naive::satisfies(criterion, &lines.iter().map(member).collect::<Vec<_>>(), sentences)
}
