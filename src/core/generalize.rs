//! (rows, recoding) -> [`GeneralizedBatch`]: labels instead of values, ready for the gate.
//!
//! The labels of a row are written down once per class of rows that show the same; a row has its class's
//! number. The gate counts by it and the sinks write by it.
//! Invariant: a batch holds exactly the rows that a sink would send, in the order in which it would send them; the gate
//! puts them into the order of what they show ([`GeneralizedBatch::arranged`]). It proves nothing yet: only the gate makes a
//! release of it.

mod arrange;
mod change;
mod index;
mod kept;
mod levels;
mod numbers;

use std::fmt;
use std::sync::Arc;

use crate::encode::Dictionaries;
use crate::model::batch::Rows;
use crate::model::domain::{Code, DomainView};
use crate::model::event::{Millis, Position, Reject};
use crate::model::lattice::Level;
use crate::model::recoding::Column;
use crate::model::release::manifest::Provenance;
use crate::model::release::plan::ReleasePlan;
use crate::model::release::spans::Spans;

pub(crate) use arrange::in_order;
pub use change::Change;
pub(crate) use index::ClassIndex;
pub(crate) use numbers::Numbers;

/// The label table of one column of a batch.
#[derive(Clone)]
pub enum Labels {
    /// The hierarchy's labels: a level, or a cut.
    Column(Arc<Column>),
    /// Labels of their own.
    Table(Arc<[String]>),
}

impl Labels {
    /// The text of a code.
    pub fn text(&self, code: Code) -> &str {
        match self {
            Self::Column(column) => column.label(code),
            Self::Table(table) => &table[code as usize],
        }
    }
}

/// A row's place: the fresh rows of the window, or those held from earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowRef {
    /// Row i of the window.
    Fresh(u32),
    /// Row i of the held rows.
    Held(u32),
}

/// The knowledge about a batch, beside its rows, that a sink needs to replay it.
#[derive(Debug, Clone, Default)]
pub struct Lineage {
    /// The assignment it was read in.
    pub epoch: u64,
    /// Enough to make the same bytes again.
    pub plan: ReleasePlan,
    /// True if the plan was committed before a crash.
    pub replayed: bool,
    /// The records that the release finishes.
    pub finished: Spans,
    /// Since when the oldest record waits that does so after the release.
    pub since: Option<Millis>,
}

/// The rows of a release before the gate has counted them.
pub struct GeneralizedBatch {
    pub(crate) fresh: Arc<Rows>,
    pub(crate) held: Arc<Rows>,
    pub(crate) order: Vec<RowRef>,
    /// The class of every row, in the order of sending.
    pub(crate) classes: Vec<u32>,
    pub(crate) quasi: Vec<Labels>,
    /// The columns by which it was made; none for rows that were read as they stand.
    pub(crate) columns: Vec<Arc<Column>>,
    /// Label codes, class by class.
    pub(crate) class_cells: Vec<Code>,
    /// How many classes there are by their codes. Some may read alike.
    pub(crate) class_count: usize,
    /// The dictionaries of the rows' sensitive codes, as counted and as published; one each per field.
    pub(crate) sensitive: Vec<Arc<DomainView>>,
    pub(crate) written: Vec<Arc<DomainView>>,
    pub(crate) rejected: Vec<(Position, Reject)>,
    pub(crate) lineage: Lineage,
    /// The values of a row that its readers do not see, by their place among the sensitive and then the kept ones. The order of the
    /// rows must not follow from them.
    pub(crate) unseen: Vec<usize>,
    /// True if rows have the level of each label beside the labels.
    pub(crate) shows_levels: bool,
    /// Where it comes from and what was done, for the manifest.
    pub provenance: Provenance,
}

impl GeneralizedBatch {
    /// The rows `order` of `fresh` and `held`, published by `columns`.
    pub fn at(
        fresh: Arc<Rows>,
        held: Arc<Rows>,
        order: Vec<RowRef>,
        columns: &[Arc<Column>],
        dictionaries: &Dictionaries,
    ) -> Self {
        let numbers = Numbers::of(&fresh, &held, &order, columns);
        Self::numbered(fresh, held, order, &numbers, columns, dictionaries)
    }

    /// The same, where the classes of the rows have numbers by `columns` already.
    pub(crate) fn numbered(
        fresh: Arc<Rows>,
        held: Arc<Rows>,
        order: Vec<RowRef>,
        numbers: &Numbers,
        columns: &[Arc<Column>],
        dictionaries: &Dictionaries,
    ) -> Self {
        debug_assert!(numbers.are_of(&fresh, &held, &order, columns));
        let (names, class_cells, class_count) = numbers.in_order(&order, columns.len());
        let classes = order.iter().map(|&row| names[numbers.get(row) as usize]).collect();
        let quasi = columns.iter().map(|column| Labels::Column(Arc::clone(column))).collect();
        Self {
            fresh,
            held,
            order,
            classes,
            quasi,
            columns: columns.to_vec(),
            class_cells,
            class_count,
            sensitive: dictionaries.sensitive.clone(),
            written: dictionaries.written.clone(),
            rejected: Vec::new(),
            lineage: Lineage::default(),
            unseen: Vec::new(),
            shows_levels: false,
            provenance: Provenance::default(),
        }
    }

    /// Rows without labels, of which only the values are asked.
    pub(crate) fn unlabelled(rows: Rows, sensitive: Vec<Arc<DomainView>>, written: Vec<Arc<DomainView>>) -> Self {
        let dictionaries = Dictionaries { sensitive, written, ..Dictionaries::default() };
        Self::as_read(rows, Vec::new(), &[], &dictionaries)
    }

    /// Rows of a file that was generalized before, in its order: `cells` are codes of `tables`, row by row.
    pub fn as_read(rows: Rows, tables: Vec<Arc<[String]>>, cells: &[Code], dictionaries: &Dictionaries) -> Self {
        let width = tables.len();
        let mut index = ClassIndex::new(tables.iter().map(|table| table.len()));
        let row = |at: usize| cells[at * width..(at + 1) * width].iter().copied();
        let classes = (0..rows.len()).map(|at| index.number(row(at))).collect();
        let (class_cells, class_count) = index.into_cells();
        Self {
            order: (0..rows.len() as u32).map(RowRef::Fresh).collect(),
            classes,
            held: Arc::new(rows.filtered(|_| false)),
            fresh: Arc::new(rows),
            quasi: tables.into_iter().map(Labels::Table).collect(),
            columns: Vec::new(),
            class_cells,
            class_count,
            sensitive: dictionaries.sensitive.clone(),
            written: dictionaries.written.clone(),
            rejected: Vec::new(),
            lineage: Lineage::default(),
            unseen: Vec::new(),
            shows_levels: false,
            provenance: Provenance::default(),
        }
    }

    /// The same rows with no value finer than these levels, labels as the hierarchies have them. Classes that become alike are one.
    pub(crate) fn raised(&self, finest: &[Level]) -> Self {
        self.raised_where(finest, |_| true)
    }

    /// The rows of the classes that are no coarser than these levels anywhere, raised to them: each column has one level.
    pub(crate) fn at_one_level(&self, levels: &[Level]) -> Self {
        self.raised_where(levels, |class| self.levels_of(class).zip(levels).all(|(own, &level)| own <= level))
    }

    /// The level of each value of a class.
    pub(crate) fn levels_of(&self, class: usize) -> impl Iterator<Item = Level> {
        self.columns.iter().zip(self.class_cells(class)).map(|(column, &code)| column.value(code).level)
    }

    fn raised_where(&self, finest: &[Level], stays: impl Fn(usize) -> bool) -> Self {
        let raised: Vec<(Column, Vec<Code>)> =
            self.columns.iter().zip(finest).map(|(column, &level)| column.raised(level)).collect();
        let mut index = ClassIndex::new(raised.iter().map(|(column, _)| column.len()));
        let mut number = |class: usize| {
            let cells = self.class_cells(class).iter().zip(&raised);
            stays(class).then(|| index.number(cells.map(|(&code, (_, codes))| codes[code as usize])))
        };
        let numbers: Vec<Option<u32>> = (0..self.class_count).map(&mut number).collect();
        let (class_cells, class_count) = index.into_cells();
        let columns: Vec<Arc<Column>> = raised.into_iter().map(|(column, _)| Arc::new(column)).collect();
        let rows = self.order.iter().zip(&self.classes);
        let (order, classes) = rows.filter_map(|(&row, &class)| Some((row, numbers[class as usize]?))).unzip();
        Self {
            fresh: Arc::clone(&self.fresh),
            held: Arc::clone(&self.held),
            order,
            classes,
            quasi: columns.iter().map(|column| Labels::Column(Arc::clone(column))).collect(),
            columns,
            class_cells,
            class_count,
            sensitive: self.sensitive.clone(),
            written: self.written.clone(),
            rejected: Vec::new(),
            lineage: self.lineage.clone(),
            unseen: Vec::new(),
            shows_levels: self.shows_levels,
            provenance: self.provenance.clone(),
        }
    }

    /// The label codes of a class.
    pub(crate) fn class_cells(&self, class: usize) -> &[Code] {
        &self.class_cells[class * self.quasi.len()..(class + 1) * self.quasi.len()]
    }

    /// The label codes of the row that is sent as number `at`.
    pub(crate) fn cells(&self, at: usize) -> &[Code] {
        self.class_cells(self.classes[at] as usize)
    }

    /// How many rows would be sent.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// True if none would be.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The messages that its rows come from: where a message has several records, fewer than rows.
    pub(crate) fn messages(&self) -> u64 {
        let position = |&row: &RowRef| {
            let (rows, i) = self.source(row);
            rows.position(i)
        };
        Spans::covering(self.order.iter().map(position)).count()
    }

    /// The rows that `row` refers to, and its index there.
    pub(crate) fn source(&self, row: RowRef) -> (&Rows, usize) {
        match row {
            RowRef::Fresh(i) => (&self.fresh, i as usize),
            RowRef::Held(i) => (&self.held, i as usize),
        }
    }
}

impl fmt::Debug for GeneralizedBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GeneralizedBatch({} rows)", self.len())
    }
}
