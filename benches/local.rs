//! `cargo bench --bench local`: what local recoding loses and costs on the Adult data, beside its targets.
//!
//! Loss is `glm`, computed here from the labels of the classes; nothing is suppressed. Times are processor time, the shortest of several
//! runs. Windows are consecutive rows of the table; the schedule of a window is learnt from the windows before it only. The data is
//! read from `$VEILSTREAM_DATA`, or `../shared/data` beside the repository; without it the bench says SKIPPED. Arguments that are numbers are the shares
//! to learn with, instead of the usual ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../tests/common/adult.rs"]
mod adult;
#[path = "../tests/common/fixture.rs"]
mod fixture;

use std::hint::black_box;

use adult::Adult;
use cpu_time::ProcessTime;
use fixture::{encoded, policy, text};
use veilstream::encode::Dictionaries;
use veilstream::local::{Effort, Regions, Table, Terms, apply, learn};
use veilstream::model::batch::Rows;
use veilstream::model::policy::{Criterion, Diversity, K, Policy};
use veilstream::model::schedule::Schedule;
use veilstream::model::schema::Role;
use veilstream::privacy::Rules;

/// As the service has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How many past windows a schedule is learnt from. More take longer to learn; fewer meet tuples that they have not seen.
const PAST: usize = 8;
/// The most steps of a schedule for these attributes that a Kafka commit has space for.
const KAFKA_STEPS: usize = 292;

fn main() {
    let Some(adult) = Adult::find() else {
        println!("local: SKIPPED, no folder `adult` in VEILSTREAM_DATA or ../shared/data");
        return;
    };
    let shares: Vec<f64> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let effort = |usual: Vec<f64>| Effort {
        shares: if shares.is_empty() { usual } else { shares.clone() },
        ..Effort::default()
    };
    // A table that is released once may take longer than a window.
    let (once, streaming) = (effort(vec![0.0005, 0.0017]), effort(Effort::default().shares));
    println!("local: Adult, glm from labels, nothing suppressed; processor time in ms");
    println!("  case                      loss  target   bound   steps  classes     table     apply  target     learn");
    for (k, target, bound) in [(5, 0.0535, 0.042), (10, 0.078, 0.060), (50, 0.150, 0.115)] {
        let census = Census::read(&adult, &[], vec![Criterion::KAnonymity(K(k))]);
        whole(&census, &format!("whole, k = {k}"), &once, (target, Some(bound)));
    }
    let diverse = Criterion::LDiversity { field: 0, l: 3.0, variant: Diversity::Distinct };
    let census = Census::read(&adult, &["occupation"], vec![Criterion::KAnonymity(K(5)), diverse]);
    whole(&census, "whole, 3-diversity", &once, (0.033, None));
    let census = Census::read(&adult, &[], vec![Criterion::KAnonymity(K(5))]);
    for (size, target, time) in [(1_000, 0.190, 1.5), (5_000, 0.108, 4.0), (10_000, 0.083, 7.0)] {
        windows(&census, size, &streaming, (target, time));
        windows(&census, size, &Effort { max_steps: KAFKA_STEPS, ..streaming.clone() }, (target, time));
    }
}

/// The table as one window, its schedule learnt from itself.
fn whole(census: &Census, name: &str, effort: &Effort, (target, bound): (f64, Option<f64>)) {
    let (rules, counting) = (census.rules(), census.rules().counting());
    let terms = Terms::new(&census.policy, &rules, &census.dictionaries.quasi);
    let none = census.slice(0, 0);
    let (counted, table) = shortest(5, || Table::new(&census.rows, &none, &counting));
    let (learnt, schedule) = shortest(1, || learn(&terms, &[&table], effort));
    let (applied, regions) = shortest(9, || apply(&terms, &table, &schedule, 0, 0));
    let bound = bound.map_or("      -".into(), |bound| format!("{bound:>7.3}"));
    println!(
        "  {name:<22} {:>7.4} {target:>7.4} {bound} {:>7} {:>8} {counted:>9.2} {applied:>9.2}      20 {learnt:>9.0}",
        census.loss(&regions, 0..census.rows.len()),
        schedule.steps().len(),
        regions.len(),
    );
}

/// Consecutive windows, the schedule of each learnt from the windows before it.
fn windows(census: &Census, size: usize, effort: &Effort, (target, time): (f64, f64)) {
    let (rules, counting) = (census.rules(), census.rules().counting());
    let terms = Terms::new(&census.policy, &rules, &census.dictionaries.quasi);
    let none = census.slice(0, 0);
    let count = census.rows.len() / size;
    let tables: Vec<Table> =
        (0..count).map(|at| Table::new(&census.slice(at * size, (at + 1) * size), &none, &counting)).collect();
    let (mut loss, mut steps, mut classes, mut judged) = (0.0, 0, 0, 0_usize);
    let (mut learnt, mut applied) = (0.0, 0.0);
    // Small windows have a history; of the large ones there are only three.
    let first = PAST.min(count / 2);
    for at in first..count.min(first + 12) {
        let past: Vec<&Table> = tables[at.saturating_sub(PAST)..at].iter().collect();
        let (time, schedule): (f64, Schedule) = shortest(1, || learn(&terms, &past, effort));
        learnt += time;
        let (time, regions) = shortest(5, || apply(&terms, &tables[at], &schedule, 0, 0));
        applied += time;
        loss += census.loss(&regions, at * size..(at + 1) * size);
        steps += schedule.steps().len();
        classes += regions.len();
        judged += 1;
    }
    let (mean, n) = (|sum: f64| sum / judged as f64, judged);
    println!(
        "  {:<22} {:>7.4} {target:>7.4}       - {:>7} {:>8}         - {:>9.2} {time:>7} {:>9.0}",
        match effort.max_steps {
            usize::MAX => format!("windows of {size}"),
            steps => format!("{size}, {steps} steps"),
        },
        mean(loss),
        steps / n,
        classes / n,
        mean(applied),
        mean(learnt),
    );
}

/// The rows of the census with a policy over them.
struct Census {
    policy: Policy,
    rows: Rows,
    dictionaries: Dictionaries,
}

impl Census {
    /// All columns are quasi-identifiers but the `sensitive` ones.
    fn read(adult: &Adult, sensitive: &[&str], criteria: Vec<Criterion>) -> Self {
        let columns = adult.columns_without(sensitive);
        let others: Vec<(&str, Role)> = sensitive.iter().map(|name| (*name, Role::Sensitive)).collect();
        let policy = Policy { criteria, ..policy(adult.hierarchies(&columns), &others, 5) };
        let all = [&columns, sensitive].concat();
        let records = adult.records(&all).map(|cells| cells.into_iter().map(text));
        let (encoder, rows) = encoded(&policy, records);
        Self { policy, rows, dictionaries: encoder.dictionaries() }
    }

    fn rules(&self) -> Rules {
        Rules::new(&self.policy).bind(&self.dictionaries.values())
    }

    fn slice(&self, from: usize, to: usize) -> Rows {
        self.rows.filtered(|row| (from..to).contains(&row))
    }

    /// The mean share of leaves that a cell of these rows no longer tells apart, read from the labels. Checks k on the way.
    fn loss(&self, regions: &Regions, rows: std::ops::Range<usize>) -> f64 {
        let width = self.policy.quasi.len();
        let (mut sum, mut sizes) = (0.0, vec![0; regions.len()]);
        for row in rows.clone() {
            let class = regions.fresh(row - rows.start).expect("nothing is suppressed");
            sizes[class as usize] += 1;
            for (at, value) in regions.labels(class).iter().enumerate() {
                let view = &self.dictionaries.quasi[at];
                let ancestor = (0..value.level)
                    .fold(self.rows.quasi(row)[at], |code, level| view.level(level).parent()[code as usize]);
                assert_eq!(ancestor, value.code, "labels cover their rows");
                sum += view.level(value.level).loss()[value.code as usize];
            }
        }
        assert!(sizes.iter().all(|&size| size >= self.policy.k().0), "every class has k rows");
        sum / (width * rows.len()) as f64
    }
}

/// The processor's time of the shortest run in ms, and a result.
fn shortest<T>(runs: usize, mut run: impl FnMut() -> T) -> (f64, T) {
    let mut one = || {
        let started = ProcessTime::now();
        let result = black_box(run());
        (started.elapsed().as_secs_f64() * 1e3, result)
    };
    let mut best = one();
    for _ in 1..runs {
        let next = one();
        if next.0 < best.0 {
            best = next;
        }
    }
    best
}
