//! The difference-safe gate: a reader has the last snapshot too, and subtracts.
//!
//! Two snapshots can be compared at the join of their recodings: values that either of them writes alike are one. There
//! the rows that left and the rows that came must, class by class, satisfy the policy, or be none. The join is read off
//! the labels that were written, and rows are told apart by where they stood in the source; nothing that planned the
//! snapshot is believed. Only consecutive snapshots are compared.

use std::sync::Arc;

use super::count::{Count, CountedValues, canonical_cells};
use super::{Reading, Refusal, Release, counted};
use crate::generalize::{GeneralizedBatch, RowRef};
use crate::model::batch::{Covering, Rows, Spans};
use crate::model::domain::Code;
use crate::privacy::Rules;

/// A release that the next one will be compared with.
#[derive(Clone, Debug)]
pub struct Snapshot {
    batch: Arc<GeneralizedBatch>,
    looks: Arc<Looks>,
}

impl Snapshot {
    /// What was published of these positions: rows, and the index of each.
    pub fn rows_at(&self, positions: &Spans) -> Vec<(&Rows, usize)> {
        let at = rows_at((&self.batch, &self.looks), &self.looks.positions.within(positions));
        at.into_iter().map(|at| self.batch.source(self.batch.order[at as usize])).collect()
    }

    /// How many rows were published.
    pub fn len(&self) -> usize {
        self.batch.len()
    }

    /// True if none was.
    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }
}

impl Release {
    /// Kept to compare the next release with.
    pub fn snapshot(&self) -> Snapshot {
        let values = || Arc::new(CountedValues::of(&self.batch));
        let looks = || Arc::new(Looks::of(&self.batch, &canonical_cells(&self.batch), values()));
        let looks = self.looks.clone().unwrap_or_else(looks);
        Snapshot { batch: Arc::clone(&self.batch), looks }
    }
}

/// Like [`super::verify`], after `last` was published: also what left and what came since must satisfy the policy.
pub fn verify_next(batch: GeneralizedBatch, rules: &Rules, last: Option<&Snapshot>) -> Result<Release, Refusal> {
    let batch = Arc::new(batch);
    let count = Count::new(&batch, rules);
    let mut release = counted(&batch, &count, rules)?;
    let looks = Looks::of(&batch, count.cells(), Arc::clone(count.values()));
    if let Some(last) = last
        && !batch.is_empty()
    {
        compare_both((&last.batch, &last.looks), (&batch, &looks), rules)?;
    }
    release.looks = Some(Arc::new(looks));
    Ok(release)
}

type Looking<'a> = (&'a GeneralizedBatch, &'a Looks);

/// Whoever left, and whoever came.
fn compare_both(last: Looking<'_>, now: Looking<'_>, rules: &Rules) -> Result<(), Refusal> {
    let mut join = last.1.alike.clone();
    join.iter_mut().zip(&now.1.alike).for_each(|(join, alike)| join.add(alike));
    compare(last, now.1, &mut join, rules)?;
    compare(now, last.1, &mut join, rules)
}

/// The rows of a batch that the other one lacks, class by class at the join.
fn compare((batch, looks): Looking<'_>, other: &Looks, join: &mut [Alike], rules: &Rules) -> Result<(), Refusal> {
    let only = rows_at((batch, looks), &looks.positions.without(&other.positions));
    if only.is_empty() {
        return Ok(());
    }
    let count = Count::seen_as(batch, rules, looks.cells(join), Arc::clone(&looks.values));
    let rules = rules.bind(&count.meanings());
    Reading { batch, rules: &rules, count: &count, rows: &only, without_held: false, difference: true }
        .check()
        .map(drop)
}

/// The rows of a batch that stand at `positions`, by their number in the order of sending.
fn rows_at((batch, looks): Looking<'_>, positions: &Spans) -> Vec<u32> {
    let mut found = Vec::new();
    if !positions.is_empty() {
        let mut finder = positions.finder();
        looks.places.each(batch, |rows, i, at| {
            if finder.contains(rows.position(i)) {
                found.push(at);
            }
        });
    }
    found.sort_unstable();
    found
}

/// What is not sent has no number; no batch has as many rows.
const UNSENT: u32 = u32::MAX;

/// The number of each row in the order of sending, so that rows can be gone through in the order of reading, in which neighbours
/// stand together.
#[derive(Debug)]
struct Places {
    fresh: Vec<u32>,
    held: Vec<u32>,
    /// The numbers of rows that were sent before.
    again: Vec<u32>,
}

impl Places {
    fn of(batch: &GeneralizedBatch) -> Self {
        let (mut fresh, mut held) = (vec![UNSENT; batch.fresh.len()], vec![UNSENT; batch.held.len()]);
        let mut again = Vec::new();
        for (at, row) in (0..).zip(&batch.order) {
            let place = match row {
                RowRef::Fresh(i) => &mut fresh[*i as usize],
                RowRef::Held(i) => &mut held[*i as usize],
            };
            if *place == UNSENT { *place = at } else { again.push(at) }
        }
        Self { fresh, held, again }
    }

    /// Shows `see` every row that is sent: the rows, its index there, and its number in the order of sending.
    fn each(&self, batch: &GeneralizedBatch, mut see: impl FnMut(&Rows, usize, u32)) {
        for (rows, places) in [(&batch.fresh, &self.fresh), (&batch.held, &self.held)] {
            for (i, &at) in places.iter().enumerate().filter(|(_, at)| **at != UNSENT) {
                see(rows, i, at);
            }
        }
        for &at in &self.again {
            let (rows, i) = batch.source(batch.order[at as usize]);
            see(rows, i, at);
        }
    }
}

/// What a batch looks like to whoever compares it with another, read off its rows once.
#[derive(Debug)]
pub(super) struct Looks {
    places: Places,
    /// Where its rows stood.
    positions: Spans,
    /// Per attribute.
    alike: Vec<Alike>,
    /// For every cell a leaf that is written so, class by class.
    leaves: Vec<Code>,
    values: Arc<CountedValues>,
}

impl Looks {
    /// `cells` holds one code per text, class by class.
    fn of(batch: &GeneralizedBatch, cells: &[Code], values: Arc<CountedValues>) -> Self {
        let places = Places::of(batch);
        let width = batch.quasi.len();
        let mut positions = Covering::default();
        let mut written: Vec<Written> = vec![Written::default(); width];
        places.each(batch, |rows, i, at| {
            positions.add(rows.position(i));
            let class = batch.classes[at as usize] as usize;
            let texts = &cells[class * width..(class + 1) * width];
            for ((written, &leaf), &text) in written.iter_mut().zip(rows.quasi(i)).zip(texts) {
                written.add(leaf, text);
            }
        });
        let leaf = |(cell, &text): (usize, &Code)| *place(&mut written[cell % width].stands_for, text);
        let leaves = cells.iter().enumerate().map(leaf).map(Option::unwrap_or_default).collect();
        let positions = positions.spans();
        Self { places, positions, alike: written.into_iter().map(|written| written.alike).collect(), leaves, values }
    }

    /// The cells of every class at the join, class by class.
    fn cells(&self, join: &mut [Alike]) -> Vec<Code> {
        let width = join.len();
        self.leaves.iter().enumerate().map(|(cell, &leaf)| join[cell % width].find(leaf)).collect()
    }
}

/// How the leaves of one attribute are written.
#[derive(Clone, Default)]
struct Written {
    alike: Alike,
    /// For each leaf the text that it was last seen as.
    seen_as: Vec<Option<Code>>,
    /// For each text a leaf that it was written for.
    stands_for: Vec<Option<Code>>,
}

impl Written {
    #[inline]
    fn add(&mut self, leaf: Code, text: Code) {
        if self.seen_as.get(leaf as usize) != Some(&Some(text)) {
            *place(&mut self.seen_as, leaf) = Some(text);
            let first = *place(&mut self.stands_for, text).get_or_insert(leaf);
            self.alike.join(leaf, first);
        }
    }
}

fn place(list: &mut Vec<Option<Code>>, code: Code) -> &mut Option<Code> {
    if list.len() <= code as usize {
        list.resize(code as usize + 1, None);
    }
    &mut list[code as usize]
}

/// Leaves of one attribute that are one value: those that a batch writes alike, and so on from leaf to leaf (union-find).
#[derive(Clone, Debug, Default)]
struct Alike {
    /// Another leaf of the same value, or itself; so are those beyond the end.
    parent: Vec<Code>,
}

impl Alike {
    /// The leaf that stands for the value of this one.
    fn find(&mut self, mut leaf: Code) -> Code {
        while let Some(&parent) = self.parent.get(leaf as usize)
            && parent != leaf
        {
            // Halves the way for the next time.
            self.parent[leaf as usize] = self.parent[parent as usize];
            leaf = parent;
        }
        leaf
    }

    fn join(&mut self, a: Code, b: Code) {
        (self.parent.len() as Code..=a.max(b)).for_each(|leaf| self.parent.push(leaf));
        let (a, b) = (self.find(a), self.find(b));
        self.parent[a as usize] = b;
    }

    /// Joins whatever the other has joined.
    fn add(&mut self, other: &Self) {
        (0..).zip(&other.parent).for_each(|(leaf, &parent)| self.join(leaf, parent));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap, HashSet};

    use proptest::prelude::*;
    use smallvec::SmallVec;

    use super::*;
    use crate::encode::Dictionaries;
    use crate::model::batch::Row;
    use crate::model::event::{Millis, Position};
    use crate::model::hierarchy::{Hierarchy, PrefixSpec};
    use crate::model::schema::Role;
    use crate::search::fixture::policy;

    /// A row: its leaves, what is written for them, whose it is, and whether it was held.
    type Line = ([Code; 2], [Code; 2], u64, bool);

    /// Of rows by their offsets, every other one in another partition. One text has two codes. `again`: a row that is sent once
    /// more, written as another.
    fn batch(lines: &[(i64, Line)], unsent: usize, again: Option<(usize, usize)>) -> GeneralizedBatch {
        let mut rows = Rows::new(2, 0);
        let mut cells = Vec::new();
        for &(offset, (leaves, texts, subject, _)) in lines {
            let row = Row { quasi: SmallVec::from_slice(&leaves), subject, ..Row::default() };
            rows.push(Position::new((offset % 2) as u32, offset), Millis(0), &row);
            cells.extend(texts);
        }
        let table: Arc<[String]> = ["x", "y", "x", "z"].map(String::from).into();
        let none = Dictionaries { quasi: vec![], sensitive: vec![], written: vec![], profiles: Arc::default() };
        let mut batch = GeneralizedBatch::as_read(rows, vec![Arc::clone(&table), table], &cells, &none);
        batch.held = Arc::clone(&batch.fresh);
        for (row, (_, line)) in batch.order.iter_mut().zip(lines) {
            if let (RowRef::Fresh(i), true) = (*row, line.3) {
                *row = RowRef::Held(i);
            }
        }
        let sent = lines.len().saturating_sub(unsent);
        batch.order.truncate(sent);
        batch.classes.truncate(sent);
        if let Some((row, class)) = again.filter(|_| sent > 0) {
            batch.order.push(batch.order[row % sent]);
            batch.classes.push(batch.classes[class % sent]);
        }
        batch
    }

    /// The slow twin, row by row: leaves that some row of either batch is written alike with have one name.
    fn joined(batches: [&GeneralizedBatch; 2], attribute: usize) -> HashMap<Code, Code> {
        let written = |batch: &'_ GeneralizedBatch| -> Vec<(Code, String)> {
            let row = |at: usize| {
                let (rows, i) = batch.source(batch.order[at]);
                (rows.quasi(i)[attribute], batch.quasi[attribute].text(batch.cells(at)[attribute]).to_owned())
            };
            (0..batch.len()).map(row).collect()
        };
        let mut names: HashMap<Code, Code> = HashMap::new();
        for rows in batches.map(written) {
            for (leaf, text) in &rows {
                for (other, _) in rows.iter().filter(|(_, other)| other == text) {
                    let (a, b) = (*names.entry(*leaf).or_insert(*leaf), *names.entry(*other).or_insert(*other));
                    names.values_mut().filter(|name| **name == b).for_each(|name| *name = a);
                }
            }
        }
        names
    }

    /// How many people the first class has that is too small, of those who left and those who came.
    fn refused(last: &GeneralizedBatch, now: &GeneralizedBatch, k: usize) -> Option<u32> {
        let names = [0, 1].map(|attribute| joined([last, now], attribute));
        for (batch, other) in [(last, now), (now, last)] {
            let sent = other.order.iter().map(|&row| other.source(row));
            let others: HashSet<Position> = sent.map(|(rows, i)| rows.position(i)).collect();
            let mut classes: Vec<([Code; 2], BTreeSet<u64>)> = Vec::new();
            for (rows, i) in batch.order.iter().map(|&row| batch.source(row)) {
                if !others.contains(&rows.position(i)) {
                    let key = [0, 1].map(|attribute| names[attribute][&rows.quasi(i)[attribute]]);
                    let at = classes.iter().position(|(other, _)| *other == key).unwrap_or_else(|| {
                        classes.push((key, BTreeSet::new()));
                        classes.len() - 1
                    });
                    classes[at].1.insert(rows.subject(i));
                }
            }
            let small = classes.iter().find(|(_, people)| people.len() < k);
            if let Some((_, people)) = small {
                return Some(people.len() as u32);
            }
        }
        None
    }

    fn lines() -> impl Strategy<Value = Vec<(i64, Line)>> {
        let line = ([0u32..5, 0u32..3], [0u32..4, 0u32..4], 0u64..6, any::<bool>());
        prop::collection::btree_map(0i64..24, line, 0..24)
            .prop_map(|lines| lines.into_iter().collect::<Vec<_>>())
            .prop_shuffle()
    }

    proptest! {
        /// By class and by spans, the verdict is that of the twin, who looks at every pair of rows.
        #[test]
        fn who_left_and_who_came_is_counted_as_row_by_row(
            last in lines(), now in lines(), same in any::<bool>(), unsent in (0usize..3, 0usize..3), k in 1u32..4,
            again in [prop::option::of((0usize..24, 0usize..24)), prop::option::of((0usize..24, 0usize..24))],
        ) {
            // Often the same rows again: a difference of a few.
            let mut now = now;
            if same {
                now.retain(|(offset, _)| last.iter().all(|(other, _)| other != offset));
                now.truncate(3);
                now.extend(last.iter().cloned());
            }
            let quasi = ["a", "b"].map(|name| (name, Hierarchy::prefix(PrefixSpec::new(1)).unwrap()));
            let rules = Rules::new(&policy(quasi.into(), &[("who", Role::Subject)], k));
            let (last, now) = (batch(&last, unsent.0, again[0]), batch(&now, unsent.1, again[1]));
            let looks = |batch: &GeneralizedBatch| {
                Looks::of(batch, &canonical_cells(batch), Arc::new(CountedValues::of(batch)))
            };
            let verdict = compare_both((&last, &looks(&last)), (&now, &looks(&now)), &rules);
            prop_assert_eq!(verdict.err().map(|refusal| refusal.size), refused(&last, &now, k as usize));
        }
    }
}
