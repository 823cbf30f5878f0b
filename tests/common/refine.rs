//! T31: what a reader learns from a local release who knows its schedule, the hierarchies and the steps at which classes were released.
//!
//! *Refinement* excludes values: a record of one class cannot have a tuple that an earlier step releases elsewhere. *Downcoding* gives a
//! row finer labels than were published: with certainty where all values that are left lie below one finer label, and by a guess where
//! one tuple is more frequent in the whole table than the others that are left.
#![allow(dead_code, unreachable_pub)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use veilstream::model::policy::Policy;
use veilstream::model::schedule::Schedule;

use super::common::{Attribute, Table};
use super::stream::{Row, classes, town};

/// A window of people in a town whose streets, ages and jobs are not equally frequent.
pub fn skewed(records: usize, seed: u64) -> Table {
    let mut table = town(records, 2, seed);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for (number, line) in table.lines.iter_mut().enumerate() {
        let leaf = |attribute: &Attribute, rng: &mut ChaCha8Rng| {
            let leaves = attribute.paths.len();
            rng.random_range(0..leaves).min(rng.random_range(0..leaves)).min(rng.random_range(0..leaves))
        };
        line.leaves = table.attributes.iter().map(|attribute| leaf(attribute, &mut rng)).collect();
        line.subject = number as u16;
    }
    table
}

/// The values that a tuple of leaves shows at a node.
pub fn shown<'t>(table: &'t Table, leaves: &[usize], node: &[u8]) -> Vec<&'t str> {
    let cell =
        |((attribute, &leaf), &level): ((&'t Attribute, &usize), &u8)| &*attribute.paths[leaf][usize::from(level)];
    table.attributes.iter().zip(leaves).zip(node).map(cell).collect()
}

/// The slow twin of a schedule: per step the values at which people are released, if `k` people are asked for.
pub fn walk<'t>(table: &'t Table, lines: &[usize], schedule: &[&[u8]], k: usize) -> Vec<BTreeSet<Vec<&'t str>>> {
    let mut left: Vec<usize> = lines.to_vec();
    let mut steps = Vec::new();
    for node in schedule {
        let mut people: BTreeMap<Vec<&str>, BTreeSet<u16>> = BTreeMap::new();
        for &line in &left {
            let own = &table.lines[line];
            people.entry(shown(table, &own.leaves, node)).or_default().insert(own.subject);
        }
        let good: BTreeSet<Vec<&str>> =
            people.into_iter().filter(|(_, people)| people.len() >= k).map(|(values, _)| values).collect();
        left.retain(|&line| !good.contains(&shown(table, &table.lines[line].leaves, node)));
        steps.push(good);
    }
    steps
}

/// What the exclusion finds.
#[derive(Default)]
pub struct Narrowed {
    pub rows: usize,
    /// Rows for which fewer combinations of leaves are left than their labels cover.
    pub combinations: usize,
    pub cells: usize,
    /// Cells with fewer leaves than their label has, with one leaf where the label has more, and with a finer label above all leaves.
    pub fewer: usize,
    pub one: usize,
    pub finer: usize,
    /// Rows whose tuple is the most frequent one below their labels, and the most frequent one of those that are left.
    pub guessed: usize,
    pub guessed_left: usize,
}

impl Narrowed {
    pub fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.combinations += other.combinations;
        self.cells += other.cells;
        self.fewer += other.fewer;
        self.one += other.one;
        self.finer += other.finer;
        self.guessed += other.guessed;
        self.guessed_left += other.guessed_left;
    }

    /// Rows with these labels and tuples, of which those in `left` are left to the reader.
    pub fn note(&mut self, city: &City<'_>, labels: &[String], truths: &[&[usize]], left: &BTreeSet<&[usize]>) {
        let covered: Vec<&[usize]> = city.tuples.iter().map(|t| &t[..]).filter(|t| city.covers(labels, t)).collect();
        let best = |of: &mut dyn Iterator<Item = &[usize]>| of.max_by_key(|t| city.frequency(t)).map(<[usize]>::to_vec);
        let guess = best(&mut covered.iter().copied());
        let guess_left = best(&mut left.iter().copied());
        let hits = |guess: &Option<Vec<usize>>| truths.iter().filter(|t| Some(**t) == guess.as_deref()).count();
        let rows = truths.len();
        self.rows += rows;
        self.guessed += hits(&guess);
        self.guessed_left += hits(&guess_left);
        self.combinations += rows * usize::from(left.len() < covered.len());
        for (at, attribute) in city.table.attributes.iter().enumerate() {
            let before = attribute.paths.iter().filter(|path| path.contains(&labels[at])).count();
            let after: BTreeSet<usize> = left.iter().map(|leaves| leaves[at]).collect();
            self.cells += rows;
            self.fewer += rows * usize::from(after.len() < before);
            self.one += rows * usize::from(after.len() == 1 && before > 1);
            let shown = |path: &Vec<String>| path.iter().position(|label| *label == labels[at]).unwrap_or(0);
            let first = after.first().map_or(0, |&leaf| leaf);
            let below = &attribute.paths[first][..shown(&attribute.paths[first])];
            let is_finer = |label: &String| after.iter().all(|&leaf| attribute.paths[leaf].contains(label));
            self.finer += rows * usize::from(below.iter().any(is_finer));
        }
    }
}

impl fmt::Display for Narrowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells = |count: usize| count as f64 / self.cells as f64;
        let rows = |count: usize| count as f64 / self.rows as f64;
        write!(
            f,
            "{:.3} of {} rows have fewer combinations than their labels, {:.4} of cells fewer leaves, {:.4} one, {:.4} a finer \
             label; {:.4} of rows are guessed from their labels, {:.4} from what is left",
            rows(self.combinations),
            self.rows,
            cells(self.fewer),
            cells(self.one),
            cells(self.finer),
            rows(self.guessed),
            rows(self.guessed_left)
        )
    }
}

/// Everything that the reader knows beforehand: the hierarchies, and how frequent each tuple is.
pub struct City<'t> {
    pub table: &'t Table,
    pub tuples: Vec<Vec<usize>>,
    frequencies: BTreeMap<&'t [usize], usize>,
}

impl<'t> City<'t> {
    pub fn new(table: &'t Table) -> Self {
        let mut tuples: Vec<Vec<usize>> = vec![Vec::new()];
        for attribute in &table.attributes {
            let leaves = 0..attribute.paths.len();
            tuples = tuples.iter().flat_map(|t| leaves.clone().map(move |leaf| [&t[..], &[leaf]].concat())).collect();
        }
        let mut frequencies: BTreeMap<&[usize], usize> = BTreeMap::new();
        table.lines.iter().for_each(|line| *frequencies.entry(&line.leaves[..]).or_default() += 1);
        Self { table, tuples, frequencies }
    }

    fn frequency(&self, tuple: &[usize]) -> usize {
        self.frequencies.get(tuple).copied().unwrap_or(0)
    }

    pub fn covers(&self, labels: &[String], leaves: &[usize]) -> bool {
        let mut cells = labels.iter().zip(leaves).zip(&self.table.attributes);
        cells.all(|((label, &leaf), attribute)| attribute.paths[leaf].contains(label))
    }

    pub fn tuple(&self, line: usize) -> &'t [usize] {
        &self.table.lines[line].leaves
    }
}

/// The levels of all steps of the schedule that a plan names, one step after the other; none of a plan that names none.
pub fn steps(policy: &Policy, planned: &[u8]) -> Vec<u8> {
    let schedule = Schedule::from_plan(planned, &policy.lattice());
    schedule.iter().flat_map(|(schedule, _)| schedule.steps()).flat_map(|step| step.levels().to_vec()).collect()
}

/// T31, refinement: a reader knows the schedule, the hierarchies and even the step at which each class was released. A record of
/// one class cannot have a tuple that an earlier step releases elsewhere, so these tuples are excluded. Returns how far cells are
/// narrowed; nobody may be left with fewer than k people.
pub fn refine(table: &Table, rows: &[Row], lines: &[usize], levels: &[u8], k: usize) -> Narrowed {
    let city = City::new(table);
    let schedule: Vec<&[u8]> = levels.chunks(table.attributes.len()).collect();
    let steps = walk(table, lines, &schedule, k);
    // The step that releases a tuple, and the values that it shows there.
    let released = |leaves: &[usize]| {
        let at = |(step, node): (usize, &&[u8])| (step, shown(table, leaves, node));
        schedule.iter().enumerate().map(at).find(|(step, values)| steps[*step].contains(values))
    };
    let step_of: BTreeMap<&[usize], Option<(usize, Vec<&str>)>> =
        city.tuples.iter().map(|t| (&t[..], released(t))).collect();
    let (mut narrowed, mut candidates) = (Narrowed::default(), BTreeMap::<&[usize], BTreeSet<u16>>::new());
    for (labels, members) in classes(rows) {
        let own: BTreeSet<_> = members.iter().map(|&line| &step_of[city.tuple(line)]).collect();
        // Tuples that no step releases may have joined any class.
        let fits = |leaves: &&Vec<usize>| {
            let step = &step_of[&leaves[..]];
            city.covers(labels, leaves) && (step.is_none() || own.contains(step))
        };
        let left: BTreeSet<&[usize]> = city.tuples.iter().filter(fits).map(|leaves| &leaves[..]).collect();
        let people = |line: &&usize| left.contains(city.tuple(**line));
        let people: BTreeSet<u16> = members.iter().filter(people).map(|&line| table.lines[line].subject).collect();
        assert!(people.len() >= k, "a class has {} people after the exclusion", people.len());
        left.iter().for_each(|leaves| candidates.entry(leaves).or_default().extend(&people));
        let truths: Vec<&[usize]> = members.iter().map(|&line| city.tuple(line)).collect();
        narrowed.note(&city, labels, &truths, &left);
    }
    // Whoever knows somebody's values finds at least k people for them.
    for row in rows {
        assert!(candidates[city.tuple(row.line)].len() >= k);
    }
    narrowed
}
