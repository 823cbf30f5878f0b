//! The parts of a level: labels in one string, the parent of each code, the loss and the leaves of each code.
//!
//! Invariant: codes are dense from 0, and within a level a label has one code. Nothing here can print a label: in the
//! tables of a stream labels are values that were read.

use std::fmt;
use std::hash::{BuildHasher as _, Hash, Hasher};

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

/// A value at some level, as a dense number.
pub type Code = u32;

/// Strings by code, in one allocation: cloning is two copies of memory.
#[derive(Clone, Default)]
pub(crate) struct LabelTable {
    text: String,
    ends: Vec<u32>,
}

impl LabelTable {
    /// Appends a label and returns its code; `None` when 4 GiB of text or 2^32 labels are full.
    pub(crate) fn push(&mut self, label: &str) -> Option<Code> {
        let code = Code::try_from(self.ends.len()).ok()?;
        let end = u32::try_from(self.text.len() + label.len()).ok()?;
        self.text.push_str(label);
        self.ends.push(end);
        Some(code)
    }

    #[inline]
    pub(crate) fn get(&self, code: Code) -> &str {
        let code = code as usize;
        let start = if code == 0 { 0 } else { self.ends[code - 1] as usize };
        &self.text[start..self.ends[code] as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.ends.len()).map(|code| self.get(code as Code))
    }

    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }
}

/// Finds the code of a label in the [`LabelTable`] it was built over.
#[derive(Clone, Default)]
pub(crate) struct Index(HashTable<Code>);

impl Index {
    #[inline]
    pub(crate) fn find(&self, labels: &LabelTable, hash: u64, label: &str) -> Option<Code> {
        self.0.find(hash, |&code| labels.get(code) == label).copied()
    }

    /// Adds a code whose label is in `labels` and not yet in the index.
    pub(crate) fn insert(&mut self, labels: &LabelTable, hash: u64, code: Code) {
        self.0.insert_unique(hash, code, |&code| hash_of(labels.get(code)));
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// The hash under which labels and spellings are found.
#[inline]
pub(crate) fn hash_of(text: &str) -> u64 {
    FxBuildHasher.hash_one(text)
}

/// One level of a domain: label, parent and loss of every code.
#[derive(Clone, Default)]
pub struct LevelTable {
    pub(crate) labels: LabelTable,
    pub(crate) parent: Vec<Code>,
    pub(crate) loss: Vec<f64>,
    pub(crate) leaves: Vec<f64>,
}

impl LevelTable {
    /// How many codes the level has.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// True if nothing has been seen.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The label of a code of this level. Different codes have different labels.
    #[inline]
    pub fn label(&self, code: Code) -> &str {
        self.labels.get(code)
    }

    /// The labels in the order of their codes.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.labels.iter()
    }

    /// For each code its parent, a code of the next level; empty at the top.
    pub fn parent(&self) -> &[Code] {
        &self.parent
    }

    /// For each code the loss of a cell published as it: (leaves below - 1) / (leaves - 1), in [0, 1].
    pub fn loss(&self) -> &[f64] {
        &self.loss
    }

    /// For each code how many leaves that the hierarchy declares lie below it; 0 for a value outside them.
    pub fn leaves(&self) -> &[f64] {
        &self.leaves
    }
}

impl fmt::Debug for LevelTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LevelTable({} codes)", self.len())
    }
}

impl Hash for LevelTable {
    /// Losses and leaves follow from labels and parents.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.labels.text.hash(state);
        self.labels.ends.hash(state);
        self.parent.hash(state);
    }
}
