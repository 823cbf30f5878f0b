//! The criteria counted straight from their definitions, over rows that may have labels on mixed levels.
#![allow(unreachable_pub)]

use std::collections::{BTreeMap, BTreeSet};

use veilstream::model::confidential::{Field, Formula};
use veilstream::model::policy::{Criterion, Diversity};

/// One published row: its labels, the person that it counts for, and its sensitive values.
#[derive(Debug, Clone)]
pub struct Member {
    pub labels: Vec<String>,
    pub who: u64,
    pub sensitive: Vec<u8>,
}

/// The rows that show the same in the attributes `known`.
fn groups<'m>(rows: &'m [Member], known: &[usize]) -> Vec<Vec<&'m Member>> {
    let mut groups: BTreeMap<Vec<&str>, Vec<&Member>> = BTreeMap::new();
    for row in rows {
        groups.entry(known.iter().map(|&at| row.labels[at].as_str()).collect()).or_default().push(row);
    }
    groups.into_values().collect()
}

fn people(class: &[&Member]) -> usize {
    class.iter().map(|row| row.who).collect::<BTreeSet<_>>().len()
}

/// For each value of a sensitive field, how many people have it.
fn counts(class: &[&Member], field: usize) -> BTreeMap<u8, f64> {
    let pairs: BTreeSet<(u8, u64)> = class.iter().map(|row| (row.sensitive[field], row.who)).collect();
    let mut counts = BTreeMap::new();
    pairs.into_iter().for_each(|(value, _)| *counts.entry(value).or_default() += 1.0);
    counts
}

/// The share of the people of a class who have its most frequent value.
fn confidence(class: &[&Member], field: usize) -> f64 {
    counts(class, field).into_values().fold(0.0, f64::max) / people(class) as f64
}

fn is_true(formula: &Formula, row: &Member) -> bool {
    match formula {
        Formula::In(Field::Sensitive(field), values) => values.contains(&format!("v{}", row.sensitive[*field])),
        Formula::In(Field::Kept(_), _) => panic!("no sentence speaks of kept fields here"),
        Formula::Not(inner) => !is_true(inner, row),
        Formula::All(inner) => inner.iter().all(|formula| is_true(formula, row)),
        Formula::Any(inner) => inner.iter().any(|formula| is_true(formula, row)),
    }
}

fn diverse(class: &[&Member], field: usize, l: f64, variant: Diversity) -> bool {
    let mut counts: Vec<f64> = counts(class, field).into_values().collect();
    counts.sort_by(|a, b| b.total_cmp(a));
    let total: f64 = counts.iter().sum();
    match variant {
        Diversity::Distinct => counts.len() as f64 >= l,
        Diversity::Entropy => {
            counts.iter().map(|count| -(count / total) * (count / total).log2()).sum::<f64>() >= l.log2() - 1e-9
        }
        Diversity::Recursive { c } => counts[0] < c * counts.iter().skip(l as usize - 1).sum::<f64>(),
    }
}

/// Half the sum of the differences of shares: the earth mover's distance where all values are equally far apart.
fn distance(class: &[&Member], all: &[&Member], field: usize) -> f64 {
    let shares = |rows: &[&Member]| -> BTreeMap<u8, f64> {
        let counts = counts(rows, field);
        let total: f64 = counts.values().sum();
        counts.into_iter().map(|(value, count)| (value, count / total)).collect()
    };
    let (own, release) = (shares(class), shares(all));
    release.iter().map(|(value, share)| (share - own.get(value).unwrap_or(&0.0)).abs()).sum::<f64>() / 2.0
}

/// True if the rows of a release satisfy the criterion.
pub fn satisfies(criterion: &Criterion, rows: &[Member]) -> bool {
    let Some(first) = rows.first() else { return true };
    let every: Vec<usize> = (0..first.labels.len()).collect();
    let all: Vec<&Member> = rows.iter().collect();
    let (criterion, known) = match criterion {
        Criterion::Over { known, criterion } => (&**criterion, known),
        plain => (plain, &every),
    };
    let classes = groups(rows, known);
    classes.iter().all(|class| match criterion {
        Criterion::KAnonymity(k) => people(class) >= k.0 as usize,
        Criterion::LDiversity { field, l, variant } => diverse(class, *field, *l, *variant),
        Criterion::TCloseness { field, t, .. } => distance(class, &all, *field) <= *t + 1e-9,
        Criterion::PSensitive { field, p } => counts(class, *field).len() >= *p as usize,
        Criterion::AlphaK { field, alpha, k } => {
            people(class) >= k.0 as usize && confidence(class, *field) <= *alpha + 1e-9
        }
        Criterion::Confidential(sentences) => sentences.iter().all(|sentence| {
            let minds = |row: &&&Member| sentence.when.as_ref().is_none_or(|when| is_true(when, row));
            !class.iter().any(|row| minds(&row)) || class.iter().any(|row| !is_true(&sentence.says, row))
        }),
        Criterion::Lkc { .. } | Criterion::MinSecurity(_) | Criterion::Over { .. } => true,
    }) && match criterion {
        Criterion::Lkc { l, k, c, fields } => {
            let subsets = (0..1usize << every.len()).filter(|set| set.count_ones() as usize <= *l);
            let known = |set: usize| every.iter().copied().filter(|at| set >> at & 1 == 1).collect::<Vec<_>>();
            subsets.flat_map(|set| groups(rows, &known(set))).all(|group| {
                let confident = fields.iter().all(|&field| confidence(&group, field) <= *c + 1e-9);
                people(&group) >= k.0 as usize && confident
            })
        }
        _ => true,
    }
}
