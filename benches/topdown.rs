//! `cargo bench --bench topdown`: user-oriented top-down (Kiyomoto, Tanaka 2010) against plain top-down from the fully
//! generalized node, and subtree recoding against the full-domain optimum; paper and ours side by side.
//!
//! The Adult data is read from `$VEILSTREAM_DATA`, or `../shared/data` beside the repository; without it that part is
//! skipped, and says so. The order table is made here: 500,000 records in the shape of the paper's Lands End table.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use veilstream::encode::{Encoded, Encoder};
use veilstream::frequency::counter;
use veilstream::frequency::store::FrequencySets;
use veilstream::model::batch::Rows;
use veilstream::model::event::{Millis, Position};
use veilstream::model::hierarchy::{DateSpec, DateUnit, Decimal, Hierarchy, IntervalSpec, PrefixSpec};
use veilstream::model::lattice::Node;
use veilstream::model::policy::{
    Criterion, Fallback, K, Loss, Policy, QuasiIdentifier, RecodingKind, Render, SuppressionAction, SuppressionLimit,
};
use veilstream::model::record::{Record, Value};
use veilstream::model::schema::{Role, Schema};
use veilstream::privacy::Rules;
use veilstream::search::aim::Scores;
use veilstream::search::evaluator::Evaluator;
use veilstream::search::exact::optimal::Optimal;
use veilstream::search::greedy::subtree::SubtreeBottomUp;
use veilstream::search::greedy::top_down::{Extension, TopDown};
use veilstream::search::{Budget, Search};

fn main() {
    let adult = folder();
    let mut met = true;
    println!("top-down: checks to the best score; the paper's figures are of its own hierarchies and priorities");
    println!("paper: Adult (32,561 records, 14 attributes, k=2) 52 against 598 of plain top-down;");
    println!("       Lands End (500,000 records, k=50) 13 against 540");
    println!("ours:  plain = from the top, each satisfying child of better score in turn, all children counted;");
    println!("       exhaustive = from the top through every satisfying node, so its score is the best there is");
    println!(
        "judged: the best score in every row; a tenth of the checks of `exhaustive` on adult at k=2 and on orders, the"
    );
    println!(
        "       paper's settings. `plain` needs few checks on lattices this low, and a tenth of those is not reached\n"
    );
    println!("{TOP_DOWN_HEADER}");
    match &adult {
        Some(folder) => {
            let mut table = adult_table(folder);
            for suppression in [0.0, 0.01, 0.05] {
                for k in [2, 5, 10, 50] {
                    table.ask(k, suppression);
                    met &= top_down("adult", &table);
                }
            }
        }
        None => println!("adult: skipped, no data; set VEILSTREAM_DATA to the folder that holds adult/"),
    }
    if std::env::args().any(|argument| argument == "adult") {
        return;
    }
    let mut orders = orders(500_000);
    for suppression in [0.0, 0.01, 0.05] {
        orders.ask(50, suppression);
        met &= top_down("orders", &orders);
    }
    println!("\nsubtree-bottom-up: GLM against the full-domain optimum");
    println!("{SUBTREE_HEADER}");
    if let Some(folder) = &adult {
        let mut table = adult_table(folder);
        for suppression in [0.0, 0.01, 0.05] {
            for k in [2, 5, 10, 20, 50, 100] {
                table.ask(k, suppression);
                met &= subtree(&table);
            }
        }
    } else {
        println!("adult: skipped, no data; set VEILSTREAM_DATA to the folder that holds adult/");
    }
    println!("\n{}", if met { "every judged figure is met" } else { "at least one judged figure is missed" });
    std::process::exit(i32::from(!met));
}

const TOP_DOWN_HEADER: &str = "table    k  limit |   plain: score checks | exhaustive: score checks |   basic: score checks |  \
     extended: score checks  | share of exhaustive, of plain";

/// Counts one policy by all four; true if the extension has the best score at a tenth of the checks.
fn top_down(name: &str, table: &Table) -> bool {
    let (plain_score, plain_checks) = table.with(plain);
    let (all_score, all_checks) = table.with(exhaustive);
    let run = |extended: bool| {
        table.with(|evaluator| {
            let extension = if extended { Extension::Complete } else { Extension::None };
            let search = TopDown { extension, margin: 0 };
            let lattice = evaluator.policy().lattice();
            let outcome = search.run(&lattice, evaluator, &Budget::unlimited(), &mut ChaCha8Rng::seed_from_u64(1));
            let node = outcome.best.and_then(|best| best.recoding.node());
            (node.map_or(0, |node| Scores::new(evaluator).of(&node)), evaluator.checks())
        })
    };
    let (basic_score, basic_checks) = run(false);
    let (best_score, best_checks) = run(true);
    // The paper's own settings; the other rows are for orientation, but have to have the best score too.
    let asked = matches!((name, table.policy.k().0), ("adult", 2) | ("orders", 50));
    let met = best_score == all_score && (!asked || best_checks * 10 <= all_checks);
    println!(
        "{name:7} {:3} {:5.0}% | {plain_score:14} {plain_checks:6} | {all_score:17} {all_checks:6} | {basic_score:13} {basic_checks:6} | \
         {best_score:16} {best_checks:6}  | {:.3} {:.2}{}",
        table.policy.k().0,
        table.policy.suppression.0 * 100.0,
        best_checks as f64 / all_checks as f64,
        best_checks as f64 / plain_checks as f64,
        if met { "" } else { "  missed" }
    );
    met
}

/// Top-down without pre-computation: from the fully generalized node, the best satisfying child in turn.
fn plain(evaluator: &Evaluator<'_>) -> (u64, u64) {
    let lattice = evaluator.policy().lattice();
    let scores = Scores::new(evaluator);
    let mut node = lattice.top().clone();
    evaluator.evaluate(&node);
    loop {
        let children: Vec<Node> = lattice.children(&node).collect();
        let satisfying = children.into_iter().filter(|child| evaluator.evaluate(child).satisfies);
        let better = satisfying.filter(|child| scores.of(child) > scores.of(&node));
        match better.max_by_key(|child| scores.of(child)) {
            Some(child) => node = child,
            None => return (scores.of(&node), evaluator.checks()),
        }
    }
}

/// From the fully generalized node through every satisfying one; what fails is not gone below.
fn exhaustive(evaluator: &Evaluator<'_>) -> (u64, u64) {
    let lattice = evaluator.policy().lattice();
    let scores = Scores::new(evaluator);
    let mut best = 0;
    let mut queue = vec![lattice.top().clone()];
    let mut seen: HashSet<Node> = queue.iter().cloned().collect();
    while let Some(node) = queue.pop() {
        if evaluator.evaluate(&node).satisfies {
            best = best.max(scores.of(&node));
            queue.extend(lattice.children(&node).filter(|child| seen.insert(child.clone())));
        }
    }
    (best, evaluator.checks())
}

const SUBTREE_HEADER: &str =
    "  k  limit | optimum glm | paper: glm  factor   time | refined: glm  factor   time checks";

/// More than this above the full-domain optimum is a failure.
const FACTOR: f64 = 1.0;

fn subtree(table: &Table) -> bool {
    let run = |search: &dyn Search| {
        table.with(|evaluator| {
            let lattice = evaluator.policy().lattice();
            let started = Instant::now();
            let outcome = search.run(&lattice, evaluator, &Budget::unlimited(), &mut ChaCha8Rng::seed_from_u64(1));
            let loss = outcome.best.map_or(f64::INFINITY, |best| best.evaluation.loss);
            (loss, started.elapsed().as_secs_f64() * 1e3, evaluator.checks())
        })
    };
    let (optimum, _, _) = run(&Optimal);
    let (paper, paper_ms, _) = run(&SubtreeBottomUp { from: None, refine: false });
    let (refined, refined_ms, checks) = run(&SubtreeBottomUp::default());
    let met = refined <= optimum * FACTOR;
    println!(
        "{:3} {:5.0}% | {optimum:11.4} | {paper:10.4} {:7.2} {paper_ms:5.0}ms | {refined:12.4} {:7.2} {refined_ms:5.0}ms {checks:6}{}",
        table.policy.k().0,
        table.policy.suppression.0 * 100.0,
        paper / optimum,
        refined / optimum,
        if met { "" } else { "  missed" }
    );
    met
}

/// A policy and the counted rows.
struct Table {
    policy: Policy,
    rules: Rules,
    sets: Box<dyn Fn() -> Arc<dyn FrequencySets>>,
}

impl Table {
    fn new<'a>(quasi: Vec<(&str, Hierarchy, u32)>, rows: impl Iterator<Item = Vec<&'a str>>) -> Self {
        let schema = Schema::new(quasi.iter().map(|(name, _, _)| (*name, Role::Quasi)));
        let quasi = quasi.into_iter().map(|(name, hierarchy, priority)| QuasiIdentifier {
            name: name.into(),
            weight: 1.0,
            min_level: 0,
            max_level: hierarchy.height(),
            priority,
            render: Render::Label,
            hierarchy: Arc::new(hierarchy),
        });
        let policy = Policy {
            schema,
            quasi: quasi.collect(),
            criteria: Vec::new(),
            suppression: SuppressionLimit(0.0),
            action: SuppressionAction::Drop,
            recoding: RecodingKind::FullDomain,
            loss: Loss::Glm,
            unknown_value: Fallback::Reject,
            missing_value: Fallback::Reject,
            null_value: Fallback::Reject,
            sequential: None,
            fingerprint: String::new(),
        };
        let mut encoder = Encoder::new(Arc::new(policy.clone()));
        let mut counted = Rows::new(policy.quasi.len(), 0);
        for (offset, cells) in rows.enumerate() {
            let mut record = Record::new(cells.len());
            for (value, cell) in record.values.iter_mut().zip(cells) {
                *value = Value::Text(cell.into());
            }
            assert_eq!(encoder.encode(&record, None), Encoded::Row, "row {offset}");
            counted.push(Position::new(0, offset as i64), Millis(0), encoder.row());
        }
        let rules = Rules::new(&policy);
        let (sizes, counting, domains) = (encoder.sizes(), rules.counting(), encoder.dictionaries().quasi);
        let fresh = move || {
            let mut counter = counter::counter(&sizes, counting.clone()).expect("the keys fit");
            counter.add(&counted, 0..counted.len());
            counter.store(&domains)
        };
        Self { policy, rules, sets: Box::new(fresh) }
    }

    fn ask(&mut self, k: u32, suppression: f64) {
        self.policy.criteria = vec![Criterion::KAnonymity(K(k))];
        self.policy.suppression = SuppressionLimit(suppression);
        self.rules = Rules::new(&self.policy);
    }

    /// Each search starts with nothing counted.
    fn with<T>(&self, search: impl FnOnce(&Evaluator<'_>) -> T) -> T {
        search(&Evaluator::new(&self.policy, &self.rules, (self.sets)()))
    }
}

fn folder() -> Option<PathBuf> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    let folder = std::env::var_os("VEILSTREAM_DATA").map_or_else(beside, PathBuf::from);
    Some(folder.join("adult")).filter(|adult| adult.join("adult.csv").is_file())
}

/// All nine columns of Adult; who looks at it cares for age and education most.
fn adult_table(folder: &std::path::Path) -> Table {
    let text = std::fs::read_to_string(folder.join("adult.csv")).expect("the file can be read");
    let mut lines = text.lines();
    let header: Vec<&str> = lines.next().unwrap_or_default().split(';').collect();
    let quasi = header.iter().map(|&name| {
        let bytes = std::fs::read(folder.join(format!("{name}.csv"))).expect("every column has a hierarchy");
        let priority = match name {
            "age" => 3,
            "education" => 5,
            "occupation" | "workclass" => 4,
            _ => 2,
        };
        (name, Hierarchy::parse_csv(&bytes).expect("it is one"), priority)
    });
    Table::new(quasi.collect(), lines.map(|line| line.split(';').collect()))
}

/// Orders in the shape of Lands End: zip, date, gender, style, price, quantity, cost, shipment.
fn orders(records: usize) -> Table {
    let intervals = |widths: &[i64], max: i64| {
        let widths: Vec<Decimal> = widths.iter().copied().map(Decimal::from).collect();
        Hierarchy::intervals(IntervalSpec::new(widths, 0.into(), max.into())).expect("they nest")
    };
    let list = |text: String| Hierarchy::parse_csv(text.as_bytes()).expect("it is one");
    let units = [DateUnit::Day, DateUnit::Month, DateUnit::Quarter, DateUnit::Year];
    let styles: String = (0..1500).map(|s| format!("s{s:04};line{};group{};*\n", s / 30, s / 300)).collect();
    let quasi = vec![
        ("zip", Hierarchy::prefix(PrefixSpec::new(5)).expect("it is one"), 4),
        ("date", Hierarchy::dates(DateSpec::new(units)).expect("they nest"), 3),
        ("gender", list("f;*\nm;*\n".into()), 8),
        ("style", list(styles), 2),
        ("price", intervals(&[5, 20, 100], 400), 2),
        ("quantity", intervals(&[2, 10], 50), 1),
        ("cost", intervals(&[10, 50, 250], 1500), 1),
        ("shipment", list("post;*\nexpress;*\n".into()), 1),
    ];
    let mut rng = ChaCha8Rng::seed_from_u64(500_000);
    // Few zips and styles have most of the orders, as everywhere.
    let skewed = |rng: &mut ChaCha8Rng, below: f64| (rng.random::<f64>().powi(3) * below) as u32;
    let rows: Vec<String> = (0..records)
        .map(|_| {
            let zip = skewed(&mut rng, 31_000.0) * 3;
            let (month, day) = (rng.random_range(1..=12), rng.random_range(1..=28));
            let (style, quantity) = (skewed(&mut rng, 1500.0), 1 + skewed(&mut rng, 12.0));
            let price = 5 + (style * 7 + rng.random_range(0..20)) % 340;
            format!(
                "{zip:05};2003-{month:02}-{day:02};{};s{style:04};{price};{quantity};{};{}",
                if rng.random_bool(0.7) { "f" } else { "m" },
                (price * quantity).min(1500),
                if rng.next_u32() % 8 == 0 { "express" } else { "post" },
            )
        })
        .collect();
    Table::new(quasi, rows.iter().map(|line| line.split(';').collect()))
}
