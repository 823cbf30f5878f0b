//! The gate for a release of changes: rows that come and rows that leave, with which a reader turns one snapshot into the next.
//!
//! The rows that are sent are counted as those of any release, the rows that come apart from those that leave. Beside that the gate
//! counts what they do to the cells of `difference.rs`: the people who leave a cell satisfy the policy together, and so do those who stay.
//! [`Accepted`] is what this takes to remember: the rows of the last snapshot that the gate let pass, with their cells and with what
//! each was counted as when it came. So a slide costs in proportion to the rows that come and leave, and to the cells that they leave.
//!
//! A class of the snapshot is made of cells, and it is not counted again. That is right only for rules that hold for a class made of
//! classes for which they hold, and that look at nothing else: [`Snapshot::accepted`] has nothing to offer under other rules.

use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

use hashbrown::HashTable;
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use super::count::{Count, Tally};
use super::difference::{NONE, SeenCells, SentPlaces, Snapshot, twice};
use super::row_numbers::RowNumbers;
use super::{FEW, Refusal, Release, as_sent, counted};
use crate::generalize::{Change, GeneralizedBatch};
use crate::model::batch::Rows;
use crate::model::counting::Facet;
use crate::model::domain::{Code, DomainView};
use crate::model::event::Position;
use crate::model::release::spans::{Covering, Spans};
use crate::privacy::Rules;

/// Classes by what their rows read, each with a number of its own.
#[derive(Default)]
struct ClassTexts {
    numbers: HashTable<(Box<[Box<str>]>, u32)>,
    next: u32,
}

impl ClassTexts {
    /// The number of the class with these labels, if there is one.
    fn get<'t>(&self, labels: impl Iterator<Item = &'t str> + Clone) -> Option<u32> {
        let reads = |(texts, _): &(Box<[Box<str>]>, u32)| texts.iter().map(|text| &**text).eq(labels.clone());
        self.numbers.find(Self::hash(labels.clone()), reads).map(|(_, number)| *number)
    }

    /// The number of the class with these labels; a new one if there was none.
    fn number<'t>(&mut self, labels: impl Iterator<Item = &'t str> + Clone) -> u32 {
        self.get(labels.clone()).unwrap_or_else(|| {
            let (hash, number) = (Self::hash(labels.clone()), self.next);
            self.next += 1;
            let class = (labels.map(Box::from).collect(), number);
            self.numbers.insert_unique(hash, class, |(texts, _)| Self::hash(texts.iter().map(|text| &**text)));
            number
        })
    }

    /// Forgets classes. Their numbers are not used again, so that no two classes ever share one.
    fn retain(&mut self, is_used: impl Fn(u32) -> bool) {
        self.numbers.retain(|(_, number)| is_used(*number));
    }

    fn hash<'t>(labels: impl Iterator<Item = &'t str>) -> u64 {
        let mut state = FxHasher::default();
        labels.for_each(|label| label.hash(&mut state));
        state.finish()
    }
}

/// The rows of the last snapshot, as the gate let them pass.
pub struct Accepted {
    /// In the order in which they came; some have left since.
    rows: Rows,
    /// The code of each row, by facet.
    codes: Vec<Code>,
    facets: usize,
    by_subject: bool,
    /// The number of each row that has not left.
    places: RowNumbers,
    /// The cell of each row; [`NONE`] if it has left.
    cell_of: Vec<u32>,
    /// The place of each row among those of its cell.
    place_in_cell: Vec<u32>,
    /// The class of each cell, and its rows.
    cells: Vec<(u32, Vec<u32>)>,
    classes: ClassTexts,
    /// The records that may not come any more.
    past: Spans,
    /// The counted and the written codes of sensitive values.
    views: (Vec<Arc<DomainView>>, Vec<Arc<DomainView>>),
}

impl Snapshot {
    /// The rows of this snapshot, to be changed; `None` where parts cannot be judged by themselves, or values were not counted as they
    /// are written.
    pub fn accepted(&self, rules: &Rules) -> Option<Accepted> {
        if !rules.only_classes() || !rules.monotone(false) || rules.facets().contains(&Facet::Profile) {
            return None;
        }
        let batch = &self.batch;
        let count = Count::new(batch, rules);
        let mut accepted = Accepted {
            rows: batch.fresh.filtered(|_| false),
            codes: Vec::with_capacity(batch.len() * rules.facets().len()),
            facets: rules.facets().len(),
            by_subject: rules.counting().subjects,
            places: RowNumbers::default(),
            cell_of: Vec::with_capacity(batch.len()),
            place_in_cell: Vec::with_capacity(batch.len()),
            cells: vec![(NONE, Vec::new()); self.cell_count()],
            classes: ClassTexts::default(),
            past: self.seen.past.clone(),
            views: (batch.sensitive.clone(), batch.written.clone()),
        };
        let width = batch.columns.len();
        let number = |class: usize| accepted.classes.number(texts(batch, class, width));
        let numbers: Vec<u32> = (0..batch.class_count).map(number).collect();
        let (mut cell_of, mut known) = (self.cells(), true);
        self.seen.places.each(batch, |rows, i, at| match (cell_of(rows.position(i)), count.known_codes(at)) {
            (Some(cell), Some(codes)) => {
                accepted.cells[cell as usize].0 = numbers[batch.classes[at as usize] as usize];
                accepted.push(rows, i, &codes, cell);
            }
            _ => known = false,
        });
        known.then_some(accepted)
    }
}

impl Accepted {
    /// How many rows the snapshot has.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// True if it has none.
    pub fn is_empty(&self) -> bool {
        self.places.len() == 0
    }

    /// All rows that are remembered, some of which have left.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// The number of the row of a record, if the snapshot has it.
    pub fn place(&self, position: Position) -> Option<u32> {
        self.places.get(position)
    }

    /// The cell of a row.
    pub fn cell(&self, row: u32) -> u32 {
        self.cell_of[row as usize]
    }

    /// The rows of a cell.
    pub fn members(&self, cell: u32) -> &[u32] {
        &self.cells[cell as usize].1
    }

    /// The snapshot that one of other rows is compared with.
    pub fn snapshot(&self) -> Snapshot {
        let rows = self.rows.filtered(|i| self.cell_of[i] != NONE);
        let (sensitive, written) = self.views.clone();
        let batch = GeneralizedBatch::unlabelled(rows, sensitive, written);
        let places = SentPlaces::of(&batch);
        let positions = places.positions(&batch);
        let (mut cells, mut sizes) = (vec![0; batch.len()], vec![0; self.cells.len()]);
        let mut finder = positions.finder();
        places.each(&batch, |rows, i, _| {
            let position = rows.position(i);
            if let (Some(place), Some(row)) = (finder.place(position), self.place(position)) {
                cells[place] = self.cell(row);
                sizes[self.cell(row) as usize] += 1;
            }
        });
        let seen = SeenCells { places, positions, cells, sizes, past: self.past.clone() };
        Snapshot { batch: Arc::new(batch), seen: Arc::new(seen) }
    }

    fn push(&mut self, rows: &Rows, i: usize, codes: &[Code], cell: u32) {
        let row = self.rows.len() as u32;
        self.rows.push_from(rows, i);
        self.codes.extend_from_slice(codes);
        self.places.insert(rows.position(i), row);
        self.cell_of.push(cell);
        let members = &mut self.cells[cell as usize].1;
        self.place_in_cell.push(members.len() as u32);
        members.push(row);
    }

    /// Counts some of the rows; an error if they do not satisfy the rules together.
    fn judge(&self, rows: &[u32], rules: &Rules) -> Result<(), Refusal> {
        let few = rows.len() > FEW && rules.monotone(true) && self.meets(&rows[..FEW], rules);
        if few || self.meets(rows, rules) {
            return Ok(());
        }
        let tally = self.tally(rows);
        let histograms = tally.histograms();
        let class = tally.class(&histograms);
        let rule = rules.iter().find(|rule| !rule.meets(rule.measure(&class, &class)));
        Err(Refusal {
            criterion: rule.map(|rule| rule.name()).unwrap_or_default(),
            required: rule.map(|rule| rule.required()).unwrap_or_default(),
            at_most: rule.is_some_and(|rule| rule.at_most()),
            achieved: rule.map(|rule| rule.measure(&class, &class)).unwrap_or_default(),
            size: class.size,
            without_held: false,
            difference: true,
            class: Vec::new(),
        })
    }

    fn meets(&self, rows: &[u32], rules: &Rules) -> bool {
        let tally = self.tally(rows);
        let histograms = tally.histograms();
        rules.hold_alone(&tally.class(&histograms))
    }

    fn tally(&self, rows: &[u32]) -> Tally {
        let subject = self.by_subject.then_some(|row: u32| self.rows.subject(row as usize));
        Tally::of(rows, subject, self.facets, |facet, row| self.codes[row as usize * self.facets + facet])
    }

    /// Counts what is left of the cells that rows leave, and those who leave.
    fn judge_leaving(&self, leaving: &[u32], rules: &Rules) -> Result<(), Refusal> {
        let mut by_cell: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        leaving.iter().for_each(|&row| by_cell.entry(self.cell(row)).or_default().push(row));
        for (cell, leave) in by_cell {
            let members = self.members(cell);
            if leave.len() == members.len() {
                continue;
            }
            self.judge(&leave, rules)?;
            let leave: FxHashSet<u32> = leave.into_iter().collect();
            let stay = || members.iter().copied().filter(|row| !leave.contains(row));
            let few: Vec<u32> = stay().take(FEW).collect();
            let few_hold = rules.monotone(true) && self.meets(&few, rules);
            if !few_hold {
                self.judge(&stay().collect::<Vec<u32>>(), rules)?;
            }
        }
        Ok(())
    }

    /// True if row i, with the labels of a class, reads as it did when it came.
    fn reads(&self, known: u32, class: Option<u32>, rows: &Rows, i: usize) -> bool {
        let known = known as usize;
        let is_class = class == Some(self.cells[self.cell_of[known] as usize].0);
        is_class && self.rows.written(known) == rows.written(i) && self.rows.kept(known).eq(rows.kept(i))
    }

    fn remove(&mut self, leaving: &[u32]) {
        let mut left = Covering::default();
        for &row in leaving {
            let position = self.rows.position(row as usize);
            self.places.remove(position);
            left.add(position);
            // The last of the cell takes its place, so that a large cell costs no more to leave than a small one.
            let cell = std::mem::replace(&mut self.cell_of[row as usize], NONE);
            let (members, place) = (&mut self.cells[cell as usize].1, self.place_in_cell[row as usize]);
            members.swap_remove(place as usize);
            if let Some(&moved) = members.get(place as usize) {
                self.place_in_cell[moved as usize] = place;
            }
        }
        self.past = self.past.union(&left.spans());
        if self.rows.len() > 2 * self.len() + FEW {
            self.compact();
        }
    }

    /// Forgets the rows that have left, and the cells that have none.
    fn compact(&mut self) {
        let stays: Vec<bool> = self.cell_of.iter().map(|&cell| cell != NONE).collect();
        let mut numbers = vec![NONE; stays.len()];
        let staying = (0..).zip(&stays).filter(|(_, stays)| **stays).map(|(row, _)| row);
        (0..).zip(staying).for_each(|(number, row): (u32, usize)| numbers[row] = number);
        self.rows = self.rows.filtered(|i| stays[i]);
        let facets = self.facets;
        let of_row = |row: usize| self.codes[row * facets..(row + 1) * facets].iter().copied();
        self.codes = (0..stays.len()).filter(|&row| stays[row]).flat_map(of_row).collect();
        self.cells.retain(|(_, rows)| !rows.is_empty());
        self.cell_of = vec![NONE; self.rows.len()];
        self.place_in_cell = vec![NONE; self.rows.len()];
        for (cell, (_, rows)) in (0..).zip(&mut self.cells) {
            for (place, row) in (0..).zip(rows) {
                *row = numbers[*row as usize];
                (self.cell_of[*row as usize], self.place_in_cell[*row as usize]) = (cell, place);
            }
        }
        self.places.renumber(&numbers);
        let used: FxHashSet<u32> = self.cells.iter().map(|(class, _)| *class).collect();
        self.classes.retain(|class| used.contains(&class));
    }
}

/// What a class reads in the first `width` columns, those before the one of a changelog.
fn texts(batch: &GeneralizedBatch, class: usize, width: usize) -> impl Iterator<Item = &str> + Clone {
    let cells = batch.class_cells(class)[..width].iter();
    cells.zip(&batch.quasi).map(|(&code, labels)| labels.text(code))
}

/// Like [`super::verify_next`], for the rows that come to the last snapshot and those that leave it; then `accepted` has the snapshot
/// after it. Records before those of `oldest` do not come later.
pub fn verify_changes(
    batch: GeneralizedBatch,
    rules: &Rules,
    accepted: &mut Accepted,
    oldest: &Spans,
) -> Result<Release, Refusal> {
    let batch = as_sent(batch, rules);
    let count = Count::new(&batch, rules);
    let release = counted(&batch, &count, rules)?;
    let width = batch.columns.len();
    let labels = |class: usize| accepted.classes.get(texts(&batch, class, width));
    let labels: Vec<Option<u32>> = (0..batch.class_count).map(labels).collect();
    let (mut coming, mut leaving) = (Vec::new(), Vec::new());
    let mut met = FxHashSet::default();
    for (at, &row) in (0..).zip(&batch.order) {
        let (rows, i) = batch.source(row);
        let position = rows.position(i);
        if !met.insert(position) {
            return Err(twice("one row per record"));
        }
        let class = batch.classes[at as usize] as usize;
        match (batch.change(class), accepted.place(position)) {
            (Some((Change::Comes, _)), None) if !accepted.past.contains(position) => coming.push((at, class)),
            (Some((Change::Leaves, _)), Some(known)) if accepted.reads(known, labels[class], rows, i) => {
                leaving.push(known);
            }
            _ => return Err(twice("no record returns")),
        }
    }
    let bound = rules.bind(&count.meanings());
    accepted.judge_leaving(&leaving, &bound)?;
    let codes: Option<Vec<_>> = coming.iter().map(|&(at, _)| count.known_codes(at)).collect();
    let Some(codes) = codes else { return Err(twice("values counted as written")) };
    accepted.remove(&leaving);
    accepted.past = accepted.past.union(oldest);
    accepted.views = (batch.sensitive.clone(), batch.written.clone());
    // Those who come with the same labels are a new cell.
    let mut cells: FxHashMap<usize, u32> = FxHashMap::default();
    for ((at, class), codes) in coming.into_iter().zip(codes) {
        let cell = *cells.entry(class).or_insert_with(|| {
            let labels = accepted.classes.number(texts(&batch, class, width));
            accepted.cells.push((labels, Vec::new()));
            accepted.cells.len() as u32 - 1
        });
        let (rows, i) = batch.source(batch.order[at as usize]);
        accepted.push(rows, i, &codes, cell);
    }
    Ok(release)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::gate::verify_next;
    use crate::generalize::RowRef;
    use crate::model::hierarchy::{Hierarchy, PrefixSpec};
    use crate::model::lattice::Node;
    use crate::model::policy::{Criterion, Diversity, Policy};
    use crate::model::recoding::{Column, Recoding};
    use crate::model::schema::Role;
    use crate::search::fixture::{Table, policy};

    /// These rows of a table, at level 0.
    fn batch(table: &Table, rows: &BTreeSet<u32>) -> GeneralizedBatch {
        let columns = Recoding::from(Node::new([0])).columns(&table.dictionaries.quasi);
        let columns: Vec<Arc<Column>> = columns.into_iter().map(Arc::new).collect();
        let order = rows.iter().copied().map(RowRef::Fresh).collect();
        GeneralizedBatch::at(Arc::clone(&table.rows), Arc::default(), order, &columns, &table.dictionaries)
    }

    #[test]
    fn no_class_takes_the_number_of_another() {
        let mut classes = ClassTexts::default();
        let numbers: Vec<u32> = ["a", "b", "c"].map(|text| classes.number([text, "x"].into_iter())).into();
        classes.retain(|number| number == numbers[2]);
        let (known, new) = (classes.get(["c", "x"].into_iter()), classes.number(["d", "x"].into_iter()));
        assert_eq!(known, Some(numbers[2]));
        assert!(!numbers.contains(&new) && classes.get(["a", "x"].into_iter()).is_none());
    }

    proptest! {
        /// The slow twin counts the whole snapshot after each slide. Both let the same slides pass, and remember the same cells.
        #[test]
        fn changes_pass_exactly_if_the_snapshot_after_them_does(
            people in prop::collection::vec((0u8..3, 0u8..3, 0u8..40), 30..90),
            steps in prop::collection::vec((1usize..14, prop::collection::vec(0usize..30, 0..14), prop::bool::weighted(0.05)), 1..12),
            k in 1u32..4,
            diverse in any::<bool>(),
            subject in any::<bool>(),
        ) {
            let zip = Hierarchy::prefix(PrefixSpec::new(1)).unwrap();
            let others = [("ill", Role::Sensitive), ("who", Role::Subject)];
            let mut policy = policy(vec![("zip", zip)], &others[..1 + usize::from(subject)], k);
            if diverse {
                policy = Policy {
                    criteria: [
                        &policy.criteria[..],
                        &[Criterion::LDiversity { field: 0, l: 2.0, variant: Diversity::Distinct }],
                    ].concat(),
                    ..policy
                };
            }
            let record = |(zip, ill, who): &(u8, u8, u8)| {
                [zip, ill, who][..2 + usize::from(subject)].iter().map(ToString::to_string).collect::<Vec<String>>()
            };
            let table = Table::new(policy, &people.iter().map(record).collect::<Vec<_>>());
            let rules = &table.rules;
            let mut shown: BTreeSet<u32> = (0..people.len() as u32 / 3).collect();
            let first = verify_next(batch(&table, &shown), rules, None);
            prop_assume!(first.is_ok());
            let mut last = first.unwrap().1;
            let mut accepted = last.accepted(&rules.bind(&table.dictionaries.values())).unwrap();
            let (mut next, mut gone) = (shown.len() as u32, Vec::new());
            for (come, leave, returns) in steps {
                let mut came: BTreeSet<u32> = (next..people.len() as u32).take(come).collect();
                came.extend(gone.first().filter(|_| returns));
                let left: BTreeSet<u32> = leave.iter().filter_map(|&at| shown.iter().nth(at).copied()).collect();
                let changed: BTreeSet<u32> = &came | &left;
                if changed.is_empty() {
                    continue;
                }
                let now: BTreeSet<u32> = &(&shown - &left) | &came;
                let is_left = |row| matches!(row, RowRef::Fresh(i) if left.contains(&i));
                let kind = |row| if is_left(row) { Change::Leaves } else { Change::Comes };
                let changes = batch(&table, &changed).into_changelog(kind);
                let verdict = verify_changes(changes, rules, &mut accepted, &Spans::default());
                let twin = verify_next(batch(&table, &now), rules, Some(&last));
                prop_assert_eq!(verdict.is_ok(), twin.is_ok(), "{:?} {:?}", verdict.err(), twin.err());
                if let Ok((_, snapshot)) = twin {
                    (last, shown) = (snapshot, now);
                    next += came.range(next..).count() as u32;
                    gone.extend(left);
                }
                prop_assert_eq!(accepted.len(), shown.len());
                let cells = |cell: &mut dyn FnMut(Position) -> Option<u32>| {
                    let mut groups: BTreeSet<BTreeSet<u32>> = BTreeSet::new();
                    let mut by_cell: FxHashMap<u32, BTreeSet<u32>> = FxHashMap::default();
                    for &row in &shown {
                        by_cell.entry(cell(table.rows.position(row as usize)).unwrap()).or_default().insert(row);
                    }
                    groups.extend(by_cell.into_values());
                    groups
                };
                let of_changes = cells(&mut |at| accepted.place(at).map(|row| accepted.cell(row)));
                prop_assert_eq!(of_changes, cells(&mut last.cells()));
                for &row in &shown {
                    let row = accepted.place(table.rows.position(row as usize)).unwrap();
                    prop_assert!(accepted.members(accepted.cell(row)).contains(&row));
                }
            }
        }
    }
}
