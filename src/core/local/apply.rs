//! Applies a schedule to a window: from tuples to classes with labels.
//!
//! 1. Walk: at each node the tuples that are left are grouped by what they show there. The classes that satisfy the policy are released,
//!    the other tuples go on to the next node. Tuples of held rows are grouped too but count nothing, so a held row joins the first
//!    released class that shows what the row shows at that node.
//! 2. Tighten: a class shows, per attribute, the lowest common ancestor of its members, not below `min_level`.
//! 3. Join: a tuple that no node released joins the class for which the loss rises least, if the criteria still hold; it stays left
//!    over where that costs more than suppressing its records and the caller can spare them, or where no class may take it. Tuples join
//!    one after the other, ordered by the texts of their values, and of equally cheap classes the one with the first tuple by that
//!    order takes them: codes and rows follow the order of reading, which is another one when a release is made again.
//! 4. Merge: classes with equal labels are one class for a reader, so they get one number. A merged class that satisfies the policy no
//!    longer (possible where subjects are counted) is left over as a whole.
//!
//! An [`Admission`] can send tuples of a class on to later steps although the class satisfies the policy: those of newcomers who may still
//! wait for a finer one, and those of people who return and would have too few candidate values in it.
//!
//! Rules about the release as a whole are not judged here: the gate counts everything again, and the caller can start at a coarser
//! step where it refuses.

use std::cmp::Ordering;

use super::count::{Judge, NodeCounter};
use super::regions::{LEFT, Regions};
use super::table::Table;
use super::terms::{Ladders, Terms};
use crate::generalize::ClassIndex;
use crate::model::lattice::{Level, Node};
use crate::model::recoding::GeneralizedValue;
use crate::model::schedule::Schedule;

/// The most comparisons of a left-over tuple with a class. More take longer than a window may (about 20 ns each); with fewer, records
/// that could still be published are left over.
const MAX_COMPARISONS: usize = 1 << 22;

/// How many classes a left-over tuple may try to join where joining can break a criterion.
const MAX_TRIES: usize = 8;

/// How many classes it may try where its people decide about that: each is asked about its values only.
const MAX_ADMISSIONS: usize = 64;

/// Applies the schedule from step `first` on. `spare` is how many records the caller may leave out where that costs less than to publish
/// them.
pub fn apply(terms: &Terms<'_>, table: &Table, schedule: &Schedule, first: usize, spare: u64) -> Regions {
    apply_admitting(terms, table, schedule, (first, spare), &mut Everyone)
}

/// The same, where `admission` decides too who is published in a class.
pub fn apply_admitting(
    terms: &Terms<'_>,
    table: &Table,
    schedule: &Schedule,
    (first, spare): (usize, u64),
    admission: &mut dyn Admission,
) -> Regions {
    let mut draft = Draft::walk(terms, table, schedule, first, admission);
    draft.tighten();
    draft.join(terms, spare, admission);
    draft.regions(terms)
}

/// Who may be published in a class, beyond what the policy asks of the class.
pub trait Admission {
    /// Keeps those of the tuples that may be published together at a step at which a record of theirs loses `loss`; the others go on
    /// to the next step. Rows have the numbers that the table was made with.
    fn step(&mut self, table: &Table, tuples: &mut Vec<u32>, loss: f64);

    /// True if a tuple that no step released may join a class at all. Others are compared with none, which takes long.
    fn may_join_any(&self, _table: &Table, _tuple: u32) -> bool {
        true
    }

    /// True if the last one of `members`, which no step released, may join the class of the others.
    fn joins(&mut self, _table: &Table, _members: &[u32]) -> bool {
        true
    }

    /// These tuples are published in one class.
    fn published(&mut self, _table: &Table, _tuples: &[u32]) {}

    /// True if anybody is ever sent on.
    fn decides(&self) -> bool {
        true
    }
}

/// Everybody may be published in every class that satisfies the policy.
struct Everyone;

impl Admission for Everyone {
    fn step(&mut self, _: &Table, _: &mut Vec<u32>, _: f64) {}

    fn decides(&self) -> bool {
        false
    }
}

/// A class as a step of a schedule releases it, before its labels are tightened.
#[derive(Debug, Clone)]
pub struct StepClass {
    /// The step.
    pub step: usize,
    /// What its records show there, one value per quasi-identifier.
    pub values: Vec<GeneralizedValue>,
}

/// The classes that the steps of a schedule from `first` on release, in the order of the steps, and the class of every fresh row;
/// `None` where no step releases it.
pub fn walk(terms: &Terms<'_>, table: &Table, schedule: &Schedule, first: usize) -> (Vec<StepClass>, Vec<Option<u32>>) {
    let draft = Draft::walk(terms, table, schedule, first, &mut Everyone);
    let mut classes: Vec<StepClass> = draft.steps.iter().map(|&step| StepClass { step, values: Vec::new() }).collect();
    let mut of_row = vec![None; table.records()];
    for (tuple, &class) in (0..).zip(&draft.class_of).filter(|(_, class)| **class != LEFT) {
        let StepClass { step, values } = &mut classes[class as usize];
        if values.is_empty() {
            let cells = draft.ladders.attributes.iter().zip(table.cells(tuple)).zip(schedule.steps()[*step].levels());
            values.extend(cells.map(|((ladder, &leaf), &level)| ladder.value(level, leaf)));
        }
        table.fresh.range(tuple).for_each(|at| of_row[table.fresh.rows[at] as usize] = Some(class));
    }
    (classes, of_row)
}

/// Classes on their way to be released.
struct Draft<'a> {
    table: &'a Table,
    ladders: Ladders,
    judge: Judge<'a>,
    /// Per tuple, or [`LEFT`].
    class_of: Vec<u32>,
    classes: usize,
    /// The step of each class.
    steps: Vec<usize>,
    /// Per class one of its tuples.
    member: Vec<u32>,
    /// Class by class, one level per attribute.
    levels: Vec<Level>,
    /// Rows per class, held ones included.
    rows: Vec<u32>,
}

impl<'a> Draft<'a> {
    fn walk(
        terms: &Terms<'a>,
        table: &'a Table,
        schedule: &Schedule,
        first: usize,
        admission: &mut dyn Admission,
    ) -> Self {
        let mut draft = Self {
            table,
            ladders: Ladders::new(terms, table),
            judge: Judge::new(terms.rules),
            class_of: vec![LEFT; table.len()],
            classes: 0,
            steps: Vec::new(),
            member: Vec::new(),
            levels: Vec::new(),
            rows: Vec::new(),
        };
        let mut counter = NodeCounter::default();
        let mut left: Vec<u32> = (0..table.len() as u32).collect();
        for (step, node) in schedule.steps().iter().enumerate().skip(first) {
            if left.is_empty() {
                break;
            }
            if counter.count((table, &mut draft.ladders), &mut draft.judge, &left, node, 1) == 0 {
                continue;
            }
            match admission.decides() {
                true => draft.release_admitted(&counter, &left, node, admission),
                false => draft.release(&counter, &left),
            }
            draft.steps.resize(draft.classes, step);
            left.retain(|&tuple| draft.class_of[tuple as usize] == LEFT);
        }
        draft
    }

    /// Releases the good classes that were counted.
    fn release(&mut self, counter: &NodeCounter, left: &[u32]) {
        let mut classes = self.classes as u32;
        let number = |&good: &bool| {
            classes += u32::from(good);
            if good { classes - 1 } else { LEFT }
        };
        let numbers: Vec<u32> = counter.good.iter().map(number).collect();
        for (&place, &class) in counter.places.iter().zip(&counter.class_of) {
            self.class_of[left[place as usize] as usize] = numbers[class as usize];
        }
        self.classes = classes as usize;
    }

    /// Releases of the good classes the tuples that are admitted, if they satisfy the policy without the others.
    fn release_admitted(&mut self, counter: &NodeCounter, left: &[u32], node: &Node, admission: &mut dyn Admission) {
        let table = self.table;
        let mut members: Vec<Vec<u32>> = vec![Vec::new(); counter.good.len()];
        for (&place, &class) in
            counter.places.iter().zip(&counter.class_of).filter(|(_, class)| counter.good[**class as usize])
        {
            members[class as usize].push(left[place as usize]);
        }
        for mut tuples in members.into_iter().filter(|tuples| !tuples.is_empty()) {
            let all = tuples.len();
            let cells = self.ladders.attributes.iter().zip(table.cells(tuples[0])).zip(node.levels());
            let loss = cells.map(|((ladder, &leaf), &level)| ladder.costs[usize::from(level)][leaf as usize]).sum();
            admission.step(table, &mut tuples, loss);
            if tuples.len() == all || self.judge.holds(table, &tuples) {
                tuples.iter().for_each(|&tuple| self.class_of[tuple as usize] = self.classes as u32);
                self.classes += 1;
                admission.published(table, &tuples);
            }
        }
    }

    /// Finds the labels of all classes.
    fn tighten(&mut self) {
        let (table, width) = (self.table, self.table.width);
        self.levels = vec![0; width * self.classes];
        self.member = vec![LEFT; self.classes];
        self.rows = vec![0; self.classes];
        for (tuple, &class) in self.class_of.iter().enumerate().filter(|(_, class)| **class != LEFT) {
            let (class, tuple) = (class as usize, tuple as u32);
            self.rows[class] += rows(table, tuple);
            let levels = &mut self.levels[class * width..(class + 1) * width];
            if self.member[class] == LEFT {
                self.member[class] = tuple;
                let finest =
                    self.ladders.attributes.iter().zip(table.cells(tuple)).map(|(ladder, &leaf)| ladder.finest(leaf));
                levels.iter_mut().zip(finest).for_each(|(level, finest)| *level = finest);
                continue;
            }
            let (member, cells) = (table.cells(self.member[class]), table.cells(tuple));
            for (at, ladder) in self.ladders.attributes.iter().enumerate() {
                if member[at] != cells[at] {
                    levels[at] = ladder.common(levels[at], member[at], cells[at]).unwrap_or(ladder.max);
                }
            }
        }
    }

    /// Lets left-over tuples join the classes for which the loss rises least.
    fn join(&mut self, terms: &Terms<'_>, mut spare: u64, admission: &mut dyn Admission) {
        let table = self.table;
        let left = (0..table.len() as u32).filter(|&tuple| self.class_of[tuple as usize] == LEFT);
        let left = left.filter(|&tuple| table.count(tuple) > 0 && admission.may_join_any(table, tuple));
        let mut left: Vec<u32> = left.collect();
        if left.is_empty() {
            return;
        }
        let order = TextOrder::new(terms, table);
        left.sort_unstable_by(|&a, &b| order.compare(a, b));
        left.truncate(MAX_COMPARISONS / self.classes.max(1));
        self.find_first_members(&order);
        let first = self.member.clone();
        let tries = match (admission.decides(), self.judge.sizes_only) {
            (true, _) => MAX_ADMISSIONS,
            (false, true) => 1,
            (false, false) => MAX_TRIES,
        };
        for tuple in left {
            let mut costs: Vec<(f64, u32)> =
                (0..self.classes).filter_map(|class| Some((self.rise(class, tuple)?, class as u32))).collect();
            let lost = f64::from(rows(table, tuple));
            for _ in 0..tries {
                let by_text = |a: u32, b: u32| order.compare(first[a as usize], first[b as usize]);
                let cheapest = costs
                    .iter()
                    .enumerate()
                    .min_by(|(_, a), (_, b)| a.0.total_cmp(&b.0).then_with(|| by_text(a.1, b.1)));
                let Some((at, &(cost, class))) = cheapest else { break };
                if cost >= lost && u64::from(table.count(tuple)) <= spare {
                    spare -= u64::from(table.count(tuple));
                    break;
                }
                if self.may_join(class, tuple, admission) {
                    self.add(class as usize, tuple);
                    break;
                }
                costs.swap_remove(at);
            }
        }
    }

    /// Makes the first tuple of each class by `order` its member.
    fn find_first_members(&mut self, order: &TextOrder<'_>) {
        for (tuple, &class) in self.class_of.iter().enumerate().filter(|(_, class)| **class != LEFT) {
            let member = &mut self.member[class as usize];
            if order.compare(tuple as u32, *member) == Ordering::Less {
                *member = tuple as u32;
            }
        }
    }

    /// What it costs that a tuple joins a class; `None` if no permitted label covers both.
    fn rise(&self, class: usize, tuple: u32) -> Option<f64> {
        let (member, cells) = (self.table.cells(self.member[class]), self.table.cells(tuple));
        let (mut before, mut after) = (0.0, 0.0);
        for (at, ladder) in self.ladders.attributes.iter().enumerate() {
            let level = self.levels[class * self.table.width + at];
            let common = ladder.common(level, member[at], cells[at])?;
            before += ladder.costs[usize::from(level)][member[at] as usize];
            after += ladder.costs[usize::from(common)][member[at] as usize];
        }
        Some(f64::from(self.rows[class]) * (after - before) + f64::from(rows(self.table, tuple)) * after)
    }

    fn may_join(&mut self, class: u32, tuple: u32, admission: &mut dyn Admission) -> bool {
        if self.judge.sizes_only && !admission.decides() {
            return true;
        }
        let members = (0..self.table.len() as u32).filter(|&other| self.class_of[other as usize] == class);
        let members: Vec<u32> = members.chain([tuple]).collect();
        let joins = admission.joins(self.table, &members) && self.judge.holds(self.table, &members);
        if joins {
            admission.published(self.table, &members);
        }
        joins
    }

    fn add(&mut self, class: usize, tuple: u32) {
        let (member, cells) = (self.table.cells(self.member[class]), self.table.cells(tuple));
        for (at, ladder) in self.ladders.attributes.iter().enumerate() {
            let level = &mut self.levels[class * self.table.width + at];
            *level = ladder.common(*level, member[at], cells[at]).unwrap_or(ladder.max);
        }
        self.class_of[tuple as usize] = class as u32;
        self.rows[class] += rows(self.table, tuple);
    }

    /// Gives classes with equal labels one number, and hands over the result.
    fn regions(mut self, terms: &Terms<'_>) -> Regions {
        let (width, ladders) = (self.table.width, &self.ladders.attributes);
        // The numbers of a level follow those of the level below it.
        let mut index = ClassIndex::new(ladders.iter().map(|ladder| ladder.counts.iter().sum()));
        let mut labels: Vec<GeneralizedValue> = Vec::new();
        let mut numbers: Vec<u32> = Vec::with_capacity(self.classes);
        for class in 0..self.classes {
            let cells = self.table.cells(self.member[class]);
            let levels = &self.levels[class * width..(class + 1) * width];
            let code = |at: usize| {
                let (ladder, level) = (&ladders[at], usize::from(levels[at]));
                let below: usize = ladder.counts[..level].iter().sum();
                below as u32 + ladder.numbers[level][cells[at] as usize]
            };
            let known = index.len();
            numbers.push(index.number((0..width).map(code)));
            if index.len() > known {
                labels.extend((0..width).map(|at| ladders[at].value(levels[at], cells[at])));
            }
        }
        let classes = index.len();
        for class in self.class_of.iter_mut().filter(|class| **class != LEFT) {
            *class = numbers[*class as usize];
        }
        if classes < self.classes && !self.judge.sizes_only {
            self.dissolve(classes);
        }
        Regions::new(terms, self.table, &self.class_of, labels)
    }

    /// Leaves over the classes that do not satisfy the policy.
    fn dissolve(&mut self, classes: usize) {
        let mut members: Vec<Vec<u32>> = vec![Vec::new(); classes];
        for (tuple, &class) in self.class_of.iter().enumerate().filter(|(_, class)| **class != LEFT) {
            members[class as usize].push(tuple as u32);
        }
        for tuples in members {
            if !self.judge.holds(self.table, &tuples) {
                tuples.iter().for_each(|&tuple| self.class_of[tuple as usize] = LEFT);
            }
        }
    }
}

/// Orders tuples by the texts of their values.
struct TextOrder<'a> {
    table: &'a Table,
    /// Per attribute and leaf, its place among the leaves that occur.
    places: Vec<Vec<u32>>,
}

impl<'a> TextOrder<'a> {
    fn new(terms: &Terms<'_>, table: &'a Table) -> Self {
        let places = table.leaves.iter().zip(terms.domains).map(|(codes, view)| {
            let text = |&leaf: &u32| view.level(0).label(codes[leaf as usize]);
            let mut leaves: Vec<u32> = (0..codes.len() as u32).collect();
            leaves.sort_by(|a, b| text(a).cmp(text(b)));
            let mut places = vec![0; codes.len()];
            (0..).zip(leaves).for_each(|(place, leaf)| places[leaf as usize] = place);
            places
        });
        Self { table, places: places.collect() }
    }

    fn compare(&self, a: u32, b: u32) -> Ordering {
        let place = |(places, &leaf): (&Vec<u32>, &u32)| places[leaf as usize];
        let key = |tuple: u32| self.places.iter().zip(self.table.cells(tuple)).map(place);
        key(a).cmp(key(b))
    }
}

/// The rows of a tuple, held ones included.
fn rows(table: &Table, tuple: u32) -> u32 {
    table.count(tuple) + table.held.range(tuple).len() as u32
}
