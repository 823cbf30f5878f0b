//! Hierarchies that list their leaves (CSV, tree): the complete level tables and an index over the leaves.
//!
//! Invariant: made by [`Builder::finish`] only, so every leaf has one path, every value one parent, and there is one top.

use std::borrow::Cow;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::table::{Code, Index, LabelTable, LevelTable, hash_of};
use super::{Errors, HierarchyError};
use crate::model::lattice::Level;
use crate::model::record::canonical_number;

/// More columns than this cannot be numbered as levels.
pub(super) const MAX_COLUMNS: usize = Level::MAX as usize + 1;

pub(crate) struct Closed {
    /// From the leaves to the top; shared with every domain over this hierarchy until that grows.
    pub(crate) levels: Vec<Arc<LevelTable>>,
    index: Index,
    /// Leaves written with trailing fraction zeros (`37.0`) under their plain spelling (`37`), where that is no leaf
    /// itself; `None` where two leaves would claim it. Numbers arrive in plain spelling.
    aliases: FxHashMap<Box<str>, Option<Code>>,
}

impl Closed {
    pub(crate) fn find(&self, hash: u64, leaf: &str) -> Option<Code> {
        self.index.find(&self.levels[0].labels, hash, leaf)
    }

    /// The same hierarchy with its leaves in the order of another one; `None` if that lists other leaves.
    pub(super) fn in_order_of(&self, other: &Self) -> Option<Self> {
        let (own, mut index, mut table) = (&self.levels[0], Index::default(), LevelTable::default());
        for leaf in other.levels[0].labels() {
            let hash = hash_of(leaf);
            let code = self.find(hash, leaf)? as usize;
            let moved = table.labels.push(leaf)?;
            index.insert(&table.labels, hash, moved);
            table.parent.push(own.parent[code]);
            table.loss.push(own.loss[code]);
            table.leaves.push(own.leaves[code]);
        }
        let mut levels = self.levels.clone();
        levels[0] = Arc::new(table);
        let mut moved = Self { levels, index, aliases: FxHashMap::default() };
        moved.aliases = aliases(&moved);
        (moved.levels[0].len() == own.len()).then_some(moved)
    }

    /// For each leaf its code at a level.
    fn codes(&self, level: Level) -> Vec<Code> {
        let up = |code: Code, table: &Arc<LevelTable>| table.parent[code as usize];
        (0..self.levels[0].len() as Code).map(|leaf| self.levels[..usize::from(level)].iter().fold(leaf, up)).collect()
    }

    /// True if leaves with one ancestor at `level` have one at `coarse` in the other hierarchy, which has the same leaves in the same
    /// order.
    pub(super) fn level_refines(&self, level: Level, other: &Self, coarse: Level) -> bool {
        let mut above: FxHashMap<Code, Code> = FxHashMap::default();
        let mut pairs = self.codes(level).into_iter().zip(other.codes(coarse));
        pairs.all(|(fine, coarse)| *above.entry(fine).or_insert(coarse) == coarse)
    }

    /// Exact match first; then numbers that differ only in trailing fraction zeros or the sign of zero.
    pub(super) fn canonical<'a>(&self, text: &'a str) -> Option<Cow<'a, str>> {
        if self.find(hash_of(text), text).is_some() {
            return Some(Cow::Borrowed(text));
        }
        let plain = plain_number(text)?;
        let code = match self.find(hash_of(plain), plain) {
            Some(code) => code,
            None => (*self.aliases.get(plain)?)?,
        };
        Some(Cow::Owned(self.levels[0].label(code).to_owned()))
    }

    /// True if every leaf is a number in its usual spelling; `007` may be a code.
    pub(super) fn is_numeric(&self) -> bool {
        self.levels[0].labels().all(|leaf| plain_number(leaf).is_some())
    }

    pub(super) fn label(&self, leaf: &str, level: Level) -> Option<&str> {
        let leaf = self.find(hash_of(leaf), leaf)?;
        let table = self.levels.get(usize::from(level))?;
        let code = self.levels[..usize::from(level)].iter().fold(leaf, |code, table| table.parent[code as usize]);
        Some(table.label(code))
    }
}

/// The text without trailing fraction zeros and without the sign of a negative zero, if it is a plain decimal.
/// Leading zeros, plus signs and exponents make another text: `007` may be a code, not a seven.
fn plain_number(text: &str) -> Option<&str> {
    let trimmed = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    };
    let plain = if trimmed == "-0" { "0" } else { trimmed };
    (canonical_number(text)? == plain).then_some(plain)
}

/// Takes one path per leaf and finds everything that is wrong with them.
pub(super) struct Builder {
    columns: Vec<Column>,
    pub(super) errors: Errors,
    path: Vec<Code>,
}

#[derive(Default)]
struct Column {
    labels: LabelTable,
    index: Index,
    parent: Vec<Code>,
    /// Where each label came first; 0 where there are no lines.
    line: Vec<u32>,
    /// Lines of one group mostly follow each other, and then need no lookup.
    last: Option<Code>,
}

impl Column {
    /// The code of the label, and whether it is new; `None` if the column is full.
    fn intern(&mut self, label: &str, line: u32) -> Option<(Code, bool)> {
        if let Some(last) = self.last
            && self.labels.get(last) == label
        {
            return Some((last, false));
        }
        let hash = hash_of(label);
        if let Some(code) = self.index.find(&self.labels, hash, label) {
            self.last = Some(code);
            return Some((code, false));
        }
        let code = self.labels.push(label)?;
        self.index.insert(&self.labels, hash, code);
        self.line.push(line);
        self.last = Some(code);
        Some((code, true))
    }

    fn since(&self, code: Code) -> String {
        match self.line[code as usize] {
            0 => String::new(),
            line => format!(" on line {line}"),
        }
    }
}

impl Builder {
    /// For paths of `columns` labels, the leaf and the top among them.
    pub(super) fn new(columns: usize, errors: Errors) -> Self {
        Self { columns: (0..columns).map(|_| Column::default()).collect(), errors, path: vec![0; columns] }
    }

    /// Adds the path of one leaf, from the leaf to the top; as many labels as there are columns.
    pub(super) fn add(&mut self, path: &[Cow<'_, str>], line: Option<usize>) {
        let top = self.columns.len() - 1;
        let number = line.and_then(|l| u32::try_from(l).ok()).unwrap_or(0);
        for level in (0..=top).rev() {
            let label = path[level].as_ref();
            let Some((code, new)) = self.columns[level].intern(label, number) else {
                self.errors.push(line, "the hierarchy is too large; stay below 4 GiB of labels per level");
                return;
            };
            self.path[level] = code;
            if level == top {
                if new && code > 0 {
                    let (first, on) = (self.columns[top].labels.get(0), self.columns[top].since(0));
                    let message = format!(
                        "no single top: `{label}` here, `{first}`{on}; end every line with one and the same value, such as `*`"
                    );
                    self.errors.push(line, message);
                }
                continue;
            }
            let above = self.path[level + 1];
            if new {
                self.columns[level].parent.push(above);
            } else if level == 0 {
                let on = self.columns[0].since(code);
                self.errors.push(line, format!("leaf `{label}` is there already{on}; write each value once"));
            } else if level + 1 < top && self.columns[level].parent[code as usize] != above {
                // Into the last column this is an error of the top, reported once.
                let first = self.columns[level + 1].labels.get(self.columns[level].parent[code as usize]);
                let (second, on) = (&path[level + 1], self.columns[level].since(code));
                let message = format!(
                    "`{label}` at level {level} has two parents: `{first}`{on}, `{second}` here; \
                     write the same parent, or give one of the two another name"
                );
                self.errors.push(line, message);
            }
        }
    }

    /// The hierarchy, or all that is wrong with it.
    pub(super) fn finish(self) -> Result<Closed, Vec<HierarchyError>> {
        self.errors.into_result()?;
        let mut levels = Vec::with_capacity(self.columns.len());
        let mut index = Index::default();
        let leaves = self.columns[0].labels.len();
        let mut below = vec![1_u32; leaves];
        let top = self.columns.len() - 1;
        for (level, column) in self.columns.into_iter().enumerate() {
            let loss = below.iter().map(|&n| loss_of(f64::from(n), leaves as f64, level == top)).collect();
            let own = below.iter().map(|&n| f64::from(n)).collect();
            let mut above = vec![0; column.parent.iter().max().map_or(0, |&p| p as usize + 1)];
            for (&parent, &n) in column.parent.iter().zip(&below) {
                above[parent as usize] += n;
            }
            below = above;
            if level == 0 {
                index = column.index;
            }
            levels.push(Arc::new(LevelTable { labels: column.labels, parent: column.parent, loss, leaves: own }));
        }
        let mut closed = Closed { levels, index, aliases: FxHashMap::default() };
        closed.aliases = aliases(&closed);
        Ok(closed)
    }
}

/// The loss of a value with `below` of all `leaves` under it. A hierarchy of one leaf loses nothing below its top.
pub(super) fn loss_of(below: f64, leaves: f64, top: bool) -> f64 {
    match () {
        () if top => 1.0,
        () if leaves <= 1.0 => 0.0,
        () => ((below - 1.0) / (leaves - 1.0)).clamp(0.0, 1.0),
    }
}

fn aliases(closed: &Closed) -> FxHashMap<Box<str>, Option<Code>> {
    let mut aliases = FxHashMap::default();
    for (code, leaf) in closed.levels[0].labels().enumerate() {
        if leaf.contains('.')
            && let Some(plain) = plain_number(leaf)
            && plain != leaf
            && closed.find(hash_of(plain), plain).is_none()
        {
            aliases.entry(plain.into()).and_modify(|claimed| *claimed = None).or_insert(Some(code as Code));
        }
    }
    aliases
}
