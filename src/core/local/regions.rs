//! The result of a local recoding: the class of every row, and the labels of every class.
//!
//! Invariants: each label is an ancestor of the value of each row of its class; two classes differ in some label; rows with identical
//! quasi-identifiers have one class, or are all left over. Classes are numbered without gaps. `Debug` shows counts only.

use std::fmt;

use super::table::Table;
use super::terms::Terms;
use crate::model::recoding::GeneralizedValue;

/// The class of a row that no class may take.
pub(super) const LEFT: u32 = u32::MAX;

/// Classes of rows and their labels.
pub struct Regions {
    width: usize,
    fresh: Vec<u32>,
    held: Vec<u32>,
    labels: Vec<GeneralizedValue>,
    /// Rows per class, held ones included.
    sizes: Vec<u32>,
    costs: Vec<f64>,
}

impl Regions {
    /// The regions where tuples have the classes `class_of`, or [`LEFT`]. Classes without rows are dropped.
    pub(super) fn new(terms: &Terms<'_>, table: &Table, class_of: &[u32], labels: Vec<GeneralizedValue>) -> Self {
        let width = table.width;
        let mut names = vec![LEFT; labels.len().checked_div(width).unwrap_or(0)];
        let (mut kept, mut sizes) = (Vec::with_capacity(labels.len()), Vec::new());
        let (mut fresh, mut held) = (vec![LEFT; table.fresh.rows.len()], vec![LEFT; table.held.rows.len()]);
        for (tuple, &class) in class_of.iter().enumerate().filter(|(_, class)| **class != LEFT) {
            let name = &mut names[class as usize];
            if *name == LEFT {
                *name = sizes.len() as u32;
                kept.extend_from_slice(&labels[class as usize * width..(class as usize + 1) * width]);
                sizes.push(0);
            }
            for (grouped, classes) in [(&table.fresh, &mut fresh), (&table.held, &mut held)] {
                let rows = &grouped.rows[grouped.range(tuple as u32)];
                rows.iter().for_each(|&row| classes[row as usize] = *name);
                sizes[*name as usize] += rows.len() as u32;
            }
        }
        let cost =
            |labels: &[GeneralizedValue]| labels.iter().enumerate().map(|(at, &value)| terms.cost(at, value)).sum();
        let costs = kept.chunks_exact(width.max(1)).map(cost).collect();
        Self { width, fresh, held, labels: kept, sizes, costs }
    }

    /// How many classes there are.
    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    /// True if every row is left over.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// The class of a fresh row; `None` if it is left over, to be suppressed or held.
    pub fn fresh(&self, row: usize) -> Option<u32> {
        Some(self.fresh[row]).filter(|&class| class != LEFT)
    }

    /// The class that a held row joins; `None` if it is left over, or the table was made without it.
    pub fn held(&self, row: usize) -> Option<u32> {
        self.held.get(row).copied().filter(|&class| class != LEFT)
    }

    /// What a class shows, one value per quasi-identifier.
    pub fn labels(&self, class: u32) -> &[GeneralizedValue] {
        &self.labels[class as usize * self.width..(class as usize + 1) * self.width]
    }

    /// How many rows a class has, held ones included.
    pub fn size(&self, class: u32) -> u32 {
        self.sizes[class as usize]
    }

    /// How many fresh rows are left over.
    pub fn left(&self) -> usize {
        self.fresh.iter().filter(|&&class| class == LEFT).count()
    }

    /// The mean loss of a record; a fresh record that is left over loses everything.
    pub fn loss(&self) -> f64 {
        let published: f64 = self.sizes.iter().zip(&self.costs).map(|(&size, cost)| f64::from(size) * cost).sum();
        let (shown, left) = (self.sizes.iter().map(|&size| f64::from(size)).sum::<f64>(), self.left() as f64);
        if shown + left > 0.0 { (published + left) / (shown + left) } else { 0.0 }
    }
}

impl fmt::Debug for Regions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Regions({} classes, {} rows left over)", self.len(), self.left())
    }
}
