//! `cargo bench --bench wide`: what people lose when several instances share a stream, dealt out by turns and by districts.
//!
//! The same records are cut into the same stretches of time; each of 1, 2, 4, 8 lanes makes windows of its own from what it is given of a
//! stretch. The map of districts is made of the first 16,384 records as `veilstream route` makes it, and judged on later ones only. Loss is
//! `glm` as manifests have it, with every suppressed record as lost, and in brackets that of the published rows; each is also a ratio to one
//! lane.
//! Generated people: the policy of `tests/deploy/lanes.py` (k = 5, two diagnoses, people counted, 5 % suppression, stretches of 20,000).
//! Adult (`$VEILSTREAM_DATA`, or `../shared/data` beside the repository; skipped without it): nine quasi-identifiers, k = 5, stretches
//! of 10,000. `local`: nothing suppressed, schedules from the windows before. Nothing is timed, so any profile gives the same figures.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use veilstream::codec::RecordReader;
use veilstream::config::{Config, Purpose};
use veilstream::district::{DistrictMap, Sketch};
use veilstream::encode::{Dictionaries, Encoded, Encoder};
use veilstream::frequency::counter::{self, DEFAULT_WARM_MEMORY};
use veilstream::local::{Effort, Table, Terms, apply, learn};
use veilstream::model::batch::Rows;
use veilstream::model::event::{Millis, Position};
use veilstream::model::policy::{Policy, SuppressionLimit};
use veilstream::model::recoding::Recoding;
use veilstream::privacy::Rules;
use veilstream::search::evaluator::Evaluator;
use veilstream::search::{Algorithm, Budget};
use veilstream::source::generator::{Generator, GeneratorSettings};

const LANES: [u32; 4] = [1, 2, 4, 8];
/// The records that the map is made of, at most.
const SKETCH: usize = 16_384;
const GENERATED: &str = "
policy:
  quasi_identifiers:
    - { name: age, hierarchy: { intervals: { widths: [5, 10, 20, 40], min: 0, max: 120 } } }
    - { name: sex, hierarchy: trivial }
    - { name: zip, hierarchy: { prefix: { length: 5 } } }
    - { name: country, hierarchy: trivial }
    - { name: education, hierarchy: trivial }
  sensitive: [{ name: diagnosis }]
  subject: user_id
  privacy: [{ k-anonymity: 5 }, { l-diversity: { field: diagnosis, l: 2, variant: distinct } }]
  suppression: { limit: 0.05 }
";

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let asked = |part: &str| wanted.is_empty() || wanted.iter().any(|other| other == part);
    println!("wide: glm, suppressed records as lost [of published rows alone], and as ratios to one lane");
    if asked("generated") {
        let stream = Stream::generated(20_000, 8);
        stream.full_domain("generated, full-domain");
        stream.local("generated, local");
    }
    match folder().filter(|_| asked("adult")) {
        Some(folder) => {
            let stream = Stream::adult(&folder, 10_000);
            stream.full_domain("adult, full-domain");
            stream.local("adult, local");
        }
        None => println!("adult: SKIPPED, not asked for, or no folder `adult` in VEILSTREAM_DATA or ../shared/data"),
    }
}

/// Encoded records in the order of the stream.
struct Stream {
    policy: Arc<Policy>,
    dictionaries: Dictionaries,
    rows: Rows,
    stretch: usize,
    /// By number of lanes: the lane of each row by districts, and the map.
    districts: Vec<(Vec<u32>, DistrictMap)>,
}

/// Sums over published records, and how many there were.
#[derive(Default)]
struct Lost {
    cost: f64,
    published: usize,
    records: usize,
}

impl Lost {
    fn glm(&self) -> f64 {
        self.cost / self.published as f64
    }

    fn with_suppressed(&self) -> f64 {
        (self.cost + (self.records - self.published) as f64) / self.records as f64
    }
}

impl Stream {
    fn generated(stretch: usize, stretches: usize) -> Self {
        let records = Some((stretch * stretches) as u64);
        let settings = GeneratorSettings {
            records: records.map(|n| 2 * n),
            subjects: Some(200_000),
            ..GeneratorSettings::default()
        };
        let mut generator = Generator::new(&settings);
        let line = |_| {
            let mut text = String::new();
            generator.next_event().expect("enough of them").write_json(&mut text);
            text
        };
        Self::new(GENERATED, Path::new("wide.yaml"), (0..stretch * stretches).map(line), stretch)
    }

    fn adult(folder: &Path, stretch: usize) -> Self {
        let text = std::fs::read_to_string(folder.join("adult.csv")).expect("readable");
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next().expect("a header").split(';').collect();
        let quasi = names.iter().map(|name| format!("    - {{ name: {name}, hierarchy: {{ csv: {name}.csv }} }}\n"));
        let yaml = format!(
            "policy:\n  quasi_identifiers:\n{}  privacy: [{{ k-anonymity: 5 }}]\n  suppression: {{ limit: 0.05 }}\n",
            quasi.collect::<String>()
        );
        let line = |line: &str| {
            let cells: serde_json::Map<_, _> =
                names.iter().map(|n| n.to_string()).zip(line.split(';').map(Into::into)).collect();
            serde_json::Value::Object(cells).to_string()
        };
        let whole = 30_000 / stretch * stretch;
        Self::new(&yaml, &folder.join("wide.yaml"), lines.take(whole).map(line), stretch)
    }

    fn new(yaml: &str, path: &Path, lines: impl Iterator<Item = String>, stretch: usize) -> Self {
        let config = Config::parse(yaml, path, Purpose::Policy).expect("a valid policy");
        let policy = Arc::new(config.policy);
        let lines: Vec<String> = lines.collect();
        let mut reader = RecordReader::json(&policy.schema, 1 << 20);
        let mut sketch = Sketch::new(&policy);
        for line in &lines[..SKETCH.min(stretch)] {
            reader.each(line.as_bytes(), |record, _| assert!(sketch.add(record))).expect("readable");
        }
        let maps: Vec<DistrictMap> = LANES.iter().map(|&lanes| sketch.divide(lanes, None)).collect();
        let all: Vec<_> = maps.iter().map(|map| map.resolve(&policy).expect("of this policy")).collect();
        let mut encoder = Encoder::new(Arc::clone(&policy));
        let mut rows = Rows::new(policy.quasi.len(), policy.schema.sensitive.len());
        let mut lanes = vec![Vec::with_capacity(lines.len()); maps.len()];
        for (at, line) in lines.iter().enumerate() {
            let each = |record: &veilstream::model::record::Record<'_>, _: &dyn Fn() -> Vec<_>| {
                assert_eq!(encoder.encode(record, None), Encoded::Row);
                lanes
                    .iter_mut()
                    .zip(&all)
                    .for_each(|(lanes, districts)| lanes.push(districts.outlet(record, at as u64)));
            };
            reader.each(line.as_bytes(), each).expect("readable");
            rows.push(Position::new(0, at as i64), Millis(0), encoder.row());
        }
        let dictionaries = encoder.dictionaries();
        Self { policy, dictionaries, rows, stretch, districts: lanes.into_iter().zip(maps).collect() }
    }

    /// By way and number of lanes, what `lost` makes of the windows of each lane.
    fn table(&self, name: &str, lost: impl Fn(&[Rows], &mut Lost)) {
        println!("  {name}");
        let mut one = None;
        for (place, lanes) in LANES.into_iter().enumerate() {
            let by_turns: Vec<u32> = (0..self.rows.len()).map(|row| row as u32 % lanes).collect();
            for (how, of) in [("by turns", &by_turns), ("districts", &self.districts[place].0)] {
                let mut sum = Lost::default();
                let mut fullest = 0;
                for lane in 0..lanes {
                    let windows: Vec<Rows> = (0..self.rows.len() / self.stretch)
                        .map(|at| self.rows.filtered(|row| row / self.stretch == at && of[row] == lane))
                        .collect();
                    fullest = fullest.max(windows.iter().map(Rows::len).sum::<usize>());
                    lost(&windows, &mut sum);
                }
                let (glm, with) = (sum.glm(), sum.with_suppressed());
                let (first, first_with) = *one.get_or_insert((glm, with));
                println!(
                    "    {lanes} lanes, {how:<9}  {with:.3} [{glm:.3}]  {:.2} [{:.2}] times one lane; the fullest lane has {:.2} of its share",
                    with / first_with,
                    glm / first,
                    fullest as f64 * f64::from(lanes) / self.rows.len() as f64,
                );
            }
        }
    }

    fn full_domain(&self, name: &str) {
        // The first stretch is the one that the map has seen.
        self.table(name, |windows, sum| windows[1..].iter().for_each(|rows| self.search(rows, sum)));
    }

    /// The best release of a window.
    fn search(&self, rows: &Rows, sum: &mut Lost) {
        sum.records += rows.len();
        let rules = Rules::new(&self.policy).bind(&self.dictionaries.values());
        let sets = counter::count(rows, &rules.counting(), &self.dictionaries.quasi, DEFAULT_WARM_MEMORY)
            .expect("the keys fit");
        let evaluator = Evaluator::new(&self.policy, &rules, sets);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let outcome =
            Algorithm::Optimal.search().run(&self.policy.lattice(), &evaluator, &Budget::unlimited(), &mut rng);
        let Some(Recoding::Node(node)) = outcome.best.map(|best| best.recoding) else { return };
        let views = &self.dictionaries.quasi;
        let ancestors: Vec<Vec<u32>> =
            views.iter().zip(node.levels()).map(|(view, &level)| view.between(0, level)).collect();
        let mut classes: HashMap<Vec<u32>, (usize, HashSet<u64>, HashSet<u32>)> = HashMap::new();
        for row in 0..rows.len() {
            let key = rows.quasi(row).iter().zip(&ancestors).map(|(&code, to)| to[code as usize]).collect();
            let class = classes.entry(key).or_default();
            class.0 += 1;
            let person = if self.policy.schema.subject.is_some() { rows.subject(row) } else { row as u64 };
            class.1.insert(person);
            class.2.extend(rows.sensitive(row).first());
        }
        let diverse = if self.policy.schema.sensitive.is_empty() { 0 } else { 2 };
        for (key, (records, people, values)) in classes {
            if people.len() >= 5 && values.len() >= diverse {
                let cost = |(at, &code): (usize, &u32)| views[at].level(node.levels()[at]).loss()[code as usize];
                sum.published += records;
                sum.cost += records as f64 * key.iter().enumerate().map(cost).sum::<f64>() / key.len() as f64;
            }
        }
    }

    /// Local recoding of the second half of the windows.
    fn local(&self, name: &str) {
        let policy = Policy { suppression: SuppressionLimit(0.0), ..Policy::clone(&self.policy) };
        let rules = Rules::new(&policy).bind(&self.dictionaries.values());
        let terms = Terms::new(&policy, &rules, &self.dictionaries.quasi);
        let none = self.rows.filtered(|_| false);
        self.table(name, |windows, sum| {
            let tables: Vec<Table> = windows.iter().map(|rows| Table::new(rows, &none, &rules.counting())).collect();
            for at in windows.len().div_ceil(2)..windows.len() {
                let past: Vec<&Table> = tables[..at].iter().collect();
                let schedule = learn(&terms, &past, &Effort { max_steps: 133, ..Effort::default() });
                let regions = apply(&terms, &tables[at], &schedule, 0, 0);
                sum.records += windows[at].len();
                for class in (0..windows[at].len()).filter_map(|row| regions.fresh(row)) {
                    let cost = |(at, value): (usize, &veilstream::model::recoding::GeneralizedValue)| {
                        self.dictionaries.quasi[at].level(value.level).loss()[value.code as usize]
                    };
                    let labels = regions.labels(class);
                    sum.published += 1;
                    sum.cost += labels.iter().enumerate().map(cost).sum::<f64>() / labels.len() as f64;
                }
            }
        });
    }
}

fn folder() -> Option<PathBuf> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    let folder = std::env::var_os("VEILSTREAM_DATA").map_or_else(beside, PathBuf::from).join("adult");
    folder.join("adult.csv").is_file().then_some(folder)
}
