//! The distinct quasi tuples of a window, with the rows of each.
//!
//! A window is turned into a table once; everything else in this room works on tuples, so rows with identical quasi-identifiers cannot be
//! separated. Fresh and held rows share the tuples, but only fresh rows are counted: a held row may join a class that satisfies the
//! policy without it, so a tuple that only held rows have counts 0.
//! The table copies the columns that the criteria count (subjects and facets), tuple by tuple. It needs neither the rows nor the
//! dictionaries later, so a past window can be kept for learning at little cost.
//! `Debug` shows counts only.

use std::fmt;
use std::sync::OnceLock;

use crate::generalize::ClassIndex;
use crate::model::batch::Rows;
use crate::model::counting::Counting;
use crate::model::domain::Code;

/// The most combinations of leaves that are looked up together. Larger: fewer lookups per tuple, in more and larger tables, which do not
/// stay in the processor's first cache. Smaller: more lookups.
const MAX_JOINT: usize = 1 << 8;

/// The distinct quasi tuples of some rows.
pub struct Table {
    pub(super) width: usize,
    /// Per attribute the leaf codes that occur. A cell is an index into them.
    pub(super) leaves: Vec<Vec<Code>>,
    /// Tuple by tuple, one cell per attribute.
    pub(super) cells: Vec<u32>,
    /// Attributes whose cells are looked up together.
    pub(super) groups: Vec<CellGroup>,
    /// Tuple by tuple, one number per group: its cells as digits.
    joint: Vec<u32>,
    pub(super) fresh: Grouped,
    pub(super) held: Grouped,
    /// The subjects of the fresh rows, in the order of `fresh.rows`; empty if rows are counted.
    pub(super) subjects: Vec<u64>,
    /// Per facet the codes of the fresh rows, in the order of `fresh.rows`.
    pub(super) facets: Vec<Vec<Code>>,
    /// How many people there are, and per facet the codes they have and how many have each: counted when first asked for.
    pub(super) everybody: OnceLock<Everybody>,
}

/// Codes of a facet, and how many people have each.
pub(super) type CodeCounts = (Vec<Code>, Vec<u32>);

/// All people of a table, and what they have by facet.
pub(super) struct Everybody {
    pub(super) people: u32,
    pub(super) facets: Vec<CodeCounts>,
}

/// Attributes whose cells are looked up together, and what a step in each of them is worth in the number that stands for all cells.
#[derive(Debug, Clone)]
pub(super) struct CellGroup {
    pub(super) attributes: Vec<(usize, usize)>,
    /// How many numbers there are.
    pub(super) size: usize,
}

/// Rows, tuple by tuple.
pub(super) struct Grouped {
    pub(super) rows: Vec<u32>,
    /// Where the rows of each tuple begin; one more than there are tuples.
    starts: Vec<u32>,
}

impl Table {
    /// The table of a window's fresh rows and of the rows held from earlier windows.
    pub fn new(fresh: &Rows, held: &Rows, counting: &Counting) -> Self {
        let width = [fresh, held].iter().filter(|rows| !rows.is_empty()).map(|rows| rows.quasi(0).len()).max();
        let width = width.unwrap_or(0);
        let mut sizes = vec![1; width];
        for codes in [fresh, held].into_iter().flat_map(|rows| (0..rows.len()).map(|i| rows.quasi(i))) {
            sizes.iter_mut().zip(codes).for_each(|(size, &code)| *size = (*size).max(code as usize + 1));
        }
        let mut index = ClassIndex::new(sizes.iter().copied());
        let mut leaves: Vec<Occurring> = sizes.into_iter().map(Occurring::new).collect();
        let mut number = |rows: &Rows| -> Vec<u32> {
            (0..rows.len()).map(|i| index.number(rows.quasi(i).iter().copied())).collect()
        };
        let (of_fresh, of_held) = (number(fresh), number(held));
        let (mut cells, tuples) = index.into_cells();
        for (at, cell) in cells.iter_mut().enumerate() {
            *cell = leaves[at % width].number(*cell);
        }
        let (fresh_rows, held_rows) = (Grouped::new(&of_fresh, tuples), Grouped::new(&of_held, tuples));
        let of = |row: &u32| *row as usize;
        let by_subject = counting.subjects;
        let subjects = fresh_rows.rows.iter().take_while(|_| by_subject).map(|row| fresh.subject(of(row))).collect();
        let facet = |facet: &crate::model::counting::Facet| {
            fresh_rows.rows.iter().map(|row| facet.code(fresh, of(row))).collect()
        };
        let leaves: Vec<Vec<Code>> = leaves.into_iter().map(|occurring| occurring.codes).collect();
        let groups = CellGroup::of(&leaves);
        let digits = |cells: &[u32], group: &CellGroup| -> u32 {
            group.attributes.iter().map(|&(at, worth)| cells[at] * worth as u32).sum()
        };
        let joint =
            cells.chunks_exact(width.max(1)).flat_map(|cells| groups.iter().map(move |group| digits(cells, group)));
        Self {
            width,
            joint: joint.collect(),
            groups,
            facets: counting.facets.iter().map(facet).collect(),
            everybody: OnceLock::new(),
            leaves,
            cells,
            fresh: fresh_rows,
            held: held_rows,
            subjects,
        }
    }

    /// How many distinct tuples there are.
    pub fn len(&self) -> usize {
        self.fresh.starts.len() - 1
    }

    /// True if there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many fresh rows there are.
    pub fn records(&self) -> usize {
        self.fresh.rows.len()
    }

    /// The fresh rows of a tuple.
    pub fn fresh_rows(&self, tuple: u32) -> &[u32] {
        &self.fresh.rows[self.fresh.range(tuple)]
    }

    /// The held rows of a tuple.
    pub fn held_rows(&self, tuple: u32) -> &[u32] {
        &self.held.rows[self.held.range(tuple)]
    }

    /// How many fresh rows a tuple has.
    #[inline]
    pub(super) fn count(&self, tuple: u32) -> u32 {
        self.fresh.starts[tuple as usize + 1] - self.fresh.starts[tuple as usize]
    }

    /// The cells of a tuple as one number per group.
    #[inline]
    pub(super) fn joint(&self, tuple: u32) -> &[u32] {
        &self.joint[tuple as usize * self.groups.len()..][..self.groups.len()]
    }

    /// The cells of a tuple.
    #[inline]
    pub(super) fn cells(&self, tuple: u32) -> &[u32] {
        &self.cells[tuple as usize * self.width..][..self.width]
    }
}

impl CellGroup {
    /// Puts attributes into as few groups as a simple rule finds: each into the first group with room, those with many leaves first.
    fn of(leaves: &[Vec<Code>]) -> Vec<Self> {
        let mut order: Vec<usize> = (0..leaves.len()).collect();
        order.sort_by_key(|&at| std::cmp::Reverse(leaves[at].len()));
        let mut groups: Vec<Self> = Vec::new();
        for at in order {
            let count = leaves[at].len();
            let room = groups.iter_mut().find(|group| group.size * count <= MAX_JOINT);
            match room {
                Some(group) => {
                    group.attributes.push((at, group.size));
                    group.size *= count;
                }
                None => groups.push(Self { attributes: vec![(at, 1)], size: count }),
            }
        }
        groups
    }
}

impl Grouped {
    fn new(tuple_of: &[u32], tuples: usize) -> Self {
        let mut starts = vec![0u32; tuples + 1];
        tuple_of.iter().for_each(|&tuple| starts[tuple as usize + 1] += 1);
        (0..tuples).for_each(|tuple| starts[tuple + 1] += starts[tuple]);
        let mut next = starts.clone();
        let mut rows = vec![0; tuple_of.len()];
        for (row, &tuple) in tuple_of.iter().enumerate() {
            rows[next[tuple as usize] as usize] = row as u32;
            next[tuple as usize] += 1;
        }
        Self { rows, starts }
    }

    /// The places of a tuple's rows in `rows`.
    #[inline]
    pub(super) fn range(&self, tuple: u32) -> std::ops::Range<usize> {
        self.starts[tuple as usize] as usize..self.starts[tuple as usize + 1] as usize
    }
}

/// The leaf codes of one attribute in order of first appearance.
struct Occurring {
    codes: Vec<Code>,
    /// By code.
    numbers: Vec<u32>,
}

impl Occurring {
    /// None yet of so many codes.
    fn new(size: usize) -> Self {
        Self { codes: Vec::new(), numbers: vec![u32::MAX; size] }
    }

    #[inline]
    fn number(&mut self, code: Code) -> u32 {
        let number = &mut self.numbers[code as usize];
        if *number == u32::MAX {
            *number = self.codes.len() as u32;
            self.codes.push(code);
        }
        *number
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({} tuples, {} rows, {} held)", self.len(), self.records(), self.held.rows.len())
    }
}
