//! What the papers' modules share: how much is measured, sheets to print, and tables (rows of text under hierarchies, counted and
//! ready to search).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use veilstream::frequency::counter;
use veilstream::frequency::store::FrequencySets;
use veilstream::model::counting::Facet;
use veilstream::model::hierarchy::{Decimal, Hierarchy, IntervalSpec};
use veilstream::model::policy::{Loss, Policy, SuppressionAction, SuppressionLimit};
use veilstream::model::record::Value;
use veilstream::model::schema::Role;
use veilstream::privacy::Rules;

use crate::adult::Adult;
use crate::fixture;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// At most so many seeds.
    pub seeds: u64,
    /// The greatest k of the course over k.
    pub most_k: u32,
    /// Records of the generated tables that are shaped like Adult, and like orders.
    pub people: usize,
    pub orders: usize,
    /// Whether the Adult data is looked for; without it, figures on it are not measured.
    pub adult: bool,
}

/// What `cargo bench --bench papers` measures.
pub const FULL: Effort = Effort { seeds: 50, most_k: 15, people: 32_561, orders: 500_000, adult: true };

/// One table of a paper beside ours.
pub struct Sheet {
    pub title: String,
    pub head: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
    pub notes: Vec<String>,
    /// Whether every figure reaches its paper's; `None` where nothing was compared.
    pub reached: Option<bool>,
}

impl Sheet {
    pub fn new(title: impl Into<String>, head: &[&'static str]) -> Self {
        Self { title: title.into(), head: head.to_vec(), rows: Vec::new(), notes: Vec::new(), reached: None }
    }

    /// Adds a row, and whether its figures reach the paper's, where they were compared.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>, reached: Option<bool>) {
        self.rows.push(cells.into_iter().collect());
        if let Some(reached) = reached {
            self.reached = Some(self.reached.unwrap_or(true) & reached);
        }
    }

    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }
}

impl fmt::Display for Sheet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{}", self.title)?;
        if !self.rows.is_empty() {
            let mut table = comfy_table::Table::new();
            table.set_header(&self.head);
            table.add_rows(&self.rows);
            writeln!(f, "{table}")?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "{note}"))
    }
}

/// The cell of a row whose figures were compared.
pub fn verdict(reached: Option<bool>) -> String {
    match reached {
        None => "not compared",
        Some(true) => "reached",
        Some(false) => "missed",
    }
    .into()
}

/// A policy, its rules, and the counted rows.
pub struct Table {
    pub policy: Policy,
    pub rules: Rules,
    pub sets: Arc<dyn FrequencySets>,
}

/// A k-anonymity policy over these quasi-identifiers; what is left out waits.
pub fn policy(quasi: Vec<(&str, Hierarchy)>, others: &[(&str, Role)], k: u32, suppression: f64, loss: Loss) -> Policy {
    let (suppression, action) = (SuppressionLimit(suppression), SuppressionAction::Hold { max_hold: Duration::ZERO });
    Policy { suppression, action, loss, ..fixture::policy(quasi, others, k) }
}

impl Table {
    /// Counts `rows`; each maps a field's name to its text.
    pub fn new<'a, R>(policy: Policy, facets: &[Facet], header: &[&str], rows: impl Iterator<Item = R>) -> Self
    where
        R: IntoIterator<Item = &'a str>,
    {
        let slots: Vec<Option<usize>> = header.iter().map(|name| policy.schema.slot(name)).collect();
        let records = rows.map(|row| {
            let mut values = vec![Value::Missing; policy.schema.attributes().len()];
            for (slot, text) in slots.iter().zip(row) {
                if let Some(slot) = slot {
                    values[*slot] = fixture::text(text);
                }
            }
            values
        });
        let (encoder, counted) = fixture::encoded(&policy, records);
        let rules = Rules::new(&policy).also_counting(facets.iter().copied());
        let domains = encoder.dictionaries().quasi;
        let sets = counter::count(&counted, &rules.counting(), &domains, usize::MAX).expect("the keys fit");
        let rules = rules.bind(&encoder.dictionaries().values());
        Self { policy, rules, sets }
    }
}

/// A hierarchy of names: each in a group of so many, all below one top.
pub fn groups(name: &str, values: usize, size: usize) -> Hierarchy {
    let line = |i: usize| match size {
        1 => format!("{name}{i};*\n"),
        _ => format!("{name}{i};group{};*\n", i / size),
    };
    Hierarchy::parse_csv((0..values).map(line).collect::<String>().as_bytes()).expect("it is one")
}

/// Whole numbers from 0 in intervals.
pub fn intervals(widths: &[i64], max: i64) -> Hierarchy {
    let widths: Vec<Decimal> = widths.iter().copied().map(Decimal::from).collect();
    Hierarchy::intervals(IntervalSpec::new(widths, 0.into(), max.into())).expect("they nest")
}

/// A column that has one of so many values, the first of them the most often.
pub enum Values {
    Named(usize, usize),
    Numbers(&'static [i64], i64),
}

/// The 14 columns of Adult in shape: how many values each has, and how skewed they are.
pub static PEOPLE: [(&str, Values, f64); 14] = [
    ("age", Values::Numbers(&[5, 10, 20, 40], 90), 1.0),
    ("workclass", Values::Named(8, 4), 3.0),
    ("fnlwgt", Values::Numbers(&[50, 200, 800], 1500), 3.0),
    ("education", Values::Named(16, 4), 1.5),
    ("education-num", Values::Numbers(&[4, 8], 16), 1.5),
    ("marital-status", Values::Named(7, 3), 2.0),
    ("occupation", Values::Named(14, 4), 1.2),
    ("relationship", Values::Named(6, 3), 1.5),
    ("race", Values::Named(5, 1), 4.0),
    ("sex", Values::Named(2, 1), 0.6),
    ("capital-gain", Values::Numbers(&[5, 20], 99), 12.0),
    ("capital-loss", Values::Numbers(&[5, 20], 43), 16.0),
    ("hours-per-week", Values::Numbers(&[10, 50], 99), 1.0),
    ("native-country", Values::Named(41, 10), 8.0),
];

/// Made-up people with these columns of [`PEOPLE`]: each with its hierarchy, and the rows.
pub fn people(columns: &[&'static str], records: usize) -> (Vec<(&'static str, Hierarchy)>, Vec<Vec<String>>) {
    let own = || columns.iter().filter_map(|name| PEOPLE.iter().find(|column| column.0 == *name));
    let hierarchy = |(name, values, _): &(&'static str, Values, f64)| match values {
        Values::Named(values, size) => (*name, groups("v", *values, *size)),
        Values::Numbers(widths, max) => (*name, intervals(widths, *max)),
    };
    let mut rng = ChaCha8Rng::seed_from_u64(14);
    let mut cell = |(_, values, skew): &(&'static str, Values, f64)| {
        let share = rng.random::<f64>().powf(*skew);
        match values {
            Values::Named(values, _) => format!("v{}", (share * *values as f64) as usize),
            Values::Numbers(_, max) => ((share * *max as f64) as i64).to_string(),
        }
    };
    let rows = (0..records).map(|_| own().map(&mut cell).collect()).collect();
    (own().map(hierarchy).collect(), rows)
}

/// Less than `below`, small numbers more often than others.
pub fn skewed(rng: &mut dyn Rng, below: f64) -> u32 {
    (rng.random::<f64>().powi(3) * below) as u32
}

/// The rows as texts, for [`Table::new`].
pub fn texts(rows: &[Vec<String>]) -> impl Iterator<Item = impl Iterator<Item = &str>> {
    rows.iter().map(|row| row.iter().map(String::as_str))
}

/// All columns of Adult as quasi-identifiers.
pub fn census(adult: &Adult, loss: Loss, change: impl FnOnce(&mut Policy)) -> Table {
    let columns = adult.columns_without(&[]);
    let mut policy = policy(adult.hierarchies(&columns), &[], 2, 0.0, loss);
    change(&mut policy);
    Table::new(policy, &[], &columns, adult.records(&columns))
}

/// The mean.
pub fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.into_iter().collect();
    values.iter().sum::<f64>() / values.len() as f64
}
