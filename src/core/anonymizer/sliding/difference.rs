//! Chooses the rows of the next snapshot so that a reader with all snapshots side by side can single out no group that breaks
//! the policy.
//!
//! Rows that no snapshot told apart are a cell (see the gate). Each cell is settled by itself: rows that have left the window
//! leave the cell if they satisfy the policy together and the remaining rows do too; otherwise they wait, and as a last resort
//! the whole cell is left out. A cell whose rows the recoding publishes in several classes splits, and parts that are too small
//! are left out together. New rows come class by class, as soon as they satisfy the policy together. This only plans: the gate
//! counts again and decides.

use std::sync::Arc;

use crate::anonymizer::draft::Grouping;
use crate::gate::Tally;
use crate::generalize::Numbers;
use crate::model::batch::Rows;
use crate::privacy::{RuleScope, Rules};

/// A row's standing between the last snapshot and the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// In the window, in no snapshot yet.
    New,
    /// In the window and in the last snapshot.
    Shown,
    /// In the last snapshot, no longer in the window.
    Due,
    /// The same, and for too long: it is not shown again.
    Overdue,
}

/// The rows that could be shown, and by what they are judged.
pub(super) struct Candidates<'a> {
    pub(super) rows: &'a Arc<Rows>,
    pub(super) standing: &'a [Standing],
    /// The cell of every row that is not new; below `cell_count`.
    pub(super) cells: &'a [u32],
    pub(super) cell_count: usize,
    pub(super) rules: &'a Rules,
}

/// What is shown.
pub(super) struct Settled {
    /// The rows, ascending.
    pub(super) rows: Vec<u32>,
    /// The classes of all candidates.
    pub(super) grouping: Grouping,
    /// True if the recoding tells rows of a cell apart.
    pub(super) splits: bool,
}

/// How many rows are tried first, then four times as many. More are counted in vain where fewer would do; fewer are tried in vain.
const FEW: usize = 16;

const NONE: u32 = u32::MAX;

impl Candidates<'_> {
    /// The rows to show in these classes.
    pub(super) fn settle(&self, grouping: Grouping) -> Settled {
        let numbers = &grouping.numbers;
        let classes = &numbers.fresh;
        // A cell that nobody leaves and that stays together was counted before.
        let (mut is_open, splits) = self.touched(classes);
        is_open.resize(self.cell_count + numbers.count, true);
        let group = |i: usize| match self.standing[i] {
            Standing::New => self.cell_count as u32 + classes[i],
            _ => self.cells[i],
        };
        let groups: Vec<u32> = (0..self.rows.len()).map(group).collect();
        let mut shown: Vec<bool> = groups.iter().map(|&group| !is_open[group as usize]).collect();
        let release = self.everybody();
        let members = Members::new(&groups, &is_open);
        for group in (0..is_open.len()).filter(|group| is_open[*group]) {
            let rows = members.of(group);
            if group >= self.cell_count {
                let comes = !rows.is_empty() && self.holds(rows, &release);
                rows.iter().for_each(|&i| shown[i as usize] = comes);
            } else {
                self.settle_cell(rows, classes, &release).into_iter().for_each(|i| shown[i as usize] = true);
            }
        }
        // Where rules may fail for classes that were put together of parts which satisfy them.
        if self.compares() || !self.rules.monotone(false) {
            while self.leave_out(&mut shown, &groups, numbers, &release) {}
        }
        let rows = (0..).zip(shown).filter(|(_, shown)| *shown).map(|(i, _)| i).collect();
        Settled { rows, grouping, splits }
    }

    /// The cells that somebody may leave or that are in several classes; and whether there are any of the latter.
    fn touched(&self, classes: &[u32]) -> (Vec<bool>, bool) {
        let mut touched = vec![false; self.cell_count];
        let mut class_of = vec![NONE; self.cell_count];
        let mut splits = false;
        for (i, standing) in self.standing.iter().enumerate().filter(|(_, standing)| **standing != Standing::New) {
            let cell = self.cells[i] as usize;
            let splits_here = class_of[cell] != NONE && class_of[cell] != classes[i];
            class_of[cell] = classes[i];
            touched[cell] |= splits_here || *standing != Standing::Shown;
            splits |= splits_here;
        }
        (touched, splits)
    }

    /// What is shown of a cell.
    fn settle_cell(&self, rows: &[u32], classes: &[u32], release: &Tally) -> Vec<u32> {
        let mut rows = rows.to_vec();
        rows.sort_by_key(|&i| classes[i as usize]);
        let may_wait = !rows.iter().any(|&i| self.standing[i as usize] == Standing::Overdue);
        for leave in [true, false].into_iter().filter(|leave| *leave || may_wait) {
            let (mut stay, mut left) = (Vec::with_capacity(rows.len()), Vec::new());
            for part in rows.chunk_by(|a, b| classes[*a as usize] == classes[*b as usize]) {
                let goes = |i: &&u32| leave && self.standing[**i as usize] != Standing::Shown;
                let (gone, here): (Vec<u32>, Vec<u32>) = part.iter().partition(goes);
                // What was a cell needs no count.
                let holds = |some: &[u32]| some.len() == rows.len() || self.holds(some, release);
                if holds(&here) {
                    stay.extend(here);
                    left.extend(gone);
                } else if !here.is_empty() && leave && may_wait && holds(part) {
                    stay.extend(part);
                } else {
                    left.extend(part);
                }
            }
            if left.is_empty() || left.len() == rows.len() || self.holds(&left, release) {
                return stay;
            }
        }
        Vec::new()
    }

    /// Leaves newcomers out of classes that fail with them, and cells that are in those which fail without; true if there
    /// are any.
    fn leave_out(&self, shown: &mut [bool], groups: &[u32], numbers: &Numbers, release: &Tally) -> bool {
        let of_class: Vec<u32> =
            numbers.fresh.iter().zip(&*shown).map(|(&class, shown)| if *shown { class } else { NONE }).collect();
        let members = Members::new(&of_class, &vec![true; numbers.count]);
        let mut out = vec![false; self.cell_count + numbers.count];
        for rows in (0..numbers.count).map(|class| members.of(class)) {
            if !rows.is_empty() && !self.holds(rows, release) {
                let is_new = |i: &&u32| self.standing[**i as usize] == Standing::New;
                let newcomer = rows.iter().find(is_new).map(std::slice::from_ref);
                newcomer.unwrap_or(rows).iter().for_each(|&i| out[groups[i as usize] as usize] = true);
            }
        }
        shown.iter_mut().zip(groups).for_each(|(shown, &group)| *shown &= !out[group as usize]);
        out.contains(&true)
    }

    /// True if some rule looks at everything that is published.
    fn compares(&self) -> bool {
        self.rules.of(RuleScope::Within).next().is_some()
    }

    /// Everybody, where some rule looks at that.
    fn everybody(&self) -> Tally {
        let everybody: Vec<u32> = if self.compares() { (0..self.rows.len() as u32).collect() } else { Vec::new() };
        tally(self.rows, &everybody, self.rules)
    }

    /// True if the rows satisfy what can be judged of them as a class; none do not.
    fn holds(&self, rows: &[u32], release: &Tally) -> bool {
        // Where rules hold whoever joins a class, a few that satisfy them do for all: most large classes are known soon.
        let mut few = (0..).map(|n| FEW << (2 * n)).take_while(|few| self.rules.monotone(true) && *few < rows.len());
        !rows.is_empty() && (few.any(|few| self.all_hold(&rows[..few], release)) || self.all_hold(rows, release))
    }

    /// The same, with every row counted.
    fn all_hold(&self, rows: &[u32], release: &Tally) -> bool {
        let counts = tally(self.rows, rows, self.rules);
        let (own, all) = (counts.histograms(), release.histograms());
        let (class, release) = (counts.class(&own), release.class(&all));
        let mut rules = self.rules.iter().filter(|rule| rule.scope() != RuleScope::Release);
        rules.all(|rule| rule.meets(rule.measure(&class, &release)))
    }
}

/// The rows of some groups, group by group.
struct Members {
    rows: Vec<u32>,
    /// Where each group ends, and the next one begins.
    ends: Vec<usize>,
}

impl Members {
    /// The rows of the groups that are asked for, of the others none. `groups` has the group of every row.
    fn new(groups: &[u32], asked: &[bool]) -> Self {
        let is_asked = |group: u32| asked.get(group as usize).copied().unwrap_or_default();
        let mut ends = vec![0; asked.len()];
        groups.iter().filter(|group| is_asked(**group)).for_each(|&group| ends[group as usize] += 1);
        let mut start = 0;
        ends.iter_mut().for_each(|end| start += std::mem::replace(end, start));
        let mut rows = vec![0; start];
        for (i, &group) in (0..).zip(groups).filter(|(_, group)| is_asked(**group)) {
            rows[ends[group as usize]] = i;
            ends[group as usize] += 1;
        }
        Self { rows, ends }
    }

    fn of(&self, group: usize) -> &[u32] {
        let start = if group == 0 { 0 } else { self.ends[group - 1] };
        &self.rows[start..self.ends[group]]
    }
}

/// Counts some different rows by the codes of the encoder.
pub(in crate::anonymizer) fn tally(rows: &Rows, which: &[u32], rules: &Rules) -> Tally {
    let subject = rules.counting().subjects.then_some(|i: u32| rows.subject(i as usize));
    let facets = rules.facets();
    Tally::of(which, subject, facets.len(), |facet, i| facets[facet].code(rows, i as usize))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::anonymizer::draft::Numbering;
    use crate::model::domain::Code;
    use crate::model::hierarchy::{Hierarchy, PrefixSpec};
    use crate::model::lattice::Node;
    use crate::model::policy::{Criterion, Distance, Diversity, K, Policy};
    use crate::model::recoding::{Column, Recoding};
    use crate::model::schema::Role;
    use crate::search::fixture::{Table, policy};

    /// The slow twin: every cell and every class is counted, row by row.
    fn slow(candidates: &Candidates<'_>, columns: &[Column]) -> Vec<u32> {
        let class = |i: &u32| -> Vec<Code> {
            let leaves = candidates.rows.quasi(*i as usize).iter();
            leaves.zip(columns).map(|(&leaf, column)| column.map()[leaf as usize]).collect()
        };
        let standing = |i: &u32| candidates.standing[*i as usize];
        let is_new = |i: &u32| standing(i) == Standing::New;
        let everything: Vec<u32> = (0..candidates.rows.len() as u32).collect();
        let release = tally(candidates.rows, &everything, candidates.rules);
        let holds = |rows: &BTreeSet<u32>| {
            !rows.is_empty() && candidates.all_hold(&rows.iter().copied().collect::<Vec<_>>(), &release)
        };
        let by = |rows: &BTreeSet<u32>, key: &dyn Fn(&u32) -> Vec<Code>| -> Vec<BTreeSet<u32>> {
            let mut groups: BTreeMap<Vec<Code>, BTreeSet<u32>> = BTreeMap::new();
            rows.iter().for_each(|i| _ = groups.entry(key(i)).or_default().insert(*i));
            groups.into_values().collect()
        };
        let (new, old): (BTreeSet<u32>, BTreeSet<u32>) = everything.iter().partition(|i| is_new(i));
        let mut groups: Vec<BTreeSet<u32>> = by(&new, &class).into_iter().filter(holds).collect();
        for cell in by(&old, &|i| vec![candidates.cells[*i as usize]]) {
            let overdue = cell.iter().any(|i| standing(i) == Standing::Overdue);
            let settle = |leave: bool| {
                let holds = |part: &BTreeSet<u32>| *part == cell || holds(part);
                let part = |part: BTreeSet<u32>| {
                    let stays = |i: &&u32| standing(i) == Standing::Shown || !leave;
                    let here: BTreeSet<u32> = part.iter().filter(stays).copied().collect();
                    let waits = !here.is_empty() && !overdue && holds(&part);
                    if holds(&here) { here } else { Some(part).filter(|_| waits).unwrap_or_default() }
                };
                let stay: BTreeSet<u32> = by(&cell, &class).into_iter().flat_map(part).collect();
                let left: BTreeSet<u32> = &cell - &stay;
                (left.is_empty() || left == cell || holds(&left)).then_some(stay)
            };
            groups.extend(settle(true).or_else(|| settle(false).filter(|_| !overdue)));
        }
        // Classes that fail although their parts do not lose their newcomers, or else whole cells.
        loop {
            let shown: BTreeSet<u32> = groups.iter().flatten().copied().collect();
            let bad: Vec<BTreeSet<u32>> = by(&shown, &class).into_iter().filter(|class| !holds(class)).collect();
            let out = |group: &BTreeSet<u32>| {
                bad.iter().any(|bad| {
                    let touches = !group.is_disjoint(bad);
                    touches && (group.iter().all(is_new) || !bad.iter().any(is_new))
                })
            };
            if bad.is_empty() {
                return shown.into_iter().collect();
            }
            groups.retain(|group| !out(group));
        }
    }

    fn zips(people: &[(u8, u8, u8)], criteria: Vec<Criterion>, subject: bool) -> Table {
        let zip = Hierarchy::prefix(PrefixSpec::new(2)).unwrap();
        let others = [("ill", Role::Sensitive), ("who", if subject { Role::Subject } else { Role::Insensitive })];
        let records: Vec<Vec<String>> = people
            .iter()
            .map(|(zip, ill, who)| vec![format!("{}{}", zip / 3, zip % 3), ill.to_string(), who.to_string()])
            .collect();
        Table::new(Policy { criteria, ..policy(vec![("zip", zip)], &others, 2) }, &records)
    }

    proptest! {
        /// Slide after slide, at levels that stay or change. Cells are kept as a reader would.
        #[test]
        fn what_is_shown_is_what_the_twin_shows(
            people in prop::collection::vec((0u8..9, 0u8..3, 0u8..20), 10..120),
            slides in prop::collection::vec((1usize..12, 0usize..12, 0u8..12), 1..12),
            rules in 0usize..4,
            subject in any::<bool>(),
        ) {
            let k = Criterion::KAnonymity(K(2));
            let l_diversity = |variant| Criterion::LDiversity { field: 0, l: 2.0, variant };
            let criteria = [
                vec![k.clone()],
                vec![k.clone(), l_diversity(Diversity::Distinct)],
                vec![k.clone(), l_diversity(Diversity::Entropy)],
                vec![k, Criterion::TCloseness { field: 0, t: 0.4, distance: Distance::Equal }],
            ];
            let table = zips(&people, criteria[rules].clone(), subject);
            let rules = table.rules.bind(&table.dictionaries.values());
            let (mut first, mut end, mut level) = (0, 0, 0);
            let mut traces: BTreeMap<usize, Vec<(usize, Code)>> = BTreeMap::new();
            let mut was: Vec<usize> = Vec::new();
            let mut numbering = Numbering::default();
            for (slide, (come, leave, die)) in slides.into_iter().enumerate() {
                end = (end + come).min(people.len());
                first = (first + leave).min(end);
                // Mostly the level stays.
                level = if die < 3 { die } else { level };
                let gone = was.iter().copied().filter(|i| *i < first);
                let stays = (first..end).filter(|i| was.contains(i) || !traces.contains_key(i));
                let numbers: Vec<usize> = stays.chain(gone).collect();
                let standing: Vec<Standing> = numbers.iter().map(|i| match (was.contains(i), *i >= first) {
                    (false, _) => Standing::New,
                    (true, true) => Standing::Shown,
                    (true, false) if i % 5 == 0 => Standing::Overdue,
                    (true, false) => Standing::Due,
                }).collect();
                let all: Vec<&Vec<(usize, Code)>> = traces.values().collect::<BTreeSet<_>>().into_iter().collect();
                let cell = |i: &usize| all.iter().position(|trace| Some(*trace) == traces.get(i)).unwrap_or(0) as u32;
                let cells: Vec<u32> = numbers.iter().map(cell).collect();
                let mut rows = table.rows.filtered(|_| false);
                numbers.iter().for_each(|&i| rows.push_from(&table.rows, i));
                let rows = Arc::new(rows);
                let cell_count = all.len();
                let candidates =
                    Candidates { rows: &rows, standing: &standing, cells: &cells, cell_count, rules: &rules };
                let recoding = Recoding::from(Node::new([level]));
                let columns = recoding.columns(&table.dictionaries.quasi);
                let grouping = Grouping::followed(&mut numbering, &recoding, &rows, &table.dictionaries);
                let shown = candidates.settle(grouping).rows;
                prop_assert_eq!(&shown, &slow(&candidates, &columns));
                if !shown.is_empty() {
                    was = shown.iter().map(|i| numbers[*i as usize]).collect();
                    for &i in &was {
                        let code = columns[0].map()[table.rows.quasi(i)[0] as usize];
                        traces.entry(i).or_default().push((slide, code));
                    }
                }
            }
        }
    }
}
