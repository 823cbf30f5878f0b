//! A synthetic population: people with fixed attributes, skewed and correlated as real ones are.
//!
//! Everything follows from the seed; no floating-point function that differs between machines is used. Nobody here is
//! real: identifiers are numbers, and places and jobs come from the short lists below.

use jiff::civil::Date;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// Countries, most frequent first, each with the first digits its postal codes start from.
pub(super) const COUNTRIES: [(&str, u32); 20] = [
    ("DE", 10),
    ("FR", 75),
    ("IT", 20),
    ("ES", 28),
    ("PL", 30),
    ("NL", 11),
    ("SE", 41),
    ("AT", 50),
    ("US", 90),
    ("BR", 22),
    ("MX", 64),
    ("CA", 33),
    ("JP", 53),
    ("IN", 56),
    ("KR", 48),
    ("VN", 70),
    ("NG", 23),
    ("KE", 80),
    ("ZA", 62),
    ("EG", 19),
];

pub(super) const SEXES: [&str; 3] = ["female", "male", "other"];

/// Levels of education, lowest first.
pub(super) const EDUCATION: [&str; 8] =
    ["none", "primary", "secondary", "vocational", "some-college", "bachelor", "master", "doctorate"];

pub(super) const MARITAL: [&str; 5] = ["single", "married", "divorced", "widowed", "separated"];

/// Occupations, roughly by the education they ask for.
pub(super) const OCCUPATIONS: [&str; 14] = [
    "cleaning",
    "farming",
    "transport",
    "construction",
    "sales",
    "service",
    "craft",
    "office",
    "technician",
    "nursing",
    "teaching",
    "management",
    "engineering",
    "research",
];

/// Reasons for a visit, most frequent first; the later ones are commoner with age.
pub(super) const DIAGNOSES: [&str; 12] = [
    "cold",
    "back pain",
    "allergy",
    "checkup",
    "migraine",
    "injury",
    "anxiety",
    "asthma",
    "hypertension",
    "diabetes",
    "arthritis",
    "heart disease",
];

/// The day on which ages are counted.
pub(super) const TODAY: Date = jiff::civil::date(2026, 1, 1);

/// One person. Attributes are indexes into the lists above.
pub(super) struct Person {
    pub(super) age: u8,
    pub(super) sex: u8,
    pub(super) country: u8,
    pub(super) zip: u32,
    pub(super) education: u8,
    pub(super) marital: u8,
    pub(super) occupation: u8,
    pub(super) earns_much: bool,
    pub(super) born: Date,
}

/// All people, in two cohorts: the second is younger and lives elsewhere.
pub(super) struct Population {
    people: Vec<Person>,
    /// The index of the first person of the second cohort.
    second: usize,
}

impl Population {
    pub(super) fn new(seed: u64, subjects: usize) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let subjects = subjects.max(1);
        let second = subjects - subjects / 3;
        let people = (0..subjects).map(|i| person(&mut rng, i >= second)).collect();
        Self { people, second }
    }

    /// Someone, with the number that identifies them. Few people come often, most come rarely.
    pub(super) fn pick(&self, rng: &mut ChaCha8Rng, drifted: bool) -> (usize, &Person) {
        let from_second = rng.random_range(0..100) < if drifted { 70 } else { 10 };
        let (start, len) = match self.people.len() - self.second {
            0 => (0, self.second),
            len if from_second => (self.second, len),
            _ => (0, self.second),
        };
        let index = start + skewed(rng, len);
        (index, &self.people[index])
    }
}

/// An index below `len`; the low ones are more frequent, with density proportional to one over the square root.
pub(super) fn skewed(rng: &mut ChaCha8Rng, len: usize) -> usize {
    let u: f64 = rng.random();
    ((u * u * len as f64) as usize).min(len.saturating_sub(1))
}

/// An index into weights.
fn weighted(rng: &mut ChaCha8Rng, weights: &[u32]) -> usize {
    let mut draw = rng.random_range(0..weights.iter().sum::<u32>().max(1));
    for (i, weight) in weights.iter().enumerate() {
        match draw.checked_sub(*weight) {
            Some(rest) => draw = rest,
            None => return i,
        }
    }
    0
}

fn person(rng: &mut ChaCha8Rng, second_cohort: bool) -> Person {
    // People per decade of life from the teens on.
    let pyramid: &[u32] = if second_cohort { &[10, 40, 25, 12, 7, 4, 2] } else { &[4, 14, 18, 20, 19, 14, 11] };
    let decade = weighted(rng, pyramid) as u8;
    let age = ((decade + 1) * 10 + rng.random_range(0..10)).max(16);
    // One over the rank; the second cohort starts at the other end of the list.
    let rank = weighted(rng, &std::array::from_fn::<u32, { COUNTRIES.len() }, _>(|i| 1000 / (i as u32 + 1)));
    let country = if second_cohort { COUNTRIES.len() - 1 - rank } else { rank };
    let area = (COUNTRIES[country].1 + skewed(rng, 8) as u32) % 100;
    let zip = area * 1000 + (skewed(rng, 10) as u32) * 100 + skewed(rng, 25) as u32;
    let education = weighted(rng, if age < 22 { &[1, 4, 40, 20, 30, 2, 0, 0] } else { &[1, 6, 28, 22, 12, 18, 10, 3] });
    // A job near the level of education, give or take two.
    let level = education * (OCCUPATIONS.len() - 1) / (EDUCATION.len() - 1);
    let occupation = (level + rng.random_range(0..5)).saturating_sub(2).min(OCCUPATIONS.len() - 1);
    let chance = 4 * education + 2 * occupation + usize::from(age.clamp(20, 50) - 20) / 2;
    let earns_much = rng.random_range(0..90) < chance;
    let marital = weighted(
        rng,
        match age {
            ..25 => &[90, 8, 1, 0, 1],
            25..45 => &[40, 47, 9, 1, 3],
            45..65 => &[15, 58, 18, 5, 4],
            _ => &[8, 52, 13, 25, 2],
        },
    );
    Person {
        age,
        sex: weighted(rng, &[50, 49, 1]) as u8,
        country: country as u8,
        zip,
        education: education as u8,
        marital: marital as u8,
        occupation: occupation as u8,
        earns_much,
        born: born(age, rng.random_range(0..365)),
    }
}

/// A day of birth that makes someone `age` years old today.
fn born(age: u8, days_ago: i32) -> Date {
    // The turn of the year is no leap day, so `TODAY` exists in every year; the fallbacks cannot be reached.
    let birthday = Date::new(TODAY.year() - i16::from(age), TODAY.month(), TODAY.day()).unwrap_or(TODAY);
    birthday.checked_sub(jiff::Span::new().days(days_ago)).unwrap_or(birthday)
}
