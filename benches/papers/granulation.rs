//! Wang, Liao, Hsu 2007: the table of eleven people, its classes, which nodes are secure, and its microaggregation.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use veilstream::model::confidential::{Field, Formula, Sentence};
use veilstream::model::hierarchy::{DateSpec, DateUnit, Decimal, Hierarchy, IntervalSpec, PrefixSpec};
use veilstream::model::lattice::Node;
use veilstream::model::policy::{Criterion, Loss, Policy};
use veilstream::model::schema::Role;
use veilstream::search::evaluator::Evaluator;
use veilstream::search::evolutionary::granulation_ga::NodeBits;
use veilstream::search::{Algorithm, Budget};

use crate::data::{Effort, Sheet, Table, policy, texts, verdict};

const PEOPLE: [&str; 11] = [
    "1956-09-24 24126 161 400K 1",
    "1956-09-06 24129 167 300K 1",
    "1956-09-30 24133 163 300K 1",
    "1956-03-23 10427 160 300K 0",
    "1956-03-18 10431 165 100K 2",
    "1956-03-05 10466 168 100K 2",
    "1955-04-20 26015 175 400K 2",
    "1955-04-18 26032 170 300K 1",
    "1955-04-09 26617 173 100K 0",
    "1955-04-01 26628 171 400K 0",
    "1955-04-23 26328 176 400K 0",
];

/// (mm/yy, d1d2***, width 10).
const PAPER: [u8; 3] = [1, 3, 2];

fn eleven(sentences: Vec<Sentence>) -> Table {
    let units = [DateUnit::Day, DateUnit::Month, DateUnit::Year];
    let height = IntervalSpec::new([5, 10, 20].map(Decimal::from), 100.into(), 220.into());
    let quasi = vec![
        ("born", Hierarchy::dates(DateSpec::new(units)).expect("they nest")),
        ("zip", Hierarchy::prefix(PrefixSpec::new(5)).expect("it is one")),
        ("height", Hierarchy::intervals(height).expect("they nest")),
    ];
    let others = [("income", Role::Sensitive), ("health", Role::Sensitive)];
    let own = policy(quasi, &others, 1, 0.0, Loss::Ql);
    let own = Policy { criteria: vec![Criterion::Confidential(sentences)], ..own };
    let rows: Vec<Vec<String>> = PEOPLE.iter().map(|line| line.split(' ').map(str::to_owned).collect()).collect();
    Table::new(own, &[], &["born", "zip", "height", "income", "health"], texts(&rows))
}

fn health(value: &str) -> Formula {
    Formula::In(Field::Sensitive(1), vec![value.to_owned()])
}

/// The figures of the paper's running example.
pub fn sheets(_: &Effort) -> Vec<Sheet> {
    let sentence = |says: Formula, when| Sentence { name: "s".into(), says, when, damage: 1.0, prior: None };
    // Only u1 has this income and this health.
    let is_u1 = Formula::All(vec![Formula::In(Field::Sensitive(0), vec!["400K".into()]), health("1")]);
    let all = eleven(vec![sentence(health("2"), None)]);
    let of_u1 = eleven(vec![sentence(health("1"), Some(is_u1))]);
    let node = Node::new(PAPER);
    let mut sheet = Sheet::new(
        "Granulation (Wang, Liao, Hsu 2007), eleven people at (mm/yy, d1d2***, width 10)",
        &["figure", "paper", "ours", ""],
    );
    let mut compare = |what: &str, paper: &str, ours: String| {
        let reached = Some(ours == paper);
        sheet.row([what.to_owned(), paper.to_owned(), ours, verdict(reached)], reached);
    };
    let (_, classes) = evaluator(&all).inspect(&node);
    let mut sizes: Vec<u32> = classes.sizes().to_vec();
    sizes.sort_unstable();
    compare("sizes of the classes", "[3, 3, 5]", format!("{sizes:?}"));
    let secure = |table: &Table| evaluator(table).satisfies(&node).to_string();
    compare("secure if health = 2 is confidential for all", "true", secure(&all));
    compare("secure if health = 1 is for u1", "false", secure(&of_u1));
    let twin = format!("{:?}", minimal(&of_u1, Algorithm::Exhaustive));
    let found = format!("{:?}", minimal(&of_u1, Algorithm::Granulation));
    compare("minimal secure nodes of u1, beside every node counted", &twin, found);
    let code = NodeBits::new(&all.policy.lattice());
    let bits = |indices: [u32; 3]| -> String {
        let node = code.decode(&code.bits(indices));
        code.encode(&node).into_iter().map(|bit| if bit { '1' } else { '0' }).collect()
    };
    compare("the node as a code", "01011010", bits(PAPER.map(u32::from)));
    compare("offspring (1,0,5), repaired", "01000000", bits([1, 0, 5]));
    compare("offspring (0,7,2), repaired", "00001010", bits([0, 7, 2]));
    vec![sheet.note("microaggregation of the same people by mean and median: `tests/eleven_people.rs`")]
}

fn evaluator(table: &Table) -> Evaluator<'_> {
    Evaluator::new(&table.policy, &table.rules, table.sets.clone())
}

/// The minimal secure nodes that a search finds.
fn minimal(table: &Table, algorithm: Algorithm) -> Vec<Node> {
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let outcome = algorithm.search().run(&table.policy.lattice(), &evaluator(table), &Budget::unlimited(), rng);
    let mut found = outcome.minimal;
    found.sort_unstable_by(|a, b| a.levels().cmp(b.levels()));
    found
}
