//! Keeps the class number of every candidate for a snapshot from slide to slide. While the recoding maps every known value as
//! before, only new rows are looked up.
//!
//! A number follows from a row's leaf codes and from the recoding's map of them. Both are compared; the position of a row only
//! says where to compare.

use std::sync::Arc;

use crate::generalize::{ClassIndex, Numbers};
use crate::model::batch::Rows;
use crate::model::domain::Code;
use crate::model::recoding::Column;

/// Classes whose rows have left keep their numbers until there are so many times as many as at first. Larger goes through more of
/// them at every slide; smaller looks all rows up more often.
const STALE: usize = 2;

/// Or so many more, where there are few.
const SPARE: usize = 1024;

/// How many codes are compared at once. More are compared again, one by one, where some differ; fewer take more steps.
const COMPARED: usize = 4096;

/// The classes of the last rows.
#[derive(Default)]
pub(in crate::anonymizer) struct Numbering(Option<Numbered>);

struct Numbered {
    rows: Arc<Rows>,
    columns: Vec<Arc<Column>>,
    index: ClassIndex,
    /// How many classes there were when all rows were looked up.
    at_first: usize,
    numbers: Arc<Numbers>,
}

impl Numbering {
    /// The classes of the rows by the columns.
    pub(in crate::anonymizer) fn number(&mut self, rows: &Arc<Rows>, columns: &[Arc<Column>]) -> Arc<Numbers> {
        let last = self.0.take().filter(|last| last.is_of(columns));
        Arc::clone(&self.0.insert(Numbered::new(rows, columns, last)).numbers)
    }
}

impl Numbered {
    fn new(rows: &Arc<Rows>, columns: &[Arc<Column>], last: Option<Self>) -> Self {
        let mut fresh = Vec::with_capacity(rows.len());
        let (mut index, at_first) = match last {
            Some(last) => {
                fresh.extend_from_slice(last.of(rows));
                (last.index, Some(last.at_first))
            }
            None => (ClassIndex::new(columns.iter().map(|column| column.len())), None),
        };
        for i in fresh.len()..rows.len() {
            let codes = rows.quasi(i).iter().zip(columns).map(|(&leaf, column)| column.map()[leaf as usize]);
            fresh.push(index.number(codes));
        }
        let numbers = Numbers { fresh, held: Vec::new(), cells: index.cells().to_vec(), count: index.len() };
        Self {
            rows: Arc::clone(rows),
            columns: columns.to_vec(),
            at_first: at_first.unwrap_or(index.len()),
            index,
            numbers: Arc::new(numbers),
        }
    }

    /// True if the numbers are good for these columns: they do the same to every leaf that was known before.
    fn is_of(&self, columns: &[Arc<Column>]) -> bool {
        let is_same = |(last, now): (&Arc<Column>, &Arc<Column>)| now.map().starts_with(last.map());
        self.columns.len() == columns.len()
            && self.columns.iter().zip(columns).all(is_same)
            && self.index.fits(columns.iter().map(|column| column.len()))
            && self.index.len() <= STALE * self.at_first + SPARE
    }

    /// The numbers of the first of these rows, as far as they are the last ones without the first of those.
    fn of(&self, rows: &Rows) -> &[u32] {
        let Some(first) = rows.positions().next() else { return &[] };
        let Some(gone) = self.rows.positions().position(|position| position == first) else { return &[] };
        let (most, width) = ((self.rows.len() - gone).min(rows.len()), self.columns.len().max(1));
        let mut same = 0;
        while same < most {
            let (last, now) = (self.rows.quasi_from(gone + same), rows.quasi_from(same));
            let piece = last.len().min(now.len());
            let alike = same_start(&last[..piece], &now[..piece]);
            same += alike / width;
            if alike < piece || piece == 0 {
                break;
            }
        }
        &self.numbers.fresh[gone..gone + same.min(most)]
    }
}

/// How many codes are the same at the start.
fn same_start(a: &[Code], b: &[Code]) -> usize {
    let chunks = a.chunks(COMPARED).zip(b.chunks(COMPARED));
    let start = chunks.take_while(|(a, b)| a == b).map(|(a, _)| a.len()).sum();
    start + a[start..].iter().zip(&b[start..]).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::generalize::RowRef;
    use crate::model::batch::Row;
    use crate::model::event::{Millis, Position};
    use crate::model::hierarchy::{Hierarchy, PrefixSpec};
    use crate::model::lattice::Node;
    use crate::model::recoding::{Cut, Recoding};
    use crate::search::fixture::{Table, policy};

    /// People of two attributes, of whom the first so many are known to the dictionaries.
    fn known(people: &[(u8, u8)]) -> Table {
        let quasi = ["zip", "job"].map(|name| (name, Hierarchy::prefix(PrefixSpec::new(2)).unwrap()));
        let code = |value: u8| format!("{}{}", value / 4, value % 4);
        let records: Vec<Vec<String>> = people.iter().map(|(zip, job)| vec![code(*zip), code(*job)]).collect();
        Table::new(policy(quasi.into(), &[], 1), &records)
    }

    /// A recoding: full-domain, or where the last of the dice says so one cut that keeps the values of some groups apart.
    fn recoding(table: &Table, dice: (u8, u8, u8)) -> Recoding {
        let domains = &table.dictionaries.quasi;
        let node = Recoding::from(Node::new([dice.0, dice.1]));
        if dice.2 > 1 {
            return node;
        }
        let groups = domains[0].between(0, 1);
        let levels: Vec<u8> = groups.iter().map(|group| (group % 2 == u32::from(dice.2)).into()).collect();
        let mut cuts = node.cuts(domains);
        cuts[0] = Cut::new(&domains[0], levels).unwrap();
        Recoding::Cuts(cuts)
    }

    /// Numbers say the same if they tell the same rows apart and give them the same codes.
    fn is_fresh(numbers: &Numbers, rows: &Rows, columns: &[Arc<Column>]) -> Result<(), TestCaseError> {
        let all: Vec<RowRef> = (0..rows.len() as u32).map(RowRef::Fresh).collect();
        let fresh = Numbers::of(rows, &Rows::new(2, 0), &all, columns);
        let mut names: HashMap<u32, u32> = HashMap::new();
        prop_assert_eq!(numbers.fresh.len(), rows.len());
        for (&kept, &fresh_number) in numbers.fresh.iter().zip(&fresh.fresh) {
            prop_assert_eq!(*names.entry(kept).or_insert(fresh_number), fresh_number);
            let cells = |numbers: &Numbers, number: u32| numbers.cells[number as usize * 2..][..2].to_vec();
            prop_assert_eq!(cells(numbers, kept), cells(&fresh, fresh_number));
        }
        prop_assert_eq!(names.len(), fresh.count);
        prop_assert_eq!(numbers.count * 2, numbers.cells.len());
        Ok(())
    }

    proptest! {
        /// Slide after slide, with recodings that stay or change, dictionaries that grow, and rows that are left out or that
        /// stand where others stood.
        #[test]
        fn kept_numbers_are_those_of_rows_looked_up_afresh(
            people in prop::collection::vec((0u8..16, 0u8..16), 10..80),
            slides in prop::collection::vec((1usize..12, 0usize..12, (0u8..3, 0u8..3, 0u8..4), 0u8..12), 1..14),
        ) {
            let mut numbering = Numbering::default();
            let (mut first, mut end, mut dice) = (0, 0, (0, 0, 2));
            for (come, leave, next, die) in slides {
                let before = end;
                end = (end + come).min(people.len());
                first = (first + leave).min(end);
                // Mostly the recoding stays.
                dice = if die < 3 { next } else { dice };
                let table = known(&people[..end]);
                let given_up = (die == 3).then_some((first + end) / 2);
                let stays = (first..end).filter(|i| Some(*i) != given_up);
                // Behind the window's rows come some that have left it.
                let numbers: Vec<usize> = stays.chain((0..first.min(before)).rev().take(3)).collect();
                let mut rows = Rows::new(2, 0);
                for &i in &numbers {
                    // Where a row stands says nothing of it.
                    let of = if die == 4 { end - 1 - i % end } else { i };
                    let quasi = table.rows.quasi(of).into();
                    rows.push(Position::new(0, i as i64), Millis(0), &Row { quasi, ..Row::default() });
                }
                let columns = recoding(&table, dice).columns(&table.dictionaries.quasi).into_iter().map(Arc::new).collect::<Vec<_>>();
                let rows = Arc::new(rows);
                is_fresh(&numbering.number(&rows, &columns), &rows, &columns)?;
            }
        }

        #[test]
        fn the_same_start_is_as_long_as_can_be(
            len in (0usize..3 * COMPARED, 0usize..3 * COMPARED),
            differs in prop::option::of(0usize..3 * COMPARED),
        ) {
            let (a, mut b) = (vec![7; len.0], vec![7; len.1]);
            differs.and_then(|at| b.get_mut(at)).into_iter().for_each(|code| *code = 8);
            let shorter = len.0.min(len.1);
            prop_assert_eq!(same_start(&a, &b), differs.map_or(shorter, |at| at.min(shorter)));
        }
    }

    #[test]
    fn classes_without_rows_are_forgotten_some_day() {
        let people: Vec<(u8, u8)> = (0..16).flat_map(|zip| (0..16).map(move |job| (zip, job))).collect();
        let table = known(&people);
        let columns = Recoding::from(Node::new([0, 0]))
            .columns(&table.dictionaries.quasi)
            .into_iter()
            .map(Arc::new)
            .collect::<Vec<_>>();
        let mut numbering = Numbering::default();
        let one = |i: usize| Arc::new(table.rows.filtered(|other| other == i));
        let counts: Vec<usize> = (0..people.len()).map(|i| numbering.number(&one(i), &columns).count).collect();
        assert_eq!(counts, (1..=people.len()).collect::<Vec<_>>());
        if let Some(numbered) = &mut numbering.0 {
            numbered.at_first = 0;
            assert!(numbered.is_of(&columns));
            let codes = |n: usize| [n as Code % 16, 16 + n as Code / 16].into_iter();
            for n in 0..SPARE {
                numbered.index.number(codes(n));
            }
        }
        assert_eq!(numbering.number(&one(0), &columns).count, 1);
    }
}
