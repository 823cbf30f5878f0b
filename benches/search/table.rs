//! The tables that are searched, how a search of one is timed, and how times are written.

use super::*;

/// Encoded rows, and the policy they were encoded by.
pub(crate) struct Table {
    pub(crate) policy: Policy,
    pub(crate) dictionaries: Dictionaries,
    pub(crate) sizes: Vec<usize>,
    pub(crate) rows: Rows,
}

/// Milliseconds of CPU per run.
pub(crate) struct Timing {
    pub(crate) algorithm: Algorithm,
    pub(crate) checks: u64,
    pub(crate) loss: f64,
    pub(crate) count: f64,
    pub(crate) search: f64,
}

impl Timing {
    pub(crate) fn total(&self) -> f64 {
        self.count + self.search
    }

    /// Milliseconds; to be divided by the reference.
    pub(crate) fn figure(&self, what: &str, limit: f64) -> Figure {
        let name = format!("{what}/{}/{:.0}%", self.algorithm.as_str(), limit * 100.0);
        Figure { name, ratio: self.total() }
    }

    pub(crate) fn print(&self, limit: f64, arx: Option<(f64, f64)>) {
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
    pub(crate) fn adult(adult: &Adult, sensitive: &[&str]) -> Self {
        Self::adult_of(adult, sensitive, false)
    }

    /// The census table; if `people`, with somebody else as the subject of each record.
    pub(crate) fn adult_of(adult: &Adult, sensitive: &[&str], people: bool) -> Self {
        let columns = adult.columns_without(sensitive);
        let mut others: Vec<(&str, Role)> = sensitive.iter().map(|name| (*name, Role::Sensitive)).collect();
        others.extend(people.then_some(("person", Role::Subject)));
        let policy = policy(adult.hierarchies(&columns), &others, 5);
        let all = [&columns, sensitive].concat();
        let records = adult.records(&all).enumerate().map(|(i, cells)| {
            let person = people.then(|| Value::Text(i.to_string().into()));
            cells.into_iter().map(text).chain(person).collect::<Vec<_>>()
        });
        Self::new(policy, records)
    }

    /// Every attribute a code of `height` letters, each letter less evenly spread than the one before.
    pub(crate) fn synthetic(records: usize, attributes: usize, height: usize) -> Self {
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
        Self::new(policy(quasi, &[], 5), rows.into_iter())
    }

    pub(crate) fn new<'a>(policy: Policy, records: impl Iterator<Item = Vec<Value<'a>>>) -> Self {
        let (encoder, rows) = encoded(&policy, records);
        Self { policy, dictionaries: encoder.dictionaries(), sizes: encoder.sizes(), rows }
    }

    /// The rows so many times over, a tenth of their quasi-identifiers redrawn from their columns.
    pub(crate) fn redrawn(&self, times: usize) -> Self {
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

    pub(crate) fn push(&mut self, quasi: &[u32], sensitive: &[u32], subject: u64) {
        let position = Position::new(0, self.rows.len() as i64);
        let row = Row { quasi: quasi.into(), sensitive: sensitive.into(), subject, ..Row::default() };
        self.rows.push(position, Millis(0), &row);
    }

    pub(crate) fn policy_with(&self, limit: f64, criteria: Vec<Criterion>) -> Policy {
        Policy { suppression: SuppressionLimit(limit), criteria, ..self.policy.clone() }
    }

    pub(crate) fn count(&self, rules: &Rules) -> (Arc<dyn FrequencySets>, usize) {
        let domains = &self.dictionaries.quasi;
        let sets = counter::count(&self.rows, &rules.counting(), domains, DEFAULT_WARM_MEMORY).expect("the keys fit");
        let tuples = sets.base().len();
        (sets, tuples)
    }

    pub(crate) fn describe(&self) -> String {
        let (_, tuples) = self.count(&Rules::new(&self.policy));
        format!("{} records, {tuples} tuples, {} nodes", self.rows.len(), self.policy.lattice().size())
    }

    pub(crate) fn time(&self, policy: &Policy, algorithm: Algorithm, times: usize) -> Timing {
        let rules = Rules::new(policy).bind(&self.dictionaries.values());
        let run = |sets: Arc<dyn FrequencySets>| -> (Outcome, u64) {
            let evaluator = Evaluator::new(policy, &rules, sets);
            let mut rng = ChaCha8Rng::seed_from_u64(1);
            let outcome = algorithm.search().run(&policy.lattice(), &evaluator, &Budget::unlimited(), &mut rng);
            let checks = evaluator.checks();
            (outcome, checks)
        };
        let (outcome, checks) = run(self.count(&rules).0);
        let proves = !matches!(algorithm, Algorithm::TabuGa | Algorithm::SubtreeBottomUp);
        assert!(outcome.stop == StopReason::Proven || !proves);
        let loss = outcome.best.map_or(f64::NAN, |best| best.evaluation.loss);
        // The two apart, each at its shortest.
        let (mut count, mut search) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..times {
            let (counting, (sets, _)) = timed(|| self.count(&rules));
            let (searching, ran) = timed(|| run(sets));
            black_box(ran.1);
            count = count.min(counting.as_secs_f64() * 1e3);
            search = search.min(searching.as_secs_f64() * 1e3);
        }
        Timing { algorithm, checks, loss, count, search }
    }
}

pub(crate) fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of[of.len() / 2]
}

pub(crate) fn timed_once(work: impl FnOnce()) -> f64 {
    timed(work).0.as_secs_f64() * 1e3
}

pub(crate) fn ms(milliseconds: f64) -> String {
    if milliseconds < 100.0 { format!("{milliseconds:.2} ms") } else { format!("{milliseconds:.0} ms") }
}
