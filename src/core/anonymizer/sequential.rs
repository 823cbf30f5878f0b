//! `sequential`: leaves out the rows of subjects who return and would be left with too few candidate values, and rows that no
//! longer hide among enough others without them, until nothing changes. With local recoding they first go on to coarser steps, whose
//! larger classes have more values ([`Returning`]).
//!
//! This only plans: the gate decides. After a restart the log tells the earlier releases again ([`Anonymizer::recall`]).

use rustc_hash::{FxHashMap, FxHashSet};

use super::Anonymizer;
use super::draft::{Draft, Grouping, Outcomes, source};
use super::sliding::tally;
use crate::encode::Dictionaries;
use crate::gate::Memory;
use crate::generalize::RowRef;
use crate::local::{Admission, Table};
use crate::model::batch::Rows;
use crate::model::counting::NO_VALUE;
use crate::model::domain::Code;
use crate::model::event::{Partition, Position};
use crate::model::lattice::Node;
use crate::model::recoding::Recoding;
use crate::model::release::row_levels::RowLevels;
use crate::model::release::spans::Spans;
use crate::privacy::Rules;

/// What an earlier release shows.
pub struct Past {
    /// Whose it is.
    pub lanes: Vec<Partition>,
    /// How many releases have followed it, at least.
    pub later: usize,
    /// The levels of each row, where the release noted them.
    pub row_levels: Option<RowLevels>,
    /// Its node; `None` if it has another recoding, or was made by another policy.
    pub node: Option<Node>,
    /// Its rows.
    pub rows: Rows,
    /// What their codes mean.
    pub dictionaries: Dictionaries,
}

impl Anonymizer {
    /// True if releases are held to what earlier ones have shown.
    pub(super) fn remembers(&self) -> bool {
        self.memory.as_ref().is_some_and(Memory::is_asked_for)
    }

    /// Learns what a release showed before a restart.
    pub fn recall(&mut self, past: &Past) {
        let Some(memory) = self.memory.as_mut().filter(|memory| memory.is_asked_for()) else { return };
        let field = memory.field();
        let row = |i: usize| (past.rows.subject(i), past.rows.sensitive(i)[field]);
        match past.class_numbers() {
            Some(numbers) => {
                let mut classes: FxHashMap<u32, Vec<(u64, Code)>> = FxHashMap::default();
                numbers.into_iter().enumerate().for_each(|(i, class)| classes.entry(class).or_default().push(row(i)));
                memory.recall(past.later, classes.into_values());
            }
            // Its classes are unknown: at worst each record was a class of its own.
            None => memory.recall(past.later, (0..past.rows.len()).map(|i| [row(i)])),
        }
    }

    /// Leaves out the rows that `sequential` does not allow; none if the policy does not ask for it.
    pub(super) fn leave_recurring_out(&self, draft: &mut Draft, rules: &Rules) {
        let Some(memory) = self.memory.as_ref().filter(|memory| memory.is_asked_for()) else { return };
        let published = std::mem::take(&mut draft.outcomes.published);
        let classes = draft.grouping.members(&published);
        let recurring = Recurring { memory, rules, rows: &draft.rows, held: &draft.held, published: &published };
        let stays = recurring.stays(&classes);
        for (&row, stays) in published.iter().zip(stays) {
            match (row, stays) {
                (_, true) => draft.outcomes.published.push(row),
                (RowRef::Fresh(i), false) => draft.outcomes.leave_out(self.policy.action, i),
                (RowRef::Held(_), false) => {}
            }
        }
    }
}

impl Past {
    /// The class of each row; `None` if nobody knows.
    fn class_numbers(&self) -> Option<Vec<u32>> {
        let grouping = match (&self.row_levels, &self.node) {
            (Some(levels), _) => Grouping::at_levels(
                levels,
                |_, i| Some(i),
                [&self.rows, &self.rows.filtered(|_| false)],
                &self.dictionaries,
            )?,
            (None, Some(node)) => {
                let node = Recoding::Node(node.clone());
                Grouping::of(&node, &self.rows, &self.rows.filtered(|_| false), &self.dictionaries)
            }
            (None, None) => return None,
        };
        Some((0..self.rows.len() as u32).map(|i| grouping.number(RowRef::Fresh(i))).collect())
    }
}

impl Draft {
    /// The levels of each row that is shown by these outcomes, in the order of positions, for the journal: cuts and schedules were made
    /// for all rows, and after a restart only the shown ones are read again. `None` where the node tells, or the entry would be too
    /// long.
    pub(super) fn shown_levels(&self, outcomes: &Outcomes) -> Option<RowLevels> {
        if matches!(self.recoding, Recoding::Node(_)) || outcomes.published.len() > RowLevels::MAX_ROWS {
            return None;
        }
        let place = |&row: &RowRef| (self.position(row), self.grouping.number(row));
        let mut classes: Vec<(Position, u32)> = outcomes.published.iter().map(place).collect();
        classes.sort_unstable();
        Some(RowLevels::new(classes.into_iter().map(|(_, class)| self.grouping.levels(class))))
    }

    /// The records that the plan says are shown, where `sequential` decided about them.
    pub(super) fn planned_to_show(&self) -> Option<&Spans> {
        self.planned.as_ref()?.shown.as_ref()
    }
}

/// Sends tuples on to coarser steps whose people would keep too few candidate values in a class. A class only gains values by those who
/// join it, so whoever may stay in it may stay.
pub(super) struct Returning<'a> {
    memory: &'a Memory,
    rows: &'a Rows,
    held: &'a Rows,
    /// The values that are common to the classes that a subject is in so far.
    common: FxHashMap<u64, Vec<Code>>,
}

impl Anonymizer {
    /// Who returns, where `sequential` is asked for and a replay can know the levels that follow from it.
    pub(super) fn returning<'a>(&'a self, draft: &'a Draft) -> Option<Returning<'a>> {
        let memory = self.memory.as_ref().filter(|memory| memory.is_asked_for())?;
        let (rows, held) = (&*draft.rows, &*draft.held);
        let common = FxHashMap::default();
        (rows.len() + held.len() <= RowLevels::MAX_ROWS).then_some(Returning { memory, rows, held, common })
    }
}

impl Returning<'_> {
    /// Subject and value of the rows of a tuple.
    fn people<'t>(&'t self, table: &'t Table, tuple: u32) -> impl Iterator<Item = (u64, Code)> + 't {
        let field = self.memory.field();
        let of = move |rows: &'t Rows, row: u32| (rows.subject(row as usize), rows.sensitive(row as usize)[field]);
        let fresh = table.fresh_rows(tuple).iter().map(move |&row| of(self.rows, row));
        fresh.chain(table.held_rows(tuple).iter().map(move |&row| of(self.held, row)))
    }

    /// The values of some tuples, ascending.
    fn values(&self, table: &Table, tuples: &[u32]) -> Vec<Code> {
        let people = tuples.iter().flat_map(|&tuple| self.people(table, tuple));
        let mut values: Vec<Code> = people.map(|(_, value)| value).filter(|value| *value != NO_VALUE).collect();
        values.sort_unstable();
        values.dedup();
        values
    }

    /// True if all people of a tuple may be published in a class of these values.
    fn may_stay(&self, table: &Table, tuple: u32, values: &[Code]) -> bool {
        self.people(table, tuple).all(|(who, _)| match self.common.get(&who) {
            Some(common) => {
                let both: Vec<Code> =
                    values.iter().copied().filter(|value| common.binary_search(value).is_ok()).collect();
                self.memory.allows(who, &both)
            }
            None => self.memory.allows(who, values),
        })
    }
}

impl Admission for Returning<'_> {
    fn step(&mut self, table: &Table, tuples: &mut Vec<u32>, _: f64) {
        loop {
            let (before, values) = (tuples.len(), self.values(table, tuples));
            tuples.retain(|&tuple| self.may_stay(table, tuple, &values));
            if tuples.len() == before {
                return;
            }
        }
    }

    fn joins(&mut self, table: &Table, members: &[u32]) -> bool {
        let values = self.values(table, members);
        members.last().is_some_and(|&tuple| self.may_stay(table, tuple, &values))
    }

    fn published(&mut self, table: &Table, tuples: &[u32]) {
        let values = self.values(table, tuples);
        let people: Vec<u64> = tuples.iter().flat_map(|&tuple| self.people(table, tuple)).map(|(who, _)| who).collect();
        for who in people {
            let common = self.common.entry(who).or_insert_with(|| values.clone());
            common.retain(|value| values.binary_search(value).is_ok());
        }
    }
}

/// The rows to publish, and the memory of the values that earlier releases have shown of their subjects. Rows are named by their
/// place in `published`.
struct Recurring<'a> {
    memory: &'a Memory,
    rules: &'a Rules,
    rows: &'a Rows,
    held: &'a Rows,
    published: &'a [RowRef],
}

impl Recurring<'_> {
    /// For each row whether it may be published. Leaving a row out can break its class, so this goes on until nothing changes.
    fn stays(&self, classes: &[Vec<usize>]) -> Vec<bool> {
        let mut stays = self.remembered();
        loop {
            let before = stays.clone();
            let candidates = self.candidates(classes, &before, &mut stays);
            for at in (0..self.published.len()).filter(|&at| before[at]) {
                let who = self.subject(at);
                stays[at] &= candidates.get(&who).is_some_and(|values| self.memory.allows(who, values));
            }
            if stays == before {
                return stays;
            }
        }
    }

    /// The values that each subject could have, by all its classes. Leaves the rows of classes out that fail the rules.
    fn candidates(&self, classes: &[Vec<usize>], before: &[bool], stays: &mut [bool]) -> FxHashMap<u64, Vec<Code>> {
        let mut candidates: FxHashMap<u64, Vec<Code>> = FxHashMap::default();
        for class in classes {
            let members = || class.iter().copied().filter(|&at| before[at]);
            // Held rows may join only a class that satisfies the rules without them.
            let fresh: Vec<u32> = members().filter_map(|at| self.fresh(at)).collect();
            let counts = tally(self.rows, &fresh, self.rules);
            if !self.rules.hold_alone(&counts.class(&counts.histograms())) {
                class.iter().for_each(|&at| stays[at] = false);
                continue;
            }
            let mut values: Vec<Code> = members().map(|at| self.value(at)).filter(|value| *value != NO_VALUE).collect();
            values.sort_unstable();
            values.dedup();
            for at in members() {
                let known = candidates.entry(self.subject(at)).or_insert_with(|| values.clone());
                known.retain(|value| values.binary_search(value).is_ok());
            }
        }
        candidates
    }

    /// Leaves out the rows of subjects for which the memory has no space: the last ones.
    fn remembered(&self) -> Vec<bool> {
        let mut known = FxHashSet::default();
        let mut is_known = |who: u64| {
            if known.len() < self.memory.room() {
                known.insert(who);
                return true;
            }
            known.contains(&who)
        };
        (0..self.published.len()).map(|at| is_known(self.subject(at))).collect()
    }

    fn subject(&self, at: usize) -> u64 {
        let (rows, i) = source(self.published[at], self.rows, self.held);
        rows.subject(i)
    }

    fn value(&self, at: usize) -> Code {
        let (rows, i) = source(self.published[at], self.rows, self.held);
        rows.sensitive(i)[self.memory.field()]
    }

    fn fresh(&self, at: usize) -> Option<u32> {
        match self.published[at] {
            RowRef::Fresh(i) => Some(i),
            RowRef::Held(_) => None,
        }
    }
}
