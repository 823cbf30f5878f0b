//! T31, combinatorial refinement: how much more than its labels say a release tells a reader who knows how it was made.
//!
//! With a schedule, a record of one class cannot have values that an earlier step releases in another class, so a reader
//! excludes these values. The reader here is stronger than a real one: it is told the values that occur in the window and the class
//! that each step released. With one level or one cut per attribute classes never overlap, and nothing can be excluded.
//!
//! Cost: a sample of rows, and for each of them a few values per cell. A value counts as excluded if none of a number of
//! combinations with it is possible, so the estimate errs on the side of the reader, never on that of the publisher. The sample
//! and the dice are fixed: the same release has the same figures.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use super::{Published, ancestors};
use crate::generalize::RowRef;
use crate::local::StepClass;
use crate::model::domain::Code;
use crate::model::lattice::Level;
use crate::model::recoding::GeneralizedValue;

/// Rows that are attacked, spread over the release. More: slower reports. Fewer: rougher rates.
const ROWS: usize = 400;
/// Values of a cell that the reader tries to exclude. More: slower. Fewer: exclusions of rare values are missed.
const VALUES: usize = 24;
/// Combinations with a value that are tried before it counts as excluded. More: slower. Fewer: rates that are too high.
const TRIES: usize = 48;

/// What a reader who knows the schedule can exclude, as shares of what was attacked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct AttackRate {
    /// Rows for which fewer combinations of values are left than their labels cover.
    pub rows: f64,
    /// Cells for which fewer values are left than their label covers.
    pub cells: f64,
    /// Cells of several values for which one is left.
    pub cells_exact: f64,
    /// Rows that were attacked.
    pub sampled: u64,
}

/// The rates of a release that was made of these classes, each row of the window in the class of its number.
pub(super) fn attack(published: &Published<'_>, classes: &[StepClass], of_row: &[Option<u32>]) -> AttackRate {
    let batch = published.batch;
    let ancestors = (0..published.width()).map(|at| ancestors(published.view(at))).collect();
    let rng = ChaCha8Rng::seed_from_u64(31);
    let mut attacker = Attacker { published, classes, of_row, members: members(published), ancestors, rng };
    let step = batch.len().div_ceil(ROWS).max(1);
    let mut known: FxHashMap<u32, Narrowed> = FxHashMap::default();
    let (mut rate, mut cells) = (AttackRate::default(), 0);
    for &class in batch.classes.iter().step_by(step) {
        let found = known.entry(class).or_insert_with(|| attacker.narrow(class));
        rate.sampled += 1;
        rate.rows += f64::from(u8::from(found.combinations));
        rate.cells += found.cells as f64;
        rate.cells_exact += found.exact as f64;
        cells += published.width();
    }
    rate.rows /= rate.sampled.max(1) as f64;
    rate.cells /= cells.max(1) as f64;
    rate.cells_exact /= cells.max(1) as f64;
    rate
}

/// What the reader excludes of one class.
#[derive(Clone, Copy)]
struct Narrowed {
    combinations: bool,
    cells: usize,
    exact: usize,
}

struct Attacker<'a> {
    published: &'a Published<'a>,
    classes: &'a [StepClass],
    of_row: &'a [Option<u32>],
    /// The rows of each published class.
    members: Vec<Vec<usize>>,
    /// Per attribute and level what each leaf becomes.
    ancestors: Vec<Vec<Vec<Code>>>,
    rng: ChaCha8Rng,
}

fn members(published: &Published<'_>) -> Vec<Vec<usize>> {
    let mut members = vec![Vec::new(); published.sizes.len()];
    published.batch.classes.iter().enumerate().for_each(|(at, &class)| members[class as usize].push(at));
    members
}

impl Attacker<'_> {
    fn narrow(&mut self, class: u32) -> Narrowed {
        let width = self.published.width();
        let label: Vec<GeneralizedValue> = (0..width).map(|at| self.published.value(class as usize, at)).collect();
        let members: Vec<Vec<Code>> = self.members[class as usize].iter().map(|&at| self.leaves(at)).collect();
        let own = self.own(class);
        let near: Vec<usize> = (0..self.classes.len()).filter(|&c| self.common(c, &label).is_some()).collect();
        let covered: Vec<Vec<Code>> = (0..width).map(|at| self.below(at, label[at])).collect();
        let mut found = Narrowed { combinations: self.excludes_any(&near, &own, &label), cells: 0, exact: 0 };
        // Where no combination is excluded, no value is.
        for at in (0..width).filter(|_| found.combinations) {
            let held: FxHashSet<Code> = members.iter().map(|member| member[at]).collect();
            let others: Vec<Code> = covered[at].iter().copied().filter(|leaf| !held.contains(leaf)).collect();
            let every = others.len().div_ceil(VALUES).max(1);
            let tried: Vec<Code> = others.iter().copied().step_by(every).collect();
            let excluded = tried.iter().filter(|&&leaf| !self.is_possible(at, leaf, &members, &covered, (&near, &own)));
            let excluded = excluded.count();
            found.cells += usize::from(excluded > 0);
            found.exact += usize::from(held.len() == 1 && excluded > 0 && excluded == tried.len());
        }
        found
    }

    /// The classes of the schedule that the rows of a published class come from; more than one where labels are equal.
    fn own(&self, class: u32) -> FxHashSet<usize> {
        let batch = self.published.batch;
        let from = |&at: &usize| match batch.order[at] {
            RowRef::Fresh(row) => self.of_row[row as usize].map(|class| class as usize),
            RowRef::Held(_) => None,
        };
        self.members[class as usize].iter().filter_map(from).collect()
    }

    fn leaves(&self, at: usize) -> Vec<Code> {
        let (rows, row) = self.published.batch.source(self.published.batch.order[at]);
        rows.quasi(row).to_vec()
    }

    /// The value of a leaf at a level.
    fn at(&self, attribute: usize, leaf: Code, level: Level) -> Code {
        self.ancestors[attribute][usize::from(level)][leaf as usize]
    }

    /// The leaves of the window that a label covers.
    fn below(&self, attribute: usize, label: GeneralizedValue) -> Vec<Code> {
        let codes = &self.ancestors[attribute][usize::from(label.level)];
        (0..).zip(codes).filter(|(_, code)| **code == label.code).map(|(leaf, _)| leaf).collect()
    }

    /// The finer of two values, if one lies in the other.
    fn meet(&self, attribute: usize, a: GeneralizedValue, b: GeneralizedValue) -> Option<GeneralizedValue> {
        let (fine, coarse) = if a.level <= b.level { (a, b) } else { (b, a) };
        let view = self.published.view(attribute);
        let up = |code: Code, level: Level| view.level(level).parent()[code as usize];
        ((fine.level..coarse.level).fold(fine.code, up) == coarse.code).then_some(fine)
    }

    /// What a class of the schedule and a label have in common, if anything.
    fn common(&self, class: usize, label: &[GeneralizedValue]) -> Option<Vec<GeneralizedValue>> {
        let values = self.classes[class].values.iter().zip(label).enumerate();
        values.map(|(at, (&a, &b))| self.meet(at, a, b)).collect()
    }

    /// True if some class elsewhere takes a combination that the label covers, and no earlier class of its own takes it first.
    fn excludes_any(&self, near: &[usize], own: &FxHashSet<usize>, label: &[GeneralizedValue]) -> bool {
        near.iter().filter(|class| !own.contains(class)).any(|&class| {
            let Some(common) = self.common(class, label) else { return false };
            let takes = |earlier: &usize| self.common(*earlier, &common).is_some_and(|inside| inside == common);
            !own.iter().any(|earlier| *earlier < class && takes(earlier))
        })
    }

    /// True if a combination with this leaf is left: one of a member with the leaf in its place, or any other.
    fn is_possible(
        &mut self,
        at: usize,
        leaf: Code,
        members: &[Vec<Code>],
        covered: &[Vec<Code>],
        (near, own): (&[usize], &FxHashSet<usize>),
    ) -> bool {
        (0..TRIES).any(|attempt| {
            let mut leaves: Vec<Code> = match members.get(attempt).filter(|_| attempt < TRIES / 2) {
                Some(member) => member.clone(),
                None => covered.iter().map(|of| of[self.rng.random_range(0..of.len())]).collect(),
            };
            leaves[at] = leaf;
            !self.is_elsewhere(&leaves, near, own)
        })
    }

    /// True if the first step that releases this combination does so in another class.
    fn is_elsewhere(&self, leaves: &[Code], near: &[usize], own: &FxHashSet<usize>) -> bool {
        let takes = |class: &&usize| {
            let values = self.classes[**class].values.iter().zip(leaves).enumerate();
            values.into_iter().all(|(at, (value, &leaf))| self.at(at, leaf, value.level) == value.code)
        };
        // Classes are in the order of their steps, and those of one step do not overlap.
        near.iter().find(takes).is_some_and(|class| !own.contains(class))
    }
}
