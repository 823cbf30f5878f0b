//! `sequential`: who returns and would be left with too few candidate values is left out, and so is whoever no longer
//! hides among enough others for it, until nothing changes. Only a plan: the gate has the last word. After a restart what
//! was shown before is told anew, by the log.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::difference::Counts;
use super::{Anonymizer, Plan};
use crate::encode::Dictionaries;
use crate::gate::Memory;
use crate::generalize::RowRef;
use crate::model::batch::Rows;
use crate::model::counting::NO_VALUE;
use crate::model::domain::Code;
use crate::model::event::Partition;
use crate::model::lattice::Node;
use crate::model::policy::SuppressionAction;
use crate::model::recoding::{Column, Recoding};
use crate::model::release::spans::Spans;
use crate::privacy::Rules;

/// What an earlier release shows.
pub struct Past {
    /// Whose it is.
    pub lanes: Vec<Partition>,
    /// How many releases have followed it, at least.
    pub later: usize,
    /// Its levels; `None` if it was made by another policy.
    pub levels: Option<Node>,
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
        let lattice = self.policy.lattice();
        let Some(memory) = self.memory.as_mut().filter(|memory| memory.is_asked_for()) else { return };
        let field = memory.field();
        let row = |i: usize| (past.rows.subject(i), past.rows.sensitive(i)[field]);
        match past.levels.clone().filter(|node| lattice.contains(node)) {
            Some(node) => {
                let all: Vec<RowRef> = (0..past.rows.len() as u32).map(RowRef::Fresh).collect();
                let at = |place: RowRef| match place {
                    RowRef::Fresh(i) | RowRef::Held(i) => (&past.rows, i as usize),
                };
                let classes = classes(&all, at, &Recoding::from(node).columns(&past.dictionaries.quasi));
                memory
                    .recall(past.later, classes.iter().map(|class| class.iter().map(|&i| row(i)).collect::<Vec<_>>()));
            }
            // What it showed cannot be told any more, so at worst each of them by itself.
            None => memory.recall(past.later, (0..past.rows.len()).map(|i| [row(i)])),
        }
    }

    /// The plan that shows these records, and leaves the others out.
    pub(super) fn planned(&self, rows: &Rows, shown: &Spans) -> Plan {
        let mut plan = Plan::default();
        for i in 0..rows.len() as u32 {
            match shown.contains(rows.position(i as usize)) {
                true => plan.published.push(RowRef::Fresh(i)),
                false => plan.leave_out(self.policy.action, i),
            }
        }
        let held = (0..self.held.len() as u32).filter(|&i| shown.contains(self.held.position(i as usize)));
        plan.published.extend(held.map(RowRef::Held));
        plan
    }

    /// Takes out of the plan what `sequential` does not allow; nothing if the policy does not ask for it.
    pub(super) fn leave_recurring_out(&self, plan: &mut Plan, rows: &Rows, columns: &[Column], rules: &Rules) {
        let Some(memory) = self.memory.as_ref().filter(|memory| memory.is_asked_for()) else { return };
        let row = |row: RowRef| match row {
            RowRef::Fresh(i) => (rows, i as usize),
            RowRef::Held(i) => (&self.held, i as usize),
        };
        let published = std::mem::take(&mut plan.published);
        let mut stays = vec![true; published.len()];
        let subject = |at: usize| {
            let (rows, i) = row(published[at]);
            rows.subject(i)
        };
        let value = |at: usize| {
            let (rows, i) = row(published[at]);
            rows.sensitive(i)[memory.field()]
        };
        let fresh = |at: usize| match published[at] {
            RowRef::Fresh(i) => Some(i),
            RowRef::Held(_) => None,
        };
        let classes = classes(&published, row, columns);
        no_room(memory, &mut stays, subject);
        loop {
            let before = stays.clone();
            // What each subject could have, by all classes that it is in.
            let mut candidates: FxHashMap<u64, Vec<Code>> = FxHashMap::default();
            for class in &classes {
                let members = || class.iter().copied().filter(|&at| before[at]);
                let held_to: Vec<u32> = members().filter_map(fresh).collect();
                let counts = Counts::new(rows, &held_to, rules);
                if !rules.hold_alone(&counts.class(&counts.histograms())) {
                    class.iter().for_each(|&at| stays[at] = false);
                    continue;
                }
                let mut values: Vec<Code> = members().map(value).filter(|value| *value != NO_VALUE).collect();
                values.sort_unstable();
                values.dedup();
                for at in members() {
                    let known = candidates.entry(subject(at)).or_insert_with(|| values.clone());
                    known.retain(|value| values.binary_search(value).is_ok());
                }
            }
            for at in (0..published.len()).filter(|&at| before[at]) {
                let who = subject(at);
                stays[at] &= candidates.get(&who).is_some_and(|values| memory.allows(who, values));
            }
            if stays == before {
                break;
            }
        }
        for (&place, stays) in published.iter().zip(stays) {
            match (place, stays) {
                (_, true) => plan.published.push(place),
                (RowRef::Fresh(i), false) => plan.leave_out(self.policy.action, i),
                (RowRef::Held(_), false) => {}
            }
        }
    }
}

impl Plan {
    /// Leaves row i of the window out.
    pub(super) fn leave_out(&mut self, action: SuppressionAction, i: u32) {
        match action {
            SuppressionAction::Drop => self.suppressed.push(i),
            SuppressionAction::Hold { .. } => self.held.push(i),
        }
    }

    /// Leaves everything out; false if nothing was to be published.
    pub(super) fn leave_all_out(&mut self, action: SuppressionAction) -> bool {
        let published = std::mem::take(&mut self.published);
        for row in &published {
            if let RowRef::Fresh(i) = row {
                self.leave_out(action, *i);
            }
        }
        !published.is_empty()
    }
}

/// Leaves out those whom the memory has no room for: the last to come.
fn no_room(memory: &Memory, stays: &mut [bool], subject: impl Fn(usize) -> u64) {
    let mut known = rustc_hash::FxHashSet::default();
    for (at, stays) in stays.iter_mut().enumerate() {
        let who = subject(at);
        if known.len() < memory.room() {
            known.insert(who);
        } else {
            *stays = known.contains(&who);
        }
    }
}

/// The places in `published` class by class.
fn classes<'r>(published: &[RowRef], row: impl Fn(RowRef) -> (&'r Rows, usize), columns: &[Column]) -> Vec<Vec<usize>> {
    let mut index: FxHashMap<SmallVec<[Code; 16]>, usize> = FxHashMap::default();
    let mut classes: Vec<Vec<usize>> = Vec::new();
    for (at, &place) in published.iter().enumerate() {
        let (rows, i) = row(place);
        let key = rows.quasi(i).iter().zip(columns).map(|(&leaf, column)| column.map()[leaf as usize]).collect();
        let class = *index.entry(key).or_insert_with(|| {
            classes.push(Vec::new());
            classes.len() - 1
        });
        classes[class].push(at);
    }
    classes
}
