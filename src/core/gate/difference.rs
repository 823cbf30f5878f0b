//! The difference-safe gate: a reader has the earlier snapshots too, and puts them side by side.
//!
//! Side by side, the snapshots of a sliding window are one wide table: for every record what each of them shows of it, or
//! that it is not there. A *cell* is the records that are alike in all of this. Somebody who knows in which snapshots a
//! person is, and recognises rows from one to the next, finds that person's cell and nothing smaller; whatever else is
//! compared, two snapshots or ten, neighbours or not, at any levels, is made of whole cells. So every cell must satisfy the
//! policy.
//!
//! Cells only ever split, by the records that leave and by those that are written otherwise than the rest. One that does
//! not was counted when it came; the gate counts the parts of the others, and the records that come. A record that has left
//! does not come again, so that a cell without rows in the last snapshot never changes, and one number per row of the last
//! snapshot is all that has to be remembered. Rows are told apart by where they stood in the source, and what is alike is
//! read off the labels that were written; nothing that planned the snapshot is believed.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::count::{Count, Groups};
use super::{Reading, Refusal, Release, as_sent, counted};
use crate::generalize::{GeneralizedBatch, RowRef};
use crate::model::batch::Rows;
use crate::model::domain::Code;
use crate::model::event::{Offset, Partition, Position};
use crate::model::release::spans::{Covering, Span, Spans};
use crate::privacy::Rules;

/// The basis of the comparison with the next release: the rows of a snapshot, and the cell of each.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(super) batch: Arc<GeneralizedBatch>,
    pub(super) seen: Arc<SeenCells>,
}

impl Snapshot {
    /// The rows that were published of these positions, and the index of each.
    pub fn rows_at(&self, positions: &Spans) -> Vec<(&Rows, usize)> {
        let at = self.seen.rows_at(&self.batch, &self.seen.positions.within(positions));
        at.into_iter().map(|(at, _)| self.batch.source(self.batch.order[at as usize])).collect()
    }

    /// Tells the cell of the record at a position, if it was published; best asked in the order of reading.
    pub fn cells(&self) -> impl FnMut(Position) -> Option<u32> {
        let mut places = self.seen.positions.finder();
        move |position| places.place(position).map(|place| self.seen.cells[place])
    }

    /// How many cells there are.
    pub fn cell_count(&self) -> usize {
        self.seen.sizes.len()
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

/// Like [`super::verify`], after `last` was published: every group that the new release lets a reader tell apart in the
/// earlier ones must satisfy the policy too. Also returns what the release after it is compared with.
pub fn verify_next(
    batch: GeneralizedBatch,
    rules: &Rules,
    last: Option<&Snapshot>,
) -> Result<(Release, Snapshot), Refusal> {
    let batch = as_sent(batch, rules);
    let count = Count::new(&batch, rules);
    let release = counted(&batch, &count, rules)?;
    let places = SentPlaces::of(&batch);
    let positions = places.positions(&batch);
    if positions.count() != batch.len() as u64 {
        return Err(twice("one row per record"));
    }
    let parts = Parts::of(&batch, &places, count.cells(), last)?;
    count_parts(&batch, &count, rules, &parts.changed())?;
    if let Some(last) = last {
        let left = parts.left(last, &positions);
        if !left.ends.is_empty() {
            count_parts(&last.batch, &Count::new(&last.batch, rules), rules, &left)?;
        }
    }
    let mut cells = vec![0; batch.len()];
    let mut finder = positions.finder();
    places.each(&batch, |rows, i, at| {
        if let Some(place) = finder.place(rows.position(i)) {
            cells[place] = parts.of_row[at as usize];
        }
    });
    let past = past(&batch, &positions, last);
    let seen = SeenCells { places, positions, cells, sizes: parts.sizes, past };
    Ok((release, Snapshot { batch, seen: Arc::new(seen) }))
}

/// Judges each part by itself.
fn count_parts(batch: &GeneralizedBatch, count: &Count<'_>, rules: &Rules, parts: &Groups) -> Result<(), Refusal> {
    let rules = rules.bind(&count.meanings());
    Reading { batch, rules: &rules, count, without_held: false, difference: true }.check_parts(parts)
}

/// A record is shown more often than it may be.
pub(super) fn twice(criterion: &str) -> Refusal {
    Refusal {
        criterion: criterion.to_owned(),
        required: 1.0,
        at_most: true,
        achieved: 2.0,
        size: 1,
        without_held: false,
        difference: true,
        class: Vec::new(),
    }
}

/// The records that may not come any more: those that have left, and those from before all rows that could have been shown.
fn past(batch: &GeneralizedBatch, positions: &Spans, last: Option<&Snapshot>) -> Spans {
    let mut first: FxHashMap<Partition, Offset> = FxHashMap::default();
    for Position { partition, offset } in batch.fresh.positions().chain(batch.held.positions()) {
        let first = first.entry(partition).or_insert(offset);
        *first = (*first).min(offset);
    }
    let before = |(partition, first): (Partition, Offset)| {
        let span = (first.0 > 0).then(|| Span { first: Offset(0), last: Offset(first.0 - 1) });
        (partition, span.into_iter().collect())
    };
    let before = Spans::from_runs(first.into_iter().map(before));
    match last {
        Some(Snapshot { seen, .. }) => seen.positions.without(positions).union(&seen.past).union(&before),
        None => before,
    }
}

/// A row that is not sent has no number, and a record that is nowhere has no place; no batch has as many rows.
pub(super) const NONE: u32 = u32::MAX;

/// The number of each row in the order of sending, so that rows can be gone through in the order of reading, in which neighbours
/// stand together.
#[derive(Debug)]
pub(super) struct SentPlaces {
    fresh: Vec<u32>,
    held: Vec<u32>,
}

impl SentPlaces {
    pub(super) fn of(batch: &GeneralizedBatch) -> Self {
        let (mut fresh, mut held) = (vec![NONE; batch.fresh.len()], vec![NONE; batch.held.len()]);
        for (at, row) in (0..).zip(&batch.order) {
            match row {
                RowRef::Fresh(i) => fresh[*i as usize] = at,
                RowRef::Held(i) => held[*i as usize] = at,
            }
        }
        Self { fresh, held }
    }

    /// Shows `see` every row that is sent: the rows, its index there, and its number in the order of sending.
    pub(super) fn each(&self, batch: &GeneralizedBatch, mut see: impl FnMut(&Rows, usize, u32)) {
        for (rows, places) in [(&batch.fresh, &self.fresh), (&batch.held, &self.held)] {
            for (i, &at) in places.iter().enumerate().filter(|(_, at)| **at != NONE) {
                see(rows, i, at);
            }
        }
    }

    pub(super) fn positions(&self, batch: &GeneralizedBatch) -> Spans {
        let mut positions = Covering::default();
        self.each(batch, |rows, i, _| positions.add(rows.position(i)));
        positions.spans()
    }
}

/// The knowledge of a reader who has this snapshot and all before it.
#[derive(Debug)]
pub(super) struct SeenCells {
    pub(super) places: SentPlaces,
    /// Where its rows stood.
    pub(super) positions: Spans,
    /// The cell of every row, in the order of positions.
    pub(super) cells: Vec<u32>,
    /// How many rows each cell has.
    pub(super) sizes: Vec<u32>,
    /// The records that may not come any more.
    pub(super) past: Spans,
}

impl SeenCells {
    /// The rows that stand at `positions`, by their number in the order of sending, and their cells.
    fn rows_at(&self, batch: &GeneralizedBatch, positions: &Spans) -> Vec<(u32, u32)> {
        let mut found = Vec::new();
        if !positions.is_empty() {
            let (mut finder, mut places) = (positions.finder(), self.positions.finder());
            self.places.each(batch, |rows, i, at| {
                let position = rows.position(i);
                if finder.contains(position) {
                    found.extend(places.place(position).map(|place| (at, self.cells[place])));
                }
            });
        }
        found
    }
}

/// The fate of the last cells with a batch: each is one part, or splits. The records that come are parts too, class by
/// class.
struct Parts<'a> {
    /// How many rows each of the last cells has.
    last: &'a [u32],
    /// The part of every row, in the order of sending.
    of_row: Vec<u32>,
    /// Which of the last cells each part is of; more than there are if it comes.
    from: Vec<u32>,
    /// How many rows each part has.
    sizes: Vec<u32>,
    /// For each of the last cells, and for each class of those who come, the class that was met first, and the part.
    first: Vec<(u32, u32)>,
    /// The parts of other classes, which are few: most cells do not split.
    others: FxHashMap<(u32, u32), u32>,
}

impl<'a> Parts<'a> {
    /// `cells` holds one code per text, class by class.
    fn of(
        batch: &GeneralizedBatch,
        places: &SentPlaces,
        cells: &[Code],
        last: Option<&'a Snapshot>,
    ) -> Result<Self, Refusal> {
        let classes = texts(batch, cells);
        let nothing = Spans::default();
        let past = last.map_or(&nothing, |last| &last.seen.past);
        let mut is_past = past.finder();
        let mut cell_of = last.map(Snapshot::cells);
        let sizes = last.map_or(&[][..], |last| &last.seen.sizes);
        let mut parts = Self {
            last: sizes,
            of_row: vec![NONE; batch.len()],
            from: Vec::new(),
            sizes: Vec::new(),
            first: vec![(NONE, NONE); sizes.len() + batch.class_count],
            others: FxHashMap::default(),
        };
        let mut returns = false;
        places.each(batch, |rows, i, at| {
            let class = classes[batch.classes[at as usize] as usize];
            let cell = cell_of.as_mut().and_then(|cell_of| cell_of(rows.position(i)));
            returns |= cell.is_none() && is_past.contains(rows.position(i));
            let part = parts.number(cell.unwrap_or(sizes.len() as u32 + class), class);
            parts.sizes[part as usize] += 1;
            parts.of_row[at as usize] = part;
        });
        if returns { Err(twice("no record returns")) } else { Ok(parts) }
    }

    #[inline]
    fn number(&mut self, from: u32, class: u32) -> u32 {
        let next = self.sizes.len() as u32;
        let first = &mut self.first[from as usize];
        let part = match *first {
            (met, part) if met == class => part,
            (NONE, _) => {
                *first = (class, next);
                next
            }
            _ => *self.others.entry((from, class)).or_insert(next),
        };
        if part == next {
            self.sizes.push(0);
            self.from.push(from);
        }
        part
    }

    /// The parts that are no whole cell, of rows of the batch.
    fn changed(&self) -> Groups {
        let parts = self.sizes.iter().zip(&self.from);
        let is_open: Vec<bool> = parts.map(|(size, &from)| self.last.get(from as usize) != Some(size)).collect();
        let rows = (0..).zip(self.of_row.iter().copied());
        groups(rows.filter(|(_, part)| is_open[*part as usize]), is_open.len())
    }

    /// Those who leave a cell that others stay in, of rows of the last snapshot.
    fn left(&self, last: &Snapshot, now: &Spans) -> Groups {
        let mut stay = vec![0; self.last.len()];
        for (&from, &size) in self.from.iter().zip(&self.sizes) {
            stay.get_mut(from as usize).into_iter().for_each(|stay| *stay += size);
        }
        let splits = |cell: u32| stay[cell as usize] > 0 && stay[cell as usize] < self.last[cell as usize];
        let mut left = last.seen.rows_at(&last.batch, &last.seen.positions.without(now));
        left.retain(|(_, cell)| splits(*cell));
        groups(left.iter().copied(), self.last.len())
    }
}

/// The rows by their group, without the groups that have none.
fn groups(rows: impl Iterator<Item = (u32, u32)> + Clone, count: usize) -> Groups {
    let mut ends = vec![0; count];
    rows.clone().for_each(|(_, group)| ends[group as usize] += 1);
    let mut start = 0;
    ends.iter_mut().for_each(|end| start += std::mem::replace(end, start));
    let mut grouped = vec![0; start];
    for (at, group) in rows {
        grouped[ends[group as usize]] = at;
        ends[group as usize] += 1;
    }
    ends.dedup();
    ends.retain(|end| *end > 0);
    Groups { rows: grouped, ends }
}

/// For each class its number among those that read differently.
fn texts(batch: &GeneralizedBatch, cells: &[Code]) -> Vec<u32> {
    let width = batch.quasi.len();
    let mut index: FxHashMap<&[Code], u32> = FxHashMap::default();
    let number = |class: usize| {
        let next = index.len() as u32;
        *index.entry(&cells[class * width..(class + 1) * width]).or_insert(next)
    };
    (0..batch.class_count).map(number).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;
    use smallvec::SmallVec;

    use super::*;
    use crate::encode::Dictionaries;
    use crate::model::batch::Row;
    use crate::model::event::Millis;
    use crate::model::hierarchy::{Hierarchy, PrefixSpec};
    use crate::model::schema::Role;
    use crate::search::fixture::policy;

    /// A row: what is written for it, whose it is, and whether it was held.
    type Line = ([Code; 2], u64, bool);

    /// Which of the codes 0 to 3 are written alike.
    const TEXTS: [&str; 4] = ["x", "y", "x", "z"];

    /// Of rows by their offsets, every other one in another partition. `again`: a row that is sent once more.
    fn batch(lines: &[(i64, Line)], unsent: usize, again: Option<usize>) -> GeneralizedBatch {
        let mut rows = Rows::new(2, 0);
        let mut cells = Vec::new();
        for &(offset, (texts, subject, _)) in lines {
            let row = Row { quasi: SmallVec::from_slice(&texts), subject, ..Row::default() };
            rows.push(Position::new((offset % 2) as u32, offset), Millis(0), &row);
            cells.extend(texts);
        }
        let table: Arc<[String]> = TEXTS.map(String::from).into();
        let mut batch =
            GeneralizedBatch::as_read(rows, vec![Arc::clone(&table), table], &cells, &Dictionaries::default());
        batch.held = Arc::clone(&batch.fresh);
        for (row, (_, line)) in batch.order.iter_mut().zip(lines) {
            if let (RowRef::Fresh(i), true) = (*row, line.2) {
                *row = RowRef::Held(i);
            }
        }
        let sent = lines.len().saturating_sub(unsent);
        batch.order.truncate(sent);
        batch.classes.truncate(sent);
        if let Some(row) = again.filter(|_| sent > 0) {
            batch.order.push(batch.order[row % sent]);
            batch.classes.push(batch.classes[row % sent]);
        }
        batch
    }

    /// The part of a record that a snapshot shows, if it does.
    type Shown = Option<[&'static str; 2]>;

    /// The slow twin: remembers every record that it ever saw, and what each snapshot said of it.
    #[derive(Clone, Default)]
    struct Twin {
        snapshots: usize,
        /// For every record whose it is, and how it was written by each snapshot.
        records: BTreeMap<i64, (u64, Vec<Shown>)>,
        /// In each partition, where the rows begin that could come.
        first: [i64; 2],
    }

    impl Twin {
        /// True if the batch may follow; then it is remembered.
        fn follows(&mut self, lines: &[(i64, Line)], unsent: usize, again: bool, k: usize) -> bool {
            let mut next = self.clone();
            let sent = &lines[..lines.len().saturating_sub(unsent)];
            for (offset, (texts, who, _)) in sent {
                let is_known = self.records.contains_key(offset);
                let was_there =
                    self.records.get(offset).is_some_and(|record| record.1.last().is_some_and(Option::is_some));
                if is_known && !was_there || !is_known && *offset < self.first[(offset % 2) as usize] {
                    return false;
                }
                let record = next.records.entry(*offset).or_insert_with(|| (*who, vec![None; self.snapshots]));
                record.1.push(Some(texts.map(|text| TEXTS[text as usize])));
            }
            next.snapshots += 1;
            next.records.values_mut().for_each(|record| record.1.resize(next.snapshots, None));
            let mut groups: BTreeMap<&[Shown], BTreeSet<u64>> = BTreeMap::new();
            next.records.values().for_each(|(who, trace)| _ = groups.entry(trace).or_default().insert(*who));
            // The batch by itself, without those who were held.
            let mut classes: BTreeMap<_, BTreeSet<u64>> = BTreeMap::new();
            for (_, (texts, who, held)) in sent {
                classes.entry(texts.map(|text| TEXTS[text as usize])).or_default().extend((!held).then_some(who));
            }
            for partition in 0..2 {
                let offsets = lines.iter().map(|line| line.0).filter(|offset| offset % 2 == partition);
                let first = &mut next.first[partition as usize];
                *first = offsets.min().map_or(*first, |offset| offset.max(*first));
            }
            let good = !again
                && classes.values().all(|people| people.len() >= k)
                && groups.values().all(|people| people.len() >= k);
            if good {
                *self = next;
            }
            good
        }
    }

    /// People at few offsets, so that they meet.
    fn people() -> impl Strategy<Value = BTreeMap<i64, Line>> {
        let text = prop_oneof![3 => Just(0u32), 1 => 0u32..4];
        let line = (text.prop_map(|text| [text, 0]), 0u64..30, prop::bool::weighted(0.02));
        prop::collection::btree_map(0i64..60, line, 0..60)
    }

    proptest! {
        /// Snapshot after snapshot, each of some of the people that the last had and of some others, now and then written
        /// otherwise, the verdict is that of the twin.
        #[test]
        fn groups_that_are_told_apart_are_counted_as_record_by_record(
            people in people(),
            steps in prop::collection::vec((0i64..30, 1i64..50, prop::option::weighted(0.2, 0u32..4), 0u8..30), 1..8),
            unsent in prop::collection::vec(prop_oneof![4 => Just(0usize), 1 => 1usize..9], 8),
            k in 1u32..4,
        ) {
            let quasi = ["a", "b"].map(|name| (name, Hierarchy::prefix(PrefixSpec::new(1)).unwrap()));
            let rules = Rules::new(&policy(quasi.into(), &[("who", Role::Subject)], k));
            let (mut twin, mut last) = (Twin::default(), None);
            for ((first, len, other, die), unsent) in steps.into_iter().zip(unsent) {
                let mut lines: Vec<(i64, Line)> =
                    people.range(first..first + len).map(|(offset, line)| (*offset, *line)).collect();
                for (_, line) in &mut lines {
                    line.0[1] = other.unwrap_or(0);
                    line.0[0] = if die % 3 == 0 { 0 } else { line.0[0] };
                }
                let again = (die == 7 && lines.len() > unsent).then_some(usize::from(die));
                let follows = twin.follows(&lines, unsent, again.is_some(), k as usize);
                let verdict = verify_next(batch(&lines, unsent, again), &rules, last.as_ref());
                prop_assert_eq!(verdict.is_ok(), follows, "{:?}", verdict.err());
                if let Ok((_, snapshot)) = verdict {
                    last = Some(snapshot);
                }
            }
        }
    }
}
