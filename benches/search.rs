//! `cargo bench --bench search`: how fast the exact searches are from rows in memory, and how that grows.
//!
//! Processor time, the shortest of several runs. The published figures of ARX 3.9.2 (warm, processor time, machine of the same kind)
//! stand beside ours. Every figure is also a ratio to a fixed reference kernel timed in the same run; what has moved by more than
//! [`MARGIN`] since `benches/search-baseline.json` is said at the end, and `-- --save` keeps the ratios of this run instead.
//! The Adult data is read from `$VEILSTREAM_DATA`, or `../shared/data` beside the repository; what needs it is skipped, and
//! says so, where it is absent. Arguments choose parts: `adult`, `ten`, `warm`, `criteria`, `growth`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "engine/baseline.rs"]
mod baseline;

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baseline::{Figure, reference, timed};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use veilstream::encode::{Dictionaries, Encoded, Encoder};
use veilstream::frequency::counter;
use veilstream::frequency::store::FrequencySets;
use veilstream::model::batch::{Row, Rows};
use veilstream::model::event::{Millis, Position};
use veilstream::model::hierarchy::{Hierarchy, PrefixSpec};
use veilstream::model::policy::{
    Criterion, Distance, Diversity, Fallback, K, Loss, Policy, QuasiIdentifier, RecodingKind, Render,
    SuppressionAction, SuppressionLimit,
};
use veilstream::model::record::{Record, Value};
use veilstream::model::schema::{Role, Schema};
use veilstream::privacy::Rules;
use veilstream::search::evaluator::{Evaluator, Trail};
use veilstream::search::{Algorithm, Budget, Outcome, StopReason};

/// As the service has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What has moved by more is said. Smaller: neighbours on the machine are reported as changes. Larger: changes hide.
const MARGIN: f64 = 0.5;

fn main() {
    let save = std::env::args().any(|a| a == "--save");
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let asked = |part: &str| wanted.is_empty() || wanted.iter().any(|w| w == part);
    let mut figures = Vec::new();
    match folder() {
        Some(folder) => {
            if asked("adult") {
                adult(&folder, &mut figures);
            }
            if asked("ten") {
                ten_times(&folder, &mut figures);
            }
            if asked("warm") {
                warm(&folder);
            }
            if asked("criteria") {
                criteria(&folder, &mut figures);
            }
        }
        None => println!("adult: skipped, no data; set VEILSTREAM_DATA to the folder that holds adult/\n"),
    }
    if asked("growth") {
        growth();
    }
    // In milliseconds, for as many records as Adult has.
    let kernel = reference() * 30_162.0 / 1e6;
    figures.iter_mut().for_each(|figure| figure.ratio /= kernel);
    println!("reference kernel {}", ms(kernel));
    figures.iter().for_each(|figure| println!("  {:<32} {:>8.3} x reference", figure.name, figure.ratio));
    baseline::compare("search-baseline.json", MARGIN, &figures, save);
}

/// 30,162 records, 9 quasi-identifiers, 12,960 nodes, k = 5, glm.
fn adult(folder: &std::path::Path, figures: &mut Vec<Figure>) {
    let table = Table::adult(folder, &[]);
    println!("adult: {}", table.describe());
    println!("  from rows in memory, encoding excluded; `count` is the base set, `search` the rest");
    println!("  limit  algorithm  checks     count    search     total        ARX  times faster  target");
    let arx = [(0.0, 35.0, 40.0), (0.01, 783.0, 100.0), (0.05, 947.0, 100.0), (0.1, 1062.0, 100.0)];
    for (limit, arx, target) in arx {
        let policy = table.policy_with(limit, vec![Criterion::KAnonymity(K(5))]);
        let optimal = table.time(&policy, Algorithm::Optimal, 40);
        optimal.print(limit, Some((arx, target)));
        let bottom_up = table.time(&policy, Algorithm::BottomUp, 4);
        bottom_up.print(limit, None);
        figures.extend([optimal.figure("adult", limit), bottom_up.figure("adult", limit)]);
        println!("         bottom-up / optimal: {:.1}", bottom_up.total() / optimal.total());
    }
    println!();
}

/// A window of 100,000 records of which a share is replaced: searched again with what the last search left, against
/// counted and searched afresh.
fn warm(folder: &std::path::Path) {
    const WINDOW: usize = 100_000;
    const SLIDES: u64 = 16;
    const COLD: usize = 9;
    let plain = Table::adult(folder, &[]).redrawn(10);
    let sensitive = Table::adult(folder, &["occupation"]).redrawn(10);
    // Everybody of the table ten times over, and so three times in a window, mostly in different tuples.
    let people = Table::adult_of(folder, &["occupation"], true).redrawn(10);
    let diversity = Criterion::LDiversity { field: 0, l: 3.0, variant: Diversity::Distinct };
    let cases = [
        (&plain, None, 0.01, 0.01, Some(10.0)),
        (&plain, None, 0.01, 0.001, Some(30.0)),
        (&plain, None, 0.05, 0.01, Some(10.0)),
        (&plain, None, 0.05, 0.001, Some(30.0)),
        (&sensitive, Some(diversity.clone()), 0.05, 0.01, Some(10.0)),
        (&sensitive, Some(diversity.clone()), 0.05, 0.001, Some(30.0)),
        (&people, None, 0.05, 0.01, Some(10.0)),
        (&people, None, 0.05, 0.001, Some(30.0)),
        (&people, Some(diversity.clone()), 0.05, 0.01, Some(10.0)),
        (&people, Some(diversity), 0.05, 0.001, Some(30.0)),
    ];
    println!("warm: a window of {WINDOW} records, k = 5; each change is counted, searched and judged; medians");
    let both = [Algorithm::Optimal, Algorithm::BottomUp];
    let cases = cases.iter().flat_map(|case| both.map(|algorithm| (algorithm, case.clone())));
    for (algorithm, (table, criterion, limit, share, target)) in cases {
        let mut with = String::from(if criterion.is_some() { " with distinct 3-diversity" } else { "" });
        if table.policy.schema.subject.is_some() {
            with.push_str(" of people");
        }
        let policy = table.policy_with(limit, [Criterion::KAnonymity(K(5))].into_iter().chain(criterion).collect());
        let rules = Rules::new(&policy).bind(&table.dictionaries.values());
        let trail = Arc::new(Trail::default());
        let search = |sets: Arc<dyn FrequencySets>, trail: Option<&Arc<Trail>>| {
            let mut evaluator = Evaluator::new(&policy, &rules, sets);
            if let Some(trail) = trail {
                evaluator = evaluator.warm(Arc::clone(trail));
            }
            let mut rng = ChaCha8Rng::seed_from_u64(1);
            let outcome = algorithm.search().run(&policy.lattice(), &evaluator, &Budget::unlimited(), &mut rng);
            (outcome.best.expect("satisfiable").recoding, evaluator.checks())
        };
        let counter = || counter::counter(&table.sizes, rules.counting()).expect("the keys fit");
        let (mut first, slide) = (0, (WINDOW as f64 * share) as usize);
        let mut rolling = counter();
        rolling.add(&table.rows, 0..WINDOW);
        search(rolling.store(&table.dictionaries.quasi), Some(&trail));
        let (mut warm, mut answers, mut checks) = (Vec::new(), Vec::new(), 0);
        for _ in 0..=SLIDES {
            warm.push(timed_once(|| {
                rolling.retract(&table.rows, &(first..first + slide).collect::<Vec<_>>());
                rolling.add(&table.rows, first + WINDOW..first + WINDOW + slide);
                let (answer, counted) = search(rolling.store(&table.dictionaries.quasi), Some(&trail));
                answers.push(answer);
                checks += counted;
            }));
            first += slide;
        }
        // The first makes tables of the sets that the others patch.
        let (once, warm) = (warm[0], median(warm.split_off(1)));
        let mut counted = 0;
        let cold = (0..COLD).map(|_| {
            timed_once(|| {
                let mut counter = counter();
                counter.add(&table.rows, first..first + WINDOW);
                let (answer, checks) = search(counter.store(&table.dictionaries.quasi), None);
                assert_eq!(answers.last(), Some(&answer), "warm and cold agree");
                counted = checks;
            })
        });
        let cold = median(cold.collect());
        let (name, limit, share) = (algorithm.as_str(), limit * 100.0, share * 100.0);
        print!("  {name:<9} {limit:>3.0}%, change {share:>4.1}%{with}: cold {counted} checks, ");
        let times = cold / warm;
        let met = target.map_or(String::new(), |target| {
            format!(", 1/{target:.0} {}", if times >= target { "met" } else { "missed" })
        });
        let (checks, slow, quick) = (checks / (SLIDES + 1), ms(cold), ms(warm));
        println!("{slow}; warm {checks} checks, {} at first, then {quick}: 1/{times:.1}{met}", ms(once));
    }
    println!();
}

/// Ten times the rows, a tenth of the cells redrawn from their columns.
fn ten_times(folder: &std::path::Path, figures: &mut Vec<Figure>) {
    let once = Table::adult(folder, &[]);
    let n = once.rows.len();
    let table = once.redrawn(10);
    println!("ten times: {}", table.describe());
    for (limit, arx, target) in [(0.0, 433.0, 100.0), (0.01, 9_704.0, 100.0), (0.05, 6_430.0, 100.0)] {
        let policy = table.policy_with(limit, vec![Criterion::KAnonymity(K(5))]);
        let optimal = table.time(&policy, Algorithm::Optimal, 12);
        optimal.print(limit, Some((arx, target)));
        figures.push(optimal.figure("ten times", limit));
    }
    // The same rows ten times over: after counting, the search is the same.
    let mut replicated = Table::adult(folder, &[]);
    (0..9 * n).for_each(|i| replicated.push(once.rows.quasi(i % n), &[], 0));
    let policy = |k| {
        let mut policy = once.policy_with(0.05, vec![Criterion::KAnonymity(K(k))]);
        policy.fingerprint = "replicated".into();
        policy
    };
    let (one, ten) =
        (once.time(&policy(5), Algorithm::Optimal, 10), replicated.time(&policy(50), Algorithm::Optimal, 10));
    println!(
        "  replicated ten times, 10 k: search {} against {}, {:.2} times; counting {:.1} times\n",
        ms(ten.search),
        ms(one.search),
        ten.search / one.search,
        ten.count / one.count
    );
}

/// 5-anonymity with a criterion on the occupation, 8 quasi-identifiers, 5 %.
fn criteria(folder: &std::path::Path, figures: &mut Vec<Figure>) {
    let table = Table::adult(folder, &["occupation"]);
    println!("criteria: {}", table.describe());
    let diversity = Criterion::LDiversity { field: 0, l: 3.0, variant: Diversity::Distinct };
    let closeness = Criterion::TCloseness { field: 0, t: 0.2, distance: Distance::Equal };
    for (name, criterion, arx) in [("distinct 3-diversity", diversity, 413.0), ("0.2-closeness", closeness, 1_081.0)] {
        println!("  5-anonymity and {name}");
        let policy = table.policy_with(0.05, vec![Criterion::KAnonymity(K(5)), criterion]);
        let optimal = table.time(&policy, Algorithm::Optimal, 12);
        optimal.print(0.05, Some((arx, 50.0)));
        figures.push(optimal.figure(name, 0.05));
    }
    println!();
}

/// Lattices of 10^4, 10^6 and 10^9 nodes, and 5 to 40 quasi-identifiers: `auto` within its budget.
fn growth() {
    let budget = Duration::from_millis(500);
    println!("growth: 20,000 records of our own making, k = 10, 2 %, `auto` with a budget of {budget:?}");
    println!("  attributes  levels      nodes   tuples  checks     time  stop        loss     bound  proven to within");
    for (attributes, height) in [(4, 9), (6, 9), (9, 9), (5, 3), (10, 3), (20, 3), (40, 3)] {
        let table = Table::synthetic(20_000, attributes, height);
        let policy = table.policy_with(0.02, vec![Criterion::KAnonymity(K(10))]);
        let rules = Rules::new(&policy);
        let (sets, tuples) = table.count(&rules);
        let evaluator = Evaluator::new(&policy, &rules, sets);
        let started = Instant::now();
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let limits = Budget::within(started, budget);
        let outcome = Algorithm::Auto.search().run(&policy.lattice(), &evaluator, &limits, &mut rng);
        let elapsed = started.elapsed();
        let loss = outcome.best.as_ref().map_or(f64::NAN, |b| b.evaluation.loss);
        println!(
            "  {attributes:>10}  {:>6}  {:>9.1e}  {tuples:>7}  {:>6}  {:>7}  {:<8}  {loss:>6.4}  {:>8.4}  {:>15.1}%",
            height + 1,
            policy.lattice().size() as f64,
            evaluator.checks(),
            ms(elapsed.as_secs_f64() * 1e3),
            outcome.stop.as_str(),
            outcome.bound,
            100.0 * (1.0 - outcome.bound / loss),
        );
    }
}

/// Encoded rows, and the policy they were encoded by.
struct Table {
    policy: Policy,
    dictionaries: Dictionaries,
    sizes: Vec<usize>,
    rows: Rows,
}

/// Milliseconds of CPU per run.
struct Timing {
    algorithm: Algorithm,
    checks: u64,
    count: f64,
    search: f64,
}

impl Timing {
    fn total(&self) -> f64 {
        self.count + self.search
    }

    /// Milliseconds; to be divided by the reference.
    fn figure(&self, what: &str, limit: f64) -> Figure {
        let name = format!("{what}/{}/{:.0}%", self.algorithm.as_str(), limit * 100.0);
        Figure { name, ratio: self.total() }
    }

    fn print(&self, limit: f64, arx: Option<(f64, f64)>) {
        let beside = arx.map_or(String::new(), |(arx, target)| {
            let times = arx / self.total();
            let met = if times >= target { "met" } else { "missed" };
            format!("{:>11}  {times:>12.0}  {target:.0} {met}", ms(arx))
        });
        println!(
            "  {:>4.0}%  {:<9}  {:>6}  {:>8}  {:>8}  {:>8}{beside}",
            limit * 100.0,
            self.algorithm.as_str(),
            self.checks,
            ms(self.count),
            ms(self.search),
            ms(self.total())
        );
    }
}

impl Table {
    fn adult(folder: &std::path::Path, sensitive: &[&str]) -> Self {
        Self::adult_of(folder, sensitive, false)
    }

    /// The census table; if `people`, with somebody else as the subject of each record.
    fn adult_of(folder: &std::path::Path, sensitive: &[&str], people: bool) -> Self {
        let text = std::fs::read_to_string(folder.join("adult.csv")).expect("readable");
        let mut lines = text.lines();
        let header: Vec<&str> = lines.next().expect("a header").split(';').collect();
        let role = |name: &&str| if sensitive.contains(name) { Role::Sensitive } else { Role::Quasi };
        let quasi = header.iter().filter(|name| role(name) == Role::Quasi).map(|name| {
            let csv = std::fs::read(folder.join(format!("{name}.csv"))).expect("a hierarchy per column");
            (*name, Hierarchy::parse_csv(&csv).expect("a valid hierarchy"))
        });
        let person = people.then_some(("person", Role::Subject));
        let schema = Schema::new(header.iter().map(|name| (*name, role(name))).chain(person));
        let records = lines.enumerate().map(|(i, line)| {
            let person = people.then(|| Value::Text(i.to_string().into()));
            line.split(';').map(|cell| Value::Text(cell.into())).chain(person).collect()
        });
        Self::new(schema, quasi.collect(), records)
    }

    /// Every attribute a code of `height` letters, each letter less evenly spread than the one before.
    fn synthetic(records: usize, attributes: usize, height: usize) -> Self {
        let names: Vec<String> = (0..attributes).map(|a| format!("q{a}")).collect();
        let quasi = names
            .iter()
            .map(|n| (n.as_str(), Hierarchy::prefix(PrefixSpec::new(height as u32)).expect("valid")))
            .collect();
        let mut rng = ChaCha8Rng::seed_from_u64(attributes as u64);
        let mut letter = |values: f64| char::from(b'a' + (rng.random::<f64>().powi(3) * values) as u8);
        let rows: Vec<Vec<Value<'_>>> = (0..records)
            .map(|_| {
                let cell = |letter: &mut dyn FnMut(f64) -> char| (0..height).map(|_| letter(2.5)).collect::<String>();
                (0..attributes).map(|_| Value::Text(cell(&mut letter).into())).collect()
            })
            .collect();
        let schema = Schema::new(names.iter().map(|name| (name.as_str(), Role::Quasi)));
        Self::new(schema, quasi, rows.into_iter())
    }

    fn new<'a>(schema: Schema, quasi: Vec<(&str, Hierarchy)>, records: impl Iterator<Item = Vec<Value<'a>>>) -> Self {
        let identifier = |(name, hierarchy): (&str, Hierarchy)| QuasiIdentifier {
            name: name.into(),
            weight: 1.0,
            min_level: 0,
            max_level: hierarchy.height(),
            priority: 1,
            render: Render::Label,
            hierarchy: Arc::new(hierarchy),
        };
        let policy = Policy {
            quasi: quasi.into_iter().map(identifier).collect(),
            schema,
            criteria: vec![Criterion::KAnonymity(K(5))],
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
        let mut rows = Rows::new(policy.quasi.len(), policy.schema.sensitive.len());
        for (i, values) in records.enumerate() {
            assert_eq!(encoder.encode(&Record { values: values.into() }, None), Encoded::Row, "record {i}");
            rows.push(Position::new(0, i as i64), Millis(0), encoder.row());
        }
        Self { policy, dictionaries: encoder.dictionaries(), sizes: encoder.sizes(), rows }
    }

    /// The rows so many times over, a tenth of their quasi-identifiers redrawn from their columns.
    fn redrawn(&self, times: usize) -> Self {
        let n = self.rows.len();
        let mut rng = ChaCha8Rng::seed_from_u64(10);
        let rows = Rows::new(self.policy.quasi.len(), self.policy.schema.sensitive.len());
        let mut table = Self {
            policy: self.policy.clone(),
            dictionaries: self.dictionaries.clone(),
            sizes: self.sizes.clone(),
            rows,
        };
        for i in 0..times * n {
            let mut quasi = self.rows.quasi(i % n).to_vec();
            for (a, code) in quasi.iter_mut().enumerate() {
                if rng.random_range(0..10) == 0 {
                    *code = self.rows.quasi(rng.random_range(0..n))[a];
                }
            }
            table.push(&quasi, self.rows.sensitive(i % n), self.rows.subject(i % n));
        }
        table
    }

    fn push(&mut self, quasi: &[u32], sensitive: &[u32], subject: u64) {
        let position = Position::new(0, self.rows.len() as i64);
        let row = Row { quasi: quasi.into(), sensitive: sensitive.into(), subject, ..Row::default() };
        self.rows.push(position, Millis(0), &row);
    }

    fn policy_with(&self, limit: f64, criteria: Vec<Criterion>) -> Policy {
        Policy { suppression: SuppressionLimit(limit), criteria, ..self.policy.clone() }
    }

    fn count(&self, rules: &Rules) -> (Arc<dyn FrequencySets>, usize) {
        let mut counter = counter::counter(&self.sizes, rules.counting()).expect("the keys fit");
        counter.add(&self.rows, 0..self.rows.len());
        let tuples = counter.tuples();
        // As a tumbling window is counted.
        (counter.last_store(&self.dictionaries.quasi), tuples)
    }

    fn describe(&self) -> String {
        let (_, tuples) = self.count(&Rules::new(&self.policy));
        format!("{} records, {tuples} tuples, {} nodes", self.rows.len(), self.policy.lattice().size())
    }

    fn time(&self, policy: &Policy, algorithm: Algorithm, times: usize) -> Timing {
        let rules = Rules::new(policy).bind(&self.dictionaries.values());
        let run = |sets: Arc<dyn FrequencySets>| -> (Outcome, u64) {
            let evaluator = Evaluator::new(policy, &rules, sets);
            let mut rng = ChaCha8Rng::seed_from_u64(1);
            let outcome = algorithm.search().run(&policy.lattice(), &evaluator, &Budget::unlimited(), &mut rng);
            let checks = evaluator.checks();
            (outcome, checks)
        };
        let (outcome, checks) = run(self.count(&rules).0);
        assert_eq!(outcome.stop, StopReason::Proven);
        // The two apart, each at its shortest.
        let (mut count, mut search) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..times {
            let (counting, (sets, _)) = timed(|| self.count(&rules));
            let (searching, ran) = timed(|| run(sets));
            black_box(ran.1);
            count = count.min(counting.as_secs_f64() * 1e3);
            search = search.min(searching.as_secs_f64() * 1e3);
        }
        Timing { algorithm, checks, count, search }
    }
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

fn timed_once(work: impl FnOnce()) -> f64 {
    timed(work).0.as_secs_f64() * 1e3
}

fn ms(milliseconds: f64) -> String {
    if milliseconds < 100.0 { format!("{milliseconds:.2} ms") } else { format!("{milliseconds:.0} ms") }
}

fn folder() -> Option<PathBuf> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    let folder = std::env::var_os("VEILSTREAM_DATA").map_or_else(beside, PathBuf::from).join("adult");
    folder.join("adult.csv").is_file().then_some(folder)
}
