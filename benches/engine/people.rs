//! Census-like people as JSON, made here: eight quasi-identifiers with the skew, the heights and the lattice of the Adult table
//! (4,320 nodes), an occupation, and fields that the policy drops. With the real table at hand its rows are used instead, a tenth
//! of their cells redrawn.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use veilstream::model::event::{Event, Position};
use veilstream::model::hierarchy::Hierarchy;
use veilstream::model::policy::{Criterion, Diversity, K, Policy, RecodingKind, SuppressionLimit};
use veilstream::model::schema::Role;
use veilstream::search::Algorithm;
use veilstream::search::choose::{Choice, Levels};

use crate::adult::Adult;
use crate::fixture::{choice, policy};

/// A field: its values with what they generalize to, and how often each occurs.
#[derive(Clone)]
struct Field {
    name: &'static str,
    values: Vec<(String, String, u32)>,
}

/// Where people come from, and what is promised to them.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) policy: Arc<Policy>,
    fields: Vec<Field>,
    /// Rows of the real table, as indexes into the fields' values.
    rows: Vec<Vec<usize>>,
}

/// Values are written `value>ancestors=weight`, with `/` between ancestors.
const FIELDS: [(&str, &str); 8] = [
    ("sex", "Male=67 Female=33"),
    ("race", "White=860 Asian-Pac-Islander=30 Amer-Indian-Eskimo=10 Other=8 Black=93"),
    (
        "marital-status",
        "Married-civ-spouse>present=466 Divorced>absent=140 Never-married>absent=322 Separated>absent=31 \
         Widowed>absent=27 Married-spouse-absent>absent=12 Married-AF-spouse>present=1",
    ),
    (
        "education",
        "HS-grad>School/Secondary=326 Some-college>Undergraduate/Higher=221 Bachelors>Undergraduate/Higher=167 \
         Masters>Graduate/Higher=54 Assoc-voc>Professional/Higher=43 11th>School/Secondary=35 \
         Assoc-acdm>Professional/Higher=33 10th>School/Secondary=27 7th-8th>School/Secondary=18 \
         Prof-school>Professional/Higher=18 9th>School/Secondary=15 12th>School/Secondary=13 Doctorate>Graduate/Higher=12 \
         5th-6th>Primary/First=10 1st-4th>Primary/First=5 Preschool>Primary/First=2",
    ),
    (
        "native-country",
        "United-States>North-America=9120 Mexico>North-America=202 Philippines>Asia=62 Germany>Europe=42 \
         Puerto-Rico>North-America=36 Canada>North-America=36 India>Asia=33 El-Salvador>Central-America=33 \
         Cuba>North-America=31 England>Europe=29 Jamaica>North-America=27 South>Asia=24 China>Asia=23 Italy>Europe=23 \
         Dominican-Republic>North-America=22 Vietnam>Asia=21 Guatemala>Central-America=21 Japan>Asia=20 Poland>Europe=19 \
         Columbia>South-America=19 Iran>Asia=14 Taiwan>Asia=14 Haiti>North-America=14 Portugal>Europe=11 \
         Nicaragua>Central-America=11 Peru>South-America=10 Greece>Europe=10 France>Europe=9 Ecuador>South-America=9 \
         Ireland>Europe=8 Hong>Asia=6 Trinadad&Tobago>South-America=6 Cambodia>Asia=6 Laos>Asia=6 Thailand>Asia=6 \
         Yugoslavia>Europe=5 Outlying-US>North-America=5 Hungary>Europe=4 Honduras>Central-America=4 Scotland>Europe=4 \
         Holand-Netherlands>Europe=1",
    ),
    (
        "workclass",
        "Private>Non-Government=739 Self-emp-not-inc>Non-Government=83 Local-gov>Government=69 State-gov>Government=42 \
         Self-emp-inc>Non-Government=36 Federal-gov>Government=31 Without-pay>Unemployed=1",
    ),
    ("salary-class", "<=50K=751 >50K=249"),
    (
        "occupation",
        "Prof-specialty>Technical=134 Craft-repair>Technical=134 Exec-managerial>Nontechnical=132 \
         Adm-clerical>Other=123 Sales>Nontechnical=119 Other-service>Other=106 Machine-op-inspct>Technical=65 \
         Transport-moving>Other=52 Handlers-cleaners>Nontechnical=45 Farming-fishing>Other=33 Tech-support>Technical=30 \
         Protective-serv>Other=21 Priv-house-serv>Other=5 Armed-Forces>Other=1",
    ),
];

/// How often somebody is so many years old, from 17 on.
fn age_weight(age: u32) -> u32 {
    match age {
        0..17 => 0,
        17..25 => 24,
        25..45 => 27,
        45..70 => 27 - (age - 45),
        _ => 2,
    }
}

fn ages() -> Field {
    let band = |age: u32, width: u32| format!("{}-{}", age / width * width, age / width * width + width - 1);
    let value = |age: u32| (age.to_string(), [5, 10, 20].map(|width| band(age, width)).join(";"), age_weight(age));
    Field { name: "age", values: (1..100).map(value).collect() }
}

fn field((name, values): (&'static str, &str)) -> Field {
    let value = |text: &str| {
        let (value, weight) = text.rsplit_once('=').expect("a weight");
        let (leaf, above) =
            if name == "salary-class" { (value, "") } else { value.split_once('>').unwrap_or((value, "")) };
        (leaf.to_owned(), above.replace('/', ";"), weight.parse().expect("a number"))
    };
    Field { name, values: values.split_whitespace().map(value).collect() }
}

impl Case {
    /// Every case that can be run here: the first is what the targets are about.
    pub(crate) fn all() -> Vec<Self> {
        let mut cases = vec![
            Self::new("records", &[], vec![Criterion::KAnonymity(K(5))]),
            Self::new(
                "people",
                &[("id", Role::Subject), ("hours-per-week", Role::Insensitive)],
                vec![
                    Criterion::KAnonymity(K(5)),
                    Criterion::LDiversity { field: 0, l: 3.0, variant: Diversity::Distinct },
                ],
            ),
        ];
        if let Some(table) = Adult::find() {
            let mut adult = Self::new("adult", &[], vec![Criterion::KAnonymity(K(5))]);
            let columns: Vec<&str> = adult.fields.iter().map(|field| field.name).collect();
            let index = |field: &Field, text: &str| field.values.iter().position(|(value, ..)| value == text);
            let row = |cells: Vec<&str>| adult.fields.iter().zip(cells).map(|(f, cell)| index(f, cell)).collect();
            adult.rows = table.records(&columns).filter_map(row).collect();
            cases.push(adult);
        }
        cases
    }

    /// The same people under the same policy with `recoding: local`.
    pub(crate) fn local(&self) -> Self {
        let policy = Policy { recoding: RecodingKind::Local, ..(*self.policy).clone() };
        Self { name: self.name, policy: Arc::new(policy), fields: self.fields.clone(), rows: self.rows.clone() }
    }

    fn new(name: &'static str, others: &[(&str, Role)], criteria: Vec<Criterion>) -> Self {
        let mut fields = vec![ages()];
        fields.extend(FIELDS.map(field));
        let quasi = |field: &Field| {
            let line = |(leaf, above, _): &(String, String, u32)| match above.as_str() {
                "" => format!("{leaf};*\n"),
                above => format!("{leaf};{above};*\n"),
            };
            let csv: String = field.values.iter().map(line).collect();
            (field.name, Hierarchy::parse_csv(csv.as_bytes()).expect("a hierarchy"))
        };
        let quasi = fields.iter().filter(|f| f.name != "occupation").map(quasi).collect();
        let policy = policy(quasi, &[&[("occupation", Role::Sensitive)], others].concat(), 5);
        let policy = Policy { criteria, suppression: SuppressionLimit(0.05), fingerprint: name.into(), ..policy };
        Self { name, policy: Arc::new(policy), fields, rows: Vec::new() }
    }

    /// The exact optimum, searched anew for every window.
    pub(crate) fn choice() -> Choice {
        Choice { time_budget: Duration::from_secs(60), ..choice(Algorithm::Optimal, Levels::default()) }
    }

    /// The events of `records` people from number `first` on. The same numbers give the same bytes.
    pub(crate) fn events(&self, first: usize, records: usize) -> Vec<Event> {
        let mut rng = ChaCha8Rng::seed_from_u64(first as u64);
        let totals: Vec<u32> = self.fields.iter().map(|f| f.values.iter().map(|(_, _, weight)| weight).sum()).collect();
        let draw = |field: usize, rng: &mut ChaCha8Rng| {
            let mut left = rng.random_range(0..totals[field]);
            let at = self.fields[field].values.iter().position(|&(_, _, weight)| {
                let found = left < weight;
                left = left.saturating_sub(weight);
                found
            });
            at.unwrap_or_default()
        };
        let event = |number: usize| {
            let mut chosen: Vec<usize> = match self.rows.get(number % self.rows.len().max(1)) {
                Some(row) => row.clone(),
                None => (0..self.fields.len()).map(|field| draw(field, &mut rng)).collect(),
            };
            if !self.rows.is_empty() {
                for (field, value) in chosen.iter_mut().enumerate() {
                    if rng.random_range(0..10) == 0 {
                        *value = draw(field, &mut rng);
                    }
                }
            }
            let value = |name: &str| {
                let at = self.fields.iter().position(|f| f.name == name).expect("a field");
                self.fields[at].values[chosen[at]].0.as_str()
            };
            // Some people come more than once.
            let id = number - usize::from(rng.random_range(0..5) == 0) * rng.random_range(0..100).min(number);
            let text = format!(
                r#"{{"id":"p{id:07}","age":{},"workclass":"{}","education":"{}","marital-status":"{}","occupation":"{}","race":"{}","sex":"{}","hours-per-week":{},"native-country":"{}","salary-class":"{}"}}"#,
                value("age"),
                value("workclass"),
                value("education"),
                value("marital-status"),
                value("occupation"),
                value("race"),
                value("sex"),
                rng.random_range(20..60),
                value("native-country"),
                value("salary-class"),
            );
            (number, text)
        };
        // One buffer and slices of it, as a source that reads blocks has them.
        let texts: Vec<(usize, String)> = (first..first + records).map(event).collect();
        let all = Bytes::from(texts.iter().map(|(_, text)| text.as_str()).collect::<String>());
        let mut at = 0;
        let slice = |(number, text): &(usize, String)| {
            at += text.len();
            let payload = Some(all.slice(at - text.len()..at));
            Event { position: Position::new(0, *number as i64), placement: 0, timestamp: None, key: None, payload }
        };
        texts.iter().map(slice).collect()
    }
}
