//! The classes of the rows of a draft: a number for each row, the published codes of each class, and the label columns.
//!
//! This file is the only place where a recoding becomes classes. Every later step (outcomes, `sequential`, named groups,
//! generalization, provenance) reads the numbers and codes here and never maps leaf codes itself. A recoding in which the class
//! of a row does not follow from one column per attribute needs another constructor here and no change in those steps.
//!
//! Invariant: two rows that are published have the same number exactly if all their published codes are equal.

use std::sync::Arc;

use crate::encode::Dictionaries;
use crate::generalize::{ClassIndex, Numbers, RowRef};
use crate::local::Regions;
use crate::model::batch::Rows;
use crate::model::domain::{Code, DomainView};
use crate::model::lattice::Level;
use crate::model::recoding::{Column, GeneralizedValue, Recoding};
use crate::model::release::row_levels::RowLevels;
use crate::search::evaluator::Evaluator;

use super::numbering::Numbering;

/// Classes of rows, with the labels of their codes.
#[derive(Clone)]
pub(in crate::anonymizer) struct Grouping {
    pub(in crate::anonymizer) numbers: Arc<Numbers>,
    pub(in crate::anonymizer) columns: Vec<Arc<Column>>,
}

impl Grouping {
    /// The classes of fresh and held rows by a recoding.
    pub(in crate::anonymizer) fn of(
        recoding: &Recoding,
        rows: &Rows,
        held: &Rows,
        dictionaries: &Dictionaries,
    ) -> Self {
        let columns = columns(recoding, dictionaries);
        let mut index = ClassIndex::new(columns.iter().map(|column| column.len()));
        let mut number = |rows: &Rows| {
            let code = |(&leaf, column): (&Code, &Arc<Column>)| column.map()[leaf as usize];
            (0..rows.len()).map(|i| index.number(rows.quasi(i).iter().zip(&columns).map(code))).collect::<Vec<u32>>()
        };
        let (fresh, held) = (number(rows), number(held));
        let (cells, count) = index.into_cells();
        Self { numbers: Arc::new(Numbers { fresh, held, cells, count }), columns }
    }

    /// The classes of fresh and held rows by the regions of a schedule. Rows that are left over have a class of their own at the top.
    pub(in crate::anonymizer) fn of_regions(
        regions: &Regions,
        rows: &Rows,
        held: &Rows,
        dictionaries: &Dictionaries,
    ) -> Self {
        let columns: Vec<Arc<Column>> = dictionaries.quasi.iter().map(|view| Arc::new(Column::mixed(view))).collect();
        let left_over = regions.len() as u32;
        let code = |(column, &value): (&Arc<Column>, &GeneralizedValue)| column.code(value).unwrap_or_default();
        let mut cells: Vec<Code> =
            (0..left_over).flat_map(|class| columns.iter().zip(regions.labels(class)).map(code)).collect();
        cells.extend(columns.iter().map(|column| column.len() as Code - 1));
        let fresh = (0..rows.len()).map(|i| regions.fresh(i).unwrap_or(left_over)).collect();
        let held = (0..held.len()).map(|i| regions.held(i).unwrap_or(left_over)).collect();
        let numbers = Numbers { fresh, held, cells, count: regions.len() + 1 };
        Self { numbers: Arc::new(numbers), columns }
    }

    /// The classes of rows by labels that each has for itself. Rows without labels have a class of their own at the top.
    pub(in crate::anonymizer) fn of_labels<'l>(
        labels: impl Iterator<Item = Option<&'l [GeneralizedValue]>>,
        dictionaries: &Dictionaries,
    ) -> Self {
        let all: Vec<Option<&[GeneralizedValue]>> = labels.collect();
        Self::of_labelled(&all, all.len(), dictionaries)
    }

    /// The same, where the rows from `fresh` on are held ones.
    fn of_labelled(all: &[Option<&[GeneralizedValue]>], fresh: usize, dictionaries: &Dictionaries) -> Self {
        let columns: Vec<Arc<Column>> = dictionaries.quasi.iter().map(|view| Arc::new(Column::mixed(view))).collect();
        let mut index = ClassIndex::new(columns.iter().map(|column| column.len()));
        let code = |(column, &value): (&Arc<Column>, &GeneralizedValue)| column.code(value).unwrap_or_default();
        let classes: Vec<Option<u32>> =
            all.iter().map(|labels| labels.map(|labels| index.number(columns.iter().zip(labels).map(code)))).collect();
        let (mut cells, count) = index.into_cells();
        cells.extend(columns.iter().map(|column| column.len() as Code - 1));
        let mut of_fresh: Vec<u32> = classes.into_iter().map(|class| class.unwrap_or(count as u32)).collect();
        let held = of_fresh.split_off(fresh);
        let numbers = Numbers { fresh: of_fresh, held, cells, count: count + 1 };
        Self { numbers: Arc::new(numbers), columns }
    }

    /// The classes of rows that are shown at levels of their own: `place` tells which of `levels` are those of a row, if it is
    /// shown.
    /// `None` if the levels are those of other rows or other hierarchies.
    pub(in crate::anonymizer) fn at_levels(
        levels: &RowLevels,
        mut place: impl FnMut(&Rows, usize) -> Option<usize>,
        [fresh, held]: [&Rows; 2],
        dictionaries: &Dictionaries,
    ) -> Option<Self> {
        let domains = &dictionaries.quasi;
        let fits = |levels: &Vec<Level>| {
            levels.len() == domains.len() && levels.iter().zip(domains).all(|(&level, view)| level <= view.height())
        };
        let all = || [fresh, held].into_iter().flat_map(|rows| (0..rows.len()).map(move |i| (rows, i)));
        let places: Vec<Option<usize>> = all().map(|(rows, i)| place(rows, i)).collect();
        let is_known = |place: &usize| *place < levels.rows().len();
        if !levels.combinations().iter().all(fits) || !places.iter().flatten().all(is_known) {
            return None;
        }
        let ancestors = |view: &Arc<DomainView>| -> Vec<Vec<Code>> {
            (0..=view.height()).map(|level| view.between(0, level)).collect()
        };
        let ancestors: Vec<Vec<Vec<Code>>> = domains.iter().map(ancestors).collect();
        let label = |(attribute, (&level, &leaf)): (usize, (&Level, &Code))| GeneralizedValue {
            level,
            code: ancestors[attribute][usize::from(level)][leaf as usize],
        };
        let labels = |((rows, i), place): ((&Rows, usize), Option<usize>)| -> Option<Vec<GeneralizedValue>> {
            let levels = &levels.combinations()[levels.rows()[place?] as usize];
            Some(levels.iter().zip(rows.quasi(i)).enumerate().map(label).collect())
        };
        let labels: Vec<Option<Vec<GeneralizedValue>>> = all().zip(places).map(labels).collect();
        let labels: Vec<Option<&[GeneralizedValue]>> = labels.iter().map(Option::as_deref).collect();
        Some(Self::of_labelled(&labels, fresh.len(), dictionaries))
    }

    /// The levels at which a class is shown.
    pub(in crate::anonymizer) fn levels(&self, class: u32) -> Vec<Level> {
        let level = |(attribute, column): (usize, &Arc<Column>)| column.value(self.code(class, attribute)).level;
        self.columns.iter().enumerate().map(level).collect()
    }

    /// The columns of a recoding, for a draft that publishes no rows.
    pub(in crate::anonymizer) fn without_rows(recoding: &Recoding, dictionaries: &Dictionaries) -> Self {
        Self { numbers: Arc::default(), columns: columns(recoding, dictionaries) }
    }

    /// The classes of the rows of a sliding window; `numbering` looks up only rows that came since its last call.
    pub(in crate::anonymizer) fn followed(
        numbering: &mut Numbering,
        recoding: &Recoding,
        rows: &Arc<Rows>,
        dictionaries: &Dictionaries,
    ) -> Self {
        let columns = columns(recoding, dictionaries);
        Self { numbers: numbering.number(rows, &columns), columns }
    }

    /// For each class whether the policy lets it be published, by the counts of the evaluator. Classes of held rows only are not
    /// counted there, so they are never published.
    pub(in crate::anonymizer) fn publishable(&self, recoding: &Recoding, evaluator: &Evaluator<'_>) -> Vec<bool> {
        let mut index = ClassIndex::new(self.columns.iter().map(|column| column.len()));
        let width = self.columns.len();
        for class in 0..self.numbers.count {
            index.number(self.numbers.cells[class * width..(class + 1) * width].iter().copied());
        }
        let set = evaluator.classes(recoding);
        let mut publishable = vec![false; self.numbers.count];
        for (class, published) in evaluator.published(&*set).into_iter().enumerate() {
            let number = index.number((0..width).map(|attribute| set.code(class, attribute))) as usize;
            if let Some(publishable) = publishable.get_mut(number) {
                *publishable = published;
            }
        }
        publishable
    }

    /// The places in `rows` class by class, classes in the order of their first row.
    pub(in crate::anonymizer) fn members(&self, rows: &[RowRef]) -> Vec<Vec<usize>> {
        let mut order = vec![usize::MAX; self.numbers.count];
        let mut classes: Vec<Vec<usize>> = Vec::new();
        for (at, &row) in rows.iter().enumerate() {
            let class = &mut order[self.number(row) as usize];
            if *class == usize::MAX {
                *class = classes.len();
                classes.push(Vec::new());
            }
            classes[*class].push(at);
        }
        classes
    }

    /// The published code of a class in one attribute.
    pub(in crate::anonymizer) fn code(&self, class: u32, attribute: usize) -> Code {
        self.numbers.cells[class as usize * self.columns.len() + attribute]
    }

    /// The class of a row.
    pub(in crate::anonymizer) fn number(&self, row: RowRef) -> u32 {
        match row {
            RowRef::Fresh(i) => self.numbers.fresh[i as usize],
            RowRef::Held(i) => self.numbers.held[i as usize],
        }
    }
}

fn columns(recoding: &Recoding, dictionaries: &Dictionaries) -> Vec<Arc<Column>> {
    recoding.columns(&dictionaries.quasi).into_iter().map(Arc::new).collect()
}
