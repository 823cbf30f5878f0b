//! The criteria counted straight from their definitions, over rows that may have labels on mixed levels. Sensitive and kept values are
//! small numbers, with a letter before them where they are texts.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use veilstream::model::confidential::{Field, Formula, Sentence};
use veilstream::model::policy::{Criterion, Distance, Diversity};

/// One published row: its labels, the person that it counts for, its sensitive values, and a kept one.
#[derive(Debug, Clone)]
pub struct Member {
    pub labels: Vec<String>,
    pub who: u64,
    pub sensitive: Vec<u8>,
    pub kept: Option<u8>,
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
    let any = |values: &[String], own: u8| values.iter().any(|value| value.trim_start_matches('v') == own.to_string());
    match formula {
        Formula::In(Field::Sensitive(field), values) => any(values, row.sensitive[*field]),
        Formula::In(Field::Kept(_), values) => any(values, row.kept.unwrap()),
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

fn minds(sentence: &Sentence, row: &Member) -> bool {
    sentence.when.as_ref().is_none_or(|when| is_true(when, row))
}

/// The share of each value of a sensitive field below `values`, by people who have it.
fn shares(class: &[&Member], field: usize, values: usize) -> Vec<f64> {
    let counts = counts(class, field);
    let total: f64 = counts.values().sum();
    (0..values).map(|value| counts.get(&(value as u8)).unwrap_or(&0.0) / total).collect()
}

/// True if the rows of a release satisfy the criterion, in a policy with these sentences.
pub fn satisfies(criterion: &Criterion, rows: &[Member], sentences: &[&Sentence]) -> bool {
    let Some(first) = rows.first() else { return !matches!(criterion, Criterion::MinSecurity(_)) };
    let every: Vec<usize> = (0..first.labels.len()).collect();
    let all: Vec<&Member> = rows.iter().collect();
    let (criterion, known) = match criterion {
        Criterion::Over { known, criterion } => (&**criterion, known),
        plain => (plain, &every),
    };
    let classes = groups(rows, known);
    let each = |holds: &dyn Fn(&[&Member]) -> bool| classes.iter().all(|class| holds(class));
    match criterion {
        Criterion::KAnonymity(k) => each(&|class| people(class) >= k.0 as usize),
        Criterion::LDiversity { field, l, variant } => each(&|class| diverse(class, *field, *l, *variant)),
        Criterion::TCloseness { field, t, distance } => {
            let values = 1 + usize::from(rows.iter().map(|row| row.sensitive[*field]).max().unwrap());
            let release = shares(&all, *field, values);
            each(&|class| earth_moved(&shares(class, *field, values), &release, distance) <= *t + 1e-9)
        }
        Criterion::PSensitive { field, p } => each(&|class| counts(class, *field).len() >= *p as usize),
        Criterion::AlphaK { field, alpha, k } => {
            each(&|class| people(class) >= k.0 as usize && confidence(class, *field) <= *alpha + 1e-9)
        }
        Criterion::Confidential(own) => each(&|class| {
            let falsified = |sentence: &Sentence| class.iter().any(|row| !is_true(&sentence.says, row));
            own.iter().all(|sentence| !class.iter().any(|row| minds(sentence, row)) || falsified(sentence))
        }),
        Criterion::Lkc { l, k, c, fields } => {
            let subsets = (0..1usize << every.len()).filter(|set| set.count_ones() as usize <= *l);
            let known = |set: usize| every.iter().copied().filter(|at| set >> at & 1 == 1).collect::<Vec<_>>();
            subsets.flat_map(|set| groups(rows, &known(set))).all(|group| {
                let confident = fields.iter().all(|&field| confidence(&group, field) <= *c + 1e-9);
                people(&group) >= k.0 as usize && confident
            })
        }
        Criterion::MinSecurity(least) => security(&classes, &all, sentences) >= *least - 1e-9,
        Criterion::Over { .. } => unreachable!(),
    }
}

/// The cheapest way to turn one distribution into the other. Small enough to be found by moving along the ground
/// distance pair by pair, nearest first, which is optimal for the three distances used here only on a line and in a tree;
/// so it is solved as a flow by successive cheapest paths.
fn earth_moved(class: &[f64], release: &[f64], distance: &Distance) -> f64 {
    let n = release.len();
    let present: Vec<usize> = (0..n).filter(|&v| class[v] + release[v] > 0.0).collect();
    let ground = |a: usize, b: usize| -> f64 {
        if a == b {
            return 0.0;
        }
        match distance {
            Distance::Equal => 1.0,
            Distance::Ordered { order } => {
                let rank = |value: usize| match order {
                    None => present.iter().position(|v| *v == value).unwrap(),
                    Some(order) => {
                        let mut listed = order.iter().filter(|v| present.iter().any(|p| p.to_string() == **v));
                        listed.position(|v| *v == value.to_string()).unwrap()
                    }
                };
                rank(a).abs_diff(rank(b)) as f64 / (present.len() - 1) as f64
            }
            Distance::Hierarchical(_) => {
                // Two values each have a parent below the top.
                if a / 2 == b / 2 { 0.5 } else { 1.0 }
            }
        }
    };
    // min cost flow on n x n: augment along the cheapest path in the residual graph (Bellman-Ford).
    let mut give: Vec<f64> = (0..n).map(|v| (class[v] - release[v]).max(0.0)).collect();
    let mut take: Vec<f64> = (0..n).map(|v| (release[v] - class[v]).max(0.0)).collect();
    let mut flow = vec![vec![0.0f64; n]; n];
    let mut cost = 0.0;
    loop {
        // Nodes below n give, the others take.
        let mut least = vec![f64::INFINITY; 2 * n];
        let mut from = vec![usize::MAX; 2 * n];
        (0..n).filter(|&v| give[v] > 1e-12).for_each(|v| least[v] = 0.0);
        for _ in 0..2 * n {
            for a in present.iter().copied() {
                for b in present.iter().copied() {
                    if least[a] + ground(a, b) < least[n + b] - 1e-12 {
                        (least[n + b], from[n + b]) = (least[a] + ground(a, b), a);
                    }
                    if flow[a][b] > 1e-12 && least[n + b] - ground(a, b) < least[a] - 1e-12 {
                        (least[a], from[a]) = (least[n + b] - ground(a, b), n + b);
                    }
                }
            }
        }
        let goals = (0..n).filter(|&v| take[v] > 1e-12 && least[n + v].is_finite());
        let Some(goal) = goals.min_by(|a, b| least[n + a].total_cmp(&least[n + b])) else { return cost };
        let mut path = vec![n + goal];
        while from[path[path.len() - 1]] != usize::MAX {
            path.push(from[path[path.len() - 1]]);
        }
        path.reverse();
        let mut amount = give[path[0]].min(take[goal]);
        for step in path.windows(2).filter(|step| step[0] >= n) {
            amount = amount.min(flow[step[1]][step[0] - n]);
        }
        for step in path.windows(2) {
            if step[0] < n { flow[step[0]][step[1] - n] += amount } else { flow[step[1]][step[0] - n] -= amount }
        }
        give[path[0]] -= amount;
        take[goal] -= amount;
        cost += amount * least[n + goal];
    }
}

/// Which sentences are true of a record, and which are confidential for it.
type Kind = (Vec<bool>, Vec<bool>);

/// Mean security. With a subject, a person counts once per class and kind of record.
fn security(classes: &[Vec<&Member>], all: &[&Member], sentences: &[&Sentence]) -> f64 {
    let kind = |row: &Member| -> Kind {
        (sentences.iter().map(|s| is_true(&s.says, row)).collect(), sentences.iter().map(|s| minds(s, row)).collect())
    };
    let kinds = |group: &[&Member]| -> BTreeSet<(u64, Kind)> { group.iter().map(|row| (row.who, kind(row))).collect() };
    let share = |kinds: &BTreeSet<(u64, Kind)>, s: usize| {
        kinds.iter().filter(|(_, (holds, _))| holds[s]).count() as f64 / kinds.len() as f64
    };
    let release = kinds(all);
    let (mut sum, mut people_in_all) = (0.0, 0.0);
    for class in classes {
        let own = kinds(class);
        let mut risks = 0.0;
        for (_, (_, minded)) in &own {
            let damage: f64 = (0..sentences.len()).filter(|&s| minded[s]).map(|s| sentences[s].damage).sum();
            for s in (0..sentences.len()).filter(|&s| minded[s]) {
                let (before, after) = (sentences[s].prior.unwrap_or(share(&release, s)), share(&own, s));
                if before > 0.0 && before < 1.0 && after > 0.0 {
                    risks += sentences[s].damage / damage * ((before.ln() - after.ln()) / before.ln()).max(0.0);
                }
            }
        }
        let size = people(class) as f64;
        sum += size * (1.0 - risks / own.len() as f64);
        people_in_all += size;
    }
    sum / people_in_all
}
