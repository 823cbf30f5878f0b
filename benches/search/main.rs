//! `cargo bench --bench search`: how fast the exact searches are from rows in memory, and how that grows.
//!
//! Processor time, the shortest of several runs. The published figures of ARX 3.9.2 (warm, processor time, machine of the same kind)
//! stand beside ours. Every figure is also a ratio to a fixed reference kernel timed in the same run; what has moved by more than
//! [`MARGIN`] since `benches/search-baseline.json` is said at the end, and `-- --save` keeps the ratios of this run instead.
//! The Adult data is read from `$VEILSTREAM_DATA`, or `../shared/data` beside the repository; what needs it is skipped, and
//! says so, where it is absent. Arguments choose parts: `adult`, `cores`, `ten`, `subtree`, `warm`, `tumbling`, `criteria`, `growth`. `cores` is by the
//! clock; run it under `taskset -c 0` too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../tests/common/adult.rs"]
mod adult;
#[path = "../engine/baseline.rs"]
mod baseline;
#[path = "../../tests/common/fixture.rs"]
mod fixture;
mod table;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use adult::Adult;
use baseline::{Figure, reference, timed};
use fixture::{encoded, policy, text};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use table::{Table, Timing, median, ms, timed_once};
use veilstream::encode::Dictionaries;
use veilstream::frequency::counter::{self, DEFAULT_WARM_MEMORY};
use veilstream::frequency::store::FrequencySets;
use veilstream::model::batch::{Row, Rows};
use veilstream::model::event::{Millis, Position};
use veilstream::model::hierarchy::{Hierarchy, PrefixSpec};
use veilstream::model::policy::{Criterion, Distance, Diversity, K, Policy, SuppressionLimit};
use veilstream::model::record::Value;
use veilstream::model::schema::Role;
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
    type Part = fn(&Adult, &mut Vec<Figure>);
    let parts: [(&str, Part); 7] = [
        ("adult", adult_alone),
        ("cores", |adult, _| cores(adult)),
        ("ten", ten_times),
        ("subtree", subtree),
        ("warm", |adult, _| warm(adult)),
        ("tumbling", |adult, _| tumbling(adult)),
        ("criteria", criteria),
    ];
    match Adult::find() {
        Some(adult) => parts.iter().filter(|(name, _)| asked(name)).for_each(|(_, part)| part(&adult, &mut figures)),
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
fn adult_alone(adult: &Adult, figures: &mut Vec<Figure>) {
    let table = Table::adult(adult, &[]);
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
        let tabu_ga = table.time(&policy, Algorithm::TabuGa, 4);
        tabu_ga.print(limit, None);
        figures.extend([&optimal, &bottom_up, &tabu_ga].map(|timing| timing.figure("adult", limit)));
        let times = |other: &Timing| other.total() / optimal.total();
        let over = 100.0 * (tabu_ga.loss / optimal.loss - 1.0);
        println!(
            "         bottom-up / optimal: {:.1}, tabu-ga / optimal: {:.1}; tabu-ga loses {over:.2} % more",
            times(&bottom_up),
            times(&tabu_ga)
        );
    }
    println!();
}

/// The searches that count many nodes at once, by the clock, on as many cores as the process may use.
fn cores(adult: &Adult) {
    let table = Table::adult(adult, &[]);
    let policy = table.policy_with(0.05, vec![Criterion::KAnonymity(K(5))]);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!("cores: adult, 5 %, {cores} of them; the shortest of some runs by the clock, counting excluded");
    for (algorithm, times) in [(Algorithm::Exhaustive, 2), (Algorithm::BottomUp, 8), (Algorithm::TabuGa, 8)] {
        let search = |_| {
            let rules = Rules::new(&policy).bind(&table.dictionaries.values());
            let evaluator = Evaluator::new(&policy, &rules, table.count(&rules).0);
            let (started, mut rng) = (Instant::now(), ChaCha8Rng::seed_from_u64(1));
            let outcome = algorithm.search().run(&policy.lattice(), &evaluator, &Budget::unlimited(), &mut rng);
            (started.elapsed().as_secs_f64() * 1e3, evaluator.checks(), outcome.best.map(|best| best.recoding))
        };
        let runs: Vec<_> = (0..times).map(search).collect();
        assert!(runs.iter().all(|run| (run.1, &run.2) == (runs[0].1, &runs[0].2)), "a seed gives one result");
        let shortest = runs.iter().map(|run| run.0).fold(f64::INFINITY, f64::min);
        println!("  {:<10} {:>6} checks  {:>8}", algorithm.as_str(), runs[0].1, ms(shortest));
    }
    println!();
}

/// A window of 100,000 records of which a share is replaced: searched again with what the last search left, against
/// counted and searched afresh.
fn warm(adult: &Adult) {
    const WINDOW: usize = 100_000;
    const SLIDES: u64 = 16;
    const COLD: usize = 9;
    const BEGINNINGS: usize = 5;
    let plain = Table::adult(adult, &[]).redrawn(10);
    let sensitive = Table::adult(adult, &["occupation"]).redrawn(10);
    // Everybody of the table ten times over, and so three times in a window, mostly in different tuples.
    let people = Table::adult_of(adult, &["occupation"], true).redrawn(10);
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
        let slide = (WINDOW as f64 * share) as usize;
        let begun = || {
            let (mut rolling, trail) = (counter(), Arc::new(Trail::default()));
            let time = timed_once(|| {
                rolling.add(&table.rows, 0..WINDOW);
                search(rolling.store(&table.dictionaries.quasi), Some(&trail));
            });
            (rolling, trail, time)
        };
        let slid = |rolling: &mut dyn counter::Counter, trail: &Arc<Trail>, first: usize| {
            let mut found = None;
            let time = timed_once(|| {
                rolling.retract(&table.rows, &(first..first + slide).collect::<Vec<_>>());
                rolling.add(&table.rows, first + WINDOW..first + WINDOW + slide);
                found = Some(search(rolling.store(&table.dictionaries.quasi), Some(trail)));
            });
            (time, found.expect("searched"))
        };
        // The first makes tables of the sets that the others patch. It is compared with the cold search just before it, because memory
        // that the process has not used yet may take the machine ten times as long as the work that is done in it.
        let at_first = (0..BEGINNINGS).map(|_| begun()).map(|(mut rolling, trail, cold)| {
            let time = slid(&mut *rolling, &trail, 0).0;
            (time, time / cold)
        });
        let (at_first, mut of_cold): (Vec<f64>, Vec<f64>) = at_first.unzip();
        of_cold.sort_by(f64::total_cmp);
        let (mut rolling, trail, _) = begun();
        let slides = (0..=SLIDES as usize).map(|at| slid(&mut *rolling, &trail, at * slide));
        let (mut warm, found): (Vec<f64>, Vec<_>) = slides.unzip();
        let warm = median(warm.split_off(1));
        let (first, checks) = (found.len() * slide, found.iter().map(|(_, checks)| checks).sum::<u64>());
        let mut counted = 0;
        let cold = (0..COLD).map(|_| {
            timed_once(|| {
                let mut counter = counter();
                counter.add(&table.rows, first..first + WINDOW);
                let (answer, checks) = search(counter.store(&table.dictionaries.quasi), None);
                assert_eq!(found.last().map(|(answer, _)| answer), Some(&answer), "warm and cold agree");
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
        let (once, least, most) = (median(at_first), of_cold[0], of_cold[BEGINNINGS - 1]);
        print!("{slow}; at first {}, {:.2} of the cold one before it ", ms(once), median(of_cold));
        print!("({least:.2} to {most:.2}); ");
        println!("then warm {checks} checks, {quick}: 1/{times:.1}{met}");
    }
    println!();
}

/// Windows that follow one another: searched with what the last window's search left (its answer first, then the nodes that
/// proved it), against searched afresh. Nothing is shared but that; every window is counted anew.
fn tumbling(adult: &Adult) {
    const WINDOW: usize = 30_000;
    let table = Table::adult(adult, &[]).redrawn(10);
    let windows: Vec<Rows> = (0..10).map(|window| table.rows.filtered(|i| i / WINDOW == window)).collect();
    println!("tumbling: ten windows of {WINDOW} records, k = 5; counted and searched; medians");
    for (algorithm, limit) in [(Algorithm::Optimal, 0.01), (Algorithm::Optimal, 0.05), (Algorithm::BottomUp, 0.05)] {
        let policy = table.policy_with(limit, vec![Criterion::KAnonymity(K(5))]);
        let rules = Rules::new(&policy);
        let search = |window: usize, trail: Option<&Arc<Trail>>| {
            let mut found = (None, 0);
            let time = timed_once(|| {
                let (counting, domains) = (rules.counting(), &table.dictionaries.quasi);
                let sets = counter::count(&windows[window], &counting, domains, DEFAULT_WARM_MEMORY);
                let evaluator = Evaluator::new(&policy, &rules, sets.expect("the keys fit"));
                let evaluator = match trail {
                    Some(trail) => evaluator.warm(Arc::clone(trail)),
                    None => evaluator,
                };
                let mut rng = ChaCha8Rng::seed_from_u64(1);
                let outcome = algorithm.search().run(&policy.lattice(), &evaluator, &Budget::unlimited(), &mut rng);
                found = (outcome.best.map(|best| best.recoding), evaluator.checks());
            });
            (time, found)
        };
        let trail = Arc::new(Trail::default());
        let (mut cold, mut warm, mut checks) = (Vec::new(), Vec::new(), (0, 0));
        for window in 0..10 {
            let (afresh, led) = (search(window, None), search(window, Some(&trail)));
            assert_eq!(afresh.1.0, led.1.0, "both find the same");
            if window > 0 {
                cold.push(afresh.0);
                warm.push(led.0);
                checks = (checks.0 + afresh.1.1, checks.1 + led.1.1);
            }
        }
        let (cold, warm) = (median(cold), median(warm));
        let (name, limit) = (algorithm.as_str(), limit * 100.0);
        let (before, after) = (checks.0 / 9, checks.1 / 9);
        println!(
            "  {name:<9} {limit:>2.0}%: afresh {before} checks, {}; led {after} checks, {}: {:.2} of it",
            ms(cold),
            ms(warm),
            warm / cold
        );
    }
    println!();
}

/// Ten times the rows, a tenth of the cells redrawn from their columns.
fn ten_times(adult: &Adult, figures: &mut Vec<Figure>) {
    let once = Table::adult(adult, &[]);
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
    let mut replicated = Table::adult(adult, &[]);
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

/// Subtree recoding of about a million rows, a tenth of the cells redrawn from their columns.
fn subtree(adult: &Adult, figures: &mut Vec<Figure>) {
    let table = Table::adult(adult, &[]).redrawn(33);
    println!("subtree: {}", table.describe());
    for limit in [0.0, 0.05] {
        let policy = table.policy_with(limit, vec![Criterion::KAnonymity(K(5))]);
        let timing = table.time(&policy, Algorithm::SubtreeBottomUp, 3);
        timing.print(limit, None);
        figures.push(timing.figure("a million", limit));
    }
    println!();
}

/// 5-anonymity with a criterion on the occupation, 8 quasi-identifiers, 5 %.
fn criteria(adult: &Adult, figures: &mut Vec<Figure>) {
    let table = Table::adult(adult, &["occupation"]);
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
    let budget = Duration::from_secs(1);
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
