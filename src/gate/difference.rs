//! The difference-safe gate: a reader has the last snapshot too, and subtracts.
//!
//! Two snapshots can be compared at the join of their recodings: values that either of them writes alike are one. There
//! the rows that left and the rows that came must, class by class, satisfy the policy, or be none. The join is read off
//! the labels that were written, and rows are told apart by where they stood in the source; nothing that planned the
//! snapshot is believed. Only consecutive snapshots are compared.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::count::Count;
use super::{Reading, Refusal, Release, counted};
use crate::generalize::GeneralizedBatch;
use crate::model::batch::Rows;
use crate::model::counting::Values;
use crate::model::domain::Code;
use crate::model::event::Position;
use crate::privacy::Rules;

/// A release that the next one will be compared with.
#[derive(Clone, Debug)]
pub struct Snapshot(Arc<GeneralizedBatch>);

impl Snapshot {
    /// What was published: rows, and the index of each.
    pub fn rows(&self) -> impl Iterator<Item = (&Rows, usize)> {
        self.0.order.iter().map(|&row| self.0.source(row))
    }

    /// How many rows were published.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if none was.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Release {
    /// Kept to compare the next release with.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(Arc::clone(&self.batch))
    }
}

/// Like [`super::verify`], after `last` was published: also what left and what came since must satisfy the policy.
pub fn verify_next(batch: GeneralizedBatch, rules: &Rules, last: Option<&Snapshot>) -> Result<Release, Refusal> {
    let batch = Arc::new(batch);
    let count = Count::new(&batch, rules);
    let release = counted(Arc::clone(&batch), &count, rules)?;
    if let Some(Snapshot(last)) = last
        && !batch.is_empty()
    {
        let (before, now) = join(last, &batch);
        compare(last, &Count::new(last, rules).seen_as(before), &batch, rules)?;
        compare(&batch, &count.seen_as(now), last, rules)?;
    }
    Ok(release)
}

/// The rows of `batch` that `other` lacks, class by class of `count`.
fn compare(batch: &GeneralizedBatch, count: &Count, other: &GeneralizedBatch, rules: &Rules) -> Result<(), Refusal> {
    let others: HashSet<Position> = positions(other).collect();
    let only: Vec<usize> =
        positions(batch).enumerate().filter(|(_, p)| !others.contains(p)).map(|(at, _)| at).collect();
    if only.is_empty() {
        return Ok(());
    }
    let rules = rules.bind(&Values { sensitive: &batch.sensitive, profiles: count.profiles() });
    Reading { batch, rules: &rules, count, rows: &only, without_held: false, difference: true }.check().map(drop)
}

fn positions(batch: &GeneralizedBatch) -> impl Iterator<Item = Position> {
    batch.order.iter().map(|&row| {
        let (rows, i) = batch.source(row);
        rows.position(i)
    })
}

/// The cells of both batches at the join of what they write: per attribute, leaves are one value if either writes them
/// alike, and so on from leaf to leaf.
fn join(a: &GeneralizedBatch, b: &GeneralizedBatch) -> (Vec<Code>, Vec<Code>) {
    let width = b.quasi.len();
    let (mut cells_a, mut cells_b) = (vec![0; a.len() * width], vec![0; b.len() * width]);
    for attribute in 0..width {
        let mut joined = Joined::default();
        joined.write_alike(a, attribute);
        joined.write_alike(b, attribute);
        for (batch, cells) in [(a, &mut cells_a), (b, &mut cells_b)] {
            for (at, cell) in cells.iter_mut().skip(attribute).step_by(width).enumerate() {
                *cell = joined.find(leaf(batch, at, attribute));
            }
        }
    }
    (cells_a, cells_b)
}

fn leaf(batch: &GeneralizedBatch, at: usize, attribute: usize) -> Code {
    let (rows, i) = batch.source(batch.order[at]);
    rows.quasi(i)[attribute]
}

/// Leaves of one attribute, joined step by step (union-find).
#[derive(Default)]
struct Joined {
    parent: FxHashMap<Code, Code>,
}

impl Joined {
    /// Joins the leaves that `batch` writes alike.
    fn write_alike(&mut self, batch: &GeneralizedBatch, attribute: usize) {
        let labels = &batch.quasi[attribute];
        let mut by_text: HashMap<&str, Code> = HashMap::new();
        for at in 0..batch.len() {
            let own = leaf(batch, at, attribute);
            let first = *by_text.entry(labels.text(batch.cells(at)[attribute])).or_insert(own);
            let (own, first) = (self.find(own), self.find(first));
            self.parent.insert(own, first);
        }
    }

    fn find(&mut self, leaf: Code) -> Code {
        let mut root = leaf;
        while let Some(&parent) = self.parent.get(&root)
            && parent != root
        {
            root = parent;
        }
        if root != leaf {
            self.parent.insert(leaf, root);
        }
        root
    }
}
