//! The rows of a sliding window that no snapshot has shown, kept from slide to slide in the order in which they came.
//!
//! A class that could not be shown can be shown later only if a row has come to it or left it since. So the classes of such rows are
//! counted at a slide and no others. Rows that have gone are only marked, and forgotten once they are as many as the others.

use std::sync::Arc;

use crate::anonymizer::draft::{Grouping, Numbering};
use crate::encode::Dictionaries;
use crate::model::batch::Rows;
use crate::model::event::Position;
use crate::model::recoding::Recoding;

/// So many rows that have gone are always remembered. More are passed over at each slide; fewer copy small windows more often.
const SPARE: usize = 64;

/// Rows that no snapshot has shown.
pub(super) struct Unseen {
    rows: Arc<Rows>,
    is_gone: Vec<bool>,
    gone: usize,
    /// The rows that came or left since classes were last asked for.
    changed: Vec<u32>,
    numbering: Numbering,
}

impl Unseen {
    /// These rows, which no slide has looked at yet.
    pub(super) fn new(rows: Rows) -> Self {
        let len = rows.len();
        Self {
            rows: Arc::new(rows),
            is_gone: vec![false; len],
            gone: 0,
            changed: (0..len as u32).collect(),
            numbering: Numbering::default(),
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.rows.len() - self.gone
    }

    /// The rows, among which are some that have gone; [`Unseen::numbers`] tells which are there.
    pub(super) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// The numbers of the rows that are there, ascending.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.is_gone).filter(|(_, is_gone)| !**is_gone).map(|(row, _)| row)
    }

    /// Their positions, in the order in which they came.
    pub(super) fn positions(&self) -> impl Iterator<Item = Position> {
        self.numbers().map(|row| self.rows.position(row as usize))
    }

    /// Takes a row in.
    pub(super) fn push_from(&mut self, rows: &Rows, i: usize) {
        self.changed.push(self.rows.len() as u32);
        Arc::make_mut(&mut self.rows).push_from(rows, i);
        self.is_gone.push(false);
    }

    /// Lets a row go whose class goes with it.
    pub(super) fn remove(&mut self, row: u32) {
        let is_gone = &mut self.is_gone[row as usize];
        self.gone += usize::from(!*is_gone);
        *is_gone = true;
    }

    /// Lets the rows go for which `leaves` says so. Without `all`, only those that came before all others.
    pub(super) fn remove_where(&mut self, all: bool, leaves: impl Fn(Position) -> bool) {
        let gone = self.numbers().take_while(|&row| all || leaves(self.rows.position(row as usize)));
        let gone: Vec<u32> = gone.filter(|&row| !all || leaves(self.rows.position(row as usize))).collect();
        gone.iter().for_each(|&row| self.remove(row));
        self.changed.extend(gone);
    }

    /// Nobody asks for the classes that have changed so far.
    pub(super) fn forget_changes(&mut self) {
        self.changed.clear();
    }

    /// Forgets rows that have gone, if they are many and nobody will ask for their classes: the others get other numbers.
    pub(super) fn settle(&mut self) {
        if self.changed.is_empty() && self.gone > self.len() + SPARE {
            self.rows = Arc::new(self.rows.filtered(|i| !self.is_gone[i]));
            (self.is_gone, self.gone) = (vec![false; self.rows.len()], 0);
        }
    }

    /// The rows of each class that has changed since the last time.
    pub(super) fn changed_classes(&mut self, recoding: &Recoding, dictionaries: &Dictionaries) -> Vec<Vec<u32>> {
        let grouping = Grouping::followed(&mut self.numbering, recoding, &self.rows, dictionaries);
        let (classes, count) = (&grouping.numbers.fresh, grouping.numbers.count);
        let mut is_open = vec![false; count];
        self.changed.drain(..).for_each(|row| is_open[classes[row as usize] as usize] = true);
        let class = |row: u32| classes[row as usize];
        let mut rows: Vec<u32> = self.numbers().filter(|&row| is_open[class(row) as usize]).collect();
        rows.sort_by_key(|&row| class(row));
        rows.chunk_by(|&a, &b| class(a) == class(b)).map(<[u32]>::to_vec).collect()
    }
}
