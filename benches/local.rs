//! `cargo bench --bench local`: what local recoding loses and costs on the Adult data, beside its targets.
//!
//! Loss is `glm`, computed here from the labels of the classes; nothing is suppressed. Times are processor time, the shortest of several
//! runs. Windows are consecutive rows of the table; the schedule of a window is learnt from the windows before it only. The data is
//! read from `$VEILSTREAM_DATA`, or `../shared/data` beside the repository; without it the bench says SKIPPED. Arguments that are numbers are the shares
//! to learn with, instead of the usual ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cpu_time::ProcessTime;
use veilstream::encode::{Dictionaries, Encoded, Encoder};
use veilstream::local::{Effort, Regions, Table, Terms, apply, learn};
use veilstream::model::batch::Rows;
use veilstream::model::event::{Millis, Position};
use veilstream::model::hierarchy::Hierarchy;
use veilstream::model::policy::{
    Criterion, Diversity, Fallback, K, Loss, Policy, QuasiIdentifier, RecodingKind, Render, SuppressionAction,
    SuppressionLimit,
};
use veilstream::model::record::{Record, Value};
use veilstream::model::schedule::Schedule;
use veilstream::model::schema::{Role, Schema};
use veilstream::privacy::Rules;

/// As the service has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How many past windows a schedule is learnt from. More take longer to learn; fewer meet tuples that they have not seen.
const PAST: usize = 8;
/// The most steps of a schedule for these attributes that a Kafka commit has space for.
const KAFKA_STEPS: usize = 133;

fn main() {
    let Some(folder) = folder() else {
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
        let census = Census::read(&folder, "", vec![Criterion::KAnonymity(K(k))]);
        whole(&census, &format!("whole, k = {k}"), &once, (target, Some(bound)));
    }
    let diverse = Criterion::LDiversity { field: 0, l: 3.0, variant: Diversity::Distinct };
    let census = Census::read(&folder, "occupation", vec![Criterion::KAnonymity(K(5)), diverse]);
    whole(&census, "whole, 3-diversity", &once, (0.033, None));
    let census = Census::read(&folder, "", vec![Criterion::KAnonymity(K(5))]);
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
    /// All columns are quasi-identifiers but `sensitive`, if there is such a column.
    fn read(folder: &Path, sensitive: &str, criteria: Vec<Criterion>) -> Self {
        let text = std::fs::read_to_string(folder.join("adult.csv")).expect("readable");
        let mut lines = text.lines();
        let header: Vec<&str> = lines.next().expect("a header").split(';').collect();
        let role = |name: &str| if name == sensitive { Role::Sensitive } else { Role::Quasi };
        let quasi = |name: &&str| {
            let csv = std::fs::read(folder.join(format!("{name}.csv"))).expect("a hierarchy per column");
            let hierarchy = Arc::new(Hierarchy::parse_csv(&csv).expect("a valid hierarchy"));
            QuasiIdentifier {
                name: (*name).into(),
                weight: 1.0,
                min_level: 0,
                max_level: hierarchy.height(),
                priority: 1,
                render: Render::Label,
                hierarchy,
            }
        };
        let policy = Policy {
            schema: Schema::new(header.iter().map(|name| (*name, role(name)))),
            quasi: header.iter().filter(|name| **name != sensitive).map(quasi).collect(),
            criteria,
            suppression: SuppressionLimit(0.0),
            action: SuppressionAction::Drop,
            recoding: RecodingKind::FullDomain,
            loss: Loss::Glm,
            unknown_value: Fallback::Reject,
            missing_value: Fallback::Reject,
            null_value: Fallback::Reject,
            sequential: None,
            fingerprint: "adult".into(),
        };
        let mut encoder = Encoder::new(Arc::new(policy.clone()));
        let mut rows = Rows::new(policy.quasi.len(), policy.schema.sensitive.len());
        for (at, line) in lines.enumerate() {
            let record = Record { values: line.split(';').map(|cell| Value::Text(cell.into())).collect() };
            assert_eq!(encoder.encode(&record, None), Encoded::Row, "line {}", at + 2);
            rows.push(Position::new(0, at as i64), Millis(0), encoder.row());
        }
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

fn folder() -> Option<PathBuf> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    let folder = std::env::var_os("VEILSTREAM_DATA").map_or_else(beside, PathBuf::from).join("adult");
    folder.join("adult.csv").is_file().then_some(folder)
}
